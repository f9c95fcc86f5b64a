/*
 * test_lease.c - leases with a clock of the test's: who is granted one, who waits, who is woken how and in what order.
 *
 * The waiters of most tests write down how they were woken (struct person). Tokens are told apart from others' and
 * from made-up ones; SipHash is compared with the vectors of its paper.
 */
#include "cache/guard/text.h"
#include "cache/lease/lease.h"
#include "cache/lease/lease_token.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define DIM      4u
#define LEASE_MS 1000u
#define GROUP    7u

struct person {
    struct lease_waiter waiter;
    unsigned woken, order; /* how often; after how many others */
    enum lease_wake how;
};

static unsigned all_woken;

static void on_wake(struct lease_waiter *waiter, enum lease_wake how)
{
    struct person *person = waiter->owner;
    person->woken++;
    person->how = how;
    person->order = all_woken++;
}

static void be_born(struct person *person)
{
    *person = (struct person){.waiter = {.wake = on_wake, .owner = person}};
}

static struct lease_table *table_new(struct lease_options options)
{
    struct lease_table *table = NULL;
    struct quire_error err;
    if (!options.dim)
        options.dim = DIM;
    if (!options.secret[0])
        options.secret[0] = 42;
    assert_int_equal(lease_table_create(&options, &table, &err), 0);
    all_woken = 0;
    return table;
}

static const struct lease_options USUAL = {0};

static struct lease_question ask_exact(uint64_t hash, uint64_t now_ms)
{
    return (struct lease_question){
        .group = GROUP, .exact = {hash, hash != 0}, .nearness = 2, .now_ms = now_ms, .lease_ms = LEASE_MS, .epoch = 5};
}

static struct lease_question ask_near(uint64_t hash, const float *vector, float nearness)
{
    struct lease_question question = ask_exact(hash, 0);
    question.vector = vector;
    question.nearness = nearness;
    return question;
}

static enum lease_answer ask(struct lease_table *table, struct lease_question question, struct person *person,
                             uint64_t wait_ms, char *token)
{
    char unused[LEASE_TOKEN_BYTES];
    uint64_t deadline_ms = 0;
    enum lease_answer answer = lease_ask(table, &question, true, person ? &person->waiter : NULL, wait_ms,
                                         token ? token : unused, &deadline_ms);
    if (answer == LEASE_GRANTED)
        assert_int_equal(deadline_ms, question.now_ms + question.lease_ms);
    return answer;
}

static struct lease_stats stats_of(const struct lease_table *table)
{
    struct lease_stats stats;
    lease_get_stats(table, &stats);
    assert_int_equal(stats.granted + stats.handed_over, stats.in_flight + stats.done + stats.failed + stats.expired);
    return stats;
}

static enum lease_state look(struct lease_table *table, const char *token, uint64_t now_ms)
{
    return lease_look(table, text_of(token), now_ms, NULL, NULL);
}

/* ---- one flight -------------------------------------------------------------------------------------------------- */

static void test_exact_single_flight(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person people[5];
    char token[LEASE_TOKEN_BYTES];
    assert_int_equal(ask(table, ask_exact(1, 0), NULL, 0, token), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_exact(1, 0), NULL, 0, NULL), LEASE_TAKEN);
    for (unsigned i = 0; i < 5; i++) {
        be_born(people + i);
        assert_int_equal(ask(table, ask_exact(1, 1), people + i, 100, NULL), LEASE_WAITING);
    }
    assert_int_equal(ask(table, ask_exact(2, 1), NULL, 0, NULL), LEASE_GRANTED);
    assert_int_equal(lease_done(table, text_of(token)), 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(people[i].woken, 1);
        assert_int_equal(people[i].how, LEASE_READY);
        assert_int_equal(people[i].order, i);
    }
    assert_int_equal(lease_done(table, text_of(token)), 0);
    assert_int_equal(ask(table, ask_exact(1, 2), NULL, 0, NULL), LEASE_GRANTED);
    struct lease_stats stats = stats_of(table);
    assert_int_equal(stats.in_flight, 2);
    assert_int_equal(stats.granted, 3);
    assert_int_equal(stats.woken, 5);
    assert_int_equal(stats.waiting, 0);
    lease_table_destroy(table);
}

static const float EAST[DIM] = {1, 0, 0, 0}, NORTH[DIM] = {0, 1, 0, 0}, NORTH_EAST[DIM] = {0.8f, 0.6f, 0, 0};

