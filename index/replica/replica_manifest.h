/*
 * replica_manifest.h - a collection at one moment as few bytes: what it is, its identity and number, the ids of its
 * segments with their tombstones, and the rows of its memtables. Files of segments are not in it: they are asked for by
 * id (replica_fetch.h).
 */
#ifndef QUIRE_INDEX_REPLICA_MANIFEST_H
#define QUIRE_INDEX_REPLICA_MANIFEST_H

#include "index/collection/lineage.h"
#include "index/store/store.h"

#define REPLICA_MANIFEST_VERSION 1u

/* Owned by the caller. Reads no file, so that it can be made in a child of a fork that store_fork_prepare stood before.
 * QUIRE_EBUSY: a copy that waits for segments itself. QUIRE_ENOTFOUND: no identity. */
int replica_manifest_make(struct collection *collection, uint8_t **bytes, size_t *n_bytes, struct quire_error *err);

/* What a manifest says without being loaded. */
struct replica_manifest_info {
    struct lineage_identity identity;
    uint32_t n_segments;
    uint64_t memory_rows, segment_rows, segment_bytes;
};
int replica_manifest_read(const uint8_t *bytes, size_t n, struct replica_manifest_info *out, struct quire_error *err);

/* A new collection of the store, a replica, with what the manifest has: rows of memtables at once; segments that `old`
 * (NULL: none) has are taken from there by hard links; the others are told of, and the copy is whole when they have
 * been fetched. The caller gets a reference; on failure nothing of it is left. Blocks: opens segments. */
int replica_manifest_load(struct store *store, const uint8_t *bytes, size_t n, struct collection *old,
                          struct collection **out, struct quire_error *err);

#endif
