/*
 * collection_tenants.c - generations of tenants, scopes with them, what scopes let be seen, and dropping a tenant.
 *
 * A grant holds as long as its generation is that of its tenant's name, which is how often the name was dropped. So a
 * tenant is dropped by one record that counts its generation up. A list of all names that were ever dropped is kept;
 * names that were not are of generation 0 and cost nothing.
 *
 * What nobody is granted any more is removed afterwards (collection_remove_void): in memtables like any element, in a
 * sealed segment by a record of row numbers, which its columns tell without reading it. A void grant never comes to
 * hold again, so it does not matter when that is done, nor whether a merge carries such a row on: its segment is
 * looked at once it is there. A segment that was looked at is not again before the next drop.
 *
 * Scopes are resolved once per request: a copy with generations, one block of memory. What is asked of a sealed row is
 * answered by the columns of its segment, in memory.
 */
#include "index/collection/collection_priv.h"
#include "index/collection/lineage_priv.h"
#include "index/column/columns.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/bitmap.h"
#include "io/error.h"
#include "io/hash.h"
#include "io/memory.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#define VOID_ROWS       4096u /* of one record, and of one hold of the lock */
#define TENANTS_AT_ONCE 256u  /* that are looked up in one hold of the lock */

/* ---- generations ------------------------------------------------------------------------------------------------- */

static int compare_names(const char *a, uint32_t n_a, const char *b, uint32_t n_b)
{
    uint32_t n = n_a < n_b ? n_a : n_b;
    int order = n ? memcmp(a, b, n) : 0;
    return order ? order : n_a < n_b ? -1 : n_a > n_b;
}

