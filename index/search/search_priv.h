/* search_priv.h - tasks of a lane: what search and fetch share. */
#ifndef QUIRE_INDEX_SEARCH_PRIV_H
#define QUIRE_INDEX_SEARCH_PRIV_H

#include "index/format/block.h"
#include "index/search/search.h"
#include "index/segment/segment_view.h"
#include "index/segment/selection.h"
#include "index/vector/codes.h"

#define BEAM_MAX    4u    /* blocks that one task reads at once on its way through a page graph */
#define RERANK_MAX  32u   /* and to measure what inverted lists have found */
#define SCAN_MAX    8u    /* the same where all rows that may be answered are known by their codes */
#define FRAMES_MAX  64u   /* blocks that all tasks of a lane hold at once */
#define RECENT_ROWS 1024u /* places of the filter of rows already scored */

struct task;

/* A row that may be among the k nearest, known by its navigation code; or the first of `weight` rows of a block of
 * which only the centre is known. */
struct candidate {
    uint32_t row;
    float distance, sigma, weight;
};

/* One of the k nearest so far. */
struct result {
    float distance; /* in the working space */
    uint32_t row;
    uint32_t id;
    uint32_t place; /* of its copy in task->copies */
};

struct read_slot {
    struct io_op op;
    uint8_t *buffer;
    uint32_t block;
    int result;
    bool back, cached;
};

/* A list that is being read. */
struct posting_read {
    struct io_op op;
    struct posting_read *next_free;
    uint8_t *buffer;
    uint32_t buffer_bytes;
    uint32_t list;
};

/* Rows of one block among those scored together: up to `end`, from where the run before ends. */
struct scored_run {
    uint32_t end;
    float centre, sigma; /* distance of the block's centre; standard deviation of the estimates */
};

/* The farthest that a row of a list can be from the query, and how many rows it has. */
struct far_end {
    float distance; /* not squared */
    uint32_t rows;
};

enum task_kind { TASK_FREE, TASK_SEARCH, TASK_FETCH };

struct task {
    struct searcher *searcher;
    enum task_kind kind;
    uint32_t rank; /* of the search */
    struct segment *segment;
    struct search_request *search;
    struct fetch_request *fetch;
    const uint8_t *dead;               /* of the search, or NULL */
    const struct selection *selection; /* of the search, or NULL: all rows */
    struct task *next_free;
    struct read_slot reads[RERANK_MAX];
    struct io_op turn; /* of a step whose blocks are all in the cache */
    uint32_t n_reads, n_pending;
    uint32_t n_opened;   /* reads of the step that on_block has seen */
    bool step_open;      /* a step's reads are asked for and on_reads has not run */
    bool advancing;      /* advance is on the stack */
    bool starving;       /* the step waits for frames */
    bool known_selected; /* rows that are scored are in the selection */
    bool selected_seeds; /* blocks and lists without a row of the selection are not looked for */
    bool limited;        /* it may look at fewer rows than the selection has */
    bool scanning;       /* all rows that may be answered are candidates: stats.plan SCAN */
    struct task *next_starving;
    uint8_t *buffers; /* task_blocks_max blocks, 4096-aligned, where a block is larger than a frame; owned */
    size_t buffers_bytes;
    uint8_t *wide; /* a record larger than a block buffer; owned */
    size_t wide_bytes;
    int (*on_block)(struct task *task, const struct block_view *view); /* one more is, in the order asked; or NULL */
    void (*on_reads)(struct task *task);                               /* all reads of the step are back */
    uint64_t generation;                                               /* requests that it has finished */
    int code;
    struct quire_error error;
    uint64_t step_ns, cpu_ns;

