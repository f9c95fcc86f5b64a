/*
 * data.c - between the keyspace and the store: who belongs to whom.
 *
 * A key of type vectorset holds a reference to its collection; the journal binds them by the collection's number. While
 * the folder is read, keys know only that number, since a checkpoint may hold a key before its collection; when all has
 * been read they are bound, and collections that no key names (the process ended between the two records of a removal)
 * are dropped.
 *
 * A key that is removed leaves its collection to the worker, which drops it: that waits for the log and for files.
 *
 * Semantic caches are no keys. They share the folder and the journal: records of CACHE_KINDS and above are theirs.
 */
#include "server/call/data.h"
#include "index/segment/segment.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal.h"
#include "server/call/key_document.h"
#include "server/keys/keyspace_log.h"
#include "server/protocol/label.h"
#include <stdlib.h>
#include <string.h>

/* Of log and of keys, for a checkpoint when the server stops. */
#define LAST_LOG_BYTES_MIN  (32ull << 20)
#define LAST_KEYS_BYTES_MAX (1ull << 30)

/* ---- collections without keys ------------------------------------------------------------------------------------ */

struct drop {
    struct job job;
    struct service *service;
    struct collection *collection;
};

static void drop_now(struct service *s, struct collection *collection)
{
    struct quire_error err = {0};
    uint64_t lsn;
    if (store_drop_collection(s->store, collection, &lsn, &err) < 0)
        log_line(s->log, LOG_LEVEL_WARNING, "the collection of a removed key stays until the next start: %s",
                 err.message);
    collection_unref(collection);
}

static void drop_job(struct job *job)
{
    struct drop *d = (struct drop *)(void *)job;
    drop_now(d->service, d->collection);
    free(d);
}

static void on_unbind(void *context, struct collection *collection)
{
    struct service *s = context;
    struct drop *d = malloc(sizeof *d);
    if (!d) {
        drop_now(s, collection);
        return;
    }
    *d = (struct drop){{.run = drop_job}, s, collection};
    worker_post(&s->worker, &d->job);
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */

struct binding {
    struct service *service;
    uint64_t *uids; /* that keys name; owned */
    size_t n, capacity;
    struct collection *orphan; /* the next collection that no key names; a reference */
    bool failed;
};

static struct collection *find_bound(void *context, uint64_t uid)
{
    struct binding *b = context;
    if (!array_reserve(&b->uids, &b->capacity, b->n + 1)) {
        b->failed = true;
        return NULL;
    }
    b->uids[b->n++] = uid;
    return store_find(b->service->store, uid);
}

static void find_orphan(void *context, struct collection *collection)
{
    struct binding *b = context;
    uint64_t uid = collection_uid(collection);
    if (!b->orphan && !array_has_u64(b->uids, b->n, uid) && !documents_own(b->service->documents, uid))
        b->orphan = collection_ref(collection);
}

static int bind_keys(struct service *s, struct quire_error *err)
{
    struct binding b = {.service = s};
    keyspace_bind(&s->keyspace, find_bound, &b);
    array_sort_u64(b.uids, b.n);
    while (!b.failed) {
        b.orphan = NULL;
        store_each(s->store, find_orphan, &b);
        if (!b.orphan)
            break;
        log_line(s->log, LOG_LEVEL_NOTICE, "collection %llu has no key: removed",
                 (unsigned long long)collection_uid(b.orphan));
        drop_now(s, b.orphan);
    }
    free(b.uids);
    return b.failed ? error_set(err, QUIRE_ENOMEM, "no memory to bind keys to collections") : 0;
}

/* What the log says of keys whose sets cannot be used; the store has said why. */
static void name_unavailable(void *context, const struct key_entry *entry)
{
    struct service *s = context;
    char name[LABEL_BYTES];
    if (entry->type != KEY_VECTOR_SET || !entry->set || collection_available(entry->set, NULL) == 0)
        return;
    label_write((struct quire_bytes){entry->key, entry->node.key_bytes}, name);
    log_line(s->log, LOG_LEVEL_WARNING, "set %llu is the key %s: its commands answer DAMAGED",
             (unsigned long long)collection_uid(entry->set), name);
}

/* ---- indexes of documents ---------------------------------------------------------------------------------------- */

static void drop_index(void *argument)
{
    documents_drop_vectors(argument);
    document_index_unref(argument);
}

/* Files may be waited for. */
static void on_discard(void *context, struct document_index *index)
{
    service_run_later(context, drop_index, index);
}

int data_documents_given(struct service *s, uint64_t began_us, struct quire_error *err)
{
    int rc = documents_begun(s->documents, err);
    documents_on_discard(s->documents, on_discard, s);
    if (documents_count(s->documents) > 0)
        log_line(s->log, LOG_LEVEL_NOTICE, "%u indexes of documents, made in %.3f s", documents_count(s->documents),
                 (double)(clock_us() - began_us) / 1e6);
    return rc;
}

/* Indexes get their collections and all keys; what changes from now on they are told. */
static int begin_documents(struct service *s, struct quire_error *err)
{
    uint64_t began_us = clock_us();
    int rc = documents_begin(s->documents, s->store, err);
    if (rc < 0 || s->documents_come_later)
        return rc;
    key_document_give_all(s);
    rc = data_documents_given(s, began_us, err);
    key_document_follow(s);
    return rc;
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

static int restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct service *s = context;
    if (kind >= CACHE_KINDS)
        return caches_restore(s->caches, kind, lsn, bytes, n, err);
    if (kind >= DOCUMENT_KINDS)
        return documents_restore(s->documents, kind, lsn, bytes, n, err);
    return keyspace_restore(&s->keyspace, kind, lsn, bytes, n, err);
}

static int replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct service *s = context;
    if (kind >= CACHE_KINDS)
        return caches_replay(s->caches, kind, lsn, bytes, n, err);
    if (kind >= DOCUMENT_KINDS)
        return documents_replay(s->documents, kind, lsn, bytes, n, err);
    if (kind == KEY_LOG_FLUSH)
        documents_replay_flush(s->documents, lsn);
    return keyspace_replay(&s->keyspace, kind, lsn, bytes, n, err);
}

