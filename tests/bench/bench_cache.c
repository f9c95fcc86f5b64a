/*
 * bench_cache.c - a semantic cache alone: memory, lookups, inserts at capacity, recall, restart.
 *
 *   bench_cache FOLDER [--rows 1000000] [--dim 256] [--clusters 4000] [--intrinsic 32] [--value 2048] [--queries 20000]
 *               [--inserts 100000] [--truth 200] [--threads 2] [--memory BYTES] [--scopes 1] [--seal ROWS]
 *
 * Fills a cache in the new folder FOLDER with `rows` generated vectors and answers of `value` bytes (a folder that an
 * earlier run with the same options has left is used as it is), then measures:
 *   fill      entries per second, resident bytes per entry (what the kernel counts, less what it counted before)
 *   miss      lookups that find nothing near enough: latency
 *   hit       lookups of what is there, with the document read through an engine: latency
 *   recall    the best candidate of held-out queries against brute force over the vectors themselves
 *   insert    entries put when the cache is full, so that each one evicts another: latency, entries per second
 *   restart   closing without and with a checkpoint, and the time from opening to the first right answer
 * With more scopes than one, row i belongs to scope i mod scopes, and recall is that of its scope.
 *
 * With --seal, vectors of a scope beyond ROWS go to segments on the disk whatever the memory. Then
 * before misses and hits it waits until that is done and tells what a sealed entry takes; "searched" lines are of those
 * lookups that needed a search of the disk, from beginning to end.
 *
 * Times are of this process alone: no network. Prints a line of JSON per measurement. Nothing else should run.
 */
#include "cache/core/cache.h"
#include "datasets/generate.h"
#include "index/kernels/kernels.h"
#include "index/search/search.h"
#include "io/clock.h"
#include "io/histogram.h"
#include "io/memory.h"
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUB_BITS = 6, VALUE_BITS = 32, BATCH = 4096, THREADS_MAX = 64 };

struct options {
    const char *folder;
    unsigned long rows, dim, clusters, intrinsic, value, queries, inserts, truth, threads, memory, scopes, seal;
};

struct bench {
    struct options o;
    struct generator *generator;
    struct store *store;
    struct caches *caches;
    struct cache *cache;
    atomic_ulong next, hits;
    unsigned long end;
    uint32_t *vector_of; /* generated row of each row of the cache; UINT32_MAX: none */
    uint32_t rows_room;
    uint64_t base_bytes; /* resident before the cache was there */
};

struct worker {
    struct bench *bench;
    pthread_t thread;
    void (*run)(struct worker *worker);
    struct cache_scratch *scratch;
    struct engine *engine;
    struct searcher *searcher;
    float *vectors;
    struct histogram latency, searched; /* ns; searched: of lookups that needed the disk to be searched */
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS(SUB_BITS, VALUE_BITS)];
    _Atomic uint64_t searched_counts[HISTOGRAM_BUCKETS(SUB_BITS, VALUE_BITS)];
};

