/*
 * keyspace.c - shards, look-ups, changes and expiry.
 *
 * A key's shard is the top byte of its hash, its bucket the low bits. The hash is seeded, so that nobody can choose
 * keys that all fall together. Locks are held for microseconds: what takes long (large values to free, cleared tables)
 * is collected in the lock and freed when it is released, on the worker where there is one.
 *
 * A change has three steps. 1. All memory that it needs: a new entry, space in the queue of expiries, fields. 2. The
 * frame of the journal. 3. The change itself, which cannot fail. Undoing a change whose frame was refused would be the
 * other way; but then readers of other keys of one frame could see what never happened.
 *
 * SET of a string that is there only swaps its value. Whatever changes the type, or several keys at once, makes a new
 * entry and puts it in the old one's place.
 *
 * Entries that expire stand in a binary heap per shard, the next first: expiring costs what is due and never a look at
 * keys that are not. Memory: a pointer each.
 *
 * Versions count per shard. A version is only ever compared with another of the same key, whose shard does not change,
 * so nothing is gained by one counter for all, which every lane would write to.
 */
#include "server/keys/keyspace.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/heap.h"
#include "io/journal.h"
#include "io/memory.h"
#include "server/keys/keyspace_log.h"
#include "server/keys/keyspace_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

enum { DUE_PER_LOCK = 64, LONG_HASH = 1024 };

static inline bool expires_before(struct key_entry *const *a, struct key_entry *const *b)
{
    return (*a)->expire_ms < (*b)->expire_ms;
}

static inline void expiry_is_at(struct key_entry *const *e, size_t at)
{
    (*e)->queue_at = (uint32_t)at;
}

HEAP_DEFINE(expiries, struct key_entry *, expires_before, expiry_is_at)

static uint64_t wall_clock_ms(void *context)
{
    (void)context;
    return clock_wall_ms();
}

const char *keyspace_type_name(enum key_type type)
{
    static const char *const names[] = {"string", "hash", "vectorset", "ReJSON-RL"};
    return names[type];
}

/* ---- values and entries ------------------------------------------------------------------------------------------ */

struct value *keyspace_value_create(const void *data, uint32_t bytes, uint32_t capacity)
{
    struct value *v = malloc(sizeof *v + (size_t)capacity);
    if (!v)
        return NULL;
    atomic_init(&v->references, 1);
    v->bytes = bytes;
    v->capacity = capacity;
    if (data && bytes > 0)
        memcpy(v->data, data, bytes);
    return v;
}

struct value *keyspace_value_ref(struct value *v)
{
    atomic_fetch_add_explicit(&v->references, 1, memory_order_relaxed);
    return v;
}

void keyspace_value_unref(struct value *v)
{
    if (v && atomic_fetch_sub_explicit(&v->references, 1, memory_order_acq_rel) == 1)
        free(v);
}

/* An entry in no table. NULL without memory. The value is the caller's to set. */
struct key_entry *keyspace_entry_create(const struct keyspace *k, const struct key *key, enum key_type type)
{
    struct key_entry *e = malloc(sizeof *e + key->bytes);
    if (!e)
        return NULL;
    memset(e, 0, sizeof *e);
    e->node = (struct table_node){.hash = key->hash, .key_bytes = key->bytes};
    e->type = (uint8_t)type;
    e->used_s = atomic_load_explicit(&k->second, memory_order_relaxed);
    if (key->bytes > 0)
        memcpy(e->key, key->data, key->bytes);
    return e;
}

void keyspace_release(const struct key_value *value)
{
    if (keyspace_has_bytes(value->type))
        keyspace_value_unref(value->string);
    else if (value->type == KEY_HASH)
        hash_destroy(value->hash);
    else
        collection_unref(value->set);
}

void keyspace_entry_destroy(struct key_entry *e)
{
    if (!e->unbound)
        keyspace_release(&(struct key_value){.type = (enum key_type)e->type, .hash = e->hash}); /* whichever it is */
    free(e);
}

static struct resp_arg arg_of(const struct key_entry *e)
{
    return (struct resp_arg){e->key, e->node.key_bytes};
}

uint64_t keyspace_entry_bytes(const struct key_entry *e)
{
    uint64_t bytes = sizeof *e + e->node.key_bytes;
    if (keyspace_has_bytes(e->type) && e->string)
        bytes += sizeof *e->string + e->string->capacity;
    else if (e->type == KEY_HASH && e->hash)
        bytes += hash_memory_bytes(e->hash);
    return bytes;
}

