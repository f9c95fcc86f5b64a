/*
 * document_search.c - see document_search.h. The steps, each of which may end the search:
 *
 *   1. ranges: one after the other; each leaves a set of ids, and a list of ids with distances
 *   2. eval: the tree, under the index's lock for reading; ranges are looked up in what step 1 has left
 *   3. KNN: the nearest among the set of step 2 (all documents: without a set)
 *   4. finish: ids, distances and scores in arrays of the same order
 *
 * All parts see one state, that of step 2. A document that was written since step 1 began has another id by then, above
 * all that there were: what ranges said of such ids is forgotten, and step 1 is done once more among these documents
 * alone, under the lock of step 2. As a rule their vectors are in memory, and that is the end. Where the disk must be
 * asked for one, the lock is let go, and step 2 begins again; after ROUNDS_MAX of these, documents that were written
 * during the last one may be missed.
 */
#include "document/index/document_search.h"
#include "document/index/document_index_priv.h"
#include "document/query/query.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 16 };

/* What a vector part has found, in the order of ids. */
struct near {
    uint32_t id;
    double distance;
};
struct range {
    const struct query_node *node;
    roaring_bitmap_t *ids; /* owned */
    struct near *near;     /* owned; in the order of ids; only where the distance has a name */
    uint32_t n;
};

struct document_work {
    struct document_search *search;
    const struct query_node *knn; /* NULL: none */
    struct range ranges[DOCUMENT_RANGES_MAX];
    uint32_t n_ranges, n_searched;
    uint32_t n_rounds, next_id; /* ids below have been looked at by all ranges */
    roaring_bitmap_t *changed;  /* owned; what is looked at in this round; NULL: all, in the first */
    struct vectors_search vectors;
    bool starting, answered; /* inside vectors_search_start; it has called back */
    int code;
    roaring_bitmap_t *found; /* owned; NULL: all documents */
};

static void search_ranges(struct document_work *w);
static void on_range(struct vectors_search *v);

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

/* The vector ranges below a node, in order; their number, also where that is more than fit. */
static uint32_t collect(const struct query_node *node, const struct query_node **ranges, uint32_t n)
{
    if (node->kind == QUERY_RANGE) {
        if (n < DOCUMENT_RANGES_MAX)
            ranges[n] = node;
        return n + 1;
    }
    for (uint32_t i = 0; i < node->n_children; i++)
        n = collect(node->children[i], ranges, n);
    return n;
}

/* Whether rows may have this name for a distance; n: names that they have already. */
static int check_name(const struct schema *schema, const struct query_text *names, uint32_t n, struct query_text name,
                      struct quire_error *err)
{
    int shown = name.bytes < 64 ? (int)name.bytes : 64;
    for (uint32_t i = 0; i < n; i++)
        if (names[i].bytes == name.bytes && memcmp(names[i].data, name.data, name.bytes) == 0)
            return error_set(err, QUIRE_EINVALID,
                             "Property `%.*s` specified more than once: two distances of the query have this name",
                             shown, name.data);
    if (schema_find(schema, name.data, name.bytes))
        return error_set(err, QUIRE_EINVALID,
                         "Property `%.*s` already exists in schema: give the distance another name", shown, name.data);
    return 0;
}

int document_search_yields(const struct query *query, const struct schema *schema, struct query_text *names,
                           uint32_t *n_names, struct quire_error *err)
{
    const struct query_node *ranges[DOCUMENT_RANGES_MAX], *root = query_root(query);
    uint32_t n_ranges = collect(root, ranges, 0), n = 0;
    int rc = 0;
    if (n_ranges > DOCUMENT_RANGES_MAX)
        return error_set(err, QUIRE_ELIMIT, "a query has at most %u VECTOR_RANGE parts, this one has %u",
                         DOCUMENT_RANGES_MAX, n_ranges);
    if (root->kind == QUERY_KNN)
        names[n++] = root->distance_as;
    for (uint32_t i = 0; i < n_ranges; i++)
        if (ranges[i]->distance_as.bytes > 0)
            names[n++] = ranges[i]->distance_as;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = check_name(schema, names, i, names[i], err);
    *n_names = n;
    return rc;
}

