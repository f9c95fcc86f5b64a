/*
 * quire_plan.c - `quire plan`: what an index of so many rows would cost on this machine, in each way to build and
 * search it.
 *
 * Figures come from indexes of two samples that are built, searched and removed here (index/sizing). The sample is the
 * user's own vectors, or made-up ones of the dimensions asked for, which is said beside the figures: how hard a set is
 * to search cannot be known from its size.
 */
#include "datasets/generate.h"
#include "datasets/vecfile.h"
#include "index/kernels/kernels.h"
#include "index/sizing/sizing.h"
#include "index/vector/parallel.h"
#include "io/error.h"
#include "tools/cli/cli.h"
#include "tools/quire_verbs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CLUSTERS_OF_ROWS 256u /* rows of a cluster of the larger sample, where the sample is made up */
#define PROCESSORS_MOST  4096u
#define BUSY             0.7 /* share of the most queries per second at which latency is still near that of one */

static const struct cli_choice types[] = {
    {"f32", QUIRE_TYPE_F32}, {"u8", QUIRE_TYPE_U8}, {"i8", QUIRE_TYPE_I8}, {"bf16", QUIRE_TYPE_BF16}, {0}};
static const struct cli_choice slots[] = {
    {"auto", QUIRE_SLOT_AUTO}, {"f32", QUIRE_SLOT_F32}, {"f16", QUIRE_SLOT_F16}, {"bf16", QUIRE_SLOT_BF16},
    {"i8", QUIRE_SLOT_I8},     {"u8", QUIRE_SLOT_U8},   {"q8", QUIRE_SLOT_Q8},   {0}};
static const struct cli_choice indexes[] = {
    {"auto", QUIRE_INDEX_AUTO}, {"pagegraph", QUIRE_INDEX_PAGEGRAPH}, {"spann", QUIRE_INDEX_SPANN}, {0}};

struct plan_work {
    struct cli *cli;
    const char *sample_path, *probe;
    uint64_t rows, dim, memory, block_bytes, processors, trial_rows, intrinsic, seed, threads;
    uint64_t attribute_bytes, key_bytes, indexed, grants;
    int type, metric, slot, index;
    double recall, qps;
    struct vectors sample;
    struct sizing_question question;
    struct sizing_report report;
};

/* ---- the sample -------------------------------------------------------------------------------------------------- */

/* The largest number of rows that a sample of so many vectors has room for beside its queries. */
static uint64_t rows_of(uint64_t vectors)
{
    uint64_t step = 4 * (uint64_t)SIZING_QUERIES;
    return vectors < SIZING_QUERIES ? 0 : (vectors - SIZING_QUERIES) / step * step;
}

static int load_sample(struct plan_work *w, struct quire_error *err)
{
    int rc = vecfile_vectors_load(w->sample_path, VECFILE_AUTO, &w->sample, err);
    if (rc < 0)
        return rc;
    if (w->dim && w->dim != w->sample.dim)
        return error_set(err, QUIRE_EDIM, "--dim %llu: the vectors of %s have %u dimensions",
                         (unsigned long long)w->dim, w->sample_path, w->sample.dim);
    if (rows_of(w->sample.rows) < SIZING_ROWS_LEAST)
        return error_set(err, QUIRE_EINVALID, "%s has %llu vectors: a sample needs at least %u", w->sample_path,
                         (unsigned long long)w->sample.rows, SIZING_ROWS_LEAST + SIZING_QUERIES);
    return 0;
}

/* Elements of a narrow type: floats of the set spread over their range. */
static void narrow(const float *from, size_t n, enum quire_type type, void *out)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = from[i] > most ? from[i] : -from[i] > most ? -from[i] : most;
    float scale = most > 0 ? 127 / most : 0;
    for (size_t i = 0; i < n; i++) {
        int value = (int)(from[i] * scale + (from[i] < 0 ? -0.5f : 0.5f));
        if (type == QUIRE_TYPE_U8)
            ((uint8_t *)out)[i] = (uint8_t)(value + 128);
        else
            ((int8_t *)out)[i] = (int8_t)value;
    }
}

