/*
 * view.h - what readers of a collection see: its parts and memtables; and how one view becomes the next.
 */
#ifndef QUIRE_INDEX_VIEW_H
#define QUIRE_INDEX_VIEW_H

#include "index/collection/collection.h"
#include "index/collection/memtable_ref.h"
#include "index/collection/part.h"

/* Immutable but for the tombstones of its parts and the rows of its memtables. */
struct view {
    atomic_uint references;
    uint64_t generation; /* changes with the parts */
    uint64_t adoptions;  /* parts that came from outside, not from parts and memtables of the view before */
    uint32_t n_parts, n_memtables;
    struct part **parts;             /* references */
    struct memtable_ref **memtables; /* the newest, which takes writes, first; references; n_memtables >= 1 */
};

/* The first view of a collection: no part, one memtable. */
int view_create(const struct memtable_config *config, struct view **out, struct quire_error *err);
struct view *view_ref(struct view *view);
void view_unref(struct view *view); /* NULL is fine */
/* A part by its number, or NULL. */
struct part *view_part(const struct view *view, uint64_t uid);
bool view_has_memtable(const struct view *view, const struct memtable_ref *table);

/* A living row whose element an adopted index brings in another version. */
struct replaced_row {
    const void *key;
    uint32_t key_bytes;
    struct located located;
};

/* What ends among the rows that a new segment is made of (collection_host.h). */
struct collection_ended;

/* A seal, a merge, an adoption: what goes and what comes. */
struct collection_edit {
    struct part *const *removed_parts; /* of the current view */
    uint32_t n_removed_parts;
    struct memtable_ref *const *removed_memtables; /* the oldest of the current view, frozen */
    uint32_t n_removed_memtables;
    struct part *added; /* opened; NULL: none */
    /* Where rows have gone (merge.h): rows_of[i] for removed part i; then for each removed table, by its row numbers,
     * memtable_rows_of[i]; UINT32_MAX: not in the added part. */
    uint32_t *const *rows_of;
    struct collection_ended *ended; /* of those parts and tables, in their order; NULL: none is removed */
    uint32_t *const *memtable_rows_of;
    /* Of an adoption: the rows that end in the same moment as the added part is seen, so that nobody finds an element
     * missing or twice; and the last write when they were looked for. NULL: nobody writes. */
    const struct replaced_row *replaced;
    uint32_t n_replaced;
    uint64_t seen_lsn;
    /* Room for n_removed_parts ids, where the collection has a lineage; otherwise NULL. */
    uint8_t (*gone)[16];
    /* Of an adoption: rows of the added part that are dead already. */
    const uint32_t *dead;
    uint64_t n_dead;
};
/* Whether all that an edit takes away is there. */
bool view_has_removed(const struct view *view, const struct collection_edit *edit);
/* Whether a part comes from outside: neither parts nor memtables go for it. */
bool view_is_adoption(const struct collection_edit *edit);
/* The view after an edit; `fresh`, if given, becomes the newest memtable. NULL without memory. */
struct view *view_edited(const struct view *old, const struct collection_edit *edit, struct memtable_ref *fresh);

/* The view with other memtables, the oldest first. NULL without memory. */
struct view *view_with_memtables(const struct view *old, struct memtable_ref *const *tables, uint32_t n);

/* How many row numbers a memtable has used: 0.. are those that may be asked for. */
uint32_t view_memtable_rows(const struct memtable *memtable);

/* Calls visit for each row of a view's memtables that is visible at lsn (MEMTABLE_LSN_MAX - 1: that lives now), in an
 * epoch of its own, so that none is held long; what row points to is valid during the call. Ends with what visit
 * answers if that is not 0. */
int view_each_row(const struct view *view, struct epochs *epochs, uint64_t lsn,
                  int (*visit)(void *context, const struct memtable *memtable, uint32_t number,
                               const struct memtable_row *row),
                  void *context);

/* The same of one memtable. */
int view_each_row_of(const struct memtable *memtable, struct epochs *epochs, uint64_t lsn,
                     int (*visit)(void *context, const struct memtable *memtable, uint32_t number,
                                  const struct memtable_row *row),
                     void *context);

#endif
