/*
 * category.c - settings of a category, parsed and printed by the rows of category.def.
 *
 * Words come from clients and from the log, so that nothing is trusted: a word is at most WORD_BYTES long, a number is
 * digits with at most a point and an exponent (no nan, no infinity, no hexadecimal), and everything is applied to a
 * copy that replaces the settings only when all of it, and what it makes together with the settings that were not
 * named, is right. A setting that is silently ignored or clamped would be found out much later, by wrong answers.
 *
 * A similarity above 1, or a share above 1, is the mistake of somebody who thinks in distances or percentages; such an
 * error says what is meant.
 *
 * Numbers are printed with as many digits as it takes to read the same number again (15 to 17, Steele and White 1990),
 * so that what the log holds is what was in force.
 */
#include "cache/policy/category.h"
#include "cache/guard/guard.h"
#include "io/error.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define WORD_BYTES 64u /* with the 0 at its end: no number, choice or scope key is longer */

/* What a number is, for those who gave a number of another kind. */
#define HINT_SIMILARITY "a similarity (1: the same direction), no distance and no percentage"
#define HINT_SHARE      "a share: 2 per cent are 0.02"
#define HINT_PERCENT    "per cent"

enum kind {
    KIND_CHOICE,
    KIND_DECIMAL,
    KIND_WHOLE,
    KIND_SMALL,
    KIND_BYTES,
    KIND_SWITCH,
    KIND_GUARDS,
    KIND_KEYS,
    KIND_LOADMAX
};

struct row {
    const char *word;
    enum kind kind;
    size_t place; /* of the field */
    double initial, least, most;
    const char *text; /* choices of a choice, hint of a decimal */
};

#define AT(field)                                   offsetof(struct category_settings, field)
#define CHOICE(field, word, initial, choices, help) {word, KIND_CHOICE, AT(field), initial, 0, 0, choices},
#define DECIMAL(field, word, initial, least, most, hint, help)                                                         \
    {word, KIND_DECIMAL, AT(field), initial, least, most, hint},
#define WHOLE(field, word, initial, least, most, help) {word, KIND_WHOLE, AT(field), initial, least, most, NULL},
#define SMALL(field, word, initial, least, most, help) {word, KIND_SMALL, AT(field), initial, least, most, NULL},
#define BYTES(field, word, initial, least, most, help) {word, KIND_BYTES, AT(field), initial, least, most, NULL},
#define SWITCH(field, word, initial, help)             {word, KIND_SWITCH, AT(field), initial, 0, 1, NULL},
#define GUARDS(field, word, help)                      {word, KIND_GUARDS, AT(field), GUARD_ALL, 0, 0, NULL},
#define KEYS(field, word, help)                        {word, KIND_KEYS, AT(field), 0, 0, 0, NULL},
#define LOADMAX(field, word, factor_most, help)        {word, KIND_LOADMAX, AT(field), 0, 0, factor_most, NULL},
static const struct row rows[] = {
#include "cache/policy/category.def"
};
#define N_ROWS (sizeof rows / sizeof *rows)

/* The words of one command, and what has been made of them so far. */
struct parse {
    const struct quire_bytes *words;
    uint32_t n, next;
    uint64_t given; /* bit per row */
    struct category_settings settings;
    struct quire_error *err;
};

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static void *field_of(struct category_settings *settings, const struct row *row)
{
    return (char *)settings + row->place;
}

/* Of all kinds that are whole numbers. Enumerations are unsigned ints to this compiler, as the ABI has it. */
static uint64_t whole_of(const struct category_settings *settings, const struct row *row)
{
    const void *field = (const char *)settings + row->place;
    if (row->kind == KIND_WHOLE || row->kind == KIND_BYTES)
        return *(const uint64_t *)field;
    if (row->kind == KIND_SWITCH)
        return *(const bool *)field;
    return *(const unsigned *)field;
}

