/* search_lane.h - lanes for blocking calls: an engine with a searcher each, kept from one call to the next. */
#ifndef QUIRE_INDEX_SEARCH_LANE_H
#define QUIRE_INDEX_SEARCH_LANE_H

#include "index/search/search.h"
#include "io/home.h"
#include <pthread.h>

struct search_lane {
    struct engine *engine;
    struct searcher *searcher;
    unsigned tasks;
    struct search_lane *next;
};

struct search_lane_pool {
    enum quire_engine_kind kind;
    unsigned reads_max;
    pthread_mutex_t mutex; /* never held over I/O */
    struct search_lane *idle;
    struct home home; /* the process whose lanes they are */
};

/* QUIRE_ECLOSED in a process that was forked from the one which opened the pool: nothing of it may be touched there. */
static inline int search_lane_pool_check(const struct search_lane_pool *pool, struct quire_error *err)
{
    return home_check(&pool->home, err);
}

int search_lane_create(enum quire_engine_kind kind, unsigned reads_max, unsigned tasks, struct search_lane **out,
                       struct quire_error *err);
/* Ends what is under way with QUIRE_ECANCELLED. NULL is fine. */
void search_lane_destroy(struct search_lane *lane);

int search_lane_pool_init(struct search_lane_pool *pool, enum quire_engine_kind kind, unsigned reads_max,
                          struct quire_error *err);
void search_lane_pool_fini(struct search_lane_pool *pool);
/* A lane with at least `tasks` tasks from the pool, or a new one. QUIRE_ECLOSED in a child (home.h). Thread-safe. */
int search_lane_pool_take(struct search_lane_pool *pool, unsigned tasks, struct search_lane **out,
                          struct quire_error *err);
/* Gives it back; idle lanes release segments that were retired. */
void search_lane_pool_put(struct search_lane_pool *pool, struct search_lane *lane);
/* Drives a lane until *done; what was started there is cancelled if the engine fails. */
void search_lane_run(struct search_lane *lane, const bool *done);

#endif
