/*
 * search_answer.c - the nearest rows so far, measured exactly, and what is answered of them.
 *
 * What the answer needs of a row is copied out of its block at once, since the block's frame is used again. Keys that
 * do not stand in the blocks are read when the k nearest are known, one after the other.
 */
#include "index/search/task.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/heap.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define KEY_COPY_BYTES (BLOCK_KEY_INLINE_MAX + 16)

/* ---- memory ------------------------------------------------------------------------------------------------------ */

int search_reserve_results(struct task *t)
{
    const struct segment_params *p = &t->segment->params;
    struct search *q = &t->search;
    bool keys = q->request->want_keys, vectors = q->request->want_vectors;
    q->copy_bytes = (keys ? KEY_COPY_BYTES : 0) + (vectors ? (p->slot_bytes + p->factor_bytes + 7) / 8 * 8 : 0);
    size_t floats = vectors ? p->dim : 0;
    if (!array_reserve_kept(&q->results, &q->results_capacity, q->k, K_KEPT) ||
        !array_reserve_kept(&q->hits, &q->hits_capacity, q->k, K_KEPT) ||
        !array_reserve_kept(&q->copies, &q->copies_capacity, (size_t)q->copy_bytes * q->k, q->copy_bytes * K_KEPT) ||
        !array_reserve_kept(&q->vectors, &q->vectors_capacity, floats * q->k, floats * K_KEPT))
        return QUIRE_ENOMEM;
    return 0;
}

void search_free_results(struct search *q)
{
    free(q->candidates);
    free(q->priors);
    free(q->results);
    free(q->copies);
    free(q->hits);
    free(q->vectors);
    free(q->lists.chosen);
    q->candidates = q->priors = q->lists.chosen = NULL;
    q->results = NULL;
    q->copies = NULL;
    q->hits = NULL;
    q->vectors = NULL;
    q->candidates_capacity = q->priors_capacity = q->lists.capacity = q->results_capacity = q->hits_capacity = 0;
    q->copies_capacity = q->vectors_capacity = 0;
}

/* ---- results: a max-heap of the k nearest ------------------------------------------------------------------------ */

static inline bool is_farther(const struct result *a, const struct result *b)
{
    return a->distance > b->distance || (a->distance == b->distance && a->id > b->id);
}

HEAP_DEFINE(results, struct result, is_farther, HEAP_PLACE_UNKNOWN)

static uint8_t *copy_of(const struct search *q, uint32_t result)
{
    assert(q->results[result].place < q->k);
    return q->copies + (size_t)q->results[result].place * q->copy_bytes;
}

/* Copies what the answer needs of a slot. */
static int copy_slot(struct task *t, const struct block_view *view, uint32_t slot, uint32_t place)
{
    const struct segment_params *p = &t->segment->params;
    uint8_t *to = t->search.copies + (size_t)place * t->search.copy_bytes;
    if (t->search.request->want_keys) {
        struct block_key key = {.bytes = NULL};
        int rc = view->keys ? block_key(view, slot, &key) : 0;
        if (rc < 0)
            return rc;
        bytes_store_u32(to, key.length);
        to[4] = key.bytes != NULL;
        bytes_store_u64(to + 8, key.external_at);
        if (key.bytes)
            memcpy(to + 16, key.bytes, key.length);
        to += KEY_COPY_BYTES;
    }
    if (t->search.request->want_vectors) {
        memcpy(to, view->slots + (size_t)slot * p->slot_bytes, p->slot_bytes);
        if (p->factor_bytes)
            memcpy(to + p->slot_bytes, view->factors + (size_t)slot * p->factor_bytes, p->factor_bytes);
    }
    return 0;
}

/* Copies the name of a row to where those of blocks are copied, if names are wanted; false: it is not in memory. (A
 * search that may read no more blocks does without such rows.) */
static bool keep_name(const struct task *t, uint32_t row, uint32_t place)
{
    const struct names *names = t->segment->names;
    if (!t->search.request->want_keys || !names)
        return true;
    uint32_t bytes;
    uint8_t *to = t->search.copies + (size_t)place * t->search.copy_bytes;
    const uint8_t *name = names_get(names, row, &bytes);
    if (!name)
        return false;
    bytes_store_u32(to, bytes);
    to[4] = 1;
    memcpy(to + 16, name, bytes);
    return true;
}

/* Rows whose place among the k nearest is certain enough by their codes, or that are beyond what is asked for. */
static void take_estimates(struct task *t)
{
    struct search *q = &t->search;
    for (uint32_t i = 0; i < q->n_candidates; i++) {
        const struct candidate *c = &q->candidates[i];
        struct result new = {.distance = c->distance, .sigma = c->sigma, .row = c->row, .place = q->n_results};
        new.id = t->segment->numbers ? numbers_get(t->segment->numbers, c->row) : UINT32_MAX;
        if (q->n_results == q->k) {
            if (!is_farther(&q->results[0], &new) || !keep_name(t, c->row, q->results[0].place))
                continue;
            new.place = q->results[0].place;
            results_replace(q->results, q->k, new);
        } else if (keep_name(t, c->row, new.place)) {
            results_push(q->results, q->n_results++, new);
        }
    }
}

