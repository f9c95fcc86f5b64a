/*
 * proxy.c - everything that is open, and what a request comes to first.
 *
 * The gateway's own paths are /health, /metrics and (setting ui) /ui, on the clients' listeners, or on one of their own
 * (metrics-listen): then an upstream's paths of these names can be reached again. All else is the flow's (flow.h), or,
 * where no upstream is named (setting console), nobody's.
 *
 * A stop: no new connections; requests may go on for stop-timeout, and answers be put; then streams get an error in
 * them, what has no head yet a 503; a second later what is left is closed.
 */
#include "gateway/proxy/proxy.h"
#include "gateway/console/console.h"
#include "gateway/encode/encode.h"
#include "gateway/http/http.h"
#include "gateway/proxy/flow.h"
#include "gateway/proxy/proxy_log.h"
#include "gateway/proxy/refusal.h"
#include "gateway/settings/settings.h"
#include "gateway/telemetry/telemetry.h"
#include "gateway/telemetry/telemetry_log.h"
#include "gateway/upstream/upstream.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define STOP_LOOK_MS  20u   /* how often a stop looks whether all have ended */
#define STOP_AFTER_MS 1000u /* for the errors that end the last streams to be sent */

struct proxy {
    struct event_base *base;
    struct settings *settings;
    struct telemetry *telemetry;
    struct upstream_set *upstreams; /* NULL, as is the flow: there is only the console */
    struct flow *flow;
    struct console *console;          /* NULL: the setting ui is no */
    struct http_server *server, *own; /* own: that of metrics-listen; NULL: the other serves its paths */
    struct telemetry_counter *connections, *requests, *bodies, *resident;
    /* a stop */
    struct event stop;
    uint64_t stop_us;
    bool stopping, ended;
    void (*drained)(void *context);
    void *drained_context;
};

/* ---- the gateway's own paths ---- */

static void answer_buffer(struct http_request *r, int status, const char *type, struct evbuffer *body)
{
    struct fields fields = {0};
    if (fields_append(&fields, "Content-Type", type) && fields_append(&fields, "Cache-Control", "no-store")) {
        http_head(r, status, &fields, (int64_t)evbuffer_get_length(body));
        http_data_move(r, body);
        http_end(r);
    } else
        http_abort(r);
    fields_fini(&fields);
}

static int add_dumped(const char *text, size_t bytes, void *out)
{
    return evbuffer_add(out, text, bytes);
}

/* Adds members to an object. */
static int describe(const struct proxy *proxy, json_t *root)
{
    json_t *upstreams = json_array();
    json_t *head = json_pack("{s:s, s:s, s:i, s:i, s:O?}", "status", proxy->stopping ? "stopping" : "ok", "version",
                             QUIRE_VERSION_STRING, "connections", (int)http_server_connections(proxy->server),
                             "requests", (int)http_server_requests(proxy->server), "upstreams", upstreams);
    bool ok = upstreams && head && json_object_update(root, head) == 0 &&
              (!proxy->flow ||
               (upstream_describe(proxy->upstreams, upstreams) == 0 && flow_describe(proxy->flow, root) == 0));
    json_decref(upstreams);
    json_decref(head);
    return ok ? 0 : QUIRE_ENOMEM;
}

static int describe_for_console(void *context, struct json_t *out)
{
    return describe(context, out);
}

static uint32_t connections_for_console(void *context)
{
    const struct proxy *proxy = context;
    return http_server_connections(proxy->server);
}

static void failures_for_console(void *context, uint64_t *upstreams, uint64_t *encoder)
{
    const struct proxy *proxy = context;
    struct encode_state state = {0};
    if (proxy->flow && flow_encoder(proxy->flow))
        encode_state(flow_encoder(proxy->flow), &state);
    *upstreams = proxy->upstreams ? upstream_errors(proxy->upstreams) : 0;
    *encoder = state.failures;
}

static int print_health(const struct proxy *proxy, struct evbuffer *out)
{
    json_t *root = json_object();
    bool ok = root && describe(proxy, root) == 0 && json_dump_callback(root, add_dumped, out, JSON_COMPACT) == 0 &&
              evbuffer_add(out, "\n", 1) == 0;
    json_decref(root);
    return ok ? 0 : QUIRE_ENOMEM;
}

static void answer_health(struct proxy *proxy, struct http_request *r)
{
    struct evbuffer *body = evbuffer_new();
    if (body && print_health(proxy, body) == 0)
        answer_buffer(r, proxy->stopping ? 503 : 200, "application/json", body);
    else
        http_abort(r);
    if (body)
        evbuffer_free(body);
}

