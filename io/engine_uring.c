/*
 * engine_uring.c - the engine over io_uring.
 *
 * One io_uring_enter per engine_poll: what was queued goes to the kernel together with the wait. Ops wait in `queued`
 * until then; file reads beyond reads_max wait in `reads` and follow as others complete. Ops in the kernel's hands
 * stand in `flying`, so that destroy can cancel each and wait for it.
 *
 * user_data is the op's address; addresses below 16 are the engine's own (the wake descriptor's poll, cancel requests).
 *
 * Files: a sparse table of registered descriptors; a file without a place uses its plain descriptor. Buffers: one
 * registered range, used by reads that lie in it. Receives: a ring of provided buffers shared by all sockets, so an
 * idle connection holds none; each goes back to the ring as soon as `done` has returned.
 *
 * Multishot accept (Linux 5.19) and receive (6.0) end now and then (no buffer, overflow); they are armed again here, so
 * a caller sees one stream until end of file, error or cancel. One that the caller has cancelled is not armed again,
 * also where it ended by itself while its cancel was under way. Where the kernel does not know them (EINVAL at the
 * first completion) the engine waits for readiness by poll and accepts or receives by hand; engine_note says so.
 *
 * Kernels lose the end of a stream where it comes together with its last bytes: the two wake a multishot receive as
 * one, and it waits on behind the bytes (liburing issue 1549). Receives of local sockets are armed anew after each
 * piece instead, which finds the end. TCP tells a receive of a FIN behind the bytes; what it does not tell of is named
 * at IO_RECV in engine.h.
 *
 * A read that comes back short before the end of the file is continued; callers see a short read only at its end.
 *
 * DEFER_TASKRUN needs SINGLE_ISSUER, which binds the ring to its creator's thread; so it is used only when the caller
 * promises one thread. SQPOLL was measured and rejected: its thread takes a core (74 K against 81-87 K reads/s on two).
 */
#include "io/clock.h"
#include "io/engine_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
/* The thread sanitizer does not see liburing's bare system calls map and unmap queues: when one lane's ring comes to
 * lie where another's was, it takes the two threads' writes for a race. Only liburing's own inline functions are left
 * out, and the one that reads what lies in the queue. */
const char *__tsan_default_suppressions(void) __attribute__((visibility("default")));
const char *__tsan_default_suppressions(void)
{
    return "race_top:io_uring_\nrace_top:take_completions\n";
}
#endif

#define ENTRIES_DEFAULT 256u
#define BATCHED_WAIT_US 1000u
#define FILES_MAX       64u
#define RECV_GROUP      1
#define TAG_WAKE        1u
#define TAG_CANCEL      2u
#define TAG_MAX         16u

/* op->state[0] */
enum op_flags { OP_FLYING = 1, OP_WAITING = 2, OP_BY_POLL = 4, OP_READ_COUNTED = 8, OP_CANCELLED = 16, OP_ONCE = 32 };
/* op->state[1]: bytes of the op done so far; state[2], state[3]: the kernel's timespec of a timer */

struct uring {
    struct engine base;
    struct io_uring ring;
    unsigned reads_max;
    struct op_list queued, reads, flying;
    struct op_list finished; /* ops ended without the kernel; result in state[1] */
    struct io_file *files[FILES_MAX];
    bool files_registered;
    uint8_t *fixed_base;
    size_t fixed_bytes;
    int wake_fd, event_fd;
    bool wake_armed, woken, no_multishot_accept, no_multishot_recv;
    unsigned cancels_flying;
    struct io_uring_buf_ring *buffers;
    uint8_t *recv_memory;
    unsigned recv_count, recv_bytes;
    size_t buffers_bytes;
    unsigned dispatched;
};

