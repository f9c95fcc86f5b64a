/*
 * replica_manifest.c - a collection at one moment, as bytes, and a copy made of them.
 *
 *   u32 magic, u32 version, 16 collection, 16 history, u64 begins, u64 seq, u32 bytes of the shape, u32 dropped
 *   tenants, u32 segments, u32 memtables, u64 bytes of all, u64 checksum: XXH3-64 of what stands before it, then of
 *   what follows shape (collection_export_shape)
 *   per dropped tenant  u32 generation, u32 bytes, name
 *   per segment         16 id, u64 rows, u64 bytes of its files, u32 dead rows, u32 0; u32 per dead row
 *   per memtable, the oldest first: u64 number where it was cut (0: the newest), u64 rows;
 *                       per row u32 bytes of key, vector, text, u32 0; those
 *
 * A load writes to the journal what it makes, and the identity's number last: what a crash leaves half made has none of
 * the leader's numbers, and the host, whose key does not name it, drops it.
 */
#include "index/replica/replica_manifest.h"
#include "index/attribute/grants.h"
#include "index/collection/collection_export.h"
#include "index/collection/collection_host.h"
#include "index/memtable/memtable.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MANIFEST_MAGIC 0x4e414d51u /* bytes "QMAN" */

enum manifest_at {
    VERSION_AT = 4,
    ID_AT = 8,
    HISTORY_AT = 24,
    BEGINS_AT = 40,
    SEQ_AT = 48,
    SHAPE_BYTES_AT = 56,
    TENANTS_AT = 60,
    SEGMENTS_AT = 64,
    TABLES_AT = 68,
    BYTES_AT = 72,
    CHECKSUM_AT = 80,
    MANIFEST_HEADER_BYTES = 88,
    TENANT_BYTES = 8,
    SEGMENT_BYTES = 40,
    TABLE_BYTES = 16,
    ROW_BYTES = 16
};

/* ---- making ------------------------------------------------------------------------------------------------------ */

struct manifest_out {
    uint8_t *bytes;
    size_t n, capacity;
};

static uint8_t *grow(struct manifest_out *out, size_t n)
{
    if (!array_reserve(&out->bytes, &out->capacity, out->n + n))
        return NULL;
    uint8_t *at = out->bytes + out->n;
    memset(at, 0, n);
    out->n += n;
    return at;
}

static int put_segment(struct manifest_out *out, const struct part *part, const uint8_t *dead)
{
    size_t header = out->n;
    uint64_t rows = segment_info(part->segment)->rows;
    uint32_t n_dead = 0;
    if (!grow(out, SEGMENT_BYTES))
        return QUIRE_ENOMEM;
    for (uint64_t row = 0; row < rows; row++)
        if (dead[row / 8] >> (row % 8) & 1) {
            uint8_t *at = grow(out, 4);
            if (!at)
                return QUIRE_ENOMEM;
            bytes_store_u32(at, (uint32_t)row);
            n_dead++;
        }
    uint8_t *at = out->bytes + header;
    memcpy(at, part->segment->segment_id, LINEAGE_ID_BYTES);
    bytes_store_u64(at + 16, rows);
    bytes_store_u64(at + 24, segment_info(part->segment)->index_bytes);
    bytes_store_u32(at + 32, n_dead);
    return 0;
}

struct row_out {
    struct manifest_out *out;
    uint32_t stored_bytes;
    uint64_t n;
};

static int put_row(void *context, const struct memtable *memtable, uint32_t number, const struct memtable_row *row)
{
    struct row_out *rows = context;
    uint8_t *at = grow(rows->out, ROW_BYTES + (size_t)row->key_bytes + rows->stored_bytes + row->attribute_bytes);
    if (!at)
        return QUIRE_ENOMEM;
    bytes_store_u32(at, row->key_bytes);
    bytes_store_u32(at + 4, rows->stored_bytes);
    bytes_store_u32(at + 8, row->attribute_bytes);
    memcpy(at + ROW_BYTES, row->key, row->key_bytes);
    memtable_row_stored(memtable, number, at + ROW_BYTES + row->key_bytes);
    if (row->attribute_bytes)
        memcpy(at + ROW_BYTES + row->key_bytes + rows->stored_bytes, row->attributes, row->attribute_bytes);
    rows->n++;
    return 0;
}

static int put_table(struct manifest_out *out, const struct lineage_moment *moment, uint32_t i, uint32_t stored_bytes)
{
    struct row_out rows = {.out = out, .stored_bytes = stored_bytes};
    size_t header = out->n;
    if (!grow(out, TABLE_BYTES))
        return QUIRE_ENOMEM;
    int rc = lineage_moment_rows(moment, i, put_row, &rows);
    if (i > 0)
        bytes_store_u64(out->bytes + header, lineage_moment_cut(moment, i));
    bytes_store_u64(out->bytes + header + 8, rows.n);
    return rc;
}