    /* search */
    float *query;      /* dim: the user's query (unit length under cosine) */
    float *rotated;    /* code_dim */
    float *centre;     /* code_dim: scratch */
    uint8_t *query_u8; /* dim; used when integral */
    bool integral;
    float query_norm2, rotated_sum;
    struct code_query levels;
    uint32_t dims_capacity;
    uint8_t *probed, *read; /* bitmaps of blocks; probed: of cells where the search enters by them (cells.h) */
    size_t blocks_capacity; /* bytes of each bitmap */
    struct candidate *candidates;
    uint32_t n_candidates, candidates_max, candidates_capacity;
    struct candidate *priors; /* blocks of which the centre is known, where no code is resident */
    uint32_t n_priors, priors_capacity;
    struct result *results; /* a max-heap by distance */
    uint32_t n_results, k, k_capacity;
    uint8_t *copies; /* k places of copy_bytes: key record, then slot and factors */
    uint32_t copy_bytes;
    size_t copies_capacity;
    struct search_hit *hits;
    uint32_t hits_capacity;
    float *vectors; /* k x dim */
    size_t vectors_capacity;
    uint32_t *recent; /* rows scored lately, RECENT_ROWS places */
    uint32_t effort;
    uint32_t effort_end; /* blocks or lists that a search which finds too little may widen effort to */
    float theta;
    uint32_t next_block;     /* reading all blocks: first one not asked for */
    float missable;          /* scan: rows among the k nearest that may be missed, as expected */
    uint32_t next_key;       /* first hit whose long key is not fetched */
    struct candidate *lists; /* inverted lists to read: number, distance of the head, spread */
    uint32_t n_lists, lists_capacity;
    uint32_t next_list, lists_pending; /* first list not asked for; reads under way */
    uint32_t reranks;                  /* rounds of them */
    bool rerank_full;                  /* the last one could not take all blocks that were worth it */
    float lists_limit;                 /* estimate above which no row matters */
    bool lists_starving;               /* waits for a buffer */
    struct task *next_lists_starving;
    struct quire_search_stats stats;

    /* fetch */
    uint32_t step, slot, n_links;
    uint32_t bucket_at; /* next entry of the key page to try */
    uint64_t hash;
    uint8_t *page; /* PAGE_BYTES: key page kept while its candidates are tried */
    uint8_t *key;  /* QUIRE_KEY_BYTES_MAX */
    uint64_t attribute_at;
    uint32_t attribute_bytes;
};

struct attachment {
    struct segment *segment;
    struct attachment *next;
};

struct searcher {
    struct engine *engine;
    struct task *tasks;
    unsigned n_tasks, n_running, n_waiting;
    struct task *free_tasks;
    struct search_request *waiting, *waiting_last;
    struct fetch_request *waiting_fetch, *waiting_fetch_last;
    struct attachment *attachments;
    uint8_t *arena; /* n_frames x frame_bytes, memory_map, registered with the engine; NULL: tasks have buffers of
                     * their own */
    uint32_t n_frames, frame_bytes, n_free;
    uint8_t *free_frames[FRAMES_MAX];
    struct task *starving, *starving_last;
    struct io_op *ready, *ready_last;    /* back, of tasks with a rank, by that; linked by `next`, result in state[0] */
    struct graph_scratch *graph_scratch; /* of searches in memtables and heads; made when first needed; owned */
    struct far_end *far_ends;            /* of the same lists; owned */
    struct graph_hit *heads;             /* found by one of them; owned */
    uint32_t heads_capacity;
    struct posting_read *free_postings; /* buffers of posting_bytes; owned */
    uint32_t n_postings, posting_bytes; /* all of them */
    struct task *lists_starving, *lists_starving_last;
    struct searcher_guest guest;
    bool cancelling;
    bool working;    /* what is called is called by run_ready */
    bool serving;    /* serve_starving is on the stack */
    bool starting;   /* start_waiting is on the stack: requests that end at once do not enter it again */
    bool fetch_turn; /* whose turn it is to get a free task: searches and fetches alternate */
    /* scratch of one step; no task keeps anything here between steps */
    uint32_t *ids;
    uint32_t *picks;
    int32_t *dots;
    float *estimates;
    uint32_t *pairs;           /* two half floats each */
    struct candidate *nearest; /* nodes of the entry tree on the way down */
    uint32_t *beam;            /* those of the level before */
    uint32_t nearest_capacity; /* of the two above */
    struct {
        uint32_t block;
        float gain;
        uint32_t stamp;
    } * gains;
    uint32_t gains_mask, gains_stamp;
    uint32_t *edges;
    uint32_t edges_capacity;
    struct scored_run *runs; /* STEP_ROWS: of the rows scored last */
    uint32_t n_runs;
    uint32_t *run_blocks;  /* STEP_ROWS */
    float *run_distances;  /* STEP_ROWS */
    float *slot_distances; /* slots of one block */
    uint32_t slots_capacity;
};

