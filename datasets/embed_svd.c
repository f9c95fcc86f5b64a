/*
 * embed_svd.c - leading right singular vectors of a large sparse matrix.
 *
 * Halko, Martinsson and Tropp, "Finding structure with randomness", SIAM Review 53 (2011): the range finder of
 * algorithm 4.4 (subspace iteration) and the factorisation of algorithm 5.1, for A of n rows and f columns, f and n in
 * the hundreds of thousands, width l = dim + oversampling:
 *
 *     Y = A Omega (f x l, seeded noise);  Q = orth(Y)
 *     POWER_PASSES times:  Z = A' Q;  Y = A Z;  Q = orth(Y)
 *     Z = A' Q;  Z' Z = W diag(s^2) W'  (l x l);  V = Z W diag(1/s)
 *
 * The spectrum of text falls slowly, so the passes matter: without them the small vectors are a mixture. The basis is
 * made orthonormal once a pass and not at each half, as 4.4 has it: between two reductions the condition grows to
 * (s1/sl)^2, some thousands here, which single precision bears. The small problem is solved as the eigenvalues of Z'Z
 * and not as an SVD of Z: half of the digits of the small singular values are lost, and s above RANK_NOISE * s1 is what
 * is asked for.
 *
 * Noise is uniform in [-1, 1), not normal: the range finder needs only independent directions of equal length, and each
 * number comes from its own place by splitmix64, so that threads fill any part of Omega alike.
 *
 * Memory: two dense matrices, n x l and f x l, and a transposed copy of A. Rejected: Lanczos (one vector at a time
 * moves the sparse matrix from memory 300 times instead of 9), and A'A in full (f x f).
 */
#include "datasets/blas.h"
#include "datasets/embed_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/random.h"
#include <math.h>
#include <stdlib.h>

enum { OVERSAMPLING = 16, POWER_PASSES = 3 };
/* Squared singular values below this share of the largest are rounding of the sums in single precision. */
static const float RANK_NOISE = 1e-5f;

struct work {
    const struct sparse *a;
    struct sparse transposed;
    struct blas blas;
    float *over_rows;    /* n x width */
    float *over_columns; /* f x width */
    float *gram;         /* width x width */
    float *squares;      /* width: squared singular values, ascending */
    uint32_t width;
    unsigned threads;
    struct progress progress;
    uint64_t done, total; /* hundredths of a product, and steps of an orthonormalisation; what the bar shows */
};

#define PRODUCT_PARTS 100u /* of a product in the bar */

struct noise {
    float *out;
    uint64_t seed;
};

static int fill_noise(void *context, uint64_t begin, uint64_t end)
{
    const struct noise *noise = context;
    for (uint64_t i = begin; i < end; i++) {
        struct random random;
        random_init(&random, noise->seed + i * 0x9e3779b97f4a7c15ull);
        noise->out[i] = (float)(random_next(&random) >> 40) * 0x1p-23f - 1.0f;
    }
    return 0;
}

/* Progress within a product as part of the whole. */
static int report_product(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct work *w = context;
    if (!w->progress.report)
        return 0;
    return w->progress.report(w->progress.context, phase, w->done + done * PRODUCT_PARTS / total, w->total);
}

/* over_rows = A over_columns, or the other way with `back`. */
static int product(struct work *w, bool back)
{
    struct progress progress = {report_product, w, w->progress.phase};
    int rc = back
                 ? embed_sparse_multiply(&w->transposed, w->over_rows, w->over_columns, w->width, w->threads, &progress)
                 : embed_sparse_multiply(w->a, w->over_columns, w->over_rows, w->width, w->threads, &progress);
    w->done += PRODUCT_PARTS;
    return rc;
}

static int orthonormalise(struct work *w, struct quire_error *err)
{
    int rc = blas_orthonormalise(&w->blas, w->over_rows, (int)w->a->rows, (int)w->width, &w->progress, w->done,
                                 w->total, err);
    w->done += blas_orthonormalise_steps((int)w->width);
    return rc;
}

/* over_rows: an orthonormal basis of (nearly) the range of A's leading left singular vectors. */
static int find_range(struct work *w, uint64_t seed, struct quire_error *err)
{
    uint64_t n = (uint64_t)w->a->columns * w->width;
    struct noise noise = {.out = w->over_columns, .seed = ~seed};
    int rc = parallel_for(w->threads, n, 65536, fill_noise, &noise, NULL);
    for (int pass = 0; rc == 0 && pass <= POWER_PASSES; pass++) {
        if (pass > 0)
            rc = product(w, true);
        if (rc == 0)
            rc = product(w, false);
        if (rc == 0)
            rc = orthonormalise(w, err);
    }
    return rc;
}

