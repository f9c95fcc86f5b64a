/*
 * test_fields.c - what a schema's fields keep and refuse: limits and their messages, empty values, several values,
 * tags as they are listed, figures, cancelled queries; and scores against formulas computed by hand.
 */
#include "document/fields/fields.h"
#include "document/fields/geo.h"
#include "tests/document/support_query.h"
#include <math.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* Fields of one schema, and documents made of texts. */
struct index {
    struct schema *schema;
    struct fields *fields;
    struct quire_error err;
};

static struct index open_index(const char *words)
{
    struct index x = {.schema = schema_of(words)};
    assert_non_null(x.schema);
    assert_int_equal(fields_create(x.schema, &x.fields, &x.err), 0);
    return x;
}

static void close_index(struct index *x)
{
    fields_free(x->fields);
    schema_free(x->schema);
}

/* values: a text per field; NULL: missing. Numbers as text; a point as "longitude,latitude". */
static int add_scored(struct index *x, uint32_t id, double score, const char *const *values)
{
    struct record_value made[8] = {0};
    struct record_field fields[8] = {0};
    const struct record record = {.schema = x->schema, .fields = fields, .score = score};
    for (uint32_t i = 0; i < x->schema->n_fields; i++) {
        if (!values[i])
            continue;
        made[i] = (struct record_value){.text = values[i], .bytes = (uint32_t)strlen(values[i])};
        made[i].number = atof(values[i]);
        const char *comma = strchr(values[i], ',');
        made[i].latitude = comma ? atof(comma + 1) : 0;
        fields[i] = (struct record_field){.present = true, .n_values = 1, .values = &made[i]};
    }
    return fields_add(x->fields, id, &record, &x->err);
}
#define add(x, id, ...) add_scored((x), (id), 1, (const char *const[]){__VA_ARGS__})

/* The ids as text: "0 3 4". */
static const char *ask(struct index *x, const char *text)
{
    static char out[256];
    const struct query_context context = {.schema = x->schema, .slop = -1, .dialect = 2};
    struct query *query = NULL;
    roaring_bitmap_t *found = NULL;
    uint32_t ids[64], used = 0;
    if (query_parse(&context, text, strlen(text), &query, &x->err) < 0)
        fail_msg("%s: %s", text, x->err.message);
    const struct fields_request request = {.root = query_root(query)};
    int rc = fields_eval(x->fields, &request, &found, &x->err);
    query_free(query);
    if (rc < 0)
        return quire_error_name(rc);
    uint64_t n = roaring_bitmap_get_cardinality(found);
    assert_true(n <= 64);
    roaring_bitmap_to_uint32_array(found, ids);
    out[0] = 0;
    for (uint64_t i = 0; i < n; i++)
        used += (uint32_t)snprintf(out + used, sizeof out - used, "%s%u", i > 0 ? " " : "", ids[i]);
    roaring_bitmap_free(found);
    return out;
}

