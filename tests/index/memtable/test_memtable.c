/*
 * test_memtable.c - memtables against a model of plain arrays: every metric and type, old snapshots, the change to the
 * cells, recall, memory, rows given back, threads.
 *
 * The model keeps every version of every element with its begin_lsn and end_lsn and the user's vector. Exact searches
 * must answer the same rows as the model's scan (but for ties), approximate ones nearly so.
 */
#include "index/kernels/kernels.h"
#include "index/memtable/memtable.h"
#include "index/vector/codes.h"
#include "io/clock.h"
#include "io/random.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 400, VERSIONS = 8000, DIM_MAX = 300 };

struct fixture {
    struct epochs *epochs;
    struct memtable_config config;
    struct memtable *table;
    uint64_t lsn;
};

static void begin(struct fixture *f, uint32_t dim, enum quire_type type, enum quire_metric metric, enum quire_slot slot)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(epochs_create(&f->epochs), 0);
    f->config = (struct memtable_config){.dim = dim, .type = type, .metric = metric, .slot = slot, .seed = 7};
    f->config.epochs = f->epochs;
    assert_int_equal(memtable_create(&f->config, &f->table, NULL), 0);
}

static void end(struct fixture *f)
{
    memtable_destroy(f->table);
    epochs_destroy(f->epochs);
}

static void verify(const struct fixture *f)
{
    struct quire_error reason = {0};
    if (memtable_check(f->table, &reason) < 0)
        fail_msg("%s", reason.message);
}

static uint32_t put(struct fixture *f, const void *key, uint32_t key_bytes, const void *vector)
{
    uint32_t row;
    unsigned slot = epoch_enter(f->epochs);
    assert_int_equal(memtable_put(f->table, key, key_bytes, vector, false, NULL, 0, ++f->lsn, &row), 0);
    epoch_exit(f->epochs, slot);
    return row;
}

static uint32_t put_number(struct fixture *f, uint32_t key, const void *vector)
{
    return put(f, &key, sizeof key, vector);
}

static uint32_t search(const struct fixture *f, const float *query, uint32_t k, bool exact, uint64_t snapshot,
                       struct memtable_hit *hits)
{
    struct memtable_query q = {.query = query, .k = k, .exact = exact, .snapshot = snapshot};
    struct memtable_work work = {.scored = 0};
    int n = memtable_search(f->table, &q, hits, &work);
    assert_true(n >= 0 && work.scored >= (uint32_t)n);
    for (int i = 1; i < n; i++)
        assert_true(hits[i - 1].distance <= hits[i].distance);
    return (uint32_t)n;
}

/* Elements of a type from floats, which become what the type can hold. */
static void convert(enum quire_type type, float *x, uint32_t dim, void *out)
{
    for (uint32_t i = 0; i < dim; i++) {
        if (type == QUIRE_TYPE_I8) {
            x[i] = floorf(fminf(fmaxf(x[i] * 30, -127), 127));
            ((int8_t *)out)[i] = (int8_t)x[i];
        } else if (type == QUIRE_TYPE_U8) {
            x[i] = floorf(fminf(fmaxf(x[i] * 30 + 100, 1), 255));
            ((uint8_t *)out)[i] = (uint8_t)x[i];
        }
    }
    if (type == QUIRE_TYPE_F32)
        memcpy(out, x, sizeof(float) * dim);
    if (type == QUIRE_TYPE_F16) {
        kernels()->f16_from_f32(x, out, dim);
        kernels()->f32_from_f16(out, x, dim);
    }
    if (type == QUIRE_TYPE_BF16) {
        kernels()->bf16_from_f32(x, out, dim);
        kernels()->f32_from_bf16(out, x, dim);
    }
}

static void random_vector(uint64_t *state, uint32_t dim, float *x)
{
    for (uint32_t i = 0; i < dim; i++)
        x[i] = support_gauss(state);
}

/* ---- against a model --------------------------------------------------------------------------------------------- */

