/*
 * test_engine.c - one suite over all engines: io_uring, threads, and the fault engine on files in memory.
 *
 * Every test runs once per engine, so that a caller can rely on the same semantics whichever it gets. Where the kernel
 * refuses io_uring its rows are skipped. Tests wait on conditions with engine_poll, never on sleeps; times are checked
 * from below only, so a slow machine does not fail.
 */
#include "io/clock.h"
#include "io/engine.h"
#include "io/memory.h"
#include "support_contents.h"
#include "tests/support/fault.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#define FILE_BYTES ((64u << 10) + 100)
#define NEVER_US   3600000000ull
#define SEED       7u

enum which { URING, THREADS, FAULT };
static enum which kinds[] = {URING, THREADS, FAULT};

struct fixture {
    enum which which;
    struct engine *engine;
    struct io_fs *fs;
    struct io_file *file;
    char *folder;
};

static int make_engine(enum which which, const struct engine_config *config, struct engine **out)
{
    struct engine_config own = *config;
    struct quire_error err = {0};
    own.one_thread = true;
    own.threads = 4;
    own.kind = which == URING ? QUIRE_ENGINE_URING : QUIRE_ENGINE_THREADS;
    int rc = which == FAULT ? engine_fault_create(&own, 11, out, &err) : engine_create(&own, out, &err);
    if (rc < 0)
        print_message("engine refused: %s\n", err.message);
    return rc;
}

static void make_file(struct fixture *x)
{
    struct quire_error err;
    uint8_t *bytes = malloc(FILE_BYTES);
    char *path = x->which == FAULT ? strdup("/data") : support_path(x->folder, "data");
    support_fill(bytes, FILE_BYTES, 0, SEED);
    assert_int_equal(fs_open(x->fs, path, FS_WRITE | FS_CREATE, &x->file, &err), 0);
    assert_int_equal(fs_write_exact(x->file, bytes, FILE_BYTES, 0, &err), 0);
    free(path);
    free(bytes);
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    struct engine_config config = {.reads_max = 4, .recv_buffers = 4, .recv_bytes = 256};
    x->which = *(enum which *)*state;
    *state = x;
    if (make_engine(x->which, &config, &x->engine) < 0)
        return 0;
    x->folder = support_folder_make();
    x->fs = x->which == FAULT ? fault_fs_create() : fs_real();
    assert_non_null(x->folder);
    make_file(x);
    return engine_attach(x->engine, x->file);
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    if (x->engine) {
        engine_detach(x->engine, x->file);
        engine_destroy(x->engine);
        fs_close(x->file);
        support_folder_remove(x->folder);
    }
    if (x->which == FAULT)
        fault_fs_destroy(x->fs);
    free(x);
    return 0;
}

static struct fixture *begin(void **state)
{
    struct fixture *x = *state;
    if (!x->engine)
        skip();
    return x;
}

/* What `done` saw of one op. */
struct seen {
    struct engine *engine;
    int result, calls, more;
    uint64_t bytes; /* sum of positive results */
    unsigned order; /* place among all ends */
    bool ended;
    uint8_t data[8192]; /* received */
};

static unsigned ends;

static void on_done(struct io_op *op, int result, unsigned flags)
{
    struct seen *seen = op->owner;
    assert_false(seen->ended);
    if (op->kind == IO_RECV && result > 0 && seen->bytes + (uint64_t)result <= sizeof seen->data)
        memcpy(seen->data + seen->bytes, op->buffer, (size_t)result);
    seen->result = result;
    seen->calls++;
    seen->bytes += result > 0 ? (uint64_t)result : 0;
    seen->more += flags & IO_MORE ? 1 : 0;
    seen->ended = !(flags & IO_MORE);
    if (seen->ended)
        seen->order = ++ends;
}

static void poll_until(struct engine *engine, const bool *condition)
{
    while (!*condition)
        assert_true(engine_poll(engine, 1, 20000000) > 0);
}

static void poll_calls(struct engine *engine, const struct seen *seen, int calls)
{
    while (seen->calls < calls)
        assert_true(engine_poll(engine, 1, 20000000) > 0);
}

