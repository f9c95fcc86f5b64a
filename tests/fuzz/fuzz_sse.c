/*
 * fuzz_sse.c - any bytes as a stream of events, cut at any places.
 *
 * The first byte is the limit of an event, the second a seed of the places where the stream is cut. The events and the
 * parts are those of the stream given at once; together they are the stream; none is over the limit. An event alone
 * reads as it did in the stream, and each byte of its data stands at the place that sse_place tells.
 */
#include "gateway/text/sse.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 14 };

static void require(bool right)
{
    if (!right)
        abort();
}

/* What came of a stream. */
struct story {
    char *raw, *told; /* all bytes; of each whole event its lengths, type and data, of parts in a row one mark */
    size_t raw_bytes, told_bytes;
    bool in_part, first;
};

static void tell(struct story *story, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(story->told + story->told_bytes, bytes, n);
    story->told_bytes += n;
}

static void check_event(const struct sse_event *event, bool first)
{
    struct sse alone;
    struct sse_event again;
    sse_init(&alone, 1);
    bool marked = event->raw.bytes >= 3 && memcmp(event->raw.data, "\xef\xbb\xbf", 3) == 0;
    require(sse_read(&alone, event->raw, &again));
    if (first || !marked) {
        require(again.has_data == event->has_data && again.data.bytes == event->data.bytes);
        require(again.data.bytes == 0 || memcmp(again.data.data, event->data.data, again.data.bytes) == 0);
    }
    for (size_t i = 0; event->has_data && i < event->data.bytes; i++)
        if (event->data.data[i] != '\n')
            require(event->raw.data[sse_place(event, i)] == event->data.data[i]);
    sse_fini(&alone);
}

static void add(struct story *story, enum sse_status status, const struct sse_event *event, size_t limit)
{
    if (event->raw.bytes > 0)
        memcpy(story->raw + story->raw_bytes, event->raw.data, event->raw.bytes);
    story->raw_bytes += event->raw.bytes;
    if (status == SSE_PART) {
        if (!story->in_part)
            tell(story, "~", 1);
        story->in_part = true;
        story->first = false;
        return;
    }
    require(event->raw.bytes > 0 && event->raw.bytes <= limit);
    check_event(event, story->first);
    story->first = story->in_part = false;
    tell(story, event->has_data ? "D" : "C", 1);
    tell(story, &event->raw.bytes, sizeof event->raw.bytes);
    tell(story, event->type.data, event->type.bytes);
    tell(story, event->error.data, event->error.bytes);
    tell(story, event->data.data, event->data.bytes);
}

/* `seed` 0: all at once. Parts in a row may be of two events; that is the same however the stream is cut. */
static struct story run(const char *bytes, size_t n, size_t limit, unsigned seed)
{
    struct story story = {.raw = malloc(n + 1), .told = malloc(12 * n + 64), .first = true};
    struct sse sse;
    struct sse_event event;
    enum sse_status status;
    require(story.raw && story.told);
    sse_init(&sse, limit);
    for (size_t at = 0; at < n;) {
        size_t piece = seed ? 1 + (size_t)rand_r(&seed) % 9 : n;
        const char *from = bytes + at;
        piece = piece < n - at ? piece : n - at;
        at += piece;
        while ((status = sse_next(&sse, &from, &piece, &event)) != SSE_MORE)
            add(&story, status, &event, limit);
        require(piece == 0 && sse.n_held <= limit);
    }
    while ((status = sse_end(&sse, &event)) != SSE_MORE)
        add(&story, status, &event, limit);
    sse_fini(&sse);
    require(story.raw_bytes == n && memcmp(story.raw, bytes, n) == 0);
    return story;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > INPUT_BYTES_MAX)
        return 0;
    const char *bytes = (const char *)data + 2;
    size_t limit = data[0] < 128 ? 1u + data[0] : INPUT_BYTES_MAX;
    struct story whole = run(bytes, size - 2, limit, 0), cut = run(bytes, size - 2, limit, 1u + data[1]);
    require(whole.told_bytes == cut.told_bytes && memcmp(whole.told, cut.told, cut.told_bytes) == 0);
    free(whole.raw);
    free(whole.told);
    free(cut.raw);
    free(cut.told);
    return 0;
}
