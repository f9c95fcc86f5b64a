/*
 * build_codes.c - the codes file: centres of blocks, the navigation codes of all rows in every width, their numbers.
 *
 * Each width (1, 2, 4 bits, and 8 if asked for) is stored whole, so that opening under any budget reads exactly what it
 * keeps. With residual r = row - centre of its block, code y and f (codes.h), a search estimates
 *   |q - x|^2 = |q - c|^2 + A - 2 f <y, q>,   A = |r|^2 + 2 f <y, c>
 * where |q - c|^2 is one more small dot product per block. Local centres make a 4-bit code as good as a 4.7-bit one
 * (residuals are 0.6 to 0.8 of the rows' lengths on the sample sets). A and f are half floats in units of their
 * median: exact to 0.05 %, a tenth of the code's own error, from a sixteen-thousandth of the median to 65,504 times it.
 * What lies above is a row far out and stands as the largest half float, which leaves its direction: of the queries
 * that are far out as well, it is nearest to those that it should be, as far as that shows beside |q - c|^2 in a float
 * (it does not from about 1e8 times the others' distance on; such a row is found by an exact search). The spread of a
 * block, which the errors of estimates are taken from, is that of its ordinary rows (build_centres.c).
 */
#include "index/build/build_priv.h"
#include "index/kernels/kernels.h"
#include "index/segment/cells.h"
#include "index/segment/names.h"
#include "index/segment/numbers.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define F16_TOP      65504.0f
#define UNIT_SAMPLE  65536u
#define FACTORS_STEP 256u

struct codes_job {
    struct build *b;
    unsigned bits;
    uint32_t first_row; /* of the batch */
    uint32_t most;      /* rows of a batch */
    uint8_t *vectors;   /* of the batch, as they came */
    uint8_t *codes;     /* of the batch */
    float *a, *f;       /* n each */
    double *errors;     /* per row of the batch */
};

void build_encode_residual(const struct build *b, const uint8_t *raw, const float *centre, unsigned bits, float *v,
                           float *x, uint8_t *code, struct residual *out)
{
    uint32_t dim = b->space.code_dim;
    struct code_measures m;
    build_vector(b, raw, v);
    float apart = space_row(&b->space, v, x);
    for (uint32_t d = 0; d < dim; d++)
        x[d] -= centre[d];
    float f = code_encode_measured(x, dim, bits, code, centre, &m);
    /* 1/cos^2(y, r) = |y|^2 |r|^2 / <r,y>^2 with <r,y> = |r|^2 / f */
    *out = (struct residual){.a = (float)(m.norm2 + 2.0 * f * m.dot_extra) + apart,
                             .f = f,
                             .norm2 = m.norm2,
                             .error = m.norm2 > 0 ? fmax(0, m.yy * f * f / m.norm2 - 1) : 0};
}

static int encode_range(void *context, uint64_t begin, uint64_t end)
{
    struct codes_job *job = context;
    const struct build *b = job->b;
    uint32_t dim = b->space.code_dim, bytes = code_bytes_of(dim, job->bits);
    float *x = malloc(sizeof(float) * dim), *v = malloc(sizeof(float) * dim);
    int rc = x && v ? 0 : QUIRE_ENOMEM;
    for (uint64_t i = begin; rc == 0 && i < end; i++) {
        uint32_t row = job->first_row + (uint32_t)i;
        const float *centre = b->centres + (size_t)(row / b->params.slots_per_block) * dim;
        struct residual residual;
        build_encode_residual(b, job->vectors + i * b->row_bytes, centre, job->bits, v, x, job->codes + i * bytes,
                              &residual);
        job->a[row] = residual.a;
        job->f[row] = residual.f;
        job->errors[i] = residual.error;
    }
    array_free_all(x, v);
    return rc;
}

/* One width of `widths`. */
static int write_width(struct codes_job *job, struct section_writer *writer, unsigned width, unsigned widths)
{
    struct build *b = job->b;
    unsigned bits = nav_bits[width];
    uint32_t bytes = code_bytes_of(b->space.code_dim, bits);
    double error_sum = 0;
    job->bits = bits;
    int rc = section_begin(writer, CODES_NAVIGATION + bits, 0, b->err);
    for (uint32_t at = 0; rc == 0 && at < b->n; at += job->most) {
        uint32_t n = b->n - at < job->most ? b->n - at : job->most;
        job->first_row = at;
        rc = build_load_input(b, at, n, job->vectors);
        if (rc == 0)
            rc = parallel_for(b->options.threads, n, 512, encode_range, job, NULL);
        for (uint32_t i = 0; rc == 0 && i < n; i++)
            error_sum += job->errors[i];
        if (rc == 0)
            rc = section_write(writer, job->codes, (size_t)n * bytes, b->err);
        if (rc == 0)
            rc = build_report(b, "write codes", width * (uint64_t)b->n + at + n, widths * (uint64_t)b->n);
    }
    b->params.error[width] = fmaxf((float)sqrt(error_sum / b->n), 1e-6f);
    return rc == 0 ? section_end(writer, b->err) : rc;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int build_factor_unit(const float *x, uint32_t n, float *out)
{
    uint32_t m = n < UNIT_SAMPLE ? n : UNIT_SAMPLE;
    assert(n > 0);
    float *sample = malloc(sizeof *sample * m);
    if (!sample)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < m; i++)
        sample[i] = fabsf(x[(uint64_t)i * n / m]);
    qsort(sample, m, sizeof *sample, by_value);
    *out = sample[m / 2] > 0 ? sample[m / 2] : sample[m - 1] > 0 ? sample[m - 1] : 1;
    free(sample);
    return 0;
}

