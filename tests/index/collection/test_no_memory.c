/*
 * test_no_memory.c - writes that run out of memory at any of their allocations: they are refused, and nothing of them
 * is there, neither now nor after a restart. Searches: they end with an error, whatever they were doing, and the
 * process goes on, also where it is CRoaring that gets no memory.
 *
 * The program's own malloc, calloc, realloc and posix_memalign pass on to glibc's but for the one that is to fail, on
 * the thread that asked for it. Sanitizers bring their own allocators, so there the test is left out and says so.
 */
#include "index/collection/collection_priv.h"
#include "index/segment/segment_view.h"
#include "index/segment/selection.h"
#include "index/store/store_priv.h"
#include "tests/index/support_spann.h"
#include "tests/index/support_store.h"
#include "tests/sanitized.h"
#include <errno.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static _Thread_local unsigned fail_in; /* calls; 0: none fails */

#if !SANITIZED
static bool may_allocate(void)
{
    return fail_in == 0 || --fail_in > 0;
}

#include "tests/allocator.h"

extern void *__libc_memalign(size_t alignment, size_t bytes);

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    *out = may_allocate() ? __libc_memalign(alignment, bytes) : NULL;
    return *out ? 0 : ENOMEM;
}
#endif

#define SELECTED_ROWS 1200u

#define KEYS   330u
#define SHARED 100u

/* Puts an element again and again, failing at each allocation in turn, until none is left to fail. */
static void put_with_failures(struct support_lane *lane, struct collection *c, struct support_model *model,
                              uint32_t key)
{
    for (unsigned n = 1;; n++) {
        fail_in = n;
        int rc = support_put(lane, c, model, key, 1 + n, n % 2 ? n : 0, NULL);
        bool all = fail_in > 0;
        fail_in = 0;
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && !all));
        if (all)
            return;
    }
}

static void refused_puts_leave_nothing_behind(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("a sanitizer's allocator does not fail: nothing is tested here\n");
        skip();
    }
    char *folder = support_folder_make(), *path = support_path(folder, "data");
    struct store_options options = support_store_options(NULL);
    struct support_lane lane;
    struct support_model model;
    struct quire_error err = {0};
    support_lane_open(&lane, NULL);
    support_model_init(&model, KEYS);
    struct store *store = support_store_open(path, &options);
    struct collection *c = support_create(store);
    uint64_t uid = collection_uid(c);
    for (uint32_t key = 0; key < 240; key++)
        assert_int_equal(support_put(&lane, c, &model, key, 1, 0, NULL), 0);
    assert_int_equal(store_seal(store, c, &err), 0);
    for (uint32_t key = 0; key < KEYS; key++) /* sealed ones, new ones; the last come after the change to the graph */
        put_with_failures(&lane, c, &model, key);
    assert_true(support_equal(&lane, c, &model));
    for (uint32_t key = 0; key < KEYS; key += 7)
        put_with_failures(&lane, c, &model, key);
    assert_int_equal(memtable_check(c->view->memtables[0]->memtable, &err), 0);
    assert_int_equal(store_compact(store, c, &err), 0);
    for (unsigned opened = 0; opened < 2; opened++) {
        assert_true(support_equal(&lane, c, &model));
        collection_unref(c);
        support_store_close(store);
        store = support_store_open(path, &options);
        c = store_find(store, uid);
    }
    assert_true(support_equal(&lane, c, &model));
    collection_unref(c);
    support_store_close(store);
    support_model_free(&model);
    support_lane_close(&lane);
    free(path);
    support_folder_remove(folder);
}

/* What was logged without a row in memory would be there after a restart, beside the row that was merged meanwhile. */
static void a_refused_put_is_not_there_after_a_restart(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    char *folder = support_folder_make(), *path = support_path(folder, "data");
    struct store_options options = support_store_options(NULL);
    struct support_lane lane;
    struct support_model model;
    struct quire_error err = {0};
    support_lane_open(&lane, NULL);
    support_model_init(&model, 40);
    struct store *store = support_store_open(path, &options);
    struct collection *c = support_create(store);
    uint64_t uid = collection_uid(c);
    for (uint32_t key = 0; key < 40; key++) {
        assert_int_equal(support_put(&lane, c, &model, key, 1, 0, NULL), 0);
        if (key % 20 == 19)
            assert_int_equal(store_seal(store, c, &err), 0);
    }
    for (uint32_t key = 0; key < 20; key++) {
        fail_in = key + 1;
        (void)support_put(&lane, c, &model, key, 2, 1, NULL);
        fail_in = 0;
    }
    assert_true(store_claim(store, c, BUSY_MERGE, true));
    assert_int_equal(store_merge_claimed(store, NULL, c, true, &err), 1);
    store_release(store, c, BUSY_MERGE);
    assert_true(support_equal(&lane, c, &model));
    collection_unref(c);
    support_store_close(store);
    store = support_store_open(path, &options);
    c = store_find(store, uid);
    assert_true(support_equal(&lane, c, &model));
    collection_unref(c);
    support_store_close(store);
    support_model_free(&model);
    support_lane_close(&lane);
    free(path);
    support_folder_remove(folder);
}

