/*
 * upstream.c - calls: their beginning, which upstream is tried after which, their times, their end.
 *
 * A try that could not connect is followed by one to the next upstream: not a byte of the request has been sent then,
 * and owners hear nothing of it. Every call ends by `done`, exactly once, or by upstream_cancel.
 *
 * libcurl counts the time to connect; the other times are ours, as they depend on what has come and on whether the
 * owner pauses. The timer is set once and looks at the deadline when it fires: a stream of 10,000 pieces moves it
 * never.
 */
#include "gateway/telemetry/telemetry_log.h"
#include "gateway/upstream/upstream_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <event2/buffer.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void free_call(struct upstream_call *call)
{
    struct upstream_set *set = call->set;
    upstream_easy_end(call);
    evtimer_del(&call->timer);
    if (call->previous)
        call->previous->next = call->next;
    else
        set->calls = call->next;
    if (call->next)
        call->next->previous = call->previous;
    set->n_calls--;
    struct upstream_call **at = &set->kicked;
    while (call->kicked && *at && *at != call)
        at = &(*at)->next_kicked;
    if (call->kicked && *at)
        *at = call->next_kicked;
    if (call->server) {
        telemetry_add(call->server->running, -1);
        call->server->asked_health = call->server->asked_health && !call->health;
    }
    upstream_server_release(call->server);
    fields_fini(&call->fields);
    fields_fini(&call->head);
    if (call->body)
        evbuffer_free(call->body);
    free(call->method);
    free(call->target);
    free(call->url);
    free(call->model);
    free(call);
}

/* ---- times ---- */

/* When the call has waited too long; UINT64_MAX while its owner pauses it. */
static uint64_t deadline_of(const struct upstream_call *call)
{
    const struct upstream_times *times = &call->set->times;
    uint64_t total = call->total_timeout_ms ? call->started_us + (uint64_t)call->total_timeout_ms * 1000 : UINT64_MAX;
    uint64_t other;
    if (call->head_done)
        other = call->paused ? UINT64_MAX : call->heard_us + (uint64_t)times->silence_ms * 1000;
    else {
        uint64_t ms = (uint64_t)times->answer_ms;
        if (call->head_timeout_ms > 0 && call->head_timeout_ms < ms)
            ms = call->head_timeout_ms;
        /* while a long body is being sent the answer cannot begin */
        other = (call->body_whole || !call->has_body ? call->started_us : call->heard_us) + ms * 1000;
    }
    return other < total ? other : total;
}

static void watch(struct upstream_call *call)
{
    uint64_t now = clock_us(), deadline = deadline_of(call);
    uint64_t left = deadline > now ? deadline - now : 1;
    /* looked at again after a silence at the latest: a head, a byte and a resume move the deadline, not the timer */
    uint64_t silence = (uint64_t)call->set->times.silence_ms * 1000;
    left = left < silence ? left : silence;
    struct timeval tv = {(time_t)(left / 1000000), (suseconds_t)(left % 1000000)};
    evtimer_add(&call->timer, &tv);
}

static void finish(struct upstream_call *call, enum upstream_outcome outcome, const char *message);

static void on_call_timer(evutil_socket_t fd, short what, void *context)
{
    struct upstream_call *call = context;
    char message[160];
    (void)fd;
    (void)what;
    uint64_t now = clock_us();
    if (deadline_of(call) > now) {
        watch(call);
        return;
    }
    bool silent = call->head_done;
    if (silent)
        snprintf(message, sizeof message, "nothing came for %" PRIu64 " ms", (now - call->heard_us) / 1000);
    else
        snprintf(message, sizeof message, "no answer began within %" PRIu64 " ms", (now - call->started_us) / 1000);
    bool total = call->total_timeout_ms && now - call->started_us >= (uint64_t)call->total_timeout_ms * 1000;
    finish(call, silent && !total ? UPSTREAM_SILENT : UPSTREAM_TIMEOUT, message);
}

/* ---- ends ---- */

