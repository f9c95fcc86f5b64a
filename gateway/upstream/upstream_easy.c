/*
 * upstream_easy.c - one try of a call: the request as libcurl wants it told, the answer as libcurl tells it.
 *
 * libcurl adds fields of its own (Accept, Content-Type, Expect) unless a field of that name is given or named without a
 * value; all of them are named, so that what leaves is what the client sent, and Host and Content-Length.
 *
 * A body that is whole is given as one piece of memory: libcurl can then send it again by itself when a connection that
 * was kept alive turns out to be closed. A streamed body cannot be sent twice, so it gets a fresh connection.
 */
#include "gateway/upstream/upstream_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BUFFER_BYTES    4096L /* libcurl reads at most this at once; it holds one per call */
#define HEAD_FIELDS_MAX 200u
#define HEAD_BYTES_MAX  65536u

/* ---- the answer ---- */

static size_t refuse_head(struct upstream_call *call, const char *why)
{
    call->broken = why;
    return 0; /* libcurl ends the transfer */
}

/* A stream may come for minutes: what has been sent whole is not kept meanwhile. */
static void drop_sent_body(struct upstream_call *call)
{
    size_t n = evbuffer_get_length(call->body);
    curl_off_t sent = 0;
    if (call->body_whole && curl_easy_getinfo(call->easy, CURLINFO_SIZE_UPLOAD_T, &sent) == CURLE_OK &&
        sent == (curl_off_t)n)
        evbuffer_drain(call->body, n);
}

/* The head of an answer is whole. */
static size_t end_head(struct upstream_call *call, size_t n)
{
    if (call->status < 200) {
        fields_clear(&call->head); /* 100 Continue, 103 Early Hints: another follows */
        return n;
    }
    call->head_done = true;
    call->head_us = clock_us();
    drop_sent_body(call);
    if (call->server)
        telemetry_observe(call->server->head_seconds, call->head_us - call->started_us);
    const char *length = fields_get(&call->head, "Content-Length");
    bool coded = fields_get(&call->head, "Transfer-Encoding") != NULL;
    struct upstream_head head = {.status = call->status,
                                 .fields = &call->head,
                                 .length = length && !coded ? strtoll(length, NULL, 10) : -1,
                                 .upstream = upstream_name(call)};
    if (call->events && call->events->head)
        call->events->head(call->context, call, &head);
    return n;
}

static size_t on_line(char *line, size_t size, size_t count, void *context)
{
    struct upstream_call *call = context;
    size_t n = size * count, bytes = n;
    if (call->cancelled || call->head_done)
        return call->cancelled ? 0 : n; /* trailers are not passed on */
    call->heard_us = clock_us();
    while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r'))
        bytes--;
    if (bytes == 0)
        return end_head(call, n);
    if (bytes > 5 && memcmp(line, "HTTP/", 5) == 0) {
        const char *blank = memchr(line, ' ', bytes);
        fields_clear(&call->head);
        call->status = blank && (size_t)(line + bytes - blank) >= 4 ? (int)strtol(blank + 1, NULL, 10) : 0;
        return call->status >= 100 && call->status <= 999 ? n : refuse_head(call, "its status line has no status");
    }
    const char *colon = memchr(line, ':', bytes);
    if (!colon)
        return refuse_head(call, "a line of its head is no field");
    const char *value = colon + 1, *end = line + bytes;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (call->head.n >= HEAD_FIELDS_MAX || call->head.text_bytes + n > HEAD_BYTES_MAX)
        return refuse_head(call, "its head has more than 200 fields or 64 KiB");
    if (!fields_add_bytes(&call->head, line, (size_t)(colon - line), value, (size_t)(end - value)))
        return refuse_head(call, "a field of its head is folded, or holds what no field may hold");
    return n;
}

static size_t on_data(char *bytes, size_t size, size_t count, void *context)
{
    struct upstream_call *call = context;
    size_t n = size * count;
    if (call->cancelled)
        return 0;
    if (call->paused) {
        call->held = true;
        return CURL_WRITEFUNC_PAUSE; /* libcurl keeps these bytes, and reads no more */
    }
    call->heard_us = clock_us();
    call->bytes += n;
    if (call->events && call->events->data)
        call->events->data(call->context, call, bytes, n);
    return call->cancelled ? 0 : n;
}

/* ---- the request ---- */

static size_t on_wants(char *bytes, size_t size, size_t count, void *context)
{
    struct upstream_call *call = context;
    if (call->cancelled)
        return CURL_READFUNC_ABORT;
    size_t room = size * count, n = evbuffer_get_length(call->body);
    n = n < room ? n : room;
    if (n > 0) {
        evbuffer_remove(call->body, bytes, n);
        call->heard_us = clock_us();
        if (!call->body_ended && evbuffer_get_length(call->body) == 0)
            upstream_loop_kick(call); /* its owner is asked for more */
        return n;
    }
    if (call->body_ended)
        return 0;
    call->body_starved = true;
    upstream_loop_kick(call);
    return CURL_READFUNC_PAUSE;
}

