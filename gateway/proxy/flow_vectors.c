/*
 * flow_vectors.c - vectors of texts, from the cache and from the upstream, in one answer.
 *
 * One SC.GET per text, all at once; no leases, since to compute a vector twice costs less than to wait for it. If all
 * are there, no upstream is asked. Otherwise the body is read again (the reader has served others meanwhile) and goes
 * on with the missing texts alone; what comes is put, text by text, and joined with the rest. If none was there, the
 * upstream's own answer is passed on unchanged.
 *
 * An answer of more than ANSWER_BYTES_MAX is not kept: it is passed on as it comes, unless some of its vectors are of
 * the cache.
 *
 * A kept value is the vector as the upstream spelled it: a list, or base64 in quotes.
 */
#include "gateway/proxy/flow_vectors.h"
#include "gateway/proxy/flow_accepted.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/refusal.h"
#include "gateway/settings/settings.h"
#include "gateway/text/onward.h"
#include "io/clock.h"
#include <assert.h>
#include <event2/buffer.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX        2048u /* as many as OpenAI takes in one request */
#define ANSWER_BYTES_MAX (64u << 20)
#define WORDS_MAX        (32u + 2 * POLICY_TAGS_MAX) /* of a command */

struct item {
    struct vectors_work *work;
    struct sc_call *call;
    char hash[2 * CANONICAL_HASH_BYTES + 1];
    char *vector; /* owned; NULL: not there */
    size_t bytes;
    uint64_t tokens;
    bool never;  /* its text is one that is not kept */
    char id[24]; /* of its entry */
};

struct vectors_work {
    struct turn *turn;
    struct upstream_call *call;
    struct evbuffer *answer;
    struct fields fields;
    struct item *items;
    uint32_t n, waiting, found;
    char compat[2 * CANONICAL_HASH_BYTES + 1], *user, *salt; /* these are owned; NULL: none */
    bool keep, down, begun, passing;                         /* passing: too large to be kept */
    bool stale;                                              /* some of those found are */
    int64_t age_ms;                                          /* of the oldest that was found */
    int status;
    int64_t length;
    uint64_t began_us, upstream_began_us;
};

static void free_work(struct vectors_work *work)
{
    work->turn->work = NULL;
    work->turn->gone = NULL;
    work->turn->writable = NULL;
    for (uint32_t i = 0; work->items && i < work->n; i++) {
        if (work->items[i].call)
            sc_cancel(work->items[i].call);
        free(work->items[i].vector);
    }
    if (work->call)
        upstream_cancel(work->call);
    if (work->answer)
        evbuffer_free(work->answer);
    fields_fini(&work->fields);
    free(work->items);
    free(work->user);
    free(work->salt);
    free(work);
}

static void on_gone(struct turn *turn)
{
    free_work(turn->work);
}