/* ---- changes of attributes and grants ---------------------------------------------------------------------------- */

enum { CHANGED = 6 }; /* elements; the last three are in a frozen memtable */

enum change_kind { CHANGE_ATTRIBUTES, CHANGE_GRANT, CHANGE_REVOKE, CHANGE_KINDS };

/* The text of a memtable's element. */
static uint32_t text_of(struct collection *c, const char *key, char out[256])
{
    struct view *view = collection_view(c);
    struct memtable_row row = {0};
    unsigned epoch = epoch_enter(c->host->epochs);
    for (uint32_t i = 0; i < view->n_memtables && !row.key; i++) {
        uint32_t number = memtable_find(view->memtables[i]->memtable, key, (uint32_t)strlen(key));
        if (number != MEMTABLE_NONE)
            memtable_row(view->memtables[i]->memtable, number, &row);
    }
    assert_non_null(row.key);
    assert_true(row.attribute_bytes <= 256);
    if (row.attribute_bytes)
        memcpy(out, row.attributes, row.attribute_bytes);
    epoch_exit(c->host->epochs, epoch);
    view_unref(view);
    return row.attribute_bytes;
}

static int change(struct collection *c, const char *key, enum change_kind kind, unsigned n, struct quire_error *err)
{
    char json[64];
    const struct grant grants[] = {{"first", 5, 0}, {"second", 6, 0}};
    struct collection_change change = {.key = key, .key_bytes = (uint32_t)strlen(key)};
    if (kind == CHANGE_ATTRIBUTES) {
        change.set_attributes = true;
        change.attributes = json;
        change.attribute_bytes = (uint32_t)snprintf(json, sizeof json, "{\"kind\":%d,\"try\":%u}", (int)kind, n);
    } else if (kind == CHANGE_GRANT) {
        change.grant = grants;
        change.n_grant = 2;
    } else {
        change.revoke = grants;
        change.n_revoke = 1;
    }
    return collection_change(c, &change, err);
}

static struct collection *reopen(struct store **store, struct collection *c, const char *path,
                                 const struct store_options *options)
{
    uint64_t uid = collection_uid(c);
    collection_unref(c);
    support_store_close(*store);
    *store = support_store_open(path, options);
    return store_find(*store, uid);
}

/* Fails one change at each allocation in turn. A refused one has a sentence and is not there, neither now nor after a
 * restart, until none fails. */
static struct collection *change_with_failures(struct store **store, struct collection *c, const char *path,
                                               const struct store_options *options, const char *key,
                                               enum change_kind kind)
{
    char before[256], after[256];
    bool frozen = c->view->n_memtables > 1;
    struct quire_error err = {0};
    for (unsigned n = 1;; n++) {
        uint32_t bytes = text_of(c, key, before);
        memset(&err, 0, sizeof err);
        fail_in = n;
        int rc = change(c, key, kind, n, &err);
        bool all = fail_in > 0;
        fail_in = 0;
        if (all) {
            assert_int_equal(rc, 0);
            return c;
        }
        assert_int_equal(rc, QUIRE_ENOMEM);
        assert_int_equal(err.code, rc);
        assert_true(strlen(err.message) > 0);
        for (unsigned opened = 0; opened < 2; opened++) {
            assert_int_equal(text_of(c, key, after), bytes);
            assert_memory_equal(before, after, bytes);
            if (opened == 0)
                c = reopen(store, c, path, options);
        }
        if (frozen)
            assert_int_equal(collection_freeze(c, &err), 0);
    }
}

