/*
 * figure.c - pictures of a run.
 *
 * Of a picture the caller knows how many panels it has and what is in them; where things stand, colours, scales and
 * what happens when the disk is full are here. A picture never replaces a file, and none is left half written.
 */
#include "tools/measure/figure.h"
#include "io/error.h"
#include <errno.h>
#include <math.h>
#include <string.h>

static const char *const colours[] = {"#0b5fa5", "#d1495b", "#2a9d5c", "#7b4fa3", "#c77d0a", "#555555"};
#define N_COLOURS (sizeof colours / sizeof *colours)

double figure_round_up(double value)
{
    double power = pow(10, floor(log10(value)));
    const double steps[] = {1, 2, 5, 10};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (value <= steps[i] * power)
            return steps[i] * power;
    return value;
}

int figure_open(const char *path, const char *title, int height, FILE **out, struct quire_error *err)
{
    FILE *f = fopen(path, "wx");
    if (!f)
        return error_set_errno(err, errno, "cannot make", path);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\""
            " font-family=\"sans-serif\" fill=\"#222222\">\n<title>%s</title>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
            FIGURE_WIDTH, height, FIGURE_WIDTH, height, title, FIGURE_WIDTH, height);
    *out = f;
    return 0;
}

int figure_close(const char *path, FILE *f, struct quire_error *err)
{
    fprintf(f, "</svg>\n");
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        int rc = error_set_errno(err, errno, "cannot write", path);
        remove(path);
        return rc;
    }
    return 0;
}

void figure_heading(FILE *f, double y, const char *text)
{
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-size=\"16\" font-weight=\"bold\">%s</text>\n", FIGURE_LEFT, y, text);
}

void figure_panel(FILE *f, double y, double top, const char *title)
{
    const int height = FIGURE_PANEL_HEIGHT, x = FIGURE_LEFT - 52;
    fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888888\"/>\n", FIGURE_LEFT,
            y, FIGURE_RIGHT - FIGURE_LEFT, height);
    for (int i = 0; i <= 2; i++)
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" font-size=\"11\">%g</text>\n", FIGURE_LEFT - 6,
                y + 4 + height * (1 - i / 2.0), top * i / 2);
    fprintf(f,
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"12\" transform=\"rotate(-90 %d %.1f)\">"
            "%s</text>\n",
            x, y + height / 2.0, x, y + height / 2.0, title);
}

void figure_line(FILE *f, double y, double top, uint32_t line, const char *name, const double *xs, const double *values,
                 uint32_t n)
{
    const char *colour = colours[line % N_COLOURS];
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\" points=\"", colour);
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(values[i]))
            fprintf(f, "%.1f,%.1f ", FIGURE_LEFT + (FIGURE_RIGHT - FIGURE_LEFT) * xs[i],
                    y + FIGURE_PANEL_HEIGHT * (1 - fmin(values[i] / top, 1)));
    fprintf(f, "\"/>\n<path d=\"M%d %.1fh16\" stroke=\"%s\" stroke-width=\"1.4\"/>", FIGURE_RIGHT + 14,
            y + 12 + 16 * line, colour);
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-size=\"11\">%s</text>\n", FIGURE_RIGHT + 36, y + 16 + 16 * line, name);
}

void figure_axis(FILE *f, double y, double end, const char *unit)
{
    for (int i = 0; i <= 6; i++)
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"11\">%.*f</text>\n",
                FIGURE_LEFT + (FIGURE_RIGHT - FIGURE_LEFT) * i / 6.0, y, end < 10 ? 2 : end < 100, end * i / 6);
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-size=\"11\">%s</text>\n", FIGURE_RIGHT + 36, y, unit);
}
