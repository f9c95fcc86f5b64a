/*
 * config.c - settings from a table (config.def).
 *
 * A file holds one setting per line: a name, blanks, a value. Lines that begin with '#' and empty ones are skipped; a
 * value may stand in double quotes. On the command line "--name" takes all words up to the next "--name", joined by
 * blanks, as redis-server does. A later value replaces an earlier one, except for lists, which grow.
 *
 * Nothing is guessed: an unknown name, a number out of range or a size with an unknown unit ends the start with a
 * sentence that names file and line. A setting that is silently ignored is worse than a server that does not start.
 * What a redis.conf has and means nothing here (FOREIGN, and other values of FIXED ones) may stand in a file: `ignored`
 * names all of it, for one line of the log.
 *
 * Lanes read fields without a lock while CONFIG SET changes them. A number is one atomic; of a text the pointer is, and
 * what it pointed to stays until the end, since nobody counts readers. CONFIG SET understands and checks all of its
 * values before it stores the first, and storing cannot fail: that is what makes it all or nothing.
 */
#include "io/error.h"
#include "server/process/config_priv.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define AT(field) offsetof(struct config, field)
const struct setting config_settings[N_SETTINGS] = {
#define STRING(field, name, change, value, help) {KIND_STRING, name, change, AT(field), 0, 0, 0, value, help},
#define LIST(field, name, change, help)          {KIND_LIST, name, change, AT(field), 0, 0, 0, "", help},
#define NUMBER(field, name, change, value, least, most, help)                                                          \
    {KIND_NUMBER, name, change, AT(field), value, least, most, NULL, help},
#define INTEGER(field, name, change, value, least, most, help)                                                         \
    {KIND_INTEGER, name, change, AT(field), (uint64_t)(value), (uint64_t)(least), (uint64_t)(most), NULL, help},
#define BYTES(field, name, change, value, least, most, help)                                                           \
    {KIND_BYTES, name, change, AT(field), value, least, most, NULL, help},
#define SHARE(field, name, change, value, least, most, help)                                                           \
    {KIND_SHARE, name, change, AT(field), value, least, most, NULL, help},
#define OUTPUT(field, name, change, value, least, most, help)                                                          \
    {KIND_OUTPUT, name, change, AT(field), value, least, most, NULL, help},
#define BOOL(field, name, change, value, help) {KIND_BOOL, name, change, AT(field), value, 0, 1, NULL, help},
#define CHOICE(field, name, change, value, choices, help)                                                              \
    {KIND_CHOICE, name, change, AT(field), value, 0, 0, choices, help},
#define FIXED(name, value, help) {KIND_FIXED, name, IMMUTABLE, 0, 0, 0, 0, value, help},
#include "server/process/config.def"
};

#define STRING(...)
#define LIST(...)
#define NUMBER(...)
#define INTEGER(...)
#define BYTES(...)
#define SHARE(...)
#define OUTPUT(...)
#define BOOL(...)
#define CHOICE(...)
#define FIXED(...)
#define FOREIGN(name) name,
static const char *const foreign_settings[] = {
#include "server/process/config.def"
};

struct config_text {
    struct config_text *next;
    char text[];
};

/* The one answer of a FIXED setting; "appendonly" has one with a data folder and another without. */
static const char *fixed_text(const struct config *config, const struct setting *s)
{
    const char *dir = config->dir;
    return strcmp(s->name, "appendonly") == 0 && dir && dir[0] == 0 ? "no" : s->text;
}

static _Atomic(char *) *text_of(const struct config *config, const struct setting *s)
{
    return (_Atomic(char *) *)(void *)((char *)(uintptr_t)config + s->place);
}

/* Of INTEGER too: the bits of its int64_t. */
static _Atomic uint64_t *number_of(const struct config *config, const struct setting *s)
{
    return (_Atomic uint64_t *)(void *)((char *)(uintptr_t)config + s->place);
}

static atomic_bool *flag_of(const struct config *config, const struct setting *s)
{
    return (atomic_bool *)(void *)((char *)(uintptr_t)config + s->place);
}

static bool is_text(const struct setting *s)
{
    return s->kind == KIND_STRING || s->kind == KIND_LIST;
}

/* A copy of a text that lives as long as config; NULL without memory. The same content is kept once, so that changing a
 * setting back and forth costs nothing. */