static void put_whole(struct category_settings *settings, const struct row *row, uint64_t number)
{
    void *field = field_of(settings, row);
    if (row->kind == KIND_WHOLE || row->kind == KIND_BYTES)
        *(uint64_t *)field = number;
    else if (row->kind == KIND_SWITCH)
        *(bool *)field = number != 0;
    else
        *(unsigned *)field = (unsigned)number;
}

void category_defaults(struct category_settings *settings)
{
    memset(settings, 0, sizeof *settings);
    for (const struct row *row = rows; row < rows + N_ROWS; row++) {
        if (row->kind == KIND_DECIMAL)
            *(double *)field_of(settings, row) = row->initial;
        else if (row->kind != KIND_KEYS && row->kind != KIND_LOADMAX)
            put_whole(settings, row, (uint64_t)row->initial);
    }
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* A word as a string; false where it is empty, too long or holds a 0. */
static bool word_text(struct quire_bytes word, char text[WORD_BYTES])
{
    text[0] = 0;
    if (word.n_bytes == 0 || word.n_bytes >= WORD_BYTES || memchr(word.data, 0, word.n_bytes))
        return false;
    memcpy(text, word.data, word.n_bytes);
    text[word.n_bytes] = 0;
    return true;
}

/* The beginning of a word for a message: what could break a line of a reply or a log is shown as '?'. */
static const char *shown(struct quire_bytes word, char text[WORD_BYTES])
{
    size_t n = word.n_bytes < WORD_BYTES - 1 ? word.n_bytes : WORD_BYTES - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = ((const unsigned char *)word.data)[i];
        text[i] = (char)(c < ' ' || c == 127 ? '?' : c);
    }
    text[n] = 0;
    return text;
}

static const struct row *find_row(struct quire_bytes word)
{
    for (const struct row *row = rows; row < rows + N_ROWS; row++)
        if (strlen(row->word) == word.n_bytes && strncasecmp(row->word, word.data, word.n_bytes) == 0)
            return row;
    return NULL;
}

static bool is_given(const struct parse *p, const char *word)
{
    return p->given >> (find_row(text_of(word)) - rows) & 1;
}

static bool has_value(const struct parse *p)
{
    return p->next < p->n && !find_row(p->words[p->next]);
}

static int need_value(const struct parse *p, const struct row *row)
{
    if (has_value(p))
        return 0;
    return error_set(p->err, QUIRE_EINVALID, "%s: %s is missing: give it behind the setting's name", row->word,
                     row->kind == KIND_LOADMAX ? "one of its two values, limit and factor," : "its value");
}

/* Whether the text is digits with at most a sign, a point and an exponent, all of it; leaves the number in *out. */
static bool decimal_text(const char *text, double *out)
{
    char *end;
    const char *digits = text + (text[0] == '-');
    if (!isdigit((unsigned char)digits[digits[0] == '.']) || text[strspn(text, "-+.0123456789eE")])
        return false;
    *out = strtod(text, &end) + 0.0; /* no -0 */
    return *end == 0;
}

static int parse_decimal(struct parse *p, const struct row *row, double least, double most, const char *hint,
                         double *out)
{
    char text[WORD_BYTES];
    double value;
    int rc = need_value(p, row);
    if (rc < 0)
        return rc;
    struct quire_bytes word = p->words[p->next++];
    if (!word_text(word, text) || !decimal_text(text, &value))
        return error_set(p->err, QUIRE_EINVALID, "%s: '%s' is not a number: give one from %g to %g", row->word,
                         shown(word, text), least, most);
    if (!(value >= least && value <= most))
        return error_set(p->err, QUIRE_ERANGE, "%s: %s is out of range: give a number from %g to %g; it is %s",
                         row->word, text, least, most, hint);
    *out = value;
    return 0;
}

/* The factor of a unit as the server's configuration has them, 0 where it is unknown. */
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

