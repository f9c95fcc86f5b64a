/*
 * test_collection_alone.c - a collection without a store: a host of the test's own with a journal in memory. What the
 * host is asked, what it may refuse, and that nothing of a collection needs a folder.
 */
#include "index/attribute/grants.h"
#include "index/collection/collection_host.h"
#include "index/search/search.h"
#include "tests/index/support_store.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 400, UID = 5 };

struct state {
    struct io_fs *fs;
    struct collection_host host;
    struct collection *c;
    struct support_lane lane;
    unsigned n_wakes, n_notes;
    uint32_t rows;
    bool refuses;
    /* of the search */
    bool done;
    int code;
    uint32_t n_hits;
    char first[16];
};

static int ignore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    (void)context, (void)kind, (void)lsn, (void)bytes, (void)n, (void)err;
    return 0;
}

static int admit(void *context, const struct collection *c, struct quire_error *err)
{
    struct state *s = context;
    (void)c, (void)err;
    return s->refuses ? QUIRE_ELIMIT : 0;
}

static void wake(void *context, struct collection *c)
{
    struct state *s = context;
    (void)c;
    s->n_wakes++;
}

static void note_memtable(void *context, struct collection *c, uint32_t rows, uint64_t bytes)
{
    struct state *s = context;
    assert_true(bytes > 0);
    assert_int_equal(collection_uid(c), UID);
    s->n_notes++;
    s->rows = rows;
}

static int set_up_metric(void **out, enum quire_metric metric)
{
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    const struct journal_options options = {.sync = JOURNAL_NO};
    const struct journal_reader reader = {.restore = ignore, .replay = ignore};
    struct collection_config config = support_config();
    struct attribute_schema *schema = NULL;
    struct journal_report report;
    uint64_t lsn;
    config.metric = metric;
    s->fs = fault_fs_create();
    assert_non_null(s->fs);
    assert_int_equal(s->fs->ops->mkdir(s->fs, "/log"), 0);
    assert_int_equal(journal_open(s->fs, "/log", &options, &reader, &s->host.journal, &report, NULL), 0);
    assert_int_equal(epochs_create(&s->host.epochs), 0);
    s->host.admit = admit;
    s->host.wake = wake;
    s->host.note_memtable = note_memtable;
    s->host.context = s;
    assert_int_equal(collection_config_validate(&config, NULL), 0);
    assert_int_equal(attribute_schema_create(NULL, 0, &schema, NULL), 0);
    assert_int_equal(collection_create(&s->host, 8, UID, &config, schema, 0, &s->c, NULL), 0);
    assert_int_equal(collection_log_create(s->c, &lsn, NULL), 0);
    support_lane_open(&s->lane, s->fs);
    *out = s;
    return 0;
}

static int set_up(void **out)
{
    return set_up_metric(out, support_config().metric);
}

static int set_up_ip(void **out)
{
    return set_up_metric(out, QUIRE_METRIC_IP);
}

static int tear_down(void **in)
{
    struct state *s = *in;
    support_lane_close(&s->lane);
    collection_unref(s->c);
    assert_int_equal(journal_close(s->host.journal, NULL), 0);
    epochs_destroy(s->host.epochs);
    fault_fs_destroy(s->fs);
    free(s);
    return 0;
}

static int put(struct state *s, uint32_t key, uint32_t version)
{
    float vector[SUPPORT_DIM];
    char name[16];
    struct collection_put put = {.key = name, .vector = vector};
    put.key_bytes = (uint32_t)snprintf(name, sizeof name, "key-%u", key);
    support_vector(key, version, vector);
    assert_int_equal(collection_locate_now(s->c, name, put.key_bytes, &put.located), 1);
    return collection_put(s->c, &put, NULL);
}

static void on_search(struct collection_search *search)
{
    struct state *s = search->owner;
    s->done = true;
    s->code = search->code;
    s->n_hits = search->n_hits;
    if (search->n_hits > 0)
        memcpy(s->first, search->hits[0].key, search->hits[0].key_bytes);
}

/* The nearest element to the vector of a key. */
static void search(struct state *s, uint32_t key, uint32_t version, uint32_t k)
{
    float query[SUPPORT_DIM];
    struct collection_search search = {.collection = s->c, .query = query, .done = on_search, .owner = s};
    quire_search_options_init(&search.options);
    search.options.k = k;
    support_vector(key, version, query);
    s->done = false;
    memset(s->first, 0, sizeof s->first);
    assert_int_equal(collection_search_start(s->lane.searcher, &search, NULL), 0);
    while (!s->done)
        engine_poll(s->lane.engine, 1, 1000000);
    assert_int_equal(s->code, 0);
}

