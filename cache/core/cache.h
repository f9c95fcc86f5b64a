/*
 * cache.h - semantic caches of a data folder: what the server and the library build on. quire.h has the meaning of
 * questions, answers and entries; docs/cache.md the rules.
 *
 * A lookup decides in memory (cache_get) and leaves the place of a document behind, which the caller reads on an engine
 * of its own (document_log.h) and hands to cache_finish. So a lane of the server never waits.
 *
 * Entries are rows of one mutable graph (index/graph/graph.h), linked only within their group: scope, compat and
 * category. A search never leaves its group, so an answer cannot cross scopes whatever a filter would do; groups of
 * few entries are not linked but measured one by one.
 *
 * Vectors of large groups go to segments on the disk (sealed.h) when memory is short; a lookup that memory does not
 * answer then searches those on an engine of its caller's, too.
 *
 * Threads: all calls from any thread, but for those of opening and closing. Those that measure vectors take a scratch
 * of the calling thread. Decisions take the cache's lock for about a microsecond at a time; vectors are measured
 * outside of it.
 */
#ifndef QUIRE_CACHE_CACHE_H
#define QUIRE_CACHE_CACHE_H

#include "cache/document/document_log.h"
#include "cache/guard/guard.h"
#include "cache/lease/lease.h"
#include "cache/policy/category.h"
#include "index/store/store.h"

struct searcher;
struct cache_told;
struct caches;
struct cache;
struct cache_scratch;

/* ---- all caches of a folder -------------------------------------------------------------------------------------- */

struct caches_options {
    struct io_fs *fs;                     /* NULL: fs_real() */
    const char *folder;                   /* of the store; documents lie in <folder>/documents/<number of the cache>/ */
    const char *guard_folder;             /* NULL: built-in tables only */
    uint64_t (*clock_ms)(void *context);  /* wall clock; NULL: the system's */
    uint64_t (*steady_ms)(void *context); /* monotonic; NULL: clock_ms if that is given, else the system's */
    void *clock_context;
    uint64_t seed;                                              /* of what is drawn at random; 0: from the system */
    void (*log)(void *context, bool warning, const char *line); /* NULL: nothing is said; from any thread */
    void *log_context;
    bool no_thread; /* nothing in the background: caches_work does it */
    /* A group with more vectors in memory than seal_rows (0: 65536) gives the older half of them to the disk when its
     * cache has used nine tenths of its memory; seal_always: whatever is used. */
    uint32_t seal_rows;
    bool seal_always;
    bool read_only; /* caches_verify follows what is restored, not caches_begin */
    /* What was done to a cache that tells (cache_replica.h), in the order of numbers: under the cache's lock, from any
     * thread. NULL: none tells. */
    void (*told)(void *context, struct cache *cache, const struct cache_told *told);
    void *told_context;
};

/* Before the store is opened; afterwards the store's host passes on records of CACHE_KINDS to restore and replay. */
int caches_create(const struct caches_options *options, struct caches **out, struct quire_error *err);
/* struct store_host's functions; context is the struct caches. */
int caches_restore(void *caches, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err);
int caches_replay(void *caches, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err);
int caches_save(void *caches, struct checkpoint *checkpoint, struct quire_error *err);
/* When all has been read, before store_begin_maintenance: documents are opened, what a crash has kept its document from
 * being written of goes, links are made whole, writes are logged from now on, and the thread begins: it links what is
 * not, lets expire, ticks leases, logs curves. A cache whose files are damaged, missing or may not be read is there and
 * unavailable (cache_available), and stays as it is; the others serve. */
int caches_begin(struct caches *caches, struct journal *journal, struct quire_error *err);
/* Wakes who waits, ends the thread, logs what is only in memory. Before the journal is closed; calls end with
 * QUIRE_ECLOSED afterwards. */
void caches_end(struct caches *caches);
void caches_destroy(struct caches *caches); /* NULL is fine */
/* One round of the thread's work. Returns in how many ms the next is due. */
uint64_t caches_work(struct caches *caches);
/* Hard links to all documents and sealed segments below the new folder `to`, which is a snapshot of the store, made
 * between caches_pin_files and caches_unpin_files: what it names stays so long. What is missing, of a cache that is
 * unavailable for it, is missing there as well. */
int caches_link_documents(struct caches *caches, const char *to, struct quire_error *err);
void caches_pin_files(struct caches *caches);
void caches_unpin_files(struct caches *caches);

