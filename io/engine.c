/*
 * engine.c - choosing an implementation, and what all of them share.
 *
 * AUTO tries io_uring and falls back to threads where the kernel refuses it (seccomp in containers: EPERM; old kernels:
 * ENOSYS; locked-memory limits: ENOMEM). The fallback is never silent: engine_note carries the reason to INFO and
 * reports. QUIRE_ENGINE=uring|threads in the environment overrides AUTO, for tests and for hosts that want to be sure.
 */
#include "io/engine.h"
#include "io/engine_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int create_auto(const struct engine_config *config, struct engine **out, struct quire_error *err)
{
    struct quire_error why = {0};
    const char *forced = getenv("QUIRE_ENGINE");
    if (forced && strcmp(forced, "threads") == 0) {
        int rc = engine_threads_create(config, out, err);
        if (rc == 0)
            engine_add_note(*out, "chosen by QUIRE_ENGINE");
        return rc;
    }
    int rc = engine_uring_create(config, out, &why);
    if (rc == 0 || (forced && strcmp(forced, "uring") == 0)) {
        if (rc < 0 && err)
            *err = why;
        return rc;
    }
    rc = engine_threads_create(config, out, err);
    if (rc == 0)
        engine_add_note(*out, why.message);
    return rc;
}

int engine_create(const struct engine_config *config, struct engine **out, struct quire_error *err)
{
    switch (config->kind) {
    case QUIRE_ENGINE_URING:
        return engine_uring_create(config, out, err);
    case QUIRE_ENGINE_THREADS:
        return engine_threads_create(config, out, err);
    case QUIRE_ENGINE_AUTO:
        return create_auto(config, out, err);
    }
    return error_set(err, QUIRE_EINVALID, "unknown engine %d: use uring, threads or auto", (int)config->kind);
}

void engine_destroy(struct engine *engine)
{
    if (engine)
        engine->ops->destroy(engine);
}

const char *engine_name(const struct engine *engine)
{
    return engine->name;
}

const char *engine_note(const struct engine *engine)
{
    return engine->note;
}

const struct engine_stats *engine_stats(const struct engine *engine)
{
    return &engine->stats;
}

int engine_attach(struct engine *engine, struct io_file *file)
{
    return engine->ops->attach ? engine->ops->attach(engine, file) : 0;
}

void engine_detach(struct engine *engine, struct io_file *file)
{
    if (engine->ops->detach)
        engine->ops->detach(engine, file);
}

int engine_register_buffers(struct engine *engine, void *base, size_t bytes)
{
    assert((uintptr_t)base % 4096 == 0);
    return engine->ops->register_buffers ? engine->ops->register_buffers(engine, base, bytes) : 0;
}

void engine_queue(struct engine *engine, struct io_op *op)
{
    assert(op->done);
    assert(op->kind > IO_SYNC || op->file);
    assert(op->kind != IO_CANCEL || (op->target && op->target != op));
    engine->ops->queue(engine, op);
}

void engine_flush(struct engine *engine)
{
    if (engine->ops->flush)
        engine->ops->flush(engine);
}

int engine_poll(struct engine *engine, unsigned wait_min, uint64_t timeout_us)
{
    return engine->ops->poll(engine, wait_min, timeout_us);
}

void engine_wake(struct engine *engine)
{
    engine->ops->wake(engine);
}

int engine_event_fd(struct engine *engine)
{
    return engine->ops->event_fd(engine);
}

struct run {
    io_done_fn *done;
    void *owner;
    int result;
    bool finished;
};

static void on_run_done(struct io_op *op, int result, unsigned flags)
{
    struct run *run = op->owner;
    (void)flags;
    run->result = result;
    run->finished = true;
}

int engine_run(struct engine *engine, struct io_op *op)
{
    struct run run = {.done = op->done, .owner = op->owner};
    op->done = on_run_done;
    op->owner = &run;
    engine_queue(engine, op);
    int rc = 0;
    while (!run.finished && rc >= 0)
        rc = engine_poll(engine, 1, UINT64_MAX);
    assert(run.finished || rc < 0);
    op->done = run.done;
    op->owner = run.owner;
    return run.finished ? run.result : rc;
}

void engine_count(struct engine *engine, const struct io_op *op, int result)
{
    struct engine_stats *s = &engine->stats;
    switch (op->kind) {
    case IO_READ:
        s->reads++;
        s->read_bytes += result > 0 ? (uint64_t)result : 0;
        s->read_errors += result < 0;
        break;
    case IO_WRITE:
        s->writes++;
        s->write_bytes += result > 0 ? (uint64_t)result : 0;
        s->write_errors += result < 0;
        break;
    case IO_SYNC:
        s->syncs++;
        s->write_errors += result < 0;
        break;
    case IO_ACCEPT:
        s->accepts++;
        break;
    case IO_RECV:
        s->receives++;
        break;
    case IO_SEND:
        s->sends++;
        break;
    case IO_TIMER:
    case IO_CANCEL:
        break;
    }
}

int engine_run_through_fs(const struct io_op *op)
{
    const struct io_fs_ops *fs = op->file->fs->ops;
    switch (op->kind) {
    case IO_READ:
        return (int)fs->read(op->file, op->buffer, op->bytes, op->offset);
    case IO_WRITE:
        return (int)fs->write(op->file, op->buffer, op->bytes, op->offset);
    case IO_SYNC:
        return fs->sync(op->file);
    default:
        return QUIRE_EINVALID;
    }
}

int engine_check_op(const struct io_op *op)
{
    if (op->kind != IO_READ && op->kind != IO_WRITE)
        return 0;
    bool aligned = (uintptr_t)op->buffer % 4096 == 0 && op->bytes % 4096 == 0 && op->offset % 4096 == 0;
    return op->file->direct && !aligned ? QUIRE_EINVALID : 0;
}

void engine_add_note(struct engine *engine, const char *text)
{
    size_t n = strlen(engine->note);
    assert(n < sizeof engine->note);
    int bytes = snprintf(engine->note + n, sizeof engine->note - n, "%s%s", n ? "; " : "", text);
    assert(bytes >= 0); /* cut where it is too long */
}
