/*
 * flow_errand.c - an errand: from the look-up in the cache to an answer that is served, or to the upstream.
 *
 *     probe --exact, stale--> serve                 (PROBE asks without a vector: most requests need none)
 *       |----vector--> encode --> look up --hit--> serve
 *       |                            |--miss with lease--> upstream, keep
 *       |----miss with lease----> upstream, keep (the vector is made meanwhile, for the put)
 *       |----miss, no lease-----> somebody else asks: look up again until the answer is there, the lease comes to us,
 *       |                         or it takes too long
 *       '----anything else------> upstream, not kept
 *
 * Looking again (and not SC.GET ... WAIT) keeps every command short, so that commands of others on the same connection
 * do not wait behind ours; requests of this process for the same answer do not come here at all, they join the flight.
 *
 * Every path ends in flow_errand_destroy, once: by flow_errand_serve and flow_errand_refuse, by flow_keep.c after the
 * upstream's answer, or when nobody is left to read it.
 */
#include "gateway/encode/encode.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/flow_promise.h"
#include "gateway/settings/settings.h"
#include "gateway/store/sc_setup.h"
#include "gateway/telemetry/telemetry.h"
#include "io/clock.h"
#include <assert.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_FIRST_MS 2u
#define POLL_LAST_MS  100u
#define LEASES_MANY   4000u /* of this gateway; a cache has 4,096 in all */

static void look_up(struct errand *e, enum flow_get what);

/* ---- create, destroy --------------------------------------------------------------------------------------------- */

static void free_head(void *pointer)
{
    struct head *head = pointer;
    if (!head)
        return;
    fields_fini(&head->fields);
    free(head);
}

static void on_room(void *context)
{
    struct errand *e = context;
    if (e->call)
        upstream_resume(e->call);
}

/* Nobody reads any more: at the end of this turn of the loop, since whoever left may have been woken by ourselves. */
static void on_left(void *context)
{
    struct errand *e = context;
    struct timeval now = {0, 0};
    evtimer_add(&e->reaper, &now);
}

/* What is asked of the upstream ends, unless it is to be kept anyway, or somebody has joined meanwhile. */
static void on_reap(evutil_socket_t fd, short what, void *context)
{
    struct errand *e = context;
    (void)fd;
    (void)what;
    if (flight_members(e->flight) > 0 || flight_ended(e->flight) != FLIGHT_OPEN ||
        (e->flow->settings->finish && e->call && e->asked.keep))
        return;
    flow_errand_destroy(e);
}

static void on_slow(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    flow_answer_slow(context);
}

static void on_timer(evutil_socket_t fd, short what, void *context);

void flow_errand_forget(struct question *asked)
{
    free(asked->user);
    free(asked->salt);
    free(asked->text);
    asked->user = asked->salt = asked->text = NULL;
}

struct errand *flow_errand_create(struct flow *flow, struct question *asked, const uint8_t *key, size_t limit,
                                  struct flight_member *member)
{
    struct errand *e = calloc(1, sizeof *e);
    struct flight_source source = {on_room, on_left, e};
    if (!e || !(e->head = calloc(1, sizeof *e->head)) || !(e->body = evbuffer_new()) ||
        !(e->flight = flight_open(flow->flights, key, limit, &source, member))) {
        if (e && e->body)
            evbuffer_free(e->body);
        if (e)
            free(e->head);
        free(e);
        return NULL;
    }
    e->flow = flow;
    e->asked = *asked;
    e->may_keep = asked->keep;
    asked->user = asked->salt = asked->text = NULL;
    e->audit = -1;
    e->head->similarity = -1;
    e->head->cache = "miss";
    e->head->kept_back = e->kept_back = "";
    e->head->length = -1;
    e->began_us = clock_us();
    sse_init(&e->sse, FLOW_EVENT_BYTES);
    evtimer_assign(&e->timer, flow->base, on_timer, e);
    evtimer_assign(&e->reaper, flow->base, on_reap, e);
    evtimer_assign(&e->slow, flow->base, on_slow, e);
    e->next = flow->errands;
    if (flow->errands)
        flow->errands->previous = e;
    flow->errands = e;
    return e;
}