static void refused_changes_leave_nothing_behind(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    char *folder = support_folder_make(), *path = support_path(folder, "data");
    struct store_options options = support_store_options(NULL);
    struct support_lane lane;
    struct support_model model;
    struct quire_error err = {0};
    support_lane_open(&lane, NULL);
    support_model_init(&model, CHANGED);
    struct store *store = support_store_open(path, &options);
    struct collection *c = support_create(store);
    for (uint32_t key = 0; key < CHANGED; key++)
        assert_int_equal(support_put(&lane, c, &model, key, 1, key % 2 ? key : 0, NULL), 0);
    for (uint32_t key = 0; key < CHANGED; key++) {
        char name[16];
        snprintf(name, sizeof name, "key-%u", key);
        for (int kind = 0; kind < CHANGE_KINDS; kind++) {
            if (key >= CHANGED / 2)
                assert_int_equal(collection_freeze(c, &err), 0);
            c = change_with_failures(&store, c, path, &options, name, (enum change_kind)kind);
            c = reopen(&store, c, path, &options);
        }
    }
    collection_unref(c);
    support_store_close(store);
    support_model_free(&model);
    support_lane_close(&lane);
    free(path);
    support_folder_remove(folder);
}

static int put_for_tenants(struct collection *c, unsigned n, struct quire_error *err)
{
    const struct grant grants[] = {{"first", 5, 0}, {"second", 6, 0}};
    const struct tenant_scope scope = {.tenants = (struct grant *)(uintptr_t)grants, .n = 2};
    float vector[SUPPORT_DIM] = {(float)n};
    struct collection_put put = {.key = "key-1",
                                 .key_bytes = 5,
                                 .vector = vector,
                                 .keep_grants = true,
                                 .keep_attributes = true,
                                 .grants = grants,
                                 .n_grants = 2,
                                 .scope = &scope};
    assert_int_equal(collection_locate_now(c, "key-1", 5, &put.located), 1);
    return collection_put(c, &put, err);
}

static int remove_of_tenant(struct collection *c, unsigned n, struct quire_error *err)
{
    const struct grant grants[] = {{"first", 5, 0}};
    const struct tenant_scope scope = {.tenants = (struct grant *)(uintptr_t)grants, .n = 1};
    struct located located;
    bool removed;
    uint64_t lsn;
    (void)n;
    assert_int_equal(collection_locate_now(c, "key-1", 5, &located), 1);
    return collection_remove(c, "key-1", 5, &located, &scope, &removed, &lsn, err);
}

static int drop_tenant(struct collection *c, unsigned n, struct quire_error *err)
{
    uint64_t elements, lsn;
    (void)n;
    return collection_drop_tenant(c, "second", 6, &elements, &lsn, err);
}

static void each_refusal_has_a_sentence(void **state)
{
    static int (*const writes[])(struct collection *, unsigned, struct quire_error *) = {put_for_tenants, drop_tenant,
                                                                                         remove_of_tenant};
    (void)state;
    if (SANITIZED)
        skip();
    char *folder = support_folder_make(), *path = support_path(folder, "data");
    struct store_options options = support_store_options(NULL);
    struct support_model model;
    struct support_lane lane;
    support_lane_open(&lane, NULL);
    support_model_init(&model, 2);
    struct store *store = support_store_open(path, &options);
    struct collection *c = support_create(store);
    assert_int_equal(support_put(&lane, c, &model, 1, 1, 1, NULL), 0);
    assert_int_equal(change(c, "key-1", CHANGE_GRANT, 1, NULL), 0);
    for (size_t i = 0; i < SUPPORT_COUNT(writes); i++)
        for (unsigned n = 1, all = 0; !all; n++) {
            struct quire_error err = {0};
            fail_in = n;
            int rc = writes[i](c, n, &err);
            all = fail_in > 0;
            fail_in = 0;
            assert_int_equal(rc, all ? 0 : QUIRE_ENOMEM);
            assert_int_equal(err.code, rc);
            assert_true(rc == 0 || strlen(err.message) > 0);
        }
    collection_unref(c);
    support_store_close(store);
    support_model_free(&model);
    support_lane_close(&lane);
    free(path);
    support_folder_remove(folder);
}

/* An index of keys 0 .. SHARED - 1 in version 9. */
static void build_index(const char *path)
{
    static char texts[SHARED][16];
    static float vectors[SHARED][SUPPORT_DIM];
    const void *keys[SHARED];
    uint32_t bytes[SHARED];
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    struct quire_error err = {0};
    for (uint32_t i = 0; i < SHARED; i++) {
        support_vector(i, 9, vectors[i]);
        bytes[i] = (uint32_t)snprintf(texts[i], sizeof texts[i], "key-%u", i);
        keys[i] = texts[i];
    }
    options.keys = keys;
    options.key_bytes = bytes;
    if (quire_build(path, vectors, SHARED, SUPPORT_DIM, QUIRE_TYPE_F32, &options, &err) < 0)
        fail_msg("build: %s", err.message);
}

