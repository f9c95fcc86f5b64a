/*
 * graph_check.c - proves the structure of a mutable graph while nothing else runs.
 *
 * What must hold: links are symmetric, without repetition, to other rows that are linked and are on that layer; marks
 * of the tree are symmetric and as many as a tree over all linked rows has; every linked row is reached from the entry
 * by these marked links alone; no lock was left; every number is in use, waiting or free, and counted as that.
 */
#include "index/graph_priv.h"
#include "io/error.h"
#include <inttypes.h>
#include <stdlib.h>

static bool has_link(const struct graph *graph, uint32_t row, unsigned layer, uint32_t link)
{
    uint32_t links[LINKS_MAX], n = links_read(graph, row, layer, links);
    for (uint32_t i = 0; i < n; i++)
        if (links[i] == link)
            return true;
    return false;
}

static int check_links(const struct graph *graph, uint32_t row, unsigned layer, struct quire_error *reason)
{
    struct link_list list = link_list(graph, row, layer);
    uint32_t links[LINKS_MAX], n = link_count(&list);
    if (n > list.room)
        return error_set(reason, QUIRE_ECORRUPT, "row %u has %u links on layer %u, more than %u", row, n, layer,
                         list.room);
    links_read(graph, row, layer, links);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t link = links[i] & ~LINK_TREE, flag = links[i] & LINK_TREE;
        if (link >= graph->n_rows || link == row || !(row_state(graph, link) & STATE_LINKED) ||
            (row_state(graph, link) & STATE_GONE) || row_layers(graph, link) < layer || (layer && flag))
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
    uint32_t state = row_state(graph, row);
    int rc = 0;
    if (state & STATE_GONE)
        return 0;
    if (state & (STATE_LOCKED | STATE_DYING))
        return error_set(reason, QUIRE_ECORRUPT, "row %u was left in state %x", row, state);
    if (!(state & STATE_LINKED) && (state & STATE_COUNT))
        return error_set(reason, QUIRE_ECORRUPT, "row %u has links but is not linked", row);
    for (unsigned layer = row_layers(graph, row) + 1; rc == 0 && layer-- > 0;)
        rc = check_links(graph, row, layer, reason);
    *linked += (state & STATE_LINKED) != 0;
    return rc;
}

/* Walks the tree from the entry: every linked row is met, none by two ways. */
static int check_tree(const struct graph *graph, uint32_t linked, struct quire_error *reason)
{
    uint32_t entry = (uint32_t)graph->entry, n = 0, links[LINKS_MAX];
    if (entry == ROW_NONE)
        return linked ? error_set(reason, QUIRE_ECORRUPT, "%u rows are linked, but there is no entry", linked) : 0;
    uint8_t *met = calloc(graph->n_rows, 1);
    uint32_t *queue = malloc(((size_t)linked + 1) * sizeof *queue);
    int rc = met && queue ? 0 : error_set(reason, QUIRE_ENOMEM, "no memory to check a graph");
    uint64_t ends = 0;
    if (rc == 0) {
        met[entry] = 1;
        queue[n++] = entry;
    }
    for (uint32_t at = 0; rc == 0 && at < n; at++)
        for (uint32_t i = links_read(graph, queue[at], 0, links); i-- > 0;) {
            uint32_t row = links[i] & ~LINK_TREE;
            ends += (links[i] & LINK_TREE) != 0;
            if ((links[i] & LINK_TREE) && !met[row] && n < linked) {
                met[row] = 1;
                queue[n++] = row;
            }
        }
    if (rc == 0 && (n != linked || ends != 2 * ((uint64_t)linked - 1)))
        rc = error_set(reason, QUIRE_ECORRUPT,
                       "%u of %u linked rows are reached by the tree, which has %" PRIu64 " ends", n, linked, ends);
    free(met);
    free(queue);
    return rc;
}

static uint32_t list_length(const struct graph *graph, uint32_t row)
{
    uint32_t n = 0;
    for (; row != ROW_NONE && n <= graph->n_rows; n++)
        row = row_state(graph, row) & ~STATE_GONE;
    return n;
}

int graph_check(const struct graph *graph, struct quire_error *reason)
{
    uint32_t linked = 0, gone = 0;
    int rc = 0;
    for (uint32_t row = 0; rc == 0 && row < graph->n_rows; row++) {
        gone += (row_state(graph, row) & STATE_GONE) != 0;
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
    return check_tree(graph, linked, reason);
}
