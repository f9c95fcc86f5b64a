/*
 * loop.h - the event loops of quire-server and the server that they belong to.
 *
 * Threads: each loop runs in its own and is the host of one lane (call/lane.h); a worker runs what may block (opening
 * and closing indexes). What a loop owns is touched by its thread only.
 */
#ifndef QUIRE_SERVER_LOOP_H
#define QUIRE_SERVER_LOOP_H

#include "server/access/acl.h"
#include "server/access/command_table.h"
#include "server/call/planner.h"
#include <pthread.h>

enum {
    LANES_MAX = 256,
    LISTENERS_MAX = 32,
    LOOP_FILES_FOR_OTHERS = 256 /* descriptors that are not clients: rings, indexes, logs */
};

struct client;
struct latency;
struct loop;
struct metrics;
struct server;
struct slowlog;
struct snapshots;

/* What runs requests: commands/command.c. All on the loop's thread. */
struct dispatcher {
    /* Around a batch of requests. */
    void (*begin)(struct loop *loop);
    void (*end)(struct loop *loop);
    /* Runs one request. */
    void (*run)(struct client *c, const struct resp_arg *args, uint32_t n);
    /* Whether a request waits: for the end of CLIENT PAUSE, or, where lane.shut says so, of a transaction. */
    bool (*must_wait)(const struct client *c, const struct resp_arg *args, uint32_t n);
    /* A command's reply is deferred; is there. */
    void (*deferred)(struct client *c, struct pending *p);
    void (*ended)(struct client *c, struct pending *p);
    /* A connection, a loop ends: what was kept for it is freed. */
    void (*forget_client)(struct client *c);
    void (*forget_loop)(struct loop *loop);
};

struct loop {
    struct lane lane; /* first */
    struct server *server;
    pthread_t thread;
    bool thread_started;
    /* of the engine, kept under inbox_lock: INFO on other lanes reads them while this one closes */
    const char *engine_name;
    char engine_note[256];

    pthread_mutex_t inbox_lock;
    struct message *inbox_first, *inbox_last;
    struct message *mail, *last_mail; /* taken out of the inbox, not run yet; the lane's */
    atomic_bool has_mail;

    struct client *clients;                /* all of this lane */
    struct client *dirty;                  /* to be worked on before the next wait */
    struct client *resting, *last_resting; /* whose next requests wait for the lane's next turn; the first goes first */
    unsigned n_resting;
    unsigned n_rested;     /* that did so in the last turn */
    struct client *woken;  /* the one of them whose requests are run now */
    struct client *slowed; /* whose next requests wait for slow_timer */
    struct io_op slow_timer;
    bool slow_armed;
    struct client *held;        /* whose replies wait for the journal */
    atomic_bool holds_replies;  /* there are such */
    atomic_bool durable_posted; /* durable_message is on its way */
    struct message durable_message;
    unsigned expire_next;        /* of keyspace_expire_due */
    atomic_uint n_clients;       /* of this lane, and those on their way to it */
    struct resp_request request; /* of the request being run */
    const struct resp_arg *args; /* of the command being run; NULL: none is */
    uint32_t n_args;
    struct resp_buffer discard; /* takes the replies that a client does not want (CLIENT REPLY) */
    struct resp_account discard_account;
    _Atomic uint64_t client_bytes;   /* what its clients hold; client_memory.c */
    _Atomic uint64_t largest_client; /* about what the largest of them holds */
    _Atomic uint64_t evicted_bytes;  /* what those that are being closed for it still hold; not among client_bytes */
    bool pressed;                    /* all clients hold so much that each may keep little */
    struct message evict_message;    /* from other lanes: the largest client is here */
    atomic_bool evict_posted;
    struct slowlog *slowlog;             /* NULL: nothing was slow yet; the dispatcher's */
    atomic_uint n_monitors;              /* clients of this lane in MONITOR */
    struct io_op accepts[LISTENERS_MAX]; /* lane 0 */
    struct io_op timer;
    bool accepting[LISTENERS_MAX], stopping, stopped;
    bool backlogged; /* too many searches wait: no further requests are taken */
    bool pausing;    /* some clients wait for the end of CLIENT PAUSE, or of a transaction that takes long: */
    bool shut_out;   /* for the latter */
    uint64_t last_complaint_ms, last_tls_complaint_ms, last_stranger_ms, last_http_ms;
    unsigned tls_complaints_kept_back; /* since the last one that was logged */
    uint64_t stop_deadline_ms, last_scan_ms, last_expire_ms;
    uint64_t window_us, window_receives; /* since window_us */
    _Atomic uint64_t turned_ms;          /* when the loop last went round; read by others */
    unsigned wanted;                     /* completions worth waking for */
    uint64_t stamp_us, stamp_coarse_us;  /* when the last command ended that was timed; command.c */
    unsigned run_row, run_n;             /* commands that ended since then: run_n of this row */
    bool times_each;                     /* there are no runs of more than one */
    struct message stop_message, acl_message;
    atomic_bool acl_message_posted;
    int start_code; /* of the thread's start, under server->start_lock */
    struct quire_error start_error;
};

