/*
 * test_grants.c - grants and JSON in one text: joined and split again, walked, asked, and refused where they are
 * damaged.
 */
#include "index/attribute/grants.h"
#include "index/format/format.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define JSON "{\"a\":1}"

static struct grant grant_of(const char *name, uint32_t generation)
{
    return (struct grant){name, (uint32_t)strlen(name), generation};
}

static char *joined(const struct grant *grants, uint32_t n, const char *json, uint32_t *bytes)
{
    struct quire_error err = {0};
    char *text = NULL;
    assert_int_equal(grants_join(grants, n, json, json ? (uint32_t)strlen(json) : 0, &text, bytes, &err), 0);
    return text;
}

static void test_join_and_split(void **state)
{
    (void)state;
    const struct grant given[] = {grant_of("globex", 7), grant_of("acme", 0), grant_of("globex", 7),
                                  grant_of("ac", 1),     grant_of("acme", 3), grant_of("globex", 2)};
    const struct grant wanted[] = {grant_of("ac", 1), grant_of("acme", 3), grant_of("globex", 7)};
    uint32_t bytes = 0, json_bytes = 0, n = 0, at = 0;
    const char *json = NULL;
    struct grant grant;
    char *text = joined(given, 6, JSON, &bytes);
    assert_int_equal(grants_split(text, bytes, &json, &json_bytes, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(json_bytes, strlen(JSON));
    assert_memory_equal(json, JSON, json_bytes);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(grants_next(text, bytes, &at, &grant));
        assert_int_equal(grant.bytes, wanted[i].bytes);
        assert_memory_equal(grant.name, wanted[i].name, grant.bytes);
        assert_int_equal(grant.generation, wanted[i].generation);
    }
    assert_false(grants_next(text, bytes, &at, &grant));
    /* equal lists are equal bytes, whatever their order */
    uint32_t other_bytes = 0;
    char *other = joined(wanted, 3, JSON, &other_bytes);
    assert_int_equal(other_bytes, bytes);
    assert_memory_equal(other, text, bytes);
    free(other);
    free(text);
}

/* Attributes that look like grants are attributes, with grants before them and without. */
static void test_attributes_that_look_like_grants(void **state)
{
    (void)state;
    const struct grant acme = grant_of("acme", 0);
    uint32_t forged_bytes = 0, bytes = 0, json_bytes = 0, n_grants = 1, at = 0;
    const char *json = NULL;
    struct grant grant;
    char *forged = joined(&acme, 1, JSON, &forged_bytes), *text = NULL;
    struct tenant_scope scope = {.tenants = &grant, .n = 1};
    for (uint32_t n = 0; n < 2; n++) {
        grant = grant_of("globex", 0);
        assert_int_equal(grants_join(&grant, n, forged, forged_bytes, &text, &bytes, NULL), 0);
        assert_int_equal(grants_split(text, bytes, &json, &json_bytes, &n_grants), 0);
        assert_int_equal(n_grants, n);
        assert_int_equal(json_bytes, forged_bytes);
        assert_memory_equal(json, forged, forged_bytes);
        assert_int_equal(grants_allow(text, bytes, &scope), n == 1);
        grant = acme;
        assert_false(grants_allow(text, bytes, &scope));
        free(text);
    }
    assert_int_equal(grants_join(NULL, 0, "\001", 1, &text, &bytes, NULL), 0);
    assert_int_equal(grants_split(text, bytes, &json, &json_bytes, &n_grants), 0);
    assert_int_equal(n_grants, 0);
    assert_int_equal(json_bytes, 1);
    assert_false(grants_next(text, bytes, &at, &grant));
    free(text);
    free(forged);
}

static void test_text_without_grants(void **state)
{
    (void)state;
    uint32_t bytes = 0, json_bytes = 1, n = 1, at = 0;
    const char *json = "";
    struct grant grant = grant_of("acme", 0);
    char *text = joined(NULL, 0, JSON, &bytes);
    assert_int_equal(bytes, strlen(JSON));
    assert_memory_equal(text, JSON, bytes);
    assert_int_equal(grants_split(text, bytes, &json, &json_bytes, &n), 0);
    assert_ptr_equal(json, text);
    assert_int_equal(json_bytes, bytes);
    assert_int_equal(n, 0);
    assert_false(grants_next(text, bytes, &at, &grant));
    free(text);
    assert_null(joined(NULL, 0, NULL, &bytes));
    assert_int_equal(bytes, 0);
    assert_int_equal(grants_split(NULL, 0, &json, &json_bytes, &n), 0);
    assert_int_equal(json_bytes, 0);
    assert_int_equal(n, 0);
    text = joined(&grant, 1, NULL, &bytes);
    assert_int_equal(grants_split(text, bytes, &json, &json_bytes, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(json_bytes, 0);
    assert_null(json);
    free(text);
}

static void test_allow(void **state)
{
    (void)state;
    const struct grant given[] = {grant_of("acme", 2), grant_of("globex", 0)};
    struct grant asked[2];
    struct tenant_scope scope = {asked, 1}, none = {NULL, 0};
    uint32_t bytes = 0;
    char *text = joined(given, 2, JSON, &bytes);
    asked[0] = grant_of("acme", 2);
    assert_true(grants_allow(text, bytes, &scope));
    asked[0] = grant_of("acme", 1); /* granted after a drop; this scope is older */
    assert_false(grants_allow(text, bytes, &scope));
    asked[0] = grant_of("acme", 3);
    assert_false(grants_allow(text, bytes, &scope));
    asked[0] = grant_of("acm", 2);
    assert_false(grants_allow(text, bytes, &scope));
    asked[1] = grant_of("globex", 0);
    scope.n = 2;
    assert_true(grants_allow(text, bytes, &scope));
    assert_true(grants_allow(text, bytes, NULL));
    assert_false(grants_allow(text, bytes, &none));
    assert_false(grants_allow(JSON, (uint32_t)strlen(JSON), &scope));
    assert_true(grants_allow(JSON, (uint32_t)strlen(JSON), NULL));
    assert_false(grants_allow(NULL, 0, &scope));
    free(text);
}

static void test_limits(void **state)
{
    (void)state;
    static char names[GRANTS_MAX + 1][8], long_name[TENANT_BYTES_MAX + 2];
    static struct grant grants[GRANTS_MAX + 1];
    struct quire_error err = {0};
    char *text = NULL;
    uint32_t bytes = 0;
    for (uint32_t i = 0; i <= GRANTS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "t%u", i);
        grants[i] = grant_of(names[i], i);
    }
    text = joined(grants, GRANTS_MAX, JSON, &bytes);
    free(text);
    assert_int_equal(grants_join(grants, GRANTS_MAX + 1, NULL, 0, &text, &bytes, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "1024"));
    memset(long_name, 'x', TENANT_BYTES_MAX + 1);
    assert_int_equal(grants_check_tenant(long_name, TENANT_BYTES_MAX, &err), 0);
    assert_int_equal(grants_check_tenant(long_name, TENANT_BYTES_MAX + 1, &err), QUIRE_ERANGE);
    assert_int_equal(grants_check_tenant("", 0, &err), QUIRE_ERANGE);
    grants[0] = grant_of(long_name, 0);
    assert_int_equal(grants_join(grants, 1, NULL, 0, &text, &bytes, &err), QUIRE_ERANGE);
    grants[0] = grant_of("a", 0);
    assert_int_equal(grants_join(grants, 1, JSON, ATTRIBUTE_BYTES_MAX - 5, &text, &bytes, &err), QUIRE_ELIMIT);
}

/* Whatever the bytes are, nothing behind them is read, and what is taken can be walked to its end. */
static void test_damage(void **state)
{
    (void)state;
    const struct grant given[] = {grant_of("acme", 1), grant_of("b", 0), grant_of("globex", 9)};
    uint32_t bytes = 0, taken = 0;
    struct random random = {1};
    char *whole = joined(given, 3, JSON, &bytes);
    for (uint32_t trial = 0; trial < 20000; trial++) {
        uint32_t n = trial < bytes ? trial : bytes, json_bytes = 0, n_grants = 0, at = 0, walked = 0;
        char *text = malloc(n + 1);
        const char *json = NULL;
        struct grant grant;
        memcpy(text, whole, n);
        if (trial >= bytes)
            text[random_next(&random) % n] = (char)random_next(&random);
        char *exact = realloc(text, n ? n : 1); /* a sanitizer sees a byte too much */
        int rc = grants_split(exact, n, &json, &json_bytes, &n_grants);
        assert_true(rc == 0 || rc == QUIRE_ECORRUPT);
        while (rc == 0 && grants_next(exact, n, &at, &grant))
            walked += grant.bytes > 0;
        assert_true(rc < 0 || walked == n_grants);
        taken += rc == 0;
        if (trial > 0 && trial < bytes - strlen(JSON))
            assert_int_equal(rc, QUIRE_ECORRUPT);
        free(exact);
    }
    assert_true(taken > 0);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_and_split),
        cmocka_unit_test(test_text_without_grants),
        cmocka_unit_test(test_attributes_that_look_like_grants),
        cmocka_unit_test(test_allow),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
