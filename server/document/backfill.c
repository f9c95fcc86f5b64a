/*
 * backfill.c - see backfill.h.
 *
 * The worker goes through the keyspace like SCAN, a few hundred keys under the lock of a shard at a time, and lets
 * others of its jobs run in between. Whatever changes meanwhile is put in by its own command; a document that has come
 * in so is left as it is. An index that is dropped meanwhile ends the work.
 *
 * There is always memory for it: the job lies in what is allocated with it, and where that fails the work is done at
 * once, on the lane.
 */
#include "server/document/backfill.h"
#include "io/clock.h"
#include "server/call/key_document.h"
#include <stdlib.h>

enum { KEYS_AT_ONCE = 64, JOB_US = 2000 };

struct backfill {
    struct job job;
    struct service *service;
    struct document_index *index; /* a reference */
    uint64_t cursor, seen;
    bool again;
};

static void visit(void *context, const struct key_entry *e)
{
    const struct backfill *b = context;
    const struct schema *schema = document_index_schema(b->index);
    struct document_view view;
    ((struct backfill *)context)->seen++;
    if (!schema_follows(schema, e->key, e->node.key_bytes) || !key_document_view(e, &view) ||
        view.source != schema->source || keyspace_entry_is_over(e, clock_wall_ms()))
        return;
    documents_write_begin(b->service->documents);
    document_index_put(b->index, e->key, e->node.key_bytes, &view, !b->again);
    documents_write_end(b->service->documents);
}

/* Whether there is more to do. */
static bool fill_some(struct backfill *b)
{
    struct service *s = b->service;
    uint64_t end_us = clock_us() + JOB_US;
    do {
        gate_enter(&s->gate, s->n_lanes);
        b->cursor = keyspace_scan(&s->keyspace, b->cursor, KEYS_AT_ONCE, visit, b);
        gate_leave(&s->gate, s->n_lanes);
    } while (b->cursor && clock_us() < end_us);
    size_t all = keyspace_count(&s->keyspace);
    double share = all > 0 ? (double)b->seen / (double)all : 1;
    document_index_filled(b->index, !b->cursor ? 1 : share < .99 ? share : .99);
    return b->cursor && !document_index_is_dropped(b->index) && !worker_is_stopping(&s->worker);
}

static void run(struct job *job)
{
    struct backfill *b = (struct backfill *)(void *)job;
    if (fill_some(b)) {
        worker_post(&b->service->worker, &b->job);
        return;
    }
    document_index_filled(b->index, 1);
    document_index_unref(b->index);
    free(b);
}

static void begin(struct service *service, struct document_index *index, bool again)
{
    struct backfill *b = malloc(sizeof *b);
    if (keyspace_count(&service->keyspace) == 0) {
        free(b);
        return;
    }
    document_index_filled(index, 0);
    if (b) {
        *b = (struct backfill){
            .job = {.run = run}, .service = service, .index = document_index_ref(index), .again = again};
        worker_post(&service->worker, &b->job);
        return;
    }
    struct backfill here = {.service = service, .index = index, .again = again};
    do
        here.cursor = keyspace_scan(&service->keyspace, here.cursor, KEYS_AT_ONCE, visit, &here);
    while (here.cursor);
    document_index_filled(index, 1);
}

void backfill_begin(struct service *service, struct document_index *index)
{
    begin(service, index, false);
}

void backfill_again(struct service *service, struct document_index *index)
{
    begin(service, index, true);
}
