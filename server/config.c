/*
 * config.c - settings from a table (config.def).
 *
 * A file holds one setting per line: a name, blanks, a value. Lines that begin with '#' and empty ones are skipped; a
 * value may stand in double quotes. On the command line "--name" takes all words up to the next "--name", joined by
 * blanks, as redis-server does. A later value replaces an earlier one, except for lists, which grow.
 *
 * Nothing is guessed: an unknown name, a number out of range or a size with an unknown unit ends the start with a
 * sentence that names file and line. A setting that is silently ignored is worse than a server that does not start.
 */
#include "server/config.h"
#include "io/error.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum kind { KIND_STRING, KIND_LIST, KIND_NUMBER, KIND_BYTES, KIND_BOOL, KIND_CHOICE, KIND_FIXED };

struct setting {
    enum kind kind;
    const char *name;
    size_t place; /* in struct config */
    uint64_t number, minimum, maximum;
    const char *text; /* default, choices or fixed value */
    const char *help;
};

#define AT(field) offsetof(struct config, field)
static const struct setting settings[] = {
#define STRING(field, name, value, help)              {KIND_STRING, name, AT(field), 0, 0, 0, value, help},
#define LIST(field, name, help)                       {KIND_LIST, name, AT(field), 0, 0, 0, "", help},
#define NUMBER(field, name, value, least, most, help) {KIND_NUMBER, name, AT(field), value, least, most, NULL, help},
#define BYTES(field, name, value, least, most, help)  {KIND_BYTES, name, AT(field), value, least, most, NULL, help},
#define BOOL(field, name, value, help)                {KIND_BOOL, name, AT(field), value, 0, 1, NULL, help},
#define CHOICE(field, name, value, choices, help)     {KIND_CHOICE, name, AT(field), value, 0, 0, choices, help},
#define FIXED(name, value, help)                      {KIND_FIXED, name, 0, 0, 0, 0, value, help},
#include "server/config.def"
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

/* The one answer of a FIXED setting; "appendonly" has one with a data folder and another without. */
static const char *fixed_text(const struct config *config, const struct setting *s)
{
    return strcmp(s->name, "appendonly") == 0 && config->dir && config->dir[0] == 0 ? "no" : s->text;
}

static char **text_of(const struct config *config, const struct setting *s)
{
    return (char **)(void *)((char *)(uintptr_t)config + s->place);
}

static uint64_t *number_of(const struct config *config, const struct setting *s)
{
    return (uint64_t *)(void *)((char *)(uintptr_t)config + s->place);
}

static bool *flag_of(const struct config *config, const struct setting *s)
{
    return (bool *)((char *)(uintptr_t)config + s->place);
}

int config_init(struct config *config, struct quire_error *err)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (s->kind == KIND_STRING || s->kind == KIND_LIST) {
            *text_of(config, s) = strdup(s->text);
            if (!*text_of(config, s)) {
                config_fini(config);
                return error_set(err, QUIRE_ENOMEM, "no memory for the settings");
            }
        } else if (s->kind == KIND_BOOL) {
            *flag_of(config, s) = s->number != 0;
        } else if (s->kind != KIND_FIXED) {
            *number_of(config, s) = s->number;
        }
    }
    return 0;
}

void config_fini(struct config *config)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (settings[i].kind == KIND_STRING || settings[i].kind == KIND_LIST)
            free(*text_of(config, &settings[i]));
    memset(config, 0, sizeof *config);
}

static const struct setting *find(const char *name)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strcasecmp(settings[i].name, name) == 0)
            return &settings[i];
    return NULL;
}

