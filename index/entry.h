/*
 * entry.h - where a search enters a segment: the centres of all blocks, and a tree over them.
 */
#ifndef QUIRE_INDEX_ENTRY_H
#define QUIRE_INDEX_ENTRY_H

#include "index/codes.h"
#include "index/format.h"

#define ENTRY_FANOUT     16u
#define ENTRY_TOP_MAX    128u /* a level of at most so many nodes is looked at whole */
#define ENTRY_LEVELS_MAX 8u
#define ENTRY_FACTORS    3u /* floats per node: f and |c|^2 of the decoded centre, rms of |row - c| (0 above blocks) */

/* Node i of a level above the blocks stands for nodes i * ENTRY_FANOUT .. of the level below. */
struct entry_level {
    uint8_t *codes; /* n x code_bytes */
    float *factors; /* n x ENTRY_FACTORS */
    uint32_t n;
};

struct entry_tree {
    struct entry_level levels[ENTRY_LEVELS_MAX]; /* [0]: blocks, the caller's memory; the others: the tree's */
    uint32_t n_levels;
    uint32_t code_dim, code_bytes;
    uint64_t bytes; /* of the levels above the blocks */
};

/* Bytes of the centres of n_blocks and the tree over them, or a little more. */
static inline uint64_t entry_bytes_of(uint32_t n_blocks, uint32_t code_dim)
{
    uint64_t blocks = (uint64_t)n_blocks * (code_bytes_of(code_dim, CENTRE_BITS) + ENTRY_FACTORS * sizeof(float));
    return blocks + blocks / (ENTRY_FANOUT - 1) + ENTRY_TOP_MAX;
}

/* blocks: the level of the centres, in tree order (partition.h). Errors: QUIRE_ENOMEM. */
int entry_init(struct entry_tree *tree, const struct entry_level *blocks, uint32_t code_dim);
void entry_fini(struct entry_tree *tree);

#endif
