/*
 * test_pattern.c - patterns: what each word of them means, random ones against the C library, what is refused, and time.
 */
#include "document/json/pattern.h"
#include "io/random.h"
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool finds(const char *text, const char *in)
{
    struct quire_error err = {0};
    struct pattern *pattern;
    if (pattern_compile(text, strlen(text), &pattern, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    bool found = pattern_matches(pattern, in, strlen(in));
    pattern_free(pattern);
    return found;
}

static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *in;
        bool found;
    } rows[] = {
        {"", "", true},
        {"", "x", true},
        {"b", "abc", true},
        {"d", "abc", false},
        {"^b", "abc", false},
        {"^ab", "abc", true},
        {"bc$", "abc", true},
        {"ab$", "abc", false},
        {"^$", "", true},
        {"^$", "x", false},
        {"a.c", "abc", true},
        {"a.c", "a\nc", false},
        {"^a.c$",
         "a\xc3\xa9"
         "c",
         true}, /* one character */
        {"^.$", "\xf0\x9f\x98\x80", true},
        {"^..$", "\xf0\x9f\x98\x80", false},
        {"^[^a]$", "\xe2\x82\xac", true},
        {"^\\W$", "\xe2\x82\xac", true},
        {"^[a\xc3\xa9]+$",
         "\xc3\xa9"
         "a\xc3\xa9",
         true},
        {"\xc3\xa9{2}", "\xc3\xa9\xc3\xa9", true},
        {"\xc3\xa9{2}", "\xc3\xa9\xc3\xa8", false},
        {"(?i)aBc", "xAbCx", true},
        {"(?i)[b-d]", "C", true},
        {"(?i)[^b]", "B", false},
        {"aBc", "abc", false},
        {"[a-c]x", "bx", true},
        {"[^a-c]x", "bx", false},
        {"[]x]", "]", true},
        {"[^]x]", "]", false},
        {"[a-]", "-", true},
        {"[a\\-z]", "m", false},
        {"[a\\-z]", "-", true},
        {"[\\d_]", "5", true},
        {"[[:upper:]0]", "a", false},
        {"[[:upper:]0]", "Q", true},
        {"\\d{3}-\\d{4}", "call 555-1234 now", true},
        {"\\d{3}-\\d{4}", "call 55-1234 now", false},
        {"^\\S+@\\S+\\.\\w{2,}$", "me@example.org", true},
        {"^\\S+@\\S+\\.\\w{2,}$", "me at example.org", false},
        {"\\bcat\\b", "a cat sat", true},
        {"\\bcat\\b", "concatenate", false},
        {"\\Bcat\\B", "concatenate", true},
        {"^\\D+$", "ab\xc3\xa9", true},
        {"a|b|c", "xcx", true},
        {"^(ab|cd)*$", "abcdab", true},
        {"^(ab|cd)*$", "abcda", false},
        {"^(?:ab|)c$", "c", true},
        {"^a{2,3}$", "a", false},
        {"^a{2,3}$", "aaa", true},
        {"^a{2,3}$", "aaaa", false},
        {"^a{2,}$", "aaaaaaa", true},
        {"^a{0}$", "", true},
        {"^(a*)*$", "aaaa", true},
        {"^(a*)*b$", "aaaa", false},
        {"^(a?){20}a{20}$", "aaaaaaaaaaaaaaaaaaaa", true},
        {"a.*?b", "axxb", true},
        {"\\.", "a", false},
        {"\\.\\*\\[\\(\\\\", ".*[(\\", true},
        {"\\n\\t", "\n\t", true},
        {"x{2}{3}", "xxxxx", false},
        {"x{2}{3}", "xxxxxx", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (finds(rows[i].pattern, rows[i].in) != rows[i].found)
            fail_msg("%s in '%s'", rows[i].pattern, rows[i].in);
    struct pattern *pattern;
    assert_int_equal(pattern_compile("a\\n?b", 5, &pattern, NULL), 0);
    assert_true(pattern_matches(pattern, "x\0ab", 4)); /* a byte 0 is a character as any */
    pattern_free(pattern);
}

static void test_what_is_no_pattern(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"(", "ends with )"},     {")", "closes no group"},   {"a)", "closes no group"},    {"[", "ends with ]"},
        {"[a", "ends with ]"},    {"*", "nothing to repeat"}, {"a|+", "nothing to repeat"}, {"a{", "repetition"},
        {"a{2", "repetition"},    {"a{,2}", "repetition"},    {"a{3,2}", "repetition"},     {"\\", "backslash"},
        {"(a)\\1", "understood"}, {"\\pL", "understood"},     {"(?=a)", "understood"},      {"a(?i)b", "understood"},
        {"[z-a]", "range"},       {"[^\xc3\xa9]", "ASCII"},   {"[a-\xc3\xa9]", "ASCII"},    {"[\\W]", "set"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct quire_error err = {0};
        struct pattern *pattern = NULL;
        assert_int_equal(pattern_compile(rows[i][0], strlen(rows[i][0]), &pattern, &err), QUIRE_EPARSE);
        if (pattern || !strstr(err.message, rows[i][1]) || !strstr(err.message, "byte"))
            fail_msg("%s: %s", rows[i][0], err.message);
    }
}

static void expect_too_large(const char *text)
{
    struct quire_error err = {0};
    struct pattern *pattern = NULL;
    assert_int_equal(pattern_compile(text, strlen(text), &pattern, &err), QUIRE_ELIMIT);
    assert_true(!pattern && err.message[0]);
}

static void test_limits(void **state)
{
    (void)state;
    char text[PATTERN_BYTES_MAX + 2];
    expect_too_large("a{1025}");
    expect_too_large("a{99999999999999999999}");
    expect_too_large("((a{99}){99}){99}");
    expect_too_large("(((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+");
    expect_too_large("a+++++++++++++++++++++++++++++++++++++++++++++");
    expect_too_large(".{300}");
    memset(text, 'a', sizeof text);
    text[PATTERN_BYTES_MAX + 1] = 0;
    expect_too_large(text);
    text[PATTERN_BYTES_MAX] = 0;
    assert_true(finds(text, text));
    memset(text, '(', 100);
    text[100] = 0;
    expect_too_large(text);
    memset(text, '.', PATTERN_BYTES_MAX);
    expect_too_large(text);
}

/* A pattern of a few letters and all operators. */
static void make(struct random *random, unsigned depth, char *out)
{
    unsigned n = 1 + (unsigned)random_below(random, 3);
    for (unsigned i = 0; i < n; i++) {
        static const char *const atoms[] = {"a", "b", "c", ".", "[ab]", "[^a]"};
        static const char *const repeats[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}"};
        if (i > 0 && random_below(random, 4) == 0)
            strcat(out, "|");
        if (depth > 0 && random_below(random, 3) == 0) {
            strcat(out, "(");
            make(random, depth - 1, out);
            strcat(out, ")");
        } else {
            strcat(out, atoms[random_below(random, 6)]);
        }
        strcat(out, repeats[random_below(random, 9)]);
    }
}

static void test_random_patterns(void **state)
{
    (void)state;
    struct random random;
    unsigned found = 0, compared = 0;
    random_init(&random, 23);
    for (unsigned round = 0; round < 20000; round++) {
        char text[512] = "";
        regex_t other;
        struct pattern *pattern;
        if (random_below(&random, 3) == 0)
            strcat(text, "^");
        make(&random, 2, text);
        if (random_below(&random, 3) == 0)
            strcat(text, "$");
        if (strlen(text) > PATTERN_BYTES_MAX || regcomp(&other, text, REG_EXTENDED | REG_NOSUB) != 0)
            continue;
        assert_int_equal(pattern_compile(text, strlen(text), &pattern, NULL), 0);
        for (unsigned i = 0; i < 8; i++) {
            char in[16];
            size_t n = random_below(&random, 10);
            for (size_t k = 0; k < n; k++)
                in[k] = (char)('a' + random_below(&random, 4));
            in[n] = 0;
            bool is_found = pattern_matches(pattern, in, n);
            if (is_found != (regexec(&other, in, 0, NULL, 0) == 0))
                fail_msg("%s in '%s': %s", text, in, is_found ? "found" : "not found");
            found += is_found;
            compared++;
        }
        pattern_free(pattern);
        regfree(&other);
    }
    assert_true(compared > 50000 && found > compared / 10 && found < compared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_what_is_no_pattern),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_random_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
