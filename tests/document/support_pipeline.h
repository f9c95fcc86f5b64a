/*
 * support_pipeline.h - FT.AGGREGATE over a handful of documents written as text, and its rows as text.
 *
 *     support_aggregate(&table, "LOAD;1;@a;APPLY;@a + 1;AS;b")   ->   "a=1 b=2; a=3 b=4"
 */
#ifndef QUIRE_TESTS_SUPPORT_PIPELINE_H
#define QUIRE_TESTS_SUPPORT_PIPELINE_H

#include "document/pipeline/pipeline.h"

struct support_table {
    const char *schema;           /* words of FT.CREATE behind the index's name, a semicolon between */
    const char *const *documents; /* "key;field;value;field;value", then NULL */
    const char *yields;           /* names of distances, a semicolon between; the i-th of document d is d + i / 10 */
    uint64_t gone;                /* a bit for each document that next() gives, and load() does not find */
    uint32_t budget;              /* rows per call; 0: 1,000 */
    struct pipeline_limits limits;
    uint32_t paused; /* out: calls that answered PIPELINE_PAUSED */
    uint64_t total;  /* out */
};

/* Names and values of a row with blanks between, rows with "; " between; arrays as [a,b], null as NULL. "! " and the
 * message where it failed. Static storage until the next call. */
const char *support_aggregate(struct support_table *table, const char *words);
/* The words of a text with semicolons between; pieces of `text`. */
uint32_t support_words(const char *text, struct schema_word *words, uint32_t most);

#endif
