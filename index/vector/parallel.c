/*
 * parallel.c - chunks of a loop handed out by one atomic counter.
 *
 * Threads are made per loop: the loops of a build take milliseconds to minutes, and a pool that outlives them would be
 * state that a host did not ask for. The caller's own thread works too and is the only one that reports progress, so a
 * host's callback never runs on a foreign thread. While it waits for the last chunks of others it goes on reporting, so
 * that a stop is noticed then, too: no further chunk is begun, and the body of a long one may look for itself. If a
 * thread cannot be made, the others do its share.
 */
#include "index/vector/parallel.h"
#include "io/clock.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define THREADS_MAX     256u
#define REPORT_EVERY_NS 100000000u

struct loop {
    uint64_t n, chunk;
    int (*body)(void *context, uint64_t begin, uint64_t end);
    void *context;
    atomic_uint_fast64_t next, done;
    atomic_int result;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned n_working; /* threads that were made and have chunks still, under lock */
};

/* One chunk; false when there is none left or the loop was stopped. */
static bool run_chunk(struct loop *loop)
{
    if (atomic_load_explicit(&loop->result, memory_order_relaxed) != 0)
        return false;
    uint64_t begin = atomic_fetch_add_explicit(&loop->next, loop->chunk, memory_order_relaxed);
    if (begin >= loop->n)
        return false;
    uint64_t end = loop->n - begin < loop->chunk ? loop->n : begin + loop->chunk;
    int rc = loop->body(loop->context, begin, end);
    if (rc < 0) {
        int none = 0;
        atomic_compare_exchange_strong(&loop->result, &none, rc);
        return false;
    }
    atomic_fetch_add_explicit(&loop->done, end - begin, memory_order_relaxed);
    return true;
}

static void *worker(void *argument)
{
    struct loop *loop = argument;
    while (run_chunk(loop))
        ;
    pthread_mutex_lock(&loop->lock);
    loop->n_working--;
    pthread_cond_signal(&loop->ended);
    pthread_mutex_unlock(&loop->lock);
    return NULL;
}

static void report(struct loop *loop, const struct progress *progress)
{
    if (progress->report(progress->context, progress->phase, atomic_load(&loop->done), loop->n) != 0)
        atomic_store(&loop->result, QUIRE_ECANCELLED);
}

/* Until the other threads have no chunk left; the caller's has none. */
static void wait_for_others(struct loop *loop, const struct progress *progress)
{
    pthread_mutex_lock(&loop->lock);
    while (loop->n_working > 0) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)REPORT_EVERY_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        bool late = pthread_cond_timedwait(&loop->ended, &loop->lock, &until) == ETIMEDOUT;
        if (late && atomic_load(&loop->result) == 0) { /* who has asked for a stop is not asked again */
            pthread_mutex_unlock(&loop->lock);
            report(loop, progress);
            pthread_mutex_lock(&loop->lock);
        }
    }
    pthread_mutex_unlock(&loop->lock);
}

int parallel_for(unsigned threads, uint64_t n, uint64_t chunk, int (*body)(void *context, uint64_t begin, uint64_t end),
                 void *context, const struct progress *progress)
{
    struct loop loop = {.n = n, .chunk = chunk ? chunk : 1, .body = body, .context = context};
    pthread_t made[THREADS_MAX];
    pthread_condattr_t monotonic;
    unsigned n_made = 0;
    assert(threads >= 1);
    if (threads > THREADS_MAX)
        threads = THREADS_MAX;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&loop.lock, NULL);
    pthread_cond_init(&loop.ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    while (n_made + 1 < threads && (uint64_t)(n_made + 1) * loop.chunk < n) {
        pthread_mutex_lock(&loop.lock);
        bool is_made = pthread_create(&made[n_made], NULL, worker, &loop) == 0;
        n_made += is_made;
        loop.n_working += is_made;
        pthread_mutex_unlock(&loop.lock);
        if (!is_made)
            break;
    }
    uint64_t last = clock_ns();
    bool reports = progress && progress->report;
    while (run_chunk(&loop)) {
        uint64_t now = reports ? clock_ns() : 0;
        if (reports && now - last >= REPORT_EVERY_NS) {
            last = now;
            report(&loop, progress);
        }
    }
    if (reports)
        wait_for_others(&loop, progress);
    for (unsigned i = 0; i < n_made; i++)
        pthread_join(made[i], NULL);
    pthread_cond_destroy(&loop.ended);
    pthread_mutex_destroy(&loop.lock);
    int rc = atomic_load(&loop.result);
    assert(rc != 0 || atomic_load(&loop.done) == n); /* each chunk was some thread's, once */
    if (rc == 0 && reports && progress->report(progress->context, progress->phase, n, n) != 0)
        rc = QUIRE_ECANCELLED;
    return rc;
}

int parallel_report(struct parallel_advance *advance, uint64_t done)
{
    const struct progress *progress = advance->progress;
    advance->done = advance->done + done < advance->total ? advance->done + done : advance->total;
    if (progress && progress->report &&
        progress->report(progress->context, advance->phase, advance->done, advance->total) != 0)
        return QUIRE_ECANCELLED;
    return 0;
}

unsigned parallel_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? (unsigned)n : 1;
}
