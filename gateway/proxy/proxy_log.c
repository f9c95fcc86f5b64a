/*
 * proxy_log.c - the access log and the metrics of requests.
 *
 * A line has no credential and no text of a request or an answer, but the question where the setting log-texts asks for
 * it. The path is written without its query, which clients may put keys into.
 */
#include "gateway/proxy/proxy_log.h"
#include "gateway/http/http.h"
#include "gateway/telemetry/telemetry.h"
#include "gateway/telemetry/telemetry_log.h"
#include "io/clock.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUESTION_BYTES 8192u /* of a question that the log is to show */

static void count(struct telemetry *t, const struct http_request *r, const struct flow_end *end, uint64_t now)
{
    char labels[200], category[100];
    telemetry_escape(category, sizeof category, end->category);
    snprintf(labels, sizeof labels, "route=\"%s\",status=\"%d\",cache=\"%s\",category=\"%s\"", end->route,
             http_status(r), end->cache, category);
    telemetry_add(telemetry_counter(t, "quire_gateway_requests_total", "Requests answered", labels), 1);
    snprintf(labels, sizeof labels, "route=\"%s\",cache=\"%s\"", end->route, end->cache);
    if (http_first_byte_us(r) != 0)
        telemetry_observe(
            telemetry_histogram(t, "quire_gateway_first_byte_seconds", "Seconds until an answer's first byte", labels),
            http_first_byte_us(r) - http_began_us(r));
    telemetry_observe(telemetry_histogram(t, "quire_gateway_request_seconds", "Seconds until an answer's end", labels),
                      now - http_began_us(r));
    if (end->cache_us > 0)
        telemetry_observe(
            telemetry_histogram(t, "quire_gateway_cache_seconds", "Seconds of look-ups in the cache", labels),
            end->cache_us);
    if (end->embed_us > 0)
        telemetry_observe(
            telemetry_histogram(t, "quire_gateway_embed_seconds", "Seconds that requests waited for a vector", labels),
            end->embed_us);
    if (end->joined)
        telemetry_add(telemetry_counter(t, "quire_gateway_joined_total",
                                        "Requests that read the answer to the same one, which was under way", ""),
                      1);
    if (end->client_gone)
        telemetry_add(
            telemetry_counter(t, "quire_gateway_clients_gone_total", "Clients that left before their answer's end", ""),
            1);
    if (end->tokens_saved > 0)
        telemetry_add(telemetry_counter(t, "quire_gateway_tokens_saved_total",
                                        "Tokens of answers that no model was asked for", ""),
                      (int64_t)end->tokens_saved);
}

/* jansson takes UTF-8 only; what a client sent may be anything. */
static void add_text(json_t *line, const char *name, const char *text)
{
    json_t *value = *text ? json_string(text) : NULL;
    if (value)
        json_object_set_new(line, name, value);
    else if (*text)
        json_object_set_new(line, name, json_string("(not UTF-8)"));
}

static void add_ms(json_t *line, const char *name, uint64_t us)
{
    if (us > 0)
        json_object_set_new(line, name, json_real(floor((double)us / 10) / 100));
}

static void print_time(char out[40])
{
    struct timespec wall;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &wall);
    gmtime_r(&wall.tv_sec, &tm);
    size_t n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 40 - n, ".%03ldZ", wall.tv_nsec / 1000000);
}

/* Takes the line. */
static void write_object(json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    if (!text)
        return;
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in the place of its NUL */
    telemetry_access(text, bytes + 1);
    free(text);
}

/* At most QUESTION_BYTES of it, and no part of a character. */
static void add_question(json_t *line, const char *question)
{
    size_t bytes = strnlen(question, QUESTION_BYTES + 1);
    if (bytes <= QUESTION_BYTES) {
        add_text(line, "question", question);
        return;
    }
    for (bytes = QUESTION_BYTES; ((unsigned char)question[bytes] & 0xc0) == 0x80;)
        bytes--;
    json_object_set_new(line, "question", json_stringn(question, bytes));
    json_object_set_new(line, "question_cut", json_true());
}

