/*
 * search_lists.c - inverted lists: which are near the query, and what their codes say of the rows in them.
 *
 *   seed   The `effort` lists whose heads are nearest. Of these the ones are left out that cannot hold any of the k
 *          nearest rows: their nearest end, by head and radius, is farther away than k rows of others are for certain
 *          (the triangle inequality, which knows no scale: unit vectors, inner products and raw bytes alike).
 *   lists All lists that are left are asked for in one submission; each is scanned as soon as it comes, whatever the
 *   order:
 *          the candidates are the rows of least estimate among all of them. Where codes are resident there is nothing
 *          to read, and the members of lists are scanned in memory.
 *   rerank Of a row that stands in several lists the estimate with the least error counts. The blocks that hold rows
 *          that may be among the k nearest are read in one more submission (search.c).
 *
 * A task takes a buffer per list and gives it back when that is scanned; where the lane has none left the rest of
 * the lists wait, first come first served. That is no further round: nothing depends on what came before.
 */
#include "index/kernels/kernels.h"
#include "index/search/task.h"
#include "io/array.h"
#include "io/bitmap.h"
#include "io/error.h"
#include "io/heap.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADS_SPARE    8u
#define HEADS_PER_BEAM 64u
#define BOUND_SLACK    1.01f /* distances are rounded */
#define WATCHED        2u    /* lists that a search with a limit looks at, whether they reach it or not */
#define FIRST_PART     8u    /* of the lists are looked at first */
#define GROUPS_STEP    (STEP_ROWS / CODE_GROUP)
#define PREFETCH_MAX   4096u /* bytes of the next list's codes */
/* Rows that codes cannot tell apart are more than the candidates that k asks for, where many lie closer together than
 * a code's steps. So effort squared, in such parts, is added: next to nothing at usual effort, and no ceiling. */
#define EFFORT_PART     16u
#define CANDIDATES_MOST 65536u

/* ---- seed -------------------------------------------------------------------------------------------------------- */

/* The selection by the places of members' codes. */
static const struct selection *placed(const struct task *t)
{
    const struct search *q = &t->search;
    return q->filter.selection->places ? q->filter.selection->places : q->filter.selection;
}

/* Of a selection only those lists matter whose members have some of it. */
static bool has_rows(const struct task *t, uint32_t list)
{
    const struct lists *lists = t->segment->lists;
    return !t->search.filter.selection || !t->search.filter.selected_seeds ||
           search_selects_any(placed(t), lists_first(lists, list), lists_members(lists, list));
}

/* All heads one after the other; the `want` nearest stay, in no order. */
static int scan_heads(struct task *t, struct graph_scratch *scratch, uint32_t want)
{
    struct scratch *s = &t->searcher->scratch;
    struct search_scratch *f = &t->searcher->found;
    const struct lists *lists = t->segment->lists;
    uint32_t have = 0;
    if (search_reserve_nearest(f, lists->n) < 0)
        return QUIRE_ENOMEM;
    for (uint32_t list = 0; list < lists->n;) {
        uint32_t n = 0;
        for (; list < lists->n && n < STEP_ROWS; list++)
            if (has_rows(t, list))
                s->ids[n++] = list;
        graph_score(lists->heads, scratch, s->ids, n, s->estimates);
        for (uint32_t i = 0; i < n; i++)
            f->nearest[have++] = (struct candidate){.row = s->ids[i], .distance = s->estimates[i]};
    }
    want = search_narrow(f, have, want);
    for (uint32_t i = 0; i < want; i++)
        f->heads[i] = (struct graph_hit){f->nearest[i].row, f->nearest[i].distance};
    return (int)want;
}

/* The distances of the n heads without the rounding of the query that they were found by: where rows lie closer
 * together than its steps, far from the mean, that would shift the estimates of a list against those of another. */
static void measure_heads(struct task *t, uint32_t n)
{
    struct search_scratch *f = &t->searcher->found;
    const struct lists *lists = t->segment->lists;
    uint32_t dim = t->segment->params.code_dim;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *code;
        float factor, unused;
        graph_row(lists->heads, f->heads[i].row, &code, &factor, &unused);
        float dot = factor * (kernels()->f32_u8_dot(t->query.rotated, code, dim) - code_half(8) * t->query.rotated_sum);
        f->heads[i].distance = fmaxf(t->query.levels.norm2 + lists->norms2[f->heads[i].row] - 2 * dot, 0);
    }
}

