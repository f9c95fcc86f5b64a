/*
 * rows.c - distances between two 8-bit codes.
 *
 * With a = f_a (u_a - 127.5) and b = f_b (u_b - 127.5): |a - b|^2 = |a|^2 + |b|^2 - 2 f_a f_b <u_a - 127.5, u_b -
 * 127.5>. The kernel multiplies unsigned codes with a signed query, so the query's levels are i = u_a - 128, and <i +
 * 0.5, u_b - 127.5> = <i, u_b> - 127.5 sum(i) + 0.5 sum(u_b) - 63.75 dim. |a|^2 is the true squared length, f is |a|^2
 * / <a, y>: the estimate is unbiased (codes.h).
 */
#include "index/vector/rows.h"
#include "index/kernels/kernels.h"
#include "io/bitmap.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int rows_alloc(struct rows *rows, uint32_t n, uint32_t code_dim)
{
    assert(code_dim % 32 == 0);
    uint8_t *base = malloc(memory_size_mul(n ? n : 1, rows_bytes(code_dim)));
    if (!base)
        return QUIRE_ENOMEM;
    float *numbers = (float *)(void *)(base + (size_t)n * code_dim); /* code_dim is a multiple of 32 */
    *rows = (struct rows){n, code_dim, base, numbers, numbers + n, (int32_t *)(void *)(numbers + 2 * (size_t)n)};
    return 0;
}

void rows_free(struct rows *rows)
{
    free(rows->codes);
    memset(rows, 0, sizeof *rows);
}

void rows_copy(const struct rows *from, uint32_t row, struct rows *to, uint32_t at)
{
    assert(row < from->n && at < to->n && from->code_dim == to->code_dim);
    memcpy(to->codes + (size_t)at * to->code_dim, from->codes + (size_t)row * from->code_dim, from->code_dim);
    to->f[at] = from->f[row];
    to->norm2[at] = from->norm2[row];
    to->level_sum[at] = from->level_sum[row];
}

void rows_encode(struct rows *rows, uint32_t at, const float *row)
{
    uint8_t *code = rows->codes + (size_t)at * rows->code_dim;
    double norm2 = 0;
    int32_t sum = 0;
    assert(at < rows->n);
    rows->f[at] = code_encode(row, rows->code_dim, 8, code, NULL, NULL);
    for (uint32_t i = 0; i < rows->code_dim; i++) {
        norm2 += (double)row[i] * row[i];
        sum += code[i];
    }
    rows->norm2[at] = (float)norm2;
    rows->level_sum[at] = sum;
}

int rows_permute(struct rows *rows, const uint32_t *order)
{
    struct rows held;
    uint8_t *done = calloc((size_t)rows->n / 8 + 1, 1);
    int rc = done ? rows_alloc(&held, 1, rows->code_dim) : QUIRE_ENOMEM;
    for (uint32_t start = 0; rc == 0 && start < rows->n; start++) {
        if (bitmap_has(done, start))
            continue;
        rows_copy(rows, start, &held, 0);
        for (uint32_t at = start;;) {
            uint32_t from = order[at];
            assert(from < rows->n && !bitmap_has(done, at)); /* order is a permutation */
            bitmap_add(done, at);
            if (from == start) {
                rows_copy(&held, 0, rows, at);
                break;
            }
            rows_copy(rows, from, rows, at);
            at = from;
        }
    }
    if (rc == 0)
        rows_free(&held);
    free(done);
    return rc;
}

void row_query_set(struct row_query *query, const struct rows *rows, uint32_t row, int8_t *levels)
{
    const uint8_t *code = rows->codes + (size_t)row * rows->code_dim;
    assert(row < rows->n);
    for (uint32_t i = 0; i < rows->code_dim; i++)
        levels[i] = (int8_t)(code[i] ^ 0x80);
    query->rows = rows;
    query->levels = levels;
    query->row = row;
    query->sum = rows->level_sum[row] - 128 * (int32_t)rows->code_dim;
}

/* What does not depend on the other row: <i + 0.5, u_b - 127.5> = dot + this + 0.5 sum(u_b). */
static float constant_part(const struct row_query *query)
{
    return -127.5f * (float)query->sum - 63.75f * (float)query->rows->code_dim;
}

void row_query_finish_among(const struct row_query *query, const struct rows *to, const uint32_t *ids, uint32_t n,
                            const int32_t *dots, float *out)
{
    float fa = query->rows->f[query->row], na = query->rows->norm2[query->row], constant = constant_part(query);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = ids[i];
        float dot = (float)dots[i] + constant + 0.5f * (float)to->level_sum[b];
        float d = na + to->norm2[b] - 2 * fa * to->f[b] * dot;
        out[i] = d > 0 ? d : 0;
    }
}

void row_query_among(const struct row_query *query, const struct rows *to, const uint32_t *ids, uint32_t n,
                     int32_t *dots, float *out)
{
    kernels()->code_dot[3](query->levels, to->codes, to->code_dim, ids, n, to->code_dim, dots);
    row_query_finish_among(query, to, ids, n, dots, out);
}

void row_query_distances(const struct row_query *query, const uint32_t *ids, uint32_t n, int32_t *dots, float *out)
{
    row_query_among(query, query->rows, ids, n, dots, out);
}

void row_query_finish(const struct row_query *query, const struct rows *to, const int32_t *dots, float *out)
{
    const float *restrict f = to->f, *restrict norm2 = to->norm2;
    const int32_t *restrict level_sum = to->level_sum;
    float fa = query->rows->f[query->row], na = query->rows->norm2[query->row], constant = constant_part(query);
    for (uint32_t i = 0; i < to->n; i++) {
        float dot = (float)dots[i] + constant + 0.5f * (float)level_sum[i];
        float d = na + norm2[i] - 2 * fa * f[i] * dot;
        out[i] = d > 0 ? d : 0;
    }
}

void row_query_range(const struct row_query *query, const struct rows *to, const uint32_t *iota, int32_t *dots,
                     float *out)
{
    kernels()->code_dot[3](query->levels, to->codes, to->code_dim, iota, to->n, to->code_dim, dots);
    row_query_finish(query, to, dots, out);
}
