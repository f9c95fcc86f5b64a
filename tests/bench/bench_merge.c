/*
 * bench_merge.c - a merge beside a build of the same rows: processor time by phase, recall and reads at equal efforts.
 *
 *   bench_merge BASE QUERIES METRIC FIRST NEW [DEAD-PERCENT [THREADS [MEMORY-MIB [KIND [ROUNDS]]]]]
 *
 * The first FIRST rows of BASE become a segment; of these DEAD-PERCENT leave; NEW rows that follow are merged in from
 * memory, in ROUNDS merges (1), each with the segment that the one before it made. KIND: pagegraph or spann. The same
 * rows are then built anew. Exact answers come from brute force over the rows that live. Processor time is printed,
 * because other programs on the machine move the clock but hardly that. docs/performance.md has its output; it checks
 * nothing.
 */
#include "datasets/vecfile.h"
#include "index/build/build.h"
#include "index/build/merge.h"
#include "io/bitmap.h"
#include "io/random.h"
#include "tests/bench/support_bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PHASES_MAX 24u
#define K          10u

static const uint32_t efforts[] = {40, 64, 100, 160, 225, 320, 450}, list_efforts[] = {4, 8, 12, 16, 24, 48, 96};

struct clock_of_phases {
    const char *names[PHASES_MAX];
    double seconds[PHASES_MAX];
    unsigned n;
    double last, total;
};

struct bench {
    struct vectors base, queries;
    enum quire_metric metric;
    uint32_t first, new, dead_percent, n; /* n: rows that live */
    unsigned threads, rounds;
    uint64_t memory_bytes;
    enum quire_index_kind kind;
    size_t row_bytes;
    uint32_t *living; /* rows of base, those of the first part before the new ones */
    struct truth truth;
    char folder[64];
};

/* The time since the last report belongs to the phase that reports. */
static int on_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct clock_of_phases *c = context;
    double now = processor_seconds();
    unsigned i = 0;
    (void)done;
    (void)total;
    while (i < c->n && strcmp(c->names[i], phase) != 0)
        i++;
    if (i == PHASES_MAX)
        return 0;
    c->names[i] = phase;
    c->n = i == c->n ? i + 1 : c->n;
    c->seconds[i] += now - c->last;
    c->last = now;
    return 0;
}

static struct quire_build_options options_of(const struct bench *b, struct clock_of_phases *clock)
{
    struct quire_build_options o;
    quire_build_options_init(&o);
    o.metric = b->metric;
    o.index = b->kind;
    o.threads = b->threads;
    o.build_memory_bytes = b->memory_bytes;
    if (clock) {
        *clock = (struct clock_of_phases){.last = processor_seconds(), .total = processor_seconds()};
        o.progress = on_progress;
        o.context = clock;
    }
    return o;
}

