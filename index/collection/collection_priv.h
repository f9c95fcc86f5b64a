/*
 * collection_priv.h - the inside of a collection, for its own files and for the store: views, memtables, edits, replay.
 *
 * Locks, in the order in which they are taken: the journal's quiesce, the store's, a collection's, the journal's own.
 * Nothing waits for the disk under a collection's lock.
 */
#ifndef QUIRE_INDEX_COLLECTION_PRIV_H
#define QUIRE_INDEX_COLLECTION_PRIV_H

#include "index/collection/collection.h"
#include "index/collection/part.h"
#include "index/memtable/memtable.h"
#include "index/store/store.h"
#include <pthread.h>
#include <roaring/roaring.h>

/* A memtable and who may still read it. */
struct memtable_ref {
    atomic_uint references;
    struct memtable *memtable;
    uint64_t first_seq; /* of the last write before it took any */
    uint64_t last_seq;  /* of a frozen one: every row in it was born at or before this, every later row is elsewhere */
};

/* What readers see. Immutable but for the tombstones of its parts and the rows of its memtables. */
struct view {
    atomic_uint references;
    uint64_t generation; /* changes with the parts */
    uint64_t adoptions;  /* parts that came from outside, not from parts and memtables of the view before */
    uint32_t n_parts, n_memtables;
    struct part **parts;             /* references */
    struct memtable_ref **memtables; /* the newest, which takes writes, first; references; n_memtables >= 1 */
};

/* A name that was dropped: grants of generations before this one are void. */
struct former_tenant {
    char *name; /* owned */
    uint32_t bytes, generation;
};

struct collection {
    atomic_uint references;
    uint64_t uid;
    struct collection_config config;
    struct attribute_schema *schema; /* owned, never NULL */
    struct memtable_config table_config;
    struct store *store;
    pthread_mutex_t lock; /* view, last_lsn, pins; writes to the newest table */
    struct view *view;
    uint64_t last_lsn;     /* of the last write that is visible */
    uint64_t restored_lsn; /* what the checkpoint's record knew: older records of the log are left out */
    atomic_uint_fast64_t n_elements;
    atomic_uint n_unlinked;
    atomic_bool dropped;
    struct former_tenant *former; /* by name; n_former is 0 as long as no tenant was dropped, and read without lock */
    uint32_t former_capacity;
    atomic_uint n_former;
    atomic_uint n_drops;   /* since it was opened, and 1 more where there are former tenants */
    atomic_bool sweep_due; /* elements may be there that are nobody's any more: maintenance looks */
    uint64_t *pins;        /* snapshots that are read: rows that died after the least of them stay; owned */
    uint32_t n_pins, pins_capacity;
    /* the store's, under its lock */
    struct collection *next;
    unsigned busy; /* enum store_busy: what maintenance does with it */
    unsigned due;  /* the same bits: what it should do */
    struct {
        uint64_t memtable_bytes, resident_bytes, disk_bytes;
        uint32_t n_parts, memtable_rows, unlinked;
    } counted; /* when the store looked last; its totals are sums of these */
    atomic_uint_fast64_t n_seals, n_merges;
    unsigned n_failures; /* of maintenance, one after the other */
    uint64_t retry_ms;   /* when maintenance that failed is tried again */
    /* the store's, under its wake lock */
    struct collection *next_woken;
    bool woken;
    atomic_uint backlog; /* enum store_backlog */
};

/* The one that is current, with a reference. */
struct view *collection_view(struct collection *collection);
void view_unref(struct view *view);
/* A part by its number, or NULL. */
struct part *view_part(const struct view *view, uint64_t uid);

/* A living row whose element an adopted index brings in another version. */
struct replaced_row {
    const void *key;
    uint32_t key_bytes;
    struct located located;
};

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
    uint32_t *const *memtable_rows_of;
    /* Of an adoption: the rows that end in the same moment as the added part is seen, so that nobody finds an element
     * missing or twice; and the last write when they were looked for. NULL: nobody writes. */
    const struct replaced_row *replaced;
    uint32_t n_replaced;
    uint64_t seen_lsn;
};
/* A memtable with one reference; the last one destroys it. */
int memtable_ref_create(const struct memtable_config *config, struct memtable_ref **out, struct quire_error *err);
struct memtable_ref *memtable_ref_hold(struct memtable_ref *table);
void memtable_ref_release(struct memtable_ref *table); /* NULL is fine */
/* The view after an edit; `fresh`, if given, becomes the newest table. NULL without memory. */
struct view *view_edited(const struct view *old, const struct collection_edit *edit, struct memtable_ref *fresh);