static void refusals(void **state)
{
    (void)state;
    struct index x = open_index("i SCHEMA t TAG n NUMERIC g GEO body TEXT");
    struct fields_stats stats;
    assert_int_equal(add(&x, 5, "a", "1", "13.4,52.5", "word"), 0);
    assert_int_equal(add(&x, 5, "a", "1", NULL, NULL), QUIRE_EINVALID);
    assert_string_equal(x.err.message, "document 5: ids ascend from 6 to 4294967294");
    assert_int_equal(add(&x, UINT32_MAX, "a", NULL, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(add(&x, 6, "b", "nan", NULL, "other"), QUIRE_EINVALID);
    assert_string_equal(x.err.message, "a value of n is not a number");
    assert_int_equal(add(&x, 6, "b", "1", "13,86", "other"), QUIRE_ERANGE);
    assert_non_null(strstr(x.err.message, "longitude 13, latitude 86"));
    const struct record_field none[4] = {0};
    const struct record klingon = {.schema = x.schema, .fields = none, .score = 1, .language = "klingon"};
    assert_int_equal(fields_add(x.fields, 6, &klingon, &x.err), QUIRE_EINVALID);
    assert_string_equal(x.err.message, "'klingon' is no language whose words are known");
    fields_get_stats(x.fields, &stats); /* nothing of all that is left */
    assert_int_equal(stats.n_documents, 1);
    assert_int_equal(stats.n_tags, 1);
    assert_int_equal(stats.n_words, 1);
    assert_int_equal(stats.n_numbers, 2);
    assert_int_equal(fields_next_id(x.fields), 6);
    assert_string_equal(ask(&x, "*"), "5");
    assert_string_equal(ask(&x, "@t:{b}"), "");
    close_index(&x);
}

static void values(void **state)
{
    (void)state;
    struct index x = open_index("i SCHEMA t TAG INDEXEMPTY INDEXMISSING c TAG SEPARATOR ; CASESENSITIVE "
                                "body TEXT INDEXEMPTY INDEXMISSING hidden TAG NOINDEX");
    assert_int_equal(add(&x, 0, " Red , dark Green,,", "A; b ", "", "x"), 0);
    assert_int_equal(add(&x, 1, "", ";;", NULL, "x"), 0);
    assert_int_equal(add(&x, 2, NULL, "a,b", "The END of it", NULL), 0);
    assert_string_equal(ask(&x, "@t:{red}"), "0");
    assert_string_equal(ask(&x, "@t:{DARK green}"), "0");
    assert_string_equal(ask(&x, "@t:{\"\"}"), "0 1");
    assert_string_equal(ask(&x, "@c:{a}"), "");
    assert_string_equal(ask(&x, "@c:{A}"), "0");
    assert_string_equal(ask(&x, "@c:{b}"), "0");
    assert_string_equal(ask(&x, "@c:{a\\,b}"), "2");
    assert_string_equal(ask(&x, "@t:{re*}"), "0");
    assert_string_equal(ask(&x, "@t:{w'*d'}"), "0");
    assert_string_equal(ask(&x, "ismissing(@t)"), "2");
    assert_string_equal(ask(&x, "ismissing(@body)"), "1");
    assert_string_equal(ask(&x, "-ismissing(@body)"), "0 2");
    assert_string_equal(ask(&x, "@c:*"), "0 1 2"); /* also where a value holds no tag */
    assert_string_equal(ask(&x, "@body:(end)"), "2");
    assert_string_equal(ask(&x, "-end"), "0 1");
    assert_string_equal(ask(&x, "@body:\"end of it\""), "2");
    close_index(&x);
}

static bool list(void *context, const char *text, uint32_t bytes, uint64_t documents)
{
    char *out = context;
    sprintf(out + strlen(out), "%.*s=%u ", (int)bytes, text, (unsigned)documents);
    return true;
}

static void tags_and_numbers(void **state)
{
    (void)state;
    struct index x = open_index("i SCHEMA t TAG n NUMERIC");
    char out[128] = "";
    double number;
    assert_int_equal(add(&x, 0, "b,a,a", "1.5"), 0);
    assert_int_equal(add(&x, 1, "B,c", NULL), 0);
    assert_int_equal(add(&x, 2, "gone", "-2"), 0);
    assert_int_equal(fields_tag_values(x.fields, 0, list, out, &x.err), 0);
    assert_string_equal(out, "a=1 b=2 c=1 gone=1 ");
    assert_true(fields_number(x.fields, 2, 1, &number) && number == -2);
    assert_true(fields_remove(x.fields, 2));
    out[0] = 0;
    assert_int_equal(fields_tag_values(x.fields, 0, list, out, &x.err), 0);
    assert_string_equal(out, "a=1 b=2 c=1 ");
    assert_int_equal(fields_tag_values(x.fields, 1, list, out, &x.err), QUIRE_EINVALID);
    assert_int_equal(fields_tag_values(x.fields, 2, list, out, &x.err), QUIRE_EINVALID);
    assert_false(fields_number(x.fields, 2, 1, &number));
    assert_false(fields_number(x.fields, 1, 1, &number));
    assert_false(fields_number(x.fields, 0, 0, &number));
    assert_true(fields_number(x.fields, 0, 1, &number) && number == 1.5);
    assert_int_equal(fields_documents(x.fields), 2);
    assert_true(fields_bytes(x.fields) > 0);
    close_index(&x);
}

/* A field that comes later, and a query that was read with the later schema. */
static void alteration(void **state)
{
    (void)state;
    struct index x = open_index("i SCHEMA t TAG");
    const struct schema_word words[] = {{"n", 1}, {"NUMERIC", 7}, {"INDEXMISSING", 12}};
    struct schema *wider = NULL, *narrow = x.schema;
    assert_int_equal(schema_alter(x.schema, words, 3, 4, &wider, &x.err), 0);
    assert_int_equal(add(&x, 0, "a"), 0);
    x.schema = wider;
    assert_string_equal(ask(&x, "@n:[1 2]"), "QUIRE_EINVALID");
    assert_string_equal(x.err.message, "field 'n' is not in the index yet");
    assert_int_equal(fields_alter(x.fields, wider, &x.err), 0);
    schema_free(narrow);
    assert_int_equal(add(&x, 1, "a", "2"), 0);
    assert_int_equal(add(&x, 2, "a", NULL), 0);
    assert_string_equal(ask(&x, "@n:[1 2]"), "1");
    assert_string_equal(ask(&x, "@t:{a} -@n:[1 2]"), "0 2");
    assert_string_equal(ask(&x, "ismissing(@n)"), "0 2");
    close_index(&x);
}

static bool at_once(void *context)
{
    ++*(unsigned *)context;
    return true;
}

static void cancelled(void **state)
{
    (void)state;
    struct index x = open_index("i SCHEMA t TAG");
    unsigned asked = 0;
    char tag[32];
    roaring_bitmap_t *found = NULL;
    for (uint32_t id = 0; id < 150000; id++) {
        snprintf(tag, sizeof tag, "value%u", id);
        assert_int_equal(add(&x, id, tag), 0);
    }
    struct query_node child = {.kind = QUERY_INFIX, .text = {"99", 2}}, *children[] = {&child};
    struct query_node root = {.kind = QUERY_TAG, .field = x.schema->fields, .n_children = 1, .children = children};
    struct fields_request request = {.root = &root, .cancelled = at_once, .context = &asked};
    assert_int_equal(fields_eval(x.fields, &request, &found, &x.err), QUIRE_ETIMEOUT);
    assert_int_equal(asked, 1);
    request.cancelled = NULL;
    assert_int_equal(fields_eval(x.fields, &request, &found, &x.err), 0);
    assert_true(roaring_bitmap_get_cardinality(found) > 1000);
    roaring_bitmap_free(found);
    root.kind = QUERY_RANGE;
    assert_int_equal(fields_eval(x.fields, &request, &found, &x.err), QUIRE_EINVALID);
    close_index(&x);
}

/* Distances as Redis's documentation has them for GEODIST; squares of the grid; numbers to points and back. */
static void places(void **state)
{
    (void)state;
    double longitude, latitude, code = geo_encode(13.361389, 38.115556);
    geo_decode(code, &longitude, &latitude);
    assert_true(fabs(longitude - 13.361389) < 1e-5 && fabs(latitude - 38.115556) < 1e-5);
    assert_true(fabs(geo_distance_m(13.361389, 38.115556, 15.087269, 37.502669) - 166274.15) < .5);
    assert_true(geo_encode(180, 85.05112878) > code && geo_encode(-180, -85.05112878) == 0);
    struct index x = open_index("i SCHEMA g GEO");
    assert_int_equal(add(&x, 0, "13.361389,38.115556"), 0);
    assert_int_equal(add(&x, 1, "15.087269,37.502669"), 0);
    assert_int_equal(add(&x, 2, "179.99,0"), 0);
    assert_int_equal(add(&x, 3, "-179.99,0"), 0);
    assert_int_equal(add(&x, 4, "0,85"), 0);
    assert_string_equal(ask(&x, "@g:[15 37 100 km]"), "1");
    assert_string_equal(ask(&x, "@g:[15 37 200 km]"), "0 1");
    assert_string_equal(ask(&x, "@g:[180 0 2 km]"), "2 3");
    assert_string_equal(ask(&x, "@g:[-180 0 2 km]"), "2 3");
    assert_string_equal(ask(&x, "@g:[180 85 1000 mi]"), "4");
    assert_string_equal(ask(&x, "@g:[0 0 30000 km]"), "0 1 2 3 4");
    close_index(&x);
}

static double score_of(struct index *x, const char *text, enum fields_scorer scorer, uint32_t id)
{
    const struct query_context context = {.schema = x->schema, .slop = -1, .dialect = 2};
    struct query *query = NULL;
    double score = -1;
    assert_int_equal(query_parse(&context, text, strlen(text), &query, &x->err), 0);
    const struct fields_request request = {.root = query_root(query)};
    assert_int_equal(fields_score(x->fields, &request, scorer, 4, &id, 1, &score, &x->err), 0);
    query_free(query);
    return score;
}

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-6 * (1 + fabs(b)))
        fail_msg("%.9g is not %.9g", a, b);
}

