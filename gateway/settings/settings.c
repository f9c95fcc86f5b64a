/*
 * settings.c - the table, and one reading of all settings: defaults, file, command line, then what must agree.
 */
#include "gateway/settings/settings.h"
#include "gateway/settings/settings_priv.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct settings, field)

const struct settings_row settings_rows[] = {
#define SETTING_PART(title) {.kind = SETTINGS_PART, .name = title},
#define SETTING_TEXT(field, name_, def, help_)                                                                         \
    {.kind = SETTINGS_TEXT, .name = name_, .help = help_, .offset = AT(field), .words = def},
#define SETTING_SECRET(field, name_, help_)                                                                            \
    {.kind = SETTINGS_SECRET, .name = name_, .help = help_, .offset = AT(field), .words = ""},
#define SETTING_LIST(field, name_, def, help_)                                                                         \
    {.kind = SETTINGS_LIST, .name = name_, .help = help_, .offset = AT(field), .words = def},
#define WHOLE(kind_, field, name_, def, min_, max_, help_)                                                             \
    {.kind = kind_, .name = name_, .help = help_, .offset = AT(field), .number = def, .min = min_, .max = max_},
#define SETTING_NUMBER(field, name, def, min, max, help) WHOLE(SETTINGS_NUMBER, field, name, def, min, max, help)
#define SETTING_BYTES(field, name, def, min, max, help)  WHOLE(SETTINGS_BYTES, field, name, def, min, max, help)
#define SETTING_TIME(field, name, def, min, max, help)   WHOLE(SETTINGS_TIME, field, name, def, min, max, help)
#define SETTING_REAL(field, name_, def, min_, max_, help_)                                                             \
    {.kind = SETTINGS_REAL,                                                                                            \
     .name = name_,                                                                                                    \
     .help = help_,                                                                                                    \
     .offset = AT(field),                                                                                              \
     .real = def,                                                                                                      \
     .real_min = min_,                                                                                                 \
     .real_max = max_},
#define SETTING_BOOL(field, name_, def, help_)                                                                         \
    {.kind = SETTINGS_BOOL, .name = name_, .help = help_, .offset = AT(field), .number = def},
#define SETTING_CHOICE(field, name_, def, choices, help_)                                                              \
    {.kind = SETTINGS_CHOICE, .name = name_, .help = help_, .offset = AT(field), .words = choices, .number = def},
#include "gateway/settings/settings.def"
};
const uint32_t settings_rows_n = sizeof settings_rows / sizeof *settings_rows;

static const struct settings_row *find_row(const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < settings_rows_n; i++) {
        const struct settings_row *row = &settings_rows[i];
        if (row->kind != SETTINGS_PART && strlen(row->name) == bytes && memcmp(row->name, name, bytes) == 0)
            return row;
    }
    return NULL;
}

void settings_destroy(struct settings *settings)
{
    if (!settings)
        return;
    for (uint32_t i = 0; i < settings_rows_n; i++) {
        const struct settings_row *row = &settings_rows[i];
        void *field = settings_field(settings, row);
        if (row->kind == SETTINGS_TEXT || row->kind == SETTINGS_SECRET)
            free(*(char **)field);
        else if (row->kind == SETTINGS_LIST)
            settings_list_clear(field);
    }
    settings_objects_clear(settings);
    free(settings);
}

static int unknown(const char *name, size_t bytes, struct quire_error *err)
{
    return error_set(err, QUIRE_EINVALID, "%.*s: no such setting; quire-gateway --help lists them all",
                     (int)(bytes < 100 ? bytes : 100), name);
}

static int set_member(struct settings *settings, const char *name, const json_t *value, struct quire_error *err)
{
    if (strcmp(name, "upstreams") == 0)
        return settings_set_upstreams(settings, value, err);
    if (strcmp(name, "routes") == 0)
        return settings_set_routes(settings, value, err);
    const struct settings_row *row = find_row(name, strlen(name));
    return row ? settings_set_json(settings, row, value, err) : unknown(name, strlen(name), err);
}

