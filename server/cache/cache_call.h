/*
 * cache_call.h - what the commands of semantic caches share: looking a cache up, ids, documents read for several
 * entries at a time; and requests that wait for an answer, as the lane knows them.
 */
#ifndef QUIRE_SERVER_CACHE_CALL_H
#define QUIRE_SERVER_CACHE_CALL_H

#include "server/cache/cache_args.h"
#include "server/call/worker_call.h"

/* The cache of that name, with a reference; NULL after an error reply. */
struct cache *cache_call_find(struct caller *c, struct resp_arg name);
/* 16 hexadecimal digits. */
int cache_arg_id(struct resp_arg arg, uint64_t *out, struct quire_error *err);
/* 0 where the request ends at args[at], or an option `word` with one value does; otherwise an error with the syntax. */
int cache_arg_option(const struct resp_arg *args, uint32_t n, uint32_t at, const char *word, const char *syntax,
                     struct quire_error *err);

/* An error reply. */
void cache_reply_error(struct caller *c, const struct quire_error *err);
/* OK, which waits for the lsn, or the error. */
void cache_reply_ok(struct caller *c, int rc, uint64_t lsn, const struct quire_error *err);
/* 1, which waits for the lsn, 0 where there was no such thing (QUIRE_ENOTFOUND), or the error. */
void cache_reply_whether(struct caller *c, int rc, uint64_t lsn, const struct quire_error *err);
/* A number, which waits for the lsn, or the error. */
void cache_reply_number(struct caller *c, int rc, uint64_t number, uint64_t lsn, const struct quire_error *err);

/* Names and values of maps. */
void cache_reply_id(struct resp_buffer *out, uint64_t id);
void cache_field_integer(struct resp_buffer *out, const char *name, long long value);
void cache_field_double(struct resp_buffer *out, const char *name, double value);
void cache_field_text(struct resp_buffer *out, const char *name, const char *value);
/* NULL for what is empty. */
void cache_field_bytes(struct resp_buffer *out, const char *name, struct quire_bytes value);
void cache_field_id(struct resp_buffer *out, const char *name, uint64_t id);
/* What is left of a TTL that ends at expire_ms (UINT64_MAX: never), as replies say it: -1 without an end. */
long long cache_ttl(uint64_t expire_ms, uint64_t now_ms);

/* ---- documents of several entries -------------------------------------------------------------------------------- */

/* What is wanted of one. */
struct cache_text {
    uint64_t id;
    struct document_at at;
    bool found;         /* afterwards: it could be read, and is the entry's */
    uint8_t *bytes;     /* text, then value; owned */
    size_t text, value; /* bytes of them */
};

enum { CACHE_READS = 8 }; /* documents of one request that are read at a time */

struct cache_reading;
struct cache_read_slot {
    struct cache_reading *reading;
    struct document_read read;
    uint32_t item;
    bool busy;
};

struct cache_reading {
    /* the caller's */
    struct lane *lane;
    struct pending *pending; /* whose memory the documents are */
    struct document_log *log;
    struct cache_text *items;
    uint32_t n;
    bool with_values; /* texts only, without */
    void (*done)(struct cache_reading *reading);
    /* its own */
    uint32_t next, running;
    struct cache_read_slot slots[CACHE_READS];
};

/* Reads them on the lane's engine; done runs on the lane, perhaps before this returns. */
void cache_reading_start(struct cache_reading *reading);
void cache_reading_fini(struct cache_reading *reading);

/* ---- requests that wait ------------------------------------------------------------------------------------------ */

/* Ends the waits of callers that are gone; of all where the lane stops. */
extern const struct lane_hook cache_waits_hook;

#endif