void build_factor_halves(const struct residual *rows, uint32_t n, float scale_a, float scale_f, uint8_t *out)
{
    assert(scale_a > 0 && scale_f > 0);
    float pairs[2 * FACTORS_STEP];
    f16_t halves[2 * FACTORS_STEP];
    for (uint32_t at = 0; at < n; at += FACTORS_STEP) {
        uint32_t m = n - at < FACTORS_STEP ? n - at : FACTORS_STEP;
        for (uint32_t i = 0; i < m; i++) {
            pairs[2 * i] = fminf(fmaxf(rows[at + i].a / scale_a, -F16_TOP), F16_TOP);
            pairs[2 * i + 1] = fminf(fmaxf(rows[at + i].f / scale_f, -F16_TOP), F16_TOP);
        }
        kernels()->f16_from_f32(pairs, halves, 2 * m);
        for (uint32_t i = 0; i < 2 * m; i++)
            bytes_store_u16(out + 4 * (size_t)at + 2 * (size_t)i, halves[i]);
    }
}

static int write_factors(const struct codes_job *job, struct section_writer *writer, unsigned width)
{
    struct build *b = job->b;
    float *scale_a = &b->params.scale_a[width], *scale_f = &b->params.scale_f[width];
    struct residual rows[FACTORS_STEP];
    uint8_t halves[4 * FACTORS_STEP];
    int rc = build_factor_unit(job->a, b->n, scale_a);
    if (rc == 0)
        rc = build_factor_unit(job->f, b->n, scale_f);
    if (rc == 0)
        rc = section_begin(writer, CODES_NAV_FACTORS + nav_bits[width], 0, b->err);
    for (uint32_t at = 0; rc == 0 && at < b->n; at += FACTORS_STEP) {
        uint32_t n = b->n - at < FACTORS_STEP ? b->n - at : FACTORS_STEP;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (struct residual){.a = job->a[at + i], .f = job->f[at + i]};
        build_factor_halves(rows, n, *scale_a, *scale_f, halves);
        rc = section_write(writer, halves, 4 * n, b->err);
    }
    return rc == 0 ? section_end(writer, b->err) : rc;
}

static int write_floats(struct section_writer *writer, uint32_t id, const float *x, size_t n, struct quire_error *err)
{
    uint8_t bytes[1024];
    int rc = section_begin(writer, id, 0, err);
    for (size_t at = 0; rc == 0 && at < n; at += 256) {
        size_t m = n - at < 256 ? n - at : 256;
        for (size_t i = 0; i < m; i++)
            bytes_store_f32(bytes + 4 * i, x[at + i]);
        rc = section_write(writer, bytes, 4 * m, err);
    }
    return rc == 0 ? section_end(writer, err) : rc;
}

static int write_widths(struct build *b, struct section_writer *writer)
{
    struct codes_job job = {.b = b};
    unsigned widths = 0;
    while (widths < NAV_WIDTHS && nav_bits[widths] <= b->options.code_bits)
        widths++;
    job.most = build_batch_rows(b, b->space.code_dim);
    job.vectors = malloc(job.most * b->row_bytes);
    job.codes = malloc((size_t)job.most * b->space.code_dim);
    job.a = malloc(sizeof(float) * b->n);
    job.f = malloc(sizeof(float) * b->n);
    job.errors = malloc(sizeof(double) * job.most);
    int rc = job.vectors && job.codes && job.a && job.f && job.errors ? 0 : QUIRE_ENOMEM;
    for (unsigned width = 0; rc == 0 && width < widths; width++) {
        rc = write_width(&job, writer, width, widths);
        if (rc == 0)
            rc = write_factors(&job, writer, width);
    }
    array_free_all(job.vectors, job.codes, job.a, job.f, job.errors);
    return rc;
}

int build_write_codes(struct build *b)
{
    struct section_writer *writer = NULL;
    assert(b->centre_codes && b->centre_factors && !b->cell_codes == !b->cell_of);
    int rc = build_section_writer(b, CODES_NAME, FILE_CODES, &writer);
    if (rc == 0)
        rc = build_is_lists(b) ? build_write_lists(b, writer) : write_widths(b, writer);
    if (rc == 0)
        rc = section_put(writer, CODES_CENTRES, b->centre_codes,
                         (size_t)b->params.n_blocks * code_bytes_of(b->space.code_dim, CENTRE_BITS), b->err);
    if (rc == 0)
        rc = write_floats(writer, CODES_CENTRE_FACTORS, b->centre_factors, (size_t)b->params.n_blocks * 3, b->err);
    if (rc == 0 && b->cell_of)
        rc = cells_write(writer, &b->params, b->cell_codes, b->cell_factors, b->cell_of, b->err);
    if (rc == 0)
        rc = numbers_write(writer, b->order, b->n, b->err);
    if (rc == 0 && b->options.keys)
        rc = names_write(writer, b->options.keys, b->options.key_bytes, b->order, b->n, b->err);
    return section_writer_conclude(writer, rc, b->err);
}
