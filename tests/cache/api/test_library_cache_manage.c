/*
 * test_library_cache_manage.c - labels, invalidation, single entries, categories and insight through quire.h.
 */
#include "tests/cache/support_library_cache.h"

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static void feedback_raises_an_entrys_threshold(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_error err = {0};
    float v[DIM], near[DIM];
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.95, 2);
    category(c, "k", "SIM 0.9");
    uint64_t id = store_simple(c, "a", v, "1");
    struct quire_cache_answer hit = ask_text(c, "b", near);
    assert_int_equal(hit.status, QUIRE_CACHE_HIT);
    assert_int_equal(quire_cache_feedback(c, id, true, hit.similarity, &err), 0);
    assert_int_equal(status_of(c, "b", near), QUIRE_CACHE_HIT);
    assert_int_equal(quire_cache_feedback(c, id, false, hit.similarity, &err), 0);
    assert_int_equal(status_of(c, "b", near), QUIRE_CACHE_MISS);
    assert_int_equal(status_of(c, "a", NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(quire_cache_feedback(c, id, false, -1, &err), 0); /* an exact hit that was wrong */
    assert_int_equal(status_of(c, "a", NULL), QUIRE_CACHE_MISS);
    assert_int_equal(quire_cache_feedback(c, id ^ 1, true, 0.9, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_feedback(c, id, true, 90, &err), QUIRE_ERANGE);
    assert_int_equal(quire_cache_feedback(NULL, id, true, 0.9, &err), QUIRE_EINVALID);
    quire_cache_answer_free(&hit);
    close_it(c);
    c = open_with(*state, NULL);
    assert_int_equal(status_of(c, "b", near), QUIRE_CACHE_MISS); /* also after a restart */
    close_it(c);
}

static void audits_carry_both_sides(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_cache_audit audit = {0};
    struct quire_error err = {0};
    float v[DIM], near[DIM];
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.97, 2);
    category(c, "k", "SIM 0.9 AUDIT 1");
    uint64_t id = store_simple(c, "how are you", v, "fine");
    assert_int_equal(quire_cache_audit_pop(c, &audit, &err), QUIRE_ENOTFOUND);
    struct quire_cache_answer first = ask_text(c, "how do you do", near), second = ask_text(c, "how is it", near);
    assert_int_equal(first.status, QUIRE_CACHE_AUDIT);
    assert_bytes(first.value, "fine");
    assert_true(first.audit && second.audit && first.audit != second.audit);
    assert_int_equal(quire_cache_audit_get(c, second.audit, &audit, &err), 0); /* and waits on */
    assert_int_equal(audit.number, second.audit);
    assert_bytes(audit.text, "how is it");
    assert_bytes(audit.entry_value, "fine");
    quire_cache_audit_free(&audit);
    assert_int_equal(quire_cache_audit_get(c, second.audit + 1, &audit, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_audit_get(c, 0, &audit, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_audit_get(c, first.audit, NULL, &err), QUIRE_EINVALID);
    assert_int_equal(quire_cache_audit_pop(c, &audit, &err), 0);
    assert_int_equal(audit.number, first.audit);
    assert_int_equal(audit.id, id);
    assert_float_equal(audit.similarity, first.similarity, 1e-6);
    assert_int_equal(quire_cache_remove(c, id, &err), 0);
    struct quire_cache_audit gone = {0};
    assert_int_equal(quire_cache_audit_pop(c, &gone, &err), 0);
    assert_int_equal(gone.number, second.audit);
    assert_bytes(gone.text, "how is it");
    assert_int_equal(gone.entry_text.n_bytes + gone.entry_value.n_bytes, 0);
    assert_int_equal(quire_cache_audit_pop(c, &gone, &err), QUIRE_ENOTFOUND);
    assert_bytes(gone.text, "how is it"); /* what fails touches nothing */
    assert_int_equal(quire_cache_audit_put(c, first.audit, true, &err), 0);
    assert_int_equal(quire_cache_audit_put(c, first.audit, true, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_audit_put(c, 0, true, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_audit_put(c, second.audit + 5000, true, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_audit_pop(c, NULL, &err), QUIRE_EINVALID);
    close_it(c);
    assert_bytes(audit.category, "k");
    assert_bytes(audit.text, "how do you do");
    assert_bytes(audit.entry_text, "how are you");
    assert_bytes(audit.entry_value, "fine");
    quire_cache_audit_free(&audit);
    assert_null(audit.memory);
    quire_cache_audit_free(&gone);
    quire_cache_audit_free(NULL);
    quire_cache_answer_free(&first);
    quire_cache_answer_free(&second);
}

/* A number of before a restart must not label another pair. */
static void numbers_of_audits_are_not_used_again(void **state)
{
    float v[DIM], near[DIM];
    uint64_t before = 0;
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.97, 2);
    for (unsigned round = 0; round < 2; round++) {
        struct quire_cache *c = open_new(*state);
        category(c, "k", "SIM 0.9 AUDIT 1");
        store_simple(c, "how are you", v, "fine");
        struct quire_cache_answer answer = ask_text(c, "how do you do", near);
        assert_int_equal(answer.status, QUIRE_CACHE_AUDIT);
        assert_int_not_equal(answer.audit, before);
        if (before)
            assert_int_equal(quire_cache_audit_put(c, before, false, NULL), QUIRE_ENOTFOUND);
        before = answer.audit;
        quire_cache_answer_free(&answer);
        close_it(c);
    }
}

static void load_is_checked(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    category(c, "k", "SIM 0.9 LOADMAX 0.8 1");
    assert_int_equal(quire_cache_get_stats(c, text_of("k"), &stats, &err), 0);
    assert_float_equal(stats.lam, 0, 0);
    assert_float_equal(stats.threshold, 0.9, 1e-9);
    assert_int_equal(quire_cache_load(c, text_of("m-1"), 1, 0, &err), 0);
    assert_int_equal(quire_cache_load(c, text_of("m-1"), 2, 0, &err), QUIRE_ERANGE);
    assert_int_equal(quire_cache_load(c, text_of("m-1"), NAN, 0, &err), QUIRE_ERANGE);
    assert_int_equal(quire_cache_load(NULL, text_of("m-1"), 1, 0, &err), QUIRE_EINVALID);
    close_it(c);
}

/* ---- what goes, and what stays ----------------------------------------------------------------------------------- */

static uint64_t went(struct quire_cache *c, struct quire_cache_selector selector)
{
    struct quire_error err = {0};
    struct quire_cache_stats before, after;
    uint64_t would = UINT64_MAX, n = UINT64_MAX;
    quire_cache_get_stats(c, NONE, &before, NULL);
    if (quire_cache_invalidate(c, &selector, true, &would, &err) < 0)
        fail_msg("%s", err.message);
    quire_cache_get_stats(c, NONE, &after, NULL);
    assert_int_equal(before.entries, after.entries);
    assert_int_equal(quire_cache_invalidate(c, &selector, false, &n, &err), 0);
    quire_cache_get_stats(c, NONE, &after, NULL);
    assert_int_equal(n, would);
    assert_int_equal(before.entries - after.entries, n);
    return n;
}

static void invalidates_what_is_selected(void **state)
{
    struct quire_cache_options o = defaults();
    o.encoder = "e5@1";
    struct quire_cache *c = open_with(*state, &o);
    float v[9][DIM], near[DIM];
    struct quire_bytes tag = text_of("blue"), name, pair[2] = {text_of("tenant"), text_of("acme")};
    struct quire_pair scope = {pair[0], pair[1]};
    category(c, "k", "SIM 0.9");
    category(c, "other", "SIM 0.9");
    for (unsigned i = 0; i < COUNT(v); i++)
        vector_make(v[i], DIM, i);
    vector_near(near, v[5], DIM, 0.97, 77);
    uint64_t ids[2] = {store_simple(c, "0", v[0], "x"), 12345};
    store(c, &(struct quire_cache_entry){.text = text_of("1"), .vector = v[1], .tags = &tag, .n_tags = 1}, "x");
    store(c, &(struct quire_cache_entry){.category = text_of("other"), .text = text_of("2"), .vector = v[2]}, "x");
    store(c, &(struct quire_cache_entry){.text = text_of("3"), .vector = v[3], .scope = &scope, .n_scope = 1}, "x");
    store(c, &(struct quire_cache_entry){.text = text_of("4"), .vector = v[4], .model = text_of("m-1")}, "x");
    store_simple(c, "5", v[5], "x");
    store_simple(c, "6", v[6], "x");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_ID, .ids = ids, .n = 2}), 1);
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_TAG, .names = &tag, .n = 1}), 1);
    name = text_of("other");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_CATEGORY, .names = &name, .n = 1}), 1);
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_SCOPE, .names = pair, .n = 2}), 1);
    name = text_of("m-1");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_MODEL, .names = &name, .n = 1}), 1);
    assert_int_equal(
        went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .vector = near, .similarity = 0.9}), 1);
    assert_int_equal(status_of(c, "6", v[6]), QUIRE_CACHE_EXACT);
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_BEFORE, .age_ms = 3600000}), 0);
    name = text_of("e5@0");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_ENCODER, .names = &name, .n = 1}), 0);
    name = text_of("e5@1");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_ENCODER, .names = &name, .n = 1}), 1);
    store_simple(c, "7", v[7], "x");
    sleep_ms(30);
    store_simple(c, "8", v[8], "x");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_BEFORE, .age_ms = 25}), 1);
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_ALL}), 1);
    close_it(c);
}

