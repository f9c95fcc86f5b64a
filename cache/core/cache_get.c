/*
 * cache_get.c - a lookup: what there is, whether it may answer, and who computes what there is not.
 *
 * Order: mode and breaker; negative; exact hash; nearness; stale; miss. Two short stretches under the cache's lock, and
 * between them the search, without it:
 *   look     category, group, negative, exact hash; rows of the group that are not linked are copied
 *   search   distances to those, and the group's graph
 *   evaluate candidates in order of similarity: living, in time, tags, age, guards, own threshold; then the verdict
 *
 * A candidate that fails never ends the search: the next is looked at, and when all have failed that were near enough,
 * more are searched.
 *
 * Where nothing in memory is near enough and the group has vectors on the disk, the lookup ends there, and its caller
 * runs a search of those (cache_get says CACHE_WANTS_SEARCH). It measures what may reach the threshold and estimates
 * the rest by codes in memory. Then all of it is done again, with what that has found among the candidates: so what
 * arrived meanwhile is seen, and of the first part only what memory had found is remembered, which counts if nothing
 * has arrived. What left the memory since that search began may be in neither; then it is made again.
 *
 * Nobody may compute what has just been stored. An entry that becomes living between the search and the verdict would
 * be missed by both the search and the leases, so the count of arrivals is compared, and the lookup repeated.
 *
 * What needs no document is counted here, what is served when its document has been read (cache_finish.c).
 */
#include "cache/core/sealed.h"
#include "cache/guard/text.h"
#include "index/vector/codes.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/lock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

enum {
    BEAM_MIN = 64, /* of a search in a graph: recall@1 of a million generated rows .98 and more (bench_cache) */
    BATCH = 256,
    REPEATS_MAX = 8,       /* of a lookup that entries arrive under */
    SEALED_FIRST = 4,      /* candidates in each segment; four times as many when all have failed */
    SEALED_EXPLAINED = 16, /* of a lookup that is explained */
    ROUNDS_MAX = 12        /* of searches of the disk by one lookup: because of that, or of what was sealed meanwhile */
};
#define SIMILARITY_LEAST 0.5 /* below it nothing is looked at for a label, and more candidates are not searched */

/* ---- shared with cache_put.c ------------------------------------------------------------------------------------- */

struct category *cache_category_at(const struct cache *cache, uint32_t number)
{
    return cache->categories[number];
}

float cache_similarity_of(float distance)
{
    float similarity = 1 - distance * 0.5f; /* squared distance of unit vectors */
    assert(!isnan(distance));
    return similarity < 0 ? 0 : similarity > 1 ? 1 : similarity;
}

struct hash128 cache_hash_of(struct quire_bytes bytes)
{
    if (bytes.n_bytes == 0)
        return (struct hash128){0, 0};
    XXH128_hash_t hash = XXH3_128bits(bytes.data, bytes.n_bytes);
    return (struct hash128){hash.low64, hash.high64 ? hash.high64 : 1};
}

uint64_t cache_tag_hash(struct quire_bytes tag)
{
    return XXH3_64bits(tag.data, tag.n_bytes);
}

int cache_check_encoder(const struct cache *cache, struct quire_bytes encoder, struct quire_error *err)
{
    struct quire_bytes own = cache->config.encoder;
    if (encoder.n_bytes == 0 || text_equal(encoder, own))
        return 0;
    if (own.n_bytes == 0)
        return error_set(
            err, QUIRE_EINVALID,
            "encoder '%.*s' cannot be compared: this cache was made without ENCODER; make it anew with one",
            (int)encoder.n_bytes, (const char *)encoder.data);
    return error_set(err, QUIRE_EINVALID,
                     "vector of encoder '%.*s', but this cache holds those of '%.*s': make another cache for it",
                     (int)encoder.n_bytes, (const char *)encoder.data, (int)own.n_bytes, (const char *)own.data);
}

int cache_scratch_fit(struct cache_scratch *scratch, const struct cache *cache, struct quire_error *err)
{
    uint32_t capacity = cache->space.code_dim;
    if (capacity <= scratch->floats_capacity)
        return 0;
    float *bigger = realloc(scratch->floats, 2 * sizeof *bigger * capacity);
    if (!bigger)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector of %u dimensions", cache->config.dim);
    scratch->floats = bigger;
    scratch->floats_capacity = capacity;
    return 0;
}

int cache_vector(const struct cache *cache, struct cache_scratch *scratch, const void *vector, struct quire_error *err)
{
    const struct space *space = &cache->space;
    float *unit = scratch->floats, *rotated = scratch->floats + scratch->floats_capacity;
    space_floats(cache->config.type, vector, cache->config.dim, rotated);
    int rc = space_check(space, rotated);
    if (rc < 0)
        return error_set(err, rc, "the vector holds NaN or infinity");
    if (space_unit(rotated, cache->config.dim, unit) == 0)
        return error_set(err, QUIRE_EZEROVEC, "a zero vector has no direction, so it is similar to nothing");
    memcpy(rotated, unit, sizeof *unit * cache->config.dim);
    space_row(space, rotated, rotated);
    return 0;
}

double cache_threshold_of(struct cache *cache, uint32_t number, double lam)
{
    const struct category *cat = cache_category_at(cache, number);
    const struct category_settings *s = &cat->settings;
    if (s->risk <= 0)
        return load_sim(s, lam);
    return risk_threshold(cat->curve, &(struct risk_settings){load_risk(s, lam), s->audit, s->floor, s->ceil});
}

/* ---- a lookup ---------------------------------------------------------------------------------------------------- */

