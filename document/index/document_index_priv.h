/* document_index_priv.h - an index, for the files of this room. */
#ifndef QUIRE_DOCUMENT_INDEX_PRIV_H
#define QUIRE_DOCUMENT_INDEX_PRIV_H

#include "document/index/document_index.h"
#include "io/hash.h"
#include <xxhash.h>

/* A document that is in the index. */
struct document {
    uint32_t id;
    uint16_t key_bytes;
    bool is_held; /* it is not to be found, but vectors are kept for it (document_index_put) */
    uint8_t key[];
};
struct document_place {
    struct document *document; /* NULL: an empty place */
    uint64_t hash;             /* of the key */
};

static inline bool document_place_is_set(const struct document_place *p)
{
    return p->document != NULL;
}
static inline uint64_t document_place_hash(const struct document_place *p)
{
    return p->hash;
}
static inline bool document_place_is_same(const struct document_place *a, const struct document_place *b)
{
    return a->hash == b->hash && a->document->key_bytes == b->document->key_bytes &&
           memcmp(a->document->key, b->document->key, a->document->key_bytes) == 0;
}
HASH_DEFINE(document_table, struct document_place, document_place_is_set, document_place_hash, document_place_is_same)

/* A number that was given; document NULL: to one that is gone. */
struct numbered {
    struct document *document;
    uint32_t id;
};

/* The words of FT.CREATE, or of an FT.ALTER, as they were logged. */
struct definition {
    uint8_t kind;
    uint32_t n_bytes;
    uint8_t bytes[];
};

struct document_index {
    atomic_uint references;
    char *name;                      /* owned; as the schema's */
    _Atomic(struct schema *) schema; /* the last of `schemas` */
    struct schema **schemas;         /* owned: all there ever were, since trees and replies point into them */
    uint32_t n_schemas;
    struct definition **definitions; /* owned; guarded by the lock of documents */
    uint32_t n_definitions;
    uint64_t lsn;              /* of its last record */
    struct quire_error damage; /* code 0: none; set at start */

    pthread_rwlock_t lock; /* of all below but what is atomic */
    struct fields *fields;
    struct vectors **vectors; /* by number of field; NULL: no vector field */
    struct document_table by_key;
    uint32_t n_held;        /* of by_key */
    atomic_bool is_leaving; /* it is being dropped, and takes no value from its keeper any more */
    struct numbered *by_id; /* ascending; swept when most are gone */
    uint32_t n_by_id, capacity, next_id;
    uint64_t seed;           /* of hashes of keys */
    uint64_t bytes;          /* of documents */
    uint64_t noted;          /* memory that `total` knows of */
    _Atomic uint64_t *total; /* of all indexes; NULL: in no list */
    uint32_t changes;        /* since then */
    struct record_reader reader;
    uint64_t failures, indexing_us;
    char error[DOCUMENT_ERROR_BYTES], error_key[DOCUMENT_ERROR_BYTES];
    _Atomic uint64_t uses;
    atomic_bool dropped;
    atomic_bool lacks; /* a document whose vector another index has, since its keeper could not give it */
    _Atomic uint32_t filled_millionths;
};

/* An empty one; the schema is taken over, also on failure. */
int document_index_create(struct schema *schema, struct document_index **out, struct quire_error *err);
/* What another schema needs of memory: begun by prepare, ended by alter or forget. */
struct document_change {
    struct schema *schema;
    struct schema **schemas;
    struct vectors **vectors;
    struct record_reader reader;
};
/* A schema with the fields of the index's and more. QUIRE_EINVALID: a field's path is none; QUIRE_ENOMEM. */
int document_index_prepare(const struct document_index *index, struct schema *schema, struct document_change *out,
                           struct quire_error *err);
void document_index_forget(struct document_change *change);
/* It is the index's from now on, which has taken it over then, with the vectors of the new fields: n_vectors of them,
 * in the order of fields. QUIRE_ENOMEM: nothing has changed, and the change is forgotten. */
int document_index_alter(struct document_index *index, struct document_change *change, struct vectors *const *vectors,
                         uint32_t n_vectors, struct quire_error *err);
/* Vectors of its fields: n of them, in the order of fields; taken over. */
void document_index_give_vectors(struct document_index *index, struct vectors *const *vectors, uint32_t n);
/* Its memory counts in `total` from now on; NULL: no more. */
void document_index_account(struct document_index *index, _Atomic uint64_t *total);
/* It cannot be used, for this reason. At start. */
void document_index_damaged(struct document_index *index, const struct quire_error *err);
/* How many of the fields from number `first` on are vectors. */
uint32_t document_index_n_vectors(const struct schema *schema, uint32_t first);

#endif
