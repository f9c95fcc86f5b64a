/*
 * build_order.c - the order of rows: by blocks of near ones, or by the clusters of inverted lists (build_lists.c).
 *
 * Rows in memory change places in place (rows.h), so that they are there only once; rows in a file are put in order
 * while they are partitioned (partition_files.c).
 */
#include "index/build/build_priv.h"
#include "index/cluster/partition.h"
#include <assert.h>
#include <stdlib.h>

int build_partition(struct build *b, uint32_t n, const char *phase, uint32_t *order)
{
    struct partition_config config = {b->params.slots_per_block, b->options.threads, b->options.seed,
                                      build_device(b, BUILD_BISECTION)};
    struct progress progress;
    assert(n > 0 && n <= b->rows.n);
    build_progress(b, phase, &progress);
    if (!b->plan.in_files) {
        struct rows first = rows_part(&b->rows.rows, 0, n);
        int rc = partition_build(&first, &config, &progress, order);
        return rc == 0 ? rows_permute(&first, order) : rc;
    }
    struct row_store first = b->rows, spare;
    int rc = build_open_store(b, &spare, n, WORK_SPARE, false);
    if (rc < 0)
        return rc;
    first.n = n;
    rc = partition_files(&first, &spare, b->plan.partition_rows, &config, &progress, order);
    row_store_close(&spare);
    return rc == 0 ? build_remove_file(b, WORK_SPARE) : rc;
}

int build_order_rows(struct build *b)
{
    assert(!b->order && b->rows.n == b->n);
    b->order = malloc(sizeof(uint32_t) * b->n);
    if (!b->order)
        return QUIRE_ENOMEM;
    int rc = build_is_lists(b) ? build_order_lists(b) : build_partition(b, b->n, "partition", b->order);
    return rc == 0 && b->options.resume ? build_keep_rows(b) : rc;
}
