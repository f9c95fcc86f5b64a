/*
 * kernels_batch.h - how a batch of scattered codes is walked: four rows at a time, asking for later rows ahead.
 *
 * Codes come from tables far larger than the caches, at random rows. Each group of four prefetches the group that
 * starts PREFETCH_ROWS later, all lines of a code up to PREFETCH_LINES; the hardware follows a longer run by itself.
 *
 * Included by kernels_<isa>.c only.
 */
#ifndef QUIRE_INDEX_KERNELS_BATCH_H
#define QUIRE_INDEX_KERNELS_BATCH_H

#include "index/kernels/kernels_inline.h"

#define PREFETCH_ROWS  24
#define PREFETCH_LINES 8

struct batch {
    const uint8_t *codes;
    size_t stride;
    const uint32_t *rows;
    size_t n;
    size_t bytes;   /* of one code that count here */
    size_t lines;   /* cache lines to prefetch from its first byte on */
    bool straddles; /* codes may begin inside a line, so the last byte can lie in one more */
};

KERNEL_INLINE struct batch batch_of(const uint8_t *codes, size_t stride, const uint32_t *rows, size_t n, size_t bytes)
{
    size_t lines = (bytes + 63) / 64;
    struct batch batch = {.codes = codes, .stride = stride, .rows = rows, .n = n, .bytes = bytes};
    batch.lines = lines < PREFETCH_LINES ? lines : PREFETCH_LINES;
    batch.straddles = (((uintptr_t)codes | stride) & 63) != 0;
    return batch;
}

KERNEL_INLINE void batch_prefetch(const struct batch *batch, size_t i)
{
    if (i >= batch->n)
        return;
    const uint8_t *code = batch->codes + batch->rows[i] * batch->stride;
    for (size_t line = 0; line < batch->lines; line++)
        __builtin_prefetch(code + line * 64);
    if (batch->straddles)
        __builtin_prefetch(code + (batch->bytes - 1));
}

/* To be called once, before the first batch_rows. */
KERNEL_INLINE void batch_start(const struct batch *batch)
{
    for (size_t i = 0; i < PREFETCH_ROWS; i++)
        batch_prefetch(batch, i);
}

/* Rows i .. i + 3, the last one again where the batch ends before; returns how many there are. */
KERNEL_INLINE size_t batch_rows(const struct batch *batch, size_t i, const uint8_t *row[4])
{
    size_t left = batch->n - i < 4 ? batch->n - i : 4;
    for (size_t r = 0; r < 4; r++) {
        row[r] = batch->codes + batch->rows[r < left ? i + r : i + left - 1] * batch->stride;
        batch_prefetch(batch, i + r + PREFETCH_ROWS);
    }
    return left;
}

#endif
