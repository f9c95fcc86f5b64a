/*
 * bench_vectors.c - a vector field of documents: what puts cost, and recall, reads and time of searches among a share
 * of the documents, as a tag filter leaves them; then how long the field takes to open.
 *
 *   bench_vectors BASE QUERIES FOLDER [--rows N] [--queries 200] [--metric cosine]
 *
 * BASE and QUERIES are fbin files. FOLDER is made, and is to be removed afterwards. Puts are those of one writer, each
 * in a batch with a record as long as a hash, while the store seals and merges. Documents of a share are picked at
 * random. Recall@10 is against the exact nearest; start_us is processor time of the start of a search. A line of JSON
 * each.
 */
#include "document/vectors/vectors.h"
#include "index/kernels/kernels.h"
#include "index/store/store.h"
#include "index/vector/near.h"
#include "io/clock.h"
#include "io/random.h"
#include "tests/bench/support_bench.h"
#include <getopt.h>
#include <math.h>
#include <roaring/roaring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 10, RECORD_BYTES = 1200 };

struct rows {
    float *at;
    uint32_t n, dim;
};

struct bench {
    struct rows base, queries;
    struct schema_vector what;
    const char *folder;
    struct store *store;
    struct vectors *field;
    struct engine *engine;
    struct searcher *searcher;
    float *measured; /* of the base's rows, what distances are computed from: unit vectors under cosine */
};

static struct rows load(const char *path, uint32_t most)
{
    uint32_t head[2];
    FILE *file = fopen(path, "rb");
    if (!file || fread(head, sizeof head, 1, file) != 1)
        fail("%s", path);
    struct rows out = {.n = head[0] < most ? head[0] : most, .dim = head[1]};
    out.at = room(sizeof(float) * out.n * out.dim);
    if (fread(out.at, sizeof(float) * out.dim, out.n, file) != out.n)
        fail("%s", path);
    fclose(file);
    return out;
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

static void open_store(struct bench *b)
{
    struct store_options options = {.sync = JOURNAL_EVERYSEC};
    struct engine_config config = {.kind = QUIRE_ENGINE_AUTO};
    struct quire_error err = {0};
    check(store_open(b->folder, &options, NULL, &b->store, NULL, &err), &err);
    check(engine_create(&config, &b->engine, &err), &err);
    check(searcher_create(b->engine, NULL, &b->searcher, &err), &err);
}

static void close_store(struct bench *b)
{
    struct quire_error err = {0};
    searcher_destroy(b->searcher);
    engine_destroy(b->engine);
    vectors_unref(b->field);
    check(store_close(b->store, &err), &err);
}

static struct vectors_put put_of(const struct bench *b, uint32_t i, char key[32])
{
    return (struct vectors_put){.key = key,
                                .key_bytes = (uint32_t)snprintf(key, 32, "doc:%u", i),
                                .old_id = VECTORS_NO_ID,
                                .id = i + 1,
                                .vector = b->base.at + (size_t)i * b->base.dim};
}

static void put_all(struct bench *b)
{
    static const uint8_t hash[RECORD_BYTES];
    const struct journal_record record = {.kind = HOST_KINDS, .bytes = hash, .n_bytes = sizeof hash};
    struct quire_error err = {0};
    struct journal *journal = store_journal(b->store);
    uint64_t lsn, longest = 0, waited_us = 0, begin = clock_ns();
    for (uint32_t i = 0; i < b->base.n; i++) {
        char key[32];
        struct vectors_put put = put_of(b, i, key);
        uint64_t before = clock_ns();
        check(vectors_admit(b->field, put.vector, &err), &err);
        check(journal_batch_begin(journal, &err), &err);
        check(journal_append(journal, &record, 1, &lsn, &err), &err);
        check(vectors_put(b->field, &put, &err), &err);
        check(journal_batch_end(journal, &lsn, &err), &err);
        uint64_t took = clock_ns() - before;
        longest = took > longest ? took : longest;
        uint32_t us = i % 4 == 0 ? store_delay_us(b->store) : 0; /* as the server makes writers wait */
        if (us > 0) {
            nanosleep(&(struct timespec){.tv_nsec = us * 1000l}, NULL);
            waited_us += us;
        }
    }
    double seconds = (double)(clock_ns() - begin) / 1e9;
    uint64_t settling = clock_ns();
    check(store_settle(b->store, &err), &err);
    struct vectors_stats stats;
    vectors_get_stats(b->field, &stats);
    printf(
        "{\"rows\": %u, \"puts_per_second\": %.0f, \"longest_put_us\": %.0f, \"waited_s\": %.1f, \"settled_s\": %.1f, "
        "\"segments\": %llu, \"rows_in_memory\": %llu, \"memory_mb\": %.1f, \"disk_mb\": %.1f}\n",
        b->base.n, b->base.n / seconds, (double)longest / 1e3, (double)waited_us / 1e6,
        (double)(clock_ns() - settling) / 1e9, (unsigned long long)stats.segments,
        (unsigned long long)stats.memtable_rows, (double)stats.memory_bytes / 1e6, (double)stats.disk_bytes / 1e6);
}

/* ---- searches ---------------------------------------------------------------------------------------------------- */

struct asked {
    struct vectors_search search;
    uint32_t ids[K], n;
    bool done;
};

static void on_answer(struct vectors_search *search)
{
    struct asked *a = search->owner;
    check(search->code, &search->error);
    a->n = search->n;
    memcpy(a->ids, search->ids, sizeof *a->ids * search->n);
    a->done = true;
}

static bool is_in(uint32_t row, double share)
{
    return share < 0 || (double)(random_mix(row + 1ull) >> 11) / (double)(1ull << 53) < share;
}

/* How many of the answer are among the k nearest rows of the share. */
static uint32_t count_right(const struct bench *b, const float *query, double share, const struct asked *a, near_t *all,
                            near_t *spare, uint32_t *wanted)
{
    uint32_t n = 0, right = 0, dim = b->base.dim;
    for (uint32_t i = 0; i < b->base.n; i++) {
        const float *x = b->measured + (size_t)i * dim;
        if (is_in(i, share))
            all[n++] = near_of(b->what.metric == SCHEMA_L2 ? kernels()->f32_l2(query, x, dim)
                                                           : 1000 - kernels()->f32_dot(query, x, dim),
                               i);
    }
    n = near_keep_sorted(all, n, n < K ? n : K, spare);
    *wanted = n;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < a->n; j++)
            right += a->ids[j] == near_row(all[i]) + 1;
    return right;
}

