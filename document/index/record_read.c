/*
 * record_read.c - hashes and JSON documents become records.
 *
 * A field that is not there is fine. A field that holds what its type does not take leaves the whole document out of
 * the index, as in RediSearch: a number that is none, a vector of another size, a place off the earth. NaN and infinity
 * are no elements of vectors here.
 *
 * Vectors are checked and copied: their bytes lie anywhere in a hash, and are read as numbers later.
 */
#include "document/index/record_read_priv.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT_MAX = 127 };

#define LATITUDE_MAX  85.05112878 /* of the Mercator projection that places are kept in */
#define LONGITUDE_MAX 180.0

bool record_number(const char *text, size_t bytes, double *out)
{
    char copy[NUMBER_TEXT_MAX + 1], *end;
    if (bytes == 0 || bytes > NUMBER_TEXT_MAX || isspace((unsigned char)text[0]))
        return false;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    double x = strtod(copy, &end);
    if (end != copy + bytes || isnan(x))
        return false;
    *out = x;
    return true;
}

bool record_place(const char *text, size_t bytes, double *longitude, double *latitude)
{
    const char *end = text + bytes, *between = text;
    while (between < end && *between != ',' && *between != ' ')
        between++;
    if (between == end)
        return false;
    const char *second = between + 1;
    while (second < end && *second == ' ')
        second++;
    return record_number(text, (size_t)(between - text), longitude) &&
           record_number(second, (size_t)(end - second), latitude) && fabs(*longitude) <= LONGITUDE_MAX &&
           fabs(*latitude) <= LATITUDE_MAX;
}

static int no_memory(const struct record_reading *r)
{
    return error_set(r->err, QUIRE_ENOMEM, "no memory for a document's fields");
}

struct record_value *record_values(struct record_reading *r, struct record_field *field, uint32_t n)
{
    struct record_value *values = arena_take(r->arena, n * sizeof *values + 1);
    if (values)
        memset(values, 0, n * sizeof *values);
    field->values = values;
    field->n_values = n;
    field->present = true;
    return values;
}

