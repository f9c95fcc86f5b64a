/*
 * test_cache_replica.c - a cache on two nodes: what its leader does is done where it follows, in any order of effects,
 * lists and entries arrive; roles change; frames that were changed on their way are refused.
 *
 * Both nodes are folders of this process. Effects wait in a queue until the test lets them come; lists and entries are
 * asked for and delivered when the test says so. Nodes are alike when their lists are the same bytes, and when each
 * question is answered alike.
 */
#include "cache/core/cache_frame.h"
#include "cache/core/sealed.h"
#include "tests/cache/support_cache.h"
#include "tests/sanitized.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

enum { DIM = 32, EFFECTS = 20000, QUESTIONS = 64, OPS = SANITIZED ? 400 : 1500, SEEDS = SANITIZED ? 3 : 9 };

struct frame {
    uint8_t *bytes;
    size_t n;
};

struct node {
    struct world w;
    struct frame *effects; /* that it told and the other one has not taken */
    unsigned first, last;
};

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static void on_told(void *context, struct cache *cache, const struct cache_told *told)
{
    struct node *node = context;
    (void)cache;
    assert_true(node->last < EFFECTS && told->bytes);
    struct frame *f = &node->effects[node->last++];
    f->n = (size_t)told->n + told->document_bytes;
    f->bytes = malloc(f->n);
    memcpy(f->bytes, told->bytes, told->n);
    if (told->document_bytes)
        memcpy(f->bytes + told->n, told->document, told->document_bytes);
    free(told->bytes);
    free(told->document);
}

static struct node *node_make(const char *folder, uint32_t seal_rows)
{
    struct node *node = calloc(1, sizeof *node);
    node->effects = calloc(EFFECTS, sizeof *node->effects);
    struct world_options options = {.seal_rows = seal_rows, .told = on_told, .told_context = node};
    world_make(&node->w, folder, &(struct cache_config){.dim = DIM, .memory_bytes = 4 << 20, .disk_bytes = 64 << 20},
               &options);
    return node;
}

static void forget_effects(struct node *node)
{
    for (; node->first < node->last; node->first++)
        free(node->effects[node->first].bytes);
    node->first = node->last = 0;
}

static void node_end(struct node *node)
{
    world_check(&node->w);
    world_close(&node->w);
    forget_effects(node);
    free(node->effects);
    free(node);
}

/* The image has made it anew, perhaps. */
static void find_again(struct node *node)
{
    cache_unref(node->w.cache);
    node->w.cache = caches_find(node->w.caches, text_of("c"));
    assert_non_null(node->w.cache);
}

static struct cache_standing standing_of(struct node *node)
{
    struct cache_standing standing;
    cache_get_standing(node->w.cache, &standing);
    return standing;
}

static void take_image(struct node *leader, struct node *follower)
{
    struct quire_error err = {0};
    uint8_t *bytes;
    size_t n;
    uint64_t lsn;
    if (cache_copy_image(leader->w.cache, &bytes, &n, &err) < 0)
        fail_msg("%s", err.message);
    if (caches_take_image(follower->w.caches, text_of("c"), bytes, n, &lsn, &err) < 0)
        fail_msg("%s", err.message);
    free(bytes);
    find_again(follower);
}

static int take_effect(struct node *leader, struct node *follower)
{
    struct quire_error err = {0};
    uint64_t lsn;
    assert_true(leader->first < leader->last);
    struct frame f = leader->effects[leader->first++];
    int rc = cache_take_effect(follower->w.cache, follower->w.scratch, f.bytes, f.n, &lsn, &err);
    if (rc < 0 && rc != QUIRE_ESTALE)
        fail_msg("%s", err.message);
    free(f.bytes);
    return rc;
}

static void take_effects(struct node *leader, struct node *follower)
{
    while (leader->first < leader->last)
        assert_int_equal(take_effect(leader, follower), 0);
    leader->first = leader->last = 0;
}

/* A copy that goes on a step at a time. */
struct copy {
    struct node *leader, *follower;
    struct frame list, entries; /* on their way */
    uint64_t lacking[CACHE_LIST_ENTRIES];
    uint32_t n_lacking, asked, next;
    uint64_t fetched;
    bool listed, ended;
};

