/*
 * keyspace_log.c - records of keys: written, read again, dumped into checkpoints.
 *
 * Reading is idempotent by LSNs: each key keeps the LSN of its last change, and a frame that is not newer says nothing
 * new about it. A checkpoint is fuzzy, so its records may be older or newer than the first frame that is replayed:
 *
 *   newer    the key's LSN leaves the frames out that are in it already;
 *   missing  the key was removed after the checkpoint began: frames may build it again in part (a WRITE to nothing),
 *            until the frame that removed it is read. So nothing is missing or left over at the end.
 *
 * One frame may hold several records of one key with the same LSN (RENAME: DELETE, then the value; transactions). They
 * are all left out or all applied: an entry out of a checkpoint contains its LSN's frame whole (`restored`), one that a
 * record of this frame has made does not.
 *
 * Nothing expires while a folder is read; what is over is removed later, with a record, as always.
 */
#include "server/keys/keyspace_log.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/journal.h"
#include "server/keys/keyspace_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DUMP_BYTES = 1 << 20 }; /* of a large hash's fields in one record of a checkpoint or frame */

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void keyspace_log_begin(struct key_log *log, const struct keyspace *k)
{
    log->journal = k->journal;
    log->n_bytes = 0;
    log->n_records = 0;
    log->capacity = sizeof log->first_bytes;
    log->records_capacity = sizeof log->first_records / sizeof *log->first_records;
    log->bytes = log->first_bytes;
    log->records = log->first_records;
    log->failed = false;
}

/* n bytes at the end; NULL without memory. */
static uint8_t *add(struct key_log *log, size_t n)
{
    if (log->failed)
        return NULL;
    if (log->capacity - log->n_bytes < n) {
        size_t capacity = log->n_bytes + n + (log->n_bytes + n) / 2;
        bool first = log->bytes == log->first_bytes;
        uint8_t *bigger = realloc(first ? NULL : log->bytes, capacity);
        if (!bigger) {
            log->failed = true;
            return NULL;
        }
        if (first)
            memcpy(bigger, log->first_bytes, log->n_bytes);
        log->bytes = bigger;
        log->capacity = capacity;
    }
    log->n_bytes += n;
    return log->bytes + log->n_bytes - n;
}

static void add_bytes(struct key_log *log, const void *bytes, size_t n)
{
    uint8_t *to = add(log, n);
    if (to && n > 0)
        memcpy(to, bytes, n);
}

static void add_u32(struct key_log *log, uint32_t x)
{
    uint8_t *to = add(log, 4);
    if (to)
        bytes_store_u32(to, x);
}

static void add_u64(struct key_log *log, uint64_t x)
{
    uint8_t *to = add(log, 8);
    if (to)
        bytes_store_u64(to, x);
}

static void add_key(struct key_log *log, struct resp_arg key)
{
    uint8_t *to = add(log, 2);
    if (to)
        bytes_store_u16(to, (uint16_t)key.bytes);
    add_bytes(log, key.data, key.bytes);
}

/* Whether there is a journal, and memory for the record that begins here. */
static bool begin_record(struct key_log *log, enum key_log_kind kind)
{
    if (!log->journal || log->failed)
        return false;
    if (log->n_records == log->records_capacity) {
        bool first = log->records == log->first_records;
        unsigned capacity = 4 * log->records_capacity;
        struct key_log_record *bigger = realloc(first ? NULL : log->records, capacity * sizeof *bigger);
        if (!bigger) {
            log->failed = true;
            return false;
        }
        if (first)
            memcpy(bigger, log->first_records, sizeof log->first_records);
        log->records = bigger;
        log->records_capacity = capacity;
    }
    log->records[log->n_records++] = (struct key_log_record){(uint8_t)kind, log->n_bytes};
    return true;
}

void keyspace_log_bytes(struct key_log *log, enum key_type type, struct resp_arg key, struct resp_arg value,
                        uint64_t expire_ms)
{
    assert(keyspace_has_bytes(type));
    if (!begin_record(log, type == KEY_JSON ? KEY_LOG_JSON_PACKED : KEY_LOG_SET))
        return;
    add_u64(log, expire_ms);
    add_key(log, key);
    add_bytes(log, value.data, value.bytes);
}

void keyspace_log_append(struct key_log *log, struct resp_arg key, struct resp_arg bytes)
{
    if (!begin_record(log, KEY_LOG_APPEND))
        return;
    add_key(log, key);
    add_bytes(log, bytes.data, bytes.bytes);
}

