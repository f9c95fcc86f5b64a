/*
 * top_rates.c - differences of counters, where they are differences of the same counter.
 *
 * A restart is another run_id, or an uptime that fell where there is no run_id. RESETSTAT leaves no mark but counters
 * that fell: one that did speaks for all of its kind (TOP_COUNT of the server itself), since others may have passed
 * their old value again. Sums over caches, tenants and indexes fall when one of these goes, and rows when one is
 * dropped and made again: those are judged one by one. Rows are matched by name.
 */
#include "tools/top/top_rates.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MIN 0.001 /* less is no interval */

const char *const top_rates_lookup_names[TOP_N_LOOKUPS] = {"near", "exact",    "stale", "audit",
                                                           "miss", "negative", "bypass"};
static const unsigned lookup_fields[TOP_N_LOOKUPS] = {
    [TOP_LOOKUP_NEAR] = TOP_CACHE_hits,       [TOP_LOOKUP_EXACT] = TOP_CACHE_exact,
    [TOP_LOOKUP_STALE] = TOP_CACHE_stale,     [TOP_LOOKUP_AUDIT] = TOP_CACHE_audits,
    [TOP_LOOKUP_MISS] = TOP_CACHE_misses,     [TOP_LOOKUP_NEGATIVE] = TOP_CACHE_negative,
    [TOP_LOOKUP_BYPASS] = TOP_CACHE_bypassed,
};

const char *top_rates_reason(enum top_rates_state state)
{
    static const char *const reasons[] = {[TOP_RATES_KNOWN] = NULL,
                                          [TOP_RATES_FIRST] = "first",
                                          [TOP_RATES_RESTART] = "restart",
                                          [TOP_RATES_RESET] = "reset"};
    return reasons[state];
}

