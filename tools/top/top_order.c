/*
 * top_order.c - one list of keys for all tables: what is asked most, in all, slowest, dearest, by name.
 *
 * Before there are rates, rows go by what was counted since the start: the first frame is in a useful order, too.
 */
#include "tools/top/top_order.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const top_order_names[TOP_N_SORTS] = {"rate", "total", "time", "share", "name"};

struct candidate {
    double value;
    const struct top_row *row;
    uint32_t number;
    bool reverse;
};

static const unsigned counted[TOP_N_TABLES] = {
    [TOP_TENANTS] = TOP_TENANT_queries, [TOP_CACHES] = TOP_CACHE_requests, [TOP_COMMANDS] = TOP_COMMAND_calls};

static double level(const struct top_row *row, unsigned field)
{
    return top_info_row_has(row, field) ? (double)row->values[field] : (double)NAN;
}

static double time_of(const struct top_row *row, const struct top_rates *rates, enum top_table table, uint32_t number)
{
    if (table == TOP_TENANTS)
        return level(row, TOP_TENANT_latency_p99_us);
    if (table == TOP_CACHES)
        return level(row, TOP_CACHE_get_p99_us);
    return top_rates_share(top_rates_row(rates, table, number, TOP_COMMAND_usec),
                           top_rates_row(rates, table, number, TOP_COMMAND_calls));
}

double top_order_value(const struct top_info *info, const struct top_rates *rates, enum top_table table, uint32_t row,
                       enum top_sort sort)
{
    const struct top_row *r = &info->rows[table][row];
    switch (sort) {
    case TOP_SORT_RATE:
        return rates->state == TOP_RATES_KNOWN ? top_rates_row(rates, table, row, counted[table])
                                               : level(r, counted[table]);
    case TOP_SORT_TOTAL:
        return level(r, counted[table]);
    case TOP_SORT_TIME:
        return time_of(r, rates, table, row);
    case TOP_SORT_SHARE:
        return top_rates_row_share(rates, table, row);
    case TOP_SORT_NAME:
    case TOP_N_SORTS:
        break;
    }
    return (double)NAN;
}

static int compare(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    int by_name = strcmp(a->row->name, b->row->name), sign = a->reverse ? -1 : 1;
    if (isnan(a->value) || isnan(b->value)) {
        if (isnan(a->value) != isnan(b->value))
            return isnan(a->value) ? 1 : -1;
    } else if (a->value != b->value) {
        return a->value > b->value ? -sign : sign;
    }
    return by_name != 0 ? by_name * sign : (a->number > b->number) - (a->number < b->number);
}

void top_order_rows(const struct top_info *info, const struct top_rates *rates, enum top_table table,
                    enum top_sort sort, bool reverse, uint32_t order[TOP_ROWS_MAX])
{
    struct candidate all[TOP_ROWS_MAX];
    uint32_t n = info->n_rows[table];
    for (uint32_t i = 0; i < n; i++)
        all[i] = (struct candidate){top_order_value(info, rates, table, i, sort), &info->rows[table][i], i, reverse};
    qsort(all, n, sizeof *all, compare);
    for (uint32_t i = 0; i < n; i++)
        order[i] = all[i].number;
}
