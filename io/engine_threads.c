/*
 * engine_threads.c - the engine without io_uring: a pool of threads for files, epoll for sockets.
 *
 * File ops go to a pool that carries them out through the file's io_fs, so continuation of short transfers and faults
 * of tests are the io_fs's business. A worker hands a finished op back through `ended` (mutex) and an event descriptor
 * that the lane's epoll watches; `done` runs on the lane's thread only, inside engine_poll. Reads beyond reads_max wait
 * in `reads`, by rank, and are never seen by the pool before their turn.
 *
 * Sockets: receives and accepts are watched by one level-triggered epoll (`input`), blocked sends by a second one
 * (`output`) that is itself watched by the first: an epoll holds a descriptor once, and a connection receives and sends
 * at the same time. A send is tried at once and waits only where the socket is full. Sends on the same socket wait
 * behind each other; a second receive or accept on the same socket ends with QUIRE_EBUSY. Multishot costs nothing here:
 * the op stays watched. One receive buffer is enough, because it is the caller's during `done` only.
 *
 * A listening socket is made non-blocking: a peer that hangs up between readiness and accept must not stop the lane.
 *
 * Timers stand in a list sorted by deadline, filled from its end: timeouts of a server are mostly equal, so the place
 * is found at once. epoll_wait counts in milliseconds, so waits are by ppoll on the epoll descriptor, in nanoseconds;
 * the same descriptor serves foreign loops, for which a timer descriptor stands for the list.
 *
 * A cancel takes back what no worker has begun; an op that a worker is at cannot be stopped and ends with its own
 * result, as under io_uring.
 */
#include "io/clock.h"
#include "io/engine_priv.h"
#include "io/error.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define THREADS_DEFAULT    16u
#define WORKER_STACK_BYTES (256u << 10)
#define EVENTS_PER_WAIT    128

/* op->state[0]: where the op stands; written by the lane only */
enum place { AT_END = 0, AT_READS, AT_POOL, AT_SOCKET, AT_SEND, AT_TIMER };
/* op->state[1]: result; state[2]: deadline of a timer in us, or 1 once a worker has begun (under `lock`) */

struct threads {
    struct engine base;
    unsigned reads_max, dispatched;
    struct op_list queued, reads, sockets, sends, timers;
    struct op_list finished; /* ended without the pool */
    int input, output, event_fd, timer_fd;
    uint64_t timer_set; /* deadline that timer_fd is set to; 0: none */
    void *recv_memory;
    unsigned recv_bytes;
    bool woken;
    atomic_bool wake_asked;
    pthread_mutex_t lock; /* guards todo, ended, stop */
    pthread_cond_t work;
    struct op_list todo, ended;
    bool stop;
    pthread_t *pool;
    unsigned pool_size;
};

