/*
 * collection_search.c - one search over everything a collection consists of.
 *
 *   1. the sealed segments of the view, all at once, each by its own search on this lane's ring (search.h)
 *   2. when the last has answered, under the collection's lock: the number S of the last write, and which of the hits
 *      have ended by now. Those are dropped: what replaced them was written before S, so it is found in step 3.
 *   3. the memtables as of S: rows with begin <= S < end. Without disk, without lock.
 *   4. the k nearest of all; then their attributes, where they are wanted and lie on the disk
 *
 * So an element that was replaced meanwhile is seen once. Where the view has changed between 1 and 2 (a seal or a merge
 * was published), the memtables of both views are searched: what was sealed away is in the old one, what was written
 * since in the new one. An element may then be found twice, in its old and its new version; the younger one counts.
 * Where neither view holds all there is (what was written since has been sealed, too, or an index was adopted), the
 * search begins again on the new view. So it does when hits have ended and others should be in their places.
 *
 * Of a search among numbers each segment is asked for its share of the k nearest and some more, by how many of the rows
 * it has: each of them is a read. Where all that a segment has answered is among the k nearest, more of it may be, and
 * it is asked again for k.
 *
 * A work's memory stays with the lane for the next search.
 */
#include "index/collection/collection_search_priv.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <math.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

/* Views that one search may see go before it fails: they change a few times a second at most. */
#define VIEWS_MAX      100u
#define RECALL_DEFAULT 0.95f
/* Of a segment's share of the k nearest: standard deviations beyond the mean that it is asked for. One in fourteen is
 * asked again. */
#define SHARE_DEVIATIONS 1.5
#define SHARE_BLOCKS     4u /* times k blocks with its rows, or fewer, are likely all read: it is asked for k at once */
/* How often it begins again because hits have ended meanwhile. */
#define RESTARTS_MAX 3u

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Of one work: a search for very many does not leave its memory with the lane, which keeps as many works as it had
 * searches at once. */
#define BYTES_KEPT (1u << 18)

/* Memory of a work, but for what does not grow with what is found. */
static size_t held_bytes(const struct search_work *w)
{
    return w->kept.held + w->found_capacity * sizeof *w->found + w->hits_capacity * sizeof *w->hits +
           w->memtable_hits_capacity * sizeof *w->memtable_hits;
}

/* After it has grown. */
static bool may_hold(struct search_work *w)
{
    struct collection_search *search = w->search;
    size_t held = held_bytes(w);
    return held <= BYTES_KEPT || !search->may_hold || search->may_hold(search, held);
}

/* Room for n hits more in found. */
static bool reserve_found(struct search_work *w, uint32_t n)
{
    uint32_t before = w->found_capacity;
    return array_reserve(&w->found, &w->found_capacity, w->n_found + n) && (w->found_capacity == before || may_hold(w));
}

/* A copy of them that stays until the search ends; bytes NULL: only the space for them. NULL without memory, where the
 * caller allows no more, and when the search has failed. */
static void *keep_bytes(struct search_work *w, const void *bytes, size_t n)
{
    size_t before = w->kept.held;
    if (w->search->code < 0)
        return NULL;
    void *copy = arena_take(&w->kept, n);
    if (w->kept.held != before && !may_hold(w))
        return NULL;
    if (copy && bytes && n > 0)
        memcpy(copy, bytes, n);
    return copy;
}

/* The works that a lane keeps for its next searches are the guest of its searcher. */
static void free_works(void *first)
{
    for (struct search_work *w = first, *next; w; w = next) {
        next = w->next_free;
        free(w->subs);
        free(w->query);
        free(w->found);
        arena_fini(&w->kept);
        free(w->memtable_hits);
        free(w->hits);
        free(w->scratch);
        free(w);
    }
}

