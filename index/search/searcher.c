/*
 * searcher.c - what the tasks of a lane share: frames for blocks, buffers for lists, files of segments, scratch.
 *
 * Memory: a task's arrays grow to the largest segment and k that it has served and stay, but for those above the bounds
 * in search_priv.h; after warm-up a search for up to K_KEPT neighbours allocates nothing, keys above the inline size
 * apart, as long as it looks at no more blocks and lists than are kept.
 */
#include "index/graph/graph.h"
#include "index/search/task.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>

#define TASKS_DEFAULT   32u
#define TASKS_MAX       4096u
#define ARENA_BYTES_MAX (512u << 10) /* frames of a lane, BEAM_MAX of them at least */
#define POSTINGS_MIN    8u
#define POSTINGS_MAX    64u
#define POSTINGS_BYTES  (2u << 20)

struct attachment {
    struct segment *segment;
    struct attachment *next;
};

/* ---- buffers of lists --------------------------------------------------------------------------------------------
 *
 * A lane has at most POSTINGS_MAX of them and POSTINGS_BYTES, all of the size of the longest list that it has met. A
 * task takes one for each list that it reads and gives it back as soon as that is scanned, so that no task keeps what
 * another waits for while it waits itself. */

static void free_posting_block(struct searcher *s, struct posting_block_read *read)
{
    assert(s->postings.n > 0);
    memory_unmap(read->buffer, read->buffer_bytes);
    free(read);
    s->postings.n--;
}

static void free_posting_blocks(struct searcher *s)
{
    for (struct posting_block_read *read = s->postings.free, *next; read; read = next) {
        next = read->next_free;
        free_posting_block(s, read);
    }
    s->postings.free = NULL;
}

struct posting_block_read *searcher_take_posting_block(struct searcher *s, uint32_t bytes)
{
    if (bytes > s->postings.bytes) {
        s->postings.bytes = bytes;
        free_posting_blocks(s);
    }
    struct posting_block_read *read = s->postings.free;
    if (read) {
        s->postings.free = read->next_free;
        assert(read->buffer_bytes == s->postings.bytes);
        return read;
    }
    uint32_t n = s->postings.n;
    if (n >= POSTINGS_MIN && (n >= POSTINGS_MAX || (uint64_t)n * s->postings.bytes >= POSTINGS_BYTES))
        return NULL;
    read = calloc(1, sizeof *read);
    if (!read)
        return NULL;
    read->buffer = memory_map_alone(s->postings.bytes, 0);
    read->buffer_bytes = s->postings.bytes;
    s->postings.n++;
    if (!read->buffer) {
        free_posting_block(s, read);
        return NULL;
    }
    return read;
}

