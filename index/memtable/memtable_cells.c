/*
 * memtable_cells.c - the cells of a memtable: its rows by nearness, each with its code, split as they fill.
 *
 * Beyond MEMTABLE_FLAT_ROWS rows each row lies in a cell: that of the nearest centre when it was put. A cell holds the
 * codes of CELL_ROWS_MAX rows at most, side by side, so that a search goes through it at the speed of memory. A full
 * one is bisected by 2-means into two before a row is put into it; one that has lost half of its rows is written again
 * without them, and a small one together with the cell nearest to it (the inverted lists that grow by splits of
 * SPFresh, Xu et al., SOSP 2023; here without moving rows between neighbours). A put thus costs one distance to each
 * centre and its share of a split: a tenth of what linking a row into a graph costs, and nothing is left to be done
 * later (docs/performance.md has both measured).
 *
 * Each 32 rows of a cell have sketches, of 1 bit for each dimension: with an eighth of what a search would read they
 * show that most rows of a cell are too far away (memtable_search.c). They are interleaved, and so made at once when
 * the last of the rows comes; no reader looks at them before.
 *
 * The change to cells happens inside the put that passes MEMTABLE_FLAT_ROWS: all rows get codes in the space that they
 * define (their mean; under inner product their longest with headroom). Under cosine the mean stays zero, so that codes
 * made before the change stay what they are; where they are all that is kept of a vector (coded) the cell's copy
 * becomes the only one, and the record without it takes the record's place.
 *
 * Readers take the directory of cells once and see each row exactly once: a cell only grows behind what it holds, and
 * whatever else changes makes new cells and a new directory, while the old ones go through the epochs as they are. Rows
 * that are put into a new cell later begin after the snapshot of whoever reads the old one.
 */
#include "index/attribute/number_set.h"
#include "index/memtable/memtable_priv.h"
#include "index/vector/near.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Of norm2_max over the longest row at the change: lengths may grow by an eighth. */
#define IP_HEADROOM 1.25
/* The same of numbered tables: what writes to them does so in batches, in which no new table can begin. It costs
 * little: the dimension that makes all rows as long as M is nearly the same in all, and the mean is taken off. */
#define IP_HEADROOM_NUMBERED 64.0
/* No cell begins with more rows, and none stays with fewer where there is another. */
#define CELL_ROWS_START (CELL_ROWS_MAX / 4 * 3)
#define CELL_ROWS_LEAST (CELL_ROWS_MAX / 8)
#define MEANS_ROUNDS    4u

_Static_assert(CODE_GROUP % CELL_GROUP == 0 && CELL_ROWS_MAX % CODE_GROUP == 0, "groups that have sketches end a cell");

/* ---- distances to centres ---------------------------------------------------------------------------------------- */