/* Health and figures of one try's end. */
static void judge(struct upstream_call *call, enum upstream_outcome outcome, const char *message)
{
    struct upstream_server *server = call->server;
    if (!server)
        return;
    bool refused = call->head_done && call->status >= 502 && call->status <= 504;
    if (call->health)
        refused = call->head_done && (call->status < 200 || call->status > 299);
    if (outcome == UPSTREAM_FAILED)
        return;
    if (outcome == UPSTREAM_WHOLE && !refused) {
        telemetry_add(server->answered, 1);
        upstream_server_answered(server);
    } else if (call->health) {
        server->fails = call->set->times.health_fails; /* the operator named the path: one answer is enough */
        upstream_server_failed(call->set, server, message ? message : "its health path does not answer 200");
        /* until it is asked again, whichever of the two times is longer */
        uint64_t twice = clock_us() + 2000 * (uint64_t)call->set->times.health_interval_ms;
        if (server->paused_until_us < twice)
            server->paused_until_us = twice;
    } else
        upstream_server_failed(call->set, server, message ? message : "it answers 502, 503 or 504");
}

static void finish(struct upstream_call *call, enum upstream_outcome outcome, const char *message)
{
    uint64_t now = clock_us();
    double connect_s = 0;
    if (call->easy)
        curl_easy_getinfo(call->easy, CURLINFO_CONNECT_TIME, &connect_s);
    struct upstream_result result = {.outcome = outcome,
                                     .message = message ? message : "",
                                     .upstream = upstream_name(call),
                                     .connect_us = (uint64_t)(connect_s * 1e6),
                                     .head_us = call->head_done ? call->head_us - call->started_us : 0,
                                     .total_us = now - call->started_us,
                                     .bytes = call->bytes};
    if (outcome != UPSTREAM_UNREACHABLE) /* counted with each try */
        judge(call, outcome, message);
    if (outcome != UPSTREAM_WHOLE && !call->health)
        telemetry_log(TELEMETRY_NOTICE, "upstream %s: %s", result.upstream, result.message);
    /* the connection goes back to the pool, or is closed, before its owner starts the next call */
    upstream_easy_end(call);
    const struct upstream_events *events = call->events;
    call->events = NULL;
    if (events)
        events->done(call->context, call, &result);
    free_call(call);
}

static int next_try(struct upstream_call *call, struct quire_error *err);

/* Whether nothing of the request can have reached the upstream. */
static bool is_unsent(struct upstream_call *call, CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return true;
    case CURLE_OPERATION_TIMEDOUT: {
        long sent = 0;
        curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &sent);
        return sent == 0;
    }
    default:
        return false;
    }
}

void upstream_call_ended(struct upstream_call *call, CURLcode code)
{
    char message[CURL_ERROR_SIZE + 64];
    struct quire_error err = {0};
    if (call->cancelled) {
        free_call(call);
        return;
    }
    if (code == CURLE_OK && call->head_done) {
        finish(call, UPSTREAM_WHOLE, NULL);
        return;
    }
    snprintf(message, sizeof message, "%s",
             call->broken   ? call->broken
             : *call->error ? call->error
                            : curl_easy_strerror(code));
    if (!is_unsent(call, code)) {
        finish(call, code == CURLE_OUT_OF_MEMORY ? UPSTREAM_FAILED : UPSTREAM_BROKEN, message);
        return;
    }
    if (call->server) {
        upstream_server_failed(call->set, call->server, message);
        telemetry_log(TELEMETRY_NOTICE, "upstream %s: no connection: %s", call->server->name, message);
    }
    if (call->url || call->health || next_try(call, &err) < 0)
        finish(call, UPSTREAM_UNREACHABLE, message);
}

void upstream_call_kicked(struct upstream_call *call)
{
    if (call->cancelled) {
        free_call(call);
        return;
    }
    if (!call->in_multi) {
        call->in_multi = curl_multi_add_handle(call->set->multi, call->easy) == CURLM_OK;
        if (!call->in_multi)
            finish(call, UPSTREAM_FAILED, "libcurl does not take the request");
        return;
    }
    bool wants = call->has_body && !call->body_ended && !call->body_asked && evbuffer_get_length(call->body) == 0;
    if (wants && call->events && call->events->wants) {
        call->body_asked = true; /* once, until something comes */
        call->events->wants(call->context, call);
    }
    if (call->cancelled)
        return; /* kicked again by upstream_cancel */
    bool feed = call->body_starved && (call->body_ended || evbuffer_get_length(call->body) > 0);
    bool resume = call->held && !call->paused;
    if (!feed && !resume)
        return;
    call->body_starved = call->body_starved && !feed;
    call->held = call->held && !resume;
    call->heard_us = clock_us();
    /* may call on_data at once; how it ends is collected afterwards */
    curl_easy_pause(call->easy, (call->held ? CURLPAUSE_RECV : 0) | (call->body_starved ? CURLPAUSE_SEND : 0));
}

