/*
 * test_library_threads.c - live collections of quire.h over time: snapshots, copies, checkpoints, limits, and threads
 * that do all of it at once.
 *
 * Where threads are at work a vector says which element and which version it is of, in every number: a search that
 * mixed two versions, saw one twice or missed one would show it. What fails in a thread is counted and printed, because
 * cmocka's assertions are for the main thread only.
 */
#include "tests/index/support_live.h"
#include "tests/sanitized.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

enum { KEYS = 600 };

struct churn {
    struct quire_collection *c;
    uint32_t first, n, rounds; /* keys of its own */
    uint32_t *versions;        /* of its keys in the end; owned by the test */
    uint64_t seed;
};

/* Puts and removes at random. */
static void *churn(void *context)
{
    struct churn *w = context;
    struct random random;
    struct quire_error err = {0};
    random_init(&random, w->seed);
    for (uint32_t i = 0; i < w->rounds; i++) {
        uint32_t key = w->first + (uint32_t)random_below(&random, w->n), version = 100 + i;
        char text[TEXT];
        bool removes = random_below(&random, 3) == 0;
        int rc = removes ? quire_remove(w->c, text, key_text(key, text), &err) : put(w->c, key, version, NULL, &err);
        int expected = removes && w->versions[key] == 0 ? QUIRE_ENOTFOUND : 0;
        require(rc == expected, err.message, key, version);
        w->versions[key] = removes ? 0 : version;
    }
    return NULL;
}

static void a_snapshot_shows_what_was(void **in)
{
    enum { SNAPSHOTS = 3, ROUNDS = SANITIZED ? 800 : 2000 };
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_snapshot *snapshots[SNAPSHOTS];
    uint32_t *then[SNAPSHOTS], *now = calloc(KEYS, sizeof *now);
    assert_non_null(now);
    options.memtable_bytes = 64u << 10;
    s->c = open_live(s->path, &options);
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        struct churn writers[2];
        pthread_t threads[2];
        put_some(s->c, 0, KEYS / 2, i + 1);
        for (uint32_t k = 0; k < KEYS / 2; k++)
            now[k] = i + 1;
        then[i] = calloc(KEYS, sizeof *now);
        assert_non_null(then[i]);
        memcpy(then[i], now, KEYS * sizeof *now);
        assert_int_equal(quire_snapshot_open(s->c, &snapshots[i], NULL), 0);
        assert_int_equal(quire_snapshot_count(snapshots[i]), info_of(s->c).elements);
        for (unsigned t = 0; t < 2; t++) {
            writers[t] = (struct churn){s->c, KEYS / 2 * t, KEYS / 2, ROUNDS, now, 77 * i + t};
            assert_int_equal(pthread_create(&threads[t], NULL, churn, &writers[t]), 0);
        }
        for (unsigned step = 0; step < 6; step++) {
            move_to(s->c, step % 3 == 2 ? MERGED : SEALED);
            for (unsigned k = 0; k <= i; k++)
                assert_versions(s->c, snapshots[k], KEYS, then[k]);
        }
        for (unsigned t = 0; t < 2; t++)
            assert_int_equal(pthread_join(threads[t], NULL), 0);
        assert_versions(s->c, NULL, KEYS, now);
    }
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        unsigned k = (i + 2) % SNAPSHOTS; /* not in the order of their opening */
        assert_versions(s->c, snapshots[k], KEYS, then[k]);
        quire_snapshot_close(snapshots[k]);
        free(then[k]);
    }
    assert_int_equal(atomic_load(&failures), 0);
    assert_versions(s->c, NULL, KEYS, now);
    free(now);
}

/* Waits for the background: whether memory falls below a limit within ten seconds. */
static bool memory_falls_below(struct quire_collection *c, uint64_t bytes)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (unsigned i = 0; i < 1000 && info_of(c).memory_bytes >= bytes; i++)
        nanosleep(&pause, NULL);
    return info_of(c).memory_bytes < bytes;
}

