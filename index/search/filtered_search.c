/*
 * filtered_search.c - searches whose selection is a superset: hits are rechecked by their attributes.
 *
 *   1. the nearest `asked` rows of the selection, somewhat more than k
 *   2. their attributes, nearest first, some at a time, until k have matched. A row is looked at once, whatever round
 *      it comes back in.
 *   3. fewer than k: as many are asked for as the share of matches so far promises, at most RAISE_MAX times as many
 *   4. the search has no more rows to give: done. It gives QUIRE_K_MAX at most; where those are not enough, every row
 *      of the selection is looked at in the order of rows, and the search is asked once more, for those that match.
 *
 * Fetches go to the lane's engine together, FETCHES at a time. Each ends before the work does: nothing of it is freed
 * while the searcher knows of it. A fetch's callback may come inside fetch_start, so the places are filled by a loop
 * that callbacks do not enter again (filling).
 */
#include "index/search/filtered_search.h"
#include "index/attribute/filter.h"
#include "index/attribute/grants.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/hash.h"
#include "io/random.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FETCHES     16u
#define ASKED_LEAST 16u /* more than twice k, for few neighbours */
#define RAISE_MIN   2u
#define RAISE_MAX   16u

struct row_fetch {
    struct fetch_request request;
    struct filtered_search *search;
    bool busy;
    uint32_t rounds; /* of all that it fetched since hits were asked for */
};

/* A row that was looked at. */
struct looked {
    uint32_t row;
    bool is_there, matches;
};

static inline bool looked_is_set(const struct looked *l)
{
    return l->is_there;
}

static inline uint64_t looked_hash(const struct looked *l)
{
    return random_mix(l->row);
}

static inline bool looked_is_same(const struct looked *a, const struct looked *b)
{
    return a->row == b->row;
}
HASH_DEFINE(looked_rows, struct looked, looked_is_set, looked_hash, looked_is_same)

struct filtered_work {
    uint32_t asked;
    struct search_hit *hits; /* of the last round; those that match at the end */
    uint32_t n_hits, next;   /* next: to be looked at */
    struct looked_rows looked;
    uint64_t n_tested, n_matched; /* n_matched: in this round */
    bool exhausted;               /* the search has no more rows */
    bool all_rows;                /* step 4: rows are looked at, not hits */
    uint64_t next_row;
    bool stopped;   /* by filter_effort */
    bool want_keys; /* the filter asks for them */
    struct selection *rechecked;
    struct row_fetch fetches[FETCHES];
    unsigned n_busy;
    bool filling;
    uint64_t started_ns;
};

static void work_free(struct filtered_work *w)
{
    if (!w)
        return;
    free(w->looked.places);
    selection_unref(w->rechecked);
    free(w->hits);
    free(w);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void fail(struct filtered_search *s, int code, const struct quire_error *error)
{
    if (s->code == 0) {
        s->code = code;
        s->error = *error;
    }
}

static void end(struct filtered_search *s)
{
    struct filtered_work *w = s->work;
    assert(w->n_busy == 0 && (s->code < 0 || w->n_hits <= s->options.k));
    s->hits = s->code == 0 ? w->hits : NULL;
    s->n_hits = s->code == 0 ? w->n_hits : 0;
    s->stats.latency_ns = clock_ns() - w->started_ns;
    s->work = NULL;
    s->done(s);
    work_free(w);
}

/* NULL: it was not looked at. */
static struct looked *find_looked(const struct filtered_work *w, uint32_t row)
{
    return looked_rows_find(&w->looked, &(struct looked){.row = row});
}

static bool is_match(const struct filtered_work *w, uint32_t row)
{
    const struct looked *l = find_looked(w, row);
    return l && l->matches;
}

/* The nearest k of those that match, in place. */
static void keep_matches(struct filtered_search *s)
{
    struct filtered_work *w = s->work;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_hits && n < s->options.k; i++)
        if (is_match(w, w->hits[i].row))
            w->hits[n++] = w->hits[i];
    w->n_hits = n;
    if (w->stopped && n < s->options.k)
        s->stats.complete = s->stats.exact = false;
}

static void add_stats(struct quire_search_stats *to, const struct quire_search_stats *from)
{
    struct quire_search_stats before = *to;
    *to = *from;
    to->switched |= before.switched;
    to->reads += before.reads;
    to->cached += before.cached;
    to->bytes += before.bytes;
    to->rounds += before.rounds;
    to->rows_scored += before.rows_scored;
    to->codes_scored += before.codes_scored;
    to->cpu_ns += before.cpu_ns;
    if (before.reads_expected > 0)
        to->reads_expected = before.reads_expected;
}

/* ---- looking at attributes --------------------------------------------------------------------------------------- */

static void advance(struct filtered_search *s);

