/*
 * test_sections.c - the section container: what is written comes back, and what is damaged is found.
 *
 * Damage is done on a disk in memory (fault.h), a bit or a field at a time; forged superblocks get a right checksum, so
 * that the checks behind the checksum are reached. The round trip also runs on the operating system's files, with and
 * without direct I/O.
 */
#include "io/bytes.h"
#include "io/sections.h"
#include "support_contents.h"
#include "support_sections.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#define LARGE SUPPORT_LARGE_DEFAULT
#define SEED  1u
/* pages: superblock, small, large (5), self-checked (2) */
#define FILE_BYTES (9u * 4096)
#define AT_SMALL   4096u
#define AT_LARGE   8192u
#define AT_SELF    (7u * 4096)

static int setup(void **state)
{
    *state = fault_fs_create();
    assert_non_null(*state);
    return support_sections_write(*state, "/file", SEED, LARGE, NULL);
}

static int teardown(void **state)
{
    fault_fs_destroy(*state);
    return 0;
}

static int check(struct io_fs *fs)
{
    return support_sections_check(fs, "/file", SEED, LARGE, FS_READ | FS_DIRECT);
}

static int open_only(struct io_fs *fs, struct quire_error *err)
{
    struct section_file *file;
    int rc = section_file_open(fs, "/file", SUPPORT_KIND, support_segment_id, FS_READ, &file, err);
    if (rc == 0)
        section_file_close(file);
    return rc;
}

static void test_round_trip_on_disk(void **state)
{
    char *folder = support_folder_make(), *path = support_path(folder, "file");
    const uint64_t sizes[] = {0, 1, 4096, LARGE, (1u << 20) - 8192, (1u << 20) + 1, 3u << 20};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(support_sections_write(fs_real(), path, i, sizes[i], NULL), 0);
        assert_int_equal(support_sections_check(fs_real(), path, i, sizes[i], FS_READ), 0);
        assert_int_equal(support_sections_check(fs_real(), path, i, sizes[i], FS_READ | FS_DIRECT), 0);
        assert_int_equal(support_sections_check(fs_real(), path, i + 1, sizes[i], FS_READ), QUIRE_ECORRUPT);
        assert_int_equal(fs_real()->ops->unlink(fs_real(), path), 0);
    }
    free(path);
    support_folder_remove(folder);
}

static void test_what_a_file_tells(void **state)
{
    struct section_file *file;
    struct quire_error err;
    assert_int_equal(section_file_open(*state, "/file", SUPPORT_KIND, NULL, FS_READ, &file, &err), 0);
    assert_int_equal(section_count(file), 4);
    assert_int_equal(section_file_bytes(file), FILE_BYTES);
    assert_int_equal(section_file_io(file)->bytes, FILE_BYTES);
    assert_memory_equal(section_file_segment_id(file), support_segment_id, 16);
    assert_int_equal(section_at(file, 0)->offset, AT_SMALL);
    assert_int_equal(section_at(file, 1)->offset, AT_LARGE);
    assert_int_equal(section_at(file, 2)->offset, AT_SELF);
    assert_int_equal(section_at(file, 2)->checksum, 0);
    assert_null(section_at(file, 4));
    assert_null(section_find(file, 99));
    section_file_close(file);
    section_file_close(NULL);
}

static void test_read_part(void **state)
{
    const struct {
        uint64_t offset;
        size_t bytes;
    } rows[] = {{0, 0}, {0, 1}, {1, 5000}, {4095, 2}, {LARGE - 1, 1}, {LARGE, 0}, {0, LARGE}};
    struct section_file *file;
    struct quire_error err;
    static uint8_t buffer[LARGE];
    assert_int_equal(section_file_open(*state, "/file", SUPPORT_KIND, NULL, FS_READ | FS_DIRECT, &file, &err), 0);
    const struct section_entry *large = section_find(file, SUPPORT_LARGE);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(section_read(file, large, rows[i].offset, buffer, rows[i].bytes, &err), 0);
        assert_int_equal(support_differs(buffer, rows[i].bytes, rows[i].offset, SEED + SUPPORT_LARGE), rows[i].bytes);
    }
    assert_int_equal(section_read(file, large, LARGE, buffer, 1, &err), QUIRE_ERANGE);
    assert_int_equal(section_read(file, large, 1, buffer, LARGE, &err), QUIRE_ERANGE);
    assert_int_equal(section_read(file, large, UINT64_MAX, buffer, 2, &err), QUIRE_ERANGE);
    section_file_close(file);
}

static void test_refusals(void **state)
{
    const uint8_t other[16] = {9};
    struct section_file *file;
    struct section_writer *writer;
    struct quire_error err;
    assert_int_equal(section_file_open(*state, "/none", SUPPORT_KIND, NULL, FS_READ, &file, &err), QUIRE_ENOFILE);
    assert_non_null(strstr(err.message, "/none"));
    assert_int_equal(section_file_open(*state, "/file", 8, NULL, FS_READ, &file, &err), QUIRE_EFORMAT);
    assert_int_equal(section_file_open(*state, "/file", SUPPORT_KIND, other, FS_READ, &file, &err), QUIRE_ECORRUPT);
    assert_int_equal(section_writer_create(*state, "/file", 1, other, &writer, &err), QUIRE_EEXISTS);
    assert_int_equal(check(*state), 0);
}

