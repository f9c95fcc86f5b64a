/*
 * cache_load_report.c - what a run of cache-load came to: as JSON, and as a figure of the run over time.
 *
 * The bound beside a share is the upper end of its 95 % Wilson interval (1927): with few events a share itself says
 * little. The figure has four panels per run with one axis of time: hit rate of each category, wrong answers per
 * request, load of the model and lam, requests that went to the model. Each point is the mean of one interval between
 * samples, so bursts are seen. It is drawn here because SVG is text.
 */
#include "cache_load.h"
#include "io/error.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define Z95 1.959964

static double share(uint64_t k, uint64_t n)
{
    return n ? (double)k / (double)n : 0;
}

double wilson_upper(uint64_t k, uint64_t n)
{
    if (n == 0)
        return 1;
    double m = (double)n, p = (double)k / m, z2 = Z95 * Z95;
    return (p + z2 / (2 * m) + Z95 * sqrt(p * (1 - p) / m + z2 / (4 * m * m))) / (1 + z2 / m);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

json_t *report_row(struct cli *cli, json_t *into, const char *array)
{
    if (!into)
        return cli_put_row(cli, array);
    json_t *rows = json_object_get(into, array), *row = json_object();
    if (!rows)
        cli_put(cli, into, array, rows = json_array());
    if (json_array_append_new(rows, row) != 0)
        cli->report_failed = true;
    return row;
}

void report_timing(struct cli *cli, json_t *row, const struct load_timing *timing)
{
    cli_put_count(cli, row, "n", histogram_count(&timing->h));
    cli_put_real(cli, row, "p50_us", histogram_percentile(&timing->h, 0.5) / 1000);
    cli_put_real(cli, row, "p99_us", histogram_percentile(&timing->h, 0.99) / 1000);
    cli_put_real(cli, row, "p999_us", histogram_percentile(&timing->h, 0.999) / 1000);
}

static void report_counts(struct cli *cli, json_t *into, const struct load_counts *c)
{
    cli_put_count(cli, into, "requests", c->requests);
    cli_put_real(cli, into, "hit_rate", share(c->served, c->requests));
    for (unsigned i = 0; i < LOAD_STATUSES; i++)
        cli_put_count(cli, into, load_status_names[i], c->by_status[i]);
    cli_put_count(cli, into, "wrong", c->wrong);
    cli_put_real(cli, into, "wrong_share", share(c->wrong, c->requests));
    cli_put_real(cli, into, "wrong_upper", wilson_upper(c->wrong, c->requests));
    cli_put_count(cli, into, "outdated", c->stale);
    cli_put_real(cli, into, "outdated_share", share(c->stale, c->served));
    cli_put_count(cli, into, "cross_tenant", c->cross);
    cli_put_count(cli, into, "model_calls", c->calls);
    cli_put_real(cli, into, "traffic_cut", c->requests ? 1 - share(c->calls, c->requests) : 0);
}

static void report_latency(struct cli *cli, json_t *into, const char *of, const struct load_timing *timing)
{
    if (histogram_count(&timing->h) == 0)
        return;
    json_t *row = report_row(cli, into, "latency");
    cli_put_text(cli, row, "of", of);
    report_timing(cli, row, timing);
}

/* The requests that came in the burst, then each category's, in one table. */
static void report_parts(struct cli *cli, json_t *into, const struct load_result *r)
{
    if (r->burst.requests > 0) {
        json_t *burst = report_row(cli, into, "burst");
        report_counts(cli, burst, &r->burst);
    }
    for (uint32_t i = 0; i < r->n_categories; i++) {
        json_t *row = report_row(cli, into, "categories");
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

#define FIGURE_WIDTH 900
#define LEFT         80
#define RIGHT        730
#define PANEL_HEIGHT 120
#define PANEL_GAP    36
#define TITLE_HEIGHT 44
#define FOOT_HEIGHT  50
#define PANELS       4u
#define LINES_MAX    LOAD_CATEGORIES_MAX

static const char *const colours[] = {"#0b5fa5", "#d1495b", "#2a9d5c", "#7b4fa3", "#c77d0a", "#555555"};
#define N_COLOURS (sizeof colours / sizeof *colours)

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

/* The next of 1, 2, 5, 10, ... times a power of ten. */
static double round_up(double value)
{
    double power = pow(10, floor(log10(value)));
    const double steps[] = {1, 2, 5, 10};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (value <= steps[i] * power)
            return steps[i] * power;
    return value;
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
    return round_up(top);
}

static void draw_line(FILE *f, const struct load_result *r, enum panel panel, uint32_t line, double y, double top)
{
    const char *colour = colours[line % N_COLOURS];
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\" points=\"", colour);
    for (uint32_t i = 0; i < r->n_samples; i++) {
        double value = value_at(r, panel, line, i);
        if (!isnan(value))
            fprintf(f, "%.1f,%.1f ", LEFT + (RIGHT - LEFT) * r->samples[i].seconds / r->seconds,
                    y + PANEL_HEIGHT * (1 - fmin(value / top, 1)));
    }
    fprintf(f, "\"/>\n<path d=\"M%d %.1fh16\" stroke=\"%s\" stroke-width=\"1.4\"/>", RIGHT + 14, y + 12 + 16 * line,
            colour);
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-size=\"11\">%s</text>\n", RIGHT + 36, y + 16 + 16 * line,
            line_name(r, panel, line));
}

static void draw_panel(FILE *f, const struct load_result *r, enum panel panel, double y, double top)
{
    fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888888\"/>\n", LEFT, y,
            RIGHT - LEFT, PANEL_HEIGHT);
    for (int i = 0; i <= 2; i++)
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" font-size=\"11\">%g</text>\n", LEFT - 6,
                y + 4 + PANEL_HEIGHT * (1 - i / 2.0), top * i / 2);
    fprintf(f,
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"12\" transform=\"rotate(-90 %d %.1f)\">"
            "%s</text>\n",
            LEFT - 52, y + PANEL_HEIGHT / 2.0, LEFT - 52, y + PANEL_HEIGHT / 2.0, panel_titles[panel]);
    for (uint32_t line = 0; line < panel_lines(r, panel) && line < LINES_MAX; line++)
        draw_line(f, r, panel, line, y, top);
}

