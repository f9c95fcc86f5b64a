/*
 * memtable_priv.h - the inside of a memtable, for its own files: slots, records, keys, cells.
 *
 * A row is a slot (when it lives) and a record (what it is). Slots lie in chunks found through a directory; a record is
 * one allocation. What readers may hold is never changed in place but for atomic fields: a successor is published and
 * the old memory goes through the epochs (memtable_rows.c).
 */
#ifndef QUIRE_INDEX_MEMTABLE_PRIV_H
#define QUIRE_INDEX_MEMTABLE_PRIV_H

#include "index/kernels/kernels.h"
#include "index/memtable/memtable.h"
#include "index/vector/codes.h"
#include "io/random.h"
#include <assert.h>
#include <math.h>
#include <stdatomic.h>

#define CHUNK_ROWS            1024u
#define MEMTABLE_LENGTH_BYTES ((uint32_t)sizeof(float))
#define WORKSPACE_BYTES       24576u

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct memtable_text {
    uint32_t bytes;
    char text[];
};

/* Where a row's code lies among the cells: the address of its group, a multiple of CELL_GROUP as all that malloc gives,
 * and its place there. 0: there are no cells. */
typedef uintptr_t place_t;

struct memtable_record {
    _Atomic(struct memtable_text *) attributes; /* NULL: none */
    _Atomic place_t place;
    uint32_t next_dead;
    uint16_t key_bytes;
    bool has_vector; /* false: the cell's copy of the code is the only one */
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

/* A list of pointers that a writer makes longer while readers look at it: of chunks of slots or columns, of words. An
 * item is set once; a reader that has the list before knows no number of an item behind its end. */
struct pointers {
    uint32_t capacity;
    _Atomic(void *) items[]; /* NULL: not set */
};

/* NULL also behind the end, and of no list. */
static inline void *memtable_pointers_get(_Atomic(struct pointers *) const *list, uint32_t i)
{
    const struct pointers *pointers = atomic_load_explicit(list, memory_order_acquire);
    return pointers && i < pointers->capacity ? atomic_load_explicit(&pointers->items[i], memory_order_acquire) : NULL;
}

/* (lock) What the item points to is there by then; the list is long enough. */
static inline void memtable_pointers_set(_Atomic(struct pointers *) const *list, uint32_t i, void *item)
{
    struct pointers *pointers = atomic_load_explicit(list, memory_order_relaxed);
    assert(pointers && i < pointers->capacity);
    atomic_store_explicit(&pointers->items[i], item, memory_order_release);
}

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

/* ---- cells: what there is beyond MEMTABLE_FLAT_ROWS (memtable_cells.c) ------------------------------------------- */

#define CELL_GROUP    16u
#define CELL_ROWS_MAX 256u
#define CELL_GROUPS   (CELL_ROWS_MAX / CELL_GROUP)

/* Rows with their codes. What is before the cell's n is not changed but for rows, which become MEMTABLE_NONE. Two
 * groups that are full have sketches of their rows, in the second one: the codes of 1 bit (codes.h) of what the codes
 * of 8 bits say, interleaved, with an f of their own. */
struct cell_group {
    struct cell *cell;
    atomic_uint rows[CELL_GROUP];
    uint32_t codes_at; /* in bytes; what is before them are the sketches */
    float norm2[CELL_GROUP], sketch_f[CELL_GROUP], f[CELL_GROUP];
    uint8_t bytes[];
};
#define SKETCH_GROUPS (CODE_GROUP / CELL_GROUP)

struct cell {
    atomic_uint n; /* rows, gone ones among them */
    uint32_t gone; /* (lock) */
    struct cell_group *groups[CELL_GROUPS];
    float f, norm2;
    uint8_t code[]; /* of its centre; code_dim */
};

/* The centres of some cells. This and the directory are never changed. */
struct centres {
    struct cell *cells[CELL_GROUP];
    float f[CELL_GROUP], norm2[CELL_GROUP];
    uint8_t codes[]; /* CELL_GROUP x code_dim */
};

struct cell_directory {
    uint32_t n; /* cells; at least one while there are rows */
    struct centres *centres[];
};

/* How far searches must go (memtable_gauge.c). */
#define GAUGE_PROBES 64u
#define GAUGE_NEAR   10u
#define GAUGE_PARTS  8u

struct probe {
    uint32_t row; /* that it was, MEMTABLE_NONE when it has gone */
    uint32_t n, n_stretches;
    float f, norm2;
    uint32_t rows[GAUGE_NEAR]; /* the nearest other rows, nearest first */
    float distances[GAUGE_NEAR], stretches[GAUGE_NEAR];
};

struct probes {
    uint32_t n, capacity;
    uint32_t scanned, scan_end; /* the rows that were there before the probes were */
    uint32_t measured;
    uint8_t *codes; /* behind the probes; n x code_dim */
    struct probe probes[];
};

struct gauge {
    struct probes *grown, *young; /* (lock) young: NULL where there are none */
    uint32_t rows_at_pick, puts;
    struct random random;
    _Atomic float stretches[GAUGE_PARTS];
};

/* ---- columns: what the rows have in their fields (memtable_columns.c) -------------------------------------------- */

#define COLUMN_ROWS           512u /* of a chunk: FILTER_ROWS_MAX at most, a multiple of 64 */
#define COLUMNS_MAX           32u
#define COLUMN_NAME_BYTES_MAX 256u

struct column_field {
    char *name;
    uint32_t bytes;
    const struct quire_column *declared; /* or NULL */
};

struct pending_value {
    double number;
    uint32_t field, word;
    uint8_t kind;
};

struct columns_pending {
    uint32_t n, grants;
    struct pending_value values[COLUMNS_MAX];
};

struct row_columns {
    _Atomic(struct pointers *) chunks;  /* of columns */
    _Atomic(struct pointers *) numbers; /* of numbered rows: COLUMN_ROWS atomic_uint each */
    atomic_uint n_fields;
    atomic_bool incomplete; /* some row has a field that has no column */
    struct column_field fields[COLUMNS_MAX];
    _Atomic(struct pointers *) words;
    /* (lock) */
    uint32_t n_words, *word_places;
    struct columns_pending pending;
};

struct cells {
    _Atomic(struct cell_directory *) directory;
    struct row_columns *columns;
    /* (lock) the row that is put, and memory for it */
    struct code_query query;
    float *floats; /* code_dim; query.levels lie behind it */
    uint64_t rebuilds;
    struct gauge gauge;
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

struct memtable {
    struct memtable_config config;
    bool coded; /* cosine, slot Q8 */
    uint32_t stored_bytes, kept_bytes;
    struct space space;                /* mean is NULL until there is one */
    _Atomic(struct cells *) cells;     /* NULL: so few rows that they are compared one by one */
    _Atomic(struct pointers *) chunks; /* of slots */
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
    struct slot *chunk = memtable_pointers_get(&table->chunks, row / CHUNK_ROWS);
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

static inline struct cells *memtable_cells(const struct memtable *table)
{
    return atomic_load_explicit(&table->cells, memory_order_acquire);
}

static inline place_t memtable_place(const struct cell_group *group, uint32_t at)
{
    assert((place_t)group % CELL_GROUP == 0 && at < CELL_GROUP);
    return (place_t)group | at;
}

/* Of a record in a table that has cells. */
static inline struct cell_group *memtable_record_group(const struct memtable_record *record, uint32_t *at)
{
    place_t place = atomic_load_explicit(&record->place, memory_order_acquire);
    *at = (uint32_t)(place % CELL_GROUP);
    return (struct cell_group *)(place - *at);
}

/* CELL_GROUP x code_dim */
static inline uint8_t *memtable_group_codes(struct cell_group *group)
{
    return group->bytes + group->codes_at;
}

/* The code of a row that lies in a cell. */
static inline const uint8_t *memtable_cell_code(const struct memtable *table, const struct memtable_record *record,
                                                float *f, float *norm2)
{
    uint32_t at;
    struct cell_group *group = memtable_record_group(record, &at);
    *f = group->f[at];
    *norm2 = group->norm2[at];
    return memtable_group_codes(group) + (size_t)at * table->space.code_dim;
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
/* A list of at least `need` items: `first`, or twice as many as it has until they are enough. QUIRE_ENOMEM, and the
 * list is as it was. (lock) */
int memtable_pointers_reserve(struct memtable *table, _Atomic(struct pointers *) *list, uint32_t first, uint32_t need);
int memtable_rows_reserve(struct memtable *table);         /* a slot for one row more */
uint32_t memtable_rows_next(const struct memtable *table); /* the number that it will have */
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

/* memtable_cells.c (lock, but for distances) */
/* The change to cells. `vector` (in the stored form) is about to be put. */
int memtable_cells_begin(struct memtable *table, const void *vector);
void memtable_cells_destroy(struct memtable *table);
/* Puts the code of a vector in the stored form where it will lie, and the place in the record. Nothing has to be undone
 * if it is not added. */
int memtable_cells_reserve(struct memtable *table, const void *vector, struct memtable_record *record);
/* From here on the row is found; after its reserve, before another. */
void memtable_cells_add(struct memtable *table, struct memtable_record *record, uint32_t row);
/* Of a row that nobody sees any more. */
void memtable_cells_remove(struct memtable *table, struct memtable_record *record);
int memtable_cells_check(const struct memtable *table, struct quire_error *reason);
/* 0, 1, 2, ... */
extern const uint32_t memtable_iota[GAUGE_PROBES];
/* Squared distances to n <= CELL_GROUP codes, estimated from the query's levels; or to n of those with the numbers
 * `among`. */
void memtable_code_distances(uint32_t code_dim, const struct code_query *query, const uint8_t *codes, const float *f,
                             const float *norm2, uint32_t n, float *out);
void memtable_code_distances_among(uint32_t code_dim, const struct code_query *query, const uint8_t *codes,
                                   const float *f, const float *norm2, const uint32_t *among, uint32_t n, float *out);
/* The same to all centres; out: directory->n. */
void memtable_centre_distances(const struct cell_directory *directory, uint32_t code_dim,
                               const struct code_query *query, float *out);

/* (lock) cells->query becomes a row or a centre that has a code. */
void memtable_cells_query(struct cells *cells, uint32_t code_dim, const uint8_t *code, float f, float norm2);
/* The cell, but for one (NULL: of all), whose centre is nearest, and how near it is; NULL: there is none. */
struct cell *memtable_nearest_cell(const struct cell_directory *directory, uint32_t code_dim,
                                   const struct code_query *query, const struct cell *except, float *least);

/* memtable_columns.c (lock, but for select) */
struct row_columns *memtable_columns_new(struct memtable *table);
void memtable_columns_free(struct memtable *table, struct row_columns *columns); /* NULL is fine */
/* Takes a row's attributes apart: all that may fail. Then what cannot. is_seen: the row is one that readers see. */
int memtable_columns_prepare(struct memtable *table, struct row_columns *columns, uint32_t row, const void *text,
                             uint32_t bytes);
void memtable_columns_commit(struct row_columns *columns, uint32_t row, bool is_seen);
/* The same of the number of a row that nobody sees yet: space for it, then the number. */
int memtable_columns_reserve_number(struct memtable *table, struct row_columns *columns, uint32_t row);
void memtable_columns_set_number(struct row_columns *columns, uint32_t row, uint32_t number);
/* Bits of rows < row_end that may pass the test's filter and scope: (row_end + 63) / 64 words. 1; 0: columns do not
 * know all fields of it; QUIRE_ENOMEM. */
int memtable_columns_select(const struct memtable *table, const struct row_columns *columns,
                            const struct memtable_test *test, uint32_t row_end, uint64_t *bits);

/* memtable_gauge.c (lock, but for stretch) */
int memtable_gauge_init(struct memtable *table, struct cells *cells);
void memtable_gauge_fini(struct memtable *table, struct gauge *gauge);
/* A row was added, and is cells->query, which is changed. */
void memtable_gauge_add(struct memtable *table, struct cells *cells, uint32_t row);
void memtable_gauge_remove(struct gauge *gauge, uint32_t row);
/* How far beyond the plane between two cells something is that lies `reach2` from where one looks: distance2 and
 * least2 are those of the centres to where one looks, gap2 that of the centres to each other; all squared. */
static inline float memtable_stretch(float distance2, float least2, float gap2, float reach2)
{
    float beyond = distance2 - least2;
    return beyond > 0 ? beyond / (2 * sqrtf(gap2 * reach2) + 1e-12f) : 0;
}
/* How far a search of a table with cells goes for a recall, as a stretch. */
float memtable_gauge_stretch(const struct memtable *table, float recall);

/* The code of a vector of config.type in the table's space: code_dim bytes, f, norm2. floats: code_dim. */
void memtable_encode(const struct memtable *table, const void *vector, float *floats, uint8_t *code, float *f,
                     float *norm2);
/* The code of a row of a coded table, wherever it is. Its squared length is 1. */
const uint8_t *memtable_record_code(const struct memtable *table, const struct memtable_record *record, float *f);
/* The length of its vector, as the stored form has it. */
const uint8_t *memtable_record_length(const struct memtable *table, const struct memtable_record *record);
double memtable_norm2(const float *x, uint32_t n);

#endif
