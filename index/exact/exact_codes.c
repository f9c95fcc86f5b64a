/*
 * exact_codes.c - codes of 8, 4, 2 or 1 bits in the place of rows, where a device has not the room for the rows.
 *
 * A row x, in the space in which its distance is that of two points (below), lies within e of its code: of m + f y,
 * where m is the mean of some rows and y the code's levels. So |q - x| is at least |q - m - f y| - e, which the device
 * computes from whole numbers, and the rows of which this is least come back. Distances themselves are not known from
 * codes. The nearest rows of the list are read here and measured: the k-th of their distances bounds what can be among
 * the k nearest, and the rows whose least distance is beyond it cannot be. As with rows, a list that ends before that
 * says nothing.
 *
 * The bound is a certain one and no estimate of an error, which makes it wide: e is .008 of |x - m| with 8 bits, .12
 * with 4, .39 with 2 and .68 with 1 (SIFT). 8 bits name hardly more than rows do, 4 bits some tens of rows per
 * neighbour. 2 bits and 1 serve queries whose neighbours are much nearer than all other rows are: near duplicates.
 *
 * What v (exact_name.c) is by the squared distance s of two points:
 *   L2                   s
 *   cosine, unit codes   -<q, x> = (s - |q|^2 + h) / 2 with h = -|x|^2, which is nearly the same for all rows
 *   codes about a centre the same with h = |c|^2 + a - |x|^2, which is small
 * Inner products are no distances, and stay with rows.
 */
#include "index/exact/exact_priv.h"
#include "index/kernels/kernels.h"
#include "index/vector/codes.h"
#include "io/array.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define SAMPLE_BLOCKS 64u     /* of whose rows the mean is taken */
#define ROUNDED       0x1p-22 /* of a row's or query's elements in this space */
#define SLACK         0x1p-20 /* of squares of lengths */

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* A row as the device would have it -> as a point. Returns h. */
static double to_point(const struct exact_rows *r, const uint8_t *row, float factor, float *point, double *norm2)
{
    if (r->element == OFFLOAD_F32)
        memcpy(point, row, sizeof *point * r->space_dim);
    else
        kernels()->f32_from_f16((const f16_t *)(const void *)row, point, r->space_dim);
    *norm2 = 0;
    for (uint32_t i = 0; i < r->space_dim; i++) {
        point[i] *= factor;
        *norm2 += (double)point[i] * (double)point[i];
    }
    if (r->form == EXACT_CENTRED) /* its last element is -(|c|^2 + a) / 2 */
        return -2 * (double)((const float *)(const void *)row)[r->space_dim] - *norm2;
    return r->form == EXACT_L2 ? 0 : -*norm2;
}

static double level_of(const uint8_t *code, uint32_t i, unsigned bits)
{
    unsigned byte = code[i * bits / 8];
    return byte >> i * bits % 8 & ((1u << bits) - 1);
}

void exact_codes_put(struct exact_rows *r, const struct exact_code_room *room, const uint8_t *row, float factor,
                     uint8_t *code, struct offload_estimate *estimate)
{
    struct exact_maxima *most = &r->maxima;
    unsigned bits = r->bits;
    double norm2, h = to_point(r, row, factor, room->point, &norm2), half = (double)code_half(bits), ry = 0, yy = 0;
    double apart = 0;
    assert(bits > 0 && r->mean && r->space_dim <= r->coded_dim);
    memset(room->rest, 0, sizeof *room->rest * r->coded_dim);
    for (uint32_t i = 0; i < r->space_dim; i++)
        room->rest[i] = room->point[i] - r->mean[i];
    code_encode(room->rest, r->coded_dim, bits, code, NULL, NULL);
    for (uint32_t i = 0; i < r->space_dim; i++) {
        double y = level_of(code, i, bits) - half;
        ry += (double)room->rest[i] * y;
        yy += y * y;
    }
    estimate->step = (float)(yy > 0 ? ry / yy : 0);
    for (uint32_t i = 0; i < r->space_dim; i++) {
        double y = level_of(code, i, bits) - half;
        double d = (double)room->point[i] - (double)r->mean[i] - (double)estimate->step * y;
        apart += d * d;
    }
    double error = sqrt(apart) * (1 + SLACK) + ROUNDED * (sqrt(norm2) + r->mean_length);
    estimate->norm2 = (float)((double)estimate->step * (double)estimate->step * yy);
    estimate->error = nextafterf((float)error, FLT_MAX);
    most->error = fmax(most->error, (double)estimate->error);
    most->coded_norm2 = fmax(most->coded_norm2, (double)estimate->norm2);
    most->point = fmax(most->point, sqrt(norm2));
    most->h_least = fmin(most->h_least, h);
    most->h_most = fmax(most->h_most, h);
}

