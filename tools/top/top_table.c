/*
 * top_table.c - rows of tenants, caches and commands in columns.
 *
 * A column has a rank: where the width does not hold all, those of the highest ranks are left out, and the name gets
 * what remains. The column that the rows are sorted by is marked.
 */
#include "tools/top/top_frame_priv.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MIN = 8, NAME_MAX = 40, COLUMNS_MAX = 12, NO_SORT = TOP_N_SORTS };

enum form { FORM_COUNT, FORM_BYTES, FORM_US, FORM_PERCENT };

struct column {
    const char *title;
    double (*value)(const struct top_shown *shown, uint32_t row);
    unsigned sort; /* enum top_sort, or NO_SORT */
    uint16_t width, rank;
    enum form form;
};

static double level(const struct top_shown *shown, enum top_table table, uint32_t row, unsigned field)
{
    const struct top_row *r = &shown->info->rows[table][row];
    return top_info_row_has(r, field) ? (double)r->values[field] : (double)NAN;
}

#define LEVEL(name, table, field)                                                                                      \
    static double name(const struct top_shown *shown, uint32_t row)                                                    \
    {                                                                                                                  \
        return level(shown, table, row, field);                                                                        \
    }
#define RATE(name, table, field)                                                                                       \
    static double name(const struct top_shown *shown, uint32_t row)                                                    \
    {                                                                                                                  \
        return top_rates_row(shown->rates, table, row, field);                                                         \
    }
#define SHARE(name, table)                                                                                             \
    static double name(const struct top_shown *shown, uint32_t row)                                                    \
    {                                                                                                                  \
        return top_rates_row_share(shown->rates, table, row);                                                          \
    }

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

RATE(tenant_queries, TOP_TENANTS, TOP_TENANT_queries)
RATE(tenant_reads, TOP_TENANTS, TOP_TENANT_reads)
RATE(tenant_refused, TOP_TENANTS, TOP_TENANT_refused)
LEVEL(tenant_weight, TOP_TENANTS, TOP_TENANT_weight)
LEVEL(tenant_running, TOP_TENANTS, TOP_TENANT_running)
LEVEL(tenant_waiting, TOP_TENANTS, TOP_TENANT_waiting)
LEVEL(tenant_p50, TOP_TENANTS, TOP_TENANT_latency_p50_us)
LEVEL(tenant_p99, TOP_TENANTS, TOP_TENANT_latency_p99_us)
LEVEL(tenant_total, TOP_TENANTS, TOP_TENANT_queries)
SHARE(tenant_share, TOP_TENANTS)

/* Whether it asked for anything in the interval, or does now. */
static bool is_active(const struct top_shown *shown, uint32_t row)
{
    return tenant_queries(shown, row) > 0 || tenant_running(shown, row) > 0 || tenant_waiting(shown, row) > 0;
}

/* What its weight gives it beside the others that are active. */
static double tenant_fair(const struct top_shown *shown, uint32_t row)
{
    double sum = 0;
    if (!is_active(shown, row))
        return (double)NAN;
    for (uint32_t i = 0; i < shown->info->n_rows[TOP_TENANTS]; i++)
        if (is_active(shown, i) && !isnan(tenant_weight(shown, i)))
            sum += tenant_weight(shown, i);
    return top_rates_share(tenant_weight(shown, row), sum);
}

static const struct column tenant_columns[] = {
    {"queries/s", tenant_queries, TOP_SORT_RATE, 9, 0, FORM_COUNT},
    {"cost", tenant_share, TOP_SORT_SHARE, 6, 1, FORM_PERCENT},
    {"fair", tenant_fair, NO_SORT, 6, 4, FORM_PERCENT},
    {"weight", tenant_weight, NO_SORT, 6, 7, FORM_COUNT},
    {"reads/s", tenant_reads, NO_SORT, 7, 3, FORM_COUNT},
    {"run", tenant_running, NO_SORT, 5, 6, FORM_COUNT},
    {"wait", tenant_waiting, NO_SORT, 5, 5, FORM_COUNT},
    {"refused/s", tenant_refused, NO_SORT, 9, 8, FORM_COUNT},
    {"p50", tenant_p50, NO_SORT, 7, 9, FORM_US},
    {"p99", tenant_p99, TOP_SORT_TIME, 7, 2, FORM_US},
    {"queries", tenant_total, TOP_SORT_TOTAL, 7, 10, FORM_COUNT},
};

