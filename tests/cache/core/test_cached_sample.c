/* test_cached_sample.c - samples of a cache: vectors of memory and of segments, each entry once and with its chance. */
#include "cache/core/sealed.h"
#include "tests/cache/support_bed.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static unsigned number_of(const struct bed *b, uint64_t id)
{
    unsigned i = 0;
    while (i < VECTORS && b->ids[i] != id)
        i++;
    assert_true(i < VECTORS);
    return i;
}

/* Vectors in memory and in segments are those that were put, each entry once, and each with its chance. */
static void a_sample_holds_what_was_put(void **state)
{
    struct bed *b = bed_sealed();
    struct cache_sampled *out = calloc(400, sizeof *out);
    int8_t *vectors = malloc(400 * DIM);
    unsigned drawn[320] = {0};
    struct quire_error err = {0};
    uint64_t lsn = 0;
    (void)state;
    bed_put_many(b, 300, 20, "b");
    world_category(&b->w, "empty", "SIM 0.9");
    assert_int_equal(cache_sample(b->w.cache, text_of("k"), out, vectors, 400, &err), 320);
    for (unsigned n = 0; n < 320; n++) {
        unsigned i = number_of(b, out[n].info.id);
        double dot = 0, norm2 = 0;
        for (unsigned d = 0; d < DIM; d++) {
            double x = (double)vectors[n * DIM + d] * (double)out[n].step;
            dot += x * (double)b->vectors[i][d];
            norm2 += (double)b->vectors[i][d] * (double)b->vectors[i][d];
        }
        assert_true(dot / sqrt(norm2) > 0.99 && dot / sqrt(norm2) < 1.01); /* of unit length, and along it */
        assert_string_equal(out[n].scope, i < 300 ? "tenant=a" : "tenant=b");
        assert_true(out[n].info.category.n_bytes == 1 && *(const char *)out[n].info.category.data == 'k');
        assert_int_equal(drawn[i]++, 0);
    }
    assert_int_equal(cache_remove(b->w.cache, b->ids[7], &lsn, &err), 0); /* a sealed one, and one in memory */
    assert_int_equal(cache_remove(b->w.cache, b->ids[305], &lsn, &err), 0);
    struct quire_bytes all = {NULL, 0};
    assert_int_equal(cache_sample(b->w.cache, all, out, vectors, 400, &err), 318);
    memset(drawn, 0, sizeof drawn);
    for (unsigned round = 0; round < 200; round++) {
        assert_int_equal(cache_sample(b->w.cache, all, out, vectors, 32, &err), 32);
        for (unsigned n = 0; n < 32; n++)
            drawn[number_of(b, out[n].info.id)]++;
    }
    for (unsigned i = 0; i < 320; i++) /* 20 on average, 4.3 of deviation */
        assert_true(i == 7 || i == 305 ? drawn[i] == 0 : drawn[i] >= 2 && drawn[i] <= 45);
    assert_int_equal(cache_sample(b->w.cache, text_of("empty"), out, vectors, 400, &err), 0);
    assert_int_equal(cache_sample(b->w.cache, text_of("nope"), out, vectors, 400, &err), QUIRE_ENOTFOUND);
    free(out);
    free(vectors);
    bed_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sample_holds_what_was_put)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