static int save(void *context, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct service *s = context;
    int rc = keyspace_save(&s->keyspace, checkpoint, err);
    if (rc == 0)
        rc = documents_save(s->documents, checkpoint, err);
    return rc == 0 ? caches_save(s->caches, checkpoint, err) : rc;
}

/* The worker has a place of its own in the gate. */
static void enter_gate(void *context)
{
    struct service *s = context;
    gate_enter(&s->gate, s->n_lanes);
}

static void leave_gate(void *context)
{
    struct service *s = context;
    gate_leave(&s->gate, s->n_lanes);
}

static void log_event(void *context, bool warning, const char *line)
{
    struct service *s = context;
    log_line(s->log, warning ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, "%s", line);
}

static void close_store(void *context)
{
    struct service *s = context;
    struct quire_error err = {0};
    if (store_close(s->store, &err) < 0)
        log_line(s->log, LOG_LEVEL_WARNING, "the last writes may be lost: %s", err.message);
    s->store = NULL;
}

void data_journal_set(struct service *s, struct journal *journal, void (*close_it)(void *context), void *context)
{
    s->journal = s->keyspace.journal = journal;
    s->journal_close = close_it;
    s->journal_context = context;
    journal_on_durable(journal, s->on_durable, s->durable_context);
}

int data_open(struct service *s, struct quire_error *err)
{
    const struct config *config = s->config;
    struct store_report report;
    struct store_host host = {.restore = restore,
                              .replay = replay,
                              .save = save,
                              .log = log_event,
                              .enter = enter_gate,
                              .leave = leave_gate,
                              .effect = s->on_effect,
                              .context = s};
    struct store_options options = {.sync = (enum journal_sync)config->appendfsync,
                                    .memtable_bytes = config->memtable_bytes,
                                    .memory_bytes = config->maxmemory,
                                    .segment_memory_bytes = config->memory,
                                    .disk_bytes = config->disk_max,
                                    .build_memory_bytes = config->build_memory,
                                    .segments_max = (unsigned)config->segments_max,
                                    .threads = (unsigned)config->build_threads,
                                    .checkpoint_bytes = config->checkpoint_bytes,
                                    .no_maintenance = true,
                                    .no_priorities = s->no_priorities};
    struct caches_options caches = {.folder = config->dir,
                                    .guard_folder = config->cache_guards[0] ? config->cache_guards : NULL,
                                    .log = log_event,
                                    .log_context = s,
                                    .told = s->on_told,
                                    .told_context = s,
                                    .seal_rows = (uint32_t)config->cache_seal_rows};
    int rc = documents_create(&s->documents, err);
    if (rc == 0 && config->dir[0] == 0)
        return begin_documents(s, err);
    if (rc == 0)
        rc = caches_create(&caches, &s->caches, err);
    if (rc == 0)
        rc = cache_scratch_create(&s->cache_scratch, err);
    if (rc < 0)
        return rc;
    rc = store_open(config->dir, &options, &host, &s->store, &report, err);
    if (rc < 0)
        return rc;
    s->keyspace.unbind = on_unbind;
    s->keyspace.unbind_context = s;
    log_line(
        s->log, LOG_LEVEL_NOTICE,
        "data folder %s: %llu collections, %llu elements, %llu segments; replayed %llu records (%llu bytes of log) "
        "in %.3f s%s",
        config->dir, (unsigned long long)report.collections, (unsigned long long)report.elements,
        (unsigned long long)report.segments, (unsigned long long)report.journal.records,
        (unsigned long long)report.journal.log_bytes, (double)report.duration_us / 1e6,
        report.journal.torn_bytes ? "; cut a torn end of the log" : "");
    data_journal_set(s, store_journal(s->store), close_store, s);
    rc = bind_keys(s, err);
    if (rc == 0 && report.unavailable)
        keyspace_each(&s->keyspace, name_unavailable, s);
    if (rc == 0)
        rc = begin_documents(s, err);
    if (rc == 0)
        rc = caches_begin(s->caches, store_journal(s->store), err);
    s->caches_begun = rc == 0;
    if (rc == 0 && s->on_opened)
        rc = s->on_opened(s, err);
    /* a checkpoint writes keys and caches: none before they are whole */
    return rc == 0 ? store_begin_maintenance(s->store, err) : rc;
}

