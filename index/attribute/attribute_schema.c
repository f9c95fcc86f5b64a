/*
 * attribute_schema.c - declared columns: their list, its bytes on disk, and values as their types have them.
 *
 * A schema is small and read often, so it is one sorted array behind one allocation: the columns, then their names. It
 * never changes; a collection that declares more makes another.
 *
 * Encoded (journal and segments): u16 columns; for each, by name: u8 type, u8 indexed (0 or 1), u8 bytes, name. It is
 * valid if and only if nothing follows, names are 1..255 bytes without a zero byte, in ascending order without
 * repetition, and types are known.
 *
 * A value of another type than the declared one counts as missing, because a column of numbers is only worth its sets
 * if nothing else can match. Null is null under every type. A float column takes whole numbers, an integer column takes
 * 2.0; none takes a number written as a string.
 *
 * Times: RFC 3339 (2002), section 5.6, with a blank allowed instead of the T, as its note says, and a date alone. A
 * leap second is the second that follows it, as in POSIX. Days are counted in years that begin in March, so that the
 * leap day is the last of its year.
 */
#include "index/attribute/attribute_schema.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES       2u
#define COLUMN_BYTES     3u  /* without the name */
#define TIME_BYTES_MAX   64u /* of a string that can be a time, without escapes */
#define SECONDS_PER_DAY  86400
#define DAYS_BEFORE_1970 719468 /* since 1 March of year 0 */

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static int compare_columns(const void *a, const void *b)
{
    return strcmp(((const struct quire_column *)a)->name, ((const struct quire_column *)b)->name);
}

static int check_column(const struct quire_column *column, struct quire_error *err)
{
    size_t bytes = column->name ? strlen(column->name) : 0;
    if (bytes == 0 || bytes > ATTRIBUTE_NAME_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "a column's name has %zu bytes, and must have 1..%u", bytes,
                         ATTRIBUTE_NAME_BYTES_MAX);
    if ((unsigned)column->type > QUIRE_COLUMN_TIMESTAMP)
        return error_set(err, QUIRE_EINVALID, "column %s has type %d, which is none: 0 (learnt) .. %d (timestamp)",
                         column->name, (int)column->type, (int)QUIRE_COLUMN_TIMESTAMP);
    return 0;
}

/* One block: schema, columns, names. */
static struct attribute_schema *copy_columns(const struct quire_column *columns, uint32_t n)
{
    size_t bytes = sizeof(struct attribute_schema) + n * sizeof *columns;
    for (uint32_t i = 0; i < n; i++)
        bytes += strlen(columns[i].name) + 1;
    struct attribute_schema *schema = malloc(bytes);
    if (!schema)
        return NULL;
    schema->n = n;
    schema->columns = (struct quire_column *)(schema + 1);
    char *names = (char *)(schema->columns + n);
    for (uint32_t i = 0; i < n; i++) {
        size_t name_bytes = strlen(columns[i].name) + 1;
        schema->columns[i] = columns[i];
        schema->columns[i].name = memcpy(names, columns[i].name, name_bytes);
        names += name_bytes;
    }
    assert((size_t)(names - (char *)schema) == bytes);
    qsort(schema->columns, n, sizeof *columns, compare_columns);
    return schema;
}

int attribute_schema_create(const struct quire_column *columns, uint32_t n, struct attribute_schema **out,
                            struct quire_error *err)
{
    if (n > ATTRIBUTE_COLUMNS_MAX)
        return error_set(err, QUIRE_ELIMIT,
                         "%u columns are declared, the limit is %u: declare only what is filtered by", n,
                         ATTRIBUTE_COLUMNS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        int rc = check_column(&columns[i], err);
        if (rc)
            return rc;
    }
    struct attribute_schema *schema = copy_columns(columns, n);
    if (!schema)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u columns", n);
    for (uint32_t i = 1; i < n; i++)
        if (compare_columns(&schema->columns[i - 1], &schema->columns[i]) == 0) {
            int rc = error_set(err, QUIRE_EEXISTS, "column %s is declared twice: leave one of the two out",
                               schema->columns[i].name);
            attribute_schema_destroy(schema);
            return rc;
        }
    *out = schema;
    return 0;
}

void attribute_schema_destroy(struct attribute_schema *schema)
{
    free(schema);
}