const uint32_t memtable_iota[GAUGE_PROBES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                              16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                              32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                              48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

void memtable_code_distances_among(uint32_t code_dim, const struct code_query *query, const uint8_t *codes,
                                   const float *f, const float *norm2, const uint32_t *among, uint32_t n, float *out)
{
    int32_t dots[CELL_GROUP];
    assert(n <= CELL_GROUP);
    kernels()->code_dot[3](query->levels, codes, code_dim, among, n, code_dim, dots);
    for (uint32_t i = 0; i < n; i++) {
        float d = query->norm2 + norm2[among[i]] - 2 * f[among[i]] * code_query_dot(query, dots[i], code_half(8));
        out[i] = d > 0 ? d : 0;
    }
}

void memtable_code_distances(uint32_t code_dim, const struct code_query *query, const uint8_t *codes, const float *f,
                             const float *norm2, uint32_t n, float *out)
{
    int32_t dots[CELL_GROUP];
    assert(n <= CELL_GROUP);
    kernels()->code_dot[3](query->levels, codes, code_dim, memtable_iota, n, code_dim, dots);
    for (uint32_t i = 0; i < n; i++) {
        float d = query->norm2 + norm2[i] - 2 * f[i] * code_query_dot(query, dots[i], code_half(8));
        out[i] = d > 0 ? d : 0;
    }
}

void memtable_centre_distances(const struct cell_directory *directory, uint32_t code_dim,
                               const struct code_query *query, float *out)
{
    for (uint32_t at = 0; at < directory->n; at += CELL_GROUP) {
        const struct centres *centres = directory->centres[at / CELL_GROUP];
        uint32_t n = directory->n - at < CELL_GROUP ? directory->n - at : CELL_GROUP;
        memtable_code_distances(code_dim, query, centres->codes, centres->f, centres->norm2, n, out + at);
    }
}

struct cell *memtable_nearest_cell(const struct cell_directory *directory, uint32_t code_dim,
                                   const struct code_query *query, const struct cell *except, float *least)
{
    struct cell *nearest = NULL;
    float distances[CELL_GROUP];
    for (uint32_t at = 0; at < directory->n; at += CELL_GROUP) {
        const struct centres *centres = directory->centres[at / CELL_GROUP];
        uint32_t n = directory->n - at < CELL_GROUP ? directory->n - at : CELL_GROUP;
        memtable_code_distances(code_dim, query, centres->codes, centres->f, centres->norm2, n, distances);
        for (uint32_t i = 0; i < n; i++)
            if (centres->cells[i] != except && (!nearest || distances[i] < *least)) {
                nearest = centres->cells[i];
                *least = distances[i];
            }
    }
    return nearest;
}

/* ---- halves ------------------------------------------------------------------------------------------------------ */

/* A row on its way to a new cell. Its code is where it lies now. */
struct entry {
    const uint8_t *code;
    float f, norm2;
    uint32_t row;
};

/* Memory of one rebuild. */
struct halving {
    uint32_t code_dim;
    struct random random;
    float *a, *b, *difference; /* code_dim each */
    float *keys, *spare;       /* of all entries */
    float *memory;
};

static int halving_begin(struct halving *h, uint32_t code_dim, uint32_t n, uint64_t seed)
{
    *h = (struct halving){.code_dim = code_dim};
    random_init(&h->random, seed);
    h->memory = malloc(sizeof(float) * (3 * (size_t)code_dim + 2 * (size_t)n));
    if (!h->memory)
        return QUIRE_ENOMEM;
    h->a = h->memory;
    h->b = h->a + code_dim;
    h->difference = h->b + code_dim;
    h->keys = h->difference + code_dim;
    h->spare = h->keys + n;
    return 0;
}

/* The rows whose mean is taken: all, or those on one side of the plane that compare_halves has found. */
enum side { SIDE_ALL, SIDE_A, SIDE_B };

static void mean_of(const struct halving *h, const struct entry *entries, uint32_t n, enum side side, float *out)
{
    double count = 0;
    memset(out, 0, sizeof(float) * h->code_dim);
    for (uint32_t i = 0; i < n; i++) {
        if (side != SIDE_ALL && (h->keys[i] < 0) != (side == SIDE_A))
            continue;
        const uint8_t *restrict code = entries[i].code;
        float f = entries[i].f, middle = code_half(8);
        for (uint32_t d = 0; d < h->code_dim; d++)
            out[d] += f * ((float)code[d] - middle);
        count++;
    }
    for (uint32_t d = 0; count > 0 && d < h->code_dim; d++)
        out[d] = (float)(out[d] / count);
}

/* keys[i] = |x_i - a|^2 - |x_i - b|^2: below zero where a is nearer. */
static void compare_halves(const struct halving *h, const struct entry *entries, uint32_t n)
{
    float sum = 0;
    for (uint32_t d = 0; d < h->code_dim; d++) {
        h->difference[d] = h->a[d] - h->b[d];
        sum += h->difference[d];
    }
    float lengths = (float)(memtable_norm2(h->a, h->code_dim) - memtable_norm2(h->b, h->code_dim));
    for (uint32_t i = 0; i < n; i++) {
        float dot = kernels()->f32_u8_dot(h->difference, entries[i].code, h->code_dim);
        h->keys[i] = lengths - 2 * entries[i].f * (dot - code_half(8) * sum);
    }
}

/* Puts what belongs to the first half in front; how many. Neither has less than a quarter. */
static uint32_t halve(struct halving *h, struct entry *entries, uint32_t n)
{
    const struct entry *first = &entries[random_below(&h->random, n)];
    code_decode(first->code, h->code_dim, 8, first->f, h->a);
    mean_of(h, entries, n, SIDE_ALL, h->b);
    for (uint32_t round = 0; round < MEANS_ROUNDS; round++) {
        compare_halves(h, entries, n);
        mean_of(h, entries, n, SIDE_A, h->a);
        mean_of(h, entries, n, SIDE_B, h->b);
    }
    compare_halves(h, entries, n);
    uint32_t left = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        left += h->keys[i] < 0;
    left = left < n / 4 ? n / 4 : left > n - n / 4 ? n - n / 4 : left;
    memcpy(h->spare, h->keys, sizeof(float) * n);
    struct near_limit limit = near_limit_of(h->spare, n, left);
    for (uint32_t i = 0; i < n; i++) {
        if (!near_limit_takes(&limit, h->keys[i]))
            continue;
        struct entry entry = entries[i];
        float key = h->keys[i];
        entries[i] = entries[at];
        h->keys[i] = h->keys[at];
        entries[at] = entry;
        h->keys[at++] = key;
    }
    assert(at == left && left > 0 && left < n);
    return left;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

static void cell_free(struct memtable *table, struct cell *cell)
{
    for (uint32_t i = 0; cell && i < CELL_GROUPS; i++)
        memtable_block_free(table, cell->groups[i]);
    memtable_block_free(table, cell);
}

/* Group number i of the cell; the last one of those that have sketches together has space for them. */
static struct cell_group *group_new(struct memtable *table, struct cell *cell, uint32_t i)
{
    uint32_t code_dim = table->space.code_dim;
    size_t sketches = i % SKETCH_GROUPS == SKETCH_GROUPS - 1 ? code_group_bytes(code_dim, 1) : 0;
    struct cell_group *group = memtable_block_alloc(table, sizeof *group + sketches + (size_t)CELL_GROUP * code_dim);
    if (group) {
        group->cell = cell;
        group->codes_at = (uint32_t)sketches;
    }
    return group;
}

/* Sketches of the rows before number n of the cell, where n ends groups that have some: they are full, but readers do
 * not know it yet. With y the levels of 1 bit, +-1/2, and x what a code of 8 bits says, <x, y> is half the sum of what
 * is x without its signs. */
static void sketch_groups(struct cell *cell, uint32_t n, uint32_t code_dim)
{
    if (n % CODE_GROUP != 0)
        return;
    uint8_t *sketches = cell->groups[n / CELL_GROUP - 1]->bytes;
    memset(sketches, 0, code_group_bytes(code_dim, 1));
    for (uint32_t i = n - CODE_GROUP; i < n; i++) {
        struct cell_group *group = cell->groups[i / CELL_GROUP];
        uint32_t at = i % CELL_GROUP, sizes = 0; /* of 2 u - 255 */
        const uint8_t *code = memtable_group_codes(group) + (size_t)at * code_dim;
        for (uint32_t d = 0; d < code_dim; d++)
            sizes += (uint32_t)abs(2 * code[d] - 255);
        group->sketch_f[at] = group->f[at] > 0 ? group->norm2[at] / (group->f[at] * (float)sizes / 4) : 0;
        code_group_put_signs(sketches, i % CODE_GROUP, code, code_dim);
    }
}

static void group_put(struct cell_group *group, uint32_t at, uint32_t code_dim, const struct entry *entry)
{
    group->f[at] = entry->f;
    group->norm2[at] = entry->norm2;
    memcpy(memtable_group_codes(group) + (size_t)at * code_dim, entry->code, code_dim);
    atomic_store_explicit(&group->rows[at], entry->row, memory_order_relaxed);
}

/* A cell of these rows, which nobody sees yet. */
static struct cell *cell_new(struct memtable *table, struct halving *h, const struct entry *entries, uint32_t n)
{
    struct cell *cell = memtable_block_alloc(table, sizeof *cell + h->code_dim);
    if (!cell)
        return NULL;
    memset(cell, 0, sizeof *cell);
    mean_of(h, entries, n, SIDE_ALL, h->a);
    cell->f = code_encode(h->a, h->code_dim, 8, cell->code, NULL, NULL);
    cell->norm2 = (float)memtable_norm2(h->a, h->code_dim);
    for (uint32_t i = 0; i < n; i++) {
        if (i % CELL_GROUP == 0 && !(cell->groups[i / CELL_GROUP] = group_new(table, cell, i / CELL_GROUP))) {
            cell_free(table, cell);
            return NULL;
        }
        group_put(cell->groups[i / CELL_GROUP], i % CELL_GROUP, h->code_dim, &entries[i]);
        sketch_groups(cell, i + 1, h->code_dim);
    }
    atomic_init(&cell->n, n);
    return cell;
}

struct new_cells {
    struct cell **cells;
    uint32_t n, capacity;
};

/* Cells for all of these rows. */
static int make_cells(struct memtable *table, struct halving *h, struct entry *entries, uint32_t n,
                      struct new_cells *out)
{
    if (n > CELL_ROWS_START) {
        uint32_t left = halve(h, entries, n);
        int rc = make_cells(table, h, entries, left, out);
        return rc == 0 ? make_cells(table, h, entries + left, n - left, out) : rc;
    }
    assert(out->n < out->capacity);
    out->cells[out->n] = cell_new(table, h, entries, n);
    if (!out->cells[out->n])
        return QUIRE_ENOMEM;
    out->n++;
    return 0;
}

/* ---- the directory ----------------------------------------------------------------------------------------------- */

static struct centres *centres_new(struct memtable *table, struct cell *const *cells, uint32_t n)
{
    uint32_t code_dim = table->space.code_dim;
    struct centres *centres = memtable_block_alloc(table, sizeof *centres + (size_t)CELL_GROUP * code_dim);
    for (uint32_t i = 0; centres && i < n; i++) {
        centres->cells[i] = cells[i];
        centres->f[i] = cells[i]->f;
        centres->norm2[i] = cells[i]->norm2;
        memcpy(centres->codes + (size_t)i * code_dim, cells[i]->code, code_dim);
    }
    return centres;
}

static bool has_same_cells(const struct cell_directory *old, uint32_t at, struct cell *const *cells, uint32_t n)
{
    uint32_t n_old = !old || old->n <= at ? 0 : old->n - at < CELL_GROUP ? old->n - at : CELL_GROUP;
    return n_old == n && memcmp(old->centres[at / CELL_GROUP]->cells, cells, n * sizeof(struct cell *)) == 0;
}

/* Frees what a directory does not share with another. */
static void directory_free(struct memtable *table, struct cell_directory *directory, const struct cell_directory *other)
{
    for (uint32_t i = 0; directory && i * CELL_GROUP < directory->n; i++)
        if (!other || i * CELL_GROUP >= other->n || other->centres[i] != directory->centres[i])
            memtable_block_free(table, directory->centres[i]);
    memtable_block_free(table, directory);
}

/* A directory of these cells that shares with the old one (NULL: none) what has not changed. */
static struct cell_directory *directory_new(struct memtable *table, const struct cell_directory *old,
                                            struct cell *const *cells, uint32_t n)
{
    uint32_t groups = (n + CELL_GROUP - 1) / CELL_GROUP;
    struct cell_directory *directory =
        memtable_block_alloc(table, sizeof *directory + groups * sizeof directory->centres[0]);
    if (!directory)
        return NULL;
    directory->n = 0;
    for (uint32_t i = 0; i < groups; i++) {
        uint32_t at = i * CELL_GROUP, some = n - at < CELL_GROUP ? n - at : CELL_GROUP;
        directory->centres[i] =
            has_same_cells(old, at, cells + at, some) ? old->centres[i] : centres_new(table, cells + at, some);
        if (!directory->centres[i]) {
            directory_free(table, directory, old);
            return NULL;
        }
        directory->n = at + some;
    }
    return directory;
}

/* ---- rebuilding -------------------------------------------------------------------------------------------------- */

/* Cells that go and what comes in their places. */
struct rebuild {
    struct cell *gone[2];
    uint32_t n_gone, n_entries;
    struct entry *entries;
};

static void gather(const struct memtable *table, const struct cell *cell, struct rebuild *r)
{
    uint32_t n = atomic_load(&cell->n), code_dim = table->space.code_dim;
    for (uint32_t i = 0; i < n; i++) {
        struct cell_group *group = cell->groups[i / CELL_GROUP];
        uint32_t at = i % CELL_GROUP, row = atomic_load_explicit(&group->rows[at], memory_order_relaxed);
        if (row != MEMTABLE_NONE)
            r->entries[r->n_entries++] = (struct entry){memtable_group_codes(group) + (size_t)at * code_dim,
                                                        group->f[at], group->norm2[at], row};
    }
}

/* The cells as they will be: new ones in the places of those that go, the others behind; or the last in the holes.
 * Returns how many. */
static uint32_t arrange(const struct cell_directory *old, const struct rebuild *r, const struct new_cells *new_cells,
                        struct cell **cells)
{
    uint32_t n = old ? old->n : 0, used = 0;
    for (uint32_t i = 0; i < n; i++)
        cells[i] = old->centres[i / CELL_GROUP]->cells[i % CELL_GROUP];
    for (uint32_t i = r->n_gone; i-- > 0;) {
        uint32_t at = 0;
        while (at < n && cells[at] != r->gone[i])
            at++;
        assert(at < n);
        cells[at] = used < new_cells->n ? new_cells->cells[used++] : cells[--n];
    }
    while (used < new_cells->n)
        cells[n++] = new_cells->cells[used++];
    return n;
}

static void place_rows(struct memtable *table, const struct cell *cell)
{
    for (uint32_t i = 0; i < atomic_load(&cell->n); i++) {
        struct cell_group *group = cell->groups[i / CELL_GROUP];
        uint32_t row = atomic_load_explicit(&group->rows[i % CELL_GROUP], memory_order_relaxed);
        struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        atomic_store_explicit(&record->place, memtable_place(group, i % CELL_GROUP), memory_order_release);
    }
}

/* Puts the new cells and the directory in force. What was before goes through the epochs. */
static void publish(struct memtable *table, struct cells *cells, const struct rebuild *r,
                    const struct new_cells *new_cells, struct cell_directory *directory, struct retired *retired)
{
    struct cell_directory *old = atomic_load_explicit(&cells->directory, memory_order_relaxed);
    atomic_store_explicit(&cells->directory, directory, memory_order_release);
    for (uint32_t i = 0; i < new_cells->n; i++)
        place_rows(table, new_cells->cells[i]);
    for (uint32_t i = 0; i < r->n_gone; i++) {
        for (uint32_t g = 0; g < CELL_GROUPS; g++)
            memtable_block_retire(table, retired, r->gone[i]->groups[g]);
        memtable_block_retire(table, retired, r->gone[i]);
    }
    for (uint32_t i = 0; old && i * CELL_GROUP < old->n; i++)
        if (i * CELL_GROUP >= directory->n || old->centres[i] != directory->centres[i])
            memtable_block_retire(table, retired, old->centres[i]);
    memtable_block_retire(table, retired, old);
    memtable_retired_defer(table, retired);
}

/* Whether cells were made of these entries and are in force. */
static int rebuild(struct memtable *table, struct cells *cells, struct rebuild *r)
{
    const struct cell_directory *old = atomic_load_explicit(&cells->directory, memory_order_relaxed);
    uint32_t most = r->n_entries / (CELL_ROWS_START / 4) + 1, n_old = old ? old->n : 0;
    uint32_t blocks = r->n_gone * (CELL_GROUPS + 1) + n_old / CELL_GROUP + 2;
    struct halving h = {.memory = NULL};
    struct new_cells made = {.cells = malloc(most * sizeof(struct cell *)), .capacity = most};
    struct cell **all = malloc((n_old + most) * sizeof *all);
    struct retired *retired = memtable_retired_new(blocks);
    struct cell_directory *directory = NULL;
    int rc = made.cells && all && retired ? halving_begin(&h, table->space.code_dim, r->n_entries, ++cells->rebuilds)
                                          : QUIRE_ENOMEM;
    if (rc == 0 && (r->n_entries > 0 || r->n_gone == n_old)) /* one stays, if only for the rows to come */
        rc = make_cells(table, &h, r->entries, r->n_entries, &made);
    if (rc == 0) {
        uint32_t n = arrange(old, r, &made, all);
        directory = directory_new(table, old, all, n);
        rc = directory ? 0 : QUIRE_ENOMEM;
    }
    if (rc == 0) {
        publish(table, cells, r, &made, directory, retired);
    } else {
        for (uint32_t i = 0; i < made.n; i++)
            cell_free(table, made.cells[i]);
        free(retired);
    }
    free(made.cells);
    free(all);
    free(h.memory);
    return rc;
}

/* One cell, or two, again without the rows that have gone. */
static int rebuild_cells(struct memtable *table, struct cells *cells, struct cell *one, struct cell *other)
{
    struct rebuild r = {.gone = {one, other}, .n_gone = other ? 2 : 1};
    r.entries = malloc(2 * CELL_ROWS_MAX * sizeof *r.entries);
    if (!r.entries)
        return QUIRE_ENOMEM;
    gather(table, one, &r);
    if (other)
        gather(table, other, &r);
    int rc = rebuild(table, cells, &r);
    free(r.entries);
    return rc;
}

/* ---- the change -------------------------------------------------------------------------------------------------- */

/* The longest row, under inner product, the coming one included. floats: code_dim. */
static double longest_norm2(const struct memtable *table, const void *vector, float *floats)
{
    space_floats(table->config.type, vector, table->config.dim, floats);
    double longest = memtable_norm2(floats, table->config.dim);
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        if (!record)
            continue;
        space_floats(table->config.type, record->bytes, table->config.dim, floats);
        double norm2 = memtable_norm2(floats, table->config.dim);
        longest = norm2 > longest ? norm2 : longest;
    }
    return longest;
}

/* The mean of the rows there. floats: code_dim. */
static int set_mean(struct memtable *table, float *floats)
{
    struct space *space = &table->space;
    double *sum = calloc(space->work_dim, sizeof *sum);
    uint32_t n = 0;
    if (!sum)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        if (!record)
            continue;
        space_floats(table->config.type, record->bytes, table->config.dim, floats);
        space_lift(space, floats, floats);
        for (uint32_t i = 0; i < space->work_dim; i++)
            sum[i] += floats[i];
        n++;
    }
    for (uint32_t i = 0; n && i < space->work_dim; i++)
        space->mean[i] = (float)(sum[i] / n);
    free(sum);
    return 0;
}

