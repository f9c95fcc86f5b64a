/*
 * test_cache_audit.c - pairs that wait for a label over the wire: SC.AUDIT GET, POP and PUT, of would-be hits and of
 * misses that are sampled, and what labels do to the figures and the curve.
 */
#include "tests/server/support_sc.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A miss that is sampled has a number and no answer; the pair has both. */
static void test_audit_of_a_miss(void **state)
{
    struct connection c;
    char id[ID_DIGITS + 1], words[200];
    struct test_server *s = sc_serve(&c);
    (void)state;
    expect_text(&c, "SC.CAT.SET f q SIM 0.99 AUDIT 1", "OK");
    sc_put(&c, sc_at(0, 1), id, "f CAT q VEC @ VALUE the~answer TEXT the~question");
    struct reply r = sc_say(&c, sc_at(0, 0.9), "SC.GET f CAT q VEC @ TEXT a~question~like~it NOLEASE");
    sc_check_status(&r, "miss");
    assert_null(reply_field(&r, "value"));
    double number = sc_number(&r, "audit");
    assert_true(number > 0);
    reply_free(&r);
    snprintf(words, sizeof words, "SC.AUDIT GET f %.0f", number);
    for (unsigned i = 0; i < 2; i++) { /* it waits on */
        r = ask(&c, words);
        assert_true(sc_number(&r, "audit") == number);
        sc_check_field(&r, "id", id);
        sc_check_field(&r, "category", "q");
        sc_check_field(&r, "text", "a question like it");
        sc_check_field(&r, "entry_text", "the question");
        sc_check_field(&r, "entry_value", "the answer");
        reply_free(&r);
    }
    r = ask(&c, "SC.AUDIT POP f");
    assert_true(r.n == 1 && sc_number(&r.items[0], "audit") == number);
    reply_free(&r);
    snprintf(words, sizeof words, "SC.DEL f %s", id);
    r = ask(&c, words);
    reply_free(&r);
    snprintf(words, sizeof words, "SC.AUDIT GET f %.0f", number);
    r = ask(&c, words); /* the entry has gone, its pair is there */
    sc_check_field(&r, "text", "a question like it");
    assert_true(reply_field(&r, "entry_value")->null);
    reply_free(&r);
    snprintf(words, sizeof words, "SC.AUDIT PUT f %.0f BAD", number);
    expect_text(&c, words, "OK");
    snprintf(words, sizeof words, "SC.AUDIT GET f %.0f", number);
    r = ask(&c, words);
    assert_true(r.null);
    reply_free(&r);
    sc_end(s, &c);
}

static void test_audit(void **state)
{
    struct connection c;
    char id[ID_DIGITS + 1], words[200];
    unsigned audits = 0;
    struct test_server *s = sc_serve(&c);
    (void)state;
    expect_text(&c, "SC.CAT.SET f q SIM 0.9 AUDIT 1", "OK");
    sc_put(&c, sc_at(0, 1), id, "f CAT q VEC @ VALUE the~answer TEXT the~question COST 0.25");
    struct reply r = ask(&c, "SC.AUDIT POP f");
    assert_true(r.type == '*' && r.n == 0);
    reply_free(&r);
    for (unsigned i = 0; i < 5; i++) {
        r = sc_say(&c, sc_at(0, 0.97), "SC.GET f CAT q VEC @ TEXT a~question~like~it NOLEASE");
        sc_check_status(&r, "audit");
        sc_check_field(&r, "value", "the answer");
        assert_true(sc_number(&r, "audit") > 0);
        audits++;
        reply_free(&r);
    }
    r = ask(&c, "SC.AUDIT POP f COUNT 3");
    assert_int_equal(r.n, 3);
    const struct reply *pair = &r.items[0];
    sc_check_field(pair, "id", id);
    sc_check_field(pair, "category", "q");
    sc_check_field(pair, "text", "a question like it");
    sc_check_field(pair, "entry_text", "the question");
    sc_check_field(pair, "entry_value", "the answer");
    assert_true(fabs(sc_number(pair, "similarity") - 0.97) < 0.01);
    snprintf(words, sizeof words, "SC.AUDIT PUT f %.0f GOOD", sc_number(pair, "audit"));
    expect_text(&c, words, "OK");
    expect_error(&c, words, "ERR ");
    snprintf(words, sizeof words, "SC.AUDIT PUT f %.0f BAD", sc_number(&r.items[1], "audit"));
    expect_text(&c, words, "OK");
    reply_free(&r);
    r = ask(&c, "SC.STATS f CAT q");
    assert_true(sc_number(&r, "audits") == audits && sc_number(&r, "labels") == 2 &&
                sc_number(&r, "cost_audits") == 1.25);
    reply_free(&r);
    r = ask(&c, "INFO cache");
    assert_non_null(strstr(r.text, "\r\ncache_cost_audits:1.25\r\n"));
    reply_free(&r);
    r = ask(&c, "SC.AUDIT HELP");
    assert_true(r.n == 9);
    reply_free(&r);
    r = ask(&c, "SC.TUNE f q");
    assert_true(sc_number(&r, "requests") >= 5 && sc_number(&r, "labels") >= 1 &&
                reply_field(&r, "points")->type == '*');
    reply_free(&r);
    r = ask(&c, "SC.TUNE f q RISK 0");
    assert_true(sc_number(&r, "delta") == 0 && sc_number(&r, "threshold") > 0.97);
    reply_free(&r);
    r = ask(&c, "SC.TUNE f q RISK 1");
    assert_true(sc_number(&r, "delta") == 1 && sc_number(&r, "threshold") <= 1);
    reply_free(&r);
    r = ask(&c, "SC.EXPORT f");
    assert_true(r.type == '$' && r.bytes > 0);
    struct resp_buffer out = {.protocol = 2};
    put_literal(&out, "*3\r\n$9\r\nSC.IMPORT\r\n$1\r\nf\r\n");
    resp_bulk(&out, r.text, r.bytes);
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    reply_free(&r);
    r = read_reply(&c);
    assert_true(r.type == ':' && r.integer == 1);
    reply_free(&r);
    expect_text(&c, "SC.LOAD f m 0.95 EX 30", "OK");
    expect_text(&c, "SC.LOAD f m 0", "OK");
    sc_end(s, &c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_audit),
        cmocka_unit_test(test_audit_of_a_miss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
