/* test_fields_list.c - header fields: order, look-up, what may stand in them, what goes on to the next machine. */
#include "gateway/http/fields_list.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* "a=1 b=2": all of them, in order. */
static const char *shown(const struct fields *fields)
{
    static char text[1000];
    size_t n = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < fields->n; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s=%s", i > 0 ? " " : "", fields_name(fields, i),
                              fields_value(fields, i));
    return text;
}

static void test_list(void **state)
{
    (void)state;
    struct fields f = {0};
    assert_true(fields_append(&f, "A", "1"));
    assert_true(fields_append(&f, "b", ""));
    assert_true(fields_append(&f, "a", "2"));
    assert_true(fields_print(&f, "C", "%d", 3));
    assert_string_equal(shown(&f), "A=1 b= a=2 C=3");
    assert_string_equal(fields_get(&f, "a"), "1");
    assert_string_equal(fields_get(&f, "B"), "");
    assert_null(fields_get(&f, "D"));
    assert_int_equal(fields_count(&f, "A"), 2);
    assert_true(fields_set(&f, "A", "4"));
    assert_string_equal(shown(&f), "b= C=3 A=4");
    assert_int_equal(fields_drop(&f, "c"), 1);
    assert_int_equal(fields_drop(&f, "c"), 0);
    assert_string_equal(shown(&f), "b= A=4");
    fields_clear(&f);
    assert_string_equal(shown(&f), "");
    fields_fini(&f);
}

static void test_refused(void **state)
{
    (void)state;
    struct fields f = {0};
    static const char *const names[] = {"", "a b", "a:", "a\r", "\xc3\xa4", "a\"", "(a)"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(fields_append(&f, names[i], "x"));
    static const char *const values[] = {"a\rb", "a\nb", "\x01", "\x7f"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_false(fields_append(&f, "a", values[i]));
    assert_false(fields_add_bytes(&f, "a", 1, "b\0c", 3));
    assert_false(fields_set(&f, "a", "\n"));
    char much[2000];
    memset(much, 'x', sizeof much - 1);
    much[sizeof much - 1] = 0;
    assert_false(fields_print(&f, "a", "%s", much));
    assert_int_equal(f.n, 0);
    assert_true(fields_append(&f, "a", "tab\tand \xff"));
    fields_fini(&f);
}

static void test_words(void **state)
{
    (void)state;
    struct fields f = {0};
    assert_true(fields_append(&f, "Connection", "keep-alive ,Close\t,"));
    assert_true(fields_append(&f, "connection", "x-y"));
    assert_true(fields_has_word(&f, "CONNECTION", "close"));
    assert_true(fields_has_word(&f, "Connection", "X-Y"));
    assert_false(fields_has_word(&f, "Connection", "clos"));
    assert_false(fields_has_word(&f, "Connection", "keep"));
    assert_false(fields_has_word(&f, "Connection", ""));
    fields_fini(&f);
}

static void test_hop(void **state)
{
    (void)state;
    struct fields in = {0}, out = {0};
    static const char *const all[][2] = {{"Host", "h"},
                                         {"Authorization", "k"},
                                         {"Connection", "X-Mine, close"},
                                         {"X-Mine", "1"},
                                         {"x-mine", "2"},
                                         {"TE", "trailers"},
                                         {"Upgrade", "h2c"},
                                         {"Content-Length", "3"},
                                         {"Transfer-Encoding", "chunked"},
                                         {"Accept-Encoding", "br"},
                                         {"Expect", "100-continue"},
                                         {"Accept", "x"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_true(fields_append(&in, all[i][0], all[i][1]));
    assert_true(fields_forward(&in, &out, false));
    assert_string_equal(shown(&out), "Authorization=k Accept-Encoding=br Accept=x");
    fields_clear(&out);
    assert_true(fields_forward(&in, &out, true));
    assert_string_equal(shown(&out), "Authorization=k Accept=x");
    fields_clear(&out);
    assert_true(fields_return(&in, &out));
    assert_string_equal(shown(&out), "Host=h Authorization=k Accept-Encoding=br Expect=100-continue Accept=x");
    fields_fini(&in);
    fields_fini(&out);
}

/* A key of ours stands in the field in which the request had one. */
static void test_key(void **state)
{
    (void)state;
    static const struct {
        const char *names[3], *wanted;
    } cases[] = {{{"Authorization"}, "Authorization=Bearer ours"},
                 {{"API-Key"}, "api-key=ours"},
                 {{"X-API-Key", "Authorization"}, "x-api-key=ours"},
                 {{"api-key", "x-api-key", "Authorization"}, "x-api-key=ours"},
                 {{NULL}, "Authorization=Bearer ours"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fields f = {0};
        char wanted[100];
        for (unsigned k = 0; k < 3 && cases[i].names[k]; k++)
            assert_true(fields_append(&f, cases[i].names[k], "theirs"));
        assert_true(fields_append(&f, "Accept", "x") && fields_set_key(&f, "ours"));
        snprintf(wanted, sizeof wanted, "Accept=x %s", cases[i].wanted);
        assert_string_equal(shown(&f), wanted);
        assert_false(fields_set_key(&f, "a\nb"));
        assert_string_equal(shown(&f), "Accept=x");
        fields_fini(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_words), cmocka_unit_test(test_hop),
                                       cmocka_unit_test(test_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
