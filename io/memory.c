/*
 * memory.c - mappings and aligned blocks.
 *
 * Large arrays get mappings of their own: their pages go back to the kernel at once when they are unmapped, and huge
 * pages can be asked for without touching the host's allocator. A huge mapping is aligned to 2 MiB by mapping more and
 * cutting the ends off; the kernel fills it with huge pages where transparent_hugepage is "madvise" or "always", and
 * silently with small ones elsewhere. The tail beyond the last whole 2 MiB is not advised, so that rounding up does not
 * cost resident memory.
 */
#include "io/memory.h"
#include "quire.h"
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES      ((size_t)2 << 20)
#define HEAP_READ_BYTES (64u << 10)

static size_t whole_pages(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

/* Pages at a multiple of `slack` (HUGE_BYTES), or anywhere (0). */
static void *map_pages(size_t size, size_t slack, int protection, int flags)
{
    char *base = mmap(NULL, size + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    if (!slack)
        return base;
    size_t front = (HUGE_BYTES - (uintptr_t)base % HUGE_BYTES) % HUGE_BYTES;
    if (front)
        munmap(base, front);
    assert(front <= slack && (uintptr_t)(base + front) % HUGE_BYTES == 0);
    if (slack - front)
        munmap(base + front + size, slack - front);
    return base + front;
}

void *memory_map(size_t bytes, int huge)
{
    if (bytes == 0 || bytes > SIZE_MAX - 2 * HUGE_BYTES)
        return NULL;
    size_t size = whole_pages(bytes), slack = huge && bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *base = map_pages(size, slack, PROT_READ | PROT_WRITE, 0);
    if (base && slack)
        madvise(base, size / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
    return base;
}

/* Kernels that do not know the advice know no fork either (sandboxes without processes). */
void *memory_map_alone(size_t bytes, int huge)
{
    void *base = memory_map(bytes, huge);
    if (base)
        madvise(base, whole_pages(bytes), MADV_DONTFORK);
    return base;
}

void memory_unmap(void *base, size_t bytes)
{
    if (base)
        munmap(base, whole_pages(bytes));
}

void *memory_for_read(size_t bytes)
{
    return bytes <= HEAP_READ_BYTES ? memory_aligned(4096, whole_pages(bytes)) : memory_map_alone(bytes, 0);
}

void memory_read_end(void *base, size_t bytes)
{
    if (bytes <= HEAP_READ_BYTES)
        memory_free(base);
    else
        memory_unmap(base, bytes);
}

void *memory_reserve(size_t bytes)
{
    if (bytes == 0 || bytes > SIZE_MAX - 2 * HUGE_BYTES)
        return NULL;
    size_t size = whole_pages(bytes), slack = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    return map_pages(size, slack, PROT_NONE, MAP_NORESERVE);
}

int memory_commit(void *base, size_t from, size_t to, int huge)
{
    size_t first = from & ~(size_t)4095, end = whole_pages(to);
    assert(from <= to && (uintptr_t)base % 4096 == 0);
    if (mprotect((char *)base + first, end - first, PROT_READ | PROT_WRITE) != 0)
        return QUIRE_ENOMEM;
    if (huge)
        madvise((char *)base + first, end - first, MADV_HUGEPAGE);
    return 0;
}

void *memory_aligned(size_t alignment, size_t bytes)
{
    void *base;
    return posix_memalign(&base, alignment, bytes ? bytes : 1) == 0 ? base : NULL;
}

void memory_free(void *base)
{
    free(base);
}

/* "Name:   123 kB" somewhere in text -> bytes. */
static uint64_t status_field(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

void memory_resident(struct memory_resident *out)
{
    char text[4096];
    memset(out, 0, sizeof *out);
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return;
    text[n] = 0;
    out->total = status_field(text, "\nVmRSS:");
    out->anonymous = status_field(text, "\nRssAnon:");
    out->file = status_field(text, "\nRssFile:");
    out->peak = status_field(text, "\nVmHWM:");
}