static int check_rank(const struct work *w, uint32_t dim, struct quire_error *err)
{
    uint32_t rank = 0;
    float largest = w->squares[w->width - 1];
    for (uint32_t i = 0; i < w->width; i++)
        rank += w->squares[i] > largest * RANK_NOISE && w->squares[i] > 0;
    if (dim > rank)
        return error_set(err, QUIRE_EDIM,
                         "%u dimensions were asked for and this text has %u independent directions; give --dim %u or "
                         "less, or more text",
                         dim, rank, rank);
    return 0;
}

/* V = Z W diag(1/s), largest s first. Row i of gram is the eigenvector of squares[i]. */
static int form_basis(struct work *w, uint32_t dim, float **basis, struct quire_error *err)
{
    float *rotation = malloc(memory_size_mul((size_t)w->width * dim, sizeof *rotation));
    float *out = malloc(memory_size_mul((size_t)w->a->columns, memory_size_mul(dim, sizeof *out)));
    if (!rotation || !out) {
        free(rotation);
        free(out);
        return error_set(err, QUIRE_ENOMEM, "no memory for a projection of %u x %u", w->a->columns, dim);
    }
    for (uint32_t d = 0; d < dim; d++) {
        uint32_t from = w->width - 1 - d;
        float scale = 1.0f / sqrtf(w->squares[from]);
        for (uint32_t i = 0; i < w->width; i++)
            rotation[(size_t)i * dim + d] = w->gram[(size_t)from * w->width + i] * scale;
    }
    blas_multiply(&w->blas, w->over_columns, rotation, out, (int)w->a->columns, (int)w->width, (int)dim);
    free(rotation);
    *basis = out;
    return 0;
}

static int work_init(struct work *w, struct quire_error *err)
{
    w->over_rows = memory_aligned(64, memory_size_mul(w->a->rows, memory_size_mul(w->width, sizeof(float))));
    w->over_columns = memory_aligned(64, memory_size_mul(w->a->columns, memory_size_mul(w->width, sizeof(float))));
    w->gram = malloc(memory_size_mul((size_t)w->width * w->width, sizeof(float)));
    w->squares = malloc(memory_size_mul(w->width, sizeof(float)));
    if (!w->over_rows || !w->over_columns || !w->gram || !w->squares)
        return error_set(err, QUIRE_ENOMEM, "no memory for the decomposition of %u x %u at width %u", w->a->rows,
                         w->a->columns, w->width);
    int rc = embed_sparse_transpose(w->a, &w->transposed, err);
    return rc == 0 ? blas_open(&w->blas, err) : rc;
}

static void work_fini(struct work *w)
{
    memory_free(w->over_rows);
    memory_free(w->over_columns);
    free(w->gram);
    free(w->squares);
    embed_sparse_fini(&w->transposed);
    blas_close(&w->blas);
}

int embed_svd_right(const struct sparse *a, uint32_t dim, uint64_t seed, unsigned threads,
                    const struct progress *progress, float **basis, struct quire_error *err)
{
    uint32_t smaller = a->rows < a->columns ? a->rows : a->columns;
    if (dim > smaller)
        return error_set(err, QUIRE_EDIM,
                         "%u dimensions were asked for and this text has at most %u independent directions (%u texts "
                         "that share words, %u features); give a smaller --dim or more text",
                         dim, smaller, a->rows, a->columns);
    struct work w = {.a = a, .threads = threads};
    w.width = smaller - dim < OVERSAMPLING ? smaller : dim + OVERSAMPLING;
    if (progress)
        w.progress = *progress;
    w.total = (2 * POWER_PASSES + 2) * PRODUCT_PARTS + (POWER_PASSES + 1) * blas_orthonormalise_steps((int)w.width);
    int rc = work_init(&w, err);
    if (rc == 0)
        rc = find_range(&w, seed, err);
    if (rc == 0)
        rc = product(&w, true);
    if (rc == 0) {
        blas_gram(&w.blas, w.over_columns, w.gram, (int)a->columns, (int)w.width);
        rc = blas_eigen_symmetric(&w.blas, w.gram, (int)w.width, w.squares, err);
    }
    if (rc == 0)
        rc = check_rank(&w, dim, err);
    if (rc == 0)
        rc = form_basis(&w, dim, basis, err);
    if (rc == QUIRE_ECANCELLED)
        error_set(err, rc, "the fit was cancelled");
    work_fini(&w);
    return rc;
}
