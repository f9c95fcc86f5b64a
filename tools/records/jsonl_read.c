/*
 * jsonl_read.c - rows out of JSON Lines: one object per line, with the vector as an array of numbers.
 *
 *     {"id": "a", "vector": [0.5, 1], "attributes": {"year": 1995}, "tenants": ["acme"]}
 *
 * Names of fields differ between stores, so the usual ones are known (the lists below) and others can be given. What
 * has no name here is not lost: fields that are none of these join the attributes. An id that is a number is kept as
 * its digits. Empty lines are skipped.
 *
 * The first row is read when the file is opened: it has the number of dimensions. Lines of a plain file are counted
 * before, so that formats that begin with the number of rows can be written.
 */
#include "io/error.h"
#include "tools/records/jsonl_scan.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum part { PART_KEY, PART_VECTOR, PART_ATTRIBUTES, PART_TENANTS, PARTS };
#define NAMES_MAX 5
static const char *const usual[PARTS][NAMES_MAX] = {[PART_KEY] = {"id", "key", "_id"},
                                                    [PART_VECTOR] = {"vector", "embedding", "values"},
                                                    [PART_ATTRIBUTES] = {"attributes", "payload", "metadata"},
                                                    [PART_TENANTS] = {"tenants"}};

struct jsonl_source {
    struct records_source base;
    FILE *file;
    const char *given[PARTS]; /* names, or NULL: the usual ones */
    char *line;
    size_t capacity, bytes;
    bool has_line; /* it was read, and is the next row */
    uint64_t line_number, row;
    struct arena texts;
    char *attributes; /* of the row, where they are put together */
    size_t attributes_capacity;
};

static int not_json(const struct jsonl_source *s, const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_EPARSE, "%s line %llu: %s", s->base.name, (unsigned long long)s->line_number, what);
}

static int next_line(struct jsonl_source *s, struct quire_error *err)
{
    int rc;
    do {
        rc = records_line(s->file, s->base.name, s->line_number, &s->line, &s->capacity, &s->bytes, err);
        s->line_number += rc == 1;
    } while (rc == 1 && strspn(s->line, " \t\r") == s->bytes);
    return rc;
}

static bool name_is(const struct jsonl_span *quoted, const char *name)
{
    size_t n = strlen(name);
    return quoted->bytes == n + 2 && memcmp(quoted->at + 1, name, n) == 0;
}

static int part_of(const struct jsonl_source *s, const struct jsonl_span *name)
{
    for (int part = 0; part < PARTS; part++) {
        if (s->given[part]) {
            if (name_is(name, s->given[part]))
                return part;
            continue;
        }
        for (int i = 0; i < NAMES_MAX && usual[part][i]; i++)
            if (name_is(name, usual[part][i]))
                return part;
    }
    return PARTS;
}