static int parse_whole(struct parse *p, const struct row *row)
{
    char text[WORD_BYTES];
    uint64_t number = 0, factor = 0, most = (uint64_t)row->most;
    bool bytes = row->kind == KIND_BYTES, over = false;
    int rc = need_value(p, row);
    if (rc < 0)
        return rc;
    struct quire_bytes word = p->words[p->next++];
    if (word_text(word, text) && isdigit((unsigned char)text[0])) {
        const char *at = text;
        for (; isdigit((unsigned char)*at); at++)
            over |= __builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *at - '0', &number);
        factor = bytes ? unit_factor(at) : *at == 0;
    }
    if (factor == 0)
        return error_set(p->err, QUIRE_EINVALID, "%s: '%s' is not a %s from %.0f to %" PRIu64, row->word,
                         shown(word, text), bytes ? "size (such as 1048576, 512kb, 64mb, 2gb)" : "whole number",
                         row->least, most);
    over |= __builtin_mul_overflow(number, factor, &number);
    if (over || number < (uint64_t)row->least || number > most)
        return error_set(p->err, QUIRE_ERANGE, "%s: %s is out of range: give %.0f to %" PRIu64, row->word, text,
                         row->least, most);
    put_whole(&p->settings, row, number);
    return 0;
}

/* The start and length of the word at place `index` of "a|b|c"; NULL behind the last. */
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

static int parse_choice(struct parse *p, const struct row *row)
{
    const char *choices = row->kind == KIND_SWITCH ? "no|yes" : row->text, *choice;
    char text[WORD_BYTES];
    size_t bytes;
    int rc = need_value(p, row);
    if (rc < 0)
        return rc;
    struct quire_bytes word = p->words[p->next++];
    for (uint64_t i = 0; (choice = choice_at(choices, i, &bytes)); i++)
        if (bytes == word.n_bytes && strncasecmp(choice, word.data, bytes) == 0) {
            put_whole(&p->settings, row, i);
            return 0;
        }
    return error_set(p->err, QUIRE_EINVALID, "%s: '%s' is not one of %s", row->word, shown(word, text), choices);
}

/* Names of guards; all and none only by themselves. */
static int parse_guards(struct parse *p, const struct row *row)
{
    char text[WORD_BYTES];
    unsigned mask = 0, n = 0;
    bool alone = false;
    int rc = need_value(p, row);
    if (rc < 0)
        return rc;
    for (; has_value(p); p->next++, n++) {
        bool plain = word_text(p->words[p->next], text);
        for (char *c = text; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        bool all = strcmp(text, "all") == 0, none = strcmp(text, "none") == 0;
        unsigned bits = all ? GUARD_ALL : plain && !none ? guard_find(text_of(text)) : 0;
        alone |= all || none;
        if (bits == 0 && !none)
            return error_set(p->err, QUIRE_EINVALID, "%s: '%s' is not a guard: give names such as %s, or all, or none",
                             row->word, shown(p->words[p->next], text), guard_name(GUARD_NUMBER));
        mask |= bits;
    }
    if (alone && n > 1)
        return error_set(p->err, QUIRE_EINVALID, "%s: all and none stand alone, here are %u words", row->word, n);
    put_whole(&p->settings, row, mask);
    return 0;
}

/* Blanks separate words of the log, and lines end its records: neither may be in a scope key. */
static bool is_scope_key(struct quire_bytes word, char text[WORD_BYTES])
{
    if (!word_text(word, text))
        return false;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 127)
            return false;
    return true;
}

