/*
 * answer.c - the judgement of an answer: every doubt speaks against keeping it, and the first doubt is the reason told.
 *
 * A stream and a whole body of one route carry the same things in other wrappings (delta and message, events and the
 * object they build), so both go through the same functions. What a route's answer is made of is in answer_parts.c.
 *
 * Invariant: `refused` once set stays; an answer is kept if and only if it is NULL at the end and all that must have
 * come has come.
 */
#include "gateway/text/answer_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

void answer_refuse(struct answer *answer, enum answer_reason reason, const char *why)
{
    if (answer->refused)
        return;
    answer->refused = why;
    answer->reason = reason;
}

const char *answer_reason_name(enum answer_reason reason)
{
    static const char *const names[] = {"cut", "tool_call", "filtered", "error", "empty", "unfinished", "malformed"};
    return names[reason];
}

void answer_begin(struct answer *answer, const struct answer_options *options, struct strict *json)
{
    *answer = (struct answer){.options = *options, .json = json};
}

void answer_part(struct answer *answer)
{
    answer_refuse(answer, ANSWER_MALFORMED, "an event is too long or has no end");
}

/* ---- errors ---- */

/* Types of errors that Anthropic, OpenAI and others name, and the status that goes with them. */
static int status_named(const struct strict *json, uint32_t type)
{
    static const struct {
        const char *name;
        int status;
    } types[] = {{"invalid_request_error", 400}, {"BadRequestError", 400},   {"authentication_error", 401},
                 {"insufficient_quota", 429},    {"permission_error", 403},  {"not_found_error", 404},
                 {"request_too_large", 413},     {"rate_limit_error", 429},  {"rate_limit_exceeded", 429},
                 {"too_many_requests", 429},     {"overloaded_error", 529},  {"server_overloaded", 503},
                 {"timeout_error", 504},         {"api_error", 500},         {"server_error", 500},
                 {"NotFoundError", 404},         {"unavailable_error", 503}, {"exceed_context_size_error", 400}};
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strict_is(json, type, types[i].name))
            return types[i].status;
    return 0;
}

/* A status as a number, or as digits in a string. */
static int status_in(const struct strict *json, uint32_t node)
{
    uint64_t x = 0;
    if (!node)
        return 0;
    if (strict_kind(json, node) == STRICT_STRING && json->nodes[node].n == 3)
        x = strtoul((char[]){json->text[json->nodes[node].at], json->text[json->nodes[node].at + 1],
                             json->text[json->nodes[node].at + 2], 0},
                    NULL, 10);
    else
        strict_whole(json, node, 999, &x);
    return x >= 400 && x < 600 ? (int)x : 0;
}

static int status_of(const struct strict *json, uint32_t error)
{
    static const char *const names[] = {"code", "status", "status_code", "http_code"};
    static const char *const types[] = {"type", "code"};
    int status = 0;
    for (size_t i = 0; !status && i < sizeof names / sizeof *names; i++)
        status = status_in(json, strict_given(json, error, names[i]));
    for (size_t i = 0; !status && i < sizeof types / sizeof *types; i++)
        status = status_named(json, strict_given(json, error, types[i]));
    return status;
}

void answer_error(struct answer *answer, uint32_t error)
{
    int status = error == ANSWER_ERROR_UNREAD ? 0 : status_of(answer->json, error);
    if (!answer->error_status)
        answer->error_status = status ? status : 500;
    answer_refuse(answer, ANSWER_ERROR, "the answer holds an error");
}

/* `error` at the top (also as a string), `object` or `type` that say so. */
static bool holds_error(struct answer *answer)
{
    const struct strict *json = answer->json;
    uint32_t error = strict_given(json, STRICT_ROOT, "error");
    uint32_t object = strict_given(json, STRICT_ROOT, "object"), type = strict_given(json, STRICT_ROOT, "type");
    bool named = (object && strict_is(json, object, "error")) || (type && strict_is(json, type, "error"));
    if (!error && !named)
        return false;
    answer_error(answer, error ? error : STRICT_ROOT);
    return true;
}

/* ---- events ---- */

static bool says(struct strict_text text, const char *word)
{
    return text.bytes == strlen(word) && memcmp(text.data, word, text.bytes) == 0;
}

/* llama.cpp's `error: {...}`, a line of its own in place of data. */
static unsigned error_line(struct answer *answer, struct strict_text error)
{
    bool read = strict_read(answer->json, error.data, error.bytes, NULL) == 0;
    answer_error(answer, read ? STRICT_ROOT : ANSWER_ERROR_UNREAD);
    return ANSWER_SEEN_ERROR;
}

static unsigned last_event(struct answer *answer)
{
    answer->ended |= answer->options.kind == ASK_CHAT || answer->options.kind == ASK_COMPLETIONS;
    return ANSWER_SEEN_LAST;
}

