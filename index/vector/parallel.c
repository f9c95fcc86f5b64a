/*
 * parallel.c - chunks of a loop handed out by one atomic counter.
 *
 * Threads are made per loop: the loops of a build take milliseconds to minutes, and a pool that outlives them would be
 * state that a host did not ask for. The caller's own thread works too and is the only one that reports progress, so a
 * host's callback never runs on a foreign thread. If a thread cannot be made, the others do its share.
 */
#include "index/vector/parallel.h"
#include "io/clock.h"
#include <assert.h>
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
    while (run_chunk(argument))
        ;
    return NULL;
}

int parallel_for(unsigned threads, uint64_t n, uint64_t chunk, int (*body)(void *context, uint64_t begin, uint64_t end),
                 void *context, const struct progress *progress)
{
    struct loop loop = {.n = n, .chunk = chunk ? chunk : 1, .body = body, .context = context};
    pthread_t made[THREADS_MAX];
    unsigned n_made = 0;
    assert(threads >= 1);
    if (threads > THREADS_MAX)
        threads = THREADS_MAX;
    while (n_made + 1 < threads && (uint64_t)(n_made + 1) * loop.chunk < n)
        if (pthread_create(&made[n_made], NULL, worker, &loop) == 0)
            n_made++;
        else
            break;
    uint64_t last = clock_ns();
    bool report = progress && progress->report;
    while (run_chunk(&loop)) {
        uint64_t now = report ? clock_ns() : 0;
        if (report && now - last >= REPORT_EVERY_NS) {
            last = now;
            if (progress->report(progress->context, progress->phase, atomic_load(&loop.done), n) != 0)
                atomic_store(&loop.result, QUIRE_ECANCELLED);
        }
    }
    for (unsigned i = 0; i < n_made; i++)
        pthread_join(made[i], NULL);
    int rc = atomic_load(&loop.result);
    assert(rc != 0 || atomic_load(&loop.done) == n); /* each chunk was some thread's, once */
    if (rc == 0 && report && progress->report(progress->context, progress->phase, n, n) != 0)
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
