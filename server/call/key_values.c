/*
 * key_values.c - see key_values.h.
 *
 * A read may end inside its start, with the key still locked: then the copy is put in by who has started it. Otherwise
 * it ends on the lane's thread, which locks the key again.
 *
 * What a lane has brought stands in a list in the order of time. A name stands there as often as it was brought; a copy
 * that is let go too early is brought once more.
 */
#include "server/call/key_values.h"
#include "document/vectors/vectors.h"
#include "index/search/search_lane.h"
#include "io/array.h"
#include "io/error.h"
#include "server/call/slice.h"
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { LET_GO_AT_ONCE = 256, TRIES_MAX = 1000 };

/* A field of a key. */
struct value_name {
    uint32_t key_bytes, field_bytes;
    uint8_t bytes[]; /* key, field */
};

/* One that a lane has brought. */
struct lane_value {
    struct lane_value *next;
    uint64_t came_ms;
    struct value_name *name; /* owned */
};

static struct resp_arg key_of(const struct value_name *name)
{
    return (struct resp_arg){name->bytes, name->key_bytes};
}

static struct resp_arg field_of(const struct value_name *name)
{
    return (struct resp_arg){name->bytes + name->key_bytes, name->field_bytes};
}

static struct value_name *name_create(const struct key_entry *e, struct resp_arg field)
{
    uint32_t key_bytes = e->node.key_bytes;
    struct value_name *name = malloc(sizeof *name + key_bytes + field.bytes);
    if (!name)
        return NULL;
    *name = (struct value_name){.key_bytes = key_bytes, .field_bytes = field.bytes};
    if (key_bytes > 0)
        memcpy(name->bytes, e->key, key_bytes);
    if (field.bytes > 0)
        memcpy(name->bytes + key_bytes, field.data, field.bytes);
    return name;
}

/* ---- what a lane has brought ------------------------------------------------------------------------------------- */

static void note_value(struct lane *lane, struct lane_value *value)
{
    value->next = NULL;
    value->came_ms = lane->now_ms;
    if (lane->values)
        lane->last_value->next = value;
    else
        lane->values = value;
    lane->last_value = value;
}

static void free_value(struct lane_value *value)
{
    if (value)
        free(value->name);
    free(value);
}

static void let_go(struct lane *lane, const struct value_name *name)
{
    struct keyspace *k = &lane->service->keyspace;
    struct key key = keyspace_key(k, key_of(name));
    struct keyspace_lock lock;
    keyspace_lock_key(&lock, k, &key);
    struct key_entry *e = keyspace_find(&lock, &key);
    if (e && e->type == KEY_HASH)
        keyspace_let_go(k, e, field_of(name));
    keyspace_unlock(&lock);
}

static bool let_go_of_old(struct lane *lane)
{
    unsigned n = 0;
    if (!lane->values || lane->values_held > 0 || lane->now_ms < lane->values->came_ms + VALUES_KEPT_MS ||
        !lane_try_enter(lane))
        return false;
    for (; lane->values && lane->now_ms >= lane->values->came_ms + VALUES_KEPT_MS && n < LET_GO_AT_ONCE; n++) {
        struct lane_value *value = lane->values;
        lane->values = value->next;
        let_go(lane, value->name);
        free_value(value);
    }
    lane_leave(lane);
    return n == LET_GO_AT_ONCE;
}

/* The lane has ended; the copies go with the keyspace. */
static void forget_all(struct lane *lane)
{
    for (struct lane_value *value = lane->values, *next; value; value = next) {
        next = value->next;
        free_value(value);
    }
    lane->values = lane->last_value = NULL;
}

static bool is_reading(const struct lane *lane)
{
    return lane->values_reading > 0;
}

const struct lane_hook values_hook = {.work = let_go_of_old, .busy = is_reading, .close = forget_all};

void key_values_hold(struct lane *lane)
{
    lane->values_held++;
}

