/*
 * part.h - a sealed segment as a collection has it: with the tombstones of its rows and a filter of its keys.
 *
 * A part is shared by views and freed with the last of them. Tombstones are set under the collection's lock and read by
 * anyone at any time.
 */
#ifndef QUIRE_INDEX_PART_H
#define QUIRE_INDEX_PART_H

#include "index/segment/segment.h"
#include <stdatomic.h>

typedef struct roaring_bitmap_s roaring_bitmap_t; /* roaring/roaring.h takes .4 s to compile */

struct part_numbers;
struct part_origins;
struct tenant_scope;

/* Rows of a part in the order in which they died: a piece of a list. */
#define DEAD_ROWS 1021u
struct dead_rows {
    struct dead_rows *next;
    uint32_t n, rows[DEAD_ROWS];
};
void part_dead_rows_free(struct dead_rows *rows); /* the list; NULL is fine */

/* The rows that die from a moment on, for who copies the tombstones or carries them on. Any number of a part. */
struct part_log {
    struct part_log *next; /* of the same part */
    struct dead_rows *first, *last;
    uint64_t n;  /* rows in it */
    bool failed; /* there was no memory for one */
};

struct part {
    atomic_uint references;
    uint64_t uid;
    struct segment *segment; /* NULL while a journal is replayed; a reference */
    uint8_t *dead;           /* bitmap of rows, see part_kill; owned */
    uint64_t dead_capacity;  /* rows that the bitmap has space for */
    uint64_t dead_end;       /* behind the last row that was dead before the segment was open */
    atomic_uint_fast64_t n_dead;
    uint64_t *filter; /* of keys (blocked Bloom filter, 10 bits a row); NULL: keys are row numbers */
    uint64_t filter_blocks;
    struct part_numbers *numbers; /* of a numbered collection (part_numbers.h); otherwise NULL; owned */
    roaring_bitmap_t *attributed; /* rows with attributes, dead ones too; NULL: none, or all; owned. Does not change */
    bool all_attributed;
    atomic_uint void_checked; /* the collection's n_drops when rows that are nobody's were looked for */
    struct part_log *logs;    /* (lock) those that have begun */
    struct part_origins
        *origins; /* (lock) where its rows were before a merge (lineage.h); NULL: not known; a reference */
    /* Takes the part over when its last reference goes, wherever that is: to free a segment takes long, and a search
     * may be who goes last. NULL: it is freed at once. */
    void (*gone)(void *context, struct part *part);
    void *context;
    struct part *next_gone; /* of who took it over */
};

/* A part of which only the number is known yet. */
int part_create(uint64_t uid, struct part **out, struct quire_error *err);
/* Opens its segment, makes the filter from the key table and learns which rows have attributes from the index of texts,
 * both read forward. Blocks. */
int part_open(struct part *part, const char *path, const struct segment_options *options, struct quire_error *err);
struct part *part_ref(struct part *part);
void part_unref(struct part *part); /* NULL is fine */
/* By who took it over: with its segment, unless others have that still. */
void part_free(struct part *part);

/* (lock) A log begins, empty; it is on until part_log_end, and stays where it is. */
void part_log_begin(struct part *part, struct part_log *log);
void part_log_end(struct part *part, struct part_log *log);
/* (lock, while it is on) What was logged since it began or was taken before; the caller's. Cost: none. */
struct dead_rows *part_log_take(struct part_log *log);

/* (lock, once others know the part) Marks a row dead: 1, 0 if it was already, or QUIRE_ERANGE (no such row),
 * QUIRE_ENOMEM. Before the segment is open there is space for any row. */
int part_kill(struct part *part, uint32_t row);
/* Before its segment is open: from now on part_kill does not fail for rows below. QUIRE_ENOMEM. */
int part_reserve(struct part *part, uint64_t rows);
bool part_is_dead(const struct part *part, uint32_t row);
/* Rows that live; 0 while it is not open. */
uint64_t part_living(const struct part *part);
/* Whether a row has attributes (grants alone are none), and how many that live have; 0 while it is not open. */
bool part_has_attributes(const struct part *part, uint32_t row);
uint64_t part_attributed(const struct part *part);
/* Whether it may hold a key; never wrongly false. */
bool part_may_have(const struct part *part, const void *key, uint32_t key_bytes);
/* Bytes it holds in memory, the segment's included. */
uint64_t part_bytes(const struct part *part);

/* roaring_bitmap_free does not take NULL. */
void part_rows_free(roaring_bitmap_t *rows);
/* Whether a sealed row is granted to any of the scope (NULL: true). Without memory it is not. */
bool part_allows(const struct part *part, uint32_t row, const struct tenant_scope *scope);
/* The rows of a part that the scope lets be seen and that `dead` (NULL: the part's own) does not name. */
int part_scope_rows(const struct part *part, const struct tenant_scope *scope, const uint8_t *dead,
                    roaring_bitmap_t **out);

#endif
