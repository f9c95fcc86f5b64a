/*
 * cache_load_report.c - what a run of it came to: as JSON, and as a figure of the run over time.
 *
 * The figure has four panels per run with one axis of time: hit rate of each category, wrong answers per
 * request, load of the model and lam, requests that went to the model. Each point is the mean of one interval between
 * samples, so bursts are seen.
 */
#include "tests/bench/cache_load/cache_load.h"
#include <math.h>

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void report_counts(struct cli *cli, json_t *into, const struct load_counts *c)
{
    cli_put_count(cli, into, "requests", c->requests);
    cli_put_real(cli, into, "hit_rate", report_share(c->served, c->requests));
    for (unsigned i = 0; i < LOAD_STATUSES; i++)
        cli_put_count(cli, into, load_status_names[i], c->by_status[i]);
    cli_put_count(cli, into, "wrong", c->wrong);
    cli_put_real(cli, into, "wrong_share", report_share(c->wrong, c->requests));
    cli_put_real(cli, into, "wrong_upper", report_wilson_upper(c->wrong, c->requests));
    cli_put_count(cli, into, "outdated", c->stale);
    cli_put_real(cli, into, "outdated_share", report_share(c->stale, c->served));
    cli_put_count(cli, into, "cross_tenant", c->cross);
    cli_put_count(cli, into, "model_calls", c->calls);
    cli_put_real(cli, into, "traffic_cut", c->requests ? 1 - report_share(c->calls, c->requests) : 0);
}

static void report_latency(struct cli *cli, json_t *into, const char *of, const struct timing *timing)
{
    if (histogram_count(&timing->h) == 0)
        return;
    json_t *row = cli_put_row(cli, into, "latency");
    cli_put_text(cli, row, "of", of);
    report_put_timing(cli, row, timing);
}

/* The requests that came in the burst, then each category's, in one table. */
static void report_parts(struct cli *cli, json_t *into, const struct load_result *r)
{
    if (r->burst.requests > 0) {
        json_t *burst = cli_put_row(cli, into, "burst");
        report_counts(cli, burst, &r->burst);
    }
    for (uint32_t i = 0; i < r->n_categories; i++) {
        json_t *row = cli_put_row(cli, into, "categories");
        cli_put_text(cli, row, "category", r->names[i]);
        report_counts(cli, row, &r->categories[i]);
        cli_put_real(cli, row, "threshold", r->thresholds[i]);
    }
}

void report_run(struct cli *cli, json_t *into, const struct load_result *r)
{
    cli_put_real(cli, into, "seconds", r->seconds);
    cli_put_real(cli, into, "requests_per_second", r->seconds > 0 ? (double)r->all.requests / r->seconds : 0);
    report_counts(cli, into, &r->all);
    cli_put_count(cli, into, "leases", r->all.leases);
    cli_put_count(cli, into, "labels", r->all.labels);
    cli_put_count(cli, into, "labels_late", r->all.labels_late);
    cli_put_count(cli, into, "feedback", r->all.feedback);
    cli_put_real(cli, into, "model_load_mean", r->load_mean);
    cli_put_real(cli, into, "model_queue_mean_ms", r->queue_mean_ms);
    cli_put_real(cli, into, "model_queue_p50_ms", r->queue_p50_ms);
    cli_put_real(cli, into, "model_queue_p99_ms", r->queue_p99_ms);
    for (unsigned i = 0; i < LOAD_STATUSES; i++)
        report_latency(cli, into, load_status_names[i], &r->lookup_ns[i]);
    report_latency(cli, into, "SC.PUT", &r->put_ns);
    report_latency(cli, into, "answer, model included", &r->answer_ns);
    report_parts(cli, into, r);
}

/* ---- the figure -------------------------------------------------------------------------------------------------- */

#define TITLE_HEIGHT 44
#define FOOT_HEIGHT  50
#define PANELS       4u
#define LINES_MAX    LOAD_CATEGORIES_MAX

