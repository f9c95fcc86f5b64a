/*
 * sizing.c - what indexes of very many rows would cost.
 *
 * What reads and processor time a query costs depends on the data more than on their number: on how many dimensions a
 * neighbourhood uses, on clusters, on what is asked. No formula knows that, so it is tried: four indexes (a page graph,
 * one with codes of its edges, lists of 4-bit and of 2-bit codes) of each of two samples are built as the build would,
 * but calibrated in brief, and searched in each way that a memory budget may lead to. Queries are rows of the sample
 * that are left out of the indexes.
 *
 * Rejected: constants of a few data sets for all. Their reads per query at a recall of 0.95 differ by a factor of six
 * at equal rows (docs/performance.md).
 *
 * The device is probed at the sizes of reads that occur, one thread for each processor, in a file of random bytes: with
 * one read at a time for latency, and with as many as lanes keep in flight for the rate.
 */
#include "index/sizing/sizing.h"
#include "index/blocks/block_model.h"
#include "index/build/build.h"
#include "io/error.h"
#include "io/fs.h"
#include "io/probe.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SMALLER       4u /* the large sample has so many times the rows of the small one */
#define PROBE_DEPTH   64u
#define PROBE_MS      150u
#define PROBE_BYTES   (256u << 20)
#define PROBE_SIZES   3u
#define PROCESS_BYTES (6u << 20) /* segment.c */
#define MEMORY_ROUND  4096u

/* Ways by the index that they search: one build each. */
static const struct {
    const char *name;
    struct block_way way;
    unsigned build; /* of builds[] */
} ways[SIZING_WAYS_MAX] = {
    {"page graph, 4-bit codes", {QUIRE_INDEX_PAGEGRAPH, 0, 4, false}, 0},
    {"page graph, 2-bit codes", {QUIRE_INDEX_PAGEGRAPH, 0, 2, false}, 0},
    {"page graph, 1-bit codes", {QUIRE_INDEX_PAGEGRAPH, 0, 1, false}, 0},
    {"page graph, codes in blocks", {QUIRE_INDEX_PAGEGRAPH, 0, 0, true}, 1},
    {"lists, 4-bit codes", {QUIRE_INDEX_SPANN, 0, 4, false}, 2},
    {"lists, 2-bit codes", {QUIRE_INDEX_SPANN, 0, 2, false}, 3},
    {"lists, heads alone", {QUIRE_INDEX_SPANN, 0, 0, false}, 2},
};
#define N_BUILDS 4u
static const unsigned list_bits[N_BUILDS] = {0, 0, 4, 2};

struct sizing {
    const struct sizing_question *q;
    struct sizing_report *out;
    char *path;                                       /* of trial indexes; owned */
    struct sizing_answer *answer_of[SIZING_WAYS_MAX]; /* NULL: not wanted */
    uint32_t done, total;
};

static double process_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int tell(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct sizing *s = context;
    (void)phase, (void)done, (void)total;
    const struct quire_build_options *o = &s->q->build;
    return o->progress ? o->progress(o->context, "try indexes of samples", s->done, s->total) : 0;
}

static bool is_wanted(const struct sizing *s, unsigned build)
{
    return !(s->q->lists_only && build < 2) && !(s->q->page_graph_only && build >= 2);
}

/* ---- trials ------------------------------------------------------------------------------------------------------ */

static void set_point(struct sizing_point *point, const struct block_sample *sample, const struct block_cost *cost,
                      double build_cpu_s)
{
    *point = (struct sizing_point){.rows = sample->n_rows,
                                   .reads = cost->reads,
                                   .read_bytes = cost->read_bytes,
                                   .rounds = cost->rounds,
                                   .codes = cost->codes,
                                   .cpu_us = cost->cpu_us,
                                   .resident_bytes = (double)cost->resident_bytes,
                                   .index_bytes = (double)cost->index_bytes,
                                   .build_cpu_s = build_cpu_s};
}

/* An answer for each way that is wanted, in the order of ways. */
static void prepare_answers(struct sizing *s)
{
    for (unsigned w = 0; w < SIZING_WAYS_MAX; w++) {
        struct sizing_answer *a = &s->out->answers[s->out->n_answers];
        if (!is_wanted(s, ways[w].build))
            continue;
        *a = (struct sizing_answer){.name = ways[w].name, .way = ways[w].way};
        a->way.block_bytes = s->q->build.block_bytes;
        s->answer_of[w] = a;
        s->out->n_answers++;
    }
}

