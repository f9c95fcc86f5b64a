/* top_frame.h - what a frame shows: a summary of the server, and tables of tenants, caches and commands. */
#ifndef QUIRE_TOOLS_TOP_FRAME_H
#define QUIRE_TOOLS_TOP_FRAME_H

#include "tools/top/top_canvas.h"
#include "tools/top/top_order.h"

/* What the user chose. */
struct top_view {
    enum top_table table;
    enum top_sort sort;
    bool reverse, help, paused;
    uint32_t scroll; /* rows of the table above the first that is shown */
    double interval_s;
};

/* What is known. */
struct top_shown {
    const char *server;            /* its address */
    const struct top_info *info;   /* the last; NULL: there was none */
    const struct top_rates *rates; /* likewise */
    const char *problem;           /* why there is no connection; NULL: there is one */
    double problem_s;              /* since when */
    double silent_s;               /* how long an answer has been waited for; 0: not */
    char clock[12];                /* time of day of the frame */
};

/* Everything, with all tables that have rows; the canvas has begun and has no end. */
void top_frame_whole(struct top_canvas *canvas, const struct top_view *view, const struct top_shown *shown);
/* One screen: the summary, the table of the view as far as it fits, and a line that names keys. The view's scroll is
 * put back where it is beyond the rows. */
void top_frame_screen(struct top_canvas *canvas, struct top_view *view, const struct top_shown *shown);

#endif
