/*
 * test_labels.c - made-up attributes and tenants: shares, nearness, sizes by the power law, and the same again from the
 * same seed.
 *
 * Vectors are points on a line, row i at i, so that rows near one another have numbers near one another.
 */
#include "datasets/labels.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#define ROWS 20000u

static const char *const names[] = {"p001", "p005", "p01", "p05", "p1", "p5", "p10", "p30", "a20", "b20"};
static const double shares[] = {0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 0.2, 0.2};
#define NAMES (sizeof names / sizeof *names)

static struct vectors line(void)
{
    struct vectors v = {malloc(sizeof(float) * ROWS), ROWS, 1, QUIRE_TYPE_F32};
    assert_non_null(v.data);
    for (uint32_t i = 0; i < ROWS; i++)
        ((float *)v.data)[i] = (float)i;
    return v;
}

static struct labels *make(struct label_options options)
{
    struct labels *labels = NULL;
    struct quire_error err = {0};
    if (labels_create(&options, &labels, &err) < 0)
        fail_msg("%s", err.message);
    return labels;
}

static bool has_label(const char *json, const char *name)
{
    char field[32];
    snprintf(field, sizeof field, "\"%s\":1", name);
    bool has = strstr(json, field) != NULL;
    snprintf(field, sizeof field, "\"%s\":0", name);
    assert_true(has != (strstr(json, field) != NULL));
    return has;
}

struct seen {
    uint32_t n, first, last;
};

static void look(const struct labels *labels, struct seen seen[NAMES], uint32_t *both)
{
    char json[LABELS_TEXT_MAX];
    memset(seen, 0, sizeof *seen * NAMES);
    *both = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t bytes = labels_attributes(labels, row, json);
        assert_int_equal(bytes, strlen(json));
        assert_true(json[0] == '{' && json[strlen(json) - 1] == '}' && strlen(json) < LABELS_TEXT_MAX - 40);
        for (size_t i = 0; i < NAMES; i++)
            if (has_label(json, names[i])) {
                seen[i].first = seen[i].n++ ? seen[i].first : row;
                seen[i].last = row;
            }
        *both += has_label(json, "a20") && has_label(json, "b20");
    }
}

/* Five standard deviations of a share drawn row by row. */
static void expect_share(uint32_t n, double share)
{
    double deviation = sqrt(share * (1 - share) * ROWS);
    if (fabs(n - share * ROWS) > 5 * deviation + 1)
        fail_msg("%u rows of %u, expected a share of %g", n, ROWS, share);
}

static void test_at_random(void **state)
{
    struct labels *labels = make((struct label_options){.rows = ROWS, .seed = 3});
    struct seen seen[NAMES];
    uint32_t both;
    (void)state;
    look(labels, seen, &both);
    for (size_t i = 0; i < NAMES; i++)
        expect_share(seen[i].n, shares[i]);
    expect_share(both, 0.04);
    for (size_t i = 4; i < NAMES; i++) /* everywhere */
        assert_true(seen[i].first < ROWS / 10 && seen[i].last > ROWS / 10 * 9);
    labels_destroy(labels);
}

static void test_by_position(void **state)
{
    struct vectors base = line();
    struct labels *labels = make((struct label_options){.base = &base, .seed = 3, .threads = 2});
    struct seen seen[NAMES];
    uint32_t both;
    (void)state;
    look(labels, seen, &both);
    for (size_t i = 0; i + 1 < NAMES; i++) { /* exactly so many, side by side */
        assert_int_equal(seen[i].n, (uint32_t)ceil(shares[i] * ROWS));
        assert_int_equal(seen[i].last - seen[i].first + 1, seen[i].n);
    }
    expect_share(seen[NAMES - 1].n, 0.2);
    assert_true(seen[NAMES - 1].last - seen[NAMES - 1].first > ROWS / 2);
    assert_true(both > 600 && both < 1000); /* independent: 800 */
    labels_destroy(labels);
    free(base.data);
}

static void test_rest_of_a_row(void **state)
{
    struct labels *labels = make((struct label_options){.rows = ROWS, .seed = 9});
    uint32_t kinds[LABELS_KINDS] = {0};
    char json[LABELS_TEXT_MAX], name[32];
    double earliest = INFINITY, latest = 0;
    (void)state;
    for (uint32_t row = 0; row < ROWS; row++) {
        labels_attributes(labels, row, json);
        const char *kind = strstr(json, "\"kind\":\"k"), *time = strstr(json, "\"time\":");
        assert_true(kind && time && strstr(json, "\"tags\":[\""));
        unsigned long k = strtoul(kind + 9, NULL, 10);
        assert_true(k < LABELS_KINDS);
        kinds[k]++;
        double t = strtod(time + 7, NULL);
        earliest = t < earliest ? t : earliest;
        latest = t > latest ? t : latest;
        snprintf(name, sizeof name, "\"name\":\"row %u\"}", row);
        assert_non_null(strstr(json, name));
    }
    for (size_t i = 0; i < LABELS_KINDS; i++)
        expect_share(kinds[i], 1.0 / LABELS_KINDS);
    assert_true(earliest >= LABELS_TIME_FIRST && earliest < LABELS_TIME_FIRST + LABELS_TIME_SPAN / 100.0);
    assert_true(latest < LABELS_TIME_FIRST + LABELS_TIME_SPAN && latest > LABELS_TIME_FIRST + LABELS_TIME_SPAN * 0.99);
    labels_destroy(labels);
}

