/*
 * fair.c - fair shares of a lane between tenants.
 *
 * Searches go through a queue of their lane that serves tenants in proportion to their weights (fair_queue.h). What a
 * search costs is the time that it takes from others: processor time of its steps, and for each read the time that the
 * lane stood waiting for the disk per read. Where the processor is what is short that is next to nothing, where the
 * disk is it is what a read really costs; so it is measured, all the time, and nothing has to be set.
 *
 * Who waits, waits here: the searcher behind it has one line for all, first come first served, so a lane hands it no
 * more than it works on (at_once), and nothing while searches of several segments already stand in that line.
 *
 * How many at once: a share that has a lane to itself gets searches-in-flight. Where others have asked in the last
 * seconds, too, as few as keep the lane nearly busy, since each search in progress delays the steps of all others, and
 * many in progress are a wait that no order can mend: more where the lane idled though searches waited, quickly fewer
 * where it did not (adjust). A share without a search in progress begins one beyond that number.
 *
 * Steps of searches in progress: their priorities are the number of searches of their share that were in progress when
 * they began, over its weight; the lane's loop looks for what has come between any two steps (searcher_work). So
 * the first search of a tenant passes the steps of one that has several in progress, and in each round waits for one
 * of these at most. That is about latency only: who gets how much is decided by who may begin a search, and a tenant
 * that is owed its turn keeps others from beginning. In a lane that is not shared all priorities are 0.
 *
 * A turn of the lane's loop starts searches for TURN_US of their mean processor time: beginning one computes, and
 * without segments all of it happens then. What is beyond waits in the queue for the next turn, in which requests that
 * have come meanwhile take part. So a client that sends a thousand at once has no advantage over one that sends two.
 *
 * A tenant that has many waiting is read from no further: its clients' requests stay in their buffers, others' do not.
 *
 * Limits are the server's: the time of the rate (GCRA, the leaky bucket of ATM: one number per tenant) and the number
 * at once are atomics that lanes share, touched only where there is such a limit. The rest of a request's way takes no
 * lock and no memory, but for a tenant that its lane has not met.
 */
#include "server/call/fair.h"
#include "index/search/search.h"
#include "io/error.h"
#include "server/call/caller.h"
#include "server/call/fair_priv.h"
#include "server/protocol/label.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    SHARES_MAX = 4096, /* tenants that a lane remembers */
    QUEUE_PARTS = 8,   /* of the places that are left for waiting searches a tenant may take one part */
    QUEUE_LEAST = 16,
    TURN_US = 250,        /* of the searches that one turn begins */
    SHARED_US = 10000000, /* how long a lane counts as shared after another has asked */
    WINDOW_US = 5000,     /* between two looks at what reads cost, and how many should run */
    WINDOW_READS = 16,    /* fewer say nothing */
    AT_ONCE_FIRST = 8,
    AT_ONCE_LEAST = 2
};
#define READ_US_FIRST 20.0
#define READ_US_MOST  2000.0
#define IDLE_MUCH     0.12 /* of a window */
#define IDLE_LITTLE   0.05

/* Of a tenant on a lane. */
struct fair_share {
    struct fair_flow flow; /* first */
    struct fair_tenant *tenant;
    struct fair_stats *stats;
    struct fair_limits limits;
    uint64_t generation; /* of the limits; 0: not looked up yet */
    double cpu_us;       /* mean of its searches */
    bool backlogged;     /* some of its clients wait */
};

struct lane_fair {
    struct fair_queue *queue;
    unsigned at_once, at_once_most;
    bool dispatching, closed;
    const struct fair_share *last_share; /* that asked: to be compared only */
    uint64_t mixed_us;                   /* when another asked than the one before; 0: never */
    uint64_t turn;                       /* of the loop, in which n_started were */
    unsigned n_started;
    double spent_us; /* processor time of those */
    double read_us;
    bool was_full; /* in this window searches waited since at_once ran */
    uint64_t window_us, window_busy_us, window_reads, waited_us;
};

/* ---- limits in force --------------------------------------------------------------------------------------------- */

