/*
 * flow.h - every request that is not the gateway's own: whose it is, whether the cache is asked, and how it is
 * answered.
 *
 * The order of work for one request: credential and limits; /quire/... and /v1/models; for a route of the cache the
 * body, its keys, its category and the gates; then a flight (flight.h) that is joined or opened. Who opens one sends
 * an errand: look up in the cache, else ask the upstream, stream the answer to all who have joined, and keep it. All
 * else is passed on unread (pass.h).
 *
 * Fail open: nothing that goes wrong with cache, encoder or judge makes a request fail; the answer's X-Quire-Cache
 * says `down` and X-Quire-Reason why.
 */
#ifndef QUIRE_GATEWAY_FLOW_H
#define QUIRE_GATEWAY_FLOW_H

#include "quire.h"
#include <stdbool.h>
#include <stdint.h>

struct evbuffer;
struct encode;
struct event_base;
struct flow;
struct json_t;
struct http_request;
struct settings;
struct telemetry;
struct upstream_set;

/* How a request ended. Texts are valid during the call of flow_done; "" where there is none. */
struct flow_end {
    const char *route; /* "chat", "completions", "embeddings", "responses", "messages", "models", "quire", "other" */
    const char
        *cache; /* "hit", "exact", "stale", "miss", "negative", "bypass", "audit", "down"; "" : not a route of it */
    const char *reason, *category, *model, *upstream;
    const char *tenant;    /* its scope; never a credential */
    const char *question;  /* for the setting log-texts; "" where that is off */
    const char *kept_back; /* why the upstream's answer is not kept, in a word (docs/gateway.md, What is kept) */
    double similarity;     /* -1: none */
    uint64_t tokens_saved;
    uint64_t cache_us, embed_us, connect_us, upstream_us; /* 0: was not asked */
    bool joined;                                          /* it read another request's answer */
    bool client_gone, upstream_failed;
};

/* After the answer's end (http_handlers.done), once. */
typedef void flow_done(void *context, struct http_request *r, const struct flow_end *end);

/* A question to the judge's model that has ended (setting judge: model). Texts are valid during the call. */
struct flow_judged {
    const char *model, *upstream, *tenant, *category; /* tenant: its scope */
    const char *label; /* "good", "bad"; "none": it said neither yes nor no; "failed": it gave no answer */
    int status;        /* of its answer; 0: none */
    bool counted;      /* its answer says how many tokens it took; else they are not known, and 0 here */
    uint64_t prompt_tokens, completion_tokens, us;
};
typedef void flow_judged_done(void *context, const struct flow_judged *judged);

/* `settings` and the others are borrowed; settings until flow_reload gives others. */
int flow_create(struct event_base *base, const struct settings *settings, struct upstream_set *upstreams,
                struct telemetry *telemetry, struct flow **out, struct quire_error *err);
/* Once, before the first request: who hears of the judge. */
void flow_on_judged(struct flow *flow, flow_judged_done *done, void *context);
/* There are no requests any more (http_server_destroy was called). NULL is fine. */
void flow_destroy(struct flow *flow);
/* Key file and policies change at once; server, cache, encoder and secret stay as they were at the start. On failure
 * all is as it was. */
int flow_reload(struct flow *flow, const struct settings *settings, struct quire_error *err);

/* Owns r from here on; r's head is in, of its body nothing has been asked for yet. */
void flow_begin(struct flow *flow, struct http_request *r, flow_done *done, void *context);

/* What makes vectors of texts here; NULL: nothing does. */
struct encode *flow_encoder(const struct flow *flow);
/* Answers that are being put, or wait for it. */
unsigned flow_keeping(const struct flow *flow);
/* Adds members for /health to an object: "server", "cache", "encoder", "judge": {...}, and tokens that were saved. */
int flow_describe(const struct flow *flow, struct json_t *out);

#endif