static void to_hex(const uint8_t hash[CANONICAL_HASH_BYTES], char out[2 * CANONICAL_HASH_BYTES + 1])
{
    for (unsigned i = 0; i < CANONICAL_HASH_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/* SC.GET or SC.PUT of one item, up to HASH and COMPAT. */
static unsigned name_item(const struct item *item, const char *command, const char **words)
{
    const struct turn *turn = item->work->turn;
    unsigned n = 0;
    words[n++] = command;
    words[n++] = turn->flow->cache;
    words[n++] = "CAT";
    words[n++] = turn->category;
    words[n++] = "SCOPE";
    words[n++] = "tenant";
    words[n++] = turn->caller.scope;
    if (*turn->controls.space) {
        words[n++] = "ns";
        words[n++] = turn->controls.space;
    }
    if (item->work->user) {
        words[n++] = "user";
        words[n++] = item->work->user;
    }
    if (item->work->salt) {
        words[n++] = "salt";
        words[n++] = item->work->salt;
    }
    words[n++] = "HASH";
    words[n++] = item->hash;
    words[n++] = "COMPAT";
    words[n++] = item->work->compat;
    return n;
}

static struct sc_call *send_item(const struct item *item, const char *const *words, const size_t *given, unsigned n,
                                 sc_done *done, void *context)
{
    size_t bytes[WORDS_MAX];
    const struct flow *flow = item->work->turn->flow;
    assert(n <= WORDS_MAX);
    for (unsigned i = 0; i < n; i++)
        bytes[i] = given && given[i] ? given[i] : strlen(words[i]);
    return sc_call(flow->client, n, words, bytes, (unsigned)flow->settings->server_timeout, done, context);
}

static void all_looked_up(struct vectors_work *work);

static void on_get(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct item *item = context;
    struct vectors_work *work = item->work;
    struct sc_get get;
    item->call = NULL;
    work->waiting--;
    if (outcome != SC_REPLY || !sc_reply_get(reply, &get)) {
        work->down = true;
        flow_turn_say(work->turn, "down", "%.200s", why ? why : "a reply of the server cannot be read");
    } else if ((get.status == SC_EXACT || get.status == SC_STALE) && get.value.data) {
        item->vector = malloc(get.value.bytes + 1);
        if (item->vector) {
            memcpy(item->vector, get.value.data, get.value.bytes);
            item->bytes = get.value.bytes;
            item->tokens = (uint64_t)get.tokens_in;
            snprintf(item->id, sizeof item->id, "%.*s", (int)get.id.bytes, get.id.data ? get.id.data : "");
            work->stale = work->stale || get.status == SC_STALE;
            work->age_ms = get.age_ms > work->age_ms ? get.age_ms : work->age_ms;
            work->found++;
        }
    }
    if (work->waiting == 0 && work->begun)
        all_looked_up(work);
}

static void look_up(struct item *item)
{
    const char *words[32];
    unsigned n = name_item(item, "SC.GET", words);
    char age[24];
    words[n++] = "NOLEASE";
    if (item->work->turn->controls.max_age_ms >= 0) {
        snprintf(age, sizeof age, "%lld", (long long)item->work->turn->controls.max_age_ms);
        words[n++] = "MAXAGE";
        words[n++] = age;
    }
    item->call = send_item(item, words, NULL, n, on_get, item);
    item->work->waiting += item->call != NULL;
}

static void on_put(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    (void)context;
    (void)outcome;
    (void)reply;
    (void)why;
}

static void put(const struct item *item, struct strict_text vector, uint64_t tokens)
{
    const struct turn *turn = item->work->turn;
    const char *words[WORDS_MAX];
    size_t bytes[WORDS_MAX] = {0};
    unsigned n = name_item(item, "SC.PUT", words);
    char text[24], ttl[24];
    words[n++] = "VALUE";
    bytes[n] = vector.bytes;
    words[n++] = vector.data;
    snprintf(text, sizeof text, "%llu", (unsigned long long)tokens);
    words[n++] = "TOKENS";
    words[n++] = text;
    words[n++] = "0";
    if (*turn->model) {
        words[n++] = "MODEL";
        words[n++] = turn->model;
    }
    if (turn->controls.ttl_ms > 0) {
        snprintf(ttl, sizeof ttl, "%lld", (long long)turn->controls.ttl_ms);
        words[n++] = "TTL";
        words[n++] = ttl;
    }
    for (unsigned i = 0; i < turn->controls.n_tags; i++) {
        words[n++] = "TAG"; /* before each: a tag may be named like an option */
        words[n++] = turn->controls.tags[i];
    }
    send_item(item, words, bytes, n, on_put, NULL);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static void answer_body(struct vectors_work *work, const char *body, size_t bytes)
{
    struct turn *turn = work->turn;
    struct fields fields = {0};
    fields_append(&fields, "Content-Type", "application/json");
    if (turn->tokens_saved)
        fields_print(&fields, "X-Quire-Tokens-Saved", "%llu", (unsigned long long)turn->tokens_saved);
    if (work->found == work->n)
        fields_print(&fields, "Age", "%lld", (long long)(work->age_ms / 1000));
    if (work->n == 1 && *work->items[0].id)
        fields_append(&fields, "X-Quire-Id", work->items[0].id);
    flow_turn_fields(turn, &fields);
    http_answer(turn->r, 200, &fields, body, bytes);
    fields_fini(&fields);
}

/* From the vectors of all items; `fresh` (may be NULL) has those that were missing, in their order. */
static void answer_joined(struct vectors_work *work, const struct answer *fresh, uint64_t fresh_tokens)
{
    struct turn *turn = work->turn;
    struct strict_text *vectors = calloc(work->n, sizeof *vectors);
    struct quire_error err = {0};
    char *body = NULL;
    size_t bytes = 0;
    uint64_t tokens = fresh_tokens;
    struct answer_place place = {0};
    for (uint32_t i = 0; vectors && i < work->n; i++) {
        const struct item *item = &work->items[i];
        vectors[i] = item->vector ? (struct strict_text){item->vector, item->bytes} : answer_vector(fresh, &place);
        tokens += item->vector ? item->tokens : 0;
        turn->tokens_saved += item->vector ? item->tokens : 0;
    }
    if (turn->flow->settings->usage == SETTINGS_USAGE_ZERO)
        tokens = fresh_tokens;
    if (!vectors || replay_vectors(vectors, work->n, (struct strict_text){turn->model, strlen(turn->model)}, tokens,
                                   &body, &bytes, &err) != 0)
        flow_turn_refuse(turn, 500, "no_memory", "no memory for an answer of %u vectors", work->n);
    else
        answer_body(work, body, bytes);
    free(body);
    free(vectors);
}

/* Puts what came. `answer` has been read and is kept. */
static void put_fresh(struct vectors_work *work, const struct answer *answer)
{
    uint32_t missing = work->n - work->found, asked = 0;
    uint64_t tokens = answer->has_usage ? answer->prompt_tokens : 0;
    struct answer_place place = {0};
    for (uint32_t i = 0; i < work->n; i++)
        if (!work->items[i].vector) {
            /* parts that add up to the whole */
            uint64_t share = tokens * (asked + 1) / missing - tokens * asked / missing;
            struct strict_text vector = answer_vector(answer, &place);
            asked++;
            if (vector.data && work->keep && !work->items[i].never)
                put(&work->items[i], vector, share);
        }
}

static void on_head(void *context, struct upstream_call *call, const struct upstream_head *head)
{
    struct vectors_work *work = context;
    struct turn *turn = work->turn;
    (void)call;
    work->status = head->status;
    work->length = head->length;
    turn->upstream_us = clock_us() - work->upstream_began_us;
    snprintf(turn->upstream, sizeof turn->upstream, "%s", head->upstream);
    fields_return(head->fields, &work->fields);
    flow_accepted_note(turn->flow, turn->caller.credential, turn->model, head->status);
}

static void on_writable(struct turn *turn)
{
    struct vectors_work *work = turn->work;
    if (work->call)
        upstream_resume(work->call);
}

static void begin_passing(struct vectors_work *work)
{
    struct turn *turn = work->turn;
    work->passing = true;
    turn->writable = on_writable;
    flow_turn_fields(turn, &work->fields);
    http_head(turn->r, work->status, &work->fields, work->length);
    http_data_move(turn->r, work->answer);
}

static void on_data(void *context, struct upstream_call *call, const void *bytes, size_t n)
{
    struct vectors_work *work = context;
    if (work->found == 0 && !work->passing && evbuffer_get_length(work->answer) + n > ANSWER_BYTES_MAX)
        begin_passing(work);
    if (work->passing) {
        http_data(work->turn->r, bytes, n);
        if (http_is_full(work->turn->r))
            upstream_pause(call);
        return;
    }
    if (evbuffer_get_length(work->answer) + n <= ANSWER_BYTES_MAX && evbuffer_add(work->answer, bytes, n) == 0)
        return;
    flow_turn_refuse(work->turn, 502, NULL, "the upstream's vectors take more than %u bytes: ask for fewer at once",
                     ANSWER_BYTES_MAX);
    free_work(work);
}

/* The upstream's own bytes. */
static void answer_as_it_came(struct vectors_work *work)
{
    struct turn *turn = work->turn;
    flow_turn_fields(turn, &work->fields);
    http_head(turn->r, work->status, &work->fields, (int64_t)evbuffer_get_length(work->answer));
    http_data_move(turn->r, work->answer);
    http_end(turn->r);
}

static void on_done(void *context, struct upstream_call *call, const struct upstream_result *result)
{
    struct vectors_work *work = context;
    struct turn *turn = work->turn;
    struct answer answer;
    const char *body;
    (void)call;
    work->call = NULL;
    if (work->passing) {
        turn->upstream_failed = result->outcome != UPSTREAM_WHOLE;
        if (turn->upstream_failed)
            refusal_in_stream(turn->r, "api_connection_error", "the upstream's answer broke off");
        else
            http_end(turn->r);
        free_work(work);
        return;
    }
    if (result->outcome != UPSTREAM_WHOLE) {
        turn->upstream_failed = true;
        refusal_upstream(turn->r, NULL, result);
        free_work(work);
        return;
    }
    body = (const char *)evbuffer_pullup(work->answer, -1);
    answer_begin(&answer, &(struct answer_options){.kind = ASK_EMBEDDINGS, .items = work->n - work->found},
                 &turn->flow->answer_json);
    if (work->status != 200 ||
        answer_json(&answer, body ? body : "", evbuffer_get_length(work->answer)) != ANSWER_KEEP) {
        if (work->status == 200) {
            turn->kept_back = answer_reason_name(answer.reason);
            flow_keep_count(turn->flow, "kept_back", turn->kept_back);
        }
        if (work->status == 200 && work->found > 0)
            flow_turn_refuse(turn, 502, NULL, "the upstream's vectors cannot be read: %s", answer.refused);
        else
            answer_as_it_came(work);
        free_work(work);
        return;
    }
    put_fresh(work, &answer);
    if (work->found > 0)
        answer_joined(work, &answer, answer.prompt_tokens);
    else
        answer_as_it_came(work);
    free_work(work);
}

static const struct upstream_events events = {on_head, on_data, NULL, on_done};

/* The body once more, with the missing texts alone. */
static bool write_body(struct vectors_work *work, struct evbuffer *out, struct quire_error *err)
{
    struct turn *turn = work->turn;
    struct flow *flow = turn->flow;
    struct evbuffer *body = http_body(turn->r);
    const char *text = (const char *)evbuffer_pullup(body, -1);
    uint32_t missing[ITEMS_MAX];
    struct onward onward;
    struct onward_edits edits = {.items = work->found > 0 ? missing : NULL};
    bool ok = true;
    for (uint32_t i = 0; i < work->n; i++)
        if (!work->items[i].vector)
            missing[edits.n_items++] = i;
    if (strict_read(&flow->json, text, evbuffer_get_length(body), err) != 0 ||
        ask_read(&flow->ask, ASK_EMBEDDINGS, &flow->json, err) != 0)
        return false;
    edits.drop_cache = true;
    if (turn->renamed)
        edits.model = (struct strict_text){turn->model, strlen(turn->model)};
    if (onward_plan(&onward, &flow->ask, &edits, err) != 0)
        return false;
    for (uint32_t i = 0; i < onward.n_pieces && ok; i++)
        ok = evbuffer_add(out, onward.pieces[i].data, onward.pieces[i].bytes) == 0;
    onward_fini(&onward);
    return ok;
}

static void ask_upstream(struct vectors_work *work)
{
    struct turn *turn = work->turn;
    struct evbuffer *body = evbuffer_new();
    struct fields fields = {0};
    struct quire_error err = {.message = "no memory for the request"};
    struct upstream_request request = {.method = "POST",
                                       .target = http_target(turn->r),
                                       .fields = &fields,
                                       .model = *turn->model ? turn->model : NULL,
                                       .body = body,
                                       .body_whole = true,
                                       .own_key = turn->caller.upstream_key != NULL,
                                       .head_timeout_ms = flow_body_timeout(turn)};
    work->upstream_began_us = clock_us();
    work->answer = evbuffer_new();
    if (body && work->answer && flow_body_fields(turn, &fields) && write_body(work, body, &err))
        work->call = upstream_start(turn->flow->upstreams, &request, &events, work, &err);
    if (body)
        evbuffer_free(body);
    fields_fini(&fields);
    if (!work->call) {
        flow_turn_refuse(turn, err.code == QUIRE_ENOTFOUND ? 404 : 502,
                         err.code == QUIRE_ENOTFOUND ? "model_not_found" : NULL, "%s", err.message);
        free_work(work);
    }
}

static void all_looked_up(struct vectors_work *work)
{
    struct turn *turn = work->turn;
    turn->cache_us = clock_us() - work->began_us;
    if (work->found == work->n) {
        flow_turn_say(turn, work->stale ? "stale" : "exact", work->n == 1 ? "the same text%s" : "the same texts%s",
                      work->stale ? ", whose time is over" : "");
        answer_joined(work, NULL, 0);
        free_work(work);
        return;
    }
    if (!work->down)
        flow_turn_say(turn, "miss", "%u of %u texts are kept", work->found, work->n);
    if (turn->controls.only_if_cached) {
        flow_turn_refuse(turn, 504, "not_cached", "the request says only-if-cached, and the cache has %u of %u vectors",
                         work->found, work->n);
        free_work(work);
        return;
    }
    ask_upstream(work);
}

void flow_vectors_begin(struct turn *turn, const struct ask *ask, const struct canonical_keys *keys, bool keep)
{
    struct flow *flow = turn->flow;
    struct vectors_work *work = calloc(1, sizeof *work);
    struct quire_error err = {0};
    bool accepted = flow_body_accepted(turn), look = accepted && !turn->controls.no_cache;
    bool ok =
        work && ask->items > 0 && ask->items <= ITEMS_MAX && (work->items = calloc(ask->items, sizeof *work->items));
    ok = ok && flow_body_walls(turn, ask, &work->user, &work->salt);
    for (uint32_t i = 0; ok && i < ask->items; i++) {
        uint8_t hash[CANONICAL_HASH_BYTES];
        work->items[i].work = work;
        ok = canonical_item(flow->canonical, ask, keys, i, hash, &err) == 0;
        to_hex(hash, work->items[i].hash);
        work->items[i].never = flow_keep_never_item(flow, ask, i);
    }
    if (!ok) {
        if (work) {
            free(work->items);
            free(work->user);
            free(work->salt);
        }
        free(work);
        flow_turn_say(turn, "bypass", ask->items > ITEMS_MAX ? "more than %u texts" : "no memory for %u texts",
                      ITEMS_MAX);
        flow_turn_pass(turn, *turn->model ? turn->model : NULL);
        return;
    }
    work->turn = turn;
    work->n = ask->items;
    work->keep = keep;
    work->began_us = clock_us();
    to_hex(keys->compat, work->compat);
    turn->work = work;
    turn->gone = on_gone;
    for (uint32_t i = 0; i < work->n && look; i++)
        look_up(&work->items[i]);
    work->begun = true;
    if (work->waiting == 0) {
        flow_turn_say(turn, "miss",
                      look       ? "no memory"
                      : accepted ? "the request says no-cache, or max-age=0"
                                 : "the upstream has not accepted this credential lately");
        work->down = true; /* what was said stays */
        all_looked_up(work);
    }
}
