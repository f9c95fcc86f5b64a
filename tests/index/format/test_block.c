/*
 * test_block.c - a block comes back as it was written, and no changed bit goes unseen.
 *
 * Decoders are also fed blocks whose checksum is right but whose content is not: a writer's bug or a forger's work must
 * end in QUIRE_ECORRUPT, never in a read outside the block (the sanitizers watch: blocks are allocated to their size).
 */
#include "index/format/block.h"
#include "io/bytes.h"
#include "io/random.h"
#include "tests/index/support_index.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#define BYTES        4096u
#define SLOTS        9u
#define SLOT_BYTES   33u
#define FACTOR_BYTES 8u
#define EDGES        150u
#define LIST_SLOTS   4u /* so three lists, the last of one slot */
#define LISTS        3u
#define LIST_EDGES   (EDGES / LISTS)
#define CODE_BYTES   12u

static const uint8_t segment[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

struct content {
    uint32_t ids[SLOTS], edges[EDGES];
    uint8_t slots[SLOTS * SLOT_BYTES], factors[SLOTS * FACTOR_BYTES];
    uint8_t encoded[EDGES * 5 + LISTS * BLOCK_LIST_HEADER_BYTES], codes[EDGES * CODE_BYTES],
        keys[SLOTS * (BLOCK_KEY_INLINE_MAX + 11)];
    char key_text[SLOTS][BLOCK_KEY_INLINE_MAX];
    uint32_t key_bytes[SLOTS];
    struct block_parts parts;
};

/* Lists of LIST_EDGES edges each, encoded as a part. */
static uint32_t encode_lists(struct content *c)
{
    uint32_t at = LISTS * BLOCK_LIST_HEADER_BYTES;
    for (uint32_t l = 0; l < LISTS; l++) {
        uint32_t bytes = block_edges_encode(c->edges + l * LIST_EDGES, LIST_EDGES, 12 * SLOTS, c->encoded + at);
        block_list_header(LIST_EDGES, bytes, c->encoded + l * BLOCK_LIST_HEADER_BYTES);
        at += bytes;
    }
    return at;
}

static void make_content(struct content *c, bool with_keys)
{
    struct random random;
    random_init(&random, 99);
    memset(c, 0, sizeof *c);
    uint32_t row = 0, keys_bytes = 0;
    for (uint32_t i = 0; i < EDGES; i++) {
        row =
            i % LIST_EDGES ? row : (uint32_t)random_below(&random, 200); /* first rows before and behind the block's */
        c->edges[i] = row += 1 + (uint32_t)random_below(&random, i % 10 ? 100 : 9000000);
    }
    for (size_t i = 0; i < sizeof c->codes; i++)
        c->codes[i] = (uint8_t)random_next(&random);
    for (size_t i = 0; i < sizeof c->slots; i++)
        c->slots[i] = (uint8_t)random_next(&random);
    for (size_t i = 0; i < sizeof c->factors; i++)
        c->factors[i] = (uint8_t)random_next(&random);
    for (uint32_t i = 0; i < SLOTS; i++) {
        c->ids[i] = (uint32_t)random_next(&random);
        c->key_bytes[i] = i == 4 ? 50000 : i == 5 ? BLOCK_KEY_INLINE_MAX : 1 + i;
        memset(c->key_text[i], 'a' + (int)i, sizeof c->key_text[i]);
        keys_bytes +=
            block_key_encode(c->key_text[i], c->key_bytes[i], i == 4, 0x123456789abcull, c->keys + keys_bytes);
    }
    c->parts = (struct block_parts){.number = 12,
                                    .first_row = 12 * SLOTS,
                                    .n_slots = SLOTS,
                                    .ids = c->ids,
                                    .slots = c->slots,
                                    .slot_bytes = SLOT_BYTES,
                                    .factors = c->factors,
                                    .factor_bytes = FACTOR_BYTES,
                                    .edges = c->encoded,
                                    .n_edges = EDGES,
                                    .edges_bytes = encode_lists(c),
                                    .list_slots = LIST_SLOTS,
                                    .edge_codes = c->codes,
                                    .edge_code_bytes = CODE_BYTES};
    if (with_keys) {
        c->parts.keys = c->keys;
        c->parts.keys_bytes = keys_bytes;
    }
}

static uint8_t *write_block(const struct content *c)
{
    uint8_t *block = malloc(BYTES);
    assert_non_null(block);
    block_write(block, BYTES, &c->parts, segment);
    return block;
}

static const struct block_shape shape = {BYTES, SLOT_BYTES, FACTOR_BYTES, CODE_BYTES};

static int open_block(const uint8_t *block, struct block_view *view, struct quire_error *err)
{
    return block_open(block, &shape, 12, segment, view, err);
}

/* As a writer would seal it: the checksum of block.h, computed here from its description. */
static void reseal(uint8_t *block)
{
    uint64_t head = XXH3_64bits_withSeed(block, 16, bytes_load_u64(segment));
    bytes_store_u64(block + 16, XXH3_64bits_withSeed(block + 24, BYTES - 24, head));
}

static void check_view(const struct content *c, const struct block_view *view)
{
    uint32_t edges[EDGES];
    assert_int_equal(view->number, 12);
    assert_int_equal(view->first_row, 12 * SLOTS);
    assert_int_equal(view->n_slots, SLOTS);
    for (size_t i = 0; i < SLOTS; i++)
        assert_int_equal(bytes_load_u32(view->ids + 4 * i), c->ids[i]);
    assert_memory_equal(view->slots, c->slots, sizeof c->slots);
    assert_memory_equal(view->factors, c->factors, sizeof c->factors);
    assert_int_equal(view->n_edges, EDGES);
    assert_int_equal(view->n_lists, LISTS);
    for (uint32_t l = 0; l < LISTS; l++) {
        uint32_t before;
        assert_int_equal(block_edges(view, l, edges, &before), LIST_EDGES);
        assert_int_equal(before, l * LIST_EDGES);
        assert_memory_equal(edges, c->edges + before, sizeof *edges * LIST_EDGES);
    }
    assert_memory_equal(view->edge_codes, c->codes, sizeof c->codes);
}

static void test_round_trip(void **state)
{
    struct content c;
    struct block_view view;
    (void)state;
    for (int with_keys = 0; with_keys < 2; with_keys++) {
        make_content(&c, with_keys);
        uint8_t *block = write_block(&c);
        assert_int_equal(open_block(block, &view, NULL), 0);
        check_view(&c, &view);
        assert_true((view.keys != NULL) == with_keys);
        for (uint32_t i = 0; i < SLOTS && with_keys; i++) {
            struct block_key key;
            assert_int_equal(block_key(&view, i, &key), 0);
            assert_int_equal(key.length, c.key_bytes[i]);
            assert_true((key.bytes == NULL) == (i == 4));
            if (key.bytes)
                assert_memory_equal(key.bytes, c.key_text[i], key.length);
            else
                assert_int_equal(key.external_at, 0x123456789abcull);
        }
        free(block);
    }
}

static void test_layout_is_documented(void **state)
{
    struct content c;
    (void)state;
    make_content(&c, true);
    uint8_t *block = write_block(&c);
    assert_memory_equal(block, "QBLK", 4);
    assert_int_equal(bytes_load_u32(block + 8), 12);
    assert_int_equal(bytes_load_u32(block + 12), SLOTS);
    assert_int_equal(bytes_load_u32(block + 28), EDGES);
    assert_int_equal(bytes_load_u16(block + 6), LIST_SLOTS);
    assert_memory_equal(block + bytes_load_u32(block + 36), c.codes, sizeof c.codes);
    uint64_t checksum = bytes_load_u64(block + 16);
    reseal(block);
    assert_true(checksum == bytes_load_u64(block + 16));
    assert_true(block_fixed_bytes(SLOTS, SLOT_BYTES, FACTOR_BYTES, c.parts.keys_bytes) + c.parts.edges_bytes +
                    sizeof c.codes <=
                BYTES);
    free(block);
}

static void test_every_bit_counts(void **state)
{
    struct content c;
    struct block_view view;
    (void)state;
    make_content(&c, true);
    uint8_t *block = write_block(&c);
    for (uint32_t bit = 0; bit < BYTES * 8; bit++) {
        struct quire_error err = {0};
        block[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(open_block(block, &view, &err), QUIRE_ECORRUPT);
        assert_true(err.code == QUIRE_ECORRUPT && err.message[0]);
        block[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(open_block(block, &view, NULL), 0);
    free(block);
}

static void test_wrong_place_or_segment(void **state)
{
    struct content c;
    struct block_view view;
    uint8_t other[16];
    (void)state;
    make_content(&c, false);
    uint8_t *block = write_block(&c);
    memcpy(other, segment, sizeof other);
    other[0]++;
    assert_int_equal(block_open(block, &shape, 13, segment, &view, NULL), QUIRE_ECORRUPT);
    assert_int_equal(block_open(block, &shape, 12, other, &view, NULL), QUIRE_ECORRUPT);
    memset(block, 0, BYTES);
    assert_int_equal(open_block(block, &view, NULL), QUIRE_ECORRUPT);
    free(block);
}

static void test_newer_version(void **state)
{
    struct content c;
    struct block_view view;
    (void)state;
    make_content(&c, false);
    uint8_t *block = write_block(&c);
    block[5] = BLOCK_FORMAT_VERSION + 1;
    reseal(block);
    assert_int_equal(open_block(block, &view, NULL), QUIRE_EVERSION);
    free(block);
}

/* Random header fields under a right checksum: refused, or everything that can be asked of the view stays inside. */
static void test_forged_blocks(void **state)
{
    struct content c;
    struct random random;
    unsigned opened = 0;
    (void)state;
    random_init(&random, 4);
    make_content(&c, true);
    for (unsigned round = 0; round < 30000; round++) {
        uint8_t *block = write_block(&c);
        for (uint64_t n = 1 + random_below(&random, 3); n > 0; n--) {
            uint32_t at =
                round % 2 ? 8 + 4 * (uint32_t)random_below(&random, 14) : (uint32_t)random_below(&random, BYTES - 4);
            uint64_t value = random_next(&random);
            bytes_store_u32(block + at, round % 3 ? (uint32_t)value % (BYTES + 9) : (uint32_t)value);
        }
        bytes_store_u32(block + 8, 12);
        memcpy(block, "QBLK\1\2", 6);
        reseal(block);
        struct block_view view;
        struct block_key key;
        if (open_block(block, &view, NULL) == 0) {
            opened++;
            uint32_t *edges = malloc(sizeof *edges * (view.n_edges + 1));
            assert_non_null(edges);
            int rc = 0;
            for (uint32_t l = 0; l < view.n_lists; l++) {
                uint32_t before;
                rc = block_edges(&view, l, edges, &before);
                assert_true(rc == QUIRE_ECORRUPT || (rc >= 0 && before + (uint32_t)rc <= view.n_edges));
            }
            for (uint32_t i = 0; i < view.n_slots && view.keys; i++) {
                rc = block_key(&view, i, &key);
                assert_true(rc == 0 || rc == QUIRE_ECORRUPT);
                if (rc == 0 && key.bytes)
                    assert_true(key.bytes >= block && key.bytes + key.length <= block + BYTES);
            }
            free(edges);
        }
        free(block);
    }
    assert_true(opened > 1000);
}

/* A block with one list of n edges in `bytes`. */
static struct block_view one_list(const uint8_t *bytes, uint32_t n, uint32_t first_row)
{
    return (struct block_view){.edges = bytes, .n_edges = n, .n_lists = 1, .list_slots = 1, .first_row = first_row};
}

static void test_edges_encode(void **state)
{
    static const uint32_t rows[] = {0, 1, 128, 129, 16511, 2113663, 270549119, UINT32_MAX};
    static const uint32_t firsts[] = {0, 1, 500, UINT32_MAX};
    uint32_t out[SUPPORT_COUNT(rows)], before;
    uint8_t bytes[BLOCK_LIST_HEADER_BYTES + 5 * SUPPORT_COUNT(rows)];
    (void)state;
    for (uint32_t n = 0; n <= SUPPORT_COUNT(rows); n++)
        for (size_t f = 0; f < SUPPORT_COUNT(firsts); f++) {
            uint32_t length = block_edges_encode(rows, n, firsts[f], bytes + BLOCK_LIST_HEADER_BYTES);
            struct block_view view = one_list(bytes, n, firsts[f]);
            assert_true(length <= 5 * n);
            block_list_header(n, length, bytes);
            assert_int_equal(block_edges(&view, 0, out, &before), n);
            assert_memory_equal(out, rows, sizeof *rows * n);
            if (n > 0) {
                block_list_header(n, length - 1, bytes);
                assert_int_equal(block_edges(&view, 0, out, &before), QUIRE_ECORRUPT);
            }
        }
    uint8_t over[] = {2, 0, 6, 0, 0xfe, 0xff, 0xff, 0xff, 0x1f, 1}; /* UINT32_MAX, then one more */
    struct block_view view = one_list(over, 2, 0);
    assert_int_equal(block_edges(&view, 0, out, &before), QUIRE_ECORRUPT);
}

static void test_keys_out_of_limits(void **state)
{
    uint8_t record[BLOCK_KEY_INLINE_MAX + 200];
    char text[200];
    struct block_view view = {.keys = record};
    struct block_key key;
    (void)state;
    memset(text, 'x', sizeof text);
    view.keys_bytes = block_key_encode(text, BLOCK_KEY_INLINE_MAX + 1, false, 0, record);
    assert_int_equal(block_key(&view, 0, &key), QUIRE_ECORRUPT);
    view.keys_bytes = block_key_encode(NULL, QUIRE_KEY_BYTES_MAX + 1, true, 7, record);
    assert_int_equal(block_key(&view, 0, &key), QUIRE_ECORRUPT);
    view.keys_bytes = block_key_encode(NULL, QUIRE_KEY_BYTES_MAX, true, 7, record);
    assert_true(view.keys_bytes <= BLOCK_KEY_EXTERNAL_BYTES);
    assert_int_equal(block_key(&view, 0, &key), 0);
    assert_int_equal(block_key(&view, 1, &key), QUIRE_ECORRUPT);
    view.keys_bytes--;
    assert_int_equal(block_key(&view, 0, &key), QUIRE_ECORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_layout_is_documented),
        cmocka_unit_test(test_every_bit_counts), cmocka_unit_test(test_wrong_place_or_segment),
        cmocka_unit_test(test_newer_version),    cmocka_unit_test(test_forged_blocks),
        cmocka_unit_test(test_edges_encode),     cmocka_unit_test(test_keys_out_of_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