/* A new collection without records of its own: for store_create_collection and replay. Takes the schema over if it
 * succeeds. */
int collection_create(struct store *store, uint64_t uid, const struct collection_config *config,
                      struct attribute_schema *schema, struct collection **out, struct quire_error *err);

/* Freezes the newest table, if it has rows, and puts an empty one before it. Under journal_quiesce. */
int collection_freeze(struct collection *collection, struct quire_error *err);

/* Makes it so, under the lock: rows that died since the merge took its copy are dead in the added part. *lsn of its
 * frame. On failure nothing has changed. QUIRE_EBUSY: edit->replaced, and the collection was written to since
 * edit->seen_lsn. Under journal_quiesce, an adoption in a batch. */
int collection_publish(struct collection *collection, const struct collection_edit *edit, uint64_t *lsn,
                       struct quire_error *err);

/* The state for a checkpoint, as of one LSN: records of the kinds below. */
int collection_save(struct collection *collection, struct checkpoint *checkpoint, struct quire_error *err);
struct collection_snapshot {
    struct collection *collection; /* a reference */
    struct view *view;             /* a reference */
    uint64_t lsn, pin, n_elements;
    uint8_t **dead; /* per part of the view, as of lsn; owned */
};

/* Keeps rows that die after *lsn (the present) readable until collection_unpin. */
int collection_pin(struct collection *collection, uint64_t *lsn);
void collection_unpin(struct collection *collection, uint64_t lsn);
/* The oldest pin, or the last LSN: rows that died at or before it can be given back. Under the lock. */
uint64_t collection_horizon(const struct collection *collection);

/* Kinds of records of the journal. docs/format.md has their bytes. All begin with the collection's uid (u64). */
enum collection_record {
    RECORD_CREATE = STORE_KINDS, /* config */
    RECORD_DROP,                 /* */
    RECORD_PUT,                  /* one element, and the sealed row that it replaces */
    RECORD_REMOVE,               /* key, sealed row */
    RECORD_ATTRIBUTES,           /* key, attributes */
    RECORD_EDIT,                 /* parts that go, up to where memtables go, the part that comes and its dead rows */
    RECORD_STATE,                /* checkpoints only: config, schema, tenants dropped, parts and their dead rows */
    RECORD_ROWS,                 /* checkpoints only: rows of memtables */
    RECORD_DROP_TENANT = RECORD_ROWS + 2, /* name, new generation; the number between is the store's */
    RECORD_VOID_ROWS,                     /* rows of one part that are nobody's any more */
    RECORD_KINDS_END
};

/* What a PUT, REMOVE or ATTRIBUTES record says. Pointers are the caller's, or into the record's bytes. */
struct record_element {
    uint64_t ended_uid; /* of the sealed row whose life it ends; 0: none */
    uint32_t ended_row;
    const void *key;
    uint32_t key_bytes;
    const void *stored; /* the vector, as memtables keep it; PUT only */
    uint32_t stored_bytes;
    const void *attributes;
    uint32_t attribute_bytes;
};
/* The bytes of a record, owned by the caller; NULL without memory. */
uint8_t *collection_record_element(uint64_t uid, const struct record_element *element, uint32_t *n_bytes);
uint8_t *collection_record_edit(uint64_t uid, const struct collection_edit *edit, uint64_t sealed_lsn,
                                uint32_t *n_bytes);

/* One record given back to a collection (any kind but CREATE and DROP; STATE too, on a collection made from its
 * config). `restored`: of a checkpoint. Parts are not open yet: part->segment is NULL. */
int collection_replay(struct collection *collection, uint8_t kind, bool restored, uint64_t lsn, const uint8_t *bytes,
                      uint32_t n, struct quire_error *err);