static int make_sample(struct plan_work *w, struct quire_error *err)
{
    struct generate_options options;
    struct generator *generator = NULL;
    uint64_t rows = w->trial_rows + SIZING_QUERIES, n = rows * w->dim;
    enum quire_type type = (enum quire_type)w->type;
    generate_options_init(&options);
    options.rows = rows;
    options.dim = (uint32_t)w->dim;
    options.clusters = (uint32_t)(w->trial_rows / CLUSTERS_OF_ROWS);
    options.intrinsic = (uint32_t)(w->intrinsic < w->dim ? w->intrinsic : w->dim);
    options.seed = w->seed;
    options.threads = (unsigned)w->threads;
    float *floats = malloc(n * sizeof *floats);
    void *narrowed = type == QUIRE_TYPE_F32 ? NULL : malloc(n * quire_type_bytes(type));
    int rc = floats && (narrowed || type == QUIRE_TYPE_F32)
                 ? generate_create(&options, &generator, err)
                 : error_set(err, QUIRE_ENOMEM, "no memory for %llu vectors", (unsigned long long)rows);
    if (rc == 0)
        rc = generate_rows(generator, 0, rows, floats, err);
    if (rc == 0 && type == QUIRE_TYPE_BF16)
        kernels()->bf16_from_f32(floats, narrowed, n);
    else if (rc == 0 && narrowed)
        narrow(floats, n, type, narrowed);
    generate_destroy(generator);
    if (rc == 0) {
        w->sample = (struct vectors){.rows = rows, .dim = (uint32_t)w->dim, .type = type};
        w->sample.data = narrowed ? narrowed : floats;
        narrowed = NULL;
        floats = w->sample.data == floats ? NULL : floats;
    }
    free(floats);
    free(narrowed);
    return rc;
}

static int run(struct plan_work *w, struct quire_error *err)
{
    struct sizing_question *q = &w->question;
    int rc = w->sample_path ? load_sample(w, err) : make_sample(w, err);
    if (rc < 0)
        return rc;
    uint64_t most = rows_of(w->sample.rows);
    q->sample_rows = (uint32_t)(w->trial_rows < most ? w->trial_rows : most);
    if (w->rows <= q->sample_rows)
        return error_set(err, QUIRE_ERANGE,
                         "--rows %llu: that few are built and measured faster than planned (`quire build`, `quire "
                         "search`); a plan is for more than the %u rows that it tries",
                         (unsigned long long)w->rows, q->sample_rows);
    q->rows = w->rows;
    q->recall = (float)w->recall;
    q->processors = (unsigned)w->processors;
    q->lists_only = w->index == QUIRE_INDEX_SPANN;
    q->page_graph_only = w->index == QUIRE_INDEX_PAGEGRAPH;
    q->sample = (struct quire_input){
        .rows = w->sample.rows, .dim = w->sample.dim, .type = w->sample.type, .vectors = w->sample.data};
    quire_build_options_init(&q->build);
    q->build.metric = (enum quire_metric)w->metric;
    q->build.slot = (enum quire_slot)w->slot;
    q->build.block_bytes = (uint32_t)w->block_bytes;
    q->build.threads = (unsigned)w->threads;
    q->build.seed = w->seed;
    q->build.progress = cli_progress;
    q->build.context = w->cli;
    rc = sizing_run(w->probe, q, &w->report, err);
    return rc == QUIRE_ECANCELLED ? cli_cancelled(err) : rc;
}

/* ---- what is beside the vectors ---------------------------------------------------------------------------------- */

#define RECORD_BYTES  16u /* of attributes or a key: length and checksum, and where it is found */
#define INDEXED_BYTES 8u  /* of a value in a column, at most: a sorted integer or double */
#define GRANT_BYTES   1u  /* in memory (tests/bench/tenants.sh) */

static uint64_t extra_disk(const struct plan_work *w)
{
    uint64_t each = w->attribute_bytes ? w->attribute_bytes + RECORD_BYTES : 0;
    each += w->key_bytes ? w->key_bytes + RECORD_BYTES : 0;
    return w->rows * (each + w->indexed * INDEXED_BYTES + w->grants * GRANT_BYTES);
}

static uint64_t extra_memory(const struct plan_work *w)
{
    return w->rows * (w->indexed * INDEXED_BYTES + w->grants * GRANT_BYTES);
}

/* ---- report ------------------------------------------------------------------------------------------------------ */

static double raw_bytes(const struct plan_work *w)
{
    return (double)w->rows * w->sample.dim * (double)quire_type_bytes(w->sample.type);
}

