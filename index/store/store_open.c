/*
 * store_open.c - opening a data folder: the lock, what its journal says, the segments that it names; and closing.
 *
 * Recovery in order: the lock; the journal's records go to their collections, which take rows into memtables and note
 * parts and tombstones without opening anything; then the segments that collections still name at the end are opened,
 * several at a time, because reading their codes is what takes time; then folders that nobody names are removed. A
 * segment that was published and whose record did not reach the disk is such a folder, and so is one whose record of
 * removal did.
 *
 * A checkpoint is written while collections come and go. So the log may speak of a collection that the checkpoint left
 * out because it was dropped meanwhile: its DROP follows in the log. Records of uids that nobody has are therefore
 * remembered, and are an error only if no DROP of them came.
 *
 * Rows of memtables are not linked here: searches compare them until maintenance has.
 */
#include "index/attribute/attribute_schema.h"
#include "index/format/format.h"
#include "index/store/store_priv.h"
#include "index/vector/parallel.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- the lock ---------------------------------------------------------------------------------------------------- */

/* The folder itself is locked, too: a file can be deleted while it is, and made anew by the next process. Where folders
 * take no locks (some network file systems), the file's is all there is. */
int store_lock_directory(struct store *store, bool shared, struct quire_error *err)
{
    assert(store->lock_fd < 0);
    store->lock_fd = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->lock_fd < 0 || flock(store->lock_fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 ||
        errno != EWOULDBLOCK)
        return 0;
    return error_set(err, QUIRE_EBUSY,
                     "%s is open in another process, whose " LOCK_NAME " file was deleted: stop it, or choose another "
                     "folder%s",
                     store->path, shared ? " or a snapshot" : "");
}

void store_unlock_folder(struct store *store)
{
    /* unlocked by word, and not only closed: children that were forked meanwhile have the same descriptors */
    if (store->lock_fd >= 0) {
        flock(store->lock_fd, LOCK_UN);
        close(store->lock_fd);
        store->lock_fd = -1;
    }
    if (store->lock_file && store->lock_file->fd >= 0)
        flock(store->lock_file->fd, LOCK_UN);
    fs_close(store->lock_file);
    store->lock_file = NULL;
}

/* A file in memory has no locks, and no second process. */
int store_lock_folder(struct store *store, bool create, struct quire_error *err)
{
    char *path, owner[24] = "";
    struct io_file *file = NULL;
    if (asprintf(&path, "%s/" LOCK_NAME, store->path) < 0)
        return QUIRE_ENOMEM;
    int rc = fs_open(store->fs, path, create ? FS_WRITE | FS_CREATE : FS_WRITE, &file, err);
    free(path);
    if (rc < 0)
        return rc;
    bool is_locked = file->fd < 0 || flock(file->fd, LOCK_EX | LOCK_NB) == 0;
    if (!is_locked && errno == EWOULDBLOCK) {
        ssize_t read = file->fs->ops->read(file, owner, sizeof owner - 1, 0);
        owner[read > 0 ? read : 0] = 0;
        owner[strspn(owner, "0123456789")] = 0;
        rc = error_set(err, QUIRE_EBUSY, "%s is open in process %s: stop it, or choose another folder", store->path,
                       owner[0] ? owner : "(unknown)");
    } else if (!is_locked) {
        rc = error_set_errno(err, errno, "lock", store->path);
    }
    int n = snprintf(owner, sizeof owner, "%d\n", (int)getpid());
    if (rc == 0 && file->fd >= 0)
        rc = store_lock_directory(store, false, err);
    if (rc == 0)
        rc = store->fs->ops->truncate(file, 0);
    if (rc == 0)
        rc = fs_write_exact(file, owner, (size_t)n, 0, err);
    if (rc < 0)
        fs_close(file);
    else
        store->lock_file = file;
    return rc;
}

