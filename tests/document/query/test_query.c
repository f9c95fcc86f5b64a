/*
 * test_query.c - the query language: every construct of docs/search.md as the tree it makes, every error with its words
 * and its offset, and the limits.
 *
 * A tree is compared as FT.EXPLAIN shows it, with blanks and line feeds made one blank each.
 */
#include "io/error.h"
#include "tests/document/support_query.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const char fields[] =
    "idx SCHEMA title TEXT body TEXT plain TEXT NOSTEM tag TAG SEPARATOR , cased TAG CASESENSITIVE n NUMERIC "
    "g GEO v VECTOR HNSW 6 TYPE FLOAT32 DIM 2 DISTANCE_METRIC L2 meta.genre TAG meta.deep.name TEXT gone TAG "
    "INDEXMISSING hidden NUMERIC NOINDEX empty TAG INDEXEMPTY bytes VECTOR FLAT 6 TYPE INT8 DIM 3 DISTANCE_METRIC IP "
    "my-tag TAG";

#define TEXT(s)                                                                                                        \
    {                                                                                                                  \
        s, sizeof s - 1                                                                                                \
    }

static const struct query_param params[] = {
    {TEXT("vec"), TEXT("\0\0\200\077\0\0\0\100")},
    {TEXT("b"), TEXT("abc")},
    {TEXT("k"), TEXT("7")},
    {TEXT("name"), TEXT("dist")},
    {TEXT("r"), TEXT("0.5")},
    {TEXT("low"), TEXT("-inf")},
    {TEXT("open"), TEXT("(3")},
    {TEXT("word"), TEXT("Hello")},
    {TEXT("words"), TEXT("one, the Two")},
    {TEXT("t"), TEXT("New York")},
    {TEXT("unit"), TEXT("KM")},
    {TEXT("bad"), TEXT("x1")},
    {TEXT("none"), TEXT("")},
    {TEXT("pattern"), TEXT("a?b*")},
    {TEXT("five"), TEXT("5")},
    {TEXT("neg"), TEXT("-1")},
    {TEXT("punct"), TEXT("a-b.c\\d")},
};

static struct schema *schema;

static struct query_context context_of(void)
{
    return (struct query_context){.schema = schema,
                                  .params = params,
                                  .n_params = sizeof params / sizeof params[0],
                                  .verbatim = true,
                                  .slop = -1,
                                  .dialect = 2};
}

static void squeeze(char *text)
{
    size_t n = 0;
    for (size_t i = 0; text[i]; i++)
        if ((text[i] != ' ' && text[i] != '\n') || (n > 0 && text[n - 1] != ' '))
            text[n++] = text[i] == '\n' ? ' ' : text[i];
    text[n > 0 && text[n - 1] == ' ' ? n - 1 : n] = 0;
}

static void check_in(const struct query_context *context, const char *query, const char *expected)
{
    char *text = explain_of(context, query, strlen(query));
    assert_non_null(text);
    squeeze(text);
    if (strcmp(text, expected) != 0)
        print_message("query: %s\n", query);
    assert_string_equal(text, expected);
    free(text);
}

static void check(const char *query, const char *expected)
{
    const struct query_context context = context_of();
    check_in(&context, query, expected);
}

/* Refused, with these words at the beginning of the message. */
static void refused(const char *query, const char *words)
{
    const struct query_context context = context_of();
    struct query *out = NULL;
    struct quire_error err = {0};
    int rc = query_parse(&context, query, strlen(query), &out, &err);
    if (rc == 0 || strncmp(err.message, words, strlen(words)) != 0)
        print_message("query: %s\nmessage: %s\nexpected: %s\n", query, err.message, words);
    assert_true(rc == QUIRE_EPARSE && err.code == rc && !out);
    assert_memory_equal(err.message, words, strlen(words));
}

/* ---- words ---- */

static void test_all_and_nothing(void **state)
{
    (void)state;
    check("*", "<WILDCARD>");
    check("(*)", "<WILDCARD>");
    check(" ( ( * ) ) ", "<WILDCARD>");
    check("", "<empty>");
    check("  \n\t ", "<empty>");
    check(",.!", "<empty>");
    check("the", "<empty>");
    check("-the", "<empty>");
    check("(the | and)", "<empty>");
    refused("* foo", "Syntax error at offset 0 near *");
    refused("foo *", "Syntax error at offset 4 near *");
    refused("(*) foo", "Syntax error at offset 1 near *");
    refused("()", "Syntax error at offset 1 near )");
}

static void test_words(void **state)
{
    (void)state;
    check("hello", "hello");
    check("HeLLo", "hello");
    check("ÉCOLE", "école");
    check("hello world", "INTERSECT { hello world }");
    check("hello, world!", "INTERSECT { hello world }");
    check("hello AND world", "INTERSECT { hello world }");
    check("hello_world", "hello_world");
    check("hello\\-world", "hello-world");
    check("hello\\ world", "hello world");
    check("a\\\\b", "a\\b");
    check("foo\\bar", "INTERSECT { foo bar }");
    check("2024", "2024");
    check("3.14", "EXACT { 3 14 }");
    check("1.5abc", "INTERSECT { 1 5abc }");
    check("5abc", "5abc");
    check("-5", "NOT{ 5 }");
    check("+5", "5");
    check("-5abc", "NOT{ 5abc }");
    check("-information", "NOT{ information }");
    check("informal", "informal");
    check("great'wall", "INTERSECT { great wall }");
    check("ismissing", "ismissing");
    check("one two three", "INTERSECT { one two three }");
}

