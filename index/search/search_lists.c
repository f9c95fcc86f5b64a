/*
 * search_lists.c - inverted lists: which are near the query, and what their codes say of the rows in them.
 *
 *   seed   The `effort` lists whose heads are nearest. Of these the ones are left out that cannot hold any of the k
 *          nearest rows: their nearest end, by head and radius, is farther away than k rows of others are for certain
 *          (the triangle inequality, which knows no scale: unit vectors, inner products and raw bytes alike).
 *   lists  All postings that are left go in one submission; each is scanned as soon as it comes, whatever the order:
 *          the candidates are the rows of least estimate among all of them. Where codes are resident there is nothing
 *          to read, and the members of lists are scanned in memory.
 *   rerank Of a row that stands in several lists the estimate with the least error counts. The blocks that hold rows
 *          that may be among the k nearest are read in one more submission (search.c).
 *
 * A task takes a buffer per posting and gives it back when that is scanned; where the lane has none left the rest of
 * the lists wait, first come first served. That is no further round: nothing depends on what came before.
 */
#include "index/search/search_priv.h"
#include "io/bitmap.h"
#include "io/clock.h"
#include "io/error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THETA_LISTS    0.5f /* theta times effort */
#define THETA_MIN      0.0005f
#define THETA_MAX      0.05f
#define HEADS_SPARE    8u
#define HEADS_PER_BEAM 64u
#define BOUND_SLACK    1.01f /* distances are rounded */
#define FIRST_PART     8u    /* of the lists are looked at first */
#define GROUPS_STEP    (STEP_ROWS / CODE_GROUP)
#define PREFETCH_MAX   4096u /* bytes of the next list's codes */
/* Rows that codes cannot tell apart are more than the candidates that k asks for, where many lie closer together than
 * a code's steps. So effort squared, in such parts, is added: next to nothing at usual effort, and no ceiling. */
#define EFFORT_PART     16u
#define CANDIDATES_MOST 65536u

/* ---- seed -------------------------------------------------------------------------------------------------------- */

static int reserve_heads(struct searcher *s, uint32_t n)
{
    if (n <= s->heads_capacity)
        return 0;
    if (search_grow(&s->heads, sizeof *s->heads * n) < 0 || search_grow(&s->far_ends, sizeof *s->far_ends * n) < 0)
        return QUIRE_ENOMEM;
    s->heads_capacity = n;
    return 0;
}

/* The selection by the places of members' codes. */
static const struct selection *placed(const struct task *t)
{
    return t->selection->places ? t->selection->places : t->selection;
}

/* Of a selection only those lists matter whose members have some of it. */
static bool has_rows(const struct task *t, uint32_t list)
{
    const struct lists *lists = t->segment->lists;
    return !t->selection || !t->selected_seeds ||
           search_selects_any(placed(t), lists_first(lists, list), lists_members(lists, list));
}

/* All heads one after the other; the `want` nearest stay, in no order. */
static int scan_heads(struct task *t, struct graph_scratch *scratch, uint32_t want)
{
    struct searcher *s = t->searcher;
    const struct lists *lists = t->segment->lists;
    uint32_t have = 0;
    if (search_reserve_nearest(s, lists->n) < 0)
        return QUIRE_ENOMEM;
    for (uint32_t list = 0; list < lists->n;) {
        uint32_t n = 0;
        for (; list < lists->n && n < STEP_ROWS; list++)
            if (has_rows(t, list))
                s->ids[n++] = list;
        graph_score(lists->heads, scratch, s->ids, n, s->estimates);
        for (uint32_t i = 0; i < n; i++)
            s->nearest[have++] = (struct candidate){.row = s->ids[i], .distance = s->estimates[i]};
    }
    want = search_narrow(s, have, want);
    for (uint32_t i = 0; i < want; i++)
        s->heads[i] = (struct graph_hit){s->nearest[i].row, s->nearest[i].distance};
    return (int)want;
}

/* The distances of the n heads without the rounding of the query that they were found by: where rows lie closer
 * together than its steps, far from the mean, that would shift the estimates of a list against those of another. */
static void measure_heads(struct task *t, uint32_t n)
{
    struct searcher *s = t->searcher;
    const struct lists *lists = t->segment->lists;
    uint32_t dim = t->segment->params.code_dim;
    float norm2 = kernels()->f32_dot(t->rotated, t->rotated, dim);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *code;
        float f, unused;
        graph_row(lists->heads, s->heads[i].row, &code, &f, &unused);
        float dot = f * (kernels()->f32_u8_dot(t->rotated, code, dim) - code_half(8) * t->rotated_sum);
        s->heads[i].distance = fmaxf(norm2 + lists->norms2[s->heads[i].row] - 2 * dot, 0);
    }
}

