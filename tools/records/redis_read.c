/*
 * redis_read.c - the elements of a vector set, out of a running server.
 *
 * Names come in pages by VRANGE, each after the last name of the page before, so that neither side holds more than a
 * page; a server that does not know VRANGE (Redis 8.0 to 8.2) is asked for all names at once by VRANDMEMBER, which
 * answers each once if it is asked for as many as there are. Vectors (VEMB) and attributes (VGETATTR) follow in
 * pipelines. An element that is removed meanwhile is left out; one that is added may be missed. Redis gives a quantised
 * vector back as it keeps it: what quantisation took is gone before.
 *
 * Names that the sink has already, when an import goes on, are taken out of a page before any vector is asked for.
 *
 * Which tenants an element is granted to only administrators may ask (VGETGRANTS), and an export needs no more than the
 * right to read. So each tenant of VTENANTS is searched for all its elements, which the server finds exactly, up to as
 * many as a search may answer.
 */
#include "io/array.h"
#include "io/error.h"
#include "tools/records/records_priv.h"
#include "tools/records/redis_link.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "io/hash.h"

#define PAGE_NAMES 100000u
#define PIPELINE   256u

struct grant_entry {
    char *key; /* NULL: an empty place */
    size_t key_bytes;
    char *tenants; /* names with spaces between */
};
static inline bool grant_is_set(const struct grant_entry *g)
{
    return g->key != NULL;
}
static inline uint64_t grant_hash(const struct grant_entry *g)
{
    return XXH3_64bits(g->key, g->key_bytes);
}
static inline bool grant_is_same(const struct grant_entry *a, const struct grant_entry *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0;
}
HASH_DEFINE(grants_of, struct grant_entry, grant_is_set, grant_hash, grant_is_same)

struct set_source {
    struct records_source base;
    struct redis_link link;
    char *set;
    char quantization[8];
    redisReply *page; /* names */
    size_t at;        /* the next of them */
    bool at_end, no_range;
    char *after; /* "(last name", owned */
    size_t after_bytes;
    struct grants_of grants;
    struct arena texts;
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool is_unknown_command(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "unknown command");
}

static int ask_page(struct set_source *s, struct quire_error *err)
{
    char count[24];
    snprintf(count, sizeof count, "%llu", s->no_range ? (unsigned long long)s->base.rows : PAGE_NAMES);
    const char *range[] = {"VRANGE", s->set, s->after, "+", count}, *random[] = {"VRANDMEMBER", s->set, count};
    const size_t range_bytes[] = {6, strlen(s->set), s->after_bytes, 1, strlen(count)};
    redisReply *reply = NULL;
    int rc =
        s->no_range ? redis_append(&s->link, 3, random, NULL, err) : redis_append(&s->link, 5, range, range_bytes, err);
    if (rc == 0)
        rc = redis_next(&s->link, &reply, err);
    if (rc == 0 && is_unknown_command(reply) && !s->no_range) {
        freeReplyObject(reply);
        s->no_range = true;
        return ask_page(s, err);
    }
    if (rc == 0)
        rc = redis_answered(&s->link, reply, s->no_range ? "VRANDMEMBER" : "VRANGE", err);
    if (rc == 0 && reply->type != REDIS_REPLY_ARRAY)
        rc = error_set(err, QUIRE_EFORMAT, "%s answers no list of names of %s", s->link.name, s->set);
    if (rc < 0 || !reply) {
        if (reply)
            freeReplyObject(reply);
        return rc;
    }
    s->page = reply;
    s->at = 0;
    s->at_end = s->no_range || reply->elements < PAGE_NAMES;
    return 0;
}

