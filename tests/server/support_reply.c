/*
 * support_reply.c - a reader of RESP replies that forgives nothing.
 *
 * It is written from the protocol's description and shares no line with protocol/resp.c, so that a writer's mistake is
 * not read back by the same mistake. Counts must agree with what follows, lines must end in \r\n, a null is only the
 * null of the description, a number has nothing behind it.
 */
#include "tests/server/support_reply.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DEPTH_MAX = 16 };

struct cursor {
    const uint8_t *at, *end;
};

/* A line without its \r\n, as a text of its own. */
static int read_line(struct cursor *c, char **out, size_t *bytes)
{
    const uint8_t *newline = memchr(c->at, '\n', (size_t)(c->end - c->at));
    if (!newline)
        return 0;
    *bytes = (size_t)(newline - c->at);
    if (*bytes == 0 || newline[-1] != '\r' || memchr(c->at, '\r', *bytes - 1))
        return -1;
    *out = strndup((const char *)c->at, --*bytes);
    assert_non_null(*out);
    c->at = newline + 1;
    return 1;
}

static int read_integer(struct cursor *c, long long *out)
{
    char *text, *end;
    size_t bytes;
    int rc = read_line(c, &text, &bytes);
    if (rc <= 0)
        return rc;
    *out = strtoll(text, &end, 10);
    rc = bytes > 0 && *end == 0 && strlen(text) == bytes && text[0] != '+' && text[0] != ' ' ? 1 : -1;
    free(text);
    return rc;
}

static int read_bulk(struct cursor *c, struct reply *out)
{
    long long bytes;
    int rc = read_integer(c, &bytes);
    if (rc <= 0)
        return rc;
    if (bytes < 0) {
        out->null = true;
        return bytes == -1 && out->type == '$' ? 1 : -1;
    }
    if (c->end - c->at < bytes + 2)
        return 0;
    if (c->at[bytes] != '\r' || c->at[bytes + 1] != '\n')
        return -1;
    out->bytes = (size_t)bytes;
    out->text = malloc(out->bytes + 1);
    assert_non_null(out->text);
    memcpy(out->text, c->at, out->bytes);
    out->text[out->bytes] = 0;
    c->at += bytes + 2;
    return out->type != '=' || (bytes >= 4 && out->text[3] == ':') ? 1 : -1;
}

static int read_any(struct cursor *c, struct reply *out, int depth);

static int read_items(struct cursor *c, struct reply *out, int depth)
{
    long long count;
    int rc = read_integer(c, &count);
    if (rc <= 0)
        return rc;
    if (count < 0) {
        out->null = true;
        return count == -1 && out->type == '*' ? 1 : -1;
    }
    size_t n = (size_t)count * (out->type == '%' ? 2 : 1);
    for (rc = 1; out->n < n && rc == 1; out->n++) {
        /* room doubles: at 0, 1, 2, 4, ... items it is full */
        if ((out->n & (out->n - 1)) == 0) {
            struct reply *bigger = realloc(out->items, (out->n ? 2 * out->n : 1) * sizeof *bigger);
            assert_non_null(bigger);
            out->items = bigger;
        }
        rc = read_any(c, &out->items[out->n], depth + 1);
    }
    return rc;
}

static int read_scalar(struct cursor *c, struct reply *out)
{
    char *end;
    int rc = read_line(c, &out->text, &out->bytes);
    if (rc <= 0 || out->type == '+' || out->type == '-')
        return rc;
    if (out->type == '_') {
        out->null = true;
        return out->bytes == 0 ? 1 : -1;
    }
    if (out->type == '#') {
        out->integer = out->text[0] == 't';
        return out->bytes == 1 && strchr("tf", out->text[0]) ? 1 : -1;
    }
    out->number = strtod(out->text, &end);
    return out->bytes > 0 && *end == 0 ? 1 : -1;
}

static int read_any(struct cursor *c, struct reply *out, int depth)
{
    memset(out, 0, sizeof *out);
    if (c->at == c->end)
        return 0;
    out->type = (char)*c->at++;
    switch (depth > DEPTH_MAX ? 0 : out->type) {
    case ':':
        return read_integer(c, &out->integer);
    case '$':
    case '=':
        return read_bulk(c, out);
    case '*':
    case '%':
    case '~':
        return read_items(c, out, depth);
    case '+':
    case '-':
    case ',':
    case '#':
    case '_':
        return read_scalar(c, out);
    default:
        return -1;
    }
}

int reply_read(const uint8_t *bytes, size_t n, struct reply *out, size_t *used)
{
    struct cursor c = {bytes, bytes + n};
    int rc = read_any(&c, out, 0);
    *used = (size_t)(c.at - bytes);
    if (rc <= 0)
        reply_free(out);
    return rc;
}

void reply_free(struct reply *reply)
{
    for (size_t i = 0; i < reply->n; i++)
        reply_free(&reply->items[i]);
    free(reply->items);
    free(reply->text);
    memset(reply, 0, sizeof *reply);
}

bool reply_is(const struct reply *reply, const char *text)
{
    return reply->text && reply->bytes == strlen(text) && memcmp(reply->text, text, reply->bytes) == 0;
}

const struct reply *reply_field(const struct reply *map, const char *name)
{
    assert_true((map->type == '*' || map->type == '%') && map->n % 2 == 0);
    for (size_t i = 0; i < map->n; i += 2)
        if (reply_is(&map->items[i], name))
            return &map->items[i + 1];
    return NULL;
}

double reply_number(const struct reply *reply)
{
    char *end;
    if (reply->type == ',')
        return reply->number;
    if (reply->type == ':')
        return (double)reply->integer;
    assert_non_null(reply->text);
    double number = strtod(reply->text, &end);
    if (reply->type != '$' || reply->bytes == 0 || *end)
        fail_msg("'%s' is not a number", reply->text);
    return number;
}

struct reply reply_of_buffer(const struct resp_buffer *out)
{
    struct reply reply;
    size_t used;
    assert_false(out->failed);
    int rc = reply_read(out->data, out->bytes, &reply, &used);
    if (rc != 1 || used != out->bytes)
        fail_msg("%zu bytes hold not exactly one reply (%d, %zu used): %.*s", out->bytes, rc, used,
                 (int)(out->bytes > 200 ? 200 : out->bytes), (const char *)out->data);
    return reply;
}