static void copy_begin(struct copy *c, struct node *leader, struct node *follower)
{
    *c = (struct copy){.leader = leader, .follower = follower};
    take_image(leader, follower);
    c->ended = !standing_of(follower).is_copying;
}

static void ask_list(struct copy *c)
{
    struct quire_error err = {0};
    if (cache_copy_list(c->leader->w.cache, c->next, &c->list.bytes, &c->list.n, &err) < 0)
        fail_msg("%s", err.message);
}

static void take_list(struct copy *c)
{
    struct quire_error err = {0};
    if (cache_take_list(c->follower->w.cache, c->list.bytes, c->list.n, c->lacking, &c->n_lacking, &c->next, &err) < 0)
        fail_msg("%s", err.message);
    free(c->list.bytes);
    c->list.bytes = NULL;
    c->asked = 0;
    c->listed = c->next == UINT32_MAX;
}

static void ask_entries(struct copy *c)
{
    struct quire_error err = {0};
    uint32_t n = c->n_lacking - c->asked < 7 ? c->n_lacking - c->asked : 7, done;
    if (cache_copy_entries(c->leader->w.cache, c->leader->w.engine, c->lacking + c->asked, n, &c->entries.bytes,
                           &c->entries.n, &done, &err) < 0)
        fail_msg("%s", err.message);
    c->asked += done;
}

static void take_entries(struct copy *c)
{
    struct quire_error err = {0};
    uint32_t taken;
    if (cache_take_entries(c->follower->w.cache, c->follower->w.scratch, c->entries.bytes, c->entries.n, &taken, &err) <
        0)
        fail_msg("%s", err.message);
    c->fetched += taken;
    free(c->entries.bytes);
    c->entries.bytes = NULL;
}

static void copy_step(struct copy *c)
{
    struct quire_error err = {0};
    if (c->ended)
        return;
    if (c->list.bytes)
        take_list(c);
    else if (c->entries.bytes)
        take_entries(c);
    else if (c->asked < c->n_lacking)
        ask_entries(c);
    else if (!c->listed)
        ask_list(c);
    else if (cache_take_end(c->follower->w.cache, &err) < 0)
        fail_msg("%s", err.message);
    else
        c->ended = true;
}

static void copy_stop(struct copy *c)
{
    free(c->list.bytes);
    free(c->entries.bytes);
}

static uint64_t copy_all(struct node *leader, struct node *follower)
{
    struct copy c;
    copy_begin(&c, leader, follower);
    while (!c.ended)
        copy_step(&c);
    take_effects(leader, follower);
    assert_false(standing_of(follower).is_copying);
    return c.fetched;
}

/* ---- alike ------------------------------------------------------------------------------------------------------- */

static void assert_same_lists(struct node *a, struct node *b)
{
    struct quire_error err = {0};
    for (uint32_t next = 0; next != UINT32_MAX;) {
        uint8_t *left = NULL, *right = NULL;
        size_t n_left = 0, n_right = 0;
        if (cache_copy_list(a->w.cache, next, &left, &n_left, &err) < 0 ||
            cache_copy_list(b->w.cache, next, &right, &n_right, &err) < 0)
            fail_msg("%s", err.message);
        /* of numbers that nobody has a node may have more than the other */
        assert_int_equal(n_left, n_right);
        assert_memory_equal(left + CACHE_FRAME_BYTES + 8, right + CACHE_FRAME_BYTES + 8,
                            n_left - CACHE_FRAME_BYTES - 8);
        next = bytes_load_u32(left + CACHE_FRAME_BYTES + 4);
        free(left);
        free(right);
    }
}

static void vector_of(float *out, unsigned question)
{
    vector_make(out, DIM, question + 1);
}

static const char *text_for(unsigned question, char text[32])
{
    snprintf(text, 32, "question %c%c", 'a' + question % 26, 'a' + question / 26);
    return text;
}

struct answered {
    enum quire_cache_status status;
    char value[256];
};

