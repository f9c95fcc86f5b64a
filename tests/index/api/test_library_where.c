/*
 * test_library_where.c - tenants, filters, counting and removing by filter of a live collection through quire.h,
 * against a model.
 *
 * The model is a table of elements: vector, JSON, grants. Random writes go to both, with seals, merges and new openings
 * between them; then every count, every search and every removal must be what the model says. Fewer elements match than
 * are asked for in most searches, so a stranger, a missing or a doubled one shows.
 */
#include "index/attribute/filter.h"
#include "io/clock.h"
#include "io/random.h"
#include "tests/index/support_index.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SWEEP_NS (120ull * 1000000000)

enum { ELEMENTS = 160, DIM = 8, TENANTS = 6, TEXT = 96, K = 200, STEPS = 1500 };

static const char *const tenant_names[TENANTS] = {"acme", "b", "corp-c", "d", "e", "f"};
static const struct quire_column columns[] = {{"n", QUIRE_COLUMN_INTEGER, true}, {"at", QUIRE_COLUMN_TIMESTAMP, true}};

struct element {
    bool there, granted[TENANTS];
    float vector[DIM];
    char json[TEXT]; /* "": none */
};

struct state {
    char *folder, *path;
    struct quire_collection *c;
    struct element model[ELEMENTS];
    struct random random;
};

static struct quire_error err;

#define ok(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != 0)                                                                                               \
            fail_msg("%s: %s", #call, err.message);                                                                    \
    } while (0)

static void open_collection(struct state *s, bool tenants, enum quire_index_kind kind)
{
    struct quire_collection_options options;
    quire_collection_options_init(&options);
    options.create = true;
    options.dim = DIM;
    options.slot = QUIRE_SLOT_F32;
    options.block_bytes = 4096;
    options.index = kind;
    options.durability = QUIRE_DURABLE_NO;
    options.columns = columns;
    options.n_columns = SUPPORT_COUNT(columns);
    options.tenants = tenants;
    ok(quire_collection_open(s->path, &options, &s->c, &err));
}

static int set_up(void **out)
{
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "live");
    random_init(&s->random, 11);
    *out = s;
    return 0;
}

static int tear_down(void **in)
{
    struct state *s = *in;
    quire_collection_close(s->c, NULL);
    free(s->path);
    support_folder_remove(s->folder);
    free(s);
    return 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static uint32_t draw(struct state *s, uint32_t n)
{
    return (uint32_t)random_below(&s->random, n);
}

static size_t key_of(uint32_t element, char out[16])
{
    return (size_t)snprintf(out, 16, "e%u", element);
}

static void new_json(struct state *s, char out[TEXT])
{
    out[0] = 0;
    if (draw(s, 8))
        snprintf(out, TEXT, "{\"n\":%u,\"m\":%u,\"at\":\"2025-%02u-01\",\"s\":\"%c\"}", draw(s, 50), draw(s, 50),
                 1 + draw(s, 12), 'a' + (int)draw(s, 4));
}

/* tenants: a bit each. */
static bool is_granted(const struct element *e, uint32_t tenants)
{
    for (uint32_t t = 0; t < TENANTS; t++)
        if (e->granted[t] && tenants >> t & 1)
            return true;
    return false;
}

struct question {
    const char *filter;
    uint32_t tenants; /* a bit each */
    bool scoped;
};

static uint32_t find_matches(const struct state *s, const struct question *q, bool matches[ELEMENTS])
{
    struct attribute_schema *schema = NULL;
    struct filter *filter = NULL;
    uint32_t n = 0;
    char key[16];
    ok(attribute_schema_create(columns, SUPPORT_COUNT(columns), &schema, &err));
    if (q->filter)
        ok(filter_compile(q->filter, strlen(q->filter), schema, &filter, &err));
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const struct element *e = &s->model[i];
        size_t bytes = key_of(i, key);
        matches[i] = e->there && (!q->scoped || is_granted(e, q->tenants)) &&
                     (!filter || filter_matches(filter, e->json[0] ? e->json : NULL, (uint32_t)strlen(e->json), key,
                                                (uint32_t)bytes));
        n += matches[i];
    }
    filter_unref(filter);
    attribute_schema_destroy(schema);
    return n;
}