double top_rates_share(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

double top_rates_row(const struct top_rates *rates, enum top_table table, uint32_t row, unsigned field)
{
    assert(field < TOP_FIELDS_MAX);
    return row < rates->n_rows[table] ? rates->rows[table][(size_t)row * TOP_FIELDS_MAX + field] : (double)NAN;
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

static bool is_count(enum top_kind kind)
{
    return kind == TOP_COUNT || kind == TOP_CPU;
}

static enum top_rates_state judge(const struct top_info *before, const struct top_info *now, double seconds)
{
    if (!before || !(seconds >= SECONDS_MIN))
        return TOP_RATES_FIRST;
    bool ids = *before->run_id && *now->run_id;
    bool younger = top_info_has(before, TOP_uptime_in_seconds) && top_info_has(now, TOP_uptime_in_seconds) &&
                   now->values[TOP_uptime_in_seconds] < before->values[TOP_uptime_in_seconds];
    if (ids ? strcmp(before->run_id, now->run_id) != 0 : younger)
        return TOP_RATES_RESTART;
    for (unsigned i = 0; i < TOP_N_NUMBERS; i++)
        if (is_count(top_info_numbers[i].kind) && before->present[i] && now->present[i] &&
            now->values[i] < before->values[i])
            return TOP_RATES_RESET;
    return TOP_RATES_KNOWN;
}

static double per_second(enum top_kind kind, uint64_t before, uint64_t now, double seconds)
{
    if (kind == TOP_LEVEL || now < before)
        return (double)NAN;
    return (double)(now - before) / seconds * (kind == TOP_CPU ? 1e-6 : 1);
}

static void compute_numbers(const struct top_info *before, const struct top_info *now, struct top_rates *out)
{
    for (unsigned i = 0; i < TOP_N_NUMBERS; i++)
        if (before->present[i] && now->present[i])
            out->number[i] = per_second(top_info_numbers[i].kind, before->values[i], now->values[i], out->seconds);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The row of this name, most often at the same place. */
static const struct top_row *find_row(const struct top_info *info, enum top_table table, const struct top_row *row,
                                      uint32_t place)
{
    const struct top_row *rows = info->rows[table];
    if (place < info->n_rows[table] && strcmp(rows[place].name, row->name) == 0 && rows[place].is_user == row->is_user)
        return &rows[place];
    for (uint32_t i = 0; i < info->n_rows[table]; i++)
        if (strcmp(rows[i].name, row->name) == 0 && rows[i].is_user == row->is_user)
            return &rows[i];
    return NULL;
}

/* A row that lost a count was dropped and made again in between. */
static bool same_row(const struct top_row *before, const struct top_row *now, const struct top_field *fields,
                     unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (fields[i].kind == TOP_COUNT && top_info_row_has(before, i) && top_info_row_has(now, i) &&
            now->values[i] < before->values[i])
            return false;
    return true;
}

static bool compute_rows(const struct top_info *before, const struct top_info *now, enum top_table table,
                         struct top_rates *out)
{
    unsigned n;
    const struct top_field *fields = top_info_fields(table, &n);
    size_t values = (size_t)now->n_rows[table] * TOP_FIELDS_MAX;
    if (values > 0 && !array_reserve(&out->rows[table], &out->capacity[table], values))
        return false;
    for (size_t i = 0; i < values; i++)
        out->rows[table][i] = (double)NAN;
    out->n_rows[table] = now->n_rows[table];
    for (uint32_t row = 0; row < now->n_rows[table] && out->state == TOP_RATES_KNOWN; row++) {
        const struct top_row *later = &now->rows[table][row], *earlier = find_row(before, table, later, row);
        if (!earlier || !same_row(earlier, later, fields, n))
            continue;
        for (unsigned i = 0; i < n; i++)
            if (top_info_row_has(earlier, i) && top_info_row_has(later, i))
                out->rows[table][(size_t)row * TOP_FIELDS_MAX + i] =
                    per_second(fields[i].kind, earlier->values[i], later->values[i], out->seconds);
    }
    return true;
}

/* Over the rows that have the rate; NAN where none has. */
static double sum_rows(const struct top_rates *rates, enum top_table table, unsigned field)
{
    double sum = (double)NAN;
    for (uint32_t row = 0; row < rates->n_rows[table]; row++) {
        double rate = top_rates_row(rates, table, row, field);
        if (!isnan(rate))
            sum = isnan(sum) ? rate : sum + rate;
    }
    return sum;
}

double top_rates_row_share(const struct top_rates *rates, enum top_table table, uint32_t row)
{
    if (table == TOP_TENANTS)
        return top_rates_share(top_rates_row(rates, table, row, TOP_TENANT_cost_us), rates->cost);
    if (table == TOP_COMMANDS)
        return top_rates_share(top_rates_row(rates, table, row, TOP_COMMAND_usec), rates->command_us);
    double served = top_rates_row(rates, table, row, TOP_CACHE_hits) +
                    top_rates_row(rates, table, row, TOP_CACHE_exact) +
                    top_rates_row(rates, table, row, TOP_CACHE_stale);
    return top_rates_share(served, top_rates_row(rates, table, row, TOP_CACHE_requests));
}

static double mean_of_searches(const struct top_info *now, const struct top_rates *rates)
{
    double us = 0, calls = 0;
    for (uint32_t row = 0; row < rates->n_rows[TOP_COMMANDS]; row++) {
        const char *name = now->rows[TOP_COMMANDS][row].name;
        double row_us = top_rates_row(rates, TOP_COMMANDS, row, TOP_COMMAND_usec);
        double row_calls = top_rates_row(rates, TOP_COMMANDS, row, TOP_COMMAND_calls);
        if ((strcmp(name, "vsim") != 0 && strcmp(name, "vmsim") != 0) || isnan(row_us) || isnan(row_calls))
            continue;
        us += row_us;
        calls += row_calls;
    }
    return top_rates_share(us, calls);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

int top_rates_compute(const struct top_info *before, const struct top_info *now, double seconds, struct top_rates *out,
                      struct quire_error *err)
{
    out->state = judge(before, now, seconds);
    out->seconds = out->state == TOP_RATES_KNOWN ? seconds : (double)NAN;
    for (unsigned i = 0; i < TOP_N_NUMBERS; i++)
        out->number[i] = (double)NAN;
    if (out->state == TOP_RATES_KNOWN)
        compute_numbers(before, now, out);
    for (unsigned table = 0; table < TOP_N_TABLES; table++) {
        if (!compute_rows(before, now, (enum top_table)table, out)) {
            memset(out->n_rows, 0, sizeof out->n_rows);
            return error_set(err, QUIRE_ENOMEM, "no memory for the rates of %u rows", now->n_rows[table]);
        }
    }
    double kinds = 0;
    for (unsigned i = 0; i < TOP_N_LOOKUPS; i++)
        kinds += out->lookup[i] = sum_rows(out, TOP_CACHES, lookup_fields[i]);
    /* a busy server counts a look-up and its kind at two moments: the kinds are a whole of their own */
    out->lookups = isnan(kinds) ? sum_rows(out, TOP_CACHES, TOP_CACHE_requests) : kinds;
    out->cost = sum_rows(out, TOP_TENANTS, TOP_TENANT_cost_us);
    out->command_us = sum_rows(out, TOP_COMMANDS, TOP_COMMAND_usec);
    out->search_us = mean_of_searches(now, out);
    return 0;
}

void top_rates_fini(struct top_rates *rates)
{
    for (unsigned i = 0; i < TOP_N_TABLES; i++) {
        free(rates->rows[i]);
        rates->rows[i] = NULL;
    }
}
