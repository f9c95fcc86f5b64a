/*
 * cache_priv.h - what the files of a cache share: entries, groups, categories, and the rules of their lock.
 *
 * cache->lock covers everything here but what is said to be read without it. It is held for microseconds: vectors are
 * measured, rows linked and documents read outside. Order: caches->lock, cache->lock, then those of the parts (document
 * log, leases, journal), which call nothing back under their locks.
 *
 * A change is appended to the journal under the lock and made only then, so that the order of the log is the order of
 * changes, and what could not be logged was not done.
 *
 * A row is an entry; its vector is a row of the graph, with the same number until the cache has sealed some (sealed.h).
 * The entry becomes living (ENTRY_LIVE) when everything else is in place. When it dies it joins the list of dead rows,
 * which are taken out of the graph later and outside of the lock; the graph gives a number out again when no reader of
 * that epoch is left. So whoever is inside an epoch may look at any row of the graph that a search gave; whether the
 * entry that is found with it still has that row is looked at under the lock.
 */
#ifndef QUIRE_CACHE_CACHE_PRIV_H
#define QUIRE_CACHE_CACHE_PRIV_H

#include "cache/core/blob.h"
#include "cache/core/cache.h"
#include "cache/guard/guard.h"
#include "cache/lease/negative.h"
#include "cache/policy/evict.h"
#include "cache/policy/load.h"
#include "cache/policy/quota.h"
#include "cache/policy/risk.h"
#include "cache/policy/sketch.h"
#include "index/graph/graph.h"
#include "index/graph/stable_array.h"
#include "index/vector/space.h"
#include "io/epoch.h"
#include "io/histogram.h"
#include "io/random.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    GROUP_FLAT_MAX = 1024,    /* entries of a group that is measured one by one */
    CANDIDATES_MAX = 1024,    /* that a lookup looks at, however many fail */
    INVALIDATIONS_MAX = 64,   /* that are remembered; an older lease brings nothing back */
    INVALIDATION_HASHES = 16, /* of one; with more it counts as one of everything */
    AUDITS_MAX = 4096,        /* pairs that wait for a label */
    AUDIT_TEXT_BYTES = 4096,  /* of a question kept for one */
    ID_SHIFT = 32,
    IMAGE_ROWS = 512, /* that a checkpoint takes under the lock at a time */
};

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* entry.word: expiry in ms since BASE_MS (40 bits), flags (8), size of the document in units of 256 bytes (16). */
#define BASE_MS      UINT64_C(1577836800000) /* 2020-01-01 */
#define EXPIRE_NEVER ((UINT64_C(1) << 40) - 1)
#define ENTRY_LIVE   (UINT64_C(1) << 40)
#define ENTRY_PINNED (UINT64_C(1) << 41)
#define ENTRY_VECTOR (UINT64_C(1) << 42) /* is found by nearness */
#define ENTRY_EXACT  (UINT64_C(1) << 43) /* is found by its hash */
#define ENTRY_TEXT   (UINT64_C(1) << 44) /* its features are known, also when there are none */
#define ENTRY_LISTED (UINT64_C(1) << 45) /* stands in group->rows */
#define ENTRY_TAKEN  (UINT64_C(1) << 46) /* not living; its number is not free, or in the list of free ones */
#define PAGES_SHIFT  48

#define GROUPS_MAX UINT32_C(0x1000000) /* and numbers of them: 24 bits */
#define UNITS_MAX  UINT32_C(0x1000000) /* places in a segment of documents, of 256 MiB at most: 24 bits */

/* 48 bytes: a million entries are 48 MB, so every byte is thought about. */
struct cache_entry {
    _Atomic uint64_t word; /* read without the lock */
    uint32_t exact;        /* bits of the exact hash; eight more in exact_high */
    uint32_t segment;      /* of its document */
    uint32_t unit : 24, created_high : 8;
    uint32_t group : 24, exact_high : 8;
    uint32_t chain;       /* next row of the same bucket + 1 */
    uint32_t blob;        /* what not every entry has; 0: nothing */
    uint32_t created_low; /* ms since BASE_MS, with created_high */
    struct evict_links links;
};
_Static_assert(sizeof(struct cache_entry) == 48, "an entry has 48 bytes");