static void test_near_single_flight(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person person;
    char east[LEASE_TOKEN_BYTES], north[LEASE_TOKEN_BYTES], token[LEASE_TOKEN_BYTES];
    be_born(&person);
    assert_int_equal(ask(table, ask_near(1, EAST, 0.9f), NULL, 0, east), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_near(2, NORTH, 0.9f), NULL, 0, north), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_near(3, NORTH_EAST, 0.75f), NULL, 0, NULL), LEASE_TAKEN);
    assert_int_equal(ask(table, ask_near(0, NORTH_EAST, 0.79f), NULL, 0, NULL), LEASE_TAKEN);
    assert_int_equal(ask(table, ask_near(3, NULL, 0.0f), NULL, 0, token), LEASE_GRANTED); /* no vector */
    assert_int_equal(lease_done(table, text_of(token)), 0);
    assert_int_equal(ask(table, ask_near(3, EAST, 1.5f), NULL, 0, token), LEASE_GRANTED); /* never near */
    assert_int_equal(lease_done(table, text_of(token)), 0);
    assert_int_equal(ask(table, ask_near(3, NORTH_EAST, 0.81f), NULL, 0, token), LEASE_GRANTED);
    assert_int_equal(lease_done(table, text_of(token)), 0);
    /* of two that are near enough, the nearer; the same hash before both */
    assert_int_equal(ask(table, ask_near(3, NORTH_EAST, 0.5f), &person, 100, NULL), LEASE_WAITING);
    assert_int_equal(lease_done(table, text_of(north)), 0);
    assert_int_equal(lease_done(table, text_of(east)), 1);
    assert_int_equal(ask(table, ask_near(1, EAST, 0.9f), NULL, 0, east), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_near(2, NORTH, 0.9f), NULL, 0, north), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_near(2, EAST, 0.9f), &person, 100, NULL), LEASE_WAITING);
    assert_int_equal(lease_done(table, text_of(east)), 0);
    assert_int_equal(lease_done(table, text_of(north)), 1);
    assert_int_equal(person.woken, 2);
    lease_table_destroy(table);
}

static void test_groups_are_apart(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    char token[LEASE_TOKEN_BYTES];
    for (uint64_t group = 0; group < 500; group++) {
        struct lease_question question = ask_near(1, EAST, 0.5f);
        question.group = group;
        assert_int_equal(ask(table, question, NULL, 0, token), LEASE_GRANTED);
        assert_int_equal(ask(table, question, NULL, 0, token), LEASE_TAKEN);
    }
    assert_int_equal(lease_done_exact(table, 500, (struct hash128){1, 1}), 0);
    assert_int_equal(stats_of(table).in_flight, 500);
    assert_int_equal(lease_done_exact(table, 3, (struct hash128){1, 1}), 0);
    assert_int_equal(stats_of(table).in_flight, 499);
    lease_table_destroy(table);
}

static void test_none_hash_is_no_question(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    assert_int_equal(ask(table, ask_exact(0, 0), NULL, 0, NULL), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_exact(0, 0), NULL, 0, NULL), LEASE_GRANTED);
    assert_int_equal(lease_done_exact(table, GROUP, (struct hash128){0, 0}), 0);
    assert_int_equal(stats_of(table).in_flight, 2);
    lease_table_destroy(table);
}