#define CACHE_NAME_BYTES     256u
#define CACHE_SCOPE_KEYS_MAX 16u
#define CACHE_CATEGORIES_MAX 1024u
#define CACHE_TAGS_MAX       64u
#define CACHE_TEXT_BYTES_MAX (64u << 10) /* of a question */
#define CACHE_MEMORY_DEFAULT (1ull << 30)
#define CACHE_DISK_DEFAULT   (16ull << 30)

struct cache_config {
    struct quire_bytes name;
    uint32_t dim;
    enum quire_type type; /* f32, f16, i8 */
    struct quire_bytes encoder;
    uint64_t memory_bytes, disk_bytes; /* 0: the defaults */
    struct quire_bytes scope_keys[CACHE_SCOPE_KEYS_MAX];
    uint32_t n_scope_keys;
    bool require_scope;
};
/* QUIRE_EEXISTS, ERANGE, EINVALID. *lsn: what the reply waits for. */
int caches_add(struct caches *caches, const struct cache_config *config, uint64_t *lsn, struct quire_error *err);
int caches_drop(struct caches *caches, struct quire_bytes name, uint64_t *lsn, struct quire_error *err);
/* With a reference; NULL: there is none. Whoever takes one for a request asks cache_available first. */
struct cache *caches_find(struct caches *caches, struct quire_bytes name);
struct cache *cache_ref(struct cache *cache);
void cache_unref(struct cache *cache);
/* In the order of their names. */
void caches_each(struct caches *caches, void (*visit)(void *context, struct cache *cache), void *context);
/* How many are unavailable. */
uint32_t caches_count_unavailable(struct caches *caches);

/* One per thread, for all caches. */
int cache_scratch_create(struct cache_scratch **out, struct quire_error *err);
void cache_scratch_destroy(struct cache_scratch *scratch); /* NULL is fine */

/* ---- one cache --------------------------------------------------------------------------------------------------- */

/* 0; or why it can be neither asked nor written to, until its files are mended and the folder is opened again: a code
 * and a sentence that names what cannot be used and what to do. Of such a one only its config, its statistics and its
 * drop may be asked for. Any thread. */
int cache_available(const struct cache *cache, struct quire_error *err);
const struct cache_config *cache_get_config(const struct cache *cache); /* valid as long as the cache */

/* Makes or changes a category; "*" stands for what unknown categories get (there is none before it is set). */
int cache_set_category(struct cache *cache, struct quire_bytes name, const struct quire_bytes *arguments, uint32_t n,
                       uint64_t *lsn, struct quire_error *err);
int cache_drop_category(struct cache *cache, struct quire_bytes name, uint64_t *lsn, struct quire_error *err);
int cache_get_category(struct cache *cache, struct quire_bytes name, struct category_settings *out,
                       struct quire_error *err);
/* In the order of their names; not under the cache's lock. */
void cache_each_category(struct cache *cache, void (*visit)(void *context, struct quire_bytes name), void *context);

/* What comes of a lookup. */
enum cache_outcome {
    CACHE_DECIDED,      /* decision->answer says how; its document, if any, is to be read */
    CACHE_WAITS,        /* waiter->wake will run, and then cache_woken is to be called */
    CACHE_WANTS_SEARCH, /* nothing in memory answers, and the group has vectors on the disk: decision->search, which is
                         * the caller's, is to be run, and then cache_get_found to be called */
};
struct cache_search; /* of one lookup, holds references to what it reads */
struct cache_decision {
    struct quire_cache_answer answer; /* but for what the document holds */
    bool wants_document;              /* read `at`, then cache_finish */
    struct cache_search *search;      /* run it, then cache_get_found */
    struct document_at at;
    struct hash128 exact; /* of the question */
    uint64_t begun_us;
    uint32_t category;
    /* for the counts, when it is known whether it answers */
    uint32_t group;               /* UINT32_MAX: there is none */
    uint64_t group_key, question; /* of the group, as its number may be given to another; a hash */
    uint64_t now;
    bool suspicious; /* the breaker looks at it */
};
/* A lookup: an enum cache_outcome, or an error. waiter: NULL: never waits; otherwise the caller's, with wake and owner
 * set, and the query stays as it is while it waits. */
int cache_get(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_query *query,
              struct lease_waiter *waiter, struct cache_decision *out, struct quire_error *err);