static int make_folder(struct io_fs *fs, const char *path, struct quire_error *err)
{
    int rc = fs->ops->mkdir(fs, path);
    return rc == 0 || rc == QUIRE_EEXISTS
               ? rc
               : error_set(err, rc, "cannot make the data folder %s: %s", path, quire_error_text(rc));
}

/* Both folders outlive a power cut before a record names something in them. */
static int make_folders(struct store *store, struct quire_error *err)
{
    const char *path = store->path, *slash = strrchr(path, '/');
    int rc = make_folder(store->fs, path, err);
    if (rc == 0) {
        char *parent = !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
        rc = parent ? store_sync_folder(store->fs, parent, err) : QUIRE_ENOMEM;
        free(parent);
    }
    if (rc == 0 || rc == QUIRE_EEXISTS)
        rc = make_folder(store->fs, store->segments, err);
    return rc == 0 || rc == QUIRE_EEXISTS ? store_sync_folder(store->fs, store->path, err) : rc;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static int uid_add(struct uid_list *list, uint64_t uid)
{
    if (list->n && list->items[list->n - 1] == uid)
        return 0;
    if (!array_reserve(&list->items, &list->capacity, list->n + 1))
        return QUIRE_ENOMEM;
    list->items[list->n++] = uid;
    return 0;
}

static int make_collection(struct store_recovery *r, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                           struct quire_error *err)
{
    struct collection_config config;
    struct attribute_schema *schema = NULL;
    struct collection *c = NULL;
    uint64_t uid = 0;
    int rc = collection_record_config(kind, bytes, n, &uid, &config, &schema, err);
    bool is_there = rc == 0 && store_lookup(r->store, uid);
    if (rc == 0 && !is_there)
        rc = collection_create(&r->store->as_host, sizeof(struct upkeep), uid, &config, schema, lsn, &c, err);
    if (rc < 0 || is_there) {
        attribute_schema_destroy(schema);
        return rc;
    }
    rc = store_add(r->store, c, err);
    if (rc < 0)
        collection_unref(c);
    return rc;
}

static int take_counters(struct store *store, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    if (n != 16)
        return error_set(err, QUIRE_ECORRUPT, "a record of counters has %u bytes, not 16: quire repair", n);
    if (bytes_load_u64(bytes) > store->next_collection)
        store->next_collection = bytes_load_u64(bytes);
    if (bytes_load_u64(bytes + 8) > store->next_segment)
        store->next_segment = bytes_load_u64(bytes + 8);
    return 0;
}

static int take_record(struct store_recovery *r, uint8_t kind, bool restored, uint64_t lsn, const uint8_t *bytes,
                       uint32_t n, struct quire_error *err)
{
    struct store *store = r->store;
    assert(!store->journal); /* it is being read */
    if (kind == RECORD_COUNTERS)
        return take_counters(store, bytes, n, err);
    if (kind < STORE_KINDS || kind >= RECORD_KINDS_END || n < 8)
        return error_set(err, QUIRE_ECORRUPT, "a record of kind %u with %u bytes at LSN %llu is none that is known",
                         kind, n, (unsigned long long)lsn);
    uint64_t uid = bytes_load_u64(bytes);
    int rc = kind == RECORD_CREATE || kind == RECORD_STATE ? make_collection(r, kind, lsn, bytes, n, err) : 0;
    if (uid >= store->next_collection)
        store->next_collection = uid + 1;
    if (rc < 0 || kind == RECORD_CREATE)
        return rc;
    struct collection *c = store_lookup(store, uid);
    if (c && kind == RECORD_DROP) {
        store_take_out(store, c);
        collection_unref(c);
    }
    if (!c || kind == RECORD_DROP)
        return uid_add(kind == RECORD_DROP ? &r->dropped : &r->orphans, uid);
    if (kind == RECORD_TOLD && n >= 16 && bytes_load_u64(bytes + 8) >= store->next_segment)
        store->next_segment = bytes_load_u64(bytes + 8) + 1;
    rc = collection_replay(c, kind, restored, lsn, bytes, n, err);
    if (rc < 0 || (kind != RECORD_EDIT && kind != RECORD_STATE))
        return rc;
    /* the numbers of parts that this record brought are not given out again */
    struct view *view = collection_view(c);
    for (uint32_t i = 0; i < view->n_parts; i++)
        if (view->parts[i]->uid >= store->next_segment)
            store->next_segment = view->parts[i]->uid + 1;
    view_unref(view);
    return 0;
}

static int give_record(struct store_recovery *r, uint8_t kind, bool restored, uint64_t lsn, const uint8_t *bytes,
                       uint32_t n, struct quire_error *err)
{
    const struct store_host *host = &r->store->host;
    int (*take)(void *, uint8_t, uint64_t, const uint8_t *, uint32_t, struct quire_error *) =
        restored ? host->restore : host->replay;
    struct quire_error reason = {0};
    r->records++;
    struct quire_error *why = r->lenient ? &reason : err;
    int rc = 0;
    if (kind < HOST_KINDS)
        rc = take_record(r, kind, restored, lsn, bytes, n, why);
    else if (take)
        rc = take(host->context, kind, lsn, bytes, n, why);
    if (rc == 0 || !r->lenient || rc == QUIRE_ENOMEM)
        return rc;
    r->lost(r->context, reason.message);
    return 0;
}

static int restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    return give_record(context, kind, true, lsn, bytes, n, err);
}

