/*
 * test_resp.c - requests are parsed the same however their bytes arrive, and what is no request is refused early.
 *
 * The parser is always given a copy of exactly the bytes it may look at, so that the address sanitizer sees one byte
 * read too many. For every prefix of a whole request it must ask for more, and never for more than completes the
 * request: a connection that waits for bytes nobody will send hangs. Writers are compared byte by byte with the
 * protocol's description, doubles by reading them back.
 */
#include "io/random.h"
#include "server/protocol/resp.h"
#include "tests/server/support_reply.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct resp_limits limits = {.bulk_bytes_max = 1 << 20, .args_max = 1000, .inline_bytes_max = 4096};

struct sample {
    const char *bytes;
    size_t n;
    uint32_t n_args;
    struct {
        const char *data;
        uint32_t bytes;
    } args[5];
};

#define BYTES(text) (text), sizeof(text) - 1
/* clang-format off */
static const struct sample samples[] = {
    {BYTES("*1\r\n$4\r\nPING\r\n"), 1, {{BYTES("PING")}}},
    {BYTES("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"), 2, {{BYTES("ECHO")}, {BYTES("")}}},
    {BYTES("*2\r\n$4\r\nECHO\r\n$6\r\na\0\r\n$\xff\r\n"), 2, {{BYTES("ECHO")}, {BYTES("a\0\r\n$\xff")}}},
    {BYTES("*3\n$1\na\r\n$2\nbc\r\n$3\r\ndef\r\n"), 3, {{BYTES("a")}, {BYTES("bc")}, {BYTES("def")}}},
    {BYTES("*0\r\n"), 0, {{NULL, 0}}},
    {BYTES("*-1\r\n"), 0, {{NULL, 0}}},
    {BYTES("\r\n"), 0, {{NULL, 0}}},
    {BYTES("\n"), 0, {{NULL, 0}}},
    {BYTES(" \t \r\n"), 0, {{NULL, 0}}},
    {BYTES("PING\r\n"), 1, {{BYTES("PING")}}},
    {BYTES("  set  key\tvalue \n"), 3, {{BYTES("set")}, {BYTES("key")}, {BYTES("value")}}},
    {BYTES("echo \"a b\\\"c\\n\\x41\\xfF\\q\\\\\"\r\n"), 2, {{BYTES("echo")}, {BYTES("a b\"c\nA\xffq\\")}}},
    {BYTES("echo \"\\r\\t\\b\\a\\xzz\\x4\"\r\n"), 2, {{BYTES("echo")}, {BYTES("\r\t\b\axzzx4")}}},
    {BYTES("echo 'it\\'s \\n' ''\r\n"), 3, {{BYTES("echo")}, {BYTES("it's \\n")}, {BYTES("")}}},
    {BYTES("a\"b c\"\r\n"), 1, {{BYTES("ab c")}}},
    {BYTES("\xc3\xa9 \x01\r\n"), 2, {{BYTES("\xc3\xa9")}, {BYTES("\x01")}}},
};
static const struct {
    const char *bytes;
    size_t n;
    const char *message;
} broken[] = {
    {BYTES("*x\r\n"), "invalid multibulk length"},
    {BYTES("*\r\n"), "invalid multibulk length"},
    {BYTES("*1 \r\n"), "invalid multibulk length"},
    {BYTES("*+1\r\n"), "invalid multibulk length"},
    {BYTES("*-\r\n"), "invalid multibulk length"},
    {BYTES("*1001\r\n"), "invalid multibulk length"},
    {BYTES("*1000000000\r\n"), "invalid multibulk length"},
    {BYTES("*9223372036854775807\r\n"), "invalid multibulk length"},
    {BYTES("*9223372036854775808\r\n"), "invalid multibulk length"},
    {BYTES("*9999999999999999999\r\n"), "invalid multibulk length"},
    {BYTES("*18446744073709551617\r\n"), "invalid multibulk length"},
    {BYTES("*99999999999999999999999999\r\n"), "invalid multibulk length"},
    {BYTES("*1\r\nPING\r\n"), "expected '$', got 'P'"},
    {BYTES("*1\r\n\x01\r\n"), "expected '$', got '?'"},
    {BYTES("*1\r\n\r\n"), "expected '$', got '?'"},
    {BYTES("*1\r\n*1\r\n"), "expected '$', got '*'"},
    {BYTES("*1\r\n$\r\n"), "invalid bulk length"},
    {BYTES("*1\r\n$-1\r\n"), "invalid bulk length"},
    {BYTES("*1\r\n$-2\r\n"), "invalid bulk length"},
    {BYTES("*1\r\n$1x\r\n"), "invalid bulk length"},
    {BYTES("*1\r\n$1048577\r\n"), "invalid bulk length"},
    {BYTES("*1\r\n$9223372036854775807\r\n"), "invalid bulk length"},
    {BYTES("*1\r\n$9999999999999999999\r\n"), "invalid bulk length"},
    {BYTES("*1\r\n$18446744073709551615\r\n"), "invalid bulk length"},
    {BYTES("*2\r\n$1\r\na\r\n$-1\r\n"), "invalid bulk length"},
    {BYTES("echo \"abc\r\n"), "unbalanced quotes in request"},
    {BYTES("echo 'abc\r\n"), "unbalanced quotes in request"},
    {BYTES("echo \"abc\\\"\r\n"), "unbalanced quotes in request"},
    {BYTES("echo \"abc\\\r\n"), "unbalanced quotes in request"},
    {BYTES("echo \"abc\"d\r\n"), "unbalanced quotes in request"},
    {BYTES("echo 'abc'd\r\n"), "unbalanced quotes in request"},
};
/* clang-format on */
enum { N_SAMPLES = sizeof samples / sizeof *samples, N_BROKEN = sizeof broken / sizeof *broken };

