/*
 * top_frame.c - a frame from its parts: for a pipe everything one below the other, for a screen what fits.
 *
 * The summary comes first and is as high as it needs, but for a few rows of the table, which gets the rest. The last
 * line of a screen names keys.
 */
#include "tools/top/top_frame_priv.h"
#include <stdio.h>
#include <string.h>

enum { ROWS_MIN = 4 }; /* of a table, where the height allows any */

static const char *const help[] = {
    "q           quit",
    "h, ?        this page, and back",
    "t c m       table of tenants, of caches, of commands",
    "tab         the next table",
    "s           sort by the next key: rate, total, time, share, name",
    "r           the other way round",
    "up down     scroll by a row (k, j); page up, page down: by ten",
    "p, space    hold the picture, and go on",
    "+ -         twice, half the interval (0.1 to 3600 s)",
    "^L          draw anew",
    "",
    "Rates are of the last interval; p50, p99 and what is called total are since",
    "the start. \"cost\" is a tenant's share of the lanes' time, \"fair\" what its",
    "weight gives it beside the others that are active now.",
};

void top_help_draw(struct top_canvas *canvas)
{
    top_canvas_line(canvas);
    top_canvas_put(canvas, TOP_STRONG, "quire top: keys");
    top_canvas_line(canvas);
    for (size_t i = 0; i < sizeof help / sizeof *help; i++) {
        top_canvas_line(canvas);
        top_canvas_put(canvas, TOP_PLAIN, "%s", help[i]);
    }
}

static void draw_keys(struct top_canvas *canvas, const struct top_view *view)
{
    while (top_canvas_lines_left(canvas) > 1)
        top_canvas_line(canvas);
    top_canvas_line(canvas);
    top_canvas_put(canvas, TOP_BAR, "q quit  h help");
    if (!view->help)
        top_canvas_put(canvas, TOP_BAR, "  t tenants  c caches  m commands  s sort  r reverse  p %s",
                       view->paused ? "go on" : "hold");
    top_canvas_to(canvas, canvas->width, TOP_BAR);
}

void top_frame_whole(struct top_canvas *canvas, const struct top_view *view, const struct top_shown *shown)
{
    top_summary_draw(canvas, view, shown);
    for (unsigned table = 0; table < TOP_N_TABLES && shown->info; table++) {
        if (shown->info->n_rows[table] == 0)
            continue;
        top_canvas_line(canvas);
        top_table_draw(canvas, view, shown, (enum top_table)table, 0, TOP_ROWS_MAX);
    }
}

/* Takes lines of the summary back, the least useful ones, where it leaves no room for some rows of the table. */
static void keep_room(struct top_canvas *canvas)
{
    uint32_t table = 1 + TOP_TABLE_HEAD_LINES + ROWS_MIN; /* with the keys */
    if (canvas->height < 2 * table || top_canvas_lines_left(canvas) >= table)
        return;
    canvas->n_lines = canvas->height - table;
    canvas->full = false;
}

/* With one line kept for the keys. */
static void draw_table(struct top_canvas *canvas, struct top_view *view, const struct top_shown *shown)
{
    uint32_t left = top_canvas_lines_left(canvas), n = shown->info->n_rows[view->table];
    if (left < 1 + TOP_TABLE_HEAD_LINES + 1)
        return;
    bool gap = left > 1 + TOP_TABLE_HEAD_LINES + 3;
    uint32_t most = left - 1 - TOP_TABLE_HEAD_LINES - gap;
    view->scroll = n <= most ? 0 : view->scroll > n - most ? n - most : view->scroll;
    if (gap)
        top_canvas_line(canvas);
    top_table_draw(canvas, view, shown, view->table, view->scroll, most);
}

void top_frame_screen(struct top_canvas *canvas, struct top_view *view, const struct top_shown *shown)
{
    if (view->help) {
        top_help_draw(canvas);
    } else {
        top_summary_draw(canvas, view, shown);
        keep_room(canvas);
        if (shown->info)
            draw_table(canvas, view, shown);
    }
    /* what is too low for the summary ends it one line earlier */
    if (top_canvas_lines_left(canvas) == 0 && canvas->height > 1) {
        canvas->n_lines--;
        canvas->full = false;
    }
    if (canvas->height > 1)
        draw_keys(canvas, view);
}
