/*
 * test_journal.c - the journal: what is appended comes back, from many threads, out of torn and damaged files.
 *
 * Damage is made by hand: a file is cut at every byte of its last frame, and a bit of each byte is flipped. What may
 * come of it is little: the frames before, or an error that names the file, the offset and the LSNs that are missing;
 * never a frame that was not appended.
 */
#include "io/bytes.h"
#include "support_contents.h"
#include "support_image.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

/* ---- appending --------------------------------------------------------------------------------------------------- */

static void test_append_and_replay(void **state)
{
    struct host *host = *state;
    host_must_open(host);
    assert_int_equal(host->report.last_lsn, 0);
    host_must_append(host, 20, true);
    assert_int_equal(journal_durable_lsn(host->journal), 20);
    host_must_close(host);
    host_must_open(host);
    assert_int_equal(host->report.frames, 20);
    assert_int_equal(host->report.records, host->replayed);
    assert_int_equal(host->report.log_files, 1);
    assert_int_equal(host->report.torn_bytes, 0);
    host_must_append(host, 20, false);
    host_must_close(host);
    host_must_open(host);
    assert_int_equal(host->report.frames, 40);
    assert_int_equal(host->report.log_files, 2);
    host_must_close(host);
}

struct entry {
    uint8_t kind;
    uint32_t n;
    uint64_t lsn;
};

struct entries {
    struct entry list[16];
    unsigned n;
};

static int note_record(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                       struct quire_error *err)
{
    struct entries *entries = context;
    (void)err;
    assert_true(entries->n < 16);
    assert_int_equal(support_differs(bytes, n, 0, kind), n);
    entries->list[entries->n++] = (struct entry){kind, n, lsn};
    return 0;
}

/* Records of all sizes, none at all, an empty batch: kinds, lengths and LSNs come back. */
static void test_shapes(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    static uint8_t bytes[3000000];
    struct entries found = {.n = 0};
    struct journal_reader reader = {.replay = note_record, .context = &found};
    struct journal *journal;
    uint64_t lsn = 0;
    assert_int_equal(journal_open(host->fs, "/journal", &host->options, &reader, &journal, NULL, &err), 0);
    const uint32_t sizes[] = {0, 1, 7, 8, 9, sizeof bytes};
    for (uint8_t i = 0; i < 6; i++) {
        support_fill(bytes, sizes[i], 0, i);
        assert_int_equal(journal_append(journal, &(struct journal_record){i, bytes, sizes[i]}, 1, &lsn, &err), 0);
        assert_int_equal(lsn, i + 1);
    }
    assert_int_equal(journal_append(journal, NULL, 0, &lsn, &err), 0);
    assert_int_equal(journal_batch_begin(journal, &err), 0);
    assert_int_equal(journal_batch_end(journal, &lsn, &err), 0);
    assert_int_equal(lsn, 8);
    struct journal_record too_large = {1, bytes, JOURNAL_RECORD_BYTES_MAX + 1};
    assert_int_equal(journal_append(journal, &too_large, 1, &lsn, &err), QUIRE_ELIMIT);
    assert_int_equal(journal_close(journal, &err), 0);
    assert_int_equal(journal_open(host->fs, "/journal", &host->options, &reader, &journal, &host->report, &err), 0);
    assert_int_equal(found.n, 6);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(found.list[i].kind, i);
        assert_int_equal(found.list[i].n, sizes[i]);
        assert_int_equal(found.list[i].lsn, i + 1);
    }
    assert_int_equal(host->report.frames, 8);
    assert_int_equal(host->report.last_lsn, 8);
    assert_int_equal(journal_close(journal, &err), 0);
    assert_int_equal(journal_close(NULL, &err), 0);
}

static int refuse_record(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                         struct quire_error *err)
{
    (void)context, (void)kind, (void)lsn, (void)bytes, (void)n, (void)err;
    return QUIRE_EDIM;
}

