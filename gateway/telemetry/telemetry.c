/*
 * telemetry.c - series in a list, in the order of their registration, found by a table of their name and labels.
 *
 * What Prometheus wants of the text: all series of a name together, behind one HELP and one TYPE. So each name is a
 * family with a list of its series. Counters are plain integers: one thread writes and reads them.
 */
#include "gateway/telemetry/telemetry.h"
#include <assert.h>
#include <event2/buffer.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_SIZE 1024u /* a power of two; lists hang from it */

/* Upper bounds in us; the last bucket has none. */
static const uint64_t bounds_us[] = {100,     250,      500,      1000,     2500,      5000,      10000,
                                     25000,   50000,    100000,   250000,   500000,    1000000,   2500000,
                                     5000000, 10000000, 25000000, 50000000, 100000000, 250000000, 600000000};
#define BOUNDS (sizeof bounds_us / sizeof *bounds_us)

enum kind { COUNTER, GAUGE, HISTOGRAM };

struct telemetry_counter {
    int64_t value;
};

struct telemetry_histogram {
    uint64_t counts[BOUNDS + 1], sum_us, n;
};

struct series {
    struct series *next, *next_in_table;
    struct family *family;
    char *labels;
    struct telemetry_counter counter;
    struct telemetry_histogram histogram[]; /* one where the family's kind wants it */
};

struct family {
    struct family *next;
    char *name, *help;
    enum kind kind;
    struct series *first, *last;
};

struct telemetry {
    struct family *first, *last;
    struct series *table[TABLE_SIZE];
    uint32_t n_series;
    struct telemetry_counter *lost; /* shown: how often there was no room */
    struct telemetry_counter spare; /* what such callers count into */
    struct telemetry_histogram spare_histogram;
};

static uint32_t hash_of(const char *name, const char *labels)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    for (; *labels; labels++)
        h = (h ^ (unsigned char)*labels) * 16777619u;
    return h & (TABLE_SIZE - 1);
}

int telemetry_create(struct telemetry **out, struct quire_error *err)
{
    (void)err;
    struct telemetry *t = calloc(1, sizeof *t);
    if (!t)
        return QUIRE_ENOMEM;
    t->lost = &t->spare;
    t->lost = telemetry_counter(t, "quire_gateway_series_lost_total", "Metrics for which there was no room", "");
    *out = t;
    return 0;
}

void telemetry_destroy(struct telemetry *t)
{
    if (!t)
        return;
    for (struct family *family = t->first, *next; family; family = next) {
        next = family->next;
        for (struct series *series = family->first, *after; series; series = after) {
            after = series->next;
            free(series->labels);
            free(series);
        }
        free(family->name);
        free(family->help);
        free(family);
    }
    free(t);
}

static struct family *find_family(struct telemetry *t, const char *name, const char *help, enum kind kind)
{
    for (struct family *family = t->first; family; family = family->next) {
        if (strcmp(family->name, name) == 0) {
            assert(family->kind == kind);
            return family;
        }
    }
    struct family *family = calloc(1, sizeof *family);
    if (!family || !(family->name = strdup(name)) || !(family->help = strdup(help))) {
        if (family)
            free(family->name);
        free(family);
        return NULL;
    }
    family->kind = kind;
    if (t->last)
        t->last->next = family;
    else
        t->first = family;
    t->last = family;
    return family;
}

