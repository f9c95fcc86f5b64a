/*
 * store_check.c - verification: of a whole data folder that nobody has open, and of one collection while it lives.
 *
 * A folder is sound if its journal reads without damage, every segment that it names is sound (verify.c) and fits
 * its collection's settings, tombstones are of rows that there are, each key's filter lets it pass, and among the
 * living each key is there once.
 *
 * The last is a question over all keys. They are compared by their 64-bit hashes first, sorted; only where two hashes
 * are the same are the keys themselves gathered, in a second pass over the same rows. A collection that lives is looked
 * at through a snapshot, so that both passes see the same.
 *
 * What is found is a sentence; the walk goes on.
 */
#include "index/attribute/grants.h"
#include "index/format/format.h"
#include "index/segment/segment_view.h"
#include "index/store/store_priv.h"
#include "index/verify/verify.h"
#include "io/array.h"
#include "io/error.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

void store_found(struct store_check *check, const char *format, ...)
{
    char sentence[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    check->report.findings++;
    if (check->request->finding)
        check->request->finding(check->request->context, sentence);
}

static void take_finding(void *context, const char *sentence)
{
    store_found(context, "%s", sentence);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

struct key_at {
    uint32_t key_bytes;
    uint8_t *key; /* owned */
};

struct key_walk {
    struct store_check *check;
    const struct collection_snapshot *snapshot;
    const struct part *part; /* whose rows are walked; NULL: a table's */
    uint64_t *hashes;        /* first pass: of all living keys */
    size_t n, hashes_capacity;
    struct key_at *twice; /* second pass: keys whose hash is there twice */
    size_t n_twice, twice_capacity;
    const uint64_t *doubles; /* sorted hashes that are there twice; NULL in the first pass */
    uint64_t n_doubles;
    uint64_t n_attributed; /* elements with attributes */
    bool is_damaged;       /* rows or texts could not be read */
};

static int walk_key(struct key_walk *walk, const void *key, uint32_t key_bytes)
{
    uint64_t hash = format_key_hash(key, key_bytes);
    if (!walk->doubles) {
        if (!array_reserve(&walk->hashes, &walk->hashes_capacity, walk->n + 1))
            return QUIRE_ENOMEM;
        walk->hashes[walk->n++] = hash;
        return 0;
    }
    if (!bsearch(&hash, walk->doubles, walk->n_doubles, sizeof hash, store_compare_u64))
        return 0;
    if (!array_reserve(&walk->twice, &walk->twice_capacity, walk->n_twice + 1))
        return QUIRE_ENOMEM;
    struct key_at *at = &walk->twice[walk->n_twice];
    *at = (struct key_at){.key_bytes = key_bytes, .key = malloc(key_bytes + 1u)};
    if (!at->key)
        return QUIRE_ENOMEM;
    memcpy(at->key, key, key_bytes);
    walk->n_twice++;
    return 0;
}

static void walk_text(struct key_walk *walk, const void *text, uint32_t bytes)
{
    const char *json;
    uint32_t json_bytes = 0, n_grants;
    if (!walk->doubles && grants_split(text, bytes, &json, &json_bytes, &n_grants) == 0)
        walk->n_attributed += json_bytes > 0;
}

static int walk_row(void *context, const struct scanned_row *row)
{
    struct key_walk *walk = context;
    if (!walk->doubles && !part_may_have(walk->part, row->key, row->key_bytes))
        store_found(walk->check, "the filter of segment %llu does not know the key of row %u",
                    (unsigned long long)walk->part->uid, row->row);
    walk_text(walk, row->attributes, row->attribute_bytes);
    return walk_key(walk, row->key, row->key_bytes);
}

static void skip_damage(void *context, const char *sentence)
{
    struct key_walk *walk = context;
    (void)sentence; /* a finding of the segment's own verification */
    walk->is_damaged = true;
}

static int walk_memory(void *context, const struct memtable *memtable, uint32_t number, const struct memtable_row *row)
{
    (void)memtable, (void)number;
    walk_text(context, row->attributes, row->attribute_bytes);
    return walk_key(context, row->key, row->key_bytes);
}

/* The keys of all living elements, each once per row. */
static int walk_keys(struct key_walk *walk, struct quire_error *err)
{
    const struct view *view = walk->snapshot->view;
    int rc = 0;
    for (uint32_t i = 0; i < view->n_parts && rc == 0; i++) {
        walk->part = view->parts[i];
        if (walk->part->segment)
            rc =
                segment_scan(walk->part->segment, walk->snapshot->tombstones.dead[i], walk_row, skip_damage, walk, err);
    }
    if (rc == 0)
        rc = view_each_row(view, walk->check->store->epochs, walk->snapshot->lsn, walk_memory, walk);
    return rc == QUIRE_ENOMEM ? error_set(err, rc, "no memory for the keys of a collection") : rc;
}

static int by_key(const void *a, const void *b)
{
    const struct key_at *x = a, *y = b;
    if (x->key_bytes != y->key_bytes)
        return x->key_bytes < y->key_bytes ? -1 : 1;
    return memcmp(x->key, y->key, x->key_bytes);
}

/* Each living key once, and as many as the collection counts. */
static int check_keys(struct store_check *check, const struct collection_snapshot *snapshot, struct quire_error *err)
{
    unsigned long long uid = collection_uid(snapshot->collection);
    struct key_walk walk = {.check = check, .snapshot = snapshot};
    int rc = walk_keys(&walk, err);
    if (rc == 0 && walk.n != snapshot->n_elements)
        store_found(check, "collection %llu counts %llu elements, and has %llu", uid,
                    (unsigned long long)snapshot->n_elements, (unsigned long long)walk.n);
    /* texts in memory change in place: they can be compared where nothing has been written since */
    uint64_t counted = collection_count_attributed(snapshot->collection, NULL);
    bool comparable = rc == 0 && !walk.is_damaged && collection_last_lsn(snapshot->collection) == snapshot->lsn;
    if (comparable && walk.n_attributed != counted)
        store_found(check, "collection %llu counts %llu elements with attributes, and has %llu", uid,
                    (unsigned long long)counted, (unsigned long long)walk.n_attributed);
    check->report.elements += walk.n;
    if (walk.n > 1)
        qsort(walk.hashes, walk.n, sizeof *walk.hashes, store_compare_u64);
    /* those that are there twice move to the front of the sorted ones */
    for (size_t i = 1; rc == 0 && i < walk.n; i++)
        if (walk.hashes[i] == walk.hashes[i - 1] &&
            (walk.n_doubles == 0 || walk.hashes[walk.n_doubles - 1] != walk.hashes[i]))
            walk.hashes[walk.n_doubles++] = walk.hashes[i];
    assert(walk.n_doubles <= walk.n / 2 && !walk.doubles);
    if (rc == 0 && walk.n_doubles > 0) {
        walk.doubles = walk.hashes;
        rc = walk_keys(&walk, err);
        if (walk.n_twice)
            qsort(walk.twice, walk.n_twice, sizeof *walk.twice, by_key);
    }
    for (size_t i = 1; i < walk.n_twice; i++)
        if (by_key(&walk.twice[i - 1], &walk.twice[i]) == 0)
            store_found(check, "element %.*s of collection %llu is there twice",
                        walk.twice[i].key_bytes > 100 ? 100 : (int)walk.twice[i].key_bytes,
                        (const char *)walk.twice[i].key, uid);
    for (uint64_t i = 0; i < walk.n_twice; i++)
        free(walk.twice[i].key);
    free(walk.twice);
    free(walk.hashes);
    return rc;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void add_report(struct quire_verify_report *sum, const struct quire_verify_report *one)
{
    sum->files += one->files;
    sum->sections += one->sections;
    sum->blocks += one->blocks;
    sum->rows += one->rows;
    sum->edges += one->edges;
    sum->keys += one->keys;
    sum->lists += one->lists;
    sum->list_entries += one->list_entries;
    sum->rows_reachable += one->rows_reachable;
    sum->rows_by_edges += one->rows_by_edges;
    sum->blocks_without_entry += one->blocks_without_entry;
    sum->findings += one->findings;
    sum->code_error = one->code_error > sum->code_error ? one->code_error : sum->code_error;
    sum->code_error_max = one->code_error_max > sum->code_error_max ? one->code_error_max : sum->code_error_max;
}

static int pass_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct store_check_request *request = ((struct store_check *)context)->request;
    return request->progress ? request->progress(request->context, phase, done, total) : 0;
}

/* What is no damage, but of the process that reads: nothing is proved then, and nothing may be given up. */
static bool is_of_reader(int code)
{
    return code == QUIRE_ENOMEM || code == QUIRE_EPERM || code == QUIRE_ELIMIT || code == QUIRE_ECANCELLED;
}

int store_check_part(struct store_check *check, const struct collection *collection, const struct part *part,
                     struct quire_error *err)
{
    struct quire_verify_report one = {0};
    struct quire_error reason = {0};
    char *path = store_segment_path(check->store, part->uid);
    uint64_t before = check->report.findings;
    const struct verify_listener listener = {take_finding, pass_progress, check};
    if (!path)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
    int rc = verify_segment(check->store->fs, path, &listener, &one, &reason);
    free(path);
    add_report(&check->report.segments_total, &one);
    check->report.segments++;
    if (is_of_reader(rc))
        return error_set(err, rc, "%s", rc == QUIRE_ECANCELLED ? "interrupted" : reason.message);
    if (rc < 0 && check->report.findings == before)
        store_found(check, "segment %llu of collection %llu cannot be read: %s", (unsigned long long)part->uid,
                    (unsigned long long)collection_uid(collection), reason.message);
    return 0;
}

static int check_collection(struct store_check *check, struct collection *c, struct quire_error *err)
{
    const struct collection_config *config = collection_config(c);
    struct collection_snapshot *snapshot = NULL;
    int rc = collection_snapshot_open(c, &snapshot, err);
    for (uint32_t i = 0; rc == 0 && i < snapshot->view->n_parts; i++) {
        const struct part *part = snapshot->view->parts[i];
        const struct segment_info *info = part->segment ? segment_info(part->segment) : NULL;
        rc = store_check_part(check, c, part, err);
        if (rc == 0 && info && (info->dim != config->dim || info->metric != config->metric))
            store_found(check, "segment %llu has %u dimensions and metric %s, its collection %llu %u and %s",
                        (unsigned long long)part->uid, info->dim, quire_metric_name(info->metric),
                        (unsigned long long)collection_uid(c), config->dim, quire_metric_name(config->metric));
    }
    if (rc == 0)
        rc = check_keys(check, snapshot, err);
    check->report.collections++;
    collection_snapshot_close(snapshot);
    return rc;
}

int store_check(struct store *store, struct collection *collection,
                void (*finding)(void *context, const char *sentence), void *context, struct quire_error *err)
{
    const struct store_check_request request = {.finding = finding, .context = context};
    struct store_check check = {.request = &request, .store = store};
    int available = collection_available(collection, err);
    if (available < 0)
        return available;
    int rc = check_collection(&check, collection, err);
    if (rc == 0 && check.report.findings)
        rc = error_set(err, QUIRE_ECORRUPT, "collection %llu: %llu findings",
                       (unsigned long long)collection_uid(collection), (unsigned long long)check.report.findings);
    return rc;
}

/* ---- a folder ---------------------------------------------------------------------------------------------------- */

static int open_parts(struct store_check *check, struct collection *c, struct quire_error *err)
{
    struct view *view = collection_view(c);
    int rc = 0;
    for (uint32_t i = 0; i < view->n_parts && !is_of_reader(rc); i++) {
        struct segment_options options = {.fs = check->store->fs, .memory_bytes = UINT64_MAX};
        struct quire_error reason = {0};
        char *path = store_segment_path(check->store, view->parts[i]->uid);
        rc = path ? part_open(view->parts[i], path, &options, &reason) : QUIRE_ENOMEM;
        free(path);
        if (is_of_reader(rc))
            error_set(err, rc, "segment %llu of collection %llu cannot be read: %s",
                      (unsigned long long)view->parts[i]->uid, (unsigned long long)collection_uid(c), reason.message);
        else if (rc < 0)
            store_found(check, "segment %llu of collection %llu cannot be opened: %s",
                        (unsigned long long)view->parts[i]->uid, (unsigned long long)collection_uid(c), reason.message);
    }
    view_unref(view);
    return is_of_reader(rc) ? rc : 0;
}

static int list_entry(void *context, const char *name)
{
    *(bool *)context |= strcmp(name, LOCK_NAME) == 0;
    return 0;
}

/* Nobody may have it open for writing meanwhile. It is only read, and so is its lock: the medium may be read-only. */
static int lock_to_read(struct store *store, struct quire_error *err)
{
    char *path, owner[24] = "";
    struct io_file *file = NULL;
    if (asprintf(&path, "%s/" LOCK_NAME, store->path) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to read %s", store->path);
    int rc = fs_open(store->fs, path, FS_READ, &file, err);
    free(path);
    if (rc < 0)
        return rc;
    assert(!store->lock_file);
    if (file->fd >= 0 && flock(file->fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        ssize_t read = file->fs->ops->read(file, owner, sizeof owner - 1, 0);
        owner[read > 0 ? read : 0] = 0;
        owner[strspn(owner, "0123456789")] = 0;
        rc = error_set(err, QUIRE_EBUSY, "%s is open in process %s: stop it, or check a snapshot", store->path,
                       owner[0] ? owner : "(unknown)");
        fs_close(file);
        return rc;
    } /* a file system that knows no locks has nobody who holds one */
    store->lock_file = file;
    return 0;
}

int store_read_folder(struct store_check *check, const struct store_host *host, struct quire_error *err)
{
    struct store_options options = {.fs = check->request->fs, .no_maintenance = true};
    struct collection **list = NULL;
    uint32_t n = 0;
    bool has_lock = false;
    assert(!check->store);
    int rc = store_alloc(check->request->path, &options, host, &check->store, err);
    if (rc < 0)
        return rc;
    struct store *store = check->store;
    rc = store->fs->ops->list(store->fs, store->path, list_entry, &has_lock);
    if (rc < 0)
        error_set(err, rc, "cannot read the data folder %s: %s", store->path, quire_error_text(rc));
    else if (has_lock) /* a copy that was never opened has no lock, and nobody who holds it */
        rc = lock_to_read(store, err);
    if (rc == 0)
        rc = store_lock_directory(store, true, err);
    if (rc == 0) {
        struct store_recovery recovery = {.store = store, .lenient = true, .lost = take_finding, .context = check};
        struct journal_reader reader = store_reader(&recovery);
        rc = journal_read(store->fs, store->path, &reader, true, take_finding, check, NULL, err);
        rc = store_recovery_end(&recovery, rc, err);
        check->report.records = recovery.records;
    }
    if (rc == 0)
        rc = store_list(store, &list, &n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        rc = open_parts(check, list[i], err);
        collection_recount(list[i]);
    }
    store_list_free(list, n);
    if (rc < 0) {
        store_free(check->store);
        check->store = NULL;
    }
    return rc;
}

int store_verify(const struct store_check_request *request, struct store_verify_report *report, struct quire_error *err)
{
    struct store_check check = {.request = request};
    struct collection **list = NULL;
    uint32_t n = 0;
    int rc = store_read_folder(&check, request->host, err);
    if (rc < 0)
        return rc;
    rc = store_list(check.store, &list, &n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = check_collection(&check, list[i], err);
    if (rc == 0 && request->host && request->host->complete)
        rc = request->host->complete(request->host->context, request->path, NULL, err);
    store_list_free(list, n);
    store_free(check.store);
    if (report)
        *report = check.report;
    if (rc == 0 && check.report.findings)
        rc = error_set(err, QUIRE_ECORRUPT, "%s: %llu findings: `quire repair` saves what is whole", request->path,
                       (unsigned long long)check.report.findings);
    return rc;
}
