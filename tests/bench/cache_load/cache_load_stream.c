/*
 * cache_load_stream.c - what is asked: questions in categories, in other words each time, at bursty moments.
 *
 * The vector of a question is a mixture of three random directions: one of its category, one of its topic (eight
 * questions) and one of its own. --overlap is the cosine of two questions of one topic; those of other topics of the
 * category have three fifths of it. So neighbours that are wrong are as near as one likes. A variant of a question has
 * its vector plus noise; which noise is a function of question and variant, because an encoder gives the same vector
 * for the same text. Noise n moves a vector to a cosine of 1 / sqrt(1 + n^2); strengths are spread evenly from half to
 * one and a half times what was asked for.
 *
 * Texts are made of syllables without numbers, names or quotes, so that no guard keeps variants of one question apart:
 * this measures thresholds. Question and variant can be read back from the text.
 *
 * Arrivals are a renewal process with gamma distributed gaps: shape 1 is Poisson, below that they come in clusters. In
 * the middle third of a run the rate is higher by --burst. Popularity within a category is Zipf's. An answer changes at
 * the moments of a Poisson process per question.
 *
 * All of it is a function of the seed.
 */
#include "io/error.h"
#include "tests/bench/cache_load/cache_load.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOPIC_QUESTIONS 8u
#define TOPIC_FAR       0.6 /* cosine of questions of other topics, as a part of --overlap */
#define SYLLABLES       4u  /* of a question or variant: 64^4 */
#define QUESTIONS_MAX   (1u << 22)

static const char consonants[] = "bdfghjklmnprstvz", vowels[] = "aeio";

/* ---- randomness -------------------------------------------------------------------------------------------------- */