static struct threads *threads_of(struct engine *engine)
{
    return (struct threads *)(void *)engine;
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

static void kick(struct threads *t)
{
    uint64_t one = 1;
    ssize_t n = write(t->event_fd, &one, sizeof one);
    (void)n; /* EAGAIN: the counter is full, so the lane will look anyway */
}

static void *work(void *context)
{
    struct threads *t = context;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        struct io_op *op = engine_op_list_take(&t->todo);
        if (!op && t->stop)
            break;
        if (!op) {
            pthread_cond_wait(&t->work, &t->lock);
            continue;
        }
        op->state[2] = 1;
        pthread_mutex_unlock(&t->lock);
        int result = engine_run_through_fs(op);
        pthread_mutex_lock(&t->lock);
        op->state[1] = (uint64_t)(int64_t)result;
        bool first = !t->ended.first;
        engine_op_list_add(&t->ended, op);
        if (first)
            kick(t);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void give_to_pool(struct threads *t, struct io_op *op)
{
    op->state[0] = AT_POOL;
    pthread_mutex_lock(&t->lock);
    engine_op_list_add(&t->todo, op);
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

/* Starts the workers with all signals blocked: signals are for the threads of the program itself. */
static int start_pool(struct threads *t, unsigned size, struct quire_error *err)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int errnum = 0;
    t->pool = calloc(size, sizeof *t->pool);
    if (!t->pool)
        return error_set(err, QUIRE_ENOMEM, "no memory for a pool of %u threads", size);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; t->pool_size < size && !errnum; t->pool_size += !errnum)
        errnum = pthread_create(&t->pool[t->pool_size], &attributes, work, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (errnum && t->pool_size == 0)
        return error_set_errno(err, errnum, "start", "a thread for reads");
    if (errnum)
        engine_add_note(&t->base, "fewer threads than asked for");
    return 0;
}

static void stop_pool(struct threads *t)
{
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (unsigned i = 0; i < t->pool_size; i++)
        pthread_join(t->pool[i], NULL);
    assert(!t->todo.first);
    t->pool_size = 0;
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

static int watch(int epoll, int fd, uint32_t events, void *tag)
{
    struct epoll_event event = {.events = events, .data.ptr = tag};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? error_from_errno(errno) : 0;
}

static int setup_descriptors(struct threads *t, struct quire_error *err)
{
    t->input = epoll_create1(EPOLL_CLOEXEC);
    t->output = epoll_create1(EPOLL_CLOEXEC);
    t->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->input < 0 || t->output < 0 || t->event_fd < 0)
        return error_set_errno(err, errno, "make", "an epoll or event descriptor");
    int rc = watch(t->input, t->event_fd, EPOLLIN, &t->event_fd);
    if (rc == 0)
        rc = watch(t->input, t->output, EPOLLIN, &t->output);
    return rc < 0 ? error_set(err, rc, "cannot watch an event descriptor: %s", quire_error_text(rc)) : 0;
}

static void threads_free(struct threads *t)
{
    assert(t->pool_size == 0);
    const int fds[] = {t->input, t->output, t->event_fd, t->timer_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t->recv_memory);
    free(t->pool);
    free(t);
}

static const struct engine_ops threads_ops;

int engine_threads_create(const struct engine_config *config, struct engine **out, struct quire_error *err)
{
    struct threads *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, QUIRE_ENOMEM, "no memory for an engine");
    t->base.ops = &threads_ops;
    t->base.name = "threads";
    t->reads_max = config->reads_max ? config->reads_max : READS_MAX_DEFAULT;
    t->input = t->output = t->event_fd = t->timer_fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    int rc = setup_descriptors(t, err);
    if (rc == 0 && config->recv_buffers) {
        t->recv_bytes = config->recv_bytes ? config->recv_bytes : RECV_BYTES_DEFAULT;
        t->recv_memory = malloc(t->recv_bytes);
        if (!t->recv_memory)
            rc = error_set(err, QUIRE_ENOMEM, "no memory for a receive buffer of %u bytes", t->recv_bytes);
    }
    if (rc == 0)
        rc = start_pool(t, config->threads ? config->threads : THREADS_DEFAULT, err);
    if (rc < 0)
        threads_free(t);
    else
        *out = &t->base;
    return rc;
}

/* ---- starting ops ------------------------------------------------------------------------------------------------ */

static void threads_queue(struct engine *engine, struct io_op *op)
{
    memset(op->state, 0, sizeof op->state);
    engine_op_list_add(&threads_of(engine)->queued, op);
}

static void finish_later(struct threads *t, struct io_op *op, int result)
{
    op->state[0] = AT_END;
    op->state[1] = (uint64_t)(int64_t)result;
    engine_op_list_add(&t->finished, op);
}

static void start_timer(struct threads *t, struct io_op *op)
{
    uint64_t now = clock_us(), deadline = op->timeout_us < UINT64_MAX - now ? now + op->timeout_us : UINT64_MAX;
    struct io_op *after = t->timers.last;
    op->state[0] = AT_TIMER;
    op->state[2] = deadline;
    while (after && after->state[2] > deadline)
        after = after->prev;
    op->prev = after;
    op->next = after ? after->next : t->timers.first;
    if (op->next)
        op->next->prev = op;
    else
        t->timers.last = op;
    if (after)
        after->next = op;
    else
        t->timers.first = op;
    assert(!op->next || op->next->state[2] > deadline);
    assert(!op->prev || op->prev->state[2] <= deadline);
}

static void start_input(struct threads *t, struct io_op *op)
{
    int rc = op->kind == IO_RECV && !t->recv_memory ? QUIRE_EINVALID : 0;
    if (rc == 0 && op->kind == IO_ACCEPT) {
        int flags = fcntl(op->fd, F_GETFL);
        if (flags < 0 || fcntl(op->fd, F_SETFL, flags | O_NONBLOCK) < 0)
            rc = error_from_errno(errno);
    }
    if (rc == 0)
        rc = watch(t->input, op->fd, EPOLLIN, op);
    if (rc < 0) {
        finish_later(t, op, rc == QUIRE_EEXISTS ? QUIRE_EBUSY : rc);
        return;
    }
    op->state[0] = AT_SOCKET;
    engine_op_list_add(&t->sockets, op);
}

/* True when the send has come to its end, with its result; false when the socket is full. */
static bool try_send(const struct io_op *op, int *result)
{
    ssize_t n;
    do
        n = send(op->fd, op->buffer, op->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    *result = n < 0 ? error_from_errno(errno) : (int)n;
    return true;
}

static struct io_op *send_before(const struct threads *t, int fd)
{
    struct io_op *op = t->sends.first;
    while (op && op->fd != fd)
        op = op->next;
    return op;
}

static void start_send(struct threads *t, struct io_op *op)
{
    int result = 0;
    bool behind = send_before(t, op->fd) != NULL;
    if (!behind && try_send(op, &result)) {
        finish_later(t, op, result);
        return;
    }
    result = behind ? 0 : watch(t->output, op->fd, EPOLLOUT, op);
    if (result < 0) {
        finish_later(t, op, result);
        return;
    }
    op->state[0] = AT_SEND;
    engine_op_list_add(&t->sends, op);
}

/* Ends the wait of a send; the next one on the same socket, if any, is tried in its turn. */
static void leave_sends(struct threads *t, struct io_op *op)
{
    assert(op->state[0] == AT_SEND);
    bool was_first = send_before(t, op->fd) == op;
    engine_op_list_remove(&t->sends, op);
    if (!was_first)
        return;
    epoll_ctl(t->output, EPOLL_CTL_DEL, op->fd, NULL);
    struct io_op *next = send_before(t, op->fd);
    int rc = next ? watch(t->output, next->fd, EPOLLOUT, next) : 0;
    if (rc < 0) {
        engine_op_list_remove(&t->sends, next);
        finish_later(t, next, rc);
    }
}

static void leave_sockets(struct threads *t, struct io_op *op)
{
    assert(op->state[0] == AT_SOCKET);
    epoll_ctl(t->input, EPOLL_CTL_DEL, op->fd, NULL);
    engine_op_list_remove(&t->sockets, op);
}

/* Takes an op back from the pool unless a worker has begun it. */
static bool take_from_pool(struct threads *t, struct io_op *op)
{
    pthread_mutex_lock(&t->lock);
    bool mine = !op->state[2];
    if (mine)
        engine_op_list_remove(&t->todo, op);
    pthread_mutex_unlock(&t->lock);
    if (mine && op->kind == IO_READ) {
        assert(t->base.stats.reads_in_flight > 0);
        t->base.stats.reads_in_flight--;
    }
    return mine;
}

/* Takes an op out of wherever it waits; false when it has ended or will end by itself. */
static bool withdraw(struct threads *t, struct io_op *op)
{
    switch ((enum place)op->state[0]) {
    case AT_END:
        return false;
    case AT_READS:
        assert(t->base.stats.reads_waiting > 0);
        engine_op_list_remove(&t->reads, op);
        t->base.stats.reads_waiting--;
        return true;
    case AT_POOL:
        return take_from_pool(t, op);
    case AT_SOCKET:
        leave_sockets(t, op);
        return true;
    case AT_SEND:
        leave_sends(t, op);
        return true;
    case AT_TIMER:
        engine_op_list_remove(&t->timers, op);
        return true;
    }
    return false;
}

static void cancel_target(struct threads *t, struct io_op *op)
{
    struct io_op *target = op->target;
    int result = target->state[0] == AT_END ? QUIRE_ENOTFOUND : 0;
    if (withdraw(t, target))
        finish_later(t, target, QUIRE_ECANCELLED);
    finish_later(t, op, result);
}

static void start(struct threads *t, struct io_op *op)
{
    switch (op->kind) {
    case IO_READ:
        op->state[0] = AT_READS;
        engine_op_list_add_ranked(&t->reads, op);
        t->base.stats.reads_waiting++;
        break;
    case IO_WRITE:
    case IO_SYNC:
        give_to_pool(t, op);
        break;
    case IO_ACCEPT:
    case IO_RECV:
        start_input(t, op);
        break;
    case IO_SEND:
        start_send(t, op);
        break;
    case IO_TIMER:
        start_timer(t, op);
        break;
    case IO_CANCEL:
        cancel_target(t, op);
        break;
    }
}

static void move_queued(struct threads *t)
{
    struct engine_stats *s = &t->base.stats;
    struct io_op *op;
    while ((op = engine_op_list_take(&t->queued))) {
        int rc = engine_check_op(op);
        if (rc < 0)
            finish_later(t, op, rc);
        else
            start(t, op);
    }
    while (t->reads.first && s->reads_in_flight < t->reads_max) {
        op = engine_op_list_take(&t->reads);
        s->reads_waiting--;
        if (++s->reads_in_flight > s->reads_in_flight_peak)
            s->reads_in_flight_peak = s->reads_in_flight;
        give_to_pool(t, op);
    }
    assert(s->reads_in_flight <= t->reads_max);
    assert(!t->reads.first == (s->reads_waiting == 0));
}

/* ---- ending ops -------------------------------------------------------------------------------------------------- */

static void finish(struct threads *t, struct io_op *op, int result, unsigned flags)
{
    engine_count(&t->base, op, result);
    t->dispatched++;
    op->done(op, result, flags);
}

/* Ends what stands in a list now; what `done` adds to the engine comes later. */
static void end_list(struct threads *t, struct op_list list, bool from_pool)
{
    struct io_op *op;
    while ((op = engine_op_list_take(&list))) {
        if (from_pool && op->kind == IO_READ) {
            assert(t->base.stats.reads_in_flight > 0);
            t->base.stats.reads_in_flight--;
        }
        op->state[0] = AT_END;
        finish(t, op, (int)(int64_t)op->state[1], 0);
    }
}

static void end_finished(struct threads *t)
{
    struct op_list list = t->finished;
    t->finished = (struct op_list){0};
    end_list(t, list, false);
}

static void end_pool_ops(struct threads *t)
{
    pthread_mutex_lock(&t->lock);
    struct op_list list = t->ended;
    t->ended = (struct op_list){0};
    pthread_mutex_unlock(&t->lock);
    end_list(t, list, true);
}

static void end_timers(struct threads *t)
{
    uint64_t now = t->timers.first ? clock_us() : 0;
    while (t->timers.first && t->timers.first->state[2] <= now) {
        struct io_op *op = engine_op_list_take(&t->timers);
        op->state[0] = AT_END;
        finish(t, op, 0, 0);
    }
}

static void on_input(struct threads *t, struct io_op *op)
{
    ssize_t n;
    if (op->kind == IO_ACCEPT) {
        n = accept4(op->fd, NULL, NULL, SOCK_CLOEXEC);
    } else {
        op->buffer = t->recv_memory;
        n = recv(op->fd, t->recv_memory, t->recv_bytes, MSG_DONTWAIT);
    }
    int errnum = n < 0 ? errno : 0;
    if (errnum == EAGAIN || errnum == EINTR || errnum == ECONNABORTED)
        return;
    bool more = op->kind == IO_ACCEPT ? !errnum : n > 0;
    if (!more) {
        leave_sockets(t, op);
        op->state[0] = AT_END;
    }
    finish(t, op, errnum ? error_from_errno(errnum) : (int)n, more ? IO_MORE : 0);
}

static void take_output_events(struct threads *t)
{
    struct epoll_event events[EVENTS_PER_WAIT];
    int n = epoll_wait(t->output, events, EVENTS_PER_WAIT, 0);
    for (int i = 0; i < n; i++) {
        struct io_op *op = events[i].data.ptr;
        int result;
        if (!try_send(op, &result))
            continue;
        leave_sends(t, op);
        op->state[0] = AT_END;
        finish(t, op, result, 0);
    }
}

static void take_event_fd(struct threads *t)
{
    uint64_t count;
    ssize_t n = read(t->event_fd, &count, sizeof count);
    (void)n;
    if (atomic_exchange(&t->wake_asked, false))
        t->woken = true;
    end_pool_ops(t);
}

static void take_events(struct threads *t)
{
    struct epoll_event events[EVENTS_PER_WAIT];
    t->base.stats.submissions++;
    int n = epoll_wait(t->input, events, EVENTS_PER_WAIT, 0);
    for (int i = 0; i < n; i++) {
        void *tag = events[i].data.ptr;
        if (tag == &t->event_fd)
            take_event_fd(t);
        else if (tag == &t->output)
            take_output_events(t);
        else if (tag != &t->timer_fd)
            on_input(t, tag);
    }
    end_timers(t);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* Sleeps until something is to be done or the deadline (us) has come. */
static int wait_until(struct threads *t, uint64_t deadline, uint64_t now)
{
    struct pollfd poll_input = {.fd = t->input, .events = POLLIN};
    if (t->timers.first && t->timers.first->state[2] < deadline)
        deadline = t->timers.first->state[2];
    uint64_t us = deadline > now ? deadline - now : 0;
    struct timespec ts = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    t->base.stats.submissions++;
    int n = ppoll(&poll_input, 1, deadline == UINT64_MAX ? NULL : &ts, NULL);
    return n < 0 && errno != EINTR ? error_from_errno(errno) : 0;
}

/* Sets the timer descriptor, where a foreign loop watches the engine, to the first timer. */
static void set_timer_fd(struct threads *t)
{
    uint64_t deadline = t->timers.first ? t->timers.first->state[2] : 0;
    if (t->timer_fd < 0 || deadline == t->timer_set)
        return;
    struct itimerspec at = {.it_value = {(time_t)(deadline / 1000000), (long)(deadline % 1000000 * 1000)}};
    timerfd_settime(t->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    t->timer_set = deadline;
}

/* Whether another round would start or end an op without waiting. */
static bool may_start(const struct threads *t)
{
    bool read = t->reads.first && t->base.stats.reads_in_flight < t->reads_max;
    return t->queued.first || t->finished.first || read;
}

static int threads_poll(struct engine *engine, unsigned wait_min, uint64_t timeout_us)
{
    struct threads *t = threads_of(engine);
    uint64_t deadline = 0;
    int rc = 0;
    t->dispatched = 0;
    while (rc == 0) {
        move_queued(t);
        end_finished(t);
        take_events(t);
        if (t->dispatched >= wait_min || t->woken)
            break;
        if (may_start(t))
            continue;
        uint64_t now = clock_us();
        if (!deadline)
            deadline = timeout_us < UINT64_MAX - now ? now + timeout_us : UINT64_MAX;
        if (now >= deadline)
            break;
        rc = wait_until(t, deadline, now);
    }
    move_queued(t);
    if (t->finished.first)
        kick(t);
    set_timer_fd(t);
    t->woken = false;
    return rc < 0 ? rc : (int)t->dispatched;
}

static void threads_wake(struct engine *engine)
{
    struct threads *t = threads_of(engine);
    atomic_store(&t->wake_asked, true);
    kick(t);
}

static int threads_event_fd(struct engine *engine)
{
    struct threads *t = threads_of(engine);
    if (t->timer_fd < 0) {
        t->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (t->timer_fd < 0 || watch(t->input, t->timer_fd, EPOLLIN, &t->timer_fd) < 0)
            return -1;
        set_timer_fd(t);
    }
    return t->input;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void cancel_list(struct threads *t, const struct op_list *list)
{
    struct io_op *op;
    while ((op = list->first) && withdraw(t, op))
        finish_later(t, op, QUIRE_ECANCELLED);
}

/* Ends everything; what `done` queues meanwhile is refused by ending it as well. */
static void drain(struct threads *t)
{
    struct op_list unbegun;
    pthread_mutex_lock(&t->lock);
    unbegun = t->todo;
    t->todo = (struct op_list){0};
    pthread_mutex_unlock(&t->lock);
    stop_pool(t);
    for (struct io_op *op = unbegun.first; op; op = op->next)
        op->state[1] = (uint64_t)(int64_t)QUIRE_ECANCELLED;
    end_list(t, unbegun, true);
    end_pool_ops(t);
    cancel_list(t, &t->reads);
    cancel_list(t, &t->sockets);
    cancel_list(t, &t->sends);
    cancel_list(t, &t->timers);
    while (t->queued.first || t->finished.first) {
        struct io_op *op;
        while ((op = engine_op_list_take(&t->queued)))
            finish_later(t, op, QUIRE_ECANCELLED);
        end_finished(t);
    }
}

static void threads_destroy(struct engine *engine)
{
    struct threads *t = threads_of(engine);
    drain(t);
    threads_free(t);
}

static const struct engine_ops threads_ops = {.destroy = threads_destroy,
                                              .queue = threads_queue,
                                              .poll = threads_poll,
                                              .wake = threads_wake,
                                              .event_fd = threads_event_fd};
