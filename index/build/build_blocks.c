/*
 * build_blocks.c - the blocks file: slots, keys and the merged, sorted, trimmed edges of each run of slots.
 *
 * Worth of an edge of a run: a target's weight is the sum over the rows of the run of 1/(rank + 2) for each edge to it,
 * and the weight of a middle rank for each edge from it. Targets inside the block are dropped (the slots are read
 * anyway). Each run gets its share of the bytes left; its heaviest targets that fit are kept, in ascending order.
 *
 * Blocks are made in batches on all threads and written in order from one buffer.
 */
#include "index/build/build_priv.h"
#include "index/cluster/partition.h"
#include "index/vector/near.h"
#include "io/array.h"
#include "io/bitmap.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F16_LEAST 0x1p-10f /* of the largest element: those that are half a thousandth of it keep all their bits */

struct weighted {
    uint32_t row, weight;
};

/* A target as one number: the heavier the less, then by row. */
static inline near_t target_of(struct weighted w)
{
    return (near_t)(UINT32_MAX - w.weight) << 32 | w.row;
}

struct batch {
    struct build *b;
    const uint8_t *hidden;
    uint8_t *buffer;
    uint64_t first_block;
    uint32_t list_slots;
    struct section_file *codes; /* where edge codes are read from; NULL: blocks carry none */
    uint64_t codes_at, factors_at;
    uint8_t *vectors; /* of the batch's rows, as they came */
    struct edges_part edges;
};

struct scratch {
    struct weighted *table; /* open addressing; weight 0: free */
    uint32_t table_mask;
    near_t *targets; /* those found, as target_of has them; twice as much behind them, to sort */
    uint32_t *sorted;
    uint8_t *edges;      /* encoded */
    uint8_t *edge_codes; /* of as many */
    uint8_t *slots, *factors, *keys;
    float *vector, *rotated;
};

static void scratch_fini(struct scratch *s)
{
    array_free_all(s->table, s->targets, s->sorted, s->edges, s->edge_codes, s->slots, s->factors, s->keys, s->vector,
                   s->rotated);
}

static int scratch_init(struct scratch *s, const struct build *b)
{
    const struct segment_params *p = &b->params;
    size_t most = (size_t)p->slots_per_block * b->edges.degree * 2, size = 64;
    while (size < 2 * most)
        size *= 2;
    memset(s, 0, sizeof *s);
    s->table = calloc(size, sizeof *s->table);
    s->table_mask = (uint32_t)size - 1;
    s->targets = malloc(sizeof *s->targets * 3 * (most + 1));
    s->sorted = malloc(sizeof *s->sorted * (most + 1));
    s->edges = malloc((size_t)p->block_bytes + 8 * (most + 1));
    s->edge_codes = malloc(p->block_bytes);
    s->slots = malloc((size_t)p->slots_per_block * p->slot_bytes);
    s->factors = malloc((size_t)p->slots_per_block * 8);
    s->keys = malloc((size_t)p->slots_per_block * (BLOCK_KEY_INLINE_MAX + BLOCK_KEY_EXTERNAL_BYTES));
    s->vector = malloc(sizeof(float) * b->space.code_dim);
    s->rotated = malloc(sizeof(float) * b->space.code_dim);
    if (s->table && s->targets && s->sorted && s->edges && s->edge_codes && s->slots && s->factors && s->keys &&
        s->vector && s->rotated)
        return 0;
    scratch_fini(s);
    return QUIRE_ENOMEM;
}

static bool is_hidden(const struct batch *batch, uint32_t row)
{
    return batch->hidden && bitmap_has(batch->hidden, row);
}

static void add_weight(struct scratch *s, uint32_t row, uint32_t weight)
{
    uint32_t at = row * 2654435761u & s->table_mask;
    while (s->table[at].weight && s->table[at].row != row)
        at = (at + 1) & s->table_mask;
    s->table[at].row = row;
    s->table[at].weight += weight;
}

