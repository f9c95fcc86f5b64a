/* test_top_frame.c - frames of every width and height, escape codes, JSON of hostile names, figures, keys. */
#include "tools/top/top_figure.h"
#include "tools/top/top_json.h"
#include "tools/top/top_screen.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char first[] =
    "run_id:a\nquire_version:0.1.0\nuptime_in_seconds:90000\nsearches:100\nsearch_reads:800\n"
    "caches:1\ncache0:name=faq,requests=10,hits=4\ntenant0:name=acme,weight=3,queries=5,cost_us=10\n"
    "tenant1:name=evil\033[31m,weight=1,queries=5,cost_us=10\ncmdstat_vsim:calls=5,usec=50\n"
    "used_memory_dataset:100\nused_memory_indexes:800\nmaxmemory:1000\n";
static const char second[] =
    "run_id:a\nquire_version:0.1.0\nuptime_in_seconds:90001\nsearches:350\nsearch_reads:2800\n"
    "caches:1\ncache0:name=faq,requests=30,hits=14\ntenant0:name=acme,weight=3,queries=105,cost_us=40\n"
    "tenant1:name=evil\033[31m,weight=1,queries=6,cost_us=20\ncmdstat_vsim:calls=105,usec=5050\n"
    "used_memory_dataset:150\nused_memory_indexes:800\nmaxmemory:1000\nmerging:1\n"
    "store_failures:2\n";

struct fixture {
    struct top_info before, now;
    struct top_rates rates;
    struct top_canvas canvas;
    struct top_output_text out;
    struct top_view view;
    struct top_shown shown;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct quire_error err;
    assert_non_null(f);
    assert_int_equal(top_info_parse(first, strlen(first), &f->before, &err), 0);
    assert_int_equal(top_info_parse(second, strlen(second), &f->now, &err), 0);
    assert_int_equal(top_rates_compute(&f->before, &f->now, 1, &f->rates, &err), 0);
    f->view.interval_s = 1;
    f->shown = (struct top_shown){.server = "127.0.0.1:7000", .info = &f->now, .rates = &f->rates, .clock = "12:00:00"};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    top_info_fini(&f->before);
    top_info_fini(&f->now);
    top_rates_fini(&f->rates);
    top_canvas_fini(&f->canvas);
    free(f->out.bytes);
    free(f);
    return 0;
}

/* The frame as a text with an end. */
static const char *output(struct fixture *f, enum top_output kind)
{
    f->out.n = 0;
    top_canvas_write(&f->canvas, kind, &f->out);
    top_canvas_add(&f->out, "", 1);
    assert_false(f->out.failed);
    return f->out.bytes;
}

static const char *whole(struct fixture *f, uint32_t width)
{
    top_canvas_begin(&f->canvas, width, 0);
    top_frame_whole(&f->canvas, &f->view, &f->shown);
    return output(f, TOP_OUTPUT_PLAIN);
}

static void expect(const char *text, const char *part)
{
    if (!strstr(text, part))
        print_error("there is no \"%s\" in:\n%s", part, text);
    assert_non_null(strstr(text, part));
}

static void test_figures_shown(void **state)
{
    struct fixture *f = *state;
    const char *text = whole(f, 100);
    expect(text, "127.0.0.1:7000  quire 0.1.0  up 1d 01:00");
    expect(text, "250/s  8 reads each  2000 reads/s  mean 50 us");
    expect(text, "20 lookups/s  served -  near 50 %"); /* no exact, no stale: what was served is not known */
    expect(text, "data 950 of 1000  [#########.] 95 %");
    expect(text, "merging");
    expect(text, "trouble   2 upkeep failures");
    expect(text, "tenants 2, by rate");
    expect(text, "acme");
    expect(text, "75 %");  /* of the cost, and by weight */
    expect(text, "50 us"); /* a mean of vsim */
    assert_null(strchr(text, '\033'));
}

