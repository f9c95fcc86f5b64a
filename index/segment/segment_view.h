/*
 * segment_view.h - what the rooms above may see of an open segment: searchers, builders, verifiers, collections.
 *
 * Everything here is set by segment_open and the same until the last reference is gone, but for `dead` and `retired`.
 * What of a segment only its own room touches is in segment_priv.h.
 */
#ifndef QUIRE_INDEX_SEGMENT_VIEW_H
#define QUIRE_INDEX_SEGMENT_VIEW_H

#include "index/format/block.h"
#include "index/format/format.h"
#include "index/kernels/kernels.h"
#include "index/segment/block_cache.h"
#include "index/segment/cells.h"
#include "index/segment/entry.h"
#include "index/segment/lists.h"
#include "index/segment/names.h"
#include "index/segment/numbers.h"
#include "index/segment/segment.h"
#include "index/vector/codes.h"
#include "index/vector/space.h"
#include "index/vector/unit_code.h"
#include "io/bitmap.h"
#include "io/bytes.h"
#include "io/sections.h"
#include <stdatomic.h>

/* Measured at build: at this effort, queries for k answers reached this recall with so many reads. */
struct calibration_point {
    uint32_t k, effort;
    float recall, reads;
};
#define CALIBRATION_POINT_BYTES 16u
/* On the disk a bit of k: of searches that answer estimates. Those points stand behind the others. */
#define CALIBRATION_ESTIMATES 0x80000000u

struct segment {
    /* what it is */
    struct segment_info info;     /* as users are told it; sums up what follows */
    struct segment_params params; /* as they are on disk */
    struct block_shape shape;     /* of its blocks, from params */
    struct space space;           /* between the user's vectors and the working space */
    uint8_t segment_id[16];       /* every file and page of it carries this */

    /* on disk: open files, and where their sections begin (offsets in bytes) */
    struct section_file *blocks;     /* all vectors, slots and edges */
    struct section_file *keys;       /* from keys to rows, or from input rows to rows */
    struct section_file *attributes; /* grants and JSON of the rows; NULL: none */
    struct section_file *postings;   /* of inverted lists; NULL: a page graph */
    uint64_t blocks_at;              /* block b: blocks_at + b * params.block_bytes */
    uint64_t buckets_at, heap_at;    /* with keys of the user's: hash buckets, and records in a heap */
    uint64_t rows_at;                /* with the library's keys: pages of rows by input row */
    uint64_t attribute_index_at;     /* pages of an entry per row */
    uint64_t attribute_heap_at;      /* records, in order of rows */
    uint64_t postings_at;
    uint64_t heap_bytes, attribute_heap_bytes;

    /* resident: codes by which a search chooses what to read */
    unsigned width;             /* of the codes in use, resident or of edges: index in nav_bits */
    float sigma_factor;         /* sigma of an estimate = this * rms residual of the block * |q - c| */
    uint32_t nav_bytes;         /* of a row's code of that width */
    uint8_t *nav_codes;         /* rows x nav_bytes; NULL: those of edges, or of lists, are used */
    f16_t *nav_factors;         /* rows x 2; NULL with nav_codes */
    struct lists *lists;        /* directory, heads, codes of inverted lists; NULL: a page graph */
    struct cells *cells;        /* of near rows, that searches enter by, beside codes; NULL: those are the blocks */
    struct entry_level centres; /* of the blocks */
    struct entry_tree entry;    /* over the centres */
    struct numbers *numbers;    /* of the rows; NULL: no room for them, or names are wanted */
    struct names *names;        /* of the rows, where those are wanted; NULL: no room for them, or numbers are */

    /* resident: the rest */
    struct columns *columns;   /* which rows have which values and tenants; NULL: no row has attributes or grants */
    struct block_cache *cache; /* of blocks read before; NULL: none */
    struct calibration_point *calibration; /* curves of ascending effort, by k; n_calibration points, owned, */
    struct calibration_point *estimates;   /* and behind them n_estimates of searches that answer estimates */
    uint32_t n_calibration, n_estimates;

    /* changes while it is open */
    /* Rows that are neither followed nor answered: bitmap, or NULL; bits may be added at any time. Set by calibration
     * for the rows it asks with, and by the part of a collection that the segment is (part.h). */
    const uint8_t *dead;
    atomic_bool retired; /* lanes drop their references as soon as none of their tasks uses it */
};

static inline uint64_t segment_block_offset(const struct segment *s, uint32_t block)
{
    return s->blocks_at + (uint64_t)block * s->params.block_bytes;
}

/* Root mean square of |row - centre| over the rows of a block. */
static inline float segment_block_rms(const struct segment *s, uint32_t block)
{
    return s->centres.factors[ENTRY_FACTORS * (size_t)block + 2];
}

/* Effort on one curve (points of one k, ascending effort), between points on a logarithmic scale. */
float segment_curve_effort(const struct calibration_point *points, uint32_t n, float recall);

/* Whether a budget (0: none) has room for the codes of all rows of inverted lists, beside columns and the rest. */
bool segment_lists_fit(const struct segment_params *params, uint64_t columns_bytes, uint64_t budget);

/* The widest navigation code, at most `widest` bits, that a page graph would have in memory within a budget (0: none),
 * beside centres, columns and the rest; 0: not even the narrowest. */
unsigned segment_code_bits(const struct segment_params *params, uint64_t columns_bytes, uint64_t budget,
                           unsigned widest);

/* Effort needed with the codes in use over that with the widest. In lists it is known for resident codes, of a row one;
 * the posting blocks with their replicas need less. */
static inline float segment_effort_factor(const struct segment *s)
{
    if (s->lists)
        return s->lists->codes ? 1 : 1 / s->params.effort_factor[s->width];
    return s->nav_codes ? s->params.effort_factor[s->width] : s->params.edge_effort_factor;
}

/* The decoded centre of a block, code_dim floats. */
void segment_centre(const struct segment *s, uint32_t block, float *out);
/* The stored vector of a slot in the user's terms (dim floats): with its length where that is known, otherwise (codes
 * under cosine that are relative to their block's centre) the unit vector. rotated: scratch of code_dim floats. */
void segment_slot_vector(const struct segment *s, uint32_t block, const uint8_t *slot, const uint8_t *factor,
                         float *rotated, float *out);

#endif
