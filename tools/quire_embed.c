/*
 * quire_embed.c - `quire embed fit` and `quire embed apply`: from lines of text to vectors and keys.
 *
 * apply goes over the text twice: once to count the lines that have a vector (an fbin file begins with that number),
 * once to write them. Lines without any known word have no vector; the first one ends the run, unless --skip-empty
 * leaves them out and counts them. Keys go to a file of their own, one per line, in the order of the rows: what
 * `quire build --keys` reads. Vectors and keys appear together or not at all.
 *
 * apply --query writes one vector to standard output, as numbers or as bytes, for shell scripts.
 */
#include "datasets/embed.h"
#include "datasets/vecfile.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/cli/cli.h"
#include "tools/quire_verbs.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMN_MAX     100000u
#define PROGRESS_EVERY 1024u

/* ---- fit --------------------------------------------------------------------------------------------------------- */

struct fit_work {
    struct cli *cli;
    const char *text, *out;
    uint64_t column, dim, seed, threads;
    double seconds;
};

static int read_lines(struct fit_work *w, struct embed_fit *fit, struct quire_error *err)
{
    struct embed_lines *lines = NULL;
    struct embed_line line;
    uint64_t done, total;
    int rc = embed_lines_open(w->text, (unsigned)w->column, 0, false, &lines, err);
    while (rc == 0 && (rc = embed_lines_next(lines, &line, err)) == 1) {
        rc = embed_fit_line(fit, line.text, line.text_bytes, err);
        if (rc == 0 && line.number % PROGRESS_EVERY == 0) {
            embed_lines_place(lines, &done, &total);
            rc = cli_progress(w->cli, "read", done, total) ? cli_cancelled(err) : 0;
        }
    }
    embed_lines_close(lines);
    return rc;
}

static int fit(struct fit_work *w, struct embed_info *info, struct quire_error *err)
{
    struct embed_fit_options options;
    struct embed_fit *fit = NULL;
    struct embed_model *model = NULL;
    embed_fit_options_init(&options);
    options.dim = (uint32_t)w->dim;
    options.seed = w->seed;
    options.threads = (unsigned)w->threads;
    options.progress = cli_progress;
    options.context = w->cli;
    int rc = cli_refuse_existing(w->out, err);
    if (rc == 0)
        rc = embed_fit_create(&options, &fit, err);
    if (rc == 0)
        rc = read_lines(w, fit, err);
    if (rc == 0)
        rc = embed_fit_finish(fit, &model, err);
    if (rc == 0)
        rc = embed_model_save(model, w->out, err);
    if (rc == 0)
        embed_model_info(model, info);
    if (rc == QUIRE_ECANCELLED)
        cli_cancelled(err);
    embed_model_free(model);
    embed_fit_destroy(fit);
    return rc;
}

static const char fit_summary[] = "Learns a lexical model from lines of text (hashed words and n-grams, TF-IDF, SVD).";
static const char fit_examples[] = "  quire embed fit --text corpus.tsv --column 2 --dim 256 --out words.model\n"
                                   "  quire embed fit --text corpus.txt --out words.model\n";

static int embed_fit_verb(int argc, char **argv)
{
    struct cli cli;
    struct fit_work w = {.cli = &cli, .dim = EMBED_DIM_DEFAULT};
    struct embed_info info = {0};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("text", CLI_TEXT, &w.text, "FILE", "lines of text; \"-\" is standard input", CLI_REQUIRED),
        CLI_OPTION("column", CLI_COUNT, &w.column, "N", "tab-separated column with the text, from 1; 0: the whole line",
                   CLI_RANGE(0, COLUMN_MAX)),
        CLI_OPTION("dim", CLI_COUNT, &w.dim, "N", "dimensions of the vectors", CLI_RANGE(1, EMBED_DIM_MAX)),
        CLI_OPTION("seed", CLI_COUNT, &w.seed, "N", "same text and seed: same model"),
        CLI_THREADS(&w.threads),
        CLI_OPTION("out", CLI_TEXT, &w.out, "MODEL", "the new model", CLI_REQUIRED),
    };
    const struct cli_verb verb = {"quire embed fit", fit_summary, "", 0, options, sizeof options / sizeof *options,
                                  fit_examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    uint64_t begin = clock_ns();
    int rc = fit(&w, &info, &err);
    if (rc < 0)
        return cli_fail(&cli, rc, &err);
    cli_put_text(&cli, NULL, "model", w.out);
    cli_put_count(&cli, NULL, "dim", info.dim);
    cli_put_count(&cli, NULL, "features", info.features);
    cli_put_count(&cli, NULL, "lines", info.lines);
    cli_put_count(&cli, NULL, "lines_in_svd", info.rows);
    cli_put_count(&cli, NULL, "model_bytes", info.model_bytes);
    cli_put_real(&cli, NULL, "seconds", (double)(clock_ns() - begin) / 1e9);
    return cli_finish(&cli, CLI_OK);
}