static int parse_keys(struct parse *p, const struct row *row)
{
    struct category_settings *s = &p->settings;
    char text[WORD_BYTES];
    bool none = false;
    int rc = need_value(p, row);
    if (rc < 0)
        return rc;
    s->n_scope_keys = 0;
    memset(s->scope_keys, 0, sizeof s->scope_keys);
    for (; has_value(p); p->next++) {
        if (!is_scope_key(p->words[p->next], text))
            return error_set(p->err, QUIRE_EINVALID, "%s: '%s' is not a scope key: 1 to %u bytes without blanks",
                             row->word, shown(p->words[p->next], text), CATEGORY_SCOPE_KEY_BYTES - 1);
        if (none || (strcasecmp(text, "none") == 0 && s->n_scope_keys > 0))
            return error_set(p->err, QUIRE_EINVALID, "%s: none stands alone, without scope keys", row->word);
        none = strcasecmp(text, "none") == 0;
        for (unsigned i = 0; i < s->n_scope_keys; i++)
            if (strcmp(s->scope_keys[i], text) == 0)
                return error_set(p->err, QUIRE_EINVALID, "%s: '%s' is given twice", row->word, text);
        if (s->n_scope_keys == CATEGORY_SCOPE_KEYS_MAX)
            return error_set(p->err, QUIRE_ELIMIT, "%s: '%s' is one too many: at most %u scope keys", row->word, text,
                             CATEGORY_SCOPE_KEYS_MAX);
        if (!none)
            memcpy(s->scope_keys[s->n_scope_keys++], text, strlen(text) + 1);
    }
    return 0;
}

_Static_assert(CATEGORY_SCOPE_KEY_BYTES == WORD_BYTES, "a scope key is a word");

static int parse_row(struct parse *p, const struct row *row)
{
    switch (row->kind) {
    case KIND_DECIMAL:
        return parse_decimal(p, row, row->least, row->most, row->text, field_of(&p->settings, row));
    case KIND_WHOLE:
    case KIND_SMALL:
    case KIND_BYTES:
        return parse_whole(p, row);
    case KIND_CHOICE:
    case KIND_SWITCH:
        return parse_choice(p, row);
    case KIND_GUARDS:
        return parse_guards(p, row);
    case KIND_KEYS:
        return parse_keys(p, row);
    case KIND_LOADMAX:
        break;
    }
    double limit, factor;
    int rc = parse_decimal(p, row, 0, 1, "a budget where RISK is in force and a similarity where SIM is", &limit);
    rc = rc < 0 ? rc : parse_decimal(p, row, 0, row->most, "how many times itself TTL may grow by", &factor);
    if (rc < 0)
        return rc;
    p->settings.load_risk_max = limit;
    p->settings.load_ttl_factor = factor;
    return 0;
}

/* ---- what settings say together ---------------------------------------------------------------------------------- */

/* Lets SIM end RISK and the other way round. before: the settings as they were. */
static int choose_sim_or_risk(struct parse *p, const struct category_settings *before)
{
    struct category_settings *s = &p->settings;
    bool sim = is_given(p, "SIM"), risk = is_given(p, "RISK");
    if (!sim && !risk)
        return 0;
    if (sim && risk)
        return error_set(p->err, QUIRE_EINVALID,
                         "SIM %g and RISK %g exclude each other: a threshold is either fixed or follows "
                         "from a budget; give one of them",
                         s->sim, s->risk);
    if (sim ? s->sim <= 0 : s->risk <= 0)
        return error_set(
            p->err, QUIRE_ERANGE, "%s: 0 is out of range: give a number above 0, up to 1; %s", sim ? "SIM" : "RISK",
            sim ? "a similarity of 0 would let any entry answer" : "MODE exact is what makes no such errors");
    *(sim ? &s->risk : &s->sim) = 0;
    if (sim != (before->sim > 0) && s->load_risk_max > 0 && !is_given(p, "LOADMAX"))
        return error_set(
            p->err, QUIRE_EINVALID, "%s: LOADMAX %g was meant for %s, where it is %s: give LOADMAX too (0 0 ends it)",
            sim ? "SIM" : "RISK", s->load_risk_max, sim ? "RISK" : "SIM", sim ? "a budget" : "a similarity");
    return 0;
}