static void give_back(struct searcher *s, struct search_work *w)
{
    struct searcher_guest *guest = searcher_guest(s);
    size_t bytes =
        held_bytes(w) + w->subs_capacity * sizeof *w->subs + (w->query_capacity + w->scratch_capacity) * sizeof(float);
    w->next_free = NULL;
    if (bytes > BYTES_KEPT) {
        free_works(w);
        return;
    }
    w->next_free = guest->data;
    *guest = (struct searcher_guest){w, free_works};
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void collection_search_fail(struct search_work *w, int code, const struct quire_error *error)
{
    if (w->search->code < 0)
        return;
    w->search->code = code;
    if (error)
        w->search->error = *error;
    else
        error_set(&w->search->error, code, "%s", quire_error_text(code));
}

static void leave_epoch(struct search_work *w, struct collection *c)
{
    if (w->in_epoch)
        epoch_exit(c->host->epochs, w->epoch);
    w->in_epoch = false;
    if (w->now)
        view_unref(w->now);
    w->now = NULL;
}

static void deliver(struct search_work *w)
{
    struct collection_search *search = w->search;
    struct collection *c = search->collection;
    struct searcher *s = w->searcher;
    assert(w->pins == 0 && w->n_pending == 0);
    assert(search->code < 0 || w->n_found <= w->k);
    search->hits = search->code == 0 ? w->hits : NULL;
    search->n_hits = search->code == 0 ? w->n_found : 0;
    search->stats.latency_ns = clock_ns() - w->started_ns;
    search->done(search); /* which may free it */
    leave_epoch(w, c);
    if (w->is_filtered)
        collection_filter_end(w);
    view_unref(w->view);
    give_back(s, w);
    collection_unref(c);
}

/* ---- attributes of sealed rows ----------------------------------------------------------------------------------- */

/* The JSON of an element's text, where it lies. */
static void take_json(struct search_work *w, struct found *f, const char *text, uint32_t bytes)
{
    struct quire_error err = {0};
    uint32_t n_grants;
    f->has_text = grants_split(text, bytes, &f->attributes, &f->attribute_bytes, &n_grants) == 0;
    if (f->has_text)
        return;
    f->attributes = NULL;
    f->attribute_bytes = 0;
    collection_search_fail(w, error_set(&err, QUIRE_ECORRUPT, "the grants of an element are damaged"), &err);
}

static void keep_json(struct search_work *w, struct found *f)
{
    f->attributes = keep_bytes(w, f->attributes, f->attribute_bytes);
    if (!f->attributes)
        collection_search_fail(w, QUIRE_ENOMEM, NULL);
}

void collection_search_keep_json(struct search_work *w, struct found *f, const char *text, uint32_t bytes)
{
    take_json(w, f, text, bytes);
    if (f->has_text)
        keep_json(w, f);
}

static void fetch_attributes(struct search_work *w);

static void on_attributes(struct fetch_request *fetch)
{
    struct attribute_fetch *a = fetch->owner;
    struct search_work *w = a->work;
    struct found *f = &w->found[a->hit];
    w->search->stats.reads += fetch->reads;
    w->search->stats.bytes += fetch->bytes;
    a->rounds += fetch->rounds;
    if (fetch->code < 0) {
        collection_search_fail(w, fetch->code, &fetch->error);
    } else if (fetch->attributes) {
        collection_search_keep_json(w, f, fetch->attributes, fetch->attributes_bytes);
    }
    assert(a->busy && w->n_pending > 0);
    a->busy = false;
    w->n_pending--;
    fetch_attributes(w);
}

bool collection_search_fetch(struct search_work *w, struct attribute_fetch *a)
{
    struct quire_error err = {0};
    assert(!a->busy);
    a->work = w;
    a->busy = true;
    a->request.owner = a;
    int rc = fetch_start(w->searcher, &a->request, &err);
    if (rc == 0)
        return true;
    collection_search_fail(w, rc, &err);
    a->busy = false;
    return false;
}

bool collection_search_fill(struct search_work *w, bool (*start_next)(struct search_work *w, struct attribute_fetch *a))
{
    if (w->starting)
        return false;
    w->starting = true;
    for (uint32_t i = 0; i < ATTRIBUTES_AT_ONCE; i++)
        while (w->search->code == 0 && !w->attributes[i].busy && start_next(w, &w->attributes[i]))
            continue;
    w->starting = false;
    return true;
}

/* The segment that the attributes of a hit are to be read from; NULL: none. */
static struct segment *attributes_are_in(const struct search_work *w, const struct found *f)
{
    struct segment *segment = f->part != PART_NONE && !f->has_text ? w->view->parts[f->part]->segment : NULL;
    return segment && segment_info(segment)->has_attributes ? segment : NULL;
}

/* What memtables hold stays while the search is in the epoch, in which nobody waits for the disk: where attributes are
 * to be read, those of memtables are copied before. */
static void keep_memtables_json(struct search_work *w)
{
    uint32_t reads = 0;
    for (uint32_t i = 0; i < w->n_found && !reads; i++)
        reads += attributes_are_in(w, &w->found[i]) != NULL;
    for (uint32_t i = 0; i < w->n_found && reads && w->search->code == 0; i++)
        if (w->found[i].part == PART_NONE && w->found[i].has_text)
            keep_json(w, &w->found[i]);
    if (reads)
        leave_epoch(w, w->search->collection);
}

/* Of the next hit whose attributes lie on the disk; false: there is none. */
static bool start_attributes(struct search_work *w, struct attribute_fetch *a)
{
    const struct found *f = NULL;
    struct segment *segment = NULL;
    for (; !segment && w->next_attributes < w->n_found; w->next_attributes++) {
        f = &w->found[w->next_attributes];
        segment = attributes_are_in(w, f);
    }
    if (!segment)
        return false;
    assert(!w->in_epoch);
    a->hit = w->next_attributes - 1;
    w->n_pending++;
    a->request =
        (struct fetch_request){.segment = segment, .row = f->row, .want_attributes = true, .done = on_attributes};
    if (!collection_search_fetch(w, a))
        w->n_pending--;
    return true;
}

/* Each costs two reads, one after the other. */
static void fetch_attributes(struct search_work *w)
{
    uint32_t rounds = 0;
    if (!collection_search_fill(w, start_attributes) || w->n_pending > 0)
        return;
    for (uint32_t i = 0; i < ATTRIBUTES_AT_ONCE; i++) {
        rounds = w->attributes[i].rounds > rounds ? w->attributes[i].rounds : rounds;
        w->attributes[i].rounds = 0;
    }
    w->search->stats.rounds += rounds;
    for (uint32_t i = 0; i < w->n_found; i++) {
        const struct found *f = &w->found[i];
        w->hits[i] = (struct collection_hit){.key = f->key,
                                             .key_bytes = f->key_bytes,
                                             .distance = f->distance,
                                             .deviation = f->deviation,
                                             .attributes = f->attribute_bytes ? f->attributes : NULL,
                                             .attribute_bytes = f->attribute_bytes,
                                             .vector = f->vector};
        w->search->stats.estimated += f->deviation > 0;
    }
    deliver(w);
}

/* ---- memtables --------------------------------------------------------------------------------------------------- */

/* Its attributes may have changed since the row was accepted: what is answered is what passes. */
static int keep_row(struct search_work *w, const struct memtable *memtable, const struct memtable_hit *hit)
{
    struct memtable_row row;
    struct found *f = &w->found[w->n_found];
    memtable_row(memtable, hit->row, &row);
    if (w->is_filtered && !collection_filter_accepts(w, &row))
        return 0;
    *f = (struct found){.distance = hit->distance, .part = PART_NONE, .row = hit->row, .begin = row.begin_lsn};
    f->key = keep_bytes(w, row.key, row.key_bytes);
    f->key_bytes = row.key_bytes;
    if (!f->key)
        return QUIRE_ENOMEM;
    if (w->search->want_attributes && row.attributes)
        take_json(w, f, row.attributes, row.attribute_bytes);
    if (w->search->want_vectors) {
        float *vector = keep_bytes(w, NULL, sizeof(float) * w->search->collection->config.dim);
        if (!vector)
            return QUIRE_ENOMEM;
        memtable_vector(memtable, hit->row, w->scratch, vector);
        f->vector = vector;
    }
    w->n_found++;
    return 0;
}

static int search_memtable(struct search_work *w, const struct memtable_ref *table, uint64_t snapshot)
{
    struct collection_search *search = w->search;
    const struct memtable_test test = {collection_filter_accepts, w, w->filter, w->scope, search->numbers};
    struct memtable_query query = {.query = w->query,
                                   .k = w->k,
                                   .recall = search->options.recall,
                                   .effort = search->options.effort,
                                   .exact = search->options.exact,
                                   .snapshot = snapshot,
                                   .test = w->is_filtered ? &test : NULL};
    struct memtable_work done = {.scored = 0};
    int n = memtable_search(table->memtable, &query, w->memtable_hits, &done);
    search->memtable_rows_scored += done.scored;
    search->stats.matches += w->is_filtered ? done.matches : 0;
    if (n < 0 || !reserve_found(w, (uint32_t)n))
        return QUIRE_ENOMEM;
    for (int i = 0; i < n; i++)
        if (keep_row(w, table->memtable, &w->memtable_hits[i]) < 0)
            return QUIRE_ENOMEM;
    return 0;
}

/* ---- bringing it together ---------------------------------------------------------------------------------------- */

/* Step 2. *now is released by the caller. *ended: how many hits have ended. */
static uint64_t take_snapshot(struct search_work *w, struct view **now, uint32_t *ended)
{
    struct collection *c = w->search->collection;
    uint32_t n = 0;
    *ended = 0;
    if (w->search->snapshot) {
        *now = view_ref(w->view);
        return w->search->snapshot->lsn;
    }
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < w->n_found; i++)
        if (!part_is_dead(w->view->parts[w->found[i].part], w->found[i].row))
            w->found[n++] = w->found[i];
    *ended = w->n_found - n;
    w->n_found = n;
    *now = view_ref(c->view);
    uint64_t lsn = c->last_lsn;
    pthread_mutex_unlock(&c->lock);
    return lsn;
}

