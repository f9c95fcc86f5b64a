/*
 * loop.c - a thread that serves sockets and disk from one ring.
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
#include "index/search/search.h"
#include "io/error.h"
#include "io/journal.h"
#include "io/schedule.h"
#include "server/call/fair.h"
#include "server/keys/keyspace.h"
#include "server/net/client.h"
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_US = 100000,
    LONG_US = 2000,
    MAIL_US = 500,    /* that messages take in a turn; the rest waits for the next */
    STEPS_NS = 20000, /* of searches that stand back, between two looks at what has come */
    SCAN_MS = 500,
    RECV_BUFFERS = 256,
    RECV_BYTES = 16384,
    WINDOW_US = 1000, /* over which received requests are counted */
    BATCH_US = 50,
    BATCH_MAX = 16
};
enum { EXPIRE_MS = 100, EXPIRE_US = 5000 }; /* at most a twentieth of a lane's time goes into expiring keys */

/* Runs `call` for each hook of the server that has the member. */
#define EACH_HOOK(loop, member, call)                                                                                  \
    for (unsigned i_hook = 0; i_hook < (loop)->server->n_hooks; i_hook++) {                                            \
        const struct lane_hook *hook = (loop)->server->hooks[i_hook];                                                  \
        if (hook->member)                                                                                              \
            call;                                                                                                      \
    }

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Under inbox_lock. */
static void put_message(struct loop *loop, struct message *message)
{
    message->next = NULL;
    if (loop->inbox_first)
        loop->inbox_last->next = message;
    else
        loop->inbox_first = message;
    loop->inbox_last = message;
    atomic_store_explicit(&loop->has_mail, true, memory_order_release);
    /* under the lock: afterwards the lane may end, and its engine with it */
    if (loop->lane.engine)
        engine_wake(loop->lane.engine);
}

void loop_post(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    pthread_mutex_lock(&loop->inbox_lock);
    put_message(loop, message);
    pthread_mutex_unlock(&loop->inbox_lock);
}

bool loop_reach(struct loop *loop, struct message *message)
{
    pthread_mutex_lock(&loop->inbox_lock);
    /* a lane that ends takes its engine away and then runs what is there: nothing is posted in between */
    bool runs = loop->lane.engine != NULL;
    if (runs)
        put_message(loop, message);
    pthread_mutex_unlock(&loop->inbox_lock);
    return runs;
}

/* Takes the inbox's messages behind those that were taken before. */
static void take_mail(struct loop *loop)
{
    if (!atomic_load_explicit(&loop->has_mail, memory_order_acquire))
        return;
    pthread_mutex_lock(&loop->inbox_lock);
    struct message *first = loop->inbox_first, *last = loop->inbox_last;
    loop->inbox_first = loop->inbox_last = NULL;
    atomic_store_explicit(&loop->has_mail, false, memory_order_release);
    pthread_mutex_unlock(&loop->inbox_lock);
    if (!first)
        return;
    if (loop->mail)
        loop->last_mail->next = first;
    else
        loop->mail = first;
    loop->last_mail = last;
}

/* For that many microseconds at most; when ten thousand have come at once, clients are not kept waiting for all. */
static void run_messages(struct loop *loop, uint64_t budget_us)
{
    take_mail(loop);
    uint64_t began_us = loop->mail && budget_us != UINT64_MAX ? clock_us() : 0;
    while (loop->mail) {
        struct message *m = loop->mail;
        loop->mail = m->next;
        m->run(&loop->lane, m);
        if (budget_us != UINT64_MAX && clock_us() - began_us >= budget_us)
            return;
    }
}