/* Where a name is, or would be. */
static uint32_t former_place(const struct collection *c, const char *name, uint32_t bytes, bool *found)
{
    uint32_t low = 0, high = atomic_load_explicit(&c->n_former, memory_order_relaxed);
    *found = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare_names(c->former[middle].name, c->former[middle].bytes, name, bytes);
        if (order == 0)
            *found = true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t collection_generation(const struct collection *c, const char *name, uint32_t bytes)
{
    bool found;
    assert(lock_is_held(&c->lock));
    uint32_t at = former_place(c, name, bytes, &found);
    return found ? c->former[at].generation : 0;
}

int collection_set_generation(struct collection *c, const char *name, uint32_t bytes, uint32_t generation)
{
    bool found;
    uint32_t at = former_place(c, name, bytes, &found), n = atomic_load_explicit(&c->n_former, memory_order_relaxed);
    if (found) {
        if (generation > c->former[at].generation)
            c->former[at].generation = generation;
        return 0;
    }
    if (!array_reserve(&c->former, &c->former_capacity, n + 1u))
        return QUIRE_ENOMEM;
    char *copy = malloc((size_t)bytes + 1);
    if (!copy)
        return QUIRE_ENOMEM;
    memcpy(copy, name, bytes);
    memmove(&c->former[at + 1], &c->former[at], (n - at) * sizeof *c->former);
    c->former[at] = (struct former_tenant){copy, bytes, generation};
    atomic_store_explicit(&c->n_former, n + 1, memory_order_release);
    assert(at == 0 || compare_names(c->former[at - 1].name, c->former[at - 1].bytes, name, bytes) < 0);
    return 0;
}

void collection_tenants_free(struct collection *c)
{
    for (uint32_t i = 0; i < atomic_load(&c->n_former); i++)
        free(c->former[i].name);
    free(c->former);
}

uint32_t collection_tenant_generation(struct collection *c, const char *name, uint32_t bytes)
{
    if (atomic_load_explicit(&c->n_former, memory_order_acquire) == 0)
        return 0;
    pthread_mutex_lock(&c->lock);
    uint32_t generation = collection_generation(c, name, bytes);
    pthread_mutex_unlock(&c->lock);
    return generation;
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

int collection_scope_resolve_locked(const struct collection *c, const struct tenant_scope *scope,
                                    struct tenant_scope **out, struct quire_error *err)
{
    *out = NULL;
    if (!scope)
        return 0;
    size_t bytes = sizeof *scope + memory_size_mul(scope->n, sizeof *scope->tenants);
    size_t names_at = bytes;
    for (uint32_t i = 0; i < scope->n; i++)
        bytes += scope->tenants[i].bytes;
    struct tenant_scope *copy = malloc(bytes);
    if (!copy)
        return error_set(err, QUIRE_ENOMEM, "no memory for a scope");
    char *name = (char *)copy + names_at;
    copy->tenants = (struct grant *)(void *)(copy + 1);
    copy->n = scope->n;
    for (uint32_t i = 0; i < scope->n; i++) {
        const struct grant *from = &scope->tenants[i];
        memcpy(name, from->name, from->bytes);
        copy->tenants[i] = (struct grant){name, from->bytes, collection_generation(c, name, from->bytes)};
        name += from->bytes;
    }
    *out = copy;
    return 0;
}

int collection_scope_resolve(struct collection *c, const struct tenant_scope *scope, struct tenant_scope **out,
                             struct quire_error *err)
{
    *out = NULL;
    if (!scope)
        return 0;
    pthread_mutex_lock(&c->lock);
    int rc = collection_scope_resolve_locked(c, scope, out, err);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

struct scope_count {
    const struct tenant_scope *scope;
    bool attributed;
    uint64_t n;
};

static int count_row(void *context, const struct memtable *memtable, uint32_t number, const struct memtable_row *row)
{
    struct scope_count *count = context;
    (void)memtable, (void)number;
    count->n += grants_allow(row->attributes, row->attribute_bytes, count->scope) &&
                (!count->attributed || collection_text_has_attributes(row->attributes, row->attribute_bytes));
    return 0;
}

static int count_sealed(const struct part *part, const uint8_t *dead, struct scope_count *count)
{
    roaring_bitmap_t *rows = NULL;
    if (count->attributed && !part->attributed && !part->all_attributed)
        return 0;
    int rc = part_scope_rows(part, count->scope, dead, &rows);
    if (rc == 0)
        count->n += count->attributed && part->attributed ? roaring_bitmap_and_cardinality(rows, part->attributed)
                                                          : roaring_bitmap_get_cardinality(rows);
    part_rows_free(rows);
    return rc;
}

/* scope: resolved. attributed: only those that have attributes. */
static int count_resolved(struct collection *c, const struct tenant_scope *scope, bool attributed, uint64_t *out)
{
    struct scope_count count = {.scope = scope, .attributed = attributed};
    struct collection_snapshot *s = NULL;
    int rc = collection_snapshot_open(c, &s, NULL);
    for (uint32_t i = 0; rc == 0 && i < s->view->n_parts; i++)
        rc = count_sealed(s->view->parts[i], s->tombstones.dead[i], &count);
    if (rc == 0)
        rc = view_each_row(s->view, c->host->epochs, s->lsn, count_row, &count);
    collection_snapshot_close(s);
    *out = count.n;
    return rc;
}

static uint64_t count_scope(struct collection *c, const struct tenant_scope *scope, bool attributed)
{
    struct tenant_scope *resolved = NULL;
    uint64_t n = 0;
    /* without memory nothing is visible */
    if (collection_scope_resolve(c, scope, &resolved, NULL) < 0 || count_resolved(c, resolved, attributed, &n) < 0)
        n = 0;
    free(resolved);
    return n;
}

uint64_t collection_count_scope(struct collection *c, const struct tenant_scope *scope)
{
    return scope ? count_scope(c, scope, false) : collection_count(c);
}

uint64_t collection_count_attributed(struct collection *c, const struct tenant_scope *scope)
{
    return scope ? count_scope(c, scope, true) : atomic_load_explicit(&c->n_attributed, memory_order_relaxed);
}

/* ---- all tenants ------------------------------------------------------------------------------------------------- */

struct tenant_count {
    char *name; /* owned; NULL: an empty place */
    uint32_t bytes;
    uint64_t elements;
};

static inline bool count_is_set(const struct tenant_count *count)
{
    return count->name != NULL;
}

static inline uint64_t count_hash(const struct tenant_count *count)
{
    return format_key_hash(count->name, count->bytes);
}

static inline bool count_is_same(const struct tenant_count *a, const struct tenant_count *b)
{
    return compare_names(a->name, a->bytes, b->name, b->bytes) == 0;
}
HASH_DEFINE(count_table, struct tenant_count, count_is_set, count_hash, count_is_same)

struct tenant_counts {
    struct collection *collection;
    struct count_table table;
};

static int add_count(struct tenant_counts *counts, const struct grant *grant, uint64_t elements)
{
    if (elements == 0 ||
        grant->generation != collection_tenant_generation(counts->collection, grant->name, grant->bytes))
        return 0;
    struct tenant_count count = {.name = (char *)(uintptr_t)grant->name, .bytes = grant->bytes};
    struct tenant_count *place = count_table_find(&counts->table, &count);
    if (!place) {
        count.name = malloc((size_t)grant->bytes + 1);
        if (count.name)
            memcpy(count.name, grant->name, grant->bytes);
        place = count.name ? count_table_add(&counts->table, count) : NULL;
        if (!place) {
            free(count.name);
            return QUIRE_ENOMEM;
        }
    }
    place->elements += elements;
    return 0;
}

static int count_row_of_all(void *context, const struct memtable *memtable, uint32_t number,
                            const struct memtable_row *row)
{
    (void)memtable, (void)number;
    struct grant grant;
    uint32_t at = 0;
    int rc = 0;
    while (rc == 0 && grants_next(row->attributes, row->attribute_bytes, &at, &grant))
        rc = add_count(context, &grant, 1);
    return rc;
}

static int add_part(struct tenant_counts *counts, const struct part *part, const uint8_t *dead)
{
    const struct columns *columns = part->segment->columns;
    struct grant grant;
    uint64_t n;
    int rc = 0;
    bool whole = atomic_load_explicit(&part->n_dead, memory_order_relaxed) == 0;
    for (uint32_t i = 0; columns && rc == 0 && columns_tenant_at(columns, i, &grant, &n); i++) {
        struct tenant_scope scope = {.tenants = &grant, .n = 1};
        roaring_bitmap_t *rows = NULL;
        if (!whole) {
            rc = part_scope_rows(part, &scope, dead, &rows);
            n = rc == 0 ? roaring_bitmap_get_cardinality(rows) : 0;
            part_rows_free(rows);
        }
        if (rc == 0)
            rc = add_count(counts, &grant, n);
    }
    return rc;
}

int collection_each_tenant(struct collection *c,
                           void (*visit)(void *context, const char *name, uint32_t bytes, uint64_t elements),
                           void *context, struct quire_error *err)
{
    struct tenant_counts counts = {.collection = c};
    struct collection_snapshot *s = NULL;
    int rc = collection_snapshot_open(c, &s, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < s->view->n_parts; i++)
        rc = add_part(&counts, s->view->parts[i], s->tombstones.dead[i]);
    if (rc == 0)
        rc = view_each_row(s->view, c->host->epochs, s->lsn, count_row_of_all, &counts);
    collection_snapshot_close(s);
    for (uint64_t i = 0; i < counts.table.capacity; i++) {
        const struct tenant_count *count = &counts.table.places[i];
        if (rc == 0 && count_is_set(count))
            visit(context, count->name, count->bytes, count->elements);
        free(count->name);
    }
    free(counts.table.places);
    return rc < 0 ? error_set(err, rc, "no memory to count the elements of all tenants") : 0;
}

/* ---- dropping ---------------------------------------------------------------------------------------------------- */

int collection_append_drop(struct collection *c, const char *name, uint32_t bytes, uint32_t generation, uint64_t *lsn,
                           struct quire_error *err)
{
    uint32_t n_bytes;
    assert(lock_is_held(&c->lock));
    if (atomic_load(&c->dropped))
        return error_set(err, QUIRE_ECLOSED, "the collection was removed");
    /* a place for the name before the record: what is in the log is in memory */
    if (collection_set_generation(c, name, bytes, 0) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to drop a tenant");
    uint8_t *record = collection_record_drop_tenant(c->uid, name, bytes, generation, &n_bytes);
    int rc = collection_append(c, RECORD_DROP_TENANT, record, n_bytes, lsn, err);
    if (rc < 0)
        return rc;
    (void)collection_set_generation(c, name, bytes, generation); /* its place is there */
    assert(collection_generation(c, name, bytes) >= generation);
    atomic_fetch_add(&c->n_drops, 1);
    collection_seen(c, *lsn);
    if (c->lineage) {
        struct effect effect = {.kind = EFFECT_DROP_TENANT, .key = name, .key_bytes = bytes, .generation = generation};
        lineage_tell(c, &effect);
    }
    return 0;
}

int collection_take_dropped_tenants(struct collection *c, const struct collection *from, struct quire_error *err)
{
    uint64_t lsn;
    int rc = 0;
    for (uint32_t i = 0; i < atomic_load(&from->n_former) && rc == 0; i++) {
        const struct former_tenant *former = &from->former[i];
        pthread_mutex_lock(&c->lock);
        rc = collection_append_drop(c, former->name, former->bytes, former->generation, &lsn, err);
        pthread_mutex_unlock(&c->lock);
    }
    return rc;
}

int collection_drop_tenant(struct collection *c, const char *name, uint32_t bytes, uint64_t *elements, uint64_t *lsn,
                           struct quire_error *err)
{
    struct grant tenant = {.name = name, .bytes = bytes};
    struct tenant_scope scope = {.tenants = &tenant, .n = 1};
    int rc = grants_check_tenant(name, bytes, err);
    *lsn = *elements = 0;
    if (rc < 0)
        return rc;
    tenant.generation = collection_tenant_generation(c, name, bytes);
    rc = count_resolved(c, &scope, false, elements);
    if (rc < 0)
        return error_set(err, rc, "no memory to count a tenant's elements");
    if (*elements == 0)
        return 0;
    pthread_mutex_lock(&c->lock);
    rc = c->lineage && c->lineage->is_replica
             ? lineage_refuse(c, err)
             : collection_append_drop(c, name, bytes, collection_generation(c, name, bytes) + 1, lsn, err);
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        return rc;
    atomic_store(&c->void_due, true);
    collection_wake(c);
    return 0;
}

/* ---- what is nobody's any more ----------------------------------------------------------------------------------- */

/* Its tenants, those that are void, and the others. A tenant that is dropped between two holds of the lock is among
 * those of before or of after, either of which is right: the part is looked at again after each drop. */
static void list_tenants(struct collection *c, const struct columns *columns, struct tenant_scope *gone,
                         struct tenant_scope *living)
{
    struct grant grant;
    uint64_t rows;
    bool more = true;
    for (uint32_t i = 0; more;) {
        pthread_mutex_lock(&c->lock);
        for (uint32_t n = 0; n < TENANTS_AT_ONCE && (more = columns_tenant_at(columns, i, &grant, &rows)); n++, i++) {
            bool is_void = grant.generation != collection_generation(c, grant.name, grant.bytes);
            struct tenant_scope *to = is_void ? gone : living;
            to->tenants[to->n++] = grant;
        }
        pthread_mutex_unlock(&c->lock);
    }
}

/* Those of `rows` that are not in `others` (NULL: none is), ascending; owned by the caller. NULL without memory. */
static uint32_t *rows_without(const roaring_bitmap_t *rows, const roaring_bitmap_t *others, uint64_t *n)
{
    uint64_t all = roaring_bitmap_get_cardinality(rows);
    assert(all <= UINT32_MAX);
    uint32_t *out = malloc(sizeof *out * (all + 1));
    *n = 0;
    if (!out)
        return NULL;
    roaring_bitmap_to_uint32_array(rows, out);
    for (uint64_t i = 0; i < all; i++)
        if (!others || !roaring_bitmap_contains(others, out[i]))
            out[(*n)++] = out[i];
    return out;
}

/* Living rows of a part that have grants, all void: n of them, owned by the caller. NULL: none. */
static int find_void(struct collection *c, const struct part *part, uint32_t **out, uint64_t *n)
{
    const struct columns *columns = part->segment->columns;
    struct columns_stats stats;
    roaring_bitmap_t *rows = NULL, *others = NULL;
    *out = NULL;
    *n = 0;
    if (!columns)
        return 0;
    columns_get_stats(columns, &stats);
    struct grant *items = malloc(memory_size_mul(2 * (size_t)stats.n_tenants + 1, sizeof *items));
    if (!items)
        return QUIRE_ENOMEM;
    struct tenant_scope gone = {.tenants = items}, living = {.tenants = items + stats.n_tenants};
    list_tenants(c, columns, &gone, &living);
    int rc = gone.n ? part_scope_rows(part, &gone, NULL, &rows) : 0;
    if (rc == 0 && gone.n && living.n)
        rc = columns_scope(columns, &living, &others);
    if (rc == 0 && rows && !(*out = rows_without(rows, others, n)))
        rc = QUIRE_ENOMEM;
    part_rows_free(rows);
    part_rows_free(others);
    free(items);
    return rc;
}

/* The lock, while no batch is open: the record of one that began before has an earlier LSN, so that a replay would end
 * what it wrote anew after this. Not within an epoch: batches are waited for. */
static void lock_quiesced(struct collection *c)
{
    journal_quiesce_begin(c->host->journal);
    pthread_mutex_lock(&c->lock);
}

static void unlock_quiesced(struct collection *c)
{
    pthread_mutex_unlock(&c->lock);
    journal_quiesce_end(c->host->journal);
}

/* (lock) Rows of one record. A part that a merge has taken away meanwhile keeps nothing: its successor is looked at. */
int collection_end_rows(struct collection *c, struct part *part, uint32_t *rows, uint32_t n, struct quire_error *err)
{
    uint64_t lsn;
    uint32_t living = 0;
    if (atomic_load(&c->dropped) || view_part(c->view, part->uid) != part)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!part_is_dead(part, rows[i]))
            rows[living++] = rows[i];
    if (living == 0 && !(c->lineage && c->lineage->is_replica)) /* a copy counts the write of its leader */
        return 0;
    uint32_t n_bytes;
    uint8_t *record = collection_record_void_rows(c->uid, part->uid, rows, living, &n_bytes);
    int rc = collection_append(c, RECORD_VOID_ROWS, record, n_bytes, &lsn, err);
    if (rc < 0)
        return rc;
    uint64_t attributed = 0;
    for (uint32_t i = 0; i < living; i++) {
        int killed = part_kill(part, rows[i]);
        assert(killed == 1); /* its bitmap has space for all rows */
        attributed += part_has_attributes(part, rows[i]);
    }
    atomic_fetch_sub_explicit(&c->n_attributed, attributed, memory_order_relaxed);
    c->last_lsn = lsn;
    atomic_fetch_sub_explicit(&c->n_elements, living, memory_order_relaxed);
    if (c->lineage) {
        struct effect effect = {.kind = EFFECT_END_ROWS, .rows = rows, .n_rows = living};
        memcpy(effect.segment, part->segment->segment_id, LINEAGE_ID_BYTES);
        lineage_tell(c, &effect);
    }
    return 0;
}

static int remove_void_of_part(struct collection *c, struct part *part, struct quire_error *err)
{
    uint32_t *rows = NULL;
    uint64_t n;
    uint32_t n_drops = atomic_load(&c->n_drops);
    if (atomic_load(&part->void_checked) == n_drops)
        return 0;
    int rc = find_void(c, part, &rows, &n);
    if (rc < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory to remove what dropped tenants had");
    for (uint64_t at = 0; at < n && rc == 0; at += VOID_ROWS) {
        lock_quiesced(c);
        rc = collection_end_rows(c, part, rows + at, n - at < VOID_ROWS ? (uint32_t)(n - at) : VOID_ROWS, err);
        unlock_quiesced(c);
    }
    if (rc == 0)
        atomic_store(&part->void_checked, n_drops);
    free(rows);
    return rc;
}

/* (lock, in an epoch) Removes the row if it still is the key's and nobody's. */
static int end_void_row(struct collection *c, struct memtable *memtable, uint32_t number, struct quire_error *err)
{
    struct memtable_row row;
    uint64_t lsn;
    if (!memtable_row_at(memtable, number, MEMTABLE_LSN_MAX - 1, &row) ||
        !collection_text_is_void(c, row.attributes, row.attribute_bytes))
        return 0;
    struct record_element element = {.key = row.key, .key_bytes = row.key_bytes};
    uint32_t n_bytes;
    uint8_t *record = collection_record_element(c->uid, &element, &n_bytes);
    int rc = collection_append(c, RECORD_REMOVE, record, n_bytes, &lsn, err);
    if (rc < 0)
        return rc;
    if (c->lineage)
        lineage_tell_element(c, EFFECT_REMOVE, &element, NULL);
    bool attributed = collection_text_has_attributes(row.attributes, row.attribute_bytes);
    memtable_end(memtable, number, lsn);
    c->last_lsn = lsn;
    atomic_fetch_sub_explicit(&c->n_elements, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&c->n_attributed, attributed, memory_order_relaxed);
    return 0;
}

static int remove_void_of_memtable(struct collection *c, const struct memtable_ref *table, struct quire_error *err)
{
    struct epochs *epochs = c->host->epochs;
    struct memtable *memtable = table->memtable;
    uint32_t rows = view_memtable_rows(memtable);
    int rc = 0;
    for (uint32_t r = 0; r < rows && rc == 0; r++) {
        struct memtable_row row;
        struct grant grant;
        uint32_t at = 0;
        bool seems_void = false;
        unsigned epoch = epoch_enter(epochs);
        if (memtable_row_at(memtable, r, MEMTABLE_LSN_MAX - 1, &row) &&
            grants_next(row.attributes, row.attribute_bytes, &at, &grant)) {
            pthread_mutex_lock(&c->lock);
            seems_void = collection_text_is_void(c, row.attributes, row.attribute_bytes);
            pthread_mutex_unlock(&c->lock);
        }
        epoch_exit(epochs, epoch);
        if (!seems_void)
            continue;
        lock_quiesced(c);
        epoch = epoch_enter(epochs);
        if (!atomic_load(&c->dropped) && view_has_memtable(c->view, table))
            rc = end_void_row(c, memtable, r, err);
        epoch_exit(epochs, epoch);
        unlock_quiesced(c);
    }
    return rc;
}

int collection_remove_void(struct collection *c, struct quire_error *err)
{
    int rc = 0;
    if (lineage_is_replica(c) || !atomic_exchange(&c->void_due, false)) /* its leader removes them */
        return 0;
    struct view *view = collection_view(c);
    for (uint32_t i = 0; i < view->n_memtables && rc == 0; i++)
        rc = remove_void_of_memtable(c, view->memtables[i], err);
    for (uint32_t i = 0; i < view->n_parts && rc == 0; i++)
        rc = remove_void_of_part(c, view->parts[i], err);
    view_unref(view);
    if (rc < 0)
        atomic_store(&c->void_due, true);
    return rc;
}
