/*
 * canonical.c - the canonical form of a body, written straight into SHA-256.
 *
 * The form is an object that names version, path, upstream, model and the limit of tokens, and then the body as
 * canonical JSON, less what is left out. Where a rule replaces a value it writes a character that no JSON has at that
 * place, so nothing that a client sends can look like it: `?` for the question, `@3` for the third id of a tool call,
 * and a control character inside a string for a place that is masked.
 *
 * Names come in the order in which the reader has sorted them, which is by bytes of their spelling. A walk is at most
 * STRICT_DEPTH_MAX calls deep, because the text is.
 *
 * Sources of what is left out: fields that servers document as accounting, routing or transport (OpenAI, vLLM,
 * llama.cpp, LiteLLM). A field is put on this list only where no server lets it change the text of an answer.
 */
#include "gateway/text/canonical.h"
#include "gateway/text/mask.h"
#include "io/array.h"
#include "io/error.h"
#include "io/hash.h"
#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/random.h>
#include <xxhash.h>

enum { IDS_KEPT = 1024, DECODED_KEPT = 65536 }; /* memory that stays for the next request: places, bytes */

/* ---- ids of tool calls ---- */

struct id {
    struct strict_text text;
    uint64_t hash;
    uint32_t number; /* 1 is the first that appeared; 0: an empty place */
};

static inline bool id_is_set(const struct id *id)
{
    return id->number != 0;
}
static inline uint64_t id_hash(const struct id *id)
{
    return id->hash;
}
static inline bool id_is_same(const struct id *a, const struct id *b)
{
    return a->hash == b->hash && a->text.bytes == b->text.bytes &&
           memcmp(a->text.data, b->text.data, a->text.bytes) == 0;
}
HASH_DEFINE(ids, struct id, id_is_set, id_hash, id_is_same)

/* ---- where the form goes ---- */

struct canonical {
    EVP_MD *sha256;
    EVP_MD_CTX *context;
    struct ids ids;
    uint64_t seed; /* of the ids' hash: clients must not choose what collides */
    char *decoded; /* texts that are masked */
    uint32_t decoded_capacity;
    /* of the form that is being written */
    const struct strict *json;
    const struct ask *ask;
    const struct canonical_options *options;
    uint32_t limit, question; /* nodes that are written elsewhere, 0: none */
    bool keep_text;           /* into `text`, not into the hash */
    int failed;               /* QUIRE_E: what could not be written */
    char *text;
    size_t text_bytes, text_capacity;
    uint32_t n_piece;
    char piece[1024]; /* small writes on their way to the hash */
};

/* After a failure nothing goes to OpenSSL any more: a context that could not begin must not go on. */
static void hash_bytes(struct canonical *c, const void *data, size_t bytes)
{
    if (!c->failed && bytes > 0 && EVP_DigestUpdate(c->context, data, bytes) != 1)
        c->failed = QUIRE_EINTERNAL;
}

static void flush(struct canonical *c)
{
    hash_bytes(c, c->piece, c->n_piece);
    c->n_piece = 0;
}

static void put_kept(struct canonical *c, const char *data, size_t bytes)
{
    if (!array_reserve(&c->text, &c->text_capacity, c->text_bytes + bytes)) {
        c->failed = QUIRE_ENOMEM;
        return;
    }
    memcpy(c->text + c->text_bytes, data, bytes);
    c->text_bytes += bytes;
}

static void put(struct canonical *c, const char *data, size_t bytes)
{
    if (bytes == 0)
        return;
    if (c->keep_text) {
        put_kept(c, data, bytes);
        return;
    }
    if (c->n_piece + bytes > sizeof c->piece)
        flush(c);
    if (bytes > sizeof c->piece) {
        hash_bytes(c, data, bytes);
        return;
    }
    memcpy(c->piece + c->n_piece, data, bytes);
    c->n_piece += (uint32_t)bytes;
}

/* Mostly a byte or two: a call of memcpy for each would be most of the work. */
static void put_few(struct canonical *c, const char *data, size_t bytes)
{
    if (c->keep_text || bytes > 8 || c->n_piece + bytes > sizeof c->piece) {
        put(c, data, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        c->piece[c->n_piece++] = data[i];
}

static void put_text(struct canonical *c, const char *text)
{
    put(c, text, strlen(text));
}

/* A text that is not JSON, as a JSON string. */
static void put_escaped(struct canonical *c, const char *data, size_t bytes)
{
    char escape[8];
    for (size_t at = 0; at < bytes;) {
        size_t plain = at;
        while (plain < bytes && (unsigned char)data[plain] >= 0x20 && data[plain] != '"' && data[plain] != '\\')
            plain++;
        put(c, data + at, plain - at);
        if (plain < bytes) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)data[plain]);
            put(c, escape, 6);
        }
        at = plain + 1;
    }
}

