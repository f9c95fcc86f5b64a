/*
 * test_memtable_columns.c - filters and scopes over rows in memory: what columns leave out is what no row's text would
 * let pass, while rows come, change and go.
 *
 * Attributes are drawn from values that are awkward on purpose: strings that look like numbers, long and escaped ones,
 * lists, null, objects, damaged JSON, names that stand twice, more fields than there are columns, grants.
 */
#include "index/attribute/filter.h"
#include "index/attribute/grants.h"
#include "index/memtable/memtable.h"
#include "io/random.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 8, ROWS = SANITIZED ? 900 : 3000, TEXT_MAX = 1024, STEPS = SANITIZED ? 12 : 40 };

struct fixture {
    struct epochs *epochs;
    struct memtable *table;
    struct random random;
    uint64_t lsn, gauss;
    bool many_fields;
};

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(epochs_create(&f->epochs), 0);
    struct memtable_config config = {.dim = DIM, .slot = QUIRE_SLOT_Q8, .metric = QUIRE_METRIC_COSINE, .seed = 3};
    config.epochs = f->epochs;
    assert_int_equal(memtable_create(&config, &f->table, NULL), 0);
    random_init(&f->random, 5);
}

static void end(struct fixture *f)
{
    struct quire_error reason = {0};
    if (memtable_check(f->table, &reason) < 0)
        fail_msg("%s", reason.message);
    memtable_destroy(f->table);
    epochs_destroy(f->epochs);
}

static const char *const values[] = {
    "1",     "2",         "-3.5",
    "1e300", "true",      "false",
    "null",  "\"red\"",   "\"re\\u0064\"",
    "\"7\"", "\"\"",      "\"a string longer than what is kept as a word, of sixty-four bytes and some more bytes\"",
    "[1,2]", "[\"red\"]", "{\"a\":1}",
    "[[]]",  "broken",    "\"open",
};

/* JSON of some fields, with grants before it now and then; returns its bytes. */
static uint32_t draw_text(struct fixture *f, char *out)
{
    static const char *const names[] = {"a", "b", "c", "a", "d\\u0065"};
    char json[TEXT_MAX];
    int n = sprintf(json, "{");
    uint32_t fields = (uint32_t)random_below(&f->random, 5);
    for (uint32_t i = 0; i < fields; i++)
        n += sprintf(json + n, "%s\"%s\":%s", i ? "," : "", names[random_below(&f->random, 5)],
                     values[random_below(&f->random, SUPPORT_COUNT(values))]);
    if (f->many_fields)
        n += sprintf(json + n, "%s\"f%u\":1", fields ? "," : "", (unsigned)random_below(&f->random, 60));
    n += sprintf(json + n, "}");
    struct grant grants[2] = {{"ann", 3, 0}, {"bob", 3, (uint32_t)random_below(&f->random, 2)}};
    uint32_t who = (uint32_t)random_below(&f->random, 4), bytes;
    char *joined;
    assert_int_equal(
        grants_join(who == 2 ? grants + 1 : grants, who == 3 ? 2 : who > 0, json, (uint32_t)n, &joined, &bytes, NULL),
        0);
    memcpy(out, joined, bytes);
    free(joined);
    return random_below(&f->random, 10) ? bytes : 0;
}

static void put_one(struct fixture *f, uint32_t key)
{
    char text[TEXT_MAX];
    float x[DIM];
    uint32_t row, bytes = draw_text(f, text);
    for (uint32_t i = 0; i < DIM; i++)
        x[i] = support_gauss(&f->gauss);
    assert_int_equal(memtable_put(f->table, &key, sizeof key, x, false, text, bytes, ++f->lsn, &row), 0);
}

static void change_one(struct fixture *f, uint32_t key)
{
    char text[TEXT_MAX];
    uint32_t row = memtable_find(f->table, &key, sizeof key);
    if (row == MEMTABLE_NONE)
        return;
    if (random_below(&f->random, 3) == 0)
        memtable_end(f->table, row, ++f->lsn);
    else
        assert_int_equal(memtable_set_attributes(f->table, row, text, draw_text(f, text)), 0);
}