static int replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    return give_record(context, kind, false, lsn, bytes, n, err);
}

struct journal_reader store_reader(struct store_recovery *recovery)
{
    return (struct journal_reader){.restore = restore, .replay = replay, .context = recovery};
}

int store_compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int store_recovery_end(struct store_recovery *r, int rc, struct quire_error *err)
{
    if (r->dropped.n)
        qsort(r->dropped.items, r->dropped.n, sizeof(uint64_t), store_compare_u64);
    for (size_t i = 0; i < r->orphans.n && rc == 0; i++) { /* a uid that nobody made, and nobody dropped? */
        const uint64_t *uid = &r->orphans.items[i];
        struct quire_error reason = {0};
        if (r->dropped.n && bsearch(uid, r->dropped.items, r->dropped.n, sizeof *uid, store_compare_u64))
            continue;
        error_set(&reason, QUIRE_ECORRUPT,
                  "records are about collection %llu, and none makes it: `quire repair` saves the others",
                  (unsigned long long)*uid);
        if (r->lenient)
            r->lost(r->context, reason.message);
        else
            rc = error_set(err, QUIRE_ECORRUPT, "%s", reason.message);
    }
    free(r->orphans.items);
    free(r->dropped.items);
    r->orphans = r->dropped = (struct uid_list){0};
    return rc;
}

#define REASON_BYTES 240 /* of what is wrong with a segment: the remedy follows it in one sentence */

/* ---- segments ---------------------------------------------------------------------------------------------------- */

struct opening {
    struct store *store;
    struct collection **collections; /* references */
    uint32_t n_collections;
    struct view **views; /* of each; references */
    struct to_open {
        struct part *part;
        const struct view *view;
        struct collection *collection;
    } * parts;
    uint64_t n_parts;
    pthread_mutex_t lock; /* error, and what is unavailable */
    struct quire_error error;
    uint64_t *uids; /* n_parts, ascending */
};

