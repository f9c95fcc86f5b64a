/*
 * columns_view.h - the inside of open columns, for selecting rows by them and for verifying them: columns of tables of
 * values, each value with its set of rows. What lies in memory is what lies in the file (docs/format.md), read field by
 * field.
 */
#ifndef QUIRE_INDEX_COLUMNS_VIEW_H
#define QUIRE_INDEX_COLUMNS_VIEW_H

#include "index/column/columns.h"
#include "index/column/row_set.h"
#include <math.h>

/* A column's values are in four tables. What a row has itself stands in one of the first two, once; what the members of
 * its list are in the others. */
enum table_kind { TABLE_NUMBERS, TABLE_TEXTS, TABLE_MEMBER_NUMBERS, TABLE_MEMBER_TEXTS, TABLES };

/* The rows that have one of the first `values` values: what a range costs is the way to the nearest mark. */
struct column_mark {
    uint32_t values;
    struct row_set rows;
};
struct column_table {
    bool texts;
    uint32_t n;     /* values; 0 where rows has some: they take too much space and are left out */
    uint32_t width; /* numbers: 1, 2, 4: of unsigned numbers above base; 8: f64 */
    double base;
    const uint8_t *values, *values_end;
    const uint8_t *text_groups; /* u32 per group: where in values it begins */
    const uint8_t *set_groups;  /* u32 per group: where in sets it begins */
    const uint8_t *sets, *sets_end;
    struct row_set rows; /* with any value */
    uint32_t n_marks;
    struct column_mark *marks; /* ascending; owned */
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

struct columns {
    uint64_t n_rows;
    uint32_t n_columns, n_tenants;
    bool complete; /* what has no column is in no row */
    uint64_t n_grants;
    struct column *columns; /* by name */
    uint8_t *records, *tenant_groups, *tenants;
    uint64_t records_bytes, tenant_groups_bytes, tenants_bytes;
    struct kept_rows *kept; /* columns by rows (column_rows.h): all that changes */
};

/* The rows of a tenant; false: it has none. */
bool columns_find_tenant(const struct columns *columns, const struct grant *wanted, struct row_set *rows);
const struct column *columns_find(const struct columns *columns, const char *name, uint32_t name_bytes);
double column_table_number(const struct column_table *table, uint32_t i);
/* Text i: *n_bytes of it. */
const char *column_table_text(const struct column_table *table, uint32_t i, uint32_t *n_bytes);
void column_table_set(const struct column_table *table, uint32_t i, struct row_set *out);
/* The value's place; n where it is not there. */
uint32_t column_table_find_text(const struct column_table *table, const char *text, uint32_t n_bytes);
/* The first value that is not below (above: not below and not equal to) the number. */
uint32_t column_table_bound(const struct column_table *table, double number, bool above);

/* Walks values and sets in order, from value `first`. */
struct column_walk {
    const struct column_table *table;
    const uint8_t *text, *set;
    uint32_t next;
};
void column_walk_from(struct column_walk *walk, const struct column_table *table, uint32_t first);
/* False at the end. The value as a filter sees it. */
bool column_walk_next(struct column_walk *walk, struct json_value *value, struct row_set *set);

/* -0 before 0: 1 / .x tells them apart. Neither is NaN. */
static inline int column_numbers_compare(double a, double b)
{
    if (a != b)
        return a < b ? -1 : 1;
    return (signbit(b) != 0) - (signbit(a) != 0);
}

#endif
