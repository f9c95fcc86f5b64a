/*
 * flow_priv.h - what the files of the flow share.
 *
 * turn: one client's request (flow_turn.c). errand: what fetches the answer for a flight (flow_errand.c: the cache,
 * flow_answer.c: the upstream). A turn may end before its errand and the other way round; between them is the flight
 * alone, and its head (struct head), which says what the errand found out before the first byte.
 */
#ifndef QUIRE_GATEWAY_FLOW_PRIV_H
#define QUIRE_GATEWAY_FLOW_PRIV_H

#include "gateway/flight/flight.h"
#include "gateway/http/http.h"
#include "gateway/policy/policy_control.h"
#include "gateway/policy/policy_gate.h"
#include "gateway/policy/policy_tenant.h"
#include "gateway/proxy/flow.h"
#include "gateway/store/sc_client.h"
#include "gateway/store/sc_reply.h"
#include "gateway/text/answer.h"
#include "gateway/text/ask.h"
#include "gateway/text/canonical.h"
#include "gateway/text/replay.h"
#include "gateway/text/sse.h"
#include "gateway/upstream/upstream.h"
#include <event2/event_struct.h>

#define FLOW_SECRET_BYTES 32u
#define FLOW_VALUES_MAX                                                                                                \
    65536u /* of a body that is read, numbers in a list being one: as long as it is read and hashed
                                    the loop serves nobody else */
#define FLOW_REASON_BYTES  240u
#define FLOW_FLIGHTS_MAX   100000u
#define FLOW_ACCEPTED_MAX  100000u
#define FLOW_TENANTS_MAX   100000u
#define FLOW_DIAGNOSES_MAX 64u
#define FLOW_EVENT_BYTES   (1u << 20)
#define FLOW_MODELS_MAX    1024u
#define FLOW_LEADERS_MAX   3u
#define FLOW_HELD_MS       5000u /* altogether, that slow readers of an answer may hold up those who have read on */
#define FLOW_MODEL_BYTES   128u
#define FLOW_PUTS_AT_ONCE  32u
#define FLOW_PUTS_WAITING  20000u
#define FLOW_SCOPE_BYTES   (POLICY_TENANT_BYTES_MAX + 8)

struct encode;
struct encode_call;
struct errand;
struct event_base;
struct evbuffer;
struct policy_diagnoses;
struct policy_limit;
struct policy_limits;
struct sc_setup;
struct sc_users;
struct flow_models;
struct flow_judge;
struct flow_promises;
struct flow_proof;

struct flow {
    struct event_base *base;
    const struct settings *settings;
    struct upstream_set *upstreams;
    struct telemetry *telemetry;
    struct ssl_ctx_st *tls;
    struct sc_client *client; /* NULL: the cache is off */
    struct sc_setup *setup;
    struct sc_users *users; /* those of the server who change entries (flow_admin.c) */
    struct encode *encode;  /* NULL: there is none */
    struct flight_table *flights;
    struct policy_keys *keys; /* NULL: no key file */
    struct policy_accepted *accepted;
    struct policy_limits *limits;
    struct policy_diagnoses *diagnoses;
    struct flow_models *models;
    struct flow_judge *judge;
    struct flow_promises *promises;
    struct flow_proof *proofs; /* under way */
    char cache[128];
    uint8_t secret[FLOW_SECRET_BYTES];
    unsigned allow, masks;     /* of the settings */
    struct policy_rule *rules; /* point into the settings */
    /* used within one call, never across two */
    struct strict json; /* of a request's body, FLOW_VALUES_MAX values at most */
    struct ask ask;
    struct canonical *canonical;
    struct replay replay;
    struct strict answer_json;
    char *scratch;
    size_t scratch_capacity;
    uint64_t replays; /* makes each replay's seed another one */
    struct errand *errands;
    uint64_t body_bytes;                   /* of the requests that they hold */
    unsigned n_leases;                     /* that they hold */
    unsigned n_puts;                       /* under way */
    struct errand *puts_first, *puts_last; /* that wait for their turn */
    unsigned n_puts_waiting;
    bool starting_puts;
    char down[320];        /* why the cache is not there, as it was logged last; "" : it is */
    uint64_t down_us;      /* when that was */
    uint64_t near_looks;   /* look-ups that a vector decided */
    uint64_t tokens_saved; /* of answers that no model was asked for */
    flow_judged_done *judged;
    void *judged_context;
    struct encode_call *first_vector;
    struct event first_vector_timer;
};

