/*
 * client.h - a connection: requests in, replies out in the order of the requests.
 *
 * A command gives exactly one reply per request: at once (client_reply) or later (client_defer, pending_done). Commands
 * of one pipeline that wait for the disk run at the same time; their replies leave in order all the same.
 */
#ifndef QUIRE_SERVER_CLIENT_H
#define QUIRE_SERVER_CLIENT_H

#include "server/access/acl.h"
#include "server/net/server_priv.h"
#include "server/net/tls.h"

enum { PENDING_MAX = 256 }; /* deferred replies of one client; its further requests wait */

enum client_state {
    CLIENT_OPEN,      /* takes requests */
    CLIENT_DRAINING,  /* no further requests; ends when its replies have been sent */
    CLIENT_LINGERING, /* our side is closed; waits for the other's end, so that the last reply is not lost to a reset */
    CLIENT_DEAD       /* shut down; waits for its ops and deferred replies, then is freed */
};

struct fair_share;
struct reply_group;
struct transaction;
struct vector_plan;

/* A reply that is not there yet, or stands behind one that is not. First member of what a command keeps. */
struct pending {
    struct client *client;
    struct pending *next;
    struct resp_buffer out;
    unsigned row; /* of the command table */
    uint64_t started_us;
    uint64_t lsn; /* it does not leave before this is durable */
    bool ready, barrier, deferred;
    struct reply_group *group; /* it is part of; NULL: it stands in the client's line */
    bool muted;                /* CLIENT REPLY: the reply is not sent */
    struct slow_args *slow;    /* what SLOWLOG would show; owned, NULL: nothing */
    /* For SLOWLOG: what the command did, such as "pagegraph reads=12", while it still knows. May be NULL. */
    void (*describe)(const struct pending *p, char *text, size_t room);
};

/* Replies that are gathered while client->group names it, in order, into one (EXEC's) or for nobody. */
struct reply_group {
    struct pending *first, *last;
    unsigned n_waiting;                      /* deferred ones that are not there yet; and 1 of whoever gathers */
    void (*done)(struct reply_group *group); /* when n_waiting becomes 0 */
};

enum {
    LANE_WAITING_MAX = 4096, /* searches that wait for a task; beyond it a lane takes no further requests */
    ARGS_MAX = 65536         /* of one request */
};

struct client {
    struct lane *lane;
    struct client *next, *prev, *next_dirty, *next_resting;
    bool resting;        /* client_rest */
    uint64_t slice_turn; /* of the lane, in which it has written `slice` elements */
    unsigned slice;
    int fd;
    enum client_state state;
    bool receiving, pausing, sending, dirty,
        eof; /* pausing: the receive is being cancelled until there is room again */
    int protocol;
    bool authenticated;
    struct acl_user *user;   /* a reference */
    uint64_t acl_generation; /* of the table when `user` was fetched */
    uint64_t id, created_ms, last_ms, deadline_ms;
    char *name, *library, *library_version;
    struct io_op recv, send, cancel;
    bool cancelling; /* `cancel` is the engine's */
    uint8_t *in;     /* bytes received and not yet worked on */
    size_t in_start, in_bytes, in_capacity, need;
    struct resp_buffer out, flight; /* being written, being sent */
    size_t flight_sent;
    uint64_t out_lsn, flight_lsn;         /* do not leave before these are durable */
    struct client *next_held, *prev_held; /* of the lane's, while `held`: flight waits for its LSN */
    bool held;
    struct tls_connection *tls; /* NULL: a plain connection */
    struct resp_buffer plain;   /* TLS: replies that are being encrypted into `flight` */
    size_t plain_sent;
    bool goodbye;         /* TLS: the other side was told that no more will come */
    uint64_t sent_ms;     /* when the last bytes went out, or sending began */
    size_t pending_bytes; /* of replies that are ready and not yet in `out` */
    struct pending *first, *last;
    unsigned n_pending;
    bool blocked;                  /* a barrier is pending: no further request before its reply */
    struct fair_share *crowded_by; /* a tenant of it has so many searches waiting that no further request is taken */
    bool paused;                   /* its next request waits for the end of CLIENT PAUSE */
    bool monitor;                  /* gets a line per command (MONITOR) */
    bool reply_off, reply_skip, muted; /* CLIENT REPLY; muted: of the command being run */
    bool no_evict, no_touch;           /* CLIENT NO-EVICT, NO-TOUCH: kept and shown */
    unsigned row;                      /* of the command being run, or run last; ROW_NONE: none yet */
    struct transaction *transaction;   /* MULTI, WATCH; owned */
    struct reply_group *group;         /* where replies go while EXEC runs */
    struct vector_plan *plan;          /* of the transaction whose commands are looked at or run */
};