static int check_together(const struct category_settings *s, struct quire_error *err)
{
    if (s->floor > s->ceil)
        return error_set(err, QUIRE_EINVALID, "FLOOR %g is above CEIL %g: lower the one or raise the other", s->floor,
                         s->ceil);
    if (s->sim > 0 && (s->sim < s->floor || s->sim > s->ceil))
        return error_set(err, QUIRE_EINVALID,
                         "SIM %g is outside of FLOOR %g and CEIL %g: move the one it passes as well", s->sim, s->floor,
                         s->ceil);
    if (s->ttl_max_ms > 0 && s->ttl_ms > s->ttl_max_ms)
        return error_set(err, QUIRE_EINVALID,
                         "TTL %" PRIu64 " is above TTLMAX %" PRIu64 ": raise TTLMAX too (0: no limit)", s->ttl_ms,
                         s->ttl_max_ms);
    if (s->load_risk_max > 0 && s->sim > 0 && (s->load_risk_max > s->sim || s->load_risk_max < s->floor))
        return error_set(err, QUIRE_EINVALID,
                         "LOADMAX %g is not between FLOOR %g and SIM %g: with SIM its first value is the "
                         "lowest similarity under full load (0: none)",
                         s->load_risk_max, s->floor, s->sim);
    if (s->load_risk_max > 0 && s->sim <= 0 && s->load_risk_max < s->risk)
        return error_set(err, QUIRE_EINVALID,
                         "LOADMAX %g is below RISK %g: with RISK its first value is the highest budget, under "
                         "full load (0: none)",
                         s->load_risk_max, s->risk);
    return 0;
}

int category_apply(struct category_settings *settings, const struct quire_bytes *words, uint32_t n,
                   struct quire_error *err)
{
    struct parse p = {.words = words, .n = n, .settings = *settings, .err = err};
    char word[WORD_BYTES], all[256];
    while (p.next < n) {
        const struct row *row = find_row(words[p.next]);
        if (!row) {
            size_t used = 0;
            for (row = rows; row < rows + N_ROWS; row++)
                used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used ? " " : "", row->word);
            return error_set(err, QUIRE_EINVALID, "'%s' is not a setting of a category: give one of %s",
                             shown(words[p.next], word), all);
        }
        if (p.given >> (row - rows) & 1)
            return error_set(err, QUIRE_EINVALID, "%s is given twice: give each setting once", row->word);
        p.given |= 1ull << (row - rows);
        p.next++;
        int rc = parse_row(&p, row);
        if (rc < 0)
            return rc;
    }
    int rc = choose_sim_or_risk(&p, settings);
    rc = rc < 0 ? rc : check_together(&p.settings, err);
    if (rc == 0)
        *settings = p.settings;
    return rc;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The shortest of 15 to 17 digits that gives the same number again. */
