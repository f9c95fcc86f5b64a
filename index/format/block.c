/*
 * block.c - writing, checking and reading blocks.
 *
 * Rows are location-coded: slot s of block b is row b * slots_per_block + s, so a block needs no row numbers and an
 * edge is one number. Edges of a few neighbouring slots are merged into one ascending list: near rows share neighbours,
 * and sorted rows in tree order have gaps of little more than a byte. A search decodes the lists of the slots that
 * turned out near the query and skips the others.
 *
 * Bytes from disk are never trusted: every part is checked against the block's size before a pointer to it is made,
 * and decoding stops at its end. The checksum comes first, so that a failure of the later checks means a writer's bug
 * or a forged file, not a flipped bit.
 */
#include "index/format/block.h"
#include "index/vector/varint.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <string.h>
#include <xxhash.h>

static uint64_t block_checksum(const uint8_t *block, uint32_t block_bytes, const uint8_t segment_id[16])
{
    uint64_t head = XXH3_64bits_withSeed(block, 16, bytes_load_u64(segment_id));
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
    assert(parts->n_slots > 0 &&
           block_fixed_bytes(parts->n_slots, parts->slot_bytes, parts->factor_bytes, parts->keys_bytes) <= block_bytes);
    assert(parts->n_edges == 0 || parts->list_slots > 0);
    memset(block, 0, block_bytes);
    bytes_store_u32(block, BLOCK_MAGIC);
    block[4] = BLOCK_PAGEGRAPH;
    block[5] = BLOCK_FORMAT_VERSION;
    bytes_store_u16(block + 6, (uint16_t)parts->list_slots);
    bytes_store_u32(block + 8, parts->number);
    bytes_store_u32(block + 12, parts->n_slots);
    bytes_store_u32(block + 24, parts->first_row);
    bytes_store_u32(block + 28, parts->n_edges);
    uint32_t ids_at = at;
    for (uint32_t i = 0; i < parts->n_slots; i++)
        bytes_store_u32(block + ids_at + 4 * i, parts->ids[i]);
    at = align8(at + 4 * parts->n_slots);
    bytes_store_u32(block + 32, ids_at);
    bytes_store_u32(block + 40, put_part(block, block_bytes, &at, parts->slots, parts->n_slots * parts->slot_bytes));
    bytes_store_u32(block + 44,
                    put_part(block, block_bytes, &at, parts->factors, parts->n_slots * parts->factor_bytes));
    bytes_store_u32(block + 52, put_part(block, block_bytes, &at, parts->keys, parts->keys_bytes));
    bytes_store_u32(block + 48, put_part(block, block_bytes, &at, parts->edges, parts->edges_bytes));
    bytes_store_u32(block + 36,
                    put_part(block, block_bytes, &at, parts->edge_codes, parts->n_edges * parts->edge_code_bytes));
    bytes_store_u32(block + 56, parts->edges_bytes);
    bytes_store_u32(block + 60, parts->keys_bytes);
    bytes_store_u64(block + 16, block_checksum(block, block_bytes, segment_id));
}

/* True when [offset, offset + bytes) is a part inside the block, or absent and empty. */
static bool part_fits(uint32_t offset, uint64_t bytes, uint32_t block_bytes)
{
    if (offset == 0)
        return bytes == 0;
    return offset >= BLOCK_HEADER_BYTES && bytes <= block_bytes && offset <= block_bytes - bytes;
}

/* The headers of the lists lie inside the part and add up to it. */
static bool lists_fit(const struct block_view *v)
{
    uint64_t bytes = (uint64_t)v->n_lists * BLOCK_LIST_HEADER_BYTES, edges = 0;
    if (bytes > v->edges_bytes)
        return false;
    for (uint32_t i = 0; i < v->n_lists; i++) {
        uint32_t n = bytes_load_u16(v->edges + 4 * (size_t)i), length = bytes_load_u16(v->edges + 4 * (size_t)i + 2);
        if (n > length)
            return false;
        edges += n;
        bytes += length;
    }
    return bytes == v->edges_bytes && edges == v->n_edges;
}

