/*
 * fake_opencl.h - a loader of OpenCL that fails on demand, as tests/support/fault.h is a disk that does.
 *
 * libfake_opencl.so stands in for libOpenCL.so.1 where QUIRE_OPENCL_LIBRARY names it. Calls go on to the real loader,
 * so that what does not fail works, and are counted; each program is compiled once. With FAKE_OPENCL_CARD in the
 * environment its device is a graphics card to programs that know nothing of its controls. A test reaches its controls
 * by dlopen and dlsym of fake_opencl_controls. One thread at a time calls OpenCL; another may set the controls
 * meanwhile.
 */
#ifndef QUIRE_TESTS_FAKE_OPENCL_H
#define QUIRE_TESTS_FAKE_OPENCL_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_opencl {
    bool has_device;                   /* the real loader is here and has one; set when the library is loaded */
    atomic_uint_fast64_t calls;        /* so far */
    atomic_uint_fast64_t fail_at;      /* this call of those to come fails, 1 is the next; 0: none */
    atomic_bool stays;                 /* and all after it, but for releases */
    atomic_int status;                 /* what they answer */
    const char *_Atomic only;          /* calls of this function alone count and fail; NULL: of all */
    atomic_uint_fast64_t memory_bytes; /* what the device has, and of one buffer at most; 0: as it is */
    atomic_uint_fast64_t held_bytes;   /* in buffers */
    atomic_bool as_card;               /* the device says that it is a graphics card */
    const char *_Atomic extensions;    /* what the device says that it has; NULL: as it is */
    atomic_uint_fast64_t local_bytes;  /* local memory that it says it has; 0: as it is; group, kernel_group likewise */
    atomic_uint_fast64_t group;        /* work-items of a group at most, of any kernel; */
    atomic_uint_fast64_t kernel_group; /* of one that was built */
    atomic_int_fast64_t objects;       /* created and not released */
};

/* Puts it in the place of the real loader for this process, which has not opened a device yet. NULL: it was not built,
 * because there are no headers of OpenCL. */
static inline struct fake_opencl *fake_opencl_install(void)
{
    char folder[600] = "", path[700];
    struct fake_opencl *(*controls)(void) = NULL;
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *slash = n > 0 ? strrchr(folder, '/') : NULL;
    if (!slash)
        return NULL;
    *slash = '\0';
    snprintf(path, sizeof path, "%s/libfake_opencl.so", folder);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *address = library ? dlsym(library, "fake_opencl_controls") : NULL;
    if (!address)
        return NULL;
    memcpy(&controls, &address, sizeof address);
    setenv("QUIRE_OPENCL_LIBRARY", path, 1);
    return controls();
}

/* Nothing fails. */
static inline void fake_opencl_reset(struct fake_opencl *fake)
{
    fake->fail_at = 0;
    fake->calls = 0;
    fake->stays = fake->as_card = false;
    fake->status = 0;
    fake->only = NULL;
    fake->memory_bytes = 0;
    fake->extensions = NULL;
    fake->local_bytes = fake->group = fake->kernel_group = 0;
}

#endif