static void put_quoted(struct canonical *c, const char *data, size_t bytes)
{
    put(c, "\"", 1);
    put_escaped(c, data, bytes);
    put(c, "\"", 1);
}

/* ---- values ---- */

/* Where an object stands decides what is left out of it, and what its members mean. */
enum place {
    PLACE_ANY,
    PLACE_TOP,
    PLACE_MESSAGE, /* of chat and of Anthropic; an item of responses */
    PLACE_CALL,    /* an element of tool_calls */
    PLACE_BLOCK    /* a part of a content */
};

static void put_value(struct canonical *c, uint32_t node, enum place place, bool masked);

static void put_string(struct canonical *c, uint32_t node)
{
    struct strict_text spelling = strict_spelling(c->json, node);
    put(c, "\"", 1);
    put(c, spelling.data, spelling.bytes);
    put(c, "\"", 1);
}

/* Places that are masked become U+0001 and their kind is lost: a date is as good as another. */
static void put_masked(struct canonical *c, uint32_t node)
{
    size_t at = 0, found = 0, found_bytes = 0;
    if (!array_reserve(&c->decoded, &c->decoded_capacity, c->json->nodes[node].bytes)) {
        c->failed = QUIRE_ENOMEM;
        return;
    }
    size_t bytes = strict_decode(c->json, node, c->decoded);
    put(c, "\"", 1);
    while (mask_find(c->decoded, bytes, at, c->options->masks, &found, &found_bytes)) {
        put_escaped(c, c->decoded + at, found - at);
        put(c, "\x01", 1);
        at = found + found_bytes;
    }
    put_escaped(c, c->decoded + at, bytes - at);
    put(c, "\"", 1);
}

/* Digits that end with another than 0 are spelled canonically: lists of tokens have thousands of them. */
static bool is_plain_number(const char *text, size_t bytes)
{
    size_t digits = 0;
    while (digits < bytes && text[digits] >= '0' && text[digits] <= '9')
        digits++;
    return digits == bytes && (bytes == 1 || text[bytes - 1] != '0');
}

static void put_number(struct canonical *c, const char *text, size_t bytes)
{
    struct strict_number number;
    if (is_plain_number(text, bytes)) {
        put(c, text, bytes);
        return;
    }
    strict_number(text, bytes, &number);
    if (number.negative)
        put_few(c, "-", 1);
    put_few(c, number.first, number.first_bytes);
    put_few(c, number.second, number.second_bytes);
    put_few(c, number.tail, number.tail_bytes);
}

/* Numbers of a list with a comma between. What is spelled so already goes in one piece, up to the next that is not. */
static void put_numbers(struct canonical *c, uint32_t node)
{
    const char *text = c->json->text + c->json->nodes[node].at, *end = text + c->json->nodes[node].bytes, *from = text;
    struct strict_text number;
    uint32_t at = 0;
    while ((number = strict_numbers(c->json, node, &at)).data) {
        const char *behind = number.data + number.bytes;
        bool joined = behind == end || (*behind == ',' && !strict_parts_numbers(behind[1]));
        if (joined && is_plain_number(number.data, number.bytes))
            continue;
        if (from < number.data)
            put_few(c, from, (size_t)(number.data - from));
        put_number(c, number.data, number.bytes);
        from = behind;
        while (from < end && strict_parts_numbers(*from))
            from++;
        if (from < end)
            put_few(c, ",", 1);
    }
    put(c, from, (size_t)(end - from));
}

static void put_id(struct canonical *c, uint32_t node)
{
    char text[16];
    if (strict_kind(c->json, node) != STRICT_STRING) {
        put_value(c, node, PLACE_ANY, false);
        return;
    }
    struct id like = {.text = strict_spelling(c->json, node), .number = (uint32_t)c->ids.n + 1};
    like.hash = XXH3_64bits_withSeed(like.text.data, like.text.bytes, c->seed);
    struct id *id = ids_find(&c->ids, &like);
    id = id ? id : ids_add(&c->ids, like);
    if (!id) {
        c->failed = QUIRE_ENOMEM;
        return;
    }
    put(c, text, (size_t)snprintf(text, sizeof text, "@%u", id->number));
}

/* ---- what is left out ---- */

