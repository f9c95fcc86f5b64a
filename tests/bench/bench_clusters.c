/*
 * bench_clusters.c - inverted lists before there is an index: how many must be read to find the true neighbours.
 *
 *   bench_clusters BASE QUERIES TRUTH l2|cosine|ip [--rows 64,128,256] [--rounds 0,2,4,8] [--replicas 100,150,200,300]
 *                  [--threads 2] [--most PERCENT-OF-ROWS] [--list PERCENT-OF-ROWS] [--heads 1]
 *
 * For each size of clusters and number of rounds of refinement rows are put in clusters, then closed with each number
 * of replicas (percent: lists that a row stands in on average). All points are ranked by their distance to each query;
 * a true neighbour is found with as many probes as the rank of the first of its lists says. Prints a line each:
 * seconds, sizes, recall@10 at fixed numbers of probes, and how many probes reach 0.90, 0.95 and 0.99, with the rows
 * that stand in these lists on average. --list bounds the rows of a list (0: none), --heads 1 knows lists by their
 * heads. Codes are made beforehand, so times are those of clusters.c alone.
 */
#include "datasets/vecfile.h"
#include "index/cluster/clusters.h"
#include "index/kernels/kernels.h"
#include "index/vector/near.h"
#include "index/vector/space.h"
#include "io/clock.h"
#include "tests/bench/support_bench.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 10, LIST_MAX = 16, PROBES_MAX = 4096, N_PROBES = 5, N_TARGETS = 3 };

static const uint32_t probes[N_PROBES] = {4, 8, 16, 32, 64};
static const double targets[N_TARGETS] = {0.90, 0.95, 0.99};

struct list {
    unsigned n, values[LIST_MAX];
};

struct bench {
    struct vectors base, queries;
    struct truth truth;
    struct space space;
    struct row_store rows;
    uint32_t *order, *places; /* and its inverse */
    float *rotated;           /* queries x code_dim */
    struct list sizes, rounds, replicas;
    unsigned threads, most, list, heads;
    double seconds;
};

static void floats_of(const struct vectors *v, uint64_t row, float *out)
{
    space_floats(v->type, (const uint8_t *)v->data + row * v->dim * quire_type_bytes(v->type), v->dim, out);
}

static void set_space(struct bench *b, enum quire_metric metric)
{
    float *x = room(sizeof *x * b->base.dim), *work = room(sizeof *work * ((size_t)b->base.dim + 1));
    check(space_init(&b->space, metric, b->base.type, b->base.dim, 1), NULL);
    for (uint64_t i = 0; metric == QUIRE_METRIC_IP && i < b->base.rows; i++) {
        floats_of(&b->base, i, x);
        double norm2 = kernels()->f32_dot(x, x, b->base.dim);
        b->space.norm2_max = norm2 > b->space.norm2_max ? norm2 : b->space.norm2_max;
    }
    double *sums = room(sizeof *sums * b->space.work_dim);
    for (uint64_t i = 0; i < b->base.rows; i++) {
        floats_of(&b->base, i, x);
        space_lift(&b->space, x, work);
        for (uint32_t d = 0; d < b->space.work_dim; d++)
            sums[d] += work[d];
    }
    for (uint32_t d = 0; d < b->space.work_dim; d++)
        b->space.mean[d] = (float)(sums[d] / (double)b->base.rows);
    free(x);
    free(work);
    free(sums);
}

static int encode_range(void *context, uint64_t begin, uint64_t end)
{
    struct bench *b = context;
    float *x = room(sizeof *x * b->base.dim), *work = room(sizeof *work * b->space.code_dim);
    for (uint64_t i = begin; i < end; i++) {
        floats_of(&b->base, i, x);
        space_row(&b->space, x, work);
        rows_encode(&b->rows.rows, (uint32_t)i, work);
    }
    free(x);
    free(work);
    return 0;
}

static void encode(struct bench *b)
{
    uint32_t n = (uint32_t)b->base.rows;
    b->order = room(sizeof *b->order * n);
    b->places = room(sizeof *b->places * n);
    b->rotated = room(sizeof *b->rotated * b->queries.rows * b->space.code_dim);
    float *x = room(sizeof *x * b->base.dim), norm2;
    for (uint64_t q = 0; q < b->queries.rows; q++) {
        floats_of(&b->queries, q, x);
        space_query(&b->space, x, b->rotated + q * b->space.code_dim, &norm2);
    }
    free(x);
}

static void find(struct bench *b, struct clusters_config *config, struct clusters *clusters)
{
    check(row_store_open(&b->rows, (uint32_t)b->base.rows, b->space.code_dim, NULL, NULL, false, NULL), NULL);
    parallel_for(b->threads, b->base.rows, 4096, encode_range, b, NULL);
    uint64_t begin = clock_ns();
    check(clusters_find(&b->rows, NULL, NULL, config, NULL, b->order, clusters), NULL);
    b->seconds = (double)(clock_ns() - begin) * 1e-9;
    for (uint32_t i = 0; i < b->rows.n; i++)
        b->places[b->order[i]] = i;
}

