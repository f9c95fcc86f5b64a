/*
 * module_item.c - collections and caches by their ids, and what the store remembers of them.
 *
 * In the store a collection is a set under the name of its id, so no RENAME, MOVE or SWAPDB of the engine changes
 * anything there. Beside it, under "!" and the same name, lies a small record: kind, state, and where its key was last.
 * With that a key can be given back that no RDB or AOF knows (it was made after the last save, or nothing is saved at
 * all), and one that was deleted is not.
 *
 *   record    u8 version 1, u8 kind, u8 state, u8 flags (1: a copy of a primary's), i32 database, u64 copies, the key
 *
 * A set without a record was never acknowledged: the record is logged before the reply of the command that makes the
 * set leaves. So it is removed at the start. What is GONE stays until nothing on the disk may bring its key back
 * (module_save.c decides), since a save older than the deletion names it.
 *
 * All is the main thread's, but for module_item_detach: values of a database that is flushed in the background are
 * freed on a thread of the engine's. Such items were marked before, when the flush was announced.
 */
#include "cache/core/cache.h"
#include "index/store/store.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal.h"
#include "module/base/module.h"
#include "server/keys/keyspace.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { BUCKETS = 4096, RECORD_VERSION = 1, RECORD_BYTES = 16, RECORD_NAME_BYTES = MODULE_NAME_BYTES + 1 };

struct module module_the;

static struct {
    struct module_item *buckets[BUCKETS];
    pthread_mutex_t lock; /* of `attached`, and: */
    bool unsettled;       /* one was detached on another thread */
    uint64_t mark;        /* how many have gone */
    uint64_t lsn;         /* of the last record */
} items = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- by name ----------------------------------------------------------------------------------------------------- */

static unsigned bucket_of(const char *name)
{
    unsigned at = 0;
    for (unsigned i = 0; i < 3; i++)
        at = at * 16 + (unsigned)(name[i] <= '9' ? name[i] - '0' : name[i] - 'a' + 10);
    return at % BUCKETS;
}

static bool is_name(const void *bytes, size_t n)
{
    const char *at = bytes;
    for (size_t i = 0; i < n; i++)
        if (!(at[i] >= '0' && at[i] <= '9') && !(at[i] >= 'a' && at[i] <= 'f'))
            return false;
    return n == MODULE_NAME_BYTES;
}

bool module_item_is_name(const void *bytes, size_t n)
{
    const char *at = bytes;
    return is_name(at, n) || (n == RECORD_NAME_BYTES && at[0] == '!' && is_name(at + 1, n - 1)) ||
           (n == strlen(MODULE_STORE_NAME) && memcmp(at, MODULE_STORE_NAME, n) == 0);
}

struct module_item *module_item_find(const char *name)
{
    if (!is_name(name, strlen(name)))
        return NULL;
    struct module_item *item = items.buckets[bucket_of(name)];
    while (item && strcmp(item->name, name) != 0)
        item = item->next;
    return item;
}

static int random_name(char name[MODULE_NAME_BYTES + 1], struct quire_error *err)
{
    uint8_t id[MODULE_ID_BYTES];
    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        return error_set(err, QUIRE_EIO, "the kernel gives no random numbers for the id of a collection");
    bytes_to_hex(id, sizeof id, name);
    return 0;
}

struct module_item *module_item_create(const char *name, enum module_kind kind, struct quire_error *err)
{
    struct module_item *item = calloc(1, sizeof *item);
    if (!item) {
        error_set(err, QUIRE_ENOMEM, "no memory for a key");
        return NULL;
    }
    if (name) {
        memcpy(item->name, name, sizeof item->name);
    } else if (random_name(item->name, err) < 0) {
        free(item);
        return NULL;
    }
    assert(!module_item_find(item->name));
    item->kind = kind;
    item->state = MODULE_LIVE;
    item->next = items.buckets[bucket_of(item->name)];
    items.buckets[bucket_of(item->name)] = item;
    return item;
}

void module_item_forget(struct module_item *item)
{
    struct module_item **at = &items.buckets[bucket_of(item->name)];
    assert(item->attached == 0);
    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    if (module_the.forget_copy)
        module_the.forget_copy(item);
    free(item->key);
    free(item);
}

void module_items_each(void (*visit)(void *context, struct module_item *item), void *context)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct module_item *item = items.buckets[i], *next; item; item = next) {
            next = item->next;
            visit(context, item);
        }
}

