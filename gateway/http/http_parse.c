/*
 * http_parse.c - from received bytes to requests: llhttp in strict mode, and what it leaves open.
 *
 * llhttp stops at the end of each head (on_headers_complete pauses it) and of each message, so that nothing behind them
 * is looked at before its turn. Of what llhttp 8 lets pass in strict mode (tried one by one; tests/gateway/http has
 * the list), this file refuses, as two readers could take it for two different things:
 *
 *   - in the head's bytes: a line that goes on behind a line end (obs-fold), LF without CR before it, CR without LF
 *     behind it; a request line that is not "METHOD SP target SP HTTP/1.x"
 *   - a field without a name; HTTP/1.1 without Host, or with two; '#' in the target
 *   - transfer codings other than one "chunked", and any in HTTP/1.0
 *   - CONNECT and HTTP/2's preface; methods of other protocols (RTSP, ICE)
 *
 * The body is bounded by body_max. What stands around it (sizes of chunks, their extensions, trailers, all of which are
 * ignored) is bounded too: 64 KiB and 16 bytes for each byte of the body, so that chunks of one byte pass.
 */
#include "gateway/http/http_priv.h"
#include "io/array.h"
#include "io/clock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FRAME_BYTES    65536u /* around a body, besides FRAME_PER_BYTE for each of its bytes */
#define FRAME_PER_BYTE 16u

static struct http_request *request_of(llhttp_t *parser)
{
    struct http_connection *c = parser->data;
    return c->request;
}

/* ---- what llhttp tells ---- */

static int on_url(llhttp_t *parser, const char *at, size_t n)
{
    struct http_request *r = request_of(parser);
    if (!array_reserve(&r->target, &r->target_capacity, r->target_bytes + n + 1)) {
        r->no_memory = true;
        return HPE_USER;
    }
    memcpy(r->target + r->target_bytes, at, n);
    r->target_bytes += n;
    r->target[r->target_bytes] = 0;
    return 0;
}

static int add_part(struct http_request *r, const char *at, size_t n)
{
    if (!array_reserve(&r->part, &r->part_capacity, r->part_bytes + n)) {
        r->no_memory = true;
        return HPE_USER;
    }
    if (n > 0)
        memcpy(r->part + r->part_bytes, at, n);
    r->part_bytes += n;
    return 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t n)
{
    struct http_request *r = request_of(parser);
    return r->head_done ? 0 : add_part(r, at, n); /* trailers are ignored */
}

static int on_field_complete(llhttp_t *parser)
{
    struct http_request *r = request_of(parser);
    r->name_bytes = r->part_bytes;
    return 0;
}

static int on_value_complete(llhttp_t *parser)
{
    struct http_request *r = request_of(parser);
    struct http_connection *c = parser->data;
    if (r->head_done)
        return 0;
    if (r->name_bytes == 0) { /* ": value" */
        r->bad_field = true;
        return HPE_USER;
    }
    const char *value = r->part + r->name_bytes;
    size_t n = r->part_bytes - r->name_bytes;
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        n--;
    if (r->fields.n >= c->server->options.fields_max)
        r->too_many = true;
    else if (!fields_add_bytes(&r->fields, r->part, r->name_bytes, value, n))
        r->bad_field = true;
    r->part_bytes = r->name_bytes = 0;
    return r->too_many || r->bad_field ? HPE_USER : 0;
}

static int on_head(llhttp_t *parser)
{
    struct http_request *r = request_of(parser);
    r->head_done = true;
    parser->upgrade = 0; /* what follows is HTTP, whatever Upgrade asks for */
    return HPE_PAUSED;
}

static int on_body(llhttp_t *parser, const char *at, size_t n)
{
    struct http_request *r = request_of(parser);
    r->body_bytes += n;
    if (r->body_bytes > r->connection->server->options.body_max)
        return HPE_USER;
    if (r->connection->server->body_bytes + n > r->connection->server->options.bodies_max) {
        r->crowded = true;
        return HPE_USER;
    }
    if (evbuffer_add(r->body, at, n) != 0) {
        r->no_memory = true;
        return HPE_USER;
    }
    return 0;
}

