/*
 * centre.h - where the middle of some near rows lies, and how far they are spread around it.
 */
#ifndef QUIRE_INDEX_CENTRE_H
#define QUIRE_INDEX_CENTRE_H

#include "index/vector/rows.h"

struct centre_scratch {
    float *rows;      /* most x dim, decoded */
    float *distances; /* of each, squared, from the centre */
    float *sorted;    /* as many */
};

/* For sets of at most `most` rows. QUIRE_ENOMEM. */
int centre_scratch_init(struct centre_scratch *s, size_t most, uint32_t dim);
void centre_scratch_fini(struct centre_scratch *s);
/* Rows first .. first + n become those that the calls below are about. */
void centre_take(struct centre_scratch *s, const struct rows *rows, uint32_t first, uint32_t n);
/* The mean without rows far out. At least half of the rows are within the median distance and stay; of fewer than six
 * none can be four times as far from their mean as the others. */
void centre_find(struct centre_scratch *s, uint32_t n, uint32_t dim, float *centre);
/* The root mean square distance from the centre, where a row far out counts as one at the limit: the errors of the
 * others' estimates follow from it. */
float centre_rms(struct centre_scratch *s, uint32_t n, uint32_t dim, const float *centre);

#endif
