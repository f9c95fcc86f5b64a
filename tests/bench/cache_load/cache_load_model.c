/*
 * cache_load_model.c - a model behind the cache: c servers, one queue, log-normal service times.
 *
 * Nothing runs: since the queue is served in order, the end of a job is known when it comes. It begins when the server
 * that is free first is free, so servers are a heap of the moments at which they are. The work in the system at a
 * moment is the sum of what is left of those, which gives utilisation without watching: what was there, plus what came,
 * minus what is left, over the time of all servers.
 */
#include "io/error.h"
#include "tests/bench/cache_load/cache_load.h"
#include <math.h>
#include <stdlib.h>

#define QUEUED_SUB  5u
#define QUEUED_BITS 40u

int model_create(const struct load_options *options, struct model *out, struct quire_error *err)
{
    *out = (struct model){
        .n_servers = options->servers, .mean_ns = options->model_ms * 1e6, .sigma = options->sigma, .room = 1024};
    random_init(&out->random, random_mix(options->seed ^ 0x30de1ull));
    out->free_ns = calloc(out->n_servers, sizeof *out->free_ns);
    out->jobs = calloc(out->room, sizeof *out->jobs);
    out->queued_counts = calloc(HISTOGRAM_BUCKETS(QUEUED_SUB, QUEUED_BITS), sizeof *out->queued_counts);
    if (!out->free_ns || !out->jobs || !out->queued_counts) {
        model_destroy(out);
        return error_set(err, QUIRE_ENOMEM, "no memory for a model of %zu servers", out->n_servers);
    }
    histogram_init(&out->queued_us, out->queued_counts, QUEUED_SUB, QUEUED_BITS);
    return 0;
}

void model_destroy(struct model *model)
{
    free(model->free_ns);
    free(model->jobs);
    free(model->queued_counts);
    model->free_ns = NULL;
    model->jobs = NULL;
    model->queued_counts = NULL;
}

/* The first server becomes free later: down the heap with it. */
static void replace_first_free(struct model *model, uint64_t free_ns)
{
    size_t at = 0, child;
    while ((child = 2 * at + 1) < model->n_servers) {
        if (child + 1 < model->n_servers && model->free_ns[child + 1] < model->free_ns[child])
            child++;
        if (model->free_ns[child] >= free_ns)
            break;
        model->free_ns[at] = model->free_ns[child];
        at = child;
    }
    model->free_ns[at] = free_ns;
}

static void push_job(struct model *model, struct model_job job)
{
    size_t at = model->n_jobs++;
    while (at > 0 && model->jobs[(at - 1) / 2].over_ns > job.over_ns) {
        model->jobs[at] = model->jobs[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    model->jobs[at] = job;
}

/* The mean of a log-normal variate is exp(m + sigma^2 / 2). */
static double draw_service(struct model *model)
{
    return model->mean_ns * exp(model->sigma * random_normal(&model->random) - model->sigma * model->sigma / 2);
}

int model_submit(struct model *model, uint64_t now_ns, void *owner, struct quire_error *err)
{
    if (model->n_jobs == model->room) {
        struct model_job *more = realloc(model->jobs, 2 * model->room * sizeof *more);
        if (!more)
            return error_set(err, QUIRE_ENOMEM, "no memory for %zu jobs of the model", 2 * model->room);
        model->jobs = more;
        model->room *= 2;
    }
    uint64_t begin = model->free_ns[0] > now_ns ? model->free_ns[0] : now_ns;
    double service = draw_service(model);
    histogram_add(&model->queued_us, (begin - now_ns) / 1000);
    model->calls++;
    model->added_ns += service;
    replace_first_free(model, begin + (uint64_t)service);
    push_job(model, (struct model_job){begin + (uint64_t)service, owner});
    return 0;
}

uint64_t model_next_ns(const struct model *model)
{
    return model->n_jobs ? model->jobs[0].over_ns : UINT64_MAX;
}

void *model_finished(struct model *model, uint64_t now_ns)
{
    if (model_next_ns(model) > now_ns)
        return NULL;
    void *owner = model->jobs[0].owner;
    struct model_job last = model->jobs[--model->n_jobs];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < model->n_jobs) {
        if (child + 1 < model->n_jobs && model->jobs[child + 1].over_ns < model->jobs[child].over_ns)
            child++;
        if (model->jobs[child].over_ns >= last.over_ns)
            break;
        model->jobs[at] = model->jobs[child];
        at = child;
    }
    model->jobs[at] = last;
    return owner;
}

double model_load(struct model *model, uint64_t now_ns)
{
    double left = 0, span = (double)(now_ns - model->seen_ns) * (double)model->n_servers;
    for (size_t i = 0; i < model->n_servers; i++)
        left += model->free_ns[i] > now_ns ? (double)(model->free_ns[i] - now_ns) : 0;
    double worked = model->left_ns + model->added_ns - left;
    model->left_ns = left;
    model->added_ns = 0;
    model->seen_ns = now_ns;
    return span > 0 ? fmin(1, fmax(0, worked / span)) : 0;
}
