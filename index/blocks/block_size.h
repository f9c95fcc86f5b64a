/* block_size.h - the block size that `quire build --block auto` takes, and why. */
#ifndef QUIRE_INDEX_BLOCK_SIZE_H
#define QUIRE_INDEX_BLOCK_SIZE_H

#include "quire.h"

/* Powers of two that are compared. */
#define BLOCK_SIZES 3u

struct block_choice {
    uint32_t block_bytes; /* for quire_build_options: 0: the library's default */
    char why[256];        /* one sentence */
    struct block_rate {
        uint32_t block_bytes;
        unsigned code_bits;      /* resident within the budget; 0: codes in the blocks */
        double reads_per_second; /* of the device */
        double reads, cpu_us;    /* of a query, expected */
        double qps;              /* expected of as many lanes as there are processors */
    } rates[BLOCK_SIZES];
    uint32_t n_rates; /* 0: nothing was measured */
};

/* For a page graph of the input in the new folder `path`. Indexes of a sample are built, searched and removed beside
 * it, which takes some seconds; options->progress is told. Cannot fail: where device or sample cannot be measured,
 * `why` says so and the default stands. */
void block_choose(const char *path, const struct quire_input *input, const struct quire_build_options *options,
                  struct block_choice *out);

#endif