static int list_parts(struct opening *o, struct quire_error *err)
{
    uint64_t n = 0;
    int rc = store_list(o->store, &o->collections, &o->n_collections, err);
    o->views = rc == 0 ? calloc(o->n_collections + 1u, sizeof(struct view *)) : NULL;
    for (uint32_t i = 0; o->views && i < o->n_collections; i++) {
        o->views[i] = collection_view(o->collections[i]);
        n += o->views[i]->n_parts;
    }
    o->parts = rc == 0 ? calloc(n + 1, sizeof *o->parts) : NULL;
    o->uids = rc == 0 ? calloc(n + 1, sizeof *o->uids) : NULL;
    if (rc < 0)
        return rc;
    if (!o->views || !o->parts || !o->uids)
        return error_set(err, QUIRE_ENOMEM, "no memory for %llu segments", (unsigned long long)n);
    for (uint32_t i = 0; i < o->n_collections; i++)
        for (uint32_t k = 0; k < o->views[i]->n_parts; k++) {
            struct part *part = o->views[i]->parts[k];
            o->parts[o->n_parts] = (struct to_open){part, o->views[i], o->collections[i]};
            o->uids[o->n_parts++] = part->uid;
        }
    assert(o->n_parts == n);
    if (o->n_parts)
        qsort(o->uids, o->n_parts, sizeof *o->uids, store_compare_u64);
    return 0;
}

/* What its files take stands for its rows before it is open: parts of a collection have rows of one size. */
static uint64_t blocks_bytes(const struct store *store, const struct part *part)
{
    struct io_file *file = NULL;
    char *path;
    uint64_t bytes = 1;
    if (asprintf(&path, "%s/%llu/" BLOCKS_NAME, store->segments, (unsigned long long)part->uid) < 0)
        return bytes;
    if (fs_open(store->fs, path, FS_READ, &file, NULL) == 0) /* what is wrong with it is said where it is opened */
        bytes += file->bytes;
    fs_close(file);
    free(path);
    return bytes;
}

static int open_one(struct opening *o, const struct to_open *item, struct quire_error *err)
{
    uint64_t budget = store_share(o->store, item->collection, NULL, 0, 1), total = 0;
    if (budget == UINT64_MAX || item->view->n_parts == 1)
        return store_open_part(o->store, item->collection, item->part, budget, err);
    for (uint32_t i = 0; i < item->view->n_parts; i++)
        total += blocks_bytes(o->store, item->view->parts[i]);
    double share = (double)blocks_bytes(o->store, item->part) / (double)total;
    return store_open_part(o->store, item->collection, item->part, (uint64_t)((double)budget * share), err);
}

const char *store_remedy(int code)
{
    return code == QUIRE_EPERM      ? "let this user read it (chmod, chown) and start again"
           : code == QUIRE_EVERSION ? "start the version that wrote it"
                                    : "put its files back from a snapshot and start again, or save the rest with "
                                      "`quire repair`";
}

/* (lock) Its first segment that cannot be opened says why; what its memtables and other segments hold stays. */
static int note_unavailable(struct opening *o, const struct to_open *item, const struct quire_error *why)
{
    struct quire_error reason = {0};
    if (collection_available(item->collection, NULL) < 0)
        return 0;
    error_set(&reason, why->code, "segment %llu: %.*s: %s", (unsigned long long)item->part->uid, REASON_BYTES,
              why->message, store_remedy(why->code));
    store_log(o->store, true, "set %llu is unavailable: %s", (unsigned long long)collection_uid(item->collection),
              reason.message);
    o->store->n_unavailable++;
    return collection_set_unavailable(item->collection, &reason);
}

/* What is wrong with a segment is its collection's, but for what is wrong with this process: no memory, no room for
 * another open file. */
static int open_range(void *context, uint64_t begin, uint64_t end)
{
    struct opening *o = context;
    int rc = 0;
    for (uint64_t i = begin; rc == 0 && i < end; i++) {
        struct quire_error err = {0};
        rc = open_one(o, &o->parts[i], &err);
        if (rc == 0)
            continue;
        pthread_mutex_lock(&o->lock);
        if (rc == QUIRE_ENOMEM || rc == QUIRE_ELIMIT)
            o->error = err;
        else
            rc = note_unavailable(o, &o->parts[i], &err);
        pthread_mutex_unlock(&o->lock);
    }
    return rc;
}