/* Refuses more than `most` bytes. */
struct held {
    bool done;
    int code;
    uint32_t n_hits;
    size_t bytes, most;
};

static bool may_hold(struct collection_search *search, size_t bytes)
{
    struct held *held = search->owner;
    assert_true(!held->done && bytes > held->bytes);
    held->bytes = bytes;
    return bytes <= held->most;
}

static void on_held(struct collection_search *search)
{
    struct held *held = search->owner;
    held->done = true;
    held->code = search->code;
    held->n_hits = search->n_hits;
}

/* A search asks before it holds very much, and ends where it may not. */
static void what_a_search_holds_is_bounded(void **in)
{
    enum { MANY = 60, LONG = 10000 };
    struct state *s = *in;
    const size_t most[] = {SIZE_MAX, 400000};
    assert_int_equal(put(s, 7, 1), 0);
    for (uint32_t i = 1; i < MANY; i++) {
        float vector[SUPPORT_DIM];
        char key[LONG] = {(char)i};
        struct collection_put long_one = {.key = key, .key_bytes = LONG, .vector = vector};
        support_vector(100 + i, 1, vector);
        assert_int_equal(collection_locate_now(s->c, key, LONG, &long_one.located), 1);
        assert_int_equal(collection_put(s->c, &long_one, NULL), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        float query[SUPPORT_DIM];
        struct held held = {.most = most[i]};
        struct collection_search search = {
            .collection = s->c, .query = query, .done = on_held, .owner = &held, .may_hold = may_hold};
        quire_search_options_init(&search.options);
        search.options.k = MANY;
        search.options.exact = true;
        support_vector(7, 1, query);
        assert_int_equal(collection_search_start(s->lane.searcher, &search, NULL), 0);
        while (!held.done)
            engine_poll(s->lane.engine, 1, 1000000);
        assert_int_equal(held.code, i == 0 ? 0 : QUIRE_ENOMEM);
        assert_int_equal(held.n_hits, i == 0 ? MANY : 0);
        if (i == 0)
            assert_true(held.bytes >= (MANY - 1) * LONG);
        else
            assert_in_range(held.bytes, 400000, 600000);
    }
    search(s, 7, 1, 1); /* the lane goes on */
    assert_string_equal(s->first, "key-7");
}

static void elements_are_put_and_found_without_a_store(void **in)
{
    struct state *s = *in;
    uint64_t lsn, before = collection_last_lsn(s->c);
    bool removed;
    struct located nowhere;
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(put(s, i, 1), 0);
    assert_int_equal(collection_count(s->c), N);
    assert_int_equal(collection_last_lsn(s->c), before + N);
    assert_int_equal(s->n_notes, N);
    assert_int_equal(s->rows, N);
    search(s, 7, 1, 10);
    assert_int_equal(s->n_hits, 10);
    assert_string_equal(s->first, "key-7");
    assert_int_equal(put(s, 7, 2), 0);
    search(s, 7, 2, 10);
    assert_string_equal(s->first, "key-7");
    assert_int_equal(collection_locate_now(s->c, "key-7", 5, &nowhere), 1);
    assert_int_equal(collection_remove(s->c, "key-7", 5, &nowhere, NULL, &removed, &lsn, NULL), 0);
    assert_true(removed);
    search(s, 7, 2, N);
    assert_int_equal(s->n_hits, N - 1);
    assert_string_not_equal(s->first, "key-7");
}

static void the_host_refuses_and_is_told(void **in)
{
    struct state *s = *in;
    s->refuses = true;
    assert_int_equal(put(s, 1, 1), QUIRE_ELIMIT);
    assert_int_equal(collection_count(s->c), 0);
    s->refuses = false;
    for (uint32_t version = 1; version <= 3; version++) /* more rows are dead than live: they are to be given back */
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(put(s, i, version), 0);
    assert_true(s->n_wakes > 0);
}

static uint64_t tables_of(const struct state *s)
{
    struct collection_stats stats;
    collection_get_stats(s->c, &stats);
    return stats.memtables;
}

/* An element of some length, granted to n tenants. */
static int put_granted(struct state *s, const char *name, float length, uint32_t n, struct quire_error *err)
{
    static char names[GRANTS_MAX + 6][8];
    static struct grant grants[GRANTS_MAX + 6];
    float vector[SUPPORT_DIM] = {length};
    struct collection_put put = {.key = name, .key_bytes = (uint32_t)strlen(name), .vector = vector};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bytes = (uint32_t)snprintf(names[i], sizeof names[i], "t%u", i);
        grants[i] = (struct grant){.name = names[i], .bytes = bytes};
    }
    put.grants = grants;
    put.n_grants = n;
    assert_int_equal(collection_locate_now(s->c, name, put.key_bytes, &put.located), 1);
    return collection_put(s->c, &put, err);
}