static void a_refused_adoption_removes_nothing(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    char *folder = support_folder_make(), *path = support_path(folder, "data"), *index = support_path(folder, "index");
    struct store_options options = support_store_options(NULL);
    struct support_lane lane;
    struct support_model model;
    struct quire_error err = {0};
    uint64_t lsn;
    bool all = false;
    support_lane_open(&lane, NULL);
    support_model_init(&model, SHARED + 10);
    build_index(index);
    struct store *store = support_store_open(path, &options);
    struct collection *c = support_create(store);
    for (uint32_t key = 0; key < SHARED + 10; key++)
        assert_int_equal(support_put(&lane, c, &model, key, 1, 0, NULL), 0);
    for (unsigned n = 1; !all; n += 1 + n / 24) {
        fail_in = n;
        int rc = store_adopt(store, c, index, &lsn, &err);
        all = fail_in > 0;
        fail_in = 0;
        assert_true(rc == 0 || !all);
        for (uint32_t key = 0; rc == 0 && key < SHARED; key++)
            model.elements[key] = (struct support_element){9, 0};
        assert_true(support_equal(&lane, c, &model));
    }
    collection_unref(c);
    support_store_close(store);
    support_model_free(&model);
    support_lane_close(&lane);
    free(index);
    free(path);
    support_folder_remove(folder);
}

/* Rows of tenants of two: guests of their lists. */
static void build_guests(const char *path)
{
    static char names[SELECTED_ROWS][16];
    const char *tenants[SELECTED_ROWS];
    struct support_data data;
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 40);
    support_clusters(SELECTED_ROWS, 16, QUIRE_TYPE_F32, 3, &data);
    for (uint32_t row = 0; row < SELECTED_ROWS; row++) {
        snprintf(names[row], sizeof names[row], "t%u", row / 2);
        tenants[row] = names[row];
    }
    options.tenants = tenants;
    support_build(path, &data, &options);
    support_data_free(&data);
}

static int create_selection(struct segment *segment, const roaring_bitmap_t *rows)
{
    struct selection *selection = NULL;
    int rc = selection_create(segment, rows, false, &selection);
    selection_unref(selection);
    return rc;
}

static int select_all(struct segment *segment, struct filter *filter)
{
    struct selection *selection = NULL;
    int rc = selection_of(segment, filter, NULL, NULL, &selection, NULL);
    selection_unref(selection);
    return rc;
}

/* Calls that end with QUIRE_ENOMEM until no allocation is left to fail. */
#define FAIL_EACH(call)                                                                                                \
    for (unsigned n = 1, all = 0; !all; n++) {                                                                         \
        fail_in = n;                                                                                                   \
        int rc = (call);                                                                                               \
        all = fail_in > 0;                                                                                             \
        fail_in = 0;                                                                                                   \
        assert_int_equal(rc, all ? 0 : QUIRE_ENOMEM);                                                                  \
    }

static void selections_are_refused(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    char *folder = support_folder_make(), *guests = support_path(folder, "guests"),
         *bare = support_path(folder, "bare");
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct segment *segment = NULL;
    struct support_data data;
    struct filter *filter = NULL;
    build_guests(guests);
    assert_int_equal(segment_open(guests, NULL, &segment, NULL), 0);
    assert_non_null(segment->lists->guests);
    for (uint32_t step = 1; step < SELECTED_ROWS; step *= 3) { /* a bitmap, then a list */
        roaring_bitmap_t *rows = roaring_bitmap_from_range(0, SELECTED_ROWS, step);
        FAIL_EACH(create_selection(segment, rows));
        roaring_bitmap_free(rows);
    }
    segment_unref(segment);
    support_clusters(SELECTED_ROWS, 16, QUIRE_TYPE_F32, 3, &data);
    support_build(bare, &data, &options);
    support_data_free(&data);
    assert_int_equal(segment_open(bare, NULL, &segment, NULL), 0);
    static const char *const texts[] = {"not exists .a", "exists .a", "key == \"1\"", ".a > 1"};
    for (size_t i = 0; i < SUPPORT_COUNT(texts); i++) {
        assert_int_equal(filter_compile(texts[i], strlen(texts[i]), NULL, &filter, NULL), 0);
        FAIL_EACH(select_all(segment, filter));
        filter_unref(filter);
    }
    segment_unref(segment);
    free(guests);
    free(bare);
    support_folder_remove(folder);
}

