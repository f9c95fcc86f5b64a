/*
 * test_encode.c - requests and answers of /v1/embeddings, and the vectors that are remembered, beside a plain list.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/encode/encode_priv.h"
#include "io/random.h"
#include <cmocka.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

static void test_request(void **state)
{
    struct evbuffer *out = evbuffer_new();
    static const char *const texts[] = {"a \"b\"\\\n", "caf\xc3\xa9"};
    static const char wanted[] = "{\"model\":\"e\",\"encoding_format\":\"float\",\"input\":[\"q: a "
                                 "\\u0022b\\u0022\\u005c\\u000a\",\"q: caf\xc3\xa9\"]}";
    (void)state;
    assert_true(encode_json_request(out, "e", "q: ", texts, (size_t[]){7, 5}, 2));
    assert_int_equal(evbuffer_get_length(out), sizeof wanted - 1);
    assert_memory_equal(evbuffer_pullup(out, -1), wanted, sizeof wanted - 1);
    evbuffer_free(out);
}

static int read_answer(const char *body, unsigned n, float **vectors, uint32_t *dim, struct quire_error *err)
{
    return encode_json_answer(body, strlen(body), n, vectors, dim, err);
}

static void test_answer(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"data\": 5}",
        "{\"data\": []}",
        "{\"data\": [{\"embedding\": [1]}]}",
        "{\"data\": [{\"embedding\": [1]}, {\"embedding\": [1, 2]}]}",
        "{\"data\": [{\"embedding\": [1]}, {\"embedding\": [0]}]}",
        "{\"data\": [{\"embedding\": [1]}, {\"embedding\": [\"1\"]}]}",
        "{\"data\": [{\"embedding\": [1]}, {\"embedding\": [1e99]}]}",
        "{\"data\": [{\"embedding\": [1]}, {\"embedding\": \"AAAA\"}]}",
        "{\"data\": [{\"embedding\": [1], \"index\": 1}, {\"embedding\": [2], \"index\": 1}]}",
        "{\"data\": [{\"embedding\": [1], \"index\": 0}, {\"embedding\": [2], \"index\": 2}]}",
        "{\"data\": [{\"embedding\": [1]}, {\"embedding\": [1]}, {\"embedding\": [1]}]}",
        "{\"data\": [{\"embedding\": [1]}, {\"embedding\": [1]}], \"data\": []}"};
    float *vectors = NULL;
    uint32_t dim = 0;
    struct quire_error err;
    (void)state;
    assert_int_equal(
        read_answer("{\"object\": \"list\", \"data\": [{\"index\": 1, \"embedding\": [3, -4.5]}, {\"index\": 0, "
                    "\"embedding\": [0, 1e-3]}]}",
                    2, &vectors, &dim, &err),
        0);
    assert_true(dim == 2 && vectors[0] == 0 && vectors[1] == 1e-3f && vectors[2] == 3 && vectors[3] == -4.5f);
    free(vectors);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(read_answer(bad[i], 2, &vectors, &dim, &err) < 0);
}

enum { KEPT = 8, KEYS = 20 };

/* The least recently used goes: beside a list that is searched from its end. */
static void test_memory(void **state)
{
    struct encode_memory *memory = encode_memory_create(KEPT, 2);
    unsigned order[KEYS], n = 0;
    struct random random;
    (void)state;
    random_init(&random, 5);
    for (unsigned step = 0; step < 20000; step++) {
        unsigned key = (unsigned)random_below(&random, KEYS), at = 0;
        uint8_t hash[ENCODE_HASH_BYTES] = {(uint8_t)(key % 3), 0, 0, 0, 0, 0, 0, 0, (uint8_t)key}; /* that collide */
        float vector[2] = {(float)key, 1};
        const float *found = encode_memory_find(memory, hash);
        while (at < n && order[at] != key)
            at++;
        assert_int_equal(found != NULL, at < n);
        if (found) {
            assert_true(found[0] == (float)key && found[1] == 1);
            memmove(order + at, order + at + 1, (--n - at) * sizeof *order);
        } else {
            encode_memory_add(memory, hash, vector);
            if (n == KEPT)
                memmove(order, order + 1, --n * sizeof *order);
        }
        order[n++] = key;
    }
    encode_memory_destroy(memory);
    memory = encode_memory_create(0, 2);
    encode_memory_add(memory, (uint8_t[ENCODE_HASH_BYTES]){1}, (float[]){1, 2});
    assert_null(encode_memory_find(memory, (uint8_t[ENCODE_HASH_BYTES]){1}));
    encode_memory_destroy(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_request), cmocka_unit_test(test_answer),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
