/*
 * test_library_fork.c - handles in a child of fork(): each call answers with an error at once, and the parent goes on
 * as if there had been no child, with both engines.
 */
#include "tests/index/support_live.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ELEMENTS = 400, PATIENCE_S = 60 };

static const enum quire_engine_kind engines[] = {QUIRE_ENGINE_URING, QUIRE_ENGINE_THREADS};

static void numbers_of(uint32_t i, float out[DIM])
{
    for (uint32_t d = 0; d < DIM; d++)
        out[d] = (float)((i * 31 + d * 17) % 101);
}

static int put_number(struct quire_collection *c, uint32_t i, struct quire_error *err)
{
    char key[16];
    float vector[DIM];
    int n = snprintf(key, sizeof key, "k%u", i);
    numbers_of(i, vector);
    return quire_put(c, key, (size_t)n, vector, NULL, 0, NULL, err);
}

static int get(struct quire_collection *c, uint32_t i, struct quire_error *err)
{
    char key[16];
    float vector[DIM], expected[DIM];
    int n = snprintf(key, sizeof key, "k%u", i);
    int rc = quire_get(c, key, (size_t)n, vector, NULL, NULL, err);
    numbers_of(i, expected);
    return rc == 0 && memcmp(vector, expected, sizeof vector) != 0 ? QUIRE_ECORRUPT : rc;
}

static int search(struct quire_collection *c, struct quire_error *err)
{
    float query[DIM];
    struct quire_result *result = NULL;
    numbers_of(7, query);
    int rc = quire_collection_search(c, NULL, query, NULL, 0, &result, NULL, err);
    quire_result_free(result);
    return rc;
}

/* Opens, with elements in a segment and in memory. False: the engine is not to be had here. */
static bool open_with(struct state *s, enum quire_engine_kind engine)
{
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    options.engine = engine;
    options.metric = QUIRE_METRIC_L2;
    options.slot = QUIRE_SLOT_F32;
    assert_int_equal(quire_collection_open(s->path, &options, &s->c, &err), 0);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        assert_int_equal(put_number(s->c, i, &err), 0);
    assert_int_equal(quire_seal(s->c, &err), 0);
    assert_int_equal(put_number(s->c, ELEMENTS, &err), 0);
    int rc = get(s->c, 1, &err);
    if (rc == QUIRE_EUNSUPPORTED) {
        quire_collection_close(s->c, NULL);
        s->c = NULL;
    }
    assert_true(rc == 0 || rc == QUIRE_EUNSUPPORTED);
    return rc == 0;
}

static void work(struct quire_collection *c)
{
    struct quire_error err = {0};
    for (uint32_t i = 0; i < ELEMENTS; i += 5)
        if (get(c, i, &err) < 0)
            fail_msg("%s", err.message);
    assert_int_equal(search(c, &err), 0);
    assert_int_equal(put_number(c, 3, &err), 0);
    assert_int_equal(quire_checkpoint(c, &err), 0);
}

/* A number for the place that was wrong; 0: all calls were refused. */
static int child_of_collection(struct quire_collection *c, struct quire_snapshot *snapshot)
{
    struct quire_error err = {0};
    struct quire_collection_info info;
    struct quire_snapshot *other;
    uint64_t n;
    if (get(c, 1, &err) != QUIRE_ECLOSED || !strstr(err.message, "forked"))
        return 1;
    if (search(c, &err) != QUIRE_ECLOSED)
        return 2;
    if (put_number(c, 1, &err) != QUIRE_ECLOSED || quire_remove(c, "k1", 2, &err) != QUIRE_ECLOSED)
        return 3;
    if (quire_set_attributes(c, "k1", 2, "{}", 2, &err) != QUIRE_ECLOSED)
        return 4;
    if (quire_count(c, NULL, &n, &err) != QUIRE_ECLOSED || quire_snapshot_open(c, &other, &err) != QUIRE_ECLOSED)
        return 5;
    if (quire_checkpoint(c, &err) != QUIRE_ECLOSED || quire_seal(c, &err) != QUIRE_ECLOSED ||
        quire_compact(c, &err) != QUIRE_ECLOSED || quire_backup(c, "elsewhere", &err) != QUIRE_ECLOSED)
        return 6;
    quire_collection_get_info(c, &info);
    if (info.elements != 0)
        return 7;
    quire_snapshot_close(snapshot);
    return quire_collection_close(c, &err) == QUIRE_ECLOSED ? 0 : 8;
}

