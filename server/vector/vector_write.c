/*
 * vector_write.c - committing a write under its key, and asking the disk first where that is needed.
 *
 * The first VADD makes the set: collection, key and element are one frame of the journal. VREM of the last element
 * takes the key with it, in one frame, too. What belongs to a collection whose key is gone is removed by the worker
 * (keyspace.c); a commit never reaches such a collection, since every commit is made under the shard of its key.
 */
#include "server/vector/vector_write.h"
#include "index/store/store.h"
#include "index/vector/space.h"
#include "io/error.h"
#include "server/call/key_call.h"
#include "server/call/slice.h"
#include "server/keys/keyspace.h"
#include "server/protocol/resp.h"
#include "server/vector/vector_call.h"
#include "server/vector/vector_plan.h"
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* What the log does not take is told as Redis tells it. */
static void refuse(struct resp_buffer *out, const struct quire_error *err)
{
    if (err->code == QUIRE_EPERM)
        resp_error(out, "NOPERM %s", err->message);
    else if (err->code == QUIRE_ENOSPACE || err->code == QUIRE_EIO || err->code == QUIRE_EBUSY)
        resp_error(out, "MISCONF Errors writing to the log: %s", err->message);
    else
        resp_quire_error(out, err);
}

/* ---- the vector in the elements of the set ----------------------------------------------------------------------- */

static int check_whole(enum quire_type type, const float *vector, uint32_t dim, struct quire_error *err)
{
    float low = type == QUIRE_TYPE_I8 ? -128 : 0, high = type == QUIRE_TYPE_I8 ? 127 : 255;
    for (uint32_t i = 0; i < dim; i++)
        if (!(vector[i] >= low && vector[i] <= high && vector[i] == rintf(vector[i])))
            return error_set(err, QUIRE_ETYPE, "value %u, %g, is not a whole number of %g..%g: the set holds %s", i + 1,
                             (double)vector[i], (double)low, (double)high, quire_type_name(type));
    return 0;
}