/* Which lists each row stands in besides its own: at[row] .. at[row + 1]. */
struct reverse {
    uint32_t *at, *lists, *cluster_of;
};

static void reverse_set(struct reverse *r, const struct clusters *clusters, uint32_t n)
{
    r->at = room(sizeof *r->at * ((size_t)n + 1));
    r->lists = room(sizeof *r->lists * clusters->replica_at[clusters->n]);
    r->cluster_of = room(sizeof *r->cluster_of * n);
    for (uint64_t i = 0; i < clusters->replica_at[clusters->n]; i++)
        r->at[clusters->replicas[i]]++;
    for (uint32_t i = 0, sum = 0; i <= n; i++)
        r->at[i] = sum += r->at[i];
    for (uint32_t c = 0; c < clusters->n; c++) {
        for (uint64_t i = clusters->replica_at[c]; i < clusters->replica_at[c + 1]; i++)
            r->lists[--r->at[clusters->replicas[i]]] = c;
        for (uint32_t row = clusters->first[c]; row < clusters->first[c + 1]; row++)
            r->cluster_of[row] = c;
    }
}

static uint64_t list_rows(const struct clusters *clusters, uint32_t c)
{
    return clusters->first[c + 1] - clusters->first[c] + clusters->replica_at[c + 1] - clusters->replica_at[c];
}

struct counts {
    uint64_t found[PROBES_MAX + 1]; /* by rank of the first list */
    uint64_t rows[PROBES_MAX + 1];  /* in the list of each rank */
};

static void count_query(const struct bench *b, const struct clusters *clusters, const struct reverse *reverse,
                        const float *points, uint64_t q, struct counts *counts)
{
    uint32_t n = clusters->n, dim = b->space.code_dim;
    float *distances = room(sizeof *distances * n);
    near_t *items = room(sizeof *items * n), *spare = room(sizeof *spare * n);
    uint32_t *ranks = room(sizeof *ranks * n);
    kernels()->f32_l2_many(b->rotated + q * dim, points, n, dim, distances);
    for (uint32_t c = 0; c < n; c++)
        items[c] = near_of(distances[c], c);
    near_keep_sorted(items, n, n, spare);
    for (uint32_t i = 0; i < n; i++) {
        ranks[(uint32_t)items[i]] = i;
        if (i < PROBES_MAX)
            counts->rows[i] += list_rows(clusters, (uint32_t)items[i]);
    }
    for (unsigned k = 0; k < K; k++) {
        uint32_t row = b->places[b->truth.ids[q * b->truth.k + k]], first = ranks[reverse->cluster_of[row]];
        for (uint32_t i = reverse->at[row]; i < reverse->at[row + 1]; i++)
            first = ranks[reverse->lists[i]] < first ? ranks[reverse->lists[i]] : first;
        counts->found[first < PROBES_MAX ? first : PROBES_MAX]++;
    }
    free(distances);
    free(items);
    free(spare);
    free(ranks);
}

static void report(const struct bench *b, const struct clusters *clusters, const struct counts *counts)
{
    uint64_t longest = 0, found = 0, rows = 0, n_queries = b->queries.rows;
    uint32_t largest = 0;
    unsigned at = 0, target = 0;
    char reached[128] = "";
    for (uint32_t c = 0; c < clusters->n; c++) {
        uint32_t size = clusters->first[c + 1] - clusters->first[c];
        largest = size > largest ? size : largest;
        longest = list_rows(clusters, c) > longest ? list_rows(clusters, c) : longest;
    }
    printf(" %6u %5u %6lu %5.2f |", clusters->n, largest, longest,
           1 + (double)clusters->replica_at[clusters->n] / b->rows.n);
    for (uint32_t p = 0; p < PROBES_MAX && (at < N_PROBES || target < N_TARGETS); p++) {
        found += counts->found[p];
        rows += counts->rows[p];
        double recall = (double)found / (double)(n_queries * K);
        if (at < N_PROBES && p + 1 == probes[at]) {
            printf(" %.4f", recall);
            at++;
        }
        for (; target < N_TARGETS && recall >= targets[target]; target++) {
            size_t used = strlen(reached);
            snprintf(reached + used, sizeof reached - used, " %4u (%6.0f)", p + 1, (double)rows / (double)n_queries);
        }
    }
    printf(" |%s\n", reached);
    fflush(stdout);
}

