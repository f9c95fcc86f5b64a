/*
 * test_flight.c - everyone reads the same pieces from the first, at any pace, whoever leaves and however it ends; and a
 * random run against a model that keeps everything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/flight/flight.h"
#include "io/random.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (1u << 20)

struct reader {
    struct flight_member member; /* first */
    char *got;
    size_t bytes;
    unsigned wakes;
    bool leave_at_wake, ended;
};

static unsigned rooms, lefts;
static struct flight *left_flight; /* finished when its last member leaves */

static void on_room(void *context)
{
    (void)context;
    rooms++;
}

static void on_left(void *context)
{
    (void)context;
    lefts++;
    if (left_flight) {
        flight_finish(left_flight, FLIGHT_BROKEN);
        flight_release(left_flight);
        left_flight = NULL;
    }
}

static const struct flight_source source = {on_room, on_left, NULL};

/* Up to n pieces. */
static void read_some(struct reader *reader, unsigned n)
{
    struct flight_piece piece;
    while (n-- > 0 && flight_next(&reader->member, &piece)) {
        memcpy(reader->got + reader->bytes, piece.data, piece.bytes);
        reader->bytes += piece.bytes;
        flight_taken(&reader->member);
    }
}

static void on_wake(struct flight_member *member)
{
    struct reader *reader = (struct reader *)member;
    reader->wakes++;
    if (reader->leave_at_wake)
        flight_leave(member);
    else
        read_some(reader, UINT32_MAX);
}

static void on_wake_lazy(struct flight_member *member)
{
    ((struct reader *)member)->wakes++;
}

static void reader_init(struct reader *reader, bool lazy)
{
    memset(reader, 0, sizeof *reader);
    reader->member.wake = lazy ? on_wake_lazy : on_wake;
    reader->got = malloc(BYTES_MAX);
    assert_non_null(reader->got);
}

static void test_joined(void **state)
{
    static const uint8_t key[FLIGHT_KEY_BYTES] = {1}, other[FLIGHT_KEY_BYTES] = {2};
    struct flight_table *table = flight_table_create(2);
    struct reader a, b, c;
    struct flight *flight;
    struct flight_piece piece;
    uint64_t at = 0;
    (void)state;
    reader_init(&a, false);
    reader_init(&b, false);
    reader_init(&c, false);
    flight = flight_open(table, key, 1000, &source, &a.member);
    read_some(&a, 1);
    assert_ptr_equal(flight_find(table, key), flight);
    assert_null(flight_find(table, other));
    flight_set_head(flight, "200", NULL);
    assert_true(flight_append(flight, "one", 3, FLIGHT_KEEP));
    flight_join(flight, &b.member);
    read_some(&b, 9);
    assert_true(flight_append(flight, ": ping", 6, 0));
    assert_true(flight_append(flight, "two", 3, FLIGHT_KEEP));
    flight_finish(flight, FLIGHT_WHOLE);
    flight_join(flight, &c.member); /* whole, and not closed */
    read_some(&c, 9);
    assert_true(a.bytes == 12 && b.bytes == 12 && c.bytes == 12 && memcmp(c.got, "one: pingtwo", 12) == 0);
    assert_true(flight_kept(flight, &at, &piece) && piece.bytes == 3 && flight_kept(flight, &at, &piece) &&
                memcmp(piece.data, "two", 3) == 0 && !flight_kept(flight, &at, &piece));
    flight_leave(&a.member);
    flight_release(flight);
    assert_null(flight_find(table, key));
    assert_int_equal(flight_table_n(table), 1);
    flight_leave(&b.member);
    flight_leave(&c.member);
    assert_int_equal(flight_table_n(table), 0);
    flight_table_destroy(table);
    free(a.got);
    free(b.got);
    free(c.got);
}

/* Members that leave while they are woken, the last of them too, with a source that gives up then. */
static void test_leave_at_wake(void **state)
{
    static const uint8_t key[FLIGHT_KEY_BYTES] = {1};
    (void)state;
    for (unsigned mask = 0; mask < 16; mask++) {
        struct flight_table *table = flight_table_create(2);
        struct reader readers[4];
        struct flight *flight = NULL;
        unsigned stay = 0;
        lefts = 0;
        for (unsigned i = 0; i < 4; i++) {
            reader_init(&readers[i], false);
            if (i == 0)
                flight = flight_open(table, key, 1000, &source, &readers[i].member);
            else
                flight_join(flight, &readers[i].member);
            read_some(&readers[i], 1);
            readers[i].leave_at_wake = mask >> i & 1;
            stay += !(mask >> i & 1);
        }
        left_flight = flight;
        (void)flight_append(flight, "x", 1, FLIGHT_KEEP);
        assert_int_equal(lefts, stay == 0);
        if (stay > 0) {
            left_flight = NULL;
            flight_finish(flight, FLIGHT_WHOLE);
            flight_release(flight);
        }
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(readers[i].bytes, !(mask >> i & 1));
            if (readers[i].member.flight)
                flight_leave(&readers[i].member);
            free(readers[i].got);
        }
        assert_int_equal(flight_table_n(table), 0);
        flight_table_destroy(table);
    }
}