static void await(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_child_is_refused_and_its_parent_goes_on(void **in)
{
    for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
        struct state *s = *in;
        struct quire_error err = {0};
        struct quire_snapshot *snapshot = NULL;
        if (!open_with(s, engines[e]))
            continue;
        assert_int_equal(quire_snapshot_open(s->c, &snapshot, &err), 0);
        for (unsigned i = 0; i < 3; i++) {
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                alarm(PATIENCE_S);
                _exit(child_of_collection(s->c, snapshot));
            }
            work(s->c);
            await(child);
            work(s->c);
        }
        quire_snapshot_close(snapshot);
        /* a child that lives on keeps nobody out */
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE_S);
            pause();
            _exit(0);
        }
        assert_int_equal(quire_collection_close(s->c, &err), 0);
        struct quire_collection_options options = live_options(DIM);
        options.engine = engines[e];
        options.metric = QUIRE_METRIC_L2;
        if (quire_collection_open(s->path, &options, &s->c, &err) < 0)
            fail_msg("%s", err.message);
        work(s->c);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(quire_collection_close(s->c, &err), 0);
        s->c = NULL;
    }
}

static void on_search(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                      const struct quire_search_stats *stats, const struct quire_error *err)
{
    (void)context, (void)code, (void)hits, (void)n_hits, (void)stats, (void)err;
}

static int child_of_index(struct quire_index *index, struct quire_loop *loop, const float *query)
{
    struct quire_hit hits[10];
    uint32_t n_hits;
    float vector[DIM];
    if (quire_search(index, query, NULL, hits, &n_hits, NULL, NULL) != QUIRE_ECLOSED)
        return 1;
    if (quire_vector(index, 3, vector, NULL) != QUIRE_ECLOSED || quire_loop_poll(loop, 0, 0) != QUIRE_ECLOSED)
        return 2;
    if (quire_loop_search(loop, index, query, NULL, on_search, NULL, NULL) != QUIRE_ECLOSED)
        return 3;
    quire_loop_destroy(loop);
    quire_close(index);
    return 0;
}

static void an_index_and_a_loop_are_refused(void **in)
{
    struct state *s = *in;
    static float vectors[ELEMENTS][DIM];
    struct quire_build_options build;
    struct quire_error err = {0};
    quire_build_options_init(&build);
    build.metric = QUIRE_METRIC_L2;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        numbers_of(i, vectors[i]);
    if (quire_build(s->path, vectors, ELEMENTS, DIM, QUIRE_TYPE_F32, &build, &err) < 0)
        fail_msg("%s", err.message);
    for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
        struct quire_open_options open;
        struct quire_loop_options options;
        struct quire_index *index;
        struct quire_loop *loop;
        struct quire_hit hits[10];
        uint32_t n_hits;
        quire_open_options_init(&open);
        quire_loop_options_init(&options);
        open.engine = options.engine = engines[e];
        assert_int_equal(quire_open(s->path, &open, &index, &err), 0);
        int rc = quire_loop_create(&options, &loop, &err);
        if (rc == 0) {
            assert_int_equal(quire_search(index, vectors[5], NULL, hits, &n_hits, NULL, &err), 0);
            pid_t child = fork();
            if (child == 0) {
                alarm(PATIENCE_S);
                _exit(child_of_index(index, loop, vectors[5]));
            }
            await(child);
            assert_int_equal(quire_search(index, vectors[5], NULL, hits, &n_hits, NULL, &err), 0);
            assert_int_equal(quire_loop_poll(loop, 0, 0), 0);
            quire_loop_destroy(loop);
        }
        assert_true(rc == 0 || rc == QUIRE_EUNSUPPORTED);
        quire_close(index);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_child_is_refused_and_its_parent_goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_index_and_a_loop_are_refused, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