static void test_parameters(void **state)
{
    (void)state;
    check("$word", "hello");
    check("$words", "EXACT { one two }");
    check("$none", "<empty>");
    check("@title:$word", "@title:hello");
    refused("$nobody", "No such parameter `nobody` (at offset 0)");
    refused("foo @n:[$nobody 1]", "No such parameter `nobody` (at offset 8)");
}

static void test_phrases(void **state)
{
    (void)state;
    check("\"hello world\"", "EXACT { hello world }");
    check("'hello world'", "EXACT { hello world }");
    check("\"hello\"", "hello");
    check("\"Hello, the world\"", "EXACT { hello world }");
    check("\"the\"", "<empty>");
    check("\"a\\\"b\" c", "INTERSECT { a\"b c }");
    check("\"x\\\" y", "INTERSECT { x y }");
    check("@title:\"one two\"", "@title:EXACT { @title:one @title:two }");
    check("\"\"", "\"\"");
    check("@title:\"550e8400-e29b-41d4\"", "@title:EXACT { @title:550e8400 @title:e29b @title:41d4 }");
    refused("hello \"world", "Syntax error at offset 6 near \"");
    refused("great'wall great'wall", "Syntax error at offset 5 near '");
    refused("@title:\"\"", "Use `INDEXEMPTY` in field creation");
}

static void test_parts_of_words(void **state)
{
    (void)state;
    check("hel*", "PREFIX{hel*}");
    check("*llo", "SUFFIX{*llo}");
    check("*ell*", "INFIX{*ell*}");
    check("Hel*", "PREFIX{hel*}");
    check("h\\-l*", "PREFIX{h-l*}");
    check("star*moon", "INTERSECT { PREFIX{star*} moon }");
    check("hel* *rld", "INTERSECT { PREFIX{hel*} SUFFIX{*rld} }");
    check("$word*", "PREFIX{hello*}");
    check("*$word", "SUFFIX{*hello}");
    check("*$word*", "INFIX{*hello*}");
    check("12*", "PREFIX{12*}");
    check("\"a b\"*", "PREFIX{a b*}");
    check("*\"a b\"", "SUFFIX{*a b}");
    check("*'a b'*", "INFIX{*a b*}");
    check("w'h?l*o'", "WILDCARD{h?l*o}");
    check("w\"H?l\\*\"", "WILDCARD{h?l*}");
    check("w'$pattern'", "WILDCARD{a?b*}");
    check("@title:w'a*'", "@title:WILDCARD{a*}");
    check("w", "w");
    check("%hello%", "FUZZY{hello}");
    check("%%Hello%%", "FUZZY{hello}");
    check("%%%hello%%%", "FUZZY{hello}");
    check("%$word%", "FUZZY{hello}");
    check("% hello %", "FUZZY{hello}");
    check("@title:%%hello%%", "@title:FUZZY{hello}");
    refused("%hello", "Syntax error at offset 6 near the end");
    refused("%%hello%", "Syntax error at offset 8 near the end");
    refused("%%%%hello%%%%", "Syntax error at offset 3 near %");
    refused("%%", "Syntax error at offset 2 near the end");
    refused("%hel*%", "Syntax error at offset 1 near hel");
    refused("$none*", "Syntax error at offset 0 near none");
}

static void test_stems(void **state)
{
    struct query_context context = context_of();
    (void)state;
    context.verbatim = false;
    check_in(&context, "running", "UNION { running +run(expanded) run(expanded) }");
    check_in(&context, "run", "UNION { run +run(expanded) }");
    check_in(&context, "@title:Running", "@title:UNION { @title:running @title:+run(expanded) @title:run(expanded) }");
    check_in(&context, "@plain:running", "@plain:running");
    check_in(&context, "@title|plain:run", "@title|plain:UNION { @title|plain:run @title|plain:+run(expanded) }");
    check_in(&context, "2024", "2024");
    check_in(&context, "\"running men\"", "EXACT { running men }");
    check_in(&context, "\"running\"", "running");
    check_in(&context, "@tag:{running}", "TAG:@tag { running }");
    check_in(&context, "runn*", "PREFIX{runn*}");
    context.language = "german";
    check_in(&context, "laufen", "UNION { laufen +lauf(expanded) lauf(expanded) }");
    context.language = "klingon";
    context.language_position = 5;
    check_in(&context, "x", "No such language: klingon (position 5); see LANGUAGE in docs/search.md");
    context.language = "chinese";
    check_in(&context, "中文", "EXACT { 中 文 }");
}

static void test_options_of_the_command(void **state)
{
    struct query_context context = context_of();
    (void)state;
    context.no_stopwords = true;
    check_in(&context, "to be", "INTERSECT { to be }");
    context.no_stopwords = false;
    context.text_fields = 2;
    check_in(&context, "hello", "@body:hello");
    check_in(&context, "@title:hello", "@NULL:hello");
    context.text_fields = 0;
    context.slop = 2;
    check_in(
        &context, "(one two) @n:[1 2]",
        "INTERSECT { INTERSECT { one two } => { $slop: 2; $inorder: false; } NUMERIC {1.000000 <= @n <= 2.000000} }");
    context.in_order = true;
    context.slop = -1;
    check_in(&context, "one two", "INTERSECT { one two } => { $inorder: true; }");
    check_in(&context, "\"one two\"", "EXACT { one two }");
    check_in(&context, "one", "one");
    check_in(&context, "one tw*",
             "Slop and order hold for single words only at offset 0 near one: leave out alternatives, prefixes and "
             "phrases, or slop and inorder");
}