/* One build of a sample, and its searches. */
static int try_build(struct sizing *s, const struct block_sample *sample, unsigned build, bool is_large,
                     struct quire_error *err)
{
    struct quire_build_options options = s->q->build;
    struct block_way way = {.index = build < 2 ? QUIRE_INDEX_PAGEGRAPH : QUIRE_INDEX_SPANN,
                            .block_bytes = build < 2 ? options.block_bytes : 0,
                            .edge_codes = build == 1};
    options.code_bits = list_bits[build];
    options.progress = tell;
    options.context = s;
    double begun_s = process_s();
    int rc = block_trial_build(s->path, sample, &options, &way, true, err);
    if (rc < 0)
        return rc;
    double build_cpu_s = process_s() - begun_s;
    for (unsigned w = 0; w < SIZING_WAYS_MAX && rc == 0; w++) {
        struct block_cost cost;
        if (ways[w].build != build)
            continue;
        rc = block_trial_search(s->path, sample, &ways[w].way, s->q->recall, &cost, err);
        if (rc == 0) {
            struct sizing_answer *a = s->answer_of[w];
            set_point(is_large ? &a->large : &a->small, sample, &cost, build_cpu_s);
        }
    }
    int removed = fs_remove_folder(fs_real(), s->path, rc == 0 ? err : NULL);
    s->done++;
    return rc < 0 ? rc : removed;
}

static int try_sample(struct sizing *s, uint32_t rows, bool is_large, struct quire_error *err)
{
    struct block_sample sample = {0};
    int rc = block_sample_make(&s->q->sample, &s->q->build, rows, SIZING_QUERIES, &sample, err);
    if (rc < 0)
        return rc;
    for (unsigned build = 0; build < N_BUILDS && rc == 0; build++)
        if (is_wanted(s, build))
            rc = try_build(s, &sample, build, is_large, err);
    block_sample_free(&sample);
    return rc;
}

/* ---- device ------------------------------------------------------------------------------------------------------ */

static int on_probe(void *context, uint32_t done, uint32_t total)
{
    const struct quire_build_options *o = &((struct sizing *)context)->q->build;
    return o->progress ? o->progress(o->context, "probe the device", done, total) : 0;
}

/* The rate of reads of `bytes`, between two that were measured: by time per read. */
static double rate_of(const struct probe_report *probe, double bytes)
{
    const struct probe_point *below = NULL, *above = NULL;
    for (uint32_t i = 0; i < probe->n_points; i++) {
        const struct probe_point *p = &probe->points[i];
        if (p->depth != PROBE_DEPTH)
            continue;
        if (p->block_bytes <= bytes && (!below || p->block_bytes > below->block_bytes))
            below = p;
        if (p->block_bytes >= bytes && (!above || p->block_bytes < above->block_bytes))
            above = p;
    }
    if (!below || !above || below == above)
        return below ? below->iops : above ? above->iops : 0;
    double share = (bytes - below->block_bytes) / (above->block_bytes - below->block_bytes);
    return 1 / ((1 - share) / below->iops + share / above->iops);
}

/* The mean time of one read of at least `bytes`, by itself. */
static double time_of(const struct probe_report *probe, double bytes)
{
    double found = 0;
    for (uint32_t i = 0; i < probe->n_points; i++)
        if (probe->points[i].depth == 1 && (found <= 0 || probe->points[i].block_bytes <= bytes * 1.5))
            found = probe->points[i].mean_us;
    return found;
}