static void test_done_by_question(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person person;
    char token[LEASE_TOKEN_BYTES];
    be_born(&person);
    ask(table, ask_exact(9, 0), NULL, 0, token);
    ask(table, ask_exact(9, 0), &person, 100, NULL);
    assert_int_equal(lease_done_exact(table, GROUP, (struct hash128){9, 2}), 0);
    assert_int_equal(lease_done_exact(table, GROUP + 1, (struct hash128){9, 1}), 0);
    assert_int_equal(lease_done_exact(table, GROUP, (struct hash128){9, 1}), 1);
    assert_int_equal(person.how, LEASE_READY);
    assert_int_equal(look(table, token, 0), LEASE_DEAD);
    lease_table_destroy(table);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void test_waiter_times_out(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person first, second;
    be_born(&first);
    be_born(&second);
    assert_true(lease_tick(table, 0) == UINT64_MAX);
    ask(table, ask_exact(1, 0), NULL, 0, NULL);
    assert_int_equal(lease_tick(table, 0), LEASE_MS);
    ask(table, ask_exact(1, 0), &first, 300, NULL);
    ask(table, ask_exact(1, 0), &second, 200, NULL);
    assert_int_equal(lease_tick(table, 150), 50);
    assert_int_equal(first.woken + second.woken, 0);
    assert_int_equal(lease_tick(table, 200), 100);
    assert_int_equal(second.how, LEASE_TIMEOUT);
    assert_int_equal(first.woken, 0);
    assert_int_equal(lease_tick(table, 300), 700);
    assert_int_equal(first.how, LEASE_TIMEOUT);
    assert_int_equal(stats_of(table).timeouts, 2);
    assert_int_equal(ask(table, ask_exact(1, 300), &first, 0, NULL), LEASE_TAKEN); /* no time to wait */
    assert_true(lease_tick(table, 1000) == UINT64_MAX);
    assert_int_equal(stats_of(table).expired, 1);
    lease_table_destroy(table);
}

/* All times at once: who waits gets its miss, and is not made leader at its own last moment. */
static void test_both_due(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person late, heir;
    be_born(&late);
    be_born(&heir);
    ask(table, ask_exact(1, 0), NULL, 0, NULL);
    ask(table, ask_exact(1, 0), &late, LEASE_MS, NULL);
    ask(table, ask_exact(1, 0), &heir, LEASE_MS + 1, NULL);
    assert_int_equal(lease_tick(table, LEASE_MS), LEASE_MS);
    assert_int_equal(late.how, LEASE_TIMEOUT);
    assert_int_equal(heir.how, LEASE_LEAD);
    assert_int_equal(heir.waiter.token_deadline_ms, 2 * LEASE_MS);
    lease_table_destroy(table);
}

static void test_expired_without_tick(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person person;
    char old[LEASE_TOKEN_BYTES], token[LEASE_TOKEN_BYTES];
    bool led = true;
    be_born(&person);
    ask(table, ask_exact(1, 0), NULL, 0, old);
    assert_int_equal(look(table, old, LEASE_MS - 1), LEASE_VALID);
    assert_int_equal(look(table, old, LEASE_MS), LEASE_DEAD);
    assert_int_equal(lease_fail(table, text_of(old), LEASE_MS, &led), LEASE_DEAD);
    assert_false(led);
    assert_int_equal(ask(table, ask_exact(1, LEASE_MS), NULL, 0, token), LEASE_GRANTED);
    assert_int_equal(stats_of(table).expired, 1);
    assert_int_equal(stats_of(table).in_flight, 1);
    assert_int_equal(look(table, old, 0), LEASE_DEAD);
    /* with somebody who waits it is the tick that decides, and until then an answer is welcome */
    ask(table, ask_exact(1, LEASE_MS), &person, 5 * LEASE_MS, NULL);
    assert_int_equal(ask(table, ask_exact(1, 3 * LEASE_MS), NULL, 0, NULL), LEASE_TAKEN);
    assert_int_equal(lease_done(table, text_of(token)), 1);
    assert_int_equal(person.how, LEASE_READY);
    lease_table_destroy(table);
}

static void test_times_do_not_overflow(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person person;
    be_born(&person);
    struct lease_question question = ask_exact(1, 1000);
    question.lease_ms = UINT64_MAX;
    char token[LEASE_TOKEN_BYTES];
    uint64_t deadline_ms;
    assert_int_equal(lease_ask(table, &question, true, NULL, 0, token, &deadline_ms), LEASE_GRANTED);
    assert_true(deadline_ms == UINT64_MAX);
    assert_int_equal(ask(table, question, &person, UINT64_MAX, NULL), LEASE_WAITING);
    assert_true(lease_tick(table, 1u << 31) == UINT64_MAX);
    assert_int_equal(person.woken, 0);
    question = ask_exact(2, 1000);
    question.lease_ms = 0; /* taken as 1 */
    assert_int_equal(lease_ask(table, &question, true, NULL, 0, token, &deadline_ms), LEASE_GRANTED);
    assert_int_equal(deadline_ms, 1001);
    lease_table_destroy(table);
    assert_int_equal(person.how, LEASE_CLOSED);
}

/* ---- hand-over --------------------------------------------------------------------------------------------------- */

/* Leaders fail one after the other until nobody is left. */
static void test_chain_of_failures(void **state)
{
    (void)state;
    enum { PEOPLE = 6 };
    struct lease_table *table = table_new(USUAL);
    struct person people[PEOPLE];
    char token[LEASE_TOKEN_BYTES], before[LEASE_TOKEN_BYTES];
    bool led;
    ask(table, ask_exact(1, 0), NULL, 0, token);
    for (unsigned i = 0; i < PEOPLE; i++) {
        be_born(people + i);
        ask(table, ask_exact(1, 0), people + i, 100000, NULL);
    }
    for (unsigned i = 0; i < PEOPLE; i++) {
        memcpy(before, token, sizeof token);
        assert_int_equal(lease_fail(table, text_of(token), 10 + i, &led), LEASE_VALID);
        assert_true(led);
        assert_int_equal(people[i].how, LEASE_LEAD);
        assert_int_equal(people[i].order, i);
        assert_int_equal(people[i].waiter.token_deadline_ms, 10 + i + LEASE_MS);
        assert_int_equal(look(table, before, 10 + i), LEASE_DEAD);
        assert_int_equal(lease_fail(table, text_of(before), 10 + i, &led), LEASE_DEAD);
        memcpy(token, people[i].waiter.token, sizeof token);
        assert_int_equal(look(table, token, 10 + i), LEASE_VALID);
    }
    assert_int_equal(all_woken, PEOPLE);
    assert_int_equal(lease_fail(table, text_of(token), 20, &led), LEASE_VALID);
    assert_false(led);
    assert_int_equal(stats_of(table).in_flight, 0);
    assert_int_equal(stats_of(table).handed_over, PEOPLE);
    assert_int_equal(stats_of(table).failed, PEOPLE + 1);
    lease_table_destroy(table);
}

/* Bytes flow, and the answer takes longer than the lease: renewed, it stays its holder's. */
static void test_renewals(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person person;
    char token[LEASE_TOKEN_BYTES];
    uint64_t left = 0;
    bool led;
    be_born(&person);
    ask(table, ask_exact(1, 0), NULL, 0, token);
    assert_int_equal(ask(table, ask_exact(1, 10), &person, 100000, NULL), LEASE_WAITING);
    assert_int_equal(lease_renew(table, text_of(token), 500, 0, &left), LEASE_VALID);
    assert_int_equal(left, LEASE_MS);
    assert_int_equal(lease_renew(table, text_of(token), 600, 100, &left), LEASE_VALID); /* never shorter */
    assert_int_equal(left, 900);
    assert_int_equal(lease_renew(table, text_of(token), 1400, 300, &left), LEASE_VALID);
    assert_int_equal(left, 300);
    assert_int_equal(lease_renew(table, text_of(token), 1500, 100 * LEASE_MS, &left), LEASE_VALID); /* nor longer */
    assert_int_equal(left, LEASE_MS);
    lease_tick(table, 2499);
    assert_int_equal(person.woken, 0);
    assert_int_equal(look(table, token, 2499), LEASE_VALID);
    assert_int_equal(lease_renew(table, text_of(token), 2500, 0, &left), LEASE_DEAD); /* its time is over */
    lease_tick(table, 2500);
    assert_int_equal(person.how, LEASE_LEAD);
    assert_int_equal(lease_renew(table, text_of(token), 2501, 0, &left), LEASE_DEAD);
    assert_int_equal(lease_renew(table, text_of(person.waiter.token), 3000, 0, &left), LEASE_VALID);
    assert_int_equal(left, LEASE_MS);
    assert_int_equal(lease_fail(table, text_of(person.waiter.token), 3001, &led), LEASE_VALID);
    assert_int_equal(lease_renew(table, text_of(person.waiter.token), 3002, 0, &left), LEASE_DEAD);
    assert_int_equal(lease_renew(table, text_of("made up"), 3002, 0, &left), LEASE_UNKNOWN);
    assert_int_equal(left, LEASE_MS);
    lease_table_destroy(table);
}

/* The same through deadlines alone. */
static void test_chain_of_deadlines(void **state)
{
    (void)state;
    enum { PEOPLE = 6 };
    struct lease_table *table = table_new(USUAL);
    struct person people[PEOPLE];
    ask(table, ask_exact(1, 0), NULL, 0, NULL);
    for (unsigned i = 0; i < PEOPLE; i++) {
        be_born(people + i);
        ask(table, ask_exact(1, 0), people + i, 100000, NULL);
    }
    for (unsigned i = 0; i < PEOPLE; i++) {
        assert_int_equal(lease_tick(table, (i + 1) * LEASE_MS - 1), 1);
        assert_int_equal(all_woken, i);
        assert_int_equal(lease_tick(table, (i + 1) * LEASE_MS), LEASE_MS);
        assert_int_equal(people[i].how, LEASE_LEAD);
    }
    assert_true(lease_tick(table, (PEOPLE + 1) * LEASE_MS) == UINT64_MAX);
    assert_int_equal(stats_of(table).expired, PEOPLE + 1);
    lease_table_destroy(table);
}

/* A near waiter that leads brings its own hash: its answer without a token ends the lease. */
static void test_heir_brings_its_hash(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person heir, rest;
    char token[LEASE_TOKEN_BYTES];
    bool led;
    be_born(&heir);
    be_born(&rest);
    ask(table, ask_near(1, EAST, 0.9f), NULL, 0, token);
    ask(table, ask_near(2, NORTH_EAST, 0.7f), &heir, 100, NULL);
    ask(table, ask_near(1, EAST, 0.9f), &rest, 100, NULL);
    lease_fail(table, text_of(token), 1, &led);
    assert_true(led);
    assert_int_equal(heir.how, LEASE_LEAD);
    assert_int_equal(lease_done_exact(table, GROUP, (struct hash128){1, 1}), 0);
    assert_int_equal(look(table, heir.waiter.token, 1), LEASE_VALID);
    /* the vector stays: what is near to it still finds the lease */
    assert_int_equal(ask(table, ask_near(3, EAST, 0.99f), NULL, 0, NULL), LEASE_TAKEN);
    assert_int_equal(lease_done_exact(table, GROUP, (struct hash128){2, 1}), 1);
    assert_int_equal(rest.how, LEASE_READY);
    lease_table_destroy(table);
}

/* The heir's hash is led already: all join that lease, by their time of asking. */
static void test_heir_joins(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person people[4];
    char one[LEASE_TOKEN_BYTES], two[LEASE_TOKEN_BYTES];
    bool led = true;
    for (unsigned i = 0; i < 4; i++)
        be_born(people + i);
    ask(table, ask_near(1, EAST, 0.9f), NULL, 0, one);
    ask(table, ask_near(2, EAST, 0.9f), people, 100, NULL);     /* waits for one */
    ask(table, ask_exact(2, 0), NULL, 0, two);                  /* never near: leads two */
    ask(table, ask_exact(2, 0), people + 1, 100, NULL);         /* waits for two */
    ask(table, ask_near(1, EAST, 0.9f), people + 2, 100, NULL); /* for one */
    ask(table, ask_exact(2, 0), people + 3, 100, NULL);         /* for two */
    assert_int_equal(lease_fail(table, text_of(one), 1, &led), LEASE_VALID);
    assert_false(led);
    assert_int_equal(all_woken, 0);
    assert_int_equal(stats_of(table).in_flight, 1);
    assert_int_equal(stats_of(table).waiting, 4);
    lease_fail(table, text_of(two), 1, &led);
    assert_true(led);
    assert_int_equal(people[0].how, LEASE_LEAD);
    assert_true(lease_cancel(table, &people[2].waiter));
    assert_int_equal(lease_done(table, text_of(people[0].waiter.token)), 2);
    assert_int_equal(people[1].order, 1);
    assert_int_equal(people[3].order, 2);
    assert_int_equal(people[2].woken, 0);
    lease_table_destroy(table);
}

/* Who wants no lease is never granted one, nor waits where nobody computes. */
static void test_unwilling(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct lease_question question = ask_exact(1, 0);
    struct person unwilling, willing;
    char token[LEASE_TOKEN_BYTES];
    bool led;
    be_born(&unwilling);
    be_born(&willing);
    assert_int_equal(lease_ask(table, &question, false, &unwilling.waiter, 100, NULL, NULL), LEASE_TAKEN);
    ask(table, question, NULL, 0, token);
    assert_int_equal(lease_ask(table, &question, false, &unwilling.waiter, 100, NULL, NULL), LEASE_WAITING);
    ask(table, question, &willing, 100, NULL);
    lease_fail(table, text_of(token), 1, &led);
    assert_true(led);
    assert_int_equal(willing.how, LEASE_LEAD);
    assert_int_equal(unwilling.woken, 0);
    lease_fail(table, text_of(willing.waiter.token), 2, &led);
    assert_false(led);
    assert_int_equal(unwilling.how, LEASE_TIMEOUT);
    assert_int_equal(stats_of(table).in_flight, 0);
    lease_table_destroy(table);
}

/* ---- limits, leaving --------------------------------------------------------------------------------------------- */

static void test_limits(void **state)
{
    (void)state;
    struct lease_table *table = table_new((struct lease_options){.leases_max = 3, .waiters_max = 2});
    struct person people[3];
    char token[LEASE_TOKEN_BYTES];
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(ask(table, ask_exact(i, 0), NULL, 0, token), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_exact(4, 0), NULL, 0, NULL), LEASE_FULL);
    for (unsigned i = 0; i < 3; i++) {
        be_born(people + i);
        assert_int_equal(ask(table, ask_exact(3, 0), people + i, 100, NULL), i < 2 ? LEASE_WAITING : LEASE_FULL);
    }
    assert_false(lease_cancel(table, &people[2].waiter));
    assert_int_equal(stats_of(table).refused, 2);
    assert_true(lease_cancel(table, &people[0].waiter));
    assert_false(lease_cancel(table, &people[0].waiter));
    assert_int_equal(ask(table, ask_exact(3, 0), people + 2, 100, NULL), LEASE_WAITING);
    assert_int_equal(lease_done(table, text_of(token)), 2);
    assert_int_equal(people[0].woken, 0);
    assert_false(lease_cancel(table, &people[1].waiter));
    assert_int_equal(ask(table, ask_exact(4, 0), NULL, 0, NULL), LEASE_GRANTED);
    lease_table_destroy(table);

    struct lease_options wrong = {.dim = DIM, .leases_max = LEASES_MAX + 1, .secret = {1, 1}};
    struct quire_error err;
    assert_int_equal(lease_table_create(&wrong, &table, &err), QUIRE_ERANGE);
    wrong = (struct lease_options){.dim = DIM};
    assert_int_equal(lease_table_create(&wrong, &table, &err), QUIRE_EINVALID);
    lease_table_destroy(NULL);
}

