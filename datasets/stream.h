/*
 * stream.h - a labelled text set as a stream of requests to a cache: its rows, orders of arrival, nearest earlier rows.
 *
 * A set is a .tsv (one row per line, columns by tabs) beside a file of unit vectors of as many rows. A row has a
 * category and an answer; two rows of a category with the same answer may answer each other. Rows of the category that
 * is called `nothing` have no answer that would be right for another row.
 *
 * stream_nearest gives what the search of a cache would give that has seen all earlier rows of the stream, by brute
 * force: the truth that a cache's own search is compared with, and the input of every simulated policy.
 */
#ifndef QUIRE_DATASETS_STREAM_H
#define QUIRE_DATASETS_STREAM_H

#include "datasets/vecfile.h"
#include "index/vector/parallel.h"

#define STREAM_NO_ANSWER      UINT32_MAX
#define STREAM_CATEGORIES_MAX 4096u

struct stream_columns {
    unsigned category, answer, text; /* from 1 */
    const char *nothing;             /* a category, or NULL */
};

struct stream_data {
    uint32_t rows, n_categories, n_answers;
    uint32_t *category, *answer; /* of each row; answer STREAM_NO_ANSWER: right for no other row */
    const char **category_names; /* into tsv */
    const char **texts;          /* of each row, into tsv */
    struct vectors vectors;      /* f32, rows x dim */
    char *tsv;                   /* the file, columns ended by zeroes */
};

/* QUIRE_EFORMAT with the line, QUIRE_EDIM where the files differ in rows, and what reading gives. */
int stream_load(const char *tsv, const char *vectors, const struct stream_columns *columns, struct stream_data *out,
                struct quire_error *err);
void stream_free(struct stream_data *data);

enum stream_order {
    STREAM_RANDOM,  /* rows in any order */
    STREAM_BURSTY,  /* one category at a time, in bursts of 200 rows on average */
    STREAM_DRIFTING /* answers appear one after the other over the first 70 % of the stream */
};

/* A permutation of the rows; the same for the same seed. QUIRE_ENOMEM. */
int stream_order(const struct stream_data *data, enum stream_order order, uint64_t seed, uint32_t *rows);

struct stream_request {
    uint32_t category;
    float similarity; /* of the nearest earlier row of its category; negative: there is none */
    bool right;       /* that row has the same answer */
};

/* What each of n_orders streams would meet: requests[o][i] for the row orders[o][i]. rows^2 / categories products, but
 * once for all orders. progress (NULL: none) is asked after each row. QUIRE_ENOMEM, QUIRE_ECANCELLED. */
int stream_nearest(const struct stream_data *data, const uint32_t *const *orders, uint32_t n_orders,
                   struct stream_request *const *requests, const struct progress *progress);

#endif