int fair_check_limits(const char *text, struct quire_error *err)
{
    struct fair_limit_table *table;
    int rc = fair_limits_parse(text, &table, err);
    if (rc == 0)
        fair_limits_free(table);
    return rc;
}

int fair_set_limits(struct service *service, const char *text, struct quire_error *err)
{
    struct fair *fair = service->fair;
    struct fair_limit_table *table;
    int rc = fair_limits_parse(text, &table, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&fair->lock);
    struct fair_limit_table *old = fair->limits;
    fair->limits = table;
    atomic_fetch_add(&fair->generation, 1);
    pthread_mutex_unlock(&fair->lock);
    fair_limits_free(old);
    return 0;
}

int fair_init(struct service *service, struct quire_error *err)
{
    struct fair *fair = calloc(1, sizeof *fair);
    if (!fair)
        return error_set(err, QUIRE_ENOMEM, "no memory for tenants");
    pthread_mutex_init(&fair->lock, NULL);
    service->fair = fair;
    return fair_set_limits(service, service->config->tenant_limits, err);
}

void fair_fini(struct service *service)
{
    struct fair *fair = service->fair;
    if (!fair)
        return;
    fair_limits_free(fair->limits);
    pthread_mutex_destroy(&fair->lock);
    free(fair);
    service->fair = NULL;
}

/* ---- tenants of all lanes ---------------------------------------------------------------------------------------- */

static struct fair_tenant **bucket_of(struct fair *fair, const char *key, uint32_t bytes)
{
    return &fair->buckets[XXH3_64bits(key, bytes) % FAIR_TABLE_BUCKETS];
}

/* Under the lock. The tenant of a key (its kind, then its name), made where there is none. */
static struct fair_tenant *find_tenant(struct service *service, const char *key, uint32_t bytes)
{
    struct fair_tenant **bucket = bucket_of(service->fair, key, bytes), *t = *bucket;
    while (t && ((char)t->kind != key[0] || t->bytes != bytes - 1 || memcmp(t->name, key + 1, t->bytes) != 0))
        t = t->next;
    if (t)
        return t;
    t = calloc(1, sizeof *t + service->n_lanes * sizeof(struct fair_stats *));
    if (!t)
        return NULL;
    t->kind = (enum fair_kind)key[0];
    t->bytes = bytes - 1;
    memcpy(t->name, key + 1, t->bytes);
    t->next = *bucket;
    *bucket = t;
    service->fair->n_tenants++;
    return t;
}

/* Under the lock. */
static void release_tenant(struct service *service, struct fair_tenant *t, const char *key, uint32_t bytes)
{
    if (t->references > 0)
        return;
    struct fair_tenant **at = bucket_of(service->fair, key, bytes);
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    service->fair->n_tenants--;
    for (unsigned i = 0; i < service->n_lanes; i++) {
        if (t->lanes[i])
            fair_sums_add(&service->fair->forgotten, t->lanes[i]);
        free(t->lanes[i]);
    }
    free(t);
}

/* A share that was just made meets its tenant. */
static bool bind(struct lane *lane, struct fair_share *share)
{
    struct service *service = lane->service;
    uint32_t bytes;
    const char *key = fair_flow_name(&share->flow, &bytes);
    pthread_mutex_lock(&service->fair->lock);
    struct fair_tenant *t = find_tenant(service, key, bytes);
    struct fair_stats *stats = t ? t->lanes[lane->index] : NULL;
    if (t && !stats && (stats = calloc(1, sizeof *stats))) {
        histogram_init(&stats->wait, stats->wait_counts, FAIR_SUB_BITS, FAIR_BITS);
        histogram_init(&stats->latency, stats->latency_counts, FAIR_SUB_BITS, FAIR_BITS);
        t->lanes[lane->index] = stats;
    }
    share->stats = stats;
    share->tenant = share->stats ? t : NULL;
    if (share->tenant)
        t->references++;
    else if (t)
        release_tenant(service, t, key, bytes);
    pthread_mutex_unlock(&service->fair->lock);
    return share->tenant != NULL;
}

