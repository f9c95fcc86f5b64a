/*
 * memtable_search.c - the nearest visible rows: all of few, and of many those in the cells that lie near.
 *
 * Every distance that is answered comes from one function of the query and what is stored (score): the elements where
 * they are kept, directly and without cancellation, or the 8-bit code against the query as floats, as a sealed segment
 * does it. Cells are gone through with the query's levels instead, many codes at a time: first the sketches of a cell,
 * then the codes of the rows that those do not show to be beyond the k-th distance. A row whose estimate is beyond it
 * by more than the levels can err is left at that, before anything else of it is looked at.
 *
 * Under a test, columns say which rows may pass (memtable_columns.c), and only those are looked at; the test itself is
 * asked about a row that is near enough to be answered.
 *
 * First come some cells with the nearest centres, until there are k hits; so k are answered whenever k rows pass the
 * test. Which others may hold one of the k nearest is what memtable_gauge.c measures.
 *
 * Nothing is allocated beyond the workspace on the stack unless the dimension or the number of cells is large.
 */
#include "index/memtable/memtable_priv.h"
#include "index/vector/near.h"
#include "index/vector/unit_code.h"
#include "io/heap.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_LEAST       1024u /* that a search goes through, if there are so many */
#define ROWS_PER_EFFORT  128u  /* and for each unit of an effort */
#define RECALL_DEFAULT   0.95f
#define ROWS_PER_PASSING 16u  /* one of so many passes a test, or less: these are compared one by one */
#define CELLS_FIRST      32u  /* that are put in order at first; then twice as many, and so on */
#define SAMPLE_ROWS      256u /* of an estimate how many rows pass a test */
/* How far an estimate by levels may be off, in standard deviations of what rounding both to 8 bits does to it: each
 * element is off by a twelfth of a step's square, a step being about 3.5 / 127 of the root of the mean square. */
#define ERROR_DEVIATIONS  4.0f
#define STEP_OF_DEVIATION (3.5f / 127)
/* The same of an estimate by a sketch: of a thousand rows as near as the limit it leaves out one or two. */
#define SKETCH_DEVIATIONS 3.0f

/* ---- distances --------------------------------------------------------------------------------------------------- */

struct scorer {
    const struct memtable *table;
    float *query;           /* dim floats; unit length under cosine */
    float *rotated;         /* code_dim floats, where there is a space */
    struct unit_query unit; /* where rows are codes; its floats are `rotated` */
    uint8_t *bytes;         /* dim, where `integral`: the query in the rows' type */
    bool integral;          /* L2 between bytes: exact in integers */
    float norm2;            /* as space_query gives it */
};

static size_t scorer_bytes(const struct memtable *table)
{
    size_t dim = table->config.dim, code_dim = rotation_code_dim(table->config.dim + 1);
    return sizeof(float) * (code_dim + dim) + (dim + 7) / 8 * 8 + code_dim;
}

static bool set_integral(struct scorer *s)
{
    const struct memtable_config *config = &s->table->config;
    bool is_signed = config->type == QUIRE_TYPE_I8;
    if (config->metric != QUIRE_METRIC_L2 || (!is_signed && config->type != QUIRE_TYPE_U8))
        return false;
    float least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    for (uint32_t i = 0; i < config->dim; i++) {
        float x = s->query[i];
        if (!(x >= least && x <= most && x == floorf(x)))
            return false;
        s->bytes[i] = is_signed ? (uint8_t)(int8_t)x : (uint8_t)x;
    }
    return true;
}

/* Where the query of a table that keeps vectors lies in the working space, once there is one. */
static void scorer_rotate(struct scorer *s)
{
    space_query(&s->table->space, s->query, s->rotated, &s->norm2);
}

static void scorer_begin(struct scorer *s, const struct memtable *table, const float *query, void *memory)
{
    uint32_t dim = table->config.dim, code_dim = rotation_code_dim(dim + 1);
    s->table = table;
    s->rotated = memory;
    s->query = s->rotated + code_dim;
    s->bytes = (uint8_t *)(void *)(s->query + dim);
    s->unit = (struct unit_query){.rotated = s->rotated, .code = s->bytes + (dim + 7) / 8 * 8};
    if (table->config.metric == QUIRE_METRIC_COSINE) {
        s->norm2 = space_unit(query, dim, s->query) > 0;
    } else {
        memcpy(s->query, query, sizeof(float) * dim);
        s->norm2 = (float)memtable_norm2(query, dim);
    }
    s->integral = set_integral(s);
    if (table->coded)
        unit_query_set(&s->unit, &table->space.rotation, query, dim);
}

