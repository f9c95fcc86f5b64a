/*
 * bench_graph.c - the mutable graph alone: what a row costs in memory and time, and what is found, by degree and beam.
 *
 *   bench_graph [--base FILE --queries FILE | --dim 256 --clusters 4000 --intrinsic 32] [--rows 200000]
 *               [--queries-n 1000] [--degrees 8,16] [--beams 100] [--fill PERCENT] [--slack PERCENT] [--threads 1]
 *               [--churn 20000] [--roots 1] [--lowest LINKS] [--thinning BITS] [--descent BEAM]
 *
 * For each degree and each beam of insertion a graph is filled by `threads` threads with the first `rows` rows, under
 * cosine; then all queries are searched with beams 16, 32, 64 and 128 and compared with brute force over the vectors
 * themselves. A hit counts that is as near as the k-th of those. Then an image of the graph is saved, loaded into
 * another and mended. Last, `churn` times, a row is removed and a new one added and linked, as in a cache that is
 * full. With more than one root, row i lies below root i mod roots, and recall is not measured.
 *
 * Codes are made beforehand, so times are the graph's. Bytes per row are resident memory. Prints a line of JSON for
 * each graph. Nothing else should run on the machine.
 */
#include "datasets/generate.h"
#include "datasets/vecfile.h"
#include "index/graph/graph.h"
#include "index/vector/rows.h"
#include "index/vector/space.h"
#include "io/clock.h"
#include "io/histogram.h"
#include "io/memory.h"
#include "io/random.h"
#include "tests/bench/support_bench.h"
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { K = 10, LIST_MAX = 16, THREADS_MAX = 64, SUB_BITS = 6, VALUE_BITS = 40, IMAGE_ROWS = 4096 };

static const uint32_t search_beams[] = {16, 32, 64, 128};

struct list {
    unsigned n, values[LIST_MAX];
};

struct options {
    const char *base, *queries;
    unsigned long rows, n_queries, dim, clusters, intrinsic, threads, churn, roots, fill, slack, lowest, thinning,
        descent;
    struct list degrees, beams;
};

struct bench {
    struct options options;
    struct vectors base, queries; /* base: rows, then those that churn adds */
    struct space space;
    struct rows codes;
    struct truth truth;
    struct epochs *epochs;
    struct graph *graph;
    struct graph_root *roots;
    uint32_t *numbers; /* the graph's row of each vector */
    uint32_t *vectors; /* and back, by row number */
    pthread_mutex_t lock;
    struct histogram removes, adds;
};

struct worker {
    struct bench *bench;
    pthread_t thread;
    uint32_t number;
};

static double seconds_since(uint64_t begin)
{
    return (double)(clock_ns() - begin) * 1e-9;
}

