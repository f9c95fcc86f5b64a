/*
 * test_posting_block.c - the bytes of an inverted list: what is written is read again, and nothing else is believed.
 *
 * Shapes are checked against docs/format.md's rules, said once more here. Every byte of a small posting is damaged in
 * turn under its own checksum, and every field of the header under a right one.
 */
#include "index/format/posting_block.h"
#include "io/bytes.h"
#include "io/error.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#define ROWS    1000u
#define NUMBER  7u
#define ENTRIES 45u
#define OWN     40u
#define FIRST   100u
#define DIM     64u
#define BITS    4u

static const uint8_t id[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const struct list_entry entry = {3, ENTRIES, FIRST, OWN, 1.5f, 2.5f};
static const uint32_t replicas[ENTRIES - OWN] = {0, 99, 140, 500, ROWS - 1};

static uint8_t *make(struct posting_block_shape *shape)
{
    assert_true(posting_block_shape(ENTRIES, OWN, DIM, BITS, shape));
    uint8_t *posting = calloc(1, shape->bytes), code[DIM * BITS / 8];
    assert_non_null(posting);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        for (uint32_t b = 0; b < sizeof code; b++)
            code[b] = (uint8_t)(i * 31 + b * 7);
        code_group_put(posting + shape->groups + i / CODE_GROUP * shape->group_bytes, i % CODE_GROUP, code, DIM, BITS);
        bytes_store_u32(posting + shape->factors + 4 * i, i + 1);
        if (i >= OWN)
            bytes_store_u32(posting + shape->ids + 4 * (i - OWN), replicas[i - OWN]);
    }
    posting_block_seal(posting, NUMBER, &entry, BITS, shape, id);
    return posting;
}

static int open_it(const uint8_t *posting, const struct list_entry *e, const uint8_t *segment_id, char *message)
{
    struct posting_block_view view;
    struct quire_error err = {0};
    int rc = posting_block_open(posting, NUMBER, e, DIM, BITS, ROWS, segment_id, &view, &err);
    assert_true(rc == 0 || err.message[0]);
    if (message)
        strcpy(message, err.message);
    return rc;
}

/* Makes the checksum right again as the format says it. */
static void seal_again(uint8_t *posting, const struct posting_block_shape *shape)
{
    uint64_t seed = XXH3_64bits_withSeed(posting, 16, bytes_load_u64(id));
    bytes_store_u64(posting + 16, XXH3_64bits_withSeed(posting + 24, shape->bytes - 24, seed));
}

static void test_shapes(void **state)
{
    (void)state;
    for (unsigned bits = 1; bits <= 4; bits *= 2)
        for (uint32_t dim = 32; dim <= 1024; dim *= 2)
            for (uint32_t n = 1; n < 300; n += 7) {
                struct posting_block_shape s;
                uint32_t own = n / 2 + 1, groups = (n + 31) / 32;
                assert_true(posting_block_shape(n, own, dim, bits, &s));
                assert_int_equal(s.ids, 64);
                assert_int_equal(s.factors, 64 + (4 * (n - own) + 63) / 64 * 64);
                assert_int_equal(s.groups, s.factors + 128 * groups);
                assert_int_equal(s.group_bytes, 32 * dim * bits / 8);
                assert_int_equal(s.bytes, (s.groups + groups * s.group_bytes + 4095) / 4096 * 4096);
            }
}

static void test_largest(void **state)
{
    struct posting_block_shape s;
    (void)state;
    uint32_t fit = posting_block_entries_that_fit(POSTING_BYTES_MAX, DIM, BITS);
    assert_true(posting_block_shape(fit, fit / 2, DIM, BITS, &s) && s.bytes <= POSTING_BYTES_MAX);
    assert_false(posting_block_shape(fit + CODE_GROUP, (fit + CODE_GROUP) / 2, DIM, BITS, &s));
    assert_false(posting_block_shape(UINT32_MAX, 1, 16384, 4, &s));
    struct list_entry huge = {0, UINT32_MAX, 0, 1, 0, 0};
    uint8_t posting[64] = {0};
    char message[256];
    assert_int_equal(open_it(posting, &huge, id, message), QUIRE_ECORRUPT);
    assert_non_null(strstr(message, "4294967295 entries"));
}

