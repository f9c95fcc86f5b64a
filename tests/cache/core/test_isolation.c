/*
 * test_isolation.c - an answer never crosses scopes: a million questions of scopes that are made to be taken for
 * others, with the same vector, text, hash and compat as the entries of those, while groups come and go, their numbers
 * are used again, grow from lists into graphs, and the folder is opened anew.
 *
 * The value of each entry is the scope that it was put under, so that an answer says itself where it comes from.
 */
#include "cache/core/cache_priv.h"
#include "io/random.h"
#include "tests/cache/support_cache.h"
#include "tests/sanitized.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 32, SCOPES = 512, LARGE = 3, VECTORS = 8, QUESTIONS = SANITIZED ? 40000 : 1000000 };

static int setup(void **state)
{
    *state = support_folder_make();
    return 0;
}

static int teardown(void **state)
{
    support_folder_remove(*state);
    return 0;
}

/* ---- scopes that look alike -------------------------------------------------------------------------------------- */

struct made_scope {
    struct quire_pair pairs[3];
    uint32_t n;
    uint8_t bytes[3][2][16];
    char name[256]; /* canonical: pairs by key, each as hex */
};

static bool less(const struct quire_pair *a, const struct quire_pair *b)
{
    size_t n = a->key.n_bytes < b->key.n_bytes ? a->key.n_bytes : b->key.n_bytes;
    int by = memcmp(a->key.data, b->key.data, n);
    return by < 0 || (by == 0 && a->key.n_bytes < b->key.n_bytes);
}

static void name_scope(struct made_scope *s)
{
    size_t at = 0;
    s->name[0] = 0;
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = i; k > 0 && less(&s->pairs[k], &s->pairs[k - 1]); k--) {
            struct quire_pair pair = s->pairs[k];
            s->pairs[k] = s->pairs[k - 1];
            s->pairs[k - 1] = pair;
        }
    for (uint32_t i = 0; i < s->n; i++)
        for (unsigned side = 0; side < 2; side++) {
            struct quire_bytes piece = side ? s->pairs[i].value : s->pairs[i].key;
            for (size_t k = 0; k < piece.n_bytes; k++)
                at += (size_t)snprintf(s->name + at, sizeof s->name - at, "%02x", ((const uint8_t *)piece.data)[k]);
            at += (size_t)snprintf(s->name + at, sizeof s->name - at, side ? ";" : "=");
        }
}

/* Pieces of few letters, with what separates pairs in texts, in URLs and in this cache's own bytes among them. */
static void make_scope(struct made_scope *s, struct random *random)
{
    static const uint8_t letters[] = {'a', 'a', 'b', 'c', '=', ';', ',', ' ', 0, 1, 2, '\n'};
    bool twice;
    do {
        memset(s, 0, sizeof *s);
        s->n = (uint32_t)random_below(random, 4);
        for (uint32_t i = 0; i < s->n; i++) {
            size_t sizes[2] = {1 + random_below(random, 4), 1 + random_below(random, 12)};
            for (unsigned side = 0; side < 2; side++)
                for (size_t k = 0; k < sizes[side]; k++)
                    s->bytes[i][side][k] = letters[random_below(random, sizeof letters)];
            s->pairs[i] = (struct quire_pair){{s->bytes[i][0], sizes[0]}, {s->bytes[i][1], sizes[1]}};
        }
        twice = false;
        for (uint32_t i = 0; i < s->n; i++)
            for (uint32_t k = 0; k < i; k++)
                twice = twice || text_equal(s->pairs[i].key, s->pairs[k].key);
    } while (twice);
    name_scope(s);
}

/* The same bytes with the border between key and value, or between pairs, elsewhere. */
static void shift_borders(struct made_scope *s, const struct made_scope *of)
{
    *s = *of;
    for (uint32_t i = 0; i < s->n; i++) {
        uint8_t joined[32];
        size_t n_key = of->pairs[i].key.n_bytes, n = n_key + of->pairs[i].value.n_bytes;
        memcpy(joined, of->pairs[i].key.data, n_key);
        memcpy(joined + n_key, of->pairs[i].value.data, n - n_key);
        n_key = n_key > 1 ? n_key - 1 : n > 2 ? n_key + 1 : n_key;
        memcpy(s->bytes[i][0], joined, n_key);
        memcpy(s->bytes[i][1], joined + n_key, n - n_key);
        s->pairs[i] = (struct quire_pair){{s->bytes[i][0], n_key}, {s->bytes[i][1], n - n_key}};
    }
    name_scope(s);
}

