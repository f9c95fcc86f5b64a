/*
 * test_fault.c - the failing disk itself, and publication over it.
 *
 * First that the disk does what it says: a power cut loses what was not synced and nothing else, in part, torn, in some
 * runs; names likewise. Then the reason for it: a section file is published over an older one while every call in turn
 * fails, and the power goes out at every call, under many seeds. What is there afterwards is the old file or the new
 * one, whole; and the new one whenever publication said that it was done.
 */
#include "io/engine.h"
#include "support_contents.h"
#include "support_sections.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#define SEEDS 40u
#define LARGE SUPPORT_LARGE_DEFAULT

static int setup(void **state)
{
    *state = fault_fs_create();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    fault_fs_destroy(*state);
    return 0;
}

static struct io_file *open_new(struct io_fs *fs, const char *path)
{
    struct io_file *file;
    assert_int_equal(fs_open(fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file, NULL), 0);
    return file;
}

static struct io_file *open_old(struct io_fs *fs, const char *path)
{
    struct io_file *file;
    assert_int_equal(fs_open(fs, path, FS_WRITE, &file, NULL), 0);
    return file;
}

static bool is_there(struct io_fs *fs, const char *path)
{
    struct io_file *file;
    if (fs_open(fs, path, FS_READ, &file, NULL) < 0)
        return false;
    fs_close(file);
    return true;
}

static void write_text(struct io_file *file, const char *text, uint64_t offset)
{
    assert_int_equal(fs_write_exact(file, text, strlen(text), offset, NULL), 0);
}

/* ---- the power cut ----------------------------------------------------------------------------------------------- */

static void test_cut_loses_unsynced_data(void **state)
{
    struct io_fs *fs = *state;
    struct io_file *file = open_new(fs, "/a");
    char text[16] = {0};
    write_text(file, "synced", 0);
    assert_int_equal(fs->ops->sync(file), 0);
    assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
    write_text(file, "LOST", 0);
    write_text(file, "more", 6);
    fault_power_cut(fs, 0);
    assert_int_equal(fs->ops->read(file, text, 1, 0), QUIRE_EIO);
    assert_int_equal(fs->ops->write(file, text, 1, 0), QUIRE_EIO);
    assert_int_equal(fs->ops->sync(file), QUIRE_EIO);
    fs_close(file);
    file = open_old(fs, "/a");
    assert_int_equal(file->bytes, 6);
    assert_int_equal(fs_read_exact(file, text, 6, 0, NULL), 0);
    assert_string_equal(text, "synced");
    fs_close(file);
}

static void test_cut_that_loses_nothing(void **state)
{
    struct io_fs *fs = *state;
    struct io_file *file = open_new(fs, "/a");
    char text[16] = {0};
    write_text(file, "unsynced", 0);
    fs_close(file);
    fault_power_cut(fs, UINT64_MAX);
    file = open_old(fs, "/a");
    assert_int_equal(fs_read_exact(file, text, 8, 0, NULL), 0);
    assert_string_equal(text, "unsynced");
    fs_close(file);
}

enum fate { KEPT = 1, LOST = 2, TORN = 4 };

/* Overwrites four sectors of a synced file, cuts the power, and looks at each sector; others must be untouched. */
static enum fate fate_of_write(uint64_t seed)
{
    struct io_fs *fs = fault_fs_create();
    static uint8_t old[8192], new[2048], found[8192];
    struct io_file *file = open_new(fs, "/a");
    unsigned kept = 0;
    memset(old, 'o', sizeof old);
    memset(new, 'n', sizeof new);
    assert_int_equal(fs_write_exact(file, old, sizeof old, 0, NULL), 0);
    assert_int_equal(fs->ops->sync(file), 0);
    assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
    assert_int_equal(fs_write_exact(file, new, sizeof new, 1024, NULL), 0);
    fs_close(file);
    fault_power_cut(fs, seed);
    file = open_old(fs, "/a");
    assert_int_equal(fs_read_exact(file, found, sizeof found, 0, NULL), 0);
    assert_memory_equal(found, old, 1024);
    assert_memory_equal(found + 3072, old, 8192 - 3072);
    for (unsigned i = 0; i < 4; i++) {
        const uint8_t *sector = found + 1024 + 512 * (size_t)i;
        bool is_new = sector[0] == 'n';
        assert_memory_equal(sector, is_new ? new : old, 512);
        kept += is_new;
    }
    fs_close(file);
    fault_fs_destroy(fs);
    return kept == 4 ? KEPT : kept == 0 ? LOST : TORN;
}

