/*
 * open_loop.c - a thread per lane, each with a loop of its own; what arrives stands in one line before all of them.
 *
 * The line is the Poisson process itself: the moment of the next arrival, which whoever takes it replaces by the one
 * after. So nothing is kept of arrivals that wait, however many they are, and moments do not depend on who takes them.
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

#define SEED             0x6f70656e6c6f6f70ull
#define TELL_NS          100000000
#define POLL_MOST_US     100000u
#define LATE_PART        0.02 /* of the run, that the last answer may come after the last arrival */
#define LATE_LEAST_S     0.1
#define LATENCY_SUB_BITS 7u
#define LATENCY_BITS     40u

struct line {
    pthread_mutex_t mutex;
    struct random random;
    double due_ns; /* of arrival `next`, from the begin */
    uint64_t next, n;
    double last_ns; /* when the last of n is due */
    uint64_t at_end;
};

struct open_lane;

/* A search under way. */
struct place {
    struct open_lane *lane;
    struct place *next_free;
    uint64_t arrival, due_ns, begun_ns; /* by clock_ns */
};

struct open_lane {
    struct open_loop *open;
    struct line *line;
    pthread_t thread;
    struct quire_loop *loop;
    struct place *places, *free_places;
    unsigned n_running;
    uint64_t begin_ns, last_ns;
    _Atomic uint64_t answered;
    const atomic_bool *stop;
    struct histogram latencies, in_line;
    struct slowest slowest;
    _Atomic int code; /* watched by the caller's thread */
    struct quire_error error;
};

/* ---- the line ---------------------------------------------------------------------------------------------------- */

/* A time between two arrivals, ns. */
static double gap_ns(struct random *random, double rate)
{
    double uniform = ((double)(random_next(random) >> 11) + 0.5) / 9007199254740992.0; /* 2^53 */
    return -log(uniform) * 1e9 / rate;
}

uint64_t open_loop_count(double rate, double seconds)
{
    struct random random;
    uint64_t n = 0;
    assert(rate > 0 && seconds > 0);
    random_init(&random, SEED);
    for (double due = gap_ns(&random, rate); due <= seconds * 1e9 && n <= OPEN_LOOP_ARRIVALS_MAX; n++)
        due += gap_ns(&random, rate);
    return n;
}

/* When the n-th arrives, ns. */
static double last_due(double rate, uint64_t n)
{
    struct random random;
    double due = 0;
    random_init(&random, SEED);
    for (uint64_t i = 0; i < n; i++)
        due += gap_ns(&random, rate);
    return due;
}

static int line_init(struct line *line, const struct open_loop *open, struct quire_error *err)
{
    *line = (struct line){.n = open->arrivals, .last_ns = last_due(open->rate, open->arrivals), .at_end = UINT64_MAX};
    random_init(&line->random, SEED);
    line->due_ns = gap_ns(&line->random, open->rate);
    return pthread_mutex_init(&line->mutex, NULL) == 0 ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a mutex");
}

/* The first arrival that is due into *place: true. Otherwise *wait_us is how long it is until the next. */
static bool line_take(struct line *line, double rate, struct place *place, uint64_t *wait_us)
{
    pthread_mutex_lock(&line->mutex);
    uint64_t now = clock_ns(), begin = place->lane->begin_ns;
    double at = (double)(now - begin), ahead = line->due_ns - at;
    bool some = line->next < line->n && ahead <= 0;
    if (line->at_end == UINT64_MAX && at >= line->last_ns)
        line->at_end = line->n - line->next;
    if (some) {
        place->arrival = line->next++;
        place->due_ns = begin + (uint64_t)line->due_ns;
        place->begun_ns = now;
        line->due_ns += gap_ns(&line->random, rate);
    }
    *wait_us = line->next >= line->n || ahead > 1e3 * POLL_MOST_US ? POLL_MOST_US
               : ahead > 0                                         ? (uint64_t)(ahead / 1e3)
                                                                   : 0;
    pthread_mutex_unlock(&line->mutex);
    return some;
}

/* ---- a lane ------------------------------------------------------------------------------------------------------ */

static void on_answer(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                      const struct quire_search_stats *stats, const struct quire_error *err)
{
    struct place *place = context;
    struct open_lane *lane = place->lane;
    const struct open_loop *open = lane->open;
    place->next_free = lane->free_places;
    lane->free_places = place;
    lane->n_running--;
    atomic_fetch_add_explicit(&lane->answered, 1, memory_order_relaxed);
    if (code < 0) {
        if (lane->code == 0) {
            lane->code = code;
            lane->error = *err;
        }
        return;
    }
    lane->last_ns = clock_ns();
    struct slowest_sums answer = {.n = 1,
                                  .latency_ns = lane->last_ns - place->due_ns,
                                  .line_ns = place->begun_ns - place->due_ns,
                                  .cpu_ns = stats->cpu_ns,
                                  .reads = stats->reads,
                                  .rounds = stats->rounds};
    histogram_add(&lane->latencies, answer.latency_ns);
    histogram_add(&lane->in_line, answer.line_ns);
    slowest_add(&lane->slowest, &answer);
    if (open->arrivals > open->n && place->arrival < open->arrivals - open->n)
        return;
    uint64_t query = place->arrival % open->n;
    memcpy(open->hits + query * open->options->k, hits, sizeof *hits * n_hits);
    open->n_hits[query] = n_hits;
    open->stats[query] = *stats;
}

/* Asks the first that is due, if there is a place; returns how long it is until the next, in us. One at a time: between
 * two of them the loop is polled, so that what has come for older searches goes first. */