/* Whose request it is. */
struct caller {
    uint8_t credential[POLICY_HASH_BYTES];
    char scope[FLOW_SCOPE_BYTES];
    char tenant[POLICY_TENANT_BYTES_MAX + 1]; /* of the key file; "": in none */
    char *categories;                         /* that it may use; owned; NULL: all */
    double rate;
    unsigned concurrent;
    char *upstream_key; /* owned; NULL: the client's own goes on */
    bool in_key_file, anonymous;
    bool admin, tells; /* may remove entries; may say whether an answer was right; as the gateway itself */
    struct policy_limit *limit;
};

enum route { ROUTE_CACHE, ROUTE_MODELS, ROUTE_QUIRE, ROUTE_OTHER };

/* ---- one client's request (flow_turn.c) ---- */

struct turn {
    struct flight_member member; /* first: a member is a turn */
    struct flow *flow;
    struct http_request *r;
    flow_done *done;
    void *context;
    struct caller caller;
    enum ask_kind kind;
    const char *path; /* the route's one spelling */
    struct policy_controls controls;
    bool wants_usage, head_sent, joined, client_gone, upstream_failed;
    bool renamed;      /* `model` is the upstream's name, which the body does not have */
    uint64_t name_at;  /* of a body that is not read: where the name stands that `model` is to replace */
    size_t name_bytes; /* 0: it is not to be replaced */
    bool proved;       /* its credential, or that was tried */
    bool guest;        /* it reads an answer that was asked for with another credential */
    unsigned n_again;  /* times that it was begun anew */
    bool in_event;     /* what was sent last does not end an event */
    struct event keep_alive;
    uint64_t last_us; /* when something was sent */
    struct replay_options replay;
    struct fields extra;                 /* of an answer that is passed on */
    void (*body)(struct turn *turn);     /* the body is there */
    void (*gone)(struct turn *turn);     /* besides leaving the flight; NULL: nothing */
    void (*writable)(struct turn *turn); /* where it reads no flight; NULL: nothing */
    void *work;                          /* of embeddings, models, /quire: theirs */
    /* for the end */
    const char *route;
    const char *cache;
    char category[POLICY_NAME_BYTES_MAX + 1], model[FLOW_MODEL_BYTES], upstream[64], reason[FLOW_REASON_BYTES],
        request_id[80];
    char *question;        /* for the log */
    const char *kept_back; /* struct head's */
    double similarity;
    uint64_t tokens_saved, cache_us, embed_us, connect_us, upstream_us;
};

