/*
 * memtable.h - the mutable part of a collection: elements in memory, searchable at once, versioned by LSNs.
 *
 * An element is a key, a vector and attributes. Putting a key again adds a row and ends the older one: a row is visible
 * to a reader of snapshot S if begin_lsn <= S < end_lsn. The numbers are the journal's LSNs.
 *
 * What is stored of a vector: under cosine with slot Q8 its 8-bit code and its length (unit_code.h) and nothing else;
 * otherwise its elements as they came (config.type; under cosine those of the unit vector where a float could not hold
 * what is computed from them, space_is_ordinary), and a code beside them once there are cells. Up to
 * MEMTABLE_FLAT_ROWS rows there are none, and no structure that takes more than the rows themselves: a search compares
 * all. More lie in cells by nearness, of which a search goes through as many as the recall needs that it is asked for.
 * Every row is found from its put on. Answers are ordered by what is stored: exactly, or by the 8-bit code.
 *
 * Threads: calls marked (lock) are made under the collection's lock; the others from any thread, inside an epoch of
 * config.epochs as long as row numbers and pointers are used. A snapshot that is searched is taken inside the same
 * epoch, or kept from the horizon until the search has ended: then a row that is replaced meanwhile is still found.
 */
#ifndef QUIRE_INDEX_MEMTABLE_H
#define QUIRE_INDEX_MEMTABLE_H

#include "index/vector/space.h"
#include "io/epoch.h"

#define MEMTABLE_FLAT_ROWS 256u
#define MEMTABLE_NONE      UINT32_MAX
#define MEMTABLE_LSN_MAX   UINT64_MAX

struct memtable;
struct memtable_record;
struct memtable_text;
struct attribute_schema;
struct filter;
struct number_set;
struct tenant_scope;
struct retired;

struct memtable_config {
    uint32_t dim;
    enum quire_type type; /* of the vectors that are put */
    enum quire_metric metric;
    enum quire_slot slot; /* what a sealed segment will hold; Q8 under cosine: no vector is kept beside the code */
    uint64_t seed;        /* of the rotation */
    bool numbered;        /* names begin with numbers (number_set.h), which tests may ask for */
    const struct attribute_schema *schema; /* the declared columns; NULL: none. Kept by the caller */
    struct epochs *epochs;
};

int memtable_create(const struct memtable_config *config, struct memtable **out, struct quire_error *err);
void memtable_destroy(struct memtable *table); /* no reader; NULL is fine */

/* (lock) Checks a vector (elements of config.type, unaligned): NaN and infinity. 0: it can be put;
 * MEMTABLE_TOO_LONG: it is sound, but under ip so much longer than those before it that it needs another table (freeze
 * this one, put it in a new one). */
#define MEMTABLE_TOO_LONG 1
int memtable_check_vector(const struct memtable *table, const void *vector, struct quire_error *err);
/* (lock) The same of bytes that are to be the stored form of a vector and come from outside: what no put would have
 * made of one is refused, too: QUIRE_ECORRUPT. */
int memtable_check_stored(const struct memtable *table, const void *stored, struct quire_error *err);
/* (lock) Adds a row that begins at lsn and ends the key's row, if there is one, at lsn. `stored`: vector is in the
 * stored form (memtable_stored_bytes, as memtable_stored gave it), not the user's. *row gets its number. QUIRE_ENOMEM
 * and QUIRE_ELIMIT (2^31 rows) leave everything as it was. */
int memtable_put(struct memtable *table, const void *key, uint32_t key_bytes, const void *vector, bool stored,
                 const void *attributes, uint32_t attribute_bytes, uint64_t lsn, uint32_t *row);
/* (lock) The two halves of a put of a vector in the stored form, for who must log it in between: all that can fail,
 * then what cannot. One of commit and cancel follows, before any other call for which the lock is needed; cancel inside
 * an epoch. */
struct memtable_pending {
    struct memtable_record *record;
    uint32_t old; /* the key's row, which commit ends; or MEMTABLE_NONE */
};
int memtable_prepare(struct memtable *table, const void *key, uint32_t key_bytes, const void *stored,
                     const void *attributes, uint32_t attribute_bytes, struct memtable_pending *out);
uint32_t memtable_commit(struct memtable *table, const struct memtable_pending *pending, uint64_t lsn);
void memtable_cancel(struct memtable *table, const struct memtable_pending *pending);
/* (lock) The living row of a key, or MEMTABLE_NONE. */
uint32_t memtable_find(const struct memtable *table, const void *key, uint32_t key_bytes);
/* (lock) Ends a row at lsn. */
void memtable_end(struct memtable *table, uint32_t row, uint64_t lsn);
/* (lock) The row that ended last, and the one that ended after a row, or first (MEMTABLE_NONE); MEMTABLE_NONE: there is
 * none. Of rows that were not given back, of a table whose rows are not given back meanwhile. */