/* The heads nearest to the query into f->heads, at most `want`; returns how many, or QUIRE_ENOMEM. Few
 * heads are looked at one by one: that is cheaper than a walk, which jumps about in memory, and misses none. */
static int nearest_heads(struct task *t, uint32_t want)
{
    struct search_scratch *f = &t->searcher->found;
    struct lists *lists = t->segment->lists;
    struct graph_scratch *scratch = searcher_graph_scratch(t->searcher);
    uint32_t beam = want + want / 2 + HEADS_SPARE;
    bool all = t->search.filter.selection || lists->n <= (uint64_t)beam * HEADS_PER_BEAM;
    if (!scratch || !array_reserve_kept(&f->heads, &f->heads_capacity, want, SCRATCH_KEPT) ||
        graph_query(lists->heads, scratch, t->query.rotated) < 0)
        return QUIRE_ENOMEM;
    unsigned slot = epoch_enter(lists->epochs);
    int n = all ? scan_heads(t, scratch, want)
                : (int)graph_search(lists->heads, &lists->root, scratch, beam, NULL, NULL, f->heads, want);
    if (n > 0)
        measure_heads(t, (uint32_t)n);
    epoch_exit(lists->epochs, slot);
    t->search.stats.codes_scored += all ? lists->n : n > 0 ? (uint32_t)n : 0;
    return n;
}

static inline bool ends_before(const struct far_end *a, const struct far_end *b)
{
    return a->distance < b->distance;
}

HEAP_DEFINE(far_ends, struct far_end, ends_before, HEAP_PLACE_UNKNOWN)

/* A distance within which there are k rows for certain: the lists whose farthest rows are nearest have so many. Rows
 * that are dead count for nothing, and how many of a list are is not known, so then there is no such bound. */
static float bound_of(struct task *t, uint32_t n)
{
    struct search_scratch *f = &t->searcher->found;
    const struct search *q = &t->search;
    const struct lists *lists = t->segment->lists;
    const struct list_entry *entries = lists->entries;
    uint32_t rows = 0;
    if (q->dead || q->filter.selection)
        return INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        float distance = sqrtf(f->heads[i].distance) + entries[f->heads[i].row].radius;
        far_ends_push(f->far_ends, i, (struct far_end){distance, lists_members(lists, f->heads[i].row)});
    }
    for (; n > 0; far_ends_remove(f->far_ends, n--, 0))
        if ((rows += f->far_ends[0].rows) >= q->k)
            return f->far_ends[0].distance * BOUND_SLACK;
    return INFINITY;
}

/* Moves the `want` nearest to the front, in order. */
static void nearest_first(struct graph_hit *heads, uint32_t n, uint32_t want)
{
    for (uint32_t i = 0; i < want; i++)
        for (uint32_t j = i + 1; j < n; j++)
            if (heads[j].distance < heads[i].distance) {
                struct graph_hit swap = heads[i];
                heads[i] = heads[j];
                heads[j] = swap;
            }
}

/* Those of the n nearest lists that may hold one of the k nearest rows and were not looked at yet, into
 * search->lists.chosen: number, distance, spread; the nearest `most` of them if they are more. */
static int choose_lists(struct task *t, uint32_t n, uint32_t most)
{
    struct search_scratch *f = &t->searcher->found;
    struct search *q = &t->search;
    const struct lists *lists = t->segment->lists;
    if (!array_reserve_kept(&q->lists.chosen, &q->lists.capacity, n, PRIORS_KEPT) ||
        !array_reserve_kept(&f->far_ends, &f->far_ends_capacity, n, SCRATCH_KEPT))
        return QUIRE_ENOMEM;
    float bound = bound_of(t, n);
    uint32_t watched = 0;
    if (search_is_limited(q)) {
        /* what is beyond the limit is told by the nearest lists */
        bound = fminf(bound, sqrtf(fmaxf(q->within, 0)) * BOUND_SLACK);
        watched = WATCHED < n ? WATCHED : n;
        nearest_first(f->heads, n, watched);
    }
    q->lists.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t list = f->heads[i].row;
        float distance = f->heads[i].distance;
        bool is_far = sqrtf(distance) - lists->entries[list].radius > bound && i >= watched;
        if (bitmap_has(q->probed, list) || is_far)
            continue;
        q->lists.chosen[q->lists.n++] =
            (struct candidate){.row = list, .distance = distance, .sigma = lists->entries[list].rms};
    }
    if (q->lists.n > most) {
        search_select_best(q->lists.chosen, q->lists.n, most);
        q->lists.n = most;
        q->stats.complete = false;
    }
    for (uint32_t i = 0; i < q->lists.n; i++)
        bitmap_add(q->probed, q->lists.chosen[i].row);
    /* the nearest first: what they hold leaves out most of the others' rows at a glance */
    search_select_best(q->lists.chosen, q->lists.n, q->lists.n / FIRST_PART);
    return 0;
}

