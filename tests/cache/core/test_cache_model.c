/*
 * test_cache_model.c - a cache against a list in memory that is looked through for each question: random puts with and
 * without leases, lookups, removals, invalidations by each selector, touches, pins, feedback, changes and drops of
 * categories, jumps of the clock, restarts with and without a checkpoint, compaction; and all of it again in caches
 * that seal all but a few of their vectors.
 *
 * Vectors come in pairs of cosine .95, all others are far from each other, so that nothing lies near a threshold. What
 * has expired is swept away after each jump of the clock, so that the list knows when it goes.
 */
#include "cache/core/cache_priv.h"
#include "io/random.h"
#include "tests/cache/support_cache.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    DIM = 32,
    VECTORS = 16,
    HASHES = 24,
    GROUPS = 4, /* scope of one pair, and compat */
    CATEGORIES = 3,
    TAGS = 4,
    MODELS = 3,
    ENTRIES = 8000,
    LEASES = 16,
    PAST = 4000,
    OPS = SANITIZED ? 1500 : 5000,
    SEEDS = SANITIZED ? 2 : 5,
    SEALED_OPS = SANITIZED ? OPS : OPS / 2, /* of which some build a segment */
    SEAL_ROWS = 3                           /* vectors of a scope and category in memory */
};

static const char *const category_names[CATEGORIES] = {"fresh", "stale", "plain"};

struct listed {
    bool lives, pinned;
    uint64_t id, created, expire; /* UINT64_MAX: never */
    unsigned category, group, vector, hash, tags, model;
    double veto;
};

struct said {
    struct quire_cache_selector selector;
    unsigned what; /* vector, tag, category, scope, model, or group and hash of an id */
    unsigned hash;
};

struct held {
    char token[QUIRE_CACHE_TOKEN_BYTES];
    unsigned category, group, hash, said;
};

struct model {
    struct world w;
    struct random random;
    float vectors[VECTORS][DIM];
    struct listed entries[ENTRIES];
    struct said past[PAST];
    struct held leases[LEASES];
    uint64_t stale_ms[CATEGORIES], ttl_ms[CATEGORIES];
    unsigned n_entries, n_past, n_leases, next_hash, served, stale, outdated;
};

static unsigned below(struct model *m, unsigned n)
{
    return (unsigned)random_below(&m->random, n);
}