/* Owners drain and move bodies as they like: libevent counts for us. */
static void count_body(struct evbuffer *body, const struct evbuffer_cb_info *info, void *context)
{
    struct http_server *server = context;
    (void)body;
    server->body_bytes += info->n_added;
    assert(server->body_bytes >= info->n_deleted);
    server->body_bytes -= info->n_deleted;
}

static int on_message(llhttp_t *parser)
{
    request_of(parser)->whole = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t callbacks = {.on_url = on_url,
                                            .on_header_field = on_field,
                                            .on_header_value = on_field,
                                            .on_header_field_complete = on_field_complete,
                                            .on_header_value_complete = on_value_complete,
                                            .on_headers_complete = on_head,
                                            .on_body = on_body,
                                            .on_message_complete = on_message};

void http_parse_init(struct http_connection *c)
{
    llhttp_init(&c->parser, HTTP_REQUEST, &callbacks);
    c->parser.data = c;
}

/* ---- requests ---- */

static struct http_request *request_create(struct http_connection *c)
{
    struct http_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->connection = c;
    r->handlers = &c->server->handlers;
    r->context = c->server->context;
    r->number = ++c->server->number;
    r->began_us = clock_us();
    return r;
}

void http_request_free(struct http_request *r)
{
    if (!r)
        return;
    fields_fini(&r->fields);
    if (r->body) {
        evbuffer_drain(r->body, evbuffer_get_length(r->body)); /* so that it is counted */
        evbuffer_free(r->body);
    }
    free(r->target);
    free(r->part);
    free(r);
}

/* ---- the head ---- */

/* Walks n bytes of the head that llhttp has taken: its line ends, and where the request line ends. */
static bool lines_are_strict(struct http_request *r, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i], last = r->last;
        if ((c == '\n') != (last == '\r') || (last == '\n' && r->line_done && (c == ' ' || c == '\t')))
            return false;
        r->last = c;
        if (r->line_done)
            continue;
        if (c == '\n') {
            r->line_done = r->line_bytes > 0; /* empty lines before a request may be skipped (RFC 9112 2.2) */
        } else if (c != '\r') {
            memmove(r->line_end, r->line_end + 1, sizeof r->line_end - 1);
            r->line_end[sizeof r->line_end - 1] = c;
            r->line_bytes++;
        }
    }
    return true;
}

/* "METHOD SP target SP HTTP/1.x": llhttp takes more blanks, and other protocols' names. That its parts came in this
 * order llhttp has seen, so it is enough that nothing else stood between them. */
static bool request_line_is_strict(const struct http_request *r)
{
    return memcmp(r->line_end, " HTTP/1.", 8) == 0 && r->line_bytes == strlen(r->method) + r->target_bytes + 10;
}

/* "http://host/path" becomes "/path". False: it is no target of a request. */
static bool cut_target(struct http_request *r)
{
    if (!r->target || memchr(r->target, '#', r->target_bytes))
        return false;
    if (r->target[0] == '/' || (strcmp(r->target, "*") == 0 && strcmp(r->method, "OPTIONS") == 0))
        return true;
    size_t scheme = strncasecmp(r->target, "http://", 7) == 0 ? 7 : strncasecmp(r->target, "https://", 8) == 0 ? 8 : 0;
    if (scheme == 0)
        return false;
    size_t host = strcspn(r->target + scheme, "/?");
    char *rest = r->target + scheme + host;
    if (*rest != '/')
        *--rest = '/'; /* "http://host?x": there is room, the scheme's */
    r->target_bytes -= (size_t)(rest - r->target);
    memmove(r->target, rest, r->target_bytes + 1);
    return true;
}