/* ---- apply ------------------------------------------------------------------------------------------------------- */

struct apply_work {
    struct cli *cli;
    const char *model_path, *text, *out, *keys_out, *query;
    uint64_t column, key_column, threads;
    bool skip_empty, raw;
    struct embed_model *model;
    uint32_t dim;
    struct vecwriter *writer;
    FILE *keys;
    char *keys_temporary; /* NULL: no such file */
    uint64_t rows, skipped;
    struct quire_error *err;
};

/* How many lines have a vector, when all are to be embedded. */
static int count_known(struct apply_work *w, struct embed_lines *lines, uint64_t *known)
{
    struct embed_line line;
    uint64_t done, total;
    int rc;
    *known = 0;
    while ((rc = embed_lines_next(lines, &line, w->err)) == 1) {
        rc = embed_known(w->model, line.text, line.text_bytes, w->err);
        if (rc < 0)
            return rc;
        *known += rc == 1;
        embed_lines_place(lines, &done, &total);
        if (line.number % PROGRESS_EVERY == 0 && cli_progress(w->cli, "count", done, total))
            return cli_cancelled(w->err);
    }
    return rc;
}

static int write_key(struct apply_work *w, const struct embed_line *line)
{
    if (line->key_bytes == 0)
        return error_set(w->err, QUIRE_EINVALID, "%s line %llu has an empty key", w->text,
                         (unsigned long long)line->number);
    if (fwrite(line->key, 1, line->key_bytes, w->keys) != line->key_bytes || fputc('\n', w->keys) == EOF)
        return error_set_errno(w->err, errno, "cannot write", w->keys_temporary);
    return 0;
}

static int take_line(void *context, const struct embed_line *line, const float *vector)
{
    struct apply_work *w = context;
    int rc = w->keys ? write_key(w, line) : 0;
    return rc == 0 ? vecwriter_write(w->writer, vector, 1, w->err) : rc;
}

static int run_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct apply_work *w = context;
    return cli_progress(w->cli, phase, done, total);
}

static int open_keys(struct apply_work *w)
{
    if (asprintf(&w->keys_temporary, "%s.tmp-%d", w->keys_out, (int)getpid()) < 0) {
        w->keys_temporary = NULL;
        return error_set(w->err, QUIRE_ENOMEM, "no memory for a name");
    }
    w->keys = fopen(w->keys_temporary, "wxe");
    return w->keys ? 0 : error_set_errno(w->err, errno, "cannot create", w->keys_temporary);
}

/* Keys first under their name, then the vectors; when these fail, the keys go too. */
static int publish(struct apply_work *w)
{
    if (w->keys) {
        bool ok = fflush(w->keys) == 0 && fsync(fileno(w->keys)) == 0;
        int failed = errno;
        ok = fclose(w->keys) == 0 && ok;
        w->keys = NULL;
        if (!ok)
            return error_set_errno(w->err, failed, "cannot write", w->keys_temporary);
        if (rename(w->keys_temporary, w->keys_out) != 0)
            return error_set_errno(w->err, errno, "cannot rename", w->keys_temporary);
        free(w->keys_temporary);
        w->keys_temporary = NULL;
    }
    struct vecwriter *writer = w->writer;
    w->writer = NULL;
    int rc = vecwriter_finish(writer, w->err);
    if (rc < 0 && w->keys_out)
        unlink(w->keys_out);
    return rc;
}

static void abandon(struct apply_work *w)
{
    if (w->writer)
        vecwriter_abort(w->writer);
    if (w->keys)
        fclose(w->keys);
    if (w->keys_temporary)
        unlink(w->keys_temporary);
    free(w->keys_temporary);
}

