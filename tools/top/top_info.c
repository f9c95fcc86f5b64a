/*
 * top_info.c - INFO, line by line: "name:value", and rows as "tenant7:name=...,weight=...".
 *
 * Nothing of the text is trusted: a number is digits that fit 64 bits or it is absent, a name keeps its printable ASCII
 * only (so that no byte of it can move a terminal's cursor or break a line of JSON), a row is counted as left out
 * beyond TOP_ROWS_MAX, and a field that comes twice has its last value. What is unknown is passed over: INFO may grow.
 */
#include "tools/top/top_info.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name, kind) {#name, kind},
const struct top_field top_info_numbers[TOP_N_NUMBERS] = {TOP_NUMBERS(X)};
static const struct top_field tenant_fields[] = {TOP_TENANT_FIELDS(X)};
static const struct top_field cache_fields[] = {TOP_CACHE_FIELDS(X)};
static const struct top_field command_fields[] = {TOP_COMMAND_FIELDS(X)};
#undef X

static const struct {
    const char *prefix; /* of the line; tenants and caches: digits follow, commands: the name */
    const struct top_field *fields;
    unsigned n;
} tables[TOP_N_TABLES] = {
    [TOP_TENANTS] = {"tenant", tenant_fields, TOP_N_TENANT_FIELDS},
    [TOP_CACHES] = {"cache", cache_fields, TOP_N_CACHE_FIELDS},
    [TOP_COMMANDS] = {"cmdstat_", command_fields, TOP_N_COMMAND_FIELDS},
};
_Static_assert(TOP_N_TENANT_FIELDS <= TOP_FIELDS_MAX && TOP_N_CACHE_FIELDS <= TOP_FIELDS_MAX &&
                   TOP_N_COMMAND_FIELDS <= TOP_FIELDS_MAX,
               "a row has room for its fields");

const struct top_field *top_info_fields(enum top_table table, unsigned *n)
{
    assert(table < TOP_N_TABLES);
    *n = tables[table].n;
    return tables[table].fields;
}

struct span {
    const char *text;
    size_t bytes;
};

static bool span_is(struct span s, const char *text)
{
    return strlen(text) == s.bytes && memcmp(s.text, text, s.bytes) == 0;
}

/* Up to the separator, which is passed over; without one the rest. */
static struct span take_until(struct span *rest, char separator)
{
    const char *end = rest->bytes ? memchr(rest->text, separator, rest->bytes) : NULL;
    struct span taken = {rest->text, end ? (size_t)(end - rest->text) : rest->bytes};
    size_t passed = taken.bytes + (end != NULL);
    *rest = (struct span){rest->text + passed, rest->bytes - passed};
    return taken;
}

