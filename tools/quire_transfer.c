/*
 * quire_transfer.c - `quire import` and `quire export`: rows from and to running servers, files and index folders.
 *
 * Both are the loop of records.h between two ends; import is for what comes into a server or out of another store,
 * export for what leaves a server or an index folder. A set of a server keeps its name unless --as gives another.
 *
 * Into a file: whole or not at all. Into a server: elements that are there are replaced, so an import that was
 * interrupted is run again; with --resume they are left as they are, and not read from the source.
 */
#include "datasets/vecfile.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/cli/cli_records.h"
#include "tools/quire_verbs.h"
#include "tools/records/redis_link.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum quantization { QUANT_AUTO, QUANT_NONE, QUANT_Q8, QUANT_BIN };
static const struct cli_choice quantizations[] = {
    {"auto", QUANT_AUTO}, {"none", QUANT_NONE}, {"q8", QUANT_Q8}, {"bin", QUANT_BIN}, {0}};
static const struct cli_choice folder_formats[] = {
    {"jsonl", RECORDS_JSONL}, {"hdf5", RECORDS_HDF5}, {"parquet", RECORDS_PARQUET}, {0}};
static const struct cli_choice metrics[] = {{"auto", RECORDS_METRIC_UNKNOWN},
                                            {"l2", QUIRE_METRIC_L2},
                                            {"cosine", QUIRE_METRIC_COSINE},
                                            {"ip", QUIRE_METRIC_IP},
                                            {0}};

struct transfer {
    struct cli *cli;
    const char *from, *into;
    struct cli_texts sets;
    const char *as, *index, *prefix;
    struct records_names names;
    struct records_sides sides;
    int quantization, metric, format, compression;
    struct redis_tls_files tls;
    bool no_tenants, resume;
    uint64_t limit, rows;
};

static bool is_folder(const char *path)
{
    struct stat st;
    size_t n = strlen(path);
    return (n && path[n - 1] == '/') || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

static int open_source(const struct transfer *t, const char *set, struct records_source **out, struct quire_error *err)
{
    if (redis_is_url(t->from)) {
        if (t->index || t->prefix)
            return redis_documents_open(t->from, &t->tls, t->index, t->prefix, t->names.vector, out, err);
        return redis_set_open(t->from, &t->tls, set, !t->no_tenants, out, err);
    }
    if (is_folder(t->from))
        return cli_is_data_folder(t->from)
                   ? error_set(err, QUIRE_EUNSUPPORTED,
                               "%s is a data folder: start a server on it (quire-server --dir %s) and export from "
                               "redis://127.0.0.1:7000",
                               t->from, t->from)
                   : index_source_open(t->from, out, err);
    struct records_from from = {.path = t->from, .names = t->names, .sides = t->sides};
    return records_open(&from, out, err);
}

static const char *vadd_word(const struct transfer *t, const struct records_source *source)
{
    static const char *const words[] = {[QUANT_NONE] = "NOQUANT", [QUANT_Q8] = "Q8", [QUANT_BIN] = "BIN"};
    if (t->quantization != QUANT_AUTO)
        return words[t->quantization];
    return redis_is_url(t->from) && !t->index && !t->prefix ? redis_set_quantization(source) : "NOQUANT";
}

/* DIR/NAME.EXTENSION, where a name's odd bytes are %XX. */
static char *file_in_folder(const struct transfer *t, const char *name)
{
    static const char *const extensions[] = {
        [RECORDS_JSONL] = "jsonl", [RECORDS_HDF5] = "hdf5", [RECORDS_PARQUET] = "parquet"};
    size_t n = strlen(name), folder = strlen(t->into);
    char *path = malloc(folder + 3 * n + 16), *at;
    if (!path)
        return NULL;
    at = path + sprintf(path, "%s%s", t->into, t->into[folder - 1] == '/' ? "" : "/");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (strchr("-_:", c) && c) ||
            (c == '.' && i))
            *at++ = (char)c;
        else
            at += sprintf(at, "%%%02X", c);
    }
    sprintf(at, ".%s", extensions[t->format]);
    return path;
}