/* Elements that are equally near are ordered by key, whatever became of the set since they were put. */
static int by_distance(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    if (a->distance != b->distance)
        return a->distance < b->distance ? -1 : 1;
    int order = memcmp(a->key, b->key, a->key_bytes < b->key_bytes ? a->key_bytes : b->key_bytes);
    return order ? order : a->key_bytes < b->key_bytes ? -1 : a->key_bytes > b->key_bytes;
}

static int compare_keys(const struct found *a, const struct found *b)
{
    if (a->key_bytes != b->key_bytes)
        return a->key_bytes < b->key_bytes ? -1 : 1;
    return memcmp(a->key, b->key, a->key_bytes);
}

/* By key, the youngest version first. */
static int by_key(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    int order = compare_keys(a, b);
    return order ? order : a->begin > b->begin ? -1 : a->begin < b->begin;
}

/* Of an element that was found in two versions the younger one stays. */
static void drop_older_versions(struct search_work *w)
{
    uint32_t n = 0;
    if (w->n_found)
        qsort(w->found, w->n_found, sizeof *w->found, by_key);
    for (uint32_t i = 0; i < w->n_found; i++)
        if (n == 0 || compare_keys(&w->found[n - 1], &w->found[i]) != 0)
            w->found[n++] = w->found[i];
    w->n_found = n;
}

