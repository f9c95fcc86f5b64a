/*
 * entry.h - where a search enters a segment: the centres of all blocks, and a tree over them.
 */
#ifndef QUIRE_INDEX_ENTRY_H
#define QUIRE_INDEX_ENTRY_H

#include "quire.h"

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

/* What the centres of so many blocks and the tree over them take in memory. */
uint64_t entry_bytes_of(uint32_t n_blocks, uint32_t code_dim);
/* blocks: the level of the centres, in tree order (partition.h). Errors: QUIRE_ENOMEM. */
int entry_init(struct entry_tree *tree, const struct entry_level *blocks, uint32_t code_dim);
void entry_fini(struct entry_tree *tree);

/* How near a level's centres are to the means that they stand for. */
struct entry_error {
    double worst; /* |centre - mean of the centres below| / |that mean| */
    uint32_t level, node;
};
/* Follows the tree down as a search does whose beam is without limit: sets the bit of each block that it leads to in
 * `reached` (zeroed; a bit per block). *error (may be NULL): the worst node above the blocks. Errors: QUIRE_ENOMEM. */
int entry_walk(const struct entry_tree *tree, uint8_t *reached, struct entry_error *error);

#endif
