/*
 * ask.c - the fields at the top of a body: types, features, controls.
 *
 * Only what decides over looking up and keeping is read; all else is the canonical form's business, where an unknown
 * field makes another key. So a feature that is missed here can at most make an answer near that should be exact, and
 * every field that is known to change how an answer is made has its bit.
 */
#include "gateway/text/ask_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DECODED_KEPT = 65536, /* bytes of texts that are kept for the next request */
    CHOICES_MAX = 128     /* more choices are passed on as they are */
};

void ask_odd(struct ask *ask, const char *why)
{
    if (!ask->odd)
        ask->odd = why;
}

bool ask_flag(struct ask *ask, uint32_t object, const char *name, uint32_t features, const char *odd)
{
    uint32_t node = strict_given(ask->json, object, name);
    if (!node)
        return false;
    enum strict_kind kind = strict_kind(ask->json, node);
    if (kind != STRICT_TRUE && kind != STRICT_FALSE)
        ask_odd(ask, odd);
    if (kind == STRICT_TRUE)
        ask->features |= features;
    return kind == STRICT_TRUE;
}

/* ---- texts ---- */

/* All decoded texts together are shorter than the body, since each comes from other bytes of it and loses its quotes;
 * so `decoded` is reserved once and never moves. texts_end is where the next one goes. */
static char *texts_end(struct ask *ask)
{
    return ask->decoded + ask->decoded_bytes;
}

static void took(struct ask *ask, size_t bytes)
{
    ask->decoded_bytes += (uint32_t)bytes;
    assert(ask->decoded_bytes <= ask->decoded_capacity);
}

struct strict_text ask_text(struct ask *ask, uint32_t node)
{
    if (!node || strict_kind(ask->json, node) != STRICT_STRING)
        return (struct strict_text){.data = NULL};
    struct strict_text text = {.data = texts_end(ask)};
    text.bytes = strict_decode(ask->json, node, texts_end(ask));
    took(ask, text.bytes);
    return text;
}

void ask_append(struct ask *ask, struct strict_text *text, uint32_t node)
{
    if (!text->data) {
        *text = ask_text(ask, node);
        return;
    }
    assert(text->data + text->bytes == texts_end(ask));
    *texts_end(ask) = '\n';
    took(ask, 1);
    text->bytes += 1 + ask_text(ask, node).bytes;
}

/* ---- features ---- */

static void read_count(struct ask *ask, const char *name, uint32_t feature, uint32_t *count, const char *odd)
{
    uint32_t node = strict_given(ask->json, STRICT_ROOT, name);
    uint64_t value = 1;
    if (!node)
        return;
    if (!strict_whole(ask->json, node, CHOICES_MAX, &value) || value == 0)
        ask_odd(ask, odd);
    if (value > 1)
        ask->features |= feature;
    if (count)
        *count = (uint32_t)value;
}

static void read_given(struct ask *ask, const char *name, uint32_t feature)
{
    if (strict_given(ask->json, STRICT_ROOT, name))
        ask->features |= feature;
}

static void read_logprobs(struct ask *ask)
{
    uint32_t node = strict_given(ask->json, STRICT_ROOT, "logprobs");
    if (node && strict_kind(ask->json, node) != STRICT_FALSE)
        ask->features |= ASK_LOGPROBS;
    read_given(ask, "top_logprobs", ASK_LOGPROBS);
    read_given(ask, "prompt_logprobs", ASK_PROMPT_LOGPROBS);
}

/* modalities: ["text"] is what all models do. */
static void read_audio(struct ask *ask)
{
    const struct strict *json = ask->json;
    uint32_t node = strict_given(json, STRICT_ROOT, "modalities");
    read_given(ask, "audio", ASK_AUDIO);
    if (node && !(strict_kind(json, node) == STRICT_LIST && json->nodes[node].n == 1 &&
                  strict_is(json, strict_begin(node), "text")))
        ask->features |= ASK_AUDIO;
}

