/*
 * entry.c - the tree over the centres of blocks.
 *
 * Blocks stand in the order of a bisection tree (partition.c), so ENTRY_FANOUT neighbouring blocks are a larger cluster
 * and the mean of their centres is its centre; so are ENTRY_FANOUT of those, up to a level small enough to look at
 * whole. A search goes down with a beam, which costs a number of dot products that grows with the number of levels, not
 * of blocks, over codes that lie next to each other.
 *
 * The levels above the blocks are computed when a segment is opened: a few thousand additions per block, a sixteenth of
 * the centres' memory, and nothing on disk that could contradict the centres.
 *
 * A graph over the centres (best first, 16 links each) was the alternative: about the same products for the same
 * blocks found, but scattered, and its links take as much memory as the centres.
 */
#include "index/entry.h"
#include "io/memory.h"
#include <stdlib.h>
#include <string.h>

static uint64_t level_bytes(const struct entry_tree *tree, uint32_t n)
{
    return (uint64_t)n * (tree->code_bytes + ENTRY_FACTORS * sizeof(float));
}

/* Nodes of one level from the means of those below. `sum` and `child`: scratch of code_dim floats. */
static void fill_level(const struct entry_tree *tree, const struct entry_level *below, struct entry_level *level,
                       float *sum, float *child)
{
    uint32_t dim = tree->code_dim;
    for (uint32_t i = 0; i < level->n; i++) {
        uint32_t first = i * ENTRY_FANOUT, n = below->n - first < ENTRY_FANOUT ? below->n - first : ENTRY_FANOUT;
        memset(sum, 0, sizeof(float) * dim);
        for (uint32_t c = first; c < first + n; c++) {
            code_decode(below->codes + (size_t)c * tree->code_bytes, dim, CENTRE_BITS,
                        below->factors[ENTRY_FACTORS * (size_t)c], child);
            for (uint32_t d = 0; d < dim; d++)
                sum[d] += child[d];
        }
        for (uint32_t d = 0; d < dim; d++)
            sum[d] /= (float)n;
        float *factors = level->factors + ENTRY_FACTORS * (size_t)i, norm2 = 0;
        factors[0] = code_encode(sum, dim, CENTRE_BITS, level->codes + (size_t)i * tree->code_bytes, NULL, NULL);
        code_decode(level->codes + (size_t)i * tree->code_bytes, dim, CENTRE_BITS, factors[0], child);
        for (uint32_t d = 0; d < dim; d++)
            norm2 += child[d] * child[d];
        factors[1] = norm2;
        factors[2] = 0;
    }
}

int entry_init(struct entry_tree *tree, const struct entry_level *blocks, uint32_t code_dim)
{
    memset(tree, 0, sizeof *tree);
    tree->code_dim = code_dim;
    tree->code_bytes = code_bytes_of(code_dim, CENTRE_BITS);
    tree->levels[tree->n_levels++] = *blocks;
    float *scratch = malloc(2 * sizeof(float) * code_dim);
    if (!scratch)
        return QUIRE_ENOMEM;
    while (tree->levels[tree->n_levels - 1].n > ENTRY_TOP_MAX) {
        const struct entry_level *below = &tree->levels[tree->n_levels - 1];
        struct entry_level *level = &tree->levels[tree->n_levels];
        level->n = (below->n + ENTRY_FANOUT - 1) / ENTRY_FANOUT;
        level->codes = memory_map(level_bytes(tree, level->n), 0);
        if (!level->codes) {
            free(scratch);
            entry_fini(tree);
            return QUIRE_ENOMEM;
        }
        level->factors = (float *)(void *)(level->codes + (size_t)level->n * tree->code_bytes);
        tree->bytes += level_bytes(tree, level->n);
        tree->n_levels++;
        fill_level(tree, below, level, scratch, scratch + code_dim);
    }
    free(scratch);
    return 0;
}

void entry_fini(struct entry_tree *tree)
{
    for (uint32_t l = 1; l < tree->n_levels; l++)
        memory_unmap(tree->levels[l].codes, level_bytes(tree, tree->levels[l].n));
    tree->n_levels = 0;
}