/* A parse of a copy that ends where the bytes end. */
struct parse {
    struct resp_request request;
    uint8_t *copy;
    size_t consumed, need;
    char message[128];
};

static enum resp_status parse(struct parse *p, const void *bytes, size_t n, const struct resp_limits *within)
{
    free(p->copy);
    p->copy = malloc(n ? n : 1);
    assert_non_null(p->copy);
    memcpy(p->copy, bytes, n);
    p->consumed = p->need = 0;
    memset(p->message, 0x7f, sizeof p->message);
    return resp_parse(p->copy, n, within, &p->request, &p->consumed, &p->need, p->message);
}

static void parse_end(struct parse *p)
{
    resp_request_fini(&p->request);
    free(p->copy);
}

static void check_args(const struct sample *s, const struct parse *p)
{
    assert_int_equal(p->consumed, s->n);
    assert_int_equal(p->request.n_args, s->n_args);
    for (uint32_t i = 0; i < s->n_args; i++) {
        assert_int_equal(p->request.args[i].bytes, s->args[i].bytes);
        assert_memory_equal(p->request.args[i].data, s->args[i].data, s->args[i].bytes);
    }
}

static void test_requests_at_every_split(void **state)
{
    (void)state;
    struct parse p = {0};
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const struct sample *s = &samples[i];
        for (size_t n = 0; n < s->n; n++) {
            enum resp_status status = parse(&p, s->bytes, n, &limits);
            if (status != RESP_MORE || p.need <= n || p.need > s->n)
                fail_msg("sample %zu, %zu of %zu bytes: status %d, need %zu", i, n, s->n, (int)status, p.need);
        }
        assert_int_equal(parse(&p, s->bytes, s->n, &limits), RESP_DONE);
        check_args(s, &p);
    }
    parse_end(&p);
}

/* As a connection does it: no parse before there are `need` bytes; few parses even for a long bulk. */
static void test_need_makes_few_parses(void **state)
{
    (void)state;
    enum { BYTES_OF_BULK = 300000 };
    struct resp_buffer whole = {.protocol = 2};
    struct parse p = {0};
    char *bulk = malloc(BYTES_OF_BULK);
    assert_non_null(bulk);
    memset(bulk, '\n', BYTES_OF_BULK);
    resp_array(&whole, 2);
    resp_text(&whole, "echo");
    resp_bulk(&whole, bulk, BYTES_OF_BULK);
    unsigned parses = 0;
    size_t have = 0;
    enum resp_status status;
    do {
        have = p.need > have ? p.need : have + 1;
        assert_true(have <= whole.bytes);
        status = parse(&p, whole.data, have, &limits);
        parses++;
    } while (status == RESP_MORE);
    assert_int_equal(status, RESP_DONE);
    assert_int_equal(p.consumed, whole.bytes);
    assert_int_equal(p.request.args[1].bytes, BYTES_OF_BULK);
    assert_true(parses < 30);
    free(bulk);
    resp_buffer_fini(&whole);
    parse_end(&p);
}