/* What this thread has computed. */
static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void search_share(struct bench *b, double share, float recall)
{
    near_t *all = room(sizeof *all * (b->base.n + 1)), *spare = room(sizeof *spare * K);
    roaring_bitmap_t *set = share < 0 ? NULL : roaring_bitmap_create();
    double reads = 0, start_us = 0, us = 0, right = 0, wanted = 0, rounds = 0, longest_start = 0;
    uint32_t plans[16] = {0};
    for (uint32_t i = 0; set && i < b->base.n; i++)
        if (is_in(i, share))
            roaring_bitmap_add(set, i + 1);
    for (uint32_t q = 0; q < b->queries.n; q++) {
        const float *query = b->queries.at + (size_t)q * b->queries.dim;
        struct asked a = {
            .search = {
                .vectors = b->field, .query = query, .allowed = set, .k = K, .recall = recall, .done = on_answer}};
        struct quire_error err = {0};
        uint32_t n;
        a.search.owner = &a;
        uint64_t begin = clock_ns(), computed = thread_ns();
        check(vectors_search_start(b->searcher, &a.search, &err), &err);
        double started = (double)(thread_ns() - computed) / 1e3;
        while (!a.done)
            engine_poll(b->engine, 1, 1000000);
        us += (double)(clock_ns() - begin) / 1e3;
        start_us += started;
        longest_start = fmax(longest_start, started);
        reads += a.search.stats.reads + a.search.stats.cached;
        rounds += a.search.stats.rounds;
        plans[a.search.stats.plan & 15]++;
        right += count_right(b, query, share, &a, all, spare, &n);
        wanted += n;
    }
    uint32_t most = 0;
    for (uint32_t i = 0; i < 16; i++)
        most = plans[i] > plans[most] ? i : most;
    double n = b->queries.n;
    printf("{\"share\": %g, \"asked\": %g, \"matches\": %llu, \"recall\": %.4f, \"reads\": %.1f, \"rounds\": %.1f, "
           "\"plan\": \"%s\", "
           "\"us\": %.0f, \"start_us\": %.0f, \"longest_start_us\": %.0f}\n",
           share < 0 ? 1 : share, (double)recall,
           (unsigned long long)(set ? roaring_bitmap_get_cardinality(set) : b->base.n), wanted > 0 ? right / wanted : 1,
           reads / n, rounds / n, quire_plan_name((enum quire_plan)most), us / n, start_us / n, longest_start);
    fflush(stdout);
    if (set)
        roaring_bitmap_free(set);
    free(all);
    free(spare);
}