/* Takes the socket over. NULL without memory (the socket is closed). */
struct client *client_create(struct lane *lane, int fd, bool tls);
/* Works on clients that were marked: replies, further requests, ends. */
void lane_work_on_clients(struct lane *lane);
/* Whether its time is over: it ends and makes no progress, or its replies fill memory and it does not read them. */
bool client_is_late(const struct client *client);
/* Sends what the journal has made durable meanwhile. On the lane's thread. */
void lane_send_durable(struct lane *lane);
/* Has it worked on before the next wait. */
void client_mark(struct client *client);
/* Its next request waits until the lane has looked at its other clients: for commands that take long. */
void client_rest(struct client *client);
void lane_wake_resting(struct lane *lane);
/* Its next request waits some milliseconds: for writers where the store is behind. */
void client_slow(struct client *client);
/* Closes after what is pending was sent. */
void client_end(struct client *client);
/* Closes now. */
void client_kill(struct client *client);
/* As client_kill, and the connection is reset: for clients that broke a limit. */
void client_abort(struct client *client);

/* Whether its user is up to date and may do everything: no request needs a look at the ACL. */
static inline bool acl_is_free(const struct client *client)
{
    return client->acl_generation ==
               atomic_load_explicit(&client->lane->server->acl.generation, memory_order_acquire) &&
           client->user->everything;
}

/* Bytes of requests, as they would come from a plain connection; and their end. */
void client_take_bytes(struct client *client, const uint8_t *bytes, size_t n);
void client_set_eof(struct client *client);

/* ---- TLS: client_tls.c; for clients with `tls` unless it says otherwise ------------------------------------------ */

bool client_tls_begin(struct client *client); /* sets `tls`; false: no memory */
void client_tls_end(struct client *client);   /* any client: frees what TLS holds */
void client_tls_received(struct client *client, const uint8_t *bytes, size_t n);
/* Fills `flight`, whose bytes have all been sent, with what is to be sent next. */
void client_tls_next_flight(struct client *client);
/* Any client: true when nothing is left to be said before our side is closed. */
bool client_tls_said_goodbye(struct client *client);
/* Any client: whether its handshake takes too long. */
bool client_tls_is_late(const struct client *client);

enum { CLIENT_ADDRESS_BYTES = 64 };
/* "1.2.3.4:5" or "[::1]:5" of the other side, or of ours; "?:0" when the connection is gone. Asks the kernel. */
void client_address(const struct client *client, bool ours, char text[CLIENT_ADDRESS_BYTES]);

/* The buffer for the reply to the request being run. */
struct resp_buffer *client_reply(struct client *client);
/* An error reply: "ERR ...". */
void client_error(struct client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for an error of the library, with the code that fits. `out` is the reply's buffer. */
void reply_quire_error(struct resp_buffer *out, const struct quire_error *err);

/* A reply to come: `bytes` zeroed bytes that begin with struct pending, freed after the reply was handed on. With
 * barrier no request behind it starts before. NULL without memory: the client is closed then. */
void *client_defer(struct client *client, size_t bytes, bool barrier);
/* The reply that was just written does not leave before the journal calls `lsn` durable; 0: nothing to wait for. */
void client_wait_lsn(struct client *client, uint64_t lsn);
/* The replies of a group, to the end of out; the group is empty afterwards. */
void reply_group_take(struct client *client, struct reply_group *group, struct resp_buffer *out);
/* One less is waited for. */
void reply_group_done(struct reply_group *group);
/* The name of its user; valid until its next request. */
const char *client_user(const struct client *client);
/* A line to a client in MONITOR, not a reply. */
void client_push(struct client *client, const void *bytes, size_t n);
void client_set_monitor(struct client *client, bool on);
/* p->out holds the reply, which waits for p->lsn. p may be freed at once. */
void pending_done(struct pending *p);

#endif
