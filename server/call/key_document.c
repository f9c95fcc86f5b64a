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

static bool hash_field_is_kept(const void *context, const char *name, uint32_t bytes)
{
    return hash_is_away(context, (struct resp_arg){(const uint8_t *)name, bytes});
}

bool key_document_view(const struct key_entry *e, struct document_view *view)
{
    if (e->type == KEY_HASH) {
        *view = (struct document_view){
            .source = SCHEMA_HASH, .field = hash_field, .is_kept = hash_field_is_kept, .context = e->hash};
        return true;
    }
    if (e->type != KEY_JSON)
        return false;
    *view = (struct document_view){
        .source = SCHEMA_JSON, .json = (const char *)e->string->data, .json_bytes = e->string->bytes};
    return true;
}

struct sending {
    struct keyspace *keyspace;
    struct key_entry *entry;
};

static void send_away(void *context, const char *field, uint32_t bytes)
{
    struct sending *s = context;
    keyspace_send_away(s->keyspace, s->entry, (struct resp_arg){(const uint8_t *)field, bytes});
}

void key_document_send_away(struct keyspace *k, struct documents *documents, struct key_entry *e)
{
    struct document_view view;
    struct sending sending = {k, e};
    if (e->type == KEY_HASH && key_document_view(e, &view))
        documents_each_held(documents, e->key, e->node.key_bytes, &view, send_away, &sending);
}

static void on_changed(void *context, struct key_entry *e)
{
    struct service *service = context;
    struct documents *documents = service->documents;
    struct document_view view;
    if (!documents_follow(documents) || !key_document_view(e, &view))
        return;
    documents_changed(documents, e->key, e->node.key_bytes, &view);
    key_document_send_away(&service->keyspace, documents, e);
}

static struct documents *documents_of(void *context)
{
    return ((struct service *)context)->documents;
}

static void on_gone(void *context, const struct key_entry *e)
{
    struct documents *documents = documents_of(context);
    if (documents_follow(documents) && (e->type == KEY_HASH || e->type == KEY_JSON))
        documents_gone(documents, e->key, e->node.key_bytes);
}

static void on_cleared(void *context)
{
    documents_cleared(documents_of(context));
}

static bool joins(void *context)
{
    return documents_have_vectors(documents_of(context));
}

static void begin(void *context)
{
    documents_write_begin(documents_of(context));
}

static void end(void *context)
{
    documents_write_end(documents_of(context));
}

static int admit(void *context, const void *key, uint32_t key_bytes, struct quire_error *err)
{
    struct documents *documents = documents_of(context);
    return documents_have_vectors(documents) ? documents_admit(documents, key, key_bytes, err) : 0;
}

void key_document_follow(struct service *service)
{
    service->follower = (struct keyspace_follower){.changed = on_changed,
                                                   .gone = on_gone,
                                                   .cleared = on_cleared,
                                                   .joins = joins,
                                                   .begin = begin,
                                                   .end = end,
                                                   .admit = admit,
                                                   .context = service};
    service->keyspace.follower = &service->follower;
}

/* Nobody else uses the keyspace yet, so an entry that is visited may be written to. */
static void give(void *context, const struct key_entry *e)
{
    on_changed(context, (struct key_entry *)(uintptr_t)e);
}

void key_document_give_all(struct service *service)
{
    if (documents_follow(service->documents))
        keyspace_each(&service->keyspace, give, service);
}
