/*
 * vecfile.h - reading and writing files of vectors.
 *
 * Formats by extension: .fbin .u8bin .i8bin (u32 rows, u32 dim, rows; big-ann-benchmarks), .bf16bin (the same with
 * bf16, which NumPy does not have), .fvecs .bvecs .ivecs (each row with its own u32 dim; texmex), .npy (NumPy 1.0-3.0;
 * float32, float16, int8, uint8; C order; two axes), little-endian all. "-" with a format given is a pipe: it is read
 * forward only. Damaged files are refused with a sentence that has expected and found bytes. ivecs rows are int32 and
 * serve as ground truth ids, not as vectors to index.
 */
#ifndef QUIRE_DATASETS_VECFILE_H
#define QUIRE_DATASETS_VECFILE_H

#include "quire.h"

enum vecfile_format {
    VECFILE_AUTO,
    VECFILE_FBIN,
    VECFILE_U8BIN,
    VECFILE_I8BIN,
    VECFILE_FVECS,
    VECFILE_BVECS,
    VECFILE_IVECS,
    VECFILE_NPY,
    VECFILE_BF16BIN
};

struct vecfile;

/* Opens for forward reading. path "-" is standard input (format must be given). A pipe of fvecs,
 * bvecs or ivecs has an unknown number of rows (vecfile_rows: UINT64_MAX) before its end. */
int vecfile_open(const char *path, enum vecfile_format format, struct vecfile **out, struct quire_error *err);
void vecfile_close(struct vecfile *file);          /* NULL is fine */
uint64_t vecfile_rows(const struct vecfile *file); /* UINT64_MAX: not known before the end */
uint32_t vecfile_dim(const struct vecfile *file);
enum quire_type vecfile_type(const struct vecfile *file); /* ivecs: 4-byte rows read raw, type F32 is not implied; see
                                                             vecfile_is_ivecs */
bool vecfile_is_ivecs(const struct vecfile *file);
/* Reads up to n rows, row-major, elements as stored (dim * quire_type_bytes). Returns rows read, 0 at the end, or a
 * negative QUIRE_E. Checks NaN and infinity of floats of any width (QUIRE_ENOTFINITE names row and dimension). */
int64_t vecfile_read(struct vecfile *file, void *rows, uint64_t n, struct quire_error *err);

/* The next read begins with this row. QUIRE_EUNSUPPORTED for a pipe, unless it stands there already. */
int vecfile_seek(struct vecfile *file, uint64_t row, struct quire_error *err);
bool vecfile_is_seekable(const struct vecfile *file);

/* A whole file in memory; rows * dim elements, 64-byte aligned; freed by vecfile_vectors_free. */
struct vectors {
    void *data;
    uint64_t rows;
    uint32_t dim;
    enum quire_type type;
};
int vecfile_vectors_load(const char *path, enum vecfile_format format, struct vectors *out, struct quire_error *err);
/* The rest of an open file. */
int vecfile_vectors_read(struct vecfile *file, struct vectors *out, struct quire_error *err);
void vecfile_vectors_free(struct vectors *v);

/* Writers, format by extension or given; "-" writes to standard output (rows must be known first for fbin family and
 * npy: pass them; others ignore it). Published under the final name only when vecwriter_finish succeeds. */
struct vecwriter;
int vecwriter_open(const char *path, enum vecfile_format format, uint64_t rows, uint32_t dim, enum quire_type type,
                   struct vecwriter **out, struct quire_error *err);
int vecwriter_write(struct vecwriter *writer, const void *rows, uint64_t n, struct quire_error *err);
int vecwriter_finish(struct vecwriter *writer, struct quire_error *err); /* frees it, also on failure */
void vecwriter_abort(struct vecwriter *writer);

/* Ground truth: u32 queries, u32 k, ids (u32) then distances (f32). Where fewer than k rows could be answered, as under
 * a filter, the rest of a query's ids are TRUTH_NONE (-1 in ivecs), at infinite distance. */
#define TRUTH_NONE UINT32_MAX
struct truth {
    uint32_t *ids;    /* n_queries x k, row-major, nearest first */
    float *distances; /* n_queries x k; NULL when read from ivecs */
    uint32_t n_queries, k;
};
/* How many neighbours a query has, <= k. */
uint32_t truth_count(const struct truth *truth, uint32_t query);
/* Of truth among the n_rows rows `rows`, ascending, that were taken out of a base: ids become those of the base, and
 * each query has k of them, TRUTH_NONE behind the last. truth may be all zero where n_rows is 0; n_queries is set.
 * QUIRE_ENOMEM leaves it as it is. */
int truth_widen(struct truth *truth, const uint32_t *rows, uint32_t n_queries, uint32_t k);
int truth_load(const char *path, struct truth *out, struct quire_error *err); /* .bin or .ivecs */
int truth_save(const char *path, const struct truth *truth, struct quire_error *err);
void truth_free(struct truth *truth);

/* Exact ground truth by brute force with BLAS-free blocked loops over the kernels, on `threads` threads. base and
 * queries of any quire_type (same dim). progress may be NULL. Distances as quire.h defines them per metric. Ties are
 * broken by the smaller row id, so that the answer is unique. */
int truth_compute(const struct vectors *base, const struct vectors *queries, enum quire_metric metric, uint32_t k,
                  unsigned threads, int (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  struct truth *out, struct quire_error *err);

/* The same with a device, or NULL: the same answer, bit for bit. *on_device says whether the device did the work:
 * not if it failed (its status says how), nor for bf16, vectors of mixed types, lengths outside 1e-6 .. 1e6, or more
 * neighbours than it can sort. */
struct offload;
int truth_compute_on(struct offload *offload, const struct vectors *base, const struct vectors *queries,
                     enum quire_metric metric, uint32_t k, unsigned threads,
                     int (*progress)(void *context, uint64_t done, uint64_t total), void *context, struct truth *out,
                     bool *on_device, struct quire_error *err);

enum vecfile_format vecfile_format_from_path(const char *path); /* VECFILE_AUTO if unknown */
enum vecfile_format vecfile_format_from_name(const char *name); /* "fbin", ... ; VECFILE_AUTO if unknown */

#endif