static void test_cut_tears_sectors(void **state)
{
    unsigned seen = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        seen |= fate_of_write(seed);
    assert_int_equal(seen, KEPT | LOST | TORN);
    assert_int_equal(fate_of_write(0), LOST);
    assert_int_equal(fate_of_write(UINT64_MAX), KEPT);
}

/* Two writes since the sync: the later may be there without the earlier. */
static void test_cut_ignores_order(void **state)
{
    unsigned seen = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct io_fs *fs = fault_fs_create();
        struct io_file *file = open_new(fs, "/a");
        char found[1025] = {0};
        assert_int_equal(fs->ops->truncate(file, 1024), 0);
        assert_int_equal(fs->ops->sync(file), 0);
        assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
        write_text(file, "1", 0);
        write_text(file, "2", 600);
        fs_close(file);
        fault_power_cut(fs, seed);
        file = open_old(fs, "/a");
        assert_int_equal(fs_read_exact(file, found, 1024, 0, NULL), 0);
        seen |= 1u << ((found[0] == '1') + 2 * (found[600] == '2'));
        fs_close(file);
        fault_fs_destroy(fs);
    }
    assert_int_equal(seen, 15);
}

/* Each name changed since the sync is as before or as after; both are seen. Bits: a there, b there, d there. */
static unsigned names_after_cut(uint64_t seed, bool synced)
{
    struct io_fs *fs = fault_fs_create();
    fs_close(open_new(fs, "/a"));
    fs_close(open_new(fs, "/c"));
    assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
    assert_int_equal(fs->ops->unlink(fs, "/a"), 0);
    fs_close(open_new(fs, "/b"));
    assert_int_equal(fs->ops->rename(fs, "/c", "/d"), 0);
    if (synced)
        assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
    fault_power_cut(fs, seed);
    /* a rename is whole: one of the two names */
    assert_int_not_equal(is_there(fs, "/c"), is_there(fs, "/d"));
    unsigned names = (unsigned)is_there(fs, "/a") + 2u * is_there(fs, "/b") + 4u * is_there(fs, "/d");
    fault_fs_destroy(fs);
    return names;
}

static void test_cut_of_names(void **state)
{
    unsigned seen = 0;
    (void)state;
    assert_int_equal(names_after_cut(0, false), 1);
    assert_int_equal(names_after_cut(UINT64_MAX, false), 6);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        seen |= 1u << names_after_cut(seed, false);
        assert_int_equal(names_after_cut(seed, true), 6);
    }
    assert_int_equal(seen, 255);
}

/* A synced file whose folder was never synced is gone: fsync of a file is no fsync of its name. */
static void test_cut_of_unsynced_folder(void **state)
{
    struct io_fs *fs = *state;
    assert_int_equal(fs->ops->mkdir(fs, "/d"), 0);
    struct io_file *file = open_new(fs, "/d/a");
    write_text(file, "text", 0);
    assert_int_equal(fs->ops->sync(file), 0);
    fs_close(file);
    assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
    fault_power_cut(fs, 0);
    assert_false(is_there(fs, "/d/a"));
    assert_int_equal(fs->ops->rmdir(fs, "/d"), 0);
}

/* sync_dir of the folder that a rename leads to makes the creation before it durable as well. */
static void test_rename_between_folders(void **state)
{
    struct io_fs *fs = *state;
    assert_int_equal(fs->ops->mkdir(fs, "/from"), 0);
    assert_int_equal(fs->ops->mkdir(fs, "/to"), 0);
    assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
    fs_close(open_new(fs, "/from/a"));
    assert_int_equal(fs->ops->rename(fs, "/from/a", "/to/a"), 0);
    assert_int_equal(fs->ops->sync_dir(fs, "/to"), 0);
    fault_power_cut(fs, 0);
    assert_true(is_there(fs, "/to/a"));
    assert_false(is_there(fs, "/from/a"));
}

/* ---- faults by hand ---------------------------------------------------------------------------------------------- */

