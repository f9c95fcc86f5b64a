/*
 * searcher.c - the tasks of a lane: pool, waiting lines, reads of a step, errors, endings.
 *
 * A task is a struct with a pointer to what comes next (on_reads). A step queues some reads and returns to the lane's
 * loop; blocks are handed on as they come, but in the order in which they were asked for, so a query's result does not
 * depend on which completion came first; when the last is back, on_reads runs. A step whose blocks are all in the cache
 * takes a turn through the engine, too: whoever starts a search returns before it ends, whatever is cached.
 *
 * Where requests have ranks, what is back is not handed on within engine_poll: it waits in a list by rank, and
 * searcher_work takes from its front. A loop that polls between two steps so lets a search that stands alone for its
 * user pass the steps of many others: in each of its rounds it waits for the one step that was running when its reads
 * came. Without ranks there is no list, and no step is later than it could be.
 *
 * A request that finds no free task waits in line. `done` runs while the task still holds the answer; it may start new
 * requests. Errors of a read are kept until all reads of the step are back, because their buffers belong to the engine
 * until then.
 *
 * Memory: a task's arrays grow to the largest segment and k that it has served and stay, but for those of k above
 * K_KEPT; after warm-up a search for up to so many allocates nothing, keys above the inline size apart.
 */
#include "index/graph/graph.h"
#include "index/search/search_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define K_KEPT          4096u  /* results that a task may keep room for between searches */
#define PRIORS_KEPT     16384u /* blocks known by their centres only, and lists */
#define CANDIDATES_KEPT 98304u /* rows that may be near */
#define SCRATCH_KEPT    65536u /* places of gains, nodes of the tree */
#define WIDE_KEPT       65536u /* bytes of a record, or of blocks that were read at once */
#define TASKS_DEFAULT   32u
#define ARENA_BYTES_MAX (512u << 10) /* frames of a lane, BEAM_MAX of them at least */
#define TASKS_MAX       4096u
#define POSTINGS_MIN    8u
#define POSTINGS_MAX    64u
#define POSTINGS_BYTES  (2u << 20)

/* realloc that leaves the old array alone on failure; counts in elements. */
static int grow(void **array, size_t elements, size_t size)
{
    void *bigger = realloc(*array, elements * size + 1);
    if (!bigger)
        return QUIRE_ENOMEM;
    *array = bigger;
    return 0;
}

static int reserve_dims(struct task *t, uint32_t dims)
{
    void *query = t->query, *rotated = t->rotated, *centre = t->centre, *u8 = t->query_u8, *levels = t->levels.levels;
    if (dims <= t->dims_capacity)
        return 0;
    int rc = grow(&query, dims, sizeof(float)) | grow(&rotated, dims, sizeof(float)) |
             grow(&centre, dims, sizeof(float)) | grow(&u8, dims, 1) | grow(&levels, dims, 1);
    t->query = query;
    t->rotated = rotated;
    t->centre = centre;
    t->query_u8 = u8;
    t->levels.levels = levels;
    if (rc == 0)
        t->dims_capacity = dims;
    return rc ? QUIRE_ENOMEM : 0;
}

static int reserve_blocks(struct task *t, uint32_t n_blocks)
{
    size_t bytes = ((size_t)n_blocks + 7) / 8;
    void *probed = t->probed, *read = t->read;
    int rc = 0;
    if (bytes > t->blocks_capacity) {
        rc = grow(&probed, bytes, 1) | grow(&read, bytes, 1);
        t->probed = probed;
        t->read = read;
        if (rc == 0)
            t->blocks_capacity = bytes;
    }
    return rc ? QUIRE_ENOMEM : 0;
}

/* Blocks are read into frames of the searcher's arena; those that are larger, into memory of the task's own. */
static int reserve_buffers(struct task *t, uint32_t block_bytes)
{
    size_t bytes = (size_t)task_blocks_max(t) * block_bytes;
    if ((t->searcher->arena && block_bytes <= t->searcher->frame_bytes) || bytes <= t->buffers_bytes)
        return 0;
    uint8_t *bigger = memory_aligned(4096, bytes);
    if (!bigger)
        return QUIRE_ENOMEM;
    memory_free(t->buffers);
    t->buffers = bigger;
    t->buffers_bytes = bytes;
    return 0;
}