static void test_reader_can_refuse(void **state)
{
    struct host *host = *state;
    struct journal_reader reader = {.replay = refuse_record};
    struct journal *journal;
    host_must_open(host);
    host_must_append(host, 1, true);
    host_must_close(host);
    assert_int_equal(journal_open(host->fs, "/journal", &host->options, &reader, &journal, NULL, NULL), QUIRE_EDIM);
}

/* Nothing appended, opened over and over: no LSN is used up and no files pile up. */
static int count_visit(void *context, const char *name)
{
    (void)name;
    ++*(unsigned *)context;
    return 0;
}

static void test_opening_again(void **state)
{
    struct host *host = *state;
    host_must_open(host);
    host_must_append(host, 3, true);
    for (unsigned i = 0; i < 5; i++) {
        host_must_close(host);
        host_must_open(host);
        assert_int_equal(host->report.last_lsn, 3);
    }
    host_must_close(host);
    unsigned files = 0;
    assert_int_equal(host->fs->ops->list(host->fs, "/journal", count_visit, &files), 0);
    assert_int_equal(files, 2);
}

static void test_limits(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    static uint8_t bytes[6000];
    struct journal_record record = {1, bytes, sizeof bytes};
    struct journal_stats stats;
    uint64_t lsn = 0, batch_lsn = 0;
    host->options.buffer_bytes = 10000;
    host_must_open(host);
    /* an open batch holds up the frames of the other thread, here of none: the batch itself grows */
    assert_int_equal(journal_batch_begin(host->journal, &err), 0);
    assert_true(journal_in_batch(host->journal));
    assert_int_equal(journal_batch_begin(host->journal, &err), QUIRE_EBUSY);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(journal_append(host->journal, &record, 1, &batch_lsn, &err), 0);
    assert_int_equal(batch_lsn, 1);
    /* what would wait for the own batch is refused */
    struct checkpoint *checkpoint;
    assert_int_equal(journal_wait(host->journal, 1, &err), QUIRE_EBUSY);
    assert_int_equal(journal_sync(host->journal, &err), QUIRE_EBUSY);
    assert_int_equal(journal_checkpoint_begin(host->journal, &checkpoint, &err), QUIRE_EBUSY);
    assert_int_equal(journal_snapshot(host->journal, "/copy", &lsn, &err), QUIRE_EBUSY);
    assert_int_equal(journal_batch_end(host->journal, &lsn, &err), 0);
    assert_int_equal(lsn, 1);
    assert_false(journal_in_batch(host->journal));
    assert_int_equal(journal_batch_end(host->journal, &lsn, &err), QUIRE_EINVALID);
    assert_int_equal(journal_wait(host->journal, 1, &err), 0);
    assert_int_equal(journal_wait(host->journal, 2, &err), QUIRE_EINVALID);
    assert_int_equal(journal_set_sync(host->journal, (enum journal_sync)7), QUIRE_EINVALID);
    journal_get_stats(host->journal, &stats);
    assert_int_equal(stats.frames, 1);
    assert_int_equal(stats.unwritten_bytes, 0);
    assert_true(stats.log_bytes > 3 * sizeof bytes && stats.log_files == 1 && stats.syncs == 1);
    assert_int_equal(journal_close(host->journal, &err), 0);
}

struct other {
    struct journal *journal;
    atomic_int rc;
    uint64_t lsn;
    unsigned n;
};

static void *append_others(void *context)
{
    struct other *other = context;
    static uint8_t bytes[6000];
    int rc = 0;
    for (unsigned i = 0; i < other->n && rc == 0; i++)
        rc = journal_append(other->journal, &(struct journal_record){1, bytes, sizeof bytes}, 1, &other->lsn, NULL);
    atomic_store(&other->rc, rc);
    return NULL;
}

