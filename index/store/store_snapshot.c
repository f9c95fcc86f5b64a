/*
 * store_snapshot.c - a copy of the data folder by hard links; and the adoption of an index that was built elsewhere.
 *
 * Both rest on files that are never changed once they are whole: another name costs nothing and holds what it named.
 *
 * A snapshot stops nobody. While it holds `publish`, no collection's parts change, so that the parts that it has
 * references to are those that the log up to its last LSN names: what is dropped meanwhile stays as long as the
 * references do, and a collection that is made meanwhile has none. A checkpoint would remove the files that are being
 * linked: it waits. The copy is made under another name and renamed when all of it is synced.
 *
 * Adoption. The index becomes a part of the collection, and elements of the same keys end, in one frame: a batch of the
 * journal. Who they are is found first, by reading the collection's own rows against the filter of the new part's keys,
 * and then the new part against the few that pass. If the collection was written to meanwhile that would be wrong: it
 * begins again, and gives up after a few times (QUIRE_EBUSY).
 */
#include "index/column/columns.h"
#include "index/format/format.h"
#include "index/memtable/memtable.h"
#include "index/segment/segment_view.h"
#include "index/store/store_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/hash.h"
#include <roaring/roaring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COPY_BYTES  (1u << 20)
#define ADOPT_TRIES 4u

/* ---- links ------------------------------------------------------------------------------------------------------- */

static int copy_file(struct io_fs *fs, const char *from, const char *to, struct quire_error *err)
{
    struct io_file *source = NULL, *target = NULL;
    uint8_t *buffer = malloc(COPY_BYTES);
    int rc = buffer ? fs_open(fs, from, FS_READ, &source, err) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = fs_open(fs, to, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &target, err);
    for (uint64_t at = 0; rc == 0 && at < source->bytes; at += COPY_BYTES) {
        size_t n = source->bytes - at < COPY_BYTES ? (size_t)(source->bytes - at) : COPY_BYTES;
        rc = fs_read_exact(source, buffer, n, at, err);
        if (rc == 0)
            rc = fs_write_exact(target, buffer, n, at, err);
    }
    if (rc == 0)
        rc = fs_sync(target, err);
    fs_close(source);
    fs_close(target);
    free(buffer);
    return rc;
}

struct linking {
    struct io_fs *fs;
    const char *from, *to;
    bool may_copy; /* where a link is not possible: another file system */
    struct quire_error *err;
};

static int link_file(void *context, const char *name)
{
    const struct linking *linking = context;
    char *from = NULL, *to = NULL;
    int rc = asprintf(&from, "%s/%s", linking->from, name) < 0 || asprintf(&to, "%s/%s", linking->to, name) < 0
                 ? QUIRE_ENOMEM
                 : linking->fs->ops->link(linking->fs, from, to);
    if (rc < 0 && rc != QUIRE_ENOMEM && linking->may_copy)
        rc = copy_file(linking->fs, from, to, linking->err);
    else if (rc < 0)
        error_set(linking->err, rc, "cannot link %s as %s/%s: %s", from ? from : name, linking->to, name,
                  quire_error_text(rc));
    free(from);
    free(to);
    return rc;
}

static int make_folder(struct io_fs *fs, const char *path, struct quire_error *err)
{
    int rc = fs->ops->mkdir(fs, path);
    return rc < 0 ? error_set(err, rc, "cannot make folder %s: %s", path, quire_error_text(rc)) : 0;
}

int store_sync_folder(struct io_fs *fs, const char *path, struct quire_error *err)
{
    int rc = fs->ops->sync_dir(fs, path);
    return rc < 0 ? error_set(err, rc, "cannot sync folder %s: %s", path, quire_error_text(rc)) : 0;
}

