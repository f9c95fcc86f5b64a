/*
 * answer_texts.c - the texts of an answer, for those who look for words in it.
 *
 * Pieces are decoded one behind the other as they come, each with the name of the text that it belongs to; sorted by
 * name, they are the texts. All of them together are shorter than the answer, since each comes from other bytes of it.
 * A stream of responses says everything once more in its last event, so the pieces before that are not read.
 */
#include "gateway/text/answer_texts.h"
#include "gateway/text/sse.h"
#include "io/array.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

#define CHOICES_MAX 128u /* as answer.h has them; others are taken for the first */
#define PARTS_MAX   65535u

struct piece {
    uint32_t name; /* choice, voice, part */
    size_t at, bytes;
};

struct reader {
    struct strict json;
    char *decoded;
    size_t n_decoded;
    struct piece *pieces;
    size_t n_pieces, capacity;
    bool failed; /* no memory */
};

static void add(struct reader *reader, uint32_t choice, enum answer_voice voice, uint32_t part, uint32_t node)
{
    const struct strict *json = &reader->json;
    struct piece piece = {.name = choice << 18 | (uint32_t)voice << 16 | (part < PARTS_MAX ? part : PARTS_MAX),
                          .at = reader->n_decoded};
    if (!node || strict_kind(json, node) != STRICT_STRING || json->nodes[node].n == 0)
        return;
    if (!array_reserve(&reader->pieces, &reader->capacity, reader->n_pieces + 1)) {
        reader->failed = true;
        return;
    }
    piece.bytes = strict_decode(json, node, reader->decoded + reader->n_decoded);
    reader->n_decoded += piece.bytes;
    reader->pieces[reader->n_pieces++] = piece;
}

static bool is_list(const struct strict *json, uint32_t node)
{
    return node && strict_kind(json, node) == STRICT_LIST;
}

/* The `text` (or another member) of all objects in a list. */
static void add_members(struct reader *reader, uint32_t choice, enum answer_voice voice, uint32_t list,
                        const char *member)
{
    const struct strict *json = &reader->json;
    if (!is_list(json, list))
        return;
    for (uint32_t i = strict_begin(list); i < strict_end(json, list); i = strict_next(json, i))
        add(reader, choice, voice, 0, strict_given(json, i, member));
}

static uint32_t index_of(const struct strict *json, uint32_t node, uint32_t max)
{
    uint32_t index = strict_given(json, node, "index");
    uint64_t x = 0;
    return index && strict_whole(json, index, max, &x) ? (uint32_t)x : 0;
}

/* ---- chat and completions ---- */

static void read_calls(struct reader *reader, uint32_t choice, uint32_t calls)
{
    const struct strict *json = &reader->json;
    uint32_t n = 0;
    if (!is_list(json, calls))
        return;
    for (uint32_t i = strict_begin(calls); i < strict_end(json, calls); i = strict_next(json, i), n++) {
        uint32_t function = strict_given(json, i, "function");
        uint32_t part = strict_given(json, i, "index") ? index_of(json, i, PARTS_MAX) : n;
        if (function)
            add(reader, choice, ANSWER_CALLED, part, strict_given(json, function, "arguments"));
    }
}

/* A delta, or a message. */
static void read_message(struct reader *reader, uint32_t choice, uint32_t message)
{
    const struct strict *json = &reader->json;
    uint32_t content = strict_given(json, message, "content"), call = strict_given(json, message, "function_call");
    add(reader, choice, ANSWER_SAID, 0, content);
    add_members(reader, choice, ANSWER_SAID, content, "text");
    add(reader, choice, ANSWER_THOUGHT, 0, strict_given(json, message, "reasoning_content"));
    add(reader, choice, ANSWER_THOUGHT, 0, strict_given(json, message, "reasoning"));
    read_calls(reader, choice, strict_given(json, message, "tool_calls"));
    if (call)
        add(reader, choice, ANSWER_CALLED, 0, strict_given(json, call, "arguments"));
}

static void read_choices(struct reader *reader)
{
    const struct strict *json = &reader->json;
    uint32_t choices = strict_given(json, STRICT_ROOT, "choices");
    if (!is_list(json, choices))
        return;
    for (uint32_t i = strict_begin(choices); i < strict_end(json, choices); i = strict_next(json, i)) {
        uint32_t choice = index_of(json, i, CHOICES_MAX - 1);
        uint32_t message = strict_given(json, i, "message"), delta = strict_given(json, i, "delta");
        if (message)
            read_message(reader, choice, message);
        if (delta)
            read_message(reader, choice, delta);
        add(reader, choice, ANSWER_SAID, 0, strict_given(json, i, "text"));
    }
}

/* ---- responses ---- */

static void read_response(struct reader *reader, uint32_t response)
{
    const struct strict *json = &reader->json;
    uint32_t output = strict_given(json, response, "output"), n = 0;
    if (!is_list(json, output))
        return;
    for (uint32_t i = strict_begin(output); i < strict_end(json, output); i = strict_next(json, i), n++) {
        uint32_t type = strict_given(json, i, "type");
        bool thought = type && strict_is(json, type, "reasoning");
        add_members(reader, 0, thought ? ANSWER_THOUGHT : ANSWER_SAID, strict_given(json, i, "content"), "text");
        add_members(reader, 0, ANSWER_THOUGHT, strict_given(json, i, "summary"), "text");
        add(reader, 0, ANSWER_CALLED, n, strict_given(json, i, "arguments"));
        add(reader, 0, ANSWER_CALLED, n, strict_given(json, i, "input"));
    }
}

