/*
 * test_store_crash.c - the power is cut at every write, sync and change of a name of a scripted run: puts, removals and
 * attributes, a tenant that is dropped, a second collection that is dropped, seals, merges, checkpoints, snapshots.
 *
 * After each cut the folder is opened again: it holds every write that was acknowledged, each as a whole, and of those
 * that were not a prefix in their order; it verifies; and writes go on in it. A snapshot whose call had come back
 * is there as it was taken.
 *
 * QUIRE_CRASH_STEP=n cuts at every n-th call only (1 tries all: minutes). Without it the step is chosen so that the
 * test takes seconds.
 */
#include "index/store/store_priv.h"
#include "tests/index/support_store.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KEYS 60u
#define CALLS                                                                                                          \
    (FAULT_WRITE | FAULT_SYNC | FAULT_RENAME | FAULT_UNLINK | FAULT_SYNC_DIR | FAULT_LINK | FAULT_MKDIR | FAULT_RMDIR)
#define WRITES 400u /* of a run, at most */

/* One write of the script: what the key was after it. */
struct written {
    uint64_t lsn;
    uint32_t key;
    struct support_element after;
};

struct run {
    struct io_fs *fs;
    struct store *store;
    struct collection *collection, *other;
    struct support_lane lane;
    struct support_model model;
    struct written writes[WRITES];
    uint32_t n_writes;
    uint64_t uid, other_uid;
    uint64_t acknowledged, dropped_lsn; /* LSNs; 0: not reached */
    uint64_t tenant_lsn;                /* that of the tenant's end, if it was appended */
    struct support_model copied;        /* what the snapshot must have */
    bool has_copy, failed;
};

/* ---- the script -------------------------------------------------------------------------------------------------- */

static void note(struct run *r, uint32_t key, uint64_t lsn, int rc)
{
    if (rc < 0 || lsn == 0) {
        r->failed = r->failed || rc < 0;
        return;
    }
    assert_true(r->n_writes < WRITES);
    r->writes[r->n_writes++] = (struct written){lsn, key, r->model.elements[key]};
}

/* Everything appended so far counts from now on. */
static void acknowledge(struct run *r)
{
    uint64_t lsn = journal_last_lsn(r->store->journal);
    if (r->failed)
        return;
    if (journal_wait(r->store->journal, lsn, NULL) < 0)
        r->failed = true;
    else
        r->acknowledged = lsn;
}

static void put_some(struct run *r, uint32_t first, uint32_t n, uint32_t version)
{
    for (uint32_t key = first; key < first + n && !r->failed; key++) {
        uint64_t lsn = 0;
        int rc = support_put(&r->lane, r->collection, &r->model, key % KEYS, version, key % 2 ? version : 0, &lsn);
        note(r, key % KEYS, lsn, rc);
        if (key % 5 == 0)
            acknowledge(r);
    }
    acknowledge(r);
}

static void remove_some(struct run *r, uint32_t first, uint32_t n)
{
    for (uint32_t key = first; key < first + n && !r->failed; key++) {
        uint64_t lsn = 0;
        int rc = support_remove(&r->lane, r->collection, &r->model, key % KEYS, &lsn);
        note(r, key % KEYS, lsn, rc);
    }
    acknowledge(r);
}

static void change_attributes(struct run *r, uint32_t key, uint32_t attributes)
{
    uint64_t lsn = 0;
    int rc = r->failed ? QUIRE_EIO : support_set_attributes(r->collection, &r->model, key, attributes, &lsn);
    if (rc != QUIRE_ENOTFOUND)
        note(r, key, lsn, rc);
    acknowledge(r);
}

static void step(struct run *r,
                 int (*call)(struct store *store, struct collection *collection, struct quire_error *err))
{
    if (!r->failed && call(r->store, r->collection, NULL) < 0)
        r->failed = true;
}

static int checkpoint(struct store *store, struct collection *collection, struct quire_error *err)
{
    (void)collection;
    return store_checkpoint(store, err);
}

static int settle(struct store *store, struct collection *collection, struct quire_error *err)
{
    (void)collection;
    return store_settle(store, err);
}

static void take_copy(struct run *r)
{
    uint64_t lsn;
    if (r->failed)
        return;
    support_model_copy(&r->copied, &r->model);
    r->has_copy = store_snapshot(r->store, "/copy", &lsn, NULL) == 0;
    r->failed = !r->has_copy;
}