static int open_parts(struct opening *o, struct quire_error *err)
{
    unsigned threads = o->n_parts > 1 ? parallel_processors() : 1;
    pthread_mutex_init(&o->lock, NULL);
    int rc = o->n_parts ? parallel_for(threads, o->n_parts, 1, open_range, o, NULL) : 0;
    pthread_mutex_destroy(&o->lock);
    return rc < 0 ? error_set(err, rc, "a segment of %s cannot be opened: %s", o->store->path, o->error.message) : 0;
}

/* What is removed while a folder is read may be seen twice or never: names first. */
struct folder_names {
    bool (*keep)(void *context, uint64_t uid);
    void *context;
    char **items;
    size_t n, capacity;
};

static int note_folder(void *context, const char *name)
{
    struct folder_names *names = context;
    size_t digits = strspn(name, "0123456789");
    const char *rest = name + digits;
    bool is_unfinished = strncmp(rest, BUILDING_MARK, strlen(BUILDING_MARK)) == 0 ||
                         strncmp(rest, MERGING_MARK, strlen(MERGING_MARK)) == 0;
    if (digits == 0 || (*rest && !is_unfinished) ||
        (names->keep && names->keep(names->context, is_unfinished ? 0 : strtoull(name, NULL, 10))))
        return 0;
    if (!array_reserve(&names->items, &names->capacity, names->n + 1))
        return QUIRE_ENOMEM;
    names->items[names->n] = strdup(name);
    return names->items[names->n] ? (int)(names->n++, 0) : QUIRE_ENOMEM;
}

int store_remove_segments(struct io_fs *fs, const char *segments, bool (*keep)(void *context, uint64_t uid),
                          void *context, uint64_t *removed, struct quire_error *err)
{
    struct folder_names names = {.keep = keep, .context = context};
    int rc = fs->ops->list(fs, segments, note_folder, &names);
    if (rc < 0)
        error_set(err, rc, "cannot read folder %s: %s", segments, quire_error_text(rc));
    for (size_t i = 0; i < names.n; i++) {
        char *path = NULL;
        if (rc == 0 && asprintf(&path, "%s/%s", segments, names.items[i]) < 0)
            rc = QUIRE_ENOMEM;
        if (rc == 0)
            rc = fs_remove_folder(fs, path, err);
        if (removed)
            *removed += rc == 0;
        free(path);
        free(names.items[i]);
    }
    free(names.items);
    return rc;
}

/* A segment that a collection names; the numbers of all that are there are not given out again. */
static bool is_named(void *context, uint64_t uid)
{
    const struct opening *o = context;
    if (uid >= o->store->next_segment)
        o->store->next_segment = uid + 1;
    return uid && o->n_parts && bsearch(&uid, o->uids, o->n_parts, sizeof uid, store_compare_u64);
}

