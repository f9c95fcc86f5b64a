/*
 * columns_priv.h - what writing, opening and selecting by columns share beyond columns_view.h: how sets are coded and
 * checked, and the sizes of what is stored.
 */
#ifndef QUIRE_INDEX_COLUMNS_PRIV_H
#define QUIRE_INDEX_COLUMNS_PRIV_H

#include "index/column/columns_view.h"
#include "index/format/format.h"
#include <string.h>

/* Bytes that grow. After a failure nothing more is added and failed stays true. */
struct column_buffer {
    uint8_t *at; /* owned */
    size_t n, capacity;
    bool failed;
};
void column_buffer_put(struct column_buffer *buffer, const void *bytes, size_t n);
void column_buffer_put_u32(struct column_buffer *buffer, uint32_t number);
void column_buffer_put_varint(struct column_buffer *buffer, uint64_t number); /* below 2^35 */

/* Appends the shortest form of the set. */
void row_set_put(struct column_buffer *out, const struct row_view *view);
/* Returns the place behind it, NULL where it does not end before `end`. What it holds is not looked at. */
const uint8_t *row_set_parse(const uint8_t *at, const uint8_t *end, struct row_set *out);
/* n different rows below n_rows, in order, and nothing behind them. */
bool row_set_is_valid(const struct row_set *set, uint64_t n_rows);

#define TABLE_GROUP        16u /* values between two offsets */
#define TABLE_MARKS        15u /* at most, of a table of numbers */
#define TABLE_VALUES_MARKS 64u /* values from which on there are marks */

#define TENANT_GROUP 16u /* tenants between two offsets */

/* Bytes of a record before its name: u64 bytes, u32 type, u32 name bytes, then of each table u32 values, u32 width,
 * f64 base, u32 bytes of values, u32 bytes of sets, u32 marks, u32 0. */
#define COLUMN_TABLE_BYTES   32u
#define COLUMN_HEADER_BYTES  (16u + TABLES * COLUMN_TABLE_BYTES)
#define COLUMNS_HEADER_BYTES 32u
#define COLUMNS_COMPLETE     1u /* flag */

enum columns_section { COLUMNS_HEADER = 1, COLUMNS_RECORDS = 2, COLUMNS_TENANT_GROUPS = 3, COLUMNS_TENANTS = 4 };

/* columns_mixed.c: a MIXED, or a TEST, row by row, into the working sets `yes` and `maybe` (both empty). *decided:
 * false where columns cannot tell of any row, and nothing was done. QUIRE_ENOMEM. */
int columns_select_mixed(const struct columns *columns, const struct filter *filter, const struct filter_part *part,
                         const struct universe *universe, uint64_t *yes, uint64_t *maybe, bool *decided);

#endif
