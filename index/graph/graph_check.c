/*
 * graph_check.c - checks the structure of a mutable graph while nothing else runs.
 *
 * What must hold: links are symmetric, without repetition, to other rows that are linked and are on that layer; marks
 * of the tree are symmetric and as many as trees over the linked rows of each root have; every linked row is reached
 * from the entry of one root by these marked links alone, and has no link to a row of another; no lock was left; every
 * number is in use, waiting or free, and counted as that.
 */
#include "index/graph/graph_priv.h"
#include "io/error.h"
#include <inttypes.h>
#include <stdlib.h>

static bool has_link(const struct graph *graph, uint32_t row, unsigned layer, uint32_t link)
{
    uint32_t links[LINKS_MAX], n = graph_links_read(graph, row, layer, links);
    for (uint32_t i = 0; i < n; i++)
        if (links[i] == link)
            return true;
    return false;
}

static int check_links(const struct graph *graph, uint32_t row, unsigned layer, struct quire_error *reason)
{
    struct graph_link_list list = graph_link_list(graph, row, layer);
    uint32_t links[LINKS_MAX], n = graph_link_count(&list);
    if (n > list.capacity)
        return error_set(reason, QUIRE_ECORRUPT, "row %u has %u links on layer %u, more than %u", row, n, layer,
                         list.capacity);
    graph_links_read(graph, row, layer, links);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t link = links[i] & ~LINK_TREE, flag = links[i] & LINK_TREE;
        if (link >= graph->n_rows || link == row || !(graph_row_state(graph, link) & STATE_LINKED) ||
            (graph_row_state(graph, link) & STATE_GONE) || graph_row_layers(graph, link) < layer || (layer && flag))
            return error_set(reason, QUIRE_ECORRUPT, "row %u is linked to %u on layer %u, where that is not", row, link,
                             layer);
        if (!has_link(graph, link, layer, row | flag))
            return error_set(reason, QUIRE_ECORRUPT, "row %u is linked to %u on layer %u, but not back", row, link,
                             layer);
        for (uint32_t j = 0; j < i; j++)
            if ((links[j] & ~LINK_TREE) == link)
                return error_set(reason, QUIRE_ECORRUPT, "row %u is linked to %u twice on layer %u", row, link, layer);
    }
    return 0;
}

static int check_row(const struct graph *graph, uint32_t row, uint32_t *linked, struct quire_error *reason)
{
    uint32_t state = graph_row_state(graph, row);
    int rc = 0;
    if (state & STATE_GONE)
        return 0;
    if (state & (STATE_LOCKED | STATE_DYING))
        return error_set(reason, QUIRE_ECORRUPT, "row %u was left in state %x", row, state);
    if (!(state & STATE_LINKED) && (state & STATE_COUNT))
        return error_set(reason, QUIRE_ECORRUPT, "row %u has links but is not linked", row);
    for (unsigned layer = graph_row_layers(graph, row) + 1; rc == 0 && layer-- > 0;)
        rc = check_links(graph, row, layer, reason);
    *linked += (state & STATE_LINKED) != 0;
    return rc;
}

/* Which root each row belongs to: 0, or 1 + its place among the roots; and the rows of one root's tree. */
struct owners {
    uint32_t *of, *queue;
};

