/*
 * embed_model.c - the model as a file, and a text's vector.
 *
 * Format (little-endian; container: io/sections.h, kind "EMBD"; docs/embedding.md has every byte)
 *   section 1  parameters   64 bytes, struct parameters below
 *   section 2  buckets      features x u32, strictly ascending, each below 2^22
 *   section 3  idf          features x f32, finite and positive
 *   section 4  projection   features x dim x f16, row-major, finite
 * Valid if and only if the container is, those sections are there with exactly the bytes that the parameters state, and
 * the ranges above hold. The container's segment id is the XXH3-128 of the projection: equal models have equal ids.
 *
 * A vector is the sum of the text's known rows of the projection, each times its weight, made a unit vector. Only
 * buckets that were kept at the fit have a row, so a model has 2 * dim bytes for each of those. f16 halves file and
 * memory against f32 and moves a vector by less than 1e-3; the factor that brings the largest number to 1024 keeps the
 * small ones out of the subnormal range, and drops out when the vector is made a unit vector.
 */
#include "datasets/embed_priv.h"
#include "index/kernels/kernels.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/sections.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SECTION_PARAMETERS = 1, SECTION_BUCKETS = 2, SECTION_IDF = 3, SECTION_PROJECTION = 4 };
#define FEATURES_VERSION 1u /* how text becomes buckets: embed_text.c */
#define FEATURES_LIMIT   1048576u
#define LARGEST          1024.0f

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and read as they are");

struct parameters {
    uint32_t features_version;
    uint32_t dim;
    uint32_t features;
    float weight[EMBED_GROUPS];
    uint64_t lines, rows, seed;
    uint8_t zero[16];
};
_Static_assert(sizeof(struct parameters) == 64, "no padding in a struct that is written");

/* ---- in memory --------------------------------------------------------------------------------------------------- */

static size_t projection_elements(const struct embed_info *info)
{
    return (size_t)info->features * info->dim; /* at most 2^20 * 2^10 */
}

static void set_model_bytes(struct embed_info *info)
{
    info->model_bytes = 8ull * info->features + sizeof(uint16_t) * projection_elements(info);
}

int embed_model_pack(struct embed_model *model, const float *basis, struct quire_error *err)
{
    size_t n = projection_elements(&model->info), dim = model->info.dim;
    float largest = 0, row[EMBED_DIM_MAX];
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(basis[i]));
    if (!(largest > 0) || !isfinite(largest))
        return error_set(err, QUIRE_EINTERNAL, "the projection's largest number is %g", (double)largest);
    model->projection = malloc(memory_size_mul(n, sizeof *model->projection));
    if (!model->projection)
        return error_set(err, QUIRE_ENOMEM, "no memory for a projection of %u x %zu", model->info.features, dim);
    for (size_t at = 0; at < n; at += dim) {
        for (size_t d = 0; d < dim; d++)
            row[d] = basis[at + d] * (LARGEST / largest);
        kernels()->f16_from_f32(row, model->projection + at, dim);
    }
    set_model_bytes(&model->info);
    return 0;
}

void embed_model_free(struct embed_model *model)
{
    if (!model)
        return;
    embed_vocabulary_fini(&model->vocabulary);
    free(model->projection);
    free(model);
}

void embed_model_info(const struct embed_model *model, struct embed_info *out)
{
    *out = model->info;
}

/* ---- applying ---------------------------------------------------------------------------------------------------- */

/* The sparse row of a text; *columns and *values are the caller's to free, also on failure. */
static int text_row(const struct embed_model *model, const char *text, size_t bytes, uint32_t **columns, float **values,
                    uint32_t *n, struct quire_error *err)
{
    struct features features = {0};
    int rc = embed_features_of(&features, text, bytes, err);
    if (rc == 0) {
        *columns = malloc(memory_size_mul((size_t)features.n + 1, sizeof **columns));
        *values = malloc(memory_size_mul((size_t)features.n + 1, sizeof **values));
        if (*columns && *values)
            *n = embed_vocabulary_row(&model->vocabulary, features.entries, features.n, *columns, *values);
        else
            rc = error_set(err, QUIRE_ENOMEM, "no memory for the %u features of a text", features.n);
    }
    embed_features_fini(&features);
    return rc;
}

