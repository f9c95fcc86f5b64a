/*
 * generate.c - clusters of chosen intrinsic dimension from a seed.
 *
 *   row = centre_c + sum_j scale_j * g_j * direction_cj,   g_j ~ N(0, 1),   scale_j ~ 1 / sqrt(j + 1)
 *
 * Centres have coordinates of variance 1 and the scales are chosen so that a row's spread around its centre has half
 * the variance of the centres (dim / 2 in all): clusters stand apart, their edges meet. Every centre, cluster and row
 * has a random stream of its own, whose start is a hash of (seed, kind, number), so nothing depends on the order of
 * work.
 *
 * Normal numbers are sums of twelve uniform ones (variance 1, tails cut at 6). Their arithmetic is in whole numbers and
 * needs no libm, whose log and cos differ between versions: the same seed makes the same file next year.
 */
#include "datasets/generate.h"
#include "index/vector/parallel.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ROWS 256u

enum stream { STREAM_CLUSTER = 1, STREAM_ROW, STREAM_QUERY };

struct generator {
    struct generate_options options;
    float *centres;    /* clusters x dim */
    float *directions; /* clusters x intrinsic x dim */
    float *scales;     /* intrinsic */
};

static struct random random_stream(uint64_t seed, enum stream stream, uint64_t number)
{
    struct random random;
    random_init(&random, seed + ((uint64_t)stream << 56));
    random_init(&random, random_next(&random) + number * 0xd1342543de82ef95ull);
    random_init(&random, random_next(&random));
    return random;
}

/* Twelve 16-bit numbers out of three draws. */
static double random_normal(struct random *random)
{
    int64_t sum = 0;
    for (int draw = 0; draw < 3; draw++) {
        uint64_t x = random_next(random);
        sum += (int64_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
    }
    return (double)(2 * sum - 12 * 65535) / 131072.0;
}

void generate_options_init(struct generate_options *options)
{
    *options = (struct generate_options){.rows = 10000, .dim = 128, .clusters = 100, .intrinsic = 16, .seed = 1};
}

static int check_options(const struct generate_options *o, struct quire_error *err)
{
    if (o->rows < 1 || o->rows > QUIRE_ROWS_MAX)
        return error_set(err, QUIRE_ERANGE, "%llu rows; expected 1 to %u", (unsigned long long)o->rows, QUIRE_ROWS_MAX);
    if (o->dim < 1 || o->dim > QUIRE_DIM_MAX)
        return error_set(err, QUIRE_ERANGE, "%u dimensions; expected 1 to %u", o->dim, QUIRE_DIM_MAX);
    if (o->clusters < 1 || o->clusters > o->rows)
        return error_set(err, QUIRE_ERANGE, "%u clusters; expected 1 to the number of rows, %llu", o->clusters,
                         (unsigned long long)o->rows);
    if (o->intrinsic < 1 || o->intrinsic > o->dim)
        return error_set(err, QUIRE_ERANGE, "%u intrinsic dimensions; expected 1 to the number of dimensions, %u",
                         o->intrinsic, o->dim);
    uint64_t bytes = memory_size_mul(memory_size_mul((size_t)o->clusters * (o->intrinsic + 1u), o->dim), sizeof(float));
    if (bytes > GENERATE_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT,
                         "%u clusters of %u directions with %u dimensions take %llu MiB; at most %llu: ask for fewer "
                         "clusters",
                         o->clusters, o->intrinsic, o->dim, (unsigned long long)(bytes >> 20),
                         GENERATE_BYTES_MAX >> 20);
    return 0;
}

/* ---- directions -------------------------------------------------------------------------------------------------- */

/* Takes the earlier directions off `v` and makes it a unit vector; false where too little of it is left. */
static bool orthonormalise(double *v, const float *directions, uint32_t n, uint32_t dim)
{
    double square = 0;
    for (int pass = 0; pass < 2; pass++) /* the second takes off what the rounding of the first left */
        for (uint32_t j = 0; j < n; j++) {
            const float *u = directions + (size_t)j * dim;
            double dot = 0;
            for (uint32_t d = 0; d < dim; d++)
                dot += v[d] * (double)u[d];
            for (uint32_t d = 0; d < dim; d++)
                v[d] -= dot * (double)u[d];
        }
    for (uint32_t d = 0; d < dim; d++)
        square += v[d] * v[d];
    for (uint32_t d = 0; square > 1e-6 && d < dim; d++)
        v[d] /= sqrt(square);
    return square > 1e-6;
}

/* Centre and directions of some clusters. */
static int make_clusters(void *context, uint64_t begin, uint64_t end)
{
    const struct generator *g = context;
    uint32_t dim = g->options.dim;
    double *v = malloc(dim * sizeof *v);
    if (!v)
        return QUIRE_ENOMEM;
    for (uint64_t c = begin; c < end; c++) {
        struct random random = random_stream(g->options.seed, STREAM_CLUSTER, c);
        float *directions = g->directions + c * g->options.intrinsic * dim;
        for (uint32_t d = 0; d < dim; d++)
            g->centres[c * dim + d] = (float)random_normal(&random);
        for (uint32_t j = 0; j < g->options.intrinsic;) {
            for (uint32_t d = 0; d < dim; d++)
                v[d] = random_normal(&random);
            if (!orthonormalise(v, directions, j, dim))
                continue; /* another draw will do */
            for (uint32_t d = 0; d < dim; d++)
                directions[(size_t)j * dim + d] = (float)v[d];
            j++;
        }
    }
    free(v);
    return 0;
}

static void make_scales(struct generator *g)
{
    double sum = 0;
    for (uint32_t j = 0; j < g->options.intrinsic; j++)
        sum += 1.0 / (j + 1.0);
    for (uint32_t j = 0; j < g->options.intrinsic; j++)
        g->scales[j] = (float)sqrt(g->options.dim / (2 * sum * (j + 1.0)));
}

int generate_create(const struct generate_options *options, struct generator **out, struct quire_error *err)
{
    int rc = check_options(options, err);
    if (rc < 0)
        return rc;
    size_t clusters = options->clusters, dim = options->dim, intrinsic = options->intrinsic;
    struct generator *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(err, QUIRE_ENOMEM, "no memory for a generator");
    g->options = *options;
    if (g->options.threads == 0)
        g->options.threads = parallel_processors();
    g->centres = malloc(clusters * dim * sizeof(float));
    g->directions = malloc(clusters * intrinsic * dim * sizeof(float));
    g->scales = malloc(intrinsic * sizeof(float));
    rc = g->centres && g->directions && g->scales ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        make_scales(g);
        rc = parallel_for(g->options.threads, clusters, 1, make_clusters, g, NULL);
    }
    if (rc < 0) {
        generate_destroy(g);
        return error_set(err, rc, "no memory for %zu clusters of %zu directions", clusters, intrinsic);
    }
    *out = g;
    return 0;
}

