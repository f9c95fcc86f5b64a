/*
 * test_risk.c - the threshold from an error budget: its accounts, its bytes, and whether the budget is kept.
 *
 * Streams whose truth is known say whether the bound holds: random curves of right and wrong, with floors and with
 * categories where nothing is ever right, and, where the data are (QUIRE_SHARED_DATA or ../shared/data beside the
 * source), the labelled questions of CLINC150 in random order, beside the best single threshold that hindsight finds.
 */
#include "cache/guard/guard.h"
#include "tests/cache/support_risk.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct cache {
    struct risk_pool *pool;
    struct risk_curve *curves[PLAY_CATEGORIES_MAX];
    uint32_t n;
};

static void cache_open(struct cache *cache, uint32_t n)
{
    assert_true(n <= PLAY_CATEGORIES_MAX);
    assert_int_equal(risk_pool_create(&cache->pool), 0);
    for (cache->n = 0; cache->n < n; cache->n++)
        assert_int_equal(risk_curve_create(cache->pool, &cache->curves[cache->n]), 0);
}

static void cache_close(struct cache *cache)
{
    for (uint32_t i = 0; i < cache->n; i++)
        risk_curve_destroy(cache->curves[i]);
    risk_pool_destroy(cache->pool);
}

static struct play_outcome play(struct cache *cache, const struct stream_request *requests, uint32_t n, double delta,
                                uint64_t seed)
{
    struct play_outcome outcome = play_stream(cache->curves, requests, n, delta, 0, seed);
    assert_int_equal(outcome.faults, 0);
    return outcome;
}

/* ---- streams whose truth is known ---- */

static void test_known_streams(void **state)
{
    static const struct {
        uint32_t categories, each;
    } shapes[] = {{1, 300}, {1, 4000}, {10, 300}, {10, 2000}, {50, 300}};
    static const double deltas[] = {0.01, 0.02, 0.05};
    const uint32_t runs = 8;
    uint32_t broken = 0, halves = 0, total = 0;
    double served = 0;
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (uint32_t run = 0; run < runs; run++) {
            struct random random;
            uint32_t n = shapes[s].categories * shapes[s].each;
            struct stream_request *requests = malloc(n * sizeof *requests);
            assert_non_null(requests);
            random_init(&random, random_mix(s * 1000 + run));
            play_make_stream(&random, shapes[s].categories, n, requests);
            for (size_t d = 0; d < 3; d++, total++) {
                struct cache cache;
                cache_open(&cache, shapes[s].categories);
                struct play_outcome o = play(&cache, requests, n, deltas[d], run);
                broken += o.wrong[0] + o.wrong[1] > deltas[d] * n;
                halves += o.wrong[1] > deltas[d] * (n - n / 2);
                served += o.served[1] / o.requests[1];
                cache_close(&cache);
            }
            free(requests);
        }
    print_message("bound broken in %u of %u runs, in %u second halves; %.3f served in second halves\n", broken, total,
                  halves, served / total);
    assert_int_equal(broken, 0);
    assert_true(halves <= total / 60);
    assert_true(served / total > 0.15);
}

/* No more than the budget is served where everything is wrong, much where everything is right. */
static void test_extremes(void **state)
{
    enum { N = 6000 };
    struct stream_request *requests = malloc(N * sizeof *requests);
    (void)state;
    assert_non_null(requests);
    for (unsigned right = 0; right < 2; right++) {
        struct random random;
        struct cache cache;
        random_init(&random, 5);
        for (unsigned i = 0; i < N; i++)
            requests[i] = (struct stream_request){0, (float)(0.5 + 0.5 * play_uniform(&random)), right};
        cache_open(&cache, 1);
        struct play_outcome o = play(&cache, requests, N, 0.02, 1);
        print_message("all %s: %.4f of the second half served\n", right ? "right" : "wrong",
                      o.served[1] / o.requests[1]);
        if (right)
            assert_true(o.served[1] > 0.4 * o.requests[1]);
        else
            assert_true(o.wrong[0] + o.wrong[1] <= 0.02 * N);
        cache_close(&cache);
    }
    free(requests);
}

