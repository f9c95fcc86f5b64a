/*
 * exact_name.c - which rows can be among the k nearest, from what a device says and how far it may be off.
 *
 * v is the device's number for a row, and w the distance that a search computes (score.h). Both come from the same
 * numbers (exact_rows.c) by sums in f32 whose rounding is bounded: a search's by (dim / 4 + 16) * 2^-24 of the sum of
 * the magnitudes of their terms, as its kernels have four partial sums or more, a device's by offload_float_error.
 * Brought to the scale of v, |w - v| <= relative * |v| + absolute, where lengths stand for what the bound asks of a
 * row: those of the longest row, kept when rows were brought to the device (struct exact_maxima).
 *
 * So the k rows of least v have w below some `limit`, and what has w below that has v below limit plus both errors: a
 * prefix of the device's list. If the list ends before that, nobody knows what comes behind it, and all rows are to be
 * searched. Some distances are cut off at 0 by a search (`clamp`): of those any order is possible.
 */
#include "index/exact/exact_priv.h"
#include "index/vector/space.h"
#include "io/array.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define UNIT         0x1p-24            /* half of what tells 1 from the next f32 */
#define BATCH_BYTES  ((size_t)64 << 20) /* of answers and queries */
#define LEVELS       (255 + 127.5)      /* what a level and the half that is taken off it are at most */
#define CALLS        8u                 /* runs of rows per part and QUERIES queries (docs/gpu.md) */
#define PREPARED     20u /* products per element that a thread could have done while it read and turned a row */
#define QUERIES      256u
#define LIST_MOST    4096u /* rows that are named by codes */
#define ENCODED      40u   /* the same for making a code, */
#define ENCODED_STEP 350u  /* of 4 and 2 bits, whose step is chosen among twelve */

/* ---- queries ----------------------------------------------------------------------------------------------------- */

struct scratch {
    struct unit_query unit;
    float *rotated;
    uint8_t *code;
};

/* Sums over a query's elements. */
struct query_sums {
    double length, magnitude, sum;
};

static struct query_sums sums_of(const float *q, uint32_t n)
{
    struct query_sums s = {0};
    for (uint32_t i = 0; i < n; i++) {
        s.length += (double)q[i] * (double)q[i];
        s.magnitude += fabs((double)q[i]);
        s.sum += (double)q[i];
    }
    s.length = sqrt(s.length);
    return s;
}

/* What the estimate of a row by an 8-bit code is off, 2 f (y - 127.5 sum); `sum` is rounded as a search has it. */
static double code_error(const struct exact_rows *r, const struct query_sums *s, double rounded_sum, double kernel)
{
    double dot = 255 * s->magnitude * kernel, sum = 127.5 * fabs(rounded_sum - s->sum);
    return 2 * r->maxima.factor * (dot + sum + 3 * UNIT * LEVELS * s->magnitude);
}

