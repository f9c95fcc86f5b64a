/* support_columns.h - texts of rows (grants and JSON) for the tests of columns, and their folder. */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_COLUMNS_H
#define QUIRE_TESTS_INDEX_SUPPORT_COLUMNS_H

#include "index/attribute/grants.h"

struct support_table {
    uint32_t n;
    char **texts; /* with grants; NULL: none */
    uint32_t *bytes;
    unsigned asked; /* times that row 0 was asked for */
};
void support_table_init(struct support_table *t, uint32_t n);
void support_table_fini(struct support_table *t);
/* Row `row` gets n grants and JSON (NULL: none) instead of what it had. */
void support_table_put(struct support_table *t, uint32_t row, const struct grant *grants, uint32_t n, const char *json);
/* A columns_source; context: the table. */
int support_table_give(void *context, uint32_t row, const char **text, uint32_t *bytes, struct quire_error *err);

/* Makes a section file's checksums right again. */
void support_reseal(uint8_t *file);

/* What cmocka gives each test: a folder, and in it the path of the file of columns. */
struct support_columns {
    char *folder, *path;
};
int support_columns_set_up(void **state);
int support_columns_tear_down(void **state);

#endif
