/*
 * test_jsonpath.c - what paths find: examples with their answers, random paths in random documents against a walk that
 * follows one path at a time, what is refused and where, and limits.
 */
#include "document/json/jsonpath.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *parsed(const char *text)
{
    struct quire_error err = {0};
    json_t *root;
    if (tree_parse(text, strlen(text), &root, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return root;
}

static struct jsonpath *compiled(const char *text)
{
    struct quire_error err = {0};
    struct jsonpath *path;
    if (jsonpath_compile(text, strlen(text), &path, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return path;
}

/* What a path finds, as the text of an array. */
static char *found(json_t *root, const char *text)
{
    struct jsonpath *path = compiled(text);
    struct jsonpath_matches matches = {.items = NULL};
    struct tree_text out = {.data = NULL};
    struct quire_error err = {0};
    if (jsonpath_find(path, root, &matches, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    tree_text_add(&out, "[", 1);
    for (size_t i = 0; i < matches.n; i++) {
        tree_text_add(&out, ",", i > 0);
        tree_print(matches.items[i].value, NULL, 0, &out);
    }
    tree_text_add(&out, "]", 2);
    assert_false(out.failed);
    jsonpath_matches_fini(&matches);
    jsonpath_free(path);
    return out.data;
}

static void expect_found(const char *document, const char *path, const char *expected)
{
    json_t *root = parsed(document);
    char *out = found(root, path);
    if (strcmp(out, expected) != 0)
        fail_msg("%s finds %s, not %s", path, out, expected);
    free(out);
    json_decref(root);
}

/* ---- examples ---------------------------------------------------------------------------------------------------- */

#define STORE                                                                                                          \
    "{\"store\":{\"book\":["                                                                                           \
    "{\"category\":\"reference\",\"author\":\"Nigel Rees\",\"title\":\"Sayings\",\"price\":8.95},"                     \
    "{\"category\":\"fiction\",\"author\":\"Evelyn Waugh\",\"title\":\"Sword\",\"price\":12.99},"                      \
    "{\"category\":\"fiction\",\"author\":\"Herman Melville\",\"title\":\"Moby\",\"isbn\":\"0-553\",\"price\":8.99},"  \
    "{\"category\":\"fiction\",\"author\":\"Tolkien\",\"title\":\"Rings\",\"isbn\":\"0-395\",\"price\":22.99}],"       \
    "\"bicycle\":{\"color\":\"red\",\"price\":19.95}},\"max\":10}"

static void test_the_store(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"$.store.book[*].title", "[\"Sayings\",\"Sword\",\"Moby\",\"Rings\"]"},
        {"$..author", "[\"Nigel Rees\",\"Evelyn Waugh\",\"Herman Melville\",\"Tolkien\"]"},
        {"$.store..price", "[8.95,12.99,8.99,22.99,19.95]"},
        {"$..book[2].title", "[\"Moby\"]"},
        {"$..book[-1].title", "[\"Rings\"]"},
        {"$..book[0,1].title", "[\"Sayings\",\"Sword\"]"},
        {"$..book[1,0].title", "[\"Sword\",\"Sayings\"]"},
        {"$..book[:2].title", "[\"Sayings\",\"Sword\"]"},
        {"$..book[1:].price", "[12.99,8.99,22.99]"},
        {"$..book[-2:].price", "[8.99,22.99]"},
        {"$..book[0:4:2].price", "[8.95,8.99]"},
        {"$..book[::3].price", "[8.95,22.99]"},
        {"$..book[:].price", "[8.95,12.99,8.99,22.99]"},
        {"$..book[?(@.isbn)].title", "[\"Moby\",\"Rings\"]"},
        {"$..book[?(!@.isbn)].title", "[\"Sayings\",\"Sword\"]"},
        {"$..book[?@.isbn].title", "[\"Moby\",\"Rings\"]"},
        {"$..book[?(@.price<10)].title", "[\"Sayings\",\"Moby\"]"},
        {"$..book[?(@.price<$.max)].title", "[\"Sayings\",\"Moby\"]"},
        {"$..book[?(10>@.price)].title", "[\"Sayings\",\"Moby\"]"},
        {"$..book[?(@.price<10 && @.category==\"fiction\")].title", "[\"Moby\"]"},
        {"$..book[?(@.price<9||@.price>20)].title", "[\"Sayings\",\"Moby\",\"Rings\"]"},
        {"$..book[?(@.price>20 || @.price<9 && @.category=='fiction')].title", "[\"Moby\",\"Rings\"]"},
        {"$..book[?((@.price>20 || @.price<9) && @.category=='fiction')].title", "[\"Moby\",\"Rings\"]"},
        {"$..book[?(!(@.price>20 || @.price<9))].title", "[\"Sword\"]"},
        {"$..book[?(@.author =~ \"(?i)^t\")].title", "[\"Rings\"]"},
        {"$..book[?(@.isbn =~ '\\d-5{2}3')].title", "[\"Moby\"]"},
        {"$..book[?(@['category'] != 'fiction')].title", "[\"Sayings\"]"},
        {"$.store.bicycle[\"color\",'price']", "[\"red\",19.95]"},
        {"$[\"store\"][\"bicycle\"].*", "[\"red\",19.95]"},
        {"$.store.*.color", "[\"red\"]"},
        {"$.store[?(@.color)].price", "[19.95]"},
        {"$.none", "[]"},
        {"$.max.deeper", "[]"},
        {"$.store.book.title", "[]"},
        {"$.store.book[9]", "[]"},
        {"$.max[0]", "[]"},
        {"$..[?(@.color)].price", "[19.95]"},
        {"$..book..price", "[8.95,12.99,8.99,22.99]"},
        {"store.bicycle.color", "[\"red\"]"},
        {".store.bicycle.color", "[\"red\"]"},
        {".store.book[1].price", "[12.99]"},
        {"[\"store\"].book[1].price", "[12.99]"},
        {"[\"store\"][\"book\"][-1][\"price\"]", "[22.99]"},
        {"..color", "[\"red\"]"},
        {"$.max", "[10]"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        expect_found(STORE, pairs[i][0], pairs[i][1]);
    expect_found(STORE, "$", "[" STORE "]");
    expect_found(STORE, ".", "[" STORE "]");
}

static void test_odd_names_and_values(void **state)
{
    (void)state;
    expect_found("{\"a-b\":1,\"a:b\":2,\"\xc3\xa9\":3,\"a.b\":4,\"it's\":5,\"q\\\"\":6,\"back\\\\\":7,\"\":8,\"$x\":9}",
                 "$.a-b", "[1]");
    expect_found("{\"a:b\":2}", "$.a:b", "[2]");
    expect_found("{\"\xc3\xa9\":3}", "$.\xc3\xa9", "[3]");
    expect_found("{\"a.b\":4}", "$[\"a.b\"]", "[4]");
    expect_found("{\"it's\":5}", "$['it\\'s']", "[5]");
    expect_found("{\"q\\\"\":6}", "$[\"q\\\"\"]", "[6]");
    expect_found("{\"back\\\\\":7}", "$[\"back\\\\\"]", "[7]");
    expect_found("{\"\":8}", "$['']", "[8]");
    expect_found("{\"$x\":9}", "$x", "[9]"); /* legacy */
}

static void test_comparisons(void **state)
{
    (void)state;
    static const char all[] = "[1,1.0,2,\"1\",\"a\",\"b\",true,false,null,[1],{\"a\":1},[]]";
    static const char *const pairs[][2] = {
        {"$[?(@==1)]", "[1,1.0]"},
        {"$[?(@>=1)]", "[1,1.0,2]"},
        {"$[?(@<2.5)]", "[1,1.0,2]"},
        {"$[?(@=='1')]", "[\"1\"]"},
        {"$[?(@>'1')]", "[\"a\",\"b\"]"},
        {"$[?(@<='a')]", "[\"1\",\"a\"]"},
        {"$[?(@==true)]", "[true]"},
        {"$[?(@<true)]", "[false]"},
        {"$[?(@==null)]", "[null]"},
        {"$[?(@!=1)]", "[2,\"1\",\"a\",\"b\",true,false,null,[1],{\"a\":1},[]]"},
        {"$[?(@.a!=1)]", "[1,1.0,2,\"1\",\"a\",\"b\",true,false,null,[1],[]]"},
        {"$[?(@.a)]", "[{\"a\":1}]"},
        {"$[?(@==$[9])]", "[[1]]"},
        {"$[?(@==$[10])]", "[{\"a\":1}]"},
        {"$[?(@[*]==1)]", "[[1],{\"a\":1}]"},
        {"$[?(@==$[4,5])]", "[\"a\",\"b\"]"},
        {"$[?(true)]", "[1,1.0,2,\"1\",\"a\",\"b\",true,false,null,[1],{\"a\":1},[]]"},
        {"$[?(false)]", "[]"},
        {"$[?(@=~$[4])]", "[\"a\"]"},
        {"$[?(@=~'')]", "[\"1\",\"a\",\"b\"]"},
        {"$[?(-1<@ && 1.5e0>@)]", "[1,1.0]"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        expect_found(all, pairs[i][0], pairs[i][1]);
    expect_found("{\"a\":[{\"n\":[1,5]},{\"n\":[2]}]}", "$.a[?(@.n[?(@>4)])]", "[{\"n\":[1,5]}]");
    expect_found("[9223372036854775807,9223372036854775806]", "$[?(@>9223372036854775806)]", "[9223372036854775807]");
}

static void test_order_and_places(void **state)
{
    (void)state;
    struct jsonpath_matches matches = {.items = NULL};
    struct jsonpath *path = compiled("$..b");
    json_t *root = parsed("{\"a\":[{\"b\":1},{\"c\":{\"b\":2}}],\"b\":{\"b\":3}}");
    assert_int_equal(jsonpath_find(path, root, &matches, NULL), 0);
    assert_int_equal(matches.n, 4); /* of the root first, then below, in the order of the document */
    assert_true(json_is_object(matches.items[0].value) && matches.items[0].parent == root);
    assert_int_equal(json_integer_value(matches.items[1].value), 1);
    assert_int_equal(json_integer_value(matches.items[2].value), 2);
    assert_int_equal(json_integer_value(matches.items[3].value), 3);
    for (size_t i = 0; i < matches.n; i++) {
        assert_string_equal(matches.items[i].key, "b");
        assert_int_equal(matches.items[i].index, 1);
        assert_ptr_equal(json_object_get(matches.items[i].parent, "b"), matches.items[i].value);
        uint32_t up = matches.items[i].up;
        assert_ptr_equal(matches.nodes[up].value, matches.items[i].parent);
        while (matches.nodes[up].up != JSONPATH_NONE)
            up = matches.nodes[up].up;
        assert_ptr_equal(matches.nodes[up].value, root);
    }
    /* the same memory again, and less in it */
    struct jsonpath *other = compiled("$.a[1].c");
    assert_int_equal(jsonpath_find(other, root, &matches, NULL), 0);
    assert_true(matches.n == 1 && json_is_object(matches.items[0].value));
    assert_int_equal(jsonpath_find_holders(other, root, &matches, NULL), 0);
    assert_true(matches.n == 1 && matches.items[0].index == 1 && !matches.items[0].key);
    jsonpath_matches_fini(&matches);
    jsonpath_free(path);
    jsonpath_free(other);
    json_decref(root);
}

static void test_what_is_said_of_a_path(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool legacy, root, is_static;
        const char *last;
    } known[] = {
        {"$", false, true, true, NULL},          {".", true, true, true, NULL},
        {"$.a", false, false, true, "a"},        {"a", true, false, true, "a"},
        {".a.b", true, false, true, "b"},        {"$.a[0]", false, false, true, NULL},
        {"$['x y']", false, false, true, "x y"}, {"$.a.*", false, false, false, NULL},
        {"$..a", false, false, false, "a"},      {"$['a','b']", false, false, false, "a"},
        {"$.a[0:1]", false, false, false, NULL}, {"$.a[?(@.b)].c", false, false, false, "c"},
        {"$a", true, false, true, "$a"},         {"$[1,2]", false, false, false, NULL},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct jsonpath *path = compiled(known[i].text);
        size_t bytes = 0;
        const char *last = jsonpath_last_name(path, &bytes);
        if (jsonpath_is_legacy(path) != known[i].legacy || jsonpath_is_root(path) != known[i].root ||
            jsonpath_is_static(path) != known[i].is_static || !last != !known[i].last ||
            (last && (strcmp(last, known[i].last) != 0 || strlen(last) != bytes)))
            fail_msg("%s", known[i].text);
        jsonpath_free(path);
    }
}

/* ---- against a walk that follows one path at a time -------------------------------------------------------------- */

enum { MADE_STEPS = 4 };

struct made_step {
    enum made_kind { MADE_NAME, MADE_PLACE, MADE_SLICE, MADE_ALL, MADE_BELOW, MADE_NAMES, MADE_LESS, MADE_HAS } kind;
    int a, b, c;
};

static void make_document(struct random *random, unsigned depth, char *out, size_t capacity)
{
    size_t at = strlen(out);
    uint64_t what = random_below(random, depth > 0 ? 20 : 4), n = random_below(random, 5);
    if (what < 2 || capacity - at < 2000) {
        snprintf(out + at, capacity - at, "%d", (int)random_below(random, 6));
    } else if (what < 3) {
        snprintf(out + at, capacity - at, "\"%c\"", (char)('a' + random_below(random, 4)));
    } else if (what < 4) {
        snprintf(out + at, capacity - at, "%s", n % 2 ? "null" : "true");
    } else {
        bool array = what < 12;
        strcat(out, array ? "[" : "{");
        for (uint64_t i = 0; i < n; i++) {
            at = strlen(out);
            snprintf(out + at, capacity - at, array ? "%s" : "%s\"%c\":", i > 0 ? "," : "", (char)('a' + (int)i));
            make_document(random, depth - 1, out, capacity);
        }
        strcat(out, array ? "]" : "}");
    }
}

static void write_step(const struct made_step *s, char *out)
{
    char *at = out + strlen(out);
    switch (s->kind) {
    case MADE_NAME:
        sprintf(at, ".%c", 'a' + s->a);
        break;
    case MADE_PLACE:
        sprintf(at, "[%d]", s->a - 2);
        break;
    case MADE_SLICE:
        sprintf(at, "[%d:%d:%d]", s->a - 2, s->b - 2, s->c + 1);
        break;
    case MADE_ALL:
        strcpy(at, s->a % 2 ? ".*" : "[*]");
        break;
    case MADE_BELOW:
        sprintf(at, "..%c", 'a' + s->a);
        break;
    case MADE_NAMES:
        sprintf(at, "[\"%c\",'%c']", 'a' + s->a, 'a' + s->b);
        break;
    case MADE_LESS:
        sprintf(at, "[?(@.%c < %d)]", 'a' + s->a, s->b);
        break;
    case MADE_HAS:
        sprintf(at, "[?(@[%d])]", s->a);
        break;
    }
}

static void follow(json_t *value, const struct made_step *s, unsigned n, json_t *out);

static long long place_of(int place, long long n)
{
    long long at = place < 0 ? n + place : place;
    return at < 0 ? 0 : at > n ? n : at;
}

static void follow_below(json_t *value, const struct made_step *s, unsigned n, json_t *out)
{
    char name[2] = {(char)('a' + s->a), 0};
    json_t *member = json_object_get(value, name);
    if (member)
        follow(member, s + 1, n - 1, out);
    for (size_t i = 0; i < json_array_size(value); i++)
        follow_below(json_array_get(value, i), s, n, out);
    for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at))
        follow_below(json_object_iter_value(at), s, n, out);
}

static bool passes(json_t *value, const struct made_step *s)
{
    char name[2] = {(char)('a' + s->a), 0};
    json_t *member = json_object_get(value, name);
    if (s->kind == MADE_HAS)
        return json_array_size(value) > (size_t)s->a;
    return s->kind == MADE_ALL || (json_is_integer(member) && json_integer_value(member) < s->b);
}

static void follow(json_t *value, const struct made_step *s, unsigned n, json_t *out)
{
    char a[2] = {(char)('a' + s->a), 0}, b[2] = {(char)('a' + s->b), 0};
    long long size = (long long)json_array_size(value);
    if (n == 0) {
        json_array_append(out, value);
        return;
    }
    if ((s->kind == MADE_NAME || s->kind == MADE_NAMES) && json_object_get(value, a))
        follow(json_object_get(value, a), s + 1, n - 1, out);
    if (s->kind == MADE_NAMES && json_object_get(value, b))
        follow(json_object_get(value, b), s + 1, n - 1, out);
    if (s->kind == MADE_PLACE && place_of(s->a - 2, size) < size)
        follow(json_array_get(value, (size_t)place_of(s->a - 2, size)), s + 1, n - 1, out);
    if (s->kind == MADE_SLICE)
        for (long long i = place_of(s->a - 2, size); i < place_of(s->b - 2, size); i += s->c + 1)
            follow(json_array_get(value, (size_t)i), s + 1, n - 1, out);
    if (s->kind == MADE_BELOW)
        follow_below(value, s, n, out);
    if (s->kind != MADE_ALL && s->kind != MADE_LESS && s->kind != MADE_HAS)
        return;
    for (long long i = 0; i < size; i++)
        if (passes(json_array_get(value, (size_t)i), s))
            follow(json_array_get(value, (size_t)i), s + 1, n - 1, out);
    for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at))
        if (passes(json_object_iter_value(at), s))
            follow(json_object_iter_value(at), s + 1, n - 1, out);
}

static void test_random_paths(void **state)
{
    (void)state;
    struct random random;
    size_t n_found = 0;
    random_init(&random, 17);
    for (unsigned round = 0; round < 20000; round++) {
        char document[16384] = "", text[256] = "$";
        struct made_step steps[MADE_STEPS + 1];
        unsigned n = (unsigned)random_below(&random, MADE_STEPS + 1);
        make_document(&random, 4, document, sizeof document);
        memset(steps, 0, sizeof steps);
        for (unsigned i = 0; i < n; i++) {
            steps[i].kind = (enum made_kind)random_below(&random, MADE_HAS + 1);
            steps[i].a = (int)random_below(&random, 5);
            steps[i].b = (int)random_below(&random, 5);
            steps[i].c = (int)random_below(&random, 3);
            write_step(&steps[i], text);
        }
        json_t *root = parsed(document), *expected = json_array();
        follow(root, steps, n, expected);
        struct tree_text out = {.data = NULL};
        tree_print(expected, NULL, 0, &out);
        tree_text_add(&out, "", 1);
        char *got = found(root, text);
        if (strcmp(got, out.data) != 0)
            fail_msg("%s in %s: %s, not %s", text, document, got, out.data);
        n_found += json_array_size(expected);
        tree_text_fini(&out);
        free(got);
        json_decref(expected);
        json_decref(root);
    }
    if (n_found < 5000)
        fail_msg("%zu values are no test", n_found);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void expect_refused(const char *text, size_t bytes, int code, const char *part)
{
    struct quire_error err = {0};
    struct jsonpath *path = NULL;
    int rc = jsonpath_compile(text, bytes, &path, &err);
    if (rc != code || path || !strstr(err.message, part))
        fail_msg("%.*s: %d '%s', not %d '%s'", (int)bytes, text, rc, err.message, code, part);
}

static void test_what_is_no_path(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"", "byte 0"},
        {"$.", "byte 2"},
        {"$..", "byte 3"},
        {"$...a", "byte 3"},
        {"$[", "byte 2"},
        {"$[]", "byte 2"},
        {"$[a]", "byte 2"},
        {"$['a]", "closing quote"},
        {"$['a'", "byte 5"},
        {"$['a',]", "byte 6"},
        {"$[1,]", "byte 4"},
        {"$[1,a]", "byte 4"},
        {"$[1:2:0]", "byte 6"},
        {"$[1:2:-1]", "byte 6"},
        {"$[99999999999999999999]", "64 bits"},
        {"$.a b", "byte 4"},
        {"$.a]", "byte 3"},
        {"$[?]", "byte 3"},
        {"$[?()]", "byte 4"},
        {"$[?(@.a]", "byte 7"},
        {"$[?(@.a==)]", "byte 9"},
        {"$[?(@.a==1 &&)]", "byte 13"},
        {"$[?(@.a=1)]", "byte 7"},
        {"$[?(@.a=~1)]", "pattern"},
        {"$[?(@.a=~'(')]", "pattern"},
        {"$[?(@.a=~'a{2000}')]", "1024 steps"},
        {"$[?(@.a=~'((a{40}){40})')]", "1024 steps"},
        {"$[?(@.a=~'(a)\\1')]", "not understood"},
        {"$[?(@.a==12x)]", "byte 11"},
        {"$[?(@.a==1.2.3)]", "number"},
        {"a..", "byte 3"},
        {"a[", "byte 2"},
        {"(a)", "byte 0"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        bool limit = strstr(pairs[i][0], "a{") != NULL;
        expect_refused(pairs[i][0], strlen(pairs[i][0]), limit ? QUIRE_ELIMIT : QUIRE_EPARSE, pairs[i][1]);
    }
}

static void test_limits_of_paths(void **state)
{
    (void)state;
    char text[2 * JSONPATH_BYTES_MAX];
    memset(text, 'a', sizeof text);
    struct jsonpath *path;
    assert_int_equal(jsonpath_compile(text, JSONPATH_BYTES_MAX, &path, NULL), 0);
    jsonpath_free(path);
    expect_refused(text, JSONPATH_BYTES_MAX + 1, QUIRE_ELIMIT, "4096 bytes");
    memcpy(text, "$[?", 3);
    memset(text + 3, '(', 1000);
    expect_refused(text, 1003, QUIRE_ELIMIT, "32 levels");
    memset(text + 3, '!', 1000);
    expect_refused(text, 1003, QUIRE_ELIMIT, "32 levels");
    size_t at = 1;
    while (at < 1000) {
        memcpy(text + at, "[?@", 3);
        at += 3;
    }
    expect_refused(text, at, QUIRE_ELIMIT, "32 levels");
    /* many operands are no levels */
    strcpy(text, "$[?(@");
    while (strlen(text) < 4000)
        strcat(text, "&&@");
    strcat(text, ")]");
    expect_found("[1]", text, "[1]");
}

static void test_limits_of_work(void **state)
{
    (void)state;
    static const char *const heavy[] = {"$..*..*..*", "$[?($[?($[*]==@)])]", "$[*][?($..*==@)]", "$[?($..*=~$..*)]"};
    json_t *root = json_array();
    for (unsigned i = 0; i < 300; i++) {
        json_t *row = json_array();
        for (unsigned k = 0; k < 300; k++)
            json_array_append_new(row, i % 2 ? json_integer(k) : json_stringn("abc", 1 + k % 3));
        json_array_append_new(root, row);
    }
    for (size_t i = 0; i < sizeof heavy / sizeof *heavy; i++) {
        struct jsonpath *path = compiled(heavy[i]);
        struct jsonpath_matches matches = {.items = NULL};
        struct quire_error err = {0};
        int rc = jsonpath_find(path, root, &matches, &err);
        assert_true(rc == 0 || (rc == QUIRE_ELIMIT && strstr(err.message, "more exact") && matches.n == 0));
        if (i == 1)
            assert_int_equal(rc, QUIRE_ELIMIT);
        jsonpath_matches_fini(&matches);
        jsonpath_free(path);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_store),
        cmocka_unit_test(test_odd_names_and_values),
        cmocka_unit_test(test_comparisons),
        cmocka_unit_test(test_order_and_places),
        cmocka_unit_test(test_what_is_said_of_a_path),
        cmocka_unit_test(test_random_paths),
        cmocka_unit_test(test_what_is_no_path),
        cmocka_unit_test(test_limits_of_paths),
        cmocka_unit_test(test_limits_of_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
