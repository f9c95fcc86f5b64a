/*
 * document_index.c - documents get numbers, and go into fields and vectors under these.
 *
 * A change is put in under a new number before the old one is taken out, and all of it under the index's lock, so that
 * a search sees a document once. What cannot be put in for lack of memory leaves no trace, counts as a failure, and
 * the old document goes all the same: an answer out of an old version would be wrong.
 *
 * A document whose vectors are nowhere else (document_view.is_kept) is held where it cannot be found: it has a number
 * and its vectors, and is in no set.
 *
 * A number is never given twice: 2^32 versions of documents can be written before the index must be made anew, which a
 * restart does.
 */
#include "document/index/document_index_priv.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { FILLED = 1000000, GONE_MIN = 1024, NOTE_CHANGES = 64 };

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

int document_index_create(struct schema *schema, struct document_index **out, struct quire_error *err)
{
    struct document_index *x = calloc(1, sizeof *x);
    int rc = x ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for an index");
    if (x) {
        atomic_init(&x->references, 1);
        atomic_init(&x->filled_millionths, FILLED);
        pthread_rwlock_init(&x->lock, NULL);
        x->next_id = 1;
        if (getrandom(&x->seed, sizeof x->seed, 0) != (ssize_t)sizeof x->seed)
            x->seed = clock_ns();
        x->name = strdup(schema->name);
        x->schemas = malloc(sizeof *x->schemas);
        x->vectors = calloc(schema->n_fields, sizeof *x->vectors);
        rc = x->name && x->schemas && x->vectors ? fields_create(schema, &x->fields, err)
                                                 : error_set(err, QUIRE_ENOMEM, "no memory for an index");
        if (rc == 0)
            rc = record_reader_init(&x->reader, schema, err);
    }
    if (x && x->schemas) {
        x->schemas[x->n_schemas++] = schema;
        atomic_init(&x->schema, schema);
    } else {
        schema_free(schema);
    }
    if (rc < 0)
        document_index_unref(x);
    else
        *out = x;
    return rc;
}

static void destroy(struct document_index *x)
{
    for (uint32_t i = 0; x->n_schemas > 0 && x->vectors && i < x->schemas[x->n_schemas - 1]->n_fields; i++)
        vectors_unref(x->vectors[i]);
    free(x->vectors);
    fields_free(x->fields);
    for (uint32_t i = 0; i < x->n_by_id; i++)
        free(x->by_id[i].document);
    free(x->by_id);
    free(x->by_key.places);
    for (uint32_t i = 0; i < x->n_schemas; i++)
        schema_free(x->schemas[i]);
    for (uint32_t i = 0; i < x->n_definitions; i++)
        free(x->definitions[i]);
    free(x->schemas);
    free(x->definitions);
    free(x->name);
    record_reader_fini(&x->reader);
    pthread_rwlock_destroy(&x->lock);
    free(x);
}

struct document_index *document_index_ref(struct document_index *x)
{
    atomic_fetch_add_explicit(&x->references, 1, memory_order_relaxed);
    return x;
}

void document_index_unref(struct document_index *x)
{
    if (x && atomic_fetch_sub_explicit(&x->references, 1, memory_order_acq_rel) == 1)
        destroy(x);
}

const struct schema *document_index_schema(struct document_index *x)
{
    return atomic_load_explicit(&x->schema, memory_order_acquire);
}

const char *document_index_name(const struct document_index *x)
{
    return x->name;
}

uint32_t document_index_n_vectors(const struct schema *schema, uint32_t first)
{
    uint32_t n = 0;
    for (uint32_t i = first; i < schema->n_fields; i++)
        n += schema->fields[i].type == SCHEMA_VECTOR;
    return n;
}

/* The vector fields from number `first` on get theirs. */
static void give(struct document_index *x, const struct schema *schema, uint32_t first, struct vectors *const *vectors,
                 uint32_t n)
{
    uint32_t given = 0;
    for (uint32_t i = first; i < schema->n_fields; i++)
        if (schema->fields[i].type == SCHEMA_VECTOR) {
            assert(given < n && !x->vectors[i]);
            x->vectors[i] = vectors[given++];
        }
    assert(given == n);
    (void)n;
}

void document_index_give_vectors(struct document_index *x, struct vectors *const *vectors, uint32_t n)
{
    pthread_rwlock_wrlock(&x->lock);
    give(x, document_index_schema(x), 0, vectors, n);
    pthread_rwlock_unlock(&x->lock);
}