/* Whether the parts and memtables of `old` and the memtables of `now` hold all that lives. */
static bool views_meet(const struct view *old, const struct view *now)
{
    const struct memtable_ref *newest = old->memtables[0];
    return old->adoptions == now->adoptions &&
           (view_has_memtable(now, newest) || now->memtables[now->n_memtables - 1]->after_lsn == newest->last_lsn);
}

static int prepare(struct search_work *w);

/* The names that a filter lists first. */
static void begin_pass(struct search_work *w)
{
    if (!w->is_filtered || !collection_filter_find_names(w))
        collection_search_start_segments(w);
}

/* On another view, whose reference it takes over. */
static void begin_again(struct search_work *w, struct view *view)
{
    view_unref(w->view);
    w->view = view;
    if (prepare(w) == 0) {
        begin_pass(w);
        return;
    }
    collection_search_fail(w, QUIRE_ENOMEM, NULL);
    deliver(w);
}

/* Steps 2 and 3. Whether the search must begin again, on *now, whose reference is the caller's. It is in an epoch
 * afterwards. */
static bool add_memtables(struct search_work *w, struct view **now)
{
    struct quire_error err = {0};
    uint32_t ended;
    /* one epoch from the number on: what ends meanwhile is not given back before the memtables have been searched, and
     * their attributes answered or copied */
    w->epoch = epoch_enter(w->search->collection->host->epochs);
    w->in_epoch = true;
    uint64_t lsn = take_snapshot(w, now, &ended);
    bool whole = views_meet(w->view, *now);
    int rc = 0;
    for (uint32_t i = 0; i < w->view->n_memtables && whole && rc == 0; i++)
        rc = search_memtable(w, w->view->memtables[i], lsn);
    for (uint32_t i = 0; i < (*now)->n_memtables && whole && rc == 0; i++)
        if (!view_has_memtable(w->view, (*now)->memtables[i]))
            rc = search_memtable(w, (*now)->memtables[i], lsn);
    if (rc < 0)
        collection_search_fail(w, QUIRE_ENOMEM, NULL);
    if (*now != w->view)
        drop_older_versions(w);
    if (!whole && w->n_views++ == VIEWS_MAX) {
        error_set(&err, QUIRE_EBUSY, "segments came and went %u times during a search: try again", VIEWS_MAX);
        collection_search_fail(w, QUIRE_EBUSY, &err);
    }
    if (w->search->code < 0 || !whole)
        return w->search->code == 0;
    /* hits that have ended leave a gap in what is exact, or where there are too few */
    return ended > 0 && (w->search->options.exact || w->n_found < w->k) && w->n_restarts++ < RESTARTS_MAX;
}

