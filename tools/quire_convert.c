/*
 * quire_convert.c - `quire convert`: one format of vectors into another, with their keys, attributes and tenants.
 *
 * The formats themselves are in records/. The element type follows from the output's format (npy and hdf5: --type, or
 * the input's own). Widening to f32 loses nothing; narrowing to i8 or u8 is refused where a value is not a whole number
 * of that range; f16 and bf16 round to nearest. So every conversion but those two can be undone.
 *
 * What OUT cannot hold is never dropped without a word: a file of vectors has no keys, and where IN has some and no
 * file for them was named, a note says so.
 */
#include "datasets/vecfile.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/cli/cli_records.h"
#include "tools/quire_verbs.h"
#include "tools/records/hdf5_lib.h"
#include <stdlib.h>
#include <string.h>

#define TYPE_AUTO (-1)

/* Formats of vectors alone have numbers of vecfile_format; the others begin here. */
enum { OTHER = 100 };
static const struct cli_choice formats_in[] = {{"auto", VECFILE_AUTO},
                                               {"fbin", VECFILE_FBIN},
                                               {"u8bin", VECFILE_U8BIN},
                                               {"i8bin", VECFILE_I8BIN},
                                               {"bf16bin", VECFILE_BF16BIN},
                                               {"fvecs", VECFILE_FVECS},
                                               {"bvecs", VECFILE_BVECS},
                                               {"npy", VECFILE_NPY},
                                               {"jsonl", OTHER + RECORDS_JSONL},
                                               {"hdf5", OTHER + RECORDS_HDF5},
                                               {"parquet", OTHER + RECORDS_PARQUET},
                                               {"faiss", OTHER + RECORDS_FAISS},
                                               {"hnswlib", OTHER + RECORDS_HNSWLIB},
                                               {0}};
static const struct cli_choice formats_out[] = {{"auto", VECFILE_AUTO},
                                                {"fbin", VECFILE_FBIN},
                                                {"u8bin", VECFILE_U8BIN},
                                                {"i8bin", VECFILE_I8BIN},
                                                {"bf16bin", VECFILE_BF16BIN},
                                                {"fvecs", VECFILE_FVECS},
                                                {"bvecs", VECFILE_BVECS},
                                                {"npy", VECFILE_NPY},
                                                {"jsonl", OTHER + RECORDS_JSONL},
                                                {"hdf5", OTHER + RECORDS_HDF5},
                                                {"parquet", OTHER + RECORDS_PARQUET},
                                                {0}};
static const struct cli_choice types[] = {{"auto", TYPE_AUTO},
                                          {"f32", QUIRE_TYPE_F32},
                                          {"f16", QUIRE_TYPE_F16},
                                          {"bf16", QUIRE_TYPE_BF16},
                                          {"i8", QUIRE_TYPE_I8},
                                          {"u8", QUIRE_TYPE_U8},
                                          {0}};
static const struct cli_choice metrics[] = {{"auto", RECORDS_METRIC_UNKNOWN},
                                            {"l2", QUIRE_METRIC_L2},
                                            {"cosine", QUIRE_METRIC_COSINE},
                                            {"ip", QUIRE_METRIC_IP},
                                            {0}};

struct convert_work {
    struct cli *cli;
    int from, to, type_wanted, metric, compression;
    uint64_t limit;
    struct records_names names;
    struct records_sides sides;
    const char *queries, *truth;
    struct records_from in;
    struct records_into out;
    struct records_source *source;
    struct records_sink *sink;
    struct records_copy copy;
};

static void set_format(int choice, const char *path, enum records_format *format, int *vecfile_format)
{
    *format = choice > OTHER ? (enum records_format)(choice - OTHER) : RECORDS_VECTORS;
    *vecfile_format = choice > OTHER ? VECFILE_AUTO : choice;
    if (choice == VECFILE_AUTO)
        *format = records_format_from_path(path);
    if (*format == RECORDS_AUTO)
        *format = RECORDS_VECTORS;
    if (*format == RECORDS_VECTORS && choice == VECFILE_AUTO)
        *vecfile_format = (int)vecfile_format_from_path(path);
}

