/*
 * fair_queue.c - start-time fair queueing with costs that are known only afterwards.
 *
 * Each flow has a tag: the virtual time at which its next item may start. The flow with the least tag is served, the
 * clock of the queue steps to that tag, and the flow's tag moves on by what the item is thought to cost (the mean of
 * the flow's last ones) over its weight. So flows that always have items waiting advance together, and what they get is
 * in proportion to their weights. When the item ends its flow's tag is put right by the difference.
 *
 * Why start times and not finish times (weighted fair queueing and self-clocked fair queueing order by these): a finish
 * time needs the cost before the item is chosen. Start times do without; the bound on unfairness is the same, the
 * largest cost of either flow, and times the number in service where several are (SFQ(D)).
 *
 * No credit: a flow that comes back from having nothing to do begins at the queue's clock, not at its own old tag, and
 * no settlement takes it below the clock of that moment (floor). Its first item is therefore at or before all others
 * that wait: it waits for none of them, but for those that came to the same tag earlier.
 *
 * When nothing waits or runs the clock steps beyond every tag: a flow that was alone is not made to pay for it later.
 *
 * A flow that is forgotten in favour of a new one loses what its tag was ahead of the clock, a few items' cost; flows
 * that nobody has open go, the one that was closed first before the others.
 */
#include "server/call/fair_queue.h"
#include "io/array.h"
#include "io/error.h"
#include "io/heap.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NOT_QUEUED    UINT32_MAX
#define FLOW_SHARE    0.125      /* of the newest item in the mean of its flow */
#define QUEUE_SHARE   0.015625   /* of the newest item in the mean of all, which new flows begin with */
#define FLOWS_LIMIT   (1u << 24) /* of flows_max */
#define BUCKETS_LEAST 64u

static inline bool flow_is_before(struct fair_flow *const *left, struct fair_flow *const *right)
{
    const struct fair_flow *a = *left, *b = *right;
    return a->tag < b->tag || (a->tag <= b->tag && a->arrival < b->arrival);
}

static inline void flow_is_at(struct fair_flow *const *flow, size_t at)
{
    (*flow)->heap_at = (uint32_t)at;
}

HEAP_DEFINE(flows, struct fair_flow *, flow_is_before, flow_is_at)

