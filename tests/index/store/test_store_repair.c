/*
 * test_store_repair.c - what repair saves of a damaged folder, and that records of the host outlive restarts,
 * checkpoints and repairs.
 */
#include "index/store/store_priv.h"
#include "io/random.h"
#include "io/sections.h"
#include "tests/index/support_folder.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- repair ------------------------------------------------------------------------------------------------------ */

static void count_losses(void *context, const char *sentence)
{
    assert_true(strlen(sentence) > 10);
    ++*(unsigned *)context;
}

/* Flips a bit of one file in what an open store has read of it: in the codes of a page graph the widest ones, which
 * fill the second half; in those of lists the first section, because their middle is padding. */
static void damage(const char *folder, const char *name)
{
    char *path = support_path(folder, name);
    size_t bytes;
    uint8_t *data = support_read_file(path, &bytes);
    size_t at = support_kind == QUIRE_INDEX_SPANN ? SECTION_ALIGN : bytes / 2;
    assert_true(at < bytes);
    data[at] ^= 0x40;
    support_write_file(path, data, bytes);
    free(data);
    free(path);
}

/* A folder of two segments and a memtable that replaces and removes some of their elements; the uid of its set, and of
 * its first segment. */
static uint64_t make_folder(struct state *s, uint64_t *first)
{
    struct store_options options = support_store_options(NULL);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = support_create(store);
    uint64_t uid = collection_uid(c);
    put_keys(s, c, 0, 1000, 1);
    seal(store, c);
    put_keys(s, c, 1000, 1000, 1);
    seal(store, c);
    put_keys(s, c, 900, 200, 2);
    remove_keys(s, c, 0, 500, 5);
    struct view *view = collection_view(c);
    *first = view->parts[0]->uid;
    view_unref(view);
    collection_unref(c);
    support_store_close(store);
    return uid;
}

static void repair_of_a_sound_folder_loses_nothing(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store_verify_report report;
    struct quire_error err = {0};
    unsigned losses = 0;
    const struct store_check_request request = {.path = s->path, .finding = count_losses, .context = &losses};
    uint64_t first, uid = make_folder(s, &first);
    char *to = support_path(s->folder, "whole");
    if (store_repair(&request, to, &report, &err) < 0)
        fail_msg("repair: %s", err.message);
    assert_int_equal(losses, 0);
    assert_int_equal(report.elements, support_model_count(&s->model));
    struct store *store = support_store_open(to, &options);
    struct collection *c = store_find(store, uid);
    assert_non_null(c);
    assert_true(support_equal(&s->lane, c, &s->model));
    assert_int_equal(store_check(store, c, no_finding, NULL, &err), 0);
    struct collection *next = support_create(store);
    assert_true(collection_uid(next) > uid);
    collection_unref(next);
    collection_unref(c);
    support_store_close(store);
    free(to);
}

/* What damage makes unavailable says so and keeps all that the journal knows of it, over checkpoints and restarts,
 * until the file is mended; others serve. */
static void a_damaged_segment_is_its_own_collections_matter(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct quire_error err = {0};
    struct store_stats stats;
    uint64_t first, lsn;
    char name[64];
    uint64_t uid = make_folder(s, &first);
    snprintf(name, sizeof name, SEGMENTS_NAME "/%llu", (unsigned long long)first);
    char *segment = support_path(s->path, name), *copy = support_path(s->folder, "copy");
    struct store *store = support_store_open(s->path, &options);
    struct collection *other = support_create(store);
    uint64_t other_uid = collection_uid(other);
    collection_unref(other);
    support_store_close(store);
    damage(segment, "codes");
    for (unsigned i = 0; i < 3; i++) { /* the second time out of the checkpoint of the first, the third out of a copy */
        store = support_store_open(i < 2 ? s->path : copy, &options);
        struct collection *c = store_find(store, uid);
        assert_non_null(c);
        assert_int_equal(collection_available(c, &err), QUIRE_ECORRUPT);
        assert_non_null(strstr(err.message, "codes"));
        assert_non_null(strstr(err.message, "quire repair"));
        store_get_stats(store, &stats);
        assert_int_equal(stats.unavailable, 1);
        assert_int_equal(stats.collections, 2);
        assert_int_equal(store_seal(store, c, &err), QUIRE_ECORRUPT);
        assert_int_equal(store_compact(store, c, &err), QUIRE_ECORRUPT);
        assert_int_equal(store_check(store, c, no_finding, NULL, &err), QUIRE_ECORRUPT);
        other = store_find(store, other_uid);
        assert_int_equal(collection_available(other, &err), 0);
        float vector[SUPPORT_DIM];
        support_vector(i, 1, vector);
        struct view *view = collection_view(other);
        struct collection_put put = {
            .key = &i, .key_bytes = sizeof i, .vector = vector, .located = {.generation = view->generation}};
        view_unref(view);
        assert_int_equal(collection_put(other, &put, &err), 0);
        assert_int_equal(collection_count(other), i + 1);
        assert_true(store_maintain(store, &err) >= 0);
        assert_int_equal(store_checkpoint(store, &err), 0);
        if (i == 1 && store_snapshot(store, copy, &lsn, &err) < 0)
            fail_msg("%s", err.message);
        collection_unref(other);
        collection_unref(c);
        support_store_close(store);
    }
    damage(segment, "codes"); /* the same bit back, in the copy as well: it is the same file */
    store = support_store_open(copy, &options);
    struct collection *c = store_find(store, uid);
    assert_int_equal(collection_available(c, &err), 0);
    assert_true(support_equal(&s->lane, c, &s->model));
    collection_unref(c);
    support_store_close(store);
    free(segment);
    free(copy);
    support_store_close(support_store_open(s->path, &options));
    assert_sound(s);
}

