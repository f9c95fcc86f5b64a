/*
 * record_read.h - a document, as its keeper has it, becomes what a schema says of it (document/schema/record.h).
 */
#ifndef QUIRE_DOCUMENT_RECORD_READ_H
#define QUIRE_DOCUMENT_RECORD_READ_H

#include "document/json/jsonpath.h"
#include "document/schema/record.h"
#include "io/arena.h"

/* A document in its keeper's memory: a hash, or packed JSON. Valid during the call it is given to. */
struct document_view {
    enum schema_source source;
    /* HASH: the value of a field; false where there is none. data NULL: it is kept by indexes alone. */
    bool (*field)(const void *context, const char *name, uint32_t bytes, struct schema_word *value);
    /* HASH: whether indexes keep the value of a field, wherever a copy is. NULL: of none. */
    bool (*is_kept)(const void *context, const char *name, uint32_t bytes);
    const void *context;
    const char *json; /* JSON, packed (document/json/tree.h) */
    uint32_t json_bytes;
};

/* Reads documents of one schema after the other; memory is used again. */
struct record_reader {
    const struct schema *schema;
    struct jsonpath **paths; /* JSON: of the schema's fields; owned */
    uint32_t n_paths;
    struct jsonpath *language, *score; /* JSON: of LANGUAGE_FIELD, SCORE_FIELD; NULL: none; owned */
    struct jsonpath_matches matches;
    struct arena arena;
    json_t *root; /* of the last document, which records point into */
};
/* Whether an index may be made so. QUIRE_EINVALID: LANGUAGE_FIELD or SCORE_FIELD is no path into JSON documents;
 * QUIRE_ENOMEM. */
int record_rules_check(const struct schema *schema, struct quire_error *err);
/* QUIRE_EINVALID: an identifier is no path; QUIRE_ENOMEM. The schema must live as long. */
int record_reader_init(struct record_reader *reader, const struct schema *schema, struct quire_error *err);
void record_reader_fini(struct record_reader *reader); /* of a zeroed one, too */

/* *out lives until the reader's next call. QUIRE_EINVALID, EDIM, ERANGE, EPARSE, ELIMIT: a field holds what its type
 * does not take; the document is not to be found then, and err says why. QUIRE_ENOMEM. */
int record_read(struct record_reader *reader, const struct document_view *view, struct record *out,
                struct quire_error *err);

/* Whether indexes keep the value of the field. */
bool record_is_kept(const struct document_view *view, const struct schema_field *field);

/* Whether a string is a number as documents write them: a decimal fraction, inf or -inf; not NaN, no blanks. */
bool record_number(const char *text, size_t bytes, double *out);
/* "longitude,latitude" or "longitude latitude" */
bool record_place(const char *text, size_t bytes, double *longitude, double *latitude);

#endif
