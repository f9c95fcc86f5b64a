/*
 * vectors.c - a field's collection, and writes.
 *
 * A write changes the collection first and the tables then, each under its own lock: a search that begins between the
 * two finds a document as it was, since the index's lock keeps it away. What a put needs of memory for the tables is
 * reserved before, so that nothing fails once the row is logged.
 *
 * A number whose row could neither be replaced nor removed (no memory for either) is lost until the next start: it has
 * no id, so nobody finds its row.
 */
#include "document/vectors/vectors_priv.h"
#include "index/store/store.h"
#include "index/vector/space.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static uint32_t element_bytes(enum schema_element element)
{
    switch (element) {
    case SCHEMA_FLOAT64:
        return 8;
    case SCHEMA_FLOAT16:
    case SCHEMA_BFLOAT16:
        return 2;
    case SCHEMA_INT8:
    case SCHEMA_UINT8:
        return 1;
    case SCHEMA_FLOAT32:
        break;
    }
    return 4;
}

bool vectors_keeps(const struct schema_vector *what, const void *vector)
{
    if (what->element == SCHEMA_FLOAT64)
        return false;
    if (what->metric != SCHEMA_COSINE)
        return true;
    /* of a vector that a float cannot compute with, a collection keeps the direction (memtable_stored) */
    float *floats = malloc(2 * sizeof(float) * what->dim);
    if (!floats)
        return false;
    memcpy(floats + what->dim, vector, vectors_bytes(what)); /* aligned */
    space_floats(vectors_type(what), floats + what->dim, what->dim, floats);
    bool keeps = space_is_ordinary(space_unit(floats, what->dim, floats));
    free(floats);
    return keeps;
}

enum quire_type vectors_type(const struct schema_vector *what)
{
    static const enum quire_type types[] = {
        [SCHEMA_FLOAT32] = QUIRE_TYPE_F32,   [SCHEMA_FLOAT64] = QUIRE_TYPE_F32, [SCHEMA_FLOAT16] = QUIRE_TYPE_F16,
        [SCHEMA_BFLOAT16] = QUIRE_TYPE_BF16, [SCHEMA_INT8] = QUIRE_TYPE_I8,     [SCHEMA_UINT8] = QUIRE_TYPE_U8};
    return types[what->element];
}

uint32_t vectors_bytes(const struct schema_vector *what)
{
    return what->dim * element_bytes(what->element);
}

void vectors_elements(const struct schema_vector *what, const void *vector, void *to)
{
    float *floats = to;
    memmove(to, vector, vectors_bytes(what));
    for (uint32_t i = 0; what->element == SCHEMA_FLOAT64 && i < what->dim; i++) {
        double x;
        memcpy(&x, (const char *)vector + i * sizeof x, sizeof x);
        floats[i] = (float)x;
    }
}

static enum quire_metric metric_of(const struct schema_vector *what)
{
    return what->metric == SCHEMA_L2   ? QUIRE_METRIC_L2
           : what->metric == SCHEMA_IP ? QUIRE_METRIC_IP
                                       : QUIRE_METRIC_COSINE;
}

/* Slots hold what documents hold, so that a vector is at distance 0 from itself. The page graph is what comes closest
 * to the graphs that HNSW and SVS-VAMANA name; FLAT takes the segments as the store makes them best. */
int vectors_config(const struct schema_vector *what, struct collection_config *out, struct quire_error *err)
{
    static const enum quire_slot slots[] = {[QUIRE_TYPE_F32] = QUIRE_SLOT_F32,
                                            [QUIRE_TYPE_F16] = QUIRE_SLOT_F16,
                                            [QUIRE_TYPE_BF16] = QUIRE_SLOT_BF16,
                                            [QUIRE_TYPE_I8] = QUIRE_SLOT_I8,
                                            [QUIRE_TYPE_U8] = QUIRE_SLOT_U8};
    enum quire_type type = vectors_type(what);
    *out =
        (struct collection_config){.dim = what->dim,
                                   .type = type,
                                   .metric = metric_of(what),
                                   .slot = slots[type],
                                   .index = what->algorithm == SCHEMA_FLAT ? QUIRE_INDEX_AUTO : QUIRE_INDEX_PAGEGRAPH,
                                   .numbered = true};
    return collection_config_begin(out, err);
}

