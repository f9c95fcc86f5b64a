/*
 * test_cache_crash.c - the power is cut at the calls of a scripted run: puts, replacements, invalidations, eviction,
 * expiry, checkpoints, compaction, a dropped category.
 *
 * After each cut the folder is opened again. What was replaced, invalidated or dropped, and acknowledged, answers no
 * more; what expired does not; whatever answers says of itself that it is the answer to this question; an answer whose
 * lease is older than an acknowledged invalidation is not taken; all structures agree; and writes go on.
 *
 * QUIRE_CRASH_STEP=n cuts at every n-th call only (1 tries all: minutes). Without it the step is chosen so that the
 * test takes seconds.
 */
#include "cache/core/cache_priv.h"
#include "tests/cache/support_cache.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 32, QUESTIONS = 40, VERSIONS = 16 };
#define CALLS                                                                                                          \
    (FAULT_WRITE | FAULT_SYNC | FAULT_RENAME | FAULT_UNLINK | FAULT_SYNC_DIR | FAULT_LINK | FAULT_MKDIR | FAULT_RMDIR)

struct run {
    struct world w;
    float vectors[QUESTIONS][DIM];
    bool put[QUESTIONS][VERSIONS], dead[QUESTIONS][VERSIONS]; /* dead: acknowledged as gone */
    uint64_t expire[QUESTIONS][VERSIONS];
    char lease[QUIRE_CACHE_TOKEN_BYTES]; /* older than an acknowledged invalidation of everything; "" */
    bool failed;
};

/* ---- the script -------------------------------------------------------------------------------------------------- */

static bool acknowledge(struct run *r, int rc, uint64_t lsn)
{
    struct quire_error err;
    if (rc < 0 || r->failed || journal_wait(store_journal(r->w.store), lsn, &err) < 0)
        r->failed = true;
    return !r->failed;
}

static void bury(struct run *r, unsigned question, unsigned versions)
{
    for (unsigned i = 0; i < versions; i++)
        r->dead[question][i] = true;
}

/* Questions of even number have a tag; of every fourth the answer is long lived. */
static void put_some(struct run *r, unsigned first, unsigned n, unsigned version)
{
    for (unsigned q = first; q < first + n && !r->failed; q++) {
        char text[32], value[32];
        struct quire_error err;
        struct quire_cache_put_result result;
        struct quire_bytes tag = text_of("even");
        snprintf(text, sizeof text, "question %u", q);
        snprintf(value, sizeof value, "%u %u", q, version);
        struct quire_cache_entry entry = {.text = text_of(text),
                                          .vector = r->vectors[q],
                                          .tags = &tag,
                                          .n_tags = q % 2 == 0,
                                          .ttl_ms = q % 4 == 1 ? 5000 : 5000000000};
        r->put[q][version] = true;
        r->expire[q][version] = r->w.now_ms + entry.ttl_ms;
        int rc = put(&r->w, &entry, value, &result, &err);
        if (acknowledge(r, rc, result.lsn))
            bury(r, q, version);
        if (q % 7 == 0 && !r->failed)
            r->failed = document_log_sync(cache_documents(r->w.cache), &err) < 0;
    }
}

static void invalidate_some(struct run *r, const struct quire_cache_selector *selector, unsigned step, unsigned version)
{
    uint64_t n, lsn = 0;
    struct quire_error err;
    if (r->failed)
        return;
    int rc = cache_invalidate(r->w.cache, r->w.scratch, selector, false, &n, &lsn, &err);
    if (acknowledge(r, rc, lsn))
        for (unsigned q = 0; q < QUESTIONS; q += step)
            bury(r, q, version);
}

static void checkpoint(struct run *r)
{
    struct quire_error err;
    r->failed = r->failed || store_checkpoint(r->w.store, &err) < 0;
}

static void work(struct run *r)
{
    for (unsigned i = 0; i < 3 && !r->failed; i++)
        caches_work(r->w.caches);
}

static void take_lease(struct run *r, char token[QUIRE_CACHE_TOKEN_BYTES])
{
    struct cache_decision decision;
    struct quire_error err;
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of("leased")};
    assert_int_equal(cache_get(r->w.cache, r->w.scratch, &query, NULL, &decision, &err), 0);
    memcpy(token, decision.answer.lease, QUIRE_CACHE_TOKEN_BYTES);
}