static void cancel_all(struct errand *e)
{
    event_del(&e->timer);
    event_del(&e->reaper);
    event_del(&e->slow);
    if (e->call)
        upstream_cancel(e->call);
    if (e->sc)
        sc_cancel(e->sc);
    if (e->encoding)
        encode_cancel(e->encoding);
    e->call = NULL;
    e->sc = NULL;
    e->encoding = NULL;
}

void flow_errand_destroy(struct errand *e)
{
    cancel_all(e);
    flow_keep_leave(e);
    flow_errand_fail(e);
    flow_promise_end(e->flow->promises, e->promise, NULL, 0);
    if (flight_ended(e->flight) == FLIGHT_OPEN)
        flight_finish(e->flight, FLIGHT_BROKEN);
    flight_release(e->flight);
    *(e->previous ? &e->previous->next : &e->flow->errands) = e->next;
    if (e->next)
        e->next->previous = e->previous;
    free_head(e->head);
    fields_fini(&e->fields);
    flow_errand_drop_body(e);
    evbuffer_free(e->body);
    sse_fini(&e->sse);
    for (unsigned i = 0; i < e->n_tags; i++)
        free(e->tags[i]);
    free(e->tags);
    flow_errand_forget(&e->asked);
    free(e->target);
    free(e->model);
    free(e->vector);
    flow_errand_drop_lease(e);
    free(e->audited);
    free(e);
}

void flow_errand_drop_body(struct errand *e)
{
    size_t n = evbuffer_get_length(e->body);
    assert(e->flow->body_bytes >= n);
    e->flow->body_bytes -= n;
    evbuffer_drain(e->body, n);
}

void flow_errand_say(struct errand *e, const char *cache, const char *format, ...)
{
    va_list args;
    if (!e->head)
        return;
    e->head->cache = cache;
    va_start(args, format);
    vsnprintf(e->head->reason, sizeof e->head->reason, format, args);
    va_end(args);
}

void flow_errand_drop_lease(struct errand *e)
{
    assert(!e->lease || e->flow->n_leases > 0);
    e->flow->n_leases -= e->lease != NULL;
    free(e->lease);
    e->lease = NULL;
}

void flow_errand_fail(struct errand *e)
{
    if (!e->lease || !e->flow->client)
        return;
    flow_words_tell(e->flow, (const char *[]){"SC.FAIL", e->flow->cache, e->lease}, 3);
    flow_errand_drop_lease(e);
}

/* ---- what the flight is told ------------------------------------------------------------------------------------- */

void flow_errand_refuse(struct errand *e, int status, const char *code, const char *format, ...)
{
    struct head *head = e->head;
    va_list args;
    if (head) {
        e->head = NULL;
        fields_clear(&head->fields);
        head->kind = HEAD_REFUSAL;
        head->status = status;
        head->code = code;
        va_start(args, format);
        vsnprintf(head->reason, sizeof head->reason, format, args);
        va_end(args);
        flight_set_head(e->flight, head, free_head);
    }
    flow_errand_destroy(e);
}

/* What a look-up says about the answer, in the fields of the head. */
void flow_errand_note(struct errand *e, const struct sc_get *get)
{
    struct head *head = e->head;
    struct fields *fields = &head->fields;
    bool details = e->flow->settings->details;
    head->similarity = get->similarity;
    fields_clear(fields);
    if (get->id.data)
        fields_add_bytes(fields, "X-Quire-Id", 10, get->id.data, get->id.bytes);
    if (details && get->similarity >= 0)
        fields_print(fields, "X-Quire-Similarity", "%.4f", get->similarity);
    if (details && get->threshold >= 0 && e->asked.near)
        fields_print(fields, "X-Quire-Threshold", "%.4f", get->threshold);
    if (details && get->guard.data)
        fields_add_bytes(fields, "X-Quire-Guard", 13, get->guard.data, get->guard.bytes);
    if (get->status == SC_MISS && !e->asked.near && *head->reason) {
        head->cache = "miss"; /* why nothing near was looked for says more than that nothing near was found */
        return;
    }
    flow_errand_say(e, sc_reply_status_name(get->status), "%.*s",
                    (int)(get->reason.bytes > 200 ? 200 : get->reason.bytes), get->reason.data ? get->reason.data : "");
}

