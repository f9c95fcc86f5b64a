/*
 * datum.c - values of rows, counted by share and by byte.
 *
 * One allocation holds a datum and what it carries. A run of a million rows with five fields makes five million of
 * them, so a number takes 24 bytes and nothing else. Comparison and conversion follow RediSearch, whose answers the
 * tests compare with: "" is 0, NaN is equal to every number, a number against a text that is none is an error in a
 * comparison and text against text in a sort.
 *
 * Arrays nest only as deep as there are steps that make them (pipeline.h bounds the steps), so recursion over them is
 * bounded.
 */
#include "document/pipeline/datum.h"
#include "document/text/fold.h"
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool datum_pool_take(struct datum_pool *pool, size_t bytes)
{
    assert(pool->bytes <= pool->bytes_max);
    if (bytes > pool->bytes_max - pool->bytes) {
        pool->full = true;
        return false;
    }
    pool->bytes += bytes;
    return true;
}

void datum_pool_give(struct datum_pool *pool, size_t bytes)
{
    assert(bytes <= pool->bytes);
    pool->bytes -= bytes;
}

static size_t bytes_of(enum datum_kind kind, size_t n)
{
    size_t more = kind == DATUM_STRING ? n + 1 : kind == DATUM_ARRAY ? n * sizeof(struct datum *) : 0;
    return sizeof(struct datum) + more;
}

static struct datum *make(struct datum_pool *pool, enum datum_kind kind, size_t n)
{
    if (n > DATUM_STRING_MAX) {
        pool->full = true;
        return NULL;
    }
    size_t bytes = bytes_of(kind, n);
    if (!datum_pool_take(pool, bytes))
        return NULL;
    struct datum *datum = malloc(bytes);
    if (!datum) {
        datum_pool_give(pool, bytes);
        return NULL;
    }
    *datum = (struct datum){.shares = 1, .n = (uint32_t)n, .kind = kind};
    return datum;
}

struct datum *datum_null(struct datum_pool *pool)
{
    return make(pool, DATUM_NULL, 0);
}

struct datum *datum_number(struct datum_pool *pool, double number)
{
    struct datum *datum = make(pool, DATUM_NUMBER, 0);
    if (datum)
        datum->number = number;
    return datum;
}

struct datum *datum_string(struct datum_pool *pool, const char *text, size_t bytes)
{
    struct datum *datum = make(pool, DATUM_STRING, bytes);
    if (!datum)
        return NULL;
    if (text && bytes > 0)
        memcpy(datum_bytes(datum), text, bytes);
    datum_bytes(datum)[bytes] = '\0';
    return datum;
}

struct datum *datum_array(struct datum_pool *pool, size_t n)
{
    struct datum *datum = make(pool, DATUM_ARRAY, n);
    if (datum && n > 0)
        memset(datum_items(datum), 0, n * sizeof(struct datum *));
    return datum;
}

void datum_release(struct datum_pool *pool, struct datum *datum)
{
    if (!datum)
        return;
    assert(datum->shares > 0);
    if (--datum->shares > 0)
        return;
    if (datum->kind == DATUM_ARRAY)
        for (uint32_t i = 0; i < datum->n; i++)
            datum_release(pool, datum_items(datum)[i]);
    datum_pool_give(pool, bytes_of(datum->kind, datum->n));
    free(datum);
}

static bool text_to_number(const char *text, size_t bytes, double *number)
{
    char *end = NULL;
    if (bytes == 0) {
        *number = 0;
        return true;
    }
    int saved = errno;
    errno = 0;
    double value = strtod(text, &end);
    bool in_range = errno != ERANGE || fabs(value) != HUGE_VAL; /* too small a number is 0 */
    errno = saved;
    if (end != text + bytes || !in_range)
        return false;
    *number = value;
    return true;
}

bool datum_to_number(const struct datum *datum, double *number)
{
    if (datum->kind == DATUM_NUMBER) {
        *number = datum->number;
        return true;
    }
    return datum->kind == DATUM_STRING && text_to_number(datum_text(datum), datum->n, number);
}

size_t datum_print(double number, char text[DATUM_PRINT_MAX])
{
    int n;
    if (isnan(number)) /* the sign of a NaN says nothing */
        n = snprintf(text, DATUM_PRINT_MAX, "nan");
    else if (number >= -0x1p63 && number < 0x1p63 && floor(number) == number)
        n = snprintf(text, DATUM_PRINT_MAX, "%lld", (long long)number);
    else
        n = snprintf(text, DATUM_PRINT_MAX, "%.12g", number);
    assert(n > 0 && (size_t)n < DATUM_PRINT_MAX);
    return (size_t)n;
}

