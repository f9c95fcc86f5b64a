/*
 * test_store.c - data folders: opened and opened again, many collections, seals and merges against a model, drops,
 * snapshots, adoption, limits.
 */
#include "index/collection/lineage.h"
#include "index/store/store_priv.h"
#include "io/clock.h"
#include "io/random.h"
#include "io/sections.h"
#include "tests/index/support_folder.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static void opens_again_with_all_that_was_written(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    uint64_t uid = collection_uid(c);
    put_keys(s, c, 0, 500, 1);
    seal(store, c);
    put_keys(s, c, 250, 500, 2);
    remove_keys(s, c, 100, 400, 7);
    assert_int_equal(support_set_attributes(c, &s->model, 700, 77, NULL), 0);
    assert_true(support_equal(&s->lane, c, &s->model));
    for (unsigned round = 0; round < 3; round++) {
        struct store_report report;
        struct quire_error err = {0};
        collection_unref(c);
        support_store_close(store);
        assert_sound(s);
        if (store_open(s->path, &options, NULL, &store, &report, &err) < 0)
            fail_msg("%s", err.message);
        assert_int_equal(report.collections, 1);
        assert_int_equal(report.segments, 1);
        assert_int_equal(report.elements, support_model_count(&s->model));
        c = store_find(store, uid);
        assert_non_null(c);
        assert_true(support_equal(&s->lane, c, &s->model));
        if (round == 1)
            assert_int_equal(store_checkpoint(store, &err), 0);
    }
    collection_unref(c);
    support_store_close(store);
}

static void a_second_process_is_refused(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options), *second = NULL;
    struct quire_error err = {0};
    char id[32];
    snprintf(id, sizeof id, "process %d:", (int)getpid());
    assert_int_equal(store_open(s->path, &options, NULL, &second, NULL, &err), QUIRE_EBUSY);
    assert_non_null(strstr(err.message, id));
    assert_int_equal(store_verify(&(struct store_check_request){.path = s->path}, NULL, &err), QUIRE_EBUSY);
    /* also if somebody deletes what it locks */
    char *lock = support_path(s->path, "LOCK");
    assert_int_equal(unlink(lock), 0);
    free(lock);
    assert_int_equal(store_open(s->path, &options, NULL, &second, NULL, &err), QUIRE_EBUSY);
    assert_non_null(strstr(err.message, "LOCK file was deleted"));
    assert_int_equal(store_verify(&(struct store_check_request){.path = s->path}, NULL, &err), QUIRE_EBUSY);
    assert_non_null(strstr(err.message, "a snapshot"));
    support_store_close(store);
    support_store_close(support_store_open(s->path, &options));
}

static void numbers_are_never_given_out_again(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct quire_error err = {0};
    uint64_t last = 0, lsn;
    for (unsigned round = 0; round < 4; round++) {
        struct store *store = support_store_open(s->path, &options);
        struct collection *c = support_create(store);
        assert_true(collection_uid(c) > last);
        last = collection_uid(c);
        assert_int_equal(store_drop_collection(store, c, &lsn, &err), 0);
        assert_null(store_find(store, last));
        assert_int_equal(store_drop_collection(store, c, &lsn, &err), QUIRE_ECLOSED);
        collection_unref(c);
        if (round % 2) /* the log forgets the collection */
            assert_int_equal(store_checkpoint(store, &err), 0);
        support_store_close(store);
    }
}

/* ---- tiny collections -------------------------------------------------------------------------------------------- */

