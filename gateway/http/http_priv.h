/* http_priv.h - what the files of gateway/http share: a connection and its request. */
#ifndef QUIRE_GATEWAY_HTTP_PRIV_H
#define QUIRE_GATEWAY_HTTP_PRIV_H

#include "gateway/http/http.h"
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <llhttp.h>
#include <openssl/ssl.h>

#define HTTP_INPUT_BYTES  16384u /* received and not parsed: more is left to the kernel */
#define HTTP_STREAM_BYTES 65536u /* of a streamed body that its owner has not taken */
#define HTTP_LINGER_BYTES (4u << 20)
#define HTTP_LINGER_MS    2000u /* how long a closed connection's last bytes are read and thrown away */
#define HTTP_LISTENERS    16u

enum http_stage {
    HTTP_IDLE,    /* between requests; a request may have begun to come (c->request is not NULL then) */
    HTTP_OWNED,   /* c->request is with its owner */
    HTTP_CLOSING, /* an answer without an owner is sent, then the connection is closed */
    HTTP_LINGER,  /* our side is closed; what comes is thrown away */
};

struct http_request {
    struct http_connection *connection;
    const struct http_handlers *handlers;
    void *context;
    uint64_t number, began_us, first_byte_us;
    /* the head */
    const char *method; /* of llhttp's table */
    char *target;
    size_t target_bytes, target_capacity;
    struct fields fields;
    char *part; /* the field that is being read: its name, then its value */
    size_t part_bytes, part_capacity, name_bytes;
    size_t head_bytes;
    size_t line_bytes;
    char last, line_end[9]; /* of the head's bytes so far; the last of the request line */
    bool line_done, too_many, no_memory, bad_field, crowded;
    /* its body */
    struct evbuffer *body;
    int64_t length;
    uint64_t body_bytes, frame_bytes; /* came: of the body, and everything after the head */
    size_t limit;
    bool wanted, ask, limited, head_done, whole, told_whole, expects, is_http10, is_head;
    /* the answer */
    int status;
    int64_t answer_length;
    uint64_t sent_bytes;
    bool chunked, event_stream, close_after, ended, aborted, gone, bodiless, full;
};

struct http_connection {
    struct http_server *server;
    struct bufferevent *bev;
    struct evbuffer *out; /* what this turn of the loop has to send */
    struct http_connection *previous, *next;
    struct http_connection *next_dirty;
    struct http_request *request;
    llhttp_t parser;
    struct event timer;
    uint64_t deadline_us, timer_us; /* 0: none */
    uint64_t body_left_us;          /* of the body's time, while its owner does not read */
    uint64_t thrown_bytes;          /* that came after the end */
    enum http_stage stage;
    bool dirty, tls, handshaken, failed;
    bool deaf; /* nothing is read, since enough waits to be parsed */
    char peer[64];
};

struct http_server {
    struct event_base *base;
    struct http_options options;
    struct http_handlers handlers;
    void *context;
    SSL_CTX *tls;
    struct http_connection *connections;
    struct http_connection *dirty, **dirty_end; /* to be looked at by the flush event, first come first */
    struct event flush;
    struct event retry; /* listening again after the process was short of descriptors */
    struct evconnlistener *listeners[HTTP_LISTENERS];
    char *sockets[HTTP_LISTENERS]; /* paths of unix sockets, to be removed */
    uint32_t n_listeners, n_connections, n_requests;
    uint64_t number, body_bytes; /* body_bytes: in the requests' evbuffers */
    uint16_t port;
    bool draining;
};

/* ---- http_connection.c ---- */
struct http_connection *http_connection_create(struct http_server *server, int fd, const char *peer);
/* Frees it; a request with an owner gets gone and done. */
void http_connection_close(struct http_connection *c);
/* The flush event looks at it in this turn of the loop. */
void http_connection_mark(struct http_connection *c);
void http_connection_unmark(struct http_connection *c);
void http_connection_flush(struct http_connection *c);
/* The time at which the connection is looked at again; 0: never. */
void http_connection_deadline(struct http_connection *c, uint64_t at_us);
size_t http_connection_waiting(const struct http_connection *c);
/* Answers without an owner, then closes. */
void http_connection_refuse(struct http_connection *c, int status, const char *text);

/* ---- http_parse.c ---- */
void http_parse_init(struct http_connection *c);
/* Parses what has been received, as far as the owner wants it. */
void http_parse(struct http_connection *c);
void http_request_free(struct http_request *r);

/* ---- http_answer.c ---- */
/* Writes the head into c->out. False without memory. */
bool http_answer_write_head(struct http_connection *c, int status, const struct fields *fields, int64_t length,
                            bool chunked, bool close, bool bodiless);

/* ---- http_tls.c ---- */
int http_tls_create(const struct http_options *options, SSL_CTX **out, struct quire_error *err);

#endif
