/*
 * module_keeper.c - hashes and JSON documents of the engine as documents, for the handlers of FT.*.
 *
 * They are read where they lie: a document that is held is a key that is open, on the main thread, which alone changes
 * keys. So it does not change while it is held, and nothing is locked.
 */
#include "document/schema/schema.h"
#include "io/array.h"
#include "io/error.h"
#include "module/module_priv.h"
#include <stdlib.h>
#include <string.h>

/* ---- a hash ------------------------------------------------------------------------------------------------------ */

static bool hash_field(const void *context, const char *name, uint32_t bytes, struct schema_word *value)
{
    struct module_document *hash = (struct module_document *)(uintptr_t)context; /* which keeps the value */
    struct rm_string *field = rm.create_string(NULL, name, bytes), *found = NULL;
    rm.hash_get(hash->key, RM_HASH_PLAIN, field, &found, NULL);
    rm.free_string(NULL, field);
    if (!found)
        return false;
    if (!array_reserve(&hash->values, &hash->capacity, hash->n + (size_t)1)) {
        rm.free_string(NULL, found);
        return false;
    }
    hash->values[hash->n++] = found;
    size_t n;
    value->data = rm.string_bytes(found, &n);
    value->bytes = (uint32_t)n;
    return true;
}

bool module_document_view(struct module_document *document, struct rm_key *key, struct document_view *view)
{
    if (!key || (rm.key_type(key) != RM_KEY_HASH && !module_json_view(key, view)))
        return false;
    *document = (struct module_document){.key = key};
    if (rm.key_type(key) == RM_KEY_HASH)
        *view = (struct document_view){.source = SCHEMA_HASH, .field = hash_field, .context = document};
    return true;
}

void module_document_end(struct module_document *document)
{
    for (uint32_t i = 0; i < document->n; i++)
        rm.free_string(NULL, document->values[i]);
    free(document->values);
    *document = (struct module_document){.key = NULL};
}

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

static bool hold(struct service *service, struct kept_document *d, struct resp_arg name)
{
    struct rm_ctx *ctx = module_documents_context();
    struct rm_string *text = rm.create_string(NULL, (const char *)name.data, name.bytes);
    struct rm_key *key = rm.open_key(ctx, text, RM_READ | RM_NO_TOUCH);
    struct module_document *document = malloc(sizeof *document);
    (void)service;
    bool held = document && module_document_view(document, key, &d->view);
    rm.free_string(NULL, text);
    if (!held) {
        rm.close_key(key);
        free(document);
    }
    d->other = held ? document : NULL;
    return held;
}

static void let_go(struct kept_document *d)
{
    struct module_document *document = d->other;
    struct rm_key *key = document->key;
    module_document_end(document);
    rm.close_key(key);
    free(document);
    d->other = NULL;
}

struct visiting {
    hash_visit *visit;
    void *context;
};

static void visit_field(struct rm_key *key, struct rm_string *field, struct rm_string *value, void *data)
{
    const struct visiting *v = data;
    size_t n_field, n_value;
    (void)key;
    const char *field_bytes = rm.string_bytes(field, &n_field), *value_bytes = rm.string_bytes(value, &n_value);
    v->visit(v->context, (struct resp_arg){(const uint8_t *)field_bytes, (uint32_t)n_field},
             (struct resp_arg){(const uint8_t *)value_bytes, (uint32_t)n_value});
}

static void each_field(const struct kept_document *d, hash_visit *visit, void *context)
{
    const struct module_document *document = d->other;
    struct visiting v = {visit, context};
    struct rm_cursor *cursor = rm.create_cursor();
    while (rm.scan_key(document->key, cursor, visit_field, &v))
        ;
    rm.destroy_cursor(cursor);
}

/* Of FT.DROPINDEX DD, in the command's own context: the engine logs each and passes it on. */
static int remove_keys(struct service *service, const struct resp_arg *keys, uint32_t n, uint64_t *lsn,
                       struct quire_error *err)
{
    struct rm_ctx *ctx = module_query_context();
    int rc = 0, db = rm.get_selected_db(ctx);
    (void)service;
    rm.select_db(ctx, 0);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct rm_reply *reply = rm.call(ctx, "UNLINK", "!b", (const char *)keys[i].data, (size_t)keys[i].bytes);
        if (!reply || rm.reply_type(reply) == RM_REPLY_ERROR)
            rc = error_set(err, QUIRE_EBUSY, "the engine does not remove the keys of documents now");
        if (reply)
            rm.free_reply(reply);
    }
    rm.select_db(ctx, db);
    *lsn = 0;
    return rc;
}

const struct keeper module_keeper = {.hold = hold,
                                     .let_go = let_go,
                                     .each_field = each_field,
                                     .remove = remove_keys,
                                     .fill = module_documents_fill,
                                     .has_json = true};