/* NULL where there is no room. */
static struct series *find_series(struct telemetry *t, const char *name, const char *help, const char *labels,
                                  enum kind kind)
{
    struct series **slot = &t->table[hash_of(name, labels)];
    for (struct series *series = *slot; series; series = series->next_in_table) {
        if (strcmp(series->labels, labels) == 0 && strcmp(series->family->name, name) == 0) {
            assert(series->family->kind == kind);
            return series;
        }
    }
    struct family *family = t->n_series < TELEMETRY_SERIES_MAX ? find_family(t, name, help, kind) : NULL;
    size_t bytes = sizeof(struct series) + (kind == HISTOGRAM ? sizeof(struct telemetry_histogram) : 0);
    struct series *series = family ? calloc(1, bytes) : NULL;
    if (!series || !(series->labels = strdup(labels))) {
        free(series);
        telemetry_add(t->lost, 1);
        return NULL;
    }
    series->family = family;
    series->next_in_table = *slot;
    *slot = series;
    if (family->last)
        family->last->next = series;
    else
        family->first = series;
    family->last = series;
    t->n_series++;
    return series;
}

struct telemetry_counter *telemetry_counter(struct telemetry *t, const char *name, const char *help, const char *labels)
{
    struct series *series = find_series(t, name, help, labels, COUNTER);
    return series ? &series->counter : &t->spare;
}

struct telemetry_counter *telemetry_gauge(struct telemetry *t, const char *name, const char *help, const char *labels)
{
    struct series *series = find_series(t, name, help, labels, GAUGE);
    return series ? &series->counter : &t->spare;
}

struct telemetry_histogram *telemetry_histogram(struct telemetry *t, const char *name, const char *help,
                                                const char *labels)
{
    struct series *series = find_series(t, name, help, labels, HISTOGRAM);
    return series ? series->histogram : &t->spare_histogram;
}

void telemetry_add(struct telemetry_counter *counter, int64_t n)
{
    counter->value += n;
}

void telemetry_set(struct telemetry_counter *gauge, int64_t value)
{
    gauge->value = value;
}

int64_t telemetry_value(const struct telemetry_counter *counter)
{
    return counter->value;
}

void telemetry_observe(struct telemetry_histogram *histogram, uint64_t us)
{
    size_t i = 0;
    while (i < BOUNDS && us > bounds_us[i])
        i++;
    histogram->counts[i]++;
    histogram->sum_us += us;
    histogram->n++;
}

const char *telemetry_escape(char *out, size_t out_bytes, const char *value)
{
    size_t n = 0;
    for (; *value && n + 3 < out_bytes; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n')
            out[n++] = '\\';
        out[n++] = *value == '\n' ? 'n' : *value;
    }
    out[n] = 0;
    return out;
}

static bool write_histogram(struct evbuffer *out, const char *name, const char *labels,
                            const struct telemetry_histogram *h)
{
    const char *comma = *labels ? "," : "";
    uint64_t n = 0;
    bool ok = true;
    for (size_t i = 0; i < BOUNDS && ok; i++) {
        n += h->counts[i];
        ok = evbuffer_add_printf(out, "%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name, labels, comma,
                                 (double)bounds_us[i] / 1e6, n) > 0;
    }
    const char *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    return ok && evbuffer_add_printf(
                     out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n%s_sum%s%s%s %.6f\n%s_count%s%s%s %" PRIu64 "\n",
                     name, labels, comma, h->n, name, open, labels, close, (double)h->sum_us / 1e6, name, open, labels,
                     close, h->n) > 0;
}

int telemetry_write(const struct telemetry *t, struct evbuffer *out)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    struct evbuffer *text = evbuffer_new();
    bool ok = text != NULL;
    for (const struct family *family = t->first; family && ok; family = family->next) {
        ok = evbuffer_add_printf(text, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
                                 kinds[family->kind]) > 0;
        for (const struct series *series = family->first; series && ok; series = series->next) {
            if (family->kind == HISTOGRAM)
                ok = write_histogram(text, family->name, series->labels, series->histogram);
            else
                ok = evbuffer_add_printf(text, *series->labels ? "%s{%s} %" PRId64 "\n" : "%s%s %" PRId64 "\n",
                                         family->name, series->labels, series->counter.value) > 0;
        }
    }
    ok = ok && evbuffer_add_buffer(out, text) == 0;
    if (text)
        evbuffer_free(text);
    return ok ? 0 : QUIRE_ENOMEM;
}
