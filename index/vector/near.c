/*
 * near.c - selecting and sorting numbers of distance and row.
 *
 * Candidates come by the thousand and a few dozen are kept, so selecting comes first and only what is kept is sorted.
 * Neither has a branch that depends on the data: distances come in no order, and a branch on them would be mispredicted
 * every other time.
 */
#include "index/vector/near.h"
#include <assert.h>
#include <math.h>

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

/* Bottom-up merge sort; spare holds n. */
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

/* Hoare's selection: afterwards keys[0..cut) <= keys[cut..n). */
static void select_around(float *keys, uint32_t n, uint32_t cut)
{
    uint32_t begin = 0, end = n;
    while (end - begin > 1) {
        uint32_t middle = begin + (end - begin) / 2;
        float a = keys[begin], b = keys[middle], c = keys[end - 1];
        float pivot = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
        uint32_t i = begin, j = end - 1;
        for (;;) {
            while (keys[i] < pivot)
                i++;
            while (keys[j] > pivot)
                j--;
            if (i >= j)
                break;
            float key = keys[i];
            keys[i++] = keys[j];
            keys[j--] = key;
        }
        /* [begin, j] <= pivot <= [j + 1, end) once i >= j; both sides are shorter than the whole */
        uint32_t split = i == j ? i : j + 1;
        if (split == begin)
            split++;
        if (split == end)
            split--;
        if (cut < split)
            end = split;
        else if (cut > split)
            begin = split;
        else
            return;
    }
}

struct near_limit near_limit_of(float *keys, uint32_t n, uint32_t left)
{
    struct near_limit limit = {-INFINITY, 0};
    assert(left <= n);
    select_around(keys, n, left);
    for (uint32_t i = 0; i < left; i++)
        limit.value = fmaxf(limit.value, keys[i]);
    for (uint32_t i = 0; i < left; i++)
        limit.ties += keys[i] == limit.value;
    assert(limit.ties > 0 || left == 0);
    return limit;
}
