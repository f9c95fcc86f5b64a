/*
 * cli.c - reading options, saying what is wrong with them, progress, and printing results.
 *
 * Options are "--name value" or "--name=value"; "--" ends them. A value is never taken from what looks like another
 * option, so that a forgotten value is noticed where it was forgotten.
 *
 * Signals only set a flag: the work stops at its next progress call, and whoever runs it removes what is unfinished;
 * the exit code is then 128 and the signal's number, as a shell has it: 130 after Ctrl-C. A second signal ends the
 * process at once and leaves what is unfinished, for a user who has had enough. What comes within SAME_NS of the first
 * is the same wish: `timeout` signals a process and its group. While a verb reads and has written nothing, the first
 * signal ends it, too (cli_may_end).
 *
 * The bar is redrawn at most ten times a second; the time left is what the present phase's rate so far promises. Where
 * a phase is one of several whose shares of the whole are known, the time left for all follows from them.
 */
#include "tools/cli/cli.h"
#include "io/clock.h"
#include "io/error.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH     24u
#define DRAW_EVERY_NS 100000000u
#define SAME_NS       200000000
#define HELP_COLUMN   26
#define TIME_BYTES    64u

enum when { WHEN_AUTO, WHEN_ALWAYS, WHEN_NEVER };

static const struct cli_choice whens[] = {{"auto", WHEN_AUTO}, {"always", WHEN_ALWAYS}, {"never", WHEN_NEVER}, {0}};
const struct cli_choice cli_metrics[] = {
    {"l2", QUIRE_METRIC_L2}, {"cosine", QUIRE_METRIC_COSINE}, {"ip", QUIRE_METRIC_IP}, {0}};
const struct cli_choice cli_engines[] = {
    {"auto", QUIRE_ENGINE_AUTO}, {"uring", QUIRE_ENGINE_URING}, {"threads", QUIRE_ENGINE_THREADS}, {0}};

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Digits and perhaps a fraction, then K, M, G or T, perhaps followed by B or iB. */
static bool parse_size(const char *text, uint64_t *out)
{
    static const char suffixes[] = "KMGT";
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    double value = strtod(text, &end);
    const char *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    if (suffix) {
        value = ldexp(value, 10 * (int)(suffix - suffixes + 1));
        end++;
        if (*end == 'i')
            end++;
    }
    if (*end == 'B')
        end++;
    if (*end || !(value < 0x1p63))
        return false;
    *out = (uint64_t)value;
    return true;
}

static bool parse_count(const char *text, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *end == 0;
}

/* 50M is fifty million: rows are counted, not stored. */
static bool parse_amount(const char *text, uint64_t *out)
{
    static const struct {
        char letter;
        double factor;
    } factors[] = {{'K', 1e3}, {'M', 1e6}, {'G', 1e9}};
    char *end;
    if (parse_count(text, out))
        return true;
    if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (toupper((unsigned char)*end) == factors[i].letter && end[1] == 0 && value * factors[i].factor < 0x1p63) {
            *out = (uint64_t)llround(value * factors[i].factor);
            return true;
        }
    return false;
}

static bool parse_real(const char *text, double *out)
{
    char *end;
    if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    *out = strtod(text, &end);
    return *end == 0 && isfinite(*out);
}

static bool parse_memory(const char *text, struct cli_memory *out)
{
    size_t length = strlen(text);
    char number[32];
    *out = (struct cli_memory){0};
    if (length == 0 || length > sizeof number || text[length - 1] != '%')
        return parse_size(text, &out->bytes);
    memcpy(number, text, length - 1);
    number[length - 1] = 0;
    return parse_real(number, &out->percent) && out->percent > 0;
}

uint64_t cli_memory_bytes(const struct cli_memory *memory, uint64_t raw_bytes)
{
    return memory->percent > 0 ? (uint64_t)(memory->percent / 100 * (double)raw_bytes) : memory->bytes;
}

