/*
 * module_reply.c - a reply that a handler has written, in the engine's terms.
 *
 * Handlers build RESP2 or RESP3 (server/protocol/resp.h), as the client's connection speaks. The engine has no function
 * that takes it as it is, so it is read once, value by value, and each is given to the function for its kind. Where the
 * reply names the collection, which the store knows by its id, the client gets the key that it asked for.
 */
#include "module/module_priv.h"
#include "server/protocol/resp.h"
#include <stdlib.h>
#include <string.h>

struct reading {
    struct rm_ctx *ctx;
    const char *at, *end;
    const char *name, *own; /* NULL: none */
    size_t own_bytes;
};

/* The line at `at`, without its end, as a text of its own; the next one begins behind it. NULL: there is no whole one,
 * or it is longer than any that is written. */
static const char *take_line(struct reading *r, char *line, size_t capacity)
{
    const char *end = memchr(r->at, '\r', (size_t)(r->end - r->at));
    size_t n = end ? (size_t)(end - r->at) : capacity;
    if (n >= capacity || end + 1 >= r->end || end[1] != '\n')
        return NULL;
    memcpy(line, r->at, n);
    line[n] = 0;
    r->at = end + 2;
    return line;
}

/* The text of an error, in which the collection's name gives way to the client's. */
static void send_error(const struct reading *r, const char *text)
{
    const char *found = r->name ? strstr(text, r->name) : NULL;
    char told[2048];
    if (!found) {
        rm.reply_error(r->ctx, text);
        return;
    }
    size_t own = r->own_bytes < 64 ? r->own_bytes : 64;
    int n = snprintf(told, sizeof told, "%.*s%.*s%s", (int)(found - text), text, (int)own, r->own,
                     found + MODULE_NAME_BYTES);
    for (int i = 0; i < n && i < (int)sizeof told - 1; i++)
        if ((unsigned char)told[i] < 0x20)
            told[i] = '?';
    rm.reply_error(r->ctx, told);
}

static void send_bulk(const struct reading *r, const char *bytes, size_t n)
{
    if (r->name && n == MODULE_NAME_BYTES && memcmp(bytes, r->name, n) == 0)
        rm.reply_bulk(r->ctx, r->own, r->own_bytes);
    else
        rm.reply_bulk(r->ctx, bytes, n);
}

/* A bulk, or (RESP3) a text with its format before it. */
static bool send_bytes(struct reading *r, char kind, long long n)
{
    if (n < 0) {
        rm.reply_null(r->ctx);
        return true;
    }
    if (r->end - r->at < 2 || n > r->end - r->at - 2 || r->at[n] != '\r')
        return false;
    if (kind == '$')
        send_bulk(r, r->at, (size_t)n);
    else if (n >= 4)
        rm.reply_verbatim(r->ctx, r->at + 4, (size_t)n - 4);
    else
        return false;
    r->at += n + 2;
    return true;
}

static bool send_many(struct reading *r, char kind, long long n, uint64_t *left)
{
    if (n < 0) {
        rm.reply_null_array(r->ctx);
        return true;
    }
    if (kind == '%')
        rm.reply_map(r->ctx, (long)n);
    else if (kind == '~')
        rm.reply_set(r->ctx, (long)n);
    else
        rm.reply_array(r->ctx, (long)n);
    *left += (uint64_t)n * (kind == '%' ? 2 : 1);
    return true;
}

/* One value; of one that has others in it, only how many: they are *left to be sent. */
static bool send_value(struct reading *r, uint64_t *left)
{
    char line[1200];
    char kind = *r->at++;
    const char *text = take_line(r, line, sizeof line);
    if (!text)
        return false;
    switch (kind) {
    case '+':
        rm.reply_simple(r->ctx, text);
        return true;
    case '-':
        send_error(r, text);
        return true;
    case ':':
        rm.reply_integer(r->ctx, strtoll(text, NULL, 10));
        return true;
    case '_':
        rm.reply_null(r->ctx);
        return true;
    case '#':
        rm.reply_bool(r->ctx, text[0] == 't');
        return true;
    case ',':
        rm.reply_double(r->ctx, strtod(text, NULL));
        return true;
    case '$':
    case '=':
        return send_bytes(r, kind, strtoll(text, NULL, 10));
    case '*':
    case '%':
    case '~':
        return send_many(r, kind, strtoll(text, NULL, 10), left);
    default:
        return false;
    }
}

bool module_reply_send(struct rm_ctx *ctx, const struct resp_buffer *reply, const char *name, const char *own,
                       size_t own_bytes)
{
    struct reading r = {.ctx = ctx,
                        .at = (const char *)reply->data,
                        .end = (const char *)reply->data + reply->bytes,
                        .name = own ? name : NULL,
                        .own = own,
                        .own_bytes = own_bytes};
    uint64_t left = 1;
    while (left > 0) {
        left--;
        if (r.at >= r.end || !send_value(&r, &left))
            return false;
    }
    return r.at == r.end;
}
