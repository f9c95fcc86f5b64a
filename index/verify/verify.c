/*
 * verify.c - quire_verify: read everything, believe nothing.
 *
 * Opening already checks the superblocks, the list of files and the resident parts. Then every section that has a
 * checksum is read whole, and the self-checked ones page by page and block by block. Against each other: input row
 * numbers form a permutation, edges are ascending rows of this index and none leads into its own block, the key table
 * finds each row under its key, and the widest navigation code of each row decodes near the vector in its slot (2.5
 * times the error that the width has on this index on average, plus the slot's own rounding, would be suspicious; 6
 * times is a finding). An edge's code is the very bytes that the codes file has for the target, so those are compared.
 *
 * Reachable is a row whose block the entry tree leads to, which is followed from its top as a search does; a block that
 * it misses is a finding, and so is a centre above the blocks that is not the mean of those below it. What edges alone
 * reach is counted too, from the block nearest to the mean: it says how good the graph is, not whether the index is
 * sound. For that the blocks that each block leads to are kept in memory, 4 bytes each: a fraction of the codes.
 *
 * An index of inverted lists has its codes in the posting blocks, which verify_lists.c checks; every row stands in its
 * own list, and is reachable if that can be read and its head is linked.
 *
 * Columns and tenants are derived anew from the attributes (verify_columns.c).
 *
 * A finding is a sentence; the walk goes on, so that one damaged block does not hide another.
 */
#include "index/column/columns.h"
#include "index/format/block.h"
#include "index/kernels/kernels.h"
#include "index/segment/segment_view.h"
#include "index/vector/codes.h"
#include "index/vector/space.h"
#include "index/verify/verify_priv.h"
#include "io/array.h"
#include "io/bitmap.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FINDINGS_MAX     1000u
#define FILES_MAX        7u
#define BATCH_BYTES      (1u << 20)
#define CODE_ERROR_LIMIT 6.0
#define NODE_ERROR_LIMIT 0.5 /* of a centre's length; codes of CENTRE_BITS bits are off by 0.1, other clusters by 1 */