/* No size breaks anything: lines have at most so many columns, frames so many lines; the keys are in the last. */
static void test_sizes(void **state)
{
    struct fixture *f = *state;
    for (uint32_t width = 1; width <= 140; width += 1 + width / 10)
        for (uint32_t height = 1; height <= 60; height += 1 + height / 8)
            for (unsigned table = 0; table < 2 * TOP_N_TABLES; table++) {
                f->view.table = (enum top_table)(table % TOP_N_TABLES);
                f->view.help = table == TOP_N_TABLES;
                f->view.scroll = table * 1000;
                top_canvas_begin(&f->canvas, width, height);
                top_frame_screen(&f->canvas, &f->view, &f->shown);
                assert_in_range(f->canvas.n_lines, 1, height);
                if (width >= 80 && height >= 24 && !f->view.help)
                    assert_int_equal(f->view.scroll, 0); /* put back: all rows are shown */
                if (height > 1) {
                    assert_int_equal(f->canvas.n_lines, height);
                    assert_int_equal(f->canvas.cells[(size_t)(height - 1) * width], 'q');
                }
                if (height >= 14 && !f->view.help &&
                    width >= 30) /* rows of the table are there, however many lines it has */
                    expect(output(f, TOP_OUTPUT_SCREEN), table % TOP_N_TABLES == TOP_CACHES ? "faq" : ", by rate");
                const char *text = output(f, TOP_OUTPUT_SCREEN);
                assert_null(strstr(text, "\033[31m")); /* no style, and not the tenant's */
            }
    /* what is whole at 100 columns is whole at 30 */
    f->view.help = false;
    const char *text = whole(f, 30);
    expect(text, "p99.9 -");
    expect(text, "resident -");
    expect(text, "checkpoints");
    expect(text, "run -");
}

static void test_states(void **state)
{
    struct fixture *f = *state;
    f->shown.problem = "127.0.0.1:7000: cannot connect: Connection refused";
    f->shown.problem_s = 75;
    const char *text = whole(f, 120);
    expect(text, "no server for 1:15, connecting again: 127.0.0.1:7000: cannot connect: Connection refused");
    expect(text, "(the figures are its last)");
    f->shown.problem = NULL;
    f->shown.silent_s = 4;
    expect(whole(f, 100), "for an answer: 0:04");
    f->shown.silent_s = 0;
    struct quire_error err;
    assert_int_equal(top_rates_compute(NULL, &f->now, 1, &f->rates, &err), 0);
    expect(whole(f, 100), "no rates yet");
    f->shown.info = NULL;
    f->shown.rates = NULL;
    f->shown.problem = "gone";
    expect(whole(f, 100), "gone");
}

static void test_colour(void **state)
{
    struct fixture *f = *state;
    top_canvas_begin(&f->canvas, 80, 24);
    top_frame_screen(&f->canvas, &f->view, &f->shown);
    const char *text = output(f, TOP_OUTPUT_COLOUR);
    assert_int_equal(strncmp(text, "\033[H", 3), 0);
    expect(text, "\033[0;1;31mtrouble");
    text = output(f, TOP_OUTPUT_SCREEN);
    for (const char *at = text; (at = strchr(at, '\033')); at++) /* places and erasing only */
        assert_true(strncmp(at, "\033[H", 3) == 0 || strncmp(at, "\033[K", 3) == 0 || strncmp(at, "\033[J", 3) == 0);
}

