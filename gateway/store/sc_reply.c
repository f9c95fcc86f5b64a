/*
 * sc_reply.c - reads the flat arrays that SC.* commands answer.
 *
 * Names are looked for, not counted on to be at a place, so that a newer server may say more. What has another type
 * than expected makes the whole reply unreadable: then the request goes on without the cache.
 */
#include "gateway/store/sc_reply.h"
#include <hiredis/hiredis.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [SC_HIT] = "hit",           [SC_EXACT] = "exact",   [SC_STALE] = "stale", [SC_MISS] = "miss",
    [SC_NEGATIVE] = "negative", [SC_BYPASS] = "bypass", [SC_AUDIT] = "audit", [SC_VECTOR] = "vector"};

const char *sc_reply_status_name(enum sc_status status)
{
    return names[status];
}

static bool is_text(const struct redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS;
}

const struct redisReply *sc_reply_field(const struct redisReply *map, const char *name)
{
    size_t bytes = strlen(name);
    if (!map || map->type != REDIS_REPLY_ARRAY)
        return NULL;
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        const struct redisReply *key = map->element[i];
        if (is_text(key) && (size_t)key->len == bytes && memcmp(key->str, name, bytes) == 0)
            return map->element[i + 1];
    }
    return NULL;
}

static bool bytes_of(const struct redisReply *map, const char *name, struct sc_bytes *out)
{
    const struct redisReply *value = sc_reply_field(map, name);
    *out = (struct sc_bytes){NULL, 0};
    if (!value || value->type == REDIS_REPLY_NIL)
        return true;
    if (!is_text(value))
        return false;
    *out = (struct sc_bytes){value->str, (size_t)value->len};
    return true;
}

static bool number_of(const struct redisReply *map, const char *name, int64_t absent, int64_t *out)
{
    const struct redisReply *value = sc_reply_field(map, name);
    *out = absent;
    if (!value || value->type == REDIS_REPLY_NIL)
        return true;
    if (value->type != REDIS_REPLY_INTEGER)
        return false;
    *out = value->integer;
    return true;
}

static bool real_of(const struct redisReply *map, const char *name, double *out)
{
    const struct redisReply *value = sc_reply_field(map, name);
    char *end;
    if (!value || !is_text(value))
        return false;
    *out = strtod(value->str, &end);
    return *end == 0 && end != value->str && isfinite(*out);
}

static bool status_of(const struct redisReply *map, enum sc_status *out)
{
    struct sc_bytes text;
    if (!bytes_of(map, "status", &text) || !text.data)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == text.bytes && memcmp(names[i], text.data, text.bytes) == 0) {
            *out = (enum sc_status)i;
            return true;
        }
    return false;
}

static bool has_answer(const struct sc_get *get)
{
    return get->status != SC_HIT && get->status != SC_EXACT && get->status != SC_STALE ? true
                                                                                       : get->value.data || get->chunks;
}

bool sc_reply_get(const struct redisReply *reply, struct sc_get *out)
{
    struct sc_get get = {0};
    if (!status_of(reply, &get.status))
        return false;
    if (!real_of(reply, "similarity", &get.similarity))
        get.similarity = -1;
    if (!real_of(reply, "threshold", &get.threshold))
        get.threshold = -1;
    if (!number_of(reply, "age_ms", 0, &get.age_ms) || !number_of(reply, "ttl_ms", -1, &get.ttl_ms) ||
        !number_of(reply, "tokens_in", 0, &get.tokens_in) || !number_of(reply, "tokens_out", 0, &get.tokens_out) ||
        !number_of(reply, "llm_ms", 0, &get.llm_ms) || !number_of(reply, "lease_ms", 0, &get.lease_ms) ||
        !number_of(reply, "audit", -1, &get.audit))
        return false;
    if (!bytes_of(reply, "reason", &get.reason) || !bytes_of(reply, "id", &get.id) ||
        !bytes_of(reply, "guard", &get.guard) || !bytes_of(reply, "model", &get.model) ||
        !bytes_of(reply, "text", &get.text) || !bytes_of(reply, "lease", &get.lease) ||
        !bytes_of(reply, "value", &get.value))
        return false;
    get.chunks = sc_reply_field(reply, "chunks");
    if (get.chunks && get.chunks->type == REDIS_REPLY_NIL)
        get.chunks = NULL;
    if (get.chunks) {
        if (get.chunks->type != REDIS_REPLY_ARRAY)
            return false;
        for (size_t i = 0; i < get.chunks->elements; i++)
            if (!is_text(get.chunks->element[i]))
                return false;
    }
    get.candidates = sc_reply_field(reply, "candidates");
    if (!has_answer(&get))
        return false;
    *out = get;
    return true;
}

bool sc_reply_put(const struct redisReply *reply, struct sc_put *out)
{
    struct sc_put put = {0};
    if (!bytes_of(reply, "outcome", &put.outcome) || !put.outcome.data || !bytes_of(reply, "id", &put.id) ||
        !number_of(reply, "ttl_ms", 0, &put.ttl_ms))
        return false;
    *out = put;
    return true;
}