bool datum_is_true(const struct datum *datum)
{
    switch (datum->kind) {
    case DATUM_NULL:
        return false;
    case DATUM_NUMBER:
        return datum->number != 0;
    case DATUM_STRING:
    case DATUM_ARRAY:
        break;
    }
    return datum->n > 0;
}

static int compare_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t common = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = common > 0 ? memcmp(a, b, common) : 0;
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* A number and what is none by kind. */
static int compare_number(double number, const struct datum *other, bool *unlike)
{
    double value;
    char text[DATUM_PRINT_MAX];
    if (datum_to_number(other, &value))
        return (number > value) - (number < value);
    if (unlike)
        *unlike = true;
    if (other->kind != DATUM_STRING)
        return 1;
    size_t bytes = datum_print(number, text);
    return compare_bytes(text, bytes, datum_text(other), other->n);
}

int datum_compare(const struct datum *a, const struct datum *b, bool *unlike)
{
    if (a->kind == DATUM_NULL || b->kind == DATUM_NULL)
        return (a->kind != DATUM_NULL) - (b->kind != DATUM_NULL);
    if (a->kind == DATUM_NUMBER && b->kind == DATUM_NUMBER)
        return (a->number > b->number) - (a->number < b->number);
    if (a->kind == DATUM_NUMBER)
        return compare_number(a->number, b, unlike);
    if (b->kind == DATUM_NUMBER)
        return -compare_number(b->number, a, unlike);
    if (a->kind == DATUM_STRING && b->kind == DATUM_STRING)
        return compare_bytes(datum_text(a), a->n, datum_text(b), b->n);
    if (a->kind == DATUM_ARRAY && b->kind == DATUM_ARRAY && a->n > 0 && b->n > 0)
        return datum_compare(datum_items(a)[0], datum_items(b)[0], unlike);
    if (a->kind == DATUM_ARRAY && b->kind == DATUM_ARRAY)
        return (a->n > 0) - (b->n > 0);
    /* a string and an array: the array counts as an empty string */
    return a->kind == DATUM_STRING ? (a->n > 0) : -(b->n > 0);
}

bool datum_equals(const struct datum *a, const struct datum *b)
{
    bool unlike = false;
    int order = datum_compare(a, b, &unlike);
    return order == 0 && !unlike;
}

bool datum_is_same(const struct datum *a, const struct datum *b)
{
    bool a_null = !a || a->kind == DATUM_NULL, b_null = !b || b->kind == DATUM_NULL;
    if (a_null || b_null)
        return a_null && b_null;
    if (a->kind != b->kind || a->n != b->n)
        return false;
    if (a->kind == DATUM_NUMBER)
        return a->number == b->number || (isnan(a->number) && isnan(b->number));
    if (a->kind == DATUM_STRING)
        return memcmp(datum_text(a), datum_text(b), a->n) == 0;
    for (uint32_t i = 0; i < a->n; i++)
        if (!datum_is_same(datum_items(a)[i], datum_items(b)[i]))
            return false;
    return true;
}

uint64_t datum_hash(const struct datum *datum, uint64_t seed)
{
    if (!datum || datum->kind == DATUM_NULL)
        return XXH3_64bits_withSeed("null", 4, seed);
    if (datum->kind == DATUM_NUMBER) {
        double number = isnan(datum->number) ? (double)NAN : datum->number + 0.0; /* -0 + 0 is 0 */
        return XXH3_64bits_withSeed(&number, sizeof number, seed + 1);
    }
    if (datum->kind == DATUM_STRING)
        return XXH3_64bits_withSeed(datum_text(datum), datum->n, seed + 2);
    uint64_t hash = seed + 3;
    for (uint32_t i = 0; i < datum->n; i++)
        hash = datum_hash(datum_items(datum)[i], hash);
    return hash;
}

struct datum *datum_fold(struct datum_pool *pool, struct datum *datum)
{
    if (datum->kind != DATUM_STRING || datum->n == 0)
        return datum;
    char *text = malloc(FOLD_ROOM(datum->n));
    uint32_t bytes = text ? fold_text(datum_text(datum), datum->n, text) : 0;
    bool same = text && bytes == datum->n && memcmp(text, datum_text(datum), bytes) == 0;
    struct datum *folded = same ? datum : text ? datum_string(pool, text, bytes) : NULL;
    free(text);
    if (!same)
        datum_release(pool, datum);
    return folded;
}