/* Every slot is used again and again, with its vector. */
static void test_slots_come_back(void **state)
{
    (void)state;
    struct lease_table *table = table_new((struct lease_options){.leases_max = 5});
    for (uint64_t i = 1; i <= 1000; i++) {
        const float *vector = i % 2 ? EAST : NORTH;
        char token[LEASE_TOKEN_BYTES];
        assert_int_equal(ask(table, ask_near(i, vector, 0.9f), NULL, 0, token), LEASE_GRANTED);
        assert_int_equal(ask(table, ask_near(0, vector, 0.9f), NULL, 0, NULL), LEASE_TAKEN);
        lease_done(table, text_of(token));
    }
    assert_int_equal(stats_of(table).done, 1000);
    lease_table_destroy(table);
}

static void test_no_vectors(void **state)
{
    (void)state;
    struct lease_options options = {.secret = {1, 2}};
    struct lease_table *table;
    struct quire_error err;
    assert_int_equal(lease_table_create(&options, &table, &err), 0);
    assert_int_equal(ask(table, ask_near(1, EAST, 0), NULL, 0, NULL), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_near(2, EAST, 0), NULL, 0, NULL), LEASE_GRANTED);
    assert_int_equal(ask(table, ask_near(2, EAST, 0), NULL, 0, NULL), LEASE_TAKEN);
    lease_table_destroy(table);
}