static int invalidate_code(struct quire_cache *c, struct quire_cache_selector selector)
{
    struct quire_error err = {0};
    uint64_t n = 77;
    int rc = quire_cache_invalidate(c, &selector, false, &n, &err);
    if (rc < 0)
        assert_int_equal(n, 77);
    return rc;
}

static void an_empty_selection_is_no_selection(void **state)
{
    struct quire_cache *c = open_new(*state);
    float v[DIM], zero[DIM] = {0};
    uint64_t n;
    struct quire_bytes empty = NONE, name = text_of("nobody");
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    store_simple(c, "a", v, "1");
    for (int by = 0; by <= QUIRE_CACHE_BY_ENCODER; by++) {
        assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = (enum quire_cache_by)by}),
                         QUIRE_EINVALID);
        assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = (enum quire_cache_by)by, .n = 1}),
                         QUIRE_EINVALID);
        if (by > QUIRE_CACHE_BY_ID)
            assert_int_equal(
                invalidate_code(c,
                                (struct quire_cache_selector){.by = (enum quire_cache_by)by, .names = &empty, .n = 1}),
                QUIRE_EINVALID);
    }
    assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = (enum quire_cache_by)99}), QUIRE_EINVALID);
    assert_int_equal(
        invalidate_code(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_CATEGORY, .names = &name, .n = 1}),
        QUIRE_ENOTFOUND);
    assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .similarity = 0.9}),
                     QUIRE_EINVALID);
    assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .vector = v}),
                     QUIRE_ERANGE);
    assert_int_equal(
        invalidate_code(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .vector = zero, .similarity = 0.9}),
        QUIRE_EZEROVEC);
    assert_int_equal(quire_cache_invalidate(c, NULL, false, &n, NULL), QUIRE_EINVALID);
    assert_int_equal(status_of(c, "a", v), QUIRE_CACHE_EXACT);
    close_it(c);
}

