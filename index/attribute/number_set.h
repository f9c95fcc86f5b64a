/*
 * number_set.h - numbers of elements: those that a search may answer.
 *
 * The elements of a numbered collection (collection.h) have names that begin with a number. Numbers are small: a set is
 * a bit for each below its end, and where they are few also a list.
 * Made by one thread; then immutable, and any may ask.
 */
#ifndef QUIRE_INDEX_NUMBER_SET_H
#define QUIRE_INDEX_NUMBER_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUMBER_BYTES 4u /* of an element's name, most significant first */

struct number_set {
    uint32_t n, end; /* numbers; all of them are below end */
    uint64_t *bits;  /* owned */
    uint32_t *list;  /* n, ascending; NULL: they are many; owned */
    uint32_t list_capacity;
};

/* An empty set of numbers below end, which n of them will be added to at most. QUIRE_ENOMEM. */
int number_set_init(struct number_set *set, uint32_t end, uint32_t n);
void number_set_add(struct number_set *set, uint32_t number); /* < end; each once, in any order */
void number_set_finish(struct number_set *set);               /* after the last */
void number_set_fini(struct number_set *set);                 /* of zeros, too */

static inline bool number_set_has(const struct number_set *set, uint32_t number)
{
    return number < set->end && (set->bits[number / 64] >> number % 64 & 1);
}

/* The number that a name begins with; bytes >= NUMBER_BYTES. */
static inline uint32_t number_of_name(const void *name)
{
    const uint8_t *at = name;
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void number_to_name(uint32_t number, void *name)
{
    uint8_t *at = name;
    at[0] = (uint8_t)(number >> 24);
    at[1] = (uint8_t)(number >> 16);
    at[2] = (uint8_t)(number >> 8);
    at[3] = (uint8_t)number;
}

#endif