static const char *join_choices(const struct cli_choice *choices, char *out, size_t capacity)
{
    size_t at = 0;
    out[0] = 0;
    for (const struct cli_choice *c = choices; c->name && at < capacity; c++)
        at += (size_t)snprintf(out + at, capacity - at, "%s%s", c == choices ? "" : "|", c->name);
    return out;
}

static bool in_range(const struct cli_option *option, uint64_t value)
{
    return value >= option->minimum && (!option->maximum || value <= option->maximum);
}

/* false: *wanted says what the value has to be. */
static bool set_number(const struct cli_option *option, const char *text, char *wanted, size_t capacity)
{
    uint64_t number = 0;
    bool size = option->kind == CLI_SIZE, is_auto = size && strcmp(text, "auto") == 0;
    bool read = size                         ? parse_size(text, &number)
                : option->kind == CLI_AMOUNT ? parse_amount(text, &number)
                                             : parse_count(text, &number);
    bool ok = is_auto || (read && in_range(option, number));
    if (ok)
        *(uint64_t *)option->value = number;
    else if (option->maximum)
        snprintf(wanted, capacity, "a %s from %llu to %llu", size ? "size" : "whole number",
                 (unsigned long long)option->minimum, (unsigned long long)option->maximum);
    else
        snprintf(wanted, capacity, "a %s of at least %llu", size ? "size" : "whole number",
                 (unsigned long long)option->minimum);
    return ok;
}

static bool set_choice(const struct cli_option *option, const char *text, char *wanted, size_t capacity)
{
    for (const struct cli_choice *c = option->choices; c->name; c++)
        if (strcmp(c->name, text) == 0) {
            *(int *)option->value = c->value;
            return true;
        }
    join_choices(option->choices, wanted, capacity);
    return false;
}

static bool set_real(const struct cli_option *option, const char *text, char *wanted, size_t capacity)
{
    double number;
    bool ok = parse_real(text, &number) && number > 0 && (!option->maximum || number <= (double)option->maximum);
    if (ok)
        *(double *)option->value = number;
    else
        snprintf(wanted, capacity, "a number above 0 and at most %llu", (unsigned long long)option->maximum);
    return ok;
}

static bool add_text(struct cli_texts *texts, const char *text, char *wanted, size_t capacity)
{
    snprintf(wanted, capacity, "something, and at most %u of them", CLI_TEXTS_MAX);
    if (*text == 0 || texts->n == CLI_TEXTS_MAX)
        return false;
    texts->text[texts->n++] = text;
    return true;
}

static bool set_value(const struct cli_option *option, const char *text, char *wanted, size_t capacity)
{
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)option->value = true;
        return true;
    case CLI_TEXT:
        snprintf(wanted, capacity, "something, not empty");
        *(const char **)option->value = text;
        return *text != 0;
    case CLI_TEXTS:
        return add_text(option->value, text, wanted, capacity);
    case CLI_MEMORY:
        snprintf(wanted, capacity, "a size such as 64M, or a percentage of the raw vectors such as 15%%");
        return parse_memory(text, option->value);
    case CLI_REAL:
        return set_real(option, text, wanted, capacity);
    case CLI_CHOICE:
        return set_choice(option, text, wanted, capacity);
    case CLI_COUNT:
    case CLI_AMOUNT:
    case CLI_SIZE:
        break;
    }
    return set_number(option, text, wanted, capacity);
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

static void print_default(const struct cli_option *option)
{
    if (option->kind == CLI_COUNT && *(const uint64_t *)option->value)
        printf(" (%llu)", (unsigned long long)*(const uint64_t *)option->value);
    if (option->kind == CLI_REAL && *(const double *)option->value > 0)
        printf(" (%g)", *(const double *)option->value);
    if (option->kind == CLI_TEXT && *(const char *const *)option->value)
        printf(" (%s)", *(const char *const *)option->value);
    const struct cli_choice *c = option->kind == CLI_CHOICE ? option->choices : NULL;
    for (; c && c->name; c++)
        if (c->value == *(const int *)option->value)
            printf(" (%s)", c->name);
}