/* A pipeline of all samples: each parse takes its own request and no byte more. */
static void test_pipeline(void **state)
{
    (void)state;
    struct resp_buffer all = {.protocol = 2};
    struct parse p = {0};
    for (size_t i = 0; i < N_SAMPLES; i++)
        resp_raw(&all, samples[i].bytes, samples[i].n);
    size_t at = 0;
    for (size_t i = 0; i < N_SAMPLES; i++, at += p.consumed) {
        assert_int_equal(parse(&p, all.data + at, all.bytes - at, &limits), RESP_DONE);
        check_args(&samples[i], &p);
    }
    assert_int_equal(at, all.bytes);
    resp_buffer_fini(&all);
    parse_end(&p);
}

static void test_broken(void **state)
{
    (void)state;
    struct parse p = {0};
    for (size_t i = 0; i < N_BROKEN; i++) {
        char expected[128];
        snprintf(expected, sizeof expected, "ERR Protocol error: %s", broken[i].message);
        for (size_t n = 0; n < broken[i].n; n++) {
            enum resp_status status = parse(&p, broken[i].bytes, n, &limits);
            if (status == RESP_DONE || (status == RESP_MORE && p.need <= n))
                fail_msg("broken %zu, %zu bytes: status %d, need %zu", i, n, (int)status, p.need);
        }
        enum resp_status status = parse(&p, broken[i].bytes, broken[i].n, &limits);
        if (status != RESP_BROKEN)
            fail_msg("broken %zu gives status %d", i, (int)status);
        assert_string_equal(p.message, expected);
        assert_int_equal(p.request.capacity <= 8, 1);
    }
    parse_end(&p);
}

/* A line that never ends is refused once it is longer than the limit, not when memory is out. */
static void check_endless(const char *prefix, const char *message)
{
    struct parse p = {0};
    size_t before = strlen(prefix), n = before + limits.inline_bytes_max + 2;
    char expected[128], *bytes = malloc(n);
    assert_non_null(bytes);
    memset(bytes, '1', n);
    memcpy(bytes, prefix, before);
    snprintf(expected, sizeof expected, "ERR Protocol error: %s", message);
    assert_int_equal(parse(&p, bytes, limits.inline_bytes_max, &limits), RESP_MORE);
    assert_int_equal(parse(&p, bytes, n, &limits), RESP_BROKEN);
    assert_string_equal(p.message, expected);
    free(bytes);
    parse_end(&p);
}

static void test_endless_lines(void **state)
{
    (void)state;
    check_endless("echo ", "too big inline request");
    check_endless("*", "too big mbulk count string");
    check_endless("*1\r\n$", "too big bulk count string");
}

static void test_inline_limit_is_exact(void **state)
{
    (void)state;
    struct parse p = {0};
    size_t most = limits.inline_bytes_max;
    char *bytes = malloc(most + 3);
    assert_non_null(bytes);
    memset(bytes, 'x', most + 1);
    memcpy(bytes + most, "\r\n", 2);
    assert_int_equal(parse(&p, bytes, most + 2, &limits), RESP_DONE);
    assert_int_equal(p.request.args[0].bytes, most);
    memcpy(bytes + most, "x\r\n", 3);
    assert_int_equal(parse(&p, bytes, most + 3, &limits), RESP_BROKEN);
    free(bytes);
    parse_end(&p);
}

static void put_words(struct resp_buffer *out, unsigned n, bool in_line)
{
    out->bytes = 0;
    if (!in_line)
        resp_array(out, n);
    for (unsigned i = 0; i < n; i++)
        if (in_line)
            resp_raw(out, i + 1 < n ? "a " : "a\n", 2);
        else
            resp_text(out, "a");
}

static void test_argument_limits(void **state)
{
    (void)state;
    const struct resp_limits few = {.bulk_bytes_max = 1, .args_max = 20, .inline_bytes_max = 4096};
    struct resp_buffer out = {.protocol = 2};
    struct parse p = {0};
    for (int in_line = 0; in_line < 2; in_line++) {
        put_words(&out, 20, in_line);
        assert_int_equal(parse(&p, out.data, out.bytes, &few), RESP_DONE);
        assert_int_equal(p.request.n_args, 20);
        put_words(&out, 21, in_line);
        assert_int_equal(parse(&p, out.data, out.bytes, &few), RESP_BROKEN);
    }
    assert_int_equal(parse(&p, BYTES("*1\r\n$2\r\n"), &few), RESP_BROKEN);
    assert_int_equal(parse(&p, BYTES("*1\r\n$1\r\na\r\n"), &few), RESP_DONE);
    resp_buffer_fini(&out);
    parse_end(&p);
}