/* All targets of rows begin..end outside their block, whose rows are first..first + n, into s->targets. */
static uint32_t collect_targets(const struct batch *batch, struct scratch *s, uint32_t first, uint32_t n,
                                uint32_t begin_row, uint32_t end_row)
{
    const struct edges_part *part = &batch->edges;
    for (uint32_t row = begin_row; row < end_row; row++) {
        uint32_t at = row - part->first;
        if (is_hidden(batch, row))
            continue;
        for (uint32_t k = 0; k < part->degree; k++) {
            uint32_t to = part->ids[(size_t)at * part->degree + k];
            if (to != NEIGHBOUR_NONE && to - first >= n && !is_hidden(batch, to))
                add_weight(s, to, 1000 / (k + 2));
        }
        uint32_t begin = part->reverse_at[at] - part->reverse_at[0];
        uint32_t end = part->reverse_at[at + 1] - part->reverse_at[0];
        for (uint32_t i = begin; i < end; i++)
            if (part->reverse[i] - first >= n && !is_hidden(batch, part->reverse[i]))
                add_weight(s, part->reverse[i], 1000 / (part->degree / 2 + 2));
    }
    uint32_t found = 0;
    for (uint32_t at = 0; at <= s->table_mask; at++)
        if (s->table[at].weight) {
            s->targets[found++] = target_of(s->table[at]);
            s->table[at].weight = 0;
        }
    return found;
}

/* The heaviest targets that fit in `space` bytes, `code` bytes of which each takes besides its gap: their rows into
 * s->sorted, their gaps into `out`. Returns how many; *bytes: of the gaps. */
static uint32_t choose_edges(struct scratch *s, uint32_t found, uint32_t first, uint32_t space, uint32_t code,
                             uint8_t *out, uint32_t *bytes)
{
    uint32_t keep = found < space / (code + 1) ? found : space / (code + 1);
    near_t *rows = s->targets + found, *spare = rows + found;
    *bytes = 0;
    for (uint32_t of = found; keep > 0;) {
        near_select(s->targets, of, keep);
        for (uint32_t i = 0; i < keep; i++)
            rows[i] = near_row(s->targets[i]);
        near_keep_sorted(rows, keep, keep, spare);
        for (uint32_t i = 0; i < keep; i++)
            s->sorted[i] = near_row(rows[i]);
        *bytes = block_edges_encode(s->sorted, keep, first, out);
        if (*bytes + keep * code <= space)
            return keep;
        uint32_t fewer = (uint32_t)((uint64_t)keep * space / (*bytes + keep * code));
        of = keep;
        keep = fewer < keep ? fewer : keep - 1;
    }
    *bytes = 0;
    return 0;
}

/* The navigation codes and factors of n rows, read back from the codes file. Runs on several threads: what an error is
 * about is told where they have come together (build_write_blocks). */
