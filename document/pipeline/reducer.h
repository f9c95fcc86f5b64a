/*
 * reducer.h - what REDUCE makes of the rows of a group: a count, a sum, a list.
 *
 * A reducer is what the command says, immutable; a tally is what it knows of one group.
 */
#ifndef QUIRE_DOCUMENT_REDUCER_H
#define QUIRE_DOCUMENT_REDUCER_H

#include "document/pipeline/datum.h"
#include "quire.h"

#define REDUCER_SAMPLE_MAX 1000u /* values of RANDOM_SAMPLE */

enum reducer_kind {
    REDUCER_COUNT,
    REDUCER_COUNT_DISTINCT,
    REDUCER_COUNT_DISTINCTISH,
    REDUCER_SUM,
    REDUCER_MIN,
    REDUCER_MAX,
    REDUCER_AVG,
    REDUCER_STDDEV,
    REDUCER_QUANTILE,
    REDUCER_TOLIST,
    REDUCER_FIRST_VALUE,
    REDUCER_RANDOM_SAMPLE
};

struct reducer {
    enum reducer_kind kind;
    double quantile;     /* QUANTILE: 0 to 1 */
    uint32_t samples;    /* RANDOM_SAMPLE */
    bool by, descending; /* FIRST_VALUE: BY another field */
};

struct reducer_tally;

/* seed: of RANDOM_SAMPLE. NULL: no memory, or the pool is full. */
struct reducer_tally *reducer_begin(const struct reducer *reducer, uint64_t seed, struct datum_pool *pool);
/* A row: its value, and that of FIRST_VALUE's BY; NULL: it has none. False: no memory, or the pool is full; the tally
 * may only be ended then. */
bool reducer_add(const struct reducer *reducer, struct reducer_tally *tally, struct datum *value, struct datum *by,
                 struct datum_pool *pool);
/* The result, the caller's share; NULL: no memory, or the pool is full. To be asked once. */
struct datum *reducer_result(const struct reducer *reducer, struct reducer_tally *tally, struct datum_pool *pool);
void reducer_end(const struct reducer *reducer, struct reducer_tally *tally,
                 struct datum_pool *pool); /* NULL is fine */

#endif