static int bad(const struct record_reading *r, const struct schema_field *f, const char *what)
{
    return error_set(r->err, QUIRE_EINVALID, "Field `%s`: %s", f->name, what);
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

static int read_blob(struct record_reading *r, const struct schema_field *f, struct record_field *field,
                     struct schema_word blob, bool is_kept)
{
    size_t bytes = f->vector.dim * schema_element_bytes(f->vector.element);
    if (blob.bytes != bytes)
        return error_set(r->err, QUIRE_EDIM, "Could not add vector with blob size %u (expected size %zu)", blob.bytes,
                         bytes);
    if (blob.data && !schema_elements_are_finite(f->vector.element, blob.data, f->vector.dim))
        return bad(r, f, "the vector holds NaN or infinity");
    struct record_value *value = record_values(r, field, 1);
    char *copy = value && blob.data ? arena_take(r->arena, bytes) : NULL;
    if (!value || (blob.data && !copy))
        return no_memory(r);
    if (copy)
        memcpy(copy, blob.data, bytes);
    value->text = copy;
    value->bytes = (uint32_t)bytes;
    value->is_kept = is_kept;
    return 0;
}

/* ---- hashes ------------------------------------------------------------------------------------------------------ */

bool record_is_kept(const struct document_view *view, const struct schema_field *f)
{
    return view->is_kept && view->is_kept(view->context, f->identifier, f->identifier_bytes);
}

static int read_hash_field(struct record_reading *r, const struct schema_field *f, struct record_field *field)
{
    struct schema_word word;
    if (!r->view->field(r->view->context, f->identifier, f->identifier_bytes, &word))
        return 0;
    if (f->type == SCHEMA_VECTOR)
        return read_blob(r, f, field, word, record_is_kept(r->view, f));
    if (!word.data && word.bytes > 0)
        return bad(r, f, "it is a vector of another index, and not here"); /* documents_lack */
    struct record_value *value = record_values(r, field, 1);
    if (!value)
        return no_memory(r);
    value->text = word.data;
    value->bytes = word.bytes;
    if (f->type == SCHEMA_NUMERIC && !record_number(word.data, word.bytes, &value->number))
        return error_set(r->err, QUIRE_EINVALID, "Invalid numeric value: '%.*s'",
                         word.bytes < 64 ? (int)word.bytes : 64, word.data);
    if (f->type == SCHEMA_GEO && !record_place(word.data, word.bytes, &value->number, &value->latitude))
        return error_set(r->err, QUIRE_EINVALID, "Invalid geo string: '%.*s' is not longitude,latitude",
                         word.bytes < 64 ? (int)word.bytes : 64, word.data);
    return 0;
}

static int read_hash(struct record_reading *r)
{
    int rc = 0;
    for (uint32_t i = 0; i < r->schema->n_fields && rc == 0; i++)
        rc = read_hash_field(r, &r->schema->fields[i], &r->fields[i]);
    return rc;
}

/* ---- what a document says of itself ------------------------------------------------------------------------------ */

static void set_score(struct record *out, double score)
{
    if (score >= 0 && score <= 1)
        out->score = score;
}

static int set_language(struct record_reading *r, struct record *out, const char *text, size_t bytes)
{
    char *copy = arena_take(r->arena, bytes + 1);
    if (!copy)
        return no_memory(r);
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    out->language = copy;
    return 0;
}

static int read_hash_rules(struct record_reading *r, struct record *out)
{
    struct schema_word word;
    double score;
    const char *name = r->schema->score_field;
    if (name && r->view->field(r->view->context, name, (uint32_t)strlen(name), &word) && word.data &&
        record_number(word.data, word.bytes, &score))
        set_score(out, score);
    name = r->schema->language_field;
    if (!name || !r->view->field(r->view->context, name, (uint32_t)strlen(name), &word) || !word.data)
        return 0;
    return set_language(r, out, word.data, word.bytes);
}

static int read_json_rules(struct record_reading *r, const struct record_reader *reader, struct record *out)
{
    const json_t *score, *language;
    int rc = record_json_first(r, reader->score, reader->root, &score);
    if (rc == 0)
        rc = record_json_first(r, reader->language, reader->root, &language);
    if (rc < 0)
        return rc;
    if (json_is_number(score))
        set_score(out, json_number_value(score));
    return json_is_string(language) ? set_language(r, out, json_string_value(language), json_string_length(language))
                                    : 0;
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

/* kind: "attribute" or "option", of this name; position: of the path in the command. */
static int compile(const char *text, const char *kind, const char *name, uint32_t position, struct jsonpath **out,
                   struct quire_error *err)
{
    struct quire_error why = {0};
    int rc = jsonpath_compile(text, strlen(text), out, &why);
    if (rc == 0 || rc == QUIRE_ENOMEM)
        return rc == 0 ? 0 : error_set(err, rc, "no memory for an index");
    return error_set(err, QUIRE_EINVALID, "Invalid JSONPath '%.100s' in %s '%.64s': %.150s (position %u)", text, kind,
                     name, why.message, position);
}

static int compile_rules(struct record_reader *reader, struct quire_error *err)
{
    const struct schema *schema = reader->schema;
    int rc = 0;
    if (schema->source == SCHEMA_JSON && schema->language_field)
        rc = compile(schema->language_field, "option", "LANGUAGE_FIELD", schema->language_field_position,
                     &reader->language, err);
    if (rc == 0 && schema->source == SCHEMA_JSON && schema->score_field)
        rc = compile(schema->score_field, "option", "SCORE_FIELD", schema->score_field_position, &reader->score, err);
    return rc;
}

int record_rules_check(const struct schema *schema, struct quire_error *err)
{
    struct record_reader reader = {.schema = schema};
    int rc = compile_rules(&reader, err);
    record_reader_fini(&reader);
    return rc;
}

int record_reader_init(struct record_reader *reader, const struct schema *schema, struct quire_error *err)
{
    *reader = (struct record_reader){.schema = schema};
    if (schema->source != SCHEMA_JSON)
        return 0;
    reader->paths = calloc(schema->n_fields, sizeof *reader->paths);
    if (!reader->paths)
        return error_set(err, QUIRE_ENOMEM, "no memory for an index");
    int rc = compile_rules(reader, err);
    if (rc == QUIRE_EINVALID)
        rc = 0; /* of a definition from before they were checked: documents say nothing by it, as they did */
    while (rc == 0 && reader->n_paths < schema->n_fields) {
        const struct schema_field *f = &schema->fields[reader->n_paths];
        rc = compile(f->identifier, "attribute", f->name, f->position, &reader->paths[reader->n_paths], err);
        reader->n_paths += rc == 0;
    }
    if (rc < 0)
        record_reader_fini(reader);
    return rc;
}

void record_reader_fini(struct record_reader *reader)
{
    for (uint32_t i = 0; i < reader->n_paths; i++)
        jsonpath_free(reader->paths[i]);
    jsonpath_free(reader->language);
    jsonpath_free(reader->score);
    free(reader->paths);
    jsonpath_matches_fini(&reader->matches);
    json_decref(reader->root); /* NULL is fine */
    arena_fini(&reader->arena);
    memset(reader, 0, sizeof *reader);
}

int record_read(struct record_reader *reader, const struct document_view *view, struct record *out,
                struct quire_error *err)
{
    const struct schema *schema = reader->schema;
    struct record_reading r = {&reader->arena, schema, view, NULL, &reader->matches, err};
    assert(view->source == schema->source);
    arena_reset(&reader->arena);
    json_decref(reader->root);
    reader->root = NULL;
    r.fields = arena_take(&reader->arena, schema->n_fields * sizeof *r.fields);
    if (!r.fields)
        return no_memory(&r);
    memset(r.fields, 0, schema->n_fields * sizeof *r.fields);
    *out = (struct record){.schema = schema, .fields = r.fields, .score = schema->score};
    if (view->source == SCHEMA_HASH) {
        int rc = read_hash_rules(&r, out);
        return rc < 0 ? rc : read_hash(&r);
    }
    int rc = tree_unpack(view->json, view->json_bytes, &reader->root, err);
    if (rc == 0)
        rc = read_json_rules(&r, reader, out);
    return rc < 0 ? rc : record_read_json(&r, reader->paths, reader->root);
}
