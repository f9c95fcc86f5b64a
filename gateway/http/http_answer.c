/*
 * http_answer.c - answers: heads, bodies with a length or in chunks, ends.
 *
 * Everything is written into the connection's `out`, which is sent at the end of this turn of the loop: head, first
 * bytes and end of a short answer leave by one system call. Nothing here calls back, so an owner may answer from any of
 * its callbacks.
 *
 * An answer that cannot be what its head says (too many bytes, too few) ends its connection: a client must never take a
 * broken answer for a whole one.
 */
#include "gateway/http/http_priv.h"
#include "io/clock.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {{200, "OK"},
                   {201, "Created"},
                   {202, "Accepted"},
                   {204, "No Content"},
                   {206, "Partial Content"},
                   {301, "Moved Permanently"},
                   {302, "Found"},
                   {303, "See Other"},
                   {304, "Not Modified"},
                   {307, "Temporary Redirect"},
                   {308, "Permanent Redirect"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {402, "Payment Required"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {409, "Conflict"},
                   {411, "Length Required"},
                   {413, "Content Too Large"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {422, "Unprocessable Content"},
                   {424, "Failed Dependency"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {502, "Bad Gateway"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (reasons[i].status == status)
            return reasons[i].text;
    }
    return "Unknown";
}

static bool add_field(struct evbuffer *out, const char *name, const char *value)
{
    return evbuffer_add(out, name, strlen(name)) == 0 && evbuffer_add(out, ": ", 2) == 0 &&
           evbuffer_add(out, value, strlen(value)) == 0 && evbuffer_add(out, "\r\n", 2) == 0;
}

/* The time as a Date field has it; made once a second. */
static const char *date_now(void)
{
    static char text[40];
    static time_t made;
    time_t now = time(NULL);
    if (now != made) {
        struct tm tm;
        gmtime_r(&now, &tm);
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        made = now;
    }
    return text;
}

bool http_answer_write_head(struct http_connection *c, int status, const struct fields *fields, int64_t length,
                            bool chunked, bool close, bool bodiless)
{
    char line[96];
    int n = snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
    bool ok = n > 0 && (size_t)n < sizeof line && evbuffer_add(c->out, line, (size_t)n) == 0;
    bool has_date = false;
    const char *origin = c->server->options.allow_origin;
    for (uint32_t i = 0; ok && fields && i < fields->n; i++) {
        const char *name = fields_name(fields, i);
        has_date = has_date || strcasecmp(name, "Date") == 0;
        /* framing is this file's, whoever made the fields */
        if (strcasecmp(name, "Content-Length") != 0 && strcasecmp(name, "Transfer-Encoding") != 0 &&
            strcasecmp(name, "Connection") != 0 && !(origin && strcasecmp(name, "Access-Control-Allow-Origin") == 0))
            ok = add_field(c->out, name, fields_value(fields, i));
    }
    if (ok && origin)
        ok = add_field(c->out, "Access-Control-Allow-Origin", origin) &&
             add_field(c->out, "Access-Control-Expose-Headers", "*");
    if (ok && !has_date)
        ok = add_field(c->out, "Date", date_now());
    if (ok && chunked)
        ok = add_field(c->out, "Transfer-Encoding", "chunked");
    if (ok && length >= 0 && !(bodiless && status != 304)) {
        n = snprintf(line, sizeof line, "%lld", (long long)length);
        ok = n > 0 && add_field(c->out, "Content-Length", line);
    }
    if (ok && close)
        ok = add_field(c->out, "Connection", "close");
    else if (ok && c->request && c->request->is_http10)
        ok = add_field(c->out, "Connection", "keep-alive"); /* it would take silence for close */
    return ok && evbuffer_add(c->out, "\r\n", 2) == 0;
}

void http_head(struct http_request *r, int status, const struct fields *fields, int64_t length)
{
    struct http_connection *c = r->connection;
    assert(status >= 200 && status <= 999 && r->status == 0);
    if (!http_is_open(r))
        return;
    r->status = status;
    r->answer_length = length;
    const char *type = fields ? fields_get(fields, "Content-Type") : NULL;
    r->event_stream = type && strncasecmp(type, "text/event-stream", 17) == 0;
    r->bodiless = r->is_head || status == 204 || status == 304;
    r->chunked = length < 0 && !r->bodiless && !r->is_http10;
    if (length < 0 && !r->chunked && !r->bodiless)
        r->close_after = true;
    if (!r->whole || c->server->draining)
        r->close_after = true;
    if (!http_answer_write_head(c, status, fields, length, r->chunked || (length < 0 && r->is_head && !r->is_http10),
                                r->close_after, status == 204 || status == 304)) {
        http_abort(r);
        return;
    }
    http_connection_mark(c);
}

/* Counts n bytes, writes what stands before them. False: they must not be written. */
static bool begin_data(struct http_request *r, size_t n)
{
    assert(r->status != 0);
    if (!http_is_open(r) || n == 0)
        return false;
    if (r->sent_bytes == 0)
        r->first_byte_us = clock_us();
    r->sent_bytes += n;
    if (r->answer_length >= 0 && r->sent_bytes > (uint64_t)r->answer_length) {
        http_abort(r);
        return false;
    }
    if (r->bodiless)
        return false;
    char size[24];
    int bytes = r->chunked ? snprintf(size, sizeof size, "%zx\r\n", n) : 0;
    if (bytes > 0 && evbuffer_add(r->connection->out, size, (size_t)bytes) != 0) {
        http_abort(r);
        return false;
    }
    return true;
}

static void end_data(struct http_request *r, bool written)
{
    if (!written || (r->chunked && evbuffer_add(r->connection->out, "\r\n", 2) != 0))
        http_abort(r);
    http_connection_mark(r->connection);
}

void http_data(struct http_request *r, const void *bytes, size_t n)
{
    if (begin_data(r, n))
        end_data(r, evbuffer_add(r->connection->out, bytes, n) == 0);
}

void http_data_move(struct http_request *r, struct evbuffer *bytes)
{
    if (begin_data(r, evbuffer_get_length(bytes)))
        end_data(r, evbuffer_add_buffer(r->connection->out, bytes) == 0);
    evbuffer_drain(bytes, evbuffer_get_length(bytes));
}

void http_end(struct http_request *r)
{
    assert(r->status != 0);
    if (!http_is_open(r))
        return;
    bool short_body = r->answer_length >= 0 && !r->bodiless && r->sent_bytes != (uint64_t)r->answer_length;
    if (short_body || (r->chunked && evbuffer_add(r->connection->out, "0\r\n\r\n", 5) != 0)) {
        http_cut(r);
        return;
    }
    r->ended = true;
    http_connection_mark(r->connection);
}

void http_cut(struct http_request *r)
{
    if (!http_is_open(r))
        return;
    r->ended = r->close_after = true;
    http_connection_mark(r->connection);
}

void http_answer(struct http_request *r, int status, const struct fields *fields, const void *bytes, size_t n)
{
    http_head(r, status, fields, (int64_t)n);
    http_data(r, bytes, n);
    http_end(r);
}

void http_abort(struct http_request *r)
{
    if (r->gone || r->ended || r->aborted)
        return;
    r->aborted = true;
    http_connection_mark(r->connection);
}

int http_status(const struct http_request *r)
{
    return r->status;
}

bool http_is_event_stream(const struct http_request *r)
{
    return r->event_stream;
}

bool http_is_open(const struct http_request *r)
{
    return !r->ended && !r->aborted && !r->gone;
}

bool http_is_full(struct http_request *r)
{
    bool full = http_connection_waiting(r->connection) >= HTTP_HIGH_BYTES;
    r->full = r->full || full;
    return full;
}

uint64_t http_sent_bytes(const struct http_request *r)
{
    return r->sent_bytes;
}

uint64_t http_first_byte_us(const struct http_request *r)
{
    return r->first_byte_us;
}

void http_close_after(struct http_request *r)
{
    r->close_after = true;
}
