/* merge_priv.h - the rows of a merge on their way into a build. */
#ifndef QUIRE_INDEX_MERGE_PRIV_H
#define QUIRE_INDEX_MERGE_PRIV_H

#include "index/build/build.h"
#include "index/build/merge.h"
#include "index/cluster/clusters.h"
#include "index/format/block.h"

/* segment_scan, which also shows each block before its rows; visit_view may be NULL. */
int segment_scan_blocks(struct segment *segment, const uint8_t *dead,
                        int (*visit)(void *context, const struct scanned_row *row),
                        int (*visit_view)(void *context, const struct block_view *view),
                        void (*damaged)(void *context, const char *sentence), void *context, struct quire_error *err);

/* merge_clusters.c: the list of each living row of a segment of inverted lists, which are the first of the merge's n
 * rows; UINT32_MAX for the others. rows_of as below. */
int merge_clusters_init(struct clusters_known *known, const struct segment *segment, const uint32_t *rows_of,
                        uint32_t n);
void merge_clusters_fini(struct clusters_known *known); /* zeroed is fine */

/* merge_edges.c: the edge lists of a segment, as they are read and then as rows of the merge's input. */
int merge_edges_init(struct build_known *known, struct segment *segment);
void merge_edges_fini(struct build_known *known); /* zeroed is fine */
int merge_edges_add(struct build_known *known, struct segment *segment, const struct block_view *view,
                    struct quire_error *err);
/* After the scan: rows_of has the row of the input for each row of the segment, UINT32_MAX for the dead. */
void merge_edges_finish(struct build_known *known, const uint32_t *rows_of, uint32_t n_rows);

struct arena_piece;

/* Rows in the order in which they are added: vectors in memory or in a file, keys and attributes in memory. */
struct merge_input {
    uint32_t n, capacity; /* rows added, and all that will be */
    uint32_t dim;
    enum quire_type type;           /* of the vectors as they are kept */
    size_t vector_bytes, row_bytes; /* of the elements, and with a code behind them */
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
                     enum quire_type type, bool unit_codes, uint64_t memory_bytes, struct quire_error *err);
void merge_input_fini(struct merge_input *input); /* removes the file; zeroed is fine */
/* Adds a row. vector: dim elements of `type`. Key and attributes (NULL: none) are copied where `copy`, or stay where
 * they are. With unit codes the row's code and factors are put behind its floats by who adds it (merge_input_code). */
int merge_input_add(struct merge_input *input, const void *vector, enum quire_type type, const void *key,
                    uint32_t key_bytes, const char *attributes, uint32_t attribute_bytes, bool copy,
                    struct quire_error *err);
/* Where the floats of the row that was added last are, and where its code belongs: code_dim levels, then factors. */
uint8_t *merge_input_code(struct merge_input *input, float **vector);
/* After the last row: what a build takes. */
int merge_input_finish(struct merge_input *input, struct quire_input *out, struct quire_error *err);

#endif