static int open_segments(struct store *store, struct store_report *report, struct quire_error *err)
{
    struct opening o = {.store = store};
    int rc = list_parts(&o, err);
    if (rc == 0)
        rc = open_parts(&o, err);
    if (rc == 0)
        rc = store_remove_segments(store->fs, store->segments, is_named, &o, &report->removed_folders, err);
    for (uint32_t i = 0; rc == 0 && i < o.n_collections; i++) {
        if (lineage_recut(o.collections[i]) < 0)
            rc = error_set(err, QUIRE_ENOMEM, "no memory for the memtables of a set");
        collection_recount(o.collections[i]); /* now that the sizes of parts are known */
        report->elements += collection_count(o.collections[i]);
        store_count(store, o.collections[i]);
    }
    report->collections = o.n_collections;
    report->segments = o.n_parts;
    report->unavailable = store->n_unavailable;
    for (uint32_t i = 0; o.views && i < o.n_collections; i++)
        view_unref(o.views[i]);
    store_list_free(o.collections, o.n_collections);
    free(o.views);
    free(o.parts);
    free(o.uids);
    return rc;
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

int store_alloc(const char *path, const struct store_options *options, const struct store_host *host,
                struct store **out, struct quire_error *err)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    store->options = options ? *options : (struct store_options){0};
    store_fill_defaults(&store->options);
    atomic_init(&store->memory_max, store->options.memory_bytes);
    atomic_init(&store->disk_max, store->options.disk_bytes);
    store->host = host ? *host : (struct store_host){0};
    store->fs = store->options.fs;
    store->next_collection = store->next_segment = 1;
    pthread_mutex_init(&store->checkpoint, NULL);
    pthread_mutex_init(&store->publish, NULL);
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->wake_lock, NULL);
    pthread_cond_init(&store->changed, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&store->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int rc = epochs_create(&store->epochs);
    store_init_host(store);
    store->lock_fd = -1;
    store->path = strdup(path);
    if (rc == 0 && (!store->path || asprintf(&store->segments, "%s/" SEGMENTS_NAME, path) < 0)) {
        store->segments = NULL;
        rc = QUIRE_ENOMEM;
    }
    if (rc < 0) {
        store_free(store);
        return error_set(err, rc, "no memory to open %s", path);
    }
    *out = store;
    return 0;
}

void store_free(struct store *store)
{
    while (store->woken) { /* collections that were woken and not looked at: references */
        struct collection *c = store->woken;
        store->woken = store_upkeep(c)->next_woken;
        collection_unref(c);
    }
    for (uint32_t i = 0; i < store->n_buckets; i++)
        while (store->buckets[i]) {
            struct collection *c = store->buckets[i];
            store_take_out(store, c);
            collection_unref(c);
        }
    assert(store->n_collections == 0 && store->memtable_bytes == 0 && store->n_segments == 0);
    store_free_gone(store);
    if (store->epochs)
        epochs_destroy(store->epochs);
    store_unlock_folder(store);
    pthread_cond_destroy(&store->wake);
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->wake_lock);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->publish);
    pthread_mutex_destroy(&store->checkpoint);
    free(store->buckets);
    free(store->segments);
    free(store->path);
    free(store);
}

int store_open(const char *path, const struct store_options *options, const struct store_host *host, struct store **out,
               struct store_report *report, struct quire_error *err)
{
    struct store *store = NULL;
    struct store_report found = {0};
    uint64_t started = clock_us();
    int rc = store_alloc(path, options, host, &store, err);
    if (rc < 0)
        return rc;
    rc = make_folders(store, err);
    if (rc == 0)
        rc = store_lock_folder(store, true, err);
    if (rc == 0) {
        assert(!store->journal && store->lock_file);
        struct store_recovery recovery = {.store = store};
        struct journal_reader reader = store_reader(&recovery);
        struct journal_options journal = {.sync = store->options.sync, .no_priorities = store->options.no_priorities};
        rc = journal_open(store->fs, store->path, &journal, &reader, &store->journal, &found.journal, err);
        store->as_host.journal = store->journal;
        rc = store_recovery_end(&recovery, rc, err);
        found.rows_replayed = recovery.records;
    }
    if (rc == 0)
        rc = open_segments(store, &found, err);
    if (rc == 0) {
        store_apply_limits(store);
        rc = store_start_maintenance(store, err);
    }
    if (rc < 0) {
        store_end_maintenance(store);
        journal_close(store->journal, NULL);
        store_free(store);
        return rc;
    }
    found.duration_us = clock_us() - started;
    if (report)
        *report = found;
    *out = store;
    return 0;
}

int store_close(struct store *store, struct quire_error *err)
{
    if (!store)
        return 0;
    store_end_maintenance(store);
    assert(atomic_load(&store->passes_begun) == atomic_load(&store->passes_ended));
    int rc = journal_close(store->journal, err);
    store_free(store);
    return rc;
}
