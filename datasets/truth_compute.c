/*
 * truth_compute.c - exact nearest neighbours by brute force.
 *
 * Queries are taken a few at a time and the base in blocks that stay in the second-level cache, so that a block read
 * from memory serves all of those queries. u8 against u8 and i8 against i8 are compared in whole numbers, which are
 * exact. Everything else is compared by kernels that round, so their order is taken as a first guess only: some more
 * rows than k are kept, their distances are computed again in double, and the guess counts as confirmed when no row
 * outside can reach the k-th distance within the kernels' error bound. Where ties or near-ties leave that open, the
 * query runs a second time and every row within the bound is compared in double. So the answer is a function of the
 * input alone, not of the processor: it is ordered by (distance before it is rounded to f32, row).
 *
 * A device (index/offload) may take the place of the kernels. Its whole numbers are theirs; its floats are a first
 * guess like theirs, within a bound that is somewhat wider, and all that follows is the same. So is the answer. Vectors
 * whose lengths are extreme are not given to a device, since it may count the smallest floats as zero. When a device
 * fails, all is done on the processor.
 *
 * The bound: a sum of dim products in at least 4 partial sums has a relative error below (dim / 4 + 16) * 2^-24 of the
 * sum of magnitudes, which is the distance itself for L2 and at most |q| |x| for inner products.
 */
#include "datasets/vecfile.h"
#include "index/kernels/kernels.h"
#include "index/offload/offload.h"
#include "index/vector/parallel.h"
#include "index/vector/space.h"
#include "io/error.h"
#include "io/heap.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 131072u /* of the base */
#define QUERIES_MAX 16u     /* that share a block */
#define NORM_ROWS   4096u
#define NORM2_MAX   1e37  /* as in an index: beyond it, a squared distance may not fit f32 */
#define TINY        1e-37 /* covers what f32 sums lose below its normal range */
#define LENGTH_MIN  1e-6  /* of vectors for a device: products of such, and what it may lose below the normal range, */
#define LENGTH_MAX  1e6   /* are far from each other; zero vectors are fine */
#define GUESS_BYTES ((size_t)64 << 20)

struct near {
    double distance;
    uint32_t id;
};

/* The nearest rows seen so far, the worst of them first. */
struct nearest {
    struct near *heap;
    uint32_t n, capacity;
};

struct scan {
    const struct vectors *base, *queries;
    const struct kernels *kernels;
    enum quire_metric metric;
    bool whole;       /* both of the same integer type: compared in whole numbers */
    uint32_t k, keep; /* keep: rows of the first guess */
    size_t row_bytes;
    uint64_t block_rows;
    double *base_norms, *query_norms; /* lengths */
    double norm_max;                  /* of the base */
    double error, tiny;               /* bounds on a kernel's or device's error: relative, and what is added to that */
    const struct offload_near *guess; /* of a device, `keep` per query from first_query on; NULL: kernels */
    uint64_t first_query;             /* of the range that threads share, and of guess */
    struct truth *truth;
};

/* What one thread needs for up to QUERIES_MAX queries. */
struct scratch {
    float *queries; /* as floats, where not whole */
    float *row;
    struct nearest nearest[QUERIES_MAX];
    struct near *exact; /* space for k, second run */
};

/* ---- nearest rows ------------------------------------------------------------------------------------------------ */

static inline bool farther(const struct near *a, const struct near *b)
{
    return a->distance > b->distance || (a->distance == b->distance && a->id > b->id);
}

HEAP_DEFINE(farthest, struct near, farther, HEAP_PLACE_UNKNOWN)

static void nearest_add(struct nearest *nearest, double distance, uint32_t id)
{
    nearest->n = (uint32_t)farthest_offer(nearest->heap, nearest->n, nearest->capacity, (struct near){distance, id});
}

static int compare_near(const void *a, const void *b)
{
    return farther(a, b) ? 1 : -1; /* ids differ, so no two are equal */
}

/* ---- one pair ---------------------------------------------------------------------------------------------------- */