/* The mean of the rows of some blocks, which lie evenly among all. */
int exact_codes_mean(struct exact_rows *r, struct quire_error *err)
{
    const struct segment_params *p = &r->segment->params;
    uint32_t step = p->n_blocks / SAMPLE_BLOCKS + 1, n = 0;
    double *sums = calloc(r->space_dim, sizeof *sums), norm2;
    float *mean = malloc(sizeof *mean * r->space_dim), *point = malloc(sizeof *point * r->space_dim);
    struct exact_reader *reader = exact_reader_open(r, err);
    assert(!r->mean);
    int rc = sums && mean && point ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the mean of rows");
    rc = reader ? rc : QUIRE_ENOMEM;
    for (uint32_t block = 0; rc == 0 && block < p->n_blocks; block += step)
        for (uint32_t slot = 0; rc == 0 && slot < format_block_rows(p, block); slot++) {
            float factor;
            const uint8_t *row;
            rc = exact_reader_row(reader, block * p->slots_per_block + slot, &row, &factor);
            if (rc < 0)
                break;
            to_point(r, row, factor, point, &norm2);
            for (uint32_t i = 0; i < r->space_dim; i++)
                sums[i] += (double)point[i];
            n++;
        }
    r->mean_length = 0;
    for (uint32_t i = 0; rc == 0 && i < r->space_dim; i++) {
        mean[i] = (float)(sums[i] / n);
        r->mean_length += (double)mean[i] * (double)mean[i];
    }
    r->mean_length = sqrt(r->mean_length);
    if (rc == 0) {
        r->mean = mean;
        mean = NULL;
    }
    exact_reader_close(reader);
    array_free_all(sums, mean, point);
    return rc;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

void exact_codes_query(const struct exact_rows *r, const float *query, float *rest, int8_t *levels,
                       struct exact_coded_query *out)
{
    struct code_query code = {.levels = levels};
    double norm2 = 0, apart = 0, squares = 0;
    assert(r->mean && r->space_dim <= r->dim);
    memset(rest, 0, sizeof *rest * r->coded_dim);
    for (uint32_t i = 0; i < r->space_dim; i++) {
        rest[i] = query[i] - r->mean[i];
        norm2 += (double)query[i] * (double)query[i];
    }
    code_query_set(&code, rest, r->coded_dim);
    for (uint32_t i = 0; i < r->space_dim; i++) {
        double d = (double)query[i] - (double)r->mean[i] - (double)code.step * levels[i];
        apart += d * d;
        squares += (double)levels[i] * levels[i];
    }
    double coded = (double)code.step * (double)code.step * squares;
    out->coded = (struct offload_coded){.norm2 = (float)coded, .step = code.step, .level_sum = code.level_sum};
    out->norm2 = norm2;
    out->apart = sqrt(apart) * (1 + SLACK) + ROUNDED * (sqrt(norm2) + r->mean_length);
    out->apart += offload_least_error(coded + r->maxima.coded_norm2, r->maxima.error);
}

/* v of rows that are not nearer, and of a row that is measured, not farther, with all that was rounded. */
static double v_of(const struct exact_rows *r, const struct exact_coded_query *q, double distance, double h, int sign)
{
    double squared = distance > 0 ? distance * distance : 0;
    double slack = SLACK * (squared + q->norm2 + r->maxima.point * r->maxima.point + 2 * r->maxima.constant);
    return (r->form == EXACT_L2 ? squared : (squared - q->norm2 + h) / 2) + sign * slack;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* A row of a query's list that is measured. */
struct measured {
    uint32_t row, query;
    double v; /* at most */
};

static int by_row(const void *a, const void *b)
{
    const struct measured *x = a, *y = b;
    return (x->row > y->row) - (x->row < y->row);
}

static int by_query(const void *a, const void *b)
{
    const struct measured *x = a, *y = b;
    return x->query != y->query ? (x->query > y->query) - (x->query < y->query) : (x->v > y->v) - (x->v < y->v);
}

/* Reads rows in their order, so that each block is read once, and measures each against its query. */
static int measure(struct exact_rows *r, const struct exact_coded_batch *b, struct measured *list, size_t n,
                   struct quire_error *err)
{
    float *point = malloc(sizeof *point * r->space_dim);
    struct exact_reader *reader = exact_reader_open(r, err);
    int rc = reader ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && !point)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a row");
    qsort(list, n, sizeof *list, by_row);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const float *query = b->queries + (size_t)list[i].query * r->dim;
        const uint8_t *row;
        float factor;
        double norm2, sum = 0;
        rc = exact_reader_row(reader, list[i].row, &row, &factor);
        if (rc < 0)
            break;
        double h = to_point(r, row, factor, point, &norm2);
        for (uint32_t d = 0; d < r->space_dim; d++) {
            double apart = (double)query[d] - (double)point[d];
            sum += apart * apart;
        }
        list[i].v = v_of(r, &b->coded[list[i].query], sqrt(sum) * (1 + SLACK) + ROUNDED * sqrt(norm2), h, 1);
    }
    qsort(list, n, sizeof *list, by_query);
    exact_reader_close(reader);
    free(point);
    return rc;
}