/* ---- accounts ---- */

static struct play_outcome play_some(struct cache *cache, uint32_t categories, uint32_t n, uint64_t seed)
{
    struct random random;
    struct stream_request *requests = malloc(n * sizeof *requests);
    assert_non_null(requests);
    random_init(&random, seed);
    play_make_stream(&random, categories, n, requests);
    struct play_outcome outcome = play(cache, requests, n, 0.05, seed);
    free(requests);
    return outcome;
}

static void test_threshold_follows_budget(void **state)
{
    struct cache cache;
    (void)state;
    cache_open(&cache, 4);
    play_some(&cache, 4, 8000, 3);
    for (uint32_t c = 0; c < 4; c++) {
        double above = 2;
        for (double delta = 0; delta < 0.5; delta += 0.001) {
            struct risk_settings settings = play_settings(delta);
            double tau = risk_threshold(cache.curves[c], &settings);
            assert_true(tau <= above);
            assert_true(tau >= 0.5 && tau <= (double)RISK_NOTHING);
            above = tau;
        }
        assert_true(above < 1);
        struct risk_settings narrow = {.delta = 0.4, .floor = 0.9, .ceil = 1};
        assert_true(risk_threshold(cache.curves[c], &narrow) >= 0.9);
    }
    cache_close(&cache);
}

static void test_accounts(void **state)
{
    struct cache cache;
    struct risk_stats stats;
    struct risk_point points[RISK_BINS];
    struct risk_settings settings = play_settings(0.05);
    (void)state;
    cache_open(&cache, 1);
    assert_true(risk_threshold(cache.curves[0], &settings) > 1); /* nothing is known: nothing is served */
    struct play_outcome outcome = play_some(&cache, 1, 3000, 17);
    risk_get_stats(cache.curves[0], &stats);
    assert_int_equal(stats.requests, 3000);
    assert_true((double)stats.labels == outcome.labels);
    assert_int_equal(stats.labels, stats.audits + stats.miss_samples);
    assert_true(stats.window > 1000 && stats.window < 3000); /* faded */
    uint32_t n = risk_points(cache.curves[0], &settings, points, RISK_BINS);
    assert_true(n > 20);
    for (uint32_t i = 1; i < n; i++) {
        assert_true(points[i].similarity < points[i - 1].similarity);
        assert_true(points[i].served >= points[i - 1].served);
        assert_true(points[i].bound >= points[i - 1].bound && points[i].bound <= 1);
    }
    assert_int_equal(risk_points(cache.curves[0], &settings, points, 3), 3);
    cache_close(&cache);
}

/* Answers that users call wrong raise the threshold; answers they call right do not lower it. */
static void test_feedback(void **state)
{
    struct cache caches[3];
    double tau[3];
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct risk_settings settings = play_settings(0.05);
        struct stream_request request = {0, 0.9f, true};
        double weight;
        cache_open(&caches[i], 1);
        play_some(&caches[i], 1, 6000, 17);
        for (unsigned k = 0; k < 400 && i > 0; k++)
            risk_label(caches[i].curves[0], RISK_FEEDBACK, 0.93, 1, i == 1);
        for (unsigned k = 0; k < 600; k++) /* until the next fit */
            risk_request(caches[i].curves[0], &settings, (double)request.similarity, 1, &weight);
        tau[i] = risk_threshold(caches[i].curves[0], &settings);
        cache_close(&caches[i]);
    }
    assert_true(tau[1] == tau[0]);
    assert_true(tau[2] > 0.92 && tau[2] > tau[0]);
}

