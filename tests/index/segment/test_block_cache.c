/*
 * test_block_cache.c - what comes out is what went in, memory stays bounded, and hot blocks outlive scans.
 *
 * A block's bytes are a function of its number, so that every copy can be checked. Hit rates are compared with plain
 * least-recently-used over the same requests and at least as many frames. The lanes' test is the one to run under the
 * thread sanitizer.
 */
#include "index/segment/block_cache.h"
#include "io/memory.h"
#include "io/random.h"
#include "quire.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK_BYTES 4096u

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void fill(uint64_t *words, uint32_t block, uint32_t block_bytes)
{
    uint64_t seed = random_mix(block + 1);
    for (uint32_t i = 0; i < block_bytes / 8; i++)
        words[i] = seed + i;
}

static bool is_block(const uint64_t *words, uint32_t block, uint32_t block_bytes)
{
    uint64_t seed = random_mix(block + 1), wrong = 0;
    for (uint32_t i = 0; i < block_bytes / 8; i++)
        wrong |= words[i] ^ (seed + i);
    return wrong == 0;
}

static struct block_cache *create(uint64_t memory_bytes, uint32_t block_bytes, uint32_t n_blocks)
{
    struct block_cache *cache = NULL;
    assert_int_equal(block_cache_create(memory_bytes, block_bytes, n_blocks, &cache), 0);
    return cache;
}

static struct block_cache_stats stats_of(struct block_cache *cache)
{
    struct block_cache_stats stats;
    block_cache_stats(cache, &stats);
    return stats;
}

static void assert_valid(struct block_cache *cache)
{
    const char *reason;
    if (!block_cache_check(cache, &reason))
        fail_msg("%s", reason);
}

/* What a lane does with a block: true for a hit. */
static bool ask(struct block_cache *cache, uint32_t block)
{
    uint64_t words[BLOCK_BYTES / 8];
    bool hit = block_cache_get(cache, block, words);
    if (!hit) {
        fill(words, block, BLOCK_BYTES);
        block_cache_offer(cache, block, words);
    } else if (!is_block(words, block, BLOCK_BYTES)) {
        fail_msg("wrong bytes for block %u", block);
    }
    return hit;
}

/* ---- contents and memory ----------------------------------------------------------------------------------------- */

static void test_arguments(void **state)
{
    (void)state;
    struct block_cache *cache = NULL;
    assert_int_equal(block_cache_create(1 << 20, 0, 10, &cache), QUIRE_EINVALID);
    assert_int_equal(block_cache_create(1 << 20, 4095, 10, &cache), QUIRE_EINVALID);
    assert_int_equal(block_cache_create(1 << 24, QUIRE_BLOCK_BYTES_MAX + 4096, 10, &cache), QUIRE_EINVALID);
    assert_int_equal(block_cache_create(1 << 20, 4096, 0, &cache), QUIRE_EINVALID);
    assert_int_equal(block_cache_create(0, 4096, 100, &cache), QUIRE_ELIMIT);
    assert_int_equal(block_cache_create(BLOCK_CACHE_FRAMES_MIN * 4096, 4096, 100, &cache), QUIRE_ELIMIT);
    assert_int_equal(block_cache_create(UINT64_MAX, QUIRE_BLOCK_BYTES_MAX, UINT32_MAX, &cache), QUIRE_ENOMEM);
    assert_null(cache);
    block_cache_destroy(NULL);
}

static void check_size(uint64_t memory_bytes, uint32_t block_bytes, uint32_t n_blocks)
{
    struct block_cache *cache = NULL;
    uint32_t needed = n_blocks < BLOCK_CACHE_FRAMES_MIN ? n_blocks : BLOCK_CACHE_FRAMES_MIN;
    int rc = block_cache_create(memory_bytes, block_bytes, n_blocks, &cache);
    if (rc != 0) {
        assert_int_equal(rc, QUIRE_ELIMIT);
        assert_true(memory_bytes < (uint64_t)needed * block_bytes + 8192);
        return;
    }
    uint32_t n_frames = stats_of(cache).n_frames;
    assert_true(block_cache_bytes(cache) <= memory_bytes);
    assert_true(block_cache_bytes(cache) >= (uint64_t)n_frames * block_bytes);
    assert_true(n_frames >= needed && n_frames <= n_blocks);
    if (n_frames < n_blocks) /* nothing of note goes to the books */
        assert_true((double)n_frames * block_bytes >= 0.98 * (double)memory_bytes - block_bytes - 8192);
    block_cache_destroy(cache);
}