void searcher_return_posting_block(struct searcher *s, struct posting_block_read *read)
{
    if (read->buffer_bytes < s->postings.bytes) {
        free_posting_block(s, read);
        return;
    }
    read->next_free = s->postings.free;
    s->postings.free = read;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

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
    if (!s->tasks) {
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

/* Lets go of the files of a segment and of its reference; no task may be using it. */
static void forget(struct searcher *s, struct segment *segment)
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

void searcher_destroy(struct searcher *s)
{
    if (!s)
        return;
    while (s->attachments)
        forget(s, s->attachments->segment);
    for (unsigned i = 0; s->tasks && i < s->n_tasks; i++)
        task_fini(&s->tasks[i]);
    if (s->guest.data)
        s->guest.free(s->guest.data);
    graph_scratch_destroy(s->graph_scratch);
    if (s->frames.arena) {
        engine_register_buffers(s->engine, NULL, 0);
        memory_unmap(s->frames.arena, (size_t)s->frames.n * s->frames.bytes);
    }
    free_posting_blocks(s);
    memory_unmap(s->spare.wide, s->spare.bytes);
    free(s->found.nearest);
    free(s->found.beam);
    free(s->found.gains);
    free(s->found.edges);
    free(s->found.known);
    free(s->found.heads);
    free(s->found.far_ends);
    free(s->scratch.slot_distances);
    free(s->tasks);
    free(s);
}

void searcher_trim(struct searcher *s)
{
    struct search_scratch *f = &s->found;
    assert(s->n_running == 0);
    if (f->heads_capacity > SCRATCH_KEPT) {
        free(f->heads);
        free(f->far_ends);
        f->heads = NULL;
        f->far_ends = NULL;
        f->heads_capacity = f->far_ends_capacity = 0;
    }
    if (f->known_capacity > 2 * K_KEPT) {
        free(f->known);
        f->known = NULL;
        f->known_capacity = 0;
    }
    if (f->gains_mask < GAINS_KEPT && f->nearest_capacity <= SCRATCH_KEPT)
        return;
    free(f->gains);
    free(f->nearest);
    free(f->beam);
    f->gains = NULL;
    f->nearest = NULL;
    f->beam = NULL;
    f->gains_mask = f->nearest_capacity = f->beam_capacity = 0;
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
        task_run_ready(s);
    while (s->ready && clock_ns() < end_ns);
}

void searcher_cancel(struct searcher *s)
{
    s->cancelling = true;
    task_cancel_waiting(s);
    while (s->n_running > 0)
        if (engine_poll(s->engine, 1, UINT64_MAX) < 0)
            break;
    s->cancelling = false;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* Frames for the blocks that are being read, registered so that the kernel need not pin their pages for each read. They
 * are made for the blocks of the first segment that this lane serves. Without them (no locked memory left) tasks use
 * memory of their own. */
static void make_frames(struct searcher *s, uint32_t frame_bytes)
{
    unsigned wanted = s->n_tasks * BEAM_MAX < READS_MAX ? READS_MAX : s->n_tasks * BEAM_MAX;
    uint32_t n = wanted < FRAMES_MAX ? wanted : FRAMES_MAX;
    while (n > BEAM_MAX && (size_t)n * frame_bytes > ARENA_BYTES_MAX)
        n--;
    uint8_t *arena = memory_map_alone((size_t)n * frame_bytes, 0);
    if (arena && engine_register_buffers(s->engine, arena, (size_t)n * frame_bytes) < 0) {
        memory_unmap(arena, (size_t)n * frame_bytes);
        arena = NULL;
    }
    s->frames.arena = arena;
    s->frames.n = s->frames.n_free = arena ? n : 0;
    s->frames.bytes = frame_bytes;
    for (uint32_t i = 0; i < s->frames.n; i++)
        s->frames.free[i] = arena + (size_t)i * frame_bytes;
}

int searcher_attach(struct searcher *s, struct segment *segment, struct quire_error *err)
{
    if (s->cancelling)
        return error_set(err, QUIRE_ECANCELLED, "the lane is stopping");
    for (struct attachment *a = s->attachments; a; a = a->next)
        if (a->segment == segment)
            return 0;
    struct attachment *a = malloc(sizeof *a);
    if (!a)
        return error_set(err, QUIRE_ENOMEM, "no memory to attach a segment");
    if (!s->frames.bytes)
        make_frames(s, segment->params.block_bytes);
    a->segment = segment_ref(segment);
    a->next = s->attachments;
    s->attachments = a;
    engine_attach(s->engine, section_file_io(segment->blocks));
    engine_attach(s->engine, section_file_io(segment->keys));
    if (segment->postings)
        engine_attach(s->engine, section_file_io(segment->postings));
    return 0;
}

static bool is_used(const struct searcher *s, const struct segment *segment)
{
    for (unsigned i = 0; i < s->n_tasks; i++)
        if (s->tasks[i].kind && s->tasks[i].segment == segment)
            return true;
    for (unsigned line = 0; line < N_LINES; line++)
        for (const struct task_ticket *ticket = s->lines[line].first; ticket; ticket = ticket->next)
            if (ticket->segment == segment)
                return true;
    return false;
}

void searcher_drop_retired(struct searcher *s)
{
    for (struct attachment *a = s->attachments, *next; a; a = next) {
        next = a->next;
        if (atomic_load_explicit(&a->segment->retired, memory_order_relaxed) && !is_used(s, a->segment))
            forget(s, a->segment);
    }
}
