/*
 * memtable_search.c - the nearest visible rows: those that wait one by one, the linked ones through the graph.
 *
 * Every distance that is answered comes from one function of the query and what is stored (score): the elements where
 * they are kept, directly and without cancellation, or the 8-bit code against the query as floats, as a sealed segment
 * does it. The graph only nominates: its own distances, by levels of the query, order the walk. So a row has the same
 * distance before and after it is linked, and an order that the graph gets wrong among near ones is put right.
 *
 * Rows that wait are walked before the graph is searched: what is linked in between is seen twice, never missed. A
 * nominee whose place is in the part of the queue that was walked is looked up among the hits.
 *
 * With few rows in proportion to the beam all are compared: the graph would touch most of them anyway, and the result
 * is exact.
 *
 * Under a test (memtable_query.test) a row is asked about before its distance is taken. How many pass is estimated on
 * some rows spread over the table: where many do the graph is walked, through rows that do not pass, too (its beam is
 * of those that do, so that it goes on until there are as many as without a test); where few do, or a walk has not
 * found k of them, all rows are gone through. So k are answered whenever k pass.
 *
 * Nothing is allocated beyond the workspace on the stack unless the dimension or k is large.
 */
#include "index/kernels/kernels.h"
#include "index/memtable/memtable_priv.h"
#include "index/vector/unit_code.h"
#include "io/heap.h"
#include <assert.h>
#include <math.h>
#include <string.h>

#define BEAM_MIN    128u
#define BEAM_PER_K  2u
#define SCAN_BEAMS  16u /* up to so many rows per row of the beam, all are compared */
#define SPARE_HITS  32u
#define SAMPLE_ROWS 256u /* of an estimate how many rows pass a test */
#define PASS_SHARE  20u  /* one of so many must pass for a walk */

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

static bool nearest_has(const struct nearest *nearest, uint32_t row)
{
    for (uint32_t i = 0; i < nearest->n; i++)
        if (nearest->hits[i].row == row)
            return true;
    return false;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

struct search {
    struct scorer scorer;
    struct nearest nearest;
    uint64_t snapshot;
    const struct memtable_test *test;
    struct memtable_work work;
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

static void consider(struct search *search, uint32_t row, const struct slot *slot, const struct memtable_record *record)
{
    if (!memtable_slot_visible(slot, search->snapshot) || !passes(search, row))
        return;
    struct nearest *nearest = &search->nearest;
    struct memtable_hit hit = {row, score(&search->scorer, record)};
    nearest->n = (uint32_t)hits_offer(nearest->hits, nearest->n, nearest->capacity, hit);
    search->work.scored++;
    search->work.matches++;
}

/* Compares all rows but one (MEMTABLE_NONE: all). */
static void scan_rows(struct search *search, uint32_t except)
{
    const struct memtable *table = search->scorer.table;
    uint32_t row_end = atomic_load_explicit(&table->row_end, memory_order_acquire);
    for (uint32_t row = 0; row < row_end; row++) {
        const struct slot *slot = memtable_slot(table, row);
        const struct memtable_record *record = memtable_slot_record(slot);
        if (record && row != except)
            consider(search, row, slot, record);
    }
}

/* Compares what waits in this part of the queue. */
static void scan_queue(struct search *search, const struct navigation *navigation, uint32_t head, uint32_t tail)
{
    for (uint32_t i = head; i != tail; i++) {
        struct memtable_record *record;
        uint32_t row;
        const struct slot *slot = memtable_queue_slot(search->scorer.table, navigation, i, &record, &row);
        if (slot && memtable_record_state(record) <= ROW_LINKING)
            consider(search, row, slot, record);
    }
}

static uint32_t node_row(const struct navigation *navigation, uint32_t node)
{
    const struct nodes *nodes = atomic_load_explicit(&navigation->nodes, memory_order_acquire);
    return atomic_load_explicit(&nodes->rows[node], memory_order_acquire);
}

static bool is_visible(void *context, uint32_t node)
{
    const struct search *search = context;
    const struct memtable *table = search->scorer.table;
    uint32_t row = node_row(memtable_navigation(table), node);
    const struct slot *slot = memtable_slot(table, row);
    return memtable_slot_record(slot) && memtable_slot_visible(slot, search->snapshot) && passes(search, row);
}

/* Takes over what the graph nominates. */
static void consider_nominees(struct search *search, const struct navigation *navigation, const struct graph_hit *hits,
                              uint32_t n, uint32_t head, uint32_t tail)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = node_row(navigation, hits[i].row);
        const struct slot *slot = memtable_slot(search->scorer.table, row);
        const struct memtable_record *record = memtable_slot_record(slot);
        if (!record)
            continue;
        bool walked = record->queued - head < tail - head;
        if (!walked || !nearest_has(&search->nearest, row))
            consider(search, row, slot, record);
    }
}

/* By default recall is 0.97 at least on text of 256 dimensions. Lengths that differ make the graph of inner products
 * harder to walk: twice the beam makes up for it. */
static uint32_t beam_of(const struct memtable *table, const struct memtable_query *query)
{
    uint64_t chosen = (uint64_t)BEAM_PER_K * query->k, beam = query->effort;
    if (beam == 0)
        beam = (chosen > BEAM_MIN ? chosen : BEAM_MIN) * (table->config.metric == QUIRE_METRIC_IP ? 2 : 1);
    beam = beam > query->k ? beam : query->k;
    return beam < UINT32_MAX / SCAN_BEAMS ? (uint32_t)beam : UINT32_MAX / SCAN_BEAMS;
}