static void test_memory_is_bounded(void **state)
{
    static const uint32_t block_sizes[] = {4096, 8192, 12288, 131072, QUIRE_BLOCK_BYTES_MAX};
    static const uint32_t blocks[] = {1, 15, 16, 17, 1000, 65537, 5000000, UINT32_MAX};
    (void)state;
    for (uint32_t i = 0; i < SUPPORT_COUNT(block_sizes); i++)
        for (uint32_t j = 0; j < SUPPORT_COUNT(blocks); j++)
            for (uint64_t bytes = 4096; bytes < (uint64_t)1 << 30; bytes = bytes * 7 / 3 + 1)
                check_size(bytes, block_sizes[i], blocks[j]);
}

static void test_resident_memory_follows_use(void **state)
{
    enum { BYTES = 64 << 20, BLOCKS = 100000, SLACK = 3 << 20 };
    struct memory_resident before, now;
    (void)state;
    if (SANITIZED)
        skip();
    memory_resident(&before);
    struct block_cache *cache = create(BYTES, BLOCK_BYTES, BLOCKS);
    memory_resident(&now);
    assert_true(now.anonymous < before.anonymous + SLACK);
    uint32_t quarter = stats_of(cache).n_frames / 4;
    for (uint32_t b = 0; b < quarter; b++)
        ask(cache, b);
    memory_resident(&now);
    assert_true(now.anonymous < before.anonymous + quarter * BLOCK_BYTES + SLACK);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t b = 0; b < BLOCKS; b++)
            ask(cache, b);
    assert_int_equal(stats_of(cache).n_frames_used, stats_of(cache).n_frames);
    memory_resident(&now);
    assert_true(now.anonymous > before.anonymous + BYTES * 9u / 10u);
    assert_true(now.anonymous < before.anonymous + BYTES + (1u << 20));
    block_cache_destroy(cache);
}

/* With room for all blocks every block is read once. */
static void test_all_blocks_fit(void **state)
{
    (void)state;
    for (uint32_t n_blocks = 1; n_blocks < 1500; n_blocks = n_blocks * 3 + 1) {
        struct block_cache *cache = create(((uint64_t)n_blocks + 20) * BLOCK_BYTES, BLOCK_BYTES, n_blocks);
        for (uint32_t round = 0; round < 3; round++)
            for (uint32_t b = 0; b < n_blocks; b++)
                assert_int_equal(ask(cache, b), round > 0);
        struct block_cache_stats stats = stats_of(cache);
        assert_int_equal(stats.misses, n_blocks);
        assert_int_equal(stats.hits, 2 * n_blocks);
        assert_int_equal(stats.admitted, n_blocks);
        assert_int_equal(stats.n_frames_used, n_blocks);
        assert_int_equal(stats.evicted + stats.remembered, 0);
        assert_valid(cache);
        block_cache_destroy(cache);
    }
}

/* Requests of all kinds against the directory: one that probes (few frames of many blocks) and one by number. */
static void test_structure_stays_valid(void **state)
{
    static const uint32_t blocks[] = {90, 500, 4000};
    struct random random;
    (void)state;
    random_init(&random, 3);
    for (uint32_t i = 0; i < SUPPORT_COUNT(blocks); i++) {
        struct block_cache *cache = create(84 * BLOCK_BYTES, BLOCK_BYTES, blocks[i]);
        for (uint32_t step = 0; step < 20000; step++) {
            uint32_t range = random_next(&random) % 2 ? blocks[i] : blocks[i] / 4;
            ask(cache, (uint32_t)random_below(&random, range));
            if (step % 100 == 0)
                assert_valid(cache);
        }
        struct block_cache_stats stats = stats_of(cache);
        assert_int_equal(stats.hits + stats.misses, 20000);
        assert_true(stats.evicted > 0 && stats.hits > stats.evicted);
        block_cache_destroy(cache);
    }
}

/* A block that another lane has brought in meanwhile is left alone. */
static void test_offered_twice(void **state)
{
    uint64_t words[BLOCK_BYTES / 8];
    (void)state;
    struct block_cache *cache = create(100 * BLOCK_BYTES, BLOCK_BYTES, 1000);
    fill(words, 5, BLOCK_BYTES);
    block_cache_offer(cache, 5, words);
    block_cache_offer(cache, 5, words);
    assert_int_equal(stats_of(cache).admitted, 1);
    assert_true(ask(cache, 5));
    assert_false(block_cache_get(cache, 6, words));
    assert_true(is_block(words, 5, BLOCK_BYTES));
    block_cache_destroy(cache);
}

/* ---- policy ------------------------------------------------------------------------------------------------------ */

/* Share of hits when blocks first .. first + n - 1 are asked for, in order. */
static double ask_range(struct block_cache *cache, uint32_t first, uint32_t n)
{
    uint32_t hits = 0;
    for (uint32_t b = first; b < first + n; b++)
        hits += ask(cache, b);
    return (double)hits / n;
}

