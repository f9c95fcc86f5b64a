/*
 * test_document_log.c - the document log on a disk that works: places, groups, reads, removal, compaction.
 *
 * A host (support_document_log.h) knows every document by its number and compares whole bytes. There is no thread: the
 * test makes the rounds, so what is waiting and what is written is known at each step. Failing disks, power cuts and
 * threads are test_document_log_faults.c.
 */
#include "io/bytes.h"
#include "io/random.h"
#include "tests/cache/support_document.h"
#include "tests/cache/support_document_log.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the headers above first */
#include <cmocka.h>
#include <xxhash.h>

enum { MINUTE = 60000 };

static int setup(void **state)
{
    *state = host_new();
    return 0;
}

static int teardown(void **state)
{
    host_free(*state);
    return 0;
}

static void work(struct doc_host *host)
{
    struct quire_error err = {0};
    if (document_log_work(host->log, &err) < 0)
        fail_msg("%s", err.message);
}

static uint32_t segment_of(const struct doc_host *host, unsigned id)
{
    return host->documents[id].at.segment;
}

/* ---- appending and reading --------------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    struct doc_host *host = *state;
    host_open(host);
    host_put_many(host, 200, 0);
    struct document_log_stats stats = host_stats(host);
    assert_int_equal(stats.documents, 200);
    assert_int_equal(stats.buffered_bytes, stats.appended_bytes);
    assert_int_equal(stats.written_bytes, 0);
    host_check(host); /* out of the buffer */
    assert_int_equal(host_stats(host).hot_misses, 0);
    work(host);
    stats = host_stats(host);
    assert_int_equal(stats.buffered_bytes, 0);
    assert_true(stats.written_bytes >= stats.appended_bytes);
    assert_int_equal(stats.bytes, stats.appended_bytes + 4096 * stats.segments);
    host_check(host);
    host_close(host);
    assert_int_equal(host_open(host), 0);
    assert_int_equal(host_stats(host).hot_bytes, 0);
    host_check(host); /* off the disk */
    assert_int_equal(host_stats(host).hot_misses, 200);
    host_check(host); /* hot */
    assert_int_equal(host_stats(host).hot_misses, 200);
    assert_int_equal(host_stats(host).hot_hits, 200);
    assert_int_equal(host->warnings, 0);
}

/* Small writes one after the other: the last page is written again each time. */
static void test_pages_written_again(void **state)
{
    struct doc_host *host = *state;
    host->options.hot_bytes = 1; /* none */
    host_open(host);
    for (unsigned i = 0; i < 150; i++) {
        host_put_many(host, 1 + i % 3, 0);
        work(host);
        assert_int_equal(host_stats(host).buffered_bytes, 0);
        assert_int_equal(host_read_at(host, host->n_documents, &host->documents[host->n_documents].at), 0);
    }
    host_check(host);
    assert_int_equal(host_stats(host).hot_hits, 0);
}

/* One that takes more than one write, and more than a segment. */
static void test_large(void **state)
{
    struct doc_host *host = *state;
    struct document_at at;
    struct document_read read;
    struct quire_error err = {0};
    uint32_t n;
    uint64_t id = 70;
    uint8_t *bytes = support_document(id, 0, 20u << 20, &n);
    while (n < 3u << 20 || n > 16u << 20) {
        free(bytes);
        bytes = support_document(++id, 0, 20u << 20, &n);
    }
    host_open(host);
    host_put_many(host, 3, 0);
    assert_int_equal(document_log_append(host->log, bytes, n, 0, &at, &err), 0);
    host_put_many(host, 3, 0);
    work(host);
    assert_int_equal(host_stats(host).buffered_bytes, 0);
    assert_int_equal(document_read_begin(host->log, &at, &read, &err), 0);
    int got = (int)host->fs->ops->read(read.op.file, read.op.buffer, read.op.bytes, read.op.offset);
    assert_int_equal(document_read_bytes(&read, got, &err), 0);
    assert_memory_equal(read.bytes, bytes, n);
    document_read_end(&read);
    host_check(host);
    assert_int_equal(document_log_append(host->log, bytes, (16u << 20) + DOCUMENT_UNIT, 0, &at, &err), QUIRE_ELIMIT);
    assert_int_equal(document_log_append(host->log, bytes, 100, 0, &at, &err), QUIRE_ELIMIT);
    assert_int_equal(document_log_append(host->log, bytes, 0, 0, &at, &err), QUIRE_ELIMIT);
    free(bytes);
}