static float score_code(const struct scorer *s, const struct memtable_record *record)
{
    float f;
    const uint8_t *code = memtable_record_code(s->table, record, &f);
    float d = unit_query_distance(&s->unit, code, f, s->table->space.code_dim);
    return space_distance(&s->table->space, d, s->norm2);
}

/* Squared L2, or the product under the other metrics. */
static float raw_product(const struct scorer *s, const uint8_t *stored)
{
    const struct kernels *k = kernels();
    const struct memtable_config *config = &s->table->config;
    bool l2 = config->metric == QUIRE_METRIC_L2;
    const void *x = stored;
    const float *q = s->query;
    switch (config->type) {
    case QUIRE_TYPE_F32:
        return (l2 ? k->f32_l2 : k->f32_dot)(q, x, config->dim);
    case QUIRE_TYPE_F16:
        return (l2 ? k->f16_l2 : k->f16_dot)(q, x, config->dim);
    case QUIRE_TYPE_BF16:
        return (l2 ? k->bf16_l2 : k->bf16_dot)(q, x, config->dim);
    case QUIRE_TYPE_I8:
        if (s->integral)
            return (float)k->i8_l2((const int8_t *)s->bytes, x, config->dim);
        return (l2 ? k->f32_i8_l2 : k->f32_i8_dot)(q, x, config->dim);
    case QUIRE_TYPE_U8:
        break;
    }
    if (s->integral)
        return (float)k->u8_l2(s->bytes, x, config->dim);
    return (l2 ? k->f32_u8_l2 : k->f32_u8_dot)(q, x, config->dim);
}

static float score(const struct scorer *s, const struct memtable_record *record)
{
    if (s->table->coded)
        return score_code(s, record);
    float product = raw_product(s, record->bytes), inverse;
    switch (s->table->config.metric) {
    case QUIRE_METRIC_L2:
        return product;
    case QUIRE_METRIC_IP:
        return -product;
    case QUIRE_METRIC_COSINE:
        break;
    }
    memcpy(&inverse, record->bytes + s->table->stored_bytes, sizeof inverse);
    return fminf(fmaxf(1 - product * inverse, 0), 2);
}

/* ---- the nearest ------------------------------------------------------------------------------------------------- */

/* A heap, farthest first; equal distances are ordered by row. */
struct nearest {
    struct memtable_hit *hits;
    uint32_t n, capacity;
};

static inline bool is_farther(const struct memtable_hit *a, const struct memtable_hit *b)
{
    return a->distance > b->distance || (a->distance == b->distance && a->row > b->row);
}

HEAP_DEFINE(hits, struct memtable_hit, is_farther, HEAP_PLACE_UNKNOWN)

/* ---- the search -------------------------------------------------------------------------------------------------- */

struct search {
    struct scorer scorer;
    struct nearest nearest;
    uint64_t snapshot;
    uint32_t except; /* a row that is not answered, or MEMTABLE_NONE */
    const struct memtable_test *test;
    struct memtable_work work;
    const uint64_t *may_pass; /* a bit for each row, of those < row_end; NULL: all may */
    uint32_t row_end;
    /* in cells */
    struct code_query levels;
    float limit;         /* squared distance in the working space of the k-th hit; INFINITY while there are fewer */
    float error2;        /* squared error of an estimate, over the squared length of the row */
    float sketch_error2; /* the same by its sketch, over (code_dim f^2 / 4 - the squared length) */
};

/* Of a visible row. */
static bool passes(const struct search *search, uint32_t number)
{
    struct memtable_row row;
    if (!search->test)
        return true;
    memtable_row(search->scorer.table, number, &row);
    return row.key && search->test->accepts(search->test->context, &row);
}