static int compare_name(const char *name, size_t bytes, const char *other)
{
    size_t other_bytes = strlen(other);
    int order = memcmp(name, other, bytes < other_bytes ? bytes : other_bytes);
    return order ? order : (bytes > other_bytes) - (bytes < other_bytes);
}

const struct quire_column *attribute_schema_find(const struct attribute_schema *schema, const char *name,
                                                 size_t name_bytes)
{
    uint32_t low = 0, high = schema ? schema->n : 0;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = compare_name(name, name_bytes, schema->columns[middle].name);
        if (order == 0)
            return &schema->columns[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- its bytes --------------------------------------------------------------------------------------------------- */

uint8_t *attribute_schema_encode(const struct attribute_schema *schema, uint32_t *n_bytes)
{
    size_t bytes = HEAD_BYTES;
    for (uint32_t i = 0; i < schema->n; i++)
        bytes += COLUMN_BYTES + strlen(schema->columns[i].name);
    uint8_t *out = malloc(bytes), *at = out;
    if (!out)
        return NULL;
    bytes_store_u16(at, (uint16_t)schema->n);
    at += HEAD_BYTES;
    for (uint32_t i = 0; i < schema->n; i++) {
        const struct quire_column *column = &schema->columns[i];
        size_t name_bytes = strlen(column->name);
        at[0] = (uint8_t)column->type;
        at[1] = column->indexed;
        at[2] = (uint8_t)name_bytes;
        memcpy(at + COLUMN_BYTES, column->name, name_bytes);
        at += COLUMN_BYTES + name_bytes;
    }
    assert((size_t)(at - out) == bytes);
    *n_bytes = (uint32_t)bytes;
    return out;
}

/* One column at bytes..bytes + left, its name with a zero byte into name; the bytes it takes, or 0: it is damaged. */
static uint32_t decode_column(const uint8_t *bytes, uint32_t left, struct quire_column *out, char *name)
{
    if (left < COLUMN_BYTES)
        return 0;
    uint32_t name_bytes = bytes[2];
    if (bytes[0] > QUIRE_COLUMN_TIMESTAMP || bytes[1] > 1 || name_bytes == 0 || left - COLUMN_BYTES < name_bytes ||
        memchr(bytes + COLUMN_BYTES, 0, name_bytes))
        return 0;
    memcpy(name, bytes + COLUMN_BYTES, name_bytes);
    name[name_bytes] = 0;
    *out = (struct quire_column){.name = name, .type = bytes[0], .indexed = bytes[1]};
    return COLUMN_BYTES + name_bytes;
}

int attribute_schema_decode(const uint8_t *bytes, uint32_t n_bytes, struct attribute_schema **out,
                            struct quire_error *err)
{
    uint32_t n = n_bytes >= HEAD_BYTES ? bytes_load_u16(bytes) : 0, at = HEAD_BYTES;
    int rc = 0;
    if (n_bytes < HEAD_BYTES || n > ATTRIBUTE_COLUMNS_MAX)
        return error_set(err, QUIRE_ECORRUPT, "declared columns: %u bytes with %u columns, at most %u are possible",
                         n_bytes, n, ATTRIBUTE_COLUMNS_MAX);
    struct quire_column *columns = calloc(n + 1, sizeof *columns);
    char *names = malloc((size_t)n_bytes + n + 1), *name = names;
    if (!columns || !names)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %u columns", n);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint32_t taken = decode_column(bytes + at, n_bytes - at, &columns[i], name);
        if (taken == 0 || (i > 0 && compare_columns(&columns[i - 1], &columns[i]) >= 0))
            rc = error_set(err, QUIRE_ECORRUPT, "declared column %u of %u, at byte %u, is damaged", i, n, at);
        at += taken;
        name += taken ? taken - COLUMN_BYTES + 1 : 0;
    }
    if (rc == 0 && at != n_bytes)
        rc = error_set(err, QUIRE_ECORRUPT, "declared columns: %u bytes follow the last of %u", n_bytes - at, n);
    assert(rc < 0 || (size_t)(name - names) <= (size_t)n_bytes + n + 1);
    if (rc == 0)
        rc = attribute_schema_create(columns, n, out, err);
    free(names);
    free(columns);
    return rc;
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

struct time_text {
    const char *at, *end;
    bool wrong;
};

/* `n` digits with a number of low..high. */
static int64_t take_number(struct time_text *t, uint32_t n, int64_t low, int64_t high)
{
    int64_t value = 0;
    for (uint32_t i = 0; i < n && !t->wrong; i++) {
        t->wrong = t->at >= t->end || *t->at < '0' || *t->at > '9';
        if (!t->wrong)
            value = value * 10 + (*t->at++ - '0');
    }
    t->wrong |= value < low || value > high;
    return value;
}

static char take_one_of(struct time_text *t, const char *characters)
{
    t->wrong |= t->at >= t->end || *t->at == 0 || !strchr(characters, *t->at);
    return t->wrong ? 0 : *t->at++;
}

static int64_t take_date(struct time_text *t)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t year = take_number(t, 4, 0, 9999);
    take_one_of(t, "-");
    int64_t month = take_number(t, 2, 1, 12);
    take_one_of(t, "-");
    if (t->wrong)
        return 0;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    int64_t day = take_number(t, 2, 1, days[month - 1] + (month == 2 && leap));
    int64_t y = year + 400 - (month < 3), m = (month + 9) % 12; /* years that begin in March, 400 of them too many */
    return y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 146097 - DAYS_BEFORE_1970;
}

static double take_fraction(struct time_text *t)
{
    double value = 0, scale = 1;
    if (t->at >= t->end || *t->at != '.')
        return 0;
    t->at++;
    value = (double)take_number(t, 1, 0, 9) * (scale /= 10);
    while (!t->wrong && t->at < t->end && *t->at >= '0' && *t->at <= '9')
        value += (*t->at++ - '0') * (scale /= 10);
    return value;
}

static int64_t take_zone(struct time_text *t)
{
    char sign = take_one_of(t, "Zz+-");
    if (t->wrong || sign == 'Z' || sign == 'z')
        return 0;
    int64_t seconds = take_number(t, 2, 0, 23) * 3600;
    take_one_of(t, ":");
    seconds += take_number(t, 2, 0, 59) * 60;
    return sign == '-' ? -seconds : seconds;
}

bool attribute_time(const char *text, size_t bytes, double *seconds)
{
    struct time_text t = {.at = text, .end = bytes ? text + bytes : text};
    int64_t whole = take_date(&t) * SECONDS_PER_DAY;
    double fraction = 0;
    if (!t.wrong && t.at < t.end) {
        take_one_of(&t, "Tt ");
        whole += take_number(&t, 2, 0, 23) * 3600;
        take_one_of(&t, ":");
        whole += take_number(&t, 2, 0, 59) * 60;
        take_one_of(&t, ":");
        whole += take_number(&t, 2, 0, 60);
        fraction = take_fraction(&t);
        whole -= take_zone(&t);
    }
    if (t.wrong || t.at != t.end)
        return false;
    *seconds = (double)whole + fraction;
    return true;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static bool time_value(const struct json_value *value, double *seconds)
{
    char text[TIME_BYTES_MAX * 6];
    if (value->bytes > sizeof text)
        return false;
    return attribute_time(text, json_unescape(value, text), seconds);
}

struct json_value attribute_typed(const struct quire_column *column, struct json_value value)
{
    struct json_value none = {.kind = VALUE_NONE};
    bool is_number = value.kind == VALUE_NUMBER;
    if (!column || value.kind == VALUE_NULL)
        return value;
    switch (column->type) {
    case QUIRE_COLUMN_LEARNT:
        return value;
    case QUIRE_COLUMN_INTEGER:
        return is_number && isfinite(value.number) && floor(value.number) == value.number ? value : none;
    case QUIRE_COLUMN_FLOAT:
        return is_number ? value : none;
    case QUIRE_COLUMN_STRING:
        return value.kind == VALUE_STRING ? value : none;
    case QUIRE_COLUMN_BOOL:
        return value.kind == VALUE_BOOL ? value : none;
    case QUIRE_COLUMN_LIST:
        return value.kind == VALUE_LIST ? value : none;
    case QUIRE_COLUMN_TIMESTAMP:
        if (value.kind == VALUE_STRING && time_value(&value, &none.number))
            none.kind = VALUE_NUMBER;
        return is_number ? value : none;
    }
    return none;
}
