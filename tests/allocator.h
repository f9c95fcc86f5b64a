/*
 * allocator.h - the allocator of a test program that makes allocations fail: malloc, calloc and realloc ask the
 * program's may_allocate() first. To be included once in a program, behind
 *
 *     static bool may_allocate(void);
 *
 * Under a sanitizer, which brings an allocator of its own, there is none of this: do not include it there.
 */
#ifndef QUIRE_TESTS_ALLOCATOR_H
#define QUIRE_TESTS_ALLOCATOR_H

#include <stddef.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    return may_allocate() ? __libc_malloc(bytes) : NULL;
}

void *calloc(size_t n, size_t bytes)
{
    return may_allocate() ? __libc_calloc(n, bytes) : NULL;
}

void *realloc(void *old, size_t bytes)
{
    return may_allocate() ? __libc_realloc(old, bytes) : NULL;
}

#endif
