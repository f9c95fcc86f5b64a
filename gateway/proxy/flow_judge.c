/*
 * flow_judge.c - labels for audits.
 *
 *   none    an audit waits for SC.AUDIT POP; nobody is said to look
 *   hand    an audit waits for SC.AUDIT POP, and somebody will
 *   equal   the same words but for white space: strict, right for answers that are facts
 *   vector  a cosine of JUDGE_SIMILARITY or more between the answers' vectors
 *   model   a model is asked with one token, at the upstream of the request, by its own credential
 *
 * What the model takes for it, in tokens and time, is counted: it is what savings are to be reduced by.
 *
 * What is compared is what was said: the texts of the choices, of JSON or of a stream's events. Would-be hits that are
 * audited come with the cached answer; of misses that are sampled only the number is known, and SC.AUDIT GET has the
 * answer. No label is better than a wrong one: whatever fails here leaves the pair to SC.AUDIT POP.
 */
#include "gateway/proxy/flow_judge.h"
#include "gateway/encode/encode.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/settings/settings.h"
#include "gateway/store/sc_reply.h"
#include "gateway/telemetry/telemetry.h"
#include "gateway/text/answer_texts.h"
#include "io/clock.h"
#include <ctype.h>
#include <event2/buffer.h>
#include <hiredis/hiredis.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JUDGE_SIMILARITY 0.9
#define JUDGE_TEXT_BYTES 8192u /* of each answer that a model reads */
#define JUDGE_TIMEOUT_MS 30000u
#define FREE_QUESTIONS   100.0 /* before there is much to have a share of: labels come first */

struct verdict {
    struct flow_judge *judge;
    struct verdict *next, *previous;
    int64_t audit;
    enum ask_kind kind;
    bool events;        /* so answers of this question are kept */
    char *texts[2];     /* of the cached answer, of the model's */
    struct sc_call *sc; /* the cached answer is on its way */
    float *first;       /* vector of the first text */
    uint32_t dim;
    struct encode_call *encoding;
    struct upstream_call *call;
    struct evbuffer *answer;
    int status;
    /* of a question to the model */
    bool has_question; /* taken, and not used so far */
    char *question;
    struct fields fields; /* with the credential of the request */
    char *model, scope[FLOW_SCOPE_BYTES], category[POLICY_NAME_BYTES_MAX + 1];
    uint64_t began_us;
};

struct flow_judge {
    struct flow *flow;
    struct verdict *verdicts;
    double tokens; /* of the rate */
    uint64_t filled_us, asked;
    struct flow_judge_cost cost;
};

struct flow_judge *flow_judge_create(struct flow *flow)
{
    struct flow_judge *judge = calloc(1, sizeof *judge);
    if (!judge)
        return NULL;
    judge->flow = flow;
    judge->tokens = 1;
    judge->filled_us = clock_us();
    return judge;
}

static void give_back(struct flow_judge *judge, bool question)
{
    judge->tokens += question;
    judge->asked -= question;
}

static void free_verdict(struct verdict *v)
{
    give_back(v->judge, v->has_question);
    *(v->previous ? &v->previous->next : &v->judge->verdicts) = v->next;
    if (v->next)
        v->next->previous = v->previous;
    if (v->sc)
        sc_cancel(v->sc);
    if (v->encoding)
        encode_cancel(v->encoding);
    if (v->call)
        upstream_cancel(v->call);
    if (v->answer)
        evbuffer_free(v->answer);
    free(v->texts[0]);
    free(v->texts[1]);
    free(v->first);
    free(v->question);
    free(v->model);
    fields_fini(&v->fields);
    free(v);
}

void flow_judge_destroy(struct flow_judge *judge)
{
    if (!judge)
        return;
    while (judge->verdicts)
        free_verdict(judge->verdicts);
    free(judge);
}

/* ---- what an answer says ----------------------------------------------------------------------------------------- */

