/*
 * test_json_no_memory.c - documents, paths and edits that run out of memory at any of their allocations: they are
 * refused, and nothing is lost.
 *
 * The program's own malloc, calloc and realloc pass on to glibc's but for the one that is to fail; jansson calls these,
 * too. Sanitizers bring their own allocators, so there the test is left out and says so.
 */
#include "document/json/edit.h"
#include "tests/sanitized.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static long long fail_at = -1; /* the allocation that fails, counted down; below 0: none */

#if !SANITIZED
static bool may_allocate(void)
{
    return fail_at < 0 || fail_at-- > 0;
}

#include "tests/allocator.h"
#endif

static const char document[] =
    "{\"a\":{\"b\":[1,2.5,\"t\\u00e9xt\",{\"c\\n\":[]}],\"s\":\"xyz\"},\"d\":[[0.123456789012345678"
    "90],true],\"long name of a member\":123456789012345678901234567890}";

static const char change[] = "{\"n\":{\"m\":[null]},\"b\":null,\"v\":[0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9]}";

/* All that a command does; 0 where nothing failed. */
static int work(const char *text)
{
    struct jsonpath *path = NULL;
    struct jsonpath_matches found = {.items = NULL};
    struct edit_plan plan = {.items = NULL};
    struct tree_text out = {.data = NULL}, packed = {.data = NULL}, text_again = {.data = NULL};
    struct quire_error err = {0};
    json_t *root = NULL, *patch = NULL, *again = NULL;
    int rc = jsonpath_compile(text, strlen(text), &path, &err);
    if (rc == 0)
        rc = tree_parse(document, sizeof document - 1, &root, &err);
    if (rc == 0)
        rc = tree_parse(change, sizeof change - 1, &patch, &err);
    if (rc == 0)
        rc = jsonpath_find(path, root, &found, &err);
    if (rc == 0)
        rc = edit_plan(&found, true, &plan, &err);
    for (size_t i = 0; i < plan.n && rc == 0; i++)
        rc = i % 2 ? edit_set(&root, &found.items[plan.items[i]], patch, &err)
                   : edit_merge(&root, &found.items[plan.items[i]], patch, &err);
    if (rc == 0)
        rc = edit_add(root, "new", 3, patch, &err);
    if (rc == 0)
        tree_print(root, NULL, 0, &out);
    if (rc == 0)
        tree_pack(root, 0, &packed);
    if (rc == 0 && !out.failed && !packed.failed)
        rc = tree_unpack(packed.data, packed.bytes, &again, &err);
    if (rc == 0 && !out.failed && !packed.failed)
        rc = tree_unpack_text(packed.data, packed.bytes, &text_again, &err);
    if (rc < 0 && (rc != QUIRE_ENOMEM || err.code != rc || !err.message[0]))
        fail_msg("%s: %d %d %s", text, rc, err.code, err.message);
    rc = out.failed || packed.failed || text_again.failed ? QUIRE_ENOMEM : rc;
    tree_text_fini(&out);
    tree_text_fini(&packed);
    tree_text_fini(&text_again);
    json_decref(again);
    edit_plan_fini(&plan);
    jsonpath_matches_fini(&found);
    jsonpath_free(path);
    json_decref(patch);
    json_decref(root);
    return rc;
}

static void test_every_allocation(void **state)
{
    (void)state;
    static const char *const paths[] = {"$..[*]", "$.a['b','s'][0,1,-1].x", "d[?(@ =~ '(?i)^a+$' || !(@>1.5))]",
                                        "$[?(@.b[?(@.c==$.a[0:2])] && @['s']!='x')]"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        long long n = 0;
        fail_at = -1;
        assert_int_equal(work(paths[i]), 0);
        for (int rc = QUIRE_ENOMEM; rc != 0; n++) {
            fail_at = n;
            rc = work(paths[i]);
            bool failed = fail_at < 0;
            fail_at = -1;
            assert_int_equal(rc, failed ? QUIRE_ENOMEM : 0);
        }
        assert_true(n > 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    if (SANITIZED) {
        print_message("a sanitizer's allocator does not fail: nothing is tested here\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
