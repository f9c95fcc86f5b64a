/*
 * test_guard.c - guards on pairs of texts that people wrote, and on bytes that nobody would.
 *
 * The bars are those of docs/guards.md: every trap of traps.tsv is blocked in both directions, at most 3 % of
 * paraphrases.tsv are. The held-out files were written at the same time and never tuned to; their bounds lie a little
 * below what was measured on them once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cache/guard/guard.h"
#include "io/random.h"
#include "tests/temp_folder.h"
#include <stdio.h>
#include <stdlib.h>

struct verdict {
    bool agree;
    enum guard_kind kind;
    char why[160];
};

static struct guard_tables *tables;

static int load_tables(void **state)
{
    (void)state;
    return guard_tables_load(NULL, &tables, NULL);
}

static int free_tables(void **state)
{
    (void)state;
    guard_tables_free(tables);
    return 0;
}

/* Compares in both directions, which must come out alike. */
static struct verdict compare_with(const struct guard_tables *with, const char *a, const char *b, unsigned mask)
{
    uint8_t x[GUARD_BYTES], y[GUARD_BYTES];
    struct verdict forth = {.kind = GUARD_KINDS}, back = {.kind = GUARD_KINDS};
    uint32_t n_x = guard_features(with, text_of(a), x), n_y = guard_features(with, text_of(b), y);
    assert_true(n_x <= GUARD_BYTES && n_y <= GUARD_BYTES);
    forth.agree = guard_agree(x, n_x, y, n_y, mask, &forth.kind, forth.why);
    back.agree = guard_agree(y, n_y, x, n_x, mask, &back.kind, back.why);
    assert_int_equal(forth.agree, back.agree);
    assert_int_equal(forth.kind, back.kind);
    return forth;
}

static struct verdict compare(const char *a, const char *b)
{
    return compare_with(tables, a, b, GUARD_ALL);
}

static bool agree(const char *a, const char *b)
{
    return compare(a, b).agree;
}

/* ---- the files of pairs ------------------------------------------------------------------------------------------ */

struct tally {
    unsigned pairs, blocked;
};

/* Goes over a file of pairs and prints those that came out as not wanted. `columns` before the texts are skipped. */
static struct tally pairs_of(const char *name, unsigned columns, bool wanted_blocked)
{
    char path[512], line[1024];
    struct tally tally = {0, 0};
    snprintf(path, sizeof path, "%s/tests/cache/%s", QUIRE_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char *fields[3] = {NULL}, *at = line;
        if (line[0] == '#')
            continue;
        for (unsigned i = 0; i < columns + 2; i++)
            fields[i] = strsep(&at, "\t\n");
        assert_non_null(fields[columns + 1]);
        struct verdict verdict = compare(fields[columns], fields[columns + 1]);
        tally.pairs++;
        tally.blocked += !verdict.agree;
        if (verdict.agree == wanted_blocked)
            print_message("%s: %s | %s%s%s\n", name, fields[columns], fields[columns + 1], verdict.agree ? "" : " | ",
                          verdict.why);
    }
    fclose(file);
    print_message("%s: %u of %u blocked\n", name, tally.blocked, tally.pairs);
    return tally;
}

static void every_trap_is_blocked(void **state)
{
    (void)state;
    struct tally tally = pairs_of("traps.tsv", 1, true);
    assert_true(tally.pairs >= 300);
    assert_int_equal(tally.blocked, tally.pairs);
}

static void paraphrases_pass(void **state)
{
    (void)state;
    struct tally tally = pairs_of("paraphrases.tsv", 0, false);
    assert_true(tally.pairs >= 300);
    assert_true(tally.blocked * 100 <= tally.pairs * 3);
}

static void held_out_pairs_keep_their_bounds(void **state)
{
    (void)state;
    struct tally traps = pairs_of("traps_held_out.tsv", 1, true);
    struct tally paraphrases = pairs_of("paraphrases_held_out.tsv", 0, false);
    assert_true(traps.pairs >= 100 && traps.blocked * 100 >= traps.pairs * 90);
    assert_true(paraphrases.pairs >= 100 && paraphrases.blocked * 100 <= paraphrases.pairs * 10);
}

