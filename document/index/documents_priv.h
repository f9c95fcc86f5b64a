/* documents_priv.h - all indexes, for the files of this room. */
#ifndef QUIRE_DOCUMENTS_PRIV_H
#define QUIRE_DOCUMENTS_PRIV_H

#include "document/index/document_index_priv.h"
#include "document/index/documents.h"

struct alias {
    char *name, *index; /* owned */
    uint64_t lsn;
};

struct documents {
    pthread_mutex_t writing; /* before a batch of the journal, and so before `lock` */
    /* Held for reading while an index is looked up or told of a document, for writing while the lists change. Before
     * the locks of indexes, behind those of keys. */
    pthread_rwlock_t lock;
    struct document_index **indexes; /* references; ascending by name */
    uint32_t n, capacity;
    struct alias *aliases; /* ascending by name */
    uint32_t n_aliases, aliases_capacity;
    atomic_uint n_follow;    /* of n, for who holds no lock */
    atomic_uint n_vectors;   /* indexes with vectors */
    _Atomic uint64_t bytes;  /* of memory, of all */
    struct store *store;     /* NULL: before documents_begin, or no folder */
    struct journal *journal; /* of the store; NULL: nothing is logged */
    void (*discard)(void *context, struct document_index *index);
    void *discard_context;
};

/* Where an index of this name is, or would be. */
uint32_t documents_place(const struct documents *documents, const char *name, size_t bytes, bool *found);
uint32_t documents_alias_place(const struct documents *documents, const char *name, size_t bytes, bool *found);
/* Puts the index, a reference that is taken over, in its place; there is none of its name. */
int documents_insert(struct documents *documents, struct document_index *index, struct quire_error *err);
/* Takes it out of the list, and its aliases; the reference is the caller's. */
struct document_index *documents_take_out(struct documents *documents, uint32_t at);
/* name and target are copied; an alias of that name gets the target. */
int documents_alias_put(struct documents *documents, const char *name, size_t bytes, const char *target,
                        size_t target_bytes, uint64_t lsn, struct quire_error *err);
void documents_alias_drop(struct documents *documents, uint32_t at);

/* ---- records: documents_log.c ------------------------------------------------------------------------------------ */

/* A record of n uids and words (the name first, where the kind has one before them); owned by the caller. */
int documents_definition(uint8_t kind, const uint64_t *uids, uint32_t n_uids, const struct schema_word *words,
                         uint32_t n_words, struct definition **out, struct quire_error *err);
/* Appends it to the journal, if there is one; *lsn is as it was otherwise. */
int documents_append(struct documents *documents, uint8_t kind, const void *bytes, uint32_t n, uint64_t *lsn,
                     struct quire_error *err);
/* Room for one more definition; then keep, after which the index owns it. */
int documents_reserve(struct document_index *index, struct quire_error *err);
void documents_keep(struct document_index *index, struct definition *definition);
/* The uids in the index's definitions, in the order of its vector fields; owned by the caller. */
int documents_uids(const struct document_index *index, uint64_t **out, uint32_t *n, struct quire_error *err);

#endif