static void test_reads_are_small(void **state)
{
    struct doc_host *host = *state;
    struct document_read read;
    host->options.hot_bytes = 1;
    host_open(host);
    host_put_many(host, 100, 0);
    work(host);
    for (unsigned id = 1; id <= 100; id++) {
        const struct document_at *at = &host->documents[id].at;
        assert_int_equal(document_read_begin(host->log, at, &read, NULL), 0);
        assert_int_equal(read.op.kind, IO_READ);
        assert_true(read.op.bytes == 4096 || read.op.bytes == 8192);
        assert_int_equal(read.op.offset % 4096, 0);
        assert_int_equal((uintptr_t)read.op.buffer % 4096, 0);
        assert_true(read.op.file->direct);
        document_read_end(&read);
    }
}

static void test_short_and_failed_reads(void **state)
{
    struct doc_host *host = *state;
    struct document_read read;
    struct quire_error err = {0};
    host->options.hot_bytes = 1;
    host_open(host);
    host_put_many(host, 20, 0);
    work(host);
    const struct document_at *at = &host->documents[20].at;
    assert_int_equal(document_read_begin(host->log, at, &read, &err), 0);
    assert_int_equal(document_read_bytes(&read, QUIRE_EIO, &err), QUIRE_EIO);
    assert_int_equal(document_read_bytes(&read, 16, &err), QUIRE_ESHORTREAD);
    assert_null(read.bytes);
    document_read_end(&read);
    document_read_end(&read); /* harmless */
    assert_int_equal(host_read_at(host, 20, at), 0);
    const struct document_at beyond = {at->segment, at->unit + 1, at->bytes}, early = {at->segment, 0, DOCUMENT_UNIT};
    assert_int_equal(host_read_at(host, 20, &beyond), QUIRE_ENOTFOUND);
    assert_int_equal(host_read_at(host, 20, &early), QUIRE_ENOTFOUND);
    assert_int_equal(host_read_at(host, 20, &(struct document_at){at->segment + 1, at->unit, at->bytes}),
                     QUIRE_ENOTFOUND);
}

/* ---- the buffer and the hot ones --------------------------------------------------------------------------------- */

static void test_buffer_is_bounded(void **state)
{
    struct doc_host *host = *state;
    struct quire_error err = {0};
    host->options.buffer_bytes = 10000;
    host_open(host);
    int rc = 0;
    while ((rc = host_put(host, 0, &err)) == 0)
        assert_true(host_stats(host).buffered_bytes <= 10000);
    assert_int_equal(rc, QUIRE_EBUSY);
    assert_true(host->n_documents > 5);
    work(host);
    assert_int_equal(host_put(host, 0, &err), 0);
    host_check(host);
}

static void test_hot_is_bounded(void **state)
{
    struct doc_host *host = *state;
    host->options.hot_bytes = 20000;
    host_open(host);
    host_put_many(host, 400, 0);
    work(host);
    for (unsigned id = 1; id <= 400; id++) {
        assert_int_equal(host_read_at(host, id, &host->documents[id].at), 0);
        assert_int_equal(host_read_at(host, 1, &host->documents[1].at), 0); /* always the one read last but one */
        assert_true(host_stats(host).hot_bytes <= 20000);
    }
    assert_int_equal(host_stats(host).hot_misses, 400);
    assert_int_equal(host_stats(host).hot_hits, 400);
    uint64_t before = host_stats(host).hot_bytes;
    host_drop(host, 1);
    assert_true(host_stats(host).hot_bytes < before);
}

