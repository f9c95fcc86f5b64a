/*
 * expression.h - expressions of APPLY and FILTER: text in, a value per row out.
 *
 * The language is described in docs/aggregate.md. An expression is immutable; several threads may evaluate it, each
 * with a pool of its own.
 */
#ifndef QUIRE_DOCUMENT_EXPRESSION_H
#define QUIRE_DOCUMENT_EXPRESSION_H

#include "document/pipeline/datum.h"
#include "quire.h"

#define EXPRESSION_BYTES_MAX 65536u /* of an expression's text */
#define EXPRESSION_DEPTH_MAX 128u   /* of parentheses, calls and signs in one another */
#define EXPRESSION_STACK_MAX 256u   /* values that wait at one time */
#define EXPRESSION_NAMES_MAX 1024u  /* different names of fields */

struct expression;

/* QUIRE_EPARSE: err->message names what was met at which offset; QUIRE_ELIMIT: with the limit; QUIRE_ENOMEM. */
int expression_parse(const char *text, size_t bytes, struct expression **out, struct quire_error *err);
void expression_free(struct expression *expression); /* NULL is fine */

/* The fields it names, each once, without @ and escapes; the expression's memory. */
uint32_t expression_n_names(const struct expression *expression);
const char *expression_name(const struct expression *expression, uint32_t i, uint32_t *bytes);
/* Whether it calls matched_terms(). */
bool expression_uses_terms(const struct expression *expression);

/* One row to it. */
struct expression_row {
    struct datum *const *values; /* of the row */
    uint32_t n_values;
    const uint32_t *columns; /* where in it the i-th name is; a place behind n_values: the row has no such value */
    /* The words of the query that the row's document matched, `most` at most, as an array; *terms is NULL where there
     * are none. May be NULL: there are none. */
    int (*terms)(void *context, uint32_t most, struct datum_pool *pool, struct datum **terms, struct quire_error *err);
    void *context;
};

/* *out: the caller's share. QUIRE_EINVALID: a value of the wrong kind, or none where one is needed; QUIRE_ELIMIT: the
 * pool is full; QUIRE_ENOMEM; what `terms` answers. */
int expression_evaluate(const struct expression *expression, const struct expression_row *row, struct datum_pool *pool,
                        struct datum **out, struct quire_error *err);

#endif