static struct answered answer_of(struct node *node, unsigned question, bool exact)
{
    float vector[DIM];
    char text[32];
    struct asked asked;
    struct quire_error err = {0};
    struct answered out;
    vector_of(vector, question);
    struct quire_cache_query query = {.category = text_of("k"),
                                      .hash = text_of(text_for(question, text)),
                                      .vector = exact ? NULL : vector,
                                      .no_lease = true};
    if (!exact)
        query.hash = text_of("");
    for (uint32_t i = 0; i < node->w.cache->n_categories; i++)
        node->w.cache->categories[i]->breaker = (struct breaker){0};
    if (ask(&node->w, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    out.status = asked.answer.status;
    memcpy(out.value, asked.value, sizeof out.value);
    asked_end(&asked);
    return out;
}

static void assert_alike(struct node *leader, struct node *follower)
{
    assert_same_lists(leader, follower);
    for (unsigned i = 0; i < 2 * QUESTIONS; i++) {
        struct answered l = answer_of(leader, i / 2, i % 2), f = answer_of(follower, i / 2, i % 2);
        assert_int_equal(l.status, f.status);
        assert_string_equal(l.value, f.value);
    }
    world_check(&leader->w);
    world_check(&follower->w);
}

/* ---- what a leader does ------------------------------------------------------------------------------------------ */

static uint64_t put_question(struct node *node, unsigned question, const char *value, uint64_t ttl_ms, bool pin)
{
    float vector[DIM];
    char text[32];
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    const struct quire_bytes tags[] = {text_of("even"), text_of("all")};
    vector_of(vector, question);
    struct quire_cache_entry entry = {.hash = text_of(text_for(question, text)),
                                      .text = text_of(question % 3 ? text : ""),
                                      .vector = vector,
                                      .model = text_of(question % 2 ? "m" : ""),
                                      .tags = question % 2 ? tags + 1 : tags,
                                      .n_tags = question % 2 ? 1 : 2,
                                      .ttl_ms = ttl_ms,
                                      .pin = pin,
                                      .cost = question % 5 ? 0.5 : 0};
    if (put(&node->w, &entry, value, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result.id;
}

static uint64_t any_id(struct node *node, struct random *random)
{
    struct cache_entry_info infos[512];
    uint64_t next;
    int n = cache_scan(node->w.cache, (struct quire_bytes){NULL, 0}, 0, infos, 512, &next, NULL);
    return n > 0 ? infos[random_below(random, (uint64_t)n)].id : 0;
}

static void change_something(struct node *node, struct random *random, unsigned op)
{
    struct world *w = &node->w;
    unsigned question = (unsigned)random_below(random, QUESTIONS), what = (unsigned)random_below(random, 100);
    uint64_t id = what >= 60 ? any_id(node, random) : 0, n, lsn;
    char value[32];
    struct quire_bytes tag = text_of("even");
    snprintf(value, sizeof value, "answer %u", op);
    if (what < 60)
        put_question(node, question, value, 1000 + random_below(random, 20000), what == 0);
    else if (what < 70 && id)
        assert_int_equal(cache_remove(w->cache, id, &lsn, NULL), 0);
    else if (what < 78 && id)
        cache_touch(w->cache, id, 1000 + random_below(random, 50000), &lsn, NULL);
    else if (what < 82 && id)
        cache_pin(w->cache, id, what < 80, &lsn, NULL);
    else if (what < 86 && id)
        assert_int_equal(cache_feedback(w->cache, id, what < 83, 0.97, &lsn, NULL), 0);
    else if (what < 88)
        w->now_ms += random_below(random, 3000);
    else if (what < 89)
        cache_invalidate(w->cache, w->scratch,
                         &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_TAG, .names = &tag, .n = 1}, false, &n,
                         &lsn, NULL);
    else if (what < 90)
        world_category(w, "k", question % 2 ? "SIM 0.9 JITTER 0 STALE 1000" : "SIM 0.92 JITTER 5 STALE 0");
    else if (what < 91)
        world_category(w, question % 2 ? "other" : "third", "MODE exact");
    else if (what < 97)
        world_work(w);
}

static void set_up(struct node *leader)
{
    world_category(&leader->w, "k", "SIM 0.9 JITTER 0 TTL 60000 GUARD none AUDIT 0");
    cache_tell(leader->w.cache, true);
}

struct pair {
    char *folders[2];
    struct node *leader, *follower;
};

static struct pair pair_make(uint32_t seal_rows)
{
    struct pair p = {.folders = {support_folder_make(), support_folder_make()}};
    p.leader = node_make(p.folders[0], seal_rows);
    p.follower = node_make(p.folders[1], seal_rows ? seal_rows + 2 : 0);
    set_up(p.leader);
    return p;
}

static void pair_end(struct pair *p)
{
    node_end(p->leader);
    node_end(p->follower);
    support_folder_remove(p->folders[0]);
    support_folder_remove(p->folders[1]);
}

static void turn(struct pair *p)
{
    struct node *leader = p->follower;
    p->follower = p->leader;
    p->leader = leader;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void effects_are_done(void **state)
{
    (void)state;
    struct pair p = pair_make(0);
    struct world *w = &p.leader->w;
    uint64_t n, lsn;
    take_image(p.leader, p.follower);
    assert_false(standing_of(p.follower).is_copying); /* there is nothing to copy */
    for (unsigned i = 0; i < QUESTIONS; i++)
        put_question(p.leader, i, "first", 60000, i == 7);
    uint64_t id = put_question(p.leader, 5, "second", 60000, false); /* in the place of the first */
    put_question(p.leader, 6, "second", 60000, false);
    assert_int_equal(cache_remove(w->cache, id, &lsn, NULL), 0);
    assert_int_equal(cache_touch(w->cache, put_question(p.leader, 8, "kept", 1000, false), 500000, &lsn, NULL), 0);
    assert_int_equal(cache_feedback(w->cache, put_question(p.leader, 9, "bad", 60000, false), false, -1, &lsn, NULL),
                     0);
    take_effects(p.leader, p.follower);
    assert_alike(p.leader, p.follower);
    assert_int_equal(answer_of(p.follower, 8, true).status, QUIRE_CACHE_EXACT);
    assert_int_equal(answer_of(p.follower, 5, true).status, QUIRE_CACHE_MISS);
    assert_int_equal(answer_of(p.follower, 9, true).status, QUIRE_CACHE_MISS);
    /* categories and scopes are kept apart as there */
    world_category(w, "plain", "MODE exact");
    struct quire_pair scope = {text_of("tenant"), text_of("acme")};
    struct quire_cache_entry entry = {
        .category = text_of("plain"), .hash = text_of("h"), .scope = &scope, .n_scope = 1};
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    assert_int_equal(put(w, &entry, "plain", &result, &err), 0);
    take_effects(p.leader, p.follower);
    assert_same_lists(p.leader, p.follower);
    struct quire_cache_query query = {.category = text_of("plain"), .hash = text_of("h"), .no_lease = true};
    struct asked asked;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ask(&p.follower->w, &query, &asked, &err), 0);
        assert_int_equal(asked.answer.status, i ? QUIRE_CACHE_EXACT : QUIRE_CACHE_MISS);
        asked_end(&asked);
        query.scope = &scope;
        query.n_scope = 1;
    }
    struct quire_bytes tag = text_of("even");
    cache_invalidate(w->cache, w->scratch,
                     &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_TAG, .names = &tag, .n = 1}, false, &n, &lsn,
                     NULL);
    assert_true(n > 10);
    assert_int_equal(cache_drop_category(w->cache, text_of("plain"), &lsn, NULL), 0);
    take_effects(p.leader, p.follower);
    assert_alike(p.leader, p.follower);
    pair_end(&p);
}

/* What is over is not answered by a follower, and goes when its leader says so, not before. */
static void time_is_the_leaders(void **state)
{
    (void)state;
    struct pair p = pair_make(0);
    take_image(p.leader, p.follower);
    put_question(p.leader, 1, "short", 1000, false);
    put_question(p.leader, 2, "long", 100000, false);
    take_effects(p.leader, p.follower);
    p.follower->w.now_ms += 5000;
    world_work(&p.follower->w);
    assert_int_equal(standing_of(p.follower).entries, 2);
    assert_int_equal(answer_of(p.follower, 1, true).status, QUIRE_CACHE_MISS);
    assert_int_equal(answer_of(p.follower, 2, true).status, QUIRE_CACHE_EXACT);
    p.leader->w.now_ms += 5000;
    world_work(&p.leader->w);
    take_effects(p.leader, p.follower);
    assert_int_equal(standing_of(p.follower).entries, 1);
    /* and once it leads it lets expire itself */
    cache_lead(p.follower->w.cache, true);
    p.follower->w.now_ms += 100000;
    world_work(&p.follower->w);
    assert_int_equal(standing_of(p.follower).entries, 0);
    pair_end(&p);
}

static void a_follower_is_not_written_to(void **state)
{
    (void)state;
    struct pair p = pair_make(0);
    struct quire_error err = {0};
    struct quire_cache_put_result result;
    struct quire_cache_entry entry = {.hash = text_of("h"), .vector = (float[DIM]){1}};
    uint64_t n, lsn;
    put_question(p.leader, 1, "one", 60000, false);
    copy_all(p.leader, p.follower);
    struct world *w = &p.follower->w;
    assert_int_equal(put(w, &entry, "x", &result, &err), QUIRE_ECLOSED);
    assert_int_equal(cache_invalidate(w->cache, w->scratch, &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_ALL},
                                      false, &n, &lsn, &err),
                     QUIRE_ECLOSED);
    assert_int_equal(standing_of(p.follower).entries, 1);
    /* it gives no lease: what is computed could not be put */
    struct quire_cache_query query = {.category = text_of("k"), .hash = text_of("other")};
    struct cache_decision decision;
    assert_int_equal(cache_get(w->cache, w->scratch, &query, NULL, &decision, &err), CACHE_DECIDED);
    assert_int_equal(decision.answer.status, QUIRE_CACHE_MISS);
    assert_int_equal(decision.answer.lease[0], 0);
    pair_end(&p);
}