/* n numbers as elements, owned by the caller. */
static int make_elements(const struct collection_config *config, const float *vector, uint32_t n, void **out,
                         struct quire_error *err)
{
    float *floats = malloc(sizeof(float) * config->dim);
    void *elements = malloc(sizeof(float) * config->dim);
    int rc = floats && elements ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a vector of %u numbers", n);
    if (rc == 0 && n != config->dim && vector_reduce(config, vector, floats) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory to reduce a vector of %u numbers", n);
    if (rc == 0 && n == config->dim)
        memcpy(floats, vector, sizeof(float) * n);
    if (rc == 0 && (config->type == QUIRE_TYPE_I8 || config->type == QUIRE_TYPE_U8))
        rc = check_whole(config->type, floats, config->dim, err);
    if (rc == 0)
        space_elements(config->type, floats, config->dim, elements);
    free(floats);
    if (rc < 0)
        free(elements);
    else
        *out = elements;
    return rc;
}

/* ---- committing -------------------------------------------------------------------------------------------------- */

static int put_vector(struct collection *c, struct vector_write *w, const float *vector, uint32_t n, bool *was_new,
                      struct quire_error *err)
{
    bool again = w->kind != VECTOR_ADD;
    void *elements;
    int rc = make_elements(collection_config(c), vector, n, &elements, err);
    if (rc < 0)
        return rc;
    struct collection_put put = {.key = w->element.data,
                                 .key_bytes = w->element.bytes,
                                 .vector = elements,
                                 .attributes = w->attributes.bytes ? w->attributes.data : NULL,
                                 .attribute_bytes = w->attributes.bytes,
                                 .keep_attributes = again || !w->attributes.data,
                                 .keep_grants = true,
                                 .old_text = w->old_text,
                                 .old_text_bytes = w->old_text_bytes,
                                 .scope = again ? NULL : w->scope, /* the change has been looked at */
                                 .condition = again ? PUT_ONLY_SEALED : PUT_ALWAYS,
                                 .located = w->located};
    if (w->tenants && !again) {
        put.grants = w->tenants->tenants;
        put.n_grants = w->tenants->n;
    }
    rc = collection_put(c, &put, err);
    if (rc == 0) {
        w->lsn = put.lsn;
        *was_new = put.was_new;
    }
    free(elements);
    return rc;
}

/* Runs body in a batch of its own, or in the one that is open. */
static int begin_batch(struct service *service, bool *own, struct quire_error *err)
{
    *own = !journal_in_batch(service->journal);
    return *own ? journal_batch_begin(service->journal, err) : 0;
}

static int end_batch(struct service *service, bool own, int rc, struct vector_write *w, struct quire_error *err)
{
    uint64_t lsn = 0;
    struct quire_error end_error = {0};
    if (!own)
        return rc;
    int end = journal_batch_end(service->journal, &lsn, &end_error);
    w->lsn = lsn;
    if (rc == 0 && end < 0 && err)
        *err = end_error;
    return rc < 0 ? rc : end;
}

/* The set is made, bound to its key and gets its element, in one batch. */
static void add_to_new(struct service *service, struct vector_write *w, struct keyspace_lock *lock,
                       const struct key *key, struct resp_buffer *out)
{
    struct quire_error err = {0};
    struct collection *c = NULL;
    uint64_t lsn;
    uint32_t gone;
    bool own = false, was_new;
    if (!service->store) {
        resp_error(out, "ERR vector sets need a data folder: start the server with --dir FOLDER");
        return;
    }
    int rc = collection_config_begin(&w->config, &err);
    if (rc == 0 && vector_fits(&w->config, w->n_numbers) == VECTOR_FITS_NOT)
        rc = error_set(&err, QUIRE_EDIM, "REDUCE to %u: the vector has %u numbers", w->config.dim, w->n_numbers);
    if (rc == 0)
        rc = collection_vector_validate(&w->config, w->vector, w->n_numbers, &err);
    if (rc == 0)
        rc = begin_batch(service, &own, &err);
    if (rc < 0) {
        refuse(out, &err);
        return;
    }
    rc = store_create_collection(service->store, &w->config, NULL, &c, &lsn, &err);
    if (rc == 0 && (rc = keyspace_set_vectors(lock, key, c, &err)) < 0) {
        store_drop_collection(service->store, c, &lsn, NULL);
    } else if (rc == 0) {
        collection_ref(c); /* the key's */
        w->located = (struct located){.generation = 1};
        rc = put_vector(c, w, w->vector, w->n_numbers, &was_new, &err);
        if (rc < 0)
            keyspace_delete(lock, &w->key, 1, &gone, NULL);
    }
    collection_unref(c);
    rc = end_batch(service, own, rc, w, &err);
    if (rc < 0)
        refuse(out, &err);
    else
        resp_bool(out, true);
}

static int add(struct collection *c, struct vector_write *w, struct resp_buffer *out, struct quire_error *err)
{
    const struct collection_config *have = collection_config(c);
    bool was_new;
    /* whether a set that is there is what the command asks for */
    if (w->slot_given && (w->config.slot != have->slot || (w->config.code_bits == 1) != (have->code_bits == 1))) {
        resp_error(out, "ERR asked quantization mismatch with existing vector set");
        return 0;
    }
    if (w->degree_given && w->config.link_degree != vector_links(have)) {
        resp_error(out, "ERR asked M value mismatch with existing vector set");
        return 0;
    }
    if (w->reduce && w->reduce != have->dim) {
        if (have->input_dim)
            resp_error(out, "ERR Projection dimension mismatch - asked %u but set has %u", w->reduce, have->dim);
        else
            resp_error(out, "ERR cannot add projection to existing set without projection");
        return 0;
    }
    if (vector_fits(have, w->n_numbers) == VECTOR_FITS_NOT)
        return vector_fit_error(have, w->n_numbers, err);
    int rc = put_vector(c, w, w->vector, w->n_numbers, &was_new, err);
    if (rc == 0)
        resp_bool(out, was_new);
    return rc;
}

static int remove_element(struct service *service, struct collection *c, struct vector_write *w,
                          struct keyspace_lock *lock, struct resp_buffer *out, struct quire_error *err)
{
    /* a set of tenants stays when its last element goes, so that none of them can make another in its place */
    bool ends = !collection_config(c)->tenants;
    bool removed = false, own = false, last = ends && collection_count(c) == 1;
    uint32_t gone;
    int rc = last ? begin_batch(service, &own, err) : 0;
    if (rc < 0)
        return rc;
    rc = collection_remove(c, w->element.data, w->element.bytes, &w->located, w->scope, &removed, &w->lsn, err);
    if (rc == 0 && removed && ends && collection_count(c) == 0)
        rc = keyspace_delete(lock, &w->key, 1, &gone, err);
    if (last)
        rc = end_batch(service, own, rc, w, err);
    if (rc == 0)
        resp_bool(out, removed);
    w->removed = rc == 0 && removed;
    return rc;
}

static void reply_change(const struct vector_write *w, bool there, uint32_t n_changed, struct resp_buffer *out)
{
    if (w->kind == VECTOR_ATTRIBUTES)
        resp_bool(out, there);
    else
        resp_integer(out, n_changed);
}

/* A sealed element goes to memory with its stored vector and its new text. */
static int change_sealed(struct collection *c, struct vector_write *w, struct collection_change *change,
                         struct quire_error *err)
{
    const char *old_text = w->old_text;
    uint32_t old_bytes = w->old_text_bytes;
    char *text = NULL;
    uint32_t bytes = 0;
    bool was_new;
    int rc = collection_changed_text(c, change, old_text, old_bytes, &text, &bytes, &change->n_changed, err);
    if (rc < 0)
        return rc;
    if (w->kind == VECTOR_ATTRIBUTES || change->n_changed > 0) {
        w->old_text = text;
        w->old_text_bytes = bytes;
        rc = put_vector(c, w, w->old_vector, collection_config(c)->dim, &was_new, err);
        w->old_text = old_text;
        w->old_text_bytes = old_bytes;
    }
    free(text);
    return rc;
}

/* What VSETATTR, VGRANT and VREVOKE ask for. */
static int change(struct collection *c, struct vector_write *w, struct resp_buffer *out, struct quire_error *err)
{
    struct collection_change asked = {.key = w->element.data,
                                      .key_bytes = w->element.bytes,
                                      .set_attributes = w->kind == VECTOR_ATTRIBUTES,
                                      .attributes = w->attributes.data,
                                      .attribute_bytes = w->attributes.bytes,
                                      .scope = w->scope};
    if (w->tenants && w->kind == VECTOR_GRANT) {
        asked.grant = w->tenants->tenants;
        asked.n_grant = w->tenants->n;
    } else if (w->tenants && w->kind == VECTOR_REVOKE) {
        asked.revoke = w->tenants->tenants;
        asked.n_revoke = w->tenants->n;
    }
    int rc = collection_change(c, &asked, err);
    bool there = rc == 0;
    if (there)
        w->lsn = asked.lsn;
    if (rc == QUIRE_ENOTFOUND && w->located.segment_uid && w->old_vector) {
        rc = change_sealed(c, w, &asked, err);
        there = rc == 0;
    }
    if (rc < 0 && rc != QUIRE_ENOTFOUND)
        return rc;
    reply_change(w, there, there ? asked.n_changed : 0, out);
    return 0;
}

/* Under the shard of the key, of which `entry` is the set. */
static enum vector_write_result locate_and_commit(struct service *service, struct vector_write *w,
                                                  struct keyspace_lock *lock, struct key_entry *entry,
                                                  struct resp_buffer *out)
{
    struct quire_error err = {0};
    struct collection *c = entry->set;
    const struct key key = {w->key.data, w->key.bytes, entry->node.hash};
    assert(entry->type == KEY_VECTOR_SET && c && !w->target);
    if (w->element.bytes == 0 || w->element.bytes > QUIRE_KEY_BYTES_MAX) {
        resp_error(out, "ERR an element's name has 1 to %u bytes", QUIRE_KEY_BYTES_MAX);
        return VECTOR_WRITE_DONE;
    }
    for (;;) {
        if (!w->is_located || w->located_uid != collection_uid(c)) {
            w->old_text = NULL;
            w->old_text_bytes = 0;
            w->old_vector = NULL;
            bool known = collection_locate_now(c, w->element.data, w->element.bytes, &w->located) ||
                         (w->plan && vector_plan_find(w->plan, c, w));
            if (!known) {
                w->target = collection_ref(c);
                return VECTOR_WRITE_ASKS_DISK;
            }
        }
        w->located.seen_lsn = w->seen_lsn;
        w->located.matching = w->matching;
        int rc = w->kind == VECTOR_ADD      ? add(c, w, out, &err)
                 : w->kind == VECTOR_REMOVE ? remove_element(service, c, w, lock, out, &err)
                                            : change(c, w, out, &err);
        if (rc == 0 && w->lsn && keyspace_find(lock, &key) == entry)
            keyspace_touch(lock, entry, w->lsn);
        if (rc < 0 && rc != QUIRE_ESTALE)
            refuse(out, &err);
        if (rc != QUIRE_ESTALE)
            return VECTOR_WRITE_DONE;
        w->is_located = false;
        w->plan = NULL;
    }
}

bool vector_write_wants_text(const struct vector_write *w)
{
    return w->kind != VECTOR_REMOVE;
}

bool vector_write_wants_vector(const struct vector_write *w)
{
    return w->kind != VECTOR_ADD && w->kind != VECTOR_REMOVE;
}

enum vector_write_result vector_write_try(struct service *service, struct vector_write *w, struct resp_buffer *out)
{
    struct quire_error err = {0};
    struct keyspace_lock lock;
    struct key_entry *entry;
    struct key key = keyspace_key(&service->keyspace, w->key);
    enum vector_write_result result = VECTOR_WRITE_DONE;
    w->target = NULL;
    w->lsn = 0;
    keyspace_lock_key(&lock, &service->keyspace, &key);
    if (keyspace_find_to_write(&lock, &key, &entry, &err) < 0)
        refuse(out, &err);
    else if (entry && entry->type != KEY_VECTOR_SET && !w->only_uid)
        resp_error(out, "WRONGTYPE Operation against a key holding the wrong kind of value");
    else if (w->only_uid && (!entry || entry->type != KEY_VECTOR_SET || collection_uid(entry->set) != w->only_uid))
        w->is_gone = true;
    else if (entry && key_is_unavailable(out, w->key, entry->set))
        result = VECTOR_WRITE_DONE;
    else if (entry)
        result = locate_and_commit(service, w, &lock, entry, out);
    else if (w->kind == VECTOR_ADD)
        add_to_new(service, w, &lock, &key, out);
    else if (w->kind == VECTOR_REMOVE)
        resp_bool(out, false);
    else
        reply_change(w, false, 0, out);
    if (lock.lsn > w->lsn)
        w->lsn = lock.lsn;
    keyspace_unlock(&lock);
    assert((result == VECTOR_WRITE_ASKS_DISK) == (w->target != NULL));
    assert(result == VECTOR_WRITE_ASKS_DISK || w->is_gone || out->bytes > 0 || out->failed);
    return result;
}

void vector_write_forget(struct resp_account *account, struct vector_kept *kept)
{
    free(kept->text);
    free(kept->vector);
    if (account && kept->held > 0)
        resp_account_add(account, -(int64_t)kept->held);
    *kept = (struct vector_kept){0};
}

bool vector_write_keep(const struct collection_fetch *fetch, struct resp_account *account, struct vector_kept *kept)
{
    bool sealed = fetch->code == 0 && !fetch->in_memory;
    size_t text_bytes = sealed ? fetch->attribute_bytes : 0, vector_bytes = 0;
    if (sealed && fetch->want_vector)
        vector_bytes = sizeof(float) * collection_config(fetch->collection)->dim;
    vector_write_forget(account, kept);
    if (!resp_account_take(account, text_bytes + vector_bytes))
        return false;
    *kept = (struct vector_kept){.text = text_bytes ? malloc(text_bytes) : NULL,
                                 .vector = vector_bytes ? malloc(vector_bytes) : NULL,
                                 .text_bytes = (uint32_t)text_bytes,
                                 .held = text_bytes + vector_bytes};
    if ((text_bytes && !kept->text) || (vector_bytes && !kept->vector)) {
        vector_write_forget(account, kept);
        return false;
    }
    if (text_bytes)
        memcpy(kept->text, fetch->attributes, text_bytes);
    if (vector_bytes)
        memcpy(kept->vector, fetch->vector, vector_bytes);
    return true;
}

/* ---- for a client ------------------------------------------------------------------------------------------------ */

struct deferred_write {
    struct deferred base;
    struct vector_write write;
    struct collection_fetch fetch;
    struct slice slice;      /* for what follows the answer, where the gate is shut */
    uint64_t reads, rounds;  /* of all fetches */
    struct vector_kept kept; /* from the fetch */
    uint8_t bytes[];         /* the request's arguments */
};

static void ask_disk(struct deferred_write *d);

/* For SLOWLOG. */
static void describe(const struct pending *p, char *text, size_t capacity)
{
    const struct deferred_write *d = (const struct deferred_write *)(const void *)p;
    snprintf(text, capacity, "fetch reads=%llu rounds=%llu", (unsigned long long)d->reads,
             (unsigned long long)d->rounds);
}

static void release_write(struct vector_write *w)
{
    free(w->scope);
    free(w->tenants);
    w->scope = w->tenants = NULL;
}

static void finish(struct deferred_write *d)
{
    d->base.pending.lsn = d->write.lsn;
    release_write(&d->write);
    vector_write_forget(d->base.pending.out.account, &d->kept);
    deferred_end(&d->base);
}

static void try_again(struct slice *slice)
{
    struct deferred_write *d =
        (struct deferred_write *)(void *)((char *)slice - offsetof(struct deferred_write, slice));
    lane_enter(d->base.lane);
    enum vector_write_result result = vector_write_try(d->base.lane->service, &d->write, &d->base.pending.out);
    lane_leave(d->base.lane);
    if (result == VECTOR_WRITE_ASKS_DISK)
        ask_disk(d);
    else
        finish(d);
}

static void on_answer(struct collection_fetch *fetch)
{
    struct deferred_write *d = fetch->owner;
    struct vector_write *w = &d->write;
    struct resp_buffer *out = &d->base.pending.out;
    vector_count_fetch(d->base.lane, fetch->reads);
    d->reads += fetch->reads;
    d->rounds += fetch->rounds;
    w->is_located = true;
    w->located_uid = collection_uid(fetch->collection);
    w->located = fetch->located;
    if (fetch->code < 0 && fetch->code != QUIRE_ENOTFOUND)
        resp_quire_error(out, &fetch->error);
    else if (!vector_write_keep(fetch, out->account, &d->kept))
        resp_error(out, "OOM no memory to replace an element");
    w->old_text = d->kept.text;
    w->old_text_bytes = d->kept.text_bytes;
    w->old_vector = d->kept.vector;
    bool failed = out->bytes > 0 || out->failed;
    collection_unref(d->base.collection);
    d->base.collection = NULL;
    if (failed) {
        finish(d);
        return;
    }
    d->slice = (struct slice){.run = try_again, .caller = d->base.pending.caller};
    if (lane_is_shut(d->base.lane))
        slice_post(d->base.lane, &d->slice);
    else
        try_again(&d->slice);
}

/* write.target's reference becomes the call's. */
static void ask_disk(struct deferred_write *d)
{
    struct quire_error err = {0};
    struct vector_write *w = &d->write;
    assert(w->target && !d->base.collection);
    d->base.collection = w->target;
    w->target = NULL;
    d->fetch = (struct collection_fetch){.collection = d->base.collection,
                                         .key = w->element.data,
                                         .key_bytes = w->element.bytes,
                                         .want_attributes = vector_write_wants_text(w),
                                         .want_grants = true,
                                         .want_vector = vector_write_wants_vector(w),
                                         .done = on_answer,
                                         .owner = d};
    if (collection_fetch_start(d->base.lane->searcher, &d->fetch, &err) == 0)
        return;
    resp_quire_error(&d->base.pending.out, &err);
    finish(d);
}

static struct resp_arg copy_arg(uint8_t **to, struct resp_arg arg)
{
    struct resp_arg copy = {arg.data ? *to : NULL, arg.bytes};
    if (arg.data) {
        memcpy(*to, arg.data, arg.bytes);
        *to += arg.bytes;
    }
    return copy;
}

static void defer(struct caller *c, struct vector_write *w)
{
    size_t vector_bytes = w->vector ? sizeof(float) * w->n_numbers : 0;
    size_t bytes = vector_bytes + w->key.bytes + w->element.bytes + w->attributes.bytes;
    struct deferred_write *d = deferred_begin(c, NULL, sizeof *d + bytes + 8, true);
    if (!d) {
        collection_unref(w->target);
        release_write(w);
        return;
    }
    uint8_t *to = d->bytes;
    d->base.pending.describe = describe;
    d->write = *w;
    if (w->vector) {
        d->write.vector = memcpy(to, w->vector, vector_bytes);
        to += vector_bytes;
    }
    d->write.key = copy_arg(&to, w->key);
    d->write.element = copy_arg(&to, w->element);
    d->write.attributes = copy_arg(&to, w->attributes);
    ask_disk(d);
}

void vector_write_run(struct caller *c, struct vector_write *w)
{
    struct resp_buffer out = {.protocol = c->protocol};
    if (!vector_scope_of(c, NULL, &w->scope)) {
        release_write(w);
        return;
    }
    if (c->plan) {
        vector_plan_run(c, w);
        release_write(w);
        return;
    }
    if (vector_write_try(c->lane->service, w, &out) == VECTOR_WRITE_ASKS_DISK) {
        resp_buffer_fini(&out);
        defer(c, w);
        return;
    }
    release_write(w);
    struct resp_buffer *reply = caller_reply(c);
    resp_raw(reply, out.data, out.bytes);
    reply->failed = reply->failed || out.failed;
    resp_buffer_fini(&out);
    caller_wait_lsn(c, w->lsn);
    key_stand_back(c);
}
