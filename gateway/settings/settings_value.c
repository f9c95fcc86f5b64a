/*
 * settings_value.c - values: from texts and JSON to fields, and back to what people write.
 *
 * A value in the file may be what JSON has for its type, or a text; on the command line it is a text. Both come
 * together in settings_set_text, so that there is one place where a range is checked.
 */
#include "gateway/settings/settings_priv.h"
#include "io/error.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit sizes[] = {{"gb", 1ll << 30}, {"mb", 1ll << 20}, {"kb", 1ll << 10}, {"b", 1}, {NULL, 0}};
static const struct unit times[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}, {NULL, 0}};

void settings_list_clear(struct settings_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct settings_list){0};
}

int settings_list_add(struct settings_list *list, const char *name, const char *item, size_t bytes,
                      struct quire_error *err)
{
    if (list->n == SETTINGS_LIST_MAX)
        return error_set(err, QUIRE_ELIMIT, "%s: more than %u entries", name, SETTINGS_LIST_MAX);
    char **items = realloc(list->items, (list->n + 1) * sizeof *items);
    if (items)
        list->items = items;
    char *copy = items ? strndup(item, bytes) : NULL;
    if (!copy)
        return error_set(err, QUIRE_ENOMEM, "no memory for %s", name);
    list->items[list->n++] = copy;
    return 0;
}

static void show_time(int64_t ms, char *out, size_t out_bytes)
{
    const struct unit *unit = times;
    while (ms % unit->factor != 0 || (ms == 0 && strcmp(unit->name, "s") != 0))
        unit++;
    snprintf(out, out_bytes, "%" PRId64 "%s", ms / unit->factor, unit->name);
}

static void show_bytes(int64_t bytes, char *out, size_t out_bytes)
{
    const struct unit *unit = sizes;
    while (bytes % unit->factor != 0)
        unit++;
    snprintf(out, out_bytes, "%" PRId64 "%s", bytes / unit->factor, unit->factor == 1 ? "" : unit->name);
}

void settings_allowed(const struct settings_row *row, char *out, size_t out_bytes)
{
    char min[32], max[32];
    switch (row->kind) {
    case SETTINGS_NUMBER:
        snprintf(out, out_bytes, "a whole number from %" PRId64 " to %" PRId64, row->min, row->max);
        break;
    case SETTINGS_BYTES:
        show_bytes(row->min, min, sizeof min);
        show_bytes(row->max, max, sizeof max);
        snprintf(out, out_bytes, "a size (65536, 64kb, 32mb, 1gb) from %s to %s", min, max);
        break;
    case SETTINGS_TIME:
        show_time(row->min, min, sizeof min);
        show_time(row->max, max, sizeof max);
        snprintf(out, out_bytes, "a time with its unit (750ms, 30s, 10m, 2h, 1d) from %s to %s", min, max);
        break;
    case SETTINGS_REAL:
        snprintf(out, out_bytes, "a number from %g to %g", row->real_min, row->real_max);
        break;
    case SETTINGS_BOOL:
        snprintf(out, out_bytes, "true or false");
        break;
    case SETTINGS_CHOICE:
        snprintf(out, out_bytes, "one of %s", row->words);
        break;
    case SETTINGS_LIST:
        snprintf(out, out_bytes, "a list of texts");
        break;
    default:
        snprintf(out, out_bytes, "a text");
    }
}

static int refuse(const struct settings_row *row, const char *value, struct quire_error *err)
{
    char allowed[400];
    settings_allowed(row, allowed, sizeof allowed);
    return error_set(err, QUIRE_EINVALID, "%s: %.200s is not %s", row->name,
                     row->kind == SETTINGS_SECRET ? SETTINGS_MASK : value, allowed);
}

/* A whole number and its unit. False: it is none. */
static bool read_scaled(const char *text, const struct unit *units, bool unit_needed, int64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno != 0)
        return false;
    if (*end == 0) {
        *out = number;
        return !unit_needed || number == 0;
    }
    for (; units->name; units++) {
        if (strcasecmp(end, units->name) == 0)
            return !__builtin_mul_overflow((int64_t)number, units->factor, out);
    }
    return false;
}

static int set_choice(int *field, const struct settings_row *row, const char *text, struct quire_error *err)
{
    int place = 0;
    for (const char *word = row->words; *word; place++) {
        size_t n = strcspn(word, "|");
        if (strlen(text) == n && strncmp(word, text, n) == 0) {
            *field = place;
            return 0;
        }
        word += n + (word[n] == '|');
    }
    return refuse(row, text, err);
}

/* Words between blanks and commas. */
static int set_list(struct settings_list *field, const struct settings_row *row, const char *text,
                    struct quire_error *err)
{
    struct settings_list list = {0};
    int rc = 0;
    for (text += strspn(text, " ,"); *text && rc == 0; text += strspn(text, " ,")) {
        size_t n = strcspn(text, " ,");
        rc = settings_list_add(&list, row->name, text, n, err);
        text += n;
    }
    struct settings_list *unused = rc == 0 ? field : &list;
    struct settings_list old = *unused;
    if (rc == 0)
        *field = list;
    settings_list_clear(&old);
    return rc;
}

static int set_own_text(char **field, const struct settings_row *row, const char *text, struct quire_error *err)
{
    if (row->kind == SETTINGS_SECRET && strcmp(text, SETTINGS_MASK) == 0)
        return error_set(err, QUIRE_EINVALID,
                         "%s: " SETTINGS_MASK " stands where a secret is not shown; give the secret", row->name);
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return error_set(err, QUIRE_EINVALID, "%s: a control character at byte %zu", row->name, (size_t)(c - text));
    }
    char *copy = strdup(text);
    if (!copy)
        return error_set(err, QUIRE_ENOMEM, "no memory for %s", row->name);
    free(*field);
    *field = copy;
    return 0;
}