/* ---- operators ---- */

static void test_operators(void **state)
{
    (void)state;
    check("one | two", "UNION { one two }");
    check("one|two|three", "UNION { one two three }");
    check("one two | three", "UNION { INTERSECT { one two } three }");
    check("one (two | three)", "INTERSECT { one UNION { two three } }");
    check("(one two) three", "INTERSECT { one two three }");
    check("(one | two) | three", "UNION { one two three }");
    check("-one", "NOT{ one }");
    check("--one", "one");
    check("---one", "NOT{ one }");
    check("-(-one)", "one");
    check("one -two three", "INTERSECT { one NOT{ two } three }");
    check("-one | two", "UNION { NOT{ one } two }");
    check("-(one two)", "NOT{ INTERSECT { one two } }");
    check("minus-subtract", "INTERSECT { minus NOT{ subtract } }");
    check("~one", "OPTIONAL{ one }");
    check("~~one", "OPTIONAL{ one }");
    check("one ~two", "INTERSECT { one OPTIONAL{ two } }");
    check("~-one", "OPTIONAL{ NOT{ one } }");
    check("one -the", "one");
    check("one | the", "one");
    check("(((one)))", "one");
    refused("one |", "Syntax error at offset 5 near the end");
    refused("| one", "Syntax error at offset 0 near |");
    refused("one | | two", "Syntax error at offset 6 near |");
    refused("(one", "Syntax error at offset 4 near the end");
    refused("one)", "Syntax error at offset 3 near )");
    refused("-", "Syntax error at offset 1 near the end");
    refused("inside:out", "Syntax error at offset 6 near :");
    refused("old[new", "Syntax error at offset 3 near [");
    refused("cat{dog", "Syntax error at offset 3 near {");
    refused("swim;pass", "Syntax error at offset 4 near ;");
    refused("email@password", "Unknown field at offset 5 near password");
}

static void test_fields(void **state)
{
    (void)state;
    check("@title:hello world", "INTERSECT { @title:hello world }");
    check("@title: hello", "@title:hello");
    check("@title:(hello world)", "@title:INTERSECT { @title:hello @title:world }");
    check("@title:(hello|world) foo", "INTERSECT { @title:UNION { @title:hello @title:world } foo }");
    check("@title:(hello (a | world))", "@title:INTERSECT { @title:hello @title:world }");
    check("@title|body:hello", "@title|body:hello");
    check("@title | body | plain:(a x)", "@title|body|plain:x");
    check("@title:-hello", "@title:NOT{ @title:hello }");
    check("@title:hello | @body:world", "UNION { @title:hello @body:world }");
    check("-@title:hello", "NOT{ @title:hello }");
    check("@title:the", "<empty>");
    check("@meta.deep.name:x", "@meta.deep.name:x");
    check("@title|meta.deep.name:x", "@title|meta.deep.name:x");
    check("@meta\\.deep\\.name:x", "@meta.deep.name:x");
    check("@meta.genre:{x}", "TAG:@meta.genre { x }");
    check("@my\\-tag:{x}", "TAG:@my-tag { x }");
    check("@title:*", "NOT{ ISMISSING{title} }");
    check("-@n:*", "ISMISSING{n}");
    check("@tag:* x", "INTERSECT { NOT{ ISMISSING{tag} } x }");
    check("ismissing(@gone)", "ISMISSING{gone}");
    check("-ismissing(@gone)", "NOT{ ISMISSING{gone} }");
    check("ISMISSING( @gone ) x", "INTERSECT { ISMISSING{gone} x }");
    refused("@nobody:x", "Unknown field at offset 0 near nobody");
    refused("x @meta.nobody:x", "Unknown field at offset 2 near meta");
    refused("@title|nobody:x", "Unknown field at offset 7 near nobody");
    refused("@title|tag:x", "Expected a TEXT field at offset 7 near tag");
    refused("@tag|title:x", "Expected a TEXT field at offset 0 near tag");
    refused("@tag:x", "Expected a TEXT field at offset 0 near tag");
    refused("@title:{x}", "Expected a TAG field at offset 0 near title");
    refused("@title:[1 2]", "Expected a NUMERIC field at offset 0 near title");
    refused("@hidden:[1 2]", "Field is declared NOINDEX and cannot be searched at offset 0 near hidden");
    refused("@title hello", "Syntax error at offset 7 near hello");
    refused("@title:", "Syntax error at offset 7 near the end");
    refused("@title:(x @body:y)", "Syntax error at offset 10 near body: expected no other field");
    refused("ismissing(@title)", "'ismissing' requires defining the field with 'INDEXMISSING' at offset 10 near title");
    refused("ismissing(title)", "Syntax error at offset 10 near title");
    refused("ismissing(@gone", "Syntax error at offset 15 near the end");
}

