/*
 * collection_priv.h - the inside of a collection, for its own files.
 *
 * Locks, in the order in which they are taken: the journal's quiesce, the host's, a collection's, the journal's own.
 * Nothing waits for the disk under a collection's lock. Functions marked (lock) are called with it held.
 */
#ifndef QUIRE_INDEX_COLLECTION_PRIV_H
#define QUIRE_INDEX_COLLECTION_PRIV_H

#include "index/collection/collection_host.h"
#include "io/lock.h"
#include <assert.h>
#include <pthread.h>
#include <stddef.h>

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
    const struct collection_host *host;
    pthread_mutex_t lock; /* view, last_lsn, pins; writes to the newest table */
    struct view *view;
    uint64_t last_lsn;     /* of the last write that is visible */
    uint64_t restored_lsn; /* what the checkpoint's record knew: older records of the log are left out */
    atomic_uint_fast64_t n_elements, n_attributed; /* elements, and those of them that have attributes */
    atomic_uint_fast64_t n_views;                  /* how often the view was replaced */
    atomic_bool dropped;
    struct quire_error *unavailable; /* owned; NULL: it is available. Set before others see it */
    struct former_tenant *former; /* by name; n_former is 0 as long as no tenant was dropped, and read without lock */
    uint32_t former_capacity;
    atomic_uint n_former;
    atomic_uint n_drops;     /* since it was opened, and 1 more where there are former tenants */
    atomic_bool void_due;    /* elements may be there whose grants are all void: maintenance looks */
    struct lineage *lineage; /* (lock) of a collection with copies (lineage.h); otherwise NULL; set once; owned */
    uint64_t *pins;          /* snapshots that are read: rows that ended after the least of them stay; owned */
    uint32_t n_pins, pins_capacity;
    atomic_uint_fast64_t n_seals, n_merges;
    _Alignas(max_align_t) unsigned char host_data[]; /* zeroed at first; the host's alone */
};

/* Keeps rows that end after *lsn (the present) readable until collection_unpin. */
int collection_pin(struct collection *collection, uint64_t *lsn);
void collection_unpin(struct collection *collection, uint64_t lsn);

/* What a PUT, REMOVE or ATTRIBUTES record says. Pointers are the caller's, or into the record's bytes. */
struct record_element {
    uint64_t ended_uid; /* of the sealed row that it ends; 0: none */
    uint32_t ended_row;
    const void *key;
    uint32_t key_bytes;
    const void *stored; /* the vector, as memtables keep it; PUT only */
    uint32_t stored_bytes;
    const void *attributes;
    uint32_t attribute_bytes;
};
/* Where the living row of a key is. */
struct element_place {
    struct memtable_ref *table; /* NULL: in no memtable */
    uint32_t row;
    struct part *part; /* NULL: in no sealed segment */
    uint32_t part_row;
    bool newest; /* table is the one that takes writes */
};
/* (lock) The newest table takes a row in place of what was there. Nothing fails once it is logged: what a replay finds
 * in the log alone could be there twice. In an epoch. */
int collection_put_row(struct collection *collection, const struct element_place *place,
                       const struct record_element *element, uint64_t *lsn, struct quire_error *err);
/* (lock) Another text of what a memtable holds. In an epoch. */
int collection_write_text(struct collection *collection, const struct element_place *place,
                          struct record_element *element, uint64_t *lsn, struct quire_error *err);
/* (lock) Ends what was there, after its replacement or removal was logged. */
void collection_end_place(const struct element_place *place, uint64_t lsn);
/* (lock) Counts a text that takes the place of what is there (bytes 0: none, or the element goes). Before that ends. */
void collection_count_attributes(struct collection *collection, const struct element_place *old, const void *text,
                                 uint32_t bytes);
/* (lock) What was logged under this number is there. */
void collection_seen(struct collection *collection, uint64_t lsn);
/* (lock) Wakes maintenance when the newest table is full. */
void collection_watch_memtable(struct collection *collection);
/* (lock) Records and does it that a tenant has another generation. */
int collection_append_drop(struct collection *collection, const char *name, uint32_t bytes, uint32_t generation,
                           uint64_t *lsn, struct quire_error *err);
/* (lock) Ends rows of an open part that are nobody's; what `rows` holds changes. A part that a merge has taken away
 * keeps nothing. */
int collection_end_rows(struct collection *collection, struct part *part, uint32_t *rows, uint32_t n,
                        struct quire_error *err);
/* (lock) collection_publish. *gone: the view that was replaced, the caller's, who must not hold the lock when it
 * releases it. */
