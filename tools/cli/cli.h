/*
 * cli.h - what the verbs of `quire` share: one table of options per verb, progress, output, sizes.
 *
 * A row of the table is the only place that knows an option: it feeds the parser, --help and the sentence for a wrong
 * value. --json, --progress and --help belong to every verb. Results are put into one JSON object, which is printed as
 * it is with --json and as aligned lines and tables without; so both always say the same.
 *
 * Standard output carries results only; errors, notes and progress go to standard error.
 */
#ifndef QUIRE_TOOLS_CLI_H
#define QUIRE_TOOLS_CLI_H

#include "quire.h"
#include <jansson.h>

/* CLI_SIGNAL + number: interrupted by that signal, 130 for Ctrl-C. */
enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_DAMAGED = 3, CLI_SIGNAL = 128 };

/* ---- options ----------------------------------------------------------------------------------------------------- */

enum cli_kind {
    CLI_FLAG,   /* bool */
    CLI_TEXT,   /* const char * */
    CLI_TEXTS,  /* struct cli_texts: may be given several times */
    CLI_COUNT,  /* uint64_t, minimum..maximum */
    CLI_AMOUNT, /* uint64_t, minimum..maximum, suffixes K M G (powers of 1000) */
    CLI_SIZE,   /* uint64_t bytes, minimum..maximum, suffixes K M G T (powers of 1024); "auto" is 0 */
    CLI_MEMORY, /* struct cli_memory: a size or a percentage */
    CLI_REAL,   /* double, above 0, at most maximum */
    CLI_CHOICE, /* int: the value of one of choices */
};

struct cli_choice {
    const char *name; /* NULL ends the list */
    int value;
};

struct cli_option {
    const char *name; /* without the dashes */
    void *value;      /* of the kind's type; what it holds before parsing is the default */
    const char *unit; /* "N", "FILE": how help calls the value; NULL: the choices' names */
    const char *help;
    uint64_t minimum, maximum; /* maximum 0: no limit */
    const struct cli_choice *choices;
    enum cli_kind kind;
    bool required;
};

/* A row; what follows help names further fields. */
#define CLI_OPTION(name_, kind_, value_, unit_, help_, ...)                                                            \
    {                                                                                                                  \
        .name = name_, .kind = kind_, .value = value_, .unit = unit_, .help = help_, __VA_ARGS__                       \
    }
#define CLI_RANGE(low, high) .minimum = (low), .maximum = (high)
#define CLI_REQUIRED         .required = true
#define CLI_THREADS(value_)                                                                                            \
    CLI_OPTION("threads", CLI_COUNT, value_, "N", "0: as many as there are processors", CLI_RANGE(0, CLI_THREADS_MAX))
#define CLI_THREADS_MAX 256u

struct cli_memory {
    uint64_t bytes;
    double percent; /* of the raw vectors; 0: bytes counts */
};

#define CLI_TEXTS_MAX 256u

struct cli_texts {
    const char *text[CLI_TEXTS_MAX];
    unsigned n;
};

#define CLI_ARGUMENTS_MAX 2u

struct cli_verb {
    const char *name;      /* "quire build", "quire embed fit" */
    const char *summary;   /* a sentence or more */
    const char *arguments; /* "DIR", "IN OUT"; "" */
    unsigned n_arguments;
    const struct cli_option *options;
    size_t n_options;
    const char *examples; /* lines */
};

struct cli {
    const struct cli_verb *verb;
    const char *arguments[CLI_ARGUMENTS_MAX];
    bool json;
    /* progress */
    bool bar;      /* drawn at all */
    bool bar_open; /* a line without its end stands on the terminal */
    const char *phase;
    uint64_t phase_ns, drawn_ns, called_ns; /* when the phase began, was last drawn; the last call */
    uint64_t work_ns;                       /* when the first phase of a whole began; 0: not yet */
    double work_first;                      /* share of the whole that needed no work */
    double work_done;                       /* share that is done now */
    /* results */
    json_t *report;
    bool report_failed; /* no memory for a part of it */
};

/* Reads the command line of a verb (argv[0] is its first argument). true: go on; false: *code is the exit code, for
 * help or a mistake, and everything has been said. The caller ends it with cli_finish, cli_fail or cli_mistake. */
bool cli_parse(struct cli *cli, const struct cli_verb *verb, int argc, char **argv, int *code);
uint64_t cli_memory_bytes(const struct cli_memory *memory, uint64_t raw_bytes);

/* ---- descriptions for programs ----------------------------------------------------------------------------------- */

/* A word that a program takes first, and what it does. */
struct cli_word {
    const char *name, *summary;
};

/* What --help says, as one JSON object on standard output. Returns CLI_OK or CLI_FAILED. */
int cli_describe(const struct cli_verb *verb, const struct cli_option *common, size_t n_common);
int cli_describe_words(const char *program, const struct cli_word *words, size_t n, const char *notes);
/* Whether a program is asked for that: --json among n words. */
bool cli_wants_json(int n, char *const *words);

extern const struct cli_choice cli_metrics[], cli_engines[];

/* ---- ends -------------------------------------------------------------------------------------------------------- */

/* Prints the report and returns `code`, or CLI_FAILED when standard output takes no more. */
int cli_finish(struct cli *cli, int code);
/* "quire build: sentence" on standard error, with --json also as an object on standard output. Returns CLI_FAILED,
 * or after a signal that stopped the work CLI_SIGNAL and its number. */
