/*
 * search_filter.c - searches that may answer with some rows only: which plan, and how its reads are chosen.
 *
 * The rows are known before the search begins (selection.h), so plans are chosen by what they cost, in nanoseconds of a
 * busy device and of the processor (docs/performance.md "Filters" has the measurements):
 *
 *   EMPTY     nothing is left
 *   BLOCKS    all blocks that hold a row, neighbours in one read: exact. A small tenant whose rows lie side by side is
 *             one read.
 *   SCAN      the codes of exactly these rows, in memory; then the blocks of the best
 *   FILTERED  the search of the whole index, but only rows of the selection become candidates. Effort is that of
 *             a search for k / selectivity rows without a filter, and more: among so many, k are of the selection. It
 *             looks around the query first; if less of the selection is there than an even spread would have, SCAN
 *             takes over, or blocks and lists without a row of the selection are left out and effort is raised.
 *
 * Where the codes of rows are not resident there is no SCAN.
 *
 * Reads end by what they are still worth: the sum over all candidates that were not read of the probability to be among
 * the k nearest is how many of the k one expects to miss. When it falls below the share that the recall asked for
 * leaves open, the search is done. Without a filter the candidates of a block add up, and a threshold per block is as
 * good; of a selection a block holds often but one, and many small chances are a large one together. A query that is
 * equally far from everything would read on and on for little: so a block must be worth something, and reads are
 * bounded, both in measure of the recall that is asked for.
 */
#include "index/search/task.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Prices in nanoseconds: of the device, busy; of a processor whose memory is busy, too. */
#define READ_NS               13000.0 /* of a read, beside its bytes */
#define BYTE_NS               0.27
#define BLOCK_NS              1000.0 /* of opening a block that was read */
#define SLOT_NS               15.0   /* of a row's exact distance */
#define CODE_NS               6.0    /* of a row's estimate among rows that lie apart, beside the bytes of its code */
#define CODE_BYTE_NS          0.12
#define SEED_NS               2.0 /* the same among its neighbours */
#define SEED_BYTE_NS          0.05
#define GROUP_NS              100.0 /* of 32 interleaved codes, of which one or more count, beside their bytes */
#define GROUP_BYTE_NS         0.15
#define CENTRES_NS            150.0 /* of the centres that are compared to find one block */
#define HEAD_NS               10.0  /* of a head; all are compared */
#define EXACT_PREFERENCE      0.7   /* an exact answer is worth this much more */
#define MISS_SHARE            0.4f  /* of what recall leaves open: estimates are not perfect either */
#define EFFORT_SPARE          4.0   /* selections do not spread evenly, and what is far from the query lies far apart */
#define SWITCH_ROWS_MAX       4000000u
#define FEW_ROWS              1000u
#define FEW_READS             24u
#define FEW_READS_PER_K       2u
#define MANY_READS            48u
#define MANY_READS_PER_K      5u
#define GAIN_MIN              0.03f /* of a block: less is not worth a read, whatever many such add up to */
#define SCAN_PATIENCE         4     /* what a scan may cost more than the walk that it takes over */
#define FAR_EFFORT            3     /* times the effort where the selection is far from the query */
#define ENOUGH_NEAR           0.5   /* of the rows that were expected among the seeds */
#define READS_PER_K           1.6   /* of a scan: blocks hold one of the k nearest each, and some are read in vain */
#define READS_PER_K_ESTIMATES 0.4   /* of one for estimates: those where codes leave doubt */

/* ---- the selection ----------------------------------------------------------------------------------------------- */

uint32_t search_selects(const struct selection *s, uint32_t first, uint32_t n)
{
    uint32_t found = 0, end = first + n;
    if (s->rows)
        return (uint32_t)(selection_first(s, end) - selection_first(s, first));
    while (first < end && first % 8)
        found += bitmap_has(s->bits, first++);
    for (; first + 8 <= end; first += 8)
        found += (uint32_t)__builtin_popcount(s->bits[first / 8]);
    while (first < end)
        found += bitmap_has(s->bits, first++);
    return found;
}

static bool any_bit(const uint8_t *bits, uint32_t first, uint32_t n)
{
    uint32_t end = first + n;
    for (; first < end && first % 8; first++)
        if (bitmap_has(bits, first))
            return true;
    for (; first + 8 <= end; first += 8)
        if (bits[first / 8])
            return true;
    for (; first < end; first++)
        if (bitmap_has(bits, first))
            return true;
    return false;
}

bool search_selects_any(const struct selection *s, uint32_t first, uint32_t n)
{
    if (s->bits)
        return any_bit(s->bits, first, n);
    uint64_t at = selection_first(s, first);
    return at < s->n && s->rows[at] - first < n;
}

