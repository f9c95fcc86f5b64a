/*
 * row_store.h - the working rows of a build (rows.h) and the input rows they came from, in memory or in a file.
 *
 * In a file each row is a record of code, f, squared length, sum of levels and number of the input row, in this
 * machine's byte order: work files do not outlive the build, and a build that is resumed is resumed on its machine.
 */
#ifndef QUIRE_INDEX_ROW_STORE_H
#define QUIRE_INDEX_ROW_STORE_H

#include "index/vector/rows.h"
#include "io/fs.h"

struct row_store {
    uint32_t n, code_dim;
    struct rows rows;     /* all of them; codes NULL: in the file only; owned */
    struct io_file *file; /* NULL: in memory only; owned */
    uint8_t *buffer;      /* of transfers, when there is a file; owned */
    struct quire_error *err;
};

#define ROW_STORE_BUFFER_BYTES (1u << 20)

static inline size_t row_record_bytes(uint32_t code_dim)
{
    return code_dim + 16;
}

/* A store of n rows. path NULL: in memory. Otherwise in a file, which is made, or with `keep` opened as it lies there
 * (it must have all rows then). err: where later calls say what was wrong, too. */
int row_store_open(struct row_store *store, uint32_t n, uint32_t code_dim, struct io_fs *fs, const char *path,
                   bool keep, struct quire_error *err);
void row_store_close(struct row_store *store); /* zeroed is fine; the file stays */

/* Rows first .. first + from->n into the file; inputs[i] is the input row of row first + i. One thread at a time. */
int row_store_write(struct row_store *store, uint32_t first, const struct rows *from, const uint32_t *inputs);
/* Rows first .. first + n of the file into `to` from place `at` on; inputs may be NULL. One thread at a time. */
int row_store_read(struct row_store *store, uint32_t first, uint32_t n, struct rows *to, uint32_t at, uint32_t *inputs);
/* Rows first .. first + n: where they lie in memory, or read into `window`, which holds so many. */
int row_store_view(struct row_store *store, uint32_t first, uint32_t n, struct rows *window, struct rows *view);

/* What was written is durable on return. */
int row_store_sync(struct row_store *store);

#endif
