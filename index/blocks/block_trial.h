/*
 * block_trial.h - what searches cost at a block size, tried on a sample of the rows.
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

/* Takes rows in equal distances from all over the input, forward; it has at least as many as the sample. */
int block_sample_make(const struct quire_input *input, const struct quire_build_options *options,
                      struct block_sample *out, struct quire_error *err);
void block_sample_free(struct block_sample *sample);

/* How an index of all rows would be searched. */
struct block_way {
    uint32_t block_bytes;
    unsigned code_bits; /* resident; 0: codes of edges, in the blocks */
    bool edge_codes;    /* blocks have them */
};
struct block_cost {
    double reads, cpu_us; /* of a query at recall 0.95, exact distances; the kernel's share included */
};
/* Builds an index of the sample in the new folder `path`, searches it and removes it. The options' progress is told of
 * that build. */
int block_trial(const char *path, const struct block_sample *sample, const struct quire_build_options *options,
                const struct block_way *way, struct block_cost *out, struct quire_error *err);

#endif