void module_item_place(struct module_item *item, int db, const char *key, size_t key_bytes)
{
    char *copy = malloc(key_bytes + 1);
    if (!copy)
        return; /* a key that is given back then has an older name */
    memcpy(copy, key, key_bytes);
    copy[key_bytes] = 0;
    free(item->key);
    item->key = copy;
    item->key_bytes = (uint32_t)key_bytes;
    item->db = db;
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

static struct resp_arg name_of(const struct module_item *item)
{
    return (struct resp_arg){(const uint8_t *)item->name, MODULE_NAME_BYTES};
}

static void record_name(const struct module_item *item, char out[RECORD_NAME_BYTES])
{
    out[0] = '!';
    memcpy(out + 1, item->name, MODULE_NAME_BYTES);
}

bool module_item_exists(const struct module_item *item)
{
    struct service *s = &module_the.service;
    if (item->kind == MODULE_SET)
        return keyspace_version(&s->keyspace, name_of(item), NULL) != 0;
    struct cache *cache = caches_find(s->caches, (struct quire_bytes){item->name, MODULE_NAME_BYTES});
    if (cache)
        cache_unref(cache);
    return cache != NULL;
}

static struct value *record_of(const struct module_item *item)
{
    struct value *value = keyspace_value_create(NULL, RECORD_BYTES + item->key_bytes, RECORD_BYTES + item->key_bytes);
    if (!value)
        return NULL;
    value->data[0] = RECORD_VERSION;
    value->data[1] = (uint8_t)item->kind;
    value->data[2] = (uint8_t)item->state;
    value->data[3] = item->is_copy;
    bytes_store_u32(value->data + 4, (uint32_t)item->db);
    bytes_store_u64(value->data + 8, item->copies);
    if (item->key_bytes)
        memcpy(value->data + RECORD_BYTES, item->key, item->key_bytes);
    return value;
}

int module_item_log(struct module_item *item, uint64_t *lsn, struct quire_error *err)
{
    struct lane *lane = &module_the.lanes[0].lane;
    struct keyspace *keyspace = &module_the.service.keyspace;
    struct keyspace_lock lock;
    struct key_entry *entry;
    char name[RECORD_NAME_BYTES];
    assert(item->state != MODULE_ABSENT);
    struct value *value = record_of(item);
    if (!value)
        return error_set(err, QUIRE_ENOMEM, "no memory for the record of a key");
    record_name(item, name);
    struct key key = keyspace_key(keyspace, (struct resp_arg){(const uint8_t *)name, sizeof name});
    lane_enter(lane);
    keyspace_lock_key(&lock, keyspace, &key);
    int rc = keyspace_find_to_write(&lock, &key, &entry, err);
    if (rc == 0)
        rc = keyspace_set_string(&lock, &key, entry, value, 0, err);
    else
        keyspace_value_unref(value);
    keyspace_unlock(&lock);
    lane_leave(lane);
    if (lsn && lock.lsn > *lsn)
        *lsn = lock.lsn;
    items.lsn = lock.lsn > items.lsn ? lock.lsn : items.lsn;
    return rc;
}

void module_items_sync(void)
{
    struct journal *journal = module_the.service.journal;
    struct quire_error err = {0};
    if (items.lsn == 0 || journal_durable_lsn(journal) >= items.lsn)
        return;
    if (journal_wait(journal, items.lsn, &err) < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "what became of keys is not on the disk yet: %s", err.message);
    items.lsn = 0;
}

/* What cannot be logged now is in the next record: the journal refuses all writes meanwhile. */
static void log_or_tell(struct module_item *item)
{
    struct quire_error err = {0};
    if (module_item_log(item, NULL, &err) < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING,
                 "what became of the key %.*s could not be logged, a restart may bring it back: %s",
                 (int)item->key_bytes, item->key ? item->key : "", err.message);
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

struct opening {
    char (*orphans)[MODULE_NAME_BYTES + 1]; /* sets without a record; owned */
    size_t n, capacity;
    bool failed;
};

static void take_record(void *context, const struct key_entry *entry)
{
    struct opening *o = context;
    struct quire_error err = {0};
    char name[MODULE_NAME_BYTES + 1];
    if (entry->type != KEY_STRING || entry->node.key_bytes != RECORD_NAME_BYTES || entry->key[0] != '!' ||
        !is_name(entry->key + 1, MODULE_NAME_BYTES))
        return;
    const struct value *value = entry->string;
    if (value->bytes < RECORD_BYTES || value->data[0] != RECORD_VERSION ||
        (value->data[1] != MODULE_SET && value->data[1] != MODULE_CACHE) || value->data[2] < MODULE_LIVE ||
        value->data[2] > MODULE_ENDED) {
        log_line(&module_the.log, LOG_LEVEL_WARNING, "the record %.*s is not of a version that this module knows",
                 RECORD_NAME_BYTES, (const char *)entry->key);
        o->failed = true;
        return;
    }
    memcpy(name, entry->key + 1, MODULE_NAME_BYTES);
    name[MODULE_NAME_BYTES] = 0;
    struct module_item *item = module_item_create(name, (enum module_kind)value->data[1], &err);
    if (!item) {
        o->failed = true;
        return;
    }
    item->state = (enum module_state)value->data[2];
    item->is_copy = value->data[3] & 1;
    item->copies = bytes_load_u64(value->data + 8);
    module_item_place(item, (int)bytes_load_u32(value->data + 4), (const char *)value->data + RECORD_BYTES,
                      value->bytes - RECORD_BYTES);
    if (item->state != MODULE_LIVE) {
        item->gone_ms = clock_us() / 1000;
        item->gone_mark = ++items.mark;
    }
}

static void note_orphan(struct opening *o, const void *name)
{
    if (o->n == o->capacity) {
        size_t more = o->capacity ? 2 * o->capacity : 16;
        void *grown = realloc(o->orphans, more * sizeof *o->orphans);
        if (!grown) {
            o->failed = true;
            return;
        }
        o->orphans = grown;
        o->capacity = more;
    }
    memcpy(o->orphans[o->n], name, MODULE_NAME_BYTES);
    o->orphans[o->n++][MODULE_NAME_BYTES] = 0;
}

static void find_orphan(void *context, const struct key_entry *entry)
{
    char name[MODULE_NAME_BYTES + 1];
    if (entry->type != KEY_VECTOR_SET || !is_name(entry->key, entry->node.key_bytes))
        return;
    memcpy(name, entry->key, MODULE_NAME_BYTES);
    name[MODULE_NAME_BYTES] = 0;
    if (!module_item_find(name))
        note_orphan(context, name);
}

static void find_orphan_cache(void *context, struct cache *cache)
{
    struct quire_bytes bytes = cache_get_config(cache)->name;
    char name[MODULE_NAME_BYTES + 1];
    if (!is_name(bytes.data, bytes.n_bytes))
        return;
    memcpy(name, bytes.data, MODULE_NAME_BYTES);
    name[MODULE_NAME_BYTES] = 0;
    if (!module_item_find(name))
        note_orphan(context, name);
}

static void remove_for_good(const char *name, enum module_kind kind)
{
    struct service *s = &module_the.service;
    struct lane *lane = &module_the.lanes[0].lane;
    struct keyspace_lock lock;
    struct quire_error err = {0};
    char record[RECORD_NAME_BYTES] = "!";
    uint32_t n_gone;
    uint64_t lsn;
    memcpy(record + 1, name, MODULE_NAME_BYTES);
    const struct resp_arg keys[] = {{(const uint8_t *)name, MODULE_NAME_BYTES},
                                    {(const uint8_t *)record, sizeof record}};
    lane_enter(lane);
    int rc =
        kind == MODULE_CACHE ? caches_drop(s->caches, (struct quire_bytes){name, MODULE_NAME_BYTES}, &lsn, &err) : 0;
    if (rc == 0 || rc == QUIRE_ENOTFOUND) {
        keyspace_lock_args(&lock, &s->keyspace, keys, 2, 1);
        rc = keyspace_delete(&lock, keys, 2, &n_gone, &err);
        keyspace_unlock(&lock);
    }
    lane_leave(lane);
    if (rc < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "the data of a key that is gone stays: %s", err.message);
}

int module_items_open(struct quire_error *err)
{
    struct service *s = &module_the.service;
    struct opening o = {.n = 0};
    keyspace_each(&s->keyspace, take_record, &o);
    if (!o.failed)
        keyspace_each(&s->keyspace, find_orphan, &o);
    size_t n_sets = o.n;
    if (!o.failed)
        caches_each(s->caches, find_orphan_cache, &o);
    for (size_t i = 0; !o.failed && i < o.n; i++)
        remove_for_good(o.orphans[i], i < n_sets ? MODULE_SET : MODULE_CACHE);
    if (o.n > 0 && !o.failed)
        log_line(&module_the.log, LOG_LEVEL_NOTICE, "%zu collections were begun and not acknowledged: removed", o.n);
    free(o.orphans);
    return o.failed
               ? error_set(err, QUIRE_EVERSION, "%s: its records of keys cannot be read, see the log", s->config->dir)
               : 0;
}

/* ---- attached, gone ---------------------------------------------------------------------------------------------- */

void module_item_hold(struct module_item *item)
{
    pthread_mutex_lock(&items.lock);
    item->attached++;
    pthread_mutex_unlock(&items.lock);
}

void module_item_attach(struct module_item *item)
{
    module_item_hold(item);
    item->seen = true;
    if (item->state == MODULE_GONE) {
        item->state = MODULE_LIVE;
        log_or_tell(item);
    }
}

static void go(struct module_item *item, enum module_state how)
{
    item->state = how;
    item->gone_ms = clock_us() / 1000;
    item->gone_mark = ++items.mark;
    log_or_tell(item);
}

static void settle_one(void *context, struct module_item *item)
{
    (void)context;
    pthread_mutex_lock(&items.lock);
    unsigned attached = item->attached;
    pthread_mutex_unlock(&items.lock);
    if (attached > 0)
        return;
    if (item->state == MODULE_ABSENT)
        module_item_forget(item);
    else if (item->state == MODULE_LIVE)
        go(item, MODULE_GONE);
}

void module_item_detach(struct module_item *item)
{
    bool here = module_is_main_thread();
    pthread_mutex_lock(&items.lock);
    assert(item->attached > 0);
    bool last = --item->attached == 0;
    items.unsettled |= last && !(here && module_the.loaded);
    pthread_mutex_unlock(&items.lock);
    if (last && here && module_the.loaded)
        settle_one(NULL, item);
}

void module_item_give_up(struct module_item *item)
{
    if (module_item_exists(item)) {
        module_item_detach(item); /* made, and no key could have it: as if that were deleted */
        return;
    }
    pthread_mutex_lock(&items.lock);
    item->attached--;
    pthread_mutex_unlock(&items.lock);
    module_item_forget(item);
}

void module_item_end(struct module_item *item)
{
    if (item->state == MODULE_LIVE)
        go(item, MODULE_ENDED);
}

void module_item_go(struct module_item *item)
{
    if (item->state == MODULE_LIVE)
        go(item, MODULE_GONE);
}

void module_items_settle(void)
{
    /* before the engine has read its files, LIVE ones have no key yet */
    if (!module_the.loaded)
        return;
    pthread_mutex_lock(&items.lock);
    bool unsettled = items.unsettled;
    items.unsettled = false;
    pthread_mutex_unlock(&items.lock);
    if (unsettled)
        module_items_each(settle_one, NULL);
}

void module_items_settle_all(void)
{
    module_items_each(settle_one, NULL);
}

static void flush_one(void *context, struct module_item *item)
{
    const int *db = context;
    if (item->state == MODULE_LIVE && item->attached > 0 && (*db < 0 || item->db == *db))
        go(item, MODULE_GONE);
}

void module_items_flush(int db)
{
    module_items_each(flush_one, &db);
}

static void swap_one(void *context, struct module_item *item)
{
    const int *dbs = context;
    if (item->state != MODULE_LIVE || (item->db != dbs[0] && item->db != dbs[1]))
        return;
    item->db = item->db == dbs[0] ? dbs[1] : dbs[0];
    log_or_tell(item);
}

void module_items_swap(int first, int second)
{
    int dbs[] = {first, second};
    module_items_each(swap_one, dbs);
}

/* ---- removal ----------------------------------------------------------------------------------------------------- */

struct dropping {
    uint64_t mark, before_ms;
    unsigned n;
};

static void drop_one(void *context, struct module_item *item)
{
    struct dropping *d = context;
    bool over = item->state == MODULE_GONE || item->state == MODULE_ENDED;
    pthread_mutex_lock(&items.lock);
    over = over && item->attached == 0;
    pthread_mutex_unlock(&items.lock);
    if (!over || (item->gone_mark > d->mark && item->gone_ms >= d->before_ms))
        return;
    remove_for_good(item->name, item->kind);
    module_item_forget(item);
    d->n++;
}

unsigned module_items_drop(uint64_t mark, uint64_t before_ms)
{
    struct dropping d = {mark, before_ms, 0};
    module_items_each(drop_one, &d);
    module_the.n_dropped += d.n;
    return d.n;
}

uint64_t module_items_mark(void)
{
    return items.mark;
}

static void count_over(void *context, struct module_item *item)
{
    *(unsigned *)context += item->state == MODULE_GONE || item->state == MODULE_ENDED;
}

unsigned module_items_n_over(void)
{
    unsigned n = 0;
    module_items_each(count_over, &n);
    return n;
}

/* ---- of keys ----------------------------------------------------------------------------------------------------- */

struct module_item *module_item_of_key(struct rm_ctx *ctx, struct rm_string *name, bool *other)
{
    struct rm_key *key = rm.open_key(ctx, name, RM_READ);
    struct module_item *item = NULL;
    *other = false;
    if (key) {
        if (rm.key_type(key) == RM_KEY_MODULE && rm.get_type(key) == module_the.type)
            item = rm.get_value(key);
        else
            *other = rm.key_type(key) != RM_KEY_EMPTY;
    }
    rm.close_key(key);
    return item;
}
