/*
 * support_parts.c - what merges are made of: a data set with keys and attributes, as a segment or as rows in memory.
 *
 * Every function fails the running test instead of returning an error.
 */
#include "tests/index/support_parts.h"
#include "io/bitmap.h"
#include "io/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG_KEY_BYTES 150

static char *make_key(const char *name, uint32_t row, bool is_long)
{
    char *key = NULL;
    assert_true(asprintf(&key, is_long ? "%s:%u:%0*u" : "%s:%u", name, row, LONG_KEY_BYTES, row) > 0);
    return key;
}

void support_part_make(struct support_part *part, const char *name, uint32_t rows, uint32_t dim, enum quire_type type,
                       uint64_t seed, bool long_keys, bool attributes)
{
    memset(part, 0, sizeof *part);
    support_clusters(rows, dim, type, seed, &part->data);
    part->keys = calloc(rows, sizeof *part->keys);
    part->key_bytes = calloc(rows, sizeof *part->key_bytes);
    part->attributes = attributes ? calloc(rows, sizeof *part->attributes) : NULL;
    part->attribute_bytes = calloc(rows, sizeof *part->attribute_bytes);
    assert_true(part->keys && part->key_bytes && part->attribute_bytes);
    for (uint32_t i = 0; i < rows; i++) {
        part->keys[i] = make_key(name, i, long_keys && i % 7 == 3);
        part->key_bytes[i] = (uint32_t)strlen(part->keys[i]);
        if (!attributes || i % 3)
            continue;
        int n = asprintf(&part->attributes[i], "{\"part\":\"%s\",\"row\":%u,\"text\":\"%0*u\"}", name, i,
                         (int)(i % 200) + 1, i);
        assert_true(n > 0);
        part->attribute_bytes[i] = (uint32_t)n;
    }
}

void support_part_free(struct support_part *part)
{
    for (uint32_t i = 0; i < part->data.rows; i++) {
        free(part->keys[i]);
        if (part->attributes)
            free(part->attributes[i]);
    }
    free(part->keys);
    free(part->key_bytes);
    free(part->attributes);
    free(part->attribute_bytes);
    support_data_free(&part->data);
}

struct segment *support_segment(const char *path)
{
    struct segment *segment = NULL;
    struct quire_error err;
    int rc = segment_open(path, NULL, &segment, &err);
    if (rc < 0)
        fail_msg("%s: %s", path, err.message);
    assert_non_null(segment);
    return segment;
}

struct segment *support_part_segment(const struct support_part *part, const char *path,
                                     const struct quire_build_options *options, bool with_keys)
{
    struct quire_build_options o = *options;
    if (with_keys) {
        o.keys = (const void *const *)part->keys;
        o.key_bytes = part->key_bytes;
        o.attributes = (const char *const *)part->attributes;
        o.attribute_bytes = part->attributes ? part->attribute_bytes : NULL;
    }
    support_build(path, &part->data, &o);
    return support_segment(path);
}

static void give_row(void *context, uint32_t i, void *vector, const void **key, uint32_t *key_bytes,
                     const char **attributes, uint32_t *attribute_bytes)
{
    const struct support_part *part = context;
    size_t bytes = part->data.dim * quire_type_bytes(part->data.type);
    memcpy(vector, part->data.vectors + i * bytes, bytes);
    *key = part->keys[i];
    *key_bytes = part->key_bytes[i];
    *attributes = part->attributes ? part->attributes[i] : NULL;
    *attribute_bytes = part->attribute_bytes[i];
}

struct merge_rows support_part_rows(const struct support_part *part)
{
    return (struct merge_rows){
        .n = part->data.rows, .type = part->data.type, .row = give_row, .context = (void *)(uintptr_t)part};
}

uint8_t *support_dead(uint32_t rows, uint32_t every, uint64_t seed)
{
    struct random random;
    uint8_t *dead = calloc(rows / 8 + 1, 1);
    assert_non_null(dead);
    random_init(&random, seed);
    for (uint32_t i = 0; i < rows; i++)
        if (random_below(&random, every) == 0)
            bitmap_add(dead, i);
    return dead;
}

static double length(const float *x, uint32_t dim)
{
    double sum = 0;
    for (uint32_t i = 0; i < dim; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

double support_stored_error(const float *stored, const float *original, uint32_t dim, bool unit)
{
    double scale = unit ? 1 / length(original, dim) : 1, stored_scale = unit ? 1 / length(stored, dim) : 1, sum = 0;
    for (uint32_t i = 0; i < dim; i++) {
        double d = stored_scale * stored[i] - scale * original[i];
        sum += d * d;
    }
    return sqrt(sum) / (scale * length(original, dim));
}
