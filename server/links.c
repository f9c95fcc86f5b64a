/*
 * links.c - the collections of a lane in which rows wait for their links.
 *
 * Rows that wait are compared one by one in every search, ten nanoseconds each: some hundred do not show. A writer that
 * is faster than the links is slowed down when CROWD of them wait. The store's maintenance links, too.
 */
#include "server/links.h"
#include "index/search_priv.h"
#include <stdlib.h>

enum { CROWD = 512, CROWD_BUDGET_US = 200 };

static void link_now(struct lane *lane, struct collection *collection, uint64_t budget_us, bool *more)
{
    struct graph_scratch *scratch = searcher_graph_scratch(lane->searcher);
    *more = scratch && collection_link(collection, scratch, budget_us);
}

bool links_add(struct lane *lane, struct collection *collection)
{
    bool more, crowded = collection_unlinked(collection) > CROWD;
    if (crowded)
        link_now(lane, collection, CROWD_BUDGET_US, &more);
    for (unsigned i = 0; i < lane->n_links; i++)
        if (lane->links[i] == collection) {
            collection_unref(collection);
            return crowded;
        }
    struct collection **bigger = realloc(lane->links, sizeof *bigger * (lane->n_links + 1));
    if (!bigger) {
        collection_unref(collection); /* maintenance links it */
        return crowded;
    }
    lane->links = bigger;
    lane->links[lane->n_links++] = collection;
    return crowded;
}

bool links_work(struct lane *lane, uint64_t budget_us)
{
    bool more = false;
    if (lane->n_links == 0)
        return false;
    unsigned i = lane->next_link++ % lane->n_links;
    link_now(lane, lane->links[i], budget_us, &more);
    if (!more) {
        collection_unref(lane->links[i]);
        lane->links[i] = lane->links[--lane->n_links];
    }
    return lane->n_links > 0;
}

void links_fini(struct lane *lane)
{
    while (lane->n_links > 0)
        collection_unref(lane->links[--lane->n_links]);
    free(lane->links);
    lane->links = NULL;
}
