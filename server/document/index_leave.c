/*
 * index_leave.c - see index_leave.h.
 *
 * From the beginning on the index takes no value from a hash any more (documents_leave). Then its documents are gone
 * through in the order of ids; one that changes meanwhile has a higher id, and may still leave its vector to the index:
 * so passes are made until one finds none. The process may end anywhere: what came back is logged, and what did not is
 * where it was.
 */
#include "server/document/index_leave.h"
#include "document/vectors/vectors.h"
#include "io/clock.h"
#include "io/error.h"
#include "server/call/key_values.h"
#include "server/process/config.h"
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_BYTES = 256 << 10, JOB_US = 5000, PASSES_MAX = 100 };

bool index_leave_reads(struct document_index *index)
{
    const struct schema *schema = document_index_schema(index);
    uint8_t *key = malloc(QUIRE_KEY_BYTES_MAX + sizeof(uint32_t));
    size_t n = 1;
    if (key && schema->source == SCHEMA_HASH)
        document_index_keys(index, 0, key, QUIRE_KEY_BYTES_MAX + sizeof(uint32_t), &n);
    free(key);
    bool has_vectors = false;
    for (uint32_t i = 0; i < schema->n_fields && !has_vectors; i++)
        has_vectors = schema->fields[i].type == SCHEMA_VECTOR;
    return schema->source == SCHEMA_HASH && has_vectors && n > 0;
}

/* Whether another index gives the field's value back as it is. */
static bool is_elsewhere(const struct index_leave *leave, const struct values_reader *reader,
                         const struct schema_field *f, struct resp_arg value)
{
    uint32_t id;
    const struct documents_wanted wanted = {.key = reader->entry->key,
                                            .key_bytes = reader->entry->node.key_bytes,
                                            .field = f->identifier,
                                            .field_bytes = f->identifier_bytes,
                                            .value_bytes = value.bytes,
                                            .except = leave->index};
    struct vectors *other = documents_value(reader->service->documents, &wanted, &id);
    bool is = other && vectors_gives_back(other, value.data);
    vectors_unref(other);
    return is;
}

static int give_back(struct index_leave *leave, struct values_reader *reader)
{
    const struct schema *schema = document_index_schema(leave->index);
    int rc = 0;
    for (uint32_t i = 0; i < schema->n_fields && rc == 0; i++) {
        const struct schema_field *f = &schema->fields[i];
        struct resp_arg field = {(const uint8_t *)f->identifier, f->identifier_bytes}, value;
        if (f->type != SCHEMA_VECTOR || !hash_get(reader->entry->hash, field, &value))
            continue;
        /* one that is the hash's own may be away in a checkpoint, from before */
        bool away = hash_is_away(reader->entry->hash, field);
        if (value.bytes == 0 || (away && is_elsewhere(leave, reader, f, value)))
            continue;
        leave->found = leave->found || away;
        if (away || leave->passes == 0)
            rc = keyspace_keep(&reader->lock, reader->entry, field, &leave->error);
    }
    return rc;
}

/* 1: there is more to do. */
static int give_back_some(struct index_leave *leave)
{
    struct values_reader reader = {.service = leave->lane->service};
    uint64_t end_us = clock_us() + JOB_US;
    int rc = 0;
    while (rc == 0 && leave->at < leave->n_bytes && clock_us() < end_us) {
        uint32_t bytes;
        memcpy(&bytes, leave->keys + leave->at, sizeof bytes);
        struct resp_arg name = {leave->keys + leave->at + sizeof bytes, bytes};
        leave->at += sizeof bytes + bytes;
        rc = key_values_lock(&reader, name, &leave->error);
        if (rc < 0)
            break;
        if (reader.entry && reader.entry->type == KEY_HASH)
            rc = give_back(leave, &reader);
        key_values_unlock(&reader, &leave->lsn);
    }
    key_values_reader_fini(&reader);
    if (rc < 0 || leave->at < leave->n_bytes)
        return rc < 0 ? rc : 1;
    leave->at = leave->n_bytes = 0;
    if (leave->from != 0)
        leave->from = document_index_keys(leave->index, leave->from, leave->keys, KEYS_BYTES, &leave->n_bytes);
    if (leave->n_bytes > 0)
        return 1;
    if (!leave->found)
        return 0;
    if (++leave->passes == PASSES_MAX)
        return error_set(&leave->error, QUIRE_EBUSY,
                         "documents of the index change faster than their vectors can be read: try again");
    leave->from = 1;
    leave->found = false;
    return 1;
}

static int drop(struct index_leave *leave)
{
    struct service *service = leave->lane->service;
    const char *name = document_index_name(leave->index);
    struct document_index *dropped = NULL;
    gate_enter(&service->gate, service->n_lanes);
    int rc = document_index_is_dropped(leave->index)
                 ? error_set(&leave->error, QUIRE_ENOTFOUND, "SEARCH_INDEX_NOT_FOUND Unknown index name: %.128s", name)
                 : documents_drop(service->documents, (struct schema_word){name, (uint32_t)strlen(name)}, &dropped,
                                  &leave->lsn, &leave->error);
    gate_leave(&service->gate, service->n_lanes);
    document_index_unref(dropped);
    return rc;
}

static void on_done(struct lane *lane, struct message *message)
{
    struct index_leave *leave = (struct index_leave *)(void *)((char *)message - offsetof(struct index_leave, message));
    (void)lane;
    free(leave->keys);
    leave->keys = NULL;
    leave->done(leave);
}

static void run(struct job *job)
{
    struct index_leave *leave = (struct index_leave *)(void *)((char *)job - offsetof(struct index_leave, job));
    int rc = give_back_some(leave);
    if (rc > 0 && worker_is_stopping(&leave->lane->service->worker))
        rc = error_set(&leave->error, QUIRE_ECLOSED, "the server stops: the index stays");
    if (rc > 0) {
        worker_post(&leave->lane->service->worker, &leave->job);
        return;
    }
    if (rc == 0)
        rc = drop(leave);
    if (rc < 0)
        documents_leave(leave->index, false);
    leave->code = rc;
    leave->message.run = on_done;
    lane_post(leave->lane, &leave->message);
}

int index_leave_start(struct index_leave *leave, struct quire_error *err)
{
    const struct service *service = leave->lane->service;
    const struct schema *schema = document_index_schema(leave->index);
    struct document_index_stats stats;
    uint64_t each = 0, most = service->config->maxmemory, used = atomic_load(&service->keyspace.used_bytes);
    document_index_get_stats(leave->index, &stats);
    for (uint32_t i = 0; i < schema->n_fields; i++)
        if (schema->fields[i].type == SCHEMA_VECTOR)
            each += vectors_bytes(&schema->fields[i].vector);
    uint64_t wanted = stats.documents * each;
    if (most && used + documents_bytes(service->documents) + wanted > most)
        return error_set(
            err, QUIRE_ELIMIT,
            "the vectors of the index's documents, %llu bytes, would be in memory without it, and maxmemory "
            "has no room for them: raise it, or drop the documents, too (DD)",
            (unsigned long long)wanted);
    leave->keys = malloc(KEYS_BYTES);
    if (!leave->keys)
        return error_set(err, QUIRE_ENOMEM, "no memory to drop an index");
    leave->from = 1;
    leave->job.run = run;
    documents_leave(leave->index, true);
    worker_post(&leave->lane->service->worker, &leave->job);
    return 0;
}
