/* test_numbers.c - packed row numbers: every width, read back as written, refused where they are none of so many. */
#include "index/segment/numbers.h"
#include "io/bytes.h"
#include "io/random.h"
#include "io/sections.h"
#include "tests/index/support_index.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t id[16] = "numbers";

static int read_back(const char *path, uint64_t rows, struct numbers **out, struct quire_error *err)
{
    struct section_file *file = NULL;
    assert_int_equal(section_file_open(fs_real(), path, FILE_CODES, id, FS_READ, &file, err), 0);
    int rc = numbers_open(file, rows, out, err);
    section_file_close(file);
    return rc;
}

static void write_numbers(const char *path, const uint32_t *of, uint32_t rows)
{
    struct section_writer *writer = NULL;
    struct quire_error err;
    assert_int_equal(section_writer_create(fs_real(), path, FILE_CODES, id, &writer, &err), 0);
    assert_int_equal(section_writer_conclude(writer, numbers_write(writer, of, rows, &err), &err), 0);
}

static void test_bits(void **state)
{
    (void)state;
    assert_int_equal(numbers_bits(1), 1);
    assert_int_equal(numbers_bits(2), 1);
    assert_int_equal(numbers_bits(3), 2);
    assert_int_equal(numbers_bits(256), 8);
    assert_int_equal(numbers_bits(257), 9);
    assert_int_equal(numbers_bits(QUIRE_ROWS_MAX), 32);
    assert_int_equal(numbers_bytes_of(1000), 1000 * 10 / 8 + 8);
}

static void test_read_back(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 5, 31, 255, 257, 1000, 4097, 70001};
    char *folder = support_folder_make(), *path = support_path(folder, "codes");
    struct random random;
    (void)state;
    random_init(&random, 7);
    for (size_t c = 0; c < SUPPORT_COUNT(counts); c++) {
        uint32_t rows = counts[c], *of = malloc(sizeof *of * rows);
        struct numbers *numbers = NULL;
        struct quire_error err = {0};
        assert_non_null(of);
        for (uint32_t i = 0; i < rows; i++)
            of[i] = i;
        for (uint32_t i = rows; i-- > 1;) {
            uint32_t j = (uint32_t)random_below(&random, i + 1), swap = of[i];
            of[i] = of[j];
            of[j] = swap;
        }
        write_numbers(path, of, rows);
        assert_int_equal(read_back(path, rows, &numbers, &err), 0);
        for (uint32_t i = 0; i < rows; i++)
            assert_int_equal(numbers_get(numbers, i), of[i]);
        numbers_close(numbers);
        free(of);
        remove(path);
    }
    free(path);
    support_folder_remove(folder);
}

/* Five rows have three bits each, which can hold 7. */
static void test_refused(void **state)
{
    char *folder = support_folder_make(), *path = support_path(folder, "codes");
    struct section_writer *writer = NULL;
    struct numbers *numbers = NULL;
    struct quire_error err = {0};
    uint8_t bytes[10] = {0x07};
    (void)state;
    assert_int_equal(section_writer_create(fs_real(), path, FILE_CODES, id, &writer, &err), 0);
    assert_int_equal(section_writer_conclude(writer, section_put(writer, CODES_NUMBERS, bytes, 10, &err), &err), 0);
    assert_int_equal(read_back(path, 5, &numbers, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "row 0 has number 7 of 5"));
    assert_int_equal(read_back(path, 6000, &numbers, &err), QUIRE_ECORRUPT); /* too short for so many */
    assert_null(numbers);
    free(path);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_read_back),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