/* The space of a table that kept vectors until now. */
static int space_begin(struct memtable *table, const void *vector)
{
    const struct memtable_config *config = &table->config;
    if (table->coded)
        return 0;
    int rc = space_init(&table->space, config->metric, config->type, config->dim, config->seed);
    if (rc < 0)
        return rc;
    struct workspace workspace;
    float *floats = memtable_workspace_begin(&workspace, sizeof(float) * table->space.code_dim);
    rc = floats ? 0 : QUIRE_ENOMEM;
    if (floats && config->metric == QUIRE_METRIC_IP)
        table->space.norm2_max =
            (table->config.numbered ? IP_HEADROOM_NUMBERED : IP_HEADROOM) * longest_norm2(table, vector, floats);
    if (floats && config->metric != QUIRE_METRIC_COSINE)
        rc = set_mean(table, floats);
    memtable_workspace_end(&workspace);
    if (rc < 0) {
        space_fini(&table->space);
        return rc;
    }
    memtable_block_count(table, table->space.mean);
    memtable_block_count(table, table->space.rotation.signs);
    return 0;
}

static void space_undo(struct memtable *table)
{
    if (table->coded)
        return;
    memtable_block_uncount(table, table->space.mean);
    memtable_block_uncount(table, table->space.rotation.signs);
    space_fini(&table->space);
}

