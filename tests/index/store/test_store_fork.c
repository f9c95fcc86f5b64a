/*
 * test_store_fork.c - a process that forks while its store is written to, searched, sealed and merged.
 *
 * Each writer has keys of its own and keeps, for the child to see, the sum over its elements before and after the write
 * (or transaction) that is under way. The child reads the whole collection, memtables and segments, and each writer's
 * sum must be one of the two: a half write, a torn transaction or a wrong byte is neither. A child that meets a lock
 * that nobody holds any more hangs, and is ended by its alarm.
 *
 * GCC 12's address sanitizer does not make its own allocator ready for fork(): a child whose parent had a thread in it
 * at that moment waits in malloc() for ever. Such a child, known by where its alarm finds it, is forked again.
 */
#include "index/collection/collection_export.h"
#include "index/search/search_lane.h"
#include "index/store/store_priv.h"
#include "io/clock.h"
#include "io/random.h"
#include "tests/index/support_store.h"
#include "tests/sanitized.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

enum { WRITERS = 3, SEARCHERS = 2, KEYS = 700, COLLECTIONS = 40 };
enum { FORKS = SANITIZED_SIZE(300, 40), PATIENCE_S = SANITIZED_SIZE(60, 20) };
enum { CHILD_IN_SANITIZER = 77 }; /* its exit status; child_of() has smaller ones */

static struct store *forking; /* what the handlers act on */
static uint64_t slowest_us;

static void on_prepare(void)
{
    uint64_t began = clock_us();
    if (!forking)
        return;
    store_fork_prepare(forking);
    uint64_t took = clock_us() - began;
    slowest_us = took > slowest_us ? took : slowest_us;
}

static void on_parent(void)
{
    if (forking)
        store_fork_parent(forking);
}

static void on_child(void)
{
    if (forking)
        store_fork_child(forking);
}

struct world {
    struct store *store;
    struct collection *collection;
    atomic_bool stop;
    struct writer {
        struct world *world;
        pthread_t thread;
        uint32_t number;
        struct search_lane *lane;
        struct support_model model; /* of all writers' keys, but only its own are there */
        _Atomic uint64_t before, after;
        uint64_t writes;
    } writers[WRITERS];
    struct searcher_thread {
        struct world *world;
        pthread_t thread;
        uint32_t number;
        struct search_lane *lane;
        uint64_t searches;
    } searchers[SEARCHERS];
};

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static uint64_t sum_of_bytes(const void *key, size_t key_bytes, const void *vector, const void *attributes, size_t n)
{
    uint64_t hash = XXH3_64bits_withSeed(key, key_bytes, key_bytes);
    hash = XXH3_64bits_withSeed(vector, SUPPORT_DIM * sizeof(float), hash);
    return n ? XXH3_64bits_withSeed(attributes, n, hash) : hash;
}

static uint64_t sum_of(uint32_t key, struct support_element element)
{
    char text[16], json[32];
    float vector[SUPPORT_DIM];
    if (element.version == 0)
        return 0;
    support_vector(key, element.version, vector);
    int n = element.attributes ? snprintf(json, sizeof json, "{\"n\":%u}", element.attributes) : 0;
    return sum_of_bytes(text, (size_t)snprintf(text, sizeof text, "key-%u", key), vector, json, (size_t)n);
}

struct counting {
    uint64_t sums[WRITERS], n;
};

static int count_element(void *context, const struct exported_element *element)
{
    struct counting *counting = context;
    char text[32] = "";
    unsigned key;
    memcpy(text, element->key, element->key_bytes < 31 ? element->key_bytes : 31);
    if (sscanf(text, "key-%u", &key) != 1 || key >= WRITERS * KEYS)
        return QUIRE_ECORRUPT;
    counting->sums[key / KEYS] ^=
        sum_of_bytes(element->key, element->key_bytes, element->stored, element->attributes, element->attribute_bytes);
    counting->n++;
    return 0;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void pause_a_little(void)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    nanosleep(&ms, NULL);
}

static struct support_lane lane_of(const struct search_lane *lane)
{
    return (struct support_lane){lane->engine, lane->searcher};
}

static int write_one(struct writer *w, uint32_t key, struct support_element element)
{
    struct support_lane lane = lane_of(w->lane);
    int rc;
    do
        rc = element.version
                 ? support_put(&lane, w->world->collection, &w->model, key, element.version, element.attributes, NULL)
                 : support_remove(&lane, w->world->collection, &w->model, key, NULL);
    while (rc == QUIRE_EBUSY);
    w->writes++;
    return rc;
}

