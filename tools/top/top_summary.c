/*
 * top_summary.c - the upper part of a frame: items in lines, each line with a name.
 *
 * An item is never broken: where it does not fit, the line goes on below, so 40 columns show the same figures as 200 in
 * more lines. The lines are in the order of their use: a low window cuts the last ones off.
 */
#include "tools/top/top_frame_priv.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME_COLUMNS = 10, NARROW = 48, INDENT_NARROW = 2, ITEM_BYTES = 160, BAR_CELLS = 10 };

/* A line of items. */
struct flow {
    struct top_canvas *canvas;
    uint32_t indent, gap; /* blanks between items */
    bool first;
};

static struct flow begin(struct top_canvas *canvas, enum top_style style, const char *name)
{
    struct flow f = {canvas, canvas->width < NARROW ? INDENT_NARROW : NAME_COLUMNS, 2, true};
    top_canvas_line(canvas);
    top_canvas_put(canvas, style, "%s", name);
    top_canvas_to(canvas, f.indent, TOP_PLAIN);
    return f;
}

static void item(struct flow *f, enum top_style style, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void item(struct flow *f, enum top_style style, const char *format, ...)
{
    char text[ITEM_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    uint32_t gap = f->canvas->column > f->indent ? f->gap : f->canvas->column == f->indent ? 0 : 1;
    if (f->canvas->column + gap + strlen(text) > f->canvas->width && !f->first) {
        top_canvas_line(f->canvas);
        top_canvas_to(f->canvas, f->indent, TOP_PLAIN);
        gap = 0;
    }
    top_canvas_to(f->canvas, f->canvas->column + gap, TOP_PLAIN);
    top_canvas_put(f->canvas, style, "%s", text);
    f->first = false;
}

/* A sentence, which may go on in the next line at each of its blanks. */
static void sentence(struct flow *f, enum top_style style, const char *text)
{
    f->gap = 1;
    for (size_t n; *text; text += n) {
        n = strcspn(text, " ");
        if (n > 0)
            item(f, style, "%.*s", (int)n, text);
        n += text[n] == ' ';
    }
}

static double rate(const struct top_shown *shown, enum top_number number)
{
    return shown->rates->number[number];
}

static double level(const struct top_shown *shown, enum top_number number)
{
    return top_info_has(shown->info, number) ? (double)shown->info->values[number] : (double)NAN;
}

static bool above_zero(const struct top_shown *shown, enum top_number number)
{
    return top_info_get(shown->info, number) > 0;
}

#define COUNT(value)   top_figure_count(value).text
#define BYTES(value)   top_figure_bytes(value).text
#define PERCENT(share) top_figure_percent(share).text

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void draw_title(struct top_canvas *canvas, const struct top_view *view, const struct top_shown *shown)
{
    struct flow f = {canvas, 0, 2, true};
    top_canvas_line(canvas);
    item(&f, TOP_STRONG, "quire top");
    item(&f, TOP_PLAIN, "%s", shown->server);
    if (shown->info) {
        item(&f, TOP_PLAIN, "quire %s", *shown->info->quire_version ? shown->info->quire_version : "?");
        item(&f, TOP_PLAIN, "up %s", top_figure_span(level(shown, TOP_uptime_in_seconds)).text);
    }
    item(&f, TOP_PLAIN, "%s", shown->clock);
    item(&f, TOP_PLAIN, "every %g s", view->interval_s);
    if (view->paused)
        item(&f, TOP_WARN, "paused");
}

static void draw_state(struct top_canvas *canvas, const struct top_shown *shown)
{
    static const char *const sentences[] = {
        [TOP_RATES_FIRST] = "no rates yet: they come with the next INFO",
        [TOP_RATES_RESTART] = "the server was started again: rates come with the next INFO",
        [TOP_RATES_RESET] = "counters were reset (CONFIG RESETSTAT): rates come with the next INFO"};
    if (shown->problem) {
        struct flow f = begin(canvas, TOP_BAD, "no server");
        item(&f, TOP_BAD, "for %s,", top_figure_span(shown->problem_s).text);
        sentence(&f, TOP_BAD, "connecting again:");
        sentence(&f, TOP_BAD, shown->problem);
        if (shown->info)
            sentence(&f, TOP_FAINT, "(the figures are its last)");
    } else if (shown->silent_s >= 1) {
        struct flow f = begin(canvas, TOP_WARN, "waiting");
        item(&f, TOP_WARN, "for an answer: %s", top_figure_span(shown->silent_s).text);
    } else if (shown->rates && shown->rates->state != TOP_RATES_KNOWN) {
        struct flow f = begin(canvas, TOP_WARN, "note");
        sentence(&f, TOP_WARN, sentences[shown->rates->state]);
    }
}

static void draw_trouble(struct top_canvas *canvas, const struct top_shown *shown)
{
    static const struct {
        enum top_number number;
        const char *what;
    } troubles[] = {{TOP_unavailable_sets, "sets unavailable"},
                    {TOP_unavailable_caches, "caches unavailable"},
                    {TOP_log_failures, "log failures"},
                    {TOP_store_failures, "upkeep failures"},
                    {TOP_device_read_errors, "disk read errors"}};
    struct flow f;
    bool begun = false;
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
        if (!above_zero(shown, troubles[i].number))
            continue;
        if (!begun)
            f = begin(canvas, TOP_BAD, "trouble");
        begun = true;
        item(&f, TOP_BAD, "%s %s", COUNT(level(shown, troubles[i].number)), troubles[i].what);
    }
}

static void draw_searches(struct top_canvas *canvas, const struct top_shown *shown)
{
    double us[3]; /* INFO has 0 before the first */
    for (unsigned i = 0; i < 3; i++)
        us[i] = shown->info->latency_us[i] > 0 ? shown->info->latency_us[i] : (double)NAN;
    struct flow f = begin(canvas, TOP_STRONG, "searches");
    item(&f, TOP_STRONG, "%s/s", COUNT(rate(shown, TOP_searches)));
    item(&f, TOP_PLAIN, "%s reads each",
         COUNT(top_rates_share(rate(shown, TOP_search_reads), rate(shown, TOP_searches))));
    item(&f, TOP_PLAIN, "%s reads/s", COUNT(rate(shown, TOP_search_reads)));
    item(&f, TOP_STRONG, "mean %s", top_figure_us(shown->rates->search_us).text);
    item(&f, rate(shown, TOP_search_errors) > 0 ? TOP_BAD : TOP_PLAIN, "%s failed/s",
         COUNT(rate(shown, TOP_search_errors)));
    item(&f, TOP_PLAIN, "all time p50 %s", top_figure_us(us[0]).text);
    item(&f, TOP_PLAIN, "p99 %s", top_figure_us(us[1]).text);
    item(&f, TOP_PLAIN, "p99.9 %s", top_figure_us(us[2]).text);
    if (above_zero(shown, TOP_search_number_of_indexes))
        item(&f, TOP_PLAIN, "FT.* %s/s", COUNT(rate(shown, TOP_search_queries)));
}

static void draw_commands(struct top_canvas *canvas, const struct top_shown *shown)
{
    struct flow f = begin(canvas, TOP_STRONG, "commands");
    item(&f, TOP_STRONG, "%s/s", COUNT(rate(shown, TOP_total_commands_processed)));
    item(&f, rate(shown, TOP_total_error_replies) > 0 ? TOP_WARN : TOP_PLAIN, "%s errors/s",
         COUNT(rate(shown, TOP_total_error_replies)));
    item(&f, TOP_PLAIN, "in %s/s", BYTES(rate(shown, TOP_total_net_input_bytes)));
    item(&f, TOP_PLAIN, "out %s/s", BYTES(rate(shown, TOP_total_net_output_bytes)));
    item(&f, TOP_PLAIN, "processor %s", PERCENT(rate(shown, TOP_used_cpu_sys) + rate(shown, TOP_used_cpu_user)));
    item(&f, TOP_PLAIN, "%s lanes", COUNT(level(shown, TOP_lanes)));
}

static void draw_caches(struct top_canvas *canvas, const struct top_shown *shown)
{
    const struct top_rates *r = shown->rates;
    if (!above_zero(shown, TOP_caches))
        return;
    struct flow f = begin(canvas, TOP_STRONG, "cache");
    item(&f, TOP_STRONG, "%s lookups/s", COUNT(r->lookups));
    item(&f, TOP_GOOD, "served %s",
         PERCENT(top_rates_share(r->lookup[TOP_LOOKUP_NEAR] + r->lookup[TOP_LOOKUP_EXACT] + r->lookup[TOP_LOOKUP_STALE],
                                 r->lookups)));
    for (unsigned i = 0; i < TOP_N_LOOKUPS; i++)
        item(&f, TOP_PLAIN, "%s %s", top_rates_lookup_names[i], PERCENT(top_rates_share(r->lookup[i], r->lookups)));
    item(&f, TOP_PLAIN, "all time %s",
         PERCENT(top_rates_share(level(shown, TOP_cache_hits), level(shown, TOP_cache_requests))));
    item(&f, TOP_PLAIN, "%s entries", COUNT(level(shown, TOP_cache_entries)));
}

static void draw_tenants(struct top_canvas *canvas, const struct top_shown *shown)
{
    struct flow f = begin(canvas, TOP_STRONG, "clients");
    item(&f, TOP_PLAIN, "%s of %s", COUNT(level(shown, TOP_connected_clients)), COUNT(level(shown, TOP_maxclients)));
    item(&f, TOP_PLAIN, "hold %s of %s", BYTES(level(shown, TOP_mem_clients_normal)),
         BYTES(level(shown, TOP_maxmemory_clients)));
    item(&f, TOP_PLAIN, "%s tenants", COUNT(level(shown, TOP_tenants)));
    item(&f, TOP_PLAIN, "run %s", COUNT(level(shown, TOP_tenant_running)));
    item(&f, TOP_PLAIN, "wait %s", COUNT(level(shown, TOP_tenant_waiting)));
    item(&f, rate(shown, TOP_tenant_refused) > 0 ? TOP_WARN : TOP_PLAIN, "%s refused/s",
         COUNT(rate(shown, TOP_tenant_refused)));
}

/* What maxmemory limits: keys, vector sets and indexes of documents; caches have limits of their own. */
static void draw_memory(struct top_canvas *canvas, const struct top_shown *shown)
{
    double used = level(shown, TOP_used_memory_dataset) + level(shown, TOP_used_memory_indexes) +
                  (double)top_info_get(shown->info, TOP_used_memory_documents);
    double share = top_rates_share(used, level(shown, TOP_maxmemory));
    struct flow f = begin(canvas, TOP_STRONG, "memory");
    if (isnan(share)) {
        item(&f, TOP_STRONG, "data %s, no limit", BYTES(used));
    } else {
        char bar[BAR_CELLS + 1];
        unsigned filled = share < 1 ? (unsigned)(share * BAR_CELLS) : BAR_CELLS;
        memset(bar, '.', BAR_CELLS);
        memset(bar, '#', filled);
        bar[BAR_CELLS] = 0;
        item(&f, share >= 0.9 ? TOP_BAD : TOP_STRONG, "data %s of %s", BYTES(used), BYTES(level(shown, TOP_maxmemory)));
        item(&f, share >= 0.9 ? TOP_BAD : TOP_STRONG, "[%s] %s", bar, PERCENT(share));
    }
    item(&f, TOP_PLAIN, "vector sets %s", BYTES(level(shown, TOP_used_memory_indexes)));
    item(&f, TOP_PLAIN, "not sealed %s", BYTES(level(shown, TOP_memtable_bytes)));
    item(&f, TOP_PLAIN, "caches %s", BYTES(level(shown, TOP_used_memory_caches)));
    item(&f, TOP_PLAIN, "resident %s", BYTES(level(shown, TOP_used_memory_rss)));
}

static void draw_disk(struct top_canvas *canvas, const struct top_shown *shown)
{
    struct flow f = begin(canvas, TOP_STRONG, "disk");
    item(&f, TOP_PLAIN, "%s reads/s", COUNT(rate(shown, TOP_device_reads)));
    item(&f, TOP_PLAIN, "%s/s", BYTES(rate(shown, TOP_device_read_bytes)));
    item(&f, TOP_PLAIN, "%s in flight", COUNT(level(shown, TOP_reads_in_flight)));
    item(&f, above_zero(shown, TOP_reads_waiting) ? TOP_WARN : TOP_PLAIN, "%s waiting",
         COUNT(level(shown, TOP_reads_waiting)));
    item(&f, TOP_PLAIN, "folder %s", BYTES(level(shown, TOP_disk_bytes)));
    item(&f, TOP_PLAIN, "%s keys", COUNT((double)top_info_get(shown->info, TOP_keys)));
    item(&f, TOP_PLAIN, "%s sets", COUNT(level(shown, TOP_collections)));
    item(&f, TOP_PLAIN, "%s segments", COUNT(level(shown, TOP_segments)));
}

static void draw_upkeep(struct top_canvas *canvas, const struct top_shown *shown)
{
    static const struct {
        enum top_number number;
        const char *what;
    } works[] = {{TOP_sealing, "sealing"},
                 {TOP_merging, "merging"},
                 {TOP_checkpointing, "checkpoint"},
                 {TOP_rdb_bgsave_in_progress, "snapshot"},
                 {TOP_search_indexes_being_filled, "filling an index"}};
    struct flow f = begin(canvas, TOP_STRONG, "upkeep");
    bool idle = true;
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        if (above_zero(shown, works[i].number))
            item(&f, TOP_GOOD, "%s", works[i].what);
        idle = idle && !above_zero(shown, works[i].number);
    }
    if (idle)
        item(&f, TOP_PLAIN, "idle");
    if (above_zero(shown, TOP_writers_wait))
        item(&f, TOP_WARN, "writers wait");
    item(&f, TOP_PLAIN, "%s seals", COUNT(level(shown, TOP_seals)));
    item(&f, TOP_PLAIN, "%s merges", COUNT(level(shown, TOP_merges)));
    item(&f, TOP_PLAIN, "%s checkpoints", COUNT(level(shown, TOP_checkpoints)));
    item(&f, TOP_PLAIN, "log %s", BYTES(level(shown, TOP_log_bytes)));
    item(&f, TOP_PLAIN, "%s frames/s", COUNT(rate(shown, TOP_log_frames)));
}

void top_summary_draw(struct top_canvas *canvas, const struct top_view *view, const struct top_shown *shown)
{
    draw_title(canvas, view, shown);
    draw_state(canvas, shown);
    if (!shown->info || !shown->rates)
        return;
    draw_trouble(canvas, shown);
    draw_searches(canvas, shown);
    draw_caches(canvas, shown);
    draw_commands(canvas, shown);
    draw_memory(canvas, shown);
    draw_disk(canvas, shown);
    draw_upkeep(canvas, shown);
    draw_tenants(canvas, shown);
}