static void measure(struct bench *b, struct clusters_config *config)
{
    struct clusters clusters;
    uint32_t dim = b->space.code_dim;
    find(b, config, &clusters);
    for (unsigned i = 0; i < b->replicas.n; i++) {
        struct clusters closed = {.n = clusters.n, .first = clusters.first};
        struct counts *counts = room(sizeof *counts);
        struct reverse reverse;
        config->replicas = (float)b->replicas.values[i] / 100;
        uint64_t begin = clock_ns();
        check(clusters_close(&b->rows, config, NULL, &closed), NULL);
        printf("%4u %2u %5.2f | %5.2f %5.2f |", config->rows, config->rounds, (double)config->replicas, b->seconds,
               (double)(clock_ns() - begin) * 1e-9);
        float *points = room(sizeof *points * closed.n * dim);
        for (uint32_t c = 0; c < closed.n; c++)
            code_decode(closed.points.codes + (size_t)c * dim, dim, 8, closed.points.f[c], points + (size_t)c * dim);
        reverse_set(&reverse, &closed, b->rows.n);
        for (uint64_t q = 0; q < b->queries.rows; q++)
            count_query(b, &closed, &reverse, points, q, counts);
        report(b, &closed, counts);
        free(reverse.at);
        free(reverse.lists);
        free(reverse.cluster_of);
        free(points);
        free(counts);
        closed.first = NULL;
        clusters_fini(&closed);
    }
    clusters_fini(&clusters);
    row_store_close(&b->rows);
}

static struct list parse_list(const char *text)
{
    struct list list = {0};
    for (char *end; *text && list.n < LIST_MAX; text = *end == ',' ? end + 1 : end) {
        list.values[list.n++] = (unsigned)strtoul(text, &end, 10);
        if (end == text)
            fail("no list of numbers");
    }
    return list;
}

static const char *const help = "bench_clusters BASE QUERIES TRUTH l2|cosine|ip [--rows 64,128,256] [--rounds 0,2,4,8] "
                                "[--replicas 100,150,200,300] [--threads 2] [--most 200] [--list 0] [--heads 1]";

static enum quire_metric take_options(int argc, char **argv, struct bench *b)
{
    static const struct option names[] = {
        {"rows", 1, 0, 'r'},  {"rounds", 1, 0, 'o'}, {"replicas", 1, 0, 'p'}, {"threads", 1, 0, 't'},
        {"heads", 1, 0, 'h'}, {"list", 1, 0, 'l'},   {"most", 1, 0, 'm'},     {0}};
    *b = (struct bench){.sizes = {3, {64, 128, 256}},
                        .rounds = {4, {0, 2, 4, 8}},
                        .replicas = {4, {100, 150, 200, 300}},
                        .threads = 2,
                        .most = 200};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (c == 'r' || c == 'o' || c == 'p')
            *(c == 'r' ? &b->sizes : c == 'o' ? &b->rounds : &b->replicas) = parse_list(optarg);
        else if (c == 't' || c == 'm' || c == 'h' || c == 'l')
            *(c == 't'   ? &b->threads
              : c == 'm' ? &b->most
              : c == 'l' ? &b->list
                         : &b->heads) = (unsigned)strtoul(optarg, NULL, 10);
        else
            fail("%s", help);
    }
    if (argc - optind != 4)
        fail("%s", help);
    const char *name = argv[optind + 3];
    return strcmp(name, "l2") == 0       ? QUIRE_METRIC_L2
           : strcmp(name, "cosine") == 0 ? QUIRE_METRIC_COSINE
           : strcmp(name, "ip") == 0     ? QUIRE_METRIC_IP
                                         : (fail("%s", help), QUIRE_METRIC_L2);
}

int main(int argc, char **argv)
{
    struct bench b;
    struct quire_error err;
    enum quire_metric metric = take_options(argc, argv, &b);
    check(vecfile_vectors_load(argv[optind], VECFILE_AUTO, &b.base, &err), &err);
    check(vecfile_vectors_load(argv[optind + 1], VECFILE_AUTO, &b.queries, &err), &err);
    check(truth_load(argv[optind + 2], &b.truth, &err), &err);
    if (b.truth.k < K || b.truth.n_queries < b.queries.rows || b.queries.dim != b.base.dim)
        fail("base, queries and truth do not belong together");
    set_space(&b, metric);
    encode(&b);
    printf("rows ro  repl |  find close |      n  most   list  mean | recall@10 with 4, 8, 16, 32, 64 probes | probes "
           "(rows) for 0.90, 0.95, 0.99\n");
    for (unsigned i = 0; i < b.sizes.n; i++)
        for (unsigned j = 0; j < b.rounds.n; j++) {
            uint32_t rows = b.sizes.values[i], most = rows * b.most / 100;
            struct clusters_config config = {.rows = rows,
                                             .most = most < rows ? rows : most,
                                             .rounds = b.rounds.values[j],
                                             .list_most = b.list ? rows * b.list / 100 : UINT32_MAX,
                                             .threads = b.threads,
                                             .seed = 1,
                                             .points_are_heads = b.heads,
                                             .window_rows = UINT32_MAX};
            measure(&b, &config);
        }
    space_fini(&b.space);
    truth_free(&b.truth);
    vecfile_vectors_free(&b.base);
    vecfile_vectors_free(&b.queries);
    free(b.order);
    free(b.places);
    free(b.rotated);
    return 0;
}