/* Half of the other collection's elements are a tenant's, which the script drops. */
static int put_granted(struct run *r, uint32_t key)
{
    struct grant grant = {.name = "tenant", .bytes = 6};
    char name[16];
    float vector[SUPPORT_DIM];
    struct collection_put put = {.key = name, .vector = vector, .grants = &grant, .n_grants = 1};
    put.key_bytes = (uint32_t)snprintf(name, sizeof name, "granted-%u", key);
    support_vector(key, 1, vector);
    assert_int_equal(collection_locate_now(r->other, name, put.key_bytes, &put.located), 1);
    return collection_put(r->other, &put, NULL);
}

static void drop_tenant(struct run *r)
{
    uint64_t elements, lsn = 0;
    if (r->failed)
        return;
    if (store_seal(r->store, r->other, NULL) < 0 ||
        collection_drop_tenant(r->other, "tenant", 6, &elements, &lsn, NULL) < 0) {
        r->failed = true;
        return;
    }
    r->tenant_lsn = lsn;
    acknowledge(r);
    step(r, settle);
}

static void drop_other(struct run *r)
{
    uint64_t lsn;
    if (r->failed)
        return;
    if (store_seal(r->store, r->other, NULL) < 0 || store_drop_collection(r->store, r->other, &lsn, NULL) < 0) {
        r->failed = true;
        return;
    }
    acknowledge(r);
    r->dropped_lsn = r->failed ? 0 : lsn;
}

static void script(struct run *r)
{
    put_some(r, 0, 30, 1);
    step(r, store_seal);
    put_some(r, 20, 20, 2);
    change_attributes(r, 25, 7);
    drop_tenant(r);
    step(r, checkpoint);
    remove_some(r, 5, 8);
    step(r, store_seal);
    put_some(r, 0, 10, 3);
    take_copy(r);
    drop_other(r);
    step(r, store_compact);
    remove_some(r, 0, 6);
    change_attributes(r, 8, 9);
    step(r, checkpoint);
    put_some(r, 35, 25, 4);
    step(r, store_seal);
    step(r, settle);
    put_some(r, 3, 9, 5);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void begin(struct run *r, struct io_fs *fs)
{
    struct store_options options = support_store_options(fs);
    struct support_model ten;
    *r = (struct run){.fs = fs};
    support_model_init(&r->model, KEYS);
    support_model_init(&r->copied, KEYS);
    support_model_init(&ten, 10);
    support_lane_open(&r->lane, fs);
    r->store = support_store_open("/data", &options);
    r->collection = support_create(r->store);
    r->other = support_create(r->store);
    r->uid = collection_uid(r->collection);
    r->other_uid = collection_uid(r->other);
    for (uint32_t key = 0; key < 10; key++)
        assert_int_equal(support_put(&r->lane, r->other, &ten, key, 1, 0, NULL), 0);
    for (uint32_t key = 0; key < 10; key++)
        assert_int_equal(put_granted(r, key), 0);
    acknowledge(r);
    assert_false(r->failed);
    support_model_free(&ten);
}

static void end(struct run *r)
{
    support_lane_close(&r->lane);
    collection_unref(r->collection);
    collection_unref(r->other);
    store_close(r->store, NULL); /* fails after a cut, and says so */
}

static void forget(struct run *r)
{
    support_model_free(&r->model);
    support_model_free(&r->copied);
}

/* The model after the first n writes. */
static void model_after(const struct run *r, uint32_t n, struct support_model *model)
{
    memset(model->elements, 0, sizeof *model->elements * model->n);
    for (uint32_t i = 0; i < n; i++)
        model->elements[r->writes[i].key] = r->writes[i].after;
}

/* How many of the writes the recovered folder has: those up to its last LSN. */
static uint32_t writes_up_to(const struct run *r, uint64_t lsn)
{
    uint32_t n = 0;
    while (n < r->n_writes && r->writes[n].lsn <= lsn)
        n++;
    return n;
}

static void tell(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "finding: %s\n", sentence);
}

static bool is_sound(struct io_fs *fs, const char *path)
{
    struct quire_error err = {0};
    int rc = store_verify(&(struct store_check_request){.fs = fs, .path = path, .finding = tell}, NULL, &err);
    if (rc < 0)
        fprintf(stderr, "verify of %s: %s\n", path, err.message);
    return rc == 0;
}

