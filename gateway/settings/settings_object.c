/*
 * settings_object.c - the two settings that are lists of objects: upstreams and routes.
 *
 * A key may stand in a file of its own ("key-file"), so that the settings can be shown to more people than the key.
 */
#include "gateway/settings/settings_priv.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 4096

int settings_check_url(const char *setting, const char *url, struct quire_error *err)
{
    const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;
    if (!host || !*host || *host == '/' || *host == ':')
        return error_set(err, QUIRE_EINVALID, "%s: %.200s is not a URL (http://127.0.0.1:8000, https://host/v1)",
                         setting, url);
    for (const char *c = url; *c; c++) {
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f || strchr("?#\\\"<>", *c))
            return error_set(err, QUIRE_EINVALID, "%s: %.200s holds a character that no base URL has, at byte %zu",
                             setting, url, (size_t)(c - url));
    }
    if (memchr(host, '@', strcspn(host, "/")))
        return error_set(err, QUIRE_EINVALID,
                         "%s: no user or password in a URL; an upstream's \"key\" is sent as Bearer", setting);
    return 0;
}

static void upstream_clear(struct settings_upstream *u)
{
    free(u->name);
    free(u->url);
    free(u->key);
    free(u->health);
    free(u->proxy);
    free(u->ca_file);
    settings_list_clear(&u->models);
}

static void route_clear(struct settings_route *route)
{
    free(route->category);
    free(route->path);
    free(route->model);
    free(route->tenant);
    free(route->system);
}

void settings_upstreams_clear(struct settings *settings)
{
    for (uint32_t i = 0; i < settings->n_upstreams; i++)
        upstream_clear(&settings->upstreams[i]);
    free(settings->upstreams);
    settings->upstreams = NULL;
    settings->n_upstreams = 0;
}

static void clear_routes(struct settings *settings)
{
    for (uint32_t i = 0; i < settings->n_routes; i++)
        route_clear(&settings->routes[i]);
    free(settings->routes);
    settings->routes = NULL;
    settings->n_routes = 0;
}

void settings_objects_clear(struct settings *settings)
{
    settings_upstreams_clear(settings);
    clear_routes(settings);
}

/* The text of a member; *field must be one from malloc. */
static int take_text(char **field, const char *what, const char *name, const json_t *value, struct quire_error *err)
{
    const char *text = json_string_value(value);
    if (!text)
        return error_set(err, QUIRE_EINVALID, "%s: %s is not a text", what, name);
    char *copy = strdup(text);
    if (!copy)
        return error_set(err, QUIRE_ENOMEM, "no memory for %s", what);
    free(*field);
    *field = copy;
    return 0;
}

/* The first line of a file. */
static int read_key(char **field, const char *path, struct quire_error *err)
{
    char line[KEY_BYTES];
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set_errno(err, errno, "read key-file", path);
    bool ok = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    line[ok ? strcspn(line, "\r\n") : 0] = 0;
    if (!line[0])
        return error_set(err, QUIRE_EINVALID, "key-file %s: no key in its first line", path);
    char *copy = strdup(line);
    if (!copy)
        return error_set(err, QUIRE_ENOMEM, "no memory for a key");
    free(*field);
    *field = copy;
    return 0;
}

static int take_models(struct settings_upstream *u, const json_t *value, struct quire_error *err)
{
    const char *one = json_string_value(value);
    int rc =
        one || json_is_array(value) ? 0 : error_set(err, QUIRE_EINVALID, "upstreams: models is not a list of texts");
    settings_list_clear(&u->models);
    if (one)
        rc = settings_list_add(&u->models, "models", one, strlen(one), err);
    for (size_t i = 0; rc == 0 && i < json_array_size(value); i++) {
        const char *item = json_string_value(json_array_get(value, i));
        rc = item ? settings_list_add(&u->models, "models", item, strlen(item), err)
                  : error_set(err, QUIRE_EINVALID, "upstreams: entry %zu of models is not a text", i);
    }
    return rc;
}

static int upstream_member(struct settings_upstream *u, const char *name, const json_t *value, struct quire_error *err)
{
    struct {
        const char *name;
        char **field;
    } texts[] = {{"name", &u->name},     {"url", &u->url},     {"key", &u->key},
                 {"health", &u->health}, {"proxy", &u->proxy}, {"ca-file", &u->ca_file}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(name, texts[i].name) == 0)
            return take_text(texts[i].field, "upstreams", name, value, err);
    }
    if (strcmp(name, "key-file") == 0)
        return json_is_string(value) ? read_key(&u->key, json_string_value(value), err)
                                     : error_set(err, QUIRE_EINVALID, "upstreams: key-file is not a text");
    if (strcmp(name, "models") == 0)
        return take_models(u, value, err);
    if (strcmp(name, "weight") == 0) {
        json_int_t weight = json_integer_value(value);
        if (!json_is_integer(value) || weight < 1 || weight > 1000)
            return error_set(err, QUIRE_EINVALID, "upstreams: weight is not a whole number from 1 to 1000");
        u->weight = (uint32_t)weight;
        return 0;
    }
    return error_set(err, QUIRE_EINVALID,
                     "upstreams: %s is not known, or not of its type; there are name, url, key, key-file, models, "
                     "weight, health, proxy, ca-file",
                     name);
}

