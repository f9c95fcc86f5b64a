/*
 * test_verify_bytes.c - quire_verify proves every byte: in small indexes of both kinds, with all files that there are,
 * byte after byte is changed, and each change is found. A prime stride takes some of them each time; QUIRE_EVERY_BYTE=1
 * takes all (two minutes).
 */
#include "index/column/columns.h"
#include "index/format/format.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROWS = 60, DIM = 8, STRIDE = SANITIZED_SIZE(23, 199), LONG_KEY = 100 };

static void ignore(void *context, const char *sentence)
{
    (void)sentence;
    ++*(unsigned *)context;
}

static void build(const char *path, enum quire_index_kind kind, const struct support_data *data)
{
    static char keys[ROWS][LONG_KEY + 1], attributes[ROWS][48];
    const void *key[ROWS];
    const char *attribute[ROWS];
    uint32_t key_bytes[ROWS], attribute_bytes[ROWS];
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    for (uint32_t i = 0; i < ROWS; i++) {
        key_bytes[i] = (uint32_t)snprintf(keys[i], sizeof keys[i], "key-%u", i);
        if (i % 7 == 3) {
            memset(keys[i] + key_bytes[i], 'x', LONG_KEY - key_bytes[i]);
            key_bytes[i] = LONG_KEY - i % 11;
        }
        attribute_bytes[i] =
            (uint32_t)snprintf(attributes[i], sizeof attributes[i], "{\"n\":%u,\"w\":\"%c\"}", i, 'a' + i % 3);
        key[i] = keys[i];
        attribute[i] = i % 5 ? attributes[i] : NULL;
    }
    options.index = kind;
    options.list_rows = kind == QUIRE_INDEX_SPANN ? 8 : 0;
    options.block_bytes = 4096;
    options.keys = key;
    options.key_bytes = key_bytes;
    options.attributes = attribute;
    options.attribute_bytes = attribute_bytes;
    support_build(path, data, &options);
}

static void every_byte_is_proved(enum quire_index_kind kind)
{
    static const char *const names[] = {META_NAME,       BLOCKS_NAME,  CODES_NAME,   KEYS_NAME,
                                        ATTRIBUTES_NAME, COLUMNS_NAME, POSTINGS_NAME};
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct support_data data;
    struct quire_error err = {0};
    unsigned findings = 0;
    uint64_t step = getenv("QUIRE_EVERY_BYTE") ? 1 : STRIDE, n = 0, missed = 0;
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 5, &data);
    build(path, kind, &data);
    if (quire_verify(path, ignore, NULL, &findings, NULL, &err) < 0)
        fail_msg("the sound index: %s", err.message);
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        char *file = support_path(path, names[f]);
        int fd = open(file, O_RDWR | O_CLOEXEC);
        if (fd < 0 && kind != QUIRE_INDEX_SPANN && strcmp(names[f], POSTINGS_NAME) == 0) {
            free(file);
            continue;
        }
        assert_true(fd >= 0);
        off_t bytes = lseek(fd, 0, SEEK_END);
        for (off_t at = (off_t)f; at < bytes; at += (off_t)step, n++) {
            uint8_t sound, changed;
            assert_int_equal(pread(fd, &sound, 1, at), 1);
            changed = sound ^ (uint8_t)(1u << (unsigned)at % 8);
            assert_int_equal(pwrite(fd, &changed, 1, at), 1);
            if (quire_verify(path, ignore, NULL, &findings, NULL, &err) == 0 && missed++ < 10)
                fprintf(stderr, "byte %lld of %s is proved by nothing\n", (long long)at, names[f]);
            assert_int_equal(pwrite(fd, &sound, 1, at), 1);
        }
        close(fd);
        free(file);
    }
    fprintf(stderr, "%llu bytes changed, %llu not found\n", (unsigned long long)n, (unsigned long long)missed);
    assert_int_equal(missed, 0);
    assert_int_equal(quire_verify(path, ignore, NULL, &findings, NULL, &err), 0);
    support_data_free(&data);
    free(path);
    support_folder_remove(folder);
}

static void page_graph(void **state)
{
    (void)state;
    every_byte_is_proved(QUIRE_INDEX_PAGEGRAPH);
}

static void inverted_lists(void **state)
{
    (void)state;
    every_byte_is_proved(QUIRE_INDEX_SPANN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(page_graph), cmocka_unit_test(inverted_lists)};
    support_folder_in_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
