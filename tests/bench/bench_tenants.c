/*
 * bench_tenants.c - what a tenant's query costs in an index that holds all tenants, beside the two other ways.
 *
 *   bench_tenants BASE QUERIES METRIC TENANTS INDEX [PER-CLASS [QUERIES-EACH [BUILT-EACH [JSON-FILE]]]]
 *
 * INDEX was built from BASE with --tenants TENANTS. Tenants fall in classes by their rows; of each class PER-CLASS
 * (30), spread over its sizes, are asked QUERIES-EACH (20) queries for the 10 nearest, one at a time. Exact answers
 * come from brute force over the tenant's rows alone, hits of others are counted (there must be none), and so are
 * answers of another number than min(10, rows).
 *
 *   shared        this index, with the tenant
 *   post-filter   this index without it, over-fetched by 10, 100 and 1,000, hits of others dropped
 *   one each      an index of the tenant's rows alone, for BUILT-EACH (3) tenants of each class: what it reads, keeps
 *                 in memory and on disk, and what that is for all tenants, by the classes' means
 *
 * Markdown on standard output; JSON-FILE gets an object per line of the tables. It checks nothing but prints what the
 * bars are about.
 */
#include "datasets/vecfile.h"
#include "index/column/columns.h"
#include "index/segment/segment_view.h"
#include "io/clock.h"
#include "tests/bench/support_bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define K          10u
#define CLASSES    5u
#define OVER_MAX   1000u
#define LINE_BYTES 4096u
#define NAME_BYTES 256u

static const uint32_t class_end[CLASSES] = {11, 101, 1001, 10001, UINT32_MAX};
static const char *const class_name[CLASSES] = {"1 to 10", "11 to 100", "101 to 1,000", "1,001 to 10,000",
                                                "more than 10,000"};

struct tenant {
    char *name;
    uint32_t n, room, *rows; /* ascending */
};

/* Sums over queries; reads_most is the most of one. */
struct tally {
    uint64_t queries, reads, reads_most, exact, wanted, right, strangers, too_few, too_many, plans[8];
    uint64_t *latencies;
    uint32_t n_latencies;
};

struct bench {
    struct vectors base, queries;
    enum quire_metric metric;
    struct tenant *tenants;
    uint32_t n_tenants, room, per_class, queries_each, built_each;
    uint64_t grants;
    struct quire_index *index;
    FILE *json;
    char folder[64];
};

static void *memory(void *p)
{
    if (p)
        return p;
    fprintf(stderr, "bench_tenants: no memory\n");
    exit(1);
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

struct named {
    char name[NAME_BYTES];
    uint32_t row;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->row > y->row) - (x->row < y->row);
}

static int by_rows(const void *a, const void *b)
{
    const struct tenant *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? -1 : 1) : strcmp(x->name, y->name);
}

static void add_grant(struct bench *b, const struct named *grant)
{
    struct tenant *t = b->n_tenants ? &b->tenants[b->n_tenants - 1] : NULL;
    if (!t || strcmp(t->name, grant->name) != 0) {
        if (b->n_tenants == b->room) {
            b->room = b->room ? 2 * b->room : 1024;
            b->tenants = memory(realloc(b->tenants, sizeof *b->tenants * b->room));
        }
        t = &b->tenants[b->n_tenants++];
        *t = (struct tenant){.name = memory(strdup(grant->name))};
    }
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 8;
        t->rows = memory(realloc(t->rows, sizeof *t->rows * t->room));
    }
    t->rows[t->n++] = grant->row;
}

static void read_tenants(struct bench *b, const char *path)
{
    char line[LINE_BYTES];
    struct named *grants = NULL;
    size_t n = 0, room = 0;
    uint32_t row = 0;
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(1);
    }
    for (; fgets(line, sizeof line, file); row++) {
        line[strcspn(line, "\n")] = 0;
        char *rest = line, *name;
        while ((name = strsep(&rest, " ")))
            if (*name) {
                if (n == room) {
                    room = room ? 2 * room : 65536;
                    grants = memory(realloc(grants, sizeof *grants * room));
                }
                snprintf(grants[n].name, NAME_BYTES, "%s", name);
                grants[n++].row = row;
            }
    }
    fclose(file);
    if (row != b->base.rows) {
        fprintf(stderr, "bench_tenants: %s has %u lines, the base has %llu rows\n", path, row,
                (unsigned long long)b->base.rows);
        exit(1);
    }
    qsort(grants, n, sizeof *grants, by_name);
    for (size_t i = 0; i < n; i++)
        add_grant(b, &grants[i]);
    b->grants = n;
    free(grants);
    qsort(b->tenants, b->n_tenants, sizeof *b->tenants, by_rows);
}