/* ---- notation ---------------------------------------------------------------------------------------------------- */

static void one_thing_in_many_notations(void **state)
{
    (void)state;
    static const char *const equal[][2] = {
        {"lend me $5", "lend me five dollars"},
        {"run 5km", "run 5 kilometres"},
        {"run 5 km", "run 5"},
        {"twenty-five of them", "25 of them"},
        {"two hundred and fifty-three thousand", "253,000"},
        {"1.5 million", "1,500,000"},
        {"a dozen eggs", "12 eggs"},
        {"the 2nd law", "the second law"},
        {"call on July 4, 1776", "call on 4th of July 1776"},
        {"call on 1776-07-04", "call on 7/4/1776"},
        {"at 17:00", "at 5pm"},
        {"at 7", "at 7 am"},
        {"half past six", "6:30"},
        {"at 6.30 pm", "at 18:30"},
        {"the 80s", "the 1980s"},
        {"what's up today", "what's up"},
        {"\xe2\x80\x9c"
         "abc\xe2\x80\x9d there",
         "\"ABC\" there"},
        {"the weather in NYC", "the weather in New York"},
        {"in an hour", "in 1 hour"},
        {"twice a day", "2 times a day"},
        {"a W-2 form", "a w2 form"},
        {"which one is it", "which is it"},
        {"why not go", "why go"},
        {"say the name v2.3.1", "say the name 2.3.1"},
    };
    static const char *const different[][2] = {
        {"version 3.1", "version 3.10"},
        {"twenty-five", "twenty-six"},
        {"at 7 pm", "at 7 am"},
        {"run 5 km", "run 5 miles"},
        {"remind me in an hour", "remind me in one minute"},
        {"1 ounce of gold", "1 gram of gold"},
        {"a 20 minute walk", "a 20 second walk"},
        {"2, 2 and 3", "2, 3 and 3"},
        {"the weather in the US", "the weather in the UK"},
        {"tools that were enabled", "tools that were disabled"},
        {"stopping it", "starting it"},
        {"-R there", "-r there"},
        {"is it good", "is it not good"},
        {"two hundred five", "two hundred fifty"},
    };
    for (unsigned i = 0; i < sizeof equal / sizeof *equal; i++)
        if (!agree(equal[i][0], equal[i][1]))
            fail_msg("%s | %s | %s", equal[i][0], equal[i][1], compare(equal[i][0], equal[i][1]).why);
    for (unsigned i = 0; i < sizeof different / sizeof *different; i++)
        if (agree(different[i][0], different[i][1]))
            fail_msg("%s | %s agree", different[i][0], different[i][1]);
}

