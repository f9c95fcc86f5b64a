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
#include "index/kernels/kernels.h"
#include "index/search/task.h"
#include "io/array.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <string.h>

#define DIMS_ALIGN 16u /* floats of a cache line */

int score_reserve(struct task *t)
{
    const struct segment_params *p = &t->segment->params;
    struct query *q = &t->query;
    struct scratch *s = &t->searcher->scratch;
    size_t dims = p->code_dim > p->dim + 1 ? p->code_dim : p->dim + 1;
    if (!array_reserve(&s->slot_distances, &s->slots_capacity, p->slots_per_block))
        return QUIRE_ENOMEM;
    if (dims <= q->dims_capacity)
        return 0;
    dims = (dims + DIMS_ALIGN - 1) / DIMS_ALIGN * DIMS_ALIGN;
    float *memory = memory_aligned(64, dims * (4 * sizeof(float) + 3));
    if (!memory)
        return QUIRE_ENOMEM;
    memory_free(q->user);
    q->user = memory;
    q->rotated = q->user + dims;
    q->centre = q->rotated + dims;
    q->unit.rotated = q->centre + dims;
    q->bytes = (uint8_t *)(void *)(q->unit.rotated + dims);
    q->levels.levels = (int8_t *)q->bytes + dims;
    q->unit.code = q->bytes + 2 * dims;
    q->dims_capacity = (uint32_t)dims;
    return 0;
}

/* Bytes of an integral query, in the slots' own type. */
static void set_integral(struct query *q, const struct segment_params *p)
{
    bool is_signed = p->slot == QUIRE_SLOT_I8;
    float least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    q->integral = p->metric == QUIRE_METRIC_L2 && (is_signed || p->slot == QUIRE_SLOT_U8);
    for (uint32_t i = 0; q->integral && i < p->dim; i++) {
        float x = q->user[i];
        q->integral = x >= least && x <= most && x == floorf(x);
        if (q->integral)
            q->bytes[i] = is_signed ? (uint8_t)(int8_t)x : (uint8_t)x;
    }
}

void score_set_query(struct task *t, const float *query)
{
    const struct segment *s = t->segment;
    const struct segment_params *p = &s->params;
    struct query *q = &t->query;
    assert(q->dims_capacity >= p->code_dim && q->dims_capacity > p->dim);
    if (p->unit_codes)
        unit_query_set(&q->unit, &s->space.rotation, query, p->dim);
    float apart = space_query(&s->space, query, q->rotated, &q->norm2);
    code_query_set(&q->levels, q->rotated, p->code_dim);
    q->levels.norm2 += apart;
    q->rotated_sum = 0;
    for (uint32_t i = 0; i < p->code_dim; i++)
        q->rotated_sum += q->rotated[i];
    if (p->metric == QUIRE_METRIC_COSINE)
        space_unit(query, p->dim, q->user);
    else
        memmove(q->user, query, sizeof(float) * p->dim);
    set_integral(q, p);
}

void score_centres(struct task *t, const struct entry_level *level, const uint32_t *nodes, uint32_t n, float *out)
{
    const struct segment *s = t->segment;
    const float half = code_half(CENTRE_BITS);
    int32_t dots[256];
    for (uint32_t at = 0; at < n; at += 256) {
        uint32_t m = n - at < 256 ? n - at : 256;
        kernels()->code_dot[kernels_code_index(CENTRE_BITS)](t->query.levels.levels, level->codes, s->entry.code_bytes,
                                                             nodes + at, m, s->params.code_dim, dots);
        for (uint32_t i = 0; i < m; i++) {
            const float *factors = level->factors + ENTRY_FACTORS * (size_t)nodes[at + i];
            float d =
                t->query.levels.norm2 + factors[1] - 2 * factors[0] * code_query_dot(&t->query.levels, dots[i], half);
            out[at + i] = d > 0 ? d : 0;
        }
    }
}

/* Cuts s->ids[0..n) into runs of one block each, with the centre's distance and the sigma of its estimates. */
static void find_runs(struct task *t, uint32_t n)
{
    struct scratch *s = &t->searcher->scratch;
    const struct segment *g = t->segment;
    uint32_t per_block = g->params.slots_per_block, runs = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t block = s->ids[i] / per_block, begin = block * per_block;
        while (i < n && s->ids[i] - begin < per_block)
            i++;
        s->run_blocks[runs] = block;
        s->runs[runs++].end = i;
    }
    score_centres(t, &g->centres, s->run_blocks, runs, s->run_distances);
    for (uint32_t r = 0; r < runs; r++) {
        s->runs[r].centre = s->run_distances[r];
        s->runs[r].sigma = g->sigma_factor * segment_block_rms(g, s->run_blocks[r]) * sqrtf(s->run_distances[r]);
    }
    s->n_runs = runs;
}

