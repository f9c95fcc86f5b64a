/*
 * row_store.c - records of rows in a file: large sequential transfers through one buffer.
 *
 * Reads and writes go through io/fs.h, so that a test can fail any of them; the file is not mapped, because mapped
 * pages count as resident memory, and a build under a budget has to know what it holds. A row is kept as the exact
 * bytes that it has in memory: what is computed from a row is the same wherever the row was in between.
 */
#include "index/vector/row_store.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int row_store_open(struct row_store *store, uint32_t n, uint32_t code_dim, struct io_fs *fs, const char *path,
                   bool keep, struct quire_error *err)
{
    assert(n > 0 && code_dim % 32 == 0);
    memset(store, 0, sizeof *store);
    store->n = n;
    store->code_dim = code_dim;
    store->err = err;
    if (!path)
        return rows_alloc(&store->rows, n, code_dim);
    store->buffer = malloc(ROW_STORE_BUFFER_BYTES);
    int rc = store->buffer ? 0 : QUIRE_ENOMEM;
    if (rc == 0)
        rc = fs_open(fs, path, keep ? FS_WRITE : FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &store->file, err);
    if (rc == 0 && keep && store->file->bytes != (uint64_t)n * row_record_bytes(code_dim))
        rc = error_set(err, QUIRE_ECORRUPT, "%s has %llu bytes, expected %llu: remove the folder and build anew", path,
                       (unsigned long long)store->file->bytes, (unsigned long long)n * row_record_bytes(code_dim));
    if (rc < 0)
        row_store_close(store);
    return rc;
}

void row_store_close(struct row_store *store)
{
    rows_free(&store->rows);
    fs_close(store->file);
    free(store->buffer);
    memset(store, 0, sizeof *store);
}

static uint32_t rows_per_transfer(const struct row_store *store)
{
    return (uint32_t)(ROW_STORE_BUFFER_BYTES / row_record_bytes(store->code_dim));
}

int row_store_write(struct row_store *store, uint32_t first, const struct rows *from, const uint32_t *inputs)
{
    size_t bytes = row_record_bytes(store->code_dim), dim = store->code_dim;
    uint32_t most = rows_per_transfer(store);
    int rc = 0;
    assert(store->file && first + (uint64_t)from->n <= store->n && from->code_dim == store->code_dim);
    for (uint32_t done = 0; rc == 0 && done < from->n;) {
        uint32_t n = from->n - done < most ? from->n - done : most;
        for (uint32_t i = 0, row = done; i < n; i++, row++) {
            uint8_t *record = store->buffer + i * bytes;
            memcpy(record, from->codes + row * dim, dim);
            memcpy(record + dim, &from->f[row], 4);
            memcpy(record + dim + 4, &from->norm2[row], 4);
            memcpy(record + dim + 8, &from->level_sum[row], 4);
            memcpy(record + dim + 12, &inputs[row], 4);
        }
        rc = fs_write_exact(store->file, store->buffer, n * bytes, (first + (uint64_t)done) * bytes, store->err);
        done += n;
    }
    return rc;
}

int row_store_read(struct row_store *store, uint32_t first, uint32_t n, struct rows *to, uint32_t at, uint32_t *inputs)
{
    size_t bytes = row_record_bytes(store->code_dim), dim = store->code_dim;
    uint32_t most = rows_per_transfer(store);
    assert(store->file && first + (uint64_t)n <= store->n && at + (uint64_t)n <= to->n);
    for (uint32_t done = 0; done < n;) {
        uint32_t now = n - done < most ? n - done : most;
        int rc = fs_read_exact(store->file, store->buffer, now * bytes, (first + (uint64_t)done) * bytes, store->err);
        if (rc < 0)
            return rc;
        for (uint32_t i = 0, row = at + done; i < now; i++, row++) {
            const uint8_t *record = store->buffer + i * bytes;
            memcpy(to->codes + row * dim, record, dim);
            memcpy(&to->f[row], record + dim, 4);
            memcpy(&to->norm2[row], record + dim + 4, 4);
            memcpy(&to->level_sum[row], record + dim + 8, 4);
            if (inputs)
                memcpy(&inputs[done + i], record + dim + 12, 4);
        }
        done += now;
    }
    return 0;
}

int row_store_view(struct row_store *store, uint32_t first, uint32_t n, struct rows *window, struct rows *view)
{
    if (store->rows.codes) {
        *view = rows_part(&store->rows, first, n);
        return 0;
    }
    *view = rows_part(window, 0, n);
    return row_store_read(store, first, n, window, 0, NULL);
}

int row_store_sync(struct row_store *store)
{
    assert(store->file);
    return fs_sync(store->file, store->err);
}