/* ---- opening again ----------------------------------------------------------------------------------------------- */

static void open_again(struct bench *b)
{
    struct quire_error err = {0};
    uint64_t uid = vectors_uid(b->field), n_removed, begin = clock_ns();
    close_store(b);
    uint64_t closed = clock_ns();
    open_store(b);
    uint64_t opened = clock_ns();
    check(vectors_open(b->store, uid, &b->what, &b->field, &err), &err);
    uint64_t read = clock_ns();
    for (uint32_t i = 0; i < b->base.n; i++) {
        char key[32];
        struct vectors_put put = put_of(b, i, key);
        check(vectors_put(b->field, &put, &err), &err);
        if (put.lsn)
            fail("a vector was not there");
    }
    check(vectors_loaded(b->field, &n_removed, &err), &err);
    uint64_t end = clock_ns();
    printf(
        "{\"close_s\": %.2f, \"open_store_s\": %.2f, \"open_field_s\": %.2f, \"claim_s\": %.2f, \"removed\": %llu}\n",
        (double)(closed - begin) / 1e9, (double)(opened - closed) / 1e9, (double)(read - opened) / 1e9,
        (double)(end - read) / 1e9, (unsigned long long)n_removed);
}

static void make_units(struct bench *b, struct rows *rows)
{
    for (uint32_t i = 0; i < rows->n && b->what.metric == SCHEMA_COSINE; i++) {
        float *x = rows->at + (size_t)i * rows->dim, length = sqrtf(kernels()->f32_dot(x, x, rows->dim));
        for (uint32_t j = 0; j < rows->dim && length > 0; j++)
            x[j] /= length;
    }
}

static enum schema_metric metric_of(const char *name)
{
    return strcmp(name, "l2") == 0 ? SCHEMA_L2 : strcmp(name, "ip") == 0 ? SCHEMA_IP : SCHEMA_COSINE;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"rows", required_argument, NULL, 'r'},
                                            {"queries", required_argument, NULL, 'q'},
                                            {"metric", required_argument, NULL, 'm'},
                                            {0}};
    static const double shares[] = {-1, 1, .5, .2, .1, .05, .01, .001, .0001};
    struct bench b = {.what = {.metric = SCHEMA_COSINE}};
    static const float recalls[] = {.9f, .97f, .98f, .99f};
    uint32_t n_rows = UINT32_MAX, n_queries = 200;
    struct quire_error err = {0};
    uint64_t lsn;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'r':
            n_rows = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'q':
            n_queries = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'm':
            b.what.metric = metric_of(optarg);
            break;
        default:
            return 2;
        }
    if (argc - optind != 3)
        fail("BASE, QUERIES and FOLDER are needed");
    b.base = load(argv[optind], n_rows);
    b.queries = load(argv[optind + 1], n_queries);
    b.folder = argv[optind + 2];
    b.what.dim = b.base.dim;
    if (b.queries.dim != b.base.dim)
        fail("base and queries have different dimensions");
    open_store(&b);
    check(vectors_create(b.store, &b.what, &b.field, &lsn, &err), &err);
    put_all(&b);
    b.measured = b.base.at;
    make_units(&b, &b.base); /* after they were put as they are */
    make_units(&b, &b.queries);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        search_share(&b, shares[i], 0);
    for (size_t i = 0; i < sizeof recalls / sizeof *recalls; i++)
        search_share(&b, .1, recalls[i]);
    open_again(&b);
    search_share(&b, .1, 0);
    close_store(&b);
    free(b.base.at);
    free(b.queries.at);
    return 0;
}