static void consider(struct search *search, uint32_t row)
{
    const struct memtable *table = search->scorer.table;
    const struct slot *slot = memtable_slot(table, row);
    const struct memtable_record *record = memtable_slot_record(slot);
    if (!record || row == search->except || !memtable_slot_visible(slot, search->snapshot) || !passes(search, row))
        return;
    struct nearest *nearest = &search->nearest;
    struct memtable_hit hit = {row, score(&search->scorer, record)};
    nearest->n = (uint32_t)hits_offer(nearest->hits, nearest->n, nearest->capacity, hit);
    search->work.scored++;
    search->work.matches++;
}

static bool may_pass(const struct search *search, uint32_t row)
{
    return !search->may_pass || (row < search->row_end && (search->may_pass[row / 64] >> row % 64 & 1));
}

/* Compares all rows. */
static void scan_rows(struct search *search)
{
    uint32_t row_end = atomic_load_explicit(&search->scorer.table->row_end, memory_order_acquire);
    for (uint32_t row = 0; row < row_end; row++)
        consider(search, row);
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* The processor does not look ahead beyond a page, and a group is about as large as one. */
static void prefetch(const void *what, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)what + i);
}

/* Of the groups from number i on what is looked at of each row: sketches, or codes where there are none. */
static void prefetch_groups(const struct cell *cell, uint32_t i, uint32_t n, uint32_t code_dim)
{
    if ((i + SKETCH_GROUPS) * CELL_GROUP > n) {
        if (i * CELL_GROUP < n)
            prefetch(cell->groups[i], sizeof *cell->groups[i] + (size_t)CELL_GROUP * code_dim);
        return;
    }
    for (uint32_t k = 0; k < SKETCH_GROUPS; k++)
        prefetch(cell->groups[i + k], sizeof *cell->groups[i + k] + cell->groups[i + k]->codes_at);
}

/* A bit for each of CODE_GROUP rows that its sketch does not show to be beyond the limit. The estimate by signs is
 * unbiased; a random rotation makes its error like a normal one with the deviation that is here in squares (RaBitQ). */
static uint32_t near_by_sketch(const struct search *search, struct cell_group *const *groups)
{
    uint32_t code_dim = search->scorer.table->space.code_dim, near = 0;
    const struct code_query *q = &search->levels;
    float half_sum = code_half(1) * (float)q->level_sum, step = 2 * q->step, q2 = q->norm2 - search->limit;
    float quarter = (float)code_dim / 4, errors = search->sketch_error2;
    int32_t dots[CODE_GROUP];
    uint32_t is_near[CODE_GROUP];
    kernels()->group_dot[0](q->levels, groups[SKETCH_GROUPS - 1]->bytes, 0, 1, code_dim, dots);
    for (uint32_t g = 0; g < SKETCH_GROUPS; g++)
        for (uint32_t i = 0; i < CELL_GROUP; i++) { /* in vectors */
            float f = groups[g]->sketch_f[i], norm2 = groups[g]->norm2[i];
            float beyond = q2 + norm2 - f * step * ((float)dots[g * CELL_GROUP + i] - half_sum);
            float error2 = errors * (quarter * f * f - norm2);
            beyond = beyond > 0 ? beyond : 0;
            is_near[g * CELL_GROUP + i] = beyond == 0 || beyond * beyond <= error2;
        }
    for (uint32_t i = 0; i < CODE_GROUP; i++)
        near |= is_near[i] << i;
    return near;
}

/* Those of n <= CODE_GROUP rows that there are and that may pass. */
static uint32_t near_that_pass(const struct search *search, struct cell_group *const *groups, uint32_t n)
{
    uint32_t all = n == 32 ? UINT32_MAX : (1u << n) - 1;
    for (uint32_t i = 0; search->may_pass && i < n; i++) {
        uint32_t row = atomic_load_explicit(&groups[i / CELL_GROUP]->rows[i % CELL_GROUP], memory_order_relaxed);
        if (row == MEMTABLE_NONE || !may_pass(search, row))
            all &= ~(1u << i);
    }
    return all;
}

