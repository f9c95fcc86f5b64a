/*
 * vectors_search.c - searches: from ids to numbers, over the collection, and back to ids.
 *
 * The set of numbers is made when the search begins and is the search's own; what the caller has of ids may change
 * afterwards. The collection finds rows by numbers (collection.h), so an element that gets another vector meanwhile is
 * found in its new version, and one that has gone is not.
 *
 * A range is a search for the nearest, repeated for more of them until the farthest is beyond the radius, or until
 * its caller's deadline. What is beyond it for certain is not read.
 *
 * The distance that is answered is computed once more, in doubles from the vector as it is stored: a vector is at
 * distance 0 from itself, and what several segments and memtables answer is in one measure. Of a search for very many
 * the distance is the search's own, which is a float.
 */
#include "document/vectors/vectors_priv.h"
#include "index/vector/space.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

/* Asked for where the caller names none: more than a vector set's, since among a set plans go by estimates of how its
 * documents lie, and miss more where these lie together. It costs a read or none. */
#define RECALL_DEFAULT 0.97f
#define RECALL_FLAT    0.99f /* of what promises exact answers elsewhere */
/* Of a field of so few documents, and bytes of vectors, all are compared: that takes less than a millisecond. */
#define EXACT_DOCUMENTS 1024u
#define EXACT_BYTES     (4u << 20)
#define RANGE_FIRST     64u /* that a range begins with */
#define RANGE_TIMES     4u
#define RANGE_SLACK     0.01f /* by such a part of the radius distances by the index may be off */
#define MEASURED_MAX    4096u /* that many distances, or fewer, are computed once more */

struct answer {
    double distance;
    uint32_t id;
};

struct vectors_work {
    struct vectors *vectors; /* a reference */
    struct vectors_search *search;
    struct searcher *searcher;
    struct collection_search inner;
    struct number_set numbers;
    struct vectors_ticket ticket;
    struct quire_search_stats before; /* of the rounds of a range that are over */
    double query_norm2;
    uint32_t limit;  /* answers at most */
    bool exact;      /* all are compared */
    bool restricted; /* to numbers; otherwise they are all that there were */
    struct answer *answers;
    uint32_t *ids;
    double *distances;
    float query[]; /* dim */
};

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void finish(struct vectors_work *w, int code, const struct quire_error *err)
{
    struct vectors_search *search = w->search;
    struct vectors *v = w->vectors;
    pthread_mutex_lock(&v->lock);
    vectors_table_search_ends(&v->table, &w->ticket);
    pthread_mutex_unlock(&v->lock);
    search->code = code;
    if (code < 0) {
        search->n = 0;
        search->error = *err;
    }
    search->ids = w->ids;
    search->distances = w->distances;
    search->done(search); /* which may free it */
    number_set_fini(&w->numbers);
    array_free_all(w->answers, w->ids, w->distances, w);
    vectors_unref(v);
}

