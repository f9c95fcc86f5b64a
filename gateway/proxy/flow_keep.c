/*
 * flow_keep.c - after the answer: it is put into the cache, or the server is told that it will not be.
 *
 * The clients have their answer by then, so nothing here is in anybody's way. Whoever asks the same before the server
 * has the answer finds the lease taken, and looks again a few milliseconds later.
 *
 * A crowd of answers that end at once is put a few at a time, the rest waits (bounded): look-ups of other requests have
 * a deadline of their own, and would not meet it behind thousands of puts.
 */
#include "gateway/policy/policy_route.h"
#include "gateway/proxy/flow_judge.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/flow_promise.h"
#include "gateway/settings/settings.h"
#include "gateway/telemetry/telemetry.h"
#include "gateway/telemetry/telemetry_log.h"
#include "gateway/text/answer_texts.h"
#include "io/clock.h"
#include <assert.h>
#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void flow_keep_count(struct flow *flow, const char *outcome, const char *reason)
{
    char labels[200], value[100];
    snprintf(labels, sizeof labels, "outcome=\"%s\",reason=\"%s\"", telemetry_escape(value, sizeof value, outcome),
             reason);
    telemetry_add(telemetry_counter(flow->telemetry, "quire_gateway_kept_total",
                                    "Answers of upstreams by what the cache did with them, and why not", labels),
                  1);
}

static void count(const struct errand *e, const char *outcome)
{
    flow_keep_count(e->flow, outcome, "");
}

static void on_put(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct errand *e = context;
    struct sc_put put;
    e->sc = NULL;
    if (outcome == SC_REPLY && sc_reply_put(reply, &put)) {
        char text[32];
        snprintf(text, sizeof text, "%.*s", (int)put.outcome.bytes, put.outcome.data);
        count(e, text);
        flow_promise_end(e->flow->promises, e->promise, put.id.data, put.id.bytes);
        flow_errand_drop_lease(e); /* the put has ended it */
    } else {
        count(e, "error");
        telemetry_log(TELEMETRY_WARNING, "an answer was not kept: %s",
                      why ? why : "a reply of the server cannot be read");
    }
    flow_errand_destroy(e);
}

static void on_negative(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct errand *e = context;
    (void)reply;
    (void)why;
    e->sc = NULL;
    if (outcome == SC_REPLY) {
        flow_errand_drop_lease(e);
    }
    flow_errand_destroy(e);
}

const char *flow_keep_join(const struct errand *e, size_t *bytes, char **owned)
{
    struct flight_piece piece;
    uint64_t at = 0;
    char *all;
    *owned = NULL;
    *bytes = 0;
    if (!flight_is_complete(e->flight))
        return NULL;
    if (flight_whole(e->flight, &piece)) {
        *bytes = piece.bytes;
        return piece.data ? piece.data : "";
    }
    *owned = all = malloc(flight_bytes(e->flight) + 1);
    while (all && flight_kept(e->flight, &at, &piece)) {
        memcpy(all + *bytes, piece.data, piece.bytes);
        *bytes += piece.bytes;
    }
    return all;
}

/* ---- texts that are never kept (setting never) ---- */

static bool is_named(const void *context, const char *text, size_t bytes)
{
    const struct settings_list *never = context;
    for (uint32_t i = 0; i < never->n; i++)
        if (policy_glob(never->items[i], text, bytes))
            return true;
    return false;
}

bool flow_keep_never_asked(const struct flow *flow, const struct ask *ask)
{
    const struct settings_list *never = &flow->settings->never;
    return never->n > 0 && ask_user_fits(ask, is_named, never);
}

bool flow_keep_never_item(const struct flow *flow, const struct ask *ask, uint32_t item)
{
    const struct settings_list *never = &flow->settings->never;
    return never->n > 0 && ask_item_fits(ask, item, is_named, never);
}

/* Whether a text of the answer is named. Without memory to look, it is not kept either. */
static bool says_never(const struct errand *e, const char *answer, size_t bytes)
{
    const struct settings_list *never = &e->flow->settings->never;
    struct answer_texts texts;
    bool found;
    if (never->n == 0)
        return false;
    found = answer_texts_read(&texts, e->asked.kind, answer, bytes, e->events) != 0;
    for (size_t i = 0; !found && i < texts.n; i++)
        found = is_named(never, texts.items[i].text.data, texts.items[i].text.bytes);
    answer_texts_fini(&texts);
    return found;
}

