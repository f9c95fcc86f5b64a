/*
 * collection_log.c - what a collection writes to the journal, and how it is made again from that.
 *
 *   element   u64 uid, u64 ended segment (0: none), u32 ended row, u32 bytes of key, vector, attributes; then those
 *   EDIT      u64 uid, u64 segment that comes (0: none), u64 LSN up to which memtables go (0: none), u32 segments that
 *             go, u32 dead rows; then u64 per segment, u32 per dead row of the one that comes
 *   CREATE    u64 uid, config, the schema if there is one
 *   STATE     u64 uid, config, u32 segments, u32 bytes of names (0: there are none); those: u32 bytes of the schema,
 *             that, u32 tenants that were dropped, of each u32 generation, u32 bytes, name; then per segment u64 uid,
 *             u32 form (0: list, 1: bitmap), u32 bytes, those
 *   DROP_TENANT  u64 uid, u32 generation from now on, u32 bytes, name
 *   VOID_ROWS u64 uid, u64 segment, u32 rows, u32 0, u32 per row: they are nobody's any more
 *   ROWS      u64 uid, u32 rows, u32 0; per row u64 LSN where it begins, u32 bytes of key, vector, attributes, u32 0;
 *             then those
 *
 * Attributes are texts as grants.h has them.
 *
 * Valid if and only if every length lies inside the record, nothing is left over, a STATE names each segment once, and
 * the grants of texts are well-formed.
 * Bytes of a record have passed the journal's checksum, and are still not believed.
 *
 * Replaying needs no disk: segments are numbers with a growing bitmap of dead rows until the end of the log shows which
 * of them are still wanted. An EDIT that seals takes the rows begun up to its LSN out of the memtable. Records that the
 * checkpoint's STATE knew are left out.
 */
#include "index/collection/collection_priv.h"
#include "index/collection/lineage_priv.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

#define ELEMENT_HEADER_BYTES 32u
#define EDIT_HEADER_BYTES    32u
#define STATE_HEADER_BYTES   (16u + COLLECTION_CONFIG_BYTES)
#define STATE_PART_BYTES     16u
#define FORMER_BYTES         8u /* of a dropped tenant, before its name */
#define DROP_HEADER_BYTES    16u
#define VOID_HEADER_BYTES    24u
#define ROWS_HEADER_BYTES    16u
#define ROW_HEADER_BYTES     24u
#define ROWS_CHUNK_BYTES     (1u << 20) /* of rows in one record */

enum dead_form { DEAD_LIST = 0, DEAD_BITMAP = 1 };

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static uint8_t *append(uint8_t *to, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(to, bytes, n);
    return to + n;
}

uint8_t *collection_record_element(uint64_t uid, const struct record_element *e, uint32_t *n_bytes)
{
    *n_bytes = ELEMENT_HEADER_BYTES + e->key_bytes + e->stored_bytes + e->attribute_bytes;
    uint8_t *bytes = malloc(*n_bytes), *to = bytes + ELEMENT_HEADER_BYTES;
    if (!bytes)
        return NULL;
    bytes_store_u64(bytes, uid);
    bytes_store_u64(bytes + 8, e->ended_uid);
    bytes_store_u32(bytes + 16, e->ended_row);
    bytes_store_u32(bytes + 20, e->key_bytes);
    bytes_store_u32(bytes + 24, e->stored_bytes);
    bytes_store_u32(bytes + 28, e->attribute_bytes);
    to = append(to, e->key, e->key_bytes);
    to = append(to, e->stored, e->stored_bytes);
    to = append(to, e->attributes, e->attribute_bytes);
    assert(to == bytes + *n_bytes);
    return bytes;
}

