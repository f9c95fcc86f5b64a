/*
 * server.c - start and stop of the server: what is opened in which order, and closed in the reverse.
 *
 * Start: files limit, sockets (so that a port in use is known at once), worker, indexes to load, the device's thread
 * (which opens it while the server serves), lanes. All lanes are created before the first serves; when one cannot be,
 * the reason is returned and nothing has been served.
 * Stop: lanes end when their clients have (whoever waits for an answer of a cache gets a miss); messages that came too
 * late are run by this thread; the device's thread ends, and the worker, whose queue is emptied; then caches end, keys
 * are freed, and the journal is closed.
 */
#include "server/server.h"
#include "index/vector/parallel.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include "server/admin/metrics.h"
#include "server/admin/snapshot.h"
#include "server/cache/cache_call.h"
#include "server/call/data.h"
#include "server/call/fair.h"
#include "server/call/key_values.h"
#include "server/call/slice.h"
#include "server/command_rows.h"
#include "server/commands/command.h"
#include "server/commands/latency.h"
#include "server/commands/modules.h"
#include "server/device/device.h"
#include "server/document/backfill.h"
#include "server/document/cursors.h"
#include "server/document/keys_keeper.h"
#include "server/keys/gate.h"
#include "server/keys/keyspace.h"
#include "server/net/tls.h"
#include "server/vector/vector_plan.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ALIVE_MS = 2000 }; /* a lane that has not turned for so long hangs */

/* What runs on lanes besides requests. */
static const struct lane_hook *const hooks[] = {&slice_hook, &cache_waits_hook, &device_hook, &metrics_hook,
                                                &values_hook};

static void make_run_id(struct server *s)
{
    uint8_t bytes[20];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)(clock_us() >> (i % 8 * 4)); /* an id to tell runs apart, not a secret */
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(s->run_id + 2 * i, 3, "%02x", bytes[i]);
}

/* Raises the limit of open files as far as maxclients needs, and lowers maxclients to what is possible. */
static void fit_clients_to_files(struct server *s)
{
    struct rlimit limit;
    uint64_t wanted = s->service.config->maxclients + LOOP_FILES_FOR_OTHERS;
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
    uint64_t possible = loop_clients_possible(s);
    if (s->service.config->maxclients <= possible)
        return;
    log_line(s->service.log, LOG_LEVEL_WARNING,
             "maxclients lowered from %llu to %llu: the process may open %llu files (ulimit -n)",
             (unsigned long long)s->service.config->maxclients, (unsigned long long)possible,
             (unsigned long long)limit.rlim_cur);
    s->service.config->maxclients = possible;
}

static int start_lanes(struct server *s, struct quire_error *err)
{
    int rc = 0;
    unsigned started = 0;
    for (; started < s->service.n_lanes && rc == 0; started += rc == 0)
        rc = loop_start(s, started, err);
    pthread_mutex_lock(&s->start_lock);
    while (s->lanes_ready < started)
        pthread_cond_wait(&s->start_ready, &s->start_lock);
    for (unsigned i = 0; i < started && rc == 0; i++) {
        rc = s->loops[i].start_code;
        if (rc < 0 && err)
            *err = s->loops[i].start_error;
    }
    s->lanes_go = true;
    pthread_cond_broadcast(&s->start_ready);
    pthread_mutex_unlock(&s->start_lock);
    return rc;
}

/* The line that an operator looks for where everything works, but slower. */
static void warn_of_engine(const struct server *s)
{
    const struct loop *loop = &s->loops[0];
    if (strcmp(loop->engine_name, "uring") != 0 && s->service.config->engine == QUIRE_ENGINE_AUTO)
        log_line(s->service.log, LOG_LEVEL_WARNING,
                 "io_uring is not used: %s. Everything works, with more system calls (docs/operations.md, \"Containers "
                 "and the kernel\")",
                 loop->engine_note);
}