static void thousands_of_tiny_collections_cost_little(void **in)
{
    enum { SETS = 5000, EACH = 10 };
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct store_report report;
    struct store_stats stats;
    struct quire_error err = {0};
    struct support_model empty;
    support_model_init(&empty, EACH);
    for (unsigned i = 0; i < SETS; i++) {
        struct collection *c = support_create(store);
        memset(empty.elements, 0, sizeof *empty.elements * EACH);
        for (uint32_t key = 0; key < EACH; key++)
            assert_int_equal(support_put(&s->lane, c, &empty, key, i + 1, 0, NULL), 0);
        collection_unref(c);
    }
    assert_int_equal(store_settle(store, &err), 0);
    store_get_stats(store, &stats);
    assert_int_equal(stats.collections, SETS);
    assert_int_equal(stats.segments, 0);
    assert_true(stats.memtable_bytes / SETS <= 2048); /* ten elements of 32 bytes, with keys */
    assert_int_equal(store_checkpoint(store, &err), 0);
    support_store_close(store);
    assert_int_equal(store_open(s->path, &options, NULL, &store, &report, &err), 0);
    assert_int_equal(report.elements, SETS * EACH);
    assert_true(report.journal.checkpoint_bytes / SETS <= 2048);
    assert_true(report.duration_us < (SANITIZED ? 20000000 : 2000000));
    for (uint32_t key = 0; key < EACH; key++)
        empty.elements[key] = (struct support_element){1234, 0};
    struct collection *c = store_find(store, 1234);
    assert_non_null(c);
    assert_true(support_equal(&s->lane, c, &empty));
    collection_unref(c);
    support_store_close(store);
    support_model_free(&empty);
}

/* ---- seals and merges -------------------------------------------------------------------------------------------- */

/* Writes at random while the background works with small memtables; the model is right at every moment. */
static void seals_and_merges_lose_nothing(void **in)
{
    struct state *s = *in;
    struct store_options options = {.memtable_bytes = 128u << 10, .checkpoint_bytes = 1u << 20};
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    struct random random;
    struct store_stats stats;
    struct quire_error err = {0};
    random_init(&random, 5);
    for (uint32_t i = 1; i <= 12000; i++) {
        uint32_t key = (uint32_t)random_below(&random, KEYS);
        int rc = random_below(&random, 4) == 0 ? support_remove(&s->lane, c, &s->model, key, NULL)
                                               : support_put(&s->lane, c, &s->model, key, i, i % 5, NULL);
        assert_int_equal(rc, 0);
        if (i % 2000 == 0 && i % 4000 != 0) /* half of the time the background is left behind */
            assert_int_equal(store_settle(store, &err), 0);
        if (i % 4000 == 0)
            assert_true(support_equal(&s->lane, c, &s->model));
    }
    assert_int_equal(store_settle(store, &err), 0);
    store_get_stats(store, &stats);
    assert_true(stats.seals >= 3);
    assert_true(stats.merges >= 1);
    assert_true(stats.checkpoints >= 1);
    assert_int_equal(stats.failures, 0);
    assert_true(parts_of(c) <= MERGE_PARTS);
    assert_true(folders_of(s) == parts_of(c));
    assert_true(support_recall_at_10(&s->lane, c, &s->model, 50) >= 0.9);
    assert_int_equal(store_check(store, c, no_finding, NULL, &err), 0);
    assert_int_equal(store_compact(store, c, &err), 0);
    assert_int_equal(parts_of(c), 1);
    assert_true(support_equal(&s->lane, c, &s->model));
    collection_unref(c);
    support_store_close(store);
    assert_sound(s);
}

/* Seals come first, but where one is always due the log must not grow for ever. */
static void an_overdue_checkpoint_does_not_wait_for_seals(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct collection *sets[3];
    struct store_stats stats;
    struct quire_error err = {0};
    options.memtable_bytes = 32u << 10;
    options.checkpoint_bytes = 64u << 10;
    struct store *store = support_store_open(s->path, &options);
    for (unsigned i = 0; i < 3; i++) {
        sets[i] = support_create(store);
        put_keys(s, sets[i], 1000 * i, 1000, 1);
    }
    assert_int_equal(journal_sync(store_journal(store), &err), 0); /* the log has its length */
    assert_true(store_maintain(store, &err) > 0);
    store_get_stats(store, &stats);
    assert_int_equal(stats.checkpoints, 1);
    assert_true(store_maintain(store, &err) > 0);
    store_get_stats(store, &stats);
    assert_int_equal(stats.checkpoints, 1);
    assert_int_equal(stats.seals, 1);
    assert_int_equal(store_begin_maintenance(store, &err), 0);
    assert_int_equal(store_settle(store, &err), 0);
    store_get_stats(store, &stats);
    assert_true(stats.seals >= 3);
    for (unsigned i = 0; i < 3; i++)
        collection_unref(sets[i]);
    support_store_close(store);
}

