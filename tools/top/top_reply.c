/*
 * top_reply.c - RESP2 as a client reads it: three of its types, for the three commands that are sent.
 *
 * Nothing is kept between calls: what is not whole is parsed again from its beginning when more has come. Each length
 * is held against its limit before a byte behind it is looked at, so what answers on a wrong port (HTTP, a flood) costs
 * one line at most.
 */
#include "tools/top/top_reply.h"
#include <stdbool.h>
#include <string.h>

/* Digits only, or "-1". */
static bool read_length(const char *text, size_t bytes, long *out)
{
    long value = 0;
    if (bytes == 2 && memcmp(text, "-1", 2) == 0) {
        *out = -1;
        return true;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || value > (long)TOP_REPLY_BYTES_MAX)
            return false;
        value = value * 10 + (text[i] - '0');
    }
    *out = value;
    return bytes > 0 && value <= (long)TOP_REPLY_BYTES_MAX;
}

static enum top_reply_status parse_text(const char *bytes, size_t n, size_t at, long length, struct top_reply *out,
                                        size_t *consumed)
{
    if (length < 0) {
        *out = (struct top_reply){'$', NULL, 0};
        *consumed = at;
        return TOP_REPLY_DONE;
    }
    if (n - at < (size_t)length + 2)
        return TOP_REPLY_MORE;
    if (memcmp(bytes + at + length, "\r\n", 2) != 0)
        return TOP_REPLY_BROKEN;
    *out = (struct top_reply){'$', bytes + at, (size_t)length};
    *consumed = at + (size_t)length + 2;
    return TOP_REPLY_DONE;
}

enum top_reply_status top_reply_parse(const char *bytes, size_t n, struct top_reply *out, size_t *consumed)
{
    long length;
    if (n == 0)
        return TOP_REPLY_MORE;
    if (!memchr("+-$", bytes[0], 3))
        return TOP_REPLY_BROKEN;
    const char *end = memchr(bytes, '\n', n < TOP_REPLY_LINE_MAX ? n : TOP_REPLY_LINE_MAX);
    if (!end)
        return n < TOP_REPLY_LINE_MAX ? TOP_REPLY_MORE : TOP_REPLY_BROKEN;
    size_t line = (size_t)(end - bytes); /* with the type, and the \r */
    if (line < 2 || end[-1] != '\r')
        return TOP_REPLY_BROKEN;
    if (bytes[0] == '$')
        return read_length(bytes + 1, line - 2, &length) ? parse_text(bytes, n, line + 1, length, out, consumed)
                                                         : TOP_REPLY_BROKEN;
    *out = (struct top_reply){bytes[0], bytes + 1, line - 2};
    *consumed = line + 1;
    return TOP_REPLY_DONE;
}