static const char *const ignored[] = {"stream_options",
                                      "user",
                                      "metadata",
                                      "store",
                                      "safety_identifier",
                                      "prompt_cache_key",
                                      "service_tier",
                                      "request_id",
                                      "session_id",
                                      "priority",
                                      "cache_salt",
                                      "prompt_cache_retention",
                                      "cache",
                                      "id_slot",
                                      "cache_prompt",
                                      "timings_per_token",
                                      "kv_transfer_params"};

bool canonical_ignores(const char *name)
{
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strcmp(ignored[i], name) == 0)
            return true;
    return false;
}

static bool named(struct strict_text spelling, const char *name)
{
    return strncmp(name, spelling.data, spelling.bytes) == 0 && name[spelling.bytes] == 0;
}

static bool is_ignored(const struct canonical *c, struct strict_text name)
{
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (named(name, ignored[i]))
            return true;
    for (size_t i = 0; i < c->options->n_ignore; i++)
        if (named(name, c->options->ignore[i]))
            return true;
    return false;
}

/* The limit of tokens of chat, where one of its two names is given; 0: none or both. */
static uint32_t limit_of(const struct ask *ask)
{
    if (ask->kind != ASK_CHAT)
        return 0;
    uint32_t old = strict_given(ask->json, STRICT_ROOT, "max_tokens");
    uint32_t new = strict_given(ask->json, STRICT_ROOT, "max_completion_tokens");
    return old && new ? 0 : old + new;
}

static bool left_out_at_top(const struct canonical *c, struct strict_text name, uint32_t value)
{
    uint64_t n;
    if (value == c->ask->node_model || value == c->limit)
        return true;
    if (named(name, "n"))
        return strict_whole(c->json, value, 1, &n) && n == 1;
    if (named(name, "stream"))
        return strict_kind(c->json, value) == STRICT_FALSE;
    return is_ignored(c, name);
}

static bool is_left_out(const struct canonical *c, enum place place, struct strict_text name, uint32_t value)
{
    bool top = place == PLACE_TOP, message = place == PLACE_MESSAGE;
    if ((top || message) && strict_kind(c->json, value) == STRICT_NULL)
        return true;
    if (message)
        return c->ask->kind != ASK_RESPONSES && named(name, "id");
    return top && left_out_at_top(c, name, value);
}

/* ---- what members mean ---- */

static bool is_call_id(const struct canonical *c, enum place place, struct strict_text name, uint32_t object)
{
    if (place == PLACE_MESSAGE)
        return named(name, "tool_call_id") || (c->ask->kind == ASK_RESPONSES && named(name, "call_id"));
    if (place == PLACE_CALL)
        return named(name, "id");
    if (place != PLACE_BLOCK || c->ask->kind != ASK_MESSAGES)
        return false;
    uint32_t type = strict_member(c->json, object, "type");
    return named(name, "tool_use_id") || (named(name, "id") && type && strict_is(c->json, type, "tool_use"));
}

static bool is_system(const struct strict *json, uint32_t message)
{
    uint32_t role = strict_member(json, message, "role");
    return role && (strict_is(json, role, "system") || strict_is(json, role, "developer"));
}

/* What the objects in a member are, and whether texts in it are a system's. */
static enum place place_in(const struct canonical *c, enum place place, struct strict_text name, uint32_t object,
                           bool *masked)
{
    enum ask_kind kind = c->ask ? c->ask->kind : ASK_CHAT;
    if (place == PLACE_BLOCK) {
        *masked = *masked && named(name, "text");
        return PLACE_ANY;
    }
    *masked = false;
    if (place == PLACE_TOP && (kind == ASK_CHAT || kind == ASK_MESSAGES) && named(name, "messages"))
        return PLACE_MESSAGE;
    if (place == PLACE_TOP && kind == ASK_RESPONSES && named(name, "input"))
        return PLACE_MESSAGE;
    if (place == PLACE_TOP &&
        ((kind == ASK_MESSAGES && named(name, "system")) || (kind == ASK_RESPONSES && named(name, "instructions")))) {
        *masked = c->options->masks != 0;
        return PLACE_BLOCK;
    }
    if (place == PLACE_MESSAGE && named(name, "content")) {
        *masked = c->options->masks != 0 && is_system(c->json, object);
        return PLACE_BLOCK;
    }
    return place == PLACE_MESSAGE && kind == ASK_CHAT && named(name, "tool_calls") ? PLACE_CALL : PLACE_ANY;
}

/* The member that the question stands in: its value is HASH's alone. */
static uint32_t question_of(const struct ask *ask)
{
    return ask->kind == ASK_EMBEDDINGS ? ask->node_input : ask->node_question;
}