static struct io_op file_op(struct fixture *x, enum io_kind kind, void *buffer, uint32_t bytes, uint64_t offset)
{
    return (struct io_op){
        .kind = kind, .file = x->file, .buffer = buffer, .bytes = bytes, .offset = offset, .done = on_done};
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void test_reads(void **state)
{
    struct fixture *x = begin(state);
    const uint64_t offsets[] = {0, 1, 4096, 12345, FILE_BYTES - 1000};
    uint8_t buffer[1000];
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        struct io_op op = file_op(x, IO_READ, buffer, sizeof buffer, offsets[i]);
        memset(buffer, 0, sizeof buffer);
        assert_int_equal(engine_run(x->engine, &op), sizeof buffer);
        assert_int_equal(support_differs(buffer, sizeof buffer, offsets[i], SEED), sizeof buffer);
    }
    assert_int_equal(engine_stats(x->engine)->reads, 5);
    assert_int_equal(engine_stats(x->engine)->read_bytes, 5000);
    assert_int_equal(engine_stats(x->engine)->read_errors, 0);
}

static void test_read_at_end(void **state)
{
    struct fixture *x = begin(state);
    uint8_t buffer[4096];
    struct io_op op = file_op(x, IO_READ, buffer, sizeof buffer, FILE_BYTES - 100);
    assert_int_equal(engine_run(x->engine, &op), 100);
    assert_int_equal(support_differs(buffer, 100, FILE_BYTES - 100, SEED), 100);
    op.offset = FILE_BYTES;
    assert_int_equal(engine_run(x->engine, &op), 0);
    op.offset = FILE_BYTES + 123456;
    assert_int_equal(engine_run(x->engine, &op), 0);
}

static void test_write_sync_read(void **state)
{
    struct fixture *x = begin(state);
    uint8_t out[3000], in[3000];
    struct io_op write = file_op(x, IO_WRITE, out, sizeof out, FILE_BYTES + 5);
    struct io_op sync = file_op(x, IO_SYNC, NULL, 0, 0);
    struct io_op read = file_op(x, IO_READ, in, sizeof in, FILE_BYTES + 5);
    support_fill(out, sizeof out, 0, 99);
    assert_int_equal(engine_run(x->engine, &write), sizeof out);
    assert_int_equal(engine_run(x->engine, &sync), 0);
    assert_int_equal(engine_run(x->engine, &read), sizeof in);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(engine_stats(x->engine)->writes, 1);
    assert_int_equal(engine_stats(x->engine)->write_bytes, sizeof out);
    assert_int_equal(engine_stats(x->engine)->syncs, 1);
}

static void test_registered_buffers(void **state)
{
    struct fixture *x = begin(state);
    uint8_t *range = memory_map(16384, 0), outside[512];
    /* locked-memory limits may forbid it; reads must work all the same */
    int rc = engine_register_buffers(x->engine, range, 16384);
    assert_true(rc == 0 || rc == QUIRE_ENOMEM || rc == QUIRE_EPERM);
    struct io_op op = file_op(x, IO_READ, range + 4096, 8192, 777);
    assert_int_equal(engine_run(x->engine, &op), 8192);
    assert_int_equal(support_differs(range + 4096, 8192, 777, SEED), 8192);
    op = file_op(x, IO_READ, outside, sizeof outside, 4);
    assert_int_equal(engine_run(x->engine, &op), sizeof outside);
    assert_int_equal(support_differs(outside, sizeof outside, 4, SEED), sizeof outside);
    engine_destroy(x->engine);
    x->engine = NULL;
    memory_unmap(range, 16384);
    fs_close(x->file);
    support_folder_remove(x->folder);
}

static void test_direct_needs_alignment(void **state)
{
    struct fixture *x = begin(state);
    uint8_t *page = memory_map(4096, 0);
    struct io_file direct = *x->file;
    direct.direct = true;
    struct io_op op = file_op(x, IO_READ, page, 512, 0);
    op.file = &direct;
    assert_int_equal(engine_run(x->engine, &op), QUIRE_EINVALID);
    op = file_op(x, IO_READ, page, 4096, 512);
    op.file = &direct;
    assert_int_equal(engine_run(x->engine, &op), QUIRE_EINVALID);
    memory_unmap(page, 4096);
}

#define MANY 64

static void on_capped(struct io_op *op, int result, unsigned flags)
{
    struct seen *seen = op->owner;
    assert_true(engine_stats(seen->engine)->reads_in_flight <= 4);
    on_done(op, result, flags);
}

