/*
 * redis_documents.c - hashes and JSON documents with a vector in a field, out of a running server.
 *
 * An index of FT.CREATE says where: the prefixes of its keys, the field with the vector, of what type and metric, and
 * which fields are numbers. Without one, hashes whose keys begin with a prefix and hold the vector as floats of 4 bytes
 * in a named field: what RedisVL, LangChain and GPTCache leave in a Redis. Keys are collected first (SCAN may say one
 * twice), so memory holds the names of all documents, and no more of them than a pipeline. A key without the field is
 * left out.
 *
 * All other fields become attributes: texts, but for what the index calls NUMERIC, and what is a number in JSON.
 */
#include "index/vector/space.h"
#include "io/error.h"
#include "tools/records/records_priv.h"
#include "tools/records/redis_link.h"
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PIPELINE 128u

enum element { ELEMENT_F32, ELEMENT_F64, ELEMENT_F16, ELEMENT_BF16 };
static const unsigned element_bytes[] = {4, 8, 2, 2};

struct documents {
    struct records_source base;
    struct redis_link link;
    struct redis_names keys;
    size_t at;
    bool json;
    char *field, *path; /* of the vector; path: of the index, for JSON */
    enum element element;
    json_t *numeric; /* names of fields that are numbers, as an object */
    struct arena texts;
};

/* ---- what an index says ------------------------------------------------------------------------------------------ */

/* The value behind a name in a list of names and values. */
static const redisReply *value_of(const redisReply *list, const char *name)
{
    for (size_t i = 0; i + 1 < list->elements; i++)
        if (list->element[i]->str && strcasecmp(list->element[i]->str, name) == 0)
            return list->element[i + 1];
    return NULL;
}

static const char *text_of(const redisReply *list, const char *name)
{
    const redisReply *value = value_of(list, name);
    return value && value->str ? value->str : "";
}

static int take_vector_field(struct documents *d, const redisReply *field, struct quire_error *err)
{
    static const char *const types[] = {"FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16"};
    const char *type = text_of(field, "data_type"), *metric = text_of(field, "distance_metric");
    const redisReply *dim = value_of(field, "dim");
    double number;
    size_t i = 0;
    while (i < 4 && strcasecmp(type, types[i]) != 0)
        i++;
    if (i == 4)
        return error_set(err, QUIRE_ETYPE, "vectors of type %s are not known; FLOAT32, FLOAT64, FLOAT16, BFLOAT16 are",
                         type);
    if (!dim || !redis_number(dim, &number) || number < 1 || number > QUIRE_DIM_MAX)
        return error_set(err, QUIRE_EFORMAT, "%s does not say how many dimensions the vectors have", d->link.name);
    d->element = (enum element)i;
    d->base.dim = (uint32_t)number;
    d->base.metric = strcasecmp(metric, "L2") == 0   ? QUIRE_METRIC_L2
                     : strcasecmp(metric, "IP") == 0 ? QUIRE_METRIC_IP
                                                     : QUIRE_METRIC_COSINE;
    free(d->path);
    d->path = strdup(text_of(field, "identifier"));
    const char *plain = d->path && strncmp(d->path, "$.", 2) == 0 ? d->path + 2 : d->path;
    free(d->field);
    d->field = plain ? strdup(plain) : NULL;
    return d->field ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a name");
}

static int collect(struct documents *d, const char *prefix, struct quire_error *err)
{
    char *pattern = malloc(2 * strlen(prefix) + 2), *to = pattern;
    struct redis_names found = {0};
    if (!pattern)
        return error_set(err, QUIRE_ENOMEM, "no memory for a name");
    for (const char *at = prefix; *at; at++) {
        if (strchr("*?[]\\", *at))
            *to++ = '\\';
        *to++ = *at;
    }
    *to++ = '*';
    *to = 0;
    int rc = redis_scan(&d->link, pattern, d->json ? "ReJSON-RL" : "hash", &found, err);
    free(pattern);
    if (rc == 0 && d->keys.n == 0) {
        d->keys = found;
        return 0;
    }
    if (rc == 0) {
        redis_names_free(&found);
        rc = error_set(err, QUIRE_EUNSUPPORTED,
                       "the index has several prefixes: import each by itself, with --prefix and --vector-field");
    }
    return rc;
}

