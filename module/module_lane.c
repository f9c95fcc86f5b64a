/*
 * module_lane.c - the lanes of the module, and who turns them.
 *
 * Lane 0 is the engine's main thread. It has no loop of its own: its ring tells the engine's event loop by a descriptor
 * when something has completed, other threads by a second one, and each round of that loop ends in a turn, so that
 * reads which commands have queued start together. All writes run here. So the order of commits is the order in which
 * the engine ran the commands, and a fork, which the same thread makes, never meets half of one.
 *
 * Lanes 1 to n have threads, with a ring each, and search. The last lane belongs to the main thread, too: what a
 * transaction or a script asks of the disk is waited for on the spot, and on this lane nothing else is done meanwhile,
 * so that no other client's write comes in between.
 */
#include "index/search/search.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal.h"
#include "io/memory.h"
#include "module/module_priv.h"
#include "server/cache/cache_call.h"
#include "server/call/fair.h"
#include "server/call/slice.h"
#include "server/process/log.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SCAN_MS = 500, STEPS_NS = 20000 };

static struct module_lane *lane_of(struct lane *lane)
{
    return (struct module_lane *)(void *)lane;
}

static void kick(const struct module_lane *m)
{
    const uint64_t one = 1;
    ssize_t n = write(m->kick_fd, &one, sizeof one);
    (void)n; /* a full counter is a kick */
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void post(struct lane *lane, struct message *message)
{
    struct module_lane *m = lane_of(lane);
    message->next = NULL;
    pthread_mutex_lock(&m->lock);
    *(m->first ? &m->last->next : &m->first) = message;
    m->last = message;
    if (m->kick_fd >= 0)
        kick(m);
    else if (lane->engine)
        engine_wake(lane->engine);
    pthread_mutex_unlock(&m->lock);
}

void module_lane_post(struct lane *lane, struct message *message)
{
    post(lane, message);
}

static void run_messages(struct module_lane *m)
{
    pthread_mutex_lock(&m->lock);
    struct message *message = m->first;
    m->first = NULL;
    pthread_mutex_unlock(&m->lock);
    for (struct message *next; message; message = next) {
        next = message->next;
        message->run(&m->lane, message);
    }
}

/* ---- a turn ------------------------------------------------------------------------------------------------------ */

static void look_at_time(struct module_lane *m)
{
    struct lane *lane = &m->lane;
    if (lane->now_ms - m->tick_ms >= MODULE_TICK_MS) {
        m->tick_ms = lane->now_ms;
        searcher_drop_retired(lane->searcher);
    }
    if (lane->now_ms - m->scan_ms >= SCAN_MS) {
        m->scan_ms = lane->now_ms;
        cache_waits_hook.scan(lane, false);
        fair_expire(lane, false);
    }
}

static bool is_busy(const struct module_lane *m)
{
    const struct lane *lane = &m->lane;
    return searcher_has_steps(lane->searcher) || fair_is_ready(lane) || lane->slices;
}

/* Waits for wait_us at most. */
static void turn(struct module_lane *m, uint64_t wait_us)
{
    struct lane *lane = &m->lane;
    uint64_t before_us = engine_stats(lane->engine)->reads_in_flight ? clock_us() : 0;
    bool waits = wait_us > 0 && !is_busy(m);
    int rc = engine_poll(lane->engine, waits ? 1 : 0, waits ? wait_us : 0);
    if (rc < 0) {
        log_line(lane->service->log, LOG_LEVEL_WARNING, "lane %u: its engine failed: %s", lane->index,
                 quire_error_text(rc));
        usleep(10000);
    }
    lane->now_us = clock_us();
    lane->now_ms = lane->now_us / 1000;
    fair_note_wait(lane, before_us ? before_us : lane->now_us, lane->now_us);
    if (searcher_has_steps(lane->searcher)) {
        engine_flush(lane->engine);
        searcher_work(lane->searcher, m->has_thread ? STEPS_NS : UINT32_MAX);
    }
    lane_enter(lane);
    run_messages(m);
    look_at_time(m);
    lane->turn++;
    fair_work(lane);
    slice_hook.work(lane);
    lane_leave(lane);
}

static void on_timer(struct io_op *op, int result, unsigned flags)
{
    struct module_lane *m = op->owner;
    (void)result;
    (void)flags;
    m->timer_runs = false; /* the turn that runs this looks at what was held */
}

void module_lane_wake_in(struct module_lane *m, uint64_t us)
{
    assert(module_is_main_thread());
    if (m->timer_runs)
        return;
    m->timer_runs = true;
    m->timer = (struct io_op){.kind = IO_TIMER, .timeout_us = us, .done = on_timer, .owner = m};
    engine_queue(m->lane.engine, &m->timer);
}

void module_lane_turn(struct module_lane *m)
{
    assert(module_is_main_thread());
    turn(m, 0);
    module_call_release(m, false);
    engine_flush(m->lane.engine); /* what the turn has queued */
    if (is_busy(m))
        kick(m);
}

void module_lane_run(struct module_lane *m, const bool *done)
{
    assert(module_is_main_thread());
    while (!*done)
        turn(m, MODULE_TICK_MS * 1000);
}

void module_lanes_before_sleep(void)
{
    struct module_lane *m = &module_the.lanes[0];
    if (!module_the.open)
        return;
    if (atomic_load(&m->n_calls) > 0)
        module_lane_turn(m);
    journal_help(module_the.service.journal, clock_us());
    module_items_sync();
}

/* ---- the engine's loop ------------------------------------------------------------------------------------------- */

static void on_readable(int fd, void *data, int mask)
{
    uint64_t count;
    (void)mask;
    (void)data;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n;
    if (module_the.open)
        module_lane_turn(&module_the.lanes[0]);
}

/* On the journal's thread. Replies are held by the main lane only. */
static void on_durable(void *context)
{
    (void)context;
    if (module_the.lanes[0].kick_fd >= 0 && atomic_load(&module_the.lanes[0].n_calls) > 0)
        kick(&module_the.lanes[0]);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* own: by the thread that alone will use its ring. */
static int open_lane(struct module_lane *m, bool own, struct quire_error *err)
{
    const struct config *config = module_the.service.config;
    struct engine_config engine = {.kind = (enum quire_engine_kind)config->engine,
                                   .reads_max = (unsigned)config->reads_max,
                                   .entries = 256,
                                   .one_thread = own};
    struct engine *made = NULL;
    int rc = lane_stats_init(&m->lane, err);
    if (rc == 0)
        rc = lane_open(&m->lane, &engine, &made, err);
    if (rc == 0) {
        pthread_mutex_lock(&m->lock);
        m->lane.engine = made;
        pthread_mutex_unlock(&m->lock);
        m->lane.now_us = clock_us();
        m->lane.now_ms = m->lane.now_us / 1000;
    }
    return rc;
}

/* Nobody waits for replies any more; what is under way ends, with errors where it waits for others. */
static void close_lane(struct module_lane *m)
{
    struct engine *engine = m->lane.engine;
    if (!engine)
        return;
    do {
        cache_waits_hook.stop(&m->lane);
        fair_expire(&m->lane, true);
        turn(m, 0);
    } while (atomic_load(&m->n_calls) > 0);
    pthread_mutex_lock(&m->lock);
    m->lane.engine = NULL;
    pthread_mutex_unlock(&m->lock);
    run_messages(m);
    lane_close(&m->lane, engine);
}

/* Its ring is made and ended by the thread that uses it, which spares the kernel interrupts (io/engine_uring.c). */
static void *run_thread(void *context)
{
    struct module_lane *m = context;
    m->start_code = open_lane(m, true, &m->start_error);
    bool runs = m->start_code == 0;
    sem_post(&m->ready);
    while (runs && !atomic_load(&m->stopping))
        turn(m, MODULE_TICK_MS * 1000);
    close_lane(m);
    return NULL;
}

static int start_thread(struct module_lane *m, struct quire_error *err)
{
    sigset_t all, before;
    /* signals are the engine's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int errnum = pthread_create(&m->thread, NULL, run_thread, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errnum)
        return error_set_errno(err, errnum, "start", "a lane's thread");
    m->has_thread = true;
    while (sem_wait(&m->ready) < 0)
        assert(errno == EINTR);
    if (m->start_code < 0)
        *err = m->start_error;
    return m->start_code;
}

int module_lanes_create(struct quire_error *err)
{
    struct service *s = &module_the.service;
    module_the.lanes = memory_aligned(64, memory_size_mul(s->n_lanes, sizeof *module_the.lanes));
    if (!module_the.lanes)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u lanes", s->n_lanes);
    memset(module_the.lanes, 0, s->n_lanes * sizeof *module_the.lanes);
    for (unsigned i = 0; i < s->n_lanes; i++) {
        struct module_lane *m = &module_the.lanes[i];
        m->lane.service = s;
        m->lane.host = &module_host;
        m->lane.index = i;
        m->kick_fd = -1;
        pthread_mutex_init(&m->lock, NULL);
        sem_init(&m->ready, 0, 0);
    }
    s->on_durable = on_durable;
    return 0;
}

int module_lanes_start(struct quire_error *err)
{
    struct module_lane *lanes = module_the.lanes;
    int rc = 0;
    rc = open_lane(&lanes[0], false, err);
    if (rc == 0)
        rc = open_lane(&lanes[module_the.service.n_lanes - 1], false, err);
    if (rc < 0)
        return rc;
    lanes[0].kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int ring_fd = engine_event_fd(lanes[0].lane.engine);
    if (lanes[0].kick_fd < 0 || ring_fd < 0)
        return error_set(err, QUIRE_EIO, "no descriptor for the engine's event loop");
    if (rm.event_loop_add(lanes[0].kick_fd, RM_POLL_READABLE, on_readable, NULL) != RM_OK ||
        rm.event_loop_add(ring_fd, RM_POLL_READABLE, on_readable, NULL) != RM_OK)
        return error_set(err, QUIRE_ELIMIT, "the engine's event loop takes no more descriptors: raise maxclients");
    for (unsigned i = 1; rc == 0 && i <= module_the.n_threads; i++)
        rc = start_thread(&lanes[i], err);
    return rc;
}

void module_lanes_stop(void)
{
    struct module_lane *lanes = module_the.lanes;
    for (unsigned i = 1; lanes && i <= module_the.n_threads; i++) {
        if (!lanes[i].has_thread)
            continue;
        atomic_store(&lanes[i].stopping, true);
        pthread_mutex_lock(&lanes[i].lock);
        if (lanes[i].lane.engine)
            engine_wake(lanes[i].lane.engine);
        pthread_mutex_unlock(&lanes[i].lock);
        pthread_join(lanes[i].thread, NULL);
        lanes[i].has_thread = false;
    }
}

void module_lanes_close(void)
{
    struct module_lane *lanes = module_the.lanes;
    for (unsigned i = 0; lanes && i < module_the.service.n_lanes; i++) {
        module_call_release(&lanes[i], true);
        close_lane(&lanes[i]);
        lane_stats_fini(&lanes[i].lane);
    }
}
