/*
 * test_text.c - words: separators, escapes, lower case (against libc's table), stop words, positions, stems, languages.
 */
#include "document/text/fold.h"
#include "document/text/text_words.h"
#include "quire.h"
#include "tests/document/support_query.h"
#include <ctype.h>
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <wctype.h>

#include <cmocka.h>

/* The words with a blank between them, "/stem" behind those that have one, "@position" behind each. */
static void show(const struct text_rules *rules, const char *value, size_t bytes, char *out, size_t room,
                 bool positions)
{
    struct text_words words;
    struct text_word word;
    size_t at = 0;
    int more;
    out[0] = 0;
    text_words_init(&words, rules, value, bytes);
    while ((more = text_words_next(&words, &word)) == 1) {
        at += (size_t)snprintf(out + at, room - at, "%s%.*s", at ? " " : "", (int)word.bytes, word.text);
        if (word.stem)
            at += (size_t)snprintf(out + at, room - at, "/%.*s", (int)word.stem_bytes, word.stem);
        if (positions)
            at += (size_t)snprintf(out + at, room - at, "@%u", word.position);
        assert_true(at < room);
    }
    assert_int_equal(more, 0);
    text_words_fini(&words);
}

static void check(const struct text_rules *rules, const char *value, const char *expected)
{
    char out[1000];
    show(rules, value, strlen(value), out, sizeof out, false);
    assert_string_equal(out, expected);
}

static void test_separators(void **state)
{
    const struct text_rules rules = {0};
    char out[100];
    (void)state;
    check(&rules, "", "");
    check(&rules, " ,;!", "");
    check(&rules, "hello world", "hello world");
    check(&rules, "hello,world.again/and(more)", "hello world again more");
    check(&rules, "a1{b}[c]:d;e~f!g@h#i$j%k^l&m*n-o=p+q|r'u`v\"w<x>y?z",
          "a1 b c d e f g h i j k l m n o p q r u v w x y z");
    check(&rules, "one\ntwo\tthree\r\nfour\ffive\vsix", "one two three four five six");
    check(&rules, "under_score", "under_score");
    check(&rules, "-2.25 +1.5 3.14", "2 25 1 5 3 14");
    check(&rules, "user@example.com", "user example com");
    show(&rules, "one\0two\x7fthree", 13, out, sizeof out, false);
    assert_string_equal(out, "one two three");
    for (unsigned c = 0; c < 256; c++)
        assert_int_equal(text_is_separator((unsigned char)c),
                         c <= 32 || c == 127 || (c < 127 && ispunct((int)c) && c != '_' && c != '\\'));
}

static void test_escapes(void **state)
{
    const struct text_rules rules = {0};
    (void)state;
    check(&rules, "hash\\#tag", "hash#tag");
    check(&rules, "new\\ york city", "new york city");
    check(&rules, "a\\\\b", "a\\b");
    check(&rules, "\\-5", "-5");
    check(&rules, "ab\\", "ab");
    check(&rules, "\\", "");
    check(&rules, "a\\bc", "abc");
}

static void test_case(void **state)
{
    const struct text_rules rules = {0};
    (void)state;
    check(&rules, "HeLLo", "hello");
    check(&rules, "ÉCOLE Größe ŁÓDŹ", "école größe łódź");
    check(&rules, "МОСКВА ΑΘΗΝΑ", "москва αθηνα");
    check(&rules, "İstanbul", "istanbul");
    check(&rules, "ȺB", "ⱥb");
    check(&rules, "\xff\xfeX \xc3", "\xff\xfex \xc3");
    check(&rules, "𐐀 中文 😀", "𐐨 中文 😀");
}

/* The table against glibc's, for all characters that both know. */
static void test_fold_table(void **state)
{
    locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    uint32_t n_folded = 0, n_different = 0;
    (void)state;
    if (locale == (locale_t)0) {
        print_message("skipped: libc has no locale C.UTF-8\n");
        skip();
    }
    for (uint32_t c = 0; c < 0x110000; c++) {
        uint32_t here = fold_letter(c), there = (uint32_t)towlower_l((wint_t)c, locale);
        n_folded += here != c;
        n_different += here != there && there != c; /* an older libc knows fewer letters */
        assert_int_equal(fold_letter(here), here);
    }
    freelocale(locale);
    assert_int_equal(n_different, 0);
    assert_int_equal(n_folded, 1407 + 26);
}