static void test_json(void **state)
{
    struct fixture *f = *state;
    f->out.n = 0;
    top_json_write(&f->shown, 1234567, &f->out);
    assert_false(f->out.failed);
    assert_int_equal(f->out.bytes[f->out.n - 1], '\n');
    assert_null(memchr(f->out.bytes, '\n', f->out.n - 1));
    json_error_t reason;
    json_t *line = json_loadb(f->out.bytes, f->out.n, 0, &reason), *row;
    assert_non_null(line);
    json_int_t time_ms, searches, queries;
    double searches_s, near, share, seconds, queries_s;
    const char *name;
    assert_int_equal(json_unpack(line, "{s:I, s:F, s:{s:I}, s:{s:F}, s:{s:F}}", "time_ms", &time_ms, "seconds",
                                 &seconds, "info", "searches", &searches, "per_second", "searches", &searches_s,
                                 "lookup_shares", "near", &near),
                     0);
    assert_int_equal(time_ms, 1234567);
    assert_int_equal(searches, 350);
    assert_true(searches_s == 250 && near == 0.5 && seconds == 1);
    assert_true(json_is_null(json_object_get(json_object_get(line, "lookup_shares"), "stale")));
    assert_true(json_is_null(json_object_get(line, "no_rates")));
    row = json_array_get(json_object_get(line, "tenant_rows"), 1);
    assert_int_equal(json_unpack(row, "{s:s, s:I, s:F, s:{s:F}}", "name", &name, "queries", &queries, "share", &share,
                                 "per_second", "queries", &queries_s),
                     0);
    assert_string_equal(name, "evil?[31m");
    assert_true(queries == 6 && queries_s == 1 && share == 0.25);
    json_decref(line);
    f->out.n = 0;
    f->shown.problem = "bad \xff \"quoted\"";
    top_json_write(&f->shown, 5, &f->out);
    line = json_loadb(f->out.bytes, f->out.n, 0, &reason);
    assert_non_null(line);
    assert_true(json_is_false(json_object_get(line, "connected")));
    assert_null(json_object_get(line, "info"));
    json_decref(line);
}

static void test_figure(void **state)
{
    (void)state;
    assert_string_equal(top_figure_count(0).text, "0");
    assert_string_equal(top_figure_count(0.34).text, "0.3");
    assert_string_equal(top_figure_count(12.6).text, "13");
    assert_string_equal(top_figure_count(99999).text, "99999");
    assert_string_equal(top_figure_count(123456).text, "123k");
    assert_string_equal(top_figure_count(999.9e6).text, "1.00G");
    assert_string_equal(top_figure_count(1e300).text, "-");
    assert_string_equal(top_figure_count((double)NAN).text, "-");
    assert_string_equal(top_figure_count(-1).text, "-");
    assert_string_equal(top_figure_bytes(1023).text, "1023");
    assert_string_equal(top_figure_bytes(1024).text, "1.00K");
    assert_string_equal(top_figure_bytes(1610612736).text, "1.50G");
    assert_string_equal(top_figure_us(999).text, "999 us");
    assert_string_equal(top_figure_us(2300).text, "2.30 ms");
    assert_string_equal(top_figure_us(1.2e6).text, "1.20 s");
    assert_string_equal(top_figure_percent(0.004).text, "0.4 %");
    assert_string_equal(top_figure_percent(1).text, "100 %");
    assert_string_equal(top_figure_span(59).text, "0:59");
    assert_string_equal(top_figure_span(15120).text, "4:12:00");
    assert_string_equal(top_figure_span((double)NAN).text, "-");
    assert_string_equal(top_figure_span(1e300).text, "-");
}

static int keys_of(const char *bytes, int keys[16])
{
    struct top_keys waiting = {0};
    int n = 0;
    for (; *bytes; bytes++) {
        int key = top_screen_key(&waiting, *bytes);
        if (key != TOP_KEY_NONE)
            keys[n++] = key;
    }
    return n;
}

static void test_keys(void **state)
{
    (void)state;
    int keys[16] = {0};
    assert_int_equal(keys_of("q", keys), 1);
    assert_int_equal(keys[0], 'q');
    assert_int_equal(keys_of("\033[A\033OBx\033[5~\033[6~", keys), 5);
    assert_int_equal(keys[0], TOP_KEY_UP);
    assert_int_equal(keys[1], TOP_KEY_DOWN);
    assert_int_equal(keys[2], 'x');
    assert_int_equal(keys[3], TOP_KEY_PAGE_UP);
    assert_int_equal(keys[4], TOP_KEY_PAGE_DOWN);
    /* others, too long ones, and escapes of their own swallow nothing that follows */
    assert_int_equal(keys_of("\033[1;5Cs\033[999999~r\033q", keys), 4);
    assert_int_equal(keys[0], 's');
    assert_int_equal(keys[1], '~'); /* the end of what was too long */
    assert_int_equal(keys[2], 'r');
    assert_int_equal(keys[3], 'q');
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_figures_shown, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_sizes, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_states, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_colour, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_json, set_up, tear_down),
                                       cmocka_unit_test(test_figure),
                                       cmocka_unit_test(test_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