/* One write, or a transaction of two. */
static int write_some(struct writer *w, struct random *random, uint32_t version)
{
    uint32_t n = random_below(random, 4) == 0 ? 2 : 1, keys[2];
    struct support_element elements[2];
    uint64_t sum = atomic_load(&w->before), lsn;
    int rc = 0;
    for (uint32_t i = 0; i < n; i++) {
        keys[i] = w->number * KEYS + (i ? (keys[0] + 1) % KEYS : (uint32_t)random_below(random, KEYS));
        elements[i] = random_below(random, 6) == 0
                          ? (struct support_element){0, 0}
                          : (struct support_element){version + i, random_below(random, 2) ? version : 0};
        sum ^= sum_of(keys[i], w->model.elements[keys[i]]) ^ sum_of(keys[i], elements[i]);
    }
    atomic_store(&w->after, sum);
    while (n == 2 && (rc = journal_batch_begin(store_journal(w->world->store), NULL)) == QUIRE_EBUSY)
        pause_a_little();
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = write_one(w, keys[i], elements[i]);
    if (n == 2)
        journal_batch_end(store_journal(w->world->store), &lsn, NULL);
    atomic_store(&w->before, sum);
    return rc;
}

static void *write_all(void *context)
{
    struct writer *w = context;
    struct random random;
    random_init(&random, 100 + w->number);
    for (uint32_t version = 1; !atomic_load(&w->world->stop); version += 2) {
        int rc = write_some(w, &random, version);
        if (rc < 0)
            fprintf(stderr, "writer %u: %s\n", w->number, quire_error_text(rc));
        if (rc < 0)
            abort();
        if (version % 16 == 1)
            pause_a_little();
    }
    return NULL;
}

static void on_hits(struct collection_search *search)
{
    *(bool *)search->owner = true;
}

/* A search for what some element has been: hits in ascending order, names that are somebody's. */
static void *search_all(void *context)
{
    struct searcher_thread *s = context;
    struct random random;
    random_init(&random, 200 + s->number);
    while (!atomic_load(&s->world->stop)) {
        float query[SUPPORT_DIM];
        bool done = false;
        struct collection_search search = {
            .collection = s->world->collection, .query = query, .done = on_hits, .owner = &done};
        quire_search_options_init(&search.options);
        search.options.k = 10;
        support_vector((uint32_t)random_below(&random, WRITERS * KEYS), 1, query);
        int rc = collection_search_start(s->lane->searcher, &search, NULL);
        if (rc == 0)
            search_lane_run(s->lane, &done);
        if (rc < 0 || search.code < 0) {
            fprintf(stderr, "search: %s\n", rc < 0 ? quire_error_text(rc) : search.error.message);
            abort();
        }
        for (uint32_t i = 0; i < search.n_hits; i++)
            if (search.hits[i].key_bytes < 5 || memcmp(search.hits[i].key, "key-", 4) != 0 ||
                (i > 0 && search.hits[i].distance < search.hits[i - 1].distance))
                abort();
        searcher_drop_retired(s->lane->searcher);
        s->searches++;
        pause_a_little();
    }
    return NULL;
}

/* Everything is written anew, again and again. */
static void *seal_all(void *context)
{
    struct world *world = context;
    for (unsigned i = 0; !atomic_load(&world->stop); i++) {
        struct quire_error err = {0};
        int rc = i % 3 == 2 ? store_compact(world->store, world->collection, &err)
                            : store_seal(world->store, world->collection, &err);
        if (rc < 0) {
            fprintf(stderr, "seal: %s\n", err.message);
            abort();
        }
    }
    return NULL;
}

/* ---- children ---------------------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__)
/* The child's patience is over: is it the sanitizer that waits? Its library is where the instruction is. */
static void on_alarm(int number, siginfo_t *info, void *context)
{
    const ucontext_t *at = context;
    Dl_info found;
#if defined(__x86_64__)
    void *pc = (void *)at->uc_mcontext.gregs[REG_RIP];
#else
    void *pc = (void *)at->uc_mcontext.pc;
#endif
    (void)info;
    if (dladdr(pc, &found) != 0 && found.dli_fname && strstr(found.dli_fname, "libasan"))
        _exit(CHILD_IN_SANITIZER);
    signal(number, SIG_DFL);
    raise(number);
}
#endif

static void be_patient(void)
{
#if defined(__SANITIZE_ADDRESS__)
    const struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &action, NULL);
#endif
    alarm(PATIENCE_S);
}

/* A number for what was wrong; 0: nothing. */
static int child_of(struct world *world)
{
    struct counting counting = {.n = 0};
    struct quire_error err = {0};
    float vector[SUPPORT_DIM] = {1};
    if (collection_export_all(world->collection, count_element, &counting, &err) < 0) {
        fprintf(stderr, "child: %s\n", err.message);
        return 1;
    }
    for (unsigned i = 0; i < WRITERS; i++)
        if (counting.sums[i] != atomic_load(&world->writers[i].before) &&
            counting.sums[i] != atomic_load(&world->writers[i].after)) {
            fprintf(stderr, "child: writer %u's elements are neither those before its write nor those after it\n", i);
            return 2;
        }
    struct collection *found = store_find(world->store, collection_uid(world->collection));
    if (found != world->collection)
        return 3;
    struct collection_put put = {.key = "key-1", .key_bytes = 5, .vector = vector};
    collection_locate_now(found, put.key, put.key_bytes, &put.located);
    if (collection_put(found, &put, &err) != QUIRE_ECLOSED)
        return 4;
    return 0;
}