static void script(struct run *r)
{
    struct quire_bytes tag = text_of("even");
    const struct quire_cache_selector even = {.by = QUIRE_CACHE_BY_TAG, .names = &tag, .n = 1},
                                      all = {.by = QUIRE_CACHE_BY_ALL};
    char token[QUIRE_CACHE_TOKEN_BYTES];
    put_some(r, 0, 20, 1);
    work(r);
    take_lease(r, token);
    invalidate_some(r, &even, 2, 2);
    checkpoint(r);
    put_some(r, 0, QUESTIONS, 3); /* evicts */
    r->w.now_ms += 6000;          /* some are over */
    work(r);
    put_some(r, 1, 6, 4);
    checkpoint(r);
    invalidate_some(r, &even, 2, 5);
    work(r);
    invalidate_some(r, &all, 1, 5);
    if (!r->failed)
        memcpy(r->lease, token, sizeof token);
    put_some(r, 0, 20, 6);
    checkpoint(r);
    put_some(r, 10, 20, 7);
    r->w.now_ms += 120000;
    invalidate_some(r, &even, 2, 8);
    work(r);
    put_some(r, 5, 10, 9);
    work(r);
}

/* ---- after a cut ------------------------------------------------------------------------------------------------- */

static bool is_right(struct run *r, struct world *w, unsigned question)
{
    char text[32], value[256] = "";
    unsigned q = 0, version = 0;
    snprintf(text, sizeof text, "question %u", question);
    for (unsigned near = 0; near < 2; near++) {
        enum quire_cache_status status = ask_simple(w, near ? "other words" : text, r->vectors[question], value);
        if (status == QUIRE_CACHE_MISS)
            continue;
        if (sscanf(value, "%u %u", &q, &version) != 2 || q != question || version >= VERSIONS || !r->put[q][version]) {
            fprintf(stderr, "question %u was answered '%s'\n", question, value);
            return false;
        }
        if (r->dead[q][version] || r->expire[q][version] <= w->now_ms) {
            fprintf(stderr, "'%s' came back from the dead\n", value);
            return false;
        }
    }
    return true;
}

static bool lease_is_dead(struct run *r, struct world *w)
{
    struct quire_cache_put_result result;
    struct quire_error err;
    struct quire_cache_entry entry = {.text = text_of("leased"), .vector = r->vectors[0], .lease = text_of(r->lease)};
    if (!r->lease[0])
        return true;
    if (put(w, &entry, "old", &result, &err) < 0)
        fail_msg("%s", err.message);
    return result.outcome == QUIRE_CACHE_OUTDATED;
}

static bool recovers(struct run *r)
{
    struct quire_error err = {0};
    bool right = true;
    uint64_t now_ms = r->w.now_ms + 1;
    for (unsigned round = 0; round < 2 && right; round++) {
        struct world w;
        if (world_try_open(&w, "/data", DIM, now_ms + round, &r->w.options, &err) < 0) {
            fprintf(stderr, "open: %s\n", err.message);
            return false;
        }
        assert_non_null(w.cache);
        world_check(&w);
        right = lease_is_dead(r, &w);
        for (unsigned q = 0; q < QUESTIONS && right; q++)
            right = is_right(r, &w, q);
        world_check(&w);
        for (unsigned q = 0; q < 5; q++) {
            put_simple(&w, "afterwards", r->vectors[q], "new");
            world_work(&w);
        }
        assert_int_equal(ask_simple(&w, "afterwards", NULL, NULL), QUIRE_CACHE_EXACT);
        struct quire_cache_selector near = {.by = QUIRE_CACHE_BY_NEAR, .vector = r->vectors[4], .similarity = 0.9};
        invalidate(&w, &near, false); /* the next round looks for what the run has put */
        world_check(&w);
        world_close(&w);
    }
    return right;
}

static void begin(struct run *r, struct io_fs *fs)
{
    struct quire_error err = {0};
    memset(r, 0, sizeof *r);
    for (unsigned i = 0; i < QUESTIONS; i++)
        vector_make(r->vectors[i], DIM, i);
    world_make(&r->w, "/data", &(struct cache_config){.dim = DIM},
               &(struct world_options){.fs = fs, .sync = JOURNAL_ALWAYS});
    world_category(&r->w, "k", "SIM 0.9 ENTRIES 30 JITTER 0 GUARD none");
    assert_int_equal(journal_sync(store_journal(r->w.store), &err), 0);
    put_some(r, 0, 25, 0);
    assert_false(r->failed);
    world_reopen(&r->w, false); /* so that there is a segment that is written no more: to be compacted */
}