/* Three documents; "kiwi" is in two. Lengths: title's words count twice. */
static void scores(void **state)
{
    (void)state;
    struct index x = open_index("i SCHEMA title TEXT NOSTEM WEIGHT 2 body TEXT NOSTEM t TAG n NUMERIC");
    assert_int_equal(add_scored(&x, 0, 1, (const char *const[]){"kiwi", "kiwi melon kiwi", "red", "1"}), 0);
    assert_int_equal(add_scored(&x, 1, .5, (const char *const[]){"plum", "kiwi pear fig date", "red", "1"}), 0);
    assert_int_equal(add_scored(&x, 2, 1, (const char *const[]){"plum", "melon", "blue", "1"}), 0);
    const double lengths[] = {5, 6, 3}, mean = 14.0 / 3, frequency = 4; /* 2 of the title, 2 of the body */
    double idf = log(1 + (3 - 2 + .5) / (2 + .5));
    double kiwi = idf * frequency * 2.2 / (frequency + 1.2 * (.25 + .75 * lengths[0] / mean));
    double kiwi1 = idf * 2.2 / (1 + 1.2 * (.25 + .75 * lengths[1] / mean));
    double melon = idf * 2.2 / (1 + 1.2 * (.25 + .75 * lengths[0] / mean));
    near(score_of(&x, "kiwi", FIELDS_BM25STD, 0), kiwi);
    near(score_of(&x, "kiwi", FIELDS_BM25STD, 1), kiwi1 * .5);
    near(score_of(&x, "kiwi", FIELDS_BM25STD_TANH, 0), tanh(kiwi / 4));
    near(score_of(&x, "kiwi melon", FIELDS_BM25STD, 0), kiwi + melon);
    near(score_of(&x, "(kiwi melon) => {$weight: 3}", FIELDS_BM25STD, 0), 3 * (kiwi + melon));
    near(score_of(&x, "kiwi | melon", FIELDS_BM25STD, 1), kiwi1 * .5);
    near(score_of(&x, "kiwi | (melon kiwi)", FIELDS_BM25STD, 1), kiwi1 * .5);
    near(score_of(&x, "kiwi ~melon", FIELDS_BM25STD, 0), kiwi + melon);
    near(score_of(&x, "kiwi ~melon", FIELDS_BM25STD, 1), kiwi1 * .5);
    near(score_of(&x, "kiwi -fig @n:[0 5]", FIELDS_BM25STD, 0), kiwi);
    near(score_of(&x, "@t:{red}", FIELDS_BM25STD, 0), melon); /* as many have it, and it counts once */
    near(score_of(&x, "*", FIELDS_BM25STD, 0), 2.2 / (1 + 1.2 * (.25 + .75 * lengths[0] / mean)));
    near(score_of(&x, "kiwi", FIELDS_DOCSCORE, 1), .5);
    near(score_of(&x, "kiwi", FIELDS_DISMAX, 0), 4);
    near(score_of(&x, "kiwi | melon", FIELDS_DISMAX, 0), 4);
    near(score_of(&x, "kiwi melon", FIELDS_DISMAX, 0), 5);
    /* 1 + (3 + 1) / 2 is 3: exponent 1; the largest frequency is 4; adjacent */
    near(score_of(&x, "kiwi", FIELDS_TFIDF, 0), 4.0 * 1 / 4);
    near(score_of(&x, "kiwi melon", FIELDS_TFIDF, 0), (4.0 + 1) / 4);
    near(score_of(&x, "kiwi", FIELDS_TFIDF_DOCNORM, 0), 4.0 / 5);
    /* plum at place 1, date at place 5: 4 apart */
    near(score_of(&x, "plum date", FIELDS_TFIDF, 1), .5 * (2 * 1 + 1 * 2) / 2 / 4);
    near(score_of(&x, "kiwi", FIELDS_BM25, 0), 4 / (4 + 1.2 * (.5 + .5 * mean)));
    enum fields_scorer scorer = FIELDS_BM25;
    assert_true(fields_scorer_find("bm25std.tanh", 12, &scorer) && scorer == FIELDS_BM25STD_TANH);
    assert_false(fields_scorer_find("bm26", 4, &scorer));
    close_index(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),   cmocka_unit_test(values),    cmocka_unit_test(tags_and_numbers),
        cmocka_unit_test(alteration), cmocka_unit_test(cancelled), cmocka_unit_test(places),
        cmocka_unit_test(scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