static uint32_t class_of(uint32_t rows)
{
    uint32_t c = 0;
    while (rows >= class_end[c])
        c++;
    return c;
}

/* First tenant of a class, and how many there are: they are ordered by size. */
static uint32_t class_begin(const struct bench *b, uint32_t c, uint32_t *n)
{
    uint32_t first = 0;
    while (first < b->n_tenants && class_of(b->tenants[first].n) < c)
        first++;
    *n = 0;
    while (first + *n < b->n_tenants && class_of(b->tenants[first + *n].n) == c)
        ++*n;
    return first;
}

static bool owns(const struct tenant *t, uint32_t row)
{
    uint32_t low = 0, high = t->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (t->rows[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->n && t->rows[low] == row;
}

/* ---- one tenant -------------------------------------------------------------------------------------------------- */

static struct vectors rows_of(const struct bench *b, const struct tenant *t)
{
    size_t bytes = b->base.dim * quire_type_bytes(b->base.type);
    struct vectors v = {memory(malloc(bytes * t->n)), t->n, b->base.dim, b->base.type};
    for (uint32_t i = 0; i < t->n; i++)
        memcpy((uint8_t *)v.data + i * bytes, (const uint8_t *)b->base.data + t->rows[i] * bytes, bytes);
    return v;
}

/* Queries begin at another place of the file for each tenant. */
static struct vectors queries_of(const struct bench *b, uint32_t tenant)
{
    size_t bytes = b->queries.dim * quire_type_bytes(b->queries.type);
    uint64_t first = (uint64_t)tenant * 7919u % (b->queries.rows - b->queries_each + 1);
    return (struct vectors){(uint8_t *)b->queries.data + first * bytes, b->queries_each, b->queries.dim,
                            b->queries.type};
}

static void count_hits(struct tally *tally, const struct tenant *t, const struct truth *truth, uint32_t query,
                       const struct quire_hit *hits, uint32_t n_hits, bool own_ids)
{
    uint32_t wanted = truth->k;
    float worst = truth->distances[(size_t)query * truth->k + truth->k - 1];
    tally->wanted += wanted;
    tally->too_few += n_hits < wanted;
    tally->too_many += n_hits > wanted;
    for (uint32_t i = 0; i < n_hits; i++) {
        bool right = false;
        uint32_t row = own_ids ? t->rows[hits[i].id] : (uint32_t)hits[i].id;
        tally->strangers += !owns(t, row);
        for (uint32_t j = 0; j < truth->k && !right; j++)
            right = t->rows[truth->ids[(size_t)query * truth->k + j]] == row;
        /* a tie with the last one; blocks may hold vectors rounded, so only what is exactly as near */
        tally->right += right || (owns(t, row) && hits[i].distance == worst);
    }
}

static void count_stats(struct tally *tally, const struct quire_search_stats *s)
{
    tally->queries++;
    tally->reads += s->reads;
    tally->reads_most = s->reads > tally->reads_most ? s->reads : tally->reads_most;
    tally->exact += s->exact;
    tally->plans[s->plan & 7]++;
    tally->latencies = memory(realloc(tally->latencies, sizeof *tally->latencies * (tally->n_latencies + 1u)));
    tally->latencies[tally->n_latencies++] = s->latency_ns;
}

/* over 0: with the tenant; otherwise so many times K without it, and hits of others dropped. */
static void ask(struct quire_index *index, const struct tenant *t, const struct vectors *queries,
                const struct truth *truth, uint32_t over, bool alone, struct tally *tally)
{
    static struct quire_hit hits[K * OVER_MAX];
    struct quire_search_options options;
    struct quire_bytes name = {t->name, strlen(t->name)};
    struct quire_error err = {0};
    float *query = memory(malloc(sizeof *query * queries->dim));
    quire_search_options_init(&options);
    options.k = over ? K * over : K;
    if (!over && !alone) {
        options.tenants = &name;
        options.n_tenants = 1;
    }
    for (uint32_t q = 0; q < queries->rows; q++) {
        struct quire_search_stats stats;
        uint32_t n_hits = 0, n = 0;
        const uint8_t *at = (const uint8_t *)queries->data + q * queries->dim * quire_type_bytes(queries->type);
        space_floats(queries->type, at, queries->dim, query);
        check(quire_search(index, query, &options, hits, &n_hits, &stats, &err), &err);
        for (uint32_t i = 0; over && i < n_hits; i++)
            if (n < K && owns(t, (uint32_t)hits[i].id))
                hits[n++] = hits[i];
        count_hits(tally, t, truth, q, hits, over ? n : n_hits, alone);
        count_stats(tally, &stats);
    }
    free(query);
}

/* ---- an index of one's own --------------------------------------------------------------------------------------- */

struct own {
    uint64_t n, disk, resident;
};

static void remove_folder(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0)
        fprintf(stderr, "bench_tenants: %s is left\n", path);
}

static void build_own(struct bench *b, const struct tenant *t, const struct vectors *rows,
                      const struct vectors *queries, const struct truth *truth, struct own *own, struct tally *tally)
{
    struct quire_build_options options;
    struct quire_open_options open;
    struct quire_index *index = NULL;
    struct quire_info shared, info;
    struct quire_error err = {0};
    char path[96];
    snprintf(path, sizeof path, "%s/own", b->folder);
    quire_get_info(b->index, &shared);
    quire_build_options_init(&options);
    options.metric = b->metric;
    options.index = shared.index;
    options.block_bytes = shared.block_bytes;
    check(quire_build(path, rows->data, rows->rows, rows->dim, rows->type, &options, &err), &err);
    quire_open_options_init(&open);
    open.no_cache = true;
    check(quire_open(path, &open, &index, &err), &err);
    quire_get_info(index, &info);
    own->n++;
    own->disk += info.index_bytes;
    own->resident += info.resident_bytes;
    ask(index, t, queries, truth, 0, true, tally);
    quire_close(index);
    remove_folder(path);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double latency_ms(struct tally *t, double share)
{
    if (t->n_latencies == 0)
        return 0;
    qsort(t->latencies, t->n_latencies, sizeof *t->latencies, by_value);
    return (double)t->latencies[(size_t)(share * (t->n_latencies - 1))] / 1e6;
}

static const char *most_frequent_plan(const struct tally *t)
{
    unsigned best = 0;
    for (unsigned i = 1; i < 8; i++)
        best = t->plans[i] > t->plans[best] ? i : best;
    return quire_plan_name((enum quire_plan)best);
}

static void print_row(const struct bench *b, const char *way, uint32_t c, uint32_t n_tenants, struct tally *t)
{
    double n = t->queries ? (double)t->queries : 1, recall = t->wanted ? (double)t->right / (double)t->wanted : 0;
    if (t->queries == 0)
        return;
    printf("| %s | %s | %u | %s | %.4f | %.1f | %llu | %.1f %% | %.2f / %.2f | %llu | %llu |\n", class_name[c], way,
           n_tenants, most_frequent_plan(t), recall, (double)t->reads / n, (unsigned long long)t->reads_most,
           100 * (double)t->exact / n, latency_ms(t, 0.5), latency_ms(t, 0.99),
           (unsigned long long)(t->too_few + t->too_many), (unsigned long long)t->strangers);
    fflush(stdout);
    if (b->json)
        fprintf(b->json,
                "{\"class\": \"%s\", \"way\": \"%s\", \"tenants\": %u, \"queries\": %llu, \"plan\": \"%s\", "
                "\"recall\": %.5f, \"reads\": %.3f, \"reads_most\": %llu, \"exact\": %.5f, \"p50_ms\": %.4f, "
                "\"p99_ms\": %.4f, \"too_few\": %llu, \"too_many\": %llu, \"strangers\": %llu}\n",
                class_name[c], way, n_tenants, (unsigned long long)t->queries, most_frequent_plan(t), recall,
                (double)t->reads / n, (unsigned long long)t->reads_most, (double)t->exact / n, latency_ms(t, 0.5),
                latency_ms(t, 0.99), (unsigned long long)t->too_few, (unsigned long long)t->too_many,
                (unsigned long long)t->strangers);
}

enum way { SHARED, OVER_10, OVER_100, OVER_1000, ONE_EACH, WAYS };
static const char *const way_name[WAYS] = {"shared", "post-filter, 10 x", "post-filter, 100 x", "post-filter, 1,000 x",
                                           "one index each"};
static const uint32_t way_over[WAYS] = {0, 10, 100, 1000, 0};

static void measure_class(struct bench *b, uint32_t c, struct own *own)
{
    uint32_t n, first = class_begin(b, c, &n), picked = n < b->per_class ? n : b->per_class;
    struct tally tallies[WAYS] = {0};
    struct quire_error err = {0};
    for (uint32_t i = 0; i < picked; i++) {
        uint32_t at = first + (uint32_t)((uint64_t)i * n / picked);
        const struct tenant *t = &b->tenants[at];
        struct vectors rows = rows_of(b, t), queries = queries_of(b, at);
        struct truth truth = {0};
        check(truth_compute(&rows, &queries, b->metric, t->n < K ? t->n : K, 1, NULL, NULL, &truth, &err), &err);
        for (unsigned way = SHARED; way < ONE_EACH; way++)
            ask(b->index, t, &queries, &truth, way_over[way], false, &tallies[way]);
        if (own->n < b->built_each)
            build_own(b, t, &rows, &queries, &truth, own, &tallies[ONE_EACH]);
        truth_free(&truth);
        free(rows.data);
    }
    for (unsigned way = 0; way < WAYS; way++) {
        print_row(b, way_name[way], c, way == ONE_EACH ? (uint32_t)own->n : picked, &tallies[way]);
        free(tallies[way].latencies);
    }
}

static void print_memory(const struct bench *b, const char *path, const struct own own[CLASSES])
{
    struct segment *segment = NULL;
    struct quire_error err = {0};
    struct columns_stats stats = {0};
    double disk = 0, resident = 0;
    struct quire_info shared;
    quire_get_info(b->index, &shared);
    check(segment_open(path, NULL, &segment, &err), &err);
    if (segment->columns)
        columns_get_stats(segment->columns, &stats);
    segment_unref(segment);
    for (uint32_t c = 0; c < CLASSES; c++) {
        uint32_t n;
        class_begin(b, c, &n);
        if (own[c].n > 0) {
            disk += (double)own[c].disk / (double)own[c].n * n;
            resident += (double)own[c].resident / (double)own[c].n * n;
        }
    }
    printf("\n%u tenants, %llu grants, %.2f bytes of memory per grant. Shared: %.1f MB on disk, %.1f MB resident. One "
           "index "
           "each, by the classes' means: %.1f MB on disk, %.1f MB resident, %u folders.\n",
           b->n_tenants, (unsigned long long)b->grants, (double)stats.tenant_bytes / (double)b->grants,
           (double)shared.index_bytes / 1e6, (double)shared.resident_bytes / 1e6, disk / 1e6, resident / 1e6,
           b->n_tenants);
    if (b->json)
        fprintf(b->json,
                "{\"tenants\": %u, \"grants\": %llu, \"bytes_per_grant\": %.3f, \"shared_disk\": %llu, "
                "\"shared_resident\": %llu, \"each_disk\": %.0f, \"each_resident\": %.0f}\n",
                b->n_tenants, (unsigned long long)b->grants, (double)stats.tenant_bytes / (double)b->grants,
                (unsigned long long)shared.index_bytes, (unsigned long long)shared.resident_bytes, disk, resident);
}

static uint32_t argument(int argc, char **argv, int i, uint32_t otherwise)
{
    return argc > i ? (uint32_t)strtoul(argv[i], NULL, 10) : otherwise;
}

static void begin(struct bench *b, int argc, char **argv)
{
    struct quire_open_options options;
    struct quire_error err = {0};
    check(vecfile_vectors_load(argv[1], VECFILE_AUTO, &b->base, &err), &err);
    check(vecfile_vectors_load(argv[2], VECFILE_AUTO, &b->queries, &err), &err);
    b->metric = strcmp(argv[3], "cosine") == 0 ? QUIRE_METRIC_COSINE
                : strcmp(argv[3], "ip") == 0   ? QUIRE_METRIC_IP
                                               : QUIRE_METRIC_L2;
    read_tenants(b, argv[4]);
    quire_open_options_init(&options);
    options.no_cache = true;
    check(quire_open(argv[5], &options, &b->index, &err), &err);
    b->per_class = argument(argc, argv, 6, 30);
    b->queries_each = argument(argc, argv, 7, 20);
    b->built_each = argument(argc, argv, 8, 3);
    if (b->queries_each > b->queries.rows)
        b->queries_each = (uint32_t)b->queries.rows;
    if (argc > 9 && !(b->json = fopen(argv[9], "w"))) {
        perror(argv[9]);
        exit(1);
    }
    const char *tmp = getenv("TMPDIR");
    snprintf(b->folder, sizeof b->folder, "%.40s/bench-tenants.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(b->folder)) {
        perror(b->folder);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct own own[CLASSES] = {0};
    if (argc < 6) {
        fprintf(stderr, "usage: bench_tenants BASE QUERIES METRIC TENANTS INDEX [PER-CLASS [QUERIES-EACH [BUILT-EACH "
                        "[JSON-FILE]]]]\n");
        return 2;
    }
    begin(&b, argc, argv);
    printf("| rows of the tenant | | tenants | plan | recall@10 | reads | most | exact | ms: p50 / p99 | not min(k, "
           "rows) | "
           "strangers |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t c = 0; c < CLASSES; c++)
        measure_class(&b, c, &own[c]);
    print_memory(&b, argv[5], own);
    if (b.json)
        fclose(b.json);
    rmdir(b.folder);
    quire_close(b.index);
    for (uint32_t i = 0; i < b.n_tenants; i++) {
        free(b.tenants[i].name);
        free(b.tenants[i].rows);
    }
    free(b.tenants);
    vecfile_vectors_free(&b.base);
    vecfile_vectors_free(&b.queries);
    return 0;
}