/* An event of a route, as JSON in answer->json. */
static unsigned route_event(struct answer *answer)
{
    switch (answer->options.kind) {
    case ASK_CHAT:
    case ASK_COMPLETIONS:
        return answer_chunk(answer);
    case ASK_RESPONSES:
        return answer_response_event(answer);
    case ASK_MESSAGES:
        return answer_message_event(answer);
    case ASK_EMBEDDINGS:
        break;
    }
    answer_refuse(answer, ANSWER_MALFORMED, "vectors came as a stream");
    return 0;
}

static unsigned data_event(struct answer *answer, const struct sse_event *event)
{
    if (says(event->data, "[DONE]"))
        return last_event(answer);
    if (answer->ended)
        answer_refuse(answer, ANSWER_MALFORMED, "something follows the last event");
    int rc = strict_read(answer->json, event->data.data, event->data.bytes, NULL);
    bool error_type = event->type.data && says(event->type, "error");
    if (rc < 0 || strict_kind(answer->json, STRICT_ROOT) != STRICT_OBJECT) {
        if (error_type)
            answer_error(answer, ANSWER_ERROR_UNREAD);
        answer_refuse(answer, ANSWER_MALFORMED,
                      rc == QUIRE_ENOMEM ? "there was no memory to read an event" : "an event is no JSON object");
        return error_type ? ANSWER_SEEN_ERROR : 0;
    }
    if (holds_error(answer))
        return ANSWER_SEEN_ERROR;
    if (error_type) {
        answer_error(answer, STRICT_ROOT);
        return ANSWER_SEEN_ERROR;
    }
    return route_event(answer);
}

unsigned answer_event(struct answer *answer, const struct sse_event *event)
{
    unsigned seen;
    if (!event->has_data && !event->error.data)
        return ANSWER_SEEN_COMMENT;
    answer->n_events++;
    seen = event->has_data ? data_event(answer, event) : error_line(answer, event->error);
    if (seen & ANSWER_SEEN_ERROR && answer->n_events == 1)
        answer->first_is_error = true;
    assert(!(seen & ANSWER_SEEN_ERROR) || (answer->refused && answer->error_status));
    return seen;
}

/* ---- the end ---- */

static enum answer_verdict verdict_of(const struct answer *answer)
{
    if (!answer->refused)
        return ANSWER_KEEP;
    return answer->negative && !answer->error_status ? ANSWER_NEGATIVE : ANSWER_NOT;
}

/* Every choice that was begun has ended with `stop` and said something, and there are as many as were asked for. */
static void check_choices(struct answer *answer)
{
    uint32_t n = 0;
    for (size_t i = 0; i < ANSWER_CHOICES_MAX / 64; i++) {
        n += (uint32_t)__builtin_popcountll(answer->seen[i]);
        if (answer->seen[i] & ~answer->stopped[i])
            answer_refuse(answer, ANSWER_UNFINISHED, "a choice has no finish_reason");
        if (answer->seen[i] & ~answer->spoke[i])
            answer_refuse(answer, ANSWER_EMPTY, "the answer has no content");
    }
    if (n == 0)
        answer_refuse(answer, ANSWER_EMPTY, "the answer has no content");
    if (answer->options.n > 0 && n != answer->options.n)
        answer_refuse(answer, ANSWER_MALFORMED, "the answer has another number of choices than was asked for");
}

enum answer_verdict answer_end(struct answer *answer)
{
    if (!answer->ended)
        answer_refuse(answer, ANSWER_UNFINISHED, "the stream ended before its last event");
    check_choices(answer);
    return verdict_of(answer);
}

enum answer_verdict answer_json(struct answer *answer, const char *body, size_t bytes)
{
    int rc = strict_read(answer->json, body, bytes, NULL);
    answer->ended = true;
    if (rc < 0 || strict_kind(answer->json, STRICT_ROOT) != STRICT_OBJECT) {
        answer_refuse(answer, ANSWER_MALFORMED,
                      rc == QUIRE_ENOMEM ? "there was no memory to read the answer" : "the answer is no JSON object");
        return verdict_of(answer);
    }
    if (holds_error(answer))
        return verdict_of(answer);
    switch (answer->options.kind) {
    case ASK_CHAT:
    case ASK_COMPLETIONS:
        answer_choices(answer);
        break;
    case ASK_RESPONSES:
        answer_response(answer, STRICT_ROOT);
        break;
    case ASK_MESSAGES:
        answer_message(answer);
        break;
    case ASK_EMBEDDINGS:
        answer_vectors(answer);
        return verdict_of(answer);
    }
    check_choices(answer);
    return verdict_of(answer);
}
