/*
 * block.h - the on-disk unit: a multiple of 4 KiB that holds a group of near vectors and the group's out-edges.
 *
 * Little-endian; structure of arrays behind a header of 64 bytes. An offset of 0 means that the part is absent.
 *   0   u32 magic "QBLK"          4  u8 kind, u8 format version
 *   6   u16 slots per edge list: list i belongs to the slots i * this .. (0: no edges)
 *   8   u32 block number          12 u32 slots in use
 *   16  u64 checksum: XXH3-64 of the bytes from 24 on, seeded with XXH3-64 of the bytes 0..15, itself seeded with the
 *       first 8 bytes of the segment id
 *   24  u32 first row             28 u32 edges
 *   32  u32 offset of ids         u32 per slot: number of the row in the build's input
 *   36  u32 offset of edge codes  per edge: the target's 1-bit navigation code and its two factors (codes.h); absent
 *                                 where those are meant to be resident
 *   40  u32 offset of slots       slot_bytes per slot
 *   44  u32 offset of factors     factor_bytes per slot
 *   48  u32 offset of edges       per list u16 edges, u16 bytes; then the lists: the ascending target rows as LEB128
 *                                 gaps, the first as the zigzag distance from the block's first row
 *   52  u32 offset of keys        per slot: LEB128 of (length * 2 + external), then the bytes, or if external the u64
 *                                 offset of the key in the keys file's heap
 *   56  u32 bytes of edges        60 u32 bytes of keys
 * Valid if and only if: magic, kind and version are known, the checksum is right (which also shows that it is the
 * block of this number and segment that was asked for), and every part lies inside the block.
 */
#ifndef QUIRE_INDEX_BLOCK_H
#define QUIRE_INDEX_BLOCK_H

#include "quire.h"

#define BLOCK_MAGIC              0x4b4c4251u /* "QBLK" */
#define BLOCK_HEADER_BYTES       64u
#define BLOCK_FORMAT_VERSION     2u
#define BLOCK_KEY_INLINE_MAX     64u    /* longer keys stand in the keys file */
#define BLOCK_KEY_EXTERNAL_BYTES 11u    /* most that an external key takes inside the block */
#define BLOCK_LIST_HEADER_BYTES  4u     /* per edge list */
#define BLOCK_LIST_MAX           65535u /* edges, and bytes, of one list */

enum block_kind { BLOCK_PAGEGRAPH = 1 };

/* What all blocks of a segment have in common. */
struct block_shape {
    uint32_t block_bytes, slot_bytes, factor_bytes;
    uint32_t edge_code_bytes; /* 0: blocks carry no edge codes */
};

/* A checked view of a block in memory. Pointers into the block. */
struct block_view {
    const uint8_t *base;
    uint32_t number, first_row, n_slots, n_edges;
    uint32_t list_slots, n_lists;
    const uint8_t *ids, *slots, *factors, *edges, *edge_codes, *keys; /* edge_codes, keys NULL: none */
    uint32_t edges_bytes, keys_bytes;
};

/* What a writer puts in a block. Arrays are the caller's. */
struct block_parts {
    uint32_t number, first_row, n_slots;
    const uint32_t *ids;
    const uint8_t *slots;
    uint32_t slot_bytes;
    const uint8_t *factors;
    uint32_t factor_bytes; /* per slot; 0: none */
    const uint8_t *edges;  /* headers of the lists, then the lists */
    uint32_t n_edges, edges_bytes, list_slots;
    const uint8_t *edge_codes; /* in the order of the edges; NULL: none */
    uint32_t edge_code_bytes;  /* per edge */
    const uint8_t *keys;       /* encoded; NULL: none */
    uint32_t keys_bytes;
};

/* Bytes that header, ids, slots, factors and keys take; what is left of a block is for edges. */
uint32_t block_fixed_bytes(uint32_t n_slots, uint32_t slot_bytes, uint32_t factor_bytes, uint32_t keys_bytes);
/* Fills block_bytes at `block`. The parts must fit (asserted). */
void block_write(uint8_t *block, uint32_t block_bytes, const struct block_parts *parts, const uint8_t segment_id[16]);
/* Checks and opens; without segment_id the checksum counts as checked before. QUIRE_ECORRUPT with a sentence in err
 * that says what is wrong (the caller adds file and offset). */
int block_open(const uint8_t *block, const struct block_shape *shape, uint32_t number, const uint8_t segment_id[16],
               struct block_view *out, struct quire_error *err);

/* Decodes the ascending target rows of one list into out (room for n_edges); *first: how many edges the lists before
 * it have. Returns their number, or QUIRE_ECORRUPT if they do not decode. */
int block_edges(const struct block_view *view, uint32_t list, uint32_t *out, uint32_t *first);
/* Encodes a list of ascending rows without its header; returns the bytes, at most 5 per row. */
uint32_t block_edges_encode(const uint32_t *rows, uint32_t n, uint32_t first_row, uint8_t *out);
void block_list_header(uint32_t n, uint32_t bytes, uint8_t out[BLOCK_LIST_HEADER_BYTES]);

struct block_key {
    const uint8_t *bytes; /* NULL when external */
    uint32_t length;
    uint64_t external_at; /* offset in the heap of the keys file */
};
/* The key of a slot. QUIRE_ECORRUPT if the part does not decode. Cost: linear in slot. */
int block_key(const struct block_view *view, uint32_t slot, struct block_key *out);
/* Appends one key record; returns its bytes. out: room for BLOCK_KEY_INLINE_MAX + 11. */
uint32_t block_key_encode(const void *key, uint32_t length, bool external, uint64_t external_at, uint8_t *out);

#endif
