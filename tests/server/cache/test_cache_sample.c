/* test_cache_sample.c - SC.SAMPLE: what it gives, of which entries, to whom. */
#include "server/admin/metrics.h"
#include "tests/server/support_sc.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_count(struct connection *c, const char *words, size_t n)
{
    struct reply r = ask(c, words);
    if (r.type != '*' || r.n != n)
        fail_msg("%s: %c %zu, not %zu: %s", words, r.type, r.n, n, r.text ? r.text : "");
    reply_free(&r);
}

/* Vectors that are about those that were put, of the category that was asked for, for administrators. */
static void test_sample(void **state)
{
    struct connection c;
    char words[200];
    unsigned seen = 0;
    struct test_server *s = sc_serve(&c);
    (void)state;
    expect_text(&c, "SC.CAT.SET f other SIM 0.9", "OK");
    for (unsigned i = 0; i < 4; i++) {
        snprintf(words, sizeof words, "f CAT %s VEC @ HASH h%u TEXT question~%u VALUE v%u SCOPE tenant t%u",
                 i < 3 ? "q" : "other", i, i, i, i);
        sc_put(&c, sc_at(i, 0.8), NULL, words);
    }
    expect_text(&c, "SC.CAT.SET f same MODE exact", "OK");
    sc_put(&c, NULL, NULL, "f CAT same HASH h9 VALUE no-vector");
    struct reply r = ask(&c, "SC.SAMPLE f CAT q");
    assert_int_equal(r.n, 3);
    for (size_t i = 0; i < r.n; i++) {
        const struct reply *e = &r.items[i], *text = reply_field(e, "text"), *vector = reply_field(e, "vector");
        double step = strtod(reply_field(e, "step")->text, NULL);
        unsigned which = (unsigned)(text->text[strlen("question ")] - '0');
        const float *put = sc_at(which, 0.8);
        assert_true(which < 3 && !(seen & 1u << which) && vector->bytes == DIM && step > 0);
        seen |= 1u << which;
        for (unsigned d = 0; d < DIM; d++)
            assert_float_equal((float)(((const signed char *)vector->text)[d] * step), put[d], 0.02f);
        snprintf(words, sizeof words, "tenant=t%u", which);
        sc_check_field(e, "scope", words);
        sc_check_field(e, "category", "q");
        assert_true(sc_number(e, "pinned") == 0 && sc_number(e, "age_ms") >= 0 && sc_number(e, "hits") == 0);
    }
    reply_free(&r);
    expect_count(&c, "SC.SAMPLE f", 4);
    expect_count(&c, "SC.SAMPLE f COUNT 2 CAT q", 2);
    expect_count(&c, "SC.SAMPLE f COUNT 2000 CAT other", 1);
    expect_error(&c, "SC.SAMPLE nope", "ERR ");
    expect_error(&c, "SC.SAMPLE f CAT nope", "ERR ");
    expect_error(&c, "SC.SAMPLE f COUNT 2001", "ERR COUNT is '2001'");
    expect_error(&c, "SC.SAMPLE f COUNT 0", "ERR COUNT is '0'");
    expect_error(&c, "SC.SAMPLE f COUNT 1 COUNT 2", "ERR syntax error at 'COUNT'");
    expect_error(&c, "SC.SAMPLE f CAT", "ERR syntax error: SC.SAMPLE cache");
    expect_error(&c, "SC.SAMPLE f LIMIT 3", "ERR syntax error at 'LIMIT'");
    expect_text(&c, "SC.CREATE wide DIM 65536", "OK");
    expect_error(&c, "SC.SAMPLE wide COUNT 257",
                 "ERR 257 vectors of 65536 numbers are more than 16777216 bytes: COUNT 256");
    expect_text(&c, "ACL SETUSER app on >p ~f +@all -@admin", "OK");
    expect_text(&c, "ACL SETUSER other on >p ~g* +@all", "OK");
    expect_text(&c, "ACL SETUSER looker on >p %R~f +@read", "OK");
    expect_text(&c, "AUTH app p", "OK");
    expect_error(&c, "SC.SAMPLE f", "NOPERM ");
    expect_text(&c, "AUTH other p", "OK");
    expect_error(&c, "SC.SAMPLE f", "NOPERM ");
    expect_text(&c, "AUTH looker p", "OK");
    expect_count(&c, "SC.SAMPLE f", 4);
    sc_end(s, &c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sample)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
