/*
 * memtable_priv.h - the inside of a memtable, for its own files: slots, records, keys, navigation.
 *
 * A row is a slot (when it lives) and a record (what it is). Slots lie in chunks found through a directory; a record is
 * one allocation. What readers may hold is never changed in place but for atomic fields: a successor is published and
 * the old memory goes through the epochs (memtable_rows.c).
 */
#ifndef QUIRE_INDEX_MEMTABLE_PRIV_H
#define QUIRE_INDEX_MEMTABLE_PRIV_H

#include "index/memtable/memtable.h"
#include <pthread.h>
#include <stdatomic.h>

#define CHUNK_ROWS      1024u
#define WORKSPACE_BYTES 16384u

#define MEMTABLE_LENGTH_BYTES ((uint32_t)sizeof(float))

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct memtable_text {
    uint32_t bytes;
    char text[];
};

/* Of a row in the graph stage. SKIPPED: never linked, because no reader sees it any more; GONE: taken out. */
enum row_state { ROW_WAITING, ROW_LINKING, ROW_LINKED, ROW_SKIPPED, ROW_GONE };

struct memtable_record {
    _Atomic(struct memtable_text *) attributes; /* NULL: none */
    uint32_t node;                              /* in the graph */
    uint32_t queued; /* its place in the queue; an entry of another place is not of this row */
    uint32_t next_dead;
    uint16_t key_bytes;
    _Atomic uint8_t state;
    bool has_vector; /* false: the graph's copy of the code is the only one */
    uint8_t bytes[]; /* the stored form; 1 / |x| (float) under cosine unless coded; the key. Without a vector its length
                        (float) and the key */
};

/* record is written last and read first: NULL means a row number that is free. Of the LSNs the end is read first: when
 * a row number is given back its begin is reset before its end, and when it is used again its end is set before its
 * begin, so that no reader takes the begin of one row together with the end of the next one of that number. */
struct slot {
    _Atomic(struct memtable_record *) record;
    atomic_uint_fast64_t begin_lsn, end_lsn; /* of a free one: MEMTABLE_LSN_MAX, the next free row */
};

struct directory {
    uint32_t capacity;
    _Atomic(struct slot *) chunks[];
};

/* Memory that readers may hold, given back by its epoch. */
struct retired {
    struct epoch_item item;
    uint32_t n;
    void *blocks[];
};

/* A horizon that is told to a table and counts when the readers of that time have left. Whoever comes second, the epoch
 * or the table, frees it. */
struct marker {
    struct epoch_item item;
    atomic_int state; /* enum marker_state */
    uint64_t horizon;
};
enum marker_state { MARKER_PENDING, MARKER_PASSED, MARKER_ORPHAN };

/* ---- keys -------------------------------------------------------------------------------------------------------- */

struct key_entry {
    uint32_t row; /* MEMTABLE_NONE: empty */
    uint32_t hash;
};

struct key_map {
    struct key_entry *entries; /* NULL: so few rows that they are compared one by one */
    uint32_t mask, n;
};

/* ---- navigation: what there is beyond MEMTABLE_FLAT_ROWS --------------------------------------------------------- */

/* Row numbers by graph row. */
struct nodes {
    uint32_t capacity;
    atomic_uint rows[];
};

struct ring {
    uint32_t mask;
    atomic_uint rows[];
};

