/*
 * posting_block.c - the bytes of an inverted list, written and believed.
 *
 * The directory in memory says how many entries a list has and where it lies, so that a reader knows the size before it
 * reads; header and checksum then show that the bytes are this list of this segment and whole. Rows are checked
 * against the segment's number of rows once, when the posting block is opened, so that whoever scans it need not.
 */
#include "index/format/posting_block.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/sections.h"
#include <assert.h>
#include <string.h>
#include <xxhash.h>

#define LINE 64u

static uint64_t aligned(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

bool posting_block_shape(uint32_t entries, uint32_t own, uint32_t code_dim, unsigned bits,
                         struct posting_block_shape *out)
{
    uint64_t groups = ((uint64_t)entries + CODE_GROUP - 1) / CODE_GROUP;
    uint64_t group_bytes = code_group_bytes(code_dim, bits);
    uint64_t factors = POSTING_HEADER_BYTES + aligned(4 * (uint64_t)(entries - own), LINE);
    uint64_t codes = factors + aligned(4 * groups * CODE_GROUP, LINE);
    uint64_t bytes = aligned(codes + groups * group_bytes, SECTION_ALIGN);
    if (own > entries || bytes > POSTING_BYTES_MAX)
        return false;
    *out = (struct posting_block_shape){POSTING_HEADER_BYTES, (uint32_t)factors,     (uint32_t)codes,
                                        (uint32_t)groups,     (uint32_t)group_bytes, (uint32_t)bytes};
    return true;
}

uint32_t posting_block_entries_that_fit(uint32_t bytes, uint32_t code_dim, unsigned bits)
{
    struct posting_block_shape shape;
    uint32_t entries = CODE_GROUP;
    while (posting_block_shape(entries + CODE_GROUP, (entries + CODE_GROUP) / 2, code_dim, bits, &shape) &&
           shape.bytes <= bytes)
        entries += CODE_GROUP;
    assert(entries % CODE_GROUP == 0);
    return entries;
}

static uint64_t checksum(const uint8_t *posting, uint32_t bytes, const uint8_t segment_id[16])
{
    uint64_t seed = XXH3_64bits_withSeed(posting, 16, bytes_load_u64(segment_id));
    return XXH3_64bits_withSeed(posting + 24, bytes - 24, seed);
}

void posting_block_seal(uint8_t *posting, uint32_t number, const struct list_entry *entry, unsigned bits,
                        const struct posting_block_shape *shape, const uint8_t segment_id[16])
{
    assert(entry->own <= entry->entries && shape->bytes % SECTION_ALIGN == 0);
    memset(posting, 0, POSTING_HEADER_BYTES);
    bytes_store_u32(posting, POSTING_MAGIC);
    posting[4] = POSTING_KIND;
    posting[5] = POSTING_FORMAT_VERSION;
    bytes_store_u32(posting + 8, number);
    bytes_store_u32(posting + 12, entry->entries);
    bytes_store_u32(posting + 24, entry->first);
    bytes_store_u32(posting + 28, entry->own);
    bytes_store_u32(posting + 32, bits);
    bytes_store_u32(posting + 36, shape->bytes);
    bytes_store_u64(posting + 16, checksum(posting, shape->bytes, segment_id));
}

static int check_rows(const struct posting_block_view *view, uint64_t rows, struct quire_error *err)
{
    uint32_t before = 0, n = view->entries - view->own;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = bytes_load_u32(view->ids + 4 * (size_t)i);
        if (row >= rows || row - view->first < view->own || (i > 0 && row <= before))
            return error_set(err, QUIRE_ECORRUPT, "replica %u is row %u: not ascending, its own, or above %llu", i, row,
                             (unsigned long long)rows - 1);
        before = row;
    }
    return 0;
}

int posting_block_open(const uint8_t *posting, uint32_t number, const struct list_entry *entry, uint32_t code_dim,
                       unsigned bits, uint64_t rows, const uint8_t segment_id[16], struct posting_block_view *out,
                       struct quire_error *err)
{
    struct posting_block_shape shape;
    if (!posting_block_shape(entry->entries, entry->own, code_dim, bits, &shape))
        return error_set(err, QUIRE_ECORRUPT, "its directory entry names %u entries, more than a posting block holds",
                         entry->entries);
    if (bytes_load_u32(posting) != POSTING_MAGIC)
        return error_set(err, QUIRE_ECORRUPT, "it begins with %08x, not with \"QPST\"", bytes_load_u32(posting));
    if (segment_id && bytes_load_u64(posting + 16) != checksum(posting, shape.bytes, segment_id))
        return error_set(err, QUIRE_ECORRUPT, "wrong checksum");
    if (posting[4] != POSTING_KIND || posting[5] != POSTING_FORMAT_VERSION)
        return error_set(err, QUIRE_ECORRUPT, "kind %u, version %u: expected %u, %u", posting[4], posting[5],
                         POSTING_KIND, POSTING_FORMAT_VERSION);
    if (bytes_load_u32(posting + 8) != number || bytes_load_u32(posting + 12) != entry->entries ||
        bytes_load_u32(posting + 24) != entry->first || bytes_load_u32(posting + 28) != entry->own ||
        bytes_load_u32(posting + 32) != bits || bytes_load_u32(posting + 36) != shape.bytes)
        return error_set(err, QUIRE_ECORRUPT,
                         "it says list %u, %u entries, rows %u + %u, %u bits: expected %u, %u, %u + %u, %u",
                         bytes_load_u32(posting + 8), bytes_load_u32(posting + 12), bytes_load_u32(posting + 24),
                         bytes_load_u32(posting + 28), bytes_load_u32(posting + 32), number, entry->entries,
                         entry->first, entry->own, bits);
    *out = (struct posting_block_view){number,
                                       entry->entries,
                                       entry->first,
                                       entry->own,
                                       posting + shape.ids,
                                       posting + shape.factors,
                                       posting + shape.groups,
                                       shape.n_groups,
                                       shape.group_bytes};
    return check_rows(out, rows, err);
}

uint32_t posting_block_row(const struct posting_block_view *view, uint32_t i)
{
    assert(i < view->entries);
    return i < view->own ? view->first + i : bytes_load_u32(view->ids + 4 * (size_t)(i - view->own));
}

void posting_list_encode(const struct list_entry *entry, uint8_t out[LIST_ENTRY_BYTES])
{
    bytes_store_u32(out, entry->page);
    bytes_store_u32(out + 4, entry->entries);
    bytes_store_u32(out + 8, entry->first);
    bytes_store_u32(out + 12, entry->own);
    bytes_store_f32(out + 16, entry->rms);
    bytes_store_f32(out + 20, entry->radius);
}

void posting_list_decode(const uint8_t in[LIST_ENTRY_BYTES], struct list_entry *out)
{
    *out = (struct list_entry){bytes_load_u32(in),      bytes_load_u32(in + 4),  bytes_load_u32(in + 8),
                               bytes_load_u32(in + 12), bytes_load_f32(in + 16), bytes_load_f32(in + 20)};
}