/* False for a sum of length zero: the rows that the text needs may all be zero, or cancel. */
static bool project(const struct embed_model *model, const uint32_t *columns, const float *values, uint32_t n,
                    float *vector)
{
    size_t dim = model->info.dim;
    const struct kernels *k = kernels();
    float row[EMBED_DIM_MAX], sum[EMBED_DIM_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        k->f32_from_f16(model->projection + (size_t)columns[i] * dim, row, dim);
        for (size_t d = 0; d < dim; d++)
            sum[d] += values[i] * row[d];
    }
    double square = 0;
    for (size_t d = 0; d < dim; d++)
        square += (double)sum[d] * sum[d];
    double scale = 1.0 / sqrt(square);
    if (!(square > 0) || !isfinite(scale))
        return false;
    for (size_t d = 0; d < dim; d++)
        vector[d] = (float)(sum[d] * scale);
    return true;
}

int embed_apply(const struct embed_model *model, const char *text, size_t bytes, float *vector, struct quire_error *err)
{
    uint32_t *columns = NULL, n = 0;
    float *values = NULL;
    int rc = text_row(model, text, bytes, &columns, &values, &n, err);
    if (rc == 0 && !project(model, columns, values, n, vector))
        rc = error_set(err, QUIRE_EZEROVEC,
                       "the text has no word and no part of a word that the model knows, so it has no direction");
    free(columns);
    free(values);
    return rc;
}

int embed_known(const struct embed_model *model, const char *text, size_t bytes, struct quire_error *err)
{
    float vector[EMBED_DIM_MAX];
    int rc = embed_apply(model, text, bytes, vector, err);
    return rc == QUIRE_EZEROVEC ? 0 : rc < 0 ? rc : 1;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int write_sections(const struct embed_model *model, struct section_writer *writer, struct quire_error *err)
{
    const struct vocabulary *v = &model->vocabulary;
    struct parameters p = {.features_version = FEATURES_VERSION,
                           .dim = model->info.dim,
                           .features = v->n,
                           .lines = model->info.lines,
                           .rows = model->info.rows,
                           .seed = model->info.seed};
    memcpy(p.weight, v->weight, sizeof p.weight);
    int rc = section_put(writer, SECTION_PARAMETERS, &p, sizeof p, err);
    if (rc == 0)
        rc = section_put(writer, SECTION_BUCKETS, v->bucket, v->n * sizeof *v->bucket, err);
    if (rc == 0)
        rc = section_put(writer, SECTION_IDF, v->idf, v->n * sizeof *v->idf, err);
    if (rc == 0)
        rc = section_put(writer, SECTION_PROJECTION, model->projection,
                         projection_elements(&model->info) * sizeof *model->projection, err);
    return rc;
}

int embed_model_save(const struct embed_model *model, const char *path, struct quire_error *err)
{
    struct io_fs *fs = fs_real();
    struct section_writer *writer = NULL;
    char *temporary = NULL;
    XXH128_canonical_t id;
    XXH128_canonicalFromHash(
        &id, XXH3_128bits(model->projection, projection_elements(&model->info) * sizeof *model->projection));
    if (asprintf(&temporary, "%s.partial", path) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a file");
    fs->ops->unlink(fs, temporary); /* what a killed run may have left; the writer refuses a file that is there */
    int rc = section_writer_create(fs, temporary, EMBED_KIND, id.digest, &writer, err);
    if (rc != 0)
        goto out;
    rc = write_sections(model, writer, err);
    if (rc != 0) {
        section_writer_abort(writer);
        goto out;
    }
    rc = section_writer_finish(writer, err);
    if (rc != 0)
        goto out;
    rc = fs->ops->rename(fs, temporary, path);
    if (rc != 0) {
        fs->ops->unlink(fs, temporary);
        error_set(err, rc, "cannot rename %s to %s: %s", temporary, path, quire_error_text(rc));
    }
out:
    free(temporary);
    return rc;
}

/* Finds a section of exactly `bytes` and reads it into new memory. */
static int load_section(struct section_file *file, const char *path, uint32_t id, uint64_t bytes, void **out,
                        struct quire_error *err)
{
    const struct section_entry *entry = section_find(file, id);
    if (!entry || entry->bytes != bytes)
        return error_set(err, QUIRE_ECORRUPT, "%s: section %u of the model should have %llu bytes and has %llu", path,
                         id, (unsigned long long)bytes, entry ? (unsigned long long)entry->bytes : 0ull);
    void *data = malloc(bytes);
    if (!data)
        return error_set(err, QUIRE_ENOMEM, "no memory for %llu bytes of the model %s", (unsigned long long)bytes,
                         path);
    int rc = section_load(file, entry, data, err);
    if (rc != 0)
        free(data);
    else
        *out = data;
    return rc;
}

static int take_parameters(const struct parameters *p, const char *path, struct embed_model *model,
                           struct quire_error *err)
{
    if (p->features_version != FEATURES_VERSION)
        return error_set(err, QUIRE_EVERSION, "%s was fitted with features of version %u and this program makes %u",
                         path, p->features_version, FEATURES_VERSION);
    if (p->dim == 0 || p->dim > EMBED_DIM_MAX || p->features == 0 || p->features > FEATURES_LIMIT)
        return error_set(err, QUIRE_ECORRUPT, "%s: a model of %u features x %u dimensions; the limits are %u x %u",
                         path, p->features, p->dim, FEATURES_LIMIT, EMBED_DIM_MAX);
    for (int g = 0; g < EMBED_GROUPS; g++)
        if (!isfinite(p->weight[g]) || p->weight[g] < 0)
            return error_set(err, QUIRE_ECORRUPT, "%s: the weight of feature group %d is %g", path, g,
                             (double)p->weight[g]);
    memcpy(model->vocabulary.weight, p->weight, sizeof p->weight);
    model->vocabulary.n = p->features;
    model->info = (struct embed_info){
        .dim = p->dim, .features = p->features, .lines = p->lines, .rows = p->rows, .seed = p->seed};
    set_model_bytes(&model->info);
    return 0;
}

static int check_tables(const struct embed_model *model, const char *path, struct quire_error *err)
{
    const struct vocabulary *v = &model->vocabulary;
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->bucket[i] >= EMBED_BUCKETS || (i > 0 && v->bucket[i] <= v->bucket[i - 1]))
            return error_set(err, QUIRE_ECORRUPT, "%s: bucket %u of the model is %u: too large or out of order", path,
                             i, v->bucket[i]);
        if (!isfinite(v->idf[i]) || v->idf[i] <= 0)
            return error_set(err, QUIRE_ECORRUPT, "%s: idf %u of the model is %g", path, i, (double)v->idf[i]);
    }
    size_t n = projection_elements(&model->info);
    for (size_t i = 0; i < n; i++)
        if ((model->projection[i] & 0x7c00) == 0x7c00)
            return error_set(err, QUIRE_ECORRUPT, "%s: element %zu of the projection is not finite", path, i);
    return 0;
}

