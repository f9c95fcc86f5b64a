/*
 * answer_parts.c - what the answers of each route are made of: choices, responses, messages, vectors.
 *
 * Responses and messages have one answer, which is counted as choice 0.
 */
#include "gateway/text/answer_priv.h"

/* ---- choices: what was begun, has said something, has stopped ---- */

static void mark(uint64_t *bits, uint32_t choice)
{
    bits[choice / 64] |= 1ull << (choice % 64);
}

static bool is_marked(const uint64_t *bits, uint32_t choice)
{
    return bits[choice / 64] >> (choice % 64) & 1;
}

static void spoke(struct answer *answer, uint32_t choice)
{
    if (is_marked(answer->stopped, choice))
        answer_refuse(answer, ANSWER_MALFORMED, "a choice went on behind its end");
    mark(answer->spoke, choice);
}

static void calls_tool(struct answer *answer, uint32_t choice)
{
    if (!answer->options.tools)
        answer_refuse(answer, ANSWER_TOOL_CALL, "the answer calls a tool");
    spoke(answer, choice);
}

/* A string or a list that is not empty. */
static bool is_some(const struct strict *json, uint32_t node)
{
    enum strict_kind kind = node ? strict_kind(json, node) : STRICT_NULL;
    return (kind == STRICT_STRING || kind == STRICT_LIST || kind == STRICT_OBJECT) && json->nodes[node].n > 0;
}

static bool is_one_of(const struct strict *json, uint32_t node, const char *a, const char *b)
{
    return strict_is(json, node, a) || strict_is(json, node, b);
}

static void ended_with(struct answer *answer, uint32_t choice, uint32_t reason)
{
    const struct strict *json = answer->json;
    if (is_one_of(json, reason, "tool_calls", "function_call"))
        calls_tool(answer, choice);
    else if (strict_is(json, reason, "length"))
        answer_refuse(answer, ANSWER_CUT, "the answer was cut off (finish_reason length)");
    else if (strict_is(json, reason, "content_filter")) {
        answer->negative = !answer->refused || answer->negative;
        answer_refuse(answer, ANSWER_FILTERED, "the answer was filtered (finish_reason content_filter)");
    } else if (!strict_is(json, reason, "stop"))
        answer_refuse(answer, ANSWER_UNFINISHED, "the answer ended otherwise than with stop");
    mark(answer->stopped, choice);
}

/* ---- tokens ---- */

static void count(const struct strict *json, uint32_t usage, const char *name, const char *other, uint64_t *tokens)
{
    uint32_t node = strict_given(json, usage, name);
    node = node ? node : strict_given(json, usage, other);
    if (node)
        strict_whole(json, node, UINT64_C(1) << 53, tokens);
}

static bool read_usage(struct answer *answer, uint32_t holder)
{
    const struct strict *json = answer->json;
    uint32_t usage = strict_given(json, holder, "usage");
    if (!usage || strict_kind(json, usage) != STRICT_OBJECT)
        return false;
    answer->has_usage = true;
    count(json, usage, "prompt_tokens", "input_tokens", &answer->prompt_tokens);
    count(json, usage, "completion_tokens", "output_tokens", &answer->completion_tokens);
    return true;
}

/* ---- chat and completions ---- */

/* A delta, or a message. */
static void read_said(struct answer *answer, uint32_t choice, uint32_t said)
{
    const struct strict *json = answer->json;
    if (is_some(json, strict_given(json, said, "refusal")))
        answer_refuse(answer, ANSWER_FILTERED, "the model refused");
    if (is_some(json, strict_given(json, said, "tool_calls")) || strict_given(json, said, "function_call"))
        calls_tool(answer, choice);
    if (is_some(json, strict_given(json, said, "content")) || strict_given(json, said, "audio"))
        spoke(answer, choice);
}

static void read_choice(struct answer *answer, uint32_t node)
{
    const struct strict *json = answer->json;
    uint32_t index = strict_given(json, node, "index");
    uint32_t delta = strict_given(json, node, "delta"), message = strict_given(json, node, "message");
    uint32_t reason = strict_given(json, node, "finish_reason"), error = strict_given(json, node, "error");
    uint64_t choice = 0;
    if (index && !strict_whole(json, index, ANSWER_CHOICES_MAX - 1, &choice)) {
        answer_refuse(answer, ANSWER_MALFORMED, "a choice has no index of 0 to 127");
        return;
    }
    mark(answer->seen, (uint32_t)choice);
    if (error)
        answer_error(answer, error);
    if (delta)
        read_said(answer, (uint32_t)choice, delta);
    if (message)
        read_said(answer, (uint32_t)choice, message);
    if (is_some(json, strict_given(json, node, "text")))
        spoke(answer, (uint32_t)choice);
    if (reason)
        ended_with(answer, (uint32_t)choice, reason);
}