/* *out stays as it is where there are no more. */
static int next_name(struct set_source *s, const redisReply **out, struct quire_error *err)
{
    if (s->page && s->at == s->page->elements) {
        if (s->at_end)
            return 0;
        const redisReply *last = s->page->element[s->page->elements - 1];
        char *after = malloc(last->len + 2);
        if (!after)
            return error_set(err, QUIRE_ENOMEM, "no memory for a name");
        after[0] = '(';
        memcpy(after + 1, last->str, last->len);
        free(s->after);
        s->after = after;
        s->after_bytes = last->len + 1;
        freeReplyObject(s->page);
        s->page = NULL;
    }
    int rc = s->page ? 0 : ask_page(s, err);
    if (rc < 0 || !s->page || s->at == s->page->elements)
        return rc;
    *out = s->page->element[s->at++];
    return (*out)->str ? 0 : error_set(err, QUIRE_EFORMAT, "%s answers a name that is no text", s->link.name);
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

static int grant(struct set_source *s, const char *tenant, const redisReply *key, struct quire_error *err)
{
    struct grant_entry like = {.key = key->str, .key_bytes = key->len}, *found = grants_of_find(&s->grants, &like);
    if (found) {
        char *longer;
        if (asprintf(&longer, "%s %s", found->tenants, tenant) < 0)
            return error_set(err, QUIRE_ENOMEM, "no memory for tenants");
        free(found->tenants);
        found->tenants = longer;
        return 0;
    }
    like.key = malloc(key->len + 1);
    like.tenants = strdup(tenant);
    if (like.key)
        memcpy(like.key, key->str, key->len);
    if (like.key && like.tenants && grants_of_add(&s->grants, like))
        return 0;
    free(like.key);
    free(like.tenants);
    return error_set(err, QUIRE_ENOMEM, "no memory for tenants");
}

static int read_tenant(struct set_source *s, const char *tenant, uint64_t count, struct quire_error *err)
{
    char number[24];
    float *zeros = calloc(s->base.dim, sizeof *zeros);
    redisReply *reply = NULL;
    int rc = 0;
    snprintf(number, sizeof number, "%llu", (unsigned long long)count);
    if (count > QUIRE_K_MAX)
        rc =
            error_set(err, QUIRE_ELIMIT,
                      "tenant %s of %s has %llu elements, and a search answers %u at most: --no-tenants leaves tenants "
                      "out",
                      tenant, s->set, (unsigned long long)count, QUIRE_K_MAX);
    else if (!zeros)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    if (rc == 0) {
        zeros[0] = 1;
        const char *words[] = {"VSIM", s->set, "FP32", (const char *)zeros, "COUNT", number, "TENANT", tenant, "TRUTH"};
        const size_t bytes[] = {4, strlen(s->set), 4, s->base.dim * sizeof *zeros, 5, strlen(number),
                                6, strlen(tenant), 5};
        rc = redis_ask(&s->link, &reply, err, 9, words, bytes);
    }
    for (size_t i = 0; rc == 0 && i < reply->elements; i++)
        rc = grant(s, tenant, reply->element[i], err);
    if (reply)
        freeReplyObject(reply);
    free(zeros);
    return rc;
}

static int read_tenants(struct set_source *s, struct quire_error *err)
{
    const char *words[] = {"VTENANTS", s->set};
    redisReply *reply = NULL;
    int rc = redis_append(&s->link, 2, words, NULL, err);
    if (rc == 0)
        rc = redis_next(&s->link, &reply, err);
    if (rc == 0 && !is_unknown_command(reply)) { /* Redis has no tenants */
        rc = redis_answered(&s->link, reply, "VTENANTS", err);
        for (size_t i = 0; rc == 0 && i + 1 < reply->elements; i += 2)
            rc = read_tenant(s, reply->element[i]->str, (uint64_t)reply->element[i + 1]->integer, err);
        if (rc == 0 && reply->elements)
            s->base.may_have |= RECORDS_TENANTS;
    }
    if (reply)
        freeReplyObject(reply);
    return rc;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int take_vector(struct set_source *s, const char *name, const redisReply *reply, float *out,
                       struct quire_error *err)
{
    int rc = redis_answered(&s->link, reply, "VEMB", err);
    if (rc < 0)
        return rc;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != s->base.dim)
        return error_set(err, QUIRE_EDIM, "%s answers a vector of %zu numbers for %s; expected %u", s->link.name,
                         reply->elements, name, s->base.dim);
    for (uint32_t d = 0; d < s->base.dim; d++) {
        double x;
        if (!redis_number(reply->element[d], &x))
            return error_set(err, QUIRE_EFORMAT, "%s answers a vector with what is no number for %s", s->link.name,
                             name);
        out[d] = (float)x;
    }
    return records_check_finite(s->base.name, out, 0, 1, s->base.dim, err);
}

/* One element; *taken false: it is gone. */
static int take_element(struct set_source *s, const struct record *name, float *vector, struct record *record,
                        bool *taken, struct quire_error *err)
{
    redisReply *numbers = NULL, *text = NULL;
    int rc = redis_next(&s->link, &numbers, err);
    if (rc == 0)
        rc = redis_next(&s->link, &text, err);
    *taken = rc == 0 && numbers->type != REDIS_REPLY_NIL;
    if (*taken) {
        rc = take_vector(s, name->key, numbers, vector, err);
        if (rc == 0)
            rc = redis_answered(&s->link, text, "VGETATTR", err);
        if (rc == 0 && text->str && text->len)
            rc = records_check_attributes(name->key, 0, text->str, text->len, err);
        struct grant_entry like = {.key = (char *)name->key, .key_bytes = name->key_bytes},
                           *granted = grants_of_find(&s->grants, &like);
        if (rc == 0 && (!records_keep(&s->texts, name->key, name->key_bytes, &record->key, &record->key_bytes) ||
                        !records_keep(&s->texts, text->len ? text->str : NULL, text->len, &record->attributes,
                                      &record->attribute_bytes) ||
                        !records_keep(&s->texts, granted ? granted->tenants : NULL,
                                      granted ? strlen(granted->tenants) : 0, &record->tenants, &record->tenant_bytes)))
            rc = error_set(err, QUIRE_ENOMEM, "no memory for elements of %s", s->set);
    }
    if (numbers)
        freeReplyObject(numbers);
    if (text)
        freeReplyObject(text);
    return rc;
}

/* Up to n names; 0: there are no more. A page ends them: they must stay as long as they are used. */
static int64_t take_names(struct set_source *s, struct record *names, uint64_t n, struct quire_error *err)
{
    uint64_t got = 0;
    while (got < n && !(got && s->at == s->page->elements)) {
        const redisReply *name = NULL;
        int rc = next_name(s, &name, err);
        if (rc < 0)
            return rc;
        if (!name)
            break;
        names[got++] = (struct record){.key = name->str, .key_bytes = (uint32_t)name->len};
    }
    return (int64_t)got;
}

static int ask_element(struct set_source *s, const struct record *name, struct quire_error *err)
{
    const char *vemb[] = {"VEMB", s->set, name->key}, *attr[] = {"VGETATTR", s->set, name->key};
    const size_t vemb_bytes[] = {4, strlen(s->set), name->key_bytes},
                 attr_bytes[] = {8, strlen(s->set), name->key_bytes};
    int rc = redis_append(&s->link, 3, vemb, vemb_bytes, err);
    return rc < 0 ? rc : redis_append(&s->link, 3, attr, attr_bytes, err);
}

static int64_t set_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                        struct quire_error *err)
{
    struct set_source *s = (struct set_source *)source;
    struct record names[PIPELINE];
    uint64_t got = 0;
    arena_reset(&s->texts);
    while (got == 0) { /* unless all that were asked for are gone, or left out */
        int64_t named = take_names(s, names, n < PIPELINE ? n : PIPELINE, err);
        if (named <= 0)
            return named;
        named = records_leave_out(source, names, (uint64_t)named, err);
        int rc = named < 0 ? (int)named : 0;
        for (int64_t i = 0; rc == 0 && i < named; i++)
            rc = ask_element(s, &names[i], err);
        for (int64_t i = 0; rc == 0 && i < named; i++) {
            bool taken;
            rc = take_element(s, &names[i], (float *)vectors + got * source->dim, &records[got], &taken, err);
            got += taken;
        }
        if (rc < 0)
            return rc;
    }
    return (int64_t)got;
}