static int search_graph(struct search *search, const struct navigation *navigation, struct graph_scratch *scratch,
                        uint32_t beam)
{
    uint32_t k = search->nearest.capacity, n_max = beam < 2 * k + SPARE_HITS ? beam : 2 * k + SPARE_HITS;
    struct workspace workspace;
    struct graph_hit *hits = memtable_workspace_begin(&workspace, n_max * sizeof *hits);
    if (!search->scorer.table->coded)
        scorer_rotate(&search->scorer);
    int rc = hits ? graph_query(navigation->graph, scratch, search->scorer.rotated) : QUIRE_ENOMEM;
    if (rc == 0) {
        uint32_t head = atomic_load_explicit(&navigation->head, memory_order_acquire);
        uint32_t tail = atomic_load_explicit(&navigation->tail, memory_order_acquire);
        scan_queue(search, navigation, head, tail);
        uint32_t n = graph_search(navigation->graph, &navigation->root, scratch, beam, is_visible, search, hits, n_max);
        consider_nominees(search, navigation, hits, n, head, tail);
    }
    memtable_workspace_end(&workspace);
    return rc;
}

/* About how many visible rows pass the test; 0 where too few do for a walk. */
static uint64_t estimate_matches(const struct search *search, uint32_t row_end)
{
    const struct memtable *table = search->scorer.table;
    uint32_t step = row_end / SAMPLE_ROWS ? row_end / SAMPLE_ROWS : 1, n = 0, n_pass = 0;
    for (uint32_t i = 0; i < SAMPLE_ROWS && i < row_end; i++) {
        const struct slot *slot = memtable_slot(table, i * step);
        if (!memtable_slot_record(slot) || !memtable_slot_visible(slot, search->snapshot))
            continue;
        n++;
        n_pass += passes(search, i * step);
    }
    if (n_pass * PASS_SHARE < n || n == 0)
        return 0;
    return (uint64_t)n_pass * atomic_load_explicit(&table->living, memory_order_relaxed) / n;
}

/* Through the graph, if it is worth it and brings enough; otherwise all rows. */
static int search_rows(struct search *search, const struct memtable_query *query, struct graph_scratch *scratch)
{
    const struct memtable *table = search->scorer.table;
    const struct navigation *navigation = memtable_navigation(table);
    uint32_t beam = beam_of(table, query), row_end = atomic_load_explicit(&table->row_end, memory_order_acquire);
    uint64_t matches = atomic_load_explicit(&table->living, memory_order_relaxed);
    bool walks = navigation && !query->exact && row_end > SCAN_BEAMS * beam;
    if (walks && search->test) {
        matches = estimate_matches(search, row_end);
        walks = matches > 0;
    }
    if (walks) {
        int rc = search_graph(search, navigation, scratch, beam);
        search->work.matches = matches > search->nearest.n ? matches : search->nearest.n;
        if (rc < 0 || !search->test || search->nearest.n == query->k)
            return rc;
    }
    search->nearest.n = 0;
    search->work.matches = 0;
    scan_rows(search, MEMTABLE_NONE);
    return 0;
}

int memtable_search(const struct memtable *table, struct graph_scratch *scratch, const struct memtable_query *query,
                    struct memtable_hit *hits, struct memtable_work *work)
{
    struct workspace workspace;
    void *memory = memtable_workspace_begin(&workspace, scorer_bytes(table));
    struct search search = {.nearest = {hits, 0, query->k}, .snapshot = query->snapshot, .test = query->test};
    int rc = memory ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        assert(!query->test || query->test->accepts);
        scorer_begin(&search.scorer, table, query->query, memory);
        rc = search_rows(&search, query, scratch);
    }
    memtable_workspace_end(&workspace);
    if (rc < 0)
        return rc;
    hits_sort(search.nearest.hits, search.nearest.n);
    if (work)
        *work = search.work;
    return (int)search.nearest.n;
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

#define LINKS_MAX 256u

/* The graph's neighbours of a row. */
static void consider_links(struct search *search, const struct navigation *navigation,
                           const struct memtable_record *record)
{
    uint32_t nodes[LINKS_MAX], n = graph_links(navigation->graph, record->node, nodes, LINKS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = node_row(navigation, nodes[i]);
        const struct slot *slot = memtable_slot(search->scorer.table, row);
        const struct memtable_record *neighbour = memtable_slot_record(slot);
        if (neighbour)
            consider(search, row, slot, neighbour);
    }
}

int memtable_links(const struct memtable *table, uint32_t row, uint64_t snapshot, const struct memtable_test *test,
                   struct memtable_hit *hits, uint32_t hits_max)
{
    struct workspace workspace;
    size_t dim = table->config.dim, code_dim = rotation_code_dim(table->config.dim + 1);
    float *vector = memtable_workspace_begin(&workspace, sizeof(float) * (dim + code_dim) + scorer_bytes(table));
    struct search search = {.nearest = {hits, 0, hits_max}, .snapshot = snapshot, .test = test};
    if (vector) {
        const struct navigation *navigation = memtable_navigation(table);
        const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        memtable_vector(table, row, vector + dim, vector);
        scorer_begin(&search.scorer, table, vector, vector + dim + code_dim);
        if (navigation && memtable_record_state(record) == ROW_LINKED)
            consider_links(&search, navigation, record);
        else
            scan_rows(&search, row);
        hits_sort(search.nearest.hits, search.nearest.n);
    }
    memtable_workspace_end(&workspace);
    return vector ? (int)search.nearest.n : QUIRE_ENOMEM;
}
