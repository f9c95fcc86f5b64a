/*
 * test_vectors.c - vector fields against a computation over all documents: random sets of ids, updates, removals, seals
 * and merges in between, ranges, ids that change, numbers that are given again, and folders that are opened again.
 */
#include "tests/document/support_vectors.h"
#include "tests/sanitized.h"
#include <math.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DOCUMENTS = 3000 };

static const double shares[] = {-1, 1, .5, .1, .01, .001, .0001};

static struct world *begin(const struct schema_vector *what, uint32_t n)
{
    struct world *w = malloc(sizeof *w);
    char *folder = support_folder_make();
    char *path = support_path(folder, "data");
    assert_non_null(w);
    world_begin(w, NULL, path, n, what, false);
    free(path);
    free(folder);
    return w;
}

static void end(struct world *w)
{
    char *folder = strndup(w->path, (size_t)(strrchr(w->path, '/') - w->path));
    world_end(w);
    support_folder_remove(folder);
    free(w);
}

static void seal(struct world *w)
{
    struct quire_error err = {0};
    if (store_seal(w->store, w->vectors->collection, &err) < 0)
        fail_msg("seal: %s", err.message);
}

static void compact(struct world *w)
{
    struct quire_error err = {0};
    if (store_compact(w->store, w->vectors->collection, &err) < 0)
        fail_msg("compact: %s", err.message);
}

static void put_range(struct world *w, uint32_t first, uint32_t n, uint32_t version)
{
    for (uint32_t i = first; i < first + n; i++)
        assert_int_equal(world_put(w, i, version), 0);
}

static void remove_range(struct world *w, uint32_t first, uint32_t n, uint32_t step)
{
    for (uint32_t i = first; i < first + n; i += step)
        if (w->documents[i].version)
            assert_int_equal(world_remove(w, i), 0);
}

/* All shares; the recall over all of them. Small sets are exact. Of few neighbours segments are asked for their shares
 * of them. */
static void check_shares(struct world *w, const char *when)
{
    for (uint32_t k = 1; k <= 3; k++) {
        double recall = world_recall(w, .7, k, SANITIZED_SIZE(40, 20), 5);
        if (recall < .9)
            fail_msg("%s: recall %.3f of the %u nearest", when, recall, k);
    }
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double recall = world_recall(w, shares[i], 10, SANITIZED_SIZE(20, 10), 17 + i);
        double least = shares[i] >= 0 && shares[i] <= .01 ? 1 : .93;
        if (recall < least)
            fail_msg("%s: recall %.3f of a share of %g", when, recall, shares[i]);
    }
}

static void searches_find_what_there_is(enum schema_metric metric, enum schema_element element)
{
    struct schema_vector what = world_field(metric, element);
    struct world *w = begin(&what, DOCUMENTS);
    check_shares(w, "empty");
    put_range(w, 0, 200, 1);
    check_shares(w, "few rows");
    put_range(w, 200, 600, 1);
    seal(w);
    put_range(w, 700, 200, 2);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        assert_true(world_recall(w, shares[i], 10, 20, i) == 1); /* of few documents all are compared */
    put_range(w, 200, 1300, 3);
    check_shares(w, "in memory");
    seal(w);
    check_shares(w, "sealed");
    put_range(w, 1500, 1500, 1);
    put_range(w, 0, 400, 4);
    remove_range(w, 300, 1500, 3);
    check_shares(w, "sealed and in memory");
    seal(w);
    put_range(w, 700, 300, 3);
    remove_range(w, 0, 100, 1);
    check_shares(w, "two segments and memory");
    compact(w);
    check_shares(w, "merged");
    assert_true(world_is_whole(w));
    assert_int_equal(world_open((world_close(w), w)), 0);
    assert_true(world_is_whole(w));
    check_shares(w, "opened again");
    put_range(w, 50, 500, 4);
    check_shares(w, "and written to");
    assert_true(world_is_whole(w));
    end(w);
}

static void cosine_of_floats(void **state)
{
    (void)state;
    searches_find_what_there_is(SCHEMA_COSINE, SCHEMA_FLOAT32);
}

static void squared_l2_of_floats(void **state)
{
    (void)state;
    searches_find_what_there_is(SCHEMA_L2, SCHEMA_FLOAT32);
}

static void products_of_floats(void **state)
{
    (void)state;
    searches_find_what_there_is(SCHEMA_IP, SCHEMA_FLOAT32);
}