uint8_t *collection_record_edit(uint64_t uid, const struct collection_edit *edit, uint64_t sealed_lsn,
                                uint32_t *n_bytes)
{
    const struct part *added = edit->added;
    uint64_t n_dead = edit->n_dead;
    const uint32_t *dead = edit->ended ? collection_ended_rows(edit->ended, &n_dead) : edit->dead;
    assert(n_dead == (added ? atomic_load_explicit(&added->n_dead, memory_order_relaxed) : 0));
    uint64_t total = EDIT_HEADER_BYTES + 8 * (uint64_t)edit->n_removed_parts + 4 * n_dead;
    uint8_t *bytes = total < JOURNAL_RECORD_BYTES_MAX ? malloc(total) : NULL;
    *n_bytes = (uint32_t)total;
    if (!bytes)
        return NULL;
    bytes_store_u64(bytes, uid);
    bytes_store_u64(bytes + 8, added ? added->uid : 0);
    bytes_store_u64(bytes + 16, sealed_lsn);
    bytes_store_u32(bytes + 24, edit->n_removed_parts);
    bytes_store_u32(bytes + 28, (uint32_t)n_dead);
    uint8_t *to = bytes + EDIT_HEADER_BYTES;
    for (uint32_t i = 0; i < edit->n_removed_parts; i++, to += 8)
        bytes_store_u64(to, edit->removed_parts[i]->uid);
    for (uint64_t i = 0; i < n_dead; i++, to += 4)
        bytes_store_u32(to, dead[i]);
    assert(to == bytes + total);
    return bytes;
}

uint8_t *collection_record_create(const struct collection *c, uint32_t *n_bytes)
{
    uint32_t schema_bytes = 0;
    uint8_t *schema = c->schema->n ? attribute_schema_encode(c->schema, &schema_bytes) : NULL;
    *n_bytes = 8 + COLLECTION_CONFIG_BYTES + schema_bytes;
    uint8_t *bytes = c->schema->n && !schema ? NULL : malloc(*n_bytes);
    if (bytes) {
        bytes_store_u64(bytes, c->uid);
        collection_config_encode(&c->config, bytes + 8);
        append(bytes + 8 + COLLECTION_CONFIG_BYTES, schema, schema_bytes);
    }
    free(schema);
    return bytes;
}

uint8_t *collection_record_drop_tenant(uint64_t uid, const char *name, uint32_t bytes, uint32_t generation,
                                       uint32_t *n_bytes)
{
    *n_bytes = DROP_HEADER_BYTES + bytes;
    uint8_t *record = malloc(*n_bytes);
    if (!record)
        return NULL;
    bytes_store_u64(record, uid);
    bytes_store_u32(record + 8, generation);
    bytes_store_u32(record + 12, bytes);
    append(record + DROP_HEADER_BYTES, name, bytes);
    return record;
}

uint8_t *collection_record_void_rows(uint64_t uid, uint64_t part_uid, const uint32_t *rows, uint32_t n,
                                     uint32_t *n_bytes)
{
    *n_bytes = VOID_HEADER_BYTES + 4 * n;
    uint8_t *record = malloc(*n_bytes);
    if (!record)
        return NULL;
    bytes_store_u64(record, uid);
    bytes_store_u64(record + 8, part_uid);
    bytes_store_u32(record + 16, n);
    bytes_store_u32(record + 20, 0);
    for (uint32_t i = 0; i < n; i++)
        bytes_store_u32(record + VOID_HEADER_BYTES + 4 * (size_t)i, rows[i]);
    return record;
}

/* ---- the state for a checkpoint ---------------------------------------------------------------------------------- */

/* (lock) The names of a STATE: the schema, and the tenants that were dropped. *n_bytes 0: there are neither, or there
 * is no memory (then NULL). The caller's. */
static uint8_t *encode_names(const struct collection *c, uint32_t *n_bytes)
{
    uint32_t schema_bytes = 0, n_former = atomic_load(&c->n_former);
    uint8_t *schema = c->schema->n ? attribute_schema_encode(c->schema, &schema_bytes) : NULL;
    uint64_t total = n_former || schema_bytes ? 8 + (uint64_t)schema_bytes : 0;
    assert(lock_is_held(&c->lock));
    for (uint32_t i = 0; i < n_former; i++)
        total += FORMER_BYTES + c->former[i].bytes;
    bool fits = total < JOURNAL_RECORD_BYTES_MAX && (schema || !c->schema->n);
    uint8_t *bytes = fits ? malloc(total + 1) : NULL;
    *n_bytes = bytes ? (uint32_t)total : 0;
    if (*n_bytes) {
        bytes_store_u32(bytes, schema_bytes);
        uint8_t *to = append(bytes + 4, schema, schema_bytes);
        bytes_store_u32(to, n_former);
        to += 4;
        for (uint32_t i = 0; i < n_former; i++) {
            bytes_store_u32(to, c->former[i].generation);
            bytes_store_u32(to + 4, c->former[i].bytes);
            to = append(to + FORMER_BYTES, c->former[i].name, c->former[i].bytes);
        }
        assert(to == bytes + total);
    }
    free(schema);
    return bytes;
}

