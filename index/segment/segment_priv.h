/* segment_priv.h - the inside of an open segment, for search, fetch, calibration and verification. */
#ifndef QUIRE_INDEX_SEGMENT_PRIV_H
#define QUIRE_INDEX_SEGMENT_PRIV_H

#include "index/format/block.h"
#include "index/format/format.h"
#include "index/kernels/kernels.h"
#include "index/segment/block_cache.h"
#include "index/segment/entry.h"
#include "index/segment/groups.h"
#include "index/segment/lists.h"
#include "index/segment/segment.h"
#include "index/vector/codes.h"
#include "index/vector/space.h"
#include "io/bitmap.h"
#include "io/bytes.h"
#include "io/sections.h"
#include <pthread.h>
#include <stdatomic.h>

struct calibration_point {
    uint32_t k, effort;
    float recall, reads;
};
#define CALIBRATION_POINT_BYTES 16u

struct segment {
    atomic_uint references;
    struct segment_info info;
    struct segment_params params;
    struct block_shape shape;
    struct space space;
    uint8_t segment_id[16];
    struct section_file *blocks, *keys, *attributes; /* attributes NULL: none */
    struct section_file *postings;                   /* of inverted lists; NULL: a page graph */
    uint64_t postings_at;
    uint64_t blocks_at, buckets_at, heap_at, rows_at, attribute_index_at,
        attribute_heap_at; /* offsets in their files */
    uint64_t heap_bytes, attribute_heap_bytes;

    /* resident */
    unsigned width;             /* of the codes in use, resident or of edges: index in nav_bits */
    float sigma_factor;         /* sigma of an estimate = this * rms residual of the block * |q - c| */
    uint8_t *nav_codes;         /* rows x nav_bytes; memory_map; NULL: those of edges are used */
    f16_t *nav_factors;         /* rows x 2 */
    struct entry_level centres; /* of the blocks */
    struct entry_tree entry;
    struct groups *groups; /* that searches enter by, beside codes; NULL: blocks are groups of near rows */
    struct lists *lists;   /* inverted lists; NULL: a page graph */
    uint32_t nav_bytes;
    size_t nav_codes_mapped, nav_factors_mapped, centre_codes_mapped, centre_factors_mapped;
    struct block_cache *cache; /* NULL: none */
    struct columns *columns;   /* NULL: no row has attributes or grants */
    struct {
        pthread_mutex_t mutex;
        struct selection *first; /* references */
        uint64_t bytes, clock;
        uint32_t n;
    } selections; /* made before, for who asks for the same */
    struct calibration_point *calibration;
    uint32_t n_calibration;
    /* Rows that are neither followed nor answered: bitmap, or NULL; bits may be added at any time. Set by calibration
     * for the rows it asks with, and by the part of a collection that the segment is (part.h). */
    const uint8_t *dead;
    atomic_bool retired; /* lanes let go of it as soon as none of their tasks uses it */
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
float calibration_effort(const struct calibration_point *points, uint32_t n, float recall);

/* Whether a budget (0: none) has room for the codes of all rows of inverted lists, beside columns and the rest. */
bool segment_lists_fit(const struct segment_params *params, uint64_t columns_bytes, uint64_t budget);

/* Effort needed with the codes in use over that with the widest. In lists it is known for resident codes, of a row one;
 * the postings with their replicas need less. */
static inline float segment_effort_factor(const struct segment *s)
{
    if (s->lists)
        return s->lists->codes ? 1 : 1 / s->params.effort_factor[s->width];
    return s->nav_codes ? s->params.effort_factor[s->width] : s->params.edge_effort_factor;
}

/* The decoded centre of a block, code_dim floats. */
void segment_centre(const struct segment *s, uint32_t block, float *out);
/* The stored vector of a slot in the user's terms (dim floats). rotated: scratch of code_dim floats. */
void segment_slot_vector(const struct segment *s, uint32_t block, const uint8_t *slot, const uint8_t *factor,
                         float *rotated, float *out);

#endif