static void draw_times(FILE *f, const struct load_result *r, double y)
{
    for (int i = 0; i <= 6; i++)
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"11\">%.3g</text>\n",
                LEFT + (RIGHT - LEFT) * i / 6.0, y, r->seconds * i / 6);
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-size=\"11\">seconds</text>\n", RIGHT + 14, y);
}

static void draw(FILE *f, const struct load_result *const *results, const char *const *titles, uint32_t n)
{
    const int run_height = TITLE_HEIGHT + (int)PANELS * (PANEL_HEIGHT + PANEL_GAP) + FOOT_HEIGHT;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\""
            " font-family=\"sans-serif\" fill=\"#222222\">\n<title>quire cache-load over time</title>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
            FIGURE_WIDTH, run_height * (int)n, FIGURE_WIDTH, run_height * (int)n, FIGURE_WIDTH, run_height * (int)n);
    for (uint32_t k = 0; k < n; k++) {
        double y = run_height * (double)k + 28;
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-size=\"16\" font-weight=\"bold\">%s</text>\n", LEFT, y, titles[k]);
        y += TITLE_HEIGHT - 28;
        for (unsigned i = 0; i < PANELS; i++) {
            enum panel panel = (enum panel)i;
            draw_panel(f, results[k], panel, y + i * (PANEL_HEIGHT + PANEL_GAP), panel_top(results, n, panel));
        }
        draw_times(f, results[k], y + PANELS * (PANEL_HEIGHT + PANEL_GAP) - PANEL_GAP + 18);
    }
    fprintf(f, "</svg>\n");
}

int figure_write(const char *path, const struct load_result *const *results, const char *const *titles, uint32_t n,
                 struct quire_error *err)
{
    FILE *f = fopen(path, "wx");
    if (!f)
        return error_set_errno(err, errno, "cannot make", path);
    draw(f, results, titles, n);
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        int rc = error_set_errno(err, errno, "cannot write", path);
        remove(path);
        return rc;
    }
    return 0;
}