/* ---- tags, numbers, places ---- */

static void test_tags(void **state)
{
    (void)state;
    check("@tag:{x}", "TAG:@tag { x }");
    check("@tag:{ x }", "TAG:@tag { x }");
    check("@tag:{a | b|c}", "TAG:@tag { a b c }");
    check("@tag:{hello world | New York}", "TAG:@tag { hello world New York }");
    check("@cased:{Hello}", "TAG:@cased { Hello }");
    check("@tag:{a\\}b}", "TAG:@tag { a}b }");
    check("@tag:{ a\\|b | a\\}b }", "TAG:@tag { a|b a}b }");
    check("@tag:{a\\ b}", "TAG:@tag { a b }");
    check("@tag:{user\\@example\\.com}", "TAG:@tag { user@example.com }");
    check("@tag:{the}", "TAG:@tag { the }");
    check("@tag:{\"hello, world\"}", "TAG:@tag { hello, world }");
    check("@tag:{'a-b'}", "TAG:@tag { a-b }");
    check("@tag:{hel*}", "TAG:@tag { PREFIX{hel*} }");
    check("@tag:{*llo | *ll*}", "TAG:@tag { SUFFIX{*llo} INFIX{*ll*} }");
    check("@tag:{w'h?l*'}", "TAG:@tag { WILDCARD{h?l*} }");
    check("@tag:{$t}", "TAG:@tag { New York }");
    check("@tag:{$t | x}", "TAG:@tag { New York x }");
    check("@tag:{$punct}", "TAG:@tag { a-b.c\\d }");
    check("@tag:{12}", "TAG:@tag { 12 }");
    check("@tag:{-1.5}", "TAG:@tag { -1.5 }");
    check("@tag:{2024-05-01}", "TAG:@tag { 2024-05-01 }");
    check("@tag:{as}", "TAG:@tag { as }");
    check("@tag:{ismissing}", "TAG:@tag { ismissing }");
    check("@empty:{\"\"}", "TAG:@empty { \"\" }");
    check("@tag:{x} @tag:{y}", "INTERSECT { TAG:@tag { x } TAG:@tag { y } }");
    check("(@tag:{x})", "TAG:@tag { x }");
    refused("@tag:{}", "Syntax error at offset 6 near }");
    refused("@tag:{a |}", "Syntax error at offset 9 near }");
    refused("@tag:{a", "Syntax error at offset 7 near the end");
    refused("@tag:{a-b}", "Syntax error at offset 7 near -");
    refused("@tag:{a b*}", "Syntax error at offset 8 near b");
    refused("@tag:{\"\"}", "Use `INDEXEMPTY` in field creation in order to index and query for empty strings");
    refused("@tag:{user@example.com}", "Syntax error at offset 10 near example");
    refused("@n:{1}", "Expected a TAG field at offset 0 near n");
}

static void test_numbers(void **state)
{
    (void)state;
    check("@n:[1 2]", "NUMERIC {1.000000 <= @n <= 2.000000}");
    check("@n:[(1 (2]", "NUMERIC {1.000000 < @n < 2.000000}");
    check("@n:[-1.5 (2e3]", "NUMERIC {-1.500000 <= @n < 2000.000000}");
    check("@n:[1, 2]", "NUMERIC {1.000000 <= @n <= 2.000000}");
    check("@n:[-inf +inf]", "NUMERIC {-inf <= @n <= inf}");
    check("@n:[-INF inf]", "NUMERIC {-inf <= @n <= inf}");
    check("@n:[(-inf (5]", "NUMERIC {-inf < @n < 5.000000}");
    check("@n:[5]", "NUMERIC {5.000000 <= @n <= 5.000000}");
    check("@n:[.5 5.]", "NUMERIC {0.500000 <= @n <= 5.000000}");
    check("@n:[$low $five]", "NUMERIC {-inf <= @n <= 5.000000}");
    check("@n:[-$five $five]", "NUMERIC {-5.000000 <= @n <= 5.000000}");
    check("@n:[($neg $five]", "NUMERIC {-1.000000 < @n <= 5.000000}");
    check("@n:[$open 5]", "NUMERIC {3.000000 < @n <= 5.000000}");
    check("@n:[- 5 5]", "NUMERIC {-5.000000 <= @n <= 5.000000}");
    check("@n==5", "NUMERIC {5.000000 <= @n <= 5.000000}");
    check("@n!=5", "NOT{ NUMERIC {5.000000 <= @n <= 5.000000} }");
    check("@n>5", "NUMERIC {5.000000 < @n <= inf}");
    check("@n>=5", "NUMERIC {5.000000 <= @n <= inf}");
    check("@n<5", "NUMERIC {-inf <= @n < 5.000000}");
    check("@n<=-5", "NUMERIC {-inf <= @n <= -5.000000}");
    check("@n >= $five", "NUMERIC {5.000000 <= @n <= inf}");
    check("@n == -$five x", "INTERSECT { NUMERIC {-5.000000 <= @n <= -5.000000} x }");
    check("@n>1 @n<2", "INTERSECT { NUMERIC {1.000000 < @n <= inf} NUMERIC {-inf <= @n < 2.000000} }");
    refused("@n:[1 2", "Syntax error at offset 7 near the end");
    refused("@n:[]", "Syntax error at offset 4 near ]");
    refused("@n:[(5]", "Syntax error at offset 6 near ]");
    refused("@n:[a b]", "Syntax error at offset 4 near a");
    refused("@n:[1 b]", "Syntax error at offset 6 near b");
    refused("@n:[5 1]", "Invalid numeric range (min > max): @n:[5.000000 1.000000] at offset 4");
    refused("@n:[$bad 1]", "Invalid numeric value (x1) for parameter `bad`");
    refused("@n:[$none 1]", "Invalid numeric value () for parameter `none`");
    refused("@n>x", "Syntax error at offset 3 near x");
    refused("@tag>5", "Expected a NUMERIC field at offset 0 near tag");
}