/* Defaults of what was not given. */
static int upstream_complete(struct settings_upstream *u, struct quire_error *err)
{
    char **texts[] = {&u->name, &u->key, &u->health, &u->proxy, &u->ca_file};
    if (!u->url)
        return error_set(err, QUIRE_EINVALID, "upstreams: one has no url");
    int rc = settings_check_url("upstreams: url", u->url, err);
    if (rc < 0)
        return rc;
    size_t n = strlen(u->url);
    while (u->url[n - 1] == '/') /* there is a host before it */
        u->url[--n] = 0;
    if (!u->name) {
        const char *host = strstr(u->url, "://") + 3;
        u->name = strndup(host, strcspn(host, "/"));
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!*texts[i] && !(*texts[i] = strdup("")))
            return error_set(err, QUIRE_ENOMEM, "no memory for upstreams");
    }
    if (u->weight == 0)
        u->weight = 1;
    if (*u->health && *u->health != '/')
        return error_set(err, QUIRE_EINVALID, "upstreams: health %s is not a path (/health)", u->health);
    if (strcmp(u->key, SETTINGS_MASK) == 0)
        return error_set(err, QUIRE_EINVALID, "upstreams: key " SETTINGS_MASK " stands where a key is not shown");
    for (const char *c = u->key; *c; c++) {
        if (!isprint((unsigned char)*c))
            return error_set(err, QUIRE_EINVALID, "upstreams: the key of %s holds a character that no header may have",
                             u->name);
    }
    return 0;
}

static int append_upstream(struct settings *settings, struct settings_upstream *u, struct quire_error *err)
{
    int rc = upstream_complete(u, err);
    for (uint32_t i = 0; rc == 0 && i < settings->n_upstreams; i++) {
        if (strcmp(settings->upstreams[i].name, u->name) == 0)
            rc = error_set(err, QUIRE_EEXISTS, "upstreams: two have the name %s; give each a \"name\"", u->name);
    }
    if (rc == 0 && settings->n_upstreams == SETTINGS_UPSTREAMS_MAX)
        rc = error_set(err, QUIRE_ELIMIT, "upstreams: more than %u", SETTINGS_UPSTREAMS_MAX);
    struct settings_upstream *all =
        rc == 0 ? realloc(settings->upstreams, (settings->n_upstreams + 1) * sizeof *all) : NULL;
    if (rc == 0 && !all)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for upstreams");
    if (rc < 0) {
        upstream_clear(u);
        return rc;
    }
    assert(all);
    settings->upstreams = all;
    settings->upstreams[settings->n_upstreams++] = *u;
    return 0;
}

int settings_set_upstreams(struct settings *settings, const json_t *value, struct quire_error *err)
{
    if (!json_is_array(value))
        return error_set(err, QUIRE_EINVALID, "upstreams: not a list of objects");
    settings_upstreams_clear(settings);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(value); i++) {
        struct settings_upstream u = {0};
        json_t *object = json_array_get(value, i), *member;
        const char *name;
        if (!json_is_object(object))
            return error_set(err, QUIRE_EINVALID, "upstreams: entry %zu is not an object", i);
        json_object_foreach(object, name, member)
        {
            rc = rc == 0 ? upstream_member(&u, name, member, err) : rc;
        }
        if (rc == 0)
            rc = append_upstream(settings, &u, err);
        else
            upstream_clear(&u);
    }
    return rc;
}

int settings_add_upstream(struct settings *settings, const char *url, struct quire_error *err)
{
    struct settings_upstream u = {.url = strdup(url)};
    return u.url ? append_upstream(settings, &u, err) : error_set(err, QUIRE_ENOMEM, "no memory for upstreams");
}

static int route_member(struct settings_route *route, const char *name, const json_t *value, struct quire_error *err)
{
    struct {
        const char *name;
        char **field;
    } texts[] = {{"category", &route->category},
                 {"path", &route->path},
                 {"model", &route->model},
                 {"tenant", &route->tenant},
                 {"system", &route->system}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(name, texts[i].name) == 0)
            return take_text(texts[i].field, "routes", name, value, err);
    }
    return error_set(err, QUIRE_EINVALID, "routes: %s is not known; there are category, path, model, tenant, system",
                     name);
}

int settings_set_routes(struct settings *settings, const json_t *value, struct quire_error *err)
{
    if (!json_is_array(value) || json_array_size(value) > SETTINGS_ROUTES_MAX)
        return error_set(err, QUIRE_EINVALID, "routes: not a list of at most %u objects", SETTINGS_ROUTES_MAX);
    clear_routes(settings);
    size_t n = json_array_size(value);
    if (n > 0 && !(settings->routes = calloc(n, sizeof *settings->routes)))
        return error_set(err, QUIRE_ENOMEM, "no memory for routes");
    settings->n_routes = (uint32_t)n;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct settings_route *route = &settings->routes[i];
        json_t *object = json_array_get(value, i), *member;
        const char *name;
        if (!json_is_object(object))
            return error_set(err, QUIRE_EINVALID, "routes: entry %zu is not an object", i);
        json_object_foreach(object, name, member)
        {
            rc = rc == 0 ? route_member(route, name, member, err) : rc;
        }
        if (rc == 0 && (!route->category || !*route->category))
            rc = error_set(err, QUIRE_EINVALID, "routes: entry %zu has no category", i);
        char **texts[] = {&route->path, &route->model, &route->tenant, &route->system};
        for (size_t k = 0; rc == 0 && k < sizeof texts / sizeof *texts; k++) {
            if (!*texts[k] && !(*texts[k] = strdup("")))
                rc = error_set(err, QUIRE_ENOMEM, "no memory for routes");
        }
    }
    return rc;
}