static void put_way(struct plan_work *w, const struct sizing_answer *a)
{
    struct cli *cli = w->cli;
    bool known = w->report.device_known;
    json_t *row = cli_put_row(cli, NULL, "ways");
    cli_put_text(cli, row, "way", a->name);
    cli_put_real(cli, row, "memory_mb", (double)a->memory_bytes / 1e6);
    cli_put_real(cli, row, "of_raw", (double)a->memory_bytes / raw_bytes(w));
    cli_put_bool(cli, row, "fits", !w->memory || a->memory_bytes <= w->memory);
    cli_put_real(cli, row, "disk_gb", (a->whole.index_bytes + (double)extra_disk(w)) / 1e9);
    cli_put_real(cli, row, "reads", a->whole.reads);
    cli_put_real(cli, row, "read_kb", a->whole.read_bytes / 1024);
    cli_put_real(cli, row, "rounds", a->whole.rounds);
    cli_put_real(cli, row, "cpu_us", a->whole.cpu_us);
    cli_put_real(cli, row, "latency_ms", known ? a->latency_us / 1e3 : NAN);
    cli_put_real(cli, row, "qps", known ? a->qps : NAN);
    if (cli->json) {
        cli_put_real(cli, row, "resident_mb", a->whole.resident_bytes / 1e6);
        cli_put_real(cli, row, "build_cpu_s", a->build_cpu_s);
        cli_put_count(cli, row, "build_memory_bytes", a->build_memory_bytes);
        cli_put_count(cli, row, "build_memory_least_bytes", a->build_memory_least_bytes);
    }
}

/* What was measured; a table of its own that only programs read. */
static void put_trials(struct cli *cli, const struct sizing_answer *a)
{
    for (int i = 0; i < 2; i++) {
        const struct sizing_point *p = i ? &a->large : &a->small;
        json_t *row = cli_put_row(cli, NULL, "trials");
        cli_put_text(cli, row, "way", a->name);
        cli_put_count(cli, row, "rows", (uint64_t)p->rows);
        cli_put_real(cli, row, "reads", p->reads);
        cli_put_real(cli, row, "codes_scored", p->codes);
        cli_put_real(cli, row, "cpu_us", p->cpu_us);
        cli_put_real(cli, row, "resident_bytes", p->resident_bytes);
        cli_put_real(cli, row, "index_bytes", p->index_bytes);
        cli_put_real(cli, row, "build_cpu_s", p->build_cpu_s);
    }
}

/* The recommended way, and what the rate that is asked for takes. */
static void put_choice(struct plan_work *w, const struct sizing_answer *a)
{
    struct cli *cli = w->cli;
    unsigned threads = w->threads ? (unsigned)w->threads : parallel_processors();
    bool lists = a->way.index == QUIRE_INDEX_SPANN;
    char command[256];
    int n = snprintf(command, sizeof command, "quire build --index %s --metric %s --memory %lluM",
                     lists ? "spann" : "pagegraph", quire_metric_name((enum quire_metric)w->metric),
                     (unsigned long long)((a->memory_bytes + (1 << 20) - 1) >> 20));
    if (a->way.edge_codes)
        n += snprintf(command + n, sizeof command - (size_t)n, " --edge-codes yes");
    if (lists && a->way.code_bits && a->way.code_bits < 4)
        n += snprintf(command + n, sizeof command - (size_t)n, " --bits %u", a->way.code_bits);
    snprintf(command + n, sizeof command - (size_t)n, " --base FILE --out DIR");
    cli_put_text(cli, NULL, "recommended", a->name);
    cli_put_text(cli, NULL, "command", command);
    cli_put_real(cli, NULL, "build_minutes", a->build_cpu_s / threads / 60);
    cli_put_count(cli, NULL, "build_threads", threads);
    cli_put_count(cli, NULL, "build_memory_bytes", a->build_memory_bytes);
    cli_put_count(cli, NULL, "build_memory_least_bytes", a->build_memory_least_bytes);
    cli_put_count(cli, NULL, "build_disk_bytes", a->build_disk_bytes + extra_disk(w));
    if (w->qps > 0) {
        cli_put_real(cli, NULL, "qps_wanted", w->qps);
        cli_put_real(cli, NULL, "processors_wanted", w->qps * a->whole.cpu_us / 1e6 / BUSY);
        cli_put_real(cli, NULL, "reads_per_second_wanted", w->qps * a->whole.reads);
        cli_put_real(cli, NULL, "read_mb_per_second_wanted", w->qps * a->whole.read_bytes / 1e6);
    }
}

