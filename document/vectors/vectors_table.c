/*
 * vectors_table.c - numbers and ids of documents.
 *
 * Free numbers are a queue, so that the one that was freed longest ago is taken first: if a search under way had begun
 * before that was freed, it had begun before all others were, too, and a new number is made instead.
 */
#include "document/vectors/vectors_table.h"
#include "io/array.h"
#include "io/bitmap.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#define DEAD_IDS_MIN 1024u
#define WALK_SHARE   16u /* with one of so many ids, or fewer, each is looked up */
#define IDS_AT_ONCE  512u

void vectors_table_init(struct vectors_table *t)
{
    *t = (struct vectors_table){.free_first = NUMBER_NONE, .free_last = NUMBER_NONE};
}

void vectors_table_fini(struct vectors_table *t)
{
    assert(!t->oldest && !t->newest);
    free(t->entries);
    free(t->by_id);
    vectors_table_init(t);
}

uint64_t vectors_table_bytes(const struct vectors_table *t)
{
    return (uint64_t)t->capacity * sizeof *t->entries + (uint64_t)t->ids_capacity * sizeof *t->by_id;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

/* The first place from `at` on whose id is not below it. */
static uint32_t place_of(const struct vectors_table *t, uint32_t at, uint32_t id)
{
    uint64_t low = at, high = t->n_ids, step = 1, place;
    while (low + step < high && t->by_id[low + step].id < id) {
        low += step;
        step *= 2;
    }
    high = low + step < high ? low + step : high;
    array_find_first(place, low, high, t->by_id[place].id < id);
    return (uint32_t)place;
}

static bool is_at(const struct vectors_table *t, uint32_t place, uint32_t id)
{
    return place < t->n_ids && t->by_id[place].id == id && t->by_id[place].number != NUMBER_NONE;
}

uint32_t vectors_table_find(const struct vectors_table *t, uint32_t id)
{
    uint32_t place = place_of(t, 0, id);
    return id != VECTORS_NO_ID && is_at(t, place, id) ? t->by_id[place].number : NUMBER_NONE;
}

/* Leaves those that are used. */
static void sweep(struct vectors_table *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_ids; i++)
        if (t->by_id[i].number != NUMBER_NONE)
            t->by_id[n++] = t->by_id[i];
    assert(n == t->n_documents);
    t->n_ids = n;
}

void vectors_table_unname(struct vectors_table *t, uint32_t number)
{
    assert(number < t->end);
    struct vectors_entry *entry = &t->entries[number];
    if (entry->id == VECTORS_NO_ID)
        return;
    uint32_t place = place_of(t, 0, entry->id);
    assert(is_at(t, place, entry->id) && t->by_id[place].number == number && t->n_documents > 0);
    t->by_id[place].number = NUMBER_NONE;
    entry->id = VECTORS_NO_ID;
    t->n_documents--;
    if (t->n_ids - t->n_documents > t->n_documents + DEAD_IDS_MIN)
        sweep(t);
}

