/*
 * top_json.c - the same figures as a frame, none of them rounded.
 *
 * Counters and levels have the names and the values of INFO, so that whoever knows one knows the other. A rate that is
 * not known is null, a field that the server does not have is missing. Names are printable ASCII (top_info.c), which
 * is UTF-8 whatever the server sent.
 */
#include "tools/top/top_json.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static bool put(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

/* A new object in another; NULL without memory. The other owns it. */
static json_t *put_object(json_t *object, const char *name)
{
    json_t *value = json_object();
    return put(object, name, value) ? value : NULL;
}

static json_t *count_of(enum top_kind kind, uint64_t value)
{
    if (kind == TOP_CPU)
        return json_real((double)value * 1e-6);
    return json_integer(value <= INT64_MAX ? (json_int_t)value : INT64_MAX);
}

static bool put_numbers(json_t *line, const struct top_shown *shown)
{
    json_t *info = put_object(line, "info"), *rates = put_object(line, "per_second");
    bool ok = info && rates;
    for (unsigned i = 0; i < TOP_N_NUMBERS && ok; i++) {
        const struct top_field *field = &top_info_numbers[i];
        if (!shown->info->present[i])
            continue;
        ok = put(info, field->name, count_of(field->kind, shown->info->values[i]));
        if (field->kind != TOP_LEVEL)
            ok = ok && put(rates, field->name, number(shown->rates->number[i]));
    }
    return ok;
}

/* What screen and JSON compute of more than one figure. */
static bool put_derived(json_t *line, const struct top_shown *shown)
{
    const struct top_rates *r = shown->rates;
    json_t *latency = put_object(line, "search_latency_us"), *lookups = put_object(line, "lookup_shares");
    bool ok =
        latency && lookups && put(latency, "p50", number(shown->info->latency_us[0])) &&
        put(latency, "p99", number(shown->info->latency_us[1])) &&
        put(latency, "p99.9", number(shown->info->latency_us[2])) &&
        put(line, "search_mean_us", number(r->search_us)) &&
        put(line, "reads_per_search", number(top_rates_share(r->number[TOP_search_reads], r->number[TOP_searches]))) &&
        put(line, "lookups_per_second", number(r->lookups));
    for (unsigned i = 0; i < TOP_N_LOOKUPS && ok; i++)
        ok = put(lookups, top_rates_lookup_names[i], number(top_rates_share(r->lookup[i], r->lookups)));
    return ok;
}

static json_t *row_of(const struct top_shown *shown, enum top_table table, uint32_t at)
{
    unsigned n;
    const struct top_field *fields = top_info_fields(table, &n);
    const struct top_row *row = &shown->info->rows[table][at];
    json_t *object = json_object(), *rates = object ? put_object(object, "per_second") : NULL;
    bool ok = rates && put(object, "name", json_string(row->name));
    if (table == TOP_TENANTS)
        ok = ok && put(object, "is_user", json_boolean(row->is_user));
    for (unsigned i = 0; i < n && ok; i++) {
        if (!top_info_row_has(row, i))
            continue;
        ok = put(object, fields[i].name, count_of(fields[i].kind, row->values[i]));
        if (fields[i].kind == TOP_COUNT)
            ok = ok && put(rates, fields[i].name, number(top_rates_row(shown->rates, table, at, i)));
    }
    ok = ok && put(object, "share", number(top_rates_row_share(shown->rates, table, at)));
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

static bool put_tables(json_t *line, const struct top_shown *shown)
{
    static const char *const names[TOP_N_TABLES] = {
        [TOP_TENANTS] = "tenant_rows", [TOP_CACHES] = "cache_rows", [TOP_COMMANDS] = "command_rows"};
    for (unsigned table = 0; table < TOP_N_TABLES; table++) {
        json_t *rows = json_array();
        if (!put(line, names[table], rows))
            return false;
        for (uint32_t i = 0; i < shown->info->n_rows[table]; i++)
            if (json_array_append_new(rows, row_of(shown, (enum top_table)table, i)) != 0)
                return false;
    }
    return true;
}

static bool put_server(json_t *line, const struct top_shown *shown)
{
    const char *reason = top_rates_reason(shown->rates->state);
    return put(line, "quire_version", json_string(shown->info->quire_version)) &&
           put(line, "run_id", json_string(shown->info->run_id)) &&
           put(line, "seconds", number(shown->rates->seconds)) &&
           put(line, "no_rates", reason ? json_string(reason) : json_null()) && put_numbers(line, shown) &&
           put_derived(line, shown) && put_tables(line, shown);
}

/* The server's address and a message may hold bytes that are no UTF-8: a path. */
static json_t *text_of(const char *text)
{
    json_t *value = json_string(text);
    return value ? value : json_string("(not UTF-8)");
}

void top_json_write(const struct top_shown *shown, uint64_t time_ms, struct top_output_text *out)
{
    json_t *line = json_object();
    bool connected = !shown->problem;
    bool ok = line && put(line, "time_ms", json_integer((json_int_t)time_ms)) &&
              put(line, "server", text_of(shown->server)) && put(line, "connected", json_boolean(connected));
    if (connected)
        ok = ok && put_server(line, shown);
    else
        ok = ok && put(line, "problem", text_of(shown->problem));
    char *text = ok ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    out->failed = out->failed || !text;
    if (text) {
        top_canvas_add(out, text, strlen(text));
        top_canvas_add(out, "\n", 1);
    }
    free(text);
    json_decref(line);
}
