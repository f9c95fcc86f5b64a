/*
 * sealed.h - entries whose vectors lie on the disk: where each entry's vector is, the segments of groups, and a search
 * of them.
 *
 * An entry keeps its number, its id and all of its 48 bytes when its vector is sealed, so that exact hits, expiry,
 * quotas, eviction, invalidation and listing go on in memory as before. Only nearness needs its segment.
 *
 * Until the first seal of a cache an entry's number is that of its row in the graph. From then on (cache->apart) they
 * are apart: rows of the graph are given to new entries again, while the old entries stay. Two tables say which is
 * which; numbers of entries then come from a list of the cache's own. Both tables hold differences, so that their zeros
 * mean "the same number" and nothing has to be filled in when they are made.
 *
 * A segment holds rows of one group only: the wall between scopes needs no filter. The key of a row is the id of its
 * entry. Rows are dead until an entry is placed in them and again when it goes. Most of what a search brings is known
 * by its code only and no block of it is read, so the numbers of the entries are in memory, too; an entry's place says
 * whether its number was given to another.
 *
 * Everything is under the cache's lock but where it is said.
 */
#ifndef QUIRE_CACHE_SEALED_H
#define QUIRE_CACHE_SEALED_H

#include "cache/core/cache_priv.h"
#include "index/build/merge.h"
#include "index/search/search.h"
#include "io/bitmap.h"
#include <assert.h>

/* ---- where vectors are ------------------------------------------------------------------------------------------- */

struct place {
    uint32_t segment; /* its number; 0: in memory */
    uint32_t row;     /* in the segment; in memory: of the graph, as the difference (xor) to the entry's number */
};

static inline struct place sealed_place_of(const struct cache *cache, uint32_t row)
{
    return cache->apart ? *(const struct place *)stable_array_at(&cache->places, row) : (struct place){0, 0};
}

static inline bool sealed_holds(const struct cache *cache, uint32_t row)
{
    return sealed_place_of(cache, row).segment != 0;
}

/* The row of the graph of an entry in memory. */
static inline uint32_t sealed_graph_row(const struct cache *cache, uint32_t row)
{
    return sealed_place_of(cache, row).row ^ row;
}

/* Whether it is this row of the graph that an entry has: not another one since, and not one in a segment. */
static inline bool sealed_has_graph_row(const struct cache *cache, uint32_t row, uint32_t graph_row)
{
    return !sealed_holds(cache, row) && sealed_graph_row(cache, row) == graph_row;
}

/* The entry of a row of the graph. Without the lock, inside an epoch: as it is or was a moment ago. */
static inline uint32_t sealed_graph_entry(const struct cache *cache, bool apart, uint32_t graph_row)
{
    const uint32_t *difference = apart ? stable_array_at(&cache->graph_entries, graph_row) : NULL;
    return difference ? __atomic_load_n(difference, __ATOMIC_RELAXED) ^ graph_row : graph_row;
}

/* These write the tables as they are; the tables are there. */
static inline void sealed_set_place(struct cache *cache, uint32_t row, struct place place)
{
    assert(cache->apart);
    *(struct place *)stable_array_at(&cache->places, row) = place;
}

static inline void sealed_set_graph_entry(struct cache *cache, uint32_t graph_row, uint32_t row)
{
    assert(cache->apart);
    __atomic_store_n((uint32_t *)stable_array_at(&cache->graph_entries, graph_row), row ^ graph_row, __ATOMIC_RELAXED);
}

/* Makes the tables, if there are none. QUIRE_ENOMEM. */
int cache_entries_part(struct cache *cache);
/* A number for a new entry with this row of the graph, which is not living yet. QUIRE_ENOMEM. */
int cache_entry_take(struct cache *cache, uint32_t graph_row, uint32_t *row);
/* Takes it back, or that of an entry that died, once nobody needs it. */
void cache_entry_give(struct cache *cache, uint32_t row);
/* Of a cache that follows: this number, which its leader has given and nobody has here. QUIRE_ENOMEM. */
int cache_entry_take_number(struct cache *cache, uint32_t graph_row, uint32_t row);
/* Numbers are the leader's from now on, or this node's again: none is in the list of free ones. */
void cache_entries_follow(struct cache *cache);
void cache_entries_lead(struct cache *cache);
/* While a folder is read: says where an entry's vector is. QUIRE_ENOMEM. */
int cache_entry_set_place(struct cache *cache, uint32_t row, struct place place);

/* ---- segments ---------------------------------------------------------------------------------------------------- */

struct sealed {
    atomic_uint references; /* the cache's, and those of searches */
    uint32_t number;        /* never 0, rising; in the name of its folder */
    uint32_t group;
    struct sealed *next;     /* of its group, or of those that are to be removed */
    struct segment *segment; /* NULL: not open yet; a reference */
    uint8_t *dead;           /* bitmap of its rows; owned */
    uint32_t *entries;       /* numbers of those that were placed in its rows; owned */
    uint32_t n_rows, n_living;
    bool is_named;          /* while a folder is read: an entry says that it is here */
    atomic_bool complained; /* a search of it has failed, and that was said */
};

#define SEALED_NAME       "sealed" /* of the folder below the store's */
#define SEALED_NAME_BYTES 32u      /* of "<16 hex digits>-<8 hex digits>" */

