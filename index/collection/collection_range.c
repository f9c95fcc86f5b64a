/*
 * collection_range.c - keys in order, out of a collection that keeps them in the order of its vectors.
 *
 * Every key of a snapshot is looked at. Of those in the range the `count` smallest are kept in a max-heap, so that a
 * short answer takes little memory however large the collection is; in the end it is sorted. Under a scope only the
 * rows that it lets be seen are looked at.
 */
#include "index/collection/collection_range.h"
#include "index/build/merge.h"
#include "index/collection/collection_priv.h"
#include "io/array.h"
#include "io/bitmap.h"
#include "io/error.h"
#include "io/heap.h"
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

static int compare(const uint8_t *a, uint32_t n_a, const uint8_t *b, uint32_t n_b)
{
    uint32_t n = n_a < n_b ? n_a : n_b;
    int order = n ? memcmp(a, b, n) : 0;
    return order ? order : n_a < n_b ? -1 : n_a > n_b;
}

static bool is_inside(const struct collection_range *range, const uint8_t *key, uint32_t n)
{
    const struct range_bound *first = &range->first, *last = &range->last;
    if (first->greatest || last->least)
        return false;
    int low = first->least ? 1 : compare(key, n, first->bytes, first->n_bytes);
    int high = last->greatest ? -1 : compare(key, n, last->bytes, last->n_bytes);
    return (low > 0 || (low == 0 && !first->open)) && (high < 0 || (high == 0 && !last->open));
}

static int compare_keys(const void *left, const void *right)
{
    const struct range_key *a = left, *b = right;
    return compare(a->bytes, a->n_bytes, b->bytes, b->n_bytes);
}

static inline bool key_is_greater(const struct range_key *a, const struct range_key *b)
{
    return compare_keys(a, b) > 0;
}
HEAP_DEFINE(keys, struct range_key, key_is_greater, HEAP_PLACE_UNKNOWN)

static int keep(struct collection_range *range, const uint8_t *key, uint32_t n)
{
    if (!is_inside(range, key, n) || range->count == 0)
        return 0;
    bool full = range->n == range->count;
    if (full && compare(key, n, range->keys[0].bytes, range->keys[0].n_bytes) >= 0)
        return 0;
    if (!full && !array_reserve(&range->keys, &range->capacity, range->n + 1))
        return QUIRE_ENOMEM;
    assert(range->n <= range->count);
    range->bytes += n + sizeof(struct range_key);
    if (full)
        range->bytes -= range->keys[0].n_bytes + sizeof(struct range_key);
    if (range->bytes_max && range->bytes > range->bytes_max)
        return QUIRE_ELIMIT;
    uint8_t *copy = malloc((size_t)n + 1);
    if (!copy)
        return QUIRE_ENOMEM;
    memcpy(copy, key, n);
    if (full) {
        free(range->keys[0].bytes);
        keys_replace(range->keys, range->n, (struct range_key){copy, n});
    } else {
        keys_push(range->keys, range->n++, (struct range_key){copy, n});
    }
    return 0;
}

static int on_sealed(void *context, const struct scanned_row *row)
{
    return keep(context, row->key, row->key_bytes);
}

/* What is not to be read of a part: its dead, and what the scope hides. Owned by the caller. */
static int hide_others(const struct part *part, const uint8_t *dead, const struct tenant_scope *scope, uint8_t **out)
{
    size_t bytes = (size_t)(segment_info(part->segment)->rows + 7) / 8 + 1;
    roaring_bitmap_t *rows = NULL;
    uint8_t *hidden = malloc(bytes);
    int rc = hidden ? part_scope_rows(part, scope, dead, &rows) : QUIRE_ENOMEM;
    if (rc == 0) {
        memset(hidden, 0xff, bytes);
        roaring_uint32_iterator_t *at = roaring_create_iterator(rows);
        rc = at ? 0 : QUIRE_ENOMEM;
        for (; at && at->has_value; roaring_advance_uint32_iterator(at))
            bitmap_remove_shared(hidden, at->current_value);
        if (at)
            roaring_free_uint32_iterator(at);
    }
    part_rows_free(rows);
    if (rc < 0)
        free(hidden);
    else
        *out = hidden;
    return rc;
}

struct memory_walk {
    struct collection_range *range;
    const struct tenant_scope *scope;
};

static int on_memory(void *context, const struct memtable *memtable, uint32_t number, const struct memtable_row *row)
{
    const struct memory_walk *walk = context;
    (void)memtable, (void)number;
    return grants_allow(row->attributes, row->attribute_bytes, walk->scope)
               ? keep(walk->range, row->key, row->key_bytes)
               : 0;
}

/* What begin has taken but for the keys. */
static void end_moment(struct collection_range *range)
{
    collection_snapshot_close(range->snapshot);
    free(range->resolved);
    range->snapshot = NULL;
    range->resolved = NULL;
}

static int end_failed(struct collection_range *range, int rc, struct quire_error *err)
{
    if (rc == QUIRE_ENOMEM)
        error_set(err, rc, "no memory for the names of %llu elements", (unsigned long long)range->n);
    end_moment(range);
    collection_range_fini(range);
    return rc;
}

int collection_range_begin(struct collection *collection, struct collection_range *range, struct quire_error *err)
{
    range->keys = NULL;
    range->n = range->capacity = 0;
    range->bytes = 0;
    range->snapshot = NULL;
    int rc = collection_scope_resolve(collection, range->scope, &range->resolved, err);
    if (rc == 0)
        rc = collection_snapshot_open(collection, &range->snapshot, err);
    struct memory_walk walk = {range, range->resolved};
    if (rc == 0)
        rc = view_each_row(range->snapshot->view, collection->host->epochs, range->snapshot->lsn, on_memory, &walk);
    return rc < 0 ? end_failed(range, rc, err) : 0;
}

int collection_range_read(struct collection *collection, struct collection_range *range, struct quire_error *err)
{
    int rc = range->snapshot ? 0 : collection_range_begin(collection, range, err);
    if (rc < 0)
        return rc;
    const struct collection_snapshot *snapshot = range->snapshot;
    for (uint32_t i = 0; rc == 0 && i < snapshot->view->n_parts; i++) {
        const struct part *part = snapshot->view->parts[i];
        uint8_t *hidden = NULL;
        const uint8_t *dead = snapshot->tombstones.dead[i];
        rc = range->resolved ? hide_others(part, dead, range->resolved, &hidden) : 0;
        if (rc == 0)
            rc = segment_scan(part->segment, range->resolved ? hidden : dead, on_sealed, NULL, range, err);
        free(hidden);
    }
    if (rc < 0)
        return end_failed(range, rc, err);
    end_moment(range);
    if (range->n > 0)
        qsort(range->keys, range->n, sizeof *range->keys, compare_keys);
    return 0;
}

void collection_range_fini(struct collection_range *range)
{
    for (uint64_t i = 0; i < range->n; i++)
        free(range->keys[i].bytes);
    free(range->keys);
    range->keys = NULL;
    range->n = range->capacity = 0;
}
