/*
 * build_layout.c - how many slots a block has, which rows share one, and where its centre lies.
 *
 * A block has a fixed number of slots, so that a row's place is a division. Room is counted per slot: vector, factors,
 * input number, key (the mean inline record, and at least what an external one takes), and EDGE_BYTES for edges; edges
 * then get whatever is left of each block.
 *
 * A vector may be larger than the block that was asked for. The block then grows to the least size that holds one, with
 * GROWN_EDGE_BYTES for the edges of that single slot: refusing would only make the user try sizes.
 *
 * A block's rows are coded relative to its centre (centre.h).
 *
 * Rows in memory change places in place (rows.h), so that they are there only once; rows in a file are put in order
 * while they are partitioned (partition_files.c).
 */
#include "index/build/build.h"
#include "index/build/build_priv.h"
#include "index/cluster/centre.h"
#include "index/kernels/kernels.h"
#include "index/segment/entry.h"
#include "io/bitmap.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CODED_EDGES         6u  /* edges per slot where each brings its target's code */
#define EDGE_BYTES          10u /* per slot: about 8 edges */
#define GROWN_EDGE_BYTES    64u /* in a block that grew to hold one slot */
#define BLOCK_BYTES_DEFAULT 8192u
/* Of blocks behind inverted lists single rows are wanted: the less is read with them the better. */
#define LISTS_BLOCK_BYTES 4096u
#define LISTS_SLOTS_MIN   4u
#define PARTS_ROUNDING    32u /* of four parts to multiples of 8 */
#define SLOTS_WANTED_MIN  8u  /* auto block size grows until so many slots fit, up to the largest block */

static uint32_t key_room(const struct build *b)
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

static enum quire_slot choose_slot(const struct build *b)
{
    return build_slot(b->options.slot, b->type);
}

/* A slot holds the user's elements as they are, or floats of some width, or the 8-bit code of anything. */
static bool slot_suits(enum quire_slot slot, enum quire_type type)
{
    switch (slot) {
    case QUIRE_SLOT_F32:
    case QUIRE_SLOT_F16:
    case QUIRE_SLOT_BF16:
    case QUIRE_SLOT_Q8:
        return true;
    case QUIRE_SLOT_I8:
        return type == QUIRE_TYPE_I8;
    case QUIRE_SLOT_U8:
        return type == QUIRE_TYPE_U8;
    case QUIRE_SLOT_AUTO:
        break;
    }
    return false;
}

static uint32_t slot_bytes_of(const struct build *b, enum quire_slot slot)
{
    return slot == QUIRE_SLOT_Q8 ? b->space.code_dim : b->dim * (uint32_t)quire_type_bytes(slot_element_type(slot));
}

/* Q8: A and f. Cosine over raw elements: 1 / |x|. Otherwise none. */
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
static uint32_t room_per_slot(const struct build *b, enum quire_slot slot, bool edge_codes)
{
    uint32_t edges = b->options.index == QUIRE_INDEX_SPANN ? 0
                     : edge_codes                          ? CODED_EDGES * (edge_code_bytes_of(b->space.code_dim) + 2)
                                                           : EDGE_BYTES;
    return 4 + slot_bytes_of(b, slot) + factor_bytes_of(b, slot) + key_room(b) + edges;
}

/* `bytes` doubled until enough slots fit, up to the largest block. */
static uint32_t doubled_for_slots(uint32_t bytes, uint32_t per_slot, uint32_t wanted)
{
    while (slots_that_fit(bytes, per_slot) < wanted && bytes < QUIRE_BLOCK_BYTES_MAX)
        bytes *= 2;
    return bytes;
}

/* The options' size, or the default; larger where too few slots would fit. */
static uint32_t choose_block_bytes(const struct build *b, uint32_t per_slot)
{
    bool lists = b->options.index == QUIRE_INDEX_SPANN;
    uint32_t start = lists ? LISTS_BLOCK_BYTES : BLOCK_BYTES_DEFAULT;
    uint32_t wanted = lists ? LISTS_SLOTS_MIN : SLOTS_WANTED_MIN;
    uint32_t bytes = b->options.block_bytes ? b->options.block_bytes : doubled_for_slots(start, per_slot, wanted);
    uint32_t least = BLOCK_HEADER_BYTES + PARTS_ROUNDING + per_slot + GROWN_EDGE_BYTES;
    if (slots_that_fit(bytes, per_slot) == 0)
        bytes = (least + QUIRE_BLOCK_BYTES_MIN - 1) / QUIRE_BLOCK_BYTES_MIN * QUIRE_BLOCK_BYTES_MIN;
    assert(bytes <= QUIRE_BLOCK_BYTES_MAX); /* 16,384 floats are 64 KiB, and a key's room is small */
    return bytes;
}

static void lay_out(const struct build *b, enum quire_slot slot, bool edge_codes, struct segment_params *p)
{
    uint32_t per_slot = room_per_slot(b, slot, edge_codes);
    p->edge_code_bytes = edge_codes ? edge_code_bytes_of(b->space.code_dim) : 0;
    p->block_bytes = choose_block_bytes(b, per_slot);
    p->slots_per_block = slots_that_fit(p->block_bytes, per_slot);
    p->n_blocks = (b->n + p->slots_per_block - 1) / p->slots_per_block;
}