struct cache_lookup {
    struct cache *cache;
    struct cache_scratch *scratch;
    const struct quire_cache_query *query;
    struct cache_decision *out;
    struct quire_cache_answer *answer;
    struct lease_waiter *waiter;
    struct hash128 exact, compat;
    uint64_t need[CACHE_TAGS_MAX];
    uint32_t n_features;
    uint64_t now, stale_ms; /* ms since BASE_MS; the category's STALE, or STALEERROR where the model has failed */
    uint32_t number;
    struct category *category;
    struct group *group; /* NULL: none is there */
    bool near, linked;   /* what is near is looked for; its graph is to be searched */
    uint32_t n_rows;     /* of scratch->rows: those of the group that are not linked */
    uint32_t n_hits, arrivals;
    uint32_t counted; /* candidates that the counters know: a wider search gives them again */
    bool woken;       /* the second one of a request, which has waited: it is counted already */
    bool full;        /* there may be more candidates than were found */
    bool refused;     /* there are as many leases or waiters as there may be */
    bool apart;       /* as cache->apart was at the last look */
    bool kept, kept_full;
    uint32_t n_kept;
    struct graph_hit memory[CANDIDATES_FIRST]; /* kept: what memory had, for a search of the disk to remember */
    struct cache_search *found;                /* what a search of the disk has brought; NULL: there was none */
    double lam;
    enum cache_outcome outcome; /* what came of it, once it ends */
    uint32_t stale_row;         /* the best candidate whose time is over; UINT32_MAX: none */
    uint64_t stale_id;          /* its id: the number may be another entry's after a search */
    double stale_similarity;
};

/* Whether it is the one lookup of its request that the policy looks at: not the one after a wait, nor that of a caller
 * whose model has failed. */
static bool is_first(const struct cache_lookup *l)
{
    return !l->woken && !l->query->on_error;
}

/* And whether the policy learns of it: a follower has its leader's curves, and gives no leases and no audits, as what
 * would be computed for them could not be put there. (lock) */