static bool add_line(struct upstream_call *call, const char *name, const char *separator, const char *value)
{
    size_t bytes = strlen(name) + strlen(separator) + strlen(value) + 1;
    char *line = malloc(bytes);
    if (!line)
        return false;
    snprintf(line, bytes, "%s%s%s", name, separator, value);
    struct curl_slist *lines = curl_slist_append(call->lines, line);
    free(line);
    if (lines)
        call->lines = lines;
    return lines != NULL;
}

/* A credential of the client's; an upstream that has a key of its own gets that in the same field. */
static bool is_credential(const char *name)
{
    return strcasecmp(name, "Authorization") == 0 || strcasecmp(name, "api-key") == 0 ||
           strcasecmp(name, "x-api-key") == 0;
}

static bool add_key(struct upstream_call *call, const char *key)
{
    const char *field = fields_credential(&call->fields);
    return add_line(call, field, strcmp(field, "Authorization") == 0 ? ": Bearer " : ": ", key);
}

static bool make_lines(struct upstream_call *call)
{
    static const char *const own[] = {"Accept", "Content-Type", "Expect", "User-Agent"};
    const char *key = call->server && !call->own_key ? call->server->key : "";
    bool ok = true;
    for (uint32_t i = 0; ok && i < call->fields.n; i++) {
        const char *name = fields_name(&call->fields, i), *value = fields_value(&call->fields, i);
        if (*key && is_credential(name))
            continue;
        ok = *value ? add_line(call, name, ": ", value) : add_line(call, name, ";", ""); /* "Name;" sends "Name:" */
    }
    if (ok && *key)
        ok = add_key(call, key);
    for (size_t i = 0; ok && i < sizeof own / sizeof *own; i++) {
        if (!fields_get(&call->fields, own[i]))
            ok = add_line(call, own[i], ":", "");
    }
    if (ok && call->has_body && !call->body_whole && call->body_bytes < 0)
        ok = add_line(call, "Transfer-Encoding", ": ", "chunked");
    return ok;
}

static bool set_body(struct upstream_call *call)
{
    CURL *easy = call->easy;
    if (!call->has_body) {
        if (strcasecmp(call->method, "HEAD") == 0)
            return curl_easy_setopt(easy, CURLOPT_NOBODY, 1L) == CURLE_OK;
        return curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    }
    CURLcode code = curl_easy_setopt(easy, CURLOPT_POST, 1L);
    if (call->body_whole) {
        size_t n = evbuffer_get_length(call->body);
        const unsigned char *bytes = n > 0 ? evbuffer_pullup(call->body, -1) : (const unsigned char *)"";
        if (!bytes)
            return false;
        code = code ? code : curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
        return (code ? code : curl_easy_setopt(easy, CURLOPT_POSTFIELDS, bytes)) == CURLE_OK;
    }
    code = code ? code : curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_wants);
    code = code ? code : curl_easy_setopt(easy, CURLOPT_READDATA, call);
    code = code ? code : curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    if (call->body_bytes >= 0)
        code = code ? code : curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_bytes);
    return code == CURLE_OK;
}

/* Where to: the upstream's, or the URL that the request names. */
static bool set_place(struct upstream_call *call)
{
    CURL *easy = call->easy;
    const struct upstream_server *server = call->server;
    if (!server)
        return curl_easy_setopt(easy, CURLOPT_URL, call->url) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK;
    char *target = upstream_server_target(server, call->target);
    bool ok = target && curl_easy_setopt(easy, CURLOPT_URL, server->origin) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_REQUEST_TARGET, target) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_PROXY, server->proxy) == CURLE_OK;
    if (ok && *server->ca_file)
        ok = curl_easy_setopt(easy, CURLOPT_CAINFO, server->ca_file) == CURLE_OK;
    if (ok && *server->proxy)
        ok = curl_easy_setopt(easy, CURLOPT_HTTPPROXYTUNNEL, 1L) == CURLE_OK &&
             curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L) == CURLE_OK;
    free(target);
    return ok;
}

int upstream_easy_begin(struct upstream_call *call, struct quire_error *err)
{
    assert(!call->easy && !call->lines);
    CURL *easy = call->easy = curl_easy_init();
    bool ok = easy && make_lines(call) && set_place(call) && set_body(call);
    if (ok && strcasecmp(call->method, "HEAD") != 0)
        ok = curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method) == CURLE_OK;
    call->error[0] = 0;
    if (!ok || curl_easy_setopt(easy, CURLOPT_PRIVATE, call) ||
        curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error) ||
        curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") ||
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->lines) ||
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) ||
        curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_line) || curl_easy_setopt(easy, CURLOPT_HEADERDATA, call) ||
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data) || curl_easy_setopt(easy, CURLOPT_WRITEDATA, call) ||
        curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)call->set->times.connect_ms) ||
        curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES) || curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) ||
        curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L) || curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 30L)) {
        upstream_easy_end(call);
        return error_set(err, QUIRE_ENOMEM, "libcurl does not take the request");
    }
    return 0;
}

void upstream_easy_end(struct upstream_call *call)
{
    if (call->in_multi)
        curl_multi_remove_handle(call->set->multi, call->easy);
    call->in_multi = false;
    curl_easy_cleanup(call->easy); /* NULL is fine */
    curl_slist_free_all(call->lines);
    call->easy = NULL;
    call->lines = NULL;
}
