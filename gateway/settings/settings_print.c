/* settings_print.c - the settings for people: as help, and as a file that could be read again. */
#include "gateway/settings/settings_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

void settings_print_help(FILE *out)
{
    char allowed[400], shown[200];
    struct settings *defaults = calloc(1, sizeof *defaults);
    for (uint32_t i = 0; defaults && i < settings_rows_n; i++) {
        const struct settings_row *row = &settings_rows[i];
        if (row->kind == SETTINGS_PART) {
            fprintf(out, "\n%s\n", row->name);
            continue;
        }
        if (settings_set_default(defaults, row, NULL) < 0)
            break;
        settings_allowed(row, allowed, sizeof allowed);
        settings_show(row, defaults, shown, sizeof shown);
        fprintf(out, "  %-22s %s\n  %-22s (%s; default %s)\n", row->name, row->help, "", allowed,
                row->kind == SETTINGS_LIST ? (*row->words ? row->words : "none")
                : *shown                   ? shown
                                           : "none");
    }
    settings_destroy(defaults);
    fprintf(
        out,
        "\nLists of objects\n"
        "  %-22s model servers: [{\"name\", \"url\", \"key\" or \"key-file\", \"models\": [\"gpt-*\"], \"weight\",\n"
        "  %-22s \"health\": \"/health\", \"proxy\", \"ca-file\"}]; only url is needed\n"
        "  %-22s rules for categories, the first that fits: [{\"category\", \"path\", \"model\", \"tenant\", "
        "\"system\"}]\n",
        "upstreams", "", "routes");
}

static const char *const kinds[] = {
    [SETTINGS_TEXT] = "text",     [SETTINGS_SECRET] = "text", [SETTINGS_LIST] = "texts",
    [SETTINGS_NUMBER] = "number", [SETTINGS_BYTES] = "size",  [SETTINGS_TIME] = "time",
    [SETTINGS_REAL] = "real",     [SETTINGS_BOOL] = "choice", [SETTINGS_CHOICE] = "choice",
};

static json_t *words_json(const char *words)
{
    json_t *array = json_array();
    while (*words) {
        size_t bytes = strcspn(words, "|");
        json_array_append_new(array, json_stringn(words, bytes));
        words += bytes + (words[bytes] == '|');
    }
    return array;
}

json_t *settings_describe(void)
{
    char allowed[400], shown[200];
    const char *part = "";
    struct settings *defaults = calloc(1, sizeof *defaults);
    json_t *rows = defaults ? json_array() : NULL;
    for (uint32_t i = 0; rows && i < settings_rows_n; i++) {
        const struct settings_row *row = &settings_rows[i];
        if (row->kind == SETTINGS_PART) {
            part = row->name;
            continue;
        }
        if (settings_set_default(defaults, row, NULL) < 0)
            break;
        settings_allowed(row, allowed, sizeof allowed);
        settings_show(row, defaults, shown, sizeof shown);
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b}", "name", row->name, "part", part, "kind",
                                   kinds[row->kind], "help", row->help, "allowed", allowed, "default",
                                   row->kind == SETTINGS_LIST ? row->words : shown, "secret",
                                   row->kind == SETTINGS_SECRET, "repeatable", row->kind == SETTINGS_LIST);
        if (row->kind == SETTINGS_BOOL || row->kind == SETTINGS_CHOICE)
            json_object_set_new(object, "choices", words_json(row->kind == SETTINGS_BOOL ? "true|false" : row->words));
        json_array_append_new(rows, object);
    }
    settings_destroy(defaults);
    return rows;
}

static json_t *list_json(const struct settings_list *list)
{
    json_t *array = json_array();
    for (uint32_t i = 0; array && i < list->n; i++)
        json_array_append_new(array, json_string(list->items[i]));
    return array;
}

static json_t *value_json(const struct settings *settings, const struct settings_row *row)
{
    const void *field = settings_field(settings, row);
    char text[100];
    switch (row->kind) {
    case SETTINGS_LIST:
        return list_json(field);
    case SETTINGS_NUMBER:
        return json_integer(*(const int64_t *)field);
    case SETTINGS_REAL:
        return json_real(*(const double *)field);
    case SETTINGS_BOOL:
        return json_boolean(*(const bool *)field);
    case SETTINGS_TEXT:
        return json_string(*(char *const *)field);
    default:
        settings_show(row, settings, text, sizeof text);
        return json_string(text);
    }
}

static json_t *upstream_json(const struct settings_upstream *u)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:i, s:s, s:s, s:s}", "name", u->name, "url", u->url, "key",
                     *u->key ? SETTINGS_MASK : "", "models", list_json(&u->models), "weight", (int)u->weight, "health",
                     u->health, "proxy", u->proxy, "ca-file", u->ca_file);
}

static json_t *route_json(const struct settings_route *route)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "category", route->category, "path", route->path, "model",
                     route->model, "tenant", route->tenant, "system", route->system);
}

int settings_print(const struct settings *settings, FILE *out, struct quire_error *err)
{
    json_t *file = json_object(), *upstreams = json_array(), *routes = json_array();
    int failed = !file || !upstreams || !routes;
    for (uint32_t i = 0; !failed && i < settings_rows_n; i++) {
        const struct settings_row *row = &settings_rows[i];
        if (row->kind != SETTINGS_PART)
            failed = json_object_set_new(file, row->name, value_json(settings, row));
    }
    for (uint32_t i = 0; !failed && i < settings->n_upstreams; i++)
        failed = json_array_append_new(upstreams, upstream_json(&settings->upstreams[i]));
    for (uint32_t i = 0; !failed && i < settings->n_routes; i++)
        failed = json_array_append_new(routes, route_json(&settings->routes[i]));
    failed = failed || json_object_set(file, "upstreams", upstreams) || json_object_set(file, "routes", routes) ||
             json_dumpf(file, out, JSON_INDENT(2)) != 0 || fputc('\n', out) == EOF;
    json_decref(file);
    json_decref(upstreams);
    json_decref(routes);
    return failed ? error_set(err, QUIRE_ENOMEM, "the settings could not be printed") : 0;
}
