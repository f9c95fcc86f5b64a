/*
 * test_document.c - a document: what goes in comes out, and nothing else is taken for one.
 *
 * Random documents are compared field by field; every byte of one is flipped, and it is cut at every length. Documents
 * with a right checksum and wrong lengths are forged, since the checksum alone must not be what keeps reads inside.
 */
#include "cache/document/document.h"
#include "cache/guard/text.h"
#include "io/bytes.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <xxhash.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

enum { PIECES_MAX = 40, PIECE_BYTES_MAX = 300 };

struct made {
    struct document document;
    struct quire_pair scope[PIECES_MAX];
    struct quire_bytes tags[PIECES_MAX], chunks[PIECES_MAX];
    uint8_t bytes[PIECE_BYTES_MAX + PIECES_MAX];
};

static struct quire_bytes random_piece(struct random *random, const uint8_t *from)
{
    size_t n = random_below(random, 4) ? random_below(random, PIECE_BYTES_MAX) : 0;
    return (struct quire_bytes){from + random_below(random, PIECES_MAX), n};
}

static void make(struct random *random, struct made *made)
{
    for (size_t i = 0; i < sizeof made->bytes; i++)
        made->bytes[i] = (uint8_t)random_next(random);
    for (unsigned i = 0; i < PIECES_MAX; i++) {
        made->scope[i] = (struct quire_pair){random_piece(random, made->bytes), random_piece(random, made->bytes)};
        made->tags[i] = random_piece(random, made->bytes);
        made->chunks[i] = random_piece(random, made->bytes);
    }
    made->document = (struct document){
        .id = random_next(random),
        .created_ms = random_next(random),
        .expire_ms = random_next(random),
        .exact = {random_next(random), random_next(random)},
        .compat = {random_next(random), random_next(random)},
        .category = random_piece(random, made->bytes),
        .text = random_piece(random, made->bytes),
        .model = random_piece(random, made->bytes),
        .scope = made->scope,
        .tags = made->tags,
        .chunks = made->chunks,
        .n_scope = (uint32_t)random_below(random, PIECES_MAX + 1),
        .n_tags = (uint32_t)random_below(random, PIECES_MAX + 1),
        .n_chunks = (uint32_t)random_below(random, PIECES_MAX + 1),
        .tokens_in = (uint32_t)random_next(random),
        .tokens_out = (uint32_t)random_next(random),
        .llm_ms = (uint32_t)random_next(random),
        .cost = (float)random_below(random, 1000) / 7.0f,
    };
}

static uint8_t *encode(const struct document *document, size_t *n)
{
    *n = document_bytes(document);
    assert_true(*n > 0 && *n % DOCUMENT_UNIT == 0);
    uint8_t *bytes = malloc(*n);
    memset(bytes, 0xa5, *n);
    document_encode(document, bytes);
    return bytes;
}

static void assert_same_hash(struct hash128 a, struct hash128 b)
{
    assert_true(a.low == b.low && a.high == b.high);
}

static void assert_same(const struct document *in, const struct document *out)
{
    assert_true(in->id == out->id && in->created_ms == out->created_ms && in->expire_ms == out->expire_ms);
    assert_same_hash(in->exact, out->exact);
    assert_same_hash(in->compat, out->compat);
    assert_true(text_equal(in->category, out->category));
    assert_true(text_equal(in->text, out->text));
    assert_true(text_equal(in->model, out->model));
    assert_true(in->tokens_in == out->tokens_in && in->tokens_out == out->tokens_out && in->llm_ms == out->llm_ms);
    assert_memory_equal(&in->cost, &out->cost, sizeof in->cost);
    assert_true(in->n_scope == out->n_scope && in->n_tags == out->n_tags && in->n_chunks == out->n_chunks);
    for (uint32_t i = 0; i < in->n_scope; i++) {
        struct quire_pair pair = document_scope(out, i);
        assert_true(text_equal(in->scope[i].key, pair.key) && text_equal(in->scope[i].value, pair.value));
    }
    for (uint32_t i = 0; i < in->n_tags; i++)
        assert_true(text_equal(in->tags[i], document_tag(out, i)));
    struct quire_bytes value = document_value(out);
    for (uint32_t i = 0; i < in->n_chunks; i++) {
        struct quire_bytes chunk = document_chunk(out, i);
        assert_true(text_equal(in->chunks[i], chunk));
        assert_true(chunk.n_bytes <= value.n_bytes &&
                    text_equal(chunk, (struct quire_bytes){value.data, chunk.n_bytes}));
        value = (struct quire_bytes){(const uint8_t *)value.data + chunk.n_bytes, value.n_bytes - chunk.n_bytes};
    }
    assert_int_equal(value.n_bytes, 0);
}