/* Removed rows stay for a snapshot; without a further write they go when it is closed. */
static void memory_comes_back_when_a_snapshot_is_closed(void **in)
{
    enum { MANY = 3000, BYTES = 1000 };
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_snapshot *snapshot;
    uint32_t then[MANY];
    char text[BYTES + 1];
    const struct timespec pause = {.tv_nsec = 300000000};
    memset(text, 'x', BYTES);
    text[BYTES] = 0;
    s->c = open_live(s->path, &options);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(put(s->c, i, 1, text, NULL), 0);
        then[i] = 1;
    }
    uint64_t full = info_of(s->c).memory_bytes;
    assert_true(full > MANY * BYTES);
    assert_int_equal(quire_snapshot_open(s->c, &snapshot, NULL), 0);
    remove_some(s->c, 0, MANY - 10);
    nanosleep(&pause, NULL); /* time for the background to do it wrong */
    assert_true(info_of(s->c).memory_bytes > full / 2);
    assert_versions(s->c, snapshot, MANY, then);
    quire_snapshot_close(snapshot);
    assert_true(memory_falls_below(s->c, full / 2));
    assert_int_equal(info_of(s->c).elements, 10);
}

static void a_snapshot_serves_its_own_collection_only(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    char *path = support_path(s->folder, "other");
    struct quire_snapshot *snapshot;
    struct quire_result *result = NULL;
    float query[DIM] = {1};
    s->c = open_live(s->path, &options);
    struct quire_collection *other = open_live(path, &options);
    put_some(s->c, 0, 5, 1);
    assert_int_equal(quire_snapshot_open(other, &snapshot, NULL), 0);
    assert_int_equal(quire_snapshot_count(snapshot), 0);
    assert_int_equal(quire_collection_search(s->c, snapshot, query, NULL, 0, &result, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(other, snapshot, query, NULL, 0, &result, NULL, NULL), 0);
    assert_int_equal(quire_result_count(result), 0);
    quire_result_free(result);
    quire_snapshot_close(snapshot);
    assert_int_equal(quire_collection_close(other, NULL), 0);
    free(path);
}

/* ---- copies, checkpoints ----------------------------------------------------------------------------------------- */

/* A copy that is made while a thread writes holds, of each element, a version that it had then. */
static void a_backup_opens_like_any_other(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    char *copy = support_path(s->folder, "copy");
    struct quire_error err = {0};
    uint32_t now[KEYS] = {0}, found[KEYS];
    struct churn writer;
    pthread_t thread;
    s->c = open_live(s->path, &options);
    put_some(s->c, 0, KEYS, 7);
    for (uint32_t i = 0; i < KEYS; i++)
        now[i] = 7;
    move_to(s->c, SEALED);
    writer = (struct churn){s->c, 0, KEYS / 2, 3000, now, 5};
    assert_int_equal(pthread_create(&thread, NULL, churn, &writer), 0);
    assert_int_equal(quire_backup(s->c, copy, &err), 0);
    assert_int_equal(quire_backup(s->c, copy, &err), QUIRE_EEXISTS);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    struct quire_collection *other = open_live(copy, NULL);
    assert_true(all_versions(other, NULL, KEYS, found));
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(i < KEYS / 2 ? found[i] == 0 || found[i] == 7 || found[i] >= 100 : found[i] == 7);
    put_some(other, 0, KEYS, 9);
    assert_int_equal(quire_compact(other, &err), 0);
    assert_int_equal(quire_collection_close(other, &err), 0);
    assert_versions(s->c, NULL, KEYS, now);
    close_live(s);
    s->c = open_live(s->path, NULL);
    assert_versions(s->c, NULL, KEYS, now);
    free(copy);
}

static void a_checkpoint_leaves_nothing_to_replay(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    uint32_t expected[200];
    s->c = open_live(s->path, &options);
    put_some(s->c, 0, 200, 1);
    move_to(s->c, SEALED);
    put_some(s->c, 100, 50, 2);
    remove_some(s->c, 20, 30);
    for (uint32_t i = 0; i < 200; i++)
        expected[i] = i >= 20 && i < 50 ? 0 : i >= 100 && i < 150 ? 2 : 1;
    assert_int_equal(quire_checkpoint(s->c, &err), 0);
    for (unsigned round = 0; round < 2; round++) {
        close_live(s);
        s->c = open_live(s->path, NULL);
        assert_int_equal(info_of(s->c).replayed_records, round);
        assert_int_equal(info_of(s->c).elements, 170);
        assert_versions(s->c, NULL, 200, expected);
        if (round == 0)
            assert_int_equal(put(s->c, 0, 5, NULL, NULL), 0);
        expected[0] = 5;
    }
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

enum { WRITERS = 2, READERS = 2, EACH = 150, UPDATES = SANITIZED ? 1500 : 4000 };

static struct {
    struct quire_collection *c;
    atomic_uint committed[WRITERS * EACH]; /* versions of puts that have returned */
    atomic_bool stop;
    atomic_uint searches;
} crowd;

static void *update_on(void *context)
{
    uint32_t first = *(const uint32_t *)context;
    struct random random;
    struct quire_error err = {0};
    random_init(&random, first);
    for (uint32_t i = 2; i < UPDATES; i++) {
        uint32_t key = first + (uint32_t)random_below(&random, EACH);
        require(put(crowd.c, key, i, i % 3 ? NULL : "{\"x\":1}", &err) == 0, err.message, key, i);
        atomic_store(&crowd.committed[key], i);
        if (i % 50 == 0)
            require(version_of(crowd.c, key) == i, "read what was written", key, i);
    }
    return NULL;
}

/* Sees each element once, in a version no older than what was committed before the search, and never an older one than
 * it has seen before. */
static void *search_on(void *context)
{
    enum { ALL = WRITERS * EACH };
    uint32_t seen[ALL] = {0}, before[ALL], found[ALL];
    (void)context;
    while (!atomic_load(&crowd.stop)) {
        for (uint32_t i = 0; i < ALL; i++) {
            uint32_t committed = atomic_load(&crowd.committed[i]);
            before[i] = committed > seen[i] ? committed : seen[i];
        }
        require(all_versions(crowd.c, NULL, ALL, found), "a search", 0, 0);
        for (uint32_t i = 0; i < ALL; i++) {
            require(found[i] >= before[i], "an older version was found", i, found[i]);
            seen[i] = found[i];
        }
        atomic_fetch_add(&crowd.searches, 1);
    }
    return NULL;
}

static void *seal_on(void *context)
{
    struct quire_error err = {0};
    (void)context;
    for (unsigned i = 0; !atomic_load(&crowd.stop); i++) {
        require(quire_seal(crowd.c, &err) == 0, err.message, 0, i);
        if (i % 4 == 3)
            require(quire_compact(crowd.c, &err) == 0, err.message, 0, i);
        if (i % 4 == 1)
            require(quire_checkpoint(crowd.c, &err) == 0, err.message, 0, i);
    }
    return NULL;
}

static void every_search_sees_each_element_once(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    pthread_t writers[WRITERS], readers[READERS], sealer;
    uint32_t firsts[WRITERS], expected[WRITERS * EACH];
    options.memtable_bytes = 64u << 10;
    crowd.c = s->c = open_live(s->path, &options);
    atomic_store(&crowd.stop, false);
    atomic_store(&crowd.searches, 0);
    put_some(s->c, 0, WRITERS * EACH, 1);
    for (uint32_t i = 0; i < WRITERS * EACH; i++)
        atomic_store(&crowd.committed[i], 1);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, search_on, NULL), 0);
    assert_int_equal(pthread_create(&sealer, NULL, seal_on, NULL), 0);
    for (uint32_t i = 0; i < WRITERS; i++) {
        firsts[i] = i * EACH;
        assert_int_equal(pthread_create(&writers[i], NULL, update_on, &firsts[i]), 0);
    }
    for (uint32_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_join(writers[i], NULL), 0);
    atomic_store(&crowd.stop, true);
    assert_int_equal(pthread_join(sealer, NULL), 0);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    assert_true(atomic_load(&crowd.searches) >= 10);
    for (uint32_t i = 0; i < WRITERS * EACH; i++)
        expected[i] = atomic_load(&crowd.committed[i]);
    assert_versions(s->c, NULL, WRITERS * EACH, expected);
    close_live(s);
    s->c = open_live(s->path, NULL);
    assert_versions(s->c, NULL, WRITERS * EACH, expected);
}