static void forget_share(void *context, struct fair_flow *flow)
{
    struct lane *lane = context;
    struct fair_share *share = (struct fair_share *)(void *)flow;
    uint32_t bytes;
    const char *key = fair_flow_name(flow, &bytes);
    if (!share->tenant)
        return;
    pthread_mutex_lock(&lane->service->fair->lock);
    assert(share->tenant->references > 0);
    share->tenant->references--;
    release_tenant(lane->service, share->tenant, key, bytes);
    pthread_mutex_unlock(&lane->service->fair->lock);
}

/* The share that a request counts for, open, with the limits in force. */
static struct fair_share *open_share(struct caller *caller, const struct fair_request *request)
{
    struct lane *lane = caller->lane;
    char key[FAIR_NAME_BYTES_MAX + 2];
    const char *name = request->tenant ? request->tenant : caller->user;
    size_t bytes = request->tenant ? request->tenant_bytes : caller->user_bytes;
    bool is_new;
    bytes = bytes < FAIR_NAME_BYTES_MAX ? bytes : FAIR_NAME_BYTES_MAX;
    key[0] = request->tenant ? FAIR_TENANT : FAIR_USER;
    memcpy(key + 1, name, bytes);
    struct fair_flow *flow = fair_queue_open(lane->fair->queue, key, (uint32_t)bytes + 1, &is_new);
    struct fair_share *share = (struct fair_share *)(void *)flow;
    struct fair *fair = lane->service->fair;
    if (!share)
        return NULL;
    /* without a tenant: there was no memory when it was made */
    if (!share->tenant && !bind(lane, share)) {
        fair_queue_close(lane->fair->queue, flow);
        return NULL;
    }
    if (share->generation == atomic_load_explicit(&fair->generation, memory_order_acquire))
        return share;
    const struct fair_tenant *t = share->tenant;
    pthread_mutex_lock(&fair->lock);
    share->limits = *fair_limits_find(fair->limits, t->kind, t->name, t->bytes);
    share->generation = atomic_load(&fair->generation);
    pthread_mutex_unlock(&fair->lock);
    share->flow.weight = (uint32_t)share->limits.weight;
    return share;
}

/* ---- what a request may ask for ---------------------------------------------------------------------------------- */

/* "tenant acme", as sentences begin. */
static const char *who(const struct fair_share *share, char text[LABEL_BYTES + 8])
{
    const struct fair_tenant *t = share->tenant;
    char label[LABEL_BYTES];
    label_write((struct quire_bytes){t->name, t->bytes}, label);
    snprintf(text, LABEL_BYTES + 8, "%s %.64s", t->kind == FAIR_TENANT ? "tenant" : "user", label);
    return text;
}

static int refuse(struct fair_share *share, enum fair_refusal why)
{
    lane_stat_add(&share->stats->refused[why], 1);
    return QUIRE_ELIMIT;
}

static int check_effort(struct fair_share *share, const struct fair_request *r, struct quire_error *err)
{
    char name[LABEL_BYTES + 8];
    uint64_t most = share->limits.effort;
    const double recall_usual = 0.95; /* what a search without EF and RECALL aims at */
    if (!most || !(r->exact || r->effort > most || (r->effort == 0 && (double)r->recall > recall_usual + 1e-6)))
        return 0;
    if (r->exact)
        error_set(err, QUIRE_ELIMIT,
                  "%s may search with an effort of %" PRIu64
                  " and TRUTH looks at everything: leave TRUTH out, or raise "
                  "effort= in tenant-limits",
                  who(share, name), most);
    else if (r->effort == 0)
        error_set(err, QUIRE_ELIMIT,
                  "%s may search with an effort of %" PRIu64 " and RECALL %.4g may need more: give EF, or a RECALL of "
                  "%.4g, or raise effort= in tenant-limits",
                  who(share, name), most, (double)r->recall, recall_usual);
    else
        error_set(err, QUIRE_ELIMIT,
                  "%s may search with an effort of %" PRIu64 ", not %u: give a smaller EF, or raise effort= in "
                  "tenant-limits",
                  who(share, name), most, r->effort);
    return refuse(share, REFUSED_EFFORT);
}