static struct quire_where where_of(const struct question *q, struct quire_bytes names[TENANTS])
{
    struct quire_where where = {.filter = q->filter, .filter_bytes = q->filter ? strlen(q->filter) : 0};
    if (q->scoped)
        where.tenants = names;
    for (uint32_t t = 0; t < TENANTS; t++)
        if (q->scoped && q->tenants >> t & 1)
            names[where.n_tenants++] = (struct quire_bytes){tenant_names[t], strlen(tenant_names[t])};
    return where;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static void expect_search(struct state *s, const struct question *q, const bool matches[ELEMENTS], uint32_t n)
{
    struct quire_bytes names[TENANTS];
    struct quire_where where = where_of(q, names);
    struct quire_search_options options = support_search(K, 0, 0);
    struct quire_result *result = NULL;
    bool seen[ELEMENTS] = {false};
    float query[DIM];
    options.filter = where.filter;
    options.filter_bytes = where.filter_bytes;
    options.tenants = where.tenants;
    options.n_tenants = where.n_tenants;
    for (uint32_t d = 0; d < DIM; d++)
        query[d] = (float)draw(s, 100);
    ok(quire_collection_search(s->c, NULL, query, &options, QUIRE_WITH_ATTRIBUTES, &result, NULL, &err));
    for (uint32_t i = 0; i < quire_result_count(result); i++) {
        struct quire_element hit;
        quire_result_element(result, i, &hit);
        char key[16] = "";
        assert_true(hit.key_bytes > 1 && hit.key_bytes < sizeof key);
        memcpy(key, hit.key, hit.key_bytes);
        uint32_t element = (uint32_t)strtoul(key + 1, NULL, 10);
        if (element >= ELEMENTS || !matches[element] || seen[element])
            fail_msg("filter %s, tenants %x: a stranger or one twice: %s", q->filter ? q->filter : "-", q->tenants,
                     key);
        seen[element] = true;
        const char *json = s->model[element].json;
        assert_int_equal(hit.attribute_bytes, strlen(json));
        if (json[0])
            assert_memory_equal(hit.attributes, json, hit.attribute_bytes);
        double d = support_distance(QUIRE_METRIC_L2, query, s->model[element].vector, DIM);
        assert_true(d * 0.999 - 1e-3 <= (double)hit.distance && (double)hit.distance <= d * 1.001 + 1e-3);
    }
    if (quire_result_count(result) != n)
        fail_msg("filter %s, tenants %x: %u hits, expected %u", q->filter ? q->filter : "-", q->tenants,
                 quire_result_count(result), n);
    quire_result_free(result);
}

struct keys_seen {
    const bool *matches;
    bool seen[ELEMENTS];
    uint32_t n, until;
};

static int see_key(void *context, const void *key, size_t key_bytes)
{
    struct keys_seen *k = context;
    char text[16] = "";
    assert_true(key_bytes > 1 && key_bytes < sizeof text);
    memcpy(text, key, key_bytes);
    uint32_t element = (uint32_t)strtoul(text + 1, NULL, 10);
    if (element >= ELEMENTS || !k->matches[element] || k->seen[element])
        fail_msg("a stranger or one twice: %s", text);
    k->seen[element] = true;
    return ++k->n == k->until ? 77 : 0;
}

static void expect_keys(struct state *s, const struct quire_where *where, const bool matches[ELEMENTS], uint32_t n)
{
    struct keys_seen all = {.matches = matches}, some = {.matches = matches, .until = (n + 1) / 2};
    ok(quire_each_key(s->c, where, see_key, &all, &err));
    assert_int_equal(all.n, n);
    assert_int_equal(quire_each_key(s->c, where, see_key, &some, &err), n ? 77 : 0);
    assert_int_equal(some.n, some.until);
}

static const char *const filters[] = {NULL,
                                      ".n < 25",
                                      ".n == 7",
                                      ".s == \"a\" or .s == \"c\"",
                                      ".at >= \"2025-06-01\"",
                                      ".n > .m",
                                      ".n == .m",
                                      "not (.n < 40)",
                                      "exists .n",
                                      "key in [\"e3\", \"e5\", \"e77\", \"x\"]",
                                      ".n < 30 and .s in [\"a\", \"b\"] and .at < \"2025-09-01\""};

static struct question new_question(struct state *s)
{
    return (struct question){.filter = filters[draw(s, SUPPORT_COUNT(filters))],
                             .scoped = draw(s, 3) != 0,
                             .tenants = draw(s, 4) ? 1u << draw(s, TENANTS) : draw(s, 1u << TENANTS)};
}

static void expect_all(struct state *s, uint32_t questions)
{
    for (uint32_t i = 0; i < questions; i++) {
        struct question q = new_question(s);
        struct quire_bytes names[TENANTS];
        struct quire_where where = where_of(&q, names);
        bool matches[ELEMENTS];
        uint32_t n = find_matches(s, &q, matches);
        uint64_t counted = 0, dry = 0;
        ok(quire_count(s->c, &where, &counted, &err));
        if (counted != n)
            fail_msg("filter %s, tenants %x: counted %u, expected %u", q.filter ? q.filter : "-", q.tenants,
                     (unsigned)counted, n);
        if (q.filter || q.scoped) {
            ok(quire_remove_where(s->c, &where, true, &dry, &err));
            assert_int_equal(dry, n);
        }
        expect_keys(s, &where, matches, n);
        expect_search(s, &q, matches, n);
    }
}

/* ---- writes ------------------------------------------------------------------------------------------------------ */

static void put(struct state *s, uint32_t element, uint32_t tenants)
{
    struct element *e = &s->model[element];
    struct question who = {.scoped = true, .tenants = tenants};
    struct quire_bytes names[TENANTS];
    struct quire_where where = where_of(&who, names);
    float vector[DIM];
    char key[16], json[TEXT];
    bool was_new = false;
    size_t bytes = key_of(element, key);
    for (uint32_t d = 0; d < DIM; d++)
        vector[d] = (float)draw(s, 100);
    new_json(s, json);
    int rc = quire_put_granted(s->c, key, bytes, vector, json[0] ? json : NULL, strlen(json), where.tenants,
                               where.n_tenants, &was_new, &err);
    if (e->there && !is_granted(e, tenants)) {
        assert_int_equal(rc, QUIRE_EPERM);
        return;
    }
    if (rc < 0)
        fail_msg("put: %s", err.message);
    assert_true(was_new == !e->there);
    if (!e->there) {
        memset(e->granted, 0, sizeof e->granted);
        e->json[0] = 0;
    }
    e->there = true;
    memcpy(e->vector, vector, sizeof vector);
    if (json[0]) /* without attributes it keeps its own */
        strcpy(e->json, json);
    for (uint32_t t = 0; t < TENANTS; t++)
        e->granted[t] |= tenants >> t & 1;
}

static void change_grants(struct state *s, uint32_t element, bool revoke)
{
    struct element *e = &s->model[element];
    uint32_t t = draw(s, TENANTS), n_changed = 7, left = 0;
    struct quire_bytes name = {tenant_names[t], strlen(tenant_names[t])};
    char key[16];
    size_t bytes = key_of(element, key);
    for (uint32_t i = 0; i < TENANTS; i++)
        left += e->granted[i] && (i != t || !revoke);
    if (e->there && revoke && left == 0)
        return; /* of a collection with tenants the last one stays */
    int rc = revoke ? quire_revoke(s->c, key, bytes, &name, 1, &n_changed, &err)
                    : quire_grant(s->c, key, bytes, &name, 1, &n_changed, &err);
    if (!e->there) {
        assert_int_equal(rc, QUIRE_ENOTFOUND);
        assert_int_equal(n_changed, 7);
        return;
    }
    if (rc < 0)
        fail_msg("grant or revoke: %s", err.message);
    assert_int_equal(n_changed, e->granted[t] == revoke);
    e->granted[t] = !revoke;
}

static void change_attributes(struct state *s, uint32_t element)
{
    struct element *e = &s->model[element];
    char key[16], json[TEXT];
    size_t bytes = key_of(element, key);
    new_json(s, json);
    int rc = quire_set_attributes(s->c, key, bytes, json, strlen(json), &err);
    assert_int_equal(rc, e->there ? 0 : QUIRE_ENOTFOUND);
    if (e->there)
        strcpy(e->json, json);
}

static void drop(struct state *s)
{
    uint32_t t = draw(s, TENANTS), had = 0;
    uint64_t elements = 0;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        struct element *e = &s->model[i];
        had += e->there && e->granted[t];
        e->granted[t] = false;
        if (e->there && !is_granted(e, UINT32_MAX))
            e->there = false;
    }
    ok(quire_drop_tenant(s->c, tenant_names[t], strlen(tenant_names[t]), &elements, &err));
    assert_int_equal(elements, had);
}