static int choose_type(struct convert_work *w, struct quire_error *err)
{
    const char *out = w->out.path;
    enum quire_type type = w->source->type;
    if (w->out.format == RECORDS_VECTORS && w->out.vecfile_format == VECFILE_AUTO)
        return error_set(err, QUIRE_ETYPE,
                         "%s: give --to, or a name that ends in .fbin .u8bin .i8bin .bf16bin .fvecs .bvecs .npy .jsonl "
                         ".hdf5 .parquet",
                         out);
    if (w->type_wanted != TYPE_AUTO)
        type = (enum quire_type)w->type_wanted;
    else
        type = cli_records_type(w->out.format, w->out.vecfile_format, type);
    if (!records_type_fits(w->out.format, w->out.vecfile_format, type))
        return error_set(err, QUIRE_ETYPE, "%s holds %s; only npy and hdf5 take other types", out,
                         quire_type_name(cli_records_type(w->out.format, w->out.vecfile_format, w->source->type)));
    if (w->source->rows == RECORDS_ROWS_UNKNOWN && w->out.format == RECORDS_VECTORS &&
        w->out.vecfile_format != VECFILE_FVECS && w->out.vecfile_format != VECFILE_BVECS)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "the input does not say how many rows it has, and %s begins with that "
                         "number: convert from a file, or to fvecs or bvecs",
                         out);
    w->out.type = type;
    return 0;
}

static int refuse_existing(const struct convert_work *w, struct quire_error *err)
{
    const char *const paths[] = {w->out.path,
                                 w->out.sides.keys,
                                 w->out.sides.attributes,
                                 w->out.sides.tenants,
                                 w->in.format == RECORDS_HDF5 ? w->queries : NULL,
                                 w->in.format == RECORDS_HDF5 ? w->truth : NULL};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof paths / sizeof *paths; i++)
        if (paths[i])
            rc = cli_refuse_existing(paths[i], err);
    return rc;
}

static int open_files(struct convert_work *w, struct quire_error *err)
{
    int rc = refuse_existing(w, err);
    if (rc == 0)
        rc = records_open(&w->in, &w->source, err);
    if (rc == 0)
        rc = choose_type(w, err);
    if (rc < 0)
        return rc;
    w->out.dim = w->source->dim;
    w->out.rows =
        w->limit && w->limit < w->source->rows && w->source->rows != RECORDS_ROWS_UNKNOWN ? w->limit : w->source->rows;
    w->out.metric = w->metric != RECORDS_METRIC_UNKNOWN ? w->metric : w->source->metric;
    w->out.may_have = w->source->may_have;
    return records_create(&w->out, &w->sink, err);
}

/* What else is in a file of ann-benchmarks: queries, and their neighbours. */
static int convert_queries(struct convert_work *w, struct quire_error *err)
{
    struct records_from from = {.path = w->in.path, .format = RECORDS_HDF5, .names.vector = "test"};
    struct records_into into = {.path = w->queries, .metric = RECORDS_METRIC_UNKNOWN};
    struct records_copy copy = {.progress = cli_progress, .context = w->cli};
    struct records_source *source = NULL;
    struct records_sink *sink = NULL;
    set_format(VECFILE_AUTO, w->queries, &into.format, &into.vecfile_format);
    int rc = records_open(&from, &source, err);
    if (rc == 0) {
        into.rows = source->rows;
        into.dim = source->dim;
        into.type = cli_records_type(into.format, into.vecfile_format, source->type);
        rc = records_create(&into, &sink, err);
    }
    if (rc == 0)
        rc = records_copy(&copy, source, sink, err);
    if (rc == 0) {
        rc = records_finish(sink, err);
        sink = NULL;
    }
    records_abort(sink);
    records_close(source);
    if (rc == 0)
        cli_put_count(w->cli, NULL, "queries", copy.rows);
    return rc;
}

