/*
 * telemetry.h - figures of a gateway, as Prometheus reads them: counters, gauges and histograms by name and labels.
 *
 * A metric is registered once, at start, and then costs one addition. Labels are part of its identity:
 *
 *     struct telemetry_counter *hits;
 *     hits = telemetry_counter(t, "quire_gateway_answers_total", "Answers by kind", "kind=\"hit\"");
 *     telemetry_add(hits, 1);
 *
 * The same name and labels give the same metric again, so labels that are known only at run time (a category, a status)
 * may be looked up as they come. What is registered is never freed before the registry, so that a pointer stays valid.
 * The number of series is bounded (TELEMETRY_SERIES_MAX): beyond it, and without memory, a registration gives one
 * shared series that is counted in quire_gateway_series_lost and never shown, so no caller needs to look for NULL.
 *
 * One thread: the loop's.
 */
#ifndef QUIRE_GATEWAY_TELEMETRY_H
#define QUIRE_GATEWAY_TELEMETRY_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TELEMETRY_SERIES_MAX 4096u

struct evbuffer;
struct telemetry;
struct telemetry_counter;
struct telemetry_histogram;

int telemetry_create(struct telemetry **out, struct quire_error *err);
void telemetry_destroy(struct telemetry *t); /* NULL is fine */

/* A number that only grows. `labels` is the text between the braces, with its values already escaped
 * (telemetry_escape), or "". Name and help are copied. */
struct telemetry_counter *telemetry_counter(struct telemetry *t, const char *name, const char *help,
                                            const char *labels);
/* A number that rises and falls (telemetry_set, telemetry_add with either sign). */
struct telemetry_counter *telemetry_gauge(struct telemetry *t, const char *name, const char *help, const char *labels);
/* A distribution of seconds, given in microseconds; buckets from 100 us to 600 s, 1-2.5-5 in each power of ten. */
struct telemetry_histogram *telemetry_histogram(struct telemetry *t, const char *name, const char *help,
                                                const char *labels);
void telemetry_add(struct telemetry_counter *counter, int64_t n);
void telemetry_set(struct telemetry_counter *gauge, int64_t value);
int64_t telemetry_value(const struct telemetry_counter *counter);
void telemetry_observe(struct telemetry_histogram *histogram, uint64_t us);

/* A label's value with backslash, quote and line end escaped; cut to fit. Returns `out`. */
const char *telemetry_escape(char *out, size_t out_bytes, const char *value);

/* Appends everything in Prometheus' text format 0.0.4. QUIRE_ENOMEM leaves `out` as it was. */
int telemetry_write(const struct telemetry *t, struct evbuffer *out);

#endif