void keyspace_log_write(struct key_log *log, struct resp_arg key, uint32_t offset, struct resp_arg bytes)
{
    if (!begin_record(log, KEY_LOG_WRITE))
        return;
    add_u64(log, offset);
    add_key(log, key);
    add_bytes(log, bytes.data, bytes.bytes);
}

static void add_pair(struct key_log *log, struct resp_arg field, struct resp_arg value)
{
    add_u32(log, field.bytes);
    add_u32(log, value.bytes);
    add_bytes(log, field.data, field.bytes);
    add_bytes(log, value.data, value.bytes);
}

void keyspace_log_hash_set(struct key_log *log, struct resp_arg key, const struct resp_arg *pairs, uint32_t n_pairs)
{
    if (!begin_record(log, KEY_LOG_HASH_SET))
        return;
    add_key(log, key);
    for (uint32_t i = 0; i < n_pairs; i++)
        add_pair(log, pairs[2 * i], pairs[2 * i + 1]);
}

void keyspace_log_hash_delete(struct key_log *log, struct resp_arg key, const struct resp_arg *fields, uint32_t n)
{
    if (!begin_record(log, KEY_LOG_HASH_DELETE))
        return;
    add_key(log, key);
    for (uint32_t i = 0; i < n; i++) {
        add_u32(log, fields[i].bytes);
        add_bytes(log, fields[i].data, fields[i].bytes);
    }
}

void keyspace_log_delete(struct key_log *log, struct resp_arg key)
{
    if (begin_record(log, KEY_LOG_DELETE))
        add_key(log, key);
}

void keyspace_log_expire(struct key_log *log, struct resp_arg key, uint64_t expire_ms)
{
    if (!begin_record(log, KEY_LOG_EXPIRE))
        return;
    add_u64(log, expire_ms);
    add_key(log, key);
}

void keyspace_log_flush(struct key_log *log)
{
    begin_record(log, KEY_LOG_FLUSH);
}

void keyspace_log_vectors(struct key_log *log, struct resp_arg key, uint64_t uid)
{
    if (!begin_record(log, KEY_LOG_VECTORS))
        return;
    add_u64(log, uid);
    add_key(log, key);
}

/* Fields of a hash, split into records. */
struct dump {
    struct key_log *log;
    struct resp_arg key;
    const struct hash *leaves_away; /* whose fields that are away are left out; NULL: none are */
};

static void dump_field(void *context, struct resp_arg field, struct resp_arg value)
{
    struct dump *d = context;
    const struct key_log *log = d->log;
    if (log->failed || (d->leaves_away && hash_is_away(d->leaves_away, field)))
        return;
    assert(value.data || value.bytes == 0);
    if (log->n_bytes - log->records[log->n_records - 1].at > DUMP_BYTES)
        keyspace_log_hash_set(d->log, d->key, NULL, 0);
    add_pair(d->log, field, value);
}

static void dump_away(void *context, struct resp_arg field, struct resp_arg value)
{
    struct key_log *log = context;
    add_u32(log, field.bytes);
    add_u32(log, value.bytes);
    add_bytes(log, field.data, field.bytes);
}

void keyspace_log_entry(struct key_log *log, struct resp_arg key, const struct key_entry *e, bool in_place)
{
    struct dump d = {log, key, NULL};
    if (!log->journal)
        return;
    switch ((enum key_type)e->type) {
    case KEY_STRING:
    case KEY_JSON:
        keyspace_log_bytes(log, (enum key_type)e->type, key, (struct resp_arg){e->string->data, e->string->bytes},
                           e->expire_ms);
        return;
    case KEY_HASH:
        d.leaves_away = in_place && hash_n_away(e->hash) > 0 ? e->hash : NULL;
        keyspace_log_hash_set(log, key, NULL, 0);
        hash_each(e->hash, dump_field, &d);
        if (d.leaves_away && begin_record(log, KEY_LOG_HASH_AWAY)) {
            add_key(log, key);
            hash_each_away(e->hash, dump_away, log);
        }
        break;
    case KEY_VECTOR_SET:
        keyspace_log_vectors(log, key, collection_uid(e->set));
        break;
    }
    if (e->expire_ms)
        keyspace_log_expire(log, key, e->expire_ms);
}

void keyspace_log_abort(struct key_log *log)
{
    if (log->bytes != log->first_bytes)
        free(log->bytes);
    if (log->records != log->first_records)
        free(log->records);
}

