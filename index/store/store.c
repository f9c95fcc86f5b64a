/*
 * store.c - the collections of a data folder: found by uid, made, dropped; what they take, and who is refused.
 *
 * The table is a hash of uids with chains through the collections, under one mutex that nobody holds over the disk.
 *
 * What collections take is not added up by every write. Each collection remembers what it was counted with, the store
 * the sums; whoever changes much (a seal, a merge) or looks after it (maintenance, several times a second while there
 * are writes) counts it again and corrects the sums by the difference. Admission then reads three atomic words. It may
 * be late by what is written between two counts: some megabytes.
 *
 * Files of parts are removed by maintenance, never where the last reference happened to go (that may be a lane), and
 * only after a sync of the journal: the record by which a part went must be on the disk before its files go, whatever
 * appendfsync says. A part has its `gone` set when it has left its view for good, so parts that are released because
 * the store closes keep their files. Its memory is given back by maintenance as well, once the lanes have let go of the
 * segment, and so is that of sealed memtables: to unmap a gigabyte takes longer than a search may wait.
 */
#include "index/attribute/attribute_schema.h"
#include "index/memtable/memtable.h"
#include "index/store/store_priv.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 64u
#define MIB         (1u << 20)
/* Of memtables, beyond their limit: what is written until writers see that they must wait. */
#define BACKLOG_SLACK (32ull * MIB)
#define UNWRITTEN_MAX (32ull * MIB) /* of the log; writers wait beyond it */
#define DELAY_MIN_US  50u

void store_fill_defaults(struct store_options *o)
{
    if (o->fs == NULL)
        o->fs = fs_real();
    if (o->memtable_bytes == 0)
        o->memtable_bytes = 64 * MIB;
    if (o->build_memory_bytes == 0)
        o->build_memory_bytes = 256 * MIB;
    if (o->segments_max == 0)
        o->segments_max = 12;
    if (o->threads == 0)
        o->threads = 1;
    if (o->checkpoint_bytes == 0)
        o->checkpoint_bytes = 256ull * MIB;
}

uint64_t store_now_ms(void)
{
    return clock_us() / 1000;
}

void store_log(struct store *store, bool warning, const char *format, ...)
{
    char line[640];
    va_list arguments;
    if (!store->host.log)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    store->host.log(store->host.context, warning, line);
}