static int apply_text(struct apply_work *w)
{
    struct embed_lines *lines = NULL;
    uint64_t known = 0;
    int rc = cli_refuse_existing(w->out, w->err);
    if (rc == 0 && w->keys_out)
        rc = cli_refuse_existing(w->keys_out, w->err);
    if (rc == 0)
        rc = embed_lines_open(w->text, (unsigned)w->column, (unsigned)w->key_column, true, &lines, w->err);
    if (rc == 0)
        rc = count_known(w, lines, &known);
    if (rc == 0 && known == 0)
        rc = error_set(w->err, QUIRE_EZEROVEC, "%s has no line with a word that the model knows", w->text);
    if (rc == 0)
        rc = embed_lines_rewind(lines, w->err);
    if (rc == 0)
        rc = vecwriter_open(w->out, VECFILE_AUTO, known, w->dim, QUIRE_TYPE_F32, &w->writer, w->err);
    if (rc == 0 && w->keys_out)
        rc = open_keys(w);
    if (rc == 0) {
        struct embed_run run = {(unsigned)w->threads, w->skip_empty, take_line, run_progress, w};
        rc = embed_lines_apply(w->model, lines, &run, &w->rows, &w->skipped, w->err);
    }
    if (rc == 0)
        rc = publish(w);
    if (rc == QUIRE_ECANCELLED)
        cli_cancelled(w->err);
    abandon(w);
    embed_lines_close(lines);
    return rc;
}

static int print_vector(const struct apply_work *w, const float *vector)
{
    uint8_t bytes[4];
    for (uint32_t i = 0; i < w->dim; i++) {
        bytes_store_f32(bytes, vector[i]);
        if (w->raw)
            fwrite(bytes, 1, sizeof bytes, stdout);
        else
            printf("%s%.9g", i ? " " : "", (double)vector[i]);
    }
    if (!w->raw)
        putchar('\n');
    if (fflush(stdout) != 0 || ferror(stdout))
        return error_set_errno(w->err, errno, "cannot write to", "standard output");
    return 0;
}

static int apply_query(struct apply_work *w)
{
    float *vector = malloc(sizeof *vector * w->dim);
    if (!vector)
        return error_set(w->err, QUIRE_ENOMEM, "no memory for a vector");
    int rc = embed_apply(w->model, w->query, strlen(w->query), vector, w->err);
    if (rc == 0 && !w->cli->json)
        rc = print_vector(w, vector);
    json_t *numbers = rc == 0 && w->cli->json ? json_array() : NULL;
    for (uint32_t i = 0; numbers && i < w->dim; i++)
        w->cli->report_failed |= json_array_append_new(numbers, json_real((double)vector[i])) != 0;
    if (rc == 0 && w->cli->json) {
        cli_put_count(w->cli, NULL, "dim", w->dim);
        cli_put(w->cli, NULL, "vector", numbers);
    }
    free(vector);
    return rc;
}

static int check_apply(struct apply_work *w)
{
    if (!w->query == !w->text)
        return cli_mistake(w->cli, "give either --text or --query");
    if (w->text && !w->out)
        return cli_mistake(w->cli, "--out must be given with --text");
    if (w->query && (w->out || w->keys_out))
        return cli_mistake(w->cli, "--query prints its vector: --out and --keys-out belong to --text");
    if (w->raw && (w->text || w->cli->json))
        return cli_mistake(w->cli, "--raw belongs to --query without --json");
    if (w->key_column && !w->keys_out)
        return cli_mistake(w->cli, "--key-column needs --keys-out, the file that the keys go to");
    if (w->keys_out && !w->key_column) {
        if (!w->column)
            return cli_mistake(w->cli,
                               "--keys-out needs --key-column, or --column where keys stand in the first column");
        w->key_column = 1;
    }
    if (w->out && strcmp(w->out, "-") == 0)
        return cli_mistake(w->cli, "--out must be a file");
    return 0;
}

static void report(const struct apply_work *w, double seconds)
{
    cli_put_text(w->cli, NULL, "out", w->out);
    if (w->keys_out)
        cli_put_text(w->cli, NULL, "keys", w->keys_out);
    cli_put_count(w->cli, NULL, "rows", w->rows);
    cli_put_count(w->cli, NULL, "skipped", w->skipped);
    cli_put_count(w->cli, NULL, "dim", w->dim);
    cli_put_real(w->cli, NULL, "seconds", seconds);
    if (w->skipped)
        cli_note(w->cli, "%llu lines have no word that the model knows and were left out",
                 (unsigned long long)w->skipped);
}

