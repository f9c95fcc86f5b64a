/*
 * vectors_load.c - a field that was there before: from the keys of its rows to the documents that they are of.
 *
 * The names of all rows are read once. Until everything is claimed they are kept, with a table of their keys' hashes.
 * Then what is left of them, rows whose documents are not there, goes.
 */
#include "document/vectors/vectors_priv.h"
#include "index/collection/collection_export.h"
#include "index/store/store.h"
#include "io/array.h"
#include "io/bitmap.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A row that nobody has claimed; n_bytes 0: somebody has. */
struct row_name {
    uint64_t at;            /* of its name, in bytes */
    uint32_t n_bytes, next; /* next: of the same bucket, + 1; 0: none */
};

struct vectors_unclaimed {
    uint8_t *bytes; /* names, one behind the other; owned */
    size_t n_bytes, bytes_capacity;
    struct row_name *names; /* owned */
    uint32_t n, capacity;
    uint32_t *buckets; /* first name + 1; mask + 1 of them; owned */
    uint32_t mask;
    uint64_t *digests; /* of the rows' vectors, by name; owned, NULL: not read */
};

void vectors_unclaimed_free(struct vectors_unclaimed *u)
{
    if (u)
        array_free_all(u->bytes, u->names, u->buckets, u->digests, u);
}

static int take_name(void *context, const void *name, uint32_t bytes)
{
    struct vectors_unclaimed *u = context;
    if (bytes <= NUMBER_BYTES)
        return QUIRE_ECORRUPT;
    if (!array_reserve(&u->bytes, &u->bytes_capacity, u->n_bytes + bytes) ||
        !array_reserve(&u->names, &u->capacity, (size_t)u->n + 1))
        return QUIRE_ENOMEM;
    memcpy(u->bytes + u->n_bytes, name, bytes);
    u->names[u->n++] = (struct row_name){.at = u->n_bytes, .n_bytes = bytes};
    u->n_bytes += bytes;
    return 0;
}

static uint32_t *bucket_of(const struct vectors_unclaimed *u, const void *key, uint32_t bytes)
{
    return &u->buckets[XXH3_64bits(key, bytes) & u->mask];
}

static int fill_buckets(struct vectors_unclaimed *u)
{
    uint64_t n = 1;
    while (n < u->n)
        n *= 2;
    u->mask = (uint32_t)(n - 1);
    u->buckets = calloc(n, sizeof *u->buckets);
    if (!u->buckets)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < u->n; i++) {
        struct row_name *name = &u->names[i];
        uint32_t *bucket = bucket_of(u, u->bytes + name->at + NUMBER_BYTES, name->n_bytes - NUMBER_BYTES);
        name->next = *bucket;
        *bucket = i + 1;
    }
    return 0;
}

static uint32_t number_at(const struct vectors_unclaimed *u, uint32_t i)
{
    return number_of_name(u->bytes + u->names[i].at);
}

/* The table of numbers, by who has one. QUIRE_ECORRUPT: two rows have the same. */
static int fill_table(struct vectors *v, const struct vectors_unclaimed *u)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < u->n; i++) {
        if (number_at(u, i) >= NUMBER_NONE - 1)
            return QUIRE_ECORRUPT;
        end = number_at(u, i) >= end ? number_at(u, i) + 1 : end;
    }
    uint8_t *taken = calloc((size_t)end / 8 + 1, 1);
    int rc = taken ? 0 : QUIRE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < u->n; i++) {
        rc = bitmap_has(taken, number_at(u, i)) ? QUIRE_ECORRUPT : 0;
        bitmap_add(taken, number_at(u, i));
    }
    rc = rc == 0 ? vectors_table_restore(&v->table, end, taken) : rc;
    free(taken);
    return rc;
}

static bool fits(const struct collection_config *have, const struct collection_config *want)
{
    return have->numbered && have->dim == want->dim && have->type == want->type && have->metric == want->metric &&
           have->slot == want->slot;
}

static int load(struct vectors *v, struct quire_error *err)
{
    struct vectors_unclaimed *u = v->unclaimed = calloc(1, sizeof *u);
    int rc = u ? collection_each_name(v->collection, take_name, u, err) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = fill_buckets(u);
    if (rc == 0)
        rc = fill_table(v, u);
    if (rc == QUIRE_ENOMEM)
        return error_set(err, rc, "no memory for the names of %llu vectors",
                         (unsigned long long)collection_count(v->collection));
    if (rc == QUIRE_ECORRUPT && err && err->code != rc)
        error_set(err, rc, "collection %llu: the names of its elements are not those of documents: quire repair",
                  (unsigned long long)collection_uid(v->collection));
    return rc;
}

