/* support_rows.h - the working rows of a build (8-bit codes) made from vectors, for the tests of its steps. */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_ROWS_H
#define QUIRE_TESTS_INDEX_SUPPORT_ROWS_H

#include "index/vector/rows.h"

/* Codes of n vectors of dim floats, dim a multiple of 32. Ended by support_rows_free. */
struct rows support_rows(const float *vectors, uint32_t n, uint32_t dim);
void support_rows_free(struct rows *rows);

#endif
