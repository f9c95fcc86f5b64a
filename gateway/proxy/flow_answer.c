/*
 * flow_answer.c - an errand asks the upstream, and its answer goes to the flight as it comes.
 *
 * Bytes pass unread where they cannot be kept (another status, another type, compressed). Otherwise streams are cut at
 * the borders of their events, which is where members may start to differ: the usage chunk is only for those who
 * asked.
 *
 * The head of a stream waits for its first event: an upstream that says 200 and then an error before all else
 * (llama.cpp and vLLM do) is answered with the error's own status, so that clients raise what they should.
 *
 * When the upstream fails (no answer, 429, 5xx) and the category has STALEERROR, the cache is asked for an old answer
 * before the failure goes to the clients; the upstream's answer is paused meanwhile.
 *
 * Where no byte has come, who led gets the failure, as without a cache, and the next of those who joined leads on: one
 * call more for all of them, up to FLOW_LEADERS_MAX. Guests, who joined with another credential, are no part of that:
 * they leave and ask anew with their own.
 *
 * An answer that no longer fits its flight comes as fast as its slowest reader takes it. Those who have read all that
 * has come wait for that one for FLOW_HELD_MS in all; then it is ended.
 */
#include "gateway/proxy/flow_accepted.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/flow_promise.h"
#include "gateway/settings/settings.h"
#include "gateway/telemetry/telemetry.h"
#include "io/clock.h"
#include <assert.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SLOW_LOOK_MS 100u

/* ---- the lease --------------------------------------------------------------------------------------------------- */

static void renew_later(struct errand *e)
{
    uint64_t ms = e->lease_ms / 3 > 20 ? e->lease_ms / 3 : 20;
    struct timeval pause = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    if (!e->lease)
        return;
    e->timer_is = TIMER_RENEW;
    evtimer_add(&e->timer, &pause);
}

static void on_renewed(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct errand *e = context;
    (void)reply;
    (void)why;
    e->sc = NULL;
    if (outcome ==
        SC_ERROR) { /* it is over: another may be at it; what is put without it counts if nothing newer is there */
        flow_errand_drop_lease(e);
    }
    renew_later(e);
}

void flow_answer_renew(struct errand *e)
{
    if (!e->lease || e->sc) {
        renew_later(e);
        return;
    }
    e->sc = flow_words_renew(e, on_renewed);
    if (!e->sc)
        renew_later(e);
}

/* ---- an old answer where the upstream fails ---------------------------------------------------------------------- */

static void go_on_with_failure(struct errand *e);

static void on_old_answer(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct errand *e = context;
    struct sc_get get;
    (void)why;
    e->sc = NULL;
    if (outcome == SC_REPLY && sc_reply_get(reply, &get) &&
        (get.status == SC_STALE || get.status == SC_EXACT || get.status == SC_HIT)) {
        char failure[160];
        snprintf(failure, sizeof failure, "%s", e->failure);
        if (e->call)
            upstream_cancel(e->call);
        e->call = NULL;
        flow_errand_note(e, &get);
        flow_errand_say(e, sc_reply_status_name(get.status), "an old answer, since %s", failure);
        e->head->upstream_failed = true;
        flow_errand_serve(e, &get);
        return;
    }
    go_on_with_failure(e);
}

/* Whether the cache is asked, and on_old_answer comes. */
static bool ask_for_old(struct errand *e)
{
    if (!e->asked.look || !e->asked.accepted || e->background || e->asked.stale_error_ms == 0 || !e->head)
        return false;
    event_del(&e->timer);
    if (e->sc)
        sc_cancel(e->sc);
    flow_errand_fail(e);
    e->asked.keep = false;
    e->sc_began_us = clock_us();
    e->sc = flow_words_get(e, FLOW_GET_ONERROR, on_old_answer);
    return e->sc != NULL;
}

/* ---- head -------------------------------------------------------------------------------------------------------- */

static bool is_type(const struct fields *fields, const char *type)
{
    const char *value = fields_get(fields, "Content-Type");
    return value && strncasecmp(value, type, strlen(type)) == 0;
}