static void other_elements(void **state)
{
    (void)state;
    static const struct {
        enum schema_metric metric;
        enum schema_element element;
    } others[] = {{SCHEMA_L2, SCHEMA_FLOAT16},
                  {SCHEMA_COSINE, SCHEMA_BFLOAT16},
                  {SCHEMA_COSINE, SCHEMA_FLOAT64},
                  {SCHEMA_L2, SCHEMA_INT8},
                  {SCHEMA_COSINE, SCHEMA_UINT8}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i += SANITIZED_SIZE(1, 2))
        searches_find_what_there_is(others[i].metric, others[i].element);
}

/* Under IP a table knows how long its rows are; in a batch no other can begin. */
static void rows_that_get_longer(void **state)
{
    struct schema_vector what = world_field(SCHEMA_IP, SCHEMA_FLOAT32);
    struct world *w = begin(&what, 10);
    float query[WORLD_DIM] = {1}, vector[WORLD_DIM];
    static struct world_answer a;
    struct quire_error err = {0};
    uint64_t lsn;
    (void)state;
    for (uint32_t i = 0; i < 800; i++) {
        char key[16];
        world_vector(w, i, 1, vector);
        for (uint32_t j = 0; j < WORLD_DIM && i >= 400; j++)
            vector[j] *= 1 + (float)(i - 400) / 100; /* up to five times as long */
        vector[0] = (float)i;
        for (uint32_t j = 1; j < WORLD_DIM && i < 300; j++)
            vector[j] = 100; /* so that the first ones are long, too */
        vector[0] = i < 300 ? 0 : vector[0];
        struct vectors_put put = {.key = key,
                                  .key_bytes = (uint32_t)snprintf(key, sizeof key, "doc:%u", i),
                                  .old_id = VECTORS_NO_ID,
                                  .id = i + 1,
                                  .vector = vector};
        assert_int_equal(journal_batch_begin(store_journal(w->store), NULL), 0);
        if (vectors_put(w->vectors, &put, &err) < 0)
            fail_msg("row %u: %s", i, err.message);
        assert_int_equal(journal_batch_end(store_journal(w->store), &lsn, NULL), 0);
    }
    for (unsigned sealed = 0; sealed < 2; sealed++) {
        world_search(w, query, NULL, 10, -1, &a);
        assert_int_equal(a.n, 10);
        for (uint32_t i = 0; i < 10; i++)
            assert_true(a.ids[i] == 800 - i && a.distances[i] == 1 - (799.0 - i));
        seal(w);
    }
    /* much longer ones need a table of their own, for which there must be room before the batch */
    for (uint32_t i = 0; i < 300; i++) {
        char key[16];
        world_vector(w, i, 2, vector);
        struct vectors_put put = {.key = key,
                                  .key_bytes = (uint32_t)snprintf(key, sizeof key, "new:%u", i),
                                  .old_id = VECTORS_NO_ID,
                                  .id = 1000 + i,
                                  .vector = vector};
        vector[0] = i == 299 ? 1e6f : vector[0];
        assert_int_equal(vectors_admit(w->vectors, vector, NULL), 0);
        assert_int_equal(journal_batch_begin(store_journal(w->store), NULL), 0);
        assert_int_equal(vectors_put(w->vectors, &put, NULL), 0);
        assert_int_equal(journal_batch_end(store_journal(w->store), &lsn, NULL), 0);
    }
    world_search(w, query, NULL, 1, -1, &a);
    assert_true(a.n == 1 && a.ids[0] == 1299);
    end(w);
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

static void ranges_have_all_within(void **state)
{
    static struct world_answer a;
    static uint32_t ids[4096];
    static double distances[4096];
    struct schema_vector what = world_field(SCHEMA_L2, SCHEMA_FLOAT32);
    struct world *w = begin(&what, DOCUMENTS);
    double found = 0, wanted = 0;
    (void)state;
    put_range(w, 0, 2000, 1);
    seal(w);
    put_range(w, 2000, 800, 1);
    for (uint32_t i = 0; i < 30; i++) {
        double query[WORLD_DIM], radius = 2 + i * .3;
        roaring_bitmap_t *set = i % 3 == 0 ? NULL : world_set(w, i % 3 == 1 ? .3 : .01, i);
        world_vector(w, 5000 + i, 1, query);
        world_search(w, query, set, DOCUMENTS, radius, &a);
        assert_int_equal(a.code, 0);
        uint32_t n = world_truth(w, query, set, DOCUMENTS, radius, ids, distances);
        for (uint32_t j = 0; j < a.n; j++)
            assert_true(a.distances[j] <= radius && (j == 0 || a.distances[j - 1] <= a.distances[j]));
        assert_true(a.n <= n);
        found += a.n;
        wanted += n;
        /* a limit takes the nearest */
        world_search(w, query, set, 5, radius, &a);
        assert_true(a.n == (n < 5 ? n : 5));
        if (set)
            roaring_bitmap_free(set);
    }
    assert_true(found >= .95 * wanted && wanted > 1000);
    /* the radius is in it */
    float query[WORLD_DIM];
    world_vector(w, 77, 1, query);
    world_search(w, query, NULL, 10, 0, &a);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.ids[0], w->documents[77].id);
    assert_true(a.distances[0] == 0);
    end(w);
}

