/*
 * test_filtered_collection.c - one thing at a time of what test_grants_model.c does at random: what outlives a restart,
 * a repair and a checkpoint, names in filters, filters that columns cannot decide, who may write what, indexes that are
 * adopted, and removals of what a scan has seen.
 */
#include "index/attribute/filter.h"
#include "index/collection/collection_priv.h"
#include "index/search/search_lane.h"
#include "index/segment/selection.h"
#include "index/store/store_priv.h"
#include "tests/index/support_store.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { ROWS = 3000 };

struct state {
    char *folder, *path;
    struct store *store;
    struct collection *c;
    struct support_lane lane;
};

static void open_store(struct state *s, uint64_t uid)
{
    struct store_options options = support_store_options(NULL);
    s->store = support_store_open(s->path, &options);
    s->c = uid ? store_find(s->store, uid) : NULL;
    support_lane_open(&s->lane, NULL);
}

static void close_store(struct state *s)
{
    support_lane_close(&s->lane);
    collection_unref(s->c);
    support_store_close(s->store);
}

static uint64_t create(struct state *s, bool tenants, const struct quire_column *columns, uint32_t n_columns)
{
    struct collection_config config = support_config();
    struct attribute_schema *schema = NULL;
    struct quire_error err = {0};
    uint64_t lsn;
    config.tenants = tenants;
    assert_int_equal(attribute_schema_create(columns, n_columns, &schema, &err), 0);
    assert_int_equal(store_create_collection(s->store, &config, schema, &s->c, &lsn, &err), 0);
    attribute_schema_destroy(schema);
    return collection_uid(s->c);
}

static int set_up(void **out)
{
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    support_kind = QUIRE_INDEX_PAGEGRAPH;
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "data");
    open_store(s, 0);
    *out = s;
    return 0;
}

static int tear_down(void **in)
{
    struct state *s = *in;
    close_store(s);
    free(s->path);
    support_folder_remove(s->folder);
    free(s);
    return 0;
}

static void reopen(struct state *s)
{
    uint64_t uid = collection_uid(s->c);
    close_store(s);
    open_store(s, uid);
    assert_non_null(s->c);
}

/* ---- writes and questions ---------------------------------------------------------------------------------------- */

static struct grant grant_of(const char *name)
{
    return (struct grant){.name = name, .bytes = (uint32_t)strlen(name)};
}

static struct located locate(struct state *s, const char *key)
{
    struct located located = {.generation = 0};
    (void)collection_locate_now(s->c, key, (uint32_t)strlen(key), &located);
    return located;
}

/* As an element of which no segment has a row. tenant NULL: nobody's. */
static int put(struct state *s, uint32_t key, const char *tenant, const char *json, const struct tenant_scope *scope,
               struct quire_error *err)
{
    char name[16];
    float vector[SUPPORT_DIM];
    struct grant grant = tenant ? grant_of(tenant) : (struct grant){.name = NULL};
    snprintf(name, sizeof name, "key-%u", key);
    support_vector(key, 1, vector);
    struct collection_put p = {.key = name,
                               .key_bytes = (uint32_t)strlen(name),
                               .vector = vector,
                               .attributes = json,
                               .attribute_bytes = json ? (uint32_t)strlen(json) : 0,
                               .grants = &grant,
                               .n_grants = tenant != NULL,
                               .scope = scope,
                               .located = locate(s, name)};
    return collection_put(s->c, &p, err);
}

static void put_ok(struct state *s, uint32_t key, const char *tenant, const char *json)
{
    struct quire_error err = {0};
    if (put(s, key, tenant, json, NULL, &err) < 0)
        fail_msg("put: %s", err.message);
}

static void seal(struct state *s)
{
    struct quire_error err = {0};
    if (store_seal(s->store, s->c, &err) < 0)
        fail_msg("seal: %s", err.message);
}

struct answer {
    bool done;
    int code;
    uint32_t n;
    unsigned keys[ROWS];
    struct quire_search_stats stats;
};