/* As in Redis the two bytes behind a bulk are its end, whatever they are: lengths say where things are. */
static void test_end_of_bulk_is_counted(void **state)
{
    (void)state;
    struct parse p = {0};
    assert_int_equal(parse(&p, BYTES("*1\r\n$4\r\nPINGxx"), &limits), RESP_DONE);
    assert_int_equal(p.consumed, 14);
    assert_int_equal(p.request.args[0].bytes, 4);
    assert_int_equal(parse(&p, BYTES("*1\r\n$4\r\nPING\r"), &limits), RESP_MORE);
    assert_int_equal(p.need, 14);
    parse_end(&p);
}

/* Requests with random arguments, written by the writers, read back. */
static void test_random_requests(void **state)
{
    (void)state;
    struct random random = {7};
    struct resp_buffer out = {.protocol = 2};
    struct parse p = {0};
    uint8_t bytes[64];
    for (unsigned round = 0; round < 2000; round++) {
        unsigned n = 1 + (unsigned)(random_next(&random) % 20);
        uint64_t seed = random_next(&random);
        struct random again = {seed};
        out.bytes = 0;
        resp_array(&out, n);
        for (unsigned i = 0; i < n; i++) {
            size_t length = random_next(&again) % sizeof bytes;
            for (size_t j = 0; j < length; j++)
                bytes[j] = (uint8_t)random_next(&again);
            resp_bulk(&out, bytes, length);
        }
        size_t cut = random_next(&random) % out.bytes;
        assert_int_equal(parse(&p, out.data, cut, &limits), RESP_MORE);
        assert_true(p.need > cut && p.need <= out.bytes);
        assert_int_equal(parse(&p, out.data, out.bytes, &limits), RESP_DONE);
        assert_int_equal(p.request.n_args, n);
        again.state = seed;
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(p.request.args[i].bytes, random_next(&again) % sizeof bytes);
            for (size_t j = 0; j < p.request.args[i].bytes; j++)
                assert_int_equal(p.request.args[i].data[j], (uint8_t)random_next(&again));
        }
    }
    resp_buffer_fini(&out);
    parse_end(&p);
}

/* ---- writers ----------------------------------------------------------------------------------------------------- */

static void expect(struct resp_buffer *out, const char *bytes, size_t n)
{
    if (out->bytes != n || memcmp(out->data, bytes, n) != 0)
        fail_msg("RESP%d: wrote '%.*s', expected '%.*s'", out->protocol, (int)out->bytes, (const char *)out->data,
                 (int)n, bytes);
    out->bytes = 0;
}

static void test_writers_of_both_protocols(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++) {
        struct resp_buffer out = {.protocol = protocol};
        resp_simple(&out, "OK");
        resp_integer(&out, 0);
        resp_integer(&out, -1);
        resp_integer(&out, INT64_MAX);
        resp_integer(&out, INT64_MIN);
        expect(&out, BYTES("+OK\r\n:0\r\n:-1\r\n:9223372036854775807\r\n:-9223372036854775808\r\n"));
        resp_bulk(&out, "a\0\r\n", 4);
        resp_bulk(&out, NULL, 0);
        resp_text(&out, "text");
        expect(&out, BYTES("$4\r\na\0\r\n\r\n$0\r\n\r\n$4\r\ntext\r\n"));
        resp_array(&out, 0);
        resp_array(&out, 1234567);
        expect(&out, BYTES("*0\r\n*1234567\r\n"));
        resp_buffer_fini(&out);
    }
}

static void test_writers_that_differ(void **state)
{
    (void)state;
    struct resp_buffer two = {.protocol = 2}, three = {.protocol = 3};
    struct resp_buffer *const both[] = {&two, &three};
    for (int i = 0; i < 2; i++) {
        resp_null(both[i]);
        resp_null_array(both[i]);
        resp_map(both[i], 3);
        resp_set(both[i], 3);
        resp_double(both[i], 0.5);
        resp_bool(both[i], true);
        resp_bool(both[i], false);
        resp_verbatim(both[i], "ab", 2);
    }
    expect(&two, BYTES("$-1\r\n*-1\r\n*6\r\n*3\r\n$3\r\n0.5\r\n:1\r\n:0\r\n$2\r\nab\r\n"));
    expect(&three, BYTES("_\r\n_\r\n%3\r\n~3\r\n,0.5\r\n#t\r\n#f\r\n=6\r\ntxt:ab\r\n"));
    resp_buffer_fini(&two);
    resp_buffer_fini(&three);
}