static int read_index(struct documents *d, const char *index, struct quire_error *err)
{
    const char *words[] = {"FT.INFO", index};
    redisReply *info = NULL;
    int rc = redis_ask(&d->link, &info, err, 2, words, NULL);
    if (rc < 0)
        return rc;
    const redisReply *definition = value_of(info, "index_definition"), *fields = value_of(info, "attributes");
    const redisReply *prefixes = definition ? value_of(definition, "prefixes") : NULL;
    if (!definition || !prefixes || !fields)
        rc = error_set(err, QUIRE_EFORMAT, "%s answers something else to FT.INFO than RediSearch", d->link.name);
    d->json = rc == 0 && strcasecmp(text_of(definition, "key_type"), "JSON") == 0;
    for (size_t i = 0; rc == 0 && i < fields->elements; i++) {
        const char *type = text_of(fields->element[i], "type");
        if (strcasecmp(type, "VECTOR") == 0 && d->base.dim)
            rc = error_set(err, QUIRE_EUNSUPPORTED,
                           "the index %s has several vectors: import one with --prefix and --vector-field", index);
        else if (strcasecmp(type, "VECTOR") == 0)
            rc = take_vector_field(d, fields->element[i], err);
        else if (strcasecmp(type, "NUMERIC") == 0)
            json_object_set_new(d->numeric, text_of(fields->element[i], "identifier"), json_true());
    }
    if (rc == 0 && d->base.dim == 0)
        rc = error_set(err, QUIRE_ENOTFOUND, "the index %s has no field of type VECTOR", index);
    for (size_t i = 0; rc == 0 && i < prefixes->elements; i++)
        rc = collect(d, prefixes->element[i]->str ? prefixes->element[i]->str : "", err);
    freeReplyObject(info);
    return rc;
}

/* Dimensions of the first document that has the field. */
static int guess_dim(struct documents *d, struct quire_error *err)
{
    for (size_t i = 0; i < d->keys.n && d->base.dim == 0; i++) {
        const char *words[] = {"HSTRLEN", d->keys.name[i], d->field};
        const size_t bytes[] = {7, d->keys.bytes[i], strlen(d->field)};
        redisReply *reply = NULL;
        int rc = redis_ask(&d->link, &reply, err, 3, words, bytes);
        if (rc < 0)
            return rc;
        long long length = reply->integer;
        freeReplyObject(reply);
        if (length % 4 != 0 || length > 4LL * QUIRE_DIM_MAX)
            return error_set(err, QUIRE_EDIM, "%s of %s has %lld bytes, which are no floats of 4", d->field,
                             d->keys.name[i], length);
        d->base.dim = (uint32_t)(length / 4);
    }
    if (d->base.dim)
        return 0;
    return error_set(err, QUIRE_ENOTFOUND, "%s has no hash of this prefix with a field %s", d->link.name, d->field);
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

static int take_bytes(const struct documents *d, const char *key, const redisReply *value, float *out,
                      struct quire_error *err)
{
    if (value->len != (size_t)d->base.dim * element_bytes[d->element])
        return error_set(err, QUIRE_EDIM, "%s of %s has %zu bytes; a vector of %u dimensions has %u", d->field, key,
                         value->len, d->base.dim, d->base.dim * element_bytes[d->element]);
    if (d->element == ELEMENT_F64) {
        for (uint32_t i = 0; i < d->base.dim; i++) {
            double x;
            memcpy(&x, value->str + 8 * i, sizeof x);
            out[i] = (float)x;
        }
    } else if (d->element == ELEMENT_F32) {
        memcpy(out, value->str, value->len);
    } else {
        uint16_t *halves = malloc(value->len); /* aligned */
        if (!halves)
            return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
        memcpy(halves, value->str, value->len);
        space_floats(d->element == ELEMENT_F16 ? QUIRE_TYPE_F16 : QUIRE_TYPE_BF16, halves, d->base.dim, out);
        free(halves);
    }
    return 0;
}

static json_t *attribute_of(const struct documents *d, const char *name, const redisReply *value)
{
    char *end;
    if (json_object_get(d->numeric, name) && value->len > 0) {
        long long whole = strtoll(value->str, &end, 10);
        if (*end == 0)
            return json_integer(whole);
        double x = strtod(value->str, &end);
        if (*end == 0 && isfinite(x))
            return json_real(x);
    }
    return json_stringn(value->str, value->len);
}

static int take_hash(struct documents *d, const char *key, const redisReply *hash, float *vector, bool *taken,
                     json_t *attributes, struct quire_error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i + 1 < hash->elements; i += 2) {
        const redisReply *name = hash->element[i], *value = hash->element[i + 1];
        if (strcmp(name->str, d->field) == 0) {
            rc = take_bytes(d, key, value, vector, err);
            *taken = true;
        } else if (json_object_set_new(attributes, name->str, attribute_of(d, name->str, value)) != 0) {
            rc = error_set(err, QUIRE_EINVALID,
                           "the field %s of %s is not UTF-8, which attributes cannot hold: remove it, or import "
                           "without it",
                           name->str, key);
        }
    }
    return rc;
}