/* Segments that hold none of the nearest, and one that holds all of them. */
static void neighbours_in_one_segment(void **state)
{
    enum { SEGMENTS = 3, ROWS = 2400, K = 6 }; /* so that a segment is asked for less than K at first */
    struct schema_vector what = world_field(SCHEMA_L2, SCHEMA_FLOAT32);
    struct world *w = begin(&what, 10);
    roaring_bitmap_t *set = roaring_bitmap_create();
    static struct world_answer a;
    float vector[WORLD_DIM];
    double found = 0;
    (void)state;
    for (uint32_t i = 0; i < SEGMENTS * ROWS; i++) {
        char key[16];
        world_vector(w, i, 1, vector);
        vector[0] += 100 * (float)(i / ROWS);
        struct vectors_put put = {.key = key,
                                  .key_bytes = (uint32_t)snprintf(key, sizeof key, "doc:%u", i),
                                  .old_id = VECTORS_NO_ID,
                                  .id = i,
                                  .vector = vector};
        assert_int_equal(vectors_put(w->vectors, &put, NULL), 0);
        if (i % ROWS == ROWS - 1)
            seal(w);
        if (i % 10 != 3)
            roaring_bitmap_add(set, i);
    }
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t segment = i % SEGMENTS;
        float query[WORLD_DIM];
        struct {
            double distance;
            uint32_t id;
        } best[K + 1];
        world_vector(w, 9000 + i, 1, query);
        query[0] += 100 * (float)segment;
        for (uint32_t j = 0; j < K; j++)
            best[j].distance = 1e9;
        for (uint32_t id = segment * ROWS; id < (segment + 1) * ROWS; id++) {
            double distance = 0;
            world_vector(w, id, 1, vector);
            vector[0] += 100 * (float)segment;
            for (uint32_t j = 0; j < WORLD_DIM; j++)
                distance += ((double)vector[j] - query[j]) * ((double)vector[j] - query[j]);
            uint32_t place = K;
            while (place > 0 && distance < best[place - 1].distance)
                place--;
            if (id % 10 == 3 || place == K)
                continue;
            memmove(best + place + 1, best + place, sizeof *best * (K - 1 - place));
            best[place].distance = distance;
            best[place].id = id;
        }
        world_search(w, query, set, K, -1, &a);
        assert_int_equal(a.n, K);
        for (uint32_t j = 0; j < K; j++)
            for (uint32_t k = 0; k < K; k++)
                found += a.ids[j] == best[k].id;
    }
    struct vectors_stats stats;
    vectors_get_stats(w->vectors, &stats);
    assert_true(stats.segments == SEGMENTS && found >= .9 * 60 * K);
    roaring_bitmap_free(set);
    end(w);
}

/* ---- ids and numbers --------------------------------------------------------------------------------------------- */

static void another_id_costs_no_write(void **state)
{
    struct schema_vector what = world_field(SCHEMA_COSINE, SCHEMA_FLOAT32);
    struct world *w = begin(&what, 2000);
    (void)state;
    put_range(w, 0, 1000, 1);
    seal(w);
    put_range(w, 1000, 1000, 1);
    uint64_t lsn = collection_count(w->vectors->collection);
    for (uint32_t round = 0; round < 5; round++)
        for (uint32_t i = 0; i < 2000; i += 1 + i % 3)
            assert_true(world_touch(w, i));
    assert_int_equal(collection_count(w->vectors->collection), lsn);
    assert_true(world_is_whole(w));
    check_shares(w, "other ids");
    /* by the old id nothing is found, and nothing removed */
    roaring_bitmap_t *old = roaring_bitmap_create();
    static struct world_answer a;
    double query[WORLD_DIM];
    uint64_t removed_lsn;
    roaring_bitmap_add_range(old, 0, 1500);
    world_vector(w, 0, 1, query);
    world_search(w, query, old, 10, -1, &a);
    for (uint32_t i = 0; i < a.n; i++)
        assert_true(a.ids[i] < 1500);
    roaring_bitmap_free(old);
    assert_int_equal(vectors_remove(w->vectors, "doc:0", 5, 1, &removed_lsn, NULL), 0);
    assert_int_equal(removed_lsn, 0);
    assert_true(world_is_whole(w));
    end(w);
}

