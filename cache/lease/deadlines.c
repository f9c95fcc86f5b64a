/*
 * deadlines.c - a binary heap of deadlines (Williams, 1964) with the place of every item written back to its owner.
 *
 * Times stand in the heap itself, so that finding the way of an item reads no owner's memory; only moves write there.
 * Deadlines mostly come in the order in which they pass, which makes adding O(1) and removing the latest O(1); all
 * else is O(log n). Buckets by time would remove in O(1) always, but have to be looked through for the next deadline
 * and want a step that suits both a wait of 50 ms and a lease of minutes.
 */
#include "cache/lease/deadlines.h"
#include "io/memory.h"
#include "quire.h"
#include <assert.h>
#include <stdlib.h>

int deadlines_init(struct deadlines *deadlines, uint32_t max)
{
    *deadlines = (struct deadlines){.items = malloc(memory_size_mul(max, sizeof *deadlines->items)), .max = max};
    return deadlines->items ? 0 : QUIRE_ENOMEM;
}

void deadlines_fini(struct deadlines *deadlines)
{
    free(deadlines->items);
    *deadlines = (struct deadlines){0};
}

static void put(struct deadlines *deadlines, uint32_t place, struct deadline item)
{
    deadlines->items[place] = item;
    *item.place = place;
}

/* Both move the gap at `place` until `item` may stand there. */
static void put_above(struct deadlines *deadlines, uint32_t place, struct deadline item)
{
    while (place > 0 && item.at_ms < deadlines->items[(place - 1) / 2].at_ms) {
        put(deadlines, place, deadlines->items[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(deadlines, place, item);
}

void deadlines_add(struct deadlines *deadlines, uint64_t at_ms, void *owner, uint32_t *place)
{
    assert(deadlines->n < deadlines->max);
    put_above(deadlines, deadlines->n++, (struct deadline){at_ms, owner, place});
    assert(deadlines->items[*place].owner == owner);
}

void deadlines_remove(struct deadlines *deadlines, uint32_t place)
{
    assert(place < deadlines->n && deadlines->items[place].place && *deadlines->items[place].place == place);
    struct deadline last = deadlines->items[--deadlines->n];
    if (place == deadlines->n)
        return;
    if (last.at_ms < deadlines->items[place].at_ms) {
        put_above(deadlines, place, last);
    } else {
        for (;;) {
            uint64_t child = 2ull * place + 1;
            if (child + 1 < deadlines->n && deadlines->items[child + 1].at_ms < deadlines->items[child].at_ms)
                child++;
            if (child >= deadlines->n || deadlines->items[child].at_ms >= last.at_ms)
                break;
            put(deadlines, place, deadlines->items[child]);
            place = (uint32_t)child;
        }
        put(deadlines, place, last);
    }
}

void *deadlines_due(const struct deadlines *deadlines, uint64_t now_ms)
{
    return deadlines->n && deadlines->items[0].at_ms <= now_ms ? deadlines->items[0].owner : NULL;
}

uint64_t deadlines_next(const struct deadlines *deadlines)
{
    return deadlines->n ? deadlines->items[0].at_ms : UINT64_MAX;
}