#define STEP_ROWS 4096u /* rows scored per kernel call */

/* Grows what the task holds to the segment's and the request's sizes; QUIRE_ENOMEM or 0. */
int task_reserve(struct task *task, const struct segment *segment);
int searcher_attach(struct searcher *searcher, struct segment *segment);
/* Blocks that a step may read. */
static inline uint32_t task_blocks_max(const struct task *task)
{
    const struct searcher *s = task->searcher;
    if (!task->segment->lists && !task->scanning)
        return BEAM_MAX;
    if (task->scanning && !task->segment->lists && !(s->arena && task->segment->params.block_bytes <= s->frame_bytes))
        return BEAM_MAX; /* what its own buffers have room for */
    if (!task->segment->lists)
        return s->n_frames < SCAN_MAX ? s->n_frames : SCAN_MAX;
    return s->arena && s->n_frames < RERANK_MAX ? s->n_frames : RERANK_MAX;
}
/* A step that reads n blocks, n <= task_blocks_max. Each is opened and given to on_block, if there is one, as soon as
 * it and those before it are back, so that it is scored while the others come; an error ends that and is noted.
 * on_reads runs when all are back; blocks of a step without on_block can be opened there. */
void task_read_blocks(struct task *task, const uint32_t *blocks, uint32_t n,
                      int (*on_block)(struct task *task, const struct block_view *view),
                      void (*on_reads)(struct task *task));
/* A step that reads one page or record. */
void task_read_at(struct task *task, struct io_file *file, uint64_t offset, uint32_t bytes, uint8_t *buffer,
                  void (*on_reads)(struct task *task));
/* A step that reads a record at `offset` of a file, into task->wide at offset % 4096. `end` is where the record's
 * section ends; a record beyond it is noted as damage, and no step begins. */
int task_read_record(struct task *task, struct io_file *file, uint64_t offset, uint64_t bytes, uint64_t end,
                     void (*on_reads)(struct task *task));
/* A step that reads a key's record at heap offset `at`; then, when it has come, task_take_key points *key to the key in
 * task->wide. Errors are noted in the task. */
int task_read_key(struct task *task, uint64_t at, uint32_t length, void (*on_reads)(struct task *task));
int task_take_key(struct task *task, uint64_t at, uint32_t length, const uint8_t **key);
/* A step that reads runs of blocks, n <= RERANK_MAX, together at most RUN_BYTES_MAX or one run, past the cache; in
 * on_reads their blocks are opened by task_open_run: the j-th of read i. QUIRE_ENOMEM is noted, and no step begins. */