static void cells_free(struct memtable *table, struct cells *cells)
{
    struct cell_directory *directory = atomic_load(&cells->directory);
    for (uint32_t i = 0; directory && i < directory->n; i++)
        cell_free(table, directory->centres[i / CELL_GROUP]->cells[i % CELL_GROUP]);
    directory_free(table, directory, NULL);
    memtable_gauge_fini(table, &cells->gauge);
    memtable_columns_free(table, cells->columns);
    memtable_block_free(table, cells->floats);
    memtable_block_free(table, cells);
}

static int cells_new(struct memtable *table, struct cells **out)
{
    uint32_t code_dim = table->space.code_dim;
    struct cells *cells = memtable_block_alloc(table, sizeof *cells);
    if (!cells)
        return QUIRE_ENOMEM;
    memset(cells, 0, sizeof *cells);
    cells->rebuilds = table->config.seed;
    cells->floats = memtable_block_alloc(table, (sizeof(float) + 1) * (size_t)code_dim);
    cells->columns = memtable_columns_new(table);
    if (!cells->floats || !cells->columns) {
        cells_free(table, cells);
        return QUIRE_ENOMEM;
    }
    cells->query.levels = (int8_t *)(void *)(cells->floats + code_dim);
    *out = cells;
    return 0;
}