/* ---- messages ---- */

/* A block, or the delta of one. */
static void read_block(struct reader *reader, uint32_t block, uint32_t part)
{
    const struct strict *json = &reader->json;
    uint32_t input = strict_given(json, block, "input");
    add(reader, 0, ANSWER_SAID, 0, strict_given(json, block, "text"));
    add(reader, 0, ANSWER_THOUGHT, 0, strict_given(json, block, "thinking"));
    add(reader, 0, ANSWER_CALLED, part, strict_given(json, block, "partial_json"));
    if (input && strict_kind(json, input) == STRICT_OBJECT)
        for (uint32_t i = strict_begin(input); i < strict_end(json, input); i = strict_next(json, i + 1))
            add(reader, 0, ANSWER_CALLED, part, i + 1);
}

static void read_messages(struct reader *reader)
{
    const struct strict *json = &reader->json;
    uint32_t content = strict_given(json, STRICT_ROOT, "content"), n = 0;
    uint32_t block = strict_given(json, STRICT_ROOT, "content_block"), delta = strict_given(json, STRICT_ROOT, "delta");
    if (is_list(json, content))
        for (uint32_t i = strict_begin(content); i < strict_end(json, content); i = strict_next(json, i))
            read_block(reader, i, n++);
    if (block)
        read_block(reader, block, index_of(json, STRICT_ROOT, PARTS_MAX));
    if (delta)
        read_block(reader, delta, index_of(json, STRICT_ROOT, PARTS_MAX));
}

/* ---- the whole answer ---- */

/* A whole answer, or the data of an event. */
static void read_object(struct reader *reader, enum ask_kind kind, const char *text, size_t bytes)
{
    struct quire_error err;
    int rc = strict_read(&reader->json, text, bytes, &err);
    if (rc < 0) {
        reader->failed = reader->failed || rc == QUIRE_ENOMEM;
        return;
    }
    if (kind == ASK_CHAT || kind == ASK_COMPLETIONS) {
        read_choices(reader);
    } else if (kind == ASK_RESPONSES) {
        uint32_t response = strict_given(&reader->json, STRICT_ROOT, "response");
        uint32_t type = strict_given(&reader->json, STRICT_ROOT, "type");
        if (!response)
            read_response(reader, STRICT_ROOT);
        else if (type && strict_is(&reader->json, type, "response.completed"))
            read_response(reader, response);
    } else if (kind == ASK_MESSAGES) {
        read_messages(reader);
    }
}

static void read_events(struct reader *reader, enum ask_kind kind, const char *answer, size_t bytes)
{
    struct sse sse;
    struct sse_event event;
    sse_init(&sse, bytes);
    for (enum sse_status status; (status = sse_next(&sse, &answer, &bytes, &event)) != SSE_MORE;) {
        reader->failed = reader->failed || status == SSE_PART; /* no event is longer than all of them */
        if (event.has_data)
            read_object(reader, kind, event.data.data, event.data.bytes);
    }
    while (sse_end(&sse, &event) == SSE_EVENT)
        if (event.has_data)
            read_object(reader, kind, event.data.data, event.data.bytes);
    sse_fini(&sse);
}

static int by_name(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->name != y->name ? (x->name < y->name ? -1 : 1) : (x->at > y->at) - (x->at < y->at);
}

static int join(struct reader *reader, struct answer_texts *out)
{
    size_t n = 0;
    if (reader->n_pieces == 0)
        return 0;
    qsort(reader->pieces, reader->n_pieces, sizeof *reader->pieces, by_name);
    out->bytes = malloc(reader->n_decoded);
    out->items = calloc(reader->n_pieces, sizeof *out->items);
    if (!out->bytes || !out->items)
        return QUIRE_ENOMEM;
    for (size_t i = 0; i < reader->n_pieces; i++) {
        const struct piece *piece = &reader->pieces[i];
        struct answer_text *text = &out->items[out->n];
        memcpy(out->bytes + n, reader->decoded + piece->at, piece->bytes);
        if (i == 0 || piece->name != piece[-1].name) {
            text = &out->items[out->n++];
            *text = (struct answer_text){(enum answer_voice)(piece->name >> 16 & 3), {out->bytes + n, 0}};
        } else {
            text--;
        }
        text->text.bytes += piece->bytes;
        n += piece->bytes;
    }
    return 0;
}

int answer_texts_read(struct answer_texts *out, enum ask_kind kind, const char *answer, size_t bytes, bool events)
{
    struct reader reader = {.decoded = malloc(bytes + 1)};
    int rc;
    *out = (struct answer_texts){.items = NULL};
    if (!reader.decoded)
        return QUIRE_ENOMEM;
    if (events)
        read_events(&reader, kind, answer, bytes);
    else
        read_object(&reader, kind, answer, bytes);
    rc = reader.failed ? QUIRE_ENOMEM : join(&reader, out);
    if (rc)
        answer_texts_fini(out);
    strict_fini(&reader.json);
    free(reader.decoded);
    free(reader.pieces);
    return rc;
}

void answer_texts_fini(struct answer_texts *texts)
{
    free(texts->items);
    free(texts->bytes);
    *texts = (struct answer_texts){.items = NULL};
}