static void set_close(struct records_source *source)
{
    struct set_source *s = (struct set_source *)source;
    for (uint64_t i = 0; i < s->grants.capacity; i++)
        if (grant_is_set(&s->grants.places[i])) {
            free(s->grants.places[i].key);
            free(s->grants.places[i].tenants);
        }
    free(s->grants.places);
    if (s->page)
        freeReplyObject(s->page);
    redis_link_close(&s->link);
    arena_fini(&s->texts);
    free(s->after);
    free(s->set);
    free(source->name);
    free(s);
}

static const struct records_source_ops set_ops = {set_read, set_close};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void take_property(struct set_source *s, const char *name, const redisReply *value)
{
    static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};
    double number;
    if (strcmp(name, "vector-dim") == 0 && redis_number(value, &number) && number >= 1 && number <= QUIRE_DIM_MAX)
        s->base.dim = (uint32_t)number;
    if (strcmp(name, "size") == 0 && redis_number(value, &number) && number >= 0)
        s->base.rows = (uint64_t)number;
    if (strcmp(name, "quant-type") == 0 && value->str)
        snprintf(s->quantization, sizeof s->quantization, "%s",
                 strcmp(value->str, "int8") == 0  ? "Q8"
                 : strcmp(value->str, "bin") == 0 ? "BIN"
                                                  : "NOQUANT");
    for (size_t i = 0; strcmp(name, "metric") == 0 && value->str && i < sizeof metrics / sizeof *metrics; i++)
        if (strcmp(value->str, quire_metric_name(metrics[i])) == 0)
            s->base.metric = (int)metrics[i];
}

