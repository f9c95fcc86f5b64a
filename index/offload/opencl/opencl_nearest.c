/*
 * opencl_nearest.c - the nearest rows of a block for each of some queries: k results come back, not all distances.
 *
 * Rows are taken in runs. One kernel has the distances of a run; what is nearer than the k-th of the runs before is
 * written down as a candidate of its query. Another keeps the k nearest of those that were kept and the candidates, and
 * the k-th of them is the limit of the next run. Nothing limits the first run, so it has as many rows as a query has
 * room for candidates. Runs then grow: of rows in no particular order a run of x times the rows before it brings fewer
 * than k x candidates, and with x = room / 2k the room is enough but for rare cases. In those, or with rows sorted from
 * far to near, more come than there is room for; then the same run is done again with half the rows, and a run of
 * `room` rows always fits. What is kept does not depend on any of this: keys with rows are all different.
 *
 * So a block of a million rows takes about six runs, and between two of them a number per query crosses the bus.
 */
#include "index/offload/opencl/opencl_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define REGISTER_SIDE    64u /* rows and queries of 16 x 16 work-items with tiles in registers */
#define QUERIES_MAX      1024u
#define CANDIDATES_BYTES ((size_t)64 << 20)
#define ROOM_LEAST       4096u
#define K_MAX_REGISTERS  65536u

/* What a batch of queries has on the device and here. */
struct batch {
    struct opencl *cl;
    const struct opencl_block *block;
    const struct offload_nearest *request;
    const struct opencl_program *distances, *keep;
    uint32_t most, room; /* queries at a time, candidates of a query */
    uint32_t n;          /* queries of this batch */
    size_t query_bytes;  /* of a query on the device */
    uint8_t *queries;    /* most, padded; floats where rows are floats; of codes in planes */
    uint64_t *best;      /* most x k; limits of the beginning as well */
    uint32_t *counts, *zeros;
    cl_mem d_queries, d_coded, d_limits, d_counts, d_candidates, d_best;
};

uint32_t opencl_nearest_max(void *context)
{
    const struct opencl *cl = context;
    return cl->tiled ? cl->sort / 2 : K_MAX_REGISTERS;
}

static size_t query_element_bytes(enum offload_element element)
{
    return element == OFFLOAD_F32 || element == OFFLOAD_F16 ? sizeof(float) : 1;
}

static void batch_fini(struct batch *b)
{
    free(b->queries);
    free(b->best);
    free(b->counts);
    free(b->zeros);
    opencl_release(b->cl, b->d_queries);
    opencl_release(b->cl, b->d_coded);
    opencl_release(b->cl, b->d_limits);
    opencl_release(b->cl, b->d_counts);
    opencl_release(b->cl, b->d_candidates);
    opencl_release(b->cl, b->d_best);
}

static int batch_init(struct batch *b, struct quire_error *err)
{
    struct opencl *cl = b->cl;
    uint32_t k = b->request->k, padded;
    b->room = cl->tiled ? cl->sort - k : 2 * k > ROOM_LEAST ? 2 * k : ROOM_LEAST;
    size_t most = CANDIDATES_BYTES / (b->room * sizeof(uint64_t));
    most = most < 1 ? 1 : most > QUERIES_MAX ? QUERIES_MAX : most;
    b->most = most < b->request->n_queries ? (uint32_t)most : b->request->n_queries;
    padded = (b->most + OPENCL_SIDE_MOST - 1) / OPENCL_SIDE_MOST * OPENCL_SIDE_MOST;
    b->query_bytes = b->block->padded * query_element_bytes(b->block->shape.element);
    b->queries = calloc(padded, b->query_bytes);
    b->best = malloc(sizeof *b->best * b->most * k);
    b->counts = malloc(sizeof *b->counts * b->most);
    b->zeros = calloc(b->most, sizeof *b->zeros);
    if (!b->queries || !b->best || !b->counts || !b->zeros)
        return opencl_error(err, __func__, QUIRE_ENOMEM, "no memory for %u queries", b->most);
    int rc = opencl_buffer(cl, CL_MEM_READ_ONLY, padded * b->query_bytes, NULL, &b->d_queries, err);
    if (rc == 0 && b->request->coded)
        rc = opencl_buffer(cl, CL_MEM_READ_ONLY, b->most * sizeof *b->request->coded, NULL, &b->d_coded, err);
    if (rc == 0)
        rc = opencl_buffer(cl, CL_MEM_READ_WRITE, b->most * sizeof(uint64_t), NULL, &b->d_limits, err);
    if (rc == 0)
        rc = opencl_buffer(cl, CL_MEM_READ_WRITE, b->most * sizeof(uint32_t), NULL, &b->d_counts, err);
    if (rc == 0)
        rc = opencl_buffer(cl, CL_MEM_READ_WRITE, (size_t)b->most * b->room * sizeof(uint64_t), NULL, &b->d_candidates,
                           err);
    if (rc == 0)
        rc = opencl_buffer(cl, CL_MEM_READ_WRITE, (size_t)b->most * k * sizeof(uint64_t), NULL, &b->d_best, err);
    return rc;
}

