/*
 * open_loop.c - a thread per lane, each with a loop of its own and a share of the arrivals: a Poisson process of
 * rate / lanes, so that all together are one of `rate`.
 */
#include "tools/measure/open_loop.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/random.h"
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEED         0x6f70656e6c6f6f70ull
#define TELL_NS      100000000
#define POLL_MOST_US 100000u

struct open_lane;

/* An arrival, and the moment it was meant for. */
struct arrival {
    struct open_lane *lane;
    uint64_t due_ns;
};

struct open_lane {
    struct open_loop *open;
    unsigned number;
    pthread_t thread;
    struct quire_loop *loop;
    struct arrival *arrivals; /* i of this lane is i * lanes + number of all */
    uint64_t n, asked;
    _Atomic uint64_t answered;
    const atomic_bool *stop;
    struct histogram latencies;
    _Atomic int code; /* watched by the caller's thread */
    struct quire_error error;
};

#define LATENCY_SUB_BITS 7u
#define LATENCY_BITS     40u

static void on_answer(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                      const struct quire_search_stats *stats, const struct quire_error *err)
{
    const struct arrival *arrival = context;
    struct open_lane *lane = arrival->lane;
    const struct open_loop *open = lane->open;
    uint64_t at = (uint64_t)(arrival - lane->arrivals) * open->lanes + lane->number, query = at % open->n;
    atomic_fetch_add_explicit(&lane->answered, 1, memory_order_relaxed);
    if (code < 0) {
        if (lane->code == 0) {
            lane->code = code;
            lane->error = *err;
        }
        return;
    }
    histogram_add(&lane->latencies, clock_ns() - arrival->due_ns);
    if (at < open->arrivals - open->n)
        return;
    memcpy(open->hits + query * open->options->k, hits, sizeof *hits * n_hits);
    open->n_hits[query] = n_hits;
    open->stats[query] = *stats;
}

/* A time between two arrivals, ns. */
static double gap_ns(struct random *random, double rate)
{
    double uniform = ((double)(random_next(random) >> 11) + 0.5) / 9007199254740992.0; /* 2^53 */
    return -log(uniform) * 1e9 / rate;
}

/* Asks what is due; returns how long it is until the next, in us. */
static uint64_t ask_due(struct open_lane *lane, struct random *random, double *due)
{
    const struct open_loop *open = lane->open;
    uint64_t now = clock_ns();
    while (lane->code == 0 && lane->asked < lane->n && *due <= (double)now) {
        struct arrival *arrival = &lane->arrivals[lane->asked];
        uint64_t query = (lane->asked * open->lanes + lane->number) % open->n;
        *arrival = (struct arrival){lane, (uint64_t)*due};
        lane->asked++;
        int rc = quire_loop_search(lane->loop, open->index, open->queries + query * open->dim, open->options, on_answer,
                                   arrival, &lane->error);
        if (rc < 0)
            lane->code = rc;
        *due += gap_ns(random, open->rate / open->lanes);
        now = clock_ns();
    }
    if (lane->asked == lane->n || *due > (double)now + 1e3 * POLL_MOST_US)
        return POLL_MOST_US;
    return *due > (double)now ? (uint64_t)((*due - (double)now) / 1e3) : 0;
}

static void *run_lane(void *context)
{
    struct open_lane *lane = context;
    struct random random;
    random_init(&random, SEED + lane->number);
    double due = (double)clock_ns() + gap_ns(&random, lane->open->rate / lane->open->lanes);
    while (lane->code == 0 && atomic_load_explicit(&lane->answered, memory_order_relaxed) < lane->n &&
           !atomic_load_explicit(lane->stop, memory_order_relaxed)) {
        uint64_t wait = ask_due(lane, &random, &due);
        int rc = lane->code == 0 ? quire_loop_poll(lane->loop, 1, wait) : 0;
        if (rc < 0)
            lane->code = error_set(&lane->error, rc, "the engine failed: %s", quire_error_text(rc));
    }
    quire_loop_destroy(lane->loop); /* ends what is under way: on_answer is called */
    lane->loop = NULL;
    return NULL;
}

static int make_lane(struct open_lane *lane, struct open_loop *open, unsigned number, const atomic_bool *stop,
                     struct quire_error *err)
{
    *lane = (struct open_lane){.open = open, .number = number, .stop = stop};
    lane->n = open->arrivals / open->lanes + (number < open->arrivals % open->lanes);
    lane->arrivals = malloc(sizeof *lane->arrivals * (lane->n + 1));
    _Atomic uint64_t *counts = calloc(HISTOGRAM_BUCKETS(LATENCY_SUB_BITS, LATENCY_BITS), sizeof *counts);
    if (!lane->arrivals || !counts) {
        free(counts);
        return error_set(err, QUIRE_ENOMEM, "no memory for %llu arrivals", (unsigned long long)lane->n);
    }
    histogram_init(&lane->latencies, counts, LATENCY_SUB_BITS, LATENCY_BITS);
    return quire_loop_create(&open->loop, &lane->loop, err);
}

/* Until all lanes have ended, or the caller wants no more. */
static void watch(struct open_loop *open, struct open_lane *lanes, atomic_bool *stop)
{
    const struct timespec nap = {0, TELL_NS};
    for (uint64_t answered = 0; answered < open->arrivals && !atomic_load(stop); nanosleep(&nap, NULL)) {
        answered = 0;
        for (unsigned i = 0; i < open->lanes; i++) {
            answered += atomic_load_explicit(&lanes[i].answered, memory_order_relaxed);
            if (lanes[i].code < 0)
                atomic_store(stop, true);
        }
        if (answered < open->arrivals && open->progress && open->progress(open->context, answered, open->arrivals))
            atomic_store(stop, true);
    }
}

int open_loop_run(struct open_loop *open, struct quire_error *err)
{
    struct open_lane *lanes = calloc(open->lanes, sizeof *lanes);
    atomic_bool stop = false;
    unsigned made = 0, begun = 0;
    int rc = lanes ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for %u lanes", open->lanes);
    assert(open->rate > 0 && open->lanes > 0 && open->n > 0 && open->arrivals % open->n == 0);
    for (; rc == 0 && made < open->lanes; made++)
        rc = make_lane(&lanes[made], open, made, &stop, err);
    uint64_t begin = clock_ns();
    for (; rc == 0 && begun < open->lanes; begun++)
        if (pthread_create(&lanes[begun].thread, NULL, run_lane, &lanes[begun]) != 0) {
            rc = error_set(err, QUIRE_ENOMEM, "cannot start a thread for lane %u", begun);
            atomic_store(&stop, true);
            break;
        }
    if (rc == 0)
        watch(open, lanes, &stop);
    for (unsigned i = 0; i < begun; i++)
        pthread_join(lanes[i].thread, NULL);
    open->wall_s = (double)(clock_ns() - begin) / 1e9;
    for (unsigned i = 0; i < made; i++) {
        if (rc == 0 && lanes[i].code < 0 && lanes[i].code != QUIRE_ECANCELLED) {
            rc = lanes[i].code;
            *err = lanes[i].error;
        }
        if (lanes[i].latencies.counts)
            histogram_merge(open->latencies, &lanes[i].latencies);
        quire_loop_destroy(lanes[i].loop);
        free((void *)lanes[i].latencies.counts);
        free(lanes[i].arrivals);
    }
    free(lanes);
    if (rc == 0 && atomic_load(&stop))
        rc = error_set(err, QUIRE_ECANCELLED, "interrupted");
    return rc;
}
