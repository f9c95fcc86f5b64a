/*
 * store_repair.c - what a damaged data folder still holds, written to a new one.
 *
 * The journal is read leaving damage out, and makes the collections that it still makes. In the new folder each gets
 * its number again. What it holds is taken over newest first, and a key that is there already stays: a lost record may
 * have been the one that ended an older row of that key.
 *   1. elements of memtables are put;
 *   2. segments that are sound are taken over whole, by links or copies, with the rows that are dead, or older
 *      than another of their key, marked as dead;
 *   3. of a segment that is not sound, or does not even open, the rows of whole blocks are put one by one.
 * Keys that are there are remembered by their 64-bit hashes.
 *
 * Records of the host are not understood here; those that it refuses are left out. Those of the checkpoint go into a
 * checkpoint, those of the log into the log, in their order; since every record of the log is later than the checkpoint
 * now, the host applies all of them.
 *
 * The new folder is made under another name and renamed at the end: it is there whole or not at all.
 */
#include "index/attribute/grants.h"
#include "index/format/format.h"
#include "index/memtable/memtable.h"
#include "index/segment/segment_view.h"
#include "index/store/store_priv.h"
#include "io/bitmap.h"
#include "io/error.h"
#include "io/hash.h"
#include "io/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct host_record {
    struct host_record *next;
    uint8_t kind;
    uint32_t n_bytes;
    uint8_t bytes[];
};

struct host_records {
    struct host_record *first, **end;
};

/* Keys by their hashes; 0 stands for an empty place, and hash 0 for 1. */
static inline bool hash_is_set(const uint64_t *hash)
{
    return *hash != 0;
}

static inline uint64_t hash_itself(const uint64_t *hash)
{
    return *hash;
}

static inline bool hash_is_same(const uint64_t *a, const uint64_t *b)
{
    return *a == *b;
}
HASH_DEFINE(hash_set, uint64_t, hash_is_set, hash_itself, hash_is_same)

struct repair {
    struct store_check check;       /* of the damaged folder; its findings are what is lost */
    struct store_host host;         /* whose records are kept, if it takes them */
    struct host_records state, log; /* of the host */
    struct store *from, *to;
    struct collection *source, *target;
    struct hash_set seen; /* keys that the target has */
    const struct part *part;
    uint8_t *dead;       /* of a part that is taken over: rows to be marked */
    void *vector;        /* a vector in the collection's type */
    float *floats;       /* one in floats, and the scratch to decode it */
    uint64_t n_elements; /* that were saved */
    struct quire_error *err;
};

static void lose(void *context, const char *sentence)
{
    struct repair *r = context;
    store_found(&r->check, "%s", sentence);
}

/* ---- keys that are there ----------------------------------------------------------------------------------------- */

/* *is_new: it was not there. */
static int add_seen(struct repair *r, const void *key, uint32_t key_bytes, bool *is_new)
{
    uint64_t hash = format_key_hash(key, key_bytes);
    hash = hash ? hash : 1;
    *is_new = !hash_set_find(&r->seen, &hash);
    if (*is_new && !hash_set_add(&r->seen, hash))
        return error_set(r->err, QUIRE_ENOMEM, "no memory for the keys of a collection");
    return 0;
}

/* ---- the host's records ------------------------------------------------------------------------------------------ */

static int keep_record(struct host_records *list, uint8_t kind, const uint8_t *bytes, uint32_t n,
                       struct quire_error *err)
{
    struct host_record *record = malloc(sizeof *record + n);
    if (!record)
        return error_set(err, QUIRE_ENOMEM, "no memory for a record of %u bytes", n);
    *record = (struct host_record){.kind = kind, .n_bytes = n};
    if (n)
        memcpy(record->bytes, bytes, n);
    *list->end = record;
    list->end = &record->next;
    return 0;
}

static int keep_state(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                      struct quire_error *err)
{
    struct repair *r = context;
    int rc = r->host.restore ? r->host.restore(r->host.context, kind, lsn, bytes, n, err) : 0;
    return rc < 0 ? rc : keep_record(&r->state, kind, bytes, n, err);
}

static int keep_log(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                    struct quire_error *err)
{
    struct repair *r = context;
    int rc = r->host.replay ? r->host.replay(r->host.context, kind, lsn, bytes, n, err) : 0;
    return rc < 0 ? rc : keep_record(&r->log, kind, bytes, n, err);
}

static int save_state(void *context, struct checkpoint *checkpoint, struct quire_error *err)
{
    const struct repair *r = context;
    int rc = 0;
    for (const struct host_record *record = r->state.first; record && rc == 0; record = record->next)
        rc = journal_checkpoint_put(checkpoint, record->kind, 0, record->bytes, record->n_bytes, err);
    return rc;
}