/* Which way, and why; with a remark where a wish cannot be met. */
static void choose(struct plan_work *w)
{
    const struct sizing_report *r = &w->report;
    char why[320], within[64] = "";
    int found = sizing_choose(r, w->memory, w->qps / BUSY), nearest = found;
    if (w->memory)
        snprintf(within, sizeof within, " of those that fit into %llu bytes", (unsigned long long)w->memory);
    if (found < 0 && w->qps > 0)
        nearest = sizing_choose(r, w->memory, 0);
    if (nearest < 0) {
        uint64_t least = UINT64_MAX;
        for (uint32_t i = 0; i < r->n_answers; i++)
            least = r->answers[i].memory_bytes < least ? r->answers[i].memory_bytes : least;
        snprintf(why, sizeof why,
                 "no way fits into %llu bytes: the least takes %llu; give more, or plan for parts on "
                 "several machines",
                 (unsigned long long)w->memory, (unsigned long long)least);
        cli_put_text(w->cli, NULL, "recommended", "none");
        cli_put_text(w->cli, NULL, "why", why);
        return;
    }
    if (!r->device_known)
        snprintf(why, sizeof why, "the fewest reads%s; rates are not known: %s", within, r->device_note);
    else if (found < 0)
        snprintf(why, sizeof why,
                 "the most queries per second%s, but no way gives the %g that are asked for at %g of "
                 "its most: it takes more processors or a faster device, or several machines",
                 within, w->qps, BUSY);
    else if (w->qps > 0)
        snprintf(why, sizeof why, "the least memory%s that gives the %g queries per second at %g of its most or less",
                 within, w->qps, BUSY);
    else
        snprintf(why, sizeof why, "the least memory%s that gives nearly the most queries per second", within);
    put_choice(w, &r->answers[nearest]);
    cli_put_text(w->cli, NULL, "why", why);
}

static void report(struct plan_work *w)
{
    struct cli *cli = w->cli;
    struct sizing_report *r = &w->report;
    char made[96];
    snprintf(made, sizeof made, "made up, of %llu dimensions that count: use --sample with vectors of yours",
             (unsigned long long)w->intrinsic);
    cli_put_count(cli, NULL, "rows", w->rows);
    cli_put_count(cli, NULL, "dim", w->sample.dim);
    cli_put_text(cli, NULL, "type", quire_type_name(w->sample.type));
    cli_put_text(cli, NULL, "metric", quire_metric_name((enum quire_metric)w->metric));
    cli_put_real(cli, NULL, "recall", w->recall);
    cli_put_real(cli, NULL, "raw_gb", raw_bytes(w) / 1e9);
    cli_put_text(cli, NULL, "sample", w->sample_path ? w->sample_path : made);
    cli_put_count(cli, NULL, "sample_rows", w->question.sample_rows);
    cli_put_count(cli, NULL, "processors", w->processors);
    if (r->device_known)
        cli_put_real(cli, NULL, "device_read_us", r->read_us);
    else
        cli_put_text(cli, NULL, "device_note", r->device_note);
    for (uint32_t i = 0; i < r->n_answers; i++) {
        r->answers[i].memory_bytes += extra_memory(w);
        put_way(w, &r->answers[i]);
        if (cli->json)
            put_trials(cli, &r->answers[i]);
    }
    choose(w);
}

static const char summary[] =
    "Says what an index of so many rows would cost on this machine: memory, disk, reads and processor time of a "
    "query,\n"
    "queries per second, and the build. For each way to build and search one, and which is recommended. Indexes of "
    "two\n"
    "samples are built and searched in --probe for it, which takes a minute or so. How far such figures are off:\n"
    "docs/sizing.md.";
static const char examples[] = "  quire plan --rows 50M --dim 768 --recall .95 --qps 2000\n"
                               "  quire plan --rows 50M --sample some.fbin --metric cosine --memory 16G --json\n"
                               "  quire plan --rows 10M --dim 128 --type u8 --probe /mnt/nvme --index spann\n";

static int check(struct plan_work *w)
{
    struct cli *cli = w->cli;
    struct stat status;
    if (w->processors == 0)
        w->processors = parallel_processors();
    if (!w->sample_path && !w->dim)
        return cli_mistake(cli, "--dim or --sample must be given");
    if (w->trial_rows % (4 * SIZING_QUERIES))
        return cli_mistake(cli, "--trial-rows %llu: it must be a multiple of %u", (unsigned long long)w->trial_rows,
                           4 * SIZING_QUERIES);
    if (stat(w->probe, &status) < 0 || !S_ISDIR(status.st_mode))
        return cli_mistake(cli, "--probe %s: it must be a folder, on the device that the index is for", w->probe);
    return 0;
}

