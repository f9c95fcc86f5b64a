/*
 * support_store.h - stores with collections whose content a test knows: what was written is kept in a model, and the
 * collection is compared with it, element by element and by searches.
 *
 * Vectors are SUPPORT_DIM floats, a function of key number and version, stored as floats, so that all is exact.
 */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_STORE_H
#define QUIRE_TESTS_INDEX_SUPPORT_STORE_H

#include "index/store/store.h"
#include "tests/temp_folder.h"

#define SUPPORT_DIM 8u

struct support_lane {
    struct engine *engine;
    struct searcher *searcher;
};
/* An engine that fits the fs (NULL: the real one). */
void support_lane_open(struct support_lane *lane, struct io_fs *fs);
void support_lane_close(struct support_lane *lane);

/* What a collection holds: version 0: no such element; attributes 0: none. */
struct support_element {
    uint32_t version, attributes;
};
struct support_model {
    uint32_t n;
    struct support_element *elements; /* owned */
};
void support_model_init(struct support_model *model, uint32_t n);
void support_model_copy(struct support_model *to, const struct support_model *from);
void support_model_free(struct support_model *model);
uint64_t support_model_count(const struct support_model *model);

extern enum quire_index_kind support_kind; /* of what support_config makes; AUTO until a test sets it */
struct collection_config support_config(void);
void support_vector(uint32_t key, uint32_t version, float out[SUPPORT_DIM]);
/* Options without background, everything small. */
struct store_options support_store_options(struct io_fs *fs);
/* Fails the test with the store's own message. */
struct store *support_store_open(const char *path, const struct store_options *options);
void support_store_close(struct store *store);
struct collection *support_create(struct store *store);

/* Writes that change the model, too, when they succeed. Return the error of the write; *lsn (may be NULL) of it. */
int support_put(struct support_lane *lane, struct collection *collection, struct support_model *model, uint32_t key,
                uint32_t version, uint32_t attributes, uint64_t *lsn);
int support_remove(struct support_lane *lane, struct collection *collection, struct support_model *model, uint32_t key,
                   uint64_t *lsn);
/* Of an element that a memtable holds; QUIRE_ENOTFOUND otherwise. */
int support_set_attributes(struct collection *collection, struct support_model *model, uint32_t key,
                           uint32_t attributes, uint64_t *lsn);

/* Whether the collection holds exactly what the model does: each element by its key, and all of them by an exact
 * search. Says on stderr what differs. */
bool support_equal(struct support_lane *lane, struct collection *collection, const struct support_model *model);
/* The same of one exact search for the k nearest, or all (k 0), that has begun, but not read, before `meanwhile` is
 * called: that writes with another lane, and changes the model. */
bool support_equal_after(struct support_lane *lane, struct collection *collection, const struct support_model *model,
                         uint32_t k, void (*meanwhile)(void *context), void *context);
/* The mean recall@10 of n searches against the model. */
double support_recall_at_10(struct support_lane *lane, struct collection *collection, const struct support_model *model,
                            uint32_t n);

#endif