/* What a segment is asked for where it has n of the rows of a search among numbers. */
static uint32_t share_of(const struct search_work *w, const struct sub_search *sub, uint64_t all)
{
    double part = (double)sub->selection->n / (double)all, mean = w->k * part;
    uint32_t share = (uint32_t)ceil(mean + SHARE_DEVIATIONS * sqrt(mean * (1 - part)));
    if (sub->selection->n_blocks <= (uint64_t)SHARE_BLOCKS * w->k || share >= sub->asked)
        return sub->asked;
    return share > 0 ? share : 1;
}

static int by_nearness(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    return a->distance < b->distance ? -1 : a->distance > b->distance;
}

/* Asks those segments again that may have more of the k nearest than they were asked for. Whether there are any. */
static bool ask_again(struct search_work *w)
{
    bool any = false;
    if (!w->search->numbers || w->n_found == 0)
        return false;
    qsort(w->found, w->n_found, sizeof *w->found, by_nearness);
    float limit = w->found[(w->n_found < w->k ? w->n_found : w->k) - 1].distance;
    collection_search_pin(w);
    for (uint32_t i = 0; i < w->n_subs; i++) {
        struct sub_search *sub = &w->subs[i];
        uint32_t most = sub->selection->n < w->k ? (uint32_t)sub->selection->n : w->k, near = 0, kept = 0;
        for (uint32_t k = 0; k < w->n_found; k++)
            near += w->found[k].part == i && w->found[k].distance <= limit;
        if (sub->asked >= most || near < sub->asked)
            continue;
        for (uint32_t k = 0; k < w->n_found; k++)
            if (w->found[k].part != i)
                w->found[kept++] = w->found[k];
        w->n_found = kept;
        sub->asked = most;
        w->n_pending++;
        any = true;
        collection_search_start_segment(w, sub);
    }
    if (!any)
        w->pins--;
    else
        collection_search_release(w);
    return any;
}