/* A NUL-terminated text, to be freed; NULL: nothing was said that could be read. */
static char *said(enum ask_kind kind, const char *answer, size_t bytes, bool events)
{
    struct answer_texts texts;
    char *text = NULL;
    size_t n = 0;
    if (answer_texts_read(&texts, kind, answer, bytes, events) == 0 && texts.n > 0)
        text = malloc(bytes + 1);
    for (size_t i = 0; text && i < texts.n; i++)
        if (texts.items[i].voice == ANSWER_SAID) {
            memcpy(text + n, texts.items[i].text.data, texts.items[i].text.bytes);
            n += texts.items[i].text.bytes;
        }
    answer_texts_fini(&texts);
    if (n == 0) {
        free(text);
        return NULL;
    }
    text[n] = 0;
    return text;
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static void label(const struct flow_judge *judge, int64_t audit, bool good)
{
    struct flow *flow = judge->flow;
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)audit);
    flow_words_tell(flow, (const char *[]){"SC.AUDIT", "PUT", flow->cache, number, good ? "GOOD" : "BAD"}, 5);
    telemetry_add(telemetry_counter(flow->telemetry, "quire_gateway_judged_total", "Audits that the judge has labelled",
                                    good ? "label=\"good\"" : "label=\"bad\""),
                  1);
}

static bool same_words(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (isspace((unsigned char)*a))
            a++;
        while (isspace((unsigned char)*b))
            b++;
        if (*a != *b)
            return false;
        if (!*a)
            return true;
    }
}

