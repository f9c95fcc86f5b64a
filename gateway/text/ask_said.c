/*
 * ask_said.c - what is said in a body: messages, a prompt, input. Finds the question, which is the one text that may
 * differ between two requests that are near each other.
 *
 * A question is the content of the last message where that is a user's: a string, or parts that have a type `text` and
 * a text and nothing else. Anything more (an image, a mark for the provider's own cache) makes the request exact only.
 */
#include "gateway/text/ask_priv.h"
#include <assert.h>
#include <stdlib.h>

/* ---- content ---- */

/* A part that is text and nothing else. */
static uint32_t plain_part(const struct strict *json, uint32_t part)
{
    uint32_t type = strict_member(json, part, "type"), text = strict_member(json, part, "text");
    bool plain = json->nodes[part].n == 2 && type && text && strict_is(json, type, "text") &&
                 strict_kind(json, text) == STRICT_STRING;
    return plain ? text : 0;
}

/* The text of a part of any route, whatever else it holds; 0: it is something else. */
static uint32_t text_of(const struct strict *json, uint32_t part)
{
    uint32_t type = strict_member(json, part, "type"), text = strict_member(json, part, "text");
    bool textual = type && (strict_is(json, type, "text") || strict_is(json, type, "input_text") ||
                            strict_is(json, type, "output_text"));
    return textual && text && strict_kind(json, text) == STRICT_STRING ? text : 0;
}

/* Parts that are neither text nor said by a model or a tool. */
static bool is_other(const struct strict *json, uint32_t part)
{
    static const char *const known[] = {"refusal", "tool_use", "tool_result", "thinking", "redacted_thinking"};
    uint32_t type = strict_member(json, part, "type");
    if (text_of(json, part))
        return false;
    for (size_t i = 0; type && i < sizeof known / sizeof *known; i++)
        if (strict_is(json, type, known[i]))
            return false;
    return true;
}

static bool is_result(const struct strict *json, uint32_t part)
{
    uint32_t type = strict_member(json, part, "type");
    return type && strict_is(json, type, "tool_result");
}

/* The features of a content; *results: it holds results of tools. */
static void read_content(struct ask *ask, uint32_t content, bool *results)
{
    const struct strict *json = ask->json;
    *results = false;
    if (!content || strict_kind(json, content) == STRICT_STRING)
        return;
    if (strict_kind(json, content) != STRICT_LIST) {
        ask_odd(ask, "the content of a message is neither a string nor a list");
        return;
    }
    for (uint32_t i = strict_begin(content); i < strict_end(json, content); i = strict_next(json, i)) {
        if (strict_kind(json, i) != STRICT_OBJECT) {
            ask_odd(ask, "a part of a message is not an object");
            return;
        }
        if (is_other(json, i))
            ask->features |= ASK_PARTS;
        *results |= is_result(json, i);
    }
}

/* All texts of a string or of a list of parts. */
static void append_texts(struct ask *ask, struct strict_text *text, uint32_t content)
{
    const struct strict *json = ask->json;
    if (!content)
        return;
    if (strict_kind(json, content) == STRICT_STRING) {
        ask_append(ask, text, content);
        return;
    }
    if (strict_kind(json, content) != STRICT_LIST)
        return;
    for (uint32_t i = strict_begin(content); i < strict_end(json, content); i = strict_next(json, i)) {
        uint32_t part = text_of(json, i);
        if (part)
            ask_append(ask, text, part);
    }
}

/* ---- messages ---- */

static bool all_plain(const struct strict *json, uint32_t parts)
{
    for (uint32_t i = strict_begin(parts); i < strict_end(json, parts); i = strict_next(json, i))
        if (!plain_part(json, i))
            return false;
    return true;
}

/* The question of the last message, if it has one. An empty text asks nothing that could be near to something. */
static void read_question(struct ask *ask, uint32_t content)
{
    const struct strict *json = ask->json;
    bool list = content && strict_kind(json, content) == STRICT_LIST;
    if (!content || (list && !all_plain(json, content)) || (!list && strict_kind(json, content) != STRICT_STRING))
        return;
    append_texts(ask, &ask->question, content);
    if (ask->question.bytes > 0)
        ask->node_question = content;
    else
        ask->question.data = NULL;
}

struct roles {
    bool user, system, tool, assistant;
};

