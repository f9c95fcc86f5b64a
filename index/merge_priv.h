/* merge_priv.h - the rows of a merge on their way into a build. */
#ifndef QUIRE_INDEX_MERGE_PRIV_H
#define QUIRE_INDEX_MERGE_PRIV_H

#include "index/merge.h"

struct arena_piece;

/* Rows in the order in which they are added: vectors in memory or in a file, keys and attributes in memory. */
struct merge_input {
    uint32_t n, room; /* rows added, and all that will be */
    uint32_t dim;
    enum quire_type type; /* of the vectors as they are kept */
    size_t row_bytes;
    struct io_fs *fs;
    uint8_t *vectors; /* all, or those that are not written yet; owned */
    uint32_t n_written, n_buffer;
    char *folder; /* of the file; NULL: all vectors are in memory; owned */
    struct io_file *file;
    float *floats; /* of one vector */
    const void **keys;
    uint32_t *key_bytes;
    const char **attributes;
    uint32_t *attribute_bytes;
    bool any_attributes;
    struct arena_piece *pieces; /* copies of keys and attributes */
};

/* Room for n rows whose vectors take memory_bytes at most, or lie in a file beside `path`. */
int merge_input_init(struct merge_input *input, struct io_fs *fs, const char *path, uint32_t n, uint32_t dim,
                     enum quire_type type, uint64_t memory_bytes, struct quire_error *err);
void merge_input_fini(struct merge_input *input); /* removes the file; zeroed is fine */
/* Adds a row. vector: dim elements of `type`. Key and attributes (NULL: none) are copied where `copy`, or stay where
 * they are. */
int merge_input_add(struct merge_input *input, const void *vector, enum quire_type type, const void *key,
                    uint32_t key_bytes, const char *attributes, uint32_t attribute_bytes, bool copy,
                    struct quire_error *err);
/* After the last row: what a build takes. */
int merge_input_finish(struct merge_input *input, struct quire_input *out, struct quire_error *err);

#endif