static void test_random_documents(void **state)
{
    struct random random;
    struct made made;
    (void)state;
    random_init(&random, 1);
    for (unsigned i = 0; i < 2000; i++) {
        struct document out;
        size_t n, taken = 0;
        make(&random, &made);
        uint8_t *bytes = encode(&made.document, &n);
        bytes = realloc(bytes, n + 16);
        memset(bytes + n, 0xff, 16);
        assert_int_equal(document_peek(bytes), n);
        assert_int_equal(document_decode(bytes, n + 16, &out, &taken, NULL), 0);
        assert_int_equal(taken, n);
        assert_true(out.packed.data == bytes && out.packed.n_bytes == n);
        assert_same(&made.document, &out);
        free(bytes);
    }
}

static void test_nothing_in_it(void **state)
{
    struct document empty = {.id = 7}, out;
    size_t n, taken;
    (void)state;
    uint8_t *bytes = encode(&empty, &n);
    assert_int_equal(n, 256); /* 100 bytes and three ends, padded */
    assert_int_equal(document_decode(bytes, n, &out, &taken, NULL), 0);
    assert_same(&empty, &out);
    free(bytes);
}

static void test_limit(void **state)
{
    uint8_t *noise = calloc(1, DOCUMENT_BYTES_MAX + 1);
    struct quire_bytes chunk = {noise, DOCUMENT_BYTES_MAX - 116},
                       many[2] = {{noise, DOCUMENT_BYTES_MAX / 2}, {noise, DOCUMENT_BYTES_MAX / 2}};
    struct document document = {.chunks = &chunk, .n_chunks = 1}, out;
    size_t n, taken;
    (void)state;
    uint8_t *bytes = encode(&document, &n);
    assert_int_equal(n, DOCUMENT_BYTES_MAX);
    assert_int_equal(document_decode(bytes, n, &out, &taken, NULL), 0);
    chunk.n_bytes++;
    assert_int_equal(document_bytes(&document), 0);
    chunk.n_bytes = SIZE_MAX;
    assert_int_equal(document_bytes(&document), 0);
    document = (struct document){.chunks = many, .n_chunks = 2};
    assert_int_equal(document_bytes(&document), 0);
    document = (struct document){.n_chunks = UINT32_MAX};
    assert_int_equal(document_bytes(&document), 0);
    free(bytes);
    free(noise);
}

static void assert_corrupt(const uint8_t *bytes, size_t n)
{
    struct document out = {.id = 12345};
    struct quire_error err = {0};
    size_t taken = 1;
    uint8_t *copy = malloc(n ? n : 1); /* of just that size: a sanitizer sees one byte too many */
    memcpy(copy, bytes, n);
    assert_int_equal(document_decode(copy, n, &out, &taken, &err), QUIRE_ECORRUPT);
    assert_int_equal(err.code, QUIRE_ECORRUPT);
    assert_true(err.message[0] != 0);
    assert_true(out.id == 12345 && taken == 1);
    free(copy);
}

static void test_damage(void **state)
{
    struct random random;
    struct made made;
    size_t n;
    (void)state;
    random_init(&random, 3);
    make(&random, &made);
    made.document.n_scope = 2;
    made.document.n_tags = 1;
    made.document.n_chunks = 2;
    uint8_t *bytes = encode(&made.document, &n);
    for (size_t i = 0; i < n; i++) {
        for (unsigned flip = 1; flip < 256; flip = flip * 2 + 1) {
            bytes[i] = (uint8_t)(bytes[i] ^ flip);
            assert_corrupt(bytes, n);
            bytes[i] = (uint8_t)(bytes[i] ^ flip);
        }
        assert_corrupt(bytes, i);
    }
    free(bytes);
}

/* Wrong counts and ends under a right checksum. */
static void test_forged(void **state)
{
    struct random random;
    struct made made;
    unsigned refused = 0;
    (void)state;
    random_init(&random, 4);
    for (unsigned i = 0; i < 20000; i++) {
        struct document out;
        size_t n, taken = 0;
        make(&random, &made);
        made.document.n_scope %= 3;
        made.document.n_tags %= 3;
        made.document.n_chunks %= 3;
        uint8_t *bytes = encode(&made.document, &n);
        size_t at = 72 + 4 * (size_t)random_below(&random, (n < 136 ? n - 72 : 64) / 4);
        bytes_store_u32(bytes + at, random_below(&random, 2)
                                        ? (uint32_t)random_next(&random)
                                        : bytes_load_u32(bytes + at) + (uint32_t)random_below(&random, 5) - 2);
        bytes_store_u64(bytes, XXH3_64bits(bytes + 8, n - 8));
        if (document_decode(bytes, n, &out, &taken, NULL) < 0)
            refused++;
        for (uint32_t j = 0; taken == n && j < out.n_chunks; j++) {
            struct quire_bytes chunk = document_chunk(&out, j);
            assert_true((const uint8_t *)chunk.data >= bytes &&
                        (const uint8_t *)chunk.data + chunk.n_bytes <= bytes + n);
        }
        free(bytes);
    }
    assert_true(refused > 5000 && refused < 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_documents), cmocka_unit_test(test_nothing_in_it), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_damage),           cmocka_unit_test(test_forged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
