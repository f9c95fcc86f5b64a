/*
 * sc_reply.h - what replies of SC.* commands say, as structs: flat arrays of name and value (RESP2).
 *
 * Everything that a struct points to lies in the reply and lives as long as that.
 */
#ifndef QUIRE_GATEWAY_SC_REPLY_H
#define QUIRE_GATEWAY_SC_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redisReply;

enum sc_status {
    SC_HIT,
    SC_EXACT,
    SC_STALE,
    SC_MISS,
    SC_NEGATIVE,
    SC_BYPASS,
    SC_AUDIT,
    SC_VECTOR, /* of a probe: the group holds something that could be near, so send the vector; no lease was given */
};

struct sc_bytes {
    const char *data; /* NULL: null or absent */
    size_t bytes;
};

struct sc_get {
    enum sc_status status;
    double similarity; /* -1: there was no candidate */
    double threshold;  /* above 1: nothing is served by similarity at present */
    int64_t age_ms, ttl_ms, tokens_in, tokens_out, llm_ms, lease_ms;
    int64_t audit; /* -1: none */
    struct sc_bytes reason, id, guard, model, text, lease;
    struct sc_bytes value;               /* the answer, or NULL where it is in chunks */
    const struct redisReply *chunks;     /* array of strings, or NULL */
    const struct redisReply *candidates; /* with EXPLAIN */
};

/* Whether the reply is one of SC.GET; *out is untouched if not. */
bool sc_reply_get(const struct redisReply *reply, struct sc_get *out);

/* A name of the list above: "hit", "exact", ... */
const char *sc_reply_status_name(enum sc_status status);

struct sc_put {
    struct sc_bytes outcome, id; /* id: NULL where nothing was stored */
    int64_t ttl_ms;
};
bool sc_reply_put(const struct redisReply *reply, struct sc_put *out);

/* The value of a name in a flat array of names and values; NULL: not there. */
const struct redisReply *sc_reply_field(const struct redisReply *map, const char *name);

#endif
