/*
 * engine_fault.c - an engine for tests: file ops late and out of order, by a seed.
 *
 * It wraps a threads engine, which keeps all that is not a file op: sockets, timers, waits, the event descriptor. File
 * ops stay here. Each gets a number of passes to wait; engine_poll makes passes, and what is due in the same pass is
 * carried out, through the file's io_fs, in an arbitrary order. So a write can land after a sync that was queued later,
 * and reads come back in any order, as on a device with many queues; no time passes, so runs are quick and repeat.
 *
 * A cancel finds its target begun or not by a throw of the dice: both are right, and a caller must stand both.
 */
#include "io/clock.h"
#include "io/engine_priv.h"
#include "io/error.h"
#include "io/random.h"
#include "tests/support/fault.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PASSES_MAX 4u

/* op->state[0]: where a file op stands */
enum place { AT_END = 0, AT_READS, AT_FLYING };
/* op->state[1]: result; state[2]: passes to wait */

struct fault_engine {
    struct engine base;
    struct engine *inner;
    struct random random;
    unsigned reads_max, dispatched, n_flying;
    struct op_list queued, reads, flying, finished;
    atomic_bool wake_asked;
};

static struct fault_engine *fault_of(struct engine *engine)
{
    return (struct fault_engine *)(void *)engine;
}

static bool is_file_op(const struct io_op *op)
{
    return op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SYNC;
}

static int fault_attach(struct engine *engine, struct io_file *file)
{
    return engine_attach(fault_of(engine)->inner, file);
}

static void fault_detach(struct engine *engine, struct io_file *file)
{
    engine_detach(fault_of(engine)->inner, file);
}

static int fault_register_buffers(struct engine *engine, void *base, size_t bytes)
{
    return engine_register_buffers(fault_of(engine)->inner, base, bytes);
}

static void fault_queue(struct engine *engine, struct io_op *op)
{
    struct fault_engine *f = fault_of(engine);
    /* during destroy nothing goes to the inner engine any more, all is ended here */
    bool mine = !f->inner || is_file_op(op) || (op->kind == IO_CANCEL && is_file_op(op->target));
    if (!mine) {
        engine_queue(f->inner, op);
        return;
    }
    memset(op->state, 0, sizeof op->state);
    engine_op_list_add(&f->queued, op);
}

static void finish_later(struct fault_engine *f, struct io_op *op, int result)
{
    op->state[0] = AT_END;
    op->state[1] = (uint64_t)(int64_t)result;
    engine_op_list_add(&f->finished, op);
}

static void fly(struct fault_engine *f, struct io_op *op)
{
    op->state[0] = AT_FLYING;
    op->state[2] = random_below(&f->random, PASSES_MAX);
    engine_op_list_add(&f->flying, op);
    f->n_flying++;
}

static void land(struct fault_engine *f, struct io_op *op, int result)
{
    engine_op_list_remove(&f->flying, op);
    f->n_flying--;
    f->base.stats.reads_in_flight -= op->kind == IO_READ;
    finish_later(f, op, result);
}

static void cancel_target(struct fault_engine *f, struct io_op *op)
{
    struct io_op *target = op->target;
    int result = target->state[0] == AT_END ? QUIRE_ENOTFOUND : 0;
    if (target->state[0] == AT_READS) {
        engine_op_list_remove(&f->reads, target);
        f->base.stats.reads_waiting--;
        finish_later(f, target, QUIRE_ECANCELLED);
    } else if (target->state[0] == AT_FLYING && random_below(&f->random, 2) == 0) {
        land(f, target, QUIRE_ECANCELLED);
    }
    finish_later(f, op, result);
}

static void move_queued(struct fault_engine *f)
{
    struct engine_stats *s = &f->base.stats;
    struct io_op *op;
    while ((op = engine_op_list_take(&f->queued))) {
        int rc = engine_check_op(op);
        if (rc < 0) {
            finish_later(f, op, rc);
        } else if (op->kind == IO_CANCEL) {
            cancel_target(f, op);
        } else if (op->kind == IO_READ) {
            op->state[0] = AT_READS;
            engine_op_list_add(&f->reads, op);
            s->reads_waiting++;
        } else {
            fly(f, op);
        }
    }
    while (f->reads.first && s->reads_in_flight < f->reads_max) {
        op = engine_op_list_take(&f->reads);
        s->reads_waiting--;
        if (++s->reads_in_flight > s->reads_in_flight_peak)
            s->reads_in_flight_peak = s->reads_in_flight;
        fly(f, op);
    }
}

