/*
 * test_journal_crash.c - the journal on a disk that loses power, fails and is full.
 *
 * A scripted run appends, opens batches, ends logs, writes checkpoints and a snapshot. The power goes out at every call
 * in turn, under several seeds, also at every call of the opening after that; each time what was acknowledged must be
 * there, the state must be that of some LSN, and what was lost must stay lost. Then single calls fail while the run
 * goes on: it must get over each, and lose nothing.
 */
#include "io/random.h"
#include "support_contents.h"
#include "support_journal.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

static const uint64_t seeds[] = {0, UINT64_MAX, 1, 2, 3, 4};
enum { N_SEEDS = sizeof seeds / sizeof *seeds };

static const enum journal_sync modes[] = {JOURNAL_ALWAYS, JOURNAL_EVERYSEC, JOURNAL_NO};

static void host_create(struct host *host, enum journal_sync sync)
{
    *host = (struct host){.fs = fault_fs_create(), .folder = "/journal"};
    host->options = (struct journal_options){.sync = sync, .file_bytes = 1500};
    assert_non_null(host->fs);
    assert_int_equal(host->fs->ops->mkdir(host->fs, "/journal"), 0);
    assert_int_equal(host->fs->ops->mkdir(host->fs, "/snapshot"), 0);
    assert_int_equal(host->fs->ops->sync_dir(host->fs, "/"), 0);
}

static int snapshot(struct host *host, struct quire_error *err)
{
    uint64_t lsn = 0;
    int rc = journal_snapshot(host->journal, "/snapshot", &lsn, err);
    if (rc == 0)
        rc = host->fs->ops->sync_dir(host->fs, "/snapshot");
    if (rc == 0)
        host->snapshot_lsn = lsn;
    return rc;
}

static int append_some(struct host *host, unsigned n, bool wait, struct quire_error *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++)
        rc = host_append(host, i % 2, wait, err);
    return rc;
}

/* Ends at the first error; the journal is closed in any case. */
static int run_script(struct host *host, struct quire_error *err)
{
    struct quire_error ignored;
    int rc = host_open(host, err);
    if (rc < 0)
        return rc;
    rc = append_some(host, 5, true, err);
    if (rc == 0)
        rc = append_some(host, 4, false, err);
    if (rc == 0)
        rc = host_checkpoint(host, 3, err);
    if (rc == 0)
        rc = append_some(host, 6, true, err);
    if (rc == 0 && host->snapshot_lsn == 0)
        rc = snapshot(host, err);
    if (rc == 0)
        rc = append_some(host, 3, false, err);
    if (rc == 0)
        rc = host_checkpoint(host, 2, err);
    if (rc == 0)
        rc = append_some(host, 2, true, err);
    int closed = host_close(host, rc < 0 ? &ignored : err);
    return rc < 0 ? rc : closed;
}

static void assert_snapshot(struct host *host)
{
    struct journal_reader reader;
    struct journal_report report;
    struct quire_error err = {0};
    if (host->snapshot_lsn == 0)
        return;
    struct host copy = *host;
    host_clear(&copy);
    int rc = journal_read(host->fs, "/snapshot", host_reader(&copy, &reader), false, NULL, NULL, &report, &err);
    if (rc < 0)
        fail_msg("snapshot: %s", err.message);
    assert_int_equal(copy.wrong, 0);
    assert_int_equal(report.last_lsn, host->snapshot_lsn);
    assert_true(host_is_at(&copy, host->snapshot_lsn));
}

static void open_or_fail(struct host *host, const char *when, uint64_t n, uint64_t seed)
{
    struct quire_error err = {0};
    if (host_open(host, &err) < 0)
        fail_msg("%s, call %llu, seed %llu: %s", when, (unsigned long long)n, (unsigned long long)seed, err.message);
}

/* Everything must be there and go on from there. */
static void assert_goes_on(struct host *host, uint64_t n, uint64_t seed)
{
    struct quire_error err = {0};
    fault_power_cut(host->fs, seed);
    open_or_fail(host, "after the cut", n, seed);
    assert_snapshot(host);
    assert_int_equal(append_some(host, 3, true, &err), 0);
    assert_int_equal(host_close(host, &err), 0);
    open_or_fail(host, "the second time", n, seed);
    assert_int_equal(host_checkpoint(host, 1, &err), 0);
    assert_int_equal(host_close(host, &err), 0);
    fault_power_cut(host->fs, 0);
    open_or_fail(host, "after a checkpoint", n, seed);
    assert_int_equal(host->appended, host->report.last_lsn);
    assert_int_equal(host_close(host, &err), 0);
}

