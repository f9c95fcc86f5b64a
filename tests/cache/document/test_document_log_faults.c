/*
 * test_document_log_faults.c - the document log on a disk that fails, and under threads.
 *
 * The power goes at every n-th call of a run of puts, drops, compactions and syncs. What the host's journal knew at the
 * last sync is then opened again: a document that was put in before it and not dropped since reads back; of all others
 * a place gives that very document, or nothing that is whole. Full disks and failing calls: what was appended is
 * readable all the time, and is on the disk when the disk works again.
 */
#include "io/clock.h"
#include "io/random.h"
#include "tests/cache/support_document.h"
#include "tests/cache/support_document_log.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

/* ---- power cuts -------------------------------------------------------------------------------------------------- */

/* Puts, drops, rounds, syncs; until the first failure. The n-th of each seed is the same. */
static void run_for_a_while(struct doc_host *host, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    for (unsigned step = 0; step < 250; step++) {
        unsigned id = host->n_documents ? 1 + (unsigned)random_below(&random, host->n_documents) : 0;
        unsigned dice = (unsigned)random_below(&random, 100), life = (unsigned)random_below(&random, 3);
        if (dice < 50 && host_put(host, life ? host->now_ms + 3000000 * life : 0, NULL) < 0)
            return;
        if (dice >= 50 && dice < 85 && id && host->documents[id].at.segment) {
            host->documents[id].durable.segment = 0;
            host_drop(host, id);
        }
        if (dice >= 85 && dice < 94 && document_log_work(host->log, NULL) < 0)
            return;
        if (dice >= 94 && host_sync(host) < 0)
            return;
    }
}

/* What must be there, and what may be. */
static void check_after_cut(struct doc_host *host, const struct document_at *last)
{
    unsigned n = host->n_documents;
    for (unsigned id = 1; id <= n; id++)
        host->documents[id].at = host->documents[id].durable;
    assert_int_equal(host_open(host), 0);
    host_check(host);
    for (unsigned id = 1; id <= n; id++)
        if (last[id].segment && host->documents[id].durable.segment == 0) {
            int rc = host_read_at(host, id, &last[id]);
            assert_true(rc == 0 || rc == QUIRE_ENOTFOUND || rc == QUIRE_ECORRUPT || rc == QUIRE_ESHORTREAD);
        }
    assert_int_equal(document_log_work(host->log, NULL), 0);
    host_put_many(host, 40, 0);
    assert_int_equal(host_sync(host), 0);
    host_check(host);
    host_close(host);
    assert_int_equal(host_open(host), 0);
    host_check(host);
}

/* One run that ends at the n-th call; false: it came to its end before. */
static bool cut_at(uint64_t n, uint64_t seed)
{
    struct doc_host *host = host_new();
    static struct document_at last[HOST_DOCUMENTS_MAX];
    host->options.segment_bytes = 12000;
    host->notes_at_once = n % 2;
    host_open(host);
    assert_int_equal(host_sync(host), 0);
    fault_fail_nth(host->fs, FAULT_ANY, n, QUIRE_EIO, true);
    run_for_a_while(host, 5 + seed % 3);
    bool reached = fault_calls(host->fs, FAULT_ANY) >= n;
    for (unsigned id = 1; id <= host->n_documents; id++)
        last[id] = host->documents[id].at;
    fault_power_cut(host->fs, seed);
    assert_true(document_log_close(host->log, NULL) <= 0);
    host->log = NULL;
    check_after_cut(host, last);
    host_free(host);
    return reached;
}

static void test_power_cuts(void **state)
{
    const uint64_t kinds[] = {0, UINT64_MAX, 7, 12345};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t n = 1;
        while (cut_at(n, kinds[i] ? kinds[i] - (kinds[i] < UINT64_MAX) + n % 2 * (kinds[i] < UINT64_MAX) : 0))
            n += 1 + n / 40;
        assert_true(n > 60);
    }
}

/* ---- a disk that is full or fails -------------------------------------------------------------------------------- */