/* The rows of a cell that may pass and that their sketches do not show to be too far away: their places. */
static uint32_t choose_rows(const struct search *search, const struct cell *cell, uint32_t n, uint8_t *places)
{
    uint32_t code_dim = search->scorer.table->space.code_dim, n_chosen = 0;
    bool any_limit = isfinite(search->limit);
    for (uint32_t at = 0; at < n; at += CODE_GROUP) {
        struct cell_group *const *groups = &cell->groups[at / CELL_GROUP];
        uint32_t some = n - at < CODE_GROUP ? n - at : CODE_GROUP, near = near_that_pass(search, groups, some);
        prefetch_groups(cell, at / CELL_GROUP + SKETCH_GROUPS, n, code_dim);
        if (near && any_limit && some == CODE_GROUP)
            near &= near_by_sketch(search, groups);
        for (; near; near &= near - 1) {
            uint32_t i = (uint32_t)__builtin_ctz(near);
            prefetch(memtable_group_codes(groups[i / CELL_GROUP]) + (size_t)(i % CELL_GROUP) * code_dim, code_dim);
            places[n_chosen++] = (uint8_t)(at + i);
        }
    }
    return n_chosen;
}

static void scan_cell(struct search *search, const struct cell *cell)
{
    uint32_t code_dim = search->scorer.table->space.code_dim;
    uint8_t places[CELL_ROWS_MAX];
    uint32_t n = choose_rows(search, cell, atomic_load_explicit(&cell->n, memory_order_acquire), places);
    for (uint32_t at = 0, some; at < n; at += some) {
        struct cell_group *group = cell->groups[places[at] / CELL_GROUP];
        uint32_t among[CELL_GROUP];
        float estimates[CELL_GROUP];
        for (some = 0; at + some < n && places[at + some] / CELL_GROUP == places[at] / CELL_GROUP; some++)
            among[some] = places[at + some] % CELL_GROUP;
        memtable_code_distances_among(code_dim, &search->levels, memtable_group_codes(group), group->f, group->norm2,
                                      among, some, estimates);
        for (uint32_t i = 0; i < some; i++) {
            float beyond = estimates[i] - search->limit;
            uint32_t row = atomic_load_explicit(&group->rows[among[i]], memory_order_relaxed);
            if ((beyond > 0 && beyond * beyond > search->error2 * group->norm2[among[i]]) || row == MEMTABLE_NONE)
                continue;
            consider(search, row);
            if (search->nearest.n == search->nearest.capacity)
                search->limit = space_work_distance(&search->scorer.table->space, search->nearest.hits[0].distance,
                                                    search->scorer.norm2);
        }
    }
}

/* Memory of a search, of all cells each. */
struct cell_order {
    near_t *cells, *spare;
    float *distances;
};

static const struct cell *cell_at(const struct cell_directory *directory, uint32_t i)
{
    return directory->centres[i / CELL_GROUP]->cells[i % CELL_GROUP];
}

/* The rows of the cells whose centres are nearest, until there are as many as there have to be, and k hits. Returns how
 * many cells; they stand first in order->cells. */
static uint32_t scan_nearest(struct search *search, const struct cell_directory *directory, uint64_t rows_least,
                             const struct cell_order *order)
{
    uint32_t n = directory->n, done = 0;
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++)
        order->cells[i] = near_of(order->distances[i], i);
    for (uint32_t batch = CELLS_FIRST; done < n; batch *= 2) {
        uint32_t end = n - done < batch ? n : done + batch;
        near_keep_sorted(order->cells + done, n - done, end - done, order->spare);
        for (; done < end; done++) {
            if (n_rows >= rows_least && isfinite(search->limit))
                return done;
            const struct cell *cell = cell_at(directory, near_row(order->cells[done]));
            scan_cell(search, cell);
            n_rows += atomic_load_explicit(&cell->n, memory_order_relaxed);
        }
    }
    return done;
}

/* Then those of the others that may hold more, by what is known of the k-th distance; the nearest first, since each may
 * bring that down. */
