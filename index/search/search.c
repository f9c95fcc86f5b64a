/*
 * search.c - nearest neighbours: seed from block centres, read the blocks that are worth most, follow their edges.
 *
 *   seed   The `effort` nearest blocks by their centres; their rows become candidates: (row, estimate, sigma)
 *          (search_seed.c).
 *   round  The gain of a block is how many of the k nearest one expects to gain by reading it, or, where estimates will
 *          do for an answer, how much doubt reading it ends on which rows those are (search_candidates.c). The blocks
 *          of largest gain are read in one submission, at most BEAM_MAX; each block's slots are scored exactly as soon
 *          as it comes; the edges of those that are near and lead to blocks not yet seen are scored by code and join
 *          the candidates.
 *   stop   when no block's gain reaches theta, which falls as effort rises: theta = theta_effort / effort. A block
 *          cannot gain more rows than it has slots, so below FEW_SLOTS theta is less in proportion. Rows among the k
 *          nearest that are known by their codes only are then read as well, unless estimates will do.
 *
 * So one knob, effort, widens the seed and lowers the stop; calibration (calibrate.c) maps recall to it. Probability
 * instead of a fixed beam lets an easy query end after few reads and a hard one go on, and prefers a block with several
 * fair candidates to one with a single good one.
 *
 * Rows scored through edges are remembered in a small lossy filter (a row forgotten is scored twice and counts twice
 * for its block).
 *
 * Where the segment has inverted lists, search_lists.c seeds and there are no edges to follow: all blocks that are
 * worth it are read in one round.
 *
 * Where rows are asked for up to a limit only (a threshold), those that are certainly beyond it are not read, and lists
 * that cannot hold a nearer one are not scanned: most such searches find nothing near and read nothing. As in searches
 * for estimates, what is not read leads nowhere by its edges, so they take as many seeds.
 *
 * Exact search reads every block in order and answers with slot precision.
 */
#include "index/search/task.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FEW_SLOTS             16u
#define EFFORT_MIN            4u
#define EARLY_PART            5u /* of the seeds go before the first round */
#define EARLY_MIN             8u
#define FLUSH_TASKS           2u /* with more on a lane the device has enough to do */
#define THETA_LISTS           0.5f
#define THETA_LISTS_ESTIMATES 6.0f

/* Theta times effort, by the width of the codes. Seeds of narrow codes cost fewer bytes of memory each, so that more of
 * them and fewer reads are the better bargain. */
static const float theta_effort[NAV_WIDTHS] = {110, 80, 60, 60};
/* Of searches for estimates: reading less and looking at more seeds is the better bargain. */
#define THETA_ESTIMATES 1.5f
/* Of searches with a limit, for which the limit decides: there is little doubt, so that little is read. */
#define THETA_WITHIN 0.05f

static int on_block(struct task *t, const struct block_view *view);
static enum step on_blocks(struct task *t);

enum step search_read_blocks(struct task *t, const uint32_t *blocks, uint32_t n)
{
    t->search.stats.rounds++;
    for (uint32_t i = 0; i < n; i++)
        bitmap_add(t->search.read, blocks[i]);
    return task_read_blocks(t, blocks, n, on_block, on_blocks);
}

uint32_t search_blocks_seen(const struct task *t)
{
    return t->cost.reads + t->cost.cached;
}

uint32_t search_reads_left(const struct task *t, uint32_t most)
{
    uint32_t limit = t->search.request->options.reads_max, seen = search_blocks_seen(t);
    uint32_t left = limit > seen ? limit - seen : 0;
    return limit && left < most ? left : most;
}

