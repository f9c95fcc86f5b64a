/*
 * lane.c - a thread that serves sockets and disk from one ring.
 *
 * Each turn of the loop: one engine_poll submits every read and send that the last turn produced and waits for
 * completions, whose callbacks parse requests and step searches; then messages of other threads are run, then marked
 * clients are worked on, which queues the sends of the next turn. So a turn costs one system call whatever the number
 * of clients. Where several tenants share the lane, steps of searches are not run by completions but after them, those
 * of tenants with many searches in progress last, and one or a few in each turn (fair.c).
 *
 * Lane 0 also accepts, and gives each connection to the lane that has fewest. (A listening socket per lane with
 * SO_REUSEPORT spreads few connections badly, and lets a second server of the same user bind the port unnoticed.)
 *
 * A timer of 100 ms keeps the clock of idle lanes and looks for clients whose time is over.
 */
#include "io/error.h"
#include "io/journal.h"
#include "server/cache/cache_call.h"
#include "server/call/fair.h"
#include "server/commands/command.h"
#include "server/vector/links.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_US = 100000,
    LINK_SLICE_US = 150,
    SLICE_NS = 200000,
    STEPS_NS = 20000, /* of searches that stand back, between two looks at what has come */
    SCAN_MS = 500,
    RECV_BUFFERS = 256,
    RECV_BYTES = 16384,
    BATCH_US = 50,
    BATCH_MAX = 16
};
enum { EXPIRE_MS = 100, EXPIRE_US = 5000 }; /* at most a twentieth of a lane's time goes into expiring keys */

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Under inbox_lock. */
static void put_message(struct lane *lane, struct message *message)
{
    message->next = NULL;
    if (lane->inbox_first)
        lane->inbox_last->next = message;
    else
        lane->inbox_first = message;
    lane->inbox_last = message;
    atomic_store_explicit(&lane->has_mail, true, memory_order_release);
    /* under the lock: afterwards the lane may end, and its engine with it */
    if (lane->engine)
        engine_wake(lane->engine);
}

void lane_post(struct lane *lane, struct message *message)
{
    pthread_mutex_lock(&lane->inbox_lock);
    put_message(lane, message);
    pthread_mutex_unlock(&lane->inbox_lock);
}

bool lane_reach(struct lane *lane, struct message *message)
{
    pthread_mutex_lock(&lane->inbox_lock);
    /* a lane that ends takes its engine away and then runs what is there: nothing is posted in between */
    bool runs = lane->engine != NULL;
    if (runs)
        put_message(lane, message);
    pthread_mutex_unlock(&lane->inbox_lock);
    return runs;
}

void lane_run_messages(struct lane *lane)
{
    if (!atomic_load_explicit(&lane->has_mail, memory_order_acquire))
        return;
    pthread_mutex_lock(&lane->inbox_lock);
    struct message *m = lane->inbox_first;
    lane->inbox_first = lane->inbox_last = NULL;
    atomic_store_explicit(&lane->has_mail, false, memory_order_release);
    pthread_mutex_unlock(&lane->inbox_lock);
    while (m) {
        struct message *next = m->next;
        m->run(lane, m);
        m = next;
    }
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

struct arrival {
    struct message message;
    int fd;
    bool tls;
};

static void on_arrival(struct lane *lane, struct message *message)
{
    struct arrival *a = (struct arrival *)(void *)message;
    int fd = a->fd;
    bool tls = a->tls;
    free(a);
    if (lane->stopping) {
        close(fd);
        atomic_fetch_sub(&lane->n_clients, 1);
        return;
    }
    client_create(lane, fd, tls);
}

static void set_socket_options(const struct config *config, int fd)
{
    int one = 1, idle = (int)config->tcp_keepalive;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (idle > 0) {
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    }
}

static bool full(struct server *server)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < server->n_lanes; i++)
        n += atomic_load(&server->lanes[i].n_clients);
    return n >= server->config->maxclients;
}

