/*
 * vectors.h - a VECTOR field of an index of documents: its vectors in a live collection, searched among a set of ids.
 *
 * One `struct vectors` per index and field. It owns a collection of the store (index/store) that no key is bound to:
 * whoever keeps the index writes down its number (vectors_uid) and asks for it by that after a restart. A collection
 * that nobody asks for is dropped, as one without a key is.
 *
 * Documents are known here by key and by id: a u32 that the index gives each version of a document, ascending, so that
 * a document which changes in any way gets a new one. A document keeps its row, whatever its id becomes, as long as its
 * vector is the same; so a change of another field costs a few memory accesses here.
 *
 *   write   vectors_put, vectors_remove: in memory and in the journal, never on the disk, so they may be called under
 *           the lock of the document's key. The journal's frame is the caller's: it opens a batch (journal_batch_begin)
 *           before it logs the document and ends it after vectors_put, so that after a crash both are there or neither.
 *   search  vectors_search_start: asynchronous on a lane; ids in, ids and distances out.
 *   read    vectors_read_start: a document's vector, bit for bit as it was put (vectors_keeps), so that whoever keeps
 *           the document need not hold it.
 *   start   vectors_open, then vectors_put for every document that is there (nothing is written of one whose row is
 *           found), then vectors_loaded.
 *
 * Thread-safe, but that writes of one `struct vectors` come one after the other (the index's write lock sees to it),
 * and that a search stays on its lane. Lock order: the caller's locks, the room's own, the collection's.
 */
#ifndef QUIRE_DOCUMENT_VECTORS_H
#define QUIRE_DOCUMENT_VECTORS_H

#include "document/schema/schema.h"
#include "index/collection/collection.h"
#include "index/search/search.h"

typedef struct roaring_bitmap_s roaring_bitmap_t; /* roaring/roaring.h takes .4 s to compile */

struct store;
struct vectors;
struct vectors_work;

#define VECTORS_NO_ID UINT32_MAX /* of no document */
/* Of a document's key. */
#define VECTORS_KEY_BYTES_MAX (QUIRE_KEY_BYTES_MAX - 4u)

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

/* Bytes of one vector as documents hold it. */
uint32_t vectors_bytes(const struct schema_vector *what);
/* Whether bytes are a vector of the field: QUIRE_EDIM (length), QUIRE_ENOTFINITE. Nothing else makes a document's
 * vector unfit. */
int vectors_validate(const struct schema_vector *what, const void *vector, uint32_t bytes, struct quire_error *err);

/* A new, empty field: makes its collection, in the caller's batch if one is open. *lsn of its record. what is copied.
 * QUIRE_EDIM: more than QUIRE_DIM_MAX dimensions. */
int vectors_create(struct store *store, const struct schema_vector *what, struct vectors **out, uint64_t *lsn,
                   struct quire_error *err);
/* A field that was there before the store was opened. Reads the keys of all its rows, forward: blocks, at start.
 * QUIRE_ENOTFOUND: the store has no such collection; QUIRE_EINVALID: it is not of this kind; what
 * collection_available answers, where its files are damaged. Then vectors_put for each document and vectors_loaded. */
int vectors_open(struct store *store, uint64_t uid, const struct schema_vector *what, struct vectors **out,
                 struct quire_error *err);
/* Behind vectors_open, where documents and rows are not logged together: they may differ. All vectors are read,
 * forward, and a row whose vector is not what vectors_put says of its document is written again. */
int vectors_compare(struct vectors *vectors, struct quire_error *err);
/* Every document was given by vectors_put since vectors_open: rows that none of them claimed are removed from the
 * collection, *n_removed of them (may be NULL; writes to the journal). Searches may begin. */
int vectors_loaded(struct vectors *vectors, uint64_t *n_removed, struct quire_error *err);
uint64_t vectors_uid(const struct vectors *vectors);
struct vectors *vectors_ref(struct vectors *vectors);
/* The collection stays with the store. A search under way holds a reference. NULL is fine. */
void vectors_unref(struct vectors *vectors);
/* Drops the collection; puts and searches answer QUIRE_ECLOSED from then on. May wait for a seal or merge: a worker's.
 * If it is never reached, a restart drops the collection, since nobody asks for it. */
int vectors_drop(struct vectors *vectors, uint64_t *lsn, struct quire_error *err);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Before a document is logged and before the batch is opened: 0, or why a vector cannot be taken now (memory, disk,
 * log: those of collection_put), for a write that is to be refused as a whole. vector may be NULL. */
int vectors_admit(struct vectors *vectors, const void *vector, struct quire_error *err);

