/*
 * test_journal_slow.c - the journal on a disk that takes long: what is appended is with the operating system all the
 * same, at every moment, and how much is promised before that is bounded.
 *
 * Syncs are held until the test lets them go. What a killed process would leave is what the files hold at that moment:
 * they are copied, and the copy is read.
 */
#include "io/clock.h"
#include "support_contents.h"
#include "support_journal.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

enum { PATIENCE = 20000 }; /* milliseconds that a test waits for what must come */

static const enum journal_sync lazy_modes[] = {JOURNAL_EVERYSEC, JOURNAL_NO};

static void host_create(struct host *host, enum journal_sync sync, uint64_t file_bytes)
{
    struct quire_error err = {0};
    *host = (struct host){.fs = fault_fs_create(), .folder = "/journal"};
    host->options = (struct journal_options){.sync = sync, .file_bytes = file_bytes};
    assert_non_null(host->fs);
    assert_int_equal(host->fs->ops->mkdir(host->fs, "/journal"), 0);
    assert_int_equal(host->fs->ops->sync_dir(host->fs, "/"), 0);
    assert_int_equal(host_open(host, &err), 0);
}

static void host_destroy(struct host *host)
{
    struct quire_error err = {0};
    fault_hold(host->fs, 0);
    assert_int_equal(host_close(host, &err), 0);
    fault_fs_destroy(host->fs);
}

/* Under a slow disk it must not wait for that. */
static void wait_until_written(struct host *host)
{
    struct journal_stats stats = {.unwritten_bytes = 1};
    for (unsigned i = 0; i < PATIENCE && stats.unwritten_bytes > 0; i++) {
        journal_get_stats(host->journal, &stats);
        usleep(stats.unwritten_bytes > 0 ? 1000 : 0);
    }
    assert_int_equal(stats.unwritten_bytes, 0);
}

static void append(struct host *host, unsigned n)
{
    struct quire_error err = {0};
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(host_append(host, i % 3 == 0, false, &err), 0);
    wait_until_written(host);
}

static void wait_until_held(struct host *host)
{
    for (unsigned i = 0; i < PATIENCE && fault_held(host->fs) == 0; i++)
        usleep(1000);
    assert_int_equal(fault_held(host->fs), 1);
}

static int copy_file(void *context, const char *path, const uint8_t *data, uint64_t bytes)
{
    struct io_fs *to = context;
    struct io_file *file;
    assert_int_equal(fs_open(to, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file, NULL), 0);
    assert_int_equal(fs_write_exact(file, data, bytes, 0, NULL), 0);
    fs_close(file);
    return 0;
}