static void test_cap_on_reads(void **state)
{
    struct fixture *x = begin(state);
    static uint8_t buffers[MANY][512];
    static struct io_op ops[MANY];
    struct seen *seen = calloc(MANY, sizeof *seen);
    for (unsigned i = 0; i < MANY; i++) {
        seen[i].engine = x->engine;
        ops[i] = file_op(x, IO_READ, buffers[i], 512, 1000 * (uint64_t)i);
        ops[i].owner = &seen[i];
        ops[i].done = on_capped;
        engine_queue(x->engine, &ops[i]);
    }
    /* one wait for all: reads beyond the cap must follow without another call */
    assert_int_equal(engine_poll(x->engine, MANY, 20000000), MANY);
    for (unsigned i = 0; i < MANY; i++) {
        assert_true(seen[i].ended);
        assert_int_equal(seen[i].result, 512);
        assert_int_equal(support_differs(buffers[i], 512, 1000 * (uint64_t)i, SEED), 512);
    }
    assert_int_equal(engine_stats(x->engine)->reads_in_flight_peak, 4);
    assert_int_equal(engine_stats(x->engine)->reads_in_flight, 0);
    assert_int_equal(engine_stats(x->engine)->reads_waiting, 0);
    free(seen);
}

static unsigned n_ranked;

static void on_ranked(struct io_op *op, int result, unsigned flags)
{
    unsigned *place = op->owner;
    assert_int_equal(flags, 0);
    assert_int_equal(result, 512);
    *place = n_ranked++;
}

/* Of those that wait for the device the lowest rank goes first, and of equal ranks the first that came. */
static void test_ranks_of_reads(void **state)
{
    struct fixture *x = begin(state);
    enum { N = 40, RANKS = 5 };
    struct engine_config config = {.reads_max = 1};
    static uint8_t buffers[N][512];
    struct io_op ops[N];
    unsigned places[N], expected = 0;
    struct engine *engine;
    assert_int_equal(make_engine(x->which, &config, &engine), 0);
    n_ranked = 0;
    for (unsigned i = 0; i < N; i++) {
        ops[i] = file_op(x, IO_READ, buffers[i], 512, 0);
        ops[i].rank = i * 3 % RANKS;
        ops[i].done = on_ranked;
        ops[i].owner = &places[i];
        engine_queue(engine, &ops[i]);
    }
    while (n_ranked < N)
        assert_true(engine_poll(engine, 1, 20000000) >= 0);
    for (unsigned rank = 0; rank < RANKS; rank++)
        for (unsigned i = 0; i < N; i++)
            if (ops[i].rank == rank)
                assert_int_equal(places[i], expected++);
    assert_int_equal(engine_stats(engine)->reads_in_flight_peak, 1);
    engine_destroy(engine);
}

#define CHAINS       16
#define CHAIN_LENGTH 300

struct chain {
    struct io_op op;
    struct engine *engine;
    unsigned left;
    uint64_t random;
    uint8_t buffer[256];
    unsigned *running;
};

/* Each op checks what it read and queues itself again. */
static void on_link(struct io_op *op, int result, unsigned flags)
{
    struct chain *chain = op->owner;
    assert_int_equal(flags, 0);
    assert_int_equal(result, sizeof chain->buffer);
    assert_int_equal(support_differs(chain->buffer, sizeof chain->buffer, op->offset, SEED), sizeof chain->buffer);
    if (--chain->left == 0) {
        --*chain->running;
        return;
    }
    chain->random = chain->random * 6364136223846793005u + 1442695040888963407u;
    op->offset = (chain->random >> 33) % (FILE_BYTES - sizeof chain->buffer);
    engine_queue(chain->engine, op);
}

static void test_many_reads_queue_themselves(void **state)
{
    struct fixture *x = begin(state);
    struct chain *chains = calloc(CHAINS, sizeof *chains);
    unsigned running = CHAINS;
    for (unsigned i = 0; i < CHAINS; i++) {
        struct chain *chain = &chains[i];
        chain->op = file_op(x, IO_READ, chain->buffer, sizeof chain->buffer, 97 * (uint64_t)i);
        chain->op.done = on_link;
        chain->op.owner = chain;
        chain->engine = x->engine;
        chain->left = CHAIN_LENGTH;
        chain->random = i;
        chain->running = &running;
        engine_queue(x->engine, &chain->op);
    }
    while (running > 0)
        assert_true(engine_poll(x->engine, running < 8 ? running : 8, 20000000) > 0);
    assert_int_equal(engine_stats(x->engine)->reads, CHAINS * CHAIN_LENGTH);
    free(chains);
}

/* ---- timers and waits -------------------------------------------------------------------------------------------- */

static void test_timers(void **state)
{
    struct fixture *x = begin(state);
    const uint64_t timeouts[] = {9000, 1000, 5000, 0};
    struct seen *seen = calloc(4, sizeof *seen);
    struct io_op ops[4];
    uint64_t begun = clock_us();
    for (int i = 0; i < 4; i++) {
        ops[i] = (struct io_op){.kind = IO_TIMER, .timeout_us = timeouts[i], .done = on_done, .owner = &seen[i]};
        engine_queue(x->engine, &ops[i]);
    }
    poll_until(x->engine, &seen[0].ended);
    assert_true(clock_us() - begun >= 9000);
    assert_true(seen[3].order < seen[1].order && seen[1].order < seen[2].order && seen[2].order < seen[0].order);
    for (int i = 0; i < 4; i++)
        assert_int_equal(seen[i].result, 0);
    free(seen);
}

