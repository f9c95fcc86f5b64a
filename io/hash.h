/*
 * hash.h - hash tables of any type, by open addressing.
 *
 *     static inline bool count_is_set(const struct count *c) { return c->name != NULL; }
 *     static inline uint64_t count_hash(const struct count *c) { return key_hash(c->name, c->bytes); }
 *     static inline bool count_is_same(const struct count *a, const struct count *b) { ... }
 *     HASH_DEFINE(counts, struct count, count_is_set, count_hash, count_is_same)
 *
 * defines struct counts and counts_find, counts_add and so on. A zeroed table is empty, a zeroed item an empty place;
 * the items' own memory is the caller's. Places move when the table grows and when an item is removed. To walk them:
 *
 *     for (uint64_t i = 0; i < table.capacity; i++)
 *         if (count_is_set(&table.places[i])) ...
 */
#ifndef QUIRE_IO_HASH_H
#define QUIRE_IO_HASH_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HASH_CAPACITY_MIN 64u

#define HASH_FUNCTION __attribute__((unused)) static inline

#define HASH_DEFINE(name, type, is_set, hash_of, is_same)                                                              \
    struct name {                                                                                                      \
        type *places;                                                                                                  \
        uint64_t n, capacity; /* capacity: a power of two, or 0 */                                                     \
    };                                                                                                                 \
                                                                                                                       \
    /* Where an item like this is, or would be. There is an empty place. */                                            \
    HASH_FUNCTION type *name##_place(const struct name *table, const type *like)                                       \
    {                                                                                                                  \
        uint64_t at = hash_of(like) & (table->capacity - 1);                                                           \
        assert(table->n < table->capacity);                                                                            \
        while (is_set(&table->places[at]) && !is_same(&table->places[at], like))                                       \
            at = (at + 1) & (table->capacity - 1);                                                                     \
        return &table->places[at];                                                                                     \
    }                                                                                                                  \
                                                                                                                       \
    /* NULL: there is none like this. */                                                                               \
    HASH_FUNCTION type *name##_find(const struct name *table, const type *like)                                        \
    {                                                                                                                  \
        type *place = table->n > 0 ? name##_place(table, like) : NULL;                                                 \
        return place && is_set(place) ? place : NULL;                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* Space for one more; false without memory. A table that cannot grow is filled up but for one place. */           \
    HASH_FUNCTION bool name##_reserve(struct name *table)                                                              \
    {                                                                                                                  \
        struct name bigger = {.n = table->n, .capacity = table->capacity ? 2 * table->capacity : HASH_CAPACITY_MIN};   \
        if (4 * (table->n + 1) <= 3 * table->capacity)                                                                 \
            return true;                                                                                               \
        bigger.places = calloc(bigger.capacity, sizeof *bigger.places);                                                \
        if (!bigger.places)                                                                                            \
            return table->n + 1 < table->capacity;                                                                     \
        for (uint64_t i = 0; i < table->capacity; i++)                                                                 \
            if (is_set(&table->places[i]))                                                                             \
                *name##_place(&bigger, &table->places[i]) = table->places[i];                                          \
        free(table->places);                                                                                           \
        *table = bigger;                                                                                               \
        return true;                                                                                                   \
    }                                                                                                                  \
                                                                                                                       \
    /* Its place; NULL without memory. None like it is there. */                                                       \
    HASH_FUNCTION type *name##_add(struct name *table, type item)                                                      \
    {                                                                                                                  \
        if (!name##_reserve(table))                                                                                    \
            return NULL;                                                                                               \
        type *place = name##_place(table, &item);                                                                      \
        assert(is_set(&item) && !is_set(place));                                                                       \
        *place = item;                                                                                                 \
        table->n++;                                                                                                    \
        return place;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* Takes the item out of its place; those behind it move up. */                                                    \
    HASH_FUNCTION void name##_remove(struct name *table, type *place)                                                  \
    {                                                                                                                  \
        uint64_t mask = table->capacity - 1, hole = (uint64_t)(place - table->places);                                 \
        assert(table->n > 0 && hole <= mask && is_set(place));                                                         \
        for (uint64_t at = (hole + 1) & mask; is_set(&table->places[at]); at = (at + 1) & mask)                        \
            if (((at - hash_of(&table->places[at])) & mask) >= ((at - hole) & mask)) {                                 \
                table->places[hole] = table->places[at];                                                               \
                hole = at;                                                                                             \
            }                                                                                                          \
        memset(&table->places[hole], 0, sizeof *place);                                                                \
        table->n--;                                                                                                    \
    }

#endif