struct late {
    struct world *w;
    struct world_answer answer;
};

static void on_late(struct vectors_search *search)
{
    struct late *late = search->owner;
    late->answer.n = search->n;
    late->answer.code = search->code;
    memcpy(late->answer.ids, search->ids, sizeof(uint32_t) * search->n);
    late->answer.done = true;
}

/* A search that has begun does not answer a document that came afterwards by the number of one that went, and does
 * answer one whose id or vector changed. */
static void what_changes_during_a_search(void **state)
{
    struct schema_vector what = world_field(SCHEMA_L2, SCHEMA_FLOAT32);
    struct world *w = begin(&what, 3000);
    struct late *late = calloc(1, sizeof *late);
    (void)state;
    assert_non_null(late);
    put_range(w, 0, 1500, 1);
    seal(w);
    roaring_bitmap_t *set = world_set(w, .02, 5);
    uint32_t n_before = (uint32_t)roaring_bitmap_get_cardinality(set), went = UINT32_MAX, stays = UINT32_MAX;
    for (uint32_t i = 0; i < 1500; i++)
        if (roaring_bitmap_contains(set, w->documents[i].id)) {
            if (went == UINT32_MAX)
                went = i;
            else
                stays = i;
        }
    double query[WORLD_DIM];
    world_vector(w, went, 1, query);
    struct vectors_search search = {
        .vectors = w->vectors, .query = query, .allowed = set, .k = 100, .done = on_late, .owner = late};
    assert_int_equal(vectors_search_start(w->searcher, &search, NULL), 0);
    assert_false(late->answer.done);
    assert_int_equal(world_remove(w, went), 0);
    put_range(w, 2000, 100, 1);                  /* one of them would get its number */
    assert_int_equal(world_put(w, stays, 2), 0); /* its vector changes */
    while (!late->answer.done)
        engine_poll(w->engine, 1, 10000000);
    assert_int_equal(late->answer.code, 0);
    assert_int_equal(late->answer.n, n_before - 1);
    bool found = false;
    for (uint32_t i = 0; i < late->answer.n; i++) {
        for (uint32_t k = 2000; k < 2100; k++)
            assert_int_not_equal(late->answer.ids[i], w->documents[k].id);
        found |= late->answer.ids[i] == w->documents[stays].id;
    }
    assert_true(found);
    /* now its number is free */
    uint32_t numbers = w->vectors->table.end;
    put_range(w, 2200, 1, 1);
    assert_int_equal(w->vectors->table.end, numbers);
    roaring_bitmap_free(set);
    free(late);
    end(w);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void what_is_refused(void **state)
{
    struct schema_vector what = world_field(SCHEMA_L2, SCHEMA_FLOAT32), other = world_field(SCHEMA_IP, SCHEMA_FLOAT32);
    struct world *w = begin(&what, 100);
    struct quire_error err = {0};
    struct vectors *again;
    float vector[WORLD_DIM] = {1}, bad[WORLD_DIM] = {NAN};
    static char key[VECTORS_KEY_BYTES_MAX + 1];
    uint64_t lsn;
    (void)state;
    assert_int_equal(vectors_validate(&what, vector, sizeof vector, &err), 0);
    assert_int_equal(vectors_validate(&what, vector, sizeof vector - 4, &err), QUIRE_EDIM);
    assert_int_equal(vectors_validate(&what, bad, sizeof bad, &err), QUIRE_ENOTFINITE);
    memset(key, 'k', sizeof key);
    struct vectors_put put = {.key = key, .key_bytes = sizeof key, .old_id = VECTORS_NO_ID, .id = 1, .vector = vector};
    assert_int_equal(vectors_put(w->vectors, &put, &err), QUIRE_ERANGE);
    put.key_bytes--;
    assert_int_equal(vectors_put(w->vectors, &put, &err), 0);
    assert_int_equal(vectors_put(w->vectors, &put, &err), QUIRE_EINVALID); /* not a new id */
    assert_int_equal(vectors_admit(w->vectors, vector, &err), 0);
    assert_int_equal(vectors_open(w->store, w->uid + 5, &what, &again, &err), QUIRE_ENOTFOUND);
    assert_int_equal(vectors_open(w->store, w->uid, &other, &again, &err), QUIRE_EINVALID);
    static struct world_answer a;
    world_search(w, vector, NULL, 0, -1, &a);
    assert_int_equal(a.code, QUIRE_ERANGE);
    assert_int_equal(vectors_drop(w->vectors, &lsn, &err), 0);
    world_search(w, vector, NULL, 1, -1, &a);
    assert_int_equal(a.code, QUIRE_ECLOSED);
    put.id = 2;
    assert_int_equal(vectors_put(w->vectors, &put, &err), QUIRE_ECLOSED);
    assert_int_equal(vectors_open(w->store, w->uid, &what, &again, &err), QUIRE_ENOTFOUND);
    end(w);
}

/* Rows of documents that are not there any more go when the field is opened. */
static void rows_of_nobody_go(void **state)
{
    struct schema_vector what = world_field(SCHEMA_L2, SCHEMA_FLOAT32);
    struct world *w = begin(&what, 1200);
    float vector[WORLD_DIM] = {1};
    (void)state;
    put_range(w, 0, 1100, 1);
    /* without its document's record */
    for (uint32_t i = 0; i < 3; i++) {
        char key[16];
        struct vectors_put put = {.key = key,
                                  .key_bytes = (uint32_t)snprintf(key, sizeof key, "lost:%u", i),
                                  .old_id = VECTORS_NO_ID,
                                  .id = w->next_id++,
                                  .vector = vector};
        assert_int_equal(vectors_put(w->vectors, &put, NULL), 0);
        if (i == 1)
            seal(w);
    }
    world_close(w);
    assert_int_equal(world_open(w), 3);
    assert_true(world_is_whole(w));
    world_close(w);
    assert_int_equal(world_open(w), 0);
    end(w);
}

/* Documents that were not logged with their vectors: a row with another vector than its document's is written again, in
 * memory and on the disk, and no other. */
static void rows_that_differ_are_written(void **state)
{
    static const enum schema_element elements[] = {SCHEMA_FLOAT32, SCHEMA_FLOAT64, SCHEMA_FLOAT16, SCHEMA_INT8};
    (void)state;
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        struct schema_vector what = world_field(i % 2 ? SCHEMA_L2 : SCHEMA_COSINE, elements[i]);
        struct world *w = begin(&what, 1500);
        put_range(w, 0, 1200, 1);
        seal(w);
        put_range(w, 1200, 300, 1);
        put_range(w, 0, 20, 2);
        w->compares = true;
        world_close(w);
        assert_int_equal(world_open(w), 0);
        assert_true(world_is_whole(w));
        w->n_differ = 40;
        world_close(w);
        assert_int_equal(world_open(w), 40);
        assert_true(world_is_whole(w));
        end(w);
    }
}