/* ---- searches ---------------------------------------------------------------------------------------------------- */

enum { SEARCHED = 700, K = 10 };

static int search_code; /* 1: under way */
static uint32_t search_hits;

static void on_searched(struct collection_search *search)
{
    search_code = search->code;
    search_hits = search->n_hits;
}

/* QUIRE_ENOMEM, or how many were found. */
static int search_filtered(struct support_lane *lane, struct collection *c, struct filter *filter,
                           const struct tenant_scope *scope)
{
    float query[SUPPORT_DIM];
    struct collection_search search = {
        .collection = c, .query = query, .filter = filter, .scope = scope, .done = on_searched};
    support_vector(1, 99, query);
    quire_search_options_init(&search.options);
    search.options.k = K;
    search.want_attributes = true;
    search_code = 1;
    int rc = collection_search_start(lane->searcher, &search, NULL);
    while (rc == 0 && search_code == 1)
        engine_poll(lane->engine, 1, 10000000);
    return rc < 0 ? rc : search_code < 0 ? search_code : (int)search_hits;
}

/* A call that is made until no allocation is left to fail; each ends, with QUIRE_ENOMEM or with what it gives then. */
#define FAIL_EACH_OR_SAME(call, expected)                                                                              \
    for (unsigned n = 1, all = 0; !all; n++) {                                                                         \
        fail_in = n;                                                                                                   \
        int rc = (call);                                                                                               \
        all = fail_in > 0;                                                                                             \
        fail_in = 0;                                                                                                   \
        if (rc != (expected))                                                                                          \
            assert_int_equal(rc, all ? (expected) : QUIRE_ENOMEM);                                                     \
    }

static int put_searched(struct collection *c, uint32_t key)
{
    char name[16], json[32];
    float vector[SUPPORT_DIM];
    const struct grant grant = {key % 3 ? "many" : "few", key % 3 ? 4 : 3, 0};
    struct quire_error err = {0};
    support_vector(key, 1, vector);
    struct collection_put put = {.key = name,
                                 .key_bytes = (uint32_t)snprintf(name, sizeof name, "key-%u", key),
                                 .vector = vector,
                                 .grants = &grant,
                                 .n_grants = 1,
                                 .attributes = json,
                                 .attribute_bytes =
                                     (uint32_t)snprintf(json, sizeof json, "{\"n\":%u,\"m\":%u}", key, key * 37 % 701)};
    if (key % 5 == 0)
        put.attribute_bytes = 0;
    (void)collection_locate_now(c, put.key, put.key_bytes, &put.located);
    return collection_put(c, &put, &err);
}

static int count_few(struct collection *c, const struct tenant_scope *scope)
{
    return (int)collection_count_attributed(c, scope);
}

static int open_part(const char *path)
{
    struct part *part = NULL;
    struct quire_error err = {0};
    int rc = part_create(1, &part, &err);
    if (rc == 0)
        rc = part_open(part, path, NULL, &err);
    if (part)
        part_unref(part);
    return rc;
}