static struct uring *uring_of(struct engine *engine)
{
    return (struct uring *)(void *)engine;
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

static int setup_ring(struct uring *u, const struct engine_config *config, struct quire_error *err)
{
    const unsigned defer = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    const unsigned tries[] = {IORING_SETUP_COOP_TASKRUN | (config->one_thread ? defer : 0), IORING_SETUP_COOP_TASKRUN,
                              0};
    unsigned entries = config->entries ? config->entries : ENTRIES_DEFAULT;
    int rc = -EINVAL;
    for (size_t i = 0; i < sizeof tries / sizeof *tries && rc == -EINVAL; i++) {
        struct io_uring_params params = {.flags = tries[i] | IORING_SETUP_CQSIZE, .cq_entries = 8 * entries};
        rc = io_uring_queue_init_params(entries, &u->ring, &params);
        if (rc == 0 && config->one_thread && i > 0)
            engine_add_note(&u->base, "kernel without deferred task work");
    }
    if (rc < 0)
        return error_set(err, error_from_errno(-rc), "io_uring refused by the kernel: %s", strerror(-rc));
    if (!(u->ring.features & IORING_FEAT_EXT_ARG) || !(u->ring.features & IORING_FEAT_NODROP)) {
        io_uring_queue_exit(&u->ring);
        return error_set(err, QUIRE_EUNSUPPORTED, "io_uring of this kernel is too old (no timed wait)");
    }
    /* A child of fork() that touched the queues would work on the parent's: it has none of them. */
    rc = io_uring_ring_dontfork(&u->ring);
    if (rc < 0)
        engine_add_note(&u->base, "kernel that lets children of fork() have the queues");
    return 0;
}

static int setup_receive(struct uring *u, const struct engine_config *config, struct quire_error *err)
{
    unsigned count = 1;
    if (!config->recv_buffers)
        return 0;
    while (count < config->recv_buffers && count < 32768)
        count *= 2;
    u->recv_count = count;
    u->recv_bytes = config->recv_bytes ? config->recv_bytes : RECV_BYTES_DEFAULT;
    u->buffers_bytes = count * sizeof(struct io_uring_buf);
    u->buffers = memory_map_alone(u->buffers_bytes, 0);
    u->recv_memory = memory_map_alone((size_t)count * u->recv_bytes, 0);
    if (!u->buffers || !u->recv_memory)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u receive buffers", count);
    struct io_uring_buf_reg reg = {
        .ring_addr = (uint64_t)(uintptr_t)u->buffers, .ring_entries = count, .bgid = RECV_GROUP};
    if (io_uring_register_buf_ring(&u->ring, &reg, 0) < 0) {
        u->no_multishot_recv = true;
        engine_add_note(&u->base, "kernel without provided buffers: receives by poll");
        return 0;
    }
    io_uring_buf_ring_init(u->buffers);
    for (unsigned i = 0; i < count; i++)
        io_uring_buf_ring_add(u->buffers, u->recv_memory + (size_t)i * u->recv_bytes, u->recv_bytes, (unsigned short)i,
                              io_uring_buf_ring_mask(count), (int)i);
    io_uring_buf_ring_advance(u->buffers, (int)count);
    return 0;
}

static const struct engine_ops uring_ops;

int engine_uring_create(const struct engine_config *config, struct engine **out, struct quire_error *err)
{
    struct uring *u = calloc(1, sizeof *u);
    if (!u)
        return error_set(err, QUIRE_ENOMEM, "no memory for an engine");
    u->base.ops = &uring_ops;
    u->base.name = "uring";
    u->reads_max = config->reads_max ? config->reads_max : READS_MAX_DEFAULT;
    u->event_fd = -1;
    u->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = u->wake_fd < 0 ? error_set_errno(err, errno, "make", "an event descriptor") : setup_ring(u, config, err);
    if (rc < 0) {
        if (u->wake_fd >= 0)
            close(u->wake_fd);
        free(u);
        return rc;
    }
    u->files_registered = io_uring_register_files_sparse(&u->ring, FILES_MAX) == 0;
    if (!u->files_registered)
        engine_add_note(&u->base, "kernel without sparse registered files");
    rc = setup_receive(u, config, err);
    if (rc < 0) {
        engine_destroy(&u->base);
        return rc;
    }
    *out = &u->base;
    return 0;
}

/* ---- files and buffers ------------------------------------------------------------------------------------------- */

static int uring_attach(struct engine *engine, struct io_file *file)
{
    struct uring *u = uring_of(engine);
    if (!u->files_registered || file->fd < 0)
        return 0;
    for (unsigned i = 0; i < FILES_MAX; i++)
        if (!u->files[i]) {
            int rc = io_uring_register_files_update(&u->ring, i, &file->fd, 1);
            if (rc < 0)
                return error_from_errno(-rc);
            u->files[i] = file;
            return 0;
        }
    return 0;
}

static void uring_detach(struct engine *engine, struct io_file *file)
{
    struct uring *u = uring_of(engine);
    int none = -1;
    for (unsigned i = 0; i < FILES_MAX; i++)
        if (u->files[i] == file) {
            io_uring_register_files_update(&u->ring, i, &none, 1);
            u->files[i] = NULL;
        }
}

static int uring_register_buffers(struct engine *engine, void *base, size_t bytes)
{
    struct uring *u = uring_of(engine);
    struct iovec range = {base, bytes};
    if (u->fixed_base)
        io_uring_unregister_buffers(&u->ring);
    u->fixed_base = NULL;
    if (!base)
        return 0;
    int rc = io_uring_register_buffers(&u->ring, &range, 1);
    if (rc < 0)
        return error_from_errno(-rc);
    u->fixed_base = base;
    u->fixed_bytes = bytes;
    return 0;
}

/* ---- submission -------------------------------------------------------------------------------------------------- */

static bool is_local_socket(int fd)
{
    int domain = AF_UNSPEC;
    socklen_t bytes = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

static void uring_queue(struct engine *engine, struct io_op *op)
{
    memset(op->state, 0, sizeof op->state);
    if (op->kind == IO_RECV && is_local_socket(op->fd))
        op->state[0] = OP_ONCE;
    engine_op_list_add(&uring_of(engine)->queued, op);
}

static struct io_uring_sqe *get_sqe(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    while (!sqe) {
        /* the queue is full: hand over what is there; EBUSY means completions must be taken first */
        u->base.stats.submissions++;
        int rc = io_uring_submit(&u->ring);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
            return NULL;
        if (rc == -EBUSY || rc == -EAGAIN)
            io_uring_get_events(&u->ring);
        sqe = io_uring_get_sqe(&u->ring);
    }
    return sqe;
}

static int file_index(const struct uring *u, const struct io_file *file)
{
    for (unsigned i = 0; i < FILES_MAX; i++)
        if (u->files[i] == file)
            return (int)i;
    return -1;
}

static void prepare_file_op(struct uring *u, struct io_uring_sqe *sqe, struct io_op *op)
{
    int index = file_index(u, op->file), fd = index >= 0 ? index : op->file->fd;
    uint8_t *buffer = op->buffer;
    unsigned done = (unsigned)op->state[1], bytes = op->bytes - done;
    bool fixed = op->kind == IO_READ && u->fixed_base && buffer >= u->fixed_base &&
                 buffer + op->bytes <= u->fixed_base + u->fixed_bytes;
    if (op->kind == IO_SYNC)
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    else if (op->kind == IO_WRITE)
        io_uring_prep_write(sqe, fd, buffer + done, bytes, op->offset + done);
    else if (fixed)
        io_uring_prep_read_fixed(sqe, fd, buffer + done, bytes, op->offset + done, 0);
    else
        io_uring_prep_read(sqe, fd, buffer + done, bytes, op->offset + done);
    if (index >= 0)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
}

static void prepare_timer(struct io_uring_sqe *sqe, struct io_op *op)
{
    struct __kernel_timespec *ts = (struct __kernel_timespec *)(void *)&op->state[2];
    ts->tv_sec = (long long)(op->timeout_us / 1000000);
    ts->tv_nsec = (long long)(op->timeout_us % 1000000 * 1000);
    io_uring_prep_timeout(sqe, ts, 0, 0);
}

static void prepare_socket_op(struct uring *u, struct io_uring_sqe *sqe, struct io_op *op)
{
    bool by_poll = op->kind == IO_ACCEPT ? u->no_multishot_accept : u->no_multishot_recv;
    if (op->kind == IO_SEND) {
        io_uring_prep_send(sqe, op->fd, op->buffer, op->bytes, MSG_NOSIGNAL);
    } else if (by_poll) {
        op->state[0] |= OP_BY_POLL;
        /* the peer may be gone before accept4 is called, which must not wait for the next */
        if (op->kind == IO_ACCEPT)
            fcntl(op->fd, F_SETFL, fcntl(op->fd, F_GETFL) | O_NONBLOCK);
        io_uring_prep_poll_add(sqe, op->fd, POLLIN);
    } else if (op->kind == IO_ACCEPT) {
        io_uring_prep_multishot_accept(sqe, op->fd, NULL, NULL, SOCK_CLOEXEC);
    } else {
        if (op->state[0] & OP_ONCE)
            io_uring_prep_recv(sqe, op->fd, NULL, u->recv_bytes, 0);
        else
            io_uring_prep_recv_multishot(sqe, op->fd, NULL, 0, 0);
        io_uring_sqe_set_flags(sqe, IOSQE_BUFFER_SELECT);
        sqe->buf_group = RECV_GROUP;
    }
}

static void finish_later(struct uring *u, struct io_op *op, int result)
{
    op->state[1] = (uint64_t)(int64_t)result;
    engine_op_list_add(&u->finished, op);
}

static void cancel_target(struct uring *u, struct io_op *op)
{
    struct io_op *target = op->target;
    if (!(target->state[0] & (OP_FLYING | OP_WAITING))) {
        /* queued after this cancel, or already ended */
        finish_later(u, op, QUIRE_ENOTFOUND);
        return;
    }
    if (target->state[0] & OP_WAITING) {
        engine_op_list_remove(&u->reads, target);
        u->base.stats.reads_waiting--;
        target->state[0] = 0;
        finish_later(u, target, QUIRE_ECANCELLED);
    } else {
        struct io_uring_sqe *sqe = get_sqe(u);
        if (sqe) {
            io_uring_prep_cancel(sqe, target, 0);
            io_uring_sqe_set_data64(sqe, TAG_CANCEL);
            u->cancels_flying++;
        }
        target->state[0] |= OP_CANCELLED;
    }
    finish_later(u, op, 0);
}

static void start(struct uring *u, struct io_op *op)
{
    struct io_uring_sqe *sqe = get_sqe(u);
    if (!sqe) {
        finish_later(u, op, QUIRE_EIO);
        return;
    }
    if (op->kind == IO_TIMER)
        prepare_timer(sqe, op);
    else if (op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SYNC)
        prepare_file_op(u, sqe, op);
    else
        prepare_socket_op(u, sqe, op);
    io_uring_sqe_set_data(sqe, op);
    op->state[0] |= OP_FLYING;
    engine_op_list_add(&u->flying, op);
}

static void start_read(struct uring *u, struct io_op *op)
{
    struct engine_stats *s = &u->base.stats;
    assert(s->reads_in_flight < u->reads_max);
    op->state[0] |= OP_READ_COUNTED;
    if (++s->reads_in_flight > s->reads_in_flight_peak)
        s->reads_in_flight_peak = s->reads_in_flight;
    start(u, op);
}

/* Moves queued ops on: to the ring, to the line of reads, or straight to their end. */
static void move_queued(struct uring *u)
{
    struct io_op *op;
    while ((op = engine_op_list_take(&u->queued))) {
        bool file_op = op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SYNC;
        int rc = file_op ? engine_check_op(op) : 0;
        if (rc < 0) {
            finish_later(u, op, rc);
        } else if (op->kind == IO_CANCEL) {
            cancel_target(u, op);
        } else if (file_op && op->file->fd < 0) {
            finish_later(u, op, engine_run_through_fs(op));
        } else if (op->kind == IO_READ) {
            op->state[0] = OP_WAITING;
            engine_op_list_add_ranked(&u->reads, op);
            u->base.stats.reads_waiting++;
        } else {
            start(u, op);
        }
    }
    while (u->reads.first && u->base.stats.reads_in_flight < u->reads_max) {
        op = engine_op_list_take(&u->reads);
        assert(op->state[0] == OP_WAITING);
        u->base.stats.reads_waiting--;
        op->state[0] = 0;
        start_read(u, op);
    }
    assert(!u->reads.first == (u->base.stats.reads_waiting == 0));
}

static void arm_wake(struct uring *u)
{
    struct io_uring_sqe *sqe = u->wake_armed ? NULL : get_sqe(u);
    if (!sqe)
        return;
    io_uring_prep_poll_add(sqe, u->wake_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, TAG_WAKE);
    u->wake_armed = true;
}

/* ---- completion -------------------------------------------------------------------------------------------------- */

static void finish(struct uring *u, struct io_op *op, int result, unsigned flags)
{
    if (op->kind != IO_TIMER && op->kind != IO_CANCEL)
        engine_count(&u->base, op, result);
    u->dispatched++;
    op->done(op, result, flags);
}

static void recycle(struct uring *u, unsigned id)
{
    assert(id < u->recv_count);
    io_uring_buf_ring_add(u->buffers, u->recv_memory + (size_t)id * u->recv_bytes, u->recv_bytes, (unsigned short)id,
                          io_uring_buf_ring_mask(u->recv_count), 0);
    io_uring_buf_ring_advance(u->buffers, 1);
}

/* Puts a multishot op that the kernel ended back, ahead of what `done` may queue; false where it has been cancelled
 * meanwhile: then it ends with what `done` is called for now. */
static bool arm_again(struct uring *u, struct io_op *op)
{
    if (op->state[0] & OP_CANCELLED)
        return false;
    op->state[0] &= OP_ONCE;
    start(u, op);
    return true;
}

/* The same where there is nothing to call `done` for but its end. */
static void go_on(struct uring *u, struct io_op *op)
{
    if (!arm_again(u, op))
        finish(u, op, QUIRE_ECANCELLED, 0);
}

/* A socket that became readable, on kernels without multishot: one accept or receive by hand. */
static void on_readiness(struct uring *u, struct io_op *op, int result)
{
    int n;
    if (result < 0) {
        finish(u, op, error_from_errno(-result), 0);
        return;
    }
    if (op->kind == IO_ACCEPT) {
        n = accept4(op->fd, NULL, NULL, SOCK_CLOEXEC);
    } else {
        op->buffer = u->recv_memory;
        n = (int)recv(op->fd, u->recv_memory, u->recv_bytes, MSG_DONTWAIT);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) {
        go_on(u, op);
        return;
    }
    int code = n < 0 ? error_from_errno(errno) : n;
    bool more = (n > 0 || (n == 0 && op->kind == IO_ACCEPT)) && arm_again(u, op);
    finish(u, op, code, more ? IO_MORE : 0);
}

static void on_accept(struct uring *u, struct io_op *op, int result, bool more)
{
    if (result == -EINVAL && !u->no_multishot_accept) {
        u->no_multishot_accept = true;
        engine_add_note(&u->base, "kernel without multishot accept");
        go_on(u, op);
        return;
    }
    /* Without descriptors or memory, and after errors of the listener itself, the op ends: armed again at once it
     * would fail again at once. The caller may queue it later. */
    bool ends = result < 0 && result != -EAGAIN && result != -EINTR && result != -ECONNABORTED;
    more = more || (!ends && arm_again(u, op));
    finish(u, op, result < 0 ? error_from_errno(-result) : result, more ? IO_MORE : 0);
}

static void on_receive(struct uring *u, struct io_op *op, int result, unsigned cqe_flags)
{
    bool more = cqe_flags & IORING_CQE_F_MORE;
    if (result == -EINVAL && !u->no_multishot_recv) {
        u->no_multishot_recv = true;
        engine_add_note(&u->base, "kernel without multishot receive: receives by poll");
        go_on(u, op);
        return;
    }
    if (result == -ENOBUFS || result == -EINTR || result == -EAGAIN) {
        if (!more)
            go_on(u, op);
        return;
    }
    more = result > 0 && (more || arm_again(u, op));
    unsigned id = cqe_flags >> IORING_CQE_BUFFER_SHIFT;
    bool has_buffer = cqe_flags & IORING_CQE_F_BUFFER;
    if (has_buffer)
        op->buffer = u->recv_memory + (size_t)id * u->recv_bytes;
    finish(u, op, result < 0 ? error_from_errno(-result) : result, more ? IO_MORE : 0);
    if (has_buffer)
        recycle(u, id);
}

static void on_file_op(struct uring *u, struct io_op *op, int result)
{
    if (result == -EINTR || result == -EAGAIN) {
        start(u, op);
        return;
    }
    if (result > 0 && op->kind != IO_SYNC) {
        op->state[1] += (uint64_t)result;
        assert(op->state[1] <= op->bytes);
        /* short: go on, unless the file ends here */
        if (op->state[1] < op->bytes) {
            op->state[0] &= ~(uint64_t)OP_FLYING;
            start(u, op);
            return;
        }
    }
    if (op->state[0] & OP_READ_COUNTED)
        u->base.stats.reads_in_flight--;
    finish(u, op, result < 0 ? error_from_errno(-result) : (int)op->state[1], 0);
}

static void on_completion(struct uring *u, struct io_op *op, int result, unsigned cqe_flags)
{
    bool more = cqe_flags & IORING_CQE_F_MORE;
    assert(op->state[0] & OP_FLYING);
    if (!more) {
        engine_op_list_remove(&u->flying, op);
        op->state[0] &= ~(uint64_t)OP_FLYING;
    }
    switch (op->kind) {
    case IO_READ:
    case IO_WRITE:
    case IO_SYNC:
        on_file_op(u, op, result);
        break;
    case IO_ACCEPT:
        if (op->state[0] & OP_BY_POLL)
            on_readiness(u, op, result);
        else
            on_accept(u, op, result, more);
        break;
    case IO_RECV:
        if (op->state[0] & OP_BY_POLL)
            on_readiness(u, op, result);
        else
            on_receive(u, op, result, cqe_flags);
        break;
    case IO_TIMER:
        finish(u, op, result == -ETIME || result == 0 ? 0 : error_from_errno(-result), 0);
        break;
    case IO_SEND:
        finish(u, op, result < 0 ? error_from_errno(-result) : result, 0);
        break;
    case IO_CANCEL:
        break;
    }
}

static void take_completions(struct uring *u)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        uint64_t data = cqe->user_data;
        int result = cqe->res;
        unsigned flags = cqe->flags;
        io_uring_cqe_seen(&u->ring, cqe);
        if (data == TAG_WAKE) {
            uint64_t count;
            u->wake_armed = false;
            u->woken = read(u->wake_fd, &count, sizeof count) == (ssize_t)sizeof count || u->woken;
        } else if (data == TAG_CANCEL) {
            assert(u->cancels_flying > 0);
            u->cancels_flying--;
        } else {
            assert(data >= TAG_MAX);
            on_completion(u, (struct io_op *)(uintptr_t)data, result, flags);
        }
    }
}