static void answer_metrics(struct proxy *proxy, struct http_request *r)
{
    struct memory_resident resident;
    struct evbuffer *body = evbuffer_new();
    telemetry_set(proxy->connections, (int64_t)http_server_connections(proxy->server));
    telemetry_set(proxy->requests, (int64_t)http_server_requests(proxy->server));
    telemetry_set(proxy->bodies, (int64_t)http_server_body_bytes(proxy->server));
    memory_resident(&resident);
    telemetry_set(proxy->resident, (int64_t)resident.total);
    if (body && telemetry_write(proxy->telemetry, body) == 0)
        answer_buffer(r, 200, "text/plain; version=0.0.4", body);
    else
        http_abort(r);
    if (body)
        evbuffer_free(body);
}

static bool is_path(const struct http_request *r, const char *path)
{
    size_t n;
    const char *text = http_path(r, &n);
    return n == strlen(path) && memcmp(text, path, n) == 0;
}

/* True: it is answered. */
static bool serve_own(struct proxy *proxy, struct http_request *r)
{
    bool reads = strcmp(http_method(r), "GET") == 0 || strcmp(http_method(r), "HEAD") == 0;
    if (reads && is_path(r, "/health"))
        answer_health(proxy, r);
    else if (reads && is_path(r, "/metrics"))
        answer_metrics(proxy, r);
    else
        return proxy->console && console_begin(proxy->console, r);
    return true;
}

/* A page of another origin asks what it may do (CORS). */
static bool serve_preflight(struct proxy *proxy, struct http_request *r)
{
    struct fields fields = {0};
    const char *headers = http_field(r, "Access-Control-Request-Headers");
    if (!*proxy->settings->cors_origin || strcmp(http_method(r), "OPTIONS") != 0 ||
        !http_field(r, "Access-Control-Request-Method"))
        return false;
    if (fields_append(&fields, "Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE") &&
        fields_append(&fields, "Access-Control-Allow-Headers", headers ? headers : "Authorization, Content-Type") &&
        fields_append(&fields, "Access-Control-Max-Age", "86400"))
        http_answer(r, 204, &fields, "", 0);
    else
        http_abort(r);
    fields_fini(&fields);
    return true;
}

/* ---- requests ---- */

static void ended(void *context, struct http_request *r, const struct flow_end *end)
{
    struct proxy *proxy = context;
    const struct console_request seen = {.route = end->route,
                                         .cache = end->cache,
                                         .reason = end->reason,
                                         .category = end->category,
                                         .model = end->model,
                                         .upstream = end->upstream,
                                         .tenant = end->tenant,
                                         .question = end->question,
                                         .similarity = end->similarity,
                                         .tokens_saved = end->tokens_saved,
                                         .cache_us = end->cache_us,
                                         .embed_us = end->embed_us,
                                         .upstream_us = end->upstream_us,
                                         .joined = end->joined,
                                         .client_gone = end->client_gone,
                                         .upstream_failed = end->upstream_failed};
    proxy_log_request(proxy->telemetry, r, end);
    console_request_ended(proxy->console, r, &seen);
}

static void judged(void *context, const struct flow_judged *judged)
{
    struct proxy *proxy = context;
    proxy_log_judged(proxy->telemetry, judged);
    console_judge_asked(proxy->console, judged->prompt_tokens + judged->completion_tokens);
}

static void refuse_others(struct http_request *r)
{
    refusal_answer(r, 404, "not_found", NULL, "there are /health, /metrics and (setting ui) /ui here");
}

static void on_begin(void *context, struct http_request *r)
{
    struct proxy *proxy = context;
    if ((!proxy->own && serve_own(proxy, r)) || serve_preflight(proxy, r))
        return;
    if (!proxy->flow)
        refuse_others(r);
    else
        flow_begin(proxy->flow, r, ended, proxy);
}

static void on_own_begin(void *context, struct http_request *r)
{
    if (!serve_own(context, r))
        refuse_others(r);
}

static void on_nothing(void *context, struct http_request *r)
{
    (void)context;
    (void)r;
}

/* An answer that the server gives itself. */
static void on_error(void *context, int status, const char *text, struct fields *fields, struct evbuffer *body)
{
    struct proxy *proxy = context;
    char labels[40];
    snprintf(labels, sizeof labels, "status=\"%d\"", status);
    telemetry_add(telemetry_counter(proxy->telemetry, "quire_gateway_refused_total",
                                    "Requests that broke a limit or were no HTTP", labels),
                  1);
    if (refusal_json(body, text, refusal_type(status), NULL, NULL) == 0)
        fields_append(fields, "Content-Type", "application/json");
}

/* ---- open, close ---- */