static void cut_at(uint64_t n, uint64_t seed)
{
    struct io_fs *fs = fault_fs_create();
    struct run *r = malloc(sizeof *r);
    begin(r, fs);
    fault_fail_nth(fs, CALLS, n, QUIRE_EIO, true);
    script(r);
    world_abandon(&r->w);
    fault_power_cut(fs, seed);
    if (!recovers(r))
        fail_msg("after a cut at call %llu with seed %llu", (unsigned long long)n, (unsigned long long)seed);
    free(r);
    fault_fs_destroy(fs);
}

static uint64_t count_calls(void)
{
    struct io_fs *fs = fault_fs_create();
    struct run *r = malloc(sizeof *r);
    struct document_log_stats documents;
    begin(r, fs);
    fault_fail_nth(fs, CALLS, 0, 0, false); /* counts from here */
    script(r);
    uint64_t calls = fault_calls(fs, CALLS);
    assert_false(r->failed);
    document_log_get_stats(cache_documents(r->w.cache), &documents);
    assert_true(documents.moved_bytes > 0);
    assert_true(r->lease[0] && stats_of(&r->w, "k").evicted_own > 0 && stats_of(&r->w, "k").expired > 0);
    world_close(&r->w);
    assert_true(recovers(r));
    free(r);
    fault_fs_destroy(fs);
    return calls;
}

static void every_cut_recovers(void **state)
{
    const char *text = getenv("QUIRE_CRASH_STEP");
    const uint64_t seeds[] = {0, UINT64_MAX, 1};
    uint64_t calls = count_calls(), chosen = text ? strtoull(text, NULL, 10) : calls / (SANITIZED ? 6 : 20) + 1;
    (void)state;
    assert_true(chosen > 0);
    for (uint64_t n = 1; n <= calls; n += chosen)
        for (unsigned i = 0; i < sizeof seeds / sizeof *seeds; i++)
            cut_at(n, seeds[i] == 0 || seeds[i] == UINT64_MAX ? seeds[i] : seeds[i] + 10 * n);
    fprintf(stderr, "%llu calls, every %llu-th with 3 seeds\n", (unsigned long long)calls, (unsigned long long)chosen);
}

/* An invalidation that nobody acknowledged is lost, and with it its number; a lease that was given after it does not
 * pass for one that is newer than the next invalidation, which gets the same number. */
static void numbers_of_lost_invalidations_say_nothing(void **state)
{
    struct io_fs *fs = fault_fs_create();
    struct world w;
    float v[DIM];
    char token[QUIRE_CACHE_TOKEN_BYTES];
    struct quire_error err = {0};
    const struct quire_cache_selector all = {.by = QUIRE_CACHE_BY_ALL};
    struct world_options options = {.fs = fs, .sync = JOURNAL_NO};
    (void)state;
    vector_make(v, DIM, 1);
    world_make(&w, "/data", &(struct cache_config){.dim = DIM}, &options);
    world_category(&w, "k", "SIM 0.9");
    assert_int_equal(journal_sync(store_journal(w.store), &err), 0);
    fault_fail_nth(fs, CALLS, 1, QUIRE_EIO, true);
    invalidate(&w, &all, false);
    lease_of(&w, "q", v, token);
    uint64_t now_ms = w.now_ms + 1000;
    world_abandon(&w);
    fault_power_cut(fs, 0);
    assert_int_equal(world_try_open(&w, "/data", DIM, now_ms, &options, &err), 0);
    invalidate(&w, &all, false);
    struct quire_cache_entry entry = {.text = text_of("q"), .vector = v, .lease = text_of(token)};
    struct quire_cache_put_result result;
    assert_int_equal(put(&w, &entry, "old", &result, &err), 0);
    assert_int_equal(result.outcome, QUIRE_CACHE_OUTDATED);
    world_close(&w);
    fault_fs_destroy(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_recovers),
        cmocka_unit_test(numbers_of_lost_invalidations_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
