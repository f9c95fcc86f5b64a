/*
 * heap.h - binary heaps of any type, in an array of the caller's.
 *
 *     static inline bool hit_is_farther(const struct hit *a, const struct hit *b) { return a->distance > b->distance; }
 *     HEAP_DEFINE(hits, struct hit, hit_is_farther, HEAP_PLACE_UNKNOWN)
 *
 * defines hits_push, hits_offer and so on, which compare by a call that the compiler sees through. `before(a, b)` says
 * whether a belongs above b; that of which nothing is above is heap[0]. A heap of the k nearest has the farthest on
 * top. Where items must know where they are (to be removed from the middle), `placed(item, at)` is told each time one
 * moves.
 *
 * The caller owns the array and the count; `n` is always the number of items before the call.
 */
#ifndef QUIRE_IO_HEAP_H
#define QUIRE_IO_HEAP_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_PLACE_UNKNOWN(item, at) ((void)0)

#define HEAP_FUNCTION __attribute__((unused)) static inline

#define HEAP_DEFINE(name, type, before, placed)                                                                        \
    /* heap[at] may be too low: it rises. */                                                                           \
    HEAP_FUNCTION void name##_rise(type *heap, size_t at)                                                              \
    {                                                                                                                  \
        type item = heap[at];                                                                                          \
        for (; at > 0 && before(&item, &heap[(at - 1) / 2]); at = (at - 1) / 2) {                                      \
            heap[at] = heap[(at - 1) / 2];                                                                             \
            placed(&heap[at], at);                                                                                     \
        }                                                                                                              \
        heap[at] = item;                                                                                               \
        placed(&heap[at], at);                                                                                         \
    }                                                                                                                  \
                                                                                                                       \
    /* heap[at] may be too high: it sinks. */                                                                          \
    HEAP_FUNCTION void name##_sink(type *heap, size_t n, size_t at)                                                    \
    {                                                                                                                  \
        type item = heap[at];                                                                                          \
        for (size_t child; (child = 2 * at + 1) < n; at = child) {                                                     \
            if (child + 1 < n && before(&heap[child + 1], &heap[child]))                                               \
                child++;                                                                                               \
            if (!before(&heap[child], &item))                                                                          \
                break;                                                                                                 \
            heap[at] = heap[child];                                                                                    \
            placed(&heap[at], at);                                                                                     \
        }                                                                                                              \
        heap[at] = item;                                                                                               \
        placed(&heap[at], at);                                                                                         \
    }                                                                                                                  \
                                                                                                                       \
    /* There is space for one more: afterwards there are n + 1. */                                                     \
    HEAP_FUNCTION void name##_push(type *heap, size_t n, type item)                                                    \
    {                                                                                                                  \
        heap[n] = item;                                                                                                \
        name##_rise(heap, n);                                                                                          \
    }                                                                                                                  \
                                                                                                                       \
    /* Takes the top's place. n > 0. */                                                                                \
    HEAP_FUNCTION void name##_replace(type *heap, size_t n, type item)                                                 \
    {                                                                                                                  \
        heap[0] = item;                                                                                                \
        name##_sink(heap, n, 0);                                                                                       \
    }                                                                                                                  \
                                                                                                                       \
    /* Takes heap[at] out: afterwards there are n - 1. */                                                              \
    HEAP_FUNCTION void name##_remove(type *heap, size_t n, size_t at)                                                  \
    {                                                                                                                  \
        assert(at < n);                                                                                                \
        if (at == n - 1)                                                                                               \
            return;                                                                                                    \
        heap[at] = heap[n - 1];                                                                                        \
        if (at > 0 && before(&heap[at], &heap[(at - 1) / 2]))                                                          \
            name##_rise(heap, at);                                                                                     \
        else                                                                                                           \
            name##_sink(heap, n - 1, at);                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    /* Keeps the `capacity` items that are farthest below the top. Afterwards there are the returned number. */        \
    HEAP_FUNCTION size_t name##_offer(type *heap, size_t n, size_t capacity, type item)                                \
    {                                                                                                                  \
        if (n < capacity) {                                                                                            \
            name##_push(heap, n, item);                                                                                \
            return n + 1;                                                                                              \
        }                                                                                                              \
        if (n > 0 && before(&heap[0], &item))                                                                          \
            name##_replace(heap, n, item);                                                                             \
        return n;                                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    /* The item that was on top comes last; it is no heap any more. Unstable: `before` should tell all items apart. */ \
    HEAP_FUNCTION void name##_sort(type *heap, size_t n)                                                               \
    {                                                                                                                  \
        for (; n > 1; n--) {                                                                                           \
            type top = heap[0];                                                                                        \
            name##_replace(heap, n - 1, heap[n - 1]);                                                                  \
            heap[n - 1] = top;                                                                                         \
            placed(&heap[n - 1], n - 1);                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    /* Whether none stands above one that belongs above it: for tests and asserts. */                                  \
    HEAP_FUNCTION bool name##_check(type *heap, size_t n)                                                              \
    {                                                                                                                  \
        for (size_t at = 1; at < n; at++)                                                                              \
            if (before(&heap[at], &heap[(at - 1) / 2]))                                                                \
                return false;                                                                                          \
        return true;                                                                                                   \
    }

#endif
