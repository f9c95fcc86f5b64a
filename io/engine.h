/*
 * engine.h - asynchronous reads, writes and sockets behind one table.
 *
 * An engine belongs to one thread (a lane). Work is handed over as `struct io_op`, caller's memory, which with its
 * buffer is the engine's from engine_queue until its `done` runs (for multishot kinds: until `done` runs without
 * IO_MORE). `done` runs on the lane's thread, inside engine_poll, and may queue further ops, also the same one.
 * engine_queue never blocks and never fails: errors arrive as a negative QUIRE_E number in `done`.
 *
 * Implementations
 *   uring    io_uring: one io_uring_enter submits everything queued and waits; registered files and buffers, provided
 *            buffers and multishot accept/receive where the kernel has them, single-shot emulation where not.
 *   threads  a pool of threads with pread/pwrite for files, epoll for sockets: where io_uring is forbidden. Same
 *            semantics, also multishot ones.
 * Others can be built upon engine_priv.h: tests have one that delays and reorders completions by a seed.
 *
 * Cap: at most `reads_max` file reads are in the hands of the device; more wait in the engine, the lowest rank first,
 * and of equal ranks the first that came.
 */
#ifndef QUIRE_IO_ENGINE_H
#define QUIRE_IO_ENGINE_H

#include "io/fs.h"

struct engine;
struct io_op;

enum io_kind {
    IO_READ,   /* file, offset, buffer, bytes -> bytes read (short only at end of file) */
    IO_WRITE,  /* file, offset, buffer, bytes -> bytes written */
    IO_SYNC,   /* file -> 0 */
    IO_ACCEPT, /* fd (listening); multishot -> new fd, IO_MORE while it goes on; ends with any error, such as no
                  descriptor left */
    IO_RECV,   /* fd; multishot with engine buffers -> bytes, `buffer` set for the call only; 0 at end of stream. A
                  shutdown of this side and a reset by the other may go unnoticed behind bytes that came at the same
                  moment (Linux at least to 6.18): who shuts down cancels, and looks now and then at who is silent */
    IO_SEND,   /* fd, buffer, bytes -> bytes sent (may be short) */
    IO_TIMER,  /* timeout_us -> 0 when it has passed */
    IO_CANCEL, /* target -> 0, or QUIRE_ENOTFOUND; the target's own done runs with QUIRE_ECANCELLED, or with what
                  it has done, and without IO_MORE */
};

enum io_flags { IO_MORE = 1 }; /* in `done`: the op is still armed and done will run again */

typedef void io_done_fn(struct io_op *op, int result, unsigned flags);

struct io_op {
    /* set by the caller */
    enum io_kind kind;
    struct io_file *file; /* IO_READ, IO_WRITE, IO_SYNC */
    int fd;               /* IO_ACCEPT, IO_RECV, IO_SEND */
    void *buffer;         /* IO_SEND and IO_WRITE do not write to it */
    uint32_t bytes;
    uint64_t offset;      /* bytes */
    uint64_t rank;        /* IO_READ: in the line of those that wait for the device; 0: before all others */
    uint64_t timeout_us;  /* IO_TIMER */
    struct io_op *target; /* IO_CANCEL */
    io_done_fn *done;
    void *owner; /* the caller's, untouched */
    /* the engine's */
    struct io_op *next, *prev;
    uint64_t state[4];
};

struct engine_config {
    enum quire_engine_kind kind; /* AUTO: uring, and threads where the kernel refuses it */
    unsigned reads_max;          /* cap on file reads in flight; 0: 64 */
    unsigned entries;            /* submission queue entries; 0: 256 */
    unsigned threads;            /* threads engine: pool size; 0: 16 */
    unsigned recv_buffers;       /* number of receive buffers of recv_bytes each; 0: no sockets on this engine */
    unsigned recv_bytes;         /* 0: 16384 */
    bool one_thread; /* only the thread that creates the engine will ever use it: lets io_uring defer its work
                        to engine_poll (IORING_SETUP_SINGLE_ISSUER, _DEFER_TASKRUN) */
};

/* Counters since creation. Read by the lane itself, or by others as a snapshot that may lag. */
struct engine_stats {
    uint64_t reads, read_bytes, writes, write_bytes, syncs; /* file ops completed */
    uint64_t receives, sends, accepts;
    uint64_t submissions; /* system calls made to submit or wait */
    uint64_t read_errors, write_errors;
    unsigned reads_in_flight, reads_in_flight_peak, reads_waiting;
};

int engine_create(const struct engine_config *config, struct engine **out, struct quire_error *err);
/* Cancels what is armed, waits for what the kernel holds, runs every `done` left with QUIRE_ECANCELLED. */
void engine_destroy(struct engine *engine);

/* "uring" or "threads"; a test's engine has a name of its own. */
const char *engine_name(const struct engine *engine);
/* Why it is not io_uring, or which features are emulated; "" when all is native. For INFO. */
const char *engine_note(const struct engine *engine);
const struct engine_stats *engine_stats(const struct engine *engine);

/* Registers a file with the ring (an index instead of a reference count per read). Optional; engine_detach must run
 * before fs_close and when no op on the file is in flight. */
int engine_attach(struct engine *engine, struct io_file *file);
void engine_detach(struct engine *engine, struct io_file *file);
/* Registers one memory range for reads of files (IORING_READ_FIXED). At most one at a time; a second call replaces
 * it. Optional: ops whose buffer lies outside it work as well. base 4096-aligned; NULL takes
 * the registration back, before the memory goes and when no op uses it. */
int engine_register_buffers(struct engine *engine, void *base, size_t bytes);

/* Hands an op over; it starts at the next engine_poll. */
void engine_queue(struct engine *engine, struct io_op *op);
/* Submits what is queued without waiting and without calling any `done`, so that the device works on it while the
 * caller computes. Optional: engine_poll submits as well. May be called from inside a `done`. */
void engine_flush(struct engine *engine);
/* Submits what is queued in one system call, waits until at least `wait_min` completions were dispatched or timeout_us
 * has passed (0: do not wait; UINT64_MAX: no limit) or engine_wake was called. Returns the number of `done` calls made.
 */
int engine_poll(struct engine *engine, unsigned wait_min, uint64_t timeout_us);
/* Ends a wait of engine_poll. The only call that other threads may make. */
void engine_wake(struct engine *engine);
/* A descriptor that becomes readable when engine_poll(engine, 0, 0) would have something to do. For foreign loops. */
int engine_event_fd(struct engine *engine);

/* Queues one file op and polls until it is done. Not from inside a `done`. Returns its result. */
int engine_run(struct engine *engine, struct io_op *op);

#endif