/* Runs a search on a lane's searcher; done(owner) runs exactly once on that thread, perhaps before this returns. A
 * segment that cannot be read is left out, and said once. */
void cache_search_start(struct cache_search *search, struct searcher *searcher, void (*done)(void *owner), void *owner);
void cache_search_free(struct cache_search *search); /* one that does not run; NULL is fine */
/* Goes on after decision->search has run, which it frees; returns as cache_get, CACHE_WANTS_SEARCH again included.
 * QUIRE_ECANCELLED: the lane has ended it. */
int cache_get_found(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_query *query,
                    struct lease_waiter *waiter, struct cache_decision *out, struct quire_error *err);
/* Goes on after a wait: as cache_get, but never waits again, nor wants a search: the disk was searched before. */
int cache_woken(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_query *query,
                struct lease_waiter *waiter, enum lease_wake how, struct cache_decision *out, struct quire_error *err);
/* A waiter's client is gone. True: it will not be woken. */
bool cache_cancel(struct cache *cache, struct lease_waiter *waiter);
struct document_log *cache_documents(struct cache *cache);
enum cache_finished {
    CACHE_ANSWERED,  /* the answer is whole, pointing into bytes */
    CACHE_ENTRY_GONE /* meanwhile, or its document is lost: call cache_get again (which will not find it) */
};
uint32_t cache_chunks(const uint8_t *bytes, uint32_t n);
/* The document was read (n bytes; NULL: it could not be). chunks: caller's array of at least `n_chunks` =
 * cache_chunks(bytes, n) pieces. */
enum cache_finished cache_finish(struct cache *cache, struct cache_decision *decision, const uint8_t *bytes, uint32_t n,
                                 struct quire_bytes *chunks);

int cache_put(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_entry *entry,
              struct quire_cache_put_result *result, struct quire_error *err);
int cache_negative(struct cache *cache, const struct quire_cache_query *query, uint64_t ttl_ms,
                   struct quire_bytes lease, struct quire_error *err);
int cache_fail(struct cache *cache, struct quire_bytes lease, struct quire_error *err);
/* As quire_cache_renew. */
int cache_renew(struct cache *cache, struct quire_bytes lease, uint64_t ms, uint64_t *left_ms, struct quire_error *err);
int cache_feedback(struct cache *cache, uint64_t id, bool good, double similarity, uint64_t *lsn,
                   struct quire_error *err);
/* QUIRE_ENOTFOUND. audit->entry_text and entry_value come from the document at *at (bytes 0: it is gone). Ended by
 * quire_cache_audit_free. */
int cache_audit_get(struct cache *cache, uint64_t number, struct quire_cache_audit *audit, struct document_at *at,
                    struct quire_error *err);
int cache_audit_pop(struct cache *cache, struct quire_cache_audit *audit, struct document_at *at,
                    struct quire_error *err);
int cache_audit_put(struct cache *cache, uint64_t number, bool right, struct quire_error *err);
int cache_load(struct cache *cache, struct quire_bytes model, double x, uint64_t ex_ms, struct quire_error *err);
/* May take long: BY_TAG, SCOPE, MODEL, ENCODER, NEAR, BEFORE look at every entry, and NEAR reads all sealed vectors. */
int cache_invalidate(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_selector *selector,
                     bool dry_run, uint64_t *n, uint64_t *lsn, struct quire_error *err);
int cache_remove(struct cache *cache, uint64_t id, uint64_t *lsn, struct quire_error *err);
int cache_touch(struct cache *cache, uint64_t id, uint64_t ttl_ms, uint64_t *lsn, struct quire_error *err);
int cache_pin(struct cache *cache, uint64_t id, bool pinned, uint64_t *lsn, struct quire_error *err);

/* ---- insight ----------------------------------------------------------------------------------------------------- */

