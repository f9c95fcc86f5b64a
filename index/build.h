/* build.h - building a segment through a given file system (quire_build is this over the real one). */
#ifndef QUIRE_INDEX_BUILD_H
#define QUIRE_INDEX_BUILD_H

#include "io/fs.h"

/* See quire_build_from. */
int build_segment(struct io_fs *fs, const char *path, const struct quire_input *input,
                  const struct quire_build_options *options, struct quire_error *err);

#endif
