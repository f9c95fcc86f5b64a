/* row_place.h - where a row is in an ascending list of rows. */
#ifndef QUIRE_INDEX_ROW_PLACE_H
#define QUIRE_INDEX_ROW_PLACE_H

#include <stdint.h>

/* Place of the first of rows[from .. to) that is not below `row`; `to`: all are. */
static inline uint64_t rows_place(const uint32_t *rows, uint64_t from, uint64_t to, uint64_t row)
{
    while (from < to) {
        uint64_t middle = from + (to - from) / 2;
        if (rows[middle] < row)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

#endif