static struct http_options options_of(struct proxy *proxy, const struct settings *s)
{
    return (struct http_options){.head_max = (size_t)s->head_max,
                                 .fields_max = (uint32_t)s->fields_max,
                                 .body_max = (uint64_t)s->body_max,
                                 .bodies_max = (uint64_t)s->bodies_max,
                                 .connections_max = (uint32_t)s->connections_max,
                                 .head_timeout_ms = (uint32_t)s->head_timeout,
                                 .idle_timeout_ms = (uint32_t)s->idle_timeout,
                                 .body_timeout_ms = (uint32_t)s->body_timeout,
                                 .write_timeout_ms = (uint32_t)s->write_timeout,
                                 .tls_cert = *s->tls_cert_file ? s->tls_cert_file : NULL,
                                 .tls_key = *s->tls_key_file ? s->tls_key_file : NULL,
                                 .reuse_port = s->reuse_port,
                                 .backlog = (int)s->backlog,
                                 .allow_origin = *s->cors_origin ? s->cors_origin : NULL,
                                 .error = on_error,
                                 .error_context = proxy};
}

static void take_levels(const struct settings *s)
{
    static const enum telemetry_level levels[] = {TELEMETRY_DEBUG, TELEMETRY_NOTICE, TELEMETRY_WARNING,
                                                  TELEMETRY_ERROR};
    telemetry_log_level(levels[s->log_level]);
}

static void on_stop(evutil_socket_t fd, short what, void *context);

static int open_console(struct proxy *proxy, const struct settings *settings, struct quire_error *err)
{
    struct console_options options = {.encode = proxy->flow ? flow_encoder(proxy->flow) : NULL,
                                      .describe = describe_for_console,
                                      .connections = connections_for_console,
                                      .failures = failures_for_console,
                                      .context = proxy};
    return console_create(proxy->base, settings, &options, &proxy->console, err);
}

int proxy_create(struct event_base *base, struct settings *settings, struct proxy **out, struct quire_error *err)
{
    static const struct http_handlers handlers = {on_begin, on_nothing, on_nothing, on_nothing, on_nothing};
    static const struct http_handlers own = {on_own_begin, on_nothing, on_nothing, on_nothing, on_nothing};
    struct proxy *proxy = calloc(1, sizeof *proxy);
    if (!proxy)
        return error_set(err, QUIRE_ENOMEM, "no memory for the gateway");
    proxy->base = base;
    evtimer_assign(&proxy->stop, base, on_stop, proxy);
    take_levels(settings);
    struct http_options options = options_of(proxy, settings);
    int rc = telemetry_create(&proxy->telemetry, err);
    if (rc == 0)
        rc = telemetry_access_open(settings->access_log, err);
    if (rc == 0 && settings->n_upstreams > 0)
        rc = upstream_set_create(base, settings, proxy->telemetry, &proxy->upstreams, err);
    if (rc == 0 && settings->n_upstreams > 0)
        rc = flow_create(base, settings, proxy->upstreams, proxy->telemetry, &proxy->flow, err);
    if (rc == 0 && proxy->flow)
        flow_on_judged(proxy->flow, judged, proxy);
    if (rc == 0 && settings->ui != SETTINGS_UI_NO)
        rc = open_console(proxy, settings, err);
    if (rc == 0)
        rc = http_server_create(base, &options, &handlers, proxy, &proxy->server, err);
    if (rc == 0 && *settings->metrics_listen) {
        options.tls_cert = options.tls_key = NULL;
        rc = http_server_create(base, &options, &own, proxy, &proxy->own, err);
    }
    if (rc < 0) {
        proxy_destroy(proxy);
        return rc;
    }
    proxy->settings = settings;
    struct telemetry *t = proxy->telemetry;
    proxy->connections = telemetry_gauge(t, "quire_gateway_connections", "Clients connected", "");
    proxy->requests = telemetry_gauge(t, "quire_gateway_requests_running", "Requests under way", "");
    proxy->bodies = telemetry_gauge(t, "quire_gateway_body_bytes", "Bodies of requests that wait to be passed on", "");
    proxy->resident = telemetry_gauge(t, "quire_gateway_resident_bytes", "Memory that the kernel counts", "");
    telemetry_set(telemetry_gauge(t, "quire_gateway_start_time_seconds", "When the gateway was started", ""),
                  (int64_t)(clock_wall_ms() / 1000));
    *out = proxy;
    return 0;
}

void proxy_destroy(struct proxy *proxy)
{
    if (!proxy)
        return;
    event_del(&proxy->stop);
    http_server_destroy(proxy->own);
    http_server_destroy(proxy->server); /* each request hears `gone`, and cancels what it has upstream */
    console_destroy(proxy->console);
    flow_destroy(proxy->flow);
    upstream_set_destroy(proxy->upstreams);
    telemetry_destroy(proxy->telemetry);
    telemetry_access_close();
    settings_destroy(proxy->settings);
    free(proxy);
}