static void test_fail_nth(void **state)
{
    struct io_fs *fs = *state;
    struct io_file *file = open_new(fs, "/a");
    char text[4];
    fault_fail_nth(fs, FAULT_WRITE | FAULT_READ, 3, QUIRE_EIO, false);
    write_text(file, "one", 0);
    assert_int_equal(fs->ops->sync(file), 0);
    assert_int_equal(fs->ops->read(file, text, 3, 0), 3);
    assert_int_equal(fs->ops->write(file, "two", 3, 0), QUIRE_EIO);
    assert_int_equal(fs->ops->read(file, text, 3, 0), 3);
    assert_memory_equal(text, "one", 3);
    assert_int_equal(fault_calls(fs, FAULT_READ), 2);
    assert_int_equal(fault_calls(fs, FAULT_ANY), 5);
    fault_fail_nth(fs, FAULT_SYNC, 1, QUIRE_ENOSPACE, true);
    write_text(file, "two", 0);
    assert_int_equal(fs->ops->sync(file), QUIRE_ENOSPACE);
    assert_int_equal(fs->ops->read(file, text, 3, 0), QUIRE_ENOSPACE);
    assert_int_equal(fs->ops->unlink(fs, "/a"), QUIRE_ENOSPACE);
    fault_fail_nth(fs, 0, 0, 0, false);
    assert_int_equal(fs->ops->read(file, text, 3, 0), 3);
    fs_close(file);
}

static void test_failed_write_leaves_a_part(void **state)
{
    struct io_fs *fs = *state;
    struct io_file *file = open_new(fs, "/a");
    static uint8_t bytes[4096], found[4096];
    support_fill(bytes, sizeof bytes, 0, 1);
    fault_fail_nth(fs, FAULT_WRITE, 1, QUIRE_EIO, false);
    assert_int_equal(fs_write_exact(file, bytes, sizeof bytes, 0, NULL), QUIRE_EIO);
    assert_int_equal(fs->ops->read(file, found, sizeof found, 0), 2048);
    assert_memory_equal(found, bytes, 2048);
    fs_close(file);
}

static void test_misdirected_and_short(void **state)
{
    struct io_fs *fs = *state;
    struct io_file *file = open_new(fs, "/a");
    char text[32] = {0};
    write_text(file, "................", 0);
    fault_misdirect_nth(fs, 2, 4);
    write_text(file, "one", 0);
    write_text(file, "two", 3);
    assert_int_equal(fs_read_exact(file, text, 16, 0, NULL), 0);
    assert_string_equal(text, "one....two......");
    fault_misdirect_nth(fs, 1, -100);
    write_text(file, "six", 3);
    fault_short_read_nth(fs, 2);
    assert_int_equal(fs->ops->read(file, text, 16, 0), 16);
    assert_string_equal(text, "six....two......");
    assert_int_equal(fs->ops->read(file, text, 16, 0), 8);
    assert_int_equal(fs->ops->read(file, text, 16, 0), 16);
    fs_close(file);
}

static void test_capacity(void **state)
{
    struct io_fs *fs = *state;
    struct io_file *a = open_new(fs, "/a"), *b = open_new(fs, "/b");
    fault_capacity(fs, 10);
    write_text(a, "123456", 0);
    assert_int_equal(fs->ops->write(b, "12345", 5, 0), QUIRE_ENOSPACE);
    assert_int_equal(fs->ops->allocate(b, 5), QUIRE_ENOSPACE);
    write_text(b, "1234", 0);
    write_text(b, "4321", 0); /* in place needs no room */
    assert_int_equal(fs->ops->truncate(a, 2), 0);
    assert_int_equal(fs->ops->allocate(b, 8), 0);
    assert_int_equal(fs->ops->unlink(fs, "/b"), 0);
    assert_int_equal(fs->ops->truncate(a, 10), 0);
    assert_int_equal(fs->ops->truncate(a, 11), QUIRE_ENOSPACE);
    fs_close(a);
    fs_close(b);
}

static int check_visit(void *context, const char *path, const uint8_t *data, uint64_t bytes)
{
    assert_string_equal(path, "/d/a");
    assert_int_equal(bytes, 2);
    assert_memory_equal(data, context, 2);
    return 5;
}

static void test_flip_and_look(void **state)
{
    struct io_fs *fs = *state;
    assert_int_equal(fs->ops->mkdir(fs, "/d"), 0);
    struct io_file *file = open_new(fs, "/d/a");
    write_text(file, "aa", 0);
    fs_close(file);
    assert_int_equal(fault_flip_bit(fs, "/d/a", 9), 0);
    assert_int_equal(fault_each_file(fs, check_visit, (void *)(uintptr_t) "ac"), 5);
    assert_int_equal(fault_flip_bit(fs, "/d/a", 16), QUIRE_ERANGE);
    assert_int_equal(fault_flip_bit(fs, "/d", 0), QUIRE_ENOFILE);
    assert_int_equal(fault_flip_bit(fs, "/none", 0), QUIRE_ENOFILE);
}

