/*
 * test_lease_threads.c - leases under eight threads, held against what must be true in any order of events.
 *
 * Every thread has waiters of its own and asks, answers, fails, leaves and moves the clock at random; some wakes answer
 * or fail from inside. Held:
 *  - who was told LEASE_WAITING is woken exactly once, or has cancelled and is never woken;
 *  - a question has one leader: two tokens that were granted for it are never in force at the same time;
 *  - at the end nobody waits, and the counters agree with what the threads counted.
 */
#include "cache/guard/text.h"
#include "cache/lease/lease.h"
#include "io/random.h"
#include "tests/sanitized.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define THREADS   8u
#define PEOPLE    24u /* per thread */
#define STEPS     (SANITIZED ? 60000u : 300000u)
#define GROUPS    2u
#define HASHES    6u
#define QUESTIONS (GROUPS * HASHES)
#define DIM       8u

/* The last leader of each question that was heard of. */
struct throne {
    pthread_mutex_t lock;
    char token[LEASE_TOKEN_BYTES];
};

struct world {
    struct lease_table *table;
    atomic_ullong clock_ms;
    struct throne thrones[QUESTIONS];
    float vectors[QUESTIONS][DIM];
    pthread_barrier_t start;
    atomic_uint two_leaders, woken_twice, woken_unasked, woken_late;
};

enum { IDLE, ASKING, WAITING, WOKEN, CANCELLED };

struct person {
    struct lease_waiter waiter;
    struct world *world;
    unsigned question;
    bool reckless; /* acts from inside of wake */
    atomic_int state, how;
    char token[LEASE_TOKEN_BYTES]; /* "": leads nothing */
};

struct worker {
    struct world *world;
    struct random random;
    struct person people[PEOPLE];
    uint64_t granted, waits, wakes, cancels, full;
};

/* A token for `question` has come. Both in force, of which the later look says that the younger was in force before
 * the earlier one: two leaders. */
static void enthrone(struct world *world, unsigned question, const char *token)
{
    struct throne *throne = world->thrones + question;
    pthread_mutex_lock(&throne->lock);
    uint64_t now_ms = atomic_load(&world->clock_ms);
    if (throne->token[0] && lease_look(world->table, text_of(throne->token), now_ms, NULL, NULL) == LEASE_VALID &&
        lease_look(world->table, text_of(token), now_ms, NULL, NULL) == LEASE_VALID)
        atomic_fetch_add(&world->two_leaders, 1);
    memcpy(throne->token, token, LEASE_TOKEN_BYTES);
    pthread_mutex_unlock(&throne->lock);
}

static void on_wake(struct lease_waiter *waiter, enum lease_wake how)
{
    struct person *person = waiter->owner;
    struct world *world = person->world;
    bool led;
    atomic_store(&person->how, (int)how);
    if (how == LEASE_LEAD) {
        enthrone(world, person->question, waiter->token);
        if (person->reckless && person->question % 2)
            lease_done(world->table, text_of(waiter->token));
        else if (person->reckless)
            lease_fail(world->table, text_of(waiter->token), atomic_load(&world->clock_ms), &led);
    }
    int before = atomic_exchange(&person->state, WOKEN);
    if (before == WOKEN)
        atomic_fetch_add(&world->woken_twice, 1);
    else if (before == CANCELLED)
        atomic_fetch_add(&world->woken_late, 1);
    else if (before == IDLE)
        atomic_fetch_add(&world->woken_unasked, 1);
}

static void step_ask(struct worker *worker, struct person *person)
{
    struct world *world = worker->world;
    unsigned group = (unsigned)random_below(&worker->random, GROUPS);
    unsigned hash = (unsigned)random_below(&worker->random, HASHES);
    bool near = random_below(&worker->random, 3) != 0, wants = random_below(&worker->random, 8) != 0;
    uint64_t deadline_ms;
    person->question = group * HASHES + hash;
    person->reckless = random_below(&worker->random, 4) == 0;
    struct lease_question question = {.group = group,
                                      .exact = {hash + 1, 0},
                                      .vector = near ? world->vectors[person->question] : NULL,
                                      .nearness = 0.6f,
                                      .now_ms = atomic_load(&world->clock_ms),
                                      .lease_ms = 1 + random_below(&worker->random, 40),
                                      .epoch = 1};
    atomic_store(&person->state, ASKING);
    switch (lease_ask(world->table, &question, wants, &person->waiter, random_below(&worker->random, 60), person->token,
                      &deadline_ms)) {
    case LEASE_GRANTED:
        worker->granted++;
        enthrone(world, person->question, person->token);
        atomic_store(&person->state, IDLE);
        break;
    case LEASE_WAITING:
        worker->waits++;
        int expected = ASKING; /* it may be woken already */
        atomic_compare_exchange_strong(&person->state, &expected, WAITING);
        break;
    case LEASE_FULL:
        worker->full++;
        atomic_store(&person->state, IDLE);
        break;
    case LEASE_TAKEN:
        atomic_store(&person->state, IDLE);
    }
}