/* Frames behind an open batch are not written before it, and only so many of them are taken. */
static void test_batch_holds_up_others(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct other other = {.n = 100};
    struct journal_stats stats;
    pthread_t thread;
    uint64_t lsn = 0;
    host->options.buffer_bytes = 20000;
    host->options.sync = JOURNAL_NO;
    host_must_open(host);
    other.journal = host->journal;
    assert_int_equal(journal_batch_begin(host->journal, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, append_others, &other), 0);
    pthread_join(thread, NULL);
    assert_int_equal(other.rc, QUIRE_EBUSY);
    assert_int_equal(other.lsn, 4);
    journal_get_stats(host->journal, &stats);
    assert_int_equal(stats.frames, 0);
    assert_int_equal(journal_batch_end(host->journal, &lsn, &err), 0);
    assert_int_equal(lsn, 1);
    assert_int_equal(journal_sync(host->journal, &err), 0);
    journal_get_stats(host->journal, &stats);
    assert_int_equal(stats.frames, 4);
    assert_int_equal(stats.unwritten_bytes, 0);
    assert_int_equal(journal_close(host->journal, &err), 0);
}

/* ---- many threads ------------------------------------------------------------------------------------------------ */

enum { THREADS = 8, FRAMES_EACH = 60 };

struct crowd {
    struct journal *journal;
    atomic_uint next_thread, wrong, inside, quiet_wrong;
    atomic_uint_fast64_t noticed;
};

static void notice(void *context)
{
    struct crowd *crowd = context;
    atomic_store(&crowd->noticed, journal_durable_lsn(crowd->journal));
}

static void *append_much(void *context)
{
    struct crowd *crowd = context;
    uint8_t bytes[100];
    uint64_t lsn = 0, last = 0;
    uint8_t thread = (uint8_t)atomic_fetch_add(&crowd->next_thread, 1);
    for (unsigned i = 0; i < FRAMES_EACH; i++) {
        bool as_batch = i % 5 == 0;
        int rc = as_batch ? journal_batch_begin(crowd->journal, NULL) : 0;
        if (as_batch)
            atomic_fetch_add(&crowd->inside, 1);
        for (unsigned k = 0; rc == 0 && k < (as_batch ? 3 : 1); k++) {
            bytes_store_u64(bytes, i);
            support_fill(bytes + 8, sizeof bytes - 8, i, thread);
            rc = journal_append(crowd->journal, &(struct journal_record){thread, bytes, sizeof bytes}, 1, &lsn, NULL);
        }
        if (as_batch) {
            atomic_fetch_sub(&crowd->inside, 1);
            rc |= journal_batch_end(crowd->journal, &lsn, NULL);
        }
        rc |= journal_wait(crowd->journal, lsn, NULL);
        atomic_fetch_add(&crowd->wrong, rc != 0 || lsn <= last || journal_durable_lsn(crowd->journal) < lsn);
        last = lsn;
    }
    return NULL;
}

static void *quiesce_often(void *context)
{
    struct crowd *crowd = context;
    for (unsigned i = 0; i < 50; i++) {
        journal_quiesce_begin(crowd->journal);
        atomic_fetch_add(&crowd->quiet_wrong, atomic_load(&crowd->inside) != 0);
        journal_quiesce_end(crowd->journal);
    }
    return NULL;
}

struct order {
    uint64_t next[THREADS], lsn;
    unsigned records, wrong;
};

static int check_order(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                       struct quire_error *err)
{
    struct order *order = context;
    (void)err;
    uint64_t i = bytes_load_u64(bytes);
    order->wrong += kind >= THREADS || n != 100 || support_differs(bytes + 8, 92, i, kind) != 92;
    order->wrong += lsn != order->lsn && lsn != order->lsn + 1;
    if (kind < THREADS) {
        order->wrong += i != order->next[kind] && i + 1 != order->next[kind];
        order->next[kind] = i + 1;
    }
    order->lsn = lsn;
    order->records++;
    return 0;
}