struct version {
    uint32_t key, row, attributes; /* attributes: a number, 0: none */
    uint64_t begin_lsn, end_lsn;
    float *x;
};

struct model {
    struct version versions[VERSIONS];
    uint32_t n, dim;
    enum quire_metric metric;
    uint32_t living[KEYS]; /* version, UINT32_MAX: none */
};

static uint32_t key_of(uint32_t number, char *out)
{
    return (uint32_t)sprintf(out, "%s%u", number % 3 ? "k" : "a longer key of number ", number);
}

static void model_put(struct fixture *f, struct model *m, uint32_t key, uint64_t *state, struct random *random)
{
    uint8_t elements[DIM_MAX * 4], stored[DIM_MAX * 4 + 72];
    char name[64], text[32];
    struct version *v = &m->versions[m->n];
    v->x = malloc(sizeof(float) * m->dim);
    assert_non_null(v->x);
    random_vector(state, m->dim, v->x);
    convert(f->config.type, v->x, m->dim, elements);
    v->key = key;
    v->attributes = (uint32_t)random_below(random, 3);
    v->begin_lsn = ++f->lsn;
    v->end_lsn = MEMTABLE_LSN_MAX;
    if (m->living[key] != UINT32_MAX)
        m->versions[m->living[key]].end_lsn = v->begin_lsn;
    m->living[key] = m->n++;
    uint32_t text_bytes = v->attributes ? (uint32_t)sprintf(text, "{\"n\":%u}", v->attributes) : 0;
    bool as_stored = random_below(random, 2);
    assert_int_equal(memtable_check_vector(f->table, elements, NULL), 0);
    assert_int_equal(memtable_stored(f->table, elements, stored), 0);
    unsigned slot = epoch_enter(f->epochs);
    assert_int_equal(memtable_put(f->table, name, key_of(key, name), as_stored ? stored : elements, as_stored, text,
                                  text_bytes, v->begin_lsn, &v->row),
                     0);
    uint8_t kept[sizeof stored];
    memtable_row_stored(f->table, v->row, kept);
    assert_memory_equal(kept, stored, memtable_stored_bytes(&f->config));
    epoch_exit(f->epochs, slot);
}

static void model_change(struct fixture *f, struct model *m, uint32_t key, struct random *random)
{
    char name[64], text[32];
    uint32_t at = m->living[key], row = memtable_find(f->table, name, key_of(key, name));
    assert_int_equal(row, at == UINT32_MAX ? MEMTABLE_NONE : m->versions[at].row);
    if (row == MEMTABLE_NONE)
        return;
    struct version *v = &m->versions[at];
    if (random_below(random, 2)) {
        v->attributes = (uint32_t)random_below(random, 1000);
        uint32_t n = v->attributes ? (uint32_t)sprintf(text, "{\"n\":%u}", v->attributes) : 0;
        assert_int_equal(memtable_set_attributes(f->table, row, text, n), 0);
        return;
    }
    v->end_lsn = ++f->lsn;
    memtable_end(f->table, row, v->end_lsn);
    m->living[key] = UINT32_MAX;
}

static void check_row(struct fixture *f, const struct version *v)
{
    char name[64], text[32];
    struct memtable_row row;
    memtable_row(f->table, v->row, &row);
    assert_int_equal(row.key_bytes, key_of(v->key, name));
    assert_memory_equal(row.key, name, row.key_bytes);
    assert_true(row.begin_lsn == v->begin_lsn && row.end_lsn == v->end_lsn);
    assert_int_equal(row.attribute_bytes, v->attributes ? sprintf(text, "{\"n\":%u}", v->attributes) : 0);
    if (v->attributes)
        assert_memory_equal(row.attributes, text, row.attribute_bytes);
    else
        assert_null(row.attributes);
}

/* What precision of a distance to expect: of sums of floats, or of 8-bit codes. */
static double tolerance(const struct fixture *f, double distance)
{
    return f->config.slot == QUIRE_SLOT_Q8 ? 0.01 : 1e-4 * (1 + fabs(distance));
}