static void on_attributes(struct fetch_request *fetch)
{
    struct row_fetch *place = fetch->owner;
    struct filtered_search *s = place->search;
    struct filtered_work *w = s->work;
    struct quire_error err = {0};
    const char *json = NULL;
    uint32_t bytes = 0, n_grants = 0;
    assert(place->busy && w->n_busy > 0 && find_looked(w, fetch->row));
    place->busy = false;
    w->n_busy--;
    s->stats.reads += fetch->reads;
    s->stats.bytes += fetch->bytes;
    place->rounds += fetch->rounds;
    int code = fetch->code < 0 ? 0
                               : grants_split(fetch->attributes, fetch->attributes ? fetch->attributes_bytes : 0, &json,
                                              &bytes, &n_grants);
    if (fetch->code < 0) {
        fail(s, fetch->code, &fetch->error);
    } else if (code < 0) {
        error_set(&err, code, "the attributes of row %u of %s do not begin as they should", fetch->row,
                  segment_info(s->segment)->path);
        fail(s, code, &err);
    } else if (filter_matches(s->filter, json, bytes, fetch->found_key, fetch->found_key_bytes)) {
        find_looked(w, fetch->row)->matches = true;
        w->n_matched++;
    }
    if (!w->filling)
        advance(s);
}

/* False without memory. */
static bool note_looked(struct filtered_search *s, uint32_t row)
{
    struct quire_error err = {0};
    if (looked_rows_add(&s->work->looked, (struct looked){.row = row, .is_there = true}))
        return true;
    fail(s,
         error_set(&err, QUIRE_ENOMEM, "no memory for the %llu rows that were looked at",
                   (unsigned long long)s->work->looked.n),
         &err);
    return false;
}

/* The next row to look at; false: none for now. Rows that were looked at in an earlier round are counted here. */
static bool next_row(struct filtered_search *s, uint32_t *row)
{
    struct filtered_work *w = s->work;
    uint64_t rows = segment_info(s->segment)->rows;
    while (w->all_rows && w->next_row < rows) {
        *row = (uint32_t)w->next_row++;
        if ((!s->selection || selection_has(s->selection, *row)) && !find_looked(w, *row))
            return note_looked(s, *row);
    }
    while (!w->all_rows && w->next < w->n_hits && w->n_matched < s->options.k) {
        *row = w->hits[w->next++].row;
        if (!find_looked(w, *row))
            return note_looked(s, *row);
        w->n_matched += is_match(w, *row);
    }
    return false;
}

static void fetch_row(struct filtered_search *s, struct row_fetch *place, uint32_t row)
{
    struct filtered_work *w = s->work;
    struct quire_error err = {0};
    assert(!place->busy && w->n_busy < FETCHES);
    place->search = s;
    place->busy = true;
    w->n_busy++;
    w->n_tested++;
    place->request = (struct fetch_request){.segment = s->segment,
                                            .row = row,
                                            .want_key = w->want_keys,
                                            .want_attributes = true,
                                            .done = on_attributes,
                                            .owner = place};
    int rc = fetch_start(s->searcher, &place->request, &err);
    if (rc < 0) {
        place->busy = false;
        w->n_busy--;
        fail(s, rc, &err);
    }
}