static int read_file(struct settings *settings, const char *path, struct quire_error *err)
{
    json_error_t reason;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &reason), *member;
    const char *name;
    if (!file)
        return error_set(err, QUIRE_EPARSE, "%s, line %d: %s", path, reason.line, reason.text);
    struct quire_error inner = {0};
    int rc = json_is_object(file) ? 0 : error_set(&inner, QUIRE_EINVALID, "not one JSON object");
    if (rc == 0) {
        json_object_foreach(file, name, member)
        {
            rc = rc == 0 ? set_member(settings, name, member, &inner) : rc;
        }
    }
    json_decref(file);
    return rc < 0 ? error_set(err, rc, "%s: %s", path, inner.message) : 0;
}

/* "name=value" of the command line. */
static int assign(struct settings *settings, const char *text, bool *own_upstreams, struct quire_error *err)
{
    size_t bytes = strcspn(text, "=");
    const char *value = text + bytes + 1;
    if (text[bytes] != '=' || bytes == 0)
        return error_set(err, QUIRE_EINVALID, "%.100s: not name=value", text);
    if (bytes == 8 && memcmp(text, "upstream", 8) == 0) {
        /* those of the command line stand in place of the file's */
        if (!*own_upstreams)
            settings_upstreams_clear(settings);
        *own_upstreams = true;
        return settings_add_upstream(settings, value, err);
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)bytes, text);
    if (*value == '[' || *value == '{') {
        json_error_t reason;
        json_t *json = json_loads(value, JSON_REJECT_DUPLICATES, &reason);
        /* "[::1]:8080" is a text that only looks like JSON */
        if (json) {
            int rc = set_member(settings, name, json, err);
            json_decref(json);
            return rc;
        }
        if (strcmp(name, "upstreams") == 0 || strcmp(name, "routes") == 0)
            return error_set(err, QUIRE_EPARSE, "%s: %s", name, reason.text);
    }
    const struct settings_row *row = find_row(text, bytes);
    return row ? settings_set_text(settings, row, value, err) : unknown(text, bytes, err);
}

static int check_together(const struct settings *s, struct quire_error *err)
{
    if (s->n_upstreams == 0 && !s->console)
        return error_set(err, QUIRE_EINVALID,
                         "no upstream: name the model server, as in --upstream http://127.0.0.1:8000, or --console for "
                         "the page alone");
    if (s->console && s->ui == SETTINGS_UI_NO)
        return error_set(err, QUIRE_EINVALID, "console is true and ui is no: set ui to read or yes");
    if (s->listen.n == 0)
        return error_set(err, QUIRE_EINVALID, "listen: no address");
    if (!*s->tls_cert_file != !*s->tls_key_file)
        return error_set(err, QUIRE_EINVALID, "tls-cert-file and tls-key-file go together, one is missing");
    if (s->body_max > s->bodies_max)
        return error_set(err, QUIRE_EINVALID, "body-max is more than bodies-max, so that one body could take all");
    if (s->key_body_max > s->body_max)
        return error_set(err, QUIRE_EINVALID, "key-body-max is more than body-max");
    if (*s->embed_url && *s->embed_file)
        return error_set(err, QUIRE_EINVALID, "embed-url and embed-file: only one of them");
    if (*s->embed_url)
        return settings_check_url("embed-url", s->embed_url, err);
    return 0;
}