static void refuse(struct server *server, int fd, bool tls)
{
    static const char text[] = "-ERR max number of clients reached\r\n";
    ssize_t sent = tls ? 0 : send(fd, text, sizeof text - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* a courtesy */
    close(fd);
    atomic_fetch_add(&server->rejected_connections, 1);
}

static void distribute(struct server *server, int fd, bool tls)
{
    struct lane *best = &server->lanes[0];
    for (unsigned i = 1; i < server->n_lanes; i++)
        if (atomic_load(&server->lanes[i].n_clients) < atomic_load(&best->n_clients))
            best = &server->lanes[i];
    set_socket_options(server->config, fd);
    if (best->index == 0) {
        atomic_fetch_add(&best->n_clients, 1);
        client_create(best, fd, tls);
        return;
    }
    struct arrival *a = malloc(sizeof *a);
    if (!a) {
        refuse(server, fd, tls);
        return;
    }
    atomic_fetch_add(&best->n_clients, 1);
    *a = (struct arrival){.message = {.run = on_arrival}, .fd = fd, .tls = tls};
    lane_post(best, &a->message);
}

static void complain_of_accept(struct lane *lane, int code)
{
    if (code == QUIRE_ECANCELLED || lane->now_ms - lane->last_complaint_ms < 1000)
        return;
    lane->last_complaint_ms = lane->now_ms;
    log_line(lane->server->log, LOG_LEVEL_WARNING, "accepting connections fails: %s%s", quire_error_text(code),
             code == QUIRE_ELIMIT ? " of open files: raise ulimit -n or lower maxclients" : "");
}

static void on_accept(struct io_op *op, int result, unsigned flags)
{
    struct lane *lane = op->owner;
    bool tls = lane->server->listeners_tls[op - lane->accepts];
    if (!(flags & IO_MORE))
        lane->accepting[op - lane->accepts] = false;
    if (result < 0) {
        complain_of_accept(lane, result);
    } else if (lane->stopping) {
        close(result);
    } else if (full(lane->server)) {
        refuse(lane->server, result, tls);
    } else {
        distribute(lane->server, result, tls);
    }
}

/* Also again, a tick after accepting failed. */
static void start_accepting(struct lane *lane)
{
    for (unsigned i = 0; i < lane->server->n_listeners; i++) {
        if (lane->accepting[i])
            continue;
        lane->accepts[i] =
            (struct io_op){.kind = IO_ACCEPT, .fd = lane->server->listeners[i], .done = on_accept, .owner = lane};
        lane->accepting[i] = true;
        engine_queue(lane->engine, &lane->accepts[i]);
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void close_stuck(struct lane *lane, struct client *c)
{
    log_line(lane->server->log, LOG_LEVEL_WARNING,
             "client %llu does not read its replies (a quarter of client-output-buffer-limit waits): closed",
             (unsigned long long)c->id);
    stat_add(&lane->stats.closed_output_limit, 1);
    client_abort(c);
}

/* Commands of the last second, by all lanes. RESETSTAT in between counts as none. */
static void measure_rate(struct server *server, uint64_t now_ms)
{
    uint64_t ops = 0, passed = now_ms - server->counted_ms;
    if (passed < 1000)
        return;
    for (unsigned i = 0; i < server->n_lanes; i++)
        ops += stat_get(&server->lanes[i].stats.commands);
    uint64_t more = ops > server->counted_ops ? ops - server->counted_ops : 0;
    atomic_store(&server->ops_per_second, server->counted_ms ? more * 1000 / passed : 0);
    server->counted_ops = ops;
    server->counted_ms = now_ms;
}

/* What /health and LATENCY say of the journal. */
static void watch_journal(struct server *server)
{
    struct quire_error err;
    if (!server->journal)
        return;
    int code = journal_health(server->journal, &err);
    atomic_store(&server->unhealthy, code == 0                ? NULL
                                     : code == QUIRE_ENOSPACE ? "writes are refused: the disk is full"
                                                              : "writes are refused: the log cannot be written");
    latency_add(server, "sync", journal_take_sync_us(server->journal));
}

/* Ends clients that idle, linger or hang beyond their time. */
static void scan_clients(struct lane *lane)
{
    uint64_t timeout_ms = lane->server->config->timeout * 1000;
    lane->last_scan_ms = lane->now_ms;
    cache_waits_scan(lane, lane->stopping);
    if (lane->index == 0) {
        measure_rate(lane->server, lane->now_ms);
        watch_journal(lane->server);
        metrics_scan(lane, lane->stopping);
    }
    for (struct client *c = lane->clients; c; c = c->next) {
        bool late = client_is_late(c);
        bool idle = timeout_ms && c->state == CLIENT_OPEN && !c->first && !c->paused && !c->monitor &&
                    lane->now_ms - c->last_ms >= timeout_ms;
        bool stop = lane->stopping && lane->now_ms >= lane->stop_deadline_ms;
        if (idle)
            stat_add(&lane->stats.closed_idle, 1);
        if (late && c->state == CLIENT_OPEN && !c->eof)
            close_stuck(lane, c);
        else if (client_tls_is_late(c))
            client_abort(c);
        else if (late || idle || stop)
            client_kill(c);
    }
    bool ends = lane->stopping && lane->now_ms >= lane->stop_deadline_ms;
    fair_sweep(lane, ends);
    if (ends)
        searcher_cancel(lane->searcher);
}

static void on_timer(struct io_op *op, int result, unsigned flags)
{
    struct lane *lane = op->owner;
    (void)flags;
    if (result == QUIRE_ECANCELLED || lane->stopped)
        return;
    engine_queue(lane->engine, op);
    searcher_sweep(lane->searcher);
    if (lane->index == 0 && !lane->stopping) {
        start_accepting(lane);
        metrics_accept(lane);
    }
}

/* Searches in line: when there are too many, clients' further requests wait in their buffers. */
static void watch_crowd(struct lane *lane)
{
    unsigned waiting = searcher_waiting(lane->searcher) + fair_waiting(lane);
    bool crowded = waiting > (lane->crowded ? LANE_WAITING_MAX / 2 : LANE_WAITING_MAX);
    bool over = lane->crowded && !crowded;
    lane->crowded = crowded;
    for (struct client *c = over ? lane->clients : NULL; c; c = c->next)
        if (c->in_bytes > c->in_start)
            client_mark(c);
}

void lane_end_pause(struct lane *lane)
{
    lane->pausing = false;
    for (struct client *c = lane->clients; c; c = c->next) {
        if (!c->paused)
            continue;
        c->paused = false;
        client_mark(c);
    }
}

static void publish_engine(struct lane *lane)
{
    const struct engine_stats *s = engine_stats(lane->engine);
    stat_set(&lane->stats.engine_reads, s->reads);
    stat_set(&lane->stats.engine_read_bytes, s->read_bytes);
    stat_set(&lane->stats.engine_read_errors, s->read_errors);
    stat_set(&lane->stats.engine_submissions, s->submissions);
    stat_set(&lane->stats.reads_in_flight, s->reads_in_flight);
    stat_set(&lane->stats.reads_in_flight_peak, s->reads_in_flight_peak);
    stat_set(&lane->stats.reads_waiting, s->reads_waiting);
    stat_set(&lane->stats.searches_at_once, fair_at_once(lane));
    /* what the kernel does not know shows at the first use */
    if (strcmp(lane->engine_note, engine_note(lane->engine)) != 0) {
        pthread_mutex_lock(&lane->inbox_lock);
        snprintf(lane->engine_note, sizeof lane->engine_note, "%s", engine_note(lane->engine));
        pthread_mutex_unlock(&lane->inbox_lock);
    }
}

static void zero(_Atomic uint64_t *counts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (stat_get(&counts[i]))
            stat_set(&counts[i], 0);
}

void lane_reset_stats(struct lane *lane)
{
    struct lane_stats *s = &lane->stats;
    uint64_t tls_clients = stat_get(&s->tls_clients);
#define X(name) stat_set(&s->name, 0);
    LANE_STATS(X)
#undef X
    stat_set(&s->tls_clients, tls_clients);
    zero(s->latency_counts, LATENCY_BUCKETS);
    atomic_store(&s->latency.sum, 0);
    zero(s->row_counts, (size_t)n_commands * ROW_BUCKETS);
    for (unsigned row = 0; row < n_commands; row++) {
        struct command_stats *c = &s->commands_by_row[row];
        stat_set(&c->calls, 0);
        stat_set(&c->us, 0);
        stat_set(&c->failed, 0);
        stat_set(&c->rejected, 0);
        stat_set(&c->latency.sum, 0);
    }
    /* the codes stay: others may be reading them */
    for (unsigned i = 0; i < atomic_load(&s->n_errors); i++)
        stat_set(&s->errors[i].count, 0);
    publish_engine(lane);
    fair_reset_stats(lane);
}

/* ---- stop -------------------------------------------------------------------------------------------------------- */

static void on_stop(struct lane *lane, struct message *message)
{
    (void)message;
    lane->stopping = true;
    lane->now_ms = clock_us() / 1000;
    lane->stop_deadline_ms = lane->now_ms;
    if (!atomic_load(&lane->server->stop_now))
        lane->stop_deadline_ms += lane->server->config->shutdown_timeout * 1000;
    for (struct client *c = lane->clients; c; c = c->next)
        client_end(c);
    /* what they wait for may never come: they get a miss */
    cache_waits_scan(lane, true);
}

void lane_stop(struct lane *lane)
{
    lane->stop_message.run = on_stop;
    lane_post(lane, &lane->stop_message);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* How many completions to wait for. When requests come thick, a lane that wakes for each spends its time waking, and
 * so do those who send; then it waits for a sixteenth of a millisecond's worth, but not longer than BATCH_US. With
 * few requests it wakes for each. */
static unsigned wanted_completions(struct lane *lane)
{
    uint64_t passed_us = lane->now_us - lane->window_us;
    if (passed_us >= 1000) {
        uint64_t per_batch = lane->window_receives * 1000 / passed_us / 16;
        lane->wanted = per_batch < 1 ? 1 : per_batch > BATCH_MAX ? BATCH_MAX : (unsigned)per_batch;
        lane->window_us = lane->now_us;
        lane->window_receives = 0;
    }
    return lane->wanted;
}

void lane_enter(struct lane *lane)
{
    if (lane->gate_depth++ == 0)
        gate_enter(&lane->server->gate, lane->index);
}

void lane_leave(struct lane *lane)
{
    if (--lane->gate_depth == 0)
        gate_leave(&lane->server->gate, lane->index);
}

/* Keys whose time is over, in this lane's share of the shards; and the clock of last accesses. */
static void tend_keys(struct lane *lane)
{
    struct server *server = lane->server;
    lane->last_expire_ms = lane->now_ms;
    if (lane->index == 0)
        atomic_store_explicit(&server->keyspace.second, (unsigned)(lane->now_ms / 1000), memory_order_relaxed);
    keyspace_expire_due(&server->keyspace, lane->index, server->n_lanes, &lane->expire_next, EXPIRE_US);
}

/* Steps that stand back for others: what was queued for those is the device's meanwhile. */
static void work_on_steps(struct lane *lane)
{
    if (!searcher_has_steps(lane->searcher))
        return;
    engine_flush(lane->engine);
    searcher_work(lane->searcher, STEPS_NS);
}

static void serve(struct lane *lane)
{
    lane->timer = (struct io_op){.kind = IO_TIMER, .timeout_us = TICK_US, .done = on_timer, .owner = lane};
    engine_queue(lane->engine, &lane->timer);
    if (lane->index == 0) {
        start_accepting(lane);
        metrics_accept(lane);
    }
    while (!(lane->stopping && atomic_load(&lane->n_clients) == 0 && !metrics_busy(lane))) {
        unsigned wanted = wanted_completions(lane);
        bool busy = links_work(lane, LINK_SLICE_US) || lane->resting || fair_is_ready(lane) ||
                    searcher_has_steps(lane->searcher);
        uint64_t before_us = engine_stats(lane->engine)->reads_in_flight ? clock_us() : 0;
        int rc = engine_poll(lane->engine, busy ? 0 : wanted, busy ? 0 : wanted > 1 ? BATCH_US : UINT64_MAX);
        if (rc < 0) {
            log_line(lane->server->log, LOG_LEVEL_WARNING, "lane %u: the engine failed: %s", lane->index,
                     quire_error_text(rc));
            usleep(10000);
        }
        lane->now_us = clock_us();
        lane->now_ms = lane->now_us / 1000;
        fair_note_wait(lane, before_us ? before_us : lane->now_us, lane->now_us);
        work_on_steps(lane);
        stat_set(&lane->turned_ms, lane->now_ms);
        lane_enter(lane);
        lane_run_messages(lane);
        if (lane->now_ms - lane->last_expire_ms >= EXPIRE_MS)
            tend_keys(lane);
        if (lane->now_ms - lane->last_scan_ms >= SCAN_MS ||
            (lane->stopping && lane->now_ms - lane->last_scan_ms >= SCAN_MS / 10))
            scan_clients(lane);
        watch_crowd(lane);
        if (lane->pausing && lane->now_ms >= atomic_load(&lane->server->pause_until_ms))
            lane_end_pause(lane);
        lane->turn++;
        fair_work(lane);
        lane_wake_resting(lane);
        lane_work_on_clients(lane);
        lane_leave(lane);
        publish_engine(lane);
    }
    lane->stopped = true;
}

static int open_lane(struct lane *lane, struct quire_error *err)
{
    const struct config *config = lane->server->config;
    struct engine_config engine = {.kind = (enum quire_engine_kind)config->engine,
                                   .reads_max = (unsigned)config->reads_max,
                                   .entries = 1024,
                                   .recv_buffers = RECV_BUFFERS,
                                   .recv_bytes = RECV_BYTES,
                                   .one_thread = true};
    struct searcher_config searcher = {.tasks_max = (unsigned)config->searches_max};
    struct engine *made = NULL;
    int rc = engine_create(&engine, &made, err);
    if (rc < 0)
        return rc;
    rc = searcher_create(made, &searcher, &lane->searcher, err);
    if (rc == 0)
        rc = fair_open(lane, err);
    if (rc == 0 && lane->server->caches)
        rc = cache_scratch_create(&lane->cache_scratch, err);
    if (rc < 0) {
        fair_close(lane);
        searcher_destroy(lane->searcher);
        lane->searcher = NULL;
        engine_destroy(made);
        return rc;
    }
    pthread_mutex_lock(&lane->inbox_lock);
    lane->engine = made;
    lane->engine_name = engine_name(made);
    snprintf(lane->engine_note, sizeof lane->engine_note, "%s", engine_note(made));
    pthread_mutex_unlock(&lane->inbox_lock);
    return 0;
}

static void close_lane(struct lane *lane)
{
    /* what still comes is run by whoever joins this thread */
    pthread_mutex_lock(&lane->inbox_lock);
    struct engine *engine = lane->engine;
    lane->engine = NULL;
    pthread_mutex_unlock(&lane->inbox_lock);
    lane_run_messages(lane);
    links_fini(lane);
    fair_close(lane);
    searcher_destroy(lane->searcher);
    lane->searcher = NULL;
    cache_scratch_destroy(lane->cache_scratch);
    lane->cache_scratch = NULL;
    engine_destroy(engine);
    resp_request_fini(&lane->request);
    resp_buffer_fini(&lane->discard);
    slowlog_clear(lane);
}

/* A lane that wakes runs at once: with a short slice the kernel (6.12 and later, EEVDF) lets it take the processor from
 * threads that work in the background, instead of letting those finish their milliseconds. Others ignore it. */
static void ask_for_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = sizeof attributes, .policy = SCHED_OTHER, .runtime_ns = SLICE_NS};
    if (sched_getscheduler(0) != SCHED_OTHER)
        return;
    attributes.nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void *run_lane(void *context)
{
    struct lane *lane = context;
    struct server *server = lane->server;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    ask_for_short_slices();
    int rc = open_lane(lane, &lane->start_error);
    pthread_mutex_lock(&server->start_lock);
    lane->start_code = rc;
    server->lanes_ready++;
    pthread_cond_broadcast(&server->start_ready);
    /* no lane serves before all are there */
    while (!server->lanes_go)
        pthread_cond_wait(&server->start_ready, &server->start_lock);
    pthread_mutex_unlock(&server->start_lock);
    if (rc < 0)
        return NULL;
    lane->now_us = lane->window_us = clock_us();
    lane->now_ms = lane->now_us / 1000;
    lane->wanted = 1;
    serve(lane);
    close_lane(lane);
    return NULL;
}

int lane_start(struct server *server, unsigned index, struct quire_error *err)
{
    struct lane *lane = &server->lanes[index];
    lane->server = server;
    lane->index = index;
    pthread_mutex_init(&lane->inbox_lock, NULL);
    histogram_init(&lane->stats.latency, lane->stats.latency_counts, LATENCY_SUB_BITS, LATENCY_BITS);
    lane->stats.row_counts = calloc(COMMANDS_MAX * ROW_BUCKETS, sizeof *lane->stats.row_counts);
    if (!lane->stats.row_counts)
        return error_set(err, QUIRE_ENOMEM, "no memory for the figures of lane %u", index);
    for (unsigned row = 0; row < COMMANDS_MAX; row++)
        histogram_init(&lane->stats.commands_by_row[row].latency, lane->stats.row_counts + row * ROW_BUCKETS,
                       ROW_SUB_BITS, ROW_BITS);
    int errnum = pthread_create(&lane->thread, NULL, run_lane, lane);
    if (errnum)
        return error_set_errno(err, errnum, "start", "a lane's thread");
    lane->thread_started = true;
    return 0;
}

void lane_join(struct lane *lane)
{
    if (!lane->thread_started)
        return;
    pthread_join(lane->thread, NULL);
    lane->thread_started = false;
}