/* A segment that is missing: the same, and dropping it is allowed. */
static void a_missing_segment_can_be_dropped_or_put_back(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct quire_error err = {0};
    struct store_stats stats;
    uint64_t first, lsn;
    char name[64];
    uint64_t uid = make_folder(s, &first);
    snprintf(name, sizeof name, SEGMENTS_NAME "/%llu", (unsigned long long)first);
    char *segment = support_path(s->path, name), *away = support_path(s->folder, "away"),
         *copy = support_path(s->folder, "copy");
    assert_int_equal(rename(segment, away), 0);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = store_find(store, uid);
    assert_int_equal(collection_available(c, &err), QUIRE_ENOFILE);
    assert_non_null(strstr(err.message, name));
    if (store_checkpoint(store, &err) < 0 || store_snapshot(store, copy, &lsn, &err) < 0)
        fail_msg("%s", err.message);
    collection_unref(c);
    support_store_close(store);
    assert_int_equal(rename(away, segment), 0);
    store = support_store_open(s->path, &options);
    c = store_find(store, uid);
    assert_int_equal(collection_available(c, &err), 0);
    assert_true(support_equal(&s->lane, c, &s->model));
    collection_unref(c);
    support_store_close(store);
    store = support_store_open(copy, &options); /* where it is missing, too */
    c = store_find(store, uid);
    assert_int_equal(collection_available(c, &err), QUIRE_ENOFILE);
    assert_int_equal(store_drop_collection(store, c, &lsn, &err), 0);
    collection_unref(c);
    store_get_stats(store, &stats);
    assert_int_equal(stats.unavailable, 0);
    assert_int_equal(stats.collections, 0);
    assert_int_equal(store_settle(store, &err), 0);
    support_store_close(store);
    char *segments = support_path(copy, SEGMENTS_NAME);
    assert_int_equal(support_count_entries(segments), 0);
    free(segments);
    free(segment);
    free(away);
    free(copy);
}

enum { NOBODY = 65534 };

static int give_away(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return chown(path, NOBODY, NOBODY);
}

/* What may not be read is not called damaged, and no repair gives it up. */
static void a_segment_without_permission_is_no_damage(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct quire_error err = {0};
    unsigned losses = 0;
    const struct store_check_request request = {.path = s->path, .finding = count_losses, .context = &losses};
    uint64_t first, uid;
    char name[64];
    uid = make_folder(s, &first);
    if (geteuid() == 0) { /* who may read everything becomes somebody else */
        assert_int_equal(nftw(s->folder, give_away, 16, FTW_PHYS), 0);
        assert_int_equal(seteuid(NOBODY), 0);
    }
    snprintf(name, sizeof name, SEGMENTS_NAME "/%llu/codes", (unsigned long long)first);
    char *codes = support_path(s->path, name), *to = support_path(s->folder, "saved");
    assert_int_equal(chmod(codes, 0), 0);
    assert_int_equal(store_verify(&request, NULL, &err), QUIRE_EPERM);
    assert_int_equal(store_repair(&request, to, NULL, &err), QUIRE_EPERM);
    assert_int_equal(losses, 0);
    struct store *store = support_store_open(s->path, &options);
    struct collection *c = store_find(store, uid);
    assert_int_equal(collection_available(c, &err), QUIRE_EPERM);
    assert_non_null(strstr(err.message, "chmod"));
    collection_unref(c);
    support_store_close(store);
    seteuid(getuid());
    free(codes);
    free(to);
}