/* ---- scopes and groups ------------------------------------------------------------------------------------------- */

/* Pairs of a scope, sorted: u16 bytes of key, u16 bytes of value, key, value, and the next. */
struct scope {
    uint64_t hash;
    struct scope *next;
    uint32_t groups; /* that have it */
    uint32_t n_bytes;
    uint64_t entries, requests, hits;
    uint8_t bytes[];
};

struct group {
    struct graph_root root;
    uint64_t key; /* of category, scope and compat: for leases */
    uint32_t number, category;
    struct scope *scope;
    struct hash128 compat;
    uint32_t n;                     /* living entries */
    uint32_t n_rows, rows_capacity; /* of rows */
    uint32_t *rows;                 /* those that are not linked; owned */
    bool linking;                   /* stands in cache->to_link */
    bool logged;                    /* the journal knows it */
    uint32_t pending;               /* entries on their way into it, dead rows, and seals */
    uint32_t n_sealed;              /* of n: whose vectors are in segments */
    struct sealed *sealed;          /* its segments */
    uint64_t seals;          /* changes when vectors leave the memory: no other group ever has the same; 0: none have */
    struct group *next_hash; /* of its bucket */
    struct group *next_link;
    struct epoch_item item;
};

/* A scope's pairs in their canonical form, and with category and compat the key of a group. */
struct group_key {
    uint32_t category;
    struct hash128 compat;
    uint64_t hash;
    uint32_t n_scope;
    uint8_t scope[4096];
};
/* ---- categories -------------------------------------------------------------------------------------------------- */

struct cache_counters {
#define X(name) uint64_t name;
    CACHE_COUNTERS(X)
#undef X
    double cost_saved, cost_audits;
    uint64_t guarded_by[GUARD_KINDS]; /* of `guarded`, by the guard that spoke first */
};

enum { GET_SUB_BITS = 3, GET_BITS = 32, GET_BUCKETS = HISTOGRAM_BUCKETS(GET_SUB_BITS, GET_BITS) };

struct category {
    struct quire_bytes name; /* owned */
    bool dropped;
    struct category_settings settings;
    struct evict_order order;
    struct risk_curve *curve;
    struct breaker breaker;
    struct cache_counters counters;
    struct cache_histogram histogram;
    struct histogram get_us, put_us;
    _Atomic uint64_t get_counts[GET_BUCKETS], put_counts[GET_BUCKETS];
    uint64_t pinned, labels_logged;
};

/* ---- invalidations, audits --------------------------------------------------------------------------------------- */

struct invalidation {
    uint64_t epoch;
    enum quire_cache_by by;
    uint32_t category;
    uint32_t n;
    uint64_t hashes[INVALIDATION_HASHES]; /* of tags, the model, the scope's pair, or group and exact hash of entries */
    float *vector;                        /* BY_NEAR: unit length; owned */
    double similarity;
};

struct audit {
    uint64_t number, id; /* number 0: free */
    uint32_t category;
    enum risk_source source;
    float similarity, weight;
    bool popped;
    uint32_t n_text;
    uint8_t *text; /* owned */
};

/* ---- a cache ----------------------------------------------------------------------------------------------------- */

struct caches {
    pthread_mutex_t lock;
    struct caches_options options;
    char *folder; /* owned */
    struct guard_tables *guards;
    struct epochs *epochs;
    struct journal *journal; /* NULL: what is done is not logged (replay) */
    struct cache **all;      /* sorted by name; each a reference */
    uint32_t n, capacity;
    struct random random;
    struct cache_scratch *scratch, *seal_scratch; /* the threads' */
    pthread_t thread, sealer;
    pthread_cond_t wake;
    bool thread_started, sealer_started, begun;
    atomic_bool stopping;
    pthread_mutex_t removal; /* held while folders of segments are removed, or must stay */
    struct cache **pinned;   /* caches whose documents must stay; references, owned. By the holder of `removal` */
    uint32_t n_pinned;
};

