/*
 * eval_report.c - what runs of cache-eval came to: tables, and a figure along the stream.
 *
 * "second" is the second half of the stream, when a rule that learns has learnt. Its ratio is what was served there to
 * what the best single threshold serves there that somebody would choose who knew that half beforehand. Means are over
 * seeds; where a bar has to hold on each seed, the worst of them stands there.
 *
 * The figure cuts the stream into sections of equal length; a point is the mean of its section over all seeds.
 */
#include "tools/eval.h"
#include <math.h>
#include <string.h>

static const char *const policy_names[EVAL_POLICIES] = {"static", "per-category", "risk", "imported"};
const char *const eval_order_names[EVAL_ORDERS] = {"random", "bursty", "drifting"};

static const char *const timing_names[EVAL_TIMINGS] = {"get: hit", "get: exact", "get: miss", "get: audit", "put"};

/* Shares to 4 places: there are some ten thousand requests. */
static void put_share(struct cli *cli, json_t *row, const char *name, double share)
{
    cli_put_real(cli, row, name, round(share * 1e4) / 1e4);
}

static json_t *begin_row(struct cli *cli, const char *array, const struct eval_group *g, bool with_policy)
{
    json_t *row = cli_put_row(cli, NULL, array);
    cli_put_text(cli, row, "order", eval_order_names[g->order]);
    cli_put_real(cli, row, "delta", g->delta);
    if (with_policy)
        cli_put_text(cli, row, "policy", policy_names[g->policy]);
    return row;
}

/* ---- hindsight --------------------------------------------------------------------------------------------------- */

static double served_share(const struct eval_served *s)
{
    return report_share(s->served, s->requests);
}

static void put_hindsight(struct cli *cli, json_t *row, const double shares[4])
{
    static const char *const names[4] = {"static", "static_second", "per_category", "per_category_second"};
    for (unsigned i = 0; i < 4; i++)
        put_share(cli, row, names[i], shares[i]);
}