static void test_poll_times_out(void **state)
{
    struct fixture *x = begin(state);
    uint64_t begun = clock_us();
    assert_int_equal(engine_poll(x->engine, 0, 0), 0);
    assert_int_equal(engine_poll(x->engine, 1, 0), 0);
    assert_int_equal(engine_poll(x->engine, 0, NEVER_US), 0);
    assert_int_equal(engine_poll(x->engine, 1, 3000), 0);
    uint64_t took = clock_us() - begun;
    assert_true(took >= 3000 && took < NEVER_US);
}

static void *wake_later(void *context)
{
    usleep(3000);
    engine_wake(context);
    return NULL;
}

static void test_wake(void **state)
{
    struct fixture *x = begin(state);
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread, NULL, wake_later, x->engine), 0);
        assert_int_equal(engine_poll(x->engine, 1, UINT64_MAX), 0);
        pthread_join(thread, NULL);
    }
    /* a wake before the wait is not lost, and wakes once */
    engine_poll(x->engine, 0, 0);
    engine_wake(x->engine);
    assert_int_equal(engine_poll(x->engine, 1, UINT64_MAX), 0);
    uint64_t begun = clock_us();
    assert_int_equal(engine_poll(x->engine, 1, 2000), 0);
    assert_true(clock_us() - begun >= 2000);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

static void test_event_fd(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(1, sizeof *seen);
    uint8_t buffer[100];
    int fd = engine_event_fd(x->engine);
    assert_true(fd >= 0);
    assert_int_equal(engine_event_fd(x->engine), fd);
    struct io_op timer = {.kind = IO_TIMER, .timeout_us = 2000, .done = on_done, .owner = seen};
    engine_queue(x->engine, &timer);
    engine_poll(x->engine, 0, 0);
    assert_true(is_readable(fd, 5000));
    while (!seen->ended)
        assert_true(engine_poll(x->engine, 0, 0) >= 0);
    struct io_op read = file_op(x, IO_READ, buffer, sizeof buffer, 0);
    memset(seen, 0, sizeof *seen);
    read.owner = seen;
    engine_queue(x->engine, &read);
    engine_poll(x->engine, 0, 0);
    while (!seen->ended) {
        assert_true(is_readable(fd, 5000));
        assert_true(engine_poll(x->engine, 0, 0) >= 0);
    }
    assert_int_equal(seen->result, 100);
    free(seen);
}

/* ---- cancel ------------------------------------------------------------------------------------------------------ */

static void test_cancel_timer(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(3, sizeof *seen);
    struct io_op timer = {.kind = IO_TIMER, .timeout_us = NEVER_US, .done = on_done, .owner = &seen[0]};
    struct io_op cancel = {.kind = IO_CANCEL, .target = &timer, .done = on_done, .owner = &seen[1]};
    struct io_op again = {.kind = IO_CANCEL, .target = &timer, .done = on_done, .owner = &seen[2]};
    engine_queue(x->engine, &timer);
    engine_poll(x->engine, 0, 0);
    engine_queue(x->engine, &cancel);
    poll_until(x->engine, &seen[0].ended);
    poll_until(x->engine, &seen[1].ended);
    assert_int_equal(seen[0].result, QUIRE_ECANCELLED);
    assert_int_equal(seen[1].result, 0);
    engine_queue(x->engine, &again);
    poll_until(x->engine, &seen[2].ended);
    assert_int_equal(seen[2].result, QUIRE_ENOTFOUND);
    free(seen);
}

/* Every read ends once: cancelled, or with all its bytes when it was begun; those beyond the cap are cancelled. */
static void test_cancel_reads(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(32, sizeof *seen);
    static uint8_t buffers[16][512];
    struct io_op ops[16], cancels[16];
    int cancelled = 0;
    for (int i = 0; i < 16; i++) {
        ops[i] = file_op(x, IO_READ, buffers[i], 512, 512 * (uint64_t)i);
        ops[i].owner = &seen[i];
        engine_queue(x->engine, &ops[i]);
    }
    for (int i = 0; i < 16; i++) {
        cancels[i] = (struct io_op){.kind = IO_CANCEL, .target = &ops[i], .done = on_done, .owner = &seen[16 + i]};
        engine_queue(x->engine, &cancels[i]);
    }
    for (int i = 0; i < 32; i++)
        poll_until(x->engine, &seen[i].ended);
    for (int i = 0; i < 16; i++) {
        assert_true(seen[i].result == QUIRE_ECANCELLED || seen[i].result == 512);
        assert_int_equal(seen[16 + i].result, 0);
        cancelled += seen[i].result == QUIRE_ECANCELLED;
    }
    assert_true(cancelled >= 12);
    assert_int_equal(engine_stats(x->engine)->reads_in_flight, 0);
    assert_int_equal(engine_stats(x->engine)->reads_waiting, 0);
    free(seen);
}

