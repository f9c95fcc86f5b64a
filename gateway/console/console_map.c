/*
 * console_map.c - a sample of a set's or of a cache's vectors, for a picture of it.
 *
 * Of a set the names of the sample come first, then their vectors, attributes and tenants, a few at a time, so that
 * neither the server's loop nor this one is held up. A number becomes a byte: the picture has fewer points than that.
 * Of a cache all come at once, in bytes already (SC.SAMPLE).
 *
 * Whom elements are granted to is for administrators. So the first element is asked for alone: who is refused that is
 * refused once (the server notes each refusal), and gets the rest of the sample without.
 */
#include "gateway/console/console_priv.h"
#include <assert.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_MAX     2000
#define BYTES_MAX      (2u << 20)
#define AT_ONCE        64u
#define DIMENSIONS_MAX 65536u
#define TENANTS_MAX    16u /* of one element */

/* job->numbers[]: how many were asked for, the dimensions, whether tenants are not told; job->work[]: replies under
 * way, scales */
enum { ASKED, DIMENSIONS, UNTOLD };
enum { REPLIES, SCALES };

/* The numbers of VEMB ... RAW as bytes at `row`, and what one step of them is; 0: there is no such vector (any more).
 * `room`: for as many numbers. */
static double read_vector(const json_t *reply, signed char *row, size_t dimensions, float *room)
{
    const char *kind = json_string_value(json_array_get(reply, 0));
    const unsigned char *bits = (const unsigned char *)room;
    double length = json_number_value(json_array_get(reply, 2)), largest = 0;
    size_t n = console_json_bytes(json_array_get(reply, 1), (unsigned char *)room, dimensions * sizeof *room);
    if (kind && strcmp(kind, "int8") == 0 && n == dimensions) {
        memcpy(row, room, n);
        return json_number_value(json_array_get(reply, 3)) * length / 127;
    }
    if (kind && strcmp(kind, "bin") == 0 && n >= (dimensions + 7) / 8) {
        for (size_t i = 0; i < dimensions; i++)
            row[i] = bits[i / 8] >> i % 8 & 1 ? 127 : -127;
        return length / sqrt((double)dimensions) / 127;
    }
    if (!kind || strcmp(kind, "f32") != 0 || n != dimensions * sizeof *room)
        return 0;
    for (size_t i = 0; i < dimensions; i++)
        largest = fmax(largest, fabs((double)room[i]));
    for (size_t i = 0; i < dimensions; i++)
        row[i] = (signed char)(largest > 0 ? lround((double)room[i] / largest * 127) : 0);
    return largest > 0 ? largest * length / 127 : 1;
}

/* The first tenants of an element; null where they are not told. */
static json_t *take_tenants(struct console_job *job, const json_t *reply)
{
    json_t *tenants = json_object_get(reply, "tenants");
    if (json_is_object(tenants)) { /* an error */
        job->numbers[UNTOLD] = true;
        json_object_set(job->root, "tenants", tenants);
    }
    if (!json_is_array(tenants))
        return json_null();
    for (; json_array_size(tenants) > TENANTS_MAX; job->truncated = true)
        json_array_remove(tenants, json_array_size(tenants) - 1);
    return json_incref(tenants);
}

static void take_vector(struct console_job *job, const json_t *reply, json_t *elements, float *room)
{
    size_t dimensions = job->numbers[DIMENSIONS];
    json_t *tenants = take_tenants(job, reply);
    json_t *attributes = json_object_get(reply, "attributes");
    signed char *row = (signed char *)job->blob + job->blob_bytes;
    double scale = read_vector(json_object_get(reply, "vector"), row, dimensions, room);
    if (!(scale > 0)) {
        json_decref(tenants);
        return;
    }
    job->blob_bytes += dimensions;
    json_array_append_new(job->work[SCALES], json_real(scale));
    json_array_append_new(
        elements, json_pack("{s:O, s:o, s:o}", "element", json_object_get(reply, "element"), "attributes",
                            json_is_string(attributes) ? json_incref(attributes) : json_null(), "tenants", tenants));
}

