/*
 * test_rules.c - each rule of docs/cache.md that can be broken, and each setting of docs/cache-settings.md that has an
 * effect in the core: candidates that fail, feedback, scopes, admission, quotas, modes, load, audits. Time and removal
 * are in test_rules_ttl.c and test_rules_invalidate.c. The clock stands still unless a test moves it.
 */
#include "tests/cache/support_rules.h"

/* ---- candidates -------------------------------------------------------------------------------------------------- */

/* Many that are nearer may not answer; the one behind them does. */
static void a_candidate_that_fails_ends_nothing(void **state)
{
    enum { IN_FRONT = 100 };
    static const char *const names[] = {"tags", "age", "guard", "veto", "expired"};
    struct world w;
    float v[DIM], near[DIM];
    char value[256], text[64];
    uint64_t lsn;
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    for (unsigned kind = 0; kind < 5; kind++) {
        struct quire_bytes good = text_of("good"), category = text_of(names[kind]);
        struct quire_cache_query query = {
            .category = category, .vector = v, .text = text_of("how many are 7 apples"), .need = &good, .n_need = 1};
        world_category(&w, names[kind], "SIM 0.8 JITTER 0 TTL 100000");
        vector_make(v, DIM, 1);
        for (unsigned i = 0; i < IN_FRONT; i++) {
            uint64_t id;
            vector_near(near, v, DIM, 0.999 - i * 0.0001, i);
            snprintf(text, sizeof text, "how many are %u apples", kind == 2 ? 100 + i : 7);
            struct quire_cache_entry entry = {.category = category, .vector = near, .text = text_of(text)};
            char hash[16];
            snprintf(hash, sizeof hash, "h%u", i);
            entry.hash = text_of(hash);
            entry.tags = &good;
            entry.n_tags = kind != 0;
            entry.ttl_ms = kind == 4 ? 1000 : 0;
            put_with(&w, entry, "wrong", &id);
            if (kind == 3)
                assert_int_equal(cache_feedback(w.cache, id, false, 0.9995, &lsn, &err), 0);
        }
        w.now_ms += 2000;
        vector_near(near, v, DIM, 0.9, 1000);
        put_with(&w,
                 (struct quire_cache_entry){.category = category,
                                            .vector = near,
                                            .text = text_of("7 apples, how many?"),
                                            .tags = &good,
                                            .n_tags = 1},
                 "right", NULL);
        query.max_age_ms = kind == 1 ? 1000 : 0;
        struct quire_cache_answer answer = ask_for(&w, &query, value);
        assert_int_equal(answer.status, QUIRE_CACHE_HIT);
        assert_string_equal(value, "right");
        assert_true(answer.similarity > 0.88 && answer.similarity < 0.92);
    }
    world_check(&w);
    world_close(&w);
}

/* Also where the threshold is lower than anything that is looked at for labels. */
static void low_thresholds_look_as_far(void **state)
{
    struct world w;
    float v[DIM], near[DIM];
    char value[256], hash[16];
    struct quire_bytes good = text_of("good");
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.3 FLOOR 0.2 GUARD none");
    vector_make(v, DIM, 1);
    for (unsigned i = 0; i < 60; i++) {
        vector_near(near, v, DIM, 0.45, i);
        snprintf(hash, sizeof hash, "%u", i);
        put_with(&w, (struct quire_cache_entry){.vector = near, .hash = text_of(hash)}, "wrong", NULL);
    }
    vector_near(near, v, DIM, 0.4, 100);
    put_with(&w, (struct quire_cache_entry){.vector = near, .hash = text_of("x"), .tags = &good, .n_tags = 1}, "right",
             NULL);
    struct quire_cache_query query = {.vector = v, .need = &good, .n_need = 1};
    assert_int_equal(ask_for(&w, &query, value).status, QUIRE_CACHE_HIT);
    assert_string_equal(value, "right");
    world_close(&w);
}