static void end_finished(struct uring *u)
{
    struct io_op *op;
    while ((op = engine_op_list_take(&u->finished))) {
        if (op->state[0] & OP_READ_COUNTED)
            u->base.stats.reads_in_flight--;
        finish(u, op, (int)(int64_t)op->state[1], 0);
    }
}

/* What a submission's answer means: what it could not do now is tried again at the next. */
static int submit_code(int rc)
{
    return rc == -EINTR || rc == -EAGAIN || rc == -EBUSY || rc >= 0 ? 0 : error_from_errno(-rc);
}

/* Submits and waits for `wanted` completions, or until the time is over. The kernel wakes the thread when they are
 * there, not at each one. */
static int submit_and_wait(struct uring *u, unsigned wanted, uint64_t wait_us)
{
    struct io_uring_cqe *cqe;
    struct __kernel_timespec ts = {(long long)(wait_us / 1000000), (long long)(wait_us % 1000000 * 1000)};
    u->base.stats.submissions++;
    int rc = io_uring_submit_and_wait_timeout(&u->ring, &cqe, wanted, wait_us == UINT64_MAX ? NULL : &ts, NULL);
    return rc == -ETIME ? 0 : submit_code(rc);
}

static int submit_only(struct uring *u)
{
    bool work = io_uring_sq_ready(&u->ring) > 0;
    u->base.stats.submissions++;
    int rc = work ? io_uring_submit_and_get_events(&u->ring) : io_uring_get_events(&u->ring);
    return submit_code(rc);
}

