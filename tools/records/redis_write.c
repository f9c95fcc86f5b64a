/*
 * redis_write.c - rows into a vector set of a running server.
 *
 * VADD replaces what is there, so a copy that was interrupted is run again and ends with the same set; what it had
 * added stays meanwhile, and a source can leave it out the second time (VISMEMBER). VADD of a set that is there
 * already keeps its properties. A set of another metric than cosine is made by VCREATE first, which Redis does not
 * know: it answers with an error, and nothing is written.
 */
#include "io/error.h"
#include "tools/records/records_priv.h"
#include "tools/records/redis_link.h"
#include <stdlib.h>
#include <string.h>

#define PIPELINE  256u
#define WORDS_MAX (8u + 2u * 1024u) /* a row has at most 1,024 tenants */

struct set_sink {
    struct records_sink base;
    struct redis_link link;
    char *set;
    const char *quantization;
};

static int put(struct set_sink *s, const float *vector, const struct record *r, uint64_t row, struct quire_error *err)
{
    const char *words[WORDS_MAX] = {"VADD", s->set, "FP32", (const char *)vector, r->key, s->quantization};
    size_t bytes[WORDS_MAX] = {
        4, strlen(s->set), 4, s->base.dim * sizeof *vector, r->key_bytes, strlen(s->quantization)};
    char number[24];
    int n = 6;
    if (!r->key) {
        words[4] = number;
        bytes[4] = (size_t)snprintf(number, sizeof number, "%llu", (unsigned long long)row);
    }
    if (r->attributes) {
        words[n] = "SETATTR";
        bytes[n++] = 7;
        words[n] = r->attributes;
        bytes[n++] = r->attribute_bytes;
    }
    for (size_t at = 0; r->tenants && at < r->tenant_bytes && n + 2 <= (int)WORDS_MAX;) {
        const char *end = memchr(r->tenants + at, ' ', r->tenant_bytes - at);
        size_t length = end ? (size_t)(end - r->tenants) - at : r->tenant_bytes - at;
        words[n] = "TENANT";
        bytes[n++] = 6;
        words[n] = r->tenants + at;
        bytes[n++] = length;
        at += length + 1;
    }
    return redis_append(&s->link, n, words, bytes, err);
}

static int set_write(struct records_sink *sink, const void *vectors, const struct record *records, uint64_t n,
                     struct quire_error *err)
{
    struct set_sink *s = (struct set_sink *)sink;
    int rc = 0;
    for (uint64_t first = 0; rc == 0 && first < n; first += PIPELINE) {
        uint64_t count = n - first < PIPELINE ? n - first : PIPELINE;
        for (uint64_t i = first; rc == 0 && i < first + count; i++)
            rc = put(s, (const float *)vectors + i * sink->dim, &records[i], sink->rows + i, err);
        for (uint64_t i = first; rc == 0 && i < first + count; i++) {
            redisReply *reply = NULL;
            rc = redis_next(&s->link, &reply, err);
            if (rc == 0 && redis_answered(&s->link, reply, "VADD", err) < 0)
                rc = error_set(err, QUIRE_EINVALID, "%s refuses row %llu for %s: %s", s->link.name,
                               (unsigned long long)(sink->rows + i), s->set, reply->str);
            if (reply)
                freeReplyObject(reply);
        }
    }
    return rc;
}

/* Whether the set has an element of this name, for each: VISMEMBER, which Redis knows since 8.2. */
static int set_known(struct records_sink *sink, const struct record *records, uint64_t n, bool *out,
                     struct quire_error *err)
{
    struct set_sink *s = (struct set_sink *)sink;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        const char *words[] = {"VISMEMBER", s->set, records[i].key};
        const size_t bytes[] = {9, strlen(s->set), records[i].key_bytes};
        rc = redis_append(&s->link, 3, words, bytes, err);
    }
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        redisReply *reply = NULL;
        rc = redis_next(&s->link, &reply, err);
        if (rc == 0)
            rc = redis_answered(&s->link, reply, "VISMEMBER", err);
        if (rc == 0)
            out[i] = reply->integer != 0;
        if (reply)
            freeReplyObject(reply);
    }
    return rc;
}

static void set_abort(struct records_sink *sink)
{
    struct set_sink *s = (struct set_sink *)sink;
    redis_link_close(&s->link);
    free(s->set);
    free(sink->name);
    free(s);
}

static int set_finish(struct records_sink *sink, struct quire_error *err)
{
    (void)err;
    set_abort(sink);
    return 0;
}

static const struct records_sink_ops set_ops = {set_write, set_finish, set_abort, set_known};

/* Makes the set where it must be another than VADD makes: kept as VADD then asks for. */
static int prepare(struct set_sink *s, const struct records_into *into, struct quire_error *err)
{
    char dim[16];
    const char *exists[] = {"EXISTS", s->set};
    redisReply *reply = NULL;
    int rc = redis_ask(&s->link, &reply, err, 2, exists, NULL);
    bool there = rc == 0 && reply->integer != 0;
    bool other = into->metric == QUIRE_METRIC_L2 || into->metric == QUIRE_METRIC_IP;
    if (reply)
        freeReplyObject(reply);
    reply = NULL;
    s->base.makes_set = rc == 0 && !there;
    if (rc < 0 || there || !other)
        return rc;
    snprintf(dim, sizeof dim, "%u", into->dim);
    const char *create[] = {"VCREATE", s->set,
                            "DIM",     dim,
                            "METRIC",  quire_metric_name((enum quire_metric)into->metric),
                            "SLOT",    strcmp(s->quantization, "NOQUANT") == 0 ? "f32" : "q8",
                            "BITS",    "1"};
    rc = redis_ask(&s->link, &reply, err, strcmp(s->quantization, "BIN") == 0 ? 10 : 8, create, NULL);
    if (reply)
        freeReplyObject(reply);
    return rc;
}

int redis_set_create(const char *url, const struct redis_tls_files *files, const char *set, const char *quantization,
                     const struct records_into *into, struct records_sink **out, struct quire_error *err)
{
    struct set_sink *s = records_new_sink(sizeof *s, &set_ops, into);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", set);
    s->set = strdup(set);
    s->quantization = quantization;
    int rc = s->set ? redis_link_open(url, files, &s->link, err)
                    : error_set(err, QUIRE_ENOMEM, "no memory to write %s", set);
    if (rc == 0)
        rc = prepare(s, into, err);
    if (rc < 0)
        set_abort(&s->base);
    else
        *out = &s->base;
    return rc;
}
