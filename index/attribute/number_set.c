/* number_set.c - sets of numbers of elements. */
#include "index/attribute/number_set.h"
#include "io/array.h"
#include "quire.h"
#include <assert.h>
#include <stdlib.h>

#define LIST_SHARE                                                                                                     \
    32u /* one of so many numbers, or less, is few: a look-up of each costs less than a look at all rows */

int number_set_init(struct number_set *set, uint32_t end, uint32_t n)
{
    *set = (struct number_set){.end = end, .list_capacity = n <= end / LIST_SHARE ? n : 0};
    set->bits = calloc((size_t)end / 64 + 1, sizeof *set->bits);
    if (set->list_capacity)
        set->list = malloc(sizeof *set->list * set->list_capacity);
    if (set->bits && (set->list || !set->list_capacity))
        return 0;
    number_set_fini(set);
    return QUIRE_ENOMEM;
}

void number_set_add(struct number_set *set, uint32_t number)
{
    assert(number < set->end && !number_set_has(set, number));
    set->bits[number / 64] |= 1ull << number % 64;
    if (set->list) {
        assert(set->n < set->list_capacity);
        set->list[set->n] = number;
    }
    set->n++;
}

void number_set_finish(struct number_set *set)
{
    if (set->list)
        array_sort_u32(set->list, set->n);
}

void number_set_fini(struct number_set *set)
{
    free(set->bits);
    free(set->list);
    *set = (struct number_set){.n = 0};
}
