/*
 * fair_metrics.c - what lanes have counted of tenants, added up.
 *
 * There may be thousands of tenants, and names are clients': who reads statistics gets those that have cost most, a
 * bounded number, and the sums over all. A tenant that every lane has forgotten goes on in the sums only. The lock is
 * that of the table of tenants, so the lanes go on counting meanwhile and statistics may be a moment apart.
 */
#include "server/call/fair_metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    const struct fair_tenant *tenant;
    uint64_t cost_us, queries;
};

void fair_sums_add(struct fair_sums *sums, const struct fair_stats *s)
{
#define X(name) sums->name += lane_stat_get(&s->name);
    FAIR_COUNTS(X)
#undef X
    sums->running += lane_stat_get(&s->running);
    sums->waiting += lane_stat_get(&s->waiting);
    for (unsigned i = 0; i < N_REFUSALS; i++)
        sums->refused[i] += lane_stat_get(&s->refused[i]);
}

uint64_t fair_refused(const struct fair_sums *sums)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < N_REFUSALS; i++)
        all += sums->refused[i];
    return all;
}

const char *fair_refusal_name(enum fair_refusal refusal)
{
    static const char *const names[N_REFUSALS] = {"rate", "k", "effort", "filter_bytes", "concurrent"};
    return names[refusal];
}

static void sum_lanes(const struct service *service, const struct fair_tenant *t, struct fair_sums *sums)
{
    memset(sums, 0, sizeof *sums);
    for (unsigned i = 0; i < service->n_lanes; i++)
        if (t->lanes[i])
            fair_sums_add(sums, t->lanes[i]);
}

static double percentile(const struct histogram *h, double share)
{
    double us = histogram_percentile(h, share);
    return isnan(us) ? 0 : us;
}

static int dearest_first(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->cost_us != b->cost_us)
        return a->cost_us < b->cost_us ? 1 : -1;
    return (a->queries < b->queries) - (a->queries > b->queries);
}

bool fair_metrics_take(struct service *service, uint32_t most, struct fair_metrics *out)
{
    struct fair *fair = service->fair;
    uint32_t n = 0;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&fair->lock);
    struct candidate *all = malloc((fair->n_tenants + 1) * sizeof *all);
    out->tenants = fair->n_tenants;
    out->all = fair->forgotten;
    out->all.running = out->all.waiting = 0;
    for (unsigned i = 0; i < FAIR_TABLE_BUCKETS; i++)
        for (const struct fair_tenant *t = fair->buckets[i]; t; t = t->next) {
            struct fair_sums sums;
            sum_lanes(service, t, &sums);
#define X(name) out->all.name += sums.name;
            FAIR_COUNTS(X)
#undef X
            out->all.running += sums.running;
            out->all.waiting += sums.waiting;
            for (unsigned k = 0; k < N_REFUSALS; k++)
                out->all.refused[k] += sums.refused[k];
            if (all)
                all[n++] = (struct candidate){t, sums.cost_us, sums.queries + fair_refused(&sums)};
        }
    if (n > 0)
        qsort(all, n, sizeof *all, dearest_first);
    n = n < most ? n : most;
    out->metrics = n ? calloc(n, sizeof *out->metrics) : NULL;
    for (; out->metrics && out->n < n; out->n++) {
        const struct fair_tenant *t = all[out->n].tenant;
        struct fair_metric *m = &out->metrics[out->n];
        _Atomic uint64_t wait_counts[FAIR_BUCKETS] = {0}, latency_counts[FAIR_BUCKETS] = {0};
        struct histogram wait, latency;
        histogram_init(&wait, wait_counts, FAIR_SUB_BITS, FAIR_BITS);
        histogram_init(&latency, latency_counts, FAIR_SUB_BITS, FAIR_BITS);
        for (unsigned i = 0; i < service->n_lanes; i++)
            if (t->lanes[i]) {
                histogram_merge(&wait, &t->lanes[i]->wait);
                histogram_merge(&latency, &t->lanes[i]->latency);
            }
        label_write((struct quire_bytes){t->name, t->bytes}, m->name);
        m->kind = t->kind;
        m->limits = *fair_limits_find(fair->limits, t->kind, t->name, t->bytes);
        sum_lanes(service, t, &m->sums);
        m->wait_p50_us = percentile(&wait, 0.5);
        m->wait_p99_us = percentile(&wait, 0.99);
        m->latency_p50_us = percentile(&latency, 0.5);
        m->latency_p99_us = percentile(&latency, 0.99);
    }
    pthread_mutex_unlock(&fair->lock);
    bool whole = all && out->n == n;
    free(all);
    return whole;
}

void fair_metrics_fini(struct fair_metrics *metrics)
{
    free(metrics->metrics);
    memset(metrics, 0, sizeof *metrics);
}