struct navigation {
    struct graph *graph;
    struct graph_root root; /* of all its rows */
    _Atomic(struct nodes *) nodes;
    uint32_t node_end; /* every graph row that was given is < this */
    pthread_mutex_t lock;
    _Atomic(struct ring *) ring;
    /* head <= next <= tail, modulo 2^32. Before head: nobody waits. From next: nobody links them yet. */
    atomic_uint head, tail;
    uint32_t next; /* under the lock */
    atomic_uint waiting;
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

struct memtable {
    struct memtable_config config;
    bool coded; /* cosine, slot Q8 */
    uint32_t stored_bytes, kept_bytes;
    struct space space; /* mean is NULL until there is one */
    _Atomic(struct navigation *) navigation;
    _Atomic(struct directory *) directory;
    uint32_t capacity;                 /* slots */
    atomic_uint row_end, living, dead; /* row_end: every row number that is in use is less */
    uint32_t free_row;                 /* chain through end_lsn */
    uint32_t dead_first, dead_last;    /* by end_lsn */
    struct key_map keys;
    struct marker *marker;
    atomic_uint_fast64_t settled; /* no reader sees a row that died at or before this */
    atomic_uint_fast64_t bytes;
};

static inline struct slot *memtable_slot(const struct memtable *table, uint32_t row)
{
    struct directory *directory = atomic_load_explicit(&table->directory, memory_order_acquire);
    struct slot *chunk = atomic_load_explicit(&directory->chunks[row / CHUNK_ROWS], memory_order_acquire);
    return &chunk[row % CHUNK_ROWS];
}

static inline struct memtable_record *memtable_slot_record(const struct slot *slot)
{
    return atomic_load_explicit(&slot->record, memory_order_acquire);
}

static inline uint64_t memtable_slot_begin_lsn(const struct slot *slot)
{
    return atomic_load_explicit(&slot->begin_lsn, memory_order_acquire);
}

static inline uint64_t memtable_slot_end_lsn(const struct slot *slot)
{
    return atomic_load_explicit(&slot->end_lsn, memory_order_acquire);
}

/* Of a slot that has a record. */
static inline bool memtable_slot_visible(const struct slot *slot, uint64_t snapshot)
{
    uint64_t end_lsn = memtable_slot_end_lsn(slot);
    return snapshot < end_lsn && memtable_slot_begin_lsn(slot) <= snapshot;
}

static inline struct navigation *memtable_navigation(const struct memtable *table)
{
    return atomic_load_explicit(&table->navigation, memory_order_acquire);
}

static inline enum row_state memtable_record_state(const struct memtable_record *record)
{
    return (enum row_state)atomic_load_explicit(&record->state, memory_order_acquire);
}

static inline const uint8_t *memtable_record_key(const struct memtable *table, const struct memtable_record *record)
{
    return record->bytes + (record->has_vector ? table->kept_bytes : MEMTABLE_LENGTH_BYTES);
}

static inline bool memtable_is_coded(const struct memtable_config *config)
{
    return config->metric == QUIRE_METRIC_COSINE && config->slot == QUIRE_SLOT_Q8;
}

/* Memory for one call: on the stack, or beyond it if the dimension is large. */
struct workspace {
    void *beyond;
    _Alignas(16) uint8_t here[WORKSPACE_BYTES];
};
/* NULL without memory. Ended by memtable_workspace_end in any case. */
void *memtable_workspace_begin(struct workspace *workspace, size_t bytes);
void memtable_workspace_end(struct workspace *workspace);

/* memtable_rows.c (lock) */
void *memtable_block_alloc(struct memtable *table, size_t bytes); /* counted */
void memtable_block_free(struct memtable *table, void *block);
void memtable_block_count(struct memtable *table, void *block);
void memtable_block_uncount(struct memtable *table, void *block);
struct retired *memtable_retired_new(uint32_t n); /* space for n blocks, none yet */
void memtable_block_retire(struct memtable *table, struct retired *retired, void *block);
void memtable_retired_defer(struct memtable *table, struct retired *retired);
/* A block that readers may hold was replaced: both of it, by a `retired` for one block. NULL, NULL: there was none. */
void memtable_block_replaced(struct memtable *table, struct retired *retired, void *old);
int memtable_rows_reserve(struct memtable *table); /* a slot for one row more */
uint32_t memtable_rows_publish(struct memtable *table, struct memtable_record *record, uint64_t lsn);
void memtable_rows_release(struct memtable *table, uint32_t row);
struct memtable_record *memtable_record_new(struct memtable *table, const void *key, uint32_t key_bytes,
                                            bool has_vector);
struct memtable_text *memtable_attributes_new(struct memtable *table, const void *text, uint32_t bytes);
void memtable_rows_destroy(struct memtable *table);

/* memtable_keys.c (lock) */
int memtable_keys_reserve(struct memtable *table); /* one key more */
void memtable_keys_add(struct memtable *table, uint32_t row);
void memtable_keys_replace(struct memtable *table, uint32_t from, uint32_t to); /* both have the same key */
void memtable_keys_remove(struct memtable *table, uint32_t row);
int memtable_keys_check(const struct memtable *table, struct quire_error *reason);

/* memtable_graph.c (lock) */
/* The change to the graph stage. `vector` (in the stored form) is about to be put. */
int memtable_graph_begin(struct memtable *table, const void *vector);
void memtable_graph_destroy(struct memtable *table);
/* Adds the row's code to the graph. What follows for it cannot fail. */
int memtable_graph_add(struct memtable *table, const void *vector, uint32_t *node);
/* Takes back what memtable_graph_add gave. */
void memtable_graph_discard(struct memtable *table, uint32_t node);
/* Before the row can be seen, and after. */
void memtable_graph_place(struct navigation *navigation, struct memtable_record *record, uint32_t row);
void memtable_graph_queue(struct navigation *navigation, uint32_t row);
/* Takes a dead row out; false: it is being linked just now. */
bool memtable_graph_remove(struct memtable *table, struct graph_scratch *scratch, struct memtable_record *record);
/* The row of a queue entry; NULL if the entry is of an earlier row of that number. */
struct slot *memtable_queue_slot(const struct memtable *table, const struct navigation *navigation, uint32_t index,
                                 struct memtable_record **record, uint32_t *row);
int memtable_graph_check(const struct memtable *table, struct quire_error *reason);

/* The code of a vector of config.type in the table's space: code_dim bytes, f, norm2. floats: code_dim. */
void memtable_encode(const struct memtable *table, const void *vector, float *floats, uint8_t *code, float *f,
                     float *norm2);
/* The code of a row of a coded table, wherever it is. Its squared length is 1. */
const uint8_t *memtable_record_code(const struct memtable *table, const struct memtable_record *record, float *f);
/* The length of its vector, as the stored form has it. */
const uint8_t *memtable_record_length(const struct memtable *table, const struct memtable_record *record);
double memtable_norm2(const float *x, uint32_t n);

#endif