static void a_client_may_tighten_never_loosen(void **state)
{
    struct world w;
    float v[DIM], near[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.93, 2);
    put_simple(&w, NULL, v, "a");
    struct quire_cache_query query = {.vector = near, .similarity = 0.95};
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_MISS);
    query.similarity = 0.91;
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_HIT);
    vector_near(near, v, DIM, 0.85, 3);
    query.similarity = 0.5;
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_MISS);
    query.similarity = 93;
    query.category = text_of("k");
    assert_int_equal(ask_error(&w, &query), QUIRE_ERANGE);
    query.similarity = -0.1;
    assert_int_equal(ask_error(&w, &query), QUIRE_ERANGE);
    world_close(&w);
}

static void guards_are_skipped_without_text(void **state)
{
    struct world w;
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    put_simple(&w, "turn on dark mode", v, "on");
    struct quire_cache_query query = {.vector = v, .text = text_of("turn off dark mode"), .explain = true};
    struct quire_cache_answer answer = ask_for(&w, &query, NULL);
    assert_int_equal(answer.status, QUIRE_CACHE_MISS);
    assert_string_equal(answer.guard, "negation");
    assert_int_equal(answer.n_candidates, 1);
    assert_string_equal(answer.candidates[0].verdict, "guard");
    assert_false(answer.guards_skipped);
    query.text = (struct quire_bytes){NULL, 0};
    answer = ask_for(&w, &query, NULL);
    assert_int_equal(answer.status, QUIRE_CACHE_HIT);
    assert_true(answer.guards_skipped);
    world_category(&w, "k", "GUARD none");
    query.text = text_of("turn off dark mode");
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_HIT);
    world_close(&w);
}

static void bad_feedback_raises_a_threshold_of_its_own(void **state)
{
    struct world w;
    float v[DIM], near[DIM], nearer[DIM];
    uint64_t lsn;
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.8");
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.9, 2);
    vector_near(nearer, v, DIM, 0.97, 3);
    uint64_t id = put_simple(&w, "q", v, "a");
    struct quire_cache_query query = {.vector = near};
    struct quire_cache_answer answer = ask_for(&w, &query, NULL);
    assert_int_equal(answer.status, QUIRE_CACHE_HIT);
    assert_int_equal(cache_feedback(w.cache, id, false, answer.similarity, &lsn, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask_simple(&w, NULL, near, NULL), QUIRE_CACHE_MISS);
        assert_int_equal(ask_simple(&w, NULL, nearer, NULL), QUIRE_CACHE_HIT);
        assert_int_equal(ask_simple(&w, "q", NULL, NULL), QUIRE_CACHE_EXACT);
        world_reopen(&w, i);
    }
    /* a wrong answer at nearly 1 says nothing about the entry's own question */
    assert_int_equal(cache_feedback(w.cache, id, false, 0.9995, &lsn, &err), 0);
    assert_int_equal(ask_simple(&w, NULL, nearer, NULL), QUIRE_CACHE_MISS);
    assert_int_equal(ask_simple(&w, "q", NULL, NULL), QUIRE_CACHE_EXACT);
    /* a wrong exact answer does */
    assert_int_equal(cache_feedback(w.cache, id, false, -1, &lsn, &err), 0);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    put_simple(&w, "q", v, "b");
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    world_check(&w);
    world_close(&w);
}

/* ---- what must be equal ------------------------------------------------------------------------------------------ */

static void compat_and_required_scope(void **state)
{
    struct world w;
    float v[DIM];
    char value[256];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    put_with(&w, (struct quire_cache_entry){.text = text_of("q"), .vector = v, .compat = text_of("s1")}, "one", NULL);
    struct quire_cache_query query = {.text = text_of("q"), .vector = v};
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_MISS);
    query.compat = text_of("s2");
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_MISS);
    query.compat = text_of("s1");
    assert_int_equal(ask_for(&w, &query, value).status, QUIRE_CACHE_EXACT);
    assert_string_equal(value, "one");
    world_category(&w, "k", "REQUIRESCOPE tenant");
    query.category = text_of("k");
    assert_int_equal(ask_error(&w, &query), QUIRE_EINVALID);
    struct quire_pair pair = {text_of("tenant"), text_of("a")};
    query.scope = &pair;
    query.n_scope = 1;
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_MISS);
    world_close(&w);
}

