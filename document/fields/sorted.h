/*
 * sorted.h - items of any type in order, which come and go: an array of blocks, each a sorted array.
 *
 *     static inline bool pair_is_before(const void *context, struct pair a, struct pair b) { ... }
 *     SORTED_DEFINE(pairs, struct pair, pair_is_before)
 *
 * defines struct pairs and pairs_insert and so on. `before` is a strict order of all items; `context` is handed through
 * to it. A zeroed struct is empty. An item is found by two binary searches, and put in by moving half a block; items
 * that come in ascending order fill their blocks. Two levels, where a B-tree would have more: a block that is split
 * moves the array of blocks, 8 bytes a block, once in some hundred insertions.
 *
 * A place is a block and an index in it; it is valid until items come or go. To walk from one:
 *
 *     struct sorted_place at = pairs_lower_bound(&pairs, context, first);
 *     for (; pairs_at(&pairs, &at, &item); at.index++)
 */
#ifndef QUIRE_DOCUMENT_SORTED_H
#define QUIRE_DOCUMENT_SORTED_H

#include "io/array.h"
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SORTED_BLOCK 256u /* items */

struct sorted_place {
    uint32_t block, index;
};

#define SORTED_FUNCTION __attribute__((unused)) static inline

#define SORTED_DEFINE(name, type, before)                                                                              \
    struct name##_block {                                                                                              \
        uint32_t n; /* at least 1 */                                                                                   \
        type items[SORTED_BLOCK];                                                                                      \
    };                                                                                                                 \
    struct name {                                                                                                      \
        struct name##_block **blocks; /* owned */                                                                      \
        uint32_t n_blocks, capacity;                                                                                   \
        uint64_t n;                                                                                                    \
    };                                                                                                                 \
                                                                                                                       \
    SORTED_FUNCTION void name##_fini(struct name *sorted)                                                              \
    {                                                                                                                  \
        for (uint32_t i = 0; i < sorted->n_blocks; i++)                                                                \
            free(sorted->blocks[i]);                                                                                   \
        free(sorted->blocks);                                                                                          \
        memset(sorted, 0, sizeof *sorted);                                                                             \
    }                                                                                                                  \
                                                                                                                       \
    SORTED_FUNCTION uint64_t name##_bytes(const struct name *sorted)                                                   \
    {                                                                                                                  \
        return sorted->n_blocks * (uint64_t)sizeof **sorted->blocks + sorted->capacity * (uint64_t)sizeof(void *);     \
    }                                                                                                                  \
                                                                                                                       \
    /* The first item that is not before `item`; behind the last where there is none. */                               \
    SORTED_FUNCTION struct sorted_place name##_lower_bound(const struct name *sorted, const void *context, type item)  \
    {                                                                                                                  \
        uint32_t first = 0, n = sorted->n_blocks;                                                                      \
        while (n > 0) { /* the first block whose last item is not before it */                                         \
            uint32_t half = n / 2;                                                                                     \
            const struct name##_block *block = sorted->blocks[first + half];                                           \
            if (before(context, block->items[block->n - 1], item)) {                                                   \
                first += half + 1;                                                                                     \
                n -= half + 1;                                                                                         \
            } else {                                                                                                   \
                n = half;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        struct sorted_place place = {.block = first};                                                                  \
        for (n = first < sorted->n_blocks ? sorted->blocks[first]->n : 0; n > 0;) {                                    \
            uint32_t half = n / 2;                                                                                     \
            if (before(context, sorted->blocks[first]->items[place.index + half], item)) {                             \
                place.index += half + 1;                                                                               \
                n -= half + 1;                                                                                         \
            } else {                                                                                                   \
                n = half;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        return place;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* The item of a place; false behind the last. A place behind its block's last goes to the next block. */          \
    SORTED_FUNCTION bool name##_at(const struct name *sorted, struct sorted_place *place, type *item)                  \
    {                                                                                                                  \
        if (place->block < sorted->n_blocks && place->index >= sorted->blocks[place->block]->n)                        \
            *place = (struct sorted_place){.block = place->block + 1};                                                 \
        if (place->block >= sorted->n_blocks)                                                                          \
            return false;                                                                                              \
        *item = sorted->blocks[place->block]->items[place->index];                                                     \
        return true;                                                                                                   \
    }                                                                                                                  \
                                                                                                                       \
    /* A new block in front of block `at`. */                                                                          \
    SORTED_FUNCTION struct name##_block *name##_new_block(struct name *sorted, uint32_t at)                            \
    {                                                                                                                  \
        if (!array_reserve(&sorted->blocks, &sorted->capacity, (size_t)sorted->n_blocks + 1))                          \
            return NULL;                                                                                               \
        struct name##_block *block = malloc(sizeof *block);                                                            \
        if (!block)                                                                                                    \
            return NULL;                                                                                               \
        block->n = 0;                                                                                                  \
        memmove(&sorted->blocks[at + 1], &sorted->blocks[at], (sorted->n_blocks - at) * sizeof *sorted->blocks);       \
        sorted->blocks[at] = block;                                                                                    \
        sorted->n_blocks++;                                                                                            \
        return block;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* None like it is there. False without memory: nothing has changed. */                                            \
    SORTED_FUNCTION bool name##_insert(struct name *sorted, const void *context, type item)                            \
    {                                                                                                                  \
        struct sorted_place place = name##_lower_bound(sorted, context, item);                                         \
        bool at_end = place.block == sorted->n_blocks;                                                                 \
        if (at_end && sorted->n_blocks > 0)                                                                            \
            place = (struct sorted_place){sorted->n_blocks - 1, sorted->blocks[sorted->n_blocks - 1]->n};              \
        struct name##_block *block = sorted->n_blocks > 0 ? sorted->blocks[place.block] : NULL;                        \
        if (!block || (block->n == SORTED_BLOCK && at_end)) {                                                          \
            /* behind everything: the full block stays full */                                                         \
            block = name##_new_block(sorted, sorted->n_blocks);                                                        \
            if (!block)                                                                                                \
                return false;                                                                                          \
            place.index = 0;                                                                                           \
        } else if (block->n == SORTED_BLOCK) {                                                                         \
            struct name##_block *upper = name##_new_block(sorted, place.block + 1);                                    \
            if (!upper)                                                                                                \
                return false;                                                                                          \
            block->n = SORTED_BLOCK / 2;                                                                               \
            upper->n = SORTED_BLOCK - block->n;                                                                        \
            memcpy(upper->items, &block->items[block->n], upper->n * sizeof item);                                     \
            if (place.index > block->n) {                                                                              \
                place.index -= block->n;                                                                               \
                block = upper;                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
        memmove(&block->items[place.index + 1], &block->items[place.index], (block->n - place.index) * sizeof item);   \
        block->items[place.index] = item;                                                                              \
        block->n++;                                                                                                    \
        sorted->n++;                                                                                                   \
        return true;                                                                                                   \
    }                                                                                                                  \
                                                                                                                       \
    /* The item at the place is gone; the place is that of the next one. */                                            \
    SORTED_FUNCTION void name##_remove_at(struct name *sorted, struct sorted_place place)                              \
    {                                                                                                                  \
        assert(place.block < sorted->n_blocks && place.index < sorted->blocks[place.block]->n);                        \
        struct name##_block *block = sorted->blocks[place.block];                                                      \
        block->n--;                                                                                                    \
        sorted->n--;                                                                                                   \
        memmove(&block->items[place.index], &block->items[place.index + 1],                                            \
                (block->n - place.index) * sizeof *block->items);                                                      \
        if (block->n == 0) {                                                                                           \
            free(block);                                                                                               \
            sorted->n_blocks--;                                                                                        \
            memmove(&sorted->blocks[place.block], &sorted->blocks[place.block + 1],                                    \
                    (sorted->n_blocks - place.block) * sizeof *sorted->blocks);                                        \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    /* Whether one like it was there. */                                                                               \
    SORTED_FUNCTION bool name##_remove(struct name *sorted, const void *context, type item)                            \
    {                                                                                                                  \
        type found;                                                                                                    \
        struct sorted_place place = name##_lower_bound(sorted, context, item);                                         \
        if (!name##_at(sorted, &place, &found) || before(context, item, found))                                        \
            return false;                                                                                              \
        name##_remove_at(sorted, place);                                                                               \
        return true;                                                                                                   \
    }

#endif