/* All that was appended is in the files, and a journal goes on from there. */
static void assert_kill_loses_nothing(struct host *host)
{
    struct quire_error err = {0};
    struct host copy = *host;
    copy.fs = fault_fs_create();
    assert_int_equal(copy.fs->ops->mkdir(copy.fs, "/journal"), 0);
    assert_int_equal(fault_each_file(host->fs, copy_file, copy.fs), 0);
    copy.acknowledged = host->appended;
    if (host_open(&copy, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(copy.report.last_lsn, host->appended);
    assert_int_equal(host_append(&copy, false, true, &err), 0);
    assert_int_equal(host_close(&copy, &err), 0);
    fault_fs_destroy(copy.fs);
}

struct other {
    struct journal *journal;
    atomic_bool done;
    int rc;
    struct checkpoint *checkpoint;
    pthread_t thread;
};

static void *sync_it(void *context)
{
    struct other *other = context;
    other->rc = journal_sync(other->journal, NULL);
    atomic_store(&other->done, true);
    return NULL;
}

static void *begin_checkpoint(void *context)
{
    struct other *other = context;
    other->rc = journal_checkpoint_begin(other->journal, &other->checkpoint, NULL);
    atomic_store(&other->done, true);
    return NULL;
}

static void begin(struct other *other, struct host *host, void *(*body)(void *))
{
    *other = (struct other){.journal = host->journal};
    assert_int_equal(pthread_create(&other->thread, NULL, body, other), 0);
}

static void writes_go_on_while_a_sync_is_under_way(void **state)
{
    struct host host;
    struct other other;
    host_create(&host, *(const enum journal_sync *)*state, 1 << 20);
    fault_hold(host.fs, FAULT_SYNC);
    append(&host, 1);
    begin(&other, &host, sync_it);
    wait_until_held(&host);
    for (unsigned i = 0; i < 5; i++) {
        append(&host, 20);
        assert_kill_loses_nothing(&host);
    }
    assert_false(atomic_load(&other.done));
    fault_hold(host.fs, 0);
    pthread_join(other.thread, NULL);
    assert_int_equal(other.rc, 0);
    append(&host, 1);
    host_destroy(&host);
}

/* A sync makes durable what was written before it began, and no more. */
static void a_sync_vouches_for_what_was_before_it(void **state)
{
    struct host host;
    struct other other;
    struct quire_error err = {0};
    host_create(&host, *(const enum journal_sync *)*state, 1 << 20);
    fault_hold(host.fs, FAULT_SYNC);
    append(&host, 5);
    begin(&other, &host, sync_it);
    wait_until_held(&host);
    append(&host, 5);
    fault_hold(host.fs, 0);
    pthread_join(other.thread, NULL);
    append(&host, 5);
    fault_fail_nth(host.fs, FAULT_ANY, 1, QUIRE_EIO, true);
    host_close(&host, &err);
    fault_power_cut(host.fs, 0);
    host.acknowledged = 5;
    assert_int_equal(host_open(&host, &err), 0);
    assert_in_range(host.report.last_lsn, 5, 15);
    host_destroy(&host);
}

/* A log is begun and another ended, one slow call after the other: at none of them is anything only in memory. */
static void writes_go_on_while_a_log_is_begun(void **state)
{
    struct host host;
    struct other other;
    struct journal_stats before, after;
    unsigned calls = 0;
    host_create(&host, *(const enum journal_sync *)*state, 1 << 20);
    append(&host, 7);
    journal_get_stats(host.journal, &before);
    fault_hold(host.fs, FAULT_SYNC | FAULT_SYNC_DIR);
    begin(&other, &host, begin_checkpoint);
    for (bool more = true; more; calls += more) {
        for (unsigned i = 0; i < PATIENCE && fault_held(host.fs) == 0 && !atomic_load(&other.done); i++)
            usleep(1000);
        more = !atomic_load(&other.done);
        append(&host, 4);
        assert_kill_loses_nothing(&host);
        if (more)
            fault_let_go(host.fs, 1);
    }
    fault_hold(host.fs, 0);
    pthread_join(other.thread, NULL);
    assert_int_equal(other.rc, 0);
    assert_true(calls >= 4); /* the old log, the new one, the folder, the new one again, the old one's end */
    journal_get_stats(host.journal, &after);
    assert_int_equal(after.log_files, before.log_files + 1);
    journal_checkpoint_abort(other.checkpoint);
    assert_kill_loses_nothing(&host);
    host_destroy(&host);
}

/* Logs that fill while syncs take their time: they are written beyond their size, and all is there. */
static void full_logs_do_not_hold_writes_up(void **state)
{
    struct host host;
    host_create(&host, *(const enum journal_sync *)*state, 2000);
    fault_hold(host.fs, FAULT_SYNC | FAULT_SYNC_DIR);
    for (unsigned i = 0; i < 40; i++) {
        append(&host, 5);
        if (i % 3 == 0)
            assert_kill_loses_nothing(&host);
        if (i % 2)
            fault_let_go(host.fs, fault_held(host.fs));
    }
    host_destroy(&host);
}

/* The sync fails while frames are written behind it: none is lost. */
static void a_sync_that_fails_late_loses_nothing(void **state)
{
    struct host host;
    struct other other;
    struct quire_error err = {0};
    struct journal_stats stats;
    host_create(&host, *(const enum journal_sync *)*state, 1 << 20);
    fault_fail_nth(host.fs, FAULT_SYNC, 1, QUIRE_EIO, false);
    fault_hold(host.fs, FAULT_SYNC);
    append(&host, 3);
    begin(&other, &host, sync_it);
    wait_until_held(&host);
    append(&host, 10);
    fault_hold(host.fs, 0);
    pthread_join(other.thread, NULL);
    while (journal_sync(host.journal, &err) < 0)
        usleep(1000);
    journal_get_stats(host.journal, &stats);
    assert_int_equal(stats.failures, 1);
    fault_fail_nth(host.fs, FAULT_ANY, 1, QUIRE_EIO, true);
    host_close(&host, &err);
    fault_power_cut(host.fs, 0);
    host.acknowledged = host.appended;
    assert_int_equal(host_open(&host, &err), 0);
    host_destroy(&host);
}

static int append_record(struct host *host, uint32_t n, struct quire_error *err)
{
    static uint8_t bytes[1 << 16];
    uint64_t lsn;
    return journal_append(host->journal, &(struct journal_record){1, bytes, n}, 1, &lsn, err);
}

/* What nobody has synced takes memory: there is a limit to it. */
static void unsynced_frames_are_bounded(void **state)
{
    struct host host;
    struct other other;
    struct quire_error err = {0};
    unsigned n = 0;
    (void)state;
    host_create(&host, JOURNAL_EVERYSEC, 1 << 30);
    assert_int_equal(journal_close(host.journal, &err), 0);
    host.options.buffer_bytes = 100000;
    assert_int_equal(host_open(&host, &err), 0);
    fault_hold(host.fs, FAULT_SYNC);
    assert_int_equal(append_record(&host, 5000, &err), 0);
    begin(&other, &host, sync_it);
    wait_until_held(&host);
    while (append_record(&host, 5000, &err) == 0) {
        wait_until_written(&host);
        n++;
    }
    assert_int_equal(err.code, QUIRE_EBUSY);
    assert_non_null(strstr(err.message, "wait for a sync and the limit is 200000"));
    assert_int_equal(n, 200000 / 5056 - 1);
    fault_hold(host.fs, 0);
    pthread_join(other.thread, NULL);
    while (append_record(&host, 5000, &err) < 0)
        usleep(1000);
    assert_int_equal(journal_close(host.journal, &err), 0);
    fault_fs_destroy(host.fs);
}

/* A write that does not come back: after two seconds nothing more is promised, as long as it takes. */
static void promises_end_when_the_disk_takes_no_writes(void **state)
{
    struct host host;
    struct quire_error err = {0};
    struct journal_stats stats;
    struct timespec begun, now;
    host_create(&host, *(const enum journal_sync *)*state, 1 << 20);
    fault_hold(host.fs, FAULT_WRITE);
    assert_int_equal(host_append(&host, false, false, &err), 0);
    wait_until_held(&host);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    int rc = 0;
    while (rc == 0) {
        usleep(10000);
        rc = host_append(&host, false, false, &err);
        clock_gettime(CLOCK_MONOTONIC, &now);
        assert_true(rc < 0 || now.tv_sec - begun.tv_sec < PATIENCE / 1000);
    }
    assert_int_equal(rc, QUIRE_EBUSY);
    assert_non_null(strstr(err.message, "has not taken a write"));
    assert_true(now.tv_sec - begun.tv_sec >= 1);
    journal_get_stats(host.journal, &stats);
    assert_int_equal(stats.delayed, 1);
    assert_int_equal(stats.failures, 0);
    fault_hold(host.fs, 0);
    wait_until_written(&host);
    append(&host, 3);
    assert_kill_loses_nothing(&host);
    host_destroy(&host);
}

/* ---- a writer without a processor -------------------------------------------------------------------------------- */

struct stopped {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop, stopped; /* the writer is to wait; waits */
};

/* On the writer's thread, which holds nothing meanwhile. */
static void wait_for_leave(void *context)
{
    struct stopped *s = context;
    pthread_mutex_lock(&s->lock);
    s->stopped = s->stop;
    pthread_cond_broadcast(&s->changed);
    while (s->stop)
        pthread_cond_wait(&s->changed, &s->lock);
    s->stopped = false;
    pthread_mutex_unlock(&s->lock);
}

static void set_stopped(struct stopped *s, bool stop)
{
    pthread_mutex_lock(&s->lock);
    s->stop = stop;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* The writer is stopped as if it got no processor, with a frame that it has not written. */
static void stop_writer(struct host *host, struct stopped *s)
{
    struct quire_error err = {0};
    set_stopped(s, true);
    assert_int_equal(host_append(host, false, false, &err), 0);
    pthread_mutex_lock(&s->lock);
    while (!s->stopped)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    assert_int_equal(host_append(host, true, false, &err), 0);
}

static uint64_t unwritten(struct host *host)
{
    struct journal_stats stats;
    journal_get_stats(host->journal, &stats);
    return stats.unwritten_bytes;
}

static void late_frames_are_written_by_who_comes_by(void **state)
{
    struct host host;
    struct quire_error err = {0};
    struct journal_stats stats;
    struct stopped s = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    host_create(&host, *(const enum journal_sync *)*state, 1 << 20);
    journal_on_durable(host.journal, wait_for_leave, &s);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t began_us = clock_us();
        stop_writer(&host, &s);
        journal_help(host.journal, began_us + 2900); /* not late yet */
        assert_true(unwritten(&host) > 0);
        usleep(4000);
        journal_help(host.journal, clock_us());
        assert_int_equal(unwritten(&host), 0);
        assert_kill_loses_nothing(&host);
        /* a frame that comes now waits for its own time */
        assert_int_equal(host_append(&host, false, false, &err), 0);
        journal_help(host.journal, clock_us());
        set_stopped(&s, false);
        append(&host, 3);
        assert_kill_loses_nothing(&host);
    }
    journal_get_stats(host.journal, &stats);
    assert_in_range(stats.helped, 3, 100);
    host_destroy(&host);
}

/* Which the writer then gets over. */
static void a_helpers_write_that_fails(void **state)
{
    struct host host;
    struct quire_error err = {0};
    struct stopped s = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    host_create(&host, *(const enum journal_sync *)*state, 1 << 20);
    journal_on_durable(host.journal, wait_for_leave, &s);
    stop_writer(&host, &s);
    usleep(4000);
    fault_fail_nth(host.fs, FAULT_WRITE, 1, QUIRE_EIO, false);
    journal_help(host.journal, clock_us());
    journal_help(host.journal, clock_us()); /* nobody writes behind it */
    assert_true(unwritten(&host) > 0);
    set_stopped(&s, false);
    wait_until_written(&host);
    for (unsigned i = 0; i < PATIENCE && journal_health(host.journal, &err) < 0; i++)
        usleep(1000);
    append(&host, 3);
    assert_kill_loses_nothing(&host);
    host_destroy(&host);
}

#define ROW(test, mode)                                                                                                \
    {                                                                                                                  \
#test "/" #mode, test, NULL, NULL, (void *)(uintptr_t)&lazy_modes[mode]                                        \
    }
#define ROWS(test) ROW(test, 0), ROW(test, 1)

int main(void)
{
    const struct CMUnitTest tests[] = {ROWS(writes_go_on_while_a_sync_is_under_way),
                                       ROWS(a_sync_vouches_for_what_was_before_it),
                                       ROWS(writes_go_on_while_a_log_is_begun),
                                       ROWS(full_logs_do_not_hold_writes_up),
                                       ROW(a_sync_that_fails_late_loses_nothing, 0),
                                       cmocka_unit_test(unsynced_frames_are_bounded),
                                       ROWS(promises_end_when_the_disk_takes_no_writes),
                                       ROWS(late_frames_are_written_by_who_comes_by),
                                       ROWS(a_helpers_write_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
