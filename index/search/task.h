/*
 * task.h - the step machine: requests of a lane that go from reads to reads, and what the lane's tasks share.
 *
 * A task serves one request at a time. Its begin function, and each that a step names, either asks for the reads of the
 * next step or says that the request is done; only the machine (task.c) begins and ends tasks. What a search or a fetch
 * knows of itself is a struct of its own inside the task: query (score.h), search (search_priv.h), fetch.
 */
#ifndef QUIRE_INDEX_TASK_H
#define QUIRE_INDEX_TASK_H

#include "index/format/block.h"
#include "index/search/score.h"
#include "index/search/search.h"
#include "index/search/search_priv.h"

#define BEAM_MAX   4u  /* blocks that one task reads at once on its way through a page graph */
#define SCAN_MAX   8u  /* the same where all rows that may be answered are known by their codes */
#define FRAMES_MAX 64u /* blocks that all tasks of a lane hold at once */

struct read_slot {
    struct io_op op;
    uint8_t *buffer;
    uint32_t block;
    int result;
    bool back, cached;
};

/* A kind of request. */
struct task_kind {
    enum { LINE_SEARCHES, LINE_FETCHES, N_LINES } line; /* in which it waits for a task */
    enum step (*begin)(struct task *task, struct task_ticket *ticket);
    void (*end)(struct task *task);             /* fills the request and calls its `done` */
    void (*cancel)(struct task_ticket *ticket); /* it has not begun: its `done` */
};

/* A row's attributes and links, as asked for. */
struct fetch {
    struct fetch_request *request;
    uint64_t hash;
    uint32_t entry; /* by key: next one of the key page to try; or the input row */
    uint32_t slot;
    uint8_t *page;      /* PAGE_BYTES: key page kept while its candidates are tried; owned */
    uint8_t *key;       /* QUIRE_KEY_BYTES_MAX; owned */
    uint64_t record_at; /* of a key or of attributes in its heap */
    uint32_t attribute_bytes;
    struct link_set *links;              /* made when links are first asked for; owned */
    uint32_t n_links, n_taken, next_key; /* taken from their blocks; first one whose long key is not fetched */
};

struct task {
    struct searcher *searcher;
    const struct task_kind *kind; /* NULL: free */
    struct segment *segment;
    uint32_t priority;
    uint64_t rank; /* the request's, as of its ticket: older ones have lower numbers */
    int code;
    struct task *next_free, *next_waiting; /* next_waiting: for frames, or for a buffer of a list */
    uint64_t generation;                   /* requests that it has finished */
    uint64_t step_ns, cpu_ns;
    /* the step */
    enum step (*on_reads)(struct task *task);                          /* all reads are back */
    int (*on_block)(struct task *task, const struct block_view *view); /* one more is, in the order asked; or NULL */
    uint32_t n_reads, n_pending;
    uint32_t n_opened; /* reads that on_block has seen */
    bool open;         /* reads are asked for and on_reads has not run */
    bool advancing;    /* advance is on the stack */
    bool waits;        /* for frames, or for a buffer of a list */
    struct {
        uint32_t reads, cached;
        uint64_t bytes;
    } cost; /* of the request so far */
    struct query query;
    struct search search;
    struct fetch fetch;
    struct read_slot reads[READS_MAX];
    struct io_op turn; /* of a step whose blocks are all in the cache */
    uint8_t *buffers;  /* task_blocks_max blocks, 4096-aligned, where a block is larger than a frame; owned */
    size_t buffers_bytes;
    uint8_t *wide; /* a record larger than a block buffer; owned */
    size_t wide_bytes;
    struct quire_error error;
};

/* Tasks that wait, the oldest request first. */
struct task_queue {
    struct task *first, *last;
};

struct searcher {
    struct engine *engine;
    struct task *tasks, *free_tasks;
    unsigned n_tasks, n_running, n_waiting;
    struct {
        struct task_ticket *first, *last;
    } lines[N_LINES];   /* of requests without a task */
    uint64_t n_asked;   /* requests so far */
    unsigned next_line; /* whose turn it is to get a free task */
    struct attachment *attachments;
    struct {
        uint8_t
            *arena; /* n x bytes, memory_map_alone, registered with the engine; NULL: tasks have buffers of their own */
        uint32_t n, bytes, n_free;
        uint8_t *free[FRAMES_MAX];
        struct task_queue queue;
    } frames;
    struct {
        struct posting_block_read *free; /* buffers of `bytes`; owned */
        uint32_t n, bytes;               /* n: all of them */
        struct task_queue queue;
    } postings;
    struct {
        uint8_t *wide; /* of no task at present; owned */
        size_t bytes;
    } spare;
    struct io_op *ready, *ready_last;    /* back, of tasks with a priority, by that; result in state[0] */
    struct graph_scratch *graph_scratch; /* of searches in memtables and heads; made when first needed; owned */
    struct searcher_guest guest;
    bool cancelling;
    bool working;  /* what is called is called by task_run_ready */
    bool serving;  /* serve_frames is on the stack */
    bool starting; /* start_waiting is on the stack: requests that end at once do not enter it again */
    struct search_scratch found;
    struct scratch scratch;
};