static void unknown_categories(void **state)
{
    struct world w;
    float v[DIM];
    uint64_t n, lsn;
    struct quire_error err = {0};
    struct quire_cache_query query = {.category = text_of("x"), .vector = v};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    assert_int_equal(ask_error(&w, &query), QUIRE_ENOTFOUND);
    world_category(&w, "*", "SIM 0.9");
    put_with(&w, (struct quire_cache_entry){.category = text_of("x"), .vector = v}, "a", NULL);
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_HIT);
    query.category = text_of("y");
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_HIT);
    assert_int_equal(ask_simple(&w, NULL, v, NULL), QUIRE_CACHE_MISS); /* k is its own */
    /* a misspelt name does not empty "*" */
    struct quire_bytes name = text_of("z");
    struct quire_cache_selector selector = {.by = QUIRE_CACHE_BY_CATEGORY, .names = &name, .n = 1};
    assert_int_equal(cache_invalidate(w.cache, w.scratch, &selector, false, &n, &lsn, &err), QUIRE_ENOTFOUND);
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_HIT);
    name = text_of("*");
    assert_int_equal(invalidate(&w, &selector, false), 1);
    assert_int_equal(cache_drop_category(w.cache, text_of("*"), &lsn, &err), 0);
    query.category = text_of("x");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask_error(&w, &query), QUIRE_ENOTFOUND);
        world_reopen(&w, i);
    }
    world_close(&w);
}

/* ---- putting ----------------------------------------------------------------------------------------------------- */

static void admission_and_if_new(void **state)
{
    struct world w;
    float v[DIM];
    char value[256];
    uint64_t first, id;
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 ADMIT second TTL 1000 JITTER 0");
    vector_make(v, DIM, 1);
    struct quire_cache_entry entry = {.text = text_of("q"), .vector = v};
    assert_int_equal(put_with(&w, entry, "a", NULL), QUIRE_CACHE_NOT_ADMITTED);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    assert_int_equal(put_with(&w, entry, "a", &first), QUIRE_CACHE_STORED);
    entry.if_new = true;
    assert_int_equal(put_with(&w, entry, "b", &id), QUIRE_CACHE_EXISTS);
    assert_int_equal(id, first);
    assert_int_equal(ask_simple(&w, "q", v, value), QUIRE_CACHE_EXACT);
    assert_string_equal(value, "a");
    w.now_ms += 1000;
    assert_int_equal(put_with(&w, entry, "b", &id), QUIRE_CACHE_REPLACED);
    entry.if_new = false;
    assert_int_equal(put_with(&w, entry, "c", &id), QUIRE_CACHE_REPLACED);
    assert_int_equal(ask_simple(&w, "q", v, value), QUIRE_CACHE_EXACT);
    assert_string_equal(value, "c");
    assert_int_equal(stats_of(&w, "k").entries, 1);
    world_check(&w);
    world_close(&w);
}

static void modes(void **state)
{
    struct world w;
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    put_simple(&w, "q", v, "a");
    world_category(&w, "k", "MODE exact");
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(ask_simple(&w, "p", v, NULL), QUIRE_CACHE_MISS);
    put_simple(&w, "no vector", NULL, "b");
    assert_int_equal(ask_simple(&w, "no vector", NULL, NULL), QUIRE_CACHE_EXACT);
    world_category(&w, "k", "MODE semantic");
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_HIT);
    assert_int_equal(ask_simple(&w, "q", NULL, NULL), QUIRE_CACHE_MISS);
    world_category(&w, "k", "MODE off");
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_BYPASS);
    struct quire_cache_entry entry = {.text = text_of("r"), .vector = v};
    assert_int_equal(put_with(&w, entry, "c", NULL), QUIRE_CACHE_OFF);
    world_category(&w, "k", "MODE both");
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(stats_of(&w, "k").entries, 2);
    world_check(&w);
    world_reopen(&w, true);
    assert_int_equal(ask_simple(&w, "no vector", NULL, NULL), QUIRE_CACHE_EXACT);
    world_check(&w);
    world_close(&w);
}