static int read_info(struct set_source *s, struct quire_error *err)
{
    const char *words[] = {"VINFO", s->set};
    redisReply *reply = NULL;
    int rc = redis_ask(&s->link, &reply, err, 2, words, NULL);
    if (rc < 0)
        return rc;
    if (reply->type == REDIS_REPLY_NIL)
        rc = error_set(err, QUIRE_ENOTFOUND, "%s has no vector set %s", s->link.name, s->set);
    s->base.metric = QUIRE_METRIC_COSINE; /* Redis knows no other */
    for (size_t i = 0; rc == 0 && i + 1 < reply->elements; i += 2)
        if (reply->element[i]->str)
            take_property(s, reply->element[i]->str, reply->element[i + 1]);
    if (rc == 0 && s->base.dim == 0)
        rc = error_set(err, QUIRE_EFORMAT, "%s does not say how many dimensions %s has", s->link.name, s->set);
    freeReplyObject(reply);
    return rc;
}

const char *redis_set_quantization(const struct records_source *source)
{
    return ((const struct set_source *)source)->quantization;
}

int redis_set_open(const char *url, const struct redis_tls_files *files, const char *set, bool with_tenants,
                   struct records_source **out, struct quire_error *err)
{
    struct set_source *s = records_new_source(sizeof *s, &set_ops, set);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to read %s", set);
    s->base.type = QUIRE_TYPE_F32;
    s->base.may_have = RECORDS_KEYS | RECORDS_ATTRIBUTES;
    s->set = strdup(set);
    s->after = strdup("-");
    s->after_bytes = 1;
    int rc = s->set && s->after ? redis_link_open(url, files, &s->link, err)
                                : error_set(err, QUIRE_ENOMEM, "no memory to read %s", set);
    if (rc == 0)
        rc = read_info(s, err);
    if (rc == 0 && with_tenants)
        rc = read_tenants(s, err);
    if (rc == 0 && s->base.rows <= INT64_MAX && s->base.rows != RECORDS_ROWS_UNKNOWN && s->base.rows == 0)
        rc = error_set(err, QUIRE_ENOTFOUND, "the set %s of %s is empty", set, s->link.name);
    if (rc < 0)
        set_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