/* ---- sockets ----------------------------------------------------------------------------------------------------- */

static int listen_on_loopback(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)address, sizeof *address), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)address, &size), 0);
    return fd;
}

static void on_accepted(struct io_op *op, int result, unsigned flags)
{
    if (result >= 0)
        close(result);
    on_done(op, result, flags);
}

static void test_accept(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(2, sizeof *seen);
    struct sockaddr_in address;
    int listening = listen_on_loopback(&address);
    struct io_op op = {.kind = IO_ACCEPT, .fd = listening, .done = on_accepted, .owner = &seen[0]};
    engine_queue(x->engine, &op);
    for (int i = 0; i < 5; i++) {
        int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
        poll_calls(x->engine, seen, i + 1);
        assert_true(seen->result >= 0);
        close(client);
    }
    assert_int_equal(seen->more, 5);
    struct io_op cancel = {.kind = IO_CANCEL, .target = &op, .done = on_done, .owner = &seen[1]};
    engine_queue(x->engine, &cancel);
    poll_until(x->engine, &seen[0].ended);
    poll_until(x->engine, &seen[1].ended);
    assert_int_equal(seen[0].result, QUIRE_ECANCELLED);
    assert_int_equal(seen[1].result, 0);
    assert_int_equal(engine_stats(x->engine)->accepts, 6);
    close(listening);
    free(seen);
}

static void test_receive(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(1, sizeof *seen);
    uint8_t out[6000];
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct io_op op = {.kind = IO_RECV, .fd = pair[0], .done = on_done, .owner = seen};
    engine_queue(x->engine, &op);
    assert_int_equal(write(pair[1], "hello", 5), 5);
    poll_calls(x->engine, seen, 1);
    assert_int_equal(seen->bytes, 5);
    assert_memory_equal(seen->data, "hello", 5);
    /* far more than all receive buffers hold */
    support_fill(out, sizeof out, 0, 3);
    assert_int_equal(write(pair[1], out, sizeof out), sizeof out);
    while (seen->bytes < 5 + sizeof out)
        assert_true(engine_poll(x->engine, 1, 20000000) > 0);
    assert_memory_equal(seen->data + 5, out, sizeof out);
    assert_false(seen->ended);
    assert_int_equal(seen->more, seen->calls);
    close(pair[1]);
    poll_until(x->engine, &seen->ended);
    assert_int_equal(seen->result, 0);
    close(pair[0]);
    free(seen);
}

static void test_cancel_receive(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(2, sizeof *seen);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct io_op op = {.kind = IO_RECV, .fd = pair[0], .done = on_done, .owner = &seen[0]};
    struct io_op cancel = {.kind = IO_CANCEL, .target = &op, .done = on_done, .owner = &seen[1]};
    engine_queue(x->engine, &op);
    engine_poll(x->engine, 0, 0);
    engine_queue(x->engine, &cancel);
    poll_until(x->engine, &seen[0].ended);
    assert_int_equal(seen[0].result, QUIRE_ECANCELLED);
    poll_until(x->engine, &seen[1].ended);
    /* the same op can be armed again */
    memset(seen, 0, sizeof *seen);
    engine_queue(x->engine, &op);
    assert_int_equal(write(pair[1], "x", 1), 1);
    poll_calls(x->engine, seen, 1);
    assert_int_equal(seen[0].result, 1);
    close(pair[1]);
    poll_until(x->engine, &seen[0].ended);
    close(pair[0]);
    free(seen);
}

/* The last bytes and the end behind them come while nobody looks. */
static void test_end_behind_bytes(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(1, sizeof *seen);
    for (unsigned i = 0; i < 50; i++) {
        int pair[2];
        memset(seen, 0, sizeof *seen);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        struct io_op op = {.kind = IO_RECV, .fd = pair[0], .done = on_done, .owner = seen};
        engine_queue(x->engine, &op);
        engine_poll(x->engine, 0, 0);
        assert_int_equal(write(pair[1], "hello", 5), 5);
        assert_int_equal(shutdown(pair[1], SHUT_WR), 0);
        poll_until(x->engine, &seen->ended);
        assert_int_equal(seen->bytes, 5);
        assert_int_equal(seen->result, 0);
        close(pair[0]);
        close(pair[1]);
    }
    free(seen);
}

