/*
 * block_trial.h - what an index and its searches cost in one of several ways, tried on a sample of the rows.
 */
#ifndef QUIRE_INDEX_BLOCK_TRIAL_H
#define QUIRE_INDEX_BLOCK_TRIAL_H

#include "quire.h"

/* Rows of an input, some to be built of and some to be asked for. */
struct block_sample {
    uint32_t n_rows, n_queries, dim;
    enum quire_type type;
    void *rows;        /* n_rows x dim, elements of `type`; owned */
    float *queries;    /* n_queries x dim; owned */
    const void **keys; /* of the rows, those of the options; NULL: there are none; the array is owned */
    uint32_t *key_bytes;
};

#define BLOCK_SAMPLE_ROWS    8192u
#define BLOCK_SAMPLE_QUERIES 256u

/* Takes n_rows + n_queries rows in equal distances from all over the input, forward; it has at least as many, and
 * n_rows is a multiple of n_queries. */
int block_sample_make(const struct quire_input *input, const struct quire_build_options *options, uint32_t n_rows,
                      uint32_t n_queries, struct block_sample *out, struct quire_error *err);
void block_sample_free(struct block_sample *sample);

/* How an index of all rows would be built and searched. */
struct block_way {
    enum quire_index_kind index; /* PAGEGRAPH or SPANN */
    uint32_t block_bytes;        /* 0: what the build chooses */
    unsigned code_bits;          /* resident; 0: codes of edges or of lists, which are read */
    bool edge_codes;             /* blocks of a page graph have them */
};
struct block_cost {
    double reads, read_bytes, rounds, codes, cpu_us; /* of a query at the recall asked for, exact distances; the
                                                      * kernel's share included */
    uint64_t resident_bytes, index_bytes;            /* of the index of the sample */
};
/* Builds an index of the sample in the new folder `path`, calibrated in brief; whole_edges: its edges are sought as
 * those of any other. The options' progress is told of it. Of lists the options' code_bits count, not the way's. */
int block_trial_build(const char *path, const struct block_sample *sample, const struct quire_build_options *options,
                      const struct block_way *way, bool whole_edges, struct quire_error *err);
/* Searches it for 10 rows at this recall, in one thread. */
int block_trial_search(const char *path, const struct block_sample *sample, const struct block_way *way, float recall,
                       struct block_cost *out, struct quire_error *err);
/* Both in brief, at recall 0.95; the folder is removed. */
int block_trial(const char *path, const struct block_sample *sample, const struct quire_build_options *options,
                const struct block_way *way, struct block_cost *out, struct quire_error *err);

#endif
