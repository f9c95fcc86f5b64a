/*
 * search_priv.h - one search, shared by its files: search.c leads it, search_seed.c and search_lists.c find
 * where it begins, search_candidates.c says what is worth reading, search_filter.c sees to selections and
 * search_answer.c keeps the nearest and answers.
 */
#ifndef QUIRE_INDEX_SEARCH_PRIV_H
#define QUIRE_INDEX_SEARCH_PRIV_H

#include "index/format/block.h"
#include "index/search/search.h"
#include "index/segment/segment_view.h"
#include "index/segment/selection.h"
#include <math.h>

#define READS_MAX      32u   /* of one step: blocks by which inverted lists' finds are measured */
#define RECENT_ROWS    1024u /* places of the filter of rows already scored */
#define DEFAULT_RECALL 0.95f
#define Z_DROP         4.0f /* candidates this many sigmas beyond tau are dropped */

/* Items that arrays may have and stay between searches; those with more are given back. What K_KEPT neighbours need is
 * kept. Of a task: */
#define K_KEPT          4096u  /* results, and what is copied for them */
#define PRIORS_KEPT     16384u /* blocks known by their centres only, and lists */
#define CANDIDATES_KEPT 98304u /* rows that may be near */
/* Of a lane: */
#define SCRATCH_KEPT 65536u  /* nodes of the tree, heads */
#define GAINS_KEPT   262144u /* places of gains: 12 bytes each */

struct task;

/* What a function of a task answers (task.h). */
enum step {
    STEP_READS, /* reads are under way, and another function goes on when they are back */
    STEP_DONE   /* the request is answered, or has failed: task->code */
};

/* A row that may be among the k nearest, known by its navigation code; or the first of `weight` rows of a block of
 * which only the centre is known. */
struct candidate {
    uint32_t row;
    float distance, sigma, weight;
};

/* One of the k nearest so far. */
struct result {
    float distance; /* in the working space */
    float sigma;    /* of an estimate; 0: measured */
    uint32_t row;
    uint32_t id;
    uint32_t place; /* of its copy in search->copies */
};

/* A list that is being read. */
struct posting_block_read {
    struct io_op op;
    struct posting_block_read *next_free;
    uint8_t *buffer;
    uint32_t buffer_bytes;
    uint32_t list;
};

/* The farthest that a row of a list can be from the query, and how many rows it has. */
struct far_end {
    float distance; /* not squared */
    uint32_t rows;
};

/* Of a search that may answer with some rows only. search_filter.c decides on all of it, but that scan_selected
 * (search_lists.c) sets known_selected for the time of a list, too; all files of the search read it. */
struct search_filter {
    const struct selection *selection; /* or NULL: all rows, and nothing below is set */
    bool known_selected;               /* rows that are scored are in the selection */
    bool selected_seeds;               /* blocks and lists without a row of the selection are not looked for */
    bool limited;                      /* it may look at fewer rows than the selection has */
    bool scanning;                     /* all rows that may be answered are candidates: stats.plan SCAN */
    float missable;                    /* rows among the k nearest that may be missed, as expected */
};

/* Of a search in a segment with inverted lists. search_lists.c reads and writes it, but for reranks and rerank_full,
 * which are search_rerank's (search.c). */
struct search_lists {
    struct candidate *chosen; /* lists to look at: number, distance of the head, spread; owned */
    uint32_t n, capacity;
    uint32_t next, pending; /* first one not asked for; reads under way */
    float limit;            /* estimate above which no row matters */
    uint32_t reranks;       /* rounds of blocks that were read for their rows */
    bool rerank_full;       /* the last one could not take all blocks that were worth it */
};