/* ---- beginnings ---- */

/* Asks the next upstream that fits. */
static int next_try(struct upstream_call *call, struct quire_error *err)
{
    struct upstream_set *set = call->set;
    if (!call->url && !call->health) {
        int place = upstream_server_choose(set, call->model, call->tried);
        if (place < 0)
            return error_set(err, QUIRE_ENOTFOUND, "no upstream takes the model %s", call->model ? call->model : "");
        upstream_easy_end(call);
        if (call->server)
            telemetry_add(call->server->running, -1);
        upstream_server_release(call->server);
        call->server = set->servers[place];
        call->server->references++;
        call->tried |= 1ull << place;
    }
    if (call->server) {
        call->server->calls++;
        telemetry_add(call->server->running, 1);
    }
    int rc = upstream_easy_begin(call, err);
    if (rc == 0)
        upstream_loop_kick(call); /* who starts a call may be within one of libcurl's callbacks */
    return rc;
}

static struct upstream_call *create_call(struct upstream_set *set, const struct upstream_request *request)
{
    struct upstream_call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->set = set;
    call->next = set->calls;
    if (call->next)
        call->next->previous = call;
    set->calls = call;
    set->n_calls++;
    evtimer_assign(&call->timer, set->base, on_call_timer, call);
    call->started_us = call->heard_us = clock_us();
    call->method = strdup(request->method);
    call->target = request->target ? strdup(request->target) : NULL;
    call->url = request->url ? strdup(request->url) : NULL;
    call->model = request->model ? strdup(request->model) : NULL;
    call->body = evbuffer_new();
    call->own_key = request->own_key;
    call->has_body = request->body != NULL;
    call->body_whole = call->body_ended = request->body_whole;
    call->body_bytes = request->body_bytes;
    call->head_timeout_ms = request->head_timeout_ms;
    call->total_timeout_ms = request->total_timeout_ms;
    bool ok = call->method && call->body && (call->target || call->url) && (!request->target || call->target) &&
              (!request->url || call->url) && (!request->model || call->model);
    for (uint32_t i = 0; ok && request->fields && i < request->fields->n; i++)
        ok = fields_append(&call->fields, fields_name(request->fields, i), fields_value(request->fields, i));
    if (ok && request->body)
        ok = evbuffer_add_buffer(call->body, request->body) == 0;
    if (!ok) {
        free_call(call);
        return NULL;
    }
    return call;
}

struct upstream_call *upstream_start(struct upstream_set *set, const struct upstream_request *request,
                                     const struct upstream_events *events, void *context, struct quire_error *err)
{
    assert(request->method && (request->target || request->url) && events->done);
    struct upstream_call *call = create_call(set, request);
    if (!call) {
        error_set(err, QUIRE_ENOMEM, "no memory for a request to an upstream");
        return NULL;
    }
    if (next_try(call, err) < 0) {
        free_call(call);
        return NULL;
    }
    call->events = events;
    call->context = context;
    watch(call);
    return call;
}

void upstream_own(struct upstream_call *call, const struct upstream_events *events, void *context)
{
    call->events = events;
    call->context = context;
}

void upstream_pause(struct upstream_call *call)
{
    call->paused = true;
}

void upstream_resume(struct upstream_call *call)
{
    call->paused = false;
    call->heard_us = clock_us();
    if (call->held)
        upstream_loop_kick(call);
}

void upstream_body(struct upstream_call *call, struct evbuffer *more, bool end)
{
    assert(call->has_body && !call->body_whole && !call->body_ended);
    if (more && evbuffer_add_buffer(call->body, more) != 0)
        telemetry_log(TELEMETRY_WARNING, "no memory for a body; its request will fail");
    call->body_ended = end;
    if (evbuffer_get_length(call->body) > 0)
        call->body_asked = false;
    if (call->body_starved && (end || !call->body_asked))
        upstream_loop_kick(call);
}

size_t upstream_body_waiting(const struct upstream_call *call)
{
    return evbuffer_get_length(call->body);
}

void upstream_cancel(struct upstream_call *call)
{
    call->cancelled = true;
    call->events = NULL;
    upstream_loop_kick(call);
}