/* A part's tombstones in their shorter form. */
static uint32_t dead_bytes(const struct tombstones *t, uint32_t i, enum dead_form *form)
{
    uint64_t bitmap = t->parts[i]->dead_capacity / 8, list = 0;
    for (uint64_t at = 0; at < bitmap; at++)
        list += 4 * (uint64_t)__builtin_popcount(t->dead[i][at]);
    *form = list < bitmap ? DEAD_LIST : DEAD_BITMAP;
    return (uint32_t)(list < bitmap ? list : bitmap);
}

static uint8_t *append_dead(uint8_t *to, const struct tombstones *t, uint32_t i)
{
    for (uint64_t at = 0; at < t->parts[i]->dead_capacity / 8; at++)
        for (unsigned bits = t->dead[i][at]; bits; bits &= bits - 1, to += 4)
            bytes_store_u32(to, (uint32_t)(8 * at) + (uint32_t)__builtin_ctz(bits));
    return to;
}

/* NULL: no memory. */
static uint8_t *encode_state(const struct collection *c, const struct tombstones *t, const uint8_t *names,
                             uint32_t names_bytes, uint32_t *n_bytes)
{
    uint64_t total = STATE_HEADER_BYTES + (uint64_t)names_bytes;
    enum dead_form form;
    for (uint32_t i = 0; i < t->n; i++)
        total += STATE_PART_BYTES + dead_bytes(t, i, &form);
    uint8_t *bytes = total < JOURNAL_RECORD_BYTES_MAX ? malloc(total) : NULL;
    *n_bytes = (uint32_t)total;
    if (!bytes)
        return NULL;
    bytes_store_u64(bytes, c->uid);
    collection_config_encode(&c->config, bytes + 8);
    bytes_store_u32(bytes + 8 + COLLECTION_CONFIG_BYTES, t->n);
    bytes_store_u32(bytes + 12 + COLLECTION_CONFIG_BYTES, names_bytes);
    uint8_t *to = append(bytes + STATE_HEADER_BYTES, names, names_bytes);
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t n = dead_bytes(t, i, &form);
        bytes_store_u64(to, t->parts[i]->uid);
        bytes_store_u32(to + 8, form);
        bytes_store_u32(to + 12, n);
        to += STATE_PART_BYTES;
        to = form == DEAD_BITMAP ? append(to, t->dead[i], n) : append_dead(to, t, i);
    }
    assert(to == bytes + total);
    return bytes;
}

/* Rows that are written together. */
struct rows_chunk {
    const struct collection *collection;
    struct checkpoint *checkpoint;
    uint64_t lsn;
    uint8_t *bytes;
    size_t n_bytes, capacity;
    uint32_t n;
    struct quire_error *err;
};

static int chunk_flush(struct rows_chunk *chunk)
{
    if (chunk->n == 0)
        return 0;
    bytes_store_u64(chunk->bytes, chunk->collection->uid);
    bytes_store_u32(chunk->bytes + 8, chunk->n);
    bytes_store_u32(chunk->bytes + 12, 0);
    int rc = journal_checkpoint_put(chunk->checkpoint, RECORD_ROWS, chunk->lsn, chunk->bytes, (uint32_t)chunk->n_bytes,
                                    chunk->err);
    chunk->n = 0;
    chunk->n_bytes = ROWS_HEADER_BYTES;
    return rc;
}