struct server {
    struct service service;
    const struct dispatcher *dispatcher;
    const struct planner *planner; /* of transactions */
    const struct lane_hook *const *hooks;
    unsigned n_hooks;
    struct acl acl;
    struct snapshots *snapshots; /* admin/snapshot.c */
    struct latency *latency;     /* commands/latency.c */
    struct metrics *metrics;     /* admin/metrics.c */
    struct loop *loops;          /* service.n_lanes, cache-line aligned */
    struct tls *tls;             /* NULL: none */
    int listeners[LISTENERS_MAX], metrics_listeners[LISTENERS_MAX];
    bool listeners_tls[LISTENERS_MAX];
    unsigned n_listeners, port; /* port: the first one's; 0: there is none but a Unix socket */
    char *unix_path;            /* the Unix socket's, while it listens; owned. Of that file: */
    uint64_t unix_device, unix_inode;
    bool listens_beyond; /* loopback */
    unsigned n_metrics_listeners, metrics_port;
    int stop_fd;
    uint64_t started_ms; /* wall clock */
    char run_id[41];
    atomic_uint_fast64_t next_client_id, next_slow_id, rejected_connections;
    atomic_uint n_monitors;           /* of all lanes: nobody looks further while it is 0 */
    _Atomic uint64_t pause_until_ms;  /* monotonic; 0: no CLIENT PAUSE */
    atomic_bool pause_writes_only;    /* it is for commands that write */
    atomic_bool stop_now;             /* SHUTDOWN NOW: replies under way are not waited for */
    _Atomic(const char *) unhealthy;  /* why /health says no; NULL: all is well. Static text */
    _Atomic uint64_t ops_per_second;  /* over the last second or so; kept by lane 0 */
    uint64_t counted_ops, counted_ms; /* lane 0's: commands of all lanes when it was last taken */
    uint64_t files_max;               /* descriptors that the process may open */
    pthread_mutex_t start_lock;
    pthread_cond_t start_ready;
    unsigned lanes_ready;
    bool lanes_go;
};

/* The loop of a lane, which is its first member. */
static inline struct loop *loop_of(struct lane *lane)
{
    return (struct loop *)(void *)lane;
}

int loop_start(struct server *server, unsigned index, struct quire_error *err);
/* Asks the loop to end; loop_join waits for it. */
void loop_stop(struct loop *loop);
void loop_join(struct loop *loop);
/* Runs the messages of a loop that has been joined. */
void loop_run_messages(struct loop *loop);
/* lane_post for lanes of this host. */
void loop_post(struct lane *lane, struct message *message);
/* As lane_post, unless the loop has ended: false then, and the message stays the caller's. */
bool loop_reach(struct loop *loop, struct message *message);
/* Its clients that waited for the end of CLIENT PAUSE, or of a transaction, go on, and may have to wait again. On its
 * thread. */
void loop_end_pause(struct loop *loop);
/* In the middle of a transaction that takes long, with the gate shut: bytes come and go, and requests that need neither
 * keys nor sets are answered. On its thread, from a slice. */
void loop_serve_others(struct loop *loop);
/* The gate was shut and is open: all lanes go on with what has waited. Any thread. */
void loop_gate_opened(struct server *server);
/* Puts the lane's statistics to zero, but for those that say what is now. On its thread. */
void loop_reset_stats(struct loop *loop);
/* Replies that wait for the journal are looked at again. context: the server. Any thread. */
void loop_wake_all(void *context);
/* How many clients the limit of open files leaves room for. */
uint64_t loop_clients_possible(const struct server *server);

/* Opens the sockets that `bind`, `port`, `tls-port` and `unixsocket` name, and those of `metrics-bind` and
 * `metrics-port`. */
int listen_open(struct server *server, struct quire_error *err);
void listen_close(struct server *server);
struct sockaddr;
/* 127.0.0.0/8, ::1, or a Unix socket: who is there is on this machine. */
bool listen_is_loopback(const struct sockaddr *address);

#endif