static void answer_map(struct console_job *job)
{
    size_t bytes = (job->blob_bytes + 2) / 3 * 4 + 1;
    unsigned char *text = malloc(bytes);
    if (!text) {
        console_job_refuse(job, 503, "busy", "no memory for the sample");
        return;
    }
    EVP_EncodeBlock(text, (unsigned char *)job->blob, (int)job->blob_bytes);
    json_object_set_new(job->root, "vectors", json_string((char *)text));
    json_object_set(job->root, "scale", job->work[SCALES]);
    json_object_del(job->root, "sample");
    free(text);
}

static void ask_more(struct console_job *job)
{
    const json_t *sample = json_object_get(job->root, "sample");
    json_t *elements = json_object_get(job->root, "elements");
    const char *set = console_job_text(job, "set", "");
    size_t i, most = BYTES_MAX / job->numbers[DIMENSIONS], n = json_array_size(sample);
    size_t at_once = job->numbers[ASKED] == 0 ? 1 : AT_ONCE;
    float *room = malloc(job->numbers[DIMENSIONS] * sizeof *room);
    if (!room)
        console_job_refuse(job, 503, "busy", "no memory for the sample");
    for (i = 0; room && i < json_array_size(job->work[REPLIES]); i++)
        take_vector(job, json_array_get(job->work[REPLIES], i), elements, room);
    free(room);
    json_array_clear(job->work[REPLIES]);
    if (n > most) {
        n = most;
        job->truncated = true;
    }
    for (i = 0; i < at_once && job->numbers[ASKED] < n && !job->failed; i++, job->numbers[ASKED]++) {
        json_t *name = json_array_get(sample, job->numbers[ASKED]), *answers = json_object();
        if (json_array_append_new(job->work[REPLIES], answers) != 0 || json_object_set(answers, "element", name) != 0)
            console_job_refuse(job, 503, "busy", "no memory for the sample");
        console_job_ask(job, answers, "vector", CONSOLE_QUIET | CONSOLE_BYTES, "VEMB", set, json_string_value(name),
                        "RAW", NULL);
        console_job_ask(job, answers, "attributes", CONSOLE_QUIET, "VGETATTR", set, json_string_value(name), NULL);
        if (!job->numbers[UNTOLD])
            console_job_ask(job, answers, "tenants", 0, "VGETGRANTS", set, json_string_value(name), NULL);
    }
    job->next = json_array_size(job->work[REPLIES]) > 0 ? ask_more : NULL;
    if (!job->next)
        answer_map(job);
}

static void begin_sample(struct console_job *job)
{
    const json_t *info = json_object_get(job->root, "info");
    json_int_t dimensions = json_integer_value(json_object_get(info, "vector-dim"));
    if (json_is_null(info) || dimensions < 1) {
        console_job_refuse(job, 404, "not_found", "there is no such set: SCAN 0 TYPE vectorset shows those there are");
        return;
    }
    if (dimensions > DIMENSIONS_MAX) {
        console_job_refuse(job, 409, "too_large", "the set has %lld dimensions; a map is made of up to %u",
                           (long long)dimensions, DIMENSIONS_MAX);
        return;
    }
    job->numbers[DIMENSIONS] = (uint64_t)dimensions;
    json_object_set_new(job->root, "dimensions", json_integer(dimensions));
    json_object_set(job->root, "size", json_object_get(info, "size"));
    json_object_del(job->root, "info");
    json_object_set_new(job->root, "elements", json_array());
    job->work[REPLIES] = json_array();
    job->work[SCALES] = json_array();
    job->blob = malloc(BYTES_MAX);
    if (!job->blob || !job->work[REPLIES] || !job->work[SCALES]) {
        console_job_refuse(job, 503, "busy", "no memory for the sample");
        return;
    }
    ask_more(job);
}

/* ---- a cache ---- */