/* All segments have answered: step 2 and what follows. */
static void conclude(struct search_work *w)
{
    struct collection_search *search = w->search;
    struct quire_search_stats *stats = &search->stats;
    struct view *now;
    uint64_t began = clock_ns();
    assert(w->n_pending == 0 && search->code == 0);
    if (ask_again(w))
        return;
    if (w->is_filtered)
        collection_filter_drop_refused(w);
    if (add_memtables(w, &now)) {
        leave_epoch(w, search->collection);
        begin_again(w, now);
        return;
    }
    w->now = now;
    if (w->n_found)
        qsort(w->found, w->n_found, sizeof *w->found, by_distance);
    w->n_found = w->n_found < w->k ? w->n_found : w->k;
    uint32_t before = w->hits_capacity;
    if (!array_reserve(&w->hits, &w->hits_capacity, w->n_found) || (w->hits_capacity != before && !may_hold(w)))
        collection_search_fail(w, QUIRE_ENOMEM, NULL);
    /* the plan is that of the segment with the most reads; what came from memory alone says so */
    stats->rows_scored += search->memtable_rows_scored;
    if (!w->is_filtered)
        stats->matches = w->n_elements;
    if (w->view->n_parts == 0 || (stats->plan == QUIRE_PLAN_EMPTY && w->n_found > 0))
        stats->plan = QUIRE_PLAN_MEMORY;
    stats->cpu_ns += clock_ns() - began;
    w->next_attributes = search->want_attributes ? 0 : w->n_found;
    if (search->want_attributes && search->code == 0)
        keep_memtables_json(w);
    if (search->code < 0)
        deliver(w);
    else
        fetch_attributes(w);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static int keep_hits(struct search_work *w, const struct sub_search *sub)
{
    const struct search_request *r = &sub->request;
    if (!reserve_found(w, r->n_hits))
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < r->n_hits; i++) {
        const struct search_hit *hit = &r->hits[i];
        struct found *f = &w->found[w->n_found];
        *f = (struct found){.distance = hit->distance, .deviation = hit->deviation, .part = sub->part, .row = hit->row};
        f->key = keep_bytes(w, hit->key, hit->key_bytes);
        f->key_bytes = hit->key_bytes;
        if (w->search->want_vectors)
            f->vector = keep_bytes(w, hit->vector, sizeof(float) * w->search->collection->config.dim);
        if (!f->key || (w->search->want_vectors && !f->vector))
            return QUIRE_ENOMEM;
        w->n_found++;
    }
    return 0;
}

static void add_stats(struct search_work *w, const struct quire_search_stats *one)
{
    struct quire_search_stats *sum = &w->search->stats;
    uint64_t reads = (uint64_t)one->reads + one->cached + 1;
    if (one->plan != QUIRE_PLAN_EMPTY && reads > w->plan_reads) {
        sum->plan = one->plan;
        w->plan_reads = reads;
    }
    sum->switched = sum->switched || one->switched;
    sum->reads_expected += one->reads_expected;
    sum->reads += one->reads;
    sum->cached += one->cached;
    sum->bytes += one->bytes;
    sum->rounds = sum->rounds > one->rounds ? sum->rounds : one->rounds;
    sum->rows_scored += one->rows_scored;
    sum->codes_scored += one->codes_scored;
    sum->effort = sum->effort > one->effort ? sum->effort : one->effort;
    sum->cpu_ns += one->cpu_ns;
    sum->exact = sum->exact && one->exact;
    sum->complete = sum->complete && one->complete;
}

void collection_search_pin(struct search_work *w)
{
    w->pins++;
}

void collection_search_release(struct search_work *w)
{
    assert(w->pins > 0);
    if (--w->pins > 0 || w->n_pending > 0)
        return;
    if (w->search->code < 0)
        deliver(w);
    else
        conclude(w);
}

/* ---- named rows -------------------------------------------------------------------------------------------------- */

/* Whether a row that was named for a segment has ended since: then one that was not named may be in its place. */
static bool named_have_ended(const struct search_work *w, const struct sub_search *sub)
{
    struct selection_walk walk = selection_walk(sub->named, 0);
    uint32_t row;
    while (selection_next(&walk, &row))
        if (part_is_dead(w->view->parts[sub->part], row))
            return true;
    return false;
}

static void forget_named(struct sub_search *sub)
{
    selection_unref(sub->named);
    sub->named = NULL;
}

/* The rows that are named for a segment; NULL: all are to be searched. */
static int take_named(const struct search_work *w, struct sub_search *sub)
{
    const struct collection_search *search = w->search;
    struct segment *segment = w->view->parts[sub->part]->segment;
    for (uint32_t i = 0; i < search->n_named && !search->snapshot; i++) {
        const struct collection_named *named = &search->named[i];
        uint32_t n = named->segment == segment ? named->counts[search->named_query] : 0;
        if (n == 0)
            continue;
        if (selection_create_rows(segment, named->rows + (size_t)search->named_query * named->most, n, false,
                                  &sub->named) < 0)
            return QUIRE_ENOMEM;
        if (named_have_ended(w, sub))
            forget_named(sub);
        break;
    }
    return 0;
}