/* What is wrong with a head that llhttp has taken; 0: nothing. */
static int check_head(struct http_connection *c, struct http_request *r, const char **text)
{
    const llhttp_t *parser = &c->parser;
    const char *coding = fields_get(&r->fields, "Transfer-Encoding");
    const char *expect = fields_get(&r->fields, "Expect");
    uint32_t hosts = fields_count(&r->fields, "Host");
    int status = 400;
    if (parser->http_major != 1) {
        *text = "the version is not HTTP/1.1 or HTTP/1.0";
        return 505;
    }
    if (parser->method == HTTP_CONNECT || parser->method > HTTP_SOURCE || parser->method == HTTP_PRI) {
        *text = "the method is not served here";
        return 501;
    }
    if (!request_line_is_strict(r))
        *text = "the request line is not a method, a target and HTTP/1.1, a blank between each";
    else if (!cut_target(r))
        *text = "the target is neither a path nor a URL with one, or holds '#'";
    else if (hosts > 1 || (hosts == 0 && parser->http_minor == 1))
        *text = "HTTP/1.1 wants one Host field";
    else if (coding && parser->http_minor == 0)
        *text = "HTTP/1.0 has no Transfer-Encoding";
    else if (coding && (strcasecmp(coding, "chunked") != 0 || fields_count(&r->fields, "Transfer-Encoding") > 1)) {
        *text = "no Transfer-Encoding but chunked is understood";
        status = 501;
    } else if (expect && strcasecmp(expect, "100-continue") != 0) {
        *text = "no Expect but 100-continue is understood";
        status = 417;
    } else if (!coding && parser->content_length > c->server->options.body_max) {
        *text = "the body is larger than body-max";
        status = 413;
    } else
        return 0;
    return status;
}

/* Feeds n bytes at `bytes`; how many were used. */
static size_t feed(struct http_connection *c, const char *bytes, size_t n, enum llhttp_errno *code)
{
    *code = llhttp_execute(&c->parser, bytes, n);
    if (*code == HPE_OK)
        return n;
    size_t used = (size_t)(llhttp_get_error_pos(&c->parser) - bytes);
    assert(used <= n);
    if (*code == HPE_PAUSED) {
        llhttp_resume(&c->parser);
        *code = HPE_OK;
    }
    return used;
}

/* The head is whole: a request for an owner, or a refusal. */
static void take_head(struct http_connection *c, struct http_request *r)
{
    const char *text = NULL;
    r->method = llhttp_method_name((llhttp_method_t)c->parser.method);
    int status = check_head(c, r, &text);
    if (status == 0 && (!(r->body = evbuffer_new()) || !evbuffer_add_cb(r->body, count_body, c->server))) {
        status = 503;
        text = "no memory";
    }
    if (status != 0) {
        http_connection_refuse(c, status, text);
        return;
    }
    bool chunked = fields_get(&r->fields, "Transfer-Encoding") != NULL;
    r->length = chunked ? -1 : (int64_t)c->parser.content_length;
    r->is_http10 = c->parser.http_minor == 0;
    r->is_head = c->parser.method == HTTP_HEAD;
    r->expects = fields_get(&r->fields, "Expect") != NULL && !r->is_http10 && r->length != 0;
    r->close_after = fields_has_word(&r->fields, "Connection", "close") || c->server->draining ||
                     (r->is_http10 && !fields_has_word(&r->fields, "Connection", "keep-alive"));
    free(r->part);
    r->part = NULL;
    r->part_capacity = 0;
    c->stage = HTTP_OWNED;
    c->server->n_requests++;
    http_connection_deadline(c, 0);
    if (r->length == 0) { /* llhttp ends a message without a body only when it is asked to go on */
        enum llhttp_errno code;
        feed(c, "", 0, &code);
        assert(code == HPE_OK && r->whole);
    }
    c->body_left_us = (uint64_t)c->server->options.body_timeout_ms * 1000;
    r->handlers->begin(r->context, r);
}