static void a_part_that_is_all_dead_goes(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    struct quire_error err = {0};
    put_keys(s, c, 0, 300, 1);
    seal(store, c);
    assert_int_equal(parts_of(c), 1);
    remove_keys(s, c, 0, 300, 1);
    assert_int_equal(store_settle(store, &err), 0);
    assert_int_equal(parts_of(c), 0);
    assert_int_equal(folders_of(s), 0);
    assert_int_equal(collection_count(c), 0);
    put_keys(s, c, 5, 10, 2);
    remove_keys(s, c, 5, 10, 1);
    seal(store, c); /* rows, none of which lives */
    assert_int_equal(parts_of(c), 0);
    collection_unref(c);
    support_store_close(store);
    assert_sound(s);
}

static void segments_stay_few_and_grow_geometrically(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    struct store_stats stats;
    struct quire_error err = {0};
    for (uint32_t i = 0; i < 30; i++) {
        put_keys(s, c, 100 * i, 100, 1);
        seal(store, c);
        assert_int_equal(store_settle(store, &err), 0);
        assert_true(parts_of(c) <= MERGE_PARTS);
    }
    store_get_stats(store, &stats);
    assert_int_equal(stats.seals, 30);
    assert_true(stats.rows_merged <= 5 * 3000); /* each row five times at most, in the mean */
    assert_true(support_equal(&s->lane, c, &s->model));
    collection_unref(c);
    support_store_close(store);
}

/* More than maintenance looks at together: it takes some of them. */
static void several_hundred_segments_are_still_merged(void **in)
{
    struct state *s = *in;
    struct io_fs *fs = fault_fs_create();
    struct store_options options = support_store_options(fs);
    struct support_lane lane;
    struct quire_error err = {0};
    options.segments_max = 300;
    struct store *store = support_store_open("/data", &options);
    struct collection *c = support_create(store);
    support_lane_open(&lane, fs);
    for (uint32_t key = 0; key < 260; key++) {
        assert_int_equal(support_put(&lane, c, &s->model, key, 1, 0, NULL), 0);
        seal(store, c);
    }
    assert_int_equal(parts_of(c), 260);
    assert_int_equal(store_settle(store, &err), 0);
    assert_in_range(parts_of(c), 1, MERGE_PARTS);
    assert_true(support_equal(&lane, c, &s->model));
    support_lane_close(&lane);
    collection_unref(c);
    support_store_close(store);
    fault_fs_destroy(fs);
}

static void make_leftover(const struct state *s, const char *name)
{
    char *segments = support_path(s->path, SEGMENTS_NAME), *folder = support_path(segments, name),
         *file = support_path(folder, "work.vectors");
    assert_int_equal(mkdir(folder, 0777), 0);
    int fd = open(file, O_CREAT | O_WRONLY, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "left", 4), 4);
    close(fd);
    free(segments);
    free(folder);
    free(file);
}

/* What a seal or a merge leaves behind that a crash has ended: the new segment, and the vectors that it gathered. */
static void what_a_crash_leaves_is_removed(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    put_keys(s, c, 0, 10, 1);
    seal(store, c);
    collection_unref(c);
    support_store_close(store);
    make_leftover(s, "7");
    make_leftover(s, "8.building-123-0000abcd");
    make_leftover(s, "8.merging-123-0000abcd");
    assert_int_equal(folders_of(s), 4);
    support_store_close(support_store_open(s->path, &options));
    assert_int_equal(folders_of(s), 1);
    assert_sound(s);
}

static void dropping_removes_files(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    struct store_stats stats;
    struct quire_error err = {0};
    uint64_t lsn;
    put_keys(s, c, 0, 300, 1);
    seal(store, c);
    put_keys(s, c, 300, 50, 1);
    struct view *view = collection_view(c); /* a reader */
    assert_int_equal(store_drop_collection(store, c, &lsn, &err), 0);
    assert_int_equal(support_put(&s->lane, c, &s->model, 1, 2, 0, NULL), QUIRE_ECLOSED);
    assert_int_equal(store_seal(store, c, &err), QUIRE_ECLOSED);
    collection_unref(c);
    assert_int_equal(store_settle(store, &err), 0);
    assert_int_equal(folders_of(s), 1);
    view_unref(view);
    assert_int_equal(store_settle(store, &err), 0);
    assert_int_equal(folders_of(s), 0);
    store_get_stats(store, &stats);
    assert_int_equal(stats.collections, 0);
    assert_int_equal(stats.memtable_bytes + stats.resident_bytes + stats.segments, 0);
    support_store_close(store);
    assert_sound(s);
}