static _Noreturn void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "bench_cache: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static void must(int rc, const struct quire_error *err)
{
    if (rc < 0)
        fail("%s", err->message);
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

static void open_folder(struct bench *b)
{
    struct quire_error err = {0};
    struct caches_options options = {
        .folder = b->o.folder, .seal_rows = (uint32_t)b->o.seal, .seal_always = b->o.seal != 0};
    must(caches_create(&options, &b->caches, &err), &err);
    struct store_host host = {
        .restore = caches_restore, .replay = caches_replay, .save = caches_save, .context = b->caches};
    struct store_options store = {.no_maintenance = true, .sync = JOURNAL_EVERYSEC};
    must(store_open(b->o.folder, &store, &host, &b->store, NULL, &err), &err);
    must(caches_begin(b->caches, store_journal(b->store), &err), &err);
}

static void make_cache(struct bench *b)
{
    struct quire_error err = {0};
    uint64_t lsn;
    struct cache_config config = {
        .name = {"bench", 5}, .dim = (uint32_t)b->o.dim, .memory_bytes = b->o.memory, .disk_bytes = UINT64_C(1) << 40};
    const struct quire_bytes words[] = {{"SIM", 3}, {"0.999", 5}, {"FLOOR", 5}, {"0", 1}};
    must(caches_add(b->caches, &config, &lsn, &err), &err);
    b->cache = caches_find(b->caches, config.name);
    must(cache_set_category(b->cache, (struct quire_bytes){"k", 1}, words, 4, &lsn, &err), &err);
}

static void close_folder(struct bench *b)
{
    struct quire_error err = {0};
    cache_unref(b->cache);
    caches_end(b->caches);
    must(store_close(b->store, &err), &err);
    caches_destroy(b->caches);
}

static struct quire_pair scope_of(const struct bench *b, unsigned long row, char text[32])
{
    int n = snprintf(text, 32, "%lu", row % b->o.scopes);
    return (struct quire_pair){{"tenant", 6}, {text, (size_t)n}};
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static void read_done(struct io_op *op, int result, unsigned flags)
{
    (void)flags;
    *(int *)op->owner = result;
}

static void read_document(struct worker *w, struct cache_decision *decision)
{
    struct quire_error err = {0};
    struct document_read read;
    struct quire_bytes chunk;
    int result = INT32_MIN, rc = document_read_begin(cache_documents(w->bench->cache), &decision->at, &read, &err);
    must(rc, &err);
    if (rc == 0) {
        read.op.done = read_done;
        read.op.owner = &result;
        engine_queue(w->engine, &read.op);
        while (result == INT32_MIN)
            engine_poll(w->engine, 1, UINT64_MAX);
        must(document_read_bytes(&read, result, &err), &err);
    }
    if (cache_finish(w->bench->cache, decision, read.bytes, decision->at.bytes, &chunk) == 0)
        atomic_fetch_add(&w->bench->hits, 1);
    document_read_end(&read);
}

static void search_done(void *owner)
{
    *(bool *)owner = true;
}

/* Whether the disk was searched. */
static bool decide(struct bench *b, struct cache_scratch *scratch, struct engine *engine, struct searcher *searcher,
                   const struct quire_cache_query *query, struct cache_decision *decision)
{
    struct quire_error err = {0};
    bool searched = false, done = false;
    int rc = cache_get(b->cache, scratch, query, NULL, decision, &err);
    for (; rc == CACHE_WANTS_SEARCH; done = false) {
        searched = true;
        cache_search_start(decision->search, searcher, search_done, &done);
        while (!done)
            engine_poll(engine, 1, UINT64_MAX);
        rc = cache_get_found(b->cache, scratch, query, NULL, decision, &err);
    }
    must(rc, &err);
    return searched;
}

static void make_lane(struct engine **engine, struct searcher **searcher)
{
    struct quire_error err = {0};
    must(engine_create(&(struct engine_config){.kind = QUIRE_ENGINE_AUTO}, engine, &err), &err);
    must(searcher_create(*engine, &(struct searcher_config){.tasks_max = 8}, searcher, &err), &err);
}

static void look_up(struct worker *w, const float *vector, unsigned long row)
{
    struct cache_decision decision;
    char text[32];
    struct quire_pair scope = scope_of(w->bench, row, text);
    struct quire_cache_query query = {
        .category = {"k", 1}, .scope = &scope, .n_scope = 1, .vector = vector, .no_lease = true};
    uint64_t begun = clock_ns();
    bool searched = decide(w->bench, w->scratch, w->engine, w->searcher, &query, &decision);
    if (decision.wants_document)
        read_document(w, &decision);
    histogram_add(searched ? &w->searched : &w->latency, clock_ns() - begun);
}

static unsigned long take_batch(struct bench *b, unsigned long *n)
{
    unsigned long first = atomic_fetch_add(&b->next, BATCH);
    *n = first >= b->end ? 0 : b->end - first < BATCH ? b->end - first : BATCH;
    return first;
}

static void run_misses(struct worker *w)
{
    struct bench *b = w->bench;
    struct quire_error err = {0};
    unsigned long n, first;
    while ((first = take_batch(b, &n)), n) {
        must(generate_queries(b->generator, first, n, w->vectors, &err), &err);
        for (unsigned long i = 0; i < n; i++)
            look_up(w, w->vectors + i * b->o.dim, first + i);
    }
}

static void run_hits(struct worker *w)
{
    struct bench *b = w->bench;
    struct quire_error err = {0};
    unsigned long n, first;
    while ((first = take_batch(b, &n)), n)
        for (unsigned long i = 0; i < n; i++) {
            unsigned long row = (first + i) * 7919 % b->o.rows;
            must(generate_rows(b->generator, row, 1, w->vectors, &err), &err);
            look_up(w, w->vectors, row);
        }
}

static void put_row(struct worker *w, const float *vector, unsigned long row, const uint8_t *value)
{
    struct bench *b = w->bench;
    struct quire_error err = {0};
    char text[32];
    struct quire_pair scope = scope_of(b, row, text);
    struct quire_bytes chunk = {value, b->o.value};
    uint64_t number = row;
    struct quire_cache_entry entry = {.category = {"k", 1},
                                      .scope = &scope,
                                      .n_scope = 1,
                                      .hash = {&number, sizeof number},
                                      .vector = vector,
                                      .chunks = &chunk,
                                      .n_chunks = 1};
    struct quire_cache_put_result result;
    uint64_t begun = clock_ns();
    int rc;
    while ((rc = cache_put(b->cache, w->scratch, &entry, &result, &err)) == QUIRE_EBUSY)
        usleep(1000); /* the disk is behind */
    must(rc, &err);
    histogram_add(&w->latency, clock_ns() - begun);
    uint32_t at = (uint32_t)result.id;
    if (at < b->rows_room)
        b->vector_of[at] = (uint32_t)row;
}

static void run_puts(struct worker *w)
{
    struct bench *b = w->bench;
    struct quire_error err = {0};
    unsigned long n, first;
    uint8_t *value = malloc(b->o.value);
    for (unsigned long i = 0; i < b->o.value; i++)
        value[i] = (uint8_t)(i * 31);
    while ((first = take_batch(b, &n)), n) {
        must(generate_rows(b->generator, first, n, w->vectors, &err), &err);
        for (unsigned long i = 0; i < n; i++)
            put_row(w, w->vectors + i * b->o.dim, first + i, value);
    }
    free(value);
}

static void *start(void *context)
{
    struct worker *w = context;
    w->run(w);
    return NULL;
}

static void print_latency(const char *what, unsigned long n, unsigned long threads, double seconds,
                          const struct histogram *h, unsigned long hits)
{
    printf("{\"what\":\"%s\",\"n\":%lu,\"threads\":%lu,\"seconds\":%.2f,\"per_second\":%.0f,\"p50_us\":%.1f,"
           "\"p99_us\":%.1f,\"p999_us\":%.1f,\"hits\":%lu}\n",
           what, n, threads, seconds, (double)n / seconds, histogram_percentile(h, 0.5) / 1e3,
           histogram_percentile(h, 0.99) / 1e3, histogram_percentile(h, 0.999) / 1e3, hits);
    fflush(stdout);
}

/* Runs items first .. end - 1 on all threads; prints what they took. */
static void measure(struct bench *b, const char *what, unsigned long first, unsigned long end,
                    void (*run)(struct worker *worker))
{
    static struct worker workers[THREADS_MAX];
    struct quire_error err = {0};
    atomic_store(&b->next, first);
    atomic_store(&b->hits, 0);
    b->end = end;
    uint64_t begun = clock_us();
    for (unsigned i = 0; i < b->o.threads; i++) {
        struct worker *w = &workers[i];
        memset(w, 0, sizeof *w);
        w->bench = b;
        w->run = run;
        w->vectors = malloc(sizeof(float) * BATCH * b->o.dim);
        histogram_init(&w->latency, w->counts, SUB_BITS, VALUE_BITS);
        histogram_init(&w->searched, w->searched_counts, SUB_BITS, VALUE_BITS);
        must(cache_scratch_create(&w->scratch, &err), &err);
        make_lane(&w->engine, &w->searcher);
        pthread_create(&w->thread, NULL, start, w);
    }
    for (unsigned i = 0; i < b->o.threads; i++) {
        pthread_join(workers[i].thread, NULL);
        if (i) {
            histogram_merge(&workers[0].latency, &workers[i].latency);
            histogram_merge(&workers[0].searched, &workers[i].searched);
        }
        free(workers[i].vectors);
        cache_scratch_destroy(workers[i].scratch);
        searcher_destroy(workers[i].searcher);
        engine_destroy(workers[i].engine);
    }
    double seconds = (double)(clock_us() - begun) / 1e6;
    uint64_t searched = histogram_count(&workers[0].searched);
    print_latency(what, end - first - searched, b->o.threads, seconds, &workers[0].latency, atomic_load(&b->hits));
    if (searched)
        print_latency("searched", searched, b->o.threads, seconds, &workers[0].searched, atomic_load(&b->hits));
}

/* ---- memory, recall, restart ------------------------------------------------------------------------------------- */

static void report_memory(struct bench *b)
{
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    struct memory_resident resident;
    memory_resident(&resident);
    must(cache_get_stats(b->cache, (struct quire_bytes){NULL, 0}, &stats, &err), &err);
    uint64_t bytes = resident.total - b->base_bytes;
    printf("{\"what\":\"memory\",\"entries\":%llu,\"resident_bytes\":%llu,\"bytes_per_entry\":%.1f,"
           "\"accounted_per_entry\":%.1f,\"disk_bytes\":%llu}\n",
           (unsigned long long)stats.entries, (unsigned long long)bytes, (double)bytes / (double)stats.entries,
           (double)stats.memory_bytes / (double)stats.entries, (unsigned long long)stats.disk_bytes);
    fflush(stdout);
}

/* Until no scope has more vectors in memory than it may. */
static void wait_for_seals(struct bench *b)
{
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    uint64_t begun = clock_us(), before = UINT64_MAX;
    for (unsigned quiet = 0; quiet < 5;) {
        usleep(500000);
        must(cache_get_stats(b->cache, (struct quire_bytes){NULL, 0}, &stats, &err), &err);
        bool done = stats.entries - stats.sealed_entries <= b->o.seal * b->o.scopes && stats.sealed_segments == before;
        quiet = done ? quiet + 1 : 0;
        before = stats.sealed_segments;
    }
    uint64_t n = stats.sealed_entries ? stats.sealed_entries : 1;
    printf("{\"what\":\"sealed\",\"entries\":%llu,\"sealed\":%llu,\"segments\":%llu,\"segment_memory_per_entry\":%.1f,"
           "\"segment_disk_per_entry\":%.1f,\"waited_s\":%.1f}\n",
           (unsigned long long)stats.entries, (unsigned long long)stats.sealed_entries,
           (unsigned long long)stats.sealed_segments, (double)stats.sealed_memory_bytes / (double)n,
           (double)stats.sealed_disk_bytes / (double)n, (double)(clock_us() - begun) / 1e6);
    fflush(stdout);
}

/* Rows are of any length: what counts is the cosine, up to the query's length. */
static float score(const float *query, const float *row, unsigned long dim)
{
    return kernels()->f32_dot(query, row, dim) / sqrtf(kernels()->f32_dot(row, row, dim));
}

static void report_recall(struct bench *b)
{
    struct quire_error err = {0};
    unsigned long n = b->o.truth, dim = b->o.dim, found = 0;
    float *queries = malloc(sizeof(float) * n * dim), *rows = malloc(sizeof(float) * BATCH * dim);
    float *best = malloc(sizeof(float) * n), *got = malloc(sizeof(float) * n);
    struct cache_scratch *scratch;
    struct engine *engine;
    struct searcher *searcher;
    must(cache_scratch_create(&scratch, &err), &err);
    make_lane(&engine, &searcher);
    must(generate_queries(b->generator, 1u << 30, n, queries, &err), &err);
    for (unsigned long q = 0; q < n; q++)
        best[q] = -INFINITY;
    for (unsigned long first = 0; first < b->o.rows; first += BATCH) {
        unsigned long m = b->o.rows - first < BATCH ? b->o.rows - first : BATCH;
        must(generate_rows(b->generator, first, m, rows, &err), &err);
        for (unsigned long i = 0; i < m; i++)
            for (unsigned long q = (first + i) % b->o.scopes; q < n; q += b->o.scopes) {
                float s = score(queries + q * dim, rows + i * dim, dim);
                best[q] = s > best[q] ? s : best[q];
            }
    }
    for (unsigned long q = 0; q < n; q++) {
        struct cache_decision decision;
        char text[32];
        struct quire_pair scope = scope_of(b, q, text);
        struct quire_cache_query query = {.category = {"k", 1},
                                          .scope = &scope,
                                          .n_scope = 1,
                                          .vector = queries + q * dim,
                                          .no_lease = true,
                                          .explain = true};
        decide(b, scratch, engine, searcher, &query, &decision);
        if (decision.answer.n_candidates == 0)
            continue;
        uint32_t row = b->vector_of[(uint32_t)decision.answer.candidates[0].id];
        must(generate_rows(b->generator, row, 1, rows, &err), &err);
        got[q] = score(queries + q * dim, rows, dim);
        found += got[q] >= best[q] - 1e-6f;
    }
    printf("{\"what\":\"recall\",\"queries\":%lu,\"recall_at_1\":%.4f}\n", n, (double)found / (double)n);
    fflush(stdout);
    cache_scratch_destroy(scratch);
    searcher_destroy(searcher);
    engine_destroy(engine);
    free(queries);
    free(rows);
    free(best);
    free(got);
}

static void report_restart(struct bench *b, bool checkpoint)
{
    struct quire_error err = {0};
    float *vector = malloc(sizeof(float) * b->o.dim);
    struct worker w = {.bench = b};
    if (checkpoint)
        must(store_checkpoint(b->store, &err), &err);
    close_folder(b);
    must(generate_rows(b->generator, b->o.rows - 1, 1, vector, &err), &err);
    must(cache_scratch_create(&w.scratch, &err), &err);
    make_lane(&w.engine, &w.searcher);
    histogram_init(&w.latency, w.counts, SUB_BITS, VALUE_BITS);
    histogram_init(&w.searched, w.searched_counts, SUB_BITS, VALUE_BITS);
    atomic_store(&b->hits, 0);
    uint64_t begun = clock_us();
    open_folder(b);
    b->cache = caches_find(b->caches, (struct quire_bytes){"bench", 5});
    uint64_t opened = clock_us();
    look_up(&w, vector, b->o.rows - 1);
    uint64_t answered = clock_us();
    printf("{\"what\":\"restart\",\"checkpoint\":%s,\"open_s\":%.3f,\"first_answer_s\":%.3f,\"right\":%s}\n",
           checkpoint ? "true" : "false", (double)(opened - begun) / 1e6, (double)(answered - begun) / 1e6,
           atomic_load(&b->hits) ? "true" : "false");
    fflush(stdout);
    cache_scratch_destroy(w.scratch);
    searcher_destroy(w.searcher);
    engine_destroy(w.engine);
    free(vector);
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

static unsigned long number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end)
        fail("'%s' is not a number", text);
    return value;
}

static struct options parse(int argc, char **argv)
{
    struct options o = {.rows = 1000000,
                        .dim = 256,
                        .clusters = 4000,
                        .intrinsic = 32,
                        .value = 2048,
                        .queries = 20000,
                        .inserts = 100000,
                        .truth = 200,
                        .threads = 2,
                        .scopes = 1};
    static const struct option long_options[] = {{"rows", 1, 0, 'r'},
                                                 {"dim", 1, 0, 'd'},
                                                 {"clusters", 1, 0, 'c'},
                                                 {"intrinsic", 1, 0, 'i'},
                                                 {"value", 1, 0, 'v'},
                                                 {"queries", 1, 0, 'q'},
                                                 {"inserts", 1, 0, 'n'},
                                                 {"truth", 1, 0, 't'},
                                                 {"threads", 1, 0, 'T'},
                                                 {"memory", 1, 0, 'm'},
                                                 {"scopes", 1, 0, 's'},
                                                 {"seal", 1, 0, 'S'},
                                                 {0, 0, 0, 0}};
    unsigned long *const targets[] = {&o.rows,    &o.dim,   &o.clusters, &o.intrinsic, &o.value,  &o.queries,
                                      &o.inserts, &o.truth, &o.threads,  &o.memory,    &o.scopes, &o.seal};
    for (int letter, at = 0; (letter = getopt_long(argc, argv, "", long_options, &at)) != -1;) {
        if (letter == '?')
            fail("see the head of bench_cache.c for the options");
        *targets[at] = number(optarg);
    }
    if (optind + 1 != argc || o.threads < 1 || o.threads > THREADS_MAX || o.scopes < 1)
        fail("one folder, 1 to %d threads, at least one scope: see the head of bench_cache.c", THREADS_MAX);
    o.folder = argv[optind];
    o.memory = o.memory ? o.memory : o.rows * 400;
    return o;
}

int main(int argc, char **argv)
{
    struct bench b = {.o = parse(argc, argv)};
    struct quire_error err = {0};
    struct generate_options generate;
    struct memory_resident resident;
    generate_options_init(&generate);
    generate.rows = b.o.rows + b.o.inserts;
    generate.dim = (uint32_t)b.o.dim;
    generate.clusters = (uint32_t)b.o.clusters;
    generate.intrinsic = (uint32_t)b.o.intrinsic;
    generate.threads = 1;
    must(generate_create(&generate, &b.generator, &err), &err);
    b.rows_room = (uint32_t)(b.o.rows + b.o.inserts) * 2;
    b.vector_of = malloc(sizeof *b.vector_of * b.rows_room);
    memset(b.vector_of, 0xff, sizeof *b.vector_of * b.rows_room);
    open_folder(&b);
    memory_resident(&resident);
    b.base_bytes = resident.total;
    b.cache = caches_find(b.caches, (struct quire_bytes){"bench", 5});
    bool filled = b.cache != NULL;
    if (!filled) {
        make_cache(&b);
        measure(&b, "fill", 0, b.o.rows, run_puts);
    }
    if (b.o.seal)
        wait_for_seals(&b);
    report_memory(&b);
    measure(&b, "miss", 0, b.o.queries, run_misses);
    if (!filled) /* which row a vector has is known only to who put it */
        report_recall(&b);
    measure(&b, "hit", 0, b.o.queries, run_hits); /* last: misses after many hits trip the breaker */
    measure(&b, "insert", b.o.rows, b.o.rows + b.o.inserts, run_puts);
    report_memory(&b);
    b.o.rows = b.o.rows + b.o.inserts;
    report_restart(&b, true);
    report_restart(&b, false);
    close_folder(&b);
    generate_destroy(b.generator);
    free(b.vector_of);
    return 0;
}
