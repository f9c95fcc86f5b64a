/*
 * fair_queue.h - whose turn it is: requests of many tenants for one resource, served in proportion to weights.
 *
 * Start-time fair queueing (Goyal, Vin and Cheng, "Start-time Fair Queuing", 1996; with several requests in service at
 * a time: Jin, Chase and Kaur, "Interposed Proportional Sharing for a Storage Service Utility", 2004, SFQ(D)). Pure
 * accounting: no clock, no thread, no I/O. One thread uses a queue. Costs are numbers of any one unit; weights are 1
 * and more.
 *
 *   flow    what one tenant asks for: its items leave in the order in which they came
 *   item    a request: waits (fair_queue_put), is taken (fair_queue_take) and ends (fair_queue_end) or is cancelled
 *
 * Flows are found by their names; one that nobody holds open is kept until its place is wanted.
 */
#ifndef QUIRE_INDEX_FAIR_QUEUE_H
#define QUIRE_INDEX_FAIR_QUEUE_H

#include "quire.h"

struct fair_queue;
struct fair_flow;

/* In the caller's memory, the queue's from put or begin until it has ended or was cancelled. */
struct fair_item {
    struct fair_flow *flow;
    struct fair_item *next, *prev;
    double charged; /* since it was taken: what its flow has paid for it */
};

/* First member of what the caller keeps of a flow (flow_bytes). */
struct fair_flow {
    uint32_t n_waiting, n_running, weight;
    double mean_cost; /* of its last items: what the next one is charged at first */
    /* the queue's */
    uint32_t n_open, heap_at, name_bytes;
    double tag, floor;
    uint64_t arrival, hash;
    struct fair_item *first, *last;
    struct fair_flow *chain, *idle_next, *idle_prev;
    char *name;
};

struct fair_queue_config {
    uint32_t flows_max;
    size_t flow_bytes; /* sizeof struct fair_flow or more; zeroed when a flow is made */
    uint64_t seed;     /* of the names' hash */
    /* A flow is about to be freed: since another needs its place, or the queue is destroyed. May be NULL. */
    void (*forget)(void *context, struct fair_flow *flow);
    void *context;
};
int fair_queue_create(const struct fair_queue_config *config, struct fair_queue **out, struct quire_error *err);
/* No item may be in it. NULL is fine. */
void fair_queue_destroy(struct fair_queue *queue);

/* The flow of a name, held open until fair_queue_close; *is_new: it was made, with weight 1. NULL: no memory, or
 * flows_max are open. Items are put and taken only while their flow is open. */
struct fair_flow *fair_queue_open(struct fair_queue *queue, const void *name, uint32_t bytes, bool *is_new);
void fair_queue_close(struct fair_queue *queue, struct fair_flow *flow);
const char *fair_flow_name(const struct fair_flow *flow, uint32_t *bytes);

/* O(log n) in the flows that have items waiting, as all that follow. */
void fair_queue_put(struct fair_queue *queue, struct fair_flow *flow, struct fair_item *item);
/* The next one's flow, which is charged with its mean; NULL: nothing waits. */
struct fair_item *fair_queue_take(struct fair_queue *queue);
/* Which flow fair_queue_take would serve; NULL: none. */
struct fair_flow *fair_queue_next(const struct fair_queue *queue);
/* put and take at once, for an item that need not wait: nothing may be waiting. */
void fair_queue_begin(struct fair_queue *queue, struct fair_flow *flow, struct fair_item *item);
/* An item that was taken is done, and this is what it has cost: the difference to what was charged is settled. */
void fair_queue_end(struct fair_queue *queue, struct fair_item *item, double cost);
/* It has cost nothing and says nothing about others: it failed before it began. */
void fair_queue_undo(struct fair_queue *queue, struct fair_item *item);
/* An item that waits leaves. */
void fair_queue_cancel(struct fair_queue *queue, struct fair_item *item);

uint32_t fair_queue_waiting(const struct fair_queue *queue); /* items of all flows */
uint32_t fair_queue_running(const struct fair_queue *queue);
/* Items that wait and that `gone` says are not wanted any more, cancelled and handed to `drop`, which may put others.
 * O(flows + items). */
void fair_queue_drop(struct fair_queue *queue, bool (*gone)(void *context, const struct fair_item *item),
                     void (*drop)(void *context, struct fair_item *item), void *context);
/* Whether what must hold does; *reason says what does not. For tests. */
bool fair_queue_check(const struct fair_queue *queue, const char **reason);

#endif