void key_values_release(struct lane *lane)
{
    assert(lane->values_held > 0);
    lane->values_held--;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct value_read {
    struct vectors_read inner;
    struct slice slice; /* for what it found, where the gate is shut */
    struct values_wait *wait;
    struct lane_value *value; /* owned; becomes the lane's */
    uint64_t version;
    bool starting, ended; /* inside the start; it has ended there */
    int code;
    struct quire_error error;
    uint8_t *bytes; /* owned */
    uint32_t n_bytes;
};

static void free_read(struct value_read *read)
{
    free_value(read->value);
    free(read->bytes);
    free(read);
}

static void note_failure(struct values_wait *wait, int code, const struct quire_error *err)
{
    if (wait->code < 0)
        return;
    wait->code = code;
    wait->error = *err;
}

/* The key is locked. */
static void put_copy(struct value_read *read, struct keyspace_lock *lock, struct key_entry *e)
{
    const struct value_name *name = read->value->name;
    struct quire_error err = {0};
    if (!e || e->type != KEY_HASH || e->version != read->version || !hash_is_away(e->hash, field_of(name)))
        return; /* it is another one now, and asked for again */
    int rc = read->code < 0
                 ? read->code
                 : keyspace_bring(lock, e, field_of(name), (struct resp_arg){read->bytes, read->n_bytes}, &err);
    if (rc < 0) {
        note_failure(read->wait, rc, read->code < 0 ? &read->error : &err);
        return;
    }
    note_value(read->wait->lane, read->value);
    read->value = NULL;
}

static void take_read(struct slice *slice)
{
    struct value_read *read = (struct value_read *)(void *)((char *)slice - offsetof(struct value_read, slice));
    struct values_wait *wait = read->wait;
    struct lane *lane = wait->lane;
    struct keyspace *k = &lane->service->keyspace;
    struct key key = keyspace_key(k, key_of(read->value->name));
    struct keyspace_lock lock;
    lane_enter(lane);
    keyspace_lock_key(&lock, k, &key);
    put_copy(read, &lock, keyspace_find(&lock, &key));
    keyspace_unlock(&lock);
    lane_leave(lane);
    free_read(read);
    assert(wait->n > 0 && lane->values_reading > 0);
    lane->values_reading--;
    if (--wait->n == 0)
        wait->come(wait);
}

static void on_read(struct vectors_read *inner)
{
    struct value_read *read = inner->owner;
    struct lane *lane = read->wait->lane;
    lane_stat_add(&lane->stats.search_reads, inner->reads);
    read->code = inner->code;
    read->error = inner->error;
    if (inner->code == 0)
        memcpy(read->bytes, inner->vector, read->n_bytes);
    read->ended = true;
    if (read->starting)
        return;
    read->slice.run = take_read;
    if (lane_is_shut(lane))
        slice_post(lane, &read->slice);
    else
        take_read(&read->slice);
}

static int no_memory(struct quire_error *err)
{
    return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
}

static int lost(const struct value_name *name, struct quire_error *err)
{
    struct resp_arg field = field_of(name);
    return error_set(err, QUIRE_ECORRUPT,
                     "field '%.*s' is the vector of an index that cannot be used: FT.INFO or the log says why",
                     field.bytes < 64 ? (int)field.bytes : 64, (const char *)field.data);
}

/* A read for the field; NULL, after the wait was told, without memory. */
static struct value_read *read_create(struct values_wait *wait, const struct key_entry *e, struct resp_arg field,
                                      uint32_t value_bytes)
{
    struct quire_error err;
    struct value_read *read = calloc(1, sizeof *read);
    if (read) {
        *read = (struct value_read){.wait = wait, .version = e->version, .n_bytes = value_bytes};
        read->value = calloc(1, sizeof *read->value);
        read->bytes = malloc(value_bytes + (size_t)1);
        if (read->value)
            read->value->name = name_create(e, field);
    }
    if (read && read->value && read->value->name && read->bytes)
        return read;
    if (read)
        free_read(read);
    note_failure(wait, no_memory(&err), &err);
    return NULL;
}

static struct vectors *find_value(const struct service *service, const struct value_name *name, uint32_t value_bytes,
                                  uint32_t *id)
{
    struct resp_arg field = field_of(name);
    const struct documents_wanted wanted = {.key = name->bytes,
                                            .key_bytes = name->key_bytes,
                                            .field = (const char *)field.data,
                                            .field_bytes = field.bytes,
                                            .value_bytes = value_bytes};
    return documents_value(service->documents, &wanted, id);
}

/* Brings it out of memory, or begins to read it. Takes `read`. */
static void read_value(struct value_read *read, struct keyspace_lock *lock, struct key_entry *e)
{
    struct values_wait *wait = read->wait;
    const struct value_name *name = read->value->name;
    struct quire_error err = {0};
    uint32_t id;
    struct vectors *vectors = find_value(wait->lane->service, name, read->n_bytes, &id);
    int rc = vectors ? 0 : lost(name, &err);
    if (rc == 0 && vectors_read_now(vectors, name->bytes, name->key_bytes, id, read->bytes)) {
        put_copy(read, lock, e);
    } else if (rc == 0 && !wait->in_memory_only) {
        read->inner = (struct vectors_read){.vectors = vectors,
                                            .key = name->bytes,
                                            .key_bytes = name->key_bytes,
                                            .id = id,
                                            .done = on_read,
                                            .owner = read};
        read->starting = true;
        rc = vectors_read_start(wait->lane->searcher, &read->inner, &err);
        read->starting = false;
        if (rc == 0 && !read->ended) {
            wait->n++;
            wait->lane->values_reading++;
            read = NULL; /* on_read's */
        } else if (rc == 0) {
            put_copy(read, lock, e);
        }
    }
    if (rc < 0)
        note_failure(wait, rc, &err);
    vectors_unref(vectors);
    if (read)
        free_read(read);
}

struct missing {
    struct values_wait *wait;
    const struct key_entry *entry;
    struct value_read **reads; /* owned */
    uint32_t n, capacity;
};

static void collect_missing(void *context, struct resp_arg field, struct resp_arg value)
{
    struct missing *m = context;
    struct quire_error err;
    if (value.data)
        return;
    if (!array_reserve(&m->reads, &m->capacity, (size_t)m->n + 1)) {
        note_failure(m->wait, no_memory(&err), &err);
        return;
    }
    m->reads[m->n] = read_create(m->wait, m->entry, field, value.bytes);
    m->n += m->reads[m->n] != NULL;
}

/* Whether one of the fields is missing. */
static bool is_missing(const struct hash *hash, const struct resp_arg *fields, uint32_t n)
{
    struct resp_arg value;
    if (!fields || hash_n_missing(hash) == 0)
        return hash_n_missing(hash) > 0;
    for (uint32_t i = 0; i < n; i++)
        if (hash_get(hash, fields[i], &value) && !value.data && value.bytes > 0)
            return true;
    return false;
}

bool key_values_bring(struct values_wait *wait, struct keyspace_lock *lock, struct key_entry *e,
                      const struct resp_arg *fields, uint32_t n)
{
    struct missing m = {.wait = wait, .entry = e};
    struct resp_arg value;
    if (e->type != KEY_HASH || !is_missing(e->hash, fields, n))
        return true;
    if (!fields)
        hash_each_away(e->hash, collect_missing, &m);
    for (uint32_t i = 0; i < n && fields; i++)
        if (hash_get(e->hash, fields[i], &value) && !value.data && value.bytes > 0)
            collect_missing(&m, fields[i], value);
    for (uint32_t i = 0; i < m.n; i++)
        read_value(m.reads[i], lock, e);
    free(m.reads);
    return !is_missing(e->hash, fields, n);
}

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

/* Of a caller whose request waits. */
struct caller_values {
    struct values_wait wait;
    struct caller *caller; /* NULL: it is gone */
};

static void on_come(struct values_wait *wait)
{
    struct caller_values *values = (struct caller_values *)(void *)wait;
    if (values->caller)
        values->caller->lane->host->resume(values->caller);
    else
        free(values);
}

bool key_values_wait(const struct caller *c)
{
    return c->values && c->values->wait.n > 0;
}

void key_values_forget(struct caller *c)
{
    struct caller_values *values = c->values;
    c->values = NULL;
    if (values && values->wait.n > 0)
        values->caller = NULL; /* on_come frees it */
    else
        free(values);
}

static void reply_failure(struct caller *c, const struct values_wait *wait)
{
    if (wait->code == QUIRE_ENOMEM)
        caller_error(c, "OOM %s", wait->error.message);
    else
        caller_error(c, "ERR a vector could not be read: %s", wait->error.message);
}

bool key_values_ready_in(struct caller *c, struct keyspace_lock *lock, struct key_entry *e,
                         const struct resp_arg *fields, uint32_t n)
{
    if (!e || e->type != KEY_HASH || !is_missing(e->hash, fields, n))
        return true;
    struct caller_values *values = c->values;
    if (values && values->wait.code < 0) { /* they have not come */
        keyspace_unlock(lock);
        reply_failure(c, &values->wait);
        return false;
    }
    assert(!values || values->wait.n == 0);
    if (!values)
        values = calloc(1, sizeof *values);
    if (!values) {
        keyspace_unlock(lock);
        caller_error(c, "OOM no memory to read a vector");
        return false;
    }
    *values =
        (struct caller_values){.wait = {.lane = c->lane, .come = on_come, .in_memory_only = c->whole}, .caller = c};
    c->values = values;
    if (key_values_bring(&values->wait, lock, e, fields, n))
        return true;
    keyspace_unlock(lock);
    if (c->whole)
        caller_error(c, "ERR a vector was moved to the disk while the transaction ran: this command was not run");
    else if (values->wait.n == 0 && values->wait.code < 0)
        reply_failure(c, &values->wait);
    else
        c->again = true; /* at once, where n is 0: a copy has gone before the last one came */
    return false;
}

bool key_values_ready(struct key_call *call, const struct resp_arg *fields, uint32_t n)
{
    return key_values_ready_in(call->caller, &call->lock, call->entry, fields, n);
}

struct lack {
    struct documents *documents;
    const struct key_entry *entry;
    bool found;
};

static void look_for_lack(void *context, struct resp_arg field, struct resp_arg value)
{
    struct lack *lack = context;
    if (!value.data)
        lack->found = lack->found || documents_lack(lack->documents, lack->entry->key, lack->entry->node.key_bytes,
                                                    (const char *)field.data, field.bytes);
}

bool key_values_ready_to_change(struct key_call *call)
{
    struct documents *documents = call->caller->lane->service->documents;
    struct lack lack = {documents, call->entry, false};
    if (!call->entry || call->entry->type != KEY_HASH || hash_n_missing(call->entry->hash) == 0 ||
        documents_count(documents) < 2)
        return true;
    hash_each_away(call->entry->hash, look_for_lack, &lack);
    return !lack.found || key_values_ready(call, NULL, 0);
}

/* ---- other threads ----------------------------------------------------------------------------------------------- */

struct blocking_read {
    struct vectors_read inner;
    uint8_t *bytes;
    uint32_t n_bytes;
    bool done;
};

static void on_blocking(struct vectors_read *inner)
{
    struct blocking_read *read = inner->owner;
    if (inner->code == 0)
        memcpy(read->bytes, inner->vector, read->n_bytes);
    read->done = true;
}

struct first_missing {
    const struct key_entry *entry;
    struct value_name *name; /* owned */
    uint32_t bytes;
    bool found;
};

static void take_first(void *context, struct resp_arg field, struct resp_arg value)
{
    struct first_missing *first = context;
    if (value.data || first->found)
        return;
    first->found = true;
    first->bytes = value.bytes;
    first->name = name_create(first->entry, field);
}

static void hold_key(struct values_reader *r)
{
    gate_enter(&r->service->gate, r->service->n_lanes);
    keyspace_lock_key(&r->lock, &r->service->keyspace, &r->key);
    r->entry = keyspace_find(&r->lock, &r->key);
}

static void release_key(struct values_reader *r)
{
    keyspace_unlock(&r->lock);
    gate_leave(&r->service->gate, r->service->n_lanes);
    r->entry = NULL;
}

/* Reads a value while nothing is held. */
static int read_blocking(struct values_reader *r, struct first_missing *first, uint8_t *bytes, struct quire_error *err)
{
    struct blocking_read read = {.bytes = bytes, .n_bytes = first->bytes};
    uint32_t id;
    int rc = r->lane ? 0 : search_lane_create(QUIRE_ENGINE_AUTO, 0, 1, &r->lane, err);
    if (rc < 0)
        return rc;
    struct vectors *vectors = find_value(r->service, first->name, first->bytes, &id);
    if (!vectors)
        return QUIRE_ENOTFOUND;
    read.inner = (struct vectors_read){.vectors = vectors,
                                       .key = first->name->bytes,
                                       .key_bytes = first->name->key_bytes,
                                       .id = id,
                                       .done = on_blocking,
                                       .owner = &read};
    rc = vectors_read_start(r->lane->searcher, &read.inner, err);
    if (rc == 0) {
        search_lane_run(r->lane, &read.done);
        rc = read.inner.code;
        if (rc < 0 && err)
            *err = read.inner.error;
    }
    vectors_unref(vectors);
    return rc;
}

/* One value that is missing; the key is held, and again afterwards, but after an error. */
static int bring_one(struct values_reader *r, struct quire_error *err)
{
    struct first_missing first = {.entry = r->entry};
    uint64_t version = r->entry->version;
    hash_each_away(r->entry->hash, take_first, &first);
    assert(first.found);
    release_key(r);
    uint8_t *bytes = first.name ? malloc(first.bytes + (size_t)1) : NULL;
    int rc = bytes ? read_blocking(r, &first, bytes, err) : no_memory(err);
    if (rc == 0 || rc == QUIRE_ENOTFOUND) {
        hold_key(r);
        struct key_entry *e = r->entry;
        bool same = e && e->type == KEY_HASH && e->version == version && hash_is_away(e->hash, field_of(first.name));
        if (same)
            rc = rc < 0 ? lost(first.name, err)
                        : keyspace_bring(&r->lock, e, field_of(first.name), (struct resp_arg){bytes, first.bytes}, err);
        else
            rc = 0;
        if (rc < 0)
            release_key(r);
    }
    free(first.name);
    free(bytes);
    return rc;
}

int key_values_lock(struct values_reader *r, struct resp_arg name, struct quire_error *err)
{
    unsigned tries = 0;
    int rc = 0;
    r->key = keyspace_key(&r->service->keyspace, name);
    hold_key(r);
    while (rc == 0 && r->entry && r->entry->type == KEY_HASH && hash_n_missing(r->entry->hash) > 0) {
        if (++tries > TRIES_MAX) {
            release_key(r);
            return error_set(err, QUIRE_EBUSY, "a key changes faster than its vectors can be read: try again");
        }
        rc = bring_one(r, err);
    }
    return rc;
}

struct copies {
    struct value_name **names; /* owned */
    uint32_t n, capacity;
    const struct key_entry *entry;
};

static void collect_copies(void *context, struct resp_arg field, struct resp_arg value)
{
    struct copies *copies = context;
    if (!value.data || !array_reserve(&copies->names, &copies->capacity, (size_t)copies->n + 1))
        return;
    copies->names[copies->n] = name_create(copies->entry, field);
    copies->n += copies->names[copies->n] != NULL;
}

void key_values_unlock(struct values_reader *r, uint64_t *lsn)
{
    struct copies copies = {.entry = r->entry};
    if (r->entry && r->entry->type == KEY_HASH && hash_n_away(r->entry->hash) > 0)
        hash_each_away(r->entry->hash, collect_copies, &copies);
    for (uint32_t i = 0; i < copies.n; i++) {
        keyspace_let_go(&r->service->keyspace, r->entry, field_of(copies.names[i]));
        free(copies.names[i]);
    }
    free(copies.names);
    release_key(r);
    if (lsn)
        *lsn = r->lock.lsn > *lsn ? r->lock.lsn : *lsn;
}

void key_values_reader_fini(struct values_reader *r)
{
    search_lane_destroy(r->lane);
    r->lane = NULL;
}