/* AUDIT given by the user is the share of would-be hits that is labelled. */
static void test_audit_share(void **state)
{
    struct cache cache;
    struct risk_settings settings = {.delta = 0.05, .audit = 0.2, .floor = 0.5, .ceil = 1};
    struct random random;
    double hits = 0, audits = 0, weight;
    (void)state;
    cache_open(&cache, 1);
    random_init(&random, 9);
    for (unsigned i = 0; i < 20000; i++) {
        double similarity = 0.5 + 0.5 * play_uniform(&random);
        enum risk_verdict v = risk_request(cache.curves[0], &settings, similarity, play_uniform(&random), &weight);
        if (v == RISK_AUDIT_HIT || v == RISK_SAMPLE_MISS)
            risk_label(cache.curves[0], v == RISK_AUDIT_HIT ? RISK_AUDIT : RISK_MISS, similarity, weight, true);
        hits += i >= 10000 && (v == RISK_SERVE || v == RISK_AUDIT_HIT);
        audits += i >= 10000 && v == RISK_AUDIT_HIT;
    }
    assert_true(hits > 5000);
    assert_true(fabs(audits / hits - 0.2) < 0.03);
    cache_close(&cache);
}

/* ---- bytes ---- */

static void test_saved_is_the_same(void **state)
{
    static uint8_t bytes[2][RISK_BYTES];
    struct cache a, b;
    (void)state;
    cache_open(&a, 3);
    cache_open(&b, 3);
    play_some(&a, 3, 5000, 4);
    for (unsigned i = 0; i < 3; i++) {
        uint32_t n = risk_save(a.curves[i], bytes[0]);
        assert_int_equal(risk_load(b.curves[i], bytes[0], n, false, NULL), 0);
        assert_int_equal(risk_save(b.curves[i], bytes[1]), n);
        assert_memory_equal(bytes[0], bytes[1], n);
        for (double delta = 0.001; delta < 0.2; delta *= 1.3) {
            struct risk_settings settings = play_settings(delta);
            assert_true(risk_threshold(a.curves[i], &settings) == risk_threshold(b.curves[i], &settings));
        }
    }
    cache_close(&a);
    cache_close(&b);
}

static void test_damaged_bytes(void **state)
{
    static uint8_t bytes[RISK_BYTES], damaged[RISK_BYTES], before[RISK_BYTES], after[RISK_BYTES];
    struct cache cache;
    struct quire_error err;
    (void)state;
    cache_open(&cache, 2);
    play_some(&cache, 2, 3000, 4);
    uint32_t n = risk_save(cache.curves[0], bytes);
    risk_save(cache.curves[1], before);
    for (uint32_t at = 0; at < n; at += at < 100 ? 1 : 97) {
        memcpy(damaged, bytes, n);
        damaged[at] ^= 0x10;
        int rc = risk_load(cache.curves[1], damaged, n, at % 2, &err);
        assert_int_equal(rc, at >= 4 && at < 8 ? QUIRE_EVERSION : QUIRE_EFORMAT);
        assert_true(strlen(err.message) > 10);
    }
    for (uint32_t length = 0; length < n; length += 1 + length / 2)
        assert_int_equal(risk_load(cache.curves[1], bytes, length, false, NULL), QUIRE_EFORMAT);
    risk_save(cache.curves[1], after);
    assert_memory_equal(before, after, n);
    cache_close(&cache);
}

/* Bytes of version 1, whose beliefs lie on another grid: the counts are taken, the beliefs are not, and the next
 * request draws the curve anew, with the same thresholds as a fit of the same counts gives here. */
static void test_older_bytes(void **state)
{
    static uint8_t bytes[RISK_BYTES];
    struct cache a, b;
    struct risk_stats of_a, of_b;
    struct risk_settings settings = play_settings(0.05);
    double weight;
    (void)state;
    cache_open(&a, 1);
    cache_open(&b, 1);
    play_some(&a, 1, 5000, 4);
    uint32_t n = risk_save(a.curves[0], bytes);
    bytes[4] = 1;
    assert_int_equal(risk_load(b.curves[0], bytes, n, false, NULL), 0);
    risk_get_stats(a.curves[0], &of_a);
    risk_get_stats(b.curves[0], &of_b);
    assert_true(of_a.requests == of_b.requests && of_a.labels == of_b.labels && of_a.window == of_b.window);
    for (unsigned i = 0; i <= 600; i++) { /* until both were fitted */
        risk_request(a.curves[0], &settings, 0.9, 1, &weight);
        risk_request(b.curves[0], &settings, 0.9, 1, &weight);
    }
    double tau_a = risk_threshold(a.curves[0], &settings), tau_b = risk_threshold(b.curves[0], &settings);
    assert_true(tau_a <= 1 && fabs(tau_a - tau_b) < 0.02);
    bytes[4] = 3;
    assert_int_equal(risk_load(b.curves[0], bytes, n, false, NULL), QUIRE_EVERSION);
    cache_close(&a);
    cache_close(&b);
}