static void test_full_disk(void **state)
{
    struct doc_host *host = host_new();
    struct quire_error err = {0};
    (void)state;
    host_open(host);
    host_put_many(host, 50, 0);
    assert_int_equal(host_sync(host), 0);
    fault_capacity(host->fs, 40000);
    host_put_many(host, 100, 0);
    assert_int_equal(document_log_work(host->log, &err), QUIRE_ENOSPACE);
    assert_true(err.message[0] != 0);
    assert_int_equal(document_log_health(host->log, &err), QUIRE_ENOSPACE);
    assert_int_equal(host_put(host, 0, &err), QUIRE_ENOSPACE);
    assert_int_equal(err.code, QUIRE_ENOSPACE);
    assert_int_equal(document_log_sync(host->log, &err), QUIRE_ENOSPACE);
    assert_int_equal(host->warnings, 1); /* said once */
    assert_true(host_stats(host).failures >= 2);
    host_check(host);
    fault_capacity(host->fs, UINT64_MAX);
    assert_int_equal(document_log_work(host->log, &err), 0);
    assert_int_equal(document_log_health(host->log, &err), 0);
    assert_int_equal(host_stats(host).buffered_bytes, 0);
    host_put_many(host, 50, 0);
    host_close(host);
    assert_int_equal(host_open(host), 0);
    assert_int_equal(host_living(host), 200);
    host_check(host);
    host_free(host);
}

/* Removing dead segments makes the room that is missing. */
static void test_full_disk_recovers_by_removal(void **state)
{
    struct doc_host *host = host_new();
    (void)state;
    host->options.moved = NULL;
    host_open(host);
    host_put_many(host, 200, 0);
    assert_int_equal(host_sync(host), 0);
    fault_capacity(host->fs, 120000);
    host_put_many(host, 60, 0);
    assert_int_equal(document_log_work(host->log, NULL), QUIRE_ENOSPACE);
    for (unsigned id = 1; id <= 200; id++)
        host_drop(host, id);
    assert_int_equal(document_log_work(host->log, NULL), 0);
    assert_int_equal(document_log_health(host->log, NULL), 0);
    host_check(host);
    host_free(host);
}

/* Each kind of call fails once, at each place: nothing is lost, and the log works again by itself. */
static void test_single_failures(void **state)
{
    const unsigned kinds[] = {FAULT_OPEN, FAULT_WRITE, FAULT_SYNC, FAULT_SYNC_DIR, FAULT_UNLINK, FAULT_READ};
    (void)state;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool reached = true;
        for (uint64_t n = 1; reached && n < 40; n++) {
            struct doc_host *host = host_new();
            host->options.segment_bytes = 12000;
            host->options.hot_bytes = 1;
            host_open(host);
            fault_fail_nth(host->fs, kinds[i], n, QUIRE_EIO, false);
            for (unsigned seed = 5; seed < 8; seed++)
                run_for_a_while(host, seed);
            reached = fault_calls(host->fs, kinds[i]) >= n;
            fault_fail_nth(host->fs, FAULT_ANY, 0, 0, false);
            document_log_work(host->log, NULL);
            assert_int_equal(document_log_work(host->log, NULL), 0);
            assert_int_equal(document_log_health(host->log, NULL), 0);
            host_put_many(host, 5, 0);
            assert_int_equal(host_sync(host), 0);
            host_check(host);
            host_close(host);
            assert_int_equal(host_open(host), 0);
            host_check(host);
            host_free(host);
        }
        assert_false(reached && kinds[i] == FAULT_READ);
    }
}

/* Opening on a disk that fails says so and leaves nothing open. */
static void test_opening_fails(void **state)
{
    struct doc_host *host = host_new();
    struct document_log *log;
    struct quire_error err = {0};
    unsigned failures = 0;
    (void)state;
    host_open(host);
    host_put_many(host, 100, 0);
    host_close(host);
    for (uint64_t n = 1;; n++) {
        fault_fail_nth(host->fs, FAULT_ANY & ~(unsigned)FAULT_MKDIR, n, QUIRE_EIO, false);
        int rc = document_log_open(&host->options, &log, &err);
        if (rc == 0)
            break;
        assert_int_equal(rc, QUIRE_EIO);
        assert_non_null(strstr(err.message, "/docs"));
        failures++;
    }
    assert_true(failures > 4);
    fault_fail_nth(host->fs, FAULT_ANY, 0, 0, false);
    assert_int_equal(document_log_close(log, NULL), 0);
    host_free(host);
}

/* ---- the thread, on real files ----------------------------------------------------------------------------------- */

enum { WRITERS = 3, READERS = 2, SLOTS = 400 };

