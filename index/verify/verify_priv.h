/*
 * verify_priv.h - what the parts of quire_verify share: the walk's state, and how a finding is told.
 */
#ifndef QUIRE_INDEX_VERIFY_PRIV_H
#define QUIRE_INDEX_VERIFY_PRIV_H

#include "index/segment/segment_view.h"
#include "index/verify/verify.h"

/* Which blocks each block leads to: targets[at[b]..at[b + 1]). */
struct block_links {
    uint64_t *at;
    uint32_t *targets;
    size_t capacity;
};

struct verification {
    struct io_fs *fs;
    struct segment *s;
    struct segment *narrow; /* the same index with the codes that edges carry; NULL: it has no edge codes */
    const struct verify_listener *listener;
    struct quire_verify_report report;
    struct quire_error *err;
    uint8_t *seen;    /* bitmap of input rows */
    uint8_t *entered; /* bitmap of blocks that an edge leads to */
    uint8_t *reached; /* bitmap of blocks that the entry tree leads to */
    uint8_t *sound;   /* bitmap of blocks that could be opened */
    struct block_links links;
    uint32_t *places; /* KEYS_ROWS: row of each input row; NULL with keys of the user's */
    uint8_t *buckets; /* key pages, whole; NULL otherwise */
    uint8_t *batch;
    uint32_t *edges;
    float *centre, *vector, *rotated, *decoded;
    double error_sum; /* of so many codes */
    uint64_t errors;
};

/* One more finding; the sentence goes to the caller. */
void __attribute__((format(printf, 2, 3))) verify_found(struct verification *v, const char *format, ...);
/* A squared length of the size of the longest in the working space. */
double verify_scale2(const struct segment_params *p);
/* QUIRE_ECANCELLED if the caller wants no more. */
int verify_progress(const struct verification *v, const char *phase, uint64_t done, uint64_t total);
/* The vector of a slot in the rotated working space, in v->rotated; in v->centre is that of its block. Leaves the
 * slot's own elements in v->vector unless they are a code relative to the centre. Returns as space_row. */
float verify_slot_vector(struct verification *v, const struct block_view *view, uint32_t slot);

/* verify_lists.c: heads, directory and posting blocks, after all blocks were looked at. */
int verify_lists(struct verification *v);
/* verify_columns.c: columns and tenants against the attributes. */
int verify_columns(struct verification *v);

#endif
