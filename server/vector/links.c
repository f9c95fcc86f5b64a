/*
 * links.c - the collections of a lane in which too many rows wait for their links.
 *
 * A put is visible at once: rows that wait are compared one by one in every search, ten nanoseconds each. A background
 * thread of the store links them (store_maintain.c), with what the lanes leave of the processor. Where that is too slow
 * and more than SOFT_LIMIT rows of a collection wait, the lane links rows, too, a slice in each of its turns, and its
 * writers put one element in each turn; beyond HARD_LIMIT they wait for milliseconds.
 */
#include "server/vector/links.h"
#include "index/search/search.h"
#include "io/array.h"
#include <stdlib.h>

enum { SOFT_LIMIT = 512, HARD_LIMIT = 1024, LINK_SLICE_US = 150 };

enum links_pace links_add(struct lane *lane, struct collection *collection)
{
    uint32_t waiting = collection_unlinked(collection);
    bool known = false;
    for (unsigned i = 0; i < lane->n_links; i++)
        known = known || lane->links[i] == collection;
    if (waiting > SOFT_LIMIT && !known && array_reserve(&lane->links, &lane->links_capacity, lane->n_links + 1))
        lane->links[lane->n_links++] = collection;
    else
        collection_unref(collection);
    return waiting > HARD_LIMIT ? LINKS_HARD_LIMIT : waiting > SOFT_LIMIT ? LINKS_SOFT_LIMIT : LINKS_FEW;
}

static bool work(struct lane *lane)
{
    if (lane->n_links == 0)
        return false;
    struct collection *collection = lane->links[--lane->n_links];
    struct graph_scratch *scratch = searcher_graph_scratch(lane->searcher);
    if (scratch)
        collection_link(collection, scratch, LINK_SLICE_US);
    collection_unref(collection);
    return true;
}

static void close_links(struct lane *lane)
{
    while (lane->n_links > 0)
        collection_unref(lane->links[--lane->n_links]);
    free(lane->links);
    lane->links = NULL;
    lane->links_capacity = 0;
}

const struct lane_hook links_hook = {.work = work, .close = close_links};
