/*
 * format.h - the files of a segment: kinds, sections and parameters. docs/format.md is the description for outsiders.
 */
#ifndef QUIRE_INDEX_FORMAT_H
#define QUIRE_INDEX_FORMAT_H

#include "quire.h"
#include <string.h>

/* Raised whenever a file's meaning changes. Each file's superblock carries the container's version, PARAMS this one. */
#define SEGMENT_FORMAT_VERSION 4u
#define SEGMENT_FORMAT_OLDEST  3u /* that is read: without numbers, and curves of searches that measured more */

enum segment_file_kind {
    FILE_META = 1,
    FILE_BLOCKS = 2,
    FILE_CODES = 3,
    FILE_KEYS = 4,
    FILE_ATTRIBUTES = 5,
    FILE_POSTINGS = 6,
    FILE_COLUMNS = 7
};

#define META_NAME       "meta"
#define BLOCKS_NAME     "blocks"
#define CODES_NAME      "codes"
#define KEYS_NAME       "keys"
#define ATTRIBUTES_NAME "attrs"
#define POSTINGS_NAME   "postings"
/* COLUMNS_NAME: columns.h */

enum meta_section { META_PARAMS = 1, META_MEAN = 2, META_CALIBRATION = 3, META_FILES = 4 };
enum blocks_section { BLOCKS_BLOCKS = 1 };
enum codes_section {
    CODES_CENTRES = 1,        /* CENTRE_BITS-bit code of each block's centre */
    CODES_CENTRE_FACTORS = 2, /* per block 3 f32: f, squared length of the decoded centre, spread of |row - centre| */
    CODES_CELL_CENTRES = 3,   /* those of cells that are no blocks, where rows of runs lie side by side (cells.h) */
    CODES_CELL_FACTORS = 4,
    CODES_CELLS = 5,        /* per row u32: its cell */
    CODES_NUMBERS = 6,      /* per row its input number, packed (numbers.h) */
    CODES_NAMES = 7,        /* short keys of the user's, by row (names.h) */
    CODES_NAVIGATION = 16,  /* + bits: one code per row, relative to the decoded centre of its block */
    CODES_NAV_FACTORS = 32, /* + bits: per row 2 f16: A / scale_a, f / scale_f (scales in PARAMS) */
    CODES_LISTS = 64,       /* per inverted list LIST_ENTRY_BYTES (posting_block.h) */
    CODES_HEADS = 65,       /* the graph of their heads (lists.h) */
    CODES_GUESTS = 66       /* per row that is no list's own u32: the list that it is a guest of (lists.h) */
};
enum postings_section { POSTINGS_POSTINGS = 1 };
enum keys_section { KEYS_BUCKETS = 1, KEYS_ROWS = 2, KEYS_HEAP = 3 };
enum attributes_section { ATTRIBUTES_INDEX = 1, ATTRIBUTES_HEAP = 2 };

#define CENTRE_BITS 4u

/* Navigation codes that a segment can carry, and the slot of their scales in PARAMS. */
#define NAV_WIDTHS 4u
extern const unsigned nav_bits[NAV_WIDTHS]; /* 1, 2, 4, 8 */

/* Codes inside the blocks stand in for resident ones where a budget has no room for any: of this width, per edge. */
#define EDGE_CODE_WIDTH        0u
#define EDGE_CODE_FACTOR_BYTES 4u

#define PARAMS_BYTES      256u
#define SLOTS_MAX         4096u /* of a block */
#define ZERO_VECTOR_A     2.0f
#define EFFORT_FACTOR_MIN 0.5f
#define EFFORT_FACTOR_MAX 64.0f

struct segment_params {
    uint32_t format_version;
    uint32_t metric, type, slot;
    uint32_t dim, code_dim;
    uint64_t rows;
    uint32_t block_bytes, n_blocks, slots_per_block;
    uint32_t slot_bytes, factor_bytes;
    uint32_t edge_code_bytes; /* per edge inside the blocks, factors included; 0: none */
    uint32_t degree, pool;
    uint32_t user_keys, has_attributes, has_columns;
    uint32_t key_buckets; /* pages of the key table */
    uint64_t seed;
    uint64_t memory_bytes; /* default budget; 0: none */
    double norm2_max;
    float scale_a[NAV_WIDTHS], scale_f[NAV_WIDTHS];
    float effort_factor[NAV_WIDTHS]; /* effort of this width over that of the widest, at equal recall */
    float edge_effort_factor;        /* the same of edge codes with nothing resident */
    float spread;                    /* rms cosine between a row's residual and the way to a near row elsewhere */
    float error[NAV_WIDTHS];         /* rms of sqrt(1/cos^2(y, r) - 1) of these codes; 0: not on disk */
    uint32_t index;                  /* enum quire_index_kind, not AUTO */
    uint32_t kind_reason;            /* enum kind_reason */
    /* inverted lists; 0 in a page graph */
    uint32_t n_lists;
    uint32_t list_bits; /* of their codes; scales, error and effort factor (resident over read) under this width */
    uint32_t posting_bytes_max; /* of the longest posting block */
    uint64_t list_entries;
    uint32_t run_rows;   /* of small tenants, the last ones: in groups of blocks that are not theirs, guests of lists */
    uint32_t unit_codes; /* 1: slots of 8-bit codes hold those of unit_code.h, with their factors */
};

