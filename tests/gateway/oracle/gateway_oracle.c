/*
 * gateway_oracle.c - answers oracle.js over its standard input and output: what gateway/text makes of some bytes.
 *
 * A question: a letter, four bytes of length (little-endian), the bytes. An answer: four bytes of length, the bytes.
 *   J  a JSON text            -> "+" and its canonical JSON, or "-"
 *   C, P, E, R, M  a body     -> "-": no strict JSON, or no object; "o": odd; "+", COMPAT and HASH (both in hex), a
 *                                line feed, and the canonical form
 *   F  nothing              -> nothing: all answers are written
 *   S  a seed of 4 bytes and a stream -> the stream cut at random places: its events with data, each as type, U+001F,
 *                                data, U+001E; "!" if the raw events together are not the stream
 */
#include "gateway/text/canonical.h"
#include "gateway/text/mask.h"
#include "gateway/text/sse.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct out {
    char *data;
    size_t bytes, capacity;
};

static void put(struct out *out, const char *data, size_t bytes)
{
    if (out->bytes + bytes > out->capacity) {
        out->capacity = 2 * (out->bytes + bytes);
        out->data = realloc(out->data, out->capacity);
        assert(out->data);
    }
    if (bytes > 0)
        memcpy(out->data + out->bytes, data, bytes);
    out->bytes += bytes;
}

static struct strict json;
static struct ask ask;
static struct canonical *canonical;

static void answer_json_text(const char *text, size_t bytes, struct out *out)
{
    char *form;
    size_t form_bytes;
    if (strict_read(&json, text, bytes, NULL) < 0) {
        put(out, "-", 1);
        return;
    }
    put(out, "+", 1);
    assert(canonical_json(&json, &form, &form_bytes, NULL) == 0);
    put(out, form, form_bytes);
    free(form);
}

static void put_hex(struct out *out, const uint8_t hash[CANONICAL_HASH_BYTES])
{
    char hex[2 * CANONICAL_HASH_BYTES + 1];
    for (size_t i = 0; i < CANONICAL_HASH_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    put(out, hex, 2 * CANONICAL_HASH_BYTES);
}

static void answer_keys(enum ask_kind kind, const char *text, size_t bytes, struct out *out)
{
    const struct canonical_options options = {.path = "/v1/path", .upstream = "up"};
    struct canonical_keys keys;
    char *form;
    size_t form_bytes;
    if (strict_read(&json, text, bytes, NULL) < 0 || ask_read(&ask, kind, &json, NULL) < 0) {
        put(out, "-", 1);
        return;
    }
    if (ask.odd) {
        put(out, "o", 1);
        return;
    }
    put(out, "+", 1);
    assert(canonical_keys(canonical, &ask, &options, &keys, NULL) == 0);
    put_hex(out, keys.compat);
    put_hex(out, keys.hash);
    put(out, "\n", 1);
    assert(canonical_form(canonical, &ask, &options, &form, &form_bytes, NULL) == 0);
    put(out, form, form_bytes);
    free(form);
}

static void answer_stream(const char *bytes, size_t n, struct out *out)
{
    struct sse sse;
    struct sse_event event;
    struct out raw = {.data = NULL};
    unsigned seed;
    assert(n >= 4);
    memcpy(&seed, bytes, 4);
    sse_init(&sse, 1u << 24);
    for (size_t at = 4; at < n;) {
        size_t piece = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 4 ? 4 : n), left = piece < n - at ? piece : n - at;
        const char *from = bytes + at;
        at += left;
        for (enum sse_status status; (status = sse_next(&sse, &from, &left, &event)) != SSE_MORE;) {
            assert(status == SSE_EVENT);
            put(&raw, event.raw.data, event.raw.bytes);
            if (!event.has_data)
                continue;
            put(out, event.type.data, event.type.bytes);
            put(out, "\x1f", 1);
            put(out, event.data.data, event.data.bytes);
            put(out, "\x1e", 1);
        }
    }
    for (enum sse_status status; (status = sse_end(&sse, &event)) != SSE_MORE;) {
        put(&raw, event.raw.data, event.raw.bytes);
        if (status != SSE_EVENT || !event.has_data)
            continue;
        put(out, event.type.data, event.type.bytes);
        put(out, "\x1f", 1);
        put(out, event.data.data, event.data.bytes);
        put(out, "\x1e", 1);
    }
    if (raw.bytes != n - 4 || (n > 4 && memcmp(raw.data, bytes + 4, n - 4) != 0))
        put(out, "!", 1);
    free(raw.data);
    sse_fini(&sse);
}

static void answer_one(int letter, const char *bytes, size_t n, struct out *out)
{
    static const char letters[] = "CPERM";
    const char *kind = strchr(letters, letter);
    if (letter == 'J')
        answer_json_text(bytes, n, out);
    else if (letter == 'S')
        answer_stream(bytes, n, out);
    else if (kind)
        answer_keys((enum ask_kind)(kind - letters), bytes, n, out);
}

int main(void)
{
    struct out out = {.data = NULL};
    unsigned char head[5];
    assert(canonical_create(&canonical, NULL) == 0);
    while (fread(head, 1, 5, stdin) == 5) {
        size_t n = head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16 | (size_t)head[4] << 24;
        char *bytes = malloc(n ? n : 1); /* just as many, so that a sanitizer sees one read too many */
        assert(bytes && fread(bytes, 1, n, stdin) == n);
        out.bytes = 0;
        if (head[0] == 'F') {
            fflush(stdout);
            free(bytes);
            continue;
        }
        answer_one(head[0], bytes, n, &out);
        free(bytes);
        unsigned char length[4] = {(unsigned char)out.bytes, (unsigned char)(out.bytes >> 8),
                                   (unsigned char)(out.bytes >> 16), (unsigned char)(out.bytes >> 24)};
        fwrite(length, 1, 4, stdout);
        fwrite(out.data, 1, out.bytes, stdout);
    }
    free(out.data);
    canonical_destroy(canonical);
    ask_fini(&ask);
    strict_fini(&json);
    return 0;
}
