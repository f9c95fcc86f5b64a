/*
 * cli_describe.c - `--help --json`: the table of options of a verb, or the verbs of a program, as one JSON object.
 *
 * It says what --help says, from the same rows, for programs: manual pages and shell completion are made from it
 * (packaging/manual.py), and so a page cannot know an option that the program does not.
 */
#include "tools/cli.h"
#include <stdio.h>

static const char *const kinds[] = {
    [CLI_FLAG] = "flag", [CLI_TEXT] = "text",     [CLI_TEXTS] = "texts", [CLI_COUNT] = "count",
    [CLI_SIZE] = "size", [CLI_MEMORY] = "memory", [CLI_REAL] = "real",   [CLI_CHOICE] = "choice",
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
    if (option->kind == CLI_COUNT || option->kind == CLI_SIZE)
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