/* Experience from elsewhere: more is served in the beginning, and the bound still holds. */
static void test_imported(void **state)
{
    enum { N = 4000, CATEGORIES = 4 };
    static uint8_t bytes[CATEGORIES][RISK_BYTES];
    struct stream_request *requests = malloc(2 * N * sizeof *requests);
    struct cache cache;
    struct random random;
    uint32_t size[CATEGORIES];
    (void)state;
    assert_non_null(requests);
    random_init(&random, 11);
    play_make_stream(&random, CATEGORIES, 2 * N, requests);
    cache_open(&cache, CATEGORIES);
    struct play_outcome cold = play(&cache, requests, N, 0.05, 1);
    for (unsigned i = 0; i < CATEGORIES; i++)
        size[i] = risk_save(cache.curves[i], bytes[i]);
    cache_close(&cache);
    cache_open(&cache, CATEGORIES);
    for (unsigned i = 0; i < CATEGORIES; i++)
        assert_int_equal(risk_load(cache.curves[i], bytes[i], size[i], true, NULL), 0);
    struct play_outcome warm = play(&cache, requests + N, N, 0.05, 2);
    cache_close(&cache);
    assert_true(warm.served[0] > cold.served[0]);
    assert_true(warm.labels < cold.labels);
    assert_true(warm.wrong[0] + warm.wrong[1] <= 0.05 * N);
    free(requests);
}

/* ---- CLINC150 ---- */

static bool find_data(char tsv[1024], char vectors[1024])
{
    const char *folder = getenv("QUIRE_SHARED_DATA");
    char beside[512];
    if (!folder) {
        snprintf(beside, sizeof beside, "%s/../shared/data", QUIRE_SOURCE_DIR);
        folder = beside;
    }
    snprintf(tsv, 1024, "%s/clinc150.tsv", folder);
    snprintf(vectors, 1024, "%s/clinc150.fbin", folder);
    return access(tsv, R_OK) == 0 && access(vectors, R_OK) == 0;
}

#define CLINC_SEEDS 5u
#define CLINC_RUNS  (3 * CLINC_SEEDS) /* random, bursty, drifting */

static uint8_t exported[CLINC_SEEDS][PLAY_CATEGORIES_MAX][RISK_BYTES];
static uint32_t exported_size;

struct clinc {
    struct stream_data data;
    struct stream_request *streams[CLINC_RUNS];
};

static void clinc_open(struct clinc *c, const char *tsv, const char *vectors, unsigned guards)
{
    const struct stream_columns columns = {.category = 2, .answer = 3, .text = 4, .nothing = "oos"};
    struct quire_error err;
    uint32_t *orders[CLINC_RUNS];
    assert_int_equal(stream_load(tsv, vectors, &columns, &c->data, &err), 0);
    for (uint32_t i = 0; i < CLINC_RUNS; i++) {
        orders[i] = malloc(c->data.rows * sizeof *orders[i]);
        c->streams[i] = malloc(c->data.rows * sizeof *c->streams[i]);
        assert_true(orders[i] && c->streams[i]);
        assert_int_equal(stream_order(&c->data, (enum stream_order)(i / CLINC_SEEDS), i % CLINC_SEEDS + 1, orders[i]),
                         0);
    }
    assert_int_equal(play_nearest(&c->data, (const uint32_t *const *)orders, CLINC_RUNS, guards, c->streams), 0);
    for (uint32_t i = 0; i < CLINC_RUNS; i++)
        free(orders[i]);
}

static void clinc_close(struct clinc *c)
{
    for (uint32_t i = 0; i < CLINC_RUNS; i++)
        free(c->streams[i]);
    stream_free(&c->data);
}