struct shared {
    struct document_log *log;
    pthread_mutex_t lock;
    struct document_at at[SLOTS]; /* guarded by lock; segment 0: none */
    uint64_t ids[SLOTS];
    uint64_t next_id;
    atomic_bool stop;
    atomic_uint reads, puts, moves;
};

/* (lock) The slot whose document lies there; SLOTS: none. */
static unsigned slot_at(const struct shared *shared, const struct document_at *at)
{
    unsigned i = 0;
    while (i < SLOTS && (shared->at[i].segment != at->segment || shared->at[i].unit != at->unit))
        i++;
    return i;
}

static bool shared_lives(void *context, uint64_t id, const struct document_at *at)
{
    struct shared *shared = context;
    (void)id;
    pthread_mutex_lock(&shared->lock);
    bool found = slot_at(shared, at) < SLOTS;
    pthread_mutex_unlock(&shared->lock);
    return found;
}

static bool shared_moved(void *context, uint64_t id, const struct document_at *from, const struct document_at *to)
{
    struct shared *shared = context;
    (void)id;
    pthread_mutex_lock(&shared->lock);
    unsigned slot = slot_at(shared, from);
    bool found = slot < SLOTS;
    if (found)
        shared->at[slot] = *to;
    pthread_mutex_unlock(&shared->lock);
    atomic_fetch_add(&shared->moves, found);
    return found;
}

/* Puts documents in, each in the place of another. */
static void *write_some(void *context)
{
    struct shared *shared = context;
    struct random random;
    random_init(&random, clock_ns());
    while (!atomic_load(&shared->stop)) {
        unsigned slot = (unsigned)random_below(&random, SLOTS);
        pthread_mutex_lock(&shared->lock);
        uint64_t id = ++shared->next_id;
        pthread_mutex_unlock(&shared->lock);
        uint32_t n;
        struct document_at at, old;
        uint8_t *bytes = support_document(id, 0, HOST_ROOM, &n);
        int rc = document_log_append(shared->log, bytes, n, 0, &at, NULL);
        free(bytes);
        if (rc == QUIRE_EBUSY) {
            usleep(1000);
            continue;
        }
        assert_int_equal(rc, 0);
        pthread_mutex_lock(&shared->lock);
        old = shared->at[slot];
        shared->at[slot] = at;
        shared->ids[slot] = id;
        pthread_mutex_unlock(&shared->lock);
        if (old.segment)
            document_log_drop(shared->log, &old);
        atomic_fetch_add(&shared->puts, 1);
    }
    return NULL;
}

static void read_slot(struct shared *shared, struct engine *engine, unsigned slot)
{
    struct document_read read;
    pthread_mutex_lock(&shared->lock);
    struct document_at at = shared->at[slot];
    uint64_t id = shared->ids[slot];
    pthread_mutex_unlock(&shared->lock);
    int rc = at.segment ? document_read_begin(shared->log, &at, &read, NULL) : QUIRE_ENOTFOUND;
    if (rc == 0)
        assert_int_equal(document_read_bytes(&read, engine_run(engine, &read.op), NULL), 0);
    if (rc >= 0) {
        assert_true(support_document_same(id, 0, HOST_ROOM, read.bytes, at.bytes));
        document_read_end(&read);
        atomic_fetch_add(&shared->reads, 1);
        return;
    }
    assert_int_equal(rc, QUIRE_ENOTFOUND);
    /* not found: then it was dropped or moved in between */
    pthread_mutex_lock(&shared->lock);
    bool same = at.segment && shared->at[slot].segment == at.segment && shared->at[slot].unit == at.unit;
    pthread_mutex_unlock(&shared->lock);
    assert_false(same);
}

static void *read_some(void *context)
{
    struct shared *shared = context;
    struct engine *engine;
    struct random random;
    random_init(&random, clock_ns());
    assert_int_equal(engine_create(&(struct engine_config){.threads = 2}, &engine, NULL), 0);
    while (!atomic_load(&shared->stop))
        read_slot(shared, engine, (unsigned)random_below(&random, SLOTS));
    engine_destroy(engine);
    return NULL;
}