struct asked {
    const struct filter *filter;
    const struct tenant_scope *scope;
    unsigned n;
};

static bool matches(const struct asked *asked, const struct memtable_row *row)
{
    const char *json = NULL;
    uint32_t json_bytes = 0, n_grants;
    if (grants_split(row->attributes, row->attribute_bytes, &json, &json_bytes, &n_grants) < 0)
        return false;
    return grants_allow(row->attributes, row->attribute_bytes, asked->scope) &&
           (!asked->filter || filter_matches(asked->filter, json, json_bytes, row->key, row->key_bytes));
}

static bool accepts(void *context, const struct memtable_row *row)
{
    struct asked *asked = context;
    asked->n++;
    return matches(asked, row);
}

/* All that match are found, and nothing else. Returns how many rows the test was asked about. */
static unsigned check_filter(struct fixture *f, const char *expression, const struct tenant_scope *scope)
{
    static struct memtable_hit hits[2 * ROWS];
    struct filter *filter = NULL;
    struct memtable_stats stats;
    struct quire_error err = {0};
    uint32_t wanted = 0;
    if (expression && filter_compile(expression, strlen(expression), NULL, &filter, &err) < 0)
        fail_msg("%s: %s", expression, err.message);
    struct asked asked = {.filter = filter, .scope = scope};
    const struct memtable_test test = {accepts, &asked, filter, scope, NULL};
    float query[DIM] = {1};
    unsigned slot = epoch_enter(f->epochs);
    memtable_get_stats(f->table, &stats);
    for (uint32_t row = 0; row < stats.row_end; row++) {
        struct memtable_row found;
        if (memtable_row_at(f->table, row, f->lsn, &found))
            wanted += matches(&asked, &found);
    }
    struct memtable_query q = {.query = query, .k = 2 * ROWS, .snapshot = f->lsn, .test = &test};
    struct memtable_work work;
    int n = memtable_search(f->table, &q, hits, &work);
    if (n != (int)wanted)
        fail_msg("%s: %d rows, not %u", expression ? expression : "a scope", n, wanted);
    for (int i = 0; i < n; i++) {
        struct memtable_row found;
        assert_true(memtable_row_at(f->table, hits[i].row, f->lsn, &found));
        assert_true(matches(&asked, &found));
    }
    assert_true(work.matches >= wanted);
    epoch_exit(f->epochs, slot);
    filter_unref(filter);
    return asked.n;
}

static const char *const expressions[] = {
    ".a == 1",
    ".a > 0 and .b < 3",
    ".a + .b > 2",
    ".c == \"red\"",
    ".c != \"red\"",
    ".c in [\"red\", 2]",
    "1 in .b",
    "\"red\" in .a",
    "not .a",
    ".a == null",
    "exists .b",
    "not exists .b",
    ".a == .b",
    ".c prefix \"re\"",
    ".de == 7",
    ".a % 2 == 1",
    ".nobody == 1",
    "exists .nobody",
    ".c == \"a string longer than what is kept as a word, of sixty-four bytes and some more bytes\"",
    ".a == \"\"",
    ".b or .c",
    ".f7 == 1",
    "not exists .f7",
};

static void check_all(struct fixture *f)
{
    struct grant ann = {"ann", 3, 0}, both[2] = {{"ann", 3, 0}, {"bob", 3, 1}};
    const struct tenant_scope one = {&ann, 1}, two = {both, 2}, none = {both, 0};
    for (size_t i = 0; i < SUPPORT_COUNT(expressions); i++) {
        check_filter(f, expressions[i], NULL);
        check_filter(f, expressions[i], i % 2 ? &one : &two);
    }
    check_filter(f, NULL, &one);
    check_filter(f, NULL, &two);
    check_filter(f, NULL, &none);
}

static void run_model(bool many_fields)
{
    struct fixture f;
    begin(&f);
    f.many_fields = many_fields;
    for (uint32_t key = 0; key < ROWS; key++)
        put_one(&f, key);
    check_all(&f);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < ROWS / 10; i++) {
            put_one(&f, (uint32_t)random_below(&f.random, ROWS));
            change_one(&f, (uint32_t)random_below(&f.random, ROWS));
        }
        while (memtable_reclaim(f.table, f.lsn))
            ;
        if (step % 8 == 7)
            check_all(&f);
    }
    end(&f);
}

