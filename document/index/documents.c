/*
 * documents.c - indexes by name and alias; what follows keys.
 *
 * A change of the lists is logged before it is made, in one frame with the records that make collections for vectors.
 * Under the lock of the lists, so that the order of the log is that of the changes.
 *
 * Who is told of a key asks every index whether it follows it: their prefixes are compared one by one, which for a few
 * indexes costs less than any table.
 */
#include "document/index/documents_priv.h"
#include "document/text/text_words.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

int documents_create(struct documents **out, struct quire_error *err)
{
    struct documents *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(err, QUIRE_ENOMEM, "no memory for indexes of documents");
    pthread_rwlock_init(&d->lock, NULL);
    pthread_mutex_init(&d->writing, NULL);
    *out = d;
    return 0;
}

void documents_destroy(struct documents *d)
{
    if (!d)
        return;
    while (d->n > 0)
        document_index_unref(documents_take_out(d, d->n - 1));
    while (d->n_aliases > 0)
        documents_alias_drop(d, d->n_aliases - 1);
    free(d->indexes);
    free(d->aliases);
    pthread_rwlock_destroy(&d->lock);
    pthread_mutex_destroy(&d->writing);
    free(d);
}

void documents_on_discard(struct documents *d, void (*discard)(void *context, struct document_index *index),
                          void *context)
{
    d->discard = discard;
    d->discard_context = context;
}

/* ---- the lists --------------------------------------------------------------------------------------------------- */

static int compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

uint32_t documents_place(const struct documents *d, const char *name, size_t bytes, bool *found)
{
    uint32_t low = 0, high = d->n;
    *found = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const char *there = d->indexes[middle]->name;
        int order = compare(there, strlen(there), name, bytes);
        if (order == 0)
            *found = true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t documents_alias_place(const struct documents *d, const char *name, size_t bytes, bool *found)
{
    uint32_t low = 0, high = d->n_aliases;
    *found = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare(d->aliases[middle].name, strlen(d->aliases[middle].name), name, bytes);
        if (order == 0)
            *found = true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has_vectors(const struct document_index *x)
{
    return document_index_n_vectors(x->schemas[x->n_schemas - 1], 0) > 0;
}

/* What others read without the lock. */
static void publish_counts(struct documents *d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++)
        n += has_vectors(d->indexes[i]);
    atomic_store_explicit(&d->n_vectors, n, memory_order_release);
    atomic_store_explicit(&d->n_follow, d->n, memory_order_release);
}

int documents_insert(struct documents *d, struct document_index *x, struct quire_error *err)
{
    bool found;
    uint32_t at = documents_place(d, x->name, strlen(x->name), &found);
    assert(!found);
    if (!array_reserve(&d->indexes, &d->capacity, d->n + (size_t)1))
        return error_set(err, QUIRE_ENOMEM, "no memory for an index");
    memmove(&d->indexes[at + 1], &d->indexes[at], (d->n - at) * sizeof *d->indexes);
    d->indexes[at] = x;
    d->n++;
    document_index_account(x, &d->bytes);
    publish_counts(d);
    return 0;
}

struct document_index *documents_take_out(struct documents *d, uint32_t at)
{
    struct document_index *x = d->indexes[at];
    assert(at < d->n);
    memmove(&d->indexes[at], &d->indexes[at + 1], (d->n - at - 1) * sizeof *d->indexes);
    d->n--;
    atomic_store_explicit(&x->dropped, true, memory_order_relaxed);
    document_index_account(x, NULL);
    for (uint32_t i = d->n_aliases; i-- > 0;)
        if (strcmp(d->aliases[i].index, x->name) == 0)
            documents_alias_drop(d, i);
    publish_counts(d);
    return x;
}

int documents_alias_put(struct documents *d, const char *name, size_t bytes, const char *target, size_t target_bytes,
                        uint64_t lsn, struct quire_error *err)
{
    bool found;
    uint32_t at = documents_alias_place(d, name, bytes, &found);
    struct alias alias = {strndup(name, bytes), strndup(target, target_bytes), lsn};
    if (!alias.name || !alias.index ||
        (!found && !array_reserve(&d->aliases, &d->aliases_capacity, d->n_aliases + (size_t)1))) {
        free(alias.name);
        free(alias.index);
        return error_set(err, QUIRE_ENOMEM, "no memory for an alias");
    }
    if (found) {
        free(d->aliases[at].name);
        free(d->aliases[at].index);
    } else {
        memmove(&d->aliases[at + 1], &d->aliases[at], (d->n_aliases - at) * sizeof *d->aliases);
        d->n_aliases++;
    }
    d->aliases[at] = alias;
    return 0;
}

void documents_alias_drop(struct documents *d, uint32_t at)
{
    assert(at < d->n_aliases);
    free(d->aliases[at].name);
    free(d->aliases[at].index);
    memmove(&d->aliases[at], &d->aliases[at + 1], (d->n_aliases - at - 1) * sizeof *d->aliases);
    d->n_aliases--;
}

/* By name or alias; NULL: none. */
static struct document_index *look_up(const struct documents *d, struct schema_word name)
{
    bool found;
    uint32_t at = documents_place(d, name.data, name.bytes, &found);
    if (found)
        return d->indexes[at];
    at = documents_alias_place(d, name.data, name.bytes, &found);
    if (!found)
        return NULL;
    const char *target = d->aliases[at].index;
    at = documents_place(d, target, strlen(target), &found);
    return found ? d->indexes[at] : NULL;
}

static int unknown(struct schema_word name, struct quire_error *err)
{
    return error_set(err, QUIRE_ENOTFOUND, "SEARCH_INDEX_NOT_FOUND Unknown index name: %.*s",
                     name.bytes < 128 ? (int)name.bytes : 128, name.data);
}

int documents_find(struct documents *d, struct schema_word name, struct document_index **out, struct quire_error *err)
{
    pthread_rwlock_rdlock(&d->lock);
    struct document_index *x = look_up(d, name);
    if (x)
        *out = document_index_ref(x);
    pthread_rwlock_unlock(&d->lock);
    return x ? 0 : unknown(name, err);
}

void documents_each(struct documents *d, void (*visit)(void *context, struct document_index *index), void *context)
{
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n; i++)
        visit(context, d->indexes[i]);
    pthread_rwlock_unlock(&d->lock);
}

