/*
 * bench_cache.c - a semantic cache alone: memory, lookups, inserts at capacity, recall, restart.
 *
 *   bench_cache FOLDER [--rows 1000000] [--dim 256] [--clusters 4000] [--intrinsic 32] [--value 2048] [--queries 20000]
 *               [--inserts 100000] [--truth 200] [--threads 2] [--memory BYTES] [--scopes 1] [--seal ROWS]
 *               [--similarity 900]
 *
 * Fills a cache in the new folder FOLDER with `rows` generated vectors and answers of `value` bytes (a folder that an
 * earlier run with the same options has left is used as it is), then measures:
 *   fill      entries per second, resident bytes per entry (what the kernel counts, less what it counted before)
 *   miss      lookups of held-out queries, which find nothing near enough but for `hits` of them: latency
 *   near      lookups of what is there with noise, so that the similarity is .95: latency, the document read
 *   hit       lookups of what is there, with the document read through an engine: latency
 *   recall    the best candidate of held-out queries against brute force over the vectors themselves: as an explained
 *             lookup shows it; and whether a lookup whose threshold it just reaches is answered, and
 *             with it: what is in memory and reaches the threshold, too, goes first
 *   insert    entries put when the cache is full, so that each one evicts another: latency, entries per second
 *   restart   closing without and with a checkpoint, and the time from opening to the first right answer
 * The threshold of misses, near ones and hits is `similarity` thousandths. With more scopes than one, row i
 * belongs to scope i mod scopes, and recall is that of its scope.
 *
 * With --seal, vectors of a scope beyond ROWS go to segments on the disk whatever the memory. Then
 * before misses and hits it waits until that is done and tells what a sealed entry takes; "searched" lines are of those
 * lookups that needed a search of the disk, from beginning to end, with reads and codes compared for each; cpu_us is of
 * all lookups of the line and the one before it.
 *
 * Times are of this process alone: no network. Prints a line of JSON per measurement. Nothing else should run.
 */
#include "cache/core/sealed.h"
#include "datasets/generate.h"
#include "index/kernels/kernels.h"
#include "index/search/search.h"
#include "io/clock.h"
#include "io/histogram.h"
#include "io/memory.h"
#include "tests/bench/support_bench.h"
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUB_BITS = 6, VALUE_BITS = 32, BATCH = 4096, THREADS_MAX = 64 };
#define CODE_ERROR 0.005 /* of a similarity, by codes of 8 bits */

struct options {
    const char *folder;
    unsigned long rows, dim, clusters, intrinsic, value, queries, inserts, truth, threads, memory, scopes, seal,
        similarity;
};