struct cache {
    atomic_uint references;
    struct caches *of;
    uint64_t uid;
    struct cache_config config; /* texts are owned */
    uint8_t *config_bytes;      /* owned */
    atomic_bool closed;
    bool dropped; /* its documents go with it */

    struct space space;
    struct graph *graph;
    struct stable_array entries;
    struct document_log *documents;
    struct quire_error *unavailable; /* owned; NULL: it is available. Set before others see it */
    struct document_extent *extents; /* while a folder is read, and of one that is unavailable; owned */
    uint32_t n_extents, extents_capacity;
    struct lease_table *leases;
    struct negatives negatives;

    pthread_mutex_t lock;
    uint64_t image_lsn; /* while a folder is read: the checkpoint knows what was logged up to it, but for rows */
    uint64_t *row_lsns; /* the same for rows, per IMAGE_ROWS of them; owned, NULL afterwards */
    uint32_t n_row_lsns;
    uint32_t n_rows;   /* entries that have memory */
    uint32_t *buckets; /* of exact hashes: row + 1; owned */
    uint32_t n_buckets;
    struct blobs blobs;
    struct group **groups; /* by number; NULL: free; owned */
    uint32_t n_groups, groups_capacity, first_free_group;
    struct group **group_buckets;
    struct scope **scope_buckets;
    uint32_t n_group_buckets, n_scope_buckets, n_scopes, groups_living;
    struct group *to_link;                             /* groups with rows that the thread links */
    struct category *categories[CACHE_CATEGORIES_MAX]; /* by number; never freed before the cache */
    struct quota_category quotas[CACHE_CATEGORIES_MAX];
    uint32_t n_categories;
    uint32_t fallback; /* number of "*"; QUOTA_NONE: there is none */
    struct quota quota;
    uint64_t group_bytes,
        entry_bytes; /* entry_bytes: what an entry takes in all tables while its vector is in memory */
    struct risk_pool *pool;
    struct sketch sketch;
    struct load load;
    struct invalidation invalidations[INVALIDATIONS_MAX];
    uint64_t epoch;                   /* the last one's; the oldest remembered is epoch - INVALIDATIONS_MAX + 1 */
    uint64_t opened_epoch, opened_ms; /* as a folder's records left it; wall clock */
    uint64_t secret[2];
    struct audit *audits; /* AUDITS_MAX, by number; owned */
    uint64_t next_audit, next_pop;
    struct random random;
    uint32_t dead_rows, n_dead_rows; /* dead rows whose row of the graph is still there: the first + 1, chained */
    /* sealed.h */
    bool apart;                                /* entries and rows of the graph have numbers of their own */
    struct stable_array places, graph_entries; /* struct place of each entry; the entry of each row of the graph */
    uint32_t free_rows;                        /* numbers of entries: the first + 1, chained */
    uint32_t scan_row, scan_end;               /* among these are free ones that are not in the chain */
    struct sealed **sealed;                    /* by number; owned, as are those */
    uint32_t n_sealed, sealed_capacity, next_sealed;
    struct sealed *retired;       /* without entries, their folders still there */
    uint64_t seals;               /* the last one's number */
    uint64_t sealed_entries;      /* living ones in segments */
    uint64_t sealed_memory_bytes; /* of all segments */
    uint64_t sealed_disk_bytes;   /* the same */
    unsigned near_scans;          /* invalidations that measure all vectors: none leaves the memory meanwhile */
    uint64_t seal_failed_ms;      /* when the last seal failed; 0: it did not */
    uint64_t merge_failed_ms;     /* the same of merges: they do not keep each other from being tried */
    uint32_t merge_chosen;        /* number of the segment that was the reason for the last one */
    uint32_t arrivals[256];       /* entries that became living, by the last bits of their group's key */
    uint64_t curves_logged_ms;
    uint32_t sweep; /* where the search for expired entries goes on */
    /* cache_replica.h */
    bool follows, tells;
    uint64_t history, seq;               /* 0: none; as of which number of it */
    uint64_t before_history, before_seq; /* that this history goes on from; 0: none */
    struct cache_copying *copying;       /* owned; NULL: nothing is on its way */
};

