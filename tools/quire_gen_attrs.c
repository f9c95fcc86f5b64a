/*
 * quire_gen_attrs.c - `quire gen-attrs`: made-up attributes and tenants of rows, to try and measure filters with.
 *
 * Two text files, one line per row, as `quire build` takes them. They appear under their names when both are complete:
 * each is written beside its name first.
 */
#include "datasets/labels.h"
#include "io/error.h"
#include "tools/cli/cli.h"
#include "tools/quire_verbs.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum by { BY_POSITION, BY_NOTHING };
static const struct cli_choice bys[] = {{"position", BY_POSITION}, {"random", BY_NOTHING}, {0}};

struct labels_work {
    struct cli *cli;
    const char *prefix, *base_path;
    uint64_t rows, seed, tenants, threads;
    double exponent, shared_percent;
    int by;
    struct vectors base;
    struct labels *labels;
    uint64_t attribute_bytes, tenant_bytes;
};

typedef uint32_t text_fn(const struct labels *labels, uint64_t row, char out[LABELS_TEXT_MAX]);

static int write_lines(struct labels_work *w, FILE *file, const char *path, text_fn *text, uint64_t *bytes,
                       struct quire_error *err)
{
    char line[LABELS_TEXT_MAX];
    for (uint64_t row = 0; row < w->rows; row++) {
        *bytes += text(w->labels, row, line);
        if (fputs(line, file) == EOF || putc('\n', file) == EOF)
            return error_set_errno(err, errno, "cannot write", path);
        if (row % 4096 == 0 && cli_progress(w->cli, "lines", row, w->rows))
            return cli_cancelled(err);
    }
    return fflush(file) == 0 ? 0 : error_set_errno(err, errno, "cannot write", path);
}

/* PREFIX.ENDING by way of PREFIX.ENDING.part. */
static int write_file(struct labels_work *w, const char *ending, text_fn *text, uint64_t *bytes,
                      struct quire_error *err)
{
    char *path = NULL, *part = NULL;
    FILE *file = NULL;
    int rc = asprintf(&path, "%s.%s", w->prefix, ending) < 0 || asprintf(&part, "%s.part", path) < 0
                 ? error_set(err, QUIRE_ENOMEM, "no memory for the names of files")
                 : cli_refuse_existing(path, err);
    if (rc == 0 && !(file = fopen(part, "we")))
        rc = error_set_errno(err, errno, "cannot create", part);
    if (rc == 0)
        rc = write_lines(w, file, path, text, bytes, err);
    if (file && fclose(file) != 0 && rc == 0)
        rc = error_set_errno(err, errno, "cannot write", path);
    if (rc == 0 && rename(part, path) != 0)
        rc = error_set_errno(err, errno, "cannot rename", part);
    if (rc < 0 && file)
        unlink(part);
    free(path);
    free(part);
    return rc;
}

static int make(struct labels_work *w, struct quire_error *err)
{
    cli_may_end(true);
    int rc = w->base_path ? vecfile_vectors_load(w->base_path, VECFILE_AUTO, &w->base, err) : 0;
    cli_may_end(false);
    if (rc < 0)
        return rc;
    if (w->base_path)
        w->rows = w->base.rows;
    struct label_options options = {.rows = w->rows,
                                    .base = w->base_path && w->by == BY_POSITION ? &w->base : NULL,
                                    .seed = w->seed,
                                    .tenants = (uint32_t)w->tenants,
                                    .exponent = w->exponent,
                                    .shared = w->shared_percent / 100,
                                    .threads = (unsigned)w->threads};
    rc = labels_create(&options, &w->labels, err);
    if (rc == 0)
        rc = write_file(w, "attrs.jsonl", labels_attributes, &w->attribute_bytes, err);
    if (rc == 0 && w->tenants)
        rc = write_file(w, "tenants.txt", labels_tenants, &w->tenant_bytes, err);
    return rc;
}

static const char summary[] =
    "Makes attributes PREFIX.attrs.jsonl and, with --tenants, tenants PREFIX.tenants.txt for rows, as quire build "
    "takes\n"
    "them: labels p001 p005 p01 p05 p1 p5 p10 p30 (1 for that share of the rows: 0.01 % to 30 %), a20 and b20 (20 %\n"
    "each, independent), kind (\"k0\" to \"k49\"), time (seconds in the year 2025), tags (a list), name. By position,\n"
    "rows that have the same label, kind or tenant, or about the same time, lie near one another; b20 and tags do not.";
static const char examples[] = "  quire gen-attrs --rows 100000 --out random\n"
                               "  quire gen-attrs --base base.fbin --out near --tenants 1000\n";

int quire_gen_attrs(int argc, char **argv)
{
    struct cli cli;
    struct labels_work w = {.cli = &cli, .rows = 10000, .seed = 1, .exponent = 1};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("rows", CLI_COUNT, &w.rows, "N", "rows, without --base", CLI_RANGE(1, QUIRE_ROWS_MAX)),
        CLI_OPTION("base", CLI_TEXT, &w.base_path, "FILE", "vectors of the rows"),
        CLI_OPTION("by", CLI_CHOICE, &w.by, NULL, "how values are assigned; without --base: random", .choices = bys),
        CLI_OPTION("out", CLI_TEXT, &w.prefix, "PREFIX", "what the names of the files begin with", CLI_REQUIRED),
        CLI_OPTION("seed", CLI_COUNT, &w.seed, "N", "another seed gives other labels"),
        CLI_OPTION("tenants", CLI_COUNT, &w.tenants, "N", "that own the rows: t1, the largest, to tN; 0: none",
                   CLI_RANGE(0, LABELS_TENANTS_MAX)),
        CLI_OPTION("exponent", CLI_REAL, &w.exponent, "X", "the r-th tenant's size goes with 1 / r^X", .maximum = 10),
        CLI_OPTION("shared", CLI_REAL, &w.shared_percent, "PERCENT", "of rows that another tenant is granted as well",
                   .maximum = 100),
        CLI_THREADS(&w.threads),
    };
    const struct cli_verb verb = {"quire gen-attrs", summary, "", 0, options, sizeof options / sizeof *options,
                                  examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    int rc = make(&w, &err);
    if (rc == 0) {
        cli_put_text(&cli, NULL, "out", w.prefix);
        cli_put_text(&cli, NULL, "labels", w.base_path && w.by == BY_POSITION ? "by position" : "at random");
        cli_put_count(&cli, NULL, "rows", w.rows);
        cli_put_count(&cli, NULL, "tenants", w.tenants);
        cli_put_real(&cli, NULL, "attribute_bytes_per_row", (double)w.attribute_bytes / (double)w.rows);
    }
    labels_destroy(w.labels);
    vecfile_vectors_free(&w.base);
    return cli_end(&cli, rc, &err);
}
