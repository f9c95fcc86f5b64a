/*
 * fuzz_records.c - any bytes as a file of others: JSON Lines, Parquet, an index of faiss or of hnswlib.
 *
 * The first byte chooses the format, the rest is the file. It is read to its end or refused with a sentence; vectors
 * are
 * finite, keys have 1 to 65,535 bytes, and there are never more rows than the file said. Memory files: nothing is left
 * on disk.
 */
#include "tools/records/records.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS_AT_ONCE = 3 };

static void require(bool right)
{
    if (!right)
        abort();
}

static void check_rows(const struct records_source *source, const float *vectors, const struct record *records,
                       int64_t n)
{
    for (int64_t i = 0; i < n * source->dim; i++)
        require(isfinite(vectors[i]));
    for (int64_t i = 0; i < n; i++)
        require(!records[i].key || (records[i].key_bytes >= 1 && records[i].key_bytes <= QUIRE_KEY_BYTES_MAX));
}

static void read_all(const char *path, enum records_format format)
{
    struct records_from from = {.path = path, .format = format};
    struct records_source *source = NULL;
    struct record records[ROWS_AT_ONCE];
    struct quire_error err = {0};
    int rc = records_open(&from, &source, &err);
    require(rc == 0 || (rc < 0 && err.message[0] != 0));
    if (rc < 0)
        return;
    require(source->dim >= 1 && source->dim <= QUIRE_DIM_MAX && source->type == QUIRE_TYPE_F32);
    float *vectors = malloc(ROWS_AT_ONCE * source->dim * sizeof *vectors);
    uint64_t found = 0;
    int64_t n;
    require(vectors != NULL);
    do {
        memset(records, 0, sizeof records);
        n = records_read(source, vectors, records, ROWS_AT_ONCE, &err);
        require(n <= ROWS_AT_ONCE && (n >= 0 || err.message[0] != 0));
        check_rows(source, vectors, records, n);
        found += n > 0 ? (uint64_t)n : 0;
    } while (n > 0);
    require(found <= source->rows);
    free(vectors);
    records_close(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum records_format formats[] = {RECORDS_JSONL, RECORDS_PARQUET, RECORDS_FAISS, RECORDS_HNSWLIB};
    char path[64];
    if (size == 0 || size > 1 << 20)
        return 0;
    int fd = memfd_create("fuzz", 0);
    require(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_all(path, formats[data[0] % 4]);
    close(fd);
    return 0;
}
