/*
 * refusal.c - errors as OpenAI's clients read them.
 *
 * The types are those that the public API uses where it has one; what only a gateway can say (no connection to the
 * model, no answer in time) has the names that openai-node gives its own errors of that kind.
 */
#include "gateway/proxy/refusal.h"
#include "gateway/http/http.h"
#include "gateway/telemetry/telemetry_log.h"
#include "gateway/upstream/upstream.h"
#include <assert.h>
#include <event2/buffer.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MESSAGE_BYTES 1000

int refusal_json(struct evbuffer *out, const char *message, const char *type, const char *param, const char *code)
{
    char ascii[MESSAGE_BYTES];
    fields_printable(ascii, sizeof ascii, message);
    json_t *body =
        json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", ascii, "type", type, "param", param, "code", code);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    int rc = text && evbuffer_add(out, text, strlen(text)) == 0 ? 0 : QUIRE_ENOMEM;
    free(text);
    json_decref(body);
    return rc;
}

const char *refusal_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 408:
    case 504:
        return "timeout";
    case 429:
        return "rate_limit_error";
    case 502:
        return "api_connection_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void answer(struct http_request *r, int status, const char *code, const struct fields *extra,
                   const char *message)
{
    struct fields fields = {0};
    struct evbuffer *body = evbuffer_new();
    bool ok = body && refusal_json(body, message, refusal_type(status), NULL, code) == 0 &&
              fields_append(&fields, "Content-Type", "application/json");
    for (uint32_t i = 0; ok && extra && i < extra->n; i++)
        ok = fields_append(&fields, fields_name(extra, i), fields_value(extra, i));
    if (ok) {
        http_head(r, status, &fields, (int64_t)evbuffer_get_length(body));
        http_data_move(r, body);
        http_end(r);
    } else
        http_abort(r);
    if (body)
        evbuffer_free(body);
    fields_fini(&fields);
}

void refusal_answer(struct http_request *r, int status, const char *code, const struct fields *extra,
                    const char *format, ...)
{
    char message[MESSAGE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    assert(http_status(r) == 0);
    answer(r, status, code, extra, message);
}

static void in_stream(struct http_request *r, const char *type, const char *message)
{
    struct evbuffer *event = http_is_event_stream(r) ? evbuffer_new() : NULL;
    if (event && evbuffer_add(event, "data: ", 6) == 0 && refusal_json(event, message, type, NULL, NULL) == 0 &&
        evbuffer_add(event, "\n\n", 2) == 0)
        http_data_move(r, event);
    if (event)
        evbuffer_free(event);
    http_cut(r);
}

void refusal_in_stream(struct http_request *r, const char *type, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    in_stream(r, type, message);
}

void refusal_upstream(struct http_request *r, const struct fields *extra, const struct upstream_result *result)
{
    char message[MESSAGE_BYTES];
    int status = result->outcome == UPSTREAM_TIMEOUT || result->outcome == UPSTREAM_SILENT ? 504 : 502;
    snprintf(message, sizeof message, "upstream %s: %s", result->upstream, result->message);
    if (http_status(r) == 0)
        answer(r, status, status == 504 ? "upstream_timeout" : "upstream_unreachable", extra, message);
    else
        in_stream(r, refusal_type(status), message);
}
