/*
 * support_vectors.h - a vector field and documents that a test knows: what was put is kept in a model, and searches are
 * compared with a computation over all of it.
 *
 * A document's key is "doc:<number>", its vector a function of number and version. Each document is logged as a record
 * of the host's in the same batch as its vector, as the keyspace does it, so that a store that is opened again says
 * which documents there are.
 */
#ifndef QUIRE_TESTS_DOCUMENT_SUPPORT_VECTORS_H
#define QUIRE_TESTS_DOCUMENT_SUPPORT_VECTORS_H

#include "document/vectors/vectors_priv.h"
#include "index/store/store.h"
#include "tests/temp_folder.h"

#define WORLD_DIM 16u

struct world_document {
    uint32_t version, id; /* version 0: there is none */
    uint64_t lsn;         /* of the record that said so */
};

struct world {
    struct io_fs *fs; /* NULL: the real one */
    char *path;
    struct schema_vector what;
    struct store *store;
    struct vectors *vectors;
    struct engine *engine;
    struct searcher *searcher;
    uint32_t n, next_id;
    struct world_document *documents; /* n; owned */
    uint64_t uid;
    bool maintained; /* the store works in the background, and seals early */
    /* Opened with vectors_compare: of the first n_differ documents another version is there than the one logged. */
    bool compares;
    uint32_t n_differ;
};

/* Makes the store and the field. path is kept. */
void world_begin(struct world *w, struct io_fs *fs, const char *path, uint32_t n, const struct schema_vector *what,
                 bool maintained);
void world_end(struct world *w); /* the store may be broken */
/* Closes all, as it is. */
void world_close(struct world *w);
/* Opens the folder again: documents are those of the journal. Returns how many puts had to write or were refused, and
 * how many rows nobody claimed: 0 where each document's row is there and no other. Negative: the store cannot be
 * opened. */
int64_t world_open(struct world *w);

struct schema_vector world_field(enum schema_metric metric, enum schema_element element);
/* The elements of a document's vector, as its field has them, and as floats. */
void world_vector(const struct world *w, uint32_t document, uint32_t version, void *out);
void world_floats(const struct world *w, uint32_t document, uint32_t version, float out[WORLD_DIM]);

/* In a batch with the document's record. */
int world_put(struct world *w, uint32_t document, uint32_t version);
int world_remove(struct world *w, uint32_t document);
/* The document changes otherwise: another id, the same vector. Whether nothing was written. */
bool world_touch(struct world *w, uint32_t document);

struct world_answer {
    int code;
    uint32_t n, ids[4096];
    double distances[4096];
    struct quire_search_stats stats;
    bool done;
};
/* Blocks. set: ids; NULL: all. radius < 0: the k nearest. */
void world_search(struct world *w, const void *query, const roaring_bitmap_t *set, uint32_t k, double radius,
                  struct world_answer *out);
/* The true answer. */
uint32_t world_truth(const struct world *w, const void *query, const roaring_bitmap_t *set, uint32_t k, double radius,
                     uint32_t *ids, double *distances);
/* Ids of the documents for which the hash of their number is below share. */
roaring_bitmap_t *world_set(const struct world *w, double share, uint64_t seed);
/* Searches with n queries for k of each set; fails the test where an answer is not allowed, not alive, has a wrong
 * distance, comes twice or out of order, or where there are too few. Returns the recall. */
double world_recall(struct world *w, double share, uint32_t k, uint32_t n, uint64_t seed);
/* Each document is found at distance 0 among itself alone, and its vector is read back bit for bit (vectors_keeps). */
bool world_is_whole(struct world *w);

#endif