/* A zero vector under cosine among codes that are relative to their block's centre, by its factors: a row that is the
 * centre has no length left, but A is 0 then, too. */
static inline bool format_is_zero_vector(const struct segment_params *p, float a, float f)
{
    return p->metric == QUIRE_METRIC_COSINE && f == 0 && a == ZERO_VECTOR_A;
}

static inline uint32_t format_edge_code_bytes(uint32_t code_dim)
{
    return code_dim / 8 * nav_bits[EDGE_CODE_WIDTH] + EDGE_CODE_FACTOR_BYTES;
}

/* The type of a slot's numbers; of no other slot than those that hold numbers (not of AUTO and Q8). */
enum quire_type format_slot_type(uint32_t slot);

/* Rows of a block: as many as it has slots, but for the last. */
static inline uint32_t format_block_rows(const struct segment_params *p, uint32_t block)
{
    uint64_t left = p->rows - (uint64_t)block * p->slots_per_block;
    return left < p->slots_per_block ? (uint32_t)left : p->slots_per_block;
}

void format_params_encode(const struct segment_params *params, uint8_t out[PARAMS_BYTES]);
/* Refuses versions it does not know and values out of their limits. */
int format_params_decode(const uint8_t in[PARAMS_BYTES], struct segment_params *out, struct quire_error *err);

/* One line of META_FILES: which files belong to the segment. */
#define FILE_ENTRY_BYTES 32u
struct file_entry {
    char name[16]; /* zero-padded */
    uint64_t bytes;
    uint64_t checksum; /* of the file's superblock, which holds those of its sections */
};

/* ---- checked pages and heap records ------------------------------------------------------------------------------ */

/* 4096 bytes, the last 8 of which are XXH3-64 of the others, seeded with page number and segment. */
#define PAGE_BYTES   4096u
#define PAGE_PAYLOAD (PAGE_BYTES - 8)

void format_page_seal(uint8_t page[PAGE_BYTES], uint64_t number, const uint8_t segment_id[16]);
bool format_page_is_valid(const uint8_t page[PAGE_BYTES], uint64_t number, const uint8_t segment_id[16]);

/* A heap record: XXH3-64 of its bytes (seeded with the segment), then the bytes. */
#define RECORD_HEADER_BYTES 8u
uint64_t format_record_checksum(const void *bytes, size_t n, const uint8_t segment_id[16]);

/* Key table page: u32 entries, u32 0, then per entry u64 hash, then per entry u32 row. */
#define BUCKET_ENTRIES_MAX 339u
/* Rows page (keys are numbers): u32 row of input row i at i % ROWS_PER_PAGE. */
#define ROWS_PER_PAGE (PAGE_PAYLOAD / 4)
/* Attribute index page: u64 per row: offset in the heap << 24 | bytes; 0: none (offset counts from 1). */
#define ATTRIBUTES_PER_PAGE (PAGE_PAYLOAD / 8)
#define ATTRIBUTE_BYTES_MAX ((1u << 24) - 1)

uint64_t format_key_hash(const void *key, size_t bytes);
static inline uint32_t format_key_bucket(uint64_t hash, uint32_t buckets)
{
    return (uint32_t)(((hash >> 32) * buckets) >> 32);
}

/* The order of names and texts in files: bytewise; of two of which one begins like the other the shorter first. */
static inline int format_compare_bytes(const void *a, uint32_t a_bytes, const void *b, uint32_t b_bytes)
{
    uint32_t least = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = least ? memcmp(a, b, least) : 0;
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* ---- sections of a segment's files ---- */

struct section_entry;
struct section_file;
struct section_writer;
/* The section, of `bytes` (UINT64_MAX: any number); QUIRE_ECORRUPT names file and section. */
int format_section(struct section_file *file, uint32_t id, uint64_t bytes, const struct section_entry **out,
                   struct quire_error *err);
/* The same in memory, its checksum checked; *out is the caller's to free, also after an error, when it may be NULL.
 * n_bytes: NULL, or how many there are. */
int format_section_load(struct section_file *file, uint32_t id, uint64_t bytes, void **out, uint64_t *n_bytes,
                        struct quire_error *err);
/* A section of n u32 or f32. */
int format_section_put_words(struct section_writer *writer, uint32_t id, const void *words, uint64_t n,
                             struct quire_error *err);

#endif
