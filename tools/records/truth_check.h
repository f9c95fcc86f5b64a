/* truth_check.h - whether ground truth is of the rows, queries and metric that it is stored with. */
#ifndef QUIRE_TOOLS_RECORDS_TRUTH_CHECK_H
#define QUIRE_TOOLS_RECORDS_TRUTH_CHECK_H

#include "datasets/vecfile.h"

struct truth_check {
    struct vectors queries;
    struct truth truth;
    enum quire_metric metric;
    uint32_t *order;  /* queries, by the row of their nearest neighbour */
    uint32_t n, done; /* how many; those whose row has come */
};

/* Loads both. QUIRE_EINVALID: truth without distances, or of another number of queries. */
int truth_check_init(struct truth_check *check, const char *queries, const char *truth, enum quire_metric metric,
                     struct quire_error *err);
/* n rows as they come, from number `first` on. QUIRE_EINVALID: a query is not as far from its nearest neighbour as the
 * truth says. */
int truth_check_rows(struct truth_check *check, const char *truth, enum quire_type type, const void *rows,
                     uint64_t first, uint64_t n, struct quire_error *err);
void truth_check_fini(struct truth_check *check); /* a zeroed one is fine */

#endif
