/* file_replace.h - a small file written anew: whoever reads it, also after a crash, finds the old text or the new. */
#ifndef QUIRE_SERVER_FILE_REPLACE_H
#define QUIRE_SERVER_FILE_REPLACE_H

#include "quire.h"
#include <stddef.h>
#include <sys/types.h>

/* Writes n bytes to a temporary file beside `path`, with this mode, syncs it, renames it and syncs the folder. On
 * failure the old file stays. Blocks. */
int file_replace(const char *path, const void *bytes, size_t n, mode_t mode, struct quire_error *err);

#endif