static int print_decimal(char *text, size_t capacity, double value)
{
    int n = 0;
    for (int digits = 15; digits <= 17; digits++) {
        n = snprintf(text, capacity, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return n;
}

#define VALUE_BYTES (CATEGORY_SCOPE_KEYS_MAX * CATEGORY_SCOPE_KEY_BYTES + 1) /* scope keys are the longest */

static void print_guards(char text[VALUE_BYTES], unsigned mask)
{
    size_t used = 0;
    snprintf(text, VALUE_BYTES, "%s", mask == GUARD_ALL ? "all" : "none");
    for (enum guard_kind kind = 0; kind < GUARD_KINDS && mask != GUARD_ALL; kind++)
        if (mask >> kind & 1)
            used += (size_t)snprintf(text + used, VALUE_BYTES - used, "%s%s", used ? " " : "", guard_name(kind));
}

static void print_keys(char text[VALUE_BYTES], const struct category_settings *s)
{
    size_t used = 0;
    snprintf(text, VALUE_BYTES, "none");
    for (unsigned i = 0; i < s->n_scope_keys; i++)
        used += (size_t)snprintf(text + used, VALUE_BYTES - used, "%s%s", used ? " " : "", s->scope_keys[i]);
}

void category_each(const struct category_settings *settings,
                   void (*emit)(void *context, const char *word, const char *value), void *context)
{
    const char *other = settings->sim > 0 ? "RISK" : "SIM";
    for (const struct row *row = rows; row < rows + N_ROWS; row++) {
        char word[WORD_BYTES], value[VALUE_BYTES];
        if (strcmp(row->word, other) == 0)
            continue;
        size_t n = strlen(row->word);
        for (size_t i = 0; i <= n; i++)
            word[i] = (char)tolower((unsigned char)row->word[i]);
        size_t bytes = 0;
        const char *choice;
        int used;
        switch (row->kind) {
        case KIND_DECIMAL:
            print_decimal(value, VALUE_BYTES, *(const double *)(const void *)((const char *)settings + row->place));
            break;
        case KIND_WHOLE:
        case KIND_SMALL:
        case KIND_BYTES:
            snprintf(value, VALUE_BYTES, "%" PRIu64, whole_of(settings, row));
            break;
        case KIND_CHOICE:
        case KIND_SWITCH:
            choice = choice_at(row->kind == KIND_SWITCH ? "no|yes" : row->text, whole_of(settings, row), &bytes);
            snprintf(value, VALUE_BYTES, "%.*s", (int)bytes, choice);
            break;
        case KIND_GUARDS:
            print_guards(value, settings->guards);
            break;
        case KIND_KEYS:
            print_keys(value, settings);
            break;
        case KIND_LOADMAX:
            used = print_decimal(value, VALUE_BYTES, settings->load_risk_max);
            value[used++] = ' ';
            print_decimal(value + used, VALUE_BYTES - (size_t)used, settings->load_ttl_factor);
            break;
        }
        emit(context, word, value);
    }
}

struct line {
    char *text;
    uint32_t used;
};

static void add_to_line(void *context, const char *word, const char *value)
{
    struct line *line = context;
    int n = snprintf(line->text + line->used, CATEGORY_TEXT_BYTES - line->used, "%s%s %s", line->used ? " " : "", word,
                     value);
    line->used += (uint32_t)n;
}

uint32_t category_print(const struct category_settings *settings, char text[CATEGORY_TEXT_BYTES])
{
    struct line line = {text, 0};
    category_each(settings, add_to_line, &line);
    return line.used;
}

/* Every row has at most a word, and a value of the longest kind: no line of true settings has more words. */
#define WORDS_MAX (N_ROWS * (1 + CATEGORY_SCOPE_KEYS_MAX))

int category_words(struct quire_bytes text, struct quire_bytes *words, uint32_t max, uint32_t *n,
                   struct quire_error *err)
{
    const char *at = text.n_bytes ? text.data : "", *end = at + text.n_bytes;
    *n = 0;
    if (text.n_bytes >= CATEGORY_TEXT_BYTES)
        return error_set(err, QUIRE_EINVALID, "settings of %zu bytes: at most %u", text.n_bytes,
                         CATEGORY_TEXT_BYTES - 1);
    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const char *stop = blank ? blank : end;
        if (stop > at && *n == max)
            return error_set(err, QUIRE_EINVALID, "settings of more than %u words", max);
        if (stop > at)
            words[(*n)++] = (struct quire_bytes){at, (size_t)(stop - at)};
        at = blank ? blank + 1 : end;
    }
    return 0;
}

int category_parse(struct category_settings *settings, struct quire_bytes text, struct quire_error *err)
{
    struct quire_bytes words[WORDS_MAX];
    struct category_settings parsed;
    uint32_t n;
    category_defaults(&parsed);
    int rc = category_words(text, words, WORDS_MAX, &n, err);
    if (rc == 0)
        rc = category_apply(&parsed, words, n, err);
    if (rc == 0)
        *settings = parsed;
    return rc;
}