void search_widen(struct search *q)
{
    assert(q->effort < q->effort_end);
    q->effort = q->effort < q->effort_end / 2 ? 2 * q->effort : q->effort_end;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* The blocks whose gain reaches theta, best first, or where there are none those that the answer needs, at most `most`;
 * returns how many. */
static uint32_t choose_blocks(struct task *t, uint32_t most, uint32_t *blocks)
{
    const struct search *q = &t->search;
    float gains[READS_MAX], theta = q->within < q->tau ? fminf(q->theta, THETA_WITHIN) : q->theta;
    uint32_t n = search_best_blocks(t, most, theta, blocks, gains);
    return n > 0 ? n : search_unread_answers(t, most, blocks);
}

static enum step next_round(struct task *t)
{
    struct search *q = &t->search;
    uint32_t blocks[BEAM_MAX], n = 0, most = search_reads_left(t, BEAM_MAX);
    for (;;) {
        search_compute_gains(t);
        n = choose_blocks(t, most ? most : 1, blocks);
        if (n == 0 && !search_has_answer(q))
            n = search_nearest_unread(t, blocks);
        if (n > 0 || most == 0 || search_has_answer(q) || q->effort >= q->effort_end)
            break;
        /* all that is known was read and gave fewer than k */
        search_widen(q);
        if (search_look_farther(t) < 0)
            return task_no_memory(t);
    }
    if (most == 0)
        q->stats.complete = n == 0 && search_has_answer(q);
    return n > 0 && most > 0 ? search_read_blocks(t, blocks, n) : search_deliver(t);
}

/* One round by gain, and another only where the first could not take all blocks that were worth it; then what the
 * answer needs. With a selection as many as it takes. */
enum step search_rerank(struct task *t)
{
    struct search *q = &t->search;
    if (q->filter.selection)
        return search_filtered_round(t);
    uint32_t blocks[READS_MAX], most = search_reads_left(t, task_blocks_max(t, q->filter.scanning));
    bool more = q->lists.reranks == 0 || !search_has_answer(q) || q->lists.rerank_full;
    search_compute_gains(t);
    uint32_t n = more ? choose_blocks(t, most ? most : 1, blocks) : search_unread_answers(t, most ? most : 1, blocks);
    bool farther = !search_has_answer(q) && q->effort < q->effort_end;
    if (most == 0) {
        q->stats.complete = q->stats.complete && n == 0 && !farther;
        return search_deliver(t);
    }
    if (n > 0) {
        q->lists.reranks++;
        q->lists.rerank_full = n == most;
        return search_read_blocks(t, blocks, n);
    }
    if (!farther)
        return search_deliver(t);
    /* all that is known was read and gave fewer than k */
    search_widen(q);
    return search_lists(t);
}

static enum step next_exact_round(struct task *t)
{
    struct search *q = &t->search;
    uint32_t blocks[BEAM_MAX], n = 0, most = search_reads_left(t, BEAM_MAX);
    while (n < most && q->next_block < t->segment->params.n_blocks)
        blocks[n++] = q->next_block++;
    if (n > 0)
        return search_read_blocks(t, blocks, n);
    q->stats.exact = q->stats.complete = q->next_block == t->segment->params.n_blocks;
    return search_deliver(t);
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */

int search_reserve_edges(struct task *t, uint32_t n)
{
    struct search_scratch *f = &t->searcher->found;
    return array_reserve(&f->edges, &f->edges_capacity, n) ? 0 : QUIRE_ENOMEM;
}

/* Scores the edges of one list that lead where the query has not been. */
static int follow_list(struct task *t, const struct block_view *view, uint32_t list, uint32_t *n, float *limit)
{
    struct scratch *s = &t->searcher->scratch;
    struct search *q = &t->search;
    const struct segment_params *p = &t->segment->params;
    const struct cells *cells = t->segment->cells;
    const uint32_t *rows = t->searcher->found.edges;
    uint32_t block_end = 0, first;
    bool skip = false;
    int edges = block_edges(view, list, t->searcher->found.edges, &first);
    for (int i = 0; i < edges; i++) {
        uint32_t row = rows[i];
        if (row >= block_end) {
            if (row >= p->rows)
                return QUIRE_ECORRUPT;
            uint32_t block = row / p->slots_per_block;
            block_end = (block + 1) * p->slots_per_block;
            skip = (!cells && bitmap_has(q->probed, block)) || bitmap_has(q->read, block);
        }
        uint32_t *recent = &q->recent[row * 2654435761u >> 22 & (RECENT_ROWS - 1)];
        if (skip || *recent == row || (cells && bitmap_has(q->probed, cells->of[row])))
            continue;
        *recent = row;
        s->picks[*n] = first + (uint32_t)i;
        s->ids[(*n)++] = row;
        if (*n == STEP_ROWS) {
            score_edges(t, view, *n);
            search_add_candidates(t, *n, limit);
            *n = 0;
        }
    }
    return edges < 0 ? edges : 0;
}

/* The squared distance up to which a slot's edges are worth following: that of the k-th nearest and more where codes
 * are coarse and the seeds have missed more, or that of the nearest slot while there are fewer than k. */
static float reach_of(const struct task *t, float tau, const float *distances, uint32_t n)
{
    if (!t->segment->nav_codes)
        return INFINITY; /* edges are all there is to go by */
    if (isfinite(tau))
        return tau * (1 + t->segment->params.error[t->segment->width] / 2);
    float nearest = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        nearest = fminf(nearest, distances[i]);
    return nearest;
}

/* Follows the edge lists of the slots that turned out near. */
static int follow_edges(struct task *t, const struct block_view *view)
{
    struct search *q = &t->search;
    const float *distances = t->searcher->scratch.slot_distances;
    float tau = q->n_results == q->k ? fminf(q->tau, q->results[0].distance) : q->tau;
    /* an estimate may exceed tau by its error; sigma is about the same for all rows near the query */
    float limit = tau + Z_DROP * (q->n_candidates ? q->candidates[0].sigma : 0);
    float reach = reach_of(t, tau, distances, view->n_slots);
    uint32_t n = 0;
    int rc = search_reserve_edges(t, view->n_edges);
    q->repeats = true;
    for (uint32_t l = 0; l < view->n_lists && rc == 0; l++) {
        uint32_t i = l * view->list_slots, end = i + view->list_slots;
        while (i < end && i < view->n_slots && distances[i] > reach)
            i++;
        if (i < end && i < view->n_slots)
            rc = follow_list(t, view, l, &n, &limit);
    }
    if (rc == 0 && n > 0) {
        score_edges(t, view, n);
        search_add_candidates(t, n, &limit);
    }
    return rc;
}

static int on_block(struct task *t, const struct block_view *view)
{
    int rc = search_score_block(t, view);
    if (rc == 0 && !t->search.request->options.exact && !t->search.filter.scanning && view->n_lists > 0)
        rc = follow_edges(t, view);
    if (rc == QUIRE_ECORRUPT)
        task_fail(t, rc, "a block of %s is damaged: its keys or edges do not decode",
                  section_file_io(t->segment->blocks)->path);
    return rc;
}

static enum step on_blocks(struct task *t)
{
    if (t->code < 0)
        return STEP_DONE;
    if (t->search.filter.selection)
        return search_filtered_round(t);
    if (t->search.request->options.exact)
        return next_exact_round(t);
    return t->segment->lists ? search_rerank(t) : next_round(t);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

/* Seeds and first round. The nearest part of the seeds knows the first blocks to read almost as well as all of them:
 * those are asked for first, and the rest is scored while they come. */
enum step search_walk(struct task *t)
{
    struct searcher *s = t->searcher;
    const struct selection *selection = t->search.filter.selection;
    int n = search_find_blocks(t);
    if (n > 0 && selection) {
        enum seeds seeds = search_evaluate_seeds(t, search_selected_seeds(t, (uint32_t)n));
        if (seeds == SEEDS_SCAN)
            return search_filtered_scan(t);
        n = seeds == SEEDS_AGAIN ? search_find_blocks(t) : n;
    }
    if (n > 0 && !t->segment->nav_codes && search_seed_blocks(t, (uint32_t)n) < 0)
        n = QUIRE_ENOMEM;
    if (n < 0)
        return task_no_memory(t);
    if (!t->segment->nav_codes)
        return selection ? search_filtered_round(t) : next_round(t);
    uint32_t all = (uint32_t)n, early = all / EARLY_PART + EARLY_MIN;
    /* with a selection it must be known first whether enough of it is near; and doubt is known last */
    early = early < all && !selection && !t->search.estimates && !search_is_limited(&t->search) ? early : all;
    search_select_best(s->found.nearest, all, early);
    float limit = search_seed_rows(t, 0, early, INFINITY);
    if (selection)
        return search_filtered_round(t);
    enum step step = next_round(t);
    if (step == STEP_DONE || early == all)
        return step;
    if (s->n_running <= FLUSH_TASKS)
        engine_flush(s->engine);
    search_seed_rows(t, early, all, limit);
    return step;
}

uint32_t search_effort(const struct task *t, uint32_t k)
{
    const struct quire_search_options *o = &t->search.request->options;
    uint32_t least = t->segment->lists ? 1 : EFFORT_MIN;
    if (o->recall > 0 || o->effort == 0) {
        bool few_reads = t->search.estimates || (search_is_limited(&t->search) && !t->segment->lists);
        uint32_t effort = segment_effort(t->segment, o->recall > 0 ? o->recall : DEFAULT_RECALL, k, few_reads);
        least = effort > least ? effort : least;
    }
    return o->effort > least ? o->effort : least;
}

void search_set_theta(struct task *t)
{
    struct search *q = &t->search;
    uint32_t slots = t->segment->params.slots_per_block;
    assert(q->effort > 0);
    q->stats.effort = q->effort;
    if (t->segment->lists) {
        q->theta = q->estimates ? fminf(THETA_LISTS_ESTIMATES / (float)q->effort, 0.5f)
                                : fminf(fmaxf(THETA_LISTS / (float)q->effort, 0.0005f), 0.05f);
        return;
    }
    q->theta = fminf(fmaxf(theta_effort[t->segment->width] / (float)q->effort, 0.001f), 4.0f);
    if (q->estimates)
        q->theta *= THETA_ESTIMATES;
    if (slots < FEW_SLOTS)
        q->theta *= (float)slots / FEW_SLOTS;
}

static struct search_request *request_of(struct task_ticket *ticket)
{
    return (struct search_request *)(void *)((char *)ticket - offsetof(struct search_request, ticket));
}

/* Whether rows can be answered without their blocks, as right as asked for: by their numbers, which are their keys
 * where the user has given none, or by their names. */
static bool can_name(const struct segment *s, const struct search_request *request)
{
    if (s->n_calibration > 0 && s->n_estimates == 0)
        return false; /* nobody knows what effort they need */
    if (request->want_keys && s->params.user_keys)
        return s->names != NULL;
    return s->numbers != NULL || request->by_row;
}

/* Bitmaps, the filter of rows, and space for what is found. */
static int reserve(struct task *t)
{
    const struct segment_params *p = &t->segment->params;
    struct search *q = &t->search;
    size_t bytes = ((p->n_blocks > p->n_lists ? p->n_blocks : p->n_lists) + (size_t)7) / 8;
    if (!q->recent)
        q->recent = malloc(sizeof *q->recent * RECENT_ROWS);
    if (!q->recent || task_reserve(t) < 0 || !array_reserve(&q->probed, &q->bitmaps_capacity, 2 * bytes) ||
        search_reserve_results(t) < 0 || search_reserve_candidates(t, 0) < 0)
        return QUIRE_ENOMEM;
    assert(q->k <= q->results_capacity && 2 * q->candidates_max <= q->candidates_capacity);
    q->read = q->probed + bytes;
    memset(q->probed, 0, 2 * bytes);
    memset(q->recent, 0xff, sizeof *q->recent * RECENT_ROWS);
    return 0;
}

static enum step begin(struct task *t, struct task_ticket *ticket)
{
    struct search_request *request = request_of(ticket);
    const struct quire_search_options *o = &request->options;
    const struct segment_params *p = &t->segment->params;
    struct search *q = &t->search;
    q->request = request;
    q->n_results = q->n_candidates = q->n_priors = q->next_block = q->next_key = 0;
    q->k = o->k < p->rows ? o->k : (uint32_t)p->rows;
    q->dead = request->dead ? request->dead : t->segment->dead;
    bool is_filtered = request->selection && request->selection->n != p->rows;
    q->filter = (struct search_filter){.selection = is_filtered ? request->selection : NULL};
    q->lists.limit = INFINITY;
    q->lists.reranks = 0;
    q->lists.rerank_full = false;
    q->tau = q->within = INFINITY;
    q->repeats = false;
    q->estimates =
        o->distance == QUIRE_DISTANCE_ESTIMATE && can_name(t->segment, request) && !request->want_vectors && !o->exact;
    q->stats = (struct quire_search_stats){.complete = true};
    if (reserve(t) < 0)
        return task_fail(t, QUIRE_ENOMEM, "no memory for a search with k %u", o->k);
    score_set_query(t, request->query);
    if (o->limited && !is_filtered && !o->exact)
        q->within = space_work_distance(&t->segment->space, o->farthest, t->query.norm2);
    if (q->filter.selection)
        return search_filtered_begin(t);
    q->stats.matches = p->rows;
    if (o->exact) {
        q->stats.plan = QUIRE_PLAN_EXACT;
        return next_exact_round(t);
    }
    q->effort = search_effort(t, q->k);
    q->effort_end = t->segment->lists ? t->segment->lists->n : p->n_blocks;
    search_set_theta(t);
    return t->segment->lists ? search_lists(t) : search_walk(t);
}

static void cancel(struct task_ticket *ticket)
{
    struct search_request *request = request_of(ticket);
    request->code = error_set(&request->error, QUIRE_ECANCELLED, "the search was cancelled before it began");
    request->hits = NULL;
    request->n_hits = 0;
    memset(&request->stats, 0, sizeof request->stats);
    free(request->kept_query);
    request->done(request);
}

int search_options_validate(const struct quire_search_options *o, struct quire_error *err)
{
    if (o->k == 0 || o->k > QUIRE_K_MAX)
        return error_set(err, QUIRE_ERANGE, "k is %u: it must be 1..%u", o->k, QUIRE_K_MAX);
    if (!(o->recall >= 0 && o->recall <= 1))
        return error_set(err, QUIRE_ERANGE, "recall is %g: it must be above 0 and at most 1", (double)o->recall);
    if (o->limited && isnan(o->farthest))
        return error_set(err, QUIRE_EINVALID, "the farthest distance is not a number");
    if (o->distance != QUIRE_DISTANCE_EXACT && o->distance != QUIRE_DISTANCE_ESTIMATE)
        return error_set(err, QUIRE_EINVALID, "distance is %d: it must be QUIRE_DISTANCE_EXACT or _ESTIMATE",
                         (int)o->distance);
    return 0;
}

static int check(const struct search_request *request, struct quire_error *err)
{
    int rc = search_options_validate(&request->options, err);
    if (rc < 0)
        return rc;
    rc = space_check(&request->segment->space, request->query);
    if (rc == QUIRE_ENOTFINITE)
        return error_set(err, rc, "the query holds NaN, infinity or values too large to square");
    return 0;
}

int search_start(struct searcher *s, struct search_request *request, struct quire_error *err)
{
    static const struct task_kind kind = {LINE_SEARCHES, begin, search_end, cancel};
    int rc = check(request, err);
    if (rc == 0)
        rc = searcher_attach(s, request->segment, err);
    if (rc < 0)
        return rc;
    request->kept_query = NULL;
    if (task_must_wait(s, &kind)) {
        /* the caller's query is promised to be needed during this call only */
        size_t bytes = sizeof(float) * request->segment->params.dim;
        request->kept_query = malloc(bytes);
        if (!request->kept_query)
            return error_set(err, QUIRE_ENOMEM, "no memory to keep a waiting query of %zu bytes", bytes);
        memcpy(request->kept_query, request->query, bytes);
        request->query = request->kept_query;
    }
    request->started_ns = clock_ns();
    request->ticket = (struct task_ticket){.kind = &kind, .segment = request->segment, .priority = request->priority};
    task_start(s, &request->ticket);
    return 0;
}
