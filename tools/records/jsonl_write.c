/*
 * jsonl_write.c - rows into JSON Lines.
 *
 * Numbers are the shortest of two forms that read back as the same float (7 or 9 digits; 9 always do), so a file of
 * f32 that goes through JSON Lines comes back bit by bit. JSON is UTF-8: keys that are not are refused. The text of
 * attributes is written as it is, its line ends as spaces.
 */
#include "io/error.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct jsonl_sink {
    struct records_sink base;
    struct records_file out;
    const char *key, *vector, *attributes, *tenants; /* names */
};

static int put_string(FILE *file, const char *text, size_t bytes)
{
    json_t *string = json_stringn(text, bytes);
    int rc = string ? json_dumpf(string, file, JSON_ENCODE_ANY) : -1;
    json_decref(string);
    return rc;
}

static void put_name(FILE *file, const char *name, bool first)
{
    if (!first)
        putc_unlocked(',', file);
    put_string(file, name, strlen(name));
    putc_unlocked(':', file);
}

static void put_vector(const struct jsonl_sink *s, const void *vector)
{
    FILE *file = s->out.file;
    char text[32];
    putc_unlocked('[', file);
    for (uint32_t d = 0; d < s->base.dim; d++) {
        int n;
        if (s->base.type == QUIRE_TYPE_F32) {
            float x = ((const float *)vector)[d];
            n = snprintf(text, sizeof text, "%.7g", (double)x);
            if (x == 0 && signbit(x))
                n = snprintf(text, sizeof text,
                             "-0.0"); /* "-0" is a whole number to many readers, and loses its sign */
            else if (strtof(text, NULL) != x)
                n = snprintf(text, sizeof text, "%.9g", (double)x);
        } else {
            int x = s->base.type == QUIRE_TYPE_I8 ? ((const int8_t *)vector)[d] : ((const uint8_t *)vector)[d];
            n = snprintf(text, sizeof text, "%d", x);
        }
        if (d)
            putc_unlocked(',', file);
        fwrite_unlocked(text, 1, (size_t)n, file);
    }
    putc_unlocked(']', file);
}

static void put_tenants(FILE *file, const char *text, size_t bytes)
{
    putc_unlocked('[', file);
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, ' ', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;
        if (at)
            putc_unlocked(',', file);
        put_string(file, text + at, length);
        at += length + 1;
    }
    putc_unlocked(']', file);
}

static int put_row(struct jsonl_sink *s, const void *vector, const struct record *r, uint64_t row,
                   struct quire_error *err)
{
    FILE *file = s->out.file;
    putc_unlocked('{', file);
    if (r->key) {
        put_name(file, s->key, true);
        if (put_string(file, r->key, r->key_bytes) != 0)
            return error_set(err, QUIRE_EINVALID,
                             "the key of row %llu is not UTF-8, which JSON cannot hold: write .hdf5 or .parquet, or "
                             "a file of vectors with --keys",
                             (unsigned long long)row);
    }
    put_name(file, s->vector, !r->key);
    put_vector(s, vector);
    if (r->attributes) {
        put_name(file, s->attributes, false);
        for (uint32_t i = 0; i < r->attribute_bytes; i++)
            putc_unlocked(r->attributes[i] == '\n' || r->attributes[i] == '\r' ? ' ' : r->attributes[i], file);
    }
    if (r->tenants) {
        put_name(file, s->tenants, false);
        put_tenants(file, r->tenants, r->tenant_bytes);
    }
    fputs("}\n", file);
    return 0;
}

static int jsonl_write(struct records_sink *sink, const void *vectors, const struct record *records, uint64_t n,
                       struct quire_error *err)
{
    struct jsonl_sink *s = (struct jsonl_sink *)sink;
    size_t row_bytes = sink->dim * quire_type_bytes(sink->type);
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        rc = put_row(s, (const char *)vectors + i * row_bytes, &records[i], sink->rows + i, err);
    if (rc == 0 && ferror(s->out.file))
        rc = error_set_errno(err, errno, "cannot write", sink->name);
    return rc;
}

static void jsonl_abort(struct records_sink *sink)
{
    struct jsonl_sink *s = (struct jsonl_sink *)sink;
    records_file_abort(&s->out);
    free(sink->name);
    free(s);
}

static int jsonl_finish(struct records_sink *sink, struct quire_error *err)
{
    struct jsonl_sink *s = (struct jsonl_sink *)sink;
    int rc = records_file_finish(&s->out, err);
    jsonl_abort(sink);
    return rc;
}

static const struct records_sink_ops jsonl_sink_ops = {jsonl_write, jsonl_finish, jsonl_abort, NULL};

int jsonl_create(const struct records_into *into, struct records_sink **out, struct quire_error *err)
{
    struct jsonl_sink *s = records_new_sink(sizeof *s, &jsonl_sink_ops, into);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", into->path);
    s->key = into->names.key ? into->names.key : "id";
    s->vector = into->names.vector ? into->names.vector : "vector";
    s->attributes = into->names.attributes ? into->names.attributes : "attributes";
    s->tenants = into->names.tenants ? into->names.tenants : "tenants";
    int rc = records_file_create(&s->out, into->path, err);
    if (rc < 0)
        jsonl_abort(&s->base);
    else
        *out = &s->base;
    return rc;
}
