/*
 * embed_sparse.c - sparse rows times a dense matrix, in parallel.
 *
 * Compressed rows: the entries of row i are start[i] .. start[i + 1]. The product is a loop over rows, each the
 * weighted sum of some rows of the dense matrix: a row of 272 floats lies in the first-level cache while it is summed,
 * every fetch is a kilobyte in a row, and threads take disjoint rows, so that the result does not depend on how many
 * there are. The transposed product is the same loop over a transposed copy. Summing it in place from the original
 * would save that copy (8 bytes for each entry) and cost scattered writes that two threads cannot share.
 */
#include "datasets/embed_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdlib.h>
#include <string.h>

enum { ROWS_PER_CHUNK = 512 };

int embed_sparse_transpose(const struct sparse *a, struct sparse *out, struct quire_error *err)
{
    uint64_t n = a->start[a->rows];
    struct sparse t = {.rows = a->columns, .columns = a->rows};
    t.start = calloc((size_t)t.rows + 2, sizeof *t.start);
    t.column = malloc(memory_size_mul(n + 1, sizeof *t.column));
    t.value = malloc(memory_size_mul(n + 1, sizeof *t.value));
    if (!t.start || !t.column || !t.value) {
        embed_sparse_fini(&t);
        return error_set(err, QUIRE_ENOMEM, "no memory to transpose a matrix of %llu entries", (unsigned long long)n);
    }
    /* start[j + 1] is the next free place of row j while rows fill, and its end when they are full. */
    for (uint64_t i = 0; i < n; i++)
        t.start[a->column[i] + 2]++;
    for (uint32_t j = 0; j < t.rows; j++)
        t.start[j + 1] += t.start[j];
    for (uint32_t row = 0; row < a->rows; row++)
        for (uint64_t i = a->start[row]; i < a->start[row + 1]; i++) {
            uint64_t place = t.start[a->column[i] + 1]++;
            t.column[place] = row;
            t.value[place] = a->value[i];
        }
    *out = t;
    return 0;
}

struct product {
    const struct sparse *a;
    const float *x;
    float *y;
    uint32_t width;
};

static void add_scaled(float *restrict y, const float *restrict x, float factor, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        y[i] += factor * x[i];
}

static int multiply_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct product *p = context;
    for (uint64_t row = begin; row < end; row++) {
        float *y = p->y + row * p->width;
        memset(y, 0, p->width * sizeof *y);
        for (uint64_t i = p->a->start[row]; i < p->a->start[row + 1]; i++)
            add_scaled(y, p->x + (size_t)p->a->column[i] * p->width, p->a->value[i], p->width);
    }
    return 0;
}

int embed_sparse_multiply(const struct sparse *a, const float *x, float *y, uint32_t width, unsigned threads,
                          const struct progress *progress)
{
    struct product product = {.a = a, .x = x, .y = y, .width = width};
    return parallel_for(threads, a->rows, ROWS_PER_CHUNK, multiply_rows, &product, progress);
}

void embed_sparse_fini(struct sparse *a)
{
    free(a->start);
    free(a->column);
    free(a->value);
    *a = (struct sparse){0};
}
