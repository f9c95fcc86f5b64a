/* support_cache.h - a data folder with caches for tests: a clock that stands still, no thread, short questions. */
#ifndef QUIRE_TESTS_CACHE_SUPPORT_CACHE_H
#define QUIRE_TESTS_CACHE_SUPPORT_CACHE_H

#include "cache/core/cache.h"
#include "io/fs.h"

struct world_options {
    struct io_fs *fs;       /* NULL: the real one; otherwise documents are read by an engine of fault.h */
    enum journal_sync sync; /* of world_open: JOURNAL_NO */
    bool thread;            /* the caches' own thread works, by the system's clock */
    void (*told)(void *context, struct cache *cache, const struct cache_told *told); /* caches_options has it */
    void *told_context;
    uint32_t seal_rows; /* not 0: groups with more vectors in memory are sealed, whatever the memory */
};

struct world {
    char folder[256];
    struct store *store;
    struct caches *caches;
    struct cache *cache; /* "c"; a reference */
    struct cache_scratch *scratch;
    struct engine *engine;
    struct searcher *searcher;
    unsigned n_searches;                  /* of the disk, by ask */
    _Atomic uint64_t now_ms, set_back_ms; /* the monotonic clock; how far the wall clock was set back */
    uint32_t dim;
    struct store_report report;
    struct world_options options;
};

/* Makes the folder and the cache "c" of dim dimensions (f32). NULL ends the test. */
void world_open(struct world *world, const char *folder, uint32_t dim);
/* The same with other settings; name and dim of config may be 0. */
void world_open_with(struct world *world, const char *folder, const struct cache_config *config);
void world_make(struct world *world, const char *folder, const struct cache_config *config,
                const struct world_options *options);
/* Opens what is there; an error if that fails, or there is no cache "c" (cache is NULL then). */
int world_try_open(struct world *world, const char *folder, uint32_t dim, uint64_t now_ms,
                   const struct world_options *options, struct quire_error *err);
/* Ends it though the disk is gone. */
void world_abandon(struct world *world);
/* Ends it as a server does that is stopped. */
void world_close(struct world *world);
/* Closes and opens again: what is there must come from the disk. checkpoint: one is written before. */
void world_reopen(struct world *world, bool checkpoint);
/* Opens world->folder, which was closed, or is a copy of one that was; the clock and the rest stay. */
void world_open_again(struct world *world);
/* Does all that is due in the background. */
void world_work(struct world *world);

/* SC.CAT.SET: words in one text, such as "SIM 0.9 TTL 1000"; fails the test on an error. */
void world_category(struct world *world, const char *name, const char *words);

/* Unit vector number `seed`; any two are far from each other. near: the same turned away up to the cosine `cosine`. */
void vector_make(float *out, uint32_t dim, uint64_t seed);
void vector_near(float *out, const float *vector, uint32_t dim, double cosine, uint64_t seed);

/* A lookup to its end: the document is read, a lost one is looked up again. asked_end frees the answer's memory. */
struct asked {
    struct quire_cache_answer answer;
    struct document_read read;
    struct quire_bytes *chunks;
    char value[256]; /* a short value as text */
};
int ask(struct world *world, const struct quire_cache_query *query, struct asked *out, struct quire_error *err);
void asked_end(struct asked *asked);
/* cache_get, and as often as it wants it a search of the disk: 0, 1 (waits) or an error. */
int search_and_decide(struct world *world, const struct quire_cache_query *query, struct lease_waiter *waiter,
                      struct cache_decision *decision, struct quire_error *err);
/* Question in category "k", without scope: its status; value into `value` (256) where there is one, may be NULL. */
enum quire_cache_status ask_simple(struct world *world, const char *text, const float *vector, char *value);
/* An answer in category "k"; its id. */
uint64_t put_simple(struct world *world, const char *text, const float *vector, const char *value);
int put(struct world *world, struct quire_cache_entry *entry, const char *value, struct quire_cache_put_result *result,
        struct quire_error *err);
/* A miss's lease; fails the test where there is none. */
void lease_of(struct world *world, const char *text, const float *vector, char token[QUIRE_CACHE_TOKEN_BYTES]);
/* SC.INVALIDATE; how many went, or would go. */
uint64_t invalidate(struct world *world, const struct quire_cache_selector *selector, bool dry_run);
struct quire_cache_stats stats_of(struct world *world, const char *category);
/* All structures agree with each other. */
void world_check(struct world *world);

#endif