static void read_tools(struct ask *ask)
{
    const struct strict *json = ask->json;
    uint32_t tools = strict_given(json, STRICT_ROOT, "tools");
    read_given(ask, "tools", ASK_TOOLS);
    read_given(ask, "functions", ASK_TOOLS);
    read_given(ask, "web_search_options", ASK_BUILT_IN);
    read_given(ask, "mcp_servers", ASK_BUILT_IN);
    if (!tools)
        return;
    if (strict_kind(json, tools) != STRICT_LIST) {
        ask_odd(ask, "tools is not a list");
        return;
    }
    for (uint32_t i = strict_begin(tools); i < strict_end(json, tools); i = strict_next(json, i)) {
        uint32_t type = strict_given(json, i, "type");
        if (type && !strict_is(json, type, "function") && !strict_is(json, type, "custom"))
            ask->features |= ASK_BUILT_IN;
    }
}

/* Chat names the form of an answer at the top, responses below `text`. */
static void read_format(struct ask *ask)
{
    static const char *const others[] = {"structured_outputs", "guided_json",           "guided_regex", "guided_choice",
                                         "guided_grammar",     "json_schema",           "grammar",      "output_format",
                                         "output_config",      "guided_options_request"};
    const struct strict *json = ask->json;
    uint32_t format = strict_given(json, STRICT_ROOT, "response_format");
    uint32_t text = ask->kind == ASK_RESPONSES ? strict_given(json, STRICT_ROOT, "text") : 0;
    if (text)
        format = strict_given(json, text, "format");
    uint32_t type = format ? strict_member(json, format, "type") : 0;
    if (format && !(type && strict_is(json, type, "text")))
        ask->features |= ASK_FORMAT;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        read_given(ask, others[i], ASK_FORMAT);
}

static void read_temperature(struct ask *ask)
{
    uint32_t node = strict_given(ask->json, STRICT_ROOT, "temperature");
    ask->temperature = NAN;
    if (!node)
        return;
    ask->features |= ASK_TEMPERATURE;
    ask->temperature = strict_double(ask->json, node);
    if (isnan(ask->temperature))
        ask_odd(ask, "temperature is not a number");
}

/* State that the upstream keeps, so that the body does not say all. */
static void read_state(struct ask *ask)
{
    read_given(ask, "previous_response_id", ASK_PREVIOUS);
    read_given(ask, "conversation", ASK_PREVIOUS);
    read_given(ask, "container", ASK_PREVIOUS);
    ask_flag(ask, STRICT_ROOT, "background", ASK_BACKGROUND, "background is neither true nor false");
    if (ask->kind != ASK_RESPONSES)
        return;
    read_given(ask, "prompt", ASK_PREVIOUS);
    uint32_t store = strict_given(ask->json, STRICT_ROOT, "store");
    if (!store || strict_kind(ask->json, store) != STRICT_FALSE)
        ask->features |= ASK_STORES;
}

static void read_stream(struct ask *ask)
{
    uint32_t options = strict_given(ask->json, STRICT_ROOT, "stream_options");
    ask_flag(ask, STRICT_ROOT, "stream", ASK_STREAM, "stream is neither true nor false");
    ask->node_stream_options = strict_member(ask->json, STRICT_ROOT, "stream_options");
    if (!options)
        return;
    if (strict_kind(ask->json, options) != STRICT_OBJECT)
        ask_odd(ask, "stream_options is not an object");
    ask_flag(ask, options, "include_usage", ASK_USAGE, "include_usage is neither true nor false");
}

/* ---- LiteLLM's controls ---- */

static double read_seconds(struct ask *ask, const char *name)
{
    uint32_t node = strict_given(ask->json, ask->node_cache, name);
    double seconds = node ? strict_double(ask->json, node) : -1;
    if (node && !(seconds >= 0)) {
        ask_odd(ask, "a time in cache is not a number of seconds");
        return -1;
    }
    return seconds;
}