/* Centres, columns and the narrowest navigation codes, which take as much as those of edges: code and factors. */
static uint64_t narrowest_bytes(const struct build *b, enum quire_slot slot)
{
    struct segment_params plain;
    lay_out(b, slot, false, &plain);
    return (uint64_t)b->n * edge_code_bytes_of(b->space.code_dim) + entry_bytes_of(plain.n_blocks, b->space.code_dim) +
           build_columns_bytes(b);
}

/* Whether the blocks carry the codes of their edges. If left open, where an index without them could not be searched
 * within the memory that searches are expected to have. */
static bool wants_edge_codes(const struct build *b, enum quire_slot slot)
{
    if (b->options.index == QUIRE_INDEX_SPANN)
        return false;
    if (b->options.edge_codes != QUIRE_EDGE_CODES_AUTO)
        return b->options.edge_codes == QUIRE_EDGE_CODES_YES;
    return b->options.memory_bytes && b->options.memory_bytes < narrowest_bytes(b, slot);
}

uint64_t build_graph_bytes(const struct build *b)
{
    return narrowest_bytes(b, choose_slot(b));
}

uint32_t build_block_least(uint64_t rows, uint32_t dim, enum quire_type type, const struct quire_build_options *options)
{
    struct build b = {.n = (uint32_t)rows, .dim = dim, .type = type, .options = *options};
    b.space.code_dim = code_dim_of(options->metric == QUIRE_METRIC_IP ? dim + 1 : dim);
    enum quire_slot slot = choose_slot(&b);
    return doubled_for_slots(QUIRE_BLOCK_BYTES_MIN, room_per_slot(&b, slot, wants_edge_codes(&b, slot)),
                             SLOTS_WANTED_MIN);
}

