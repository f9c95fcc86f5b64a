/*
 * sse.c - cuts a stream of bytes at the empty lines between events, and reads the lines of an event.
 *
 * Cutting looks at line ends alone and holds an incomplete event's bytes until its end has come; an event that arrives
 * whole is not copied. Reading follows the algorithm of WHATWG HTML, 9.2.6: a colon at the beginning is a comment, one
 * blank behind the colon is dropped, `data` lines are joined by line feeds, unknown fields are ignored, and an event
 * without a `data` line is not dispatched. A byte-order mark at the very beginning of a stream is passed on and
 * skipped.
 * Invariants: `held` is a prefix of an event, without its end; with `cut` set nothing is held. What a call gives lies
 * in `held`, in the caller's bytes, or in `joined`, and is forgotten by the next call.
 */
#include "gateway/text/sse.h"
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { HELD_KEPT = 2048 }; /* bytes of memory that stay between events; more is given back */

enum { STATE_LINE_BEGIN, STATE_IN_LINE, STATE_LINE_CR, STATE_EVENT_CR };

void sse_init(struct sse *sse, size_t event_bytes_max)
{
    *sse = (struct sse){.event_bytes_max = event_bytes_max};
}

void sse_fini(struct sse *sse)
{
    free(sse->held);
    free(sse->joined);
    *sse = (struct sse){.event_bytes_max = sse->event_bytes_max};
}

static void give_back_joined(struct sse *sse)
{
    if (sse->joined_capacity > HELD_KEPT) {
        free(sse->joined);
        sse->joined = NULL;
        sse->joined_capacity = 0;
    }
}

/* ---- reading an event ---- */

/* The line at `at`, without its end; *next is where the next one begins. */
static struct strict_text line_at(struct strict_text raw, size_t at, size_t *next)
{
    size_t end = at;
    while (end < raw.bytes && raw.data[end] != '\n' && raw.data[end] != '\r')
        end++;
    *next = end + (end < raw.bytes);
    if (end + 1 < raw.bytes && raw.data[end] == '\r' && raw.data[end + 1] == '\n')
        *next = end + 2;
    return (struct strict_text){raw.data + at, end - at};
}

/* Whether a line is of this field; *value is what it says. */
static bool field_of(struct strict_text line, const char *name, struct strict_text *value)
{
    size_t n = strlen(name);
    if (line.bytes < n || memcmp(line.data, name, n) != 0 || (line.bytes > n && line.data[n] != ':'))
        return false;
    size_t skip = line.bytes > n ? n + 1 : n;
    skip += line.bytes > skip && line.data[skip] == ' ';
    *value = (struct strict_text){line.data + skip, line.bytes - skip};
    return true;
}

