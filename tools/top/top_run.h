/* top_run.h - the loop of `quire top`: asks, draws, listens to keys and signals. */
#ifndef QUIRE_TOOLS_TOP_RUN_H
#define QUIRE_TOOLS_TOP_RUN_H

#include "tools/top/top_link.h"
#include "tools/top/top_order.h"

#define TOP_INTERVAL_MIN_S 0.1
#define TOP_INTERVAL_MAX_S 3600

struct top_options {
    struct top_address address;
    double interval_s;
    uint64_t count; /* frames after which it ends; 0: none */
    bool text;      /* frames as plain lines, also on a terminal */
    bool json;      /* lines of JSON */
    enum top_table table;
    enum top_sort sort;
};

/* Until the user ends it, the count is reached, or a signal comes, whose number is then in *signal_number (0 else). An
 * error: the first INFO could not be had, or the output not be written; a server that goes later is waited for. */
int top_run(const struct top_options *options, int *signal_number, struct quire_error *err);

#endif
