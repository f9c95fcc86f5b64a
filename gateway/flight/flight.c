/*
 * flight.c - pieces of an answer that many read, and who reads them.
 *
 * Pieces lie one behind the other in one block of memory, with a small record each. As long as all of them fit the
 * limit none is dropped, so that whoever joins late reads from the first. When they no longer fit, the flight is
 * closed, and from then on it keeps what its slowest member has not read: a window of WINDOW_BYTES, above which the
 * source pauses.
 *
 * Waking. A member's callback may leave, join others, or make the source finish the flight, so the walk over the
 * members keeps its place in the flight (leaving moves it on), and what happens during a walk makes it go round once
 * more.
 */
#include "gateway/flight/flight.h"
#include "io/array.h"
#include "io/hash.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES 65536u

struct piece_record {
    uint64_t at; /* in all bytes of the flight */
    uint32_t bytes;
    uint32_t flags;
};

struct flight {
    struct flight_table *table;
    uint8_t key[FLIGHT_KEY_BYTES];
    bool in_table, released, closed, dropped, walking, again, was_full;
    bool mixed; /* some pieces are not kept */
    enum flight_end end;
    struct flight_source source;
    size_t limit;
    void *head;
    void (*release_head)(void *head);
    char *data;
    size_t data_bytes, data_capacity;
    uint64_t data_from; /* of all bytes, the first in `data` */
    struct piece_record *pieces;
    uint32_t n_pieces, pieces_capacity;
    uint64_t pieces_from; /* of all pieces, the first in `pieces` */
    struct flight_member *first, *last, *walk;
    unsigned n_members;
};

struct flight_place {
    struct flight *flight;
    const uint8_t *key;
};

static inline bool flight_place_is_set(const struct flight_place *place)
{
    return place->flight != NULL;
}

/* Keys are SHA-256. */
static inline uint64_t flight_place_hash(const struct flight_place *place)
{
    uint64_t hash;
    memcpy(&hash, place->key, sizeof hash);
    return hash;
}

static inline bool flight_place_is_same(const struct flight_place *a, const struct flight_place *b)
{
    return memcmp(a->key, b->key, FLIGHT_KEY_BYTES) == 0;
}
HASH_DEFINE(flight_places, struct flight_place, flight_place_is_set, flight_place_hash, flight_place_is_same)

struct flight_table {
    struct flight_places places;
    unsigned n, n_max;
};

struct flight_table *flight_table_create(unsigned flights_max)
{
    struct flight_table *table = calloc(1, sizeof *table);
    if (table)
        table->n_max = flights_max;
    return table;
}

void flight_table_destroy(struct flight_table *table)
{
    if (!table)
        return;
    assert(table->n == 0);
    free(table->places.places);
    free(table);
}

unsigned flight_table_n(const struct flight_table *table)
{
    return table->n;
}

struct flight *flight_find(const struct flight_table *table, const uint8_t key[FLIGHT_KEY_BYTES])
{
    struct flight_place like = {.key = key}, *place = flight_places_find(&table->places, &like);
    return place ? place->flight : NULL;
}

static void add_member(struct flight *flight, struct flight_member *member)
{
    assert(!member->flight && member->wake);
    member->flight = flight;
    member->previous = flight->last;
    member->next = NULL;
    member->piece = 0;
    member->awake = true;
    *(flight->last ? &flight->last->next : &flight->first) = member;
    flight->last = member;
    flight->n_members++;
}

struct flight *flight_open(struct flight_table *table, const uint8_t *key, size_t limit,
                           const struct flight_source *source, struct flight_member *member)
{
    struct flight *flight;
    if (table->n >= table->n_max || !(flight = calloc(1, sizeof *flight)))
        return NULL;
    flight->table = table;
    flight->limit = limit;
    flight->source = *source;
    flight->closed = true;
    if (key && !flight_find(table, key)) {
        memcpy(flight->key, key, FLIGHT_KEY_BYTES);
        struct flight_place place = {.flight = flight, .key = flight->key};
        flight->in_table = flight_places_add(&table->places, place) != NULL;
        flight->closed = !flight->in_table;
    }
    table->n++;
    if (member)
        add_member(flight, member);
    return flight;
}

