/*
 * hdf5_lib.h - the HDF5 library, loaded by whoever reads or writes such a file, and only then.
 *
 * Types and constants are those of its C interface since version 1.10, which has 64-bit handles.
 */
#ifndef QUIRE_TOOLS_RECORDS_HDF5_LIB_H
#define QUIRE_TOOLS_RECORDS_HDF5_LIB_H

#include "quire.h"

typedef int64_t hdf5_id; /* hid_t; negative: failed */
typedef unsigned long long hdf5_size;

enum {
    HDF5_READ_ONLY = 0,  /* H5F_ACC_RDONLY */
    HDF5_EXCLUSIVE = 4,  /* H5F_ACC_EXCL */
    HDF5_DEFAULT = 0,    /* H5P_DEFAULT, H5S_ALL */
    HDF5_SCALAR = 0,     /* H5S_SCALAR */
    HDF5_SELECT_SET = 0, /* H5S_SELECT_SET */
    HDF5_INTEGER = 0,    /* H5T_INTEGER and others: classes of types */
    HDF5_FLOAT = 1,
    HDF5_STRING = 3,
    HDF5_SIGN_NONE = 0, /* H5T_SGN_NONE */
    HDF5_UTF8 = 1,      /* H5T_CSET_UTF8 */
};
#define HDF5_VARIABLE  SIZE_MAX        /* H5T_VARIABLE */
#define HDF5_UNLIMITED (~(hdf5_size)0) /* H5S_UNLIMITED */

/* X(result, name without "H5", parameters) */
#define HDF5_FUNCTIONS(X)                                                                                              \
    X(int, open, (void))                                                                                               \
    X(int, get_libversion, (unsigned *, unsigned *, unsigned *))                                                       \
    X(int, Eset_auto2, (hdf5_id, void *, void *))                                                                      \
    X(hdf5_id, Fopen, (const char *, unsigned, hdf5_id))                                                               \
    X(hdf5_id, Fcreate, (const char *, unsigned, hdf5_id, hdf5_id))                                                    \
    X(int, Fclose, (hdf5_id))                                                                                          \
    X(int, Lexists, (hdf5_id, const char *, hdf5_id))                                                                  \
    X(hdf5_id, Dopen2, (hdf5_id, const char *, hdf5_id))                                                               \
    X(hdf5_id, Dcreate2, (hdf5_id, const char *, hdf5_id, hdf5_id, hdf5_id, hdf5_id, hdf5_id))                         \
    X(int, Dclose, (hdf5_id))                                                                                          \
    X(hdf5_id, Dget_space, (hdf5_id))                                                                                  \
    X(hdf5_id, Dget_type, (hdf5_id))                                                                                   \
    X(int, Dset_extent, (hdf5_id, const hdf5_size *))                                                                  \
    X(int, Dread, (hdf5_id, hdf5_id, hdf5_id, hdf5_id, hdf5_id, void *))                                               \
    X(int, Dwrite, (hdf5_id, hdf5_id, hdf5_id, hdf5_id, hdf5_id, const void *))                                        \
    X(int, Dvlen_reclaim, (hdf5_id, hdf5_id, hdf5_id, void *))                                                         \
    X(hdf5_id, Screate, (int))                                                                                         \
    X(hdf5_id, Screate_simple, (int, const hdf5_size *, const hdf5_size *))                                            \
    X(int, Sclose, (hdf5_id))                                                                                          \
    X(int, Sget_simple_extent_ndims, (hdf5_id))                                                                        \
    X(int, Sget_simple_extent_dims, (hdf5_id, hdf5_size *, hdf5_size *))                                               \
    X(int, Sselect_hyperslab,                                                                                          \
      (hdf5_id, int, const hdf5_size *, const hdf5_size *, const hdf5_size *, const hdf5_size *))                      \
    X(hdf5_id, Tcopy, (hdf5_id))                                                                                       \
    X(int, Tclose, (hdf5_id))                                                                                          \
    X(int, Tget_class, (hdf5_id))                                                                                      \
    X(size_t, Tget_size, (hdf5_id))                                                                                    \
    X(int, Tget_sign, (hdf5_id))                                                                                       \
    X(int, Tis_variable_str, (hdf5_id))                                                                                \
    X(int, Tset_size, (hdf5_id, size_t))                                                                               \
    X(int, Tset_cset, (hdf5_id, int))                                                                                  \
    X(int, Tset_fields, (hdf5_id, size_t, size_t, size_t, size_t, size_t))                                             \
    X(int, Tset_ebias, (hdf5_id, size_t))                                                                              \
    X(hdf5_id, Pcreate, (hdf5_id))                                                                                     \
    X(int, Pset_chunk, (hdf5_id, int, const hdf5_size *))                                                              \
    X(int, Pclose, (hdf5_id))                                                                                          \
    X(hdf5_id, Acreate2, (hdf5_id, const char *, hdf5_id, hdf5_id, hdf5_id, hdf5_id))                                  \
    X(hdf5_id, Aopen, (hdf5_id, const char *, hdf5_id))                                                                \
    X(int, Aexists, (hdf5_id, const char *))                                                                           \
    X(hdf5_id, Aget_type, (hdf5_id))                                                                                   \
    X(hdf5_id, Aget_space, (hdf5_id))                                                                                  \
    X(int, Aread, (hdf5_id, hdf5_id, void *))                                                                          \
    X(int, Awrite, (hdf5_id, hdf5_id, const void *))                                                                   \
    X(int, Aclose, (hdf5_id))

struct hdf5_lib {
    void *library;
#define X(result, name, parameters) result(*name) parameters;
    HDF5_FUNCTIONS(X)
#undef X
    /* types, and the class of the properties that say how a dataset lies in its file; HDF5 owns all but
     * `f16`, `text` */
    hdf5_id f32, f64, i8, u8, i32, i64, creation, f16, text;
};

/* Loads the library; QUIRE_EUNSUPPORTED names the package that has it. */
int hdf5_lib_open(struct hdf5_lib *out, struct quire_error *err);
void hdf5_lib_close(struct hdf5_lib *lib); /* a zeroed one is fine */

/* Rows [first, first + n) of a dataset of rows x width (width 0: of one axis), out of or into `buffer`. */
int hdf5_lib_read(const struct hdf5_lib *lib, hdf5_id dataset, hdf5_id type, uint64_t first, uint64_t n, uint64_t width,
                  void *buffer);
int hdf5_lib_write(const struct hdf5_lib *lib, hdf5_id dataset, hdf5_id type, uint64_t first, uint64_t n,
                   uint64_t width, const void *buffer);
/* The type in memory of elements; 0 for one that HDF5 does not have (bf16). */
hdf5_id hdf5_lib_type(const struct hdf5_lib *lib, enum quire_type type);

/* Neighbours and distances, as ann-benchmarks keeps them, out of a file; *metric as the file says. */
struct truth;
int hdf5_truth_load(const char *path, struct truth *out, int *metric, struct quire_error *err);

#endif