static int set_text(struct config *config, const struct setting *s, const char *value, struct quire_error *err)
{
    char **place = text_of(config, s), *text;
    size_t old = s->kind == KIND_LIST ? strlen(*place) : 0, bytes = strlen(value);
    if (strpbrk(value, "\r\n"))
        return error_set(err, QUIRE_EINVALID, "%s: a value may not hold a line end", s->name);
    text = malloc(old + bytes + 2);
    if (!text)
        return error_set(err, QUIRE_ENOMEM, "no memory for %s", s->name);
    memcpy(text, *place, old);
    if (old)
        text[old++] = '\n';
    memcpy(text + old, value, bytes + 1);
    free(*place);
    *place = text;
    return 0;
}

/* The factor of a unit, 0 where it is unknown. */
static uint64_t unit_factor(const char *unit)
{
    static const struct {
        const char *unit;
        uint64_t factor;
    } units[] = {{"", 1},        {"b", 1},         {"k", 1000},       {"kb", 1u << 10},
                 {"m", 1000000}, {"mb", 1u << 20}, {"g", 1000000000}, {"gb", 1u << 30}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(units[i].unit, unit) == 0)
            return units[i].factor;
    return 0;
}

static int set_number(struct config *config, const struct setting *s, const char *value, struct quire_error *err)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    uint64_t factor = s->kind == KIND_BYTES ? unit_factor(end) : *end == 0;
    if (!isdigit((unsigned char)value[0]) || factor == 0)
        return error_set(err, QUIRE_EINVALID, "%s: '%.64s' is not a %s", s->name, value,
                         s->kind == KIND_BYTES ? "size (such as 1048576, 512kb, 64mb, 2gb)" : "whole number");
    if (errno == ERANGE || __builtin_mul_overflow(number, factor, &number) || number < s->minimum ||
        number > s->maximum)
        return error_set(err, QUIRE_ERANGE, "%s: %.64s is out of range: %" PRIu64 " to %" PRIu64, s->name, value,
                         s->minimum, s->maximum);
    *number_of(config, s) = number;
    return 0;
}

static int set_flag(struct config *config, const struct setting *s, const char *value, struct quire_error *err)
{
    bool yes = strcasecmp(value, "yes") == 0;
    if (!yes && strcasecmp(value, "no") != 0)
        return error_set(err, QUIRE_EINVALID, "%s: '%.64s' is neither yes nor no", s->name, value);
    *flag_of(config, s) = yes;
    return 0;
}

/* The word at place `index` of "a|b|c": its start and length; NULL behind the last. */
static const char *choice_at(const char *choices, uint64_t index, size_t *bytes)
{
    for (; index > 0; index--) {
        choices = strchr(choices, '|');
        if (!choices)
            return NULL;
        choices++;
    }
    *bytes = strcspn(choices, "|");
    return choices;
}

static int set_choice(struct config *config, const struct setting *s, const char *value, struct quire_error *err)
{
    const char *word;
    size_t bytes;
    for (uint64_t i = 0; (word = choice_at(s->text, i, &bytes)); i++)
        if (bytes == strlen(value) && strncasecmp(word, value, bytes) == 0) {
            *number_of(config, s) = i;
            return 0;
        }
    return error_set(err, QUIRE_EINVALID, "%s: '%.64s' is not one of %s", s->name, value, s->text);
}

int config_set(struct config *config, const char *name, const char *value, struct quire_error *err)
{
    const struct setting *s = find(name);
    if (!s)
        return error_set(err, QUIRE_ENOTFOUND, "unknown setting '%.64s'; quire-server --help lists them", name);
    switch (s->kind) {
    case KIND_STRING:
    case KIND_LIST:
        return set_text(config, s, value, err);
    case KIND_NUMBER:
    case KIND_BYTES:
        return set_number(config, s, value, err);
    case KIND_BOOL:
        return set_flag(config, s, value, err);
    case KIND_CHOICE:
        return set_choice(config, s, value, err);
    case KIND_FIXED:
        break;
    }
    const char *fixed = fixed_text(config, s);
    return strcasecmp(fixed, value) == 0
               ? 0
               : error_set(err, QUIRE_EUNSUPPORTED, "%s: can only be '%s' (%s)", s->name, fixed, s->help);
}

