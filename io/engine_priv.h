/* engine_priv.h - the table behind an engine; one row per implementation. */
#ifndef QUIRE_IO_ENGINE_PRIV_H
#define QUIRE_IO_ENGINE_PRIV_H

#include "io/engine.h"
#include <assert.h>

#define RECV_BYTES_DEFAULT 16384u
#define READS_MAX_DEFAULT  64u

struct engine_ops {
    void (*destroy)(struct engine *engine);
    int (*attach)(struct engine *engine, struct io_file *file); /* NULL, as of the next two: nothing to do */
    void (*detach)(struct engine *engine, struct io_file *file);
    int (*register_buffers)(struct engine *engine, void *base, size_t bytes);
    void (*queue)(struct engine *engine, struct io_op *op);
    void (*flush)(struct engine *engine); /* NULL: nothing to do */
    int (*poll)(struct engine *engine, unsigned wait_min, uint64_t timeout_us);
    void (*wake)(struct engine *engine);
    int (*event_fd)(struct engine *engine);
};

struct engine {
    const struct engine_ops *ops;
    const char *name;
    char note[256];
    struct engine_stats stats;
};

/* A list of ops through their own next and prev. */
struct op_list {
    struct io_op *first, *last;
};

static inline void engine_op_list_add(struct op_list *list, struct io_op *op)
{
    assert(!list->first == !list->last);
    op->next = NULL;
    op->prev = list->last;
    if (list->last)
        list->last->next = op;
    else
        list->first = op;
    list->last = op;
}

/* Behind those whose rank is the same or lower; the list is in that order. */
static inline void engine_op_list_add_ranked(struct op_list *list, struct io_op *op)
{
    struct io_op *before = list->last;
    while (before && before->rank > op->rank)
        before = before->prev;
    op->prev = before;
    op->next = before ? before->next : list->first;
    *(op->next ? &op->next->prev : &list->last) = op;
    *(before ? &before->next : &list->first) = op;
}

static inline void engine_op_list_remove(struct op_list *list, struct io_op *op)
{
    assert((op->prev ? op->prev->next : list->first) == op);
    assert((op->next ? op->next->prev : list->last) == op);
    if (op->prev)
        op->prev->next = op->next;
    else
        list->first = op->next;
    if (op->next)
        op->next->prev = op->prev;
    else
        list->last = op->prev;
    op->next = op->prev = NULL;
}

static inline struct io_op *engine_op_list_take(struct op_list *list)
{
    struct io_op *op = list->first;
    if (op)
        engine_op_list_remove(list, op);
    return op;
}

int engine_uring_create(const struct engine_config *config, struct engine **out, struct quire_error *err);
int engine_threads_create(const struct engine_config *config, struct engine **out, struct quire_error *err);

/* Counts a completed file op; result as its `done` will see it. */
void engine_count(struct engine *engine, const struct io_op *op, int result);
/* A file op done at once through its file's fs: ops of files that have no descriptor. */
int engine_run_through_fs(const struct io_op *op);
/* 0, or QUIRE_EINVALID for a file op that direct I/O cannot carry out (alignment). */
int engine_check_op(const struct io_op *op);
void engine_add_note(struct engine *engine, const char *text);

#endif