/* ---- indexes made offline ---------------------------------------------------------------------------------------- */

/* The settings of a set that is made of an index. */
static int config_of(const struct segment_info *info, uint64_t memory_bytes, struct collection_config *out,
                     struct quire_error *err)
{
    *out = (struct collection_config){.dim = info->dim,
                                      .type = info->type,
                                      .metric = info->metric,
                                      .slot = info->slot,
                                      .block_bytes = info->block_bytes,
                                      .degree = info->degree,
                                      .build_beam = info->build_beam,
                                      .memory_bytes = memory_bytes ? memory_bytes : info->memory_bytes,
                                      .seed = info->seed,
                                      .index = info->index};
    return collection_config_validate(out, err);
}

static int bind_new(struct service *s, struct resp_arg name, struct collection *collection, uint64_t *lsn,
                    struct quire_error *err)
{
    struct keyspace_lock lock;
    struct key_entry *entry;
    struct key key = keyspace_key(&s->keyspace, name);
    enter_gate(s);
    keyspace_lock_key(&lock, &s->keyspace, &key);
    int rc = keyspace_find_to_write(&lock, &key, &entry, err);
    if (rc == 0 && entry)
        rc = error_set(err, QUIRE_EEXISTS, "Target key name already exists: it was made meanwhile");
    if (rc == 0 && (rc = keyspace_set_vectors(&lock, &key, collection, err)) == 0)
        collection_ref(collection); /* the key's */
    *lsn = lock.lsn > *lsn ? lock.lsn : *lsn;
    keyspace_unlock(&lock);
    leave_gate(s);
    return rc;
}