static int scan_likely(struct search *search, const struct cell_directory *directory, uint32_t done, float most,
                       const struct cell_order *order)
{
    uint32_t n = 0, code_dim = search->scorer.table->space.code_dim, nearest = near_row(order->cells[0]);
    float least = order->distances[nearest];
    near_t *likely = order->cells + done;
    const struct cell *cell = cell_at(directory, nearest);
    struct workspace workspace;
    float *gaps = memtable_workspace_begin(&workspace, sizeof(float) * (directory->n + code_dim) + code_dim);
    if (!gaps)
        return QUIRE_ENOMEM;
    float *centre = gaps + directory->n;
    struct code_query from = {.levels = (int8_t *)(void *)(centre + code_dim)};
    code_decode(cell->code, code_dim, 8, cell->f, centre);
    code_query_set(&from, centre, code_dim);
    memtable_centre_distances(directory, code_dim, &from, gaps);
    for (uint32_t i = done; i < directory->n; i++) {
        uint32_t at = near_row(order->cells[i]);
        if (memtable_stretch(order->distances[at], least, gaps[at], search->limit) <= most)
            likely[n++] = order->cells[i]; /* n <= i - done: what is read is behind */
    }
    n = n > 0 ? near_keep_sorted(likely, n, n, order->spare) : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = near_row(likely[i]);
        const struct cell *next = i + 1 < n ? cell_at(directory, near_row(likely[i + 1])) : NULL;
        if (next)
            prefetch_groups(next, 0, atomic_load_explicit(&next->n, memory_order_acquire), code_dim);
        if (memtable_stretch(order->distances[at], least, gaps[at], search->limit) <= most)
            scan_cell(search, cell_at(directory, at));
    }
    memtable_workspace_end(&workspace);
    return 0;
}