static void gaps_are_found(void **state)
{
    (void)state;
    struct pair p = pair_make(0);
    take_image(p.leader, p.follower);
    put_question(p.leader, 1, "one", 60000, false);
    put_question(p.leader, 2, "two", 60000, false);
    put_question(p.leader, 3, "three", 60000, false);
    assert_int_equal(take_effect(p.leader, p.follower), 0);
    free(p.leader->effects[p.leader->first++].bytes); /* lost */
    assert_int_equal(take_effect(p.leader, p.follower), QUIRE_ESTALE);
    assert_int_equal(copy_all(p.leader, p.follower), 2); /* what is here does not travel */
    assert_alike(p.leader, p.follower);
    /* telling ends and begins: what was not told is missing, though nothing else was */
    cache_tell(p.leader->w.cache, false);
    put_question(p.leader, 4, "four", 60000, false);
    cache_tell(p.leader->w.cache, true);
    put_question(p.leader, 5, "five", 60000, false);
    assert_int_equal(take_effect(p.leader, p.follower), QUIRE_ESTALE);
    assert_int_equal(copy_all(p.leader, p.follower), 2);
    assert_alike(p.leader, p.follower);
    /* a restart forgets the history, and nothing else */
    put_question(p.leader, 6, "six", 60000, false);
    world_reopen(&p.follower->w, true);
    assert_int_equal(cache_follow(p.follower->w.cache, NULL), 0);
    assert_int_equal(take_effect(p.leader, p.follower), QUIRE_ESTALE);
    assert_int_equal(copy_all(p.leader, p.follower), 1);
    assert_alike(p.leader, p.follower);
    pair_end(&p);
}

