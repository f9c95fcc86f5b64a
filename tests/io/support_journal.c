/*
 * support_journal.c - the host: what a frame says, what a state must be, and the calls that tests script.
 *
 * Records also carry filler of a length that depends on the LSN, so that frames end at all offsets and logs of a small
 * size limit are ended often.
 */
#include "support_journal.h"
#include "io/bytes.h"
#include "io/random.h"
#include "support_contents.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

enum { RECORD_SET = 1, RECORD_STATE = 2, FILLER_MAX = 301 };

static unsigned records_of(uint64_t lsn)
{
    return 1 + (unsigned)(lsn % 3);
}

static uint64_t key_of(uint64_t lsn, unsigned i)
{
    return (lsn + i) % HOST_KEYS;
}

static uint64_t value_of(uint64_t lsn, uint64_t run, uint64_t key)
{
    return random_mix(lsn * 1000003 + run * 257 + key + 1);
}

static uint32_t filler_of(uint64_t lsn)
{
    return (uint32_t)(lsn * 37 % FILLER_MAX);
}

static uint64_t model(const struct host *host, uint64_t key, uint64_t lsn)
{
    for (uint64_t at = lsn; at > 0 && lsn - at < HOST_KEYS; at--)
        for (unsigned i = 0; i < records_of(at); i++)
            if (key_of(at, i) == key)
                return value_of(at, host->runs[at], key);
    return 0;
}

bool host_is_at(const struct host *host, uint64_t lsn)
{
    for (uint64_t key = 0; key < HOST_KEYS; key++)
        if (host->values[key] != model(host, key, lsn))
            return false;
    return true;
}

static void set(struct host *host, uint64_t key, uint64_t value, uint64_t lsn)
{
    if (lsn <= host->lsns[key])
        return;
    host->values[key] = value;
    host->lsns[key] = lsn;
}

static int restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct host *host = context;
    (void)err;
    if (kind != RECORD_STATE || n != 16 || bytes_load_u64(bytes) >= HOST_KEYS) {
        host->wrong++;
        return 0;
    }
    host->values[bytes_load_u64(bytes)] = bytes_load_u64(bytes + 8);
    host->lsns[bytes_load_u64(bytes)] = lsn;
    return 0;
}

static int replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct host *host = context;
    (void)err;
    bool right = kind == RECORD_SET && lsn < HOST_LSNS && n == 16 + filler_of(lsn) &&
                 bytes_load_u64(bytes) < HOST_KEYS && support_differs(bytes + 16, n - 16, 0, lsn) == n - 16 &&
                 (uintptr_t)bytes % 8 == 0;
    host->wrong += !right;
    host->replayed++;
    if (right)
        set(host, bytes_load_u64(bytes), bytes_load_u64(bytes + 8), lsn);
    return 0;
}

const struct journal_reader *host_reader(struct host *host, struct journal_reader *reader)
{
    *reader = (struct journal_reader){.restore = restore, .replay = replay, .context = host};
    return reader;
}

void host_clear(struct host *host)
{
    memset(host->values, 0, sizeof host->values);
    memset(host->lsns, 0, sizeof host->lsns);
    host->replayed = host->wrong = 0;
}

int host_open(struct host *host, struct quire_error *err)
{
    struct journal_reader reader;
    host_clear(host);
    int rc = journal_open(host->fs, host->folder, &host->options, host_reader(host, &reader), &host->journal,
                          &host->report, err);
    if (rc < 0) {
        host->journal = NULL;
        return rc;
    }
    uint64_t last = host->report.last_lsn;
    assert_int_equal(host->wrong, 0);
    assert_true(last >= host->acknowledged);
    assert_true(last <= host->appended);
    assert_true(host_is_at(host, last));
    assert_int_equal(journal_last_lsn(host->journal), last);
    assert_int_equal(journal_durable_lsn(host->journal), last);
    host->appended = host->acknowledged = last;
    host->run++;
    return 0;
}

/* The record of a key in the frame of `lsn`; returns its bytes. */
static uint32_t make_record(const struct host *host, uint64_t lsn, unsigned i, uint8_t bytes[16 + FILLER_MAX])
{
    bytes_store_u64(bytes, key_of(lsn, i));
    bytes_store_u64(bytes + 8, value_of(lsn, host->run, key_of(lsn, i)));
    support_fill(bytes + 16, filler_of(lsn), 0, lsn);
    return 16 + filler_of(lsn);
}

static int append_batch(struct host *host, const struct journal_record *records, unsigned n, uint64_t *lsn,
                        struct quire_error *err)
{
    uint64_t each = 0;
    int rc = journal_batch_begin(host->journal, err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(journal_append(host->journal, records + i, 1, &each, err), 0);
        assert_int_equal(each, journal_last_lsn(host->journal));
    }
    return journal_batch_end(host->journal, lsn, err);
}

int host_append(struct host *host, bool as_batch, bool wait, struct quire_error *err)
{
    static uint8_t bytes[3][16 + FILLER_MAX];
    struct journal_record records[3];
    uint64_t expected = host->appended + 1, lsn = 0;
    unsigned n = records_of(expected);
    assert_true(expected < HOST_LSNS);
    for (unsigned i = 0; i < n; i++)
        records[i] = (struct journal_record){RECORD_SET, bytes[i], make_record(host, expected, i, bytes[i])};
    int rc =
        as_batch ? append_batch(host, records, n, &lsn, err) : journal_append(host->journal, records, n, &lsn, err);
    if (rc < 0)
        return rc;
    assert_int_equal(lsn, expected);
    host->appended = lsn;
    host->runs[lsn] = host->run;
    for (unsigned i = 0; i < n; i++)
        set(host, key_of(lsn, i), value_of(lsn, host->run, key_of(lsn, i)), lsn);
    if (wait)
        rc = journal_wait(host->journal, lsn, err);
    if (rc == 0 && wait && host->options.sync == JOURNAL_ALWAYS)
        host->acknowledged = lsn;
    return rc;
}

static int put_key(const struct host *host, struct checkpoint *checkpoint, uint64_t key, struct quire_error *err)
{
    uint8_t bytes[16];
    bytes_store_u64(bytes, key);
    bytes_store_u64(bytes + 8, host->values[key]);
    return journal_checkpoint_put(checkpoint, RECORD_STATE, host->appended, bytes, sizeof bytes, err);
}

int host_checkpoint(struct host *host, unsigned between, struct quire_error *err)
{
    struct checkpoint *checkpoint;
    struct journal_stats stats;
    uint64_t lsn = host->appended + 1;
    int rc = journal_checkpoint_begin(host->journal, &checkpoint, err);
    if (rc < 0)
        return rc;
    for (uint64_t key = 0; rc == 0 && key < HOST_KEYS; key++) {
        rc = put_key(host, checkpoint, key, err);
        if (rc == 0 && key < between)
            rc = host_append(host, key % 2, false, err);
    }
    if (rc < 0) {
        journal_checkpoint_abort(checkpoint);
        return rc;
    }
    rc = journal_checkpoint_finish(checkpoint, err);
    if (rc == 0) {
        journal_get_stats(host->journal, &stats);
        assert_int_equal(stats.checkpoint_lsn, lsn);
    }
    return rc;
}

int host_close(struct host *host, struct quire_error *err)
{
    int rc = journal_close(host->journal, err);
    host->journal = NULL;
    if (rc == 0)
        host->acknowledged = host->appended;
    return rc;
}