static int convert_truth(struct convert_work *w, struct quire_error *err)
{
    struct truth truth = {0};
    int metric, rc = hdf5_truth_load(w->in.path, &truth, &metric, err);
    if (rc == 0)
        rc = truth_save(w->truth, &truth, err);
    if (rc == 0)
        cli_put_count(w->cli, NULL, "neighbours", truth.k);
    truth_free(&truth);
    return rc;
}

/* Files of lines belong to the side that is a file of vectors. */
static const char *place_sides(struct convert_work *w)
{
    bool in = w->in.format == RECORDS_VECTORS, out = w->out.format == RECORDS_VECTORS;
    bool hdf5_in = w->in.format == RECORDS_HDF5, hdf5_out = w->out.format == RECORDS_HDF5;
    if (w->sides.keys || w->sides.attributes || w->sides.tenants) {
        if (in == out)
            return in ? "--keys, --attrs and --tenants stand beside a file of vectors, and stay as they are when that "
                        "becomes another: rows keep their order"
                      : "--keys, --attrs and --tenants stand beside a file of vectors, and neither IN nor OUT is one: "
                        "both hold their own";
        *(in ? &w->in.sides : &w->out.sides) = w->sides;
    }
    if ((w->queries || w->truth) && hdf5_in == hdf5_out)
        return "--queries and --truth go into an HDF5 file, or out of one: one of IN and OUT must be .hdf5";
    if (hdf5_out) {
        w->out.queries = w->queries;
        w->out.truth = w->truth;
    }
    return NULL;
}

static int convert(struct convert_work *w, struct quire_error *err)
{
    int rc = open_files(w, err);
    if (rc == 0)
        rc = records_copy(&w->copy, w->source, w->sink, err);
    if (rc == 0) {
        rc = records_finish(w->sink, err);
        w->sink = NULL;
    }
    records_abort(w->sink);
    if (rc == 0 && w->in.format == RECORDS_HDF5 && w->queries)
        rc = convert_queries(w, err);
    if (rc == 0 && w->in.format == RECORDS_HDF5 && w->truth)
        rc = convert_truth(w, err);
    return rc;
}

static const char summary[] =
    "Converts files of vectors: .fbin .u8bin .i8bin .bf16bin .fvecs .bvecs .npy, and with keys, attributes and "
    "tenants\n"
    ".jsonl .hdf5 (as ann-benchmarks has them) .parquet; reads .faiss (flat and IVF) and .hnswlib. By extension, or "
    "as\n"
    "--from and --to say. \"-\" is standard input or output (not hdf5, parquet, faiss, hnswlib).\n"
    "--keys, --attrs and --tenants name files of lines, as `quire build` takes them, beside a file of vectors: read "
    "if\n"
    "IN is one, written if OUT is. --queries and --truth go into an .hdf5, or come out of it.";
static const char examples[] = "  quire convert base.fvecs base.fbin\n"
                               "  quire convert base.npy base.fbin --limit 10000\n"
                               "  zcat base.fvecs.gz | quire convert - base.npy --from fvecs --to npy --type f16\n"
                               "  quire convert films.jsonl films.fbin --keys films.keys --attrs films.attrs\n"
                               "  quire convert films.fbin films.parquet --keys films.keys --attrs films.attrs\n"
                               "  quire convert sift.hdf5 sift.fbin --queries sift.query.fbin --truth sift.gt.bin\n"
                               "  quire convert base.fbin base.hdf5 --queries query.fbin --truth gt.bin --metric l2\n"
                               "  quire convert points.jsonl points.hdf5 --vector-field embedding --key-field name\n"
                               "  quire convert index.faiss base.fbin --keys base.keys\n";

