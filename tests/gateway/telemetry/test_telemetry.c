/* test_telemetry.c - the text that Prometheus reads, and its bounds. */
#include "gateway/telemetry/telemetry.h"
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *written(const struct telemetry *t)
{
    struct evbuffer *out = evbuffer_new();
    assert_non_null(out);
    assert_int_equal(telemetry_write(t, out), 0);
    size_t n = evbuffer_get_length(out);
    char *text = malloc(n + 1);
    assert_non_null(text);
    evbuffer_remove(out, text, n);
    text[n] = 0;
    evbuffer_free(out);
    return text;
}

static void test_text(void **state)
{
    (void)state;
    struct telemetry *t;
    char escaped[64], labels[100];
    assert_int_equal(telemetry_create(&t, NULL), 0);
    struct telemetry_counter *a = telemetry_counter(t, "a_total", "As", "");
    struct telemetry_counter *b = telemetry_gauge(t, "b", "Bs", "x=\"1\"");
    telemetry_add(a, 2);
    snprintf(labels, sizeof labels, "x=\"%s\"", telemetry_escape(escaped, sizeof escaped, "q\"b\\n\n"));
    telemetry_set(telemetry_gauge(t, "b", "Bs", labels), -5);
    telemetry_set(b, 7);
    assert_ptr_equal(telemetry_gauge(t, "b", "Bs", "x=\"1\""), b);
    struct telemetry_histogram *h = telemetry_histogram(t, "h_seconds", "Hs", "r=\"y\"");
    telemetry_observe(h, 100);
    telemetry_observe(h, 101);
    telemetry_observe(h, 700000000);
    char *text = written(t);
    assert_non_null(strstr(text, "# HELP a_total As\n# TYPE a_total counter\na_total 2\n"));
    assert_non_null(strstr(text, "# TYPE b gauge\nb{x=\"1\"} 7\nb{x=\"q\\\"b\\\\n\\n\"} -5\n"));
    assert_non_null(
        strstr(text, "h_seconds_bucket{r=\"y\",le=\"0.0001\"} 1\nh_seconds_bucket{r=\"y\",le=\"0.00025\"} 2\n"));
    assert_non_null(strstr(text, "h_seconds_bucket{r=\"y\",le=\"600\"} 2\nh_seconds_bucket{r=\"y\",le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(text, "h_seconds_sum{r=\"y\"} 700.000201\nh_seconds_count{r=\"y\"} 3\n"));
    free(text);
    telemetry_destroy(t);
}

/* A label that anybody can choose must not take all memory. */
static void test_bound(void **state)
{
    (void)state;
    struct telemetry *t;
    char labels[40];
    assert_int_equal(telemetry_create(&t, NULL), 0);
    for (uint32_t i = 0; i < TELEMETRY_SERIES_MAX + 100; i++) {
        snprintf(labels, sizeof labels, "x=\"%u\"", i);
        telemetry_add(telemetry_counter(t, "c_total", "Cs", labels), 1);
    }
    telemetry_observe(telemetry_histogram(t, "late_seconds", "Late", ""), 5);
    char *text = written(t);
    assert_non_null(strstr(text, "quire_gateway_series_lost_total 102\n"));
    assert_null(strstr(text, "late_seconds"));
    free(text);
    telemetry_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_bound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
