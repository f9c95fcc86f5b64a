/* top_frame_priv.h - the parts of a frame. */
#ifndef QUIRE_TOOLS_TOP_FRAME_PRIV_H
#define QUIRE_TOOLS_TOP_FRAME_PRIV_H

#include "tools/top/top_figure.h"
#include "tools/top/top_frame.h"

/* The first lines: where, what is wrong, and the figures of the whole server. */
void top_summary_draw(struct top_canvas *canvas, const struct top_view *view, const struct top_shown *shown);
/* A table's title, the names of its columns and `most` rows of it from `first` on. */
void top_table_draw(struct top_canvas *canvas, const struct top_view *view, const struct top_shown *shown,
                    enum top_table table, uint32_t first, uint32_t most);
enum { TOP_TABLE_HEAD_LINES = 2 };
void top_help_draw(struct top_canvas *canvas);

#endif