/* Two ends of a connection over loopback. */
static void connect_pair(int pair[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&at, &bytes), 0);
    pair[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(pair[1], (struct sockaddr *)&at, sizeof at), 0);
    pair[0] = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(pair[0] >= 0);
    close(listening);
}

/* A receive that is shut down and cancelled ends, whatever comes at that moment. */
static void test_shutdown_behind_bytes(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(2, sizeof *seen);
    for (unsigned i = 0; i < 50; i++) {
        int pair[2];
        memset(seen, 0, 2 * sizeof *seen);
        connect_pair(pair);
        struct io_op op = {.kind = IO_RECV, .fd = pair[0], .done = on_done, .owner = &seen[0]};
        struct io_op cancel = {.kind = IO_CANCEL, .target = &op, .done = on_done, .owner = &seen[1]};
        engine_queue(x->engine, &op);
        engine_poll(x->engine, 0, 0);
        assert_int_equal(write(pair[1], "hello", 5), 5);
        assert_int_equal(shutdown(pair[0], SHUT_RDWR), 0);
        engine_queue(x->engine, &cancel);
        poll_until(x->engine, &seen[0].ended);
        poll_until(x->engine, &seen[1].ended);
        close(pair[0]);
        close(pair[1]);
    }
    free(seen);
}

/* A receive that has ended by itself, for want of buffers, when it is cancelled is not armed again. */
static void test_cancel_of_a_receive_that_ends(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(2, sizeof *seen);
    uint8_t out[6000] = {0}; /* far more than all receive buffers hold */
    int pair[2];
    connect_pair(pair);
    struct io_op op = {.kind = IO_RECV, .fd = pair[0], .done = on_done, .owner = &seen[0]};
    struct io_op cancel = {.kind = IO_CANCEL, .target = &op, .done = on_done, .owner = &seen[1]};
    engine_queue(x->engine, &op);
    engine_poll(x->engine, 0, 0);
    assert_int_equal(write(pair[1], out, sizeof out), sizeof out);
    engine_flush(x->engine);
    engine_queue(x->engine, &cancel);
    poll_until(x->engine, &seen[0].ended);
    poll_until(x->engine, &seen[1].ended);
    assert_true(seen[0].result == QUIRE_ECANCELLED || seen[0].result > 0);
    close(pair[0]);
    close(pair[1]);
    free(seen);
}

#define STREAM_BYTES (2u << 20)

struct stream {
    struct engine *engine;
    uint8_t *bytes;
    uint64_t sent, received;
    bool sender_ended, receiver_ended, right;
};

static void on_sent(struct io_op *op, int result, unsigned flags)
{
    struct stream *s = op->owner;
    assert_true(result > 0 && flags == 0);
    s->sent += (uint64_t)result;
    s->sender_ended = s->sent == STREAM_BYTES;
    op->buffer = s->bytes + s->sent;
    op->bytes = (uint32_t)(STREAM_BYTES - s->sent);
    if (s->sender_ended)
        shutdown(op->fd, SHUT_WR);
    else
        engine_queue(s->engine, op);
}

static void on_streamed(struct io_op *op, int result, unsigned flags)
{
    struct stream *s = op->owner;
    assert_true(result >= 0);
    s->right = s->right && support_differs(op->buffer, (size_t)result, s->received, 5) == (size_t)result;
    s->received += (uint64_t)result;
    s->receiver_ended = !(flags & IO_MORE);
}

/* A stream through one lane, larger than the sockets hold, both ends on the engine, and one the other way. */
static void test_stream(void **state)
{
    struct fixture *x = begin(state);
    struct seen *back = calloc(1, sizeof *back);
    struct stream s = {.engine = x->engine, .bytes = malloc(STREAM_BYTES), .right = true};
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    support_fill(s.bytes, STREAM_BYTES, 0, 5);
    struct io_op send = {
        .kind = IO_SEND, .fd = pair[0], .buffer = s.bytes, .bytes = STREAM_BYTES, .done = on_sent, .owner = &s};
    struct io_op receive = {.kind = IO_RECV, .fd = pair[1], .done = on_streamed, .owner = &s};
    struct io_op other_way = {.kind = IO_RECV, .fd = pair[0], .done = on_done, .owner = back};
    engine_queue(x->engine, &other_way);
    engine_queue(x->engine, &send);
    engine_poll(x->engine, 0, 0);
    assert_int_equal(write(pair[1], "ok", 2), 2);
    poll_calls(x->engine, back, 1);
    engine_queue(x->engine, &receive);
    poll_until(x->engine, &s.receiver_ended);
    assert_true(s.sender_ended && s.right);
    assert_int_equal(s.received, STREAM_BYTES);
    close(pair[1]);
    poll_until(x->engine, &back->ended);
    close(pair[0]);
    free(s.bytes);
    free(back);
}