/* ---- putting ----------------------------------------------------------------------------------------------------- */

static void stop_renewing(struct errand *e)
{
    event_del(&e->timer);
    if (e->sc)
        sc_cancel(e->sc);
    e->sc = NULL;
}

static void send_put(struct errand *e)
{
    uint64_t llm_ms = (clock_us() - e->upstream_began_us) / 1000;
    size_t bytes;
    char *owned;
    const char *all = flow_keep_join(e, &bytes, &owned);
    stop_renewing(e);
    if (!all)
        flow_keep_count(e->flow, "kept_back", "no_memory");
    else if (says_never(e, all, bytes))
        count(e, "never");
    else
        e->sc = flow_words_put(e, e->events ? NULL : all, bytes, llm_ms, on_put);
    free(owned);
    if (!e->sc)
        flow_errand_destroy(e);
}

static void run_put(struct errand *e)
{
    e->put = PUT_RUNS;
    e->flow->n_puts++;
    send_put(e);
}

static void put(struct errand *e)
{
    struct flow *flow = e->flow;
    assert(e->put == PUT_NONE);
    if (flow->n_puts < FLOW_PUTS_AT_ONCE) {
        run_put(e);
    } else if (flow->n_puts_waiting >= FLOW_PUTS_WAITING) {
        count(e, "too_many");
        flow_errand_destroy(e);
    } else {
        e->put = PUT_WAITS;
        *(flow->puts_last ? &flow->puts_last->next_put : &flow->puts_first) = e;
        flow->puts_last = e;
        flow->n_puts_waiting++;
    }
}

static void take_from_waiting(struct errand *e)
{
    struct flow *flow = e->flow;
    struct errand *before = NULL, *at = flow->puts_first;
    for (; at && at != e; at = at->next_put)
        before = at;
    assert(at == e && flow->n_puts_waiting > 0);
    *(before ? &before->next_put : &flow->puts_first) = e->next_put;
    if (flow->puts_last == e)
        flow->puts_last = before;
    e->next_put = NULL;
    flow->n_puts_waiting--;
}

void flow_keep_leave(struct errand *e)
{
    struct flow *flow = e->flow;
    struct errand *next;
    if (e->put == PUT_WAITS)
        take_from_waiting(e);
    flow->n_puts -= e->put == PUT_RUNS;
    e->put = PUT_NONE;
    if (flow->starting_puts)
        return; /* from within run_put: the loop below goes on */
    flow->starting_puts = true;
    while (flow->n_puts < FLOW_PUTS_AT_ONCE && (next = flow->puts_first)) {
        take_from_waiting(next);
        run_put(next);
    }
    flow->starting_puts = false;
}

void flow_keep_vector(struct errand *e)
{
    if (e->vector) {
        put(e);
        return;
    }
    count(e, "no_vector");
    flow_errand_destroy(e);
}

/* The verdict of somebody else about two answers. */
static void judge(struct errand *e)
{
    size_t bytes;
    char *owned = NULL;
    const char *fresh = NULL;
    if (e->audit >= 0 && e->flow->judge)
        fresh = flow_keep_join(e, &bytes, &owned);
    if (fresh)
        flow_judge_begin(e->flow->judge, e, fresh, bytes);
    free(owned);
}

void flow_keep_begin(struct errand *e, enum answer_verdict verdict)
{
    assert(flight_ended(e->flight) == FLIGHT_WHOLE && !e->call);
    if (verdict == ANSWER_KEEP)
        judge(e);
    if (e->asked.keep && !*e->kept_back) {
        assert(verdict == ANSWER_KEEP && flight_is_complete(e->flight));
        if (!e->asked.near || e->vector)
            put(e);
        else if (e->encoding)
            e->vector_wanted = true;
        else
            flow_keep_vector(e);
        return;
    }
    stop_renewing(e);
    if (e->status == 200 && *e->kept_back)
        flow_keep_count(e->flow, verdict == ANSWER_NEGATIVE ? "negative" : "kept_back", e->kept_back);
    else if (e->status == 200)
        count(e, "not_asked");
    if (verdict == ANSWER_NEGATIVE && e->asked.keep && e->asked.look)
        e->sc = flow_words_negative(e, on_negative);
    if (!e->sc)
        flow_errand_destroy(e);
}