static uint64_t calls_of_script(enum journal_sync sync)
{
    struct host host;
    struct quire_error err = {0};
    host_create(&host, sync);
    fault_fail_nth(host.fs, 0, 0, 0, false);
    assert_int_equal(run_script(&host, &err), 0);
    uint64_t calls = fault_calls(host.fs, FAULT_ANY);
    assert_snapshot(&host);
    fault_fs_destroy(host.fs);
    return calls;
}

static void test_power_cut_at_every_call(void **state)
{
    enum journal_sync sync = *(const enum journal_sync *)*state;
    uint64_t calls = calls_of_script(sync);
    unsigned stopped = 0;
    for (uint64_t n = 1; n <= calls; n++)
        for (unsigned i = 0; i < N_SEEDS; i++) {
            struct host host;
            struct quire_error err = {0};
            host_create(&host, sync);
            fault_fail_nth(host.fs, FAULT_ANY, n, QUIRE_EIO, true);
            stopped += run_script(&host, &err) < 0;
            assert_goes_on(&host, n, seeds[i]);
            fault_fs_destroy(host.fs);
        }
    assert_true(stopped > calls); /* the faults did happen */
}

/* Runs that are cut one after the other, at calls and with seeds by chance: the opening itself is cut, too. */
static void test_many_cuts_in_a_row(void **state)
{
    enum journal_sync sync = *(const enum journal_sync *)*state;
    struct random random;
    uint64_t calls = calls_of_script(sync);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct host host;
        random_init(&random, seed);
        host_create(&host, sync);
        for (unsigned cut = 0; cut < 6; cut++) {
            struct quire_error err = {0};
            uint64_t limit = cut % 2 ? 30 : calls, n = 1 + random_below(&random, limit);
            fault_fail_nth(host.fs, FAULT_ANY, n, QUIRE_EIO, true);
            int rc = run_script(&host, &err);
            if (rc == QUIRE_ECORRUPT)
                fail_msg("seed %llu, cut %u: %s", (unsigned long long)seed, cut, err.message);
            fault_power_cut(host.fs, random_next(&random));
        }
        assert_goes_on(&host, 0, random_next(&random));
        fault_fs_destroy(host.fs);
    }
}

/* Until all is written, or the journal has failed. */
static void wait_until_written(struct journal *journal)
{
    struct journal_stats stats;
    do
        journal_get_stats(journal, &stats);
    while (stats.unwritten_bytes > 0 && journal_health(journal, NULL) == 0);
}

/* A killed process loses nothing that was written: the operating system has it. */
static void test_kill(void **state)
{
    enum journal_sync sync = *(const enum journal_sync *)*state;
    struct host host;
    struct quire_error err = {0};
    host_create(&host, sync);
    assert_int_equal(host_open(&host, &err), 0);
    assert_int_equal(append_some(&host, 12, false, &err), 0);
    wait_until_written(host.journal);
    fault_fail_nth(host.fs, FAULT_ANY, 1, QUIRE_EIO, true);
    uint64_t appended = host.appended;
    host_close(&host, &err);
    fault_power_cut(host.fs, UINT64_MAX);
    host.acknowledged = appended;
    assert_int_equal(host_open(&host, &err), 0);
    assert_int_equal(host_close(&host, &err), 0);
    fault_fs_destroy(host.fs);
}

/* A killed process leaves frames that only the operating system has. Opening builds on them, so it must make them
 * durable: the power goes out only after more was acknowledged behind them. */