static void begin_answer(struct errand *e)
{
    /* a call of a tool answers this very request, and none in other words */
    const struct answer_options options = {.kind = e->asked.kind,
                                           .n = e->asked.n,
                                           .tools = e->flow->settings->keep_tools && !e->asked.near,
                                           .items = e->asked.items};
    answer_begin(&e->answer, &options, &e->flow->answer_json);
}

/* Who reads with another credential gets no failure of this one, and nothing that is not to be kept: they ask anew, one
 * of them for the others. */
static void let_guests_go(struct errand *e)
{
    struct flight_member *member = flight_first(e->flight);
    while (member) {
        if (((struct turn *)member)->guest) {
            flight_close(e->flight); /* or they would join it once more */
            flow_turn_again((struct turn *)member);
            member = flight_first(e->flight); /* who knows what that has changed */
        } else {
            member = member->next;
        }
    }
}

/* The head that goes to the clients: the request is not needed again. With the id that the answer will have, if it is
 * kept: who asked may name it in feedback. */
static void give_head(struct errand *e)
{
    if (e->status != 200 || !e->asked.keep)
        let_guests_go(e);
    flow_errand_drop_body(e);
    if (e->asked.keep && e->status == 200 && !e->background && !fields_get(&e->head->fields, "X-Quire-Id") &&
        (e->promise = flow_promise_make(e->flow->promises)))
        fields_print(&e->head->fields, "X-Quire-Id", "%016" PRIx64, e->promise);
    flow_errand_give_head(e);
}

/* True: somebody else leads now. */
static bool lead_on(struct errand *e)
{
    struct flight_member *next;
    uint32_t given = e->head_timeout_ms;
    bool own_time = given > 0 && given < (uint64_t)e->flow->settings->answer_timeout;
    if (e->failure_status == 504 && !own_time)
        return false; /* all have waited for as long as anybody may */
    let_guests_go(e);
    if (flight_members(e->flight) < 2 || ++e->n_failed >= FLOW_LEADERS_MAX)
        return false;
    flow_turn_fail((struct turn *)flight_first(e->flight), e->failure_status, e->failure);
    next = flight_first(e->flight);
    e->head_timeout_ms = flow_body_timeout((struct turn *)next);
    e->failure_status = 0;
    e->status = 0;
    e->events = e->answer_is_json = false;
    e->kept_back = "";
    e->asked.keep = e->may_keep;
    sse_fini(&e->sse);
    sse_init(&e->sse, FLOW_EVENT_BYTES);
    fields_clear(&e->head->fields);
    if (e->lease || !e->asked.look) {
        flow_answer_begin(e);
    } else { /* the lease was given up for the sake of an old answer */
        e->poll_until_us = 0;
        flow_errand_begin(e);
    }
    return true;
}

/* The upstream has failed, and there is no old answer. */
static void go_on_with_failure(struct errand *e)
{
    if (e->failure_status) {
        if (lead_on(e))
            return;
        e->head->upstream_failed = true;
        flow_errand_refuse(e, e->failure_status, NULL, "%s", e->failure);
        return;
    }
    give_head(e);
    upstream_resume(e->call);
}

static void on_head(void *context, struct upstream_call *call, const struct upstream_head *head)
{
    struct errand *e = context;
    const char *encoding = fields_get(head->fields, "Content-Encoding");
    bool plain = !encoding || strcasecmp(encoding, "identity") == 0;
    e->status = e->head->status = head->status;
    e->head->upstream_us = clock_us() - e->upstream_began_us;
    snprintf(e->head->upstream, sizeof e->head->upstream, "%s", head->upstream);
    flow_accepted_note(e->flow, e->asked.credential, e->model, e->status);
    e->events = plain && head->status == 200 && is_type(head->fields, "text/event-stream");
    e->answer_is_json = plain && head->status == 200 && is_type(head->fields, "application/json");
    if (e->asked.keep && head->status == 200 && !(e->asked.stream ? e->events : e->answer_is_json))
        e->kept_back = "type";
    e->asked.keep = e->asked.keep && (e->asked.stream ? e->events : e->answer_is_json);
    e->head->kind = HEAD_UPSTREAM;
    e->head->events = e->events;
    e->head->length = e->events ? -1 : head->length;
    if (!fields_return(head->fields, &e->head->fields)) {
        flow_errand_refuse(e, 502, "no_memory", "no memory for the upstream's answer");
        return;
    }
    if (e->events) {
        begin_answer(e);
        return; /* the head goes with the first event */
    }
    if ((head->status == 429 || head->status >= 500) && !e->failure_status) {
        snprintf(e->failure, sizeof e->failure, "the upstream answered %d", head->status);
        if (ask_for_old(e)) {
            upstream_pause(call);
            return;
        }
    }
    give_head(e);
}