static const void *row_of(const struct vectors *v, uint64_t row)
{
    return (const uint8_t *)v->data + row * v->dim * quire_type_bytes(v->type);
}

/* Squared L2 or inner product, q as floats or (whole) as stored. */
static double kernel_l2(const struct scan *s, const void *q, const void *x)
{
    switch (s->base->type) {
    case QUIRE_TYPE_F16:
        return (double)s->kernels->f16_l2(q, x, s->base->dim);
    case QUIRE_TYPE_BF16:
        return (double)s->kernels->bf16_l2(q, x, s->base->dim);
    case QUIRE_TYPE_I8:
        return s->whole ? s->kernels->i8_l2(q, x, s->base->dim) : (double)s->kernels->f32_i8_l2(q, x, s->base->dim);
    case QUIRE_TYPE_U8:
        return s->whole ? s->kernels->u8_l2(q, x, s->base->dim) : (double)s->kernels->f32_u8_l2(q, x, s->base->dim);
    case QUIRE_TYPE_F32:
        break;
    }
    return (double)s->kernels->f32_l2(q, x, s->base->dim);
}

static double kernel_dot(const struct scan *s, const void *q, const void *x)
{
    switch (s->base->type) {
    case QUIRE_TYPE_F16:
        return (double)s->kernels->f16_dot(q, x, s->base->dim);
    case QUIRE_TYPE_BF16:
        return (double)s->kernels->bf16_dot(q, x, s->base->dim);
    case QUIRE_TYPE_I8:
        return s->whole ? s->kernels->i8_dot(q, x, s->base->dim) : (double)s->kernels->f32_i8_dot(q, x, s->base->dim);
    case QUIRE_TYPE_U8:
        return s->whole ? s->kernels->u8_dot(q, x, s->base->dim) : (double)s->kernels->f32_u8_dot(q, x, s->base->dim);
    case QUIRE_TYPE_F32:
        break;
    }
    return (double)s->kernels->f32_dot(q, x, s->base->dim);
}

static double from_dot(const struct scan *s, double dot, uint64_t query, uint64_t row)
{
    return s->metric == QUIRE_METRIC_IP ? -dot : 1 - dot / (s->query_norms[query] * s->base_norms[row]);
}

static double distance_kernel(const struct scan *s, const void *q, uint64_t query, uint64_t row)
{
    const void *x = (const uint8_t *)s->base->data + row * s->row_bytes;
    return s->metric == QUIRE_METRIC_L2 ? kernel_l2(s, q, x) : from_dot(s, kernel_dot(s, q, x), query, row);
}

/* In double, in one fixed order. */
static double distance_exact(const struct scan *s, const float *q, float *x, uint64_t query, uint64_t row)
{
    double sum = 0;
    uint32_t dim = s->base->dim;
    space_floats(s->base->type, row_of(s->base, row), dim, x);
    if (s->metric != QUIRE_METRIC_L2) {
        for (uint32_t d = 0; d < dim; d++)
            sum += (double)q[d] * (double)x[d];
        return from_dot(s, sum, query, row);
    }
    for (uint32_t d = 0; d < dim; d++) {
        double difference = (double)q[d] - (double)x[d];
        sum += difference * difference;
    }
    return sum;
}

/* How far a kernel's answer may be from a true distance of at most `distance`. */
static double error_of(const struct scan *s, uint64_t query, double distance)
{
    switch (s->metric) {
    case QUIRE_METRIC_IP:
        return s->error * s->query_norms[query] * s->norm_max + s->tiny;
    case QUIRE_METRIC_COSINE:
        return s->error + s->tiny;
    case QUIRE_METRIC_L2:
        break;
    }
    return s->error * distance + s->tiny;
}

/* ---- some queries against all rows ------------------------------------------------------------------------------- */

static void scan_blocks(const struct scan *s, const void *const *q, uint64_t first, uint64_t n, struct scratch *scratch)
{
    uint64_t rows = s->base->rows;
    for (uint64_t begin = 0; begin < rows; begin += s->block_rows) {
        uint64_t end = rows - begin < s->block_rows ? rows : begin + s->block_rows;
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t row = begin; row < end; row++)
                /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): q has n entries */
                nearest_add(&scratch->nearest[i], distance_kernel(s, q[i], first + i, row), (uint32_t)row);
    }
}

