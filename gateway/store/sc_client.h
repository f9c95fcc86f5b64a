/*
 * sc_client.h - connections to a quire-server: commands in, replies out, each with a deadline, none in anybody's way.
 *
 * A client keeps a few connections open (TCP, TLS or a unix socket), sends each command on one of them without waiting
 * for the replies of those before it, and calls back exactly once: with the reply, or with the reason why there is
 * none. A late reply is read, and dropped but for sc_call_late. After several failures in a row the breaker opens:
 * commands fail at once, and one attempt after a while finds out whether the server is back.
 *
 * Thread-safety: all on the thread of the event base. A callback is never called from within sc_call, so that the
 * caller's state is whole when it comes. A callback may call sc_call and sc_cancel; not sc_client_destroy.
 */
#ifndef QUIRE_GATEWAY_SC_CLIENT_H
#define QUIRE_GATEWAY_SC_CLIENT_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct ssl_ctx_st;
struct redisReply;
struct sc_client;
struct sc_call;

#define SC_CONNECTIONS_MAX 16u
#define SC_ARGUMENTS_MAX   65536u

struct sc_options {
    const char *address;         /* "host:port", "[v6]:port" or "unix:/path"; copied */
    const char *user, *password; /* NULL: no AUTH; user NULL: that of a password alone; copied */
    struct ssl_ctx_st *tls;      /* NULL: none; borrowed, lives longer than the client */
    const char *tls_name;        /* name in the certificate; NULL: the host; copied */
    unsigned connections;        /* 1..SC_CONNECTIONS_MAX */
    unsigned connect_ms;         /* a connection and its AUTH must be there by then */
    unsigned breaker_failures;   /* failures in a row that open the breaker; >= 1 */
    unsigned breaker_ms;         /* how long it stays open */
    size_t pending_bytes_max;    /* commands that wait to be sent; more fail with SC_BUSY */
    /* Replies are RESP3 and are not read: a callback gets a string that is the reply's bytes (errors as ever), at most
     * reply_bytes_max of them, or the connection is broken. Commands wait for a connection that is being made. */
    bool raw;
    size_t reply_bytes_max;
    /* With raw: where the server's default user needs no password, so that any password is right, no connection. */
    bool locked;
};

enum sc_outcome {
    SC_REPLY,   /* reply is there and is no error */
    SC_ERROR,   /* reply is an error of the server: a mistake of settings, no fault of the connection */
    SC_TIMEOUT, /* nothing came within the deadline */
    SC_DOWN,    /* no connection, or it broke before the reply; the command may have been carried out */
    SC_BUSY,    /* not sent: too much waits, the breaker is open, or there is no memory */
};

/* `why` is one sentence for people, valid during the call; NULL with SC_REPLY. The reply is the client's and ends with
 * the call. */
typedef void sc_done(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why);

/* QUIRE_EINVALID: an address that is none; QUIRE_ENOMEM. Connects in the background: the server need not be there. */
int sc_client_create(struct event_base *base, const struct sc_options *options, struct sc_client **out,
                     struct quire_error *err);
/* Calls that are under way end without their callbacks. NULL is fine. */
void sc_client_destroy(struct sc_client *client);

/* Sends a command; arguments are copied before it returns. The handle is valid until the callback, for sc_cancel. NULL
 * without memory for the call itself: then there is no callback, and the caller goes on as with SC_BUSY. */
struct sc_call *sc_call(struct sc_client *client, unsigned n, const char *const *arguments, const size_t *bytes,
                        unsigned deadline_ms, sc_done *done, void *context);
/* No callback any more; the server may still carry the command out. */
void sc_cancel(struct sc_call *call);
/* What is done with a reply, an error or not, that comes after sc_cancel or the deadline: it may bring something that
 * must be given back. The reply ends with the call; without this, it is dropped. */
typedef void sc_late(void *context, struct redisReply *reply);
void sc_call_late(struct sc_call *call, sc_late *late, void *context);

/* After each AUTH of a connection, and when the connection is lost: to set up caches and to tell /health. */
void sc_client_on_change(struct sc_client *client, void (*changed)(void *context, bool up), void *context);

struct sc_client_state {
    unsigned connections_up;
    bool breaker_open;
    bool refused; /* the server did not take user and password, the last time that it was asked */
    bool open;    /* refused is set because of the option locked */
    uint64_t calls, failures, timeouts, late_replies;
    size_t pending_bytes;
    char why[160]; /* the last failure; "" where there was none */
};
void sc_client_state(const struct sc_client *client, struct sc_client_state *out);

#endif
