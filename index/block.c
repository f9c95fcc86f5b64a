/*
 * block.c - writing, checking and reading blocks.
 *
 * Rows are location-coded: slot s of block b is row b * slots_per_block + s, so a block needs no row numbers and an
 * edge is one number. Edges of all slots are merged into one ascending list: near rows share neighbours, a list of
 * sorted rows in tree order has gaps of one byte mostly (1.03 to 1.10 bytes per edge measured, against 4), and reading
 * a block offers them all. What is lost is which slot an edge belongs to; the search does not ask.
 *
 * Bytes from disk are never trusted: every part is checked against the block's size before a pointer to it is made,
 * and decoding stops at its end. The checksum comes first, so that a failure of the later checks means a writer's bug
 * or a forged file, not a flipped bit.
 */
#include "index/block.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <string.h>
#include <xxhash.h>

static uint64_t block_checksum(const uint8_t *block, uint32_t block_bytes, const uint8_t segment_id[16])
{
    uint64_t head = XXH3_64bits_withSeed(block, 16, load_u64(segment_id));
    return XXH3_64bits_withSeed(block + 24, block_bytes - 24, head);
}

static uint32_t align8(uint32_t n)
{
    return (n + 7) & ~7u;
}

uint32_t block_fixed_bytes(uint32_t n_slots, uint32_t slot_bytes, uint32_t factor_bytes, uint32_t keys_bytes)
{
    return BLOCK_HEADER_BYTES + align8(4 * n_slots) + align8(n_slots * slot_bytes) + align8(n_slots * factor_bytes) +
           align8(keys_bytes);
}

/* Copies a part to *at, moves *at on, and returns where it lies; 0 for an empty part. */
static uint32_t put_part(uint8_t *block, uint32_t block_bytes, uint32_t *at, const void *data, uint32_t bytes)
{
    uint32_t offset = *at;
    if (bytes == 0)
        return 0;
    assert(offset + bytes <= block_bytes);
    (void)block_bytes;
    memcpy(block + offset, data, bytes);
    *at = align8(offset + bytes);
    return offset;
}

void block_write(uint8_t *block, uint32_t block_bytes, const struct block_parts *parts, const uint8_t segment_id[16])
{
    uint32_t at = BLOCK_HEADER_BYTES;
    memset(block, 0, block_bytes);
    store_u32(block, BLOCK_MAGIC);
    block[4] = BLOCK_PAGEGRAPH;
    block[5] = BLOCK_FORMAT_VERSION;
    store_u32(block + 8, parts->number);
    store_u32(block + 12, parts->n_slots);
    store_u32(block + 24, parts->first_row);
    store_u32(block + 28, parts->n_edges);
    uint32_t ids_at = at;
    for (uint32_t i = 0; i < parts->n_slots; i++)
        store_u32(block + ids_at + 4 * i, parts->ids[i]);
    at = align8(at + 4 * parts->n_slots);
    store_u32(block + 32, ids_at);
    store_u32(block + 40, put_part(block, block_bytes, &at, parts->slots, parts->n_slots * parts->slot_bytes));
    store_u32(block + 44, put_part(block, block_bytes, &at, parts->factors, parts->n_slots * parts->factor_bytes));
    store_u32(block + 52, put_part(block, block_bytes, &at, parts->keys, parts->keys_bytes));
    store_u32(block + 48, put_part(block, block_bytes, &at, parts->edges, parts->edges_bytes));
    store_u32(block + 56, parts->edges_bytes);
    store_u32(block + 60, parts->keys_bytes);
    store_u64(block + 16, block_checksum(block, block_bytes, segment_id));
}

/* True when [offset, offset + bytes) is a part inside the block, or absent and empty. */
static bool part_fits(uint32_t offset, uint64_t bytes, uint32_t block_bytes)
{
    if (offset == 0)
        return bytes == 0;
    return offset >= BLOCK_HEADER_BYTES && bytes <= block_bytes && offset <= block_bytes - bytes;
}