/* Puts file and line before what went wrong. */
static int locate(struct quire_error *err, int rc, const char *path, unsigned line)
{
    struct quire_error inner = *err;
    return error_set(err, rc, "%s, line %u: %.300s", path, line, inner.message);
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t bytes = strlen(text);
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1]))
        text[--bytes] = 0;
    if (bytes >= 2 && text[0] == '"' && text[bytes - 1] == '"') {
        text[bytes - 1] = 0;
        text++;
    }
    return text;
}

static int parse_line(struct config *config, char *line, struct quire_error *err)
{
    char *name = trim(line);
    if (name[0] == 0 || name[0] == '#')
        return 0;
    size_t bytes = strcspn(name, " \t");
    char *value = name + bytes;
    if (*value)
        *value++ = 0;
    return config_set(config, name, trim(value), err);
}

static int parse_file(struct config *config, const char *path, struct quire_error *err)
{
    struct quire_error inner = {0};
    char *line = NULL;
    size_t room = 0;
    int rc = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set_errno(err, errno, "open", path);
    for (unsigned number = 1; rc == 0 && getline(&line, &room, file) >= 0; number++) {
        rc = parse_line(config, line, &inner);
        if (rc < 0 && err) {
            *err = inner;
            locate(err, rc, path, number);
        }
    }
    if (rc == 0 && ferror(file))
        rc = error_set_errno(err, errno, "read", path);
    free(line);
    fclose(file);
    return rc;
}

/* "--name" and the words that follow it; *at stands behind them afterwards. */
static int parse_option(struct config *config, int n, char *const *arguments, int *at, struct quire_error *err)
{
    char value[4096] = "";
    size_t used = 0;
    const char *name = arguments[(*at)++];
    if (strncmp(name, "--", 2) != 0 || name[2] == 0)
        return error_set(err, QUIRE_EINVALID, "'%.64s' is not an option: options begin with --", name);
    int words = 0;
    for (; *at < n && (strncmp(arguments[*at], "--", 2) != 0 || words == 0); (*at)++, words++) {
        int more = snprintf(value + used, sizeof value - used, "%s%s", words ? " " : "", arguments[*at]);
        if (more < 0 || (size_t)more >= sizeof value - used)
            return error_set(err, QUIRE_ELIMIT, "%s: the value is longer than %zu bytes", name, sizeof value - 1);
        used += (size_t)more;
    }
    if (words == 0)
        return error_set(err, QUIRE_EINVALID, "%.64s needs a value", name);
    return config_set(config, name + 2, value, err);
}

int config_parse(struct config *config, int n_arguments, char *const *arguments, struct quire_error *err)
{
    int rc = 0, at = 0;
    if (n_arguments > 0 && strncmp(arguments[0], "--", 2) != 0)
        rc = parse_file(config, arguments[at++], err);
    while (rc == 0 && at < n_arguments)
        rc = parse_option(config, n_arguments, arguments, &at, err);
    return rc;
}

void config_each(const struct config *config,
                 void (*visit)(void *context, const char *name, const char *value, const char *help), void *context)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        char text[64];
        const char *value = text;
        size_t bytes = 0;
        if (s->kind == KIND_STRING || s->kind == KIND_LIST)
            value = *text_of(config, s);
        else if (s->kind == KIND_BOOL)
            value = *flag_of(config, s) ? "yes" : "no";
        else if (s->kind == KIND_FIXED)
            value = fixed_text(config, s);
        else if (s->kind == KIND_CHOICE) {
            const char *word = choice_at(s->text, *number_of(config, s), &bytes);
            snprintf(text, sizeof text, "%.*s", (int)bytes, word);
        } else
            snprintf(text, sizeof text, "%" PRIu64, *number_of(config, s));
        visit(context, s->name, value, s->help);
    }
}
