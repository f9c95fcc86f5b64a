/*
 * posting_block.h - an inverted list on the disk: the rows near a head, each as a short code relative to it.
 *
 * A posting block is a whole number of 4 KiB pages, read at once. Little-endian; with n entries, the first `own` of
 * which are the rows of the list's cluster, and N = n rounded up to a multiple of 32:
 *   0   u32 magic "QPST"          4  u8 kind 2, u8 format version 1, u16 0
 *   8   u32 number of the list    12 u32 entries n
 *   16  u64 checksum: XXH3-64 of the bytes from 24 on, seeded with XXH3-64 of the bytes 0..15, itself seeded with the
 *       first 8 bytes of the segment id
 *   24  u32 first row of the cluster, whose rows are consecutive
 *   28  u32 own                   32 u32 bits of the codes    36 u32 bytes of the block      40 zero to 64
 *   64  u32 per replica (n - own): its row, ascending; padded with 0 to a multiple of 64 bytes
 *   ..  u16 pairs, N of them: half floats A / scale_a, f / scale_f (build_codes.c), padded to a multiple of 64 bytes
 *   ..  N / 32 groups of 32 interleaved codes (codes.h, code_group_put); zero to the end
 * Places behind n are zero. A row that stands in several lists has a code relative to each list's head.
 */
#ifndef QUIRE_INDEX_POSTING_BLOCK_H
#define QUIRE_INDEX_POSTING_BLOCK_H

#include "index/vector/codes.h"

#define POSTING_MAGIC          0x54535051u /* "QPST" */
#define POSTING_KIND           2u
#define POSTING_FORMAT_VERSION 1u
#define POSTING_HEADER_BYTES   64u
#define POSTING_BYTES_MAX      (1u << 20)
#define POSTING_COPIES_MAX     8u /* of a row, its own included */

/* A line of the directory: CODES_LISTS of the codes file has one per list. */
#define LIST_ENTRY_BYTES 24u
struct list_entry {
    uint32_t page;       /* where its posting block begins, in pages of 4 KiB from the section's start */
    uint32_t entries;    /* own rows and replicas */
    uint32_t first, own; /* rows of the cluster */
    float rms;           /* root mean square distance of its entries from the head */
    float radius;        /* distance of the farthest one */
};

/* Where the parts of a posting block lie. */
struct posting_block_shape {
    uint32_t ids, factors, groups, n_groups, group_bytes;
    uint32_t bytes; /* of all, a multiple of 4096 */
};
/* False: it would be larger than POSTING_BYTES_MAX, or has fewer entries than own rows. */
bool posting_block_shape(uint32_t entries, uint32_t own, uint32_t code_dim, unsigned bits,
                         struct posting_block_shape *out);
/* The most entries that such a posting block of `bytes` holds, if half of them are replicas; at least 1. */
uint32_t posting_block_entries_that_fit(uint32_t bytes, uint32_t code_dim, unsigned bits);

/* A checked view of a posting block in memory. Pointers into it. */
struct posting_block_view {
    uint32_t number, entries, first, own;
    const uint8_t *ids, *factors, *groups;
    uint32_t n_groups, group_bytes;
};
/* Writes header and checksum over a posting block whose parts are in place and the rest of which is zero. */
void posting_block_seal(uint8_t *posting, uint32_t number, const struct list_entry *entry, unsigned bits,
                        const struct posting_block_shape *shape, const uint8_t segment_id[16]);
/* Checks that `posting` is what the directory says of list `number`. Without segment_id the checksum counts as checked
 * before. QUIRE_ECORRUPT with a sentence in err that says what is wrong. */
int posting_block_open(const uint8_t *posting, uint32_t number, const struct list_entry *entry, uint32_t code_dim,
                       unsigned bits, uint64_t rows, const uint8_t segment_id[16], struct posting_block_view *out,
                       struct quire_error *err);
/* The row of an entry. */
uint32_t posting_block_row(const struct posting_block_view *view, uint32_t i);

void posting_list_encode(const struct list_entry *entry, uint8_t out[LIST_ENTRY_BYTES]);
void posting_list_decode(const uint8_t in[LIST_ENTRY_BYTES], struct list_entry *out);

#endif
