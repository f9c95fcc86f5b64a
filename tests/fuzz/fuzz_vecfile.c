/*
 * fuzz_vecfile.c - any bytes as a file of vectors, in every format.
 *
 * The first byte chooses the format, the rest is the file. A file is read to its end or refused with a sentence; it
 * never gives more rows than it said, nor a dimension out of the limits. Memory files: nothing is left on disk.
 */
#include "datasets/vecfile.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS_AT_ONCE = 3 };

static void require(bool right)
{
    if (!right)
        abort();
}

static void read_forward(const char *path, enum vecfile_format format)
{
    struct vecfile *file = NULL;
    struct quire_error err = {0};
    int rc = vecfile_open(path, format, &file, &err);
    require(rc == 0 || (rc < 0 && err.code == rc && err.message[0] != 0));
    if (rc < 0)
        return;
    uint64_t said = vecfile_rows(file), found = 0;
    uint32_t dim = vecfile_dim(file);
    size_t row_bytes = dim * (vecfile_is_ivecs(file) ? 4 : quire_type_bytes(vecfile_type(file)));
    void *rows = malloc(ROWS_AT_ONCE * row_bytes + 1);
    require(rows != NULL && dim <= QUIRE_DIM_MAX);
    int64_t n;
    while ((n = vecfile_read(file, rows, ROWS_AT_ONCE, &err)) > 0) {
        require(n <= ROWS_AT_ONCE);
        found += (uint64_t)n;
    }
    require(n == 0 ? said == UINT64_MAX || found == said : err.message[0] != 0);
    require(found <= said);
    free(rows);
    vecfile_close(file);
}

static void read_whole(const char *path, enum vecfile_format format)
{
    struct vectors vectors = {0};
    struct quire_error err = {0};
    int rc = vecfile_vectors_load(path, format, &vectors, &err);
    require(rc == 0 || (rc < 0 && err.message[0] != 0));
    if (rc == 0)
        vecfile_vectors_free(&vectors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size == 0 || size > 1 << 20)
        return 0;
    enum vecfile_format format = (enum vecfile_format)(VECFILE_FBIN + data[0] % (VECFILE_BF16BIN - VECFILE_FBIN + 1));
    int fd = memfd_create("vectors", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_forward(path, format);
    read_whole(path, format);
    close(fd);
    return 0;
}