/* Fills what of the answers depends on the device. A device that cannot be measured is said, and is no error. */
static int measure_device(struct sizing *s, const char *folder, struct quire_error *err)
{
    const uint32_t blocks[PROBE_SIZES] = {4096, 8192, 65536}, depths[] = {1, PROBE_DEPTH};
    struct probe_config config = {.block_bytes = blocks,
                                  .n_blocks = PROBE_SIZES,
                                  .depths = depths,
                                  .n_depths = 2,
                                  .lanes = s->q->processors < PROBE_DEPTH ? s->q->processors : PROBE_DEPTH,
                                  .file_bytes = PROBE_BYTES,
                                  .measure_ms = PROBE_MS,
                                  .engine = QUIRE_ENGINE_AUTO,
                                  .progress = on_probe,
                                  .context = s};
    struct probe_report probe = {0};
    struct quire_error why = {0};
    int rc = probe_run(folder, &config, &probe, &why);
    if (rc == QUIRE_ECANCELLED) {
        *err = why;
        return rc;
    }
    if (rc < 0)
        snprintf(s->out->device_note, sizeof s->out->device_note, "it could not be probed: %.120s", why.message);
    else if (!probe.direct)
        snprintf(s->out->device_note, sizeof s->out->device_note,
                 "the folder has no direct I/O, so that reads would come from memory");
    s->out->device_known = rc == 0 && probe.direct;
    for (uint32_t i = 0; i < s->out->n_answers && s->out->device_known; i++) {
        struct sizing_answer *a = &s->out->answers[i];
        a->reads_per_second = rate_of(&probe, a->read_bytes);
        a->latency_us = sizing_latency_us(a->whole.rounds, time_of(&probe, a->read_bytes), a->whole.cpu_us);
        a->qps = block_model_qps(a->whole.reads, a->reads_per_second, a->whole.cpu_us, s->q->processors);
    }
    s->out->read_us = s->out->device_known ? time_of(&probe, 8192) : 0;
    probe_free(&probe);
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The least budget with which so much is resident: it leaves PROCESS_BYTES to the process, a small one a quarter. */
static uint64_t budget_for(double resident_bytes)
{
    double bytes = fmin(resident_bytes * 4 / 3, resident_bytes + PROCESS_BYTES);
    return ((uint64_t)bytes / MEMORY_ROUND + 1) * MEMORY_ROUND;
}

/* The way that a build's calibration mostly searches: with the widest codes in memory. Of ways[]. */
static unsigned calibrated_as(const struct block_way *way)
{
    return way->index == QUIRE_INDEX_PAGEGRAPH ? 0 : way->code_bits == 2 ? 5 : 4;
}

static void draw_out(const struct sizing *s)
{
    const struct sizing_question *q = s->q;
    for (uint32_t i = 0; i < s->out->n_answers; i++)
        sizing_predict(&s->out->answers[i].small, &s->out->answers[i].large, (double)q->rows,
                       &s->out->answers[i].whole);
    for (uint32_t i = 0; i < s->out->n_answers; i++) {
        struct sizing_answer *a = &s->out->answers[i];
        struct quire_build_options options = q->build;
        a->read_bytes = a->whole.reads > 0 ? a->whole.read_bytes / a->whole.reads : 4096;
        a->memory_bytes = budget_for(a->whole.resident_bytes);
        const struct sizing_answer *calibrated = s->answer_of[calibrated_as(&a->way)];
        a->build_cpu_s = a->whole.build_cpu_s + sizing_calibration_s(calibrated->whole.cpu_us);
        options.index = a->way.index;
        options.edge_codes = a->way.edge_codes ? QUIRE_EDGE_CODES_YES : QUIRE_EDGE_CODES_NO;
        if (a->way.index == QUIRE_INDEX_SPANN)
            options.code_bits = a->way.code_bits ? a->way.code_bits : 4;
        struct build_needs needs;
        build_needs_for(q->rows, q->sample.dim, q->sample.type, &options, &needs);
        a->build_memory_bytes = needs.memory_bytes;
        a->build_memory_least_bytes = needs.memory_least_bytes;
        a->build_disk_bytes = needs.work_bytes + (uint64_t)a->whole.index_bytes;
    }
}

int sizing_run(const char *folder, const struct sizing_question *q, struct sizing_report *out, struct quire_error *err)
{
    struct sizing s = {.q = q, .out = out, .total = q->lists_only || q->page_graph_only ? N_BUILDS : 2 * N_BUILDS};
    assert(q->sample_rows >= SIZING_ROWS_LEAST && q->sample_rows % (SMALLER * SIZING_QUERIES) == 0);
    assert(q->rows > q->sample_rows && q->recall > 0 && q->recall <= 1 && q->processors > 0);
    assert(!(q->lists_only && q->page_graph_only));
    memset(out, 0, sizeof *out);
    prepare_answers(&s);
    if (asprintf(&s.path, "%s/.quire-plan-%ld", folder, (long)getpid()) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a path");
    int rc = try_sample(&s, q->sample_rows / SMALLER, false, err);
    if (rc == 0)
        rc = try_sample(&s, q->sample_rows, true, err);
    if (rc == 0) {
        draw_out(&s);
        rc = measure_device(&s, folder, err);
    }
    free(s.path);
    return rc;
}

#define NEARLY_BEST 0.9

static int fewest_reads(const struct sizing_report *report, uint64_t memory_bytes)
{
    int found = -1;
    for (uint32_t i = 0; i < report->n_answers; i++) {
        const struct sizing_answer *a = &report->answers[i];
        if ((!memory_bytes || a->memory_bytes <= memory_bytes) &&
            (found < 0 || a->whole.reads < report->answers[found].whole.reads))
            found = (int)i;
    }
    return found;
}

int sizing_choose(const struct sizing_report *report, uint64_t memory_bytes, double qps)
{
    double best = 0;
    int found = -1;
    if (!report->device_known)
        return fewest_reads(report, memory_bytes);
    for (uint32_t i = 0; i < report->n_answers; i++)
        if (!memory_bytes || report->answers[i].memory_bytes <= memory_bytes)
            best = fmax(best, report->answers[i].qps);
    double wanted = qps > 0 ? qps : NEARLY_BEST * best;
    for (uint32_t i = 0; i < report->n_answers; i++) {
        const struct sizing_answer *a = &report->answers[i];
        bool fits = !memory_bytes || a->memory_bytes <= memory_bytes;
        if (fits && a->qps >= wanted && (found < 0 || a->memory_bytes < report->answers[found].memory_bytes))
            found = (int)i;
    }
    return found;
}