static struct roles roles_of(struct ask *ask, uint32_t message)
{
    const struct strict *json = ask->json;
    uint32_t role = strict_given(json, message, "role");
    if (!role || strict_kind(json, role) != STRICT_STRING) {
        ask_odd(ask, "a message has no role");
        return (struct roles){.user = false};
    }
    return (struct roles){
        .user = strict_is(json, role, "user"),
        .system = strict_is(json, role, "system") || strict_is(json, role, "developer"),
        .tool = strict_is(json, role, "tool") || strict_is(json, role, "function"),
        .assistant = strict_is(json, role, "assistant"),
    };
}

static void read_message(struct ask *ask, uint32_t message, bool last)
{
    struct roles is = roles_of(ask, message);
    uint32_t content = strict_given(ask->json, message, "content");
    bool results;
    read_content(ask, content, &results);
    ask->user_turns += is.user && !results;
    if (is.system)
        append_texts(ask, &ask->system, content);
    if (!last)
        return;
    if (is.tool || results)
        ask->features |= ASK_LAST_TOOL;
    if (is.assistant)
        ask->features |= ASK_LAST_ASSISTANT;
    if (is.user && ask->kind == ASK_CHAT) {
        ask->node_last = message;
        read_question(ask, content);
    }
}

void ask_read_messages(struct ask *ask)
{
    const struct strict *json = ask->json;
    uint32_t messages = strict_given(json, STRICT_ROOT, "messages");
    if (ask->kind == ASK_MESSAGES)
        append_texts(ask, &ask->system, strict_given(json, STRICT_ROOT, "system"));
    if (!messages || strict_kind(json, messages) != STRICT_LIST || json->nodes[messages].n == 0) {
        ask_odd(ask, "messages is no list of messages");
        return;
    }
    for (uint32_t i = strict_begin(messages); i < strict_end(json, messages); i = strict_next(json, i)) {
        if (strict_kind(json, i) != STRICT_OBJECT) {
            ask_odd(ask, "a message is not an object");
            return;
        }
        read_message(ask, i, strict_next(json, i) == strict_end(json, messages));
    }
}

/* ---- responses ---- */

/* An item is a message (with or without its type), a call, a result, or a reference to what the upstream keeps. */
static void read_item(struct ask *ask, uint32_t item, bool last)
{
    const struct strict *json = ask->json;
    uint32_t type = strict_given(json, item, "type");
    if (type && strict_is(json, type, "item_reference"))
        ask->features |= ASK_PREVIOUS;
    if (!type || strict_is(json, type, "message"))
        read_message(ask, item, last);
    else if (last && strict_is(json, type, "function_call_output"))
        ask->features |= ASK_LAST_TOOL;
}

void ask_read_responses(struct ask *ask)
{
    const struct strict *json = ask->json;
    uint32_t input = strict_given(json, STRICT_ROOT, "input");
    append_texts(ask, &ask->system, strict_given(json, STRICT_ROOT, "instructions"));
    if (input && strict_kind(json, input) == STRICT_STRING) {
        ask->user_turns = 1;
        return;
    }
    if (!input || strict_kind(json, input) != STRICT_LIST) {
        ask_odd(ask, "input is neither a string nor a list");
        return;
    }
    for (uint32_t i = strict_begin(input); i < strict_end(json, input); i = strict_next(json, i)) {
        if (strict_kind(json, i) != STRICT_OBJECT) {
            ask_odd(ask, "an item of input is not an object");
            return;
        }
        read_item(ask, i, strict_next(json, i) == strict_end(json, input));
    }
}

/* ---- completions and embeddings ---- */

void ask_read_prompt(struct ask *ask)
{
    const struct strict *json = ask->json;
    uint32_t prompt = strict_given(json, STRICT_ROOT, "prompt");
    if (prompt && strict_kind(json, prompt) == STRICT_STRING) {
        ask->user_turns = 1;
        if (json->nodes[prompt].n > 0) {
            ask->node_question = prompt;
            ask->question = ask_text(ask, prompt);
        }
    } else if (!prompt || strict_kind(json, prompt) != STRICT_LIST) {
        ask_odd(ask, "prompt is neither a string nor a list");
    }
}

/* A list of numbers is one item: the tokens of a text. */
static bool is_tokens(const struct strict *json, uint32_t list)
{
    if (strict_kind(json, list) != STRICT_LIST || json->nodes[list].n == 0)
        return false;
    for (uint32_t i = strict_begin(list); i < strict_end(json, list); i = strict_next(json, i))
        if (strict_kind(json, i) != STRICT_NUMBERS)
            return false;
    return true;
}

