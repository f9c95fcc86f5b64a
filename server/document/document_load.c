/*
 * document_load.c - see document_load.h.
 *
 * A JSON document is parsed for the first path that is looked up in it, and only where the path is not the document
 * itself, whose text is made without.
 */
#include "server/document/document_load.h"
#include "io/error.h"
#include <assert.h>
#include <string.h>

int document_getter_init(struct document_getter *g, const struct schema *schema, struct schema_word name,
                         struct quire_error *err)
{
    *g = (struct document_getter){.field = schema_find(schema, name.data, name.bytes), .source = name};
    if (g->field)
        g->source = (struct schema_word){g->field->identifier, g->field->identifier_bytes};
    if (schema->source != SCHEMA_JSON)
        return 0;
    struct quire_error why = {0};
    int rc = jsonpath_compile(g->source.data, g->source.bytes, &g->path, &why);
    if (rc == QUIRE_ENOMEM)
        return error_set(err, QUIRE_ENOMEM, "no memory for a path");
    g->whole = rc == 0 && jsonpath_is_root(g->path);
    return 0;
}

void document_getter_fini(struct document_getter *g)
{
    jsonpath_free(g->path);
    g->path = NULL;
}

bool document_load(struct document_loaded *l, struct service *service, struct resp_arg name, enum schema_source source)
{
    assert(!l->keeper);
    if (!service->keeper->hold(service, &l->kept, name))
        return false;
    if (l->kept.view.source == source) {
        l->keeper = service->keeper;
        return true;
    }
    service->keeper->let_go(&l->kept);
    return false;
}

bool document_load_bring(struct document_loaded *l, struct values_wait *wait, const struct resp_arg *fields, uint32_t n)
{
    return !l->keeper->lends || key_values_bring(wait, &l->kept.lock, l->kept.entry, fields, n);
}

void document_load_each(const struct document_loaded *l, hash_visit *visit, void *context)
{
    l->keeper->each_field(&l->kept, visit, context);
}

/* The first value that the path leads to; NULL: none. */
static const json_t *find(struct document_loaded *l, const struct document_getter *g)
{
    assert(l->keeper && l->kept.view.source == SCHEMA_JSON);
    if (!g->path || (!l->root && tree_unpack(l->kept.view.json, l->kept.view.json_bytes, &l->root, NULL) < 0))
        return NULL;
    if (jsonpath_find(g->path, l->root, &l->matches, NULL) < 0 || l->matches.n == 0)
        return NULL;
    return l->matches.items[0].value;
}

bool document_load_whole(struct document_loaded *l, struct schema_word *value)
{
    assert(l->keeper && l->kept.view.source == SCHEMA_JSON);
    l->text.bytes = 0;
    if (tree_unpack_text(l->kept.view.json, l->kept.view.json_bytes, &l->text, NULL) < 0 || l->text.failed) {
        tree_text_fini(&l->text);
        return false;
    }
    *value = (struct schema_word){l->text.data, (uint32_t)l->text.bytes};
    return true;
}

bool document_load_value(struct document_loaded *l, const struct document_getter *g, struct schema_word *value)
{
    if (l->kept.view.source == SCHEMA_HASH)
        return l->kept.view.field(l->kept.view.context, g->source.data, g->source.bytes, value);
    if (g->whole)
        return document_load_whole(l, value);
    const json_t *found = find(l, g);
    if (!found || json_is_null(found))
        return false;
    if (json_is_string(found)) {
        *value = (struct schema_word){json_string_value(found), (uint32_t)json_string_length(found)};
        return true;
    }
    if (json_is_boolean(found)) {
        *value = json_is_true(found) ? (struct schema_word){"1", 1} : (struct schema_word){"0", 1};
        return true;
    }
    l->text.bytes = 0;
    tree_print(found, NULL, 0, &l->text);
    if (l->text.failed)
        return false;
    *value = (struct schema_word){l->text.data, (uint32_t)l->text.bytes};
    return true;
}

bool document_load_number(struct document_loaded *l, const struct document_getter *g, double *number)
{
    struct schema_word value;
    if (l->kept.view.source == SCHEMA_JSON) {
        const json_t *found = find(l, g);
        if (json_is_array(found))
            found = json_array_get(found, 0);
        *number = json_number_value(found);
        return json_is_number(found);
    }
    return document_load_value(l, g, &value) && record_number(value.data, value.bytes, number);
}

void document_load_end(struct document_loaded *l)
{
    assert(l->keeper);
    json_decref(l->root);
    l->root = NULL;
    l->keeper->let_go(&l->kept);
    l->keeper = NULL;
}

void document_loaded_fini(struct document_loaded *l)
{
    assert(!l->keeper);
    jsonpath_matches_fini(&l->matches);
    tree_text_fini(&l->text);
}
