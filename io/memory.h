/*
 * memory.h - aligned and huge-page memory with an account of where each byte went.
 *
 * The library's large arrays (navigation codes, block buffers) come from here, so that INFO, inspect and the search
 * report can name them. Small structures use malloc of the host.
 */
#ifndef QUIRE_IO_MEMORY_H
#define QUIRE_IO_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* n * size, or SIZE_MAX where that overflows (every allocator then answers NULL). */
static inline size_t memory_size_mul(size_t n, size_t size)
{
    size_t product;
    return __builtin_mul_overflow(n, size, &product) ? SIZE_MAX : product;
}

/* 4096-aligned, zeroed, anonymous memory of its own mapping; ask for huge pages where `huge` and at least 2 MiB.
 * NULL without memory. Ended by memory_unmap with the same size. */
void *memory_map(size_t bytes, int huge);
void memory_unmap(void *base, size_t bytes);
/* The same for this process alone: a child of fork() has nothing there. For what direct reads go to, which a fork in
 * between might send astray (open(2), O_DIRECT), and for what no child needs, which need not be copied then. */
void *memory_map_alone(size_t bytes, int huge);
/* Whole pages for a direct read that this thread waits for, not zeroed; ended by memory_read_end with the same size. A
 * few come from the heap: to map a page and give it back takes longer than a read, as every processor has to forget it.
 * A fork meanwhile sends nothing astray, as nobody else writes to these pages. NULL without memory. */
void *memory_for_read(size_t bytes);
void memory_read_end(void *base, size_t bytes);

/* Address space alone, unreadable until it is committed; aligned to 4096, from 2 MiB on to 2 MiB. NULL where there is
 * none. Ended by memory_unmap with the same size. */
void *memory_reserve(size_t bytes);
/* Makes bytes from..to of a reservation usable and zero, whole pages; again where they were is fine. They take memory
 * when they are first written. Huge pages are asked for where `huge`; the last is small unless `to` is a multiple of
 * 2 MiB. 0 or QUIRE_ENOMEM. */
int memory_commit(void *base, size_t from, size_t to, int huge);

/* malloc with alignment (a power of two >= 16), ended by memory_free. */
void *memory_aligned(size_t alignment, size_t bytes);
void memory_free(void *base);

/* What the kernel counts for this process, in bytes: VmRSS, and its parts. 0 where /proc is not there. */
struct memory_resident {
    uint64_t total, anonymous, file, peak;
};
void memory_resident(struct memory_resident *out);

#endif
