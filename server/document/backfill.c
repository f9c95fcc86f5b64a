/*
 * backfill.c - see backfill.h.
 *
 * The worker goes through the keyspace like SCAN, a few hundred keys under the lock of a shard at a time, and lets
 * others of its jobs run in between. Whatever changes meanwhile is put in by its own command; a document that has come
 * in so is left as it is. A document whose vectors only other indexes have waits until the shard is free, and is put in
 * when they have been read. An index that is dropped meanwhile ends the work.
 *
 * There is always memory for it: the job lies in what is allocated with it, and where that fails the work is done at
 * once, on the lane.
 */
#include "server/document/backfill.h"
#include "io/array.h"
#include "io/clock.h"
#include "server/call/key_document.h"
#include "server/call/key_values.h"
#include <stdlib.h>
#include <string.h>

enum { KEYS_AT_ONCE = 64, JOB_US = 2000 };

struct backfill {
    struct job job;
    struct service *service;
    struct document_index *index; /* a reference */
    uint64_t cursor, seen;
    bool again;
    uint8_t *later; /* keys that values must be read of: u32 bytes and the bytes; owned */
    size_t n_later, later_capacity;
};

/* Whether the index is to have it; its shard is held. */
static bool is_wanted(const struct backfill *b, const struct key_entry *e, struct document_view *view)
{
    const struct schema *schema = document_index_schema(b->index);
    return schema_follows(schema, e->key, e->node.key_bytes) && key_document_view(e, view) &&
           view->source == schema->source && !keyspace_entry_is_over(e, clock_wall_ms());
}

static void put(struct backfill *b, struct key_entry *e, const struct document_view *view)
{
    struct documents *documents = b->service->documents;
    documents_write_begin(documents);
    document_index_put(b->index, e->key, e->node.key_bytes, view, !b->again);
    documents_write_end(documents);
    key_document_send_away(&b->service->keyspace, documents, e);
}

static void put_later(struct backfill *b, const struct key_entry *e)
{
    const uint32_t bytes = e->node.key_bytes;
    if (!array_reserve(&b->later, &b->later_capacity, b->n_later + sizeof bytes + bytes))
        return; /* it comes in when it is changed */
    memcpy(b->later + b->n_later, &bytes, sizeof bytes);
    memcpy(b->later + b->n_later + sizeof bytes, e->key, bytes);
    b->n_later += sizeof bytes + bytes;
}

static void visit(void *context, const struct key_entry *e)
{
    struct backfill *b = context;
    struct document_view view;
    b->seen++;
    if (!is_wanted(b, e, &view))
        return;
    if (e->type == KEY_HASH && hash_n_missing(e->hash) > 0)
        put_later(b, e);
    else
        put(b, (struct key_entry *)(uintptr_t)e, &view); /* nobody else has it: its shard is held */
}

/* What the index takes for something else than a vector is the hash's own from now on. */
static bool keep_others(struct backfill *b, struct values_reader *reader)
{
    const struct schema *schema = document_index_schema(b->index);
    int rc = 0;
    for (uint32_t i = 0; i < schema->n_fields && rc == 0; i++) {
        const struct schema_field *f = &schema->fields[i];
        struct resp_arg field = {(const uint8_t *)f->identifier, f->identifier_bytes};
        if (f->type != SCHEMA_VECTOR && hash_is_away(reader->entry->hash, field))
            rc = keyspace_keep(&reader->lock, reader->entry, field, NULL);
    }
    return rc == 0;
}

/* Those that were put off. What cannot be read stays out of the index, as what it cannot take. */
static void put_rest(struct backfill *b)
{
    struct values_reader reader = {.service = b->service};
    struct document_view view;
    for (size_t at = 0; at < b->n_later;) {
        uint32_t bytes;
        memcpy(&bytes, b->later + at, sizeof bytes);
        struct resp_arg name = {b->later + at + sizeof bytes, bytes};
        at += sizeof bytes + bytes;
        if (key_values_lock(&reader, name, NULL) < 0)
            continue;
        if (reader.entry && is_wanted(b, reader.entry, &view) && keep_others(b, &reader))
            put(b, reader.entry, &view);
        key_values_unlock(&reader, NULL);
    }
    b->n_later = 0;
    key_values_reader_fini(&reader);
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
        put_rest(b);
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
    free(b->later);
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
    if (b) { /* without memory for it: below, but for documents whose vectors would have to be read */
        *b = (struct backfill){
            .job = {.run = run}, .service = service, .index = document_index_ref(index), .again = again};
        worker_post(&service->worker, &b->job);
        return;
    }
    struct backfill here = {.service = service, .index = index, .again = again};
    do
        here.cursor = keyspace_scan(&service->keyspace, here.cursor, KEYS_AT_ONCE, visit, &here);
    while (here.cursor);
    free(here.later);
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

struct lacking {
    struct document_index **indexes; /* references; owned */
    uint32_t n, capacity;
};

static void take_lacking(void *context, struct document_index *index)
{
    struct lacking *lacking = context;
    if (document_index_lacks(index) && array_reserve(&lacking->indexes, &lacking->capacity, lacking->n + (size_t)1))
        lacking->indexes[lacking->n++] = document_index_ref(index);
}

void backfill_resume(struct service *service)
{
    struct lacking lacking = {.n = 0};
    documents_each(service->documents, take_lacking, &lacking);
    for (uint32_t i = 0; i < lacking.n; i++) {
        backfill_begin(service, lacking.indexes[i]);
        document_index_unref(lacking.indexes[i]);
    }
    free(lacking.indexes);
}