/* The levels of a query as codes have theirs (kernels.cl): of each piece of `piece` bytes of a code first what meets
 * the lowest bits, then what meets the next. */
static void put_in_planes(const uint8_t *from, uint32_t dim, unsigned planes, uint32_t piece, uint8_t *to)
{
    for (uint32_t i = 0; i < dim; i++) {
        uint32_t byte = i / planes, plane = i % planes;
        to[byte / piece * piece * planes + plane * piece + byte % piece] = from[i];
    }
}

/* Queries from `first` on go to the device, without limits yet. */
static int begin(struct batch *b, uint32_t first, struct quire_error *err)
{
    const struct offload_shape *shape = &b->block->shape;
    size_t bytes = shape->dim * query_element_bytes(shape->element);
    const uint8_t *from = (const uint8_t *)b->request->queries + first * bytes;
    b->n = b->request->n_queries - first < b->most ? b->request->n_queries - first : b->most;
    for (uint32_t i = 0; i < b->n; i++)
        if (offload_is_code(shape->element))
            put_in_planes(from + i * bytes, shape->dim, opencl_planes(shape->element), b->cl->tiled ? 4 : 16,
                          b->queries + i * b->query_bytes);
        else
            memcpy(b->queries + i * b->query_bytes, from + i * bytes, bytes);
    memset(b->best, 0xff, b->n * sizeof *b->best);
    int rc = opencl_write(b->cl, b->d_queries, 0, b->n * b->query_bytes, b->queries, err);
    if (rc == 0 && b->d_coded)
        rc = opencl_write(b->cl, b->d_coded, 0, b->n * sizeof *b->request->coded, b->request->coded + first, err);
    return rc == 0 ? opencl_write(b->cl, b->d_limits, 0, b->n * sizeof *b->best, b->best, err) : rc;
}

static int measure(struct batch *b, uint32_t first, uint32_t n, struct quire_error *err)
{
    const struct offload_shape *shape = &b->block->shape;
    const struct opencl_tile *tile = &b->distances->tile;
    uint32_t length = b->block->padded / opencl_planes(shape->element); /* of codes in bytes */
    const struct opencl_argument arguments[] = {
        OPENCL_ARGUMENT(b->block->data), OPENCL_ARGUMENT(b->d_queries),    OPENCL_ARGUMENT(b->block->factors),
        OPENCL_ARGUMENT(b->d_coded),     OPENCL_ARGUMENT(first),           OPENCL_ARGUMENT(n),
        OPENCL_ARGUMENT(b->n),           OPENCL_ARGUMENT(length),          OPENCL_ARGUMENT(b->d_limits),
        OPENCL_ARGUMENT(b->d_counts),    OPENCL_ARGUMENT(b->d_candidates), OPENCL_ARGUMENT(b->room),
    };
    size_t side = b->cl->tiled ? tile->side : REGISTER_SIDE, items = b->cl->tiled ? side / tile->each : 16;
    const size_t local[] = {items, items};
    const size_t global[] = {(n + side - 1) / side * items, (b->n + side - 1) / side * items};
    int rc = opencl_write(b->cl, b->d_counts, 0, b->n * sizeof *b->zeros, b->zeros, err);
    if (rc == 0)
        rc = opencl_run(b->cl, b->distances->kernel, arguments, sizeof arguments / sizeof *arguments, global, local, 2,
                        err);
    return rc == 0 ? opencl_read(b->cl, b->d_counts, b->n * sizeof *b->counts, b->counts, err) : rc;
}