uint32_t documents_count(struct documents *d)
{
    return atomic_load_explicit(&d->n_follow, memory_order_acquire);
}

uint64_t documents_bytes(const struct documents *d)
{
    return atomic_load_explicit(&d->bytes, memory_order_relaxed);
}

/* ---- what becomes of documents ----------------------------------------------------------------------------------- */

bool documents_follow(const struct documents *d)
{
    return atomic_load_explicit(&d->n_follow, memory_order_acquire) > 0;
}

bool documents_have_vectors(const struct documents *d)
{
    return atomic_load_explicit(&d->n_vectors, memory_order_acquire) > 0;
}

void documents_write_begin(struct documents *d)
{
    pthread_mutex_lock(&d->writing);
}

void documents_write_end(struct documents *d)
{
    pthread_mutex_unlock(&d->writing);
}

/* A thread that has no batch open, since there were no vectors when it logged the document, has its turn here. */
static bool take_turn(struct documents *d)
{
    bool takes = d->journal && documents_have_vectors(d) && !journal_in_batch(d->journal);
    if (takes)
        documents_write_begin(d);
    return takes;
}

void documents_changed(struct documents *d, const void *key, uint32_t key_bytes, const struct document_view *view)
{
    bool turn = take_turn(d);
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct schema *schema = document_index_schema(d->indexes[i]);
        if (!schema_follows(schema, key, key_bytes))
            continue;
        if (schema->source == view->source)
            document_index_put(d->indexes[i], key, key_bytes, view, false);
        else
            document_index_remove(d->indexes[i], key, key_bytes); /* it may have been of the other kind before */
    }
    pthread_rwlock_unlock(&d->lock);
    if (turn)
        documents_write_end(d);
}

bool documents_follow_key(struct documents *d, const void *key, uint32_t key_bytes)
{
    bool follow = false;
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n && !follow; i++)
        follow = schema_follows(document_index_schema(d->indexes[i]), key, key_bytes);
    pthread_rwlock_unlock(&d->lock);
    return follow;
}

int documents_admit(struct documents *d, const void *key, uint32_t key_bytes, struct quire_error *err)
{
    int rc = 0;
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n && rc == 0; i++)
        if (has_vectors(d->indexes[i]) && schema_follows(document_index_schema(d->indexes[i]), key, key_bytes))
            rc = document_index_admit(d->indexes[i], err);
    pthread_rwlock_unlock(&d->lock);
    return rc;
}

