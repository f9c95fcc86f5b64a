/*
 * quire_gen.c - `quire gen`: a made-up data set to try things with: base, held-out queries and their exact neighbours.
 *
 * Rows are made and written in chunks, so the base never lies in memory for its own sake; the ground truth reads it
 * back. When one of the three files fails, those already written are removed: a base without its queries would look
 * whole.
 */
#include "datasets/generate.h"
#include "datasets/vecfile.h"
#include "index/kernels/kernels.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/cli/cli.h"
#include "tools/quire_verbs.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHUNK_BYTES ((uint64_t)8 << 20)

static const struct cli_choice types[] = {{"f32", QUIRE_TYPE_F32}, {"bf16", QUIRE_TYPE_BF16}, {0}};

struct gen_work {
    struct cli *cli;
    const char *prefix;
    uint64_t rows, dim, clusters, intrinsic, seed, threads, queries, k;
    int metric, type;
    char *base_path, *query_path, *truth_path;
    bool base_written, query_written;
    struct generator *generator;
    double seconds;
};

typedef int make_fn(const struct generator *generator, uint64_t first, uint64_t n, float *out, struct quire_error *err);

static int write_rows(struct gen_work *w, const char *path, uint64_t rows, enum quire_type type, make_fn *make,
                      const char *phase, struct quire_error *err)
{
    struct vecwriter *writer = NULL;
    uint64_t chunk = CHUNK_BYTES / (w->dim * sizeof(float)) + 1;
    bool narrow = type == QUIRE_TYPE_BF16;
    float *buffer = malloc(chunk * w->dim * sizeof *buffer);
    bf16_t *halves = narrow ? malloc(chunk * w->dim * sizeof *halves) : NULL;
    int rc = buffer && (halves || !narrow)
                 ? 0
                 : error_set(err, QUIRE_ENOMEM, "no memory for %llu rows", (unsigned long long)chunk);
    if (rc == 0)
        rc = vecwriter_open(path, VECFILE_AUTO, rows, (uint32_t)w->dim, type, &writer, err);
    for (uint64_t at = 0; rc == 0 && at < rows;) {
        uint64_t n = rows - at < chunk ? rows - at : chunk;
        rc = make(w->generator, at, n, buffer, err);
        if (rc == 0 && narrow)
            kernels()->bf16_from_f32(buffer, halves, n * w->dim);
        if (rc == 0)
            rc = vecwriter_write(writer, narrow ? (const void *)halves : buffer, n, err);
        at += n;
        if (rc == 0 && cli_progress(w->cli, phase, at, rows))
            rc = cli_cancelled(err);
    }
    free(buffer);
    free(halves);
    if (rc == 0)
        return vecwriter_finish(writer, err);
    if (writer)
        vecwriter_abort(writer);
    return rc;
}

static int write_truth(struct gen_work *w, struct quire_error *err)
{
    struct vectors base = {0}, queries = {0};
    struct truth truth = {0};
    int rc = vecfile_vectors_load(w->base_path, VECFILE_AUTO, &base, err);
    if (rc == 0)
        rc = vecfile_vectors_load(w->query_path, VECFILE_FBIN, &queries, err);
    if (rc == 0)
        rc = truth_compute(&base, &queries, (enum quire_metric)w->metric, (uint32_t)w->k, (unsigned)w->threads,
                           cli_truth_progress, w->cli, &truth, err);
    if (rc == QUIRE_ECANCELLED)
        cli_cancelled(err);
    if (rc == 0)
        rc = truth_save(w->truth_path, &truth, err);
    truth_free(&truth);
    vecfile_vectors_free(&base);
    vecfile_vectors_free(&queries);
    return rc;
}

static int name_files(struct gen_work *w, struct quire_error *err)
{
    if (asprintf(&w->base_path, "%s.%s", w->prefix, w->type == QUIRE_TYPE_BF16 ? "bf16bin" : "fbin") < 0)
        w->base_path = NULL;
    if (asprintf(&w->query_path, "%s.query.fbin", w->prefix) < 0)
        w->query_path = NULL;
    if (asprintf(&w->truth_path, "%s.gt.bin", w->prefix) < 0)
        w->truth_path = NULL;
    if (!w->base_path || !w->query_path || !w->truth_path)
        return error_set(err, QUIRE_ENOMEM, "no memory for the names of files");
    int rc = cli_refuse_existing(w->base_path, err);
    if (rc == 0 && w->queries)
        rc = cli_refuse_existing(w->query_path, err);
    return rc == 0 && w->queries ? cli_refuse_existing(w->truth_path, err) : rc;
}