static void test_places(void **state)
{
    (void)state;
    check("@g:[2.5 48.5 10 km]", "GEO g:{2.500000,48.500000 --> 10000.000000 m}");
    check("@g:[-2.5 -48.5 10 M]", "GEO g:{-2.500000,-48.500000 --> 10.000000 m}");
    check("@g:[1 2 1 mi]", "GEO g:{1.000000,2.000000 --> 1609.340000 m}");
    check("@g:[1 2 10 ft]", "GEO g:{1.000000,2.000000 --> 3.048000 m}");
    check("@g:[$five $five $r $unit]", "GEO g:{5.000000,5.000000 --> 500.000000 m}");
    refused("@g:[1 2 3 parsec]", "Invalid GeoFilter unit at offset 10 near parsec");
    refused("@g:[1 2 3]", "Syntax error at offset 9 near ]");
    refused("@g:[200 2 3 km]", "Invalid GeoFilter lat/lon at offset 4 near 200");
    refused("@g:[1 2 -3 km]", "Invalid GeoFilter radius at offset 8 near -3");
    refused("@g:[(1 2 3 km]", "Syntax error at offset 5 near 1");
    refused("@n:[1 2 3 km]", "Expected a GEO field at offset 0 near n");
    refused("@g:[1 2]", "Expected a NUMERIC field at offset 0 near g");
    refused("@g:[WITHIN $t]", "Syntax error at offset 4 near WITHIN");
}

/* ---- vectors and attributes ---- */

static void test_knn(void **state)
{
    static const char plain[] =
        "VECTOR {K=10 nearest vectors to `$vec` in vector index associated with field @v, yields distance as `d`}";
    (void)state;
    check("*=>[KNN 10 @v $vec AS d]", plain);
    check("(*) => [knn 10 @v $vec as d]", plain);
    check("the=>[KNN 10 @v $vec AS d]", plain);
    check("*=>[KNN 10 @v $vec]=>{$yield_distance_as: d}", plain);
    check("*=>[KNN 10 @v $vec HYBRID_POLICY BATCHES BATCH_SIZE 50 AS d]", plain);
    check("*=>[KNN 10 @v $vec AS d SHARD_K_RATIO 0.5]", plain);
    check("*=>[KNN $k @v $vec AS $name]",
          "VECTOR {K=7 nearest vectors to `$vec` in vector index associated with field @v, yields distance as `dist`}");
    check("*=>[KNN 3 @v $vec EF_RUNTIME $k EPSILON 0.5]",
          "VECTOR {K=3 nearest vectors to `$vec` in vector index associated with field @v, EF_RUNTIME = 7, EPSILON = "
          "0.5, yields distance as `__v_score`}");
    check("*=>[KNN 3 @v $vec]=>{$EF_RUNTIME: 9; $yield_distance_as: d;}",
          "VECTOR {K=3 nearest vectors to `$vec` in vector index associated with field @v, EF_RUNTIME = 9, yields "
          "distance as `d`}");
    check("(@tag:{x} one)=>[KNN 3 @bytes $b AS d]",
          "VECTOR { INTERSECT { TAG:@tag { x } one } } => {K=3 nearest vectors to `$b` in vector index associated with "
          "field @bytes, yields distance as `d`}");
    check("@tag:{x}=>[KNN 2147483647 @v $vec AS d]",
          "VECTOR { TAG:@tag { x } } => {K=1000000 nearest vectors to `$vec` in vector index associated with field @v, "
          "yields distance as `d`}");
    check("(~@title:(x | y) AND @tag:{x})=>[KNN 1 @v $vec AS d]",
          "VECTOR { INTERSECT { OPTIONAL{ @title:UNION { @title:x @title:y } } TAG:@tag { x } } } => {K=1 nearest "
          "vectors to `$vec` in vector index associated with field @v, yields distance as `d`}");
    refused("(one=>[KNN 3 @v $vec])", "Syntax error at offset 4 near =>");
    refused("*=>[KNN 3 @v]", "Syntax error at offset 12 near ]");
    refused("*=>[KNN @v $vec]", "Syntax error at offset 8 near v");
    refused("*=>[KNN x @v $vec]", "Syntax error at offset 8 near x");
    refused("*=>[KNN -1 @v $vec]", "Invalid value (-1) for `K` at offset 8");
    refused("*=>[KNN 1.5 @v $vec]", "Invalid value (1.5) for `K` at offset 8");
    refused("*=>[KNN $bad @v $vec]", "Invalid value (x1) for `K` at offset 8");
    refused("*=>[KNN 2 @tag $vec]", "Expected a VECTOR field at offset 10 near tag");
    refused("*=>[KNN 2 @nobody $vec]", "Unknown field at offset 10 near nobody");
    refused("*=>[ANN 2 @v $vec]", "Syntax error at offset 4 near ANN");
    refused("*=>[KNN 2 @v $vec", "Syntax error at offset 17 near the end");
    refused("*=>[KNN 2 @v $vec] x", "Syntax error at offset 19 near x");
    refused("*=>[KNN 2 @v $nobody]", "No such parameter `nobody`");
    refused("*=>[KNN 2 @v $b]", "Error parsing vector similarity query: query vector blob size (3) does not match "
                                "index's expected size (8).");
    refused("*=>[KNN 2 @v $vec FOO 1]", "Error parsing vector similarity parameters: Invalid option at offset 18");
    refused("*=>[KNN 2 @v $vec EF_RUNTIME 0]", "Invalid value (0) for `EF_RUNTIME`");
    refused("*=>[KNN 2 @v $vec AS d]=>{$yield_distance_as: e}",
            "Distance field was specified twice for vector query: d and e");
    refused("*=>", "Syntax error at offset 3 near the end");
    refused("*=>{$weight: 2}", "Syntax error at offset 3 near {");
}

