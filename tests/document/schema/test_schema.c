/*
 * test_schema.c - the words of FT.CREATE and FT.ALTER: what they make, and how they are refused.
 */
#include "document/schema/schema.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct quire_error err;

static uint32_t split(const char *text, struct schema_word words[256])
{
    uint32_t n = 0;
    for (const char *at = text; *at && n < 256;) {
        size_t bytes = strcspn(at, " ");
        words[n++] = (struct schema_word){at, (uint32_t)bytes};
        at += bytes + (at[bytes] == ' ');
    }
    return n;
}

static struct schema *made(const char *text)
{
    struct schema_word words[256];
    struct schema *schema = NULL;
    uint32_t n = split(text, words);
    int rc = schema_parse(words, n, &schema, &err);
    if (rc < 0)
        print_message("%s: %s\n", text, err.message);
    assert_int_equal(rc, 0);
    return schema;
}

static void refused(const char *text, const char *says)
{
    struct schema_word words[256];
    struct schema *schema = NULL;
    uint32_t n = split(text, words);
    memset(&err, 0, sizeof err);
    assert_true(schema_parse(words, n, &schema, &err) < 0);
    assert_null(schema);
    if (!strstr(err.message, says))
        print_message("%s: %s\n", text, err.message);
    assert_non_null(strstr(err.message, says));
}

static const struct schema_field *field(const struct schema *s, const char *name)
{
    const struct schema_field *f = schema_find(s, name, strlen(name));
    assert_non_null(f);
    return f;
}

static void test_defaults(void **state)
{
    struct schema *s = made("idx SCHEMA t TEXT");
    (void)state;
    assert_string_equal(s->name, "idx");
    assert_int_equal(s->source, SCHEMA_HASH);
    assert_int_equal(s->n_prefixes, 1);
    assert_true(!s->prefixes_given && s->prefixes[0].bytes == 0 && schema_follows(s, "anything", 8));
    assert_string_equal(s->language, "english");
    assert_true(s->score == 1 && !s->stopwords_given && !s->skip_initial_scan);
    const struct schema_field *f = field(s, "t");
    assert_true(f->weight == 1 && !f->sortable && !f->no_stem && f->text_bit == 0);
    assert_string_equal(f->identifier, "t");
    schema_free(s);
}

static void test_options_in_any_order_and_case(void **state)
{
    struct schema *s = made("i score 0.5 stopwords 2 Foo BAR on json prefix 2 a: b: language german score_field sc "
                            "language_field la nooffsets nohl nofields nofreqs maxtextfields skipinitialscan schema "
                            "$.x.y as xy tag separator ; casesensitive sortable unf");
    (void)state;
    assert_int_equal(s->source, SCHEMA_JSON);
    assert_true(s->prefixes_given && schema_follows(s, "a:1", 3) && schema_follows(s, "b:", 2));
    assert_true(!schema_follows(s, "c:1", 3) && !schema_follows(s, "a", 1));
    assert_true(s->score == 0.5 && s->stopwords_given && s->n_stopwords == 2);
    assert_memory_equal(s->stopwords[1].data, "bar", 3); /* in lower case */
    assert_string_equal(s->language, "german");
    assert_string_equal(s->score_field, "sc");
    assert_string_equal(s->language_field, "la");
    assert_true(s->no_offsets && s->no_highlight && s->no_fields && s->no_freqs && s->max_text_fields);
    assert_true(s->skip_initial_scan);
    const struct schema_field *f = field(s, "xy");
    assert_string_equal(f->identifier, "$.x.y");
    assert_true(f->separator == ';' && f->case_sensitive && f->sortable && f->unf);
    assert_ptr_equal(schema_find_any(s, "$.x.y", 5), f);
    assert_null(schema_find(s, "$.x.y", 5));
    schema_free(s);
}

static void test_fields(void **state)
{
    struct schema *s = made("i SCHEMA a TEXT WEIGHT 2.5 NOSTEM PHONETIC dm:en WITHSUFFIXTRIE INDEXEMPTY INDEXMISSING "
                            "b NUMERIC SORTABLE NOINDEX c GEO d TEXT e TAG");
    (void)state;
    assert_int_equal(s->n_fields, 5);
    const struct schema_field *a = field(s, "a"), *b = field(s, "b");
    assert_true(a->weight == 2.5 && a->no_stem && a->suffix_trie && a->index_empty && a->index_missing);
    assert_string_equal(a->phonetic, "dm:en");
    assert_true(b->type == SCHEMA_NUMERIC && b->sortable && b->no_index);
    assert_int_equal(field(s, "d")->text_bit, 1);
    assert_int_equal(field(s, "e")->separator, ',');
    schema_free(s);
}

