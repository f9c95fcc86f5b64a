/*
 * server_priv.h - what the files of server/ share: the server, its lanes, and the figures they keep.
 *
 * Threads: each lane runs in its own, a worker runs what may block (opening and closing indexes). What a lane owns is
 * touched by its thread only; `struct lane_stats` is written by its lane and read by any (relaxed atomics). Threads
 * talk through lane_post and worker_post.
 */
#ifndef QUIRE_SERVER_SERVER_PRIV_H
#define QUIRE_SERVER_SERVER_PRIV_H

#include "cache/core/cache.h"
#include "index/search/search.h"
#include "index/store/store.h"
#include "io/clock.h"
#include "io/histogram.h"
#include "server/access/acl.h"
#include "server/admin/metrics.h"
#include "server/admin/snapshot.h"
#include "server/commands/latency.h"
#include "server/commands/slowlog.h"
#include "server/keys/gate.h"
#include "server/keys/keyspace.h"
#include "server/protocol/resp.h"
#include "server/server.h"
#include <pthread.h>
#include <stdatomic.h>

/* Latencies of searches are kept in us, within 3.2 %, up to 71 minutes: 3.7 KB a lane. */
enum { LATENCY_SUB_BITS = 4, LATENCY_BITS = 32, LATENCY_BUCKETS = HISTOGRAM_BUCKETS(LATENCY_SUB_BITS, LATENCY_BITS) };
/* Those of commands within 12.5 %: 1 KB for each that was called. */
enum { ROW_SUB_BITS = 2, ROW_BITS = 32, ROW_BUCKETS = HISTOGRAM_BUCKETS(ROW_SUB_BITS, ROW_BITS) };
enum {
    LANES_MAX = 256,
    LISTENERS_MAX = 32,
    COMMANDS_MAX = 512,
    ROW_NONE = COMMANDS_MAX - 1,
    ERRORS_MAX = 64 /* kinds of errors that are counted by their code */
};

/* ---- figures ----------------------------------------------------------------------------------------------------- */

#define LANE_STATS(X)                                                                                                  \
    X(commands)                                                                                                        \
    X(connections)                                                                                                     \
    X(net_input_bytes)                                                                                                 \
    X(net_output_bytes)                                                                                                \
    X(searches)                                                                                                        \
    X(search_reads)                                                                                                    \
    X(search_rounds)                                                                                                   \
    X(search_cpu_ns)                                                                                                   \
    X(search_errors)                                                                                                   \
    X(fetches)                                                                                                         \
    X(fetch_reads)                                                                                                     \
    X(closed_output_limit)                                                                                             \
    X(closed_query_limit)                                                                                              \
    X(closed_protocol)                                                                                                 \
    X(closed_idle)                                                                                                     \
    X(engine_reads)                                                                                                    \
    X(engine_read_bytes)                                                                                               \
    X(engine_read_errors)                                                                                              \
    X(engine_submissions)                                                                                              \
    X(reads_in_flight)                                                                                                 \
    X(reads_in_flight_peak)                                                                                            \
    X(reads_waiting)                                                                                                   \
    X(searches_at_once)                                                                                                \
    X(output_bytes_peak)                                                                                               \
    X(error_replies)                                                                                                   \
    X(auth_failures)                                                                                                   \
    X(keyspace_hits)                                                                                                   \
    X(keyspace_misses)                                                                                                 \
    X(acl_denied_commands)                                                                                             \
    X(acl_denied_keys)                                                                                                 \
    X(tls_connections)                                                                                                 \
    X(tls_clients)                                                                                                     \
    X(tls_failures)

struct command_stats {
    _Atomic uint64_t calls, us, failed, rejected;
    struct histogram latency; /* us */
};

/* Errors by their first word. An entry is whole before n_errors counts it, and stays. */
struct error_stats {
    char code[32];
    _Atomic uint64_t count;
};

struct lane_stats {
#define X(name) _Atomic uint64_t name;
    LANE_STATS(X)
#undef X
    struct histogram latency; /* of searches, us */
    _Atomic uint64_t latency_counts[LATENCY_BUCKETS];
    struct command_stats commands_by_row[COMMANDS_MAX];
    _Atomic uint64_t *row_counts; /* of their histograms; owned, COMMANDS_MAX * ROW_BUCKETS, untouched until used */
    struct error_stats errors[ERRORS_MAX];
    atomic_uint n_errors;
};

