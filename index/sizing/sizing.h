/*
 * sizing.h - what indexes of very many rows would cost, before there are so many: what `quire plan` prints.
 *
 * Indexes of two samples are built in each way that is possible, searched and removed. What is linear in the rows is
 * drawn out as a line, the rest as a power (sizing_model.h); the device under the folder is probed.
 */
#ifndef QUIRE_INDEX_SIZING_H
#define QUIRE_INDEX_SIZING_H

#include "index/blocks/block_trial.h"
#include "index/sizing/sizing_model.h"

#define SIZING_QUERIES    256u
#define SIZING_ROWS_LEAST 1024u      /* of the larger sample; the other has a quarter */
#define SIZING_ROWS_AUTO  32768u     /* of the larger sample, unless other rows are asked for */
#define SIZING_ROWS_MOST  178000000u /* of one index: a build has at most 2^32 edges, 24 of a row */
#define SIZING_WAYS_MAX   7u

struct sizing_question {
    uint64_t rows;                    /* of the index to be */
    uint32_t sample_rows;             /* of the larger sample, a multiple of 4 * SIZING_QUERIES */
    float recall;                     /* above 0, at most 1 */
    unsigned processors;              /* that searches have; above 0 */
    bool lists_only, page_graph_only; /* not both */
    struct quire_input sample;        /* at least sample_rows + SIZING_QUERIES vectors like those of the index */
    struct quire_build_options build; /* metric, slot, block_bytes, degree, threads, keys none; progress is told */
};

/* One way to build and search. */
struct sizing_answer {
    const char *name; /* static: "page graph, 4-bit codes", ... */
    struct block_way way;
    struct sizing_point small, large, whole; /* measured, measured, expected */
    uint64_t memory_bytes;                   /* --memory with which searches go this way */
    double read_bytes;                       /* of one read, on average */
    double reads_per_second;                 /* of the device, of reads of about that size; 0: not known */
    double latency_us;                       /* one query at a time; 0: not known */
    double qps;                              /* of all processors and the device; 0: not known */
    double build_cpu_s;                      /* with calibration */
    uint64_t build_memory_bytes, build_memory_least_bytes; /* with everything in memory; with --build-memory */
    uint64_t build_disk_bytes;                             /* of work files under --build-memory, and of the index */
};

struct sizing_report {
    struct sizing_answer answers[SIZING_WAYS_MAX];
    uint32_t n_answers;
    bool device_known;
    char device_note[160]; /* why not */
    double read_us;        /* of a block, by itself */
};

/* folder: where samples are built and the device is probed, a few hundred MB at most. Nothing stays there.
 * QUIRE_EINVALID, QUIRE_ECANCELLED, and what builds and searches answer. */
int sizing_run(const char *folder, const struct sizing_question *question, struct sizing_report *out,
               struct quire_error *err);

/* The number of the answer with the least memory of those that stay within `memory_bytes` (0: any) and give `qps` (0:
 * nearly the most of them); where the device is not known, the one with the fewest reads. -1: none. */
int sizing_choose(const struct sizing_report *report, uint64_t memory_bytes, double qps);

#endif
