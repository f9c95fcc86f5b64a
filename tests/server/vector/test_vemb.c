/*
 * test_vemb.c - what became of a vector: VEMB, VEMB RAW, and the scores of VSIM, in memory, sealed, merged and after
 * restarts; zero, tiny and huge vectors; vectors of tens of thousands of dimensions.
 *
 * Scores and the order of ties depend on what was added alone. So the replies of one set of queries are compared word
 * for word through all that happens to a set, and with those of another server.
 */
#include "tests/server/support_one_server.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 40, ROWS = 60 };

static const char *const quants[] = {"Q8", "NOQUANT", "BIN"};

/* ---- requests with vectors --------------------------------------------------------------------------------------- */

static void no_error(struct reply r)
{
    if (r.type == '-')
        fail_msg("%s", r.text);
    reply_free(&r);
}

static struct reply with_vector(const char *command, const char *key, const float *vector, uint32_t dim,
                                const char *const *words, size_t n)
{
    struct resp_buffer out = {.protocol = 2};
    resp_array(&out, 4 + n);
    resp_text(&out, command);
    resp_text(&out, key);
    resp_text(&out, "FP32");
    resp_bulk(&out, vector, dim * sizeof *vector);
    for (size_t i = 0; i < n; i++)
        resp_text(&out, words[i]);
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    return read_reply(&c);
}

static void add(const char *key, const float *vector, uint32_t dim, const char *element, const char *quant)
{
    const char *const words[] = {element, quant};
    struct reply r = with_vector("VADD", key, vector, dim, words, quant ? 2 : 1);
    if (r.type != ':')
        fail_msg("VADD %s %s: %s", key, element, r.text);
    reply_free(&r);
}

/* "name score name score ...", owned by the caller. */
static char *search(const char *key, const float *query, uint32_t dim)
{
    static const char *const words[] = {"WITHSCORES", "COUNT", "100"};
    struct reply r = with_vector("VSIM", key, query, dim, words, 3);
    char *out = calloc(r.n + 1, 64);
    assert_non_null(out);
    for (size_t i = 0; i < r.n; i++)
        sprintf(out + strlen(out), "%s ", r.items[i].text);
    reply_free(&r);
    return out;
}