static void *decorate(void *context)
{
    struct quire_error err = {0};
    (void)context;
    for (uint32_t i = 0; !atomic_load(&crowd.stop); i++) {
        char text[TEXT], json[TEXT];
        int n = snprintf(json, sizeof json, "{\"n\":%u}", i);
        require(quire_set_attributes(crowd.c, text, key_text(i % 4, text), json, (size_t)n, &err) == 0, err.message, i,
                0);
    }
    return NULL;
}

/* Setting attributes of a sealed element writes its vector again: not over one that was put meanwhile. */
static void attributes_do_not_bring_old_vectors_back(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    pthread_t threads[2], sealer;
    crowd.c = s->c = open_live(s->path, &options);
    atomic_store(&crowd.stop, false);
    put_some(s->c, 0, 4, 1);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, decorate, NULL), 0);
    assert_int_equal(pthread_create(&sealer, NULL, seal_on, NULL), 0);
    for (uint32_t i = 2; i < (SANITIZED ? 600 : 3000); i++) {
        require(put(s->c, i % 4, i, NULL, &err) == 0, err.message, i % 4, i);
        require(version_of(s->c, i % 4) == i, "what was written last", i % 4, i);
    }
    atomic_store(&crowd.stop, true);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(pthread_join(sealer, NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
}

/* ---- limits, the log --------------------------------------------------------------------------------------------- */

static void a_full_disk_refuses_writes_only(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    const struct timespec pause = {.tv_nsec = 1000000};
    uint32_t n = 0;
    int rc = 0;
    options.disk_bytes = 256u << 10;
    s->c = open_live(s->path, &options);
    for (; rc == 0 && n < 200000; n++) {
        rc = put(s->c, n, 1, NULL, &err);
        if (n % 500 == 0) /* what is taken is counted ten times a second */
            nanosleep(&pause, NULL);
    }
    assert_int_equal(rc, QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "quota is 0.2 MiB"));
    n--;
    assert_int_equal(version_of(s->c, n), 0);
    assert_int_equal(version_of(s->c, n - 1), 1);
    assert_int_equal(info_of(s->c).elements, n);
    remove_some(s->c, 0, 10);
    close_live(s);
    options.disk_bytes = 0;
    s->c = open_live(s->path, &options);
    assert_int_equal(info_of(s->c).elements, n - 10);
    assert_int_equal(put(s->c, n, 1, NULL, &err), 0);
}