static void read_cache(struct ask *ask)
{
    uint32_t node = strict_member(ask->json, STRICT_ROOT, "cache");
    ask->cache = (struct ask_cache){.ttl_s = -1, .s_maxage_s = -1};
    if (!node)
        return;
    if (strict_kind(ask->json, node) != STRICT_OBJECT && strict_kind(ask->json, node) != STRICT_NULL) {
        ask_odd(ask, "cache is not an object");
        return;
    }
    ask->node_cache = node;
    if (strict_kind(ask->json, node) == STRICT_NULL)
        return;
    ask->cache.given = true;
    ask->cache.no_cache = ask_flag(ask, node, "no-cache", 0, "no-cache in cache is neither true nor false");
    ask->cache.no_store = ask_flag(ask, node, "no-store", 0, "no-store in cache is neither true nor false");
    ask->cache.ttl_s = read_seconds(ask, "ttl");
    ask->cache.s_maxage_s = read_seconds(ask, "s-maxage");
    uint32_t name_space = strict_given(ask->json, node, "namespace");
    if (name_space && strict_kind(ask->json, name_space) != STRICT_STRING)
        ask_odd(ask, "namespace in cache is not a string");
    ask->cache.name_space = ask_text(ask, name_space);
}

/* ---- the whole body ---- */

static struct strict_text read_name(struct ask *ask, const char *name, const char *odd)
{
    uint32_t node = strict_given(ask->json, STRICT_ROOT, name);
    if (node && strict_kind(ask->json, node) != STRICT_STRING)
        ask_odd(ask, odd);
    return ask_text(ask, node);
}

static void read_names(struct ask *ask)
{
    ask->node_model = strict_given(ask->json, STRICT_ROOT, "model");
    ask->model = read_name(ask, "model", "model is not a string");
    ask->user = read_name(ask, "user", "user is not a string");
    ask->safety_identifier = read_name(ask, "safety_identifier", "safety_identifier is not a string");
    ask->cache_salt = read_name(ask, "cache_salt", "cache_salt is not a string");
    uint32_t encoding = strict_given(ask->json, STRICT_ROOT, "encoding_format");
    if (encoding && strict_is(ask->json, encoding, "base64"))
        ask->features |= ASK_BASE64;
}

static void read_top(struct ask *ask)
{
    read_names(ask);
    read_stream(ask);
    read_cache(ask);
    read_count(ask, "n", ASK_N, &ask->n, "n is not a whole number of 1 to 128");
    read_count(ask, "best_of", ASK_BEST_OF, NULL, "best_of is not a whole number of 1 to 128");
    read_logprobs(ask);
    ask_flag(ask, STRICT_ROOT, "echo", ASK_ECHO, "echo is neither true nor false");
    read_audio(ask);
    read_given(ask, "seed", ASK_SEED);
    read_given(ask, "prediction", ASK_PREDICTION);
    read_given(ask, "suffix", ASK_SUFFIX);
    read_tools(ask);
    read_format(ask);
    read_temperature(ask);
    read_state(ask);
}

int ask_read(struct ask *ask, enum ask_kind kind, const struct strict *json, struct quire_error *err)
{
    static void (*const read_said[])(struct ask *) = {
        [ASK_CHAT] = ask_read_messages,       [ASK_COMPLETIONS] = ask_read_prompt, [ASK_EMBEDDINGS] = ask_read_input,
        [ASK_RESPONSES] = ask_read_responses, [ASK_MESSAGES] = ask_read_messages,
    };
    struct ask old = *ask;
    if (strict_kind(json, STRICT_ROOT) != STRICT_OBJECT)
        return error_set(err, QUIRE_EINVALID, "the body is no JSON object");
    *ask = (struct ask){.json = json, .kind = kind, .n = 1};
    if (old.decoded_capacity > DECODED_KEPT) {
        free(old.decoded);
        old.decoded = NULL;
        old.decoded_capacity = 0;
    }
    ask->decoded = old.decoded;
    ask->decoded_capacity = old.decoded_capacity;
    if (!array_reserve(&ask->decoded, &ask->decoded_capacity, json->text_bytes))
        return error_set(err, QUIRE_ENOMEM, "no memory for the texts of a body of %zu bytes", json->text_bytes);
    read_top(ask);
    read_said[kind](ask);
    return 0;
}

void ask_fini(struct ask *ask)
{
    free(ask->decoded);
    *ask = (struct ask){0};
}