/* Effects, lists and entries come in any order; both nodes seal for themselves. */
static void run_copies(uint64_t seed, uint32_t seal_rows)
{
    struct pair p = pair_make(seal_rows);
    struct random random;
    random_init(&random, seed);
    for (unsigned i = 0; i < QUESTIONS; i++)
        put_question(p.leader, i, "before", 60000, false);
    world_work(&p.leader->w);
    forget_effects(p.leader);
    struct copy c;
    copy_begin(&c, p.leader, p.follower);
    for (unsigned op = 0; op < OPS; op++) {
        p.follower->w.now_ms = p.leader->w.now_ms;
        change_something(p.leader, &random, op);
        for (uint64_t n = random_below(&random, 3); n > 0 && p.leader->first < p.leader->last; n--)
            assert_int_equal(take_effect(p.leader, p.follower), 0);
        if (random_below(&random, 2))
            copy_step(&c);
        if (random_below(&random, 20) == 0)
            world_work(&p.follower->w);
        if (random_below(&random, 60) == 0) { /* it begins again, as after a loss */
            copy_stop(&c);
            forget_effects(p.leader);
            copy_begin(&c, p.leader, p.follower);
        }
        if (random_below(&random, 100) == 0) {
            while (!c.ended)
                copy_step(&c);
            take_effects(p.leader, p.follower);
            p.follower->w.now_ms = p.leader->w.now_ms;
            assert_false(standing_of(p.follower).is_copying);
            assert_alike(p.leader, p.follower);
        }
        if (random_below(&random, 300) == 0) { /* a restart of the follower */
            copy_stop(&c);
            forget_effects(p.leader);
            world_reopen(&p.follower->w, random_below(&random, 2));
            assert_int_equal(cache_follow(p.follower->w.cache, NULL), 0);
            copy_begin(&c, p.leader, p.follower);
        }
        if (random_below(&random, 400) == 0) { /* a planned change of roles */
            while (!c.ended)
                copy_step(&c);
            take_effects(p.leader, p.follower);
            cache_tell(p.leader->w.cache, false);
            assert_int_equal(cache_follow(p.leader->w.cache, NULL), 0);
            cache_lead(p.follower->w.cache, true);
            turn(&p);
            bool written = random_below(&random, 2);
            if (written) /* before the other one hears of the change */
                put_question(p.leader, 1, "at once", 60000, false);
            copy_begin(&c, p.leader, p.follower);
            assert_true(c.ended == !written); /* it goes on where the other one was */
        }
    }
    while (!c.ended)
        copy_step(&c);
    take_effects(p.leader, p.follower);
    p.follower->w.now_ms = p.leader->w.now_ms;
    assert_alike(p.leader, p.follower);
    if (seal_rows)
        assert_true(p.follower->w.cache->sealed_entries > 0);
    pair_end(&p);
}