static void test_vectors(void **state)
{
    struct schema *s =
        made("i SCHEMA v VECTOR HNSW 16 TYPE FLOAT32 DIM 256 DISTANCE_METRIC COSINE M 24 EF_CONSTRUCTION "
             "300 EF_RUNTIME 20 EPSILON 0.02 INITIAL_CAP 1000 "
             "w VECTOR flat 8 dim 3 type bfloat16 distance_metric ip INDEXMISSING True "
             "x VECTOR SVS-VAMANA 8 TYPE UINT8 DIM 4 DISTANCE_METRIC L2 GRAPH_MAX_DEGREE 32 INDEXMISSING");
    (void)state;
    const struct schema_vector *v = &field(s, "v")->vector, *w = &field(s, "w")->vector, *x = &field(s, "x")->vector;
    assert_true(v->algorithm == SCHEMA_HNSW && v->element == SCHEMA_FLOAT32 && v->metric == SCHEMA_COSINE);
    assert_true(v->dim == 256 && v->m == 24 && v->ef_construction == 300 && v->ef_runtime == 20 && v->epsilon == .02);
    assert_true(w->algorithm == SCHEMA_FLAT && w->element == SCHEMA_BFLOAT16 && w->metric == SCHEMA_IP && w->m == 16);
    assert_true(field(s, "w")->index_missing && field(s, "x")->index_missing);
    assert_true(x->algorithm == SCHEMA_SVS && x->element == SCHEMA_UINT8 && x->metric == SCHEMA_L2);
    schema_free(s);
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "index name");
    refused("i", "No schema found");
    refused("i SCHEMA", "Fields arguments are missing");
    refused("i SCHEMA a", "has no type");
    refused("i SCHEMA a THING", "Invalid field type for field `a`");
    refused("i SCHEMA a GEOSHAPE", "GEOSHAPE is not supported");
    refused("i SCHEMA a TEXT a TAG", "Duplicate field in schema - a");
    refused("i NONSENSE SCHEMA a TEXT", "Unknown argument `NONSENSE`");
    refused("i FILTER @a>1 SCHEMA a TEXT", "FILTER is not supported");
    refused("i TEMPORARY 60 SCHEMA a TEXT", "TEMPORARY is not supported");
    refused("i ON LIST SCHEMA a TEXT", "Invalid rule type");
    refused("i PREFIX 3 a: b: SCHEMA", "No schema found");
    refused("i PREFIX 0 SCHEMA a TEXT", "PREFIX");
    refused("i PREFIX 99 a: SCHEMA a TEXT", "PREFIX");
    refused("i SCORE 2 SCHEMA a TEXT", "SCORE");
    refused("i SCORE nan SCHEMA a TEXT", "SCORE");
    refused("i SCHEMA a TAG SEPARATOR ab", "single character");
    refused("i SCHEMA a TEXT WEIGHT x", "weight");
    refused("i SCHEMA a NUMERIC WEIGHT 1", "Invalid field type for field `WEIGHT`");
    refused("i SCHEMA a TEXT NOINDEX INDEXMISSING", "NOINDEX");
    refused("i SCHEMA v VECTOR TREE 0", "vector similarity algorithm");
    refused("i SCHEMA v VECTOR FLAT 5 TYPE FLOAT32 DIM 3 DISTANCE_METRIC", "even number");
    refused("i SCHEMA v VECTOR FLAT 2 TYPE FLOAT32", "DIM");
    refused("i SCHEMA v VECTOR FLAT 4 TYPE FLOAT32 DIM 3", "DISTANCE_METRIC");
    refused("i SCHEMA v VECTOR FLAT 4 DIM 3 DISTANCE_METRIC L2", "TYPE");
    refused("i SCHEMA v VECTOR FLAT 6 TYPE FLOAT8 DIM 3 DISTANCE_METRIC L2", "FLOAT8");
    refused("i SCHEMA v VECTOR FLAT 6 TYPE FLOAT32 DIM 0 DISTANCE_METRIC L2", "dim");
    refused("i SCHEMA v VECTOR FLAT 6 TYPE FLOAT32 DIM 65537 DISTANCE_METRIC L2", "65536");
    refused("i SCHEMA v VECTOR FLAT 6 TYPE FLOAT32 DIM 3 DISTANCE_METRIC MANHATTAN", "MANHATTAN");
    refused("i SCHEMA v VECTOR FLAT 8 TYPE FLOAT32 DIM 3 DISTANCE_METRIC L2 SPEED 9", "Unknown argument `SPEED`");
}

