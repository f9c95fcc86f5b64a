/*
 * flow_words.c - the commands of an errand, as words.
 *
 * The words that name a question (category, scope, HASH, COMPAT, TEXT) are the same in SC.GET, SC.PUT and SC.NEG,
 * since an entry is found by exactly what it was put with. A list of words grows on the heap for the time of one call;
 * sc_call copies the words straight into its buffer.
 */
#include "gateway/encode/encode.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/settings/settings.h"
#include "io/array.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AFTERWARDS_MS 10000u /* of commands that no client waits for */

struct words {
    const char **text;
    size_t *bytes;
    size_t n, text_capacity, bytes_capacity;
    char numbers[8][32];
    unsigned n_numbers;
    bool failed; /* no memory: nothing is to be sent */
};

static void add_bytes(struct words *words, const char *text, size_t bytes)
{
    if (words->failed || !array_reserve(&words->text, &words->text_capacity, words->n + 1) ||
        !array_reserve(&words->bytes, &words->bytes_capacity, words->n + 1)) {
        words->failed = true;
        return;
    }
    words->text[words->n] = text;
    words->bytes[words->n++] = bytes;
}

static void add(struct words *words, const char *text)
{
    add_bytes(words, text, strlen(text));
}

static void add_number(struct words *words, int64_t number)
{
    char *out = words->numbers[words->n_numbers++];
    assert(words->n_numbers <= sizeof words->numbers / sizeof *words->numbers);
    snprintf(out, sizeof *words->numbers, "%" PRId64, number);
    add(words, out);
}

static void add_pair(struct words *words, const char *name, const char *value)
{
    if (value && *value) {
        add(words, name);
        add(words, value);
    }
}

static void name_question(struct words *words, const char *command, const struct errand *e)
{
    add(words, command);
    add(words, e->flow->cache);
    add(words, "CAT");
    add(words, e->asked.category);
    add(words, "SCOPE");
    add(words, "tenant");
    add(words, e->asked.scope);
    add_pair(words, "ns", e->asked.space);
    add_pair(words, "user", e->asked.user);
    add_pair(words, "salt", e->asked.salt);
    add(words, "HASH");
    add(words, e->asked.hash);
    add(words, "COMPAT");
    add(words, e->asked.compat);
    if (e->asked.text) {
        add(words, "TEXT");
        add_bytes(words, e->asked.text, e->asked.text_bytes);
    }
}

static void add_vector(struct words *words, const struct errand *e)
{
    if (!e->asked.near || !e->vector)
        return;
    add(words, "VEC");
    add_bytes(words, (const char *)e->vector, e->dim * sizeof *e->vector);
    add(words, "ENCODER");
    add(words, encode_name(e->flow->encode));
}

static struct sc_call *send_words(struct flow *flow, struct words *words, unsigned deadline_ms, sc_done *done,
                                  void *context)
{
    struct sc_call *call = NULL;
    if (!words->failed && words->n <= SC_ARGUMENTS_MAX)
        call = sc_call(flow->client, (unsigned)words->n, words->text, words->bytes, deadline_ms, done, context);
    free(words->text);
    free(words->bytes);
    return call;
}

/* Who asked has gone, or waited too long: a lease that comes now is nobody's, and others would wait until it ends. */
static void on_late_get(void *context, struct redisReply *reply)
{
    struct flow *flow = context;
    struct sc_get get;
    char lease[QUIRE_CACHE_TOKEN_BYTES];
    if (!sc_reply_get(reply, &get) || !get.lease.data || get.lease.bytes >= sizeof lease)
        return;
    memcpy(lease, get.lease.data, get.lease.bytes);
    lease[get.lease.bytes] = 0;
    flow_words_tell(flow, (const char *[]){"SC.FAIL", flow->cache, lease}, 3);
}