static void test_errors_are_one_line(void **state)
{
    (void)state;
    struct resp_buffer out = {.protocol = 2};
    char text[3000];
    resp_error(&out, "ERR a\r\nb\n%s\r", "c\nd");
    expect(&out, BYTES("-ERR a  b c d \r\n"));
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    resp_error(&out, "ERR %s", text);
    struct reply reply = reply_of_buffer(&out);
    assert_int_equal(reply.type, '-');
    assert_true(reply.bytes >= 500 && reply.bytes <= 1024);
    reply_free(&reply);
    resp_buffer_fini(&out);
}

static double read_double(struct resp_buffer *out, double value, size_t *digits)
{
    resp_double(out, value);
    struct reply reply = reply_of_buffer(out);
    assert_int_equal(reply.type, out->protocol == 3 ? ',' : '$');
    double found = strtod(reply.text, NULL);
    *digits = reply.bytes;
    reply_free(&reply);
    out->bytes = 0;
    return found;
}

static void check_double(struct resp_buffer *out, double value)
{
    size_t digits;
    double found = read_double(out, value, &digits);
    if (isnan(value))
        assert_true(isnan(found));
    else if (memcmp(&found, &value, sizeof value) != 0)
        fail_msg("%a is read back as %a", value, found);
    assert_true(digits <= 25);
}

static void test_doubles_round_trip(void **state)
{
    (void)state;
    static const double values[] = {0,
                                    -0.0,
                                    1,
                                    -1,
                                    0.1,
                                    1.0 / 3,
                                    1e300,
                                    1e-300,
                                    5e-324,
                                    2.5e-310,
                                    1e15,
                                    123456789,
                                    1e21,
                                    0x1.fffffffffffffp1023,
                                    1e22,
                                    1e23,
                                    (double)0.1f,
                                    INFINITY,
                                    -INFINITY,
                                    NAN};
    for (int protocol = 2; protocol <= 3; protocol++) {
        struct resp_buffer out = {.protocol = protocol};
        struct random random = {11};
        size_t digits;
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            check_double(&out, values[i]);
        for (unsigned i = 0; i < 20000; i++) {
            uint64_t bits = random_next(&random);
            double value;
            memcpy(&value, &bits, sizeof value);
            check_double(&out, value);
            check_double(&out, (double)(float)(bits % 1000) / 1000);
        }
        read_double(&out, 0.1, &digits);
        assert_int_equal(digits, 3);
        read_double(&out, 100, &digits);
        assert_int_equal(digits, 3);
        resp_double(&out, INFINITY);
        resp_double(&out, -INFINITY);
        resp_double(&out, NAN);
        if (protocol == 3)
            expect(&out, BYTES(",inf\r\n,-inf\r\n,nan\r\n"));
        else
            expect(&out, BYTES("$3\r\ninf\r\n$4\r\n-inf\r\n$3\r\nnan\r\n"));
        resp_buffer_fini(&out);
    }
}

static void test_buffer_grows(void **state)
{
    (void)state;
    struct resp_buffer out = {.protocol = 3};
    enum { N = 50000 };
    resp_array(&out, N);
    for (unsigned i = 0; i < N; i++)
        resp_integer(&out, i);
    struct reply reply = reply_of_buffer(&out);
    assert_int_equal(reply.n, N);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(reply.items[i].integer, i);
    reply_free(&reply);
    resp_buffer_fini(&out);
    assert_null(out.data);
    assert_int_equal(out.bytes, 0);
    resp_buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_at_every_split),
        cmocka_unit_test(test_need_makes_few_parses),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_endless_lines),
        cmocka_unit_test(test_inline_limit_is_exact),
        cmocka_unit_test(test_argument_limits),
        cmocka_unit_test(test_end_of_bulk_is_counted),
        cmocka_unit_test(test_random_requests),
        cmocka_unit_test(test_writers_of_both_protocols),
        cmocka_unit_test(test_writers_that_differ),
        cmocka_unit_test(test_errors_are_one_line),
        cmocka_unit_test(test_doubles_round_trip),
        cmocka_unit_test(test_buffer_grows),
    };
    return cmocka_run_group_tests_name("resp", tests, NULL, NULL);
}