int document_index_prepare(const struct document_index *x, struct schema *schema, struct document_change *out,
                           struct quire_error *err)
{
    struct document_change change = {.schema = schema};
    change.schemas = malloc((x->n_schemas + (size_t)1) * sizeof *change.schemas);
    change.vectors = calloc(schema->n_fields, sizeof *change.vectors);
    int rc = change.schemas && change.vectors ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to alter an index");
    if (rc == 0)
        rc = record_reader_init(&change.reader, schema, err);
    if (rc == 0)
        *out = change;
    else
        array_free_all(change.schemas, change.vectors);
    return rc;
}

void document_index_forget(struct document_change *change)
{
    array_free_all(change->schemas, change->vectors);
    record_reader_fini(&change->reader);
}

int document_index_alter(struct document_index *x, struct document_change *change, struct vectors *const *vectors,
                         uint32_t n_vectors, struct quire_error *err)
{
    uint32_t n_before = document_index_schema(x)->n_fields;
    struct document_change old = {0};
    assert(change->schema->n_fields >= n_before);
    pthread_rwlock_wrlock(&x->lock);
    int rc = fields_alter(x->fields, change->schema, err);
    if (rc == 0) {
        memcpy(change->vectors, x->vectors, n_before * sizeof(void *));
        memcpy(change->schemas, x->schemas, x->n_schemas * sizeof(void *));
        change->schemas[x->n_schemas++] = change->schema;
        old = (struct document_change){.schemas = x->schemas, .vectors = x->vectors, .reader = x->reader};
        x->schemas = change->schemas;
        x->vectors = change->vectors;
        x->reader = change->reader;
        give(x, change->schema, n_before, vectors, n_vectors);
        atomic_store_explicit(&x->schema, change->schema, memory_order_release);
    }
    pthread_rwlock_unlock(&x->lock);
    document_index_forget(rc == 0 ? &old : change);
    return rc;
}

void document_index_damaged(struct document_index *x, const struct quire_error *err)
{
    x->damage = *err;
}