static int hand_over(struct uring *u)
{
    if (io_uring_sq_ready(&u->ring) == 0)
        return 0;
    u->base.stats.submissions++;
    int rc = io_uring_submit(&u->ring);
    return submit_code(rc);
}

/* What cannot be handed over now is handed over, or fails, in the next uring_poll. */
static void uring_flush(struct engine *engine)
{
    struct uring *u = uring_of(engine);
    move_queued(u);
    (void)hand_over(u);
}

static int uring_poll(struct engine *engine, unsigned wait_min, uint64_t timeout_us)
{
    struct uring *u = uring_of(engine);
    uint64_t deadline = 0;
    int rc = 0;
    u->dispatched = 0;
    arm_wake(u);
    for (bool first = true;; first = false) {
        move_queued(u);
        end_finished(u);
        if (u->queued.first || u->finished.first)
            continue;
        bool enough = u->dispatched >= wait_min || u->woken;
        uint64_t left = UINT64_MAX;
        if (!enough && timeout_us != UINT64_MAX) {
            uint64_t now = clock_us();
            deadline = deadline ? deadline : now + timeout_us;
            left = now < deadline ? deadline - now : 0;
            enough = left == 0 && !first;
        }
        if (enough && !first) {
            /* hand over what the callbacks queued, but let the caller answer before more completions are taken */
            rc = hand_over(u);
            break;
        }
        /* The kernel may be asked to wake for several only where the time is short: more may be wanted than can fly at
         * once, and a wake counts as one. */
        unsigned wanted = timeout_us <= BATCHED_WAIT_US ? wait_min - u->dispatched : 1;
        rc = enough || left == 0 ? submit_only(u) : submit_and_wait(u, wanted, left);
        take_completions(u);
        if (rc < 0)
            break;
    }
    u->woken = false;
    return rc < 0 ? rc : (int)u->dispatched;
}

