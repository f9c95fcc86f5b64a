/*
 * parquet_meta.h - what a Parquet file says about itself: schema, row groups, pages. Thrift's compact protocol.
 *
 * Only what is used here is kept; unknown fields are skipped, as the protocol intends.
 */
#ifndef QUIRE_TOOLS_RECORDS_PARQUET_META_H
#define QUIRE_TOOLS_RECORDS_PARQUET_META_H

#include "io/arena.h"
#include "quire.h"

enum parquet_type {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTE_ARRAY,
    PARQUET_FIXED
};
enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };
enum parquet_converted {
    PARQUET_UTF8 = 0,
    PARQUET_LIST = 3,
    PARQUET_DECIMAL = 5,
    PARQUET_UINT_32 = 13,
    PARQUET_UINT_64 = 14,
    PARQUET_JSON = 19
};
enum parquet_codec { PARQUET_UNCOMPRESSED, PARQUET_SNAPPY, PARQUET_GZIP, PARQUET_ZSTD = 6 };
enum parquet_encoding { PARQUET_PLAIN = 0, PARQUET_PLAIN_DICTIONARY = 2, PARQUET_RLE = 3, PARQUET_RLE_DICTIONARY = 8 };
#define PARQUET_METRIC_KEY "quire.metric" /* l2, cosine or ip */
enum parquet_page { PARQUET_DATA_PAGE = 0, PARQUET_DICTIONARY_PAGE = 2, PARQUET_DATA_PAGE_V2 = 3 };

struct parquet_element {
    const char *name;
    int32_t type; /* -1: a group */
    int32_t type_bytes, repetition, children, converted;
};

struct parquet_chunk {
    int32_t type, codec;
    int64_t n_values, bytes, data_at, dictionary_at; /* dictionary_at 0: none */
};

struct parquet_group {
    int64_t rows;
    struct parquet_chunk *chunks; /* as many as the schema has leaves */
    uint32_t n_chunks;
};

struct parquet_meta {
    struct arena memory;
    int64_t rows;
    struct parquet_element *elements; /* depth first; the first is the root */
    uint32_t n_elements;
    struct parquet_group *groups;
    uint32_t n_groups;
    const char
        *metric; /* the text under PARQUET_METRIC_KEY among the file's own keys and values; NULL: there is none */
};

struct parquet_header {             /* of a page */
    int32_t type, raw_bytes, bytes; /* raw: after decompression */
    int32_t n_values, encoding, definition_encoding, repetition_encoding;
    int32_t definition_bytes, repetition_bytes; /* v2 */
    bool is_compressed;                         /* v2 */
};

/* The footer's bytes. QUIRE_EFORMAT. */
int parquet_meta_decode(const char *name, const uint8_t *bytes, size_t n, struct parquet_meta *out,
                        struct quire_error *err);
void parquet_meta_fini(struct parquet_meta *meta);
/* A page's header; *used: its bytes. QUIRE_ETRUNCATED where there are too few: give more. */
int parquet_header_decode(const uint8_t *bytes, size_t n, struct parquet_header *out, size_t *used);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct parquet_out {
    uint8_t *bytes; /* owned */
    size_t n, capacity;
    bool failed; /* no memory */
    int16_t last[8];
    unsigned depth;
};
void parquet_put_bytes(struct parquet_out *out, const void *bytes, size_t n);
void parquet_put_varint(struct parquet_out *out, uint64_t x);
void parquet_put_i32(struct parquet_out *out, int field, int32_t x);
void parquet_put_i64(struct parquet_out *out, int field, int64_t x);
void parquet_put_text(struct parquet_out *out, int field, const char *text);
/* A list's head; its items follow: structs between parquet_begin(out, 0) and parquet_end, numbers as varints. */
enum parquet_item { PARQUET_ITEM_I32 = 5, PARQUET_ITEM_TEXT = 8, PARQUET_ITEM_STRUCT = 12 };
void parquet_put_list(struct parquet_out *out, int field, enum parquet_item item, uint32_t n);
void parquet_put_item_i32(struct parquet_out *out, int32_t x);
void parquet_put_item_text(struct parquet_out *out, const char *text);
/* A struct: of a field, or (field 0) an item of a list, or the outermost. */
void parquet_begin(struct parquet_out *out, int field);
void parquet_end(struct parquet_out *out);

#endif
