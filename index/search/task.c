/*
 * task.c - the step machine of a lane: requests get tasks, steps read, errors are noted, tasks end.
 *
 * A task is a struct with a pointer to what comes next (on_reads). A step queues some reads and returns to the lane's
 * loop; blocks are handed on as they come, but in the order in which they were asked for, so a query's result does not
 * depend on which completion came first; when the last is back, on_reads runs. A step whose blocks are all in the cache
 * takes a turn through the engine, too: whoever starts a search returns before it ends, whatever is cached.
 *
 * Where requests have priorities, what is back is not handed on within engine_poll: it waits in a list by priority, and
 * searcher_work takes from its front. A loop that polls between two steps so lets a search that stands alone for its
 * user pass the steps of many others: in each of its rounds it waits for the one step that was running when its reads
 * came. Without priorities there is no list, and no step is later than it could be.
 *
 * Where frames, buffers or the device are what is waited for, the oldest request goes first: one that needs many steps
 * is not overtaken at each of them by those that began later, and nobody waits for ever, as whoever is before one ends.
 *
 * A request that finds no free task waits in line. `done` runs while the task still holds the answer; it may start new
 * requests. Errors of a read are kept until all reads of the step are back, because their buffers belong to the engine
 * until then.
 */
#include "index/search/task.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDE_KEPT      65536u     /* bytes of a record, or of blocks that were read at once, that a task keeps */
#define WIDE_SPARE_MAX (4u << 20) /* that a lane keeps */

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Makes *buffer at least so large, whole pages; what was in it is lost. */
static int reserve_pages(uint8_t **buffer, size_t *capacity, size_t bytes)
{
    if (bytes <= *capacity)
        return 0;
    uint8_t *bigger = memory_map_alone(bytes, 0);
    if (!bigger)
        return QUIRE_ENOMEM;
    memory_unmap(*buffer, *capacity);
    *buffer = bigger;
    *capacity = bytes;
    return 0;
}

/* The lane keeps one that is larger than tasks keep, for the next that needs such: pages that come and go cost more
 * than what is read into them. */
static void keep_wide(struct searcher *s, uint8_t *wide, size_t bytes)
{
    bool keeps = bytes <= WIDE_SPARE_MAX && bytes > s->spare.bytes;
    uint8_t *gone = keeps ? s->spare.wide : wide;
    memory_unmap(gone, keeps ? s->spare.bytes : bytes);
    if (keeps) {
        s->spare.wide = wide;
        s->spare.bytes = bytes;
    }
}

static int reserve_wide(struct task *t, size_t bytes)
{
    struct searcher *s = t->searcher;
    if (bytes <= t->wide_bytes || bytes > s->spare.bytes || bytes <= WIDE_KEPT)
        return reserve_pages(&t->wide, &t->wide_bytes, bytes < WIDE_KEPT ? WIDE_KEPT : bytes);
    memory_unmap(t->wide, t->wide_bytes);
    t->wide = s->spare.wide;
    t->wide_bytes = s->spare.bytes;
    s->spare.wide = NULL;
    s->spare.bytes = 0;
    return 0;
}

/* Whether the task's blocks are read into frames of the lane; those that are larger, into memory of its own. */
static bool uses_frames(const struct task *t)
{
    const struct searcher *s = t->searcher;
    return s->frames.arena && t->segment->params.block_bytes <= s->frames.bytes;
}

uint32_t task_blocks_max(const struct task *t, bool scanning)
{
    const struct searcher *s = t->searcher;
    if (t->segment->lists)
        return s->frames.arena && s->frames.n < READS_MAX ? s->frames.n : READS_MAX;
    if (!scanning || !uses_frames(t))
        return BEAM_MAX; /* what its own buffers have space for */
    return s->frames.n < SCAN_MAX ? s->frames.n : SCAN_MAX;
}

