/*
 * document_log_format.c - the first page of a segment.
 *
 * It is written together with the first documents, so a power cut may leave documents without it; document_judge says
 * what that means. A version this program does not know, which proves itself, may hold what is still of use to another:
 * nothing of its cache is opened or removed.
 *
 * The documents have checksums of their own; so of the header only the time is used: it bounds when the last document
 * expires.
 */
#include "cache/document/document_log_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include <xxhash.h>

#define SEGMENT_MAGIC   "QUIREDOC"
#define SEGMENT_VERSION 1u

enum segment_field {
    MAGIC_AT = 0,
    VERSION_AT = 8,
    NUMBER_AT = 12,
    CREATED_AT = 16,
    CLASS_AT = 24,
    CHECKSUM_AT = 32, /* of what lies before it */
    FIELDS_BYTES = 40
};

void document_log_header_encode(const struct document_log_segment *segment, uint8_t page[LOG_HEADER_BYTES])
{
    assert(segment->number != 0 && segment->class <= LOG_CLASS_NEVER);
    memset(page, 0, LOG_HEADER_BYTES);
    memcpy(page + MAGIC_AT, SEGMENT_MAGIC, 8);
    bytes_store_u32(page + VERSION_AT, SEGMENT_VERSION);
    bytes_store_u32(page + NUMBER_AT, segment->number);
    bytes_store_u64(page + CREATED_AT, segment->created_ms);
    bytes_store_u32(page + CLASS_AT, segment->class);
    bytes_store_u64(page + CHECKSUM_AT, XXH3_64bits(page, CHECKSUM_AT));
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

int document_log_header_decode(const char *path, const uint8_t *page, size_t n, struct document_log_segment *segment,
                               struct quire_error *err)
{
    if (n < LOG_HEADER_BYTES || all_zero(page, FIELDS_BYTES))
        return DOCUMENT_HEADER_NONE;
    if (memcmp(page + MAGIC_AT, SEGMENT_MAGIC, 8) != 0)
        return DOCUMENT_HEADER_OTHER;
    uint32_t version = bytes_load_u32(page + VERSION_AT), class = bytes_load_u32(page + CLASS_AT);
    bool proved = bytes_load_u64(page + CHECKSUM_AT) == XXH3_64bits(page, CHECKSUM_AT);
    if (proved && version != SEGMENT_VERSION)
        return error_set(err, QUIRE_EVERSION,
                         "%s has format version %u, this program knows %u: use the program that wrote it, or remove it",
                         path, version, SEGMENT_VERSION);
    if (!proved || class > LOG_CLASS_NEVER || bytes_load_u32(page + NUMBER_AT) != segment->number)
        return DOCUMENT_HEADER_DAMAGED;
    segment->class = class;
    segment->created_ms = bytes_load_u64(page + CREATED_AT);
    uint64_t ttl = document_log_class_ttl_ms(class), open = document_log_class_open_ms(class), sum;
    if (ttl == UINT64_MAX || __builtin_add_overflow(segment->created_ms, ttl + open, &sum))
        sum = UINT64_MAX;
    segment->last_expire_ms = sum;
    return DOCUMENT_HEADER_WHOLE;
}