static struct reply vemb(const char *key, const char *element, bool raw)
{
    struct reply r = ask_line(&c, "VEMB %s %s%s", key, element, raw ? " RAW" : "");
    if (r.type != '*')
        fail_msg("VEMB %s %s: %s", key, element, r.text ? r.text : "");
    return r;
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

/* Row 0: zero; 1: tiny; 2: huge; 3: mixed; others of all lengths; every tenth is a copy of the one before it. */
static void row_of(unsigned i, float out[DIM])
{
    unsigned seed = (i % 10 == 9 ? i - 1 : i) * 7919 + 1;
    float scale = i == 1 ? 1e-33f : i == 2 ? 1e33f : (float)(1 + i % 7);
    for (unsigned d = 0; d < DIM; d++) {
        seed = seed * 1103515245u + 12345u;
        out[d] = ((float)(seed >> 8 & 0xffff) / 32768 - 1) * scale;
        if (i == 3)
            out[d] *= d % 2 ? 1e-30f : 1e30f;
    }
    if (i == 0)
        memset(out, 0, sizeof(float) * DIM);
}

static void add_rows(const char *key, const char *quant, bool backwards)
{
    for (unsigned i = 0; i < ROWS; i++) {
        unsigned row = backwards ? ROWS - 1 - i : i;
        char name[16];
        float x[DIM];
        snprintf(name, sizeof name, "e%02u", row);
        row_of(row, x);
        add(key, x, DIM, name, i ? NULL : quant);
    }
}

static double length_of(const float *x, uint32_t dim)
{
    double sum = 0;
    for (uint32_t d = 0; d < dim; d++)
        sum += (double)x[d] * (double)x[d];
    return sqrt(sum);
}

/* ---- VEMB -------------------------------------------------------------------------------------------------------- */

static void check_numbers(const char *key, unsigned quant)
{
    for (unsigned i = 0; i < ROWS; i++) {
        char name[16];
        float x[DIM];
        double error = 0, length;
        snprintf(name, sizeof name, "e%02u", i);
        row_of(i, x);
        length = length_of(x, DIM);
        struct reply r = vemb(key, name, false);
        assert_int_equal(r.n, DIM);
        for (unsigned d = 0; d < DIM; d++) {
            double got = reply_number(&r.items[d]), want = (double)x[d];
            if (quant == 2 && fabs(want) > 0.03 * length)
                assert_true(got == (want > 0 ? 1 : -1));
            if (quant == 1)
                assert_true((float)got == x[d]);
            error += (got - want) * (got - want);
        }
        if (quant == 0)
            assert_true(sqrt(error) <= 0.015 * length);
        reply_free(&r);
    }
}

static void check_raw(const char *key, unsigned quant)
{
    for (unsigned i = 0; i < ROWS; i++) {
        char name[16];
        float x[DIM];
        snprintf(name, sizeof name, "e%02u", i);
        row_of(i, x);
        double length = length_of(x, DIM), error = 0;
        struct reply r = vemb(key, name, true);
        assert_int_equal(r.n, quant == 0 ? 4 : 3);
        assert_true(reply_is(&r.items[0], quant == 0 ? "int8" : quant == 1 ? "f32" : "bin"));
        assert_int_equal(r.items[1].bytes, quant == 0 ? DIM : quant == 1 ? 4 * DIM : 8);
        assert_true(fabs(reply_number(&r.items[2]) - length) <= 1e-6 * length);
        for (unsigned d = 0; d < DIM; d++) {
            const uint8_t *bytes = (const uint8_t *)r.items[1].text;
            double want = length > 0 ? (double)x[d] / length : 0, got = 0;
            float number;
            memcpy(&number, bytes + (quant == 1 ? 4 * d : 0), sizeof number);
            if (quant == 0)
                got = (int8_t)bytes[d] * reply_number(&r.items[3]) / 127;
            else if (quant == 1)
                got = (double)number;
            else if (fabs(want) > 0.03)
                assert_int_equal(bytes[d / 8] >> d % 8 & 1, want > 0);
            error += quant == 2 ? 0 : (got - want) * (got - want);
        }
        assert_true(sqrt(error) < 0.03);
        reply_free(&r);
    }
}

static void check_set(const char *key, unsigned quant, char **found)
{
    check_numbers(key, quant);
    check_raw(key, quant);
    for (unsigned q = 0; q < ROWS; q += 3) {
        float x[DIM];
        row_of(q, x);
        char *now = search(key, x, DIM);
        if (!found[q])
            found[q] = now;
        assert_string_equal(now, found[q]);
        if (now != found[q])
            free(now);
    }
}

/* An element is at 1 from itself, a zero vector at .5 from everything, and no score is outside of 0 to 1. */
static void check_scores(const char *key)
{
    for (unsigned i = 0; i < ROWS; i++) {
        struct reply r = ask_line(&c, "VSIM %s ELE e%02u WITHSCORES COUNT 100", key, i);
        char name[16];
        bool itself = false;
        snprintf(name, sizeof name, "e%02u", i);
        assert_int_equal(r.n, 2 * ROWS);
        for (size_t at = 0; at < r.n; at += 2) {
            double score = reply_number(&r.items[at + 1]);
            assert_true(score >= 0 && score <= 1);
            if (i == 0 || reply_is(&r.items[at], "e00"))
                assert_true(score == 0.5);
            else if (reply_is(&r.items[at], name))
                itself = score == 1;
        }
        assert_true(i == 0 || itself);
        reply_free(&r);
    }
}

static void one_history(unsigned quant, const char *index)
{
    char *found[ROWS] = {NULL};
    expect_text(&c, "FLUSHALL", "OK");
    if (index)
        check_text(ask_line(&c, "VCREATE k DIM 40 INDEX %s%s%s", index, quant == 1 ? " SLOT f32" : "",
                            quant == 2 ? " BITS 1" : ""),
                   "OK");
    add_rows("k", quants[quant], false);
    check_set("k", quant, found);
    check_scores("k");
    restart();
    check_set("k", quant, found);
    expect_text(&c, "VSEAL k", "OK");
    check_set("k", quant, found);
    check_scores("k");
    /* half of them again, and merged */
    for (unsigned i = 0; i < ROWS; i += 2) {
        char name[16];
        float x[DIM];
        snprintf(name, sizeof name, "e%02u", i);
        row_of(i, x);
        add("k", x, DIM, name, NULL);
    }
    check_set("k", quant, found);
    expect_text(&c, "VSEAL k", "OK");
    check_set("k", quant, found);
    expect_text(&c, "VCOMPACT k", "OK");
    check_set("k", quant, found);
    restart();
    check_set("k", quant, found);
    struct reply r = ask(&c, "VCHECK k");
    assert_int_equal(reply_field(&r, "findings")->integer, 0);
    reply_free(&r);
    /* another set, made in another order */
    add_rows("other", quants[quant], true);
    check_set("other", quant, found);
    for (unsigned q = 0; q < ROWS; q++)
        free(found[q]);
}

static void scores_do_not_depend_on_history(void **state)
{
    (void)state;
    for (unsigned quant = 0; quant < 3; quant++) {
        one_history(quant, NULL);
        one_history(quant, "spann");
    }
}

/* ---- as Redis shows it ------------------------------------------------------------------------------------------- */

static void expect_vemb(const char *set, double first, double second)
{
    struct reply r = ask_line(&c, "VEMB %s e", set);
    assert_int_equal(r.n, 2);
    if (reply_number(&r.items[0]) != first || reply_number(&r.items[1]) != second)
        fail_msg("%s: %.17g %.17g", set, reply_number(&r.items[0]), reply_number(&r.items[1]));
    reply_free(&r);
}

/* The numbers that redis.io shows for its three kinds of quantisation. */
static void few_dimensions_to_the_digit(void **state)
{
    (void)state;
    expect_text(&c, "FLUSHALL", "OK");
    for (unsigned q = 0; q < 3; q++)
        no_error(ask_line(&c, "VADD s%s VALUES 2 1.262185 1.958231 e %s", quants[q], quants[q]));
    for (int sealed = 0; sealed < 2; sealed++) {
        expect_vemb("sQ8", 1.2643694877624512, 1.9582309722900391);
        expect_vemb("sNOQUANT", 1.2621849775314331, 1.9582309722900391);
        expect_vemb("sBIN", 1, 1);
        for (unsigned q = 0; q < 3; q++)
            check_text(ask_line(&c, "VSEAL s%s", quants[q]), "OK");
    }
}

/* Without a direction: at .5 from everything. */
static void zero_vectors(void **state)
{
    (void)state;
    expect_text(&c, "FLUSHALL", "OK");
    for (unsigned q = 0; q < 3; q++) {
        char words[100];
        snprintf(words, sizeof words, "VADD z%s VALUES 3 0 0 0 a %s", quants[q], quants[q]);
        expect_integer(&c, words, 1);
        for (int sealed = 0; sealed < 2; sealed++) {
            struct reply r = ask_line(&c, "VSIM z%s VALUES 3 0 0 0 WITHSCORES", quants[q]);
            assert_true(r.n == 2 && reply_is(&r.items[0], "a") && reply_number(&r.items[1]) == 0.5);
            reply_free(&r);
            r = ask_line(&c, "VSIM z%s VALUES 3 1 2 3 WITHSCORES", quants[q]);
            assert_true(r.n == 2 && reply_number(&r.items[1]) == 0.5);
            reply_free(&r);
            r = ask_line(&c, "VEMB z%s a RAW", quants[q]);
            assert_true(reply_number(&r.items[2]) == 0);
            reply_free(&r);
            check_text(ask_line(&c, "VSEAL z%s", quants[q]), "OK");
        }
    }
}

/* ---- many dimensions --------------------------------------------------------------------------------------------- */

static void many_dimensions(void **state)
{
    static const uint32_t dims[] = {32769, 65536};
    (void)state;
    expect_text(&c, "FLUSHALL", "OK");
    for (unsigned d = 0; d < 2; d++) {
        float *x = malloc(sizeof *x * dims[d]);
        assert_non_null(x);
        for (unsigned quant = 0; quant < 3; quant++) {
            char key[16], *before = NULL;
            snprintf(key, sizeof key, "m%u", quant);
            no_error(ask_line(&c, "DEL %s", key));
            for (unsigned i = 0; i < 8; i++) {
                char name[16];
                for (uint32_t at = 0; at < dims[d]; at++)
                    x[at] = (float)((at * 2654435761u >> 8) % 1000 + (at % 8 == i ? 600 : 0)) - 500;
                snprintf(name, sizeof name, "e%u", i);
                add(key, x, dims[d], name, i ? NULL : quants[quant]);
            }
            for (int step = 0; step < 3; step++) { /* x is that of e7 */
                char *now = search(key, x, dims[d]);
                assert_true(strncmp(now, "e7 ", 3) == 0 && strtod(now + 3, NULL) > 1 - 1e-6);
                before = before ? before : strdup(now);
                assert_string_equal(now, before);
                free(now);
                struct reply r = vemb(key, "e7", true);
                assert_true(fabs(reply_number(&r.items[2]) / length_of(x, dims[d]) - 1) < 1e-6);
                reply_free(&r);
                if (step == 0)
                    check_text(ask_line(&c, "VSEAL %s", key), "OK");
                else
                    restart();
            }
            free(before);
        }
        free(x);
    }
    expect_error(&c, "VADD k VALUES 65537 1 a", "ERR invalid vector specification");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_do_not_depend_on_history),
        cmocka_unit_test(few_dimensions_to_the_digit),
        cmocka_unit_test(zero_vectors),
        cmocka_unit_test(many_dimensions),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