/* Only a vector that is too long for the newest memtable begins another, and only if nothing else refuses its put. */
static void a_refused_put_begins_no_memtable(void **in)
{
    struct state *s = *in;
    struct quire_error err = {0};
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(put(s, i, 1), 0);
    assert_int_equal(put_granted(s, "many", 1, GRANTS_MAX, &err), 0);
    assert_int_equal(put_granted(s, "more", 1, GRANTS_MAX + 1, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "1025 grants"));
    assert_int_equal(put_granted(s, "longer", 1e6f, GRANTS_MAX + 1, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "1025 grants"));
    assert_int_equal(tables_of(s), 1);
}

static void a_vector_that_is_too_long_begins_a_memtable(void **in)
{
    struct state *s = *in;
    struct quire_error err = {0};
    struct collection_put put = {.key = "longest", .key_bytes = 7};
    float vector[SUPPORT_DIM] = {1e12f};
    uint64_t lsn;
    a_refused_put_begins_no_memtable(in);
    assert_int_equal(put_granted(s, "longer", 1e6f, 1, &err), 0);
    assert_int_equal(tables_of(s), 2);
    search(s, 7, 1, 10);
    assert_int_equal(s->n_hits, 10);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(put_granted(s, (char[]){'a' + (char)(i % 20), 'a' + (char)(i / 20), 0}, 1e6f, 1, &err), 0);
    /* a batch is one frame, which a table must hold whole */
    assert_int_equal(journal_batch_begin(s->host.journal, &err), 0);
    put.vector = vector;
    assert_int_equal(collection_locate_now(s->c, put.key, put.key_bytes, &put.located), 1);
    assert_int_equal(collection_put(s->c, &put, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "by itself"));
    assert_int_equal(journal_batch_end(s->host.journal, &lsn, &err), 0);
    assert_int_equal(tables_of(s), 2);
    assert_int_equal(collection_put(s->c, &put, &err), 0);
    assert_int_equal(tables_of(s), 3);
}

static void a_host_need_not_listen(void **in)
{
    struct state *s = *in;
    s->host.admit = NULL;
    s->host.wake = NULL;
    s->host.note_memtable = NULL;
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(put(s, i, 1), 0);
    assert_int_equal(s->n_notes + s->n_wakes, 0);
    search(s, N - 1, 1, 1);
    assert_string_equal(s->first, "key-399");
}

static void what_the_host_keeps_is_zero_and_its_own(void **in)
{
    struct state *s = *in;
    uint64_t *kept = collection_host_data(s->c);
    assert_int_equal(*kept, 0);
    *kept = UINT64_MAX;
    assert_int_equal(put(s, 1, 1), 0);
    assert_true(*kept == UINT64_MAX);
}

static void after_its_drop_nothing_is_written(void **in)
{
    struct state *s = *in;
    uint64_t lsn, last;
    assert_int_equal(put(s, 1, 1), 0);
    assert_int_equal(collection_log_drop(s->c, &lsn, NULL), 0);
    assert_true(collection_is_dropped(s->c));
    last = journal_last_lsn(s->host.journal);
    assert_int_equal(last, lsn);
    assert_int_equal(put(s, 2, 1), QUIRE_ECLOSED);
    assert_int_equal(collection_log_drop(s->c, &lsn, NULL), QUIRE_ECLOSED);
    assert_int_equal(journal_last_lsn(s->host.journal), last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(elements_are_put_and_found_without_a_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_search_holds_is_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_host_refuses_and_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refused_put_begins_no_memtable, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_vector_that_is_too_long_begins_a_memtable, set_up_ip, tear_down),
        cmocka_unit_test_setup_teardown(a_host_need_not_listen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_host_keeps_is_zero_and_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(after_its_drop_nothing_is_written, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
