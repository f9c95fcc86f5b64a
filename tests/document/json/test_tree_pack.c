/*
 * test_tree_pack.c - packed documents give back the text that tree_print writes, whatever the numbers in them, and take
 * the bytes that they should; those that are damaged are refused.
 */
#include "document/json/tree.h"
#include "io/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 256 };

static json_t *parsed(const char *text, size_t bytes)
{
    struct quire_error err = {0};
    json_t *root;
    if (tree_parse(text, bytes, &root, &err) < 0)
        fail_msg("%.*s: %s", (int)bytes, text, err.message);
    return root;
}

static struct tree_text packed(const json_t *root)
{
    struct tree_text out = {.data = NULL};
    tree_pack(root, 0, &out);
    assert_false(out.failed);
    return out;
}

/* Packs and unpacks in both ways. Returns the bytes of the packed document. */
static size_t expect_same(const json_t *root)
{
    struct quire_error err = {0};
    struct tree_text text = {.data = NULL}, pack = packed(root), unpacked = {.data = NULL}, again = {.data = NULL};
    json_t *other;
    tree_print(root, NULL, 0, &text);
    assert_int_equal(tree_unpack_text(pack.data, pack.bytes, &unpacked, &err), 0);
    assert_int_equal(unpacked.bytes, text.bytes);
    assert_memory_equal(unpacked.data, text.data, text.bytes);
    assert_true(pack.bytes <= text.bytes);
    assert_int_equal(tree_unpack(pack.data, pack.bytes, &other, &err), 0);
    tree_print(other, NULL, 0, &again); /* the types of its numbers are the same, too */
    assert_int_equal(again.bytes, text.bytes);
    assert_memory_equal(again.data, text.data, text.bytes);
    assert_true(json_equal(root, other));
    json_decref(other);
    /* the text itself is a packed document */
    again.bytes = 0;
    assert_int_equal(tree_unpack_text(text.data, text.bytes, &again, &err), 0);
    assert_int_equal(again.bytes, text.bytes);
    assert_int_equal(tree_unpack(text.data, text.bytes, &other, &err), 0);
    assert_true(json_equal(root, other));
    json_decref(other);
    size_t bytes = pack.bytes;
    tree_text_fini(&text);
    tree_text_fini(&pack);
    tree_text_fini(&unpacked);
    tree_text_fini(&again);
    return bytes;
}

static size_t expect_text(const char *text)
{
    json_t *root = parsed(text, strlen(text));
    size_t bytes = expect_same(root);
    json_decref(root);
    return bytes;
}

static double uniform(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-52 - 1;
}

/* A list of n numbers, as `of` writes them. */
static json_t *list(struct random *random, unsigned n, void (*of)(struct random *, char *, size_t))
{
    char number[64];
    struct tree_text text = {.data = NULL};
    for (unsigned i = 0; i < n; i++) {
        of(random, number, sizeof number);
        tree_text_add(&text, i == 0 ? "[" : ",", 1);
        tree_text_add(&text, number, strlen(number));
    }
    tree_text_add(&text, "]", 1);
    json_t *root = parsed(text.data, text.bytes);
    tree_text_fini(&text);
    return root;
}

static void a_float(struct random *r, char *out, size_t n)
{
    snprintf(out, n, "%.17g", (double)(float)(uniform(r) / 16));
}
static void a_double(struct random *r, char *out, size_t n)
{
    snprintf(out, n, "%.17g", uniform(r));
}
static void six_decimals(struct random *r, char *out, size_t n)
{
    snprintf(out, n, "%.6f", uniform(r));
}
static void a_short_float(struct random *r, char *out, size_t n)
{
    snprintf(out, n, "%.8g", (double)(float)(uniform(r) / 16));
}
static void a_byte(struct random *r, char *out, size_t n)
{
    snprintf(out, n, "%d", (int)(random_next(r) % 255) - 127);
}
static void a_large_integer(struct random *r, char *out, size_t n)
{
    snprintf(out, n, "%lld", (long long)(random_next(r) >> 1));
}
static void a_float_or_0(struct random *r, char *out, size_t n)
{
    if (random_next(r) % 8 == 0)
        snprintf(out, n, "0");
    else
        a_float(r, out, n);
}
static void any_bits(struct random *r, char *out, size_t n)
{
    double x = NAN;
    while (!isfinite(x)) {
        uint64_t bits = random_next(r);
        memcpy(&x, &bits, sizeof x);
    }
    snprintf(out, n, "%.17g", x);
}
static void whole_or_not(struct random *r, char *out, size_t n)
{
    static const char *const some[] = {"1", "1.0", "0", "-0", "2.5", "1e3"};
    snprintf(out, n, "%s", some[random_next(r) % 6]);
}
static void huge_or_tiny(struct random *r, char *out, size_t n)
{
    snprintf(out, n, "%de%d", (int)(random_next(r) % 19) - 9, (int)(random_next(r) % 600) - 300);
}

static void test_bytes_of_a_number(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        void (*of)(struct random *, char *, size_t);
        double bytes; /* of a number, at most; the head aside */
    } cases[] = {
        {"floats", a_float, 4},
        {"floats and 0", a_float_or_0, 4},
        {"doubles", a_double, 8},
        {"six decimals", six_decimals, 3},
        {"short floats", a_short_float, 7},
        {"bytes", a_byte, 1},
    };
    struct random random;
    random_init(&random, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = list(&random, N, cases[i].of);
        double each = (double)(expect_same(root) - 7) / N;
        if (each > cases[i].bytes)
            fail_msg("%s take %g bytes a number, not %g", cases[i].what, each, cases[i].bytes);
        json_decref(root);
    }
}