/* Seeds 1-5 of an order from a cold start, or with the curves that the next seed left: the budget is kept on each, by
 * the whole stream and by its second half, and what is served in second halves is on average at least `least` times
 * what the best static threshold serves there. */
static void check_clinc(const struct clinc *c, enum stream_order order, double delta, bool imported, double least)
{
    static const char *const names[] = {"random", "bursty", "drifting"};
    const uint32_t n = c->data.rows, categories = c->data.n_categories;
    double ratio = 0, whole = 0, half = 0, labels = 0;
    for (uint32_t i = 0; i < CLINC_SEEDS; i++) {
        const struct stream_request *stream = c->streams[order * CLINC_SEEDS + i];
        struct cache cache;
        cache_open(&cache, categories);
        for (uint32_t k = 0; k < categories && imported; k++)
            assert_int_equal(risk_load(cache.curves[k], exported[(i + 1) % 5][k], exported_size, true, NULL), 0);
        struct play_outcome o = play(&cache, stream, n, delta, i + 1);
        double hindsight = play_best_static(stream + n / 2, n - n / 2, delta);
        whole = fmax(whole, (o.wrong[0] + o.wrong[1]) / n);
        half = fmax(half, o.wrong[1] / (n - n / 2));
        labels = fmax(labels, o.labels / n);
        ratio += o.served[1] / (n - n / 2) / hindsight / CLINC_SEEDS;
        for (uint32_t k = 0; k < categories && !imported; k++)
            exported_size = risk_save(cache.curves[k], exported[i][k]);
        cache_close(&cache);
    }
    print_message("%s, delta %.2f%s: wrong at most %.4f, second half %.4f; labelled %.3f; %.3f of the best static\n",
                  names[order], delta, imported ? ", imported" : "", whole, half, labels, ratio);
    assert_true(whole <= delta && half <= delta);
    assert_true(labels <= 0.12);
    assert_true(ratio >= least);
}

static void clinc_open_or_skip(struct clinc *c, unsigned guards)
{
    char tsv[1024], vectors[1024];
    if (!find_data(tsv, vectors)) {
        print_message("skipped: no clinc150 in QUIRE_SHARED_DATA or ../shared/data\n");
        skip();
    }
    clinc_open(c, tsv, vectors, guards);
}

static void test_clinc(void **state)
{
    struct clinc c;
    (void)state;
    clinc_open_or_skip(&c, 0);
    check_clinc(&c, STREAM_RANDOM, 0.01, false, 1.00);
    check_clinc(&c, STREAM_RANDOM, 0.02, false, 0.95);
    check_clinc(&c, STREAM_RANDOM, 0.02, true, 0.95);
    check_clinc(&c, STREAM_RANDOM, 0.05, false, 0.92);
    check_clinc(&c, STREAM_RANDOM, 0.05, true, 0.92);
    for (enum stream_order order = STREAM_BURSTY; order <= STREAM_DRIFTING; order++) {
        check_clinc(&c, order, 0.01, false, 0.85);
        check_clinc(&c, order, 0.02, false, 0.80);
        check_clinc(&c, order, 0.05, false, 0.78);
    }
    clinc_close(&c);
}

/* The default of a category: all guards. */
static void test_clinc_guarded(void **state)
{
    struct clinc c;
    (void)state;
    clinc_open_or_skip(&c, GUARD_ALL);
    for (enum stream_order order = STREAM_RANDOM; order <= STREAM_DRIFTING; order++) {
        check_clinc(&c, order, 0.01, false, 0.85);
        check_clinc(&c, order, 0.02, false, 0.82);
        check_clinc(&c, order, 0.05, false, 0.80);
    }
    clinc_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_streams),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_threshold_follows_budget),
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_feedback),
        cmocka_unit_test(test_audit_share),
        cmocka_unit_test(test_saved_is_the_same),
        cmocka_unit_test(test_damaged_bytes),
        cmocka_unit_test(test_older_bytes),
        cmocka_unit_test(test_imported),
        cmocka_unit_test(test_clinc),
        cmocka_unit_test(test_clinc_guarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