/* The query as the device wants it, r->dim floats, and the bound that holds for it. */
static struct exact_bound prepare(const struct exact_rows *r, const float *query, struct scratch *scratch, float *out)
{
    const struct segment *g = r->segment;
    const struct segment_params *p = &g->params;
    const struct exact_maxima *most = &r->maxima;
    double kernel = (r->dim / 4.0 + 16) * UNIT, device = offload_float_error(r->dim);
    double tiny = 4 * EXACT_LENGTH_MAX * offload_float_tiny(r->dim) + 1e-36, norm2_max = sqrt(g->space.norm2_max);
    struct exact_bound b = {.is_known = true, .clamp = -INFINITY};
    struct query_sums s;
    float norm2 = 0, rounded_sum = 0;
    switch (r->form) {
    case EXACT_L2:
    case EXACT_PRODUCT:
        memcpy(out, query, sizeof *out * p->dim);
        s = sums_of(out, p->dim);
        b.is_known = (s.length >= EXACT_LENGTH_MIN || s.length == 0) && s.length <= EXACT_LENGTH_MAX;
        b.relative = r->form == EXACT_L2 ? 1.01 * (kernel + device) + 4 * UNIT : 0;
        b.absolute = 2 * tiny;
        if (r->form == EXACT_PRODUCT) /* and w is rounded, which is of the size of M^2 (space.h) */
            b.absolute += s.length * ((kernel + device) * most->length + 2 * UNIT * (most->length + 1.25 * norm2_max));
        break;
    case EXACT_COSINE:
        space_unit(query, p->dim, out);
        b.absolute = 1.001 * (kernel + device) * most->length + 16 * UNIT + tiny;
        break;
    case EXACT_UNIT:
        unit_query_set(&scratch->unit, &g->space.rotation, query, p->dim);
        memcpy(out, scratch->rotated, sizeof *out * r->dim);
        s = sums_of(out, r->dim);
        b.absolute = code_error(r, &s, (double)scratch->unit.sum, kernel) / 2 + 4 * UNIT;
        b.absolute += device * s.length * most->length + 2 * UNIT + tiny;
        b.clamp = ((double)UNIT_QUERY_NEAR - 2) / 2;
        break;
    case EXACT_CENTRED:
        space_query(&g->space, query, out, &norm2);
        out[p->code_dim] = 1;
        s = sums_of(out, p->code_dim);
        for (uint32_t i = 0; i < p->code_dim; i++)
            rounded_sum += out[i];
        double apart = (s.length + most->centre) * (s.length + most->centre);
        double w = kernel * apart + code_error(r, &s, (double)rounded_sum, kernel) +
                   4 * UNIT * (apart + most->offset + 2 * most->factor * LEVELS * s.magnitude);
        double row = 2 * most->length + most->centre; /* each element of the row was rounded twice */
        b.is_known = s.length <= EXACT_LENGTH_MAX;
        b.absolute = w / 2 + device * (s.length * most->length + most->constant) +
                     UNIT * (s.length * row + most->constant) + tiny;
        b.clamp = -s.length * s.length / 2;
        break;
    }
    b.is_known = b.is_known && isfinite(b.absolute);
    return b;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* The rows that can be among the k nearest, of `near`, the n rows of least v in order; 0: any can. */
static uint32_t choose(const struct exact_rows *r, const struct exact_request *request, const struct exact_bound *b,
                       const struct offload_near *near, uint32_t n, uint32_t *rows)
{
    uint32_t living = 0, chosen = 0;
    double limit = -INFINITY;
    for (uint32_t i = 0; i < n && living < request->k; i++) {
        if (!isfinite(near[i].value))
            return 0;
        if (request->dead && bitmap_has_shared(request->dead, near[i].row))
            continue;
        living++;
        limit = exact_upper(b, near[i].value);
    }
    bool has_all = n == r->segment->params.rows;
    if (living < request->k || (!has_all && !(exact_lower(b, near[n - 1].value) > limit)))
        return 0;
    for (uint32_t i = 0; i < n && exact_lower(b, near[i].value) <= limit; i++)
        if (!request->dead || !bitmap_has_shared(request->dead, near[i].row))
            rows[chosen++] = near[i].row;
    array_sort_u32(rows, chosen);
    return chosen;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

struct batch {
    struct exact_rows *rows;
    uint32_t n, most;
    float *queries;
    struct offload_near *near, *found, *spare; /* n x most; n x most; most */
    /* of codes */
    struct exact_bound *bounds;
    struct exact_coded_query *coded;
    struct offload_coded *packed; /* as the device wants them */
    int8_t *levels;               /* n x coded_dim */
    float *rest;                  /* coded_dim */
};

/* Adds what a part has to what the parts before it had. */
static int search_part(struct batch *b, uint32_t part, uint32_t kept, struct quire_error *err)
{
    struct exact_rows *r = b->rows;
    uint32_t rows = exact_part_rows(r, part), k = rows < b->most ? rows : b->most;
    struct offload_nearest request = {.measure = r->form == EXACT_L2 ? OFFLOAD_L2 : OFFLOAD_DOT,
                                      .n_queries = b->n,
                                      .k = k,
                                      .queries = b->queries,
                                      .out = b->found};
    if (r->bits > 0) {
        assert(b->coded && b->packed && b->levels && b->rest);
        request.measure = OFFLOAD_LEAST;
        request.queries = b->levels;
        request.coded = b->packed;
        for (uint32_t q = 0; q < b->n; q++) { /* the mean is known from the first part on */
            exact_codes_query(r, b->queries + (size_t)q * r->dim, b->rest, b->levels + (size_t)q * r->coded_dim,
                              &b->coded[q]);
            b->packed[q] = b->coded[q].coded;
        }
    }
    int rc = offload_nearest(r->offload, r->parts[part], &request, err);
    for (uint32_t q = 0; rc == 0 && q < b->n; q++) {
        struct offload_near *found = b->found + (size_t)q * k;
        for (uint32_t i = 0; i < k; i++)
            found[i].row += exact_part_first(r, part);
        offload_merge(b->near + (size_t)q * b->most, kept, found, k, b->most, b->spare);
    }
    return rc;
}

/* All parts; from the beginning where they had to be made smaller. */
static int search_parts(struct batch *b, struct quire_error *err)
{
    struct exact_rows *r = b->rows;
    uint64_t seen = 0;
    int rc = 0;
    for (uint32_t part = 0; rc == 0 && part < r->n_parts;) {
        uint32_t n_parts = r->n_parts;
        rc = exact_need_part(r, part, err);
        if (rc == 0)
            rc = search_part(b, part, seen < b->most ? (uint32_t)seen : b->most, err);
        if (rc == QUIRE_ENOMEM && exact_make_room(r, part)) {
            bool same = r->n_parts == n_parts;
            part = same ? part : 0;
            seen = same ? seen : 0;
            rc = 0;
            continue;
        }
        seen += rc == 0 ? exact_part_rows(r, part) : 0;
        part++;
    }
    assert(rc < 0 || seen == r->segment->params.rows);
    return rc;
}

/* By codes: what all of them are like is known by now. */
static int name_by_codes(struct batch *b, const struct exact_request *request, uint32_t first, struct scratch *scratch,
                         struct quire_error *err)
{
    struct exact_rows *r = b->rows;
    assert(r->bits > 0 && b->bounds && b->coded && b->levels && b->rest);
    const struct exact_coded_batch coded = {b->n, b->most, b->queries, b->coded, b->near};
    for (uint32_t q = 0; q < b->n; q++) {
        float *query = b->queries + (size_t)q * r->dim;
        b->bounds[q] = prepare(r, request->queries[first + q], scratch, query);
        exact_codes_query(r, query, b->rest, b->levels + (size_t)q * r->coded_dim, &b->coded[q]);
    }
    return exact_codes_answer(r, request, first, &coded, b->bounds, err);
}

static int name_batch(struct batch *b, const struct exact_request *request, uint32_t first, struct scratch *scratch,
                      struct quire_error *err)
{
    struct exact_rows *r = b->rows;
    for (uint32_t q = 0; q < b->n; q++)
        prepare(r, request->queries[first + q], scratch, b->queries + (size_t)q * r->dim);
    int rc = search_parts(b, err);
    if (rc == 0 && r->bits > 0)
        return name_by_codes(b, request, first, scratch, err);
    for (uint32_t q = 0; rc == 0 && q < b->n; q++) {
        /* what the longest row is like is known by now */
        struct exact_bound bound = prepare(r, request->queries[first + q], scratch, b->queries + (size_t)q * r->dim);
        uint32_t *rows = request->rows + ((size_t)first + q) * b->most;
        request->counts[first + q] =
            bound.is_known ? choose(r, request, &bound, b->near + (size_t)q * b->most, b->most, rows) : 0;
    }
    return rc;
}

static void batch_fini(struct batch *b)
{
    free(b->queries);
    free(b->near);
    free(b->found);
    free(b->spare);
    array_free_all(b->bounds, b->coded, b->packed, b->levels, b->rest);
}

static int batch_init(struct batch *b, const struct exact_request *request, uint32_t *step)
{
    size_t answer = request->most * sizeof *b->near, each = 2 * answer + b->rows->dim * sizeof(float);
    size_t most = BATCH_BYTES / each + 1;
    *step = most < request->n ? (uint32_t)most : request->n;
    b->most = request->most;
    b->queries = malloc(memory_size_mul(*step, b->rows->dim * sizeof *b->queries));
    b->near = calloc(*step, answer);
    b->found = malloc(memory_size_mul(*step, answer));
    b->spare = malloc(answer);
    if (b->rows->bits > 0) {
        b->bounds = malloc(memory_size_mul(*step, sizeof *b->bounds));
        b->coded = malloc(memory_size_mul(*step, sizeof *b->coded));
        b->packed = malloc(memory_size_mul(*step, sizeof *b->packed));
        b->levels = malloc(memory_size_mul(*step, b->rows->coded_dim));
        b->rest = malloc(sizeof *b->rest * b->rows->coded_dim);
        if (!b->bounds || !b->coded || !b->packed || !b->levels || !b->rest)
            return QUIRE_ENOMEM;
    }
    return b->queries && b->near && b->found && b->spare ? 0 : QUIRE_ENOMEM;
}

uint32_t exact_most(const struct exact_rows *r, uint32_t k, uint64_t n_dead)
{
    uint64_t rows = r->segment->params.rows, most = k + k / 8 + 16, max = offload_nearest_max(r->offload);
    assert(k > 0);
    if (r->bits > 0) { /* exact_codes.c says how many rows they name */
        uint64_t list = LIST_MOST > k ? LIST_MOST : k;
        most = r->bits == 8 ? 4 * most : r->bits == 4 ? 64 * most : list;
        max = max < list ? max : list;
    }
    if (n_dead > 0 && n_dead < rows)
        most = most * rows / (rows - n_dead) + 8;
    most = most < max ? most : max;
    return (uint32_t)(most < rows ? most : rows);
}

int exact_name(struct exact_rows *r, const struct exact_request *request, struct quire_error *err)
{
    struct batch b = {.rows = r};
    struct scratch scratch = {0};
    uint32_t step = 0, code_dim = r->segment->params.code_dim;
    assert(request->n > 0 && request->most == exact_most(r, request->k, request->n_dead));
    if (request->k > request->most)
        return error_set(err, QUIRE_EUNSUPPORTED, "%u neighbours of %llu rows: a device names %u at most", request->k,
                         (unsigned long long)r->segment->params.rows, request->most);
    scratch.rotated = malloc(sizeof *scratch.rotated * (code_dim > r->dim ? code_dim : r->dim));
    scratch.code = malloc(code_dim);
    scratch.unit = (struct unit_query){.rotated = scratch.rotated, .code = scratch.code};
    int rc = batch_init(&b, request, &step);
    if (rc < 0 || !scratch.rotated || !scratch.code)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for what a device names of %u queries", request->n);
    for (uint32_t first = 0; rc == 0 && first < request->n; first += b.n) {
        b.n = request->n - first < step ? request->n - first : step;
        rc = name_batch(&b, request, first, &scratch, err);
    }
    batch_fini(&b);
    free(scratch.rotated);
    free(scratch.code);
    return rc;
}

void exact_work(const struct segment *segment, unsigned bits, uint32_t n, struct offload_work *search,
                struct offload_work *load)
{
    uint64_t bytes = exact_bytes(segment, bits), elements = segment->params.rows * segment->params.dim;
    uint64_t batches = ((uint64_t)n + QUERIES - 1) / QUERIES, prepared = PREPARED;
    if (bits > 0)
        prepared += bits == 4 || bits == 2 ? ENCODED_STEP : ENCODED;
    *search = (struct offload_work){.kind = OFFLOAD_FLOATS,
                                    .products = elements * n,
                                    .bytes = (uint64_t)n * segment->params.dim * sizeof(float),
                                    .calls = batches * CALLS};
    *load = (struct offload_work){.kind = OFFLOAD_FLOATS, .bytes = bytes, .calls = 1, .prepared = elements * prepared};
}