/* At random, 0 <= x < 1. (lock) */
static inline double cache_draw(struct cache *cache)
{
    return (double)(random_next(&cache->random) >> 11) * 0x1p-53;
}

struct cache_scratch {
    struct graph_scratch *graph;
    float *floats; /* code_dim, twice: the unit vector and the rotated one */
    uint32_t floats_capacity;
    uint32_t *rows; /* of a group, copied; owned */
    uint32_t rows_capacity;
    struct graph_hit hits[2 * CANDIDATES_MAX]; /* nearest first; the second half is for those of the graph */
    uint8_t code[QUIRE_DIM_MAX + 64];
    uint8_t features[GUARD_BYTES];
    struct group_key key;
};

/* ---- entries: cache_entry.c -------------------------------------------------------------------------------------- */

static inline struct cache_entry *cache_entry_at(const struct cache *cache, uint32_t row)
{
    return stable_array_at(&cache->entries, row);
}

static inline uint64_t cache_entry_word(const struct cache *cache, uint32_t row)
{
    return atomic_load_explicit(&cache_entry_at(cache, row)->word, memory_order_acquire);
}

static inline uint64_t cache_entry_created(const struct cache_entry *e)
{
    return e->created_low | (uint64_t)e->created_high << 32;
}

static inline uint64_t cache_entry_id(const struct cache_entry *e, uint32_t row)
{
    return (uint64_t)e->created_low << ID_SHIFT | row;
}

struct document_at cache_entry_document(const struct cache_entry *e);
void cache_entry_set_document(struct cache_entry *e, const struct document_at *at);
/* An entry as it will be, but for links, chain and blob; created in ms since BASE_MS. */
void cache_entry_init(struct cache_entry *out, uint64_t word, struct hash128 exact, const struct group *group,
                      uint64_t created, const struct document_at *at);
/* It takes a number that is taken for it, and lives; cache_entry_join follows. (lock) */
void cache_entry_live(struct cache *cache, uint32_t row, const struct cache_entry *from);
/* The living row of an id; UINT32_MAX: none. (lock) */
uint32_t cache_entry_find(const struct cache *cache, uint64_t id);
/* The living row with this hash in a group; UINT32_MAX: none. (lock) */
uint32_t cache_entry_find_exact(const struct cache *cache, const struct group *group, struct hash128 exact);
void cache_entry_link_exact(struct cache *cache, uint32_t row);
void cache_entry_unlink_exact(struct cache *cache, uint32_t row);
int cache_entries_reserve(struct cache *cache, uint32_t n);                       /* rows 0 .. n-1 have memory (lock) */
double cache_entry_saved(const struct cache *cache, const struct cache_entry *e); /* USD per byte, for EVICT cost */
/* What is known of a living one. (lock) */
void cache_entry_describe(const struct cache *cache, uint32_t row, struct cache_entry_info *out);
/* Expires at ms since BASE_MS; the rest of the word stays. (lock) */
void cache_entry_set_expire(struct cache_entry *e, uint64_t expire);
uint64_t cache_now(const struct cache *cache); /* ms since BASE_MS */
/* Monotonic, for what runs out in this process only: leases and who waits for them. */
uint64_t cache_steady_ms(const struct cache *cache);

/* ---- groups: group.c --------------------------------------------------------------------------------------------- */

/* Sorts and checks the pairs against what cache and category ask for. QUIRE_EINVALID, ERANGE. */
int group_key_make(const struct cache *cache, const struct category_settings *settings, const struct quire_pair *scope,
                   uint32_t n_scope, struct group_key *key, struct quire_error *err);