struct sc_call *flow_words_get(struct errand *e, enum flow_get what, sc_done *done)
{
    struct words words = {0};
    struct sc_call *call;
    char sim[24];
    name_question(&words, "SC.GET", e);
    if (what == FLOW_GET_PROBE)
        add(&words, "PROBE");
    else
        add_vector(&words, e);
    if (what == FLOW_GET_ONERROR)
        add(&words, "ONERROR");
    if (e->asked.sim >= 0) {
        snprintf(sim, sizeof sim, "%.6f", e->asked.sim);
        add(&words, "SIM");
        add(&words, sim);
    }
    if (e->asked.max_age_ms >= 0) {
        add(&words, "MAXAGE");
        add_number(&words, e->asked.max_age_ms);
    }
    if (e->asked.explain)
        add(&words, "EXPLAIN");
    if (!e->asked.keep)
        add(&words, "NOLEASE");
    call = send_words(e->flow, &words, (unsigned)e->flow->settings->server_timeout, done, e);
    if (call && e->asked.keep)
        sc_call_late(call, on_late_get, e->flow);
    return call;
}

struct sc_call *flow_words_put(struct errand *e, const char *answer, size_t bytes, uint64_t llm_ms, sc_done *done)
{
    struct words words = {0};
    struct flight_piece piece;
    uint64_t at = 0, n = 0;
    name_question(&words, "SC.PUT", e);
    add_vector(&words, e);
    if (e->lease) {
        add(&words, "LEASE");
        add(&words, e->lease);
    }
    if (answer) {
        add(&words, "VALUE");
        add_bytes(&words, answer, bytes);
    } else {
        while (flight_kept(e->flight, &at, &piece))
            n++;
        add(&words, "CHUNKS");
        add_number(&words, (int64_t)n);
        at = 0;
        while (flight_kept(e->flight, &at, &piece))
            add_bytes(&words, piece.data, piece.bytes);
    }
    if (e->asked.ttl_ms > 0) {
        add(&words, "TTL");
        add_number(&words, e->asked.ttl_ms);
    }
    for (unsigned i = 0; i < e->n_tags; i++) {
        add(&words, "TAG"); /* before each: a tag may be named like an option */
        add(&words, e->tags[i]);
    }
    if (e->answer.has_usage) {
        add(&words, "TOKENS");
        add_number(&words, (int64_t)e->answer.prompt_tokens);
        add_number(&words, (int64_t)e->answer.completion_tokens);
    }
    add(&words, "LLMMS");
    add_number(&words, (int64_t)llm_ms);
    if (*e->model) {
        add(&words, "MODEL");
        add(&words, e->model);
    }
    return send_words(e->flow, &words, AFTERWARDS_MS, done, e);
}

struct sc_call *flow_words_negative(struct errand *e, sc_done *done)
{
    struct words words = {0};
    name_question(&words, "SC.NEG", e);
    if (e->lease) {
        add(&words, "LEASE");
        add(&words, e->lease);
    }
    return send_words(e->flow, &words, AFTERWARDS_MS, done, e);
}

struct sc_call *flow_words_renew(struct errand *e, sc_done *done)
{
    struct words words = {0};
    assert(e->lease);
    add(&words, "SC.RENEW");
    add(&words, e->flow->cache);
    add(&words, e->lease);
    return send_words(e->flow, &words, AFTERWARDS_MS, done, e);
}

struct sc_call *flow_words_pair(struct flow *flow, int64_t audit, sc_done *done, void *context)
{
    struct words words = {0};
    add(&words, "SC.AUDIT");
    add(&words, "GET");
    add(&words, flow->cache);
    add_number(&words, audit);
    return send_words(flow, &words, AFTERWARDS_MS, done, context);
}

static void on_told(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    (void)context;
    (void)outcome;
    (void)reply;
    (void)why;
}

void flow_words_tell(struct flow *flow, const char *const *list, unsigned n)
{
    struct words words = {0};
    for (unsigned i = 0; i < n; i++)
        add(&words, list[i]);
    send_words(flow, &words, AFTERWARDS_MS, on_told, NULL);
}