enum panel { PANEL_HITS, PANEL_WRONG, PANEL_LOAD, PANEL_CALLS };
static const char *const panel_titles[PANELS] = {"hit rate", "wrong / request", "load", "model calls / s"};

static uint32_t panel_lines(const struct load_result *r, enum panel panel)
{
    return panel == PANEL_HITS ? r->n_categories : panel == PANEL_LOAD ? 2 : 1;
}

static const char *line_name(const struct load_result *r, enum panel panel, uint32_t line)
{
    static const char *const names[PANELS][2] = {
        [PANEL_WRONG] = {"all categories"}, [PANEL_LOAD] = {"utilisation", "lam"}, [PANEL_CALLS] = {"all categories"}};
    return panel == PANEL_HITS ? r->names[line] : names[panel][line];
}

/* Between the sample before i (none: the beginning) and sample i; NAN: nothing happened. */
static double value_at(const struct load_result *r, enum panel panel, uint32_t line, uint32_t i)
{
    static const struct load_sample nothing;
    const struct load_sample *b = &r->samples[i], *a = i ? b - 1 : &nothing;
    uint64_t requests = b->all.requests - a->all.requests;
    switch (panel) {
    case PANEL_HITS:
        requests = b->requests[line] - a->requests[line];
        return requests ? (double)(b->served[line] - a->served[line]) / (double)requests : NAN;
    case PANEL_WRONG:
        return requests ? (double)(b->all.wrong - a->all.wrong) / (double)requests : NAN;
    case PANEL_LOAD:
        return line == 0 ? b->load : b->lam;
    case PANEL_CALLS:
        break;
    }
    return b->seconds > a->seconds ? (double)(b->all.calls - a->all.calls) / (b->seconds - a->seconds) : NAN;
}

/* Panels of one kind have one scale in all runs, so that they can be compared. */
static double panel_top(const struct load_result *const *results, uint32_t n, enum panel panel)
{
    double top = panel == PANEL_WRONG ? 0.01 : 1;
    if (panel == PANEL_HITS || panel == PANEL_LOAD)
        return 1;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < results[k]->n_samples; i++)
            top = fmax(top, value_at(results[k], panel, 0, i));
    return figure_round_up(top);
}

static void draw_panel(FILE *f, const struct load_result *r, enum panel panel, double y, double top)
{
    double xs[LOAD_SAMPLES_MAX], values[LOAD_SAMPLES_MAX];
    figure_panel(f, y, top, panel_titles[panel]);
    for (uint32_t line = 0; line < panel_lines(r, panel) && line < LINES_MAX; line++) {
        for (uint32_t i = 0; i < r->n_samples; i++) {
            xs[i] = r->samples[i].seconds / r->seconds;
            values[i] = value_at(r, panel, line, i);
        }
        figure_line(f, y, top, line, line_name(r, panel, line), xs, values, r->n_samples);
    }
}

int figure_write(const char *path, const struct load_result *const *results, const char *const *titles, uint32_t n,
                 struct quire_error *err)
{
    const double panel_height = FIGURE_PANEL_HEIGHT + FIGURE_PANEL_GAP;
    const int run_height = TITLE_HEIGHT + (int)PANELS * (FIGURE_PANEL_HEIGHT + FIGURE_PANEL_GAP) + FOOT_HEIGHT;
    FILE *f;
    int rc = figure_open(path, "bench_cache_load over time", run_height * (int)n, &f, err);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < n; k++) {
        double y = run_height * (double)k + 28;
        figure_heading(f, y, titles[k]);
        y += TITLE_HEIGHT - 28;
        for (unsigned i = 0; i < PANELS; i++) {
            enum panel panel = (enum panel)i;
            draw_panel(f, results[k], panel, y + (double)i * panel_height, panel_top(results, n, panel));
        }
        figure_axis(f, y + (double)PANELS * panel_height - FIGURE_PANEL_GAP + 18, results[k]->seconds, "seconds");
    }
    return figure_close(path, f, err);
}
