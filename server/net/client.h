/*
 * client.h - a connection: requests in, replies out in the order of the requests.
 *
 * A command gives exactly one reply per request: at once or later (call/caller.h). Commands of one pipeline that wait
 * for the disk run at the same time; their replies leave in order all the same.
 */
#ifndef QUIRE_SERVER_CLIENT_H
#define QUIRE_SERVER_CLIENT_H

#include "server/net/loop.h"
#include "server/net/tls.h"

enum { PENDING_MAX = 256 }; /* deferred replies of one client; its further requests wait */

enum client_state {
    CLIENT_OPEN,      /* takes requests */
    CLIENT_DRAINING,  /* no further requests; ends when its replies have been sent */
    CLIENT_LINGERING, /* our side is closed; waits for the other's end, so that the last reply is not lost to a reset */
    CLIENT_DEAD       /* shut down; waits for its ops and deferred replies, then is freed */
};

struct transaction;

/* What a client that is closed for its memory had too much of. */
enum client_excess { EXCESS_NONE, EXCESS_REPLIES, EXCESS_ALL_CLIENTS };

/* Replies that are gathered while client->group names it, in order, into one (EXEC's) or for nobody. */
struct reply_group {
    struct pending *first, *last;
    unsigned n_waiting;                      /* deferred ones that are not there yet; and 1 of whoever gathers */
    void (*done)(struct reply_group *group); /* when n_waiting becomes 0 */
};

struct client {
    struct caller caller; /* first */
    struct loop *loop;
    struct client *next, *prev, *next_dirty, *next_resting;
    bool resting; /* its next requests wait: it is in the loop's list `resting` or `slowed` */
    int fd;
    enum client_state state;
    bool receiving, pausing, sending, dirty,
        eof; /* pausing: the receive is being cancelled until there is room again */
    bool authenticated;
    struct acl_user *user;   /* a reference */
    uint64_t acl_generation; /* of the table when `user` was fetched */
    uint64_t created_ms, last_ms, deadline_ms;
    uint64_t looked_ms; /* when the kernel was asked whether the other side is gone, for its silence */
    char *name, *library, *library_version;
    struct io_op recv, send, cancel;
    bool cancelling;                       /* `cancel` is the engine's */
    struct resp_account requests, replies; /* memory that it makes the server hold; client_memory.c */
    enum client_excess excess;
    struct resp_buffer in; /* bytes received; those from in_start on were not worked on yet */
    size_t in_start;
    size_t need, line_at; /* no further look at them before there are so many; wants_line: before the line there ends */
    bool wants_line;
    struct resp_buffer out, send_buffer; /* being written, being sent */
    size_t send_buffer_sent;
    uint64_t out_lsn, send_buffer_lsn;    /* do not leave before these are durable */
    struct client *next_held, *prev_held; /* of the lane's, while `held`: its send buffer waits for its LSN */
    bool held;
    struct tls_connection *tls; /* NULL: a plain connection */
    struct resp_buffer plain;   /* TLS: replies that are being encrypted into `send_buffer` */
    size_t plain_sent;
    bool goodbye;            /* TLS: the other side was told that no more will come */
    uint64_t window_ms;      /* since when it holds more replies than its share, or how fast it reads was last judged */
    size_t window_sent;      /* bytes of replies sent since then */
    uint64_t turn, turn_us;  /* of the lane, in which its requests took so long */
    uint64_t heavy_until_ms; /* its requests took long lately: until then each stands in line with others' like it */
    uint64_t unauthenticated_ms; /* since when it has not authenticated */
    struct pending *first, *last;
    unsigned n_pending;
    bool blocked;                      /* a barrier is pending: no further request before its reply */
    bool paused;                       /* its next request waits for the end of CLIENT PAUSE, or of a transaction */
    bool monitor;                      /* gets a line per command (MONITOR) */
    bool reply_off, reply_skip, muted; /* CLIENT REPLY; muted: of the command being run */
    bool no_evict, no_touch;           /* CLIENT NO-EVICT, NO-TOUCH: kept and shown */
    unsigned row;                      /* of the command being run, or run last; ROW_NONE: none yet */
    struct transaction *transaction;   /* MULTI, WATCH; owned */
    struct reply_group *group;         /* where replies go while EXEC runs */
};

/* The client of a caller of this host. */
static inline struct client *client_of(struct caller *caller)
{
    return (struct client *)(void *)caller;
}

/* What clients do for handlers. */
extern const struct host client_host;

/* Takes the socket over. NULL without memory (the socket is closed). */
struct client *client_create(struct loop *loop, int fd, bool tls);
/* Works on clients that were marked: replies, further requests, ends. */
void client_work_on_all(struct loop *loop);
/* Whether its time is over: it ends and makes no progress. */
bool client_is_late(const struct client *client);
/* Whether the other side has reset the connection, where nothing is being received that would tell, or where the
 * receive may have missed it. Notes, too, that it will send no more. Asks the kernel. */
