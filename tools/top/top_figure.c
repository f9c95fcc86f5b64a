/*
 * top_figure.c - three digits that count, and a unit.
 *
 * A count below 100,000 is written out, but for the tenths of what is below 10: a rate of 0.3 is not none.
 */
#include "tools/top/top_figure.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>

static struct top_figure none(void)
{
    return (struct top_figure){"-"};
}

/* 1.50, 15.0, 150: three digits. */
static void three_digits(struct top_figure *f, double value, const char *unit)
{
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(f->text, sizeof f->text, "%.*f%s", decimals, value, unit);
}

/* What is below `written_out` as it is, the rest in steps of 1000 or 1024. */
static struct top_figure scaled(double value, double step, const char *units, double written_out)
{
    struct top_figure f;
    unsigned unit = 0;
    if (!(value >= 0 && value < 1e21)) /* beyond what 64 bits hold */
        return none();
    if (value < written_out) {
        snprintf(f.text, sizeof f.text, value >= 9.95 || value == floor(value) ? "%.0f" : "%.1f", value);
        return f;
    }
    for (; value >= step * 0.9995 && units[unit + 1]; unit++)
        value /= step;
    three_digits(&f, value, (const char[]){units[unit], 0});
    return f;
}

struct top_figure top_figure_count(double value)
{
    return scaled(value, 1000, " kMGTE", 99999.5);
}

struct top_figure top_figure_bytes(double value)
{
    return scaled(value, 1024, " KMGTE", 1023.5);
}

struct top_figure top_figure_us(double value)
{
    struct top_figure f;
    if (!isfinite(value) || value < 0)
        return none();
    if (value < 999.5)
        snprintf(f.text, sizeof f.text, "%.0f us", value);
    else if (value < 999500)
        three_digits(&f, value / 1e3, " ms");
    else
        three_digits(&f, value / 1e6, " s");
    return f;
}

struct top_figure top_figure_percent(double share)
{
    struct top_figure f;
    double percent = 100 * share;
    if (!isfinite(share) || share < 0)
        return none();
    snprintf(f.text, sizeof f.text, percent >= 9.95 || percent == 0 ? "%.0f %%" : "%.1f %%",
             percent < 999999 ? percent : 999999);
    return f;
}

struct top_figure top_figure_span(double seconds)
{
    struct top_figure f;
    if (!(seconds >= 0 && seconds < 1e12))
        return none();
    uint64_t s = (uint64_t)seconds;
    if (s < 3600)
        snprintf(f.text, sizeof f.text, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(f.text, sizeof f.text, "%u:%02u:%02u", (unsigned)(s / 3600), (unsigned)(s / 60 % 60),
                 (unsigned)(s % 60));
    else
        snprintf(f.text, sizeof f.text, "%ud %02u:%02u", (unsigned)(s / 86400), (unsigned)(s / 3600 % 24),
                 (unsigned)(s / 60 % 60));
    return f;
}