/* Only the owning lane writes, so no locked instruction is needed. */
static inline void stat_add(_Atomic uint64_t *stat, uint64_t n)
{
    atomic_store_explicit(stat, atomic_load_explicit(stat, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline void stat_set(_Atomic uint64_t *stat, uint64_t n)
{
    atomic_store_explicit(stat, n, memory_order_relaxed);
}

static inline uint64_t stat_get(const _Atomic uint64_t *stat)
{
    return atomic_load_explicit(stat, memory_order_relaxed);
}

/* ---- messages and jobs ------------------------------------------------------------------------------------------- */

struct lane;

/* Runs once on the lane it is posted to. Embedded in what it is about. */
struct message {
    struct message *next;
    void (*run)(struct lane *lane, struct message *message);
};

/* Runs once on the worker's thread. */
struct job {
    struct job *next;
    void (*run)(struct job *job);
};

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ready;
    struct job *first, *last;
    bool started, stopping;
};

int worker_start(struct worker *worker, struct quire_error *err);
/* Before worker_start and after worker_stop the job runs at once. */
void worker_post(struct worker *worker, struct job *job);
/* Runs what was posted, then ends the thread. */
void worker_stop(struct worker *worker);

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

struct client;
struct fair;
struct get_call;
struct lane_fair;

struct lane {
    struct server *server;
    unsigned index;
    pthread_t thread;
    bool thread_started;
    struct engine *engine;
    const char
        *engine_name; /* of engine, kept under inbox_lock: INFO on other lanes reads them while this one closes */
    char engine_note[256];
    struct searcher *searcher;
    struct lane_fair *fair;              /* whose search is next; fair.c */
    struct cache_scratch *cache_scratch; /* NULL: there are no caches */
    struct get_call *cache_waits;        /* SC.GETs that wait for an answer; cmd_cache_get.c */

    pthread_mutex_t inbox_lock;
    struct message *inbox_first, *inbox_last;
    atomic_bool has_mail;

    struct client *clients; /* all of this lane */
    struct client *dirty;   /* to be worked on before the next wait */
    struct client *resting; /* whose next requests wait for the lane's next turn */
    struct client *slowed;  /* whose next requests wait for slow_timer */
    struct io_op slow_timer;
    bool slow_armed;
    uint64_t turn;              /* of the loop */
    struct client *held;        /* whose replies wait for the journal */
    atomic_bool holds_replies;  /* there are such */
    atomic_bool durable_posted; /* durable_message is on its way */
    struct message durable_message;
    unsigned gate_depth;       /* inside the gate so many times */
    unsigned expire_next;      /* of keyspace_expire_due */
    struct collection **links; /* with rows that wait for links; references; owned */
    unsigned n_links;
    atomic_uint n_clients;       /* of this lane, and those on their way to it */
    struct resp_request request; /* of the request being run */
    const struct resp_arg *args; /* of the command being run; NULL: none is */
    uint32_t n_args;
    struct resp_buffer discard; /* takes the replies that a client does not want (CLIENT REPLY) */
    struct slowlog slowlog;
    atomic_uint n_monitors;              /* clients of this lane in MONITOR */
    struct io_op accepts[LISTENERS_MAX]; /* lane 0 */
    struct io_op timer;
    bool accepting[LISTENERS_MAX], stopping, stopped;
    bool crowded; /* too many searches wait: no further requests are taken */
    bool pausing; /* some clients wait for the end of CLIENT PAUSE */
    uint64_t last_complaint_ms, last_tls_complaint_ms, last_cache_complaint_ms;
    unsigned tls_complaints_kept_back; /* since the last one that was logged */
    uint64_t now_ms, stop_deadline_ms, last_scan_ms, last_expire_ms;
    uint64_t now_us, window_us, window_receives; /* since window_us */
    _Atomic uint64_t turned_ms;                  /* when the loop last went round; read by others */
    unsigned wanted;                             /* completions worth waking for */
    uint64_t stamp_us, stamp_coarse_us;          /* when the last command ended that was timed; command.c */
    unsigned run_row, run_n;                     /* commands that ended since then: run_n of this row */
    bool times_each;                             /* there are no runs of more than one */
    struct message stop_message, acl_message;
    atomic_bool acl_message_posted;
    int start_code; /* of the thread's start, under server->start_lock */
    struct quire_error start_error;
    struct lane_stats stats;
};

struct server {
    struct config *config;
    struct log *log;
    struct keyspace keyspace;
    struct acl acl;
    struct store *store;   /* NULL: no data folder */
    struct caches *caches; /* of the store; NULL: none */
    bool caches_begun;
    struct cache_scratch *cache_scratch; /* the worker's */
    struct journal *journal;             /* of the store; NULL: none. See server_journal_set */
    void (*journal_close)(void *context);
    void *journal_context;
    struct gate gate; /* of the lanes, and the worker behind them */
    struct snapshots snapshots;
    struct latency latency;
    struct metrics metrics; /* lane 0's */
    struct worker worker;
    struct fair *fair; /* tenants and their limits */
    unsigned n_lanes;
    struct lane *lanes; /* n_lanes, cache-line aligned */
    struct tls *tls;    /* NULL: none */
    int listeners[LISTENERS_MAX];
    bool listeners_tls[LISTENERS_MAX];
    unsigned n_listeners, port; /* port: the first one's */
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
    uint16_t command_index[2 * COMMANDS_MAX]; /* open addressing: row + 1 of the command table, 0: free */
};

int lane_start(struct server *server, unsigned index, struct quire_error *err);
/* Asks the lane to end; lane_join waits for it. */
void lane_stop(struct lane *lane);
void lane_join(struct lane *lane);
/* Runs the messages of a lane that has been joined. */
void lane_run_messages(struct lane *lane);
/* From any thread. */
void lane_post(struct lane *lane, struct message *message);
/* The same, unless the lane has ended: false then, and the message stays the caller's. */
bool lane_reach(struct lane *lane, struct message *message);
/* Its clients that waited for the end of CLIENT PAUSE go on. On its thread. */
void lane_end_pause(struct lane *lane);
/* Puts the lane's figures to zero, but for those that say what is now. On its thread. */
void lane_reset_stats(struct lane *lane);

/* Around whatever runs requests or changes keys on a lane's thread; nests. gate.h says what for. */
void lane_enter(struct lane *lane);
void lane_leave(struct lane *lane);
/* The journal that writes go to and replies wait for, before the lanes start. close(context) ends it, once, when lanes
 * have ended and keys were let go. */
void server_journal_set(struct server *server, struct journal *journal, void (*close)(void *context), void *context);
/* How many clients the limit of open files leaves room for. */
uint64_t server_clients_possible(const struct server *server);

/* Opens the sockets that `bind`, `port` and `tls-port` name, and those of `metrics-bind` and `metrics-port`. */
int listen_open(struct server *server, struct quire_error *err);
void listen_close(struct server *server);

#endif