static void print_option(const struct cli_option *option)
{
    char left[128], choices[96];
    const char *unit = option->unit;
    if (!unit && option->choices)
        unit = join_choices(option->choices, choices, sizeof choices);
    int n = snprintf(left, sizeof left, "  --%s%s%s", option->name, unit ? " " : "", unit ? unit : "");
    printf("%-*s", HELP_COLUMN, left);
    if (n >= HELP_COLUMN)
        printf("\n%*s", HELP_COLUMN, "");
    printf("%s", option->help);
    print_default(option);
    printf("%s\n", option->required ? "; required" : "");
}

static void print_help(const struct cli_verb *verb, const struct cli_option *common, size_t n_common)
{
    printf("usage: %s%s%s [options]\n\n%s\n\n", verb->name, *verb->arguments ? " " : "", verb->arguments,
           verb->summary);
    for (size_t i = 0; i < verb->n_options; i++)
        print_option(&verb->options[i]);
    for (size_t i = 0; i < n_common; i++)
        print_option(&common[i]);
    printf("\nSizes take K, M, G and T (powers of 1024).\n\nExamples\n%s", verb->examples);
}

/* ---- descriptions for programs ----------------------------------------------------------------------------------- */

/* --help --json says what --help says, from the same rows: manual pages and completion are made from it
 * (packaging/manual.py), and so a page cannot know an option that the program does not. */
static const char *const kinds[] = {
    [CLI_FLAG] = "flag",     [CLI_TEXT] = "text",     [CLI_TEXTS] = "texts",
    [CLI_COUNT] = "count",   [CLI_AMOUNT] = "amount", [CLI_SIZE] = "size",
    [CLI_MEMORY] = "memory", [CLI_REAL] = "real",     [CLI_CHOICE] = "choice",
};

static json_t *choices_of(const struct cli_option *option)
{
    json_t *names = json_array();
    for (const struct cli_choice *c = option->choices; c && c->name; c++)
        json_array_append_new(names, json_string(c->name));
    return names;
}

/* What the option is when it is not given; NULL: nothing that can be said. */
static json_t *default_of(const struct cli_option *option)
{
    switch (option->kind) {
    case CLI_TEXT:
        return *(const char *const *)option->value ? json_string(*(const char *const *)option->value) : NULL;
    case CLI_COUNT:
    case CLI_AMOUNT:
    case CLI_SIZE:
        return json_integer((json_int_t) * (const uint64_t *)option->value);
    case CLI_REAL:
        return *(const double *)option->value > 0 ? json_real(*(const double *)option->value) : NULL;
    case CLI_CHOICE:
        for (const struct cli_choice *c = option->choices; c->name; c++)
            if (c->value == *(const int *)option->value)
                return json_string(c->name);
        return NULL;
    case CLI_FLAG:
    case CLI_TEXTS:
    case CLI_MEMORY:
        break;
    }
    return NULL;
}

static json_t *option_of(const struct cli_option *option)
{
    json_t *row = json_pack("{s:s, s:s, s:s, s:b, s:b}", "name", option->name, "kind", kinds[option->kind], "help",
                            option->help, "required", option->required, "repeatable", option->kind == CLI_TEXTS);
    json_t *value = default_of(option);
    if (option->unit)
        json_object_set_new(row, "unit", json_string(option->unit));
    if (option->choices)
        json_object_set_new(row, "choices", choices_of(option));
    if (option->kind == CLI_COUNT || option->kind == CLI_AMOUNT || option->kind == CLI_SIZE)
        json_object_set_new(row, "minimum", json_integer((json_int_t)option->minimum));
    if (option->maximum)
        json_object_set_new(row, "maximum", json_integer((json_int_t)option->maximum));
    if (value)
        json_object_set_new(row, "default", value);
    return row;
}

