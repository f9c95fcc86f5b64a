/*
 * flight.h - identical requests in flight: one answer that comes in, and everyone who reads it.
 *
 * A flight is opened by the first request of a key. Later ones of the same key join it as members and read the same
 * pieces from the beginning, each at its own pace; they get what is there at once and the rest as it comes. The one
 * who fetches the answer (the source) appends pieces, finishes the flight, and releases it at last; which member its
 * work was begun for does not matter here: a flight lives until it is released and its last member has left.
 *
 * Bounded: a flight keeps its pieces up to `limit` bytes. Above that it is *closed*: nobody may join any more, it is
 * not to be kept, and pieces that every member has read are dropped. Then flight_full says when the slowest member is
 * too far behind, so that the source can be paused; `room` is called when it may go on.
 *
 * No I/O here and no event loop. Thread-safety: one thread. Callbacks may call anything but flight_table_destroy.
 */
#ifndef QUIRE_GATEWAY_FLIGHT_H
#define QUIRE_GATEWAY_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLIGHT_KEY_BYTES 32u

struct flight_table;
struct flight;

/* What a piece is, for who reads it. */
enum {
    FLIGHT_KEEP = 1,  /* belongs to the answer that is kept; others (comments) are for those who listen now */
    FLIGHT_USAGE = 2, /* the usage chunk of a stream: only for clients that asked for it */
};

enum flight_end {
    FLIGHT_OPEN,
    FLIGHT_WHOLE,  /* the last piece has been appended */
    FLIGHT_BROKEN, /* nothing more comes, and it was not all */
};

struct flight_piece {
    const char *data; /* valid until the next call for this flight */
    size_t bytes;
    unsigned flags;
};

/* The caller's memory; zeroed before flight_open or flight_join. Whoever has joined reads until flight_next says false;
 * from then on `wake` tells that there is something new: a head, pieces, the end. */
struct flight_member {
    void (*wake)(struct flight_member *member); /* once for all that is new since flight_next said false */
    struct flight *flight;                      /* NULL: in none */
    struct flight_member *next, *previous;
    uint64_t piece; /* the next to be read, counted from the flight's first */
    bool awake;
};

struct flight_source {
    void (*room)(void *context); /* flight_full was true, and is no longer */
    void (*left)(void *context); /* the last member has left a flight that has not ended */
    void *context;
};

struct flight_table *flight_table_create(unsigned flights_max);
/* All flights are released. NULL is fine. */
void flight_table_destroy(struct flight_table *table);
unsigned flight_table_n(const struct flight_table *table);

/* The flight that a request of this key may join; NULL: none. */
struct flight *flight_find(const struct flight_table *table, const uint8_t key[FLIGHT_KEY_BYTES]);
/* A new one with its first member (NULL: nobody reads, it is only kept). NULL without memory, or where flights_max are
 * there: the request is refused. key NULL, or a key that has a flight already: nobody can join it, but it is read in
 * the same way. */
struct flight *flight_open(struct flight_table *table, const uint8_t *key, size_t limit,
                           const struct flight_source *source, struct flight_member *member);
/* The context of its source. The flight has not been released. */
void *flight_context(const struct flight *flight);
void flight_join(struct flight *flight, struct flight_member *member);
void flight_leave(struct flight_member *member);
unsigned flight_members(const struct flight *flight);
/* The one of those that read it who came first; NULL: nobody does. */
struct flight_member *flight_first(const struct flight *flight);

/* ---- for the source, until flight_release ---- */

/* Nobody may join from here on. */
void flight_close(struct flight *flight);
bool flight_is_closed(const struct flight *flight);

/* What was said before the first piece (status, fields): opaque here, freed with `release`. Wakes the members. */
void flight_set_head(struct flight *flight, void *head, void (*release)(void *head));
void *flight_head(const struct flight *flight); /* NULL: not yet; valid as long as the flight */

/* Copies. False without memory: the flight is to be finished as broken. */
bool flight_append(struct flight *flight, const void *data, size_t bytes, unsigned flags);
/* Nothing more comes. Who joins a flight that ended whole, before it is closed, reads all of it. */
void flight_finish(struct flight *flight, enum flight_end end);
enum flight_end flight_ended(const struct flight *flight);
/* Whether the slowest member is so far behind that the source should pause. */
bool flight_full(struct flight *flight);
/* While the source pauses for it: whether a member has read all that there is, and waits for a slower one. */
bool flight_holds_up(const struct flight *flight);
/* The member that is farthest behind. There is one. */
struct flight_member *flight_slowest(const struct flight *flight);
/* Closes it; the source is not called and does not call any more. It has been finished. */
void flight_release(struct flight *flight);

/* All pieces with FLIGHT_KEEP, in order; walk with *at from 0. False: no more. Only where flight_is_complete: nothing
 * was dropped. */
bool flight_is_complete(const struct flight *flight);
bool flight_kept(const struct flight *flight, uint64_t *at, struct flight_piece *out);
/* The same as one piece, where all of them are kept: nothing is copied. False: they are not, or some were dropped. */
bool flight_whole(const struct flight *flight, struct flight_piece *out);
size_t flight_bytes(const struct flight *flight);

/* ---- for members ---- */

/* The member's next piece; true: *out is filled. False: nothing at present (flight_ended tells whether ever). Does not
 * advance: the same again until flight_taken. */
bool flight_next(struct flight_member *member, struct flight_piece *out);
void flight_taken(struct flight_member *member);

#endif