void vectors_table_name(struct vectors_table *t, uint32_t number, uint32_t id, uint64_t digest)
{
    assert(number < t->end && id != VECTORS_NO_ID);
    vectors_table_unname(t, number);
    assert(t->n_ids < t->ids_capacity && (t->n_ids == 0 || t->by_id[t->n_ids - 1].id < id));
    t->entries[number].id = id;
    t->entries[number].digest = digest;
    t->by_id[t->n_ids++] = (struct vectors_id){id, number};
    t->n_documents++;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

int vectors_table_reserve(struct vectors_table *t)
{
    if (t->end == NUMBER_NONE - 1)
        return QUIRE_ELIMIT;
    bool reserved = array_reserve(&t->entries, &t->capacity, (size_t)t->end + 1) &&
                    array_reserve(&t->by_id, &t->ids_capacity, (size_t)t->n_ids + 1);
    return reserved ? 0 : QUIRE_ENOMEM;
}

uint32_t vectors_table_take(struct vectors_table *t)
{
    uint32_t number = t->free_first;
    bool is_seen = number != NUMBER_NONE && t->oldest && t->oldest->began <= t->entries[number].digest;
    if (number == NUMBER_NONE || is_seen) {
        assert(t->end < t->capacity);
        number = t->end++;
    } else {
        t->free_first = t->entries[number].next;
        if (t->free_first == NUMBER_NONE)
            t->free_last = NUMBER_NONE;
    }
    t->entries[number] = (struct vectors_entry){.id = VECTORS_NO_ID, .next = NUMBER_NONE};
    return number;
}

void vectors_table_give_back(struct vectors_table *t, uint32_t number)
{
    vectors_table_unname(t, number);
    t->entries[number] = (struct vectors_entry){.digest = t->n_begun, .id = VECTORS_NO_ID, .next = NUMBER_NONE};
    if (t->free_last == NUMBER_NONE)
        t->free_first = number;
    else
        t->entries[t->free_last].next = number;
    t->free_last = number;
}

int vectors_table_restore(struct vectors_table *t, uint32_t end, const uint8_t *taken)
{
    assert(t->end == 0 && t->n_ids == 0);
    if (!array_reserve(&t->entries, &t->capacity, end))
        return QUIRE_ENOMEM;
    t->end = end;
    for (uint32_t number = 0; number < end; number++) {
        t->entries[number] = (struct vectors_entry){.id = VECTORS_NO_ID, .next = NUMBER_NONE};
        if (!bitmap_has(taken, number))
            vectors_table_give_back(t, number);
    }
    return 0;
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

int vectors_table_select(const struct vectors_table *t, const roaring_bitmap_t *ids, struct number_set *out)
{
    uint64_t asked = roaring_bitmap_get_cardinality(ids);
    uint32_t some[IDS_AT_ONCE], n, place = 0;
    int rc = number_set_init(out, t->end, asked < t->n_documents ? (uint32_t)asked : t->n_documents);
    if (rc < 0)
        return rc;
    bool look_up = asked <= t->n_ids / WALK_SHARE;
    roaring_uint32_iterator_t at;
    roaring_init_iterator(ids, &at);
    while ((n = roaring_read_uint32_iterator(&at, some, IDS_AT_ONCE)) > 0)
        for (uint32_t i = 0; i < n; i++) {
            if (look_up)
                place = place_of(t, place, some[i]);
            while (place < t->n_ids && t->by_id[place].id < some[i])
                place++;
            if (is_at(t, place, some[i]))
                number_set_add(out, t->by_id[place].number);
        }
    number_set_finish(out);
    return 0;
}

/* ---- searches ---------------------------------------------------------------------------------------------------- */

void vectors_table_search_begins(struct vectors_table *t, struct vectors_ticket *ticket)
{
    *ticket = (struct vectors_ticket){.previous = t->newest, .began = ++t->n_begun};
    if (t->newest)
        t->newest->next = ticket;
    else
        t->oldest = ticket;
    t->newest = ticket;
}

void vectors_table_search_ends(struct vectors_table *t, struct vectors_ticket *ticket)
{
    assert(ticket->began > 0 && ticket->began <= t->n_begun);
    if (ticket->previous)
        ticket->previous->next = ticket->next;
    else
        t->oldest = ticket->next;
    if (ticket->next)
        ticket->next->previous = ticket->previous;
    else
        t->newest = ticket->previous;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

bool vectors_table_check(const struct vectors_table *t, const char **reason)
{
    uint32_t n = 0, n_free = 0, n_named = 0;
    *reason = NULL;
    for (uint32_t i = 0; i < t->n_ids; i++) {
        const struct vectors_id *at = &t->by_id[i];
        if (i > 0 && t->by_id[i - 1].id >= at->id)
            *reason = "ids do not ascend";
        if (at->number == NUMBER_NONE)
            continue;
        n++;
        if (at->number >= t->end || t->entries[at->number].id != at->id)
            *reason = "an id and its number do not agree";
    }
    for (uint32_t number = 0; number < t->end; number++)
        n_named += t->entries[number].id != VECTORS_NO_ID;
    for (uint32_t number = t->free_first; number != NUMBER_NONE && n_free <= t->end; n_free++) {
        if (t->entries[number].id != VECTORS_NO_ID ||
            (t->entries[number].next == NUMBER_NONE) != (number == t->free_last))
            *reason = "the queue of free numbers is broken";
        number = t->entries[number].next;
    }
    if (n != t->n_documents || n_named != n || n_free + n > t->end)
        *reason = "counts do not agree";
    return !*reason;
}