struct compaction {
    struct store *store;
    struct collection *collection;
    int code;
};

static void *compact(void *context)
{
    struct compaction *compaction = context;
    compaction->code = store_compact(compaction->store, compaction->collection, NULL);
    return NULL;
}

static void a_set_may_be_dropped_while_it_is_merged(void **in)
{
    struct state *s = *in;
    struct store_options options = {.memtable_bytes = 128u << 10};
    struct store *store = support_store_open(s->path, &options);
    struct quire_error err = {0};
    for (unsigned round = 0; round < 3; round++) {
        struct collection *c = support_create(store);
        memset(s->model.elements, 0, sizeof *s->model.elements * KEYS);
        put_keys(s, c, 0, KEYS / 2, 1);
        seal(store, c);
        put_keys(s, c, KEYS / 2, KEYS / 2, 1);
        struct compaction compaction = {.store = store, .collection = c};
        pthread_t thread;
        uint64_t lsn;
        assert_int_equal(pthread_create(&thread, NULL, compact, &compaction), 0);
        usleep(30000 * round);
        assert_int_equal(store_drop_collection(store, c, &lsn, &err), 0);
        pthread_join(thread, NULL);
        assert_true(compaction.code == 0 || compaction.code == QUIRE_ECLOSED || compaction.code == QUIRE_ECANCELLED);
        collection_unref(c);
        assert_int_equal(store_settle(store, &err), 0);
        assert_int_equal(folders_of(s), 0);
    }
    support_store_close(store);
    assert_sound(s);
}