/* A search at a snapshot against the model's scan; `horizon`: snapshots before it are no longer read. */
static void check_search(struct fixture *f, const struct model *m, bool exact, uint64_t snapshot, uint64_t *state)
{
    enum { K = 10 };
    struct memtable_hit hits[K];
    float query[DIM_MAX];
    double nearest[K + 1];
    uint32_t n_visible = 0, n_nearest = 0;
    random_vector(state, m->dim, query);
    unsigned slot = epoch_enter(f->epochs);
    uint32_t n = search(f, query, K, exact, snapshot, hits);
    for (uint32_t i = 0; i < m->n; i++) {
        const struct version *v = &m->versions[i];
        if (v->begin_lsn > snapshot || v->end_lsn <= snapshot)
            continue;
        n_visible++;
        double d = support_distance(m->metric, query, v->x, m->dim);
        uint32_t at = n_nearest < K ? n_nearest++ : K;
        for (; at > 0 && nearest[at - 1] > d; at--)
            nearest[at] = nearest[at - 1];
        nearest[at] = d;
        for (uint32_t h = 0; h < n; h++)
            if (hits[h].row == v->row) {
                assert_true(fabs(hits[h].distance - d) <= tolerance(f, d));
                check_row(f, v);
            }
    }
    assert_int_equal(n, n_visible < K ? n_visible : K);
    for (uint32_t h = 0; h < n; h++) {
        if (exact)
            assert_true(fabs(hits[h].distance - nearest[h]) <= 2 * tolerance(f, nearest[h]));
        for (uint32_t j = 0; j < h; j++)
            assert_true(hits[j].row != hits[h].row);
    }
    epoch_exit(f->epochs, slot);
}

/* When nobody reads the past, only the living are left. */
static void check_end(struct fixture *f, const struct model *m, uint64_t *state)
{
    struct memtable_stats stats;
    uint32_t living = 0;
    while (memtable_reclaim(f->table, f->lsn))
        ;
    verify(f);
    memtable_get_stats(f->table, &stats);
    for (uint32_t i = 0; i < KEYS; i++)
        living += m->living[i] != UINT32_MAX;
    assert_int_equal(stats.rows, living);
    assert_int_equal(stats.dead, 0);
    assert_true(stats.row_end < 2 * KEYS);
    check_search(f, m, true, f->lsn, state);
}

static void run_model(uint32_t dim, enum quire_type type, enum quire_metric metric, enum quire_slot slot)
{
    static struct model m;
    struct fixture f;
    struct random random;
    uint64_t state = 5 + dim, horizon = 0;
    begin(&f, dim, type, metric, slot);
    random_init(&random, dim * 31 + type);
    m = (struct model){.dim = dim, .metric = metric};
    for (uint32_t i = 0; i < KEYS; i++)
        m.living[i] = UINT32_MAX;
    for (uint32_t step = 0; step < 3000; step++) {
        /* few keys at first: growth, then cells, in which half of the keys are replaced again and again */
        uint32_t keys = step < 300 ? 20 : step < 600 ? 200 : KEYS, key = (uint32_t)random_below(&random, keys);
        if (random_below(&random, 4))
            model_put(&f, &m, key, &state, &random);
        else
            model_change(&f, &m, key, &random);
        if (step % 20 == 7)
            check_search(&f, &m, step % 40 == 7, f.lsn, &state);
        if (step % 20 == 13)
            check_search(&f, &m, true, horizon + random_below(&random, f.lsn - horizon + 1), &state);
        if (step % 150 == 0) {
            horizon = f.lsn > 50 ? f.lsn - 50 : 0;
            while (memtable_reclaim(f.table, horizon))
                ;
            verify(&f);
        }
    }
    check_end(&f, &m, &state);
    for (uint32_t i = 0; i < m.n; i++)
        free(m.versions[i].x);
    end(&f);
}