void group_key_finish(struct group_key *key, uint32_t category, struct hash128 compat);
struct group *group_find(const struct cache *cache, const struct group_key *key); /* (lock) */
/* Makes it with the lowest free number, or `number` unless UINT32_MAX. (lock) QUIRE_ENOMEM. */
struct group *group_make(struct cache *cache, const struct group_key *key, uint32_t number);
/* Rows in its graph. */
static inline uint32_t cache_group_linked(const struct group *group)
{
    return atomic_load_explicit(&group->root.linked, memory_order_acquire);
}
/* Space for one more of group->rows. (lock) */
int group_reserve(struct cache *cache, struct group *group);
void group_list(struct cache *cache, struct group *group, uint32_t row);   /* space was reserved (lock) */
void group_unlist(struct cache *cache, struct group *group, uint32_t row); /* (lock) */
/* Frees a group without entries when no reader is left. (lock) */
void group_release(struct cache *cache, struct group *group);
/* Links rows of groups that have grown; at most `most`. Returns how many. */
uint32_t groups_link(struct cache *cache, struct cache_scratch *scratch, uint32_t most);
void groups_free(struct cache *cache);
/* i-th pair of canonical bytes; false behind the last. */
bool group_scope_pair(const uint8_t *bytes, uint32_t n, uint32_t *at, struct quire_pair *pair);
/* As "tenant=acme user=7", cut to the room. */
void group_scope_text(const struct scope *scope, char *out, size_t room);

/* ---- categories: cache_category.c -------------------------------------------------------------------------------- */

/* By name, or "*"; QUIRE_ENOTFOUND. (lock) */
int cache_category_number(const struct cache *cache, struct quire_bytes name, uint32_t *number,
                          struct quire_error *err);
/* By its own name only; QUIRE_ENOTFOUND. (lock) */
int cache_category_find(const struct cache *cache, struct quire_bytes name, uint32_t *number, struct quire_error *err);
/* Makes it, or changes its settings; number UINT32_MAX: a new one. (lock) */
int cache_category_put(struct cache *cache, struct quire_bytes name, const struct category_settings *settings,
                       uint32_t number, struct quire_error *err);
void cache_category_drop(struct cache *cache,
                         uint32_t number); /* from what is found; its entries are the caller's (lock) */
void cache_categories_free(struct cache *cache);
/* Shares of the cache's memory for documents: those that wait for the disk, and those read lately. */
uint64_t cache_buffer_bytes(const struct cache *cache);
uint64_t cache_hot_bytes(const struct cache *cache);
/* Limits of the cache from its memory, and what is in use. (lock) */
void cache_refresh_quota(struct cache *cache);
/* Bytes that entries and their vectors take, and what there is for them. (lock) */
void cache_memory_use(const struct cache *cache, uint64_t *used, uint64_t *capacity);

/* ---- leaving: cache_remove.c ------------------------------------------------------------------------------------- */

/* Takes a living entry out of everything but the graph, which cache_reclaim does later. It has been logged. (lock) */
void cache_entry_die(struct cache *cache, uint32_t row);
/* The opposite: an entry whose word, group, document and blob are set takes its places. linked: its row is in the graph
 * of the group. Space in group->rows was reserved where it is not. (lock) */
void cache_entry_join(struct cache *cache, uint32_t row, struct group *group, bool linked);
/* Takes at most `most` dead rows out of the graph; returns how many. (without the lock) */
uint32_t cache_reclaim(struct cache *cache, struct cache_scratch *scratch, uint32_t most);
/* Removes all entries of a category. (takes the lock) */
int cache_empty_category(struct cache *cache, uint32_t number, uint64_t *lsn, struct quire_error *err);
/* Removes what has expired among the next `rows` rows; returns how many went. */
uint32_t cache_expire(struct cache *cache, uint32_t rows);
/* Logs that those went which were found dead when the folder was read, as cache_expire does, for the same reasons. */
int cache_log_dead_rows(struct cache *cache, struct quire_error *err);
/* Whether an answer computed under a lease of `epoch` was invalidated meanwhile. (lock) */
struct put_facts {
    uint32_t category;
    const struct group_key *key;
    struct hash128 exact;
    const uint64_t *tags;
    uint32_t n_tags;
    uint32_t model;
    const float *vector; /* unit length; NULL */
};
bool cache_invalidated_since(const struct cache *cache, uint64_t epoch, const struct put_facts *facts);
void cache_invalidation_push(struct cache *cache, const struct invalidation *invalidation);

/* ---- what both get and put do: cache_get.c ----------------------------------------------------------------------- */

