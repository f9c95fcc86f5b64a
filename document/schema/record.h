/*
 * record.h - what one document says of the fields of a schema: the same for a hash and for a JSON document.
 *
 * Made by document/index from the hash or the JSON text, given to who keeps the fields (document/fields) and the
 * vectors (document/vectors). All memory is the maker's, and valid during the call only.
 */
#ifndef QUIRE_DOCUMENT_RECORD_H
#define QUIRE_DOCUMENT_RECORD_H

#include "document/schema/schema.h"

/* One value. TEXT, TAG: text. NUMERIC: number. GEO: longitude in number, latitude in latitude. VECTOR: text holds the
 * elements, dim of the field's type. */
struct record_value {
    const char *text; /* of a vector that is kept: NULL, where its bytes are not here */
    uint32_t bytes;
    bool is_kept; /* a vector that indexes have, and its document has not: it is what it was */
    double number, latitude;
};
/* The values of a field: of a hash one at most; of JSON also several (tags of an array, numbers of an array). A TAG's
 * value of a hash is split by the separator by who keeps it. */
struct record_field {
    bool present; /* the document has the field; it may have no value in it (an empty array) */
    uint32_t n_values;
    const struct record_value *values;
};
struct record {
    const struct schema *schema;
    const struct record_field *fields; /* schema->n_fields, in their order */
    const char *language;              /* NULL: the schema's */
    double score;
};

#endif