static int generate(struct gen_work *w, struct quire_error *err)
{
    struct generate_options options;
    generate_options_init(&options);
    options.rows = w->rows;
    options.dim = (uint32_t)w->dim;
    options.clusters = (uint32_t)w->clusters;
    options.intrinsic = (uint32_t)w->intrinsic;
    options.seed = w->seed;
    options.threads = (unsigned)w->threads;
    int rc = name_files(w, err);
    if (rc == 0)
        rc = generate_create(&options, &w->generator, err);
    if (rc == 0)
        rc = write_rows(w, w->base_path, w->rows, (enum quire_type)w->type, generate_rows, "rows", err);
    w->base_written = rc == 0;
    if (rc == 0 && w->queries) {
        rc = write_rows(w, w->query_path, w->queries, QUIRE_TYPE_F32, generate_queries, "queries", err);
        w->query_written = rc == 0;
    }
    if (rc == 0 && w->queries)
        rc = write_truth(w, err);
    if (rc < 0 && w->base_written)
        unlink(w->base_path);
    if (rc < 0 && w->query_written)
        unlink(w->query_path);
    generate_destroy(w->generator);
    return rc;
}

static void report(const struct gen_work *w)
{
    cli_put_text(w->cli, NULL, "base", w->base_path);
    if (w->queries) {
        cli_put_text(w->cli, NULL, "queries_file", w->query_path);
        cli_put_text(w->cli, NULL, "truth", w->truth_path);
    }
    cli_put_count(w->cli, NULL, "rows", w->rows);
    cli_put_count(w->cli, NULL, "dim", w->dim);
    cli_put_text(w->cli, NULL, "type", quire_type_name((enum quire_type)w->type));
    cli_put_count(w->cli, NULL, "clusters", w->clusters);
    cli_put_count(w->cli, NULL, "intrinsic", w->intrinsic);
    cli_put_count(w->cli, NULL, "seed", w->seed);
    cli_put_count(w->cli, NULL, "queries", w->queries);
    cli_put_count(w->cli, NULL, "k", w->queries ? w->k : 0);
    cli_put_text(w->cli, NULL, "metric", quire_metric_name((enum quire_metric)w->metric));
    cli_put_real(w->cli, NULL, "seconds", w->seconds);
}

static const char summary[] =
    "Makes clustered vectors: PREFIX.fbin (or .bf16bin), held-out queries PREFIX.query.fbin and their "
    "exact neighbours PREFIX.gt.bin.\n"
    "Row i depends on dimensions, clusters, intrinsic, seed and i only.";
static const char examples[] =
    "  quire gen --rows 100000 --dim 128 --out base\n"
    "  quire gen --rows 1000000 --dim 768 --clusters 1000 --intrinsic 24 --seed 7 --out big\n";

int quire_gen(int argc, char **argv)
{
    struct cli cli;
    struct generate_options defaults;
    generate_options_init(&defaults);
    struct gen_work w = {.cli = &cli,
                         .rows = defaults.rows,
                         .dim = defaults.dim,
                         .clusters = defaults.clusters,
                         .intrinsic = defaults.intrinsic,
                         .seed = defaults.seed,
                         .queries = 1000,
                         .k = 100};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("rows", CLI_COUNT, &w.rows, "N", "rows", CLI_RANGE(1, QUIRE_ROWS_MAX)),
        CLI_OPTION("dim", CLI_COUNT, &w.dim, "N", "dimensions", CLI_RANGE(1, QUIRE_DIM_MAX)),
        CLI_OPTION("clusters", CLI_COUNT, &w.clusters, "N", "clusters", CLI_RANGE(1, QUIRE_ROWS_MAX)),
        CLI_OPTION("intrinsic", CLI_COUNT, &w.intrinsic, "N", "true dimensions of a cluster",
                   CLI_RANGE(1, QUIRE_DIM_MAX)),
        CLI_OPTION("seed", CLI_COUNT, &w.seed, "N", "another seed gives another set"),
        CLI_OPTION("queries", CLI_COUNT, &w.queries, "N", "held-out queries; 0: neither queries nor truth",
                   CLI_RANGE(0, QUIRE_ROWS_MAX)),
        CLI_OPTION("k", CLI_COUNT, &w.k, "N", "neighbours per query in the truth", CLI_RANGE(1, QUIRE_K_MAX)),
        CLI_OPTION("metric", CLI_CHOICE, &w.metric, NULL, "distance of the truth", .choices = cli_metrics),
        CLI_THREADS(&w.threads),
        CLI_OPTION("type", CLI_CHOICE, &w.type, NULL, "type of the base's elements; queries are f32", .choices = types),
        CLI_OPTION("out", CLI_TEXT, &w.prefix, "PREFIX", "what the names of the files begin with", CLI_REQUIRED),
    };
    const struct cli_verb verb = {"quire gen", summary, "", 0, options, sizeof options / sizeof *options, examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if (w.queries && w.k > w.rows)
        return cli_mistake(&cli, "--k %llu is more than --rows %llu", (unsigned long long)w.k,
                           (unsigned long long)w.rows);
    uint64_t begin = clock_ns();
    int rc = generate(&w, &err);
    w.seconds = (double)(clock_ns() - begin) / 1e9;
    if (rc == 0)
        report(&w);
    free(w.base_path);
    free(w.query_path);
    free(w.truth_path);
    return cli_end(&cli, rc, &err);
}