static void remove_some(struct state *s)
{
    struct question q = new_question(s);
    struct quire_bytes names[TENANTS];
    bool matches[ELEMENTS];
    uint64_t removed = 0;
    if (!q.filter)
        q.filter = ".n > 44";
    struct quire_where where = where_of(&q, names);
    uint32_t n = find_matches(s, &q, matches);
    ok(quire_remove_where(s->c, &where, false, &removed, &err));
    assert_int_equal(removed, n);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        if (matches[i])
            s->model[i].there = false;
}

/* Elements that nobody may see any more go in the background: until then calls without a scope see them. */
static bool is_swept(struct state *s)
{
    uint64_t n = 0;
    uint32_t there = 0;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        there += s->model[i].there;
    ok(quire_count(s->c, NULL, &n, &err));
    return n == there;
}

static void step(struct state *s, bool tenants, enum quire_index_kind kind)
{
    uint32_t what = draw(s, 100), element = draw(s, ELEMENTS);
    if (what < 50)
        put(s, element, draw(s, 3) ? 1u << draw(s, TENANTS) : 1 + draw(s, (1u << TENANTS) - 1));
    else if (what < 65)
        change_grants(s, element, draw(s, 2));
    else if (what < 80)
        change_attributes(s, element);
    else if (what < 82)
        remove_some(s);
    else if (what < 83)
        ok(quire_seal(s->c, &err));
    else if (what < 84 && draw(s, 3) == 0)
        ok(quire_compact(s->c, &err));
    else if (what < 85 && draw(s, 3) == 0) {
        ok(quire_collection_close(s->c, &err));
        s->c = NULL;
        open_collection(s, tenants, kind);
    } else
        expect_all(s, 1);
}

