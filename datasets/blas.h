/*
 * blas.h - the few dense operations of the embedder's fit, done by OpenBLAS, which is loaded when first needed.
 *
 * All matrices are f32 and row-major. A `struct blas` belongs to the caller, from blas_open to blas_close, and may be
 * used by one thread at a time. Results are a function of the input and of the processor: OpenBLAS runs on one thread.
 */
#ifndef QUIRE_DATASETS_BLAS_H
#define QUIRE_DATASETS_BLAS_H

#include "index/vector/parallel.h"

struct blas {
    void *library;
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);
    void (*sgelqf)(const int *m, const int *n, float *a, const int *lda, float *tau, float *work, const int *lwork,
                   int *info);
    void (*sorglq)(const int *m, const int *n, const int *k, float *a, const int *lda, const float *tau, float *work,
                   const int *lwork, int *info);
    void (*slarft)(const char *direct, const char *store, const int *n, const int *k, const float *v, const int *ldv,
                   const float *tau, float *t, const int *ldt, size_t direct_bytes, size_t store_bytes);
    void (*slarfb)(const char *side, const char *trans, const char *direct, const char *store, const int *m,
                   const int *n, const int *k, const float *v, const int *ldv, const float *t, const int *ldt, float *c,
                   const int *ldc, float *work, const int *ldwork, size_t side_bytes, size_t trans_bytes,
                   size_t direct_bytes, size_t store_bytes);
    void (*ssyevd)(const char *jobz, const char *uplo, const int *n, float *a, const int *lda, float *w, float *work,
                   const int *lwork, int *iwork, const int *liwork, int *info, size_t jobz_bytes, size_t uplo_bytes);
};

/* Loads the library (the one that the environment variable QUIRE_BLAS names, else libopenblas.so.0, libopenblas.so).
 * QUIRE_EUNSUPPORTED names the Debian package to install. */
int blas_open(struct blas *out, struct quire_error *err);
void blas_close(struct blas *blas); /* a zeroed struct is fine */

/* c (n x k) = a (n x m) * b (m x k). */
void blas_multiply(const struct blas *blas, const float *a, const float *b, float *c, int n, int m, int k);
/* gram (width x width) = transpose(a) * a, for a of n x width. */
void blas_gram(const struct blas *blas, const float *a, float *gram, int n, int width);
/* Replaces the columns of a (n x width, n >= width) by an orthonormal basis of their span; where they are dependent it
 * is filled up with other directions. progress (NULL: none) is asked after each of blas_orthonormalise_steps(width)
 * steps, of which `done` of `total` are behind the caller before. QUIRE_ENOMEM, QUIRE_EINTERNAL, QUIRE_ECANCELLED. */
int blas_orthonormalise(const struct blas *blas, float *a, int n, int width, const struct progress *progress,
                        uint64_t done, uint64_t total, struct quire_error *err);
uint64_t blas_orthonormalise_steps(int width);
/* Eigenvalues of a symmetric matrix, ascending, into values (n); row i of `a` becomes the unit eigenvector of value i.
 * QUIRE_ENOMEM, QUIRE_EINTERNAL (no convergence). */
int blas_eigen_symmetric(const struct blas *blas, float *a, int n, float *values, struct quire_error *err);

#endif
