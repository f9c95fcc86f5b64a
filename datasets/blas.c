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
 * Panels. LAPACK would factorise a hundred thousand texts in seconds that nobody can interrupt, so the loop over panels
 * of PANEL columns, which sgelqf and sorglq have inside, is here: between two the caller is asked whether to go on.
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
enum { PANEL = 32 };                                           /* what LAPACK takes for these routines */

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
        rc = resolve(blas->library, "slarft_", &blas->slarft, path, err);
    if (rc == 0)
        rc = resolve(blas->library, "slarfb_", &blas->slarfb, path, err);
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

/* Row-major rows 0..width-1 of Fortran's matrix, `at` the first of a panel of n_panel. */
struct panels {
    const struct blas *blas;
    float *a, *tau, *work;
    int width, n, capacity, info;
    const struct progress *progress; /* or NULL */
    uint64_t done, total;
};

static int panel_rows(const struct panels *p, int at)
{
    return p->width - at < PANEL ? p->width - at : PANEL;
}

static float *panel_place(const struct panels *p, int row, int column)
{
    return p->a + (size_t)column * (size_t)p->width + row; /* column-major */
}

/* The rows below a panel times its reflections ("N") or their inverse ("T"), all at once: sormlq would take so few one
 * by one, and pass over the matrix as often. */
static void panel_apply(struct panels *p, int at, const char *trans)
{
    int rows = panel_rows(p, at), below = p->width - at - rows, columns = p->n - at, side = PANEL;
    float product[PANEL * PANEL], *v = panel_place(p, at, at);
    if (below <= 0)
        return;
    p->blas->slarft("F", "R", &columns, &rows, v, &p->width, p->tau + at, product, &side, 1, 1);
    p->blas->slarfb("R", trans, "F", "R", &below, &columns, &rows, v, &p->width, product, &side,
                    panel_place(p, at + rows, at), &p->width, p->work, &below, 1, 1, 1, 1);
}

static int panel_end(struct panels *p)
{
    p->done++;
    if (p->info == 0 && p->progress && p->progress->report &&
        p->progress->report(p->progress->context, p->progress->phase, p->done, p->total) != 0)
        return QUIRE_ECANCELLED;
    return p->info == 0 ? 0 : QUIRE_EINTERNAL;
}

/* A panel is factorised, and the rows below it are reflected; from the first to the last. */
static int panel_factorise(struct panels *p, int at)
{
    int rows = panel_rows(p, at), columns = p->n - at;
    p->blas->sgelqf(&rows, &columns, panel_place(p, at, at), &p->width, p->tau + at, p->work, &p->capacity, &p->info);
    if (p->info == 0)
        panel_apply(p, at, "N");
    return panel_end(p);
}

/* A panel's rows of Q in place of its reflections; from the last to the first, as sorglq does. */
static int panel_form(struct panels *p, int at)
{
    int rows = panel_rows(p, at), columns = p->n - at;
    panel_apply(p, at, "T");
    if (p->info == 0)
        p->blas->sorglq(&rows, &columns, &rows, panel_place(p, at, at), &p->width, p->tau + at, p->work, &p->capacity,
                        &p->info);
    for (int column = 0; column < at; column++)
        memset(panel_place(p, at, column), 0, (size_t)rows * sizeof *p->a);
    return panel_end(p);
}

int blas_orthonormalise(const struct blas *blas, float *a, int n, int width, const struct progress *progress,
                        uint64_t done, uint64_t total, struct quire_error *err)
{
    struct panels p = {blas, a, NULL, NULL, width, n, width * PANEL, 0, progress, done, total};
    int rc = 0, last = (width - 1) / PANEL * PANEL;
    p.tau = malloc(memory_size_mul((size_t)width, sizeof *p.tau));
    p.work = malloc(memory_size_mul((size_t)p.capacity, sizeof *p.work));
    if (!p.tau || !p.work)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the workspace of a QR factorisation");
    for (int at = 0; rc == 0 && at <= last; at += PANEL)
        rc = panel_factorise(&p, at);
    for (int at = last; rc == 0 && at >= 0; at -= PANEL)
        rc = panel_form(&p, at);
    if (p.info != 0)
        lapack_failed("factorisation of a panel", p.info, err);
    free(p.tau);
    free(p.work);
    return rc;
}

uint64_t blas_orthonormalise_steps(int width)
{
    return 2 * (uint64_t)((width + PANEL - 1) / PANEL);
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
