/*
 * filter_rows.h - a filter, or a part of one, over many rows at once: what each of them has in the fields, as arrays,
 * gives a bit for each.
 *
 * It means to the last bit what filter_matches and filter_test say of a row alone (filter_run.c has the operators);
 * what differs is the order of the work: each operator goes through all rows of a chunk before the next, so that an
 * operation on numbers costs a fraction of a nanosecond a row. Only what looks into strings or lists is done row by
 * row.
 */
#ifndef QUIRE_INDEX_FILTER_ROWS_H
#define QUIRE_INDEX_FILTER_ROWS_H

#include "index/attribute/filter.h"

#define FILTER_ROWS_MAX  512u       /* of a chunk */
#define FILTER_FIELD_KEY UINT32_MAX /* in place of a field: the element's name */

/* What the rows of a chunk have in one field, as their columns' types have it (attribute_typed). */
struct filter_values {
    /* n: the number that an expression takes the value for (filter_number_of): of what is no number and no string 0,
     * of what is not there anything */
    const double *numbers;
    const uint8_t *kinds; /* n, enum value_kind; NULL: all are numbers or booleans */
    double whole_max;     /* kinds NULL: all are whole numbers of at most this magnitude; 0: that is not known */
};

struct filter_chunk {
    uint32_t n;                         /* rows, at most FILTER_ROWS_MAX */
    const struct filter_values *fields; /* by the index of filter_field; those of fields that the part names are read */
    /* The value of a row whose kind is STRING or LIST, or its name (FILTER_FIELD_KEY): asked for where an operator
     * looks into it. Only a part whose lists are not alike (filter_part) looks into a list. */
    void (*value)(void *context, uint32_t field, uint32_t row, struct json_value *out);
    void *context;
};

/* Room to work in: not for two threads at once. part NULL: the whole filter. The filter must live as long. Returns NULL
 * without memory. */
struct filter_rows *filter_rows_create(const struct filter *filter, const struct filter_part *part);
void filter_rows_free(struct filter_rows *rows); /* NULL is fine */
/* Bit i of bits[0 .. (n + 63) / 64), all of which is written: row i matches. A row that lacks a field which is
 * required, or has an object there, does not. */
void filter_rows_match(struct filter_rows *rows, const struct filter_chunk *chunk, uint64_t *bits);
/* The number of a value, for `numbers`. About 50 ns of a string. */
double filter_number_of(const struct json_value *value);

#endif
