/*
 * sealed_search.c - nearness among vectors on the disk: the search of a lookup, and all that an invalidation selects.
 *
 * A search holds references to the segments that its group had when it began, and knows nothing else of the cache: what
 * it finds are ids, which are looked up under the lock when it is over. Segments that are merged meanwhile stay as long
 * as it needs them, and their rows answer for the same entries. What left the memory meanwhile is in none of them: then
 * the group's number of seals is another, and the lookup searches again (cache_get.c).
 */
#include "cache/core/sealed.h"
#include "io/array.h"
#include "io/error.h"
#include "io/lock.h"
#include <math.h>
#include <stdlib.h>

#define RECALL 0.985f /* of the search in a segment, by its own calibration */

/* ---- the search of a lookup -------------------------------------------------------------------------------------- */

struct cache_search *sealed_search_create(struct cache *cache, const struct group *group, const float *unit, uint32_t k,
                                          double similarity)
{
    uint32_t n = 0, dim = cache->config.dim;
    assert(lock_is_held(&cache->lock) && group->sealed && k > 0);
    for (const struct sealed *s = group->sealed; s; s = s->next)
        n++;
    struct cache_search *search = calloc(1, sizeof *search + sizeof *search->parts * n);
    if (!search)
        return NULL;
    *search = (struct cache_search){
        .cache = cache, .seals = group->seals, .k = k, .similarity = similarity, .counted_distance = -1};
    search->hits = malloc(sizeof *search->hits * n * k);
    search->query = malloc(sizeof *search->query * dim);
    if (!search->hits || !search->query) {
        cache_search_free(search);
        return NULL;
    }
    memcpy(search->query, unit, sizeof *search->query * dim);
    for (struct sealed *s = group->sealed; s; s = s->next)
        search->parts[search->n_parts++].sealed = sealed_ref(s);
    return search;
}

void cache_search_free(struct cache_search *search)
{
    if (!search)
        return;
    assert(search->n_pending == 0);
    for (uint32_t i = 0; i < search->n_parts; i++)
        sealed_unref(search->parts[i].sealed);
    free(search->hits);
    free(search->query);
    free(search);
}

static void complain(struct sealed_part *part, const char *message)
{
    if (!atomic_exchange(&part->sealed->complained, true))
        caches_say(part->search->cache->of, true, message);
}

static int by_distance(const void *left, const void *right)
{
    const struct sealed_hit *a = left, *b = right;
    return (a->distance > b->distance) - (a->distance < b->distance);
}

static void end_part(struct cache_search *search)
{
    assert(search->n_pending > 0);
    if (--search->n_pending > 0)
        return;
    if (search->n_hits)
        qsort(search->hits, search->n_hits, sizeof *search->hits, by_distance);
    search->done(search->owner);
}

/* Entries of the rows that a part has found. A row whose entry is elsewhere by now was moved by a merge, or is of one
 * that has gone: what it was is not known. (takes the lock) */
static void take_hits(struct sealed_part *part, const struct search_hit *hits, uint32_t n)
{
    struct cache_search *search = part->search;
    struct cache *cache = search->cache;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = part->sealed->entries[hits[i].row];
        struct place place = sealed_place_of(cache, row);
        bool is_there = place.segment == part->sealed->number && place.row == hits[i].row;
        search->moved |= !is_there && !bitmap_has_shared(part->sealed->dead, hits[i].row);
        if (is_there && (cache_entry_word(cache, row) & ENTRY_LIVE))
            search->hits[search->n_hits++] = (struct sealed_hit){cache_entry_id(cache_entry_at(cache, row), row),
                                                                 2 * hits[i].distance, 2 * hits[i].deviation};
    }
    pthread_mutex_unlock(&cache->lock);
}