#define MANY 65536u

static void test_many_waiters(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct person *people = calloc(MANY + 1, sizeof *people);
    char token[LEASE_TOKEN_BYTES];
    assert_non_null(people);
    ask(table, ask_exact(1, 0), NULL, 0, token);
    for (unsigned i = 0; i <= MANY; i++) {
        be_born(people + i);
        assert_int_equal(ask(table, ask_exact(1, 0), people + i, 100 + i % 7, NULL),
                         i < MANY ? LEASE_WAITING : LEASE_FULL);
    }
    lease_tick(table, 100);
    assert_int_equal(all_woken, (MANY + 6) / 7);
    assert_int_equal(lease_done(table, text_of(token)), MANY - (MANY + 6) / 7);
    for (unsigned i = 0, order = (MANY + 6) / 7; i < MANY; i++) {
        assert_int_equal(people[i].woken, 1);
        assert_int_equal(people[i].how, i % 7 ? LEASE_READY : LEASE_TIMEOUT);
        if (i % 7)
            assert_int_equal(people[i].order, order++);
    }
    free(people);
    lease_table_destroy(table);
}

/* ---- wakes that call back ---------------------------------------------------------------------------------------- */

struct caller {
    struct lease_waiter waiter;
    struct lease_table *table;
    unsigned woken, again; /* how often it asks again from inside of wake */
    enum lease_wake how;
    enum lease_answer answer;
};