/* ---- publication ------------------------------------------------------------------------------------------------- */

#define OLD 1u
#define NEW 2u

/* Writes the next version beside the present one and puts it in its place. */
static int replace(struct io_fs *fs, uint64_t seed)
{
    int rc = support_sections_write(fs, "/index/file.new", seed, LARGE, NULL);
    if (rc == 0)
        rc = fs->ops->rename(fs, "/index/file.new", "/index/file");
    return rc == 0 ? fs->ops->sync_dir(fs, "/index") : rc;
}

/* A folder with one file, made beside and published. */
static int publish_folder(struct io_fs *fs, uint64_t seed)
{
    int rc = fs->ops->mkdir(fs, "/segment.new");
    if (rc == 0)
        rc = support_sections_write(fs, "/segment.new/file", seed, LARGE, NULL);
    return rc == 0 ? fs_publish(fs, "/segment.new", "/segment", NULL) : rc;
}

static struct io_fs *fs_with_old(void)
{
    struct io_fs *fs = fault_fs_create();
    assert_int_equal(fs->ops->mkdir(fs, "/index"), 0);
    assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
    assert_int_equal(replace(fs, OLD), 0);
    return fs;
}

static uint64_t calls_of(int (*publish)(struct io_fs *fs, uint64_t seed))
{
    struct io_fs *fs = fs_with_old();
    fault_fail_nth(fs, 0, 0, 0, false);
    assert_int_equal(publish(fs, NEW), 0);
    uint64_t n = fault_calls(fs, FAULT_ANY);
    fault_fs_destroy(fs);
    return n;
}

static void assert_old_or_new(struct io_fs *fs, bool must_be_new)
{
    int is_new = support_sections_check(fs, "/index/file", NEW, LARGE, FS_READ);
    int is_old = support_sections_check(fs, "/index/file", OLD, LARGE, FS_READ);
    assert_true(is_new == 0 || (is_old == 0 && !must_be_new));
}

static void test_replace_with_failing_calls(void **state)
{
    uint64_t n = calls_of(replace);
    const int codes[] = {QUIRE_EIO, QUIRE_ENOSPACE};
    (void)state;
    assert_true(n >= 6);
    for (uint64_t i = 1; i <= n; i++)
        for (size_t j = 0; j < 2; j++) {
            struct io_fs *fs = fs_with_old();
            fault_fail_nth(fs, FAULT_ANY, i, codes[j], false);
            assert_int_equal(replace(fs, NEW), codes[j]);
            assert_old_or_new(fs, false);
            /* a second try gets through once what the first left is gone */
            fs->ops->unlink(fs, "/index/file.new");
            assert_int_equal(replace(fs, NEW), 0);
            assert_old_or_new(fs, true);
            fault_power_cut(fs, i);
            assert_old_or_new(fs, true);
            fault_fs_destroy(fs);
        }
}

static void test_replace_with_power_cuts(void **state)
{
    uint64_t n = calls_of(replace);
    unsigned seen_new = 0, seen_old = 0;
    (void)state;
    for (uint64_t i = 1; i <= n + 1; i++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct io_fs *fs = fs_with_old();
            fault_fail_nth(fs, FAULT_ANY, i, QUIRE_EIO, true);
            int rc = replace(fs, NEW);
            assert_int_equal(rc, i <= n ? QUIRE_EIO : 0);
            fault_power_cut(fs, seed);
            assert_old_or_new(fs, rc == 0);
            if (support_sections_check(fs, "/index/file", NEW, LARGE, FS_READ) == 0)
                seen_new++;
            else
                seen_old++;
            fault_fs_destroy(fs);
        }
    assert_true(seen_new > SEEDS && seen_old > SEEDS);
}

static void test_folder_with_power_cuts(void **state)
{
    uint64_t n = calls_of(publish_folder);
    (void)state;
    for (uint64_t i = 1; i <= n + 1; i++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct io_fs *fs = fs_with_old();
            fault_fail_nth(fs, FAULT_ANY, i, QUIRE_EIO, true);
            int rc = publish_folder(fs, NEW);
            fault_power_cut(fs, seed);
            int found = support_sections_check(fs, "/segment/file", NEW, LARGE, FS_READ);
            assert_true(found == 0 || (found == QUIRE_ENOFILE && rc < 0));
            /* absent means the folder as a whole, not a folder without its file */
            assert_int_equal(fs->ops->sync_dir(fs, "/segment"), found);
            assert_old_or_new(fs, false);
            fault_fs_destroy(fs);
        }
}