/* A document that is dropped while its read is under way does not become hot. */
static void test_drop_under_a_read(void **state)
{
    struct doc_host *host = *state;
    struct document_read read;
    host_open(host);
    host_put_many(host, 10, 0);
    work(host);
    assert_int_equal(document_read_begin(host->log, &host->documents[5].at, &read, NULL), 0);
    host_drop(host, 5);
    int got = (int)host->fs->ops->read(read.op.file, read.op.buffer, read.op.bytes, read.op.offset);
    assert_int_equal(document_read_bytes(&read, got, NULL), 0);
    assert_true(support_document_same(5, 0, HOST_ROOM, read.bytes, read.at.bytes));
    document_read_end(&read);
    assert_int_equal(host_stats(host).hot_bytes, 0);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static void test_groups(void **state)
{
    struct doc_host *host = *state;
    uint64_t now = host->now_ms;
    host_open(host);
    host_put_many(host, 1, now + 30000);        /* 1: below a minute */
    host_put_many(host, 1, now + 50000);        /* 2 */
    host_put_many(host, 1, now + 90000);        /* 3: below two */
    host_put_many(host, 1, now + 100 * MINUTE); /* 4 */
    host_put_many(host, 1, 0);                  /* 5: never */
    host_put_many(host, 1, UINT64_MAX);         /* 6 */
    host_put_many(host, 1, now + 119 * MINUTE); /* 7: as 4 */
    host_put_many(host, 1, 5);                  /* 8: over already */
    assert_int_equal(segment_of(host, 1), segment_of(host, 2));
    assert_int_equal(segment_of(host, 1), segment_of(host, 8));
    assert_int_equal(segment_of(host, 4), segment_of(host, 7));
    assert_int_equal(segment_of(host, 5), segment_of(host, 6));
    assert_int_equal(host_stats(host).segments, 4);
    /* a quarter of two minutes later the second group's segment has ended, that of two hours has not */
    host->now_ms = now + 31000;
    host_put_many(host, 1, now + 31000 + 90000);        /* 9 */
    host_put_many(host, 1, now + 31000 + 100 * MINUTE); /* 10 */
    host_put_many(host, 1, 0);                          /* 11 */
    assert_int_not_equal(segment_of(host, 9), segment_of(host, 3));
    assert_int_equal(segment_of(host, 10), segment_of(host, 4));
    assert_int_equal(segment_of(host, 11), segment_of(host, 5));
}

/* More classes than open segments: documents share, and segments do not become many. */
static void test_more_classes_than_groups(void **state)
{
    struct doc_host *host = *state;
    host->options.groups = 3;
    host->options.segment_bytes = 1 << 20;
    host_open(host);
    for (unsigned i = 0; i < 200; i++)
        host_put_many(host, 1, i % 12 ? host->now_ms + (50000ull << (i % 12)) : 0);
    assert_int_equal(host_stats(host).segments, 3);
    /* idle ones make room */
    host->now_ms += 2 * MINUTE;
    unsigned first = host->n_documents + 1;
    host_put_many(host, 1, host->now_ms + (50000ull << 20));
    assert_int_equal(host_stats(host).segments, 4);
    work(host);
    for (unsigned id = 1; id < first; id++)
        host_drop(host, id);
    host->now_ms += 2 * MINUTE;
    host_put_many(host, 2, host->now_ms + (50000ull << 15));
    work(host);
    host_check(host);
}

static void test_segments_end(void **state)
{
    struct doc_host *host = *state;
    host_open(host);
    host_put_many(host, 500, 0);
    work(host);
    struct document_log_stats stats = host_stats(host);
    assert_true(stats.segments >= stats.appended_bytes / 32768);
    assert_true(stats.segments <= stats.appended_bytes / 26000 + 1);
}

/* ---- removing ---------------------------------------------------------------------------------------------------- */

static int count_file(void *context, const char *path, const uint8_t *data, uint64_t bytes)
{
    (void)data;
    assert_true(bytes % 4096 == 0);
    assert_non_null(strstr(path, ".docs"));
    ++*(unsigned *)context;
    return 0;
}

static unsigned count_files(struct doc_host *host)
{
    unsigned n = 0;
    assert_int_equal(fault_each_file(host->fs, count_file, &n), 0);
    return n;
}

static void test_removal(void **state)
{
    struct doc_host *host = *state;
    struct document_read read;
    host->options.moved = NULL;
    host_open(host);
    host_put_many(host, 300, host->now_ms + 3 * MINUTE);
    work(host);
    unsigned segments = (unsigned)host_stats(host).segments;
    assert_true(segments > 3);
    assert_int_equal(count_files(host), segments);
    uint32_t first = segment_of(host, 1);
    assert_int_equal(document_read_begin(host->log, &host->documents[1].at, &read, NULL), 0);
    for (unsigned id = 1; id <= 300 && segment_of(host, id) == first; id++)
        host_drop(host, id);
    work(host);
    assert_int_equal(host_stats(host).segments, segments - 1);
    assert_int_equal(host_stats(host).removed_segments, 1);
    assert_int_equal(count_files(host), segments - 1);
    /* a read under way keeps what it reads */
    int got = (int)host->fs->ops->read(read.op.file, read.op.buffer, read.op.bytes, read.op.offset);
    assert_int_equal(document_read_bytes(&read, got, NULL), 0);
    assert_true(support_document_same(1, host->documents[1].expire_ms, HOST_ROOM, read.bytes, read.at.bytes));
    assert_int_equal(host_stats(host).hot_bytes, 0);
    assert_int_equal(host_read_at(host, 1, &read.at), QUIRE_ENOTFOUND);
    document_read_end(&read);
    host_check(host);
    /* the last one is open, until its time is over */
    for (unsigned id = 1; id <= 300; id++)
        if (host->documents[id].at.segment)
            host_drop(host, id);
    work(host);
    assert_int_equal(count_files(host), 1);
    host->now_ms += 2 * MINUTE;
    work(host);
    assert_int_equal(count_files(host), 0);
    assert_int_equal(host_stats(host).bytes, 0);
}

/* What nobody adopts goes when the host has told all; what is dropped before it was written is not written. */
static void test_removal_at_opening(void **state)
{
    struct doc_host *host = *state;
    host_open(host);
    host_put_many(host, 300, 0);
    host_close(host);
    unsigned files = count_files(host);
    uint32_t kept = segment_of(host, 150);
    for (unsigned id = 1; id <= 300; id++)
        if (segment_of(host, id) != kept)
            host->documents[id].at.segment = 0;
    uint32_t highest = 0;
    for (unsigned id = 1; id <= 300; id++)
        highest = segment_of(host, id) > highest ? segment_of(host, id) : highest;
    assert_int_equal(host_open(host), 0);
    assert_int_equal(count_files(host), files);
    work(host);
    assert_int_equal(count_files(host), 1);
    host_check(host);
    host_put_many(host, 1, 0);
    assert_true(segment_of(host, 301) > highest);
    uint64_t written = host_stats(host).written_bytes;
    host_put_many(host, 100, host->now_ms + MINUTE / 2);
    for (unsigned id = 302; id <= 401; id++)
        host_drop(host, id);
    host->now_ms += MINUTE;
    work(host);
    assert_true(host_stats(host).written_bytes - written <= 8192);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void put_file(struct doc_host *host, const char *path, const uint8_t *bytes, size_t n)
{
    struct io_file *file;
    assert_int_equal(fs_open(host->fs, path, FS_WRITE | FS_CREATE, &file, NULL), 0);
    assert_int_equal(fs_write_exact(file, bytes, n, 0, NULL), 0);
    fs_close(file);
}

static void test_foreign_files(void **state)
{
    struct doc_host *host = *state;
    uint8_t page[4096] = {0};
    struct quire_error err = {0};
    struct document_log *log;
    host_open(host);
    host_close(host);
    put_file(host, "/docs/notes.docs", page, sizeof page);    /* another name: no concern */
    put_file(host, "/docs/0000000000000003.docs", page, 100); /* never finished */
    put_file(host, "/docs/0000000000000004.docs", page, sizeof page);
    host_open(host);
    work(host);
    assert_int_equal(host_stats(host).segments, 0);
    assert_int_equal(count_files(host), 1);
    host_close(host);
    memcpy(page, "SOMEBODY", 8);
    put_file(host, "/docs/0000000000000005.docs", page, sizeof page);
    host_open(host); /* it is left alone */
    work(host);
    assert_int_equal(host->warnings, 1);
    assert_int_equal(host_stats(host).segments, 0);
    assert_int_equal(count_files(host), 2);
    host_close(host);
    memcpy(page, "QUIREDOC\2", 9);
    bytes_store_u64(page + 32, XXH3_64bits(page, 32)); /* its own checksum */
    put_file(host, "/docs/0000000000000005.docs", page, sizeof page);
    assert_int_equal(document_log_open(&host->options, &log, &err), QUIRE_EVERSION);
    assert_non_null(strstr(err.message, "0000000000000005.docs"));
    page[8] = 1; /* this version, but no right checksum, and nothing in it */
    put_file(host, "/docs/0000000000000005.docs", page, sizeof page);
    host_open(host);
    assert_int_equal(host->warnings, 2);
    assert_false(document_log_adopt(host->log, &(struct document_at){5, 16, DOCUMENT_UNIT}));
}

struct synced {
    struct document_extent extents[64];
    uint32_t n;
    bool refuse;
};

static bool note_synced(void *context, const struct document_extent *extents, uint32_t n)
{
    struct synced *s = context;
    for (uint32_t i = 0; i < n && !s->refuse; i++) {
        uint32_t at = 0;
        while (at < s->n && s->extents[at].segment != extents[i].segment)
            at++;
        assert_true(at < 64);
        assert_true(at == s->n || s->extents[at].bytes < extents[i].bytes);
        s->extents[at] = extents[i];
        s->n += at == s->n;
    }
    return !s->refuse;
}

static void path_of_segment(char path[64], uint32_t number)
{
    snprintf(path, 64, "/docs/%016x.docs", number);
}

/* What was synced is told, once, and again where it was not kept; by this what is missing is damage or not. */
static void test_damage_and_crashes(void **state)
{
    static const uint8_t zeros[4096];
    struct doc_host *host = *state;
    struct synced synced = {.refuse = true};
    struct quire_error err = {0};
    char path[64];
    uint32_t n;
    host->options.synced = note_synced;
    host->options.synced_context = &synced;
    host_open(host);
    host_put_many(host, 20, 0);
    assert_int_equal(host_sync(host), 0);
    assert_int_equal(synced.n, 0);
    synced.refuse = false;
    assert_int_equal(host_sync(host), 0);
    assert_int_equal(synced.n, 1);
    struct document_extent *extents = document_log_extents(host->log, &n);
    assert_int_equal(n, 1);
    assert_int_equal(extents->segment, synced.extents[0].segment);
    assert_int_equal(extents->bytes, synced.extents[0].bytes);
    free(extents);
    struct document_at first = host->documents[1].at, last = host->documents[20].at;
    assert_int_equal(synced.extents[0].bytes, (uint64_t)last.unit * DOCUMENT_UNIT + last.bytes);
    synced.refuse = true; /* what follows is written, and nobody was told: as if a crash had come */
    host_put_many(host, 5, 0);
    work(host);
    struct document_at behind = host->documents[25].at;
    host_close(host);
    host->options.extents = synced.extents;
    host->options.n_extents = synced.n;
    path_of_segment(path, first.segment);

    /* A header of zeros: the documents are served. */
    put_file(host, path, zeros, sizeof zeros);
    assert_int_equal(host_open(host), 0);
    assert_int_equal(host->warnings, 1);
    host_check(host);
    work(host);
    assert_int_equal(host_stats(host).documents, 25);
    extents = document_log_extents(host->log, &n); /* not more than was told */
    assert_int_equal(n, 1);
    assert_int_equal(extents->bytes, synced.extents[0].bytes);
    free(extents);
    host_close(host);

    /* Cut: what was told of is lacking, what was not told of is only not there. */
    struct io_file *file;
    struct document_log *log;
    assert_int_equal(fs_open(host->fs, path, FS_WRITE, &file, NULL), 0);
    assert_int_equal(host->fs->ops->truncate(file, (uint64_t)last.unit * DOCUMENT_UNIT), 0);
    fs_close(file);
    assert_int_equal(document_log_open(&host->options, &log, &err), 0);
    assert_true(document_log_adopt(log, &first));
    assert_false(document_log_lacks(log, &first, &err));
    assert_false(document_log_adopt(log, &last));
    assert_true(document_log_lacks(log, &last, &err));
    assert_non_null(strstr(err.message, path));
    assert_false(document_log_adopt(log, &behind));
    assert_false(document_log_lacks(log, &behind, &err));
    document_log_close(log, NULL);

    /* Gone altogether. */
    assert_int_equal(host->fs->ops->unlink(host->fs, path), 0);
    assert_int_equal(document_log_open(&host->options, &log, &err), 0);
    assert_true(document_log_lacks(log, &first, &err));
    assert_int_equal(err.code, QUIRE_ENOFILE);
    assert_false(document_log_lacks(log, &behind, &err));
    document_log_close(log, NULL);
    for (unsigned id = 1; id <= 25; id++)
        host->documents[id].at.segment = 0;
}

/* The rule itself. */
static void test_judgement(void **state)
{
    struct document_judgement j;
    (void)state;
    document_judge(DOCUMENT_HEADER_WHOLE, false, 0, &j);
    assert_true(j.use == DOCUMENTS_SERVED && !j.is_damaged && !j.what);
    document_judge(DOCUMENT_HEADER_WHOLE, false, 8192, &j);
    assert_true(j.use == DOCUMENTS_SERVED && !j.is_damaged && !j.what);
    document_judge(DOCUMENT_HEADER_NONE, false, 0, &j); /* never begun */
    assert_true(j.use == DOCUMENTS_NONE && !j.is_damaged && !j.what);
    document_judge(DOCUMENT_HEADER_NONE, true, 0, &j); /* torn */
    assert_true(j.use == DOCUMENTS_SERVED && !j.is_damaged && j.what);
    for (enum document_header header = DOCUMENT_HEADER_NONE; header <= DOCUMENT_HEADER_OTHER; header++) {
        document_judge(header, true, 8192, &j);
        assert_true(j.use == DOCUMENTS_SERVED && j.is_damaged && j.what);
        document_judge(header, false, 8192, &j);
        assert_true(j.use == DOCUMENTS_NONE && j.is_damaged && j.what);
        document_judge(header, header != DOCUMENT_HEADER_NONE, 0, &j);
        assert_true(!j.is_damaged);
    }
    document_judge(DOCUMENT_HEADER_OTHER, false, 0, &j);
    assert_true(j.use == DOCUMENTS_OTHERS && j.what);
    assert_true(document_was_durable(16, 256, 4352));
    assert_false(document_was_durable(16, 257, 4352));
}

static void test_options(void **state)
{
    struct doc_host *host = *state;
    struct quire_error err = {0};
    struct document_log *log;
    host->options.groups = 65;
    assert_int_equal(document_log_open(&host->options, &log, &err), QUIRE_ERANGE);
    host->options.groups = 0;
    host->options.segment_bytes = 1ull << 36;
    assert_int_equal(document_log_open(&host->options, &log, &err), QUIRE_ERANGE);
    host->options.segment_bytes = 0;
    host->options.folder = "/no/such";
    assert_int_equal(document_log_open(&host->options, &log, &err), QUIRE_ENOFILE);
    assert_int_equal(document_log_close(NULL, &err), 0);
}

static void test_links(void **state)
{
    struct doc_host *host = *state;
    struct quire_error err = {0};
    host_open(host);
    host_put_many(host, 150, 0);
    assert_int_equal(document_log_link(host->log, "/copy", &err), 0);
    assert_int_equal(document_log_link(host->log, "/copy", &err), QUIRE_EEXISTS);
    struct document_at before[151];
    for (unsigned id = 1; id <= 150; id++)
        before[id] = host->documents[id].at;
    host_put_many(host, 150, 0);
    for (unsigned id = 1; id <= 300; id++)
        host_drop(host, id);
    host_close(host);
    host->options.folder = "/copy";
    for (unsigned id = 1; id <= 150; id++)
        host->documents[id].at = before[id];
    assert_int_equal(host_open(host), 0);
    host_check(host);
    assert_int_equal(host_living(host), 150);
}

/* ---- compaction -------------------------------------------------------------------------------------------------- */

static void test_compaction(void **state)
{
    struct doc_host *host = *state;
    host_open(host);
    host_put_many(host, 600, 0);
    work(host);
    struct document_log_stats before = host_stats(host);
    for (unsigned id = 1; id <= 600; id++)
        if (id % 7)
            host_drop(host, id);
    for (unsigned i = 0; i < 60; i++) {
        work(host);
        host_check(host);
        assert_int_equal(host_sync(host), 0);
    }
    struct document_log_stats after = host_stats(host);
    assert_int_equal(after.documents, 600 / 7);
    assert_true(after.compactions > 0 && host->moves > 0 && after.moved_bytes > 0);
    assert_true(after.bytes < before.bytes / 3);
    assert_true(after.bytes < 2 * after.live_bytes);
    /* copies that nobody wants are not written */
    assert_true(after.written_bytes - before.written_bytes < 4 * after.live_bytes);
    host_close(host);
    assert_int_equal(host_open(host), 0);
    host_check(host);
    assert_int_equal(host_living(host), 600 / 7);
}

/* The emptied segment stays until its copies are on the disk and the host had time to note their places. */
static void test_compacted_segment_stays_a_while(void **state)
{
    struct doc_host *host = *state;
    host_open(host);
    host_put_many(host, 100, 0);
    work(host);
    uint32_t first = segment_of(host, 1);
    struct document_at old = host->documents[1].at;
    for (unsigned id = 2; segment_of(host, id) == first; id++)
        host_drop(host, id);
    work(host);
    assert_int_not_equal(segment_of(host, 1), first);
    work(host);
    work(host);
    assert_int_equal(host_read_at(host, 1, &old), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(host_sync(host), 0);
    work(host);
    assert_int_equal(host_read_at(host, 1, &old), QUIRE_ENOTFOUND);
    host_check(host);
}

/* A segment that expires soon is left alone. */
static void test_no_compaction_before_expiry(void **state)
{
    struct doc_host *host = *state;
    host_open(host);
    host_put_many(host, 100, host->now_ms + 100 * MINUTE);
    work(host);
    for (unsigned id = 2; id <= 100; id++)
        host_drop(host, id);
    host->now_ms += 86 * MINUTE; /* below an eighth of 128 minutes is left */
    for (unsigned i = 0; i < 5; i++)
        work(host);
    assert_int_equal(host_stats(host).compactions, 0);
    assert_int_equal(host_living(host), 1);
    host->now_ms -= 60 * MINUTE;
    work(host);
    assert_int_equal(host_stats(host).compactions, 1);
    host_check(host);
}

/* Damage in the middle costs what it hit. */
static void test_compaction_around_damage(void **state)
{
    struct doc_host *host = *state;
    char path[64];
    host->options.hot_bytes = 1;
    host_open(host);
    host_put_many(host, 100, 0);
    host_close(host);
    host_open(host);
    uint32_t first = segment_of(host, 1);
    snprintf(path, sizeof path, "/docs/%016x.docs", first);
    const struct document_at hit = host->documents[3].at;
    assert_int_equal(fault_flip_bit(host->fs, path, ((uint64_t)hit.unit * DOCUMENT_UNIT + 12) * 8 + 5),
                     0); /* its length */
    for (unsigned id = 6; segment_of(host, id) == first; id++)
        host_drop(host, id);
    for (unsigned i = 0; i < 5; i++)
        work(host);
    assert_int_equal(host->moves, 4);
    assert_int_equal(host->warnings, 1);
    assert_int_equal(host_stats(host).compactions, 3); /* tried again, but not for ever */
    assert_int_equal(host_read_at(host, 3, &hit), QUIRE_ECORRUPT);
    assert_int_equal(host->documents[3].at.segment, first);
    host_drop(host, 3);
    host_check(host);
}

/* Against a model: random puts, drops, rounds, syncs, reopenings; reads under way over all of it. */
static void test_property(void **state)
{
    struct doc_host *host = *state;
    struct random random;
    struct document_read reads[8];
    unsigned ids[8], n_reads = 0;
    random_init(&random, 42);
    host->options.hot_bytes = 30000;
    host_open(host);
    for (unsigned step = 0; step < 6000; step++) {
        unsigned id = host->n_documents ? 1 + (unsigned)random_below(&random, host->n_documents) : 0;
        unsigned dice = (unsigned)random_below(&random, 100);
        const uint64_t lives[] = {0, 30000, 20 * MINUTE, 3000ull * MINUTE};
        uint64_t life = lives[random_below(&random, 4)];
        if (dice < 40)
            host_put_many(host, 1, life ? host->now_ms + life : 0);
        else if (dice < 75 && id && segment_of(host, id))
            host_drop(host, id);
        else if (dice < 85 && id && segment_of(host, id) && n_reads < 8) {
            int rc = document_read_begin(host->log, &host->documents[id].at, &reads[n_reads], NULL);
            assert_true(rc >= 0);
            ids[n_reads] = id;
            n_reads += rc == 0;
            if (rc == 1)
                document_read_end(&reads[n_reads]);
        } else if (dice < 92)
            work(host);
        else if (dice < 94)
            assert_int_equal(host_sync(host), 0);
        else if (dice < 96)
            host->now_ms += random_below(&random, 2 * MINUTE);
        if ((n_reads == 8 || step % 1000 == 999) && n_reads) {
            for (unsigned i = 0; i < n_reads; i++) {
                struct document_read *read = &reads[i];
                int got = engine_run(host->engine, &read->op);
                assert_int_equal(document_read_bytes(read, got, NULL), 0);
                assert_true(support_document_same(ids[i], host->documents[ids[i]].expire_ms, HOST_ROOM, read->bytes,
                                                  read->at.bytes));
                document_read_end(read);
            }
            n_reads = 0;
        }
        if (step % 1000 == 999) {
            host_check(host);
            host_close(host);
            assert_int_equal(host_open(host), 0);
            assert_int_equal(host_stats(host).documents, host_living(host));
        }
    }
    host_check(host);
    assert_true(host->moves > 20);
    assert_true(host_living(host) > 100);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_pages_written_again),
        TEST(test_large),
        TEST(test_reads_are_small),
        TEST(test_short_and_failed_reads),
        TEST(test_buffer_is_bounded),
        TEST(test_hot_is_bounded),
        TEST(test_drop_under_a_read),
        TEST(test_groups),
        TEST(test_more_classes_than_groups),
        TEST(test_segments_end),
        TEST(test_removal),
        TEST(test_removal_at_opening),
        TEST(test_foreign_files),
        TEST(test_damage_and_crashes),
        TEST(test_judgement),
        TEST(test_options),
        TEST(test_links),
        TEST(test_compaction),
        TEST(test_compacted_segment_stays_a_while),
        TEST(test_no_compaction_before_expiry),
        TEST(test_compaction_around_damage),
        TEST(test_property),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