static void negative_entries(void **state)
{
    struct world w;
    float v[DIM];
    struct quire_error err = {0};
    char token[QUIRE_CACHE_TOKEN_BYTES];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    lease_of(&w, "q", v, token);
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of("q"), .vector = v};
    assert_int_equal(cache_negative(w.cache, &query, 1000, text_of(token), &err), 0);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_NEGATIVE);
    assert_int_equal(stats_of(&w, "k").entries, 0);
    struct quire_pair pair = {text_of("tenant"), text_of("a")};
    query.scope = &pair;
    query.n_scope = 1;
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_MISS); /* of its scope only */
    w.now_ms += 1000;
    lease_of(&w, "q", v, token);
    query.n_scope = 0;
    assert_int_equal(cache_negative(w.cache, &query, 1000, text_of(token), &err), 0);
    put_simple(&w, "q", v, "a"); /* an answer came after all */
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    world_close(&w);
}

/* ---- quotas ------------------------------------------------------------------------------------------------------ */

static uint64_t fill(struct world *w, const char *category, unsigned n, unsigned seed)
{
    float v[DIM];
    for (unsigned i = 0; i < n; i++) {
        vector_make(v, DIM, seed + i);
        put_with(w, (struct quire_cache_entry){.category = text_of(category), .vector = v}, "filling", NULL);
    }
    return stats_of(w, category).entries;
}

static void quotas(void **state)
{
    struct world w;
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    float v[DIM];
    world_open_with(&w, *state, &(struct cache_config){.dim = DIM, .memory_bytes = 1 << 20});
    world_category(&w, "own", "SIM 0.9 ENTRIES 10");
    world_category(&w, "one", "SIM 0.9 ENTRIES 1");
    world_category(&w, "a", "SIM 0.9 MINSHARE 40");
    world_category(&w, "b", "SIM 0.9 PRIORITY 10");
    world_category(&w, "c", "SIM 0.9 PRIORITY 90");
    assert_int_equal(fill(&w, "own", 30, 0), 10);
    assert_int_equal(stats_of(&w, "own").evicted_own, 20);
    /* the only one is replaced, not evicted */
    for (int i = 0; i < 3; i++) {
        vector_make(v, DIM, 77);
        struct quire_cache_entry entry = {.category = text_of("one"), .vector = v, .text = text_of("q")};
        assert_int_equal(put(&w, &entry, "v", &result, &err), 0);
        assert_int_equal(result.outcome, i ? QUIRE_CACHE_REPLACED : QUIRE_CACHE_STORED);
        assert_int_equal(result.evicted, 0);
    }
    uint64_t most = w.cache->quota.max.entries;
    uint64_t b = fill(&w, "b", (unsigned)most + 100, 1000); /* borrows all that is free */
    assert_in_range(b, w.cache->quota.max.entries - 30, w.cache->quota.max.entries);
    uint64_t a = fill(&w, "a", (unsigned)(most * 40 / 100) + 10, 50000);
    assert_in_range(a, most * 40 / 100 - 5, most * 40 / 100 + 10);
    fill(&w, "c", (unsigned)most + 100, 100000);
    assert_true(stats_of(&w, "b").entries < 3);
    assert_in_range(stats_of(&w, "a").entries, w.cache->quota.max.entries * 40 / 100 - 50, most);
    world_check(&w);
    world_reopen(&w, true);
    world_check(&w);
    world_close(&w);
}