int cli_fail(struct cli *cli, int rc, const struct quire_error *err);
/* cli_fail where rc < 0, cli_finish with CLI_OK otherwise. */
int cli_end(struct cli *cli, int rc, const struct quire_error *err);
/* A mistake in the use of options that the table cannot see. Returns CLI_USAGE. */
int cli_mistake(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A remark on standard error. */
void cli_note(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Into `object`, or into the report itself where it is NULL. Without memory the report is marked as failed. */
void cli_put(struct cli *cli, json_t *object, const char *name, json_t *value); /* takes the reference */
void cli_put_count(struct cli *cli, json_t *object, const char *name, uint64_t value);
void cli_put_real(struct cli *cli, json_t *object, const char *name, double value); /* null unless finite */
void cli_put_text(struct cli *cli, json_t *object, const char *name, const char *value);
void cli_put_bool(struct cli *cli, json_t *object, const char *name, bool value);
/* Whether it is a data folder (store.h), by its LOCK or its segments; and what was found in one. */
bool cli_is_data_folder(const char *path);
/* Whether it has the meta file of an index. */
bool cli_is_index_folder(const char *path);
struct store_verify_report;
void cli_put_store_report(struct cli *cli, const struct store_verify_report *report);
/* A new object at the end of an array, made when it is not there, of `object` or (NULL) of the report. */
json_t *cli_put_row(struct cli *cli, json_t *object, const char *array);

/* ---- progress and interruption ----------------------------------------------------------------------------------- */

/* SIGINT, SIGTERM and SIGHUP set a flag; the second one ends the process. Writing beyond a file size limit becomes an
 * error. */
void cli_catch_signals(void);
/* Whether the first signal may end the process at once: while something long is read that nobody can stop, and nothing
 * is written that would be left. */
void cli_may_end(bool may);
/* A progress callback of the library; context is the struct cli. 1 when interrupted. */
int cli_progress(void *context, const char *phase, uint64_t done, uint64_t total);
/* The same for what computes ground truth, which has no phases. */
int cli_truth_progress(void *context, uint64_t done, uint64_t total);
/* The same for quire_build, with the time that is left for all its phases. */
int cli_build_progress(void *context, const char *phase, uint64_t done, uint64_t total);
/* QUIRE_ECANCELLED with a sentence. */
int cli_cancelled(struct quire_error *err);

/* ---- files and vectors (cli_files.c) --------------------------------------------------------------------------- */

/* QUIRE_EEXISTS when something has this name. "-" is standard output and never there. */
int cli_refuse_existing(const char *path, struct quire_error *err);

/* A text file in memory, cut at the ends of lines; "\r\n" and a last line without an end are fine. */
struct cli_lines {
    char *text;
    uint64_t n;
    const void **start;
    uint32_t *bytes;
};
void cli_lines_free(struct cli_lines *lines);

/* One line per row of `base`, or QUIRE_EINVALID; what: "one key". */
int cli_lines_load_rows(const char *path, const char *what, const char *base, uint64_t rows, struct cli_lines *out,
                        struct quire_error *err);
/* Attributes of rows: each line is a JSON object, or empty, whose start becomes NULL. */
int cli_attributes_load(struct cli *cli, const char *path, const char *base, uint64_t rows, struct cli_lines *out,
                        struct quire_error *err);
/* Tenants of rows: each line names separated by single spaces, or is empty, whose start becomes NULL. Lines become
 * terminated texts. */
int cli_tenants_load(const char *path, const char *base, uint64_t rows, struct cli_lines *out, struct quire_error *err);

/* Declared columns from "NAME:TYPE" or "NAME:TYPE:indexed"; freed by cli_columns_free. */
struct cli_columns {
    struct quire_column *columns;
    uint32_t n;
};
int cli_columns_parse(const struct cli_texts *texts, struct cli_columns *out, struct quire_error *err);
void cli_columns_free(struct cli_columns *columns);

/* Which rows of a file of vectors are meant: by attributes and tenants of files beside it. NULL, or none: all. */
struct cli_where {
    const char *filter, *attributes_path, *keys_path, *tenants_path;
    struct cli_texts columns, tenants;
};
/* The options that fill it. */
#define CLI_WHERE_OPTIONS(where_)                                                                                      \
    CLI_OPTION("filter", CLI_TEXT, &(where_)->filter, "EXPRESSION", "only rows whose --attrs match"),                  \
        CLI_OPTION("attrs", CLI_TEXT, &(where_)->attributes_path, "FILE", "as quire build has them, for --filter"),    \
        CLI_OPTION("attr", CLI_TEXTS, &(where_)->columns, "NAME:TYPE[:indexed]", "as quire build has them"),           \
        CLI_OPTION("keys", CLI_TEXT, &(where_)->keys_path, "FILE", "as quire build has them, for filters by key"),     \
        CLI_OPTION("tenant", CLI_TEXTS, &(where_)->tenants, "NAME",                                                    \
                   "only rows granted to it by --tenants; again for more: to any of them"),                            \
        CLI_OPTION("tenants", CLI_TEXT, &(where_)->tenants_path, "FILE", "as quire build has them, for --tenant")
/* The rows, ascending; *out is freed by free, NULL where nothing is asked for. base: the file, of so many rows. */
int cli_where_rows(struct cli *cli, const struct cli_where *where, const char *base, uint64_t rows, uint32_t **out,
                   uint64_t *n, struct quire_error *err);

/* rows * dim * element size of an index, from its meta file only. */
int cli_index_raw_bytes(const char *path, uint64_t *out, struct quire_error *err);

#endif
