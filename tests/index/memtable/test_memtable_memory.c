/*
 * test_memtable_memory.c - what memtables take and say that they take; puts without memory; searches without
 * allocations.
 *
 * The program's own malloc, calloc, realloc and aligned_alloc count, fail when they are told to, and pass on to
 * glibc's. Sanitizers bring their own allocators: there nothing is counted and nothing fails, and what is left is that
 * the same steps succeed.
 */
#include "index/memtable/memtable_priv.h"
#include "io/memory.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static atomic_ulong allocations;
static atomic_long fail_after = -1; /* allocations that still succeed; negative: all */

#if !SANITIZED
static bool may_allocate(void)
{
    atomic_fetch_add(&allocations, 1);
    return atomic_load(&fail_after) < 0 || atomic_fetch_sub(&fail_after, 1) > 0;
}

#include "tests/allocator.h"

extern void *__libc_memalign(size_t alignment, size_t bytes);

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return may_allocate() ? __libc_memalign(alignment, bytes) : NULL;
}
#endif

enum { DIM_MAX = 256 };

struct fixture {
    struct epochs *epochs;
    struct memtable_config config;
    struct memtable *table;
    uint64_t lsn, gauss;
    float x[DIM_MAX];
};

static void begin(struct fixture *f, uint32_t dim, enum quire_metric metric, enum quire_slot slot)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(epochs_create(&f->epochs), 0);
    f->config = (struct memtable_config){.dim = dim, .metric = metric, .slot = slot, .epochs = f->epochs};
    assert_int_equal(memtable_create(&f->config, &f->table, NULL), 0);
    f->gauss = dim;
}

static void end(struct fixture *f)
{
    memtable_destroy(f->table);
    epochs_destroy(f->epochs);
}

static void next_vector(struct fixture *f)
{
    for (uint32_t i = 0; i < f->config.dim; i++)
        f->x[i] = support_gauss(&f->gauss);
}

static int put(struct fixture *f, uint32_t number, uint32_t *row)
{
    char key[16];
    uint32_t bytes = (uint32_t)sprintf(key, "doc:%u", number);
    return memtable_put(f->table, key, bytes, f->x, false, number % 2 ? NULL : "{}", number % 2 ? 0 : 2, f->lsn + 1,
                        row);
}

static void put_rows(struct fixture *f, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        uint32_t row;
        next_vector(f);
        assert_int_equal(put(f, i, &row), 0);
        f->lsn++;
    }
}

static uint64_t bytes_of(const struct fixture *f)
{
    struct memtable_stats stats;
    memtable_get_stats(f->table, &stats);
    return stats.bytes;
}

