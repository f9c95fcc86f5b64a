/*
 * columns_priv.h - what the parts of columns share: sets of rows as they are stored, tables of values, working sets.
 *
 * What lies in memory is what lies in the file (docs/format.md), read field by field. Nothing here is written by
 * CRoaring: version 0.2 of it does not look at what its allocations give, so sets are coded and combined here, and a
 * roaring_bitmap_t is only made in the end, by its reader of stored ones, which does.
 */
#ifndef QUIRE_INDEX_COLUMNS_PRIV_H
#define QUIRE_INDEX_COLUMNS_PRIV_H

#include "index/column/columns.h"
#include "index/format/format.h"
#include <math.h>
#include <string.h>

/* ---- sets of rows (columns_set.c) -------------------------------------------------------------------------------- */

/* Bytewise; of two texts of which one begins like the other the shorter first. */
static inline int bytes_compare(const void *a, uint32_t a_bytes, const void *b, uint32_t b_bytes)
{
    uint32_t least = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = least ? memcmp(a, b, least) : 0;
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* -0 before 0: 1 / .x tells them apart. Neither is NaN. */
static inline int numbers_compare(double a, double b)
{
    if (a != b)
        return a < b ? -1 : 1;
    return (signbit(b) != 0) - (signbit(a) != 0);
}

/* Bytes that grow. After a failure nothing more is added and failed stays true. */
struct byte_buffer {
    uint8_t *at; /* owned */
    size_t n, room;
    bool failed;
};
void buffer_put(struct byte_buffer *buffer, const void *bytes, size_t n);
void buffer_put_u32(struct byte_buffer *buffer, uint32_t number);
void buffer_put_varint(struct byte_buffer *buffer, uint64_t number); /* below 2^35 */

/* Rows in order, to be stored: numbers, or bits (then rows is NULL). */
struct row_view {
    const uint32_t *rows;
    const uint64_t *bits;
    uint64_t n;   /* rows, or words of bits */
    bool no_runs; /* row_view_roaring's own */
};
/* Appends the shortest form of the set. */
void row_set_put(struct byte_buffer *out, const struct row_view *view);
/* *out is owned by the caller; QUIRE_ENOMEM. */
int row_view_roaring(const struct row_view *view, roaring_bitmap_t **out);

/* A stored set. */
enum set_form { SET_RUN = 0, SET_GAPS = 1, SET_ROARING = 2 };
struct row_set {
    enum set_form form;
    uint32_t n, first; /* first: of a run */
    const uint8_t *at, *end;
};
/* Returns the place behind it, NULL where it does not end before `end`. What it holds is not looked at. */
const uint8_t *row_set_parse(const uint8_t *at, const uint8_t *end, struct row_set *out);
/* n different rows below n_rows, in order, and nothing behind them. The functions below take only such a set. */
bool row_set_is_valid(const struct row_set *set, uint64_t n_rows);
void row_set_rows(const struct row_set *set, uint32_t *rows); /* room for set->n */
bool row_set_has(const struct row_set *set, uint32_t row);
uint32_t row_set_first(const struct row_set *set); /* 0 of an empty one */

/* What a working set is a part of: all rows 0 .. n - 1, or these n. A working set has a bit for each, by its place. */
struct universe {
    const uint32_t *rows; /* ascending; NULL: all */
    uint64_t n;
};
static inline size_t universe_words(const struct universe *u)
{
    return (size_t)(u->n + 63) / 64;
}
/* Adds those of the set that are in the universe. */
void row_set_add(const struct row_set *set, const struct universe *universe, uint64_t *bits);

/* ---- tables of values (columns.c) -------------------------------------------------------------------------------- */

#define TABLE_GROUP        16u /* values between two offsets */
#define TABLE_MARKS        15u /* at most, of a table of numbers */
#define TABLE_VALUES_MARKS 64u /* values from which on there are marks */

/* A column's values are in four tables. What a row has itself stands in one of the first two, once; what the members of
 * its list are in the others. */
enum table_kind { TABLE_NUMBERS, TABLE_TEXTS, TABLE_MEMBER_NUMBERS, TABLE_MEMBER_TEXTS, TABLES };

/* The rows that have one of the first `values` values: what a range costs is the way to the nearest mark. */
struct table_mark {
    uint32_t values;
    struct row_set rows;
};
struct column_table {
    bool texts;
    uint32_t n;     /* values; 0 where rows has some: they take too much room and are left out */
    uint32_t width; /* numbers: 1, 2, 4: of unsigned numbers above base; 8: f64 */
    double base;
    const uint8_t *values, *values_end;
    const uint8_t *text_groups; /* u32 per group: where in values it begins */
    const uint8_t *set_groups;  /* u32 per group: where in sets it begins */
    const uint8_t *sets, *sets_end;
    struct row_set rows; /* with any value */
    uint32_t n_marks;
    struct table_mark *marks; /* ascending; owned */
};
struct column {
    const char *name;
    uint32_t name_bytes;
    enum quire_column_type type;
    struct column_table tables[TABLES];
    struct row_set nulls, lists; /* lists: that are lists, empty ones, too */
    struct row_set odd;          /* lists with a member that is no number, string or bool */
    struct row_set objects;
    uint64_t bytes; /* of its record */
};

#define TENANT_GROUP 16u /* tenants between two offsets */

struct columns {
    uint64_t n_rows;
    uint32_t n_columns, n_tenants;
    bool complete; /* what has no column is in no row */
    uint64_t n_grants;
    struct column *columns; /* by name */
    uint8_t *records, *tenant_groups, *tenants;
    uint64_t records_bytes, tenant_groups_bytes, tenants_bytes;
};

/* Bytes of a record before its name: u64 bytes, u32 type, u32 name bytes, then of each table u32 values, u32 width,
 * f64 base, u32 bytes of values, u32 bytes of sets, u32 marks, u32 0. */
#define COLUMN_TABLE_BYTES   32u
#define COLUMN_HEADER_BYTES  (16u + TABLES * COLUMN_TABLE_BYTES)
#define COLUMNS_HEADER_BYTES 32u
#define COLUMNS_COMPLETE     1u /* flag */

enum columns_section { COLUMNS_HEADER = 1, COLUMNS_RECORDS = 2, COLUMNS_TENANT_GROUPS = 3, COLUMNS_TENANTS = 4 };

/* The rows of a tenant; false: it has none. */
bool columns_find_tenant(const struct columns *columns, const struct grant *wanted, struct row_set *rows);
const struct column *columns_find(const struct columns *columns, const char *name, uint32_t name_bytes);
double table_number(const struct column_table *table, uint32_t i);
/* Text i: *n_bytes of it. */
const char *table_text(const struct column_table *table, uint32_t i, uint32_t *n_bytes);
void table_set(const struct column_table *table, uint32_t i, struct row_set *out);
/* The value's place; n where it is not there. */
uint32_t table_find_text(const struct column_table *table, const char *text, uint32_t n_bytes);
/* The first value that is not below (above: not below and not equal to) the number. */
uint32_t table_bound(const struct column_table *table, double number, bool above);

/* columns_mixed.c: a FILTER_MIXED by the combinations of its fields' values, into the working sets `yes` and `maybe`
 * (both empty). *decided: false where columns cannot tell, and nothing was done. QUIRE_ENOMEM. */
int columns_select_mixed(const struct columns *columns, const struct filter *filter, const struct filter_part *part,
                         const struct universe *universe, uint64_t *yes, uint64_t *maybe, bool *decided);

/* Walks values and sets in order, from value `first`. */
struct table_walk {
    const struct column_table *table;
    const uint8_t *text, *set;
    uint32_t next;
};
void table_walk_from(struct table_walk *walk, const struct column_table *table, uint32_t first);
/* False at the end. The value as a filter sees it. */
bool table_next(struct table_walk *walk, struct json_value *value, struct row_set *set);

#endif