void *flight_context(const struct flight *flight)
{
    assert(!flight->released);
    return flight->source.context;
}

void flight_join(struct flight *flight, struct flight_member *member)
{
    assert(!flight->closed && !flight->dropped && flight->end != FLIGHT_BROKEN);
    add_member(flight, member);
}

static void free_flight(struct flight *flight)
{
    assert(!flight->in_table && flight->n_members == 0 && flight->released);
    flight->table->n--;
    if (flight->head && flight->release_head)
        flight->release_head(flight->head);
    free(flight->data);
    free(flight->pieces);
    free(flight);
}

static void free_if_done(struct flight *flight)
{
    if (flight->released && flight->n_members == 0 && !flight->walking)
        free_flight(flight);
}

unsigned flight_members(const struct flight *flight)
{
    return flight->n_members;
}

struct flight_member *flight_first(const struct flight *flight)
{
    return flight->first;
}

void flight_close(struct flight *flight)
{
    struct flight_place like = {.key = flight->key};
    flight->closed = true;
    if (!flight->in_table)
        return;
    struct flight_place *place = flight_places_find(&flight->table->places, &like);
    assert(place && place->flight == flight);
    flight_places_remove(&flight->table->places, place);
    flight->in_table = false;
}

bool flight_is_closed(const struct flight *flight)
{
    return flight->closed;
}

static void wake_all(struct flight *flight)
{
    if (flight->walking) {
        flight->again = true;
        return;
    }
    flight->walking = true;
    do {
        flight->again = false;
        for (struct flight_member *member = flight->first; member; member = flight->walk) {
            flight->walk = member->next;
            if (!member->awake) {
                member->awake = true;
                member->wake(member);
            }
        }
    } while (flight->again);
    flight->walking = false;
    free_if_done(flight);
}

void flight_set_head(struct flight *flight, void *head, void (*release)(void *head))
{
    assert(!flight->head && head && flight->end == FLIGHT_OPEN);
    flight->head = head;
    flight->release_head = release;
    wake_all(flight);
}

