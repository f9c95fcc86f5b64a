/*
 * replay.c - finds the ids, times and tokens of a kept answer by reading it again, and overwrites them.
 *
 * Reading costs about as much as copying twice; places could be stored with the answer instead, but then what is stored
 * would not be the upstream's bytes.
 *
 * A new id is the old one with each letter and digit moved along its alphabet by a distance that depends on the seed
 * and the place alone: ids that were equal stay equal, others stay different, and hexadecimal stays hexadecimal.
 * Clients take an id as a message's name, so two answers must not have the same.
 */
#include "gateway/text/replay.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct target {
    struct replay *replay;
    const struct replay_options *options;
    char *bytes;                   /* what is changed */
    const struct sse_event *event; /* NULL: `bytes` is the JSON itself */
};

void replay_fini(struct replay *replay)
{
    strict_fini(&replay->json);
    sse_fini(&replay->sse);
}

/* A value in the bytes that are sent. A value without line ends lies in one line of data. */
static char *value_in(const struct target *t, uint32_t node)
{
    size_t at = t->replay->json.nodes[node].at;
    return t->bytes + (t->event ? sse_place(t->event, at) : at);
}

/* ---- ids ---- */

static const char digits[] = "0123456789", hex[] = "0123456789abcdef",
                  all[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/* "chatcmpl-", "msg_": letters and what ends them. */
static size_t prefix_bytes(const char *id, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && ((id[n] >= 'a' && id[n] <= 'z') || (id[n] >= 'A' && id[n] <= 'Z')))
        n++;
    return n > 0 && n < bytes && (id[n] == '-' || id[n] == '_') ? n + 1 : 0;
}

static bool only_of(const char *id, size_t bytes, const char *alphabet)
{
    for (size_t i = 0; i < bytes; i++)
        if (strchr(all, id[i]) && !strchr(alphabet, id[i]))
            return false;
    return true;
}