int store_link_folder(struct io_fs *fs, const char *from, const char *to, bool may_copy, struct quire_error *err)
{
    struct linking linking = {fs, from, to, may_copy, err};
    int rc = make_folder(fs, to, err);
    if (rc == 0)
        rc = fs->ops->list(fs, from, link_file, &linking);
    return rc == 0 ? store_sync_folder(fs, to, err) : rc;
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

struct copy {
    struct store *store;
    char *folder, *segments; /* TO.building, TO.building/segments */
    struct view **views;     /* of all collections, references */
    uint32_t n_views;
};

static int is_there(void *context, const char *name)
{
    (void)context, (void)name;
    return 0;
}

/* A segment that is missing, of a collection that is unavailable for it, is missing in the copy as well: all else that
 * is known of the collection is in it, so that the segment may be put back into either. */
static int link_parts(struct copy *copy, const struct view *view, struct quire_error *err)
{
    struct io_fs *fs = copy->store->fs;
    int rc = 0;
    assert(view);
    for (uint32_t i = 0; rc == 0 && i < view->n_parts; i++) {
        char *from = store_segment_path(copy->store, view->parts[i]->uid), *to = NULL;
        rc = !from || asprintf(&to, "%s/%llu", copy->segments, (unsigned long long)view->parts[i]->uid) < 0
                 ? error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment")
                 : 0;
        bool missing = rc == 0 && !view->parts[i]->segment && fs->ops->list(fs, from, is_there, NULL) == QUIRE_ENOFILE;
        if (missing)
            store_log(copy->store, true, "%s is not there, nor in the snapshot", from);
        else if (rc == 0)
            rc = store_link_folder(fs, from, to, false, err);
        free(from);
        free(to);
    }
    return rc;
}

/* (checkpoint, publish) */
static int fill_copy(struct copy *copy, uint64_t *lsn, struct quire_error *err)
{
    struct io_fs *fs = copy->store->fs;
    struct collection **list = NULL;
    uint32_t n = 0;
    assert(lock_is_held(&copy->store->checkpoint) && lock_is_held(&copy->store->publish));
    int rc = make_folder(fs, copy->folder, err);
    if (rc == 0)
        rc = make_folder(fs, copy->segments, err);
    if (rc == 0)
        rc = store_list(copy->store, &list, &n, err);
    /* all parts that the log can name are pinned by references to views */
    copy->views = rc == 0 ? calloc(n + 1u, sizeof(struct view *)) : NULL;
    if (rc == 0 && !copy->views)
        rc = error_set(err, QUIRE_ENOMEM, "no memory to list the segments of %u collections", n);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        copy->views[copy->n_views++] = collection_view(list[i]);
    store_list_free(list, n);
    if (rc == 0)
        rc = journal_snapshot(copy->store->journal, copy->folder, lsn, err);
    for (uint32_t i = 0; rc == 0 && i < copy->n_views; i++)
        rc = link_parts(copy, copy->views[i], err);
    if (rc == 0)
        rc = store_sync_folder(fs, copy->segments, err);
    return rc;
}

void store_discard_folder(struct io_fs *fs, const char *folder)
{
    char *segments;
    if (asprintf(&segments, "%s/" SEGMENTS_NAME, folder) < 0)
        return;
    store_remove_segments(fs, segments, NULL, NULL, NULL, NULL);
    fs->ops->rmdir(fs, segments);
    fs_remove_folder(fs, folder, NULL);
    free(segments);
}

int store_snapshot(struct store *store, const char *to, uint64_t *lsn, struct quire_error *err)
{
    struct copy copy = {.store = store};
    if (asprintf(&copy.folder, "%s" BUILDING_MARK, to) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a snapshot");
    if (asprintf(&copy.segments, "%s/" SEGMENTS_NAME, copy.folder) < 0) {
        free(copy.folder);
        return error_set(err, QUIRE_ENOMEM, "no memory for a snapshot");
    }
    pthread_mutex_lock(&store->checkpoint);
    pthread_mutex_lock(&store->publish);
    store_discard_folder(store->fs, copy.folder); /* one that was not finished before a crash */
    int rc = fill_copy(&copy, lsn, err);
    pthread_mutex_unlock(&store->publish);
    pthread_mutex_unlock(&store->checkpoint);
    if (rc == 0)
        rc = fs_publish(store->fs, copy.folder, to, err);
    if (rc == 0) {
        pthread_mutex_lock(&store->lock);
        store->stats.snapshots++;
        store->stats.last_snapshot_ms = clock_wall_ms();
        pthread_mutex_unlock(&store->lock);
    } else {
        store_discard_folder(store->fs, copy.folder);
    }
    assert(copy.views || copy.n_views == 0);
    for (uint32_t i = 0; i < copy.n_views; i++)
        view_unref(copy.views[i]);
    free(copy.views);
    free(copy.segments);
    free(copy.folder);
    return rc;
}

/* ---- adoption ---------------------------------------------------------------------------------------------------- */

/* A key that the collection has and the filter of the adopted part may have. */
struct shared_key {
    uint64_t part_uid; /* 0: in a memtable */
    uint32_t row, key_bytes;
    uint8_t *key; /* owned; NULL: an empty place */
    bool is_confirmed;
};

static inline bool shared_is_set(const struct shared_key *shared)
{
    return shared->key != NULL;
}

static inline uint64_t shared_hash(const struct shared_key *shared)
{
    return format_key_hash(shared->key, shared->key_bytes);
}

static inline bool shared_is_same(const struct shared_key *a, const struct shared_key *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0;
}
HASH_DEFINE(shared_keys, struct shared_key, shared_is_set, shared_hash, shared_is_same)

struct adoption {
    struct store *store;
    struct collection *collection;
    struct view *view; /* whose rows were looked at */
    struct part *part; /* the adopted one */
    const struct part *scanned;
    struct shared_keys keys;
    uint32_t n_confirmed;
};

static int refuse(const char *path, const char *what, const char *index, const char *own, struct quire_error *err)
{
    return error_set(err, QUIRE_EINVALID,
                     "%s has %s %s and the set has %s: build the index with that, or make a new set", path, what, index,
                     own);
}

static int check_index(const struct segment_info *info, const char *path, const struct collection_config *c,
                       struct quire_error *err)
{
    if (info->dim != c->dim)
        return error_set(err, QUIRE_EDIM,
                         "%s has dimension %u and the set has %u: build the index with that, or make a new set", path,
                         info->dim, c->dim);
    if (info->type != c->type)
        return refuse(path, "vectors of", quire_type_name(info->type), quire_type_name(c->type), err);
    if (info->metric != c->metric)
        return refuse(path, "metric", quire_metric_name(info->metric), quire_metric_name(c->metric), err);
    if (info->slot != c->slot && info->slot != collection_slot(c))
        return refuse(path, "slots of", quire_slot_name(info->slot), quire_slot_name(c->slot), err);
    return 0;
}

static int every_row_is_granted(const struct segment *segment, const char *path, struct quire_error *err)
{
    struct columns_stats stats = {.n_tenants = 0};
    roaring_bitmap_t *granted = NULL;
    uint64_t rows = segment_info(segment)->rows, n = 0;
    if (segment->columns)
        columns_get_stats(segment->columns, &stats);
    struct tenant_scope all = {.tenants = malloc(sizeof *all.tenants * ((size_t)stats.n_tenants + 1))};
    int rc = all.tenants ? 0 : QUIRE_ENOMEM;
    while (rc == 0 && all.n < stats.n_tenants && columns_tenant_at(segment->columns, all.n, &all.tenants[all.n], &n))
        all.n++;
    if (rc == 0 && segment->columns)
        rc = columns_scope(segment->columns, &all, &granted);
    n = granted ? roaring_bitmap_get_cardinality(granted) : 0;
    part_rows_free(granted);
    free(all.tenants);
    if (rc < 0)
        return error_set(err, rc, "no memory to look at the tenants of %s", path);
    return n == rows ? 0
                     : error_set(err, QUIRE_EINVALID,
                                 "%llu of the %llu rows of %s are granted to nobody, and every element of this set is "
                                 "some tenant's: build the index with a tenant for each row",
                                 (unsigned long long)(rows - n), (unsigned long long)rows, path);
}

/* What an index grants must be as it would be if it were granted now. */
static int check_tenants(const struct adoption *a, const struct segment *segment, const char *path,
                         struct quire_error *err)
{
    struct grant grant;
    uint64_t rows;
    for (uint32_t i = 0; segment->columns && columns_tenant_at(segment->columns, i, &grant, &rows); i++)
        if (grant.generation != collection_tenant_generation(a->collection, grant.name, grant.bytes))
            return error_set(err, QUIRE_EINVALID,
                             "%s grants rows to tenant %.*s, which was dropped from this set: put its elements one by "
                             "one, or load the index into a new set",
                             path, (int)grant.bytes, grant.name);
    return collection_config(a->collection)->tenants ? every_row_is_granted(segment, path, err) : 0;
}

/* The files of an import become a part. */
static int take_import(struct adoption *a, struct store_import *import, struct quire_error *err)
{
    struct io_fs *fs = a->store->fs;
    const struct segment *segment = store_import_segment(import);
    uint64_t uid, rows = segment_info(segment)->rows;
    const char *from = store_import_folder(import, &uid), *path = store_import_path(import);
    char *to = store_segment_path(a->store, uid);
    int rc = to ? check_index(segment_info(segment), path, collection_config(a->collection), err)
                : error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
    if (rc == 0)
        rc = check_tenants(a, segment, path, err);
    if (rc == 0)
        rc = fs_publish(fs, from, to, err);
    if (rc == 0) {
        store_import_taken(import);
        struct view *view = collection_view(a->collection);
        uint64_t share = store_share(a->store, a->collection, view->parts, view->n_parts, rows);
        view_unref(view);
        rc = part_create(uid, &a->part, err);
        if (rc == 0)
            rc = store_open_part(a->store, a->collection, a->part, share, err);
        if (rc < 0)
            fs_remove_folder(fs, to, NULL);
    }
    free(to);
    return rc;
}

/* ---- keys that both have ----------------------------------------------------------------------------------------- */

/* A key that is noted twice was written to meanwhile: the adoption begins again. */
static int note_key(struct adoption *a, uint64_t part_uid, uint32_t row, const void *bytes, uint32_t n)
{
    struct shared_key shared = {.part_uid = part_uid, .row = row, .key_bytes = n, .key = (uint8_t *)(uintptr_t)bytes};
    if (!part_may_have(a->part, bytes, n) || shared_keys_find(&a->keys, &shared))
        return 0;
    shared.key = malloc(n);
    if (shared.key)
        memcpy(shared.key, bytes, n);
    if (shared.key && shared_keys_add(&a->keys, shared))
        return 0;
    free(shared.key);
    return QUIRE_ENOMEM;
}

static int note_scanned(void *context, const struct scanned_row *row)
{
    struct adoption *a = context;
    if (part_is_dead(a->scanned, row->row))
        return 0;
    return note_key(a, a->scanned->uid, row->row, row->key, row->key_bytes);
}

static int confirm_scanned(void *context, const struct scanned_row *row)
{
    struct adoption *a = context;
    const struct shared_key like = {.key = (uint8_t *)(uintptr_t)row->key, .key_bytes = row->key_bytes};
    struct shared_key *shared = shared_keys_find(&a->keys, &like);
    if (shared && !shared->is_confirmed) {
        a->n_confirmed++;
        shared->is_confirmed = true;
    }
    return 0;
}

static int note_memory(void *context, const struct memtable *memtable, uint32_t number, const struct memtable_row *row)
{
    (void)memtable, (void)number;
    return note_key(context, 0, 0, row->key, row->key_bytes);
}

/* (publish) One frame, in a batch because that is let in whatever its size. QUIRE_EBUSY, with nothing changed, when the
 * collection was written to since `seen`. Writers and searches of this collection wait while the shared elements change
 * hands: about a microsecond for each. */
static int commit_adoption(struct adoption *a, uint64_t seen, uint64_t *lsn, struct quire_error *err)
{
    assert(lock_is_held(&a->store->publish));
    struct replaced_row *replaced = calloc(a->n_confirmed + 1, sizeof *replaced);
    struct collection_edit edit = {.added = a->part, .replaced = replaced, .seen_lsn = seen};
    uint64_t frame;
    for (uint64_t i = 0; replaced && i < a->keys.capacity; i++) {
        const struct shared_key *shared = &a->keys.places[i];
        if (shared->is_confirmed)
            replaced[edit.n_replaced++] = (struct replaced_row){
                shared->key,
                shared->key_bytes,
                {.generation = a->view->generation, .segment_uid = shared->part_uid, .row = shared->row}};
    }
    assert(!replaced || edit.n_replaced == a->n_confirmed);
    int rc = replaced ? journal_batch_begin(a->store->journal, err)
                      : error_set(err, QUIRE_ENOMEM, "no memory for the keys that index and set share");
    if (rc == 0) {
        rc = collection_publish(a->collection, &edit, lsn, err);
        int ended = journal_batch_end(a->store->journal, &frame, rc == 0 ? err : NULL);
        rc = rc < 0 ? rc : ended;
    }
    free(replaced);
    return rc;
}

/* With both bits of busy: no seal or merge changes what was looked at. */
static int adopt_claimed(struct adoption *a, struct store_import *import, uint64_t *lsn, struct quire_error *err)
{
    assert((store_upkeep(a->collection)->busy & (BUSY_SEAL | BUSY_MERGE)) == (BUSY_SEAL | BUSY_MERGE));
    int rc = take_import(a, import, err);
    bool again = rc == 0;
    for (unsigned try = 0; again; try++) {
        uint64_t seen = collection_last_lsn(a->collection);
        a->view = collection_view(a->collection);
        rc = view_each_row(a->view, a->store->epochs, MEMTABLE_LSN_MAX - 1, note_memory, a);
        for (uint32_t i = 0; rc == 0 && i < a->view->n_parts; i++) {
            a->scanned = a->view->parts[i];
            rc = segment_scan(a->view->parts[i]->segment, NULL, note_scanned, NULL, a, err);
        }
        if (rc == 0 && a->keys.n > 0)
            rc = segment_scan(a->part->segment, NULL, confirm_scanned, NULL, a, err);
        if (rc == QUIRE_ENOMEM)
            error_set(err, rc, "no memory for the keys that index and set share");
        if (rc == 0) {
            const struct store_host *host = &a->store->host;
            pthread_mutex_lock(&a->store->publish);
            if (host->enter)
                host->enter(host->context);
            rc = commit_adoption(a, seen, lsn, err);
            if (host->leave)
                host->leave(host->context);
            pthread_mutex_unlock(&a->store->publish);
        }
        again = rc == QUIRE_EBUSY && try + 1 < ADOPT_TRIES;
        for (uint64_t i = 0; i < a->keys.capacity; i++)
            free(a->keys.places[i].key);
        free(a->keys.places);
        a->keys = (struct shared_keys){0};
        a->n_confirmed = 0;
        view_unref(a->view);
    }
    if (rc < 0 && a->part && a->part->segment)
        store_mark_removed(a->store, a->part);
    part_unref(a->part);
    return rc;
}

int store_import_adopt(struct store_import *import, struct collection *collection, uint64_t *lsn,
                       struct quire_error *err)
{
    struct store *store = store_import_store(import);
    if (lineage_is_replica(collection))
        return error_set(err, QUIRE_EPERM, "set %llu is a copy: load the index where it is copied from",
                         (unsigned long long)collection_uid(collection));
    struct adoption adoption = {.store = store, .collection = collection};
    int available = collection_available(collection, err);
    if (available < 0)
        return available;
    store_claim(store, collection, BUSY_SEAL | BUSY_MERGE, true);
    int rc = adopt_claimed(&adoption, import, lsn, err);
    store_release(store, collection, BUSY_SEAL | BUSY_MERGE);
    store_count(store, collection);
    store_apply_limits(store);
    store_signal(store);
    return rc;
}

int store_adopt(struct store *store, struct collection *collection, const char *path, uint64_t *lsn,
                struct quire_error *err)
{
    struct store_import *import = NULL;
    int rc = store_import_begin(store, path, false, &import, err);
    if (rc == 0)
        rc = store_import_adopt(import, collection, lsn, err);
    store_import_end(import);
    return rc;
}
