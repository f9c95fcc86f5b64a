/*
 * test_doc_set.c - sets of ids, ids gathered, and pages by id, against an array with a byte for each id.
 */
#include "document/fields/doc_pages.h"
#include "document/fields/doc_set.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define IDS   300000u
#define WORDS (IDS / 64 + 1)

/* A set and what it should hold. */
struct pair {
    struct doc_set set;
    uint8_t *has; /* IDS */
};

static uint32_t below(struct random *r, uint64_t n)
{
    return (uint32_t)random_below(r, n);
}

static void check(const struct pair *p, struct random *r)
{
    struct doc_walk walk = doc_walk(&p->set);
    uint32_t n = 0, last = 0;
    for (uint32_t id; doc_walk_next(&walk, &id); n++) {
        assert_true(id < IDS && p->has[id] && (n == 0 || id > last));
        last = id;
    }
    assert_int_equal(n, p->set.n);
    for (uint32_t id = 0; id < IDS; id++)
        n -= p->has[id];
    assert_int_equal(n, 0);
    if (p->set.n > 0)
        assert_int_equal(doc_set_last(&p->set), last);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t id = below(r, IDS), word = id / 64;
        assert_int_equal(doc_set_has(&p->set, id), p->has[id]);
        uint64_t bits = doc_set_word(&p->set, word);
        for (uint32_t k = 0; k < 64; k++)
            assert_int_equal(bits >> k & 1, word * 64 + k < IDS && p->has[word * 64 + k]);
    }
}

/* Runs, steps, a few: so that chunks are arrays, bits, or none. */
static struct pair draw(struct random *r)
{
    struct pair p = {.has = calloc(IDS, 1)};
    uint32_t pieces = below(r, 4), few = below(r, 8);
    assert_non_null(p.has);
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t from = below(r, IDS), to = from + below(r, IDS - from), step = 1u << below(r, 12);
        for (uint32_t id = from; id < to; id += step)
            p.has[id] = 1;
    }
    for (uint32_t i = 0; i < few; i++)
        p.has[below(r, IDS)] = 1;
    for (uint32_t id = 0; id < IDS; id++)
        if (p.has[id])
            assert_true(below(r, 2) ? doc_set_append(&p.set, id)
                                    : doc_set_reserve(&p.set, id) && doc_set_append(&p.set, id));
    return p;
}

static void finish(struct pair *p)
{
    doc_set_fini(&p->set);
    assert_int_equal(p->set.n, 0);
    free(p->has);
}

static void combine(struct pair *a, const struct pair *b, struct random *r)
{
    uint32_t operation = below(r, 4), end = below(r, 3) == 0 ? 65536 * below(r, 5) : below(r, IDS);
    switch (operation) {
    case 0:
        doc_set_and(&a->set, &b->set);
        break;
    case 1:
        doc_set_and_not(&a->set, &b->set);
        break;
    case 2:
        assert_true(doc_set_or(&a->set, &b->set));
        break;
    default:
        doc_set_purge(&a->set, &b->set, end);
    }
    for (uint32_t id = 0; id < IDS; id++) {
        bool x = a->has[id], y = b->has[id];
        a->has[id] = operation == 0   ? x && y
                     : operation == 1 ? x && !y
                     : operation == 2 ? x || y
                                      : x && (y || id >= end);
    }
}

static void sets(void **state)
{
    struct random r;
    (void)state;
    random_init(&r, 11);
    for (uint32_t trial = 0; trial < 60; trial++) {
        struct pair a = draw(&r);
        check(&a, &r);
        for (uint32_t i = 0; i < 3; i++) {
            struct pair b = draw(&r), copy = {0};
            combine(&a, &b, &r);
            check(&a, &r);
            assert_true(doc_set_copy(&a.set, &copy.set));
            copy.has = a.has;
            check(&copy, &r);
            doc_set_fini(&copy.set);
            finish(&b);
        }
        for (uint32_t i = 0; i < 2000; i++) {
            uint32_t id = below(&r, IDS);
            assert_int_equal(doc_set_remove(&a.set, id), a.has[id]);
            a.has[id] = 0;
        }
        check(&a, &r);
        uint64_t bytes = doc_set_bytes(&a.set);
        assert_true(bytes <= 6 * 8192 + 4096 || bytes <= 4 * a.set.n + 4096);
        finish(&a);
    }
}

static void from_bits_and_gathered(void **state)
{
    struct random r;
    (void)state;
    random_init(&r, 12);
    for (uint32_t trial = 0; trial < 60; trial++) {
        struct pair a = draw(&r), b = {.has = a.has};
        uint64_t *bits = calloc(WORDS, sizeof *bits);
        uint32_t *ids = malloc((a.set.n + 1) * sizeof *ids);
        doc_set_mark(&a.set, bits, WORDS);
        doc_set_ids(&a.set, ids);
        for (uint32_t id = 0; id < IDS; id++)
            assert_int_equal(bits[id / 64] >> id % 64 & 1, a.has[id]);
        assert_true(doc_set_from_bits(bits, WORDS, &b.set));
        check(&b, &r);
        doc_set_fini(&b.set);
        assert_true(doc_set_from(ids, a.set.n, &b.set));
        check(&b, &r);
        doc_set_fini(&b.set);
        struct doc_gather gather;
        assert_true(doc_gather_init(&gather, below(&r, 2) ? a.set.n : below(&r, 9), IDS));
        assert_true(doc_gather_reserve(&gather, 2 * (size_t)a.set.n));
        for (uint32_t i = 0; i < a.set.n; i++) { /* from both ends, some twice */
            doc_gather_put(&gather, ids[a.set.n - 1 - i]);
            if (i % 3 == 0)
                doc_gather_put(&gather, ids[i]);
        }
        assert_true(doc_gather_put_set(&gather, &a.set));
        assert_true(doc_gather_finish(&gather, &b.set));
        check(&b, &r);
        doc_set_fini(&b.set);
        free(bits);
        free(ids);
        finish(&a);
    }
}

static void pages(void **state)
{
    struct doc_pages kept = {.item_bytes = 8};
    struct random r;
    (void)state;
    random_init(&r, 13);
    struct pair a = draw(&r);
    for (uint32_t id = 0; id < IDS; id++) {
        uint64_t *item = id % 10 < 7 ? doc_pages_make(&kept, id) : NULL;
        if (item) {
            assert_int_equal(*item, 0);
            *item = id + 1;
        }
    }
    uint64_t before = doc_pages_bytes(&kept);
    uint32_t end = IDS - 1000;
    for (uint32_t first = 0; first < kept.n_pages; first += 100)
        doc_pages_purge(&kept, first, 100, &a.set, end);
    for (uint32_t id = 0; id < IDS; id++) {
        const uint64_t *item = doc_pages_at(&kept, id);
        bool gone = !a.has[id] && id / DOC_PAGE * DOC_PAGE + DOC_PAGE <= end;
        assert_true(gone ? item == NULL : item != NULL);
        assert_true(!item || *item == (id % 10 < 7 ? id + 1 : 0));
    }
    assert_true(doc_pages_bytes(&kept) < before);
    doc_pages_fini(&kept);
    assert_int_equal(doc_pages_bytes(&kept), 0);
    finish(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sets), cmocka_unit_test(from_bits_and_gathered),
                                       cmocka_unit_test(pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