int settings_read(const char *file, const char *const *assigned, uint32_t n, struct settings **out,
                  struct quire_error *err)
{
    struct settings *settings = calloc(1, sizeof *settings);
    if (!settings)
        return error_set(err, QUIRE_ENOMEM, "no memory for the settings");
    int rc = 0;
    bool own_upstreams = false;
    for (uint32_t i = 0; rc == 0 && i < settings_rows_n; i++)
        rc = settings_set_default(settings, &settings_rows[i], err);
    if (rc == 0 && file)
        rc = read_file(settings, file, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = assign(settings, assigned[i], &own_upstreams, err);
    if (rc == 0)
        rc = check_together(settings, err);
    if (rc < 0)
        settings_destroy(settings);
    else
        *out = settings;
    return rc;
}

static bool lists_differ(const struct settings_list *a, const struct settings_list *b)
{
    bool differ = a->n != b->n;
    for (uint32_t i = 0; i < a->n && !differ; i++)
        differ = strcmp(a->items[i], b->items[i]) != 0;
    return differ;
}

static bool reals_differ(double a, double b)
{
    return a < b || a > b;
}

void settings_fixed_differences(const struct settings *old, const struct settings *new, char *out, size_t out_bytes)
{
    const struct {
        const char *name;
        bool differs;
    } fixed[] = {{"listen", lists_differ(&old->listen, &new->listen)},
                 {"port-file", strcmp(old->port_file, new->port_file) != 0},
                 {"metrics-listen", strcmp(old->metrics_listen, new->metrics_listen) != 0},
                 {"reuse-port", old->reuse_port != new->reuse_port},
                 {"ui (from no)", old->ui == SETTINGS_UI_NO && new->ui != SETTINGS_UI_NO},
                 {"upstreams (from or to none)", !old->n_upstreams != !new->n_upstreams},
                 {"backlog", old->backlog != new->backlog},
                 {"tls-cert-file (from or to none)", !*old->tls_cert_file != !*new->tls_cert_file},
                 {"cache-on (from false)", !old->cache_on && new->cache_on},
                 {"server", strcmp(old->server, new->server) != 0},
                 {"server-user", strcmp(old->server_user, new->server_user) != 0},
                 {"server-password", strcmp(old->server_password, new->server_password) != 0},
                 {"server-ca-file", strcmp(old->server_ca_file, new->server_ca_file) != 0},
                 {"server-connections", old->server_connections != new->server_connections},
                 {"server-failures", old->server_failures != new->server_failures},
                 {"server-pause", old->server_pause != new->server_pause},
                 {"cache", strcmp(old->cache, new->cache) != 0},
                 {"category (if it is to be made)", strcmp(old->category, new->category) != 0},
                 {"category-settings", strcmp(old->category_settings, new->category_settings) != 0},
                 {"exact-category (if it is to be made)", strcmp(old->exact_category, new->exact_category) != 0},
                 {"exact-settings", strcmp(old->exact_settings, new->exact_settings) != 0},
                 {"ttl", old->ttl != new->ttl},
                 {"similarity", new->similarity > 0 && reals_differ(old->similarity, new->similarity)},
                 {"risk", new->risk > 0 && reals_differ(old->risk, new->risk)},
                 {"embed-url", strcmp(old->embed_url, new->embed_url) != 0},
                 {"embed-model", strcmp(old->embed_model, new->embed_model) != 0},
                 {"embed-key", strcmp(old->embed_key, new->embed_key) != 0},
                 {"embed-dim", old->embed_dim != new->embed_dim},
                 {"embed-prefix", strcmp(old->embed_prefix, new->embed_prefix) != 0},
                 {"embed-file", strcmp(old->embed_file, new->embed_file) != 0},
                 {"embed-timeout", old->embed_timeout != new->embed_timeout},
                 {"embed-text-max", old->embed_text_max != new->embed_text_max},
                 {"embed-cache", old->embed_cache != new->embed_cache},
                 {"secret-file", strcmp(old->secret_file, new->secret_file) != 0}};
    size_t n = 0;
    *out = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed && n < out_bytes; i++) {
        if (fixed[i].differs)
            n += (size_t)snprintf(out + n, out_bytes - n, "%s%s", n > 0 ? ", " : "", fixed[i].name);
    }
}
