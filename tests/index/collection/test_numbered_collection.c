/*
 * test_numbered_collection.c - collections whose elements' names begin with numbers: writes find sealed rows in memory,
 * searches are restricted to numbers, and what does not fit is refused.
 *
 * Compared with a model: for each number the version of its element, put in any order, sealed and merged in between.
 */
#include "index/attribute/number_set.h"
#include "index/collection/collection_priv.h"
#include "index/collection/part_numbers.h"
#include "index/store/store_priv.h"
#include "io/random.h"
#include "tests/index/support_store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NUMBERS = 2500 };

struct state {
    char *folder, *path;
    struct store *store;
    struct collection *c;
    struct support_lane lane;
    uint32_t versions[NUMBERS]; /* 0: there is none */
};

static int set_up(void **out)
{
    struct state *s = calloc(1, sizeof *s);
    struct store_options options = support_store_options(NULL);
    struct collection_config config = support_config();
    uint64_t lsn;
    assert_non_null(s);
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "data");
    support_lane_open(&s->lane, NULL);
    s->store = support_store_open(s->path, &options);
    config.numbered = true;
    assert_int_equal(store_create_collection(s->store, &config, NULL, &s->c, &lsn, NULL), 0);
    *out = s;
    return 0;
}

static int tear_down(void **in)
{
    struct state *s = *in;
    collection_unref(s->c);
    support_lane_close(&s->lane);
    support_store_close(s->store);
    free(s->path);
    support_folder_remove(s->folder);
    free(s);
    return 0;
}

static uint32_t name_of(uint32_t number, char out[16])
{
    number_to_name(number, out);
    return NUMBER_BYTES + (uint32_t)snprintf(out + NUMBER_BYTES, 12, "n%u", number % 7);
}

/* Whatever `located` says. */
static int put(struct state *s, uint32_t number, uint32_t version)
{
    char name[16];
    float vector[SUPPORT_DIM];
    struct collection_put put = {
        .key = name, .key_bytes = name_of(number, name), .vector = vector, .located = {.generation = 12345}};
    support_vector(number, version, vector);
    int rc = collection_put(s->c, &put, NULL);
    if (rc == 0) {
        assert_int_equal(put.was_new, s->versions[number] == 0);
        s->versions[number] = version;
    }
    return rc;
}

static void take(struct state *s, uint32_t number)
{
    char name[16];
    const struct located nowhere = {.generation = 0};
    bool removed;
    uint64_t lsn;
    assert_int_equal(collection_remove(s->c, name, name_of(number, name), &nowhere, NULL, &removed, &lsn, NULL), 0);
    assert_int_equal(removed, s->versions[number] != 0);
    s->versions[number] = 0;
}

struct asked {
    int code;
    uint32_t n, numbers[NUMBERS];
    float distances[NUMBERS];
    bool done;
};

static void on_answer(struct collection_search *search)
{
    struct asked *a = search->owner;
    a->code = search->code;
    a->n = search->n_hits;
    for (uint32_t i = 0; i < search->n_hits; i++) {
        a->numbers[i] = number_of_name(search->hits[i].key);
        a->distances[i] = search->hits[i].distance;
    }
    a->done = true;
}

static void ask(struct state *s, const struct number_set *set, const float *query, uint32_t k, struct asked *a)
{
    struct collection_search search = {
        .collection = s->c, .query = query, .numbers = set, .done = on_answer, .owner = a};
    quire_search_options_init(&search.options);
    search.options.k = k;
    search.options.recall = 1;
    a->done = false;
    assert_int_equal(collection_search_start(s->lane.searcher, &search, NULL), 0);
    while (!a->done)
        engine_poll(s->lane.engine, 1, 10000000);
    searcher_drop_retired(s->lane.searcher);
    assert_int_equal(a->code, 0);
}