bool document_search_has_vectors(const struct query *query)
{
    const struct query_node *ranges[DOCUMENT_RANGES_MAX];
    return query_root(query)->kind == QUERY_KNN || collect(query_root(query), ranges, 0) > 0;
}

static bool has_words(const struct query_node *node)
{
    bool has = node->kind >= QUERY_TERM && node->kind <= QUERY_FUZZY;
    if (node->kind == QUERY_TAG)
        return false; /* its children are tags */
    for (uint32_t i = 0; i < node->n_children && !has; i++)
        has = has_words(node->children[i]);
    return has;
}

bool document_search_has_words(const struct query *query)
{
    return has_words(query_root(query));
}

/* The words below a node that a document may have. */
static void collect_terms(const struct query_node *node, const struct query_node **terms, uint32_t *n)
{
    if (node->kind == QUERY_TERM && node->text.bytes > 0 && *n < DOCUMENT_TERMS_MAX)
        terms[(*n)++] = node;
    for (uint32_t i = 0; i < node->n_children && node->kind != QUERY_NOT && node->kind != QUERY_TAG; i++)
        collect_terms(node->children[i], terms, n);
}

int document_search_terms(struct document_index *x, const struct query *query, struct document_terms *out,
                          struct quire_error *err)
{
    const struct query_node *terms[DOCUMENT_TERMS_MAX];
    uint32_t n = 0;
    int rc = 0;
    collect_terms(query_root(query), terms, &n);
    out->n = 0;
    pthread_rwlock_rdlock(&x->lock);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct fields_request request = {.root = terms[i]};
        rc = fields_eval(x->fields, &request, &out->documents[out->n], err);
        if (rc == 0)
            out->words[out->n++] = terms[i]->text;
    }
    pthread_rwlock_unlock(&x->lock);
    if (rc < 0)
        document_terms_fini(out);
    return rc;
}

