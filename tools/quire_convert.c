/*
 * quire_convert.c - `quire convert`: one format of vector file into another, also through pipes.
 *
 * The element type follows from the output's format (npy: --type, or the input's own). Widening to f32 loses nothing;
 * narrowing to i8 or u8 is refused where a value is not a whole number of that range, because cutting it off would
 * change distances silently; f16 and bf16 round to nearest. So every conversion but those two can be undone.
 */
#include "datasets/vecfile.h"
#include "index/kernels/kernels.h"
#include "index/vector/space.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/cli.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((uint64_t)4 << 20)
#define TYPE_AUTO   (-1)

static const struct cli_choice formats[] = {
    {"auto", VECFILE_AUTO},   {"fbin", VECFILE_FBIN},       {"u8bin", VECFILE_U8BIN},
    {"i8bin", VECFILE_I8BIN}, {"bf16bin", VECFILE_BF16BIN}, {"fvecs", VECFILE_FVECS},
    {"bvecs", VECFILE_BVECS}, {"npy", VECFILE_NPY},         {0}};
static const struct cli_choice types[] = {{"auto", TYPE_AUTO},
                                          {"f32", QUIRE_TYPE_F32},
                                          {"f16", QUIRE_TYPE_F16},
                                          {"bf16", QUIRE_TYPE_BF16},
                                          {"i8", QUIRE_TYPE_I8},
                                          {"u8", QUIRE_TYPE_U8},
                                          {0}};

struct convert_work {
    struct cli *cli;
    int from, to, type_wanted;
    uint64_t limit;
    struct vecfile *file;
    struct vecwriter *writer;
    enum quire_type in_type, out_type;
    uint32_t dim;
    uint64_t rows; /* to convert; UINT64_MAX: until the end */
    uint64_t done;
};

static int choose_type(struct convert_work *w, const char *out, struct quire_error *err)
{
    enum vecfile_format format = w->to == VECFILE_AUTO ? vecfile_format_from_path(out) : (enum vecfile_format)w->to;
    enum quire_type type;
    switch (format) {
    case VECFILE_FBIN:
    case VECFILE_FVECS:
        type = QUIRE_TYPE_F32;
        break;
    case VECFILE_U8BIN:
    case VECFILE_BVECS:
        type = QUIRE_TYPE_U8;
        break;
    case VECFILE_I8BIN:
        type = QUIRE_TYPE_I8;
        break;
    case VECFILE_BF16BIN:
        type = QUIRE_TYPE_BF16;
        break;
    case VECFILE_NPY:
        type = w->type_wanted == TYPE_AUTO ? w->in_type : (enum quire_type)w->type_wanted;
        break;
    default:
        return error_set(err, QUIRE_ETYPE,
                         "%s: give --to, or a name that ends in .fbin .u8bin .i8bin .bf16bin .fvecs .bvecs .npy", out);
    }
    if (w->type_wanted != TYPE_AUTO && w->type_wanted != (int)type)
        return error_set(err, QUIRE_ETYPE, "%s holds %s; only npy takes other types", out, quire_type_name(type));
    if (w->rows == UINT64_MAX && format != VECFILE_FVECS && format != VECFILE_BVECS)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "the input does not say how many rows it has, and %s begins with that "
                         "number: convert from a file, or to fvecs or bvecs",
                         out);
    w->out_type = type;
    return 0;
}

static int open_files(struct convert_work *w, struct quire_error *err)
{
    const char *in = w->cli->arguments[0], *out = w->cli->arguments[1];
    int rc = cli_refuse_existing(out, err);
    if (rc == 0)
        rc = vecfile_open(in, (enum vecfile_format)w->from, &w->file, err);
    if (rc < 0)
        return rc;
    if (vecfile_is_ivecs(w->file))
        return error_set(err, QUIRE_ETYPE, "%s holds ids, not vectors", in);
    w->in_type = vecfile_type(w->file);
    w->dim = vecfile_dim(w->file);
    w->rows = vecfile_rows(w->file);
    if (w->limit && w->rows != UINT64_MAX && w->limit < w->rows)
        w->rows = w->limit;
    rc = choose_type(w, out, err);
    return rc == 0 ? vecwriter_open(out, (enum vecfile_format)w->to, w->rows, w->dim, w->out_type, &w->writer, err)
                   : rc;
}

/* Whole numbers of a range as bytes. */
static int narrow(const struct convert_work *w, const float *in, void *out, uint64_t n, struct quire_error *err)
{
    bool is_signed = w->out_type == QUIRE_TYPE_I8;
    float low = is_signed ? -128.0f : 0.0f, high = is_signed ? 127.0f : 255.0f;
    uint8_t *bytes = out;
    for (uint64_t i = 0; i < n * w->dim; i++) {
        if (!(in[i] >= low && in[i] <= high) || in[i] != floorf(in[i]))
            return error_set(err, QUIRE_ERANGE, "row %llu dimension %llu is %g: %s holds whole numbers from %g to %g",
                             (unsigned long long)(w->done + i / w->dim), (unsigned long long)(i % w->dim),
                             (double)in[i], quire_type_name(w->out_type), (double)low, (double)high);
        bytes[i] = (uint8_t)(int)in[i];
    }
    return 0;
}

