/*
 * cache_metrics.c - the statistics of all caches as one array.
 *
 * Names of caches and categories are any bytes; INFO is lines of fields, and /metrics is UTF-8 in which a series may
 * stand once. So names are written as in URLs: what is no plain character becomes %XX. That keeps different names
 * different, but for those that are longer than a label.
 *
 * How much of it there can be is bounded whatever clients create: what is beyond is counted as left out.
 */
#include "server/cache/cache_metrics.h"
#include "io/array.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double cache_hit_rate(const struct quire_cache_stats *s)
{
    return s->requests ? (double)(s->hits + s->exact + s->stale) / (double)s->requests : 0;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

struct gathering {
    struct cache_metrics *out;
    struct cache *list[CACHE_METRICS_CACHES_MAX]; /* references */
    uint32_t n_list, capacity;
    struct cache *cache; /* whose categories are gathered */
    bool failed;
};

static void note_cache(void *context, struct cache *cache)
{
    struct gathering *g = context;
    if (g->n_list == CACHE_METRICS_CACHES_MAX)
        g->out->left_out++;
    else
        g->list[g->n_list++] = cache_ref(cache);
}

static bool fill(struct cache_metric *f, struct cache *cache, struct quire_bytes category)
{
    label_write(cache_get_config(cache)->name, f->cache);
    label_write(category, f->category);
    return cache_get_stats(cache, category, &f->stats, NULL) == 0;
}

static void note_category(void *context, struct quire_bytes name)
{
    struct gathering *g = context;
    struct cache_metrics *out = g->out;
    if (out->n_categories == CACHE_METRICS_CATEGORIES_MAX || g->failed) {
        out->left_out++;
        return;
    }
    g->failed = !array_reserve(&out->categories, &g->capacity, (size_t)out->n_categories + 1);
    if (g->failed)
        return;
    /* one that was dropped meanwhile has no statistics */
    out->n_categories += fill(&out->categories[out->n_categories], g->cache, name);
}

bool cache_metrics_take(struct caches *caches, bool with_categories, struct cache_metrics *out)
{
    struct gathering g = {.out = out};
    memset(out, 0, sizeof *out);
    if (!caches)
        return true;
    caches_each(caches, note_cache, &g);
    out->caches = g.n_list ? calloc(g.n_list, sizeof *out->caches) : NULL;
    g.failed = g.n_list && !out->caches;
    for (uint32_t i = 0; i < g.n_list; i++) {
        g.cache = g.list[i];
        if (!g.failed)
            out->n_caches += fill(&out->caches[out->n_caches], g.cache, (struct quire_bytes){NULL, 0});
        if (with_categories && !g.failed)
            cache_each_category(g.cache, note_category, &g);
        cache_unref(g.cache);
    }
    return !g.failed;
}

void cache_metrics_fini(struct cache_metrics *metrics)
{
    free(metrics->caches);
    free(metrics->categories);
}