/* Carries out what is due, beginning at an arbitrary op and going backwards or forwards. */
static void make_pass(struct fault_engine *f)
{
    uint64_t skip = f->n_flying ? random_below(&f->random, f->n_flying) : 0;
    bool backwards = random_below(&f->random, 2);
    for (unsigned left = f->n_flying; left > 0 && skip > 0; left--, skip--) {
        struct io_op *op = engine_op_list_take(&f->flying);
        engine_op_list_add(&f->flying, op);
    }
    struct io_op *next, *op = backwards ? f->flying.last : f->flying.first;
    for (; op; op = next) {
        next = backwards ? op->prev : op->next;
        if (op->state[2] > 0)
            op->state[2]--;
        else
            land(f, op, engine_run_through_fs(op));
    }
}

static void end_finished(struct fault_engine *f)
{
    struct op_list list = f->finished;
    struct io_op *op;
    f->finished = (struct op_list){0};
    while ((op = engine_op_list_take(&list))) {
        engine_count(&f->base, op, (int)(int64_t)op->state[1]);
        f->dispatched++;
        op->done(op, (int)(int64_t)op->state[1], 0);
    }
}

static void take_inner_stats(struct fault_engine *f)
{
    const struct engine_stats *inner = engine_stats(f->inner);
    f->base.stats.receives = inner->receives;
    f->base.stats.sends = inner->sends;
    f->base.stats.accepts = inner->accepts;
    f->base.stats.submissions = inner->submissions;
}

static int fault_poll(struct engine *engine, unsigned wait_min, uint64_t timeout_us)
{
    struct fault_engine *f = fault_of(engine);
    uint64_t deadline = 0;
    int rc = 0;
    bool woken = false;
    f->dispatched = 0;
    for (bool first = true; rc >= 0; first = false) {
        move_queued(f);
        make_pass(f);
        end_finished(f);
        woken = atomic_exchange(&f->wake_asked, false) || woken;
        bool busy = f->queued.first || f->reads.first || f->flying.first || f->finished.first;
        bool enough = f->dispatched >= wait_min || woken;
        uint64_t now = clock_us(), left = UINT64_MAX;
        if (!deadline)
            deadline = timeout_us < UINT64_MAX - now ? now + timeout_us : UINT64_MAX;
        if (deadline != UINT64_MAX)
            left = now < deadline ? deadline - now : 0;
        if ((enough || left == 0) && !first)
            break;
        rc = busy || enough ? engine_poll(f->inner, 0, 0) : engine_poll(f->inner, 1, left);
        f->dispatched += rc > 0 ? (unsigned)rc : 0;
    }
    move_queued(f);
    take_inner_stats(f);
    if (f->flying.first || f->finished.first)
        engine_wake(f->inner);
    return rc < 0 ? rc : (int)f->dispatched;
}

static void fault_wake(struct engine *engine)
{
    struct fault_engine *f = fault_of(engine);
    atomic_store(&f->wake_asked, true);
    engine_wake(f->inner);
}

static int fault_event_fd(struct engine *engine)
{
    return engine_event_fd(fault_of(engine)->inner);
}

static void drain(struct fault_engine *f)
{
    struct io_op *op;
    while (f->flying.first)
        land(f, f->flying.first, QUIRE_ECANCELLED);
    while (f->queued.first || f->reads.first || f->finished.first) {
        while ((op = engine_op_list_take(&f->queued)) || (op = engine_op_list_take(&f->reads)))
            finish_later(f, op, QUIRE_ECANCELLED);
        end_finished(f);
    }
}

/* Each engine's last `done`s may queue ops for the other one, hence the two drains. */
static void fault_destroy(struct engine *engine)
{
    struct fault_engine *f = fault_of(engine);
    struct engine *inner = f->inner;
    drain(f);
    f->inner = NULL;
    engine_destroy(inner);
    drain(f);
    free(f);
}

static const struct engine_ops fault_ops = {.destroy = fault_destroy,
                                            .attach = fault_attach,
                                            .detach = fault_detach,
                                            .register_buffers = fault_register_buffers,
                                            .queue = fault_queue,
                                            .poll = fault_poll,
                                            .wake = fault_wake,
                                            .event_fd = fault_event_fd};

int engine_fault_create(const struct engine_config *config, uint64_t seed, struct engine **out, struct quire_error *err)
{
    struct engine_config inner = *config;
    struct fault_engine *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(err, QUIRE_ENOMEM, "no memory for an engine");
    inner.threads = 1;
    int rc = engine_threads_create(&inner, &f->inner, err);
    if (rc < 0) {
        free(f);
        return rc;
    }
    f->base.ops = &fault_ops;
    f->base.name = "fault";
    f->reads_max = config->reads_max ? config->reads_max : READS_MAX_DEFAULT;
    random_init(&f->random, seed);
    *out = &f->base;
    return 0;
}