int block_open(const uint8_t *block, uint32_t block_bytes, uint32_t number, uint32_t slot_bytes, uint32_t factor_bytes,
               const uint8_t segment_id[16], struct block_view *out, struct quire_error *err)
{
    if (load_u32(block) != BLOCK_MAGIC)
        return error_set(err, QUIRE_ECORRUPT, "magic is %08x, expected %08x", load_u32(block), BLOCK_MAGIC);
    uint64_t stated = load_u64(block + 16), found = block_checksum(block, block_bytes, segment_id);
    if (stated != found)
        return error_set(err, QUIRE_ECORRUPT, "checksum is %016llx, expected %016llx", (unsigned long long)found,
                         (unsigned long long)stated);
    if (block[4] != BLOCK_PAGEGRAPH || block[5] != BLOCK_FORMAT_VERSION)
        return error_set(err, QUIRE_EVERSION, "block kind %u version %u, this build reads kind %u version %u", block[4],
                         block[5], BLOCK_PAGEGRAPH, BLOCK_FORMAT_VERSION);
    if (load_u32(block + 8) != number)
        return error_set(err, QUIRE_ECORRUPT, "block says it is number %u, expected %u", load_u32(block + 8), number);
    uint64_t n = load_u32(block + 12);
    uint32_t ids = load_u32(block + 32), slots = load_u32(block + 40), factors = load_u32(block + 44);
    uint32_t edges = load_u32(block + 48), keys = load_u32(block + 52);
    uint32_t edges_bytes = load_u32(block + 56), keys_bytes = load_u32(block + 60);
    if (n == 0 || !part_fits(ids, 4 * n, block_bytes) || !part_fits(slots, n * slot_bytes, block_bytes) ||
        !part_fits(factors, n * factor_bytes, block_bytes) || !part_fits(edges, edges_bytes, block_bytes) ||
        !part_fits(keys, keys_bytes, block_bytes) || load_u32(block + 28) > edges_bytes)
        return error_set(err, QUIRE_ECORRUPT, "a part lies outside the block (%u slots)", (unsigned)n);
    *out = (struct block_view){.base = block,
                               .number = number,
                               .first_row = load_u32(block + 24),
                               .n_slots = (uint32_t)n,
                               .n_edges = load_u32(block + 28),
                               .ids = block + ids,
                               .slots = block + slots,
                               .factors = factors ? block + factors : NULL,
                               .edges = block + edges,
                               .keys = keys ? block + keys : NULL,
                               .edges_bytes = edges_bytes,
                               .keys_bytes = keys_bytes};
    return 0;
}

/* One LEB128 number of at most 35 bits; returns the place behind it, NULL at the end of the part. */
static const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
        if (p == end)
            return NULL;
        uint8_t byte = *p++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return p;
        }
    }
    return NULL;
}

static uint32_t put_varint(uint64_t value, uint8_t *out)
{
    uint32_t n = 0;
    for (; value >= 0x80; value >>= 7)
        out[n++] = (uint8_t)(value | 0x80);
    out[n++] = (uint8_t)value;
    return n;
}

int block_edges(const struct block_view *view, uint32_t *out)
{
    const uint8_t *p = view->edges, *end = p + view->edges_bytes;
    uint64_t row = 0, gap;
    for (uint32_t i = 0; i < view->n_edges; i++) {
        p = varint(p, end, &gap);
        if (!p || (row += gap) > UINT32_MAX)
            return QUIRE_ECORRUPT;
        out[i] = (uint32_t)row;
    }
    return 0;
}

uint32_t block_edges_encode(const uint32_t *rows, uint32_t n, uint8_t *out)
{
    uint32_t bytes = 0, before = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += put_varint(rows[i] - before, out + bytes);
        before = rows[i];
    }
    return bytes;
}

int block_key(const struct block_view *view, uint32_t slot, struct block_key *out)
{
    const uint8_t *p = view->keys, *end = p + view->keys_bytes;
    uint64_t head = 0;
    for (uint32_t i = 0; i <= slot; i++) {
        p = p ? varint(p, end, &head) : NULL;
        uint64_t bytes = head & 1 ? 8 : head >> 1;
        if (!p || bytes > (uint64_t)(end - p))
            return QUIRE_ECORRUPT;
        if (i < slot)
            p += bytes;
    }
    if (head >> 1 > QUIRE_KEY_BYTES_MAX || (!(head & 1) && head >> 1 > BLOCK_KEY_INLINE_MAX))
        return QUIRE_ECORRUPT;
    out->length = (uint32_t)(head >> 1);
    out->bytes = head & 1 ? NULL : p;
    out->external_at = head & 1 ? load_u64(p) : 0;
    return 0;
}

uint32_t block_key_encode(const void *key, uint32_t length, bool external, uint64_t external_at, uint8_t *out)
{
    uint32_t n = put_varint((uint64_t)length << 1 | external, out);
    if (external) {
        store_u64(out + n, external_at);
        return n + 8;
    }
    memcpy(out + n, key, length);
    return n + length;
}