void ask_read_input(struct ask *ask)
{
    const struct strict *json = ask->json;
    uint32_t input = ask->node_input = strict_given(json, STRICT_ROOT, "input");
    if (input && (strict_kind(json, input) == STRICT_STRING || is_tokens(json, input))) {
        ask->items = 1;
        ask->input_is_one = true;
        return;
    }
    bool items = input && strict_kind(json, input) == STRICT_LIST && json->nodes[input].n > 0;
    for (uint32_t i = items ? strict_begin(input) : 0; items && i < strict_end(json, input); i = strict_next(json, i))
        items = strict_kind(json, i) == STRICT_STRING || is_tokens(json, i);
    if (!items)
        ask_odd(ask, "input is no text, no list of tokens, and no list of these");
    else if (json->nodes[input].n > ASK_ITEMS_MAX)
        ask_odd(ask, "input has more than 2048 items");
    else
        ask->items = json->nodes[input].n;
}

uint32_t ask_item(const struct ask *ask, uint32_t item)
{
    assert(item < ask->items);
    if (ask->input_is_one)
        return ask->node_input;
    uint32_t node = strict_begin(ask->node_input), nodes = strict_end(ask->json, ask->node_input) - node;
    if (nodes == ask->items) /* texts, a node each */
        return node + item;
    if (nodes == 2 * ask->items) /* lists of tokens: each has one node, that of its numbers */
        return node + 2 * item;
    for (uint32_t i = 0; i < item; i++)
        node = strict_next(ask->json, node);
    return node;
}

/* ---- texts of the user, whatever else the request holds ---- */

struct looking {
    const struct ask *ask;
    bool (*fits)(const void *context, const char *text, size_t bytes);
    const void *context;
    char *decoded; /* has room for the longest content */
};

/* Of a string, or of the text parts of a list. */
static bool content_fits(const struct looking *looking, uint32_t content)
{
    const struct strict *json = looking->ask->json;
    size_t n = 0;
    bool some = false;
    if (content && strict_kind(json, content) == STRICT_STRING) {
        n = strict_decode(json, content, looking->decoded);
        some = true;
    } else if (content && strict_kind(json, content) == STRICT_LIST) {
        for (uint32_t i = strict_begin(content); i < strict_end(json, content); i = strict_next(json, i)) {
            uint32_t text = strict_kind(json, i) == STRICT_OBJECT ? text_of(json, i) : 0;
            if (text && some)
                looking->decoded[n++] = '\n';
            if (text)
                n += strict_decode(json, text, looking->decoded + n);
            some = some || text;
        }
    }
    return some && looking->fits(looking->context, looking->decoded, n);
}

/* Of a list of texts, or of messages. */
static bool list_fits(const struct looking *looking, uint32_t list)
{
    const struct strict *json = looking->ask->json;
    for (uint32_t i = strict_begin(list); i < strict_end(json, list); i = strict_next(json, i)) {
        uint32_t role = strict_kind(json, i) == STRICT_OBJECT ? strict_given(json, i, "role") : 0, content = i;
        if (strict_kind(json, i) == STRICT_OBJECT)
            content = role && strict_is(json, role, "user") ? strict_given(json, i, "content") : 0;
        else if (strict_kind(json, i) != STRICT_STRING)
            content = 0; /* tokens */
        if (content_fits(looking, content))
            return true;
    }
    return false;
}

bool ask_user_fits(const struct ask *ask, bool (*fits)(const void *context, const char *text, size_t bytes),
                   const void *context)
{
    static const char *const names[] = {
        [ASK_CHAT] = "messages",   [ASK_COMPLETIONS] = "prompt", [ASK_EMBEDDINGS] = "input",
        [ASK_RESPONSES] = "input", [ASK_MESSAGES] = "messages",
    };
    struct looking looking = {ask, fits, context, malloc(ask->json->text_bytes + 1)};
    uint32_t said = strict_given(ask->json, STRICT_ROOT, names[ask->kind]);
    bool found = !looking.decoded;
    if (!found && said && strict_kind(ask->json, said) == STRICT_LIST)
        found = list_fits(&looking, said);
    else if (!found)
        found = content_fits(&looking, said);
    free(looking.decoded);
    return found;
}

bool ask_item_fits(const struct ask *ask, uint32_t item,
                   bool (*fits)(const void *context, const char *text, size_t bytes), const void *context)
{
    uint32_t node = ask_item(ask, item);
    struct looking looking = {ask, fits, context, malloc(ask->json->nodes[node].bytes + 1)};
    bool found = strict_kind(ask->json, node) == STRICT_STRING && (!looking.decoded || content_fits(&looking, node));
    free(looking.decoded);
    return found;
}
