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

static void a_folder_with_damaged_codes_is_refused_and_left_as_it_is(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    struct store *store = NULL;
    struct quire_error err = {0};
    uint64_t first;
    char name[64];
    make_folder(s, &first);
    snprintf(name, sizeof name, SEGMENTS_NAME "/%llu", (unsigned long long)first);
    char *segment = support_path(s->path, name);
    damage(segment, "codes");
    assert_int_equal(store_open(s->path, &options, NULL, &store, NULL, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "quire repair"));
    assert_non_null(strstr(err.message, name));
    damage(segment, "codes"); /* the same bit back */
    free(segment);
    support_store_close(support_store_open(s->path, &options));
    assert_sound(s);
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
        cmocka_unit_test_setup_teardown(a_folder_with_damaged_codes_is_refused_and_left_as_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(repair_saves_the_whole_blocks_of_a_damaged_segment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(records_of_the_host_outlive_restarts_checkpoints_and_repair, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
