/* figure.h - pictures of a run: an SVG of panels below each other with one horizontal axis, drawn here. */
#ifndef QUIRE_TOOLS_MEASURE_FIGURE_H
#define QUIRE_TOOLS_MEASURE_FIGURE_H

#include "quire.h"
#include <stdio.h>

#define FIGURE_WIDTH        900
#define FIGURE_LEFT         80 /* of the panels */
#define FIGURE_RIGHT        730
#define FIGURE_PANEL_HEIGHT 120
#define FIGURE_PANEL_GAP    36

/* A new file with the picture's frame; *out is ended by figure_close. QUIRE_EIO and the like where it is there. */
int figure_open(const char *path, const char *title, int height, FILE **out, struct quire_error *err);
int figure_close(const char *path, FILE *f, struct quire_error *err); /* removes what could not be written */
void figure_heading(FILE *f, double y, const char *text);
/* A frame with its scale from 0 to top at the left, y its upper border. */
void figure_panel(FILE *f, double y, double top, const char *title);
/* A line of n points: xs from 0 (left) to 1, values from 0 to top (what is above ends at the border, NAN is left out);
 * with its name at the right in the colour of its number. */
void figure_line(FILE *f, double y, double top, uint32_t line, const char *name, const double *xs, const double *values,
                 uint32_t n);
/* Numbers from 0 to `end` below the last panel. */
void figure_axis(FILE *f, double y, double end, const char *unit);
double figure_round_up(double value); /* the next of 1, 2, 5, 10, ... times a power of ten */

#endif