int task_reserve(struct task *t, const struct segment *segment)
{
    const struct segment_params *p = &segment->params;
    uint32_t dims = p->code_dim > p->dim + 1 ? p->code_dim : p->dim + 1;
    int rc = reserve_dims(t, dims);
    if (rc == 0)
        rc = reserve_blocks(t, p->n_blocks > p->n_lists ? p->n_blocks : p->n_lists);
    if (rc == 0)
        rc = reserve_buffers(t, p->block_bytes);
    if (!t->recent)
        t->recent = malloc(sizeof *t->recent * RECENT_ROWS);
    if (!t->page)
        t->page = memory_aligned(4096, PAGE_BYTES);
    if (!t->recent || !t->page)
        rc = QUIRE_ENOMEM;
    return rc;
}

/* One search for a hundred thousand neighbours must not leave its 30 MB with every task for good. */
static void give_results_back(struct task *t)
{
    free(t->candidates);
    free(t->priors);
    free(t->results);
    free(t->copies);
    free(t->hits);
    free(t->vectors);
    t->candidates = NULL;
    t->priors = NULL;
    t->n_priors = t->priors_capacity = 0;
    t->results = NULL;
    t->copies = NULL;
    t->hits = NULL;
    t->vectors = NULL;
    t->candidates_capacity = t->k_capacity = t->hits_capacity = 0;
    t->copies_capacity = t->vectors_capacity = 0;
    free(t->lists);
    t->lists = NULL;
    t->lists_capacity = 0;
}

/* What a search for very many left in the lane's scratch; nothing of it is in use between searches. */
static void give_scratch_back(struct searcher *s)
{
    if (s->heads_capacity > SCRATCH_KEPT) {
        free(s->heads);
        free(s->far_ends);
        s->heads = NULL;
        s->far_ends = NULL;
        s->heads_capacity = 0;
    }
    if (s->gains_mask < SCRATCH_KEPT && s->nearest_capacity <= SCRATCH_KEPT)
        return;
    free(s->gains);
    free(s->nearest);
    free(s->beam);
    s->gains = NULL;
    s->nearest = NULL;
    s->beam = NULL;
    s->gains_mask = s->nearest_capacity = 0;
}

static void task_fini(struct task *t)
{
    memory_free(t->buffers);
    memory_free(t->wide);
    memory_free(t->page);
    free(t->query);
    free(t->rotated);
    free(t->centre);
    free(t->query_u8);
    free(t->levels.levels);
    free(t->probed);
    free(t->read);
    give_results_back(t);
    free(t->recent);
    free(t->key);
}

/* Room for the blocks that are being read, registered so that the kernel need not pin its pages for each read. It is
 * made for the blocks of the first segment that this lane serves. Without it (no locked memory left) tasks use memory
 * of their own. */
static void make_arena(struct searcher *s, uint32_t frame_bytes)
{
    unsigned wanted = s->n_tasks * BEAM_MAX < RERANK_MAX ? RERANK_MAX : s->n_tasks * BEAM_MAX;
    uint32_t n = wanted < FRAMES_MAX ? wanted : FRAMES_MAX;
    while (n > BEAM_MAX && (size_t)n * frame_bytes > ARENA_BYTES_MAX)
        n--;
    s->arena = memory_map((size_t)n * frame_bytes, 0);
    if (s->arena && engine_register_buffers(s->engine, s->arena, (size_t)n * frame_bytes) < 0) {
        memory_unmap(s->arena, (size_t)n * frame_bytes);
        s->arena = NULL;
    }
    s->n_frames = s->arena ? n : 0;
    s->frame_bytes = frame_bytes;
    for (s->n_free = 0; s->n_free < s->n_frames; s->n_free++)
        s->free_frames[s->n_free] = s->arena + (size_t)s->n_free * frame_bytes;
}

/* ---- buffers of postings -----------------------------------------------------------------------------------------
 *
 * A lane has at most POSTINGS_MAX of them and POSTINGS_BYTES, all of the size of the longest posting that it has met. A
 * task takes one for each list that it reads and gives it back as soon as that is scanned, so that no task holds what
 * another waits for while it waits itself. */

static void free_posting(struct searcher *s, struct posting_read *read)
{
    if (s->free_postings == read)
        s->free_postings = read->next_free;
    memory_free(read->buffer);
    free(read);
    s->n_postings--;
}

struct posting_read *searcher_take_posting(struct searcher *s, uint32_t bytes)
{
    if (bytes > s->posting_bytes) {
        s->posting_bytes = bytes;
        while (s->free_postings)
            free_posting(s, s->free_postings);
    }
    struct posting_read *read = s->free_postings;
    if (read) {
        s->free_postings = read->next_free;
        return read;
    }
    bool room = s->n_postings < POSTINGS_MIN ||
                (s->n_postings < POSTINGS_MAX && (uint64_t)s->n_postings * s->posting_bytes < POSTINGS_BYTES);
    read = room ? calloc(1, sizeof *read) : NULL;
    if (!read)
        return NULL;
    read->buffer = memory_aligned(4096, s->posting_bytes);
    read->buffer_bytes = s->posting_bytes;
    s->n_postings++;
    if (!read->buffer) {
        free_posting(s, read);
        return NULL;
    }
    return read;
}

