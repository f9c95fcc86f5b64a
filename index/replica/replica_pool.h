/*
 * replica_pool.h - segments that copies may still ask for: those of the collections as they are, and those that were
 * merged away a while ago or that a manifest names (a lease), which stay until they are let go or their time is over.
 *
 * What is held is a part: its files stay as long as somebody holds it, and so does what it has in memory. `bytes_max`
 * bounds the files of what nobody but the pool holds; beyond it the oldest go first, and who wanted them must be copied
 * anew. After a start nothing is held. Thread-safe.
 */
#ifndef QUIRE_INDEX_REPLICA_POOL_H
#define QUIRE_INDEX_REPLICA_POOL_H

#include "index/replica/replica_fetch.h"

struct replica_pool;
int replica_pool_create(struct store *store, uint64_t keep_ms, uint64_t bytes_max, struct replica_pool **out,
                        struct quire_error *err);
void replica_pool_destroy(struct replica_pool *pool); /* before the store; NULL is fine */

/* From the host's `effect`: keeps what a publication takes away. Cheap. */
void replica_pool_note(struct replica_pool *pool, const struct effect *effect);
/* Keeps all segments that the collection has now, for ms without a read of them: for who gets its manifest next. Before
 * the manifest is made, in the parent of a fork before it. */
int replica_pool_lease(struct replica_pool *pool, struct collection *collection, uint64_t ms, uint64_t *lease,
                       struct quire_error *err);
/* False: it is over, or none. */
bool replica_pool_release(struct replica_pool *pool, uint64_t lease);
/* Lets go of what is over. Now and then, from a thread that may wait. */
void replica_pool_tick(struct replica_pool *pool);
struct replica_pool_stats {
    uint64_t segments, bytes, leases;
};
void replica_pool_get_stats(struct replica_pool *pool, struct replica_pool_stats *out);

/* The files of a segment, at most n: how many there are. QUIRE_ENOTFOUND: it is neither held nor the collection's. */
int replica_pool_files(struct replica_pool *pool, struct collection *collection,
                       const uint8_t segment[LINEAGE_ID_BYTES], struct replica_file *out, uint32_t n,
                       struct quire_error *err);
/* Bytes of a file; returns how many, fewer only at its end. Blocks. */
int64_t replica_pool_read(struct replica_pool *pool, struct collection *collection,
                          const uint8_t segment[LINEAGE_ID_BYTES], const char *name, uint64_t offset, void *bytes,
                          uint32_t n, struct quire_error *err);

#endif