/* The scales of estimates by codes of width `width`, but for the base. */
static struct code_scales estimate_scales(const struct task *t, unsigned width)
{
    const struct segment_params *p = &t->segment->params;
    return (struct code_scales){.a = p->scale_a[width],
                                .f = 2 * p->scale_f[width] * t->query.levels.step,
                                .middle = code_half(nav_bits[width]) * (float)t->query.levels.level_sum};
}

/* s->estimates from s->dots and s->pairs, the factors of the rows, which have codes of width `width`. */
static void estimate_runs(struct task *t, unsigned width)
{
    struct scratch *s = &t->searcher->scratch;
    const f16_t *pairs = (const f16_t *)(const void *)s->pairs;
    struct code_scales scales = estimate_scales(t, width);
    for (uint32_t r = 0, begin = 0; r < s->n_runs; begin = s->runs[r++].end) {
        scales.base = s->runs[r].centre;
        kernels()->code_estimates(pairs + 2 * (size_t)begin, s->dots + begin, s->runs[r].end - begin, &scales,
                                  s->estimates + begin);
    }
}

void score_rows(struct task *t, uint32_t n)
{
    struct scratch *s = &t->searcher->scratch;
    const struct segment *g = t->segment;
    const uint32_t *factors = (const uint32_t *)(const void *)g->nav_factors; /* a pair of half floats each */
    /* factors take a cache line for each scattered row: ask for them now, they come while the codes are multiplied */
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(&factors[s->ids[i]]);
    kernels()->code_dot[g->width](t->query.levels.levels, g->nav_codes, g->nav_bytes, s->ids, n, g->params.code_dim,
                                  s->dots);
    find_runs(t, n);
    for (uint32_t i = 0; i < n; i++)
        s->pairs[i] = factors[s->ids[i]];
    estimate_runs(t, g->width);
}

void score_prefetch_block(const struct segment *g, uint32_t block)
{
    size_t first = (size_t)block * g->params.slots_per_block, n = format_block_rows(&g->params, block);
    for (size_t at = 0; at < n * g->nav_bytes; at += 64)
        __builtin_prefetch(g->nav_codes + first * g->nav_bytes + at, 0, 2);
    for (size_t at = 0; at < n; at += 16)
        __builtin_prefetch(g->nav_factors + 2 * (first + at), 0, 2);
}

uint32_t score_block_rows(struct task *t, uint32_t block, float centre, uint32_t at)
{
    struct scratch *s = &t->searcher->scratch;
    const struct segment *g = t->segment;
    const struct segment_params *p = &g->params;
    uint32_t first = block * p->slots_per_block, n = format_block_rows(p, block);
    struct code_scales scales = estimate_scales(t, g->width);
    scales.base = centre;
    for (uint32_t i = 0; i < n; i++)
        s->ids[at + i] = first + i;
    kernels()->code_dot[g->width](t->query.levels.levels, g->nav_codes, g->nav_bytes, s->ids + at, n, p->code_dim,
                                  s->dots);
    kernels()->code_estimates(g->nav_factors + 2 * (size_t)first, s->dots, n, &scales, s->estimates + at);
    s->n_runs = at ? s->n_runs : 0;
    s->runs[s->n_runs++] = (struct scored_run){
        .end = at + n, .centre = centre, .sigma = g->sigma_factor * segment_block_rms(g, block) * sqrtf(centre)};
    return at + n;
}

void score_edges(struct task *t, const struct block_view *view, uint32_t n)
{
    struct scratch *s = &t->searcher->scratch;
    const struct segment *g = t->segment;
    if (g->nav_codes) {
        score_rows(t, n);
        return;
    }
    uint32_t stride = g->params.edge_code_bytes, code_bytes = stride - EDGE_CODE_FACTOR_BYTES;
    kernels()->code_dot[EDGE_CODE_WIDTH](t->query.levels.levels, view->edge_codes, stride, s->picks, n,
                                         g->params.code_dim, s->dots);
    find_runs(t, n);
    for (uint32_t i = 0; i < n; i++)
        memcpy(&s->pairs[i], view->edge_codes + (size_t)s->picks[i] * stride + code_bytes, EDGE_CODE_FACTOR_BYTES);
    estimate_runs(t, EDGE_CODE_WIDTH);
}

