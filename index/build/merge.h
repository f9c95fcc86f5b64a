/*
 * merge.h - a segment from other segments and new rows, made from what the largest of them knows already.
 *
 * The rows of all parts that are alive become one segment, of the kind that the options say. Where the first part is of
 * that kind, its rows bring what they had: in a page graph edges, so that their neighbours are looked for among fewer
 * rows, in inverted lists their clusters, of which only those that change are refined; and the part's calibration, of
 * which a merge measures only what is asked for. The other parts' rows are placed as in a build. Everything else is the
 * build (build.h): mean, order, blocks, codes. The 8-bit codes of a collection under cosine (unit_code.h) stay the same
 * bytes. Others (slot Q8) are rounded again by each merge, relative to another centre: ten merges leave a vector about
 * three times as far from the original as the first build did.
 */
#ifndef QUIRE_INDEX_MERGE_H
#define QUIRE_INDEX_MERGE_H

#include "index/segment/segment.h"

#define MERGING_MARK ".merging" /* behind the path: a folder for what a merge gathers, removed at its end */

/* Rows of a sealed segment. */
struct merge_segment {
    struct segment *segment;
    const uint8_t *dead; /* bitmap of rows that are left out (io/bitmap.h), a copy that does not change; NULL: none */
};

/* Rows that come from memory: a seal, or what is merged with segments. */
struct merge_rows {
    uint32_t n;
    enum quire_type type; /* of vectors */
    bool unit_codes;      /* behind the elements of a vector stand its unit code and factors (unit_code.h) */
    uint64_t seed;        /* of the rotation of those */
    /* row i; pointers stay valid until the merge has ended. vector: dim elements, copied at once */
    void (*row)(void *context, uint32_t i, void *vector, const void **key, uint32_t *key_bytes, const char **attributes,
                uint32_t *attribute_bytes);
    void *context;
};

struct merge_options {
    struct io_fs *fs;                 /* NULL: fs_real() */
    struct quire_build_options build; /* metric, index, slot, block_bytes, code_bits, degree, build_beam, threads,
                                         build_memory_bytes, progress; keys and attributes are the merge's.
                                         build_memory_bytes: what the merge may hold beside keys, attributes and what
                                         the process holds already; 0: no bound. The seed is that of the first segment
                                         where there is one. The first phase that progress sees is "gather" */
    /* what a seal saves: a segment of about as many rows that are like these, whose calibration is measured again only
     * where that is asked for (NULL: none); fewer queries at fewer points, since its rows are soon merged */
    const struct segment *like;
    bool brief;
    bool tenant_runs;     /* rows of small tenants lie side by side (build_tenants.c) */
    bool unit_codes;      /* slot Q8 under cosine: slots hold unit codes, which are copied as they are */
    enum quire_type type; /* of the collection */
    uint32_t dim;
};

/* Where each row has gone. */
struct merge_result {
    uint64_t rows;
    /* rows_of[p][r]: row in the new segment of row r of segment p (parts in the order given), then of row r of `rows`
     * as the last; UINT32_MAX: left out. Owned by the caller: merge_result_fini. */
    uint32_t **rows_of;
    uint32_t n_parts;
    uint32_t reused_rows; /* that brought edges or clusters: the living ones of the first segment, or none */
};

/* Writes the segment to the new folder `path`; where no row is alive there is none, and result->rows is 0. segments: n
 * of them (none: a seal of rows), the one to reuse first (the largest); rows may be NULL. Keys are those of the user
 * even where a segment had none of its own (its numbers in decimal), and must differ. Memory: keys and attributes of
 * all rows beside the build's own. Errors: those of a build and of reading the segments (QUIRE_ECORRUPT names file and
 * block); nothing is left behind then. */
int merge_build(const char *path, const struct merge_segment *segments, uint32_t n, const struct merge_rows *rows,
                const struct merge_options *options, struct merge_result *result, struct quire_error *err);
void merge_result_fini(struct merge_result *result);

/* Calls visit for each living row of a segment in row order, reading its blocks forward; blocking, not for lanes.
 * vector: in the user's terms. A negative answer stops and is returned. damaged (may be NULL): called for each block
 * that cannot be read, which is then left out; without it that ends the scan. */
struct scanned_row {
    uint32_t row;
    uint64_t id;
    const void *key;
    uint32_t key_bytes;
    const float *vector;    /* dim floats */
    const void *slot;       /* as stored: slot bytes */
    const uint8_t *factors; /* as stored: factor bytes; NULL: none */
    const char *attributes;
    uint32_t attribute_bytes;
};
int segment_scan(struct segment *segment, const uint8_t *dead,
                 int (*visit)(void *context, const struct scanned_row *row),
                 void (*damaged)(void *context, const char *sentence), void *context, struct quire_error *err);
/* The same of n rows, ascending, whether they are dead or not: reads their blocks only, one at a time. */
int segment_scan_rows(struct segment *segment, const uint32_t *rows, uint32_t n,
                      int (*visit)(void *context, const struct scanned_row *row),
                      void (*damaged)(void *context, const char *sentence), void *context, struct quire_error *err);

#endif
