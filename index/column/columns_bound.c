/*
 * columns_bound.c - what a comparison of sums over several fields says of each of them alone.
 *
 * `.r + .c > 9990` cannot hold where .r plus the largest .c is no more than that. So of the values of .r, which a
 * column has in order, only the last ones can be in a row that matches: where they begin is found by bisection, with
 * the comparison itself (filter_sums.c), and how many rows have them is known to their sets. The rows of the field that
 * leaves the fewest are what the comparison is then asked about.
 *
 * All of it needs that each row has a number in each field; what else a row may have is not bounded by a column's
 * numbers.
 */
#include "index/column/columns_bound.h"
#include <assert.h>
#include <math.h>

struct sums {
    const struct filter *filter;
    const struct filter_part *part;
    double low[FILTER_FIELDS_MAX], high[FILTER_FIELDS_MAX]; /* by field */
};

/* The table of a field that is a number in every row; NULL: it is not. */
static const struct column_table *numbers_of(const struct columns *columns, const struct filter *filter, uint32_t field)
{
    uint32_t bytes;
    bool required;
    const char *name = filter_field(filter, field, &bytes, &required);
    const struct column *c = columns_find(columns, name, bytes);
    const struct column_table *table = c ? &c->tables[TABLE_NUMBERS] : NULL;
    return table && table->n > 0 && table->rows.n == columns->n_rows ? table : NULL;
}

/* With this value of the field. */
static bool may_match(struct sums *s, uint32_t field, const struct column_table *table, uint32_t value)
{
    double low = s->low[field], high = s->high[field], number = column_table_number(table, value);
    s->low[field] = s->high[field] = number;
    bool may = filter_sums_may_match(s->filter, s->part, s->low, s->high);
    s->low[field] = low;
    s->high[field] = high;
    return may;
}

/* The values of the field that may match: the first ones, the last ones, none or all. */
static void bound_values(struct sums *s, uint32_t field, const struct column_table *table, struct columns_bound *out)
{
    bool at_first = may_match(s, field, table, 0), at_last = may_match(s, field, table, table->n - 1);
    uint32_t begin = 0, end = table->n; /* the last value that is like the first one is in begin .. end - 1 */
    *out = (struct columns_bound){table, 0, at_first && at_last ? table->n : 0};
    if (at_first == at_last)
        return;
    while (end - begin > 1) {
        uint32_t middle = begin + (end - begin) / 2;
        if (may_match(s, field, table, middle) == at_first)
            begin = middle;
        else
            end = middle;
    }
    *out = at_first ? (struct columns_bound){table, 0, end} : (struct columns_bound){table, end, table->n};
}

uint32_t columns_bound_sums(const struct columns *columns, const struct filter *filter, const struct filter_part *part,
                            struct columns_bound *out)
{
    struct sums s = {.filter = filter, .part = part};
    uint32_t fields[FILTER_FIELDS_MAX], n = filter_part_fields(filter, part, fields);
    const struct column_table *tables[FILTER_FIELDS_MAX];
    assert(part->kind == FILTER_MIXED);
    if (!filter_compares_sums(filter, part))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        tables[i] = numbers_of(columns, filter, fields[i]);
        if (!tables[i])
            return 0;
        double low = column_table_number(tables[i], 0), high = column_table_number(tables[i], tables[i]->n - 1);
        if (fabs(low) > FILTER_SUM_MAX || fabs(high) > FILTER_SUM_MAX)
            return 0;
        s.low[fields[i]] = low;
        s.high[fields[i]] = high;
    }
    for (uint32_t i = 0; i < n; i++)
        bound_values(&s, fields[i], tables[i], &out[i]);
    return n;
}