static void test_too_many_sections(void **state)
{
    struct section_writer *writer;
    struct quire_error err;
    assert_int_equal(section_writer_create(*state, "/many", 1, support_segment_id, &writer, &err), 0);
    for (uint32_t i = 0; i < SECTIONS_MAX; i++) {
        assert_int_equal(section_begin(writer, i, 0, &err), 0);
        assert_int_equal(section_end(writer, &err), 0);
    }
    assert_int_equal(section_begin(writer, SECTIONS_MAX, 0, &err), QUIRE_ELIMIT);
    assert_int_equal(section_writer_finish(writer, &err), 0);
    struct section_file *file;
    assert_int_equal(section_file_open(*state, "/many", 1, NULL, FS_READ, &file, &err), 0);
    assert_int_equal(section_count(file), SECTIONS_MAX);
    section_file_close(file);
}

static void truncate_to(struct io_fs *fs, uint64_t bytes)
{
    struct io_file *file;
    assert_int_equal(fs_open(fs, "/file", FS_WRITE, &file, NULL), 0);
    assert_int_equal(fs->ops->truncate(file, bytes), 0);
    fs_close(file);
}

static void test_wrong_size(void **state)
{
    struct quire_error err;
    truncate_to(*state, FILE_BYTES + 1);
    assert_int_equal(open_only(*state, &err), QUIRE_EOVERSIZED);
    truncate_to(*state, FILE_BYTES + 4096);
    assert_int_equal(open_only(*state, &err), QUIRE_EOVERSIZED);
    truncate_to(*state, FILE_BYTES);
    assert_int_equal(check(*state), 0);
    const uint64_t sizes[] = {FILE_BYTES - 1, FILE_BYTES - 4096, 4096, 4095, 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        truncate_to(*state, sizes[i]);
        assert_int_equal(open_only(*state, &err), QUIRE_ETRUNCATED);
        assert_non_null(strstr(err.message, "/file"));
    }
    truncate_to(*state, 0);
    assert_int_equal(open_only(*state, &err), QUIRE_EFORMAT);
}

/* One bit of every byte of the superblock, flipped and flipped back. */
static void test_flips_in_superblock(void **state)
{
    for (uint64_t byte = 0; byte < 4096; byte++) {
        uint64_t bit = byte * 8 + byte % 8;
        assert_int_equal(fault_flip_bit(*state, "/file", bit), 0);
        int rc = open_only(*state, NULL);
        assert_int_equal(fault_flip_bit(*state, "/file", bit), 0);
        if (byte < 8)
            assert_int_equal(rc, QUIRE_EFORMAT);
        else if (byte < 12)
            assert_true(rc == QUIRE_EVERSION || rc == QUIRE_ECORRUPT);
        else
            assert_int_equal(rc, QUIRE_ECORRUPT);
    }
    assert_int_equal(check(*state), 0);
}

static int load_after_flip(struct io_fs *fs, uint64_t byte, uint32_t id, int *verified)
{
    struct section_file *file;
    static uint8_t buffer[LARGE];
    assert_int_equal(fault_flip_bit(fs, "/file", byte * 8 + 3), 0);
    assert_int_equal(section_file_open(fs, "/file", SUPPORT_KIND, NULL, FS_READ, &file, NULL), 0);
    int rc = section_load(file, section_find(file, id), buffer, NULL);
    *verified = section_verify(file, section_find(file, id), NULL);
    section_file_close(file);
    assert_int_equal(fault_flip_bit(fs, "/file", byte * 8 + 3), 0);
    return rc;
}