static int check_size(struct fair_share *share, const struct fair_request *r, struct quire_error *err)
{
    char name[LABEL_BYTES + 8];
    const struct fair_limits *l = &share->limits;
    if (l->k && r->k > l->k) {
        error_set(err, QUIRE_ELIMIT,
                  "%s may ask for %" PRIu64 " results, not %u: give a smaller COUNT, or raise k= in "
                  "tenant-limits",
                  who(share, name), l->k, r->k);
        return refuse(share, REFUSED_K);
    }
    if (l->filter_bytes && r->filter_bytes > l->filter_bytes) {
        error_set(err, QUIRE_ELIMIT,
                  "%s may give filters of %" PRIu64 " bytes, not %" PRIu64 ": give a shorter FILTER, or raise "
                  "filter-bytes= in tenant-limits",
                  who(share, name), l->filter_bytes, r->filter_bytes);
        return refuse(share, REFUSED_FILTER);
    }
    return 0;
}

/* One of those at once. */
static int take_place(struct fair_share *share, struct fair_pass *pass, struct quire_error *err)
{
    char name[LABEL_BYTES + 8];
    uint64_t most = share->limits.concurrent;
    if (!most)
        return 0;
    if (atomic_fetch_add_explicit(&share->tenant->concurrent, 1, memory_order_relaxed) < most) {
        pass->counted = true;
        return 0;
    }
    atomic_fetch_sub_explicit(&share->tenant->concurrent, 1, memory_order_relaxed);
    error_set(err, QUIRE_ELIMIT,
              "%s has its limit of %" PRIu64 " requests at once under way: wait for a reply before the next, or raise "
              "concurrent= in tenant-limits",
              who(share, name), most);
    return refuse(share, REFUSED_CONCURRENT);
}

/* GCRA: queries are due `step` apart, and may come early by as much as a second's worth of them. */
static int take_rate(struct fair_share *share, uint32_t n, struct quire_error *err)
{
    char name[LABEL_BYTES + 8];
    uint64_t rate = share->limits.rate;
    if (!rate || !n)
        return 0;
    _Atomic uint64_t *arrival = &share->tenant->arrival_ns;
    uint64_t step = 1000000000u / rate, now = clock_ns(), due = atomic_load_explicit(arrival, memory_order_relaxed);
    uint64_t begin, end;
    do {
        begin = due > now ? due : now;
        end = begin + n * step;
    } while (end <= now + 1000000000u &&
             !atomic_compare_exchange_weak_explicit(arrival, &due, end, memory_order_relaxed, memory_order_relaxed));
    if (end <= now + 1000000000u)
        return 0;
    if (n > rate)
        error_set(err, QUIRE_ELIMIT,
                  "%s may send %" PRIu64 " queries a second, and this command has %u: split it, or raise rate= in "
                  "tenant-limits",
                  who(share, name), rate, n);
    else
        error_set(err, QUIRE_ELIMIT,
                  "%s may send %" PRIu64 " queries a second and has sent more: wait %" PRIu64 " ms, or raise rate= in "
                  "tenant-limits",
                  who(share, name), rate, (end - now - 1000000000u) / 1000000u + 1);
    return refuse(share, REFUSED_RATE);
}

int fair_enter(struct caller *caller, const struct fair_request *request, struct fair_pass *pass,
               struct quire_error *err)
{
    struct fair_share *share = open_share(caller, request);
    *pass = (struct fair_pass){.caller = caller, .lane = caller->lane, .share = share};
    if (!share)
        return error_set(err, QUIRE_ENOMEM, "no memory for one tenant more, or %d have requests under way on this lane",
                         SHARES_MAX);
    int rc = check_size(share, request, err);
    if (rc == 0)
        rc = check_effort(share, request, err);
    if (rc == 0)
        rc = take_place(share, pass, err);
    if (rc == 0)
        rc = take_rate(share, request->n_queries, err);
    if (rc < 0)
        fair_leave(pass);
    return rc;
}

void fair_leave(struct fair_pass *pass)
{
    assert(pass->share);
    if (pass->counted)
        atomic_fetch_sub_explicit(&pass->share->tenant->concurrent, 1, memory_order_relaxed);
    fair_queue_close(pass->lane->fair->queue, &pass->share->flow);
    pass->share = NULL;
}

