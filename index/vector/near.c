/*
 * near.c - selecting and sorting numbers of distance and row.
 *
 * Candidates come by the thousand and a few dozen are kept, so selecting comes first and only what is kept is sorted.
 * Neither has a branch that depends on the data: distances come in no order, and a branch on them would be mispredicted
 * every other time.
 */
#include "index/vector/near.h"
#include <stdbool.h>

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void near_select(near_t *items, uint32_t n, uint32_t keep)
{
    uint32_t begin = 0, end = n;
    while (end - begin > 1 && keep > begin && keep < end) {
        near_t a = items[begin], b = items[begin + (end - begin) / 2], c = items[end - 1];
        near_t low = a < b ? a : b, high = a < b ? b : a, pivot = c < low ? low : c > high ? high : c;
        uint32_t split = begin;
        /* no branch depends on the data: everything is swapped, the split moves where it was smaller */
        for (uint32_t i = begin; i < end; i++) {
            near_t x = items[i];
            items[i] = items[split];
            items[split] = x;
            split += x < pivot;
        }
        if (split == begin) {
            /* the pivot is the smallest of all: to the front with it */
            uint32_t at = begin;
            while (items[at] != pivot)
                at++;
            items[at] = items[begin];
            items[begin++] = pivot;
        } else if (keep <= split) {
            end = split;
        } else {
            begin = split;
        }
    }
}

/* Bottom-up merge sort; spare has room for n. */
static void sort(near_t *items, uint32_t n, near_t *spare)
{
    near_t *from = items, *to = spare;
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t at = 0; at < n; at += 2 * width) {
            uint32_t i = at, middle = smaller(at + width, n), j = middle, end = smaller(at + 2 * width, n);
            for (uint32_t k = at; k < end; k++) {
                bool left = j >= end || (i < middle && from[i] < from[j]);
                to[k] = left ? from[i] : from[j];
                i += left;
                j += !left;
            }
        }
        near_t *t = from;
        from = to;
        to = t;
    }
    if (from != items)
        memcpy(items, from, sizeof *items * n);
}

uint32_t near_keep_sorted(near_t *items, uint32_t n, uint32_t keep, near_t *spare)
{
    if (n > keep) {
        near_select(items, n, keep);
        n = keep;
    }
    sort(items, n, spare);
    return n;
}