static int print_whole(json_t *whole)
{
    bool ok = whole && json_dumpf(whole, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF && fflush(stdout) == 0;
    json_decref(whole);
    return ok ? CLI_OK : CLI_FAILED;
}

int cli_describe(const struct cli_verb *verb, const struct cli_option *common, size_t n_common)
{
    json_t *options = json_array();
    for (size_t i = 0; i < verb->n_options; i++)
        json_array_append_new(options, option_of(&verb->options[i]));
    for (size_t i = 0; i < n_common; i++)
        json_array_append_new(options, option_of(&common[i]));
    return print_whole(json_pack("{s:s, s:s, s:s, s:s, s:o, s:s}", "program", verb->name, "version", quire_version(),
                                 "summary", verb->summary, "arguments", verb->arguments, "options", options, "examples",
                                 verb->examples));
}

int cli_describe_words(const char *program, const struct cli_word *words, size_t n, const char *notes)
{
    json_t *verbs = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(verbs, json_pack("{s:s, s:s}", "name", words[i].name, "summary", words[i].summary));
    return print_whole(json_pack("{s:s, s:s, s:o, s:s}", "program", program, "version", quire_version(), "verbs", verbs,
                                 "notes", notes));
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

static const struct cli_option *find_option(const struct cli_option *options, size_t n, const char *name, size_t length)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

#define OPTIONS_MAX 64u

struct parsing {
    struct cli *cli;
    const struct cli_option *common;
    size_t n_common;
    int argc, at;
    char **argv;
    unsigned n_arguments;
    bool given[OPTIONS_MAX]; /* options of the verb */
};

/* argv[at] begins with "--". Returns 0 or CLI_USAGE. */
static int parse_option(struct parsing *p)
{
    const struct cli_verb *verb = p->cli->verb;
    const char *name = p->argv[p->at] + 2, *equals = strchr(name, '='), *text = equals ? equals + 1 : NULL;
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    char wanted[192] = "";
    const struct cli_option *option = find_option(verb->options, verb->n_options, name, length);
    if (option)
        p->given[option - verb->options] = true;
    else
        option = find_option(p->common, p->n_common, name, length);
    if (!option)
        return cli_mistake(p->cli, "there is no option --%.*s", (int)length, name);
    if (option->kind == CLI_FLAG && text)
        return cli_mistake(p->cli, "--%s takes no value", option->name);
    if (option->kind != CLI_FLAG && !text) {
        if (p->at + 1 >= p->argc || strncmp(p->argv[p->at + 1], "--", 2) == 0)
            return cli_mistake(p->cli, "--%s needs a value", option->name);
        text = p->argv[++p->at];
    }
    if (!set_value(option, text, wanted, sizeof wanted))
        return cli_mistake(p->cli, "--%s %s: it must be %s", option->name, *text ? text : "''", wanted);
    return 0;
}

static int check_complete(const struct parsing *p)
{
    const struct cli_verb *verb = p->cli->verb;
    if (p->n_arguments < verb->n_arguments)
        return cli_mistake(p->cli, "%s must be given", verb->arguments);
    for (size_t i = 0; i < verb->n_options; i++)
        if (verb->options[i].required && !p->given[i])
            return cli_mistake(p->cli, "--%s must be given", verb->options[i].name);
    return 0;
}

/* Up to the end, the first mistake, or --help. Returns 0 or CLI_USAGE. */
static int parse_words(struct parsing *p, const bool *help)
{
    bool options_end = false;
    int code = 0;
    for (; p->at < p->argc && code == 0 && !*help; p->at++) {
        const char *word = p->argv[p->at];
        if (!options_end && strcmp(word, "--") == 0)
            options_end = true;
        else if (!options_end && strncmp(word, "--", 2) == 0)
            code = parse_option(p);
        else if (p->n_arguments == p->cli->verb->n_arguments)
            code = cli_mistake(p->cli, "\"%s\" is one argument too many", word);
        else
            p->cli->arguments[p->n_arguments++] = word;
    }
    return code == 0 && !*help ? check_complete(p) : code;
}

bool cli_wants_json(int n, char *const *words)
{
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], "--json") == 0)
            return true;
    return false;
}