int task_reserve(struct task *t)
{
    if (score_reserve(t) < 0)
        return QUIRE_ENOMEM;
    if (uses_frames(t))
        return 0;
    return reserve_pages(&t->buffers, &t->buffers_bytes,
                         (size_t)task_blocks_max(t, false) * t->segment->params.block_bytes);
}

void task_fini(struct task *t)
{
    memory_unmap(t->buffers, t->buffers_bytes);
    memory_unmap(t->wide, t->wide_bytes);
    memory_free(t->query.user);
    memory_unmap(t->fetch.page, PAGE_BYTES);
    free(t->fetch.key);
    free(t->fetch.links);
    free(t->search.probed);
    free(t->search.recent);
    search_free_results(&t->search);
}

void task_enter(struct task *t)
{
    t->step_ns = clock_ns();
}

static void start_waiting(struct searcher *s);

/* The only end of a task. */
static void finish(struct task *t)
{
    struct searcher *s = t->searcher;
    assert(t->kind && !t->open && !t->waits && t->n_pending == 0);
    t->kind->end(t);
    t->kind = NULL;
    t->generation++;
    if (t->wide_bytes > WIDE_KEPT) {
        keep_wide(s, t->wide, t->wide_bytes);
        t->wide = NULL;
        t->wide_bytes = 0;
    }
    t->next_free = s->free_tasks;
    s->free_tasks = t;
    assert(s->n_running > 0);
    if (--s->n_running == 0)
        searcher_trim(s);
    if (!s->cancelling)
        start_waiting(s);
}

void task_leave(struct task *t, enum step step)
{
    if (step == STEP_DONE)
        finish(t);
    else
        t->cpu_ns += clock_ns() - t->step_ns;
}

static void begin(struct searcher *s, struct task_ticket *ticket)
{
    struct task *t = s->free_tasks;
    assert(!t->kind && !t->open && t->n_pending == 0);
    s->free_tasks = t->next_free;
    s->n_running++;
    t->kind = ticket->kind;
    t->segment = ticket->segment;
    t->priority = ticket->priority;
    t->rank = ticket->rank;
    t->code = 0;
    t->n_reads = 0;
    t->cpu_ns = 0;
    memset(&t->cost, 0, sizeof t->cost);
    memset(&t->error, 0, sizeof t->error);
    task_enter(t);
    task_leave(t, t->kind->begin(t, ticket));
}

void task_start(struct searcher *s, struct task_ticket *ticket)
{
    unsigned line = ticket->kind->line;
    ticket->next = NULL;
    ticket->rank = s->n_asked++;
    if (!task_must_wait(s, ticket->kind)) {
        begin(s, ticket);
        return;
    }
    if (s->lines[line].first)
        s->lines[line].last->next = ticket;
    else
        s->lines[line].first = ticket;
    s->lines[line].last = ticket;
    s->n_waiting++;
}

