/*
 * block_size.c - the block size that suits data, budget and device.
 *
 * A query costs reads, of which a device does so many a second, and time on a processor; the best block makes the most
 * queries a second of both. Larger blocks hold more of a neighbourhood, so that reads are fewer, but a device reads
 * them less often, their rows cost time, and small ones have more centres in memory: within a budget that may cost the
 * codes a width, and with it half of the reads (SIFT at 35 % of raw: 33 reads with 4 KiB, 16 with 8).
 *
 * So nothing of this is a formula over data sets: the codes that fit are counted for all rows, the device is probed
 * where the index will stand, and reads and processor time are tried on indexes of a sample, one of each size
 * (block_trial.c). What that means for all rows is block_model.c's.
 *
 * Sizes that hold too few slots are not considered; where none is left, the library finds the size by itself. Small
 * indexes are not worth it: they lie in caches, and a build in a script should always give the same.
 *
 * Each size is probed several times, with the others in between, so that another program that reads for a moment does
 * not decide.
 */
#include "index/blocks/block_size.h"
#include "index/blocks/block_model.h"
#include "index/blocks/block_trial.h"
#include "index/build/build.h"
#include "index/format/format.h"
#include "index/segment/segment_view.h"
#include "index/vector/parallel.h"
#include "io/error.h"
#include "io/probe.h"
#include <assert.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_MIN   100000u
#define POINT_MS   50u
#define LANES      2u
#define DEPTH      64u
#define FILE_BYTES (64u << 20)
#define BITS_AUTO  4u /* widest code of a page graph, where the options leave it open */

static const uint32_t sizes[BLOCK_SIZES] = {4096, 8192, 16384};

/* Sizes that are compared, and what is found of them. */
struct choosing {
    const char *path;
    const struct quire_input *input;
    const struct quire_build_options *options;
    struct block_sample sample;
    struct block_way ways[BLOCK_SIZES];
    struct block_case cases[BLOCK_SIZES];
    uint32_t n, tried;
};

/* Measures the device at the sizes. *direct: what was read came from it. */
static int measure_device(struct choosing *c, bool *direct, struct quire_error *err)
{
    const uint32_t depth = DEPTH;
    struct probe_report report = {0};
    uint32_t blocks[BLOCK_MODEL_ROUNDS * BLOCK_SIZES], n = 0;
    double measured[BLOCK_MODEL_ROUNDS * BLOCK_SIZES], rates[BLOCK_SIZES];
    for (uint32_t round = 0; round < BLOCK_MODEL_ROUNDS; round++)
        for (uint32_t i = 0; i < c->n; i++)
            blocks[n++] = c->ways[i].block_bytes;
    struct probe_config config = {.block_bytes = blocks,
                                  .n_blocks = n,
                                  .depths = &depth,
                                  .n_depths = 1,
                                  .lanes = LANES,
                                  .file_bytes = FILE_BYTES,
                                  .measure_ms = POINT_MS,
                                  .engine = QUIRE_ENGINE_AUTO};
    char *copy = strdup(c->path);
    int rc = copy ? probe_run(dirname(copy), &config, &report, err) : error_set(err, QUIRE_ENOMEM, "no memory");
    *direct = report.direct;
    assert(rc < 0 || report.n_points == n);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        measured[i] = report.points[i].iops;
        if (measured[i] <= 0)
            rc = error_set(err, QUIRE_EIO, "no read came back");
    }
    if (rc == 0)
        block_model_rates(measured, c->n, rates);
    for (uint32_t i = 0; rc == 0 && i < c->n; i++)
        c->cases[i] = (struct block_case){.block_bytes = c->ways[i].block_bytes, .reads_per_second = rates[i]};
    probe_free(&report);
    free(copy);
    return rc;
}

/* Which sizes are possible, and which codes an index of all rows has in memory at each. */
static void find_ways(struct choosing *c)
{
    const struct quire_input *in = c->input;
    uint32_t least = build_block_least(in->rows, in->dim, in->type, c->options);
    unsigned widest = c->options->code_bits ? c->options->code_bits : BITS_AUTO;
    for (uint32_t i = 0; i < BLOCK_SIZES; i++) {
        struct quire_build_options options = *c->options;
        struct segment_params params;
        uint64_t columns_bytes;
        if (sizes[i] < least)
            continue;
        options.block_bytes = sizes[i];
        build_layout_for(in->rows, in->dim, in->type, &options, &params, &columns_bytes);
        unsigned bits = segment_code_bits(&params, columns_bytes, options.memory_bytes, widest);
        bool edge_codes = params.edge_code_bytes > 0;
        if (params.block_bytes == sizes[i] && (bits > 0 || edge_codes))
            c->ways[c->n++] = (struct block_way){QUIRE_INDEX_PAGEGRAPH, sizes[i], bits, edge_codes};
    }
}