static int append_log(struct repair *r)
{
    int rc = 0;
    for (const struct host_record *record = r->log.first; record && rc == 0; record = record->next) {
        struct journal_record frame = {record->kind, record->bytes, record->n_bytes};
        uint64_t lsn;
        rc = journal_append(r->to->journal, &frame, 1, &lsn, r->err);
        if (rc == QUIRE_EBUSY) { /* more than the journal's buffer holds */
            rc = journal_sync(r->to->journal, r->err);
            if (rc == 0)
                rc = journal_append(r->to->journal, &frame, 1, &lsn, r->err);
        }
    }
    return rc;
}

static void free_records(struct host_records *list)
{
    while (list->first) {
        struct host_record *record = list->first;
        list->first = record->next;
        free(record);
    }
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

/* Into put what a text holds: JSON, and the grants that are not void, which are the caller's to free. 0: nobody's any
 * more. */
static int take_text(struct repair *r, const char *text, uint32_t bytes, struct collection_put *put,
                     struct grant **grants)
{
    const char *json;
    struct grant grant;
    uint32_t n, at = 0;
    *grants = NULL;
    if (grants_split(text, bytes, &json, &put->attribute_bytes, &n) < 0) {
        store_found(&r->check, "element %.*s of collection %llu: its grants are damaged",
                    put->key_bytes > 100 ? 100 : (int)put->key_bytes, (const char *)put->key,
                    (unsigned long long)collection_uid(r->source));
        return 0;
    }
    *grants = malloc(memory_size_mul((size_t)n + 1, sizeof **grants));
    if (!*grants)
        return error_set(r->err, QUIRE_ENOMEM, "no memory for the grants of an element");
    while (grants_next(text, bytes, &at, &grant))
        if (grant.generation == collection_tenant_generation(r->source, grant.name, grant.bytes))
            (*grants)[put->n_grants++] = grant;
    put->grants = *grants;
    put->attributes = put->attribute_bytes ? json : NULL;
    return n == 0 || put->n_grants > 0;
}

static int put_element(struct repair *r, const void *key, uint32_t key_bytes, const float *floats, const char *text,
                       uint32_t text_bytes)
{
    struct grant *grants;
    bool is_new;
    int rc = add_seen(r, key, key_bytes, &is_new);
    if (rc < 0 || !is_new)
        return rc;
    space_elements(collection_config(r->source)->type, floats, collection_config(r->source)->dim, r->vector);
    struct view *view = collection_view(r->target);
    struct collection_put put = {
        .key = key, .key_bytes = key_bytes, .vector = r->vector, .located = {.generation = view->generation}};
    view_unref(view);
    int somebodys = take_text(r, text, text_bytes, &put, &grants);
    if (somebodys > 0)
        rc = collection_put(r->target, &put, r->err);
    if (rc == QUIRE_EBUSY) { /* more than the journal's buffer holds */
        rc = journal_sync(r->to->journal, r->err);
        if (rc == 0)
            rc = collection_put(r->target, &put, r->err);
    }
    free(grants);
    if (somebodys <= 0)
        return somebodys;
    if (rc == QUIRE_ENOTFINITE || rc == QUIRE_EZEROVEC || rc == QUIRE_EINVALID) {
        store_found(&r->check, "element %.*s of collection %llu: %s", key_bytes > 100 ? 100 : (int)key_bytes,
                    (const char *)key, (unsigned long long)collection_uid(r->source), quire_error_text(rc));
        return 0;
    }
    if (rc < 0)
        return rc;
    r->n_elements++;
    /* a memtable that is full is sealed at once: nobody else does it */
    view = collection_view(r->target);
    bool is_full = store_seal_is_due(r->to, view);
    view_unref(view);
    return is_full ? store_seal(r->to, r->target, r->err) : 0;
}

static int save_memory(void *context, const struct memtable *memtable, uint32_t number, const struct memtable_row *row)
{
    struct repair *r = context;
    memtable_vector(memtable, number, r->floats + collection_config(r->source)->dim, r->floats);
    return put_element(r, row->key, row->key_bytes, r->floats, row->attributes, row->attribute_bytes);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static int mark_older(void *context, const struct scanned_row *row)
{
    struct repair *r = context;
    if (part_is_dead(r->part, row->row))
        return 0;
    bool is_new;
    int rc = add_seen(r, row->key, row->key_bytes, &is_new);
    if (rc == 0 && !is_new)
        bitmap_add(r->dead, row->row);
    return rc;
}

static int save_row(void *context, const struct scanned_row *row)
{
    struct repair *r = context;
    if (part_is_dead(r->part, row->row))
        return 0;
    return put_element(r, row->key, row->key_bytes, row->vector, row->attributes, row->attribute_bytes);
}

/* The new part with the tombstones of the old one and of rows that are older than others. */
static int publish_part(struct repair *r, uint64_t uid)
{
    struct part *added = NULL;
    uint64_t rows = segment_info(r->part->segment)->rows, n_dead = 0, lsn;
    uint32_t *dead = malloc(memory_size_mul(rows + 1, sizeof *dead));
    int rc = dead ? part_create(uid, &added, r->err) : error_set(r->err, QUIRE_ENOMEM, "no memory for tombstones");
    for (uint64_t row = 0; row < rows && rc >= 0; row++)
        if (part_is_dead(r->part, (uint32_t)row) || bitmap_has(r->dead, (uint32_t)row)) {
            rc = part_kill(added, (uint32_t)row);
            dead[n_dead++] = (uint32_t)row;
        }
    if (rc >= 0)
        rc = store_open_part(r->to, r->target, added, UINT64_MAX, r->err);
    if (rc == 0) {
        struct collection_edit edit = {.added = added, .dead = dead, .n_dead = n_dead};
        rc = store_publish(r->to, r->target, &edit, &lsn, r->err);
        r->n_elements += rc == 0 ? part_living(added) : 0;
    }
    part_unref(added);
    free(dead);
    return rc;
}

static int take_over(struct repair *r)
{
    uint64_t uid = store_new_segment(r->to);
    char *from = store_segment_path(r->from, r->part->uid), *to = store_segment_path(r->to, uid), *building = NULL;
    int rc = from && to && asprintf(&building, "%s" BUILDING_MARK, to) >= 0
                 ? 0
                 : error_set(r->err, QUIRE_ENOMEM, "no memory for the name of a segment");
    if (rc == 0)
        rc = store_link_folder(r->from->fs, from, building, true, r->err);
    if (rc == 0)
        rc = fs_publish(r->from->fs, building, to, r->err);
    r->dead = rc == 0 ? calloc(1, (size_t)segment_info(r->part->segment)->rows / 8 + 1) : NULL;
    if (rc == 0 && !r->dead)
        rc = error_set(r->err, QUIRE_ENOMEM, "no memory for tombstones");
    if (rc == 0)
        rc = segment_scan(r->part->segment, NULL, mark_older, NULL, r, r->err);
    if (rc == 0)
        rc = publish_part(r, uid);
    free(r->dead);
    r->dead = NULL;
    free(building);
    free(from);
    free(to);
    return rc;
}

/* Of a segment that is damaged the rows of whole blocks. */
static int save_rows(struct repair *r, struct segment *segment)
{
    uint64_t saved = r->n_elements, rows = segment_info(segment)->rows, dead = atomic_load(&r->part->n_dead);
    int rc = segment_scan(segment, NULL, save_row, lose, r, r->err);
    store_found(&r->check, "of the %llu elements of segment %llu, collection %llu, %llu could be saved",
                (unsigned long long)(rows > dead ? rows - dead : 0), (unsigned long long)r->part->uid,
                (unsigned long long)collection_uid(r->source), (unsigned long long)(r->n_elements - saved));
    return rc;
}

/* Of one that does not open, without what its rows do not need. */
static int save_closed(struct repair *r)
{
    struct segment_options options = {
        .fs = r->from->fs, .memory_bytes = UINT64_MAX, .no_cache = true, .rows_only = true};
    struct quire_error reason = {0};
    struct segment *segment = NULL;
    char *path = store_segment_path(r->from, r->part->uid);
    if (!path)
        return error_set(r->err, QUIRE_ENOMEM, "no memory for the name of a segment");
    int rc = segment_open(path, &options, &segment, &reason);
    free(path);
    if (rc == QUIRE_ENOMEM || rc == QUIRE_EPERM)
        return error_set(r->err, rc, "%s", reason.message);
    bool is_own = rc == 0 && segment_info(segment)->dim == collection_config(r->source)->dim;
    if (is_own)
        rc = save_rows(r, segment);
    else
        store_found(&r->check, "none of the elements of segment %llu, collection %llu, could be saved: %s",
                    (unsigned long long)r->part->uid, (unsigned long long)collection_uid(r->source),
                    rc < 0 ? reason.message : "it is another collection's");
    segment_unref(segment);
    return is_own ? rc : 0;
}

static int save_part(struct repair *r, const struct part *part)
{
    assert(!r->dead);
    r->part = part;
    uint64_t before = r->check.report.findings;
    if (!part->segment) /* the sentence has been said when it was opened */
        return save_closed(r);
    int rc = store_check_part(&r->check, r->source, part, r->err);
    if (rc < 0 || r->check.report.findings == before)
        return rc < 0 ? rc : take_over(r);
    return save_rows(r, part->segment);
}

static int by_age(const void *a, const void *b)
{
    uint64_t x = (*(struct part *const *)a)->uid, y = (*(struct part *const *)b)->uid;
    return x > y ? -1 : x < y;
}

/* ---- collections ------------------------------------------------------------------------------------------------- */

static int save_collection(struct repair *r)
{
    const struct collection_config *config = collection_config(r->source);
    uint64_t lsn;
    r->to->next_collection = collection_uid(r->source);
    int rc = store_create_collection(r->to, config, collection_schema(r->source), &r->target, &lsn, r->err);
    if (rc < 0)
        return rc;
    struct view *view = collection_view(r->source);
    r->vector = malloc(memory_size_mul(config->dim, quire_type_bytes(config->type)));
    r->floats = malloc(sizeof(float) * (3 * (size_t)config->dim + 1024));
    rc = r->vector && r->floats ? collection_take_dropped_tenants(r->target, r->source, r->err)
                                : error_set(r->err, QUIRE_ENOMEM, "no memory for a vector");
    if (rc == 0)
        rc = view_each_row(view, r->from->epochs, MEMTABLE_LSN_MAX - 1, save_memory, r);
    if (view->n_parts)
        qsort(view->parts, view->n_parts, sizeof(struct part *), by_age);
    for (uint32_t i = 0; i < view->n_parts && rc == 0; i++)
        rc = save_part(r, view->parts[i]);
    view_unref(view);
    free(r->vector);
    free(r->floats);
    free(r->seen.places);
    r->seen = (struct hash_set){0};
    collection_unref(r->target);
    return rc;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = collection_uid(*(struct collection *const *)a), y = collection_uid(*(struct collection *const *)b);
    return x < y ? -1 : x > y;
}

static int save_collections(struct repair *r)
{
    struct collection **list = NULL;
    uint32_t n = 0;
    int rc = store_list(r->from, &list, &n, r->err);
    if (rc == 0 && n)
        qsort(list, n, sizeof(struct collection *), by_number);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        r->source = list[i];
        rc = save_collection(r);
        r->check.report.collections++;
    }
    store_list_free(list, n);
    return rc;
}

static int write_folder(struct repair *r, const char *path)
{
    struct store_options options = {.fs = r->from->fs, .no_maintenance = true};
    struct store_host host = {.save = save_state, .context = r};
    int rc = store_open(path, &options, &host, &r->to, NULL, r->err);
    if (rc < 0)
        return rc;
    rc = store_checkpoint(r->to, r->err);
    if (rc == 0)
        rc = append_log(r);
    if (rc == 0)
        rc = save_collections(r);
    /* numbers that the damaged folder gave out are not given out again */
    if (r->to->next_collection < r->from->next_collection)
        r->to->next_collection = r->from->next_collection;
    if (rc == 0 && r->host.complete)
        rc = r->host.complete(r->host.context, path, r->to->journal, r->err);
    int closed = store_close(r->to, rc == 0 ? r->err : NULL);
    return rc < 0 ? rc : closed;
}

/* A name that is there, finished or half made, is somebody's. */
static int is_free(struct io_fs *fs, const char *path, struct quire_error *err)
{
    int rc = fs->ops->mkdir(fs, path);
    if (rc == 0)
        rc = fs->ops->rmdir(fs, path);
    return rc < 0
               ? error_set(err, rc, "cannot make %s: %s: choose another name or remove it", path, quire_error_text(rc))
               : 0;
}

int store_repair(const struct store_check_request *request, const char *to, struct store_verify_report *report,
                 struct quire_error *err)
{
    struct io_fs *fs = request->fs ? request->fs : fs_real();
    struct repair r = {
        .check = {.request = request}, .host = request->host ? *request->host : (struct store_host){0}, .err = err};
    struct store_host keeper = {.restore = keep_state, .replay = keep_log, .context = &r};
    char *building;
    r.state.end = &r.state.first;
    r.log.end = &r.log.first;
    if (asprintf(&building, "%s" BUILDING_MARK, to) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to repair %s", request->path);
    int rc = is_free(fs, to, err);
    if (rc == 0)
        rc = is_free(fs, building, err);
    if (rc == 0)
        rc = store_read_folder(&r.check, &keeper, err);
    if (rc == 0) {
        r.from = r.check.store;
        rc = write_folder(&r, building);
        if (rc == 0)
            rc = fs_publish(fs, building, to, err);
        if (rc < 0)
            store_discard_folder(fs, building);
        store_free(r.from);
    }
    free_records(&r.state);
    free_records(&r.log);
    free(building);
    r.check.report.elements = r.n_elements;
    if (report)
        *report = r.check.report;
    return rc;
}
