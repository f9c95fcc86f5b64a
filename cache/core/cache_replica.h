/* cache_replica.h - caches that are held on several nodes: what the one that leads tells, and what the others do.
 *
 * A leader tells each change of a cache as it was done (an effect: the answer's document and its vector, ids that went,
 * an expiry as a moment), under the cache's lock and numbered without a gap. A follower does effects in their order and
 * nothing of its own: it evicts nothing and lets nothing expire, but does not answer with what is over. Entries have
 * the same ids on all nodes, as numbers of entries are the leader's. Where vectors lie is each node's own affair.
 *
 * A history is the numbers of one leader, from one image on. Who has another history, or missed a number, is brought
 * up to date without its entries being thrown away:
 *
 *   image     what there is but entries: settings, categories, curves, invalidations; and as of which number
 *   list      ids of entries with what tells two of one id apart, by number of the entry, some thousands at a time
 *   entries   those of a list that are not here, asked for by their ids
 *
 * Lists and entries come on another way than effects, and neither waits for the other: a number of an entry that an
 * effect has settled since the image is not changed by a list any more (copying.known). What a list does not confirm
 * goes. While this lasts the cache is not whole (cache_standing).
 *
 *   frame     u32 magic "QCRE", u8 version, u8 kind, u16 0, u64 history, u64 number, u32 bytes, u32 bytes of the
 *             document behind them, u64 checksum: XXH3-64 of `bytes` with zero here (a document has its own)
 *   1 IMAGE         u8 type, u8 scope is required, u32 dimensions, u64 memory, u64 disk, piece encoder, u32 n, n pieces
 *                   scope keys, u64 seed of vectors, u64 x 2 secret of tokens, u64 history and u64 number that this
 *                   one goes on from (0: none), u64 entries, u64 epoch, u32 n, n times a CATEGORY with u8 whether it
 *                   was dropped and a piece curve (empty: nothing was learnt), u32 n, n times an EPOCH
 *   2 PUT           u64 id, u64 word, f32 own threshold, u32 uses, u32 category, f32 f, f32 squared length, piece code
 *                   (empty: it has no vector); document
 *   3 GONE          u64 ids
 *   4 CHANGE        u64 id, u64 word, f32 own threshold
 *   5 EPOCH         as in the journal, without the number of the cache
 *   6 CURVE         u32 category, piece curve
 *   7 CATEGORY      u32 number, piece name, piece settings as words
 *   8 CATEGORY_DROP u32 number
 *   9 LIST          u32 first number of an entry, u32 that the next list begins with (2^32 - 1: none), then u64 id, u64
 *                   print, u64 word, f32 own threshold, by ascending numbers
 *  10 ENTRIES       PUTs, each with a piece document
 *
 * A word has the expiry and the flags of an entry; a piece is u32 bytes and the bytes (docs/format.md).
 *
 * Threads: any. A host calls the functions of effects from one thread, in the order of numbers.
 */
#ifndef QUIRE_CACHE_CACHE_REPLICA_H
#define QUIRE_CACHE_CACHE_REPLICA_H

#include "cache/core/cache.h"

struct engine;

enum {
    CACHE_LIST_ENTRIES = 4096,     /* of a list at most */
    CACHE_ENTRIES_BYTES = 1 << 20, /* that an answer with entries grows to, and beyond by one entry */
    CACHE_FRAME_BYTES = 40         /* of its head */
};

/* One effect; whoever is told frees both. */
struct cache_told {
    uint8_t *bytes;    /* owned; NULL: no memory. Followers find a gap then */
    uint8_t *document; /* owned, behind them; NULL: none */
    uint32_t n, document_bytes;
};

/* ---- a node that leads ------------------------------------------------------------------------------------------- */

/* From now on, or no longer, changes are told to caches_options.told. A new history begins, unless it tells already. No
 * effect on a cache that follows. */
void cache_tell(struct cache *cache, bool tells);
/* The end of following: what was not confirmed since the last image goes, as it may have been removed where the lead
 * was before. tells: as cache_tell, and the new history says what it goes on from, so that others that are as far need
 * no copy. */
void cache_lead(struct cache *cache, bool tells);
/* These are for followers; *bytes: malloc'd. QUIRE_EBUSY: it is being copied itself. */
int cache_copy_image(struct cache *cache, uint8_t **bytes, size_t *n, struct quire_error *err);
int cache_copy_list(struct cache *cache, uint32_t first, uint8_t **bytes, size_t *n, struct quire_error *err);
/* Entries of ids that live, in their order, at least one and as many as CACHE_ENTRIES_BYTES takes; those that cannot be
 * read are left out. *done: how many of the ids were looked at. Reads the disk. */
int cache_copy_entries(struct cache *cache, struct engine *engine, const uint64_t *ids, uint32_t n_ids, uint8_t **bytes,
                       size_t *n, uint32_t *done, struct quire_error *err);

/* ---- a node that follows ----------------------------------------------------------------------------------------- */

/* From now on it changes by what comes from its leader, alone. QUIRE_ENOMEM. */
int cache_follow(struct cache *cache, struct quire_error *err);
/* Takes an image of the cache `name`: makes it, or anew where it was made otherwise, and follows. QUIRE_ECORRUPT,
 * QUIRE_EVERSION and what caches_add says. */
int caches_take_image(struct caches *caches, struct quire_bytes name, const uint8_t *bytes, size_t n, uint64_t *lsn,
                      struct quire_error *err);
/* Does an effect. *lsn 0: it was done before. QUIRE_ESTALE: it is of another history, or not the next one;
 * QUIRE_ECORRUPT, QUIRE_EVERSION, and what the disk says: then an image is needed. */
int cache_take_effect(struct cache *cache, struct cache_scratch *scratch, const uint8_t *bytes, size_t n, uint64_t *lsn,
                      struct quire_error *err);
/* Compares with a list: what it does not have goes. Ids of what is not here into lacking (CACHE_LIST_ENTRIES), and
 * where the next list is to begin: UINT32_MAX: this was the last. QUIRE_ESTALE: another image is needed. */
int cache_take_list(struct cache *cache, const uint8_t *bytes, size_t n, uint64_t *lacking, uint32_t *n_lacking,
                    uint32_t *next, struct quire_error *err);
/* *taken: how many became entries. */
int cache_take_entries(struct cache *cache, struct cache_scratch *scratch, const uint8_t *bytes, size_t n,
                       uint32_t *taken, struct quire_error *err);
/* After the last list and its entries: whole from here on, or as soon as effects have come as far as the lists. */
int cache_take_end(struct cache *cache, struct quire_error *err);

struct cache_standing {
    bool follows, tells;
    bool is_copying; /* it lacks entries that its leader has */
    bool is_listed;  /* copying: all lists have come, and effects are to come as far as they were */
    uint64_t history, seq;
    uint64_t entries;
};
void cache_get_standing(struct cache *cache, struct cache_standing *out);

#endif
