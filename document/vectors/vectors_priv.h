/* vectors_priv.h - the inside of a field, for its room's own files. */
#ifndef QUIRE_DOCUMENT_VECTORS_PRIV_H
#define QUIRE_DOCUMENT_VECTORS_PRIV_H

#include "document/vectors/vectors_table.h"
#include "index/collection/collection.h"
#include <pthread.h>
#include <stdatomic.h>

struct vectors_unclaimed;

struct vectors {
    atomic_uint references;
    struct store *store;
    struct collection *collection; /* a reference */
    struct schema_vector what;
    uint64_t seed;        /* of digests; secret */
    pthread_mutex_t lock; /* what follows */
    struct vectors_table table;
    bool dropped;
    struct vectors_unclaimed *unclaimed; /* between vectors_open and vectors_loaded, of one thread; otherwise NULL */
};

/* A name of an element: the number, then the key. */
#define NAME_BYTES_HERE 256u
struct vectors_name {
    uint8_t *bytes;
    uint32_t n_bytes;
    uint8_t here[NAME_BYTES_HERE];
};
/* QUIRE_ENOMEM; ended by vectors_name_fini. */
int vectors_name_init(struct vectors_name *name, uint32_t number, const void *key, uint32_t key_bytes);
void vectors_name_fini(struct vectors_name *name);

/* The settings of a field's collection. QUIRE_EDIM. */
int vectors_config(const struct schema_vector *what, struct collection_config *out, struct quire_error *err);
/* A field over a collection, whose reference it takes. */
int vectors_new(struct store *store, struct collection *collection, const struct schema_vector *what,
                struct vectors **out, struct quire_error *err);
/* The bytes of a document as elements of the collection: themselves, but of 64-bit floats, which are rounded. `to`:
 * vectors_bytes, aligned as malloc does it. */
void vectors_elements(const struct schema_vector *what, const void *vector, void *to);
enum quire_type vectors_type(const struct schema_vector *what); /* of those elements */

/* ---- vectors_load.c ---------------------------------------------------------------------------------------------- */

/* The number of a row that has this key and that no document has claimed yet; it is the document's now. NUMBER_NONE:
 * there is none. *is_same: its vector is the document's (vector NULL: whatever it is). */
uint32_t vectors_claim(struct vectors *vectors, const void *key, uint32_t key_bytes, const void *vector, bool *is_same);
void vectors_unclaimed_free(struct vectors_unclaimed *unclaimed); /* NULL is fine */

#endif
