/*
 * test_pipeline_parse.c - the words of FT.AGGREGATE: options anywhere between the steps, and what is refused, by name
 * and place. Positions count words of the command, FT.AGGREGATE being 0; the first one here is 3.
 */
#include "tests/document/support_pipeline.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define WORDS_MAX 600u

static struct pipeline *parse(const char *text)
{
    static struct schema_word words[WORDS_MAX];
    struct pipeline *pipeline = NULL;
    struct quire_error err = {0};
    int rc = pipeline_parse(words, support_words(text, words, WORDS_MAX), 3, &pipeline, &err);
    if (rc)
        fail_msg("%s: %s", text, err.message);
    return pipeline;
}

static void assert_word(struct schema_word word, const char *text)
{
    assert_int_equal(word.bytes, strlen(text));
    assert_memory_equal(word.data, text, word.bytes);
}

static void test_defaults(void **state)
{
    struct pipeline *pipeline = parse("");
    const struct pipeline_options *options = pipeline_options(pipeline);
    (void)state;
    assert_false(options->verbatim || options->with_cursor || options->add_scores || options->timeout_given ||
                 options->in_keys_given || options->with_count || options->in_order || options->no_stopwords);
    assert_int_equal(options->cursor_rows, 1000);
    assert_int_equal(options->cursor_idle_ms, 300000);
    assert_int_equal(options->dialect, 0);
    assert_int_equal(options->slop, -1);
    assert_int_equal(options->n_params, 0);
    assert_int_equal(options->scorer.bytes, 0);
    assert_false(pipeline_uses_terms(pipeline));
    pipeline_free(pipeline);
}

static void test_options(void **state)
{
    struct pipeline *pipeline =
        parse("verbatim;LOAD;1;a;PARAMS;4;k;v;BLOB;x y;WITHCURSOR;MAXIDLE;5;COUNT;7;APPLY;matched_terms();AS;t;dialect;"
              "2;TIMEOUT;99;SCORER;BM25STD;ADDSCORES;LANGUAGE;german;LIMIT;0;5;INKEYS;2;k1;k2;INFIELDS;1;title;SLOP;3;"
              "INORDER;NOSTOPWORDS;WITHCOUNT;EXPANDER;e;FORMAT;string");
    const struct pipeline_options *options = pipeline_options(pipeline);
    (void)state;
    assert_true(options->verbatim && options->with_cursor && options->add_scores && options->timeout_given &&
                options->in_keys_given && options->with_count && options->in_order && options->no_stopwords);
    assert_int_equal(options->cursor_rows, 7);
    assert_int_equal(options->cursor_idle_ms, 5);
    assert_int_equal(options->dialect, 2);
    assert_int_equal(options->timeout_ms, 99);
    assert_int_equal(options->slop, 3);
    assert_int_equal(options->n_params, 2);
    assert_int_equal(options->params[1].name.bytes, 4);
    assert_memory_equal(options->params[1].value.data, "x y", 3);
    assert_word(options->scorer, "BM25STD");
    assert_word(options->language, "german");
    assert_word(options->expander, "e");
    assert_int_equal(options->n_in_keys, 2);
    assert_word(options->in_keys[1], "k2");
    assert_int_equal(options->n_in_fields, 1);
    assert_word(options->in_fields[0], "title");
    assert_true(pipeline_uses_terms(pipeline));
    pipeline_free(pipeline);
    pipeline = parse("WITHCURSOR;MAXIDLE;300001");
    assert_int_equal(pipeline_options(pipeline)->cursor_idle_ms, PIPELINE_IDLE_MAX_MS);
    pipeline_free(pipeline);
    pipeline = parse("WITHCOUNT;WITHOUTCOUNT;SLOP;-1;WITHCURSOR;LOAD;0;INKEYS;0");
    assert_false(pipeline_options(pipeline)->with_count);
    assert_int_equal(pipeline_options(pipeline)->slop, -1);
    assert_true(pipeline_options(pipeline)->in_keys_given && pipeline_options(pipeline)->n_in_keys == 0);
    pipeline_free(pipeline);
}

