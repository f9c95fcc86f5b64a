/* upstream_priv.h - what the files of gateway/upstream share: servers, the set of them, a call. */
#ifndef QUIRE_GATEWAY_UPSTREAM_PRIV_H
#define QUIRE_GATEWAY_UPSTREAM_PRIV_H

#include "gateway/settings/settings.h"
#include "gateway/telemetry/telemetry.h"
#include "gateway/upstream/upstream.h"
#include <curl/curl.h>
#include <event2/event.h>
#include <event2/event_struct.h>

/* One upstream. Calls hold references, so that a reload may drop it while they run. */
struct upstream_server {
    uint32_t references;
    char *name, *origin, *prefix; /* "http://host:port", "/v1" or "" */
    char *key, *health, *proxy, *ca_file;
    struct settings_list models;
    uint32_t weight;
    int64_t turn; /* of the weighted round robin */
    /* health */
    uint32_t fails; /* in a row */
    uint64_t paused_until_us;
    bool asked_health; /* a question to its health path is under way */
    uint64_t calls, errors;
    struct telemetry_counter *answered, *failed, *running;
    struct telemetry_histogram *head_seconds;
};

struct upstream_times {
    int64_t connect_ms, answer_ms, silence_ms, health_pause_ms, health_interval_ms;
    uint32_t health_fails;
};

struct upstream_set {
    struct event_base *base;
    struct telemetry *telemetry;
    CURLM *multi;
    struct event timer, kick, health;
    struct upstream_server **servers;
    uint32_t n_servers;
    struct upstream_times times;
    struct upstream_call *calls, *kicked;
    uint32_t n_calls;
    bool closing;
};

struct upstream_call {
    struct upstream_set *set;
    struct upstream_call *previous, *next, *next_kicked;
    const struct upstream_events *events;
    void *context;
    /* what is sent */
    char *method, *target, *url;
    struct fields fields;
    char *model;
    struct evbuffer *body;
    int64_t body_bytes;
    bool own_key, has_body, body_whole, body_ended, body_asked, body_starved;
    uint32_t head_timeout_ms, total_timeout_ms;
    /* the try that runs */
    struct upstream_server *server; /* NULL where the request names a URL */
    uint64_t tried;                 /* bits of set->servers as they were at the start */
    uint32_t n_tried;
    CURL *easy;
    struct curl_slist *lines;
    struct event timer;
    char error[CURL_ERROR_SIZE];
    const char *broken; /* what of the answer we did not take */
    /* what came */
    struct fields head;
    int status;
    uint64_t started_us, heard_us, head_us, bytes;
    bool head_done, paused, held, cancelled, kicked, in_multi, health, expired;
};

/* ---- upstream_server.c ---- */
int upstream_servers_read(const struct settings *settings, struct telemetry *telemetry, struct upstream_server ***out,
                          uint32_t *n, struct quire_error *err);
void upstream_servers_free(struct upstream_server **servers, uint32_t n);
void upstream_server_release(struct upstream_server *server);
bool upstream_server_is_healthy(const struct upstream_server *server, uint64_t now_us);
void upstream_server_failed(const struct upstream_set *set, struct upstream_server *server, const char *why);
void upstream_server_answered(struct upstream_server *server);
/* The next to be asked for this model, of those whose bit is not in `tried`; its place. -1: none is left. */
int upstream_server_choose(const struct upstream_set *set, const char *model, uint64_t tried);
/* Prefix and target as one, with "/v1" once. NULL without memory. */
char *upstream_server_target(const struct upstream_server *server, const char *target);

/* ---- upstream_loop.c ---- */
int upstream_loop_init(struct upstream_set *set, struct quire_error *err);
void upstream_loop_fini(struct upstream_set *set);
void upstream_loop_kick(struct upstream_call *call);

/* ---- upstream.c ---- */
/* What the kick event does for a call; what it does when libcurl has ended one. */
void upstream_call_kicked(struct upstream_call *call);
void upstream_call_ended(struct upstream_call *call, CURLcode code);

/* ---- upstream_easy.c ---- */
/* Makes the easy handle of the next try. */
int upstream_easy_begin(struct upstream_call *call, struct quire_error *err);
void upstream_easy_end(struct upstream_call *call);

#endif