static int keep(struct batch *b, uint32_t seen, struct quire_error *err)
{
    uint32_t k = b->request->k, kept = seen < k ? seen : k;
    const struct opencl_argument arguments[] = {
        OPENCL_ARGUMENT(b->d_candidates),
        OPENCL_ARGUMENT(b->room),
        OPENCL_ARGUMENT(b->n),
        OPENCL_ARGUMENT(k),
        OPENCL_ARGUMENT(kept),
        OPENCL_ARGUMENT(b->d_counts),
        OPENCL_ARGUMENT(b->d_best),
        OPENCL_ARGUMENT(b->d_limits),
    };
    size_t local = b->keep->group, global = b->cl->tiled ? b->n * local : (b->n + local - 1) / local * local;
    return opencl_run(b->cl, b->keep->kernel, arguments, sizeof arguments / sizeof *arguments, &global, &local, 1, err);
}

static bool all_fit(const struct batch *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (b->counts[i] > b->room)
            return false;
    return true;
}

static int scan(struct batch *b, struct quire_error *err)
{
    uint32_t rows = b->block->shape.n;
    int rc = 0;
    for (uint32_t seen = 0; rc == 0 && seen < rows;) {
        uint64_t run = (uint64_t)seen * b->room / (2 * b->request->k);
        run = run < b->room ? b->room : run;
        run = run < rows - seen ? run : rows - seen;
        while ((rc = measure(b, seen, (uint32_t)run, err)) == 0 && !all_fit(b)) {
            assert(run > b->room);
            run = run / 2 > b->room ? run / 2 : b->room;
        }
        if (rc == 0)
            rc = keep(b, seen, err);
        seen += (uint32_t)run;
    }
    return rc;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The number that a key stands for (kernels.cl: key_of). */
static double value_of(const struct batch *b, uint32_t key)
{
    enum offload_element element = b->block->shape.element;
    bool is_whole = element == OFFLOAD_U8 || element == OFFLOAD_I8;
    float value;
    if (b->request->measure == OFFLOAD_L2 && is_whole)
        return key;
    if (is_whole && !b->block->factors)
        return element == OFFLOAD_U8 ? -(double)~key : -(double)(int32_t)(~key ^ 0x80000000u);
    if (b->request->measure != OFFLOAD_L2)
        key = key & 0x80000000u ? key ^ 0x80000000u : ~key;
    memcpy(&value, &key, sizeof value);
    return (double)value;
}

static int answer(struct batch *b, uint32_t first, struct quire_error *err)
{
    uint32_t k = b->request->k;
    int rc = opencl_read(b->cl, b->d_best, (size_t)b->n * k * sizeof *b->best, b->best, err);
    for (uint32_t i = 0; rc == 0 && i < b->n; i++) {
        uint64_t *best = b->best + (size_t)i * k;
        struct offload_near *out = b->request->out + ((size_t)first + i) * k;
        qsort(best, k, sizeof *best, compare_keys);
        for (uint32_t j = 0; j < k; j++)
            out[j] = (struct offload_near){value_of(b, (uint32_t)(best[j] >> 32)), (uint32_t)best[j]};
    }
    return rc;
}

int opencl_nearest(void *context, void *block, const struct offload_nearest *request, struct quire_error *err)
{
    struct batch b = {.cl = context, .block = block, .request = request};
    assert(request->k >= 1 && request->k <= b.block->shape.n && request->k <= opencl_nearest_max(context));
    int rc =
        opencl_program_nearest(b.cl, &b.block->shape, request->measure, request->n_queries, &b.distances, &b.keep, err);
    if (rc == 0)
        rc = batch_init(&b, err);
    for (uint32_t first = 0; rc == 0 && first < request->n_queries; first += b.n) {
        rc = begin(&b, first, err);
        if (rc == 0)
            rc = scan(&b, err);
        if (rc == 0)
            rc = answer(&b, first, err);
    }
    batch_fini(&b);
    return rc;
}
