/*
 * build_layout.c - how many slots a block has, of which kind, and whether its edges bring codes.
 *
 * A block has a fixed number of slots, so that a row's place is a division. Bytes are counted per slot: vector,
 * factors, input number, key (the mean inline record, and at least what an external one takes), and EDGE_BYTES for
 * edges; edges then get whatever is left of each block.
 *
 * A vector may be larger than the block that was asked for. The block then grows to the least size that holds one, with
 * GROWN_EDGE_BYTES for the edges of that single slot: refusing would only make the user try sizes.
 */
#include "index/build/build.h"
#include "index/build/build_priv.h"
#include "index/segment/entry.h"
#include "io/error.h"
#include <assert.h>

#define CODED_EDGES         6u  /* edges per slot where each brings its target's code */
#define EDGE_BYTES          10u /* per slot: about 8 edges */
#define GROWN_EDGE_BYTES    64u /* in a block that grew to hold one slot */
#define BLOCK_BYTES_DEFAULT 8192u
/* Of blocks behind inverted lists single rows are wanted: the less is read with them the better. */
#define LISTS_BLOCK_BYTES 4096u
#define LISTS_SLOTS_MIN   4u
#define PARTS_ROUNDING    32u /* of four parts to multiples of 8 */
#define SLOTS_WANTED_MIN  8u  /* auto block size grows until so many slots fit, up to the largest block */

static uint32_t key_bytes(const struct build *b)
{
    if (!b->options.keys)
        return 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t length = b->options.key_bytes[i];
        sum += length <= BLOCK_KEY_INLINE_MAX ? length + 2 : BLOCK_KEY_EXTERNAL_BYTES;
    }
    assert(b->n > 0);
    uint32_t mean = (uint32_t)((sum + b->n - 1) / b->n);
    return mean > BLOCK_KEY_EXTERNAL_BYTES ? mean : BLOCK_KEY_EXTERNAL_BYTES;
}

enum quire_slot build_slot(enum quire_slot wanted, enum quire_type type)
{
    bool floats = type != QUIRE_TYPE_U8 && type != QUIRE_TYPE_I8;
    if (wanted == QUIRE_SLOT_I8 && floats)
        return QUIRE_SLOT_Q8;
    if (wanted != QUIRE_SLOT_AUTO)
        return wanted;
    return type == QUIRE_TYPE_U8 ? QUIRE_SLOT_U8 : type == QUIRE_TYPE_I8 ? QUIRE_SLOT_I8 : QUIRE_SLOT_Q8;
}

static uint32_t slot_bytes_of(const struct build *b, enum quire_slot slot)
{
    return slot == QUIRE_SLOT_Q8 ? b->space.code_dim : b->dim * (uint32_t)quire_type_bytes(format_slot_type(slot));
}

/* Q8: A and f, or f and length. Cosine over raw elements: 1 / |x|. Otherwise none. */
static uint32_t factor_bytes_of(const struct build *b, enum quire_slot slot)
{
    return slot == QUIRE_SLOT_Q8 ? 8 : b->options.metric == QUIRE_METRIC_COSINE ? 4 : 0;
}

static uint32_t slots_that_fit(uint32_t block_bytes, uint32_t per_slot)
{
    uint32_t slots = (block_bytes - BLOCK_HEADER_BYTES - PARTS_ROUNDING) / per_slot;
    return slots < SLOTS_MAX ? slots : SLOTS_MAX;
}

/* Bytes that one row needs in a block, of `slot` kind. */
static uint32_t bytes_per_slot(const struct build *b, enum quire_slot slot, bool edge_codes)
{
    uint32_t edges = b->options.index == QUIRE_INDEX_SPANN ? 0
                     : edge_codes ? CODED_EDGES * (format_edge_code_bytes(b->space.code_dim) + 2)
                                  : EDGE_BYTES;
    return 4 + slot_bytes_of(b, slot) + factor_bytes_of(b, slot) + key_bytes(b) + edges;
}

/* `bytes` doubled until enough slots fit, up to the largest block. */
static uint32_t doubled_for_slots(uint32_t bytes, uint32_t per_slot, uint32_t wanted)
{
    while (slots_that_fit(bytes, per_slot) < wanted && bytes < QUIRE_BLOCK_BYTES_MAX)
        bytes *= 2;
    return bytes;
}