static void copies_become_alike(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run_copies(seed, seed % 3 == 0 ? 12 : 0);
}

/* Who takes the lead in the middle of a copy has what was confirmed, and nothing that may be gone. */
static void a_lead_in_the_middle(void **state)
{
    (void)state;
    struct pair p = pair_make(0);
    uint64_t lsn;
    for (unsigned i = 0; i < 20; i++)
        put_question(p.leader, i, "old", 60000, false);
    copy_all(p.leader, p.follower);
    uint64_t id = put_question(p.leader, 3, "gone", 60000, false);
    assert_int_equal(cache_remove(p.leader->w.cache, id, &lsn, NULL), 0);
    forget_effects(p.leader); /* it hears nothing of that */
    put_question(p.leader, 4, "new", 60000, false);
    forget_effects(p.leader);
    take_image(p.leader, p.follower);
    assert_true(standing_of(p.follower).is_copying);
    put_question(p.leader, 5, "newest", 60000, false);
    take_effects(p.leader, p.follower);
    cache_lead(p.follower->w.cache, true);
    assert_int_equal(standing_of(p.follower).entries, 1);
    assert_int_equal(answer_of(p.follower, 3, true).status, QUIRE_CACHE_MISS);
    assert_string_equal(answer_of(p.follower, 5, true).value, "newest");
    world_work(&p.follower->w);
    world_check(&p.follower->w);
    /* without an image it would have led with what it had, as any node that starts */
    pair_end(&p);
}

/* The lead changes: leases of before are known, what was invalidated does not come back, and the old leader takes what
 * the new one has. */
