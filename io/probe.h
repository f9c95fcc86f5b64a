/*
 * probe.h - what the device under a folder can do: random-read rate and latency by block size and queue depth.
 *
 * Makes a temporary file of random bytes in the folder (removed afterwards), reads it at random block-aligned offsets
 * with direct I/O through an engine, one measurement per (block, depth) pair.
 */
#ifndef QUIRE_IO_PROBE_H
#define QUIRE_IO_PROBE_H

#include "io/engine.h"

struct probe_point {
    uint32_t block_bytes, depth;
    double iops, mean_us, p50_us, p99_us, p999_us;
};

struct probe_config {
    const uint32_t *block_bytes; /* n_blocks sizes, multiples of 4096 */
    uint32_t n_blocks;
    const uint32_t *depths; /* n_depths queue depths, per lane-sum */
    uint32_t n_depths;
    uint32_t lanes;      /* threads with a ring each that share the depth; 1.. */
    uint64_t file_bytes; /* size of the test file; 0: 1 GiB, less where space is short */
    uint32_t measure_ms; /* per point; 0: 500 */
    enum quire_engine_kind engine;
    /* NULL or called after each point: done of total. A non-zero answer stops with QUIRE_ECANCELLED. */
    int (*progress)(void *context, uint32_t done, uint32_t total);
    void *context;
};

struct probe_report {
    struct probe_point *points; /* n_blocks * n_depths, block-major; owned, freed by probe_free */
    uint32_t n_points;
    const char *engine; /* static name */
    bool direct;        /* whether O_DIRECT was in force */
    uint64_t file_bytes;
};

int probe_run(const char *folder, const struct probe_config *config, struct probe_report *out, struct quire_error *err);
void probe_free(struct probe_report *report);
/* The depth at which the rate of this block size reaches 90 % of its best: the cap on reads in flight. */
uint32_t probe_knee(const struct probe_report *report, uint32_t block_bytes);
/* The best rate of this block size at any depth, in reads per second. 0: it was not measured. */
double probe_rate(const struct probe_report *report, uint32_t block_bytes);

#endif