/* ---- whose turn it is -------------------------------------------------------------------------------------------- */

static void count_now(struct fair_share *share)
{
    lane_stat_set(&share->stats->running, share->flow.n_running);
    lane_stat_set(&share->stats->waiting, share->flow.n_waiting);
}

/* Whether others than the one that asked last have asked in the last seconds. */
static bool is_shared(const struct lane *lane)
{
    const struct lane_fair *f = lane->fair;
    return f->mixed_us && lane->now_us - f->mixed_us < SHARED_US;
}

unsigned fair_at_once(const struct lane *lane)
{
    return is_shared(lane) ? lane->fair->at_once : lane->fair->at_once_most;
}

/* A share that has none running need not wait for one of others to end, within a factor. */
static bool has_place(const struct lane *lane, const struct fair_share *share)
{
    const struct lane_fair *f = lane->fair;
    uint32_t running = fair_queue_running(f->queue), most = fair_at_once(lane);
    return (running < most || (share->flow.n_running == 0 && running < 2 * most)) &&
           searcher_waiting(lane->searcher) == 0;
}

/* Whether a search of the share can be started in this turn. The first of a turn always can. */
static bool may_start(struct lane *lane, const struct fair_share *share)
{
    struct lane_fair *f = lane->fair;
    if (f->turn != lane->turn) {
        f->turn = lane->turn;
        f->n_started = 0;
        f->spent_us = 0;
    }
    if (!has_place(lane, share)) {
        f->was_full = true;
        return false;
    }
    return f->n_started == 0 || f->spent_us + share->cpu_us <= TURN_US;
}

/* Its flow has been charged. The ticket may be gone when this returns. */
static void launch(struct lane *lane, struct fair_ticket *ticket)
{
    struct lane_fair *f = lane->fair;
    struct fair_share *share = ticket->pass->share;
    assert(share->flow.n_running > 0 && share->flow.weight > 0);
    f->n_started++;
    f->spent_us += share->cpu_us;
    ticket->priority = is_shared(lane) ? share->flow.n_running * FAIR_WEIGHT_MAX / share->flow.weight : 0;
    count_now(share);
    ticket->run(ticket, 0);
}

/* How many of a tenant may wait: the more wait in all, the fewer (dynamic thresholds: Choudhury and Hahne, 1998). So
 * one that floods fills an eighth of the lane's queue, and a hundred of them together leave some to the next. */
static uint32_t waiting_most(const struct lane_fair *f)
{
    uint32_t all = fair_queue_waiting(f->queue), left = all < LANE_WAITING_MAX ? LANE_WAITING_MAX - all : 0;
    return left / QUEUE_PARTS > QUEUE_LEAST ? left / QUEUE_PARTS : QUEUE_LEAST;
}

/* Clients that wait for the share's backlog go on where that has halved. */
static void release_clients(struct lane *lane, struct fair_share *share)
{
    if (!share->backlogged || share->flow.n_waiting > waiting_most(lane->fair) / 2)
        return;
    share->backlogged = false;
    lane->host->release(lane, share);
}

static void drop_ticket(struct lane *lane, struct fair_ticket *ticket)
{
    struct fair_share *share = ticket->pass->share;
    lane_stat_add(&share->stats->cancelled, 1);
    count_now(share);
    release_clients(lane, share);
    ticket->run(ticket, QUIRE_ECANCELLED);
}

static void dispatch(struct lane *lane)
{
    struct lane_fair *f = lane->fair;
    struct fair_share *share;
    if (f->dispatching)
        return;
    f->dispatching = true;
    while ((share = (struct fair_share *)(void *)fair_queue_next(f->queue)) && may_start(lane, share)) {
        struct fair_ticket *ticket = (struct fair_ticket *)(void *)fair_queue_take(f->queue);
        release_clients(lane, share);
        if (ticket->pass->caller->gone) {
            fair_queue_undo(f->queue, &ticket->item);
            drop_ticket(lane, ticket);
        } else {
            launch(lane, ticket);
        }
    }
    f->dispatching = false;
}