/* Sends that wait behind each other on a full socket: one is cancelled, the others end when there is room. */
static void test_blocked_sends(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(4, sizeof *seen);
    uint8_t *bytes = calloc(1, STREAM_BYTES), sink[65536];
    struct io_op ops[3];
    uint64_t before = 0, received = 0;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    for (ssize_t n; (n = send(pair[0], bytes, 4096, MSG_DONTWAIT)) > 0;)
        before += (uint64_t)n;
    for (int i = 0; i < 3; i++) {
        ops[i] = (struct io_op){
            .kind = IO_SEND, .fd = pair[0], .buffer = bytes, .bytes = 4096, .done = on_done, .owner = &seen[i]};
        engine_queue(x->engine, &ops[i]);
    }
    assert_int_equal(engine_poll(x->engine, 1, 1000), 0);
    struct io_op cancel = {.kind = IO_CANCEL, .target = &ops[0], .done = on_done, .owner = &seen[3]};
    engine_queue(x->engine, &cancel);
    poll_until(x->engine, &seen[0].ended);
    poll_until(x->engine, &seen[3].ended);
    assert_int_equal(seen[0].result, QUIRE_ECANCELLED);
    while (received < before + seen[1].bytes + seen[2].bytes || !seen[1].ended || !seen[2].ended) {
        ssize_t n = recv(pair[1], sink, sizeof sink, MSG_DONTWAIT);
        received += n > 0 ? (uint64_t)n : 0;
        assert_true(engine_poll(x->engine, 0, 0) >= 0);
    }
    assert_true(seen[1].result > 0 && seen[2].result > 0);
    assert_int_equal(recv(pair[1], sink, 1, MSG_DONTWAIT), -1);
    close(pair[0]);
    close(pair[1]);
    free(bytes);
    free(seen);
}

/* Under epoll a second receive on the same socket is refused, not lost. */
static void test_second_receive(void **state)
{
    struct fixture *x = begin(state);
    struct seen *seen = calloc(1, sizeof *seen);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct io_op first = {.kind = IO_RECV, .fd = pair[0], .done = on_done, .owner = seen};
    struct io_op second = {.kind = IO_RECV, .fd = pair[0], .done = on_done};
    engine_queue(x->engine, &first);
    assert_int_equal(engine_run(x->engine, &second), QUIRE_EBUSY);
    close(pair[1]);
    poll_until(x->engine, &seen->ended);
    assert_int_equal(seen->result, 0);
    close(pair[0]);
    free(seen);
}