int quire_convert(int argc, char **argv)
{
    struct cli cli;
    struct convert_work w = {.cli = &cli, .type_wanted = TYPE_AUTO, .metric = RECORDS_METRIC_UNKNOWN};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("from", CLI_CHOICE, &w.from, NULL, "format of IN", .choices = formats_in),
        CLI_OPTION("to", CLI_CHOICE, &w.to, NULL, "format of OUT", .choices = formats_out),
        CLI_OPTION("type", CLI_CHOICE, &w.type_wanted, NULL, "element type of npy and hdf5; jsonl: f32, i8 or u8",
                   .choices = types),
        CLI_OPTION("limit", CLI_COUNT, &w.limit, "N", "first so many rows only; 0: all"),
        CLI_OPTION("keys", CLI_TEXT, &w.sides.keys, "FILE", "one key per line; line number is row number"),
        CLI_OPTION("attrs", CLI_TEXT, &w.sides.attributes, "FILE", "one JSON object per line; an empty line for none"),
        CLI_OPTION("tenants", CLI_TEXT, &w.sides.tenants, "FILE",
                   "names with spaces between, one line per row; an empty line for nobody"),
        CLI_OPTION("vector-field", CLI_TEXT, &w.names.vector, "NAME",
                   "what the file calls the vector (vector, embedding, values; hdf5: train)"),
        CLI_OPTION("key-field", CLI_TEXT, &w.names.key, "NAME", "the same of the key (id, key, _id; hdf5: keys, ids)"),
        CLI_OPTION("attrs-field", CLI_TEXT, &w.names.attributes, "NAME",
                   "the same of the attributes (attributes, payload, metadata)"),
        CLI_OPTION("tenants-field", CLI_TEXT, &w.names.tenants, "NAME", "the same of the tenants (tenants)"),
        CLI_OPTION("queries", CLI_TEXT, &w.queries, "FILE", "vectors of queries: test of an hdf5"),
        CLI_OPTION("truth", CLI_TEXT, &w.truth, "FILE", "their neighbours (quire truth): neighbors, distances"),
        CLI_OPTION("metric", CLI_CHOICE, &w.metric, NULL, "the distance that hdf5 and parquet name; auto: IN's",
                   .choices = metrics),
        CLI_OPTION("compression", CLI_CHOICE, &w.compression, NULL, "of parquet", .choices = cli_records_compressions),
    };
    const struct cli_verb verb = {"quire convert", summary, "IN OUT", 2, options, sizeof options / sizeof *options,
                                  examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    bool to_output = strcmp(cli.arguments[1], "-") == 0;
    if (to_output && cli.json)
        return cli_mistake(&cli, "--json and vectors cannot both go to standard output");
    w.in = (struct records_from){.path = cli.arguments[0], .names = w.names};
    w.out = (struct records_into){.path = cli.arguments[1], .compression = (enum records_compression)w.compression};
    set_format(w.from, w.in.path, &w.in.format, &w.in.vecfile_format);
    set_format(w.to, w.out.path, &w.out.format, &w.out.vecfile_format);
    if (w.in.format == RECORDS_VECTORS)
        w.out.names = w.names;
    const char *wrong = place_sides(&w);
    if (wrong)
        return cli_mistake(&cli, "%s", wrong);
    w.copy = (struct records_copy){.limit = w.limit, .progress = cli_progress, .context = &cli};
    uint64_t begin = clock_ns();
    int rc = convert(&w, &err);
    if (rc == 0 && !to_output) {
        cli_put_text(&cli, NULL, "in", w.in.path);
        cli_put_text(&cli, NULL, "out", w.out.path);
        cli_records_report(&cli, &w.copy, &w.out);
        cli_put_real(&cli, NULL, "seconds", (double)(clock_ns() - begin) / 1e9);
    }
    if (rc == 0)
        cli_records_note_left(&cli, &w.copy, &w.out);
    if (rc == 0 && w.out.queries && quire_type_bytes(w.out.type) == 1)
        cli_note(&cli,
                 "ann-benchmarks subtracts in the file's type, and differences of %s do not fit into it: write "
                 "--type f32 for it",
                 quire_type_name(w.out.type));
    records_close(w.source);
    if (rc < 0)
        return cli_fail(&cli, rc, &err);
    return to_output ? CLI_OK : cli_finish(&cli, CLI_OK);
}
