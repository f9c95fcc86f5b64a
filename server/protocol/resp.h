/*
 * resp.h - the Redis serialization protocol: parsing requests (RESP arrays and inline), writing replies (RESP2 and
 * RESP3).
 */
#ifndef QUIRE_SERVER_RESP_H
#define QUIRE_SERVER_RESP_H

#include "quire.h"
#include <stdarg.h>
#include <stdatomic.h>

/* One argument of a request; points into the parsed bytes (or into the request's own store for inline requests). */
struct resp_arg {
    const uint8_t *data;
    uint32_t bytes;
};

enum { ARGS_MAX = 1048576 }; /* of one request, as in Redis */

struct resp_limits {
    uint64_t bulk_bytes_max;   /* one argument */
    uint32_t args_max;         /* arguments of one request */
    uint32_t inline_bytes_max; /* an inline line, and the line of a count or length */
};

/* A request, reused from one parse to the next. Zeroed before first use. */
struct resp_request {
    struct resp_arg *args; /* owned */
    uint32_t n_args, capacity;
    uint8_t *store; /* unquoted inline arguments; owned */
    size_t store_capacity;
    bool wants_line; /* RESP_MORE: what is missing is the end of the line that begins at line_at, or its limit */
    size_t line_at;
};

enum resp_status {
    RESP_DONE = 1,   /* a request: *consumed bytes were used; n_args may be 0 (an empty line), to be skipped */
    RESP_MORE = 0,   /* incomplete: do not parse again before there are *need bytes */
    RESP_BROKEN = -1 /* protocol error: reply `message` and close */
};

/* Parses one request from bytes. Pointers in request->args are valid as long as the bytes are. */
enum resp_status resp_parse(const uint8_t *bytes, size_t n, const struct resp_limits *limits,
                            struct resp_request *request, size_t *consumed, size_t *need, char message[128]);
void resp_request_fini(struct resp_request *request);

/* What the buffers of one owner take together, in bytes of memory. All of them belong to one thread. */
struct resp_account {
    uint64_t held;
    _Atomic uint64_t *total; /* of all accounts of the thread, which alone writes it; NULL: nobody adds up */
    /* Asked before a buffer takes `more` bytes; false: it fails. NULL: there is no limit. */
    bool (*grow)(struct resp_account *account, size_t more);
};
/* Notes memory that is no buffer's: a negative number gives it back. NULL: nobody counts. */
void resp_account_add(struct resp_account *account, int64_t bytes);
/* Notes more of it, if the account may grow so much, as a buffer does; NULL: it may. */
bool resp_account_take(struct resp_account *account, size_t more);

/* A reply under construction: a growing array of bytes. `failed` is set when memory ran out, or when its account is
 * allowed no more; what it held is freed then, it takes nothing any more, and the connection closes. Who writes much
 * looks at it and stops. */
struct resp_buffer {
    uint8_t *data; /* owned */
    size_t bytes, capacity;
    struct resp_account *account; /* NULL: none */
    int protocol;                 /* 2 or 3 */
    bool failed;
};
void resp_buffer_fini(struct resp_buffer *out);
/* An empty buffer of the same protocol and account: for what has to be counted before it is written. */
struct resp_buffer resp_buffer_beside(const struct resp_buffer *out);
/* Room for that many bytes more; false: the buffer has failed. */
bool resp_reserve(struct resp_buffer *out, size_t more);
void resp_raw(struct resp_buffer *out, const void *data, size_t bytes);
/* Adds what `from` holds, which is empty afterwards. What is long is not copied behind what is short. */
void resp_take(struct resp_buffer *out, struct resp_buffer *from);
/* As it is, without a type: for the texts of INFO and /metrics. Cut after 1,023 bytes. */
void resp_format(struct resp_buffer *out, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
void resp_simple(struct resp_buffer *out, const char *text);
/* "-" and the text, line breaks replaced by spaces. The text begins with a code ("ERR ..."). */
void resp_error(struct resp_buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An error of the library, with the code that fits. */
void resp_quire_error(struct resp_buffer *out, const struct quire_error *err);
void resp_integer(struct resp_buffer *out, long long value);
void resp_field(struct resp_buffer *out, const char *name, long long value); /* of a map: its name, then the number */
void resp_bulk(struct resp_buffer *out, const void *data, size_t bytes);
/* Its first line; `bytes` bytes and an end of line are to follow. */
void resp_bulk_begin(struct resp_buffer *out, size_t bytes);
void resp_text(struct resp_buffer *out, const char *text);
void resp_null(struct resp_buffer *out);       /* RESP2: null bulk */
void resp_null_array(struct resp_buffer *out); /* RESP2: null array */
void resp_array(struct resp_buffer *out, size_t n);
void resp_map(struct resp_buffer *out, size_t n);        /* RESP2: flat array of 2n */
void resp_set(struct resp_buffer *out, size_t n);        /* RESP2: array */
void resp_double(struct resp_buffer *out, double value); /* RESP2: bulk string, shortest that reads back as the same */
void resp_bool(struct resp_buffer *out, bool value);     /* RESP2: integer 0 or 1 */
void resp_verbatim(struct resp_buffer *out, const char *text, size_t bytes); /* RESP2: bulk */

#endif