/* RediSearch's sentence, and behind it the position, counted from 1 behind the command's name, and the field. */
static void test_places(void **state)
{
    static const struct {
        const char *words, *message;
    } rows[] = {
        {"", "Bad arguments for index name: Expected an argument, but none provided (position 1)"},
        {"i", "No schema found (position 2)"},
        {"i TAG SCHEMA a TEXT", "Unknown argument `TAG` (position 2)"},
        {"i FILTER x SCHEMA a TEXT", "FT.CREATE: FILTER is not supported by Quire (position 2)"},
        {"i ON SET SCHEMA a TEXT", "Invalid rule type: 'SET' is not HASH or JSON (position 3)"},
        {"i SCORE 2 SCHEMA a TEXT", "Bad arguments for SCORE: 2 is not between 0 and 1 (position 3)"},
        {"i PREFIX 0 SCHEMA a TEXT", "Bad arguments for PREFIX: it takes 1 at least (position 3)"},
        {"i SCHEMA", "Fields arguments are missing (position 3)"},
        {"i SCHEMA $.a AS", "Bad arguments for AS: Expected an argument, but none provided (position 5)"},
        {"i SCHEMA a TEXT WEIGHT 1 b TEXT WEIGHT xx",
         "Bad arguments for weight: Could not convert argument to expected type: 'xx' (position 10, field `b`)"},
        {"i SCHEMA a TEXT b TEXT WEIGHT",
         "Bad arguments for weight: Expected an argument, but none provided (position 8, field `b`)"},
        {"i SCHEMA a TAG SEPARATOR ab", "Tag separator must be a single character. Got `ab` (position 6, field `a`)"},
        {"i SCHEMA $.a AS a TAG $.b AS a TAG", "Duplicate field in schema - a (position 9, field `a`)"},
        {"i SCHEMA a TEXT PHONETIC x", "Matcher Format: <2 chars algorithm>:<2 chars language>. Support algorithms: "
                                       "double metaphone (dm): 'x' is none (position 6, field `a`)"},
        {"i SCHEMA a TEXT v VECTOR FLAT 4 TYPE FLOAT32 DIM 3",
         "Missing mandatory parameter: cannot create FLAT index without specifying DISTANCE_METRIC argument "
         "(position 12, field `v`)"},
        {"i SCHEMA v VECTOR FLAT 6 TYPE FLOAT99 DIM 3 DISTANCE_METRIC L2",
         "Bad arguments for vector similarity index type: 'FLOAT99' is not FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT8 "
         "or UINT8 (position 8, field `v`)"},
        {"i SCHEMA v VECTOR FLAT 5 TYPE FLOAT32 DIM 3 DISTANCE_METRIC",
         "Bad number of arguments for vector similarity index: got 5 but expected even number as algorithm parameters "
         "(should be submitted as named arguments) (position 6, field `v`)"},
        {"i SCHEMA v VECTOR HNSW 8 TYPE FLOAT32 DIM 3 DISTANCE_METRIC L2 SPEED 9",
         "Bad arguments for algorithm HNSW: Unknown argument `SPEED` (position 13, field `v`)"},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        refused(rows[i].words, "");
        assert_string_equal(err.message, rows[i].message);
    }
}

static void test_alter(void **state)
{
    struct schema *s = made("i PREFIX 1 p: STOPWORDS 1 x SCHEMA a TEXT $.b AS b TAG"), *more = NULL;
    struct schema_word words[256];
    uint32_t n = split("c NUMERIC d TEXT", words);
    (void)state;
    assert_int_equal(schema_alter(s, words, n, 4, &more, &err), 0);
    assert_int_equal(more->n_fields, 4);
    assert_int_equal(field(more, "d")->text_bit, 1);
    assert_string_equal(field(more, "b")->identifier, "$.b");
    assert_true(schema_follows(more, "p:", 2) && more->n_stopwords == 1 && s->n_fields == 2);
    n = split("a TAG", words);
    struct schema *none = NULL;
    assert_true(schema_alter(more, words, n, 4, &none, &err) < 0 && !none);
    assert_string_equal(err.message, "Duplicate field in schema - a (position 4, field `a`)");
    assert_true(schema_alter(more, words, 0, 5, &none, &err) < 0);
    assert_string_equal(err.message, "Fields arguments are missing (position 5)");
    schema_free(more);
    schema_free(s);
}

static void test_limits(void **state)
{
    static char text[200000];
    struct schema_word *words = malloc(5000 * sizeof *words);
    struct schema *schema = NULL;
    char *at = text;
    uint32_t n = 0;
    (void)state;
    words[n++] = (struct schema_word){"i", 1};
    words[n++] = (struct schema_word){"SCHEMA", 6};
    for (uint32_t i = 0; i <= SCHEMA_TEXT_FIELDS_MAX; i++) {
        int bytes = sprintf(at, "f%u", i);
        words[n++] = (struct schema_word){at, (uint32_t)bytes};
        words[n++] = (struct schema_word){"TEXT", 4};
        at += bytes + 1;
    }
    assert_int_equal(schema_parse(words, n, &schema, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "64 TEXT fields"));
    for (uint32_t i = 3; i < n; i += 2)
        words[i] = (struct schema_word){"TAG", 3};
    for (uint32_t i = SCHEMA_TEXT_FIELDS_MAX + 1; i <= SCHEMA_FIELDS_MAX; i++) {
        int bytes = sprintf(at, "f%u", i);
        words[n++] = (struct schema_word){at, (uint32_t)bytes};
        words[n++] = (struct schema_word){"TAG", 3};
        at += bytes + 1;
    }
    assert_int_equal(schema_parse(words, n, &schema, &err), QUIRE_ELIMIT);
    assert_int_equal(schema_parse(words, n - 2, &schema, &err), 0);
    struct schema *none = NULL;
    assert_int_equal(schema_alter(schema, words, 2, 4, &none, &err), QUIRE_ELIMIT);
    assert_string_equal(err.message, "Schema is limited to 1024 fields (position 4)");
    schema_free(schema);
    free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_options_in_any_order_and_case),
        cmocka_unit_test(test_fields),   cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_places),
        cmocka_unit_test(test_alter),    cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