static void test_hot_set_outlives_scans(void **state)
{
    enum { FRAMES = 1000, HOT = 600, COLD = 1000, SCAN = 10 * FRAMES };
    (void)state;
    struct block_cache *cache = create((FRAMES + 20) * BLOCK_BYTES, BLOCK_BYTES, COLD + SCAN);
    ask_range(cache, COLD, SCAN); /* the frames are full of blocks nobody wants again */
    for (uint32_t round = 0; round < 4; round++)
        ask_range(cache, 0, HOT);
    assert_true(ask_range(cache, 0, HOT) == 1);
    for (uint32_t scan = 0; scan < 3; scan++) {
        ask_range(cache, COLD, SCAN);
        assert_true(ask_range(cache, 0, HOT) >= 0.95);
    }
    for (uint32_t b = COLD + 60; b < COLD + SCAN; b++) /* four lanes that scan, a little apart */
        for (uint32_t lane = 0; lane < 4; lane++)
            ask(cache, b - lane * 20);
    assert_true(ask_range(cache, 0, HOT) >= 0.95);
    assert_valid(cache);
    block_cache_destroy(cache);
}

/* Yet the cache follows when other blocks become hot. */
static void test_hot_set_may_change(void **state)
{
    enum { FRAMES = 1000, HOT = 600 };
    (void)state;
    struct block_cache *cache = create((FRAMES + 20) * BLOCK_BYTES, BLOCK_BYTES, 20000);
    for (uint32_t first = 0; first < 20000; first += 5000) {
        for (uint32_t round = 0; round < 6; round++)
            ask_range(cache, first, HOT);
        assert_true(ask_range(cache, first, HOT) == 1);
    }
    block_cache_destroy(cache);
}

/* Plain least-recently-used: a ring of blocks, last used first; block n is the ring's head. */
struct lru {
    uint32_t n, capacity, used;
    uint32_t *next, *previous;
    bool *cached;
};

static void lru_init(struct lru *lru, uint32_t n, uint32_t capacity)
{
    *lru = (struct lru){.n = n, .capacity = capacity};
    lru->next = calloc(n + 1, sizeof *lru->next);
    lru->previous = calloc(n + 1, sizeof *lru->previous);
    lru->cached = calloc(n, sizeof *lru->cached);
    assert_true(lru->next && lru->previous && lru->cached);
    lru->next[n] = lru->previous[n] = n;
}

static void lru_fini(struct lru *lru)
{
    free(lru->next);
    free(lru->previous);
    free(lru->cached);
}

static void lru_unlink(struct lru *lru, uint32_t block)
{
    lru->next[lru->previous[block]] = lru->next[block];
    lru->previous[lru->next[block]] = lru->previous[block];
    lru->cached[block] = false;
    lru->used--;
}

static bool lru_ask(struct lru *lru, uint32_t block)
{
    bool hit = lru->cached[block];
    if (hit)
        lru_unlink(lru, block);
    else if (lru->used == lru->capacity)
        lru_unlink(lru, lru->previous[lru->n]);
    lru->next[block] = lru->next[lru->n];
    lru->previous[block] = lru->n;
    lru->previous[lru->next[lru->n]] = block;
    lru->next[lru->n] = block;
    lru->cached[block] = true;
    lru->used++;
    return hit;
}

/* Zipf: the i-th most wanted of n blocks is asked for in proportion to 1 / i^exponent; which one that is is random. */
struct zipf {
    uint32_t n;
    double *below; /* share of requests for the ranks up to this one */
    uint32_t *block_of_rank;
    struct random random;
};

static void zipf_init(struct zipf *z, uint32_t n, double exponent)
{
    double sum = 0;
    z->n = n;
    z->below = malloc(n * sizeof *z->below);
    z->block_of_rank = malloc(n * sizeof *z->block_of_rank);
    assert_true(z->below && z->block_of_rank);
    random_init(&z->random, 11);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)random_below(&z->random, i + 1);
        z->below[i] = sum += pow(i + 1, -exponent);
        z->block_of_rank[i] = z->block_of_rank[at];
        z->block_of_rank[at] = i;
    }
    for (uint32_t i = 0; i < n; i++)
        z->below[i] /= sum;
}

static void zipf_fini(struct zipf *z)
{
    free(z->below);
    free(z->block_of_rank);
}

static uint32_t zipf_next(struct zipf *z)
{
    double u = (double)(random_next(&z->random) >> 11) * 0x1p-53;
    uint32_t low = 0, high = z->n - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (z->below[middle] < u)
            low = middle + 1;
        else
            high = middle;
    }
    return z->block_of_rank[low];
}