/* ---- rows of a list ---------------------------------------------------------------------------------------------- */

static void scan_posting_block(struct task *t, const struct candidate *list, const struct posting_block_view *view)
{
    struct scratch *s = &t->searcher->scratch;
    const f16_t *factors = (const f16_t *)(const void *)view->factors;
    for (uint32_t at = 0; at < view->n_groups; at += GROUPS_STEP) {
        uint32_t groups = view->n_groups - at < GROUPS_STEP ? view->n_groups - at : GROUPS_STEP;
        uint32_t first = at * CODE_GROUP, n = view->entries - first;
        n = n < groups * CODE_GROUP ? n : groups * CODE_GROUP;
        score_groups(t, view->groups + (size_t)at * view->group_bytes, factors + 2 * (size_t)first, groups, 0, n,
                     list->distance, list->sigma);
        for (uint32_t i = 0; i < n; i++)
            s->ids[i] = posting_block_row(view, first + i);
        search_add_candidates(t, n, &t->search.lists.limit);
    }
}

/* The members of a list by their resident codes. */
static void scan_members(struct task *t, const struct candidate *list)
{
    struct scratch *s = &t->searcher->scratch;
    const struct lists *lists = t->segment->lists;
    assert(list->row < lists->n);
    uint32_t begin = lists_first(lists, list->row);
    for (uint32_t first = begin, end = begin + lists_members(lists, list->row); first < end;) {
        uint32_t group = first / CODE_GROUP, skip = first % CODE_GROUP, n = end - first;
        n = n < STEP_ROWS - skip ? n : STEP_ROWS - skip;
        score_groups(t, lists->codes + (size_t)group * lists->group_bytes,
                     lists->factors + 2 * (size_t)group * CODE_GROUP, (skip + n + CODE_GROUP - 1) / CODE_GROUP, skip, n,
                     list->distance, list->sigma);
        for (uint32_t i = 0; i < n; i++)
            s->ids[i] = lists_member(lists, list->row, first - begin + i);
        search_add_candidates(t, n, &t->search.lists.limit);
        first += n;
    }
}

/* The codes of the group in which a member has its place, and of those behind it. */
static void prefetch_codes(const struct lists *lists, uint32_t place, size_t bytes)
{
    const uint8_t *codes = lists->codes + (size_t)(place / CODE_GROUP) * lists->group_bytes;
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(codes + at, 0, 2);
}

/* ---- reads of lists ---------------------------------------------------------------------------------------------- */

static void queue_posting_block(struct task *t, struct posting_block_read *read);

/* All lists that were asked for are scanned. */
static enum step end_lists(struct task *t)
{
    assert(t->search.lists.pending == 0 && !t->waits);
    if (t->code < 0)
        return STEP_DONE;
    /* which of those beyond are there depends on the order in which lists came */
    search_trim_candidates(&t->search);
    search_drop_copies(t);
    return search_rerank(t);
}

/* What is under way comes back, nothing more is asked for. */
static void stop_asking(struct task *t)
{
    assert(t->code < 0);
    t->search.lists.next = t->search.lists.n;
}

/* Nobody has a buffer that could come back, and there is no memory for one. */
static void fail_without_buffer(struct task *t)
{
    task_fail(t, QUIRE_ENOMEM, "no memory for a posting block of %u bytes", t->segment->params.posting_bytes_max);
    stop_asking(t);
}

