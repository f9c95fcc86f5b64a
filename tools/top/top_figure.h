/* top_figure.h - numbers as people read them, in few columns. A NAN is "-". */
#ifndef QUIRE_TOOLS_TOP_FIGURE_H
#define QUIRE_TOOLS_TOP_FIGURE_H

#define TOP_FIGURE_BYTES 24u

struct top_figure {
    char text[TOP_FIGURE_BYTES];
};

struct top_figure top_figure_count(double value);   /* "0.5", "17", "12100", "340k", "3.40M" */
struct top_figure top_figure_bytes(double value);   /* "900", "1.50G": powers of 1024 */
struct top_figure top_figure_us(double value);      /* "410 us", "2.30 ms", "1.20 s" */
struct top_figure top_figure_percent(double share); /* of 0 to 1: "0.4 %", "41 %" */
struct top_figure top_figure_span(double seconds);  /* "0:42", "4:12:00", "3d 04:12" */

#endif