static void the_lead_changes(void **state)
{
    (void)state;
    struct pair p = pair_make(0);
    char early[QUIRE_CACHE_TOKEN_BYTES], late[QUIRE_CACHE_TOKEN_BYTES];
    uint64_t n, lsn;
    struct quire_error err = {0};
    struct quire_cache_put_result result;
    take_image(p.leader, p.follower);
    for (unsigned i = 0; i < 10; i++)
        put_question(p.leader, i, "of a", 60000, false);
    lease_of(&p.leader->w, "early", NULL, early);
    cache_invalidate(p.leader->w.cache, p.leader->w.scratch,
                     &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_BEFORE, .age_ms = 1000000}, false, &n, &lsn,
                     NULL);
    lease_of(&p.leader->w, "late", NULL, late);
    take_effects(p.leader, p.follower);
    put_question(p.leader, 11, "lost", 60000, false); /* not told to anyone who lives */
    forget_effects(p.leader);
    cache_lead(p.follower->w.cache, true);
    turn(&p);
    float vector[DIM];
    vector_of(vector, 40);
    struct quire_cache_entry entry = {.text = text_of("early"), .vector = vector, .lease = text_of(early)};
    assert_int_equal(put(&p.leader->w, &entry, "x", &result, &err), 0);
    assert_int_equal(result.outcome, QUIRE_CACHE_OUTDATED);
    entry = (struct quire_cache_entry){.text = text_of("late"), .vector = vector, .lease = text_of(late)};
    assert_int_equal(put(&p.leader->w, &entry, "y", &result, &err), 0);
    assert_int_equal(result.outcome, QUIRE_CACHE_STORED);
    assert_int_equal(answer_of(p.leader, 3, true).status, QUIRE_CACHE_EXACT);
    assert_int_equal(answer_of(p.leader, 11, true).status, QUIRE_CACHE_MISS);
    put_question(p.leader, 3, "of b", 60000, false);
    assert_int_equal(cache_remove(p.leader->w.cache, any_id(p.leader, &(struct random){1}), &lsn, NULL), 0);
    cache_tell(p.follower->w.cache, false);
    assert_int_equal(cache_follow(p.follower->w.cache, NULL), 0);
    forget_effects(p.leader);
    uint64_t fetched = copy_all(p.leader, p.follower);
    assert_in_range(fetched, 1, 3);
    assert_alike(p.leader, p.follower);
    assert_int_equal(answer_of(p.follower, 11, true).status, QUIRE_CACHE_MISS);
    pair_end(&p);
}