/* Number of a segment in the name of a folder; 0: it is none of this cache's. */
uint32_t sealed_parse_name(const char *name, uint64_t *uid);
/* Its folder below `folder`; owned by the caller. NULL: no memory. */
char *sealed_path(const char *folder, uint64_t uid, uint32_t number);

/* NULL: there is none with this number. */
struct sealed *sealed_find(const struct cache *cache, uint32_t number);
/* A segment of a group that is not open yet; the caller gets the reference. QUIRE_ENOMEM. (no lock) */
int sealed_create(uint32_t number, uint32_t group, struct sealed **out);
/* The cache has it from now on, with the caller's reference. QUIRE_ENOMEM. */
int sealed_insert(struct cache *cache, struct sealed *sealed);
/* Of a dimension, in memory. */
unsigned sealed_code_bits(const struct cache *cache);
/* Opens it; all its rows are dead. Not under the lock, and before the group has it. */
int sealed_open(const struct cache *cache, struct sealed *sealed, struct quire_error *err);
/* From now on the group's searches look into it. */
void sealed_join(struct cache *cache, struct sealed *sealed, struct group *group);
/* Takes a segment without entries out of the cache; its folder is removed by sealed_remove_retired. */
void sealed_retire(struct cache *cache, struct sealed *sealed);
/* Removes folders of retired segments that nobody searches any more, when the journal has released them. (without the
 * lock) */
void sealed_remove_retired(struct cache *cache);
int sealed_remove_folder(const struct cache *cache, uint32_t number, struct quire_error *err); /* (without the lock) */
/* Frees all, at the end of the cache; with their folders where it was dropped. */
void sealed_free(struct cache *cache, bool remove);
struct sealed *sealed_ref(struct sealed *sealed); /* any thread */
void sealed_unref(struct sealed *sealed);         /* any thread; NULL is fine */

/* Moves a living entry of the group into a row of a segment that the group has, from memory or from another segment.
 * The caller has logged it. */
void sealed_place(struct cache *cache, uint32_t row, struct sealed *sealed, uint32_t segment_row);
/* While a folder is read: its row in the segment, where it is said to be, lives. */
void sealed_revive(struct cache *cache, uint32_t row, struct sealed *sealed, uint32_t segment_row);
/* An entry dies: its row does, too. Nothing where it is in memory. */
void sealed_kill(struct cache *cache, uint32_t row);
/* Checks that tables, bitmaps, counts and the keys on the disk agree with the entries. (nothing else runs) */
int sealed_check(struct cache *cache, struct quire_error *reason);
/* After a folder was read: opens the segments that entries are in; entries of those that are lost go. (no lock) */
int sealed_restore_end(struct cache *cache, struct quire_error *err);

/* ---- the work behind: seal.c ------------------------------------------------------------------------------------- */

/* How segments of a cache are built. */
void seal_build_options(const struct cache *cache, struct merge_options *out);

/* Seals or merges once, if something is due; may take as long as a build does. True: there may be more. (without the
 * lock; one thread) */
bool seal_work(struct cache *cache, struct cache_scratch *scratch);

/* ---- searching: sealed_search.c ---------------------------------------------------------------------------------- */

enum { CANDIDATES_FIRST = 16 }; /* of the first search in memory; four times as many when all have failed */

struct sealed_hit {
    uint64_t id;
    float distance;  /* squared, of unit vectors, as the graph's */
    float deviation; /* 0: it was measured */
};

struct sealed_part {
    struct search_request request;
    struct sealed *sealed; /* a reference */
    struct cache_search *search;
};

/* One search of all segments of a group. */
struct cache_search {
    struct cache *cache;
    uint64_t seals; /* of the group, when it began: what was sealed since is missing */
    uint32_t k, rounds, n_parts, n_pending, n_hits;
    double similarity;               /* rows that are less similar are not measured */
    struct quire_search_stats stats; /* of all parts */
    float counted_distance;          /* up to which candidates were counted by an earlier round; -1: none was */
    bool full;                       /* there may be more candidates than were found */
    bool moved;                      /* some that were found had been moved to another segment meanwhile */
    int code;                        /* QUIRE_ECANCELLED: it was ended */
    /* What memory had found before, as rows of the graph, nearest first; it holds as long as nothing has arrived. */
    uint32_t arrivals, n_memory;
    bool memory_kept, memory_full;
    struct graph_hit memory[CANDIDATES_FIRST];
    void (*done)(void *owner);
    void *owner;
    struct sealed_hit *hits; /* nearest first */
    float *query;
    struct sealed_part parts[];
};

/* A search of the k nearest in each segment of a group, to be started. Those that are at least as near as `similarity`
 * are measured, what is farther is estimated. Owned by the caller; NULL: no memory. */
struct cache_search *sealed_search_create(struct cache *cache, const struct group *group, const float *unit, uint32_t k,
                                          double similarity);

/* Ids of all entries of segments that are at least as near as `similarity`, ascending, each once. Reads the segments
 * forward. (without the lock) *ids: malloc'd. */
int sealed_near(struct cache *cache, const float *unit, double similarity, uint64_t **ids, size_t *n,
                struct quire_error *err);

#endif