int keyspace_commit(struct keyspace_lock *lock, struct key_log *log, uint64_t *lsn, struct quire_error *err)
{
    const struct keyspace *k = lock->keyspace;
    const struct keyspace_follower *follower = k->follower;
    int rc = 0;
    lock->joined = lock->joined || (k->journal && follower && follower->joins(follower->context));
    if (lock->joined && !lock->in_batch && !journal_in_batch(k->journal)) {
        follower->begin(follower->context);
        rc = journal_batch_begin(k->journal, err);
        lock->in_batch = rc == 0;
        if (rc < 0)
            follower->end(follower->context);
    }
    if (rc == 0)
        return keyspace_log_commit(log, lsn, err);
    keyspace_log_abort(log);
    return rc;
}

static struct journal_record record_at(const struct key_log *log, unsigned i)
{
    size_t at = log->records[i].at, end = i + 1 < log->n_records ? log->records[i + 1].at : log->n_bytes;
    return (struct journal_record){log->records[i].kind, log->bytes + at, (uint32_t)(end - at)};
}

static bool too_long(const struct key_log *log)
{
    for (unsigned i = 0; i < log->n_records; i++)
        if ((i + 1 < log->n_records ? log->records[i + 1].at : log->n_bytes) - log->records[i].at >
            JOURNAL_RECORD_BYTES_MAX)
            return true;
    return false;
}

int keyspace_log_commit(struct key_log *log, uint64_t *lsn, struct quire_error *err)
{
    struct journal_record few[4], *records = few;
    int rc = 0;
    if (!log->journal || (log->n_records == 0 && !log->failed))
        return 0;
    if (log->n_records > sizeof few / sizeof *few)
        records = malloc(log->n_records * sizeof *records);
    if (log->failed || !records) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a record of the log");
    } else if (too_long(log)) {
        rc = error_set(err, QUIRE_ELIMIT, "the log takes records of at most %u bytes: split the value",
                       JOURNAL_RECORD_BYTES_MAX);
    } else {
        for (unsigned i = 0; i < log->n_records; i++)
            records[i] = record_at(log, i);
        rc = journal_append(log->journal, records, log->n_records, lsn, err);
    }
    if (records != few)
        free(records);
    keyspace_log_abort(log);
    return rc;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at, *end;
    bool broken;
};

