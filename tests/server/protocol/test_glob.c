/*
 * test_glob.c - patterns against texts, beside a table over all pairs of their places; both ways of matching, and what
 * a pattern may cost at most.
 */
#include "io/random.h"
#include "server/protocol/glob.h"
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { PATTERN = 40, TEXT = 600 };

static bool same(char a, char b, bool fold)
{
    return fold ? tolower((unsigned char)a) == tolower((unsigned char)b) : a == b;
}

/* One element at p: how many bytes it has, and whether it accepts c. */
static size_t element(const char *p, const char *end, char c, bool fold, bool *accepts)
{
    const char *at = p;
    if (*at == '?') {
        *accepts = true;
        return 1;
    }
    if (*at != '[') {
        at += *at == '\\' && at + 1 < end;
        *accepts = same(*at, c, fold);
        return (size_t)(at + 1 - p);
    }
    bool negated = ++at < end && *at == '^', found = false;
    for (at += negated; at < end && *at != ']'; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
        unsigned char low = (unsigned char)*at, high = low, x = (unsigned char)c;
        if (at + 2 < end && at[1] == '-' && at[2] != ']') {
            high = (unsigned char)at[2];
            at += 2;
        }
        if (fold) {
            low = (unsigned char)tolower(low);
            high = (unsigned char)tolower(high);
            x = (unsigned char)tolower(x);
        }
        found |= low <= high ? low <= x && x <= high : high <= x && x <= low;
    }
    *accepts = found != negated;
    return (size_t)((at < end ? at + 1 : end) - p);
}

static bool by_table(struct resp_arg pattern, struct resp_arg text, bool fold)
{
    static bool matches[PATTERN + 1][TEXT + 1]; /* the pattern from p on, the text from t on */
    const char *begin = (const char *)pattern.data, *end = begin + pattern.bytes;
    for (size_t p = pattern.bytes + 1; p-- > 0;)
        for (size_t t = text.bytes + 1; t-- > 0;) {
            bool accepts, *m = &matches[p][t];
            size_t bytes;
            if (p == pattern.bytes)
                *m = t == text.bytes;
            else if (begin[p] == '*')
                *m = matches[p + 1][t] || (t < text.bytes && matches[p][t + 1]);
            else if (t == text.bytes)
                *m = false;
            else
                *m = (bytes = element(begin + p, end, (char)text.data[t], fold, &accepts), accepts) &&
                     matches[p + bytes][t + 1];
        }
    return matches[0][0];
}

static struct resp_arg arg_of(const char *bytes, size_t n)
{
    return (struct resp_arg){(const uint8_t *)bytes, (uint32_t)n};
}

static void test_as_by_table(void **state)
{
    static const char signs[] = "aabbAB******??[]^-\\c";
    struct random random = {5};
    unsigned matched = 0, by_states = 0;
    (void)state;
    for (unsigned round = 0; round < 40000; round++) {
        char pattern[PATTERN], text[TEXT];
        bool fold = round % 2, long_text = round % 4 >= 2;
        size_t n = random_next(&random) % PATTERN, m = random_next(&random) % (long_text ? TEXT : 12);
        struct glob glob;
        for (size_t i = 0; i < n; i++)
            pattern[i] = signs[random_next(&random) % (sizeof signs - 1)];
        for (size_t i = 0; i < m; i++)
            text[i] = "aabbcA-"[random_next(&random) % 7];
        bool should = by_table(arg_of(pattern, n), arg_of(text, m), fold);
        glob_begin(&glob, arg_of(pattern, n), fold);
        bool is = glob_test(&glob, arg_of(text, m));
        by_states += glob.states != NULL;
        glob_end(&glob);
        if (is != should || glob_matches_bytes(arg_of(pattern, n), arg_of(text, m), fold) != should)
            fail_msg("'%.*s' against '%.*s' should be %d", (int)n, pattern, (int)m, text, should);
        matched += should;
    }
    if (matched < 1000 || by_states < 1000)
        fail_msg("only %u matched, and %u by all places at once", matched, by_states);
}

/* Elements in every word, and carries from one to the next. */
static void test_long_patterns(void **state)
{
    static char pattern[GLOB_BYTES_MAX], text[20000];
    (void)state;
    memset(text, 'a', sizeof text);
    for (size_t n = 60; n <= GLOB_BYTES_MAX; n += 1 + n / 20) {
        struct glob glob;
        memset(pattern, 'a', n);
        pattern[0] = '*';
        pattern[n - 1] = 'b';
        glob_begin(&glob, arg_of(pattern, n), false);
        assert_false(glob_test(&glob, arg_of(text, sizeof text)));
        text[sizeof text - 1] = 'b';
        assert_true(glob_test(&glob, arg_of(text, sizeof text)));
        assert_true(glob_test(&glob, arg_of(text + sizeof text - n + 1, n - 1)));
        assert_false(glob_test(&glob, arg_of(text + sizeof text - n + 2, n - 2)));
        text[sizeof text - 1] = 'a';
        assert_in_range(glob_cost(&glob, arg_of(text, sizeof text)), 1, sizeof text * 17);
        glob_end(&glob);
    }
}

/* The product of the two would be 10^10 steps. */
static void test_no_pattern_takes_long(void **state)
{
    enum { LONG = 10 << 20 };
    char pattern[GLOB_BYTES_MAX], *text = malloc(LONG);
    (void)state;
    assert_non_null(text);
    memset(text, 'a', LONG);
    memset(pattern, 'a', sizeof pattern);
    for (size_t i = 0; i < sizeof pattern; i += 100)
        pattern[i] = i % 200 ? '?' : '*';
    pattern[sizeof pattern - 1] = 'b';
    clock_t began = clock();
    assert_false(glob_matches_bytes(arg_of(pattern, sizeof pattern), arg_of(text, LONG), false));
    assert_in_range((clock() - began) / CLOCKS_PER_SEC, 0, 10);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_by_table),
        cmocka_unit_test(test_long_patterns),
        cmocka_unit_test(test_no_pattern_takes_long),
    };
    return cmocka_run_group_tests_name("patterns", tests, NULL, NULL);
}