/* ---- caches ------------------------------------------------------------------------------------------------------ */

RATE(cache_requests, TOP_CACHES, TOP_CACHE_requests)
RATE(cache_stored, TOP_CACHES, TOP_CACHE_stored)
LEVEL(cache_entries, TOP_CACHES, TOP_CACHE_entries)
LEVEL(cache_memory, TOP_CACHES, TOP_CACHE_memory_bytes)
LEVEL(cache_p50, TOP_CACHES, TOP_CACHE_get_p50_us)
LEVEL(cache_p99, TOP_CACHES, TOP_CACHE_get_p99_us)
LEVEL(cache_total, TOP_CACHES, TOP_CACHE_requests)
SHARE(cache_served, TOP_CACHES)

static double cache_part(const struct top_shown *shown, uint32_t row, enum top_cache_field field)
{
    return top_rates_share(top_rates_row(shown->rates, TOP_CACHES, row, field), cache_requests(shown, row));
}

static double cache_near(const struct top_shown *shown, uint32_t row)
{
    return cache_part(shown, row, TOP_CACHE_hits);
}

static double cache_exact(const struct top_shown *shown, uint32_t row)
{
    return cache_part(shown, row, TOP_CACHE_exact);
}

static double cache_stale(const struct top_shown *shown, uint32_t row)
{
    return cache_part(shown, row, TOP_CACHE_stale);
}

static const struct column cache_columns[] = {
    {"lookups/s", cache_requests, TOP_SORT_RATE, 9, 0, FORM_COUNT},
    {"served", cache_served, TOP_SORT_SHARE, 6, 1, FORM_PERCENT},
    {"near", cache_near, NO_SORT, 6, 4, FORM_PERCENT},
    {"exact", cache_exact, NO_SORT, 6, 5, FORM_PERCENT},
    {"stale", cache_stale, NO_SORT, 6, 8, FORM_PERCENT},
    {"stored/s", cache_stored, NO_SORT, 8, 7, FORM_COUNT},
    {"entries", cache_entries, NO_SORT, 7, 3, FORM_COUNT},
    {"memory", cache_memory, NO_SORT, 6, 6, FORM_BYTES},
    {"p50", cache_p50, NO_SORT, 7, 9, FORM_US},
    {"p99", cache_p99, TOP_SORT_TIME, 7, 2, FORM_US},
    {"lookups", cache_total, TOP_SORT_TOTAL, 7, 10, FORM_COUNT},
};

/* ---- commands ---------------------------------------------------------------------------------------------------- */

RATE(command_calls, TOP_COMMANDS, TOP_COMMAND_calls)
RATE(command_failed, TOP_COMMANDS, TOP_COMMAND_failed_calls)
RATE(command_rejected, TOP_COMMANDS, TOP_COMMAND_rejected_calls)
LEVEL(command_total, TOP_COMMANDS, TOP_COMMAND_calls)
SHARE(command_share, TOP_COMMANDS)

static double command_mean(const struct top_shown *shown, uint32_t row)
{
    return top_order_value(shown->info, shown->rates, TOP_COMMANDS, row, TOP_SORT_TIME);
}

static const struct column command_columns[] = {
    {"calls/s", command_calls, TOP_SORT_RATE, 7, 0, FORM_COUNT},
    {"mean", command_mean, TOP_SORT_TIME, 7, 1, FORM_US},
    {"of time", command_share, TOP_SORT_SHARE, 7, 2, FORM_PERCENT},
    {"failed/s", command_failed, NO_SORT, 8, 4, FORM_COUNT},
    {"rejected/s", command_rejected, NO_SORT, 10, 5, FORM_COUNT},
    {"calls", command_total, TOP_SORT_TOTAL, 7, 3, FORM_COUNT},
};

/* ---- all --------------------------------------------------------------------------------------------------------- */

#define N(array) (sizeof(array) / sizeof *(array))

static const struct {
    const char *title;
    const struct column *columns;
    unsigned n;
} tables[TOP_N_TABLES] = {
    [TOP_TENANTS] = {"tenants", tenant_columns, N(tenant_columns)},
    [TOP_CACHES] = {"caches", cache_columns, N(cache_columns)},
    [TOP_COMMANDS] = {"commands", command_columns, N(command_columns)},
};