/* Counts its elements, after its parts have been opened; those of parts that could not be are in no count. */
void collection_recount(struct collection *collection);
/* The config and schema (the caller's) of a CREATE or STATE record. */
int collection_record_config(uint8_t kind, const uint8_t *bytes, uint32_t n, uint64_t *uid,
                             struct collection_config *config, struct attribute_schema **schema,
                             struct quire_error *err);
/* The bytes of a CREATE record, owned by the caller; NULL without memory. */
uint8_t *collection_record_create(const struct collection *collection, uint32_t *n_bytes);
uint8_t *collection_record_drop_tenant(uint64_t uid, const char *name, uint32_t bytes, uint32_t generation,
                                       uint32_t *n_bytes);
uint8_t *collection_record_void_rows(uint64_t uid, uint64_t part_uid, const uint32_t *rows, uint32_t n,
                                     uint32_t *n_bytes);

/* ---- collection_tenants.c: generations, scopes, and what nobody may see any more --------------------------------- */

/* (lock) The generation of grants that are made now. */
uint32_t collection_generation(const struct collection *collection, const char *name, uint32_t bytes);
/* (lock) From now on it is this one, if it is higher. QUIRE_ENOMEM. */
int collection_set_generation(struct collection *collection, const char *name, uint32_t bytes, uint32_t generation);
void collection_tenants_free(struct collection *collection);
/* Drops what another collection has dropped, to the same generations: of a new one that takes its elements over. */
int collection_take_dropped_tenants(struct collection *collection, const struct collection *from,
                                    struct quire_error *err);
/* A copy of a scope with the generations of the present, for one request; freed by free(). A scope that is NULL gives
 * NULL, and 0. (lock): the collection's is held. */
int scope_resolve(struct collection *collection, const struct tenant_scope *scope, struct tenant_scope **out);
int scope_resolve_locked(const struct collection *collection, const struct tenant_scope *scope,
                         struct tenant_scope **out);
bool scope_has(const struct tenant_scope *scope, const char *name, uint32_t bytes);
/* (lock) Whether an element's text has grants, and all of them are void. */
bool collection_text_is_void(const struct collection *collection, const void *text, uint32_t bytes);
/* roaring_bitmap_free does not take NULL. */
static inline void rows_free(roaring_bitmap_t *rows)
{
    if (rows)
        roaring_bitmap_free(rows);
}
/* Whether a sealed row is granted to any of the scope (NULL: true). Without memory it is not. */
bool part_allows(const struct part *part, uint32_t row, const struct tenant_scope *scope);
/* The rows of a part that the scope lets be seen and that `dead` (NULL: the part's own) does not name. */
int part_scope_rows(const struct part *part, const struct tenant_scope *scope, const uint8_t *dead,
                    roaring_bitmap_t **out);
/* Removes elements whose grants are all void, those of all parts and memtables. Blocks for the journal only. */
int collection_sweep(struct collection *collection, struct quire_error *err);

/* ---- collection_text.c: what elements' texts become -------------------------------------------------------------- */

/* An element's text: owned is freed by the caller; text may be somebody else's. */
struct element_text {
    const void *text;
    uint32_t bytes;
    char *owned;
};
/* (lock) The text of a put. old: that of the row which it replaces, bytes 0: it has none, or there is no such row;
 * scope: resolved. */
int collection_text_of_put(struct collection *collection, const struct collection_put *put,
                           const struct tenant_scope *scope, const struct element_text *old, struct element_text *out,
                           struct quire_error *err);
/* (lock) collection_changed_text; the scope of the change has been looked at. */
int collection_text_of_change(const struct collection *collection, const struct collection_change *change,
                              const void *text, uint32_t bytes, char **out, uint32_t *out_bytes, uint32_t *n_changed,
                              struct quire_error *err);

/* ---- what a collection asks of its store
 * ----------------------------------------------------------------------------- */

/* 0, or why a put is refused now (memory, disk, segments, the journal). Cheap: no lock. */
int store_admit(struct store *store, const struct collection *collection, struct quire_error *err);
/* The newest table has grown beyond what it should, or rows have died: a maintenance thread should look. Cheap. */
void store_wake(struct store *store, struct collection *collection);
/* The newest table has so many rows and bytes after a write: maintenance is woken and writers are slowed where that is
 * too much. Under the collection's lock. */
void store_note_memtable(struct store *store, struct collection *collection, uint32_t rows, uint64_t bytes);

#endif