/* What is said to bytes that llhttp does not take. */
static void refuse_syntax(struct http_connection *c, struct http_request *r, enum llhttp_errno code)
{
    char text[200];
    if (c->stage == HTTP_OWNED) { /* in the body: its owner may have answered in part */
        if (r->body_bytes > c->server->options.body_max)
            http_connection_refuse(c, 413, "the body is larger than body-max");
        else if (r->crowded || r->no_memory)
            http_connection_refuse(c, 503, "the bodies of all requests are more than bodies-max");
        else
            http_connection_refuse(c, 400, "the body is not framed as it should be");
        return;
    }
    if (r->no_memory)
        http_connection_refuse(c, 503, "no memory");
    else if (r->too_many)
        http_connection_refuse(c, 431, "more header fields than fields-max allows");
    else if (code == HPE_PAUSED_H2_UPGRADE)
        http_connection_refuse(c, 505, "HTTP/2 is spoken to nobody here");
    else if (code == HPE_INVALID_METHOD)
        http_connection_refuse(c, 501, "the method is not known");
    else if (code == HPE_INVALID_VERSION)
        http_connection_refuse(c, 505, "the version is not HTTP/1.1 or HTTP/1.0");
    else {
        const char *reason = r->bad_field ? "a field without a name" : llhttp_get_error_reason(&c->parser);
        snprintf(text, sizeof text, "the request is not HTTP: %s", reason ? reason : "");
        http_connection_refuse(c, 400, text);
    }
}

/* ---- the loop ---- */

/* Whether the next bytes of the body may be parsed now; the body's time runs exactly as long. */
static bool may_read_body(struct http_connection *c, const struct http_request *r)
{
    size_t held = evbuffer_get_length(r->body);
    bool may = http_is_open(r) && r->wanted && held <= (r->limited ? r->limit : HTTP_STREAM_BYTES);
    uint64_t now = clock_us();
    if (may && c->deadline_us == 0)
        http_connection_deadline(c, now + c->body_left_us);
    if (!may && c->deadline_us != 0) {
        c->body_left_us = c->deadline_us > now ? c->deadline_us - now : 1;
        http_connection_deadline(c, 0);
    }
    return may;
}

/* Tells the owner of what has come. */
static void tell_body(struct http_request *r)
{
    size_t held = evbuffer_get_length(r->body);
    bool there = r->whole ? !r->told_whole : r->limited ? held > r->limit : held > 0;
    if (!there || !r->wanted || !http_is_open(r))
        return;
    if (r->limited)
        r->wanted = false; /* once */
    r->told_whole = r->whole;
    r->handlers->body(r->context, r);
}

/* A turn of the head. False: no more can be done now. */
static bool parse_head(struct http_connection *c, struct evbuffer *input)
{
    const struct http_options *options = &c->server->options;
    struct http_request *r = c->request;
    if (!r) {
        if (!(r = c->request = request_create(c))) {
            c->failed = true; /* closed by the flush event */
            http_connection_mark(c);
            return false;
        }
        http_connection_deadline(c, r->began_us + (uint64_t)options->head_timeout_ms * 1000);
    }
    struct evbuffer_iovec piece;
    if (evbuffer_peek(input, -1, NULL, &piece, 1) < 1)
        return false;
    size_t n = piece.iov_len, left = options->head_max - r->head_bytes;
    enum llhttp_errno code;
    size_t used = feed(c, piece.iov_base, n < left ? n : left, &code);
    if (!lines_are_strict(r, piece.iov_base, used)) { /* first, so that the answer does not depend on the pieces */
        http_connection_refuse(c, 400, "the request is not HTTP: a line end without CR or LF, or a folded field");
        return false;
    }
    if (code != HPE_OK) {
        refuse_syntax(c, r, code);
        return false;
    }
    r->head_bytes += used;
    evbuffer_drain(input, used);
    if (r->head_done)
        take_head(c, r);
    else if (r->head_bytes >= options->head_max) {
        http_connection_refuse(c, 431, "the head is larger than head-max");
        return false;
    }
    return true;
}