static void test_refused(void **state)
{
    static const struct {
        const char *words, *message;
        int code;
    } refused[] = {
        {"LOD;1;a", "Unknown argument `LOD` at position 3 for <main>", QUIRE_EPARSE},
        {"LOAD;1;a;b", "Unknown argument `b` at position 6 for <main>", QUIRE_EPARSE},
        {"LOAD", "Bad arguments for LOAD: Expected an argument, but none provided (position 4)", QUIRE_EPARSE},
        {"LOAD;x", "Bad arguments for LOAD: Expected number of fields or `*` ('x' at position 4)", QUIRE_EPARSE},
        {"LOAD;1x",
         "Bad arguments for LOAD: Could not convert argument to expected type ('1x' at position 4 is no whole number)",
         QUIRE_EPARSE},
        {"LOAD;3;a;b",
         "Bad arguments for LOAD: Expected an argument, but none provided (3 are said at position 4, 2 follow)",
         QUIRE_EPARSE},
        {"LOAD;2;a;AS", "LOAD path AS name - must be accompanied with NAME (position 6)", QUIRE_EPARSE},
        {"LOAD;3;a;AS;as", "Alias for LOAD cannot be `AS` (position 7)", QUIRE_EPARSE},
        {"LOAD;2;a;@", "Bad arguments for LOAD: the name at position 6 is empty", QUIRE_EPARSE},
        {"LOAD;99999;a",
         "Bad arguments for LOAD: Value is outside acceptable bounds (99999 at position 4, at most 3072)",
         QUIRE_ELIMIT},
        {"APPLY", "Bad arguments for APPLY/FILTER: Expected an argument, but none provided (APPLY at position 3)",
         QUIRE_EPARSE},
        {"APPLY;1;AS", "AS needs argument (position 5)", QUIRE_EPARSE},
        {"FILTER;1 +", "Syntax error at offset 3: the expression ends where a value should be (FILTER at position 3)",
         QUIRE_EPARSE},
        {"FILTER;1;AS;x", "Unknown argument `AS` at position 5 for <main>", QUIRE_EPARSE},
        {"GROUPBY;1;a", "Bad arguments for GROUPBY: Unknown property `a`. Did you mean `@a`? (position 5)",
         QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE", "Bad arguments for REDUCE: Expected an argument, but none provided (position 6)",
         QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;MEDIAN;1;b", "No such reducer: MEDIAN (position 7)", QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;HLL;1;b", "Quire has no reducer HLL (position 7); COUNT_DISTINCTISH counts",
         QUIRE_EUNSUPPORTED},
        {"GROUPBY;1;@a;REDUCE;COUNT;1;b", "Unknown argument `b` at position 9 for COUNT", QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;SUM;0", "Missing arguments for SUM: it takes 1 (position 8)", QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;SUM;3;a;b;c", "Unknown argument `b` at position 10 for SUM", QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;SUM;1;b;AS",
         "Bad arguments for AS: Expected an argument, but none provided (position 10)", QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;QUANTILE;2;b;2", "Percentage must be between 0.0 and 1.0 ('2' at position 10)",
         QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;QUANTILE;2;b;x",
         "Bad arguments for QUANTILE: Could not convert argument to expected type ('x' at position 10)", QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;FIRST_VALUE;2;b;c", "Unknown argument `c` at position 10 for FIRST_VALUE", QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;FIRST_VALUE;2;b;BY", "Missing arguments for FIRST_VALUE: a field behind BY (position 10)",
         QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;FIRST_VALUE;4;b;BY;c;UP", "Unknown argument `UP` at position 12 for FIRST_VALUE",
         QUIRE_EPARSE},
        {"GROUPBY;1;@a;REDUCE;RANDOM_SAMPLE;2;b;1001", "Sample size too large: 1001 at position 10, at most 1000",
         QUIRE_ELIMIT},
        {"REDUCE;COUNT;0", "Unknown argument `REDUCE` at position 3 for <main>", QUIRE_EPARSE},
        {"SORTBY;1;a", "MISSING ASC or DESC after sort field (a) at position 5", QUIRE_EPARSE},
        {"SORTBY;2;@a;down", "MISSING ASC or DESC after sort field (down) at position 6", QUIRE_EPARSE},
        {"SORTBY;1;ASC", "MISSING ASC or DESC after sort field (ASC) at position 5", QUIRE_EPARSE},
        {"SORTBY;1;@a;SORTBY;1;@b",
         "Multiple SORTBY steps are not allowed. Sort multiple fields in a single step (position 6)", QUIRE_EPARSE},
        {"SORTBY;9;@a;@b;@c;@d;@e;@f;@g;@h;@i", "Cannot sort by more than 8 fields: '@i' at position 13", QUIRE_ELIMIT},
        {"SORTBY;1;@a;MAX;x",
         "Bad arguments for MAX: Could not convert argument to expected type ('x' at position 7 is no whole number)",
         QUIRE_EPARSE},
        {"LIMIT;1", "LIMIT requires two arguments (position 3)", QUIRE_EPARSE},
        {"LIMIT;1;x", "LIMIT needs two numeric arguments ('x' at position 5)", QUIRE_EPARSE},
        {"LIMIT;-1;2", "LIMIT needs two numeric arguments ('-1' at position 4)", QUIRE_EPARSE},
        {"LIMIT;3;0", "The `offset` of the LIMIT must be 0 when `num` is 0 (position 4)", QUIRE_EPARSE},
        {"PARAMS;3;a;b;c", "Parameters must be specified in PARAM VALUE pairs: 3 words are none (position 4)",
         QUIRE_EPARSE},
        {"PARAMS;2;a;b;PARAMS;2;c;d",
         "Multiple PARAMS are not allowed. Parameters can be defined only once (position 7)", QUIRE_EPARSE},
        {"PARAMS;4;a;b;a;c", "Duplicate parameter `a` (position 7)", QUIRE_EPARSE},
        {"DIALECT;5", "DIALECT requires a non negative integer >=1 and <= 4 (position 4)", QUIRE_EPARSE},
        {"TIMEOUT;soon", "TIMEOUT requires a non negative integer (position 4)", QUIRE_EPARSE},
        {"WITHCURSOR;COUNT;0", "Bad arguments for COUNT: Value is outside acceptable bounds (0 at position 5)",
         QUIRE_EPARSE},
        {"WITHCURSOR;MAXIDLE;0", "Bad arguments for MAXIDLE: Value is outside acceptable bounds (0 at position 5)",
         QUIRE_EPARSE},
        {"FORMAT;EXPAND", "FORMAT EXPAND is not supported: values are given as STRING (position 4)",
         QUIRE_EUNSUPPORTED},
        {"HIGHLIGHT", "HIGHLIGHT is not supported on FT.AGGREGATE (position 3)", QUIRE_EUNSUPPORTED},
        {"LOAD;1;a;RETURN;1;a",
         "RETURN is not supported on FT.AGGREGATE: LOAD and APPLY make the fields of its rows (position 6)",
         QUIRE_EUNSUPPORTED},
        {"SCORER", "Bad arguments for SCORER: Expected an argument, but none provided (position 4)", QUIRE_EPARSE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct schema_word words[WORDS_MAX];
        struct pipeline *pipeline = NULL;
        struct quire_error err = {0};
        int rc = pipeline_parse(words, support_words(refused[i].words, words, WORDS_MAX), 3, &pipeline, &err);
        if (rc != refused[i].code || err.code != rc || strcmp(err.message, refused[i].message) != 0)
            fail_msg("%s: %d, %s\nnot %d, %s", refused[i].words, rc, err.message, refused[i].code, refused[i].message);
        assert_null(pipeline);
        assert_int_equal(pipeline_parse(words, support_words(refused[i].words, words, WORDS_MAX), 3, &pipeline, NULL),
                         rc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults), cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