/* ---- searcher.c -------------------------------------------------------------------------------------------------- */

/* Before a request: registers the segment's files with this lane's engine the first time they meet. */
int searcher_attach(struct searcher *searcher, struct segment *segment, struct quire_error *err);
/* A buffer for a list, or NULL: there is none free. */
struct posting_block_read *searcher_take_posting_block(struct searcher *searcher, uint32_t bytes);
/* Gives it back; who waits for one goes on. */
void searcher_return_posting_block(struct searcher *searcher, struct posting_block_read *read);
/* While no task runs: gives back what a search for very many left in the lane's scratch. */
void searcher_trim(struct searcher *searcher);

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Whether a request of this kind would wait for a task now. */
static inline bool task_must_wait(const struct searcher *searcher, const struct task_kind *kind)
{
    return !searcher->free_tasks || searcher->lines[kind->line].first;
}
/* Begins a request, or lets it wait in line. */
void task_start(struct searcher *searcher, struct task_ticket *ticket);
/* Grows what the task holds to the segment's sizes; QUIRE_ENOMEM or 0. */
int task_reserve(struct task *task);
void task_fini(struct task *task);
/* Runs the first of the steps that wait by priority; there is one. */
void task_run_ready(struct searcher *searcher);
/* While the searcher is cancelling: ends the requests in line, and lets the steps that are ready or wait for frames see
 * that they are cancelled. */
void task_cancel_waiting(struct searcher *searcher);

/* Around what goes on with a task outside of its steps' functions: its time is counted, and STEP_DONE ends it. */
void task_enter(struct task *task);
void task_leave(struct task *task, enum step step);

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Notes an error, the first of the request; always STEP_DONE. Who notes one while a step is open returns to the
 * machine, which ends the task when all reads are back. */
enum step task_fail_at(struct task *task, const char *where, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
enum step task_no_memory_at(struct task *task, const char *where);
#define task_fail(task, code, ...) task_fail_at((task), __func__, (code), __VA_ARGS__)
#define task_no_memory(task)       task_no_memory_at((task), __func__)
/* Checks that `result` of a read is all of it; notes the error otherwise. task_check_read: of read i. */
int task_check_result(struct task *task, const struct io_op *op, int result, const char *what);
int task_check_read(struct task *task, uint32_t i, const char *what);

/* Blocks that a step may read; `scanning`: of a search that has the codes of all rows that may be answered. */
uint32_t task_blocks_max(const struct task *task, bool scanning);
/* A step that reads n blocks, n <= task_blocks_max. Each is opened and given to on_block, if there is one, as soon as
 * it and those before it are back, so that it is scored while the others come; an error ends that and is noted.
 * on_reads runs when all are back; blocks of a step without on_block can be opened there. */
enum step task_read_blocks(struct task *task, const uint32_t *blocks, uint32_t n,
                           int (*on_block)(struct task *task, const struct block_view *view),
                           enum step (*on_reads)(struct task *task));
/* Opens the block of read i; on failure notes the error with file and offset in the task. */
int task_open_block(struct task *task, uint32_t i, struct block_view *view);
/* A step that reads one page or record. */
enum step task_read_at(struct task *task, struct io_file *file, uint64_t offset, uint32_t bytes, uint8_t *buffer,
                       enum step (*on_reads)(struct task *task));
/* A step that reads a record at `offset` of a file, into task->wide at offset % 4096. `end` is where the record's
 * section ends; a record beyond it is noted as damage. */
enum step task_read_record(struct task *task, struct io_file *file, uint64_t offset, uint64_t bytes, uint64_t end,
                           enum step (*on_reads)(struct task *task));
/* A step that reads a key's record at heap offset `at`; then, when it has come, the key in task->wide, or NULL with the
 * error noted. */
enum step task_read_key(struct task *task, uint64_t at, uint32_t length, enum step (*on_reads)(struct task *task));
const uint8_t *task_take_key(struct task *task, uint64_t at, uint32_t length);
/* A step that reads runs of blocks, n <= READS_MAX, together at most RUN_BYTES_MAX or one run, past the cache; in
 * on_reads their blocks are opened by task_open_run: the j-th of read i. */
enum step task_read_runs(struct task *task, const struct block_run *runs, uint32_t n,
                         enum step (*on_reads)(struct task *task));
int task_open_run(struct task *task, uint32_t i, uint32_t j, struct block_view *view);
/* Each `done` of a task's ops asks this first: true where tasks of lower priority numbers go before it. Its `done` is
 * called again then. */
bool task_waits(struct task *task, struct io_op *op, int result);

static inline void task_queue_add(struct task_queue *queue, struct task *task)
{
    struct task **at = &queue->first;
    if (queue->first && queue->last->rank < task->rank)
        at = &queue->last->next_waiting;
    while (*at && (*at)->rank < task->rank)
        at = &(*at)->next_waiting;
    task->next_waiting = *at;
    task->waits = true;
    *at = task;
    if (!task->next_waiting)
        queue->last = task;
}

static inline struct task *task_queue_take(struct task_queue *queue)
{
    struct task *task = queue->first;
    queue->first = task->next_waiting;
    task->waits = false;
    return task;
}

#endif