static int edge_codes(const struct batch *batch, const uint32_t *rows, uint32_t n, uint8_t *out)
{
    struct io_file *file = section_file_io(batch->codes);
    uint32_t bytes = batch->b->params.edge_code_bytes - EDGE_CODE_FACTOR_BYTES;
    for (uint32_t i = 0; i < n; i++, out += bytes + EDGE_CODE_FACTOR_BYTES) {
        int rc = fs_read_exact(file, out, bytes, batch->codes_at + (uint64_t)rows[i] * bytes, NULL);
        if (rc == 0)
            rc = fs_read_exact(file, out + bytes, EDGE_CODE_FACTOR_BYTES,
                               batch->factors_at + (uint64_t)rows[i] * EDGE_CODE_FACTOR_BYTES, NULL);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The edge lists of a block whose rows are first..first + n, in `space` bytes. */
static int make_lists(const struct batch *batch, struct scratch *s, uint32_t first, uint32_t n, uint32_t space,
                      struct block_parts *parts)
{
    uint32_t code = batch->b->params.edge_code_bytes, slots = batch->list_slots;
    if (slots == 0)
        return 0;
    uint32_t lists = (n + slots - 1) / slots, at = lists * BLOCK_LIST_HEADER_BYTES;
    if (space < at + 8) /* the part of codes begins at a multiple of 8 */
        return 0;
    space -= at + (code ? 8 : 0);
    for (uint32_t i = 0; i < lists; i++) {
        uint32_t begin = first + i * slots, end = first + n - begin < slots ? first + n : begin + slots, bytes;
        uint32_t share = space / (lists - i);
        share = share < BLOCK_LIST_MAX ? share : BLOCK_LIST_MAX;
        uint32_t found = collect_targets(batch, s, first, n, begin, end);
        uint32_t kept = choose_edges(s, found, first, share, code, s->edges + at, &bytes);
        block_list_header(kept, bytes, s->edges + i * BLOCK_LIST_HEADER_BYTES);
        int rc = code ? edge_codes(batch, s->sorted, kept, s->edge_codes + (size_t)parts->n_edges * code) : 0;
        if (rc < 0)
            return rc;
        assert(bytes + kept * code <= share && share <= space);
        parts->n_edges += kept;
        at += bytes;
        space -= bytes + kept * code;
    }
    parts->edges = s->edges;
    parts->edges_bytes = at;
    parts->list_slots = slots;
    parts->edge_codes = s->edge_codes;
    parts->edge_code_bytes = code;
    return 0;
}

/* The code of s->vector relative to its block's centre. */
static void encode_q8(const struct build *b, struct scratch *s, uint32_t block, uint8_t *to, uint8_t *factor)
{
    const float *centre = b->centres + (size_t)block * b->space.code_dim;
    struct code_measures m;
    if (space_row(&b->space, s->vector, s->rotated) > 0) { /* a zero vector is in no direction from a centre */
        memset(to, 0, b->space.code_dim);
        bytes_store_f32(factor, ZERO_VECTOR_A);
        bytes_store_f32(factor + 4, 0);
        return;
    }
    for (uint32_t i = 0; i < b->space.code_dim; i++)
        s->rotated[i] -= centre[i];
    float f = code_encode_measured(s->rotated, b->space.code_dim, 8, to, centre, &m);
    bytes_store_f32(factor, (float)(m.norm2 + 2.0 * f * m.dot_extra));
    bytes_store_f32(factor + 4, f);
}

/* Under cosine, makes s->vector the unit vector where slots do not hold its elements as they are. Returns the inverse
 * of its length; 0 of a zero vector. */
static float scale_elements(const struct build *b, struct scratch *s)
{
    float largest = 0;
    double length = space_unit(s->vector, b->dim, s->rotated);
    for (uint32_t i = 0; i < b->dim; i++)
        largest = fmaxf(largest, fabsf(s->vector[i]));
    bool as_they_came = b->params.slot != QUIRE_SLOT_F16 || b->params.type == QUIRE_TYPE_F16;
    bool fits = as_they_came || (largest >= F16_LEAST && largest <= F16_MAX);
    if (length == 0 || (fits && space_is_ordinary(length)))
        return length > 0 ? (float)(1 / length) : 0;
    memcpy(s->vector, s->rotated, sizeof(float) * b->dim);
    return 1;
}

/* raw: the vector as it came. */
static void encode_slot(const struct build *b, struct scratch *s, uint32_t block, uint32_t slot, const uint8_t *raw)
{
    const struct segment_params *p = &b->params;
    uint8_t *to = s->slots + (size_t)slot * p->slot_bytes, *factor = s->factors + (size_t)slot * p->factor_bytes;
    build_vector(b, raw, s->vector);
    if (p->unit_codes) {
        const uint8_t *code = raw + b->row_bytes - p->slot_bytes - p->factor_bytes;
        memcpy(to, code, p->slot_bytes);
        memcpy(factor, code + p->slot_bytes, p->factor_bytes);
        return;
    }
    if (p->slot == QUIRE_SLOT_Q8) {
        encode_q8(b, s, block, to, factor);
        return;
    }
    if (p->metric == QUIRE_METRIC_COSINE)
        bytes_store_f32(factor, scale_elements(b, s));
    if (p->slot == QUIRE_SLOT_I8 || p->slot == QUIRE_SLOT_U8)
        memcpy(to, raw, p->slot_bytes);
    else
        space_elements(format_slot_type(p->slot), s->vector, b->dim, to);
}

/* Encodes the keys of a block; keys that do not fit its space, longest first, stand in the heap only. */
static uint32_t encode_keys(const struct build *b, struct scratch *s, uint32_t first, uint32_t n, uint32_t space)
{
    uint32_t limit = BLOCK_KEY_INLINE_MAX, bytes;
    if (!b->options.keys)
        return 0;
    for (;;) {
        bytes = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t input = b->order[first + i], length = b->options.key_bytes[input];
            bytes += block_key_encode(b->options.keys[input], length, length > limit, b->external_at[input],
                                      s->keys + bytes);
        }
        if (bytes <= space || limit == 0)
            return bytes;
        limit = limit > 8 ? limit - 8 : 0;
    }
}

static int make_block(const struct batch *batch, struct scratch *s, uint32_t block, uint8_t *out)
{
    const struct build *b = batch->b;
    const struct segment_params *p = &b->params;
    uint32_t first = block * p->slots_per_block;
    uint32_t n = format_block_rows(p, block);
    for (uint32_t i = 0; i < n; i++)
        encode_slot(b, s, block, i, batch->vectors + (first + i - batch->edges.first) * b->row_bytes);
    uint32_t bare = block_fixed_bytes(n, p->slot_bytes, p->factor_bytes, 0);
    uint32_t keys_bytes = encode_keys(b, s, first, n, (p->block_bytes - bare) / 8 * 8);
    struct block_parts parts = {.number = block,
                                .first_row = first,
                                .n_slots = n,
                                .ids = b->order + first,
                                .slots = s->slots,
                                .slot_bytes = p->slot_bytes,
                                .factors = s->factors,
                                .factor_bytes = p->factor_bytes,
                                .keys = s->keys,
                                .keys_bytes = keys_bytes};
    uint32_t fixed = block_fixed_bytes(n, p->slot_bytes, p->factor_bytes, keys_bytes);
    int rc = make_lists(batch, s, first, n, p->block_bytes - fixed, &parts);
    block_write(out, p->block_bytes, &parts, b->segment_id);
    return rc;
}

static int make_range(void *context, uint64_t begin, uint64_t end)
{
    const struct batch *batch = context;
    struct scratch s;
    int rc = scratch_init(&s, batch->b);
    if (rc < 0)
        return rc;
    for (uint64_t i = begin; rc == 0 && i < end; i++)
        rc =
            make_block(batch, &s, (uint32_t)(batch->first_block + i), batch->buffer + i * batch->b->params.block_bytes);
    scratch_fini(&s);
    return rc;
}

int build_write_blocks(struct build *b, const uint8_t *hidden)
{
    uint32_t block_bytes = b->params.block_bytes, capacity = b->params.slots_per_block;
    /* neither blocks of a batch, nor their rows' vectors, nor the edges take more than BATCH_BYTES */
    uint32_t per_batch = build_batch_rows(b, sizeof(uint32_t) * b->edges.degree) / capacity;
    per_batch = per_batch < BATCH_BYTES / block_bytes ? per_batch : BATCH_BYTES / block_bytes;
    per_batch = per_batch ? per_batch : 1;
    bool lists = build_is_lists(b); /* inverted ones lead to the rows, blocks have no edges */
    struct batch batch = {.b = b, .hidden = hidden, .list_slots = lists ? 0 : PARTITION_RUN};
    struct section_writer *writer = NULL;
    assert(b->order && b->centres && (lists || b->edges.reverse_at) && !b->options.keys == !b->external_at);
    batch.buffer = malloc((size_t)per_batch * block_bytes);
    batch.vectors = malloc((size_t)per_batch * capacity * b->row_bytes);
    int rc = batch.buffer && batch.vectors ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && !lists)
        rc = build_edges_part_init(b, per_batch * capacity, &batch.edges);
    if (rc == 0 && b->params.edge_code_bytes) {
        char *path = build_file_path(b, CODES_NAME);
        rc = path ? section_file_open(b->fs, path, FILE_CODES, b->segment_id, FS_READ, &batch.codes, b->err)
                  : QUIRE_ENOMEM;
        free(path);
    }
    if (batch.codes) { /* codes belong to all slots of a block at once: one is worth more bytes than a second list */
        batch.codes_at = section_find(batch.codes, CODES_NAVIGATION + nav_bits[EDGE_CODE_WIDTH])->offset;
        batch.factors_at = section_find(batch.codes, CODES_NAV_FACTORS + nav_bits[EDGE_CODE_WIDTH])->offset;
        batch.list_slots = capacity;
    }
    if (rc == 0)
        rc = build_section_writer(b, BLOCKS_NAME, FILE_BLOCKS, &writer);
    if (rc == 0)
        rc = section_begin(writer, BLOCKS_BLOCKS, SECTION_SELF_CHECKED, b->err);
    for (uint32_t at = 0; rc == 0 && at < b->params.n_blocks; at += per_batch) {
        uint32_t n = b->params.n_blocks - at < per_batch ? b->params.n_blocks - at : per_batch;
        uint32_t first = at * capacity, rows = b->n - first < n * capacity ? b->n - first : n * capacity;
        batch.first_block = at;
        batch.edges.first = first;
        rc = build_load_input(b, first, rows, batch.vectors);
        if (rc == 0 && batch.list_slots)
            rc = build_edges_part_load(b, first, rows, &batch.edges);
        if (rc == 0)
            rc = parallel_for(b->options.threads, n, n / (4 * b->options.threads) + 1, make_range, &batch, NULL);
        if (rc == 0)
            rc = section_write(writer, batch.buffer, (size_t)n * block_bytes, b->err);
        if (rc == 0)
            rc = build_report(b, hidden ? "write blocks (to calibrate)" : "write blocks", at + n, b->params.n_blocks);
    }
    if (rc == 0)
        rc = section_end(writer, b->err);
    rc = section_writer_conclude(writer, rc, b->err);
    section_file_close(batch.codes);
    build_edges_part_fini(&batch.edges);
    array_free_all(batch.vectors, batch.buffer);
    return rc;
}