/* Joins a flight that has been opened or found, and answers from it. */
void flow_turn_follow(struct turn *turn);
/* X-Request-Id, Cache-Control, Vary and the X-Quire fields into `fields`; false without memory. */
bool flow_turn_fields(const struct turn *turn, struct fields *fields);
/* One of those who read a flight gets an error and leaves it; others stay. */
void flow_turn_fail(struct turn *turn, int status, const char *reason);
/* One who is too slow for others of the same answer is ended; others stay. */
void flow_turn_drop(struct turn *turn);
/* One who waits for the answer to another credential's request leaves its flight, and is begun anew. */
void flow_turn_again(struct turn *turn);
/* Answers with an error and says so in X-Quire-*. */
void flow_turn_refuse(struct turn *turn, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void flow_turn_say(struct turn *turn, const char *cache, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Passes the request on as it is. */
void flow_turn_pass(struct turn *turn, const char *model);
/* Owns r from here on; NULL without memory. */
struct turn *flow_turn_create(struct flow *flow, struct http_request *r, flow_done *done, void *context);

/* ---- what is said before the first byte ---- */

enum head_kind {
    HEAD_UPSTREAM, /* pieces are the upstream's own bytes */
    HEAD_KEPT,     /* pieces are a kept answer: each member gets it with a new id */
    HEAD_REFUSAL,  /* no pieces: an error of the gateway */
};

struct head {
    enum head_kind kind;
    int status;
    struct fields fields; /* the upstream's, and X-Quire-... of the look-up */
    int64_t length;       /* of the body; -1: not known */
    bool events;          /* text/event-stream */
    const char *cache;    /* for X-Quire-Cache: static storage */
    char reason[FLOW_REASON_BYTES], category[POLICY_NAME_BYTES_MAX + 1], upstream[64];
    const char *code;      /* of a refusal; static storage */
    const char *kept_back; /* set before the flight ends: why its answer is not kept, in a word; "": no such reason */
    double similarity;
    uint64_t tokens_saved, cache_us, embed_us, connect_us, upstream_us;
    bool upstream_failed;
};

/* ---- an errand (flow_errand.c, flow_answer.c, flow_keep.c) ---- */

/* What is asked of the cache; texts are owned, and copied or taken with it (flow_body.c fills it). */
struct question {
    enum ask_kind kind;
    bool stream;
    char category[POLICY_NAME_BYTES_MAX + 1];
    char hash[2 * CANONICAL_HASH_BYTES + 1], compat[2 * CANONICAL_HASH_BYTES + 1];
    char scope[FLOW_SCOPE_BYTES], space[POLICY_NAME_BYTES_MAX + 1];
    uint8_t credential[POLICY_HASH_BYTES];
    char *user, *salt; /* NULL: none */
    char *text;        /* NULL: exact only */
    size_t text_bytes;
    uint32_t n, items;                  /* choices, embeddings */
    double sim;                         /* -1: the category's */
    int64_t max_age_ms, ttl_ms;         /* -1: the category's */
    uint64_t stale_error_ms, others_ms; /* others_ms: how long the lease of somebody else is waited for */
    bool explain, only_if_cached;
    /* what may be done */
    bool look, near, keep;
    bool accepted; /* the credential was, lately: only then an answer of the cache is given */
};

struct errand {
    struct flow *flow;
    struct errand *next, *previous;
    struct flight *flight;
    struct question asked;
    bool may_keep;     /* as it was asked: asked.keep goes when something speaks against it */
    unsigned n_failed; /* of those who led */
    uint64_t promise;  /* the id that clients were given; 0: none */
    /* the request as it goes on */
    unsigned n_tags;
    char **tags; /* owned */
    char *target, *model;
    struct fields fields;
    bool own_key;          /* `fields` have the key of the key file, which goes before an upstream's own */
    struct evbuffer *body; /* flow_errand_drop_body */
    uint32_t head_timeout_ms;
    /* under way */
    struct upstream_call *call;
    struct sc_call *sc;
    struct encode_call *encoding;
    struct event timer, reaper, slow;
    unsigned held_ms; /* so long slow readers have held up others */
    enum { TIMER_NONE, TIMER_POLL, TIMER_RENEW } timer_is;
    unsigned poll_ms;
    uint64_t began_us, sc_began_us, encode_began_us, upstream_began_us, poll_until_us;
    float *vector; /* owned */
    uint32_t dim;
    char *lease; /* owned */
    uint64_t lease_ms;
    int64_t audit; /* -1: none */
    char *audited; /* owned: the answer that it is compared with; NULL of a miss that is sampled */
    size_t audited_bytes;
    /* the answer */
    struct head *head;  /* until it is given to the flight */
    char failure[160];  /* of the upstream, while the cache is asked for an old answer */
    int failure_status; /* 502, 504; 0: the upstream has answered, and waits */
    struct sse sse;
    struct answer answer;
    bool events, answer_is_json, vector_wanted, background, told;
    const char *kept_back; /* static storage: a name of answer_reason, "type", "too_large" or "no_memory"; "": nothing
                              speaks against keeping it so far */
    size_t kept_bytes;     /* of its pieces that are to be kept */
    enum { PUT_NONE, PUT_WAITS, PUT_RUNS } put;
    struct errand *next_put;
    int status;
};

/* A new one of this question, whose texts it takes, with its flight, which the turn has joined; NULL without memory:
 * then the question is still the caller's. */
struct errand *flow_errand_create(struct flow *flow, struct question *asked, const uint8_t *key, size_t limit,
                                  struct flight_member *member);
/* The request's body is not needed again. */
void flow_errand_drop_body(struct errand *errand);
/* Frees the texts. */
void flow_errand_forget(struct question *asked);
/* Cancels what is under way; the flight is finished as broken if it is open, and released. */
void flow_errand_destroy(struct errand *errand);
/* Looks up, or asks the upstream. */
void flow_errand_begin(struct errand *errand);
void flow_errand_say(struct errand *errand, const char *cache, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The answer of a reply goes to the flight, which is finished. */
void flow_errand_serve(struct errand *errand, const struct sc_get *get);
/* The flight gets an error of the gateway. */
void flow_errand_refuse(struct errand *errand, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The lease is over: answered, or lost. */
void flow_errand_drop_lease(struct errand *errand);
/* Tells the server that this lease's answer will not come; nobody waits for the reply. */
void flow_errand_fail(struct errand *errand);
/* Vector for the put, while the model answers. */
void flow_errand_want_vector(struct errand *errand);

/* What a look-up said, into the head. */
void flow_errand_note(struct errand *errand, const struct sc_get *get);
/* The head that the errand has filled goes to the flight. */
void flow_errand_give_head(struct errand *errand);

/* flow_answer.c: asks the upstream. */
void flow_answer_begin(struct errand *errand);
/* The upstream's answer is paused for the slowest reader: it is time to look whether others wait for that one. */
void flow_answer_slow(struct errand *errand);
/* It is time to renew the lease. */
void flow_answer_renew(struct errand *errand);
/* flow_keep.c: counts what became of an answer. `reason`: why it was kept back, in a word; "": it was not, or the
 * outcome says it. */
void flow_keep_count(struct flow *flow, const char *outcome, const char *reason);
/* The answer is whole, the flight finished; ends the errand. */
void flow_keep_begin(struct errand *errand, enum answer_verdict verdict);
void flow_keep_vector(struct errand *errand);
/* The errand ends: its place among the puts is another's. */
void flow_keep_leave(struct errand *errand);
/* All kept pieces of its flight one behind the other. They lie so already where none is left out; else they are copied
 * to *owned, which is to be freed. NULL: no memory, or not all is there. */
const char *flow_keep_join(const struct errand *errand, size_t *bytes, char **owned);
/* Whether the setting `never` names a text of the user's in this request; in this item of an embeddings request. */
bool flow_keep_never_asked(const struct flow *flow, const struct ask *ask);
bool flow_keep_never_item(const struct flow *flow, const struct ask *ask, uint32_t item);

/* ---- commands (flow_words.c) ---- */

enum flow_get { FLOW_GET_PROBE, FLOW_GET_FULL, FLOW_GET_ONERROR };
struct sc_call *flow_words_get(struct errand *errand, enum flow_get what, sc_done *done);
/* `answer`: all bytes, or NULL where the flight's pieces are the chunks. */
struct sc_call *flow_words_put(struct errand *errand, const char *answer, size_t bytes, uint64_t llm_ms, sc_done *done);
struct sc_call *flow_words_negative(struct errand *errand, sc_done *done);
struct sc_call *flow_words_renew(struct errand *errand, sc_done *done);
/* The pair of an audit. */
struct sc_call *flow_words_pair(struct flow *flow, int64_t audit, sc_done *done, void *context);
/* Sends a command whose reply nobody needs. */
void flow_words_tell(struct flow *flow, const char *const *words, unsigned n);

/* ---- from a request to an errand (flow_body.c) ---- */

/* Whether the settings switch near answers on in the category of the setting `category` (flow.c). */
bool flow_near_is_on(const struct settings *settings);

/* Logs why the cache is not there, or (NULL) that it is again, once for each change. */
void flow_body_down(struct flow *flow, const char *why);

/* The body is there: keys, category, gates, flight. Once more after a proof of the credential. */
void flow_body_ready(struct turn *turn);
/* The model that the body names, and its name upstream (setting model-alias), into the turn. */
void flow_body_name(struct turn *turn, struct strict_text given);
/* Whether the upstreams of the turn's model have accepted the credential lately, or the key file has it. */
bool flow_body_accepted(const struct turn *turn);
/* The keys of what was asked; false: there are none, *err says why. */
bool flow_body_keys(struct turn *turn, const struct ask *ask, struct canonical_keys *keys, struct quire_error *err);
/* What keeps answers apart within a tenant, owned by the caller then, also after a failure: the user (setting
 * user-scope) and the body's cache_salt. NULL: none; false without memory. */
bool flow_body_walls(const struct turn *turn, const struct ask *ask, char **user, char **salt);
/* The header fields as they go on; false without memory. */
bool flow_body_fields(const struct turn *turn, struct fields *out);
/* X-Stainless-Timeout in ms; 0: not given. */
uint32_t flow_body_timeout(const struct turn *turn);

#endif
