/*
 * document_index.h - one index: which documents are in it, under which numbers, and what is found of them.
 *
 * A document is known by its key and has a number (id). A document that changes gets a new number, higher than all
 * before, so sets of ids are in the order in which documents were last written. What is kept of documents for searching
 * is in document/fields (sets by tag, number, place, word) and document/vectors.
 *
 * Lock: one per index. Who writes a document holds the lock of its key's shard before; who holds an index's lock asks
 * the keyspace nothing.
 */
#ifndef QUIRE_DOCUMENT_INDEX_H
#define QUIRE_DOCUMENT_INDEX_H

#include "document/fields/fields.h"
#include "document/index/record_read.h"
#include "document/vectors/vectors.h"
#include <pthread.h>
#include <stdatomic.h>

#define DOCUMENT_ERROR_BYTES 256u

struct document_index;

struct document_index *document_index_ref(struct document_index *index);
void document_index_unref(struct document_index *index); /* NULL is fine */

/* The schema as it is now; lives as long as the index, also where FT.ALTER makes another. */
const struct schema *document_index_schema(struct document_index *index);
const char *document_index_name(const struct document_index *index);

/* 0, or why the index cannot be used: files of its vectors are damaged. */
int document_index_available(struct document_index *index, struct quire_error *err);

/* The document of a key is now this: in it, in place of what was there under the key; or, where a field holds what its
 * type does not take, out of it, and counted. Under the lock of the key's shard. `anew`: a document that is in already
 * stays as it is (back-fill).
 * Vectors that the document's keeper has not (document_view.is_kept) stay with the index, whatever becomes of the rest:
 * one that is out of it for another field is held, and not found. */
void document_index_put(struct document_index *index, const void *key, uint32_t key_bytes,
                        const struct document_view *view, bool anew);
/* 0, or why vectors cannot be taken now. */
int document_index_admit(struct document_index *index, struct quire_error *err);
void document_index_remove(struct document_index *index, const void *key, uint32_t key_bytes);

/* The vector that the index has of a document's field: the field's vectors, a reference, and the document's id there.
 * NULL: none. */
struct vectors *document_index_vectors(struct document_index *index, const void *key, uint32_t key_bytes,
                                       const struct schema_field *field, uint32_t *id);

/* The key of a document: into a buffer of QUIRE_KEY_BYTES_MAX bytes; false: it is no longer there. */
bool document_index_key(struct document_index *index, uint32_t id, uint8_t *key, uint32_t *key_bytes);
/* Every document's key, held ones included, in the order of ids, from id `from` on (0 at first): as many as fit in
 * `bytes`, each with its length in four bytes before it. Returns the id to go on from; 0: that was all. */
uint32_t document_index_keys(struct document_index *index, uint32_t from, uint8_t *out, size_t bytes, size_t *n_bytes);

/* The number in a NUMERIC field, of several the first; false: it has none. For sorting without looking at documents. */
bool document_index_number(struct document_index *index, uint32_t id, const struct schema_field *field, double *number);
/* Every value of an indexed TAG field, in order. */
int document_index_tags(struct document_index *index, const struct schema_field *field,
                        bool (*value)(void *context, const char *text, uint32_t bytes, uint64_t documents),
                        void *context, struct quire_error *err);
/* The documents of these keys that are in: added to `ids`. */
void document_index_find_keys(struct document_index *index, const struct schema_word *keys, uint32_t n,
                              roaring_bitmap_t *ids);

struct document_index_stats {
    uint64_t documents, max_id, failures, uses, indexing_us;
    uint64_t bytes; /* of memory: table of documents */
    struct fields_stats fields;
    struct vectors_stats vectors; /* of all vector fields together */
    bool filling;
    double filled; /* 0 to 1 */
    char error[DOCUMENT_ERROR_BYTES], error_key[DOCUMENT_ERROR_BYTES];
};
void document_index_get_stats(struct document_index *index, struct document_index_stats *out);
uint32_t document_index_count(struct document_index *index); /* documents */
void document_index_used(struct document_index *index);      /* a search has begun */
/* How far the back-fill is; 1: it has ended. */
void document_index_filled(struct document_index *index, double share);
/* Whether a document could not be put in, since its vector is neither its keeper's nor here: a back-fill reads it. */
bool document_index_lacks(const struct document_index *index);
/* Whether it is in no list any more: nobody can ask for it. */
bool document_index_is_dropped(const struct document_index *index);

#endif
