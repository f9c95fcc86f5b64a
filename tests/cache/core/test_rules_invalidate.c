/*
 * test_rules_invalidate.c - rules of docs/cache.md about what goes: invalidations and the leases that are older than
 * they, documents that move or are lost, categories that were dropped. The clock stands still unless a test moves it.
 */
#include "tests/cache/support_rules.h"

/* ---- leases and invalidations ------------------------------------------------------------------------------------ */

static void dead_leases(void **state)
{
    struct world w;
    float v[DIM];
    char token[QUIRE_CACHE_TOKEN_BYTES], next[QUIRE_CACHE_TOKEN_BYTES], value[256];
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 LEASE 1000");
    vector_make(v, DIM, 1);
    struct quire_cache_entry entry = {.text = text_of("q"), .vector = v};
    lease_of(&w, "q", v, token);
    w.now_ms += 1000;
    lease_of(&w, "q", v, next); /* the first one is over */
    entry.lease = text_of(next);
    w.now_ms += 10;
    assert_int_equal(put_with(&w, entry, "newer", NULL), QUIRE_CACHE_STORED);
    entry.lease = text_of(token);
    assert_int_equal(put_with(&w, entry, "older", NULL), QUIRE_CACHE_OUTDATED);
    assert_int_equal(ask_simple(&w, "q", v, value), QUIRE_CACHE_EXACT);
    assert_string_equal(value, "newer");
    /* where nothing newer is, a dead one is as good as none; also after a restart */
    vector_make(v, DIM, 2);
    lease_of(&w, "r", v, token);
    w.now_ms += 5000;
    world_reopen(&w, false);
    entry.text = text_of("r");
    assert_int_equal(put_with(&w, entry, "late", NULL), QUIRE_CACHE_STORED);
    /* nobody else's */
    struct quire_cache_put_result result;
    token[5] ^= 1;
    struct quire_bytes chunk = text_of("x");
    entry.chunks = &chunk;
    entry.n_chunks = 1;
    entry.category = text_of("k");
    assert_int_equal(cache_put(w.cache, w.scratch, &entry, &result, &err), QUIRE_EINVALID);
    world_close(&w);
}

struct selecting {
    const char *what;
    struct quire_cache_selector selector;
    bool same; /* it selects the answer of the lease as well */
};

/* Every selector: what it selects goes, DRYRUN counts it, and an answer whose lease is older comes back only where the
 * selector has nothing to do with it; also when the folder was opened anew. */
