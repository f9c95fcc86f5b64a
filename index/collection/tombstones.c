/*
 * tombstones.c - copies of tombstones, beside writers; tombstones.h says why they are right.
 */
#include "index/collection/tombstones.h"
#include "io/bitmap.h"
#include <assert.h>
#include <stdlib.h>

int tombstones_create(struct tombstones *t, struct part *const *parts, uint32_t n)
{
    *t = (struct tombstones){.parts = parts};
    t->logs = calloc(n + 1u, sizeof *t->logs);
    t->dead = calloc(n + 1u, sizeof *t->dead);
    bool all = t->logs && t->dead;
    t->n = all ? n : 0;
    for (uint32_t i = 0; i < t->n && all; i++)
        all = (t->dead[i] = malloc(parts[i]->dead_capacity / 8 + 1)) != NULL;
    if (all)
        return 0;
    tombstones_destroy(t);
    return QUIRE_ENOMEM;
}

void tombstones_begin(struct tombstones *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        part_log_begin(t->parts[i], &t->logs[i]);
}

/* Eight bytes of a bitmap, whose capacity is a multiple of 64 rows. */
typedef uint64_t __attribute__((may_alias)) bitmap_word;

void tombstones_copy(struct tombstones *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const bitmap_word *from = (const void *)t->parts[i]->dead;
        bitmap_word *to = (void *)t->dead[i];
        assert(t->parts[i]->dead_capacity % 64 == 0);
        for (uint64_t at = 0; at < t->parts[i]->dead_capacity / 64; at++)
            to[at] = __atomic_load_n(&from[at], __ATOMIC_RELAXED);
    }
}

void tombstones_end(struct tombstones *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        part_log_end(t->parts[i], &t->logs[i]);
}

int tombstones_settle(struct tombstones *t)
{
    int rc = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        struct dead_rows *rows = part_log_take(&t->logs[i]);
        rc = t->logs[i].failed ? QUIRE_ENOMEM : rc;
        for (const struct dead_rows *some = rows; some; some = some->next)
            for (uint32_t r = 0; r < some->n; r++)
                bitmap_remove_shared(t->dead[i], some->rows[r]);
        part_dead_rows_free(rows);
    }
    return rc;
}

void tombstones_destroy(struct tombstones *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        assert(!t->logs[i].next);
        part_dead_rows_free(part_log_take(&t->logs[i]));
        free(t->dead[i]);
    }
    free(t->logs);
    free(t->dead);
    *t = (struct tombstones){0};
}
