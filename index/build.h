/* build.h - building a segment through a given file system (quire_build is this over the real one). */
#ifndef QUIRE_INDEX_BUILD_H
#define QUIRE_INDEX_BUILD_H

#include "io/fs.h"

/* See quire_build_from. */
int build_segment(struct io_fs *fs, const char *path, const struct quire_input *input,
                  const struct quire_build_options *options, struct quire_error *err);

/* What a merge (merge.h) tells a build beside input and options. */
struct build_merge {
    enum quire_type type; /* that the index says its vectors came as; the input's may be another */
    uint32_t *places;     /* per row of the input: gets its row in the index */
};
/* The same with what a merge knows; merge may be NULL. */
int build_merged(struct io_fs *fs, const char *path, const struct quire_input *input,
                 const struct quire_build_options *options, const struct build_merge *merge, struct quire_error *err);

/* The slot that a build of vectors of `type` chooses for `wanted`. */
enum quire_slot build_slot(enum quire_slot wanted, enum quire_type type);

/* The least power of two, from 4096 to the largest block, that holds as many slots as a block should have; what a build
 * with these options would not go below on its own. */
uint32_t build_block_least(uint64_t rows, uint32_t dim, enum quire_type type,
                           const struct quire_build_options *options);

#endif
