/*
 * arena.c - a list of chunks. A chunk has twice as much room as the one before it, up to CHUNK_BYTES_MAX, so that few
 * small things cost one small chunk; what is larger than that has a chunk of its own. Such a chunk is a mapping, which
 * goes back to the system when it is freed: an allocator keeps what was freed for a while, on each thread, and that
 * would be as much again as a search for large attributes may take.
 */
#include "io/arena.h"
#include "io/memory.h"
#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { CHUNK_BYTES_FIRST = 2048, CHUNK_BYTES_MAX = 65536, PAGE_BYTES = 4096 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, capacity;
    bool mapped;
    alignas(max_align_t) unsigned char bytes[];
};

/* A chunk with room for `need` behind the current one, or after a reset behind the first. */
static struct arena_chunk *add_chunk(struct arena *arena, size_t need)
{
    struct arena_chunk *at = arena->current ? arena->current : arena->first;
    size_t capacity = at ? 2 * at->capacity : CHUNK_BYTES_FIRST;
    capacity = capacity > CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX : capacity;
    capacity = capacity > need ? capacity : need;
    bool mapped = capacity > CHUNK_BYTES_MAX;
    size_t bytes = sizeof(struct arena_chunk) + capacity;
    if (mapped)
        bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    struct arena_chunk *chunk = mapped ? memory_map(bytes, 0) : malloc(bytes);
    if (!chunk)
        return NULL;
    *chunk = (struct arena_chunk){.next = at ? at->next : NULL, .capacity = bytes - sizeof *chunk, .mapped = mapped};
    *(at ? &at->next : &arena->first) = chunk;
    arena->held += bytes;
    return chunk;
}

void *arena_take(struct arena *arena, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t need = (bytes + align - 1) / align * align;
    struct arena_chunk *chunk = arena->current ? arena->current : arena->first;
    if (chunk && chunk->capacity - chunk->used < need && chunk->next && chunk->next->capacity >= need)
        chunk = chunk->next;
    if (!chunk || chunk->capacity - chunk->used < need)
        chunk = add_chunk(arena, need);
    if (!chunk)
        return NULL;
    arena->current = chunk;
    void *taken = chunk->bytes + chunk->used;
    chunk->used += need;
    assert(chunk->used <= chunk->capacity);
    return taken;
}

void arena_reset(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->first; chunk; chunk = chunk->next)
        chunk->used = 0;
    arena->current = NULL;
}

void arena_fini(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->first, *next; chunk; chunk = next) {
        next = chunk->next;
        if (chunk->mapped)
            memory_unmap(chunk, sizeof *chunk + chunk->capacity);
        else
            free(chunk);
    }
    *arena = (struct arena){0};
}