static void test_fold_text(void **state)
{
    char out[64];
    (void)state;
    for (uint32_t c = 0x80; c < 0x110000; c++) {
        char text[8];
        uint32_t n = 0, letter = 0;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        /* written by hand, to see that the room suffices and that the letter comes back */
        if (c >= 0x10000)
            text[n++] = (char)(0xf0 | c >> 18);
        if (c >= 0x800)
            text[n++] = (char)(c >= 0x10000 ? 0x80 | (c >> 12 & 63) : 0xe0 | c >> 12);
        text[n] = (char)(c >= 0x800 ? 0x80 | (c >> 6 & 63) : 0xc0 | c >> 6);
        n++;
        text[n++] = (char)(0x80 | (c & 63));
        assert_int_equal(fold_decode(text, n, &letter), n);
        assert_int_equal(letter, c);
        uint32_t bytes = fold_text(text, n, out);
        assert_true(bytes <= FOLD_ROOM(n));
        assert_int_equal(fold_decode(out, bytes, &letter), bytes);
        assert_int_equal(letter, fold_letter(c));
    }
    assert_int_equal(fold_text("\xc3", 1, out), 1);
    assert_int_equal(fold_text("\xed\xa0\x80", 3, out), 3);
    assert_memory_equal(out, "\xed\xa0\x80", 3);
    assert_int_equal(fold_text("", 0, out), 0);
}

static void test_stopwords(void **state)
{
    struct text_rules rules = {0};
    struct schema *own = schema_of("idx STOPWORDS 2 foo BAR SCHEMA t TEXT");
    struct schema *none = schema_of("idx STOPWORDS 0 SCHEMA t TEXT");
    struct schema *usual = schema_of("idx SCHEMA t TEXT");
    (void)state;
    check(&rules, "the cat AND The dog will be with them", "cat dog them");
    rules.schema = usual;
    check(&rules, "to be or not to be", "");
    rules.schema = own;
    check(&rules, "the foo bar baz", "the baz");
    rules.schema = none;
    check(&rules, "the foo", "the foo");
    rules.schema = NULL;
    rules.keep_stopwords = true;
    check(&rules, "the foo", "the foo");
    for (uint32_t i = 0; i < TEXT_STOPWORDS_COUNT; i++) {
        const char *word = text_stopword(i);
        assert_true(text_is_stopword(NULL, word, strlen(word)));
        assert_true(text_is_stopword(usual, word, strlen(word)));
        assert_false(text_is_stopword(NULL, word, strlen(word) - 1) && strlen(word) == 1);
        assert_true(i == 0 || strcmp(text_stopword(i - 1), word) < 0);
    }
    assert_false(text_is_stopword(NULL, "th", 2));
    assert_false(text_is_stopword(NULL, "thee", 4));
    assert_false(text_is_stopword(NULL, "", 0));
    assert_false(text_is_stopword(NULL, "a\0b", 3)); /* an escaped NUL may stand in a word */
    assert_false(text_is_stopword(NULL, "\0", 1));
    schema_free(own);
    schema_free(none);
    schema_free(usual);
}

static void test_positions(void **state)
{
    struct text_rules rules = {0};
    char out[100];
    (void)state;
    show(&rules, "king of the spain", 17, out, sizeof out, true);
    assert_string_equal(out, "king@1 spain@2");
    rules.position = 100;
    show(&rules, "next value", 10, out, sizeof out, true);
    assert_string_equal(out, "next@101 value@102");
}