static void write_line(const struct http_request *r, const struct flow_end *end, uint64_t now)
{
    char time_text[40];
    size_t path_bytes;
    print_time(time_text);
    const char *path = http_path(r, &path_bytes);
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:s%, s:i, s:I}", "time", time_text, "peer", http_peer(r), "method", http_method(r),
                  "path", path, path_bytes, "status", http_status(r), "bytes", (json_int_t)http_sent_bytes(r));
    if (!line)
        return;
    add_text(line, "route", end->route);
    add_text(line, "cache", end->cache);
    add_text(line, "reason", end->reason);
    add_text(line, "category", end->category);
    add_text(line, "tenant", end->tenant);
    add_text(line, "model", end->model);
    add_text(line, "upstream", end->upstream);
    add_text(line, "kept_back", end->kept_back);
    add_question(line, end->question);
    if (end->similarity >= 0)
        json_object_set_new(line, "similarity", json_real(end->similarity));
    if (end->tokens_saved > 0)
        json_object_set_new(line, "tokens_saved", json_integer((json_int_t)end->tokens_saved));
    add_ms(line, "cache_ms", end->cache_us);
    add_ms(line, "embed_ms", end->embed_us);
    add_ms(line, "upstream_ms", end->upstream_us);
    add_ms(line, "first_byte_ms", http_first_byte_us(r) ? http_first_byte_us(r) - http_began_us(r) : 0);
    add_ms(line, "ms", now - http_began_us(r));
    if (end->joined)
        json_object_set_new(line, "joined", json_true());
    if (end->client_gone)
        json_object_set_new(line, "client_gone", json_true());
    if (end->upstream_failed)
        json_object_set_new(line, "upstream_failed", json_true());
    write_object(line);
}

void proxy_log_request(struct telemetry *telemetry, const struct http_request *r, const struct flow_end *end)
{
    uint64_t now = clock_us();
    count(telemetry, r, end, now);
    if (telemetry_access_is_open())
        write_line(r, end, now);
}

static void write_judged(const struct flow_judged *judged)
{
    char time_text[40];
    print_time(time_text);
    json_t *line = json_pack("{s:s, s:s, s:i, s:s}", "time", time_text, "route", "judge", "status", judged->status,
                             "label", judged->label);
    if (!line)
        return;
    add_text(line, "category", judged->category);
    add_text(line, "tenant", judged->tenant);
    add_text(line, "model", judged->model);
    add_text(line, "upstream", judged->upstream);
    if (judged->counted) {
        json_object_set_new(line, "prompt_tokens", json_integer((json_int_t)judged->prompt_tokens));
        json_object_set_new(line, "completion_tokens", json_integer((json_int_t)judged->completion_tokens));
    }
    add_ms(line, "ms", judged->us);
    write_object(line);
}

void proxy_log_judged(struct telemetry *telemetry, const struct flow_judged *judged)
{
    static const char name[] = "quire_gateway_judge_tokens_total", help[] = "Tokens that the judge's model took";
    char labels[60];
    snprintf(labels, sizeof labels, "label=\"%s\",tokens=\"%s\"", judged->label, judged->counted ? "known" : "unknown");
    telemetry_add(telemetry_counter(telemetry, "quire_gateway_judge_calls_total",
                                    "Questions to the judge's model by what it said, and whether its tokens are known",
                                    labels),
                  1);
    telemetry_add(telemetry_counter(telemetry, name, help, "kind=\"prompt\""), (int64_t)judged->prompt_tokens);
    telemetry_add(telemetry_counter(telemetry, name, help, "kind=\"completion\""), (int64_t)judged->completion_tokens);
    telemetry_observe(
        telemetry_histogram(telemetry, "quire_gateway_judge_seconds", "Seconds of a question to the judge's model", ""),
        judged->us);
    if (telemetry_access_is_open())
        write_judged(judged);
}