/* The heads nearest to the query into s->heads, at most `want`; returns how many, or QUIRE_ENOMEM. Few
 * heads are looked at one by one: that is cheaper than a walk, which jumps about in memory, and misses none. */
static int nearest_heads(struct task *t, uint32_t want)
{
    struct searcher *s = t->searcher;
    struct lists *lists = t->segment->lists;
    struct graph_scratch *scratch = searcher_graph_scratch(s);
    uint32_t beam = want + want / 2 + HEADS_SPARE;
    bool all = t->selection || lists->n <= (uint64_t)beam * HEADS_PER_BEAM;
    if (!scratch || reserve_heads(s, want) < 0 || graph_query(lists->heads, scratch, t->rotated) < 0)
        return QUIRE_ENOMEM;
    unsigned slot = epoch_enter(lists->epochs);
    int n = all ? scan_heads(t, scratch, want)
                : (int)graph_search(lists->heads, &lists->root, scratch, beam, NULL, NULL, s->heads, want);
    if (n > 0)
        measure_heads(t, (uint32_t)n);
    epoch_exit(lists->epochs, slot);
    t->stats.codes_scored += all ? lists->n : n > 0 ? (uint32_t)n : 0;
    return n;
}

static int by_far_end(const void *a, const void *b)
{
    const struct far_end *x = a, *y = b;
    return (x->distance > y->distance) - (x->distance < y->distance);
}

/* A distance within which there are k rows for certain: the lists whose farthest rows are nearest have so many. Rows
 * that are dead count for nothing, and how many of a list are is not known, so then there is no such bound. */
static float bound_of(struct task *t, uint32_t n)
{
    struct searcher *s = t->searcher;
    const struct lists *lists = t->segment->lists;
    const struct list_entry *entries = lists->entries;
    uint32_t rows = 0;
    if (t->dead || t->selection)
        return INFINITY;
    for (uint32_t i = 0; i < n; i++)
        s->far_ends[i] = (struct far_end){sqrtf(s->heads[i].distance) + entries[s->heads[i].row].radius,
                                          lists_members(lists, s->heads[i].row)};
    qsort(s->far_ends, n, sizeof *s->far_ends, by_far_end);
    for (uint32_t i = 0; i < n; i++)
        if ((rows += s->far_ends[i].rows) >= t->k)
            return s->far_ends[i].distance * BOUND_SLACK;
    return INFINITY;
}

/* Those of the n nearest lists that may hold one of the k nearest rows and were not looked at yet, into t->lists:
 * number, distance, spread; the nearest `most` of them if they are more. */
static int choose_lists(struct task *t, uint32_t n, uint32_t most)
{
    struct searcher *s = t->searcher;
    const struct lists *lists = t->segment->lists;
    if (n > t->lists_capacity) {
        if (search_grow(&t->lists, sizeof *t->lists * n) < 0)
            return QUIRE_ENOMEM;
        t->lists_capacity = n;
    }
    float bound = bound_of(t, n);
    t->n_lists = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t list = s->heads[i].row;
        float distance = s->heads[i].distance;
        if (bitmap_has(t->probed, list) || sqrtf(distance) - lists->entries[list].radius > bound)
            continue;
        t->lists[t->n_lists++] =
            (struct candidate){.row = list, .distance = distance, .sigma = lists->entries[list].rms};
    }
    if (t->n_lists > most) {
        search_select_best(t->lists, t->n_lists, most);
        t->n_lists = most;
        t->stats.complete = false;
    }
    for (uint32_t i = 0; i < t->n_lists; i++)
        bitmap_add(t->probed, t->lists[i].row);
    /* the nearest first: what they hold leaves out most of the others' rows at a glance */
    search_select_best(t->lists, t->n_lists, t->n_lists / FIRST_PART);
    return 0;
}

/* ---- rows of a list ---------------------------------------------------------------------------------------------- */