static int open_sink(const struct transfer *t, const struct records_source *source, const char *name,
                     struct records_into *into, struct records_sink **out, struct quire_error *err)
{
    into->rows = t->limit && t->limit < source->rows ? t->limit : source->rows;
    into->dim = source->dim;
    into->may_have = source->may_have;
    into->metric = t->metric != RECORDS_METRIC_UNKNOWN ? t->metric : source->metric;
    into->compression = (enum records_compression)t->compression;
    into->type = source->type;
    if (redis_is_url(t->into)) {
        into->type = QUIRE_TYPE_F32;
        into->path = t->into;
        return redis_set_create(t->into, &t->tls, name, vadd_word(t, source), into, out, err);
    }
    into->format = strcmp(into->path, "-") == 0 ? (enum records_format)t->format : records_format_from_path(into->path);
    into->vecfile_format = (int)vecfile_format_from_path(into->path);
    into->type = cli_records_type(into->format, into->vecfile_format, source->type);
    if (into->format == RECORDS_VECTORS)
        into->sides = t->sides;
    const char *const paths[] = {into->path, into->sides.keys, into->sides.attributes, into->sides.tenants};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof paths / sizeof *paths; i++)
        if (paths[i])
            rc = cli_refuse_existing(paths[i], err);
    return rc == 0 ? records_create(into, out, err) : rc;
}

static bool to_output(const struct transfer *t)
{
    return strcmp(t->into, "-") == 0;
}

static void report(struct transfer *t, const char *name, const char *to, const struct records_copy *copy,
                   const struct records_source *source, uint64_t begin)
{
    json_t *row = cli_put_row(t->cli, NULL, "moved");
    cli_put_text(t->cli, row, "name", name);
    cli_put_text(t->cli, row, "to", to);
    cli_put_count(t->cli, row, "rows", copy->rows);
    if (t->resume)
        cli_put_count(t->cli, row, "already_there", source->left_out);
    cli_put_count(t->cli, row, "dim", source->dim);
    cli_put_count(t->cli, row, "attributes", copy->attributes);
    cli_put_count(t->cli, row, "tenants", copy->tenants);
    cli_put_real(t->cli, row, "seconds", (double)(clock_ns() - begin) / 1e9);
}

/* One set, index or file. `name` is what the server calls it; where it goes has --as, or the same name. */
static int move(struct transfer *t, const char *name, struct quire_error *err)
{
    struct records_copy copy = {.limit = t->limit, .resume = t->resume, .progress = cli_progress, .context = t->cli};
    struct records_into into = {.path = t->into};
    struct records_source *source = NULL;
    struct records_sink *sink = NULL;
    const char *as = t->as ? t->as : name;
    char *path = NULL;
    uint64_t begin = clock_ns();
    int rc = open_source(t, name, &source, err);
    if (rc < 0 || !source)
        return rc;
    if (!redis_is_url(t->into) && is_folder(t->into)) {
        path = file_in_folder(t, as);
        into.path = path;
        if (!path)
            rc = error_set(err, QUIRE_ENOMEM, "no memory for a path");
        else if (mkdir(t->into, 0777) != 0 && errno != EEXIST)
            rc = error_set_errno(err, errno, "cannot make the folder", t->into);
    }
    if (rc == 0)
        rc = open_sink(t, source, as, &into, &sink, err);
    if (rc == 0 && sink->makes_set && into.metric == RECORDS_METRIC_UNKNOWN)
        cli_note(t->cli, "%s does not say its metric: the set %s gets cosine; --metric makes it l2 or ip", source->name,
                 as);
    if (rc == 0)
        rc = records_copy(&copy, source, sink, err);
    if (rc < 0 && sink && sink->rows && redis_is_url(t->into))
        cli_note(t->cli, "%llu rows are in %s: the same command with --resume goes on after them",
                 (unsigned long long)sink->rows, as);
    if (rc == 0) {
        rc = records_finish(sink, err);
        sink = NULL;
    }
    records_abort(sink);
    if (rc == 0) {
        if (!to_output(t))
            report(t, name, redis_is_url(t->into) ? as : into.path, &copy, source, begin);
        if (source->is_approximate)
            cli_note(t->cli, "the index keeps 8-bit codes: its vectors are approximations of those it was built from");
        cli_records_note_left(t->cli, &copy, &into);
        t->rows += copy.rows;
    }
    records_close(source);
    free(path);
    return rc;
}