static bool is_dead(const struct exact_request *request, uint32_t row)
{
    return request->dead && bitmap_has_shared(request->dead, row);
}

/* The rows that can be among the k nearest: v of k rows is at most `limit`. 0: any can. */
static uint32_t choose(const struct exact_rows *r, const struct exact_request *request,
                       const struct exact_coded_batch *b, uint32_t q, const struct exact_bound *bound, double limit,
                       uint32_t *rows)
{
    const struct offload_near *near = b->near + (size_t)q * b->most;
    const struct exact_coded_query *query = &b->coded[q];
    bool has_all = b->most == r->segment->params.rows;
    uint32_t chosen = 0, i = 0;
    limit = exact_upper(bound, limit);
    for (; i < b->most; i++) {
        if (!isfinite(near[i].value))
            return 0;
        if (exact_lower(bound, v_of(r, query, near[i].value - query->apart, r->maxima.h_least, -1)) > limit)
            break;
        if (!is_dead(request, near[i].row))
            rows[chosen++] = near[i].row;
    }
    if (i == b->most && !has_all)
        return 0;
    array_sort_u32(rows, chosen);
    return chosen;
}

int exact_codes_answer(struct exact_rows *r, const struct exact_request *request, uint32_t first,
                       const struct exact_coded_batch *b, const struct exact_bound *bounds, struct quire_error *err)
{
    uint32_t wanted = 2 * request->k + 16;
    size_t n = 0, at = 0;
    struct measured *list = malloc(memory_size_mul(memory_size_mul(b->n, wanted), sizeof *list));
    if (!list)
        return error_set(err, QUIRE_ENOMEM, "no memory for rows that are measured");
    for (uint32_t q = 0; q < b->n; q++)
        for (uint32_t i = 0, taken = 0; i < b->most && taken < wanted; i++) {
            const struct offload_near *near = &b->near[(size_t)q * b->most + i];
            if (bounds[q].is_known && !is_dead(request, near->row)) {
                list[n++] = (struct measured){near->row, q, 0};
                taken++;
            }
        }
    int rc = measure(r, b, list, n, err);
    assert(n <= (size_t)b->n * wanted);
    for (uint32_t q = 0; rc == 0 && q < b->n; q++) {
        size_t begin = at;
        while (at < n && list[at].query == q)
            at++;
        request->counts[first + q] = at - begin < request->k
                                         ? 0
                                         : choose(r, request, b, q, &bounds[q], list[begin + request->k - 1].v,
                                                  request->rows + ((size_t)first + q) * b->most);
    }
    assert(rc < 0 || at == n);
    free(list);
    return rc;
}