void *flight_head(const struct flight *flight)
{
    return flight->head;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

size_t flight_bytes(const struct flight *flight)
{
    return flight->data_bytes + flight->n_pieces * sizeof *flight->pieces;
}

/* Drops what every member has read. */
static void drop_read(struct flight *flight)
{
    uint64_t least = flight->pieces_from + flight->n_pieces;
    uint32_t n;
    size_t bytes;
    for (const struct flight_member *member = flight->first; member; member = member->next)
        least = member->piece < least ? member->piece : least;
    n = (uint32_t)(least - flight->pieces_from);
    if (n == 0)
        return;
    bytes = n < flight->n_pieces ? (size_t)(flight->pieces[n].at - flight->data_from) : flight->data_bytes;
    memmove(flight->data, flight->data + bytes, flight->data_bytes - bytes);
    memmove(flight->pieces, flight->pieces + n, (flight->n_pieces - n) * sizeof *flight->pieces);
    flight->data_bytes -= bytes;
    flight->data_from += bytes;
    flight->n_pieces -= n;
    flight->pieces_from += n;
    flight->dropped = true;
}

bool flight_append(struct flight *flight, const void *data, size_t bytes, unsigned flags)
{
    assert(flight->end == FLIGHT_OPEN && bytes <= UINT32_MAX);
    if (bytes == 0)
        return true;
    if (flight_bytes(flight) + bytes + sizeof *flight->pieces > flight->limit) {
        flight_close(flight);
        drop_read(flight);
        flight->dropped = true; /* incomplete from here on, even if nothing could be dropped yet */
    }
    if (!array_reserve(&flight->data, &flight->data_capacity, flight->data_bytes + bytes) ||
        !array_reserve(&flight->pieces, &flight->pieces_capacity, (size_t)flight->n_pieces + 1)) {
        flight_close(flight);
        return false;
    }
    flight->pieces[flight->n_pieces++] =
        (struct piece_record){.at = flight->data_from + flight->data_bytes, .bytes = (uint32_t)bytes, .flags = flags};
    memcpy(flight->data + flight->data_bytes, data, bytes);
    flight->data_bytes += bytes;
    flight->mixed = flight->mixed || !(flags & FLIGHT_KEEP);
    wake_all(flight);
    return true;
}

void flight_finish(struct flight *flight, enum flight_end end)
{
    assert(flight->end == FLIGHT_OPEN && end != FLIGHT_OPEN);
    flight->end = end;
    if (end == FLIGHT_BROKEN)
        flight_close(flight);
    wake_all(flight);
}

enum flight_end flight_ended(const struct flight *flight)
{
    return flight->end;
}

bool flight_full(struct flight *flight)
{
    flight->was_full =
        flight->closed && flight->dropped && flight->n_members > 0 && flight_bytes(flight) > WINDOW_BYTES;
    return flight->was_full;
}

bool flight_holds_up(const struct flight *flight)
{
    if (!flight->was_full)
        return false;
    for (const struct flight_member *member = flight->first; member; member = member->next)
        if (member->piece == flight->pieces_from + flight->n_pieces)
            return true;
    return false;
}

struct flight_member *flight_slowest(const struct flight *flight)
{
    struct flight_member *slowest = flight->first;
    assert(slowest);
    for (struct flight_member *member = slowest->next; member; member = member->next)
        slowest = member->piece < slowest->piece ? member : slowest;
    return slowest;
}

void flight_release(struct flight *flight)
{
    assert(flight->end != FLIGHT_OPEN && !flight->released);
    flight_close(flight);
    flight->released = true;
    free_if_done(flight);
}

bool flight_is_complete(const struct flight *flight)
{
    return !flight->dropped;
}

static void fill(const struct flight *flight, const struct piece_record *piece, struct flight_piece *out)
{
    *out = (struct flight_piece){flight->data + (piece->at - flight->data_from), piece->bytes, piece->flags};
}

bool flight_whole(const struct flight *flight, struct flight_piece *out)
{
    if (flight->dropped || flight->mixed)
        return false;
    *out = (struct flight_piece){flight->data, flight->data_bytes, FLIGHT_KEEP};
    return true;
}

bool flight_kept(const struct flight *flight, uint64_t *at, struct flight_piece *out)
{
    assert(!flight->dropped);
    while (*at < flight->n_pieces) {
        const struct piece_record *piece = &flight->pieces[(*at)++];
        if (piece->flags & FLIGHT_KEEP) {
            fill(flight, piece, out);
            return true;
        }
    }
    return false;
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

/* After a member has read on, or has left. */
static void make_room(struct flight *flight)
{
    if (!flight->dropped)
        return;
    if (flight_bytes(flight) > WINDOW_BYTES / 2)
        drop_read(flight);
    if (flight->was_full && flight_bytes(flight) <= WINDOW_BYTES / 2 && flight->end == FLIGHT_OPEN &&
        !flight->released) {
        flight->was_full = false;
        flight->source.room(flight->source.context);
    }
}

void flight_leave(struct flight_member *member)
{
    struct flight *flight = member->flight;
    assert(flight && flight->n_members > 0);
    if (flight->walk == member)
        flight->walk = member->next;
    *(member->previous ? &member->previous->next : &flight->first) = member->next;
    *(member->next ? &member->next->previous : &flight->last) = member->previous;
    member->flight = NULL;
    flight->n_members--;
    if (flight->released) {
        free_if_done(flight);
        return;
    }
    if (flight->n_members > 0)
        make_room(flight);
    else if (flight->end == FLIGHT_OPEN)
        flight->source.left(flight->source.context);
}

bool flight_next(struct flight_member *member, struct flight_piece *out)
{
    const struct flight *flight = member->flight;
    assert(member->piece >= flight->pieces_from);
    if (member->piece >= flight->pieces_from + flight->n_pieces) {
        member->awake = false;
        return false;
    }
    fill(flight, &flight->pieces[member->piece - flight->pieces_from], out);
    return true;
}

void flight_taken(struct flight_member *member)
{
    struct flight *flight = member->flight;
    assert(member->piece < flight->pieces_from + flight->n_pieces);
    member->piece++;
    make_room(flight);
}