void verify_found(struct verification *v, const char *format, ...)
{
    char sentence[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    if (v->report.findings++ < FINDINGS_MAX && v->listener->finding)
        v->listener->finding(v->listener->context, sentence);
}

int verify_progress(const struct verification *v, const char *phase, uint64_t done, uint64_t total)
{
    const struct verify_listener *l = v->listener;
    return l->progress && l->progress(l->context, phase, done, total) ? QUIRE_ECANCELLED : 0;
}

static int verify_file(struct verification *v, const char *name, uint32_t kind)
{
    struct section_file *file = NULL;
    char *path;
    if (asprintf(&path, "%s/%s", v->s->info.path, name) < 0)
        return QUIRE_ENOMEM;
    struct quire_error err = {0};
    int rc = section_file_open(v->fs, path, kind, v->s->segment_id, FS_READ | FS_DIRECT, &file, &err);
    free(path);
    v->report.files++;
    if (rc < 0) {
        verify_found(v, "%s", err.message);
        return 0;
    }
    for (uint32_t i = 0; i < section_count(file); i++) {
        v->report.sections++;
        if (section_verify(file, section_at(file, i), &err) < 0)
            verify_found(v, "%s", err.message);
    }
    if (section_verify_gaps(file, &err) < 0)
        verify_found(v, "%s", err.message);
    section_file_close(file);
    return verify_progress(v, "check files", v->report.files,
                           FILES_MAX - !v->s->postings - !v->s->attributes - !v->s->columns);
}

static int verify_files(struct verification *v)
{
    const struct {
        const char *name;
        uint32_t kind;
        bool exists;
    } files[FILES_MAX] = {{META_NAME, FILE_META, true},
                          {BLOCKS_NAME, FILE_BLOCKS, true},
                          {CODES_NAME, FILE_CODES, true},
                          {POSTINGS_NAME, FILE_POSTINGS, v->s->postings},
                          {KEYS_NAME, FILE_KEYS, true},
                          {ATTRIBUTES_NAME, FILE_ATTRIBUTES, v->s->attributes},
                          {COLUMNS_NAME, FILE_COLUMNS, v->s->columns}};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < FILES_MAX; i++)
        rc = files[i].exists ? verify_file(v, files[i].name, files[i].kind) : 0;
    return rc;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static int load_pages(struct verification *v, struct section_file *file, uint32_t id, uint8_t **out)
{
    const struct section_entry *entry = section_find(file, id);
    uint8_t *pages = malloc((size_t)entry->bytes + 1);
    int rc =
        pages ? section_read(file, entry, 0, pages, (size_t)entry->bytes, v->err)
              : error_set(v->err, QUIRE_ENOMEM, "no memory for %llu bytes of keys", (unsigned long long)entry->bytes);
    for (uint64_t page = 0; rc == 0 && page < entry->bytes / PAGE_BYTES; page++)
        if (!format_page_is_valid(pages + page * PAGE_BYTES, page, v->s->segment_id))
            verify_found(v, "page %llu of section %u of %s is damaged: wrong checksum", (unsigned long long)page, id,
                         section_file_io(file)->path);
    if (rc < 0)
        free(pages);
    else
        *out = pages;
    return rc;
}

static int load_keys(struct verification *v)
{
    struct segment *s = v->s;
    if (s->params.user_keys)
        return load_pages(v, s->keys, KEYS_BUCKETS, &v->buckets);
    uint8_t *pages = NULL;
    int rc = load_pages(v, s->keys, KEYS_ROWS, &pages);
    v->places = rc == 0 ? malloc(sizeof *v->places * s->params.rows) : NULL;
    if (rc == 0 && !v->places)
        rc = QUIRE_ENOMEM;
    for (uint64_t i = 0; rc == 0 && i < s->params.rows; i++)
        v->places[i] = bytes_load_u32(pages + i / ROWS_PER_PAGE * PAGE_BYTES + 4 * (i % ROWS_PER_PAGE));
    free(pages);
    return rc;
}

static bool bucket_has(const struct verification *v, uint64_t hash, uint32_t row)
{
    assert(v->buckets && row < v->s->params.rows);
    const uint8_t *page = v->buckets + (size_t)format_key_bucket(hash, v->s->params.key_buckets) * PAGE_BYTES;
    uint32_t n = bytes_load_u32(page);
    for (uint32_t i = 0; i < n && n <= BUCKET_ENTRIES_MAX; i++)
        if (bytes_load_u64(page + 8 + 8 * (size_t)i) == hash &&
            bytes_load_u32(page + 8 + 8 * (size_t)n + 4 * (size_t)i) == row)
            return true;
    return false;
}

/* The hash of a long key, from its record in the heap. */
static int external_hash(struct verification *v, const struct block_key *key, uint64_t *hash)
{
    const struct section_entry *entry = section_find(v->s->keys, KEYS_HEAP);
    uint8_t *record = malloc(RECORD_HEADER_BYTES + (size_t)key->length);
    struct quire_error err = {0};
    int rc = record ? section_read(v->s->keys, entry, key->external_at, record,
                                   RECORD_HEADER_BYTES + (size_t)key->length, &err)
                    : QUIRE_ENOMEM;
    if (rc == 0 &&
        bytes_load_u64(record) != format_record_checksum(record + RECORD_HEADER_BYTES, key->length, v->s->segment_id))
        rc = QUIRE_ECORRUPT;
    if (rc == 0)
        *hash = format_key_hash(record + RECORD_HEADER_BYTES, key->length);
    free(record);
    return rc;
}

static void verify_key(struct verification *v, const struct block_view *view, uint32_t slot, uint32_t input)
{
    uint32_t row = view->first_row + slot;
    assert(!v->places != !v->buckets && input < v->s->params.rows); /* keys are of one kind */
    v->report.keys++;
    if (v->places) {
        if (v->places[input] != row)
            verify_found(v, "key %u is listed at row %u but stands at row %u", input, v->places[input], row);
        return;
    }
    struct block_key key;
    uint64_t hash = 0;
    int rc = view->keys ? block_key(view, slot, &key) : QUIRE_ECORRUPT;
    if (rc == 0 && !key.bytes)
        rc = external_hash(v, &key, &hash);
    else if (rc == 0)
        hash = format_key_hash(key.bytes, key.length);
    if (rc < 0)
        verify_found(v, "the key of row %u cannot be read: %s", row, quire_error_text(rc));
    else if (!bucket_has(v, hash, row))
        verify_found(v, "the key of row %u is not in the key table", row);
}

/* A short key of the user's is the one in memory; a long one is not there. */
static bool name_is_right(const struct names *names, const struct block_view *view, uint32_t slot)
{
    struct block_key key;
    uint32_t bytes;
    const uint8_t *name = names_get(names, view->first_row + slot, &bytes);
    if (!view->keys || block_key(view, slot, &key) < 0)
        return true; /* found already */
    if (key.length > NAMES_BYTES_MAX)
        return name == NULL;
    return name && bytes == key.length && (!key.bytes || memcmp(name, key.bytes, bytes) == 0);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* The code and factors that edge number `edge` of the block carries are those of row `to`. */
static bool edge_code_is_right(const struct verification *v, const struct block_view *view, uint32_t edge, uint32_t to)
{
    const struct segment *narrow = v->narrow;
    const uint8_t *code = view->edge_codes + (size_t)edge * v->s->params.edge_code_bytes;
    const f16_t *factors = narrow->nav_factors + 2 * (size_t)to;
    const uint8_t *carried = code + narrow->nav_bytes;
    return memcmp(code, narrow->nav_codes + (size_t)to * narrow->nav_bytes, narrow->nav_bytes) == 0 &&
           bytes_load_u16(carried) == factors[0] && bytes_load_u16(carried + 2) == factors[1];
}

static int add_link(struct verification *v, uint32_t from, uint32_t to)
{
    struct block_links *l = &v->links;
    uint64_t *n = &l->at[from + 1];
    assert(from < v->s->params.n_blocks && to < v->s->params.n_blocks && *n >= l->at[from]);
    if (*n > l->at[from] && l->targets[*n - 1] == to)
        return 0; /* edges ascend: those to one block follow each other */
    if (!array_reserve(&l->targets, &l->capacity, *n + 1))
        return error_set(v->err, QUIRE_ENOMEM, "no memory for %llu links between blocks", (unsigned long long)*n + 1);
    l->targets[(*n)++] = to;
    return 0;
}

/* Edge i of a list, whose rows are v->edges. *go_on: false after a finding that makes the rest of it worthless. */
static int verify_edge(struct verification *v, const struct block_view *view, uint32_t list, uint32_t first, int i,
                       bool *go_on)
{
    const struct segment_params *p = &v->s->params;
    assert(p->slots_per_block > 0); /* params_check */
    uint32_t to = v->edges[i], block = to / p->slots_per_block;
    if (to >= p->rows || block == view->number || (i > 0 && to <= v->edges[i - 1])) {
        verify_found(
            v, "edge %d of list %u of block %u leads to row %u: outside the index, into its own block or out of order",
            i, list, view->number, to);
        *go_on = false;
        return 0;
    }
    if (v->narrow && !edge_code_is_right(v, view, first + (uint32_t)i, to))
        verify_found(v, "the code of edge %d of list %u of block %u is not that of row %u, to which it leads", i, list,
                     view->number, to);
    bitmap_add(v->entered, block);
    return add_link(v, view->number, block);
}

static int verify_edges(struct verification *v, const struct block_view *view)
{
    uint32_t first;
    v->report.edges += view->n_edges;
    for (uint32_t list = 0; list < view->n_lists; list++) {
        int n = block_edges(view, list, v->edges, &first), rc = 0;
        bool go_on = true;
        if (n < 0)
            verify_found(v, "the edges of block %u do not decode", view->number);
        for (int i = 0; rc == 0 && go_on && i < n; i++)
            rc = verify_edge(v, view, list, first, i, &go_on);
        if (rc < 0)
            return rc;
    }
    return 0;
}

float verify_slot_vector(struct verification *v, const struct block_view *view, uint32_t slot)
{
    const struct segment_params *p = &v->s->params;
    const uint8_t *at = view->slots + (size_t)slot * p->slot_bytes;
    const uint8_t *factors = view->factors + (size_t)slot * p->factor_bytes;
    if (p->slot == QUIRE_SLOT_Q8 && !p->unit_codes) {
        float f = bytes_load_f32(factors + 4);
        if (!format_is_zero_vector(p, bytes_load_f32(factors), f)) {
            for (uint32_t i = 0; i < p->code_dim; i++)
                v->rotated[i] = v->centre[i] + f * ((float)at[i] - 127.5f);
            return 0;
        }
    }
    segment_slot_vector(v->s, view->number, at, factors, v->rotated, v->vector);
    return space_row(&v->s->space, v->vector, v->rotated);
}

double verify_scale2(const struct segment_params *p)
{
    return p->metric == QUIRE_METRIC_COSINE ? 1 : p->norm2_max;
}

static void verify_code(struct verification *v, const struct block_view *view, uint32_t slot)
{
    const struct segment *s = v->s;
    uint32_t row = view->first_row + slot, dim = s->params.code_dim;
    float f;
    kernels()->f32_from_f16(s->nav_factors + 2 * (size_t)row + 1, &f, 1);
    verify_slot_vector(v, view, slot);
    code_decode(s->nav_codes + (size_t)row * s->nav_bytes, dim, nav_bits[s->width], f * s->params.scale_f[s->width],
                v->decoded);
    double wrong = 0, radius = 0;
    for (uint32_t i = 0; i < dim; i++) {
        double r = (double)v->rotated[i] - v->centre[i], d = r - v->decoded[i];
        wrong += d * d;
        radius += r * r;
    }
    assert(s->nav_codes && s->nav_factors); /* open_with refuses a page graph without */
    double share = radius > 1e-12 * verify_scale2(&s->params) ? sqrt(wrong / radius) : 0;
    v->error_sum += share * share;
    v->errors++;
    if (share > v->report.code_error_max)
        v->report.code_error_max = share;
    if (share > CODE_ERROR_LIMIT * s->params.error[s->width] + 0.5)
        verify_found(v, "the navigation code of row %u is %.3f of its length away from its vector", row, share);
}

static int verify_block(struct verification *v, const uint8_t *bytes, uint32_t number)
{
    struct segment *s = v->s;
    const struct segment_params *p = &s->params;
    struct block_view view;
    struct quire_error err = {0};
    uint32_t first = number * p->slots_per_block;
    uint32_t expected = format_block_rows(p, number);
    v->report.blocks++;
    v->links.at[number + 1] = v->links.at[number];
    int rc = block_open(bytes, &s->shape, number, s->segment_id, &view, &err);
    if (rc < 0 || view.first_row != first || view.n_slots != expected) {
        verify_found(v, "block %u of %s at offset %llu is damaged: %s", number, section_file_io(s->blocks)->path,
                     (unsigned long long)segment_block_offset(s, number), rc < 0 ? err.message : "wrong rows");
        return 0;
    }
    assert(!bitmap_has(v->sound, number)); /* each block comes once */
    bitmap_add(v->sound, number);
    if (s->lists && view.n_edges)
        verify_found(v, "block %u has %u edges, which an index of inverted lists has not", number, view.n_edges);
    if (!s->lists && !bitmap_has(v->reached, number))
        verify_found(v, "rows %u to %u cannot be found: no entry leads to block %u", first, first + expected - 1,
                     number);
    segment_centre(s, number, v->centre);
    for (uint32_t slot = 0; slot < view.n_slots; slot++) {
        uint32_t input = bytes_load_u32(view.ids + 4 * (size_t)slot);
        v->report.rows++;
        if (input >= p->rows || bitmap_has(v->seen, input)) {
            verify_found(v, "row %u holds input row %u, which is out of range or stands elsewhere too", first + slot,
                         input);
            continue;
        }
        bitmap_add(v->seen, input);
        if (s->numbers && numbers_get(s->numbers, first + slot) != input)
            verify_found(v, "row %u holds input row %u, which the table of numbers says is %u", first + slot, input,
                         numbers_get(s->numbers, first + slot));
        if (s->names && !name_is_right(s->names, &view, slot))
            verify_found(v, "row %u has another key than the table of names says", first + slot);
        v->report.rows_reachable += bitmap_has(v->reached, number);
        verify_key(v, &view, slot, input);
        if (!s->lists)
            verify_code(v, &view, slot);
    }
    return s->lists ? 0 : verify_edges(v, &view);
}

static int verify_blocks(struct verification *v)
{
    struct segment *s = v->s;
    const struct section_entry *entry = section_find(s->blocks, BLOCKS_BLOCKS);
    uint32_t block_bytes = s->params.block_bytes, per_batch = BATCH_BYTES / block_bytes;
    int rc = 0;
    for (uint32_t at = 0; rc == 0 && at < s->params.n_blocks; at += per_batch) {
        uint32_t n = s->params.n_blocks - at < per_batch ? s->params.n_blocks - at : per_batch;
        rc = section_read(s->blocks, entry, (uint64_t)at * block_bytes, v->batch, (size_t)n * block_bytes, v->err);
        for (uint32_t i = 0; rc == 0 && i < n; i++)
            rc = verify_block(v, v->batch + (size_t)i * block_bytes, at + i);
        if (rc == 0)
            rc = verify_progress(v, "check blocks", at + n, s->params.n_blocks);
    }
    for (uint32_t b = 0; rc == 0 && !s->lists && b < s->params.n_blocks; b++)
        v->report.blocks_without_entry += !bitmap_has(v->entered, b);
    return rc;
}

/* ---- reachability ------------------------------------------------------------------------------------------------ */

/* Every cell is led to; the rows of each were counted when the index was opened. */
static int verify_cells(struct verification *v)
{
    const struct cells *cells = v->s->cells;
    struct entry_error error;
    uint8_t *reached = calloc(cells->n / 8 + 1, 1);
    int rc = reached ? entry_walk(&cells->entry, reached, &error) : QUIRE_ENOMEM;
    if (rc < 0)
        error_set(v->err, rc, "no memory to follow the cells of %s", v->s->info.path);
    for (uint32_t g = 0; rc == 0 && g < cells->n; g++)
        if (!bitmap_has(reached, g))
            verify_found(v, "the rows of cell %u cannot be found: no entry leads to it", g);
    if (rc == 0 && !(error.worst <= NODE_ERROR_LIMIT))
        verify_found(v, "entry %u of level %u of the cells is %.3f of its length away from the mean below it",
                     error.node, error.level, error.worst);
    free(reached);
    return rc;
}

static int verify_entries(struct verification *v)
{
    struct entry_error error;
    int rc = v->s->cells ? verify_cells(v) : 0;
    if (rc < 0)
        return rc;
    rc = entry_walk(&v->s->entry, v->reached, &error);
    if (rc < 0)
        return error_set(v->err, rc, "no memory to follow the entries of %s", v->s->info.path);
    if (!(error.worst <= NODE_ERROR_LIMIT))
        verify_found(v, "entry %u of level %u is %.3f of its length away from the mean of the centres below it",
                     error.node, error.level, error.worst);
    return 0;
}

/* The block whose centre is nearest to the mean of all rows, the origin of the working space. */
static uint32_t middle_block(const struct segment *s)
{
    uint32_t best = 0;
    for (uint32_t b = 1; b < s->params.n_blocks; b++)
        if (s->centres.factors[ENTRY_FACTORS * (size_t)b + 1] < s->centres.factors[ENTRY_FACTORS * (size_t)best + 1])
            best = b;
    return best;
}

/* Breadth first along the edges from one block; a block that could not be opened leads nowhere. */
static int count_rows_by_edges(struct verification *v)
{
    const struct segment_params *p = &v->s->params;
    assert(p->n_blocks > 0); /* params_check */
    uint32_t *queue = malloc(sizeof *queue * p->n_blocks), n = 0;
    uint8_t *seen = calloc(p->n_blocks / 8 + 1, 1);
    int rc = queue && seen ? 0 : error_set(v->err, QUIRE_ENOMEM, "no memory for %u blocks", p->n_blocks);
    if (rc == 0) {
        queue[n++] = middle_block(v->s);
        bitmap_add(seen, queue[0]);
    }
    for (uint32_t at = 0; at < n; at++) {
        uint32_t block = queue[at];
        assert(n <= p->n_blocks && v->links.at[block] <= v->links.at[block + 1]);
        if (bitmap_has(v->sound, block))
            v->report.rows_by_edges += format_block_rows(p, block);
        for (uint64_t i = v->links.at[block]; i < v->links.at[block + 1]; i++)
            if (!bitmap_has(seen, v->links.targets[i])) {
                bitmap_add(seen, v->links.targets[i]);
                queue[n++] = v->links.targets[i];
            }
    }
    free(queue);
    free(seen);
    return rc;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int allocate(struct verification *v)
{
    const struct segment_params *p = &v->s->params;
    uint32_t dims = p->code_dim > p->dim + 1 ? p->code_dim : p->dim + 1;
    v->seen = calloc(p->rows / 8 + 1, 1);
    v->entered = calloc(p->n_blocks / 8 + 1, 1);
    v->reached = calloc(p->n_blocks / 8 + 1, 1);
    v->sound = calloc(p->n_blocks / 8 + 1, 1);
    v->links.at = calloc((size_t)p->n_blocks + 1, sizeof *v->links.at);
    v->batch = malloc(BATCH_BYTES);
    v->edges = malloc(sizeof *v->edges * p->block_bytes);
    v->centre = malloc(sizeof(float) * dims);
    v->vector = malloc(sizeof(float) * dims);
    v->rotated = malloc(sizeof(float) * dims);
    v->decoded = malloc(sizeof(float) * dims);
    return v->seen && v->entered && v->reached && v->sound && v->links.at && v->batch && v->edges && v->centre &&
                   v->vector && v->rotated && v->decoded
               ? 0
               : error_set(v->err, QUIRE_ENOMEM, "no memory to verify %s", v->s->info.path);
}

static void release(struct verification *v)
{
    free(v->seen);
    free(v->entered);
    free(v->reached);
    free(v->sound);
    free(v->links.at);
    free(v->links.targets);
    free(v->places);
    free(v->buckets);
    free(v->batch);
    free(v->edges);
    free(v->centre);
    free(v->vector);
    free(v->rotated);
    free(v->decoded);
    segment_unref(v->narrow);
    segment_unref(v->s);
}

static bool is_damage(int code)
{
    return code == QUIRE_ECORRUPT || code == QUIRE_ETRUNCATED || code == QUIRE_EOVERSIZED || code == QUIRE_EFORMAT;
}

/* Opens with codes of `bits` bits (0: the widest) and no budget. A page graph that has none of them is damaged: without
 * a budget opening makes do with the codes of edges. Of inverted lists no posting block is read, so that a damaged one
 * is a finding like any other. */
static int open_with(struct io_fs *fs, const char *path, unsigned bits, struct segment **out, struct quire_error *err)
{
    struct segment_options options = {
        .memory_bytes = UINT64_MAX, .code_bits = bits, .read_lists = true, .naming = SEGMENT_BOTH, .fs = fs};
    int rc = segment_open(path, &options, out, err);
    if (rc == 0 && !(*out)->nav_codes && !(*out)->lists) {
        segment_unref(*out);
        *out = NULL;
        rc = bits ? error_set(err, QUIRE_ECORRUPT, "%s has no navigation codes of width %u", path, bits)
                  : error_set(err, QUIRE_ECORRUPT, "%s has no navigation codes", path);
    }
    return rc;
}

/* The codes that edges must carry. Where they cannot be loaded, that is the finding and edges are not compared. */
static int open_narrow(struct verification *v, const char *path)
{
    struct quire_error err = {0};
    if (!v->s->params.edge_code_bytes)
        return 0;
    int rc = open_with(v->fs, path, nav_bits[EDGE_CODE_WIDTH], &v->narrow, &err);
    if (is_damage(rc))
        verify_found(v, "%s", err.message);
    return rc < 0 && !is_damage(rc) ? error_set(v->err, rc, "%s", err.message) : 0;
}

int verify_segment(struct io_fs *fs, const char *path, const struct verify_listener *listener,
                   struct quire_verify_report *report, struct quire_error *err)
{
    struct verification v = {.fs = fs, .listener = listener, .err = err};
    assert(fs && path && listener);
    struct quire_error open_error = {0};
    int rc = open_with(fs, path, 0, &v.s, &open_error); /* the widest code is the one to check */
    if (is_damage(rc)) {
        verify_found(&v, "%s", open_error.message);
        if (report)
            *report = v.report;
        return error_set(err, QUIRE_ECORRUPT, "%s", open_error.message);
    }
    if (rc < 0)
        return error_set(err, rc, "%s", open_error.message);
    rc = allocate(&v);
    if (rc == 0)
        rc = verify_files(&v);
    if (rc == 0)
        rc = load_keys(&v);
    if (rc == 0)
        rc = open_narrow(&v, path);
    if (rc == 0 && !v.s->lists)
        rc = verify_entries(&v);
    if (rc == 0)
        rc = verify_blocks(&v);
    if (rc == 0)
        rc = v.s->lists ? verify_lists(&v) : count_rows_by_edges(&v);
    if (rc == 0)
        rc = verify_columns(&v);
    assert(rc < 0 || v.report.blocks == v.s->params.n_blocks);
    v.report.code_error = v.errors ? sqrt(v.error_sum / (double)v.errors) : 0;
    release(&v);
    if (report)
        *report = v.report;
    if (rc == QUIRE_ECANCELLED)
        error_set(err, rc, "verification of %s was cancelled", path);
    if (rc == 0 && v.report.findings)
        rc = error_set(err, QUIRE_ECORRUPT, "%s: %llu findings", path, (unsigned long long)v.report.findings);
    return rc;
}

int quire_verify(const char *path, void (*finding)(void *context, const char *sentence),
                 int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total), void *context,
                 struct quire_verify_report *report, struct quire_error *err)
{
    return verify_segment(fs_real(), path, &(struct verify_listener){finding, progress, context}, report, err);
}