/* Its leader merges then: what is built here would not be taken, so no more time goes into it. */
static void a_merge_ends_when_its_set_becomes_a_copy(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    struct compaction compaction = {.store = store, .collection = c};
    struct quire_error err = {0};
    struct store_stats stats;
    uint64_t lsn, whole_us = 0;
    pthread_t thread;
    assert_int_equal(lineage_begin(c, NULL, &lsn, &err), 0);
    for (unsigned is_copy = 0; is_copy < 2; is_copy++) {
        put_keys(s, c, 0, KEYS / 2, 1 + is_copy);
        seal(store, c);
        put_keys(s, c, KEYS / 2, KEYS / 2, 1 + is_copy);
        seal(store, c);
        uint64_t started = clock_us();
        assert_int_equal(pthread_create(&thread, NULL, compact, &compaction), 0);
        if (is_copy) {
            do {
                usleep(1000);
                store_get_stats(store, &stats);
            } while (!stats.merging && clock_us() < started + 60000000);
            started = clock_us();
            assert_int_equal(lineage_set_replica(c, true, &err), 0);
        }
        pthread_join(thread, NULL);
        assert_int_equal(compaction.code, is_copy ? QUIRE_ECANCELLED : 0);
        if (!is_copy)
            whole_us = clock_us() - started;
        else if (clock_us() - started > whole_us / 2)
            fail_msg("it went on for %llu us; all of it takes %llu", (unsigned long long)(clock_us() - started),
                     (unsigned long long)whole_us);
    }
    assert_int_equal(lineage_set_replica(c, false, &err), 0);
    assert_true(support_equal(&s->lane, c, &s->model));
    collection_unref(c);
    support_store_close(store);
    assert_sound(s);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

struct writer {
    struct collection *collection;
    struct support_model model; /* keys of its own half */
    atomic_bool stop;
    atomic_uint rounds;
};

static void *write_on(void *context)
{
    struct writer *w = context;
    struct support_lane lane;
    support_lane_open(&lane, NULL);
    for (uint32_t version = 2; !atomic_load(&w->stop); version++)
        for (uint32_t key = KEYS / 2; key < KEYS / 2 + 400; key++) {
            support_put(&lane, w->collection, &w->model, key, version, 0, NULL);
            atomic_fetch_add(&w->rounds, 1);
        }
    support_lane_close(&lane);
    return NULL;
}

/* The copy has what was written before it, and a part of what is written meanwhile; it is a folder like any other, and
 * of its own. */
static void check_copy(struct state *s, const char *path, uint64_t uid)
{
    struct store_options options = support_store_options(NULL);
    struct support_model other;
    struct quire_error err = {0};
    if (store_verify(&(struct store_check_request){.path = path, .finding = no_finding}, NULL, &err) < 0)
        fail_msg("verify: %s", err.message);
    struct store *copy = support_store_open(path, &options);
    struct collection *copied = store_find(copy, uid);
    assert_non_null(copied);
    assert_in_range(collection_count(copied), KEYS / 2, KEYS / 2 + 400);
    support_model_init(&other, KEYS);
    support_model_copy(&other, &s->model);
    for (uint32_t key = 0; key < 10; key++)
        assert_int_equal(support_remove(&s->lane, copied, &other, key, NULL), 0);
    support_model_free(&other);
    collection_unref(copied);
    support_store_close(copy);
}

static void a_snapshot_is_consistent_while_writes_go_on(void **in)
{
    struct state *s = *in;
    struct store_options options = {.memtable_bytes = 128u << 10, .checkpoint_bytes = 512u << 10};
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    struct writer writer = {.collection = c};
    struct quire_error err = {0};
    pthread_t thread;
    uint64_t lsn;
    put_keys(s, c, 0, KEYS / 2, 1);
    support_model_init(&writer.model, KEYS);
    assert_int_equal(pthread_create(&thread, NULL, write_on, &writer), 0);
    for (unsigned i = 0; i < 3; i++) {
        char name[16];
        unsigned rounds = atomic_load(&writer.rounds);
        snprintf(name, sizeof name, "copy-%u", i);
        while (atomic_load(&writer.rounds) < rounds + 2000)
            usleep(1000);
        char *to = support_path(s->folder, name);
        if (store_snapshot(store, to, &lsn, &err) < 0)
            fail_msg("snapshot: %s", err.message);
        assert_int_equal(store_snapshot(store, to, &lsn, &err), QUIRE_EEXISTS);
        check_copy(s, to, collection_uid(c));
        free(to);
    }
    atomic_store(&writer.stop, true);
    pthread_join(thread, NULL);
    for (uint32_t key = KEYS / 2; key < KEYS; key++)
        s->model.elements[key] = writer.model.elements[key];
    assert_true(support_equal(&s->lane, c, &s->model));
    support_model_free(&writer.model);
    collection_unref(c);
    support_store_close(store);
    assert_sound(s);
}

/* An index of keys 1000..1999 in version 9, of the other kind than the collection's. */
static void build_index(const char *path, uint32_t dim)
{
    enum { ROWS = 1000 };
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    options.index = support_kind == QUIRE_INDEX_SPANN ? QUIRE_INDEX_PAGEGRAPH : QUIRE_INDEX_SPANN;
    float *vectors = calloc((size_t)ROWS * dim, sizeof *vectors);
    static char texts[ROWS][16];
    const void *keys[ROWS];
    uint32_t bytes[ROWS];
    struct quire_error err = {0};
    assert_non_null(vectors);
    for (uint32_t i = 0; i < ROWS; i++) {
        float vector[SUPPORT_DIM];
        support_vector(1000 + i, 9, vector);
        memcpy(vectors + (size_t)i * dim, vector, sizeof *vector * (dim < SUPPORT_DIM ? dim : SUPPORT_DIM));
        bytes[i] = (uint32_t)snprintf(texts[i], sizeof texts[i], "key-%u", 1000 + i);
        keys[i] = texts[i];
    }
    options.keys = keys;
    options.key_bytes = bytes;
    if (quire_build(path, vectors, ROWS, dim, QUIRE_TYPE_F32, &options, &err) < 0)
        fail_msg("build: %s", err.message);
    free(vectors);
}

static void an_index_is_adopted_and_replaces_what_it_shares(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    uint64_t uid = collection_uid(c), lsn;
    struct quire_error err = {0};
    char *index = support_path(s->folder, "index"), *narrow = support_path(s->folder, "narrow");
    build_index(index, SUPPORT_DIM);
    build_index(narrow, SUPPORT_DIM - 1);
    put_keys(s, c, 500, 700, 1); /* shares 200 with it in a segment */
    seal(store, c);
    put_keys(s, c, 1150, 100, 2); /* and 100 in memory */
    assert_int_equal(store_adopt(store, c, narrow, &lsn, &err), QUIRE_EDIM);
    assert_non_null(strstr(err.message, "dimension 7"));
    assert_true(support_equal(&s->lane, c, &s->model));
    if (store_adopt(store, c, index, &lsn, &err) < 0)
        fail_msg("adopt: %s", err.message);
    for (uint32_t key = 1000; key < 2000; key++)
        s->model.elements[key] = (struct support_element){9, 0};
    assert_true(support_equal(&s->lane, c, &s->model));
    put_keys(s, c, 1500, 20, 10);
    remove_keys(s, c, 1000, 50, 3);
    collection_unref(c);
    support_store_close(store);
    assert_sound(s);
    store = support_store_open(s->path, &options);
    c = store_find(store, uid);
    assert_true(support_equal(&s->lane, c, &s->model));
    assert_int_equal(store_compact(store, c, &err), 0);
    assert_true(support_equal(&s->lane, c, &s->model));
    collection_unref(c);
    support_store_close(store);
    assert_int_equal(quire_verify(index, NULL, NULL, NULL, NULL, &err), 0); /* the one it came from is as it was */
    free(index);
    free(narrow);
}

/* ---- searches under way ------------------------------------------------------------------------------------------ */

/* What happens between the begin of a search and its reads. */
struct changes {
    struct state *s;
    struct support_lane writer;
    struct store *store;
    struct collection *c;
    const char *index;
};

static void put_with(struct changes *w, uint32_t first, uint32_t n, uint32_t version)
{
    for (uint32_t key = first; key < first + n; key++)
        assert_int_equal(support_put(&w->writer, w->c, &w->s->model, key, version, 0, NULL), 0);
}

/* Its memtables are sealed away, and so is what was written meanwhile. */
static void seal_twice(void *context)
{
    struct changes *w = context;
    seal(w->store, w->c);
    put_with(w, 80, 40, 2);
    seal(w->store, w->c);
    put_with(w, 90, 5, 3);
}

/* Elements of its segments and memtables are replaced before they go. */
static void replace_and_seal(void *context)
{
    struct changes *w = context;
    put_with(w, 80, 40, 4);
    seal(w->store, w->c);
    put_with(w, 100, 40, 5);
    seal(w->store, w->c);
}

static void compact_all(void *context)
{
    struct changes *w = context;
    struct quire_error err = {0};
    put_with(w, 0, 120, 6);
    assert_int_equal(store_compact(w->store, w->c, &err), 0);
    put_with(w, 10, 100, 7);
}

static void adopt(void *context)
{
    struct changes *w = context;
    struct quire_error err = {0};
    uint64_t lsn;
    put_with(w, 1000, 50, 8);
    if (store_adopt(w->store, w->c, w->index, &lsn, &err) < 0)
        fail_msg("adopt: %s", err.message);
    for (uint32_t key = 1000; key < 2000; key++)
        w->s->model.elements[key] = (struct support_element){9, 0};
}

/* Every other element: most searches lose hits. */
static void remove_half(void *context)
{
    struct changes *w = context;
    for (uint32_t key = 0; key < w->s->model.n; key += 2)
        if (w->s->model.elements[key].version)
            assert_int_equal(support_remove(&w->writer, w->c, &w->s->model, key, NULL), 0);
}

static void searches_under_way_see_each_element_once(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct changes w = {.s = s, .store = store, .c = support_create(store)};
    char *index = support_path(s->folder, "index");
    build_index(index, SUPPORT_DIM);
    w.index = index;
    support_lane_open(&w.writer, NULL);
    put_keys(s, w.c, 0, 100, 1);
    seal(store, w.c);
    put_keys(s, w.c, 100, 100, 1);
    assert_true(support_equal_after(&s->lane, w.c, &s->model, 0, seal_twice, &w));
    assert_true(support_equal_after(&s->lane, w.c, &s->model, 0, replace_and_seal, &w));
    assert_true(support_equal_after(&s->lane, w.c, &s->model, 0, compact_all, &w));
    assert_true(support_equal_after(&s->lane, w.c, &s->model, 0, adopt, &w));
    seal(store, w.c);
    assert_true(support_equal_after(&s->lane, w.c, &s->model, 40, remove_half, &w));
    assert_true(support_equal(&s->lane, w.c, &s->model));
    support_lane_close(&w.writer);
    collection_unref(w.c);
    support_store_close(store);
    free(index);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void memory_beyond_its_limit_refuses_puts_until_it_is_free(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct quire_error err = {0};
    options.memory_bytes = 128u << 10; /* of fewer rows than are sealed */
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    uint32_t key = 0;
    while (store_maintain(store, &err) >= 0 && store->as_host.admit(store, c, &err) == 0 && key < KEYS)
        put_keys(s, c, key++, 1, 1);
    assert_in_range(key, 300, KEYS - 300);
    assert_int_equal(store->as_host.admit(store, c, &err), QUIRE_ENOMEM);
    assert_non_null(strstr(err.message, "maxmemory"));
    assert_int_equal(support_put(&s->lane, c, &s->model, key, 1, 0, NULL), QUIRE_ENOMEM);
    remove_keys(s, c, 0, key, 1);
    assert_int_equal(store_settle(store, &err), 0);
    assert_int_equal(support_put(&s->lane, c, &s->model, key, 1, 0, NULL), 0);
    collection_unref(c);
    support_store_close(store);
}

static void a_folder_beyond_its_quota_takes_no_more(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct quire_error err = {0};
    options.disk_bytes = 8192 + 4096; /* the head of a log, and some of its frames */
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    put_keys(s, c, 0, 200, 1);
    assert_int_equal(journal_sync(store_journal(store), &err), 0);
    assert_true(store_maintain(store, &err) >= 0);
    assert_int_equal(store->as_host.admit(store, c, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "quota"));
    assert_int_equal(support_put(&s->lane, c, &s->model, 200, 1, 0, NULL), QUIRE_ELIMIT);
    assert_true(support_equal(&s->lane, c, &s->model));
    collection_unref(c);
    support_store_close(store);
}

/* A write that finds the newest memtable large says so before maintenance has counted it: once. */
static void a_large_memtable_holds_writers_up_until_it_is_counted(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store), *other = support_create(store);
    uint64_t large = 3 * store->options.memtable_bytes, lsn;
    for (unsigned i = 0; i < 3; i++) {
        store->as_host.note_memtable(store, c, 100000, large);
        assert_true(store_is_behind(store));
        store_count(store, c);
        store_apply_limits(store);
        assert_false(store_is_behind(store));
    }
    store->as_host.note_memtable(store, other, 100000, large);
    assert_int_equal(store_drop_collection(store, other, &lsn, NULL), 0);
    store_apply_limits(store);
    assert_false(store_is_behind(store));
    collection_unref(other);
    collection_unref(c);
    support_store_close(store);
}

/* Little beyond the soft limit, all of it at the hard one, more with each step between. */
static void writers_wait_longer_the_nearer_the_limit(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    uint64_t soft = 2 * store->options.memtable_bytes, step = (2 * store->options.memtable_bytes + (32ull << 20)) / 8;
    uint32_t before = 0;
    store->as_host.note_memtable(store, c, 100000, soft);
    assert_int_equal(store_delay_us(store), 0);
    for (unsigned i = 0; i <= 8; i++) {
        store->as_host.note_memtable(store, c, 100000, soft + i * step + 1);
        uint32_t us = store_delay_us(store);
        assert_true(us > before || (i == 8 && us == STORE_DELAY_MAX_US));
        assert_true(i > 1 || us <= STORE_DELAY_MAX_US / 32);
        before = us;
    }
    assert_int_equal(before, STORE_DELAY_MAX_US);
    collection_unref(c);
    support_store_close(store);
}

/* ---- priority ---------------------------------------------------------------------------------------------------- */

static int nice_of_this_thread(void)
{
    return getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
}

/* Returns what went wrong; NULL: nothing. */
static void *live_as_maintainer(void *context)
{
    struct maintainer m = {.store = context};
    int before = nice_of_this_thread();
    store_priority_begin(&m, true);
    int least = before + 10 < 19 ? before + 10 : 19, middle = before < 19 ? before + 1 : 19;
    if (!m.hurries) /* without the right it keeps what it cannot get back */
        return nice_of_this_thread() == middle ? NULL : "one that may not raise its priority lowers it";
    if (nice_of_this_thread() != least)
        return "it begins at the priority of lanes";
    store_priority_hurry(&m, true);
    if (nice_of_this_thread() != before)
        return "it does not hurry";
    store_priority_hurry(&m, false);
    return nice_of_this_thread() == least ? NULL : "it does not step back";
}

static void maintenance_hurries_and_steps_back(void **in)
{
    (void)in;
    pthread_t thread;
    void *wrong;
    assert_int_equal(pthread_create(&thread, NULL, live_as_maintainer, NULL), 0);
    pthread_join(thread, &wrong);
    if (wrong)
        fail_msg("%s", (const char *)wrong);
}

static void a_seal_is_awaited_from_half_a_memtable_on(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    options.memtable_bytes = 32u << 10;
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    uint64_t bytes = 0, limit = store->options.memtable_bytes;
    for (uint32_t key = 0; bytes <= limit / 2 * 3; key += 10) {
        struct memtable_stats stats;
        put_keys(s, c, key, 10, 1);
        struct view *view = collection_view(c);
        memtable_get_stats(view->memtables[0]->memtable, &stats);
        bytes = stats.bytes;
        assert_int_equal(store_is_awaited(store, view, true), bytes > limit / 2 * 3);
        assert_false(store_is_awaited(store, view, false));
        view_unref(view);
    }
    collection_unref(c);
    support_store_close(store);
}

static void segments_that_wait_for_merges_hold_writers_up(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct quire_error err = {0};
    options.segments_max = 2;
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(store_is_behind(store), i > 2);
        put_keys(s, c, 10 * i, 10, 1);
        seal(store, c);
        store_apply_limits(store);
    }
    assert_int_equal(support_put(&s->lane, c, &s->model, 99, 1, 0, NULL), QUIRE_ELIMIT);
    assert_int_equal(store_settle(store, &err), 0);
    assert_int_equal(support_put(&s->lane, c, &s->model, 99, 1, 0, NULL), 0);
    assert_false(store_is_behind(store));
    collection_unref(c);
    support_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opens_again_with_all_that_was_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_second_process_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(numbers_are_never_given_out_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(thousands_of_tiny_collections_cost_little, set_up, tear_down),
        cmocka_unit_test_setup_teardown(seals_and_merges_lose_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_overdue_checkpoint_does_not_wait_for_seals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_part_that_is_all_dead_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(segments_stay_few_and_grow_geometrically, set_up, tear_down),
        cmocka_unit_test_setup_teardown(several_hundred_segments_are_still_merged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_crash_leaves_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(dropping_removes_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_set_may_be_dropped_while_it_is_merged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_merge_ends_when_its_set_becomes_a_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_snapshot_is_consistent_while_writes_go_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_index_is_adopted_and_replaces_what_it_shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(searches_under_way_see_each_element_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_beyond_its_limit_refuses_puts_until_it_is_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_beyond_its_quota_takes_no_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_large_memtable_holds_writers_up_until_it_is_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writers_wait_longer_the_nearer_the_limit, set_up, tear_down),
        cmocka_unit_test(maintenance_hurries_and_steps_back),
        cmocka_unit_test_setup_teardown(a_seal_is_awaited_from_half_a_memtable_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(segments_that_wait_for_merges_hold_writers_up, set_up, tear_down),
    };
    int failed = cmocka_run_group_tests_name("stores", tests, NULL, NULL);
    support_kind = QUIRE_INDEX_SPANN;
    return failed + cmocka_run_group_tests_name("stores of inverted lists", tests, NULL, NULL);
}