static const char apply_summary[] =
    "Turns lines of text into unit vectors (compare them by cosine), or one text into a vector on standard output.\n"
    "A line without any known word has no vector: an error, or left out with --skip-empty.";
static const char apply_examples[] =
    "  quire embed apply --model words.model --text corpus.tsv --column 2 --key-column 1 \\\n"
    "      --out corpus.fbin --keys-out corpus.keys\n"
    "  quire embed apply --model words.model --query \"how do I reset my password\"\n"
    "  quire embed apply --model words.model --query \"reset password\" --raw > query.f32\n";

static int embed_apply_verb(int argc, char **argv)
{
    struct cli cli;
    struct quire_error err = {0};
    struct apply_work w = {.cli = &cli, .err = &err};
    struct embed_info info;
    const struct cli_option options[] = {
        CLI_OPTION("model", CLI_TEXT, &w.model_path, "MODEL", "made by quire embed fit", CLI_REQUIRED),
        CLI_OPTION("text", CLI_TEXT, &w.text, "FILE", "lines of text; \"-\" is standard input"),
        CLI_OPTION("column", CLI_COUNT, &w.column, "N", "tab-separated column with the text, from 1; 0: the whole line",
                   CLI_RANGE(0, COLUMN_MAX)),
        CLI_OPTION("key-column", CLI_COUNT, &w.key_column, "K", "column with the key, from 1 (1 with --keys-out)",
                   CLI_RANGE(1, COLUMN_MAX)),
        CLI_OPTION("out", CLI_TEXT, &w.out, "FILE", "vectors: .fbin .fvecs .npy"),
        CLI_OPTION("keys-out", CLI_TEXT, &w.keys_out, "FILE", "keys, one per line"),
        CLI_OPTION("skip-empty", CLI_FLAG, &w.skip_empty, NULL, "leave lines without a vector out, and count them"),
        CLI_OPTION("query", CLI_TEXT, &w.query, "TEXT", "print the vector of this text"),
        CLI_OPTION("raw", CLI_FLAG, &w.raw, NULL, "with --query: little-endian f32 bytes"),
        CLI_THREADS(&w.threads),
    };
    const struct cli_verb verb = {"quire embed apply", apply_summary, "", 0, options, sizeof options / sizeof *options,
                                  apply_examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if ((code = check_apply(&w)) != 0)
        return code;
    uint64_t begin = clock_ns();
    int rc = embed_model_open(w.model_path, &w.model, &err);
    if (rc == 0) {
        embed_model_info(w.model, &info);
        w.dim = info.dim;
        rc = w.query ? apply_query(&w) : apply_text(&w);
    }
    embed_model_free(w.model);
    if (rc < 0)
        return cli_fail(&cli, rc, &err);
    if (w.query && !cli.json)
        return CLI_OK;
    if (w.text)
        report(&w, (double)(clock_ns() - begin) / 1e9);
    return cli_finish(&cli, CLI_OK);
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

int quire_embed(int argc, char **argv)
{
    const char *verb = argc > 0 ? argv[0] : "";
    if (strcmp(verb, "fit") == 0)
        return embed_fit_verb(argc - 1, argv + 1);
    if (strcmp(verb, "apply") == 0)
        return embed_apply_verb(argc - 1, argv + 1);
    bool help = strcmp(verb, "--help") == 0;
    if (help && cli_wants_json(argc, argv)) {
        static const struct cli_word words[] = {{"fit", fit_summary}, {"apply", apply_summary}};
        return cli_describe_words("quire embed", words, sizeof words / sizeof *words, "");
    }
    fprintf(help ? stdout : stderr,
            "usage: quire embed fit --text FILE --out MODEL [options]\n"
            "       quire embed apply --model MODEL --text FILE --out FILE [options]\n"
            "       quire embed apply --model MODEL --query TEXT\n\n"
            "quire embed fit --help and quire embed apply --help explain them, with examples.\n");
    return help ? CLI_OK : CLI_USAGE;
}