static bool parse_body(struct http_connection *c, struct evbuffer *input)
{
    struct http_request *r = c->request;
    struct evbuffer_iovec piece = {0};
    if (evbuffer_peek(input, -1, NULL, &piece, 1) < 1)
        return false;
    uint64_t before = r->body_bytes;
    enum llhttp_errno code;
    size_t used = feed(c, piece.iov_base, piece.iov_len, &code);
    r->frame_bytes += used;
    if (code == HPE_OK && r->frame_bytes > FRAME_BYTES + r->body_bytes * (FRAME_PER_BYTE + 1))
        code = HPE_USER;
    if (code != HPE_OK) {
        refuse_syntax(c, r, code);
        return false;
    }
    if (c->deadline_us != 0)
        c->deadline_us += (r->body_bytes - before) * 1000 / 1024;
    evbuffer_drain(input, used);
    if (r->whole)
        http_connection_deadline(c, 0);
    r->ask = false;
    tell_body(r);
    return true;
}

/* Reads no more while much waits to be parsed. Not by a high watermark: libevent 2.1.12 calls the read callback again
 * and again as long as the input stays above one, and the loop never rests. */
static void bound_input(struct http_connection *c, const struct evbuffer *input)
{
    bool deaf = evbuffer_get_length(input) >= HTTP_INPUT_BYTES;
    if (deaf == c->deaf)
        return;
    c->deaf = deaf;
    if (deaf)
        bufferevent_disable(c->bev, EV_READ);
    else
        bufferevent_enable(c->bev, EV_READ);
}

void http_parse(struct http_connection *c)
{
    struct evbuffer *input = bufferevent_get_input(c->bev);
    bool goes_on = true;
    while (goes_on) {
        struct http_request *r = c->request;
        if (c->stage == HTTP_IDLE) {
            goes_on = evbuffer_get_length(input) > 0 && parse_head(c, input);
        } else if (c->stage == HTTP_OWNED) {
            if (r->ask) { /* what is there already is told before more is read */
                r->ask = false;
                tell_body(r);
            }
            goes_on = !r->whole && may_read_body(c, r) && parse_body(c, input);
        } else
            goes_on = false;
    }
    bound_input(c, input);
}

/* ---- what owners call ---- */

void http_read(struct http_request *r, size_t limit)
{
    struct http_connection *c = r->connection;
    if (!http_is_open(r))
        return;
    r->wanted = r->ask = true;
    r->limited = limit > 0;
    r->limit = limit;
    r->told_whole = false;
    if (r->expects && r->frame_bytes == 0 && r->status == 0) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        r->expects = false;
        if (evbuffer_add(c->out, go_on, sizeof go_on - 1) != 0)
            http_abort(r);
    }
    http_connection_mark(c);
}

struct evbuffer *http_body(struct http_request *r)
{
    return r->body;
}

bool http_body_is_whole(const struct http_request *r)
{
    return r->whole;
}

void http_own(struct http_request *r, const struct http_handlers *handlers, void *context)
{
    r->handlers = handlers;
    r->context = context;
}

void *http_context(const struct http_request *r)
{
    return r->context;
}

const char *http_method(const struct http_request *r)
{
    return r->method;
}

const char *http_target(const struct http_request *r)
{
    return r->target;
}

const char *http_path(const struct http_request *r, size_t *bytes)
{
    *bytes = strcspn(r->target, "?");
    return r->target;
}

const struct fields *http_fields(const struct http_request *r)
{
    return &r->fields;
}

const char *http_field(const struct http_request *r, const char *name)
{
    return fields_get(&r->fields, name);
}

const char *http_peer(const struct http_request *r)
{
    return r->connection->peer;
}

uint64_t http_number(const struct http_request *r)
{
    return r->number;
}

uint64_t http_began_us(const struct http_request *r)
{
    return r->began_us;
}

int64_t http_body_length(const struct http_request *r)
{
    return r->length;
}