static char *keep_text(struct config *config, const char *text)
{
    for (struct config_text *t = config->texts; t; t = t->next)
        if (strcmp(t->text, text) == 0)
            return t->text;
    size_t bytes = strlen(text) + 1;
    struct config_text *t = malloc(sizeof *t + bytes);
    if (!t)
        return NULL;
    memcpy(t->text, text, bytes);
    t->next = config->texts;
    config->texts = t;
    return t->text;
}

int config_init(struct config *config, struct quire_error *err)
{
    memset(config, 0, sizeof *config);
    pthread_mutex_init(&config->lock, NULL);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &config_settings[i];
        if (is_text(s)) {
            char *text = keep_text(config, s->text);
            if (!text) {
                config_fini(config);
                return error_set(err, QUIRE_ENOMEM, "no memory for the settings");
            }
            atomic_store(text_of(config, s), text);
        } else if (s->kind == KIND_BOOL) {
            atomic_store(flag_of(config, s), s->number != 0);
        } else if (s->kind != KIND_FIXED) {
            atomic_store(number_of(config, s), s->number);
        }
    }
    config->ignored = keep_text(config, "");
    if (config->ignored)
        return 0;
    config_fini(config);
    return error_set(err, QUIRE_ENOMEM, "no memory for the settings");
}

void config_fini(struct config *config)
{
    while (config->texts) {
        struct config_text *next = config->texts->next;
        free(config->texts);
        config->texts = next;
    }
    free(config->file);
    pthread_mutex_destroy(&config->lock);
    memset(config, 0, sizeof *config);
}

const struct setting *config_setting_find(const char *name)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strcasecmp(config_settings[i].name, name) == 0)
            return &config_settings[i];
    return NULL;
}

bool config_is_secret(const char *name, size_t bytes)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if ((config_settings[i].change & SECRET) && strlen(config_settings[i].name) == bytes &&
            strncasecmp(config_settings[i].name, name, bytes) == 0)
            return true;
    return false;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

#define SHARE_PERCENT ((uint64_t)1 << 63) /* of the value of a SHARE: it is a percentage */

/* A number, with a unit where the setting is a size. */
static int parse_number(const struct setting *s, const char *text, struct setting_value *out, struct quire_error *err)
{
    static const struct {
        const char *unit;
        uint64_t factor;
    } units[] = {{"", 1},        {"b", 1},         {"k", 1000},       {"kb", 1u << 10},
                 {"m", 1000000}, {"mb", 1u << 20}, {"g", 1000000000}, {"gb", 1u << 30}};
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    uint64_t factor = 0;
    for (size_t i = 0; i < (s->kind == KIND_NUMBER ? 1 : sizeof units / sizeof *units) && factor == 0; i++)
        factor = strcasecmp(units[i].unit, end) == 0 ? units[i].factor : 0;
    if (!isdigit((unsigned char)text[0]) || factor == 0)
        return error_set(err, QUIRE_EINVALID, "%s: '%.64s' is not a %s", s->name, text,
                         s->kind == KIND_NUMBER ? "whole number" : "size (such as 1048576, 512kb, 64mb, 2gb)");
    if (errno == ERANGE || __builtin_mul_overflow(number, factor, &number) || number < s->minimum ||
        number > s->maximum)
        return error_set(err, QUIRE_ERANGE, "%s: %.64s is out of range: %" PRIu64 " to %" PRIu64, s->name, text,
                         s->minimum, s->maximum);
    out->number = number;
    return 0;
}

static int parse_integer(const struct setting *s, const char *text, struct setting_value *out, struct quire_error *err)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10), least = (long long)s->minimum, most = (long long)s->maximum;
    if (*end || !isdigit((unsigned char)text[text[0] == '-']))
        return error_set(err, QUIRE_EINVALID, "%s: '%.64s' is not a whole number", s->name, text);
    if (errno == ERANGE || number < least || number > most)
        return error_set(err, QUIRE_ERANGE, "%s: %.64s is out of range: %lld to %lld", s->name, text, least, most);
    out->number = (uint64_t)number;
    return 0;
}