double random_unit(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

double random_normal(struct random *random)
{
    return sqrt(-2 * log(1 - random_unit(random))) * cos(2 * M_PI * random_unit(random));
}

/* Marsaglia and Tsang 2000; below 1 the variate of shape + 1, times u^(1 / shape). */
double random_gamma(struct random *random, double shape)
{
    if (shape < 1)
        return random_gamma(random, shape + 1) * pow(1 - random_unit(random), 1 / shape);
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = random_normal(random), v = 1 + c * x, u = 1 - random_unit(random);
        v = v * v * v;
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

static void scale_to_unit(float *v, size_t dim)
{
    double sum = 0;
    for (size_t i = 0; i < dim; i++)
        sum += (double)v[i] * (double)v[i];
    float by = sum > 0 ? (float)(1 / sqrt(sum)) : 0;
    for (size_t i = 0; i < dim; i++)
        v[i] *= by;
}

/* Of a cube, not a ball: with many dimensions that makes no difference to angles, and it is cheap. */
void random_direction(struct random *random, float *out, size_t dim)
{
    for (size_t i = 0; i < dim; i += 2) {
        uint64_t bits = random_next(random);
        out[i] = (float)(int32_t)(uint32_t)bits * 0x1p-31f;
        if (i + 1 < dim)
            out[i + 1] = (float)(int32_t)(uint32_t)(bits >> 32) * 0x1p-31f;
    }
    scale_to_unit(out, dim);
}

/* ---- categories -------------------------------------------------------------------------------------------------- */

static void add_category(struct load_stream *stream, const char *name, double weight, uint64_t questions, double zipf,
                         double change, const char *settings)
{
    struct load_category *c = &stream->categories[stream->n_categories++];
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->settings, sizeof c->settings, "%s", settings);
    c->weight = weight;
    c->zipf = zipf;
    c->noise = stream->options->noise;
    c->change_per_second = change;
    c->first = stream->n_questions;
    c->n = (uint32_t)questions;
    stream->n_questions += c->n;
}

/* A head that repeats, a long tail, and news that go out of date. */
static void default_mix(struct load_stream *stream)
{
    const struct load_options *o = stream->options;
    char news[LOAD_SETTINGS_MAX];
    add_category(stream, "code", 0.35, o->questions / 10 + 1, o->zipf * 1.1, 0, o->settings);
    add_category(stream, "chat", 0.45, o->questions, o->zipf * 0.9, 0, o->settings);
    snprintf(news, sizeof news, "TTL 10000 STALE 5000 %s", o->settings);
    add_category(stream, "news", 0.2, o->questions / 20 + 1, o->zipf, o->change_per_second, news);
}

static double number_or(json_t *object, const char *name, double otherwise)
{
    json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static int add_from_json(struct load_stream *stream, json_t *one, struct quire_error *err)
{
    const struct load_options *o = stream->options;
    const char *name = json_string_value(json_object_get(one, "name"));
    const char *settings = json_string_value(json_object_get(one, "settings"));
    double weight = number_or(one, "weight", 1), questions = number_or(one, "questions", (double)o->questions);
    if (!name || !*name || strlen(name) >= LOAD_NAME_MAX || (settings && strlen(settings) >= LOAD_SETTINGS_MAX))
        return error_set(err, QUIRE_EPARSE, "%s: a category needs a name of 1 to %u bytes, settings at most %u", o->mix,
                         LOAD_NAME_MAX - 1, LOAD_SETTINGS_MAX - 1);
    if (!(weight > 0) || !(questions >= 1) || questions + stream->n_questions > QUESTIONS_MAX)
        return error_set(err, QUIRE_ERANGE, "%s: category %s: weight %g must be above 0, questions %g 1 to %u in all",
                         o->mix, name, weight, questions, QUESTIONS_MAX);
    add_category(stream, name, weight, (uint64_t)questions, number_or(one, "zipf", o->zipf),
                 number_or(one, "change_per_second", 0), settings ? settings : o->settings);
    stream->categories[stream->n_categories - 1].noise = number_or(one, "noise", o->noise);
    return 0;
}

static int read_mix(struct load_stream *stream, struct quire_error *err)
{
    const char *path = stream->options->mix;
    json_error_t e;
    json_t *root = json_load_file(path, 0, &e), *array = json_object_get(root, "categories");
    int rc = 0;
    if (!root)
        rc = error_set(err, QUIRE_EPARSE, "%s, line %d: %s", path, e.line, e.text);
    else if (json_array_size(array) < 1 || json_array_size(array) > LOAD_CATEGORIES_MAX)
        rc = error_set(err, QUIRE_ERANGE, "%s: \"categories\" must be an array of 1 to %u", path, LOAD_CATEGORIES_MAX);
    for (size_t i = 0; rc == 0 && i < json_array_size(array); i++)
        rc = add_from_json(stream, json_array_get(array, i), err);
    json_decref(root);
    return rc;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* Weights are square roots, since cosines of the sum are sums of the weights' squares. */
static void make_vector(struct load_stream *stream, uint32_t question, const float *centre, float *topic, float *own)
{
    size_t dim = stream->options->dim;
    double overlap = stream->options->overlap, far = overlap * TOPIC_FAR;
    struct random r;
    float *out = stream->vectors + (size_t)question * dim;
    random_init(&r, random_mix(stream->options->seed ^ ((0x7091cull + question / TOPIC_QUESTIONS) << 24)));
    random_direction(&r, topic, dim);
    random_init(&r, random_mix(stream->options->seed ^ (0x0017ull << 40) ^ question));
    random_direction(&r, own, dim);
    for (size_t i = 0; i < dim; i++)
        out[i] = (float)(sqrt(far) * (double)centre[i] + sqrt(overlap - far) * (double)topic[i] +
                         sqrt(1 - overlap) * (double)own[i]);
    scale_to_unit(out, dim);
}

static uint64_t gap_to_change(struct load_question *question, double per_second)
{
    if (!(per_second > 0))
        return UINT64_MAX;
    return (uint64_t)(-log(1 - random_unit(&question->random)) / per_second * 1e9);
}

static void make_category(struct load_stream *stream, uint32_t number, float *scratch)
{
    const struct load_category *c = &stream->categories[number];
    size_t dim = stream->options->dim;
    struct random r;
    double sum = 0;
    random_init(&r, random_mix(stream->options->seed ^ (0xca7ull << 32) ^ number));
    random_direction(&r, scratch, dim);
    for (uint32_t i = 0; i < c->n; i++) {
        struct load_question *question = &stream->questions[c->first + i];
        make_vector(stream, c->first + i, scratch, scratch + dim, scratch + 2 * dim);
        sum += pow(i + 1.0, -c->zipf);
        stream->popularity[c->first + i] = sum;
        random_init(&question->random, random_mix(stream->options->seed ^ (0xc4a9ull << 36) ^ (c->first + i)));
        question->category = number;
        question->changes_ns = gap_to_change(question, c->change_per_second);
    }
    for (uint32_t i = 0; i < c->n; i++)
        stream->popularity[c->first + i] /= sum;
}

int stream_create(const struct load_options *options, struct load_stream *out, struct quire_error *err)
{
    *out = (struct load_stream){.options = options};
    random_init(&out->random, options->seed);
    int rc = 0;
    if (options->mix)
        rc = read_mix(out, err);
    else
        default_mix(out);
    if (rc < 0)
        return rc;
    float *scratch = calloc(3 * options->dim, sizeof *scratch);
    out->vectors = calloc((size_t)out->n_questions * options->dim, sizeof *out->vectors);
    out->popularity = calloc(out->n_questions, sizeof *out->popularity);
    out->questions = calloc(out->n_questions, sizeof *out->questions);
    if (!scratch || !out->vectors || !out->popularity || !out->questions) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %u questions of %llu dimensions", out->n_questions,
                       (unsigned long long)options->dim);
        stream_destroy(out);
    }
    for (uint32_t i = 0; rc == 0 && i < out->n_categories; i++)
        make_category(out, i, scratch);
    free(scratch);
    return rc;
}

void stream_destroy(struct load_stream *stream)
{
    free(stream->vectors);
    free(stream->popularity);
    free(stream->questions);
    *stream = (struct load_stream){0};
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

bool stream_in_burst(const struct load_options *options, double seconds)
{
    return options->burst > 1 && seconds >= options->seconds / 3 && seconds < options->seconds * 2 / 3;
}

static uint32_t draw_category(struct load_stream *stream)
{
    double sum = 0, at;
    for (uint32_t i = 0; i < stream->n_categories; i++)
        sum += stream->categories[i].weight;
    at = random_unit(&stream->random) * sum;
    uint32_t i = 0;
    while (i + 1 < stream->n_categories && at >= stream->categories[i].weight)
        at -= stream->categories[i++].weight;
    return i;
}

/* The first whose cumulative popularity is above a draw. */
static uint32_t draw_question(struct load_stream *stream, const struct load_category *c)
{
    double at = random_unit(&stream->random);
    uint32_t low = 0, high = c->n - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (stream->popularity[c->first + middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return c->first + low;
}

void stream_next(struct load_stream *stream, struct load_ask *out)
{
    const struct load_options *o = stream->options;
    double rate = o->rate * (stream_in_burst(o, stream->arrival_s) ? o->burst : 1);
    stream->arrival_s += random_gamma(&stream->random, o->shape) / (o->shape * rate);
    out->arrival_ns = (uint64_t)(stream->arrival_s * 1e9);
    out->category = draw_category(stream);
    out->question = draw_question(stream, &stream->categories[out->category]);
    out->tenant = (uint32_t)random_below(&stream->random, o->tenants);
    bool repeats = random_unit(&stream->random) < o->repeat;
    uint32_t variant = 1 + (uint32_t)random_below(&stream->random, o->variants);
    out->variant = repeats ? 0 : variant;
}

void stream_vector(const struct load_stream *stream, const struct load_ask *ask, float *out)
{
    size_t dim = stream->options->dim;
    const float *base = stream->vectors + (size_t)ask->question * dim;
    if (ask->variant == 0) {
        memcpy(out, base, dim * sizeof *out);
        return;
    }
    struct random r;
    random_init(&r, random_mix(stream->options->seed ^ ((uint64_t)ask->question << 32) ^ ask->variant));
    float strength = (float)(stream->categories[ask->category].noise * (0.5 + random_unit(&r)));
    random_direction(&r, out, dim);
    for (size_t i = 0; i < dim; i++)
        out[i] = base[i] + strength * out[i];
    scale_to_unit(out, dim);
}

static size_t put_word(char *out, uint32_t number)
{
    for (unsigned i = 0; i < SYLLABLES; i++) {
        out[2 * i] = consonants[number >> 2 & 15];
        out[2 * i + 1] = vowels[number & 3];
        number >>= 6;
    }
    return (size_t)2 * SYLLABLES;
}

void stream_text(const struct load_ask *ask, char out[LOAD_TEXT_BYTES])
{
    static const char begin[] = "please tell me about the ", middle[] = " in the words of ";
    size_t n = sizeof begin - 1;
    memcpy(out, begin, n);
    n += put_word(out + n, ask->question);
    memcpy(out + n, middle, sizeof middle - 1);
    n += sizeof middle - 1;
    n += put_word(out + n, ask->variant);
    out[n] = 0;
}

uint32_t stream_question_of(const char *text)
{
    const char *at = strstr(text, "about the ");
    uint32_t number = 0;
    if (!at || strlen(at += strlen("about the ")) < (size_t)2 * SYLLABLES)
        return UINT32_MAX;
    for (unsigned i = 0; i < SYLLABLES; i++) {
        const char *c = strchr(consonants, at[2 * i]), *v = strchr(vowels, at[2 * i + 1]);
        if (!c || !v)
            return UINT32_MAX;
        number |= (uint32_t)((c - consonants) << 2 | (v - vowels)) << 6 * i;
    }
    return number;
}

uint32_t stream_version(struct load_stream *stream, uint32_t question, uint64_t at_ns)
{
    struct load_question *q = &stream->questions[question];
    while (q->changes_ns <= at_ns) {
        q->version++;
        q->changes_ns += gap_to_change(q, stream->categories[q->category].change_per_second);
    }
    return q->version;
}
