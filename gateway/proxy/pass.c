/*
 * pass.c - a request passed on unread.
 *
 * A body of up to 64 KiB is gathered first: it is then sent in one piece, and libcurl can send it again on a fresh
 * connection where a kept one turns out to be closed. A larger one streams: what the upstream does not take waits in
 * the request, whose reading then stops, and so the client's sending.
 *
 * The other way: what the client does not take stops the upstream's being read (http_is_full, upstream_pause).
 */
#include "gateway/proxy/pass.h"
#include "gateway/http/http.h"
#include "gateway/proxy/refusal.h"
#include "gateway/upstream/upstream.h"
#include "io/error.h"
#include <assert.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATHERED_BYTES 65536u

struct pass {
    struct http_request *r;
    struct upstream_set *set;
    struct upstream_call *call; /* NULL: not begun, or at its end */
    struct pass_options options;
    char *model, *key, *edited, upstream[128];
    struct fields extra;
    struct pass_end end;
    bool started;
};

/* ---- from the upstream ---- */

static void on_head(void *context, struct upstream_call *call, const struct upstream_head *head)
{
    struct pass *pass = context;
    struct fields fields = {0};
    bool ok = fields_return(head->fields, &fields);
    (void)call;
    for (uint32_t i = 0; ok && i < pass->extra.n; i++)
        ok = fields_set(&fields, fields_name(&pass->extra, i), fields_value(&pass->extra, i));
    if (ok)
        http_head(pass->r, head->status, &fields, head->length);
    else
        http_abort(pass->r);
    fields_fini(&fields);
}

static void on_data(void *context, struct upstream_call *call, const void *bytes, size_t n)
{
    struct pass *pass = context;
    http_data(pass->r, bytes, n);
    if (http_is_full(pass->r))
        upstream_pause(call);
}

/* Moves what the client has sent on to the upstream. */
static void move_body(struct pass *pass)
{
    bool whole = http_body_is_whole(pass->r);
    upstream_body(pass->call, http_body(pass->r), whole);
    if (!whole)
        http_read(pass->r, 0);
}

static void on_wants(void *context, struct upstream_call *call)
{
    (void)call;
    move_body(context);
}

static void on_upstream_done(void *context, struct upstream_call *call, const struct upstream_result *result)
{
    struct pass *pass = context;
    (void)call;
    pass->call = NULL;
    snprintf(pass->upstream, sizeof pass->upstream, "%s", result->upstream);
    pass->end.connect_us = result->connect_us;
    pass->end.head_us = result->head_us;
    pass->end.total_us = result->total_us;
    pass->end.upstream_failed = result->outcome != UPSTREAM_WHOLE;
    if (pass->end.upstream_failed)
        refusal_upstream(pass->r, &pass->extra, result);
    else
        http_end(pass->r);
}

static const struct upstream_events upstream_events = {
    .head = on_head, .data = on_data, .wants = on_wants, .done = on_upstream_done};

/* ---- from the client ---- */

static bool make_fields(const struct pass *pass, struct fields *fields)
{
    return fields_forward(http_fields(pass->r), fields, false) && (!pass->key || fields_set_key(fields, pass->key));
}

/* Whether the upstream is to be told of a body, be it empty. */
static bool has_body(const struct http_request *r)
{
    const char *method = http_method(r);
    return http_body_length(r) != 0 || http_field(r, "Content-Length") || strcmp(method, "POST") == 0 ||
           strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;
}

/* What has come of the body, moved, with the edit; *length is made to fit where it is known. NULL without memory. */
static struct evbuffer *edited_body(const struct pass *pass, int64_t *length)
{
    struct evbuffer *body = http_body(pass->r), *out = evbuffer_new();
    const struct pass_edit *edit = &pass->options.edit;
    assert(edit->at + edit->bytes <= evbuffer_get_length(body));
    if (*length >= 0)
        *length += (int64_t)strlen(pass->edited) - (int64_t)edit->bytes;
    if (out && evbuffer_remove_buffer(body, out, (size_t)edit->at) == (int)edit->at &&
        evbuffer_drain(body, edit->bytes) == 0 && evbuffer_add(out, pass->edited, strlen(pass->edited)) == 0 &&
        evbuffer_add_buffer(out, body) == 0)
        return out;
    if (out)
        evbuffer_free(out);
    return NULL;
}

