/* record_read_priv.h - a document being read: what the readers of hashes and of JSON share. */
#ifndef QUIRE_DOCUMENT_RECORD_READ_PRIV_H
#define QUIRE_DOCUMENT_RECORD_READ_PRIV_H

#include "document/index/record_read.h"

struct record_reading {
    struct arena *arena;
    const struct schema *schema;
    const struct document_view *view;
    struct record_field *fields;
    struct jsonpath_matches *matches;
    struct quire_error *err;
};

/* The field is there, with n values, all zero; NULL without memory. */
struct record_value *record_values(struct record_reading *reading, struct record_field *field, uint32_t n);
int record_read_json(struct record_reading *reading, struct jsonpath *const *paths, json_t *root);
/* The first value that a path leads to; *out NULL: there is none, or no path. Errors: jsonpath_find's. */
int record_json_first(struct record_reading *reading, const struct jsonpath *path, json_t *root, const json_t **out);

#endif