/* Candidates as "id similarity verdict why; ...", printable, at most 8 KiB. */
static void note_candidates(struct errand *e, const struct redisReply *candidates)
{
    static const char *const names[] = {"id", "similarity", "verdict", "why"};
    char text[8192];
    size_t n = 0;
    if (!candidates || candidates->type != REDIS_REPLY_ARRAY || !e->flow->settings->details)
        return;
    for (size_t i = 0; i < candidates->elements; i++)
        for (unsigned k = 0; k < 4 && n + 2 < sizeof text; k++) {
            const struct redisReply *value = sc_reply_field(candidates->element[i], names[k]);
            int wrote = snprintf(text + n, sizeof text - n, "%s%s",
                                 k   ? " "
                                 : i ? "; "
                                     : "",
                                 value && value->str ? value->str : "-");
            n += wrote > 0 && (size_t)wrote < sizeof text - n ? (size_t)wrote : 0;
        }
    text[n] = 0;
    fields_printable(text, sizeof text, text);
    fields_add_bytes(&e->head->fields, "X-Quire-Explain", 15, text, n);
}

/* Status, type and length of a kept answer. */
static bool kept_head(struct errand *e, const struct sc_get *get)
{
    struct head *head = e->head;
    bool ok = fields_set(&head->fields, "Content-Type", e->asked.stream ? "text/event-stream" : "application/json") &&
              fields_print(&head->fields, "Age", "%lld", (long long)(get->age_ms / 1000));
    if (get->tokens_in + get->tokens_out > 0)
        ok = ok &&
             fields_print(&head->fields, "X-Quire-Tokens-Saved", "%lld", (long long)(get->tokens_in + get->tokens_out));
    head->kind = HEAD_KEPT;
    head->status = 200;
    head->events = e->asked.stream;
    head->length = get->value.data && !e->asked.stream ? (int64_t)get->value.bytes : -1;
    head->tokens_saved = (uint64_t)(get->tokens_in + get->tokens_out);
    return ok;
}

void flow_errand_give_head(struct errand *e)
{
    struct head *head = e->head;
    e->head = NULL;
    flight_set_head(e->flight, head, free_head);
}

static bool append_answer(struct errand *e, const struct sc_get *get)
{
    if (get->value.data)
        return flight_append(e->flight, get->value.data, get->value.bytes, FLIGHT_KEEP);
    for (size_t i = 0; i < get->chunks->elements; i++)
        if (!flight_append(e->flight, get->chunks->element[i]->str, (size_t)get->chunks->element[i]->len, FLIGHT_KEEP))
            return false;
    return true;
}

/* The lease of a stale answer is ours: the same question goes to the upstream, and nobody waits for it. */
static void renew_in_background(struct errand *e)
{
    struct errand *other = flow_errand_create(e->flow, &e->asked, NULL, (size_t)e->flow->settings->answer_max, NULL);
    if (!other)
        return;
    other->background = true;
#define MOVE(member) (other->member = e->member, e->member = NULL)
    MOVE(target), MOVE(model), MOVE(vector), MOVE(lease), MOVE(tags);
#undef MOVE
    other->own_key = e->own_key;
    other->n_tags = e->n_tags;
    e->n_tags = 0;
    other->fields = e->fields;
    e->fields = (struct fields){0};
    evbuffer_add_buffer(other->body, e->body);
    other->asked.look = other->asked.keep = other->asked.accepted = other->may_keep = true;
    other->asked.sim = -1;
    other->asked.max_age_ms = -1;
    other->asked.stale_error_ms = 0;
    other->asked.explain = other->asked.only_if_cached = false;
    other->dim = e->dim;
    other->lease_ms = e->lease_ms;
    other->head_timeout_ms = e->head_timeout_ms;
    if (other->asked.near && !other->vector)
        flow_errand_want_vector(other);
    flow_answer_begin(other);
}