#define TENANTS 500u

static void count_tenants(const struct labels *labels, uint32_t sizes[TENANTS + 1], uint32_t *runs, uint32_t *shared)
{
    char text[LABELS_TEXT_MAX];
    unsigned long before = 0;
    memset(sizes, 0, sizeof *sizes * (TENANTS + 1));
    *runs = *shared = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t bytes = labels_tenants(labels, row, text);
        assert_int_equal(bytes, strlen(text));
        assert_int_equal(text[0], 't');
        char *end;
        unsigned long tenant = strtoul(text + 1, &end, 10);
        assert_true(tenant >= 1 && tenant <= TENANTS);
        sizes[tenant]++;
        *runs += tenant != before;
        before = tenant;
        if (*end) {
            assert_true(end[0] == ' ' && end[1] == 't');
            unsigned long other = strtoul(end + 2, &end, 10);
            assert_true(other >= 1 && other <= TENANTS && other != tenant && *end == 0);
            ++*shared;
        }
    }
}

static void test_tenants(void **state)
{
    struct vectors base = line();
    struct label_options options = {.rows = ROWS, .seed = 5, .tenants = TENANTS, .exponent = 1, .shared = 0.1};
    uint32_t sizes[TENANTS + 1], near_sizes[TENANTS + 1], runs, shared;
    (void)state;
    struct labels *labels = make(options);
    count_tenants(labels, sizes, &runs, &shared);
    double sum = 0;
    for (uint32_t t = 1; t <= TENANTS; t++)
        sum += 1.0 / t;
    for (uint32_t t = 1; t <= TENANTS; t++)
        assert_true(fabs(sizes[t] - (1 + (ROWS - TENANTS) / (t * sum))) <= 1.001);
    expect_share(shared, 0.1 * (1 - 1.0 / TENANTS));
    assert_true(runs > ROWS / 2);
    labels_destroy(labels);

    options.base = &base;
    options.shared = 0;
    labels = make(options);
    count_tenants(labels, near_sizes, &runs, &shared);
    assert_memory_equal(near_sizes + 1, sizes + 1, sizeof *sizes * TENANTS);
    assert_int_equal(shared, 0);
    assert_true(runs < 8 * TENANTS); /* cells have two sides each */
    labels_destroy(labels);
    free(base.data);
}

static void test_same_again(void **state)
{
    struct vectors base = line();
    struct label_options options = {
        .base = &base, .seed = 7, .tenants = 50, .exponent = 1, .shared = 0.5, .threads = 1};
    char a[LABELS_TEXT_MAX], b[LABELS_TEXT_MAX];
    uint32_t different = 0;
    (void)state;
    struct labels *one = make(options);
    options.threads = 3;
    struct labels *same = make(options);
    options.seed = 8;
    struct labels *other = make(options);
    for (uint32_t row = 0; row < ROWS; row++) {
        labels_attributes(one, row, a);
        labels_attributes(same, row, b);
        assert_string_equal(a, b);
        labels_attributes(other, row, b);
        different += strcmp(a, b) != 0;
        labels_tenants(one, row, a);
        labels_tenants(same, row, b);
        assert_string_equal(a, b);
    }
    assert_true(different > ROWS / 2);
    labels_destroy(one);
    labels_destroy(same);
    labels_destroy(other);
    free(base.data);
}

static void test_refused(void **state)
{
    static const struct label_options wrong[] = {{.rows = 0},
                                                 {.rows = 5, .tenants = 6},
                                                 {.rows = 5, .exponent = -1},
                                                 {.rows = 5, .shared = 1.5},
                                                 {.rows = 5, .shared = NAN}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct labels *labels = NULL;
        struct quire_error err = {0};
        assert_int_equal(labels_create(&wrong[i], &labels, &err), QUIRE_ERANGE);
        assert_true(!labels && err.message[0]);
    }
    struct labels *labels = make((struct label_options){.rows = 1, .tenants = 1});
    char text[LABELS_TEXT_MAX];
    labels_tenants(labels, 0, text);
    assert_string_equal(text, "t1");
    labels_destroy(labels);
    labels_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_random), cmocka_unit_test(test_by_position), cmocka_unit_test(test_rest_of_a_row),
        cmocka_unit_test(test_tenants),   cmocka_unit_test(test_same_again),  cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