static void test_model_f32(void **state)
{
    (void)state;
    run_model(48, QUIRE_TYPE_F32, QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    run_model(33, QUIRE_TYPE_F32, QUIRE_METRIC_IP, QUIRE_SLOT_F32);
    run_model(20, QUIRE_TYPE_F32, QUIRE_METRIC_COSINE, QUIRE_SLOT_F32);
    run_model(64, QUIRE_TYPE_F32, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
}

static void test_model_other_types(void **state)
{
    (void)state;
    run_model(47, QUIRE_TYPE_U8, QUIRE_METRIC_L2, QUIRE_SLOT_U8);
    run_model(31, QUIRE_TYPE_I8, QUIRE_METRIC_COSINE, QUIRE_SLOT_I8);
    run_model(40, QUIRE_TYPE_I8, QUIRE_METRIC_L2, QUIRE_SLOT_I8);
    run_model(24, QUIRE_TYPE_F16, QUIRE_METRIC_IP, QUIRE_SLOT_F16);
    run_model(100, QUIRE_TYPE_BF16, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    run_model(300, QUIRE_TYPE_BF16, QUIRE_METRIC_L2, QUIRE_SLOT_BF16);
}

/* ---- the change to cells --------------------------------------------------------------------------------------- */

static void test_change_to_cells(void **state)
{
    struct fixture f;
    uint64_t gauss = 3;
    float x[300][32];
    struct memtable_hit hits[5];
    (void)state;
    begin(&f, 32, QUIRE_TYPE_F32, QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    for (uint32_t i = 0; i < 300; i++) {
        random_vector(&gauss, 32, x[i]);
        assert_int_equal(put_number(&f, i, x[i]), i);
        /* each row is found at once and keeps its number */
        for (uint32_t j = 0; j <= i; j += 37) {
            assert_int_equal(search(&f, x[j], 1, false, f.lsn, hits), 1);
            assert_true(hits[0].row == j && hits[0].distance == 0);
        }
    }
    assert_int_equal(search(&f, x[200], 5, false, 200, hits), 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(hits[i].row < 200);
    verify(&f);
    uint32_t n = (uint32_t)memtable_links(f.table, 7, f.lsn, NULL, hits, 5);
    assert_int_equal(n, 5);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_not_equal(hits[i].row, 7);
        assert_true(fabs(hits[i].distance - support_distance(QUIRE_METRIC_L2, x[7], x[hits[i].row], 32)) < 1e-3);
        assert_true(i == 0 || hits[i].distance >= hits[i - 1].distance);
    }
    end(&f);
}

/* ---- recall ------------------------------------------------------------------------------------------------------ */

enum { MANY_ROWS = SANITIZED ? 3000 : 20000, SOME_ROWS = SANITIZED ? 2500 : 6000, RECALL_QUERIES = 60 };

/* The share of the 10 nearest that a search with default effort finds. */
static double recall_of(struct fixture *f, const struct support_data *data)
{
    enum { K = 10 };
    double recall = 0;
    float *queries = support_queries(data, RECALL_QUERIES, 5);
    for (uint32_t i = 0; i < RECALL_QUERIES; i++) {
        struct memtable_hit hits[K];
        struct quire_hit as_ids[K];
        memset(as_ids, 0, sizeof as_ids);
        const float *query = queries + (size_t)i * data->dim;
        unsigned slot = epoch_enter(f->epochs);
        uint32_t n = search(f, query, K, false, f->lsn, hits);
        epoch_exit(f->epochs, slot);
        for (uint32_t h = 0; h < n; h++)
            as_ids[h].id = hits[h].row;
        recall += support_recall(f->config.metric, data->floats, data->rows, data->dim, query, K, as_ids, n);
    }
    free(queries);
    return recall / RECALL_QUERIES;
}

static double run_recall(uint32_t rows, enum quire_type type, enum quire_metric metric, enum quire_slot slot)
{
    struct support_data data;
    struct fixture f;
    support_clusters(rows, 48, type, 11, &data);
    begin(&f, 48, type, metric, slot);
    size_t bytes = quire_type_bytes(type) * 48;
    for (uint32_t i = 0; i < data.rows; i++)
        assert_int_equal(put_number(&f, i, data.vectors + i * bytes), i);
    double recall = recall_of(&f, &data);
    support_data_free(&data);
    end(&f);
    return recall;
}

static void test_recall(void **state)
{
    (void)state;
    assert_true(run_recall(MANY_ROWS, QUIRE_TYPE_F32, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8) >= 0.95);
    assert_true(run_recall(SOME_ROWS, QUIRE_TYPE_U8, QUIRE_METRIC_L2, QUIRE_SLOT_U8) >= 0.97);
    assert_true(run_recall(SOME_ROWS, QUIRE_TYPE_F32, QUIRE_METRIC_IP, QUIRE_SLOT_F32) >= 0.97);
}

/* Where no direction is better than another, cells help little: the gauge must notice. */
static void test_recall_of_noise(void **state)
{
    enum { DIM = 128 };
    struct support_data data;
    struct fixture f;
    uint64_t gauss = 17;
    (void)state;
    support_data_alloc(MANY_ROWS, DIM, QUIRE_TYPE_F32, &data);
    begin(&f, DIM, QUIRE_TYPE_F32, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    for (uint32_t i = 0; i < data.rows; i++) {
        float *x = (float *)(void *)data.vectors + (size_t)i * DIM;
        random_vector(&gauss, DIM, x);
        put_number(&f, i, x);
    }
    support_floats(&data);
    assert_true(recall_of(&f, &data) >= 0.93);
    verify(&f);
    support_data_free(&data);
    end(&f);
}

/* Lengths grow by a fiftieth of a percent a row: sooner or later a table asks for another one; until then it finds. */
static void test_growing_lengths(void **state)
{
    enum { DIM = 24, ROWS = 2000 };
    struct fixture f;
    uint64_t gauss = 9;
    struct support_data data;
    (void)state;
    support_data_alloc(ROWS, DIM, QUIRE_TYPE_F32, &data);
    begin(&f, DIM, QUIRE_TYPE_F32, QUIRE_METRIC_IP, QUIRE_SLOT_F32);
    uint32_t n = 0;
    for (float *x = (float *)(void *)data.vectors; n < ROWS; n++, x += DIM) {
        random_vector(&gauss, DIM, x);
        for (uint32_t i = 0; i < DIM; i++)
            x[i] *= powf(1.0002f, (float)n);
        int rc = memtable_check_vector(f.table, x, NULL);
        assert_true(rc >= 0);
        if (rc == MEMTABLE_TOO_LONG)
            break;
        put_number(&f, n, x);
    }
    assert_true(n > 2 * MEMTABLE_FLAT_ROWS && n < ROWS);
    data.rows = n;
    support_floats(&data);
    assert_true(recall_of(&f, &data) >= 0.95);
    support_data_free(&data);
    end(&f);
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

static void reclaim_all(struct fixture *f, uint64_t horizon)
{
    while (memtable_reclaim(f->table, horizon))
        ;
}

static void run_reuse(uint32_t keys)
{
    struct fixture f;
    uint64_t gauss = 4;
    float x[16];
    struct memtable_stats stats;
    struct memtable_row row;
    begin(&f, 16, QUIRE_TYPE_F32, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    for (uint32_t round = 0; round < 12; round++) {
        for (uint32_t i = 0; i < keys; i++) {
            random_vector(&gauss, 16, x);
            put_number(&f, i, x);
        }
        reclaim_all(&f, f.lsn);
    }
    memtable_get_stats(f.table, &stats);
    assert_int_equal(stats.rows, keys);
    assert_int_equal(stats.dead, 0);
    assert_true(stats.row_end <= 2 * keys); /* of 12 lives of each key */
    verify(&f);
    /* a reader inside an epoch keeps its row, whatever happens to it; without one it goes */
    uint32_t number = 3, victim = memtable_find(f.table, &number, sizeof number);
    unsigned slot = epoch_enter(f.epochs);
    memtable_row(f.table, victim, &row);
    const void *key = row.key;
    memtable_end(f.table, victim, ++f.lsn);
    reclaim_all(&f, f.lsn);
    memtable_get_stats(f.table, &stats);
    assert_int_equal(stats.dead, 1);
    memtable_row(f.table, victim, &row);
    assert_true(row.key == key && row.end_lsn == f.lsn && memcmp(key, &number, sizeof number) == 0);
    epoch_exit(f.epochs, slot);
    reclaim_all(&f, f.lsn);
    memtable_get_stats(f.table, &stats);
    assert_int_equal(stats.dead, 0);
    memtable_row(f.table, victim, &row);
    assert_true(row.key == NULL && row.begin_lsn == MEMTABLE_LSN_MAX && row.end_lsn == 0);
    assert_int_equal(put_number(&f, number, x), victim);
    end(&f);
}

static void test_row_numbers_are_used_again(void **state)
{
    (void)state;
    run_reuse(10);
    run_reuse(200);
    run_reuse(600);
}

static void test_horizon_keeps_old_versions(void **state)
{
    struct fixture f;
    struct memtable_hit hit;
    float a[16] = {1}, b[16] = {0, 1};
    (void)state;
    begin(&f, 16, QUIRE_TYPE_F32, QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    uint32_t old = put(&f, "key", 3, a), new = put(&f, "key", 3, b); /* born at 1 and 2 */
    reclaim_all(&f, 1);
    assert_int_equal(search(&f, b, 1, true, 1, &hit), 1);
    assert_true(hit.row == old && fabsf(hit.distance - 2) < 1e-6f);
    assert_int_equal(search(&f, a, 1, true, 2, &hit), 1);
    assert_true(hit.row == new);
    assert_int_equal(search(&f, a, 1, true, 0, &hit), 0);
    reclaim_all(&f, 2);
    assert_int_equal(search(&f, a, 1, true, 1, &hit), 0);
    end(&f);
}

/* All rows go, others come, again and again: the cells go with them, but one. */
static void test_empty_and_filled_again(void **state)
{
    struct fixture f;
    uint64_t gauss = 6;
    float x[16];
    struct memtable_hit hit;
    struct memtable_stats stats;
    (void)state;
    begin(&f, 16, QUIRE_TYPE_F32, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < 1000; i++) {
            random_vector(&gauss, 16, x);
            put_number(&f, i, x);
        }
        assert_int_equal(search(&f, x, 1, false, f.lsn, &hit), 1);
        assert_true(hit.distance < 1e-4f);
        verify(&f);
        for (uint32_t i = 0; i < 1000; i++)
            memtable_end(f.table, memtable_find(f.table, &i, sizeof i), ++f.lsn);
        reclaim_all(&f, f.lsn);
        verify(&f);
        memtable_get_stats(f.table, &stats);
        assert_int_equal(stats.rows + stats.dead, 0);
        assert_int_equal(search(&f, x, 1, false, f.lsn, &hit), 0);
    }
    end(&f);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum {
    BASE_KEYS = 200,
    LIVE_KEYS = 700,
    LIVE_DIM = 32,
    LIVE_PUTS = SANITIZED ? 3000 : 8000,
    CHURN_KEYS = 4,
    CHURN_US = 1000000,
    SEARCHERS = 3,
    LIVE_SEARCHES = 10
};

struct live {
    struct fixture f;
    pthread_mutex_t lock;
    atomic_uint_fast64_t lsn; /* last one that is visible */
    atomic_bool stop;
    atomic_uint failures, searches;
};

/* No key twice; and with `all`, at any snapshot, each of the base keys, which are in the table all the time. */
static bool sees_each_once(struct live *live, const struct memtable_hit *hits, int n, bool all)
{
    unsigned n_base = 0;
    static _Thread_local uint8_t seen[LIVE_KEYS];
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < n; i++) {
        struct memtable_row row;
        uint32_t key;
        memtable_row(live->f.table, hits[i].row, &row);
        if (row.key_bytes != sizeof key || (row.attributes && row.attribute_bytes != 3))
            return false;
        memcpy(&key, row.key, sizeof key);
        if (key >= LIVE_KEYS || seen[key]++)
            return false;
        n_base += key < BASE_KEYS;
    }
    return !all || n_base == BASE_KEYS;
}

static void *search_always(void *context)
{
    struct live *live = context;
    static _Thread_local struct memtable_hit hits[LIVE_KEYS];
    float query[LIVE_DIM], vector[LIVE_DIM], room[LIVE_DIM];
    uint64_t gauss = (uint64_t)(uintptr_t)hits;
    while (!atomic_load(&live->stop)) {
        bool all = atomic_fetch_add(&live->searches, 1) % 4 == 0;
        random_vector(&gauss, LIVE_DIM, query);
        unsigned slot = epoch_enter(live->f.epochs);
        struct memtable_query q = {.query = query, .k = all ? LIVE_KEYS : 10, .exact = all, .effort = 20};
        q.snapshot = atomic_load(&live->lsn);
        int n = memtable_search(live->f.table, &q, hits, NULL);
        if ((n != (int)q.k && !all) || !sees_each_once(live, hits, n, all))
            atomic_fetch_add(&live->failures, 1);
        for (int i = 0; i < n; i += 7)
            memtable_vector(live->f.table, hits[i].row, room, vector);
        epoch_exit(live->f.epochs, slot);
    }
    return NULL;
}

static void write_always(struct live *live)
{
    struct fixture *f = &live->f;
    uint64_t gauss = 1;
    struct random random;
    float x[LIVE_DIM];
    random_init(&random, 1);
    for (uint32_t i = 0; i < LIVE_PUTS || atomic_load(&live->searches) < 4 * LIVE_SEARCHES; i++) {
        uint32_t key = i < LIVE_KEYS ? i : (uint32_t)random_below(&random, LIVE_KEYS), row;
        random_vector(&gauss, LIVE_DIM, x);
        pthread_mutex_lock(&live->lock);
        uint64_t lsn = atomic_load(&live->lsn) + 1;
        assert_int_equal(memtable_put(f->table, &key, sizeof key, x, false, "abc", 3, lsn, &row), 0);
        if (i % 5 == 0)
            assert_int_equal(memtable_set_attributes(f->table, row, "def", i % 10 ? 3 : 0), 0);
        atomic_store(&live->lsn, lsn);
        if (i % 16 == 0)
            memtable_reclaim(f->table, lsn);
        pthread_mutex_unlock(&live->lock);
    }
}

static void run_threads(enum quire_metric metric, enum quire_slot slot)
{
    struct live live = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t searchers[SEARCHERS];
    begin(&live.f, LIVE_DIM, QUIRE_TYPE_F32, metric, slot);
    /* the change to cells comes while all are at work */
    float x[LIVE_DIM];
    uint64_t gauss = 77;
    for (uint32_t key = 0; key < BASE_KEYS; key++) {
        random_vector(&gauss, LIVE_DIM, x);
        put_number(&live.f, key, x);
    }
    atomic_store(&live.lsn, live.f.lsn);
    for (unsigned i = 0; i < SEARCHERS; i++)
        assert_int_equal(pthread_create(&searchers[i], NULL, search_always, &live), 0);
    write_always(&live);
    atomic_store(&live.stop, true);
    for (unsigned i = 0; i < SEARCHERS; i++)
        pthread_join(searchers[i], NULL);
    assert_int_equal(atomic_load(&live.failures), 0);
    assert_true(atomic_load(&live.searches) > LIVE_SEARCHES);
    reclaim_all(&live.f, atomic_load(&live.lsn));
    reclaim_all(&live.f, atomic_load(&live.lsn)); /* the first may have been too early for the last readers */
    verify(&live.f);
    struct memtable_stats stats;
    memtable_get_stats(live.f.table, &stats);
    assert_int_equal(stats.rows, LIVE_KEYS);
    assert_int_equal(stats.dead, 0);
    end(&live.f);
}

static void test_threads(void **state)
{
    (void)state;
    run_threads(QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    run_threads(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
}

/* Everything that is answered is visible at the snapshot, also while the numbers of dead rows are taken away and given
 * to others under the search. */
static void *search_for_dead(void *context)
{
    struct live *live = context;
    float query[LIVE_DIM] = {1};
    while (!atomic_load(&live->stop)) {
        struct memtable_hit hits[CHURN_KEYS];
        unsigned slot = epoch_enter(live->f.epochs);
        struct memtable_query q = {.query = query, .k = CHURN_KEYS, .exact = true, .snapshot = atomic_load(&live->lsn)};
        int n = memtable_search(live->f.table, &q, hits, NULL);
        for (int i = 0; i < n; i++) {
            struct memtable_row row;
            memtable_row(live->f.table, hits[i].row, &row);
            if (!row.key || row.begin_lsn > q.snapshot || row.end_lsn <= q.snapshot)
                atomic_fetch_add(&live->failures, 1);
        }
        atomic_fetch_add(&live->searches, 1);
        epoch_exit(live->f.epochs, slot);
    }
    return NULL;
}

static void test_the_dead_stay_dead(void **state)
{
    struct live live = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct fixture *f = &live.f;
    pthread_t searcher;
    float x[LIVE_DIM] = {2};
    (void)state;
    begin(f, LIVE_DIM, QUIRE_TYPE_F32, QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    assert_int_equal(pthread_create(&searcher, NULL, search_for_dead, &live), 0);
    uint64_t until = clock_us() + CHURN_US;
    for (uint32_t i = 0; clock_us() < until; i++) {
        uint32_t key = i % CHURN_KEYS;
        uint32_t old = memtable_find(f->table, &key, sizeof key);
        if (old != MEMTABLE_NONE) {
            memtable_end(f->table, old, ++f->lsn);
            atomic_store(&live.lsn, f->lsn);
            while (memtable_end_lsn(f->table, old) != 0)
                memtable_reclaim(f->table, f->lsn);
        }
        put_number(f, key, x);
        atomic_store(&live.lsn, f->lsn);
    }
    atomic_store(&live.stop, true);
    pthread_join(searcher, NULL);
    assert_int_equal(atomic_load(&live.failures), 0);
    assert_true(atomic_load(&live.searches) > 10);
    verify(f);
    end(f);
}

static void test_refused_vectors(void **state)
{
    struct fixture f;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, NAN}, zero[8] = {0}, large[8] = {3e38f, 3e38f};
    (void)state;
    begin(&f, 8, QUIRE_TYPE_F32, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    assert_int_equal(memtable_check_vector(f.table, x, NULL), QUIRE_ENOTFINITE);
    x[7] = INFINITY;
    assert_int_equal(memtable_check_vector(f.table, x, NULL), QUIRE_ENOTFINITE);
    x[7] = 8;
    assert_int_equal(memtable_check_vector(f.table, x, NULL), 0);
    assert_int_equal(memtable_check_vector(f.table, zero, NULL), 0);
    assert_int_equal(memtable_check_vector(f.table, large, NULL), 0);
    end(&f);
    begin(&f, 8, QUIRE_TYPE_F32, QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    assert_int_equal(memtable_check_vector(f.table, zero, NULL), 0);
    assert_int_equal(memtable_check_vector(f.table, large, NULL), QUIRE_ENOTFINITE);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_f32),
        cmocka_unit_test(test_model_other_types),
        cmocka_unit_test(test_change_to_cells),
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_recall_of_noise),
        cmocka_unit_test(test_growing_lengths),
        cmocka_unit_test(test_row_numbers_are_used_again),
        cmocka_unit_test(test_horizon_keeps_old_versions),
        cmocka_unit_test(test_empty_and_filled_again),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_the_dead_stay_dead),
        cmocka_unit_test(test_refused_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