static void single_entries(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    float v[DIM];
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9 TTL 60000 JITTER 0");
    uint64_t id = store_simple(c, "a", v, "1");
    assert_int_equal(quire_cache_touch(c, id, 500000, &err), 0);
    struct quire_cache_answer answer = ask_text(c, "a", v);
    assert_in_range(answer.ttl_ms, 400000, 500000);
    quire_cache_answer_free(&answer);
    assert_int_equal(quire_cache_touch(c, id, 0, &err), 0); /* used, no more */
    assert_int_equal(quire_cache_pin(c, id, true, &err), 0);
    answer = ask_text(c, "a", v);
    assert_true(answer.ttl_ms == UINT64_MAX);
    quire_cache_answer_free(&answer);
    quire_cache_get_stats(c, text_of("k"), &stats, NULL);
    assert_int_equal(stats.pinned, 1);
    close_it(c);
    c = open_with(*state, NULL);
    quire_cache_get_stats(c, text_of("k"), &stats, NULL);
    assert_int_equal(stats.pinned, 1);
    assert_int_equal(quire_cache_pin(c, id, false, &err), 0);
    answer = ask_text(c, "a", v);
    assert_in_range(answer.ttl_ms, 1, 60000);
    quire_cache_answer_free(&answer);
    assert_int_equal(quire_cache_remove(c, id, &err), 0);
    assert_int_equal(status_of(c, "a", v), QUIRE_CACHE_MISS);
    quire_cache_get_stats(c, text_of("k"), &stats, NULL);
    assert_int_equal(stats.removed, 1);
    assert_int_equal(stats.invalidated, 0);
    assert_int_equal(quire_cache_remove(c, id, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_touch(c, id, 0, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_pin(c, id, true, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_pin(NULL, id, true, &err), QUIRE_EINVALID);
    close_it(c);
}

/* ---- categories, insight ----------------------------------------------------------------------------------------- */

static void categories_come_and_go(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    float v[DIM];
    vector_make(v, DIM, 1);
    assert_int_equal(category_code(c, "k", "SIM 95", &err), QUIRE_ERANGE);
    assert_int_equal(category_code(c, "k", "SIMILAR 0.9", &err), QUIRE_EINVALID);
    assert_int_equal(category_code(c, "", "SIM 0.9", &err), QUIRE_ERANGE);
    assert_int_equal(quire_cache_set_category(c, text_of("k"), NULL, 2, &err), QUIRE_EINVALID);
    assert_int_equal(quire_cache_get_stats(c, text_of("k"), &stats, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_set_category(c, text_of("k"), NULL, 0, &err), 0); /* defaults */
    category(c, "k", "SIM 0.9");
    store_simple(c, "a", v, "1");
    assert_int_equal(quire_cache_drop_category(c, text_of("k"), &err), 0);
    assert_int_equal(quire_cache_drop_category(c, text_of("k"), &err), QUIRE_ENOTFOUND);
    assert_int_equal(get_code(c, &(struct quire_cache_query){.category = text_of("k"), .vector = v}), QUIRE_ENOTFOUND);
    category(c, "k", "SIM 0.9");
    assert_int_equal(status_of(c, "a", v), QUIRE_CACHE_MISS); /* its entries are gone */
    category(c, "*", "SIM 0.9");
    assert_int_equal(get_code(c, &(struct quire_cache_query){.category = text_of("whatever"), .vector = v}), 0);
    close_it(c);
}

static void tells_about_itself(void **state)
{
    char *one = support_path(*state, "one"), *two = support_path(*state, "two");
    struct quire_cache *a = open_new(one), *b = open_new(two);
    static struct quire_cache_tune tune;
    struct quire_cache_stats stats = {.entries = 77};
    struct quire_error err = {0};
    float v[DIM], near[DIM];
    void *bytes = NULL;
    size_t n = 0;
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.95, 2);
    category(a, "k", "RISK 0.05");
    category(b, "k", "RISK 0.05");
    uint64_t id = store_simple(a, "a", v, "1");
    memset(&tune, 0x55, sizeof tune); /* nothing of what the caller has there is read */
    assert_int_equal(quire_cache_tune(a, text_of("k"), -1, &tune, &err), 0);
    assert_float_equal(tune.delta, 0.05, 1e-9);
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(quire_cache_feedback(a, id, true, 0.95, &err), 0);
    category(a, "audited", "SIM 0.9 AUDIT 1");
    store(a, &(struct quire_cache_entry){.category = text_of("audited"), .text = text_of("a"), .vector = v}, "1");
    for (unsigned i = 0; i < 30; i++) {
        struct quire_cache_answer answer =
            answer_of(a, &(struct quire_cache_query){.category = text_of("audited"), .vector = near});
        assert_int_equal(quire_cache_audit_put(a, answer.audit, true, &err), 0);
        quire_cache_answer_free(&answer);
    }
    assert_int_equal(quire_cache_tune(a, text_of("audited"), -1, &tune, &err), 0);
    assert_int_equal(tune.labels, 30);
    assert_in_range(tune.n, 1, COUNT(tune.points));
    assert_int_equal(quire_cache_tune(a, text_of("nobody"), -1, &tune, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_get_stats(a, text_of("nobody"), &stats, &err), QUIRE_ENOTFOUND);
    assert_int_equal(stats.entries, 77);
    assert_int_equal(quire_cache_get_stats(a, NONE, &stats, &err), 0);
    assert_int_equal(stats.entries, 2);
    assert_int_equal(stats.feedback_good, 30);
    assert_true(stats.memory_bytes > 0 && stats.document_bytes > 0);
    assert_int_equal(quire_cache_export(a, &bytes, &n, &err), 0);
    assert_true(n > 12);
    assert_true(quire_cache_import(b, bytes, n, &err) >= 0);
    assert_int_equal(quire_cache_import(b, bytes, n - 1, &err), QUIRE_ETRUNCATED);
    assert_int_equal(quire_cache_import(b, "nothing of the kind", 19, &err), QUIRE_EFORMAT);
    assert_int_equal(quire_cache_import(b, NULL, 0, &err), QUIRE_EINVALID);
    assert_int_equal(quire_cache_export(a, NULL, &n, &err), QUIRE_EINVALID);
    free(bytes);
    close_it(a);
    close_it(b);
    free(one);
    free(two);
}

static void names_of_numbers(void **state)
{
    (void)state;
    assert_string_equal(quire_cache_status_name(QUIRE_CACHE_MISS), "miss");
    assert_string_equal(quire_cache_status_name(QUIRE_CACHE_AUDIT), "audit");
    assert_string_equal(quire_cache_status_name((enum quire_cache_status)99), "unknown");
    assert_string_equal(quire_cache_put_outcome_name(QUIRE_CACHE_STORED), "stored");
    assert_string_equal(quire_cache_put_outcome_name(QUIRE_CACHE_OFF), "off");
    assert_string_equal(quire_cache_put_outcome_name((enum quire_cache_put_outcome)99), "unknown");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(feedback_raises_an_entrys_threshold),
        TEST(audits_carry_both_sides),
        TEST(numbers_of_audits_are_not_used_again),
        TEST(load_is_checked),
        TEST(invalidates_what_is_selected),
        TEST(an_empty_selection_is_no_selection),
        TEST(single_entries),
        TEST(categories_come_and_go),
        TEST(tells_about_itself),
        TEST(names_of_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
