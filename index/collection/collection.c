/*
 * collection.c - a live collection: views, writes, and how its parts change.
 *
 * A write is three things under one lock, none of which waits for the disk: a frame in the journal, a row in the newest
 * memtable, and the end of the row that it replaces, wherever that lies. The record of a put names the sealed row that
 * it ends (segment and row number), so that replaying needs no look-up on the disk: if that segment has been merged
 * away by the end of the log, the record of that merge has carried the tombstone on.
 *
 * The view is replaced, never changed: readers take a reference under the lock and keep what they have. What does
 * change under a reader are rows of memtables, which carry the LSNs where they begin and end, and tombstones.
 *
 * publish swaps what was sealed or merged for its result. Rows that died while that was made have been carried into the
 * result before, but for the last few (collection_ended.c). The frame that says so is appended under the same lock, so
 * that every later write refers to the new view and every earlier one to the old. Nothing under the lock grows with the
 * rows of the collection, and views are released outside of it.
 */
#include "index/attribute/filter.h"
#include "index/build/build.h"
#include "index/collection/collection_priv.h"
#include "index/collection/lineage_priv.h"
#include "index/collection/part_numbers.h"
#include "index/format/format.h"
#include "index/segment/block_cache.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

#define RECLAIM_STEPS 8u /* calls under one collection's lock before others get their turn */

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

int collection_create(const struct collection_host *host, size_t host_bytes, uint64_t uid,
                      const struct collection_config *config, struct attribute_schema *schema, uint64_t last_lsn,
                      struct collection **out, struct quire_error *err)
{
    struct collection *c = calloc(1, sizeof *c + host_bytes);
    assert(host && host->epochs && schema);
    if (!c)
        return error_set(err, QUIRE_ENOMEM, "no memory for a collection");
    c->table_config = (struct memtable_config){.dim = config->dim,
                                               .type = config->type,
                                               .metric = config->metric,
                                               .slot = collection_slot(config),
                                               .seed = config->seed,
                                               .schema = schema,
                                               .numbered = config->numbered,
                                               .epochs = host->epochs};
    int rc = view_create(&c->table_config, &c->view, err);
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->host = host;
    c->uid = uid;
    c->config = *config;
    c->schema = schema;
    c->last_lsn = last_lsn;
    atomic_init(&c->references, 1);
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return 0;
}

void *collection_host_data(const struct collection *c)
{
    return (void *)(uintptr_t)c->host_data;
}

struct collection *collection_ref(struct collection *c)
{
    atomic_fetch_add_explicit(&c->references, 1, memory_order_relaxed);
    return c;
}

void collection_unref(struct collection *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->references, 1, memory_order_acq_rel) != 1)
        return;
    view_unref(c->view);
    pthread_mutex_destroy(&c->lock);
    collection_tenants_free(c);
    lineage_free(c->lineage);
    attribute_schema_destroy(c->schema);
    free(c->pins);
    free(c->unavailable);
    free(c);
}

struct view *collection_view(struct collection *c)
{
    pthread_mutex_lock(&c->lock);
    struct view *view = view_ref(c->view);
    pthread_mutex_unlock(&c->lock);
    return view;
}

/* What was logged under this number is there. In a batch numbers may come late: what is newer stays visible. */
void collection_seen(struct collection *c, uint64_t lsn)
{
    c->last_lsn = lsn > c->last_lsn ? lsn : c->last_lsn;
}

uint64_t collection_last_lsn(struct collection *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t lsn = c->last_lsn;
    pthread_mutex_unlock(&c->lock);
    return lsn;
}

bool collection_is_dropped(const struct collection *c)
{
    return atomic_load(&c->dropped);
}

int collection_set_unavailable(struct collection *c, const struct quire_error *reason)
{
    assert(!c->unavailable && reason->code < 0);
    c->unavailable = malloc(sizeof *reason);
    if (!c->unavailable)
        return QUIRE_ENOMEM;
    *c->unavailable = *reason;
    return 0;
}

int collection_available(const struct collection *c, struct quire_error *err)
{
    if (!c->unavailable)
        return 0;
    if (err)
        *err = *c->unavailable;
    return c->unavailable->code;
}

uint64_t collection_uid(const struct collection *c)
{
    return c->uid;
}

const struct collection_config *collection_config(const struct collection *c)
{
    return &c->config;
}

const struct attribute_schema *collection_schema(const struct collection *c)
{
    return c->schema;
}

uint64_t collection_count(const struct collection *c)
{
    return atomic_load_explicit(&c->n_elements, memory_order_relaxed);
}