static void scan_posting(struct task *t, const struct candidate *list, const struct posting_block_view *view)
{
    struct searcher *s = t->searcher;
    const f16_t *factors = (const f16_t *)(const void *)view->factors;
    for (uint32_t at = 0; at < view->n_groups; at += GROUPS_STEP) {
        uint32_t groups = view->n_groups - at < GROUPS_STEP ? view->n_groups - at : GROUPS_STEP;
        uint32_t first = at * CODE_GROUP, n = view->entries - first;
        n = n < groups * CODE_GROUP ? n : groups * CODE_GROUP;
        task_score_groups(t, view->groups + (size_t)at * view->group_bytes, factors + 2 * (size_t)first, groups, 0, n,
                          list->distance, list->sigma);
        for (uint32_t i = 0; i < n; i++)
            s->ids[i] = posting_block_row(view, first + i);
        search_add_candidates(t, n, &t->lists_limit);
    }
}

/* The members of a list by their resident codes. */
static void scan_members(struct task *t, const struct candidate *list)
{
    struct searcher *s = t->searcher;
    const struct lists *lists = t->segment->lists;
    uint32_t begin = lists_first(lists, list->row);
    for (uint32_t first = begin, end = begin + lists_members(lists, list->row); first < end;) {
        uint32_t group = first / CODE_GROUP, skip = first % CODE_GROUP, n = end - first;
        n = n < STEP_ROWS - skip ? n : STEP_ROWS - skip;
        task_score_groups(t, lists->codes + (size_t)group * lists->group_bytes,
                          lists->factors + 2 * (size_t)group * CODE_GROUP, (skip + n + CODE_GROUP - 1) / CODE_GROUP,
                          skip, n, list->distance, list->sigma);
        for (uint32_t i = 0; i < n; i++)
            s->ids[i] = lists_member(lists, list->row, first - begin + i);
        search_add_candidates(t, n, &t->lists_limit);
        first += n;
    }
}

