/*
 * segment.h - an immutable part of a collection, opened from its folder; shared by lanes.
 *
 * A segment is read by resumable tasks (search.h). It is reference-counted: whoever starts tasks on it holds a
 * reference until they are done. Opening loads the resident parts (codes, entry points) and checks their checksums;
 * blocks are checked when read.
 */
#ifndef QUIRE_INDEX_SEGMENT_H
#define QUIRE_INDEX_SEGMENT_H

#include "io/engine.h"
#include "quire.h"

struct segment;
struct columns;

struct segment_info {
    uint64_t rows;
    uint32_t dim; /* of the user's vectors */
    enum quire_type type;
    enum quire_metric metric;
    enum quire_index_kind index;
    const char *index_reason; /* why it is of that kind; static */
    enum quire_slot slot;
    uint32_t n_lists; /* inverted lists; 0: a page graph */
    uint64_t list_entries;
    unsigned list_bits; /* of the codes in lists, resident or not */
    uint32_t block_bytes, n_blocks, slots_per_block;
    uint32_t code_dim;  /* padded dimension of codes */
    unsigned code_bits; /* resident; 0: codes are read with the blocks */
    bool edge_codes;    /* blocks carry the codes of their edges */
    unsigned degree, build_beam;
    uint64_t seed;
    uint64_t memory_bytes; /* the budget in force; 0: none */
    uint64_t resident_bytes, index_bytes, raw_bytes;
    uint64_t resident_codes_bytes, resident_factors_bytes, resident_entries_bytes, resident_heads_bytes,
        resident_naming_bytes; /* numbers and names */
    uint64_t cache_bytes;      /* for blocks, when all its frames are used; 0: no cache */
    uint64_t reserve_bytes;    /* of the budget: what the process and the buffers of searches take, by measurement */
    uint32_t n_entries;
    uint64_t resident_columns_bytes;
    bool direct_io, user_keys, has_attributes, has_columns;
    unsigned format_version;
    const char *path; /* valid while the segment is */
};

enum segment_naming {
    SEGMENT_NUMBERS, /* their input numbers */
    SEGMENT_NAMES,   /* their keys, where those are the user's: for searches that ask for keys */
    SEGMENT_BOTH,    /* with codes or without: for verify */
    SEGMENT_NOTHING
};

struct segment_options {
    uint64_t memory_bytes;      /* 0: the index's own, UINT64_MAX: no limit */
    unsigned code_bits;         /* navigation code to load; 0: the widest that fits. Of lists: below their own none */
    enum segment_naming naming; /* what rows are known by in memory, where there is room beside codes */
    bool no_cache;              /* keep no blocks, whatever the budget leaves */
    bool edge_codes;            /* load none, use those of the edges; the index must have them */
    bool read_lists;            /* of inverted lists no codes of rows, whatever the budget */
    bool buffered;              /* no O_DIRECT, for tests */
    bool rows_only;   /* for segment_scan alone, of a segment that is damaged: what that does without (codes, lists,
                            * columns, the key table) is not opened, and blocks are taken as they lie, each by its own
                            * checksum, whatever is wrong with their file */
    struct io_fs *fs; /* NULL: fs_real() */
};

/* options may be NULL. The caller gets one reference. */
int segment_open(const char *path, const struct segment_options *options, struct segment **out,
                 struct quire_error *err);
struct segment *segment_ref(struct segment *segment); /* thread-safe */
void segment_unref(struct segment *segment);          /* thread-safe; closes with the last; NULL is fine */
/* Whether others hold references besides the caller. */
bool segment_is_shared(const struct segment *segment);
/* No new work will come for it: each lane's searcher lets go of it at its next searcher_drop_retired. Thread-safe. */
void segment_retire(struct segment *segment);
bool segment_is_retired(const struct segment *segment);
struct block_cache_stats;
/* Zeros without a cache. */
void segment_cache_stats(const struct segment *segment, struct block_cache_stats *out);
const struct segment_info *segment_info(const struct segment *segment);
/* Columns and tenants, as long as the segment is; NULL: no row has attributes or grants. */
const struct columns *segment_columns(const struct segment *segment);
/* Of each inverted list the rows in it, replicas included, and the bytes of its posting block: n_lists numbers each. */
void segment_list_lengths(const struct segment *segment, uint32_t *rows, uint32_t *bytes);

/* The effort that reaches `recall` (0 < recall <= 1) at k, from the calibration curve kept at build; `estimates`: of
 * searches that answer estimates. */
uint32_t segment_effort(const struct segment *segment, float recall, uint32_t k, bool estimates);
/* The curve itself, as quire_calibration gives it. */
uint32_t segment_calibration(const struct segment *segment, struct quire_calibration_point *points, uint32_t capacity);

#endif
