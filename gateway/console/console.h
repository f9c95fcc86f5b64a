/*
 * console.h - the page at /ui and its JSON API below /ui/api/ (docs/console-api.md).
 *
 * What it shows comes from the server, by connections of the user who looks: the server's ACL decides what that is.
 * Figures of the gateway itself are kept here: a ring of seconds and one of minutes, and the last 1,000 requests.
 *
 * One thread: the loop's. Everything is bounded: requests at once, users at once, bytes of an answer, both rings.
 */
#ifndef QUIRE_GATEWAY_CONSOLE_H
#define QUIRE_GATEWAY_CONSOLE_H

#include "quire.h"
#include <stdbool.h>
#include <stdint.h>

struct console;
struct encode;
struct evbuffer;
struct event_base;
struct http_request;
struct json_t;
struct settings;

struct console_options {
    struct encode *encode; /* makes vectors of texts; NULL: nothing does; borrowed */
    /* Adds what /health says to an object; 0, or QUIRE_ENOMEM. */
    int (*describe)(void *context, struct json_t *out);
    uint32_t (*connections)(void *context); /* clients of the gateway */
    /* Calls that failed since it began: to upstreams, and to the encoder. */
    void (*failures)(void *context, uint64_t *upstreams, uint64_t *encoder);
    void *context;
};

/* settings: borrowed, until console_reload gives others; not called where the setting ui is no. */
int console_create(struct event_base *base, const struct settings *settings, const struct console_options *options,
                   struct console **out, struct quire_error *err);
/* There are no requests any more. NULL is fine. */
void console_destroy(struct console *console);
/* ui, ui-hosts and ui-timeout change at once. */
void console_reload(struct console *console, const struct settings *settings);

/* True: the request was one of the console's, and is from now on. */
bool console_begin(struct console *console, struct http_request *r);

/* A request of the gateway that has ended. Texts are cut and copied; "" and NULL: none. */
struct console_request {
    const char *route, *cache, *reason, *category, *model, *upstream, *tenant, *question;
    double similarity; /* -1: none */
    uint64_t tokens_saved, cache_us, embed_us, upstream_us;
    bool joined, client_gone, upstream_failed;
};
/* NULL for console is fine: nothing is kept. */
void console_request_ended(struct console *console, const struct http_request *r, const struct console_request *end);
/* A question to the judge's model, and the tokens that it took (0: not known). NULL for console is fine. */
void console_judge_asked(struct console *console, uint64_t tokens);

#endif