static int take_document(struct documents *d, const char *key, const redisReply *text, float *vector, bool *taken,
                         json_t *attributes, struct quire_error *err)
{
    json_error_t error;
    json_t *document = json_loadb(text->str, text->len, 0, &error), *number;
    json_t *array = json_object_get(document, d->field);
    size_t i;
    int rc = 0;
    if (!json_is_object(document))
        rc = error_set(err, QUIRE_EFORMAT, "the document %s is not an object", key);
    *taken = rc == 0 && json_is_array(array);
    if (*taken && json_array_size(array) != d->base.dim)
        rc = error_set(err, QUIRE_EDIM, "%s of %s has %zu numbers; expected %u", d->field, key, json_array_size(array),
                       d->base.dim);
    if (rc == 0 && *taken)
        json_array_foreach(array, i, number) vector[i] = (float)json_number_value(number);
    if (rc == 0 && *taken) {
        json_object_del(document, d->field);
        json_object_update(attributes, document);
    }
    json_decref(document);
    return rc;
}

static int take(struct documents *d, const char *key, size_t key_bytes, const redisReply *reply, float *vector,
                struct record *record, bool *taken, struct quire_error *err)
{
    json_t *attributes = json_object();
    int rc = redis_answered(&d->link, reply, d->json ? "JSON.GET" : "HGETALL", err);
    *taken = false;
    if (rc == 0 && !attributes)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for attributes");
    if (rc == 0 && d->json && reply->str)
        rc = take_document(d, key, reply, vector, taken, attributes, err);
    else if (rc == 0 && !d->json)
        rc = take_hash(d, key, reply, vector, taken, attributes, err);
    if (rc == 0 && *taken)
        rc = records_check_finite(key, vector, 0, 1, d->base.dim, err);
    if (rc == 0 && *taken) {
        char *text =
            json_object_size(attributes) ? json_dumps(attributes, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
        if (!records_keep(&d->texts, key, key_bytes, &record->key, &record->key_bytes) ||
            !records_keep(&d->texts, text, text ? strlen(text) : 0, &record->attributes, &record->attribute_bytes))
            rc = error_set(err, QUIRE_ENOMEM, "no memory for documents");
        free(text);
    }
    json_decref(attributes);
    return rc;
}

static int64_t documents_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                              struct quire_error *err)
{
    struct documents *d = (struct documents *)source;
    uint64_t got = 0;
    arena_reset(&d->texts);
    while (got == 0 && d->at < d->keys.n) {
        struct record keys[PIPELINE];
        uint64_t want = n < PIPELINE ? n : PIPELINE, asked = 0;
        for (; asked < want && d->at < d->keys.n; d->at++)
            keys[asked++] = (struct record){.key = d->keys.name[d->at], .key_bytes = (uint32_t)d->keys.bytes[d->at]};
        int64_t left = records_leave_out(source, keys, asked, err);
        int rc = left < 0 ? (int)left : 0;
        for (int64_t i = 0; rc == 0 && i < left; i++) {
            const char *words[] = {d->json ? "JSON.GET" : "HGETALL", keys[i].key};
            const size_t bytes[] = {d->json ? 8 : 7, keys[i].key_bytes};
            rc = redis_append(&d->link, 2, words, bytes, err);
        }
        for (int64_t i = 0; rc == 0 && i < left; i++) {
            redisReply *reply = NULL;
            bool taken = false;
            rc = redis_next(&d->link, &reply, err);
            if (rc == 0)
                rc = take(d, keys[i].key, keys[i].key_bytes, reply, (float *)vectors + got * source->dim, &records[got],
                          &taken, err);
            got += taken;
            if (reply)
                freeReplyObject(reply);
        }
        if (rc < 0)
            return rc;
    }
    return (int64_t)got;
}

static void documents_close(struct records_source *source)
{
    struct documents *d = (struct documents *)source;
    redis_link_close(&d->link);
    redis_names_free(&d->keys);
    arena_fini(&d->texts);
    json_decref(d->numeric);
    free(d->field);
    free(d->path);
    free(source->name);
    free(d);
}

static const struct records_source_ops documents_ops = {documents_read, documents_close};

int redis_documents_open(const char *url, const struct redis_tls_files *files, const char *index, const char *prefix,
                         const char *field, struct records_source **out, struct quire_error *err)
{
    struct documents *d = records_new_source(sizeof *d, &documents_ops, index ? index : prefix);
    if (!d)
        return error_set(err, QUIRE_ENOMEM, "no memory to read documents");
    d->base.type = QUIRE_TYPE_F32;
    d->base.may_have = RECORDS_KEYS | RECORDS_ATTRIBUTES;
    d->numeric = json_object();
    d->field = field ? strdup(field) : NULL;
    int rc = redis_link_open(url, files, &d->link, err);
    if (rc == 0 && index) {
        rc = read_index(d, index, err);
    } else if (rc == 0) {
        rc = collect(d, prefix, err);
        if (rc == 0)
            rc = guess_dim(d, err);
    }
    if (rc < 0)
        documents_close(&d->base);
    else
        *out = &d->base;
    return rc;
}