/* A row's code, at `code` if it has none yet, and the record that will be its. floats: code_dim. */
static int carry_row(struct memtable *table, struct memtable_record *record, float *floats, uint8_t *code,
                     struct entry *entry, struct memtable_record **successor)
{
    if (!table->coded) {
        memtable_encode(table, record->bytes, floats, code, &entry->f, &entry->norm2);
        entry->code = code;
        *successor = record;
        return 0;
    }
    struct memtable_record *carrier =
        memtable_record_new(table, memtable_record_key(table, record), record->key_bytes, false);
    if (!carrier)
        return QUIRE_ENOMEM;
    memcpy(carrier->bytes, memtable_record_length(table, record), MEMTABLE_LENGTH_BYTES);
    atomic_init(&carrier->attributes, atomic_load_explicit(&record->attributes, memory_order_relaxed));
    carrier->next_dead = record->next_dead;
    entry->code = memtable_record_code(table, record, &entry->f);
    entry->norm2 = 1;
    *successor = carrier;
    return 0;
}

/* All rows as entries of a rebuild; successors[row]: NULL where there is none. codes: of all rows, unless coded. */
static int carry_rows(struct memtable *table, struct cells *cells, uint8_t *codes, struct rebuild *r,
                      struct memtable_record **successors)
{
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        struct entry *entry = &r->entries[r->n_entries];
        if (!record)
            continue;
        uint8_t *code = codes ? codes + (size_t)r->n_entries * table->space.code_dim : NULL;
        int rc = carry_row(table, record, cells->floats, code, entry, &successors[row]);
        if (rc < 0)
            return rc;
        entry->row = row;
        r->n_entries++;
        const struct memtable_text *text = atomic_load_explicit(&record->attributes, memory_order_relaxed);
        rc = memtable_columns_prepare(table, cells->columns, row, text ? text->text : NULL, text ? text->bytes : 0);
        if (rc < 0)
            return rc;
        memtable_columns_commit(cells->columns, row, false);
        if (!table->config.numbered)
            continue;
        rc = memtable_columns_reserve_number(table, cells->columns, row);
        if (rc < 0)
            return rc;
        memtable_columns_set_number(cells->columns, row, number_of_name(memtable_record_key(table, record)));
    }
    return 0;
}

