/*
 * fuzz_answer.c - any bytes as an answer, and given again.
 *
 * The first byte chooses route, stream or body, and how it is replayed. An answer is kept if and only if there is no
 * reason against it; a stream that is kept is not if its last event is missing. Replayed it has as many bytes, and is
 * judged the same; replayed with the same ids it is the same, but for tokens that become 0. What it says is no longer
 * than it is.
 */
#include "gateway/text/answer.h"
#include "gateway/text/answer_texts.h"
#include "gateway/text/replay.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 14 };

static struct strict json;
static struct replay replay;

static void require(bool right)
{
    if (!right)
        abort();
}

/* Replays in place each event that it judges. *last: where the event begins that ends the answer; some servers send
 * [DONE] twice, and then it is the first. */
static enum answer_verdict judge(struct answer *answer, const struct answer_options *options, char *bytes, size_t n,
                                 const struct replay_options *again, size_t *last)
{
    struct sse sse;
    struct sse_event event;
    enum sse_status status;
    const char *from = bytes;
    size_t left = n;
    *last = n;
    answer_begin(answer, options, &json);
    sse_init(&sse, INPUT_BYTES_MAX);
    while ((status = sse_next(&sse, &from, &left, &event)) != SSE_MORE) {
        require(status == SSE_EVENT);
        unsigned seen = answer_event(answer, &event);
        require(!(seen & ANSWER_SEEN_COMMENT) == (event.has_data || event.error.data));
        require(!(seen & ANSWER_SEEN_ERROR) || (answer->error_status >= 400 && answer->error_status < 600));
        if (seen & ANSWER_SEEN_LAST && *last == n)
            *last = (size_t)(event.raw.data - bytes);
        if (again)
            replay_event(&replay, again, bytes + (event.raw.data - bytes), event.raw.bytes);
    }
    while (sse_end(&sse, &event) != SSE_MORE)
        answer_part(answer);
    sse_fini(&sse);
    return answer_end(answer);
}

static void check_stream(const struct answer_options *options, const struct replay_options *again, char *bytes,
                         size_t n)
{
    struct answer answer;
    size_t last = 0, other = 0;
    char *copy = malloc(n ? n : 1);
    require(copy != NULL);
    memcpy(copy, bytes, n);
    enum answer_verdict verdict = judge(&answer, options, bytes, n, NULL, &last);
    require((verdict == ANSWER_KEEP) == (answer.refused == NULL));
    /* ended with \r, the last event may still be in the splitter when the stream ends, which is judged as a part */
    require(judge(&answer, options, copy, n, again, &other) == verdict);
    require(judge(&answer, options, copy, n, NULL, &other) == verdict && other == last);
    if (verdict == ANSWER_KEEP)
        require(judge(&answer, options, bytes, last, NULL, &other) == ANSWER_NOT);
    if (again->same && !again->zero_usage)
        require(memcmp(copy, bytes, n) == 0);
    free(copy);
}

static void check_body(const struct answer_options *options, const struct replay_options *again, char *bytes, size_t n)
{
    struct answer answer;
    answer_begin(&answer, options, &json);
    enum answer_verdict verdict = answer_json(&answer, bytes, n);
    require((verdict == ANSWER_KEEP) == (answer.refused == NULL));
    struct answer_place place = {0};
    for (uint32_t i = 0; verdict == ANSWER_KEEP && options->kind == ASK_EMBEDDINGS && i < 3; i++) {
        struct strict_text vector = answer_vector(&answer, &place);
        require(vector.data || i > 0);
        require(!vector.data || (vector.data > bytes && vector.data + vector.bytes < bytes + n));
    }
    replay_json(&replay, again, bytes, n);
    answer_begin(&answer, options, &json);
    require(answer_json(&answer, bytes, n) == verdict);
}

static void check_texts(enum ask_kind kind, const char *bytes, size_t n, bool events)
{
    struct answer_texts texts;
    size_t sum = 0;
    require(answer_texts_read(&texts, kind, bytes, n, events) == 0);
    for (size_t i = 0; i < texts.n; i++) {
        require(texts.items[i].text.bytes > 0 && texts.items[i].text.data == texts.bytes + sum);
        sum += texts.items[i].text.bytes;
    }
    require(sum <= n);
    answer_texts_fini(&texts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > INPUT_BYTES_MAX)
        return 0;
    const struct answer_options options = {.kind = (enum ask_kind)(data[0] % 5), .tools = data[0] & 0x80};
    const struct replay_options again = {.kind = options.kind,
                                         .same = data[0] & 0x20,
                                         .zero_usage = data[0] & 0x10,
                                         .now_s = 1900000000,
                                         .seed = {data[0], 2, 3, 4, 5}};
    char *bytes = malloc(size);
    require(bytes != NULL);
    memcpy(bytes, data + 1, size - 1);
    check_texts(options.kind, bytes, size - 1, !(data[0] & 0x40));
    if (data[0] & 0x40)
        check_body(&options, &again, bytes, size - 1);
    else
        check_stream(&options, &again, bytes, size - 1);
    free(bytes);
    return 0;
}
