/*
 * view.c - views of a collection: counted memtables and parts.
 *
 * A view is replaced, never changed, so whoever has a reference reads its lists without a lock. What does change under
 * a reader are rows of memtables, which carry the LSNs where they begin and end, and tombstones of parts.
 */
#include "index/collection/view.h"
#include "io/epoch.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

/* A view with space for so many, none of them filled in. */
static struct view *view_alloc(uint32_t n_parts, uint32_t n_memtables)
{
    struct view *view =
        calloc(1, sizeof *view + n_parts * sizeof(struct part *) + n_memtables * sizeof(struct memtable_ref *));
    if (!view)
        return NULL;
    atomic_init(&view->references, 1);
    view->memtables = (struct memtable_ref **)(void *)(view + 1);
    view->parts = (struct part **)(void *)(view->memtables + n_memtables);
    return view;
}

int view_create(const struct memtable_config *config, struct view **out, struct quire_error *err)
{
    struct view *view = view_alloc(0, 1);
    if (!view)
        return error_set(err, QUIRE_ENOMEM, "no memory for a collection");
    int rc = memtable_ref_create(config, &view->memtables[0], err);
    if (rc < 0) {
        free(view);
        return rc;
    }
    view->n_memtables = 1;
    view->generation = 1;
    *out = view;
    return 0;
}

struct view *view_ref(struct view *view)
{
    unsigned before = atomic_fetch_add_explicit(&view->references, 1, memory_order_relaxed);
    assert(before > 0);
    return view;
}

void view_unref(struct view *view)
{
    unsigned before = view ? atomic_fetch_sub_explicit(&view->references, 1, memory_order_acq_rel) : 0;
    assert(!view || before > 0);
    if (before != 1)
        return;
    for (uint32_t i = 0; i < view->n_parts; i++)
        part_unref(view->parts[i]);
    for (uint32_t i = 0; i < view->n_memtables; i++)
        memtable_unref(view->memtables[i]);
    free(view);
}

static bool is_among(void *const *items, uint32_t n, const void *item)
{
    for (uint32_t i = 0; i < n; i++)
        if (items[i] == item)
            return true;
    return false;
}

struct part *view_part(const struct view *view, uint64_t uid)
{
    for (uint32_t i = 0; i < view->n_parts; i++)
        if (view->parts[i]->uid == uid)
            return view->parts[i];
    return NULL;
}

bool view_has_memtable(const struct view *view, const struct memtable_ref *table)
{
    return is_among((void *const *)view->memtables, view->n_memtables, table);
}

bool view_has_removed(const struct view *view, const struct collection_edit *edit)
{
    bool has = true;
    for (uint32_t i = 0; i < edit->n_removed_parts; i++)
        has = has && is_among((void *const *)view->parts, view->n_parts, edit->removed_parts[i]);
    for (uint32_t i = 0; i < edit->n_removed_memtables; i++)
        has = has && is_among((void *const *)view->memtables, view->n_memtables, edit->removed_memtables[i]);
    return has;
}

bool view_is_adoption(const struct collection_edit *edit)
{
    return edit->added && edit->n_removed_parts + edit->n_removed_memtables == 0;
}

struct view *view_edited(const struct view *old, const struct collection_edit *edit, struct memtable_ref *fresh)
{
    struct view *view = view_alloc(old->n_parts + 1, old->n_memtables + 1);
    if (!view)
        return NULL;
    view->generation = old->generation + (edit->n_removed_parts > 0 || edit->added);
    view->adoptions = old->adoptions + view_is_adoption(edit);
    if (fresh)
        view->memtables[view->n_memtables++] = memtable_ref(fresh);
    for (uint32_t i = 0; i < old->n_memtables; i++)
        if (!is_among((void *const *)edit->removed_memtables, edit->n_removed_memtables, old->memtables[i]))
            view->memtables[view->n_memtables++] = memtable_ref(old->memtables[i]);
    for (uint32_t i = 0; i < old->n_parts; i++)
        if (!is_among((void *const *)edit->removed_parts, edit->n_removed_parts, old->parts[i]))
            view->parts[view->n_parts++] = part_ref(old->parts[i]);
    if (edit->added)
        view->parts[view->n_parts++] = part_ref(edit->added);
    assert(view->n_parts <= old->n_parts + 1 && view->n_memtables <= old->n_memtables + 1);
    assert(view->n_memtables >= 1); /* the newest is never taken away */
    return view;
}

struct view *view_with_memtables(const struct view *old, struct memtable_ref *const *tables, uint32_t n)
{
    struct view *view = view_alloc(old->n_parts, n);
    if (!view)
        return NULL;
    view->generation = old->generation;
    view->adoptions = old->adoptions;
    for (uint32_t i = n; i-- > 0;)
        view->memtables[view->n_memtables++] = memtable_ref(tables[i]);
    for (uint32_t i = 0; i < old->n_parts; i++)
        view->parts[view->n_parts++] = part_ref(old->parts[i]);
    return view;
}

uint32_t view_memtable_rows(const struct memtable *memtable)
{
    struct memtable_stats stats;
    memtable_get_stats(memtable, &stats);
    return stats.row_end;
}

int view_each_row_of(const struct memtable *memtable, struct epochs *epochs, uint64_t lsn,
                     int (*visit)(void *context, const struct memtable *memtable, uint32_t number,
                                  const struct memtable_row *row),
                     void *context)
{
    int rc = 0;
    uint32_t rows = view_memtable_rows(memtable);
    assert(lsn < MEMTABLE_LSN_MAX);
    for (uint32_t r = 0; r < rows && rc == 0; r++) {
        struct memtable_row row;
        unsigned epoch = epoch_enter(epochs);
        if (memtable_row_at(memtable, r, lsn, &row))
            rc = visit(context, memtable, r, &row);
        epoch_exit(epochs, epoch);
    }
    return rc;
}

int view_each_row(const struct view *view, struct epochs *epochs, uint64_t lsn,
                  int (*visit)(void *context, const struct memtable *memtable, uint32_t number,
                               const struct memtable_row *row),
                  void *context)
{
    int rc = 0;
    for (uint32_t i = 0; i < view->n_memtables && rc == 0; i++)
        rc = view_each_row_of(view->memtables[i]->memtable, epochs, lsn, visit, context);
    return rc;
}