/* How many hits in 100 the cache has more than least-recently-used, after a warm-up of as many requests. After each
 * request come `scan` ones of a scan that goes round; they do not count. */
static double advantage(double exponent, double share, uint32_t scan)
{
    const uint32_t n = 10000, requests = SANITIZED ? 30000 : 100000;
    uint32_t scan_at = 0;
    int64_t hits = 0, hits_lru = 0;
    struct zipf z;
    struct lru lru;
    uint32_t capacity = (uint32_t)(share * n);
    struct block_cache *cache = create((uint64_t)capacity * BLOCK_BYTES, BLOCK_BYTES, n);
    zipf_init(&z, n, exponent);
    lru_init(&lru, n, capacity);
    for (uint32_t i = 0; i < 2 * requests; i++) {
        uint32_t block = zipf_next(&z);
        bool hit = ask(cache, block), hit_lru = lru_ask(&lru, block);
        hits += hit && i >= requests;
        hits_lru += hit_lru && i >= requests;
        for (uint32_t j = 0; j < scan; j++, scan_at = (scan_at + 1) % n) {
            ask(cache, scan_at);
            lru_ask(&lru, scan_at);
        }
    }
    assert_valid(cache);
    block_cache_destroy(cache);
    zipf_fini(&z);
    lru_fini(&lru);
    return 100.0 * (double)(hits - hits_lru) / requests;
}

static void test_zipf_against_lru(void **state)
{
    (void)state;
    assert_true(advantage(0.9, 0.1, 0) > 5);
    assert_true(advantage(0.9, 0.1, 1) > 10);
    assert_true(advantage(0.6, 0.1, 0) > 5);
    assert_true(advantage(0.9, 0.5, 1) > 2);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

struct lane {
    struct block_cache *cache;
    uint32_t block_bytes, n_blocks, steps, number;
    uint64_t wrong, hits; /* the lane's own: cmocka's assertions are for the main thread */
    pthread_t thread;
};

static void *lane_main(void *context)
{
    struct lane *lane = context;
    struct random random;
    uint64_t *words = malloc(lane->block_bytes);
    random_init(&random, lane->number);
    for (uint32_t i = 0; words && i < lane->steps; i++) {
        uint32_t range = random_next(&random) % 4 ? lane->n_blocks / 4 : lane->n_blocks;
        uint32_t block = (uint32_t)random_below(&random, range);
        if (block_cache_get(lane->cache, block, words)) {
            lane->hits++;
            lane->wrong += !is_block(words, block, lane->block_bytes);
        } else {
            fill(words, block, lane->block_bytes);
            block_cache_offer(lane->cache, block, words);
        }
    }
    lane->wrong += words == NULL;
    free(words);
    return NULL;
}

static void check_lanes(uint32_t n_lanes, uint32_t n_frames, uint32_t block_bytes, uint32_t n_blocks, uint32_t steps)
{
    struct lane lanes[32];
    uint64_t hits = 0;
    assert_true(n_lanes <= SUPPORT_COUNT(lanes));
    struct block_cache *cache = create((uint64_t)n_frames * block_bytes + 8192, block_bytes, n_blocks);
    for (uint32_t i = 0; i < n_lanes; i++) {
        lanes[i] = (struct lane){cache, block_bytes, n_blocks, steps, i, 0, 0, 0};
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]), 0);
    }
    for (uint32_t i = 0; i < n_lanes; i++) {
        assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);
        assert_int_equal(lanes[i].wrong, 0);
        hits += lanes[i].hits;
    }
    struct block_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.hits, hits);
    assert_int_equal(stats.hits + stats.misses, (uint64_t)n_lanes * steps);
    assert_true(stats.hits > 0 && stats.evicted > 0);
    assert_valid(cache);
    block_cache_destroy(cache);
}

static void test_lanes(void **state)
{
    const uint32_t scale = SANITIZED ? 1 : 10;
    (void)state;
    check_lanes(4, 300, 4096, 1200, 20000 * scale);
    check_lanes(4, 16, 8192, 70, 10000 * scale);
    check_lanes(24, 16, 131072, 70, 200 * scale); /* more lanes than frames */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_resident_memory_follows_use),
        cmocka_unit_test(test_all_blocks_fit),
        cmocka_unit_test(test_structure_stays_valid),
        cmocka_unit_test(test_offered_twice),
        cmocka_unit_test(test_hot_set_outlives_scans),
        cmocka_unit_test(test_hot_set_may_change),
        cmocka_unit_test(test_zipf_against_lru),
        cmocka_unit_test(test_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