static int move_sets(struct transfer *t, struct quire_error *err)
{
    struct redis_names names = {0};
    struct redis_link link = {0};
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < t->sets.n; i++)
        rc = move(t, t->sets.text[i], err);
    if (t->sets.n)
        return rc;
    rc = redis_link_open(t->from, &t->tls, &link, err);
    if (rc == 0)
        rc = redis_scan(&link, "*", "vectorset", &names, err);
    if (rc == 0 && names.n == 0)
        rc = error_set(err, QUIRE_ENOTFOUND,
                       "%s has no vector sets: --index names an index of FT.CREATE, --prefix hashes", link.name);
    if (rc == 0 && names.n > 1 && !redis_is_url(t->into) && !is_folder(t->into))
        rc = error_set(err, QUIRE_EINVALID, "%s has %zu vector sets: choose with --set, or write into a folder (%s/)",
                       link.name, names.n, t->into);
    for (size_t i = 0; rc == 0 && i < names.n; i++)
        rc = strlen(names.name[i]) == names.bytes[i]
                 ? move(t, names.name[i], err)
                 : error_set(err, QUIRE_EUNSUPPORTED, "the name of a set holds a zero byte: rename it");
    redis_names_free(&names);
    redis_link_close(&link);
    return rc;
}

/* The name of a set that a file becomes: the file's, without folder and extension. */
static char *name_of_file(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *copy = strndup(path, n);
    if (!copy)
        return NULL;
    char *slash = strrchr(copy, '/'), *name = slash ? slash + 1 : copy, *dot = strrchr(name, '.');
    if (dot && dot > name)
        *dot = 0;
    memmove(copy, name, strlen(name) + 1);
    return copy;
}

static int transfer(struct transfer *t, struct quire_error *err)
{
    if (redis_is_url(t->from) && !t->index && !t->prefix)
        return move_sets(t, err);
    char *name = t->index    ? strdup(t->index)
                 : t->prefix ? strndup(t->prefix, strcspn(t->prefix, ":"))
                             : name_of_file(t->from);
    int rc = name ? move(t, name, err) : error_set(err, QUIRE_ENOMEM, "no memory for a name");
    free(name);
    return rc;
}

#define TRANSFER_OPTIONS(t)                                                                                            \
    CLI_OPTION("set", CLI_TEXTS, &(t).sets, "NAME", "a vector set of the server; again for more; none: all of them"),  \
        CLI_OPTION("as", CLI_TEXT, &(t).as, "NAME", "what the set is called where it goes"),                           \
        CLI_OPTION("index", CLI_TEXT, &(t).index, "NAME", "the hashes or documents of an index of FT.CREATE instead"), \
        CLI_OPTION("prefix", CLI_TEXT, &(t).prefix, "TEXT",                                                            \
                   "hashes whose keys begin so instead; --vector-field: floats of 4 bytes"),                           \
        CLI_OPTION("vector-field", CLI_TEXT, &(t).names.vector, "NAME",                                                \
                   "what a hash or a file calls the vector (quire convert --help)"),                                   \
        CLI_OPTION("key-field", CLI_TEXT, &(t).names.key, "NAME", "the same of the key"),                              \
        CLI_OPTION("attrs-field", CLI_TEXT, &(t).names.attributes, "NAME", "the same of the attributes"),              \
        CLI_OPTION("tenants-field", CLI_TEXT, &(t).names.tenants, "NAME", "the same of the tenants"),                  \
        CLI_OPTION("keys", CLI_TEXT, &(t).sides.keys, "FILE", "lines beside a file of vectors, as quire convert has"), \
        CLI_OPTION("attrs", CLI_TEXT, &(t).sides.attributes, "FILE", "the same"),                                      \
        CLI_OPTION("tenants", CLI_TEXT, &(t).sides.tenants, "FILE", "the same"),                                       \
        CLI_OPTION("no-tenants", CLI_FLAG, &(t).no_tenants, NULL, "do not ask a server who its elements belong to"),   \
        CLI_OPTION("metric", CLI_CHOICE, &(t).metric, NULL, "of the set that is made; auto: the source's, or cosine",  \
                   .choices = metrics),                                                                                \
        CLI_OPTION("quantization", CLI_CHOICE, &(t).quantization, NULL,                                                \
                   "how the set that is made keeps numbers; auto: as the source's set, or none",                       \
                   .choices = quantizations),                                                                          \
        CLI_OPTION("format", CLI_CHOICE, &(t).format, NULL, "of files in a folder", .choices = folder_formats),        \
        CLI_OPTION("compression", CLI_CHOICE, &(t).compression, NULL, "of parquet",                                    \
                   .choices = cli_records_compressions),                                                               \
        CLI_OPTION("resume", CLI_FLAG, &(t).resume, NULL,                                                              \
                   "from server to server: elements that the set has already are left as they are, and not read"),     \
        CLI_OPTION("tls-ca-cert-file", CLI_TEXT, &(t).tls.authorities, "FILE",                                         \
                   "authorities that rediss:// trusts; none: the system's"),                                           \
        CLI_OPTION("tls-cert-file", CLI_TEXT, &(t).tls.certificate, "FILE", "one's own certificate for rediss://"),    \
        CLI_OPTION("tls-key-file", CLI_TEXT, &(t).tls.key, "FILE", "its key; none: in the certificate's file"),        \
        CLI_OPTION("limit", CLI_COUNT, &(t).limit, "N", "first so many rows of each only; 0: all")

