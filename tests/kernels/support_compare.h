/* support_compare.h - checks of one variant of the kernels against plain arithmetic, without a test framework. */
#ifndef QUIRE_TESTS_KERNELS_SUPPORT_COMPARE_H
#define QUIRE_TESTS_KERNELS_SUPPORT_COMPARE_H

#include "index/kernels/kernels.h"
#include <stdbool.h>
#include <stddef.h>

struct compare_check {
    const char *name;
    /* True if `k` is right; otherwise the first difference is in `message` (size bytes). */
    bool (*run)(const struct kernels *k, char *message, size_t size);
};

extern const struct compare_check compare_checks[];
extern const size_t n_compare_checks;

/* Makes the first call of kernels() in several threads at once, then prints the name of the table and the reason, a
 * line each. An exit status: 0, or more if the threads did not all get the same table. */
int compare_report(void);

#endif