bool keyspace_entry_is_over(const struct key_entry *e, uint64_t now_ms)
{
    return e->expire_ms && e->expire_ms <= now_ms;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

int keyspace_init(struct keyspace *k, struct quire_error *err)
{
    memset(k, 0, sizeof *k);
    k->clock_ms = wall_clock_ms;
    if (getrandom(&k->seed, sizeof k->seed, 0) != (ssize_t)sizeof k->seed)
        k->seed = clock_ns();
    k->shards = memory_aligned(64, KEYSPACE_SHARDS * sizeof *k->shards);
    if (!k->shards)
        return error_set(err, QUIRE_ENOMEM, "no memory for the keyspace");
    memset(k->shards, 0, KEYSPACE_SHARDS * sizeof *k->shards);
    for (unsigned i = 0; i < KEYSPACE_SHARDS; i++) {
        pthread_mutex_init(&k->shards[i].lock, NULL);
        node_table_init(&k->shards[i].table, offsetof(struct key_entry, key));
    }
    return 0;
}

static void free_entry(void *context, struct table_node *node)
{
    (void)context;
    keyspace_entry_destroy(keyspace_entry_of(node));
}

void keyspace_fini(struct keyspace *k)
{
    for (unsigned i = 0; k->shards && i < KEYSPACE_SHARDS; i++) {
        node_table_each(&k->shards[i].table, free_entry, NULL);
        node_table_fini(&k->shards[i].table);
        free(k->shards[i].queue);
        pthread_mutex_destroy(&k->shards[i].lock);
    }
    memory_free(k->shards);
    k->shards = NULL;
}

#ifdef __SANITIZE_THREAD__
/* Its detector of deadlocks ends the program when a thread has more than 64 locks, as FLUSHALL has. */
const char *__tsan_default_options(void) __attribute__((visibility("default")));
const char *__tsan_default_options(void)
{
    return "detect_deadlocks=0";
}
#endif

/* ---- locks ------------------------------------------------------------------------------------------------------- */

static unsigned shard_number(uint64_t hash)
{
    return (unsigned)(hash >> 56);
}

static struct shard *shard_of(const struct keyspace *k, uint64_t hash)
{
    return &k->shards[shard_number(hash)];
}

struct key keyspace_key(const struct keyspace *k, struct resp_arg arg)
{
    return (struct key){arg.data, arg.bytes, XXH3_64bits_withSeed(arg.data, arg.bytes, k->seed)};
}

static void begin_lock(struct keyspace_lock *lock, struct keyspace *k)
{
    *lock = (struct keyspace_lock){.keyspace = k};
}

static void mark_shard(struct keyspace_lock *lock, unsigned shard)
{
    lock->shards[shard / 64] |= 1ull << shard % 64;
}

static void lock_marked(struct keyspace_lock *lock)
{
    for (unsigned w = 0; w < KEYSPACE_SHARDS / 64; w++)
        for (uint64_t rest = lock->shards[w]; rest; rest &= rest - 1)
            pthread_mutex_lock(&lock->keyspace->shards[64 * w + (unsigned)__builtin_ctzll(rest)].lock);
}

void keyspace_lock_shard(struct keyspace_lock *lock, struct keyspace *k, unsigned shard)
{
    begin_lock(lock, k);
    mark_shard(lock, shard);
    pthread_mutex_lock(&k->shards[shard].lock);
}

void keyspace_lock_key(struct keyspace_lock *lock, struct keyspace *k, const struct key *key)
{
    keyspace_lock_shard(lock, k, shard_number(key->hash));
}

void keyspace_lock_args(struct keyspace_lock *lock, struct keyspace *k, const struct resp_arg *args, uint32_t n,
                        uint32_t step)
{
    begin_lock(lock, k);
    for (uint32_t i = 0; i < n; i += step)
        mark_shard(lock, shard_number(keyspace_key(k, args[i]).hash));
    lock_marked(lock);
}

void keyspace_lock_all(struct keyspace_lock *lock, struct keyspace *k)
{
    begin_lock(lock, k);
    memset(lock->shards, 0xff, sizeof lock->shards);
    lock_marked(lock);
}

static void free_cleared(void *argument)
{
    struct node_table *tables = argument;
    for (unsigned i = 0; i < KEYSPACE_SHARDS; i++) {
        node_table_each(&tables[i], free_entry, NULL);
        node_table_fini(&tables[i]);
    }
    free(tables);
}

/* What was a key's set belongs to nobody now. While a folder is read, its own records say so. */
static void unbind(const struct keyspace *k, struct key_entry *e)
{
    if (e->type != KEY_VECTOR_SET || e->unbound || !e->set || !k->unbind || !k->journal)
        return;
    k->unbind(k->unbind_context, e->set);
    e->set = NULL;
}

static void unbind_node(void *context, struct table_node *node)
{
    unbind(context, keyspace_entry_of(node));
}

static void free_removed(void *argument)
{
    keyspace_entry_destroy(argument);
}

static void run_later(const struct keyspace *k, void (*run)(void *argument), void *argument)
{
    if (k->later)
        k->later(k->later_context, run, argument);
    else
        run(argument);
}

void keyspace_unlock(struct keyspace_lock *lock)
{
    const struct keyspace_follower *follower = lock->keyspace->follower;
    uint64_t lsn = 0;
    if (lock->in_batch) {
        if (journal_batch_end(lock->keyspace->journal, &lsn, NULL) == 0)
            lock->lsn = lsn;
        follower->end(follower->context);
    }
    for (unsigned w = 0; w < KEYSPACE_SHARDS / 64; w++)
        for (uint64_t rest = lock->shards[w]; rest; rest &= rest - 1)
            pthread_mutex_unlock(&lock->keyspace->shards[64 * w + (unsigned)__builtin_ctzll(rest)].lock);
    for (struct key_entry *e = lock->removed, *next; e; e = next) {
        next = keyspace_entry_of(e->node.next);
        unbind(lock->keyspace, e);
        if (e->type == KEY_HASH && e->hash && hash_count(e->hash) >= LONG_HASH)
            run_later(lock->keyspace, free_removed, e);
        else
            keyspace_entry_destroy(e);
    }
    for (unsigned i = 0; lock->cleared && i < KEYSPACE_SHARDS; i++)
        node_table_each(&lock->cleared[i], unbind_node, lock->keyspace);
    if (lock->cleared)
        run_later(lock->keyspace, free_cleared, lock->cleared);
}

uint64_t keyspace_now(struct keyspace_lock *lock)
{
    if (!lock->now_ms)
        lock->now_ms = lock->keyspace->clock_ms(lock->keyspace->clock_context);
    return lock->now_ms;
}

void keyspace_used(struct keyspace_lock *lock, struct key_entry *entry)
{
    entry->used_s = atomic_load_explicit(&lock->keyspace->second, memory_order_relaxed);
}

/* ---- the queue of expiries --------------------------------------------------------------------------------------- */

/* Space for one more. */
static int reserve_queue(struct shard *s, struct quire_error *err)
{
    return array_reserve(&s->queue, &s->queue_capacity, s->n_queue + 1) ? 0 : keyspace_no_memory(err);
}

static void note_next(struct shard *s)
{
    uint64_t next_ms = s->n_queue > 0 ? s->queue[0]->expire_ms : 0;
    atomic_store_explicit(&s->next_ms, next_ms, memory_order_relaxed);
}

static void leave_queue(struct shard *s, struct key_entry *e)
{
    assert(e->queue_at < s->n_queue && s->queue[e->queue_at] == e);
    expiries_remove(s->queue, s->n_queue--, e->queue_at);
    s->expiries_sum -= e->expire_ms;
    e->expire_ms = 0;
    note_next(s);
}

/* Space was reserved where it had no expiry before. */
static void set_expiry(struct shard *s, struct key_entry *e, uint64_t expire_ms)
{
    bool queued = e->expire_ms;
    if (!expire_ms) {
        if (queued)
            leave_queue(s, e);
        return;
    }
    s->expiries_sum += expire_ms;
    s->expiries_sum -= e->expire_ms;
    e->expire_ms = expire_ms;
    if (!queued) {
        expiries_push(s->queue, s->n_queue++, e);
    } else {
        expiries_rise(s->queue, e->queue_at);
        expiries_sink(s->queue, s->n_queue, e->queue_at);
    }
    note_next(s);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static struct key_entry *find_any(const struct keyspace_lock *lock, const struct key *key)
{
    unsigned shard = shard_number(key->hash);
    assert(lock->shards[shard / 64] >> shard % 64 & 1); /* it is locked */
    return keyspace_entry_of(
        node_table_find(&shard_of(lock->keyspace, key->hash)->table, key->data, key->bytes, key->hash));
}

void keyspace_entry_unlink(struct keyspace_lock *lock, struct key_entry *e)
{
    struct shard *s = shard_of(lock->keyspace, e->node.hash);
    const struct keyspace_follower *follower = lock->keyspace->follower;
    uint64_t before = node_table_bytes(&s->table) + keyspace_entry_bytes(e);
    if (follower)
        follower->gone(follower->context, e);
    if (e->expire_ms)
        leave_queue(s, e);
    node_table_remove(&s->table, &e->node);
    atomic_store_explicit(&s->n_keys, s->table.n, memory_order_relaxed);
    keyspace_account(lock->keyspace, before, node_table_bytes(&s->table));
    e->node.next = lock->removed ? &lock->removed->node : NULL;
    lock->removed = e;
}

static void stamp(struct keyspace_lock *lock, struct key_entry *e, uint64_t lsn)
{
    e->version = ++shard_of(lock->keyspace, e->node.hash)->version;
    e->lsn = lsn;
    e->restored = false;
    keyspace_used(lock, e);
    lock->lsn = lsn > lock->lsn ? lsn : lock->lsn;
}

/* The value is another than before. */
static void changed(struct keyspace_lock *lock, struct key_entry *e, uint64_t lsn)
{
    const struct keyspace_follower *follower = lock->keyspace->follower;
    stamp(lock, e, lsn);
    if (follower)
        follower->changed(follower->context, e);
}

/* Puts a fresh entry in its table, in place of what has its key; space in the queue was reserved. */
void keyspace_entry_link(struct keyspace_lock *lock, struct key_entry *fresh, uint64_t lsn)
{
    struct key key = {fresh->key, fresh->node.key_bytes, fresh->node.hash};
    struct shard *s = shard_of(lock->keyspace, key.hash);
    struct key_entry *old = find_any(lock, &key);
    uint64_t expire_ms = fresh->expire_ms;
    if (old)
        keyspace_entry_unlink(lock, old);
    uint64_t before = node_table_bytes(&s->table);
    node_table_insert(&s->table, &fresh->node);
    atomic_store_explicit(&s->n_keys, s->table.n, memory_order_relaxed);
    keyspace_account(lock->keyspace, before, node_table_bytes(&s->table) + keyspace_entry_bytes(fresh));
    fresh->expire_ms = 0;
    set_expiry(s, fresh, expire_ms);
    changed(lock, fresh, lsn);
}

/* Removes one whose time is over, and says so in the log. */
static int remove_over(struct keyspace_lock *lock, struct key_entry *e, struct quire_error *err)
{
    struct key_log log;
    uint64_t lsn = 0;
    keyspace_log_begin(&log, lock->keyspace);
    keyspace_log_delete(&log, arg_of(e));
    int rc = keyspace_commit(lock, &log, &lsn, err);
    if (rc < 0)
        return rc;
    keyspace_entry_unlink(lock, e);
    lock->lsn = lsn > lock->lsn ? lsn : lock->lsn;
    atomic_fetch_add_explicit(&lock->keyspace->expired, 1, memory_order_relaxed);
    return 0;
}

int keyspace_find_to_write(struct keyspace_lock *lock, const struct key *key, struct key_entry **out,
                           struct quire_error *err)
{
    struct key_entry *e = find_any(lock, key);
    int rc = 0;
    if (e && e->expire_ms && keyspace_entry_is_over(e, keyspace_now(lock))) {
        rc = remove_over(lock, e, err);
        e = NULL;
    }
    *out = e;
    return rc;
}

struct key_entry *keyspace_find(struct keyspace_lock *lock, const struct key *key)
{
    struct key_entry *e;
    return keyspace_find_to_write(lock, key, &e, NULL) == 0 ? e : NULL;
}

/* Whether who follows can take a value for the key. */
static int admit(const struct keyspace *k, const void *key, uint32_t key_bytes, struct quire_error *err)
{
    return k->follower ? k->follower->admit(k->follower->context, key, key_bytes, err) : 0;
}

/* ---- changes of strings ------------------------------------------------------------------------------------------ */

/* Space in the queue for an expiry that the entry (NULL: a new one) does not have yet. */
static int reserve_expiry(const struct keyspace_lock *lock, uint64_t hash, const struct key_entry *entry,
                          uint64_t expire_ms, struct quire_error *err)
{
    if (!expire_ms || (entry && entry->expire_ms))
        return 0;
    return reserve_queue(shard_of(lock->keyspace, hash), err);
}

/* The value takes the old one's place; *value gets that. */
static void swap_value(struct keyspace_lock *lock, struct key_entry *e, struct value **value)
{
    struct value *old = e->string;
    keyspace_account(lock->keyspace, old->capacity, (*value)->capacity);
    e->string = *value;
    *value = old;
}

/* The value is a string's, or a document, packed. */
static int set_value(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry, enum key_type type,
                     struct value *value, uint64_t expire_ms, struct quire_error *err)
{
    struct key_entry *same = entry && entry->type == type ? entry : NULL, *fresh = NULL;
    struct key_log log;
    uint64_t lsn = 0;
    int rc = type == KEY_JSON ? admit(lock->keyspace, key->data, key->bytes, err) : 0;
    if (rc == 0)
        rc = reserve_expiry(lock, key->hash, same, expire_ms, err);
    if (rc == 0 && !same && !(fresh = keyspace_entry_create(lock->keyspace, key, type)))
        rc = keyspace_no_memory(err);
    if (rc == 0) {
        keyspace_log_begin(&log, lock->keyspace);
        keyspace_log_bytes(&log, type, (struct resp_arg){key->data, key->bytes},
                           (struct resp_arg){value->data, value->bytes}, expire_ms);
        rc = keyspace_commit(lock, &log, &lsn, err);
    }
    if (rc == 0 && same) {
        swap_value(lock, same, &value);
        set_expiry(shard_of(lock->keyspace, key->hash), same, expire_ms);
        changed(lock, same, lsn);
    } else if (rc == 0) {
        fresh->string = value;
        fresh->expire_ms = expire_ms;
        keyspace_entry_link(lock, fresh, lsn);
        return 0;
    }
    free(fresh);
    keyspace_value_unref(value);
    return rc;
}

int keyspace_set_string(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry, struct value *value,
                        uint64_t expire_ms, struct quire_error *err)
{
    return set_value(lock, key, entry, KEY_STRING, value, expire_ms, err);
}

int keyspace_set_json(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry, struct value *value,
                      uint64_t expire_ms, struct quire_error *err)
{
    return set_value(lock, key, entry, KEY_JSON, value, expire_ms, err);
}

static void free_chain(struct key_entry *e)
{
    for (struct key_entry *next; e; e = next) {
        next = keyspace_entry_of(e->node.next);
        keyspace_entry_destroy(e);
    }
}

/* Fresh entries of n pairs, the last first; NULL without memory. */
static struct key_entry *make_values(const struct keyspace *k, enum key_type type, const struct resp_arg *pairs,
                                     uint32_t n_pairs)
{
    struct key_entry *first = NULL;
    for (uint32_t i = 0; i < n_pairs; i++) {
        struct key key = keyspace_key(k, pairs[2 * i]);
        struct key_entry *e = keyspace_entry_create(k, &key, type);
        if (e)
            e->string = keyspace_value_create(pairs[2 * i + 1].data, pairs[2 * i + 1].bytes, pairs[2 * i + 1].bytes);
        if (!e || !e->string) {
            free(e);
            free_chain(first);
            return NULL;
        }
        e->node.next = first ? &first->node : NULL;
        first = e;
    }
    return first;
}

/* Where a key has an expiry and documents are set, it is kept: the queue has space for what leaves it first. */
static uint64_t kept_expiry(const struct keyspace_lock *lock, enum key_type type, struct resp_arg name)
{
    struct key key = keyspace_key(lock->keyspace, name);
    const struct key_entry *old = type == KEY_JSON ? find_any(lock, &key) : NULL;
    return old ? old->expire_ms : 0;
}

static int set_values(struct keyspace_lock *lock, enum key_type type, const struct resp_arg *pairs, uint32_t n_pairs,
                      struct quire_error *err)
{
    struct key_entry *fresh = make_values(lock->keyspace, type, pairs, n_pairs), *in_order = NULL, *next;
    struct key_log log;
    uint64_t lsn = 0;
    if (!fresh)
        return keyspace_no_memory(err);
    keyspace_log_begin(&log, lock->keyspace);
    for (uint32_t i = 0; i < n_pairs; i++)
        keyspace_log_bytes(&log, type, pairs[2 * i], pairs[2 * i + 1], kept_expiry(lock, type, pairs[2 * i]));
    int rc = 0;
    for (uint32_t i = 0; i < n_pairs && rc == 0 && type == KEY_JSON; i++)
        rc = admit(lock->keyspace, pairs[2 * i].data, pairs[2 * i].bytes, err);
    if (rc == 0)
        rc = keyspace_commit(lock, &log, &lsn, err);
    else
        keyspace_log_abort(&log);
    if (rc < 0) {
        free_chain(fresh);
        return rc;
    }
    for (; fresh; fresh = next) {
        next = keyspace_entry_of(fresh->node.next);
        fresh->node.next = in_order ? &in_order->node : NULL;
        in_order = fresh;
    }
    for (; in_order; in_order = next) {
        next = keyspace_entry_of(in_order->node.next);
        in_order->expire_ms = kept_expiry(lock, type, arg_of(in_order));
        keyspace_entry_link(lock, in_order, lsn);
    }
    return 0;
}

int keyspace_set_strings(struct keyspace_lock *lock, const struct resp_arg *pairs, uint32_t n_pairs,
                         struct quire_error *err)
{
    return set_values(lock, KEY_STRING, pairs, n_pairs, err);
}

int keyspace_set_jsons(struct keyspace_lock *lock, const struct resp_arg *pairs, uint32_t n_pairs,
                       struct quire_error *err)
{
    return set_values(lock, KEY_JSON, pairs, n_pairs, err);
}

/* The entry's value where it may be written up to `bytes`, as nobody else reads it; otherwise a copy that may grow.
 * NULL without memory. */
static struct value *value_to_write(const struct key_entry *e, uint64_t bytes)
{
    struct value *own = e->string;
    uint64_t capacity = bytes > own->bytes ? bytes + bytes / 2 : own->bytes;
    if (atomic_load_explicit(&own->references, memory_order_acquire) == 1 && bytes <= own->capacity)
        return own;
    struct value *copy = keyspace_value_create(NULL, own->bytes, (uint32_t)(capacity < UINT32_MAX ? capacity : bytes));
    if (copy)
        memcpy(copy->data, own->data, own->bytes);
    return copy;
}

/* Commits the record in `log`, then writes at offset; what lies between the end and there becomes 0. */
static int write_at(struct keyspace_lock *lock, struct key_entry *e, uint32_t offset, struct resp_arg bytes,
                    struct key_log *log, struct quire_error *err)
{
    uint32_t end = offset + bytes.bytes;
    struct value *value = value_to_write(e, end);
    uint64_t lsn = 0;
    if (!value) {
        keyspace_log_abort(log);
        return keyspace_no_memory(err);
    }
    int rc = keyspace_commit(lock, log, &lsn, err);
    if (rc == 0) {
        if (offset > value->bytes)
            memset(value->data + value->bytes, 0, offset - value->bytes);
        if (bytes.bytes > 0)
            memcpy(value->data + offset, bytes.data, bytes.bytes);
        value->bytes = end > value->bytes ? end : value->bytes;
        if (value != e->string)
            swap_value(lock, e, &value);
        changed(lock, e, lsn);
    }
    if (value != e->string)
        keyspace_value_unref(value);
    return rc;
}

int keyspace_append(struct keyspace_lock *lock, struct key_entry *e, const void *bytes, uint32_t n,
                    struct quire_error *err)
{
    struct resp_arg more = {bytes, n};
    struct key_log log;
    keyspace_log_begin(&log, lock->keyspace);
    keyspace_log_append(&log, arg_of(e), more);
    return write_at(lock, e, e->string->bytes, more, &log, err);
}

int keyspace_write(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry, uint32_t offset,
                   struct resp_arg bytes, struct quire_error *err)
{
    struct key_log log;
    uint64_t lsn = 0;
    assert(bytes.bytes <= UINT32_MAX - offset);
    keyspace_log_begin(&log, lock->keyspace);
    keyspace_log_write(&log, (struct resp_arg){key->data, key->bytes}, offset, bytes);
    if (entry)
        return write_at(lock, entry, offset, bytes, &log, err);
    struct key_entry *e = keyspace_entry_create(lock->keyspace, key, KEY_STRING);
    if (e)
        e->string = keyspace_value_create(NULL, offset + bytes.bytes, offset + bytes.bytes);
    if (!e || !e->string) {
        keyspace_log_abort(&log);
        free(e);
        return keyspace_no_memory(err);
    }
    memset(e->string->data, 0, offset);
    if (bytes.bytes > 0)
        memcpy(e->string->data + offset, bytes.data, bytes.bytes);
    int rc = keyspace_commit(lock, &log, &lsn, err);
    if (rc == 0)
        keyspace_entry_link(lock, e, lsn);
    else
        free_chain(e);
    return rc;
}

/* ---- changes of hashes ------------------------------------------------------------------------------------------- */

int keyspace_hash_set(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry,
                      const struct resp_arg *pairs, uint32_t n_pairs, uint32_t *n_new, struct quire_error *err)
{
    struct key_entry *e = entry ? entry : keyspace_entry_create(lock->keyspace, key, KEY_HASH);
    struct hash_spare spare = {0};
    struct key_log log;
    if (e && !entry)
        e->hash = hash_create(lock->keyspace->seed);
    uint64_t lsn = 0, before = e ? keyspace_entry_bytes(e) : 0;
    int rc = e && e->hash && hash_reserve(e->hash, pairs, n_pairs, &spare) == 0 ? 0 : keyspace_no_memory(err);
    if (rc == 0)
        rc = admit(lock->keyspace, key->data, key->bytes, err);
    if (rc == 0) {
        keyspace_log_begin(&log, lock->keyspace);
        keyspace_log_hash_set(&log, (struct resp_arg){key->data, key->bytes}, pairs, n_pairs);
        rc = keyspace_commit(lock, &log, &lsn, err);
    }
    *n_new = 0;
    for (uint32_t i = 0; i < n_pairs && rc == 0; i++)
        *n_new += hash_set(e->hash, pairs[2 * i], pairs[2 * i + 1], &spare);
    hash_spare_end(&spare);
    if (entry)
        keyspace_account(lock->keyspace, before, keyspace_entry_bytes(e));
    if (rc < 0) {
        if (!entry && e)
            keyspace_entry_destroy(e);
        return rc;
    }
    if (entry)
        changed(lock, e, lsn);
    else
        keyspace_entry_link(lock, e, lsn);
    return 0;
}

int keyspace_hash_delete(struct keyspace_lock *lock, struct key_entry *e, const struct resp_arg *fields, uint32_t n,
                         uint32_t *n_gone, struct quire_error *err)
{
    uint64_t lsn = 0, before = keyspace_entry_bytes(e);
    struct key_log log;
    struct resp_arg value;
    bool any = false;
    *n_gone = 0;
    for (uint32_t i = 0; i < n && !any; i++)
        any = hash_get(e->hash, fields[i], &value);
    if (!any)
        return 0;
    keyspace_log_begin(&log, lock->keyspace);
    keyspace_log_hash_delete(&log, arg_of(e), fields, n);
    int rc = keyspace_commit(lock, &log, &lsn, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        *n_gone += hash_delete(e->hash, fields[i]);
    keyspace_account(lock->keyspace, before, keyspace_entry_bytes(e));
    changed(lock, e, lsn);
    if (hash_count(e->hash) == 0)
        keyspace_entry_unlink(lock, e);
    return 0;
}

void keyspace_touch(struct keyspace_lock *lock, struct key_entry *entry, uint64_t lsn)
{
    stamp(lock, entry, lsn);
}

/* ---- changes of keys --------------------------------------------------------------------------------------------- */

int keyspace_delete(struct keyspace_lock *lock, const struct resp_arg *keys, uint32_t n, uint32_t *n_gone,
                    struct quire_error *err)
{
    struct key_entry *e;
    struct key_log log;
    uint64_t lsn = 0;
    int rc = 0;
    *n_gone = 0;
    keyspace_log_begin(&log, lock->keyspace);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct key key = keyspace_key(lock->keyspace, keys[i]);
        rc = keyspace_find_to_write(lock, &key, &e, err);
        if (e)
            keyspace_log_delete(&log, keys[i]);
    }
    if (rc < 0)
        keyspace_log_abort(&log);
    else
        rc = keyspace_commit(lock, &log, &lsn, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        struct key key = keyspace_key(lock->keyspace, keys[i]);
        e = find_any(lock, &key);
        if (!e)
            continue;
        keyspace_entry_unlink(lock, e);
        (*n_gone)++;
    }
    lock->lsn = lsn > lock->lsn ? lsn : lock->lsn;
    return 0;
}

int keyspace_clear(struct keyspace_lock *lock, struct quire_error *err)
{
    struct keyspace *k = lock->keyspace;
    struct node_table *tables = malloc(KEYSPACE_SHARDS * sizeof *tables);
    struct key_log log;
    uint64_t lsn = 0;
    if (!tables)
        return keyspace_no_memory(err);
    keyspace_log_begin(&log, k);
    keyspace_log_flush(&log);
    int rc = keyspace_commit(lock, &log, &lsn, err);
    if (rc < 0) {
        free(tables);
        return rc;
    }
    for (unsigned i = 0; i < KEYSPACE_SHARDS; i++) {
        struct shard *s = &k->shards[i];
        tables[i] = s->table;
        node_table_init(&s->table, s->table.key_at);
        s->n_queue = 0;
        s->expiries_sum = 0;
        note_next(s);
        atomic_store_explicit(&s->n_keys, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&k->used_bytes, 0, memory_order_relaxed);
    if (k->follower)
        k->follower->cleared(k->follower->context);
    lock->cleared = tables;
    lock->lsn = lsn > lock->lsn ? lsn : lock->lsn;
    return 0;
}

int keyspace_expire(struct keyspace_lock *lock, struct key_entry *e, uint64_t expire_ms, struct quire_error *err)
{
    struct key_log log;
    uint64_t lsn = 0;
    if (expire_ms && expire_ms <= keyspace_now(lock)) {
        uint32_t n_gone;
        struct resp_arg key = arg_of(e);
        return keyspace_delete(lock, &key, 1, &n_gone, err);
    }
    int rc = reserve_expiry(lock, e->node.hash, e, expire_ms, err);
    if (rc < 0)
        return rc;
    keyspace_log_begin(&log, lock->keyspace);
    keyspace_log_expire(&log, arg_of(e), expire_ms);
    rc = keyspace_commit(lock, &log, &lsn, err);
    if (rc < 0)
        return rc;
    set_expiry(shard_of(lock->keyspace, e->node.hash), e, expire_ms);
    stamp(lock, e, lsn);
    return 0;
}

/* Logs that `to` has become what `from` is; with `moved` that `from` is gone, too. */
static int log_transfer(struct keyspace_lock *lock, const struct key *to, const struct key_entry *from, bool moved,
                        uint64_t *lsn, struct quire_error *err)
{
    struct resp_arg name = {to->data, to->bytes};
    struct key_log log;
    keyspace_log_begin(&log, lock->keyspace);
    if (find_any(lock, to))
        keyspace_log_delete(&log, name);
    keyspace_log_entry(&log, name, from, false);
    if (moved)
        keyspace_log_delete(&log, arg_of(from));
    return keyspace_commit(lock, &log, lsn, err);
}

int keyspace_rename(struct keyspace_lock *lock, struct key_entry *e, const struct key *to, struct quire_error *err)
{
    uint64_t lsn = 0, expire_ms = e->expire_ms;
    struct key_entry *fresh = keyspace_entry_create(lock->keyspace, to, e->type);
    int rc = fresh ? reserve_expiry(lock, to->hash, NULL, expire_ms, err) : keyspace_no_memory(err);
    if (rc == 0)
        rc = log_transfer(lock, to, e, true, &lsn, err);
    if (rc < 0) {
        free(fresh);
        return rc;
    }
    keyspace_entry_unlink(lock, e);
    switch ((enum key_type)e->type) {
    case KEY_STRING:
    case KEY_JSON:
        fresh->string = e->string;
        e->string = NULL;
        break;
    case KEY_HASH:
        fresh->hash = e->hash;
        e->hash = NULL;
        hash_keep_all(fresh->hash); /* what had them has them under the old key */
        break;
    case KEY_VECTOR_SET:
        fresh->uid = e->uid; /* or set: as large */
        fresh->unbound = e->unbound;
        e->uid = 0;
        e->set = NULL;
        e->unbound = false;
        break;
    }
    fresh->expire_ms = expire_ms;
    keyspace_entry_link(lock, fresh, lsn);
    return 0;
}

/* The entry, which is in no table yet, gets the key in the place of whatever was there. Destroyed on failure. */
static int put_entry(struct keyspace_lock *lock, const struct key *to, struct key_entry *fresh, struct quire_error *err)
{
    uint64_t lsn = 0;
    int rc = reserve_expiry(lock, to->hash, NULL, fresh->expire_ms, err);
    if (rc == 0)
        rc = log_transfer(lock, to, fresh, false, &lsn, err);
    if (rc == 0)
        keyspace_entry_link(lock, fresh, lsn);
    else
        keyspace_entry_destroy(fresh);
    return rc;
}

int keyspace_copy(struct keyspace_lock *lock, const struct key_entry *e, const struct key *to, struct quire_error *err)
{
    assert(e->type != KEY_VECTOR_SET);
    struct key_entry *fresh = keyspace_entry_create(lock->keyspace, to, e->type);
    if (!fresh)
        return keyspace_no_memory(err);
    if (keyspace_has_bytes(e->type))
        fresh->string = keyspace_value_create(e->string->data, e->string->bytes, e->string->bytes);
    else
        fresh->hash = hash_copy(e->hash);
    fresh->expire_ms = e->expire_ms;
    if (keyspace_has_bytes(e->type) ? fresh->string != NULL : fresh->hash != NULL)
        return put_entry(lock, to, fresh, err);
    keyspace_entry_destroy(fresh);
    return keyspace_no_memory(err);
}

int keyspace_put(struct keyspace_lock *lock, const struct key *key, const struct key_value *value, uint64_t expire_ms,
                 struct quire_error *err)
{
    struct key_entry *fresh = keyspace_entry_create(lock->keyspace, key, value->type);
    if (!fresh) {
        keyspace_release(value);
        return keyspace_no_memory(err);
    }
    fresh->expire_ms = expire_ms;
    if (keyspace_has_bytes(value->type))
        fresh->string = value->string;
    else if (value->type == KEY_HASH)
        fresh->hash = value->hash;
    else
        fresh->set = value->set;
    return put_entry(lock, key, fresh, err);
}

/* ---- what is due ------------------------------------------------------------------------------------------------- */

void keyspace_expire_due(struct keyspace *k, unsigned first, unsigned step, unsigned *next, uint64_t budget_us)
{
    uint64_t end_us = clock_us() + budget_us, now_ms = k->clock_ms(k->clock_context);
    if (first >= KEYSPACE_SHARDS || atomic_load_explicit(&k->keeps_expired, memory_order_relaxed))
        return;
    for (unsigned done = 0; done <= (KEYSPACE_SHARDS - 1 - first) / step; done++) {
        unsigned shard = first + *next * step;
        struct shard *s = &k->shards[shard];
        uint64_t next_ms = atomic_load_explicit(&s->next_ms, memory_order_relaxed);
        bool more = next_ms > 0 && next_ms <= now_ms;
        /* some at a time, so that nobody waits long for the shard */
        while (more && clock_us() < end_us) {
            struct keyspace_lock lock;
            int rc = 0, n = 0;
            keyspace_lock_shard(&lock, k, shard);
            for (; rc == 0 && n < DUE_PER_LOCK && s->n_queue > 0; n += rc == 0) {
                if (!keyspace_entry_is_over(s->queue[0], keyspace_now(&lock)))
                    break;
                rc = remove_over(&lock, s->queue[0], NULL);
            }
            keyspace_unlock(&lock);
            if (rc < 0)
                return;
            more = n == DUE_PER_LOCK;
        }
        if (more)
            return;
        *next = shard + step < KEYSPACE_SHARDS ? *next + 1 : 0;
    }
}
