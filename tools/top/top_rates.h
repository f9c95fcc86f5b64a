/*
 * top_rates.h - what happened between two INFOs, per second.
 *
 * A rate is NAN where there is none: a field that one of the two lacks, a row that is new, a counter that fell. Across
 * a restart of the server, or CONFIG RESETSTAT, nothing is a rate: what the counters had in between nobody knows.
 */
#ifndef QUIRE_TOOLS_TOP_RATES_H
#define QUIRE_TOOLS_TOP_RATES_H

#include "tools/top/top_info.h"

enum top_rates_state {
    TOP_RATES_KNOWN,
    TOP_RATES_FIRST,   /* there is no INFO before */
    TOP_RATES_RESTART, /* it was another process */
    TOP_RATES_RESET    /* CONFIG RESETSTAT came in between */
};

/* Lookups in caches by what came of them; the order is that of the fields of TOP_CACHE_FIELDS from hits on. */
enum top_kind_of_lookup {
    TOP_LOOKUP_NEAR,
    TOP_LOOKUP_EXACT,
    TOP_LOOKUP_STALE,
    TOP_LOOKUP_AUDIT,
    TOP_LOOKUP_MISS,
    TOP_LOOKUP_NEGATIVE,
    TOP_LOOKUP_BYPASS,
    TOP_N_LOOKUPS
};
extern const char *const top_rates_lookup_names[TOP_N_LOOKUPS];

struct top_rates {
    enum top_rates_state state;
    double seconds;               /* between the two; NAN unless known */
    double number[TOP_N_NUMBERS]; /* of TOP_COUNT, TOP_SUM; of TOP_CPU seconds per second. Of levels NAN */
    double *rows[TOP_N_TABLES];   /* TOP_FIELDS_MAX to a row of the later INFO */
    uint32_t capacity[TOP_N_TABLES], n_rows[TOP_N_TABLES];
    double lookup[TOP_N_LOOKUPS], lookups; /* of all caches that were in both */
    double cost;                           /* of all tenants that were in both: us per second */
    double command_us;                     /* of all commands likewise */
    double search_us;                      /* mean of VSIM and VMSIM in the interval, from request to reply */
};

/* seconds: between the two by a monotonic clock. before NULL: there is none. Zeroed before first use, reused by further
 * calls. QUIRE_ENOMEM leaves it without rows. */
int top_rates_compute(const struct top_info *before, const struct top_info *now, double seconds, struct top_rates *out,
                      struct quire_error *err);
void top_rates_fini(struct top_rates *rates);

/* Of a field of the row'th row. */
double top_rates_row(const struct top_rates *rates, enum top_table table, uint32_t row, unsigned field);
/* part / whole; NAN where either is, or the whole is 0. */
double top_rates_share(double part, double whole);
/* Of a row, 0 to 1: a tenant's cost among all tenants', lookups of a cache that were served, a command's time among all
 * commands'. */
double top_rates_row_share(const struct top_rates *rates, enum top_table table, uint32_t row);
/* "first", "restart", "reset"; NULL where rates are known. */
const char *top_rates_reason(enum top_rates_state state);

#endif