static const uint8_t *take(struct reader *r, size_t n)
{
    if (r->broken || (size_t)(r->end - r->at) < n) {
        r->broken = true;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}

static uint32_t take_u32(struct reader *r)
{
    const uint8_t *p = take(r, 4);
    return p ? bytes_load_u32(p) : 0;
}

static uint64_t take_u64(struct reader *r)
{
    const uint8_t *p = take(r, 8);
    return p ? bytes_load_u64(p) : 0;
}

static struct resp_arg take_bytes(struct reader *r, uint32_t n)
{
    const uint8_t *p = take(r, n);
    return (struct resp_arg){p, p ? n : 0};
}

static struct resp_arg take_key(struct reader *r)
{
    const uint8_t *p = take(r, 2);
    return take_bytes(r, p ? bytes_load_u16(p) : 0);
}

static struct resp_arg take_rest(struct reader *r)
{
    return take_bytes(r, r->broken ? 0 : (uint32_t)(r->end - r->at));
}

/* The rest as arguments: with `pairs` field, value, ..., otherwise fields. *out is allocated. */
static int take_fields(struct reader *r, bool pairs, struct resp_arg **out, uint32_t *n, struct quire_error *err)
{
    uint32_t capacity = 0;
    *out = NULL;
    *n = 0;
    while (!r->broken && r->at < r->end) {
        if (!array_reserve(out, &capacity, (size_t)*n + 2))
            return error_set(err, QUIRE_ENOMEM, "no memory for the fields of a hash");
        uint32_t field = take_u32(r), value = pairs ? take_u32(r) : 0;
        (*out)[(*n)++] = take_bytes(r, field);
        if (pairs)
            (*out)[(*n)++] = take_bytes(r, value);
    }
    return 0;
}

static int apply_set(struct keyspace_lock *lock, enum key_type type, const struct key *key, struct key_entry *e,
                     struct reader *r, uint64_t expire_ms, struct quire_error *err)
{
    struct resp_arg bytes = take_rest(r);
    struct value *value = keyspace_value_create(bytes.data, bytes.bytes, bytes.bytes);
    if (!value)
        return error_set(err, QUIRE_ENOMEM, "no memory for a value");
    return type == KEY_JSON ? keyspace_set_json(lock, key, e, value, expire_ms, err)
                            : keyspace_set_string(lock, key, e, value, expire_ms, err);
}

static int apply_fields(struct keyspace_lock *lock, const struct key *key, struct key_entry *e, struct reader *r,
                        bool set, struct quire_error *err)
{
    struct resp_arg *fields;
    uint32_t n, done;
    int rc = take_fields(r, set, &fields, &n, err);
    if (rc == 0 && !r->broken && n > 0 && set)
        rc = keyspace_hash_set(lock, key, e, fields, n / 2, &done, err);
    else if (rc == 0 && !r->broken && n > 0 && e)
        rc = keyspace_hash_delete(lock, e, fields, n, &done, err);
    free(fields);
    return rc;
}

static int apply_away(struct keyspace_lock *lock, const struct key *key, struct key_entry *e, struct reader *r,
                      struct quire_error *err)
{
    int rc = 0;
    while (rc == 0 && !r->broken && r->at < r->end) {
        uint32_t field_bytes = take_u32(r), value_bytes = take_u32(r);
        struct resp_arg field = take_bytes(r, field_bytes);
        if (!r->broken)
            rc = keyspace_hash_add_away(lock, key, &e, field, value_bytes, err);
    }
    return rc;
}

/* One record about one key. `number` is what stood before the key. */
static int apply(struct keyspace_lock *lock, enum key_log_kind kind, const struct key *key, struct key_entry *e,
                 uint64_t number, struct reader *r, struct quire_error *err)
{
    struct resp_arg name = {key->data, key->bytes}, bytes;
    uint32_t n_gone;
    switch (kind) {
    case KEY_LOG_SET:
        return apply_set(lock, KEY_STRING, key, e, r, number, err);
    case KEY_LOG_JSON:
    case KEY_LOG_JSON_PACKED: /* a text is a packed document, too */
        return apply_set(lock, KEY_JSON, key, e, r, number, err);
    case KEY_LOG_APPEND:
        if (!e)
            return apply_set(lock, KEY_STRING, key, e, r, 0, err);
        bytes = take_rest(r);
        return keyspace_append(lock, e, bytes.data, bytes.bytes, err);
    case KEY_LOG_WRITE:
        bytes = take_rest(r);
        r->broken = r->broken || number > UINT32_MAX - bytes.bytes;
        return r->broken ? 0 : keyspace_write(lock, key, e, (uint32_t)number, bytes, err);
    case KEY_LOG_HASH_SET:
    case KEY_LOG_HASH_DELETE:
        return apply_fields(lock, key, e, r, kind == KEY_LOG_HASH_SET, err);
    case KEY_LOG_HASH_AWAY:
        return apply_away(lock, key, e, r, err);
    case KEY_LOG_DELETE:
        return keyspace_delete(lock, &name, 1, &n_gone, err);
    case KEY_LOG_EXPIRE:
        return e ? keyspace_expire(lock, e, number, err) : 0;
    case KEY_LOG_VECTORS:
        return keyspace_set_unbound(lock, key, number, err);
    case KEY_LOG_FLUSH:
        break;
    }
    return 0;
}

static int bad_record(uint8_t kind, uint64_t lsn, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "the record of kind %u with LSN %llu is no record of a key: run quire repair",
                     kind, (unsigned long long)lsn);
}

static int read_record(struct keyspace *k, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, bool restore,
                       struct quire_error *err)
{
    struct reader r = {bytes, bytes + n, false};
    bool numbered = kind == KEY_LOG_SET || kind == KEY_LOG_EXPIRE || kind == KEY_LOG_VECTORS || kind == KEY_LOG_WRITE ||
                    kind == KEY_LOG_JSON || kind == KEY_LOG_JSON_PACKED;
    uint64_t number = numbered ? take_u64(&r) : 0;
    struct resp_arg name = take_key(&r);
    struct keyspace_lock lock;
    if (r.broken || kind > KEY_LOG_JSON_PACKED || (kind == KEY_LOG_HASH_AWAY && !restore))
        return bad_record(kind, lsn, err);
    struct key key = keyspace_key(k, name);
    keyspace_lock_key(&lock, k, &key);
    lock.now_ms = 1; /* nothing is over yet */
    struct key_entry *e = keyspace_find(&lock, &key);
    int rc = 0;
    if (restore || !e || e->lsn < lsn || (e->lsn == lsn && !e->restored)) {
        bool of_hash = kind == KEY_LOG_HASH_SET || kind == KEY_LOG_HASH_DELETE || kind == KEY_LOG_HASH_AWAY;
        bool of_string = kind == KEY_LOG_APPEND || kind == KEY_LOG_WRITE;
        bool fits = !e || ((!of_string || e->type == KEY_STRING) && (!of_hash || e->type == KEY_HASH));
        rc = fits ? apply(&lock, (enum key_log_kind)kind, &key, e, number, &r, err) : bad_record(kind, lsn, err);
        if (rc == 0 && (r.broken || r.at != r.end))
            rc = bad_record(kind, lsn, err);
        e = keyspace_find(&lock, &key);
        if (e) {
            e->lsn = lsn;
            e->restored = restore;
        }
    }
    keyspace_unlock(&lock);
    return rc;
}

