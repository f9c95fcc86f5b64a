/*
 * test_vectors_no_memory.c - puts, removals, searches and openings that run out of memory at any of their allocations:
 * they are refused, a document whose put was refused has no vector, and everything else is as it was.
 *
 * The program's own malloc, calloc and realloc pass on to glibc's but for the one that is to fail, on the thread that
 * asked for it. Sanitizers bring their own allocators, so there the test is left out and says so.
 */
#include "tests/document/support_vectors.h"
#include "tests/sanitized.h"
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DOCUMENTS = 1500 };

static _Thread_local unsigned fail_in; /* calls; 0: none fails */

#if !SANITIZED
static bool may_allocate(void)
{
    return fail_in == 0 || --fail_in > 0;
}

#include "tests/allocator.h"
#endif

static bool is_sound(const struct world *w, uint32_t n)
{
    const char *reason;
    bool sound = vectors_table_check(&w->vectors->table, &reason);
    if (!sound)
        fprintf(stderr, "%s\n", reason);
    return sound && w->vectors->table.n_documents == n && collection_count(w->vectors->collection) == n;
}

/* One document again and again, failing at each allocation in turn; n: all others. */
static void put_with_failures(struct world *w, uint32_t document, uint32_t others)
{
    uint32_t old_id = w->documents[document].version ? w->documents[document].id : VECTORS_NO_ID;
    for (unsigned n = 1;; n++) {
        char key[16];
        float vector[WORLD_DIM];
        world_vector(w, document, 100 + n, vector);
        struct vectors_put put = {.key = key,
                                  .key_bytes = (uint32_t)snprintf(key, sizeof key, "doc:%u", document),
                                  .old_id = old_id,
                                  .id = w->next_id++,
                                  .vector = vector};
        fail_in = n;
        int rc = vectors_put(w->vectors, &put, NULL);
        bool all = fail_in > 0;
        fail_in = 0;
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && !all));
        assert_true(is_sound(w, others + (rc == 0)));
        if (rc < 0) {
            assert_int_equal(vectors_table_find(&w->vectors->table, old_id), NUMBER_NONE);
            put.id = w->next_id++; /* so that the next one replaces something */
            put.old_id = VECTORS_NO_ID;
            assert_int_equal(vectors_put(w->vectors, &put, NULL), 0);
        }
        old_id = put.id;
        w->documents[document] = (struct world_document){.version = 100 + n, .id = old_id};
        if (all)
            return;
    }
}

static void remove_with_failures(struct world *w, uint32_t document, uint32_t others)
{
    for (unsigned n = 1;; n++) {
        char key[16];
        uint32_t key_bytes = (uint32_t)snprintf(key, sizeof key, "doc:%u", document);
        uint64_t lsn;
        fail_in = n;
        int rc = vectors_remove(w->vectors, key, key_bytes, w->documents[document].id, &lsn, NULL);
        bool all = fail_in > 0;
        fail_in = 0;
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && !all));
        assert_int_equal(vectors_table_find(&w->vectors->table, w->documents[document].id), NUMBER_NONE);
        assert_int_equal(w->vectors->table.n_documents, others);
        if (all || rc == 0)
            return;
        document++; /* its row is lost until the next start: another one */
        others--;
    }
}

static void search_with_failures(struct world *w, const roaring_bitmap_t *set, double radius)
{
    static struct world_answer a;
    static uint32_t ids[4096];
    static double distances[4096];
    for (unsigned n = 1;; n++) {
        float query[WORLD_DIM];
        world_vector(w, 7, 1, query);
        fail_in = n;
        world_search(w, query, set, 5, radius, &a);
        bool all = fail_in > 0;
        fail_in = 0;
        assert_true(a.code == 0 || (a.code == QUIRE_ENOMEM && !all));
        if (a.code == 0)
            assert_int_equal(a.n, world_truth(w, query, set, 5, radius, ids, distances));
        if (all)
            return;
    }
}

static void without_memory(void **state)
{
    struct schema_vector what = world_field(SCHEMA_L2, SCHEMA_FLOAT32);
    struct world w;
    (void)state;
    if (SANITIZED) {
        print_message("a sanitizer's allocator does not fail: nothing is tested here\n");
        skip();
    }
    char *folder = support_folder_make(), *path = support_path(folder, "data");
    world_begin(&w, NULL, path, DOCUMENTS, &what, false);
    for (uint32_t i = 0; i < 1200; i++)
        assert_int_equal(world_put(&w, i, 1), 0);
    put_with_failures(&w, 3, 1199);
    put_with_failures(&w, 1300, 1200);
    assert_int_equal(store_seal(w.store, w.vectors->collection, NULL), 0);
    put_with_failures(&w, 5, 1200);
    for (uint32_t i = 0; i < 500; i++)
        if (i != 3 && i != 5)
            assert_int_equal(world_put(&w, i, 2), 0);
    roaring_bitmap_t *few = world_set(&w, .01, 1), *many = world_set(&w, .6, 1);
    search_with_failures(&w, NULL, -1);
    search_with_failures(&w, few, -1);
    search_with_failures(&w, many, -1);
    search_with_failures(&w, many, 3);
    remove_with_failures(&w, 600, 1200);
    roaring_bitmap_free(few);
    roaring_bitmap_free(many);
    world_end(&w);
    free(path);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
