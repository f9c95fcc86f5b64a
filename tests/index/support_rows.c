/*
 * support_rows.c - what build_rows.c does to each row, without its file system and threads.
 *
 * Vectors are taken as they are: neither centred nor rotated, because the steps under test (partition, neighbours)
 * only see codes.
 */
#include "tests/index/support_rows.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct rows support_rows(const float *vectors, uint32_t n, uint32_t dim)
{
    struct rows rows = {n,
                        dim,
                        malloc((size_t)n * dim),
                        malloc(sizeof(float) * n),
                        malloc(sizeof(float) * n),
                        malloc(sizeof(int32_t) * n)};
    assert_true(rows.codes && rows.f && rows.norm2 && rows.level_sum);
    for (uint32_t i = 0; i < n; i++) {
        const float *x = vectors + (size_t)i * dim;
        uint8_t *code = rows.codes + (size_t)i * dim;
        double norm2 = 0;
        int32_t sum = 0;
        rows.f[i] = code_encode(x, dim, 8, code, NULL, NULL);
        for (uint32_t d = 0; d < dim; d++) {
            norm2 += (double)x[d] * x[d];
            sum += code[d];
        }
        rows.norm2[i] = (float)norm2;
        rows.level_sum[i] = sum;
    }
    return rows;
}

void support_rows_free(struct rows *rows)
{
    free(rows->codes);
    free(rows->f);
    free(rows->norm2);
    free(rows->level_sum);
}
