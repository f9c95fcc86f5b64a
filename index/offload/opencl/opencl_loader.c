/*
 * opencl_loader.c - the ICD loader by dlopen, and errors in words.
 *
 * Nothing of Quire is linked to OpenCL: a machine without a loader, or with one that lacks a function, has no devices
 * and a sentence that says so. The loader stays once it is there, since drivers start threads of their own and register
 * functions that run at the end of the process.
 */
#include "index/offload/opencl/opencl_priv.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOADER "libOpenCL.so.1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opencl_calls calls;
static bool loaded;

int opencl_error(struct quire_error *err, const char *where, int code, const char *format, ...)
{
    if (err) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(err->message, sizeof err->message, format, arguments);
        va_end(arguments);
        err->code = code;
        err->where = where;
    }
    return code;
}

int opencl_failed(struct quire_error *err, const char *where, cl_int status, const char *call)
{
    switch (status) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES: /* some drivers allocate when a buffer is first used, and say no more than this */
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
        return opencl_error(err, where, QUIRE_ENOMEM, "the device has not the memory (%s: OpenCL error %d)", call,
                            (int)status);
    case CL_DEVICE_NOT_AVAILABLE:
        return opencl_error(err, where, QUIRE_EIO, "the device is gone (%s: OpenCL error %d)", call, (int)status);
    default:
        return opencl_error(err, where, QUIRE_EIO, "%s: OpenCL error %d", call, (int)status);
    }
}

static int resolve(void *library, const char *name, void *pointer, const char *path, struct quire_error *err)
{
    void *address = dlsym(library, name);
    if (!address)
        return opencl_error(err, __func__, QUIRE_EUNSUPPORTED, "%s has no function %s: OpenCL 1.2 is needed", path,
                            name);
    memcpy(pointer, &address, sizeof address); /* ISO C has no cast from object to function pointers */
    return 0;
}

static int load(struct quire_error *err)
{
    const char *chosen = getenv("QUIRE_OPENCL_LIBRARY"), *path = chosen && *chosen ? chosen : LOADER;
    struct opencl_calls found;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return opencl_error(err, __func__, QUIRE_EUNSUPPORTED,
                            "there is no OpenCL here: %s cannot be loaded; it comes with a driver, or with the Debian "
                            "package ocl-icd-libopencl1",
                            path);
    int rc = 0;
#define RESOLVE(name)                                                                                                  \
    if (rc == 0)                                                                                                       \
        rc = resolve(library, #name, &found.name, path, err);
    OPENCL_CALLS(RESOLVE)
#undef RESOLVE
    if (rc < 0) {
        dlclose(library);
        return rc;
    }
    calls = found;
    loaded = true;
    return 0;
}

int opencl_load(const struct opencl_calls **out, struct quire_error *err)
{
    pthread_mutex_lock(&lock);
    int rc = loaded ? 0 : load(err);
    pthread_mutex_unlock(&lock);
    if (rc == 0)
        *out = &calls;
    return rc;
}