struct search {
    /* what is asked for, and how far the search goes: search.c */
    struct search_request *request;
    const uint8_t *dead; /* or NULL */
    struct search_filter filter;
    uint32_t k, effort;
    uint32_t effort_end; /* blocks or lists that a search which finds too little may widen effort to */
    float theta;
    bool estimates; /* a row whose place is certain is answered without a read */
    float tau;      /* distance that the k nearest of all known rows lie within, measured or estimated */
    float within;   /* rows farther than this are not asked for; infinity: there is no limit */
    /* where it has been */
    uint8_t *probed; /* bitmap of blocks (of cells where the search enters by them: cells.h), or of lists; owned */
    uint8_t *read;   /* bitmap of blocks, behind it */
    size_t bitmaps_capacity;
    uint32_t *recent;    /* rows scored lately, RECENT_ROWS places; owned */
    uint32_t next_block; /* reading all blocks, or runs: first one not asked for */
    /* what may be near: search_candidates.c, search_seed.c; arrays are owned */
    struct candidate *candidates;
    uint32_t n_candidates, candidates_max, candidates_capacity;
    bool repeats;             /* a row may be there twice: edges led to it again */
    struct candidate *priors; /* blocks of which the centre is known, where no code is resident */
    uint32_t n_priors, priors_capacity;
    struct search_lists lists;
    /* the nearest so far, and the answer: search_answer.c; arrays are owned */
    struct result *results; /* a max-heap by distance */
    uint32_t n_results, results_capacity;
    uint8_t *copies; /* k places of copy_bytes: key record, then slot and factors */
    uint32_t copy_bytes;
    size_t copies_capacity;
    struct search_hit *hits;
    uint32_t hits_capacity;
    uint32_t next_key; /* first hit whose long key is not fetched */
    float *vectors;    /* k x dim */
    size_t vectors_capacity;
    struct quire_search_stats stats;
};

/* Of one step; no search keeps anything here between steps. Owned by the searcher. */
struct search_scratch {
    struct candidate *nearest; /* nodes of the entry tree on the way down */
    uint32_t *beam;            /* those of the level before */
    uint32_t nearest_capacity, beam_capacity;
    struct {
        uint32_t block;
        float gain;
        uint32_t stamp;
    } * gains; /* a hash table by block */
    uint32_t gains_mask, gains_stamp;
    float *known; /* distances of the nearest known rows */
    uint32_t known_capacity;
    uint32_t *edges; /* of one list of a block */
    uint32_t edges_capacity;
    struct graph_hit *heads;  /* of lists that are near */
    struct far_end *far_ends; /* of the same lists */
    uint32_t heads_capacity, far_ends_capacity;
};

/* ---- search.c ---------------------------------------------------------------------------------------------------- */

/* The effort that the options ask for at k. */
uint32_t search_effort(const struct task *task, uint32_t k);
/* Reads blocks in one step and goes on with the search when they are scored. */
enum step search_read_blocks(struct task *task, const uint32_t *blocks, uint32_t n);
/* The seeds and rounds of a page graph, whose effort is set. */
enum step search_walk(struct task *task);
/* What lists have found is measured exactly. */
enum step search_rerank(struct task *task);
/* Sets theta from the effort. */
void search_set_theta(struct task *task);
/* Doubles the effort, up to effort_end. */
void search_widen(struct search *search);
/* Space in scratch for the edges of a list of n. */
int search_reserve_edges(struct task *task, uint32_t n);
/* Blocks that the query has read, from the device or the cache: reads_max means both, so that an answer does not depend
 * on what others have asked for. */
uint32_t search_blocks_seen(const struct task *task);
/* Blocks and lists that the query may still read, at most `most`; without reads_max that is `most`. */
uint32_t search_reads_left(const struct task *task, uint32_t most);

/* ---- search_seed.c ----------------------------------------------------------------------------------------------- */

/* The blocks that the tree leads to, at most `effort`, in scratch->nearest; returns how many, or QUIRE_ENOMEM. */
int search_find_blocks(struct task *task);
/* Scores all rows of the blocks scratch->nearest[begin..end) by their resident codes. `limit` is an estimate above
 * which none matters; returns that limit, lowered by what was found. */
float search_seed_rows(struct task *task, uint32_t begin, uint32_t end, float limit);
/* Where no code is resident the n blocks of scratch->nearest stand for their rows; QUIRE_ENOMEM. */
int search_seed_blocks(struct task *task, uint32_t n);
/* Seeds from as many blocks as effort says; QUIRE_ENOMEM or a number >= 0. */
int search_look_farther(struct task *task);
/* Space in scratch->nearest. */
int search_reserve_nearest(struct search_scratch *scratch, uint64_t n);
/* Keeps the `want` nearest of scratch->nearest[0..n), in no order; returns how many. */
uint32_t search_narrow(struct search_scratch *scratch, uint32_t n, uint32_t want);

/* ---- search_candidates.c ----------------------------------------------------------------------------------------- */