struct bench {
    struct options o;
    struct generator *generator;
    struct store *store;
    struct caches *caches;
    struct cache *cache;
    atomic_ulong next, hits;
    atomic_ulong reads, codes, cpu_ns; /* of searches of the disk; of the threads */
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
    const struct quire_bytes words[] = {{"SIM", 3}, {"0.5", 3}, {"FLOOR", 5}, {"0", 1}};
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

/* The breaker takes a stream of hits, or of questions that were put on purpose, for a fault of the encoder. */
static void reset_breaker(struct bench *b)
{
    pthread_mutex_lock(&b->cache->lock);
    for (uint32_t i = 0; i < b->cache->n_categories; i++)
        b->cache->categories[i]->breaker = (struct breaker){0};
    pthread_mutex_unlock(&b->cache->lock);
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
    reset_breaker(b);
    int rc = cache_get(b->cache, scratch, query, NULL, decision, &err);
    for (; rc == CACHE_WANTS_SEARCH; done = false) {
        searched = true;
        cache_search_start(decision->search, searcher, search_done, &done);
        while (!done)
            engine_poll(engine, 1, UINT64_MAX);
        atomic_fetch_add(&b->reads, decision->search->stats.reads);
        atomic_fetch_add(&b->codes, decision->search->stats.codes_scored);
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
    struct quire_cache_query query = {.category = {"k", 1},
                                      .scope = &scope,
                                      .n_scope = 1,
                                      .vector = vector,
                                      .similarity = (double)w->bench->o.similarity / 1000,
                                      .no_lease = true};
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

/* What is there, turned by an angle of cosine .95 in a direction of chance. */
static void run_near(struct worker *w)
{
    struct bench *b = w->bench;
    struct quire_error err = {0};
    unsigned long n, first, dim = b->o.dim;
    float *row = w->vectors, *other = w->vectors + dim;
    while ((first = take_batch(b, &n)), n)
        for (unsigned long i = 0; i < n; i++) {
            unsigned long number = (first + i) * 7919 % b->o.rows;
            must(generate_rows(b->generator, number, 1, row, &err), &err);
            uint64_t state = number * 0x9e3779b97f4a7c15ull + 1;
            for (unsigned long d = 0; d < dim; d++) {
                other[d] = 0;
                for (unsigned j = 0; j < 4; j++) { /* near enough to normal */
                    state = state * 6364136223846793005ull + 1442695040888963407ull;
                    other[d] += (float)(int32_t)(state >> 32) / 2147483648.0f;
                }
            }
            float norm2 = kernels()->f32_dot(row, row, dim), along = kernels()->f32_dot(row, other, dim) / norm2;
            for (unsigned long d = 0; d < dim; d++)
                other[d] -= along * row[d];
            float scale = sqrtf(norm2 / kernels()->f32_dot(other, other, dim));
            for (unsigned long d = 0; d < dim; d++)
                row[d] = 0.95f * row[d] + 0.31224990f * scale * other[d];
            look_up(w, row, number);
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

/* Which rows the entries of a folder have that an earlier run has filled: by their hashes. */
static void find_rows(struct bench *b)
{
    struct quire_error err = {0};
    struct cache_scratch *scratch;
    must(cache_scratch_create(&scratch, &err), &err);
    for (uint64_t row = 0; row < b->o.rows; row++) {
        struct cache_decision decision;
        char text[32];
        struct quire_pair scope = scope_of(b, row, text);
        struct quire_cache_query query = {
            .category = {"k", 1}, .scope = &scope, .n_scope = 1, .hash = {&row, sizeof row}, .no_lease = true};
        must(cache_get(b->cache, scratch, &query, NULL, &decision, &err), &err);
        if (decision.answer.status == QUIRE_CACHE_EXACT && (uint32_t)decision.answer.id < b->rows_room)
            b->vector_of[(uint32_t)decision.answer.id] = (uint32_t)row;
    }
    cache_scratch_destroy(scratch);
}

static void *start(void *context)
{
    struct worker *w = context;
    struct timespec time;
    w->run(w);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    atomic_fetch_add(&w->bench->cpu_ns, (unsigned long)time.tv_sec * 1000000000ul + (unsigned long)time.tv_nsec);
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
    atomic_store(&b->reads, 0);
    atomic_store(&b->codes, 0);
    atomic_store(&b->cpu_ns, 0);
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
    if (searched) {
        print_latency("searched", searched, b->o.threads, seconds, &workers[0].searched, atomic_load(&b->hits));
        printf("{\"what\":\"searches\",\"reads\":%.2f,\"codes\":%.0f,\"cpu_us\":%.1f}\n",
               (double)atomic_load(&b->reads) / (double)searched, (double)atomic_load(&b->codes) / (double)searched,
               (double)atomic_load(&b->cpu_ns) / 1e3 / (double)(end - first));
        fflush(stdout);
    }
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

/* The cosine. */
static float score(const float *query, const float *row, unsigned long dim)
{
    float norm2 = kernels()->f32_dot(row, row, dim) * kernels()->f32_dot(query, query, dim);
    return kernels()->f32_dot(query, row, dim) / sqrtf(norm2);
}

/* Whether a lookup with a threshold is answered with the best there is; threshold < 0: whether an explanation names
 * that first. */
static bool answers_best(struct bench *b, struct cache_scratch *scratch, struct engine *engine,
                         struct searcher *searcher, const float *vector, unsigned long q, float best, double threshold)
{
    struct quire_error err = {0};
    struct cache_decision decision;
    char text[32];
    struct quire_pair scope = scope_of(b, q, text);
    struct quire_cache_query query = {.category = {"k", 1},
                                      .scope = &scope,
                                      .n_scope = 1,
                                      .vector = vector,
                                      .similarity = threshold < 0 ? 1 : threshold,
                                      .no_lease = true,
                                      .explain = threshold < 0};
    decide(b, scratch, engine, searcher, &query, &decision);
    uint64_t id = threshold < 0 && decision.answer.n_candidates ? decision.answer.candidates[0].id : decision.answer.id;
    if (threshold < 0 ? decision.answer.n_candidates == 0 : decision.answer.status != QUIRE_CACHE_HIT)
        return false;
    atomic_fetch_add(&b->hits, threshold >= 0);
    float *row = malloc(sizeof *row * b->o.dim);
    must(generate_rows(b->generator, b->vector_of[(uint32_t)id], 1, row, &err), &err);
    bool is_best = score(vector, row, b->o.dim) >= best - 1e-6f;
    free(row);
    return is_best;
}

static void report_recall(struct bench *b)
{
    struct quire_error err = {0};
    unsigned long n = b->o.truth, dim = b->o.dim, found = 0, found_within = 0;
    float *queries = malloc(sizeof(float) * n * dim), *rows = malloc(sizeof(float) * BATCH * dim);
    float *best = malloc(sizeof(float) * n);
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
    atomic_store(&b->hits, 0);
    for (unsigned long q = 0; q < n; q++) {
        const float *query = queries + q * dim;
        found += answers_best(b, scratch, engine, searcher, query, q, best[q], -1);
        found_within += answers_best(b, scratch, engine, searcher, query, q, best[q], (double)best[q] - CODE_ERROR);
    }
    printf("{\"what\":\"recall\",\"queries\":%lu,\"recall_at_1\":%.4f,\"answered_within\":%.4f,\"best_within\":%.4f}\n",
           n, (double)found / (double)n, (double)atomic_load(&b->hits) / (double)n, (double)found_within / (double)n);
    fflush(stdout);
    cache_scratch_destroy(scratch);
    searcher_destroy(searcher);
    engine_destroy(engine);
    free(queries);
    free(rows);
    free(best);
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
                        .scopes = 1,
                        .similarity = 900};
    static const struct option long_options[] = {
        {"rows", 1, 0, 'r'},       {"dim", 1, 0, 'd'},    {"clusters", 1, 0, 'c'},
        {"intrinsic", 1, 0, 'i'},  {"value", 1, 0, 'v'},  {"queries", 1, 0, 'q'},
        {"inserts", 1, 0, 'n'},    {"truth", 1, 0, 't'},  {"threads", 1, 0, 'T'},
        {"memory", 1, 0, 'm'},     {"scopes", 1, 0, 's'}, {"seal", 1, 0, 'S'},
        {"similarity", 1, 0, 'y'}, {0, 0, 0, 0}};
    unsigned long *const targets[] = {&o.rows,    &o.dim,     &o.clusters,  &o.intrinsic, &o.value,
                                      &o.queries, &o.inserts, &o.truth,     &o.threads,   &o.memory,
                                      &o.scopes,  &o.seal,    &o.similarity};
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
    if (b.cache) {
        find_rows(&b);
    } else {
        make_cache(&b);
        measure(&b, "fill", 0, b.o.rows, run_puts);
    }
    if (b.o.seal)
        wait_for_seals(&b);
    report_memory(&b);
    measure(&b, "miss", 0, b.o.queries, run_misses);
    report_recall(&b);
    measure(&b, "near", 0, b.o.queries, run_near);
    measure(&b, "hit", 0, b.o.queries, run_hits);
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