/* The key comes last: the set is there whole or not at all. */
static int adopt_new(struct service *s, struct resp_arg name, struct store_import *import, uint64_t memory_bytes,
                     uint64_t *lsn, struct quire_error *err)
{
    struct collection *set;
    struct collection_config config;
    uint64_t made = 0;
    int rc = config_of(segment_info(store_import_segment(import)), memory_bytes, &config, err);
    if (rc == 0)
        rc = store_create_collection(s->store, &config, NULL, &set, &made, err);
    if (rc != 0)
        return rc;
    rc = store_import_adopt(import, set, lsn, err);
    if (rc == 0)
        rc = bind_new(s, name, set, lsn, err);
    if (rc < 0)
        drop_now(s, set);
    else
        collection_unref(set);
    return rc;
}

int data_adopt(struct service *s, struct resp_arg name, const char *path, bool resolved, uint64_t memory_bytes,
               uint64_t *lsn, struct quire_error *err)
{
    struct store_import *import = NULL;
    bool other;
    struct collection *set = keyspace_get_vectors(&s->keyspace, name, &other);
    if (other)
        return error_set(err, QUIRE_EEXISTS, "Target key name already exists, and is no vector set");
    int rc = set ? collection_available(set, err) : 0;
    if (rc == 0)
        rc = store_import_begin(s->store, path, resolved, &import, err);
    if (rc == 0)
        rc = set ? store_import_adopt(import, set, lsn, err) : adopt_new(s, name, import, memory_bytes, lsn, err);
    store_import_end(import);
    collection_unref(set);
    return rc;
}

/* One line of the setting `load`: "key path". */
static int load_line(struct service *s, const char *line, size_t bytes, struct quire_error *err)
{
    const char *space = memchr(line, ' ', bytes);
    uint64_t lsn = 0;
    if (!space || space == line)
        return error_set(err, QUIRE_EINVALID, "load: '%.*s' is not a key and a path", (int)bytes, line);
    if (!s->store)
        return error_set(err, QUIRE_EINVALID, "load needs a data folder: set dir");
    struct resp_arg name = {(const uint8_t *)line, (uint32_t)(space - line)};
    if (keyspace_version(&s->keyspace, name, NULL) != 0) {
        log_line(s->log, LOG_LEVEL_NOTICE, "load %.*s: the key is there already", (int)bytes, line);
        return 0;
    }
    char *path = strndup(space + 1, bytes - name.bytes - 1);
    int rc = path ? data_adopt(s, name, path, false, s->config->memory, &lsn, err)
                  : error_set(err, QUIRE_ENOMEM, "no memory for a path");
    if (rc == 0)
        log_line(s->log, LOG_LEVEL_NOTICE, "loaded %.*s", (int)bytes, line);
    free(path);
    return rc;
}

int data_load(struct service *s, struct quire_error *err)
{
    int rc = 0;
    for (const char *at = s->config->load; *at && rc == 0;) {
        size_t bytes = strcspn(at, "\n");
        rc = load_line(s, at, bytes, err);
        at += bytes + (at[bytes] == '\n');
    }
    return rc;
}

/* The next start reads a checkpoint faster than the log that it stands for. Only where that is worth it, and takes no
 * longer than who stops a server will wait. */
static void last_checkpoint(struct service *s)
{
    struct journal_stats stats;
    struct quire_error err = {0};
    journal_get_stats(s->journal, &stats);
    if (stats.log_bytes < LAST_LOG_BYTES_MIN || atomic_load(&s->keyspace.used_bytes) > LAST_KEYS_BYTES_MAX)
        return;
    if (store_checkpoint(s->store, &err) < 0)
        log_line(s->log, LOG_LEVEL_WARNING, "no checkpoint at the end: the next start reads the log. %s", err.message);
}

void data_close(struct service *s)
{
    if (s->store)
        store_end_maintenance(s->store); /* a checkpoint that ran on would miss the keys that go now */
    if (s->store && s->caches_begun)
        last_checkpoint(s);
    if (s->caches_begun)
        caches_end(s->caches); /* nobody uses them any more; what they still log needs the journal */
    s->keyspace.follower = NULL;
    keyspace_fini(&s->keyspace);
    documents_destroy(s->documents);
    s->documents = NULL;
    if (s->journal)
        s->journal_close(s->journal_context);
    cache_scratch_destroy(s->cache_scratch);
    caches_destroy(s->caches);
}