static bool read_count(struct span s, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < s.bytes; i++) {
        unsigned digit = (unsigned)(unsigned char)s.text[i] - '0';
        if (digit > 9 || value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return s.bytes > 0;
}

/* "12.345678" seconds as microseconds. */
static bool read_seconds(struct span s, uint64_t *out)
{
    uint64_t seconds, part = 0, unit = 1000000;
    struct span whole = take_until(&s, '.');
    if (!read_count(whole, &seconds) || seconds > UINT64_MAX / 2000000)
        return false;
    if (s.bytes > 6 || (s.bytes > 0 && !read_count(s, &part)))
        return false;
    for (size_t i = 0; i < s.bytes; i++)
        unit /= 10;
    *out = seconds * 1000000 + part * unit;
    return true;
}

static void copy_name(struct span s, char *out, size_t capacity)
{
    size_t n = s.bytes < capacity - 1 ? s.bytes : capacity - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = s.text[i] >= ' ' && s.text[i] < 0x7f ? s.text[i] : '?';
    out[n] = 0;
}

static void set_number(struct top_info *info, const char *name, struct span value)
{
    for (unsigned i = 0; i < TOP_N_NUMBERS; i++)
        if (strcmp(top_info_numbers[i].name, name) == 0)
            info->present[i] = top_info_numbers[i].kind == TOP_CPU ? read_seconds(value, &info->values[i])
                                                                   : read_count(value, &info->values[i]);
}

static void set_named_number(struct top_info *info, struct span name, struct span value)
{
    char text[TOP_WORD_BYTES];
    if (name.bytes < sizeof text) {
        copy_name(name, text, sizeof text);
        set_number(info, text, value);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void set_field(struct top_row *row, enum top_table table, struct span name, struct span value)
{
    if (table != TOP_COMMANDS && (span_is(name, "name") || span_is(name, "user"))) {
        copy_name(value, row->name, sizeof row->name);
        row->is_user = table == TOP_TENANTS && span_is(name, "user");
        return;
    }
    for (unsigned i = 0; i < tables[table].n; i++) {
        uint64_t number;
        if (!span_is(name, tables[table].fields[i].name))
            continue;
        row->present &= ~(1u << i);
        if (read_count(value, &number)) {
            row->values[i] = number;
            row->present |= 1u << i;
        }
    }
}

static bool add_row(struct top_info *info, enum top_table table, struct span command, struct span fields)
{
    if (info->n_rows[table] == TOP_ROWS_MAX) {
        info->left_out[table]++;
        return true;
    }
    if (!array_reserve(&info->rows[table], &info->capacity[table], (size_t)info->n_rows[table] + 1))
        return false;
    struct top_row *row = &info->rows[table][info->n_rows[table]++];
    *row = (struct top_row){0};
    if (table == TOP_COMMANDS)
        copy_name(command, row->name, sizeof row->name);
    while (fields.bytes > 0) {
        struct span value = take_until(&fields, ','), name = take_until(&value, '=');
        set_field(row, table, name, value);
    }
    return true;
}

/* Whether a line of this name is a row of the table; *rest is what follows the prefix. */
static bool is_row(struct span name, enum top_table table, struct span *rest)
{
    size_t bytes = strlen(tables[table].prefix);
    uint64_t number;
    if (name.bytes <= bytes || memcmp(name.text, tables[table].prefix, bytes) != 0)
        return false;
    *rest = (struct span){name.text + bytes, name.bytes - bytes};
    return table == TOP_COMMANDS || read_count(*rest, &number);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* "p50=410,p99=2300,p99.9=8100". */
static void read_latency(struct top_info *info, struct span fields)
{
    static const char *const names[] = {"p50", "p99", "p99.9"};
    while (fields.bytes > 0) {
        struct span value = take_until(&fields, ','), name = take_until(&value, '=');
        uint64_t us;
        for (unsigned i = 0; i < 3; i++)
            if (span_is(name, names[i]) && read_count(value, &us))
                info->latency_us[i] = (double)us;
    }
}

/* "keys=12,expires=0,avg_ttl=0". */
static void read_keyspace(struct top_info *info, struct span fields)
{
    while (fields.bytes > 0) {
        struct span value = take_until(&fields, ','), name = take_until(&value, '=');
        if (span_is(name, "keys"))
            set_number(info, "keys", value);
    }
}

static bool read_line(struct top_info *info, struct span line)
{
    struct span value = line, name = take_until(&value, ':'), rest;
    if (name.bytes == line.bytes || line.text[0] == '#')
        return true;
    for (unsigned table = 0; table < TOP_N_TABLES; table++)
        if (is_row(name, (enum top_table)table, &rest))
            return add_row(info, (enum top_table)table, rest, value);
    if (span_is(name, "quire_version"))
        copy_name(value, info->quire_version, sizeof info->quire_version);
    else if (span_is(name, "run_id"))
        copy_name(value, info->run_id, sizeof info->run_id);
    else if (span_is(name, "search_latency_us"))
        read_latency(info, value);
    else if (span_is(name, "db0"))
        read_keyspace(info, value);
    else if (!span_is(name, "keys"))
        set_named_number(info, name, value);
    return true;
}

static void clear(struct top_info *info)
{
    info->quire_version[0] = info->run_id[0] = 0;
    memset(info->present, 0, sizeof info->present);
    memset(info->n_rows, 0, sizeof info->n_rows);
    memset(info->left_out, 0, sizeof info->left_out);
    for (unsigned i = 0; i < 3; i++)
        info->latency_us[i] = (double)NAN;
}

int top_info_parse(const char *text, size_t bytes, struct top_info *out, struct quire_error *err)
{
    struct span rest = {text, bytes};
    clear(out);
    while (rest.bytes > 0) {
        struct span line = take_until(&rest, '\n');
        line.bytes -= line.bytes > 0 && line.text[line.bytes - 1] == '\r';
        if (line.bytes > 0 && !read_line(out, line)) {
            clear(out);
            return error_set(err, QUIRE_ENOMEM, "no memory for an INFO of %zu bytes", bytes);
        }
    }
    return 0;
}

void top_info_fini(struct top_info *info)
{
    for (unsigned i = 0; i < TOP_N_TABLES; i++) {
        free(info->rows[i]);
        info->rows[i] = NULL;
    }
}
