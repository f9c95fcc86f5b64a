/*
 * centre.c - the mean of near rows without those far out.
 *
 * What is coded or looked for relative to a centre suffers from a row far out that pulls it away from all others. So
 * the mean is taken, rows four times as far from it as the median row are left out of the next one, and so on for a few
 * rounds; for the spread such a row counts as one at that limit.
 */
#include "index/cluster/centre.h"
#include "index/kernels/kernels.h"
#include "index/vector/near.h"
#include "io/array.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CENTRE_ROUNDS 3     /* of leaving out rows far out */
#define FAR2          16.0f /* they are four times as far from the centre as the median row */

int centre_scratch_init(struct centre_scratch *s, size_t most, uint32_t dim)
{
    *s = (struct centre_scratch){malloc(sizeof(float) * most * dim), malloc(sizeof(float) * most),
                                 malloc(sizeof(float) * most)};
    if (s->rows && s->distances && s->sorted)
        return 0;
    centre_scratch_fini(s);
    return QUIRE_ENOMEM;
}

void centre_scratch_fini(struct centre_scratch *s)
{
    array_free_all(s->rows, s->distances, s->sorted);
}

void centre_take(struct centre_scratch *s, const struct rows *rows, uint32_t first, uint32_t n)
{
    uint32_t dim = rows->code_dim;
    for (uint32_t r = 0; r < n; r++)
        code_decode(rows->codes + (size_t)(first + r) * dim, dim, 8, rows->f[first + r], s->rows + (size_t)r * dim);
}

/* Measures the distances of all rows from the centre; returns that beyond which a row is far out. */
static float measure(struct centre_scratch *s, uint32_t n, uint32_t dim, const float *centre)
{
    for (uint32_t r = 0; r < n; r++)
        s->sorted[r] = s->distances[r] = kernels()->f32_l2(centre, s->rows + (size_t)r * dim, dim);
    return FAR2 * near_limit_of(s->sorted, n, (n + 1) / 2).value;
}

void centre_find(struct centre_scratch *s, uint32_t n, uint32_t dim, float *centre)
{
    float limit = INFINITY;
    bool any_far = true;
    assert(n > 0);
    memset(s->distances, 0, sizeof(float) * n);
    for (int round = 0; round < CENTRE_ROUNDS && any_far; round++) {
        uint32_t counted = 0; /* rows within the limit, whose mean is taken */
        memset(centre, 0, sizeof(float) * dim);
        for (uint32_t r = 0; r < n; r++) {
            if (s->distances[r] > limit)
                continue;
            counted++;
            for (uint32_t d = 0; d < dim; d++)
                centre[d] += s->rows[(size_t)r * dim + d];
        }
        assert(counted > 0); /* half of the rows are within the median distance */
        for (uint32_t d = 0; d < dim; d++)
            centre[d] /= (float)counted;
        limit = measure(s, n, dim, centre);
        any_far = false;
        for (uint32_t r = 0; r < n; r++)
            any_far |= s->distances[r] > limit;
    }
}

float centre_rms(struct centre_scratch *s, uint32_t n, uint32_t dim, const float *centre)
{
    float limit = measure(s, n, dim, centre);
    double sum = 0;
    for (uint32_t r = 0; r < n; r++)
        sum += limit > 0 ? fminf(s->distances[r], limit) : s->distances[r]; /* 0: most rows are the centre */
    return (float)sqrt(sum / n);
}