static void on_vector(void *context, enum encode_outcome outcome, const float *vector, uint32_t dim, const char *why)
{
    struct verdict *v = context;
    double dot = 0, a = 0, b = 0;
    (void)why;
    v->encoding = NULL;
    if (outcome == ENCODE_VECTOR && !v->first) {
        v->first = malloc(dim * sizeof *vector);
        if (v->first) {
            memcpy(v->first, vector, dim * sizeof *vector);
            v->dim = dim;
            v->encoding = encode_text(v->judge->flow->encode, v->texts[1], strlen(v->texts[1]), on_vector, v);
        }
        if (v->encoding)
            return;
    } else if (outcome == ENCODE_VECTOR && dim == v->dim) {
        for (uint32_t i = 0; i < dim; i++) {
            dot += (double)vector[i] * v->first[i];
            a += (double)vector[i] * vector[i];
            b += (double)v->first[i] * v->first[i];
        }
        label(v->judge, v->audit, a > 0 && b > 0 && dot / sqrt(a * b) >= JUDGE_SIMILARITY);
    }
    free_verdict(v);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static void on_head(void *context, struct upstream_call *call, const struct upstream_head *head)
{
    (void)call;
    ((struct verdict *)context)->status = head->status;
}

static void on_data(void *context, struct upstream_call *call, const void *bytes, size_t n)
{
    struct verdict *v = context;
    (void)call;
    if (evbuffer_get_length(v->answer) + n > 65536 || evbuffer_add(v->answer, bytes, n) != 0)
        v->status = 0;
}

/* What its answer says that it took. */
static void read_cost(const struct verdict *v, const char *body, size_t bytes, struct flow_judged *out)
{
    struct answer answer;
    answer_begin(&answer, &(struct answer_options){.kind = ASK_CHAT, .n = 1}, &v->judge->flow->answer_json);
    answer_json(&answer, body, bytes);
    out->counted = answer.has_usage;
    out->prompt_tokens = answer.prompt_tokens;
    out->completion_tokens = answer.completion_tokens;
}

static void count(const struct verdict *v, const struct flow_judged *judged)
{
    const struct flow *flow = v->judge->flow;
    struct flow_judge_cost *cost = &v->judge->cost;
    cost->calls++;
    cost->uncounted += !judged->counted;
    cost->prompt_tokens += judged->prompt_tokens;
    cost->completion_tokens += judged->completion_tokens;
    cost->us += judged->us;
    if (flow->judged)
        flow->judged(flow->judged_context, judged);
}

static void on_done(void *context, struct upstream_call *call, const struct upstream_result *result)
{
    struct verdict *v = context;
    size_t bytes = evbuffer_get_length(v->answer);
    const char *body = (const char *)evbuffer_pullup(v->answer, -1);
    char *text = NULL, *word;
    struct flow_judged judged = {.model = v->model,
                                 .upstream = result->upstream,
                                 .tenant = v->scope,
                                 .category = v->category,
                                 .label = "failed",
                                 .status = v->status,
                                 .us = clock_us() - v->began_us};
    (void)call;
    v->call = NULL;
    if (body)
        read_cost(v, body, bytes, &judged);
    if (result->outcome == UPSTREAM_WHOLE && v->status == 200 && body && (text = said(ASK_CHAT, body, bytes, false)))
        judged.label = "none";
    word = text ? text + strspn(text, " \t\r\n\"'*") : "";
    if (strncasecmp(word, "yes", 3) == 0 || strncasecmp(word, "no", 2) == 0) {
        bool good = strncasecmp(word, "yes", 3) == 0;
        judged.label = good ? "good" : "bad";
        label(v->judge, v->audit, good);
    }
    count(v, &judged);
    free(text);
    free_verdict(v);
}

const struct flow_judge_cost *flow_judge_cost(const struct flow_judge *judge)
{
    return &judge->cost;
}

static const struct upstream_events events = {on_head, on_data, NULL, on_done};

/* Bytes of a text that a model reads: at most JUDGE_TEXT_BYTES, and no part of a character. */
static int shown_bytes(const char *text, size_t bytes)
{
    if (bytes <= JUDGE_TEXT_BYTES)
        return (int)bytes;
    for (bytes = JUDGE_TEXT_BYTES; bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80;)
        bytes--;
    return (int)bytes;
}

/* The question as the body of a chat; NULL without memory, or where the texts are no UTF-8. To be freed. */
static char *question_for(const struct verdict *v)
{
    char *text = NULL, *body = NULL;
    json_t *root;
    if (asprintf(
            &text,
            "Two answers to one question. Do they say the same, so that whoever asked could be given either? Answer "
            "with one word, yes or no.\n\nQuestion:\n%s\n\nFirst answer:\n%.*s\n\nSecond answer:\n%.*s",
            v->question, shown_bytes(v->texts[0], strlen(v->texts[0])), v->texts[0],
            shown_bytes(v->texts[1], strlen(v->texts[1])), v->texts[1]) < 0)
        return NULL;
    root = json_pack("{s:s, s:i, s:i, s:[{s:s, s:s}]}", "model", v->model, "max_tokens", 1, "temperature", 0,
                     "messages", "role", "user", "content", text);
    if (root)
        body = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    free(text);
    return body;
}

/* Of the errand, which has ended by the time that the model is asked. */
static bool prepare_question(struct verdict *v, const struct errand *e)
{
    const struct settings *settings = v->judge->flow->settings;
    const char *text = e->asked.text ? e->asked.text : "";
    static const char *const credentials[] = {"Authorization", "api-key", "x-api-key", "OpenAI-Organization",
                                              "OpenAI-Project"};
    bool ok = fields_append(&v->fields, "Content-Type", "application/json");
    for (unsigned i = 0; i < sizeof credentials / sizeof *credentials && ok; i++)
        if (fields_get(&e->fields, credentials[i]))
            ok = fields_append(&v->fields, credentials[i], fields_get(&e->fields, credentials[i]));
    v->model = strdup(*settings->judge_model ? settings->judge_model : e->model);
    v->question = strndup(text, (size_t)shown_bytes(text, e->asked.text_bytes));
    memcpy(v->scope, e->asked.scope, sizeof v->scope);
    memcpy(v->category, e->asked.category, sizeof v->category);
    return ok && v->model && v->question;
}

static bool ask_model(struct verdict *v)
{
    char *text = question_for(v);
    struct evbuffer *body = evbuffer_new();
    struct quire_error err;
    struct upstream_request request = {.method = "POST",
                                       .target = "/v1/chat/completions",
                                       .fields = &v->fields,
                                       .model = v->model,
                                       .body = body,
                                       .body_whole = true,
                                       .total_timeout_ms = JUDGE_TIMEOUT_MS};
    bool ok = text && body && evbuffer_add(body, text, strlen(text)) == 0;
    v->answer = evbuffer_new();
    v->began_us = clock_us();
    if (ok && v->answer)
        v->call = upstream_start(v->judge->flow->upstreams, &request, &events, v, &err);
    v->has_question = v->call == NULL;
    free(text);
    if (body)
        evbuffer_free(body);
    return v->call != NULL;
}

/* A question to the model, to be had back by give_back: judge-rate a second, with a second's worth at once; and no more
 * than judge-share of what is looked for by nearness. (Not of what is served: where nothing is, more labels are what
 * could change that.) */
static bool take_question(struct flow_judge *judge)
{
    double rate = judge->flow->settings->judge_rate;
    uint64_t now_us = clock_us();
    judge->tokens = fmin(fmax(1, rate), judge->tokens + rate * (double)(now_us - judge->filled_us) / 1e6);
    judge->filled_us = now_us;
    if (judge->tokens < 1 ||
        (double)judge->asked > FREE_QUESTIONS + judge->flow->settings->judge_share * (double)judge->flow->near_looks)
        return false;
    judge->tokens -= 1;
    judge->asked++;
    return true;
}

/* Both texts are there. */
static void compare(struct verdict *v)
{
    const struct flow *flow = v->judge->flow;
    bool same = same_words(v->texts[0], v->texts[1]), under_way = false;
    if (flow->settings->judge == SETTINGS_JUDGE_EQUAL || same) {
        label(v->judge, v->audit, same); /* equal answers need no judge */
    } else if (flow->settings->judge == SETTINGS_JUDGE_VECTOR && flow->encode) {
        v->encoding = encode_text(flow->encode, v->texts[0], strlen(v->texts[0]), on_vector, v);
        under_way = v->encoding != NULL;
    } else if (flow->settings->judge == SETTINGS_JUDGE_MODEL) {
        under_way = ask_model(v);
    }
    if (!under_way)
        free_verdict(v);
}

/* SC.AUDIT GET: null if the pair has a label meanwhile; without a value if the entry has gone. */
static void on_pair(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct verdict *v = context;
    const struct redisReply *value = outcome == SC_REPLY ? sc_reply_field(reply, "entry_value") : NULL;
    (void)why;
    v->sc = NULL;
    if (value && value->type == REDIS_REPLY_STRING)
        v->texts[0] = said(v->kind, value->str, (size_t)value->len, v->events);
    if (v->texts[0])
        compare(v);
    else
        free_verdict(v);
}

/* Whether a pair gets a label must not depend on what its answers say, or the curve would be drawn from those that are
 * easy to judge: a question is taken before the answers are compared, and given back if none is needed. */
void flow_judge_begin(struct flow_judge *judge, const struct errand *e, const char *fresh, size_t bytes)
{
    bool model = judge->flow->settings->judge == SETTINGS_JUDGE_MODEL;
    struct verdict *v;
    if (judge->flow->settings->judge == SETTINGS_JUDGE_NONE || judge->flow->settings->judge == SETTINGS_JUDGE_HAND ||
        (model && !take_question(judge)))
        return;
    v = calloc(1, sizeof *v);
    if (!v) {
        give_back(judge, model);
        return;
    }
    v->judge = judge;
    v->has_question = model;
    v->next = judge->verdicts;
    if (judge->verdicts)
        judge->verdicts->previous = v;
    judge->verdicts = v;
    v->audit = e->audit;
    v->kind = e->asked.kind;
    v->events = e->asked.stream;
    v->texts[1] = said(v->kind, fresh, bytes, e->events);
    if (!v->texts[1] || (model && !prepare_question(v, e))) {
        free_verdict(v);
        return;
    }
    if (e->audited)
        v->texts[0] = said(v->kind, e->audited, e->audited_bytes, v->events);
    else
        v->sc = flow_words_pair(judge->flow, v->audit, on_pair, v);
    if (v->texts[0])
        compare(v);
    else if (!v->sc)
        free_verdict(v);
}