int quire_plan_verb(int argc, char **argv)
{
    struct cli cli;
    struct plan_work w = {.cli = &cli,
                          .probe = ".",
                          .type = QUIRE_TYPE_F32,
                          .index = QUIRE_INDEX_AUTO,
                          .recall = 0.95,
                          .trial_rows = SIZING_ROWS_AUTO,
                          .intrinsic = 24,
                          .seed = 1};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("rows", CLI_AMOUNT, &w.rows, "N", "of the index: 1000000, 50M", CLI_REQUIRED,
                   CLI_RANGE(SIZING_ROWS_LEAST + 1, SIZING_ROWS_MOST)),
        CLI_OPTION("dim", CLI_COUNT, &w.dim, "N", "dimensions; with --sample those of its vectors",
                   CLI_RANGE(1, QUIRE_DIM_MAX)),
        CLI_OPTION("type", CLI_CHOICE, &w.type, NULL, "of the vectors; with --sample theirs", .choices = types),
        CLI_OPTION("sample", CLI_TEXT, &w.sample_path, "FILE",
                   "vectors like those of the index; without it made-up ones"),
        CLI_OPTION("metric", CLI_CHOICE, &w.metric, NULL, "distance", .choices = cli_metrics),
        CLI_OPTION("recall", CLI_REAL, &w.recall, "R", "recall@10 that searches ask for", CLI_RANGE(0, 1)),
        CLI_OPTION("qps", CLI_REAL, &w.qps, "N", "queries per second that are wanted", CLI_RANGE(0, 1000000000)),
        CLI_OPTION("memory", CLI_SIZE, &w.memory, "SIZE", "that searches may take; auto: any", CLI_RANGE(0, 0)),
        CLI_OPTION("probe", CLI_TEXT, &w.probe, "DIR", "folder on the device that the index is for"),
        CLI_OPTION("processors", CLI_COUNT, &w.processors, "N", "that searches have; 0: those of this machine",
                   CLI_RANGE(0, PROCESSORS_MOST)),
        CLI_OPTION("index", CLI_CHOICE, &w.index, NULL, "kinds to plan for", .choices = indexes),
        CLI_OPTION("slot", CLI_CHOICE, &w.slot, NULL, "how blocks store vectors", .choices = slots),
        CLI_OPTION("block", CLI_SIZE, &w.block_bytes, "SIZE", "bytes of a block of a page graph; auto: the default",
                   CLI_RANGE(0, QUIRE_BLOCK_BYTES_MAX)),
        CLI_OPTION("attr-bytes", CLI_COUNT, &w.attribute_bytes, "N", "JSON of a row, on average",
                   CLI_RANGE(0, 1 << 24)),
        CLI_OPTION("key-bytes", CLI_COUNT, &w.key_bytes, "N", "key of a row, on average; 0: its number",
                   CLI_RANGE(0, QUIRE_KEY_BYTES_MAX)),
        CLI_OPTION("indexed", CLI_COUNT, &w.indexed, "N", "fields of attributes with a column", CLI_RANGE(0, 64)),
        CLI_OPTION("grants", CLI_COUNT, &w.grants, "N", "tenants that may see a row, on average", CLI_RANGE(0, 4096)),
        CLI_OPTION("trial-rows", CLI_COUNT, &w.trial_rows, "N",
                   "of the larger sample; the other has a quarter. More takes longer and is nearer",
                   CLI_RANGE(SIZING_ROWS_LEAST, 1 << 20)),
        CLI_OPTION("intrinsic", CLI_COUNT, &w.intrinsic, "N", "dimensions that count, of made-up vectors",
                   CLI_RANGE(1, QUIRE_DIM_MAX)),
        CLI_OPTION("seed", CLI_COUNT, &w.seed, "N", "of made-up vectors and of builds"),
        CLI_THREADS(&w.threads),
    };
    const struct cli_verb verb = {"quire plan", summary, "", 0, options, sizeof options / sizeof *options, examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if ((code = check(&w)) != 0)
        return code;
    int rc = run(&w, &err);
    if (rc == 0)
        report(&w);
    vecfile_vectors_free(&w.sample);
    return cli_end(&cli, rc, &err);
}