static void test_kill_and_power_cut(void **state)
{
    struct host host;
    struct quire_error err = {0};
    (void)state;
    host_create(&host, JOURNAL_NO);
    assert_int_equal(host_open(&host, &err), 0);
    assert_int_equal(append_some(&host, 3, false, &err), 0);
    wait_until_written(host.journal);
    fault_fail_nth(host.fs, FAULT_ANY, 1, QUIRE_EIO, true);
    host_close(&host, &err);
    fault_fail_nth(host.fs, 0, 0, 0, false);
    host.options.sync = JOURNAL_ALWAYS;
    open_or_fail(&host, "after the kill", 0, 0);
    assert_int_equal(host.report.last_lsn, 3);
    assert_int_equal(append_some(&host, 3, true, &err), 0);
    fault_fail_nth(host.fs, FAULT_ANY, 1, QUIRE_EIO, true);
    host_close(&host, &err);
    assert_goes_on(&host, 0, 0);
    fault_fs_destroy(host.fs);
}

/* ---- failures that pass ------------------------------------------------------------------------------------------ */

static void wait_until_sound(struct journal *journal)
{
    for (unsigned i = 0; i < 10000 && journal_health(journal, NULL) < 0; i++)
        usleep(1000);
    assert_int_equal(journal_health(journal, NULL), 0);
}

/* Appends; what is refused is appended again once the journal is sound. */
static void append_stubbornly(struct host *host, unsigned n)
{
    struct quire_error err = {0};
    uint64_t target = host->appended + n;
    while (host->appended < target)
        if (host_append(host, host->appended % 2, false, &err) < 0) {
            assert_int_equal(err.code, QUIRE_EIO);
            wait_until_sound(host->journal);
        }
    while (journal_wait(host->journal, host->appended, &err) < 0)
        wait_until_sound(host->journal);
    if (host->options.sync == JOURNAL_ALWAYS)
        host->acknowledged = host->appended;
}

static void get_over(uint64_t n, unsigned calls, enum journal_sync sync)
{
    struct host host;
    struct quire_error err = {0};
    struct journal_stats stats;
    host_create(&host, sync);
    assert_int_equal(host_open(&host, &err), 0);
    fault_fail_nth(host.fs, calls, n, QUIRE_EIO, false);
    append_stubbornly(&host, 4);
    append_stubbornly(&host, 8);
    while (journal_sync(host.journal, &err) < 0)
        wait_until_sound(host.journal);
    host.acknowledged = host.appended;
    /* the call that fails may be one of the journal's second thread, which enters it a moment later */
    journal_get_stats(host.journal, &stats);
    for (unsigned i = 0; i < 10000 && stats.failures != (fault_calls(host.fs, calls) >= n); i++) {
        usleep(1000);
        journal_get_stats(host.journal, &stats);
    }
    assert_int_equal(stats.failures, fault_calls(host.fs, calls) >= n);
    uint64_t appended = host.appended;
    fault_fail_nth(host.fs, FAULT_ANY, 1, QUIRE_EIO, true);
    host_close(&host, &err);
    fault_power_cut(host.fs, n);
    open_or_fail(&host, "after a failure", n, n);
    assert_int_equal(host.appended, appended);
    assert_int_equal(host_close(&host, &err), 0);
    fault_fs_destroy(host.fs);
}

static void test_failing_writes_and_syncs(void **state)
{
    enum journal_sync sync = *(const enum journal_sync *)*state;
    for (uint64_t n = 1; n <= 9; n++) {
        get_over(n, FAULT_WRITE, sync);
        get_over(n, FAULT_SYNC, sync);
    }
    for (uint64_t n = 1; n <= 2; n++) {
        get_over(n, FAULT_RENAME, sync);
        get_over(n, FAULT_SYNC_DIR, sync);
        get_over(n, FAULT_ALLOCATE, sync);
        get_over(n, FAULT_TRUNCATE, sync);
        get_over(n, FAULT_OPEN, sync);
    }
}