const char *upstream_name(const struct upstream_call *call)
{
    return call->server ? call->server->name : call->url ? call->url : "";
}

/* ---- the set ---- */

static void health_done(void *context, struct upstream_call *call, const struct upstream_result *result)
{
    (void)context; /* judge has seen it */
    (void)call;
    (void)result;
}

static void ask_health(struct upstream_set *set, struct upstream_server *server)
{
    static const struct upstream_events events = {.done = health_done};
    struct upstream_request request = {
        .method = "GET", .target = server->health, .total_timeout_ms = (uint32_t)set->times.health_interval_ms};
    struct quire_error err = {0};
    struct upstream_call *call = create_call(set, &request);
    if (!call)
        return;
    call->health = true;
    call->server = server;
    server->references++;
    server->asked_health = true;
    if (next_try(call, &err) < 0) {
        free_call(call);
        return;
    }
    call->events = &events;
    watch(call);
}

static void on_health(evutil_socket_t fd, short what, void *context)
{
    struct upstream_set *set = context;
    (void)fd;
    (void)what;
    for (uint32_t i = 0; i < set->n_servers; i++) {
        struct upstream_server *server = set->servers[i];
        if (*server->health && !server->asked_health)
            ask_health(set, server);
    }
    struct timeval tv = {(time_t)(set->times.health_interval_ms / 1000),
                         (suseconds_t)(set->times.health_interval_ms % 1000 * 1000)};
    evtimer_add(&set->health, &tv);
}

static void take_settings(struct upstream_set *set, const struct settings *settings)
{
    set->times = (struct upstream_times){.connect_ms = settings->connect_timeout,
                                         .answer_ms = settings->answer_timeout,
                                         .silence_ms = settings->silence_timeout,
                                         .health_pause_ms = settings->health_pause,
                                         .health_interval_ms = settings->health_interval,
                                         .health_fails = (uint32_t)settings->health_fails};
    curl_multi_setopt(set->multi, CURLMOPT_MAXCONNECTS, (long)settings->upstream_idle);
    curl_multi_setopt(set->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)settings->upstream_connections);
    on_health(-1, 0, set);
}

int upstream_set_create(struct event_base *base, const struct settings *settings, struct telemetry *telemetry,
                        struct upstream_set **out, struct quire_error *err)
{
    struct upstream_set *set = calloc(1, sizeof *set);
    if (!set)
        return error_set(err, QUIRE_ENOMEM, "no memory for upstreams");
    set->base = base;
    set->telemetry = telemetry;
    evtimer_assign(&set->health, base, on_health, set);
    int rc = upstream_loop_init(set, err);
    if (rc == 0)
        rc = upstream_servers_read(settings, telemetry, &set->servers, &set->n_servers, err);
    if (rc < 0) {
        upstream_loop_fini(set);
        free(set);
        return rc;
    }
    take_settings(set, settings);
    *out = set;
    return 0;
}

int upstream_set_reload(struct upstream_set *set, const struct settings *settings, struct quire_error *err)
{
    struct upstream_server **servers;
    uint32_t n;
    int rc = upstream_servers_read(settings, set->telemetry, &servers, &n, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < set->n_servers; k++) {
            const struct upstream_server *old = set->servers[k];
            if (strcmp(old->name, servers[i]->name) == 0 && strcmp(old->origin, servers[i]->origin) == 0) {
                servers[i]->fails = old->fails;
                servers[i]->paused_until_us = old->paused_until_us;
                servers[i]->calls = old->calls;
                servers[i]->errors = old->errors;
            }
        }
    }
    /* calls that run have seen other places than the new ones: they try nobody else */
    for (struct upstream_call *call = set->calls; call; call = call->next)
        call->tried = UINT64_MAX;
    upstream_servers_free(set->servers, set->n_servers);
    set->servers = servers;
    set->n_servers = n;
    take_settings(set, settings);
    return 0;
}

void upstream_set_destroy(struct upstream_set *set)
{
    if (!set)
        return;
    for (struct upstream_call *call = set->calls, *next; call; call = next) {
        next = call->next;
        call->events = NULL;
        free_call(call);
    }
    event_del(&set->health);
    upstream_loop_fini(set);
    upstream_servers_free(set->servers, set->n_servers);
    free(set);
}

uint32_t upstream_set_calls(const struct upstream_set *set)
{
    return set->n_calls;
}