static uint64_t checksum_of(const uint8_t *bytes, size_t n)
{
    uint64_t header = XXH3_64bits(bytes, CHECKSUM_AT);
    return XXH3_64bits_withSeed(bytes + MANIFEST_HEADER_BYTES, n - MANIFEST_HEADER_BYTES, header);
}

int replica_manifest_make(struct collection *c, uint8_t **bytes, size_t *n_bytes, struct quire_error *err)
{
    struct lineage_moment *moment = NULL;
    struct manifest_out out = {.bytes = NULL};
    uint32_t shape_bytes = 0;
    int rc = lineage_moment_open(c, &moment, err);
    if (rc < 0)
        return rc;
    const struct view *view = lineage_moment_view(moment);
    const struct lineage_identity *identity = lineage_moment_identity(moment);
    uint8_t *shape = collection_export_shape(c, &shape_bytes);
    bool room = shape && grow(&out, MANIFEST_HEADER_BYTES) && grow(&out, shape_bytes);
    if (room)
        memcpy(out.bytes + MANIFEST_HEADER_BYTES, shape, shape_bytes);
    uint32_t n_tenants = lineage_moment_tenants(moment);
    for (uint32_t i = 0; room && i < n_tenants; i++) {
        struct grant tenant = lineage_moment_tenant(moment, i);
        uint8_t *at = grow(&out, TENANT_BYTES + (size_t)tenant.bytes);
        if ((room = at != NULL)) {
            bytes_store_u32(at, tenant.generation);
            bytes_store_u32(at + 4, tenant.bytes);
            memcpy(at + TENANT_BYTES, tenant.name, tenant.bytes);
        }
    }
    for (uint32_t i = 0; room && i < view->n_parts; i++)
        room = put_segment(&out, view->parts[i], lineage_moment_dead(moment, i)) == 0;
    for (uint32_t i = view->n_memtables; room && i-- > 0;)
        room = put_table(&out, moment, i, collection_stored_bytes(c)) == 0;
    if (room) {
        bytes_store_u32(out.bytes, MANIFEST_MAGIC);
        bytes_store_u32(out.bytes + VERSION_AT, REPLICA_MANIFEST_VERSION);
        memcpy(out.bytes + ID_AT, identity->id, LINEAGE_ID_BYTES);
        memcpy(out.bytes + HISTORY_AT, identity->history, LINEAGE_ID_BYTES);
        bytes_store_u64(out.bytes + BEGINS_AT, identity->begins);
        bytes_store_u64(out.bytes + SEQ_AT, identity->seq);
        bytes_store_u32(out.bytes + SHAPE_BYTES_AT, shape_bytes);
        bytes_store_u32(out.bytes + TENANTS_AT, n_tenants);
        bytes_store_u32(out.bytes + SEGMENTS_AT, view->n_parts);
        bytes_store_u32(out.bytes + TABLES_AT, view->n_memtables);
        bytes_store_u64(out.bytes + BYTES_AT, out.n);
        bytes_store_u64(out.bytes + CHECKSUM_AT, checksum_of(out.bytes, out.n));
        *bytes = out.bytes;
        *n_bytes = out.n;
    } else {
        free(out.bytes);
    }
    free(shape);
    lineage_moment_close(moment);
    return room ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the manifest of a set");
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Visitors may be NULL. Who loads walks twice: everything is checked before anything is made. */
struct manifest_walk {
    int (*tenant)(void *context, const struct grant *tenant, struct quire_error *err);
    int (*segment)(void *context, const struct effect *edit, struct quire_error *err);
    int (*row)(void *context, const struct effect *put, struct quire_error *err);
    int (*cut)(void *context, uint64_t seq, struct quire_error *err);
    void *context;
    struct replica_manifest_info info;
    const uint8_t *shape;
    uint32_t shape_bytes;
};

static int bad(struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "the manifest of a set is damaged");
}