void fair_start(struct fair_pass *pass, struct fair_ticket *ticket)
{
    struct lane *lane = pass->lane;
    struct lane_fair *f = lane->fair;
    struct fair_share *share = pass->share;
    assert(share && ticket->run);
    ticket->pass = pass;
    ticket->since_us = 0;
    if (share != f->last_share) {
        f->mixed_us = f->last_share ? lane->now_us : 0;
        f->last_share = share;
    }
    if (f->closed) {
        lane_stat_add(&share->stats->cancelled, 1);
        ticket->run(ticket, QUIRE_ECANCELLED);
        return;
    }
    if (!f->dispatching && fair_queue_waiting(f->queue) == 0 && may_start(lane, share)) {
        f->dispatching = true;
        fair_queue_begin(f->queue, &share->flow, &ticket->item);
        launch(lane, ticket);
        f->dispatching = false;
        return;
    }
    ticket->since_us = clock_us();
    fair_queue_put(f->queue, &share->flow, &ticket->item);
    count_now(share);
    if (share->flow.n_waiting > waiting_most(f)) {
        share->backlogged = true;
        pass->caller->backlogged_by = share;
    }
    dispatch(lane);
}

void fair_end(struct fair_ticket *ticket, const struct quire_search_stats *stats)
{
    struct lane *lane = ticket->pass->lane;
    struct lane_fair *f = lane->fair;
    struct fair_share *share = ticket->pass->share;
    struct fair_stats *s = share->stats;
    if (stats) {
        double cpu_us = (double)stats->cpu_ns * 1e-3, cost_us = stats->reads * f->read_us + cpu_us;
        uint64_t wait_us = 0;
        if (ticket->since_us) {
            uint64_t all_us = clock_us() - ticket->since_us, own_us = stats->latency_ns / 1000;
            wait_us = all_us > own_us ? all_us - own_us : 0;
        }
        if (f->dispatching && cpu_us > share->cpu_us)
            f->spent_us += cpu_us - share->cpu_us; /* it began and ended in one go, and was longer than thought */
        share->cpu_us += (cpu_us - share->cpu_us) / 8;
        fair_queue_end(f->queue, &ticket->item, cost_us);
        lane_stat_add(&s->queries, 1);
        lane_stat_add(&s->reads, stats->reads);
        lane_stat_add(&s->cpu_us, (uint64_t)cpu_us);
        lane_stat_add(&s->cost_us, (uint64_t)cost_us);
        histogram_add(&s->wait, wait_us);
        histogram_add(&s->latency, wait_us + stats->latency_ns / 1000);
    } else {
        fair_queue_undo(f->queue, &ticket->item);
        lane_stat_add(&s->failed, 1);
    }
    count_now(share);
    dispatch(lane);
}

/* ---- the lane ---------------------------------------------------------------------------------------------------- */

int fair_open(struct lane *lane, struct quire_error *err)
{
    struct fair_queue_config config = {.flows_max = SHARES_MAX,
                                       .flow_bytes = sizeof(struct fair_share),
                                       .seed = clock_ns(),
                                       .forget = forget_share,
                                       .context = lane};
    struct lane_fair *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(err, QUIRE_ENOMEM, "no memory for the shares of lane %u", lane->index);
    int rc = fair_queue_create(&config, &f->queue, err);
    if (rc < 0) {
        free(f);
        return rc;
    }
    f->at_once_most = (unsigned)lane->service->config->searches_max;
    f->at_once = f->at_once_most < AT_ONCE_FIRST ? f->at_once_most : AT_ONCE_FIRST;
    f->read_us = READ_US_FIRST;
    lane->fair = f;
    return 0;
}

void fair_close(struct lane *lane)
{
    if (!lane->fair)
        return;
    fair_queue_destroy(lane->fair->queue);
    free(lane->fair);
    lane->fair = NULL;
}

void fair_work(struct lane *lane)
{
    if (fair_queue_waiting(lane->fair->queue) > 0)
        dispatch(lane);
}

bool fair_is_ready(const struct lane *lane)
{
    const struct lane_fair *f = lane->fair;
    const struct fair_flow *next = fair_queue_next(f->queue);
    return next && has_place(lane, (const struct fair_share *)(const void *)next);
}