static void invalidations_hold(void **state)
{
    float v[DIM], far[DIM];
    vector_make(v, DIM, 1);
    vector_make(far, DIM, 2);
    struct quire_bytes tag[2] = {text_of("t1"), text_of("other")}, other_tag = text_of("t9"), k = text_of("k"),
                       j = text_of("j"), model = text_of("m"), no_model = text_of("m2"), encoder = text_of("enc@1"),
                       no_encoder = text_of("enc@2"), pair[2] = {text_of("tenant"), text_of("a")},
                       no_pair[2] = {text_of("tenant"), text_of("b")};
    const struct selecting all[] = {
        {"tag", {.by = QUIRE_CACHE_BY_TAG, .names = tag, .n = 2}, true},
        {"another tag", {.by = QUIRE_CACHE_BY_TAG, .names = &other_tag, .n = 1}, false},
        {"category", {.by = QUIRE_CACHE_BY_CATEGORY, .names = &k, .n = 1}, true},
        {"another category", {.by = QUIRE_CACHE_BY_CATEGORY, .names = &j, .n = 1}, false},
        {"scope", {.by = QUIRE_CACHE_BY_SCOPE, .names = pair, .n = 2}, true},
        {"another scope", {.by = QUIRE_CACHE_BY_SCOPE, .names = no_pair, .n = 2}, false},
        {"model", {.by = QUIRE_CACHE_BY_MODEL, .names = &model, .n = 1}, true},
        {"another model", {.by = QUIRE_CACHE_BY_MODEL, .names = &no_model, .n = 1}, false},
        {"encoder", {.by = QUIRE_CACHE_BY_ENCODER, .names = &encoder, .n = 1}, true},
        {"another encoder", {.by = QUIRE_CACHE_BY_ENCODER, .names = &no_encoder, .n = 1}, false},
        {"near", {.by = QUIRE_CACHE_BY_NEAR, .vector = v, .similarity = 0.95}, true},
        {"far", {.by = QUIRE_CACHE_BY_NEAR, .vector = far, .similarity = 0.95}, false},
        {"all", {.by = QUIRE_CACHE_BY_ALL}, true},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        for (int reopen = 0; reopen < 3; reopen++) {
            char *folder = support_path(*state, all[i].what);
            struct world w;
            struct quire_pair scope = {pair[0], pair[1]};
            struct quire_cache_entry entry = {.text = text_of("q"),
                                              .vector = v,
                                              .tags = tag,
                                              .n_tags = 1,
                                              .model = model,
                                              .scope = &scope,
                                              .n_scope = 1};
            struct quire_cache_query query = {
                .text = text_of("q"), .vector = v, .scope = &scope, .n_scope = 1, .no_lease = true};
            world_open_with(&w, folder, &(struct cache_config){.dim = DIM, .encoder = encoder});
            world_category(&w, "k", "SIM 0.9");
            world_category(&w, "j", "SIM 0.9");
            query.text = text_of("p");
            query.vector = far;
            query.no_lease = false;
            struct quire_cache_answer asked = ask_for(&w, &query, NULL);
            assert_true(asked.lease[0]);
            put_with(&w, entry, "old", NULL);
            uint64_t counted = invalidate(&w, &all[i].selector, true);
            assert_int_equal(stats_of(&w, "k").entries, 1);
            assert_int_equal(counted, all[i].same);
            assert_int_equal(invalidate(&w, &all[i].selector, false), counted);
            assert_int_equal(stats_of(&w, "k").entries, !counted);
            if (reopen)
                world_reopen(&w, reopen == 2);
            entry.lease = text_of(asked.lease);
            entry.text = text_of("late");
            enum quire_cache_put_outcome outcome = put_with(&w, entry, "back from the dead", NULL);
            if (all[i].same != (outcome == QUIRE_CACHE_OUTDATED))
                fail_msg("%s: outcome %d", all[i].what, outcome);
            query.text = text_of("late");
            query.vector = v;
            query.no_lease = true;
            assert_int_equal(ask_for(&w, &query, NULL).status, all[i].same ? QUIRE_CACHE_MISS : QUIRE_CACHE_EXACT);
            entry.lease = (struct quire_bytes){NULL, 0};
            entry.text = text_of("new");
            assert_int_equal(put_with(&w, entry, "new", NULL), QUIRE_CACHE_STORED);
            world_check(&w);
            world_close(&w);
            support_folder_remove(folder);
        }
}

static void invalidation_by_id(void **state)
{
    struct world w;
    float v[DIM];
    uint64_t id, other, lsn;
    char token[QUIRE_CACHE_TOKEN_BYTES];
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    lease_of(&w, "q", v, token);
    struct quire_cache_entry entry = {.text = text_of("q"), .vector = v}, bare = {.vector = v};
    put_with(&w, entry, "a", &id);
    put_with(&w, bare, "b", &other);
    assert_int_equal(cache_remove(w.cache, id, &lsn, &err), 0);
    assert_int_equal(cache_remove(w.cache, id, &lsn, &err), QUIRE_ENOTFOUND);
    assert_int_equal(stats_of(&w, "k").removed, 1);
    assert_int_equal(stats_of(&w, "k").invalidated, 0);
    bare.lease = entry.lease = text_of(token);
    world_reopen(&w, false);
    assert_int_equal(put_with(&w, entry, "back", NULL), QUIRE_CACHE_OUTDATED);
    entry.text = text_of("unrelated");
    assert_int_equal(put_with(&w, entry, "taken", NULL), QUIRE_CACHE_STORED);
    /* one without a hash is known by its group only */
    assert_int_equal(put_with(&w, bare, "taken", NULL), QUIRE_CACHE_STORED);
    assert_int_equal(cache_remove(w.cache, other, &lsn, &err), 0);
    assert_int_equal(put_with(&w, bare, "back", NULL), QUIRE_CACHE_OUTDATED);
    world_check(&w);
    world_close(&w);
}

/* What selects nothing outdates nothing, however often it is said. */
static void ids_that_are_gone_outdate_nothing(void **state)
{
    struct world w;
    float v[DIM];
    uint64_t lsn;
    char token[QUIRE_CACHE_TOKEN_BYTES];
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    lease_of(&w, "q", v, token);
    for (unsigned i = 0; i < 2 * INVALIDATIONS_MAX; i++)
        assert_int_equal(cache_remove(w.cache, 12345 + i, &lsn, &err), QUIRE_ENOTFOUND);
    struct quire_cache_entry entry = {.text = text_of("q"), .vector = v, .lease = text_of(token)};
    assert_int_equal(put_with(&w, entry, "a", NULL), QUIRE_CACHE_STORED);
    world_close(&w);
}

/* What expired and was swept away, and would have been invalidated: no STALE set later and no clock set back brings it
 * back with a restart. */
static void the_expired_stay_dead(void **state)
{
    struct world w;
    float v[DIM];
    struct quire_cache_selector selector = {.by = QUIRE_CACHE_BY_ALL};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0");
    vector_make(v, DIM, 1);
    put_simple(&w, "q", v, "dead");
    w.now_ms += 1001;
    world_work(&w);
    assert_int_equal(stats_of(&w, "k").entries, 0);
    assert_int_equal(invalidate(&w, &selector, false), 0);
    world_category(&w, "k", "STALE 100000");
    world_reopen(&w, false);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    w.now_ms -= 1001;
    world_reopen(&w, false);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    world_close(&w);
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* Documents that compaction moved are found, counted and dropped as those that were not. */
static void compaction_keeps_answers(void **state)
{
    enum { N = 60 };
    struct world w;
    float v[N][DIM];
    uint64_t ids[N], lsn;
    char text[32], value[256];
    struct quire_error err = {0};
    struct document_log_stats documents;
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 10000000000");
    for (unsigned i = 0; i < N; i++) {
        vector_make(v[i], DIM, i);
        snprintf(text, sizeof text, "question %u", i);
        ids[i] = put_simple(&w, text, v[i], text);
    }
    world_reopen(&w, false);
    for (unsigned i = 0; i < N; i++)
        if (i % 6)
            assert_int_equal(cache_remove(w.cache, ids[i], &lsn, &err), 0);
    world_work(&w);
    document_log_get_stats(cache_documents(w.cache), &documents);
    assert_true(documents.moved_bytes > 0);
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < N; i += 6) {
            snprintf(text, sizeof text, "question %u", i);
            assert_int_equal(ask_simple(&w, text, v[i], value), QUIRE_CACHE_EXACT);
            assert_string_equal(value, text);
        }
        document_log_get_stats(cache_documents(w.cache), &documents);
        assert_int_equal(documents.live_bytes, w.cache->quota.used.bytes);
        world_check(&w);
        world_reopen(&w, round == 0);
        world_work(&w);
    }
    for (unsigned i = 0; i < N; i += 6)
        assert_int_equal(cache_remove(w.cache, ids[i], &lsn, &err), 0);
    document_log_get_stats(cache_documents(w.cache), &documents);
    assert_int_equal(documents.live_bytes, 0);
    world_close(&w);
}

static void dropped_categories_stay_empty(void **state)
{
    struct world w;
    float v[DIM];
    uint64_t lsn;
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    put_simple(&w, "q", v, "a");
    assert_int_equal(cache_drop_category(w.cache, text_of("k"), &lsn, &err), 0);
    for (int i = 0; i < 3; i++) {
        world_category(&w, "k", "SIM 0.9");
        assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
        assert_int_equal(w.cache->quota.used.entries, 0);
        world_check(&w);
        world_reopen(&w, i);
    }
    world_close(&w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(dead_leases),
        TEST(invalidations_hold),
        TEST(invalidation_by_id),
        TEST(ids_that_are_gone_outdate_nothing),
        TEST(the_expired_stay_dead),
        TEST(compaction_keeps_answers),
        TEST(dropped_categories_stay_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