static void uring_wake(struct engine *engine)
{
    uint64_t one = 1;
    ssize_t n = write(uring_of(engine)->wake_fd, &one, sizeof one);
    (void)n; /* EAGAIN: the counter is full, so a wake is pending already */
}

static int uring_event_fd(struct engine *engine)
{
    struct uring *u = uring_of(engine);
    if (u->event_fd >= 0)
        return u->event_fd;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -1;
    if (io_uring_register_eventfd(&u->ring, fd) < 0) {
        close(fd);
        return -1;
    }
    u->event_fd = fd;
    return fd;
}

/* Cancels all that flies and polls until it has come down; `done` may queue more, which is refused by ending it. */
static void drain(struct uring *u)
{
    while (u->flying.first || u->queued.first || u->reads.first || u->finished.first || u->cancels_flying) {
        struct io_op *op;
        for (op = u->flying.first; op; op = op->next) {
            struct io_uring_sqe *sqe = get_sqe(u);
            if (!sqe)
                break;
            io_uring_prep_cancel(sqe, op, 0);
            io_uring_sqe_set_data64(sqe, TAG_CANCEL);
            u->cancels_flying++;
        }
        while ((op = engine_op_list_take(&u->queued)) || (op = engine_op_list_take(&u->reads)))
            finish_later(u, op, QUIRE_ECANCELLED);
        end_finished(u);
        if (u->flying.first || u->cancels_flying) {
            if (submit_and_wait(u, 1, 100000) < 0)
                break;
            take_completions(u);
        }
    }
}

static void uring_destroy(struct engine *engine)
{
    struct uring *u = uring_of(engine);
    drain(u);
    io_uring_queue_exit(&u->ring);
    memory_unmap(u->buffers, u->buffers_bytes);
    memory_unmap(u->recv_memory, (size_t)u->recv_count * u->recv_bytes);
    close(u->wake_fd);
    if (u->event_fd >= 0)
        close(u->event_fd);
    free(u);
}

static const struct engine_ops uring_ops = {.destroy = uring_destroy,
                                            .attach = uring_attach,
                                            .detach = uring_detach,
                                            .register_buffers = uring_register_buffers,
                                            .queue = uring_queue,
                                            .flush = uring_flush,
                                            .poll = uring_poll,
                                            .wake = uring_wake,
                                            .event_fd = uring_event_fd};
