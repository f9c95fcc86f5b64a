/*
 * test_edit.c - changes at the places that a path leads to: whatever the path, none is missed and none comes too late.
 */
#include "document/json/edit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    json_t *root;
    struct jsonpath *path;
    struct jsonpath_matches found;
    struct edit_plan plan;
};

static void begin(struct fixture *f, const char *document, const char *path, bool tops)
{
    *f = (struct fixture){.root = NULL};
    assert_int_equal(tree_parse(document, strlen(document), &f->root, NULL), 0);
    assert_int_equal(jsonpath_compile(path, strlen(path), &f->path, NULL), 0);
    assert_int_equal(jsonpath_find(f->path, f->root, &f->found, NULL), 0);
    assert_int_equal(edit_plan(&f->found, tops, &f->plan, NULL), 0);
}

static void end(struct fixture *f, const char *expected)
{
    struct tree_text text = {.data = NULL};
    tree_print(f->root, NULL, 0, &text);
    tree_text_add(&text, "", 1);
    assert_string_equal(text.data, expected);
    tree_text_fini(&text);
    edit_plan_fini(&f->plan);
    jsonpath_matches_fini(&f->found);
    jsonpath_free(f->path);
    json_decref(f->root);
}

static void expect_removed(const char *document, const char *path, size_t n, const char *expected)
{
    struct fixture f;
    size_t n_gone = 0;
    begin(&f, document, path, true);
    for (size_t i = 0; i < f.plan.n; i++)
        n_gone += edit_remove(&f.found.items[f.plan.items[i]]);
    assert_int_equal(n_gone, n);
    end(&f, expected);
}

static void test_remove(void **state)
{
    (void)state;
    expect_removed("[0,1,2,3,4,5]", "$[1,3,5]", 3, "[0,2,4]");
    expect_removed("[0,1,2,3,4,5]", "$[5,1,3,1]", 3, "[0,2,4]");
    expect_removed("[0,1,2,3,4,5]", "$[*]", 6, "[]");
    expect_removed("{\"a\":1,\"b\":{\"a\":2}}", "$..a", 2, "{\"b\":{}}");
    expect_removed("{\"a\":{\"a\":{\"a\":1}},\"b\":1}", "$..a", 1, "{\"b\":1}"); /* what lies inside goes along */
    expect_removed("{\"a\":[[1,2],[3,[4]]]}", "$..[0]", 3, "{\"a\":[[[]]]}");
    expect_removed("{\"a\":true,\"b\":true}", "$.*", 2, "{}");
    expect_removed("{\"a\":true,\"b\":true}", "$['a','a']", 1, "{\"b\":true}");
}

static void expect_set(const char *document, const char *path, const char *value, const char *expected)
{
    struct fixture f;
    json_t *fresh;
    begin(&f, document, path, true);
    assert_int_equal(tree_parse(value, strlen(value), &fresh, NULL), 0);
    for (size_t i = 0; i < f.plan.n; i++)
        assert_int_equal(edit_set(&f.root, &f.found.items[f.plan.items[i]], fresh, NULL), 0);
    json_decref(fresh);
    end(&f, expected);
}

static void test_set(void **state)
{
    (void)state;
    expect_set("{\"a\":1}", "$", "[]", "[]");
    expect_set("{\"a\":1,\"b\":2}", "$.a", "{\"x\":1}", "{\"a\":{\"x\":1},\"b\":2}"); /* in its place */
    expect_set("{\"a\":{\"a\":1},\"b\":[{\"a\":2}]}", "$..a", "0", "{\"a\":0,\"b\":[{\"a\":0}]}");
    expect_set("[1,2,3]", "$[0:2]", "[9]", "[[9],[9],3]");
}

static void expect_merged(const char *document, const char *path, const char *patch, const char *expected)
{
    struct fixture f;
    json_t *fresh;
    begin(&f, document, path, false);
    assert_int_equal(tree_parse(patch, strlen(patch), &fresh, NULL), 0);
    for (size_t i = 0; i < f.plan.n; i++)
        assert_int_equal(edit_merge(&f.root, &f.found.items[f.plan.items[i]], fresh, NULL), 0);
    json_decref(fresh);
    end(&f, expected);
}

/* The examples of RFC 7396, appendix A. */
static void test_merge(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"{\"a\":\"b\"}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"{\"a\":\"b\"}", "{\"b\":\"c\"}", "{\"a\":\"b\",\"b\":\"c\"}"},
        {"{\"a\":\"b\"}", "{\"a\":null}", "{}"},
        {"{\"a\":\"b\",\"b\":\"c\"}", "{\"a\":null}", "{\"b\":\"c\"}"},
        {"{\"a\":[\"b\"]}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"{\"a\":\"c\"}", "{\"a\":[\"b\"]}", "{\"a\":[\"b\"]}"},
        {"{\"a\":{\"b\":\"c\"}}", "{\"a\":{\"b\":\"d\",\"c\":null}}", "{\"a\":{\"b\":\"d\"}}"},
        {"{\"a\":[{\"b\":\"c\"}]}", "{\"a\":[1]}", "{\"a\":[1]}"},
        {"[\"a\",\"b\"]", "[\"c\",\"d\"]", "[\"c\",\"d\"]"},
        {"{\"a\":\"b\"}", "[\"c\"]", "[\"c\"]"},
        {"{\"a\":\"foo\"}", "null", "null"},
        {"{\"a\":\"foo\"}", "\"bar\"", "\"bar\""},
        {"{\"e\":null}", "{\"a\":1}", "{\"e\":null,\"a\":1}"},
        {"[1,2]", "{\"a\":\"b\",\"c\":null}", "{\"a\":\"b\"}"},
        {"{}", "{\"a\":{\"bb\":{\"ccc\":null}}}", "{\"a\":{\"bb\":{}}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_merged(rows[i][0], "$", rows[i][1], rows[i][2]);
    expect_merged("{\"x\":{\"a\":1},\"y\":{\"x\":{\"b\":2}},\"z\":3}", "$..x", "{\"a\":null,\"n\":{\"m\":1}}",
                  "{\"x\":{\"n\":{\"m\":1}},\"y\":{\"x\":{\"b\":2,\"n\":{\"m\":1}}},\"z\":3}");
    /* members that a merge removes are places themselves */
    expect_merged("{\"a\":{\"a\":{\"a\":1},\"b\":{\"a\":5}}}", "$..*", "{\"a\":null}", "{\"a\":{\"b\":{}}}");
}

static void test_add(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, "{\"a\":1}", "$", true);
    json_t *value = json_integer(7);
    assert_int_equal(edit_add(f.root, "b\"", 2, value, NULL), 0);
    assert_int_equal(edit_add(f.root, "c\0d", 3, value, NULL), QUIRE_EUNSUPPORTED);
    json_decref(value);
    end(&f, "{\"a\":1,\"b\\\"\":7}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
