/* top_order.h - the rows of a table in the order that is asked for. */
#ifndef QUIRE_TOOLS_TOP_ORDER_H
#define QUIRE_TOOLS_TOP_ORDER_H

#include "tools/top/top_rates.h"

enum top_sort { TOP_SORT_RATE, TOP_SORT_TOTAL, TOP_SORT_TIME, TOP_SORT_SHARE, TOP_SORT_NAME, TOP_N_SORTS };
extern const char *const top_order_names[TOP_N_SORTS];

/* What rows are sorted by; NAN where there is no such figure, or by name. */
double top_order_value(const struct top_info *info, const struct top_rates *rates, enum top_table table, uint32_t row,
                       enum top_sort sort);
/* Numbers of all rows into order[0..n_rows of the table]: the greatest first, names from A on, the other way round with
 * `reverse`; rows without the figure last. Equal rows are in the order of their names. */
void top_order_rows(const struct top_info *info, const struct top_rates *rates, enum top_table table,
                    enum top_sort sort, bool reverse, uint32_t order[TOP_ROWS_MAX]);

#endif