void documents_gone(struct documents *d, const void *key, uint32_t key_bytes)
{
    bool turn = take_turn(d);
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n; i++)
        if (schema_follows(document_index_schema(d->indexes[i]), key, key_bytes))
            document_index_remove(d->indexes[i], key, key_bytes);
    pthread_rwlock_unlock(&d->lock);
    if (turn)
        documents_write_end(d);
}

static void discard(struct documents *d, struct document_index *x)
{
    if (d->discard)
        d->discard(d->discard_context, x);
    else
        document_index_unref(x);
}

void documents_cleared(struct documents *d)
{
    pthread_rwlock_wrlock(&d->lock);
    while (d->n > 0)
        discard(d, documents_take_out(d, d->n - 1));
    while (d->n_aliases > 0)
        documents_alias_drop(d, d->n_aliases - 1);
    pthread_rwlock_unlock(&d->lock);
}

/* ---- indexes made, changed and dropped --------------------------------------------------------------------------- */

/* One frame for what follows, if the caller has none open. Before the lock of the lists: whoever changes a document has
 * its batch open when it waits for that lock, and who waits for batches to end must not be waited for with it held. */
static int begin_batch(struct documents *d, bool *begun, struct quire_error *err)
{
    *begun = d->journal && !journal_in_batch(d->journal);
    return *begun ? journal_batch_begin(d->journal, err) : 0;
}

static int end_batch(struct documents *d, bool begun, int rc, uint64_t *lsn, struct quire_error *err)
{
    int end = begun ? journal_batch_end(d->journal, lsn, rc == 0 ? err : NULL) : 0;
    return rc < 0 ? rc : end;
}

/* Vectors for the fields of a schema from number `first` on; *out is owned, with its references. */
static int make_vectors(struct documents *d, const struct schema *schema, uint32_t first, struct vectors ***out,
                        uint64_t **uids, uint32_t *n, uint64_t *lsn, struct quire_error *err)
{
    uint32_t wanted = document_index_n_vectors(schema, first);
    struct vectors **vectors = calloc(wanted + (size_t)1, sizeof *vectors);
    int rc = 0;
    *uids = calloc(wanted + (size_t)1, sizeof **uids);
    *n = 0;
    *out = vectors;
    if (!vectors || !*uids)
        return error_set(err, QUIRE_ENOMEM, "no memory for an index");
    if (wanted > 0 && !d->store)
        return error_set(err, QUIRE_EINVALID, "vectors need a data folder: set dir");
    for (uint32_t i = first; i < schema->n_fields && rc == 0; i++) {
        if (schema->fields[i].type != SCHEMA_VECTOR)
            continue;
        rc = vectors_create(d->store, &schema->fields[i].vector, &vectors[*n], lsn, err);
        if (rc == 0) {
            (*uids)[*n] = vectors_uid(vectors[*n]);
            (*n)++;
        }
    }
    return rc;
}

/* What nobody uses: their collections are dropped by the next start, or the store. */
static void unmake_vectors(struct vectors **vectors, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        vectors_unref(vectors[i]);
}

/* Everything of FT.CREATE but the checks; under the lock. The schema is taken over. */
static int add(struct documents *d, struct schema *schema, const struct schema_word *words, uint32_t n_words,
               struct document_index **out, uint64_t *lsn, struct quire_error *err)
{
    struct document_index *x = NULL;
    struct vectors **vectors = NULL;
    struct definition *definition = NULL;
    uint64_t *uids = NULL;
    uint32_t n = 0;
    int rc = document_index_create(schema, &x, err);
    if (rc == 0)
        rc = make_vectors(d, schema, 0, &vectors, &uids, &n, lsn, err);
    if (rc == 0)
        rc = documents_definition(DOCUMENT_LOG_CREATE, uids, n, words, n_words, &definition, err);
    if (rc == 0)
        rc = documents_reserve(x, err);
    if (rc == 0 && !array_reserve(&d->indexes, &d->capacity, d->n + (size_t)1))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for an index");
    if (rc == 0)
        rc = documents_append(d, DOCUMENT_LOG_CREATE, definition->bytes, definition->n_bytes, lsn, err);
    if (rc == 0) {
        documents_keep(x, definition);
        definition = NULL;
        rc = documents_insert(d, x, err); /* reserved */
    }
    free(definition);
    if (rc == 0) {
        document_index_give_vectors(x, vectors, n);
        x->lsn = *lsn;
        *out = document_index_ref(x);
    } else {
        unmake_vectors(vectors, n);
        document_index_unref(x);
    }
    array_free_all(vectors, uids);
    return rc;
}