bool cli_parse(struct cli *cli, const struct cli_verb *verb, int argc, char **argv, int *code)
{
    bool help = false;
    int when = WHEN_AUTO;
    *cli = (struct cli){.verb = verb, .called_ns = clock_ns()};
    const struct cli_option common[] = {
        CLI_OPTION("json", CLI_FLAG, &cli->json, NULL, "print one JSON object"),
        CLI_OPTION("progress", CLI_CHOICE, &when, NULL, "bar on standard error", .choices = whens),
        CLI_OPTION("help", CLI_FLAG, &help, NULL, "this text; with --json as an object, for programs"),
    };
    struct parsing p = {
        .cli = cli, .common = common, .n_common = sizeof common / sizeof *common, .argc = argc, .argv = argv};
    *code = parse_words(&p, &help);
    if (help && cli_wants_json(argc, argv))
        *code = cli_describe(verb, common, p.n_common);
    else if (help)
        print_help(verb, common, p.n_common);
    cli->bar = when == WHEN_ALWAYS || (when == WHEN_AUTO && isatty(STDERR_FILENO));
    return *code == 0 && !help;
}

/* ---- signals and progress ---------------------------------------------------------------------------------------- */

static volatile sig_atomic_t first_signal; /* its number; 0: none came */
static volatile sig_atomic_t may_end;
static volatile time_t first_s; /* when it came; written and read by the handler alone, which blocks itself */
static volatile long first_ns;

static void end_by(int number)
{
    signal(number, SIG_DFL);
    raise(number); /* takes effect when the handler returns */
}

static void on_signal(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (first_signal == 0) {
        first_signal = number;
        first_s = now.tv_sec;
        first_ns = now.tv_nsec;
        if (may_end)
            end_by(number);
    } else if ((now.tv_sec - first_s) * 1000000000 + now.tv_nsec - first_ns > SAME_NS) {
        end_by(number);
    }
}

void cli_may_end(bool may)
{
    may_end = may;
}

