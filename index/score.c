/*
 * score.c - distances inside a search: to centres, to rows by their navigation codes, to the slots of a block.
 *
 * All are squared L2 in the working space. With c the centre of the row's block (codes.h, build_codes.c):
 *   |q - x|^2 ~ |q - c|^2 + A - 2 f <y, q>,  standard deviation about sigma_factor * |row - c|_rms * |q - c|
 * The navigation code sees the query as int8 (its rounding is a tenth of a 4-bit code's error); centres of blocks that
 * were read and 8-bit slots see it as floats. Slots that hold the user's elements are measured as they are; where the
 * query is integral and the elements are bytes, in integers and thus exactly.
 *
 * Rows come in runs of one block (edges are sorted, seeds are whole blocks), so |q - c|^2 is computed once per run.
 */
#include "index/search_priv.h"
#include <math.h>
#include <string.h>

static bool fits_u8(const float *q, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        if (!(q[i] >= 0 && q[i] <= 255 && q[i] == floorf(q[i])))
            return false;
    return true;
}

static bool fits_i8(const float *q, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        if (!(q[i] >= -128 && q[i] <= 127 && q[i] == floorf(q[i])))
            return false;
    return true;
}

/* Bytes of an integral query, in the slots' own type. */
static void set_integral(struct task *t)
{
    const struct segment_params *p = &t->segment->params;
    t->integral = false;
    if (p->metric != QUIRE_METRIC_L2)
        return;
    if (p->slot == QUIRE_SLOT_U8 && fits_u8(t->query, p->dim)) {
        for (uint32_t i = 0; i < p->dim; i++)
            t->query_u8[i] = (uint8_t)t->query[i];
        t->integral = true;
    } else if (p->slot == QUIRE_SLOT_I8 && fits_i8(t->query, p->dim)) {
        for (uint32_t i = 0; i < p->dim; i++)
            t->query_u8[i] = (uint8_t)(int8_t)t->query[i];
        t->integral = true;
    }
}

void task_set_query(struct task *t, const float *query)
{
    const struct segment *s = t->segment;
    const struct segment_params *p = &s->params;
    float sum = 0, scale = 1;
    space_query(&s->space, query, t->rotated, &t->query_norm2);
    code_query_set(&t->levels, t->rotated, p->code_dim);
    for (uint32_t i = 0; i < p->code_dim; i++)
        sum += t->rotated[i];
    t->rotated_sum = sum;
    if (p->metric == QUIRE_METRIC_COSINE)
        scale = 1 / sqrtf(t->query_norm2);
    for (uint32_t i = 0; i < p->dim; i++)
        t->query[i] = query[i] * scale;
    set_integral(t);
}

void task_score_centres(struct task *t, const uint32_t *blocks, uint32_t n, float *out)
{
    const struct segment *s = t->segment;
    const float half = code_half(CENTRE_BITS);
    int32_t dots[256];
    for (uint32_t at = 0; at < n; at += 256) {
        uint32_t m = n - at < 256 ? n - at : 256;
        kernels()->code_dot[kernels_code_index(CENTRE_BITS)](t->levels.levels, s->centre_codes, s->centre_bytes,
                                                             blocks + at, m, s->params.code_dim, dots);
        for (uint32_t i = 0; i < m; i++) {
            const float *factors = s->centre_factors + 3 * (size_t)blocks[at + i];
            float d = t->levels.norm2 + factors[1] - 2 * factors[0] * code_query_dot(&t->levels, dots[i], half);
            out[at + i] = d > 0 ? d : 0;
        }
    }
}

/* Notes the block of each run of rows in run_blocks, where it ends in run_ends, and |q - c|^2 in run_distances; returns
 * the number of runs. */
static uint32_t score_runs(struct task *t, uint32_t n)
{
    struct searcher *s = t->searcher;
    uint32_t per_block = t->segment->params.slots_per_block, runs = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t block = s->ids[i] / per_block, begin = block * per_block;
        while (i < n && s->ids[i] - begin < per_block)
            i++;
        s->run_blocks[runs] = block;
        s->run_ends[runs++] = i;
    }
    task_score_centres(t, s->run_blocks, runs, s->run_distances);
    return runs;
}