/* A distance for a place (splitmix64). */
static uint64_t distance_at(const uint8_t seed[32], size_t place)
{
    uint64_t x = bytes_load_u64(seed + place % 4 * 8) + (place + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void renew_id(const struct target *t, uint32_t holder)
{
    const struct strict *json = &t->replay->json;
    uint32_t node = strict_member(json, holder, "id");
    if (!node || strict_kind(json, node) != STRICT_STRING)
        return;
    size_t bytes = json->nodes[node].bytes;
    char *id = value_in(t, node);
    if (memchr(id, '\\', bytes)) /* such an id is not of letters and digits */
        return;
    size_t prefix = prefix_bytes(id, bytes);
    const char *alphabet = only_of(id + prefix, bytes - prefix, digits) ? digits
                           : only_of(id + prefix, bytes - prefix, hex)  ? hex
                                                                        : all;
    size_t n = strlen(alphabet);
    for (size_t i = prefix; i < bytes; i++) {
        const char *letter = strchr(alphabet, id[i]);
        if (letter)
            id[i] = alphabet[((size_t)(letter - alphabet) + distance_at(t->options->seed, i) % n) % n];
    }
}

/* ---- times and tokens ---- */

static void renew_created(const struct target *t)
{
    const struct strict *json = &t->replay->json;
    uint32_t node = strict_member(json, STRICT_ROOT, "created");
    char now[24];
    size_t bytes = (size_t)snprintf(now, sizeof now, "%llu", (unsigned long long)t->options->now_s);
    if (!node || strict_kind(json, node) != STRICT_NUMBER || json->nodes[node].bytes != bytes)
        return;
    char *created = value_in(t, node);
    if (only_of(created, bytes, digits) && !memchr(created, '-', bytes) && !memchr(created, '.', bytes))
        memcpy(created, now, bytes);
}

/* Numbers of `usage` itself become 0 and blanks; objects in it are left alone. */
static void zero_usage(const struct target *t, uint32_t holder)
{
    const struct strict *json = &t->replay->json;
    uint32_t usage = strict_given(json, holder, "usage");
    if (!t->options->zero_usage || !usage || strict_kind(json, usage) != STRICT_OBJECT)
        return;
    for (uint32_t i = strict_begin(usage); i < strict_end(json, usage); i = strict_next(json, i + 1)) {
        if (strict_kind(json, i + 1) != STRICT_NUMBER)
            continue;
        char *number = value_in(t, i + 1);
        memset(number, ' ', json->nodes[i + 1].bytes);
        number[0] = '0';
    }
}

/* ---- an object ---- */

static void renew(const struct target *t)
{
    const struct strict *json = &t->replay->json;
    enum ask_kind kind = t->options->kind;
    uint32_t message = kind == ASK_MESSAGES ? strict_given(json, STRICT_ROOT, "message") : 0;
    uint32_t response = kind == ASK_RESPONSES ? strict_given(json, STRICT_ROOT, "response") : 0;
    if (!t->options->same && kind != ASK_RESPONSES) {
        renew_id(t, STRICT_ROOT);
        renew_created(t);
        if (message)
            renew_id(t, message);
    }
    zero_usage(t, STRICT_ROOT);
    if (message || response)
        zero_usage(t, message ? message : response);
}

static bool is_usage_alone(const struct strict *json)
{
    uint32_t choices = strict_given(json, STRICT_ROOT, "choices"), usage = strict_given(json, STRICT_ROOT, "usage");
    return choices && strict_kind(json, choices) == STRICT_LIST && json->nodes[choices].n == 0 && usage &&
           strict_kind(json, usage) == STRICT_OBJECT;
}

bool replay_event(struct replay *replay, const struct replay_options *options, char *event, size_t bytes)
{
    struct sse_event read;
    struct target t = {.replay = replay, .options = options, .bytes = event, .event = &read};
    struct strict *json = &replay->json;
    bool tokens = options->kind == ASK_CHAT || options->kind == ASK_COMPLETIONS;
    if (!sse_read(&replay->sse, (struct strict_text){event, bytes}, &read) || !read.has_data ||
        strict_read(json, read.data.data, read.data.bytes, NULL) < 0)
        return true;
    if (tokens && options->drop_usage && is_usage_alone(json))
        return false;
    renew(&t);
    return true;
}

void replay_json(struct replay *replay, const struct replay_options *options, char *body, size_t bytes)
{
    struct target t = {.replay = replay, .options = options, .bytes = body};
    if (strict_read(&replay->json, body, bytes, NULL) == 0)
        renew(&t);
}

/* ---- vectors ---- */

struct writing {
    char *data;
    size_t bytes, capacity;
    bool failed;
};

static void put(struct writing *w, const char *data, size_t bytes)
{
    if (w->failed || !array_reserve(&w->data, &w->capacity, w->bytes + bytes)) {
        w->failed = true;
        return;
    }
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

static void put_quoted(struct writing *w, struct strict_text text)
{
    if (w->failed || !array_reserve(&w->data, &w->capacity, w->bytes + 6 * text.bytes + 2))
        w->failed = true;
    else
        w->bytes += strict_quote(text.data, text.bytes, w->data + w->bytes);
}

int replay_vectors(const struct strict_text *vectors, uint32_t n, struct strict_text model, uint64_t prompt_tokens,
                   char **body, size_t *bytes, struct quire_error *err)
{
    struct writing w = {.data = NULL};
    char part[128];
    put(&w, "{\"object\":\"list\",\"data\":[", 25);
    for (uint32_t i = 0; i < n; i++) {
        put(&w, part,
            (size_t)snprintf(part, sizeof part, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i ? "," : "",
                             i));
        put(&w, vectors[i].data, vectors[i].bytes);
        put(&w, "}", 1);
    }
    put(&w, "],\"model\":", 10);
    put_quoted(&w, model);
    put(&w, part,
        (size_t)snprintf(part, sizeof part, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}",
                         (unsigned long long)prompt_tokens, (unsigned long long)prompt_tokens));
    if (w.failed) {
        free(w.data);
        return error_set(err, QUIRE_ENOMEM, "no memory for an answer of %u vectors", n);
    }
    *body = w.data;
    *bytes = w.bytes;
    return 0;
}
