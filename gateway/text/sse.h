/*
 * sse.h - a stream of server-sent events (WHATWG HTML, "Server-sent events"), cut at the borders of its events.
 *
 *     while ((status = sse_next(&sse, &bytes, &n, &event)) != SSE_MORE)
 *         ...; // event.raw is what came, to be passed on
 *     ...
 *     while (sse_end(&sse, &event) != SSE_MORE)
 *         ...
 *
 * Every byte of the stream is in the `raw` of exactly one event or part, in order: who writes all of them has passed
 * the stream on unchanged. Where the bytes were parted on their way makes no difference to the events. An event that is
 * longer than the limit comes in parts, unread: it can be passed on and not be kept.
 *
 * An event ends with an empty line; lines end with \n, \r\n or \r. After an empty line that ended with \r the event is
 * given when the next byte has come, because that may be its \n (or by sse_end).
 */
#ifndef QUIRE_GATEWAY_TEXT_SSE_H
#define QUIRE_GATEWAY_TEXT_SSE_H

#include "gateway/text/strict.h"

enum sse_status {
    SSE_MORE,  /* all bytes are taken */
    SSE_EVENT, /* a whole event */
    SSE_PART   /* some bytes of an event that is over the limit, or that never ended: `raw` alone is filled */
};

/* Texts are valid until the next call. */
struct sse_event {
    struct strict_text raw;   /* with the empty line that ends it */
    bool has_data;            /* false: comments, keep-alives, empty lines; not dispatched by clients */
    struct strict_text data;  /* lines of `data` joined by \n */
    struct strict_text type;  /* the last line of `event`; data NULL: none */
    struct strict_text error; /* the last line of `error`, a field that llama.cpp sends in place of data; NULL: none */
    uint32_t data_lines;
    size_t begin; /* of the lines in raw: behind a byte-order mark */
};

/* Memory: nothing between events; while an event is incomplete, its bytes. */
struct sse {
    size_t event_bytes_max;
    char *held; /* of the event that is incomplete */
    size_t n_held, held_capacity;
    char *joined; /* data of more than one line */
    size_t joined_capacity;
    uint8_t state;
    bool began, given, cut;
    const char *lost; /* not NULL: an event came in parts, and why; static storage */
};

void sse_init(struct sse *sse, size_t event_bytes_max);
void sse_fini(struct sse *sse);
/* Takes from *bytes, moves it and *n on. Without memory an event comes in parts, so this never fails. */
enum sse_status sse_next(struct sse *sse, const char **bytes, size_t *n, struct sse_event *event);
/* What is left when the stream has ended: at most one event, or one part of an event without an end. */
enum sse_status sse_end(struct sse *sse, struct sse_event *event);

/* An event that is whole and alone in `raw`, as sse_next gave it. False: no memory for lines that must be joined. */
bool sse_read(struct sse *sse, struct strict_text raw, struct sse_event *event);
/* The place in event->raw of byte `at` of event->data. */
size_t sse_place(const struct sse_event *event, size_t at);

#endif
