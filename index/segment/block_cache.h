/*
 * block_cache.h - blocks of one open segment that are kept in memory, shared by the lanes that search it.
 *
 * The cache only ever holds copies: a block that is not there is read from the disk as without a cache. Blocks of a
 * segment never change, so nothing is ever invalidated. All calls but create and destroy are thread-safe.
 */
#ifndef QUIRE_INDEX_BLOCK_CACHE_H
#define QUIRE_INDEX_BLOCK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_CACHE_FRAMES_MIN 16u /* a cache of fewer is refused, unless it holds every block */

struct block_cache;

struct block_cache_stats {
    uint64_t hits, misses;            /* of block_cache_get */
    uint64_t admitted, evicted;       /* blocks that were given a frame, and those that lost one */
    uint64_t remembered;              /* offers of which only the number was kept */
    uint32_t n_frames, n_frames_used; /* places for a block, and those that hold one */
};

/* memory_bytes bounds everything that the cache ever holds: blocks, directory and itself. It takes what it can use of
 * that at once as address space, and memory as blocks come in. block_bytes: a multiple of QUIRE_BLOCK_BYTES_MIN up to
 * QUIRE_BLOCK_BYTES_MAX.
 * QUIRE_EINVALID, QUIRE_ELIMIT (no room for min(n_blocks, BLOCK_CACHE_FRAMES_MIN) blocks) or QUIRE_ENOMEM.
 * Ended by block_cache_destroy. */
int block_cache_create(uint64_t memory_bytes, uint32_t block_bytes, uint32_t n_blocks, struct block_cache **out);
/* No other call may be under way. NULL is allowed. */
void block_cache_destroy(struct block_cache *cache);

/* Copies block (< n_blocks) to `to` (block_bytes) and returns true, or returns false and leaves `to` as it was. */
bool block_cache_get(struct block_cache *cache, uint32_t block, void *to);
/* A block that was not there, has been read and found valid: block_bytes bytes, copied if it is admitted. */
void block_cache_offer(struct block_cache *cache, uint32_t block, const void *bytes);

/* Each shard's counts are of one moment, the sum is not. */
void block_cache_stats(struct block_cache *cache, struct block_cache_stats *out);
/* What it holds when all frames are used, in bytes: at most memory_bytes. */
uint64_t block_cache_bytes(const struct block_cache *cache);
/* Whether frames, ghosts, directory and counts agree; if not, *reason says what does not. Static storage. */
bool block_cache_check(struct block_cache *cache, const char **reason);

#endif