/* Learnt thresholds. */
static void curves_are_told(void **state)
{
    (void)state;
    struct pair p = pair_make(0);
    uint64_t lsn;
    void *left, *right;
    size_t n_left, n_right;
    put_question(p.leader, 1, "one", 60000, false);
    copy_all(p.leader, p.follower);
    for (unsigned i = 0; i < 30; i++)
        cache_feedback(p.leader->w.cache, any_id(p.leader, &(struct random){1}), i % 3 > 0, 0.8 + i * 0.005, &lsn,
                       NULL);
    p.leader->w.now_ms += 6000;
    world_work(&p.leader->w);
    take_effects(p.leader, p.follower);
    assert_int_equal(cache_export(p.leader->w.cache, &left, &n_left, NULL), 0);
    assert_int_equal(cache_export(p.follower->w.cache, &right, &n_right, NULL), 0);
    assert_int_equal(n_left, n_right);
    assert_memory_equal(left, right, n_left);
    free(left);
    free(right);
    pair_end(&p);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static int take_any(struct node *node, const struct frame *f)
{
    struct quire_error err = {0};
    uint64_t lsn, lacking[CACHE_LIST_ENTRIES];
    uint32_t n, next;
    switch (f->bytes[5]) {
    case FRAME_IMAGE:
        n = (uint32_t)caches_take_image(node->w.caches, text_of("c"), f->bytes, f->n, &lsn, &err);
        find_again(node);
        return (int)n;
    case FRAME_LIST:
        return cache_take_list(node->w.cache, f->bytes, f->n, lacking, &n, &next, &err);
    case FRAME_ENTRIES:
        return cache_take_entries(node->w.cache, node->w.scratch, f->bytes, f->n, &n, &err);
    default:
        return cache_take_effect(node->w.cache, node->w.scratch, f->bytes, f->n, &lsn, &err);
    }
}

static void sum_again(struct frame *f)
{
    uint32_t n = bytes_load_u32(f->bytes + 24);
    if (n >= CACHE_FRAME_BYTES && n <= f->n)
        bytes_store_u64(f->bytes + 32, XXH3_64bits_withSeed(f->bytes + CACHE_FRAME_BYTES, n - CACHE_FRAME_BYTES,
                                                            XXH3_64bits(f->bytes, 32)));
}

/* Each frame with a byte changed, cut short, and changed with a right checksum: nothing but the frame itself is taken
 * as it is, and whatever is taken leaves the cache sound. */
static void forged_frames_are_refused(void **state)
{
    (void)state;
    struct pair p = pair_make(0);
    struct frame frames[16];
    unsigned n_frames = 0;
    struct random random;
    struct quire_error err = {0};
    uint64_t ids[64], lsn, next, n;
    struct cache_entry_info infos[64];
    uint32_t done;
    random_init(&random, 5);
    world_category(&p.leader->w, "extra", "MODE exact");
    forget_effects(p.leader);
    take_image(p.leader, p.follower);
    for (unsigned i = 0; i < 8; i++)
        put_question(p.leader, i, "answer", 60000, false);
    cache_touch(p.leader->w.cache, any_id(p.leader, &random), 100000, &lsn, NULL);
    float vector[DIM];
    vector_of(vector, 60);
    cache_invalidate(p.leader->w.cache, p.leader->w.scratch,
                     &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .vector = vector, .similarity = 0.9},
                     false, &n, &lsn, NULL);
    cache_remove(p.leader->w.cache, any_id(p.leader, &random), &lsn, NULL);
    cache_drop_category(p.leader->w.cache, text_of("extra"), &lsn, NULL);
    world_category(&p.leader->w, "added", "MODE exact");
    for (unsigned i = 7; i < p.leader->last && n_frames < 12; i++) { /* one PUT of them, and all the others */
        frames[n_frames].n = p.leader->effects[i].n;
        frames[n_frames].bytes = malloc(frames[n_frames].n);
        memcpy(frames[n_frames].bytes, p.leader->effects[i].bytes, frames[n_frames].n);
        n_frames++;
    }
    assert_in_range(n_frames, 5, 12);
    take_effects(p.leader, p.follower);
    assert_int_equal(cache_copy_image(p.leader->w.cache, &frames[n_frames].bytes, &frames[n_frames].n, &err), 0);
    n_frames++;
    assert_int_equal(cache_copy_list(p.leader->w.cache, 0, &frames[n_frames].bytes, &frames[n_frames].n, &err), 0);
    n_frames++;
    int n_ids = cache_scan(p.leader->w.cache, (struct quire_bytes){NULL, 0}, 0, infos, 64, &next, NULL);
    for (int i = 0; i < n_ids; i++)
        ids[i] = infos[i].id;
    assert_int_equal(cache_copy_entries(p.leader->w.cache, p.leader->w.engine, ids, 3, &frames[n_frames].bytes,
                                        &frames[n_frames].n, &done, &err),
                     0);
    n_frames++;
    for (unsigned i = 0; i < n_frames; i++)
        for (unsigned k = 0; k < (SANITIZED ? 60 : 300); k++) {
            struct frame f = {malloc(frames[i].n), frames[i].n};
            memcpy(f.bytes, frames[i].bytes, f.n);
            size_t head = bytes_load_u32(f.bytes + 24), at = random_below(&random, k % 2 ? head : f.n);
            f.bytes[at] ^= (uint8_t)(1u << random_below(&random, 8));
            if (k % 3 == 0)
                f.n = at > 6 ? at : 6;
            else if (k % 3 == 1)
                sum_again(&f);
            p.follower->w.cache->copying =
                p.follower->w.cache->copying ? p.follower->w.cache->copying : calloc(1, sizeof(struct cache_copying));
            p.follower->w.cache->history = standing_of(p.leader).history;
            p.follower->w.cache->seq = bytes_load_u64(frames[i].bytes + 16) - 1; /* it would be the next one */
            int rc = take_any(p.follower, &f);
            if (k % 3 != 1)
                assert_true(rc < 0);
            free(f.bytes);
        }
    world_work(&p.follower->w);
    world_check(&p.follower->w);
    forget_effects(p.leader);
    copy_all(p.leader, p.follower); /* and it becomes what it should be */
    assert_alike(p.leader, p.follower);
    for (unsigned i = 0; i < n_frames; i++)
        free(frames[i].bytes);
    pair_end(&p);
}

int main(void)
{
    support_folder_in_memory();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effects_are_done),
        cmocka_unit_test(time_is_the_leaders),
        cmocka_unit_test(gaps_are_found),
        cmocka_unit_test(a_follower_is_not_written_to),
        cmocka_unit_test(copies_become_alike),
        cmocka_unit_test(a_lead_in_the_middle),
        cmocka_unit_test(the_lead_changes),
        cmocka_unit_test(curves_are_told),
        cmocka_unit_test(forged_frames_are_refused),
    };
    return cmocka_run_group_tests_name("cache_replica", tests, NULL, NULL);
}
