/* lane.c - what every lane has, whoever runs its loop: disk, searches, scratch memory, its place in the gate. */
#include "server/call/lane.h"
#include "io/error.h"
#include "server/call/caller.h"
#include "server/call/fair.h"
#include <assert.h>
#include <stdlib.h>

void lane_post(struct lane *lane, struct message *message)
{
    assert(message->run);
    lane->host->post(lane, message);
}

void lane_enter(struct lane *lane)
{
    if (lane->gate_depth++ == 0)
        gate_enter(&lane->service->gate, lane->index);
}

bool lane_try_enter(struct lane *lane)
{
    if (lane->gate_depth == 0 && !gate_try_enter(&lane->service->gate, lane->index))
        return false;
    lane->gate_depth++;
    return true;
}

bool lane_is_shut(const struct lane *lane)
{
    return gate_is_shut(&lane->service->gate);
}

void lane_leave(struct lane *lane)
{
    assert(lane->gate_depth > 0);
    if (--lane->gate_depth == 0)
        gate_leave(&lane->service->gate, lane->index);
}

int lane_open(struct lane *lane, struct engine_config *config, struct engine **out, struct quire_error *err)
{
    struct searcher_config searcher = {.tasks_max = (unsigned)lane->service->config->searches_max};
    struct engine *made = NULL;
    assert(lane->service && lane->host && lane->index < lane->service->n_lanes);
    int rc = engine_create(config, &made, err);
    if (rc < 0)
        return rc;
    rc = searcher_create(made, &searcher, &lane->searcher, err);
    if (rc == 0)
        rc = fair_open(lane, err);
    if (rc == 0 && lane->service->caches)
        rc = cache_scratch_create(&lane->cache_scratch, err);
    if (rc < 0) {
        lane_close(lane, made);
        return rc;
    }
    *out = made;
    return 0;
}

void lane_close(struct lane *lane, struct engine *engine)
{
    assert(lane->gate_depth == 0 && !lane->cache_waits && !lane->slices);
    fair_close(lane);
    searcher_destroy(lane->searcher);
    lane->searcher = NULL;
    cache_scratch_destroy(lane->cache_scratch);
    lane->cache_scratch = NULL;
    engine_destroy(engine);
}

int lane_stats_init(struct lane *lane, struct quire_error *err)
{
    struct lane_stats *stats = &lane->stats;
    histogram_init(&stats->latency, stats->latency_counts, LATENCY_SUB_BITS, LATENCY_BITS);
    stats->row_counts = calloc(COMMANDS_MAX * ROW_BUCKETS, sizeof *stats->row_counts);
    if (!stats->row_counts)
        return error_set(err, QUIRE_ENOMEM, "no memory for the statistics of lane %u", lane->index);
    for (unsigned row = 0; row < COMMANDS_MAX; row++)
        histogram_init(&stats->commands_by_row[row].latency, stats->row_counts + row * ROW_BUCKETS, ROW_SUB_BITS,
                       ROW_BITS);
    return 0;
}

void lane_stats_fini(struct lane *lane)
{
    free(lane->stats.row_counts);
}