static void test_stems(void **state)
{
    struct text_rules rules = {.language = text_language_find("English", 7)};
    (void)state;
    check(&rules, "running runs run cats cat ties its", "running/run runs/run run cats/cat cat ties/tie its");
    check(&rules, "cherry 2024 café", "cherry/cherri 2024 café");
    rules.query = true;
    check(&rules, "running run its", "running/run run/run its/it");
    rules.no_stems = true;
    check(&rules, "running run", "running run");
    rules = (struct text_rules){.language = text_language_find("german", 6)};
    check(&rules, "Häuser laufen", "häuser/haus laufen/lauf");
    rules.language = text_language_find("russian", 7);
    check(&rules, "Книги", "книги/книг");
}

static void test_languages(void **state)
{
    static const char *const names[] = {"arabic",  "armenian",  "basque",     "catalan",    "chinese",  "danish",
                                        "dutch",   "english",   "finnish",    "french",     "german",   "greek",
                                        "hindi",   "hungarian", "indonesian", "irish",      "italian",  "lithuanian",
                                        "malay",   "nepali",    "norwegian",  "portuguese", "romanian", "russian",
                                        "serbian", "spanish",   "swedish",    "tamil",      "turkish",  "yiddish"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct text_rules rules = {.language = text_language_find(names[i], strlen(names[i])), .query = true};
        assert_non_null(rules.language);
        assert_string_equal(text_language_name(rules.language), names[i]);
        check(&rules, "x1", strcmp(names[i], "chinese") == 0 ? "x1" : "x1/x1");
    }
    assert_null(text_language_find("klingon", 7));
    assert_null(text_language_find("englis", 6));
    assert_null(text_language_find("", 0));
}

static void test_chinese(void **state)
{
    struct text_rules rules = {.language = text_language_find("chinese", 7)};
    (void)state;
    check(&rules, "中文abc汉字, x", "中 文 abc 汉 字 x");
    check(&rules, "中文\xe4\xb8", "中 文 \xe4\xb8");
    rules.language = NULL;
    check(&rules, "中文abc汉字", "中文abc汉字");
}

static void test_long_words(void **state)
{
    const struct text_rules rules = {.language = text_language_find("english", 7)};
    static char value[3 * TEXT_WORD_BYTES_MAX];
    struct text_words words;
    struct text_word word;
    (void)state;
    memset(value, 'x', sizeof value);
    value[sizeof value - 2] = ' ';
    text_words_init(&words, &rules, value, sizeof value);
    assert_int_equal(text_words_next(&words, &word), 1);
    assert_int_equal(word.bytes, TEXT_WORD_BYTES_MAX);
    assert_int_equal(text_words_next(&words, &word), 1);
    assert_int_equal(word.bytes, 1);
    assert_int_equal(text_words_next(&words, &word), 0);
    text_words_fini(&words);
    /* no character is cut in two, and each may grow */
    for (size_t i = 0; i + 1 < sizeof value; i += 2)
        memcpy(value + i, "\xc8\xba", 2);
    value[0] = 'x';
    value[1] = 'x';
    memmove(value + 1, value + 2, sizeof value - 2);
    text_words_init(&words, &rules, value, sizeof value - 1);
    assert_int_equal(text_words_next(&words, &word), 1);
    assert_int_equal(word.bytes, 1 + 511 * 3);
    assert_int_equal(text_words_next(&words, &word), 0);
    text_words_fini(&words);
}

static void *stem_often(void *unused)
{
    const struct text_rules rules = {.language = text_language_find("english", 7)};
    char out[100];
    (void)unused;
    for (unsigned i = 0; i < 2000; i++) {
        show(&rules, "running quickly generally hopefulness", 37, out, sizeof out, false);
        if (strcmp(out, "running/run quickly/quick generally/general hopefulness/hope") != 0)
            return out[0] ? (void *)"different" : (void *)"nothing";
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t threads[4];
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, stem_often, NULL), 0);
    for (unsigned i = 0; i < 4; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_separators), cmocka_unit_test(test_escapes),    cmocka_unit_test(test_case),
        cmocka_unit_test(test_fold_table), cmocka_unit_test(test_fold_text),  cmocka_unit_test(test_stopwords),
        cmocka_unit_test(test_positions),  cmocka_unit_test(test_stems),      cmocka_unit_test(test_languages),
        cmocka_unit_test(test_chinese),    cmocka_unit_test(test_long_words), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