int task_read_runs(struct task *task, const struct block_run *runs, uint32_t n, void (*on_reads)(struct task *task));
int task_open_run(struct task *task, uint32_t i, uint32_t j, struct block_view *view);
/* Opens the block of read i; on failure notes the error with file and offset in the task. */
int task_open_block(struct task *task, uint32_t i, struct block_view *view);
/* To be asked first by each `done` of a task's ops: whether it is not the task's turn. Then it is called again. */
bool task_waits(struct task *task, struct io_op *op, int result);
/* Checks that read i brought `expected` bytes; notes the error otherwise. */
int task_check_read(struct task *task, uint32_t i, const char *what);
/* Ends the task: its request's done runs, then the task is free. */
void task_finish(struct task *task, int code);
void task_fail(struct task *task, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* score.c: the query of the task, rotated and quantised, from dim floats of the user's. */
void task_set_query(struct task *task, const float *query);
/* Squared distances in the working space from the query to n nodes of a level of the entry tree. */
void task_score_centres(struct task *task, const struct entry_level *level, const uint32_t *nodes, uint32_t n,
                        float *out);
/* Estimates by resident code for searcher->ids[0..n), n <= STEP_ROWS, into searcher->estimates and ->runs. Rows of one
 * block should stand together. */
void task_score_rows(struct task *task, uint32_t n);
/* The same for all rows of a block, whose centre is `centre` away, behind the `at` rows scored so before it. Returns
 * how many there are then. */
uint32_t task_score_block_rows(struct task *task, uint32_t block, float centre, uint32_t at);
/* Asks for the codes of a block's rows, which will be scored soon. */
/* Asks the memory for the code of a row. */
static inline void task_prefetch_row(const struct task *task, uint32_t row)
{
    __builtin_prefetch(task->segment->nav_codes + (size_t)row * task->segment->nav_bytes);
}
void task_prefetch_block_rows(const struct task *task, uint32_t block);
/* The same by the codes of edges inside a block: searcher->picks[i] is the edge that leads to searcher->ids[i]. */
void task_score_edges(struct task *task, const struct block_view *view, uint32_t n);
/* Squared distances at slot precision of all slots of an open block. */
void task_score_slots(struct task *task, const struct block_view *view, float *out);

/* Estimates for `groups` groups of 32 interleaved codes, factors beside them, into searcher->estimates, for rows that
 * stand around a centre `centre` away with spread `rms`; the first n of them, from `skip` on, are one run. */
void task_score_groups(struct task *task, const uint8_t *groups, const f16_t *factors, uint32_t n_groups, uint32_t skip,
                       uint32_t n, float centre, float rms);

/* search_filter.c: the first step of a search with a selection. */
void search_filtered_begin(struct task *task);
/* The blocks that are worth reading next; ends the task. */
void search_filtered_round(struct task *task);
/* Of a search that has found its nearest blocks or lists, with `found` rows of the selection in them: KEEP, they will
 * do; AGAIN, it must find them again by changed settings; DONE, all rows of the selection are scanned instead, and the
 * task has gone on. */
enum seeds { SEEDS_KEEP, SEEDS_AGAIN, SEEDS_DONE };
enum seeds search_judge_seeds(struct task *task, uint64_t found);
/* Rows of the selection in the n blocks of searcher->nearest. */
uint64_t search_selected_seeds(const struct task *task, uint32_t n);
/* Whether any row of first .. first + n is in the selection; how many are; whether any of these blocks, or cells, has
 * one. */
bool search_selects_any(const struct selection *selection, uint32_t first, uint32_t n);
uint32_t search_selects(const struct selection *selection, uint32_t first, uint32_t n);
bool search_selects_entry(const struct selection *selection, uint32_t first, uint32_t n);
/* search_lists.c: all rows of the selection by their resident codes. QUIRE_ENOMEM or 0. */
int search_lists_scan(struct task *task);
/* search_lists.c: before the first step of a search in inverted lists, whose effort is set. */
void search_lists_begin(struct task *task);
/* Reads or scans those of the `effort` nearest lists that were not yet; then search_rerank. */
void search_lists(struct task *task);
/* search.c: rows that were scored last join the candidates; `limit` is the estimate above which none matters. */
void search_add_candidates(struct task *task, uint32_t n, float *limit);
/* The seeds and rounds of a page graph, whose effort and theta are set. */
void search_begin_walk(struct task *task);
/* The effort that the options ask for at k. */
uint32_t search_effort(const struct task *task, uint32_t k);
/* Sets theta from the effort. */
void search_set_theta(struct task *task);
/* Gains of all blocks with candidates, by the distance a row must beat now. Returns their sum. */
double search_compute_gains(struct task *task);
/* The blocks of largest gain, at least `least`, at most `most`, best first, with their gains; returns how many. */
uint32_t search_best_blocks(struct task *task, uint32_t most, float least, uint32_t *blocks, float gains[RERANK_MAX]);
/* Seeds from as many blocks as effort says; QUIRE_ENOMEM or a number >= 0. */
int search_look_farther(struct task *task);
/* The block known by its centre only that is nearest, where no block promises anything; returns how many (1 or 0). */
uint32_t search_nearest_unread(const struct task *task, uint32_t *block);
/* Reads blocks in one step and goes on with the search when they are scored. */
void search_read_blocks(struct task *task, const uint32_t *blocks, uint32_t n);
/* Scores the slots of an open block; QUIRE_ECORRUPT. */
int search_score_block(struct task *task, const struct block_view *view);
/* Answers with what was found; ends the task. */
void search_deliver(struct task *task);
/* What lists have found is measured exactly; ends the task. */
void search_rerank(struct task *task);
/* All places of searcher->gains are free again. */
void search_new_stamp(struct searcher *searcher);
/* Room in searcher->nearest. */
int search_reserve_nearest(struct searcher *searcher, uint64_t n);
/* Room for the candidates that k asks for and `more`. */
int search_reserve_candidates(struct task *task, uint32_t more);
/* Moves the `keep` best of c[0..n) to the front, in no order. */
void search_select_best(struct candidate *c, uint32_t n, uint32_t keep);
/* Keeps the candidates_max best candidates, in no order. */
void search_trim_candidates(struct task *task);
/* Blocks that the query has read, from the device or the cache: reads_max means both, so that an answer does not depend
 * on what others have asked for. */
static inline uint32_t search_blocks_seen(const struct task *task)
{
    return task->stats.reads + task->stats.cached;
}
/* Blocks and lists that the query may still read, at most `most`; without reads_max that is `most`. */
uint32_t search_reads_left(const struct task *task, uint32_t most);
/* Keeps the `want` nearest of searcher->nearest[0..n), in no order; returns how many. */
uint32_t search_narrow(struct searcher *searcher, uint32_t n, uint32_t want);
int search_grow(void *array, size_t bytes); /* realloc through a pointer to the pointer; QUIRE_ENOMEM */
/* searcher.c: a buffer for a posting, or NULL: there is none free. */
struct posting_read *searcher_take_posting(struct searcher *searcher, uint32_t bytes);
/* Gives it back; who waits for one goes on. */
void searcher_return_posting(struct searcher *searcher, struct posting_read *read);

/* Room in hits, copies (BLOCK_KEY_INLINE_MAX + 16 bytes each) and candidates for n links. */
int search_reserve_links(struct task *task, uint32_t n);
/* Room in searcher->edges. */
int search_reserve_edges(struct task *task, uint32_t n);

/* Whether a row may not be answered: it is dead, or not in the selection. */
static inline bool task_row_is_out(const struct task *task, uint32_t row)
{
    return (task->dead && bitmap_has_shared(task->dead, row)) ||
           (task->selection && !selection_has(task->selection, row));
}

/* The same of a row that was scored by its code. */
static inline bool task_candidate_is_out(const struct task *task, uint32_t row)
{
    return (task->dead && bitmap_has_shared(task->dead, row)) ||
           (task->selection && !task->known_selected && !selection_has(task->selection, row));
}

void search_begin(struct task *task);
void search_end(struct task *task, int code);
void fetch_begin(struct task *task);
void fetch_end(struct task *task, int code);

#endif