/* A segment has answered by its named rows. True: it is asked again for all. */
static bool ask_for_all(struct search_work *w, struct sub_search *sub)
{
    if (!sub->named)
        return false;
    bool again = w->search->code == 0 && sub->request.code == 0 && named_have_ended(w, sub);
    forget_named(sub);
    w->search->n_named_segments += !again;
    if (again) {
        add_stats(w, &sub->request.stats);
        collection_search_start_segment(w, sub);
    }
    return again;
}

static void on_segment(struct search_request *request)
{
    struct sub_search *sub = request->owner;
    struct search_work *w = sub->work;
    uint32_t before = w->n_found;
    assert(w->n_pending > 0 && sub->part < w->view->n_parts);
    collection_search_pin(w);
    if (ask_for_all(w, sub)) {
        collection_search_release(w);
        return;
    }
    if (request->code < 0)
        collection_search_fail(w, request->code, &request->error);
    else if (keep_hits(w, sub) < 0)
        collection_search_fail(w, QUIRE_ENOMEM, NULL);
    add_stats(w, &request->stats);
    if (sub->selection && !sub->is_counted)
        w->search->stats.matches += request->stats.matches;
    sub->is_counted = true;
    if (sub->selection)
        collection_filter_take(w, sub, w->n_found - before);
    else
        w->n_pending--;
    collection_search_release(w);
}

/* The recall that is asked of segments, which measure it by what they keep. Of that 8-bit codes miss some themselves
 * (2.5 % of text of 256 dimensions): half of what may be missed is left to them, as memtables do it. */
static float segment_recall(const struct collection_search *search)
{
    const struct quire_search_options *o = &search->options;
    const struct collection_config *config = &search->collection->config;
    float recall = o->recall > 0 ? o->recall : RECALL_DEFAULT;
    if (o->recall == 0 && o->effort > 0)
        return 0;
    bool coded = config->metric == QUIRE_METRIC_COSINE && collection_slot(config) == QUIRE_SLOT_Q8;
    return coded ? 1 - (1 - recall) / 2 : recall;
}

void collection_search_start_segment(struct search_work *w, struct sub_search *sub)
{
    struct collection_search *search = w->search;
    struct quire_error err = {0};
    uint32_t reads_max = sub->request.options.reads_max;
    sub->request =
        (struct search_request){.segment = w->view->parts[sub->part]->segment,
                                .query = w->query,
                                .options = search->options,
                                .want_keys = true,
                                .want_vectors = search->want_vectors,
                                .dead = search->snapshot ? search->snapshot->tombstones.dead[sub->part] : NULL,
                                .selection = sub->named ? sub->named : sub->selection,
                                .priority = search->priority,
                                .done = on_segment,
                                .owner = sub};
    sub->request.options.k = sub->asked;
    sub->request.options.exact = search->options.exact || sub->named;
    sub->request.options.recall = segment_recall(search);
    sub->request.options.reads_max = reads_max;
    int rc = search_start(w->searcher, &sub->request, &err);
    if (rc < 0) {
        collection_search_fail(w, rc, &err);
        forget_named(sub);
        w->n_pending--;
    }
}