static double cosine_of(unsigned a, unsigned b)
{
    return a == b ? 1 : a / 2 == b / 2 ? 0.95 : 0;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

struct words {
    char hash[16], scope[16], compat[16], model[16], tags[TAGS][16];
    struct quire_pair pair;
    struct quire_bytes tag[TAGS];
    uint32_t n_tags;
};

static void say(struct words *words, unsigned group, unsigned hash, unsigned tags, unsigned model)
{
    snprintf(words->hash, sizeof words->hash, "h%u", hash);
    snprintf(words->scope, sizeof words->scope, "t%u", group / 2);
    snprintf(words->compat, sizeof words->compat, "c%u", group % 2);
    snprintf(words->model, sizeof words->model, "m%u", model);
    words->pair = (struct quire_pair){text_of("tenant"), text_of(words->scope)};
    words->n_tags = 0;
    for (unsigned i = 0; i < TAGS; i++)
        if (tags >> i & 1) {
            snprintf(words->tags[i], sizeof words->tags[i], "g%u", i);
            words->tag[words->n_tags++] = text_of(words->tags[i]);
        }
}

static void set_category(struct model *m, unsigned category)
{
    char words[96];
    m->ttl_ms[category] = 20000 + below(m, 100000);
    m->stale_ms[category] = category == 1 ? below(m, 50000) : 0;
    snprintf(words, sizeof words, "SIM 0.9 JITTER 0 TTL %u STALE %u LEASE 3600000", (unsigned)m->ttl_ms[category],
             (unsigned)m->stale_ms[category]);
    world_category(&m->w, category_names[category], words);
}

/* ---- what the list knows ----------------------------------------------------------------------------------------- */

static bool is_over(const struct model *m, const struct listed *e)
{
    return e->expire != UINT64_MAX && e->expire + m->stale_ms[e->category] <= m->w.now_ms;
}

static void sweep(struct model *m)
{
    for (unsigned i = 0; i < m->n_entries; i++)
        if (m->entries[i].lives && is_over(m, &m->entries[i]))
            m->entries[i].lives = false;
    assert_true(m->w.cache->n_rows <= 1000); /* one round looks at as many */
    caches_work(m->w.caches);
}

static struct listed *find(struct model *m, uint64_t id)
{
    for (unsigned i = 0; i < m->n_entries; i++)
        if (m->entries[i].lives && m->entries[i].id == id)
            return &m->entries[i];
    return NULL;
}

static struct listed *any(struct model *m)
{
    struct listed *e = m->n_entries ? &m->entries[below(m, m->n_entries)] : NULL;
    return e && e->lives ? e : NULL;
}

static bool selects(const struct said *said, const struct listed *e, uint64_t now)
{
    switch (said->selector.by) {
    case QUIRE_CACHE_BY_ID:
        return false;
    case QUIRE_CACHE_BY_TAG:
        return e->tags >> said->what & 1;
    case QUIRE_CACHE_BY_CATEGORY:
        return e->category == said->what;
    case QUIRE_CACHE_BY_SCOPE:
        return e->group / 2 == said->what;
    case QUIRE_CACHE_BY_MODEL:
        return e->model == said->what;
    case QUIRE_CACHE_BY_NEAR:
        return cosine_of(e->vector, said->what) >= said->selector.similarity;
    case QUIRE_CACHE_BY_BEFORE:
        return e->created + said->selector.age_ms < now;
    case QUIRE_CACHE_BY_ENCODER:
    case QUIRE_CACHE_BY_ALL:
        break;
    }
    return true;
}

/* Whether something said since the lease was given is about its answer. */
static bool is_outdated(const struct model *m, const struct held *held, const struct listed *e)
{
    if (m->n_past - held->said > INVALIDATIONS_MAX)
        return true;
    for (unsigned i = held->said; i < m->n_past; i++) {
        const struct said *said = &m->past[i];
        if (said->selector.by == QUIRE_CACHE_BY_ID
                ? said->what == e->group * CATEGORIES + e->category && said->hash == e->hash
                : selects(said, e, UINT64_MAX))
            return true;
    }
    return false;
}

/* ---- what is done ------------------------------------------------------------------------------------------------ */

static void put_entry(struct model *m)
{
    struct words words;
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    struct held *held = m->n_leases && below(m, 3) == 0 ? &m->leases[below(m, m->n_leases)] : NULL;
    struct listed e = {.lives = true,
                       .category = held ? held->category : below(m, CATEGORIES),
                       .group = held ? held->group : below(m, GROUPS),
                       .vector = below(m, VECTORS),
                       .hash = held ? held->hash : below(m, HASHES),
                       .tags = below(m, 1 << TAGS),
                       .model = below(m, MODELS)};
    char value[64];
    assert_true(m->n_entries < ENTRIES);
    e.pinned = below(m, 20) == 0;
    say(&words, e.group, e.hash, e.tags, e.model);
    snprintf(value, sizeof value, "%u %u %u %u", e.category, e.group, e.vector, e.hash);
    struct quire_cache_entry entry = {.category = text_of(category_names[e.category]),
                                      .scope = &words.pair,
                                      .n_scope = 1,
                                      .hash = text_of(words.hash),
                                      .compat = text_of(words.compat),
                                      .model = text_of(words.model),
                                      .tags = words.tag,
                                      .n_tags = words.n_tags,
                                      .vector = m->vectors[e.vector],
                                      .pin = e.pinned,
                                      .ttl_ms = below(m, 4) ? 0 : 1000 + below(m, 100000)};
    if (held)
        entry.lease = text_of(held->token);
    if (put(&m->w, &entry, value, &result, &err) < 0)
        fail_msg("%s", err.message);
    if (held) {
        bool outdated = is_outdated(m, held, &e);
        assert_int_equal(result.outcome == QUIRE_CACHE_OUTDATED, outdated);
        *held = m->leases[--m->n_leases];
        m->outdated += outdated;
        if (outdated)
            return;
    }
    for (unsigned i = 0; i < m->n_entries; i++) {
        struct listed *old = &m->entries[i];
        if (old->lives && old->category == e.category && old->group == e.group && old->hash == e.hash) {
            assert_int_equal(result.outcome, QUIRE_CACHE_REPLACED);
            old->lives = false;
        }
    }
    assert_true(result.outcome <= QUIRE_CACHE_REPLACED);
    e.id = result.id;
    e.created = m->w.now_ms;
    e.expire = e.pinned ? UINT64_MAX : m->w.now_ms + (entry.ttl_ms ? entry.ttl_ms : m->ttl_ms[e.category]);
    m->entries[m->n_entries++] = e;
}

struct expected {
    double fresh, stale;
    const struct listed *exact;
};

static struct expected expect(struct model *m, unsigned category, unsigned group, unsigned vector, unsigned hash,
                              unsigned need, uint64_t max_age)
{
    struct expected out = {-1, -1, NULL};
    for (unsigned i = 0; i < m->n_entries; i++) {
        const struct listed *e = &m->entries[i];
        double cosine = cosine_of(e->vector, vector);
        if (!e->lives || e->category != category || e->group != group || is_over(m, e) || (e->tags & need) != need ||
            (max_age && m->w.now_ms - e->created > max_age))
            continue;
        bool over = e->expire <= m->w.now_ms;
        if (e->hash == hash && e->veto <= 1 && over)
            out.stale = 1;
        if (e->hash == hash && e->veto <= 1 && !over)
            out.exact = e;
        if (cosine < 0.9 || e->veto > cosine)
            continue;
        if (over)
            out.stale = cosine > out.stale ? cosine : out.stale;
        else
            out.fresh = cosine > out.fresh ? cosine : out.fresh;
    }
    return out;
}

static void ask_question(struct model *m)
{
    struct words words;
    struct asked asked;
    struct quire_error err = {0};
    unsigned category = below(m, CATEGORIES), group = below(m, GROUPS), vector = below(m, VECTORS),
             hash = below(m, 2 * HASHES), need = below(m, 3) ? 0 : 1u << below(m, TAGS);
    say(&words, group, hash, need, 0);
    struct quire_cache_query query = {.category = text_of(category_names[category]),
                                      .scope = &words.pair,
                                      .n_scope = 1,
                                      .hash = text_of(words.hash),
                                      .compat = text_of(words.compat),
                                      .need = words.tag,
                                      .n_need = words.n_tags,
                                      .vector = m->vectors[vector],
                                      .max_age_ms = below(m, 4) ? 0 : 1000 + below(m, 60000),
                                      .no_lease = true};
    struct expected right = expect(m, category, group, vector, hash, need, query.max_age_ms);
    if (ask(&m->w, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    const struct quire_cache_answer *answer = &asked.answer;
    assert_non_null(answer->reason);
    enum quire_cache_status status = right.exact       ? QUIRE_CACHE_EXACT
                                     : right.fresh > 0 ? QUIRE_CACHE_HIT
                                     : right.stale > 0 ? QUIRE_CACHE_STALE
                                                       : QUIRE_CACHE_MISS;
    if (answer->status != status)
        fail_msg("status %d instead of %d", answer->status, status);
    if (status != QUIRE_CACHE_MISS) {
        char value[64];
        const struct listed *e = find(m, answer->id);
        assert_non_null(e);
        snprintf(value, sizeof value, "%u %u %u %u", category, group, e->vector, e->hash);
        assert_string_equal(asked.value, value);
        double best = right.exact ? 1 : right.fresh > 0 ? right.fresh : right.stale;
        /* what memory has that is near enough answers before the disk is asked for what is nearer */
        double least = status == QUIRE_CACHE_HIT && m->w.cache->sealed_entries ? 0.9 : best;
        assert_true(answer->similarity > least - 0.02 && answer->similarity < best + 0.02);
        m->served++;
        m->stale += status == QUIRE_CACHE_STALE;
    }
    asked_end(&asked);
}

static void take_lease(struct model *m)
{
    struct words words;
    struct asked asked;
    struct quire_error err = {0};
    if (m->n_leases == LEASES)
        return;
    struct held *held = &m->leases[m->n_leases++];
    *held = (struct held){
        .category = below(m, CATEGORIES), .group = below(m, GROUPS), .hash = 1000 + m->next_hash++, .said = m->n_past};
    say(&words, held->group, held->hash, 0, 0);
    struct quire_cache_query query = {.category = text_of(category_names[held->category]),
                                      .scope = &words.pair,
                                      .n_scope = 1,
                                      .hash = text_of(words.hash),
                                      .compat = text_of(words.compat)};
    if (ask(&m->w, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(asked.answer.status, QUIRE_CACHE_MISS);
    memcpy(held->token, asked.answer.lease, sizeof held->token);
    assert_true(held->token[0]);
    asked_end(&asked);
}

static void invalidate_some(struct model *m)
{
    static const enum quire_cache_by all[] = {QUIRE_CACHE_BY_TAG,   QUIRE_CACHE_BY_CATEGORY, QUIRE_CACHE_BY_SCOPE,
                                              QUIRE_CACHE_BY_MODEL, QUIRE_CACHE_BY_NEAR,     QUIRE_CACHE_BY_BEFORE,
                                              QUIRE_CACHE_BY_ALL};
    struct said said = {.selector = {.by = all[below(m, below(m, 8) ? 5 : 7)], .n = 1}};
    struct words words;
    struct quire_bytes names[2];
    uint64_t n = 0;
    unsigned group = below(m, GROUPS), model = below(m, MODELS), tag = below(m, TAGS);
    say(&words, group, 0, 1u << tag, model);
    said.selector.names = names;
    if (said.selector.by == QUIRE_CACHE_BY_TAG)
        names[0] = words.tag[0], said.what = tag;
    if (said.selector.by == QUIRE_CACHE_BY_CATEGORY)
        names[0] = text_of(category_names[said.what = below(m, CATEGORIES)]);
    if (said.selector.by == QUIRE_CACHE_BY_MODEL)
        names[0] = text_of(words.model), said.what = model;
    if (said.selector.by == QUIRE_CACHE_BY_SCOPE) {
        names[0] = words.pair.key;
        names[1] = words.pair.value;
        said.selector.n = 2;
        said.what = group / 2;
    }
    said.what = said.selector.by == QUIRE_CACHE_BY_NEAR ? below(m, VECTORS) : said.what;
    said.selector.vector = m->vectors[said.what % VECTORS];
    said.selector.similarity = below(m, 2) ? 0.98 : 0.9;
    said.selector.age_ms = 1 + below(m, 60000);
    for (unsigned i = 0; i < m->n_entries; i++)
        n += m->entries[i].lives && selects(&said, &m->entries[i], m->w.now_ms);
    assert_int_equal(invalidate(&m->w, &said.selector, true), n);
    if (below(m, 3) == 0)
        return;
    assert_int_equal(invalidate(&m->w, &said.selector, false), n);
    for (unsigned i = 0; i < m->n_entries; i++)
        if (m->entries[i].lives && selects(&said, &m->entries[i], m->w.now_ms))
            m->entries[i].lives = false;
    assert_true(m->n_past < PAST);
    m->past[m->n_past++] = said;
}

static void change_one(struct model *m)
{
    struct listed *e = any(m);
    uint64_t lsn, ms = 1000 + below(m, 100000);
    struct quire_error err = {0};
    if (!e)
        return;
    switch (below(m, 5)) {
    case 0:
        assert_int_equal(cache_touch(m->w.cache, e->id, ms, &lsn, &err), 0);
        e->expire = e->pinned ? UINT64_MAX : m->w.now_ms + ms;
        break;
    case 1:
        e->pinned = below(m, 3) == 0;
        bool was = e->expire == UINT64_MAX;
        assert_int_equal(cache_pin(m->w.cache, e->id, e->pinned, &lsn, &err), 0);
        if (e->pinned != was)
            e->expire = e->pinned ? UINT64_MAX : m->w.now_ms + m->ttl_ms[e->category];
        break;
    case 2:
        assert_int_equal(cache_feedback(m->w.cache, e->id, false, 0.95, &lsn, &err), 0);
        e->veto = e->veto > 0.9525 ? e->veto : 0.9525;
        break;
    case 3:
        assert_int_equal(cache_feedback(m->w.cache, e->id, false, -1, &lsn, &err), 0);
        e->veto = 2;
        break;
    case 4:
        assert_int_equal(cache_remove(m->w.cache, e->id, &lsn, &err), 0);
        e->lives = false;
        assert_true(m->n_past < PAST);
        m->past[m->n_past++] = (struct said){
            .selector.by = QUIRE_CACHE_BY_ID, .what = e->group * CATEGORIES + e->category, .hash = e->hash};
    }
}

static void drop_category(struct model *m, unsigned category)
{
    uint64_t lsn;
    struct quire_error err = {0};
    assert_int_equal(cache_drop_category(m->w.cache, text_of(category_names[category]), &lsn, &err), 0);
    for (unsigned i = 0; i < m->n_entries; i++)
        if (m->entries[i].category == category)
            m->entries[i].lives = false;
    for (unsigned i = m->n_leases; i-- > 0;) /* of a category that is no more */
        if (m->leases[i].category == category)
            m->leases[i] = m->leases[--m->n_leases];
    set_category(m, category);
}

static void step(struct model *m)
{
    unsigned what = below(m, 1000);
    m->w.now_ms += below(m, 50);
    if (what < 400)
        put_entry(m);
    else if (what < 850)
        ask_question(m);
    else if (what < 900)
        take_lease(m);
    else if (what < 960)
        change_one(m);
    else if (what < 975)
        invalidate_some(m);
    else if (what < 985)
        m->w.now_ms += below(m, 40000);
    else if (what < 990)
        set_category(m, below(m, CATEGORIES));
    else if (what < 992)
        drop_category(m, below(m, CATEGORIES));
    else if (what < 994)
        world_reopen(&m->w, what % 2);
    sweep(m);
}

static void check(struct model *m)
{
    unsigned n = 0;
    struct document_log_stats documents;
    for (unsigned i = 0; i < m->n_entries; i++) {
        const struct listed *e = &m->entries[i];
        struct cache_entry_info info;
        int rc = cache_info(m->w.cache, e->id, &info, NULL);
        n += e->lives;
        if (e->lives) {
            assert_int_equal(rc, 0);
            assert_int_equal(info.expire_ms, e->expire);
            assert_int_equal(info.pinned, e->pinned);
        }
    }
    assert_int_equal(stats_of(&m->w, "").entries, n);
    document_log_get_stats(cache_documents(m->w.cache), &documents);
    assert_int_equal(documents.documents, n);
    assert_int_equal(documents.live_bytes, m->w.cache->quota.used.bytes);
    world_check(&m->w);
}

static void agree(uint32_t seal_rows, unsigned n_ops)
{
    struct model *m = malloc(sizeof *m);
    unsigned served = 0, stale = 0, outdated = 0, searches = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct io_fs *fs = fault_fs_create(); /* a disk that makes nobody wait */
        memset(m, 0, sizeof *m);
        random_init(&m->random, seed);
        for (unsigned i = 0; i < VECTORS; i += 2) {
            vector_make(m->vectors[i], DIM, i);
            vector_near(m->vectors[i + 1], m->vectors[i], DIM, 0.95, i);
        }
        world_make(&m->w, "/data", &(struct cache_config){.dim = DIM},
                   &(struct world_options){.fs = fs, .sync = JOURNAL_NO, .seal_rows = seal_rows});
        for (unsigned i = 0; i < CATEGORIES; i++)
            set_category(m, i);
        for (unsigned i = 0; i < n_ops; i++) {
            searches += m->w.n_searches;
            m->w.n_searches = 0;
            step(m);
            if (i % 200 == 0)
                check(m);
        }
        check(m);
        served += m->served;
        stale += m->stale;
        outdated += m->outdated;
        world_close(&m->w);
        fault_fs_destroy(fs);
    }
    fprintf(stderr, "%u ops: %u served, %u stale, %u outdated, %u searches of the disk\n", n_ops * SEEDS, served, stale,
            outdated, searches);
    assert_true(served > n_ops / 40 * SEEDS && stale > 0 && outdated > 0);
    assert_true(seal_rows == 0 ? searches == 0 : searches > n_ops / 20 * SEEDS);
    free(m);
}

static void agrees_with_the_list(void **state)
{
    (void)state;
    agree(0, OPS);
}

static void agrees_with_the_list_when_sealed(void **state)
{
    (void)state;
    agree(SEAL_ROWS, SEALED_OPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_list),
        cmocka_unit_test(agrees_with_the_list_when_sealed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
