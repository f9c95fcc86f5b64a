/*
 * transfer.c - vector sets as elements that are written somewhere else.
 *
 * A source (a payload, another set) gives its elements one by one to `put_element`, which writes them to the new set.
 * Where the store is behind it waits, as VDELWHERE does; where it refuses because too much is in memory, it seals what
 * there is and tries once more.
 *
 * Config and schema go along, also the seed of the rotation: codes mean nothing without it.
 */
#include "server/dump/transfer.h"
#include "index/attribute/attribute_schema.h"
#include "index/attribute/grants.h"
#include "index/collection/collection_export.h"
#include "index/store/store.h"
#include "io/bytes.h"
#include "io/error.h"
#include "server/process/log.h"
#include <assert.h>
#include <stdlib.h>
#include <time.h>

/* ---- under a key ------------------------------------------------------------------------------------------------- */

static int bind_locked(struct keyspace_lock *lock, const struct key *key, const struct transfer_target *target,
                       const struct key_value *value, struct quire_error *err)
{
    struct key_entry *entry;
    uint32_t gone;
    int rc = keyspace_find_to_write(lock, key, &entry, err);
    bool busy = rc == 0 && entry && !target->replace;
    bool over = target->expire_ms && target->expire_ms <= keyspace_now(lock);
    if (rc < 0 || busy || over) {
        keyspace_release(value);
        if (busy)
            return error_set(err, QUIRE_EEXISTS, "Target key name already exists.");
        rc = rc == 0 && entry ? keyspace_delete(lock, &target->key, 1, &gone, err) : rc;
        return rc < 0 ? rc : 1;
    }
    rc = keyspace_put(lock, key, value, target->expire_ms, err);
    entry = rc == 0 ? keyspace_find(lock, key) : NULL;
    if (entry)
        entry->used_s -= target->idle_s; /* may be before the clock's 0: what is asked for is the difference */
    return rc;
}

int transfer_bind(struct service *service, const struct transfer_target *target, const struct key_value *value,
                  uint64_t *lsn, struct quire_error *err)
{
    struct collection *set = value->type == KEY_VECTOR_SET ? collection_ref(value->set) : NULL;
    struct keyspace_lock lock;
    struct quire_error ignored;
    uint64_t dropped;
    struct key key = keyspace_key(&service->keyspace, target->key);
    keyspace_lock_key(&lock, &service->keyspace, &key);
    int rc = bind_locked(&lock, &key, target, value, err);
    keyspace_unlock(&lock);
    *lsn = lock.lsn;
    if (set && rc != 0 && store_drop_collection(service->store, set, &dropped, &ignored) < 0)
        log_line(service->log, LOG_LEVEL_WARNING, "a set that got no key stays until the next start: %s",
                 ignored.message);
    collection_unref(set);
    return rc < 0 ? rc : 0;
}

int transfer_bind_later(struct service *service, const struct transfer_target *target, const struct key_value *value,
                        uint64_t *lsn, struct quire_error *err)
{
    gate_enter(&service->gate, service->n_lanes);
    int rc = transfer_bind(service, target, value, lsn, err);
    gate_leave(&service->gate, service->n_lanes);
    return rc;
}

/* ---- a new set --------------------------------------------------------------------------------------------------- */

struct filling {
    struct service *service;
    bool at_once; /* within a transaction: it neither waits nor seals */
    struct collection *set;
    struct collection_import *import;
    struct quire_error *err;
};

static int put_element(void *context, const struct exported_element *element)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    struct filling *f = context;
    int rc = collection_import_element(f->import, element, f->err);
    if (f->at_once)
        return rc;
    if (rc == QUIRE_ELIMIT && store_seal(f->service->store, f->set, NULL) == 0)
        rc = collection_import_element(f->import, element, f->err);
    if (store_is_behind(f->service->store))
        nanosleep(&pause, NULL);
    return rc;
}

static int begin_filling(struct filling *f, struct service *service, bool at_once, const uint8_t *shape,
                         uint32_t shape_bytes, struct quire_error *err)
{
    struct collection_config config;
    struct attribute_schema *schema = NULL;
    uint64_t lsn;
    *f = (struct filling){.service = service, .at_once = at_once, .err = err};
    if (!service->store)
        return error_set(err, QUIRE_EUNSUPPORTED, "vector sets need a data folder: start the server with --dir FOLDER");
    int rc = collection_import_shape(shape, shape_bytes, &config, &schema, err);
    if (rc == 0)
        rc = store_create_collection(service->store, &config, schema, &f->set, &lsn, err);
    attribute_schema_destroy(schema);
    return rc == 0 ? collection_import_begin(f->set, &f->import, err) : rc;
}