struct vectors_put {
    const void *key; /* of the document */
    uint32_t key_bytes;
    uint32_t old_id; /* what the document's last version had here; VECTORS_NO_ID: it was not here, or had no vector */
    uint32_t id;     /* what it has now: above all ids before */
    /* vectors_bytes of them, valid (vectors_validate); not aligned. NULL: what the document has here stays, also if
     * this fails; QUIRE_ENOTFOUND: it has none. */
    const void *vector;
    /* out */
    uint64_t lsn; /* of the write; 0: nothing had to be written, the vector is the one it had */
};
/* On failure the document has no vector here any more (what it had is removed). Errors: those of collection_put;
 * QUIRE_ERANGE where the key is longer than VECTORS_KEY_BYTES_MAX. */
int vectors_put(struct vectors *vectors, struct vectors_put *put, struct quire_error *err);
/* Whether a vector that is put comes back bit for bit; otherwise only as a number of the same worth. */
bool vectors_keeps(const struct schema_vector *what, const void *vector);
bool vectors_gives_back(const struct vectors *vectors, const void *vector); /* the same of a field */
/* Whether a document has a vector here, by its id. */
bool vectors_have(struct vectors *vectors, uint32_t id);
/* The document is gone, or has no vector any more. An id that is not here: nothing happens. *lsn 0: nothing was
 * written. key: its document's. */
int vectors_remove(struct vectors *vectors, const void *key, uint32_t key_bytes, uint32_t id, uint64_t *lsn,
                   struct quire_error *err);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A document's vector as it is when the read is started (collection_read). */
struct vectors_read {
    /* set by the caller, who owns the struct until done */
    struct vectors *vectors; /* a reference is taken */
    const void *key;         /* looked at during the start only */
    uint32_t key_bytes, id;
    void (*done)(struct vectors_read *read); /* perhaps inside the start */
    void *owner;
    /* filled before done; valid during done */
    int code; /* QUIRE_ENOTFOUND: the document has none here */
    struct quire_error error;
    const void *vector; /* vectors_bytes */
    uint32_t reads;
    /* inside */
    struct collection_read inner;
};
/* An error at once, without done: QUIRE_ENOMEM. */
int vectors_read_start(struct searcher *searcher, struct vectors_read *read, struct quire_error *err);
/* The same where it is in memory: false, where the disk must be asked, or there is no memory. */
bool vectors_read_now(struct vectors *vectors, const void *key, uint32_t key_bytes, uint32_t id, void *vector);

/* ---- searching --------------------------------------------------------------------------------------------------- */

struct vectors_search {
    /* set by the caller, who owns the struct until done */
    struct vectors *vectors;         /* a reference is taken */
    const void *query;               /* vectors_bytes, in the field's element type, valid; not aligned; copied */
    const roaring_bitmap_t *allowed; /* ids that may be answered; looked at during the start only. NULL: all */
    uint32_t k;                      /* the nearest so many, 1 .. QUIRE_K_MAX. Of a range: at most so many */
    bool is_range;                   /* those within radius (inclusive), the nearest first */
    double radius;
    uint32_t ef;                                 /* EF_RUNTIME: how hard to search at least, beside the recall */
    float recall;                                /* 0: 0.97 */
    uint32_t reads_max;                          /* 0: no limit */
    uint32_t priority;                           /* of its reads: search.h */
    uint64_t deadline_us;                        /* clock_us(): a range then ends with what it has; 0: none */
    void (*done)(struct vectors_search *search); /* on the lane; where no read is needed inside the start */
    /* As in collection_search; NULL: there is no limit. */
    bool (*may_hold)(struct vectors_search *search, size_t bytes);
    void *owner;
    /* filled before done; pointers valid during done */
    int code;
    struct quire_error error;
    uint32_t n;
    const uint32_t *ids; /* the ids that the documents have when done is called; those that have gone are left out */
    const double *distances; /* ascending. L2: squared; IP: 1 - dot; COSINE: 1 - cosine */
    struct quire_search_stats stats;
    /* inside */
    struct vectors_work *work;
};
/* QUIRE_EINVALID, QUIRE_ERANGE (k), QUIRE_ENOMEM, QUIRE_ECLOSED at once, without done. What is answered is what was
 * there when the start was called, but for documents that go, or get another vector, meanwhile. */
int vectors_search_start(struct searcher *searcher, struct vectors_search *search, struct quire_error *err);

/* ---- statistics -------------------------------------------------------------------------------------------------- */

struct vectors_stats {
    uint64_t documents;
    uint64_t memory_bytes, disk_bytes; /* memory: memtables, what is resident of segments, tables of ids */
    uint64_t segments, seals, merges, memtable_rows, dead_rows;
};
void vectors_get_stats(struct vectors *vectors, struct vectors_stats *out);

#endif