/* Walks a root's tree from its entry: as many rows are met as it counts, none by two ways, none of another root. */
static int check_tree(const struct graph *graph, const struct graph_root *root, uint32_t number,
                      const struct owners *owners, struct quire_error *reason)
{
    uint32_t entry = graph_entry_row(root->entry), linked = root->linked, n = 0, links[LINKS_MAX];
    if (entry == ROW_NONE)
        return linked ? error_set(reason, QUIRE_ECORRUPT, "%u rows are linked, but there is no entry", linked) : 0;
    if (entry >= graph->n_rows || !(graph_row_state(graph, entry) & STATE_LINKED) || owners->of[entry] ||
        linked > graph->linked || graph_row_layers(graph, entry) != graph_entry_layers(root->entry))
        return error_set(reason, QUIRE_ECORRUPT, "row %u is the entry of %u rows, where that is not", entry, linked);
    uint64_t ends = 0;
    owners->of[entry] = number;
    owners->queue[n++] = entry;
    for (uint32_t at = 0; at < n; at++)
        for (uint32_t i = graph_links_read(graph, owners->queue[at], 0, links); i-- > 0;) {
            uint32_t row = links[i] & ~LINK_TREE;
            ends += (links[i] & LINK_TREE) != 0;
            if ((links[i] & LINK_TREE) && !owners->of[row] && n < linked) {
                owners->of[row] = number;
                owners->queue[n++] = row;
            }
        }
    if (n != linked || ends != 2 * ((uint64_t)linked - 1))
        return error_set(reason, QUIRE_ECORRUPT,
                         "%u of %u linked rows are reached by the tree, which has %" PRIu64 " ends", n, linked, ends);
    return 0;
}

/* Every linked row is in the tree of one root, and so are the rows that it is linked with. */
static int check_owner(const struct graph *graph, uint32_t row, const struct owners *owners, struct quire_error *reason)
{
    uint32_t links[LINKS_MAX], owner = owners->of[row];
    if (!(graph_row_state(graph, row) & STATE_LINKED) || (graph_row_state(graph, row) & STATE_GONE))
        return 0;
    if (!owner)
        return error_set(reason, QUIRE_ECORRUPT, "row %u is linked, but not reached from any root", row);
    for (unsigned layer = graph_row_layers(graph, row) + 1; layer-- > 0;)
        for (uint32_t i = graph_links_read(graph, row, layer, links); i-- > 0;)
            if (owners->of[links[i] & ~LINK_TREE] != owner)
                return error_set(reason, QUIRE_ECORRUPT, "row %u is linked to %u on layer %u, which is of another root",
                                 row, links[i] & ~LINK_TREE, layer);
    return 0;
}

static int check_roots(const struct graph *graph, const struct graph_root *const *roots, uint32_t n_roots,
                       struct quire_error *reason)
{
    struct owners owners = {calloc((size_t)graph->n_rows + 1, sizeof *owners.of),
                            malloc(((size_t)graph->linked + 1) * sizeof *owners.queue)};
    int rc = owners.of && owners.queue ? 0 : error_set(reason, QUIRE_ENOMEM, "no memory to check a graph");
    for (uint32_t i = 0; rc == 0 && i < n_roots; i++)
        rc = check_tree(graph, roots[i], i + 1, &owners, reason);
    for (uint32_t row = 0; rc == 0 && row < graph->n_rows; row++)
        rc = check_owner(graph, row, &owners, reason);
    free(owners.of);
    free(owners.queue);
    return rc;
}

static uint32_t list_length(const struct graph *graph, uint32_t row)
{
    uint32_t n = 0;
    for (; row != ROW_NONE && n <= graph->n_rows; n++)
        row = graph_row_state(graph, row) & ~STATE_GONE;
    return n;
}

int graph_check(const struct graph *graph, const struct graph_root *const *roots, uint32_t n_roots,
                struct quire_error *reason)
{
    uint32_t linked = 0, gone = 0;
    int rc = 0;
    for (uint32_t row = 0; rc == 0 && row < graph->n_rows; row++) {
        gone += (graph_row_state(graph, row) & STATE_GONE) != 0;
        rc = check_row(graph, row, &linked, reason);
    }
    if (rc < 0)
        return rc;
    if (linked != graph->linked)
        return error_set(reason, QUIRE_ECORRUPT, "%u rows are linked, counted are %u", linked, (unsigned)graph->linked);
    if (list_length(graph, graph->free_first) != graph->n_free ||
        list_length(graph, graph->gone_first) != graph->n_gone ||
        list_length(graph, graph->deferred_first) != graph->n_deferred ||
        gone != graph->n_free + graph->n_gone + graph->n_deferred)
        return error_set(reason, QUIRE_ECORRUPT, "%u numbers are not in use; free %u, waiting %u and %u", gone,
                         graph->n_free, graph->n_gone, graph->n_deferred);
    return check_roots(graph, roots, n_roots, reason);
}