struct journal *store_journal(struct store *store)
{
    return store->journal;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static struct collection **bucket_of(const struct store *store, uint64_t uid)
{
    return &store->buckets[(uid * 0x9e3779b97f4a7c15ull >> 32) & (store->n_buckets - 1)];
}

struct collection *store_lookup(const struct store *store, uint64_t uid)
{
    if (store->n_buckets == 0)
        return NULL;
    struct collection *c = *bucket_of(store, uid);
    while (c && collection_uid(c) != uid)
        c = store_upkeep(c)->next;
    return c;
}

static int grow_table(struct store *store)
{
    uint32_t n = store->n_buckets ? 2 * store->n_buckets : BUCKETS_MIN, old = store->n_buckets;
    struct collection **before = store->buckets, **after = calloc(n, sizeof(struct collection *));
    if (!after)
        return QUIRE_ENOMEM;
    store->buckets = after;
    store->n_buckets = n;
    for (uint32_t i = 0; i < old; i++)
        for (struct collection *c = before[i], *next; c; c = next) {
            struct collection **bucket = bucket_of(store, collection_uid(c));
            next = store_upkeep(c)->next;
            store_upkeep(c)->next = *bucket;
            *bucket = c;
        }
    free(before);
    return 0;
}

/* (lock) */
static int add_locked(struct store *store, struct collection *collection)
{
    if (store->n_collections >= store->n_buckets) {
        int rc = grow_table(store);
        if (rc < 0 && store->n_buckets == 0)
            return rc;
    }
    assert(lock_is_held(&store->lock) && !store_lookup(store, collection_uid(collection)));
    struct collection **bucket = bucket_of(store, collection_uid(collection));
    store_upkeep(collection)->next = *bucket;
    *bucket = collection;
    store->n_collections++;
    if (collection_uid(collection) >= store->next_collection)
        store->next_collection = collection_uid(collection) + 1;
    return 0;
}

int store_add(struct store *store, struct collection *collection, struct quire_error *err)
{
    pthread_mutex_lock(&store->lock);
    int rc = add_locked(store, collection);
    pthread_mutex_unlock(&store->lock);
    return rc < 0 ? error_set(err, rc, "no memory for collection %llu", (unsigned long long)collection_uid(collection))
                  : 0;
}

/* (lock) Adds what a collection was counted with to the sums, or takes it away. */
static void add_counted(struct store *store, const struct upkeep *u, bool add)
{
    uint64_t sign = add ? 1 : UINT64_MAX; /* modulo 2^64 */
    uint32_t sign32 = (uint32_t)sign;
    assert(lock_is_held(&store->lock));
    store->memtable_bytes += sign * u->counted.memtable_bytes;
    store->resident_bytes += sign * u->counted.resident_bytes;
    store->segment_bytes += sign * u->counted.disk_bytes;
    store->n_segments += sign * u->counted.n_parts;
    store->delay_us += sign * u->counted.delay_us;
    store->n_due[0] += sign32 * ((u->due & BUSY_SEAL) != 0);
    store->n_due[1] += sign32 * ((u->due & BUSY_MERGE) != 0);
    assert(store->n_due[0] <= store->n_collections && store->n_due[1] <= store->n_collections);
    assert(store->delay_us <= (uint64_t)store->n_collections * STORE_DELAY_MAX_US);
}

/* (lock) */
static void take_out_locked(struct store *store, struct collection *collection)
{
    struct upkeep *u = store_upkeep(collection);
    assert(lock_is_held(&store->lock) && store->n_collections > 0);
    struct collection **place = bucket_of(store, collection_uid(collection));
    while (*place != collection)
        place = &store_upkeep(*place)->next;
    *place = u->next;
    u->next = NULL;
    add_counted(store, u, false);
    store->n_collections--;
    store->n_unavailable -= collection_available(collection, NULL) < 0;
    memset(&u->counted, 0, sizeof u->counted);
    u->due = 0;
    atomic_store(&u->backlog, BACKLOG_NONE);
    assert(!store_lookup(store, collection_uid(collection)));
}

void store_take_out(struct store *store, struct collection *collection)
{
    pthread_mutex_lock(&store->lock);
    take_out_locked(store, collection);
    pthread_mutex_unlock(&store->lock);
}

struct collection *store_find(struct store *store, uint64_t uid)
{
    pthread_mutex_lock(&store->lock);
    struct collection *c = store_lookup(store, uid);
    if (c)
        collection_ref(c);
    pthread_mutex_unlock(&store->lock);
    return c;
}

int store_list(struct store *store, struct collection ***out, uint32_t *n, struct quire_error *err)
{
    pthread_mutex_lock(&store->lock);
    struct collection **list = malloc(memory_size_mul(store->n_collections + 1u, sizeof(struct collection *)));
    uint32_t count = 0;
    for (uint32_t i = 0; list && i < store->n_buckets; i++)
        for (struct collection *c = store->buckets[i]; c; c = store_upkeep(c)->next)
            list[count++] = collection_ref(c);
    pthread_mutex_unlock(&store->lock);
    if (!list)
        return error_set(err, QUIRE_ENOMEM, "no memory for a list of all collections");
    *out = list;
    *n = count;
    return 0;
}

void store_list_free(struct collection **list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        collection_unref(list[i]);
    free(list);
}

void store_each(struct store *store, void (*visit)(void *context, struct collection *collection), void *context)
{
    struct collection **list = NULL;
    uint32_t n = 0;
    if (store_list(store, &list, &n, NULL) < 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        visit(context, list[i]);
    store_list_free(list, n);
}

uint64_t store_new_segment(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    uint64_t uid = store->next_segment++;
    pthread_mutex_unlock(&store->lock);
    return uid;
}

char *store_segment_path(const struct store *store, uint64_t uid)
{
    char *path;
    return asprintf(&path, "%s/%llu", store->segments, (unsigned long long)uid) < 0 ? NULL : path;
}

/* ---- making and dropping ----------------------------------------------------------------------------------------- */

int store_create_collection(struct store *store, const struct collection_config *config,
                            const struct attribute_schema *schema, struct collection **out, uint64_t *lsn,
                            struct quire_error *err)
{
    struct collection_config checked = *config;
    struct attribute_schema *copy = NULL;
    struct collection *c = NULL;
    int rc = collection_config_validate(&checked, err);
    if (rc == 0)
        rc = attribute_schema_create(schema ? schema->columns : NULL, schema ? schema->n : 0, &copy, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&store->lock);
    uint64_t uid = store->next_collection++;
    pthread_mutex_unlock(&store->lock);
    rc = collection_create(&store->as_host, sizeof(struct upkeep), uid, &checked, copy, 0, &c, err);
    if (rc < 0) {
        attribute_schema_destroy(copy);
        return rc;
    }
    collection_ref(c); /* one is the table's, one the caller's */
    /* the record that makes it, then the table: who reads the log finds it before all that is written about it */
    pthread_mutex_lock(&store->lock);
    rc = add_locked(store, c);
    if (rc < 0) {
        error_set(err, rc, "no memory for another collection");
    } else {
        rc = collection_log_create(c, lsn, err);
        if (rc < 0)
            take_out_locked(store, c);
    }
    pthread_mutex_unlock(&store->lock);
    if (rc < 0) {
        collection_unref(c);
        collection_unref(c);
        return rc;
    }
    *out = c;
    return 0;
}

int store_drop_collection(struct store *store, struct collection *collection, uint64_t *lsn, struct quire_error *err)
{
    pthread_mutex_lock(&store->lock);
    int rc = collection_log_drop(collection, lsn, err);
    if (rc == 0) { /* its view is the last one */
        struct view *view = collection_view(collection);
        for (uint32_t i = 0; i < view->n_parts; i++)
            store_mark_removed(store, view->parts[i]);
        for (uint32_t i = 0; i < view->n_memtables; i++)
            store_mark_table_removed(store, view->memtables[i]);
        view_unref(view);
        take_out_locked(store, collection);
    }
    pthread_mutex_unlock(&store->lock);
    if (rc == 0)
        collection_unref(collection);
    return rc;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

bool store_claim(struct store *store, struct collection *collection, unsigned bits, bool wait)
{
    pthread_mutex_lock(&store->lock);
    while (wait && (store_upkeep(collection)->busy & bits))
        pthread_cond_wait(&store->changed, &store->lock);
    bool claimed = !(store_upkeep(collection)->busy & bits);
    if (claimed)
        store_upkeep(collection)->busy |= bits;
    pthread_mutex_unlock(&store->lock);
    return claimed;
}

void store_release(struct store *store, struct collection *collection, unsigned bits)
{
    pthread_mutex_lock(&store->lock);
    assert((store_upkeep(collection)->busy & bits) == bits); /* claimed, and by the caller */
    store_upkeep(collection)->busy &= ~bits;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

/* ---- files that go ----------------------------------------------------------------------------------------------- */

/* Wherever the last reference goes: maintenance takes over. */
static void part_gone(void *context, struct part *part)
{
    struct store *store = context;
    pthread_mutex_lock(&store->wake_lock);
    part->next_gone = store->garbage;
    store->garbage = part;
    store->n_wakes++;
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->wake_lock);
}

static void table_gone(void *context, struct memtable_ref *table)
{
    struct store *store = context;
    pthread_mutex_lock(&store->wake_lock);
    table->next_gone = store->sealed_away;
    store->sealed_away = table;
    store->n_wakes++;
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->wake_lock);
}

void store_mark_removed(struct store *store, struct part *part)
{
    assert(!part->gone || part->gone == part_gone);
    part->context = store;
    part->gone = part_gone;
}

void store_mark_table_removed(struct store *store, struct memtable_ref *table)
{
    assert(!table->gone);
    table->context = store;
    table->gone = table_gone;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* A memtable goes on to grow while an older one is sealed. */
static uint64_t backlog_max(const struct store_options *o)
{
    return 4 * o->memtable_bytes + BACKLOG_SLACK;
}

/* How long writers wait for so many bytes of memtables, beyond the soft limit: with the square of the way to the hard
 * one, so that they find the pace of the seals somewhere between, whatever their number. */
static uint32_t memtables_delay_us(const struct store_options *o, uint64_t bytes)
{
    uint64_t soft = 2 * o->memtable_bytes, hard = backlog_max(o);
    assert(bytes > soft && soft < hard);
    double way = bytes < hard ? (double)(bytes - soft) / (double)(hard - soft) : 1;
    uint32_t us = (uint32_t)(way * way * STORE_DELAY_MAX_US);
    return us > DELAY_MIN_US ? us : DELAY_MIN_US;
}

static unsigned backlog_of(const struct store *store, const struct upkeep *u)
{
    const struct store_options *o = &store->options;
    if (u->counted.n_parts > 2 * o->segments_max)
        return BACKLOG_SEGMENTS;
    if (u->counted.memtable_bytes > backlog_max(o))
        return BACKLOG_MEMTABLES;
    bool behind = (u->due & BUSY_SEAL) && u->counted.memtable_bytes > 2 * o->memtable_bytes;
    return behind || u->counted.n_parts > o->segments_max ? BACKLOG_SOFT : BACKLOG_NONE;
}

/* Too many segments are too many for minutes: writers wait as long as they may at once. */
static uint32_t delay_of(const struct store *store, const struct upkeep *u, unsigned backlog)
{
    const struct store_options *o = &store->options;
    if (backlog == BACKLOG_NONE)
        return 0;
    bool many = u->counted.n_parts > o->segments_max;
    return many ? STORE_DELAY_MAX_US : memtables_delay_us(o, u->counted.memtable_bytes);
}

void store_count(struct store *store, struct collection *c)
{
    bool flags[UINT8_MAX];
    struct upkeep *u = store_upkeep(c);
    struct view *view = collection_view(c);
    bool available = collection_available(c, NULL) == 0; /* otherwise nothing is done with it */
    bool writes = available && !lineage_is_replica(c);   /* a copy gets what its leader seals and merges */
    unsigned due = writes && store_seal_is_due(store, view) ? BUSY_SEAL : 0;
    if (writes && (view->n_parts >= sizeof flags || store_plan_merge(view, flags) > 0))
        due |= BUSY_MERGE;
    pthread_mutex_lock(&store->lock);
    if (store_lookup(store, collection_uid(c)) == c) { /* not dropped */
        add_counted(store, u, false);
        memset(&u->counted, 0, sizeof u->counted);
        for (uint32_t i = 0; i < view->n_memtables; i++) {
            struct memtable_stats stats;
            memtable_get_stats(view->memtables[i]->memtable, &stats);
            u->counted.memtable_bytes += stats.bytes;
            u->counted.memtable_rows += available ? stats.rows : 0;
        }
        for (uint32_t i = 0; i < view->n_parts; i++) {
            u->counted.resident_bytes += part_bytes(view->parts[i]);
            if (view->parts[i]->segment)
                u->counted.disk_bytes += segment_info(view->parts[i]->segment)->index_bytes;
        }
        u->counted.n_parts = available ? view->n_parts : 0;
        u->due = due;
        unsigned backlog = backlog_of(store, u);
        u->counted.delay_us = delay_of(store, u, backlog);
        atomic_store(&u->backlog, backlog);
        add_counted(store, u, true);
    }
    pthread_mutex_unlock(&store->lock);
    view_unref(view);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

void store_apply_limits(struct store *store)
{
    uint64_t memory_max = atomic_load(&store->memory_max), disk_max = atomic_load(&store->disk_max);
    struct journal_stats journal;
    journal_get_stats(store->journal, &journal);
    pthread_mutex_lock(&store->lock);
    uint64_t memory = store->memtable_bytes + store->resident_bytes;
    uint64_t disk = store->segment_bytes + journal.log_bytes + journal.checkpoint_bytes;
    uint64_t delay_us = store->delay_us < STORE_DELAY_MAX_US ? store->delay_us : STORE_DELAY_MAX_US;
    pthread_mutex_unlock(&store->lock);
    unsigned refusal =
        (memory_max && memory > memory_max ? REFUSE_MEMORY : 0u) | (disk_max && disk > disk_max ? REFUSE_DISK : 0u);
    atomic_store(&store->memory_used, memory);
    atomic_store(&store->disk_used, disk);
    atomic_store(&store->refusal, refusal);
    bool log_is_behind = journal.unwritten_bytes > UNWRITTEN_MAX;
    atomic_store(&store->writers_delay_us, log_is_behind ? STORE_DELAY_MAX_US : (uint32_t)delay_us);
}

void store_set_limits(struct store *store, uint64_t memory_bytes, uint64_t disk_bytes)
{
    atomic_store(&store->memory_max, memory_bytes);
    atomic_store(&store->disk_max, disk_bytes);
    store_apply_limits(store);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / MIB;
}

static int admit(void *context, const struct collection *collection, struct quire_error *err)
{
    struct store *store = context;
    const struct store_options *o = &store->options;
    unsigned refusal = atomic_load_explicit(&store->refusal, memory_order_relaxed);
    unsigned backlog = atomic_load_explicit(&store_upkeep(collection)->backlog, memory_order_relaxed);
    if (refusal & REFUSE_MEMORY)
        return error_set(err, QUIRE_ENOMEM,
                         "vectors take %.1f MiB of memory and maxmemory is %.1f MiB: remove elements, or raise it",
                         mib(atomic_load(&store->memory_used)), mib(atomic_load(&store->memory_max)));
    if (refusal & REFUSE_DISK)
        return error_set(err, QUIRE_ELIMIT,
                         "the data folder takes %.1f MiB and its quota is %.1f MiB: remove elements and wait for a "
                         "merge, or raise the quota",
                         mib(atomic_load(&store->disk_used)), mib(atomic_load(&store->disk_max)));
    if (backlog == BACKLOG_SEGMENTS)
        return error_set(err, QUIRE_ELIMIT,
                         "more than %u segments of this set wait to be merged, twice the limit of %u: write more "
                         "slowly, or raise the limit",
                         2 * o->segments_max, o->segments_max);
    if (backlog == BACKLOG_MEMTABLES)
        return error_set(
            err, QUIRE_ELIMIT,
            "more than %.1f MiB of this set's elements wait in memory to be written to a segment, which is "
            "done at %.1f MiB: write more slowly, or look in the log for why they are not written",
            mib(backlog_max(o)), mib(o->memtable_bytes));
    return journal_health(store->journal, err);
}

uint32_t store_delay_us(const struct store *store)
{
    return (uint32_t)atomic_load_explicit(&store->writers_delay_us, memory_order_relaxed);
}

bool store_is_behind(const struct store *store)
{
    return store_delay_us(store) > 0;
}

/* Called under the collection's lock, at every write perhaps: the second call before maintenance has looked is a flag
 * that is set already. */
void store_wake(struct store *store, struct collection *collection)
{
    pthread_mutex_lock(&store->wake_lock);
    if (!store_upkeep(collection)->woken && !atomic_load(&store->stopping)) {
        store_upkeep(collection)->woken = true;
        store_upkeep(collection)->next_woken = store->woken;
        store->woken = collection_ref(collection);
        store->n_wakes++;
        pthread_cond_broadcast(&store->wake);
    }
    pthread_mutex_unlock(&store->wake_lock);
}

/* What maintenance would find when it looks: it may be late, with every processor busy writing. */
static void note_memtable(void *context, struct collection *collection, uint32_t rows, uint64_t bytes)
{
    struct store *store = context;
    const struct store_options *o = &store->options;
    if (bytes <= o->memtable_bytes || rows < SEAL_ROWS_MIN)
        return;
    if (bytes > 2 * o->memtable_bytes) {
        uint32_t delay_us = memtables_delay_us(o, bytes);
        atomic_store_explicit(&store_upkeep(collection)->backlog,
                              bytes > backlog_max(o) ? BACKLOG_MEMTABLES : BACKLOG_SOFT, memory_order_relaxed);
        if (store_delay_us(store) < delay_us)
            atomic_store_explicit(&store->writers_delay_us, delay_us, memory_order_relaxed);
    }
    store_wake(store, collection);
}

static void wake(void *context, struct collection *collection)
{
    store_wake(context, collection);
}

static void effect(void *context, struct collection *collection, const struct effect *what)
{
    const struct store *store = context;
    store->host.effect(store->host.context, collection, what);
}

static uint64_t new_segment(void *context)
{
    return store_new_segment(context);
}

void store_init_host(struct store *store)
{
    store->as_host = (struct collection_host){.epochs = store->epochs,
                                              .admit = admit,
                                              .wake = wake,
                                              .note_memtable = note_memtable,
                                              .effect = store->host.effect ? effect : NULL,
                                              .new_segment = new_segment,
                                              .context = store};
}

void store_signal(struct store *store)
{
    pthread_mutex_lock(&store->wake_lock);
    store->n_wakes++;
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->wake_lock);
}

void store_get_stats(const struct store *store, struct store_stats *out)
{
    struct store *s = (struct store *)(uintptr_t)store; /* its lock changes */
    struct journal_stats journal;
    journal_get_stats(s->journal, &journal);
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->collections = s->n_collections;
    out->unavailable = s->n_unavailable;
    out->memtable_bytes = s->memtable_bytes;
    out->resident_bytes = s->resident_bytes;
    out->segments = s->n_segments;
    out->disk_bytes = s->segment_bytes + journal.log_bytes + journal.checkpoint_bytes;
    pthread_mutex_unlock(&s->lock);
}