void searcher_return_posting(struct searcher *s, struct posting_read *read)
{
    if (read->buffer_bytes < s->posting_bytes) {
        free_posting(s, read);
        return;
    }
    read->next_free = s->free_postings;
    s->free_postings = read;
}

/* ---- life ----------------------------------------------------------------------------------------------------------
 * */

int searcher_create(struct engine *engine, const struct searcher_config *config, struct searcher **out,
                    struct quire_error *err)
{
    unsigned n = config && config->tasks_max ? config->tasks_max : TASKS_DEFAULT;
    if (n > TASKS_MAX)
        return error_set(err, QUIRE_ERANGE, "%u queries in flight: at most %u", n, TASKS_MAX);
    struct searcher *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory for a searcher");
    s->engine = engine;
    s->n_tasks = n;
    s->tasks = calloc(n, sizeof *s->tasks);
    s->ids = malloc(sizeof *s->ids * STEP_ROWS);
    s->dots = malloc(sizeof *s->dots * STEP_ROWS);
    s->estimates = malloc(sizeof *s->estimates * STEP_ROWS);
    s->pairs = malloc(sizeof *s->pairs * STEP_ROWS);
    s->runs = malloc(sizeof *s->runs * STEP_ROWS);
    s->run_blocks = malloc(sizeof *s->run_blocks * STEP_ROWS);
    s->run_distances = malloc(sizeof *s->run_distances * STEP_ROWS);
    s->picks = malloc(sizeof *s->picks * STEP_ROWS);
    if (!s->tasks || !s->ids || !s->picks || !s->dots || !s->estimates || !s->pairs || !s->runs || !s->run_blocks ||
        !s->run_distances) {
        searcher_destroy(s);
        return error_set(err, QUIRE_ENOMEM, "no memory for a searcher of %u tasks", n);
    }
    for (unsigned i = n; i-- > 0;) {
        s->tasks[i].searcher = s;
        s->tasks[i].next_free = s->free_tasks;
        s->free_tasks = &s->tasks[i];
    }
    *out = s;
    return 0;
}

void searcher_destroy(struct searcher *s)
{
    if (!s)
        return;
    while (s->attachments)
        searcher_forget(s, s->attachments->segment);
    for (unsigned i = 0; s->tasks && i < s->n_tasks; i++)
        task_fini(&s->tasks[i]);
    if (s->guest.data)
        s->guest.free(s->guest.data);
    graph_scratch_destroy(s->graph_scratch);
    if (s->arena) {
        engine_register_buffers(s->engine, NULL, 0);
        memory_unmap(s->arena, (size_t)s->n_frames * s->frame_bytes);
    }
    free(s->tasks);
    free(s->ids);
    free(s->dots);
    free(s->estimates);
    free(s->pairs);
    free(s->runs);
    free(s->picks);
    free(s->nearest);
    free(s->beam);
    free(s->gains);
    free(s->edges);
    free(s->run_blocks);
    free(s->run_distances);
    free(s->slot_distances);
    free(s->heads);
    free(s->far_ends);
    while (s->free_postings)
        free_posting(s, s->free_postings);
    free(s);
}

struct graph_scratch *searcher_graph_scratch(struct searcher *s)
{
    if (!s->graph_scratch && graph_scratch_create(&s->graph_scratch, NULL) < 0)
        return NULL;
    return s->graph_scratch;
}

struct searcher_guest *searcher_guest(struct searcher *s)
{
    return &s->guest;
}

unsigned searcher_running(const struct searcher *s)
{
    return s->n_running + s->n_waiting;
}

unsigned searcher_waiting(const struct searcher *s)
{
    return s->n_waiting;
}

/* Registers the segment's files with this lane's engine the first time they meet. */
int searcher_attach(struct searcher *s, struct segment *segment)
{
    for (struct attachment *a = s->attachments; a; a = a->next)
        if (a->segment == segment)
            return 0;
    struct attachment *a = malloc(sizeof *a);
    if (!a)
        return QUIRE_ENOMEM;
    if (!s->frame_bytes)
        make_arena(s, segment->params.block_bytes);
    a->segment = segment_ref(segment);
    a->next = s->attachments;
    s->attachments = a;
    engine_attach(s->engine, section_file_io(segment->blocks));
    engine_attach(s->engine, section_file_io(segment->keys));
    if (segment->postings)
        engine_attach(s->engine, section_file_io(segment->postings));
    return 0;
}

