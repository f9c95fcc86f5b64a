/*
 * attribute_schema.h - the columns that a collection declares: which fields of its elements' attributes are to be
 * indexed, and as what.
 *
 * A field needs no declaration: what elements bring is learnt when a segment is made (columns.h), as far as its limits
 * go. A declared one is indexed whatever those limits say (unless declared without INDEXED), and a `timestamp` is read
 * as a time: a number is seconds since 1970, a string RFC 3339 ("2026-11-22T10:00:00Z"; a date alone is its midnight in
 * UTC), and so is a string that an expression compares it with. Of a declared column a value of another type counts as
 * missing.
 */
#ifndef QUIRE_INDEX_ATTRIBUTE_SCHEMA_H
#define QUIRE_INDEX_ATTRIBUTE_SCHEMA_H

#include "index/attribute/json_value.h"
#include "quire.h"

#define ATTRIBUTE_NAME_BYTES_MAX 255u
#define ATTRIBUTE_COLUMNS_MAX    256u

/* Immutable once made; whoever holds it keeps it as long as filters compiled with it. n = 0: nothing is declared. */
struct attribute_schema {
    uint32_t n;
    struct quire_column *columns; /* by name, without repetition; names are owned */
};
/* Copies and checks: names of 1..255 bytes, no repetition, at most ATTRIBUTE_COLUMNS_MAX. */
int attribute_schema_create(const struct quire_column *columns, uint32_t n, struct attribute_schema **out,
                            struct quire_error *err);
void attribute_schema_destroy(struct attribute_schema *schema); /* NULL is fine */
/* The declared column of a field, or NULL. schema may be NULL. */
const struct quire_column *attribute_schema_find(const struct attribute_schema *schema, const char *name,
                                                 size_t name_bytes);
/* For journal and segment: docs/format.md has the bytes. Encoded bytes are the caller's to free; NULL: no memory. */
uint8_t *attribute_schema_encode(const struct attribute_schema *schema, uint32_t *n_bytes);
int attribute_schema_decode(const uint8_t *bytes, uint32_t n_bytes, struct attribute_schema **out,
                            struct quire_error *err);

/* Seconds since 1970 of an RFC 3339 time or date; false: it is none. */
bool attribute_time(const char *text, size_t bytes, double *seconds);
/* The value as the column's type has it: VALUE_NONE where it is of another. column may be NULL: as it is. */
struct json_value attribute_typed(const struct quire_column *column, struct json_value value);

#endif