int build_choose_layout(struct build *b)
{
    struct segment_params *p = &b->params;
    enum quire_slot slot = choose_slot(b);
    if (!slot_suits(slot, b->type))
        return error_set(b->err, QUIRE_ETYPE,
                         "slot %s does not suit vectors of type %s: use auto, q8, bf16, f16 or f32",
                         quire_slot_name(slot), quire_type_name(b->type));
    p->index = b->options.index;
    p->slot = slot;
    p->slot_bytes = slot_bytes_of(b, slot);
    p->factor_bytes = factor_bytes_of(b, slot);
    lay_out(b, slot, wants_edge_codes(b, slot), p);
    if (build_is_lists(b))
        p->list_bits = b->options.code_bits ? b->options.code_bits : build_list_bits(b);
    return 0;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* A build that may be resumed keeps rows in memory in a file as well. */
static int keep_rows(struct build *b)
{
    struct row_store kept;
    char *path = build_file_path(b, WORK_ROWS);
    int rc = path ? row_store_open(&kept, b->n, b->space.code_dim, b->fs, path, false, b->err) : QUIRE_ENOMEM;
    if (rc == 0) {
        rc = row_store_write(&kept, 0, &b->rows.rows, b->order);
        if (rc == 0)
            rc = row_store_sync(&kept);
        row_store_close(&kept);
    }
    free(path);
    return rc;
}

static int partition_in_files(struct build *b, uint32_t n, const struct partition_config *config,
                              const struct progress *progress, uint32_t *order)
{
    struct row_store part = b->rows, spare;
    char *path = build_file_path(b, WORK_SPARE);
    int rc = path ? row_store_open(&spare, n, b->space.code_dim, b->fs, path, false, b->err) : QUIRE_ENOMEM;
    free(path);
    if (rc < 0)
        return rc;
    part.n = n;
    rc = partition_files(&part, &spare, b->plan.partition_rows, config, progress, order);
    row_store_close(&spare);
    return rc == 0 ? build_remove_file(b, WORK_SPARE) : rc;
}

int build_partition(struct build *b, uint32_t n, const char *phase, uint32_t *order)
{
    struct partition_config config = {b->params.slots_per_block, b->options.threads, b->options.seed};
    struct progress progress;
    build_progress(b, phase, &progress);
    if (b->plan.in_files)
        return partition_in_files(b, n, &config, &progress, order);
    struct rows part = rows_part(&b->rows.rows, 0, n);
    int rc = partition_build(&part, &config, &progress, order);
    return rc == 0 ? rows_permute(&part, order) : rc;
}

int build_order_rows(struct build *b)
{
    b->order = malloc(sizeof(uint32_t) * b->n);
    if (!b->order)
        return QUIRE_ENOMEM;
    int rc = build_is_lists(b) ? build_order_lists(b) : build_partition(b, b->n, "partition", b->order);
    if (rc < 0 || !b->options.resume)
        return rc;
    return b->plan.in_files ? row_store_sync(&b->rows) : keep_rows(b);
}

/* All rows of the file pass by; those that are to be in memory stay there. */
int build_read_order(struct build *b)
{
    uint32_t most = build_batch_rows(b, row_record_bytes(b->space.code_dim));
    struct rows room = {0};
    int rc = b->plan.in_files ? rows_alloc(&room, most, b->space.code_dim) : 0;
    for (uint32_t at = 0; rc == 0 && at < b->n;) {
        uint32_t n = b->n - at < most ? b->n - at : most;
        struct rows *to = b->plan.in_files ? &room : &b->rows.rows;
        rc = row_store_read(&b->rows, at, n, to, b->plan.in_files ? 0 : at, b->order + at);
        at += n;
        if (rc == 0)
            rc = build_report(b, "read rows", at, b->n);
    }
    rows_free(&room);
    return rc;
}

int build_open_rows(struct build *b)
{
    char *path = build_file_path(b, WORK_ROWS);
    b->order = malloc(sizeof(uint32_t) * b->n);
    int rc =
        path && b->order ? row_store_open(&b->rows, b->n, b->space.code_dim, b->fs, path, true, b->err) : QUIRE_ENOMEM;
    if (rc == 0 && !b->plan.in_files)
        rc = rows_alloc(&b->rows.rows, b->n, b->space.code_dim);
    if (rc == 0)
        rc = build_read_order(b);
    free(path);
    return rc;
}

/* ---- centres ----------------------------------------------------------------------------------------------------- */

struct centres_job {
    struct build *b;
    uint32_t first_block; /* of the batch */
    struct rows rows;     /* of the batch */
};

static void make_centre(const struct centres_job *job, struct centre_scratch *s, uint32_t i)
{
    struct build *b = job->b;
    uint32_t dim = b->space.code_dim, capacity = b->params.slots_per_block, first = i * capacity;
    uint32_t n = job->rows.n - first < capacity ? job->rows.n - first : capacity;
    size_t block = (size_t)job->first_block + i;
    float *centre = b->centres + block * dim, *factors = b->centre_factors + 3 * block;
    uint8_t *code = b->centre_codes + block * code_bytes_of(dim, CENTRE_BITS);
    centre_take(s, &job->rows, first, n);
    centre_find(s, n, dim, centre);
    factors[0] = code_encode(centre, dim, CENTRE_BITS, code, NULL, NULL);
    code_decode(code, dim, CENTRE_BITS, factors[0], centre);
    factors[1] = 0;
    for (uint32_t d = 0; d < dim; d++)
        factors[1] += centre[d] * centre[d];
    factors[2] = centre_rms(s, n, dim, centre);
}

static int centre_range(void *context, uint64_t begin, uint64_t end)
{
    const struct centres_job *job = context;
    struct centre_scratch s;
    int rc = centre_scratch_init(&s, job->b->params.slots_per_block, job->b->space.code_dim);
    if (rc < 0)
        return rc;
    for (uint64_t i = begin; i < end; i++)
        make_centre(job, &s, (uint32_t)i);
    centre_scratch_fini(&s);
    return 0;
}

static int find_centres(struct build *b, const char *phase)
{
    struct centres_job job = {.b = b};
    struct rows room = {0};
    uint32_t capacity = b->params.slots_per_block;
    uint32_t blocks = build_batch_rows(b, row_record_bytes(b->space.code_dim)) / capacity + 1;
    int rc = b->plan.in_files ? rows_alloc(&room, blocks * capacity, b->space.code_dim) : 0;
    for (uint32_t at = 0; rc == 0 && at < b->params.n_blocks; at += blocks) {
        uint32_t first = at * capacity, n = b->n - first < blocks * capacity ? b->n - first : blocks * capacity;
        job.first_block = at;
        rc = row_store_view(&b->rows, first, n, &room, &job.rows);
        if (rc == 0)
            rc = parallel_for(b->options.threads, (n + capacity - 1) / capacity, 64, centre_range, &job, NULL);
        if (rc == 0)
            rc = build_report(b, phase, first + n, b->n);
    }
    rows_free(&room);
    return rc;
}

int build_centres(struct build *b, const char *phase)
{
    uint32_t dim = b->space.code_dim;
    free(b->centres);
    free(b->centre_codes);
    free(b->centre_factors);
    b->centres = malloc(sizeof(float) * b->params.n_blocks * dim);
    b->centre_codes = malloc((size_t)b->params.n_blocks * code_bytes_of(dim, CENTRE_BITS));
    b->centre_factors = calloc((size_t)b->params.n_blocks * 3, sizeof(float));
    return b->centres && b->centre_codes && b->centre_factors ? find_centres(b, phase) : QUIRE_ENOMEM;
}

int build_decode_centres(struct build *b)
{
    uint32_t dim = b->space.code_dim, bytes = code_bytes_of(dim, CENTRE_BITS);
    b->centres = malloc(sizeof(float) * b->params.n_blocks * dim);
    if (!b->centres)
        return QUIRE_ENOMEM;
    for (size_t block = 0; block < b->params.n_blocks; block++)
        code_decode(b->centre_codes + block * bytes, dim, CENTRE_BITS, b->centre_factors[3 * block],
                    b->centres + block * dim);
    return 0;
}
