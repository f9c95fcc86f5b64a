/*
 * policy_limit.c - a bucket of tokens and a count per tenant.
 *
 * A bucket fills with `rate` tokens a second up to max(1, rate), so that a tenant may use a second's worth at once. The
 * number of tenants is bounded: the longest unused one without requests under way makes room; a tenant that is
 * forgotten begins with a full bucket, which is what it would have after a second of rest anyway. Where all n_max have
 * requests under way, a further one is refused for a second rather than let through uncounted.
 */
#include "gateway/policy/policy_limit.h"
#include "io/hash.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct policy_limit {
    struct policy_limits *limits;
    struct policy_limit *next, *previous; /* by last use, the latest first */
    double tokens;
    uint64_t filled_ms;
    unsigned under_way;
    uint64_t hash;
    char tenant[]; /* NUL-terminated */
};

struct limit_place {
    struct policy_limit *limit;
    const char *tenant; /* of a search; else that of the limit */
    uint64_t hash;
};

static inline bool limit_is_set(const struct limit_place *place)
{
    return place->limit != NULL;
}

static inline uint64_t limit_hash(const struct limit_place *place)
{
    return place->hash;
}

static inline bool limit_is_same(const struct limit_place *a, const struct limit_place *b)
{
    return a->hash == b->hash && strcmp(a->tenant, b->tenant) == 0;
}
HASH_DEFINE(limit_table, struct limit_place, limit_is_set, limit_hash, limit_is_same)

struct policy_limits {
    struct limit_table table;
    struct policy_limit *first, *last;
    unsigned n_max;
};

/* FNV-1a; tenants' names are an operator's or hexadecimal digits of a HMAC, so nobody can choose them to collide. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3ull;
    return hash ^ (hash >> 29);
}

struct policy_limits *policy_limits_create(unsigned n_max)
{
    struct policy_limits *limits = calloc(1, sizeof *limits);
    if (limits)
        limits->n_max = n_max > 0 ? n_max : 1;
    return limits;
}

static void unlink_limit(struct policy_limit *limit)
{
    struct policy_limits *limits = limit->limits;
    *(limit->previous ? &limit->previous->next : &limits->first) = limit->next;
    *(limit->next ? &limit->next->previous : &limits->last) = limit->previous;
}

static void put_first(struct policy_limit *limit)
{
    struct policy_limits *limits = limit->limits;
    limit->previous = NULL;
    limit->next = limits->first;
    *(limits->first ? &limits->first->previous : &limits->last) = limit;
    limits->first = limit;
}

static void forget(struct policy_limit *limit)
{
    struct limit_place like = {.limit = limit, .tenant = limit->tenant, .hash = limit->hash};
    struct limit_place *place = limit_table_find(&limit->limits->table, &like);
    assert(limit->under_way == 0 && place);
    limit_table_remove(&limit->limits->table, place);
    unlink_limit(limit);
    free(limit);
}

void policy_limits_destroy(struct policy_limits *limits)
{
    if (!limits)
        return;
    for (struct policy_limit *limit = limits->first, *next; limit; limit = next) {
        next = limit->next;
        free(limit);
    }
    free(limits->table.places);
    free(limits);
}

static bool make_room(struct policy_limits *limits)
{
    if (limits->table.n < limits->n_max)
        return true;
    for (struct policy_limit *limit = limits->last; limit; limit = limit->previous)
        if (limit->under_way == 0) {
            forget(limit);
            return true;
        }
    return false;
}

/* NULL with *full: all known tenants are at work; without: no memory. */
static struct policy_limit *limit_of(struct policy_limits *limits, const char *tenant, double rate, uint64_t now_ms,
                                     bool *full)
{
    struct limit_place like = {.tenant = tenant, .hash = hash_of(tenant)};
    struct limit_place *place = limit_table_find(&limits->table, &like);
    struct policy_limit *limit;
    size_t bytes = strlen(tenant) + 1;
    *full = false;
    if (place) {
        unlink_limit(place->limit);
        put_first(place->limit);
        return place->limit;
    }
    if (!make_room(limits)) {
        *full = true;
        return NULL;
    }
    limit = calloc(1, sizeof *limit + bytes);
    if (!limit)
        return NULL;
    memcpy(limit->tenant, tenant, bytes);
    limit->limits = limits;
    limit->hash = like.hash;
    limit->tokens = fmax(1, rate);
    limit->filled_ms = now_ms;
    like.limit = limit;
    like.tenant = limit->tenant;
    if (!limit_table_add(&limits->table, like)) {
        free(limit);
        return NULL;
    }
    put_first(limit);
    return limit;
}

struct policy_limit *policy_limit_enter(struct policy_limits *limits, const char *tenant, double rate,
                                        unsigned concurrent, uint64_t now_ms, uint64_t *retry_ms)
{
    bool full;
    struct policy_limit *limit;
    *retry_ms = 0;
    if (rate <= 0 && concurrent == 0)
        return NULL;
    limit = limit_of(limits, tenant, rate, now_ms, &full);
    if (!limit) {
        *retry_ms = full ? 1000 : 0;
        return NULL;
    }
    if (concurrent > 0 && limit->under_way >= concurrent) {
        *retry_ms = 1000;
        return NULL;
    }
    if (rate > 0) {
        uint64_t passed_ms = now_ms > limit->filled_ms ? now_ms - limit->filled_ms : 0;
        limit->tokens = fmin(fmax(1, rate), limit->tokens + rate * (double)passed_ms / 1000);
        limit->filled_ms = now_ms;
        if (limit->tokens < 1) {
            double wait_ms = ceil((1 - limit->tokens) / rate * 1000);
            *retry_ms = wait_ms < 1 ? 1 : wait_ms > 86400000 ? 86400000 : (uint64_t)wait_ms;
            return NULL;
        }
        limit->tokens -= 1;
    }
    limit->under_way++;
    return limit;
}

void policy_limit_leave(struct policy_limit *limit)
{
    if (!limit)
        return;
    assert(limit->under_way > 0);
    limit->under_way--;
}