/* The number of choices in this object. */
static uint32_t read_choices(struct answer *answer)
{
    const struct strict *json = answer->json;
    uint32_t choices = strict_given(json, STRICT_ROOT, "choices");
    if (!choices)
        return 0;
    if (strict_kind(json, choices) != STRICT_LIST) {
        answer_refuse(answer, ANSWER_MALFORMED, "choices is not a list");
        return 0;
    }
    for (uint32_t i = strict_begin(choices); i < strict_end(json, choices); i = strict_next(json, i)) {
        if (strict_kind(json, i) != STRICT_OBJECT)
            answer_refuse(answer, ANSWER_MALFORMED, "a choice is not an object");
        read_choice(answer, i);
    }
    return json->nodes[choices].n;
}

unsigned answer_chunk(struct answer *answer)
{
    bool listed = strict_given(answer->json, STRICT_ROOT, "choices") != 0;
    int status = answer->error_status;
    uint32_t n = read_choices(answer);
    bool usage = read_usage(answer, STRICT_ROOT);
    return (listed && n == 0 && usage ? ANSWER_SEEN_USAGE : 0u) |
           (answer->error_status != status ? ANSWER_SEEN_ERROR : 0u);
}

void answer_choices(struct answer *answer)
{
    read_choices(answer);
    read_usage(answer, STRICT_ROOT);
}

/* ---- responses ---- */

static void read_output_part(struct answer *answer, uint32_t part)
{
    const struct strict *json = answer->json;
    uint32_t type = strict_given(json, part, "type");
    if (type && strict_is(json, type, "refusal"))
        answer_refuse(answer, ANSWER_FILTERED, "the model refused");
    if (type && strict_is(json, type, "output_text") && is_some(json, strict_given(json, part, "text")))
        spoke(answer, 0);
}

static void read_output_item(struct answer *answer, uint32_t item)
{
    const struct strict *json = answer->json;
    uint32_t type = strict_given(json, item, "type"), status = strict_given(json, item, "status");
    uint32_t content = strict_given(json, item, "content");
    if (status && !strict_is(json, status, "completed"))
        answer_refuse(answer, ANSWER_UNFINISHED, "an item of the output is not completed");
    if (!type || strict_is(json, type, "reasoning"))
        return;
    if (!strict_is(json, type, "message")) {
        calls_tool(answer, 0);
        return;
    }
    if (!content || strict_kind(json, content) != STRICT_LIST)
        return;
    for (uint32_t i = strict_begin(content); i < strict_end(json, content); i = strict_next(json, i))
        read_output_part(answer, i);
}

void answer_response(struct answer *answer, uint32_t response)
{
    const struct strict *json = answer->json;
    uint32_t status = strict_given(json, response, "status"), error = strict_given(json, response, "error");
    uint32_t output = strict_given(json, response, "output"),
             details = strict_given(json, response, "incomplete_details");
    uint32_t reason = details ? strict_given(json, details, "reason") : 0;
    mark(answer->seen, 0);
    read_usage(answer, response);
    if (error)
        answer_error(answer, error);
    if (reason && strict_is(json, reason, "content_filter")) {
        answer->negative = !answer->refused || answer->negative;
        answer_refuse(answer, ANSWER_FILTERED, "the answer was filtered (content_filter)");
    }
    if (reason && strict_is(json, reason, "max_output_tokens"))
        answer_refuse(answer, ANSWER_CUT, "the answer was cut off (max_output_tokens)");
    if (!status || !strict_is(json, status, "completed"))
        answer_refuse(answer, ANSWER_UNFINISHED, "the response is not completed");
    if (!output || strict_kind(json, output) != STRICT_LIST)
        return;
    for (uint32_t i = strict_begin(output); i < strict_end(json, output); i = strict_next(json, i))
        read_output_item(answer, i);
    mark(answer->stopped, 0);
}

unsigned answer_response_event(struct answer *answer)
{
    const struct strict *json = answer->json;
    uint32_t type = strict_given(json, STRICT_ROOT, "type"), response = strict_given(json, STRICT_ROOT, "response");
    int status = answer->error_status;
    bool last = type && response &&
                (strict_is(json, type, "response.completed") ||
                 is_one_of(json, type, "response.incomplete", "response.failed"));
    if (!last)
        return 0;
    if (strict_is(json, type, "response.failed") && !strict_given(json, response, "error"))
        answer_error(answer, response);
    answer_response(answer, response);
    answer->ended = true;
    return ANSWER_SEEN_LAST | (answer->error_status != status ? ANSWER_SEEN_ERROR : 0u);
}

/* ---- messages ---- */