static void put_object(struct canonical *c, uint32_t object, enum place place, bool masked)
{
    const struct strict *json = c->json;
    uint32_t from = json->nodes[object].canon;
    bool first = true;
    put(c, "{", 1);
    for (uint32_t i = 0; i < json->nodes[object].n; i++) {
        uint32_t name_node = json->order[from + i], value = name_node + 1;
        struct strict_text name = strict_spelling(json, name_node);
        bool inner = masked;
        if (place != PLACE_ANY && is_left_out(c, place, name, value))
            continue;
        if (!first)
            put(c, ",", 1);
        first = false;
        put_string(c, name_node);
        put(c, ":", 1);
        if (value == c->question)
            put(c, "?", 1);
        else if (place != PLACE_ANY && is_call_id(c, place, name, object))
            put_id(c, value);
        else if (place == PLACE_ANY)
            put_value(c, value, PLACE_ANY, false);
        else {
            enum place in = place_in(c, place, name, object, &inner);
            put_value(c, value, in, inner);
        }
    }
    put(c, "}", 1);
}

static void put_list(struct canonical *c, uint32_t list, enum place place, bool masked)
{
    put(c, "[", 1);
    for (uint32_t i = strict_begin(list); i < strict_end(c->json, list); i = strict_next(c->json, i)) {
        if (i != strict_begin(list))
            put(c, ",", 1);
        put_value(c, i, place, masked);
    }
    put(c, "]", 1);
}

static void put_value(struct canonical *c, uint32_t node, enum place place, bool masked)
{
    switch (strict_kind(c->json, node)) {
    case STRICT_NULL:
        put(c, "null", 4);
        break;
    case STRICT_FALSE:
        put(c, "false", 5);
        break;
    case STRICT_TRUE:
        put(c, "true", 4);
        break;
    case STRICT_NUMBER:
        put_number(c, c->json->text + c->json->nodes[node].at, c->json->nodes[node].bytes);
        break;
    case STRICT_NUMBERS:
        put_numbers(c, node);
        break;
    case STRICT_STRING:
        if (masked)
            put_masked(c, node);
        else
            put_string(c, node);
        break;
    case STRICT_LIST:
        put_list(c, node, place, masked);
        break;
    case STRICT_OBJECT:
        put_object(c, node, place, masked);
        break;
    }
}

static void put_form(struct canonical *c)
{
    const struct canonical_options *options = c->options;
    struct strict_text model = options->model.data ? options->model : c->ask->model;
    char version[32];
    put(c, version, (size_t)snprintf(version, sizeof version, "{\"v\":%d,\"path\":", CANONICAL_VERSION));
    put_quoted(c, options->path, strlen(options->path));
    put_text(c, ",\"upstream\":");
    put_quoted(c, options->upstream, strlen(options->upstream));
    put_text(c, ",\"model\":");
    if (model.data)
        put_quoted(c, model.data, model.bytes);
    else
        put_text(c, "null");
    if (c->limit) {
        put_text(c, ",\"limit\":");
        put_value(c, c->limit, PLACE_ANY, false);
    }
    put_text(c, ",\"body\":");
    put_value(c, STRICT_ROOT, PLACE_TOP, false);
    put_text(c, "}");
}

/* ---- forms ---- */

static void begin(struct canonical *c, const struct strict *json, const struct ask *ask,
                  const struct canonical_options *options)
{
    c->json = json;
    c->ask = ask;
    c->options = options;
    c->limit = ask ? limit_of(ask) : 0;
    c->question = ask ? question_of(ask) : 0;
    c->failed = 0;
    c->n_piece = 0;
    if (c->decoded_capacity > DECODED_KEPT) {
        free(c->decoded);
        c->decoded = NULL;
        c->decoded_capacity = 0;
    }
    if (c->ids.capacity > IDS_KEPT) {
        free(c->ids.places);
        c->ids = (struct ids){0};
    } else if (c->ids.n > 0) {
        memset(c->ids.places, 0, c->ids.capacity * sizeof *c->ids.places);
        c->ids.n = 0;
    }
}

static void begin_hash(struct canonical *c, const char *what)
{
    char line[40];
    if (EVP_DigestInit_ex2(c->context, c->sha256, NULL) != 1)
        c->failed = QUIRE_ENOMEM; /* it worked when the context was made, and allocates each time */
    put(c, line, (size_t)snprintf(line, sizeof line, "quire-gateway %d %s\n", CANONICAL_VERSION, what));
}

