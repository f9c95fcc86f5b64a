/*
 * http.h - an HTTP/1.1 server on a libevent loop: requests with their bodies, answers that may be streams.
 *
 * Parsing is llhttp's, strict; sockets and TLS are libevent's. What a request's owner sees of it:
 *
 *     begin(r)      its head is in, and within the limits. Here the owner says what it wants of the body (http_read),
 *                   or answers at once. Until then no byte of the body is read, and no "100 Continue" is sent.
 *     body(r)       what http_read asked for is there (see there)
 *     writable(r)   the answer's bytes have left, down to HTTP_LOW_BYTES; called only after http_is_full said yes
 *     gone(r)       the client has gone, or has broken the protocol within its body. Nothing can be answered any more;
 *                   the owner cancels what it does for this request. `done` follows, not from within this call.
 *     done(r)       the last word, exactly once for each request for which `begin` was called: the answer has been
 *                   handed to the kernel, or was given up. The request is freed after it.
 *
 * The owner answers by http_head, http_data..., http_end; or by http_answer, which is all three; or gives up by
 * http_abort, which closes the connection so that the client sees a broken answer. After http_end, http_cut or
 * http_abort only `done` is called, and only reading calls are allowed until then.
 *
 * Of one connection one request is with an owner at a time; those that came behind it (pipelining) wait, and are
 * answered in order. HTTP/1.0 is kept open where it asks for it (Connection: keep-alive) and the answer has a length. A
 * client that closes its sending side counts as gone. An answer that ends before the request's
 * body has been read closes the connection after it.
 *
 * Limits: see struct http_options. What breaks them is answered here (400, 408, 413, 431, 501, 505) by
 * options.error, and no owner hears of it, unless its body had begun: then `gone`.
 *
 * Memory: a connection that waits has no buffers. A request holds its head, what of its body has not been taken, and
 * what of its answer the client has not read yet, which the owner bounds by http_is_full.
 *
 * The process ignores SIGPIPE. One thread: the loop's. No call blocks. Callbacks come from the loop only, never from
 * within a call of this header.
 */
#ifndef QUIRE_GATEWAY_HTTP_H
#define QUIRE_GATEWAY_HTTP_H

#include "gateway/http/fields_list.h"
#include "quire.h"

/* Bytes of an answer that wait for the client: above HIGH http_is_full says yes, at LOW `writable` comes. */
#define HTTP_HIGH_BYTES 16384u
#define HTTP_LOW_BYTES  4096u

struct evbuffer;
struct event_base;
struct http_server;
struct http_request;

struct http_handlers {
    void (*begin)(void *context, struct http_request *r);
    void (*body)(void *context, struct http_request *r);
    void (*writable)(void *context, struct http_request *r);
    void (*gone)(void *context, struct http_request *r);
    void (*done)(void *context, struct http_request *r);
};

/* What a server is told; it may change by http_server_set. Texts are copied. */
struct http_options {
    size_t head_max;           /* bytes of request line and fields: 431 */
    uint32_t fields_max;       /* 431 */
    uint64_t body_max;         /* 413 */
    uint64_t bodies_max;       /* of all requests together, as far as their owners have not taken them: 503 */
    uint32_t connections_max;  /* 503 and closed */
    uint32_t head_timeout_ms;  /* for the whole head, from its first byte: 408 */
    uint32_t idle_timeout_ms;  /* without a request: closed */
    uint32_t body_timeout_ms;  /* for the body, and 1 ms more for each KiB that came (a sender slower than 1 MB/s gets
                                 this long and no longer): 408; while the owner does not read the clock stands */
    uint32_t write_timeout_ms; /* without one byte of a waiting answer taken: closed */
    const char *tls_cert, *tls_key; /* files; NULL: no TLS */
    bool reuse_port;
    int backlog;
    const char *allow_origin; /* Access-Control-Allow-Origin of every answer; NULL: what owners say */
    /* Fills the body (JSON, say) of an answer that the server gives itself; `text` says what is wrong. */
    void (*error)(void *context, int status, const char *text, struct fields *fields, struct evbuffer *body);
    void *error_context;
};

int http_server_create(struct event_base *base, const struct http_options *options,
                       const struct http_handlers *handlers, void *context, struct http_server **out,
                       struct quire_error *err);
