/*
 * test_vectors_live.c - a field that is written to and searched at the same time, while the store seals and merges.
 *
 * One thread puts, changes and removes documents, as the index's write lock has it; the other searches among groups of
 * them. Whatever an answer's documents were when the search began: they belong to the group, none comes twice, and a
 * document that stays as it is and is the query itself is always found, at distance 0.
 */
#include "io/random.h"
#include "tests/document/support_vectors.h"
#include "tests/sanitized.h"
#include <pthread.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { DOCUMENTS = 4000, STEADY = 500, GROUPS = 5, WRITES = SANITIZED ? 12000 : 40000 };

struct live {
    struct world world;
    pthread_rwlock_t lock;                        /* the index's */
    uint32_t document_of[WRITES + DOCUMENTS + 2]; /* by id */
    atomic_bool stop;
    unsigned failures;
};

static void change(struct live *l, uint32_t document, uint32_t version)
{
    struct world *w = &l->world;
    pthread_rwlock_wrlock(&l->lock);
    uint32_t id = w->next_id;
    int rc = version ? world_put(w, document, version) : world_remove(w, document);
    if (version)
        l->document_of[id] = document;
    l->failures += rc < 0;
    pthread_rwlock_unlock(&l->lock);
}

/* Until the store has sealed again, or it takes too long: so that writes fall into several of them. */
static void wait_for_seal(struct live *l, uint64_t seals)
{
    struct vectors_stats stats = {.seals = seals};
    for (unsigned i = 0; i < 2000 && stats.seals <= seals; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        vectors_get_stats(l->world.vectors, &stats);
    }
}

static void *write_always(void *context)
{
    struct live *l = context;
    struct random random;
    random_init(&random, 9);
    for (uint32_t i = 0, n = 0; i < WRITES; i++) {
        if (i / (WRITES / 8) > n) {
            struct vectors_stats stats;
            vectors_get_stats(l->world.vectors, &stats);
            wait_for_seal(l, stats.seals);
            n++;
        }
        uint32_t document = STEADY + (uint32_t)random_below(&random, DOCUMENTS - STEADY), version;
        version = l->world.documents[document].version;
        switch (random_below(&random, 4)) {
        case 0:
            if (version)
                change(l, document, 0);
            break;
        case 1:
            if (version)
                change(l, document, version); /* another id */
            break;
        default:
            change(l, document, 1 + i);
        }
        if (i % 8 == 0) { /* one of those whose vectors stay gets another id */
            document = (uint32_t)random_below(&random, STEADY);
            i++;
            change(l, document, 1);
        }
    }
    atomic_store(&l->stop, true);
    return NULL;
}

static roaring_bitmap_t *group_of(const struct live *l, uint32_t group)
{
    roaring_bitmap_t *set = roaring_bitmap_create();
    assert_non_null(set);
    for (uint32_t i = group; i < DOCUMENTS; i += GROUPS)
        if (l->world.documents[i].version)
            roaring_bitmap_add(set, l->world.documents[i].id);
    return set;
}

struct asked {
    struct vectors_search search;
    uint32_t ids[64], n;
    double nearest;
    bool done;
};

static void on_answer(struct vectors_search *search)
{
    struct asked *a = search->owner;
    a->n = search->code < 0 ? 0 : search->n;
    memcpy(a->ids, search->ids, sizeof *a->ids * a->n);
    a->nearest = a->n ? search->distances[0] : -1;
    a->done = true;
}

static void search_group(struct live *l, uint32_t steady)
{
    struct world *w = &l->world;
    float query[WORLD_DIM];
    struct asked a = {.done = false};
    world_vector(w, steady, 1, query);
    pthread_rwlock_rdlock(&l->lock);
    roaring_bitmap_t *set = group_of(l, steady % GROUPS);
    a.search = (struct vectors_search){
        .vectors = w->vectors, .query = query, .allowed = set, .k = 20, .done = on_answer, .owner = &a};
    int rc = vectors_search_start(w->searcher, &a.search, NULL);
    pthread_rwlock_unlock(&l->lock);
    assert_int_equal(rc, 0);
    roaring_bitmap_free(set); /* it is looked at during the start only */
    while (!a.done)
        engine_poll(w->engine, 1, 10000000);
    searcher_drop_retired(w->searcher);
    assert_int_equal(a.search.code, 0);
    assert_true(a.n > 0 && a.nearest == 0);
    pthread_rwlock_rdlock(&l->lock);
    bool found = false;
    for (uint32_t i = 0; i < a.n; i++) {
        assert_int_equal(l->document_of[a.ids[i]] % GROUPS, steady % GROUPS);
        found |= l->document_of[a.ids[i]] == steady;
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(l->document_of[a.ids[i]], l->document_of[a.ids[k]]);
    }
    pthread_rwlock_unlock(&l->lock);
    assert_true(found);
}

static void writes_and_searches_at_once(void **state)
{
    struct live *l = calloc(1, sizeof *l);
    struct schema_vector what = world_field(SCHEMA_L2, SCHEMA_FLOAT32);
    char *folder = support_folder_make();
    char *path = support_path(folder, "data");
    pthread_t writer;
    uint32_t n = 0;
    (void)state;
    assert_non_null(l);
    pthread_rwlock_init(&l->lock, NULL);
    world_begin(&l->world, NULL, path, DOCUMENTS, &what, true);
    for (uint32_t i = 0; i < DOCUMENTS; i++)
        change(l, i, 1);
    assert_int_equal(pthread_create(&writer, NULL, write_always, l), 0);
    for (; !atomic_load(&l->stop); n++)
        search_group(l, n * 7 % STEADY);
    pthread_join(writer, NULL);
    assert_int_equal(l->failures, 0);
    assert_true(n > 10);
    struct vectors_stats stats;
    vectors_get_stats(l->world.vectors, &stats);
    fprintf(stderr, "%u searches, %llu seals, %llu merges\n", n, (unsigned long long)stats.seals,
            (unsigned long long)stats.merges);
    assert_true(world_is_whole(&l->world));
    world_close(&l->world);
    assert_int_equal(world_open(&l->world), 0);
    assert_true(world_is_whole(&l->world));
    world_end(&l->world);
    pthread_rwlock_destroy(&l->lock);
    free(l);
    free(path);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(writes_and_searches_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
