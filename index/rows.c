/*
 * rows.c - distances between two 8-bit codes.
 *
 * With a = f_a (u_a - 127.5) and b = f_b (u_b - 127.5): |a - b|^2 = |a|^2 + |b|^2 - 2 f_a f_b <u_a - 127.5, u_b -
 * 127.5>. The kernel multiplies unsigned codes with a signed query, so the query's levels are i = u_a - 128, and <i +
 * 0.5, u_b - 127.5> = <i, u_b> - 127.5 sum(i) + 0.5 sum(u_b) - 63.75 dim. |a|^2 is the true squared length, f is |a|^2
 * / <a, y>: the estimate is unbiased (codes.h).
 */
#include "index/rows.h"
#include "index/kernels/kernels.h"

void row_query_set(struct row_query *query, const struct rows *rows, uint32_t row, int8_t *levels)
{
    const uint8_t *code = rows->codes + (size_t)row * rows->code_dim;
    for (uint32_t i = 0; i < rows->code_dim; i++)
        levels[i] = (int8_t)(code[i] ^ 0x80);
    query->rows = rows;
    query->levels = levels;
    query->row = row;
    query->sum = rows->level_sum[row] - 128 * (int32_t)rows->code_dim;
}

void row_query_distances(const struct row_query *query, const uint32_t *ids, uint32_t n, int32_t *dots, float *out)
{
    const struct rows *rows = query->rows;
    kernels()->code_dot[3](query->levels, rows->codes, rows->code_dim, ids, n, rows->code_dim, dots);
    float fa = rows->f[query->row], na = rows->norm2[query->row];
    float constant = -127.5f * (float)query->sum - 63.75f * (float)rows->code_dim;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = ids[i];
        float dot = (float)dots[i] + constant + 0.5f * (float)rows->level_sum[b];
        float d = na + rows->norm2[b] - 2 * fa * rows->f[b] * dot;
        out[i] = d > 0 ? d : 0;
    }
}