/* All rows that the kernels cannot tell from the k nearest, compared in double. limit: kernel distance of the last. */
static void scan_again(const struct scan *s, const float *q, uint64_t query, double limit, struct nearest *nearest,
                       struct scratch *scratch)
{
    struct nearest exact = {scratch->exact, 0, s->k};
    for (uint64_t row = 0; row < s->base->rows; row++)
        if (distance_kernel(s, q, query, row) <= limit)
            nearest_add(&exact, distance_exact(s, q, scratch->row, query, row), (uint32_t)row);
    assert(exact.n == s->k); /* the k that `limit` came from are among them */
    memcpy(nearest->heap, exact.heap, s->k * sizeof *exact.heap);
    nearest->n = s->k;
}

/* Turns the kernels' guess into the answer. */
static void refine(const struct scan *s, const float *q, uint64_t query, struct nearest *nearest,
                   struct scratch *scratch)
{
    /* the worst stands first in a heap */
    double outside = nearest->n < s->base->rows ? nearest->heap[0].distance : INFINITY;
    for (uint32_t i = 0; i < nearest->n; i++)
        nearest->heap[i].distance = distance_exact(s, q, scratch->row, query, nearest->heap[i].id);
    qsort(nearest->heap, nearest->n, sizeof *nearest->heap, compare_near);
    double last = nearest->heap[s->k - 1].distance;
    double limit = last + error_of(s, query, last);
    if (outside > limit)
        return;
    scan_again(s, q, query, limit, nearest, scratch);
    qsort(nearest->heap, nearest->n, sizeof *nearest->heap, compare_near);
}

static void write_answer(const struct scan *s, uint64_t query, const struct nearest *nearest)
{
    for (uint32_t i = 0; i < s->k; i++) {
        s->truth->ids[query * s->k + i] = nearest->heap[i].id;
        s->truth->distances[query * s->k + i] = (float)nearest->heap[i].distance;
    }
}

static int scratch_init(const struct scan *s, struct scratch *scratch)
{
    *scratch = (struct scratch){0};
    scratch->queries = malloc((size_t)QUERIES_MAX * s->base->dim * sizeof(float));
    scratch->row = malloc(s->base->dim * sizeof(float));
    scratch->exact = malloc(s->k * sizeof *scratch->exact);
    bool ok = scratch->queries && scratch->row && scratch->exact;
    for (unsigned i = 0; i < QUERIES_MAX; i++) {
        scratch->nearest[i] = (struct nearest){malloc(s->keep * sizeof(struct near)), 0, s->keep};
        ok = ok && scratch->nearest[i].heap;
    }
    return ok ? 0 : QUIRE_ENOMEM;
}

static void scratch_fini(struct scratch *scratch)
{
    free(scratch->queries);
    free(scratch->row);
    free(scratch->exact);
    for (unsigned i = 0; i < QUERIES_MAX; i++)
        free(scratch->nearest[i].heap);
}

/* What a device has found, the worst of it first. */
static void take_guess(const struct scan *s, uint64_t query, struct nearest *nearest)
{
    const struct offload_near *guess = s->guess + (query - s->first_query) * s->keep;
    for (uint32_t i = 0; i < s->keep; i++) {
        double value = guess[s->keep - 1 - i].value;
        if (s->metric == QUIRE_METRIC_COSINE) /* the rows' lengths are in it already */
            value = 1 + value / s->query_norms[query];
        nearest->heap[i] = (struct near){value, guess[s->keep - 1 - i].row};
    }
    nearest->n = s->keep;
}