static int walk_segment(struct manifest_walk *w, const uint8_t **at, const uint8_t *end, struct quire_error *err)
{
    const uint8_t *p = *at;
    if (end - p < SEGMENT_BYTES)
        return bad(err);
    struct effect edit = {.kind = EFFECT_EDIT,
                          .segment_rows = bytes_load_u64(p + 16),
                          .segment_bytes = bytes_load_u64(p + 24),
                          .n_rows = bytes_load_u32(p + 32),
                          .required = true};
    memcpy(edit.segment, p, LINEAGE_ID_BYTES);
    p += SEGMENT_BYTES;
    if ((uint64_t)(end - p) < 4 * (uint64_t)edit.n_rows || edit.n_rows > edit.segment_rows ||
        edit.segment_rows >= UINT32_MAX || edit.segment_rows == 0)
        return bad(err);
    uint32_t *rows = malloc(4 * (size_t)edit.n_rows + 1);
    int rc = rows ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for tombstones");
    for (uint32_t i = 0; rc == 0 && i < edit.n_rows; i++, p += 4) {
        rows[i] = bytes_load_u32(p);
        rc = rows[i] < edit.segment_rows ? 0 : bad(err);
    }
    edit.rows = rows;
    w->info.segment_rows += edit.segment_rows;
    w->info.segment_bytes += edit.segment_bytes;
    if (rc == 0 && w->segment)
        rc = w->segment(w->context, &edit, err);
    free(rows);
    *at = p;
    return rc;
}

static int walk_table(struct manifest_walk *w, const uint8_t **at, const uint8_t *end, bool is_newest,
                      struct quire_error *err)
{
    const uint8_t *p = *at;
    int rc = 0;
    if (end - p < TABLE_BYTES)
        return bad(err);
    uint64_t cut = bytes_load_u64(p), n = bytes_load_u64(p + 8);
    if (is_newest != (cut == 0))
        return bad(err);
    p += TABLE_BYTES;
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        if (end - p < ROW_BYTES)
            return bad(err);
        struct effect put = {.kind = EFFECT_PUT,
                             .key_bytes = bytes_load_u32(p),
                             .stored_bytes = bytes_load_u32(p + 4),
                             .text_bytes = bytes_load_u32(p + 8)};
        uint64_t bytes = (uint64_t)put.key_bytes + put.stored_bytes + put.text_bytes;
        p += ROW_BYTES;
        if ((uint64_t)(end - p) < bytes)
            return bad(err);
        put.key = p;
        put.stored = p + put.key_bytes;
        put.text = put.text_bytes ? p + put.key_bytes + put.stored_bytes : NULL;
        p += bytes;
        if (w->row)
            rc = w->row(w->context, &put, err);
    }
    w->info.memory_rows += n;
    if (rc == 0 && !is_newest && w->cut)
        rc = w->cut(w->context, cut, err);
    *at = p;
    return rc;
}

static int walk_manifest(struct manifest_walk *w, const uint8_t *bytes, size_t n, struct quire_error *err)
{
    if (n < MANIFEST_HEADER_BYTES || bytes_load_u32(bytes) != MANIFEST_MAGIC)
        return bad(err);
    if (bytes_load_u32(bytes + VERSION_AT) != REPLICA_MANIFEST_VERSION)
        return error_set(err, QUIRE_EVERSION, "a manifest is of version %u, this program knows %u",
                         bytes_load_u32(bytes + VERSION_AT), REPLICA_MANIFEST_VERSION);
    if (bytes_load_u64(bytes + BYTES_AT) != n || bytes_load_u64(bytes + CHECKSUM_AT) != checksum_of(bytes, n))
        return bad(err);
    const uint8_t *at = bytes + MANIFEST_HEADER_BYTES, *end = bytes + n;
    uint32_t n_tenants = bytes_load_u32(bytes + TENANTS_AT), n_tables = bytes_load_u32(bytes + TABLES_AT);
    w->info = (struct replica_manifest_info){.n_segments = bytes_load_u32(bytes + SEGMENTS_AT)};
    memcpy(w->info.identity.id, bytes + ID_AT, LINEAGE_ID_BYTES);
    memcpy(w->info.identity.history, bytes + HISTORY_AT, LINEAGE_ID_BYTES);
    w->info.identity.begins = bytes_load_u64(bytes + BEGINS_AT);
    w->info.identity.seq = bytes_load_u64(bytes + SEQ_AT);
    w->shape = at;
    w->shape_bytes = bytes_load_u32(bytes + SHAPE_BYTES_AT);
    if (w->shape_bytes > (size_t)(end - at) || n_tables == 0)
        return bad(err);
    at += w->shape_bytes;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n_tenants; i++) {
        if (end - at < TENANT_BYTES || bytes_load_u32(at + 4) > (size_t)(end - at) - TENANT_BYTES)
            return bad(err);
        struct grant tenant = {
            .name = (const char *)at + TENANT_BYTES, .bytes = bytes_load_u32(at + 4), .generation = bytes_load_u32(at)};
        at += TENANT_BYTES + tenant.bytes;
        rc = grants_check_tenant(tenant.name, tenant.bytes, NULL) < 0 ? bad(err)
             : w->tenant                                              ? w->tenant(w->context, &tenant, err)
                                                                      : 0;
    }
    for (uint32_t i = 0; rc == 0 && i < w->info.n_segments; i++)
        rc = walk_segment(w, &at, end, err);
    for (uint32_t i = 0; rc == 0 && i < n_tables; i++)
        rc = walk_table(w, &at, end, i + 1 == n_tables, err);
    return rc == 0 && at != end ? bad(err) : rc;
}