/* The test has teeth: without the sync of the data before the rename some seed must show a broken file. */
static void test_careless_writer_is_caught(void **state)
{
    unsigned broken = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct io_fs *fs = fault_fs_create();
        struct io_file *file = open_new(fs, "/new");
        uint8_t bytes[2048], found[2048];
        support_fill(bytes, sizeof bytes, 0, 1);
        assert_int_equal(fs_write_exact(file, bytes, sizeof bytes, 0, NULL), 0);
        fs_close(file);
        assert_int_equal(fs->ops->rename(fs, "/new", "/file"), 0);
        assert_int_equal(fs->ops->sync_dir(fs, "/"), 0);
        fault_power_cut(fs, seed);
        file = open_old(fs, "/file");
        broken +=
            fs->ops->read(file, found, sizeof found, 0) != sizeof found || memcmp(found, bytes, sizeof found) != 0;
        fs_close(file);
        fault_fs_destroy(fs);
    }
    assert_true(broken > 0 && broken < SEEDS);
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

struct order {
    unsigned n;
    int ended[16];
};

static void on_ended(struct io_op *op, int result, unsigned flags)
{
    struct order *order = op->owner;
    assert_int_equal(flags, 0);
    order->ended[order->n++] = result < 0 ? result : (int)op->offset;
}

static struct order run_reads(struct io_fs *fs, struct io_file *file, uint64_t seed, uint64_t fail_at)
{
    struct engine_config config = {.reads_max = 8};
    struct order order = {0};
    struct engine *engine;
    struct io_op ops[16];
    static uint8_t buffers[16][16];
    assert_int_equal(engine_fault_create(&config, seed, &engine, NULL), 0);
    fault_fail_nth(fs, FAULT_READ, fail_at, QUIRE_EIO, false);
    for (unsigned i = 0; i < 16; i++) {
        ops[i] = (struct io_op){.kind = IO_READ,
                                .file = file,
                                .buffer = buffers[i],
                                .bytes = 16,
                                .offset = i * 16,
                                .done = on_ended,
                                .owner = &order};
        engine_queue(engine, &ops[i]);
    }
    while (order.n < 16)
        assert_true(engine_poll(engine, 1, UINT64_MAX) > 0);
    assert_int_equal(engine_stats(engine)->read_errors, fail_at ? 1 : 0);
    engine_destroy(engine);
    return order;
}

static void test_engine_reorders(void **state)
{
    struct io_fs *fs = *state;
    struct io_file *file = open_new(fs, "/a");
    unsigned in_order = 0;
    assert_int_equal(fs->ops->truncate(file, 4096), 0);
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct order one = run_reads(fs, file, seed, 0), two = run_reads(fs, file, seed, 0);
        assert_memory_equal(one.ended, two.ended, sizeof one.ended);
        bool sorted = true;
        for (unsigned i = 1; i < 16; i++)
            sorted = sorted && one.ended[i] > one.ended[i - 1];
        in_order += sorted;
    }
    assert_true(in_order < 3);
    run_reads(fs, file, 3, 7);
    fs_close(file);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {ROW(test_cut_loses_unsynced_data),
                                       ROW(test_cut_that_loses_nothing),
                                       cmocka_unit_test(test_cut_tears_sectors),
                                       cmocka_unit_test(test_cut_ignores_order),
                                       cmocka_unit_test(test_cut_of_names),
                                       ROW(test_cut_of_unsynced_folder),
                                       ROW(test_rename_between_folders),
                                       ROW(test_fail_nth),
                                       ROW(test_failed_write_leaves_a_part),
                                       ROW(test_misdirected_and_short),
                                       ROW(test_capacity),
                                       ROW(test_flip_and_look),
                                       cmocka_unit_test(test_replace_with_failing_calls),
                                       cmocka_unit_test(test_replace_with_power_cuts),
                                       cmocka_unit_test(test_folder_with_power_cuts),
                                       cmocka_unit_test(test_careless_writer_is_caught),
                                       ROW(test_engine_reorders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
