/*
 * server.c - the server's life: what is opened in which order, and closed in the reverse.
 *
 * Start: files limit, sockets (so that a port in use is known at once), worker, indexes to load, lanes. All lanes are
 * created before the first serves; when one cannot be, the reason is returned and nothing has been served.
 * Stop: lanes end when their clients have (whoever waits for an answer of a cache gets a miss); messages that came too
 * late are run by this thread; the worker ends, whose queue is emptied; then caches end, keys are freed, and the
 * journal is closed.
 */
#include "server/server.h"
#include "index/vector/parallel.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal.h"
#include "io/memory.h"
#include "server/call/data.h"
#include "server/call/fair.h"
#include "server/commands/command.h"
#include "server/net/tls.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    ALIVE_MS = 2000,       /* a lane that has not turned for so long hangs */
    FILES_FOR_OTHERS = 256 /* descriptors that are not clients: rings, indexes, logs */
};

static void make_run_id(struct server *s)
{
    uint8_t bytes[20];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)(clock_us() >> (i % 8 * 4)); /* an id to tell runs apart, not a secret */
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(s->run_id + 2 * i, 3, "%02x", bytes[i]);
}

uint64_t server_clients_possible(const struct server *s)
{
    return s->files_max > FILES_FOR_OTHERS + 1 ? s->files_max - FILES_FOR_OTHERS : 1;
}

