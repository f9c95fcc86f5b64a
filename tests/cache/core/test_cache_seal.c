/*
 * test_cache_seal.c - vectors on the disk: found again by nearness and by hash, kept apart by scope, gone in every way
 * in which entries go, there after restarts and cuts of power, merged when there are many.
 *
 * The clock stands still and caches_work does what is due, so that each test says when something is sealed.
 */
#include "cache/core/sealed.h"
#include "tests/cache/support_bed.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What a question in other words brings; value: 64 bytes, "" on a miss. */
static enum quire_cache_status ask_near(struct bed *b, const float *vector, const char *tenant, char *value)
{
    struct asked asked;
    struct quire_error err = {0};
    struct quire_pair scope = {text_of("tenant"), text_of(tenant)};
    struct quire_cache_query query = {.category = text_of("k"),
                                      .scope = &scope,
                                      .n_scope = 1,
                                      .text = text_of("in other words"),
                                      .vector = vector,
                                      .no_lease = true};
    for (uint32_t i = 0; i < b->w.cache->n_categories; i++)
        b->w.cache->categories[i]->breaker = (struct breaker){0}; /* hundreds of misses on purpose */
    if (ask(&b->w, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    enum quire_cache_status status = asked.answer.status;
    snprintf(value, 64, "%.63s", asked.value);
    asked_end(&asked);
    return status;
}

static bool is_hit(struct bed *b, unsigned i, const char *tenant)
{
    char value[64], right[64];
    enum quire_cache_status status = ask_near(b, b->vectors[i], tenant, value);
    snprintf(right, sizeof right, "%s %u", tenant, i);
    if (status == QUIRE_CACHE_HIT)
        assert_string_equal(value, right);
    else
        assert_int_equal(status, QUIRE_CACHE_MISS);
    return status == QUIRE_CACHE_HIT;
}

static unsigned count_hits(struct bed *b, unsigned first, unsigned n, const char *tenant)
{
    unsigned hits = 0;
    for (unsigned i = first; i < first + n; i++)
        hits += is_hit(b, i, tenant);
    return hits;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static void sealed_entries_answer(void **state)
{
    struct bed *b = bed_sealed();
    (void)state;
    assert_int_equal(bed_stats(b).entries, 300);
    assert_true(bed_stats(b).sealed_segments >= 1 && bed_stats(b).sealed_disk_bytes > 0 &&
                bed_stats(b).sealed_memory_bytes > 0);
    assert_int_equal(count_hits(b, 0, 300, "a"), 300);
    assert_in_range(b->w.n_searches, bed_stats(b).sealed_entries, 300);
    for (unsigned i = 0; i < 300; i += 7) { /* by hash without the disk */
        char text[32];
        struct asked asked;
        struct quire_error err;
        unsigned before = b->w.n_searches;
        struct quire_pair scope = {text_of("tenant"), text_of("a")};
        snprintf(text, sizeof text, "q%u", i);
        struct quire_cache_query query = {
            .category = text_of("k"), .scope = &scope, .n_scope = 1, .text = text_of(text), .vector = b->vectors[i]};
        assert_int_equal(ask(&b->w, &query, &asked, &err), 0);
        assert_int_equal(asked.answer.status, QUIRE_CACHE_EXACT);
        assert_true(asked.answer.id == b->ids[i]);
        assert_int_equal(b->w.n_searches, before);
        asked_end(&asked);
    }
    struct quire_cache_stats s = stats_of(&b->w, "k");
    assert_int_equal(s.requests, 300 + 43);
    assert_int_equal(s.hits, 300);
    assert_int_equal(s.exact, 43);
    bed_close(b);
}

static void what_is_far_is_a_miss_with_a_lease(void **state)
{
    struct bed *b = bed_sealed();
    struct cache_decision decision;
    struct quire_error err;
    struct quire_pair scope = {text_of("tenant"), text_of("a")};
    struct quire_cache_query query = {
        .category = text_of("k"), .scope = &scope, .n_scope = 1, .text = text_of("new"), .vector = b->vectors[1000]};
    (void)state;
    assert_int_equal(cache_get(b->w.cache, b->w.scratch, &query, NULL, &decision, &err), CACHE_WANTS_SEARCH);
    assert_int_equal(stats_of(&b->w, "k").misses, 0);
    cache_search_free(decision.search); /* whoever gives up has asked for nothing */
    assert_int_equal(search_and_decide(&b->w, &query, NULL, &decision, &err), 0);
    assert_int_equal(decision.answer.status, QUIRE_CACHE_MISS);
    assert_true(decision.answer.lease[0]);
    assert_int_equal(stats_of(&b->w, "k").misses, 1);
    bed_close(b);
}

static void search_done(void *owner)
{
    *(bool *)owner = true;
}

/* What was put, or sealed, while the disk was searched is found all the same. */
static void arrivals_during_a_search_are_seen(void **state)
{
    struct bed *b = bed_sealed();
    struct cache_decision decision;
    struct quire_error err;
    struct quire_pair scope = {text_of("tenant"), text_of("a")};
    struct quire_cache_query query = {.category = text_of("k"), .scope = &scope, .n_scope = 1, .vector = NULL};
    (void)state;
    for (unsigned with_seal = 0; with_seal < 2; with_seal++) {
        unsigned i = 1000 + 300 * with_seal;
        query.vector = b->vectors[i];
        int rc = cache_get(b->w.cache, b->w.scratch, &query, NULL, &decision, &err);
        assert_int_equal(rc, CACHE_WANTS_SEARCH);
        uint64_t id = bed_put(b, i, "a", 100000000), before = bed_stats(b).sealed_entries;
        if (with_seal) {
            bed_put_many(b, i + 1, 299, "a");
            world_work(&b->w);
            assert_true(bed_stats(b).sealed_entries > before);
            assert_true(sealed_holds(b->w.cache, (uint32_t)id));
        }
        bool done = false; /* the search that began before knows nothing of it */
        cache_search_start(decision.search, b->w.searcher, search_done, &done);
        while (!done)
            engine_poll(b->w.engine, 1, 10000);
        for (uint32_t k = 0; k < decision.search->n_hits; k++)
            assert_true(decision.search->hits[k].id != id);
        rc = cache_get_found(b->w.cache, b->w.scratch, &query, NULL, &decision, &err);
        assert_int_equal(rc, with_seal ? CACHE_WANTS_SEARCH : 0);
        if (with_seal) {
            cache_search_free(decision.search);
            rc = search_and_decide(&b->w, &query, NULL, &decision, &err);
        }
        assert_int_equal(rc, 0);
        assert_int_equal(decision.answer.status, QUIRE_CACHE_HIT);
        assert_true(decision.answer.id == id);
    }
    bed_close(b);
}

static void scopes_stay_apart(void **state)
{
    struct bed *b = malloc(sizeof *b);
    char value[64];
    (void)state;
    bed_open(b);
    for (unsigned i = 0; i < 300; i++) { /* the same questions of both, with other answers */
        b->w.now_ms++;
        bed_put(b, i, "a", 100000000);
        bed_put(b, i, "b", 100000000);
    }
    bed_put_many(b, 300, 200, "a");
    world_work(&b->w);
    assert_in_range(bed_stats(b).sealed_entries, 300, 799);
    assert_int_equal(count_hits(b, 0, 300, "a"), 300);
    assert_int_equal(count_hits(b, 0, 300, "b"), 300);
    assert_int_equal(count_hits(b, 300, 200, "a"), 200);
    for (unsigned i = 300; i < 500; i++)
        assert_int_equal(ask_near(b, b->vectors[i], "b", value), QUIRE_CACHE_MISS);
    assert_int_equal(ask_near(b, b->vectors[0], "c", value), QUIRE_CACHE_MISS);
    bed_close(b);
}

/* Asks with a tag for the neighbourhood of vector 0. */
static enum quire_cache_status ask_with_tag(struct bed *b, const char *tag, uint64_t *id)
{
    struct asked asked;
    struct quire_error err = {0};
    struct quire_pair scope = {text_of("tenant"), text_of("a")};
    struct quire_bytes need = text_of(tag);
    struct quire_cache_query query = {.category = text_of("k"),
                                      .scope = &scope,
                                      .n_scope = 1,
                                      .vector = b->vectors[0],
                                      .need = &need,
                                      .n_need = 1,
                                      .no_lease = true};
    if (ask(&b->w, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    enum quire_cache_status status = asked.answer.status;
    *id = asked.answer.id;
    asked_end(&asked);
    return status;
}

/* The one that may answer is behind many on the disk that may not, and there are next to none in memory. */
static void candidates_on_the_disk_are_looked_at_in_turn(void **state)
{
    enum { NEAR = 120 };
    struct bed *b = malloc(sizeof *b);
    uint64_t lsn, id;
    struct quire_error err = {0};
    (void)state;
    bed_open(b);
    for (unsigned i = 1; i < 2 * NEAR; i++) /* the even ones are the nearer the lower, one odd one is behind them */
        if (i % 2 == 0)
            vector_near(b->vectors[i], b->vectors[0], DIM, 0.99 - 0.0001 * i, i);
    vector_near(b->vectors[1], b->vectors[0], DIM, 0.95, 1);
    bed_put_many(b, 1, 2 * NEAR, "a");
    world_work(&b->w);
    for (unsigned i = 1; i <= 2 * NEAR; i++)
        if (!sealed_holds(b->w.cache, (uint32_t)b->ids[i]))
            assert_int_equal(cache_remove(b->w.cache, b->ids[i], &lsn, &err), 0);
    assert_true(sealed_holds(b->w.cache, (uint32_t)b->ids[1]));
    assert_in_range(bed_stats(b).sealed_entries, 100, 2 * NEAR);
    assert_int_equal(ask_with_tag(b, "odd", &id), QUIRE_CACHE_HIT);
    assert_true(id == b->ids[1]);
    bed_close(b);
}

/* ---- going ------------------------------------------------------------------------------------------------------- */

static void each_invalidation_hits_sealed_entries(void **state)
{
    static const struct {
        struct quire_cache_selector selector;
        const char *names[2];
        unsigned left;
    } rows[] = {
        {{.by = QUIRE_CACHE_BY_TAG, .n = 1}, {"even"}, 150},
        {{.by = QUIRE_CACHE_BY_CATEGORY, .n = 1}, {"k"}, 0},
        {{.by = QUIRE_CACHE_BY_SCOPE, .n = 2}, {"tenant", "a"}, 0},
        {{.by = QUIRE_CACHE_BY_SCOPE, .n = 2}, {"tenant", "b"}, 300},
        {{.by = QUIRE_CACHE_BY_BEFORE, .age_ms = 200}, {NULL}, 201},
        {{.by = QUIRE_CACHE_BY_NEAR, .similarity = 0.99}, {NULL}, 299},
        {{.by = QUIRE_CACHE_BY_ALL}, {NULL}, 0},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bed *b = bed_sealed();
        struct quire_cache_selector selector = rows[i].selector;
        struct quire_bytes names[2];
        for (unsigned k = 0; k < selector.n; k++)
            names[k] = text_of(rows[i].names[k]);
        selector.names = names;
        selector.vector = b->vectors[3];
        assert_int_equal(invalidate(&b->w, &selector, true), 300 - rows[i].left);
        assert_int_equal(count_hits(b, 0, 300, "a"), 300);
        assert_int_equal(invalidate(&b->w, &selector, false), 300 - rows[i].left);
        assert_int_equal(count_hits(b, 0, 300, "a"), rows[i].left);
        world_check(&b->w);
        world_work(&b->w); /* what is half empty is merged, what is empty removed */
        assert_int_equal(count_hits(b, 0, 300, "a"), rows[i].left);
        assert_int_equal(bed_stats(b).entries, rows[i].left);
        world_reopen(&b->w, i % 2);
        assert_int_equal(count_hits(b, 0, 300, "a"), rows[i].left);
        bed_close(b);
    }
}

static void by_id_expiry_and_eviction(void **state)
{
    struct bed *b = malloc(sizeof *b);
    uint64_t lsn;
    struct quire_error err = {0};
    (void)state;
    bed_open(b);
    for (unsigned i = 0; i < 300; i++) {
        b->w.now_ms++;
        b->ids[i] = bed_put(b, i, "a", i < 50 ? 5000 : 100000000);
    }
    world_work(&b->w);
    for (unsigned i = 50; i < 60; i++) {
        assert_true(sealed_holds(b->w.cache, (uint32_t)b->ids[i]));
        assert_int_equal(cache_remove(b->w.cache, b->ids[i], &lsn, &err), 0);
    }
    assert_int_equal(cache_pin(b->w.cache, b->ids[60], true, &lsn, &err), 0);
    assert_int_equal(cache_feedback(b->w.cache, b->ids[61], false, -1, &lsn, &err), 0);
    assert_int_equal(count_hits(b, 50, 12, "a"), 1); /* of the last two one is vetoed */
    b->w.now_ms += 6000;
    assert_int_equal(count_hits(b, 0, 50, "a"), 0);
    world_work(&b->w);
    assert_int_equal(bed_stats(b).entries, 240);
    world_category(&b->w, "k", "ENTRIES 100");
    bed_put_many(b, 300, 1, "a"); /* evicts all but the youngest, and what is pinned */
    world_work(&b->w);
    assert_int_equal(bed_stats(b).entries, 100);
    assert_true(is_hit(b, 60, "a") && is_hit(b, 300, "a"));
    assert_int_equal(count_hits(b, 62, 100, "a"), 0);
    bed_close(b);
}

/* Numbers of entries that went are used again, for rows of the graph of any number. */
static void numbers_are_used_again(void **state)
{
    struct bed *b = bed_sealed();
    (void)state;
    world_category(&b->w, "k", "ENTRIES 300");
    for (unsigned round = 0; round < 4; round++) {
        bed_put_many(b, 300 + 400 * round, 400, "a");
        world_work(&b->w);
        world_check(&b->w);
    }
    assert_int_equal(bed_stats(b).entries, 300);
    assert_in_range(b->w.cache->n_rows, 300, 900);
    assert_int_equal(count_hits(b, 1600, 300, "a"), 300);
    assert_int_equal(count_hits(b, 0, 1600, "a"), 0);
    bed_close(b);
}

/* Also within one millisecond: a search or a caller may still hold the id of one that went. */
static void ids_are_not_used_again(void **state)
{
    struct bed *b = bed_sealed();
    uint64_t ids[12];
    (void)state;
    for (unsigned i = 0; i < 12; i++) { /* each replaces the one before, whose number is free then */
        ids[i] = bed_put(b, 400, "a", 100000000);
        for (unsigned k = 0; k < i; k++)
            assert_true(ids[i] != ids[k]);
    }
    bed_close(b);
}

/* ---- restarts, merges -------------------------------------------------------------------------------------------- */

static void restarts(void **state)
{
    struct bed *b = bed_sealed();
    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        uint64_t before = bed_stats(b).sealed_entries;
        world_reopen(&b->w, round % 2);
        assert_int_equal(bed_stats(b).sealed_entries, before);
        world_check(&b->w);
        assert_int_equal(count_hits(b, 0, 300 + 100 * round, "a"), 300 + 100 * round);
        bed_put_many(b, 300 + 100 * round, 100, "a");
        world_work(&b->w);
    }
    bed_close(b);
}

static void many_segments_are_merged(void **state)
{
    struct bed *b = malloc(sizeof *b);
    uint64_t most = 0;
    (void)state;
    bed_open(b);
    for (unsigned i = 0; i < 15; i++) {
        bed_put_many(b, 100 * i, 100, "a");
        world_work(&b->w);
        most = bed_stats(b).sealed_segments > most ? bed_stats(b).sealed_segments : most;
        world_check(&b->w);
    }
    assert_in_range(bed_stats(b).sealed_entries, 1300, 1500);
    assert_in_range(most, 2, 4); /* world_work goes on until nothing is due */
    assert_true(b->w.cache->next_sealed > 10);
    assert_int_equal(count_hits(b, 0, 1500, "a"), 1500);
    world_reopen(&b->w, false);
    assert_int_equal(count_hits(b, 0, 1500, "a"), 1500);
    bed_close(b);
}

/* A merge whose move cannot be logged leaves entries where they were. */
static void a_merge_that_cannot_be_logged_moves_nothing(void **state)
{
    struct bed *b = bed_sealed();
    unsigned left = 0;
    uint64_t lsn = 0;
    struct quire_error err = {0};
    struct journal *journal = store_journal(b->w.store);
    (void)state;
    for (unsigned i = 0; i < 300; i++) /* two of three */
        if (i % 3 && cache_remove(b->w.cache, b->ids[i], &lsn, &err) < 0)
            fail_msg("%s", err.message);
    assert_int_equal(journal_sync(journal, &err), 0);
    for (unsigned i = 0; i < 300; i++)
        left += sealed_holds(b->w.cache, (uint32_t)b->ids[i]) && i % 3 == 0;
    assert_true(left > 0);
    fault_fail_nth(b->fs, FAULT_WRITE, 1, QUIRE_EIO, false);
    b->w.now_ms++;
    bed_put(b, 301, "a", 100000000);
    assert_true(journal_sync(journal, &err) < 0);
    uint32_t next = b->w.cache->next_sealed;
    world_work(&b->w);
    assert_true(b->w.cache->next_sealed > next); /* one was built */
    world_check(&b->w);
    for (unsigned i = 0; i < 300; i += 3)
        assert_true(is_hit(b, i, "a"));
    world_abandon(&b->w);
    fault_fs_destroy(b->fs);
    free(b);
}

/* A segment that cannot be read any more is not merged, which keeps nobody else from being sealed or merged. */
static void a_damaged_segment_stops_no_seal(void **state)
{
    struct bed *b = bed_sealed();
    char file[256];
    uint64_t lsn, before;
    struct quire_error err = {0};
    (void)state;
    char *path = sealed_path("/data", b->w.cache->uid, b->w.cache->sealed[0]->number);
    snprintf(file, sizeof file, "%s/blocks", path);
    for (uint64_t bit = 100 * 8; fault_flip_bit(b->fs, file, bit) == 0; bit += 512 * 8)
        ;
    free(path);
    for (unsigned i = 0; i < 300; i++)
        if (i % 3 && cache_remove(b->w.cache, b->ids[i], &lsn, &err) < 0)
            fail_msg("%s", err.message);
    for (unsigned round = 0; round < 4; round++) {
        before = bed_stats(b).sealed_entries;
        b->w.now_ms += 11000;
        bed_put_many(b, 300 + 150 * round, 150, round % 2 ? "a" : "b");
        world_work(&b->w);
        assert_true(round == 0 || bed_stats(b).sealed_entries > before);
    }
    assert_int_equal(count_hits(b, 300, 150, "b"), 150);
    assert_int_equal(count_hits(b, 600, 150, "b"), 150);
    world_close(&b->w);
    fault_fs_destroy(b->fs);
    free(b);
}

static int count_name(void *context, const char *name)
{
    (void)name;
    ++*(unsigned *)context;
    return 0;
}

static unsigned count_folders(struct bed *b)
{
    unsigned n = 0;
    assert_int_equal(b->fs->ops->list(b->fs, "/data/" SEALED_NAME, count_name, &n), 0);
    return n;
}

/* What a snapshot has linked is there after a cut of power. */
static void links_of_a_snapshot_are_durable(void **state)
{
    struct bed *b = bed_sealed();
    struct quire_error err = {0};
    unsigned n = 0, documents = 0, wanted = (unsigned)bed_stats(b).sealed_segments;
    (void)state;
    assert_int_equal(b->fs->ops->mkdir(b->fs, "/copy"), 0);
    caches_pin_files(b->w.caches);
    assert_int_equal(caches_link_documents(b->w.caches, "/copy", &err), 0);
    caches_unpin_files(b->w.caches);
    assert_int_equal(b->fs->ops->sync_dir(b->fs, "/copy"), 0);
    assert_int_equal(b->fs->ops->sync_dir(b->fs, "/"), 0);
    world_abandon(&b->w);
    fault_power_cut(b->fs, 0);
    assert_int_equal(b->fs->ops->list(b->fs, "/copy/" SEALED_NAME, count_name, &n), 0);
    assert_int_equal(b->fs->ops->list(b->fs, "/copy/documents", count_name, &documents), 0);
    assert_int_equal(n, wanted);
    assert_int_equal(documents, 1);
    fault_fs_destroy(b->fs);
    free(b);
}

static void folders_go_with_their_entries(void **state)
{
    struct bed *b = bed_sealed();
    const struct quire_cache_selector all = {.by = QUIRE_CACHE_BY_ALL};
    uint64_t lsn;
    struct quire_error err = {0};
    (void)state;
    assert_int_equal(count_folders(b), bed_stats(b).sealed_segments);
    invalidate(&b->w, &all, false);
    for (unsigned i = 0; i < 3; i++) {
        searcher_drop_retired(b->w.searcher);
        world_work(&b->w);
    }
    assert_int_equal(bed_stats(b).sealed_segments, 0);
    assert_int_equal(count_folders(b), 0);
    bed_put_many(b, 0, 300, "a");
    world_work(&b->w);
    assert_true(count_folders(b) > 0);
    assert_int_equal(b->fs->ops->mkdir(b->fs, "/data/" SEALED_NAME "/0000000000000001-00000001"), 0);
    world_reopen(&b->w, false); /* of no cache */
    assert_int_equal(count_folders(b), bed_stats(b).sealed_segments);
    assert_int_equal(caches_drop(b->w.caches, text_of("c"), &lsn, &err), 0);
    cache_unref(b->w.cache);
    b->w.cache = NULL;
    assert_int_equal(count_folders(b), 0);
    world_close(&b->w);
    fault_fs_destroy(b->fs);
    free(b);
}

/* Memory decides otherwise: what does not fit is sealed, not evicted. */
static void memory_that_is_short_is_what_seals(void **state)
{
    struct world w;
    struct io_fs *fs = fault_fs_create();
    float v[DIM];
    unsigned n = 8000;
    (void)state;
    world_make(&w, "/data", &(struct cache_config){.dim = DIM, .memory_bytes = 1 << 20},
               &(struct world_options){.fs = fs, .sync = JOURNAL_NO});
    w.caches->options.seal_rows = 2000;
    world_category(&w, "k", "SIM 0.9 JITTER 0 GUARD none");
    uint64_t fits = w.cache->quota.max.entries;
    for (unsigned i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "q%u", i);
        vector_make(v, DIM, i);
        w.now_ms++;
        put_simple(&w, text, v, "x");
        if (i % 100 == 0)
            caches_work(w.caches);
    }
    uint64_t used, room;
    cache_memory_use(w.cache, &used, &room);
    struct quire_cache_stats s = stats_of(&w, "");
    assert_true(s.sealed_entries > s.entries / 2 && s.entries > fits + fits / 10);
    assert_true(used <= room);
    world_check(&w);
    world_close(&w);
    fault_fs_destroy(fs);
}

/* What a policy learns from is measured, though it is far below the threshold; otherwise it is estimated. */
static void what_is_learnt_from_is_measured(void **state)
{
    struct bed *b = bed_sealed();
    float near[DIM];
    struct quire_pair scope = {text_of("tenant"), text_of("a")};
    struct quire_cache_query query = {
        .category = text_of("k"), .scope = &scope, .n_scope = 1, .vector = near, .no_lease = true};
    (void)state;
    for (unsigned learns = 0; learns < 2; learns++) {
        world_category(&b->w, "k", learns ? "AUDIT 0.5" : "AUDIT 0");
        for (unsigned i = 0; i < 40; i++) {
            struct quire_error err = {0};
            struct cache_decision decision;
            unsigned rounds = 0;
            vector_near(near, b->vectors[i], DIM, 0.8, i + 5);
            int rc = cache_get(b->w.cache, b->w.scratch, &query, NULL, &decision, &err);
            for (; rc == CACHE_WANTS_SEARCH; rounds++) {
                bool done = false;
                cache_search_start(decision.search, b->w.searcher, search_done, &done);
                while (!done)
                    engine_poll(b->w.engine, 1, 10000);
                assert_true(learns || decision.search->n_hits == 0 || decision.search->hits[0].deviation > 0);
                rc = cache_get_found(b->w.cache, b->w.scratch, &query, NULL, &decision, &err);
            }
            assert_int_equal(rc, 0);
            assert_int_equal(decision.answer.status, QUIRE_CACHE_MISS);
            assert_int_equal(rounds, learns ? 2 : 1);
            assert_true(fabs(decision.answer.similarity - 0.8) < (learns ? 0.01 : 0.1));
        }
    }
    bed_close(b);
}

/* Many vectors are sealed to inverted lists: what is near is found there; what is not is told without a read, and who
 * asks for an explanation sees how near it is. */
static void many_lie_in_lists(void **state)
{
    struct world w;
    struct io_fs *fs = fault_fs_create();
    float v[DIM], near[DIM];
    const unsigned n = 9000;
    unsigned hits = 0, reads = 0;
    char text[32];
    (void)state;
    world_make(&w, "/data", &(struct cache_config){.dim = DIM},
               &(struct world_options){.fs = fs, .sync = JOURNAL_NO, .seal_rows = 4400});
    world_category(&w, "k", "SIM 0.9 JITTER 0 GUARD none");
    for (unsigned i = 0; i < n; i++) {
        snprintf(text, sizeof text, "q%u", i);
        vector_make(v, DIM, i);
        w.now_ms++;
        put_simple(&w, text, v, "x");
    }
    world_work(&w);
    assert_true(w.cache->n_sealed > 0);
    assert_int_equal(segment_info(w.cache->sealed[0]->segment)->index, QUIRE_INDEX_SPANN);
    for (unsigned q = 0; q < 200; q++) {
        struct quire_error err = {0};
        struct cache_decision decision;
        struct quire_cache_query query = {
            .category = text_of("k"), .text = text_of("in other words"), .vector = near, .no_lease = true};
        vector_make(v, DIM, q);
        vector_near(near, v, DIM, 0.95, q + 7);
        w.cache->categories[0]->breaker = (struct breaker){0};
        assert_int_equal(search_and_decide(&w, &query, NULL, &decision, &err), 0);
        hits += decision.answer.status == QUIRE_CACHE_HIT;
        assert_true(decision.answer.status != QUIRE_CACHE_HIT || fabs(decision.answer.similarity - 0.95) < 0.01);
        vector_make(near, DIM, n + q); /* far from all */
        int rc = cache_get(w.cache, w.scratch, &query, NULL, &decision, &err);
        assert_int_equal(rc, CACHE_WANTS_SEARCH);
        bool done = false;
        cache_search_start(decision.search, w.searcher, search_done, &done);
        while (!done)
            engine_poll(w.engine, 1, 10000);
        reads += decision.search->stats.reads;
        assert_int_equal(cache_get_found(w.cache, w.scratch, &query, NULL, &decision, &err), 0);
        assert_int_equal(decision.answer.status, QUIRE_CACHE_MISS);
        double estimated = decision.answer.similarity;
        query.explain = true;
        assert_int_equal(search_and_decide(&w, &query, NULL, &decision, &err), 0);
        assert_true(decision.answer.n_candidates > 4 && fabs(decision.answer.similarity - estimated) < 0.1);
    }
    assert_true(hits >= 196 && reads <= 20);
    world_check(&w);
    world_close(&w);
    fault_fs_destroy(fs);
}

/* Entries that are found by their hash only have nothing to seal, and do not keep others from it. */
static void entries_without_vectors_stay(void **state)
{
    struct bed *b = malloc(sizeof *b);
    (void)state;
    bed_open(b);
    world_category(&b->w, "x", "MODE exact JITTER 0");
    for (unsigned i = 0; i < 500; i++) {
        char text[32];
        struct quire_cache_put_result result;
        struct quire_error err = {0};
        snprintf(text, sizeof text, "e%u", i);
        struct quire_cache_entry entry = {.category = text_of("x"), .text = text_of(text)};
        assert_int_equal(put(&b->w, &entry, "v", &result, &err), 0);
    }
    bed_put_many(b, 0, 150, "a");
    world_work(&b->w);
    assert_in_range(bed_stats(b).sealed_entries, 50, 149);
    assert_int_equal(stats_of(&b->w, "x").entries, 500);
    assert_int_equal(count_hits(b, 0, 150, "a"), 150);
    world_reopen(&b->w, true);
    assert_int_equal(stats_of(&b->w, "x").entries, 500);
    bed_close(b);
}

static int note_entry(void *context, const char *name)
{
    (void)name;
    *(bool *)context = true;
    return 0;
}

/* A segment that is lost makes its cache unavailable, over a checkpoint and a restart; nothing is given up: it answers
 * all when the segment is back. */
static void a_lost_segment_makes_its_cache_unavailable(void **state)
{
    struct bed *b = bed_sealed();
    struct quire_error err = {0};
    (void)state;
    char *path = sealed_path("/data", b->w.cache->uid, b->w.cache->sealed[0]->number);
    world_close(&b->w);
    assert_int_equal(b->fs->ops->rename(b->fs, path, "/away"), 0);
    for (unsigned i = 0; i < 2; i++) {
        world_open_again(&b->w);
        assert_int_equal(cache_available(b->w.cache, &err), QUIRE_ENOFILE);
        assert_non_null(strstr(err.message, path));
        assert_int_equal(caches_count_unavailable(b->w.caches), 1);
        world_work(&b->w);
        caches_pin_files(b->w.caches);
        assert_int_equal(b->fs->ops->mkdir(b->fs, i ? "/copy1" : "/copy0"), 0);
        assert_int_equal(caches_link_documents(b->w.caches, i ? "/copy1" : "/copy0", &err), 0);
        caches_unpin_files(b->w.caches);
        assert_int_equal(store_checkpoint(b->w.store, &err), 0);
        world_close(&b->w);
    }
    assert_int_equal(b->fs->ops->rename(b->fs, "/away", path), 0);
    free(path);
    world_open_again(&b->w);
    assert_int_equal(cache_available(b->w.cache, &err), 0);
    world_check(&b->w);
    assert_int_equal(bed_stats(b).entries, 300);
    assert_int_equal(count_hits(b, 0, 300, "a"), 300);
    bed_close(b);
}

/* One that is unavailable can be dropped, with all of its files. */
static void an_unavailable_cache_can_be_dropped(void **state)
{
    struct bed *b = bed_sealed();
    struct quire_error err = {0};
    uint64_t lsn;
    (void)state;
    char *path = sealed_path("/data", b->w.cache->uid, b->w.cache->sealed[0]->number);
    world_close(&b->w);
    assert_int_equal(fs_remove_folder(b->fs, path, NULL), 0);
    free(path);
    world_open_again(&b->w);
    assert_true(cache_available(b->w.cache, NULL) < 0);
    assert_int_equal(caches_drop(b->w.caches, text_of("c"), &lsn, &err), 0);
    cache_unref(b->w.cache);
    b->w.cache = NULL;
    assert_int_equal(caches_count_unavailable(b->w.caches), 0);
    bool there = false;
    assert_int_equal(b->fs->ops->list(b->fs, "/data/sealed", note_entry, &there), 0);
    assert_int_equal(b->fs->ops->list(b->fs, "/data/documents", note_entry, &there), 0);
    assert_false(there);
    world_close(&b->w);
    fault_fs_destroy(b->fs);
    free(b);
}

/* ---- cuts of power ----------------------------------------------------------------------------------------------- */

#define CALLS                                                                                                          \
    (FAULT_WRITE | FAULT_SYNC | FAULT_RENAME | FAULT_UNLINK | FAULT_SYNC_DIR | FAULT_LINK | FAULT_MKDIR | FAULT_RMDIR)

enum { ASKED = 260 };

struct cut {
    struct bed bed;
    bool put[ASKED], gone[ASKED]; /* acknowledged */
    bool maybe_gone[ASKED], failed;
};

static void acknowledge(struct cut *c, int rc, uint64_t lsn)
{
    struct quire_error err;
    c->failed |= rc < 0 || journal_wait(store_journal(c->bed.w.store), lsn, &err) < 0 ||
                 document_log_sync(cache_documents(c->bed.w.cache), &err) < 0;
}

static void put_until(struct cut *c, unsigned first, unsigned end)
{
    struct world *w = &c->bed.w;
    for (unsigned i = first; i < end && !c->failed; i++) {
        char text[32], value[64];
        struct quire_cache_put_result result;
        struct quire_error err = {0};
        struct quire_pair scope = {text_of("tenant"), text_of("a")};
        snprintf(text, sizeof text, "q%u", i);
        snprintf(value, sizeof value, "a %u", i);
        w->now_ms++;
        struct quire_cache_entry entry = {
            .text = text_of(text), .vector = c->bed.vectors[i], .scope = &scope, .n_scope = 1, .ttl_ms = 100000000};
        int rc = put(w, &entry, value, &result, &err);
        c->bed.ids[i] = result.id;
        if (i % 40 == 39 || i + 1 == end || rc < 0) {
            acknowledge(c, rc, result.lsn);
            for (unsigned k = first; k <= i && !c->failed; k++)
                c->put[k] = true;
        }
    }
}

static void remove_some(struct cut *c, unsigned first, unsigned end, unsigned step)
{
    uint64_t lsn = 0;
    struct quire_error err;
    int rc = 0;
    for (unsigned i = first; i < end && rc == 0 && !c->failed; i += step) {
        c->maybe_gone[i] = true;
        rc = cache_remove(c->bed.w.cache, c->bed.ids[i], &lsn, &err);
    }
    if (c->failed)
        return;
    acknowledge(c, rc, lsn);
    for (unsigned i = first; i < end && !c->failed; i += step)
        c->gone[i] = true;
}

static void work(struct cut *c)
{
    for (unsigned i = 0; i < 6 && !c->failed; i++)
        caches_work(c->bed.w.caches);
}

static void checkpoint(struct cut *c)
{
    struct quire_error err;
    c->failed = c->failed || store_checkpoint(c->bed.w.store, &err) < 0;
}

static void script(struct cut *c)
{
    put_until(c, 0, 130);
    work(c);
    checkpoint(c);
    put_until(c, 130, 200);
    work(c);
    remove_some(c, 0, 130, 3);
    remove_some(c, 1, 130, 3); /* more than half of the first segment */
    work(c);
    checkpoint(c);
    put_until(c, 200, ASKED);
    work(c);
}

static void begin(struct cut *c)
{
    struct quire_error err = {0};
    memset(c, 0, sizeof *c);
    bed_open(&c->bed);
    world_close(&c->bed.w);
    c->bed.w.options.sync = JOURNAL_ALWAYS;
    c->bed.w.options.seal_rows = 60;
    world_open_again(&c->bed.w);
    assert_int_equal(journal_sync(store_journal(c->bed.w.store), &err), 0);
}

static void recovers(struct cut *c, uint64_t n, uint64_t seed)
{
    struct quire_error err = {0};
    struct world_options options = c->bed.w.options;
    uint64_t now_ms = c->bed.w.now_ms;
    for (unsigned round = 0; round < 2; round++) {
        if (world_try_open(&c->bed.w, "/data", DIM, now_ms, &options, &err) < 0)
            fail_msg("call %llu, seed %llu: open: %s", (unsigned long long)n, (unsigned long long)seed, err.message);
        world_check(&c->bed.w);
        assert_int_equal(count_folders(&c->bed), c->bed.w.cache->n_sealed);
        for (unsigned i = 0; i < ASKED; i++) {
            bool hit = is_hit(&c->bed, i, "a");
            if ((c->put[i] && !c->maybe_gone[i] && !hit) || (c->gone[i] && hit))
                fail_msg("call %llu, seed %llu, round %u: entry %u %s", (unsigned long long)n, (unsigned long long)seed,
                         round, i, hit ? "came back" : "is lost");
        }
        for (unsigned i = 0; i < 6; i++)
            caches_work(c->bed.w.caches);
        world_check(&c->bed.w);
        world_close(&c->bed.w);
    }
}

static uint64_t count_calls(void)
{
    struct cut *c = malloc(sizeof *c);
    begin(c);
    fault_fail_nth(c->bed.fs, CALLS, 0, 0, false);
    script(c);
    uint64_t calls = fault_calls(c->bed.fs, CALLS);
    assert_false(c->failed);
    assert_true(bed_stats(&c->bed).sealed_entries > 60 && c->bed.w.cache->next_sealed >= 4);
    world_close(&c->bed.w);
    recovers(c, 0, 0);
    fault_fs_destroy(c->bed.fs);
    free(c);
    return calls;
}

static void every_cut_recovers(void **state)
{
    const char *text = getenv("QUIRE_CRASH_STEP");
    uint64_t calls = count_calls(), step = text ? strtoull(text, NULL, 10) : calls / (SANITIZED ? 4 : 8) + 1;
    (void)state;
    for (uint64_t n = 1; n <= calls; n += step)
        for (unsigned seed = 0; seed < 2; seed++) {
            struct cut *c = malloc(sizeof *c);
            begin(c);
            fault_fail_nth(c->bed.fs, CALLS, n, QUIRE_EIO, true);
            script(c);
            world_abandon(&c->bed.w);
            fault_power_cut(c->bed.fs, seed ? 10 * n : 0);
            recovers(c, n, seed);
            fault_fs_destroy(c->bed.fs);
            free(c);
        }
    fprintf(stderr, "%llu calls, every %llu-th with 2 seeds\n", (unsigned long long)calls, (unsigned long long)step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_entries_answer),
        cmocka_unit_test(what_is_far_is_a_miss_with_a_lease),
        cmocka_unit_test(arrivals_during_a_search_are_seen),
        cmocka_unit_test(scopes_stay_apart),
        cmocka_unit_test(candidates_on_the_disk_are_looked_at_in_turn),
        cmocka_unit_test(each_invalidation_hits_sealed_entries),
        cmocka_unit_test(by_id_expiry_and_eviction),
        cmocka_unit_test(numbers_are_used_again),
        cmocka_unit_test(ids_are_not_used_again),
        cmocka_unit_test(restarts),
        cmocka_unit_test(many_segments_are_merged),
        cmocka_unit_test(a_merge_that_cannot_be_logged_moves_nothing),
        cmocka_unit_test(a_damaged_segment_stops_no_seal),
        cmocka_unit_test(links_of_a_snapshot_are_durable),
        cmocka_unit_test(folders_go_with_their_entries),
        cmocka_unit_test(memory_that_is_short_is_what_seals),
        cmocka_unit_test(what_is_learnt_from_is_measured),
        cmocka_unit_test(many_lie_in_lists),
        cmocka_unit_test(entries_without_vectors_stay),
        cmocka_unit_test(a_lost_segment_makes_its_cache_unavailable),
        cmocka_unit_test(an_unavailable_cache_can_be_dropped),
        cmocka_unit_test(every_cut_recovers),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