static int check_dir(const struct config *config, struct quire_error *err)
{
    struct stat status;
    if (config->dir[0] && stat(config->dir, &status) == 0 && !S_ISDIR(status.st_mode))
        return error_set(err, QUIRE_EINVALID, "dir: %s is a file, not a folder", config->dir);
    if (!config->dir[0] && config->load[0])
        return error_set(err, QUIRE_EINVALID, "load needs a data folder: set dir");
    return 0;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static void run_later(void *context, void (*run)(void *argument), void *argument)
{
    struct server *s = context;
    service_run_later(&s->service, run, argument);
}

int server_create(struct config *config, struct log *log, struct server **out, struct quire_error *err)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory for a server");
    s->service.config = config;
    s->service.log = log;
    s->started_ms = clock_wall_ms();
    s->service.n_lanes = config->lanes ? (unsigned)config->lanes : parallel_processors();
    s->service.n_lanes = s->service.n_lanes > LANES_MAX ? LANES_MAX : s->service.n_lanes;
    atomic_init(&s->next_client_id, 1);
    pthread_mutex_init(&s->start_lock, NULL);
    pthread_cond_init(&s->start_ready, NULL);
    make_run_id(s);
    command_rows_set();
    s->dispatcher = &command_dispatcher;
    s->planner = &vector_planner;
    s->hooks = hooks;
    s->n_hooks = sizeof hooks / sizeof *hooks;
    s->service.keeper = &keys_keeper;
    s->service.on_durable = loop_wake_all;
    s->service.durable_context = s;
    s->acl.config = config;
    s->acl.changed = client_users_changed;
    s->acl.changed_context = s;
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->loops = memory_aligned(64, memory_size_mul(s->service.n_lanes, sizeof *s->loops));
    int rc = s->stop_fd < 0 ? error_set_errno(err, errno, "make", "an event descriptor") : 0;
    if (rc == 0 && !s->loops)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %u lanes", s->service.n_lanes);
    if (s->loops)
        memset(s->loops, 0, s->service.n_lanes * sizeof *s->loops);
    if (rc == 0)
        rc = keyspace_init(&s->service.keyspace, err);
    s->service.keyspace.later = run_later;
    s->service.keyspace.later_context = s;
    if (rc == 0)
        rc = gate_init(&s->service.gate, s->service.n_lanes + 1, err);
    if (rc == 0)
        rc = fair_init(&s->service, err);
    if (rc == 0)
        rc = cursors_create(&s->service.cursors, err);
    if (rc == 0) {
        /* what settings say that only a look at the machine refutes; nothing is made before */
        rc = check_dir(config, err);
        if (rc == 0)
            rc = modules_check_version(config, err);
        if (rc == 0)
            rc = acl_init(&s->acl, err);
        if (rc == 0 && config->tls_port)
            rc = tls_create(config, &s->tls, err);
        if (rc == 0) {
            fit_clients_to_files(s);
            rc = listen_open(s, err);
        }
        config->refused = rc < 0 && rc != QUIRE_ENOMEM && rc != QUIRE_EADDRINUSE;
    }
    if (rc == 0)
        rc = worker_start(&s->service.worker, err);
    if (rc == 0)
        rc = data_open(&s->service, err);
    if (rc == 0)
        rc = snapshots_init(s, err);
    if (rc == 0)
        rc = latency_init(s, err);
    if (rc == 0)
        rc = metrics_init(s, err);
    if (rc == 0)
        rc = data_load(&s->service, err);
    if (rc == 0)
        rc = device_start(&s->service, err);
    if (rc == 0)
        backfill_resume(&s->service);
    if (rc == 0)
        rc = start_lanes(s, err);
    if (rc == 0)
        warn_of_engine(s);
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
    for (unsigned i = 0; i < server->service.n_lanes; i++)
        if (lane_stat_get(&server->loops[i].turned_ms) + ALIVE_MS < now)
            return false;
    return true;
}

void server_destroy(struct server *s)
{
    for (unsigned i = 0; s->loops && i < s->service.n_lanes; i++)
        if (s->loops[i].thread_started)
            loop_stop(&s->loops[i]);
    for (unsigned i = 0; s->loops && i < s->service.n_lanes; i++)
        loop_join(&s->loops[i]);
    /* what a lane that ended later posted to one that ended earlier */
    for (unsigned i = 0; s->loops && i < s->service.n_lanes; i++)
        loop_run_messages(&s->loops[i]);
    listen_close(s);
    device_stop(&s->service);
    worker_stop(&s->service.worker);
    for (unsigned i = 0; s->loops && i < s->service.n_lanes; i++)
        loop_run_messages(&s->loops[i]);
    cursors_destroy(s->service.cursors);
    data_close(&s->service);
    gate_fini(&s->service.gate);
    snapshots_fini(s);
    latency_fini(s);
    metrics_fini(s);
    acl_fini(&s->acl);
    fair_fini(&s->service);
    tls_destroy(s->tls);
    if (s->stop_fd >= 0)
        close(s->stop_fd);
    for (unsigned i = 0; s->loops && i < s->service.n_lanes; i++)
        lane_stats_fini(&s->loops[i].lane);
    memory_free(s->loops);
    pthread_mutex_destroy(&s->start_lock);
    pthread_cond_destroy(&s->start_ready);
    free(s);
}