enum quire_index_kind collection_index_kind(const struct collection *c)
{
    return build_kind(c->config.index);
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

void collection_wake(struct collection *c)
{
    if (c->host->wake)
        c->host->wake(c->host->context, c);
}

int collection_append(struct collection *c, uint8_t kind, uint8_t *bytes, uint32_t n_bytes, uint64_t *lsn,
                      struct quire_error *err)
{
    struct journal_record records[LINEAGE_RECORDS_MAX] = {{.kind = kind, .bytes = bytes, .n_bytes = n_bytes}};
    assert(lock_is_held(&c->lock));
    assert(kind < RECORD_KINDS_END && kind != RECORD_STATE && kind != RECORD_ROWS);
    if (!bytes)
        return error_set(err, QUIRE_ENOMEM, "no memory for a journal record of %u bytes", n_bytes);
    unsigned n = c->lineage ? lineage_add_records(c, records, 1, 1) : 1;
    int rc = journal_append(c->host->journal, records, n, lsn, err);
    free(bytes);
    assert(rc < 0 || *lsn > 0);
    if (rc == 0 && c->lineage)
        lineage_advance(c, 1);
    return rc;
}

int collection_log_create(struct collection *c, uint64_t *lsn, struct quire_error *err)
{
    uint32_t n_bytes;
    uint8_t *bytes = collection_record_create(c, &n_bytes);
    pthread_mutex_lock(&c->lock);
    assert(c->last_lsn == 0);
    int rc = collection_append(c, RECORD_CREATE, bytes, n_bytes, lsn, err);
    if (rc == 0)
        collection_seen(c, *lsn);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* No edit follows its DROP in the log: both are appended under its lock. */
int collection_log_drop(struct collection *c, uint64_t *lsn, struct quire_error *err)
{
    uint8_t bytes[8];
    struct journal_record record = {.kind = RECORD_DROP, .bytes = bytes, .n_bytes = sizeof bytes};
    bytes_store_u64(bytes, c->uid);
    pthread_mutex_lock(&c->lock);
    int rc = atomic_load(&c->dropped)
                 ? error_set(err, QUIRE_ECLOSED, "collection %llu was dropped before", (unsigned long long)c->uid)
                 : journal_append(c->host->journal, &record, 1, lsn, err);
    if (rc == 0)
        atomic_store(&c->dropped, true);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

int collection_check_key(uint32_t key_bytes, struct quire_error *err)
{
    if (key_bytes == 0 || key_bytes > QUIRE_KEY_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "an element's name has 1..%u bytes, not %u", QUIRE_KEY_BYTES_MAX,
                         key_bytes);
    return 0;
}

/* Whether a write may begin: its key, the bytes of its attributes, and what the host says. */
static int admit(const struct collection *c, uint32_t key_bytes, uint32_t attribute_bytes, struct quire_error *err)
{
    int rc = collection_check_key(key_bytes, err);
    if (rc == 0 && c->config.numbered && key_bytes <= NUMBER_BYTES)
        rc = error_set(err, QUIRE_ERANGE, "a name of %u bytes: more than the %u of its number are needed", key_bytes,
                       NUMBER_BYTES);
    if (rc == 0 && attribute_bytes > ATTRIBUTE_BYTES_MAX)
        rc = error_set(err, QUIRE_ERANGE, "attributes of %u bytes: at most %u", attribute_bytes, ATTRIBUTE_BYTES_MAX);
    return rc == 0 && c->host->admit ? c->host->admit(c->host->context, c, err) : rc;
}

static bool is_somewhere(const struct element_place *place)
{
    return place->table || place->part;
}

/* (lock) The sealed row that has the number of a name. */
static void find_number(const struct view *view, const void *key, struct element_place *out)
{
    for (uint32_t i = view->n_parts; i > 0 && !out->part; i--) {
        out->part_row = part_row_of_number(view->parts[i - 1], number_of_name(key));
        out->part = out->part_row != ROW_NONE ? view->parts[i - 1] : NULL;
    }
}

/* (lock) QUIRE_ESTALE where `located` is of another generation. */
static int find_place(struct collection *c, const void *key, uint32_t key_bytes, const struct located *located,
                      struct element_place *out, struct quire_error *err)
{
    const struct view *view = c->view;
    memset(out, 0, sizeof *out);
    assert(lock_is_held(&c->lock));
    if (atomic_load(&c->dropped))
        return error_set(err, QUIRE_ECLOSED, "the collection was removed");
    if (c->lineage && c->lineage->is_replica)
        return lineage_refuse(c, err);
    if (located->generation != view->generation && !c->config.numbered)
        return error_set(err, QUIRE_ESTALE, "the collection's segments have changed");
    for (uint32_t i = 0; i < view->n_memtables && !out->table; i++) {
        out->row = memtable_find(view->memtables[i]->memtable, key, key_bytes);
        if (out->row != MEMTABLE_NONE) {
            out->table = view->memtables[i];
            out->newest = i == 0;
        }
    }
    if (c->config.numbered && !out->table)
        find_number(view, key, out);
    if (!out->table && !c->config.numbered && located->segment_uid) {
        struct part *part = view_part(view, located->segment_uid);
        if (part && !part_is_dead(part, located->row)) {
            out->part = part;
            out->part_row = located->row;
        }
    }
    assert(!out->table || !out->part); /* a living row is in one place */
    return 0;
}

/* Ends what was there, after its replacement or removal was logged. */
void collection_end_place(const struct element_place *place, uint64_t lsn)
{
    assert(lsn > 0);
    if (place->table)
        memtable_end(place->table->memtable, place->row, lsn);
    if (place->part)
        part_kill(place->part, place->part_row);
}

/* Counts a text that takes the place of what is there (bytes 0: none, or the element goes). Before that ends. */
void collection_count_attributes(struct collection *c, const struct element_place *old, const void *text,
                                 uint32_t bytes)
{
    struct memtable_row row = {.attributes = NULL};
    assert(lock_is_held(&c->lock));
    if (old->table)
        memtable_row(old->table->memtable, old->row, &row);
    bool had = old->part ? part_has_attributes(old->part, old->part_row)
                         : collection_text_has_attributes(row.attributes, row.attribute_bytes);
    uint64_t more = (uint64_t)collection_text_has_attributes(text, bytes) - had; /* modulo 2^64 */
    atomic_fetch_add_explicit(&c->n_attributed, more, memory_order_relaxed);
}

static void name_place(const struct element_place *place, struct record_element *element)
{
    element->ended_uid = place->part ? place->part->uid : 0;
    element->ended_row = place->part_row;
}

static int log_element(struct collection *c, uint8_t kind, const struct record_element *element, uint64_t *lsn,
                       struct quire_error *err)
{
    uint32_t n_bytes;
    uint8_t *bytes = collection_record_element(c->uid, element, &n_bytes);
    return collection_append(c, kind, bytes, n_bytes, lsn, err);
}

/* The newest table takes a row in place of what was there. Nothing fails once it is logged: what a replay finds in the
 * log alone could be there twice. Under the lock, in an epoch. */
int collection_put_row(struct collection *c, const struct element_place *place, const struct record_element *element,
                       uint64_t *lsn, struct quire_error *err)
{
    struct memtable *newest = c->view->memtables[0]->memtable;
    struct memtable_pending pending;
    assert(lock_is_held(&c->lock) && element->stored && !atomic_load(&c->dropped));
    assert(c->view->memtables[0]->last_lsn == MEMTABLE_LSN_MAX); /* it is not frozen */
    int rc = memtable_prepare(newest, element->key, element->key_bytes, element->stored, element->attributes,
                              element->attribute_bytes, &pending);
    if (rc == QUIRE_ELIMIT)
        return error_set(err, rc, "a memtable of this set is full of rows: try again when it is sealed (VSEAL)");
    if (rc < 0)
        return error_set(err, rc, "no memory for an element");
    rc = log_element(c, RECORD_PUT, element, lsn, err);
    if (rc < 0) {
        memtable_cancel(newest, &pending);
        return rc;
    }
    collection_count_attributes(c, place, element->attributes, element->attribute_bytes);
    uint32_t row = memtable_commit(newest, &pending, *lsn);
    assert(memtable_end_lsn(newest, row) == MEMTABLE_LSN_MAX);
    if (c->lineage)
        lineage_tell_element(c, EFFECT_PUT, element, place);
    /* in the newest table the put itself has ended the older row */
    struct element_place rest = *place;
    if (place->newest)
        rest.table = NULL;
    collection_end_place(&rest, *lsn);
    collection_seen(c, *lsn);
    if (!is_somewhere(place))
        atomic_fetch_add_explicit(&c->n_elements, 1, memory_order_relaxed);
    return 0;
}

/* What the element has that a write replaces: bytes 0: nothing, or that is not known. In an epoch. */
static struct element_text old_text(const struct element_place *place, const void *text, uint32_t bytes)
{
    struct memtable_row row;
    if (place->part)
        return (struct element_text){.text = text, .bytes = text ? bytes : 0};
    if (!place->table)
        return (struct element_text){.text = NULL};
    memtable_row(place->table->memtable, place->row, &row);
    return (struct element_text){.text = row.attributes, .bytes = row.attribute_bytes};
}

/* Whether who is bound to the scope may see what is there. */
static bool place_allows(const struct element_place *place, const struct tenant_scope *scope)
{
    struct memtable_row row;
    if (!scope)
        return true;
    if (place->part)
        return part_allows(place->part, place->part_row, scope);
    if (!place->table)
        return false;
    memtable_row(place->table->memtable, place->row, &row);
    return grants_allow(row.attributes, row.attribute_bytes, scope);
}

/* Whether the row that was there counts as gone: its tenants have been dropped. */
static bool is_void(const struct collection *c, const struct element_text *old)
{
    return old->bytes > 0 && atomic_load_explicit(&c->n_former, memory_order_relaxed) > 0 &&
           collection_text_is_void(c, old->text, old->bytes);
}

static int check_vector(const struct view *view, const struct collection_put *put, struct quire_error *err)
{
    const struct memtable *newest = view->memtables[0]->memtable;
    return put->is_stored ? memtable_check_stored(newest, put->vector, err)
                          : memtable_check_vector(newest, put->vector, err);
}

/* Commits a put under the lock. scope: put->scope, resolved, or NULL. MEMTABLE_TOO_LONG: nothing but the length of its
 * vector is in its way. */
static int commit_put(struct collection *c, struct collection_put *put, const struct tenant_scope *scope,
                      const void *stored, struct quire_error *err)
{
    struct element_place place;
    struct element_text text;
    int rc = find_place(c, put->key, put->key_bytes, &put->located, &place, err);
    int fits = rc < 0 ? rc : check_vector(c->view, put, err);
    if (fits < 0)
        return fits;
    struct element_text old = old_text(&place, put->old_text, put->old_text_bytes);
    bool is_gone = is_void(c, &old);
    if (is_gone)
        old = (struct element_text){.text = NULL};
    else if (is_somewhere(&place) && !place_allows(&place, scope))
        return error_set(err, QUIRE_EPERM, "the name %.*s is taken by an element that this user may not see",
                         put->key_bytes > 100 ? 100 : (int)put->key_bytes, (const char *)put->key);
    put->was_new = is_gone || !is_somewhere(&place);
    put->lsn = 0;
    if (put->condition == PUT_ONLY_SEALED && (is_gone || !place.part))
        return error_set(err, QUIRE_ESTALE, "the sealed row has been replaced or removed");
    if ((put->condition == PUT_ONLY_NEW && !put->was_new) || (put->condition == PUT_ONLY_OLD && put->was_new))
        return 0;
    rc = collection_text_of_put(c, put, scope, &old, &text, err);
    if (rc < 0)
        return rc;
    struct record_element element = {.key = put->key,
                                     .key_bytes = put->key_bytes,
                                     .stored = stored,
                                     .stored_bytes = memtable_stored_bytes(&c->table_config),
                                     .attributes = text.text,
                                     .attribute_bytes = text.bytes};
    name_place(&place, &element);
    rc = fits == 0 ? collection_put_row(c, &place, &element, &put->lsn, err) : MEMTABLE_TOO_LONG;
    free(text.owned);
    return rc;
}

/* Wakes maintenance when the newest table is full. */
void collection_watch_memtable(struct collection *c)
{
    struct memtable_stats stats;
    assert(lock_is_held(&c->lock));
    memtable_get_stats(c->view->memtables[0]->memtable, &stats);
    if (c->host->note_memtable)
        c->host->note_memtable(c->host->context, c, stats.rows, stats.bytes);
    if (stats.dead > stats.rows + MEMTABLE_FLAT_ROWS)
        collection_wake(c);
}

static int lock_and_put(struct collection *c, struct collection_put *put, const void *stored, struct quire_error *err)
{
    struct epochs *epochs = c->host->epochs;
    struct tenant_scope *scope = NULL;
    unsigned epoch = epoch_enter(epochs);
    pthread_mutex_lock(&c->lock);
    int rc = collection_scope_resolve_locked(c, put->scope, &scope, err);
    if (rc == 0)
        rc = commit_put(c, put, scope, stored, err);
    if (rc == 0)
        collection_watch_memtable(c);
    pthread_mutex_unlock(&c->lock);
    epoch_exit(epochs, epoch);
    free(scope);
    return rc;
}

/* The newest memtable takes no more rows. Not in a batch: all of a frame goes to one table, or its seal would take the
 * frame's LSN for sealed. */
static int begin_memtable(struct collection *c, struct quire_error *err)
{
    if (journal_in_batch(c->host->journal))
        return error_set(err, QUIRE_ELIMIT,
                         "the vector is much longer than those before it and needs a memtable of its own, which cannot "
                         "begin within a transaction: send this write by itself first");
    int rc = journal_health(c->host->journal, err);
    if (rc < 0)
        return rc;
    journal_quiesce_begin(c->host->journal);
    rc = collection_freeze(c, err);
    journal_quiesce_end(c->host->journal);
    return rc;
}

int collection_admit(struct collection *c, const void *vector, struct quire_error *err)
{
    int rc = c->host->admit ? c->host->admit(c->host->context, c, err) : 0;
    if (rc < 0 || !vector)
        return rc;
    pthread_mutex_lock(&c->lock);
    rc = memtable_check_vector(c->view->memtables[0]->memtable, vector, err);
    pthread_mutex_unlock(&c->lock);
    return rc == MEMTABLE_TOO_LONG ? begin_memtable(c, err) : rc;
}

int collection_put(struct collection *c, struct collection_put *put, struct quire_error *err)
{
    int rc = admit(c, put->key_bytes, put->attributes ? put->attribute_bytes : 0, err);
    if (rc < 0)
        return rc;
    struct view *view = collection_view(c);
    uint8_t *stored = malloc(memtable_stored_bytes(&c->table_config));
    rc = stored ? check_vector(view, put, err) : error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    if (rc >= 0 && put->is_stored)
        memcpy(stored, put->vector, memtable_stored_bytes(&c->table_config));
    else if (rc >= 0 && memtable_stored(view->memtables[0]->memtable, put->vector, stored) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    view_unref(view);
    do
        rc = rc < 0 ? rc : lock_and_put(c, put, stored, err);
    while (rc == MEMTABLE_TOO_LONG && (rc = begin_memtable(c, err)) == 0);
    assert(rc <= 0);
    free(stored);
    return rc;
}

/* Whether a removal takes what is there. */
static bool may_remove(const struct element_place *place, const struct located *located,
                       const struct tenant_scope *scope)
{
    struct memtable_row row;
    if (!is_somewhere(place) || !place_allows(place, scope))
        return false;
    if (!place->table || (located->seen_lsn == 0 && !located->matching))
        return true;
    memtable_row(place->table->memtable, place->row, &row);
    return (located->seen_lsn == 0 || row.begin_lsn <= located->seen_lsn) &&
           collection_text_matches(located->matching, row.attributes, row.attribute_bytes, row.key, row.key_bytes);
}

static int commit_remove(struct collection *c, const void *key, uint32_t key_bytes, const struct located *located,
                         const struct tenant_scope *scope, bool *removed, uint64_t *lsn, struct quire_error *err)
{
    struct element_place place;
    int rc = find_place(c, key, key_bytes, located, &place, err);
    if (rc < 0 || !may_remove(&place, located, scope))
        return rc;
    struct record_element element = {.key = key, .key_bytes = key_bytes};
    name_place(&place, &element);
    rc = log_element(c, RECORD_REMOVE, &element, lsn, err);
    if (rc < 0)
        return rc;
    collection_count_attributes(c, &place, NULL, 0);
    collection_end_place(&place, *lsn);
    collection_seen(c, *lsn);
    if (c->lineage)
        lineage_tell_element(c, EFFECT_REMOVE, &element, &place);
    uint64_t before = atomic_fetch_sub_explicit(&c->n_elements, 1, memory_order_relaxed);
    assert(before > 0);
    collection_watch_memtable(c);
    *removed = true;
    return 0;
}

int collection_remove(struct collection *c, const void *key, uint32_t key_bytes, const struct located *located,
                      const struct tenant_scope *scope, bool *removed, uint64_t *lsn, struct quire_error *err)
{
    struct tenant_scope *resolved = NULL;
    int rc = collection_check_key(key_bytes, err);
    *removed = false;
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->lock);
    rc = collection_scope_resolve_locked(c, scope, &resolved, err);
    if (rc == 0)
        rc = commit_remove(c, key, key_bytes, located, resolved, removed, lsn, err);
    pthread_mutex_unlock(&c->lock);
    free(resolved);
    return rc;
}

int collection_write_text(struct collection *c, const struct element_place *place, struct record_element *element,
                          uint64_t *lsn, struct quire_error *err)
{
    assert(lock_is_held(&c->lock) && place->table);
    if (place->newest && c->n_pins == 0) {
        struct memtable *newest = place->table->memtable;
        struct memtable_pending_text pending;
        if (memtable_attributes_prepare(newest, place->row, element->attributes, element->attribute_bytes, &pending) <
            0)
            return error_set(err, QUIRE_ENOMEM, "no memory for attributes and grants of %u bytes",
                             element->attribute_bytes);
        int rc = log_element(c, RECORD_ATTRIBUTES, element, lsn, err);
        if (rc < 0) {
            memtable_attributes_cancel(newest, &pending);
            return rc;
        }
        collection_count_attributes(c, place, element->attributes, element->attribute_bytes);
        memtable_attributes_commit(newest, &pending);
        collection_seen(c, *lsn);
        if (c->lineage)
            lineage_tell_element(c, EFFECT_TEXT, element, place);
        return 0;
    }
    /* an element of a frozen table, whose rows are being copied, goes to the newest one; where a snapshot is read the
     * old text stays with the old row, for that */
    element->stored_bytes = memtable_stored_bytes(&c->table_config);
    uint8_t *stored = malloc(element->stored_bytes);
    if (!stored)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    memtable_row_stored(place->table->memtable, place->row, stored);
    element->stored = stored;
    int rc = collection_put_row(c, place, element, lsn, err);
    free(stored);
    if (rc == 0)
        collection_watch_memtable(c);
    return rc;
}

static int commit_change(struct collection *c, struct collection_change *change, const struct tenant_scope *scope,
                         struct quire_error *err)
{
    struct element_place place;
    struct located nowhere = {.generation = c->view->generation};
    char *text = NULL;
    uint32_t bytes = 0;
    int rc = find_place(c, change->key, change->key_bytes, &nowhere, &place, err);
    if (rc < 0)
        return rc;
    if (!place.table || !place_allows(&place, scope))
        return error_set(err, QUIRE_ENOTFOUND, "no memtable holds the element");
    struct element_text old = old_text(&place, NULL, 0);
    if (is_void(c, &old))
        return error_set(err, QUIRE_ENOTFOUND, "no memtable holds the element");
    rc = collection_text_of_change(c, change, old.text, old.bytes, &text, &bytes, &change->n_changed, err);
    if (rc < 0 || (!change->set_attributes && change->n_changed == 0)) {
        free(text);
        return rc;
    }
    struct record_element element = {
        .key = change->key, .key_bytes = change->key_bytes, .attributes = text, .attribute_bytes = bytes};
    rc = collection_write_text(c, &place, &element, &change->lsn, err);
    free(text);
    return rc;
}

int collection_change(struct collection *c, struct collection_change *change, struct quire_error *err)
{
    struct epochs *epochs = c->host->epochs;
    struct tenant_scope *scope = NULL;
    int rc = admit(c, change->key_bytes, change->set_attributes ? change->attribute_bytes : 0, err);
    change->lsn = 0;
    change->n_changed = 0;
    if (rc < 0)
        return rc;
    unsigned epoch = epoch_enter(epochs);
    pthread_mutex_lock(&c->lock);
    rc = collection_scope_resolve_locked(c, change->scope, &scope, err);
    if (rc == 0)
        rc = commit_change(c, change, scope, err);
    pthread_mutex_unlock(&c->lock);
    epoch_exit(epochs, epoch);
    free(scope);
    return rc;
}

/* ---- changes of the view ----------------------------------------------------------------------------------------- */

int collection_freeze(struct collection *c, struct quire_error *err)
{
    const struct collection_edit nothing = {.added = NULL};
    struct memtable_stats stats;
    struct memtable_ref *fresh = NULL;
    int rc = memtable_ref_create(&c->table_config, &fresh, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->lock);
    struct view *old = c->view, *view = NULL, *gone = NULL;
    memtable_get_stats(old->memtables[0]->memtable, &stats);
    if (stats.rows + stats.dead > 0) {
        view = view_edited(old, &nothing, fresh);
        rc = view ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a view");
    }
    if (view && c->lineage && !c->lineage->is_replica && (rc = lineage_log_freeze(c, err)) < 0) {
        gone = view;
        view = NULL;
    }
    if (view) {
        assert(view->n_memtables == old->n_memtables + 1 && view->generation == old->generation);
        assert(old->memtables[0]->last_lsn == MEMTABLE_LSN_MAX); /* it was not frozen before */
        old->memtables[0]->last_lsn = fresh->after_lsn = c->last_lsn;
        old->memtables[0]->last_seq = !c->lineage ? 0 : c->lineage->is_replica ? CUT_HERE : c->lineage->identity.seq;
        c->view = view;
        gone = old;
        atomic_fetch_add_explicit(&c->n_views, 1, memory_order_release);
    }
    pthread_mutex_unlock(&c->lock);
    view_unref(gone);
    memtable_unref(fresh);
    return rc;
}

/* One frame, so that all of it is there or nothing: the ends of what an adopted index replaces, then the edit.
 * places: n_replaced, filled in. */
static int log_edit(struct collection *c, const struct collection_edit *edit, struct element_place *places,
                    uint64_t *lsn, struct quire_error *err)
{
    uint32_t n = edit->n_replaced;
    assert(n == 0 || edit->replaced);
    struct journal_record *records = calloc(n + LINEAGE_RECORDS_MAX, sizeof *records);
    int rc = records ? 0 : QUIRE_ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const struct replaced_row *row = &edit->replaced[i];
        struct record_element element = {.key = row->key, .key_bytes = row->key_bytes};
        rc = find_place(c, row->key, row->key_bytes, &row->located, &places[i], err);
        if (rc < 0)
            break;
        name_place(&places[i], &element);
        records[i].kind = RECORD_REMOVE;
        records[i].bytes = collection_record_element(c->uid, &element, &records[i].n_bytes);
        rc = records[i].bytes ? 0 : QUIRE_ENOMEM;
    }
    uint64_t sealed_lsn = 0; /* up to which number the memtables that go held everything; 0: none goes */
    for (uint32_t i = 0; i < edit->n_removed_memtables; i++)
        if (edit->removed_memtables[i]->last_lsn > sealed_lsn)
            sealed_lsn = edit->removed_memtables[i]->last_lsn;
    if (rc == 0) {
        records[n].kind = RECORD_EDIT;
        records[n].bytes = collection_record_edit(c->uid, edit, sealed_lsn, &records[n].n_bytes);
        bool tells = c->lineage && !c->lineage->is_replica;
        unsigned all = tells ? lineage_add_records(c, records, n + 1, n + 1) : n + 1;
        rc = records[n].bytes ? journal_append(c->host->journal, records, all, lsn, err) : QUIRE_ENOMEM;
        if (rc == 0 && tells)
            lineage_advance(c, n + 1);
    }
    for (uint32_t i = 0; records && i <= n; i++)
        free((void *)(uintptr_t)records[i].bytes);
    free(records);
    return rc == QUIRE_ENOMEM ? error_set(err, rc, "no memory for the record of a change of segments") : rc;
}

/* *gone: the view that was replaced, the caller's, who must not hold the lock when it releases it. */
int collection_publish_locked(struct collection *c, const struct collection_edit *edit, struct view **gone,
                              uint64_t *lsn, struct quire_error *err)
{
    assert(lock_is_held(&c->lock));
    if (atomic_load(&c->dropped))
        return error_set(err, QUIRE_ECLOSED, "the collection was removed");
    if (edit->replaced && c->last_lsn != edit->seen_lsn)
        return error_set(err, QUIRE_EBUSY,
                         "the set is written to while an index is added: stop the writes and try again");
    struct view *old = c->view, *view = view_edited(old, edit, NULL);
    struct element_place *places = calloc(edit->n_replaced + 1, sizeof *places);
    int rc = view && places ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a view");
    if (rc == 0)
        rc = collection_ended_carry_rest(c, edit, err);
    if (rc == 0)
        rc = log_edit(c, edit, places, lsn, err);
    if (rc == 0 && c->lineage && !c->lineage->is_replica)
        lineage_tell_edit(c, edit, places);
    for (uint32_t i = 0; rc == 0 && i < edit->n_replaced; i++) {
        collection_count_attributes(c, &places[i], NULL, 0);
        collection_end_place(&places[i], *lsn);
    }
    free(places);
    if (rc < 0) {
        *gone = view;
        return rc;
    }
    assert(view->n_memtables >= 1 && view->memtables[0] == old->memtables[0]);
    assert(view->n_parts + edit->n_removed_parts == old->n_parts + (edit->added != NULL));
    assert(view->n_memtables + edit->n_removed_memtables == old->n_memtables);
    assert(*lsn > c->last_lsn);
    c->view = view;
    atomic_fetch_add_explicit(&c->n_views, 1, memory_order_release);
    c->last_lsn = *lsn;
    if (edit->added && atomic_load(&c->n_former) > 0)
        atomic_store(&c->void_due, true);
    if (view_is_adoption(edit)) {
        atomic_fetch_add_explicit(&c->n_elements, part_living(edit->added) - edit->n_replaced, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->n_attributed, part_attributed(edit->added), memory_order_relaxed);
    }
    *gone = old;
    return 0;
}

int collection_publish(struct collection *c, const struct collection_edit *edit, uint64_t *lsn, struct quire_error *err)
{
    struct view *gone = NULL;
    assert(edit->added || edit->n_removed_parts + edit->n_removed_memtables > 0);
    int rc = collection_ended_carry(c, edit, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->lock);
    bool is_copy = c->lineage && c->lineage->is_replica;
    if (is_copy || !view_has_removed(c->view, edit)) /* a copy, or it was one and went along with its leader */
        rc = lineage_cancel(c, err);
    else
        rc = collection_publish_locked(c, edit, &gone, lsn, err);
    pthread_mutex_unlock(&c->lock);
    view_unref(gone);
    return rc;
}

void collection_count_rebuild(struct collection *c, bool is_seal)
{
    atomic_fetch_add_explicit(is_seal ? &c->n_seals : &c->n_merges, 1, memory_order_relaxed);
}

/* The oldest pin, or the last LSN: (lock) rows that ended at or before it can be given back. */
static uint64_t horizon_of(const struct collection *c)
{
    uint64_t horizon = c->last_lsn;
    assert(lock_is_held(&c->lock));
    for (uint32_t i = 0; i < c->n_pins; i++)
        if (c->pins[i] < horizon)
            horizon = c->pins[i];
    return horizon;
}

bool collection_reclaim(struct collection *c)
{
    struct memtable_stats stats;
    uint32_t before = 0;
    for (unsigned i = 0; i < RECLAIM_STEPS; i++) {
        pthread_mutex_lock(&c->lock);
        struct memtable *newest = c->view->memtables[0]->memtable;
        memtable_get_stats(newest, &stats);
        before = i == 0 ? stats.dead : before;
        if (stats.dead > 0)
            memtable_reclaim(newest, horizon_of(c));
        memtable_get_stats(newest, &stats);
        pthread_mutex_unlock(&c->lock);
        if (stats.dead == 0)
            break;
        epochs_collect(c->host->epochs);
    }
    return stats.dead > 0 && stats.dead < before;
}

void collection_fork_prepare(struct collection *c)
{
    pthread_mutex_lock(&c->lock);
}

void collection_fork_end(struct collection *c)
{
    assert(lock_is_held(&c->lock));
    pthread_mutex_unlock(&c->lock);
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

enum { CURVE_POINTS_MAX = 512 }; /* a build measures some 300 */

void collection_get_stats(const struct collection *constant, struct collection_stats *out)
{
    struct collection *c = (struct collection *)constant; /* its lock and its view's count are all that changes */
    struct view *view = collection_view(c);
    memset(out, 0, sizeof *out);
    out->elements = collection_count(c);
    out->memtables = view->n_memtables;
    out->segments = view->n_parts;
    out->raw_bytes = out->elements * c->config.dim * quire_type_bytes(c->config.type);
    for (uint32_t i = 0; i < view->n_memtables; i++) {
        struct memtable_stats stats;
        memtable_get_stats(view->memtables[i]->memtable, &stats);
        out->memtable_rows += stats.rows;
        out->memtable_bytes += stats.bytes;
    }
    for (uint32_t i = 0; i < view->n_parts; i++) {
        const struct part *part = view->parts[i];
        out->dead_rows += atomic_load_explicit(&part->n_dead, memory_order_relaxed);
        out->resident_bytes += part_bytes(part);
        if (!part->segment) /* of a collection that is unavailable */
            continue;
        const struct segment_info *info = segment_info(part->segment);
        struct block_cache_stats cache;
        segment_cache_stats(part->segment, &cache);
        out->segment_rows += info->rows;
        out->cache_bytes += info->cache_bytes;
        out->cache_hits += cache.hits;
        out->cache_misses += cache.misses;
        out->disk_bytes += info->index_bytes;
    }
    out->last_lsn = collection_last_lsn(c);
    out->seals = atomic_load_explicit(&c->n_seals, memory_order_relaxed);
    out->merges = atomic_load_explicit(&c->n_merges, memory_order_relaxed);
    view_unref(view);
}

void collection_each_segment(const struct collection *constant,
                             void (*visit)(void *context, const struct collection_segment *segment), void *context)
{
    struct quire_calibration_point points[CURVE_POINTS_MAX];
    struct view *view = collection_view((struct collection *)constant); /* as above */
    for (uint32_t i = 0; i < view->n_parts; i++) {
        const struct part *part = view->parts[i];
        if (!part->segment)
            continue;
        const struct segment_info *info = segment_info(part->segment);
        uint32_t n = segment_calibration(part->segment, points, CURVE_POINTS_MAX);
        visit(context,
              &(struct collection_segment){.uid = part->uid,
                                           .index = info->index,
                                           .code_bits = info->code_bits,
                                           .rows = info->rows,
                                           .dead_rows = atomic_load_explicit(&part->n_dead, memory_order_relaxed),
                                           .resident_bytes = part_bytes(part),
                                           .cache_bytes = info->cache_bytes,
                                           .disk_bytes = info->index_bytes,
                                           .memory_bytes = info->memory_bytes == UINT64_MAX ? 0 : info->memory_bytes,
                                           .n_curve = n < CURVE_POINTS_MAX ? n : CURVE_POINTS_MAX,
                                           .curve = points});
    }
    view_unref(view);
}