bool client_peer_is_gone(struct client *client);
/* Sends what the journal has made durable meanwhile. On the lane's thread. */
void client_send_durable(struct loop *loop);
/* Has it worked on before the next wait. */
void client_mark(struct client *client);
/* Those that rest go on. */
void client_wake_resting(struct loop *loop);
/* Closes after what is pending was sent. */
void client_end(struct client *client);
/* Closes now. */
void client_kill(struct client *client);
/* As client_kill, and the connection is reset: for clients that broke a limit. */
void client_abort(struct client *client);
/* It speaks HTTP: a browser, or a server that was tricked into it, whose body may hold commands that somebody else
 * wrote. As in Redis it is closed, and no further line is read. */
void client_refuse_http(struct client *client);

/* ---- its memory: client_memory.c --------------------------------------------------------------------------------- */

/* Bytes of replies that were not sent yet. */
size_t client_unsent_bytes(const struct client *client);
/* Bytes received and not worked on yet. */
static inline size_t client_backlog_bytes(const struct client *client)
{
    return client->in.bytes - client->in_start;
}
/* What it makes the server hold: requests, replies, its transaction. */
static inline uint64_t client_memory_bytes(const struct client *client)
{
    return client->requests.held + client->replies.held;
}
/* The accounts of a new client. */
void client_memory_begin(struct client *client);
/* Whether so few replies of it wait that further requests are taken. */
bool client_has_room(const struct client *client);
/* Bytes of requests that it may have sent ahead before nothing more is received. */
size_t client_backlog_max(const struct client *client);
/* The most that may be received and not worked on; beyond it the client is closed. */
uint64_t client_query_max(const struct client *client);
/* Memory for a part of its transaction; false: it may take no more. */
bool client_memory_take(struct client *client, size_t bytes);
void client_memory_give(struct client *client, size_t bytes);
/* Frees what nobody will read: of a client that is dead. What the kernel is sending stays. */
void client_memory_drop(struct client *client);
/* Whether it holds more replies than its share and reads them too slowly. Judged once per window. */
bool client_reads_too_slowly(struct client *client);
/* Once a turn of the loop; twice a second: idle buffers are given back, the largest clients closed while all hold too
 * much. */
void client_memory_turn(struct loop *loop);
void client_memory_scan(struct loop *loop);
/* The limit of all clients' memory, 0: none; what they hold. Any thread. */
uint64_t client_memory_max(const struct server *server);
uint64_t client_memory_total(const struct server *server);

/* ---- its user: client_acl.c -------------------------------------------------------------------------------------- */

/* Whether its user is up to date and may do everything: no request needs a look at the ACL. */
static inline bool client_is_free(const struct client *client)
{
    return client->acl_generation ==
               atomic_load_explicit(&client->loop->server->acl.generation, memory_order_acquire) &&
           client->user->everything;
}
/* The user of a connection that has just been made or reset. */
void client_acl_begin(struct client *client);
/* Gives the client that user, if the password is right. Counts and logs a failure. */
bool client_authenticate(struct client *client, struct resp_arg name, struct resp_arg password);
/* The client's user as it is now. False where it was deleted or switched off: the client must go. */
bool client_acl_refresh(struct client *client);
/* Whether the request may run; otherwise an error reply was given, counted and logged. */
bool client_permits(struct client *client, unsigned row, const struct resp_arg *args, uint32_t n);
/* The table has changed: clients look for their users. context: the server. Any thread. */
void client_users_changed(void *context);

/* Bytes of requests, as they would come from a plain connection; and their end. */
void client_take_bytes(struct client *client, const uint8_t *bytes, size_t n);
void client_set_eof(struct client *client);

/* ---- TLS: client_tls.c; for clients with `tls` unless it says otherwise ------------------------------------------ */

bool client_tls_begin(struct client *client); /* sets `tls`; false: no memory */
void client_tls_end(struct client *client);   /* any client: frees what TLS holds */
void client_tls_received(struct client *client, const uint8_t *bytes, size_t n);
/* Fills `send_buffer`, whose bytes have all been sent, with what is to be sent next. */
void client_tls_next_send_buffer(struct client *client);
/* Any client: true when nothing is left to be said before our side is closed. */
bool client_tls_said_goodbye(struct client *client);
/* Any client: whether its handshake takes too long. */
bool client_tls_is_late(const struct client *client);

enum { CLIENT_ADDRESS_BYTES = 128 };
/* "1.2.3.4:5" or "[::1]:5" of the other side, or of ours; of a Unix socket its path and ":0" for both, as Redis has it;
 * "?:0" when the connection is gone. Asks the kernel. */
void client_address(const struct client *client, bool ours, char text[CLIENT_ADDRESS_BYTES]);

/* Whether it came by the Unix socket. Asks the kernel. */
bool client_is_unix(const struct client *client);

/* The buffer for the reply to the request being run. */
struct resp_buffer *client_reply(struct client *client);
/* The replies of a group, to the end of out; the group is empty afterwards. */
void client_group_take(struct client *client, struct reply_group *group, struct resp_buffer *out);
/* One less is waited for. */
void client_group_done(struct reply_group *group);
/* A line to a client in MONITOR, not a reply. */
void client_push(struct client *client, const void *bytes, size_t n);
void client_set_monitor(struct client *client, bool on);

#endif