/* The tenant's elements are all there, or from the moment it was dropped none is seen; those of nobody stay. */
static bool other_is_right(const struct run *r, struct store *store, uint64_t last_lsn)
{
    struct grant grant = {.name = "tenant", .bytes = 6};
    const struct tenant_scope scope = {.tenants = &grant, .n = 1};
    struct collection *other = store_find(store, r->other_uid);
    bool ended = r->tenant_lsn && last_lsn >= r->tenant_lsn, right = r->dropped_lsn ? other == NULL : true;
    if (other) {
        right = right && collection_count_scope(other, &scope) == (ended ? 0 : 10) && store_settle(store, NULL) == 0 &&
                collection_count(other) == (ended ? 10 : 20);
    }
    collection_unref(other);
    return right;
}

/* Opens the folder after a cut and compares; then writes on and opens once more. */
static bool recovers(struct run *r)
{
    struct store_options options = support_store_options(r->fs);
    struct store_report report;
    struct quire_error err = {0};
    struct store *store;
    struct support_lane lane;
    struct support_model expected;
    if (store_open("/data", &options, NULL, &store, &report, &err) < 0) {
        fprintf(stderr, "open: %s\n", err.message);
        return false;
    }
    support_model_init(&expected, KEYS);
    support_lane_open(&lane, r->fs);
    uint32_t n = writes_up_to(r, report.journal.last_lsn);
    model_after(r, n, &expected);
    struct collection *c = store_find(store, r->uid);
    bool right = c && report.journal.last_lsn >= r->acknowledged && other_is_right(r, store, report.journal.last_lsn) &&
                 support_equal(&lane, c, &expected);
    for (uint32_t key = 0; key < 5 && right; key++)
        right = support_put(&lane, c, &expected, key, 50, 0, NULL) == 0;
    right = right && store_seal(store, c, &err) == 0 && store_settle(store, &err) == 0 &&
            support_equal(&lane, c, &expected);
    collection_unref(c);
    support_lane_close(&lane);
    right = store_close(store, &err) == 0 && right && is_sound(r->fs, "/data");
    support_model_free(&expected);
    return right;
}

static bool copy_is_right(struct run *r)
{
    struct store_options options = support_store_options(r->fs);
    struct support_lane lane;
    if (!r->has_copy)
        return true;
    if (!is_sound(r->fs, "/copy"))
        return false;
    struct store *store = support_store_open("/copy", &options);
    struct collection *c = store_find(store, r->uid);
    support_lane_open(&lane, r->fs);
    bool right = c && support_equal(&lane, c, &r->copied);
    support_lane_close(&lane);
    collection_unref(c);
    support_store_close(store);
    return right;
}

/* Cuts the power at the n-th call; false when the script ended before. */
static bool cut_at(uint64_t n, uint64_t seed)
{
    struct io_fs *fs = fault_fs_create();
    struct run *r = malloc(sizeof *r);
    assert_true(fs && r);
    begin(r, fs);
    fault_fail_nth(fs, CALLS, n, QUIRE_EIO, true);
    script(r);
    bool reached = r->failed;
    if (!reached)
        fault_fail_nth(fs, CALLS, 0, 0, false);
    end(r);
    fault_power_cut(fs, seed);
    if (!recovers(r) || !copy_is_right(r))
        fail_msg("after a cut at call %llu with seed %llu (acknowledged: %llu)", (unsigned long long)n,
                 (unsigned long long)seed, (unsigned long long)r->acknowledged);
    forget(r);
    free(r);
    fault_fs_destroy(fs);
    return reached;
}

static uint64_t count_calls(void)
{
    struct io_fs *fs = fault_fs_create();
    struct run *r = malloc(sizeof *r);
    assert_true(fs && r);
    begin(r, fs);
    fault_fail_nth(fs, CALLS, 0, 0, false); /* counts from here */
    script(r);
    uint64_t calls = fault_calls(fs, CALLS);
    assert_false(r->failed);
    assert_true(r->has_copy && r->dropped_lsn);
    end(r);
    assert_true(recovers(r) && copy_is_right(r));
    forget(r);
    free(r);
    fault_fs_destroy(fs);
    return calls;
}