static int chunk_add(struct rows_chunk *chunk, const struct memtable *memtable, uint32_t number,
                     const struct memtable_row *row)
{
    uint32_t stored_bytes = memtable_stored_bytes(&chunk->collection->table_config);
    size_t more = (size_t)ROW_HEADER_BYTES + row->key_bytes + stored_bytes + row->attribute_bytes;
    if (!array_reserve(&chunk->bytes, &chunk->capacity, chunk->n_bytes + more))
        return error_set(chunk->err, QUIRE_ENOMEM, "no memory for a checkpoint's rows");
    uint8_t *to = chunk->bytes + chunk->n_bytes;
    bytes_store_u64(to, row->begin_lsn);
    bytes_store_u32(to + 8, row->key_bytes);
    bytes_store_u32(to + 12, stored_bytes);
    bytes_store_u32(to + 16, row->attribute_bytes);
    bytes_store_u32(to + 20, 0);
    to = append(to + ROW_HEADER_BYTES, row->key, row->key_bytes);
    memtable_row_stored(memtable, number, to);
    to = append(to + stored_bytes, row->attributes, row->attribute_bytes);
    chunk->n_bytes += more;
    chunk->n++;
    assert(to == chunk->bytes + chunk->n_bytes);
    return 0;
}

/* The rows of a memtable that are visible; each in an epoch of its own, and none is held while they are written. */
static int save_memtable(struct rows_chunk *chunk, const struct memtable *memtable)
{
    struct epochs *epochs = chunk->collection->host->epochs;
    uint32_t rows = view_memtable_rows(memtable);
    int rc = 0;
    for (uint32_t r = 0; r < rows && rc == 0; r++) {
        struct memtable_row row;
        unsigned epoch = epoch_enter(epochs);
        if (memtable_row_at(memtable, r, chunk->lsn, &row))
            rc = chunk_add(chunk, memtable, r, &row);
        epoch_exit(epochs, epoch);
        if (rc == 0 && chunk->n_bytes >= ROWS_CHUNK_BYTES)
            rc = chunk_flush(chunk);
    }
    return rc;
}