struct field {
    struct world world;
    struct random random;
    struct made_scope scopes[SCOPES];
    float vectors[VECTORS][DIM];
    uint64_t served, asked, crossed;
};

static void make_field(struct field *f)
{
    random_init(&f->random, 4);
    for (unsigned i = 0; i < SCOPES; i += 2) {
        make_scope(&f->scopes[i], &f->random);
        shift_borders(&f->scopes[i + 1], &f->scopes[i]);
        for (uint32_t k = 0; k < f->scopes[i + 1].n; k++) /* keys that became alike are refused, and no scope */
            for (uint32_t j = 0; j < k; j++)
                if (text_equal(f->scopes[i + 1].pairs[k].key, f->scopes[i + 1].pairs[j].key))
                    f->scopes[i + 1].n = j;
        name_scope(&f->scopes[i + 1]);
    }
    for (unsigned i = 0; i < VECTORS; i++)
        vector_make(f->vectors[i], DIM, i);
}

/* ---- questions and answers --------------------------------------------------------------------------------------- */

static void put_one(struct field *f, unsigned scope, unsigned which, unsigned version)
{
    char hash[32];
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    const struct made_scope *s = &f->scopes[scope];
    snprintf(hash, sizeof hash, "%u.%u", which, version);
    struct quire_cache_entry entry = {.scope = s->pairs,
                                      .n_scope = s->n,
                                      .vector = f->vectors[which],
                                      .hash = text_of(hash),
                                      .compat = text_of("system"),
                                      .text = text_of("what is my balance")};
    if (put(&f->world, &entry, s->name, &result, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(result.outcome <= QUIRE_CACHE_REPLACED);
}

static void ask_one(struct field *f, unsigned scope)
{
    const struct made_scope *s = &f->scopes[scope];
    struct quire_pair turned[3];
    char hash[32];
    struct asked asked;
    struct quire_error err = {0};
    unsigned which = (unsigned)random_below(&f->random, VECTORS), first = (unsigned)random_below(&f->random, 3);
    for (uint32_t i = 0; i < s->n; i++) /* pairs in any order are the same scope */
        turned[i] = s->pairs[(i + first) % s->n];
    snprintf(hash, sizeof hash, "%u.0", which);
    struct quire_cache_query query = {.category = text_of("k"),
                                      .scope = turned,
                                      .n_scope = s->n,
                                      .vector = f->vectors[which],
                                      .compat = text_of("system"),
                                      .no_lease = true};
    if (first)
        query.hash = text_of(hash);
    if (ask(&f->world, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    bool served = asked.answer.value.n_bytes > 0 || asked.answer.status == QUIRE_CACHE_HIT ||
                  asked.answer.status == QUIRE_CACHE_EXACT;
    f->asked++;
    f->served += served;
    if (served && strcmp(asked.value, s->name) != 0) {
        f->crossed++;
        fprintf(stderr, "the answer of %s went to %s\n", asked.value, s->name);
    }
    asked_end(&asked);
}

static void invalidate_scope(struct field *f, unsigned scope)
{
    const struct made_scope *s = &f->scopes[scope];
    if (s->n == 0)
        return;
    struct quire_bytes names[2] = {s->pairs[0].key, s->pairs[0].value};
    invalidate(&f->world, &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_SCOPE, .names = names, .n = 2}, false);
}

static void no_answer_crosses(void **state)
{
    struct field *f = calloc(1, sizeof *f);
    make_field(f);
    world_open(&f->world, *state, DIM);
    world_category(&f->world, "k", "SIM 0.9 TTL 1000000 STALE 5000");
    for (unsigned i = 0; i < SCOPES; i += 3)
        for (unsigned which = 0; which < VECTORS; which++)
            put_one(f, i, which, 0);
    for (unsigned i = 0; i < LARGE; i++) /* these grow into graphs meanwhile */
        for (unsigned version = 0; version < GROUP_FLAT_MAX; version++)
            put_one(f, i * 3, version % VECTORS, version / VECTORS);
    for (unsigned round = 0; f->asked < QUESTIONS; round++) {
        for (unsigned i = 0; i < QUESTIONS / 100; i++)
            ask_one(f, (unsigned)random_below(&f->random, SCOPES));
        if (round % 4 == 0)
            invalidate_scope(f, 3 * (unsigned)random_below(&f->random, SCOPES / 3));
        for (unsigned i = 0; i < 20; i++)
            put_one(f, (unsigned)random_below(&f->random, SCOPES), i % VECTORS, round % 3);
        for (unsigned i = 0; i < LARGE; i++)
            put_one(f, i * 3, round % VECTORS, 1000 + round);
        if (round % 3 == 0)
            caches_work(f->world.caches);
        if (round % 10 == 9)
            f->world.now_ms += 200000;
        if (round % 33 == 32)
            world_reopen(&f->world, round % 2);
    }
    assert_int_equal(f->crossed, 0);
    assert_in_range(f->served, f->asked / 10, f->asked);
    world_work(&f->world);
    world_check(&f->world);
    world_close(&f->world);
    free(f);
}

/* ---- numbers of groups ------------------------------------------------------------------------------------------- */

static uint64_t put_scoped(struct world *w, const char *category, const char *tenant, const float *v)
{
    struct quire_pair pair = {text_of("tenant"), text_of(tenant)};
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    struct quire_cache_entry entry = {.category = text_of(category), .scope = &pair, .n_scope = 1, .vector = v};
    if (put(w, &entry, tenant, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result.id;
}

static void ask_scoped(struct world *w, const char *category, const char *tenant, const float *v)
{
    struct quire_pair pair = {text_of("tenant"), text_of(tenant)};
    struct asked asked;
    struct quire_error err = {0};
    struct quire_cache_query query = {.category = text_of(category), .scope = &pair, .n_scope = 1, .vector = v};
    if (ask(w, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    if (asked.answer.status != QUIRE_CACHE_MISS)
        assert_string_equal(asked.value, tenant);
    asked_end(&asked);
}

static uint32_t number_of_only_group(const struct world *w)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < w->cache->n_groups; i++)
        if (w->cache->groups[i]) {
            assert_int_equal(found, UINT32_MAX);
            found = i;
        }
    return found;
}

/* An entry expires, its group goes, its number is another tenant's, in a category that serves what is stale: neither
 * removed by the thread nor found dead at a restart it comes back there. */
static void numbers_are_used_again(void **state)
{
    for (int at_restart = 0; at_restart < 2; at_restart++) {
        char *folder = support_path(*state, at_restart ? "restart" : "thread");
        struct world w;
        float v[2][DIM];
        world_open(&w, folder, DIM);
        world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0");
        world_category(&w, "stale", "SIM 0.9 TTL 1000 JITTER 0 STALE 100000000");
        vector_make(v[0], DIM, 1);
        vector_make(v[1], DIM, 2);
        for (unsigned i = 0; i < 3; i++)
            put_scoped(&w, "k", "first", v[0]);
        uint32_t number = number_of_only_group(&w);
        w.now_ms += 1001;
        if (at_restart)
            world_reopen(&w, false);
        world_work(&w);
        assert_int_equal(w.cache->groups_living, 0);
        put_scoped(&w, "stale", "second", v[1]); /* one row is used again; the records of two are the last about them */
        assert_int_equal(number_of_only_group(&w), number);
        for (int i = 0; i < 3; i++) {
            world_reopen(&w, i);
            ask_scoped(&w, "stale", "second", v[0]);
            ask_scoped(&w, "stale", "second", v[1]);
            world_check(&w);
        }
        world_close(&w);
        support_folder_remove(folder);
    }
}

static void keys_given_twice_are_refused(void **state)
{
    struct world w;
    float v[DIM];
    struct asked asked;
    struct quire_error err = {0};
    struct quire_pair pairs[2] = {{text_of("tenant"), text_of("a")}, {text_of("tenant"), text_of("b")}};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    struct quire_cache_query query = {.category = text_of("k"), .scope = pairs, .n_scope = 2, .vector = v};
    assert_int_equal(ask(&w, &query, &asked, &err), QUIRE_EINVALID);
    pairs[1].key = (struct quire_bytes){"", 0};
    assert_int_equal(ask(&w, &query, &asked, &err), QUIRE_ERANGE);
    pairs[1] = (struct quire_pair){text_of("user"), {"", 0}};
    assert_int_equal(ask(&w, &query, &asked, &err), QUIRE_ERANGE);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_answer_crosses, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_are_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(keys_given_twice_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