static void eviction_policies(void **state)
{
    static const char *const policies[] = {"lru", "lfu", "cost"};
    struct world w;
    float v[4][DIM];
    char words[64];
    for (unsigned i = 0; i < 4; i++)
        vector_make(v[i], DIM, i);
    world_open(&w, *state, DIM);
    for (unsigned p = 0; p < 3; p++) {
        struct quire_bytes category = text_of(policies[p]);
        struct quire_cache_query query = {.category = category, .no_lease = true};
        snprintf(words, sizeof words, "SIM 0.9 ENTRIES 3 EVICT %s", policies[p]);
        world_category(&w, policies[p], words);
        for (unsigned i = 0; i < 3; i++)
            put_with(&w, (struct quire_cache_entry){.category = category, .vector = v[i], .cost = i == 1 ? 9 : 0.01},
                     "a", NULL);
        /* number 0 often and long ago, 1 is dear, 2 once and last */
        for (unsigned i = 0; i < 200; i++) {
            query.vector = v[0];
            assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_HIT);
        }
        query.vector = v[1];
        ask_for(&w, &query, NULL);
        query.vector = v[2];
        ask_for(&w, &query, NULL);
        put_with(&w, (struct quire_cache_entry){.category = category, .vector = v[3], .cost = 5}, "a", NULL);
        query.vector = v[0];
        assert_int_equal(ask_for(&w, &query, NULL).status == QUIRE_CACHE_HIT, p == 1);
        query.vector = v[1];
        if (p == 2)
            assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_HIT);
        assert_int_equal(stats_of(&w, policies[p]).entries, 3);
    }
    world_check(&w);
    world_close(&w);
}

static void load_relaxes_within_limits(void **state)
{
    struct world w;
    float v[DIM], near[DIM], far[DIM];
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 FLOOR 0.8 LOADMAX 0.8 1 TTL 1000 TTLMAX 1500 JITTER 0");
    world_category(&w, "fixed", "SIM 0.9");
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.83, 2);
    vector_near(far, v, DIM, 0.77, 3);
    put_simple(&w, NULL, v, "a");
    put_with(&w, (struct quire_cache_entry){.category = text_of("fixed"), .vector = v}, "a", NULL);
    assert_int_equal(ask_simple(&w, NULL, near, NULL), QUIRE_CACHE_MISS);
    assert_int_equal(cache_load(w.cache, text_of("m"), 1, HOUR, &err), 0);
    assert_int_equal(cache_load(w.cache, text_of("m"), 1.5, HOUR, &err), QUIRE_ERANGE);
    w.now_ms += 60000;
    put_simple(&w, NULL, v, "a");
    assert_int_equal(ask_simple(&w, NULL, near, NULL), QUIRE_CACHE_HIT);
    assert_int_equal(ask_simple(&w, NULL, far, NULL), QUIRE_CACHE_MISS);
    struct quire_cache_query query = {.category = text_of("fixed"), .vector = near};
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_MISS);
    w.now_ms += 1499;
    assert_int_equal(ask_simple(&w, NULL, near, NULL), QUIRE_CACHE_HIT); /* TTL grew, up to TTLMAX */
    w.now_ms += 1;
    assert_int_equal(ask_simple(&w, NULL, near, NULL), QUIRE_CACHE_MISS);
    world_close(&w);
}