/* Blocks of the options' size, or the default; larger where too few slots would fit. */
static void lay_out(const struct build *b, enum quire_slot slot, bool edge_codes, struct segment_params *p)
{
    bool lists = b->options.index == QUIRE_INDEX_SPANN;
    uint32_t per_slot = bytes_per_slot(b, slot, edge_codes), bytes = b->options.block_bytes;
    uint32_t least = BLOCK_HEADER_BYTES + PARTS_ROUNDING + per_slot + GROWN_EDGE_BYTES;
    if (bytes == 0)
        bytes = lists ? doubled_for_slots(LISTS_BLOCK_BYTES, per_slot, LISTS_SLOTS_MIN)
                      : doubled_for_slots(BLOCK_BYTES_DEFAULT, per_slot, SLOTS_WANTED_MIN);
    if (slots_that_fit(bytes, per_slot) == 0)
        bytes = (least + QUIRE_BLOCK_BYTES_MIN - 1) / QUIRE_BLOCK_BYTES_MIN * QUIRE_BLOCK_BYTES_MIN;
    assert(bytes <= QUIRE_BLOCK_BYTES_MAX); /* 65,536 floats are 256 KiB, and a key's bytes are few */
    p->edge_code_bytes = edge_codes ? format_edge_code_bytes(b->space.code_dim) : 0;
    p->block_bytes = bytes;
    p->slots_per_block = slots_that_fit(p->block_bytes, per_slot);
    p->n_blocks = (b->n + p->slots_per_block - 1) / p->slots_per_block;
}

/* Centres, columns and the narrowest navigation codes, which take as much as those of edges: code and factors. */
uint64_t build_graph_bytes(const struct build *b)
{
    struct segment_params plain;
    lay_out(b, build_slot(b->options.slot, b->type), false, &plain);
    return (uint64_t)b->n * format_edge_code_bytes(b->space.code_dim) +
           entry_bytes_of(plain.n_blocks, b->space.code_dim) + build_columns_bytes(b);
}

/* Whether the blocks carry the codes of their edges. If left open, where an index without them could not be searched
 * within the memory that searches are expected to have. */
static bool wants_edge_codes(const struct build *b)
{
    if (b->options.index == QUIRE_INDEX_SPANN)
        return false;
    if (b->options.edge_codes != QUIRE_EDGE_CODES_AUTO)
        return b->options.edge_codes == QUIRE_EDGE_CODES_YES;
    return b->options.memory_bytes && b->options.memory_bytes < build_graph_bytes(b);
}

uint32_t build_block_least(uint64_t rows, uint32_t dim, enum quire_type type, const struct quire_build_options *options)
{
    struct build b = {.n = (uint32_t)rows, .dim = dim, .type = type, .options = *options};
    b.space.code_dim = rotation_code_dim(options->metric == QUIRE_METRIC_IP ? dim + 1 : dim);
    enum quire_slot slot = build_slot(options->slot, type);
    return doubled_for_slots(QUIRE_BLOCK_BYTES_MIN, bytes_per_slot(&b, slot, wants_edge_codes(&b)), SLOTS_WANTED_MIN);
}

void build_layout_for(uint64_t rows, uint32_t dim, enum quire_type type, const struct quire_build_options *options,
                      struct segment_params *out, uint64_t *columns_bytes)
{
    struct build b = {.n = (uint32_t)rows, .dim = dim, .type = type, .options = *options};
    b.space.code_dim = rotation_code_dim(options->metric == QUIRE_METRIC_IP ? dim + 1 : dim);
    *out = (struct segment_params){.rows = rows, .dim = dim, .code_dim = b.space.code_dim};
    lay_out(&b, build_slot(options->slot, type), wants_edge_codes(&b), out);
    *columns_bytes = build_columns_bytes(&b);
}

int build_choose_layout(struct build *b)
{
    struct segment_params *p = &b->params;
    enum quire_slot slot = build_slot(b->options.slot, b->type);
    assert(slot > QUIRE_SLOT_AUTO && slot <= QUIRE_SLOT_BF16);
    /* A slot holds the user's elements as they are, or floats of some width, or the 8-bit code of anything. */
    if ((slot == QUIRE_SLOT_I8 && b->type != QUIRE_TYPE_I8) || (slot == QUIRE_SLOT_U8 && b->type != QUIRE_TYPE_U8))
        return error_set(b->err, QUIRE_ETYPE,
                         "slot %s does not suit vectors of type %s: use auto, q8, bf16, f16 or f32",
                         quire_slot_name(slot), quire_type_name(b->type));
    p->index = b->options.index;
    p->slot = slot;
    p->slot_bytes = slot_bytes_of(b, slot);
    p->factor_bytes = factor_bytes_of(b, slot);
    lay_out(b, slot, wants_edge_codes(b), p);
    if (build_is_lists(b))
        p->list_bits = build_list_bits(b);
    return 0;
}