void searcher_forget(struct searcher *s, struct segment *segment)
{
    for (struct attachment **at = &s->attachments; *at; at = &(*at)->next)
        if ((*at)->segment == segment) {
            struct attachment *gone = *at;
            *at = gone->next;
            engine_detach(s->engine, section_file_io(segment->blocks));
            engine_detach(s->engine, section_file_io(segment->keys));
            if (segment->postings)
                engine_detach(s->engine, section_file_io(segment->postings));
            free(gone);
            segment_unref(segment);
            return;
        }
}

static bool is_used(const struct searcher *s, const struct segment *segment)
{
    for (unsigned i = 0; i < s->n_tasks; i++)
        if (s->tasks[i].kind != TASK_FREE && s->tasks[i].segment == segment)
            return true;
    for (const struct search_request *r = s->waiting; r; r = r->next)
        if (r->segment == segment)
            return true;
    for (const struct fetch_request *r = s->waiting_fetch; r; r = r->next)
        if (r->segment == segment)
            return true;
    return false;
}

void searcher_sweep(struct searcher *s)
{
    for (struct attachment *a = s->attachments, *next; a; a = next) {
        next = a->next;
        if (atomic_load_explicit(&a->segment->retired, memory_order_relaxed) && !is_used(s, a->segment))
            searcher_forget(s, a->segment);
    }
}

static void begin(struct task *t)
{
    uint64_t generation = t->generation;
    t->step_ns = clock_ns();
    t->cpu_ns = 0;
    t->code = 0;
    t->n_reads = t->n_pending = 0;
    t->step_open = false;
    memset(&t->error, 0, sizeof t->error);
    t->searcher->n_running++;
    if (t->kind == TASK_SEARCH)
        search_begin(t);
    else
        fetch_begin(t);
    if (t->generation == generation)
        t->cpu_ns += clock_ns() - t->step_ns;
}

static struct task *take_task(struct searcher *s)
{
    struct task *t = s->free_tasks;
    if (t)
        s->free_tasks = t->next_free;
    return t;
}

static void start_search(struct task *t, struct search_request *request)
{
    t->kind = TASK_SEARCH;
    t->rank = request->rank;
    t->search = request;
    t->segment = request->segment;
    float *kept = request->kept_query; /* begin may end the task, and with it the request's life */
    begin(t);
    free(kept);
}

static void start_fetch(struct task *t, struct fetch_request *request)
{
    t->kind = TASK_FETCH;
    t->rank = 0;
    t->fetch = request;
    t->segment = request->segment;
    begin(t);
}

static void start_next_search(struct searcher *s)
{
    struct search_request *request = s->waiting;
    s->waiting = request->next;
    s->n_waiting--;
    start_search(take_task(s), request);
}

static void start_next_fetch(struct searcher *s)
{
    struct fetch_request *request = s->waiting_fetch;
    s->waiting_fetch = request->next;
    s->n_waiting--;
    start_fetch(take_task(s), request);
}

/* Gives free tasks to those that wait, searches and fetches in turn, so that neither starves the other. */
static void start_waiting(struct searcher *s)
{
    if (s->starting)
        return;
    s->starting = true;
    while (s->free_tasks && (s->waiting || s->waiting_fetch)) {
        bool fetch = s->waiting_fetch && (!s->waiting || s->fetch_turn);
        s->fetch_turn = !fetch;
        if (fetch)
            start_next_fetch(s);
        else
            start_next_search(s);
    }
    s->starting = false;
}

static int check_search(const struct search_request *request, struct quire_error *err)
{
    const struct quire_search_options *o = &request->options;
    if (o->k == 0 || o->k > QUIRE_K_MAX)
        return error_set(err, QUIRE_ERANGE, "k is %u: it must be 1..%u", o->k, QUIRE_K_MAX);
    if (!(o->recall >= 0 && o->recall <= 1))
        return error_set(err, QUIRE_ERANGE, "recall is %g: it must be above 0 and at most 1", (double)o->recall);
    int rc = space_check(&request->segment->space, request->query);
    if (rc == QUIRE_ENOTFINITE)
        return error_set(err, rc, "the query holds NaN, infinity or values too large to square");
    if (rc == QUIRE_EZEROVEC)
        return error_set(err, rc, "the query is a zero vector, which has no direction under the cosine metric");
    return 0;
}

