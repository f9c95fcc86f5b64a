/*
 * search_lane.c - a blocking call takes a lane from the pool, or makes one when all are taken, drives it until its
 * request is done, and puts it back; so calls of many threads run at once and none makes a ring per query.
 */
#include "index/search/search_lane.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

void search_lane_destroy(struct search_lane *lane)
{
    if (!lane)
        return;
    if (lane->searcher) {
        searcher_cancel(lane->searcher);
        searcher_destroy(lane->searcher);
    }
    if (lane->engine)
        engine_destroy(lane->engine);
    free(lane);
}

int search_lane_create(enum quire_engine_kind kind, unsigned reads_max, unsigned tasks, struct search_lane **out,
                       struct quire_error *err)
{
    struct engine_config engine_config = {.kind = kind, .reads_max = reads_max};
    struct searcher_config config = {.tasks_max = tasks};
    struct search_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return error_set(err, QUIRE_ENOMEM, "no memory for a lane");
    lane->tasks = tasks;
    int rc = engine_create(&engine_config, &lane->engine, err);
    if (rc == 0)
        rc = searcher_create(lane->engine, &config, &lane->searcher, err);
    if (rc < 0)
        search_lane_destroy(lane);
    else
        *out = lane;
    return rc;
}

int search_lane_pool_init(struct search_lane_pool *pool, enum quire_engine_kind kind, unsigned reads_max,
                          struct quire_error *err)
{
    *pool = (struct search_lane_pool){.kind = kind, .reads_max = reads_max};
    int rc = home_init(&pool->home, err);
    if (rc < 0)
        return rc;
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) {
        home_fini(&pool->home);
        return error_set(err, QUIRE_ENOMEM, "no memory for a mutex");
    }
    return 0;
}

void search_lane_pool_fini(struct search_lane_pool *pool)
{
    while (pool->idle) {
        struct search_lane *lane = pool->idle;
        pool->idle = lane->next;
        search_lane_destroy(lane);
    }
    pthread_mutex_destroy(&pool->mutex);
    home_fini(&pool->home);
}

int search_lane_pool_take(struct search_lane_pool *pool, unsigned tasks, struct search_lane **out,
                          struct quire_error *err)
{
    assert(tasks > 0);
    int here = home_check(&pool->home, err);
    if (here < 0)
        return here;
    pthread_mutex_lock(&pool->mutex);
    struct search_lane **at = &pool->idle;
    while (*at && (*at)->tasks < tasks)
        at = &(*at)->next;
    struct search_lane *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&pool->mutex);
    if (!found)
        return search_lane_create(pool->kind, pool->reads_max, tasks, out, err);
    *out = found;
    return 0;
}

void search_lane_pool_put(struct search_lane_pool *pool, struct search_lane *lane)
{
    assert(searcher_running(lane->searcher) == 0);
    pthread_mutex_lock(&pool->mutex);
    lane->next = pool->idle;
    pool->idle = lane;
    for (struct search_lane *idle = pool->idle; idle; idle = idle->next)
        searcher_drop_retired(idle->searcher);
    pthread_mutex_unlock(&pool->mutex);
}

void search_lane_run(struct search_lane *lane, const bool *done)
{
    while (!*done)
        if (engine_poll(lane->engine, 1, UINT64_MAX) < 0)
            searcher_cancel(lane->searcher);
}