void eval_report_hindsight(struct cli *cli, const struct eval_group *g)
{
    double means[4] = {0};
    for (uint32_t s = 0; s < g->options->n_seeds; s++) {
        const struct eval_hindsight *h = &g->hindsight[s];
        const double shares[4] = {served_share(&h->whole[0]), served_share(&h->best_half[0]),
                                  served_share(&h->whole[1]), served_share(&h->best_half[1])};
        json_t *row = begin_row(cli, "hindsight", g, false);
        cli_put_count(cli, row, "seed", g->options->seeds[s]);
        put_hindsight(cli, row, shares);
        for (unsigned i = 0; i < 4; i++)
            means[i] += shares[i] / g->options->n_seeds;
    }
    put_hindsight(cli, begin_row(cli, "hindsight_means", g, false), means);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

struct eval_shares { /* of a run */
    double served, wrong, served_second, wrong_second, ratio, labelled;
};

static struct eval_shares shares_of(const struct eval_group *g, uint32_t s)
{
    const struct eval_result *r = &g->results[s];
    double best = served_share(&g->hindsight[s].best_half[0]);
    struct eval_shares f = {.served = report_share(eval_served(&r->all), r->all.requests),
                            .wrong = report_share(r->all.wrong, r->all.requests),
                            .served_second = report_share(eval_served(&r->half), r->half.requests),
                            .wrong_second = report_share(r->half.wrong, r->half.requests),
                            .labelled = report_share(eval_labels(&r->all), r->all.requests)};
    f.ratio = best > 0 ? f.served_second / best : NAN;
    return f;
}

static void report_seed(struct cli *cli, const struct eval_group *g, uint32_t s)
{
    const struct eval_result *r = &g->results[s];
    struct eval_shares f = shares_of(g, s);
    json_t *row = begin_row(cli, "runs", g, true);
    cli_put_count(cli, row, "seed", g->options->seeds[s]);
    put_share(cli, row, "served", f.served);
    put_share(cli, row, "exact", report_share(r->all.exact, r->all.requests));
    put_share(cli, row, "wrong", f.wrong);
    put_share(cli, row, "served_second", f.served_second);
    put_share(cli, row, "wrong_second", f.wrong_second);
    put_share(cli, row, "ratio_second", f.ratio);
    put_share(cli, row, "labelled", f.labelled);
    cli_put_count(cli, row, "guarded", r->guarded);
    cli_put_count(cli, row, "bypassed", r->all.bypassed);
}

static void report_means(struct cli *cli, const struct eval_group *g)
{
    struct eval_shares mean = {0}, most = {0};
    double n = g->options->n_seeds, least = INFINITY;
    for (uint32_t s = 0; s < g->options->n_seeds; s++) {
        struct eval_shares f = shares_of(g, s);
        mean.served += f.served / n;
        mean.wrong += f.wrong / n;
        mean.served_second += f.served_second / n;
        mean.ratio += f.ratio / n;
        mean.labelled += f.labelled / n;
        least = fmin(least, f.ratio);
        most.wrong = fmax(most.wrong, f.wrong);
        most.wrong_second = fmax(most.wrong_second, f.wrong_second);
        most.labelled = fmax(most.labelled, f.labelled);
    }
    json_t *row = begin_row(cli, "means", g, true);
    put_share(cli, row, "served", mean.served);
    put_share(cli, row, "served_second", mean.served_second);
    put_share(cli, row, "ratio_second", mean.ratio);
    put_share(cli, row, "ratio_least", least);
    put_share(cli, row, "wrong", mean.wrong);
    put_share(cli, row, "wrong_most", most.wrong);
    put_share(cli, row, "wrong_second_most", most.wrong_second);
    put_share(cli, row, "labelled_most", most.labelled);
    cli_put_bool(cli, row, "within_budget", most.wrong <= g->delta && most.wrong_second <= g->delta);
}

static void report_memory(struct cli *cli, const struct eval_group *g)
{
    const struct eval_result *r = &g->results[0];
    json_t *row = begin_row(cli, "memory", g, true);
    cli_put_count(cli, row, "entries", r->entries);
    cli_put_count(cli, row, "memory_bytes", r->memory_bytes);
    cli_put_real(cli, row, "memory_bytes_per_entry", report_share(r->memory_bytes, r->entries));
    cli_put_count(cli, row, "disk_bytes", r->disk_bytes);
}

void eval_report_group(struct cli *cli, const struct eval_group *g)
{
    for (uint32_t s = 0; s < g->options->n_seeds; s++)
        report_seed(cli, g, s);
    report_means(cli, g);
    report_memory(cli, g);
}

void eval_report_categories(struct cli *cli, const struct eval_group *g)
{
    for (uint32_t c = 0; c < g->data->n_categories; c++) {
        uint64_t requests = 0, served = 0, wrong = 0, labels = 0;
        double threshold = 0, worst = 0;
        for (uint32_t s = 0; s < g->options->n_seeds; s++) {
            const struct eval_counts *counts = &g->results[s].categories[c];
            requests += counts->requests;
            served += eval_served(counts);
            wrong += counts->wrong;
            labels += eval_labels(counts);
            threshold += g->results[s].thresholds[c] / g->options->n_seeds;
            worst = fmax(worst, report_share(counts->wrong, counts->requests));
        }
        json_t *row = begin_row(cli, "categories", g, true);
        cli_put_text(cli, row, "category", g->data->category_names[c]);
        cli_put_count(cli, row, "requests", requests);
        put_share(cli, row, "hit_rate", report_share(served, requests));
        put_share(cli, row, "precision", served ? report_share(served - wrong, served) : NAN);
        put_share(cli, row, "precision_low", served ? report_wilson_lower(served - wrong, served) : NAN);
        put_share(cli, row, "precision_high", served ? report_wilson_upper(served - wrong, served) : NAN);
        put_share(cli, row, "wrong", report_share(wrong, requests));
        put_share(cli, row, "wrong_most", worst);
        put_share(cli, row, "labelled", report_share(labels, requests));
        put_share(cli, row, "threshold", threshold);
    }
}

void eval_report_timings(struct cli *cli, const struct eval_timings *timings)
{
    for (unsigned i = 0; i < EVAL_TIMINGS; i++)
        if (histogram_count(&timings->of[i].h)) {
            json_t *row = cli_put_row(cli, NULL, "latency");
            cli_put_text(cli, row, "of", timing_names[i]);
            report_put_timing(cli, row, &timings->of[i]);
        }
}

/* ---- the figure -------------------------------------------------------------------------------------------------- */

#define TITLE_HEIGHT 44
#define FOOT_HEIGHT  50

static struct eval_line *add_line(struct eval_figure *figure, const char *name, uint32_t delta)
{
    for (uint32_t i = 0; i < figure->n_lines; i++)
        if (figure->lines[i].delta == delta && strcmp(figure->lines[i].name, name) == 0)
            return &figure->lines[i];
    struct eval_line *line = &figure->lines[figure->n_lines++];
    line->name = name;
    line->delta = delta;
    return line;
}

void eval_figure_add_group(struct eval_figure *figure, const struct eval_group *g, uint32_t delta)
{
    struct eval_line *line = add_line(figure, policy_names[g->policy], delta);
    for (uint32_t s = 0; s < g->options->n_seeds; s++)
        for (uint32_t i = 0; i < EVAL_SECTIONS; i++) {
            const struct eval_counts *counts = &g->results[s].sections[i];
            line->sections[i].requests += counts->requests;
            line->sections[i].served += eval_served(counts);
            line->sections[i].wrong += counts->wrong;
        }
}

void eval_figure_add_thresholds(struct eval_figure *figure, const char *name, uint32_t delta,
                                const struct stream_request *requests, uint32_t n, const double *thresholds)
{
    struct eval_line *line = add_line(figure, name, delta);
    for (uint32_t i = 0; i < n; i++) {
        struct eval_served one = eval_hindsight_served(&requests[i], 1, thresholds);
        struct eval_served *section = &line->sections[(uint64_t)i * EVAL_SECTIONS / n];
        section->requests++;
        section->served += one.served;
        section->wrong += one.wrong;
    }
}

static double wrong_top(const struct eval_figure *figure, uint32_t delta, double least)
{
    double top = least;
    for (uint32_t i = 0; i < figure->n_lines; i++)
        for (uint32_t k = 0; figure->lines[i].delta == delta && k < EVAL_SECTIONS; k++)
            top = fmax(top, report_share(figure->lines[i].sections[k].wrong, figure->lines[i].sections[k].requests));
    return figure_round_up(top);
}

static void draw_delta(FILE *f, const struct eval_figure *figure, uint32_t delta, double budget, double y)
{
    const double y_wrong = y + FIGURE_PANEL_HEIGHT + FIGURE_PANEL_GAP, top = wrong_top(figure, delta, 2 * budget);
    double xs[EVAL_SECTIONS], served[EVAL_SECTIONS], wrong[EVAL_SECTIONS];
    uint32_t n = 0;
    figure_panel(f, y, 1, "served / request");
    figure_panel(f, y_wrong, top, "wrong / request");
    for (uint32_t i = 0; i < figure->n_lines; i++) {
        const struct eval_line *line = &figure->lines[i];
        if (line->delta != delta)
            continue;
        for (uint32_t k = 0; k < EVAL_SECTIONS; k++) {
            const struct eval_served *section = &line->sections[k];
            xs[k] = (k + 0.5) / EVAL_SECTIONS;
            served[k] = section->requests ? served_share(section) : NAN;
            wrong[k] = section->requests ? report_share(section->wrong, section->requests) : NAN;
        }
        figure_line(f, y, 1, n, line->name, xs, served, EVAL_SECTIONS);
        figure_line(f, y_wrong, top, n++, line->name, xs, wrong, EVAL_SECTIONS);
    }
    figure_line(f, y_wrong, top, n, "budget", (const double[]){0, 1}, (const double[]){budget, budget}, 2);
    figure_axis(f, y_wrong + FIGURE_PANEL_HEIGHT + 18, figure->rows, "requests");
}

int eval_figure_draw(const struct eval_figure *figure, const struct eval_options *options, struct quire_error *err)
{
    const int height = TITLE_HEIGHT + 2 * (FIGURE_PANEL_HEIGHT + FIGURE_PANEL_GAP) + FOOT_HEIGHT;
    char heading[128];
    FILE *f;
    int rc = figure_open(options->svg, "quire cache-eval along the stream", height * (int)options->n_deltas, &f, err);
    if (rc < 0)
        return rc;
    for (uint32_t d = 0; d < options->n_deltas; d++) {
        double y = height * (double)d;
        snprintf(heading, sizeof heading, "%.3g %% wrong answers, %s order, mean of %u seeds", 100 * options->deltas[d],
                 eval_order_names[options->orders[0]], options->n_seeds);
        figure_heading(f, y + 28, heading);
        draw_delta(f, figure, d, options->deltas[d], y + TITLE_HEIGHT);
    }
    return figure_close(options->svg, f, err);
}