void collection_search_start_segments(struct search_work *w)
{
    /* what is left of reads_max is shared by all segments */
    uint32_t n = w->view->n_parts, most = w->search->options.reads_max, read = w->search->stats.reads;
    uint32_t left = most > read ? most - read : 0, reads_max = most == 0 ? 0 : left > n ? left / (n ? n : 1) : 1;
    uint64_t selected = 0;
    assert(w->n_pending == 0 && w->n_found == 0);
    collection_search_pin(w);
    w->n_pending = n;
    for (uint32_t i = 0; i < n; i++) {
        struct sub_search *sub = &w->subs[i];
        struct quire_error err = {0};
        roaring_bitmap_t *keys = i < w->n_subs ? sub->keys : NULL;
        *sub = (struct sub_search){.work = w, .part = i, .keys = keys, .asked = w->k};
        sub->request.options.reads_max = reads_max;
        int rc = w->search->code;
        if (w->is_filtered) {
            w->n_subs = i < w->n_subs ? w->n_subs : i + 1;
            rc = rc < 0 ? rc : collection_filter_select(w, sub, &err);
            if (rc < 0)
                collection_search_fail(w, rc, &err);
        } else if (rc == 0 && (rc = take_named(w, sub)) < 0) {
            collection_search_fail(w, rc, NULL);
        }
        selected += sub->selection ? sub->selection->n : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct sub_search *sub = &w->subs[i];
        if (w->search->numbers && sub->selection && selected > 0)
            sub->asked = share_of(w, sub, selected);
        if (w->search->code < 0)
            w->n_pending--;
        else
            collection_search_start_segment(w, sub);
    }
    collection_search_release(w);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static int prepare(struct search_work *w)
{
    struct collection_search *search = w->search;
    uint64_t elements = search->snapshot ? search->snapshot->n_elements : collection_count(search->collection);
    w->k = search->options.k <= elements ? search->options.k : elements ? (uint32_t)elements : 1;
    w->n_elements = elements;
    w->n_found = 0;
    arena_reset(&w->kept);
    w->plan_reads = 0;
    if (w->is_filtered)
        collection_filter_reset(w);
    w->search->stats.matches = 0;
    w->search->stats.plan = w->is_filtered ? QUIRE_PLAN_EMPTY : QUIRE_PLAN_WALK;
    w->search->n_segments = w->view->n_parts;
    w->search->n_list_segments = w->search->n_named_segments = 0;
    for (uint32_t i = 0; i < w->view->n_parts; i++)
        w->search->n_list_segments += segment_info(w->view->parts[i]->segment)->index == QUIRE_INDEX_SPANN;
    uint32_t dim = search->collection->config.dim, code_dim = dim + 64 > 2 * dim ? dim + 64 : 2 * dim;
    bool reserved = array_reserve(&w->subs, &w->subs_capacity, w->view->n_parts) &&
                    array_reserve(&w->query, &w->query_capacity, dim) &&
                    array_reserve(&w->scratch, &w->scratch_capacity, code_dim) &&
                    array_reserve(&w->memtable_hits, &w->memtable_hits_capacity, w->k) && may_hold(w);
    return reserved ? 0 : QUIRE_ENOMEM;
}

int collection_search_start(struct searcher *s, struct collection_search *search, struct quire_error *err)
{
    const struct collection_config *config = &search->collection->config;
    int rc = search_options_validate(&search->options, err);
    if (rc == 0)
        rc = collection_vector_validate(config, search->query, config->dim, err);
    if (rc < 0)
        return rc;
    struct searcher_guest *guest = searcher_guest(s);
    struct search_work *w = guest->data;
    if (w)
        guest->data = w->next_free;
    else if (!(w = calloc(1, sizeof *w)))
        return error_set(err, QUIRE_ENOMEM, "no memory for a search");
    w->searcher = s;
    w->search = search;
    rc = collection_filter_begin(w, err);
    if (rc < 0) {
        give_back(s, w);
        return rc;
    }
    w->view = search->snapshot ? view_ref(search->snapshot->view) : collection_view(search->collection);
    w->n_views = w->n_restarts = 0;
    w->started_ns = clock_ns();
    search->code = 0;
    search->error = (struct quire_error){0};
    search->stats = (struct quire_search_stats){.complete = true, .exact = search->options.exact};
    search->memtable_rows_scored = 0;
    if (prepare(w) < 0) {
        view_unref(w->view);
        collection_filter_end(w);
        give_back(s, w);
        return error_set(err, QUIRE_ENOMEM, "no memory for a search with k %u", search->options.k);
    }
    memcpy(w->query, search->query, sizeof(float) * config->dim);
    collection_ref(search->collection);
    search->work = w;
    begin_pass(w);
    return 0;
}