int vectors_open(struct store *store, uint64_t uid, const struct schema_vector *what, struct vectors **out,
                 struct quire_error *err)
{
    struct collection_config config;
    struct vectors *v = NULL;
    int rc = vectors_config(what, &config, err);
    struct collection *collection = rc == 0 ? store_find(store, uid) : NULL;
    if (rc < 0)
        return rc;
    if (!collection)
        return error_set(err, QUIRE_ENOTFOUND, "collection %llu is not there", (unsigned long long)uid);
    rc = collection_available(collection, err);
    if (rc == 0 && !fits(collection_config(collection), &config))
        rc = error_set(err, QUIRE_EINVALID, "collection %llu does not hold the vectors of such a field",
                       (unsigned long long)uid);
    if (rc == 0)
        rc = vectors_new(store, collection, what, &v, err);
    if (rc < 0) {
        collection_unref(collection);
        return rc;
    }
    assert(v);
    rc = load(v, err);
    if (rc < 0)
        vectors_unref(v);
    else
        *out = v;
    return rc;
}

/* The place of a name with this key; u->n: there is none. */
static uint32_t find_name(const struct vectors_unclaimed *u, const void *key, uint32_t key_bytes)
{
    for (uint32_t at = *bucket_of(u, key, key_bytes); at; at = u->names[at - 1].next) {
        const struct row_name *name = &u->names[at - 1];
        if (name->n_bytes == NUMBER_BYTES + key_bytes &&
            memcmp(u->bytes + name->at + NUMBER_BYTES, key, key_bytes) == 0)
            return at - 1;
    }
    return u->n;
}

/* Whether the vector is that of a row. One that cannot be looked at is another. */
static bool is_vector_of(const struct vectors *v, uint64_t digest, const void *vector)
{
    /* a collection has 64-bit floats as 32 bits */
    const uint32_t bytes = vectors_bytes(&v->what) / (v->what.element == SCHEMA_FLOAT64 ? 2 : 1);
    void *elements = malloc(vectors_bytes(&v->what));
    bool is = false;
    if (elements) {
        vectors_elements(&v->what, vector, elements);
        is = XXH3_64bits_withSeed(elements, bytes, v->seed) == digest;
    }
    free(elements);
    return is;
}

uint32_t vectors_claim(struct vectors *v, const void *key, uint32_t key_bytes, const void *vector, bool *is_same)
{
    struct vectors_unclaimed *u = v->unclaimed;
    uint32_t at = find_name(u, key, key_bytes);
    *is_same = false;
    if (at == u->n)
        return NUMBER_NONE;
    /* not read: it was logged with the document (vectors.h) */
    *is_same = !u->digests || !vector || is_vector_of(v, u->digests[at], vector);
    u->names[at].n_bytes = 0;
    return number_at(u, at);
}

static int take_digest(void *context, const struct exported_element *element)
{
    struct vectors *v = context;
    struct vectors_unclaimed *u = v->unclaimed;
    assert(element->key_bytes > NUMBER_BYTES && element->exact);
    uint32_t at = find_name(u, (const uint8_t *)element->key + NUMBER_BYTES, element->key_bytes - NUMBER_BYTES);
    if (at < u->n)
        u->digests[at] = XXH3_64bits_withSeed(element->exact, element->exact_bytes, v->seed);
    return 0;
}

int vectors_compare(struct vectors *v, struct quire_error *err)
{
    assert(!v->unclaimed || !v->unclaimed->digests);
    if (!v->unclaimed)
        return 0; /* it is new */
    v->unclaimed->digests = calloc(v->unclaimed->n + (size_t)1, sizeof *v->unclaimed->digests);
    if (!v->unclaimed->digests)
        return error_set(err, QUIRE_ENOMEM, "no memory to compare %u vectors with their documents", v->unclaimed->n);
    return collection_export_all(v->collection, take_digest, v, err);
}

int vectors_loaded(struct vectors *v, uint64_t *n_removed, struct quire_error *err)
{
    struct vectors_unclaimed *u = v->unclaimed;
    const struct located nowhere = {.generation = 0};
    uint64_t n = 0, lsn;
    int rc = 0;
    for (uint32_t i = 0; u && i < u->n && rc == 0; i++) {
        struct row_name *name = &u->names[i];
        bool removed;
        if (name->n_bytes == 0)
            continue;
        rc = collection_remove(v->collection, u->bytes + name->at, name->n_bytes, &nowhere, NULL, &removed, &lsn, err);
        if (rc < 0)
            break;
        assert(removed);
        name->n_bytes = 0;
        pthread_mutex_lock(&v->lock);
        vectors_table_give_back(&v->table, number_at(u, i));
        pthread_mutex_unlock(&v->lock);
        n++;
    }
    if (n_removed)
        *n_removed = n;
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&v->lock);
    v->unclaimed = NULL;
    pthread_mutex_unlock(&v->lock);
    vectors_unclaimed_free(u);
    return 0;
}