static void prefetch_members(const struct task *t, const struct candidate *list)
{
    const struct lists *lists = t->segment->lists;
    const uint8_t *codes = lists->codes + (size_t)(lists_first(lists, list->row) / CODE_GROUP) * lists->group_bytes;
    for (size_t at = 0; at < PREFETCH_MAX; at += 64)
        __builtin_prefetch(codes + at, 0, 2);
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

/* Of the estimates of one row the one with the least error stays. */
static void drop_copies(struct task *t)
{
    struct searcher *s = t->searcher;
    uint32_t kept = 0;
    search_new_stamp(s);
    for (uint32_t i = 0; i < t->n_candidates; i++) {
        const struct candidate c = t->candidates[i];
        uint32_t at = c.row * 2654435761u >> 7 & s->gains_mask;
        while (s->gains[at].stamp == s->gains_stamp && t->candidates[s->gains[at].block].row != c.row)
            at = (at + 1) & s->gains_mask;
        if (s->gains[at].stamp != s->gains_stamp) {
            s->gains[at].stamp = s->gains_stamp;
            s->gains[at].block = kept;
            t->candidates[kept++] = c;
        } else if (c.sigma < t->candidates[s->gains[at].block].sigma)
            t->candidates[s->gains[at].block] = c;
    }
    t->n_candidates = kept;
}

static void end_lists(struct task *t)
{
    if (t->code < 0) {
        task_finish(t, t->code);
        return;
    }
    /* which of those beyond are there depends on the order in which lists came */
    search_trim_candidates(t);
    drop_copies(t);
    search_rerank(t);
}

/* ---- postings ---------------------------------------------------------------------------------------------------- */

static void queue_posting(struct task *t, struct posting_read *read);

/* Nobody holds a buffer that could come back, and there is no memory for one. */
static void fail_without_buffer(struct task *t)
{
    task_fail(t, QUIRE_ENOMEM, "no memory for a posting of %u bytes", t->segment->params.posting_bytes_max);
    t->next_list = t->n_lists;
}

/* Buffers are free: those who wait for them get them, first come first served. */
static void serve_lists(struct searcher *s)
{
    while (s->lists_starving) {
        struct task *t = s->lists_starving;
        if (s->cancelling) {
            task_fail(t, QUIRE_ECANCELLED, "the search was cancelled");
            t->next_list = t->n_lists;
        }
        if (t->next_list < t->n_lists) {
            struct posting_read *read = searcher_take_posting(s, t->segment->params.posting_bytes_max);
            if (read)
                queue_posting(t, read);
            else if (s->n_postings > 0)
                return; /* one of those under way comes back */
            else
                fail_without_buffer(t);
        }
        if (t->next_list < t->n_lists)
            continue;
        s->lists_starving = t->next_lists_starving;
        t->lists_starving = false;
        if (t->lists_pending > 0)
            continue;
        uint64_t generation = t->generation;
        t->step_ns = clock_ns();
        end_lists(t);
        if (t->generation == generation)
            t->cpu_ns += clock_ns() - t->step_ns;
    }
}

static int open_posting(struct task *t, const struct posting_read *read, int result, struct posting_block_view *view)
{
    const struct segment *g = t->segment;
    const char *path = read->op.file->path;
    struct quire_error err = {0};
    if (result != (int)read->op.bytes) {
        int code = result < 0 ? result : QUIRE_ESHORTREAD;
        task_fail(t, code, "read of list %u of %s at offset %llu: %s (%d of %u bytes)", t->lists[read->list].row, path,
                  (unsigned long long)read->op.offset, quire_error_text(code), result < 0 ? 0 : result, read->op.bytes);
        return code;
    }
    uint32_t list = t->lists[read->list].row;
    int rc = posting_block_open(read->buffer, list, &g->lists->entries[list], g->params.code_dim, g->params.list_bits,
                                g->params.rows, g->segment_id, view, &err);
    if (rc < 0)
        task_fail(t, rc, "list %u of %s at offset %llu is damaged: %s", list, path, (unsigned long long)read->op.offset,
                  err.message);
    return rc;
}

static void on_posting(struct io_op *op, int result, unsigned flags)
{
    struct task *t = op->owner;
    struct searcher *s = t->searcher;
    struct posting_read *read = (struct posting_read *)(void *)((char *)op - offsetof(struct posting_read, op));
    struct posting_block_view view;
    uint64_t generation = t->generation;
    (void)flags;
    if (task_waits(t, op, result))
        return;
    t->step_ns = clock_ns();
    t->lists_pending--;
    if (s->cancelling)
        task_fail(t, QUIRE_ECANCELLED, "the search was cancelled");
    else if (t->code == 0 && open_posting(t, read, result, &view) == 0)
        scan_posting(t, &t->lists[read->list], &view);
    searcher_return_posting(s, read);
    if (t->code < 0)
        t->next_list = t->n_lists; /* what is under way comes back, nothing more is asked for */
    if (t->lists_pending == 0 && t->next_list == t->n_lists && !t->lists_starving)
        end_lists(t);
    if (t->generation == generation)
        t->cpu_ns += clock_ns() - t->step_ns;
    serve_lists(s);
}

static void queue_posting(struct task *t, struct posting_read *read)
{
    const struct segment *g = t->segment;
    const struct segment_params *p = &g->params;
    const struct list_entry *e = &g->lists->entries[t->lists[t->next_list].row];
    struct posting_block_shape shape;
    posting_block_shape(e->entries, e->own, p->code_dim, p->list_bits, &shape);
    read->list = t->next_list++;
    read->op = (struct io_op){.kind = IO_READ,
                              .file = section_file_io(g->postings),
                              .offset = g->postings_at + (uint64_t)e->page * SECTION_ALIGN,
                              .buffer = read->buffer,
                              .bytes = shape.bytes,
                              .done = on_posting,
                              .owner = t};
    t->stats.reads++;
    t->stats.bytes += shape.bytes;
    t->lists_pending++;
    engine_queue(t->searcher->engine, &read->op);
}

/* Asks for the lists that were not asked for yet, as far as there are buffers. */
static void read_lists(struct task *t)
{
    struct searcher *s = t->searcher;
    while (t->next_list < t->n_lists) {
        struct posting_read *read =
            s->lists_starving ? NULL : searcher_take_posting(s, t->segment->params.posting_bytes_max);
        if (read) {
            queue_posting(t, read);
            continue;
        }
        if (s->n_postings == 0) {
            fail_without_buffer(t);
            end_lists(t);
            return;
        }
        t->lists_starving = true;
        t->next_lists_starving = NULL;
        if (s->lists_starving)
            s->lists_starving_last->next_lists_starving = t;
        else
            s->lists_starving = t;
        s->lists_starving_last = t;
        return;
    }
}

static void prefetch_group(const struct lists *lists, uint32_t group)
{
    const uint8_t *codes = lists->codes + (size_t)group * lists->group_bytes;
    for (uint32_t at = 0; at < lists->group_bytes; at += 64)
        __builtin_prefetch(codes + at, 0, 2);
}

/* Scores the group of the places s->picks[0..n), members of the list, and makes candidates of these. */
static void score_selected(struct task *t, const struct candidate *list, uint32_t n)
{
    struct searcher *s = t->searcher;
    const struct lists *lists = t->segment->lists;
    uint32_t group = s->picks[0] / CODE_GROUP, first = lists_first(lists, list->row);
    task_score_groups(t, lists->codes + (size_t)group * lists->group_bytes,
                      lists->factors + 2 * (size_t)group * CODE_GROUP, 1, 0, CODE_GROUP, list->distance, list->sigma);
    for (uint32_t i = 0; i < n; i++) {
        s->ids[i] = lists_member(lists, list->row, s->picks[i] - first);
        s->estimates[i] = s->estimates[s->picks[i] % CODE_GROUP]; /* ascending, so none is overwritten too early */
    }
    s->runs[0].end = n;
    search_add_candidates(t, n, &t->lists_limit);
}

/* The members of the list that are in the selection, by the groups that hold them. */
static void scan_selected(struct task *t, const struct candidate *list)
{
    struct searcher *s = t->searcher;
    const struct lists *lists = t->segment->lists;
    uint32_t begin = lists_first(lists, list->row), end = begin + lists_members(lists, list->row), place;
    struct selection_walk walk = selection_walk(placed(t), begin);
    bool more = selection_next(&walk, &place) && place < end;
    t->known_selected = true;
    while (more) {
        uint32_t n = 0, group = place / CODE_GROUP;
        for (; more && place / CODE_GROUP == group; more = selection_next(&walk, &place) && place < end)
            s->picks[n++] = place;
        if (more)
            prefetch_group(lists, place / CODE_GROUP);
        score_selected(t, list, n);
    }
    t->known_selected = false;
}

int search_lists_scan(struct task *t)
{
    struct searcher *s = t->searcher;
    const struct lists *lists = t->segment->lists;
    int n = nearest_heads(t, lists->n);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        const struct list_entry *e = &lists->entries[s->heads[i].row];
        struct candidate list = {.row = s->heads[i].row, .distance = s->heads[i].distance, .sigma = e->rms};
        scan_selected(t, &list);
    }
    search_trim_candidates(t);
    return 0;
}