void score_groups(struct task *t, const uint8_t *groups, const f16_t *factors, uint32_t n_groups, uint32_t skip,
                  uint32_t n, float centre, float rms)
{
    struct scratch *s = &t->searcher->scratch;
    const struct segment *g = t->segment;
    struct code_scales scales = estimate_scales(t, g->width);
    scales.base = centre;
    kernels()->group_dot[g->width](t->query.levels.levels, groups, g->lists->group_bytes, n_groups, g->params.code_dim,
                                   s->dots);
    kernels()->code_estimates(factors + 2 * (size_t)skip, s->dots + skip, n, &scales, s->estimates);
    s->runs[0] = (struct scored_run){.end = n, .centre = centre, .sigma = g->sigma_factor * rms * sqrtf(centre)};
    s->n_runs = 1;
}

static void score_unit_codes(const struct task *t, const struct block_view *view, float *out)
{
    const struct segment_params *p = &t->segment->params;
    for (uint32_t i = 0; i < view->n_slots; i++)
        out[i] = unit_query_distance(&t->query.unit, view->slots + (size_t)i * p->slot_bytes,
                                     bytes_load_f32(view->factors + (size_t)i * p->factor_bytes), p->code_dim);
}

static void score_q8(struct task *t, const struct block_view *view, float *out)
{
    const struct segment_params *p = &t->segment->params;
    segment_centre(t->segment, view->number, t->query.centre);
    float centre = kernels()->f32_l2(t->query.rotated, t->query.centre, p->code_dim);
    for (uint32_t i = 0; i < view->n_slots; i++) {
        float y = kernels()->f32_u8_dot(t->query.rotated, view->slots + (size_t)i * p->slot_bytes, p->code_dim);
        const uint8_t *factor = view->factors + 8 * (size_t)i;
        float a = bytes_load_f32(factor), f = bytes_load_f32(factor + 4);
        float d = centre + a - 2 * f * (y - 127.5f * t->query.rotated_sum);
        out[i] = format_is_zero_vector(p, a, f) ? 2 : d > 0 ? d : 0;
    }
}

/* <q, x> or, under L2, |q - x|^2 of a raw slot. */
static float raw_product(const struct task *t, const uint8_t *slot)
{
    const struct kernels *k = kernels();
    const struct segment_params *p = &t->segment->params;
    bool l2 = p->metric == QUIRE_METRIC_L2;
    const float *q = t->query.user;
    switch ((enum quire_slot)p->slot) {
    case QUIRE_SLOT_F32:
        return (l2 ? k->f32_l2 : k->f32_dot)(q, (const float *)(const void *)slot, p->dim);
    case QUIRE_SLOT_F16:
        return (l2 ? k->f16_l2 : k->f16_dot)(q, (const f16_t *)(const void *)slot, p->dim);
    case QUIRE_SLOT_BF16:
        return (l2 ? k->bf16_l2 : k->bf16_dot)(q, (const bf16_t *)(const void *)slot, p->dim);
    case QUIRE_SLOT_I8:
        if (t->query.integral)
            return (float)k->i8_l2((const int8_t *)t->query.bytes, (const int8_t *)slot, p->dim);
        return (l2 ? k->f32_i8_l2 : k->f32_i8_dot)(q, (const int8_t *)slot, p->dim);
    default:
        if (t->query.integral)
            return (float)k->u8_l2(t->query.bytes, slot, p->dim);
        return (l2 ? k->f32_u8_l2 : k->f32_u8_dot)(q, slot, p->dim);
    }
}

void score_slots(struct task *t, const struct block_view *view)
{
    const struct segment_params *p = &t->segment->params;
    float *out = t->searcher->scratch.slot_distances;
    assert(view->n_slots <= t->searcher->scratch.slots_capacity);
    if (p->slot == QUIRE_SLOT_Q8) {
        if (p->unit_codes)
            score_unit_codes(t, view, out);
        else
            score_q8(t, view, out);
        return;
    }
    for (uint32_t i = 0; i < view->n_slots; i++) {
        float product = raw_product(t, view->slots + (size_t)i * p->slot_bytes);
        if (p->metric == QUIRE_METRIC_COSINE)
            out[i] = 2 - 2 * product * bytes_load_f32(view->factors + 4 * (size_t)i);
        else if (p->metric == QUIRE_METRIC_IP)
            out[i] = space_work_distance(&t->segment->space, -product, t->query.norm2);
        else
            out[i] = product;
    }
}
