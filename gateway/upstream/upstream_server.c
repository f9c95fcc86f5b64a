/*
 * upstream_server.c - the upstreams of the settings: which fits a model, whose turn it is, which is healthy.
 *
 * Those that name the model come before those that take any. Turns are by smooth weighted round robin (as nginx's):
 * each gets its weight, the one with the most is asked and pays the sum, so weights 5, 1, 1 give a b a c a a a without
 * runs. One that failed `health-fails` times in a row is asked last for `health-pause`, never left out: if all are
 * thought ill one of them may be well by now.
 */
#include "gateway/telemetry/telemetry_log.h"
#include "gateway/upstream/upstream_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <event2/buffer.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void upstream_server_release(struct upstream_server *server)
{
    if (!server || --server->references > 0)
        return;
    free(server->name);
    free(server->origin);
    free(server->prefix);
    free(server->key);
    free(server->health);
    free(server->proxy);
    free(server->ca_file);
    for (uint32_t i = 0; i < server->models.n; i++)
        free(server->models.items[i]);
    free(server->models.items);
    free(server);
}

void upstream_servers_free(struct upstream_server **servers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        upstream_server_release(servers[i]);
    free(servers);
}

static bool copy_models(struct settings_list *to, const struct settings_list *from)
{
    to->items = from->n > 0 ? calloc(from->n, sizeof *to->items) : NULL;
    if (from->n > 0 && !to->items)
        return false;
    for (to->n = 0; to->n < from->n; to->n++) {
        if (!(to->items[to->n] = strdup(from->items[to->n])))
            return false;
    }
    return true;
}

static struct upstream_server *server_create(const struct settings_upstream *u, struct telemetry *telemetry)
{
    struct upstream_server *server = calloc(1, sizeof *server);
    char name[200], labels[300];
    if (!server)
        return NULL;
    server->references = 1;
    size_t origin = (size_t)(strstr(u->url, "://") - u->url) + 3;
    origin += strcspn(u->url + origin, "/");
    server->name = strdup(u->name);
    server->origin = strndup(u->url, origin);
    server->prefix = strdup(u->url + origin);
    server->key = strdup(u->key);
    server->health = strdup(u->health);
    server->proxy = strdup(u->proxy);
    server->ca_file = strdup(u->ca_file);
    server->weight = u->weight;
    if (!server->name || !server->origin || !server->prefix || !server->key || !server->health || !server->proxy ||
        !server->ca_file || !copy_models(&server->models, &u->models)) {
        upstream_server_release(server);
        return NULL;
    }
    telemetry_escape(name, sizeof name, u->name);
    snprintf(labels, sizeof labels, "upstream=\"%s\",outcome=\"answered\"", name);
    server->answered = telemetry_counter(telemetry, "quire_gateway_upstream_requests_total",
                                         "Requests to upstreams, by outcome", labels);
    snprintf(labels, sizeof labels, "upstream=\"%s\",outcome=\"failed\"", name);
    server->failed = telemetry_counter(telemetry, "quire_gateway_upstream_requests_total",
                                       "Requests to upstreams, by outcome", labels);
    snprintf(labels, sizeof labels, "upstream=\"%s\"", name);
    server->running =
        telemetry_gauge(telemetry, "quire_gateway_upstream_running", "Requests to upstreams under way", labels);
    server->head_seconds = telemetry_histogram(telemetry, "quire_gateway_upstream_head_seconds",
                                               "Seconds until an upstream's answer began", labels);
    return server;
}

int upstream_servers_read(const struct settings *settings, struct telemetry *telemetry, struct upstream_server ***out,
                          uint32_t *n, struct quire_error *err)
{
    assert(settings->n_upstreams > 0 && settings->n_upstreams <= SETTINGS_UPSTREAMS_MAX);
    struct upstream_server **servers = calloc(settings->n_upstreams, sizeof *servers);
    for (uint32_t i = 0; servers && i < settings->n_upstreams; i++) {
        servers[i] = server_create(&settings->upstreams[i], telemetry);
        if (!servers[i]) {
            upstream_servers_free(servers, i);
            servers = NULL;
        }
    }
    if (!servers)
        return error_set(err, QUIRE_ENOMEM, "no memory for upstreams");
    *out = servers;
    *n = settings->n_upstreams;
    return 0;
}

/* ---- health ---- */

bool upstream_server_is_healthy(const struct upstream_server *server, uint64_t now_us)
{
    return server->paused_until_us <= now_us;
}

