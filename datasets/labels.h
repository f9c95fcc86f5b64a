/*
 * labels.h - made-up attributes and tenants of rows, to measure filters with: of chosen selectivity, at random or by
 * position.
 *
 * Attributes of a row, as JSON:
 *   p001 p005 p01 p05 p1 p5 p10 p30   1 for 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30 % of the rows, 0 for the others
 *   a20 b20                           1 for 20 % each, independent of one another
 *   kind                              one of LABELS_KINDS strings, "k0" and so on
 *   time                              seconds since 1970, spread over the year 2025 in UTC, from LABELS_TIME_FIRST on
 *   tags                              1 to 3 of 20 words
 *   name                              a string that no other row has
 * By position: the rows of a label are those nearest to a row drawn at random, one of its own for each label; kind is
 * the nearest of so many rows; time grows with the distance to one. b20, tags and name are always at random.
 *
 * Tenants "t1", "t2", ... have sizes by a power law: the r-th is proportional to 1 / r^exponent, each has a row at
 * least. By position: a tenant's rows lie near one another.
 *
 * Everything is a function of the options and the base. Thread-safety: constant once made.
 */
#ifndef QUIRE_DATASETS_LABELS_H
#define QUIRE_DATASETS_LABELS_H

#include "datasets/vecfile.h"

#define LABELS_KINDS       50u
#define LABELS_TIME_FIRST  1735689600u /* 2025-01-01T00:00:00Z */
#define LABELS_TIME_SPAN   31536000u   /* a year */
#define LABELS_TEXT_MAX    320u        /* bytes of a row's attributes, or of its tenants */
#define LABELS_TENANTS_MAX 10000000u

struct label_options {
    uint64_t rows;              /* 1..QUIRE_ROWS_MAX; not looked at with a base */
    const struct vectors *base; /* by position of these; NULL: at random */
    uint64_t seed;
    uint32_t tenants; /* 0: none; at most as many as rows */
    double exponent;
    double shared;    /* share of rows, 0..1, that another tenant, drawn at random, is granted as well */
    unsigned threads; /* 0: as many as there are processors */
};

struct labels;

/* *out is ended by labels_destroy. QUIRE_ERANGE, QUIRE_ENOMEM. By position: some 320 distances per row. */
int labels_create(const struct label_options *options, struct labels **out, struct quire_error *err);
void labels_destroy(struct labels *labels); /* NULL is fine */
/* The JSON of a row, or its tenants with a space between, terminated; returns its bytes. */
uint32_t labels_attributes(const struct labels *labels, uint64_t row, char out[LABELS_TEXT_MAX]);
uint32_t labels_tenants(const struct labels *labels, uint64_t row, char out[LABELS_TEXT_MAX]);

#endif