static void step_leave(struct worker *worker, struct person *person)
{
    if (!lease_cancel(worker->world->table, &person->waiter))
        return; /* the wake is on its way */
    worker->cancels++;
    atomic_store(&person->state, CANCELLED);
}

/* Once a wake has come, its person may lead. */
static void collect(struct worker *worker, struct person *person)
{
    worker->wakes++;
    if (atomic_load(&person->how) == LEASE_LEAD && !person->reckless)
        memcpy(person->token, person->waiter.token, LEASE_TOKEN_BYTES);
    atomic_store(&person->state, IDLE);
}

static void step_lead(struct worker *worker, struct person *person)
{
    struct world *world = worker->world;
    bool led;
    switch (random_below(&worker->random, 4)) {
    case 0:
        lease_done(world->table, text_of(person->token));
        break;
    case 1:
        lease_fail(world->table, text_of(person->token), atomic_load(&world->clock_ms), &led);
        break;
    case 2:
        lease_done_exact(world->table, person->question / HASHES, (struct hash128){person->question % HASHES + 1, 0});
        break;
    default: /* forgets about it */
        break;
    }
    person->token[0] = 0;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct world *world = worker->world;
    pthread_barrier_wait(&world->start);
    for (unsigned i = 0; i < STEPS; i++) {
        struct person *person = worker->people + random_below(&worker->random, PEOPLE);
        int state = atomic_load(&person->state);
        if (state == WOKEN)
            collect(worker, person);
        else if (state == WAITING && random_below(&worker->random, 4) == 0)
            step_leave(worker, person);
        else if ((state == IDLE || state == CANCELLED) && person->token[0])
            step_lead(worker, person);
        else if (state == IDLE || state == CANCELLED)
            step_ask(worker, person);
        if (random_below(&worker->random, 16) == 0)
            lease_tick(world->table, atomic_fetch_add(&world->clock_ms, 1) + 1);
        if (random_below(&worker->random, 32) == 0)
            sched_yield(); /* so that two cores mix eight threads */
    }
    return NULL;
}

static struct world *world_new(const struct lease_options *options)
{
    struct world *world = calloc(1, sizeof *world);
    struct quire_error err;
    assert_non_null(world);
    assert_int_equal(lease_table_create(options, &world->table, &err), 0);
    pthread_barrier_init(&world->start, NULL, THREADS);
    for (unsigned q = 0; q < QUESTIONS; q++) {
        pthread_mutex_init(&world->thrones[q].lock, NULL);
        world->vectors[q][q % 3] = 0.8f; /* every hash of a group has another one near it, at 0.64 */
        world->vectors[q][3 + q % HASHES / 3] = 0.6f;
    }
    return world;
}

static void test_any_order(void **state)
{
    (void)state;
    const struct lease_options options = {.dim = DIM, .leases_max = 8, .waiters_max = 100, .secret = {3, 4}};
    struct world *world = world_new(&options);
    struct worker *workers = calloc(THREADS, sizeof *workers);
    pthread_t threads[THREADS];
    struct lease_stats stats;
    uint64_t granted = 0, waits = 0, wakes = 0, cancels = 0, full = 0;
    assert_non_null(workers);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].world = world;
        random_init(&workers[i].random, i);
        for (unsigned j = 0; j < PEOPLE; j++) {
            struct person *person = workers[i].people + j;
            person->world = world;
            person->waiter = (struct lease_waiter){.wake = on_wake, .owner = person};
        }
        assert_int_equal(pthread_create(threads + i, NULL, work, workers + i), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    lease_get_stats(world->table, &stats);
    uint64_t closed = stats.waiting;
    assert_int_equal(stats.granted + stats.handed_over, stats.in_flight + stats.done + stats.failed + stats.expired);
    lease_table_destroy(world->table);
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned j = 0; j < PEOPLE; j++) {
            struct person *person = workers[i].people + j;
            assert_int_not_equal(atomic_load(&person->state), WAITING);
            if (atomic_load(&person->state) == WOKEN)
                workers[i].wakes++;
        }
        granted += workers[i].granted, waits += workers[i].waits, wakes += workers[i].wakes;
        cancels += workers[i].cancels, full += workers[i].full;
    }
    assert_int_equal(world->two_leaders, 0);
    assert_int_equal(world->woken_twice, 0);
    assert_int_equal(world->woken_late, 0);
    assert_int_equal(world->woken_unasked, 0);
    assert_int_equal(waits, wakes + cancels);
    assert_int_equal(wakes, stats.woken + stats.timeouts + stats.handed_over + closed);
    assert_int_equal(granted, stats.granted);
    assert_int_equal(full, stats.refused);
    /* every way was taken */
    assert_true(granted > 100 && stats.handed_over > 100 && stats.done > 100 && stats.failed > 100);
    assert_true(stats.expired > 100 && stats.timeouts > 100 && stats.woken > 100 && cancels > 100);
    pthread_barrier_destroy(&world->start);
    free(workers);
    free(world);
}