/* rows as read -> *out, in `floats` or `stored` or where they are. */
static int convert_rows(const struct convert_work *w, void *rows, float *floats, uint64_t n, void **out,
                        struct quire_error *err)
{
    *out = rows;
    if (w->in_type == w->out_type)
        return 0;
    space_floats(w->in_type, rows, n * w->dim, floats);
    *out = w->out_type == QUIRE_TYPE_F32 ? (void *)floats : rows;
    if (w->out_type == QUIRE_TYPE_F32)
        return 0;
    if (w->out_type == QUIRE_TYPE_F16)
        kernels()->f16_from_f32(floats, rows, n * w->dim);
    else if (w->out_type == QUIRE_TYPE_BF16)
        kernels()->bf16_from_f32(floats, rows, n * w->dim);
    else
        return narrow(w, floats, rows, n, err);
    return 0;
}

static int convert(struct convert_work *w, struct quire_error *err)
{
    uint64_t chunk = CHUNK_BYTES / (w->dim * sizeof(float)) + 1;
    void *rows = malloc(chunk * w->dim * sizeof(float)), *ready; /* f32 is the widest type: in and out fit */
    float *floats = malloc(chunk * w->dim * sizeof *floats);
    uint64_t end = w->limit && w->limit < w->rows ? w->limit : w->rows;
    int rc = 0;
    if (!rows || !floats) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %llu rows", (unsigned long long)chunk);
        goto out;
    }
    while (rc == 0 && w->done < end) {
        int64_t n = vecfile_read(w->file, rows, end - w->done < chunk ? end - w->done : chunk, err);
        if (n <= 0) {
            rc = (int)n;
            break;
        }
        rc = convert_rows(w, rows, floats, (uint64_t)n, &ready, err);
        if (rc == 0)
            rc = vecwriter_write(w->writer, ready, (uint64_t)n, err);
        w->done += (uint64_t)n;
        if (rc == 0 && cli_progress(w->cli, "convert", w->done, end == UINT64_MAX ? 0 : end))
            rc = cli_cancelled(err);
    }
out:
    free(rows);
    free(floats);
    return rc;
}

static const char summary[] =
    "Converts between .fbin .u8bin .i8bin .bf16bin .fvecs .bvecs and .npy, by extension. \"-\" is "
    "standard input or output; then\n"
    "--from or --to names the format.";
static const char examples[] = "  quire convert base.fvecs base.fbin\n"
                               "  quire convert base.npy base.fbin --limit 10000\n"
                               "  zcat base.fvecs.gz | quire convert - base.npy --from fvecs --to npy --type f16\n";

int quire_convert(int argc, char **argv)
{
    struct cli cli;
    struct convert_work w = {.cli = &cli, .type_wanted = TYPE_AUTO};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("from", CLI_CHOICE, &w.from, NULL, "format of IN", .choices = formats),
        CLI_OPTION("to", CLI_CHOICE, &w.to, NULL, "format of OUT", .choices = formats),
        CLI_OPTION("type", CLI_CHOICE, &w.type_wanted, NULL, "element type of npy", .choices = types),
        CLI_OPTION("limit", CLI_COUNT, &w.limit, "N", "first so many rows only; 0: all"),
    };
    const struct cli_verb verb = {"quire convert", summary, "IN OUT", 2, options, sizeof options / sizeof *options,
                                  examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    bool to_output = strcmp(cli.arguments[1], "-") == 0;
    if (to_output && cli.json)
        return cli_mistake(&cli, "--json and vectors cannot both go to standard output");
    uint64_t begin = clock_ns();
    int rc = open_files(&w, &err);
    if (rc == 0)
        rc = convert(&w, &err);
    if (rc == 0)
        rc = vecwriter_finish(w.writer, &err);
    else if (w.writer)
        vecwriter_abort(w.writer);
    vecfile_close(w.file);
    if (rc < 0)
        return cli_fail(&cli, rc, &err);
    if (to_output)
        return CLI_OK;
    cli_put_text(&cli, NULL, "in", cli.arguments[0]);
    cli_put_text(&cli, NULL, "out", cli.arguments[1]);
    cli_put_count(&cli, NULL, "rows", w.done);
    cli_put_count(&cli, NULL, "dim", w.dim);
    cli_put_text(&cli, NULL, "type", quire_type_name(w.out_type));
    cli_put_real(&cli, NULL, "seconds", (double)(clock_ns() - begin) / 1e9);
    return cli_finish(&cli, CLI_OK);
}
