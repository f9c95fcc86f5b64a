/*
 * top_canvas.h - lines of ASCII with a style for each cell, and how they go out: plain, or for a terminal.
 *
 * A line that is full takes nothing more, and so does a canvas whose height is reached: who draws need not ask, but
 * may. Without memory a canvas is `failed` and takes nothing.
 */
#ifndef QUIRE_TOOLS_TOP_CANVAS_H
#define QUIRE_TOOLS_TOP_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOP_CANVAS_WIDTH_MAX 512u

enum top_style { TOP_PLAIN, TOP_STRONG, TOP_BAR, TOP_GOOD, TOP_WARN, TOP_BAD, TOP_FAINT, TOP_N_STYLES };

struct top_canvas {
    uint32_t width, height; /* height 0: as many lines as come */
    uint32_t n_lines, column;
    char *cells; /* width to a line, blanks where nothing was put */
    uint8_t *styles;
    size_t cells_capacity, styles_capacity;
    bool full; /* no line may follow */
    bool failed;
};

/* Zeroed before the first use; an empty canvas. Widths are between 1 and TOP_CANVAS_WIDTH_MAX. */
void top_canvas_begin(struct top_canvas *canvas, uint32_t width, uint32_t height);
void top_canvas_fini(struct top_canvas *canvas);
/* Begins the next line. */
void top_canvas_line(struct top_canvas *canvas);
/* At the column where the line is; what is no printable ASCII becomes '?'. */
void top_canvas_put(struct top_canvas *canvas, enum top_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Blanks up to a column; nothing where the line is beyond. */
void top_canvas_to(struct top_canvas *canvas, uint32_t column, enum top_style style);
/* Lines that may still begin. */
uint32_t top_canvas_lines_left(const struct top_canvas *canvas);

enum top_output {
    TOP_OUTPUT_PLAIN,  /* lines without blanks at their end, no escape codes */
    TOP_OUTPUT_SCREEN, /* from the terminal's upper left corner, what was there before is overwritten */
    TOP_OUTPUT_COLOUR  /* the same with styles */
};

/* Bytes to be written; owned. */
struct top_output_text {
    char *bytes;
    size_t n, capacity;
    bool failed;
};
void top_canvas_write(const struct top_canvas *canvas, enum top_output output, struct top_output_text *out);
void top_canvas_add(struct top_output_text *out, const char *bytes, size_t n);

#endif