struct flush {
    uint64_t lsn;
    struct resp_arg *keys;
    uint32_t n, capacity;
    bool failed;
};

static void collect_older(void *context, const struct key_entry *e)
{
    struct flush *f = context;
    if (e->lsn > f->lsn || (e->lsn == f->lsn && e->restored) || f->failed)
        return;
    f->failed = !array_reserve(&f->keys, &f->capacity, (size_t)f->n + 1);
    if (f->failed)
        return;
    f->keys[f->n++] = (struct resp_arg){e->key, e->node.key_bytes};
}

/* Removes what is not newer than the frame. */
static int replay_flush(struct keyspace *k, uint64_t lsn, struct quire_error *err)
{
    int rc = 0;
    for (unsigned i = 0; i < KEYSPACE_SHARDS && rc == 0; i++) {
        struct flush f = {.lsn = lsn};
        struct keyspace_lock lock;
        uint32_t n_gone;
        keyspace_each_of(k, i, collect_older, &f);
        if (f.failed)
            rc = error_set(err, QUIRE_ENOMEM, "no memory to replay FLUSHALL");
        if (rc == 0 && f.n > 0) {
            keyspace_lock_args(&lock, k, f.keys, f.n, 1);
            lock.now_ms = 1;
            rc = keyspace_delete(&lock, f.keys, f.n, &n_gone, err);
            keyspace_unlock(&lock);
        }
        free(f.keys);
    }
    return rc;
}

int keyspace_restore(void *keyspace, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                     struct quire_error *err)
{
    return kind == KEY_LOG_FLUSH ? bad_record(kind, lsn, err) : read_record(keyspace, kind, lsn, bytes, n, true, err);
}

int keyspace_replay(void *keyspace, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                    struct quire_error *err)
{
    if (kind == KEY_LOG_FLUSH)
        return n == 0 ? replay_flush(keyspace, lsn, err) : bad_record(kind, lsn, err);
    return read_record(keyspace, kind, lsn, bytes, n, false, err);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* Records of one shard, with the LSN of each. */
struct shard_dump {
    struct key_log log;
    uint64_t *lsns;
    unsigned capacity;
};

static void dump_entry(void *context, const struct key_entry *e)
{
    struct shard_dump *d = context;
    unsigned first = d->log.n_records;
    keyspace_log_entry(&d->log, (struct resp_arg){e->key, e->node.key_bytes}, e, true);
    if (d->log.failed)
        return;
    if (!array_reserve(&d->lsns, &d->capacity, d->log.n_records)) {
        d->log.failed = true;
        return;
    }
    for (unsigned i = first; i < d->log.n_records; i++)
        d->lsns[i] = e->lsn;
}

static int save_shard(struct keyspace *k, unsigned shard, struct checkpoint *checkpoint, struct quire_error *err)
{
    const struct timespec pause = {.tv_nsec = 50000};
    struct shard_dump d = {.lsns = NULL};
    int rc = 0;
    keyspace_log_begin(&d.log, k);
    /* A moment at which no batch is open and nobody holds the shard. Neither may be waited for with the other in hand:
     * a command begins a batch while it holds a key, a transaction holds keys while its batch is open. So this one
     * gives way. */
    for (bool done = false; !done;) {
        journal_quiesce_begin(k->journal);
        done = keyspace_try_each_of(k, shard, dump_entry, &d);
        journal_quiesce_end(k->journal);
        if (!done)
            nanosleep(&pause, NULL);
    }
    if (d.log.failed)
        rc = error_set(err, QUIRE_ENOMEM, "no memory to write keys into a checkpoint");
    else if (too_long(&d.log))
        rc = error_set(err, QUIRE_ELIMIT, "a record of a checkpoint is longer than %u bytes", JOURNAL_RECORD_BYTES_MAX);
    for (unsigned i = 0; i < d.log.n_records && rc == 0; i++) {
        struct journal_record record = record_at(&d.log, i);
        rc = journal_checkpoint_put(checkpoint, record.kind, d.lsns[i], record.bytes, record.n_bytes, err);
    }
    keyspace_log_abort(&d.log);
    free(d.lsns);
    return rc;
}

int keyspace_save(void *keyspace, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct keyspace *k = keyspace;
    int rc = 0;
    assert(k->journal);
    for (unsigned i = 0; i < KEYSPACE_SHARDS && rc == 0; i++)
        rc = save_shard(k, i, checkpoint, err);
    return rc;
}