static void part_done(struct search_request *request)
{
    struct sealed_part *part = request->owner;
    struct cache_search *search = part->search;
    search->stats.reads += request->stats.reads;
    search->stats.codes_scored += request->stats.codes_scored;
    search->stats.cpu_ns += request->stats.cpu_ns;
    if (request->code == QUIRE_ECANCELLED) {
        search->code = request->code;
    } else if (request->code < 0) {
        complain(part, request->error.message);
    } else {
        assert(request->n_hits <= search->k);
        search->full |= request->n_hits == search->k;
        take_hits(part, request->hits, request->n_hits);
    }
    end_part(search);
}

void cache_search_start(struct cache_search *search, struct searcher *searcher, void (*done)(void *owner), void *owner)
{
    search->done = done;
    search->owner = owner;
    search->n_pending = search->n_parts + 1; /* one for this loop: `done` may free the search */
    for (uint32_t i = 0; i < search->n_parts; i++) {
        struct sealed_part *part = &search->parts[i];
        struct quire_error err = {0};
        part->search = search;
        part->request = (struct search_request){.segment = part->sealed->segment,
                                                .query = search->query,
                                                .by_row = true,
                                                .dead = part->sealed->dead,
                                                .done = part_done,
                                                .owner = part};
        quire_search_options_init(&part->request.options);
        part->request.options.k = search->k;
        part->request.options.recall = RECALL;
        part->request.options.limited = true;
        part->request.options.farthest = (float)(1 - search->similarity);
        if (search_start(searcher, &part->request, &err) < 0) {
            complain(part, err.message);
            search->n_pending--;
        }
    }
    end_part(search);
}

/* ---- all that are near ------------------------------------------------------------------------------------------- */

struct near_scan {
    const float *unit;
    double similarity;
    uint32_t dim;
    uint64_t *ids;
    size_t n, capacity;
};

static int visit(void *context, const struct scanned_row *row)
{
    struct near_scan *scan = context;
    double dot = 0, norm2 = 0;
    for (uint32_t i = 0; i < scan->dim; i++) {
        dot += (double)scan->unit[i] * (double)row->vector[i];
        norm2 += (double)row->vector[i] * (double)row->vector[i];
    }
    if (row->key_bytes != sizeof *scan->ids || norm2 <= 0 || dot / sqrt(norm2) < scan->similarity)
        return 0;
    if (!array_reserve(&scan->ids, &scan->capacity, scan->n + 1))
        return QUIRE_ENOMEM;
    memcpy(&scan->ids[scan->n++], row->key, sizeof *scan->ids);
    return 0;
}

int sealed_near(struct cache *cache, const float *unit, double similarity, uint64_t **ids, size_t *n,
                struct quire_error *err)
{
    struct near_scan scan = {.unit = unit, .similarity = similarity, .dim = cache->config.dim};
    pthread_mutex_lock(&cache->lock);
    struct sealed **all = malloc(sizeof(struct sealed *) * (cache->n_sealed + 1u)); /* references */
    uint32_t n_all = all ? cache->n_sealed : 0;
    for (uint32_t i = 0; i < n_all; i++)
        all[i] = sealed_ref(cache->sealed[i]);
    pthread_mutex_unlock(&cache->lock);
    int rc = all ? 0 : QUIRE_ENOMEM;
    struct quire_error reason = {0};
    for (uint32_t i = 0; i < n_all; i++) {
        if (rc == 0)
            rc = segment_scan(all[i]->segment, all[i]->dead, visit, NULL, &scan, &reason);
        sealed_unref(all[i]);
    }
    free(all);
    if (rc < 0) {
        free(scan.ids);
        return error_set(err, rc, "%s", reason.code ? reason.message : "no memory to look at all sealed vectors");
    }
    size_t n_ids = 0;
    /* of an entry that is being moved from one segment to another both rows were seen */
    if (scan.n)
        qsort(scan.ids, scan.n, sizeof *scan.ids, cache_compare_numbers);
    for (size_t i = 0; i < scan.n; i++)
        if (i == 0 || scan.ids[i] != scan.ids[n_ids - 1])
            scan.ids[n_ids++] = scan.ids[i];
    *ids = scan.ids;
    *n = n_ids;
    return 0;
}
