/*
 * exact_priv.h - the rows of a segment on a device: what exact_rows.c, which brings them there, and exact_name.c, which
 * knows how far sums may be off, share.
 */
#ifndef QUIRE_INDEX_EXACT_PRIV_H
#define QUIRE_INDEX_EXACT_PRIV_H

#include "index/exact/exact.h"
#include "index/format/format.h"
#include "index/segment/segment_view.h"
#include "io/bitmap.h"
#include <math.h>

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
    /* of codes in the place of rows (exact_codes.c) */
    double error, coded_norm2, point; /* e; |f y|^2; length of a row as a point */
    double h_least, h_most;
};

struct exact_rows {
    struct offload *offload;
    struct segment *segment; /* a reference */
    enum exact_form form;
    enum offload_element element;
    uint32_t dim;                  /* of a row as it is; of queries */
    size_t row_bytes;              /* on the device */
    unsigned bits;                 /* 0: rows as they are; otherwise of codes in their place, and: */
    uint32_t space_dim, coded_dim; /* of a row as a point; the same padded */
    float *mean;                   /* space_dim; NULL: not yet known */
    double mean_length;
    uint32_t part_blocks, n_parts; /* blocks of the segment that go together */
    struct offload_block **parts;  /* NULL: not there */
    uint32_t n_held;
    struct exact_maxima maxima;
};

/* How far the distance w of a search may be from v. */
struct exact_bound {
    bool is_known;
    double relative, absolute;
    double clamp; /* v up to which w may be cut off at 0 */
};

static inline double exact_lower(const struct exact_bound *b, double v)
{
    double least = v - b->relative * fabs(v) - b->absolute;
    return least <= b->clamp ? -INFINITY : least;
}

static inline double exact_upper(const struct exact_bound *b, double v)
{
    return v + b->relative * fabs(v) + b->absolute;
}

/* ---- exact_codes.c ----------------------------------------------------------------------------------------------- */

/* Places for one row on its way: as a point, and less the mean (coded_dim). */
struct exact_code_room {
    float *point, *rest;
};

/* The code of a row as the device would have it, and what it says of the row. r->mean is known. */
void exact_codes_put(struct exact_rows *rows, const struct exact_code_room *room, const uint8_t *row, float factor,
                     uint8_t *code, struct offload_estimate *estimate);
/* Sets r->mean. Errors: those of exact_name. */
int exact_codes_mean(struct exact_rows *rows, struct quire_error *err);

struct exact_coded_query {
    struct offload_coded coded;
    double norm2; /* of the query itself */
    double apart; /* how far the device's number may be above the least distance, for the codes there are so far */
};
/* rest: coded_dim floats; levels: coded_dim. */
void exact_codes_query(const struct exact_rows *rows, const float *query, float *rest, int8_t *levels,
                       struct exact_coded_query *out);

/* Queries with what the device says of each: the `most` rows of least distance at least, in order. */
struct exact_coded_batch {
    uint32_t n, most;
    const float *queries; /* n x dim */
    const struct exact_coded_query *coded;
    const struct offload_near *near; /* n x most */
};
/* Fills the request's answers for queries `first` .. first + n. Errors: those of exact_name. */
int exact_codes_answer(struct exact_rows *rows, const struct exact_request *request, uint32_t first,
                       const struct exact_coded_batch *batch, const struct exact_bound *bounds,
                       struct quire_error *err);

/* ---- exact_rows.c ------------------------------------------------------------------------------------------------ */

/* Single rows as the device would have them; a block is read when a row of it follows one of another. */
struct exact_reader;
struct exact_reader *exact_reader_open(struct exact_rows *rows, struct quire_error *err); /* NULL: no memory */
void exact_reader_close(struct exact_reader *reader);                                     /* NULL is fine */
/* *out is valid until the next; *factor 1 where rows have none. */
int exact_reader_row(struct exact_reader *reader, uint32_t row, const uint8_t **out, float *factor);

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