static int make_read_only(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)kind, (void)walk;
    return chmod(path, S_ISDIR(status->st_mode) ? 0555 : 0444);
}

static int make_writable(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)kind, (void)walk;
    return chmod(path, S_ISDIR(status->st_mode) ? 0755 : 0644);
}

/* As on a backup medium: nothing is written, the lock neither. */
static void a_folder_that_may_only_be_read_is_verified_and_repaired(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct quire_error err = {0};
    unsigned losses = 0;
    const struct store_check_request request = {.path = s->path, .finding = count_losses, .context = &losses};
    uint64_t first, uid = make_folder(s, &first);
    char *to = support_path(s->folder, "saved");
    if (geteuid() == 0) {
        assert_int_equal(nftw(s->folder, give_away, 16, FTW_PHYS), 0);
        assert_int_equal(seteuid(NOBODY), 0);
    }
    assert_int_equal(nftw(s->path, make_read_only, 16, FTW_PHYS), 0);
    if (store_verify(&request, NULL, &err) < 0 || store_repair(&request, to, NULL, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(losses, 0);
    assert_int_equal(nftw(s->path, make_writable, 16, FTW_PHYS | FTW_DEPTH), 0);
    seteuid(getuid());
    struct store *store = support_store_open(s->path, &options); /* who has it open keeps others from judging it */
    assert_int_equal(store_verify(&request, NULL, &err), QUIRE_EBUSY);
    support_store_close(store);
    store = support_store_open(to, &options);
    struct collection *c = store_find(store, uid);
    assert_true(support_equal(&s->lane, c, &s->model));
    collection_unref(c);
    support_store_close(store);
    free(to);
}

/* Of a segment that does not open, all but what lies in the damage is saved: each file in turn. */
static void repair_saves_the_rows_of_a_segment_that_does_not_open(void **in)
{
    static const struct {
        const char *file;
        bool cut; /* its last page; otherwise its first page is zeroed */
    } damages[] = {{"codes", true},   {"columns", false}, {"columns", true}, {"keys", false},
                   {"blocks", false}, {"blocks", true},   {"codes", false},  {"meta", false}};
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store_verify_report report;
    struct quire_error err = {0};
    unsigned losses = 0;
    const struct store_check_request request = {.path = s->path, .finding = count_losses, .context = &losses};
    uint64_t first, uid = make_folder(s, &first), all = support_model_count(&s->model);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        static const uint8_t zeros[4096];
        char name[64], saved[32];
        snprintf(name, sizeof name, SEGMENTS_NAME "/%llu/%s", (unsigned long long)first, damages[i].file);
        snprintf(saved, sizeof saved, "saved%zu", i);
        char *path = support_path(s->path, name), *to = support_path(s->folder, saved);
        size_t bytes;
        uint8_t *whole = support_read_file(path, &bytes), *damaged = support_read_file(path, &bytes);
        memcpy(damaged, damages[i].cut ? damaged : zeros, sizeof zeros);
        assert_int_equal(unlink(path), 0); /* it may be linked from what was saved before */
        support_write_file(path, damaged, damages[i].cut ? bytes - sizeof zeros : bytes);
        losses = 0;
        if (store_repair(&request, to, &report, &err) < 0)
            fail_msg("repair: %s", err.message);
        assert_true(losses > 0);
        /* only what the segment cannot be read without costs all of its rows */
        bool lost = strcmp(damages[i].file, "meta") == 0 || (strcmp(damages[i].file, "codes") == 0 && !damages[i].cut);
        if (lost && support_config().slot == QUIRE_SLOT_Q8)
            assert_true(report.elements < all);
        else if (!lost)
            assert_true(report.elements >= all - (strcmp(damages[i].file, "blocks") == 0 ? 100 : 0));
        losses = 0;
        const struct store_check_request again = {.path = to, .finding = count_losses, .context = &losses};
        if (store_verify(&again, NULL, &err) < 0)
            fail_msg("%s of what was saved: %s", damages[i].file, err.message);
        struct store *store = support_store_open(to, &options);
        struct collection *c = store_find(store, uid);
        assert_int_equal(collection_count(c), report.elements);
        if (report.elements == all)
            assert_true(support_equal(&s->lane, c, &s->model));
        collection_unref(c);
        support_store_close(store);
        assert_int_equal(unlink(path), 0);
        support_write_file(path, whole, bytes);
        free(whole);
        free(damaged);
        free(path);
        free(to);
    }
}

static void repair_saves_the_whole_blocks_of_a_damaged_segment(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store_verify_report report;
    struct quire_error err = {0};
    unsigned losses = 0;
    const struct store_check_request request = {.path = s->path, .finding = count_losses, .context = &losses};
    uint64_t first, uid = make_folder(s, &first), all = support_model_count(&s->model);
    char *to = support_path(s->folder, "half"), name[64];
    snprintf(name, sizeof name, SEGMENTS_NAME "/%llu", (unsigned long long)first);
    char *segment = support_path(s->path, name);
    damage(segment, "blocks");
    assert_int_equal(store_verify(&request, &report, &err), QUIRE_ECORRUPT);
    assert_true(report.findings > 0);
    if (store_repair(&request, to, &report, &err) < 0)
        fail_msg("repair: %s", err.message);
    assert_true(losses > 0);
    assert_in_range(report.elements, all - 400, all - 1);
    assert_int_equal(store_repair(&request, to, NULL, &err), QUIRE_EEXISTS);
    struct store *store = support_store_open(to, &options);
    struct collection *c = store_find(store, uid);
    assert_non_null(c);
    assert_int_equal(collection_count(c), report.elements);
    assert_int_equal(store_check(store, c, no_finding, NULL, &err), 0);
    collection_unref(c);
    support_store_close(store);
    free(segment);
    free(to);
}

/* ---- the host's records ------------------------------------------------------------------------------------------ */

/* A host that keeps one number per record kind. */
struct host {
    uint64_t numbers[4], lsns[4];
};

static int take_number(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                       struct quire_error *err)
{
    struct host *host = context;
    (void)err;
    assert_int_equal(n, sizeof(uint64_t));
    assert_in_range(kind, HOST_KINDS, HOST_KINDS + 3);
    if (lsn >= host->lsns[kind - HOST_KINDS]) {
        memcpy(&host->numbers[kind - HOST_KINDS], bytes, n);
        host->lsns[kind - HOST_KINDS] = lsn;
    }
    return 0;
}

static int save_numbers(void *context, struct checkpoint *checkpoint, struct quire_error *err)
{
    const struct host *host = context;
    int rc = 0;
    for (unsigned i = 0; i < 4 && rc == 0; i++)
        rc = journal_checkpoint_put(checkpoint, (uint8_t)(HOST_KINDS + i), host->lsns[i], &host->numbers[i],
                                    sizeof(uint64_t), err);
    return rc;
}

static struct store *open_with_host(const char *path, struct host *host)
{
    struct store_options options = support_store_options(NULL);
    struct store_host callbacks = {
        .restore = take_number, .replay = take_number, .save = save_numbers, .context = host};
    struct store *store = NULL;
    struct quire_error err = {0};
    memset(host, 0, sizeof *host);
    if (store_open(path, &options, &callbacks, &store, NULL, &err) < 0)
        fail_msg("open: %s", err.message);
    return store;
}

static void set_number(struct store *store, struct host *host, uint8_t i, uint64_t number)
{
    struct journal_record record = {(uint8_t)(HOST_KINDS + i), &number, sizeof number};
    uint64_t lsn;
    assert_int_equal(journal_append(store_journal(store), &record, 1, &lsn, NULL), 0);
    host->numbers[i] = number;
    host->lsns[i] = lsn;
}

static void records_of_the_host_outlive_restarts_checkpoints_and_repair(void **in)
{
    struct state *s = *in;
    struct host host;
    struct quire_error err = {0};
    const uint64_t expected[4] = {10, 21, 32, 33};
    struct store *store = open_with_host(s->path, &host);
    char *to = support_path(s->folder, "repaired");
    for (uint8_t i = 0; i < 4; i++)
        set_number(store, &host, i, 10 * (i + 1u));
    set_number(store, &host, 1, 21);
    assert_int_equal(store_checkpoint(store, &err), 0);
    set_number(store, &host, 2, 31);
    set_number(store, &host, 2, 32);
    set_number(store, &host, 3, 33);
    support_store_close(store);
    for (unsigned round = 0; round < 3; round++) {
        store = open_with_host(round < 2 ? s->path : to, &host);
        assert_memory_equal(host.numbers, expected, sizeof expected);
        support_store_close(store);
        if (round == 1)
            assert_int_equal(store_repair(&(struct store_check_request){.path = s->path}, to, NULL, &err), 0);
    }
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(repair_of_a_sound_folder_loses_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_segment_is_its_own_collections_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_segment_can_be_dropped_or_put_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_segment_without_permission_is_no_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_may_only_be_read_is_verified_and_repaired, set_up, tear_down),
        cmocka_unit_test_setup_teardown(repair_saves_the_rows_of_a_segment_that_does_not_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(repair_saves_the_whole_blocks_of_a_damaged_segment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(records_of_the_host_outlive_restarts_checkpoints_and_repair, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