static void test_flips_in_sections(void **state)
{
    const struct {
        uint64_t byte;
        uint32_t id;
        int expected;
    } rows[] = {{AT_SMALL, SUPPORT_SMALL, QUIRE_ECORRUPT},
                {AT_SMALL + 9, SUPPORT_SMALL, QUIRE_ECORRUPT},
                {AT_SMALL + 10, SUPPORT_SMALL, 0}, /* padding */
                {AT_LARGE, SUPPORT_LARGE, QUIRE_ECORRUPT},
                {AT_LARGE + 12345, SUPPORT_LARGE, QUIRE_ECORRUPT},
                {AT_LARGE + LARGE - 1, SUPPORT_LARGE, QUIRE_ECORRUPT},
                {AT_LARGE + 1, SUPPORT_SMALL, 0}, /* another section */
                {AT_SELF, SUPPORT_SELF_CHECKED, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int verified;
        assert_int_equal(load_after_flip(*state, rows[i].byte, rows[i].id, &verified), rows[i].expected);
        assert_int_equal(verified, rows[i].expected);
    }
    assert_int_equal(check(*state), 0);
}

/* Changes a number of the superblock and makes its checksum right again. */
static void forge(struct io_fs *fs, unsigned at, unsigned width, uint64_t value)
{
    uint8_t block[4096];
    struct io_file *file;
    assert_int_equal(fs_open(fs, "/file", FS_WRITE, &file, NULL), 0);
    assert_int_equal(fs_read_exact(file, block, sizeof block, 0, NULL), 0);
    if (width == 4)
        bytes_store_u32(block + at, (uint32_t)value);
    else
        bytes_store_u64(block + at, value);
    bytes_store_u64(block + 4088, XXH3_64bits(block, 4088));
    assert_int_equal(fs_write_exact(file, block, sizeof block, 0, NULL), 0);
    fs_close(file);
}

static void test_forged_superblocks(void **state)
{
    const unsigned entry = 72 + 40; /* of the second section */
    const struct {
        unsigned at, width;
        uint64_t bad, good;
        int expected;
    } rows[] = {{8, 4, 2, 1, QUIRE_EVERSION},
                {8, 4, 0, 1, QUIRE_EVERSION},
                {40, 4, SECTIONS_MAX + 1, 4, QUIRE_ECORRUPT},
                {40, 4, UINT32_MAX, 4, QUIRE_ECORRUPT},
                {32, 8, FILE_BYTES + 4096, FILE_BYTES, QUIRE_ETRUNCATED},
                {32, 8, 4096, FILE_BYTES, QUIRE_EOVERSIZED},
                {entry + 8, 8, AT_LARGE + 512, AT_LARGE, QUIRE_ECORRUPT},    /* not aligned */
                {entry + 8, 8, 0, AT_LARGE, QUIRE_ECORRUPT},                 /* in the superblock */
                {entry + 8, 8, AT_SMALL, AT_LARGE, QUIRE_ECORRUPT},          /* over the first */
                {entry + 8, 8, FILE_BYTES + 4096, AT_LARGE, QUIRE_ECORRUPT}, /* outside */
                {entry + 16, 8, FILE_BYTES, LARGE, QUIRE_ECORRUPT},
                {entry + 16, 8, UINT64_MAX, LARGE, QUIRE_ECORRUPT},
                {entry + 16, 8, 6 * 4096, LARGE, QUIRE_ECORRUPT}}; /* into the third */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct quire_error err = {0};
        forge(*state, rows[i].at, rows[i].width, rows[i].bad);
        assert_int_equal(open_only(*state, &err), rows[i].expected);
        assert_non_null(strstr(err.message, "/file"));
        forge(*state, rows[i].at, rows[i].width, rows[i].good);
    }
    assert_int_equal(check(*state), 0);
}

static void test_no_space_leaves_nothing(void **state)
{
    const uint64_t rooms[] = {0, 4096, 1u << 20, 3u << 20};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        struct quire_error err = {0};
        struct io_file *file;
        fault_capacity(*state, FILE_BYTES + rooms[i]);
        assert_int_equal(support_sections_write(*state, "/full", SEED, 4u << 20, &err), QUIRE_ENOSPACE);
        assert_non_null(strstr(err.message, "/full"));
        assert_non_null(strstr(err.message, "make room"));
        assert_int_equal(fs_open(*state, "/full", FS_READ, &file, NULL), QUIRE_ENOFILE);
    }
    fault_capacity(*state, UINT64_MAX);
    assert_int_equal(support_sections_write(*state, "/full", SEED, 4u << 20, NULL), 0);
    assert_int_equal(check(*state), 0);
}

/* finish of a writer that failed before gives the first error again and removes the file. */
static void test_finish_after_failure(void **state)
{
    static uint8_t data[2u << 20];
    struct section_writer *writer;
    struct quire_error err;
    struct io_file *file;
    assert_int_equal(section_writer_create(*state, "/half", 1, support_segment_id, &writer, &err), 0);
    assert_int_equal(section_begin(writer, 1, 0, &err), 0);
    fault_fail_nth(*state, FAULT_WRITE, 1, QUIRE_EIO, false);
    assert_int_equal(section_write(writer, data, sizeof data, &err), QUIRE_EIO);
    assert_int_equal(section_write(writer, data, 1, &err), QUIRE_EIO);
    assert_int_equal(section_end(writer, &err), QUIRE_EIO);
    assert_int_equal(section_writer_finish(writer, &err), QUIRE_EIO);
    assert_int_equal(fs_open(*state, "/half", FS_READ, &file, NULL), QUIRE_ENOFILE);
}

static void test_short_and_misdirected(void **state)
{
    struct quire_error err = {0};
    fault_short_read_nth(*state, 1);
    assert_int_equal(open_only(*state, &err), QUIRE_ESHORTREAD);
    fault_misdirect_nth(*state, 1, 4096);
    assert_int_equal(support_sections_write(*state, "/moved", SEED, LARGE, NULL), 0);
    assert_true(support_sections_check(*state, "/moved", SEED, LARGE, FS_READ) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip_on_disk),
                                       cmocka_unit_test_setup_teardown(test_what_a_file_tells, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_read_part, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_too_many_sections, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_wrong_size, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_flips_in_superblock, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_flips_in_sections, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_forged_superblocks, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_no_space_leaves_nothing, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_finish_after_failure, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_short_and_misdirected, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