static void forks_under_load(struct world *world, unsigned n)
{
    uint64_t began = clock_us();
    unsigned again = 0;
    for (unsigned i = 0; i < n;) {
        int status = -1;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            be_patient();
            _exit(child_of(world));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
            fail_msg("child %u of %u hangs", i, n);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == CHILD_IN_SANITIZER) {
            assert_true(again++ < n / 4);
            continue;
        }
        assert_int_equal(WEXITSTATUS(status), 0);
        i++;
    }
    if (again)
        fprintf(stderr, "%u children waited in the sanitizer's allocator and were forked again\n", again);
    fprintf(stderr, "%u forks in %.1f s, the longest wait for locks %llu us\n", n, (double)(clock_us() - began) * 1e-6,
            (unsigned long long)slowest_us);
}

static void children_read_what_was_there(void **in)
{
    char **path = (char **)in;
    struct world world = {.stop = false};
    struct store_options options = {.memtable_bytes = 256u << 10, .segments_max = 100, .no_priorities = true};
    struct collection *others[COLLECTIONS];
    struct quire_error err = {0};
    pthread_t sealer;
    world.store = support_store_open(*path, &options);
    world.collection = support_create(world.store);
    for (unsigned i = 0; i < COLLECTIONS; i++)
        others[i] = support_create(world.store);
    forking = world.store;
    for (uint32_t i = 0; i < WRITERS; i++) {
        struct writer *w = &world.writers[i];
        w->world = &world;
        w->number = i;
        support_model_init(&w->model, WRITERS * KEYS);
        assert_int_equal(search_lane_create(QUIRE_ENGINE_AUTO, 0, 4, &w->lane, &err), 0);
        assert_int_equal(pthread_create(&w->thread, NULL, write_all, w), 0);
    }
    for (uint32_t i = 0; i < SEARCHERS; i++) {
        struct searcher_thread *s = &world.searchers[i];
        s->world = &world;
        s->number = i;
        assert_int_equal(search_lane_create(QUIRE_ENGINE_AUTO, 0, 4, &s->lane, &err), 0);
        assert_int_equal(pthread_create(&s->thread, NULL, search_all, s), 0);
    }
    assert_int_equal(pthread_create(&sealer, NULL, seal_all, &world), 0);
    struct counting counting = {.n = 0};
    struct store_stats stats;
    uint64_t began = clock_us();
    do {
        forks_under_load(&world, FORKS);
        store_get_stats(world.store, &stats);
    } while ((stats.seals == 0 || stats.merges == 0) && clock_us() - began < PATIENCE_S * 1000000ull);
    atomic_store(&world.stop, true);
    pthread_join(sealer, NULL);
    for (uint32_t i = 0; i < SEARCHERS; i++) {
        pthread_join(world.searchers[i].thread, NULL);
        assert_true(world.searchers[i].searches > 0);
        search_lane_destroy(world.searchers[i].lane);
    }
    for (uint32_t i = 0; i < WRITERS; i++)
        pthread_join(world.writers[i].thread, NULL);
    assert_int_equal(collection_export_all(world.collection, count_element, &counting, &err), 0);
    for (uint32_t i = 0; i < WRITERS; i++) {
        struct writer *w = &world.writers[i];
        assert_true(w->writes > 0);
        assert_int_equal(counting.sums[i], atomic_load(&w->before));
        search_lane_destroy(w->lane);
        support_model_free(&w->model);
    }
    assert_true(stats.seals > 0 && stats.merges > 0);
    forking = NULL;
    for (unsigned i = 0; i < COLLECTIONS; i++)
        collection_unref(others[i]);
    collection_unref(world.collection);
    support_store_close(world.store);
}

/* In a transaction of the forking thread the child sees what is written so far, and nothing waits for itself. */
static void forks_within_a_transaction(void **in)
{
    char **path = (char **)in;
    struct store_options options = support_store_options(NULL);
    struct support_model model;
    struct support_lane lane;
    struct quire_error err = {0};
    uint64_t lsn;
    int status = -1;
    struct store *store = support_store_open(*path, &options);
    struct collection *c = support_create(store);
    support_model_init(&model, 4);
    support_lane_open(&lane, NULL);
    forking = store;
    assert_int_equal(journal_batch_begin(store_journal(store), &err), 0);
    assert_int_equal(support_put(&lane, c, &model, 1, 1, 0, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        struct counting counting = {.n = 0};
        be_patient();
        _exit(collection_export_all(c, count_element, &counting, NULL) < 0 || counting.n != 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(support_put(&lane, c, &model, 2, 1, 0, NULL), 0);
    assert_int_equal(journal_batch_end(store_journal(store), &lsn, &err), 0);
    assert_true(support_equal(&lane, c, &model));
    forking = NULL;
    support_lane_close(&lane);
    support_model_free(&model);
    collection_unref(c);
    support_store_close(store);
}

static int set_up(void **in)
{
    *in = support_folder_make();
    return 0;
}

static int tear_down(void **in)
{
    support_folder_remove(*in);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(children_read_what_was_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forks_within_a_transaction, set_up, tear_down),
    };
    if (pthread_atfork(on_prepare, on_parent, on_child) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
