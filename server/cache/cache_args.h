/*
 * cache_args.h - the options that SC.GET, SC.PUT and SC.NEG share, as they stand in a request.
 *
 * What is taken points into the request, which is valid during the call of its handler only.
 */
#ifndef QUIRE_SERVER_CACHE_ARGS_H
#define QUIRE_SERVER_CACHE_ARGS_H

#include "cache/core/cache.h"
#include "server/protocol/resp.h"

enum cache_command { CACHE_GET = 1, CACHE_PUT = 2, CACHE_NEG = 4 };

/* Zeroed before cache_args_take; not given is 0. */
struct cache_args {
    struct quire_bytes category, hash, compat, vector, text, encoder, lease, model;
    struct quire_pair scope[CACHE_SCOPE_KEYS_MAX];
    struct quire_bytes tags[CACHE_TAGS_MAX]; /* TAG, NEED */
    struct quire_bytes value;
    struct quire_bytes *chunks; /* of CHUNKS; owned */
    uint32_t n_scope, n_tags, n_chunks;
    uint64_t max_age_ms, wait_ms, ttl_ms, tokens_in, tokens_out, llm_ms;
    double similarity, cost;
    bool no_lease, stale_ok, explain, probe, on_error, pin, if_new, has_value;
    void *vector_copy; /* where it did not lie as numbers must; owned */
};

/* The options args[0..n), which follow the cache's name. Errors name word, value, limit and remedy: QUIRE_EINVALID,
 * ERANGE, ELIMIT, EDIM (a vector that is not of the cache's dimensions), ENOMEM. Ended by cache_args_fini, also on
 * failure. */
int cache_args_take(struct cache_args *out, enum cache_command command, const struct cache_config *config,
                    const struct resp_arg *args, uint32_t n, struct quire_error *err);
void cache_args_fini(struct cache_args *args);

/* Point into args, which must not move as long as they are used. */
void cache_args_query(const struct cache_args *args, struct quire_cache_query *out);
void cache_args_entry(const struct cache_args *args, struct quire_cache_entry *out);

/* A vector of a request against a cache's dimensions: 0, or QUIRE_EDIM with both named. */
int cache_check_vector(const struct cache_config *config, size_t bytes, struct quire_error *err);
/* A whole number from least to most, a number from 0 to most; the error names the word and what it was given. */
int cache_arg_integer(const char *word, struct resp_arg arg, uint64_t least, uint64_t most, uint64_t *out,
                      struct quire_error *err);
int cache_arg_number(const char *word, struct resp_arg arg, double most, double *out, struct quire_error *err);
static inline struct quire_bytes cache_arg_bytes(struct resp_arg arg)
{
    return (struct quire_bytes){arg.data, arg.bytes};
}

/* Milliseconds that a request may wait, and of the TTL of an answer. */
#define CACHE_WAIT_MS_MAX 600000u
#define CACHE_TTL_MS_MAX  3153600000000ull /* a hundred years */

#endif