void loop_run_messages(struct loop *loop)
{
    run_messages(loop, UINT64_MAX);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

struct arrival {
    struct message message;
    int fd;
    bool tls;
};

static void on_arrival(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    struct arrival *a = (struct arrival *)(void *)message;
    int fd = a->fd;
    bool tls = a->tls;
    free(a);
    if (loop->stopping) {
        close(fd);
        atomic_fetch_sub(&loop->n_clients, 1);
        return;
    }
    client_create(loop, fd, tls);
}

static const char too_many[] = "-ERR max number of clients reached\r\n";
static const char denied[] =
    "-DENIED this server listens beyond loopback, and its default user has no password: it is in "
    "protected mode and talks to clients of its own machine only. Set requirepass, or "
    "protected-mode no where the network keeps strangers out.\r\n";

static void refuse(struct server *server, int fd, bool tls, const char *text)
{
    ssize_t sent = tls ? 0 : send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* a courtesy */
    close(fd);
    atomic_fetch_add(&server->rejected_connections, 1);
}

/* Protected mode, as Redis has it: a server that came to be open to everybody (ACL SETUSER default nopass) while it
 * listens beyond loopback talks to clients of this machine only. */
static bool is_protected(struct server *server, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    return server->listens_beyond && server->service.config->protected_mode && acl_default_is_open(&server->acl) &&
           getpeername(fd, (struct sockaddr *)&address, &bytes) == 0 &&
           !listen_is_loopback((const struct sockaddr *)&address);
}

static void distribute(struct server *server, int fd, bool tls)
{
    struct loop *best = &server->loops[0];
    for (unsigned i = 1; i < server->service.n_lanes; i++)
        if (atomic_load(&server->loops[i].n_clients) < atomic_load(&best->n_clients))
            best = &server->loops[i];
    int one = 1, idle = (int)server->service.config->tcp_keepalive;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (idle > 0) {
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    }
    if (best->lane.index == 0) {
        atomic_fetch_add(&best->n_clients, 1);
        client_create(best, fd, tls);
        return;
    }
    struct arrival *a = malloc(sizeof *a);
    if (!a) {
        refuse(server, fd, tls, too_many);
        return;
    }
    atomic_fetch_add(&best->n_clients, 1);
    *a = (struct arrival){.message = {.run = on_arrival}, .fd = fd, .tls = tls};
    lane_post(&best->lane, &a->message);
}

static void on_accept(struct io_op *op, int result, unsigned flags)
{
    struct loop *loop = op->owner;
    struct server *server = loop->server;
    bool tls = server->listeners_tls[op - loop->accepts];
    uint64_t n = 0;
    if (!(flags & IO_MORE))
        loop->accepting[op - loop->accepts] = false;
    if (result < 0) {
        if (result == QUIRE_ECANCELLED || loop->lane.now_ms - loop->last_complaint_ms < 1000)
            return;
        loop->last_complaint_ms = loop->lane.now_ms;
        log_line(server->service.log, LOG_LEVEL_WARNING, "accepting connections fails: %s%s", quire_error_text(result),
                 result == QUIRE_ELIMIT ? " of open files: raise ulimit -n or lower maxclients" : "");
        return;
    }
    for (unsigned i = 0; i < server->service.n_lanes; i++)
        n += atomic_load(&server->loops[i].n_clients);
    if (loop->stopping)
        close(result);
    else if (n >= server->service.config->maxclients)
        refuse(server, result, tls, too_many);
    else if (is_protected(server, result))
        refuse(server, result, tls, denied);
    else
        distribute(server, result, tls);
}

/* Also again, a tick after accepting failed. */
static void start_accepting(struct loop *loop)
{
    for (unsigned i = 0; i < loop->server->n_listeners; i++) {
        if (loop->accepting[i])
            continue;
        loop->accepts[i] =
            (struct io_op){.kind = IO_ACCEPT, .fd = loop->server->listeners[i], .done = on_accept, .owner = loop};
        loop->accepting[i] = true;
        engine_queue(loop->lane.engine, &loop->accepts[i]);
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Commands of the last second, by all lanes. RESETSTAT in between counts as none. */
static void measure_rate(struct server *server, uint64_t now_ms)
{
    uint64_t ops = 0, passed = now_ms - server->counted_ms;
    if (passed < 1000)
        return;
    for (unsigned i = 0; i < server->service.n_lanes; i++)
        ops += lane_stat_get(&server->loops[i].lane.stats.commands);
    uint64_t more = ops > server->counted_ops ? ops - server->counted_ops : 0;
    atomic_store(&server->ops_per_second, server->counted_ms ? more * 1000 / passed : 0);
    server->counted_ops = ops;
    server->counted_ms = now_ms;
}

/* One line a second and lane at most: who knocks in a loop must not fill the disk. */
static void complain_of_stranger(const struct client *c)
{
    struct loop *loop = c->loop;
    char address[CLIENT_ADDRESS_BYTES];
    lane_stat_add(&loop->lane.stats.closed_unauthenticated, 1);
    if (loop->lane.now_ms - loop->last_stranger_ms < 1000)
        return;
    loop->last_stranger_ms = loop->lane.now_ms;
    client_address(c, false, address);
    log_line(loop->server->service.log, LOG_LEVEL_NOTICE,
             "client %llu (%s) did not authenticate within authentication-timeout (%llu s): closed",
             (unsigned long long)c->caller.id, address,
             (unsigned long long)loop->server->service.config->authentication_timeout);
}

/* Ends clients that idle, linger or hang beyond their time. */
static void scan_clients(struct loop *loop)
{
    const struct config *config = loop->server->service.config;
    uint64_t timeout_ms = config->timeout * 1000, authentication_ms = config->authentication_timeout * 1000;
    loop->last_scan_ms = loop->lane.now_ms;
    EACH_HOOK(loop, scan, hook->scan(&loop->lane, loop->stopping))
    if (loop->lane.index == 0)
        measure_rate(loop->server, loop->lane.now_ms);
    for (struct client *c = loop->clients; c; c = c->next) {
        bool late = client_is_late(c);
        bool idle = timeout_ms && c->state == CLIENT_OPEN && !c->first && !c->paused && !c->monitor &&
                    loop->lane.now_ms - c->last_ms >= timeout_ms;
        bool stop = loop->stopping && loop->lane.now_ms >= loop->stop_deadline_ms;
        if (idle)
            lane_stat_add(&loop->lane.stats.closed_idle, 1);
        bool stranger = authentication_ms && c->state == CLIENT_OPEN && !c->authenticated &&
                        loop->lane.now_ms - c->unauthenticated_ms >= authentication_ms;
        if (client_reads_too_slowly(c)) {
            log_line(loop->server->service.log, LOG_LEVEL_WARNING,
                     "client %llu does not read its replies (a quarter of %s waits): closed",
                     (unsigned long long)c->caller.id,
                     c->authenticated ? "client-output-buffer-limit" : "unauthenticated-output-limit");
            lane_stat_add(&loop->lane.stats.closed_output_limit, 1);
            client_abort(c);
        } else if (client_tls_is_late(c)) {
            client_abort(c);
        } else if (stranger) {
            complain_of_stranger(c);
            client_abort(c);
        } else if (late || idle || stop || client_peer_is_gone(c)) {
            client_kill(c);
        }
    }
    client_memory_scan(loop);
    bool ends = loop->stopping && loop->lane.now_ms >= loop->stop_deadline_ms;
    fair_expire(&loop->lane, ends);
    if (ends)
        searcher_cancel(loop->lane.searcher);
}

static void on_timer(struct io_op *op, int result, unsigned flags)
{
    struct loop *loop = op->owner;
    (void)flags;
    if (result == QUIRE_ECANCELLED || loop->stopped)
        return;
    engine_queue(loop->lane.engine, op);
    searcher_drop_retired(loop->lane.searcher);
    if (loop->stopping)
        return;
    if (loop->lane.index == 0)
        start_accepting(loop);
    EACH_HOOK(loop, tick, hook->tick(&loop->lane))
}

/* Searches in line: when there are too many, clients' further requests wait in their buffers. */
static void watch_backlog(struct loop *loop)
{
    unsigned waiting = searcher_waiting(loop->lane.searcher) + fair_waiting(&loop->lane);
    bool backlogged = waiting > (loop->backlogged ? LANE_WAITING_MAX / 2 : LANE_WAITING_MAX);
    bool over = loop->backlogged && !backlogged;
    loop->backlogged = backlogged;
    for (struct client *c = over ? loop->clients : NULL; c; c = c->next)
        if (client_backlog_bytes(c) > 0)
            client_mark(c);
}

void loop_end_pause(struct loop *loop)
{
    loop->pausing = loop->shut_out = false;
    for (struct client *c = loop->clients; c; c = c->next) {
        if (!c->paused)
            continue;
        c->paused = false;
        client_mark(c);
    }
}

static void publish_engine(struct loop *loop)
{
    const struct engine_stats *s = engine_stats(loop->lane.engine);
    lane_stat_set(&loop->lane.stats.engine_reads, s->reads);
    lane_stat_set(&loop->lane.stats.engine_read_bytes, s->read_bytes);
    lane_stat_set(&loop->lane.stats.engine_read_errors, s->read_errors);
    lane_stat_set(&loop->lane.stats.engine_submissions, s->submissions);
    lane_stat_set(&loop->lane.stats.reads_in_flight, s->reads_in_flight);
    lane_stat_set(&loop->lane.stats.reads_in_flight_peak, s->reads_in_flight_peak);
    lane_stat_set(&loop->lane.stats.reads_waiting, s->reads_waiting);
    lane_stat_set(&loop->lane.stats.searches_at_once, fair_at_once(&loop->lane));
    /* what the kernel does not know shows at the first use */
    if (strcmp(loop->engine_note, engine_note(loop->lane.engine)) != 0) {
        pthread_mutex_lock(&loop->inbox_lock);
        snprintf(loop->engine_note, sizeof loop->engine_note, "%s", engine_note(loop->lane.engine));
        pthread_mutex_unlock(&loop->inbox_lock);
    }
}

static void zero(_Atomic uint64_t *counts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (lane_stat_get(&counts[i]))
            lane_stat_set(&counts[i], 0);
}

void loop_reset_stats(struct loop *loop)
{
    struct lane_stats *s = &loop->lane.stats;
    uint64_t tls_clients = lane_stat_get(&s->tls_clients);
#define X(name) lane_stat_set(&s->name, 0);
    LANE_STATS(X)
#undef X
    lane_stat_set(&s->tls_clients, tls_clients);
    zero(s->latency_counts, LATENCY_BUCKETS);
    atomic_store(&s->latency.sum, 0);
    zero(s->row_counts, (size_t)n_commands * ROW_BUCKETS);
    for (unsigned row = 0; row < n_commands; row++) {
        struct command_stats *c = &s->commands_by_row[row];
        lane_stat_set(&c->calls, 0);
        lane_stat_set(&c->us, 0);
        lane_stat_set(&c->failed, 0);
        lane_stat_set(&c->rejected, 0);
        lane_stat_set(&c->latency.sum, 0);
    }
    /* the codes stay: others may be reading them */
    for (unsigned i = 0; i < atomic_load(&s->n_errors); i++)
        lane_stat_set(&s->errors[i].count, 0);
    publish_engine(loop);
    fair_reset_stats(&loop->lane);
}

/* ---- the journal ------------------------------------------------------------------------------------------------- */

static void on_durable(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    (void)message;
    atomic_store(&loop->durable_posted, false);
    client_send_durable(loop);
}

/* On the journal's thread: one message per lane that waits, however often the journal calls. send_buffer_waits in
 * client.c says why none is missed. */
void loop_wake_all(void *context)
{
    struct server *s = context;
    for (unsigned i = 0; i < s->service.n_lanes; i++) {
        struct loop *loop = &s->loops[i];
        if (!atomic_load(&loop->holds_replies) || atomic_exchange(&loop->durable_posted, true))
            continue;
        loop->durable_message.run = on_durable;
        lane_post(&loop->lane, &loop->durable_message);
    }
}

/* ---- stop -------------------------------------------------------------------------------------------------------- */

static void on_stop(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    (void)message;
    loop->stopping = true;
    loop->lane.now_ms = clock_us() / 1000;
    loop->stop_deadline_ms = loop->lane.now_ms;
    if (!atomic_load(&loop->server->stop_now))
        loop->stop_deadline_ms += loop->server->service.config->shutdown_timeout * 1000;
    for (struct client *c = loop->clients; c; c = c->next)
        client_end(c);
    /* what they wait for may never come: they get a miss */
    EACH_HOOK(loop, stop, hook->stop(&loop->lane))
}

void loop_stop(struct loop *loop)
{
    loop->stop_message.run = on_stop;
    lane_post(&loop->lane, &loop->stop_message);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* Sets how many completions to wait for. When requests come thick, a lane that wakes for each spends its time waking,
 * and so do those who send; then it waits for a sixteenth of a millisecond's worth, but not longer than BATCH_US. With
 * few requests it wakes for each. */
static void adapt_wanted(struct loop *loop)
{
    uint64_t passed_us = loop->lane.now_us - loop->window_us;
    if (passed_us < WINDOW_US)
        return;
    uint64_t per_batch = loop->window_receives * 1000 / passed_us / 16;
    loop->wanted = per_batch < 1 ? 1 : per_batch > BATCH_MAX ? BATCH_MAX : (unsigned)per_batch;
    loop->window_us = loop->lane.now_us;
    loop->window_receives = 0;
}

/* Waits for completions, whose callbacks parse requests and step searches. */
static void poll_engine(struct loop *loop)
{
    struct lane *lane = &loop->lane;
    bool busy = false;
    adapt_wanted(loop);
    EACH_HOOK(loop, work, busy |= hook->work(lane))
    /* what a hook has ended is sent in this turn: loop->dirty */
    busy = busy || loop->dirty || loop->resting || searcher_has_steps(lane->searcher) ||
           ((loop->mail || fair_is_ready(lane)) && !lane_is_shut(lane));
    uint64_t before_us = engine_stats(lane->engine)->reads_in_flight ? clock_us() : 0;
    if (lane->service->journal)
        journal_help(lane->service->journal, lane->now_us); /* what the replies that go out now say is written */
    int rc = engine_poll(lane->engine, busy ? 0 : loop->wanted, busy ? 0 : loop->wanted > 1 ? BATCH_US : UINT64_MAX);
    if (rc < 0) {
        log_line(lane->service->log, LOG_LEVEL_WARNING, "lane %u: the engine failed: %s", lane->index,
                 quire_error_text(rc));
        usleep(10000);
    }
    lane->now_us = clock_us();
    lane->now_ms = lane->now_us / 1000;
    fair_note_wait(lane, before_us ? before_us : lane->now_us, lane->now_us);
}

/* Searches that waited for their turn, and requests of clients that have much to do. Replies to others are the kernel's
 * before; where the searches took long, the requests wait for the next turn, so that what comes meanwhile waits for one
 * long thing only. */
static void work_on_long(struct loop *loop)
{
    engine_flush(loop->lane.engine);
    uint64_t began_us = clock_us();
    fair_work(&loop->lane);
    if (clock_us() - began_us < LONG_US)
        client_wake_resting(loop);
    else
        loop->n_rested = 0;
    client_work_on_all(loop);
}

/* Requests that need neither keys nor sets are answered; clients with others wait (paused), and rest no longer. */
static void work_while_shut(struct loop *loop)
{
    loop->lane.turn++;
    client_work_on_all(loop);
    client_wake_resting(loop);
    client_work_on_all(loop);
}

void loop_serve_others(struct loop *loop)
{
    struct lane *lane = &loop->lane;
    assert(lane->gate_depth > 0 && lane_is_shut(lane) && !lane->shut && !loop->args);
    lane->shut = true;
    (void)engine_poll(lane->engine, 0, 0); /* what fails shows in the next turn */
    lane->now_us = clock_us();
    lane->now_ms = lane->now_us / 1000;
    work_while_shut(loop);
    engine_flush(lane->engine);
    lane->shut = false;
}

/* Whatever has waited, mail and paused clients and slices, is found by a turn: no message is needed. */
void loop_gate_opened(struct server *s)
{
    for (unsigned i = 0; i < s->service.n_lanes; i++) {
        struct loop *loop = &s->loops[i];
        pthread_mutex_lock(&loop->inbox_lock);
        if (loop->lane.engine)
            engine_wake(loop->lane.engine);
        pthread_mutex_unlock(&loop->inbox_lock);
    }
}

/* One turn: what has come, what other threads sent, whose time is over, whose search is next, then the clients. While a
 * transaction has keys and sets for itself, only what has come, and requests that need neither. */
static void turn(struct loop *loop)
{
    struct lane *lane = &loop->lane;
    poll_engine(loop);
    if (searcher_has_steps(lane->searcher)) {
        /* steps that stand back for others: what was queued for those is the device's meanwhile */
        engine_flush(lane->engine);
        searcher_work(lane->searcher, STEPS_NS);
    }
    lane_stat_set(&loop->turned_ms, lane->now_ms);
    if (!lane_try_enter(lane)) {
        work_while_shut(loop); /* loop_gate_opened brings the next turn */
        return;
    }
    run_messages(loop, MAIL_US);
    if (lane->now_ms - loop->last_expire_ms >= EXPIRE_MS) {
        /* keys whose time is over, in this lane's share of the shards; and the clock of last accesses */
        struct keyspace *keyspace = &loop->server->service.keyspace;
        loop->last_expire_ms = lane->now_ms;
        if (lane->index == 0)
            atomic_store_explicit(&keyspace->second, (unsigned)(lane->now_ms / 1000), memory_order_relaxed);
        keyspace_expire_due(keyspace, lane->index, lane->service->n_lanes, &loop->expire_next, EXPIRE_US);
    }
    if (lane->now_ms - loop->last_scan_ms >= SCAN_MS ||
        (loop->stopping && lane->now_ms - loop->last_scan_ms >= SCAN_MS / 10))
        scan_clients(loop);
    watch_backlog(loop);
    if (loop->pausing && (loop->shut_out || lane->now_ms >= atomic_load(&loop->server->pause_until_ms)))
        loop_end_pause(loop);
    lane->turn++;
    client_memory_turn(loop);
    client_work_on_all(loop);
    if (loop->resting || fair_is_ready(lane))
        work_on_long(loop);
    lane_leave(lane);
    assert(lane->gate_depth == 0 && !loop->dirty);
    publish_engine(loop);
}

static bool goes_on(const struct loop *loop)
{
    bool busy = false;
    if (!loop->stopping || atomic_load(&loop->n_clients) > 0)
        return true;
    EACH_HOOK(loop, busy, busy |= hook->busy(&loop->lane))
    return busy;
}

uint64_t loop_clients_possible(const struct server *s)
{
    return s->files_max > LOOP_FILES_FOR_OTHERS + 1 ? s->files_max - LOOP_FILES_FOR_OTHERS : 1;
}

static int open_lane(struct loop *loop, struct quire_error *err)
{
    const struct config *config = loop->server->service.config;
    struct engine_config engine = {.kind = (enum quire_engine_kind)config->engine,
                                   .reads_max = (unsigned)config->reads_max,
                                   .entries = 1024,
                                   .recv_buffers = RECV_BUFFERS,
                                   .recv_bytes = RECV_BYTES,
                                   .one_thread = true};
    struct engine *made = NULL;
    int rc = lane_open(&loop->lane, &engine, &made, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&loop->inbox_lock);
    loop->lane.engine = made;
    loop->engine_name = engine_name(made);
    snprintf(loop->engine_note, sizeof loop->engine_note, "%s", engine_note(made));
    pthread_mutex_unlock(&loop->inbox_lock);
    return 0;
}

static void close_lane(struct loop *loop)
{
    /* what still comes is run by whoever joins this thread */
    pthread_mutex_lock(&loop->inbox_lock);
    struct engine *engine = loop->lane.engine;
    loop->lane.engine = NULL;
    pthread_mutex_unlock(&loop->inbox_lock);
    loop_run_messages(loop);
    EACH_HOOK(loop, close, hook->close(&loop->lane))
    lane_close(&loop->lane, engine);
    resp_request_fini(&loop->request);
    resp_buffer_fini(&loop->discard);
    loop->server->dispatcher->forget_loop(loop);
}

static void *run_lane(void *context)
{
    struct loop *loop = context;
    struct server *server = loop->server;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    schedule_short_slices();
    int rc = open_lane(loop, &loop->start_error);
    pthread_mutex_lock(&server->start_lock);
    loop->start_code = rc;
    server->lanes_ready++;
    pthread_cond_broadcast(&server->start_ready);
    /* no lane serves before all are there */
    while (!server->lanes_go)
        pthread_cond_wait(&server->start_ready, &server->start_lock);
    pthread_mutex_unlock(&server->start_lock);
    if (rc < 0)
        return NULL;
    loop->lane.now_us = loop->window_us = clock_us();
    loop->lane.now_ms = loop->lane.now_us / 1000;
    loop->wanted = 1;
    loop->timer = (struct io_op){.kind = IO_TIMER, .timeout_us = TICK_US, .done = on_timer, .owner = loop};
    engine_queue(loop->lane.engine, &loop->timer);
    if (loop->lane.index == 0)
        start_accepting(loop);
    EACH_HOOK(loop, tick, hook->tick(&loop->lane))
    while (goes_on(loop))
        turn(loop);
    loop->stopped = true;
    close_lane(loop);
    return NULL;
}

int loop_start(struct server *server, unsigned index, struct quire_error *err)
{
    struct loop *loop = &server->loops[index];
    loop->server = server;
    loop->lane.service = &server->service;
    loop->lane.host = &client_host;
    loop->lane.index = index;
    pthread_mutex_init(&loop->inbox_lock, NULL);
    int rc = lane_stats_init(&loop->lane, err);
    if (rc < 0)
        return rc;
    int errnum = pthread_create(&loop->thread, NULL, run_lane, loop);
    if (errnum)
        return error_set_errno(err, errnum, "start", "a lane's thread");
    loop->thread_started = true;
    return 0;
}

void loop_join(struct loop *loop)
{
    if (!loop->thread_started)
        return;
    pthread_join(loop->thread, NULL);
    loop->thread_started = false;
}