static int search_cells(struct search *search, const struct cells *cells, const struct memtable_query *query)
{
    const struct cell_directory *directory = atomic_load_explicit(&cells->directory, memory_order_acquire);
    uint32_t code_dim = search->scorer.table->space.code_dim;
    uint64_t rows_least = (uint64_t)ROWS_PER_EFFORT * query->effort;
    float most = memtable_gauge_stretch(search->scorer.table, query->recall > 0 ? query->recall : RECALL_DEFAULT);
    struct workspace workspace;
    near_t *memory =
        memtable_workspace_begin(&workspace, directory->n * (2 * sizeof *memory + sizeof(float)) + code_dim);
    int rc = memory ? 0 : QUIRE_ENOMEM;
    if (memory) {
        const struct cell_order order = {memory, memory + directory->n,
                                         (float *)(void *)(memory + 2 * (size_t)directory->n)};
        search->levels.levels = (int8_t *)(void *)(order.distances + directory->n);
        if (!search->scorer.table->coded)
            scorer_rotate(&search->scorer);
        code_query_set(&search->levels, search->scorer.rotated, code_dim);
        /* a zero query is apart from all else, as a zero row is (space.h) */
        bool is_apart = search->scorer.table->config.metric == QUIRE_METRIC_COSINE && search->scorer.norm2 == 0;
        search->levels.norm2 = is_apart ? 1 : (float)memtable_norm2(search->scorer.rotated, code_dim);
        search->limit = INFINITY;
        /* twice the product's error: of the query's levels, and of the code's */
        float step = STEP_OF_DEVIATION * ERROR_DEVIATIONS;
        search->error2 = 4 * step * step / 12 * 2 * search->levels.norm2 / (float)code_dim;
        search->sketch_error2 =
            4 * SKETCH_DEVIATIONS * SKETCH_DEVIATIONS * search->levels.norm2 / (float)(code_dim - 1);
        memtable_centre_distances(directory, code_dim, &search->levels, order.distances);
        uint32_t done = scan_nearest(search, directory, rows_least > ROWS_LEAST ? rows_least : ROWS_LEAST, &order);
        rc = done == directory->n ? 0 : scan_likely(search, directory, done, most, &order);
    }
    memtable_workspace_end(&workspace);
    return rc;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* About how many visible rows pass the test. */
static uint64_t estimate_matches(const struct search *search)
{
    const struct memtable *table = search->scorer.table;
    uint32_t row_end = atomic_load_explicit(&table->row_end, memory_order_acquire), n = 0, n_pass = 0;
    uint32_t step = row_end / SAMPLE_ROWS ? row_end / SAMPLE_ROWS : 1;
    for (uint32_t i = 0; i < SAMPLE_ROWS && i < row_end; i++) {
        const struct slot *slot = memtable_slot(table, i * step);
        if (!memtable_slot_record(slot) || !memtable_slot_visible(slot, search->snapshot))
            continue;
        n++;
        n_pass += passes(search, i * step);
    }
    return n == 0 ? 0 : (uint64_t)n_pass * atomic_load_explicit(&table->living, memory_order_relaxed) / n;
}

/* The rows that may pass, one by one. */
static void scan_passing(struct search *search)
{
    for (uint32_t word = 0; word < (search->row_end + 63) / 64; word++)
        for (uint64_t left = search->may_pass[word]; left; left &= left - 1)
            consider(search, 64 * word + (uint32_t)__builtin_ctzll(left));
}

static uint64_t count_passing(const struct search *search)
{
    uint64_t n = 0;
    for (uint32_t word = 0; word < (search->row_end + 63) / 64; word++)
        n += (uint64_t)__builtin_popcountll(search->may_pass[word]);
    return n;
}

/* Those that may pass a test: few are compared one by one, many in their cells; of an exact search, which has numbers,
 * all one by one. */
static int search_passing(struct search *search, const struct cells *cells, const struct memtable_query *query)
{
    const struct memtable *table = search->scorer.table;
    search->row_end = atomic_load_explicit(&table->row_end, memory_order_acquire);
    uint64_t *bits = malloc((search->row_end / 64 + 1) * sizeof *bits);
    int rc = bits ? memtable_columns_select(table, cells->columns, search->test, search->row_end, bits) : QUIRE_ENOMEM;
    search->may_pass = rc == 1 ? bits : NULL;
    uint64_t matches = 0;
    if (rc == 1)
        matches = count_passing(search);
    if (rc == 1 && (query->exact || matches * ROWS_PER_PASSING < search->row_end)) {
        scan_passing(search);
    } else if (rc >= 0) {
        assert(!query->exact); /* numbers alone are always selected */
        matches = rc == 1 ? matches : estimate_matches(search);
        rc = search_cells(search, cells, query);
        search->work.matches = matches > search->nearest.n ? matches : search->nearest.n;
    }
    search->may_pass = NULL;
    free(bits);
    return rc < 0 ? rc : 0;
}

static int search_rows(struct search *search, const struct memtable_query *query)
{
    const struct memtable *table = search->scorer.table;
    const struct cells *cells = memtable_cells(table);
    bool numbers_alone = search->test && search->test->numbers && !search->test->filter && !search->test->scope;
    if (!cells || (query->exact && !numbers_alone)) {
        scan_rows(search);
        return 0;
    }
    if (search->test)
        return search_passing(search, cells, query);
    int rc = search_cells(search, cells, query);
    search->work.matches = atomic_load_explicit(&table->living, memory_order_relaxed);
    return rc;
}

int memtable_search(const struct memtable *table, const struct memtable_query *query, struct memtable_hit *hits,
                    struct memtable_work *work)
{
    struct workspace workspace;
    void *memory = memtable_workspace_begin(&workspace, scorer_bytes(table));
    struct search search = {.nearest = {hits, 0, query->k},
                            .snapshot = query->snapshot,
                            .except = query->except ? *query->except : MEMTABLE_NONE,
                            .test = query->test};
    int rc = memory ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        assert(!query->test || query->test->accepts);
        scorer_begin(&search.scorer, table, query->query, memory);
        rc = search_rows(&search, query);
    }
    memtable_workspace_end(&workspace);
    if (rc < 0)
        return rc;
    hits_sort(search.nearest.hits, search.nearest.n);
    if (work)
        *work = search.work;
    return (int)search.nearest.n;
}

int memtable_links(const struct memtable *table, uint32_t row, uint64_t snapshot, const struct memtable_test *test,
                   struct memtable_hit *hits, uint32_t hits_max)
{
    struct workspace workspace;
    size_t dim = table->config.dim, code_dim = rotation_code_dim(table->config.dim + 1);
    float *vector = memtable_workspace_begin(&workspace, sizeof(float) * (dim + code_dim));
    int n = QUIRE_ENOMEM;
    if (vector) {
        const struct memtable_query query = {
            .query = vector, .k = hits_max, .snapshot = snapshot, .test = test, .except = &row};
        memtable_vector(table, row, vector + dim, vector);
        n = memtable_search(table, &query, hits, NULL);
    }
    memtable_workspace_end(&workspace);
    return n;
}