int vectors_validate(const struct schema_vector *what, const void *vector, uint32_t bytes, struct quire_error *err)
{
    struct collection_config config;
    int rc = vectors_config(what, &config, err);
    if (rc < 0)
        return rc;
    if (bytes != vectors_bytes(what))
        return error_set(err, QUIRE_EDIM, "a vector of %u bytes: the field's have %u (%u elements)", bytes,
                         vectors_bytes(what), what->dim);
    void *elements = malloc(bytes);
    float *floats = malloc(sizeof(float) * what->dim);
    if (elements && floats) {
        vectors_elements(what, vector, elements);
        space_floats(config.type, elements, what->dim, floats);
        rc = collection_vector_validate(&config, floats, what->dim, err);
    } else {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    }
    free(elements);
    free(floats);
    return rc;
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

int vectors_new(struct store *store, struct collection *collection, const struct schema_vector *what,
                struct vectors **out, struct quire_error *err)
{
    struct vectors *v = calloc(1, sizeof *v);
    if (!v)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector field");
    atomic_init(&v->references, 1);
    if (getrandom(&v->seed, sizeof v->seed, 0) != (ssize_t)sizeof v->seed) {
        free(v);
        return error_set(err, QUIRE_EIO, "the system gives no random bytes");
    }
    v->store = store;
    v->collection = collection;
    v->what = *what;
    pthread_mutex_init(&v->lock, NULL);
    vectors_table_init(&v->table);
    *out = v;
    return 0;
}

int vectors_create(struct store *store, const struct schema_vector *what, struct vectors **out, uint64_t *lsn,
                   struct quire_error *err)
{
    struct collection_config config;
    struct collection *collection = NULL;
    uint64_t dropped;
    int rc = vectors_config(what, &config, err);
    if (rc == 0)
        rc = store_create_collection(store, &config, NULL, &collection, lsn, err);
    if (rc < 0)
        return rc;
    rc = vectors_new(store, collection, what, out, err);
    if (rc < 0) {
        store_drop_collection(store, collection, &dropped, NULL);
        collection_unref(collection);
    }
    return rc;
}

uint64_t vectors_uid(const struct vectors *v)
{
    return collection_uid(v->collection);
}

struct vectors *vectors_ref(struct vectors *v)
{
    unsigned before = atomic_fetch_add_explicit(&v->references, 1, memory_order_relaxed);
    assert(before > 0);
    return v;
}

void vectors_unref(struct vectors *v)
{
    unsigned before = v ? atomic_fetch_sub_explicit(&v->references, 1, memory_order_acq_rel) : 0;
    assert(!v || before > 0);
    if (before != 1)
        return;
    vectors_unclaimed_free(v->unclaimed);
    vectors_table_fini(&v->table);
    pthread_mutex_destroy(&v->lock);
    collection_unref(v->collection);
    free(v);
}

int vectors_drop(struct vectors *v, uint64_t *lsn, struct quire_error *err)
{
    pthread_mutex_lock(&v->lock);
    v->dropped = true;
    pthread_mutex_unlock(&v->lock);
    return store_drop_collection(v->store, v->collection, lsn, err);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

int vectors_name_init(struct vectors_name *name, uint32_t number, const void *key, uint32_t key_bytes)
{
    name->n_bytes = NUMBER_BYTES + key_bytes;
    name->bytes = name->n_bytes <= sizeof name->here ? name->here : malloc(name->n_bytes);
    if (!name->bytes)
        return QUIRE_ENOMEM;
    number_to_name(number, name->bytes);
    memcpy(name->bytes + NUMBER_BYTES, key, key_bytes);
    return 0;
}

void vectors_name_fini(struct vectors_name *name)
{
    if (name->bytes != name->here)
        free(name->bytes);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

int vectors_admit(struct vectors *v, const void *vector, struct quire_error *err)
{
    void *elements = vector ? malloc(vectors_bytes(&v->what)) : NULL;
    if (vector && !elements)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    if (elements)
        vectors_elements(&v->what, vector, elements);
    int rc = collection_admit(v->collection, elements, err);
    free(elements);
    return rc;
}

static int put_row(struct vectors *v, uint32_t number, struct vectors_put *put, struct quire_error *err)
{
    struct vectors_name name;
    void *elements = malloc(vectors_bytes(&v->what));
    int rc = elements ? vectors_name_init(&name, number, put->key, put->key_bytes) : QUIRE_ENOMEM;
    if (rc < 0) {
        free(elements);
        return error_set(err, rc, "no memory for a vector");
    }
    vectors_elements(&v->what, put->vector, elements);
    struct collection_put row = {.key = name.bytes, .key_bytes = name.n_bytes, .vector = elements};
    rc = collection_put(v->collection, &row, err);
    put->lsn = row.lsn;
    vectors_name_fini(&name);
    free(elements);
    return rc;
}

static int remove_row(struct vectors *v, uint32_t number, const void *key, uint32_t key_bytes, uint64_t *lsn,
                      struct quire_error *err)
{
    struct vectors_name name;
    const struct located nowhere = {.generation = 0};
    bool removed;
    if (vectors_name_init(&name, number, key, key_bytes) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a vector");
    int rc = collection_remove(v->collection, name.bytes, name.n_bytes, &nowhere, NULL, &removed, lsn, err);
    assert(rc < 0 || removed);
    vectors_name_fini(&name);
    return rc;
}

/* The number that the document has, or a new one (*is_new), and memory for what follows. *is_same: its vector is what
 * is there already. */
static int find_number(struct vectors *v, const struct vectors_put *put, uint64_t digest, uint32_t *number,
                       bool *is_new, bool *is_same)
{
    pthread_mutex_lock(&v->lock);
    *number = vectors_table_find(&v->table, put->old_id);
    *is_same = *number != NUMBER_NONE && (!put->vector || v->table.entries[*number].digest == digest);
    *is_new = false;
    if (*number == NUMBER_NONE && v->unclaimed) {
        *number = vectors_claim(v, put->key, put->key_bytes, put->vector, is_same);
    }
    int rc = v->dropped ? QUIRE_ECLOSED : vectors_table_reserve(&v->table);
    if (rc == 0 && *number == NUMBER_NONE && !put->vector) {
        rc = QUIRE_ENOTFOUND;
    } else if (rc == 0 && *number == NUMBER_NONE) {
        *number = vectors_table_take(&v->table);
        *is_new = true;
    }
    pthread_mutex_unlock(&v->lock);
    return rc;
}

static int check_put(const struct vectors *v, const struct vectors_put *put, struct quire_error *err)
{
    const struct vectors_table *t = &v->table;
    if (put->key_bytes == 0 || put->key_bytes > VECTORS_KEY_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "a key of %u bytes: documents with vectors have keys of 1 to %u bytes",
                         put->key_bytes, VECTORS_KEY_BYTES_MAX);
    if (put->id == VECTORS_NO_ID || (t->n_ids > 0 && put->id <= t->by_id[t->n_ids - 1].id))
        return error_set(err, QUIRE_EINVALID, "id %u is not above those before", put->id);
    return 0;
}

/* A document whose vector could not be taken has none. */
static void withdraw(struct vectors *v, uint32_t number, bool is_new, const struct vectors_put *put)
{
    uint64_t lsn;
    bool is_gone = is_new || remove_row(v, number, put->key, put->key_bytes, &lsn, NULL) == 0;
    pthread_mutex_lock(&v->lock);
    if (is_gone)
        vectors_table_give_back(&v->table, number);
    else
        vectors_table_unname(&v->table, number);
    pthread_mutex_unlock(&v->lock);
}

int vectors_put(struct vectors *v, struct vectors_put *put, struct quire_error *err)
{
    uint64_t digest = put->vector ? XXH3_64bits_withSeed(put->vector, vectors_bytes(&v->what), v->seed) : 0, lsn;
    uint32_t number;
    bool is_new, is_same;
    put->lsn = 0;
    int rc = check_put(v, put, err);
    if (rc < 0) {
        if (put->vector)
            vectors_remove(v, put->key, put->key_bytes, put->old_id, &lsn, NULL);
        return rc;
    }
    rc = find_number(v, put, digest, &number, &is_new, &is_same);
    if (rc < 0)
        error_set(err, rc, "%s",
                  rc == QUIRE_ECLOSED     ? "the index was dropped"
                  : rc == QUIRE_ENOTFOUND ? "the vector is not there"
                                          : "no memory for one more document with a vector");
    else if (!is_same)
        rc = put_row(v, number, put, err);
    if (rc < 0) {
        if (number != NUMBER_NONE && put->vector)
            withdraw(v, number, is_new, put);
        return rc;
    }
    pthread_mutex_lock(&v->lock);
    if (!put->vector)
        digest = v->table.entries[number].digest;
    vectors_table_name(&v->table, number, put->id, digest);
    pthread_mutex_unlock(&v->lock);
    return 0;
}

int vectors_remove(struct vectors *v, const void *key, uint32_t key_bytes, uint32_t id, uint64_t *lsn,
                   struct quire_error *err)
{
    *lsn = 0;
    pthread_mutex_lock(&v->lock);
    uint32_t number = vectors_table_find(&v->table, id);
    bool dropped = v->dropped;
    pthread_mutex_unlock(&v->lock);
    if (number == NUMBER_NONE || dropped)
        return 0;
    int rc = remove_row(v, number, key, key_bytes, lsn, err);
    pthread_mutex_lock(&v->lock);
    if (rc == 0)
        vectors_table_give_back(&v->table, number);
    else
        vectors_table_unname(&v->table, number);
    pthread_mutex_unlock(&v->lock);
    return rc;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

bool vectors_gives_back(const struct vectors *v, const void *vector)
{
    return vectors_keeps(&v->what, vector);
}

bool vectors_have(struct vectors *v, uint32_t id)
{
    pthread_mutex_lock(&v->lock);
    bool have = !v->dropped && vectors_table_find(&v->table, id) != NUMBER_NONE;
    pthread_mutex_unlock(&v->lock);
    return have;
}

/* The name of the document's element. QUIRE_ENOTFOUND, QUIRE_ENOMEM; ended by vectors_name_fini. */
static int name_of(struct vectors *v, const void *key, uint32_t key_bytes, uint32_t id, struct vectors_name *name,
                   uint32_t *number)
{
    pthread_mutex_lock(&v->lock);
    *number = v->dropped ? NUMBER_NONE : vectors_table_find(&v->table, id);
    pthread_mutex_unlock(&v->lock);
    return *number == NUMBER_NONE ? QUIRE_ENOTFOUND : vectors_name_init(name, *number, key, key_bytes);
}

bool vectors_read_now(struct vectors *v, const void *key, uint32_t key_bytes, uint32_t id, void *vector)
{
    struct vectors_name name;
    uint32_t number;
    float *floats = malloc(sizeof(float) * v->what.dim);
    bool read = false;
    if (floats && name_of(v, key, key_bytes, id, &name, &number) == 0) {
        read = collection_read_now(v->collection, name.bytes, name.n_bytes, floats);
        vectors_name_fini(&name);
    }
    if (read)
        space_elements(vectors_type(&v->what), floats, v->what.dim, vector);
    free(floats);
    return read;
}

static void on_read(struct collection_read *inner)
{
    struct vectors_read *read = inner->owner;
    struct vectors *v = read->vectors;
    void *elements = inner->code == 0 ? malloc(vectors_bytes(&v->what)) : NULL;
    read->code = inner->code;
    read->error = inner->error;
    read->reads = inner->reads;
    if (elements)
        space_elements(vectors_type(&v->what), inner->vector, v->what.dim, elements);
    else if (inner->code == 0)
        read->code = error_set(&read->error, QUIRE_ENOMEM, "no memory for a vector");
    read->vector = elements;
    read->done(read); /* which may free it */
    free(elements);
    vectors_unref(v);
}

int vectors_read_start(struct searcher *searcher, struct vectors_read *read, struct quire_error *err)
{
    struct vectors *v = read->vectors;
    struct vectors_name name;
    uint32_t number;
    assert(v->what.element != SCHEMA_FLOAT64); /* vectors_keeps */
    int rc = name_of(v, read->key, read->key_bytes, read->id, &name, &number);
    if (rc == QUIRE_ENOMEM)
        return error_set(err, rc, "no memory for the name of a vector");
    read->vector = NULL;
    read->reads = 0;
    if (rc < 0) {
        read->code = error_set(&read->error, rc, "the vector is not there");
        read->done(read);
        return 0;
    }
    vectors_ref(v);
    read->inner = (struct collection_read){.collection = v->collection,
                                           .number = number,
                                           .name = name.bytes,
                                           .name_bytes = name.n_bytes,
                                           .done = on_read,
                                           .owner = read};
    rc = collection_read_start(searcher, &read->inner, err);
    vectors_name_fini(&name);
    if (rc < 0)
        vectors_unref(v);
    return rc;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

void vectors_get_stats(struct vectors *v, struct vectors_stats *out)
{
    struct collection_stats stats;
    collection_get_stats(v->collection, &stats);
    pthread_mutex_lock(&v->lock);
    uint64_t table = sizeof *v + vectors_table_bytes(&v->table);
    uint64_t documents = v->table.n_documents;
    pthread_mutex_unlock(&v->lock);
    *out =
        (struct vectors_stats){.documents = documents,
                               .memory_bytes = table + stats.memtable_bytes + stats.resident_bytes + stats.cache_bytes,
                               .disk_bytes = stats.disk_bytes,
                               .segments = stats.segments,
                               .seals = stats.seals,
                               .merges = stats.merges,
                               .memtable_rows = stats.memtable_rows,
                               .dead_rows = stats.dead_rows};
}
