/*
 * rotation.c - random signs and Hadamard transforms in place of a dense random rotation.
 *
 * A dense orthogonal matrix costs dim^2 per vector; four rounds of (random signs, Walsh-Hadamard) cost dim log dim and
 * mix as well as one needs for scalar codes: every coordinate of the result is a sum of all inputs with random signs,
 * so that no coordinate carries much more than its share of the length (Ailon and Chazelle 2009; Gao and Long 2024,
 * RaBitQ, use the same trick).
 *
 * The transform needs a power of two. Where the padded dimension is none, a round transforms a window of the largest
 * power of two below it: the first `window` coordinates in even rounds, the last `window` in odd ones. The windows
 * overlap by more than half of the dimension, so four rounds carry every coordinate into every other. Padding to the
 * next power of two instead would cost up to twice the bytes per code.
 *
 * Invariants: the signs are a function of (code_dim, seed); the map is orthogonal, so norms and inner products stay.
 */
#include "index/vector/rotation.h"
#include "index/kernels/kernels.h"
#include "io/random.h"
#include <assert.h>
#include <stdlib.h>

int rotation_init(struct rotation *rotation, uint32_t code_dim, uint64_t seed)
{
    assert(code_dim > 0);
    uint8_t *signs = malloc((size_t)code_dim * ROTATION_ROUNDS);
    if (!signs)
        return QUIRE_ENOMEM;
    struct random random;
    random_init(&random, seed ^ 0x726f746174696f6eull);
    for (size_t i = 0; i < (size_t)code_dim * ROTATION_ROUNDS; i++)
        signs[i] = (uint8_t)(random_next(&random) >> 63);
    uint32_t window = 1;
    while (window * 2 <= code_dim)
        window *= 2;
    assert(window <= code_dim && 2 * window > code_dim); /* two windows, from either end, meet all dimensions */
    rotation->dim = code_dim;
    rotation->window = window;
    rotation->signs = signs;
    return 0;
}

void rotation_fini(struct rotation *rotation)
{
    free(rotation->signs);
    rotation->signs = NULL;
}

static void flip(const uint8_t *signs, float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = signs[i] ? -x[i] : x[i];
}

static uint32_t window_start(const struct rotation *rotation, int round)
{
    return round % 2 ? rotation->dim - rotation->window : 0;
}

void rotation_apply(const struct rotation *rotation, float *x)
{
    const struct kernels *k = kernels();
    for (int round = 0; round < ROTATION_ROUNDS; round++) {
        flip(rotation->signs + (size_t)round * rotation->dim, x, rotation->dim);
        k->hadamard(x + window_start(rotation, round), rotation->window);
    }
}

void rotation_invert(const struct rotation *rotation, float *x)
{
    const struct kernels *k = kernels();
    for (int round = ROTATION_ROUNDS - 1; round >= 0; round--) {
        k->hadamard(x + window_start(rotation, round), rotation->window);
        flip(rotation->signs + (size_t)round * rotation->dim, x, rotation->dim);
    }
}
