/*
 * policy_control.h - what a client asks of the cache for one request: Cache-Control, X-Quire-*, LiteLLM's `cache`.
 *
 * A client can only be stricter than the category. All functions are pure.
 */
#ifndef QUIRE_GATEWAY_POLICY_CONTROL_H
#define QUIRE_GATEWAY_POLICY_CONTROL_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_TAGS_MAX       64u
#define POLICY_NAME_BYTES_MAX 128u /* category, namespace */
#define POLICY_KEY_BYTES_MAX  256u
#define POLICY_TAG_BYTES_MAX  256u

/* Words of X-Quire-Control that an operator allows: the setting `controls`. */
enum {
    POLICY_ALLOW_NO_CACHE = 1,
    POLICY_ALLOW_NO_STORE = 2,
    POLICY_ALLOW_MAX_AGE = 4,
    POLICY_ALLOW_TTL = 8,
    POLICY_ALLOW_EXACT = 16,
    POLICY_ALLOW_SIM = 32,
    POLICY_ALLOW_OFF = 64,
    POLICY_ALLOW_ONLY_IF_CACHED = 128,
    POLICY_ALLOW_CATEGORY = 256,
    POLICY_ALLOW_NAMESPACE = 512,
    POLICY_ALLOW_TAGS = 1024,
    POLICY_ALLOW_KEY = 2048,
    POLICY_ALLOW_EXPLAIN = 4096,
    POLICY_ALLOW_ALL = 8191,
};

struct policy_controls {
    bool no_cache;       /* do not read, but store */
    bool no_store;       /* neither read nor store */
    bool only_if_cached; /* 504 where nothing is there */
    bool off;            /* as if there were no cache */
    bool exact;          /* no nearness */
    bool explain;
    int64_t max_age_ms;                       /* -1: not given */
    int64_t ttl_ms;                           /* -1: not given */
    double sim;                               /* -1: not given */
    char category[POLICY_NAME_BYTES_MAX + 1]; /* "": not given */
    char space[POLICY_NAME_BYTES_MAX + 1];    /* X-Quire-Namespace */
    char key[POLICY_KEY_BYTES_MAX + 1];
    unsigned n_tags;
    char *tags[POLICY_TAGS_MAX]; /* owned */
};

void policy_control_init(struct policy_controls *controls);
void policy_control_fini(struct policy_controls *controls);

/* One header field of a request; those that are no control do nothing. `allow`: POLICY_ALLOW_...; what is not allowed
 * is an error. QUIRE_EINVALID names the field, its value and what may stand there; QUIRE_ELIMIT; QUIRE_ENOMEM. Words of
 * Cache-Control that are unknown or not allowed are no errors, as HTTP wants it: they do nothing. */
int policy_control_field(struct policy_controls *controls, unsigned allow, const char *name, size_t name_bytes,
                         const char *value, size_t value_bytes, struct quire_error *err);

/* Bit of a word of the setting `controls`; 0: there is none of that name. */
unsigned policy_control_bit(const char *word, size_t bytes);

#endif