/* One that never waits is slowed down by pauses instead of being refused. */
static void a_writer_in_a_hurry_is_not_refused(void **in)
{
    enum { MANY = SANITIZED ? 4000 : 20000 };
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    options.memtable_bytes = 256u << 10;
    s->c = open_live(s->path, &options);
    put_some(s->c, 0, MANY, 1);
    assert_int_equal(info_of(s->c).elements, MANY);
    assert_int_equal(version_of(s->c, MANY / 2), 1);
}

struct lines {
    atomic_uint n, warnings, seals;
};

static void on_line(void *context, bool warning, const char *line)
{
    struct lines *lines = context;
    atomic_fetch_add(&lines->n, 1);
    atomic_fetch_add(&lines->warnings, warning);
    atomic_fetch_add(&lines->seals, strstr(line, "seal") != NULL);
}

static void the_log_tells_what_was_done(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct lines lines = {0};
    options.log = on_line;
    options.context = &lines;
    s->c = open_live(s->path, &options);
    put_some(s->c, 0, 300, 1);
    move_to(s->c, SEALED);
    assert_true(atomic_load(&lines.seals) >= 1);
    unsigned before = atomic_load(&lines.n);
    assert_int_equal(quire_checkpoint(s->c, NULL), 0);
    assert_true(atomic_load(&lines.n) > before);
    assert_int_equal(atomic_load(&lines.warnings), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_snapshot_shows_what_was),
        TEST(memory_comes_back_when_a_snapshot_is_closed),
        TEST(a_snapshot_serves_its_own_collection_only),
        TEST(a_backup_opens_like_any_other),
        TEST(a_checkpoint_leaves_nothing_to_replay),
        TEST(every_search_sees_each_element_once),
        TEST(attributes_do_not_bring_old_vectors_back),
        TEST(a_full_disk_refuses_writes_only),
        TEST(a_writer_in_a_hurry_is_not_refused),
        TEST(the_log_tells_what_was_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
