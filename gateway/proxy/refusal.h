/*
 * refusal.h - error answers in the shape that OpenAI's clients turn into their classes:
 * {"error": {"message", "type", "param", "code"}}.
 */
#ifndef QUIRE_GATEWAY_REFUSAL_H
#define QUIRE_GATEWAY_REFUSAL_H

#include "quire.h"

struct evbuffer;
struct fields;
struct http_request;
struct upstream_result;

/* Appends the JSON object; `param` and `code` may be NULL (null in the JSON). QUIRE_ENOMEM: `out` is as it was. */
int refusal_json(struct evbuffer *out, const char *message, const char *type, const char *param, const char *code);
/* The type that goes with a status: "invalid_request_error" (400, 413, 431), "authentication_error" (401),
 * "permission_error" (403), "not_found_error" (404), "rate_limit_error" (429), "timeout" (408, 504),
 * "api_connection_error" (502), "server_error". */
const char *refusal_type(int status);
/* Answers r with it. `extra` (may be NULL): more fields. */
void refusal_answer(struct http_request *r, int status, const char *code, const struct fields *extra,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Ends an answer of which the head has gone: in a stream of events by an in-band "data: {"error":...}" without [DONE];
 * then, always, the connection is closed, so that nobody takes the answer for whole. */
void refusal_in_stream(struct http_request *r, const char *type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What an upstream's failure is to the client: 502 or 504 before the head, in the stream after it. `extra` as above. */
void refusal_upstream(struct http_request *r, const struct fields *extra, const struct upstream_result *result);

#endif