static const uint8_t *row_of(const struct bench *b, uint32_t row)
{
    return (const uint8_t *)b->base.data + row * b->row_bytes;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

struct new_rows {
    const struct bench *b;
    uint32_t first;
    char (*keys)[16];
};

static void give_row(void *context, uint32_t i, void *vector, const void **key, uint32_t *key_bytes,
                     const char **attributes, uint32_t *attribute_bytes)
{
    struct new_rows *rows = context;
    uint32_t row = rows->first + i;
    memcpy(vector, row_of(rows->b, row), rows->b->row_bytes);
    *key = rows->keys[i];
    *key_bytes = (uint32_t)snprintf(rows->keys[i], sizeof rows->keys[i], "%u", row);
    *attributes = NULL;
    *attribute_bytes = 0;
}

static int take_id(void *context, const struct scanned_row *row)
{
    uint32_t *ids = context;
    ids[row->row] = (uint32_t)row->id;
    return 0;
}

static struct segment *open_segment(const char *path)
{
    struct segment *segment = NULL;
    struct quire_error err;
    check(segment_open(path, NULL, &segment, &err), &err);
    return segment;
}

/* The first part, and which of its rows are dead: bitmap by row of the segment; *ids: their rows of base. */
static struct segment *first_part(struct bench *b, uint8_t **dead, uint32_t **ids)
{
    char path[100];
    struct quire_error err;
    struct quire_build_options options = options_of(b, NULL);
    struct random random;
    snprintf(path, sizeof path, "%s/first", b->folder);
    options.build_memory_bytes = 0;
    check(quire_build(path, b->base.data, b->first, b->base.dim, b->base.type, &options, &err), &err);
    struct segment *segment = open_segment(path);
    *ids = room(sizeof(uint32_t) * b->first);
    *dead = room(b->first / 8 + 1);
    check(segment_scan(segment, NULL, take_id, NULL, *ids, &err), &err);
    random_init(&random, 1);
    b->living = room(sizeof(uint32_t) * (b->first + b->new));
    for (uint32_t i = 0; i < b->first; i++)
        if (random_below(&random, 100) < b->dead_percent)
            bitmap_add(*dead, i);
        else
            b->living[b->n++] = (*ids)[i];
    for (uint32_t i = 0; i < b->new; i++)
        b->living[b->n++] = b->first + i;
    return segment;
}

/* Merges n rows of base from `first` on with a segment into `path`. rows_of_segment: its rows of base; returns those of
 * the result. */
static uint32_t *merge_once(const struct bench *b, struct segment *segment, const uint8_t *dead,
                            const uint32_t *rows_of_segment, uint32_t first, uint32_t n, const char *path,
                            struct clock_of_phases *clock)
{
    struct merge_segment part = {segment, dead};
    struct merge_options options = {.build = options_of(b, NULL), .type = b->base.type, .dim = b->base.dim};
    struct new_rows context = {b, first, room(sizeof *context.keys * b->new)};
    struct merge_rows rows = {.n = n, .type = b->base.type, .row = give_row, .context = &context};
    struct merge_result result;
    struct quire_error err;
    options.build.progress = on_progress;
    options.build.context = clock;
    check(merge_build(path, &part, 1, &rows, &options, &result, &err), &err);
    uint32_t *base_rows = room(sizeof *base_rows * result.rows);
    for (uint32_t i = 0; i < segment_info(segment)->rows; i++)
        if (result.rows_of[0][i] != UINT32_MAX)
            base_rows[result.rows_of[0][i]] = rows_of_segment[i];
    for (uint32_t i = 0; i < n; i++)
        base_rows[result.rows_of[1][i]] = first + i;
    printf("%u of %llu rows kept their %s\n", result.reused_rows, (unsigned long long)result.rows,
           b->kind == QUIRE_INDEX_SPANN ? "clusters" : "edges");
    merge_result_fini(&result);
    free(context.keys);
    return base_rows;
}

/* All rounds; the last merges into `path`. Lets the segment and ids go. Returns the rows of base by row of the result.
 */
static uint32_t *merge(const struct bench *b, struct segment *segment, const uint8_t *dead, uint32_t *ids,
                       const char *path, struct clock_of_phases *clock)
{
    *clock = (struct clock_of_phases){.last = processor_seconds(), .total = processor_seconds()};
    for (unsigned round = 0; round < b->rounds; round++) {
        char to[100];
        uint32_t from = (uint32_t)((uint64_t)b->new *round / b->rounds);
        uint32_t until = (uint32_t)((uint64_t)b->new *(round + 1) / b->rounds);
        bool last = round + 1 == b->rounds;
        snprintf(to, sizeof to, last ? "%s" : "%s.%u", path, round);
        uint32_t *next =
            merge_once(b, segment, round == 0 ? dead : NULL, ids, b->first + from, until - from, to, clock);
        segment_unref(segment);
        free(ids);
        ids = next;
        segment = last ? NULL : open_segment(to);
    }
    clock->total = processor_seconds() - clock->total;
    return ids;
}

static void build_anew(const struct bench *b, const uint8_t *vectors, const char *path, struct clock_of_phases *clock,
                       uint32_t *base_rows)
{
    struct quire_build_options options = options_of(b, clock);
    struct quire_error err;
    char(*texts)[16] = room(sizeof *texts * b->n);
    const void **keys = room(sizeof *keys * b->n);
    uint32_t *bytes = room(sizeof *bytes * b->n), *ids = room(sizeof *ids * b->n);
    for (uint32_t i = 0; i < b->n; i++) {
        bytes[i] = (uint32_t)snprintf(texts[i], sizeof texts[i], "%u", b->living[i]);
        keys[i] = texts[i];
    }
    options.keys = keys;
    options.key_bytes = bytes;
    options.build_memory_bytes = 0;
    check(quire_build(path, vectors, b->n, b->base.dim, b->base.type, &options, &err), &err);
    clock->total = processor_seconds() - clock->total;
    struct segment *segment = open_segment(path);
    check(segment_scan(segment, NULL, take_id, NULL, ids, &err), &err);
    for (uint32_t i = 0; i < b->n; i++)
        base_rows[i] = b->living[ids[i]];
    segment_unref(segment);
    free(texts);
    free(keys);
    free(bytes);
    free(ids);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Recall and reads at an effort; 0: at recall 0.95. */
static void measure(const struct bench *b, const char *path, const uint32_t *base_rows, uint32_t effort, double *recall,
                    double *reads, uint32_t *used)
{
    struct quire_index *index = NULL;
    struct quire_search_options options;
    struct quire_error err;
    uint32_t n = b->truth.n_queries, dim = b->base.dim;
    struct quire_hit *hits = room(sizeof *hits * n * K);
    struct quire_search_stats *stats = room(sizeof *stats * n);
    uint32_t *n_hits = room(sizeof *n_hits * n);
    uint64_t found = 0, all_reads = 0;
    quire_search_options_init(&options);
    options.k = K;
    options.effort = effort;
    options.recall = effort ? 0 : 0.95f;
    check(quire_open(path, NULL, &index, &err), &err);
    float *queries = room(sizeof(float) * n * dim);
    for (size_t i = 0; i < (size_t)n * dim; i++)
        queries[i] = b->queries.type == QUIRE_TYPE_U8 ? ((const uint8_t *)b->queries.data)[i]
                                                      : ((const float *)b->queries.data)[i];
    check(quire_search_batch(index, queries, n, &options, 1, 32, hits, n_hits, stats, &err), &err);
    for (uint32_t q = 0; q < n; q++) {
        for (uint32_t i = 0; i < n_hits[q]; i++)
            for (uint32_t j = 0; j < K; j++)
                found += b->living[b->truth.ids[(size_t)q * b->truth.k + j]] == base_rows[hits[q * K + i].row];
        all_reads += stats[q].reads;
    }
    *recall = (double)found / ((double)n * K);
    *reads = (double)all_reads / n;
    *used = stats[0].effort;
    quire_close(index);
    free(queries);
    free(hits);
    free(stats);
    free(n_hits);
}

static void print_times(const struct clock_of_phases *merged, const struct clock_of_phases *anew)
{
    printf("%-30s %8s %8s\n", "processor seconds", "merge", "anew");
    for (unsigned i = 0; i < merged->n; i++) {
        unsigned j = 0;
        while (j < anew->n && strcmp(anew->names[j], merged->names[i]) != 0)
            j++;
        printf("%-30s %8.2f %8.2f\n", merged->names[i], merged->seconds[i], j < anew->n ? anew->seconds[j] : 0);
    }
    printf("%-30s %8.2f %8.2f  ratio %.2f\n", "all", merged->total, anew->total, merged->total / anew->total);
}

static void run(struct bench *b)
{
    char merged_path[100], anew_path[100];
    struct clock_of_phases merged, anew;
    struct quire_error err;
    uint8_t *dead;
    uint32_t *ids;
    struct segment *segment = first_part(b, &dead, &ids);
    uint32_t *anew_rows = room(sizeof(uint32_t) * b->n);
    uint8_t *vectors = room(b->n * b->row_bytes);
    for (uint32_t i = 0; i < b->n; i++)
        memcpy(vectors + i * b->row_bytes, row_of(b, b->living[i]), b->row_bytes);
    snprintf(merged_path, sizeof merged_path, "%s/merged", b->folder);
    snprintf(anew_path, sizeof anew_path, "%s/anew", b->folder);
    uint32_t *merged_rows = merge(b, segment, dead, ids, merged_path, &merged);
    build_anew(b, vectors, anew_path, &anew, anew_rows);
    print_times(&merged, &anew);
    struct vectors living = {vectors, b->n, b->base.dim, b->base.type};
    check(truth_compute(&living, &b->queries, b->metric, K, 2, NULL, NULL, &b->truth, &err), &err);
    printf("%-10s %8s %8s %8s %8s\n", "effort", "merge", "anew", "reads", "anew");
    for (size_t i = 0; i <= sizeof efforts / sizeof *efforts; i++) {
        uint32_t effort = 0, used[2];
        double recall[2], reads[2];
        if (i < sizeof efforts / sizeof *efforts)
            effort = b->kind == QUIRE_INDEX_SPANN ? list_efforts[i] : efforts[i];
        measure(b, merged_path, merged_rows, effort, &recall[0], &reads[0], &used[0]);
        measure(b, anew_path, anew_rows, effort, &recall[1], &reads[1], &used[1]);
        if (effort)
            printf("%-10u", effort);
        else
            printf("%u/%-6u", used[0], used[1]);
        printf(" %8.4f %8.4f %8.2f %8.2f\n", recall[0], recall[1], reads[0], reads[1]);
    }
    check(quire_verify(merged_path, NULL, NULL, NULL, NULL, &err), &err);
}

int main(int argc, char **argv)
{
    struct bench b = {.threads = 1, .rounds = 1};
    struct quire_error err;
    char command[100];
    if (argc < 6) {
        fprintf(stderr,
                "bench_merge BASE QUERIES METRIC FIRST NEW [DEAD-PERCENT [THREADS [MEMORY-MIB [KIND [ROUNDS]]]]]\n");
        return 2;
    }
    check(vecfile_vectors_load(argv[1], VECFILE_AUTO, &b.base, &err), &err);
    check(vecfile_vectors_load(argv[2], VECFILE_AUTO, &b.queries, &err), &err);
    for (int m = QUIRE_METRIC_L2; m <= QUIRE_METRIC_IP; m++)
        if (strcmp(argv[3], quire_metric_name((enum quire_metric)m)) == 0)
            b.metric = (enum quire_metric)m;
    b.first = (uint32_t)strtoul(argv[4], NULL, 10);
    b.new = (uint32_t)strtoul(argv[5], NULL, 10);
    b.dead_percent = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 0;
    b.threads = argc > 7 ? (unsigned)strtoul(argv[7], NULL, 10) : 1;
    b.memory_bytes = argc > 8 ? strtoull(argv[8], NULL, 10) << 20 : 0;
    b.kind = argc > 9 && strcmp(argv[9], "spann") == 0 ? QUIRE_INDEX_SPANN : QUIRE_INDEX_PAGEGRAPH;
    b.rounds = argc > 10 ? (unsigned)strtoul(argv[10], NULL, 10) : 1;
    b.row_bytes = b.base.dim * quire_type_bytes(b.base.type);
    if ((uint64_t)b.first + b.new > b.base.rows || b.first == 0 || b.rounds == 0 || b.new < b.rounds) {
        fprintf(stderr, "bench_merge: %s has %llu rows\n", argv[1], (unsigned long long)b.base.rows);
        return 2;
    }
    snprintf(b.folder, sizeof b.folder, "/tmp/quire-bench-merge-XXXXXX");
    if (!mkdtemp(b.folder)) {
        perror("bench_merge: mkdtemp");
        return 1;
    }
    run(&b);
    snprintf(command, sizeof command, "rm -r '%s'", b.folder);
    return system(command) == 0 ? 0 : 1;
}