static void test_ranges(void **state)
{
    (void)state;
    check("@v:[VECTOR_RANGE 0.5 $vec]",
          "VECTOR {Vectors that are within 0.5 distance radius from `$vec` in vector index "
          "associated with field @v}");
    check("(@v:[vector_range $r $vec]=>{$YIELD_DISTANCE_AS: d; $EPSILON: 0.1} @tag:{x})",
          "INTERSECT { VECTOR {Vectors that are within 0.5 distance radius from `$vec` in vector index associated with "
          "field @v, EPSILON = 0.1, yields distance as `d`} TAG:@tag { x } }");
    check("@v:[VECTOR_RANGE 2.0 $vec]=>{$YIELD_DISTANCE_AS: d0} AND @bytes: [VECTOR_RANGE 1 $b]=>{$yield_distance_as: "
          "d1}",
          "INTERSECT { VECTOR {Vectors that are within 2 distance radius from `$vec` in vector index associated with "
          "field @v, yields distance as `d0`} VECTOR {Vectors that are within 1 distance radius from `$b` in vector "
          "index associated with field @bytes, yields distance as `d1`} }");
    refused("@v:[VECTOR_RANGE -1 $vec]",
            "Error parsing vector similarity query: negative radius (-1) given in a range query");
    refused("@v:[VECTOR_RANGE $neg $vec]", "Error parsing vector similarity query: negative radius (-1)");
    refused("@v:[VECTOR_RANGE 1]", "Syntax error at offset 18 near ]");
    refused("@v:[VECTOR_RANGE x $vec]", "Syntax error at offset 17 near x");
    refused("@tag:[VECTOR_RANGE 1 $vec]", "Expected a VECTOR field at offset 0 near tag");
    refused("@v:[1 2]", "Expected a NUMERIC field at offset 0 near v");
    refused("@v:[VECTOR_RANGE 1 $b]", "Error parsing vector similarity query: query vector blob size (3)");
    refused("@v:[VECTOR_RANGE 1 $vec]=>{$yield_distance_as: a}=>{$yield_distance_as: b}",
            "Distance field was specified twice for vector query: a and b");
    refused("@v:[VECTOR_RANGE 1 $vec]=>{$EPSILON: -1}", "Invalid value (-1) for `EPSILON`");
}

static void test_attributes(void **state)
{
    (void)state;
    check("one=>{$weight: 2.5}", "one => {$weight: 2.5;}");
    check("(one two)=>{$weight: 2; $slop: 1; $inorder: true}",
          "INTERSECT { one two } => { $weight: 2; $slop: 1; $inorder: true; }");
    check("(one two) => { $weight: 2.0 }", "INTERSECT { one two } => { $weight: 2; }");
    check("@title:(one | two)=>{$weight: 3}", "@title:UNION { @title:one @title:two } => { $weight: 3; }");
    check("one two=>{$weight: 2}", "INTERSECT { one two => {$weight: 2;} }");
    check("-one=>{$weight: 2}", "NOT{ one => {$weight: 2;} }");
    check("(one two)=>{$weight: 2} three", "INTERSECT { INTERSECT { one two } => { $weight: 2; } three }");
    check("one=>{}", "one");
    check("one=>{;$phonetic: true;}", "one");
    check("the=>{$weight: 2}", "<empty>");
    check("one=>{$WEIGHT: $r}", "one => {$weight: 0.5;}");
    check("(one @tag:{x} two)=>{$inorder: 1}",
          "INTERSECT { INTERSECT { one two } => { $inorder: true; } TAG:@tag { x } }");
    check("\"one two\"=>{$slop: 3}", "INTERSECT { one two } => { $slop: 3; $inorder: true; }");
    check("(@tag:{x} @n:[1 2])=>{$slop: 3}", "INTERSECT { TAG:@tag { x } NUMERIC {1.000000 <= @n <= 2.000000} }");
    refused("one=>{$weight: x}", "Invalid value (x) for `weight` at offset 6");
    refused("one=>{$weight: -1}", "Invalid value (-1) for `weight`");
    refused("one=>{$slop: 1.5}", "Invalid value (1.5) for `slop`");
    refused("one=>{$inorder: maybe}", "Invalid value (maybe) for `inorder`");
    refused("one=>{$foo: 1}", "Invalid attribute at offset 6 near foo");
    refused("one=>{$yield_distance_as: d}", "Invalid attribute at offset 6 near yield_distance_as");
    refused("one=>{weight: 1}", "Syntax error at offset 6 near weight");
    refused("one=>{$weight 1}", "Syntax error at offset 14 near 1");
    refused("one=>{$weight: 1", "Syntax error at offset 16 near the end");
    refused("one=>{$weight: 1 2}", "Syntax error at offset 17 near 2");
    refused("one=>", "Syntax error at offset 5 near the end");
    refused("(one (two | three))=>{$slop: 1}", "Slop and order hold for single words only at offset 21 near {");
}

