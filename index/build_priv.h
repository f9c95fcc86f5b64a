/* build_priv.h - what the steps of a build share. build.c runs them in order; each step's file says what it does. */
#ifndef QUIRE_INDEX_BUILD_PRIV_H
#define QUIRE_INDEX_BUILD_PRIV_H

#include "index/block.h"
#include "index/format.h"
#include "index/neighbours.h"
#include "index/partition.h"
#include "index/space.h"
#include "io/sections.h"

struct build {
    /* input */
    const char *path;
    const uint8_t *vectors;
    size_t row_bytes;
    uint32_t n, dim;
    enum quire_type type;
    struct quire_build_options options;
    struct quire_error *err;
    struct io_fs *fs;
    /* made on the way */
    struct space space;
    struct segment_params params;
    uint8_t segment_id[16];
    char *folder;          /* temporary name until published; owned */
    struct rows rows;      /* in input order, then in block order; codes released after the graph */
    uint32_t *order;       /* row of the index -> row of the input; owned */
    float *centres;        /* decoded CENTRE_BITS codes: n_blocks x code_dim; owned */
    uint8_t *centre_codes; /* n_blocks x code_bytes; owned */
    float *centre_factors; /* n_blocks x 3; owned */
    struct neighbours neighbours;
    uint64_t *external_at; /* per input row: offset of its key's record in the heap; NULL without keys; owned */
};

/* The floats of the user's vector of an input row. */
void build_vector(const struct build *b, uint32_t input_row, float *out);
void build_progress(const struct build *b, const char *phase, struct progress *out);

/* build_rows.c: validation, mean, 8-bit codes */
int build_check_input(struct build *b);
int build_encode_rows(struct build *b);
/* build_layout.c: slots per block, order, centres */
int build_choose_layout(struct build *b);
int build_order_rows(struct build *b);
int build_centres(struct build *b);
/* build_blocks.c; hidden: bitmap of rows whose edges are left out, or NULL */
int build_write_blocks(struct build *b, const uint8_t *hidden);
/* build_codes.c */
int build_write_codes(struct build *b);
/* build_keys.c */
int build_write_keys(struct build *b);
int build_write_attributes(struct build *b);
/* calibrate.c: points, as META_CALIBRATION stores them (none for small inputs); *out owned by the caller */
int build_calibrate(struct build *b, uint8_t **out, size_t *bytes);
/* build.c */
int build_write_meta(struct build *b, const uint8_t *calibration, size_t calibration_bytes);
char *build_file_path(const struct build *b, const char *name); /* owned by the caller; NULL without memory */

#endif