static void test_round_trip(void **state)
{
    struct posting_block_shape shape;
    struct posting_block_view view;
    struct quire_error err = {0};
    uint8_t *posting = make(&shape), code[DIM * BITS / 8];
    (void)state;
    assert_int_equal(posting_block_open(posting, NUMBER, &entry, DIM, BITS, ROWS, id, &view, &err), 0);
    assert_int_equal(view.entries, ENTRIES);
    assert_int_equal(view.own, OWN);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        assert_int_equal(posting_block_row(&view, i), i < OWN ? FIRST + i : replicas[i - OWN]);
        code_group_get(view.groups + i / CODE_GROUP * view.group_bytes, i % CODE_GROUP, DIM, BITS, code);
        for (uint32_t b = 0; b < sizeof code; b++)
            assert_int_equal(code[b], (uint8_t)(i * 31 + b * 7));
        assert_int_equal(bytes_load_u32(view.factors + 4 * i), i + 1);
    }
    free(posting);
}

static void test_directory_lines(void **state)
{
    uint8_t bytes[LIST_ENTRY_BYTES];
    struct list_entry out;
    (void)state;
    posting_list_encode(&entry, bytes);
    posting_list_decode(bytes, &out);
    assert_memory_equal(&out, &entry, sizeof out);
    assert_int_equal(bytes_load_u32(bytes), 3);
    assert_int_equal(bytes_load_u32(bytes + 4), ENTRIES);
    assert_int_equal(bytes_load_u32(bytes + 8), FIRST);
    assert_int_equal(bytes_load_u32(bytes + 12), OWN);
}

static void test_every_byte(void **state)
{
    struct posting_block_shape shape;
    uint8_t *posting = make(&shape);
    (void)state;
    for (uint32_t at = 0; at < shape.bytes; at++) {
        posting[at] ^= (uint8_t)(1u << at % 8);
        assert_int_equal(open_it(posting, &entry, id, NULL), QUIRE_ECORRUPT);
        posting[at] ^= (uint8_t)(1u << at % 8);
    }
    assert_int_equal(open_it(posting, &entry, id, NULL), 0);
    free(posting);
}

/* The checksum names list and segment: a neighbour's posting and another index's are not believed. */
static void test_of_another(void **state)
{
    static const uint8_t other[16] = {9};
    struct posting_block_shape shape;
    struct posting_block_view view;
    struct quire_error err = {0};
    uint8_t *posting = make(&shape);
    (void)state;
    assert_int_equal(open_it(posting, &entry, other, NULL), QUIRE_ECORRUPT);
    assert_int_equal(posting_block_open(posting, NUMBER + 1, &entry, DIM, BITS, ROWS, id, &view, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "list 7"));
    assert_int_equal(posting_block_open(posting, NUMBER, &entry, DIM, 2, ROWS, id, &view, &err), QUIRE_ECORRUPT);
    free(posting);
}

/* Fields that a forger changed under a right checksum. */
static void test_forged_header(void **state)
{
    static const struct {
        uint32_t at, value;
        const char *sentence;
    } forged[] = {
        {4, 1, "kind 1"},          {4, 0x902, "version 9"},   {8, 8, "list 8"},    {12, ENTRIES + 1, "46 entries"},
        {24, FIRST + 1, "101 + "}, {28, OWN + 1, "100 + 41"}, {32, 2, ", 2 bits"}, {36, 1 << 20, "it says"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        struct posting_block_shape shape;
        char message[256];
        uint8_t *posting = make(&shape);
        bytes_store_u32(posting + forged[i].at, forged[i].value);
        seal_again(posting, &shape);
        assert_int_equal(open_it(posting, &entry, id, message), QUIRE_ECORRUPT);
        if (!strstr(message, forged[i].sentence))
            fail_msg("\"%s\" is not in \"%s\"", forged[i].sentence, message);
        free(posting);
    }
}

static void test_forged_replicas(void **state)
{
    /* out of range; of the list's own; the same twice; descending */
    static const uint32_t wrong[][2] = {{4, ROWS}, {4, UINT32_MAX}, {2, FIRST}, {2, FIRST + OWN - 1}, {3, 140}, {3, 7}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct posting_block_shape shape;
        char message[256];
        uint8_t *posting = make(&shape);
        bytes_store_u32(posting + shape.ids + 4 * wrong[i][0], wrong[i][1]);
        seal_again(posting, &shape);
        assert_int_equal(open_it(posting, &entry, id, message), QUIRE_ECORRUPT);
        assert_non_null(strstr(message, "replica"));
        free(posting);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_directory_lines),
        cmocka_unit_test(test_every_byte),    cmocka_unit_test(test_of_another),
        cmocka_unit_test(test_forged_header), cmocka_unit_test(test_forged_replicas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