/* All that the set has, each once, at the distance of its present version. */
static void check_set(struct state *s, double share, uint64_t seed)
{
    static struct asked a;
    struct random random;
    struct number_set set;
    float query[SUPPORT_DIM], vector[SUPPORT_DIM];
    bool in[NUMBERS];
    uint32_t n = 0, wanted = 0;
    random_init(&random, seed);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        in[i] = (double)random_below(&random, 1u << 20) < share * (1u << 20);
        n += in[i];
        wanted += in[i] && s->versions[i];
    }
    assert_int_equal(number_set_init(&set, NUMBERS, n), 0);
    for (uint32_t i = NUMBERS; i > 0; i--)
        if (in[i - 1])
            number_set_add(&set, i - 1);
    number_set_finish(&set);
    support_vector(99999, 1, query);
    ask(s, &set, query, NUMBERS, &a);
    assert_int_equal(a.n, wanted);
    for (uint32_t i = 0; i < a.n; i++) {
        uint32_t number = a.numbers[i];
        double distance = 0;
        assert_true(number < NUMBERS && in[number] && s->versions[number]);
        in[number] = false;
        support_vector(number, s->versions[number], vector);
        for (uint32_t j = 0; j < SUPPORT_DIM; j++)
            distance += ((double)vector[j] - query[j]) * ((double)vector[j] - query[j]);
        assert_true((double)a.distances[i] > distance - 1e-4 && (double)a.distances[i] < distance + 1e-4);
    }
    number_set_fini(&set);
}

static void check_sets(struct state *s)
{
    const double shares[] = {1, .5, .05, .01, .001, 0};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        check_set(s, shares[i], 3 + i);
    uint64_t n = 0;
    for (uint32_t i = 0; i < NUMBERS; i++)
        n += s->versions[i] != 0;
    assert_int_equal(collection_count(s->c), n);
}

static void change_some(struct state *s, uint32_t version)
{
    struct random random;
    random_init(&random, version);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        uint32_t number = (uint32_t)random_below(&random, NUMBERS);
        if (random_below(&random, 4) == 0)
            take(s, number);
        else
            assert_int_equal(put(s, number, version), 0);
    }
}

static void writes_find_rows_by_their_numbers(void **in)
{
    struct state *s = *in;
    check_sets(s);
    for (uint32_t round = 1; round <= 6; round++) {
        change_some(s, round);
        check_sets(s);
        assert_int_equal(store_seal(s->store, s->c, NULL), 0);
        check_sets(s);
        change_some(s, 10 + round);
        if (round == 4)
            assert_int_equal(store_compact(s->store, s->c, NULL), 0);
        check_sets(s);
    }
}

struct names {
    const struct state *s;
    uint32_t n;
    bool seen[NUMBERS];
};

static int note(void *context, const void *name, uint32_t bytes)
{
    struct names *names = context;
    char expected[16];
    uint32_t number = number_of_name(name);
    assert_true(number < NUMBERS && names->s->versions[number] && !names->seen[number]);
    assert_int_equal(bytes, name_of(number, expected));
    assert_memory_equal(name, expected, bytes);
    names->seen[number] = true;
    names->n++;
    return 0;
}

static void each_name_is_visited_once(void **in)
{
    struct state *s = *in;
    struct names names = {.s = s};
    change_some(s, 1);
    assert_int_equal(store_seal(s->store, s->c, NULL), 0);
    change_some(s, 2);
    assert_int_equal(collection_each_name(s->c, note, &names, NULL), 0);
    assert_int_equal(names.n, collection_count(s->c));
}

static void the_settings_are_kept(void **in)
{
    struct state *s = *in;
    struct collection_config config = *collection_config(s->c), again;
    uint8_t bytes[COLLECTION_CONFIG_BYTES];
    struct quire_error err = {0};
    assert_true(config.numbered);
    collection_config_encode(&config, bytes);
    assert_int_equal(bytes[76], 1);
    assert_int_equal(collection_config_decode(bytes, &again, &err), 0);
    assert_true(again.numbered);
    bytes[76] = 2;
    assert_int_equal(collection_config_decode(bytes, &again, &err), QUIRE_EVERSION);
    config.numbered = false;
    collection_config_encode(&config, bytes);
    assert_int_equal(bytes[76], 0);
}

static void what_has_no_number_is_refused(void **in)
{
    struct state *s = *in;
    float vector[SUPPORT_DIM] = {0};
    struct quire_error err = {0};
    struct number_set set;
    struct asked a;
    struct collection_put put = {.key = "abcd", .key_bytes = NUMBER_BYTES, .vector = vector};
    assert_int_equal(collection_put(s->c, &put, &err), QUIRE_ERANGE);
    struct collection *other = support_create(s->store);
    struct collection_search search = {
        .collection = other, .query = vector, .numbers = &set, .done = on_answer, .owner = &a};
    quire_search_options_init(&search.options);
    assert_int_equal(number_set_init(&set, 10, 1), 0);
    assert_int_equal(collection_search_start(s->lane.searcher, &search, &err), QUIRE_EINVALID);
    number_set_fini(&set);
    collection_unref(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_find_rows_by_their_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_name_is_visited_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_settings_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_no_number_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