unsigned fair_waiting(const struct lane *lane)
{
    return fair_queue_waiting(lane->fair->queue);
}

/* More at once where the lane idled though searches waited and the device could take more, fewer where it never did. */
static void adjust(struct lane *lane, double idle)
{
    struct lane_fair *f = lane->fair;
    bool device_full = engine_stats(lane->engine)->reads_waiting > 0;
    if (idle > IDLE_MUCH && !device_full && f->at_once < f->at_once_most)
        f->at_once++;
    else if ((idle < IDLE_LITTLE || device_full) && f->at_once > AT_ONCE_LEAST)
        f->at_once -= (f->at_once + 3) / 4;
    f->at_once = f->at_once < AT_ONCE_LEAST ? AT_ONCE_LEAST : f->at_once;
}

/* A lane that waits in a system call may be working there (handing reads over), one that uses no processor may have
 * been kept from it by others: it idled for no longer than either says. */
void fair_note_wait(struct lane *lane, uint64_t before_us, uint64_t after_us)
{
    struct lane_fair *f = lane->fair;
    f->waited_us += after_us - before_us;
    uint64_t passed_us = after_us - f->window_us;
    if (passed_us < WINDOW_US)
        return;
    uint64_t reads = engine_stats(lane->engine)->reads, n = reads - f->window_reads;
    struct timespec cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    uint64_t busy_us = (uint64_t)cpu.tv_sec * 1000000u + (uint64_t)cpu.tv_nsec / 1000u - f->window_busy_us;
    uint64_t off_us = passed_us > busy_us ? passed_us - busy_us : 0;
    uint64_t idle_us = off_us < f->waited_us ? off_us : f->waited_us;
    if (n >= WINDOW_READS) {
        double us = (double)idle_us / (double)n;
        f->read_us += ((us < READ_US_MOST ? us : READ_US_MOST) - f->read_us) / 8;
    }
    if (f->was_full && is_shared(lane))
        adjust(lane, (double)idle_us / (double)passed_us);
    f->window_us = after_us;
    f->window_busy_us += busy_us;
    f->waited_us = 0;
    f->window_reads = reads;
    f->was_full = false;
}

static bool is_gone(void *context, const struct fair_item *item)
{
    const bool *all = context;
    const struct fair_ticket *ticket = (const struct fair_ticket *)(const void *)item;
    return *all || ticket->pass->caller->gone;
}

struct expiring {
    bool all; /* first */
    struct lane *lane;
};

static void drop_item(void *context, struct fair_item *item)
{
    const struct expiring *expiring = context;
    drop_ticket(expiring->lane, (struct fair_ticket *)(void *)item);
}

void fair_expire(struct lane *lane, bool all)
{
    struct expiring expiring = {all, lane};
    struct lane_fair *f = lane->fair;
    f->closed |= all;
    if (fair_queue_waiting(f->queue) > 0)
        fair_queue_drop(f->queue, is_gone, drop_item, &expiring);
}

void fair_reset_stats(struct lane *lane)
{
    struct fair *fair = lane->service->fair;
    pthread_mutex_lock(&fair->lock);
    memset(&fair->forgotten, 0, sizeof fair->forgotten);
    for (unsigned i = 0; i < FAIR_TABLE_BUCKETS; i++)
        for (struct fair_tenant *t = fair->buckets[i]; t; t = t->next) {
            struct fair_stats *s = t->lanes[lane->index];
            if (!s)
                continue;
#define X(name) lane_stat_set(&s->name, 0);
            FAIR_COUNTS(X)
#undef X
            for (unsigned k = 0; k < N_REFUSALS; k++)
                lane_stat_set(&s->refused[k], 0);
            for (unsigned k = 0; k < FAIR_BUCKETS; k++) {
                lane_stat_set(&s->wait_counts[k], 0);
                lane_stat_set(&s->latency_counts[k], 0);
            }
            lane_stat_set(&s->wait.sum, 0);
            lane_stat_set(&s->latency.sum, 0);
        }
    pthread_mutex_unlock(&fair->lock);
}
