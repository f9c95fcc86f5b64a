/*
 * document_load.h - fields of documents, read from their keys.
 */
#ifndef QUIRE_SERVER_DOCUMENT_LOAD_H
#define QUIRE_SERVER_DOCUMENT_LOAD_H

#include "document/json/jsonpath.h"
#include "server/call/keeper.h"
#include "server/call/key_values.h"

/* A field that is read of many documents: a field of the schema by its name, otherwise a field of the hash, or a
 * path. */
struct document_getter {
    const struct schema_field *field; /* NULL: none of the schema's */
    struct schema_word source;        /* the hash's field; of JSON the path */
    struct jsonpath *path;            /* of JSON; owned; NULL: leads nowhere */
    bool whole;                       /* of JSON: the path is the document */
};
/* name: as a request has it; must live as long. QUIRE_ENOMEM; a path that is none gives no values. */
int document_getter_init(struct document_getter *getter, const struct schema *schema, struct schema_word name,
                         struct quire_error *err);
void document_getter_fini(struct document_getter *getter); /* of a zeroed one, too */

/* A document that is held, from document_load to document_load_end. Zeroed before first use: what was allocated
 * serves the next. */
struct document_loaded {
    const struct keeper *keeper; /* NULL: nothing is held */
    struct kept_document kept;
    json_t *root; /* of JSON, once a path was looked up */
    struct jsonpath_matches matches;
    struct tree_text text; /* the last value */
};
/* False: there is no such document (any more), and nothing is held. */
bool document_load(struct document_loaded *loaded, struct service *service, struct resp_arg key,
                   enum schema_source source);
/* A value; false: it has none. Valid until the next call. Of several values of a JSON path the first. data NULL: it is
 * a vector that is not in memory (server/call/key_values.h). */
bool document_load_value(struct document_loaded *loaded, const struct document_getter *getter,
                         struct schema_word *value);
/* Of a hash: whether the values of these fields (n of them; NULL: of all) are in memory; as key_values_bring. */
bool document_load_bring(struct document_loaded *loaded, struct values_wait *wait, const struct resp_arg *fields,
                         uint32_t n);
/* Every field of a hash. */
void document_load_each(const struct document_loaded *loaded, hash_visit *visit, void *context);
/* The text of a JSON document. False: no memory for it. Valid until the next call. */
bool document_load_whole(struct document_loaded *loaded, struct schema_word *value);
/* The same as a number; false: it is none. */
bool document_load_number(struct document_loaded *loaded, const struct document_getter *getter, double *value);
void document_load_end(struct document_loaded *loaded);
void document_loaded_fini(struct document_loaded *loaded);

#endif