static void test_socket_errors(void **state)
{
    struct fixture *x = begin(state);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    close(pair[1]);
    struct io_op send = {.kind = IO_SEND, .fd = pair[0], .buffer = pair, .bytes = 4, .done = on_done};
    assert_int_equal(engine_run(x->engine, &send), QUIRE_ENET);
    close(pair[0]);
    struct io_op receive = {.kind = IO_RECV, .fd = 1000000, .done = on_done};
    assert_int_equal(engine_run(x->engine, &receive), QUIRE_EIO);
    struct io_op accept_op = {.kind = IO_ACCEPT, .fd = 1000000, .done = on_done};
    assert_int_equal(engine_run(x->engine, &accept_op), QUIRE_EIO);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Queues its op once more when it is cancelled: destroy must end that one, too. */
static void on_last(struct io_op *op, int result, unsigned flags)
{
    struct seen *seen = op->owner;
    (void)flags;
    seen->calls++;
    seen->result = result;
    if (seen->calls == 1)
        engine_queue(seen->engine, op);
}

static void test_destroy_ends_all(void **state)
{
    struct fixture *x = begin(state);
    struct engine_config config = {.reads_max = 1, .recv_buffers = 4};
    struct seen *seen = calloc(20, sizeof *seen);
    struct io_op ops[20];
    static uint8_t buffers[16][512];
    struct engine *engine;
    struct sockaddr_in address;
    int pair[2], listening = listen_on_loopback(&address);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(make_engine(x->which, &config, &engine), 0);
    ops[0] = (struct io_op){.kind = IO_TIMER, .timeout_us = NEVER_US, .done = on_done};
    ops[1] = (struct io_op){.kind = IO_RECV, .fd = pair[0], .done = on_done};
    ops[2] = (struct io_op){.kind = IO_ACCEPT, .fd = listening, .done = on_done};
    ops[3] = (struct io_op){.kind = IO_TIMER, .timeout_us = NEVER_US, .done = on_last};
    for (int i = 4; i < 20; i++)
        ops[i] = file_op(x, IO_READ, buffers[i - 4], 512, 0);
    for (int i = 0; i < 20; i++) {
        seen[i].engine = engine;
        ops[i].owner = &seen[i];
        engine_queue(engine, &ops[i]);
        /* the last ones are never seen by a poll */
        if (i < 16)
            engine_poll(engine, 0, 0);
    }
    engine_destroy(engine);
    for (int i = 0; i < 3; i++)
        assert_int_equal(seen[i].result, QUIRE_ECANCELLED);
    assert_int_equal(seen[3].calls, 2);
    assert_int_equal(seen[3].result, QUIRE_ECANCELLED);
    for (int i = 4; i < 20; i++)
        assert_true(seen[i].ended && (seen[i].result == 512 || seen[i].result == QUIRE_ECANCELLED));
    assert_int_equal(seen[19].result, QUIRE_ECANCELLED);
    close(pair[0]);
    close(pair[1]);
    close(listening);
    free(seen);
}

static void test_names(void **state)
{
    struct fixture *x = begin(state);
    const char *names[] = {"uring", "threads", "fault"};
    assert_string_equal(engine_name(x->engine), names[x->which]);
    assert_non_null(engine_note(x->engine));
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static void test_choice(void **state)
{
    struct engine_config config = {.kind = QUIRE_ENGINE_AUTO};
    struct engine *engine = NULL;
    struct quire_error err;
    (void)state;
    setenv("QUIRE_ENGINE", "threads", 1);
    assert_int_equal(engine_create(&config, &engine, &err), 0);
    assert_string_equal(engine_name(engine), "threads");
    assert_non_null(strstr(engine_note(engine), "QUIRE_ENGINE"));
    engine_destroy(engine);
    unsetenv("QUIRE_ENGINE");
    assert_int_equal(engine_create(&config, &engine, &err), 0);
    engine_destroy(engine);
    config.kind = (enum quire_engine_kind)77;
    assert_int_equal(engine_create(&config, &engine, &err), QUIRE_EINVALID);
    engine_destroy(NULL);
}

/* A threads engine without receive buffers refuses to receive instead of waiting for ever. */
static void test_no_sockets(void **state)
{
    struct engine_config config = {.kind = QUIRE_ENGINE_THREADS, .threads = 1};
    struct engine *engine = NULL;
    struct quire_error err;
    (void)state;
    assert_int_equal(engine_create(&config, &engine, &err), 0);
    struct io_op receive = {.kind = IO_RECV, .fd = 0, .done = on_done};
    assert_int_equal(engine_run(engine, &receive), QUIRE_EINVALID);
    engine_destroy(engine);
}

#define ROW(test, kind)                                                                                                \
    {                                                                                                                  \
#test "/" #kind, test, setup, teardown, &kinds[kind]                                                           \
    }
#define ROWS(test) ROW(test, URING), ROW(test, THREADS), ROW(test, FAULT)

int main(void)
{
    const struct CMUnitTest tests[] = {ROWS(test_names),
                                       ROWS(test_reads),
                                       ROWS(test_read_at_end),
                                       ROWS(test_write_sync_read),
                                       ROWS(test_registered_buffers),
                                       ROWS(test_direct_needs_alignment),
                                       ROWS(test_cap_on_reads),
                                       ROW(test_ranks_of_reads, URING),
                                       ROW(test_ranks_of_reads, THREADS),
                                       ROWS(test_many_reads_queue_themselves),
                                       ROWS(test_timers),
                                       ROWS(test_poll_times_out),
                                       ROWS(test_wake),
                                       ROWS(test_event_fd),
                                       ROWS(test_cancel_timer),
                                       ROWS(test_cancel_reads),
                                       ROWS(test_accept),
                                       ROWS(test_receive),
                                       ROWS(test_cancel_receive),
                                       ROWS(test_end_behind_bytes),
                                       ROWS(test_shutdown_behind_bytes),
                                       ROWS(test_cancel_of_a_receive_that_ends),
                                       ROWS(test_stream),
                                       ROWS(test_blocked_sends),
                                       ROW(test_second_receive, THREADS),
                                       ROW(test_second_receive, FAULT),
                                       ROWS(test_socket_errors),
                                       ROWS(test_destroy_ends_all),
                                       cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_no_sockets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
