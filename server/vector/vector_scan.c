/*
 * vector_scan.c - blocking calls on collections, for the worker's thread.
 *
 * A lane of the library (search_lane.h: an engine and a searcher that the calling thread drives itself) is not a lane
 * of the server (server/call/lane.h): this file is where the two meet, and it includes the former only. A lane is made
 * per command: that takes less time than the first of its reads.
 */
#include "server/vector/vector_scan.h"
#include "index/attribute/filter.h"
#include "index/search/search_lane.h"
#include <stdlib.h>

int vector_scan_open(enum quire_engine_kind kind, struct vector_scanner **out, struct quire_error *err)
{
    struct search_lane *lane;
    int rc = search_lane_create(kind, 0, 1, &lane, err);
    if (rc == 0)
        *out = (struct vector_scanner *)(void *)lane;
    return rc;
}

void vector_scan_close(struct vector_scanner *lane)
{
    search_lane_destroy((struct search_lane *)(void *)lane);
}

int vector_scan_run(struct vector_scanner *lane, struct collection_scan *scan, struct quire_error *err)
{
    return collection_scan((struct search_lane *)(void *)lane, scan, err);
}

struct look {
    struct collection_fetch fetch;
    const struct filter *filter;
    bool done, matches;
};

static void on_fetch(struct collection_fetch *fetch)
{
    struct look *look = fetch->owner;
    look->done = true;
    look->matches = fetch->code == 0 && filter_matches(look->filter, fetch->attributes, fetch->attribute_bytes,
                                                       fetch->key, fetch->key_bytes);
}

int vector_scan_look_again(struct vector_scanner *opened, const struct collection_scan *scan, const void *key,
                           uint32_t key_bytes, struct located *out, uint64_t *seen_lsn, struct quire_error *err)
{
    struct search_lane *lane = (struct search_lane *)(void *)opened;
    struct collection_stats stats;
    struct look look = {.filter = scan->filter,
                        .fetch = {.collection = scan->collection,
                                  .scope = scan->scope,
                                  .key = key,
                                  .key_bytes = key_bytes,
                                  .want_attributes = true,
                                  .done = on_fetch,
                                  .owner = &look}};
    collection_get_stats(scan->collection, &stats);
    int rc = collection_fetch_start(lane->searcher, &look.fetch, err);
    if (rc < 0)
        return rc;
    search_lane_run(lane, &look.done);
    if (look.fetch.code < 0 && look.fetch.code != QUIRE_ENOTFOUND) {
        if (err)
            *err = look.fetch.error;
        return look.fetch.code;
    }
    *out = look.fetch.located;
    *seen_lsn = stats.last_lsn;
    return look.matches;
}