uint32_t memtable_last_ended(const struct memtable *table);
uint32_t memtable_ended_after(const struct memtable *table, uint32_t row);
/* (lock) Other attributes for a living row, as of now; 0 bytes: none. QUIRE_ENOMEM leaves it as it was. */
int memtable_set_attributes(struct memtable *table, uint32_t row, const void *attributes, uint32_t attribute_bytes);
/* (lock) Its two halves, as those of a put. */
struct memtable_pending_text {
    struct memtable_text *text; /* NULL: none */
    struct retired *retired;    /* for the old one; NULL: there is none */
    uint32_t row;
};
int memtable_attributes_prepare(struct memtable *table, uint32_t row, const void *attributes, uint32_t attribute_bytes,
                                struct memtable_pending_text *out);
void memtable_attributes_commit(struct memtable *table, const struct memtable_pending_text *pending);
void memtable_attributes_cancel(struct memtable *table, const struct memtable_pending_text *pending);
/* (lock; best outside an epoch) Gives back rows that ended at or before `horizon` (the oldest snapshot that is read), a
 * bounded number of them per call, once the readers that were inside an epoch when the horizon was told have left.
 * True if more can be given back at once; false if none, or a later call will. */
bool memtable_reclaim(struct memtable *table, uint64_t horizon);

/* The form in which a vector is kept, for the journal: bytes, and a put vector in that form. Deterministic. */
uint32_t memtable_stored_bytes(const struct memtable_config *config);
/* Converts a user's vector; `out` has memtable_stored_bytes. Takes no lock, touches no row. */
int memtable_stored(const struct memtable *table, const void *vector, void *out);

/* A row's parts. Pointers are valid inside the epoch. The row is one that a call of this epoch has given. */
struct memtable_row {
    const void *key;
    uint32_t key_bytes;
    const char *attributes; /* NULL: none */
    uint32_t attribute_bytes;
    uint64_t begin_lsn, end_lsn; /* end_lsn: MEMTABLE_LSN_MAX while it lives */
};
/* Any row < stats.row_end may be asked for: a number that no row has answers begin_lsn MEMTABLE_LSN_MAX, end_lsn 0 and
 * no key. */
void memtable_row(const struct memtable *table, uint32_t row, struct memtable_row *out);
/* The same of a row that is visible at a snapshot; otherwise false, and *out is not to be used. */
bool memtable_row_at(const struct memtable *table, uint32_t row, uint64_t snapshot, struct memtable_row *out);
/* The LSN at which a row ended, MEMTABLE_LSN_MAX while it lives; 0 for a number that is not in use. For any row <
 * stats.row_end. */
uint64_t memtable_end_lsn(const struct memtable *table, uint32_t row);
/* Its vector in the stored form: memtable_stored_bytes. A copy, since a code lies in two places. */
void memtable_row_stored(const struct memtable *table, uint32_t row, void *out);
/* The row's vector as dim floats, as it was put but for what the stored form leaves out. scratch: code_dim floats. */
void memtable_vector(const struct memtable *table, uint32_t row, float *scratch, float *out);

/* Which rows may be answered. Those that filter and scope do not let pass are left out many at a time, where columns
 * know it; accepts is asked about each row of the others that is near, and decides. */
struct memtable_test {
    bool (*accepts)(void *context, const struct memtable_row *row);
    void *context;
    const struct filter *filter;      /* a part of what accepts asks; NULL: none */
    const struct tenant_scope *scope; /* the same; resolved; NULL: none */
    const struct number_set *numbers; /* the same, of a numbered table; NULL: none */
};

struct memtable_query {
    const float *query; /* dim floats, the user's */
    uint32_t k;
    float recall;    /* that is aimed at, on average; 0: 0.95 */
    uint32_t effort; /* beside it, at least so many rows are compared as a graph would with a beam of this; 0: none */
    bool exact;      /* compare every row */
    uint64_t snapshot;
    const struct memtable_test *test; /* NULL: all rows */
    const uint32_t *except;           /* a row that is not answered; NULL: none */
};
struct memtable_hit {
    uint32_t row;
    float distance; /* the user's, as quire.h defines it per metric */
};
struct memtable_work {
    uint32_t scored;  /* rows whose distance was taken from what is stored */
    uint64_t matches; /* visible rows that the test accepts; estimated where there are cells */
};
/* The k nearest visible rows, nearest first, of those that the test accepts; returns how many, or QUIRE_ENOMEM. With a
 * test it is min(k, matches) always. Takes no lock, waits for nothing. work: may be NULL. */
int memtable_search(const struct memtable *table, const struct memtable_query *query, struct memtable_hit *hits,
                    struct memtable_work *work);

/* The rows nearest to it (VLINKS), nearest first, with the metric's distances. Only those that the test (NULL: all)
 * accepts. Returns how many, or QUIRE_ENOMEM. */
int memtable_links(const struct memtable *table, uint32_t row, uint64_t snapshot, const struct memtable_test *test,
                   struct memtable_hit *hits, uint32_t hits_max);

/* From any thread, in or out of an epoch. */
struct memtable_stats {
    uint32_t rows;    /* living */
    uint32_t dead;    /* not given back yet */
    uint32_t row_end; /* every row number that is in use is less */
    uint64_t bytes;   /* all memory it holds */
};
void memtable_get_stats(const struct memtable *table, struct memtable_stats *out);
/* Checks it while no writer is at work. */
int memtable_check(const struct memtable *table, struct quire_error *reason);

#endif