static int scan_queries(void *context, uint64_t begin, uint64_t end)
{
    const struct scan *s = context;
    const void *q[QUERIES_MAX];
    struct scratch scratch;
    int rc = scratch_init(s, &scratch);
    begin += s->first_query;
    end += s->first_query;
    for (uint64_t i = begin; rc == 0 && i < end; i++) {
        float *floats = scratch.queries + (i - begin) * s->base->dim;
        q[i - begin] = s->whole ? row_of(s->queries, i) : floats;
        if (!s->whole)
            space_floats(s->queries->type, row_of(s->queries, i), s->base->dim, floats);
    }
    for (uint64_t i = begin; rc == 0 && s->guess && i < end; i++)
        take_guess(s, i, &scratch.nearest[i - begin]);
    if (rc == 0 && !s->guess)
        scan_blocks(s, q, begin, end - begin, &scratch);
    for (uint64_t i = begin; rc == 0 && i < end; i++) {
        struct nearest *nearest = &scratch.nearest[i - begin];
        if (s->whole)
            qsort(nearest->heap, nearest->n, sizeof *nearest->heap, compare_near);
        else
            refine(s, q[i - begin], i, nearest, &scratch);
        write_answer(s, i, nearest);
    }
    scratch_fini(&scratch);
    return rc;
}

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

struct norms {
    const struct vectors *vectors;
    double *out;
};

static int norms_range(void *context, uint64_t begin, uint64_t end)
{
    const struct norms *norms = context;
    uint32_t dim = norms->vectors->dim;
    float *x = malloc(dim * sizeof *x);
    if (!x)
        return QUIRE_ENOMEM;
    for (uint64_t row = begin; row < end; row++) {
        double sum = 0;
        space_floats(norms->vectors->type, row_of(norms->vectors, row), dim, x);
        for (uint32_t d = 0; d < dim; d++)
            sum += (double)x[d] * (double)x[d];
        norms->out[row] = sqrt(sum);
    }
    free(x);
    return 0;
}