static void on_search(struct collection_search *search)
{
    struct answer *a = search->owner;
    a->done = true;
    a->code = search->code;
    a->n = search->n_hits;
    a->stats = search->stats;
    for (uint32_t i = 0; i < a->n; i++) {
        char name[16] = "";
        assert_true(search->hits[i].key_bytes < sizeof name);
        memcpy(name, search->hits[i].key, search->hits[i].key_bytes);
        assert_int_equal(sscanf(name, "key-%u", &a->keys[i]), 1);
    }
}

static struct filter *compile(struct state *s, const char *text)
{
    struct filter *filter = NULL;
    struct quire_error err = {0};
    if (filter_compile(text, strlen(text), collection_schema(s->c), &filter, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return filter;
}

static void search(struct state *s, const char *text, const char *tenant, uint32_t k, bool exact, struct answer *a)
{
    float query[SUPPORT_DIM];
    struct filter *filter = text ? compile(s, text) : NULL;
    struct grant grant = tenant ? grant_of(tenant) : (struct grant){.name = NULL};
    struct tenant_scope scope = {.tenants = &grant, .n = 1};
    struct collection_search search = {.collection = s->c,
                                       .query = query,
                                       .filter = filter,
                                       .scope = tenant ? &scope : NULL,
                                       .done = on_search,
                                       .owner = a};
    support_vector(1, 99, query);
    quire_search_options_init(&search.options);
    search.options.k = k;
    search.options.exact = exact;
    a->done = false;
    assert_int_equal(collection_search_start(s->lane.searcher, &search, NULL), 0);
    filter_unref(filter); /* the search has its own reference */
    while (!a->done)
        engine_poll(s->lane.engine, 1, 10000000);
    assert_int_equal(a->code, 0);
}

static uint64_t count(struct state *s, const char *tenant)
{
    struct grant grant = grant_of(tenant);
    return collection_count_scope(s->c, &(struct tenant_scope){.tenants = &grant, .n = 1});
}

/* ---- what stays -------------------------------------------------------------------------------------------------- */

static void assert_settings(struct state *s)
{
    const struct attribute_schema *schema = collection_schema(s->c);
    assert_true(collection_config(s->c)->tenants);
    assert_int_equal(schema->n, 2);
    const struct quire_column *when = attribute_schema_find(schema, "when", 4);
    assert_non_null(when);
    assert_int_equal(when->type, QUIRE_COLUMN_TIMESTAMP);
    assert_true(when->indexed);
    const struct quire_column *free_text = attribute_schema_find(schema, "text", 4);
    assert_non_null(free_text);
    assert_false(free_text->indexed);
}

static void drop(struct state *s, const char *tenant, uint64_t expected)
{
    uint64_t elements, lsn;
    assert_int_equal(collection_drop_tenant(s->c, tenant, (uint32_t)strlen(tenant), &elements, &lsn, NULL), 0);
    assert_int_equal(elements, expected);
}

/* Settings, schema and dropped tenants are there after a replay, after a checkpoint, and after a repair. */
static void what_was_declared_and_dropped_stays(void **in)
{
    struct state *s = *in;
    const struct quire_column columns[] = {{.name = "when", .type = QUIRE_COLUMN_TIMESTAMP, .indexed = true},
                                           {.name = "text", .type = QUIRE_COLUMN_STRING, .indexed = false}};
    struct answer a;
    struct quire_error err = {0};
    create(s, true, columns, 2);
    for (uint32_t i = 0; i < 300; i++)
        put_ok(s, i, i % 3 ? "a" : "b", i % 2 ? "{\"when\":\"2026-11-22\"}" : NULL);
    seal(s);
    for (uint32_t i = 300; i < 320; i++)
        put_ok(s, i, "a", NULL);
    drop(s, "a", 220);
    drop(s, "a", 0);
    assert_settings(s);
    for (unsigned turn = 0; turn < 3; turn++) {
        reopen(s);
        assert_settings(s);
        assert_int_equal(collection_tenant_generation(s->c, "a", 1), 1);
        assert_int_equal(collection_tenant_generation(s->c, "b", 1), 0);
        assert_int_equal(count(s, "a"), 0);
        assert_int_equal(count(s, "b"), 100);
        search(s, NULL, "a", 10, false, &a);
        assert_int_equal(a.n, 0);
        search(s, ".when >= \"2026-11-22T00:00:00Z\"", "b", ROWS, true, &a);
        assert_int_equal(a.n, 50);
        if (turn == 0)
            assert_int_equal(store_checkpoint(s->store, NULL), 0);
    }
    uint64_t uid = collection_uid(s->c);
    close_store(s);
    char *repaired = support_path(s->folder, "repaired");
    if (store_repair(&(struct store_check_request){.path = s->path}, repaired, NULL, &err) < 0)
        fail_msg("repair: %s", err.message);
    free(s->path);
    s->path = repaired;
    open_store(s, uid);
    assert_settings(s);
    assert_int_equal(collection_tenant_generation(s->c, "a", 1), 1);
    assert_int_equal(count(s, "a"), 0);
    assert_int_equal(count(s, "b"), 100);
    assert_int_equal(store_settle(s->store, NULL), 0);
    assert_int_equal(collection_count(s->c), 100);
}

/* A name that was dropped is a tenant's again, with what it gets from then on; what it had goes. */
static void a_dropped_tenant_begins_anew(void **in)
{
    struct state *s = *in;
    struct answer a;
    create(s, false, NULL, 0);
    for (uint32_t i = 0; i < 200; i++)
        put_ok(s, i, "a", NULL);
    seal(s);
    put_ok(s, 500, "a", NULL);
    put_ok(s, 501, NULL, NULL);
    drop(s, "a", 201);
    put_ok(s, 502, "a", NULL);
    search(s, NULL, "a", 10, false, &a);
    assert_true(a.n == 1 && a.keys[0] == 502);
    assert_int_equal(count(s, "a"), 1);
    assert_int_equal(store_settle(s->store, NULL), 0);
    assert_int_equal(collection_count(s->c), 2);
    reopen(s);
    assert_int_equal(collection_count(s->c), 2);
    drop(s, "a", 1);
    reopen(s); /* the removal is due still */
    assert_int_equal(store_settle(s->store, NULL), 0);
    assert_int_equal(collection_count(s->c), 1);
    assert_int_equal(collection_tenant_generation(s->c, "a", 1), 2);
}

/* ---- filters ----------------------------------------------------------------------------------------------------- */

/* Field .a beside .b in one row; with .row there are more combinations than columns try. */
static void fill_pairs(struct state *s, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        char json[64];
        snprintf(json, sizeof json, "{\"a\":%u,\"b\":%u,\"row\":%u}", i % 1000, i % 100 == 7 ? 2000 : i % 10, i);
        put_ok(s, i, NULL, json);
    }
}

/* Of what columns cannot decide there are as many answers as elements that match, if few of the nearest do. */
static void what_columns_cannot_decide_is_proved(void **in)
{
    struct state *s = *in;
    struct answer a;
    create(s, false, NULL, 0);
    fill_pairs(s, 0, 2000);
    seal(s);
    fill_pairs(s, 2000, 200);
    for (unsigned exact = 0; exact < 2; exact++) {
        search(s, ".b > .a + .row * 0", NULL, 5, exact, &a);
        assert_int_equal(a.n, 5);
        search(s, ".b > .a + .row * 0", NULL, ROWS, exact, &a);
        uint32_t expected = 0;
        for (uint32_t i = 0; i < 2200; i++)
            expected += (i % 100 == 7 ? 2000 : i % 10) > i % 1000;
        assert_int_equal(a.n, expected);
        for (uint32_t i = 0; i < a.n; i++)
            assert_true((a.keys[i] % 100 == 7 ? 2000 : a.keys[i] % 10) > a.keys[i] % 1000);
    }
    search(s, ".b > .a + .row * 0 and .a == 7", NULL, 10, false, &a);
    assert_int_equal(a.n, 3);
    assert_true(a.stats.matches >= 3);
}

static void names_are_looked_up(void **in)
{
    struct state *s = *in;
    struct answer a;
    create(s, false, NULL, 0);
    fill_pairs(s, 0, 500);
    seal(s);
    fill_pairs(s, 500, 500);
    seal(s);
    fill_pairs(s, 1000, 20);
    search(s, "key in [\"key-3\", \"key-700\", \"key-1005\", \"key-9999\", \"\"]", NULL, 10, false, &a);
    assert_int_equal(a.n, 3);
    assert_int_equal(a.keys[0] + a.keys[1] + a.keys[2], 3 + 700 + 1005);
    search(s, "key == \"key-3\" and .a > 2", NULL, 10, true, &a);
    assert_true(a.n == 1 && a.keys[0] == 3);
    search(s, "not (key in [\"key-3\", \"key-700\"])", NULL, ROWS, true, &a);
    assert_int_equal(a.n, 1018);
}

static void plans_tell_where_answers_came_from(void **in)
{
    struct state *s = *in;
    struct answer a;
    create(s, false, NULL, 0);
    fill_pairs(s, 0, 50);
    search(s, ".a < 5", NULL, 10, false, &a);
    assert_true(a.n == 5 && a.stats.plan == QUIRE_PLAN_MEMORY && a.stats.matches == 5);
    seal(s);
    search(s, ".a < 5", NULL, 10, false, &a);
    assert_true(a.n == 5 && a.stats.plan != QUIRE_PLAN_MEMORY && a.stats.matches == 5);
    search(s, ".a < 0", NULL, 10, false, &a);
    assert_true(a.n == 0 && a.stats.plan == QUIRE_PLAN_EMPTY && a.stats.matches == 0);
    search(s, NULL, NULL, 10, false, &a);
    assert_true(a.n == 10 && a.stats.matches == 50);
}

/* ---- who may write ----------------------------------------------------------------------------------------------- */

static void a_scope_is_a_wall_for_writes(void **in)
{
    struct state *s = *in;
    struct grant a = grant_of("a"), ab[] = {grant_of("a"), grant_of("b")};
    const struct tenant_scope of_a = {.tenants = &a, .n = 1}, of_both = {.tenants = ab, .n = 2}, of_none = {.n = 0};
    struct quire_error err = {0};
    create(s, false, NULL, 0);
    put_ok(s, 1, "b", NULL);
    assert_int_equal(put(s, 1, NULL, NULL, &of_a, &err), QUIRE_EPERM);
    assert_non_null(strstr(err.message, "key-1"));
    assert_int_equal(put(s, 2, "b", NULL, &of_a, &err), QUIRE_EPERM);
    assert_int_equal(put(s, 2, NULL, NULL, &of_both, &err), QUIRE_EINVALID);
    assert_int_equal(put(s, 2, NULL, NULL, &of_none, &err), QUIRE_EPERM);
    assert_int_equal(put(s, 2, NULL, NULL, &of_a, &err), 0);
    assert_int_equal(count(s, "a"), 1);
    struct collection_change share = {.key = "key-2", .key_bytes = 5, .grant = &ab[1], .n_grant = 1, .scope = &of_a};
    assert_int_equal(collection_change(s->c, &share, &err), QUIRE_EPERM);
    share.scope = NULL;
    assert_int_equal(collection_change(s->c, &share, &err), 0);
    assert_true(share.n_changed == 1 && share.lsn > 0);
    assert_int_equal(collection_change(s->c, &share, &err), 0);
    assert_true(share.n_changed == 0 && share.lsn == 0);
    assert_int_equal(count(s, "b"), 2);
}

static void elements_of_sets_of_tenants_are_somebodys(void **in)
{
    struct state *s = *in;
    struct quire_error err = {0};
    struct grant a = grant_of("a");
    create(s, true, NULL, 0);
    assert_int_equal(put(s, 1, NULL, NULL, NULL, &err), QUIRE_EINVALID);
    assert_int_equal(collection_count(s->c), 0);
    put_ok(s, 1, "a", "\x01 is no JSON, and stays as it is");
    struct collection_change revoke = {.key = "key-1", .key_bytes = 5, .revoke = &a, .n_revoke = 1};
    assert_int_equal(collection_change(s->c, &revoke, &err), QUIRE_EINVALID);
    assert_int_equal(count(s, "a"), 1);
}

/* ---- indexes ----------------------------------------------------------------------------------------------------- */

static int adopt(struct state *s, const char *name, const char *const *tenants)
{
    float vectors[40 * SUPPORT_DIM];
    struct quire_build_options options;
    struct quire_error err = {0};
    uint64_t lsn;
    char *path = support_path(s->folder, name);
    quire_build_options_init(&options);
    options.metric = QUIRE_METRIC_L2;
    options.slot = QUIRE_SLOT_F32;
    options.index = QUIRE_INDEX_PAGEGRAPH;
    options.tenants = tenants;
    for (uint32_t i = 0; i < 40; i++)
        support_vector(i, 5, vectors + i * SUPPORT_DIM);
    if (quire_build(path, vectors, 40, SUPPORT_DIM, QUIRE_TYPE_F32, &options, &err) < 0)
        fail_msg("build: %s", err.message);
    int rc = store_adopt(s->store, s->c, path, &lsn, &err);
    free(path);
    return rc;
}

static void adopted_indexes_bring_their_tenants(void **in)
{
    struct state *s = *in;
    const char *tenants[40];
    create(s, true, NULL, 0);
    for (uint32_t i = 0; i < 40; i++)
        tenants[i] = i % 4 ? "a" : "a b";
    tenants[3] = NULL;
    assert_int_equal(adopt(s, "first", tenants), QUIRE_EINVALID); /* a row is nobody's */
    assert_int_equal(adopt(s, "none", NULL), QUIRE_EINVALID);
    tenants[3] = "b";
    assert_int_equal(adopt(s, "second", tenants), 0);
    assert_int_equal(count(s, "a"), 39);
    assert_int_equal(count(s, "b"), 11);
    drop(s, "b", 11);
    assert_int_equal(adopt(s, "third", tenants), QUIRE_EINVALID); /* its grants would be void */
    assert_int_equal(count(s, "a"), 39);
    assert_int_equal(store_settle(s->store, NULL), 0);
    assert_int_equal(collection_count(s->c), 39);
}

/* ---- scans ------------------------------------------------------------------------------------------------------- */

struct removal {
    struct state *s;
    uint32_t n_seen, n_removed;
    unsigned put_again; /* before it is removed */
};

static int remove_seen(void *context, const void *key, uint32_t key_bytes, const struct located *located)
{
    struct removal *r = context;
    char name[16] = "";
    unsigned number;
    bool removed;
    uint64_t lsn;
    memcpy(name, key, key_bytes);
    assert_int_equal(sscanf(name, "key-%u", &number), 1);
    if (number == r->put_again) {
        struct collection_put again = {.key = key, .key_bytes = key_bytes, .located = *located};
        float vector[SUPPORT_DIM];
        support_vector(number, 9, vector);
        again.vector = vector;
        assert_int_equal(collection_put(r->s->c, &again, NULL), 0);
    }
    assert_int_equal(collection_remove(r->s->c, key, key_bytes, located, NULL, &removed, &lsn, NULL), 0);
    r->n_seen++;
    r->n_removed += removed;
    return 0;
}

/* What has been put anew since a scan has seen it stays. */
static void scans_may_remove_what_they_see(void **in)
{
    struct state *s = *in;
    struct search_lane lane = {.engine = s->lane.engine, .searcher = s->lane.searcher, .tasks = 8};
    struct removal r = {.s = s, .put_again = 215};
    struct quire_error err = {0};
    create(s, false, NULL, 0);
    fill_pairs(s, 0, 600);
    seal(s);
    fill_pairs(s, 600, 200);
    struct collection_scan scan = {
        .collection = s->c, .filter = compile(s, ".b == 5"), .want_keys = true, .visit = remove_seen, .context = &r};
    if (collection_scan(&lane, &scan, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(scan.n, 80);
    assert_int_equal(r.n_seen, 80);
    assert_int_equal(r.n_removed, 79);
    assert_int_equal(collection_count(s->c), 721);
    scan.want_keys = false;
    scan.reads = 9;
    assert_int_equal(collection_scan(&lane, &scan, &err), 0);
    assert_true(scan.n == 0 && scan.reads == 0); /* the one that stays has no attributes any more */
    filter_unref(scan.filter);
}

/* ---- what is nobody's, and batches ------------------------------------------------------------------------------- */

struct sweeper {
    struct collection *c;
    atomic_bool done;
};

static void *sweep_it(void *context)
{
    struct sweeper *sweeper = context;
    assert_int_equal(collection_remove_void(sweeper->c, NULL), 0);
    atomic_store(&sweeper->done, true);
    return NULL;
}

/* A batch whose frame began before a sweep takes the name of an element that the sweep would remove: what it put stays,
 * after a replay, too, which reads the batch first. */
static void a_batch_takes_a_name_that_is_swept(void **in)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    struct state *s = *in;
    struct quire_error err = {0};
    uint64_t elements, lsn;
    pthread_t thread;
    create(s, false, NULL, 0);
    struct sweeper sweeper = {.c = s->c};
    assert_int_equal(put(s, 1, "acme", NULL, NULL, &err), 0);
    assert_int_equal(collection_drop_tenant(s->c, "acme", 4, &elements, &lsn, &err), 0);
    assert_int_equal(journal_batch_begin(store_journal(s->store), &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, sweep_it, &sweeper), 0);
    for (int i = 0; i < 200 && !atomic_load(&sweeper.done); i++)
        nanosleep(&pause, NULL);
    assert_int_equal(put(s, 1, "bolt", NULL, NULL, &err), 0);
    assert_int_equal(journal_batch_end(store_journal(s->store), &lsn, &err), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(count(s, "bolt"), 1);
    assert_int_equal(collection_count(s->c), 1);
    reopen(s);
    assert_int_equal(count(s, "bolt"), 1);
    assert_int_equal(collection_count(s->c), 1);
}

/* A sealed element whose tenant is dropped between the look at its text and the put of the changed one is gone: it does
 * not come back as nobody's. */
static void a_change_does_not_revive(void **in)
{
    struct state *s = *in;
    struct quire_error err = {0};
    const struct grant grant = grant_of("acme");
    const struct collection_change change = {.key = "key-1", .key_bytes = 5, .set_attributes = true};
    float vector[SUPPORT_DIM];
    char *old = NULL, *text = NULL;
    uint32_t old_bytes = 0, text_bytes = 0, n_changed = 0;
    create(s, false, NULL, 0);
    put_ok(s, 1, "acme", "{}");
    seal(s);
    assert_int_equal(grants_join(&grant, 1, "{}", 2, &old, &old_bytes, &err), 0);
    assert_int_equal(collection_changed_text(s->c, &change, old, old_bytes, &text, &text_bytes, &n_changed, &err), 0);
    drop(s, "acme", 1);
    support_vector(1, 1, vector);
    struct collection_put again = {
        .key = "key-1",
        .key_bytes = 5,
        .vector = vector,
        .keep_attributes = true,
        .keep_grants = true,
        .old_text = text,
        .old_text_bytes = text_bytes,
        .condition = PUT_ONLY_SEALED,
        .located = {.generation = s->c->view->generation, .segment_uid = s->c->view->parts[0]->uid}};
    assert_int_equal(collection_put(s->c, &again, &err), QUIRE_ESTALE);
    assert_int_equal(collection_remove_void(s->c, &err), 0);
    assert_int_equal(collection_count(s->c), 0);
    free(text);
    assert_int_equal(collection_changed_text(s->c, &change, old, old_bytes, &text, &text_bytes, &n_changed, &err),
                     QUIRE_ENOTFOUND);
    free(old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_declared_and_dropped_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_dropped_tenant_begins_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_columns_cannot_decide_is_proved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_are_looked_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(plans_tell_where_answers_came_from, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_scope_is_a_wall_for_writes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(elements_of_sets_of_tenants_are_somebodys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(adopted_indexes_bring_their_tenants, set_up, tear_down),
        cmocka_unit_test_setup_teardown(scans_may_remove_what_they_see, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_batch_takes_a_name_that_is_swept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_change_does_not_revive, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("filtered_collection", tests, NULL, NULL);
}