static int offer(struct task *t, const struct block_view *view, uint32_t slot, float distance)
{
    struct search *q = &t->search;
    struct result new = {.distance = distance,
                         .row = view->first_row + slot,
                         .id = bytes_load_u32(view->ids + 4 * slot),
                         .place = q->n_results};
    bool full = q->n_results == q->k;
    if ((full && !is_farther(&q->results[0], &new)) || search_row_is_out(q, new.row))
        return 0;
    if (full)
        new.place = q->results[0].place;
    if (q->copy_bytes && copy_slot(t, view, slot, new.place) < 0)
        return QUIRE_ECORRUPT;
    if (full)
        results_replace(q->results, q->k, new);
    else
        results_push(q->results, q->n_results++, new);
    return 0;
}

int search_score_block(struct task *t, const struct block_view *view)
{
    const float *distances = t->searcher->scratch.slot_distances;
    score_slots(t, view);
    t->search.stats.rows_scored += view->n_slots;
    for (uint32_t i = 0; i < view->n_slots; i++)
        if (offer(t, view, i, distances[i]) < 0)
            return QUIRE_ECORRUPT;
    return 0;
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

static enum step fetch_long_keys(struct task *t);

static enum step on_long_key(struct task *t)
{
    struct search *q = &t->search;
    const uint8_t *copy = copy_of(q, q->next_key),
                  *key = task_take_key(t, bytes_load_u64(copy + 8), bytes_load_u32(copy));
    if (!key)
        return STEP_DONE;
    uint8_t *kept = malloc(bytes_load_u32(copy));
    if (!kept)
        return task_no_memory(t);
    memcpy(kept, key, bytes_load_u32(copy));
    q->hits[q->next_key++].key = kept;
    return fetch_long_keys(t);
}

/* Reads the keys that do not stand in the blocks, one after the other. */
static enum step fetch_long_keys(struct task *t)
{
    struct search *q = &t->search;
    for (; q->next_key < q->n_results; q->next_key++) {
        const uint8_t *copy = copy_of(q, q->next_key);
        if (copy[4])
            continue;
        q->stats.rounds++;
        return task_read_key(t, bytes_load_u64(copy + 8), bytes_load_u32(copy), on_long_key);
    }
    return STEP_DONE;
}

uint32_t search_number_key(uint32_t id, uint8_t *out)
{
    uint8_t digits[10];
    uint32_t n = 0;
    assert(out);
    do
        digits[n++] = (uint8_t)('0' + id % 10);
    while (id /= 10);
    for (uint32_t i = 0; i < n; i++)
        out[i] = digits[n - 1 - i];
    return n;
}

static void fill_hit(struct task *t, uint32_t i)
{
    const struct segment *s = t->segment;
    const struct segment_params *p = &s->params;
    struct search *q = &t->search;
    const struct result *r = &q->results[i];
    struct search_hit *hit = &q->hits[i];
    uint8_t *copy = q->copy_bytes ? copy_of(q, i) : NULL;
    *hit = (struct search_hit){.id = r->id == UINT32_MAX ? UINT64_MAX : r->id,
                               .row = r->row,
                               .distance = space_distance(&s->space, r->distance, t->query.norm2)};
    if (r->sigma > 0) {
        q->stats.estimated++;
        hit->deviation = space_deviation(&s->space, r->sigma, t->query.norm2);
    }
    if (q->request->want_keys) {
        if (!p->user_keys) {
            /* keys that are row numbers are written where a key's bytes would be */
            bytes_store_u32(copy, search_number_key(r->id, copy + 16));
            copy[4] = 1;
        }
        hit->key_bytes = bytes_load_u32(copy);
        hit->key = copy[4] ? copy + 16 : NULL;
        copy += KEY_COPY_BYTES;
    }
    if (q->request->want_vectors) {
        float *vector = q->vectors + (size_t)i * p->dim;
        segment_slot_vector(s, r->row / p->slots_per_block, copy, copy + p->slot_bytes, t->query.centre, vector);
        hit->vector = vector;
    }
}

enum step search_deliver(struct task *t)
{
    struct search *q = &t->search;
    assert(q->n_results <= q->k);
    if (q->estimates || q->request->by_row)
        take_estimates(t);
    results_sort(q->results, q->n_results); /* qsort would allocate */
    for (uint32_t i = 0; i < q->n_results; i++)
        fill_hit(t, i);
    return q->request->want_keys ? fetch_long_keys(t) : STEP_DONE;
}

void search_end(struct task *t)
{
    struct search *q = &t->search;
    struct search_request *request = q->request;
    uint64_t now = clock_ns();
    q->stats.reads = t->cost.reads;
    q->stats.cached = t->cost.cached;
    q->stats.bytes = t->cost.bytes;
    q->stats.cpu_ns = t->cpu_ns + (now - t->step_ns);
    q->stats.latency_ns = now - request->started_ns;
    request->code = t->code;
    request->error = t->error;
    request->hits = t->code == 0 ? q->hits : NULL;
    request->n_hits = t->code == 0 ? q->n_results : 0;
    request->stats = q->stats;
    uint32_t n_keys = request->want_keys ? q->next_key : 0;
    free(request->kept_query);
    request->done(request);
    /* keys read from the heap are the task's to free */
    for (uint32_t i = 0; i < n_keys; i++)
        if (!copy_of(q, i)[4])
            free((void *)q->hits[i].key);
    /* one search for a hundred thousand neighbours must not leave its 30 MB with every task for good */
    if (q->results_capacity > K_KEPT || q->priors_capacity > PRIORS_KEPT || q->lists.capacity > PRIORS_KEPT ||
        q->candidates_capacity > CANDIDATES_KEPT)
        search_free_results(q);
}
