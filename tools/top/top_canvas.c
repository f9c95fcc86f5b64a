/*
 * top_canvas.c - cells, and the escape codes of a terminal for them.
 *
 * A screen is written whole in one piece, line by line over the old one and erased to the end of each line: no flicker,
 * and no state of the terminal to remember, so a resize needs nothing but the next frame. Only codes that every
 * terminal of the last forty years knows (ECMA-48: CUP, EL, ED, SGR) are used.
 */
#include "tools/top/top_canvas.h"
#include "io/array.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUT_BYTES 1024

void top_canvas_begin(struct top_canvas *canvas, uint32_t width, uint32_t height)
{
    assert(width >= 1 && width <= TOP_CANVAS_WIDTH_MAX);
    canvas->width = width;
    canvas->height = height;
    canvas->n_lines = canvas->column = 0;
    canvas->full = canvas->failed = false;
}

void top_canvas_fini(struct top_canvas *canvas)
{
    array_free_all(canvas->cells, canvas->styles);
    *canvas = (struct top_canvas){0};
}

uint32_t top_canvas_lines_left(const struct top_canvas *canvas)
{
    return canvas->height == 0 ? UINT32_MAX : canvas->height - canvas->n_lines;
}

void top_canvas_line(struct top_canvas *canvas)
{
    size_t cells = ((size_t)canvas->n_lines + 1) * canvas->width;
    canvas->full = canvas->full || top_canvas_lines_left(canvas) == 0;
    if (canvas->full || canvas->failed)
        return;
    if (!array_reserve(&canvas->cells, &canvas->cells_capacity, cells) ||
        !array_reserve(&canvas->styles, &canvas->styles_capacity, cells)) {
        canvas->failed = true;
        return;
    }
    memset(canvas->cells + cells - canvas->width, ' ', canvas->width);
    memset(canvas->styles + cells - canvas->width, TOP_PLAIN, canvas->width);
    canvas->n_lines++;
    canvas->column = 0;
}

static void put_cell(struct top_canvas *canvas, enum top_style style, char c)
{
    size_t at = (size_t)(canvas->n_lines - 1) * canvas->width + canvas->column;
    canvas->cells[at] = c >= ' ' && c < 0x7f ? c : '?';
    canvas->styles[at] = (uint8_t)style;
    canvas->column++;
}

static bool takes(const struct top_canvas *canvas)
{
    return !canvas->full && !canvas->failed && canvas->n_lines > 0 && canvas->column < canvas->width;
}

void top_canvas_put(struct top_canvas *canvas, enum top_style style, const char *format, ...)
{
    char text[PUT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const char *at = text; *at && takes(canvas); at++)
        put_cell(canvas, style, *at);
}

void top_canvas_to(struct top_canvas *canvas, uint32_t column, enum top_style style)
{
    while (canvas->column < column && takes(canvas))
        put_cell(canvas, style, ' ');
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

void top_canvas_add(struct top_output_text *out, const char *bytes, size_t n)
{
    out->failed = out->failed || !array_reserve(&out->bytes, &out->capacity, out->n + n);
    if (out->failed)
        return;
    memcpy(out->bytes + out->n, bytes, n);
    out->n += n;
}

static void add_text(struct top_output_text *out, const char *text)
{
    top_canvas_add(out, text, strlen(text));
}

static void write_cells(const char *cells, const uint8_t *styles, uint32_t n, bool colour, struct top_output_text *out)
{
    static const char *const codes[TOP_N_STYLES] = {
        [TOP_PLAIN] = "\033[0m",   [TOP_STRONG] = "\033[0;1m", [TOP_BAR] = "\033[0;7m",  [TOP_GOOD] = "\033[0;32m",
        [TOP_WARN] = "\033[0;33m", [TOP_BAD] = "\033[0;1;31m", [TOP_FAINT] = "\033[0;2m"};
    uint8_t style = TOP_PLAIN;
    for (uint32_t i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && styles[i + run] == styles[i]; run++)
            ;
        if (colour && styles[i] != style)
            add_text(out, codes[styles[i]]);
        style = styles[i];
        top_canvas_add(out, cells + i, run);
    }
    if (colour && style != TOP_PLAIN)
        add_text(out, codes[TOP_PLAIN]);
}

/* Cells of a line up to its last that shows something. */
static uint32_t used_cells(const char *cells, const uint8_t *styles, uint32_t n, bool colour)
{
    while (n > 0 && cells[n - 1] == ' ' && !(colour && styles[n - 1] == TOP_BAR))
        n--;
    return n;
}

void top_canvas_write(const struct top_canvas *canvas, enum top_output output, struct top_output_text *out)
{
    bool screen = output != TOP_OUTPUT_PLAIN, colour = output == TOP_OUTPUT_COLOUR;
    out->failed = out->failed || canvas->failed;
    if (screen)
        add_text(out, "\033[H");
    for (uint32_t line = 0; line < canvas->n_lines; line++) {
        const char *cells = canvas->cells + (size_t)line * canvas->width;
        const uint8_t *styles = canvas->styles + (size_t)line * canvas->width;
        uint32_t n = used_cells(cells, styles, canvas->width, colour);
        if (screen && line > 0)
            add_text(out, "\r\n");
        write_cells(cells, styles, n, colour, out);
        /* behind a full line the cursor stands on its last cell, which must stay */
        if (!screen)
            add_text(out, "\n");
        else if (n < canvas->width)
            add_text(out, "\033[K");
    }
    if (screen && canvas->n_lines < canvas->height)
        add_text(out, "\r\n\033[J");
}
