/*
 * documents_held.c - values of hashes that indexes have, so that the hashes need not.
 *
 * A VECTOR field of a hash is held where an index has its vector and gives it back bit for bit (vectors_keeps), unless
 * another index takes the same field for something else than a vector: that would need its bytes. With several indexes
 * any that has it serves; one under cosine last, for it may have had the vector from another one that keeps more of it.
 */
#include "document/index/documents_priv.h"
#include <string.h>

static bool is_field(const struct schema_field *f, const char *field, uint32_t bytes)
{
    return f->identifier_bytes == bytes && memcmp(f->identifier, field, bytes) == 0;
}

static bool follows(struct document_index *x, const void *key, uint32_t key_bytes)
{
    const struct schema *schema = document_index_schema(x);
    return schema->source == SCHEMA_HASH && schema_follows(schema, key, key_bytes);
}

/* Whether an index that follows the key takes the field for something else. Under the lock of the lists. */
static bool is_mixed(const struct documents *d, const void *key, uint32_t key_bytes, const char *field, uint32_t bytes)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const struct schema *schema = document_index_schema(d->indexes[i]);
        bool follows_it = follows(d->indexes[i], key, key_bytes);
        for (uint32_t j = 0; follows_it && j < schema->n_fields; j++)
            if (schema->fields[j].type != SCHEMA_VECTOR && is_field(&schema->fields[j], field, bytes))
                return true;
    }
    return false;
}

void documents_each_held(struct documents *d, const void *key, uint32_t key_bytes, const struct document_view *view,
                         void (*take)(void *context, const char *field, uint32_t bytes), void *context)
{
    if (view->source != SCHEMA_HASH || !documents_have_vectors(d))
        return;
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n; i++) {
        struct document_index *x = d->indexes[i];
        const struct schema *schema = document_index_schema(x);
        bool takes = follows(x, key, key_bytes) && !atomic_load_explicit(&x->is_leaving, memory_order_relaxed);
        for (uint32_t j = 0; takes && j < schema->n_fields; j++) {
            const struct schema_field *f = &schema->fields[j];
            struct schema_word value;
            uint32_t id;
            if (f->type != SCHEMA_VECTOR || !view->field(view->context, f->identifier, f->identifier_bytes, &value) ||
                !value.data || record_is_kept(view, f) || value.bytes != vectors_bytes(&f->vector) ||
                !vectors_keeps(&f->vector, value.data) ||
                is_mixed(d, key, key_bytes, f->identifier, f->identifier_bytes))
                continue;
            struct vectors *vectors = document_index_vectors(x, key, key_bytes, f, &id);
            if (vectors)
                take(context, f->identifier, f->identifier_bytes);
            vectors_unref(vectors);
        }
    }
    pthread_rwlock_unlock(&d->lock);
}

struct vectors *documents_value(struct documents *d, const struct documents_wanted *wanted, uint32_t *id)
{
    struct vectors *found = NULL;
    bool is_last = false; /* what was found is under cosine */
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n && (!found || is_last); i++) {
        const struct schema *schema = document_index_schema(d->indexes[i]);
        bool asks = d->indexes[i] != wanted->except && follows(d->indexes[i], wanted->key, wanted->key_bytes);
        for (uint32_t j = 0; asks && j < schema->n_fields; j++) {
            const struct schema_field *f = &schema->fields[j];
            uint32_t its_id;
            if (f->type != SCHEMA_VECTOR || f->vector.element == SCHEMA_FLOAT64 ||
                vectors_bytes(&f->vector) != wanted->value_bytes || !is_field(f, wanted->field, wanted->field_bytes) ||
                (found && f->vector.metric == SCHEMA_COSINE))
                continue;
            struct vectors *vectors = document_index_vectors(d->indexes[i], wanted->key, wanted->key_bytes, f, &its_id);
            if (!vectors)
                continue;
            vectors_unref(found);
            found = vectors;
            is_last = f->vector.metric == SCHEMA_COSINE;
            *id = its_id;
        }
    }
    pthread_rwlock_unlock(&d->lock);
    return found;
}

bool documents_lack(struct documents *d, const void *key, uint32_t key_bytes, const char *field, uint32_t field_bytes)
{
    bool lack = false;
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n && !lack; i++) {
        const struct schema *schema = document_index_schema(d->indexes[i]);
        bool asks = follows(d->indexes[i], key, key_bytes);
        for (uint32_t j = 0; asks && j < schema->n_fields && !lack; j++) {
            const struct schema_field *f = &schema->fields[j];
            uint32_t id;
            if (!is_field(f, field, field_bytes))
                continue;
            struct vectors *vectors =
                f->type == SCHEMA_VECTOR ? document_index_vectors(d->indexes[i], key, key_bytes, f, &id) : NULL;
            lack = !vectors;
            vectors_unref(vectors);
        }
    }
    pthread_rwlock_unlock(&d->lock);
    return lack;
}

void documents_leave(struct document_index *x, bool leaving)
{
    atomic_store_explicit(&x->is_leaving, leaving, memory_order_relaxed);
}
