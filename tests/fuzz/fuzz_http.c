/*
 * fuzz_http.c - any bytes as requests to the gateway's HTTP server, cut at any places.
 *
 * The first byte is a seed of the places. What owners saw (methods, targets, bodies) and what was answered (statuses,
 * whether the connection was closed) is the same as when all came at once; each request that began has ended; nothing
 * is left when the client has gone.
 */
#include "gateway/http/http.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 15, STORY_BYTES = 1 << 17 };

static void require(bool right)
{
    if (!right)
        abort();
}

/* What owners saw and what was answered. */
struct story {
    struct {
        char text[STORY_BYTES];
        size_t n;
    } owners, answers;
    uint32_t begun, done;
    bool closed;
};

static struct story *now; /* whose connection it is */

/* To the owners' side of the story. */
static void tell(const void *bytes, size_t n)
{
    if (now->owners.n + n > STORY_BYTES)
        n = STORY_BYTES - now->owners.n;
    memcpy(now->owners.text + now->owners.n, bytes, n);
    now->owners.n += n;
}

static void on_begin(void *context, struct http_request *r)
{
    (void)context;
    now->begun++;
    http_read(r, 1 << 20);
}

static void on_body(void *context, struct http_request *r)
{
    (void)context;
    struct evbuffer *body = http_body(r);
    size_t n = evbuffer_get_length(body);
    require(http_body_is_whole(r));
    tell(http_method(r), strlen(http_method(r)));
    tell(" ", 1);
    tell(http_target(r), strlen(http_target(r)));
    const struct fields *fields = http_fields(r);
    for (uint32_t i = 0; i < fields->n; i++) {
        tell(fields_name(fields, i), strlen(fields_name(fields, i)) + 1);
        tell(fields_value(fields, i), strlen(fields_value(fields, i)) + 1);
    }
    if (n > 0)
        tell(evbuffer_pullup(body, -1), n);
    http_answer(r, 200, NULL, ".", 1);
}

static void on_nothing(void *context, struct http_request *r)
{
    (void)context;
    (void)r;
}

static void on_done(void *context, struct http_request *r)
{
    (void)context;
    (void)r;
    now->done++;
}

static struct event_base *base;
static struct http_server *server;

static void set_up(void)
{
    static const struct http_handlers handlers = {on_begin, on_body, on_nothing, on_nothing, on_done};
    static const struct http_options options = {.head_max = 4096,
                                                .fields_max = 20,
                                                .body_max = 8192,
                                                .bodies_max = 1 << 20,
                                                .connections_max = 10,
                                                .head_timeout_ms = 1000000,
                                                .idle_timeout_ms = 1000000,
                                                .body_timeout_ms = 1000000,
                                                .write_timeout_ms = 1000000};
    signal(SIGPIPE, SIG_IGN);
    base = event_base_new();
    require(base && http_server_create(base, &options, &handlers, NULL, &server, NULL) == 0);
}

/* The statuses of what the server has sent; whether it closed. */
static void hear(int client)
{
    static char bytes[1 << 16];
    ssize_t n;
    while ((n = read(client, bytes, sizeof bytes - 1)) > 0) {
        bytes[n] = 0;
        for (char *at = bytes; (at = strstr(at, "HTTP/1.1 ")) && now->answers.n + 12 <= STORY_BYTES; at += 9) {
            memcpy(now->answers.text + now->answers.n, at, 12);
            now->answers.n += 12;
        }
    }
    if (n == 0 || (n < 0 && errno != EAGAIN))
        now->closed = true;
}

static void tell_story(struct story *story, const uint8_t *data, size_t size, uint32_t seed)
{
    int ends[2];
    now = story;
    story->owners.n = story->answers.n = 0;
    story->begun = story->done = 0;
    story->closed = false;
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    require(http_server_adopt(server, ends[1], NULL) == 0);
    for (size_t at = 0; at < size && !story->closed;) {
        size_t n = size - at;
        if (seed > 0) {
            seed = seed * 1664525u + 1013904223u;
            n = (seed >> 16) % 4 == 0 ? (seed >> 18) % 300 + 1 : (seed >> 18) % 9 + 1;
            n = n < size - at ? n : size - at;
        }
        ssize_t sent = write(ends[0], data + at, n);
        if (sent < 0 && errno != EAGAIN)
            break; /* the server has closed */
        at += sent > 0 ? (size_t)sent : 0;
        event_base_loop(base, EVLOOP_NONBLOCK);
        hear(ends[0]);
    }
    for (int i = 0; i < 8; i++) {
        event_base_loop(base, EVLOOP_NONBLOCK);
        hear(ends[0]);
    }
    close(ends[0]);
    for (int i = 0; i < 4 && http_server_connections(server) > 0; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
    require(http_server_connections(server) == 0 && http_server_requests(server) == 0);
    require(http_server_body_bytes(server) == 0 && story->begun == story->done);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct story whole, cut;
    if (size < 1 || size > INPUT_BYTES_MAX)
        return 0;
    if (!server)
        set_up();
    tell_story(&whole, data + 1, size - 1, 0);
    tell_story(&cut, data + 1, size - 1, data[0] + 1u);
    require(whole.owners.n == cut.owners.n && memcmp(whole.owners.text, cut.owners.text, whole.owners.n) == 0);
    require(whole.answers.n == cut.answers.n && memcmp(whole.answers.text, cut.answers.text, whole.answers.n) == 0);
    require(whole.closed == cut.closed && whole.begun == cut.begun);
    return 0;
}