static void run_model(struct state *s, bool tenants, enum quire_index_kind kind)
{
    open_collection(s, tenants, kind);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(s, tenants, kind);
        if (i % 400 == 399) {
            drop(s);
            /* by threads of the lowest priority: on a busy machine that may take a while */
            for (uint64_t until = clock_ns() + SWEEP_NS; !is_swept(s); usleep(1000)) {
                assert_true(clock_ns() < until);
                ok(quire_seal(s->c, &err));
                ok(quire_compact(s->c, &err));
            }
        }
    }
    expect_all(s, 40);
}

static void test_model_graph(void **state)
{
    run_model(*state, true, QUIRE_INDEX_PAGEGRAPH);
}

static void test_model_lists(void **state)
{
    run_model(*state, false, QUIRE_INDEX_SPANN);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    struct state *s = *state;
    static char long_name[256];
    float vector[DIM] = {1};
    struct quire_bytes name = {long_name, sizeof long_name}, acme = {"acme", 4};
    struct quire_where nothing = {0}, wrong = {.filter = ".n >", .filter_bytes = 4};
    uint64_t n = 7;
    memset(long_name, 'x', sizeof long_name);
    open_collection(s, true, QUIRE_INDEX_PAGEGRAPH);
    assert_int_equal(quire_put(s->c, "a", 1, vector, NULL, 0, NULL, &err), QUIRE_EINVALID); /* whose is it? */
    assert_int_equal(quire_put_granted(s->c, "a", 1, vector, NULL, 0, NULL, 0, NULL, &err), QUIRE_EINVALID);
    assert_int_equal(quire_put_granted(s->c, "a", 1, vector, NULL, 0, &name, 1, NULL, &err), QUIRE_ERANGE);
    ok(quire_put_granted(s->c, "a", 1, vector, NULL, 0, &acme, 1, NULL, &err));
    ok(quire_put(s->c, "a", 1, vector, "{\"n\":1}", 7, NULL, &err)); /* it keeps its grants */
    assert_int_equal(quire_grant(s->c, "a", 1, &name, 1, NULL, &err), QUIRE_ERANGE);
    assert_int_equal(quire_grant(s->c, "a", 1, &acme, 0, NULL, &err), QUIRE_EINVALID);
    assert_int_equal(quire_revoke(s->c, "a", 1, &acme, 1, NULL, &err), QUIRE_EINVALID); /* the last one */
    assert_int_equal(quire_drop_tenant(s->c, "", 0, NULL, &err), QUIRE_ERANGE);
    ok(quire_drop_tenant(s->c, "unknown", 7, &n, &err));
    assert_int_equal(n, 0);
    assert_int_equal(quire_remove_where(s->c, &nothing, false, &n, &err), QUIRE_EINVALID);
    assert_int_equal(quire_remove_where(s->c, NULL, false, &n, &err), QUIRE_EINVALID);
    assert_int_equal(quire_remove_where(s->c, &wrong, false, &n, &err), QUIRE_EPARSE);
    assert_int_equal(quire_count(s->c, &wrong, &n, &err), QUIRE_EPARSE);
    assert_int_equal(quire_each_key(s->c, &wrong, see_key, NULL, &err), QUIRE_EPARSE);
    assert_int_equal(quire_each_key(s->c, NULL, NULL, NULL, &err), QUIRE_EINVALID);
    wrong = (struct quire_where){.n_tenants = 1};
    assert_int_equal(quire_count(s->c, &wrong, &n, &err), QUIRE_EINVALID);
    ok(quire_count(s->c, NULL, &n, &err));
    assert_int_equal(n, 1);
    struct quire_where acmes = {.tenants = &acme, .n_tenants = 1};
    ok(quire_count(s->c, &acmes, &n, &err));
    assert_int_equal(n, 1);
    acmes.n_tenants = 0;
    ok(quire_count(s->c, &acmes, &n, &err));
    assert_int_equal(n, 0);
}