static bool is_local(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 || strncmp(address, "unix:", 5) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

int proxy_listen(struct proxy *proxy, struct quire_error *err)
{
    const struct settings *s = proxy->settings;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < s->listen.n; i++) {
        const char *address = s->listen.items[i];
        rc = http_server_listen(proxy->server, address, err);
        if (rc == 0 && !is_local(address) && !*s->keys)
            telemetry_log(TELEMETRY_WARNING,
                          "listens on %s without a file of keys (setting keys): whoever reaches this address may ask "
                          "the upstreams, with the keys that these settings have for them",
                          address);
    }
    if (rc == 0 && proxy->own)
        rc = http_server_listen(proxy->own, s->metrics_listen, err);
    return rc;
}

int proxy_reload(struct proxy *proxy, struct settings *settings, struct quire_error *err)
{
    char fixed[SETTINGS_FIXED_BYTES];
    struct http_options old = options_of(proxy, proxy->settings), options = options_of(proxy, settings);
    int rc = http_server_set(proxy->server, &options, err);
    if (rc < 0)
        return rc;
    rc = telemetry_access_open(settings->access_log, err);
    if (rc == 0 && proxy->flow && settings->n_upstreams == 0)
        rc = error_set(err, QUIRE_EINVALID, "no upstream, where there were some: that takes a restart");
    if (rc == 0 && proxy->flow)
        rc = upstream_set_reload(proxy->upstreams, settings, err);
    if (rc == 0 && proxy->flow && (rc = flow_reload(proxy->flow, settings, err)) < 0)
        upstream_set_reload(proxy->upstreams, proxy->settings, NULL);
    if (rc < 0) {
        http_server_set(proxy->server, &old, NULL);
        return rc;
    }
    settings_fixed_differences(proxy->settings, settings, fixed, sizeof fixed);
    if (*fixed)
        telemetry_log(TELEMETRY_WARNING, "changed, and in force only after a restart: %s", fixed);
    take_levels(settings);
    console_reload(proxy->console, settings);
    settings_destroy(proxy->settings);
    proxy->settings = settings;
    return 0;
}

/* ---- the stop ---- */

static void end_request(void *context, struct http_request *r)
{
    (void)context;
    if (!http_is_open(r))
        return;
    if (http_status(r) == 0)
        refusal_answer(r, 503, "stopping", NULL, "the gateway is being stopped");
    else
        refusal_in_stream(r, "server_error", "the gateway is being stopped");
}

static void on_stop(evutil_socket_t fd, short what, void *context)
{
    struct proxy *proxy = context;
    (void)fd;
    (void)what;
    uint64_t now = clock_us(), end = proxy->stop_us + (uint64_t)proxy->settings->stop_timeout * 1000;
    uint32_t left = http_server_requests(proxy->server);
    if (left > 0 && now >= end && !proxy->ended) {
        telemetry_log(TELEMETRY_WARNING, "%u requests are ended after stop-timeout", left);
        proxy->ended = true;
        http_server_each(proxy->server, end_request, proxy);
    }
    bool late = proxy->ended && now >= end + STOP_AFTER_MS * 1000;
    bool keeping = proxy->flow && flow_keeping(proxy->flow) > 0 && now < end;
    if ((left == 0 && !keeping) || late) {
        proxy->drained(proxy->drained_context);
        return;
    }
    struct timeval tv = {0, STOP_LOOK_MS * 1000};
    evtimer_add(&proxy->stop, &tv);
}

void proxy_stop(struct proxy *proxy, void (*drained)(void *context), void *context)
{
    assert(!proxy->stopping);
    proxy->stopping = true;
    proxy->drained = drained;
    proxy->drained_context = context;
    proxy->stop_us = clock_us();
    http_server_drain(proxy->server);
    struct timeval tv = {0, 0};
    evtimer_add(&proxy->stop, &tv);
}

void proxy_console_url(const struct proxy *proxy, char *out, size_t out_bytes)
{
    const struct settings *s = proxy->settings;
    const char *address = proxy->own ? s->metrics_listen : s->listen.items[0], *colon = strrchr(address, ':');
    unsigned port = http_server_port(proxy->own ? proxy->own : proxy->server);
    int host = colon ? (int)(colon - address) : 0;
    if (host == 0 || strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0 ||
        strncmp(address, "unix:", 5) == 0) {
        address = "127.0.0.1";
        host = (int)strlen(address);
    }
    snprintf(out, out_bytes, "%s://%.*s:%u/ui", !proxy->own && *s->tls_cert_file ? "https" : "http", host, address,
             port);
}

unsigned proxy_port(const struct proxy *proxy)
{
    return http_server_port(proxy->server);
}
