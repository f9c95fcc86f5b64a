/*
 * columns_bound.h - what a comparison over several fields says of the values of each of them alone.
 */
#ifndef QUIRE_INDEX_COLUMNS_BOUND_H
#define QUIRE_INDEX_COLUMNS_BOUND_H

#include "index/attribute/filter.h"
#include "index/column/columns_view.h"

/* Rows that match have one of the values first .. end - 1 of this table. */
struct columns_bound {
    const struct column_table *table;
    uint32_t first, end;
};
/* Of a MIXED: one for each of its fields, into out[FILTER_FIELDS_MAX]; how many. 0: nothing is known. No other row
 * matches or may match. */
uint32_t columns_bound_sums(const struct columns *columns, const struct filter *filter, const struct filter_part *part,
                            struct columns_bound *out);

#endif