int collection_save(struct collection *c, struct checkpoint *checkpoint, struct quire_error *err)
{
    uint64_t lsn;
    uint32_t n_bytes;
    if (collection_pin(c, &lsn) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to pin a collection");
    /* the pin may be older than what is read here: rows that died since are simply there still */
    struct tombstones tombstones;
    struct view *view = NULL;
    uint8_t *names = NULL, *state = NULL, *lineage = NULL;
    uint32_t names_bytes = 0;
    size_t lineage_bytes = 0;
    uint64_t now = 0;
    journal_quiesce_begin(c->host->journal);
    int rc = collection_tombstones_begin(c, &tombstones, &view);
    if (rc == 0) {
        now = c->last_lsn;
        names = encode_names(c, &names_bytes);
        lineage = lineage_state(c, &lineage_bytes);
        pthread_mutex_unlock(&c->lock);
    }
    journal_quiesce_end(c->host->journal);
    if (rc == 0)
        rc = collection_tombstones_end(c, &tombstones);
    if (rc == 0 && names && lineage)
        state = encode_state(c, &tombstones, names, names_bytes, &n_bytes);
    tombstones_destroy(&tombstones);
    free(names);
    rc = state ? journal_checkpoint_put(checkpoint, RECORD_STATE, now, state, n_bytes, err)
               : error_set(err, QUIRE_ENOMEM, "no memory for the state of a collection");
    if (rc == 0)
        rc = lineage_save(checkpoint, now, lineage, lineage_bytes, err);
    free(lineage);
    struct rows_chunk chunk = {
        .collection = c, .checkpoint = checkpoint, .lsn = now, .n_bytes = ROWS_HEADER_BYTES, .err = err};
    for (uint32_t i = 0; rc == 0 && i < view->n_memtables; i++)
        rc = save_memtable(&chunk, view->memtables[i]->memtable);
    if (rc == 0)
        rc = chunk_flush(&chunk);
    free(chunk.bytes);
    free(state);
    view_unref(view);
    collection_unpin(c, lsn);
    return rc;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int bad_record(const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "a journal record is not %s: its lengths do not fit", what);
}

/* The names of a STATE record. */
struct state_names {
    const uint8_t *schema, *former;
    uint32_t schema_bytes, n_former;
    const uint8_t *end;
};

static int find_names(const uint8_t *bytes, uint32_t n, struct state_names *out, struct quire_error *err)
{
    *out = (struct state_names){.schema = NULL};
    if (n < STATE_HEADER_BYTES)
        return bad_record("a collection's state", err);
    uint32_t names = bytes_load_u32(bytes + 12 + COLLECTION_CONFIG_BYTES);
    const uint8_t *at = bytes + STATE_HEADER_BYTES;
    out->end = at;
    if (names == 0)
        return 0;
    if (names < 8 || names > n - STATE_HEADER_BYTES || bytes_load_u32(at) > names - 8)
        return bad_record("a collection's state", err);
    out->end = at + names;
    out->schema = at + 4;
    out->schema_bytes = bytes_load_u32(at);
    out->n_former = bytes_load_u32(out->schema + out->schema_bytes);
    out->former = out->schema + out->schema_bytes + 4;
    return 0;
}

int collection_record_config(uint8_t kind, const uint8_t *bytes, uint32_t n, uint64_t *uid,
                             struct collection_config *config, struct attribute_schema **schema,
                             struct quire_error *err)
{
    struct state_names names = {.schema = NULL};
    if (n < 8 + COLLECTION_CONFIG_BYTES)
        return bad_record("a collection's settings", err);
    *uid = bytes_load_u64(bytes);
    int rc = collection_config_decode(bytes + 8, config, err);
    if (rc == 0 && kind == RECORD_STATE)
        rc = find_names(bytes, n, &names, err);
    else if (kind != RECORD_STATE)
        names = (struct state_names){.schema = bytes + 8 + COLLECTION_CONFIG_BYTES,
                                     .schema_bytes = n - 8 - COLLECTION_CONFIG_BYTES};
    if (rc < 0)
        return rc;
    return names.schema_bytes ? attribute_schema_decode(names.schema, names.schema_bytes, schema, err)
                              : attribute_schema_create(NULL, 0, schema, err);
}

/* lengths: u32 of key, vector, attributes; those lie at `bytes`, before `end`. Returns how many bytes they are. Grants
 * that are not well-formed would be read past their end. */
static int64_t decode_element(const uint8_t *lengths, const uint8_t *bytes, const uint8_t *end, const char *what,
                              struct record_element *e, struct quire_error *err)
{
    const char *json;
    uint32_t json_bytes, n;
    e->key_bytes = bytes_load_u32(lengths);
    e->stored_bytes = bytes_load_u32(lengths + 4);
    e->attribute_bytes = bytes_load_u32(lengths + 8);
    uint64_t total = (uint64_t)e->key_bytes + e->stored_bytes + e->attribute_bytes;
    if (total > (uint64_t)(end - bytes) || e->key_bytes == 0 || e->key_bytes > QUIRE_KEY_BYTES_MAX)
        return bad_record(what, err);
    e->key = bytes;
    e->stored = bytes + e->key_bytes;
    e->attributes = e->attribute_bytes ? bytes + e->key_bytes + e->stored_bytes : NULL;
    if (grants_split(e->attributes, e->attribute_bytes, &json, &json_bytes, &n) < 0)
        return error_set(err, QUIRE_ECORRUPT, "a journal record holds an element whose grants are damaged");
    return (int64_t)total;
}

static int kill_sealed(struct collection *c, uint64_t uid, uint32_t row, struct quire_error *err)
{
    struct part *part = uid ? view_part(c->view, uid) : NULL;
    struct told *told = uid && !part ? lineage_find_uid(c, uid) : NULL;
    if (told)
        part = told->part;
    if (part && part_kill(part, row) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for tombstones");
    return 0;
}

static int put_stored(struct collection *c, const struct record_element *e, uint64_t begin, struct quire_error *err)
{
    uint32_t row;
    if (e->stored_bytes != memtable_stored_bytes(&c->table_config))
        return error_set(err, QUIRE_ECORRUPT, "a journal record holds a vector of %u bytes, not %u", e->stored_bytes,
                         memtable_stored_bytes(&c->table_config));
    int rc = memtable_put(c->view->memtables[0]->memtable, e->key, e->key_bytes, e->stored, true, e->attributes,
                          e->attribute_bytes, begin, &row);
    return rc < 0 ? error_set(err, rc, "no memory for an element of the journal") : 0;
}

static int replay_element(struct collection *c, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                          struct quire_error *err)
{
    static const char what[] = "an element's";
    struct record_element e = {.key = NULL};
    struct memtable *memtable = c->view->memtables[0]->memtable;
    if (n < ELEMENT_HEADER_BYTES)
        return bad_record(what, err);
    int64_t read = decode_element(bytes + 20, bytes + ELEMENT_HEADER_BYTES, bytes + n, what, &e, err);
    if (read >= 0 && read != n - ELEMENT_HEADER_BYTES)
        return bad_record(what, err);
    int rc = read < 0 ? (int)read : kill_sealed(c, bytes_load_u64(bytes + 8), bytes_load_u32(bytes + 16), err);
    if (rc < 0)
        return rc;
    if (kind == RECORD_PUT)
        return put_stored(c, &e, lsn, err);
    uint32_t row = memtable_find(memtable, e.key, e.key_bytes);
    if (row == MEMTABLE_NONE)
        return kind == RECORD_REMOVE
                   ? 0
                   : error_set(err, QUIRE_ECORRUPT, "the journal sets attributes of an element that is not there");
    if (kind == RECORD_REMOVE)
        memtable_end(memtable, row, lsn);
    else if (memtable_set_attributes(memtable, row, e.attributes, e.attribute_bytes) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for attributes of the journal");
    return 0;
}

/* The rows of a memtable that began after `sealed` go to another. */
static int move_younger(const struct memtable *from, struct memtable *to, uint64_t sealed, uint32_t stored_bytes)
{
    uint8_t *stored = malloc(stored_bytes);
    uint32_t rows = view_memtable_rows(from);
    int rc = stored ? 0 : QUIRE_ENOMEM;
    for (uint32_t r = 0; r < rows && rc >= 0; r++) {
        struct memtable_row row;
        uint32_t number;
        if (!memtable_row_at(from, r, MEMTABLE_LSN_MAX - 1, &row) || row.begin_lsn <= sealed)
            continue;
        memtable_row_stored(from, r, stored);
        rc = memtable_put(to, row.key, row.key_bytes, stored, true, row.attributes, row.attribute_bytes, row.begin_lsn,
                          &number);
    }
    free(stored);
    return rc;
}

static int replay_parts(struct collection *c, struct collection_edit *edit, uint64_t sealed, struct quire_error *err)
{
    struct memtable_ref *fresh = NULL, *old = c->view->memtables[0];
    int rc = sealed ? memtable_ref_create(&c->table_config, &fresh, err) : 0;
    if (rc == 0 && sealed &&
        move_younger(old->memtable, fresh->memtable, sealed, memtable_stored_bytes(&c->table_config)) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for an element of the journal");
    assert(c->view->n_memtables == 1); /* nothing is frozen while records are played back */
    edit->removed_memtables = &old;
    edit->n_removed_memtables = sealed != 0;
    struct view *view = rc == 0 ? view_edited(c->view, edit, fresh) : NULL;
    edit->removed_memtables = NULL; /* `old` ends with this function */
    edit->n_removed_memtables = 0;
    if (rc == 0 && !view)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a view");
    memtable_unref(fresh);
    if (rc < 0)
        return rc;
    view_unref(c->view);
    c->view = view;
    atomic_fetch_add_explicit(&c->n_views, 1, memory_order_release);
    return 0;
}

static int replay_edit(struct collection *c, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct collection_edit edit = {.added = NULL};
    if (n < EDIT_HEADER_BYTES)
        return bad_record("a change of segments", err);
    uint32_t n_removed = bytes_load_u32(bytes + 24), n_dead = bytes_load_u32(bytes + 28), found = 0;
    if (EDIT_HEADER_BYTES + 8 * (uint64_t)n_removed + 4 * (uint64_t)n_dead != n)
        return bad_record("a change of segments", err);
    const uint8_t *removed = bytes + EDIT_HEADER_BYTES, *dead = removed + 8 * (size_t)n_removed;
    struct part **parts = malloc(sizeof(struct part *) * (n_removed + 1)), *added = NULL;
    int rc = parts ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to replay a change of segments");
    for (uint32_t i = 0; i < n_removed && rc == 0; i++)
        if (!(parts[found++] = view_part(c->view, bytes_load_u64(removed + 8 * (size_t)i))))
            rc = error_set(err, QUIRE_ECORRUPT, "the journal removes segment %llu, which is not there",
                           (unsigned long long)bytes_load_u64(removed + 8 * (size_t)i));
    if (rc == 0 && bytes_load_u64(bytes + 8))
        rc = part_create(bytes_load_u64(bytes + 8), &added, err);
    for (uint32_t i = 0; i < n_dead && rc == 0 && added; i++)
        if (part_kill(added, bytes_load_u32(dead + 4 * (size_t)i)) < 0)
            rc = error_set(err, QUIRE_ENOMEM, "no memory for tombstones");
    edit.removed_parts = parts;
    edit.n_removed_parts = n_removed;
    edit.added = added;
    if (rc == 0)
        rc = replay_parts(c, &edit, bytes_load_u64(bytes + 16), err);
    if (rc == 0 && c->lineage)
        lineage_replay_edit(c, bytes_load_u64(bytes + 8), bytes_load_u64(bytes + 16));
    part_unref(added);
    free(parts);
    return rc;
}

/* One part of a STATE record at *at, moving it on. */
static int restore_part(struct collection *c, const uint8_t **at, const uint8_t *end, struct quire_error *err)
{
    struct collection_edit edit = {.added = NULL};
    const uint8_t *p = *at;
    if (end - p < (ptrdiff_t)STATE_PART_BYTES || (size_t)(end - p) - STATE_PART_BYTES < bytes_load_u32(p + 12))
        return bad_record("a collection's state", err);
    uint64_t uid = bytes_load_u64(p);
    uint32_t form = bytes_load_u32(p + 8), bytes = bytes_load_u32(p + 12);
    struct part *part = NULL;
    bool valid = uid && !view_part(c->view, uid) && form <= DEAD_BITMAP && (form == DEAD_BITMAP || bytes % 4 == 0);
    int rc = valid ? part_create(uid, &part, err) : bad_record("a collection's state", err);
    p += STATE_PART_BYTES;
    for (uint32_t i = 0; i < bytes / 4 && rc == 0 && form == DEAD_LIST; i++)
        rc = part_kill(part, bytes_load_u32(p + 4 * (size_t)i)) < 0 ? QUIRE_ENOMEM : 0;
    for (uint64_t row = 0; row < 8 * (uint64_t)bytes && rc == 0 && form == DEAD_BITMAP; row++)
        if (bitmap_has(p, (uint32_t)row))
            rc = part_kill(part, (uint32_t)row) < 0 ? QUIRE_ENOMEM : 0;
    edit.added = part;
    if (rc == 0)
        rc = replay_parts(c, &edit, 0, err);
    part_unref(part);
    *at = p + bytes;
    return rc;
}

/* A name that was dropped, now or before the checkpoint. */
static int take_former(struct collection *c, const char *name, uint32_t bytes, uint32_t generation,
                       struct quire_error *err)
{
    int rc = grants_check_tenant(name, bytes, err);
    if (rc < 0)
        return error_set(err, QUIRE_ECORRUPT, "a journal record drops a tenant whose name has %u bytes", bytes);
    if (collection_set_generation(c, name, bytes, generation) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the names of tenants");
    atomic_store(&c->n_drops, 1);
    atomic_store(&c->void_due, true);
    return 0;
}

static int restore_state(struct collection *c, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct state_names names;
    int rc = find_names(bytes, n, &names, err);
    const uint8_t *at = rc == 0 ? names.former : NULL, *end = bytes + n;
    for (uint32_t i = 0; rc == 0 && i < names.n_former; i++) {
        if (names.end - at < (ptrdiff_t)FORMER_BYTES ||
            (size_t)(names.end - at) - FORMER_BYTES < bytes_load_u32(at + 4))
            return bad_record("a collection's state", err);
        uint32_t name_bytes = bytes_load_u32(at + 4);
        rc = take_former(c, (const char *)at + FORMER_BYTES, name_bytes, bytes_load_u32(at), err);
        at += FORMER_BYTES + name_bytes;
    }
    if (rc == 0 && at && at != names.end)
        rc = bad_record("a collection's state", err);
    if (rc < 0)
        return rc;
    uint32_t n_parts = bytes_load_u32(bytes + 8 + COLLECTION_CONFIG_BYTES);
    at = names.end;
    for (uint32_t i = 0; i < n_parts && rc == 0; i++)
        rc = restore_part(c, &at, end, err);
    if (rc == 0 && at != end)
        rc = bad_record("a collection's state", err);
    c->restored_lsn = lsn;
    return rc;
}

static int replay_drop_tenant(struct collection *c, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    if (n < DROP_HEADER_BYTES || bytes_load_u32(bytes + 12) != n - DROP_HEADER_BYTES)
        return bad_record("a dropped tenant's", err);
    return take_former(c, (const char *)bytes + DROP_HEADER_BYTES, n - DROP_HEADER_BYTES, bytes_load_u32(bytes + 8),
                       err);
}

static int replay_void_rows(struct collection *c, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    if (n < VOID_HEADER_BYTES || VOID_HEADER_BYTES + 4 * (uint64_t)bytes_load_u32(bytes + 16) != n)
        return bad_record("one of rows that are nobody's", err);
    int rc = 0;
    for (uint32_t i = 0; i < bytes_load_u32(bytes + 16) && rc == 0; i++)
        rc = kill_sealed(c, bytes_load_u64(bytes + 8), bytes_load_u32(bytes + VOID_HEADER_BYTES + 4 * (size_t)i), err);
    return rc;
}

static int restore_rows(struct collection *c, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    static const char what[] = "rows of a checkpoint";
    if (n < ROWS_HEADER_BYTES)
        return bad_record(what, err);
    uint32_t rows = bytes_load_u32(bytes + 8);
    const uint8_t *at = bytes + ROWS_HEADER_BYTES, *end = bytes + n;
    int rc = 0;
    for (uint32_t i = 0; i < rows && rc == 0; i++) {
        struct record_element e = {.key = NULL};
        if (end - at < (ptrdiff_t)ROW_HEADER_BYTES)
            return bad_record(what, err);
        int64_t read = decode_element(at + 8, at + ROW_HEADER_BYTES, end, what, &e, err);
        rc = read < 0 ? (int)read : put_stored(c, &e, bytes_load_u64(at), err);
        if (rc == 0)
            at += ROW_HEADER_BYTES + (uint64_t)read;
    }
    return rc == 0 && at != end ? bad_record(what, err) : rc;
}

int collection_replay(struct collection *c, uint8_t kind, bool restored, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                      struct quire_error *err)
{
    int rc;
    if (!restored && lsn <= c->restored_lsn)
        return 0;
    if (restored && kind == RECORD_STATE)
        rc = restore_state(c, lsn, bytes, n, err);
    else if (restored && kind == RECORD_ROWS)
        rc = restore_rows(c, bytes, n, err);
    else if (kind == RECORD_PUT || kind == RECORD_REMOVE || kind == RECORD_ATTRIBUTES)
        rc = replay_element(c, kind, lsn, bytes, n, err);
    else if (kind == RECORD_EDIT)
        rc = replay_edit(c, bytes, n, err);
    else if (kind == RECORD_DROP_TENANT)
        rc = replay_drop_tenant(c, bytes, n, err);
    else if (kind == RECORD_VOID_ROWS)
        rc = replay_void_rows(c, bytes, n, err);
    else if (kind >= RECORD_IDENTITY && kind <= RECORD_TOLD)
        rc = lineage_replay(c, kind, lsn, bytes, n, err);
    else
        rc = error_set(err, QUIRE_EVERSION, "the journal holds records of kind %u, which this version does not know",
                       kind);
    if (rc == 0 && lsn > c->last_lsn)
        c->last_lsn = lsn;
    return rc;
}

static int count_attributed(void *context, const struct memtable *memtable, uint32_t number,
                            const struct memtable_row *row)
{
    uint64_t *n = context;
    (void)memtable, (void)number;
    *n += collection_text_has_attributes(row->attributes, row->attribute_bytes);
    return 0;
}

void collection_recount(struct collection *c)
{
    struct memtable_stats stats;
    uint64_t n = 0, attributed = 0;
    for (uint32_t i = 0; i < c->view->n_memtables; i++) {
        memtable_get_stats(c->view->memtables[i]->memtable, &stats);
        n += stats.rows;
    }
    view_each_row(c->view, c->host->epochs, MEMTABLE_LSN_MAX - 1, count_attributed, &attributed);
    for (uint32_t i = 0; i < c->view->n_parts; i++) {
        n += part_living(c->view->parts[i]);
        attributed += part_attributed(c->view->parts[i]);
    }
    atomic_store_explicit(&c->n_elements, n, memory_order_relaxed);
    atomic_store_explicit(&c->n_attributed, attributed, memory_order_relaxed);
}