static int load_model(struct section_file *file, const char *path, struct embed_model *model, struct quire_error *err)
{
    void *data = NULL;
    int rc = load_section(file, path, SECTION_PARAMETERS, sizeof(struct parameters), &data, err);
    if (rc == 0)
        rc = take_parameters(data, path, model, err);
    free(data);
    if (rc != 0)
        return rc;
    struct vocabulary *v = &model->vocabulary;
    void *bucket = NULL, *idf = NULL, *projection = NULL;
    rc = load_section(file, path, SECTION_BUCKETS, v->n * sizeof *v->bucket, &bucket, err);
    if (rc == 0)
        rc = load_section(file, path, SECTION_IDF, v->n * sizeof *v->idf, &idf, err);
    if (rc == 0)
        rc = load_section(file, path, SECTION_PROJECTION, projection_elements(&model->info) * sizeof *model->projection,
                          &projection, err);
    v->bucket = bucket;
    v->idf = idf;
    model->projection = projection;
    if (rc == 0)
        rc = check_tables(model, path, err);
    return rc == 0 ? embed_vocabulary_index(v, err) : rc;
}

int embed_model_open(const char *path, struct embed_model **out, struct quire_error *err)
{
    struct section_file *file = NULL;
    struct embed_model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, QUIRE_ENOMEM, "no memory for a model");
    int rc = section_file_open(fs_real(), path, EMBED_KIND, NULL, FS_READ, &file, err);
    if (rc == 0)
        rc = load_model(file, path, model, err);
    section_file_close(file);
    if (rc == 0)
        *out = model;
    else
        embed_model_free(model);
    return rc;
}