static void on_wake_ask_again(struct lease_waiter *waiter, enum lease_wake how)
{
    struct caller *caller = waiter->owner;
    struct lease_question question = ask_exact(1, 0);
    char token[LEASE_TOKEN_BYTES];
    uint64_t deadline_ms;
    bool led;
    caller->woken++;
    caller->how = how;
    if (how == LEASE_LEAD)
        lease_fail(caller->table, text_of(waiter->token), 0, &led);
    if (caller->again && caller->again--)
        caller->answer = lease_ask(caller->table, &question, true, waiter, 100, token, &deadline_ms);
}

static void test_wake_calls_back(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct caller callers[3];
    char token[LEASE_TOKEN_BYTES];
    bool led;
    for (unsigned i = 0; i < 3; i++)
        callers[i] = (struct caller){
            .waiter = {.wake = on_wake_ask_again, .owner = callers + i}, .table = table, .again = i > 0};
    ask(table, ask_exact(1, 0), NULL, 0, token);
    for (unsigned i = 0; i < 3; i++) {
        struct lease_question question = ask_exact(1, 0);
        uint64_t deadline_ms;
        assert_int_equal(lease_ask(table, &question, true, &callers[i].waiter, 100, token, &deadline_ms),
                         LEASE_WAITING);
    }
    /* 0 leads and fails; 1 leads, fails and asks again with 2 leading, which fails too: then the question is free */
    assert_int_equal(lease_fail(table, text_of(token), 0, &led), LEASE_VALID);
    assert_true(led);
    assert_int_equal(callers[0].woken, 1);
    assert_int_equal(callers[1].woken, 1);
    assert_int_equal(callers[2].woken, 1);
    assert_int_equal(callers[2].answer, LEASE_GRANTED);
    assert_int_equal(callers[1].answer, LEASE_WAITING);
    assert_int_equal(stats_of(table).waiting, 1);
    callers[1].again = 1;
    lease_table_destroy(table);
    assert_int_equal(callers[1].how, LEASE_CLOSED);
    assert_int_equal(callers[1].answer, LEASE_FULL);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static void test_tokens_after_a_restart(void **state)
{
    (void)state;
    struct lease_options options = {.secret = {11, 22}, .seed = 1};
    struct lease_table *table = table_new(options);
    struct lease_question question = ask_exact(1, 1700000000123);
    char token[LEASE_TOKEN_BYTES], again[LEASE_TOKEN_BYTES];
    uint64_t epoch = 0, granted_ms = 0;
    question.epoch = 77;
    ask(table, question, NULL, 0, token);
    assert_int_equal(lease_look(table, text_of(token), question.now_ms, &epoch, &granted_ms), LEASE_VALID);
    assert_int_equal(epoch, 77);
    assert_int_equal(granted_ms, 1700000000123);
    lease_table_destroy(table);

    table = table_new(options); /* the same seed too: the same slot and random part */
    question.now_ms++;
    ask(table, question, NULL, 0, again);
    epoch = granted_ms = 0;
    assert_int_equal(lease_look(table, text_of(token), question.now_ms, &epoch, &granted_ms), LEASE_DEAD);
    assert_int_equal(epoch, 77);
    assert_int_equal(granted_ms, 1700000000123);
    assert_int_equal(lease_done(table, text_of(token)), 0);
    assert_int_equal(look(table, again, question.now_ms), LEASE_VALID);
    lease_table_destroy(table);

    options.secret[1]++;
    table = table_new(options);
    bool led;
    assert_int_equal(look(table, token, question.now_ms), LEASE_UNKNOWN);
    assert_int_equal(lease_fail(table, text_of(token), 0, &led), LEASE_UNKNOWN);
    assert_int_equal(lease_done(table, text_of(token)), 0);
    lease_table_destroy(table);
}

/* A hand-over carries the epoch at which the heir asked: not the former leader's, nor a later one. */
static void test_epoch_of_a_hand_over(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    struct lease_question question = ask_exact(1, 0);
    struct person heir;
    char token[LEASE_TOKEN_BYTES];
    uint64_t epoch = 0, granted_ms = 0;
    bool led;
    be_born(&heir);
    question.refreshes = 99;
    ask(table, question, NULL, 0, token);
    assert_int_equal(lease_refreshes(table, text_of(token)), 99);
    question.epoch = 6;
    ask(table, question, &heir, 100, NULL);
    question = ask_exact(2, 3);
    question.epoch = 7;
    ask(table, question, NULL, 0, NULL);
    lease_fail(table, text_of(token), 4, &led);
    assert_int_equal(lease_look(table, text_of(heir.waiter.token), 4, &epoch, &granted_ms), LEASE_VALID);
    assert_int_equal(epoch, 6);
    assert_int_equal(granted_ms, 4);
    assert_int_equal(lease_refreshes(table, text_of(heir.waiter.token)), 99);
    assert_int_equal(lease_refreshes(table, text_of(token)), 0);
    lease_table_destroy(table);
}

static void test_made_up_tokens(void **state)
{
    (void)state;
    struct lease_table *table = table_new(USUAL);
    char token[LEASE_TOKEN_BYTES], changed[LEASE_TOKEN_BYTES];
    static char garbage[1 << 16];
    ask(table, ask_exact(1, 0), NULL, 0, token);
    size_t n = strlen(token);
    assert_true(n < LEASE_TOKEN_BYTES);
    assert_int_equal(strspn(token, "0123456789abcdef"), n);
    assert_int_equal(look(table, token, 0), LEASE_VALID);
    for (size_t i = 0; i < n; i++)
        for (unsigned c = 0; c < 256; c++) {
            if ((char)c == token[i])
                continue;
            memcpy(changed, token, sizeof token);
            changed[i] = (char)c;
            assert_int_equal(lease_look(table, (struct quire_bytes){changed, n}, 0, NULL, NULL), LEASE_UNKNOWN);
        }
    memset(garbage, '0', sizeof garbage);
    memcpy(garbage, token, n);
    for (size_t bytes = 0; bytes <= sizeof garbage; bytes += bytes < 100 ? 1 : 4091)
        assert_int_equal(lease_look(table, (struct quire_bytes){garbage, bytes}, 0, NULL, NULL),
                         bytes == n ? LEASE_VALID : LEASE_UNKNOWN);
    assert_int_equal(lease_look(table, (struct quire_bytes){NULL, 0}, 0, NULL, NULL), LEASE_UNKNOWN);
    assert_int_equal(lease_refreshes(table, text_of("x")), 0);
    lease_table_destroy(table);
}

/* Appendix A of the paper: key 00 01 .. 0f, message 00 01 .. 0e; and the first of the reference's vectors. */
static void test_siphash(void **state)
{
    (void)state;
    const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    const uint8_t message[15] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    assert_true(lease_siphash(key, message, 15) == 0xa129ca6149be45e5);
    assert_true(lease_siphash(key, message, 0) == 0x726fdb47dd0e0e31);
    assert_true(lease_siphash(key, message, 8) == 0x93f5f5799a932462);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_single_flight),
        cmocka_unit_test(test_near_single_flight),
        cmocka_unit_test(test_groups_are_apart),
        cmocka_unit_test(test_none_hash_is_no_question),
        cmocka_unit_test(test_done_by_question),
        cmocka_unit_test(test_waiter_times_out),
        cmocka_unit_test(test_both_due),
        cmocka_unit_test(test_expired_without_tick),
        cmocka_unit_test(test_times_do_not_overflow),
        cmocka_unit_test(test_chain_of_failures),
        cmocka_unit_test(test_renewals),
        cmocka_unit_test(test_chain_of_deadlines),
        cmocka_unit_test(test_heir_brings_its_hash),
        cmocka_unit_test(test_heir_joins),
        cmocka_unit_test(test_unwilling),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_slots_come_back),
        cmocka_unit_test(test_no_vectors),
        cmocka_unit_test(test_many_waiters),
        cmocka_unit_test(test_wake_calls_back),
        cmocka_unit_test(test_tokens_after_a_restart),
        cmocka_unit_test(test_epoch_of_a_hand_over),
        cmocka_unit_test(test_made_up_tokens),
        cmocka_unit_test(test_siphash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