/* The set, or on failure nothing of it. */
static int end_filling(struct filling *f, int rc, struct collection **out)
{
    struct quire_error ignored;
    uint64_t lsn;
    collection_import_end(f->import);
    if (rc == 0) {
        *out = f->set;
        return 0;
    }
    if (f->set && store_drop_collection(f->service->store, f->set, &lsn, &ignored) < 0)
        log_line(f->service->log, LOG_LEVEL_WARNING, "a set that could not be filled stays until the next start: %s",
                 ignored.message);
    collection_unref(f->set);
    return rc;
}

static int copy_elements(struct filling *f, struct collection *from)
{
    struct collection_export *export = NULL;
    int rc = collection_export_begin(from, put_element, f, &export, f->err);
    if (rc == 0 && f->at_once && collection_export_has_sealed(export))
        rc = error_set(
            f->err, QUIRE_EUNSUPPORTED,
            "a vector set that lies on the disk cannot be copied within a transaction: send 'copy' by itself");
    if (rc == 0)
        rc = collection_export_memory(export, f->err);
    if (rc == 0)
        rc = collection_export_sealed(export, f->err);
    collection_export_end(export);
    return rc;
}

int transfer_copy_set(struct service *service, struct collection *from, bool at_once, struct collection **out,
                      struct quire_error *err)
{
    struct filling f;
    uint32_t shape_bytes = 0;
    uint8_t *shape = collection_export_shape(from, &shape_bytes);
    int rc = shape ? begin_filling(&f, service, at_once, shape, shape_bytes, err)
                   : error_set(err, QUIRE_ENOMEM, "no memory for what a set is");
    bool begun = shape != NULL;
    free(shape);
    if (rc == 0)
        rc = copy_elements(&f, from);
    return begun ? end_filling(&f, rc, out) : rc;
}

/* ---- payloads ---------------------------------------------------------------------------------------------------- */

static int write_element(void *context, const struct exported_element *element)
{
    struct transfer_writing *w = context;
    payload_number(w->out, 2, element->key_bytes);
    payload_number(w->out, 2, element->n_grants);
    payload_number(w->out, 4, element->attribute_bytes);
    resp_raw(w->out, element->key, element->key_bytes);
    resp_raw(w->out, element->stored, w->stored_bytes);
    for (uint32_t i = 0; i < element->n_grants; i++) {
        payload_number(w->out, 1, element->grants[i].bytes);
        resp_raw(w->out, element->grants[i].name, element->grants[i].bytes);
    }
    resp_raw(w->out, element->attributes, element->attribute_bytes);
    w->n++;
    if (w->out->failed)
        return error_set(w->err, QUIRE_ENOMEM, "no memory for the dump of a set");
    return w->out->bytes <= w->most ? 0 : error_set(w->err, QUIRE_ELIMIT, "the dump is too large");
}

int transfer_write_begin(struct transfer_writing *w, struct collection *set, uint64_t most, struct resp_buffer *out,
                         struct quire_error *err)
{
    uint32_t shape_bytes = 0;
    *w = (struct transfer_writing){
        .out = out, .most = most, .stored_bytes = collection_stored_bytes(set), .from = out->bytes, .err = err};
    if (collection_count(set) > most / w->stored_bytes)
        return error_set(err, QUIRE_ELIMIT, "the dump is too large");
    uint8_t *shape = collection_export_shape(set, &shape_bytes);
    if (!shape)
        return error_set(err, QUIRE_ENOMEM, "no memory for what a set is");
    payload_begin(out, KEY_VECTOR_SET);
    payload_number(out, 4, shape_bytes);
    resp_raw(out, shape, shape_bytes);
    payload_number(out, 4, w->stored_bytes);
    w->count_at = out->bytes;
    payload_number(out, 8, 0); /* known when all were visited */
    free(shape);
    int rc = collection_export_begin(set, write_element, w, &w->export, err);
    if (rc == 0)
        rc = collection_export_memory(w->export, err);
    if (rc < 0)
        transfer_write_end(w);
    return rc;
}

