/* build.h - building a segment through a given file system (quire_build is this over the real one). */
#ifndef QUIRE_INDEX_BUILD_H
#define QUIRE_INDEX_BUILD_H

#include "io/fs.h"

/* See quire_build_from. */
int build_segment(struct io_fs *fs, const char *path, const struct quire_input *input,
                  const struct quire_build_options *options, struct quire_error *err);

/* The least power of two, from 4096 to the largest block, that holds as many slots as a block should have; what a build
 * with these options would not go below on its own. */
uint32_t build_block_least(uint64_t rows, uint32_t dim, enum quire_type type,
                           const struct quire_build_options *options);

#endif