void flow_errand_serve(struct errand *e, const struct sc_get *get)
{
    if (!kept_head(e, get)) {
        flow_errand_refuse(e, 500, "no_memory", "no memory for an answer of the cache");
        return;
    }
    e->head->cache_us += clock_us() - e->sc_began_us;
    flow_errand_give_head(e);
    bool whole = append_answer(e, get);
    flight_finish(e->flight, whole ? FLIGHT_WHOLE : FLIGHT_BROKEN);
    if (whole && e->lease && e->target)
        renew_in_background(e);
    flow_errand_destroy(e);
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

static bool take_vector(struct errand *e, const float *vector, uint32_t dim)
{
    e->vector = malloc(dim * sizeof *vector);
    if (!e->vector)
        return false;
    memcpy(e->vector, vector, dim * sizeof *vector);
    e->dim = dim;
    return true;
}

static void on_vector_for_put(void *context, enum encode_outcome outcome, const float *vector, uint32_t dim,
                              const char *why)
{
    struct errand *e = context;
    (void)why;
    e->encoding = NULL;
    if (outcome == ENCODE_VECTOR)
        take_vector(e, vector, dim);
    if (e->vector_wanted)
        flow_keep_vector(e);
}

void flow_errand_want_vector(struct errand *e)
{
    assert(e->asked.near && !e->vector && !e->encoding);
    e->encoding = encode_text(e->flow->encode, e->asked.text, e->asked.text_bytes, on_vector_for_put, e);
}

static void on_vector(void *context, enum encode_outcome outcome, const float *vector, uint32_t dim, const char *why)
{
    struct errand *e = context;
    e->encoding = NULL;
    e->head->embed_us += clock_us() - e->encode_began_us;
    if (outcome == ENCODE_VECTOR && take_vector(e, vector, dim)) {
        look_up(e, FLOW_GET_FULL);
        return;
    }
    /* the probe found no exact answer, and without a vector none can be kept in a category of near answers */
    e->asked.keep = false;
    flow_errand_say(e, "miss", "no vector: %.180s", why ? why : "no memory");
    flow_answer_begin(e);
}

static void encode_question(struct errand *e)
{
    e->encode_began_us = clock_us();
    e->encoding = encode_text(e->flow->encode, e->asked.text, e->asked.text_bytes, on_vector, e);
    if (!e->encoding) {
        e->asked.keep = false;
        flow_errand_say(e, "miss", "no vector: no memory");
        flow_answer_begin(e);
    }
}

/* ---- look-ups ---------------------------------------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct errand *e = context;
    (void)fd;
    (void)what;
    if (e->timer_is == TIMER_RENEW)
        flow_answer_renew(e);
    else
        look_up(e, e->asked.near && !e->vector ? FLOW_GET_PROBE : FLOW_GET_FULL);
}

/* Somebody else asks the upstream. */
static void look_again(struct errand *e)
{
    const struct settings *settings = e->flow->settings;
    uint64_t now_us = clock_us(), wait_ms = (uint64_t)settings->wait_near;
    struct timeval pause;
    if (e->poll_until_us == 0) {
        /* the lease may be a near question's, whose answer may not do: a stream does not wait long for that */
        if (!e->asked.stream || !e->asked.near)
            wait_ms = e->asked.others_ms > wait_ms ? e->asked.others_ms : wait_ms;
        e->poll_until_us = now_us + wait_ms * 1000;
        e->poll_ms = POLL_FIRST_MS;
        telemetry_add(telemetry_counter(e->flow->telemetry, "quire_gateway_waited_total",
                                        "Requests that waited for an answer whose lease somebody else had", ""),
                      1);
    }
    /* that takes too long; or the server has no more leases to give, and nobody is at it */
    if (now_us >= e->poll_until_us || e->flow->n_leases >= LEASES_MANY) {
        flow_answer_begin(e);
        return;
    }
    pause = (struct timeval){.tv_usec = (suseconds_t)e->poll_ms * 1000};
    e->poll_ms = e->poll_ms * 2 > POLL_LAST_MS ? POLL_LAST_MS : e->poll_ms * 2;
    e->timer_is = TIMER_POLL;
    evtimer_add(&e->timer, &pause);
}

static bool take_lease(struct errand *e, const struct sc_get *get)
{
    if (!get->lease.data)
        return false;
    e->lease = strndup(get->lease.data, get->lease.bytes);
    e->lease_ms = get->lease_ms > 0 ? (uint64_t)get->lease_ms : 0;
    e->flow->n_leases += e->lease != NULL;
    return e->lease != NULL;
}

/* The cached answer, to be compared with the upstream's. A miss that is sampled has the number alone. */
static void take_audit(struct errand *e, const struct sc_get *get)
{
    struct evbuffer *all;
    e->audit = get->audit;
    if (get->status != SC_AUDIT || !(all = evbuffer_new()))
        return;
    if (get->value.data)
        evbuffer_add(all, get->value.data, get->value.bytes);
    for (size_t i = 0; get->chunks && i < get->chunks->elements; i++)
        evbuffer_add(all, get->chunks->element[i]->str, (size_t)get->chunks->element[i]->len);
    e->audited_bytes = evbuffer_get_length(all);
    e->audited = malloc(e->audited_bytes + 1);
    if (e->audited)
        evbuffer_remove(all, e->audited, e->audited_bytes);
    evbuffer_free(all);
}

/* The credential may be one that the upstream refuses: it gets nothing of the cache, but its answer may be kept. */
static void on_get_unaccepted(struct errand *e, const struct sc_get *get)
{
    e->head->cache_us += clock_us() - e->sc_began_us;
    if (get->status != SC_VECTOR) { /* then it is put without a lease */
        bool leased = take_lease(e, get);
        e->asked.keep = e->asked.keep && get->status == SC_MISS && leased;
        if (!e->asked.keep)
            flow_errand_fail(e); /* that of a stale answer is for who may have the answer */
    }
    flow_answer_begin(e);
}

static void on_get(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct errand *e = context;
    struct sc_get get;
    e->sc = NULL;
    if (outcome != SC_REPLY || !sc_reply_get(reply, &get)) {
        e->asked.keep = false;
        why = why ? why : "a reply of the server cannot be read";
        flow_errand_say(e, "down", "%.200s", why);
        flow_body_down(e->flow, why);
        e->head->cache_us += clock_us() - e->sc_began_us;
        flow_answer_begin(e);
        return;
    }
    if (get.status == SC_VECTOR && e->asked.accepted) {
        e->head->cache_us += clock_us() - e->sc_began_us;
        encode_question(e);
        return;
    }
    flow_body_down(e->flow, NULL);
    if (!e->asked.accepted) {
        on_get_unaccepted(e, &get);
        return;
    }
    flow_errand_note(e, &get);
    note_candidates(e, get.candidates);
    if (!e->lease)
        take_lease(e, &get);
    e->flow->near_looks += get.status == SC_HIT || get.status == SC_AUDIT || (get.status == SC_MISS && e->vector);
    if (get.status == SC_HIT || get.status == SC_EXACT || get.status == SC_STALE) {
        flow_errand_serve(e, &get);
        return;
    }
    e->head->cache_us += clock_us() - e->sc_began_us;
    if (get.audit >= 0)
        take_audit(e, &get);
    if (get.status == SC_MISS && !e->lease && e->asked.keep && !e->asked.only_if_cached) {
        look_again(e);
        return;
    }
    if (get.status == SC_NEGATIVE || get.status == SC_BYPASS)
        e->asked.keep = false;
    flow_answer_begin(e);
}

static void look_up(struct errand *e, enum flow_get what)
{
    e->timer_is = TIMER_NONE;
    e->sc_began_us = clock_us();
    e->sc = flow_words_get(e, what, on_get);
    if (!e->sc) {
        e->asked.keep = false;
        flow_errand_say(e, "down", "no memory for a command");
        flow_answer_begin(e);
    }
}

void flow_errand_begin(struct errand *e)
{
    if (!e->asked.look)
        flow_answer_begin(e);
    else
        look_up(e, e->asked.near ? FLOW_GET_PROBE : FLOW_GET_FULL);
}