int transfer_write_rest(struct transfer_writing *w, struct quire_error *err)
{
    w->err = err;
    int rc = collection_export_sealed(w->export, err);
    if (rc == 0 && w->out->failed)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the dump of a set");
    if (rc < 0)
        return rc;
    bytes_store_u64(w->out->data + w->count_at, w->n);
    payload_end(w->out, w->from);
    return 0;
}

void transfer_write_end(struct transfer_writing *w)
{
    collection_export_end(w->export);
    w->export = NULL;
}

/* grants: space for GRANTS_MAX. */
static bool take_element(struct payload *p, uint64_t stored_bytes, struct grant *grants, struct exported_element *out)
{
    const uint8_t *key, *stored, *name, *attributes;
    uint64_t key_bytes, n_grants, attribute_bytes, bytes;
    if (!payload_take(p, 2, &key_bytes) || !payload_take(p, 2, &n_grants) || !payload_take(p, 4, &attribute_bytes) ||
        !payload_take_bytes(p, key_bytes, &key) || !payload_take_bytes(p, stored_bytes, &stored) ||
        n_grants > GRANTS_MAX)
        return false;
    for (uint64_t i = 0; i < n_grants; i++) {
        if (!payload_take(p, 1, &bytes) || !payload_take_bytes(p, bytes, &name))
            return false;
        grants[i] = (struct grant){.name = (const char *)name, .bytes = (uint32_t)bytes};
    }
    if (!payload_take_bytes(p, attribute_bytes, &attributes))
        return false;
    *out = (struct exported_element){.key = key,
                                     .key_bytes = (uint32_t)key_bytes,
                                     .stored = stored,
                                     .grants = grants,
                                     .n_grants = (uint32_t)n_grants,
                                     .attributes = attribute_bytes ? attributes : NULL,
                                     .attribute_bytes = (uint32_t)attribute_bytes};
    return true;
}

/* Whether it is the payload's fault, and not the server's state. */
static bool is_bad_data(int code)
{
    return code == QUIRE_EEXISTS || code == QUIRE_ENOTFINITE || code == QUIRE_EZEROVEC || code == QUIRE_ERANGE ||
           code == QUIRE_EINVALID || code == QUIRE_EDIM || code == QUIRE_ETYPE;
}

static int read_elements(struct filling *f, struct payload *p, struct grant *grants)
{
    uint64_t stored_bytes, n;
    int rc = 0;
    if (!payload_take(p, 4, &stored_bytes) || !payload_take(p, 8, &n))
        return error_set(f->err, QUIRE_ECORRUPT, "a set ends before its elements");
    if (stored_bytes != collection_stored_bytes(f->set)) /* another version of Quire keeps vectors otherwise */
        return error_set(f->err, QUIRE_EVERSION, "vectors of %llu bytes, not %u", (unsigned long long)stored_bytes,
                         collection_stored_bytes(f->set));
    for (; n > 0 && rc == 0; n--) {
        struct exported_element element;
        if (!take_element(p, stored_bytes, grants, &element))
            return error_set(f->err, QUIRE_ECORRUPT, "a set ends before its elements do");
        rc = put_element(f, &element);
    }
    if (rc == 0 && p->at != p->end)
        rc = error_set(f->err, QUIRE_ECORRUPT, "something stands behind the elements of a set");
    return rc;
}

int transfer_read_set(struct service *service, struct payload *p, bool at_once, struct collection **out,
                      struct quire_error *err)
{
    struct filling f;
    const uint8_t *shape;
    uint64_t shape_bytes;
    assert(p->type == KEY_VECTOR_SET);
    if (!payload_take(p, 4, &shape_bytes) || !payload_take_bytes(p, shape_bytes, &shape))
        return error_set(err, QUIRE_ECORRUPT, "a set ends before it says what it is");
    struct grant *grants = malloc(GRANTS_MAX * sizeof *grants);
    int rc = begin_filling(&f, service, at_once, shape, (uint32_t)shape_bytes, err);
    if (rc == 0)
        rc = grants ? read_elements(&f, p, grants) : error_set(err, QUIRE_ENOMEM, "no memory for grants");
    free(grants);
    if (is_bad_data(rc) && err)
        rc = err->code = QUIRE_ECORRUPT;
    return end_filling(&f, rc, out);
}
