/*
 * pass.h - a request passed on unread: the client's bytes to an upstream, the upstream's to the client.
 *
 * What changes on the way is what HTTP asks for: fields of the hop (RFC 9110 7.6.1), Host, the framing of bodies, and
 * the credential where the upstream has a key of its own. Bytes go on as they come; when one side is full the other is
 * not read.
 */
#ifndef QUIRE_GATEWAY_PASS_H
#define QUIRE_GATEWAY_PASS_H

#include "quire.h"
#include <stdbool.h>
#include <stdint.h>

struct fields;
struct http_request;
struct upstream_set;
struct upstream_result;

/* How it ended, for who started it (access log, metrics). */
struct pass_end {
    const char *upstream; /* "" : none was asked */
    bool client_gone, upstream_failed;
    uint64_t connect_us, head_us, total_us; /* of the upstream */
};

/* Bytes of the body that have come already, and what goes on in their place. */
struct pass_edit {
    uint64_t at;
    size_t bytes; /* 0: nothing is edited */
    const char *text;
};

struct pass_options {
    const char *model;          /* chooses the upstream; NULL: see upstream.h */
    const struct fields *extra; /* fields for the client's answer besides the upstream's; NULL: none */
    struct pass_edit edit;
    uint32_t head_timeout_ms; /* 0: the setting */
    /* What the options point to is copied. `done` is called once, after the answer's end, in place of
     * http_handlers.done of the request; NULL: nobody. */
    void (*done)(void *context, struct http_request *r, const struct pass_end *end);
    void *context;
    const char *key; /* sent in the place of the client's (fields_set_key); NULL: the client's own, or that of the
                        upstream's settings */
};

/* Owns `r` (http_own) from now on. Bytes of its body that were read and not drained go first. May be called any time
 * before an answer's head: in `begin`, or after http_read with a limit. Errors are answered; without memory even for
 * that the request is aborted, and its owner, which has not changed then, gets `done`. */
void pass_begin(struct http_request *r, struct upstream_set *set, const struct pass_options *options);

#endif