/* Buffers are free: those who wait for them get them, the oldest request first. */
static void serve_lists(struct searcher *s)
{
    while (s->postings.queue.first) {
        struct task *t = s->postings.queue.first;
        struct search *q = &t->search;
        if (s->cancelling) {
            task_fail(t, QUIRE_ECANCELLED, "the search was cancelled");
            stop_asking(t);
        }
        if (q->lists.next < q->lists.n) {
            struct posting_block_read *read = searcher_take_posting_block(s, t->segment->params.posting_bytes_max);
            if (read)
                queue_posting_block(t, read);
            else if (s->postings.n > 0)
                return; /* one of those under way comes back */
            else
                fail_without_buffer(t);
        }
        if (q->lists.next < q->lists.n)
            continue;
        task_queue_take(&s->postings.queue);
        if (q->lists.pending > 0)
            continue;
        task_enter(t);
        task_leave(t, end_lists(t));
    }
}

static int open_posting_block(struct task *t, const struct posting_block_read *read, int result,
                              struct posting_block_view *view)
{
    const struct segment *g = t->segment;
    struct quire_error err = {0};
    char what[32];
    assert(read->list < t->search.lists.n);
    uint32_t list = t->search.lists.chosen[read->list].row;
    snprintf(what, sizeof what, "read of list %u", list);
    int rc = task_check_result(t, &read->op, result, what);
    if (rc < 0)
        return rc;
    rc = posting_block_open(read->buffer, list, &g->lists->entries[list], g->params.code_dim, g->params.list_bits,
                            g->params.rows, g->segment_id, view, &err);
    if (rc < 0)
        task_fail(t, rc, "list %u of %s at offset %llu is damaged: %s", list, read->op.file->path,
                  (unsigned long long)read->op.offset, err.message);
    return rc;
}

static void on_posting_block(struct io_op *op, int result, unsigned flags)
{
    struct task *t = op->owner;
    struct search *q = &t->search;
    struct searcher *s = t->searcher;
    struct posting_block_read *read =
        (struct posting_block_read *)(void *)((char *)op - offsetof(struct posting_block_read, op));
    struct posting_block_view view;
    (void)flags;
    if (task_waits(t, op, result))
        return;
    task_enter(t);
    assert(q->lists.pending > 0 && !t->open);
    q->lists.pending--;
    if (s->cancelling)
        task_fail(t, QUIRE_ECANCELLED, "the search was cancelled");
    else if (t->code == 0 && open_posting_block(t, read, result, &view) == 0)
        scan_posting_block(t, &q->lists.chosen[read->list], &view);
    searcher_return_posting_block(s, read);
    if (t->code < 0)
        stop_asking(t);
    bool ended = q->lists.pending == 0 && q->lists.next == q->lists.n && !t->waits;
    task_leave(t, ended ? end_lists(t) : STEP_READS);
    serve_lists(s);
}

static void queue_posting_block(struct task *t, struct posting_block_read *read)
{
    struct search *q = &t->search;
    const struct segment *g = t->segment;
    const struct segment_params *p = &g->params;
    const struct list_entry *e = &g->lists->entries[q->lists.chosen[q->lists.next].row];
    struct posting_block_shape shape;
    assert(q->lists.next < q->lists.n);
    posting_block_shape(e->entries, e->own, p->code_dim, p->list_bits, &shape);
    read->list = q->lists.next++;
    read->op = (struct io_op){.kind = IO_READ,
                              .file = section_file_io(g->postings),
                              .offset = g->postings_at + (uint64_t)e->page * SECTION_ALIGN,
                              .buffer = read->buffer,
                              .bytes = shape.bytes,
                              .rank = t->rank,
                              .done = on_posting_block,
                              .owner = t};
    t->cost.reads++;
    t->cost.bytes += shape.bytes;
    q->lists.pending++;
    engine_queue(t->searcher->engine, &read->op);
}

/* Asks for the lists that were not asked for yet, as far as there are buffers. */
static enum step read_lists(struct task *t)
{
    struct searcher *s = t->searcher;
    while (t->search.lists.next < t->search.lists.n) {
        struct posting_block_read *read =
            s->postings.queue.first ? NULL : searcher_take_posting_block(s, t->segment->params.posting_bytes_max);
        if (!read && s->postings.n == 0) {
            fail_without_buffer(t);
            return end_lists(t);
        }
        if (!read) {
            task_queue_add(&s->postings.queue, t);
            break;
        }
        queue_posting_block(t, read);
    }
    return STEP_READS;
}