void document_terms_fini(struct document_terms *terms)
{
    for (uint32_t i = 0; i < terms->n; i++)
        roaring_bitmap_free(terms->documents[i]);
    terms->n = 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void work_free(struct document_work *w)
{
    for (uint32_t i = 0; i < w->n_ranges; i++) {
        if (w->ranges[i].ids)
            roaring_bitmap_free(w->ranges[i].ids);
        free(w->ranges[i].near);
    }
    if (w->found)
        roaring_bitmap_free(w->found);
    if (w->changed)
        roaring_bitmap_free(w->changed);
    free(w);
}

static void end(struct document_work *w, int code)
{
    struct document_search *s = w->search;
    s->code = code;
    s->work = NULL;
    work_free(w);
    s->done(s);
}

static void no_memory(struct document_work *w)
{
    end(w, error_set(&w->search->error, QUIRE_ENOMEM, "no memory for the documents that a query has found"));
}

void document_search_fini(struct document_search *s)
{
    free(s->ids);
    free(s->scores);
    for (uint32_t i = 0; i < s->n_yields; i++)
        free(s->yields[i].values);
    s->ids = NULL;
    s->scores = NULL;
    s->n_yields = 0;
}

static double distance_of(const struct range *range, uint32_t id)
{
    uint32_t at;
    array_find_first(at, 0, range->n, range->near[at].id < id);
    return at < range->n && range->near[at].id == id ? range->near[at].distance : NAN;
}

/* Distances of ranges with a name, for the ids that were found. */
static bool fill_ranges(struct document_work *w)
{
    struct document_search *s = w->search;
    for (uint32_t i = 0; i < w->n_ranges; i++) {
        const struct range *range = &w->ranges[i];
        if (range->node->distance_as.bytes == 0)
            continue;
        double *values = malloc((s->n + 1) * sizeof *values);
        if (!values)
            return false;
        for (uint64_t j = 0; j < s->n; j++)
            values[j] = distance_of(range, s->ids[j]);
        s->yields[s->n_yields++] = (struct document_yield){range->node->distance_as, values};
    }
    return true;
}

static int given(void *context, const struct query_node *node, const roaring_bitmap_t **out, struct quire_error *err)
{
    struct document_work *w = context;
    for (uint32_t i = 0; i < w->n_searched; i++)
        if (w->ranges[i].node == node) {
            *out = w->ranges[i].ids;
            return 0;
        }
    return error_set(err, QUIRE_EINVALID, "a vector part stands where none is taken");
}

int document_search_in_time(uint64_t deadline_us, struct quire_error *err)
{
    return deadline_us > 0 && clock_us() > deadline_us ? error_set(err, QUIRE_ETIMEOUT, FIELDS_TOO_LATE) : 0;
}

static bool is_late(void *context)
{
    const struct document_work *w = context;
    return document_search_in_time(w->search->deadline_us, NULL) < 0;
}

static struct fields_request request_of(struct document_work *w, const struct query_node *root)
{
    return (struct fields_request){.root = root, .given = given, .cancelled = is_late, .context = w};
}

static int compare_places(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Scores of what was found, which need not be in the order of ids. */
static int score(struct document_work *w)
{
    struct document_search *s = w->search;
    const struct query_node *root = query_root(s->query);
    struct fields_request request = request_of(w, root->kind == QUERY_KNN ? root->children[0] : root);
    uint64_t n = s->n;
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    double *scores = malloc((n + 1) * sizeof *scores);
    struct near *places = malloc((n + 1) * sizeof *places); /* id, and its place as distance */
    s->scores = malloc((n + 1) * sizeof *s->scores);
    int rc = ids && scores && places && s->scores ? 0 : QUIRE_ENOMEM;
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        places[i] = (struct near){s->ids[i], (double)i};
    if (rc == 0 && s->by_distance)
        qsort(places, n, sizeof *places, compare_places);
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        ids[i] = places[i].id;
    if (rc == 0) {
        pthread_rwlock_rdlock(&s->index->lock);
        rc = fields_score(s->index->fields, &request, s->scorer, 4, ids, n, scores, &s->error);
        pthread_rwlock_unlock(&s->index->lock);
    }
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        s->scores[(uint64_t)places[i].distance] = scores[i];
    free(ids);
    free(scores);
    free(places);
    return rc;
}

static void finish(struct document_work *w)
{
    struct document_search *s = w->search;
    if (!fill_ranges(w)) {
        no_memory(w);
        return;
    }
    int rc = document_search_in_time(s->deadline_us, &s->error);
    if (rc == 0 && s->scored)
        rc = score(w);
    if (rc == QUIRE_ENOMEM)
        no_memory(w);
    else
        end(w, rc);
}

/* ---- the nearest ------------------------------------------------------------------------------------------------- */

static void add_stats(struct document_search *s, const struct quire_search_stats *more)
{
    s->stats.reads += more->reads;
    s->stats.rounds += more->rounds;
    s->stats.cpu_ns += more->cpu_ns;
    s->stats.latency_ns += more->latency_ns;
}

/* What a search for the nearest has answered; not while a lock is held. */
static void take_nearest(struct document_work *w)
{
    if (w->code < 0)
        end(w, w->code);
    else
        finish(w);
}

/* Perhaps inside the start, under the index's lock: what was found is kept, and no more is done. */
static void on_nearest(struct vectors_search *v)
{
    struct document_work *w = v->owner;
    struct document_search *s = w->search;
    add_stats(s, &v->stats);
    w->code = v->code;
    w->answered = true;
    if (v->code < 0) {
        s->error = v->error;
    } else {
        s->ids = malloc((v->n + (size_t)1) * sizeof *s->ids);
        double *values = malloc((v->n + (size_t)1) * sizeof *values);
        if (!s->ids || !values)
            w->code = error_set(&s->error, QUIRE_ENOMEM, "no memory for the documents that a query has found");
        if (w->code == 0 && v->n > 0) {
            memcpy(s->ids, v->ids, v->n * sizeof *s->ids);
            memcpy(values, v->distances, v->n * sizeof *values);
        }
        s->n = w->code == 0 ? v->n : 0;
        s->by_distance = true;
        s->yields[s->n_yields++] = (struct document_yield){w->knn->distance_as, values};
    }
    if (!w->starting)
        take_nearest(w);
}

/* Under the index's lock. An error, or the search has begun. */
static int start_vectors(struct document_work *w, const struct query_node *node, const roaring_bitmap_t *allowed,
                         void (*done)(struct vectors_search *v))
{
    struct document_search *s = w->search;
    struct vectors *vectors = s->index->vectors[node->field->index];
    roaring_bitmap_t *living = NULL;
    if (!vectors)
        return error_set(&s->error, QUIRE_EINVALID, "field `%s` holds no vectors that can be searched",
                         node->field->name);
    if (!allowed && s->index->n_held > 0) {
        const struct query_node all = {.kind = QUERY_ALL};
        struct fields_request request = request_of(w, &all);
        int rc = fields_eval(s->index->fields, &request, &living, &s->error);
        if (rc < 0)
            return rc;
        allowed = living;
    }
    w->vectors = (struct vectors_search){.vectors = vectors,
                                         .query = node->vector,
                                         .allowed = allowed,
                                         .k = node->kind == QUERY_KNN ? node->k : QUIRE_K_MAX,
                                         .is_range = node->kind == QUERY_RANGE,
                                         .radius = node->radius,
                                         .ef = node->ef,
                                         .priority = s->priority,
                                         .deadline_us = s->deadline_us,
                                         .done = done,
                                         .owner = w};
    int rc = vectors_search_start(s->searcher, &w->vectors, &s->error);
    if (living)
        roaring_bitmap_free(living);
    return rc;
}

/* ---- the tree is decided ----------------------------------------------------------------------------------------- */

static bool leaves_all(const struct document_work *w, const struct query_node *node)
{
    return node->kind == QUERY_ALL && w->search->n_also == 0 && !w->search->only;
}

/* What the tree and all else leave: w->found, NULL for all documents. Under the index's lock. */
static int eval(struct document_work *w, const struct query_node *node)
{
    struct document_search *s = w->search;
    int rc = 0;
    if (w->knn && leaves_all(w, node))
        return 0;
    struct fields_request request = request_of(w, node);
    rc = fields_eval(s->index->fields, &request, &w->found, &s->error);
    for (uint32_t i = 0; i < s->n_also && rc == 0; i++) {
        roaring_bitmap_t *more = NULL;
        request.root = s->also[i];
        rc = fields_eval(s->index->fields, &request, &more, &s->error);
        if (rc == 0) {
            roaring_bitmap_and_inplace(w->found, more);
            roaring_bitmap_free(more);
        }
    }
    if (rc == 0 && s->only)
        roaring_bitmap_and_inplace(w->found, s->only);
    return rc;
}

/* Ranges forget the documents that were written since they were searched; 1: these are in w->changed, to be looked at
 * again; 0: there are none. Under the index's lock. */
static int find_changed(struct document_work *w)
{
    struct document_search *s = w->search;
    const struct query_node all = {.kind = QUERY_ALL};
    struct fields_request request = request_of(w, &all);
    roaring_bitmap_t *living;
    uint32_t next_id = s->index->next_id;
    assert(next_id >= w->next_id);
    if (w->n_ranges == 0 || next_id == w->next_id || ++w->n_rounds == ROUNDS_MAX)
        return 0;
    int rc = fields_eval(s->index->fields, &request, &living, &s->error);
    if (rc < 0)
        return rc;
    roaring_bitmap_remove_range(living, 0, w->next_id);
    if (w->changed)
        roaring_bitmap_free(w->changed);
    w->changed = living;
    for (uint32_t i = 0; i < w->n_ranges; i++) {
        struct range *range = &w->ranges[i];
        roaring_bitmap_remove_range(range->ids, w->next_id, (uint64_t)UINT32_MAX + 1);
        while (range->near && range->n > 0 && range->near[range->n - 1].id >= w->next_id)
            range->n--;
    }
    w->next_id = next_id;
    return !roaring_bitmap_is_empty(living);
}

/* The ranges from n_searched on, under the index's lock. 1: the disk is asked, and on_range goes on; 0: all have
 * answered. */
static int start_ranges(struct document_work *w)
{
    int rc = 0;
    w->starting = true;
    while (rc == 0 && w->n_searched < w->n_ranges) {
        w->answered = false;
        rc = start_vectors(w, w->ranges[w->n_searched].node, w->changed, on_range);
        if (rc == 0)
            rc = w->answered ? w->code : 1;
    }
    w->starting = false;
    return rc;
}

/* Under the index's lock. KNN 0 asks for none, and finds none. */
static int start_nearest(struct document_work *w)
{
    if (w->knn->k > 0)
        return start_vectors(w, w->knn, w->found, on_nearest);
    w->vectors = (struct vectors_search){.owner = w};
    on_nearest(&w->vectors);
    return 0;
}

/* The tree, and the start of KNN, under one lock: a document that changes in between would have another number. */
static void decide(struct document_work *w)
{
    struct document_search *s = w->search;
    const struct query_node *root = query_root(s->query);
    pthread_rwlock_rdlock(&s->index->lock);
    int rc = find_changed(w);
    if (rc == 1) {
        w->n_searched = 0;
        rc = start_ranges(w); /* what was written just now is in memory, as a rule */
    }
    if (rc == 1) {
        pthread_rwlock_unlock(&s->index->lock);
        return;
    }
    w->starting = true;
    w->answered = false;
    if (rc == 0)
        rc = eval(w, w->knn ? root->children[0] : root);
    if (rc == 0 && w->knn)
        rc = start_nearest(w);
    pthread_rwlock_unlock(&s->index->lock);
    w->starting = false;
    if (rc < 0) {
        end(w, rc);
        return;
    }
    if (w->knn) {
        if (w->answered)
            take_nearest(w);
        return;
    }
    s->n = roaring_bitmap_get_cardinality(w->found);
    s->ids = malloc((s->n + 1) * sizeof *s->ids);
    if (!s->ids) {
        no_memory(w);
        return;
    }
    roaring_bitmap_to_uint32_array(w->found, s->ids);
    finish(w);
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

/* Adds what a search has found. */
static bool add_to_range(struct range *range, const struct vectors_search *v)
{
    if (!range->ids)
        range->ids = roaring_bitmap_create();
    if (!range->ids)
        return false;
    roaring_bitmap_add_many(range->ids, v->n, v->ids);
    if (range->node->distance_as.bytes == 0)
        return true;
    struct near *near = realloc(range->near, ((size_t)range->n + v->n + 1) * sizeof *near);
    if (!near)
        return false;
    range->near = near;
    for (uint32_t i = 0; i < v->n; i++)
        near[range->n++] = (struct near){v->ids[i], v->distances[i]};
    qsort(near, range->n, sizeof *near, compare_places);
    return true;
}

/* Perhaps inside the start, under the index's lock. */
static void on_range(struct vectors_search *v)
{
    struct document_work *w = v->owner;
    add_stats(w->search, &v->stats);
    w->code = v->code;
    w->answered = true;
    if (v->code < 0)
        w->search->error = v->error;
    else if (!add_to_range(&w->ranges[w->n_searched], v))
        w->code = error_set(&w->search->error, QUIRE_ENOMEM, "no memory for the documents that a query has found");
    else
        w->n_searched++;
    if (!w->starting)
        search_ranges(w);
}

/* One after the other; then the tree. */
static void search_ranges(struct document_work *w)
{
    int rc = w->code;
    if (rc == 0)
        rc = document_search_in_time(w->search->deadline_us, &w->search->error);
    if (rc == 0) {
        pthread_rwlock_rdlock(&w->search->index->lock);
        if (!w->changed && w->n_searched == 0)
            w->next_id = w->search->index->next_id;
        rc = start_ranges(w);
        pthread_rwlock_unlock(&w->search->index->lock);
    }
    if (rc < 0)
        end(w, rc);
    else if (rc == 0)
        decide(w);
}

void document_search_start(struct document_search *s)
{
    const struct query_node *ranges[DOCUMENT_RANGES_MAX], *root = query_root(s->query);
    struct document_work *w = calloc(1, sizeof *w);
    s->work = w;
    if (!w) {
        s->code = error_set(&s->error, QUIRE_ENOMEM, "no memory for a query");
        s->done(s);
        return;
    }
    w->search = s;
    w->knn = root->kind == QUERY_KNN ? root : NULL;
    w->n_ranges = collect(root, ranges, 0);
    assert(w->n_ranges <= DOCUMENT_RANGES_MAX); /* document_search_yields was asked */
    for (uint32_t i = 0; i < w->n_ranges; i++)
        w->ranges[i].node = ranges[i];
    document_index_used(s->index);
    search_ranges(w);
}