int collection_publish_locked(struct collection *collection, const struct collection_edit *edit, struct view **gone,
                              uint64_t *lsn, struct quire_error *err);

/* The bytes of a record, owned by the caller; NULL without memory. */
uint8_t *collection_record_element(uint64_t uid, const struct record_element *element, uint32_t *n_bytes);
uint8_t *collection_record_edit(uint64_t uid, const struct collection_edit *edit, uint64_t sealed_lsn,
                                uint32_t *n_bytes);

/* (lock) What collection_ended_carry has left. */
int collection_ended_carry_rest(struct collection *collection, const struct collection_edit *edit,
                                struct quire_error *err);
/* All rows of the added part that are dead, in no order. */
const uint32_t *collection_ended_rows(const struct collection_ended *ended, uint64_t *n);

/* The tombstones of all parts as of one moment, without holding the lock for it. begin gives the view of that moment,
 * a reference, and leaves the lock held: what else belongs to the moment is read then. end, after it was released,
 * makes them whole. QUIRE_ENOMEM; the lock is not held then, and there is no view. */
int collection_tombstones_begin(struct collection *collection, struct tombstones *out, struct view **view);
int collection_tombstones_end(struct collection *collection, struct tombstones *tombstones);

/* The bytes of a CREATE record, owned by the caller; NULL without memory. */
uint8_t *collection_record_create(const struct collection *collection, uint32_t *n_bytes);
uint8_t *collection_record_drop_tenant(uint64_t uid, const char *name, uint32_t bytes, uint32_t generation,
                                       uint32_t *n_bytes);
uint8_t *collection_record_void_rows(uint64_t uid, uint64_t part_uid, const uint32_t *rows, uint32_t n,
                                     uint32_t *n_bytes);

/* QUIRE_ERANGE with a sentence. */
int collection_check_key(uint32_t key_bytes, struct quire_error *err);
/* Tells the host that there is something to do. */
void collection_wake(struct collection *collection);
/* (lock) Appends one record, whose bytes it frees; NULL bytes: there was no memory for them. *lsn of its frame. */
int collection_append(struct collection *collection, uint8_t kind, uint8_t *bytes, uint32_t n_bytes, uint64_t *lsn,
                      struct quire_error *err);

/* ---- collection_tenants.c: generations, scopes, and what nobody may see any more --------------------------------- */

/* (lock) The generation of grants that are made now. */
uint32_t collection_generation(const struct collection *collection, const char *name, uint32_t bytes);
/* (lock) From now on it is this one, if it is higher. QUIRE_ENOMEM. */
int collection_set_generation(struct collection *collection, const char *name, uint32_t bytes, uint32_t generation);
void collection_tenants_free(struct collection *collection);
/* A copy of a scope with the generations of the present, for one request; freed by free(). A scope that is NULL gives
 * NULL, and 0. (lock): the collection's is held. */
int collection_scope_resolve(struct collection *collection, const struct tenant_scope *scope, struct tenant_scope **out,
                             struct quire_error *err);
int collection_scope_resolve_locked(const struct collection *collection, const struct tenant_scope *scope,
                                    struct tenant_scope **out, struct quire_error *err);
/* (lock) Whether an element's text has grants, and all of them are void. */
bool collection_text_is_void(const struct collection *collection, const void *text, uint32_t bytes);

/* ---- collection_text.c: what elements' texts become -------------------------------------------------------------- */

/* An element's text: owned is freed by the caller; text may be somebody else's. */
struct element_text {
    const void *text;
    uint32_t bytes;
    char *owned;
};
/* Whether a text holds attributes, and not grants alone. */
bool collection_text_has_attributes(const void *text, uint32_t bytes);
/* Whether an element matches, by its text and key; one whose grants are damaged does not. filter NULL: all do. */
bool collection_text_matches(const struct filter *filter, const void *text, uint32_t bytes, const void *key,
                             uint32_t key_bytes);
/* (lock) The text of a put. old: that of the row which it replaces, bytes 0: it has none, or there is no such row;
 * scope: resolved. */
int collection_text_of_put(struct collection *collection, const struct collection_put *put,
                           const struct tenant_scope *scope, const struct element_text *old, struct element_text *out,
                           struct quire_error *err);
/* (lock) collection_changed_text; the scope of the change has been looked at. */
int collection_text_of_change(const struct collection *collection, const struct collection_change *change,
                              const void *text, uint32_t bytes, char **out, uint32_t *out_bytes, uint32_t *n_changed,
                              struct quire_error *err);

#endif