static void each_guard_says_why(void **state)
{
    (void)state;
    static const struct {
        enum guard_kind kind;
        const char *a, *b, *why;
    } rows[] = {
        {GUARD_NUMBER, "how far is 5 km", "how far is 7 km", "number: 5 km here, 7 km there"},
        {GUARD_NEGATION, "turn on the light", "turn off the light", "negation: turn on here, turn off there"},
        {GUARD_NEGATION, "is it safe", "is it not safe", "negation: none here, not there"},
        {GUARD_LITERAL, "open a_b.c", "open a_d.c", "literal: a_b.c here, a_d.c there"},
        {GUARD_LITERAL, "from Rome to Oslo", "from Oslo to Rome",
         "literal: rome before oslo here, oslo before rome there"},
        {GUARD_DATE, "open tomorrow", "open on monday", "date: tomorrow here, monday there"},
        {GUARD_LANGUAGE, "what is the weather like", "wie ist das und warum nur", "language: en here, de there"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verdict verdict = compare(rows[i].a, rows[i].b);
        assert_false(verdict.agree);
        assert_string_equal(verdict.why, rows[i].why);
        assert_int_equal(verdict.kind, rows[i].kind);
        /* and only that guard speaks */
        assert_true(compare_with(tables, rows[i].a, rows[i].b, GUARD_ALL & ~(1u << rows[i].kind)).agree);
        assert_int_equal(guard_find(text_of(guard_name(rows[i].kind))), 1u << rows[i].kind);
    }
    assert_int_equal(guard_find(text_of("all")), 0);
}

static void features_are_small_and_the_same_every_time(void **state)
{
    (void)state;
    static const char *const plain[] = {"how do I cook rice", "what is recursion", "tell me a joke please", "hm", ""};
    uint8_t a[GUARD_BYTES], b[GUARD_BYTES];
    struct guard_tables *again;
    assert_int_equal(guard_tables_load(NULL, &again, NULL), 0);
    for (unsigned i = 0; i < sizeof plain / sizeof *plain; i++)
        assert_true(guard_features(tables, text_of(plain[i]), a) <= 4);
    struct quire_bytes text = text_of("Send $5 to Anna on Friday, not \"now\", from a_b to c_d; turn off 3 lamps");
    uint32_t n = guard_features(tables, text, a);
    assert_true(n > 40);
    assert_int_equal(guard_features(again, text, b), n);
    assert_memory_equal(a, b, n);
    for (uint32_t at = 0, before = 0; at < n; before = at, at += 2u + a[at + 1])
        assert_true(a[at] >= a[before]);
    guard_tables_free(again);
}

/* ---- texts with more than fits ----------------------------------------------------------------------------------- */

static void a_long_text_agrees_with_itself_only(void **state)
{
    (void)state;
    static char numbers[4000], words[20000], changed[20000];
    size_t n = 0;
    for (unsigned i = 0; i < 200; i++)
        n += (size_t)snprintf(numbers + n, sizeof numbers - n, "%u apples, ", 1000 + i);
    memset(words, 'a', sizeof words - 1);
    for (size_t i = 5; i < sizeof words - 1; i += 6)
        words[i] = ' ';
    memcpy(changed, words, sizeof words);
    changed[sizeof words - 3] = 'b';
    assert_true(agree(numbers, numbers));
    assert_true(agree(words, words));
    assert_false(agree(words, changed));
    numbers[n - 4] = 'S';
    char *copy = strdup(numbers);
    copy[0] = '2';
    struct verdict verdict = compare(numbers, copy);
    assert_false(verdict.agree);
    assert_int_equal(verdict.kind, GUARD_LITERAL);
    assert_false(agree(numbers, "apples"));
    assert_true(compare_with(tables, numbers, copy, 0).agree);
    assert_int_equal(compare_with(tables, numbers, copy, 1u << GUARD_DATE).kind, GUARD_DATE);
    free(copy);
}

static void any_bytes_are_taken(void **state)
{
    (void)state;
    static const char alphabet[] = "aAbB019 .,:-/'\"`$%#@_~\\\n\xc3\xa9\xd0\x96\xe4\xbd\xa0\xf0\x9f";
    struct random random;
    random_init(&random, 7);
    for (unsigned round = 0; round < 20000; round++) {
        char text[300];
        size_t n = random_below(&random, sizeof text);
        for (size_t i = 0; i < n; i++)
            text[i] = round % 2 ? (char)random_next(&random) : alphabet[random_below(&random, sizeof alphabet)];
        char *exact = malloc(n + 1); /* so that the sanitizer sees a read behind the end */
        assert_non_null(exact);
        memcpy(exact, text, n);
        uint8_t x[GUARD_BYTES], y[GUARD_BYTES];
        enum guard_kind kind;
        char why[160];
        char *tight = realloc(exact, n ? n : 1);
        assert_non_null(tight);
        uint32_t n_x = guard_features(tables, (struct quire_bytes){tight, n}, x);
        uint32_t n_y = guard_features(tables, (struct quire_bytes){tight, n / 2}, y);
        assert_true(n_x <= GUARD_BYTES && guard_agree(x, n_x, x, n_x, GUARD_ALL, &kind, why));
        bool forth = guard_agree(x, n_x, y, n_y, GUARD_ALL, &kind, why);
        assert_int_equal(forth, guard_agree(y, n_y, x, n_x, GUARD_ALL, &kind, NULL));
        /* as features of a damaged file */
        guard_agree((uint8_t *)tight, (uint32_t)n, x, n_x, GUARD_ALL, &kind, why);
        free(tight);
    }
}

/* ---- the user's files -------------------------------------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char *path = support_path(folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
    free(path);
}

static void a_folder_extends_the_tables(void **state)
{
    (void)state;
    struct guard_tables *mine = NULL;
    char *folder = support_folder_make();
    assert_true(agree("engage the flux", "disengage the flux"));
    assert_true(agree("buy some frobnicators", "buy some widgetizers"));
    write_file(folder, "antonyms.txt", "# ours\n\nengage | disengage # as on ships\n");
    write_file(folder, "names.txt", "name: frobnicators = frobs\r\nname: widgetizers");
    write_file(folder, "README.md", "not a table\n");
    assert_int_equal(guard_tables_load(folder, &mine, NULL), 0);
    assert_false(compare_with(mine, "engage the flux", "disengage the flux", GUARD_ALL).agree);
    assert_false(compare_with(mine, "buy some frobs", "buy some widgetizers", GUARD_ALL).agree);
    assert_true(compare_with(mine, "buy some frobs", "buy some frobnicators", GUARD_ALL).agree);
    assert_false(compare_with(mine, "turn on the light", "turn off the light", GUARD_ALL).agree);
    guard_tables_free(mine);
    support_folder_remove(folder);
}

static void a_wrong_file_is_named_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *says;
    } rows[] = {
        {"antonyms.txt", "a | b\nonly one side\n", "antonyms.txt, line 2: two sides and one bar"},
        {"antonyms.txt", "a | b | c\n", "line 1: two sides and one bar"},
        {"antonyms.txt", "a, | b\n", "line 1: a word is missing"},
        {"antonyms.txt", "turn ~ | b\n", "stands between two words"},
        {"antonyms.txt", "one two three four five | b\n", "at most 4 words"},
        {"numbers.txt", "cardinal: x = ex\n", "line 1: a number from 0 to 1e15"},
        {"numbers.txt", "cardinal: two\n", "section: number = word"},
        {"units.txt", "\n\nlength: ell\n", "units.txt, line 3: this file has no such section: \"length\""},
        {"names.txt", "just a name\n", "section: word, word"},
        {"names.txt", "name: abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\n", "at most 48 bytes"},
        {"colours.txt", "red\n", "is no table of the guards"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct guard_tables *mine = NULL;
        struct quire_error err = {0};
        char *folder = support_folder_make();
        write_file(folder, rows[i].file, rows[i].text);
        assert_int_equal(guard_tables_load(folder, &mine, &err), QUIRE_EPARSE);
        if (!strstr(err.message, rows[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.message, rows[i].says);
        assert_null(mine);
        support_folder_remove(folder);
    }
    struct guard_tables *mine = NULL;
    struct quire_error err = {0};
    assert_int_equal(guard_tables_load("/nonexistent/guards", &mine, &err), QUIRE_ENOFILE);
    assert_non_null(strstr(err.message, "/nonexistent/guards"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_trap_is_blocked),
        cmocka_unit_test(paraphrases_pass),
        cmocka_unit_test(held_out_pairs_keep_their_bounds),
        cmocka_unit_test(one_thing_in_many_notations),
        cmocka_unit_test(each_guard_says_why),
        cmocka_unit_test(features_are_small_and_the_same_every_time),
        cmocka_unit_test(a_long_text_agrees_with_itself_only),
        cmocka_unit_test(any_bytes_are_taken),
        cmocka_unit_test(a_folder_extends_the_tables),
        cmocka_unit_test(a_wrong_file_is_named_with_its_line),
    };
    return cmocka_run_group_tests(tests, load_tables, free_tables);
}