/* Space for the candidates that k asks for and `more`, and for what is computed of them. */
int search_reserve_candidates(struct task *task, uint32_t more);
/* Space for the gains of so many blocks. */
int search_reserve_gains(struct search_scratch *scratch, uint64_t blocks);
/* Moves the `keep` best of c[0..n) to the front, in no order. */
void search_select_best(struct candidate *c, uint32_t n, uint32_t keep);
/* A value that `want` of n probably lie below, and not many more, from a sample of them; want < n / 4. */
#define LIMIT_SAMPLE 64u
float search_sample_limit(float sample[LIMIT_SAMPLE], uint32_t n, uint32_t want);
/* Rows that were scored last join the candidates; `limit` is the estimate above which none matters. */
void search_add_candidates(struct task *task, uint32_t n, float *limit);
/* Keeps the candidates_max best candidates, in no order. */
void search_trim_candidates(struct search *search);
/* The same; returns the largest estimate among them. */
float search_keep_best(struct search *search);
/* Of the estimates of one row the one with the least error stays. */
void search_drop_copies(struct task *task);
/* Sets tau, and the gains of all blocks with candidates by it; forgets the candidates of blocks that were read. Returns
 * the sum of the gains. */
double search_compute_gains(struct task *task);
/* Blocks of rows that are to be answered and must be measured first, at most `most`; returns how many. */
uint32_t search_unread_answers(const struct task *task, uint32_t most, uint32_t *blocks);
/* The blocks of largest gain, at least `least`, at most `most`, best first, with their gains; returns how many. */
uint32_t search_best_blocks(const struct task *task, uint32_t most, float least, uint32_t *blocks,
                            float gains[READS_MAX]);
/* The block known by its centre only that is nearest, where no block promises anything; returns how many (1 or 0). */
uint32_t search_nearest_unread(const struct task *task, uint32_t *block);

/* Whether only rows up to some distance are asked for. */
static inline bool search_is_limited(const struct search *search)
{
    return search->within < INFINITY;
}

/* The distance up to which a row matters to the answer. */
static inline float search_border(const struct search *search)
{
    return fminf(search->tau, search->within);
}

/* Whether k rows are known that may be answered, or all that are asked for. */
static inline bool search_has_answer(const struct search *search)
{
    return search_is_limited(search) || search->n_results + (search->estimates ? search->n_candidates : 0) >= search->k;
}

/* Whether a row may not be answered: it is dead, or not in the selection. */
static inline bool search_row_is_out(const struct search *search, uint32_t row)
{
    return (search->dead && bitmap_has_shared(search->dead, row)) ||
           (search->filter.selection && !selection_has(search->filter.selection, row));
}

/* The same of a row that was scored by its code. */
static inline bool search_candidate_is_out(const struct search *search, uint32_t row)
{
    return (search->dead && bitmap_has_shared(search->dead, row)) ||
           (search->filter.selection && !search->filter.known_selected &&
            !selection_has(search->filter.selection, row));
}

/* ---- search_answer.c --------------------------------------------------------------------------------------------- */

/* Space for k results and what is copied out of blocks for them. */
int search_reserve_results(struct task *task);
/* Scores the slots of an open block and keeps the nearest; QUIRE_ECORRUPT. */
int search_score_block(struct task *task, const struct block_view *view);
/* Answers with what was found. */
enum step search_deliver(struct task *task);
/* The request gets its answer, or the task's error. */
void search_end(struct task *task);
/* Gives back what answers and candidates take. */
void search_free_results(struct search *search);

/* ---- search_filter.c --------------------------------------------------------------------------------------------- */

/* The first step of a search with a selection. */
enum step search_filtered_begin(struct task *task);
/* The blocks that are worth reading next. */
enum step search_filtered_round(struct task *task);
/* What becomes of a search that has found its nearest blocks or lists, with `found` rows of the selection in them. */
enum seeds {
    SEEDS_KEEP,  /* they will do */
    SEEDS_AGAIN, /* it must find them again by changed settings */
    SEEDS_SCAN   /* all rows of the selection are to be scanned instead: search_filtered_scan */
};
enum seeds search_evaluate_seeds(struct task *task, uint64_t found);
enum step search_filtered_scan(struct task *task);
/* Rows of the selection in the n blocks of scratch->nearest. */
uint64_t search_selected_seeds(const struct task *task, uint32_t n);
/* Whether any row of first .. first + n is in the selection; how many are; whether any of these blocks, or cells, has
 * one. */
bool search_selects_any(const struct selection *selection, uint32_t first, uint32_t n);
uint32_t search_selects(const struct selection *selection, uint32_t first, uint32_t n);
bool search_selects_entry(const struct selection *selection, uint32_t first, uint32_t n);

/* ---- search_lists.c ---------------------------------------------------------------------------------------------- */

/* Reads or scans those of the `effort` nearest lists that were not yet; then search_rerank. */
enum step search_lists(struct task *task);
/* All rows of the selection by their resident codes. QUIRE_ENOMEM or 0. */
int search_lists_scan(struct task *task);

#endif