/* Rows of the selection in the n lists of searcher->heads. */
static uint64_t selected_near(const struct task *t, uint32_t n)
{
    const struct lists *lists = t->segment->lists;
    uint64_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t list = t->searcher->heads[i].row;
        found += search_selects(placed(t), lists_first(lists, list), lists_members(lists, list));
    }
    return found;
}

void search_lists(struct task *t)
{
    const struct lists *lists = t->segment->lists;
    /* a search that may read so many blocks needs some of them for the rows themselves */
    uint32_t left = search_reads_left(t, UINT32_MAX), most = lists->codes ? UINT32_MAX : left / 2 + left % 2;
    uint64_t effort = t->effort < lists->n ? t->effort : lists->n, more = effort * effort / EFFORT_PART;
    int n = search_reserve_candidates(t, more < CANDIDATES_MOST ? (uint32_t)more : CANDIDATES_MOST);
    n = n < 0 ? n : nearest_heads(t, (uint32_t)effort);
    enum seeds seeds = n > 0 && t->selection ? search_judge_seeds(t, selected_near(t, (uint32_t)n)) : SEEDS_KEEP;
    if (seeds == SEEDS_AGAIN)
        search_lists(t);
    if (seeds != SEEDS_KEEP)
        return;
    if (n < 0 || choose_lists(t, (uint32_t)n, most) < 0) {
        task_finish(t, QUIRE_ENOMEM);
        return;
    }
    t->next_list = t->lists_pending = 0;
    if (lists->codes) {
        for (uint32_t i = 0; i < t->n_lists; i++) {
            if (i + 1 < t->n_lists)
                prefetch_members(t, &t->lists[i + 1]);
            if (t->selection)
                scan_selected(t, &t->lists[i]);
            else
                scan_members(t, &t->lists[i]);
        }
        search_rerank(t);
        return;
    }
    if (t->n_lists == 0) {
        search_rerank(t);
        return;
    }
    t->stats.rounds++;
    read_lists(t);
}

void search_lists_begin(struct task *t)
{
    t->stats.effort = t->effort;
    t->theta = fminf(fmaxf(THETA_LISTS / (float)t->effort, THETA_MIN), THETA_MAX);
    t->lists_limit = INFINITY;
    t->reranks = 0;
    t->rerank_full = t->lists_starving = false;
}