int document_index_available(struct document_index *x, struct quire_error *err)
{
    if (x->damage.code < 0 && err)
        *err = x->damage;
    return x->damage.code;
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

static struct document_place *find(const struct document_index *x, const void *key, uint32_t key_bytes, uint64_t hash)
{
    uint64_t mask = x->by_key.capacity - 1;
    for (uint64_t at = hash & mask; x->by_key.n > 0 && x->by_key.places[at].document; at = (at + 1) & mask) {
        struct document_place *p = &x->by_key.places[at];
        if (p->hash == hash && p->document->key_bytes == key_bytes && memcmp(p->document->key, key, key_bytes) == 0)
            return p;
    }
    return NULL;
}

/* Place of the first number >= id. */
static uint32_t place_of_id(const struct document_index *x, uint32_t id)
{
    uint32_t at;
    array_find_first(at, 0, x->n_by_id, x->by_id[at].id < id);
    return at;
}

/* Takes out numbers that are gone, where these are most. */
static void sweep(struct document_index *x)
{
    uint32_t n = 0;
    if (x->n_by_id - x->by_key.n < x->by_key.n + GONE_MIN)
        return;
    for (uint32_t i = 0; i < x->n_by_id; i++)
        if (x->by_id[i].document)
            x->by_id[n++] = x->by_id[i];
    x->n_by_id = n;
}

static void drop_document(struct document_index *x, struct document *d)
{
    struct numbered *number = &x->by_id[place_of_id(x, d->id)];
    assert(number->document == d);
    fields_remove(x->fields, d->id);
    x->n_held -= d->is_held;
    number->document = NULL;
    x->bytes -= sizeof *d + d->key_bytes;
    free(d);
}

static void note_failure(struct document_index *x, const void *key, uint32_t key_bytes, const struct quire_error *err)
{
    x->failures++;
    snprintf(x->error, sizeof x->error, "%.*s", (int)sizeof x->error - 1, err->message);
    snprintf(x->error_key, sizeof x->error_key, "%.*s", key_bytes < sizeof x->error_key ? (int)key_bytes : 255,
             (const char *)key);
}

static uint64_t memory_of(const struct document_index *x)
{
    return fields_bytes(x->fields) + x->bytes + x->by_key.capacity * sizeof *x->by_key.places +
           x->capacity * sizeof *x->by_id;
}

/* Now and then: what the fields take is added up. */
static void note_memory(struct document_index *x)
{
    if (!x->total || ++x->changes < NOTE_CHANGES)
        return;
    uint64_t now = memory_of(x);
    atomic_fetch_add_explicit(x->total, now - x->noted, memory_order_relaxed);
    x->noted = now;
    x->changes = 0;
}

void document_index_account(struct document_index *x, _Atomic uint64_t *total)
{
    pthread_rwlock_wrlock(&x->lock);
    if (x->total)
        atomic_fetch_sub_explicit(x->total, x->noted, memory_order_relaxed);
    x->total = total;
    x->noted = 0;
    x->changes = NOTE_CHANGES;
    note_memory(x);
    pthread_rwlock_unlock(&x->lock);
}

/* Puts vectors of the record under the key; those of other fields go. */
static int put_vectors(struct document_index *x, const struct record *record, const struct document *d, uint32_t old_id,
                       struct quire_error *err)
{
    uint64_t lsn;
    int rc = 0;
    for (uint32_t i = 0; i < record->schema->n_fields && rc == 0; i++) {
        const struct record_field *f = &record->fields[i];
        if (x->vectors[i] && f->n_values > 0) {
            struct vectors_put put = {.key = d->key, .key_bytes = d->key_bytes, .old_id = old_id, .id = d->id};
            rc = f->values[0].is_kept ? vectors_put(x->vectors[i], &put, err) : QUIRE_ENOTFOUND;
            put.vector = f->values[0].text;
            if (rc == QUIRE_ENOTFOUND && put.vector)
                rc = vectors_put(x->vectors[i], &put, err);
        } else if (x->vectors[i] && old_id != VECTORS_NO_ID) {
            rc = vectors_remove(x->vectors[i], d->key, d->key_bytes, old_id, &lsn, err);
        }
    }
    return rc;
}

/* But for those that are only here; view NULL: all. Whether any is left. */
static bool remove_vectors(struct document_index *x, const struct document *d, const struct document_view *view)
{
    const struct schema *schema = document_index_schema(x);
    uint64_t lsn;
    bool keeps = false;
    for (uint32_t i = 0; i < schema->n_fields; i++) {
        if (!x->vectors[i])
            continue;
        if (view && record_is_kept(view, &schema->fields[i]))
            keeps = keeps || vectors_have(x->vectors[i], d->id);
        else
            vectors_remove(x->vectors[i], d->key, d->key_bytes, d->id, &lsn, NULL);
    }
    return keeps;
}

/* A document with a number of its own, in no table yet, which have room for it; NULL without memory, or where all
 * numbers are used. */
static struct document *make(struct document_index *x, const void *key, uint32_t key_bytes)
{
    if (x->next_id == VECTORS_NO_ID || !array_reserve(&x->by_id, &x->capacity, x->n_by_id + (size_t)1) ||
        !document_table_reserve(&x->by_key))
        return NULL;
    struct document *d = malloc(sizeof *d + key_bytes);
    if (!d)
        return NULL;
    d->id = x->next_id++; /* used up, whatever comes: who keeps fields may have seen it */
    d->key_bytes = (uint16_t)key_bytes;
    d->is_held = false;
    if (key_bytes > 0)
        memcpy(d->key, key, key_bytes);
    return d;
}

/* A document is in the tables, in place of what was there under the key. */
static void take_place(struct document_index *x, struct document *d, uint64_t hash)
{
    x->by_id[x->n_by_id++] = (struct numbered){d, d->id};
    x->bytes += sizeof *d + d->key_bytes;
    x->n_held += d->is_held;
    struct document_place *place = find(x, d->key, d->key_bytes, hash); /* which reserving may have moved */
    if (place) {
        drop_document(x, place->document);
        place->document = d;
    } else {
        document_table_add(&x->by_key, (struct document_place){d, hash}); /* reserved */
    }
    sweep(x);
    fields_purge(x->fields); /* a slice */
}

/* Puts the record in, in place of the document that was there under the key. */
static int replace(struct document_index *x, const struct record *record, const struct document_view *view,
                   const void *key, uint32_t key_bytes, uint64_t hash, struct quire_error *err)
{
    struct document_place *place = find(x, key, key_bytes, hash);
    uint32_t old_id = place ? place->document->id : VECTORS_NO_ID;
    struct document *d = make(x, key, key_bytes);
    if (!d)
        return error_set(err, QUIRE_ENOMEM, "no memory, or no number, for another document in an index");
    int rc = fields_add(x->fields, d->id, record, err);
    if (rc == 0 && (rc = put_vectors(x, record, d, old_id, err)) < 0) {
        fields_remove(x->fields, d->id);
        d->is_held = remove_vectors(x, d, view); /* what had the new number already, and is only here */
    }
    if (rc == 0 || d->is_held)
        take_place(x, d, hash);
    else
        free(d);
    return rc;
}

static void remove_place(struct document_index *x, struct document_place *place)
{
    struct document *d = place->document;
    remove_vectors(x, d, NULL);
    document_table_remove(&x->by_key, place);
    drop_document(x, d);
    sweep(x);
}

/* A document that could not be put in: what only the index has of its vectors stays, and all else goes. At start, when
 * its rows are still to be claimed, they are. */
static void hold(struct document_index *x, const struct document_view *view, const void *key, uint32_t key_bytes,
                 uint64_t hash)
{
    const struct schema *schema = document_index_schema(x);
    struct document_place *place = find(x, key, key_bytes, hash);
    struct document *d = place ? place->document : NULL;
    bool keeps = false;
    for (uint32_t i = 0; i < schema->n_fields && !keeps; i++)
        keeps = x->vectors[i] && record_is_kept(view, &schema->fields[i]);
    if (!keeps) {
        if (place)
            remove_place(x, place);
        return;
    }
    if (!d && (d = make(x, key, key_bytes))) {
        for (uint32_t i = 0; i < schema->n_fields; i++) {
            struct vectors_put put = {.key = key, .key_bytes = key_bytes, .old_id = VECTORS_NO_ID, .id = d->id};
            if (x->vectors[i] && record_is_kept(view, &schema->fields[i]))
                vectors_put(x->vectors[i], &put, NULL);
        }
        d->is_held = remove_vectors(x, d, view);
        if (d->is_held)
            take_place(x, d, hash);
        else
            free(d);
        return;
    }
    if (!d) {
        struct quire_error err;
        error_set(&err, QUIRE_ENOMEM, "no memory for the documents of index %.64s", x->name);
        document_index_damaged(x, &err); /* its vectors stay where they are until the next start */
        return;
    }
    fields_remove(x->fields, d->id);
    if (!remove_vectors(x, d, view)) {
        remove_place(x, place);
    } else if (!d->is_held) {
        d->is_held = true;
        x->n_held++;
    }
}

void document_index_put(struct document_index *x, const void *key, uint32_t key_bytes, const struct document_view *view,
                        bool anew)
{
    struct quire_error err = {0};
    struct record record;
    uint64_t hash = XXH3_64bits_withSeed(key, key_bytes, x->seed), began_us = clock_us();
    pthread_rwlock_wrlock(&x->lock);
    if (!anew || !find(x, key, key_bytes, hash)) {
        int rc = record_read(&x->reader, view, &record, &err);
        if (rc == 0)
            rc = replace(x, &record, view, key, key_bytes, hash, &err);
        if (rc == QUIRE_ENOTFOUND)
            atomic_store_explicit(&x->lacks, true, memory_order_relaxed);
        else if (rc < 0)
            note_failure(x, key, key_bytes, &err);
        if (rc < 0) {
            hold(x, view, key, key_bytes, hash);
        }
        note_memory(x);
        x->indexing_us += clock_us() - began_us;
    }
    pthread_rwlock_unlock(&x->lock);
}

int document_index_admit(struct document_index *x, struct quire_error *err)
{
    int rc = 0;
    pthread_rwlock_rdlock(&x->lock);
    for (uint32_t i = 0; i < document_index_schema(x)->n_fields && rc == 0; i++)
        if (x->vectors[i])
            rc = vectors_admit(x->vectors[i], NULL, err);
    pthread_rwlock_unlock(&x->lock);
    return rc;
}

void document_index_remove(struct document_index *x, const void *key, uint32_t key_bytes)
{
    pthread_rwlock_wrlock(&x->lock);
    struct document_place *place = find(x, key, key_bytes, XXH3_64bits_withSeed(key, key_bytes, x->seed));
    if (place) {
        remove_place(x, place);
        note_memory(x);
    }
    pthread_rwlock_unlock(&x->lock);
}

struct vectors *document_index_vectors(struct document_index *x, const void *key, uint32_t key_bytes,
                                       const struct schema_field *field, uint32_t *id)
{
    struct vectors *vectors = NULL;
    pthread_rwlock_rdlock(&x->lock);
    const struct document_place *place = find(x, key, key_bytes, XXH3_64bits_withSeed(key, key_bytes, x->seed));
    if (place && x->vectors[field->index] && vectors_have(x->vectors[field->index], place->document->id)) {
        *id = place->document->id;
        vectors = vectors_ref(x->vectors[field->index]);
    }
    pthread_rwlock_unlock(&x->lock);
    return vectors;
}

bool document_index_key(struct document_index *x, uint32_t id, uint8_t *key, uint32_t *key_bytes)
{
    pthread_rwlock_rdlock(&x->lock);
    uint32_t at = place_of_id(x, id);
    const struct document *d = at < x->n_by_id && x->by_id[at].id == id ? x->by_id[at].document : NULL;
    if (d) {
        memcpy(key, d->key, d->key_bytes);
        *key_bytes = d->key_bytes;
    }
    pthread_rwlock_unlock(&x->lock);
    return d != NULL;
}

uint32_t document_index_keys(struct document_index *x, uint32_t from, uint8_t *out, size_t bytes, size_t *n_bytes)
{
    size_t used = 0;
    pthread_rwlock_rdlock(&x->lock);
    uint32_t at = place_of_id(x, from);
    for (; at < x->n_by_id; at++) {
        const struct document *d = x->by_id[at].document;
        if (!d)
            continue;
        const uint32_t length = d->key_bytes;
        if (used + sizeof length + length > bytes)
            break;
        memcpy(out + used, &length, sizeof length);
        memcpy(out + used + sizeof length, d->key, length);
        used += sizeof length + length;
    }
    *n_bytes = used;
    uint32_t next = at < x->n_by_id ? x->by_id[at].id : 0;
    pthread_rwlock_unlock(&x->lock);
    return next;
}

bool document_index_number(struct document_index *x, uint32_t id, const struct schema_field *field, double *number)
{
    pthread_rwlock_rdlock(&x->lock);
    bool has = fields_number(x->fields, id, field->index, number);
    pthread_rwlock_unlock(&x->lock);
    return has;
}

int document_index_tags(struct document_index *x, const struct schema_field *field,
                        bool (*value)(void *context, const char *text, uint32_t bytes, uint64_t documents),
                        void *context, struct quire_error *err)
{
    pthread_rwlock_rdlock(&x->lock);
    int rc = fields_tag_values(x->fields, field->index, value, context, err);
    pthread_rwlock_unlock(&x->lock);
    return rc;
}

void document_index_find_keys(struct document_index *x, const struct schema_word *keys, uint32_t n,
                              roaring_bitmap_t *ids)
{
    pthread_rwlock_rdlock(&x->lock);
    for (uint32_t i = 0; i < n; i++) {
        const struct document_place *place =
            find(x, keys[i].data, keys[i].bytes, XXH3_64bits_withSeed(keys[i].data, keys[i].bytes, x->seed));
        if (place && !place->document->is_held)
            roaring_bitmap_add(ids, place->document->id);
    }
    pthread_rwlock_unlock(&x->lock);
}

/* ---- what it says of itself -------------------------------------------------------------------------------------- */

bool document_index_lacks(const struct document_index *x)
{
    return atomic_load_explicit(&x->lacks, memory_order_relaxed);
}

bool document_index_is_dropped(const struct document_index *x)
{
    return atomic_load_explicit(&x->dropped, memory_order_relaxed);
}

void document_index_used(struct document_index *x)
{
    atomic_fetch_add_explicit(&x->uses, 1, memory_order_relaxed);
}

void document_index_filled(struct document_index *x, double share)
{
    assert(share >= 0 && share <= 1);
    atomic_store_explicit(&x->filled_millionths, (uint32_t)(share * FILLED), memory_order_relaxed);
}

uint32_t document_index_count(struct document_index *x)
{
    pthread_rwlock_rdlock(&x->lock);
    uint32_t n = (uint32_t)(x->by_key.n - x->n_held);
    pthread_rwlock_unlock(&x->lock);
    return n;
}

void document_index_get_stats(struct document_index *x, struct document_index_stats *out)
{
    uint32_t filled = atomic_load_explicit(&x->filled_millionths, memory_order_relaxed);
    memset(out, 0, sizeof *out);
    pthread_rwlock_rdlock(&x->lock);
    out->documents = x->by_key.n - x->n_held;
    out->max_id = x->next_id - 1;
    out->failures = x->failures;
    out->indexing_us = x->indexing_us;
    out->bytes = x->bytes + x->by_key.capacity * sizeof *x->by_key.places + x->capacity * sizeof *x->by_id;
    fields_get_stats(x->fields, &out->fields);
    for (uint32_t i = 0; i < document_index_schema(x)->n_fields; i++) {
        struct vectors_stats one;
        if (!x->vectors[i])
            continue;
        vectors_get_stats(x->vectors[i], &one);
        out->vectors.documents += one.documents;
        out->vectors.memory_bytes += one.memory_bytes;
        out->vectors.disk_bytes += one.disk_bytes;
        out->vectors.segments += one.segments;
    }
    memcpy(out->error, x->error, sizeof out->error);
    memcpy(out->error_key, x->error_key, sizeof out->error_key);
    pthread_rwlock_unlock(&x->lock);
    out->uses = atomic_load_explicit(&x->uses, memory_order_relaxed);
    out->filling = filled < FILLED;
    out->filled = (double)filled / FILLED;
}