/* The members of the list that are in the selection, by the groups of codes that hold them. */
static void scan_selected(struct task *t, const struct candidate *list)
{
    struct scratch *s = &t->searcher->scratch;
    const struct lists *lists = t->segment->lists;
    uint32_t begin = lists_first(lists, list->row), end = begin + lists_members(lists, list->row), place;
    struct selection_walk walk = selection_walk(placed(t), begin);
    bool more = selection_next(&walk, &place) && place < end;
    t->search.filter.known_selected = true;
    while (more) {
        uint32_t n = 0, group = place / CODE_GROUP;
        for (; more && place / CODE_GROUP == group; more = selection_next(&walk, &place) && place < end)
            s->picks[n++] = place;
        if (more)
            prefetch_codes(lists, place, lists->group_bytes);
        score_groups(t, lists->codes + (size_t)group * lists->group_bytes,
                     lists->factors + 2 * (size_t)group * CODE_GROUP, 1, 0, CODE_GROUP, list->distance, list->sigma);
        for (uint32_t i = 0; i < n; i++) {
            s->ids[i] = lists_member(lists, list->row, s->picks[i] - begin);
            s->estimates[i] = s->estimates[s->picks[i] % CODE_GROUP]; /* ascending, so none is overwritten too early */
        }
        s->runs[0].end = n;
        search_add_candidates(t, n, &t->search.lists.limit);
    }
    t->search.filter.known_selected = false;
}

int search_lists_scan(struct task *t)
{
    struct search_scratch *f = &t->searcher->found;
    const struct lists *lists = t->segment->lists;
    int n = nearest_heads(t, lists->n);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        const struct list_entry *e = &lists->entries[f->heads[i].row];
        struct candidate list = {.row = f->heads[i].row, .distance = f->heads[i].distance, .sigma = e->rms};
        scan_selected(t, &list);
    }
    search_trim_candidates(&t->search);
    return 0;
}

/* Rows of the selection in the n lists of scratch->heads. */
static uint64_t selected_near(const struct task *t, uint32_t n)
{
    const struct lists *lists = t->segment->lists;
    uint64_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t list = t->searcher->found.heads[i].row;
        found += search_selects(placed(t), lists_first(lists, list), lists_members(lists, list));
    }
    return found;
}

enum step search_lists(struct task *t)
{
    struct search *q = &t->search;
    const struct lists *lists = t->segment->lists;
    /* a search that may read so many blocks needs some of them for the rows themselves */
    uint32_t left = search_reads_left(t, UINT32_MAX), most = lists->codes ? UINT32_MAX : left / 2 + left % 2;
    uint64_t effort = q->effort < lists->n ? q->effort : lists->n, more = effort * effort / EFFORT_PART;
    int n = search_reserve_candidates(t, more < CANDIDATES_MOST ? (uint32_t)more : CANDIDATES_MOST);
    n = n < 0 ? n : nearest_heads(t, (uint32_t)effort);
    enum seeds seeds =
        n > 0 && q->filter.selection ? search_evaluate_seeds(t, selected_near(t, (uint32_t)n)) : SEEDS_KEEP;
    if (seeds == SEEDS_AGAIN)
        return search_lists(t);
    if (seeds == SEEDS_SCAN)
        return search_filtered_scan(t);
    if (n < 0 || choose_lists(t, (uint32_t)n, most) < 0)
        return task_no_memory(t);
    assert(q->lists.n <= q->lists.capacity && !t->waits);
    q->lists.next = q->lists.pending = 0;
    if (!lists->codes && q->lists.n > 0) {
        q->stats.rounds++;
        return read_lists(t);
    }
    for (uint32_t i = 0; lists->codes && i < q->lists.n; i++) {
        if (i + 1 < q->lists.n)
            prefetch_codes(lists, lists_first(lists, q->lists.chosen[i + 1].row), PREFETCH_MAX);
        if (q->filter.selection)
            scan_selected(t, &q->lists.chosen[i]);
        else
            scan_members(t, &q->lists.chosen[i]);
    }
    return search_rerank(t);
}