/* On a real disk: each thread's frames in its order, batches whole, fewer syncs than frames. */
static void test_threads(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct crowd crowd = {.noticed = 0};
    struct order order = {.lsn = 0};
    struct journal_reader reader = {.replay = check_order, .context = &order};
    struct journal_options options = {.sync = JOURNAL_ALWAYS, .file_bytes = 20000};
    struct journal_stats stats;
    pthread_t threads[THREADS + 1];
    char *folder = support_folder_make();
    assert_int_equal(journal_open(fs_real(), folder, &options, &reader, &crowd.journal, &host->report, &err), 0);
    journal_on_durable(crowd.journal, notice, &crowd);
    for (unsigned i = 0; i <= THREADS; i++)
        assert_int_equal(pthread_create(threads + i, NULL, i < THREADS ? append_much : quiesce_often, &crowd), 0);
    for (unsigned i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(crowd.wrong, 0);
    assert_int_equal(crowd.quiet_wrong, 0);
    journal_get_stats(crowd.journal, &stats);
    assert_int_equal(stats.frames, THREADS * FRAMES_EACH);
    assert_true(stats.log_files > 3);
    assert_true(stats.syncs < stats.frames);
    assert_int_equal(journal_close(crowd.journal, &err), 0);
    assert_int_equal(crowd.noticed, THREADS * FRAMES_EACH);
    assert_int_equal(journal_open(fs_real(), folder, &options, &reader, &crowd.journal, &host->report, &err), 0);
    assert_int_equal(order.wrong, 0);
    assert_int_equal(order.records, THREADS * FRAMES_EACH / 5 * 7);
    assert_int_equal(host->report.frames, THREADS * FRAMES_EACH);
    assert_int_equal(journal_close(crowd.journal, &err), 0);
    support_folder_remove(folder);
}

/* ---- damaged files ----------------------------------------------------------------------------------------------- */

/* A killed run is cut at every byte of its last frame. */
static void test_torn_tails(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct losses losses;
    host_must_open(host);
    host_must_append(host, 5, true);
    host_kill(host);
    struct image image = image_take(host, "/journal/log-");
    image_erase_marks(&image);
    uint64_t start = image_frame_at(&image, 4), end = start + image_frame_bytes(image.bytes + start);
    assert_true(image.n > end);
    for (uint64_t cut = start; cut < end; cut++) {
        image_put(host, image.path, image.bytes, cut);
        assert_int_equal(host_read(host, false, &losses, &err), 0);
        assert_int_equal(host->report.last_lsn, 4);
        assert_true(host->report.torn_bytes <= cut - start);
        assert_true(host->report.torn_bytes > 0 || cut <= start);
        assert_int_equal(host->wrong, 0);
        assert_true(host_is_at(host, 4));
        /* the same with the reserved room behind it */
        uint8_t *zeroed = malloc(image.n);
        memcpy(zeroed, image.bytes, image.n);
        memset(zeroed + cut, 0, image.n - cut);
        bool whole = memcmp(zeroed, image.bytes, image.n) == 0;
        image_put(host, image.path, zeroed, image.n);
        free(zeroed);
        assert_int_equal(host_read(host, true, &losses, &err), 0);
        assert_int_equal(host->report.last_lsn, whole ? 5 : 4);
        assert_int_equal(losses.n, 0);
    }
    image_put(host, image.path, image.bytes, start + 20);
    host->acknowledged = 4;
    host_must_open(host);
    assert_in_range(host->report.torn_bytes, 1, 20); /* zeros at its end do not count */
    host_must_append(host, 3, true);
    host_must_close(host);
    host_must_open(host);
    assert_int_equal(host->report.last_lsn, 7);
    host_must_close(host);
    free(image.bytes);
}

/* A sector of writes that nobody synced is lost: whole frames behind it must never come back. */
static void test_hole_in_unsynced_frames(void **state)
{
    struct host *host = *state;
    host->options.sync = JOURNAL_NO;
    host_must_open(host);
    host_must_append(host, 6, false);
    host_kill(host);
    struct image image = image_take(host, "/journal/log-");
    uint64_t hole = image_frame_at(&image, 2), end = image_frame_at(&image, 6);
    image_erase_marks(&image);
    memset(image.bytes + hole, 0, 40);
    image_put(host, image.path, image.bytes, image.n);
    host_must_open(host);
    assert_int_equal(host->report.last_lsn, 2);
    assert_in_range(host->report.torn_bytes, end - hole - 8, end - hole);
    host_must_append(host, 2, true);
    host_must_close(host);
    for (unsigned i = 0; i < 3; i++) {
        host_must_open(host); /* host_open compares with what this run appended */
        assert_int_equal(host->report.last_lsn, 4);
        assert_int_equal(host->report.torn_bytes, 0);
        host_must_close(host);
    }
    free(image.bytes);
}

/* A bit of every byte of a log, closed or killed: the frames before it, or an error that names the place. */
static void flip_everywhere(struct host *host, const struct image *image, bool closed, bool followed)
{
    struct quire_error err = {0};
    struct losses losses;
    uint64_t end = image_frame_at(image, 5);
    for (uint64_t at = 0; at < end; at += at == FILE_HEADER + 8 ? MARKS_AT - at - 8
                                          : at == MARKS_AT - 1  ? HEAD - at
                                                                : 1) {
        unsigned frame = 0;
        while (at >= HEAD && frame < 4 && at >= image_frame_at(image, frame + 1))
            frame++;
        assert_int_equal(fault_flip_bit(host->fs, image->path, at * 8 + at % 8), 0);
        int rc = host_read(host, false, &losses, &err);
        assert_int_equal(host->wrong, 0);
        if (rc == 0) {
            /* the last write of a killed run cannot be told from a torn one */
            assert_true(!closed && !followed && frame == 4);
            assert_int_equal(host->report.last_lsn, 4);
        } else {
            char place[64], frames[64];
            uint64_t offset = at < HEAD ? 0 : image_frame_at(image, frame);
            snprintf(place, sizeof place, "offset %llu", (unsigned long long)offset);
            snprintf(frames, sizeof frames, "LSN %u to %u are missing", frame + 1, frame + 1);
            assert_true(rc == QUIRE_ECORRUPT || rc == QUIRE_EVERSION);
            assert_non_null(strstr(err.message, image->path));
            assert_true(rc == QUIRE_EVERSION || strstr(err.message, place));
            assert_true(at < HEAD || strstr(err.message, frames));
            assert_true(rc == QUIRE_EVERSION || strstr(err.message, "quire repair"));
            if (rc == QUIRE_ECORRUPT) {
                uint64_t lost = at < HEAD ? 0 : 1;
                assert_int_equal(host_read(host, true, &losses, &err), 0);
                assert_int_equal(host->wrong, 0);
                assert_int_equal(losses.n, 1);
                assert_non_null(strstr(losses.last, at < HEAD ? "header" : frames));
                assert_int_equal(host->report.frames, (followed ? 7 : 5) - lost);
            }
        }
        assert_int_equal(fault_flip_bit(host->fs, image->path, at * 8 + at % 8), 0);
    }
    assert_int_equal(host_read(host, false, &losses, &err), 0);
    assert_int_equal(host->report.frames, followed ? 7 : 5);
}

static void test_flipped_bits(void **state)
{
    struct host *host = *state;
    host_must_open(host);
    host_must_append(host, 5, true);
    host_kill(host);
    struct image image = image_take(host, "/journal/log-");
    image_erase_marks(&image);
    image_put(host, image.path, image.bytes, image.n);
    flip_everywhere(host, &image, false, false);
    /* the same log, followed by another */
    host_must_open(host);
    host_must_append(host, 2, true);
    host_must_close(host);
    flip_everywhere(host, &image, false, true);
    free(image.bytes);
}

static void test_flipped_bits_of_closed(void **state)
{
    struct host *host = *state;
    host_must_open(host);
    host_must_append(host, 5, true);
    host_must_close(host);
    struct image image = image_take(host, "/journal/log-");
    flip_everywhere(host, &image, true, false);
    free(image.bytes);
}

/* Files that are gone: named by their LSNs. */
static void test_missing_files(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct losses losses;
    struct journal *journal;
    for (unsigned i = 0; i < 3; i++) {
        host_must_open(host);
        host_must_append(host, 4, true);
        host_must_close(host);
    }
    assert_int_equal(host->fs->ops->unlink(host->fs, "/journal/log-00000000000000000005"), 0);
    assert_int_equal(journal_open(host->fs, "/journal", &host->options, NULL, &journal, NULL, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "LSN 5 to 8 are missing"));
    assert_int_equal(host_read(host, true, &losses, &err), 0);
    assert_int_equal(losses.n, 1);
    assert_int_equal(host->report.frames, 8);
    assert_int_equal(host->fs->ops->unlink(host->fs, "/journal/log-00000000000000000001"), 0);
    assert_int_equal(host_read(host, false, &losses, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "no log has the frames of LSN 1 to 8"));
    assert_int_equal(host_read(host, true, &losses, &err), 0);
    assert_int_equal(host->report.last_lsn, 12);
}

/* What cannot be read is as good as damaged: salvage gets the rest. */
static void test_unreadable(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct losses losses;
    host_must_open(host);
    host_must_append(host, 30, true);
    host_must_close(host);
    fault_fail_nth(host->fs, FAULT_READ, 1, QUIRE_EIO, false);
    assert_int_equal(host_read(host, false, &losses, &err), QUIRE_EIO);
    fault_short_read_nth(host->fs, 1);
    assert_int_equal(host_read(host, false, &losses, &err), QUIRE_ESHORTREAD);
    fault_short_read_nth(host->fs, 1);
    assert_int_equal(host_read(host, true, &losses, &err), 0);
    assert_int_equal(losses.n, 0);
    assert_int_equal(host->report.frames, 30);
}

/* ---- checkpoints and snapshots ----------------------------------------------------------------------------------- */

static void test_checkpoint(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct journal_stats stats;
    uint64_t lsn;
    host->options.file_bytes = 1000;
    host_must_open(host);
    host_must_append(host, 30, true);
    journal_get_stats(host->journal, &stats);
    assert_true(stats.log_files > 5);
    assert_int_equal(host_checkpoint(host, 4, &err), 0);
    journal_get_stats(host->journal, &stats);
    assert_int_equal(stats.checkpoint_lsn, 31);
    assert_int_equal(stats.checkpoints, 1);
    assert_true(stats.log_files <= 4 && stats.log_bytes < 4000 + 4 * HEAD);
    struct checkpoint *checkpoint, *another;
    assert_int_equal(journal_checkpoint_begin(host->journal, &checkpoint, &err), 0);
    assert_int_equal(journal_checkpoint_begin(host->journal, &another, &err), QUIRE_EBUSY);
    assert_int_equal(journal_snapshot(host->journal, "/copy", &lsn, &err), QUIRE_EBUSY);
    journal_checkpoint_abort(checkpoint);
    host_must_append(host, 3, true);
    host_must_close(host);
    host_must_open(host);
    assert_int_equal(host->report.checkpoint_lsn, 31);
    assert_int_equal(host->report.checkpoint_records, HOST_KEYS);
    assert_int_equal(host->report.frames, 7);
    /* one at the same LSN replaces the other */
    assert_int_equal(host_checkpoint(host, 0, &err), 0);
    assert_int_equal(host_checkpoint(host, 0, &err), 0);
    host_must_close(host);
    host_must_open(host);
    assert_int_equal(host->report.frames, 0);
    assert_int_equal(host->report.last_lsn, 37);
    host_must_close(host);
}

/* A checkpoint that knows frames shows that they were durable: where they are gone it is damage and no torn end, also
 * if nothing comes after them. Otherwise their LSNs would be given out again, and what has them would be left out when
 * it is replayed over records that seem to know it. */
static void test_frames_that_a_checkpoint_knows(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct checkpoint *checkpoint;
    struct journal *journal;
    struct losses losses;
    host_must_open(host);
    host_must_append(host, 3, true);
    assert_int_equal(journal_checkpoint_begin(host->journal, &checkpoint, &err), 0);
    host_must_append(host, 1, true);
    assert_int_equal(journal_checkpoint_put(checkpoint, 9, 4, "a", 1, &err), 0);
    assert_int_equal(journal_checkpoint_put(checkpoint, 9, 2, "b", 1, &err), 0);
    assert_int_equal(journal_checkpoint_finish(checkpoint, &err), 0);
    host_kill(host);
    const char *path = "/journal/log-00000000000000000004";
    assert_int_equal(fault_flip_bit(host->fs, path, 8 * (HEAD + 60)), 0);
    assert_int_equal(journal_open(host->fs, "/journal", &host->options, NULL, &journal, NULL, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "the frames of LSN 4 to 4, and they are missing"));
    assert_int_equal(host_read(host, true, &losses, &err), 0);
    assert_int_equal(losses.n, 1);
    assert_int_equal(host->report.last_lsn, 4);
}

/* A forged LSN beyond the last that there can be is damage; saving what can be saved does not count on from it. */
static void test_forged_lsn(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct checkpoint *checkpoint;
    struct losses losses;
    host_must_open(host);
    host_must_append(host, 3, true);
    assert_int_equal(journal_checkpoint_begin(host->journal, &checkpoint, &err), 0);
    assert_int_equal(journal_checkpoint_put(checkpoint, 9, UINT64_MAX, "a", 1, &err), 0);
    assert_int_equal(journal_checkpoint_finish(checkpoint, &err), 0);
    host_kill(host);
    assert_int_equal(host_read(host, false, &losses, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "/journal/checkpoint-00000000000000000004"));
    assert_int_equal(host_read(host, true, &losses, &err), 0);
    assert_true(losses.n > 0);
    assert_int_equal(host->report.last_lsn, 3);
}

/* Chunks of a checkpoint: damage is refused by name, salvage keeps the other records. */
static void test_damaged_checkpoint(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct checkpoint *checkpoint;
    struct entries found = {.n = 0};
    struct journal_reader reader = {.restore = note_record, .context = &found};
    struct losses losses = {0};
    static uint8_t bytes[900000];
    host_must_open(host);
    host_must_append(host, 3, true);
    assert_int_equal(journal_checkpoint_begin(host->journal, &checkpoint, &err), 0);
    for (uint8_t i = 0; i < 5; i++) {
        support_fill(bytes, sizeof bytes, 0, i);
        assert_int_equal(journal_checkpoint_put(checkpoint, i, 2, bytes, sizeof bytes, &err), 0);
    }
    assert_int_equal(journal_checkpoint_finish(checkpoint, &err), 0);
    assert_int_equal(journal_close(host->journal, &err), 0);
    assert_int_equal(journal_read(host->fs, "/journal", &reader, false, NULL, NULL, &host->report, &err), 0);
    assert_int_equal(found.n, 5);
    assert_int_equal(host->report.checkpoint_records, 5);
    assert_int_equal(found.list[4].lsn, 2);
    const char *path = "/journal/checkpoint-00000000000000000004";
    assert_int_equal(fault_flip_bit(host->fs, path, 8 * 2000000), 0);
    struct journal *journal;
    assert_int_equal(journal_open(host->fs, "/journal", &host->options, &reader, &journal, NULL, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, "the chunks 3 to 3 are missing"));
    found.n = 0;
    assert_int_equal(journal_read(host->fs, "/journal", &reader, true, host_note_loss, &losses, &host->report, &err),
                     0);
    assert_int_equal(found.n, 4);
    assert_int_equal(losses.n, 2); /* the chunks, and what they held */
    assert_non_null(strstr(losses.last, "its end speaks of 5 records, there are 4"));
    assert_int_equal(host->report.last_lsn, 3);
    /* one without its end was not finished */
    struct image image = image_take(host, path);
    assert_int_equal(fault_flip_bit(host->fs, path, 8 * 2000000), 0);
    image_put(host, path, image.bytes, image.n - FRAME_HEADER);
    assert_int_equal(journal_read(host->fs, "/journal", NULL, false, NULL, NULL, NULL, &err), QUIRE_ECORRUPT);
    free(image.bytes);
}

static void test_snapshot(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    uint64_t lsn = 0;
    host->options.file_bytes = 1000;
    host_must_open(host);
    host_must_append(host, 10, true);
    assert_int_equal(host_checkpoint(host, 2, &err), 0);
    host_must_append(host, 10, true);
    assert_int_equal(journal_snapshot(host->journal, "/copy", &lsn, &err), 0);
    assert_int_equal(lsn, 22);
    assert_int_equal(journal_snapshot(host->journal, "/copy", &lsn, &err), QUIRE_EEXISTS);
    assert_int_equal(host->fs->ops->sync_dir(host->fs, "/copy"), 0);
    struct host copy = *host;
    copy.folder = "/copy";
    copy.acknowledged = copy.appended = lsn;
    host_must_append(host, 10, true);
    assert_int_equal(host_checkpoint(host, 2, &err), 0);
    host_must_close(host);
    host_must_open(&copy);
    host_must_append(&copy, 5, true);
    host_must_close(&copy);
    host_must_open(&copy);
    assert_int_equal(copy.report.last_lsn, 27);
    host_must_close(&copy);
    host_must_open(host);
    assert_int_equal(host->report.last_lsn, 34);
    host_must_close(host);
}

/* ---- modes ------------------------------------------------------------------------------------------------------- */

static void test_modes(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct journal_stats stats;
    host->options.sync = JOURNAL_NO;
    host_must_open(host);
    host_must_append(host, 5, true);
    assert_int_equal(journal_durable_lsn(host->journal), 5);
    journal_get_stats(host->journal, &stats);
    assert_int_equal(stats.syncs, 0);
    assert_int_equal(journal_sync(host->journal, &err), 0);
    journal_get_stats(host->journal, &stats);
    assert_int_equal(stats.syncs, 1);
    assert_int_equal(journal_set_sync(host->journal, JOURNAL_EVERYSEC), 0);
    host_must_append(host, 5, true);
    do {
        journal_get_stats(host->journal, &stats);
        usleep(1000);
    } while (stats.syncs < 2);
    host->acknowledged = 10;
    assert_int_equal(journal_set_sync(host->journal, JOURNAL_ALWAYS), 0);
    host->options.sync = JOURNAL_ALWAYS;
    host_must_append(host, 5, true);
    fault_fail_nth(host->fs, FAULT_ANY, 1, QUIRE_EIO, true);
    host_close(host, &err);
    fault_power_cut(host->fs, 0);
    host_must_open(host);
    assert_int_equal(host->report.last_lsn, 15);
    host_must_close(host);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, support_set_up, support_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {ROW(test_append_and_replay),
                                       ROW(test_shapes),
                                       ROW(test_reader_can_refuse),
                                       ROW(test_opening_again),
                                       ROW(test_limits),
                                       ROW(test_batch_holds_up_others),
                                       ROW(test_threads),
                                       ROW(test_torn_tails),
                                       ROW(test_hole_in_unsynced_frames),
                                       ROW(test_flipped_bits),
                                       ROW(test_flipped_bits_of_closed),
                                       ROW(test_missing_files),
                                       ROW(test_unreadable),
                                       ROW(test_checkpoint),
                                       ROW(test_damaged_checkpoint),
                                       ROW(test_frames_that_a_checkpoint_knows),
                                       ROW(test_forged_lsn),
                                       ROW(test_snapshot),
                                       ROW(test_modes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