/* Puts a request in line. Its query is copied, since the caller's is promised to be needed during the call only. */
static int wait_in_line(struct searcher *s, struct search_request *request, struct quire_error *err)
{
    size_t bytes = sizeof(float) * request->segment->params.dim;
    request->kept_query = malloc(bytes);
    if (!request->kept_query)
        return error_set(err, QUIRE_ENOMEM, "no memory to keep a waiting query of %zu bytes", bytes);
    memcpy(request->kept_query, request->query, bytes);
    request->query = request->kept_query;
    if (s->waiting)
        s->waiting_last->next = request;
    else
        s->waiting = request;
    s->waiting_last = request;
    s->n_waiting++;
    return 0;
}

int search_start(struct searcher *s, struct search_request *request, struct quire_error *err)
{
    int rc = s->cancelling ? error_set(err, QUIRE_ECANCELLED, "the lane is stopping") : check_search(request, err);
    if (rc == 0 && searcher_attach(s, request->segment) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory to attach a segment");
    if (rc < 0)
        return rc;
    request->next = NULL;
    request->kept_query = NULL;
    request->started_ns = clock_ns();
    if (!s->free_tasks || s->waiting)
        return wait_in_line(s, request, err);
    start_search(take_task(s), request);
    return 0;
}

int fetch_start(struct searcher *s, struct fetch_request *request, struct quire_error *err)
{
    if (s->cancelling)
        return error_set(err, QUIRE_ECANCELLED, "the lane is stopping");
    if (request->key ? request->key_bytes == 0 || request->key_bytes > QUIRE_KEY_BYTES_MAX
                     : request->row >= request->segment->params.rows)
        return request->key ? error_set(err, QUIRE_ERANGE, "a key has 1..%u bytes, not %u", QUIRE_KEY_BYTES_MAX,
                                        request->key_bytes)
                            : error_set(err, QUIRE_ERANGE, "row %u: there are %llu", request->row,
                                        (unsigned long long)request->segment->params.rows);
    if (searcher_attach(s, request->segment) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to attach a segment");
    request->next = NULL;
    if (s->free_tasks && !s->waiting_fetch) {
        start_fetch(take_task(s), request);
        return 0;
    }
    if (s->waiting_fetch)
        s->waiting_fetch_last->next = request;
    else
        s->waiting_fetch = request;
    s->waiting_fetch_last = request;
    s->n_waiting++;
    return 0;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Whether a buffer is a frame of the arena. */
static bool is_frame(const struct task *t, const uint8_t *buffer)
{
    const struct searcher *s = t->searcher;
    return s->arena && buffer >= s->arena && buffer < s->arena + (size_t)s->n_frames * s->frame_bytes;
}

static void release_frame(struct task *t, uint8_t *buffer)
{
    struct searcher *s = t->searcher;
    if (buffer && is_frame(t, buffer))
        s->free_frames[s->n_free++] = buffer;
}

/* Opens the blocks that are back, in the order asked for, and hands them on. */
static void open_blocks(struct task *t)
{
    while (t->on_block && t->n_opened < t->n_reads && t->reads[t->n_opened].back && t->code == 0) {
        struct block_view view;
        uint32_t i = t->n_opened++;
        int rc = task_open_block(t, i, &view);
        if (rc == 0)
            rc = t->on_block(t, &view);
        if (rc < 0)
            task_fail(t, rc, "%s", quire_error_text(rc));
        release_frame(t, t->reads[i].buffer);
        t->reads[i].buffer = NULL;
    }
}

static void serve_starving(struct searcher *s);

/* Goes on with a task as far as its reads have come. on_reads may end it and with it begin another request in the same
 * struct, whose step is looked at by this loop then. */
static void advance(struct task *t)
{
    if (t->advancing)
        return;
    uint64_t generation = t->generation;
    t->step_ns = clock_ns();
    t->advancing = true;
    while (t->step_open && !t->starving) {
        uint8_t *held[RERANK_MAX];
        open_blocks(t);
        if (t->n_pending > 0)
            break;
        uint32_t n = t->n_reads;
        for (uint32_t i = 0; i < n; i++)
            held[i] = t->reads[i].buffer;
        t->step_open = false;
        if (t->searcher->cancelling)
            task_finish(t, QUIRE_ECANCELLED);
        else
            t->on_reads(t);
        for (uint32_t i = 0; i < n; i++)
            release_frame(t, held[i]);
        serve_starving(t->searcher);
    }
    t->advancing = false;
    if (t->generation == generation)
        t->cpu_ns += clock_ns() - t->step_ns;
}

bool task_waits(struct task *t, struct io_op *op, int result)
{
    struct searcher *s = t->searcher;
    struct io_op **at = &s->ready;
    if (t->rank == 0 || s->working || s->cancelling)
        return false;
    if (s->ready && ((const struct task *)s->ready_last->owner)->rank <= t->rank)
        at = &s->ready_last->next;
    while (*at && ((const struct task *)(*at)->owner)->rank <= t->rank)
        at = &(*at)->next;
    op->state[0] = (uint64_t)(int64_t)result;
    op->next = *at;
    *at = op;
    if (!op->next)
        s->ready_last = op;
    return true;
}

static void run_ready(struct searcher *s)
{
    struct io_op *op = s->ready;
    s->ready = op->next;
    op->next = NULL;
    s->working = true;
    op->done(op, (int)(int64_t)op->state[0], 0);
    s->working = false;
}

bool searcher_has_steps(const struct searcher *s)
{
    return s->ready != NULL;
}

void searcher_work(struct searcher *s, uint64_t time_ns)
{
    if (!s->ready)
        return;
    uint64_t end_ns = clock_ns() + time_ns;
    do
        run_ready(s);
    while (s->ready && clock_ns() < end_ns);
}

/* One read of a step is back. */
static void on_read(struct io_op *op, int result, unsigned flags)
{
    struct task *t = op->owner;
    struct read_slot *slot = (struct read_slot *)(void *)((char *)op - offsetof(struct read_slot, op));
    (void)flags;
    if (task_waits(t, op, result))
        return;
    slot->result = result;
    slot->back = true;
    t->n_pending--;
    advance(t);
}

/* A step without reads has waited for its turn. */
static void on_turn(struct io_op *op, int result, unsigned flags)
{
    struct task *t = op->owner;
    (void)flags;
    if (task_waits(t, op, result))
        return;
    t->n_pending--;
    advance(t);
}

static void queue_read(struct task *t, uint32_t i, struct io_file *file, uint64_t offset, uint32_t bytes,
                       uint8_t *buffer)
{
    if (t->kind == TASK_SEARCH) {
        t->stats.reads++;
        t->stats.bytes += bytes;
    } else {
        t->fetch->reads++;
        t->fetch->bytes += bytes;
    }
    struct read_slot *r = &t->reads[i];
    memset(&r->op, 0, sizeof r->op);
    r->op.kind = IO_READ;
    r->op.file = file;
    r->op.offset = offset;
    r->op.buffer = buffer;
    r->op.bytes = bytes;
    r->op.done = on_read;
    r->op.owner = t;
    r->buffer = buffer;
    r->back = false;
    t->n_pending++;
    engine_queue(t->searcher->engine, &r->op);
}

static void begin_step(struct task *t, uint32_t n, int (*on_block)(struct task *, const struct block_view *),
                       void (*on_reads)(struct task *))
{
    t->n_reads = n;
    t->n_opened = 0;
    t->on_block = on_block;
    t->on_reads = on_reads;
    t->step_open = true;
}

void task_read_at(struct task *t, struct io_file *file, uint64_t offset, uint32_t bytes, uint8_t *buffer,
                  void (*on_reads)(struct task *))
{
    begin_step(t, 1, NULL, on_reads);
    queue_read(t, 0, file, offset, bytes, buffer);
}

/* A block that the segment keeps in memory needs no read. */
static bool take_cached(struct task *t, uint32_t i, uint8_t *buffer)
{
    struct read_slot *r = &t->reads[i];
    if (!t->segment->cache || !block_cache_get(t->segment->cache, r->block, buffer))
        return false;
    r->buffer = buffer;
    r->result = (int)t->segment->params.block_bytes;
    r->op = (struct io_op){.file = section_file_io(t->segment->blocks),
                           .offset = segment_block_offset(t->segment, r->block),
                           .bytes = t->segment->params.block_bytes};
    r->back = r->cached = true;
    if (t->kind == TASK_SEARCH)
        t->stats.cached++;
    return true;
}

/* Queues the block reads of a step, whose frames are there. */
static void queue_blocks(struct task *t)
{
    struct searcher *s = t->searcher;
    uint32_t bytes = t->segment->params.block_bytes;
    bool frames = s->arena && bytes <= s->frame_bytes;
    for (uint32_t i = 0; i < t->n_reads; i++) {
        uint8_t *buffer = frames ? s->free_frames[--s->n_free] : t->buffers + (size_t)i * bytes;
        if (take_cached(t, i, buffer))
            continue;
        queue_read(t, i, section_file_io(t->segment->blocks), segment_block_offset(t->segment, t->reads[i].block),
                   bytes, buffer);
    }
    if (t->n_pending > 0)
        return;
    t->turn = (struct io_op){.kind = IO_TIMER, .done = on_turn, .owner = t};
    t->n_pending++;
    engine_queue(s->engine, &t->turn);
}

static bool has_frames(const struct task *t)
{
    const struct searcher *s = t->searcher;
    return !s->arena || t->segment->params.block_bytes > s->frame_bytes || s->n_free >= t->n_reads;
}

void task_read_blocks(struct task *t, const uint32_t *blocks, uint32_t n,
                      int (*on_block)(struct task *, const struct block_view *), void (*on_reads)(struct task *))
{
    struct searcher *s = t->searcher;
    begin_step(t, n, on_block, on_reads);
    for (uint32_t i = 0; i < n; i++)
        t->reads[i] = (struct read_slot){.block = blocks[i]};
    t->starving = s->starving || !has_frames(t);
    if (!t->starving) {
        queue_blocks(t);
        return;
    }
    t->next_starving = NULL;
    if (s->starving)
        s->starving_last->next_starving = t;
    else
        s->starving = t;
    s->starving_last = t;
}

/* Frames are free again: those who wait for them get them, first come first served. A step gets all of its frames or
 * none, so that no two wait for each other. */
static void serve_starving(struct searcher *s)
{
    if (s->serving)
        return;
    s->serving = true;
    while (s->starving && (s->cancelling || has_frames(s->starving))) {
        struct task *t = s->starving;
        s->starving = t->next_starving;
        t->starving = false;
        if (!s->cancelling) {
            queue_blocks(t);
            continue;
        }
        t->n_reads = 0;
        advance(t);
    }
    s->serving = false;
}

/* Room for `bytes` in t->wide. */
static int reserve_wide(struct task *t, size_t bytes)
{
    if (bytes <= t->wide_bytes)
        return 0;
    uint8_t *bigger = memory_aligned(4096, bytes);
    if (!bigger)
        return QUIRE_ENOMEM;
    memory_free(t->wide);
    t->wide = bigger;
    t->wide_bytes = bytes;
    return 0;
}

int task_read_runs(struct task *t, const struct block_run *runs, uint32_t n, void (*on_reads)(struct task *))
{
    uint32_t block_bytes = t->segment->params.block_bytes;
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += (size_t)runs[i].n * block_bytes;
    if (reserve_wide(t, bytes) < 0) {
        task_fail(t, QUIRE_ENOMEM, "no memory for %zu bytes of blocks", bytes);
        return t->code;
    }
    begin_step(t, n, NULL, on_reads);
    uint8_t *to = t->wide;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t run_bytes = runs[i].n * block_bytes;
        t->reads[i] = (struct read_slot){.block = runs[i].first};
        queue_read(t, i, section_file_io(t->segment->blocks), segment_block_offset(t->segment, runs[i].first),
                   run_bytes, to);
        to += run_bytes;
    }
    return 0;
}

int task_read_record(struct task *t, struct io_file *file, uint64_t offset, uint64_t bytes, uint64_t end,
                     void (*on_reads)(struct task *))
{
    uint64_t begin = offset / 4096 * 4096;
    if (offset > end || bytes > end - offset) {
        task_fail(t, QUIRE_ECORRUPT, "%s: a record of %llu bytes at offset %llu lies outside its section", file->path,
                  (unsigned long long)bytes, (unsigned long long)offset);
        return t->code;
    }
    size_t span = (size_t)((offset + bytes - begin + 4095) / 4096 * 4096);
    if (reserve_wide(t, span) < 0) {
        task_fail(t, QUIRE_ENOMEM, "no memory for a record of %zu bytes", span);
        return t->code;
    }
    task_read_at(t, file, begin, (uint32_t)span, t->wide, on_reads);
    return 0;
}

int task_read_key(struct task *t, uint64_t at, uint32_t length, void (*on_reads)(struct task *))
{
    const struct segment *s = t->segment;
    return task_read_record(t, section_file_io(s->keys), s->heap_at + at, RECORD_HEADER_BYTES + (uint64_t)length,
                            s->heap_at + s->heap_bytes, on_reads);
}

int task_take_key(struct task *t, uint64_t at, uint32_t length, const uint8_t **key)
{
    const struct segment *s = t->segment;
    const uint8_t *record = t->wide + (s->heap_at + at) % 4096;
    if (task_check_read(t, 0, "read of a key") < 0)
        return t->code;
    if (load_u64(record) != format_record_checksum(record + RECORD_HEADER_BYTES, length, s->segment_id)) {
        task_fail(t, QUIRE_ECORRUPT, "key record of %s at offset %llu is damaged: wrong checksum",
                  section_file_io(s->keys)->path, (unsigned long long)(s->heap_at + at));
        return t->code;
    }
    *key = record + RECORD_HEADER_BYTES;
    return 0;
}

void task_fail(struct task *t, int code, const char *format, ...)
{
    va_list arguments;
    if (t->code < 0)
        return;
    va_start(arguments, format);
    vsnprintf(t->error.message, sizeof t->error.message, format, arguments);
    va_end(arguments);
    t->error.code = code;
    t->error.where = __func__;
    t->code = code;
}

int task_check_read(struct task *t, uint32_t i, const char *what)
{
    const struct read_slot *r = &t->reads[i];
    if (r->result == (int)r->op.bytes)
        return 0;
    int code = r->result < 0 ? r->result : QUIRE_ESHORTREAD;
    task_fail(t, code, "%s of %s at offset %llu: %s (%d of %u bytes)", what, r->op.file->path,
              (unsigned long long)r->op.offset, quire_error_text(code), r->result < 0 ? 0 : r->result, r->op.bytes);
    return code;
}

/* Block `block` at `base`, which read i has brought. */
static int open_at(struct task *t, uint32_t i, uint32_t block, const uint8_t *base, struct block_view *view)
{
    const struct segment *s = t->segment;
    const struct read_slot *r = &t->reads[i];
    struct quire_error err = {0};
    int rc = block_open(base, &s->shape, block, r->cached ? NULL : s->segment_id, view, &err);
    uint32_t first = block * s->params.slots_per_block, expected = params_block_rows(&s->params, block);
    if (rc == 0 && (view->first_row != first || view->n_slots != expected))
        rc = error_set(&err, QUIRE_ECORRUPT, "holds %u rows from %u, expected %u from %u", view->n_slots,
                       view->first_row, expected, first);
    if (rc < 0)
        task_fail(t, rc, "block %u of %s at offset %llu is damaged: %s", block, r->op.file->path,
                  (unsigned long long)segment_block_offset(s, block), err.message);
    return rc;
}

int task_open_block(struct task *t, uint32_t i, struct block_view *view)
{
    const struct read_slot *r = &t->reads[i];
    int rc = task_check_read(t, i, "read of a block");
    if (rc == 0)
        rc = open_at(t, i, r->block, r->buffer, view);
    if (rc == 0 && t->segment->cache && !r->cached)
        block_cache_offer(t->segment->cache, r->block, r->buffer);
    return rc;
}

int task_open_run(struct task *t, uint32_t i, uint32_t j, struct block_view *view)
{
    const struct read_slot *r = &t->reads[i];
    return open_at(t, i, r->block + j, r->buffer + (size_t)j * t->segment->params.block_bytes, view);
}

void task_finish(struct task *t, int code)
{
    struct searcher *s = t->searcher;
    if (code < 0 && t->code == 0)
        task_fail(t, code, "%s", quire_error_text(code));
    if (t->kind == TASK_SEARCH)
        search_end(t, t->code);
    else
        fetch_end(t, t->code);
    t->kind = TASK_FREE;
    t->generation++;
    if (t->wide_bytes > WIDE_KEPT) {
        memory_free(t->wide);
        t->wide = NULL;
        t->wide_bytes = 0;
    }
    if (t->k_capacity > K_KEPT || t->priors_capacity > PRIORS_KEPT || t->lists_capacity > PRIORS_KEPT ||
        t->candidates_capacity > CANDIDATES_KEPT)
        give_results_back(t);
    t->next_free = s->free_tasks;
    s->free_tasks = t;
    if (--s->n_running == 0)
        give_scratch_back(s);
    if (!s->cancelling)
        start_waiting(s);
}

static void cancel_waiting(struct searcher *s)
{
    struct search_request *search = s->waiting;
    struct fetch_request *fetch = s->waiting_fetch;
    s->waiting = NULL;
    s->waiting_fetch = NULL;
    s->n_waiting = 0;
    while (search) {
        struct search_request *next = search->next;
        search->code = error_set(&search->error, QUIRE_ECANCELLED, "the search was cancelled before it began");
        search->hits = NULL;
        search->n_hits = 0;
        memset(&search->stats, 0, sizeof search->stats);
        free(search->kept_query);
        search->done(search);
        search = next;
    }
    while (fetch) {
        struct fetch_request *next = fetch->next;
        fetch->code = error_set(&fetch->error, QUIRE_ECANCELLED, "the look-up was cancelled before it began");
        fetch->done(fetch);
        fetch = next;
    }
}

void searcher_cancel(struct searcher *s)
{
    s->cancelling = true;
    cancel_waiting(s);
    while (s->ready)
        run_ready(s);
    serve_starving(s);
    while (s->n_running > 0)
        if (engine_poll(s->engine, 1, UINT64_MAX) < 0)
            break;
    s->cancelling = false;
}