static void test_whole(void **state)
{
    static const uint8_t key[FLIGHT_KEY_BYTES] = {7};
    struct flight_table *table = flight_table_create(10);
    struct flight *flight;
    struct flight_piece piece;
    (void)state;
    assert_non_null(table);
    flight = flight_open(table, key, 1000, &source, NULL);
    assert_non_null(flight);
    assert_null(flight_first(flight));
    assert_true(flight_append(flight, "one ", 4, FLIGHT_KEEP) && flight_append(flight, "two", 3, FLIGHT_KEEP));
    assert_true(flight_whole(flight, &piece));
    assert_int_equal(piece.bytes, 7);
    assert_memory_equal(piece.data, "one two", 7);
    assert_true(flight_append(flight, ": x", 3, 0));
    assert_false(flight_whole(flight, &piece)); /* a comment is not kept */
    flight_finish(flight, FLIGHT_WHOLE);
    flight_release(flight);
    flight_table_destroy(table);
}

static void test_bounds(void **state)
{
    static const uint8_t key[FLIGHT_KEY_BYTES] = {1};
    struct flight_table *table = flight_table_create(1);
    struct reader a, b;
    struct flight *flight;
    char block[5000];
    (void)state;
    memset(block, 'x', sizeof block);
    reader_init(&a, false);
    reader_init(&b, true);
    flight = flight_open(table, key, 20000, &source, &a.member);
    read_some(&a, 1);
    flight_join(flight, &b.member);
    assert_null(flight_open(table, NULL, 20000, &source, &b.member)); /* flights_max */
    rooms = 0;
    for (unsigned i = 0; i < 20; i++) {
        assert_true(flight_append(flight, block, sizeof block, FLIGHT_KEEP));
        assert_int_equal(flight_is_complete(flight), i < 3);
        assert_int_equal(flight_find(table, key) != NULL, i < 3); /* closed */
        assert_int_equal(flight_full(flight), i * 5000 + 5000 + 16 * (i + 1) > 65536);
    }
    assert_true(flight_holds_up(flight) && flight_slowest(flight) == &b.member); /* a has read all, and waits for b */
    assert_ptr_equal(flight_context(flight), source.context);
    read_some(&b, 10);
    assert_int_equal(rooms, 0);
    read_some(&b, UINT32_MAX);
    assert_int_equal(rooms, 1);
    assert_true(!flight_full(flight) && flight_bytes(flight) <= 65536 / 2);
    assert_false(flight_holds_up(flight));
    assert_true(a.bytes == 100000 && b.bytes == 100000);
    flight_finish(flight, FLIGHT_BROKEN);
    assert_int_equal(flight_ended(flight), FLIGHT_BROKEN);
    flight_release(flight);
    flight_leave(&a.member);
    flight_leave(&b.member);
    flight_table_destroy(table);
    free(a.got);
    free(b.got);
}

enum { READERS = 40 };

static void test_random(void **state)
{
    static char model[BYTES_MAX];
    struct random random;
    (void)state;
    for (unsigned seed = 0; seed < 200; seed++) {
        static const uint8_t key[FLIGHT_KEY_BYTES] = {7};
        struct flight_table *table = flight_table_create(4);
        struct reader readers[READERS];
        struct flight *flight;
        size_t bytes = 0;
        unsigned n = 1;
        random_init(&random, seed);
        reader_init(&readers[0], random_below(&random, 2));
        flight = flight_open(table, key, random_below(&random, 2) ? 1u << 20 : 3000, &source, &readers[0].member);
        for (unsigned step = 0; step < 300; step++) {
            uint64_t what = random_below(&random, 10);
            struct reader *one = &readers[random_below(&random, n)];
            if (what < 4) {
                size_t more = 1 + random_below(&random, 900);
                for (size_t i = 0; i < more; i++)
                    model[bytes + i] = (char)random_next(&random);
                assert_true(flight_append(flight, model + bytes, more, FLIGHT_KEEP));
                bytes += more;
            } else if (what < 8) {
                if (one->member.flight)
                    read_some(one, (unsigned)random_below(&random, 4));
            } else if (what == 8) {
                if (n < READERS && flight_find(table, key)) {
                    reader_init(&readers[n], random_below(&random, 2));
                    flight_join(flight, &readers[n++].member);
                }
            } else if (one->member.flight && flight_members(flight) > 1) {
                flight_leave(&one->member);
            }
        }
        flight_finish(flight, FLIGHT_WHOLE);
        for (unsigned i = 0; i < n; i++) {
            if (readers[i].member.flight) {
                read_some(&readers[i], UINT32_MAX);
                assert_int_equal(readers[i].bytes, bytes);
            }
            assert_memory_equal(readers[i].got, model, readers[i].bytes);
        }
        flight_release(flight);
        for (unsigned i = 0; i < n; i++) {
            if (readers[i].member.flight)
                flight_leave(&readers[i].member);
            free(readers[i].got);
        }
        assert_int_equal(flight_table_n(table), 0);
        flight_table_destroy(table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_joined), cmocka_unit_test(test_leave_at_wake),
                                       cmocka_unit_test(test_whole), cmocka_unit_test(test_bounds),
                                       cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