static void test_full_disk(void **state)
{
    enum journal_sync sync = *(const enum journal_sync *)*state;
    struct host host;
    struct quire_error err = {0};
    int rc = 0;
    host_create(&host, sync);
    assert_int_equal(host_open(&host, &err), 0);
    fault_capacity(host.fs, 9000);
    while (rc == 0) {
        rc = host_append(&host, false, true, &err);
        wait_until_written(host.journal);
    }
    assert_int_equal(rc, QUIRE_ENOSPACE);
    assert_int_equal(journal_health(host.journal, &err), QUIRE_ENOSPACE);
    assert_non_null(strstr(err.message, "make room"));
    assert_non_null(strstr(err.message, "tries again"));
    assert_int_equal(host_append(&host, true, false, &err), QUIRE_ENOSPACE);
    /* what was appended has its room, unless it is larger than what is kept of these small files */
    int synced = journal_sync(host.journal, &err);
    assert_true(synced == 0 || synced == QUIRE_ENOSPACE);
    if (synced == 0)
        host.acknowledged = host.appended;
    fault_capacity(host.fs, UINT64_MAX);
    wait_until_sound(host.journal);
    assert_int_equal(append_some(&host, 5, true, &err), 0);
    assert_int_equal(host_checkpoint(&host, 2, &err), 0);
    assert_int_equal(host_close(&host, &err), 0);
    fault_power_cut(host.fs, 0);
    open_or_fail(&host, "after a full disk", 0, 0);
    assert_int_equal(host_close(&host, &err), 0);
    fault_fs_destroy(host.fs);
}

/* Closing tells what was not written. */
static void test_close_reports(void **state)
{
    enum journal_sync sync = *(const enum journal_sync *)*state;
    struct host host;
    struct quire_error err = {0};
    host_create(&host, sync);
    assert_int_equal(host_open(&host, &err), 0);
    assert_int_equal(append_some(&host, 3, true, &err), 0);
    assert_int_equal(journal_sync(host.journal, &err), 0);
    fault_fail_nth(host.fs, FAULT_ANY, 1, QUIRE_EIO, true);
    assert_int_equal(append_some(&host, 1, false, &err), 0);
    assert_int_equal(host_close(&host, &err), QUIRE_EIO);
    assert_non_null(strstr(err.message, "LSN 4 to 4"));
    fault_fs_destroy(host.fs);
}

/* A checkpoint that fails leaves the one before it and all logs. */
static void test_failed_checkpoint(void **state)
{
    struct host host;
    struct quire_error err = {0};
    (void)state;
    host_create(&host, JOURNAL_ALWAYS);
    assert_int_equal(host_open(&host, &err), 0);
    assert_int_equal(append_some(&host, 5, true, &err), 0);
    assert_int_equal(host_checkpoint(&host, 0, &err), 0);
    assert_int_equal(append_some(&host, 5, true, &err), 0);
    fault_fail_nth(host.fs, FAULT_RENAME, 2, QUIRE_EIO, false); /* the first is that of the new log */
    assert_int_equal(host_checkpoint(&host, 0, &err), QUIRE_EIO);
    assert_non_null(strstr(err.message, "checkpoint-00000000000000000011"));
    assert_int_equal(append_some(&host, 5, true, &err), 0);
    assert_int_equal(host_close(&host, &err), 0);
    open_or_fail(&host, "after a failed checkpoint", 0, 0);
    assert_int_equal(host.report.checkpoint_lsn, 6);
    assert_int_equal(host_checkpoint(&host, 0, &err), 0);
    assert_int_equal(host_close(&host, &err), 0);
    open_or_fail(&host, "after the next", 0, 0);
    assert_int_equal(host.report.checkpoint_lsn, 16);
    assert_int_equal(host_close(&host, &err), 0);
    fault_fs_destroy(host.fs);
}

#define ROW(test, mode)                                                                                                \
    {                                                                                                                  \
#test "/" #mode, test, NULL, NULL, (void *)(uintptr_t)&modes[mode]                                             \
    }
#define ROWS(test) ROW(test, JOURNAL_ALWAYS), ROW(test, JOURNAL_EVERYSEC), ROW(test, JOURNAL_NO)

int main(void)
{
    const struct CMUnitTest tests[] = {ROWS(test_power_cut_at_every_call),
                                       ROWS(test_many_cuts_in_a_row),
                                       ROWS(test_kill),
                                       cmocka_unit_test(test_kill_and_power_cut),
                                       ROW(test_failing_writes_and_syncs, JOURNAL_ALWAYS),
                                       ROW(test_failing_writes_and_syncs, JOURNAL_EVERYSEC),
                                       ROWS(test_full_disk),
                                       ROWS(test_close_reports),
                                       cmocka_unit_test(test_failed_checkpoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
