/* support_loop.h - an HTTP server on one end of a socket pair, whose owner says what it was asked. */
#ifndef QUIRE_TESTS_SUPPORT_LOOP_H
#define QUIRE_TESTS_SUPPORT_LOOP_H

#include "gateway/http/http.h"
#include <event2/event.h>

struct loop {
    struct event_base *base;
    struct http_server *server;
    struct http_handlers handlers; /* before loop_open: what the test wants to do itself */
    void *context;
    struct http_options options;
    uint32_t begun, gone, done;
    char text[1 << 16]; /* what loop_ask has read */
    size_t text_bytes;
};

/* Sets options and handlers: the owner answers 200 and "METHOD target BYTES" of the whole body. */
void loop_init(struct loop *loop);
void loop_open(struct loop *loop);
void loop_close(struct loop *loop);
/* A connected client; the caller closes it. */
int loop_connect(struct loop *loop);
/* Turns the loop until nothing happens for `quiet_ms`. */
void loop_turn(struct loop *loop, int quiet_ms);
/* Writes n bytes in pieces of `piece` (0: at once), reads until nothing comes, into loop->text. True: the server has
 * closed. */
bool loop_ask(struct loop *loop, int client, const char *bytes, size_t n, size_t piece);
/* The status of the answer in loop->text, 0 where there is none. */
int loop_status(const struct loop *loop);

#endif