static void fill_places(struct filtered_search *s)
{
    struct filtered_work *w = s->work;
    uint32_t row;
    assert(!w->filling);
    w->filling = true;
    for (unsigned i = 0; i < FETCHES; i++)
        while (!w->fetches[i].busy && s->code == 0 && !w->stopped) {
            w->stopped = s->options.filter_effort && w->n_tested >= s->options.filter_effort;
            if (w->stopped || !next_row(s, &row))
                break;
            fetch_row(s, &w->fetches[i], row);
        }
    w->filling = false;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static uint64_t selected_rows(const struct filtered_search *s)
{
    return s->selection ? s->selection->n : segment_info(s->segment)->rows;
}

static uint32_t bounded(const struct filtered_search *s, uint64_t wanted)
{
    uint64_t rows = selected_rows(s), bound = s->asked_max ? s->asked_max : QUIRE_K_MAX;
    uint64_t most = rows < bound ? rows : bound;
    return (uint32_t)(wanted < most ? wanted : most > 0 ? most : 1);
}

static int start_search(struct filtered_search *s, uint32_t k, const struct selection *selection,
                        void (*done)(struct search_request *request), struct quire_error *err)
{
    s->request = (struct search_request){.segment = s->segment,
                                         .query = s->query,
                                         .options = s->options,
                                         .selection = selection,
                                         .done = done,
                                         .owner = s};
    s->request.options.k = k;
    return search_start(s->searcher, &s->request, err);
}

static void on_hits(struct search_request *request);

static void ask(struct filtered_search *s)
{
    struct filtered_work *w = s->work;
    struct quire_error err = {0};
    int rc = start_search(s, w->asked, w->rechecked ? w->rechecked : s->selection, on_hits, &err);
    if (rc < 0) {
        fail(s, rc, &err);
        end(s);
    }
}

/* Every row has been looked at: the search is asked for those that match. */
static void ask_for_rechecked(struct filtered_search *s)
{
    struct filtered_work *w = s->work;
    uint32_t *rows = malloc(w->looked.n * sizeof *rows + 1);
    uint64_t n = 0;
    for (uint64_t i = 0; rows && i < w->looked.capacity; i++)
        if (w->looked.places[i].is_there && w->looked.places[i].matches)
            rows[n++] = w->looked.places[i].row;
    if (n > 0)
        array_sort_u32(rows, n);
    int rc = rows ? selection_create_rows(s->segment, rows, n, false, &w->rechecked) : QUIRE_ENOMEM;
    free(rows);
    if (rc < 0) {
        struct quire_error err = {0};
        error_set(&err, rc, "no memory for the rows that match, of %llu", (unsigned long long)w->looked.n);
        fail(s, rc, &err);
        end(s);
        return;
    }
    w->asked = s->options.k;
    ask(s);
}

static void finish_round(struct filtered_search *s)
{
    struct filtered_work *w = s->work;
    uint32_t rounds = 0;
    for (unsigned i = 0; i < FETCHES; i++) {
        rounds = w->fetches[i].rounds > rounds ? w->fetches[i].rounds : rounds;
        w->fetches[i].rounds = 0;
    }
    s->stats.rounds += rounds;
    if (s->code < 0 || w->stopped || (!w->all_rows && (w->n_matched >= s->options.k || w->exhausted))) {
        if (s->code == 0)
            keep_matches(s);
        end(s);
    } else if (w->all_rows) {
        ask_for_rechecked(s);
    } else if (w->asked < bounded(s, UINT64_MAX)) {
        /* as many as should hold k matches, by what was seen */
        uint64_t asked = w->asked, wanted = asked * RAISE_MAX;
        if (w->n_matched > 0) {
            uint64_t promised = (uint64_t)s->options.k * w->n_hits * 3 / 2 / w->n_matched;
            wanted = promised < wanted ? promised : wanted;
        }
        wanted = wanted < asked * RAISE_MIN ? asked * RAISE_MIN : wanted;
        w->asked = bounded(s, wanted);
        assert(w->asked > asked);
        ask(s);
    } else {
        w->all_rows = true;
        advance(s);
    }
}

static void advance(struct filtered_search *s)
{
    fill_places(s);
    if (s->work->n_busy == 0)
        finish_round(s);
}

static void on_hits(struct search_request *request)
{
    struct filtered_search *s = request->owner;
    struct filtered_work *w = s->work;
    struct quire_error err = {0};
    add_stats(&s->stats, &request->stats);
    if (request->code < 0) {
        fail(s, request->code, &request->error);
        end(s);
        return;
    }
    assert(w->n_busy == 0 && request->n_hits <= w->asked);
    struct search_hit *hits = realloc(w->hits, sizeof *hits * ((size_t)request->n_hits + 1));
    if (!hits) {
        fail(s, error_set(&err, QUIRE_ENOMEM, "no memory for %u hits", request->n_hits), &err);
        end(s);
        return;
    }
    w->hits = hits;
    if (request->n_hits > 0)
        memcpy(hits, request->hits, sizeof *hits * request->n_hits);
    w->n_hits = request->n_hits;
    w->next = 0;
    w->n_matched = 0;
    if (w->rechecked) {
        end(s);
        return;
    }
    /* fewer than asked for: the search found no more, or was cut short, which its stats say */
    w->exhausted = request->n_hits < w->asked || w->asked >= selected_rows(s);
    advance(s);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

static void pass_on(struct search_request *request)
{
    struct filtered_search *s = request->owner;
    s->code = request->code;
    s->error = request->error;
    s->hits = request->hits;
    s->n_hits = request->n_hits;
    s->stats = request->stats;
    s->done(s);
}

int filtered_search_start(struct searcher *searcher, struct filtered_search *s, struct quire_error *err)
{
    s->searcher = searcher;
    s->code = 0;
    s->hits = NULL;
    s->n_hits = 0;
    s->stats = (struct quire_search_stats){0};
    s->work = NULL;
    if (!s->filter || !s->selection || !s->selection->residual)
        return start_search(s, s->options.k, s->selection, pass_on, err);
    struct filtered_work *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(err, QUIRE_ENOMEM, "no memory for a search under a filter");
    s->work = w;
    w->started_ns = clock_ns();
    w->want_keys = filter_asks_names(s->filter);
    w->asked = bounded(s, (uint64_t)s->options.k * RAISE_MIN + ASKED_LEAST);
    int rc = start_search(s, w->asked, s->selection, on_hits, err);
    if (rc < 0) {
        s->work = NULL;
        work_free(w);
    }
    return rc;
}
