/* build.h - building a segment through a given file system (quire_build is this over the real one). */
#ifndef QUIRE_INDEX_BUILD_H
#define QUIRE_INDEX_BUILD_H

#include "io/fs.h"

struct clusters_known;
struct offload;
struct segment;
struct segment_params;

/* See quire_build_from. */
int build_segment(struct io_fs *fs, const char *path, const struct quire_input *input,
                  const struct quire_build_options *options, struct quire_error *err);

/* About how many rows or centroids each row is multiplied with: page graph, inverted lists. */
#define BUILD_GRAPH_PRODUCTS 1700u
#define BUILD_LIST_PRODUCTS  520u
/* Rows that a calibration asks with, of all that there are at most one in 20. */
#define BUILD_QUERIES_LEAST 50u
#define BUILD_QUERIES_MOST  800u
/* Steps of a build that a device may have. */
enum build_device_step {
    BUILD_BISECTION = 1,  /* projections of rows, level by level */
    BUILD_NEIGHBOURS = 2, /* products of rows with those of near groups, or with near centroids in each round */
    BUILD_TRUTH = 4,      /* exact answers of the calibration */
};
#define BUILD_STEPS 7u
/* The same with a device for some of these steps, or NULL: the same index, byte for byte. What a device has done and
 * why it did no more is in its status. Under build_memory_bytes none is used. kind_reason: as build_choose_kind gave it
 * with the options' kind, 0 where that was asked for. */
int build_offloaded(struct io_fs *fs, const char *path, const struct quire_input *input,
                    const struct quire_build_options *options, struct offload *offload, unsigned steps,
                    uint32_t kind_reason, struct quire_error *err);

/* Edges that the first rows of an input had in a page graph before. Rows share lists, because blocks keep no others. */
struct build_known {
    uint32_t n_rows;   /* the first so many of the input */
    uint32_t *list_of; /* per row */
    uint32_t n_lists;
    uint64_t *at;                 /* n_lists + 1: places in targets */
    uint32_t *targets;            /* rows of the input, UINT32_MAX: gone; the build makes rows of the index of them */
    uint64_t n_targets, capacity; /* capacity: of targets */
};

/* What a merge (merge.h) tells a build beside input and options. */
struct build_merge {
    enum quire_type type;                  /* that the index says its vectors came as; the input's may be another */
    uint32_t *places;                      /* per row of the input: gets its row in the index */
    struct build_known *known;             /* for a page graph; NULL: no edges are known */
    const struct clusters_known *clusters; /* for inverted lists, per row of the input; NULL: none are known */
    const struct segment
        *before;      /* most rows come from it, or are like its rows, and its calibration still holds as far
                                     as that is checked at some points; NULL: calibrate as if there were none */
    bool brief;       /* calibrate with fewer queries at fewer points, and seek edges among fewer rows */
    bool whole_edges; /* in brief, but for the edges */
    bool tenant_runs; /* rows of small tenants lie side by side; grants stand in the attributes */
    bool unit_codes;  /* behind each vector of the input stand its unit code and factors, for the slots */
};
/* Of a row of the input. */
size_t build_row_bytes(uint32_t dim, enum quire_type type, bool unit_codes);
/* The same with what a merge knows; merge may be NULL. */
int build_merged(struct io_fs *fs, const char *path, const struct quire_input *input,
                 const struct quire_build_options *options, const struct build_merge *merge, struct quire_error *err);

/* What a build of this input in the new folder `path` makes, and why (enum kind_reason); AUTO if there is no memory to
 * find out. May probe the device. */
enum quire_index_kind build_choose_kind(const char *path, const struct quire_input *input,
                                        const struct quire_build_options *options, uint32_t *kind_reason);

/* The kind of a live collection that asked for `wanted`: AUTO is the page graph there, whose merges cost less. */
enum quire_index_kind build_kind(enum quire_index_kind wanted);

/* The slot that a build of vectors of `type` chooses for `wanted`. */
enum quire_slot build_slot(enum quire_slot wanted, enum quire_type type);

/* The least power of two, from 4096 to the largest block, that holds as many slots as a block should have; what a build
 * with these options would not go below on its own. */
uint32_t build_block_least(uint64_t rows, uint32_t dim, enum quire_type type,
                           const struct quire_build_options *options);
/* Blocks and edge codes of a page graph of so many rows, and what columns take in memory: of *out are set rows, dim,
 * code_dim, block_bytes, slots_per_block, n_blocks and edge_code_bytes. */
void build_layout_for(uint64_t rows, uint32_t dim, enum quire_type type, const struct quire_build_options *options,
                      struct segment_params *out, uint64_t *columns_bytes);

/* What a build of so many rows takes, without keys, attributes and tenants; the options' index is not AUTO. */
struct build_needs {
    uint64_t memory_bytes;       /* resident, with everything in memory */
    uint64_t memory_least_bytes; /* the least build_memory_bytes that is not refused */
    uint64_t work_bytes;         /* on the disk beside the index then */
};
void build_needs_for(uint64_t rows, uint32_t dim, enum quire_type type, const struct quire_build_options *options,
                     struct build_needs *out);

#endif
