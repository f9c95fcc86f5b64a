/*
 * column_rows.h - a column turned over: not the rows of each value, but the value of each row, as filters over several
 * fields want it (filter_rows.h).
 *
 * Made when it is first asked for, by one pass over the column's sets (some nanoseconds a row), and kept while it is
 * asked for: what columns keep so is bounded by what they take themselves and KEPT_BYTES. Thread-safe.
 */
#ifndef QUIRE_INDEX_COLUMN_ROWS_H
#define QUIRE_INDEX_COLUMN_ROWS_H

#include "index/column/columns_view.h"

struct column_rows; /* immutable, counted */

/* What columns keep. NULL: no memory. */
struct kept_rows *column_rows_keep_create(uint64_t bytes_max);
void column_rows_keep_destroy(struct kept_rows *kept); /* NULL is fine */
uint64_t column_rows_kept_bytes(const struct kept_rows *kept);

/* A reference. QUIRE_ENOMEM. */
int column_rows_get(const struct columns *columns, const struct column *column, struct column_rows **out);
void column_rows_unref(struct column_rows *rows); /* NULL is fine */
/* Whether each row has a number or a boolean: then column_rows_load gives no kinds. */
bool column_rows_are_numbers(const struct column_rows *rows);
/* Where all are numbers: as whole_max of filter_values. */
double column_rows_whole_max(const struct column_rows *rows);
/* Whether some values were left out of the column: their rows are given as lists. */
bool column_rows_have_gaps(const struct column_rows *rows);
/* Of the rows in the places first .. + n of the universe: numbers and kinds as filter_values has them. */
void column_rows_load(const struct column_rows *rows, const struct universe *universe, uint64_t first, uint32_t n,
                      double *numbers, uint8_t *kinds);
/* The text of a row that has one; an empty list of one that has a list. */
void column_rows_value(const struct column_rows *rows, uint32_t row, struct json_value *out);

#endif
