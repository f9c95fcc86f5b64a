/* test_names.c - short keys in memory: read back as written, long ones left out, damage refused. */
#include "index/segment/names.h"
#include "io/random.h"
#include "io/sections.h"
#include "tests/index/support_index.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 3000u

static const uint8_t id[16] = "names";

static int read_back(const char *path, uint64_t rows, struct names **out, struct quire_error *err)
{
    struct section_file *file = NULL;
    assert_int_equal(section_file_open(fs_real(), path, FILE_CODES, id, FS_READ, &file, err), 0);
    int rc = names_open(file, rows, out, err);
    section_file_close(file);
    return rc;
}

/* Keys of 1 to 100 bytes, any bytes; rows in another order than the input. */
static void test_read_back(void **state)
{
    char *folder = support_folder_make(), *path = support_path(folder, "codes");
    const void **keys = malloc(sizeof *keys * ROWS);
    uint32_t *key_bytes = malloc(sizeof *key_bytes * ROWS), *order = malloc(sizeof *order * ROWS), n_long = 0;
    uint8_t *bytes = malloc(100 * ROWS);
    struct section_writer *writer = NULL;
    struct names *names = NULL;
    struct quire_error err;
    struct random random;
    (void)state;
    assert_true(keys && key_bytes && order && bytes);
    random_init(&random, 11);
    for (uint32_t i = 0; i < 100 * ROWS; i++)
        bytes[i] = (uint8_t)random_next(&random);
    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = bytes + 100 * (size_t)i;
        key_bytes[i] = 1 + (uint32_t)random_below(&random, 100);
        order[i] = (i * 7 + 3) % ROWS; /* 7 and 3,000 have no divisor in common */
    }
    assert_int_equal(section_writer_create(fs_real(), path, FILE_CODES, id, &writer, &err), 0);
    int rc = names_write(writer, keys, key_bytes, order, ROWS, &err);
    assert_int_equal(section_writer_conclude(writer, rc, &err), 0);
    assert_int_equal(read_back(path, ROWS, &names, &err), 0);
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t n = 77, input = order[row];
        const uint8_t *name = names_get(names, row, &n);
        if (key_bytes[input] > NAMES_BYTES_MAX) {
            assert_null(name);
            n_long++;
        } else {
            assert_int_equal(n, key_bytes[input]);
            assert_memory_equal(name, keys[input], n);
        }
    }
    assert_true(n_long > ROWS / 4 && n_long < ROWS / 2);
    names_close(names);
    /* of other rows than there are */
    names = NULL;
    assert_int_equal(read_back(path, ROWS - 1, &names, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "names of"));
    assert_null(names);
    free(keys);
    free(key_bytes);
    free(order);
    free(bytes);
    free(path);
    support_folder_remove(folder);
}

static void test_damage(void **state)
{
    static const uint8_t longer[] = {3, 70, 'a', 'b', 'c'}, shorter[] = {3, 2, 'a', 'b', 'c'};
    char *folder = support_folder_make(), *path = support_path(folder, "codes");
    const uint8_t *const all[] = {longer, shorter};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(all); i++) {
        struct section_writer *writer = NULL;
        struct names *names = NULL;
        struct quire_error err;
        assert_int_equal(section_writer_create(fs_real(), path, FILE_CODES, id, &writer, &err), 0);
        int rc = section_put(writer, CODES_NAMES, all[i], 5, &err);
        assert_int_equal(section_writer_conclude(writer, rc, &err), 0);
        assert_int_equal(read_back(path, 2, &names, &err), QUIRE_ECORRUPT);
        assert_int_equal(read_back(path, 6, &names, &err), QUIRE_ECORRUPT); /* fewer bytes than rows */
        assert_null(names);
        remove(path);
    }
    free(path);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read_back), cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