/* Records without their codes come in the places of those that had them. Readers of the old ones find the same code. */
static void replace_records(struct memtable *table, struct memtable_record **successors, struct retired *retired)
{
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        struct slot *slot = memtable_slot(table, row);
        struct memtable_record *record = memtable_slot_record(slot);
        if (!successors[row] || successors[row] == record)
            continue;
        atomic_store_explicit(&successors[row]->place, atomic_load_explicit(&record->place, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&slot->record, successors[row], memory_order_release);
        memtable_block_retire(table, retired, record);
    }
    memtable_retired_defer(table, retired);
}

int memtable_cells_begin(struct memtable *table, const void *vector)
{
    uint32_t row_end = atomic_load(&table->row_end);
    struct cells *cells = NULL;
    struct rebuild r = {.entries = calloc(row_end + 1, sizeof *r.entries)};
    struct memtable_record **successors = calloc(row_end + 1, sizeof *successors);
    struct retired *retired = memtable_retired_new(row_end);
    uint8_t *codes = NULL;
    int rc = successors && retired && r.entries ? space_begin(table, vector) : QUIRE_ENOMEM;
    if (rc < 0)
        goto out;
    rc = cells_new(table, &cells);
    if (rc == 0 && !table->coded && !(codes = malloc((size_t)(row_end + 1) * table->space.code_dim)))
        rc = QUIRE_ENOMEM;
    if (rc == 0)
        rc = carry_rows(table, cells, codes, &r, successors);
    if (rc == 0)
        rc = rebuild(table, cells, &r);
    if (rc == 0)
        rc = memtable_gauge_init(table, cells);
    if (rc == 0) {
        atomic_store_explicit(&table->cells, cells, memory_order_release);
        replace_records(table, successors, retired);
        retired = NULL;
        goto out;
    }
    for (uint32_t row = 0; table->coded && row < row_end; row++)
        memtable_block_free(table, successors[row]);
    if (cells)
        cells_free(table, cells);
    space_undo(table);
out:
    free(codes);
    free(r.entries);
    free(successors);
    free(retired);
    return rc;
}