/* ---- slow readers ------------------------------------------------------------------------------------------------ */

/* From the first time that an answer is paused for a slow reader, until it has come. */
static void look_at_slow_later(struct errand *e)
{
    struct timeval pause = {.tv_usec = SLOW_LOOK_MS * 1000};
    if (!evtimer_pending(&e->slow, NULL))
        evtimer_add(&e->slow, &pause);
}

void flow_answer_slow(struct errand *e)
{
    if (!e->call) /* all of it has come, so that nobody waits for another */
        return;
    if (flight_holds_up(e->flight))
        e->held_ms += SLOW_LOOK_MS;
    while (e->held_ms >= FLOW_HELD_MS && flight_holds_up(e->flight))
        flow_turn_drop((struct turn *)flight_slowest(e->flight));
    look_at_slow_later(e);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

/* False: the errand is over. */
static bool append(struct errand *e, const void *bytes, size_t n, unsigned flags)
{
    if (e->head)
        give_head(e);
    if (!flight_append(e->flight, bytes, n, flags)) {
        flow_errand_destroy(e);
        return false;
    }
    e->kept_bytes += flags & FLIGHT_KEEP ? n : 0;
    if (!flight_is_closed(e->flight) && flight_bytes(e->flight) > (size_t)e->flow->settings->join_buffer)
        flight_close(e->flight);
    return true;
}

/* A stream whose first event is an error: that is the answer. */
static void answer_error(struct errand *e, const struct sse_event *event)
{
    struct strict_text text = event->data.bytes ? event->data : event->error;
    struct head *head = e->head;
    let_guests_go(e);
    head->status = e->answer.error_status;
    head->events = false;
    head->length = (int64_t)text.bytes;
    head->upstream_failed = true;
    if (!fields_set(&head->fields, "Content-Type", "application/json"))
        head->length = -1;
    flow_errand_give_head(e);
    bool whole = flight_append(e->flight, text.data, text.bytes, 0);
    flight_finish(e->flight, whole ? FLIGHT_WHOLE : FLIGHT_BROKEN);
    flow_errand_destroy(e);
}

/* False: the errand is over. */
static bool take_event(struct errand *e, const struct sse_event *event)
{
    unsigned seen = answer_event(&e->answer, event), flags = FLIGHT_KEEP;
    if (e->head && (seen & ANSWER_SEEN_ERROR) && e->answer.first_is_error && e->answer.error_status >= 400) {
        answer_error(e, event);
        return false;
    }
    if (seen & ANSWER_SEEN_COMMENT)
        flags = 0;
    if (seen & ANSWER_SEEN_USAGE)
        flags |= FLIGHT_USAGE;
    return append(e, event->raw.data, event->raw.bytes, flags);
}

static void on_data(void *context, struct upstream_call *call, const void *bytes, size_t n)
{
    struct errand *e = context;
    const char *at = bytes;
    struct sse_event event;
    enum sse_status status;
    if (!e->events) {
        if (!append(e, bytes, n, FLIGHT_KEEP))
            return;
    } else {
        while ((status = sse_next(&e->sse, &at, &n, &event)) != SSE_MORE) {
            if (status == SSE_PART)
                answer_part(&e->answer);
            if (!(status == SSE_PART ? append(e, event.raw.data, event.raw.bytes, 0) : take_event(e, &event)))
                return;
        }
    }
    if (flight_full(e->flight)) {
        upstream_pause(call);
        look_at_slow_later(e);
    }
}

/* ---- end --------------------------------------------------------------------------------------------------------- */

static int failure_status(enum upstream_outcome outcome)
{
    return outcome == UPSTREAM_TIMEOUT ? 504 : 502;
}

static void on_failed(struct errand *e, const struct upstream_result *result)
{
    if (!e->head) { /* in the middle of the answer: everyone sees that it broke off */
        flight_finish(e->flight, FLIGHT_BROKEN);
        flow_errand_destroy(e);
        return;
    }
    snprintf(e->failure, sizeof e->failure, "%s", result->message);
    snprintf(e->head->upstream, sizeof e->head->upstream, "%s", result->upstream ? result->upstream : "");
    fields_clear(&e->head->fields);
    e->failure_status = failure_status(result->outcome);
    if (!ask_for_old(e))
        go_on_with_failure(e);
}

static enum answer_verdict judge_json(struct errand *e)
{
    size_t bytes;
    char *owned;
    const char *all = flow_keep_join(e, &bytes, &owned);
    enum answer_verdict verdict;
    if (!all)
        return ANSWER_NOT;
    begin_answer(e);
    verdict = answer_json(&e->answer, all, bytes);
    free(owned);
    return verdict;
}

static void on_done(void *context, struct upstream_call *call, const struct upstream_result *result)
{
    struct errand *e = context;
    struct sse_event event;
    enum sse_status status;
    enum answer_verdict verdict = ANSWER_NOT;
    (void)call;
    e->call = NULL;
    if (result->outcome != UPSTREAM_WHOLE) {
        on_failed(e, result);
        return;
    }
    while (e->events && (status = sse_end(&e->sse, &event)) != SSE_MORE) {
        if (status == SSE_PART)
            answer_part(&e->answer);
        if (!(status == SSE_PART ? append(e, event.raw.data, event.raw.bytes, 0) : take_event(e, &event)))
            return;
    }
    if (e->head)
        give_head(e);
    if (e->asked.keep) {
        verdict = e->events ? answer_end(&e->answer) : judge_json(e);
        if (!flight_is_complete(e->flight) || e->kept_bytes > (size_t)e->flow->settings->answer_max)
            e->kept_back = "too_large";
        else if (verdict != ANSWER_KEEP)
            e->kept_back = e->answer.refused ? answer_reason_name(e->answer.reason) : "no_memory";
    }
    ((struct head *)flight_head(e->flight))->kept_back = e->kept_back;
    flight_close(e->flight); /* who comes now is answered from the cache, with an id of its own */
    flight_finish(e->flight, FLIGHT_WHOLE);
    flow_keep_begin(e, verdict);
}

static const struct upstream_events events = {on_head, on_data, NULL, on_done};

void flow_answer_begin(struct errand *e)
{
    struct quire_error err = {.message = "no memory for the request"};
    struct evbuffer *body = evbuffer_new(); /* shares the bytes of e->body, which somebody else may need again */
    struct upstream_request request = {.method = "POST",
                                       .target = e->target,
                                       .fields = &e->fields,
                                       .model = *e->model ? e->model : NULL,
                                       .body = body,
                                       .body_whole = true,
                                       .own_key = e->own_key,
                                       .head_timeout_ms = e->head_timeout_ms};
    if (e->asked.only_if_cached) {
        if (body)
            evbuffer_free(body);
        flow_errand_refuse(e, 504, "not_cached", "the request says only-if-cached, and the cache has no answer to it");
        return;
    }
    if (!e->asked.keep)
        let_guests_go(e);
    renew_later(e);
    if (e->asked.near && e->asked.keep && !e->vector && !e->encoding)
        flow_errand_want_vector(e);
    e->upstream_began_us = clock_us();
    if (body && evbuffer_add_buffer_reference(body, e->body) == 0)
        e->call = upstream_start(e->flow->upstreams, &request, &events, e, &err);
    if (body)
        evbuffer_free(body);
    if (!e->call)
        flow_errand_refuse(e, err.code == QUIRE_ENOTFOUND ? 404 : 502,
                           err.code == QUIRE_ENOTFOUND ? "model_not_found" : NULL, "%s", err.message);
}