/* A size, 0, or "5%", which is kept as SHARE_PERCENT and the number. */
static int parse_share(const struct setting *s, const char *text, struct setting_value *out, struct quire_error *err)
{
    size_t bytes = strlen(text);
    char digits[8];
    if (strcmp(text, "0") == 0) {
        out->number = 0;
        return 0;
    }
    if (bytes == 0 || text[bytes - 1] != '%')
        return parse_number(s, text, out, err);
    snprintf(digits, sizeof digits, "%.*s", bytes - 1 < sizeof digits ? (int)bytes - 1 : 0, text);
    struct setting percent = {.kind = KIND_NUMBER, .name = s->name, .minimum = 1, .maximum = 100};
    int rc = parse_number(&percent, digits, out, err);
    if (rc == 0)
        out->number |= SHARE_PERCENT;
    return rc;
}

uint64_t config_share(uint64_t value, uint64_t of)
{
    /* a whole without a limit has no part that is one */
    return value & SHARE_PERCENT ? (uint64_t)((unsigned __int128)of * (value & ~SHARE_PERCENT) / 100) : value;
}

/* The next word of *at, cut off; "" at the end. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t");
    *at = word + strcspn(word, " \t");
    if (**at)
        *(*at)++ = 0;
    return word;
}

/* "class hard soft seconds ...", as redis.conf has it: the hard limit of normal clients counts, 0 is the most that can
 * be said. Replicas and subscribers do not exist here; their limits are read and have nothing to apply to. */
