/* block_size.h - the block size that `quire build --block auto` takes, and why. */
#ifndef QUIRE_INDEX_BLOCK_SIZE_H
#define QUIRE_INDEX_BLOCK_SIZE_H

#include "io/probe.h"

/* Powers of two that are measured. */
#define BLOCK_SIZES 3u

struct block_choice {
    uint32_t block_bytes; /* for quire_build_options: 0: the library's default */
    char why[256];        /* one sentence */
    struct block_rate {
        uint32_t block_bytes;
        double reads_per_second;
        double worth; /* of the best, which has 1 */
    } rates[BLOCK_SIZES];
    uint32_t n_rates; /* 0: nothing was measured */
};

/* For an index of so many rows in the new folder `path`; takes less than a second. Cannot fail: where the device cannot
 * be measured, `why` says so and the default stands. */
void block_choose(const char *path, uint64_t rows, uint32_t dim, enum quire_type type,
                  const struct quire_build_options *options, struct block_choice *out);

#endif
