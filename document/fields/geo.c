/*
 * geo.c - points as numbers, and the squares of the grid that a circle touches.
 *
 * A circle's box of longitudes and latitudes touches few squares if the squares are as large as the box: the finest
 * grid is taken of which it touches at most four in each direction. Longitudes wrap at 180 degrees.
 */
#include "document/fields/geo.h"
#include "document/fields/fields.h"
#include <math.h>

#define STEPS          26u /* halvings of each axis */
#define SIDE           (1u << STEPS)
#define CELLS_MAX      4u             /* of a box along an axis; squared: GEO_RANGES_MAX */
#define EARTH_RADIUS_M 6372797.560856 /* Redis's */
#define RADIANS(x)     ((x)*M_PI / 180)

static double axis_max(bool is_longitude)
{
    return is_longitude ? FIELDS_LONGITUDE_MAX : FIELDS_LATITUDE_MAX;
}

/* Which of the SIDE steps a coordinate is in. */
static uint32_t step_of(double degrees, bool is_longitude)
{
    double max = axis_max(is_longitude), steps = (degrees + max) / (2 * max) * SIDE;
    return steps <= 0 ? 0 : steps >= SIDE ? SIDE - 1 : (uint32_t)steps;
}

static double middle_of(uint32_t step, bool is_longitude)
{
    double max = axis_max(is_longitude);
    return (step + .5) / SIDE * 2 * max - max;
}

/* Bit i of x becomes bit 2 i. */
static uint64_t spread(uint32_t x)
{
    uint64_t bits = x;
    bits = (bits | bits << 16) & UINT64_C(0x0000FFFF0000FFFF);
    bits = (bits | bits << 8) & UINT64_C(0x00FF00FF00FF00FF);
    bits = (bits | bits << 4) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    bits = (bits | bits << 2) & UINT64_C(0x3333333333333333);
    return (bits | bits << 1) & UINT64_C(0x5555555555555555);
}

/* Every second bit, from bit 0 on. */
static uint32_t gather(uint64_t bits)
{
    bits &= UINT64_C(0x5555555555555555);
    bits = (bits | bits >> 1) & UINT64_C(0x3333333333333333);
    bits = (bits | bits >> 2) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    bits = (bits | bits >> 4) & UINT64_C(0x00FF00FF00FF00FF);
    bits = (bits | bits >> 8) & UINT64_C(0x0000FFFF0000FFFF);
    return (uint32_t)(bits | bits >> 16);
}

double geo_encode(double longitude, double latitude)
{
    return (double)(spread(step_of(longitude, true)) << 1 | spread(step_of(latitude, false)));
}

void geo_decode(double code, double *longitude, double *latitude)
{
    uint64_t bits = (uint64_t)code;
    *longitude = middle_of(gather(bits >> 1), true);
    *latitude = middle_of(gather(bits), false);
}

double geo_distance_m(double longitude_a, double latitude_a, double longitude_b, double latitude_b)
{
    double u = sin((RADIANS(latitude_b) - RADIANS(latitude_a)) / 2);
    double v = sin((RADIANS(longitude_b) - RADIANS(longitude_a)) / 2);
    double h = u * u + cos(RADIANS(latitude_a)) * cos(RADIANS(latitude_b)) * v * v;
    return 2 * EARTH_RADIUS_M * asin(sqrt(h < 1 ? h : 1));
}

/* The cells of a grid of 2^level along an axis that low .. high degrees touch: first and how many. */
static uint64_t cells_of(double low, double high, bool is_longitude, uint32_t level, int64_t *first)
{
    double max = axis_max(is_longitude), cells = (double)(1u << level);
    int64_t begin = (int64_t)floor((low + max) / (2 * max) * cells);
    int64_t end = (int64_t)floor((high + max) / (2 * max) * cells);
    if (is_longitude) {
        *first = begin;
        return (uint64_t)(end - begin) >= 1u << level ? 1u << level : (uint64_t)(end - begin) + 1;
    }
    begin = begin < 0 ? 0 : begin;
    end = end >= 1 << level ? (1 << level) - 1 : end;
    *first = begin;
    return end < begin ? 0 : (uint64_t)(end - begin) + 1;
}

uint32_t geo_ranges(double longitude, double latitude, double radius_m, struct number_range *ranges)
{
    double up = radius_m / EARTH_RADIUS_M / M_PI * 180 * 1.000001; /* degrees of latitude, and what rounding adds */
    double far = fabs(latitude) + up;
    double aside = far < 89 ? up / cos(RADIANS(far)) : 360;
    int64_t first_x = 0, first_y = 0;
    uint64_t n_x = 1, n_y = 1;
    uint32_t level = STEPS, n = 0;
    if (!(radius_m >= 0))
        return 0;
    up = up < 180 ? up : 180;
    aside = aside < 360 ? aside : 360;
    for (;; level--) {
        n_x = cells_of(longitude - aside, longitude + aside, true, level, &first_x);
        n_y = cells_of(latitude - up, latitude + up, false, level, &first_y);
        if ((n_x <= CELLS_MAX && n_y <= CELLS_MAX) || level == 0)
            break;
    }
    for (uint64_t y = 0; y < n_y; y++)
        for (uint64_t x = 0; x < n_x; x++) {
            uint32_t cell_x = (uint32_t)(first_x + (int64_t)x) & ((1u << level) - 1); /* wraps */
            uint32_t cell_y = (uint32_t)(first_y + (int64_t)y);
            uint64_t low = (spread(cell_x) << 1 | spread(cell_y)) << 2 * (STEPS - level);
            uint64_t high = low + (UINT64_C(1) << 2 * (STEPS - level)) - 1;
            assert(n < GEO_RANGES_MAX);
            ranges[n++] = (struct number_range){.low = (double)low, .high = (double)high};
        }
    return n;
}