static int parse_classes(const struct setting *s, const char *text, struct setting_value *out, struct quire_error *err)
{
    char words[256], *at = words;
    if ((size_t)snprintf(words, sizeof words, "%s", text) >= sizeof words)
        return error_set(err, QUIRE_EINVALID, "%s: a value of %zu bytes", s->name, strlen(text));
    for (char *class = next_word(&at); *class; class = next_word(&at)) {
        const char *hard = next_word(&at), *soft = next_word(&at), *seconds = next_word(&at);
        bool normal = strcasecmp(class, "normal") == 0;
        struct setting any = {.kind = KIND_BYTES, .name = s->name, .maximum = UINT64_MAX};
        struct setting_value value = {0}, ignored;
        if (!normal && strcasecmp(class, "slave") != 0 && strcasecmp(class, "replica") != 0 &&
            strcasecmp(class, "pubsub") != 0)
            return error_set(err, QUIRE_EINVALID, "%s: '%.32s' is not a class: normal, replica or pubsub", s->name,
                             class);
        int rc = parse_number(&any, hard, &value, err);
        rc = rc < 0 ? rc : parse_number(&any, soft, &ignored, err);
        rc = rc < 0 ? rc : parse_number(&any, seconds, &ignored, err);
        if (rc < 0)
            return rc;
        if (normal && strcmp(soft, "0") != 0)
            return error_set(err, QUIRE_EINVALID, "%s: there are no soft limits: write normal %.32s 0 0", s->name,
                             hard);
        if (normal && value.number && (value.number < s->minimum || value.number > s->maximum))
            return error_set(err, QUIRE_ERANGE, "%s: %.64s is out of range: %" PRIu64 " to %" PRIu64, s->name, hard,
                             s->minimum, s->maximum);
        if (normal)
            out->number = value.number ? value.number : s->maximum;
    }
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

static int parse_choice(const struct setting *s, const char *text, struct setting_value *out, struct quire_error *err)
{
    const char *word;
    size_t bytes;
    for (uint64_t i = 0; (word = choice_at(s->text, i, &bytes)); i++)
        if (bytes == strlen(text) && strncasecmp(word, text, bytes) == 0) {
            out->number = i;
            return 0;
        }
    return error_set(err, QUIRE_EINVALID, "%s: '%.64s' is not one of %s", s->name, text, s->text);
}

int config_setting_parse(const struct config *config, const struct setting *s, const char *text,
                         struct setting_value *out, struct quire_error *err)
{
    *out = (struct setting_value){.text = text};
    switch (s->kind) {
    case KIND_STRING:
    case KIND_LIST:
        if (strcmp(s->name, "load") == 0 && text[0] && (text[0] == ' ' || !strchr(text, ' ')))
            return error_set(err, QUIRE_EINVALID, "load: '%.200s' is not a key and a path", text);
        return strpbrk(text, "\r\n") ? error_set(err, QUIRE_EINVALID, "%s: a value may not hold a line end", s->name)
                                     : 0;
    case KIND_NUMBER:
    case KIND_BYTES:
        return parse_number(s, text, out, err);
    case KIND_INTEGER:
        return parse_integer(s, text, out, err);
    case KIND_SHARE:
        return parse_share(s, text, out, err);
    case KIND_OUTPUT:
        out->number = atomic_load(number_of(config, s)); /* where only classes without clients are named */
        return isalpha((unsigned char)text[0]) ? parse_classes(s, text, out, err) : parse_number(s, text, out, err);
    case KIND_BOOL:
        out->number = strcasecmp(text, "yes") == 0;
        return out->number || strcasecmp(text, "no") == 0
                   ? 0
                   : error_set(err, QUIRE_EINVALID, "%s: '%.64s' is neither yes nor no", s->name, text);
    case KIND_CHOICE:
        return parse_choice(s, text, out, err);
    case KIND_FIXED:
        break;
    }
    const char *fixed = fixed_text(config, s);
    return strcasecmp(fixed, text) == 0
               ? 0
               : error_set(err, QUIRE_EUNSUPPORTED, "%s: can only be '%s' (%s)", s->name, fixed, s->help);
}

/* Never fails with a text that keep_text gave. */
static void put_value(struct config *config, const struct setting *s, const struct setting_value *value, char *text)
{
    if (is_text(s))
        atomic_store(text_of(config, s), text);
    else if (s->kind == KIND_BOOL)
        atomic_store(flag_of(config, s), value->number != 0);
    else if (s->kind != KIND_FIXED)
        atomic_store(number_of(config, s), value->number);
}

bool config_setting_holds(const struct config *config, const struct setting *s, const struct setting_value *value)
{
    if (is_text(s))
        return strcmp(atomic_load(text_of(config, s)), value->text) == 0;
    if (s->kind == KIND_BOOL)
        return atomic_load(flag_of(config, s)) == (value->number != 0);
    return s->kind == KIND_FIXED || atomic_load(number_of(config, s)) == value->number;
}

const char *config_setting_text(const struct config *config, const struct setting *s, char capacity[SETTING_TEXT_BYTES])
{
    size_t bytes = 0;
    if (is_text(s))
        return atomic_load(text_of(config, s));
    if (s->kind == KIND_FIXED)
        return fixed_text(config, s);
    if (s->kind == KIND_BOOL)
        return atomic_load(flag_of(config, s)) ? "yes" : "no";
    uint64_t number = atomic_load(number_of(config, s));
    if (s->kind == KIND_CHOICE) {
        const char *word = choice_at(s->text, number, &bytes);
        snprintf(capacity, SETTING_TEXT_BYTES, "%.*s", (int)bytes, word);
    } else if (s->kind == KIND_INTEGER) {
        snprintf(capacity, SETTING_TEXT_BYTES, "%lld", (long long)number);
    } else if (s->kind == KIND_SHARE && number & SHARE_PERCENT) {
        snprintf(capacity, SETTING_TEXT_BYTES, "%" PRIu64 "%%", (uint64_t)(number & ~SHARE_PERCENT));
    } else {
        snprintf(capacity, SETTING_TEXT_BYTES, "%" PRIu64, number);
    }
    return capacity;
}

int config_set(struct config *config, const char *name, const char *value, struct quire_error *err)
{
    const struct setting *s = config_setting_find(name);
    struct setting_value parsed;
    char *text = NULL, *joined = NULL;
    if (!s)
        return error_set(err, QUIRE_ENOTFOUND, "unknown setting '%.64s'; quire-server --help lists them", name);
    int rc = config_setting_parse(config, s, value, &parsed, err);
    if (rc < 0)
        return rc;
    if (s->kind == KIND_LIST) {
        /* the list with one more */
        const char *old = atomic_load(text_of(config, s));
        text = asprintf(&joined, "%s%s%s", old, *old ? "\n" : "", value) < 0 ? NULL : keep_text(config, joined);
        free(joined);
    } else if (is_text(s)) {
        text = keep_text(config, value);
    }
    if (is_text(s) && !text)
        return error_set(err, QUIRE_ENOMEM, "no memory for %s", s->name);
    put_value(config, s, &parsed, text);
    return 0;
}

/* ---- what means nothing here ------------------------------------------------------------------------------------- */

static bool is_foreign(const char *name)
{
    for (size_t i = 0; i < sizeof foreign_settings / sizeof *foreign_settings; i++)
        if (strcasecmp(foreign_settings[i], name) == 0)
            return true;
    return false;
}

/* A line of a file that is no mistake, and has no effect: its name is kept for the log. */
static bool is_ignored(const struct config *config, const char *name, const char *value)
{
    const struct setting *s = config_setting_find(name);
    return s ? s->kind == KIND_FIXED && strcasecmp(fixed_text(config, s), value) != 0 : is_foreign(name);
}

static int ignore(struct config *config, const char *name, const char *value, struct quire_error *err)
{
    const struct setting *fixed = config_setting_find(name);
    char *joined = NULL;
    int n = asprintf(&joined, "%s%s%s%s%.32s", config->ignored, *config->ignored ? ", " : "", name, fixed ? " " : "",
                     fixed ? value : "");
    char *text = n < 0 ? NULL : keep_text(config, joined);
    free(joined);
    if (!text)
        return error_set(err, QUIRE_ENOMEM, "no memory for the settings");
    config->ignored = text;
    return 0;
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

enum { CHANGES_MAX = 64 };

/* Why a value was not understood, in the words that clients of Redis know. */
static void explain(const struct setting *s, const char *text, int rc, const struct quire_error *err, char *reason,
                    size_t capacity)
{
    bool below = text[0] == '-' && text[1] && text[1 + strspn(text + 1, "0123456789")] == 0;
    bool number = s->kind == KIND_NUMBER || s->kind == KIND_INTEGER || s->kind == KIND_BYTES || s->kind == KIND_OUTPUT;
    if (number && (rc == QUIRE_ERANGE || below)) {
        snprintf(reason, capacity, "argument must be between %lld and %lld inclusive", (long long)s->minimum,
                 (long long)s->maximum);
    } else if (s->kind == KIND_NUMBER || s->kind == KIND_INTEGER) {
        snprintf(reason, capacity, "argument couldn't be parsed into an integer");
    } else if (s->kind == KIND_BYTES) {
        snprintf(reason, capacity, "argument must be a memory value");
    } else if (s->kind == KIND_BOOL) {
        snprintf(reason, capacity, "argument must be 'yes' or 'no'");
    } else if (s->kind == KIND_CHOICE) {
        int used = snprintf(reason, capacity, "argument(s) must be one of the following: ");
        for (const char *p = s->text; *p && (size_t)used + 3 < capacity; p++)
            used +=
                snprintf(reason + used, capacity - (size_t)used, "%s%c", *p == '|' ? "," : "", *p == '|' ? ' ' : *p);
    } else {
        snprintf(reason, capacity, "%s", err->message);
    }
}

static int check_change(const struct config *config, const struct config_change *changes, size_t i,
                        const struct setting **s, struct setting_value *value, const struct config_host *host,
                        struct config_refusal *refusal)
{
    struct quire_error err = {0};
    const struct setting *found = *s = config_setting_find(changes[i].name);
    refusal->index = i;
    refusal->reason[0] = 0;
    if (!found)
        return QUIRE_ENOTFOUND;
    struct quire_error none;
    bool is_so = found->kind == KIND_FIXED && config_setting_parse(config, found, changes[i].value, value, &none) == 0;
    if (!(found->change & MUTABLE) && !is_so) { /* tools say what is fixed, such as save "" */
        snprintf(refusal->reason, sizeof refusal->reason, "can't set immutable config");
        return QUIRE_EPERM;
    }
    for (size_t earlier = 0; earlier < i; earlier++)
        if (strcasecmp(changes[earlier].name, changes[i].name) == 0) {
            snprintf(refusal->reason, sizeof refusal->reason, "duplicate parameter");
            return QUIRE_EEXISTS;
        }
    int rc = config_setting_parse(config, found, changes[i].value, value, &err);
    if (rc < 0) {
        explain(found, changes[i].value, rc, &err, refusal->reason, sizeof refusal->reason);
        return rc;
    }
    if (host && host->allow)
        rc = host->allow(host->context, found->name, changes[i].value, value->number, &err);
    if (rc < 0)
        snprintf(refusal->reason, sizeof refusal->reason, "%s", err.message);
    return rc;
}

struct planned_change {
    const struct setting *setting;
    struct setting_value value, old_value;
    char *text, *old_text; /* the configuration's */
};

/* Puts all of them in force, and the old values back where the host cannot bear them. */
static int put_changes(struct config *config, struct planned_change *planned, const struct config_change *changes,
                       size_t n, const struct config_host *host, struct config_refusal *refusal)
{
    struct quire_error err = {0};
    for (size_t i = 0; i < n; i++) {
        struct planned_change *p = &planned[i];
        if (is_text(p->setting))
            p->old_text = atomic_load(text_of(config, p->setting));
        else if (p->setting->kind == KIND_FIXED)
            continue;
        else if (p->setting->kind == KIND_BOOL)
            p->old_value.number = atomic_load(flag_of(config, p->setting));
        else
            p->old_value.number = atomic_load(number_of(config, p->setting));
        put_value(config, p->setting, &p->value, p->text);
    }
    int rc = host && host->apply ? host->apply(host->context, changes, n, &refusal->index, &err) : 0;
    if (rc == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        put_value(config, planned[i].setting, &planned[i].old_value, planned[i].old_text);
    snprintf(refusal->reason, sizeof refusal->reason, "%.390s", err.message);
    return rc;
}

int config_change(struct config *config, const struct config_change *changes, size_t n, const struct config_host *host,
                  struct config_refusal *refusal)
{
    struct planned_change planned[CHANGES_MAX];
    int rc = 0;
    if (n > CHANGES_MAX) {
        refusal->index = n;
        snprintf(refusal->reason, sizeof refusal->reason, "more than %d settings", CHANGES_MAX);
        return QUIRE_ELIMIT;
    }
    pthread_mutex_lock(&config->lock);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct planned_change *p = &planned[i];
        *p = (struct planned_change){0};
        rc = check_change(config, changes, i, &p->setting, &p->value, host, refusal);
        if (rc == 0 && is_text(p->setting) && !(p->text = keep_text(config, changes[i].value))) {
            snprintf(refusal->reason, sizeof refusal->reason, "no memory for the value");
            rc = QUIRE_ENOMEM;
        }
    }
    if (rc == 0)
        rc = put_changes(config, planned, changes, n, host, refusal);
    pthread_mutex_unlock(&config->lock);
    return rc;
}

/* ---- file and command line --------------------------------------------------------------------------------------- */

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

void config_setting_split(char *line, char **name, char **value)
{
    *name = trim(line);
    *value = *name + strcspn(*name, " \t");
    if (**name == '#')
        **name = 0;
    if (**name && **value)
        *(*value)++ = 0;
    *value = **name ? trim(*value) : *name;
}

static int parse_file(struct config *config, const char *path, struct quire_error *err)
{
    struct quire_error inner = {0};
    char *line = NULL;
    size_t capacity = 0;
    int rc = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set_errno(err, errno, "open", path);
    for (unsigned number = 1; rc == 0 && getline(&line, &capacity, file) >= 0; number++) {
        char *name, *value;
        config_setting_split(line, &name, &value);
        if (*name)
            rc = is_ignored(config, name, value) ? ignore(config, name, value, &inner)
                                                 : config_set(config, name, value, &inner);
        if (rc < 0)
            error_set(err, rc, "%s, line %u: %.300s", path, number, inner.message);
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
    if (!config_setting_find(name + 2))
        return config_set(config, name + 2, "", err); /* unknown, whatever follows */
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
    if (n_arguments > 0 && strncmp(arguments[0], "--", 2) != 0) {
        rc = parse_file(config, arguments[at++], err);
        /* for CONFIG REWRITE, whatever the folder is then; what has no name (a pipe) cannot be rewritten */
        config->file = rc == 0 ? realpath(arguments[0], NULL) : NULL;
    }
    while (rc == 0 && at < n_arguments)
        rc = parse_option(config, n_arguments, arguments, &at, err);
    return rc;
}

void config_each(const struct config *config,
                 void (*visit)(void *context, const char *name, const char *value, const char *help), void *context)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &config_settings[i];
        char capacity[SETTING_TEXT_BYTES];
        visit(context, s->name, config_setting_text(config, s, capacity), s->help);
    }
}