void cli_catch_signals(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaddset(&action.sa_mask, caught[i]);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        if (sigaction(caught[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* nohup stays in force */
            sigaction(caught[i], &action, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

static bool interrupted(void)
{
    return first_signal != 0;
}

int cli_cancelled(struct quire_error *err)
{
    return error_set(err, QUIRE_ECANCELLED, "interrupted: nothing was left behind");
}

static void close_bar(struct cli *cli)
{
    if (cli->bar_open)
        fputs("\r\033[K", stderr);
    cli->bar_open = false;
}

static const char *short_number(double x, char out[16])
{
    static const char units[] = " kMGT";
    size_t unit = 0;
    while (x >= 9999.5 && unit + 2 < sizeof units) {
        x /= 1000;
        unit++;
    }
    snprintf(out, 16, unit ? "%.4g%c" : "%.4g", x, units[unit]);
    return out;
}

/* Minutes and seconds; with hours where there are any. */
static const char *short_time(double seconds, char out[TIME_BYTES])
{
    unsigned long s = seconds < 1e6 ? (unsigned long)seconds : 0;
    if (!(seconds < 1e6))
        snprintf(out, TIME_BYTES, "?");
    else if (s < 3600)
        snprintf(out, TIME_BYTES, "%lu:%02lu", s / 60, s % 60);
    else
        snprintf(out, TIME_BYTES, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    return out;
}

/* ", 1:23 in all" where the whole is known, or nothing. */
static const char *time_in_all(const struct cli *cli, double phase_s, uint64_t now, char out[TIME_BYTES + 16])
{
    char left[TIME_BYTES];
    double share = cli->work_done - cli->work_first;
    out[0] = 0;
    if (cli->work_ns && share > 0) {
        double all = (1 - cli->work_done) / share * (double)(now - cli->work_ns) / 1e9;
        /* both are estimates, and the whole takes no less than the phase */
        snprintf(out, TIME_BYTES + 16, ", %s in all", short_time(phase_s > all ? phase_s : all, left));
    }
    return out;
}

static void draw_bar(struct cli *cli, uint64_t done, uint64_t total, uint64_t now)
{
    char bar[BAR_WIDTH + 1], rate[16], count[16], left[TIME_BYTES], all[TIME_BYTES + 16];
    double seconds = (double)(now - cli->phase_ns) / 1e9, fraction = total ? (double)done / (double)total : 0;
    double per_second = seconds > 0 ? (double)done / seconds : 0;
    double phase_s = per_second > 0 && total ? (double)(total - done) / per_second : (double)NAN;
    unsigned full = (unsigned)(fraction * BAR_WIDTH);
    full = full > BAR_WIDTH ? BAR_WIDTH : full;
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', full);
    bar[BAR_WIDTH] = 0;
    short_number(per_second, rate);
    short_number((double)done, count);
    if (!total)
        fprintf(stderr, "\r%-12s %s  %s/s\033[K", cli->phase, count, rate);
    else if (done >= total)
        fprintf(stderr, "\r%-12s [%s] 100%%  %s/s  %.1f s\033[K\n", cli->phase, bar, rate, seconds);
    else
        fprintf(stderr, "\r%-12s [%s] %3.0f%%  %s/s  %s left%s\033[K", cli->phase, bar, 100 * fraction, rate,
                short_time(phase_s, left), time_in_all(cli, phase_s, now, all));
    cli->bar_open = !total || done < total;
    fflush(stderr);
}

int cli_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct cli *cli = context;
    if (interrupted())
        return 1;
    if (!cli->bar)
        return 0;
    uint64_t now = clock_ns();
    bool end = total && done >= total, fresh = !cli->phase || strcmp(cli->phase, phase) != 0;
    if (fresh) {
        close_bar(cli);
        cli->phase = phase;
        cli->phase_ns = cli->called_ns;
        cli->drawn_ns = 0;
    }
    cli->called_ns = now;
    if (end ? fresh || cli->bar_open : now - cli->drawn_ns >= DRAW_EVERY_NS) {
        draw_bar(cli, done, total, now);
        cli->drawn_ns = now;
    }
    return 0;
}

int cli_truth_progress(void *context, uint64_t done, uint64_t total)
{
    return cli_progress(context, "truth", done, total);
}

int cli_build_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct cli *cli = context;
    double share = quire_build_done(phase, done, total), begin = quire_build_done(phase, 0, total);
    if (!cli->work_ns) {
        cli->work_ns = cli->called_ns;
        cli->work_first = cli->work_done = 0;
    }
    /* phases that are left out, because an earlier run has finished them, are not work of this one */
    if (begin > cli->work_done && (!cli->phase || strcmp(cli->phase, phase) != 0))
        cli->work_first += begin - cli->work_done;
    if (share > cli->work_done)
        cli->work_done = share;
    return cli_progress(context, phase, done, total);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

void cli_put(struct cli *cli, json_t *object, const char *name, json_t *value)
{
    if (!cli->report)
        cli->report = json_object();
    if (!value || json_object_set_new(object ? object : cli->report, name, value) != 0)
        cli->report_failed = true;
}

void cli_put_count(struct cli *cli, json_t *object, const char *name, uint64_t value)
{
    cli_put(cli, object, name, json_integer((json_int_t)value));
}

void cli_put_real(struct cli *cli, json_t *object, const char *name, double value)
{
    cli_put(cli, object, name, isfinite(value) ? json_real(value) : json_null());
}

void cli_put_text(struct cli *cli, json_t *object, const char *name, const char *value)
{
    json_t *text = json_string(value);
    cli_put(cli, object, name, text ? text : json_string("(not UTF-8)"));
}

void cli_put_bool(struct cli *cli, json_t *object, const char *name, bool value)
{
    cli_put(cli, object, name, json_boolean(value));
}

json_t *cli_put_row(struct cli *cli, json_t *object, const char *array)
{
    json_t *rows = json_object_get(object ? object : cli->report, array), *row = json_object();
    if (!rows)
        cli_put(cli, object, array, rows = json_array());
    if (!row || json_array_append_new(rows, row) != 0)
        cli->report_failed = true;
    return row;
}

static const char *show_value(const json_t *value, char *out, size_t capacity)
{
    if (json_is_string(value))
        return *json_string_value(value) ? json_string_value(value) : "-";
    if (json_is_integer(value))
        snprintf(out, capacity, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out, capacity, "%.6g", json_real_value(value));
    else
        snprintf(out, capacity, "%s", json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
    return out;
}

#define CELL_BYTES 32

static size_t column_width(json_t *rows, const char *name)
{
    size_t width = strlen(name), i;
    json_t *row;
    char cell[CELL_BYTES];
    json_array_foreach(rows, i, row)
    {
        size_t bytes = strlen(show_value(json_object_get(row, name), cell, sizeof cell));
        width = bytes > width ? bytes : width;
    }
    return width;
}

static void show_table(const char *title, json_t *rows)
{
    json_t *row, *first = json_array_get(rows, 0), *value;
    const char *name;
    char cell[CELL_BYTES];
    size_t i;
    printf("\n%s\n", title);
    json_object_foreach(first, name, value) printf("  %*s", (int)column_width(rows, name), name);
    printf("\n");
    json_array_foreach(rows, i, row)
    {
        json_object_foreach(row, name, value)
            printf("  %*s", (int)column_width(rows, name), show_value(value, cell, sizeof cell));
        printf("\n");
    }
}

static size_t name_width(json_t *object, const char *prefix)
{
    size_t width = 0;
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        size_t bytes =
            json_is_object(value) ? name_width(value, name) : strlen(name) + (prefix ? strlen(prefix) + 1 : 0);
        if (!json_is_array(value) && bytes > width)
            width = bytes;
    }
    return width;
}

static void show_object(json_t *object, const char *prefix, size_t width)
{
    const char *name;
    json_t *value;
    char cell[CELL_BYTES], label[128];
    json_object_foreach(object, name, value)
    {
        snprintf(label, sizeof label, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", name);
        if (json_is_object(value))
            show_object(value, name, width);
        else if (!json_is_array(value))
            printf("%-*s  %s\n", (int)width, label, show_value(value, cell, sizeof cell));
    }
    json_object_foreach(object, name, value) if (json_is_array(value)) show_table(name, value);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

int cli_finish(struct cli *cli, int code)
{
    close_bar(cli);
    bool ok = cli->report && !cli->report_failed;
    if (!ok)
        fprintf(stderr, "%s: no memory for the results\n", cli->verb->name);
    else if (cli->json)
        ok = json_dumpf(cli->report, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && putchar('\n') != EOF;
    else
        show_object(cli->report, NULL, name_width(cli->report, NULL));
    json_decref(cli->report);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "%s: cannot write to standard output: %s\n", cli->verb->name, strerror(errno));
        ok = false;
    }
    return ok ? code : CLI_FAILED;
}

int cli_fail(struct cli *cli, int rc, const struct quire_error *err)
{
    close_bar(cli);
    const char *sentence = err && err->code == rc && err->message[0] ? err->message : quire_error_text(rc);
    fprintf(stderr, "%s: %s\n", cli->verb->name, sentence);
    json_decref(cli->report);
    cli->report = NULL;
    int code = rc == QUIRE_ECANCELLED && interrupted() ? CLI_SIGNAL + first_signal : CLI_FAILED;
    if (cli->json) {
        cli_put_text(cli, NULL, "error", quire_error_name(rc));
        cli_put_text(cli, NULL, "message", sentence);
        return cli_finish(cli, code);
    }
    return code;
}

int cli_end(struct cli *cli, int rc, const struct quire_error *err)
{
    return rc < 0 ? cli_fail(cli, rc, err) : cli_finish(cli, CLI_OK);
}

int cli_mistake(struct cli *cli, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: ", cli->verb->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments); /* NOLINT(clang-analyzer-valist.Uninitialized): it was started above */
    va_end(arguments);
    fprintf(stderr, " (see %s --help)\n", cli->verb->name);
    json_decref(cli->report);
    cli->report = NULL;
    return CLI_USAGE;
}

void cli_note(struct cli *cli, const char *format, ...)
{
    va_list arguments;
    close_bar(cli);
    fprintf(stderr, "%s: ", cli->verb->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments); /* NOLINT(clang-analyzer-valist.Uninitialized): it was started above */
    va_end(arguments);
    fputc('\n', stderr);
}