static void audits(void **state)
{
    struct world w;
    float v[DIM], near[DIM];
    struct quire_cache_audit audit;
    struct document_at at;
    struct quire_error err = {0};
    unsigned n_audits = 0;
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.8 AUDIT 0.2");
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.9, 2);
    uint64_t id = put_simple(&w, NULL, v, "a"), number = 0;
    for (unsigned i = 0; i < 200; i++) {
        struct quire_cache_query query = {.vector = near, .no_lease = true};
        struct quire_cache_answer answer = ask_for(&w, &query, NULL);
        assert_true(answer.status == QUIRE_CACHE_HIT || answer.status == QUIRE_CACHE_AUDIT);
        assert_int_equal(answer.audit != 0, answer.status == QUIRE_CACHE_AUDIT);
        n_audits += answer.status == QUIRE_CACHE_AUDIT;
        number = answer.audit ? answer.audit : number;
    }
    assert_in_range(n_audits, 15, 75);
    assert_int_equal(stats_of(&w, "k").audits, n_audits);
    assert_int_equal(cache_audit_pop(w.cache, &audit, &at, &err), 0);
    assert_int_equal(audit.id, id);
    assert_true(at.bytes > 0);
    free(audit.memory);
    assert_int_equal(cache_audit_put(w.cache, number, false, &err), 0);
    assert_int_equal(cache_audit_put(w.cache, number, false, &err), QUIRE_ENOTFOUND);
    assert_int_equal(cache_audit_put(w.cache, number + 1, false, &err), QUIRE_ENOTFOUND);
    assert_int_equal(ask_simple(&w, NULL, near, NULL), QUIRE_CACHE_MISS); /* it was wrong: its own threshold rose */
    world_close(&w);
}

/* A probe sends its caller for a vector only where that could find something. */
static void probes(void **state)
{
    struct world w;
    float v[DIM];
    char value[256];
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    uint64_t id, lsn;
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0 STALE 500");
    world_category(&w, "e", "MODE exact");
    vector_make(v, DIM, 1);
    struct quire_cache_query query = {.hash = text_of("1"), .compat = text_of("c"), .probe = true};
    struct quire_cache_answer answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_MISS); /* an empty group: it leads at once */
    assert_true(answer.lease[0]);
    answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_MISS);
    assert_false(answer.lease[0]); /* one is under way */
    put_with(&w, (struct quire_cache_entry){.hash = text_of("1"), .compat = text_of("c"), .vector = v}, "a", &id);
    assert_int_equal(ask_for(&w, &query, value).status, QUIRE_CACHE_EXACT);
    query.hash = text_of("2");
    answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_VECTOR);
    assert_false(answer.lease[0]);
    query.compat = text_of("d"); /* another group, which is empty */
    answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_MISS);
    assert_true(answer.lease[0]);
    assert_int_equal(cache_get_stats(w.cache, text_of("k"), &stats, &err), 0);
    assert_int_equal(stats.requests, 4); /* not the one that is to come again */
    assert_int_equal(stats.requests, stats.exact + stats.misses);
    query.compat = text_of("c");
    query.vector = v;
    assert_int_equal(cache_get(w.cache, w.scratch, &query, NULL, &(struct cache_decision){0}, &err), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "probe"));
    query.probe = false;
    assert_int_equal(ask_for(&w, &query, value).status, QUIRE_CACHE_HIT);
    query.vector = NULL;
    query.probe = true;
    query.hash = text_of("1"); /* stale by its hash: something fresh may be near */
    w.now_ms += 1200;
    assert_int_equal(ask_for(&w, &query, value).status, QUIRE_CACHE_VECTOR);
    assert_int_equal(cache_remove(w.cache, id, &lsn, &err), 0);
    assert_int_equal(ask_for(&w, &query, value).status, QUIRE_CACHE_MISS);
    query.category = text_of("e"); /* where vectors do not count */
    query.hash = text_of("3");
    put_with(&w, (struct quire_cache_entry){.category = text_of("e"), .hash = text_of("4"), .compat = text_of("c")},
             "a", NULL);
    assert_int_equal(ask_for(&w, &query, value).status, QUIRE_CACHE_MISS);
    world_close(&w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_candidate_that_fails_ends_nothing),
        TEST(low_thresholds_look_as_far),
        TEST(a_client_may_tighten_never_loosen),
        TEST(guards_are_skipped_without_text),
        TEST(bad_feedback_raises_a_threshold_of_its_own),
        TEST(compat_and_required_scope),
        TEST(unknown_categories),
        TEST(admission_and_if_new),
        TEST(modes),
        TEST(negative_entries),
        TEST(quotas),
        TEST(eviction_policies),
        TEST(load_relaxes_within_limits),
        TEST(audits),
        TEST(probes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