/* Gives free tasks to those that wait, searches and fetches in turn, so that neither starves the other. */
static void start_waiting(struct searcher *s)
{
    if (s->starting)
        return;
    s->starting = true;
    while (s->free_tasks && s->n_waiting > 0) {
        unsigned line = s->lines[s->next_line].first ? s->next_line : (s->next_line + 1) % N_LINES;
        struct task_ticket *ticket = s->lines[line].first;
        s->next_line = (line + 1) % N_LINES;
        s->lines[line].first = ticket->next;
        s->n_waiting--;
        begin(s, ticket);
    }
    s->starting = false;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

enum step task_fail_at(struct task *t, const char *where, int code, const char *format, ...)
{
    va_list arguments;
    assert(code < 0);
    if (t->code < 0)
        return STEP_DONE;
    va_start(arguments, format);
    vsnprintf(t->error.message, sizeof t->error.message, format, arguments);
    va_end(arguments);
    t->error.code = code;
    t->error.where = where;
    t->code = code;
    return STEP_DONE;
}

enum step task_no_memory_at(struct task *t, const char *where)
{
    return task_fail_at(t, where, QUIRE_ENOMEM, "%s", quire_error_text(QUIRE_ENOMEM));
}

int task_check_result(struct task *t, const struct io_op *op, int result, const char *what)
{
    if (result == (int)op->bytes)
        return 0;
    int code = result < 0 ? result : QUIRE_ESHORTREAD;
    task_fail(t, code, "%s of %s at offset %llu: %s (%d of %u bytes)", what, op->file->path,
              (unsigned long long)op->offset, quire_error_text(code), result < 0 ? 0 : result, op->bytes);
    return code;
}

int task_check_read(struct task *t, uint32_t i, const char *what)
{
    assert(i < t->n_reads && t->reads[i].back);
    return task_check_result(t, &t->reads[i].op, t->reads[i].result, what);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void release_frame(struct task *t, uint8_t *buffer)
{
    struct searcher *s = t->searcher;
    if (!s->frames.arena || buffer < s->frames.arena ||
        buffer >= s->frames.arena + (size_t)s->frames.n * s->frames.bytes)
        return;
    assert(s->frames.n_free < s->frames.n);
    s->frames.free[s->frames.n_free++] = buffer;
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

static void serve_frames(struct searcher *s);

/* Goes on with a task as far as its reads have come. on_reads may end it and with it begin another request in the same
 * struct, whose step is looked at by this loop then. */
static void advance(struct task *t)
{
    if (t->advancing)
        return;
    uint64_t generation = t->generation;
    task_enter(t);
    t->advancing = true;
    while (t->open && !t->waits) {
        uint8_t *held[READS_MAX];
        open_blocks(t);
        if (t->n_pending > 0)
            break;
        uint32_t n = t->n_reads;
        for (uint32_t i = 0; i < n; i++)
            held[i] = t->reads[i].buffer;
        t->open = false;
        if (t->searcher->cancelling)
            task_fail(t, QUIRE_ECANCELLED, "%s", quire_error_text(QUIRE_ECANCELLED));
        if (t->searcher->cancelling || t->on_reads(t) == STEP_DONE)
            finish(t);
        for (uint32_t i = 0; i < n; i++)
            release_frame(t, held[i]);
        serve_frames(t->searcher);
    }
    t->advancing = false;
    if (t->generation == generation)
        t->cpu_ns += clock_ns() - t->step_ns;
}

bool task_waits(struct task *t, struct io_op *op, int result)
{
    struct searcher *s = t->searcher;
    struct io_op **at = &s->ready;
    if (t->priority == 0 || s->working || s->cancelling)
        return false;
    if (s->ready && ((const struct task *)s->ready_last->owner)->priority <= t->priority)
        at = &s->ready_last->next;
    while (*at && ((const struct task *)(*at)->owner)->priority <= t->priority)
        at = &(*at)->next;
    op->state[0] = (uint64_t)(int64_t)result;
    op->next = *at;
    *at = op;
    if (!op->next)
        s->ready_last = op;
    return true;
}

void task_run_ready(struct searcher *s)
{
    struct io_op *op = s->ready;
    assert(!s->working);
    s->ready = op->next;
    op->next = NULL;
    s->working = true;
    op->done(op, (int)(int64_t)op->state[0], 0);
    s->working = false;
}

/* One read of a step is back; or, of a step without reads, its turn has come. */
static void on_read(struct io_op *op, int result, unsigned flags)
{
    struct task *t = op->owner;
    (void)flags;
    if (task_waits(t, op, result))
        return;
    if (op != &t->turn) {
        struct read_slot *slot = (struct read_slot *)(void *)((char *)op - offsetof(struct read_slot, op));
        slot->result = result;
        slot->back = true;
    }
    assert(t->open && t->n_pending > 0);
    t->n_pending--;
    advance(t);
}

static void queue_read(struct task *t, uint32_t i, struct io_file *file, uint64_t offset, uint32_t bytes,
                       uint8_t *buffer)
{
    struct read_slot *r = &t->reads[i];
    t->cost.reads++;
    t->cost.bytes += bytes;
    r->op = (struct io_op){.kind = IO_READ,
                           .file = file,
                           .offset = offset,
                           .buffer = buffer,
                           .bytes = bytes,
                           .rank = t->rank,
                           .done = on_read,
                           .owner = t};
    r->buffer = buffer;
    r->back = false;
    t->n_pending++;
    engine_queue(t->searcher->engine, &r->op);
}

static void begin_step(struct task *t, uint32_t n, int (*on_block)(struct task *, const struct block_view *),
                       enum step (*on_reads)(struct task *))
{
    assert(!t->open && t->n_pending == 0 && n > 0 && n <= READS_MAX && t->code == 0);
    t->n_reads = n;
    t->n_opened = 0;
    t->on_block = on_block;
    t->on_reads = on_reads;
    t->open = true;
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
    t->cost.cached++;
    return true;
}

/* Queues the block reads of a step, whose frames are there. */
static void queue_blocks(struct task *t)
{
    struct searcher *s = t->searcher;
    uint32_t bytes = t->segment->params.block_bytes;
    bool frames = uses_frames(t);
    for (uint32_t i = 0; i < t->n_reads; i++) {
        uint8_t *buffer = frames ? s->frames.free[--s->frames.n_free] : t->buffers + (size_t)i * bytes;
        if (!take_cached(t, i, buffer))
            queue_read(t, i, section_file_io(t->segment->blocks), segment_block_offset(t->segment, t->reads[i].block),
                       bytes, buffer);
    }
    if (t->n_pending > 0)
        return;
    t->turn = (struct io_op){.kind = IO_TIMER, .done = on_read, .owner = t};
    t->n_pending++;
    engine_queue(s->engine, &t->turn);
}

static bool has_frames(const struct task *t)
{
    return !uses_frames(t) || t->searcher->frames.n_free >= t->n_reads;
}

enum step task_read_blocks(struct task *t, const uint32_t *blocks, uint32_t n,
                           int (*on_block)(struct task *, const struct block_view *),
                           enum step (*on_reads)(struct task *))
{
    struct task_queue *queue = &t->searcher->frames.queue;
    assert(!uses_frames(t) || n <= t->searcher->frames.n);
    begin_step(t, n, on_block, on_reads);
    for (uint32_t i = 0; i < n; i++) {
        assert(blocks[i] < t->segment->params.n_blocks);
        t->reads[i] = (struct read_slot){.block = blocks[i]};
    }
    if ((queue->first && queue->first->rank < t->rank) || !has_frames(t))
        task_queue_add(queue, t);
    else
        queue_blocks(t);
    return STEP_READS;
}

/* Frames are free again: those who wait for them get them, the oldest request first. A step gets all of its frames or
 * none, so that no two wait for each other. */
static void serve_frames(struct searcher *s)
{
    struct task_queue *queue = &s->frames.queue;
    if (s->serving)
        return;
    s->serving = true;
    while (queue->first && (s->cancelling || has_frames(queue->first))) {
        struct task *t = task_queue_take(queue);
        if (!s->cancelling) {
            queue_blocks(t);
            continue;
        }
        t->n_reads = 0;
        advance(t);
    }
    s->serving = false;
}

enum step task_read_at(struct task *t, struct io_file *file, uint64_t offset, uint32_t bytes, uint8_t *buffer,
                       enum step (*on_reads)(struct task *))
{
    begin_step(t, 1, NULL, on_reads);
    queue_read(t, 0, file, offset, bytes, buffer);
    return STEP_READS;
}

enum step task_read_runs(struct task *t, const struct block_run *runs, uint32_t n, enum step (*on_reads)(struct task *))
{
    uint32_t block_bytes = t->segment->params.block_bytes;
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += (size_t)runs[i].n * block_bytes;
    if (reserve_wide(t, bytes) < 0)
        return task_fail(t, QUIRE_ENOMEM, "no memory for %zu bytes of blocks", bytes);
    begin_step(t, n, NULL, on_reads);
    uint8_t *to = t->wide;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t run_bytes = runs[i].n * block_bytes;
        t->reads[i] = (struct read_slot){.block = runs[i].first};
        queue_read(t, i, section_file_io(t->segment->blocks), segment_block_offset(t->segment, runs[i].first),
                   run_bytes, to);
        to += run_bytes;
    }
    return STEP_READS;
}

enum step task_read_record(struct task *t, struct io_file *file, uint64_t offset, uint64_t bytes, uint64_t end,
                           enum step (*on_reads)(struct task *))
{
    uint64_t first = offset / 4096 * 4096;
    if (offset > end || bytes > end - offset)
        return task_fail(t, QUIRE_ECORRUPT, "%s: a record of %llu bytes at offset %llu lies outside its section",
                         file->path, (unsigned long long)bytes, (unsigned long long)offset);
    size_t span = (size_t)((offset + bytes - first + 4095) / 4096 * 4096);
    if (reserve_wide(t, span) < 0)
        return task_fail(t, QUIRE_ENOMEM, "no memory for a record of %zu bytes", span);
    return task_read_at(t, file, first, (uint32_t)span, t->wide, on_reads);
}

enum step task_read_key(struct task *t, uint64_t at, uint32_t length, enum step (*on_reads)(struct task *))
{
    const struct segment *s = t->segment;
    return task_read_record(t, section_file_io(s->keys), s->heap_at + at, RECORD_HEADER_BYTES + (uint64_t)length,
                            s->heap_at + s->heap_bytes, on_reads);
}

const uint8_t *task_take_key(struct task *t, uint64_t at, uint32_t length)
{
    const struct segment *s = t->segment;
    const uint8_t *record = t->wide + (s->heap_at + at) % 4096;
    if (task_check_read(t, 0, "read of a key") < 0)
        return NULL;
    if (bytes_load_u64(record) == format_record_checksum(record + RECORD_HEADER_BYTES, length, s->segment_id))
        return record + RECORD_HEADER_BYTES;
    task_fail(t, QUIRE_ECORRUPT, "key record of %s at offset %llu is damaged: wrong checksum",
              section_file_io(s->keys)->path, (unsigned long long)(s->heap_at + at));
    return NULL;
}

/* Block `block` at `base`, which read i has brought. */
static int open_at(struct task *t, uint32_t i, uint32_t block, const uint8_t *base, struct block_view *view)
{
    const struct segment *s = t->segment;
    const struct read_slot *r = &t->reads[i];
    struct quire_error err = {0};
    int rc = block_open(base, &s->shape, block, r->cached ? NULL : s->segment_id, view, &err);
    uint32_t first = block * s->params.slots_per_block, expected = format_block_rows(&s->params, block);
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
    assert(i < t->n_reads && r->back);
    return open_at(t, i, r->block + j, r->buffer + (size_t)j * t->segment->params.block_bytes, view);
}

/* ---- cancelling -------------------------------------------------------------------------------------------------- */

void task_cancel_waiting(struct searcher *s)
{
    struct task_ticket *waiting[N_LINES];
    assert(s->cancelling);
    for (unsigned i = 0; i < N_LINES; i++) {
        waiting[i] = s->lines[i].first;
        s->lines[i].first = NULL;
    }
    s->n_waiting = 0;
    for (unsigned i = 0; i < N_LINES; i++)
        for (struct task_ticket *ticket = waiting[i], *next; ticket; ticket = next) {
            next = ticket->next;
            ticket->kind->cancel(ticket);
        }
    while (s->ready)
        task_run_ready(s);
    serve_frames(s);
}