/* A trial's build goes on: the caller hears which size is tried, and may stop it. */
static int tell(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct choosing *c = context;
    (void)phase, (void)done, (void)total;
    return c->options->progress(c->options->context, "try block sizes", c->tried, c->n);
}

static int try_sizes(struct choosing *c, struct quire_error *err)
{
    struct quire_build_options options = *c->options;
    char *path;
    if (options.progress) {
        options.progress = tell;
        options.context = c;
    }
    if (asprintf(&path, "%s.trial-%ld", c->path, (long)getpid()) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a path");
    int rc = block_sample_make(c->input, c->options, BLOCK_SAMPLE_ROWS, BLOCK_SAMPLE_QUERIES, &c->sample, err);
    for (uint32_t i = 0; i < c->n && rc == 0; i++) {
        struct block_cost cost;
        c->tried = i;
        rc = block_trial(path, &c->sample, &options, &c->ways[i], &cost, err);
        if (rc < 0)
            break;
        c->cases[i].trial_reads = cost.reads;
        c->cases[i].trial_cpu_us = cost.cpu_us;
        if (cost.reads <= 0 || cost.cpu_us <= 0)
            rc = error_set(err, QUIRE_EINVALID, "its searches read nothing");
    }
    block_sample_free(&c->sample);
    free(path);
    return rc;
}

static void decide(struct choosing *c, struct block_choice *out)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct block_case *k = &c->cases[i];
        block_model_predict(k, c->input->rows, BLOCK_SAMPLE_ROWS, parallel_processors());
        out->rates[out->n_rates++] =
            (struct block_rate){k->block_bytes, c->ways[i].code_bits, k->reads_per_second, k->reads, k->cpu_us, k->qps};
    }
    out->block_bytes = c->cases[block_model_best(c->cases, c->n)].block_bytes;
    snprintf(out->why, sizeof out->why,
             "most queries per second, as expected from a probe of the device, the codes that the budget has room for, "
             "and reads and processor time of indexes of %u of the rows",
             BLOCK_SAMPLE_ROWS);
}

/* Whether the build's bound on memory leaves room for a trial: its rows in several forms. */
static bool has_room(const struct choosing *c)
{
    uint64_t most = c->options->build_memory_bytes;
    uint64_t rows = (uint64_t)BLOCK_SAMPLE_ROWS * c->input->dim * quire_type_bytes(c->input->type);
    return most == 0 || 8 * rows + (32u << 20) <= most;
}

void block_choose(const char *path, const struct quire_input *input, const struct quire_build_options *options,
                  struct block_choice *out)
{
    struct choosing c = {.path = path, .input = input, .options = options};
    struct quire_error err = {0};
    bool direct = false;
    *out = (struct block_choice){0};
    if (input->rows < ROWS_MIN) {
        snprintf(out->why, sizeof out->why, "the default: the device is not probed for fewer than %u rows", ROWS_MIN);
        return;
    }
    find_ways(&c);
    if (c.n < 2) {
        out->block_bytes = c.n > 0 ? c.ways[0].block_bytes : 0;
        snprintf(out->why, sizeof out->why, "what vectors of %u dimensions need", input->dim);
        return;
    }
    if (!has_room(&c)) {
        snprintf(out->why, sizeof out->why, "the default: --build-memory leaves no room to try sizes on a sample");
        return;
    }
    int rc = measure_device(&c, &direct, &err);
    if (rc < 0)
        snprintf(out->why, sizeof out->why, "the default: the device could not be probed: %.150s", err.message);
    else if (!direct)
        snprintf(out->why, sizeof out->why, "the default: a folder without direct I/O cannot be probed");
    else if (try_sizes(&c, &err) < 0)
        snprintf(out->why, sizeof out->why, "the default: sizes could not be tried on a sample: %.150s", err.message);
    else
        decide(&c, out);
}