int settings_set_text(struct settings *settings, const struct settings_row *row, const char *text,
                      struct quire_error *err)
{
    void *field = settings_field(settings, row);
    int64_t number;
    char *end;
    double real;
    switch (row->kind) {
    case SETTINGS_TEXT:
    case SETTINGS_SECRET:
        return set_own_text(field, row, text, err);
    case SETTINGS_LIST:
        return set_list(field, row, text, err);
    case SETTINGS_CHOICE:
        return set_choice(field, row, text, err);
    case SETTINGS_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return refuse(row, text, err);
        *(bool *)field = strcmp(text, "true") == 0;
        return 0;
    case SETTINGS_REAL:
        real = strtod(text, &end);
        if (end == text || *end || !isfinite(real) || real < row->real_min || real > row->real_max)
            return refuse(row, text, err);
        *(double *)field = real;
        return 0;
    default:
        break;
    }
    assert(row->kind == SETTINGS_NUMBER || row->kind == SETTINGS_BYTES || row->kind == SETTINGS_TIME);
    static const struct unit none[] = {{NULL, 0}};
    bool is_time = row->kind == SETTINGS_TIME;
    if (!read_scaled(text,
                     is_time                       ? times
                     : row->kind == SETTINGS_BYTES ? sizes
                                                   : none,
                     is_time, &number) ||
        number < row->min || number > row->max)
        return refuse(row, text, err);
    *(int64_t *)field = number;
    return 0;
}

static int set_json_list(struct settings *settings, const struct settings_row *row, const json_t *value,
                         struct quire_error *err)
{
    struct settings_list list = {0}, *field = settings_field(settings, row);
    int rc = 0;
    for (size_t i = 0; i < json_array_size(value) && rc == 0; i++) {
        const char *item = json_string_value(json_array_get(value, i));
        rc = item ? settings_list_add(&list, row->name, item, strlen(item), err)
                  : error_set(err, QUIRE_EINVALID, "%s: entry %zu is not a text", row->name, i);
    }
    if (rc == 0) {
        settings_list_clear(field);
        *field = list;
    } else
        settings_list_clear(&list);
    return rc;
}

int settings_set_json(struct settings *settings, const struct settings_row *row, const json_t *value,
                      struct quire_error *err)
{
    char text[64];
    switch (json_typeof(value)) {
    case JSON_STRING:
        /* texts of JSON may hold NUL only where jansson is told to let them */
        return settings_set_text(settings, row, json_string_value(value), err);
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(text, sizeof text, "%.17g", json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
        break;
    case JSON_ARRAY:
        if (row->kind == SETTINGS_LIST)
            return set_json_list(settings, row, value, err);
        return refuse(row, "a list", err);
    default:
        return refuse(row, json_is_null(value) ? "null" : "an object", err);
    }
    if (row->kind == SETTINGS_TEXT || row->kind == SETTINGS_SECRET || row->kind == SETTINGS_LIST ||
        row->kind == SETTINGS_CHOICE)
        return refuse(row, text, err);
    return settings_set_text(settings, row, text, err);
}

int settings_set_default(struct settings *settings, const struct settings_row *row, struct quire_error *err)
{
    void *field = settings_field(settings, row);
    switch (row->kind) {
    case SETTINGS_PART:
        return 0;
    case SETTINGS_TEXT:
    case SETTINGS_SECRET:
        *(char **)field = strdup(row->words);
        return *(char **)field ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the settings");
    case SETTINGS_LIST:
        return set_list(field, row, row->words, err);
    case SETTINGS_REAL:
        *(double *)field = row->real;
        return 0;
    case SETTINGS_BOOL:
        *(bool *)field = row->number != 0;
        return 0;
    case SETTINGS_CHOICE:
        *(int *)field = (int)row->number;
        return 0;
    default:
        assert(row->number >= row->min && row->number <= row->max);
        *(int64_t *)field = row->number;
        return 0;
    }
}

void settings_show(const struct settings_row *row, const struct settings *settings, char *out, size_t out_bytes)
{
    const void *field = settings_field(settings, row);
    const char *word = row->words;
    switch (row->kind) {
    case SETTINGS_TEXT:
        snprintf(out, out_bytes, "%s", *(char *const *)field);
        break;
    case SETTINGS_SECRET:
        snprintf(out, out_bytes, "%s", **(char *const *)field ? SETTINGS_MASK : "");
        break;
    case SETTINGS_NUMBER:
        snprintf(out, out_bytes, "%" PRId64, *(const int64_t *)field);
        break;
    case SETTINGS_BYTES:
        show_bytes(*(const int64_t *)field, out, out_bytes);
        break;
    case SETTINGS_TIME:
        show_time(*(const int64_t *)field, out, out_bytes);
        break;
    case SETTINGS_REAL:
        snprintf(out, out_bytes, "%g", *(const double *)field);
        break;
    case SETTINGS_BOOL:
        snprintf(out, out_bytes, "%s", *(const bool *)field ? "true" : "false");
        break;
    case SETTINGS_CHOICE:
        for (int i = 0; i < *(const int *)field; i++)
            word += strcspn(word, "|") + 1;
        snprintf(out, out_bytes, "%.*s", (int)strcspn(word, "|"), word);
        break;
    default:
        *out = 0;
    }
}
