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
#include "index/segment/entry.h"
#include "index/format/format.h"
#include "index/vector/codes.h"
#include "io/bitmap.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t level_bytes(const struct entry_tree *tree, uint32_t n)
{
    return (uint64_t)n * (tree->code_bytes + ENTRY_FACTORS * sizeof(float));
}

static uint32_t nodes_above(uint32_t n)
{
    return n / ENTRY_FANOUT + (n % ENTRY_FANOUT > 0);
}

uint64_t entry_bytes_of(uint32_t n_blocks, uint32_t code_dim)
{
    const struct entry_tree tree = {.code_bytes = code_bytes_of(code_dim, CENTRE_BITS)};
    uint64_t bytes = level_bytes(&tree, n_blocks);
    while (n_blocks > ENTRY_TOP_MAX) {
        n_blocks = nodes_above(n_blocks);
        bytes += level_bytes(&tree, n_blocks);
    }
    return bytes;
}

static uint32_t children_of(const struct entry_level *below, uint32_t node)
{
    uint32_t first = node * ENTRY_FANOUT;
    assert(first < below->n);
    return below->n - first < ENTRY_FANOUT ? below->n - first : ENTRY_FANOUT;
}

static void decode_node(const struct entry_tree *tree, const struct entry_level *level, uint32_t node, float *out)
{
    code_decode(level->codes + (size_t)node * tree->code_bytes, tree->code_dim, CENTRE_BITS,
                level->factors[ENTRY_FACTORS * (size_t)node], out);
}

/* The mean of the centres below node i into `sum`; `child`: scratch. Both of code_dim floats. */
static void mean_below(const struct entry_tree *tree, const struct entry_level *below, uint32_t i, float *sum,
                       float *child)
{
    uint32_t dim = tree->code_dim, first = i * ENTRY_FANOUT, n = children_of(below, i);
    memset(sum, 0, sizeof(float) * dim);
    for (uint32_t c = first; c < first + n; c++) {
        decode_node(tree, below, c, child);
        for (uint32_t d = 0; d < dim; d++)
            sum[d] += child[d];
    }
    for (uint32_t d = 0; d < dim; d++)
        sum[d] /= (float)n;
}

/* Nodes of one level from the means of those below. `sum` and `child`: scratch of code_dim floats. */
static void fill_level(const struct entry_tree *tree, const struct entry_level *below, struct entry_level *level,
                       float *sum, float *child)
{
    uint32_t dim = tree->code_dim;
    for (uint32_t i = 0; i < level->n; i++) {
        mean_below(tree, below, i, sum, child);
        float *factors = level->factors + ENTRY_FACTORS * (size_t)i, norm2 = 0;
        factors[0] = code_encode(sum, dim, CENTRE_BITS, level->codes + (size_t)i * tree->code_bytes, NULL, NULL);
        decode_node(tree, level, i, child);
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
        assert(tree->n_levels < ENTRY_LEVELS_MAX); /* 16^7 * ENTRY_TOP_MAX blocks: more than rows */
        level->n = nodes_above(below->n);
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
    assert(tree->levels[tree->n_levels - 1].n <= ENTRY_TOP_MAX);
    free(scratch);
    return 0;
}

void entry_fini(struct entry_tree *tree)
{
    for (uint32_t l = 1; l < tree->n_levels; l++)
        memory_unmap(tree->levels[l].codes, level_bytes(tree, tree->levels[l].n));
    tree->n_levels = 0;
}

/* Marks what the marked nodes of level l lead to; `below` and `above` are bitmaps. */
static void walk_level(const struct entry_tree *tree, uint32_t l, const uint8_t *above, uint8_t *below, float *mean,
                       float *node, struct entry_error *error)
{
    const struct entry_level *level = &tree->levels[l], *children = level - 1;
    for (uint32_t i = 0; i < level->n; i++) {
        if (!bitmap_has(above, i) || (uint64_t)i * ENTRY_FANOUT >= children->n)
            continue;
        for (uint32_t c = i * ENTRY_FANOUT, end = c + children_of(children, i); c < end; c++)
            bitmap_add(below, c);
        mean_below(tree, children, i, mean, node);
        decode_node(tree, level, i, node);
        double wrong = 0, length = 0;
        for (uint32_t d = 0; d < tree->code_dim; d++) {
            wrong += ((double)node[d] - mean[d]) * ((double)node[d] - mean[d]);
            length += (double)mean[d] * mean[d];
        }
        double share = sqrt(wrong / (length + 1e-300));
        share = share < INFINITY ? share : INFINITY; /* not a number: the worst there is */
        if (share > error->worst)
            *error = (struct entry_error){share, l, i};
    }
}

int entry_walk(const struct entry_tree *tree, uint8_t *reached, struct entry_error *error)
{
    size_t bytes = tree->levels[0].n / 8 + 1;
    uint8_t *above = malloc(bytes), *below = calloc(bytes, 1);
    float *scratch = malloc(2 * sizeof(float) * tree->code_dim);
    struct entry_error worst = {0};
    assert(tree->n_levels > 0);
    int rc = above && below && scratch ? 0 : QUIRE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < tree->levels[tree->n_levels - 1].n; i++)
        bitmap_add(below, i);
    for (uint32_t l = tree->n_levels - 1; rc == 0 && l > 0; l--) {
        uint8_t *swap = above;
        above = below;
        below = memset(swap, 0, bytes);
        walk_level(tree, l, above, below, scratch, scratch + tree->code_dim, &worst);
    }
    if (rc == 0)
        memcpy(reached, below, (tree->levels[0].n + 7) / 8);
    if (rc == 0 && error)
        *error = worst;
    free(above);
    free(below);
    free(scratch);
    return rc;
}