static uint64_t resident_bytes(void)
{
    unsigned long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu %lu", &all, &resident) != 2)
        fail("no /proc/self/statm");
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void histogram_new(struct histogram *h)
{
    histogram_init(h, room(sizeof(uint64_t) * HISTOGRAM_BUCKETS(SUB_BITS, VALUE_BITS)), SUB_BITS, VALUE_BITS);
}

/* ---- vectors and codes ------------------------------------------------------------------------------------------- */

static void load_files(struct bench *b)
{
    struct quire_error err;
    check(vecfile_vectors_load(b->options.base, VECFILE_AUTO, &b->base, &err), &err);
    check(vecfile_vectors_load(b->options.queries, VECFILE_AUTO, &b->queries, &err), &err);
    if (b->base.type != QUIRE_TYPE_F32 || b->queries.type != QUIRE_TYPE_F32 || b->base.dim != b->queries.dim)
        fail("base and queries have to be f32 of the same dimension");
    if (b->options.churn >= b->base.rows)
        fail("the base has no rows for churn");
    if (b->options.rows > b->base.rows - b->options.churn)
        b->options.rows = b->base.rows - b->options.churn;
    if (b->queries.rows > b->options.n_queries)
        b->queries.rows = b->options.n_queries;
}

static float *vectors_room(size_t n)
{
    float *floats = memory_aligned(64, n * sizeof *floats);
    if (!floats)
        fail("no memory for vectors");
    return floats;
}

static void generate(struct bench *b)
{
    struct generate_options options;
    struct generator *generator;
    struct quire_error err;
    const struct options *o = &b->options;
    generate_options_init(&options);
    options.rows = o->rows + o->churn;
    options.dim = (uint32_t)o->dim;
    options.clusters = (uint32_t)o->clusters;
    options.intrinsic = (uint32_t)o->intrinsic;
    check(generate_create(&options, &generator, &err), &err);
    b->base = (struct vectors){vectors_room(options.rows * o->dim), options.rows, options.dim, QUIRE_TYPE_F32};
    b->queries = (struct vectors){vectors_room(o->n_queries * o->dim), o->n_queries, options.dim, QUIRE_TYPE_F32};
    check(generate_rows(generator, 0, b->base.rows, b->base.data, &err), &err);
    check(generate_queries(generator, 0, o->n_queries, b->queries.data, &err), &err);
    generate_destroy(generator);
}

static void encode(struct bench *b)
{
    struct quire_error err;
    if (space_init(&b->space, QUIRE_METRIC_COSINE, QUIRE_TYPE_F32, b->base.dim, 1) < 0 ||
        rows_alloc(&b->codes, (uint32_t)b->base.rows, b->space.code_dim) < 0)
        fail("no memory");
    uint32_t code_dim = b->space.code_dim;
    float *work = room(code_dim * sizeof *work);
    for (uint32_t i = 0; i < b->base.rows; i++) {
        space_row(&b->space, (const float *)b->base.data + (size_t)i * b->base.dim, work);
        float norm2 = 0;
        for (uint32_t j = 0; j < code_dim; j++)
            norm2 += work[j] * work[j];
        b->codes.f[i] = code_encode(work, code_dim, 8, b->codes.codes + (size_t)i * code_dim, NULL, NULL);
        b->codes.norm2[i] = norm2;
    }
    free(work);
    struct vectors base = b->base;
    base.rows = b->options.rows;
    if (b->options.roots == 1)
        check(truth_compute(&base, &b->queries, QUIRE_METRIC_COSINE, K, 2, NULL, NULL, &b->truth, &err), &err);
}

/* ---- inserting --------------------------------------------------------------------------------------------------- */

static struct graph_scratch *scratch_new(void)
{
    struct graph_scratch *scratch;
    struct quire_error err;
    check(graph_scratch_create(&scratch, &err), &err);
    return scratch;
}

static struct graph_root *root_of_vector(const struct bench *b, uint32_t vector)
{
    return &b->roots[vector % b->options.roots];
}

static void add(struct bench *b, struct graph_scratch *scratch, uint32_t vector)
{
    uint32_t row;
    unsigned slot = epoch_enter(b->epochs);
    if (graph_add(b->graph, b->codes.codes + (size_t)vector * b->codes.code_dim, b->codes.f[vector],
                  b->codes.norm2[vector], &row) < 0)
        fail("no memory for a row");
    b->numbers[vector] = row;
    b->vectors[row] = vector;
    if (graph_link(b->graph, root_of_vector(b, vector), scratch, row) < 0)
        fail("no memory to link a row");
    epoch_exit(b->epochs, slot);
}

static void *fill(void *context)
{
    struct worker *worker = context;
    struct bench *b = worker->bench;
    struct graph_scratch *scratch = scratch_new();
    for (uint32_t i = worker->number; i < b->options.rows; i += (uint32_t)b->options.threads)
        add(b, scratch, i);
    graph_scratch_destroy(scratch);
    return NULL;
}

/* Removes vectors in an order that follows from the thread's number alone, and adds those behind the first rows. */
static void *churn(void *context)
{
    struct worker *worker = context;
    struct bench *b = worker->bench;
    struct graph_scratch *scratch = scratch_new();
    struct histogram removes, adds;
    uint32_t threads = (uint32_t)b->options.threads, share = (uint32_t)b->options.rows / (uint32_t)b->options.churn;
    histogram_new(&removes);
    histogram_new(&adds);
    for (uint32_t i = worker->number; i < b->options.churn; i += threads) {
        uint32_t victim = i * (share ? share : 1);
        uint64_t begin = clock_ns();
        unsigned slot = epoch_enter(b->epochs);
        graph_remove(b->graph, root_of_vector(b, victim), scratch, b->numbers[victim]);
        epoch_exit(b->epochs, slot);
        uint64_t middle = clock_ns();
        histogram_add(&removes, middle - begin);
        add(b, scratch, (uint32_t)b->options.rows + i);
        histogram_add(&adds, clock_ns() - middle);
    }
    pthread_mutex_lock(&b->lock);
    histogram_merge(&b->removes, &removes);
    histogram_merge(&b->adds, &adds);
    pthread_mutex_unlock(&b->lock);
    free(removes.counts);
    free(adds.counts);
    graph_scratch_destroy(scratch);
    return NULL;
}

static double run_threads(struct bench *b, void *(*run)(void *))
{
    struct worker workers[THREADS_MAX];
    uint64_t begin = clock_ns();
    for (uint32_t i = 0; i < b->options.threads; i++) {
        workers[i] = (struct worker){.bench = b, .number = i};
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
            fail("no thread");
    }
    for (uint32_t i = 0; i < b->options.threads; i++)
        pthread_join(workers[i].thread, NULL);
    return seconds_since(begin);
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

static float cosine_distance(const float *a, const float *b, uint32_t dim)
{
    double dot = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < dim; i++) {
        dot += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return (float)(1 - dot / sqrt(aa * bb));
}

/* Hits among the first k of their order by true distance, as a caller who scores them again would have them. */
static uint32_t hits_right(const struct bench *b, uint32_t q, const struct graph_hit *hits, uint32_t n, uint32_t k)
{
    const float *query = (const float *)b->queries.data + (size_t)q * b->queries.dim;
    float kth = b->truth.distances[(size_t)q * K + k - 1];
    uint32_t right = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float *row = (const float *)b->base.data + (size_t)b->vectors[hits[i].row] * b->base.dim;
        right += cosine_distance(query, row, b->base.dim) <= kth + 1e-5f * (1 + fabsf(kth));
    }
    return right < k ? right : k;
}

static void search_all(struct bench *b, struct graph_scratch *scratch, uint32_t beam)
{
    struct histogram times;
    struct graph_stats before;
    struct graph_hit hits[K];
    graph_get_stats(b->graph, &before);
    float *query = room(b->space.code_dim * sizeof *query), norm2;
    uint32_t n_queries = (uint32_t)b->queries.rows, right1 = 0, right10 = 0;
    histogram_new(&times);
    for (unsigned round = 0; round < 2; round++) /* the first warms up */
        for (uint32_t q = 0; q < n_queries; q++) {
            space_query(&b->space, (const float *)b->queries.data + (size_t)q * b->queries.dim, query, &norm2);
            uint64_t begin = clock_ns();
            unsigned slot = epoch_enter(b->epochs);
            if (graph_query(b->graph, scratch, query) < 0)
                fail("no memory for a query");
            uint32_t n = graph_search(b->graph, &b->roots[q % b->options.roots], scratch, beam, NULL, NULL, hits, K);
            epoch_exit(b->epochs, slot);
            if (round == 0)
                continue;
            histogram_add(&times, clock_ns() - begin);
            right1 += b->truth.distances ? hits_right(b, q, hits, n, 1) : 0;
            right10 += b->truth.distances ? hits_right(b, q, hits, n, K) : 0;
        }
    printf("%s{\"beam\": %u", beam == search_beams[0] ? "" : ", ", beam);
    if (b->truth.distances)
        printf(", \"recall_1\": %.4f, \"recall_10\": %.4f", (double)right1 / n_queries,
               (double)right10 / (n_queries * (double)K));
    struct graph_stats after;
    graph_get_stats(b->graph, &after);
    printf(", \"distances\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f}",
           (double)(after.distances - before.distances) / (2.0 * n_queries), histogram_percentile(&times, 0.5) * 1e-3,
           histogram_percentile(&times, 0.99) * 1e-3);
    free(times.counts);
    free(query);
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

static struct graph_root *root_of_row(void *context, uint32_t row)
{
    struct bench *b = context;
    return root_of_vector(b, b->vectors[row]);
}

/* Saves the graph and makes another of the image; the roots are the other's then. */
static void restore(struct bench *b, const struct graph_config *config)
{
    struct quire_error err;
    struct graph *graph;
    uint32_t end = graph_row_end(b->graph);
    uint8_t *image = room(graph_image_bytes(b->graph, 0, end));
    size_t bytes = 0, *starts = room((end / IMAGE_ROWS + 2) * sizeof *starts);
    uint64_t begin = clock_ns();
    for (uint32_t first = 0; first < end; first += IMAGE_ROWS) {
        unsigned slot = epoch_enter(b->epochs);
        bytes += graph_image_save(b->graph, first, end - first < IMAGE_ROWS ? end - first : IMAGE_ROWS, image + bytes);
        epoch_exit(b->epochs, slot);
        starts[first / IMAGE_ROWS + 1] = bytes;
    }
    double saved = seconds_since(begin);
    graph_destroy(b->graph);
    check(graph_create(config, &graph, &err), &err);
    begin = clock_ns();
    for (uint32_t first = 0; first < end; first += IMAGE_ROWS) {
        const size_t *start = &starts[first / IMAGE_ROWS];
        uint32_t n = end - first < IMAGE_ROWS ? end - first : IMAGE_ROWS;
        check(graph_image_load(graph, first, n, image + start[0], start[1] - start[0], &err), &err);
    }
    double loaded = seconds_since(begin);
    for (uint32_t i = 0; i < b->options.roots; i++)
        graph_root_init(&b->roots[i]);
    struct graph_mending mending = {.root_of = root_of_row, .context = b};
    begin = clock_ns();
    if (graph_mend(graph, &mending) < 0)
        fail("no memory for mending");
    graph_place_end(graph);
    printf(", \"image\": {\"bytes_per_row\": %.1f, \"save_s\": %.3f, \"load_s\": %.3f, \"mend_s\": %.3f, "
           "\"unlinked\": %u, \"links_mended\": %llu}",
           (double)bytes / end, saved, loaded, seconds_since(begin), mending.n_unlinked,
           (unsigned long long)(mending.links_added + mending.links_dropped));
    b->graph = graph;
    free(image);
    free(starts);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void report_churn(struct bench *b)
{
    histogram_new(&b->removes);
    histogram_new(&b->adds);
    double seconds = run_threads(b, churn);
    printf(
        ", \"churn\": {\"per_second\": %.0f, \"remove_p50_us\": %.0f, \"remove_p99_us\": %.0f, \"add_p50_us\": %.0f, "
        "\"add_p99_us\": %.0f}",
        (double)b->options.churn / seconds, histogram_percentile(&b->removes, 0.5) * 1e-3,
        histogram_percentile(&b->removes, 0.99) * 1e-3, histogram_percentile(&b->adds, 0.5) * 1e-3,
        histogram_percentile(&b->adds, 0.99) * 1e-3);
    free(b->removes.counts);
    free(b->adds.counts);
}

static void measure(struct bench *b, unsigned degree, unsigned beam)
{
    struct quire_error err;
    struct graph_stats stats;
    struct graph_config config = {
        .code_dim = b->space.code_dim, .degree = degree, .beam = beam, .seed = 1, .epochs = b->epochs};
    config.lowest = (unsigned)b->options.lowest;
    config.thinning = (unsigned)b->options.thinning;
    config.descent = (unsigned)b->options.descent;
    config.fill = (config.lowest ? config.lowest : 2 * degree) * (unsigned)b->options.fill / 100;
    config.slack = (float)b->options.slack * 0.01f;
    b->roots = room(b->options.roots * sizeof *b->roots);
    b->numbers = room(b->base.rows * sizeof *b->numbers);
    b->vectors = room(b->base.rows * sizeof *b->vectors);
    memset(b->numbers, 0xff, b->base.rows * sizeof *b->numbers); /* resident now */
    memset(b->vectors, 0xff, b->base.rows * sizeof *b->vectors);
    uint64_t before = resident_bytes();
    check(graph_create(&config, &b->graph, &err), &err);
    double seconds = run_threads(b, fill);
    uint64_t bytes = resident_bytes() - before;
    graph_get_stats(b->graph, &stats);
    printf(
        "{\"rows\": %lu, \"dim\": %u, \"degree\": %u, \"beam\": %u, \"lowest\": %u, \"thinning\": %u, \"descent\": %u, "
        "\"fill\": %u, \"slack\": %.2f, \"threads\": %lu, \"roots\": %lu, "
        "\"inserts_per_second\": %.0f, \"distances_per_insert\": %.0f, \"resident_bytes_per_row\": %.1f, "
        "\"counted_bytes_per_row\": %.1f, \"search\": [",
        b->options.rows, b->base.dim, degree, beam, config.lowest, config.thinning, config.descent, config.fill,
        (double)config.slack, b->options.threads, b->options.roots, (double)b->options.rows / seconds,
        (double)stats.distances / (double)b->options.rows, (double)bytes / (double)b->options.rows,
        (double)stats.bytes / (double)b->options.rows);
    struct graph_scratch *scratch = scratch_new();
    for (unsigned i = 0; i < sizeof search_beams / sizeof *search_beams; i++)
        search_all(b, scratch, search_beams[i]);
    printf("]");
    graph_scratch_destroy(scratch);
    restore(b, &config);
    if (b->options.churn)
        report_churn(b);
    printf("}\n");
    fflush(stdout);
    graph_destroy(b->graph);
    epochs_collect(b->epochs);
    free(b->roots);
    free(b->numbers);
    free(b->vectors);
}

static const char *const help =
    "bench_graph [--base FILE --queries FILE | --dim 256 --clusters 4000 --intrinsic 32] [--rows 200000]\n"
    "            [--queries-n 1000] [--degrees 8,16] [--beams 100] [--threads 1] [--churn 20000] [--roots 1]\n"
    "            [--lowest LINKS] [--thinning BITS] [--descent BEAM] [--fill PERCENT-OF-LOWEST] [--slack PERCENT]\n"
    "Inserts, searches, saves, restores and churns the mutable graph; a line of JSON for each degree and beam.\n";

static struct list parse_list(const char *text)
{
    struct list list = {0};
    for (char *end; *text && list.n < LIST_MAX; text = *end == ',' ? end + 1 : end) {
        list.values[list.n++] = (unsigned)strtoul(text, &end, 10);
        if (end == text)
            fail("'%s' is no list of numbers", text);
    }
    return list;
}

static void take_options(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {{"base", 1, 0, 'b'},
                                          {"queries", 1, 0, 'q'},
                                          {"rows", 1, 0, 'n'},
                                          {"queries-n", 1, 0, 'Q'},
                                          {"dim", 1, 0, 'd'},
                                          {"clusters", 1, 0, 'c'},
                                          {"intrinsic", 1, 0, 'i'},
                                          {"degrees", 1, 0, 'D'},
                                          {"beams", 1, 0, 'B'},
                                          {"threads", 1, 0, 't'},
                                          {"churn", 1, 0, 'C'},
                                          {"roots", 1, 0, 'r'},
                                          {"fill", 1, 0, 'f'},
                                          {"slack", 1, 0, 's'},
                                          {"lowest", 1, 0, 'l'},
                                          {"thinning", 1, 0, 'T'},
                                          {"descent", 1, 0, 'e'},
                                          {"help", 0, 0, 'h'},
                                          {0}};
    *o = (struct options){.rows = 200000,
                          .n_queries = 1000,
                          .dim = 256,
                          .clusters = 4000,
                          .intrinsic = 32,
                          .threads = 1,
                          .churn = 20000,
                          .roots = 1,
                          .fill = 100,
                          .slack = 100,
                          .degrees = {2, {8, 16}},
                          .beams = {1, {100}}};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        unsigned long *const numbers[128] = {
            ['n'] = &o->rows,    ['Q'] = &o->n_queries, ['d'] = &o->dim,    ['c'] = &o->clusters, ['i'] = &o->intrinsic,
            ['t'] = &o->threads, ['f'] = &o->fill,      ['s'] = &o->slack,  ['C'] = &o->churn,    ['r'] = &o->roots,
            ['l'] = &o->lowest,  ['T'] = &o->thinning,  ['e'] = &o->descent};
        if (c == '?')
            exit(2);
        if (c == 'h') {
            printf("%s", help);
            exit(0);
        }
        if (numbers[c])
            *numbers[c] = strtoul(optarg, NULL, 10);
        else if (c == 'b' || c == 'q')
            *(c == 'b' ? &o->base : &o->queries) = optarg;
        else
            *(c == 'D' ? &o->degrees : &o->beams) = parse_list(optarg);
    }
    if (!o->base != !o->queries || !o->rows || !o->threads || o->threads > THREADS_MAX || !o->roots ||
        o->churn > o->rows || !o->n_queries || o->rows + o->churn > QUIRE_ROWS_MAX)
        fail("--base goes with --queries; rows, queries-n, threads (at most %d) and roots are at least 1; churn is at "
             "most rows",
             THREADS_MAX);
}

int main(int argc, char **argv)
{
    struct bench *b = room(sizeof *b);
    take_options(argc, argv, &b->options);
    if (b->options.base)
        load_files(b);
    else
        generate(b);
    encode(b);
    if (epochs_create(&b->epochs) < 0)
        fail("no memory");
    pthread_mutex_init(&b->lock, NULL);
    for (unsigned i = 0; i < b->options.degrees.n; i++)
        for (unsigned j = 0; j < b->options.beams.n; j++)
            measure(b, b->options.degrees.values[i], b->options.beams.values[j]);
    pthread_mutex_destroy(&b->lock);
    epochs_destroy(b->epochs);
    truth_free(&b->truth);
    rows_free(&b->codes);
    space_fini(&b->space);
    vecfile_vectors_free(&b->base);
    vecfile_vectors_free(&b->queries);
    free(b);
    return 0;
}