/* What client libraries send: filters, caches, vector stores. */
static void test_clients(void **state)
{
    static const char *const queries[] = {
        "*=>[KNN 10 @v $vec HYBRID_POLICY BATCHES BATCH_SIZE 50 EF_RUNTIME $five SEARCH_WINDOW_SIZE $k "
        "USE_SEARCH_HISTORY "
        "$t SEARCH_BUFFER_CAPACITY $k AS vector_distance]",
        "(@v:[VECTOR_RANGE $r $vec]=>{$YIELD_DISTANCE_AS: vector_distance; $EPSILON: 0.01} (@tag:{x} @n:[(5 +inf]))",
        "@v:[VECTOR_RANGE $r $vec]=>{$YIELD_DISTANCE_AS: vector_distance}",
        "@title:(quick | fox) => { $weight: 2.0 } AND @tag:{x}",
        "(@title:(a1 | b1)=>{$weight:5.0} | @body:(a1 | b1)) AND @tag:{x}",
        "@title:(a1=>{$weight: 2.0} | b1)",
        "(~@title:(a1 | b1) AND (@tag:{x}))=>[KNN 3 @v $vec AS vector_distance]",
        "@v:[VECTOR_RANGE 2 $vec]=>{$YIELD_DISTANCE_AS: d} AND @bytes:[VECTOR_RANGE 2 $b]=>{$YIELD_DISTANCE_AS: e}",
        "* => [KNN 4 @v $vec AS vector_score]",
        "@title:(a1|b1) => [KNN 4 @v $vec AS vector_score]",
        "(@tag:{a|b} (-@n:[1 1])) => [KNN 4 @v $vec AS vector_score]",
        "(@title:(%%w1%%) | @title:(wor*))",
        "@title:\"0b0ff1c3-9a4b-4f0e-8b6e-0c1d2e3f4a5b\"",
        "(@tag:{gpt\\-4})=>[KNN 1 @v $vec AS vector_distance]",
        "*=>[KNN 1 @v $vec as score]",
        "(@tag:{a1 | b1} -@cased:{c})=>[KNN 4 @v $vec AS vector_score]",
        "(-@n:[-inf +inf] -(@tag:{a} | @tag:{b}))=>[KNN 4 @v $vec AS score]",
        "(@tag:{a} @n:[(1 +inf] -@gone:* @title:*)=>[KNN 2147483647 @v $vec AS score]",
        "(@n:[1 inf] @n:[-inf 3])",
        "(-@g:[1.5 2.5 10 km])",
        "@title:(\"two words\")",
        "(-ismissing(@gone))",
        "(@tag:{a} | (-@tag:{b} @title:(x1 y1)))",
    };
    const struct query_context context = context_of();
    (void)state;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        struct query *query = NULL;
        struct quire_error err = {0};
        if (query_parse(&context, queries[i], strlen(queries[i]), &query, &err) < 0)
            fail_msg("%s: %s", queries[i], err.message);
        assert_true(query_root(query)->kind != QUERY_NONE);
        query_free(query);
    }
}

/* ---- limits ---- */

static char *append(char *to, const char *text)
{
    size_t bytes = strlen(text);
    memcpy(to, text, bytes);
    return to + bytes;
}

static int parse_repeated(const char *open, const char *middle, const char *close, uint32_t n, struct quire_error *err)
{
    const struct query_context context = context_of();
    size_t bytes = n * (strlen(open) + strlen(close)) + strlen(middle);
    struct query *query = NULL;
    char *text = malloc(bytes + 1), *at = text;
    assert_non_null(text);
    for (uint32_t i = 0; i < n; i++)
        at = append(at, open);
    at = append(at, middle);
    for (uint32_t i = 0; i < n; i++)
        at = append(at, close);
    assert_true(at == text + bytes);
    int rc = query_parse(&context, text, bytes, &query, err);
    free(text);
    query_free(query);
    return rc;
}