static uint64_t ask_due(struct open_lane *lane)
{
    const struct open_loop *open = lane->open;
    uint64_t wait_us = POLL_MOST_US;
    struct place *place = lane->free_places;
    if (!place || !line_take(lane->line, open->rate, place, &wait_us))
        return wait_us; /* without a place an answer comes first */
    lane->free_places = place->next_free;
    lane->n_running++;
    int rc = quire_loop_search(lane->loop, open->index, open->queries + place->arrival % open->n * open->dim,
                               open->options, on_answer, place, &lane->error);
    if (rc < 0)
        lane->code = rc;
    return 0;
}

/* Whether all have been taken and this lane has answered what it took. */
static bool has_ended(struct open_lane *lane)
{
    pthread_mutex_lock(&lane->line->mutex);
    bool all = lane->line->next >= lane->line->n;
    pthread_mutex_unlock(&lane->line->mutex);
    return all && lane->n_running == 0;
}

static void *run_lane(void *context)
{
    struct open_lane *lane = context;
    while (lane->code == 0 && !atomic_load_explicit(lane->stop, memory_order_relaxed) && !has_ended(lane)) {
        uint64_t wait_us = ask_due(lane);
        int rc = lane->code == 0 ? quire_loop_poll(lane->loop, 1, wait_us) : 0;
        if (rc < 0)
            lane->code = error_set(&lane->error, rc, "the engine failed: %s", quire_error_text(rc));
    }
    quire_loop_destroy(lane->loop); /* ends what is under way: on_answer is called */
    lane->loop = NULL;
    return NULL;
}

static int make_lane(struct open_lane *lane, struct open_loop *open, struct line *line, const atomic_bool *stop,
                     struct quire_error *err)
{
    const size_t buckets = HISTOGRAM_BUCKETS(LATENCY_SUB_BITS, LATENCY_BITS);
    *lane = (struct open_lane){.open = open, .line = line, .stop = stop};
    lane->places = calloc(open->loop.inflight, sizeof *lane->places);
    _Atomic uint64_t *counts = calloc(2 * buckets, sizeof *counts);
    if (!lane->places || !counts) {
        free((void *)counts);
        return error_set(err, QUIRE_ENOMEM, "no memory for a lane with %u searches in flight", open->loop.inflight);
    }
    histogram_init(&lane->latencies, counts, LATENCY_SUB_BITS, LATENCY_BITS);
    histogram_init(&lane->in_line, counts + buckets, LATENCY_SUB_BITS, LATENCY_BITS);
    for (unsigned i = open->loop.inflight; i-- > 0;) {
        lane->places[i] = (struct place){.lane = lane, .next_free = lane->free_places};
        lane->free_places = &lane->places[i];
    }
    return quire_loop_create(&open->loop, &lane->loop, err);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

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

/* The lane's share of the results; and its memory back. */
static void end_lane(struct open_lane *lane, struct open_loop *open, uint64_t begin_ns)
{
    if (lane->latencies.counts) {
        histogram_merge(open->latencies, &lane->latencies);
        histogram_merge(open->line, &lane->in_line);
        slowest_merge(open->slowest, &lane->slowest);
    }
    if (lane->last_ns > begin_ns)
        open->wall_s = fmax(open->wall_s, (double)(lane->last_ns - begin_ns) / 1e9);
    quire_loop_destroy(lane->loop);
    free((void *)lane->latencies.counts);
    free(lane->places);
}

int open_loop_run(struct open_loop *open, struct quire_error *err)
{
    struct line line;
    atomic_bool stop = false;
    unsigned made = 0, begun = 0;
    assert(open->rate > 0 && open->lanes > 0 && open->n > 0 && open->loop.inflight > 0);
    assert(open->arrivals > 0 && open->arrivals <= OPEN_LOOP_ARRIVALS_MAX);
    int rc = line_init(&line, open, err);
    if (rc < 0)
        return rc;
    struct open_lane *lanes = calloc(open->lanes, sizeof *lanes);
    if (!lanes)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %u lanes", open->lanes);
    for (; rc == 0 && made < open->lanes; made++)
        rc = make_lane(&lanes[made], open, &line, &stop, err);
    uint64_t begin_ns = clock_ns();
    open->due_s = line.last_ns / 1e9;
    for (; rc == 0 && begun < open->lanes; begun++) {
        lanes[begun].begin_ns = begin_ns;
        if (pthread_create(&lanes[begun].thread, NULL, run_lane, &lanes[begun]) != 0) {
            rc = error_set(err, QUIRE_ENOMEM, "cannot start a thread for lane %u", begun);
            atomic_store(&stop, true);
            break;
        }
    }
    if (rc == 0)
        watch(open, lanes, &stop);
    for (unsigned i = 0; i < begun; i++)
        pthread_join(lanes[i].thread, NULL);
    for (unsigned i = 0; i < made; i++) {
        if (rc == 0 && lanes[i].code < 0 && lanes[i].code != QUIRE_ECANCELLED) {
            rc = lanes[i].code;
            *err = lanes[i].error;
        }
        end_lane(&lanes[i], open, begin_ns);
    }
    open->line_at_end = line.at_end == UINT64_MAX ? 0 : line.at_end;
    pthread_mutex_destroy(&line.mutex);
    free(lanes);
    if (rc == 0 && atomic_load(&stop))
        rc = error_set(err, QUIRE_ECANCELLED, "interrupted");
    return rc;
}

bool open_loop_kept(const struct open_loop *open)
{
    return open->wall_s - open->due_s <= fmax(LATE_LEAST_S, LATE_PART * open->due_s);
}