int replica_manifest_read(const uint8_t *bytes, size_t n, struct replica_manifest_info *out, struct quire_error *err)
{
    struct manifest_walk walk = {.context = NULL};
    int rc = walk_manifest(&walk, bytes, n, err);
    if (rc == 0)
        *out = walk.info;
    return rc;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* The copy is made by effects of its own numbers, 1, 2, ...; then it gets those of its leader. */
struct loading {
    struct store *store;
    struct collection *collection, *old;
    uint64_t seq;
};

static int apply(struct loading *l, struct effect *effect, struct quire_error *err)
{
    uint64_t lsn;
    effect->seq = ++l->seq;
    return lineage_apply(l->collection, effect, &lsn, err);
}

static int load_tenant(void *context, const struct grant *tenant, struct quire_error *err)
{
    struct effect drop = {
        .kind = EFFECT_DROP_TENANT, .key = tenant->name, .key_bytes = tenant->bytes, .generation = tenant->generation};
    return apply(context, &drop, err);
}

static int load_row(void *context, const struct effect *row, struct quire_error *err)
{
    struct effect put = *row;
    return apply(context, &put, err);
}

static int load_cut(void *context, uint64_t seq, struct quire_error *err)
{
    struct effect freeze = {.kind = EFFECT_FREEZE, .upto = seq};
    return apply(context, &freeze, err);
}

static int load_segment(void *context, const struct effect *segment, struct quire_error *err)
{
    struct effect edit = *segment;
    return apply(context, &edit, err);
}

/* Segments that `old` has, by hard links. One that cannot be taken is fetched like any other. */
static void take_old(struct loading *l)
{
    struct view *view = l->old ? collection_view(l->old) : NULL;
    uint32_t n = lineage_list_told(l->collection, NULL, 0);
    struct lineage_told *told = calloc(n + 1u, sizeof *told);
    struct io_fs *fs = store_fs(l->store);
    if (told && view)
        lineage_list_told(l->collection, told, n);
    for (uint32_t i = 0; told && view && i < n; i++)
        for (uint32_t k = 0; k < view->n_parts; k++) {
            const struct part *part = view->parts[k];
            uint64_t lsn;
            if (!part->segment || memcmp(part->segment->segment_id, told[i].segment, LINEAGE_ID_BYTES) != 0)
                continue;
            char *from = store_part_folder(l->store, part), *to = store_copy_folder(l->store, told[i].uid);
            if (!from || !to || store_link_folder(fs, from, to, true, NULL) < 0 ||
                store_copy_adopt(l->store, l->collection, &told[i], &lsn, NULL) < 0)
                fs_remove_folder(fs, to ? to : "", NULL);
            free(from);
            free(to);
        }
    view_unref(view);
    free(told);
}

int replica_manifest_load(struct store *store, const uint8_t *bytes, size_t n, struct collection *old,
                          struct collection **out, struct quire_error *err)
{
    struct collection_config config;
    struct attribute_schema *schema = NULL;
    struct loading l = {.store = store, .old = old};
    struct manifest_walk check = {.context = NULL}, load = {.tenant = load_tenant,
                                                            .segment = load_segment,
                                                            .row = load_row,
                                                            .cut = load_cut,
                                                            .context = &l};
    uint64_t lsn;
    int rc = walk_manifest(&check, bytes, n, err);
    if (rc == 0)
        rc = collection_import_shape(check.shape, check.shape_bytes, &config, &schema, err);
    if (rc == 0)
        rc = store_create_collection(store, &config, schema, &l.collection, &lsn, err);
    attribute_schema_destroy(schema);
    if (rc < 0)
        return rc;
    struct lineage_identity loading = check.info.identity;
    loading.begins = loading.seq = 0;
    rc = lineage_begin(l.collection, &loading, &lsn, err);
    if (rc == 0)
        rc = lineage_set_replica(l.collection, true, err);
    if (rc == 0)
        rc = walk_manifest(&load, bytes, n, err);
    if (rc == 0)
        take_old(&l);
    if (rc == 0)
        rc = lineage_become(l.collection, &check.info.identity, &lsn, err);
    if (rc < 0) {
        store_drop_collection(store, l.collection, &lsn, NULL);
        collection_unref(l.collection);
        return rc;
    }
    *out = l.collection;
    return 0;
}