bool search_selects_entry(const struct selection *s, uint32_t first, uint32_t n)
{
    return any_bit(s->cells ? s->cells : s->blocks, first, n);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static bool has_codes(const struct task *t)
{
    return t->segment->lists ? t->segment->lists->codes != NULL : t->segment->nav_codes != NULL;
}

static double scan_ns(const struct task *t)
{
    const struct segment *g = t->segment;
    const struct selection *s = t->search.filter.selection;
    double groups = fmin((double)s->n, (double)s->n_rows / CODE_GROUP);
    if (g->lists)
        return groups * (GROUP_NS + GROUP_BYTE_NS * g->lists->group_bytes) + g->lists->n * HEAD_NS;
    return (double)s->n * (CODE_NS + CODE_BYTE_NS * g->nav_bytes) + s->n_blocks * HEAD_NS;
}

/* Of blocks that are read in so many reads. */
static double reading_ns(const struct task *t, double reads, double blocks)
{
    const struct segment_params *p = &t->segment->params;
    return reads * READ_NS + blocks * (p->block_bytes * BYTE_NS + BLOCK_NS + p->slots_per_block * SLOT_NS);
}

/* Reads of a search that chooses its blocks. */
static double chosen_reads(const struct task *t)
{
    double per_k = t->search.estimates ? READS_PER_K_ESTIMATES : READS_PER_K;
    return fmin(t->search.filter.selection->n_blocks, per_k * t->search.k + 2);
}

/* The effort of a search without a filter for so many rows that k of them may be answered. */
static uint32_t raised_effort(const struct task *t)
{
    const struct search *q = &t->search;
    const struct quire_search_options *o = &q->request->options;
    const struct selection *s = q->filter.selection;
    double wanted = (double)q->k * (double)s->n_rows / (double)s->n;
    uint32_t k = wanted < (double)s->n_rows ? (uint32_t)ceil(wanted) : (uint32_t)s->n_rows;
    if (o->recall > 0 || !o->effort)
        return (uint32_t)fmin(search_effort(t, k) * EFFORT_SPARE, q->effort_end);
    double factor = (double)segment_effort(t->segment, DEFAULT_RECALL, k, q->estimates) /
                    (double)segment_effort(t->segment, DEFAULT_RECALL, q->k, q->estimates);
    return (uint32_t)fmin(o->effort * fmax(factor, 1), q->effort_end);
}

/* Rows that one block or list has on average. */
static double rows_per_place(const struct task *t)
{
    const struct segment *g = t->segment;
    return (double)g->params.rows / (g->lists ? g->lists->n : g->params.n_blocks);
}

static double walk_ns(const struct task *t)
{
    const struct segment *g = t->segment;
    double places = fmin(t->search.effort, t->search.effort_end), rows = places * rows_per_place(t);
    if (!g->lists)
        return rows * (SEED_NS + SEED_BYTE_NS * g->nav_bytes) + places * CENTRES_NS;
    double codes = rows * (SEED_NS + SEED_BYTE_NS * g->lists->group_bytes / CODE_GROUP) + g->lists->n * HEAD_NS;
    return g->lists->codes ? codes : codes + reading_ns(t, places, places * g->params.posting_bytes_max / 8192.0);
}

static enum quire_plan choose_plan(const struct task *t)
{
    const struct search *q = &t->search;
    const struct quire_search_options *o = &q->request->options;
    const struct selection *s = q->filter.selection;
    if (o->exact)
        return QUIRE_PLAN_BLOCKS;
    double blocks = reading_ns(t, s->n_runs, s->run_blocks) * EXACT_PREFERENCE, walk = walk_ns(t);
    double scan = has_codes(t) && !q->filter.limited ? scan_ns(t) : INFINITY;
    double chosen = reading_ns(t, chosen_reads(t), chosen_reads(t));
    if (!q->filter.limited && blocks <= fmin(scan, walk) + chosen && s->n_runs <= search_reads_left(t, UINT32_MAX))
        return QUIRE_PLAN_BLOCKS;
    return scan <= walk ? QUIRE_PLAN_SCAN : QUIRE_PLAN_FILTERED;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static enum step next_runs(struct task *t);

static enum step score_runs(struct task *t)
{
    struct block_view view;
    for (uint32_t i = 0; i < t->n_reads && t->code == 0; i++) {
        if (task_check_read(t, i, "read of blocks") < 0)
            break;
        uint32_t n = t->reads[i].op.bytes / t->segment->params.block_bytes;
        for (uint32_t j = 0; j < n && t->code == 0; j++)
            if (bitmap_has(t->search.filter.selection->blocks, t->reads[i].block + j) &&
                task_open_run(t, i, j, &view) == 0 && search_score_block(t, &view) < 0)
                task_fail(t, QUIRE_ECORRUPT, "a block of %s is damaged: its keys do not decode",
                          section_file_io(t->segment->blocks)->path);
    }
    return t->code < 0 ? STEP_DONE : next_runs(t);
}

static enum step next_runs(struct task *t)
{
    struct search *q = &t->search;
    const struct segment *g = t->segment;
    struct block_run runs[READS_MAX], next;
    uint32_t n = 0, most = search_reads_left(t, READS_MAX), all = 0;
    bool more;
    while ((more = selection_next_run(q->filter.selection, g, q->next_block, &next)) && n < most &&
           (n == 0 || (uint64_t)(all + next.n) * g->params.block_bytes <= RUN_BYTES_MAX)) {
        runs[n++] = next;
        all += next.n;
        q->next_block = next.first + next.n;
    }
    if (n == 0) {
        q->stats.exact = q->stats.complete = !more;
        return search_deliver(t);
    }
    q->stats.rounds++;
    return task_read_runs(t, runs, n, score_runs);
}

/* ---- scan -------------------------------------------------------------------------------------------------------- */

/* Makes candidates of the selection by its codes. */
static int scan(struct task *t)
{
    struct scratch *s = &t->searcher->scratch;
    struct search *q = &t->search;
    struct selection_walk walk = selection_walk(q->filter.selection, 0);
    float limit = INFINITY;
    uint32_t n = 0;
    assert(has_codes(t) && !q->filter.scanning && !q->filter.limited);
    q->n_candidates = q->n_priors = 0;
    q->filter.scanning = true;
    q->stats.plan = QUIRE_PLAN_SCAN;
    if (t->segment->lists) {
        q->lists.limit = INFINITY;
        return search_lists_scan(t);
    }
    q->filter.known_selected = true;
    for (bool more = true; more; n = 0) {
        while (n < STEP_ROWS && (more = selection_next(&walk, &s->ids[n])))
            n++;
        score_rows(t, n);
        search_add_candidates(t, n, &limit);
    }
    q->filter.known_selected = false;
    search_trim_candidates(q);
    return 0;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* What may be missed, over what may be at the default recall. */
static float leniency(const struct search *q)
{
    return q->filter.missable / ((1 - DEFAULT_RECALL) * MISS_SHARE * (float)q->k);
}

/* Of the best blocks those that are worth a read now, best first; returns how many. */
static uint32_t choose_blocks(struct task *t, uint32_t most, uint32_t *blocks)
{
    struct search *q = &t->search;
    float gains[READS_MAX];
    double missed = search_compute_gains(t);
    uint32_t n = search_best_blocks(t, most, 0, blocks, gains), taken = 0;
    float least = GAIN_MIN * leniency(q);
    while (taken < n && missed > (double)q->filter.missable && gains[taken] >= least)
        missed -= (double)gains[taken++];
    return taken > 0 ? taken : search_unread_answers(t, most, blocks);
}

static bool may_scan(const struct task *t)
{
    const struct search *q = &t->search;
    return has_codes(t) && !q->filter.limited && !q->filter.scanning && q->filter.selection->n <= SWITCH_ROWS_MAX;
}

/* What is left of a choice of n blocks: a search by codes that has k answers ends after so many reads, however little
 * the codes tell candidates apart. */
static uint32_t bounded(const struct task *t, uint32_t n)
{
    const struct search *q = &t->search;
    bool few = q->filter.selection->n <= FEW_ROWS;
    uint32_t least = few ? FEW_READS : MANY_READS, per_k = (few ? FEW_READS_PER_K : MANY_READS_PER_K) * q->k;
    double most = (least > per_k ? least : per_k) / sqrt((double)leniency(q)); /* recall 1: infinite */
    uint32_t seen = search_blocks_seen(t);
    if (n == 0 || !has_codes(t) || seen + n <= most)
        return n;
    uint32_t left = seen < most ? (uint32_t)most - seen : 0;
    return left == 0 && !search_has_answer(q) ? 1 : left;
}

static bool may_widen(const struct search *q)
{
    return !search_has_answer(q) && !q->filter.scanning && q->effort < q->effort_end;
}

enum step search_filtered_round(struct task *t)
{
    struct search *q = &t->search;
    uint32_t blocks[READS_MAX], most = search_reads_left(t, task_blocks_max(t, q->filter.scanning)), n;
    assert(q->filter.selection && most <= READS_MAX);
    for (;;) {
        n = bounded(t, choose_blocks(t, most ? most : 1, blocks));
        if (n == 0 && !search_has_answer(q))
            n = search_nearest_unread(t, blocks);
        if (n > 0 || most == 0 || !may_widen(q))
            break;
        int rc;
        if (may_scan(t)) {
            q->stats.switched = true;
            rc = scan(t);
        } else {
            q->filter.selected_seeds = true;
            search_widen(q);
            if (t->segment->lists)
                return search_lists(t);
            rc = search_look_farther(t);
        }
        if (rc < 0)
            return task_no_memory(t);
    }
    if (n > 0 && most > 0)
        return search_read_blocks(t, blocks, n);
    if ((most == 0 && (n > 0 || may_widen(q))) || (q->filter.limited && !search_has_answer(q)))
        q->stats.complete = false;
    return search_deliver(t);
}

enum step search_filtered_scan(struct task *t)
{
    return scan(t) < 0 ? task_no_memory(t) : search_filtered_round(t);
}

/* ---- the first step ---------------------------------------------------------------------------------------------- */

/* How many of the k nearest may be missed, by the recall that is asked for or that effort stands for. */
static float missable_of(const struct task *t)
{
    const struct search *q = &t->search;
    const struct quire_search_options *o = &q->request->options;
    float recall = o->recall > 0 ? o->recall : DEFAULT_RECALL;
    double missed = (1 - (double)recall) * q->k * MISS_SHARE;
    double factor = o->effort ? (double)segment_effort(t->segment, DEFAULT_RECALL, q->k, q->estimates) / o->effort : 1;
    return (float)(missed * (o->recall > 0 ? fmin(factor, 1) : factor));
}

/* Rows to be looked at for the filter's sake bound the effort. */
static void limit_effort(struct task *t)
{
    struct search *q = &t->search;
    uint64_t most = (uint64_t)ceil(q->request->options.filter_effort / rows_per_place(t));
    q->filter.limited = q->request->options.filter_effort && q->filter.selection->n > q->request->options.filter_effort;
    if (q->filter.limited && q->effort_end > most)
        q->effort_end = most ? (uint32_t)most : 1;
    q->effort = q->effort < q->effort_end ? q->effort : q->effort_end;
}

enum seeds search_evaluate_seeds(struct task *t, uint64_t found)
{
    struct search *q = &t->search;
    /* what is near if the selection spreads evenly */
    double expected =
        q->effort * rows_per_place(t) * (double)q->filter.selection->n / (double)q->filter.selection->n_rows;
    assert(found <= q->filter.selection->n || t->segment->lists);
    if (q->filter.selected_seeds || (double)found >= ENOUGH_NEAR * expected || found == q->filter.selection->n)
        return SEEDS_KEEP;
    q->stats.switched = true;
    if (may_scan(t) && scan_ns(t) <= SCAN_PATIENCE * walk_ns(t))
        return SEEDS_SCAN;
    q->filter.selected_seeds = true;
    q->effort = (uint32_t)fmin(FAR_EFFORT * q->effort, q->effort_end);
    q->stats.effort = q->effort;
    return SEEDS_AGAIN;
}

uint64_t search_selected_seeds(const struct task *t, uint32_t n)
{
    const struct segment_params *p = &t->segment->params;
    const struct cells *cells = t->segment->cells;
    uint64_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cell = t->searcher->found.nearest[i].row, rows = format_block_rows(p, cell);
        if (!cells)
            found += search_selects(t->search.filter.selection, cell * p->slots_per_block, rows);
        for (uint32_t r = 0; cells && r < rows; r++)
            found += selection_has(t->search.filter.selection, cells->rows[(size_t)cell * cells->capacity + r]);
    }
    return found;
}

enum step search_filtered_begin(struct task *t)
{
    struct search *q = &t->search;
    const struct segment *g = t->segment;
    q->stats.matches = q->filter.selection->n;
    q->effort_end = g->lists ? g->lists->n : g->params.n_blocks;
    q->k = q->k < q->filter.selection->n ? q->k : (uint32_t)q->filter.selection->n;
    if (q->k == 0) {
        q->stats.plan = QUIRE_PLAN_EMPTY;
        q->stats.exact = true;
        return search_deliver(t);
    }
    assert(q->k <= q->filter.selection->n);
    q->filter.missable = missable_of(t);
    q->effort = search_effort(t, q->k);
    search_set_theta(t);
    q->effort = raised_effort(t);
    limit_effort(t);
    q->filter.selected_seeds = q->filter.limited || !has_codes(t);
    q->stats.plan = choose_plan(t);
    bool blocks = q->stats.plan == QUIRE_PLAN_BLOCKS;
    q->stats.effort = blocks ? 0 : q->effort;
    q->stats.reads_expected = blocks ? q->filter.selection->n_runs : (uint32_t)ceil(chosen_reads(t));
    switch (q->stats.plan) {
    case QUIRE_PLAN_BLOCKS:
        return next_runs(t);
    case QUIRE_PLAN_FILTERED:
        return g->lists ? search_lists(t) : search_walk(t);
    default:
        assert(q->stats.plan == QUIRE_PLAN_SCAN);
        return search_filtered_scan(t);
    }
}