/* Raises the limit of open files as far as maxclients needs, and lowers maxclients to what is possible. */
static void fit_clients_to_files(struct server *s)
{
    struct rlimit limit;
    uint64_t wanted = s->config->maxclients + FILES_FOR_OTHERS;
    s->files_max = UINT64_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    if (limit.rlim_cur < wanted) {
        struct rlimit more = {.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted,
                              .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            limit = more;
    }
    s->files_max = limit.rlim_cur;
    uint64_t possible = server_clients_possible(s);
    if (s->config->maxclients <= possible)
        return;
    log_line(
        s->log, LOG_LEVEL_WARNING, "maxclients lowered from %llu to %llu: the process may open %llu files (ulimit -n)",
        (unsigned long long)s->config->maxclients, (unsigned long long)possible, (unsigned long long)limit.rlim_cur);
    s->config->maxclients = possible;
}

static int start_lanes(struct server *s, struct quire_error *err)
{
    int rc = 0;
    unsigned started = 0;
    for (; started < s->n_lanes && rc == 0; started += rc == 0)
        rc = lane_start(s, started, err);
    pthread_mutex_lock(&s->start_lock);
    while (s->lanes_ready < started)
        pthread_cond_wait(&s->start_ready, &s->start_lock);
    for (unsigned i = 0; i < started && rc == 0; i++) {
        rc = s->lanes[i].start_code;
        if (rc < 0 && err)
            *err = s->lanes[i].start_error;
    }
    s->lanes_go = true;
    pthread_cond_broadcast(&s->start_ready);
    pthread_mutex_unlock(&s->start_lock);
    return rc;
}

/* ---- what keys leave for the worker ------------------------------------------------------------------------------ */

struct later {
    struct job job;
    void (*run)(void *argument);
    void *argument;
};

static void run_later(struct job *job)
{
    struct later *l = (struct later *)(void *)job;
    l->run(l->argument);
    free(l);
}

static void run_on_worker(void *context, void (*run)(void *argument), void *argument)
{
    struct server *s = context;
    struct later *l = malloc(sizeof *l);
    if (!l) {
        run(argument);
        return;
    }
    *l = (struct later){{.run = run_later}, run, argument};
    worker_post(&s->worker, &l->job);
}

/* ---- the journal ------------------------------------------------------------------------------------------------- */

static void on_durable(struct lane *lane, struct message *message)
{
    (void)message;
    atomic_store(&lane->durable_posted, false);
    lane_send_durable(lane);
}

/* On the journal's thread: one message per lane that waits, however often the journal calls. flight_waits in client.c
 * says why none is missed. */
static void wake_lanes(void *context)
{
    struct server *s = context;
    for (unsigned i = 0; i < s->n_lanes; i++) {
        struct lane *lane = &s->lanes[i];
        if (atomic_load(&lane->holds_replies) && !atomic_exchange(&lane->durable_posted, true))
            lane_post(lane, &lane->durable_message);
    }
}

void server_journal_set(struct server *s, struct journal *journal, void (*close_it)(void *context), void *context)
{
    for (unsigned i = 0; i < s->n_lanes; i++)
        s->lanes[i].durable_message.run = on_durable;
    s->journal = s->keyspace.journal = journal;
    s->journal_close = close_it;
    s->journal_context = context;
    journal_on_durable(journal, wake_lanes, s);
}

int server_create(struct config *config, struct log *log, struct server **out, struct quire_error *err)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory for a server");
    s->config = config;
    s->log = log;
    s->started_ms = clock_wall_ms();
    s->n_lanes = config->lanes ? (unsigned)config->lanes : parallel_processors();
    s->n_lanes = s->n_lanes > LANES_MAX ? LANES_MAX : s->n_lanes;
    atomic_init(&s->next_client_id, 1);
    pthread_mutex_init(&s->start_lock, NULL);
    pthread_cond_init(&s->start_ready, NULL);
    pthread_mutex_init(&s->latency.lock, NULL);
    make_run_id(s);
    command_index_fill(s->command_index);
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->lanes = memory_aligned(64, size_mul(s->n_lanes, sizeof *s->lanes));
    int rc = s->stop_fd < 0 ? error_set_errno(err, errno, "make", "an event descriptor") : 0;
    if (rc == 0 && !s->lanes)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %u lanes", s->n_lanes);
    if (s->lanes)
        memset(s->lanes, 0, s->n_lanes * sizeof *s->lanes);
    if (rc == 0)
        rc = keyspace_init(&s->keyspace, err);
    s->keyspace.later = run_on_worker;
    s->keyspace.later_context = s;
    if (rc == 0)
        rc = gate_init(&s->gate, s->n_lanes + 1, err);
    if (rc == 0)
        rc = fair_init(s, err);
    if (rc == 0)
        rc = acl_init(s, err);
    if (rc == 0 && config->tls_port)
        rc = tls_create(config, &s->tls, err);
    if (rc == 0) {
        fit_clients_to_files(s);
        rc = listen_open(s, err);
    }
    if (rc == 0)
        rc = worker_start(&s->worker, err);
    if (rc == 0)
        rc = data_open(s, err);
    snapshots_init(s);
    if (rc == 0)
        rc = data_load(s, err);
    if (rc == 0)
        rc = start_lanes(s, err);
    if (rc < 0) {
        server_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

unsigned server_port(const struct server *server)
{
    return server->port;
}

int server_stop_fd(const struct server *server)
{
    return server->stop_fd;
}

bool server_is_alive(const struct server *server)
{
    uint64_t now = clock_us() / 1000;
    for (unsigned i = 0; i < server->n_lanes; i++)
        if (stat_get(&server->lanes[i].turned_ms) + ALIVE_MS < now)
            return false;
    return true;
}

void server_destroy(struct server *s)
{
    for (unsigned i = 0; s->lanes && i < s->n_lanes; i++)
        if (s->lanes[i].thread_started)
            lane_stop(&s->lanes[i]);
    for (unsigned i = 0; s->lanes && i < s->n_lanes; i++)
        lane_join(&s->lanes[i]);
    /* what a lane that ended later posted to one that ended earlier */
    for (unsigned i = 0; s->lanes && i < s->n_lanes; i++)
        lane_run_messages(&s->lanes[i]);
    listen_close(s);
    worker_stop(&s->worker);
    for (unsigned i = 0; s->lanes && i < s->n_lanes; i++)
        lane_run_messages(&s->lanes[i]);
    if (s->store)
        store_end_maintenance(s->store); /* a checkpoint that ran on would miss the keys that go now */
    if (s->caches_begun)
        caches_end(s->caches); /* nobody uses them any more; what they still log needs the journal */
    keyspace_fini(&s->keyspace);
    if (s->journal)
        s->journal_close(s->journal_context);
    cache_scratch_destroy(s->cache_scratch);
    caches_destroy(s->caches);
    gate_fini(&s->gate);
    snapshots_fini(s);
    acl_fini(s);
    fair_fini(s);
    tls_destroy(s->tls);
    if (s->stop_fd >= 0)
        close(s->stop_fd);
    for (unsigned i = 0; s->lanes && i < s->n_lanes; i++)
        free(s->lanes[i].stats.row_counts);
    memory_free(s->lanes);
    pthread_mutex_destroy(&s->latency.lock);
    pthread_mutex_destroy(&s->start_lock);
    pthread_cond_destroy(&s->start_ready);
    free(s);
}
