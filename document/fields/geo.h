/*
 * geo.h - points on the earth as numbers, so that an index of numbers finds those near another point.
 *
 * Longitude and latitude are each divided into 2^26 steps, and their bits interleaved, latitude's lower in each pair
 * (Morton, 1966; as Redis's geohash integers of 52 bits). Such a number is exact in a double, and a square of the grid
 * is a range of numbers. Distances are of the haversine formula with the radius of the earth that Redis has, so that
 * the same points are within a radius here and there.
 */
#ifndef QUIRE_DOCUMENT_GEO_H
#define QUIRE_DOCUMENT_GEO_H

#include "document/fields/number_tree.h"

#define GEO_RANGES_MAX 16u

/* A point within the limits of fields.h as a number, and the middle of the square that a number means. */
double geo_encode(double longitude, double latitude);
void geo_decode(double code, double *longitude, double *latitude);
double geo_distance_m(double longitude_a, double latitude_a, double longitude_b, double latitude_b);
/* Ranges of numbers that hold every point within the radius, and others; returns how many. */
uint32_t geo_ranges(double longitude, double latitude, double radius_m, struct number_range *ranges);

#endif
