/* parquet_column.h - the values of one column of a row group, page by page. */
#ifndef QUIRE_TOOLS_RECORDS_PARQUET_COLUMN_H
#define QUIRE_TOOLS_RECORDS_PARQUET_COLUMN_H

#include "tools/records/parquet_meta.h"

/* What the schema says of a leaf. */
struct parquet_leaf {
    const char *name; /* of the column, the outermost name */
    int32_t type, type_bytes, converted;
    uint8_t definition_max, repetition_max;
    uint8_t element_definition; /* a list: from this level on, there is an element (null below definition_max) */
};

struct parquet_value {
    const uint8_t *bytes; /* NULL: null, or an empty list; valid until the next call */
    uint32_t n;           /* bytes; of a boolean: 1 */
    uint8_t definition, repetition;
};

struct parquet_column;
int parquet_column_open(int fd, const char *file, const struct parquet_leaf *leaf, const struct parquet_chunk *chunk,
                        struct parquet_column **out, struct quire_error *err);
void parquet_column_close(struct parquet_column *column); /* NULL is fine */
/* 1 and the next value; 0: no more. peek leaves it there, and tells repetition and definition only. */
int parquet_column_next(struct parquet_column *column, struct parquet_value *out, struct quire_error *err);
int parquet_column_peek(struct parquet_column *column, uint8_t *repetition, struct quire_error *err);

/* Snappy's raw format into exactly n bytes; false: it is damaged. */
bool parquet_unsnap(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t n);

#endif