static void every_cut_recovers(void **state)
{
    const char *text = getenv("QUIRE_CRASH_STEP");
    const uint64_t seeds[] = {0, UINT64_MAX, 1, 2};
    uint64_t calls = count_calls(), chosen = text ? strtoull(text, NULL, 10) : calls / SANITIZED_SIZE(60, 6) + 1;
    (void)state;
    assert_true(chosen > 0);
    for (uint64_t n = 1; n <= calls; n += chosen)
        for (unsigned i = 0; i < sizeof seeds / sizeof *seeds; i++)
            cut_at(n, seeds[i] == 0 || seeds[i] == UINT64_MAX ? seeds[i] : seeds[i] + 10 * n);
    fprintf(stderr, "%llu calls, every %llu-th with 4 seeds\n", (unsigned long long)calls, (unsigned long long)chosen);
}

/* ---- failures without a cut -------------------------------------------------------------------------------------- */

static int count_entry(void *context, const char *name)
{
    (void)name;
    ++*(unsigned *)context;
    return 0;
}

static unsigned count_folders(struct io_fs *fs)
{
    unsigned n = 0;
    assert_int_equal(fs->ops->list(fs, "/data/" SEGMENTS_NAME, count_entry, &n), 0);
    return n;
}

static void a_full_disk_fails_a_seal_and_loses_nothing(void **state)
{
    struct io_fs *fs = fault_fs_create();
    struct run *r = malloc(sizeof *r);
    struct quire_error err = {0};
    (void)state;
    assert_true(fs && r);
    begin(r, fs);
    put_some(r, 0, KEYS, 1);
    assert_int_equal(journal_sync(r->store->journal, &err), 0);
    fault_capacity(fs, 1);
    assert_int_equal(store_seal(r->store, r->collection, &err), QUIRE_ENOSPACE);
    assert_int_equal(store_checkpoint(r->store, &err), QUIRE_ENOSPACE);
    assert_true(support_equal(&r->lane, r->collection, &r->model));
    fault_capacity(fs, UINT64_MAX);
    for (unsigned i = 0; i < 1000 && journal_health(r->store->journal, &err) < 0; i++)
        usleep(10000); /* the journal tries again by itself */
    assert_int_equal(store_seal(r->store, r->collection, &err), 0);
    assert_int_equal(store_settle(r->store, &err), 0);
    assert_int_equal(count_folders(fs), 1);
    assert_true(support_equal(&r->lane, r->collection, &r->model));
    end(r);
    assert_true(recovers(r));
    forget(r);
    free(r);
    fault_fs_destroy(fs);
}

/* Each call of a seal in turn fails once: the seal does or does not, the elements are there. */
static void any_call_of_a_seal_may_fail(void **state)
{
    struct io_fs *fs = fault_fs_create();
    struct run *r = malloc(sizeof *r);
    struct quire_error err = {0};
    unsigned failed = 0;
    (void)state;
    assert_true(fs && r);
    begin(r, fs);
    for (uint32_t n = 1; r->n_writes + 20 <= WRITES; n += 3) {
        put_some(r, n, 20, n);
        assert_int_equal(journal_sync(r->store->journal, &err), 0);
        fault_fail_nth(fs, CALLS | FAULT_OPEN | FAULT_READ, n, QUIRE_EIO, false);
        failed += store_seal(r->store, r->collection, &err) < 0;
        fault_fail_nth(fs, CALLS, 0, 0, false);
        for (unsigned tries = 0; tries < 500 && journal_health(r->store->journal, &err) < 0; tries++)
            usleep(10000); /* it may have been a mark of the journal that failed, which tries again by itself */
        assert_true(support_equal(&r->lane, r->collection, &r->model));
        assert_int_equal(store_seal(r->store, r->collection, &err), 0);
        assert_int_equal(store_settle(r->store, &err), 0);
    }
    assert_true(failed >= 3);
    end(r);
    assert_true(recovers(r));
    forget(r);
    free(r);
    fault_fs_destroy(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_cut_recovers),
                                       cmocka_unit_test(a_full_disk_fails_a_seal_and_loses_nothing),
                                       cmocka_unit_test(any_call_of_a_seal_may_fail)};
    int failed = cmocka_run_group_tests_name("power cuts", tests, NULL, NULL);
    support_kind = QUIRE_INDEX_SPANN;
    return failed + cmocka_run_group_tests_name("power cuts of inverted lists", tests, NULL, NULL);
}
