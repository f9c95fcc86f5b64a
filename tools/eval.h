/*
 * eval.h - the parts of `quire cache-eval`: a labelled stream, a real cache, what hindsight would have chosen.
 *
 * eval_hindsight.c   thresholds that keep a budget, found from the whole stream
 * eval_run.c         one stream through one cache, and its counts
 * eval_report.c      tables, and the figure
 * quire_cache_eval.c       options; which streams through which caches
 */
#ifndef QUIRE_TOOLS_EVAL_H
#define QUIRE_TOOLS_EVAL_H

#include "datasets/stream.h"
#include "tools/cli/report.h"
#include "tools/measure/figure.h"

#define EVAL_SEEDS_MAX  64u
#define EVAL_DELTAS_MAX 8u
#define EVAL_ORDERS     3u
#define EVAL_SECTIONS   40u /* of a stream, in the figure */

enum eval_policy {
    EVAL_STATIC,       /* one threshold */
    EVAL_PER_CATEGORY, /* one of each category, found in hindsight */
    EVAL_RISK,         /* RISK, from nothing */
    EVAL_IMPORTED,     /* RISK, with the curves of another run */
    EVAL_POLICIES
};
extern const char *const eval_order_names[EVAL_ORDERS];

struct eval_options {
    const char *guards, *svg;
    double noise;     /* share of labels that say the opposite */
    bool only_misses; /* what was served is not put */
    double deltas[EVAL_DELTAS_MAX];
    uint64_t seeds[EVAL_SEEDS_MAX];
    enum stream_order orders[EVAL_ORDERS];
    uint32_t n_deltas, n_seeds, n_orders;
    uint64_t import_seed; /* 0: the next one of seeds */
    bool policies[EVAL_POLICIES];
    double threshold; /* of EVAL_STATIC; 0: the best one in hindsight */
};

/* ---- hindsight --------------------------------------------------------------------------------------------------- */

struct eval_served {
    uint64_t requests, served, wrong;
};
/* What thresholds, one per category, would have served of requests. */
struct eval_served eval_hindsight_served(const struct stream_request *requests, uint32_t n, const double *thresholds);

struct eval_hindsight {
    double *one, *own; /* n_categories each: the best single one (many times), the best of each */
    struct eval_served whole[2], half[2], best_half[2]; /* [0] one, [1] own; best_half: chosen for the second half */
};
int eval_hindsight_make(const struct stream_data *data, const struct stream_request *requests, double delta,
                        struct eval_hindsight *out, struct quire_error *err);
void eval_hindsight_free(struct eval_hindsight *hindsight);

/* ---- runs -------------------------------------------------------------------------------------------------------- */

struct eval_counts {
    uint64_t requests, exact, hits, wrong; /* wrong: of exact and hits */
    uint64_t audits, samples;              /* labels: of would-be hits, of misses */
    uint64_t bypassed;                     /* by the breaker */
};
struct eval_result {
    struct eval_counts all, half; /* half: the second one */
    struct eval_counts sections[EVAL_SECTIONS];
    struct eval_counts *categories;
    double *thresholds; /* of categories, at the end */
    uint64_t entries, memory_bytes, disk_bytes, guarded;
    void *curves; /* as quire_cache_export gives them */
    size_t curves_bytes;
};
/* Latencies over all runs, by kind of answer. */
enum eval_timing { EVAL_GET_SERVED, EVAL_GET_EXACT, EVAL_GET_MISS, EVAL_GET_AUDIT, EVAL_PUT, EVAL_TIMINGS };
struct eval_timings {
    struct timing of[EVAL_TIMINGS];
};

struct eval_run {
    const struct eval_options *options;
    const struct stream_data *data;
    const uint32_t *order; /* rows, in order of arrival */
    enum eval_policy policy;
    double delta;
    const double *thresholds; /* of categories: EVAL_STATIC, EVAL_PER_CATEGORY */
    const void *curves;       /* EVAL_IMPORTED */
    size_t curves_bytes;
    uint64_t seed;
    struct cli *cli;
    uint64_t done, total; /* requests of runs before; of all runs */
    struct eval_timings *timings;
};
/* The stream through an empty cache in a folder of its own under $TMPDIR or /tmp, which goes afterwards. */
int eval_run(const struct eval_run *run, struct eval_result *out, struct quire_error *err);
void eval_result_free(struct eval_result *result);

uint64_t eval_served(const struct eval_counts *counts);
uint64_t eval_labels(const struct eval_counts *counts);

/* ---- what is said of them ---------------------------------------------------------------------------------------- */

/* The results of one policy, order and budget, of all seeds. */
struct eval_group {
    const struct eval_options *options;
    const struct stream_data *data;
    enum stream_order order;
    enum eval_policy policy;
    double delta;
    const struct eval_hindsight *hindsight; /* of each seed */
    const struct eval_result *results;      /* of each seed */
};
void eval_report_hindsight(struct cli *cli, const struct eval_group *group);
void eval_report_group(struct cli *cli, const struct eval_group *group);
void eval_report_categories(struct cli *cli, const struct eval_group *group);
void eval_report_timings(struct cli *cli, const struct eval_timings *timings);

/* Lines of the figure: for each budget those of its policies, of the first order. */
struct eval_line {
    const char *name;
    uint32_t delta;                             /* its place */
    struct eval_served sections[EVAL_SECTIONS]; /* over all seeds */
};
#define EVAL_LINES_MAX (EVAL_DELTAS_MAX * (EVAL_POLICIES + 2u))
struct eval_figure {
    struct eval_line lines[EVAL_LINES_MAX];
    uint32_t n_lines, rows;
};
void eval_figure_add_group(struct eval_figure *figure, const struct eval_group *group, uint32_t delta);
void eval_figure_add_thresholds(struct eval_figure *figure, const char *name, uint32_t delta,
                                const struct stream_request *requests, uint32_t n, const double *thresholds);
int eval_figure_draw(const struct eval_figure *figure, const struct eval_options *options, struct quire_error *err);

#endif
