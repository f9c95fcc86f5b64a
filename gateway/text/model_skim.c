/*
 * model_skim.c - a machine of a few states: names and values of the first level, all else skipped by its quotes and
 * brackets.
 *
 * A name with an escape in it is not taken for "model": whoever writes it so is answered by the upstream.
 */
#include "gateway/text/model_skim.h"
#include <string.h>

enum state { BEGIN, NAME, IN_NAME, COLON, VALUE, IN_MODEL, IN_STRING, NESTED, SCALAR, AFTER, FOUND, NONE };

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void take(struct model_skim *skim, char c)
{
    if (skim->value_used < sizeof skim->value)
        skim->value[skim->value_used] = c;
    skim->value_used++;
}

/* A string's next byte; true: it was its end. */
static bool ends_string(struct model_skim *skim, char c)
{
    if (skim->escaped) {
        skim->escaped = false;
        return false;
    }
    skim->escaped = c == '\\';
    return c == '"';
}

static enum state begin_value(struct model_skim *skim, char c)
{
    if (is_blank(c))
        return VALUE;
    if (c == '"' && skim->is_model) {
        skim->value_at = skim->at;
        skim->value_used = 0;
        take(skim, c);
        return IN_MODEL;
    }
    if (skim->is_model)
        return NONE; /* it is no text */
    if (c == '{' || c == '[')
        skim->depth = 1;
    return c == '"' ? IN_STRING : c == '{' || c == '[' ? NESTED : SCALAR;
}

static enum state end_name(struct model_skim *skim)
{
    skim->is_model = skim->value_used == 7 && memcmp(skim->value, "\"model\"", 7) == 0;
    return COLON;
}

static enum state end_model(struct model_skim *skim)
{
    skim->value_bytes = skim->value_used;
    return skim->value_used <= sizeof skim->value ? FOUND : NONE;
}

static enum state nested(struct model_skim *skim, char c)
{
    if (c == '"')
        return IN_STRING;
    skim->depth += c == '{' || c == '[';
    skim->depth -= c == '}' || c == ']';
    return skim->depth == 0 ? AFTER : NESTED;
}

/* The state after this byte. */
static enum state step(struct model_skim *skim, char c)
{
    switch ((enum state)skim->state) {
    case BEGIN:
        return is_blank(c) ? BEGIN : c == '{' ? NAME : NONE;
    case NAME:
        skim->value_used = 0;
        take(skim, c);
        return is_blank(c) ? NAME : c == '"' ? IN_NAME : NONE;
    case IN_NAME:
        take(skim, c);
        return ends_string(skim, c) ? end_name(skim) : IN_NAME;
    case COLON:
        return is_blank(c) ? COLON : c == ':' ? VALUE : NONE;
    case VALUE:
        return begin_value(skim, c);
    case IN_MODEL:
        take(skim, c);
        return ends_string(skim, c) ? end_model(skim) : IN_MODEL;
    case IN_STRING:
        return !ends_string(skim, c) ? IN_STRING : skim->depth > 0 ? NESTED : AFTER;
    case NESTED:
        return nested(skim, c);
    case SCALAR:
    case AFTER:
        return c == ',' ? NAME : c == '}' ? NONE : skim->state == SCALAR || is_blank(c) ? skim->state : NONE;
    case FOUND:
    case NONE:
        break;
    }
    return skim->state;
}

/* Bytes of a string that is skipped, up to one that may end it. */
static size_t plain_bytes(const char *bytes, size_t n)
{
    const char *quote = memchr(bytes, '"', n);
    const char *slash = memchr(bytes, '\\', quote ? (size_t)(quote - bytes) : n);
    return slash ? (size_t)(slash - bytes) : quote ? (size_t)(quote - bytes) : n;
}

enum model_skim_status model_skim_add(struct model_skim *skim, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && skim->state != FOUND && skim->state != NONE;) {
        size_t skip = skim->state == IN_STRING && !skim->escaped ? plain_bytes(bytes + i, n - i) : 0;
        if (skip == 0) {
            skim->state = step(skim, bytes[i]);
            skip = 1;
        }
        skim->at += skip;
        i += skip;
    }
    return skim->state == FOUND ? MODEL_SKIM_FOUND : skim->state == NONE ? MODEL_SKIM_NONE : MODEL_SKIM_MORE;
}