/* Which columns have room, and the width of the name. */
static uint32_t choose(enum top_table table, uint32_t width, bool chosen[COLUMNS_MAX])
{
    uint32_t left = width > NAME_MIN ? width - NAME_MIN : 0;
    memset(chosen, 0, COLUMNS_MAX * sizeof *chosen);
    assert(tables[table].n <= COLUMNS_MAX);
    for (unsigned rank = 0; rank < tables[table].n; rank++)
        for (unsigned i = 0; i < tables[table].n; i++) {
            const struct column *c = &tables[table].columns[i];
            if (c->rank != rank)
                continue;
            if (c->width + 1u > left)
                goto out; /* what comes behind matters less, also where it is narrow enough */
            left -= c->width + 1u;
            chosen[i] = true;
        }
out:
    return NAME_MIN + left < NAME_MAX ? NAME_MIN + left : NAME_MAX;
}

static struct top_figure figure(enum form form, double value)
{
    return form == FORM_BYTES     ? top_figure_bytes(value)
           : form == FORM_US      ? top_figure_us(value)
           : form == FORM_PERCENT ? top_figure_percent(value)
                                  : top_figure_count(value);
}

static void draw_row(struct top_canvas *canvas, const struct top_shown *shown, enum top_table table, uint32_t row,
                     const bool *chosen, uint32_t name_width)
{
    const struct top_row *r = &shown->info->rows[table][row];
    const char *mark = r->is_user ? "user:" : "";
    int room = (int)name_width - (int)strlen(mark);
    top_canvas_line(canvas);
    top_canvas_put(canvas, TOP_PLAIN, "%s%.*s", mark, room > 0 ? room : 0, *r->name ? r->name : "(no name)");
    top_canvas_to(canvas, name_width, TOP_PLAIN);
    for (unsigned i = 0; i < tables[table].n; i++)
        if (chosen[i]) {
            const struct column *c = &tables[table].columns[i];
            top_canvas_put(canvas, TOP_PLAIN, " %*s", c->width, figure(c->form, c->value(shown, row)).text);
        }
}

static void draw_head(struct top_canvas *canvas, const struct top_view *view, const struct top_shown *shown,
                      enum top_table table, const bool *chosen, uint32_t name_width)
{
    uint32_t n = shown->info->n_rows[table], more = shown->info->left_out[table];
    top_canvas_line(canvas);
    top_canvas_put(canvas, TOP_STRONG, "%s %u", tables[table].title, n);
    if (more > 0)
        top_canvas_put(canvas, TOP_WARN, " and %u more that are not shown", more);
    top_canvas_put(canvas, TOP_FAINT, ", by %s%s", top_order_names[view->sort], view->reverse ? ", reversed" : "");
    top_canvas_line(canvas);
    top_canvas_put(canvas, TOP_BAR, "%-*.*s", (int)name_width, (int)name_width,
                   view->sort == TOP_SORT_NAME ? "name*" : "name");
    for (unsigned i = 0; i < tables[table].n; i++)
        if (chosen[i]) {
            const struct column *c = &tables[table].columns[i];
            char title[24];
            snprintf(title, sizeof title, "%s%s", c->title, c->sort == view->sort ? "*" : "");
            top_canvas_put(canvas, TOP_BAR, strlen(title) > c->width ? "%*s" : " %*s", c->width, title);
        }
}

void top_table_draw(struct top_canvas *canvas, const struct top_view *view, const struct top_shown *shown,
                    enum top_table table, uint32_t first, uint32_t most)
{
    bool chosen[COLUMNS_MAX];
    uint32_t order[TOP_ROWS_MAX], n = shown->info->n_rows[table];
    uint32_t name_width = choose(table, canvas->width, chosen);
    draw_head(canvas, view, shown, table, chosen, name_width);
    top_order_rows(shown->info, shown->rates, table, view->sort, view->reverse, order);
    for (uint32_t i = first; i < n && i - first < most; i++)
        draw_row(canvas, shown, table, order[i], chosen, name_width);
    if (n == 0 && most > 0) {
        top_canvas_line(canvas);
        top_canvas_put(canvas, TOP_FAINT, "%s",
                       table == TOP_CACHES    ? "none: SC.CREATE makes one"
                       : table == TOP_TENANTS ? "none has searched so far"
                                              : "none was called so far");
    }
}