static void test_all_numbers_come_back(void **state)
{
    (void)state;
    static void (*const kinds[])(struct random *, char *,
                                 size_t) = {a_float,         a_double,     six_decimals, a_short_float, a_byte,
                                            a_large_integer, a_float_or_0, any_bits,     whole_or_not,  huge_or_tiny};
    struct random random;
    random_init(&random, 11);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (unsigned n = 1; n < 60; n++) {
            json_t *root = list(&random, n, kinds[i]);
            expect_same(root);
            json_decref(root);
        }
}

static void test_edges(void **state)
{
    (void)state;
    /* what is no list of numbers stays text */
    assert_int_equal(expect_text("[0.1,0.2,0.3,0.4,0.5,0.6,0.7,\"x\"]"), 33);
    assert_int_equal(expect_text("[1,2,3,4,5,6,7]"), 15);         /* too short */
    assert_int_equal(expect_text("[1,2.5,3.0,4,5,6,7,8,9]"), 23); /* 1 and 3.0 */
    assert_int_equal(expect_text("[1,2,3,4,5,6,7,8]"), 5 + 2 + 8);
    assert_int_equal(expect_text("[100,200,300,-400,500,600,700,-32768]"), 5 + 2 + 24);
    assert_int_equal(expect_text("[0.1,0.2,0.3,0.4,0.5,0.6,-0.7,12.8]"), 5 + 2 + 16); /* 128 has no place in a byte */
    /* the ends of integers that a double has, -0, the smallest and largest numbers */
    expect_text("[9007199254740992,-9007199254740992,9007199254740991,1,2,3,4,5,6,7]");
    expect_text("[9007199254740993,-9007199254740993,9223372036854775807,-9223372036854775808,1,2,3,4,5]");
    expect_text("[-0.0,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.125,0.125]");
    expect_text("[-0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.123456]");
    expect_text("[5e-324,1.7976931348623157e308,3.4028234663852886e38,3.402823466385289e38,1e-45,0.1,0.2,0.3]");
    expect_text("[3.4028235677973366e38,1e39,1.5,2.5,3.5,4.5,5.5,6.5,7.5]"); /* beyond the largest float */
    expect_text("[1e22,1e23,1.5,2.5,3.5,4.5,5.5,6.5,0.1]");
    /* inside of others, strings that look like lists beside them */
    expect_text("{\"a\\u0001\":[[0.25,0.125,0.0625,0.03125,0.015625,0.0078125,0.00390625,0.001953125],\"\\u0002\\u0003"
                "\"],\"b\":{\"c\":[11111,22222,33333,44444,55555,66666,77777,88888]},\"d\":[]}");
}

static void test_limits(void **state)
{
    (void)state;
    struct random random;
    struct tree_text text = {.data = NULL}, out = {.data = NULL};
    random_init(&random, 3);
    json_t *root = list(&random, N, a_float);
    tree_print(root, NULL, 0, &text);
    tree_pack(root, text.bytes, &out);
    assert_false(out.failed);
    tree_text_fini(&out);
    tree_pack(root, text.bytes - 1, &out); /* the text counts, however short the packed document is */
    assert_true(out.failed && out.too_long);
    tree_text_fini(&out);
    tree_text_fini(&text);
    json_decref(root);
}

/* Cut anywhere, or with any byte changed, it is refused, or is another document. */
static void test_damage(void **state)
{
    (void)state;
    static void (*const kinds[])(struct random *, char *, size_t) = {a_float, a_double, six_decimals};
    struct random random;
    struct quire_error err = {0};
    json_t *other;
    random_init(&random, 5);
    for (size_t kind = 0; kind < 3; kind++) {
        json_t *root = list(&random, 12, kinds[kind]);
        struct tree_text pack = packed(root), text = {.data = NULL};
        assert_true(pack.data[0] > 0 && pack.data[0] < 7);
        for (size_t n = 0; n < pack.bytes; n++) {
            char *cut = malloc(n + 1); /* so that a sanitizer sees what is read behind its end */
            assert_non_null(cut);
            memcpy(cut, pack.data, n);
            assert_int_equal(tree_unpack(cut, n, &other, &err), QUIRE_EPARSE);
            assert_true(n == 0 || tree_unpack_text(cut, n, &text, &err) == QUIRE_ECORRUPT);
            tree_text_fini(&text);
            free(cut);
        }
        for (size_t at = 0; at < pack.bytes; at++)
            for (unsigned change = 1; change < 256; change++) {
                pack.data[at] = (char)((unsigned char)pack.data[at] ^ change);
                int rc = tree_unpack(pack.data, pack.bytes, &other, &err);
                if (rc == 0)
                    json_decref(other);
                assert_true(rc == 0 || rc == QUIRE_EPARSE || rc == QUIRE_ELIMIT);
                rc = tree_unpack_text(pack.data, pack.bytes, &text, &err);
                assert_true(rc == 0 || rc == QUIRE_ECORRUPT);
                tree_text_fini(&text);
                pack.data[at] = (char)((unsigned char)pack.data[at] ^ change);
            }
        assert_int_equal(tree_parse(pack.data, pack.bytes, &other, &err), QUIRE_EPARSE); /* never from a client */
        tree_text_fini(&pack);
        json_decref(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_a_number),
        cmocka_unit_test(test_all_numbers_come_back),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
