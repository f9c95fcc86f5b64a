/* support_loop.c - see support_loop.h */
#include "tests/gateway/support_loop.h"
#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_begin(void *context, struct http_request *r)
{
    struct loop *loop = context;
    loop->begun++;
    http_read(r, 1 << 20);
}

static void on_body(void *context, struct http_request *r)
{
    char text[300];
    (void)context;
    int n = snprintf(text, sizeof text, "%s %s %zu", http_method(r), http_target(r), evbuffer_get_length(http_body(r)));
    http_answer(r, 200, NULL, text, (size_t)n);
}

static void on_writable(void *context, struct http_request *r)
{
    (void)context;
    (void)r;
}

static void on_gone(void *context, struct http_request *r)
{
    struct loop *loop = context;
    (void)r;
    loop->gone++;
}

static void on_done(void *context, struct http_request *r)
{
    struct loop *loop = context;
    (void)r;
    loop->done++;
}

static void on_error(void *context, int status, const char *text, struct fields *fields, struct evbuffer *body)
{
    (void)context;
    (void)status;
    fields_append(fields, "Content-Type", "text/plain");
    evbuffer_add(body, text, strlen(text));
}

void loop_init(struct loop *loop)
{
    memset(loop, 0, sizeof *loop);
    loop->handlers = (struct http_handlers){on_begin, on_body, on_writable, on_gone, on_done};
    loop->context = loop;
    loop->options = (struct http_options){.head_max = 32768,
                                          .fields_max = 100,
                                          .body_max = 1 << 20,
                                          .bodies_max = 8 << 20,
                                          .connections_max = 100,
                                          .head_timeout_ms = 30000,
                                          .idle_timeout_ms = 30000,
                                          .body_timeout_ms = 30000,
                                          .write_timeout_ms = 30000,
                                          .backlog = 10,
                                          .error = on_error};
}

void loop_open(struct loop *loop)
{
    struct quire_error err = {0};
    signal(SIGPIPE, SIG_IGN);
    loop->base = event_base_new();
    assert(loop->base);
    int rc = http_server_create(loop->base, &loop->options, &loop->handlers, loop->context, &loop->server, &err);
    assert(rc == 0);
    (void)rc;
}

void loop_close(struct loop *loop)
{
    http_server_destroy(loop->server);
    event_base_free(loop->base);
    assert(loop->begun == loop->done);
}

int loop_connect(struct loop *loop)
{
    int ends[2];
    int rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);
    assert(rc == 0);
    rc = http_server_adopt(loop->server, ends[1], NULL);
    assert(rc == 0);
    (void)rc;
    return ends[0];
}

void loop_turn(struct loop *loop, int quiet_ms)
{
    struct timeval tv = {quiet_ms / 1000, quiet_ms % 1000 * 1000};
    if (quiet_ms > 0) {
        event_base_loopexit(loop->base, &tv);
        event_base_dispatch(loop->base);
    } else
        event_base_loop(loop->base, EVLOOP_NONBLOCK);
}

/* True: the end of the stream. */
static bool read_text(struct loop *loop, int client)
{
    for (;;) {
        ssize_t n = read(client, loop->text + loop->text_bytes, sizeof loop->text - 1 - loop->text_bytes);
        if (n <= 0)
            return n == 0 || (errno != EAGAIN && errno != EINTR);
        loop->text_bytes += (size_t)n;
        loop->text[loop->text_bytes] = 0;
        if (loop->text_bytes == sizeof loop->text - 1)
            loop->text_bytes = 0; /* only the end of long answers is looked at */
    }
}

bool loop_ask(struct loop *loop, int client, const char *bytes, size_t n, size_t piece)
{
    bool closed = false;
    loop->text_bytes = 0;
    loop->text[0] = 0;
    while (n > 0 && !closed) {
        ssize_t sent = write(client, bytes, piece > 0 && piece < n ? piece : n);
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        } else if (errno != EAGAIN)
            break;
        loop_turn(loop, 0);
        closed = read_text(loop, client);
    }
    for (int quiet = 0; quiet < 3 && !closed; quiet++) {
        size_t before = loop->text_bytes;
        loop_turn(loop, 0);
        closed = read_text(loop, client);
        if (loop->text_bytes != before)
            quiet = 0;
    }
    return closed;
}

int loop_status(const struct loop *loop)
{
    return strncmp(loop->text, "HTTP/1.1 ", 9) == 0 ? atoi(loop->text + 9) : 0;
}
