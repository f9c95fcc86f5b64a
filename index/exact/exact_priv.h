/*
 * exact_priv.h - the rows of a segment on a device: what exact_rows.c, which brings them there, and exact_name.c, which
 * knows how far sums may be off, share.
 */
#ifndef QUIRE_INDEX_EXACT_PRIV_H
#define QUIRE_INDEX_EXACT_PRIV_H

#include "index/exact/exact.h"
#include "index/segment/segment_view.h"

/* Of queries and rows that are elements: products of such, and what a device may lose below 2^-126, are far from each
 * other. */
#define EXACT_LENGTH_MIN 1e-6
#define EXACT_LENGTH_MAX 1e6

/* How the distances of a search are made (score.h), and with them what a row is on the device. v is what the device
 * answers, w the distance in the working space. */
enum exact_form {
    EXACT_L2,      /* elements: w = v */
    EXACT_COSINE,  /* elements, times a factor: w = 2 + 2 v */
    EXACT_PRODUCT, /* elements: w grows with v */
    EXACT_UNIT,    /* levels of unit codes less 127.5, which halves hold, times a factor: w = 2 + 2 v */
    EXACT_CENTRED, /* the rotated row by its 8-bit code, and a last element, which is constant: w = |q|^2 + 2 v */
};

/* The largest of what rows have; nothing is forgotten when rows leave the device. */
struct exact_maxima {
    double length;   /* of the row as the device has it, times its factor */
    double factor;   /* of a code's step */
    double centre;   /* length */
    double constant; /* magnitude of the last element */
    double offset;   /* of the code's own constant */
};

struct exact_rows {
    struct offload *offload;
    struct segment *segment; /* a reference */
    enum exact_form form;
    enum offload_element element;
    uint32_t dim; /* on the device */
    size_t row_bytes;
    uint32_t part_blocks, n_parts; /* blocks of the segment that go together */
    struct offload_block **parts;  /* NULL: not there */
    uint32_t n_held;
    struct exact_maxima maxima;
};

/* Rows of one part, and the first of them. */
static inline uint32_t exact_part_first(const struct exact_rows *r, uint32_t part)
{
    return part * r->part_blocks * r->segment->params.slots_per_block;
}
uint32_t exact_part_rows(const struct exact_rows *rows, uint32_t part);
/* Brings a part to the device, if it is not there. Errors: those of exact_name. */
int exact_need_part(struct exact_rows *rows, uint32_t part, struct quire_error *err);
/* After QUIRE_ENOMEM: another part leaves the device, or there are more and smaller parts now. False: less is not worth
 * it. */
bool exact_make_room(struct exact_rows *rows, uint32_t part);

#endif