static void check_slots(struct shared *shared)
{
    struct engine *engine;
    struct document_log_stats stats;
    unsigned n = 0;
    assert_int_equal(engine_create(&(struct engine_config){.threads = 2}, &engine, NULL), 0);
    unsigned before = atomic_load(&shared->reads);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        n += shared->at[slot].segment != 0;
        read_slot(shared, engine, slot);
    }
    assert_int_equal(atomic_load(&shared->reads) - before, n);
    engine_destroy(engine);
    document_log_get_stats(shared->log, &stats);
    for (unsigned i = 0; i < 1000 && stats.documents != n; i++) {
        usleep(5000); /* what is being moved counts twice for a moment */
        document_log_get_stats(shared->log, &stats);
    }
    assert_int_equal(stats.documents, n);
}

static void test_threads(void **state)
{
    static struct shared shared;
    pthread_t threads[WRITERS + READERS];
    struct document_log_stats stats;
    char *folder = support_folder_make(), *path = support_path(folder, "docs");
    struct document_log_options options = {.folder = path,
                                           .segment_bytes = 100000,
                                           .buffer_bytes = 300000,
                                           .hot_bytes = 50000,
                                           .moved = shared_moved,
                                           .lives = shared_lives,
                                           .host = &shared};
    (void)state;
    shared = (struct shared){.next_id = 0};
    pthread_mutex_init(&shared.lock, NULL);
    assert_int_equal(document_log_open(&options, &shared.log, NULL), 0);
    assert_int_equal(document_log_begin(shared.log, NULL), 0);
    for (unsigned i = 0; i < WRITERS + READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < WRITERS ? write_some : read_some, &shared), 0);
    for (unsigned i = 0; i < 20; i++) {
        usleep(SANITIZED ? 100000 : 50000);
        assert_int_equal(document_log_sync(shared.log, NULL), 0);
    }
    atomic_store(&shared.stop, true);
    for (unsigned i = 0; i < WRITERS + READERS; i++)
        pthread_join(threads[i], NULL);
    check_slots(&shared);
    document_log_get_stats(shared.log, &stats);
    assert_true(stats.removed_segments > 0 && stats.written_bytes > 0 && stats.hot_misses > 0 && stats.hot_hits > 0);
    assert_true(atomic_load(&shared.puts) > 100 && atomic_load(&shared.reads) > 100);
    assert_int_equal(document_log_close(shared.log, NULL), 0);
    assert_int_equal(document_log_open(&options, &shared.log, NULL), 0);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        assert_true(!shared.at[slot].segment || document_log_adopt(shared.log, &shared.at[slot]));
    assert_int_equal(document_log_begin(shared.log, NULL), 0);
    check_slots(&shared);
    assert_int_equal(document_log_close(shared.log, NULL), 0);
    pthread_mutex_destroy(&shared.lock);
    free(path);
    support_folder_remove(folder);
}

/* The thread by itself: writes soon, gets over a full disk, removes what is dead; and rests. */
static void test_thread_alone(void **state)
{
    struct doc_host *host = host_new();
    (void)state;
    host->options.no_thread = false;
    host_open(host);
    host_put_many(host, 50, host->now_ms + 10000);
    for (unsigned i = 0; i < 500 && host_stats(host).buffered_bytes; i++)
        usleep(10000);
    assert_int_equal(host_stats(host).buffered_bytes, 0);
    fault_capacity(host->fs, 0);
    host_put_many(host, 20, 0);
    for (unsigned i = 0; i < 500 && document_log_health(host->log, NULL) == 0; i++)
        usleep(10000);
    assert_int_equal(document_log_health(host->log, NULL), QUIRE_ENOSPACE);
    uint64_t failures = host_stats(host).failures;
    usleep(350000);
    failures = host_stats(host).failures - failures;
    assert_true(failures >= 1 && failures <= 5); /* every 100 ms */
    fault_capacity(host->fs, UINT64_MAX);
    for (unsigned i = 0; i < 500 && document_log_health(host->log, NULL) < 0; i++)
        usleep(10000);
    assert_int_equal(document_log_health(host->log, NULL), 0);
    assert_int_equal(host_stats(host).buffered_bytes, 0);
    host_check(host);
    host_close(host);
    host_free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_cuts),      cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_single_failures), cmocka_unit_test(test_full_disk_recovers_by_removal),
        cmocka_unit_test(test_opening_fails),   cmocka_unit_test(test_threads),
        cmocka_unit_test(test_thread_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
