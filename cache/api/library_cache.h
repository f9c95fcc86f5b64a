/*
 * library_cache.h - what the files behind quire.h's semantic cache share.
 *
 * Every call on a handle stands between library_cache_begin and library_cache_end, so that closing waits for those that
 * are under way.
 */
#ifndef QUIRE_CACHE_LIBRARY_CACHE_H
#define QUIRE_CACHE_LIBRARY_CACHE_H

#include "cache/core/cache.h"
#include "index/search/search_lane.h"
#include <pthread.h>

struct idle_scratch {
    struct cache_scratch *scratch;
    struct idle_scratch *next;
};

struct quire_cache {
    struct store *store;
    struct caches *caches;
    struct cache *cache; /* a reference */
    struct search_lane_pool lanes;
    pthread_mutex_t mutex;     /* of the rest; never held over I/O */
    pthread_cond_t idle;       /* calls has become 0 */
    struct idle_scratch *free; /* scratches that no call has */
    uint64_t calls;            /* under way */
    bool closing;
    void (*log)(void *context, bool warning, const char *line);
    void *context;
};

/* QUIRE_EINVALID: no handle; QUIRE_ECLOSED. */
int library_cache_begin(struct quire_cache *c, struct quire_error *err);
int library_cache_end(struct quire_cache *c, int rc); /* returns rc */
/* The same, with the number of a write that is waited for as the durability asks (0: nothing was written). Returns rc,
 * or what the wait has come to. */
int library_cache_written(struct quire_cache *c, int rc, const uint64_t *lsn, struct quire_error *err);
int library_cache_scratch_take(struct quire_cache *c, struct idle_scratch **out, struct quire_error *err);
void library_cache_scratch_put(struct quire_cache *c, struct idle_scratch *scratch); /* NULL is fine */
enum library_cache_found {
    LIBRARY_CACHE_READ,     /* read->bytes has the document, document_read_end is to be called */
    LIBRARY_CACHE_NOT_THERE /* or it cannot be read */
};
/* Reads the document at a place. Negative: nothing could be tried (QUIRE_ENOMEM, no engine). */
int library_cache_read(struct quire_cache *c, const struct document_at *at, struct document_read *read,
                       struct quire_error *err);

#endif