static uint64_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void test_small_sets_are_small(void **state)
{
    static const uint32_t dims[] = {16, 64, 256};
    struct fixture f;
    (void)state;
    for (uint32_t i = 0; i < SUPPORT_COUNT(dims); i++) {
        begin(&f, dims[i], QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
        put_rows(&f, 0, 10);
        /* the codes, a rotation of 8 bytes per dimension, and about a kilobyte for the rest */
        uint64_t codes = 10 * memtable_stored_bytes(&f.config) + 8 * f.config.dim, bytes = bytes_of(&f);
        print_message("ten elements of %u dimensions as codes: %llu bytes\n", dims[i], (unsigned long long)bytes);
        assert_true(bytes >= codes && bytes < codes + 1800);
        end(&f);
        begin(&f, dims[i], QUIRE_METRIC_L2, QUIRE_SLOT_F32);
        put_rows(&f, 0, 10);
        uint64_t vectors = 10 * sizeof(float) * dims[i];
        assert_true(bytes_of(&f) >= vectors && bytes_of(&f) < vectors + 1800);
        end(&f);
    }
}

/* What malloc says that a table took while it grew, against what the table says. */
static void run_accounting(enum quire_metric metric, enum quire_slot slot)
{
    struct fixture f;
    begin(&f, 64, metric, slot);
    uint64_t real_before = allocated(), said_before = bytes_of(&f);
    put_rows(&f, 0, MEMTABLE_FLAT_ROWS);
    epochs_collect(f.epochs);
    double real = (double)(allocated() - real_before), said = (double)(bytes_of(&f) - said_before);
    assert_true(said > MEMTABLE_FLAT_ROWS * memtable_stored_bytes(&f.config));
    if (!SANITIZED)
        assert_true(fabs(real / said - 1) < 0.15);
    end(&f);
}

static void test_bytes_are_true(void **state)
{
    (void)state;
    run_accounting(QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    run_accounting(QUIRE_METRIC_COSINE, QUIRE_SLOT_F32);
    run_accounting(QUIRE_METRIC_IP, QUIRE_SLOT_F32);
}

/* With cells, too, of which resident memory is the judge. */
static void test_bytes_are_true_with_cells(void **state)
{
    enum { ROWS = SANITIZED ? 1000 : 30000 };
    struct fixture f;
    struct memory_resident before, after;
    (void)state;
    begin(&f, 256, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    memory_resident(&before);
    put_rows(&f, 0, ROWS);
    epochs_collect(f.epochs);
    memory_resident(&after);
    double real = (double)(after.anonymous - before.anonymous), said = (double)bytes_of(&f);
    print_message("%d rows of 256 dimensions: %.0f bytes each said, %.0f resident\n", ROWS, said / ROWS, real / ROWS);
    if (!SANITIZED)
        assert_true(fabs(real / said - 1) < 0.15);
    assert_true(said / ROWS < 256 + 420);
    end(&f);
}

/* ---- no memory --------------------------------------------------------------------------------------------------- */

/* Puts each element with ever later failures until it succeeds: before, the table is as it was. */
static void run_failing_puts(enum quire_metric metric, enum quire_slot slot)
{
    struct fixture f;
    struct quire_error reason = {0};
    struct memtable_stats before, after;
    unsigned long failures = 0;
    begin(&f, 32, metric, slot);
    for (uint32_t i = 0; i < 320; i++) {
        uint32_t row = 0, key = i % 40 == 39 ? i / 2 : i;
        next_vector(&f);
        for (long n = 0;; n++) {
            memtable_get_stats(f.table, &before);
            atomic_store(&fail_after, n);
            int rc = put(&f, key, &row);
            atomic_store(&fail_after, -1);
            if (rc == 0)
                break;
            assert_int_equal(rc, QUIRE_ENOMEM);
            memtable_get_stats(f.table, &after);
            assert_true(before.rows == after.rows && before.dead == after.dead && before.row_end == after.row_end);
            if (memtable_check(f.table, &reason) < 0)
                fail_msg("%s", reason.message);
            failures++;
        }
        f.lsn++;
        char name[16];
        assert_int_equal(memtable_find(f.table, name, (uint32_t)sprintf(name, "doc:%u", key)), row);
    }
    if (!SANITIZED)
        assert_true(failures > 320);
    if (memtable_check(f.table, &reason) < 0)
        fail_msg("%s", reason.message);
    end(&f);
}

static void test_puts_without_memory(void **state)
{
    (void)state;
    run_failing_puts(QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    run_failing_puts(QUIRE_METRIC_IP, QUIRE_SLOT_F32);
}

static void run_failing_attributes(void)
{
    struct fixture f;
    struct memtable_row row;
    begin(&f, 16, QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    put_rows(&f, 0, 3);
    for (long n = 0; n < 3; n++) {
        atomic_store(&fail_after, n);
        int rc = memtable_set_attributes(f.table, 0, "{\"a\":1}", 7);
        atomic_store(&fail_after, -1);
        memtable_row(f.table, 0, &row);
        assert_int_equal(row.attribute_bytes, rc == 0 ? 7 : 2);
        if (!SANITIZED)
            assert_int_equal(rc, n < 2 ? QUIRE_ENOMEM : 0);
    }
    end(&f);
}

static void test_attributes_without_memory(void **state)
{
    (void)state;
    run_failing_attributes();
}

static void test_searches_do_not_allocate(void **state)
{
    struct fixture f;
    struct memtable_hit hits[20];
    (void)state;
    begin(&f, 64, QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8);
    put_rows(&f, 0, 2000);
    struct memtable_query query = {.query = f.x, .k = 20, .snapshot = f.lsn};
    unsigned long before = 0;
    for (uint32_t i = 0; i < 40; i++) {
        if (i == 20)
            before = atomic_load(&allocations);
        unsigned slot = epoch_enter(f.epochs);
        next_vector(&f);
        query.exact = i % 2;
        assert_int_equal(memtable_search(f.table, &query, hits, NULL), 20);
        epoch_exit(f.epochs, slot);
    }
    assert_int_equal(atomic_load(&allocations), before);
    end(&f);
}

/* ---- lists that grow --------------------------------------------------------------------------------------------- */

static void test_pointers(void **state)
{
    struct fixture f;
    static int items[9];
    _Atomic(struct pointers *) list = NULL;
    (void)state;
    begin(&f, 4, QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    uint64_t before = bytes_of(&f);
    assert_null(memtable_pointers_get(&list, 0));
    assert_int_equal(memtable_pointers_reserve(f.table, &list, 4, 1), 0);
    struct pointers *first = atomic_load(&list);
    assert_int_equal(first->capacity, 4);
    assert_true(bytes_of(&f) >= before + sizeof *first + 4 * sizeof first->items[0]);
    for (uint32_t i = 0; i < 4; i++) {
        assert_null(memtable_pointers_get(&list, i));
        memtable_pointers_set(&list, i, &items[i]);
    }
    assert_int_equal(memtable_pointers_reserve(f.table, &list, 4, 4), 0);
    assert_ptr_equal(atomic_load(&list), first); /* it was long enough */
    uint64_t full = bytes_of(&f);
    for (long at = 0; !SANITIZED && at < 2; at++) { /* without memory it is as it was */
        atomic_store(&fail_after, at);
        int rc = memtable_pointers_reserve(f.table, &list, 4, 9);
        atomic_store(&fail_after, -1);
        assert_int_equal(rc, QUIRE_ENOMEM);
        assert_ptr_equal(atomic_load(&list), first);
        assert_int_equal(bytes_of(&f), full);
    }
    unsigned slot = epoch_enter(f.epochs); /* a reader that has the list before */
    assert_int_equal(memtable_pointers_reserve(f.table, &list, 4, 9), 0);
    for (uint32_t i = 4; i < 9; i++)
        memtable_pointers_set(&list, i, &items[i]);
    epochs_collect(f.epochs);
    assert_int_equal(atomic_load(&list)->capacity, 16);
    assert_null(memtable_pointers_get(&list, 9));
    assert_null(memtable_pointers_get(&list, 16));
    for (uint32_t i = 0; i < 9; i++) {
        assert_ptr_equal(memtable_pointers_get(&list, i), &items[i]);
        assert_true(i >= 4 || atomic_load(&first->items[i]) == &items[i]);
    }
    epoch_exit(f.epochs, slot);
    memtable_block_free(f.table, atomic_load(&list));
    assert_int_equal(bytes_of(&f), before);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_sets_are_small),
        cmocka_unit_test(test_bytes_are_true),
        cmocka_unit_test(test_bytes_are_true_with_cells),
        cmocka_unit_test(test_puts_without_memory),
        cmocka_unit_test(test_attributes_without_memory),
        cmocka_unit_test(test_searches_do_not_allocate),
        cmocka_unit_test(test_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