static bool is_null(const struct jsonl_span *value)
{
    return value->bytes == 4 && memcmp(value->at, "null", 4) == 0;
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

struct row {
    struct jsonl_span part[PARTS]; /* at NULL: none */
    size_t others;                 /* bytes of the other fields, put together in s->attributes behind a '{' */
};

static int add_other(struct jsonl_source *s, struct row *row, const struct jsonl_span *name,
                     const struct jsonl_span *value, struct quire_error *err)
{
    size_t need = row->others + name->bytes + value->bytes + 2;
    if (s->attributes_capacity < need + s->bytes + 4) {
        size_t capacity = 2 * (need + s->bytes + 4); /* nothing is longer than the line with its marks */
        char *grown = realloc(s->attributes, capacity);
        if (!grown)
            return error_set(err, QUIRE_ENOMEM, "no memory for the attributes of a row");
        s->attributes = grown;
        s->attributes_capacity = capacity;
    }
    char *at = s->attributes + row->others;
    *at++ = row->others ? ',' : '{';
    memcpy(at, name->at, name->bytes);
    at += name->bytes;
    *at++ = ':';
    memcpy(at, value->at, value->bytes);
    row->others += name->bytes + value->bytes + 2;
    return 0;
}

static int cut_row(struct jsonl_source *s, struct row *row, struct quire_error *err)
{
    const char *at = s->line, *end = s->line + s->bytes;
    struct jsonl_span name, value;
    bool first = true;
    int rc;
    *row = (struct row){0};
    jsonl_skip_space(&at, end);
    if (at == end || *at != '{')
        return not_json(s, "a row is a JSON object, and this is none", err);
    at++;
    while ((rc = jsonl_field(&at, end, first, &name, &value)) == 1) {
        int part = part_of(s, &name);
        first = false;
        /* attributes that are no object are a field like others */
        if (part == PART_ATTRIBUTES && !s->given[part] && *value.at != '{' && !is_null(&value))
            part = PARTS;
        if (part < PARTS && row->part[part].at && !s->given[part])
            part = PARTS; /* "id" and "key" both: the first counts */
        if (part < PARTS && row->part[part].at)
            return not_json(s, "a field stands there twice", err);
        if (part < PARTS)
            row->part[part] = value;
        else if ((rc = add_other(s, row, &name, &value, err)) < 0)
            return rc;
    }
    jsonl_skip_space(&at, end);
    if (rc < 0 || at != end)
        return not_json(s, "it is not JSON: an object of names and values is expected, and nothing behind it", err);
    return 0;
}

static int take_vector(const struct jsonl_source *s, const struct row *row, float *out, size_t capacity, size_t *n,
                       struct quire_error *err)
{
    const struct jsonl_span *value = &row->part[PART_VECTOR];
    const char *name = s->given[PART_VECTOR] ? s->given[PART_VECTOR] : "vector\", \"embedding\" or \"values";
    if (!value->at || is_null(value))
        return error_set(err, QUIRE_EPARSE,
                         "%s line %llu has no field \"%s\" with the vector: --vector says what it is called",
                         s->base.name, (unsigned long long)s->line_number, name);
    long found = jsonl_numbers(value, out, capacity);
    if (found == -1)
        return not_json(s, "the vector is not an array of numbers (one unnamed, dense vector per row)", err);
    if (found == -2 || (s->base.dim && (uint32_t)found != s->base.dim))
        return error_set(err, QUIRE_EDIM,
                         "%s line %llu has a vector of %s%ld dimensions; expected %u, as the rows "
                         "before it",
                         s->base.name, (unsigned long long)s->line_number, found < 0 ? "more than " : "",
                         found < 0 ? (long)capacity : found, s->base.dim);
    *n = (size_t)found;
    return 0;
}

static int take_key(struct jsonl_source *s, const struct jsonl_span *value, struct record *record,
                    struct quire_error *err)
{
    if (!value->at || is_null(value))
        return 0;
    if (*value->at != '"') {
        if (value->bytes > 32 || strspn(value->at, "-0123456789") < value->bytes)
            return not_json(s, "the id is neither a string nor a whole number", err);
        return records_keep(&s->texts, value->at, value->bytes, &record->key, &record->key_bytes) ? 0 : QUIRE_ENOMEM;
    }
    json_error_t error;
    json_t *text = json_loadb(value->at, value->bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!text)
        return not_json(s, error.text, err);
    int rc = records_check_key(s->base.name, s->row, json_string_value(text), json_string_length(text), err);
    if (rc == 0 &&
        !records_keep(&s->texts, json_string_value(text), json_string_length(text), &record->key, &record->key_bytes))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a key");
    json_decref(text);
    return rc;
}

/* A list of names, or one text with spaces between them. */
static int take_tenants(struct jsonl_source *s, const struct jsonl_span *value, struct record *record,
                        struct quire_error *err)
{
    json_error_t error;
    if (!value->at || is_null(value))
        return 0;
    json_t *list = json_loadb(value->at, value->bytes, JSON_DECODE_ANY, &error), *item;
    size_t i, bytes = 0;
    char *joined = list ? arena_take(&s->texts, value->bytes + 2) : NULL;
    int rc = list && !joined ? error_set(err, QUIRE_ENOMEM, "no memory for tenants") : 0;
    if (!list || (!json_is_array(list) && !json_is_string(list)))
        rc = not_json(s, "the tenants are not a list of names", err);
    if (rc == 0 && json_is_string(list)) {
        bytes = json_string_length(list);
        memcpy(joined, json_string_value(list), bytes);
    }
    json_array_foreach(list, i, item)
    {
        if (rc == 0 && (!json_is_string(item) || memchr(json_string_value(item), ' ', json_string_length(item))))
            rc = not_json(s, "the tenants are not a list of names without spaces", err);
        if (rc < 0)
            break;
        if (i)
            joined[bytes++] = ' ';
        memcpy(joined + bytes, json_string_value(item), json_string_length(item));
        bytes += json_string_length(item);
    }
    json_decref(list);
    if (rc == 0 && bytes)
        rc = records_check_tenants(s->base.name, s->row, joined, bytes, err);
    if (rc == 0 && bytes) {
        record->tenants = joined;
        record->tenant_bytes = (uint32_t)bytes;
    }
    return rc;
}

/* The object, the fields that are nothing else, or both in one. */
static int take_attributes(struct jsonl_source *s, struct row *row, struct record *record, struct quire_error *err)
{
    const struct jsonl_span *value = &row->part[PART_ATTRIBUTES];
    bool has = value->at && !is_null(value);
    const char *text = has ? value->at : NULL;
    size_t bytes = has ? value->bytes : 0;
    if (row->others) {
        char *at = s->attributes + row->others;
        size_t inner = 1;
        while (has && inner < bytes && strchr(" \t\r\n", text[inner]))
            inner++;
        if (has && *text == '{' && inner < bytes && text[inner] != '}') {
            *at++ = ',';
            memcpy(at, text + 1, bytes - 1); /* with its '}' */
            at += bytes - 1;
        } else {
            *at++ = '}';
        }
        bytes = (size_t)(at - s->attributes);
        if (has && *text != '{')
            return not_json(s, "the attributes are not an object", err);
        text = s->attributes;
    }
    if (!text)
        return 0;
    int rc = records_check_attributes(s->base.name, s->row, text, bytes, err);
    if (rc == 0 && !records_keep(&s->texts, text, bytes, &record->attributes, &record->attribute_bytes))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for attributes");
    return rc;
}

static int64_t jsonl_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                          struct quire_error *err)
{
    struct jsonl_source *s = (struct jsonl_source *)source;
    uint64_t got = 0;
    arena_reset(&s->texts);
    for (; got < n; got++, s->row++) {
        float *vector = (float *)vectors + got * source->dim;
        struct row row;
        size_t dim;
        int rc = s->has_line ? 1 : next_line(s, err);
        s->has_line = false;
        if (rc == 0)
            break;
        if (rc == 1)
            rc = cut_row(s, &row, err);
        if (rc == 0)
            rc = take_vector(s, &row, vector, source->dim, &dim, err);
        if (rc == 0)
            rc = records_check_finite(source->name, vector, s->row, 1, source->dim, err);
        if (rc == 0)
            rc = take_key(s, &row.part[PART_KEY], &records[got], err);
        if (rc == 0)
            rc = take_attributes(s, &row, &records[got], err);
        if (rc == 0)
            rc = take_tenants(s, &row.part[PART_TENANTS], &records[got], err);
        if (rc < 0)
            return rc;
    }
    return (int64_t)got;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void jsonl_close(struct records_source *source)
{
    struct jsonl_source *s = (struct jsonl_source *)source;
    if (s->file && s->file != stdin)
        fclose(s->file);
    arena_fini(&s->texts);
    free(s->line);
    free(s->attributes);
    free(source->name);
    free(s);
}

static const struct records_source_ops jsonl_source_ops = {jsonl_read, jsonl_close};

/* Lines that are not empty; the file stands at its beginning again. */
static int count_rows(struct jsonl_source *s, struct quire_error *err)
{
    char *buffer = malloc(1u << 20);
    uint64_t rows = 0;
    bool in_row = false;
    size_t n;
    if (!buffer)
        return error_set(err, QUIRE_ENOMEM, "no memory to read %s", s->base.name);
    while ((n = fread(buffer, 1, 1u << 20, s->file)) > 0)
        for (size_t i = 0; i < n; i++) {
            bool space = buffer[i] == ' ' || buffer[i] == '\t' || buffer[i] == '\r';
            rows += !in_row && !space && buffer[i] != '\n';
            in_row = buffer[i] != '\n' && (in_row || !space);
        }
    free(buffer);
    if (ferror(s->file) || fseek(s->file, 0, SEEK_SET) != 0)
        return error_set_errno(err, errno, "cannot read", s->base.name);
    s->base.rows = rows;
    return 0;
}

static int open_file(struct jsonl_source *s, const char *path, struct quire_error *err)
{
    struct stat st;
    s->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (!s->file || fstat(fileno(s->file), &st) != 0)
        return error_set_errno(err, errno, "cannot open", path);
    if (S_ISDIR(st.st_mode))
        return error_set(err, QUIRE_EINVALID, "%s is a folder, not a file of rows", path);
    return S_ISREG(st.st_mode) && s->file != stdin ? count_rows(s, err) : 0;
}

static int read_first(struct jsonl_source *s, struct quire_error *err)
{
    float *vector = malloc(QUIRE_DIM_MAX * sizeof *vector);
    struct row row;
    size_t dim = 0;
    int rc = vector ? next_line(s, err) : error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    if (rc == 0)
        rc = error_set(err, QUIRE_ETRUNCATED, "%s has no row", s->base.name);
    if (rc == 1)
        rc = cut_row(s, &row, err);
    if (rc == 0)
        rc = take_vector(s, &row, vector, QUIRE_DIM_MAX, &dim, err);
    if (rc == 0 && dim == 0)
        rc = not_json(s, "the vector has no dimensions", err);
    s->base.dim = (uint32_t)dim;
    s->has_line = rc == 0;
    free(vector);
    return rc;
}

int jsonl_open(const struct records_from *from, struct records_source **out, struct quire_error *err)
{
    struct jsonl_source *s = records_new_source(sizeof *s, &jsonl_source_ops, from->path);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", from->path);
    s->base.type = QUIRE_TYPE_F32;
    s->base.may_have = RECORDS_KEYS | RECORDS_ATTRIBUTES | RECORDS_TENANTS;
    s->given[PART_KEY] = from->names.key;
    s->given[PART_VECTOR] = from->names.vector;
    s->given[PART_ATTRIBUTES] = from->names.attributes;
    s->given[PART_TENANTS] = from->names.tenants;
    int rc = open_file(s, from->path, err);
    if (rc == 0)
        rc = read_first(s, err);
    if (rc < 0)
        jsonl_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