/* Names that no segment keeps in memory. */
static void long_keys(void **state)
{
    struct schema_vector what = world_field(SCHEMA_L2, SCHEMA_FLOAT32);
    struct world *w = begin(&what, 10);
    char key[300];
    float vector[WORLD_DIM];
    static struct world_answer a;
    (void)state;
    memset(key, 'x', sizeof key);
    for (uint32_t i = 0; i < 1500; i++) {
        memcpy(key + 200, &i, sizeof i);
        world_vector(w, i, 1, vector);
        struct vectors_put put = {
            .key = key, .key_bytes = sizeof key, .old_id = VECTORS_NO_ID, .id = i + 1, .vector = vector};
        assert_int_equal(vectors_put(w->vectors, &put, NULL), 0);
    }
    seal(w);
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t lsn;
        memcpy(key + 200, &i, sizeof i);
        assert_int_equal(vectors_remove(w->vectors, key, sizeof key, i + 1, &lsn, NULL), 0);
        assert_true(lsn > 0);
    }
    assert_int_equal(collection_count(w->vectors->collection), 1400);
    for (uint32_t i = 100; i < 1500; i += 100) {
        roaring_bitmap_t *set = roaring_bitmap_create();
        roaring_bitmap_add(set, i + 1);
        world_vector(w, i, 1, vector);
        world_search(w, vector, set, 3, -1, &a);
        assert_true(a.n == 1 && a.ids[0] == i + 1 && a.distances[0] == 0);
        roaring_bitmap_free(set);
    }
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosine_of_floats),
        cmocka_unit_test(squared_l2_of_floats),
        cmocka_unit_test(products_of_floats),
        cmocka_unit_test(other_elements),
        cmocka_unit_test(rows_that_get_longer),
        cmocka_unit_test(ranges_have_all_within),
        cmocka_unit_test(neighbours_in_one_segment),
        cmocka_unit_test(another_id_costs_no_write),
        cmocka_unit_test(what_changes_during_a_search),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(rows_of_nobody_go),
        cmocka_unit_test(rows_that_differ_are_written),
        cmocka_unit_test(long_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