struct fair_queue {
    struct fair_queue_config config;
    double clock, highest, mean_cost;
    uint64_t arrivals;
    uint32_t n_waiting, n_running, n_flows, n_heap, heap_capacity, bucket_mask;
    struct fair_flow **heap;    /* those with items waiting; the least tag on top */
    struct fair_flow **buckets; /* by name */
    struct fair_flow *idle_first, *idle_last;
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

int fair_queue_create(const struct fair_queue_config *config, struct fair_queue **out, struct quire_error *err)
{
    uint32_t n_buckets = BUCKETS_LEAST;
    if (config->flows_max == 0 || config->flows_max > FLOWS_LIMIT || config->flow_bytes < sizeof(struct fair_flow))
        return error_set(err, QUIRE_EINVALID, "a fair queue of %u flows of %zu bytes: at most %u, of %zu or more",
                         config->flows_max, config->flow_bytes, FLOWS_LIMIT, sizeof(struct fair_flow));
    while (n_buckets < config->flows_max)
        n_buckets *= 2;
    struct fair_queue *q = calloc(1, sizeof *q);
    if (q)
        q->buckets = calloc(n_buckets, sizeof *q->buckets);
    if (!q || !q->buckets) {
        free(q);
        return error_set(err, QUIRE_ENOMEM, "no memory for a fair queue of %u flows", config->flows_max);
    }
    q->config = *config;
    q->bucket_mask = n_buckets - 1;
    *out = q;
    return 0;
}

static void free_flow(struct fair_queue *q, struct fair_flow *f)
{
    if (q->config.forget)
        q->config.forget(q->config.context, f);
    free(f->name);
    free(f);
}

void fair_queue_destroy(struct fair_queue *q)
{
    if (!q)
        return;
    assert(q->n_waiting == 0 && q->n_running == 0);
    for (uint32_t i = 0; i <= q->bucket_mask; i++)
        while (q->buckets[i]) {
            struct fair_flow *f = q->buckets[i];
            q->buckets[i] = f->chain;
            free_flow(q, f);
        }
    free(q->buckets);
    free(q->heap);
    free(q);
}

/* ---- flows by name ----------------------------------------------------------------------------------------------- */

static void idle_remove(struct fair_queue *q, struct fair_flow *f)
{
    *(f->idle_prev ? &f->idle_prev->idle_next : &q->idle_first) = f->idle_next;
    *(f->idle_next ? &f->idle_next->idle_prev : &q->idle_last) = f->idle_prev;
    f->idle_next = f->idle_prev = NULL;
}

/* In place of the one that was closed first where there are flows_max. */
static struct fair_flow *make_flow(struct fair_queue *q, const void *name, uint32_t bytes, uint64_t hash)
{
    if (q->n_flows == q->config.flows_max) {
        struct fair_flow *oldest = q->idle_first;
        if (!oldest)
            return NULL;
        idle_remove(q, oldest);
        struct fair_flow **at = &q->buckets[oldest->hash & q->bucket_mask];
        while (*at != oldest)
            at = &(*at)->chain;
        *at = oldest->chain;
        q->n_flows--;
        free_flow(q, oldest);
    }
    /* the heap has space for every flow before there is one, so that putting an item cannot fail */
    if (!array_reserve(&q->heap, &q->heap_capacity, (size_t)q->n_flows + 1))
        return NULL;
    struct fair_flow *f = calloc(1, q->config.flow_bytes);
    char *copy = f ? malloc((size_t)bytes + 1) : NULL;
    if (!copy) {
        free(f);
        return NULL;
    }
    memcpy(copy, name, bytes);
    copy[bytes] = 0;
    f->name = copy;
    f->name_bytes = bytes;
    f->hash = hash;
    f->weight = 1;
    f->heap_at = NOT_QUEUED;
    f->mean_cost = q->mean_cost;
    f->tag = f->floor = q->clock;
    f->chain = q->buckets[hash & q->bucket_mask];
    q->buckets[hash & q->bucket_mask] = f;
    q->n_flows++;
    return f;
}

struct fair_flow *fair_queue_open(struct fair_queue *q, const void *name, uint32_t bytes, bool *is_new)
{
    uint64_t hash = XXH3_64bits_withSeed(name, bytes, q->config.seed);
    struct fair_flow *f = q->buckets[hash & q->bucket_mask];
    while (f && (f->hash != hash || f->name_bytes != bytes || memcmp(f->name, name, bytes) != 0))
        f = f->chain;
    *is_new = f == NULL;
    if (f && f->n_open == 0)
        idle_remove(q, f);
    if (!f)
        f = make_flow(q, name, bytes, hash);
    if (f)
        f->n_open++;
    return f;
}

void fair_queue_close(struct fair_queue *q, struct fair_flow *f)
{
    assert(f->n_open > 0);
    if (--f->n_open > 0)
        return;
    assert(f->n_waiting == 0 && f->n_running == 0);
    f->idle_prev = q->idle_last;
    *(q->idle_last ? &q->idle_last->idle_next : &q->idle_first) = f;
    q->idle_last = f;
}

const char *fair_flow_name(const struct fair_flow *f, uint32_t *bytes)
{
    *bytes = f->name_bytes;
    return f->name;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* A flow without items that wait gets one: it begins at the clock. */
static void activate(struct fair_queue *q, struct fair_flow *f)
{
    f->floor = q->clock;
    f->tag = f->tag > q->clock ? f->tag : q->clock;
    f->arrival = ++q->arrivals;
}

static void charge(struct fair_queue *q, struct fair_flow *f, struct fair_item *item)
{
    q->clock = f->tag > q->clock ? f->tag : q->clock;
    item->charged = f->mean_cost;
    f->tag += item->charged / f->weight;
    q->highest = f->tag > q->highest ? f->tag : q->highest;
    f->n_running++;
    q->n_running++;
}

static void leave_heap(struct fair_queue *q, struct fair_flow *f)
{
    flows_remove(q->heap, q->n_heap--, f->heap_at);
    f->heap_at = NOT_QUEUED;
}

static void unlink_item(struct fair_queue *q, struct fair_item *item)
{
    struct fair_flow *f = item->flow;
    *(item->prev ? &item->prev->next : &f->first) = item->next;
    *(item->next ? &item->next->prev : &f->last) = item->prev;
    item->next = item->prev = NULL;
    f->n_waiting--;
    q->n_waiting--;
}

void fair_queue_put(struct fair_queue *q, struct fair_flow *f, struct fair_item *item)
{
    assert(f->n_open > 0);
    *item = (struct fair_item){.flow = f, .prev = f->last};
    *(f->last ? &f->last->next : &f->first) = item;
    f->last = item;
    q->n_waiting++;
    if (f->n_waiting++ > 0)
        return;
    activate(q, f);
    assert(q->n_heap < q->heap_capacity);
    flows_push(q->heap, q->n_heap++, f);
}

struct fair_flow *fair_queue_next(const struct fair_queue *q)
{
    return q->n_heap ? q->heap[0] : NULL;
}

struct fair_item *fair_queue_take(struct fair_queue *q)
{
    struct fair_flow *f = fair_queue_next(q);
    if (!f)
        return NULL;
    struct fair_item *item = f->first;
    unlink_item(q, item);
    charge(q, f, item);
    f->arrival = ++q->arrivals; /* behind those of the same tag that have not been served */
    if (f->n_waiting > 0)
        flows_sink(q->heap, q->n_heap, f->heap_at);
    else
        leave_heap(q, f);
    return item;
}

void fair_queue_begin(struct fair_queue *q, struct fair_flow *f, struct fair_item *item)
{
    assert(f->n_open > 0 && q->n_waiting == 0);
    *item = (struct fair_item){.flow = f};
    activate(q, f);
    charge(q, f, item);
}

static void settle(struct fair_queue *q, struct fair_item *item, double cost)
{
    struct fair_flow *f = item->flow;
    double tag = f->tag + (cost - item->charged) / f->weight;
    f->tag = tag > f->floor ? tag : f->floor;
    q->highest = f->tag > q->highest ? f->tag : q->highest;
    f->n_running--;
    if (--q->n_running == 0 && q->n_waiting == 0)
        q->clock = q->highest;
    if (f->heap_at == NOT_QUEUED)
        return;
    flows_rise(q->heap, f->heap_at);
    flows_sink(q->heap, q->n_heap, f->heap_at);
}

void fair_queue_end(struct fair_queue *q, struct fair_item *item, double cost)
{
    struct fair_flow *f = item->flow;
    assert(f->n_running > 0 && cost >= 0);
    f->mean_cost += (cost - f->mean_cost) * FLOW_SHARE;
    q->mean_cost += (cost - q->mean_cost) * QUEUE_SHARE;
    settle(q, item, cost);
}

void fair_queue_undo(struct fair_queue *q, struct fair_item *item)
{
    assert(item->flow->n_running > 0);
    settle(q, item, 0);
}

void fair_queue_cancel(struct fair_queue *q, struct fair_item *item)
{
    struct fair_flow *f = item->flow;
    assert(f->n_waiting > 0);
    unlink_item(q, item);
    if (f->n_waiting == 0)
        leave_heap(q, f);
    if (q->n_running == 0 && q->n_waiting == 0)
        q->clock = q->highest;
}

void fair_queue_drop(struct fair_queue *q, bool (*gone)(void *context, const struct fair_item *item),
                     void (*drop)(void *context, struct fair_item *item), void *context)
{
    struct fair_item *dropped = NULL, **end = &dropped;
    for (uint32_t i = 0; i <= q->bucket_mask; i++)
        for (struct fair_flow *f = q->buckets[i]; f; f = f->chain)
            for (struct fair_item *item = f->first, *next; item; item = next) {
                next = item->next;
                if (!gone(context, item))
                    continue;
                fair_queue_cancel(q, item);
                *end = item;
                end = &item->next;
            }
    while (dropped) {
        struct fair_item *item = dropped;
        dropped = item->next;
        item->next = NULL;
        drop(context, item);
    }
}

uint32_t fair_queue_waiting(const struct fair_queue *q)
{
    return q->n_waiting;
}

uint32_t fair_queue_running(const struct fair_queue *q)
{
    return q->n_running;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

static bool check_flow(const struct fair_queue *q, const struct fair_flow *f, const char **reason)
{
    uint32_t n = 0;
    for (const struct fair_item *item = f->first; item; item = item->next, n++)
        if (item->flow != f || (item->next ? item->next->prev != item : f->last != item))
            return *reason = "the list of a flow's items is broken", false;
    if (n != f->n_waiting)
        return *reason = "a flow has another number of items than it counts", false;
    if ((n > 0) != (f->heap_at != NOT_QUEUED))
        return *reason = "a flow is in the heap without items, or has items and is not", false;
    if (n > 0 && (f->heap_at >= q->n_heap || q->heap[f->heap_at] != f))
        return *reason = "a flow is not where it says", false;
    if (f->n_open == 0 && (n > 0 || f->n_running > 0))
        return *reason = "a closed flow has items", false;
    if (f->tag > q->highest && f->tag > q->clock)
        return *reason = "a tag is above the highest", false;
    return true;
}

bool fair_queue_check(const struct fair_queue *q, const char **reason)
{
    uint32_t n_flows = 0, n_waiting = 0, n_running = 0, n_idle = 0, n_closed = 0;
    for (uint32_t i = 0; i <= q->bucket_mask; i++)
        for (const struct fair_flow *f = q->buckets[i]; f; f = f->chain, n_flows++) {
            if (!check_flow(q, f, reason))
                return false;
            n_waiting += f->n_waiting;
            n_running += f->n_running;
            n_closed += f->n_open == 0;
        }
    for (const struct fair_flow *f = q->idle_first; f; f = f->idle_next)
        n_idle++;
    if (!flows_check(q->heap, q->n_heap))
        return *reason = "the heap is out of order", false;
    if (n_idle != n_closed)
        return *reason = "the list of closed flows is not complete", false;
    if (n_flows != q->n_flows || n_waiting != q->n_waiting || n_running != q->n_running)
        return *reason = "the sums over the flows are wrong", false;
    return true;
}