static void start(struct pass *pass)
{
    struct http_request *r = pass->r;
    struct fields fields = {0};
    struct quire_error err = {0};
    pass->started = true;
    if (!make_fields(pass, &fields)) {
        fields_fini(&fields);
        refusal_answer(r, 503, "no_memory", &pass->extra, "no memory for the request");
        return;
    }
    struct upstream_request request = {.method = http_method(r),
                                       .target = http_target(r),
                                       .fields = &fields,
                                       .model = pass->model,
                                       .body = has_body(r) ? http_body(r) : NULL,
                                       .body_bytes = http_body_length(r),
                                       .body_whole = http_body_is_whole(r),
                                       .own_key = pass->key != NULL,
                                       .head_timeout_ms = pass->options.head_timeout_ms};
    if (pass->edited && !(request.body = edited_body(pass, &request.body_bytes)))
        error_set(&err, QUIRE_ENOMEM, "no memory for the request");
    else
        pass->call = upstream_start(pass->set, &request, &upstream_events, pass, &err);
    if (pass->edited && request.body)
        evbuffer_free(request.body);
    fields_fini(&fields);
    if (!pass->call && err.code == QUIRE_ENOTFOUND)
        refusal_answer(r, 404, "model_not_found", &pass->extra, "%s", err.message);
    else if (!pass->call)
        refusal_answer(r, 503, "no_memory", &pass->extra, "%s", err.message);
    else if (!request.body_whole)
        http_read(r, 0);
}

static void on_body(void *context, struct http_request *r)
{
    struct pass *pass = context;
    (void)r;
    if (!pass->started)
        start(pass);
    else if (pass->call && upstream_body_waiting(pass->call) < GATHERED_BYTES)
        move_body(pass);
}

static void on_writable(void *context, struct http_request *r)
{
    struct pass *pass = context;
    (void)r;
    if (pass->call)
        upstream_resume(pass->call);
}

static void on_gone(void *context, struct http_request *r)
{
    struct pass *pass = context;
    (void)r;
    pass->end.client_gone = true;
}

static void free_key(struct pass *pass)
{
    if (pass->key)
        explicit_bzero(pass->key, strlen(pass->key));
    free(pass->key);
}

static void on_done(void *context, struct http_request *r)
{
    struct pass *pass = context;
    if (pass->call) {
        snprintf(pass->upstream, sizeof pass->upstream, "%s", upstream_name(pass->call));
        upstream_cancel(pass->call);
    }
    pass->end.upstream = pass->upstream;
    if (pass->options.done)
        pass->options.done(pass->options.context, r, &pass->end);
    fields_fini(&pass->extra);
    free(pass->model);
    free_key(pass);
    free(pass->edited);
    free(pass);
}

static const struct http_handlers handlers = {
    .body = on_body, .writable = on_writable, .gone = on_gone, .done = on_done};

/* X-Stainless-Timeout: how long the client's SDK waits, in seconds. */
static uint32_t client_timeout_ms(const struct http_request *r)
{
    const char *text = http_field(r, "X-Stainless-Timeout");
    char *end;
    double seconds = text ? strtod(text, &end) : 0;
    return text && end != text && *end == 0 && seconds > 0 && seconds < 86400 ? (uint32_t)(seconds * 1000) : 0;
}

void pass_begin(struct http_request *r, struct upstream_set *set, const struct pass_options *options)
{
    assert(http_status(r) == 0);
    struct pass *pass = calloc(1, sizeof *pass);
    bool ok = pass != NULL;
    for (uint32_t i = 0; ok && options->extra && i < options->extra->n; i++)
        ok = fields_append(&pass->extra, fields_name(options->extra, i), fields_value(options->extra, i));
    if (ok && options->model)
        ok = (pass->model = strdup(options->model)) != NULL;
    if (ok && options->key)
        ok = (pass->key = strdup(options->key)) != NULL;
    if (ok && options->edit.bytes > 0)
        ok = (pass->edited = strdup(options->edit.text)) != NULL;
    if (!ok) {
        if (pass) {
            fields_fini(&pass->extra);
            free(pass->model);
            free_key(pass);
            free(pass);
        }
        http_abort(r); /* who called still owns it, and hears its `done` */
        return;
    }
    pass->r = r;
    pass->set = set;
    pass->options = *options;
    if (pass->options.head_timeout_ms == 0)
        pass->options.head_timeout_ms = client_timeout_ms(r);
    http_own(r, &handlers, pass);
    if (http_body_is_whole(r))
        start(pass);
    else
        http_read(r, GATHERED_BYTES);
}