static void expect_refused_opening(struct state *s, const struct quire_collection_options *options, const char *part)
{
    struct quire_collection *c = NULL;
    int rc = quire_collection_open(s->path, options, &c, &err);
    if (rc != QUIRE_EINVALID || c || !strstr(err.message, part))
        fail_msg("no refusal with \"%s\": %s", part, err.message);
}

static void test_declared_once(void **state)
{
    struct state *s = *state;
    struct quire_column other[] = {{"n", QUIRE_COLUMN_FLOAT, true}, {"at", QUIRE_COLUMN_TIMESTAMP, true}};
    struct quire_collection_options options;
    open_collection(s, false, QUIRE_INDEX_PAGEGRAPH);
    ok(quire_collection_close(s->c, &err));
    s->c = NULL;
    quire_collection_options_init(&options);
    options.n_columns = 2;
    expect_refused_opening(s, &options, "columns is NULL");
    options.columns = other;
    expect_refused_opening(s, &options, "other declared columns");
    other[0].type = QUIRE_COLUMN_INTEGER;
    options.n_columns = 1;
    expect_refused_opening(s, &options, "other declared columns");
    options.n_columns = 2;
    options.tenants = true;
    expect_refused_opening(s, &options, "without tenants");
    options.tenants = false;
    ok(quire_collection_open(s->path, &options, &s->c, &err));
}

/* ---- what changes while it is removed ---------------------------------------------------------------------------- */

enum { RACES = 300, RACERS = 24 };

/* Takes elements out of what a removal matches, one after the other: by their attributes, or from their tenant. */
struct racer {
    struct quire_collection *c;
    bool revokes, saved[RACERS];
    pthread_barrier_t start;
};

static uint32_t race_key(char *key, uint32_t i)
{
    return (uint32_t)sprintf(key, "r%u", i);
}

static void *save_them(void *context)
{
    static const char other[] = "{\"n\":2}";
    const struct quire_bytes acme = {"acme", 4};
    struct racer *r = context;
    struct quire_error mine = {0};
    char key[16];
    pthread_barrier_wait(&r->start);
    for (uint32_t i = 0; i < RACERS; i++) {
        uint32_t bytes = race_key(key, i), n = 0;
        int rc = r->revokes ? quire_revoke(r->c, key, bytes, &acme, 1, &n, &mine)
                            : quire_set_attributes(r->c, key, bytes, other, sizeof other - 1, &mine);
        r->saved[i] = rc == 0;
    }
    return NULL;
}

static void race(struct state *s, bool revokes)
{
    const struct quire_bytes both[] = {{"acme", 4}, {"b", 1}};
    struct quire_where where = {.filter = ".n == 1", .filter_bytes = 7};
    struct racer r = {.c = s->c, .revokes = revokes};
    float vector[DIM] = {1};
    uint64_t n;
    char key[16];
    pthread_t thread;
    if (revokes)
        where = (struct quire_where){.tenants = both, .n_tenants = 1};
    for (uint32_t i = 0; i < RACERS; i++) {
        uint32_t bytes = race_key(key, i);
        ok(quire_put_granted(s->c, key, bytes, vector, "{\"n\":1}", 7, both, 2, NULL, &err));
    }
    assert_int_equal(pthread_barrier_init(&r.start, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, save_them, &r), 0);
    pthread_barrier_wait(&r.start);
    ok(quire_remove_where(s->c, &where, false, &n, &err));
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&r.start);
    for (uint32_t i = 0; i < RACERS; i++)
        if (r.saved[i] && quire_get(s->c, key, race_key(key, i), vector, NULL, NULL, &err) != 0)
            fail_msg("%s was removed after it had ceased to match (%s)", key, revokes ? "tenant" : "filter");
}

static void test_what_no_longer_matches_stays(void **in)
{
    struct state *s = *in;
    open_collection(s, false, QUIRE_INDEX_AUTO);
    for (uint32_t i = 0; i < RACES; i++)
        race(s, i % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model_graph, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model_lists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_declared_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_no_longer_matches_stays, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
