/*
 * hdf5_lib.c - HDF5 by dlopen.
 *
 * Why not link it. libquire and the servers must not need it, and a `quire` that links it would not start on a machine
 * without its 4 MB, for the sake of one verb. A plug-in would need its headers at build time and would be a second file
 * to install. The functions used here have had the same signatures since 1.10 (2016), which made handles 64 bits wide;
 * older versions are refused. Sonames change with each release of Debian, so several are tried; QUIRE_HDF5 names
 * another.
 */
#include "tools/records/hdf5_lib.h"
#include "io/error.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    "libhdf5_serial.so.103", "libhdf5_serial.so.310", "libhdf5_serial.so", "libhdf5.so.103",
    "libhdf5.so.200",        "libhdf5.so.310",        "libhdf5.so"};

static bool resolve(void *library, const char *symbol, void *pointer)
{
    void *address = dlsym(library, symbol);
    memcpy(pointer, &address, sizeof address); /* ISO C has no cast from object to function pointers */
    return address != NULL;
}

/* Types are variables, which H5open fills. */
static bool find_id(const struct hdf5_lib *lib, const char *symbol, hdf5_id *out)
{
    const hdf5_id *variable = dlsym(lib->library, symbol);
    *out = variable ? *variable : -1;
    return *out >= 0;
}

static const char *load(struct hdf5_lib *lib)
{
#define X(result, name, parameters)                                                                                    \
    if (!resolve(lib->library, "H5" #name, &lib->name))                                                                \
        return "H5" #name;
    HDF5_FUNCTIONS(X)
#undef X
    if (lib->open() < 0)
        return "H5open";
    if (!find_id(lib, "H5T_NATIVE_FLOAT_g", &lib->f32) || !find_id(lib, "H5T_NATIVE_DOUBLE_g", &lib->f64) ||
        !find_id(lib, "H5T_NATIVE_SCHAR_g", &lib->i8) || !find_id(lib, "H5T_NATIVE_UCHAR_g", &lib->u8) ||
        !find_id(lib, "H5T_NATIVE_INT_g", &lib->i32) || !find_id(lib, "H5T_NATIVE_INT64_g", &lib->i64) ||
        !find_id(lib, "H5P_CLS_DATASET_CREATE_ID_g", &lib->creation) || !find_id(lib, "H5T_C_S1_g", &lib->text))
        return "H5T_NATIVE_FLOAT";
    lib->text = lib->Tcopy(lib->text);
    lib->f16 = lib->Tcopy(lib->f32);
    if (lib->text < 0 || lib->f16 < 0 || lib->Tset_size(lib->text, HDF5_VARIABLE) < 0 ||
        lib->Tset_cset(lib->text, HDF5_UTF8) < 0)
        return "H5Tcopy";
    /* sign in bit 15, 5 bits of exponent from bit 10, 10 of mantissa: as h5py describes NumPy's float16 */
    if (lib->Tset_fields(lib->f16, 15, 10, 5, 0, 10) < 0 || lib->Tset_size(lib->f16, 2) < 0 ||
        lib->Tset_ebias(lib->f16, 15) < 0)
        return "H5Tset_fields";
    return NULL;
}

int hdf5_lib_open(struct hdf5_lib *out, struct quire_error *err)
{
    const char *chosen = getenv("QUIRE_HDF5"), *path = NULL;
    struct hdf5_lib lib = {0};
    unsigned major = 0, minor = 0, release = 0;
    for (size_t i = 0; !lib.library && i < (chosen ? 1 : sizeof names / sizeof *names); i++)
        lib.library = dlopen(path = chosen ? chosen : names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib.library)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "files of HDF5 need its library, and %s cannot be loaded: install the Debian package "
                         "libhdf5-103-1%s",
                         chosen ? chosen : names[0], chosen ? ", or unset QUIRE_HDF5" : "");
    const char *missing = load(&lib);
    if (!missing && (lib.get_libversion(&major, &minor, &release) < 0 || major < 1 || (major == 1 && minor < 10)))
        missing = "handles of 64 bits, which came with 1.10";
    if (missing) {
        hdf5_lib_close(&lib);
        return error_set(err, QUIRE_EUNSUPPORTED, "the library %s (HDF5 %u.%u) lacks %s: install libhdf5-103-1", path,
                         major, minor, missing);
    }
    lib.Eset_auto2(0, NULL, NULL); /* no stacks of errors on standard error */
    *out = lib;
    return 0;
}

void hdf5_lib_close(struct hdf5_lib *lib)
{
    /* it stays loaded: it registers functions for the end of the process */
    if (lib->f16 > 0)
        lib->Tclose(lib->f16);
    if (lib->text > 0 && lib->f16 > 0)
        lib->Tclose(lib->text);
    *lib = (struct hdf5_lib){0};
}

hdf5_id hdf5_lib_type(const struct hdf5_lib *lib, enum quire_type type)
{
    switch (type) {
    case QUIRE_TYPE_F32:
        return lib->f32;
    case QUIRE_TYPE_F16:
        return lib->f16;
    case QUIRE_TYPE_I8:
        return lib->i8;
    case QUIRE_TYPE_U8:
        return lib->u8;
    default:
        return 0;
    }
}

static int transfer(const struct hdf5_lib *lib, hdf5_id dataset, hdf5_id type, uint64_t first, uint64_t n,
                    uint64_t width, void *to, const void *from)
{
    hdf5_size start[2] = {first, 0}, count[2] = {n, width};
    int axes = width ? 2 : 1, rc = -1;
    hdf5_id file_space = lib->Dget_space(dataset), memory_space = lib->Screate_simple(axes, count, NULL);
    if (file_space >= 0 && memory_space >= 0 &&
        lib->Sselect_hyperslab(file_space, HDF5_SELECT_SET, start, NULL, count, NULL) >= 0)
        rc = to ? lib->Dread(dataset, type, memory_space, file_space, HDF5_DEFAULT, to)
                : lib->Dwrite(dataset, type, memory_space, file_space, HDF5_DEFAULT, from);
    if (file_space >= 0)
        lib->Sclose(file_space);
    if (memory_space >= 0)
        lib->Sclose(memory_space);
    return rc;
}

int hdf5_lib_read(const struct hdf5_lib *lib, hdf5_id dataset, hdf5_id type, uint64_t first, uint64_t n, uint64_t width,
                  void *buffer)
{
    return transfer(lib, dataset, type, first, n, width, buffer, NULL);
}

int hdf5_lib_write(const struct hdf5_lib *lib, hdf5_id dataset, hdf5_id type, uint64_t first, uint64_t n,
                   uint64_t width, const void *buffer)
{
    return transfer(lib, dataset, type, first, n, width, NULL, buffer);
}