static void test_limits(void **state)
{
    const struct query_context context = context_of();
    struct quire_error err = {0};
    struct query *query = NULL;
    static char text[QUERY_BYTES_MAX + 1];
    (void)state;
    assert_int_equal(parse_repeated("(", "x", ")", QUERY_DEPTH_MAX, &err), 0);
    assert_int_equal(parse_repeated("(", "x", ")", QUERY_DEPTH_MAX + 1, &err), QUIRE_ELIMIT);
    assert_int_equal(parse_repeated("(", "x", ")", 1000, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "nested more than 250 levels deep at offset 250"));
    assert_int_equal(parse_repeated("(", "x", ")", 30000, &err), QUIRE_ELIMIT);
    assert_int_equal(parse_repeated("-~", "x", "", 1000, &err), QUIRE_ELIMIT);
    assert_int_equal(parse_repeated("-", "x", "", 60000, &err), 0);
    assert_int_equal(parse_repeated("(y ", "x", ")", 200, &err), 0);
    assert_int_equal(parse_repeated("x|", "x", "", 30000, &err), 0);
    assert_int_equal(parse_repeated("x ", "x", "", 32000, &err), 0);
    assert_int_equal(parse_repeated("'\\", "x", "", 32000, &err), 0);
    memset(text, ' ', sizeof text);
    assert_int_equal(query_parse(&context, text, QUERY_BYTES_MAX, &query, &err), 0);
    query_free(query);
    query = NULL;
    assert_int_equal(query_parse(&context, text, QUERY_BYTES_MAX + 1, &query, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "65537 bytes, the limit is 65536"));
    assert_null(query);
}

/* A parameter of many words, many times: the tree stays bounded. */
static void test_nodes_are_bounded(void **state)
{
    static char words[40000];
    struct query_param param = {TEXT("p"), {words, sizeof words}};
    struct query_context context = context_of();
    struct query *query = NULL;
    struct quire_error err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = i % 2 ? ' ' : 'x';
    context.params = &param;
    context.n_params = 1;
    assert_int_equal(query_parse(&context, "$p $p", 5, &query, &err), 0);
    query_free(query);
    query = NULL;
    assert_int_equal(query_parse(&context, "$p $p $p $p", 11, &query, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "more than 65536 parts at offset 9"));
    assert_null(query);
}

/* The example of docs/search.md. */
static void test_explain(void **state)
{
    static const char text[] = "@title:(running shoes) @tag:{new | used} @n:[10 (50]";
    struct query_context context = context_of();
    (void)state;
    context.verbatim = false;
    char *shown = explain_of(&context, text, sizeof text - 1);
    assert_string_equal(shown, "INTERSECT {\n"
                               "  @title:INTERSECT {\n"
                               "    @title:UNION {\n"
                               "      @title:running\n"
                               "      @title:+run(expanded)\n"
                               "      @title:run(expanded)\n"
                               "    }\n"
                               "    @title:UNION {\n"
                               "      @title:shoes\n"
                               "      @title:+shoe(expanded)\n"
                               "      @title:shoe(expanded)\n"
                               "    }\n"
                               "  }\n"
                               "  TAG:@tag {\n"
                               "    new\n"
                               "    used\n"
                               "  }\n"
                               "  NUMERIC {10.000000 <= @n < 50.000000}\n"
                               "}\n");
    free(shown);
}

/* Deep and wide: the explanation would be larger than a reply should be. */
static void test_explain_is_bounded(void **state)
{
    const struct query_context context = context_of();
    struct query *query = NULL;
    struct quire_error err = {0};
    static char text[QUERY_BYTES_MAX];
    char *out = NULL;
    size_t n = 0, bytes;
    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "~(y ");
    for (; n < sizeof text - 300; n++)
        text[n] = n % 2 ? 'x' : ' ';
    for (uint32_t i = 0; i < 100; i++)
        text[n++] = ')';
    assert_int_equal(query_parse(&context, text, n, &query, NULL), 0);
    assert_int_equal(query_explain(query_root(query), schema, &out, &bytes, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "4194304 bytes"));
    assert_null(out);
    query_free(query);
}

/* What no explanation shows. */
static void test_values(void **state)
{
    const struct query_context context = context_of();
    struct query *query = NULL;
    static const char text[] = "(@g:[1 2 3 km] %%%x%%% -@n>=7)=>[KNN 3 @v $vec]";
    (void)state;
    assert_int_equal(query_parse(&context, text, sizeof text - 1, &query, NULL), 0);
    const struct query_node *knn = query_root(query), *and = knn->children[0];
    assert_int_equal(knn->kind, QUERY_KNN);
    assert_int_equal(knn->k, 3);
    assert_int_equal(knn->ef, 0);
    assert_true(knn->epsilon < 0);
    assert_ptr_equal(knn->vector, params[0].value.data);
    assert_int_equal(knn->vector_bytes, 8);
    assert_memory_equal(knn->distance_as.data, "__v_score", 9);
    assert_int_equal(and->kind, QUERY_AND);
    assert_int_equal(and->n_children, 3);
    assert_true(and->children[0]->radius_m == 3000 && and->children[0]->longitude == 1);
    assert_int_equal(and->children[1]->distance, 3);
    assert_int_equal(and->children[1]->text_fields, 15);
    assert_true(isinf(and->children[2]->children[0]->high));
    query_free(query);
}

static int make(void **state)
{
    (void)state;
    schema = schema_of(fields);
    return schema ? 0 : -1;
}

static int unmake(void **state)
{
    (void)state;
    schema_free(schema);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_and_nothing),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_phrases),
        cmocka_unit_test(test_parts_of_words),
        cmocka_unit_test(test_stems),
        cmocka_unit_test(test_options_of_the_command),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_knn),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_nodes_are_bounded),
        cmocka_unit_test(test_clients),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_explain_is_bounded),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
