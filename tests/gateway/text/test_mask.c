/* test_mask.c - which places of a text are masked, written by hand, and that time grows with the text alone. */
#include "gateway/text/mask.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The text with each place as <>. */
static void assert_masked(unsigned masks, const char *text, const char *wanted)
{
    char out[512];
    size_t at = 0, found, bytes, n = 0, all = strlen(text);
    while (mask_find(text, all, at, masks, &found, &bytes)) {
        assert_true(found >= at && bytes > 0 && found + bytes <= all);
        memcpy(out + n, text + at, found - at);
        n += found - at;
        memcpy(out + n, "<>", 2);
        n += 2;
        at = found + bytes;
    }
    memcpy(out + n, text + at, all - at);
    out[n + all - at] = 0;
    assert_string_equal(out, wanted);
}

static void times(void **state)
{
    (void)state;
    const unsigned m = MASK_ISO_TIME;
    assert_masked(m, "now 2026-11-23T18:05:10.123+01:00!", "now <>!");
    assert_masked(m, "2026-11-23 18:05", "<>");
    assert_masked(m, "2026-11-23T18:05:10Z", "<>");
    assert_masked(m, "at 18:05:10, at 6:05:10 PM.", "at <>, at <>.");
    assert_masked(m, "18:05:10+0100", "<>");
    assert_masked(m, "open from 09:00 to 17:30 on 2026-11-23", "open from 09:00 to 17:30 on 2026-11-23");
    assert_masked(m, "12026-11-23T18:05 2026-13-23T18:05 25:00:61", "12026-11-23T18:05 2026-13-23T18:05 25:00:61");
    assert_masked(m, "x18:05:10 18:05:10x", "x18:05:10 18:05:10x");
}

static void ids(void **state)
{
    (void)state;
    assert_masked(MASK_UUID, "id 123e4567-e89b-12d3-A456-426614174000.", "id <>.");
    assert_masked(MASK_UUID, "123e4567-e89b-12d3-a456-42661417400", "123e4567-e89b-12d3-a456-42661417400");
    assert_masked(MASK_UUID, "123e4567-e89b-12d3-a456-4266141740000", "123e4567-e89b-12d3-a456-4266141740000");
    assert_masked(MASK_DATE, "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000");
}

static void dates(void **state)
{
    (void)state;
    const unsigned m = MASK_DATE;
    assert_masked(m, "Today is 2026-11-23.", "Today is <>.");
    assert_masked(m, "2026/11/23 23.11.2026 11/23/2026 3/7/2026", "<> <> <> <>");
    assert_masked(m, "Monday, November 23, 2026", "<>");
    assert_masked(m, "on Mon Nov 23 2026 and on 23 November 2026", "on <> and on <>");
    assert_masked(m, "November 23rd, 2026; 1st Dec. 2026", "<>; <>");
    assert_masked(m, "version 1.2.2026x, 1.2.3, May be 5, march on 7",
                  "version 1.2.2026x, 1.2.3, May be 5, march on 7");
    assert_masked(m, "Monday mornings, 23 November", "Monday mornings, 23 November");
    assert_masked(m | MASK_ISO_TIME, "2026-11-23T18:05:10Z 2026-11-23", "<> <>");
    assert_masked(m, "2026-11-23T18:05:10Z", "2026-11-23T18:05:10Z");
    assert_masked(0, "2026-11-23", "2026-11-23");
}

static void names(void **state)
{
    (void)state;
    assert_int_equal(mask_named("iso-time"), MASK_ISO_TIME);
    assert_int_equal(mask_named("uuid"), MASK_UUID);
    assert_int_equal(mask_named("date"), MASK_DATE);
    assert_int_equal(mask_named("dates"), 0);
}

/* Each place of the text begins something that looks right for as long as possible. */
static void long_texts(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static const char piece[] = "2026-11-23 Monday, November 23, 1 12:30 a-b ";
    char *text = malloc(N);
    size_t at, bytes;
    assert_non_null(text);
    for (size_t i = 0; i < N; i++)
        text[i] = piece[i % (sizeof piece - 1)];
    assert_false(mask_find(text, N, 0, MASK_ISO_TIME | MASK_UUID, &at, &bytes));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(times), cmocka_unit_test(ids), cmocka_unit_test(dates),
                                       cmocka_unit_test(names), cmocka_unit_test(long_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