static void test_model(void **state)
{
    (void)state;
    run_model(false);
}

static void test_more_fields_than_columns(void **state)
{
    (void)state;
    run_model(true);
}

/* Few match: hardly any text is asked. */
static void test_columns_decide(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    for (uint32_t key = 0; key < ROWS; key++) {
        char text[64];
        float x[DIM];
        uint32_t row;
        for (uint32_t i = 0; i < DIM; i++)
            x[i] = support_gauss(&f.gauss);
        uint32_t bytes = (uint32_t)sprintf(text, "{\"n\":%u,\"color\":\"%s\"}", key, key % 100 ? "blue" : "red");
        assert_int_equal(memtable_put(f.table, &key, sizeof key, x, false, text, bytes, ++f.lsn, &row), 0);
    }
    assert_true(check_filter(&f, ".n < 10", NULL) <= 10);
    assert_true(check_filter(&f, ".color == \"red\"", NULL) <= ROWS / 100);
    assert_true(check_filter(&f, ".n * 2 + 1 == 21", NULL) <= 1);
    assert_int_equal(check_filter(&f, ".absent == 1", NULL), 0);
    end(&f);
}

/* ---- while attributes change ------------------------------------------------------------------------------------- */

struct live {
    struct fixture *f;
    atomic_bool stop;
    atomic_uint searches, wrong;
};

static bool a_plus_b_is_one(void *context, const struct memtable_row *row)
{
    (void)context;
    (void)row;
    return true;
}

/* Whatever a writer does, .a + .b is 1 in every row: so all are found. */
static void *search_always(void *context)
{
    struct live *live = context;
    struct memtable_hit hits[ROWS];
    struct filter *filter;
    float query[DIM] = {1};
    assert_int_equal(filter_compile(".a + .b == 1", 12, NULL, &filter, NULL), 0);
    const struct memtable_test test = {a_plus_b_is_one, NULL, filter, NULL, NULL};
    while (!atomic_load(&live->stop)) {
        unsigned slot = epoch_enter(live->f->epochs);
        struct memtable_query q = {.query = query, .k = ROWS, .snapshot = live->f->lsn, .test = &test};
        int n = memtable_search(live->f->table, &q, hits, NULL);
        epoch_exit(live->f->epochs, slot);
        atomic_fetch_add(&live->wrong, n != 600);
        atomic_fetch_add(&live->searches, 1);
    }
    filter_unref(filter);
    return NULL;
}

static void test_two_fields_change_at_once(void **state)
{
    struct fixture f;
    struct live live = {.f = &f};
    pthread_t thread;
    (void)state;
    begin(&f);
    for (uint32_t key = 0; key < 600; key++) {
        float x[DIM];
        uint32_t row;
        for (uint32_t i = 0; i < DIM; i++)
            x[i] = support_gauss(&f.gauss);
        assert_int_equal(memtable_put(f.table, &key, sizeof key, x, false, "{\"a\":1,\"b\":0}", 13, ++f.lsn, &row), 0);
    }
    assert_int_equal(pthread_create(&thread, NULL, search_always, &live), 0);
    for (uint32_t i = 0; i < 20000 || atomic_load(&live.searches) < 50; i++) {
        uint32_t key = (uint32_t)random_below(&f.random, 600);
        const char *text = i % 2 ? "{\"a\":1,\"b\":0}" : "{\"a\":0,\"b\":1}";
        unsigned slot = epoch_enter(f.epochs);
        assert_int_equal(memtable_set_attributes(f.table, memtable_find(f.table, &key, sizeof key), text, 13), 0);
        epoch_exit(f.epochs, slot);
    }
    atomic_store(&live.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&live.wrong), 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_more_fields_than_columns),
        cmocka_unit_test(test_columns_decide),
        cmocka_unit_test(test_two_fields_change_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
