/*
 * block_size.c - the block size that suits a device.
 *
 * A query costs its reads, and a device does so many a second; the best block makes reads/s over reads per query
 * largest. The first is measured, for about half a second, where the index will stand. The second falls with the size
 * of blocks, since a larger one holds more of a neighbourhood: on SIFT (1,000,000 x 128 u8), 49 reads of 4 KiB or 31 of
 * 16 KiB at recall 0.94 with 2-bit codes, 26, 20.5 or 17 of 4, 8 or 16 KiB at 0.95 with 4-bit codes; on 256-dimensional
 * embeddings of text, 13 of 4 KiB or 9.5 of 8 KiB at 0.96. These are powers of -0.33, -0.31 and -0.45; READS_EXPONENT
 * lies between. So a device that reads 16 KiB as often per second as 8 KiB gets 16 KiB, one that is bound by bytes 4.
 *
 * Sizes that hold too few slots are not considered; where none is left, the library finds the size by itself. Small
 * indexes are not worth a probe: they lie in caches, and a build in a script should always give the same.
 *
 * Each size is measured twice, with the others in between, and its better rate counts: another program that reads for a
 * moment then does not decide.
 */
#include "index/build/block_size.h"
#include "index/build/build.h"
#include "io/error.h"
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MIN       100000u
#define READS_EXPONENT 0.35
#define ROUNDS         2u
#define POINT_MS       80u
#define DEPTH          32u
#define FILE_BYTES     (64u << 20)

static const uint32_t sizes[BLOCK_SIZES] = {4096, 8192, 16384};

/* Measures the sizes from number `first` on. */
static int measure(const char *folder, size_t first, struct probe_report *report, struct quire_error *err)
{
    const uint32_t depth = DEPTH;
    uint32_t blocks[ROUNDS * BLOCK_SIZES], n = 0;
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (size_t i = first; i < BLOCK_SIZES; i++)
            blocks[n++] = sizes[i];
    struct probe_config config = {.block_bytes = blocks,
                                  .n_blocks = n,
                                  .depths = &depth,
                                  .n_depths = 1,
                                  .lanes = 1,
                                  .file_bytes = FILE_BYTES,
                                  .measure_ms = POINT_MS,
                                  .engine = QUIRE_ENGINE_AUTO};
    return probe_run(folder, &config, report, err);
}

static void decide(const struct probe_report *report, size_t first, struct block_choice *out)
{
    double best = 0;
    out->block_bytes = probe_best_block(report, READS_EXPONENT);
    for (size_t i = first; i < BLOCK_SIZES; i++) {
        struct block_rate *rate = &out->rates[out->n_rates++];
        rate->block_bytes = sizes[i];
        rate->reads_per_second = probe_rate(report, sizes[i]);
        rate->worth = rate->reads_per_second * pow(sizes[i], READS_EXPONENT);
        best = fmax(best, rate->worth);
    }
    for (uint32_t i = 0; i < out->n_rates; i++)
        out->rates[i].worth /= best;
    snprintf(out->why, sizeof out->why,
             "most queries per second by a probe of the device: reads per second times bytes to the power of %.2f; of "
             "sizes that are worth %.2f of the best or more, the smallest, whose reads take least memory",
             READS_EXPONENT, PROBE_NEARLY_BEST);
}

void block_choose(const char *path, uint64_t rows, uint32_t dim, enum quire_type type,
                  const struct quire_build_options *options, struct block_choice *out)
{
    struct probe_report report = {0};
    struct quire_error err = {0};
    uint32_t least = rows < ROWS_MIN ? 0 : build_block_least(rows, dim, type, options);
    size_t first = 0;
    *out = (struct block_choice){0};
    if (rows < ROWS_MIN) {
        snprintf(out->why, sizeof out->why, "the default: the device is not probed for fewer than %u rows", ROWS_MIN);
        return;
    }
    while (first < BLOCK_SIZES && sizes[first] < least)
        first++;
    if (first + 1 >= BLOCK_SIZES) {
        snprintf(out->why, sizeof out->why, "what vectors of %u dimensions need", dim);
        return;
    }
    char *copy = strdup(path);
    int rc = copy ? measure(dirname(copy), first, &report, &err) : error_set(&err, QUIRE_ENOMEM, "no memory");
    free(copy);
    if (rc < 0)
        snprintf(out->why, sizeof out->why, "the default: the device could not be probed: %.150s", err.message);
    else if (!report.direct)
        snprintf(out->why, sizeof out->why, "the default: a folder without direct I/O cannot be probed");
    else
        decide(&report, first, out);
    probe_free(&report);
}
