/*
 * bench_seal.c - what seals cost: a file of vectors comes into a collection, which seals as it does in a server.
 *
 *   bench_seal BASE METRIC [ROWS [MEMTABLE-MIB]]
 *
 * All in one thread, without a server and without searches beside, so that the same input gives the same instructions
 * (`valgrind --tool=callgrind --toggle-collect=store_maintain`). Puts rows until a memtable is full (16 MiB unless
 * given), seals it as maintenance does, and goes on. A line of JSON for each seal or merge: rows in all, processor
 * seconds of the puts before it, and of it.
 */
#include "datasets/vecfile.h"
#include "index/store/store.h"
#include "tests/bench/support_bench.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_EVERY 512u /* puts from one look at what is due to the next */

static void put(struct collection *collection, const struct vectors *base, uint64_t row)
{
    struct quire_error err = {0};
    char key[24];
    size_t row_bytes = base->dim * quire_type_bytes(base->type);
    int n = snprintf(key, sizeof key, "%" PRIu64, row);
    struct collection_put put = {.key = key,
                                 .key_bytes = (uint32_t)n,
                                 .vector = (const uint8_t *)base->data + row * row_bytes,
                                 .condition = PUT_ALWAYS};
    (void)collection_locate_now(collection, key, (uint32_t)n, &put.located);
    check(collection_put(collection, &put, &err), &err);
}

/* All that is due now. */
static double maintain(struct store *store)
{
    struct quire_error err = {0};
    double begun = processor_seconds();
    int done;
    do {
        done = store_maintain(store, &err);
        check(done, &err);
    } while (done > 0);
    return processor_seconds() - begun;
}

static void run(struct store *store, const struct vectors *base, uint64_t rows, enum quire_metric metric)
{
    struct collection_config config = {
        .dim = base->dim, .type = base->type, .metric = metric, .slot = QUIRE_SLOT_Q8, .index = QUIRE_INDEX_PAGEGRAPH};
    struct quire_error err = {0};
    struct collection *collection;
    struct store_stats stats;
    uint64_t lsn, built = 0;
    double begun = processor_seconds();
    check(store_create_collection(store, &config, NULL, &collection, &lsn, &err), &err);
    for (uint64_t row = 0; row < rows; row++) {
        put(collection, base, row);
        if (row % LOOK_EVERY != LOOK_EVERY - 1 && row + 1 < rows)
            continue;
        double puts = processor_seconds() - begun, other = maintain(store);
        store_get_stats(store, &stats);
        if (stats.seals + stats.merges == built)
            continue;
        built = stats.seals + stats.merges;
        printf("{\"rows\": %" PRIu64 ", \"seals\": %" PRIu64 ", \"merges\": %" PRIu64 ", \"rows_sealed\": %" PRIu64
               ", \"rows_merged\": %" PRIu64 ", \"puts_seconds\": %.2f, \"seconds\": %.2f}\n",
               row + 1, stats.seals, stats.merges, stats.rows_sealed, stats.rows_merged, puts, other);
        fflush(stdout);
        begun = processor_seconds();
    }
    collection_unref(collection);
}

int main(int argc, char **argv)
{
    struct quire_error err = {0};
    struct vectors base;
    struct store *store;
    char folder[64], command[96];
    if (argc < 3) {
        fprintf(stderr, "bench_seal BASE l2|cosine|ip [ROWS [MEMTABLE-MIB]]\n");
        return 2;
    }
    enum quire_metric metric = strcmp(argv[2], "l2") == 0   ? QUIRE_METRIC_L2
                               : strcmp(argv[2], "ip") == 0 ? QUIRE_METRIC_IP
                                                            : QUIRE_METRIC_COSINE;
    check(vecfile_vectors_load(argv[1], VECFILE_AUTO, &base, &err), &err);
    uint64_t rows = argc > 3 ? strtoull(argv[3], NULL, 10) : base.rows;
    uint64_t memtable = argc > 4 ? strtoull(argv[4], NULL, 10) : 16;
    snprintf(folder, sizeof folder, "bench_seal.%ld", (long)getpid());
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    const struct store_options options = {.sync = JOURNAL_NO, .memtable_bytes = memtable << 20, .no_maintenance = true};
    check(store_open(folder, &options, NULL, &store, NULL, &err), &err);
    run(store, &base, rows < base.rows ? rows : base.rows, metric);
    check(store_close(store, &err), &err);
    vecfile_vectors_free(&base);
    return system(command) != 0; /* NOLINT(cert-env33-c): our own folder */
}
