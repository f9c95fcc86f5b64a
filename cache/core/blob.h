/*
 * blob.h - small pieces of memory by number: what not every entry of a cache has.
 *
 * A blob is a run of cells of 16 bytes in a table that never moves; freed runs are kept in lists by their length. Its
 * number fits into 32 bits where a pointer takes 64, and it costs no allocator's header.
 *
 *   u16 bytes of features, u8 tags, u8 spare, u32 model, f32 own threshold, f32 cost; u64 per tag; features
 *
 * No locks: the caller's.
 */
#ifndef QUIRE_CACHE_BLOB_H
#define QUIRE_CACHE_BLOB_H

#include "index/graph/stable_array.h"

#define BLOB_CELL  16u
#define BLOB_CELLS 72u /* of one blob at most: 64 tags, 512 bytes of features, a head */

struct blob_head {
    uint16_t n_features;
    uint8_t n_tags, spare;
    uint32_t model; /* hash of its name; 0: none */
    float veto;     /* 0: none */
    float cost;     /* USD that a hit saves */
};

struct blobs {
    struct stable_array cells;
    uint32_t n, free[BLOB_CELLS + 1]; /* cells in use ever; first of the list of each length */
    uint64_t bytes;                   /* in living blobs */
};

void blobs_init(struct blobs *blobs);
void blobs_fini(struct blobs *blobs);
/* Bytes of a blob. */
uint32_t blob_bytes(const struct blob_head *head);
/* A number of a new blob of so many bytes, unfilled; 0: no memory. */
uint32_t blob_take(struct blobs *blobs, uint32_t bytes);
void blob_give(struct blobs *blobs, uint32_t blob);
/* 0 gives an empty head. */
const struct blob_head *blob_head(const struct blobs *blobs, uint32_t blob);
static inline const uint64_t *blob_tags(const struct blob_head *head)
{
    return (const uint64_t *)(const void *)(head + 1);
}
static inline const uint8_t *blob_features(const struct blob_head *head)
{
    return (const uint8_t *)(blob_tags(head) + head->n_tags);
}

#endif