static size_t mark_bytes(struct strict_text raw)
{
    return raw.bytes >= 3 && memcmp(raw.data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static void read_lines(struct sse_event *event, size_t begin)
{
    struct strict_text value;
    event->begin = begin;
    for (size_t at = begin, next; at < event->raw.bytes; at = next) {
        struct strict_text line = line_at(event->raw, at, &next);
        if (field_of(line, "data", &value)) {
            event->has_data = true;
            event->data_lines++;
            event->data = value;
        } else if (field_of(line, "event", &value)) {
            event->type = value;
        } else if (field_of(line, "error", &value)) {
            event->error = value;
        }
    }
}

/* Data of several lines, in memory of its own. */
static bool join_lines(struct sse *sse, struct sse_event *event)
{
    struct strict_text value;
    size_t n = 0;
    if (!array_reserve(&sse->joined, &sse->joined_capacity, event->raw.bytes))
        return false;
    for (size_t at = event->begin, next; at < event->raw.bytes; at = next)
        if (field_of(line_at(event->raw, at, &next), "data", &value)) {
            memcpy(sse->joined + n, value.data, value.bytes);
            n += value.bytes;
            sse->joined[n++] = '\n';
        }
    assert(n > 0 && n <= event->raw.bytes);
    event->data = (struct strict_text){sse->joined, n - 1};
    return true;
}

static bool read_event(struct sse *sse, struct strict_text raw, size_t begin, struct sse_event *event)
{
    *event = (struct sse_event){.raw = raw};
    read_lines(event, begin);
    return event->data_lines < 2 || join_lines(sse, event);
}

bool sse_read(struct sse *sse, struct strict_text raw, struct sse_event *event)
{
    give_back_joined(sse);
    return read_event(sse, raw, mark_bytes(raw), event);
}

size_t sse_place(const struct sse_event *event, size_t at)
{
    struct strict_text value;
    for (size_t line = event->begin, next; line < event->raw.bytes; line = next)
        if (field_of(line_at(event->raw, line, &next), "data", &value)) {
            if (at <= value.bytes)
                return (size_t)(value.data - event->raw.data) + at;
            at -= value.bytes + 1;
        }
    return event->raw.bytes;
}

/* ---- cutting the stream ---- */

/* The bytes up to and with the end of the event that is open; *ended: it is among them. An event whose last empty line
 * ended with \r ends before a byte that is no \n: then *ended with fewer bytes. */
static size_t find_end(struct sse *sse, const char *bytes, size_t n, bool *ended)
{
    *ended = false;
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        if (sse->state == STATE_EVENT_CR) {
            sse->state = STATE_LINE_BEGIN;
            *ended = true;
            return i + (c == '\n');
        }
        if (sse->state == STATE_LINE_CR) {
            sse->state = STATE_LINE_BEGIN;
            if (c == '\n')
                continue;
        }
        if (c == '\n' && sse->state == STATE_LINE_BEGIN) {
            *ended = true;
            return i + 1;
        }
        if (c == '\r')
            sse->state = sse->state == STATE_LINE_BEGIN ? STATE_EVENT_CR : STATE_LINE_CR;
        else
            sse->state = c == '\n' ? STATE_LINE_BEGIN : STATE_IN_LINE;
    }
    return n;
}

static bool hold(struct sse *sse, const char *bytes, size_t n)
{
    if (!array_reserve(&sse->held, &sse->held_capacity, sse->n_held + n))
        return false;
    memcpy(sse->held + sse->n_held, bytes, n);
    sse->n_held += n;
    return true;
}

/* What the last call gave is no longer needed. */
static void forget(struct sse *sse)
{
    if (!sse->given)
        return;
    sse->given = false;
    sse->n_held = 0;
    if (sse->held_capacity > HELD_KEPT) {
        free(sse->held);
        sse->held = NULL;
        sse->held_capacity = 0;
    }
    give_back_joined(sse);
}

static enum sse_status give_part(struct sse *sse, struct strict_text raw, const char *why, struct sse_event *event)
{
    *event = (struct sse_event){.raw = raw};
    sse->began = sse->given = true;
    sse->lost = sse->lost ? sse->lost : why;
    return SSE_PART;
}

static enum sse_status give_event(struct sse *sse, struct strict_text raw, struct sse_event *event)
{
    size_t begin = sse->began ? 0 : mark_bytes(raw);
    if (!read_event(sse, raw, begin, event))
        return give_part(sse, raw, "there was no memory for an event", event);
    sse->began = sse->given = true;
    return SSE_EVENT;
}

enum sse_status sse_next(struct sse *sse, const char **bytes, size_t *n, struct sse_event *event)
{
    static const char too_long[] = "an event is longer than the limit";
    bool ended;
    forget(sse);
    if (*n == 0)
        return SSE_MORE;
    uint8_t state = sse->state;
    size_t taken = find_end(sse, *bytes, *n, &ended);
    struct strict_text here = {*bytes, taken};
    const char *why = sse->n_held + taken > sse->event_bytes_max ? too_long : NULL;
    if (!sse->cut && !why && (!ended || sse->n_held > 0) && !hold(sse, *bytes, taken))
        why = "there was no memory for an event";
    if (!sse->cut && why && sse->n_held > 0) {
        /* what is held goes first, the bytes at hand with the next call */
        sse->cut = true;
        sse->state = state;
        return give_part(sse, (struct strict_text){sse->held, sse->n_held}, why, event);
    }
    *bytes += taken;
    *n -= taken;
    if (sse->cut || why) {
        sse->cut = !ended;
        return give_part(sse, here, why ? why : too_long, event);
    }
    if (!ended)
        return SSE_MORE;
    return give_event(sse, sse->n_held > 0 ? (struct strict_text){sse->held, sse->n_held} : here, event);
}

enum sse_status sse_end(struct sse *sse, struct sse_event *event)
{
    bool whole = sse->state == STATE_EVENT_CR;
    forget(sse);
    if (sse->n_held == 0)
        return SSE_MORE;
    struct strict_text raw = {sse->held, sse->n_held};
    sse->state = STATE_LINE_BEGIN;
    return whole ? give_event(sse, raw, event) : give_part(sse, raw, "the stream ended within an event", event);
}
