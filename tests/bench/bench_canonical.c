/*
 * bench_canonical.c - what the gateway's reading costs: microseconds for the keys of a body, for an event of a stream,
 * and for an answer that is given again.
 *
 *   bench_canonical
 *
 * It checks nothing; docs/performance.md has its output.
 */
#include "gateway/text/answer.h"
#include "gateway/text/canonical.h"
#include "gateway/text/onward.h"
#include "gateway/text/replay.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static struct strict json;
static struct ask ask;
static struct canonical *canonical;
static struct replay replay;

/* A chat of about `bytes` bytes, as SDKs send it; `escaped`: with \u for what is not ASCII. */
static size_t body_of(char *out, size_t bytes, bool escaped)
{
    const char *sentence = escaped ? "Die Br\\u00fccke \\u00fcber den Flu\\u00df ist\\n geschlossen. "
                                   : "The bridge over the river is \\\"closed\\\" until\\n Monday morning. ";
    size_t n = (size_t)sprintf(out, "{\"model\":\"gpt-4o-mini\",\"temperature\":0.7,\"max_tokens\":512,\"messages\":[{"
                                    "\"role\":\"system\",\"content\":\"");
    while (n + 200 < bytes)
        n += (size_t)sprintf(out + n, "%s", sentence);
    return n + (size_t)sprintf(out + n, "\"},{\"role\":\"user\",\"content\":\"What is closed?\"}],\"top_p\":1,"
                                        "\"stream\":true,\"user\":\"u-1\"}");
}

static void measure_keys(size_t bytes, bool escaped)
{
    const struct canonical_options options = {.path = "/v1/chat/completions", .upstream = "main"};
    struct canonical_keys keys = {.hash = {0}};
    char *body = malloc(bytes + 512);
    if (!body)
        return;
    size_t n = body_of(body, bytes, escaped);
    unsigned rounds = (unsigned)((40u << 20) / n) + 1, sum = 0;
    double from = now_us(), read = 0;
    for (unsigned i = 0; i < rounds; i++)
        sum += (unsigned)strict_read(&json, body, n, NULL);
    read = (now_us() - from) / rounds;
    from = now_us();
    for (unsigned i = 0; i < rounds; i++) {
        sum += (unsigned)strict_read(&json, body, n, NULL);
        sum += (unsigned)ask_read(&ask, ASK_CHAT, &json, NULL);
        sum += (unsigned)canonical_keys(canonical, &ask, &options, &keys, NULL);
    }
    printf("keys of a body of %zu bytes%s: %.2f us, %.2f of it reading%s\n", n, escaped ? " with \\u" : "",
           (now_us() - from) / rounds, read, sum ? " FAILED" : "");
    free(body);
}

/* A body of 1 MiB that is a list of one thing. */
static void measure_list(const char *element)
{
    enum { N = 1 << 20, ROUNDS = 5 };
    char *body = malloc(N + 64);
    const struct canonical_options options = {.path = "/v1/completions", .upstream = "main"};
    struct canonical_keys keys;
    double least = 0;
    int rc = 0;
    if (!body)
        return;
    size_t n = (size_t)sprintf(body, "{\"model\":\"e\",\"prompt\":\"p\",\"x\":[%s", element);
    while (n + strlen(element) + 4 < N)
        n += (size_t)sprintf(body + n, ",%s", element);
    n += (size_t)sprintf(body + n, "]}");
    json.nodes_max = 65536; /* as the gateway has it */
    for (int i = 0; i < ROUNDS; i++) {
        double from = now_us();
        rc = strict_read(&json, body, n, NULL);
        rc = rc ? rc : ask_read(&ask, ASK_COMPLETIONS, &json, NULL);
        rc = rc ? rc : canonical_keys(canonical, &ask, &options, &keys, NULL);
        least = i == 0 || now_us() - from < least ? now_us() - from : least;
    }
    printf("a body of %zu bytes, a list of %s: %.0f us, %zu bytes of memory%s\n", n, element, least,
           json.nodes_capacity * sizeof *json.nodes, rc ? ", refused" : "");
    json.nodes_max = 0;
    free(body);
}

#define CHUNK                                                                                                          \
    "data: {\"id\":\"chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012\",\"object\":\"chat.completion.chunk\",\"created\":"       \
    "1700000000,\"model\":\"gpt-4o-mini-2024-07-18\",\"service_tier\":\"default\",\"system_fingerprint\":"             \
    "\"fp_0123456789\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,"                 \
    "\"finish_reason\":null}],\"usage\":null}\n\n"

static void measure_events(void)
{
    enum { EVENTS = 1000, ROUNDS = 200 };
    const size_t one = sizeof CHUNK - 1, n = EVENTS * one;
    const struct answer_options options = {.kind = ASK_CHAT};
    const struct replay_options again = {.kind = ASK_CHAT, .now_s = 1900000000, .seed = {1}};
    struct answer answer;
    struct sse sse;
    struct sse_event event;
    char *stream = malloc(n);
    unsigned sum = 0;
    if (!stream)
        return;
    for (size_t i = 0; i < EVENTS; i++)
        memcpy(stream + i * one, CHUNK, one);
    double from = now_us();
    for (int r = 0; r < ROUNDS; r++) {
        sse_init(&sse, 1 << 20);
        answer_begin(&answer, &options, &json);
        const char *at = stream;
        size_t left = n;
        while (sse_next(&sse, &at, &left, &event) == SSE_EVENT)
            sum += answer_event(&answer, &event);
        sse_fini(&sse);
    }
    printf("an event of %zu bytes cut and judged: %.2f us\n", one, (now_us() - from) / ROUNDS / EVENTS);
    from = now_us();
    for (int r = 0; r < ROUNDS; r++)
        for (size_t i = 0; i < EVENTS; i++)
            sum += replay_event(&replay, &again, stream + i * one, one);
    printf("an event of %zu bytes given again: %.2f us (%u)\n", one, (now_us() - from) / ROUNDS / EVENTS, sum);
    free(stream);
}

int main(void)
{
    static const size_t sizes[] = {512, 2048, 16384, 1048576};
    if (canonical_create(&canonical, NULL) < 0)
        return 1;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        measure_keys(sizes[i], false);
        measure_keys(sizes[i], true);
    }
    static const char *const lists[] = {"1",    "10", "0.5",       "-1.25e-3",   "15339",
                                        "\"\"", "[]", "{\"a\":1}", "\"\\u00e9\""};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        measure_list(lists[i]);
    measure_events();
    canonical_destroy(canonical);
    replay_fini(&replay);
    ask_fini(&ask);
    strict_fini(&json);
    return 0;
}
