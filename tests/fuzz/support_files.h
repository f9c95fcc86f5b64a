/* support_files.h - files in memory that fuzz targets begin with: a tiny segment, kept and put again for each input. */
#ifndef QUIRE_TESTS_FUZZ_SUPPORT_FILES_H
#define QUIRE_TESTS_FUZZ_SUPPORT_FILES_H

#include "io/fs.h"

enum { TINY_ROWS = 60, TINY_DIM = 8, TINY_BLOCK_BYTES = 4096, TINY_LIST_ROWS = 12, KEPT_MAX = 8 };

struct kept_file {
    char name[16];
    uint8_t *bytes;
    size_t n;
};
struct kept_files {
    struct kept_file items[KEPT_MAX];
    unsigned n;
};

void fuzz_require(bool right); /* or the target aborts */

enum tiny_kind { TINY_GRAPH, TINY_EDGE_CODES, TINY_LISTS, TINY_KINDS };

/* Builds a segment of TINY_ROWS rows with keys ("key-0", ..., some of 100 bytes) and attributes: a page graph, one with
 * codes of edges, or inverted lists. Keeps its files; they live as long as the process. */
void support_tiny_segment(enum tiny_kind kind, struct kept_files *out);
/* Makes the folder and its files. */
void support_put_files(struct io_fs *fs, const char *folder, const struct kept_files *files);
void support_put_file(struct io_fs *fs, const char *path, const uint8_t *bytes, size_t n);
struct kept_file *support_find(struct kept_files *files, const char *name);

#endif
