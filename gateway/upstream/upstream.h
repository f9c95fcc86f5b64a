/*
 * upstream.h - requests to the servers behind the gateway: models, encoders, judges. libcurl's multi interface on the
 * gateway's loop.
 *
 *     call = upstream_start(set, &request, &events, context, &err);
 *     head(call, head)    status and fields of the answer, once; answers 1xx are not shown
 *     data(call, bytes)   bytes of the body as they came, never decoded (a gzip answer stays gzip)
 *     wants(call)         a streamed request body (body_whole false) wants more: upstream_body
 *     done(call, result)  the last word, exactly once, unless upstream_cancel came first; the call is freed after it
 *
 * Which upstream: those whose `models` fit the model's name, in proportion to their weights, those that are healthy
 * first. If a connection cannot be made the next one is tried; once a byte of the request has been sent nothing is
 * tried again: clients do that themselves.
 *
 * Times: connect-timeout for each connection, answer-timeout (or less, request.head_timeout_ms) until the head,
 * silence-timeout between bytes of the body (the clock stands while paused); no limit on the whole.
 *
 * Connections are kept alive and used again. Names are resolved on a thread of libcurl's and kept for 30 s.
 *
 * Callbacks come from the loop only, never from within a call of this header. One thread.
 */
#ifndef QUIRE_GATEWAY_UPSTREAM_H
#define QUIRE_GATEWAY_UPSTREAM_H

#include "gateway/http/fields_list.h"
#include "quire.h"

struct event_base;
struct evbuffer;
struct json_t;
struct settings;
struct telemetry;
struct upstream_set;
struct upstream_call;

/* Reads upstreams and times of the settings; keeps no reference to them. */
int upstream_set_create(struct event_base *base, const struct settings *settings, struct telemetry *telemetry,
                        struct upstream_set **out, struct quire_error *err);
/* The settings after a reload. Calls that run go on as they began; an upstream of the same name and URL keeps its
 * health. On failure all is as it was. */
int upstream_set_reload(struct upstream_set *set, const struct settings *settings, struct quire_error *err);
/* Cancels every call. NULL is fine. */
void upstream_set_destroy(struct upstream_set *set);
/* Failures of all upstreams that there are now, as upstream_describe counts them. */
uint64_t upstream_errors(const struct upstream_set *set);
/* Calls that run. */
uint32_t upstream_set_calls(const struct upstream_set *set);

/* The name of the group of upstreams that would be asked for this model (may be NULL): that of the first in the
 * settings that fits, whatever its health, so that it can be part of a cache's key. NULL: none fits. */
const char *upstream_group(const struct upstream_set *set, const char *model);
/* Whether the upstreams of this model have keys of their own, so that the client's credential is not passed on. */
bool upstream_has_key(const struct upstream_set *set, const char *model);
/* Appends the state of each upstream to a list: name, healthy, running, calls, errors. No keys. */
int upstream_describe(const struct upstream_set *set, struct json_t *list);

/* All of it is copied or taken by upstream_start. */
struct upstream_request {
    const char *method; /* "POST" */
    const char *target; /* path and query; put behind the upstream's URL, a doubled "/v1" once. Sent byte for byte */
    const struct fields *fields; /* as fields_forward makes them; Host and Content-Length are added. May be NULL */
    const char *model;           /* chooses the upstream; NULL: those that take any model, else the first */
    const char *url;       /* not NULL: asked there instead ("http://host:port/path"), target and model are not used */
    struct evbuffer *body; /* is emptied; NULL: none */
    int64_t body_bytes;    /* of the whole body if it is streamed: -1 where not known (chunked) */
    bool own_key;          /* the fields hold the credential to be used, whatever key the settings have */
    bool body_whole;       /* `body` is all of it (body_bytes is not used); false: more comes by upstream_body */
    uint32_t head_timeout_ms;  /* 0: the setting; never more than the setting */
    uint32_t total_timeout_ms; /* 0: none. For calls of the gateway's own (encoder, judge) */
};

struct upstream_head {
    int status;
    const struct fields *fields; /* all that came, in order; valid during the call of `head` */
    int64_t length;              /* Content-Length; -1: none */
    const char *upstream;        /* the name of the one that answers; valid as long as the call */
};

enum upstream_outcome {
    UPSTREAM_WHOLE,       /* the answer ended as it should */
    UPSTREAM_UNREACHABLE, /* no connection, to none of them: 502 */
    UPSTREAM_TIMEOUT,     /* no head in time, or the total time is over: 504 */
    UPSTREAM_SILENT,      /* no byte for silence-timeout, after the head */
    UPSTREAM_BROKEN,      /* closed early or against the protocol, before or after the head: 502 */
    UPSTREAM_FAILED,      /* of our own: no memory, libcurl refuses: 502 */
};

struct upstream_result {
    enum upstream_outcome outcome;
    const char *message;                    /* a sentence; valid during the call of `done` */
    const char *upstream;                   /* the last that was tried */
    uint64_t connect_us, head_us, total_us; /* since upstream_start; 0 where it did not come to that */
    uint64_t bytes;                         /* of the answer's body */
};

struct upstream_events {
    void (*head)(void *context, struct upstream_call *call, const struct upstream_head *head);
    void (*data)(void *context, struct upstream_call *call, const void *bytes, size_t n);
    void (*wants)(void *context, struct upstream_call *call); /* NULL where bodies are whole */
    void (*done)(void *context, struct upstream_call *call, const struct upstream_result *result);
};

/* NULL with *err: no upstream takes this model (QUIRE_ENOTFOUND), or no memory. `events` must outlive the call. */
struct upstream_call *upstream_start(struct upstream_set *set, const struct upstream_request *request,
                                     const struct upstream_events *events, void *context, struct quire_error *err);
/* Other callbacks and context from now on: who joins a running call, or takes it over from a client that has gone. */
void upstream_own(struct upstream_call *call, const struct upstream_events *events, void *context);
/* No `data` until resumed (bytes that libcurl has already read are kept by it); may be called from within `data`. */
void upstream_pause(struct upstream_call *call);
void upstream_resume(struct upstream_call *call);
/* More of a streamed body: `more` (may be NULL) is emptied; `end`: that was all. */
void upstream_body(struct upstream_call *call, struct evbuffer *more, bool end);
/* Bytes of the body that wait to be sent. */
size_t upstream_body_waiting(const struct upstream_call *call);
/* Ends it; closes its connection unless its answer was whole. No callback follows. May be called from within one. */
void upstream_cancel(struct upstream_call *call);
const char *upstream_name(const struct upstream_call *call);

#endif
