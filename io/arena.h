/*
 * arena.h - memory that is taken piece by piece and given back as a whole; what was taken stays where it is.
 *
 *     struct arena arena = {0};
 *     char *name = arena_take(&arena, bytes);
 *     if (!name)
 *         return QUIRE_ENOMEM;
 *     ...
 *     arena_reset(&arena); // `name` is gone; the memory serves again
 *     arena_fini(&arena);
 *
 * An arena belongs to one thread.
 */
#ifndef QUIRE_IO_ARENA_H
#define QUIRE_IO_ARENA_H

#include <stddef.h>

struct arena_chunk;

/* Zeroed before first use. */
struct arena {
    struct arena_chunk *first, *current; /* owned; those behind `current` are empty */
    size_t held;                         /* bytes of memory, of all chunks */
};

/* Memory for `bytes` bytes, aligned for any type. NULL without memory. */
void *arena_take(struct arena *arena, size_t bytes);
/* Nothing is taken any more; the memory stays for what comes next. */
void arena_reset(struct arena *arena);
/* Frees everything; the arena is as new. */
void arena_fini(struct arena *arena);

#endif
