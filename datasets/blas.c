/*
 * blas.c - OpenBLAS by dlopen.
 *
 * Why not link it. A program that links libopenblas pays for it at start, used or not: some 30 MB of library are mapped
 * and relocated, one thread per core is started, and each of those reserves a work buffer. `quire search` and
 * quire-server are meant to stay at a few megabytes beside their navigation codes, and their resident memory is counted
 * and published. Only the fit of the lexical embedder needs dense linear algebra, so the library is loaded by the first
 * call that needs it, and let go after it. A `quire` without OpenBLAS on the machine still does everything else; a fit
 * then says which package is missing. Linking a second program (`quire-embed`) would do as well, but splits the
 * command.
 *
 * Debian's libopenblas.so.0 (package libopenblas0-pthread; the openmp and serial ones too) carries CBLAS and all of
 * LAPACK under the Fortran names, so one library is enough. Fortran takes every argument by address and, for each
 * character argument, a hidden length at the end (gfortran: size_t).
 *
 * Row-major and Fortran. Our n x width matrix, row-major, is to Fortran a width x n matrix, column-major: its
 * transpose. So an orthonormal basis of our columns is an orthonormal basis of Fortran's rows: the LQ factorisation
 * (sgelqf) gives it in place, without a transposed copy of a matrix of a hundred megabytes. Eigenvectors, columns to
 * Fortran, are rows to us.
 *
 * Householder reflections and not Cholesky QR, though that would be all matrix products: a small text has duplicate and
 * dependent rows, where Cholesky breaks down and reflections still give an orthonormal basis.
 *
 * One thread: the dense part is a small share of a fit (most is sparse products, parallel in embed_sparse.c), and the
 * order of its sums must not depend on the number of cores.
 */
#include "datasets/blas.h"
#include "io/error.h"
#include "io/memory.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 }; /* CBLAS */

static int resolve(void *library, const char *symbol, void *pointer, const char *path, struct quire_error *err)
{
    void *address = dlsym(library, symbol);
    if (!address)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "the library %s has no function %s; install the Debian package libopenblas0-pthread", path,
                         symbol);
    memcpy(pointer, &address, sizeof address); /* ISO C has no cast from object to function pointers */
    return 0;
}

static int load(struct blas *blas, const char *path, struct quire_error *err)
{
    int rc = resolve(blas->library, "cblas_sgemm", &blas->sgemm, path, err);
    if (rc == 0)
        rc = resolve(blas->library, "sgelqf_", &blas->sgelqf, path, err);
    if (rc == 0)
        rc = resolve(blas->library, "sorglq_", &blas->sorglq, path, err);
    if (rc == 0)
        rc = resolve(blas->library, "ssyevd_", &blas->ssyevd, path, err);
    return rc;
}

int blas_open(struct blas *out, struct quire_error *err)
{
    const char *chosen = getenv("QUIRE_BLAS");
    const char *const names[] = {chosen ? chosen : "libopenblas.so.0", "libopenblas.so"};
    size_t n_names = chosen ? 1 : 2;
    struct blas blas = {0};
    const char *path = names[0];
    for (size_t i = 0; i < n_names && !blas.library; i++)
        blas.library = dlopen(path = names[i], RTLD_NOW | RTLD_LOCAL);
    if (!blas.library)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "fitting an embedder needs OpenBLAS and %s cannot be loaded; install the Debian package "
                         "libopenblas0-pthread%s",
                         names[0], chosen ? ", or unset QUIRE_BLAS" : "");
    int rc = load(&blas, path, err);
    if (rc != 0) {
        dlclose(blas.library);
        return rc;
    }
    void (*set_threads)(int) = NULL; /* OpenBLAS only: another BLAS that QUIRE_BLAS names may not have it */
    if (resolve(blas.library, "openblas_set_num_threads", &set_threads, path, NULL) == 0)
        set_threads(1);
    *out = blas;
    return 0;
}

void blas_close(struct blas *blas)
{
    if (blas->library)
        dlclose(blas->library);
    *blas = (struct blas){0};
}

void blas_multiply(const struct blas *blas, const float *a, const float *b, float *c, int n, int m, int k)
{
    blas->sgemm(ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, n, k, m, 1.0f, a, m, b, k, 0.0f, c, k);
}

void blas_gram(const struct blas *blas, const float *a, float *gram, int n, int width)
{
    blas->sgemm(ROW_MAJOR, TRANSPOSE, NO_TRANSPOSE, width, width, n, 1.0f, a, width, a, width, 0.0f, gram, width);
}

static int lapack_failed(const char *routine, int info, struct quire_error *err)
{
    return error_set(err, QUIRE_EINTERNAL, "LAPACK's %s failed with info %d (%s)", routine, info,
                     info < 0 ? "an argument is wrong" : "it did not converge");
}

int blas_orthonormalise(const struct blas *blas, float *a, int n, int width, struct quire_error *err)
{
    int info = 0, capacity = -1, rc = 0;
    float wanted[2] = {0};
    /* Both routines say how much work space they like best. */
    blas->sgelqf(&width, &n, a, &width, NULL, &wanted[0], &capacity, &info);
    if (info == 0)
        blas->sorglq(&width, &n, &width, a, &width, NULL, &wanted[1], &capacity, &info);
    if (info != 0)
        return lapack_failed("sgelqf", info, err);
    capacity = (int)(wanted[0] > wanted[1] ? wanted[0] : wanted[1]);
    float *tau = malloc(memory_size_mul((size_t)width, sizeof *tau));
    float *work = malloc(memory_size_mul((size_t)capacity, sizeof *work));
    if (!tau || !work) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the workspace of a QR factorisation");
        goto out;
    }
    blas->sgelqf(&width, &n, a, &width, tau, work, &capacity, &info);
    if (info != 0) {
        rc = lapack_failed("sgelqf", info, err);
        goto out;
    }
    blas->sorglq(&width, &n, &width, a, &width, tau, work, &capacity, &info);
    if (info != 0)
        rc = lapack_failed("sorglq", info, err);
out:
    free(tau);
    free(work);
    return rc;
}

int blas_eigen_symmetric(const struct blas *blas, float *a, int n, float *values, struct quire_error *err)
{
    int info = 0, rc = 0, capacity = -1, iroom = -1, iwanted = 0;
    float wanted = 0;
    blas->ssyevd("V", "L", &n, a, &n, values, &wanted, &capacity, &iwanted, &iroom, &info, 1, 1);
    if (info != 0)
        return lapack_failed("ssyevd", info, err);
    capacity = (int)wanted;
    iroom = iwanted;
    float *work = malloc(memory_size_mul((size_t)capacity, sizeof *work));
    int *iwork = malloc(memory_size_mul((size_t)iroom, sizeof *iwork));
    if (!work || !iwork) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the workspace of an eigenvalue problem");
        goto out;
    }
    blas->ssyevd("V", "L", &n, a, &n, values, work, &capacity, iwork, &iroom, &info, 1, 1);
    if (info != 0)
        rc = lapack_failed("ssyevd", info, err);
out:
    free(work);
    free(iwork);
    return rc;
}
