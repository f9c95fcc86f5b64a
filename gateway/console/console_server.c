/* console_server.c - the view of the server: what was slow, who is connected, which settings differ. */
#include "gateway/console/console_priv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOW_MAX  "64"
#define LINES_MAX "200" /* of the log */

static json_t *at(const json_t *array, size_t i)
{
    json_t *value = json_array_get(array, i);
    return value ? json_incref(value) : json_null();
}

/* Number, time, microseconds, arguments, client, its name, what a search did. */
static void name_slow(json_t *root)
{
    const json_t *entries = json_object_get(root, "slowlog"), *entry;
    json_t *out = json_array();
    size_t i;
    if (!json_is_array(entries)) {
        json_decref(out);
        return;
    }
    json_array_foreach(entries, i, entry)
    {
        json_array_append_new(out, json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "id", at(entry, 0), "time_ms",
                                             json_integer_value(json_array_get(entry, 1)) * 1000, "us", at(entry, 2),
                                             "command", at(entry, 3), "client", at(entry, 4), "name", at(entry, 5),
                                             "note", at(entry, 6)));
    }
    json_object_set_new(root, "slowlog", out);
}

static void name_latency(json_t *root)
{
    const json_t *events = json_object_get(root, "latency"), *event;
    json_t *out = json_array();
    size_t i;
    if (!json_is_array(events)) {
        json_decref(out);
        return;
    }
    json_array_foreach(events, i, event)
    {
        json_array_append_new(out, json_pack("{s:o, s:I, s:o, s:o}", "event", at(event, 0), "time_ms",
                                             json_integer_value(json_array_get(event, 1)) * 1000, "last_ms",
                                             at(event, 2), "max_ms", at(event, 3)));
    }
    json_object_set_new(root, "latency", out);
}

static void name_settings(json_t *root)
{
    json_t *values = json_object_get(root, "settings"), *value, *out = json_array();
    const char *name;
    if (!values || json_object_get(values, "error")) {
        json_decref(out);
        return;
    }
    json_object_foreach(values, name, value)
    {
        char usual[256];
        bool secret, known = console_default_of(name, usual, sizeof usual, &secret);
        const char *text = json_string_value(value);
        bool set = text && *text;
        json_array_append_new(out, json_pack("{s:s, s:o, s:o, s:b}", "name", name, "value",
                                             secret ? json_string(set ? "***" : "") : json_incref(value), "default",
                                             known ? json_string(usual) : json_null(), "differs",
                                             known && text && strcmp(usual, text) != 0));
    }
    json_object_set_new(root, "settings", out);
}

static void add_own_settings(struct console_job *job)
{
    char *text = NULL;
    size_t n = 0;
    json_error_t error;
    FILE *file = open_memstream(&text, &n);
    bool ok = file && settings_print(job->console->settings, file, NULL) == 0;
    if (file && fclose(file) == 0 && ok)
        json_object_set_new(job->root, "gateway_settings", json_loadb(text, n, 0, &error));
    free(text);
}

static void answer_server(struct console_job *job)
{
    name_slow(job->root);
    name_latency(job->root);
    name_settings(job->root);
    /* the gateway's are for who may see the server's */
    if (json_is_array(json_object_get(job->root, "settings")))
        add_own_settings(job);
}

void console_server_begin(struct console_job *job)
{
    job->next = answer_server;
    console_job_ask(job, NULL, "info", CONSOLE_INFO, "INFO", NULL);
    console_job_ask(job, NULL, "slowlog", 0, "SLOWLOG", "GET", SLOW_MAX, NULL);
    console_job_ask(job, NULL, "latency", 0, "LATENCY", "LATEST", NULL);
    console_job_ask(job, NULL, "histogram", 0, "LATENCY", "HISTOGRAM", NULL);
    console_job_ask(job, NULL, "clients", CONSOLE_CLIENTS, "CLIENT", "LIST", NULL);
    console_job_ask(job, NULL, "settings", 0, "CONFIG", "GET", "*", NULL);
    console_job_ask(job, NULL, "log", 0, "LOGTAIL", LINES_MAX, NULL);
}