int block_open(const uint8_t *block, const struct block_shape *shape, uint32_t number, const uint8_t segment_id[16],
               struct block_view *out, struct quire_error *err)
{
    const uint32_t block_bytes = shape->block_bytes;
    if (bytes_load_u32(block) != BLOCK_MAGIC)
        return error_set(err, QUIRE_ECORRUPT, "magic is %08x, expected %08x", bytes_load_u32(block), BLOCK_MAGIC);
    uint64_t stated = bytes_load_u64(block + 16),
             found = segment_id ? block_checksum(block, block_bytes, segment_id) : stated;
    if (stated != found)
        return error_set(err, QUIRE_ECORRUPT, "checksum is %016llx, expected %016llx", (unsigned long long)found,
                         (unsigned long long)stated);
    if (block[4] != BLOCK_PAGEGRAPH || block[5] != BLOCK_FORMAT_VERSION)
        return error_set(err, QUIRE_EVERSION, "block kind %u version %u, this build reads kind %u version %u", block[4],
                         block[5], BLOCK_PAGEGRAPH, BLOCK_FORMAT_VERSION);
    if (bytes_load_u32(block + 8) != number)
        return error_set(err, QUIRE_ECORRUPT, "block says it is number %u, expected %u", bytes_load_u32(block + 8),
                         number);
    uint64_t n = bytes_load_u32(block + 12);
    uint32_t ids = bytes_load_u32(block + 32), slots = bytes_load_u32(block + 40), factors = bytes_load_u32(block + 44);
    uint32_t edges = bytes_load_u32(block + 48), keys = bytes_load_u32(block + 52), codes = bytes_load_u32(block + 36);
    uint32_t edges_bytes = bytes_load_u32(block + 56), keys_bytes = bytes_load_u32(block + 60),
             list_slots = bytes_load_u16(block + 6);
    uint64_t n_edges = bytes_load_u32(block + 28);
    if (n == 0 || !part_fits(ids, 4 * n, block_bytes) || !part_fits(slots, n * shape->slot_bytes, block_bytes) ||
        !part_fits(factors, n * shape->factor_bytes, block_bytes) || !part_fits(edges, edges_bytes, block_bytes) ||
        !part_fits(keys, keys_bytes, block_bytes) || !part_fits(codes, n_edges * shape->edge_code_bytes, block_bytes) ||
        (n_edges && !list_slots))
        return error_set(err, QUIRE_ECORRUPT, "a part lies outside the block (%u slots)", (unsigned)n);
    *out = (struct block_view){.base = block,
                               .number = number,
                               .first_row = bytes_load_u32(block + 24),
                               .n_slots = (uint32_t)n,
                               .n_edges = (uint32_t)n_edges,
                               .list_slots = list_slots,
                               .n_lists = list_slots ? ((uint32_t)n + list_slots - 1) / list_slots : 0,
                               .ids = block + ids,
                               .slots = block + slots,
                               .factors = factors ? block + factors : NULL,
                               .edges = block + edges,
                               .edge_codes = codes ? block + codes : NULL,
                               .keys = keys ? block + keys : NULL,
                               .edges_bytes = edges_bytes,
                               .keys_bytes = keys_bytes};
    if (!lists_fit(out))
        return error_set(err, QUIRE_ECORRUPT, "%u edge lists do not add up to %u edges in %u bytes", out->n_lists,
                         out->n_edges, edges_bytes);
    return 0;
}

int block_edges(const struct block_view *view, uint32_t list, uint32_t *out, uint32_t *first)
{
    const uint8_t *header = view->edges, *p = header + (size_t)view->n_lists * BLOCK_LIST_HEADER_BYTES;
    *first = 0;
    assert(list < view->n_lists);
    for (uint32_t i = 0; i < list; i++, header += BLOCK_LIST_HEADER_BYTES) {
        *first += bytes_load_u16(header);
        p += bytes_load_u16(header + 2);
    }
    uint32_t n = bytes_load_u16(header);
    const uint8_t *end = p + bytes_load_u16(header + 2);
    uint64_t row = view->first_row, gap;
    for (uint32_t i = 0; i < n; i++) {
        p = varint_get(p, end, &gap);
        if (!p)
            return QUIRE_ECORRUPT;
        row += i > 0 || !(gap & 1) ? gap >> (i == 0) : ~(gap >> 1);
        if (row > UINT32_MAX)
            return QUIRE_ECORRUPT;
        out[i] = (uint32_t)row;
    }
    return p == end ? (int)n : QUIRE_ECORRUPT;
}

uint32_t block_edges_encode(const uint32_t *rows, uint32_t n, uint32_t first_row, uint8_t *out)
{
    if (n == 0)
        return 0;
    bool back = rows[0] < first_row;
    uint64_t distance = back ? first_row - rows[0] - 1 : rows[0] - first_row;
    uint32_t bytes = varint_put(distance << 1 | back, out);
    for (uint32_t i = 1; i < n; i++) {
        assert(rows[i] > rows[i - 1]);
        bytes += varint_put(rows[i] - rows[i - 1], out + bytes);
    }
    return bytes;
}

void block_list_header(uint32_t n, uint32_t bytes, uint8_t out[BLOCK_LIST_HEADER_BYTES])
{
    assert(n <= BLOCK_LIST_MAX && bytes <= BLOCK_LIST_MAX);
    bytes_store_u16(out, (uint16_t)n);
    bytes_store_u16(out + 2, (uint16_t)bytes);
}

int block_key(const struct block_view *view, uint32_t slot, struct block_key *out)
{
    const uint8_t *p = view->keys, *end = p + view->keys_bytes;
    uint64_t head = 0;
    for (uint32_t i = 0; i <= slot; i++) {
        p = p ? varint_get(p, end, &head) : NULL;
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
    out->external_at = head & 1 ? bytes_load_u64(p) : 0;
    return 0;
}

uint32_t block_key_encode(const void *key, uint32_t length, bool external, uint64_t external_at, uint8_t *out)
{
    uint32_t n = varint_put((uint64_t)length << 1 | external, out);
    if (external) {
        bytes_store_u64(out + n, external_at);
        return n + 8;
    }
    memcpy(out + n, key, length);
    return n + length;
}