void generate_destroy(struct generator *generator)
{
    if (!generator)
        return;
    free(generator->centres);
    free(generator->directions);
    free(generator->scales);
    free(generator);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct job {
    const struct generator *generator;
    enum stream stream;
    uint64_t first;
    float *out;
};

static void make_row(const struct generator *g, enum stream stream, uint64_t number, float *out)
{
    uint32_t dim = g->options.dim;
    struct random random = random_stream(g->options.seed, stream, number);
    size_t cluster = random_below(&random, g->options.clusters);
    const float *direction = g->directions + cluster * g->options.intrinsic * dim;
    memcpy(out, g->centres + cluster * dim, dim * sizeof *out);
    for (uint32_t j = 0; j < g->options.intrinsic; j++, direction += dim) {
        float amount = g->scales[j] * (float)random_normal(&random);
        for (uint32_t d = 0; d < dim; d++)
            out[d] += amount * direction[d];
    }
}

static int make_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct job *job = context;
    for (uint64_t i = begin; i < end; i++)
        make_row(job->generator, job->stream, job->first + i, job->out + i * job->generator->options.dim);
    return 0;
}

int generate_rows(const struct generator *generator, uint64_t first_row, uint64_t n, float *out,
                  struct quire_error *err)
{
    struct job job = {generator, STREAM_ROW, first_row, out};
    uint64_t rows = generator->options.rows;
    if (first_row > rows || n > rows - first_row)
        return error_set(err, QUIRE_ERANGE, "rows %llu and %llu after it; there are %llu rows",
                         (unsigned long long)first_row, (unsigned long long)n, (unsigned long long)rows);
    return parallel_for(generator->options.threads, n, CHUNK_ROWS, make_rows, &job, NULL);
}

int generate_queries(const struct generator *generator, uint64_t first_query, uint64_t n, float *out,
                     struct quire_error *err)
{
    struct job job = {generator, STREAM_QUERY, first_query, out};
    if (n > UINT64_MAX - first_query)
        return error_set(err, QUIRE_ERANGE, "query %llu and %llu after it are too many",
                         (unsigned long long)first_query, (unsigned long long)n);
    return parallel_for(generator->options.threads, n, CHUNK_ROWS, make_rows, &job, NULL);
}

uint32_t generate_cluster(const struct generator *generator, uint64_t row)
{
    struct random random = random_stream(generator->options.seed, STREAM_ROW, row);
    return (uint32_t)random_below(&random, generator->options.clusters);
}