void upstream_server_failed(const struct upstream_set *set, struct upstream_server *server, const char *why)
{
    server->errors++;
    telemetry_add(server->failed, 1);
    if (++server->fails < set->times.health_fails)
        return;
    uint64_t now = clock_us();
    if (upstream_server_is_healthy(server, now))
        telemetry_log(TELEMETRY_WARNING, "upstream %s failed %u times in a row (%s): asked last for %lld ms",
                      server->name, server->fails, why, (long long)set->times.health_pause_ms);
    server->paused_until_us = now + (uint64_t)set->times.health_pause_ms * 1000;
}

void upstream_server_answered(struct upstream_server *server)
{
    if (server->paused_until_us > clock_us())
        telemetry_log(TELEMETRY_NOTICE, "upstream %s answers again", server->name);
    server->fails = 0;
    server->paused_until_us = 0;
}

/* ---- choice ---- */

static bool names_model(const struct upstream_server *server, const char *model)
{
    for (uint32_t i = 0; i < server->models.n; i++) {
        if (fnmatch(server->models.items[i], model, 0) == 0)
            return true;
    }
    return false;
}

/* Bits of the servers that fit. */
static uint64_t fitting(const struct upstream_set *set, const char *model)
{
    uint64_t named = 0, any = 0;
    for (uint32_t i = 0; i < set->n_servers; i++) {
        if (set->servers[i]->models.n == 0)
            any |= 1ull << i;
        else if (model && names_model(set->servers[i], model))
            named |= 1ull << i;
    }
    if (named)
        return named;
    return any || model ? any : 1; /* without a model: those that take any, else the first */
}

int upstream_server_choose(const struct upstream_set *set, const char *model, uint64_t tried)
{
    uint64_t left = fitting(set, model) & ~tried, healthy = 0, now = clock_us();
    for (uint32_t i = 0; i < set->n_servers; i++) {
        if ((left >> i & 1) && upstream_server_is_healthy(set->servers[i], now))
            healthy |= 1ull << i;
    }
    if (healthy)
        left = healthy;
    int best = -1;
    int64_t sum = 0;
    for (uint32_t i = 0; i < set->n_servers; i++) {
        struct upstream_server *server = set->servers[i];
        if (!(left >> i & 1))
            continue;
        server->turn += server->weight;
        sum += server->weight;
        if (best < 0 || server->turn > set->servers[best]->turn)
            best = (int)i;
    }
    if (best >= 0)
        set->servers[best]->turn -= sum;
    return best;
}

static const struct upstream_server *first_fitting(const struct upstream_set *set, const char *model)
{
    uint64_t fits = fitting(set, model);
    return fits ? set->servers[__builtin_ctzll(fits)] : NULL;
}

const char *upstream_group(const struct upstream_set *set, const char *model)
{
    const struct upstream_server *server = first_fitting(set, model);
    return server ? server->name : NULL;
}

bool upstream_has_key(const struct upstream_set *set, const char *model)
{
    const struct upstream_server *server = first_fitting(set, model);
    return server && *server->key;
}

char *upstream_server_target(const struct upstream_server *server, const char *target)
{
    const char *prefix = server->prefix;
    size_t n = strlen(prefix);
    /* "https://host/v1" and "/v1/models": clients differ in whether their base URL has it */
    if (n >= 3 && strcmp(prefix + n - 3, "/v1") == 0 && strncmp(target, "/v1", 3) == 0 &&
        (target[3] == '/' || target[3] == '?' || target[3] == 0))
        target += 3;
    size_t bytes = n + strlen(target) + 2;
    char *joined = malloc(bytes);
    if (joined)
        snprintf(joined, bytes, "%s%s%s", prefix, *prefix || *target == '/' || *target == '*' ? "" : "/", target);
    return joined;
}

uint64_t upstream_errors(const struct upstream_set *set)
{
    uint64_t errors = 0;
    for (uint32_t i = 0; i < set->n_servers; i++)
        errors += set->servers[i]->errors;
    return errors;
}

int upstream_describe(const struct upstream_set *set, struct json_t *list)
{
    uint64_t now = clock_us();
    for (uint32_t i = 0; i < set->n_servers; i++) {
        const struct upstream_server *server = set->servers[i];
        json_t *object = json_pack("{s:s, s:b, s:I, s:I, s:I}", "name", server->name, "healthy",
                                   (int)upstream_server_is_healthy(server, now), "running",
                                   (json_int_t)telemetry_value(server->running), "calls", (json_int_t)server->calls,
                                   "errors", (json_int_t)server->errors);
        if (json_array_append_new(list, object) < 0)
            return QUIRE_ENOMEM;
    }
    return 0;
}