void memtable_cells_destroy(struct memtable *table)
{
    if (memtable_cells(table))
        cells_free(table, memtable_cells(table));
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

void memtable_cells_query(struct cells *cells, uint32_t code_dim, const uint8_t *code, float f, float norm2)
{
    code_decode(code, code_dim, 8, f, cells->floats);
    code_query_set(&cells->query, cells->floats, code_dim);
    cells->query.norm2 = norm2;
}

/* cells->query of a vector in the stored form; cells->floats: where it lies in the working space. */
static void set_query(struct memtable *table, struct cells *cells, const uint8_t *vector)
{
    uint32_t code_dim = table->space.code_dim;
    if (table->coded) {
        memtable_cells_query(cells, code_dim, vector, bytes_load_f32(vector + code_dim), 1);
        return;
    }
    space_floats(table->config.type, vector, table->config.dim, cells->floats);
    float apart = space_row(&table->space, cells->floats, cells->floats);
    code_query_set(&cells->query, cells->floats, code_dim);
    cells->query.norm2 = (float)memtable_norm2(cells->floats, code_dim) + apart;
}

/* The cell that a row belongs to, with space for it. */
static int cell_with_space(struct memtable *table, struct cells *cells, struct cell **out)
{
    for (;;) {
        const struct cell_directory *directory = atomic_load_explicit(&cells->directory, memory_order_relaxed);
        float least;
        struct cell *cell = memtable_nearest_cell(directory, table->space.code_dim, &cells->query, NULL, &least);
        uint32_t n = atomic_load_explicit(&cell->n, memory_order_relaxed);
        if (n == CELL_ROWS_MAX) {
            int rc = rebuild_cells(table, cells, cell, NULL);
            if (rc < 0)
                return rc;
            continue;
        }
        if (n % CELL_GROUP == 0 && !cell->groups[n / CELL_GROUP])
            cell->groups[n / CELL_GROUP] = group_new(table, cell, n / CELL_GROUP);
        *out = cell;
        return cell->groups[n / CELL_GROUP] ? 0 : QUIRE_ENOMEM;
    }
}

int memtable_cells_reserve(struct memtable *table, const void *vector, struct memtable_record *record)
{
    struct cells *cells = memtable_cells(table);
    uint32_t code_dim = table->space.code_dim;
    struct cell *cell;
    set_query(table, cells, vector);
    int rc = cell_with_space(table, cells, &cell);
    if (rc < 0)
        return rc;
    uint32_t n = atomic_load_explicit(&cell->n, memory_order_relaxed), at = n % CELL_GROUP;
    struct cell_group *group = cell->groups[n / CELL_GROUP];
    uint8_t *code = memtable_group_codes(group) + (size_t)at * code_dim;
    group->norm2[at] = cells->query.norm2;
    if (table->coded) {
        memcpy(code, vector, code_dim);
        group->f[at] = bytes_load_f32((const uint8_t *)vector + code_dim);
    } else {
        group->f[at] = code_encode(cells->floats, code_dim, 8, code, NULL, NULL);
    }
    sketch_groups(cell, n + 1, code_dim);
    atomic_store_explicit(&record->place, memtable_place(group, at), memory_order_relaxed);
    return 0;
}

void memtable_cells_add(struct memtable *table, struct memtable_record *record, uint32_t row)
{
    uint32_t at;
    struct cell_group *group = memtable_record_group(record, &at);
    struct cell *cell = group->cell;
    uint32_t n = atomic_load_explicit(&cell->n, memory_order_relaxed);
    assert(cell->groups[n / CELL_GROUP] == group && n % CELL_GROUP == at);
    atomic_store_explicit(&group->rows[at], row, memory_order_relaxed);
    atomic_store_explicit(&cell->n, n + 1, memory_order_release);
    memtable_gauge_add(table, memtable_cells(table), row);
}

void memtable_cells_remove(struct memtable *table, struct memtable_record *record)
{
    struct cells *cells = memtable_cells(table);
    const struct cell_directory *directory = atomic_load_explicit(&cells->directory, memory_order_relaxed);
    uint32_t at;
    struct cell_group *group = memtable_record_group(record, &at);
    struct cell *cell = group->cell, *other = NULL;
    memtable_gauge_remove(&cells->gauge, atomic_load_explicit(&group->rows[at], memory_order_relaxed));
    atomic_store_explicit(&group->rows[at], MEMTABLE_NONE, memory_order_relaxed);
    cell->gone++;
    uint32_t n = atomic_load_explicit(&cell->n, memory_order_relaxed), left = n - cell->gone;
    if (cell->gone < CELL_GROUP || left > n / 2)
        return;
    if (left < CELL_ROWS_LEAST && directory->n > 1) {
        float least;
        memtable_cells_query(cells, table->space.code_dim, cell->code, cell->f, cell->norm2);
        other = memtable_nearest_cell(directory, table->space.code_dim, &cells->query, cell, &least);
    }
    rebuild_cells(table, cells, cell, other); /* without memory it stays as it is until the next row of it goes */
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* Whether the sketch of row i of the cell, if it has one, is that of its code. */
static bool has_own_sketch(const struct memtable *table, const struct cell *cell, uint32_t i)
{
    uint32_t code_dim = table->space.code_dim, n = atomic_load(&cell->n), at = i % CODE_GROUP;
    uint8_t sketch[4], own[4] = {0};
    if (i - at + CODE_GROUP > n)
        return true;
    const uint8_t *sketches = cell->groups[i / CODE_GROUP * SKETCH_GROUPS + SKETCH_GROUPS - 1]->bytes;
    const uint8_t *code = memtable_group_codes(cell->groups[i / CELL_GROUP]) + (size_t)(i % CELL_GROUP) * code_dim;
    /* of its first dimensions: all are made by one loop */
    code_group_get(sketches, at, 32, 1, sketch);
    for (uint32_t d = 0; d < 32; d++)
        own[d / 8] |= (uint8_t)(code[d] >> 7 << d % 8);
    return memcmp(sketch, own, sizeof own) == 0;
}

static int check_cell(const struct memtable *table, const struct cell *cell, uint32_t *n_rows,
                      struct quire_error *reason)
{
    uint32_t n = atomic_load(&cell->n), gone = 0;
    if (n > CELL_ROWS_MAX)
        return error_set(reason, QUIRE_ECORRUPT, "a cell has %u rows: at most %u", n, CELL_ROWS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct cell_group *group = cell->groups[i / CELL_GROUP];
        uint32_t row = atomic_load(&group->rows[i % CELL_GROUP]);
        if (row == MEMTABLE_NONE) {
            gone++;
            continue;
        }
        const struct memtable_record *record =
            row < atomic_load(&table->row_end) ? memtable_slot_record(memtable_slot(table, row)) : NULL;
        if (!record || group->cell != cell || atomic_load(&record->place) != memtable_place(group, i % CELL_GROUP))
            return error_set(reason, QUIRE_ECORRUPT, "a cell has row %u, which says it lies elsewhere", row);
        if (!has_own_sketch(table, cell, i))
            return error_set(reason, QUIRE_ECORRUPT, "the sketch of row %u is that of another code", row);
        *n_rows += 1;
    }
    return gone == cell->gone ? 0
                              : error_set(reason, QUIRE_ECORRUPT, "a cell counts %u rows that have gone, and has %u",
                                          cell->gone, gone);
}

int memtable_cells_check(const struct memtable *table, struct quire_error *reason)
{
    const struct cells *cells = memtable_cells(table);
    const struct cell_directory *directory = atomic_load(&cells->directory);
    uint32_t in_cells = 0, rows = atomic_load(&table->living) + atomic_load(&table->dead);
    for (uint32_t i = 0; i < directory->n; i++) {
        const struct centres *centres = directory->centres[i / CELL_GROUP];
        const struct cell *cell = centres->cells[i % CELL_GROUP];
        int rc = check_cell(table, cell, &in_cells, reason);
        if (rc < 0)
            return rc;
        if (memcmp(centres->codes + (size_t)(i % CELL_GROUP) * table->space.code_dim, cell->code,
                   table->space.code_dim) != 0)
            return error_set(reason, QUIRE_ECORRUPT, "cell %u of the directory has another centre", i);
    }
    return in_cells == rows
               ? 0
               : error_set(reason, QUIRE_ECORRUPT, "%u rows are there, their cells have %u", rows, in_cells);
}
