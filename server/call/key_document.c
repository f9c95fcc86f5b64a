/*
 * key_document.c - between the keyspace, which knows no indexes, and the indexes, which know no keyspace.
 */
#include "server/call/key_document.h"

static bool hash_field(const void *context, const char *name, uint32_t bytes, struct schema_word *value)
{
    struct resp_arg found;
    if (!hash_get(context, (struct resp_arg){(const uint8_t *)name, bytes}, &found))
        return false;
    *value = (struct schema_word){(const char *)found.data, found.bytes};
    return true;
}

bool key_document_view(const struct key_entry *e, struct document_view *view)
{
    if (e->type == KEY_HASH) {
        *view = (struct document_view){.source = SCHEMA_HASH, .field = hash_field, .context = e->hash};
        return true;
    }
    if (e->type != KEY_JSON)
        return false;
    *view = (struct document_view){
        .source = SCHEMA_JSON, .json = (const char *)e->string->data, .json_bytes = e->string->bytes};
    return true;
}

static void on_changed(void *context, const struct key_entry *e)
{
    struct document_view view;
    if (documents_follow(context) && key_document_view(e, &view))
        documents_changed(context, e->key, e->node.key_bytes, &view);
}

static void on_gone(void *context, const struct key_entry *e)
{
    if (documents_follow(context) && (e->type == KEY_HASH || e->type == KEY_JSON))
        documents_gone(context, e->key, e->node.key_bytes);
}

static void on_cleared(void *context)
{
    documents_cleared(context);
}

static bool joins(void *context)
{
    return documents_have_vectors(context);
}

static void begin(void *context)
{
    documents_write_begin(context);
}

static void end(void *context)
{
    documents_write_end(context);
}

static int admit(void *context, const void *key, uint32_t key_bytes, struct quire_error *err)
{
    return documents_have_vectors(context) ? documents_admit(context, key, key_bytes, err) : 0;
}

void key_document_follow(struct keyspace *k, struct documents *documents, struct keyspace_follower *follower)
{
    *follower = (struct keyspace_follower){.changed = on_changed,
                                           .gone = on_gone,
                                           .cleared = on_cleared,
                                           .joins = joins,
                                           .begin = begin,
                                           .end = end,
                                           .admit = admit,
                                           .context = documents};
    k->follower = follower;
}

static void give(void *context, const struct key_entry *e)
{
    on_changed(context, e);
}

void key_document_give_all(struct keyspace *k, struct documents *documents)
{
    if (documents_follow(documents))
        keyspace_each(k, give, documents);
}