/* Under filters and for tenants, among elements of which some are dead: sets of rows are made on the way. */
static void searches_are_refused(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    char *folder = support_folder_make(), *path = support_path(folder, "data");
    struct store_options options = support_store_options(NULL);
    struct grant few = {"few", 3, 0};
    const struct tenant_scope scope = {.tenants = &few, .n = 1};
    struct support_lane lane;
    struct support_model model;
    struct quire_error err = {0};
    support_lane_open(&lane, NULL);
    support_model_init(&model, SEARCHED);
    struct store *store = support_store_open(path, &options);
    struct collection *c = support_create(store);
    for (uint32_t key = 0; key < SEARCHED; key++) {
        assert_int_equal(put_searched(c, key), 0);
        model.elements[key].version = 1;
        if (key % 350 == 349)
            assert_int_equal(store_seal(store, c, &err), 0);
    }
    for (uint32_t key = 0; key < SEARCHED; key += 7)
        assert_int_equal(support_remove(&lane, c, &model, key, NULL), 0);
    static const char *const asked[] = {
        "key in [\"key-1\",\"key-3\",\"key-400\",\"key-402\",\"key-3\",\"none\"]",
        ".m > .n + 500",              /* columns cannot say: the attributes of many are read */
        ".m > .n + 300 and .n == 100" /* one at most */
    };
    for (size_t i = 0; i < SUPPORT_COUNT(asked); i++) {
        struct filter *filter = NULL;
        assert_int_equal(filter_compile(asked[i], strlen(asked[i]), collection_schema(c), &filter, &err), 0);
        int all_found = search_filtered(&lane, c, filter, NULL), few_found = search_filtered(&lane, c, filter, &scope);
        assert_in_range(all_found, i == 2 ? 0 : 2, K);
        assert_in_range(few_found, 0, all_found);
        FAIL_EACH_OR_SAME(search_filtered(&lane, c, filter, NULL), all_found);
        FAIL_EACH_OR_SAME(search_filtered(&lane, c, filter, &scope), few_found);
        filter_unref(filter);
    }
    FAIL_EACH_OR_SAME(search_filtered(&lane, c, NULL, &scope), K);
    int n_few = count_few(c, &scope);
    assert_in_range(n_few, 100, SEARCHED / 3);
    for (unsigned n = 1; n < 40; n++) { /* it has no way to say that there was no memory */
        fail_in = n;
        assert_in_range(count_few(c, &scope), 0, n_few);
        fail_in = 0;
    }
    struct view *view = collection_view(c);
    assert_true(view->n_parts > 0);
    char *segment = strdup(segment_info(view->parts[0]->segment)->path);
    view_unref(view);
    FAIL_EACH_OR_SAME(open_part(segment), 0);
    free(segment);
    collection_unref(c);
    support_store_close(store);
    support_model_free(&model);
    support_lane_close(&lane);
    free(path);
    support_folder_remove(folder);
}

static int search_index(struct quire_index *index, const char *filter)
{
    float query[16] = {1};
    struct quire_search_options options;
    struct quire_hit hits[K];
    uint32_t n = 0;
    quire_search_options_init(&options);
    options.k = K;
    options.filter = filter;
    options.filter_bytes = strlen(filter);
    int rc = quire_search(index, query, &options, hits, &n, NULL, NULL);
    return rc < 0 ? rc : (int)n;
}

/* The same of an index that is searched by itself: it does its own rechecking. */
static void searches_of_an_index_are_refused(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    static char names[SELECTED_ROWS][16], json[SELECTED_ROWS][32];
    static const char *attributes[SELECTED_ROWS];
    static const void *keys[SELECTED_ROWS];
    static uint32_t key_bytes[SELECTED_ROWS], attribute_bytes[SELECTED_ROWS];
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct quire_index *index = NULL;
    struct support_data data;
    struct quire_error err = {0};
    support_clusters(SELECTED_ROWS, 16, QUIRE_TYPE_F32, 3, &data);
    for (uint32_t row = 0; row < SELECTED_ROWS; row++) {
        key_bytes[row] = (uint32_t)snprintf(names[row], sizeof names[row], "key-%u", row);
        attribute_bytes[row] =
            (uint32_t)snprintf(json[row], sizeof json[row], "{\"n\":%u,\"m\":%u}", row, row * 37 % 1201);
        keys[row] = names[row];
        attributes[row] = json[row];
    }
    options.keys = keys;
    options.key_bytes = key_bytes;
    options.attributes = attributes;
    options.attribute_bytes = attribute_bytes;
    support_build(path, &data, &options);
    support_data_free(&data);
    assert_int_equal(quire_open(path, NULL, &index, &err), 0);
    FAIL_EACH_OR_SAME(search_index(index, "key in [\"key-1\",\"key-3\",\"key-1000\",\"key-3\",\"none\"]"), 3);
    int found = search_index(index, ".m > .n + 1100");
    assert_in_range(found, 2, K - 1);
    FAIL_EACH_OR_SAME(search_index(index, ".m > .n + 1100"), found);
    quire_close(index);
    free(path);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_puts_leave_nothing_behind),
                                       cmocka_unit_test(a_refused_put_is_not_there_after_a_restart),
                                       cmocka_unit_test(refused_changes_leave_nothing_behind),
                                       cmocka_unit_test(each_refusal_has_a_sentence),
                                       cmocka_unit_test(a_refused_adoption_removes_nothing),
                                       cmocka_unit_test(selections_are_refused),
                                       cmocka_unit_test(searches_are_refused),
                                       cmocka_unit_test(searches_of_an_index_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