/* Counters of what came of requests and entries, all of struct quire_cache_stats. X(name) */
#define CACHE_COUNTERS(X)                                                                                              \
    X(requests)                                                                                                        \
    X(hits)                                                                                                            \
    X(exact)                                                                                                           \
    X(stale)                                                                                                           \
    X(audits)                                                                                                          \
    X(misses)                                                                                                          \
    X(negative)                                                                                                        \
    X(bypassed)                                                                                                        \
    X(waited)                                                                                                          \
    X(puts)                                                                                                            \
    X(stored)                                                                                                          \
    X(not_admitted)                                                                                                    \
    X(outdated)                                                                                                        \
    X(no_room)                                                                                                         \
    X(evicted_own)                                                                                                     \
    X(evicted_cache)                                                                                                   \
    X(expired)                                                                                                         \
    X(invalidated)                                                                                                     \
    X(replaced)                                                                                                        \
    X(removed)                                                                                                         \
    X(lost)                                                                                                            \
    X(guarded)                                                                                                         \
    X(vetoed)                                                                                                          \
    X(labels)                                                                                                          \
    X(false_hits)                                                                                                      \
    X(feedback_good)                                                                                                   \
    X(feedback_bad)                                                                                                    \
    X(tokens_saved)                                                                                                    \
    X(llm_ms_saved)

int cache_get_stats(struct cache *cache, struct quire_bytes category, struct quire_cache_stats *out,
                    struct quire_error *err);
/* Of `guarded` of those, how many each guard kept back: that which spoke first. */
int cache_get_guarded(struct cache *cache, struct quire_bytes category, uint64_t out[GUARD_KINDS],
                      struct quire_error *err);
int cache_tune(struct cache *cache, struct quire_bytes category, double delta, struct quire_cache_tune *out,
               struct quire_error *err);
/* How similarities of best candidates were distributed over what came of them: bins of 0.01 from 0 to 1. */
#define CACHE_HISTOGRAM_BINS 101u
struct cache_histogram {
    uint64_t hits[CACHE_HISTOGRAM_BINS], misses[CACHE_HISTOGRAM_BINS], guarded[CACHE_HISTOGRAM_BINS],
        right[CACHE_HISTOGRAM_BINS], wrong[CACHE_HISTOGRAM_BINS]; /* right, wrong: labelled */
};
int cache_get_histogram(struct cache *cache, struct quire_bytes category, struct cache_histogram *out,
                        struct quire_error *err);
/* Checks, while nothing else runs, that all structures agree. QUIRE_ECORRUPT, with what is wrong in *reason. */
int cache_check(struct cache *cache, struct quire_error *reason);
/* What is known of an entry without its document. */
struct cache_entry_info {
    uint64_t id, created_ms, expire_ms; /* expire UINT64_MAX: never */
    uint32_t hits;                      /* exact up to 16, then within a factor of two */
    uint32_t document_bytes;
    struct document_at at;
    double veto; /* its own threshold; 0: none */
    bool pinned;
    struct quire_bytes category; /* copied; valid as long as the cache */
};
int cache_info(struct cache *cache, uint64_t id, struct cache_entry_info *out, struct quire_error *err);
/* The n entries of a category that were hit the most, most first; returns how many. Looks at every entry. */
int cache_top(struct cache *cache, struct quire_bytes category, struct cache_entry_info *out, uint32_t n,
              struct quire_error *err);
/* At most n entries that have a vector, chosen at random, each with the same chance, of a category or (data NULL) of
 * all, and their unit vectors: n x dim bytes, of which number i is about vectors[i] * step. Looks at every entry and
 * may read a block for each that is on the disk. Returns how many. */
struct cache_sampled {
    struct cache_entry_info info;
    char scope[256]; /* as "tenant=acme user=7", cut */
    float step;
};
int cache_sample(struct cache *cache, struct quire_bytes category, struct cache_sampled *out, int8_t *vectors,
                 uint32_t n, struct quire_error *err);
/* Entries of a category or (data NULL) of all, from a cursor on (0: the first); *next 0: that was the last. Every entry
 * that is there from begin to end is given once. Returns how many (<= capacity); it may be few or none where the next
 * ones are of other categories: at most 4,096 are looked at. */
int cache_scan(struct cache *cache, struct quire_bytes category, uint64_t cursor, struct cache_entry_info *out,
               uint32_t capacity, uint64_t *next, struct quire_error *err);
/* Scopes by the number of their entries, most first, as "tenant=acme user=7": for SC.STATS. Returns how many. */
struct cache_scope_stats {
    char text[256];
    uint64_t entries, requests, hits;
};
uint32_t cache_top_scopes(struct cache *cache, struct cache_scope_stats *out, uint32_t capacity);
/* *bytes: malloc'd. */
int cache_export(struct cache *cache, void **bytes, size_t *n, struct quire_error *err);
int cache_import(struct cache *cache, const void *bytes, size_t n, struct quire_error *err);

#endif
