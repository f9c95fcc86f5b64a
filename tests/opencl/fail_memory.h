/*
 * fail_memory.h - allocations that fail on demand, those of Quire's own code and of its plug-in alone.
 *
 * Included once by a test program, whose malloc, calloc, realloc and posix_memalign these are. Drivers of OpenCL share
 * them, and need not bear a failure: so the caller's address decides, which must lie in the program or in
 * libquire-opencl.so. Sanitizers bring their own allocators: FAIL_MEMORY is 0 there, and nothing fails.
 */
#ifndef QUIRE_TESTS_FAIL_MEMORY_H
#define QUIRE_TESTS_FAIL_MEMORY_H

#include "tests/sanitized.h"
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Allocations of this thread from now on, this one fails; 0: none. */
__attribute__((unused)) static _Thread_local unsigned fail_in;
/* The same of the thread that calls the plug-in, wherever that is: it is known by an allocation of the plug-in's, from
 * when fail_memory_watches is set. */
__attribute__((unused)) static atomic_uint fail_device_in;
__attribute__((unused)) static atomic_bool fail_memory_watches;

#if SANITIZED
#define FAIL_MEMORY 0
#else
#define FAIL_MEMORY 1

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static inline bool fail_memory_now(const void *caller)
{
    static _Thread_local bool is_device;
    union {
        const void *from;
        void *to;
    } address = {caller}; /* the call does not write there */
    struct dl_find_object found;
    /* dladdr looks through all names of a library, of which a driver's compiler has some hundred thousand */
    if ((fail_in == 0 && !fail_memory_watches) || _dl_find_object(address.to, &found) != 0)
        return false;
    const char *path = found.dlfo_link_map->l_name, *slash = strrchr(path, '/');
    bool is_plugin = slash && strcmp(slash + 1, "libquire-opencl.so") == 0, is_program = path[0] == '\0';
    is_device = is_device || is_plugin;
    if (!is_plugin && !is_program)
        return false;
    if (fail_in > 0)
        return --fail_in == 0;
    return is_device && fail_device_in > 0 && --fail_device_in == 0;
}

void *malloc(size_t bytes)
{
    return fail_memory_now(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fail_memory_now(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fail_memory_now(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *made = fail_memory_now(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
    if (!made)
        return ENOMEM;
    *out = made;
    return 0;
}
#endif

#endif
