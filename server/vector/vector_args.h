/*
 * vector_args.h - vectors and expressions as arguments of commands: what VADD, VSIM, VMSIM and others have in common.
 */
#ifndef QUIRE_SERVER_VECTOR_ARGS_H
#define QUIRE_SERVER_VECTOR_ARGS_H

#include "index/attribute/filter.h"
#include "index/collection/collection.h"
#include "server/call/caller.h"

/* A vector, or the name of an element that has one, as it stands in a request. */
struct vector_arg {
    struct resp_arg element; /* ELE; data NULL: not given */
    struct resp_arg blob;    /* FP32 */
    const struct resp_arg *values;
    uint32_t n_values; /* VALUES */
};

/* Takes the vector that begins at args[*at] and moves *at behind it. `elements`: whether ELE is one of the forms. False
 * after an error reply. */
bool vector_arg_take(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, bool elements,
                     struct vector_arg *out);
/* How many numbers it has; 0 for ELE. */
uint32_t vector_arg_dim(const struct vector_arg *vector);
/* Its numbers into out (vector_arg_dim of them); false with *err where one is no number. */
bool vector_arg_numbers(const struct vector_arg *vector, float *out, struct quire_error *err);

/* The value behind args[*at], which is moved to it, as a whole number of low..high or a number; false after an error
 * reply. */
bool vector_arg_take_integer(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, long long low,
                             long long high, long long *out);
bool vector_arg_take_number(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, double low,
                            double high, double *out);

/* The expression behind args[*at], which is moved to it; false after an error reply. */
bool vector_filter_take(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct resp_arg *out);
/* Compiles it with the columns that the set declares (NULL: for no set). False after an error reply; otherwise *out is
 * ended by filter_unref before the set is released. */
bool vector_filter_compile(struct caller *c, struct resp_arg expression, const struct collection *collection,
                           struct filter **out);

/* A vector of more dimensions brought to those of a set that was made with REDUCE: a random rotation, of which the
 * first coordinates are kept (Johnson and Lindenstrauss 1984; Ailon and Chazelle 2006). out: config->dim floats. */
int vector_reduce(const struct collection_config *config, const float *vector, float *out);
/* Whether a vector of so many numbers fits a set: not, as it is, or by vector_reduce. */
enum vector_fit { VECTOR_FITS_NOT, VECTOR_FITS, VECTOR_FITS_REDUCED };
enum vector_fit vector_fits(const struct collection_config *config, uint32_t dim);
/* QUIRE_EDIM: of a vector that fits not, in Redis's words. */
int vector_fit_error(const struct collection_config *config, uint32_t dim, struct quire_error *err);

#endif
