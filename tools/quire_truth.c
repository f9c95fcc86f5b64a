/*
 * quire_truth.c - `quire truth`: exact nearest neighbours of a file of queries, by brute force.
 *
 * Under a filter or for tenants only the rows that match stand in memory for the comparison; a query that has fewer
 * than k of them gets as many, and ids that no row has behind them.
 *
 * The answer is unique: ties go to the smaller row number (datasets/vecfile.h), so two runs on any two machines that
 * sum alike write the same file.
 */
#include "datasets/vecfile.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/cli/cli_gpu.h"
#include "tools/quire_verbs.h"
#include <stdlib.h>
#include <string.h>

struct truth_work {
    struct cli *cli;
    const char *base_path, *queries_path, *out;
    uint64_t k, threads, limit;
    int metric;
    struct cli_where where;
    uint32_t *rows; /* of the base that match; NULL: all */
    uint64_t n_rows, base_rows;
    struct vectors base, queries; /* base: what matches of it */
    struct truth truth;
    struct cli_gpu gpu;
    bool on_device;
    double seconds;
};

/* Moves the rows that match together. */
static int keep_matches(struct truth_work *w, struct quire_error *err)
{
    size_t bytes = w->base.dim * quire_type_bytes(w->base.type);
    uint8_t *data = w->base.data;
    w->base_rows = w->base.rows;
    int rc = cli_where_rows(w->cli, &w->where, w->base_path, w->base.rows, &w->rows, &w->n_rows, err);
    if (rc < 0 || !w->rows)
        return rc;
    for (uint64_t i = 0; i < w->n_rows; i++)
        memmove(data + i * bytes, data + w->rows[i] * bytes, bytes);
    w->base.rows = w->n_rows;
    return 0;
}

static int load(struct truth_work *w, struct quire_error *err)
{
    int rc = cli_refuse_existing(w->out, err);
    if (rc == 0)
        rc = vecfile_vectors_load(w->queries_path, VECFILE_AUTO, &w->queries, err);
    if (rc == 0)
        rc = vecfile_vectors_load(w->base_path, VECFILE_AUTO, &w->base, err);
    if (rc < 0)
        return rc;
    if (w->base.dim != w->queries.dim)
        return error_set(err, QUIRE_EDIM, "%s has dimension %u, %s has %u", w->queries_path, w->queries.dim,
                         w->base_path, w->base.dim);
    if (w->k > w->base.rows)
        return error_set(err, QUIRE_ERANGE, "--k %llu: %s has %llu rows only", (unsigned long long)w->k, w->base_path,
                         (unsigned long long)w->base.rows);
    if (w->limit && w->limit < w->queries.rows)
        w->queries.rows = w->limit;
    return keep_matches(w, err);
}

static void open_device(struct truth_work *w)
{
    struct offload_work work;
    cli_gpu_truth_work(w->base.rows, w->queries.rows, w->base.dim, w->base.type, &work);
    cli_gpu_open(w->cli, &w->gpu, &work, 1, (unsigned)w->threads);
}

static int compute(struct truth_work *w, struct quire_error *err)
{
    uint64_t begin = clock_ns();
    uint32_t k = (uint32_t)(w->k < w->n_rows ? w->k : w->n_rows);
    int rc = k > 0 ? truth_compute_on(w->gpu.offload, &w->base, &w->queries, (enum quire_metric)w->metric, k,
                                      (unsigned)w->threads, cli_truth_progress, w->cli, &w->truth, &w->on_device, err)
                   : 0;
    w->seconds = (double)(clock_ns() - begin) / 1e9;
    if (rc == QUIRE_ECANCELLED)
        return cli_cancelled(err);
    if (rc == 0 && w->rows && truth_widen(&w->truth, w->rows, (uint32_t)w->queries.rows, (uint32_t)w->k) < 0)
        rc =
            error_set(err, QUIRE_ENOMEM, "no memory for %llu neighbours", (unsigned long long)(w->queries.rows * w->k));
    return rc == 0 ? truth_save(w->out, &w->truth, err) : rc;
}

static void report(struct truth_work *w)
{
    cli_put_text(w->cli, NULL, "out", w->out);
    cli_put_count(w->cli, NULL, "rows", w->base_rows);
    cli_put_count(w->cli, NULL, "matches", w->n_rows);
    cli_put_count(w->cli, NULL, "dim", w->base.dim);
    cli_put_count(w->cli, NULL, "queries", w->truth.n_queries);
    cli_put_count(w->cli, NULL, "k", w->truth.k);
    cli_put_text(w->cli, NULL, "metric", quire_metric_name((enum quire_metric)w->metric));
    cli_put_real(w->cli, NULL, "seconds", w->seconds);
    cli_gpu_report(w->cli, &w->gpu, true);
}

static const char summary[] =
    "Computes the exact nearest rows of --base for every row of --queries, with --filter or --tenant among the rows "
    "that\n"
    "match. Where fewer than --k match, the rest of a query's ids are 4294967295 (-1 in .ivecs), at infinite distance.";
static const char examples[] =
    "  quire truth --base base.fbin --queries query.fbin --k 100 --metric cosine --out gt.bin\n"
    "  quire truth --base base.u8bin --queries query.u8bin --out gt.bin --limit 1000\n"
    "  quire truth --base base.fbin --queries query.fbin --out gt.bin --filter '.year > 2020' --attrs base.jsonl\n";

int quire_truth(int argc, char **argv)
{
    struct cli cli;
    struct truth_work w = {.cli = &cli, .k = 100};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("base", CLI_TEXT, &w.base_path, "FILE", "vectors", CLI_REQUIRED),
        CLI_OPTION("queries", CLI_TEXT, &w.queries_path, "FILE", "vectors to search for", CLI_REQUIRED),
        CLI_OPTION("out", CLI_TEXT, &w.out, "FILE", "ids and distances (.bin), or ids (.ivecs)", CLI_REQUIRED),
        CLI_OPTION("k", CLI_COUNT, &w.k, "N", "neighbours per query", CLI_RANGE(1, QUIRE_K_MAX)),
        CLI_OPTION("metric", CLI_CHOICE, &w.metric, NULL, "distance", .choices = cli_metrics),
        CLI_OPTION("limit", CLI_COUNT, &w.limit, "N", "first so many queries only; 0: all"),
        CLI_WHERE_OPTIONS(&w.where),
        CLI_THREADS(&w.threads),
        CLI_GPU_OPTION(&w.gpu),
    };
    const struct cli_verb verb = {"quire truth", summary, "", 0, options, sizeof options / sizeof *options, examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    cli_may_end(true);
    int rc = load(&w, &err);
    cli_may_end(false);
    if (rc == 0) {
        open_device(&w);
        rc = compute(&w, &err);
    }
    if (rc == 0)
        report(&w);
    cli_gpu_close(&w.gpu);
    truth_free(&w.truth);
    free(w.rows);
    vecfile_vectors_free(&w.base);
    vecfile_vectors_free(&w.queries);
    return cli_end(&cli, rc, &err);
}