static int run(const char *name, const char *summary, const char *examples, int argc, char **argv)
{
    struct cli cli;
    struct transfer t = {.cli = &cli, .metric = RECORDS_METRIC_UNKNOWN, .format = RECORDS_JSONL};
    struct quire_error err = {0};
    const struct cli_option options[] = {TRANSFER_OPTIONS(t)};
    const struct cli_verb verb = {name, summary, "FROM TO", 2, options, sizeof options / sizeof *options, examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    t.from = cli.arguments[0];
    t.into = cli.arguments[1];
    if (!redis_is_url(t.from) && (t.sets.n || t.index || t.prefix))
        return cli_mistake(&cli, "--set, --index and --prefix choose from a server, and %s is none", t.from);
    if ((t.sets.n != 0) + (t.index != NULL) + (t.prefix != NULL) > 1)
        return cli_mistake(&cli, "give one of --set, --index and --prefix");
    if (t.prefix && !t.names.vector)
        return cli_mistake(&cli, "--prefix needs --vector-field: which field of a hash holds the vector");
    if (t.as && redis_is_url(t.from) && !t.index && !t.prefix && t.sets.n != 1)
        return cli_mistake(&cli, "--as renames one set: choose it with --set");
    if (t.resume && !(redis_is_url(t.from) && redis_is_url(t.into)))
        return cli_mistake(&cli,
                           "--resume goes on from server to server: a file is read from its beginning, and written "
                           "whole or not at all");
    if ((t.tls.authorities || t.tls.certificate || t.tls.key) && !redis_is_tls(t.from) && !redis_is_tls(t.into))
        return cli_mistake(&cli, "--tls-... are for rediss:// (TLS), and neither %s nor %s is", t.from, t.into);
    if (to_output(&t) && cli.json)
        return cli_mistake(&cli, "--json and rows cannot both go to standard output");
    if (!to_output(&t))
        signal(SIGPIPE, SIG_IGN); /* a server that is gone is an error with a sentence */
    int rc = transfer(&t, &err);
    if (rc == 0 && to_output(&t))
        return CLI_OK;
    if (rc == 0)
        cli_put_count(&cli, NULL, "rows", t.rows);
    return cli_end(&cli, rc, &err);
}

int quire_import(int argc, char **argv)
{
    static const char summary[] =
        "Brings rows with keys, attributes and tenants from a server that speaks Redis's protocol, or from a file "
        "that\n"
        "`quire convert` reads, into a running quire-server, a file, or a folder of files (ends with /). Elements that "
        "are\n"
        "there are replaced; --resume leaves them, and goes on where an import was interrupted.\n"
        "redis://[user:password@]HOST[:PORT][/DB], rediss:// over TLS; the password may be in REDISCLI_AUTH.";
    static const char examples[] =
        "  quire import redis://old:6379 redis://127.0.0.1:7000\n"
        "  quire import redis://old:6379/2 redis://127.0.0.1:7000 --set films --as cinema\n"
        "  quire import rediss://old:6380 redis://127.0.0.1:7000 --tls-ca-cert-file ca.crt --resume\n"
        "  quire import redis://old:6379 redis://127.0.0.1:7000 --index idx:docs --as docs\n"
        "  quire import redis://old:6379 docs.jsonl --prefix doc: --vector-field embedding\n"
        "  quire import points.jsonl redis://127.0.0.1:7000 --as points --metric l2\n"
        "  quire import index.faiss redis://127.0.0.1:7000 --as faces\n";
    return run("quire import", summary, examples, argc, argv);
}

int quire_export(int argc, char **argv)
{
    static const char summary[] =
        "Writes vector sets of a running server, or the rows of an index folder, into a file (.jsonl .parquet .hdf5, "
        "or\n"
        "vectors with --keys, --attrs, --tenants beside them), or into a folder of files (ends with /), one per set.";
    static const char examples[] = "  quire export redis://127.0.0.1:7000 backup/\n"
                                   "  quire export redis://127.0.0.1:7000 films.parquet --set films\n"
                                   "  quire export redis://127.0.0.1:7000 - --set films | head -1\n"
                                   "  quire export index-folder rows.jsonl\n";
    return run("quire export", summary, examples, argc, argv);
}