int documents_add(struct documents *d, const struct schema_word *words, uint32_t n_words, struct document_index **out,
                  uint64_t *lsn, struct quire_error *err)
{
    struct schema *schema;
    bool found, begun = false;
    int rc = schema_parse(words, n_words, &schema, err);
    if (rc < 0)
        return rc;
    if (!text_language_find(schema->language, strlen(schema->language))) {
        rc = error_set(err, QUIRE_EINVALID,
                       "Invalid language: `%.64s` (docs/search.md lists those with stems; position %u)",
                       schema->language, schema->language_position);
        schema_free(schema);
        return rc;
    }
    if ((rc = begin_batch(d, &begun, err)) < 0) {
        schema_free(schema);
        return rc;
    }
    pthread_rwlock_wrlock(&d->lock);
    documents_place(d, schema->name, schema->name_bytes, &found);
    if (!found)
        documents_alias_place(d, schema->name, schema->name_bytes, &found);
    if (found)
        rc = error_set(err, QUIRE_EEXISTS, "Index already exists");
    else if (d->n >= DOCUMENTS_INDEXES_MAX)
        rc = error_set(err, QUIRE_ELIMIT, "there are %u indexes, and no more are taken: drop some", d->n);
    if (rc < 0)
        schema_free(schema);
    else
        rc = add(d, schema, words, n_words, out, lsn, err);
    pthread_rwlock_unlock(&d->lock);
    return end_batch(d, begun, rc, lsn, err);
}

/* What cannot be undone comes last; what is logged by then and finds no memory makes the index unusable, as it is
 * another after a restart. */
static int alter(struct documents *d, struct document_index *x, const struct schema_word *words, uint32_t n_words,
                 uint32_t position, uint64_t *lsn, struct quire_error *err)
{
    const struct schema *old = document_index_schema(x);
    struct schema_word *named = malloc((n_words + (size_t)1) * sizeof *named);
    struct document_change change = {0};
    struct schema *schema = NULL;
    struct vectors **vectors = NULL;
    struct definition *definition = NULL;
    uint64_t *uids = NULL;
    uint32_t n = 0;
    bool logged = false;
    int rc = named ? schema_alter(old, words, n_words, position, &schema, err)
                   : error_set(err, QUIRE_ENOMEM, "no memory to alter an index");
    if (rc == 0)
        rc = document_index_prepare(x, schema, &change, err);
    if (rc == 0) {
        named[0] = (struct schema_word){x->name, (uint32_t)strlen(x->name)};
        memcpy(named + 1, words, n_words * sizeof *words);
    }
    if (rc == 0)
        rc = make_vectors(d, schema, old->n_fields, &vectors, &uids, &n, lsn, err);
    if (rc == 0)
        rc = documents_definition(DOCUMENT_LOG_ALTER, uids, n, named, n_words + 1, &definition, err);
    if (rc == 0)
        rc = documents_reserve(x, err);
    if (rc == 0)
        rc = documents_append(d, DOCUMENT_LOG_ALTER, definition->bytes, definition->n_bytes, lsn, err);
    logged = rc == 0;
    if (rc == 0) {
        documents_keep(x, definition);
        definition = NULL;
        rc = document_index_alter(x, &change, vectors, n, err);
        change = (struct document_change){0};
    }
    if (rc == 0) {
        x->lsn = *lsn;
        publish_counts(d);
    } else {
        if (logged && document_index_schema(x) != schema)
            document_index_damaged(x, err);
        document_index_forget(&change);
        unmake_vectors(vectors, n);
        schema_free(schema);
    }
    array_free_all(vectors, uids, named, definition);
    return rc;
}