/* A and f of the rows of a run as floats; whole blocks lie together in memory, edges are gathered. */
static const float *run_factors(struct task *t, uint32_t begin, uint32_t end)
{
    struct searcher *s = t->searcher;
    const f16_t *all = t->segment->nav_factors, *from = all + 2 * (size_t)s->ids[begin];
    uint32_t n = end - begin;
    if (s->ids[end - 1] - s->ids[begin] != n - 1) {
        for (uint32_t i = 0; i < n; i++)
            memcpy(s->factor_halves + 2 * i, all + 2 * (size_t)s->ids[begin + i], 2 * sizeof(f16_t));
        from = s->factor_halves;
    }
    kernels()->f32_from_f16(from, s->factor_floats, 2 * (size_t)n);
    return s->factor_floats;
}

void task_score_rows(struct task *t, uint32_t n)
{
    struct searcher *s = t->searcher;
    const struct segment *g = t->segment;
    const float scale_a = g->scale_a, scale_f = 2 * g->scale_f * t->levels.step;
    const float middle = code_half(nav_bits[g->width]) * (float)t->levels.level_sum;
    kernels()->code_dot[g->width](t->levels.levels, g->nav_codes, g->nav_bytes, s->ids, n, g->params.code_dim, s->dots);
    uint32_t runs = score_runs(t, n), begin = 0;
    for (uint32_t r = 0; r < runs; r++) {
        const uint32_t end = s->run_ends[r];
        const float *restrict factors = run_factors(t, begin, end);
        const int32_t *restrict dots = s->dots + begin;
        float *restrict estimates = s->estimates + begin, *restrict sigmas = s->estimates + n + begin;
        const float centre = s->run_distances[r];
        const float sigma = g->sigma_factor * g->centre_factors[3 * (size_t)s->run_blocks[r] + 2] * sqrtf(centre);
        for (uint32_t i = 0; i < end - begin; i++) {
            estimates[i] = centre + scale_a * factors[2 * i] - scale_f * factors[2 * i + 1] * ((float)dots[i] - middle);
            sigmas[i] = sigma;
        }
        begin = end;
    }
}

static void score_q8(struct task *t, const struct block_view *view, float *out)
{
    const struct segment_params *p = &t->segment->params;
    segment_centre(t->segment, view->number, t->centre);
    float centre = kernels()->f32_l2(t->rotated, t->centre, p->code_dim);
    for (uint32_t i = 0; i < view->n_slots; i++) {
        float y = kernels()->f32_u8_dot(t->rotated, view->slots + (size_t)i * p->slot_bytes, p->code_dim);
        const uint8_t *factor = view->factors + 8 * (size_t)i;
        float d = centre + load_f32(factor) - 2 * load_f32(factor + 4) * (y - 127.5f * t->rotated_sum);
        out[i] = d > 0 ? d : 0;
    }
}

/* <q, x> or, under L2, |q - x|^2 of a raw slot. */
static float raw_product(const struct task *t, const uint8_t *slot)
{
    const struct kernels *k = kernels();
    const struct segment_params *p = &t->segment->params;
    bool l2 = p->metric == QUIRE_METRIC_L2;
    const float *q = t->query;
    switch ((enum quire_slot)p->slot) {
    case QUIRE_SLOT_F32:
        return (l2 ? k->f32_l2 : k->f32_dot)(q, (const float *)(const void *)slot, p->dim);
    case QUIRE_SLOT_F16:
        return (l2 ? k->f16_l2 : k->f16_dot)(q, (const f16_t *)(const void *)slot, p->dim);
    case QUIRE_SLOT_I8:
        if (t->integral)
            return (float)k->i8_l2((const int8_t *)t->query_u8, (const int8_t *)slot, p->dim);
        return (l2 ? k->f32_i8_l2 : k->f32_i8_dot)(q, (const int8_t *)slot, p->dim);
    default:
        if (t->integral)
            return (float)k->u8_l2(t->query_u8, slot, p->dim);
        return (l2 ? k->f32_u8_l2 : k->f32_u8_dot)(q, slot, p->dim);
    }
}

void task_score_slots(struct task *t, const struct block_view *view, float *out)
{
    const struct segment_params *p = &t->segment->params;
    if (p->slot == QUIRE_SLOT_Q8) {
        score_q8(t, view, out);
        return;
    }
    for (uint32_t i = 0; i < view->n_slots; i++) {
        float product = raw_product(t, view->slots + (size_t)i * p->slot_bytes);
        if (p->metric == QUIRE_METRIC_COSINE)
            out[i] = 2 - 2 * product * load_f32(view->factors + 4 * (size_t)i);
        else if (p->metric == QUIRE_METRIC_IP)
            out[i] = (float)((double)t->query_norm2 + p->norm2_max - 2.0 * product);
        else
            out[i] = product;
    }
}