static void take_sample(struct console_job *job)
{
    json_t *sample = json_incref(json_object_get(job->root, "sample")), *elements = json_array(), *one;
    size_t dimensions = job->numbers[DIMENSIONS], n = json_array_size(sample), i;
    json_object_set_new(job->root, "elements", elements);
    job->work[SCALES] = json_array();
    job->blob = malloc(n * dimensions + 1);
    if (!job->blob || !job->work[SCALES])
        console_job_refuse(job, 503, "busy", "no memory for the sample");
    json_array_foreach(sample, i, one)
    {
        unsigned char *row = (unsigned char *)job->blob + job->blob_bytes;
        if (job->failed || console_json_bytes(json_object_get(one, "vector"), row, dimensions) != dimensions)
            continue;
        job->blob_bytes += dimensions;
        json_array_append(job->work[SCALES], json_object_get(one, "step"));
        json_object_del(one, "vector");
        json_object_del(one, "step");
        json_array_append(elements, one);
    }
    json_decref(sample);
    if (!job->failed)
        answer_map(job);
}

static void ask_sample(struct console_job *job)
{
    json_t *info = json_object_get(job->root, "info");
    const char *cache = console_job_text(job, "cache", ""), *category = console_job_text(job, "category", NULL);
    json_int_t dimensions = json_integer_value(json_object_get(info, "dim"));
    char count[24];
    if (dimensions < 1 || dimensions > DIMENSIONS_MAX) {
        console_job_refuse(job, 409, "too_large", "the cache has %lld dimensions; a map is made of up to %u",
                           (long long)dimensions, DIMENSIONS_MAX);
        return;
    }
    uint64_t most = BYTES_MAX / (uint64_t)dimensions, n = job->numbers[ASKED];
    job->truncated |= n > most;
    job->numbers[DIMENSIONS] = (uint64_t)dimensions;
    snprintf(count, sizeof count, "%llu", (unsigned long long)(n < most ? n : most));
    json_object_set_new(job->root, "dimensions", json_integer(dimensions));
    json_object_set(job->root, "size", json_object_get(info, "entries"));
    json_object_del(job->root, "info");
    job->next = take_sample;
    if (category)
        console_job_ask(job, NULL, "sample", CONSOLE_MUST | CONSOLE_BYTES, "SC.SAMPLE", cache, "CAT", category, "COUNT",
                        count, NULL);
    else
        console_job_ask(job, NULL, "sample", CONSOLE_MUST | CONSOLE_BYTES, "SC.SAMPLE", cache, "COUNT", count, NULL);
}

static void begin_cache(struct console_job *job, const char *cache, uint64_t n)
{
    const char *category = console_job_text(job, "category", NULL);
    json_object_set_new(job->root, "cache", console_json_text(cache, strlen(cache)));
    json_object_set_new(job->root, "category", category ? console_json_text(category, strlen(category)) : json_null());
    job->numbers[ASKED] = n;
    job->next = ask_sample;
    console_job_ask(job, NULL, "info", CONSOLE_MUST, "SC.INFO", cache, NULL);
}

void console_map_begin(struct console_job *job)
{
    const char *set = console_job_text(job, "set", NULL), *cache = console_job_text(job, "cache", NULL);
    int64_t n;
    char count[24];
    if (!set == !cache || (set && console_job_param(job, "category"))) {
        console_job_refuse(job, 400, "bad_request", "give set, or cache with or without category");
        return;
    }
    if (job->console->n_maps == CONSOLE_MAPS_MAX) {
        console_job_refuse(job, 503, "busy", "%u maps are being made: ask again in a second", CONSOLE_MAPS_MAX);
        return;
    }
    job->is_map = true;
    job->console->n_maps++;
    if (!console_job_number(job, "count", SAMPLE_MAX, 1, SAMPLE_MAX, &n))
        return;
    if (cache) {
        begin_cache(job, cache, (uint64_t)n);
        return;
    }
    snprintf(count, sizeof count, "%lld", (long long)n);
    json_object_set_new(job->root, "set", console_json_text(set, strlen(set)));
    job->next = begin_sample;
    console_job_ask(job, NULL, "info", CONSOLE_MUST, "VINFO", set, NULL);
    console_job_ask(job, NULL, "sample", CONSOLE_MUST, "VRANDMEMBER", set, count, NULL);
}