int documents_alter(struct documents *d, struct schema_word name, const struct schema_word *words, uint32_t n_words,
                    uint32_t position, struct document_index **out, uint64_t *lsn, struct quire_error *err)
{
    bool begun = false;
    int rc = begin_batch(d, &begun, err);
    if (rc < 0)
        return rc;
    pthread_rwlock_wrlock(&d->lock);
    struct document_index *x = look_up(d, name);
    rc = x ? alter(d, x, words, n_words, position, lsn, err) : unknown(name, err);
    if (rc == 0)
        *out = document_index_ref(x);
    pthread_rwlock_unlock(&d->lock);
    return end_batch(d, begun, rc, lsn, err);
}

int documents_drop(struct documents *d, struct schema_word name, struct document_index **out, uint64_t *lsn,
                   struct quire_error *err)
{
    bool found;
    pthread_rwlock_wrlock(&d->lock);
    struct document_index *x = look_up(d, name);
    int rc =
        x ? documents_append(d, DOCUMENT_LOG_DROP, x->name, (uint32_t)strlen(x->name), lsn, err) : unknown(name, err);
    if (rc == 0) {
        uint32_t at = documents_place(d, x->name, strlen(x->name), &found);
        assert(found);
        documents_take_out(d, at);
        *out = document_index_ref(x);
        discard(d, x);
    }
    pthread_rwlock_unlock(&d->lock);
    return rc;
}

void documents_drop_vectors(struct document_index *x)
{
    const struct schema *schema = document_index_schema(x);
    uint64_t lsn;
    for (uint32_t i = 0; i < schema->n_fields; i++)
        if (x->vectors[i])
            vectors_drop(x->vectors[i], &lsn, NULL); /* what is left of it goes at the next start */
}

/* ---- aliases ----------------------------------------------------------------------------------------------------- */

static int log_alias(struct documents *d, struct schema_word alias, const char *index, uint64_t *lsn,
                     struct quire_error *err)
{
    struct schema_word words[] = {alias, {index, (uint32_t)strlen(index)}};
    struct definition *record = NULL;
    int rc = documents_definition(DOCUMENT_LOG_ALIAS, NULL, 0, words, 2, &record, err);
    if (rc == 0)
        rc = documents_append(d, DOCUMENT_LOG_ALIAS, record->bytes, record->n_bytes, lsn, err);
    free(record);
    return rc;
}

static int set_alias(struct documents *d, struct schema_word alias, const struct document_index *x, bool add_only,
                     uint64_t *lsn, struct quire_error *err)
{
    bool is_index, is_alias;
    documents_place(d, alias.data, alias.bytes, &is_index);
    documents_alias_place(d, alias.data, alias.bytes, &is_alias);
    if (is_index || (is_alias && add_only))
        return error_set(err, QUIRE_EEXISTS,
                         is_index ? "Alias already exists: an index has this name" : "Alias already exists");
    if (alias.bytes == 0 || memchr(alias.data, 0, alias.bytes))
        return error_set(err, QUIRE_EINVALID, "an alias may not be empty or hold a NUL byte (position 1)");
    if (!is_alias && d->n_aliases >= DOCUMENTS_ALIASES_MAX)
        return error_set(err, QUIRE_ELIMIT, "there are %u aliases, and no more are taken: remove some", d->n_aliases);
    int rc = log_alias(d, alias, x->name, lsn, err);
    return rc < 0 ? rc : documents_alias_put(d, alias.data, alias.bytes, x->name, strlen(x->name), *lsn, err);
}

int documents_alias_set(struct documents *d, struct schema_word alias, struct schema_word name, bool add_only,
                        uint64_t *lsn, struct quire_error *err)
{
    pthread_rwlock_wrlock(&d->lock);
    const struct document_index *x = look_up(d, name);
    int rc = x ? set_alias(d, alias, x, add_only, lsn, err) : unknown(name, err);
    pthread_rwlock_unlock(&d->lock);
    return rc;
}

int documents_alias_remove(struct documents *d, struct schema_word alias, uint64_t *lsn, struct quire_error *err)
{
    bool found;
    pthread_rwlock_wrlock(&d->lock);
    uint32_t at = documents_alias_place(d, alias.data, alias.bytes, &found);
    int rc = found ? log_alias(d, alias, "", lsn, err) : error_set(err, QUIRE_ENOTFOUND, "Alias does not exist");
    if (rc == 0)
        documents_alias_drop(d, at);
    pthread_rwlock_unlock(&d->lock);
    return rc;
}