static void end_hash(struct canonical *c, uint8_t hash[CANONICAL_HASH_BYTES])
{
    uint8_t out[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    flush(c);
    if (c->failed)
        return;
    if (EVP_DigestFinal_ex(c->context, out, &bytes) != 1 || bytes != CANONICAL_HASH_BYTES)
        c->failed = QUIRE_EINTERNAL;
    else
        memcpy(hash, out, CANONICAL_HASH_BYTES);
}

static int failure(const struct canonical *c, struct quire_error *err)
{
    if (c->failed == QUIRE_ENOMEM)
        return error_set(err, QUIRE_ENOMEM, "no memory for the canonical form of a body of %zu bytes",
                         c->json->text_bytes);
    return error_set(err, QUIRE_EINTERNAL, "OpenSSL does not compute SHA-256");
}

/* Of a value of the body, bound to the form that it was taken out of. */
static void hash_value(struct canonical *c, const char *what, const uint8_t compat[CANONICAL_HASH_BYTES], uint32_t node,
                       uint8_t hash[CANONICAL_HASH_BYTES])
{
    begin_hash(c, what);
    put(c, (const char *)compat, CANONICAL_HASH_BYTES);
    if (node)
        put_value(c, node, PLACE_ANY, false);
    end_hash(c, hash);
}

int canonical_keys(struct canonical *c, const struct ask *ask, const struct canonical_options *options,
                   struct canonical_keys *keys, struct quire_error *err)
{
    struct canonical_keys out;
    if (ask->odd)
        return error_set(err, QUIRE_EINVALID, "the request has no key: %s", ask->odd);
    begin(c, ask->json, ask, options);
    begin_hash(c, "compat");
    put_form(c);
    end_hash(c, out.compat);
    if (!c->failed)
        hash_value(c, "hash", out.compat, c->question, out.hash);
    if (c->failed)
        return failure(c, err);
    *keys = out;
    return 0;
}

int canonical_item(struct canonical *c, const struct ask *ask, const struct canonical_keys *keys, uint32_t item,
                   uint8_t hash[CANONICAL_HASH_BYTES], struct quire_error *err)
{
    if (ask->kind != ASK_EMBEDDINGS || ask->odd || item >= ask->items)
        return error_set(err, QUIRE_EINVALID, "item %u of a request with %u", item, ask->odd ? 0 : ask->items);
    begin(c, ask->json, ask, NULL);
    hash_value(c, "item", keys->compat, ask_item(ask, item), hash);
    return c->failed ? failure(c, err) : 0;
}

static int end_text(struct canonical *c, char **text, size_t *bytes, struct quire_error *err)
{
    c->keep_text = false;
    if (c->failed) {
        free(c->text);
        return failure(c, err);
    }
    *text = c->text;
    *bytes = c->text_bytes;
    return 0;
}

static void begin_text(struct canonical *c)
{
    c->keep_text = true;
    c->text = NULL;
    c->text_bytes = c->text_capacity = 0;
}

int canonical_form(struct canonical *c, const struct ask *ask, const struct canonical_options *options, char **text,
                   size_t *bytes, struct quire_error *err)
{
    begin(c, ask->json, ask, options);
    begin_text(c);
    put_form(c);
    return end_text(c, text, bytes, err);
}

int canonical_json(const struct strict *json, char **text, size_t *bytes, struct quire_error *err)
{
    struct canonical c = {.context = NULL};
    begin(&c, json, NULL, NULL);
    begin_text(&c);
    put_value(&c, STRICT_ROOT, PLACE_ANY, false);
    return end_text(&c, text, bytes, err);
}

/* ---- life ---- */

int canonical_create(struct canonical **canonical, struct quire_error *err)
{
    struct canonical *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, QUIRE_ENOMEM, "no memory for a hash");
    c->context = EVP_MD_CTX_new();
    c->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    /* begun once here: where it cannot work at all, that is known from the start */
    if (!c->context || !c->sha256 || EVP_DigestInit_ex2(c->context, c->sha256, NULL) != 1) {
        canonical_destroy(c);
        return error_set(err, QUIRE_EUNSUPPORTED, "OpenSSL offers no SHA-256");
    }
    if (getrandom(&c->seed, sizeof c->seed, 0) != sizeof c->seed) {
        canonical_destroy(c);
        return error_set(err, QUIRE_EIO, "the system gives no random bytes");
    }
    *canonical = c;
    return 0;
}

void canonical_destroy(struct canonical *c)
{
    if (!c)
        return;
    EVP_MD_CTX_free(c->context);
    EVP_MD_free(c->sha256);
    free(c->ids.places);
    free(c->decoded);
    free(c);
}