static bool is_learnt(const struct cache_lookup *l)
{
    return is_first(l) && !l->cache->follows;
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

/* What is said of a candidate, whatever its similarity. */
enum verdict { FITS, EXPIRED, TOO_OLD, LACKS_TAGS, VETOED, GUARDED, STALE };

struct opinion {
    enum verdict verdict;
    bool guards_skipped; /* they had no text to compare */
    enum guard_kind guard;
    char why[160]; /* GUARDED */
};

/* What an entry's state says to it; STALE: it may answer only where nothing fresh does. (lock) */
static enum verdict verdict_of_state(const struct cache_lookup *l, uint32_t row)
{
    const struct cache_entry *e = cache_entry_at(l->cache, row);
    uint64_t word = cache_entry_word(l->cache, row), expire = word & EXPIRE_NEVER, created = cache_entry_created(e);
    bool stale = expire <= l->now;
    if (!(word & ENTRY_LIVE) || e->group != l->group->number || (stale && expire + l->stale_ms <= l->now))
        return EXPIRED;
    if (l->query->max_age_ms && l->now > created && l->now - created > l->query->max_age_ms)
        return TOO_OLD;
    const struct blob_head *head = blob_head(&l->cache->blobs, e->blob);
    const uint64_t *tags = blob_tags(head);
    for (uint32_t i = 0; i < l->query->n_need; i++) {
        bool found = false;
        for (uint32_t t = 0; t < head->n_tags && !found; t++)
            found = memcmp(&tags[t], &l->need[i], sizeof *l->need) == 0;
        if (!found)
            return LACKS_TAGS;
    }
    return stale ? STALE : FITS;
}

/* All that is said of a candidate. Changes nothing. Without a text on one of the sides guards cannot speak. (lock) */
static struct opinion evaluate(const struct cache_lookup *l, uint32_t row, double similarity)
{
    struct opinion o = {.verdict = verdict_of_state(l, row)};
    const struct blob_head *head = blob_head(&l->cache->blobs, cache_entry_at(l->cache, row)->blob);
    unsigned mask = l->category->settings.guards;
    if (o.verdict != FITS && o.verdict != STALE)
        return o;
    if ((double)head->veto > similarity) {
        o.verdict = VETOED;
    } else if (mask && (l->query->text.n_bytes == 0 || !(cache_entry_word(l->cache, row) & ENTRY_TEXT))) {
        o.guards_skipped = true;
    } else if (mask && !guard_agree(l->scratch->features, l->n_features, blob_features(head), head->n_features, mask,
                                    &o.guard, o.why)) {
        o.verdict = GUARDED;
    }
    return o;
}

static void explain(struct cache_lookup *l, uint32_t row, double similarity, const char *verdict, const char *why)
{
    struct quire_cache_answer *answer = l->answer;
    if (!l->query->explain || answer->n_candidates == QUIRE_CACHE_CANDIDATES_MAX)
        return;
    struct quire_cache_candidate *c = &answer->candidates[answer->n_candidates++];
    c->id = cache_entry_id(cache_entry_at(l->cache, row), row);
    c->similarity = (float)similarity;
    c->verdict = verdict;
    snprintf(c->why, sizeof c->why, "%s", why);
}

static void note_stale(struct cache_lookup *l, uint32_t row, double similarity)
{
    l->stale_row = row;
    l->stale_id = cache_entry_id(cache_entry_at(l->cache, row), row);
    l->stale_similarity = similarity;
}

/* The first candidate that may answer, as far as it is near enough; UINT32_MAX: none. (lock) */
static uint32_t first_fit(struct cache_lookup *l, double *similarity)
{
    static const char *const names[] = {
        [FITS] = "farther", [EXPIRED] = "expired", [TOO_OLD] = "age", [LACKS_TAGS] = "tags",
        [VETOED] = "veto",  [GUARDED] = "guard",   [STALE] = "stale",
    };
    uint32_t found = UINT32_MAX;
    assert(lock_is_held(&l->cache->lock));
    for (uint32_t i = 0; i < l->n_hits && (found == UINT32_MAX || l->query->explain); i++) {
        uint32_t row = l->scratch->hits[i].row;
        double s = cache_similarity_of(l->scratch->hits[i].distance);
        const struct opinion opinion = evaluate(l, row, s);
        const char *name = names[opinion.verdict];
        /* what it does to the answer and, where no search before has given it to the counters, to those */
        bool is_new =
            i >= l->counted &&
            (!l->found || (sealed_holds(l->cache, row) && l->scratch->hits[i].distance > l->found->counted_distance));
        struct category *cat = l->category;
        bool near_enough = s >= l->answer->threshold;
        l->answer->guards_skipped |= opinion.guards_skipped;
        cat->counters.vetoed += opinion.verdict == VETOED && is_new && near_enough;
        if (opinion.verdict == GUARDED && is_new && near_enough) {
            cat->counters.guarded++;
            cat->counters.guarded_by[opinion.guard]++;
        }
        if (opinion.verdict == GUARDED && is_new)
            cache_count_bin(cat->histogram.guarded, s);
        if (opinion.verdict == GUARDED && !l->answer->guard) {
            l->answer->guard = guard_name(opinion.guard);
            memcpy(l->answer->guard_why, opinion.why, sizeof l->answer->guard_why);
        }
        if (opinion.verdict == STALE && l->stale_row == UINT32_MAX && near_enough)
            note_stale(l, row, s);
        if (opinion.verdict == FITS && found == UINT32_MAX) {
            found = row;
            *similarity = s;
            name = s >= l->answer->threshold ? "served" : "below threshold";
        }
        explain(l, row, s, name, opinion.verdict == GUARDED ? opinion.why : "");
    }
    if (l->counted < l->n_hits)
        l->counted = l->n_hits;
    return found;
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

/* Of a row of the graph; a guess, which the verdict does not rely on. */
static bool is_living(void *context, uint32_t row)
{
    const struct cache_lookup *l = context;
    uint64_t word = cache_entry_word(l->cache, sealed_graph_entry(l->cache, l->apart, row));
    return (word & ENTRY_LIVE) && (word & EXPIRE_NEVER) + l->stale_ms > l->now;
}

/* Puts a hit among the nearest, of which there are at most `capacity`; a row is there once. */
static void keep_hit(struct graph_hit *hits, uint32_t *n, uint32_t capacity, struct graph_hit hit)
{
    if (*n == capacity && hit.distance >= hits[capacity - 1].distance)
        return;
    uint32_t at = *n < capacity ? (*n)++ : capacity - 1;
    for (; at > 0 && hits[at - 1].distance > hit.distance; at--)
        hits[at] = hits[at - 1];
    hits[at] = hit;
}

static bool among(const struct graph_hit *hits, uint32_t n, uint32_t row)
{
    for (uint32_t i = 0; i < n; i++)
        if (hits[i].row == row)
            return true;
    return false;
}

/* The nearest `capacity` of the group's linked entries into hits, CANDIDATES_MAX of them at most. Next to all that are
 * linked are living, and each that is asked costs a cache miss: so it is asked of those found only, and while searching
 * if that leaves too few. */
static uint32_t search_linked(struct cache_lookup *l, struct graph_hit *hits, uint32_t capacity)
{
    struct cache *cache = l->cache;
    uint32_t beam = capacity > BEAM_MIN ? capacity : BEAM_MIN, living = 0, at = 0;
    uint32_t n = graph_search(cache->graph, &l->group->root, l->scratch->graph, beam, NULL, NULL, hits, beam);
    for (uint32_t i = 0; i < n && i < capacity && !l->apart; i++)
        __builtin_prefetch(cache_entry_at(cache, hits[i].row));
    for (; at < n && living < capacity; at++)
        if (is_living(l, hits[at].row))
            hits[living++] = hits[at];
    if (living == at || living == capacity)
        return living;
    return graph_search(cache->graph, &l->group->root, l->scratch->graph, beam, is_living, l, hits, capacity);
}

/* The nearest `capacity` of the group's entries, as rows of the graph, into scratch->hits: those of scratch->rows one
 * by one, and those of its graph. (inside an epoch, without the lock) */
static void search(struct cache_lookup *l, uint32_t capacity)
{
    struct cache_scratch *scratch = l->scratch;
    struct graph_hit *hits = scratch->hits, *of_graph = hits + CANDIDATES_MAX;
    float distances[BATCH];
    assert(capacity <= CANDIDATES_MAX);
    l->n_hits = 0;
    for (uint32_t i = 0; i < l->n_rows; i += BATCH) {
        uint32_t n = l->n_rows - i < BATCH ? l->n_rows - i : BATCH;
        graph_score(l->cache->graph, scratch->graph, scratch->rows + i, n, distances);
        for (uint32_t k = 0; k < n; k++)
            if (is_living(l, scratch->rows[i + k]))
                keep_hit(hits, &l->n_hits, capacity, (struct graph_hit){scratch->rows[i + k], distances[k]});
    }
    uint32_t n = l->linked ? search_linked(l, of_graph, capacity) : 0;
    for (uint32_t i = 0; i < n; i++)
        if (l->n_rows == 0 || !among(hits, l->n_hits, of_graph[i].row))
            keep_hit(hits, &l->n_hits, capacity, of_graph[i]);
    l->full = l->n_hits == capacity;
}

/* As search, by what the lookup before a search of the disk has found: nothing has arrived since, so that it would be
 * found again. (A row of the graph that has gone and was given again has another group by now, or none.) */
static bool search_again(struct cache_lookup *l, uint32_t capacity)
{
    const struct cache_search *found = l->found;
    if (!found || !found->memory_kept || capacity != CANDIDATES_FIRST || found->arrivals != l->arrivals)
        return false;
    memcpy(l->scratch->hits, found->memory, sizeof *found->memory * found->n_memory);
    l->n_hits = found->n_memory;
    l->full = found->memory_full;
    return true;
}

/* Remembers what search has found, before it becomes entries. */
static void keep_hits(struct cache_lookup *l, uint32_t capacity)
{
    l->kept = capacity == CANDIDATES_FIRST;
    if (!l->kept)
        return;
    assert(l->n_hits <= CANDIDATES_FIRST);
    memcpy(l->memory, l->scratch->hits, sizeof *l->memory * l->n_hits);
    l->n_kept = l->n_hits;
    l->kept_full = l->full;
}

/* Makes entries of the rows of the graph, and adds those that the disk has. An entry whose vector has left the memory
 * since the search is left out: it counts as an arrival. (lock) */
static void take_entries(struct cache_lookup *l, uint32_t capacity)
{
    const struct cache *cache = l->cache;
    struct graph_hit *hits = l->scratch->hits;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_hits && cache->apart; i++) {
        uint32_t row = sealed_graph_entry(cache, true, hits[i].row);
        if (sealed_has_graph_row(cache, row, hits[i].row))
            hits[n++] = (struct graph_hit){row, hits[i].distance};
    }
    l->n_hits = cache->apart ? n : l->n_hits;
    for (uint32_t i = 0; l->found && i < l->found->n_hits; i++) {
        const struct sealed_hit *hit = &l->found->hits[i];
        uint32_t row = cache_entry_find(cache, hit->id);
        if (row == UINT32_MAX || among(hits, l->n_hits, row))
            continue;
        l->full |= l->n_hits == capacity; /* this one, or the one that makes room for it, is seen with more only */
        keep_hit(hits, &l->n_hits, capacity, (struct graph_hit){row, hit->distance});
    }
}

/* ---- the disk ---------------------------------------------------------------------------------------------------- */

/* What the disk's search said of an entry, if that is an estimate; NULL: it was measured. (lock) */
static const struct sealed_hit *estimate_of(const struct cache_lookup *l, uint32_t row)
{
    if (!l->found || row == UINT32_MAX || !sealed_holds(l->cache, row))
        return NULL;
    uint64_t id = cache_entry_id(cache_entry_at(l->cache, row), row);
    for (uint32_t i = 0; i < l->found->n_hits; i++)
        if (l->found->hits[i].id == id)
            return l->found->hits[i].deviation > 0 ? &l->found->hits[i] : NULL;
    return NULL;
}

/* Whether labels may be asked for the best candidate, so that a policy learns from its similarity. */
static bool is_learnt_from(const struct cache_lookup *l, double similarity)
{
    const struct category_settings *s = &l->category->settings;
    return (s->risk > 0 || s->audit > 0) && similarity >= SIMILARITY_LEAST && is_first(l);
}

/* The next search of the disk. */
struct wanted {
    uint32_t k;        /* candidates in each segment; 0: none is wanted */
    double similarity; /* below it they need not be measured */
};

/* row: the best candidate. Who asks for an explanation wants to see what is near, whether it reaches the threshold or
 * not. (lock) */
static struct wanted sealed_wanted(const struct cache_lookup *l, uint32_t row, double similarity)
{
    const struct cache_search *found = l->found;
    const struct sealed_hit *estimate = estimate_of(l, row);
    double threshold = l->answer->threshold, least = l->query->explain ? -1 : threshold;
    bool near_enough = row != UINT32_MAX && similarity >= threshold;
    if (!l->near || !l->group->sealed || l->woken || (near_enough && !estimate) ||
        (found && found->rounds >= ROUNDS_MAX))
        return (struct wanted){0, 0};
    if (!found)
        return (struct wanted){l->query->explain ? SEALED_EXPLAINED : SEALED_FIRST, least};
    if (found->seals != l->group->seals || found->moved)
        return (struct wanted){found->k, least};
    if (estimate && (near_enough || is_learnt_from(l, similarity))) /* it is to be measured: four sigmas will do */
        return (struct wanted){found->k, fmin(least, similarity - 2 * (double)estimate->deviation)};
    double last = found->n_hits ? cache_similarity_of(found->hits[found->n_hits - 1].distance) : 0;
    bool more = row == UINT32_MAX && found->full && found->k < CANDIDATES_MAX &&
                last >= fmin(SIMILARITY_LEAST, l->answer->threshold);
    return (struct wanted){more ? 4 * found->k : 0, least};
}

/* The lookup ends with the search that its caller has to run. (lock) */
static int want_search(struct cache_lookup *l, struct wanted wanted, struct quire_error *err)
{
    struct cache_search *search =
        sealed_search_create(l->cache, l->group, l->scratch->floats, wanted.k, wanted.similarity);
    const struct cache_search *found = l->found;
    if (!search)
        return error_set(err, QUIRE_ENOMEM, "no memory to search the disk");
    search->arrivals = l->arrivals;
    search->memory_kept = l->kept;
    search->memory_full = l->kept_full;
    search->n_memory = l->n_kept;
    memcpy(search->memory, l->memory, sizeof *l->memory * l->n_kept);
    if (found) {
        search->rounds = found->rounds + 1;
        search->counted_distance = found->n_hits ? found->hits[found->n_hits - 1].distance : found->counted_distance;
    }
    l->out->search = search;
    l->outcome = CACHE_WANTS_SEARCH;
    return 0;
}

/* ---- what comes of it -------------------------------------------------------------------------------------------- */

/* An entry answers. (lock) */
static void serve(struct cache_lookup *l, enum quire_cache_status status, uint32_t row, double similarity)
{
    struct cache_entry *e = cache_entry_at(l->cache, row);
    struct category *cat = l->category;
    struct quire_cache_answer *answer = l->answer;
    uint64_t word = cache_entry_word(l->cache, row), expire = word & EXPIRE_NEVER;
    assert((word & ENTRY_LIVE) && e->group == l->group->number);
    assert(!l->out->wants_document && !l->out->search);
    answer->status = status;
    answer->id = cache_entry_id(e, row);
    answer->similarity = similarity;
    answer->age_ms = l->now > cache_entry_created(e) ? l->now - cache_entry_created(e) : 0;
    answer->ttl_ms = expire == EXPIRE_NEVER ? UINT64_MAX : expire > l->now ? expire - l->now : 0;
    l->out->wants_document = true;
    l->out->at = cache_entry_document(e);
    evict_used(&cat->order, row, cache_entry_saved(l->cache, e));
    if (status != QUIRE_CACHE_HIT && status != QUIRE_CACHE_EXACT)
        return;
    if (cat->settings.sliding && !l->cache->follows && !(word & ENTRY_PINNED) && expire != EXPIRE_NEVER) {
        uint64_t until = l->now + cat->settings.ttl_ms, last = cache_entry_created(e) + cat->settings.ttl_max_ms;
        cache_entry_set_expire(e, cat->settings.ttl_max_ms && until > last ? last : until > expire ? until : expire);
    }
}

static void count_request(struct cache_lookup *l)
{
    l->category->counters.requests++;
    if (l->group)
        l->group->scope->requests++;
}

/* The request ends here. It is counted now, or when the document has been read and answers (cache_finish). (lock) */
static void end(struct cache_lookup *l, enum quire_cache_status status, const char *reason)
{
    struct cache_decision *out = l->out;
    assert(out->wants_document == (status == QUIRE_CACHE_HIT || status == QUIRE_CACHE_EXACT ||
                                   status == QUIRE_CACHE_STALE || status == QUIRE_CACHE_AUDIT));
    l->answer->status = status;
    l->answer->reason = reason;
    out->group_key = l->group ? l->scratch->key.hash : 0;
    out->group = l->group ? l->group->number : UINT32_MAX;
    out->question = l->exact.low;
    if (!out->question && l->query->vector)
        out->question = XXH3_64bits(l->scratch->floats, sizeof(float) * l->cache->config.dim);
    /* Callers that waited for one answer get that one, in however many wordings it was asked for: nothing for the
     * breaker to be suspicious of. */
    out->suspicious = status != QUIRE_CACHE_BYPASS && status != QUIRE_CACHE_NEGATIVE && is_first(l);
    out->now = l->now;
    if (l->query->on_error && out->wants_document)
        count_request(l); /* the first one of this question has been counted as what it was: a miss */
    if (!out->wants_document && status != QUIRE_CACHE_VECTOR && !l->query->on_error)
        cache_count(l->cache, out);
    l->outcome = CACHE_DECIDED;
}

/* A lease, or a place among those who wait: true. (lock) */
static bool ask_lease(struct cache_lookup *l, bool want, bool may_wait, uint64_t refreshes)
{
    struct quire_cache_answer *answer = l->answer;
    uint64_t deadline = 0, now_ms = cache_steady_ms(l->cache);
    const struct lease_question question = {
        .group = l->scratch->key.hash,
        .exact = l->exact,
        .vector = l->query->vector ? l->scratch->floats : NULL,
        .nearness = l->category->settings.mode == CATEGORY_EXACT ? 2 : (float)answer->threshold,
        .now_ms = now_ms,
        .wall_ms = l->now + BASE_MS,
        .lease_ms = l->category->settings.lease_ms,
        .epoch = l->cache->epoch,
        .refreshes = refreshes};
    bool wait = may_wait && l->waiter && l->query->wait_ms;
    enum lease_answer got = lease_ask(l->cache->leases, &question, want, wait ? l->waiter : NULL, l->query->wait_ms,
                                      answer->lease, &deadline);
    assert(want || got != LEASE_GRANTED);
    assert(wait || got != LEASE_WAITING);
    if (got == LEASE_GRANTED)
        answer->lease_ms = deadline > now_ms ? deadline - now_ms : 0;
    else
        answer->lease[0] = 0;
    l->refused = got == LEASE_FULL;
    if (got == LEASE_WAITING)
        l->category->counters.waited++;
    return got == LEASE_WAITING;
}

static struct risk_settings risk_settings_of(const struct cache_lookup *l)
{
    const struct category_settings *s = &l->category->settings;
    return (struct risk_settings){load_risk(s, l->lam), s->audit, s->floor, s->ceil};
}

/* What a category's policy says to its best candidate (similarity < 0: there is none). (lock) */
static enum risk_verdict ask_policy(struct cache_lookup *l, double similarity, double *weight)
{
    const struct category_settings *s = &l->category->settings;
    struct risk_settings risk = risk_settings_of(l);
    double draw = cache_draw(l->cache);
    if (!is_learnt(l)) /* the curve has it already; and a model that has failed answers no audit */
        return similarity >= l->answer->threshold ? RISK_SERVE : RISK_WITHHOLD;
    enum risk_verdict verdict = risk_request(l->category->curve, &risk, similarity, draw, weight);
    if (s->risk <= 0) { /* a static threshold: the curve only watches */
        verdict = similarity >= l->answer->threshold ? RISK_SERVE : RISK_WITHHOLD;
        if (similarity >= SIMILARITY_LEAST && s->audit > 0 && cache_draw(l->cache) < s->audit) {
            *weight = 1 / s->audit;
            verdict = verdict == RISK_SERVE ? RISK_AUDIT_HIT : RISK_SAMPLE_MISS;
        }
    }
    if (similarity < l->answer->threshold) /* the caller's own threshold is higher */
        return verdict == RISK_SERVE ? RISK_WITHHOLD : verdict == RISK_AUDIT_HIT ? RISK_SAMPLE_MISS : verdict;
    return verdict;
}

static const char *miss_reason(const struct cache_lookup *l, double similarity)
{
    if (l->refused)
        return "this cache has as many leases or waiters as it may: no lease, and no wait";
    if (l->answer->guard && similarity < 0)
        return "a guard kept back what was near";
    if (similarity < 0)
        return "nothing is known for this scope and category that is near";
    if (l->answer->threshold > 1)
        return "nothing is served by nearness yet: the error budget needs labels first";
    return "the nearest entry does not reach the threshold";
}

/* The end of a search: the best candidate answers, or is drawn for an audit, or nothing fresh answers: then what is
 * stale does, or it is a miss with or without a lease. (lock) */
static void conclude(struct cache_lookup *l, uint32_t row, double similarity)
{
    struct quire_cache_answer *answer = l->answer;
    double weight = 0;
    bool follows = l->cache->follows, may_lease = !l->query->no_lease && !l->query->on_error && !follows;
    enum risk_verdict verdict = ask_policy(l, similarity, &weight);
    uint64_t id = row == UINT32_MAX ? 0 : cache_entry_id(cache_entry_at(l->cache, row), row);
    assert(row != UINT32_MAX || (verdict != RISK_SERVE && verdict != RISK_AUDIT_HIT));
    if (verdict == RISK_SERVE) {
        serve(l, QUIRE_CACHE_HIT, row, similarity);
        end(l, QUIRE_CACHE_HIT, "near enough");
        return;
    }
    if (verdict == RISK_AUDIT_HIT) {
        serve(l, QUIRE_CACHE_AUDIT, row, similarity);
        answer->audit = cache_audit_push(l->cache, l->number, id, RISK_AUDIT, similarity, weight, l->query->text);
        ask_lease(l, may_lease, false, 0);
        end(l, QUIRE_CACHE_AUDIT, "near enough, and drawn for an audit: ask the model and label it");
        return;
    }
    if (l->stale_row != UINT32_MAX) {
        serve(l, QUIRE_CACHE_STALE, l->stale_row, l->stale_similarity);
        if (!l->query->stale_ok && may_lease)
            ask_lease(l, true, false, answer->id);
        end(l, QUIRE_CACHE_STALE, answer->lease[0] ? "its time is over: this caller refreshes it" : "its time is over");
        return;
    }
    answer->similarity = similarity;
    if (ask_lease(l, may_lease, is_first(l) && !follows, 0)) {
        l->outcome = CACHE_WAITS;
        return;
    }
    end(l, QUIRE_CACHE_MISS, miss_reason(l, similarity));
    if (verdict == RISK_SAMPLE_MISS)
        answer->audit = cache_audit_push(l->cache, l->number, id, RISK_MISS, similarity, weight, l->query->text);
}

/* ---- the stretches ----------------------------------------------------------------------------------------------- */

/* The model whose load counts: the one that the scope names, or whichever is the fullest. */
static struct quire_bytes model_of(const struct quire_cache_query *query)
{
    for (uint32_t i = 0; i < query->n_scope; i++)
        if (text_equal(query->scope[i].key, text_of("model")))
            return query->scope[i].value;
    return (struct quire_bytes){NULL, 0};
}

/* Category, key of the group, threshold, and the counts of what may change meanwhile. (lock) */
static int look_category(struct cache_lookup *l, struct quire_error *err)
{
    struct cache *cache = l->cache;
    struct group_key *key = &l->scratch->key;
    int rc = cache_category_number(cache, l->query->category, &l->number, err);
    if (rc < 0)
        return rc;
    l->category = cache_category_at(cache, l->number);
    l->out->category = l->number;
    l->stale_ms = l->query->on_error ? category_kept_ms(&l->category->settings) : l->category->settings.stale_ms;
    rc = group_key_make(cache, &l->category->settings, l->query->scope, l->query->n_scope, key, err);
    if (rc < 0)
        return rc;
    group_key_finish(key, l->number, l->compat);
    l->lam = load_lam(&cache->load, model_of(l->query), l->now);
    l->answer->threshold = fmax(cache_threshold_of(cache, l->number, l->lam), l->query->similarity);
    l->arrivals = cache->arrivals[key->hash & 255];
    l->apart = cache->apart;
    return 0;
}

/* Why no entry is looked for, as a reason for people; NULL: one is. (lock) */
static const char *early_end(struct cache_lookup *l, enum quire_cache_status *status)
{
    *status = QUIRE_CACHE_BYPASS;
    if (l->category->settings.mode == CATEGORY_OFF)
        return "the category's mode is off";
    if (is_first(l) && !l->found && !load_breaker_allows(&l->category->breaker, l->now))
        return "the category's breaker is open: its hit rate cannot be right";
    *status = QUIRE_CACHE_NEGATIVE;
    if (l->exact.high && negatives_find(&l->cache->negatives, l->scratch->key.hash, l->exact, l->now))
        return "this question is known to have no answer that may be kept";
    return NULL;
}

/* The entry with the question's hash, if it may answer. (lock) */
static bool look_exact(struct cache_lookup *l)
{
    uint32_t row = l->exact.high ? cache_entry_find_exact(l->cache, l->group, l->exact) : UINT32_MAX;
    if (row == UINT32_MAX || l->category->settings.mode == CATEGORY_SEMANTIC)
        return false;
    enum verdict verdict = verdict_of_state(l, row);
    if (blob_head(&l->cache->blobs, cache_entry_at(l->cache, row)->blob)->veto > 1)
        return false;
    if (verdict == STALE)
        note_stale(l, row, 1);
    if (verdict != FITS)
        return false;
    serve(l, QUIRE_CACHE_EXACT, row, 1);
    struct risk_settings risk = risk_settings_of(l);
    if (is_learnt(l))
        risk_request(l->category->curve, &risk, -1, 0.5, &(double){0}); /* one of the requests that the budget is of */
    return true;
}

/* What is near is to be measured: rows of the graph of the group's entries that are not linked, and whether there is
 * a graph to be searched. (lock) */
static int copy_rows(struct cache_lookup *l, struct quire_error *err)
{
    struct cache_scratch *scratch = l->scratch;
    l->near = l->group && l->query->vector && l->category->settings.mode != CATEGORY_EXACT;
    l->n_rows = l->near ? l->group->n_rows : 0;
    l->linked = l->near && cache_group_linked(l->group) > 0;
    if (!array_reserve(&scratch->rows, &scratch->rows_capacity, l->n_rows))
        return error_set(err, QUIRE_ENOMEM, "no memory to look at %u entries", l->n_rows);
    for (uint32_t i = 0; i < l->n_rows; i++)
        scratch->rows[i] = sealed_graph_row(l->cache, l->group->rows[i]);
    return 0;
}

/* Whether a vector is worth making: its group holds one that it could be compared with. (lock) */
static bool wants_vector(const struct cache_lookup *l)
{
    return l->query->probe && l->group && l->group->n > 0 && l->category->settings.mode != CATEGORY_EXACT;
}

/* What a lookup does next. */
enum step {
    STEP_LOOK,   /* look: at its beginning, and again when entries have arrived */
    STEP_SEARCH, /* search and evaluate, with more candidates than before */
    STEP_END     /* nothing: l->outcome says what came of it */
};

/* The first stretch: what is decided without measuring, and otherwise what is to be measured. (lock) */
static int look(struct cache_lookup *l, enum step *next, struct quire_error *err)
{
    enum quire_cache_status status;
    int rc = look_category(l, err);
    if (rc < 0)
        return rc;
    *next = STEP_END;
    const char *reason = early_end(l, &status);
    if (reason) {
        end(l, status, reason);
        return 0;
    }
    l->group = group_find(l->cache, &l->scratch->key);
    l->stale_row = UINT32_MAX;
    if (l->group && look_exact(l)) {
        end(l, QUIRE_CACHE_EXACT, "the same request");
        return 0;
    }
    if (wants_vector(l)) {
        end(l, QUIRE_CACHE_VECTOR, "something may be near: ask again with the vector");
        return 0;
    }
    *next = STEP_SEARCH;
    return copy_rows(l, err);
}

/* The second stretch: a candidate answers, or more are to be looked at, here or on the disk, or there are none. last:
 * what has arrived is not waited for. (lock) */
static int evaluate_hits(struct cache_lookup *l, uint32_t capacity, bool last, enum step *next, struct quire_error *err)
{
    double similarity = -1;
    if (l->stale_row != UINT32_MAX && cache_entry_find(l->cache, l->stale_id) == UINT32_MAX)
        l->stale_row = UINT32_MAX; /* it went while the search was on */
    l->answer->n_candidates = 0;
    take_entries(l, capacity);
    uint32_t row = first_fit(l, &similarity);
    double farthest = l->n_hits ? cache_similarity_of(l->scratch->hits[l->n_hits - 1].distance) : 0;
    bool worth_more = farthest >= fmin(SIMILARITY_LEAST, l->answer->threshold) && capacity < CANDIDATES_MAX;
    if (row == UINT32_MAX && l->full && worth_more) {
        *next = STEP_SEARCH;
        return 0;
    }
    if (!last && l->arrivals != l->cache->arrivals[l->scratch->key.hash & 255]) {
        *next = STEP_LOOK;
        return 0;
    }
    *next = STEP_END;
    struct wanted wanted = sealed_wanted(l, row, similarity);
    if (wanted.k)
        return want_search(l, wanted, err);
    conclude(l, row, similarity);
    return 0;
}

/* Both stretches, until the outcome is known. (inside an epoch, without the lock) */
static int lookup_run(struct cache_lookup *l, struct quire_error *err)
{
    struct cache *cache = l->cache;
    enum step next = STEP_LOOK;
    int rc = 0;
    for (unsigned repeat = 0; rc == 0 && next == STEP_LOOK; repeat++) {
        assert(repeat <= REPEATS_MAX);
        memset(l->answer, 0, sizeof *l->answer);
        l->answer->similarity = -1;
        l->out->wants_document = false;
        l->out->search = NULL;
        pthread_mutex_lock(&cache->lock);
        l->now = cache_now(cache);
        rc = look(l, &next, err);
        bool is_probe = next == STEP_END && l->answer->status == QUIRE_CACHE_VECTOR; /* the next one is counted */
        if (rc == 0 && repeat == 0 && is_first(l) && !l->found && !is_probe)
            count_request(l);
        pthread_mutex_unlock(&cache->lock);
        for (uint32_t capacity = CANDIDATES_FIRST; rc == 0 && next == STEP_SEARCH; capacity *= 4) {
            if (!search_again(l, capacity))
                search(l, capacity);
            keep_hits(l, capacity);
            pthread_mutex_lock(&cache->lock);
            rc = evaluate_hits(l, capacity, repeat == REPEATS_MAX, &next, err);
            pthread_mutex_unlock(&cache->lock);
        }
    }
    return rc;
}

/* What needs no lock: the query is checked; its vector, hashes and what guards compare are computed. */
static int prepare(struct cache_lookup *l, struct quire_error *err)
{
    const struct quire_cache_query *query = l->query;
    if (!(query->similarity >= 0 && query->similarity <= 1))
        return error_set(err, QUIRE_ERANGE,
                         "similarity %g; it is a cosine of 0 to 1, higher is nearer, and neither a distance nor a "
                         "percentage",
                         query->similarity);
    if (query->n_need > CACHE_TAGS_MAX)
        return error_set(err, QUIRE_ERANGE, "%u tags are needed; at most %u may be", query->n_need, CACHE_TAGS_MAX);
    if (query->text.n_bytes > CACHE_TEXT_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "a text of %zu bytes; it may have at most %u: give the last user text only",
                         query->text.n_bytes, CACHE_TEXT_BYTES_MAX);
    if (query->probe && query->vector)
        return error_set(err, QUIRE_EINVALID,
                         "a probe asks whether a vector is worth making: leave the vector out, or the probe");
    int rc = cache_check_encoder(l->cache, query->encoder, err);
    if (rc == 0)
        rc = cache_scratch_fit(l->scratch, l->cache, err);
    if (rc == 0 && query->vector)
        rc = cache_vector(l->cache, l->scratch, query->vector, err);
    if (rc == 0 && query->vector &&
        graph_query(l->cache->graph, l->scratch->graph, l->scratch->floats + l->scratch->floats_capacity) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a query");
    if (rc < 0)
        return rc;
    l->exact = cache_hash_of(query->hash.n_bytes ? query->hash : query->text);
    l->compat = cache_hash_of(query->compat);
    l->out->exact = l->exact;
    for (uint32_t i = 0; i < query->n_need; i++)
        l->need[i] = cache_tag_hash(query->need[i]);
    if (query->text.n_bytes)
        l->n_features = guard_features(l->cache->of->guards, query->text, l->scratch->features);
    return 0;
}

/* As cache_get. */
static int lookup(struct cache_lookup *l, struct quire_error *err)
{
    struct cache *cache = l->cache;
    l->answer = &l->out->answer;
    if (atomic_load_explicit(&cache->closed, memory_order_acquire))
        return error_set(err, QUIRE_ECLOSED, "the cache was dropped or closed");
    int rc = prepare(l, err);
    if (rc < 0)
        return rc;
    unsigned slot = epoch_enter(cache->of->epochs);
    rc = lookup_run(l, err);
    epoch_exit(cache->of->epochs, slot);
    assert((rc == 0 && l->outcome == CACHE_WANTS_SEARCH) == (l->out->search != NULL));
    assert((rc == 0 && l->outcome == CACHE_DECIDED) || !l->out->wants_document);
    if (rc < 0)
        return rc;
    if (l->outcome == CACHE_DECIDED && !l->out->wants_document && !l->woken) {
        pthread_mutex_lock(&cache->lock);
        histogram_add(&l->category->get_us, clock_us() - l->out->begun_us);
        pthread_mutex_unlock(&cache->lock);
    }
    return (int)l->outcome;
}

int cache_get(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_query *query,
              struct lease_waiter *waiter, struct cache_decision *out, struct quire_error *err)
{
    struct cache_lookup l = {.cache = cache, .scratch = scratch, .query = query, .out = out, .waiter = waiter};
    out->begun_us = clock_us();
    return lookup(&l, err);
}

int cache_get_found(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_query *query,
                    struct lease_waiter *waiter, struct cache_decision *out, struct quire_error *err)
{
    struct cache_search *found = out->search;
    struct cache_lookup l = {
        .cache = cache, .scratch = scratch, .query = query, .out = out, .waiter = waiter, .found = found};
    assert(found && found->n_pending == 0);
    out->search = NULL;
    int rc = found->code < 0 ? error_set(err, found->code, "the search of the disk was ended") : lookup(&l, err);
    cache_search_free(found);
    return rc;
}

int cache_woken(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_query *query,
                struct lease_waiter *waiter, enum lease_wake how, struct cache_decision *out, struct quire_error *err)
{
    struct quire_cache_query again = *query;
    struct cache_lookup l = {.cache = cache, .scratch = scratch, .query = &again, .out = out, .woken = true};
    uint64_t begun = out->begun_us;
    again.wait_ms = 0;
    again.probe = false; /* the answer to its question has come, or it leads: it is not sent for a vector now */
    again.no_lease = query->no_lease || how != LEASE_READY;
    int rc = lookup(&l, err);
    assert(rc != CACHE_WAITS && rc != CACHE_WANTS_SEARCH);
    out->begun_us = begun;
    out->answer.waited_ms = (clock_us() - begun) / 1000;
    if (how != LEASE_LEAD)
        return rc;
    if (rc < 0) { /* the next one that waits leads */
        bool led;
        lease_fail(cache->leases, text_of(waiter->token), cache_steady_ms(cache), &led);
        return rc;
    }
    uint64_t now_ms = cache_steady_ms(cache);
    if (out->answer.status != QUIRE_CACHE_MISS) { /* it came from somewhere else meanwhile */
        lease_done(cache->leases, text_of(waiter->token));
        return rc;
    }
    memcpy(out->answer.lease, waiter->token, sizeof out->answer.lease);
    out->answer.lease_ms = waiter->token_deadline_ms > now_ms ? waiter->token_deadline_ms - now_ms : 0;
    out->answer.reason = "whoever computed it gave up: this caller does";
    return rc;
}

bool cache_cancel(struct cache *cache, struct lease_waiter *waiter)
{
    return lease_cancel(cache->leases, waiter);
}

struct document_log *cache_documents(struct cache *cache)
{
    return cache->documents;
}