/* The unit vector (scratch->floats) and the rotated one (behind floats_capacity): QUIRE_ENOTFINITE, EZEROVEC. */
int cache_vector(const struct cache *cache, struct cache_scratch *scratch, const void *vector, struct quire_error *err);
struct hash128 cache_hash_of(struct quire_bytes bytes); /* never 0; of none: 0 */
uint64_t cache_tag_hash(struct quire_bytes tag);
int cache_check_encoder(const struct cache *cache, struct quire_bytes encoder, struct quire_error *err);
int cache_scratch_fit(struct cache_scratch *scratch, const struct cache *cache, struct quire_error *err);
float cache_similarity_of(float distance);
struct category *cache_category_at(const struct cache *cache, uint32_t number);
/* A lookup has ended: its category, its scope, the breaker and the histogram are told. (lock) */
void cache_count(struct cache *cache, const struct cache_decision *decision);
static inline void cache_count_bin(uint64_t bins[CACHE_HISTOGRAM_BINS], double similarity)
{
    unsigned bin = (unsigned)(similarity * 100 + 0.5);
    bins[bin < CACHE_HISTOGRAM_BINS ? bin : CACHE_HISTOGRAM_BINS - 1]++;
}
/* By bytes, then by length. */
static inline int cache_compare_bytes(struct quire_bytes a, struct quire_bytes b)
{
    size_t n = a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes;
    int by_bytes = n ? memcmp(a.data, b.data, n) : 0;
    return by_bytes ? by_bytes : (a.n_bytes > b.n_bytes) - (a.n_bytes < b.n_bytes);
}
/* Of numbers of 64 bits, for qsort. */
static inline int cache_compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}
double cache_threshold_of(struct cache *cache, uint32_t number, double lam); /* (lock) */
/* A new pair that waits for a label; its number. (lock) */
uint64_t cache_audit_push(struct cache *cache, uint32_t category, uint64_t id, enum risk_source source,
                          double similarity, double weight, struct quire_bytes text);
void cache_audits_free(struct cache *cache);
/* Sets it, unlogged. (lock) QUIRE_ENOMEM */
int cache_entry_set_veto(struct cache *cache, uint32_t row, float veto);

/* ---- the journal: cache_log.c ------------------------------------------------------------------------------------ */

/* Numbers on the disk: never reused. docs/format.md has their bytes. */
enum cache_log_kind {
    CACHE_LOG_CACHE = CACHE_KINDS,
    CACHE_LOG_DROP,
    CACHE_LOG_CATEGORY,
    CACHE_LOG_CATEGORY_DROP,
    CACHE_LOG_GROUP,
    CACHE_LOG_PUT,
    CACHE_LOG_GONE,
    CACHE_LOG_CHANGE,
    CACHE_LOG_MOVED,
    CACHE_LOG_EPOCH,
    CACHE_LOG_CURVE,
    CACHE_LOG_ROWS,
    CACHE_LOG_SEALED,
    CACHE_LOG_DURABLE,
};
/* Each appends one frame (nothing where the journal is NULL); *lsn gets its number. (lock) */
int cache_log_cache(struct cache *cache, uint64_t *lsn, struct quire_error *err);
int cache_log_drop(struct cache *cache, uint64_t *lsn, struct quire_error *err);
int cache_log_category(struct cache *cache, uint32_t number, struct quire_bytes name,
                       const struct category_settings *settings, uint64_t *lsn, struct quire_error *err);
int cache_log_category_drop(struct cache *cache, uint32_t number, uint64_t *lsn, struct quire_error *err);
struct logged_put {
    uint32_t row, graph_row;
    const struct cache_entry *entry; /* as it will be, but for links and chain */
    struct group *group;
    const uint8_t *code;
    float f, norm2;
    const uint8_t *blob;
    uint32_t n_blob;
    struct hash128 exact;
    uint8_t **document; /* that is its document, malloc'd: whoever takes it leaves NULL */
    uint32_t document_bytes;
};
int cache_log_put(struct cache *cache, const struct logged_put *put, uint64_t *lsn, struct quire_error *err);
int cache_log_gone(struct cache *cache, const uint32_t *rows, uint32_t n, uint64_t *lsn, struct quire_error *err);
/* Expiry, pin and own threshold of an entry. */
int cache_log_change(struct cache *cache, uint32_t row, uint64_t word, float veto, uint64_t *lsn,
                     struct quire_error *err);