/* ---- a thousand at once ------------------------------------------------------------------------------------------ */

#define CLIENTS 1000u /* of all threads together */

struct crowd {
    struct lease_table *table;
    struct lease_waiter waiters[CLIENTS];
    pthread_barrier_t start;
    atomic_uint granted, waiting, ready, leads, others;
    char token[LEASE_TOKEN_BYTES]; /* of who leads */
};
struct member {
    struct crowd *crowd;
    unsigned number;
};

static void on_crowd_wake(struct lease_waiter *waiter, enum lease_wake how)
{
    struct crowd *crowd = waiter->owner;
    atomic_fetch_add(how == LEASE_READY ? &crowd->ready : how == LEASE_LEAD ? &crowd->leads : &crowd->others, 1);
    if (how == LEASE_LEAD)
        memcpy(crowd->token, waiter->token, LEASE_TOKEN_BYTES);
}

static void *rush(void *argument)
{
    const struct member *member = argument;
    struct crowd *crowd = member->crowd;
    float vector[DIM] = {1};
    pthread_barrier_wait(&crowd->start);
    for (unsigned i = member->number; i < CLIENTS; i += THREADS) {
        /* half ask the very same, half something near */
        struct lease_question question = {.group = 1,
                                          .exact = {1 + (i % 2 ? i : 0), 9},
                                          .vector = vector,
                                          .nearness = 0.9f,
                                          .now_ms = 1,
                                          .lease_ms = 1000};
        char token[LEASE_TOKEN_BYTES];
        uint64_t deadline_ms;
        crowd->waiters[i].wake = on_crowd_wake;
        crowd->waiters[i].owner = crowd;
        enum lease_answer answer =
            lease_ask(crowd->table, &question, true, crowd->waiters + i, 500, token, &deadline_ms);
        if (answer == LEASE_GRANTED)
            memcpy(crowd->token, token, LEASE_TOKEN_BYTES);
        atomic_fetch_add(answer == LEASE_GRANTED   ? &crowd->granted
                         : answer == LEASE_WAITING ? &crowd->waiting
                                                   : &crowd->others,
                         1);
    }
    return NULL;
}

static void test_a_thousand_at_once(void **state)
{
    (void)state;
    const struct lease_options options = {.dim = DIM, .secret = {5, 6}};
    struct crowd *crowd = calloc(1, sizeof *crowd);
    struct member members[THREADS];
    pthread_t threads[THREADS];
    struct quire_error err;
    bool led;
    assert_non_null(crowd);
    assert_int_equal(lease_table_create(&options, &crowd->table, &err), 0);
    pthread_barrier_init(&crowd->start, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        members[i] = (struct member){crowd, i};
        assert_int_equal(pthread_create(threads + i, NULL, rush, members + i), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(crowd->granted, 1);
    assert_int_equal(crowd->waiting, CLIENTS - 1);
    assert_int_equal(lease_fail(crowd->table, text_of(crowd->token), 2, &led), LEASE_VALID);
    assert_true(led);
    assert_int_equal(crowd->leads, 1);
    assert_int_equal(crowd->ready, 0);
    assert_int_equal(lease_done(crowd->table, text_of(crowd->token)), CLIENTS - 2);
    assert_int_equal(crowd->ready, CLIENTS - 2);
    assert_int_equal(crowd->leads, 1);
    assert_int_equal(crowd->others, 0);
    lease_table_destroy(crowd->table);
    pthread_barrier_destroy(&crowd->start);
    free(crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_a_thousand_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