static int by_distance(const void *left, const void *right)
{
    const struct answer *a = left, *b = right;
    if (a->distance != b->distance)
        return a->distance < b->distance ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static double measure(const struct vectors_work *w, const struct collection_hit *hit)
{
    enum schema_metric metric = w->vectors->what.metric;
    double dot = 0, norm2 = 0, gap2 = 0;
    if (!hit->vector)
        return metric == SCHEMA_IP ? 1 + (double)hit->distance : (double)hit->distance;
    for (uint32_t i = 0; i < w->vectors->what.dim; i++) {
        double q = w->query[i], x = hit->vector[i];
        dot += q * x;
        norm2 += x * x;
        gap2 += (q - x) * (q - x);
    }
    double lengths = sqrt(norm2 * w->query_norm2);
    return metric == SCHEMA_L2 ? gap2 : metric == SCHEMA_IP ? 1 - dot : lengths > 0 ? 1 - dot / lengths : 1;
}

/* What was found, as ids in order of distance. QUIRE_ENOMEM. */
static int answer(struct vectors_work *w)
{
    const struct collection_search *inner = &w->inner;
    struct vectors *v = w->vectors;
    size_t n_hits = inner->n_hits;
    uint32_t n = 0;
    w->answers = malloc(sizeof *w->answers * (n_hits + 1));
    w->ids = malloc(sizeof *w->ids * (n_hits + 1));
    w->distances = malloc(sizeof *w->distances * (n_hits + 1));
    if (!w->answers || !w->ids || !w->distances)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < n_hits; i++)
        w->answers[i].distance = measure(w, &inner->hits[i]);
    pthread_mutex_lock(&v->lock);
    for (uint32_t i = 0; i < n_hits; i++) {
        uint32_t number = number_of_name(inner->hits[i].key);
        uint32_t id = number < v->table.end ? v->table.entries[number].id : VECTORS_NO_ID;
        if (w->search->allowed && !w->restricted && !number_set_has(&w->numbers, number))
            id = VECTORS_NO_ID; /* it came meanwhile */
        bool is_in = id != VECTORS_NO_ID && (!w->search->is_range || w->answers[i].distance <= w->search->radius);
        if (is_in)
            w->answers[n++] = (struct answer){w->answers[i].distance, id};
    }
    pthread_mutex_unlock(&v->lock);
    if (n > 0)
        qsort(w->answers, n, sizeof *w->answers, by_distance);
    for (uint32_t i = 0; i < n; i++) {
        w->ids[i] = w->answers[i].id;
        w->distances[i] = w->answers[i].distance;
    }
    w->search->n = n;
    return 0;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static void add_stats(struct quire_search_stats *sum, const struct quire_search_stats *one)
{
    struct quire_search_stats all = *one;
    all.reads += sum->reads;
    all.cached += sum->cached;
    all.bytes += sum->bytes;
    all.rounds += sum->rounds;
    all.rows_scored += sum->rows_scored;
    all.codes_scored += sum->codes_scored;
    all.cpu_ns += sum->cpu_ns;
    all.latency_ns += sum->latency_ns;
    *sum = all;
}

/* Of a range: whether there may be more within the radius than what was asked for, and time to look for it. */
static bool wants_more(const struct vectors_work *w)
{
    const struct collection_search *inner = &w->inner;
    if (!w->search->is_range || inner->n_hits < inner->options.k || inner->options.k >= w->limit)
        return false;
    if (w->search->deadline_us > 0 && clock_us() > w->search->deadline_us)
        return false;
    return measure(w, &inner->hits[inner->n_hits - 1]) <= w->search->radius;
}

static int begin_round(struct vectors_work *w, uint32_t k, struct quire_error *err)
{
    w->inner.options.k = k < w->limit ? k : w->limit;
    w->inner.want_vectors = w->inner.options.k <= MEASURED_MAX;
    return collection_search_start(w->searcher, &w->inner, err);
}

static void on_round(struct collection_search *inner)
{
    struct vectors_work *w = inner->owner;
    struct quire_error err = {0};
    add_stats(&w->before, &inner->stats);
    w->search->stats = w->before;
    if (inner->code < 0) {
        finish(w, inner->code, &inner->error);
        return;
    }
    int rc;
    if (wants_more(w)) {
        uint64_t k = (uint64_t)inner->options.k * RANGE_TIMES;
        rc = begin_round(w, k < QUIRE_K_MAX ? (uint32_t)k : QUIRE_K_MAX, &err);
        if (rc == 0)
            return;
    } else {
        rc = answer(w);
        if (rc < 0)
            error_set(&err, rc, "no memory for %u answers", inner->n_hits);
    }
    finish(w, rc, &err);
}

static bool may_hold(struct collection_search *inner, size_t bytes)
{
    struct vectors_work *w = inner->owner;
    return w->search->may_hold(w->search, bytes);
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

static int set_query(struct vectors_work *w, const void *query)
{
    const struct schema_vector *what = &w->vectors->what;
    void *elements = malloc(vectors_bytes(what));
    if (!elements)
        return QUIRE_ENOMEM;
    vectors_elements(what, query, elements);
    space_floats(vectors_type(what), elements, what->dim, w->query);
    free(elements);
    for (uint32_t i = 0; i < what->dim; i++)
        w->query_norm2 += (double)w->query[i] * w->query[i];
    return 0;
}

/* Takes what the search may answer, and its place among those under way. */
static int enter(struct vectors_work *w, struct quire_error *err)
{
    struct vectors *v = w->vectors;
    const roaring_bitmap_t *allowed = w->search->allowed;
    pthread_mutex_lock(&v->lock);
    int rc = v->dropped     ? error_set(err, QUIRE_ECLOSED, "the index was dropped")
             : v->unclaimed ? error_set(err, QUIRE_EBUSY, "the index is being loaded: try again")
                            : 0;
    if (rc == 0 && allowed && vectors_table_select(&v->table, allowed, &w->numbers) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a set of %u documents", v->table.n_documents);
    if (rc == 0)
        vectors_table_search_begins(&v->table, &w->ticket);
    uint64_t bytes = (uint64_t)v->table.n_documents * vectors_bytes(&v->what);
    w->exact = v->table.n_documents <= EXACT_DOCUMENTS && bytes <= EXACT_BYTES;
    w->restricted = rc == 0 && allowed && w->numbers.n < v->table.n_documents;
    pthread_mutex_unlock(&v->lock);
    return rc;
}

int vectors_search_start(struct searcher *searcher, struct vectors_search *search, struct quire_error *err)
{
    struct vectors *v = search->vectors;
    if (search->k == 0 || search->k > QUIRE_K_MAX)
        return error_set(err, QUIRE_ERANGE, "%u neighbours: 1 to %u can be asked for", search->k, QUIRE_K_MAX);
    if (isnan(search->radius) && search->is_range)
        return error_set(err, QUIRE_EINVALID, "the radius is not a number");
    struct vectors_work *w = calloc(1, sizeof *w + sizeof(float) * v->what.dim);
    if (!w)
        return error_set(err, QUIRE_ENOMEM, "no memory for a search");
    w->vectors = vectors_ref(v);
    w->search = search;
    w->searcher = searcher;
    w->limit = search->k;
    int rc = set_query(w, search->query);
    rc = rc < 0 ? error_set(err, rc, "no memory for a search") : enter(w, err);
    if (rc < 0) {
        free(w);
        vectors_unref(v);
        return rc;
    }
    w->inner = (struct collection_search){.collection = v->collection,
                                          .query = w->query,
                                          .numbers = w->restricted ? &w->numbers : NULL,
                                          .priority = search->priority,
                                          .done = on_round,
                                          .owner = w,
                                          .may_hold = search->may_hold ? may_hold : NULL};
    quire_search_options_init(&w->inner.options);
    w->inner.options.effort = search->ef;
    float recall = v->what.algorithm == SCHEMA_FLAT ? RECALL_FLAT : RECALL_DEFAULT;
    w->inner.options.recall = search->recall > 0 ? search->recall : recall;
    w->inner.options.reads_max = search->reads_max;
    w->inner.options.exact = w->exact;
    if (search->is_range && isfinite(search->radius)) {
        float radius = (float)(v->what.metric == SCHEMA_IP ? search->radius - 1 : search->radius);
        w->inner.options.limited = true;
        w->inner.options.farthest = radius + RANGE_SLACK * (fabsf(radius) + RANGE_SLACK);
    }
    search->work = w;
    search->code = 0;
    search->n = 0;
    rc = begin_round(w, !search->is_range ? search->k : w->exact ? EXACT_DOCUMENTS : RANGE_FIRST, err);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&v->lock);
    vectors_table_search_ends(&v->table, &w->ticket);
    pthread_mutex_unlock(&v->lock);
    number_set_fini(&w->numbers);
    free(w);
    vectors_unref(v);
    return rc;
}