int cache_log_moved(struct cache *cache, uint32_t row, const struct document_at *at, struct quire_error *err);
int cache_log_epoch(struct cache *cache, const struct invalidation *invalidation, uint64_t *lsn,
                    struct quire_error *err);
int cache_log_curve(struct cache *cache, uint32_t number, struct quire_error *err);
/* n entries have gone to rows of a segment. */
struct sealed;
struct sealing {
    uint64_t id;
    uint32_t graph_row, segment_row;
};
int cache_log_sealed(struct cache *cache, const struct sealed *sealed, const struct sealing *sealings, uint32_t n,
                     struct quire_error *err);

/* Another word: its expiry, and whether it is pinned. Logged before. (lock) */
void cache_entry_set_word(struct cache *cache, uint32_t row, uint64_t word);

/* ---- followers: cache_told.c, cache_copy.c, cache_follow.c ------------------------------------------------------- */

/* A follower's entries are its leader's: QUIRE_ECLOSED. (lock) */
int cache_may_change(const struct cache *cache, struct quire_error *err);
/* Each tells a change that was logged, where it is to be told. (lock) */
void cache_tell_put(struct cache *cache, const struct logged_put *put);
void cache_tell_gone(struct cache *cache, const uint32_t *rows, uint32_t n);
void cache_tell_change(struct cache *cache, uint32_t row, uint64_t word, float veto);
void cache_tell_epoch(struct cache *cache, const struct invalidation *invalidation);
void cache_tell_curve(struct cache *cache, uint32_t number);
void cache_tell_category(struct cache *cache, uint32_t number, struct quire_bytes name,
                         const struct category_settings *settings);
void cache_tell_category_drop(struct cache *cache, uint32_t number);

/* So much of segments of documents is on the device. */
int cache_log_durable(struct cache *cache, const struct document_extent *extents, uint32_t n, struct quire_error *err);

/* ---- create and destroy: caches.c -------------------------------------------------------------------------------- */

/* Without documents: caches_begin or caches_add opens them. */
/* seed: of how its vectors are rotated. */
int cache_create(struct caches *caches, uint64_t uid, const struct cache_config *config, uint64_t seed,
                 const uint64_t secret[2], struct cache **out, struct quire_error *err);
/* As caches_add, with a seed and a secret that were another's. old: the cache of this name whose place it takes, which
 * stays where the new one cannot be made; NULL: none may have the name. */
int caches_add_with(struct caches *caches, const struct cache_config *config, uint64_t seed, const uint64_t secret[2],
                    struct cache *old, uint64_t *lsn, struct quire_error *err);
void cache_copying_free(struct cache *cache);
int cache_open_documents(struct cache *cache, struct quire_error *err);
/* What was restored and replayed becomes entries. Where a file that they need is damaged or missing, QUIRE_ECORRUPT and
 * the like say so, and what was restored is as it was: it can be saved in a checkpoint. */
int cache_restore_end(struct cache *cache, struct quire_error *err);
/* Of a row that was restored. */
bool cache_entry_is_wanted(const struct cache *cache, uint32_t row, uint64_t now);
/* Whether an error is of this process (no memory, no room for another open file) and not of the cache's files. */
static inline bool cache_error_is_own(int code)
{
    return code == QUIRE_ENOMEM || code == QUIRE_ELIMIT;
}
/* Takes the reference over, on success. (lock) */
int caches_insert(struct caches *caches, struct cache *cache, struct quire_error *err);
void caches_take(struct caches *caches, struct cache *cache); /* out of the list (lock) */
void caches_say(struct caches *caches, bool warning, const char *line);
struct cache *caches_by_uid(struct caches *caches, uint64_t uid);
/* References to all caches, as they are now, or to those that are available; malloc'd; NULL: no memory. (takes
 * caches->lock) */
struct cache **caches_list(struct caches *caches, bool all, uint32_t *n);

#endif