/* The length of every vector; those that have no distance are refused. */
static int norms_of(const struct vectors *v, const char *what, enum quire_metric metric, unsigned threads, double **out,
                    struct quire_error *err)
{
    struct norms norms = {v, malloc(memory_size_mul(v->rows, sizeof(double)))};
    *out = norms.out;
    int rc = norms.out ? parallel_for(threads, v->rows, NORM_ROWS, norms_range, &norms, NULL) : QUIRE_ENOMEM;
    if (rc < 0)
        return error_set(err, rc, "no memory for the lengths of %llu vectors", (unsigned long long)v->rows);
    for (uint64_t row = 0; row < v->rows; row++) {
        if (!(norms.out[row] * norms.out[row] <= NORM2_MAX))
            return error_set(err, QUIRE_ENOTFINITE, "%s %llu holds NaN, infinity or numbers too large to square", what,
                             (unsigned long long)row);
        if (metric == QUIRE_METRIC_COSINE && norms.out[row] == 0)
            norms.out[row] = 1; /* all products of a zero vector are 0, and so are its cosines */
    }
    return 0;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int check_input(const struct vectors *base, const struct vectors *queries, uint32_t k, struct quire_error *err)
{
    if (base->dim != queries->dim || base->dim < 1 || base->dim > QUIRE_DIM_MAX)
        return error_set(err, QUIRE_EDIM, "the base has %u dimensions, the queries have %u; expected the same, 1 to %u",
                         base->dim, queries->dim, QUIRE_DIM_MAX);
    if (base->rows > QUIRE_ROWS_MAX || queries->rows < 1 || queries->rows > UINT32_MAX)
        return error_set(err, QUIRE_ERANGE, "%llu rows and %llu queries; expected at most %u rows and 1 to %u queries",
                         (unsigned long long)base->rows, (unsigned long long)queries->rows, QUIRE_ROWS_MAX, UINT32_MAX);
    uint64_t max = base->rows < QUIRE_K_MAX ? base->rows : QUIRE_K_MAX;
    if (k < 1 || k > max)
        return error_set(err, QUIRE_ERANGE, "%u neighbours of %llu rows; expected 1 to %llu", k,
                         (unsigned long long)base->rows, (unsigned long long)max);
    return 0;
}

static int prepare(struct scan *s, unsigned threads, struct quire_error *err)
{
    size_t n = memory_size_mul(s->queries->rows, s->k);
    s->row_bytes = s->base->dim * quire_type_bytes(s->base->type);
    s->block_rows = BLOCK_BYTES / s->row_bytes + 1;
    s->keep = s->whole ? s->k : s->k + s->k / 8 + 16;
    if (s->keep > s->base->rows)
        s->keep = (uint32_t)s->base->rows;
    int rc = norms_of(s->base, "row", s->metric, threads, &s->base_norms, err);
    if (rc == 0)
        rc = norms_of(s->queries, "query", s->metric, threads, &s->query_norms, err);
    if (rc < 0)
        return rc;
    for (uint64_t row = 0; row < s->base->rows; row++)
        s->norm_max = fmax(s->norm_max, s->base_norms[row]);
    s->truth->n_queries = (uint32_t)s->queries->rows;
    s->truth->k = s->k;
    s->truth->ids = malloc(memory_size_mul(n, sizeof(uint32_t)));
    s->truth->distances = malloc(memory_size_mul(n, sizeof(float)));
    if (!s->truth->ids || !s->truth->distances)
        return error_set(err, QUIRE_ENOMEM, "no memory for %zu neighbours", n);
    return 0;
}

/* parallel_for's progress has a phase, the caller's here has none. */
struct report {
    int (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
    uint64_t first, total; /* queries of earlier parts, of all */
};

static int report_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct report *report = context;
    (void)phase;
    return report->progress(report->context, done, total);
}

/* ---- with a device ----------------------------------------------------------------------------------------------- */

static int report_part(void *context, uint64_t done, uint64_t total)
{
    const struct report *report = context;
    (void)total;
    return report->progress ? report->progress(report->context, report->first + done, report->total) : 0;
}

static bool lengths_fit(const struct scan *s, const double *lengths, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (lengths[i] > LENGTH_MAX || (lengths[i] < LENGTH_MIN && lengths[i] != 0))
            return false;
    return s->keep > 0;
}

/* Whether the vectors are of a kind that devices compare. */
static bool is_for_device(const struct scan *s, struct offload *offload, enum offload_element *element)
{
    enum quire_type base = s->base->type, queries = s->queries->type;
    bool same = base == queries, floats = queries == QUIRE_TYPE_F32;
    if (base == QUIRE_TYPE_U8 && same)
        *element = OFFLOAD_U8;
    else if (base == QUIRE_TYPE_I8 && same)
        *element = OFFLOAD_I8;
    else if (base == QUIRE_TYPE_F16 && (same || floats))
        *element = OFFLOAD_F16;
    else if (base == QUIRE_TYPE_F32 && floats)
        *element = OFFLOAD_F32;
    else
        return false;
    return s->keep <= offload_nearest_max(offload) && (s->whole || (lengths_fit(s, s->base_norms, s->base->rows) &&
                                                                    lengths_fit(s, s->query_norms, s->queries->rows)));
}

/* Queries first .. first + n as a device wants them: bytes as they are, all else as floats. */
static const void *device_queries(const struct scan *s, uint64_t first, uint64_t n, float *floats)
{
    if (s->queries->type != QUIRE_TYPE_F16)
        return row_of(s->queries, first);
    space_floats(s->queries->type, row_of(s->queries, first), n * s->base->dim, floats);
    return floats;
}

/* Guesses of a device and answers from them, a part of the queries at a time. */
static int compute_on_device(struct scan *s, struct offload *offload, enum offload_element element, unsigned threads,
                             struct report *report, struct quire_error *err)
{
    uint64_t step = GUESS_BYTES / (s->keep * sizeof *s->guess) + 1;
    step = step < s->queries->rows ? step : s->queries->rows;
    struct offload_near *guess = malloc(memory_size_mul(step * s->keep, sizeof *guess));
    float *floats = malloc(memory_size_mul(step * s->base->dim, sizeof *floats));
    float *factors = s->metric == QUIRE_METRIC_COSINE ? malloc(s->base->rows * sizeof *factors) : NULL;
    struct offload_progress progress = {report_part, report};
    struct offload_rows rows = {element, (uint32_t)s->base->rows, s->base->dim, s->base->data, factors};
    int rc = guess && floats && (factors || s->metric != QUIRE_METRIC_COSINE) ? 0 : QUIRE_ENOMEM;
    if (rc < 0)
        error_set(err, rc, "no memory for the answers of a device");
    for (uint64_t row = 0; rc == 0 && factors && row < s->base->rows; row++)
        factors[row] = (float)(1 / s->base_norms[row]);
    for (report->first = 0; rc == 0 && report->first < s->queries->rows; report->first += step) {
        uint64_t left = s->queries->rows - report->first, n = left < step ? left : step;
        struct offload_nearest request = {.measure = s->metric == QUIRE_METRIC_L2 ? OFFLOAD_L2 : OFFLOAD_DOT,
                                          .n_queries = (uint32_t)n,
                                          .k = s->keep,
                                          .queries = device_queries(s, report->first, n, floats),
                                          .out = guess};
        rc = offload_nearest_all(offload, &rows, &request, &progress, err);
        s->guess = guess;
        s->first_query = report->first;
        if (rc == 0 && (rc = parallel_for(threads, n, QUERIES_MAX, scan_queries, s, NULL)) < 0)
            error_set(err, rc, "ground truth: %s", quire_error_text(rc));
    }
    s->guess = NULL;
    s->first_query = 0;
    free(guess);
    free(floats);
    free(factors);
    return rc;
}

int truth_compute_on(struct offload *offload, const struct vectors *base, const struct vectors *queries,
                     enum quire_metric metric, uint32_t k, unsigned threads,
                     int (*progress)(void *context, uint64_t done, uint64_t total), void *context, struct truth *out,
                     bool *on_device, struct quire_error *err)
{
    struct truth truth = {0};
    struct report report = {progress, context, 0, queries->rows};
    struct progress adapter = {report_progress, &report, "truth"};
    struct scan s = {.base = base, .queries = queries, .kernels = kernels(), .metric = metric, .k = k, .truth = &truth};
    enum offload_element element;
    int rc = check_input(base, queries, k, err);
    if (rc < 0)
        return rc;
    threads = threads ? threads : parallel_processors();
    /* whole numbers times lengths are floats on a device */
    s.whole = base->type == queries->type && (base->type == QUIRE_TYPE_U8 || base->type == QUIRE_TYPE_I8) &&
              !(offload && metric == QUIRE_METRIC_COSINE);
    s.error = offload ? offload_float_error(base->dim) + 0x1p-20 : (base->dim / 4.0 + 16) * 0x1p-24;
    s.tiny = offload ? 4 * LENGTH_MAX * offload_float_tiny(base->dim) : TINY;
    rc = prepare(&s, threads, err);
    if (rc < 0)
        goto out;
    *on_device = offload && is_for_device(&s, offload, &element);
    if (*on_device) {
        rc = compute_on_device(&s, offload, element, threads, &report, err);
        if (rc == 0 || rc == QUIRE_ECANCELLED)
            goto out;
        *on_device = false; /* the device's status says what it was */
    }
    /* fewer queries share a block where that keeps all threads busy */
    uint64_t share = queries->rows / threads;
    uint64_t chunk = share < 1 ? 1 : share > QUERIES_MAX ? QUERIES_MAX : share;
    rc = parallel_for(threads, queries->rows, chunk, scan_queries, &s, progress ? &adapter : NULL);
    if (rc < 0)
        error_set(err, rc, "ground truth of %llu queries: %s", (unsigned long long)queries->rows, quire_error_text(rc));
out:
    free(s.base_norms);
    free(s.query_norms);
    if (rc < 0)
        truth_free(&truth);
    else
        *out = truth;
    return rc;
}

int truth_compute(const struct vectors *base, const struct vectors *queries, enum quire_metric metric, uint32_t k,
                  unsigned threads, int (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  struct truth *out, struct quire_error *err)
{
    bool on_device = false;
    return truth_compute_on(NULL, base, queries, metric, k, threads, progress, context, out, &on_device, err);
}