/* Closes everything: each request gets `gone` and `done`. NULL is fine. */
void http_server_destroy(struct http_server *server);
/* New limits, and certificate and key read again, for what comes from now on. On failure all is as it was. */
int http_server_set(struct http_server *server, const struct http_options *options, struct quire_error *err);
/* Listens on "127.0.0.1:8080", "[::1]:8080" or "unix:/path"; port 0 is any free one. May be called several times. */
int http_server_listen(struct http_server *server, const char *address, struct quire_error *err);
/* The port of the first address that has one; 0: none. */
uint16_t http_server_port(const struct http_server *server);
/* Takes a connected socket as if it had been accepted; it is closed by the server. For tests. */
int http_server_adopt(struct http_server *server, int fd, struct quire_error *err);
/* No new connections from now on; those without a request are closed, the others after their answer. */
void http_server_drain(struct http_server *server);
uint32_t http_server_connections(const struct http_server *server);
uint32_t http_server_requests(const struct http_server *server);   /* with an owner */
uint64_t http_server_body_bytes(const struct http_server *server); /* what bodies_max bounds */
/* Calls `each` for every request that is with an owner; it may answer or abort that request. */
void http_server_each(struct http_server *server, void (*each)(void *context, struct http_request *r), void *context);

/* ---- the request ---- */

/* Gives this request to another owner, whose callbacks (but `begin`) it gets from now on. */
void http_own(struct http_request *r, const struct http_handlers *handlers, void *context);
void *http_context(const struct http_request *r);
const char *http_method(const struct http_request *r);
/* Path and query as they came; begins with '/' or is "*". An absolute form (http://host/path) has been cut to this. */
const char *http_target(const struct http_request *r);
/* The target up to '?', in *bytes. */
const char *http_path(const struct http_request *r, size_t *bytes);
const struct fields *http_fields(const struct http_request *r);
/* Shortcut of fields_get. */
const char *http_field(const struct http_request *r, const char *name);
/* "127.0.0.1:5123" or "unix". */
const char *http_peer(const struct http_request *r);
/* A number that no other request of this process has. */
uint64_t http_number(const struct http_request *r);
/* clock_us() when the head's first byte came. */
uint64_t http_began_us(const struct http_request *r);
/* Content-Length; -1 where the body is chunked; 0 where there is none. */
int64_t http_body_length(const struct http_request *r);

/* Asks for the body. `body` is called
 *   - limit > 0: once, when the whole body is there or more than `limit` bytes are (also for a body without bytes);
 *   - limit 0: each time there is more, and at its end: the stream of the rest, if it follows a call with a limit.
 * Reading stops while http_body holds more than `limit` bytes (at least 64 KiB are read
 * in a stream) until its owner has drained it and called http_read again, or the buffer is empty. */
void http_read(struct http_request *r, size_t limit);
/* The bytes that are there and not taken: drain what you use, or move it. Valid until `done`. */
struct evbuffer *http_body(struct http_request *r);
/* Whether all of it has come. */
bool http_body_is_whole(const struct http_request *r);

/* ---- the answer ---- */

/* Status line and fields. `length` is that of the body, -1 where it is not known: then it is chunked (closed at its end
 * for HTTP/1.0). Content-Length, Transfer-Encoding, Connection and (where there is none) Date are added here; `fields`
 * (may be NULL) are copied. To a HEAD request the body's bytes are counted and not sent. Statuses 204 and 304 have
 * none. */
void http_head(struct http_request *r, int status, const struct fields *fields, int64_t length);
/* Bytes of the body. More than `length` of them: the connection is closed, as the answer would be broken. Each call is
 * sent at once, as a chunk of its own where the answer is chunked. Without memory the request is aborted. */
void http_data(struct http_request *r, const void *bytes, size_t n);
/* The same; the bytes are moved, not copied, and `bytes` is empty afterwards. */
void http_data_move(struct http_request *r, struct evbuffer *bytes);
/* Fewer bytes than `length`: http_cut. */
void http_end(struct http_request *r);
/* Sends what waits, then closes the connection without the answer's proper end, so that nobody takes it for whole. */
void http_cut(struct http_request *r);
/* All three. */
void http_answer(struct http_request *r, int status, const struct fields *fields, const void *bytes, size_t n);
/* Closes the connection at once, what was not sent is lost. */
void http_abort(struct http_request *r);
/* Whether a head was given; its status, 0 before. */
int http_status(const struct http_request *r);
/* Whether the answer's head said text/event-stream. */
bool http_is_event_stream(const struct http_request *r);
/* Whether an answer can still be given or goes on: neither ended, aborted nor gone. */
bool http_is_open(const struct http_request *r);
/* Whether HTTP_HIGH_BYTES or more wait for the client. After true comes `writable`. */
bool http_is_full(struct http_request *r);
/* Bytes of the answer's body so far, without framing. */
uint64_t http_sent_bytes(const struct http_request *r);
/* clock_us() of the first byte of the answer's body; 0 before. */
uint64_t http_first_byte_us(const struct http_request *r);
/* The connection is closed after this answer. */
void http_close_after(struct http_request *r);
const char *http_reason(int status); /* "Not Found" */

#endif