static void read_stop_reason(struct answer *answer, uint32_t reason)
{
    const struct strict *json = answer->json;
    if (strict_is(json, reason, "tool_use"))
        calls_tool(answer, 0);
    else if (strict_is(json, reason, "max_tokens"))
        answer_refuse(answer, ANSWER_CUT, "the answer was cut off (stop_reason max_tokens)");
    else if (strict_is(json, reason, "refusal")) {
        answer->negative = !answer->refused || answer->negative;
        answer_refuse(answer, ANSWER_FILTERED, "the answer was refused (stop_reason refusal)");
    } else if (!is_one_of(json, reason, "end_turn", "stop_sequence"))
        answer_refuse(answer, ANSWER_UNFINISHED, "the answer ended otherwise than with end_turn");
    mark(answer->stopped, 0);
}

/* A block, or the delta of one. */
static void read_block(struct answer *answer, uint32_t block)
{
    const struct strict *json = answer->json;
    uint32_t type = strict_given(json, block, "type");
    if (!type)
        return;
    if (is_one_of(json, type, "text", "text_delta")) {
        if (is_some(json, strict_given(json, block, "text")))
            spoke(answer, 0);
    } else if (strict_is(json, type, "tool_use")) {
        calls_tool(answer, 0);
    } else if (is_one_of(json, type, "server_tool_use", "mcp_tool_use")) {
        answer_refuse(answer, ANSWER_TOOL_CALL, "the upstream ran a tool for the answer");
    }
}

void answer_message(struct answer *answer)
{
    const struct strict *json = answer->json;
    uint32_t content = strict_given(json, STRICT_ROOT, "content"),
             reason = strict_given(json, STRICT_ROOT, "stop_reason");
    mark(answer->seen, 0);
    read_usage(answer, STRICT_ROOT);
    if (content && strict_kind(json, content) == STRICT_LIST)
        for (uint32_t i = strict_begin(content); i < strict_end(json, content); i = strict_next(json, i))
            read_block(answer, i);
    if (reason)
        read_stop_reason(answer, reason);
}

unsigned answer_message_event(struct answer *answer)
{
    const struct strict *json = answer->json;
    uint32_t type = strict_given(json, STRICT_ROOT, "type"), message = strict_given(json, STRICT_ROOT, "message");
    uint32_t delta = strict_given(json, STRICT_ROOT, "delta"), block = strict_given(json, STRICT_ROOT, "content_block");
    if (!type)
        return 0;
    if (strict_is(json, type, "message_start") && message) {
        mark(answer->seen, 0);
        read_usage(answer, message);
    } else if (strict_is(json, type, "content_block_start") && block) {
        read_block(answer, block);
    } else if (strict_is(json, type, "content_block_delta") && delta) {
        read_block(answer, delta);
    } else if (strict_is(json, type, "message_delta")) {
        uint32_t reason = delta ? strict_given(json, delta, "stop_reason") : 0;
        read_usage(answer, STRICT_ROOT);
        if (reason)
            read_stop_reason(answer, reason);
    } else if (strict_is(json, type, "message_stop")) {
        answer->ended = true;
        return ANSWER_SEEN_LAST;
    }
    return 0;
}

/* ---- embeddings ---- */

static uint32_t vector_of(const struct strict *json, uint32_t item, uint32_t at)
{
    uint32_t index = strict_given(json, item, "index"), vector = strict_given(json, item, "embedding");
    uint64_t x = at;
    bool in_order = !index || (strict_whole(json, index, UINT32_MAX, &x) && x == at);
    enum strict_kind kind = vector ? strict_kind(json, vector) : STRICT_NULL;
    return in_order && (kind == STRICT_LIST || kind == STRICT_STRING) && json->nodes[vector].n > 0 ? vector : 0;
}

static uint32_t vectors_of(const struct strict *json)
{
    uint32_t data = strict_given(json, STRICT_ROOT, "data");
    return data && strict_kind(json, data) == STRICT_LIST ? data : 0;
}

void answer_vectors(struct answer *answer)
{
    const struct strict *json = answer->json;
    uint32_t data = vectors_of(json), n = 0;
    read_usage(answer, STRICT_ROOT);
    if (!data || json->nodes[data].n == 0) {
        answer_refuse(answer, ANSWER_EMPTY, "the answer has no vectors");
        return;
    }
    for (uint32_t i = strict_begin(data); i < strict_end(json, data); i = strict_next(json, i))
        if (!vector_of(json, i, n++))
            answer_refuse(answer, ANSWER_MALFORMED, "a vector is missing or out of its order");
    if (answer->options.items > 0 && n != answer->options.items)
        answer_refuse(answer, ANSWER_MALFORMED, "the answer has another number of vectors than was asked for");
}

struct strict_text answer_vector(const struct answer *answer, struct answer_place *place)
{
    const struct strict *json = answer->json;
    uint32_t data = vectors_of(json);
    if (place->node == 0 && data)
        place->node = strict_begin(data);
    if (!data || place->node >= strict_end(json, data))
        return (struct strict_text){.data = NULL};
    uint32_t vector = vector_of(json, place->node, place->index);
    place->node = strict_next(json, place->node);
    place->index++;
    return vector ? strict_raw(json, vector) : (struct strict_text){.data = NULL};
}
