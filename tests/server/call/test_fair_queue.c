/*
 * test_fair_queue.c - shares over a backlog are the weights', an idle flow gets no credit and waits for nobody, and
 * the structure is whole after any sequence of calls.
 *
 * Shares are compared over a period in which every flow has items waiting, with costs that are random and differ by
 * flow, since only costs that are wrong as estimates put the settlement to the test. Bounds are those of the paper:
 * what two flows get differs by at most the largest cost of either per item in service.
 */
#include "io/random.h"
#include "server/call/fair_queue.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FLOWS = 3, SLOTS_MAX = 8 };

struct job {
    struct fair_item item; /* first */
    double cost;
};

static struct fair_queue *make(uint32_t flows_max)
{
    struct fair_queue_config config = {.flows_max = flows_max, .flow_bytes = sizeof(struct fair_flow), .seed = 1};
    struct fair_queue *q;
    struct quire_error err;
    assert_int_equal(fair_queue_create(&config, &q, &err), 0);
    return q;
}

static struct fair_flow *open_flow(struct fair_queue *q, const char *name)
{
    bool is_new;
    struct fair_flow *f = fair_queue_open(q, name, (uint32_t)strlen(name), &is_new);
    assert_non_null(f);
    return f;
}

static void check(const struct fair_queue *q)
{
    const char *reason = "";
    if (!fair_queue_check(q, &reason))
        fail_msg("%s", reason);
}

static struct job *put(struct fair_queue *q, struct fair_flow *f, double cost)
{
    struct job *job = calloc(1, sizeof *job);
    assert_non_null(job);
    fair_queue_put(q, f, &job->item);
    job->cost = cost;
    return job;
}

static struct job *take(struct fair_queue *q)
{
    return (struct job *)(void *)fair_queue_take(q);
}

static void end(struct fair_queue *q, struct job *job)
{
    fair_queue_end(q, &job->item, job->cost);
    free(job);
}

static double uniform(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

/* Takes, runs and ends `n` items with `slots` in service at a time, each flow keeping `depth` waiting. got[i]: cost of
 * flow i's that have ended. */
static void serve(struct fair_queue *q, struct fair_flow *const flows[FLOWS], const double means[FLOWS], unsigned n,
                  unsigned slots, uint64_t seed, double got[FLOWS])
{
    struct random random = {seed};
    struct job *running[SLOTS_MAX];
    unsigned n_running = 0;
    memset(got, 0, FLOWS * sizeof *got);
    for (unsigned done = 0; done < n; done++) {
        for (unsigned i = 0; i < FLOWS; i++)
            while (flows[i]->n_waiting < 4)
                put(q, flows[i], means[i] * -log(1 - uniform(&random)));
        while (n_running < slots)
            running[n_running++] = take(q);
        unsigned at = (unsigned)random_below(&random, n_running);
        for (unsigned i = 0; i < FLOWS; i++)
            got[i] += running[at]->item.flow == flows[i] ? running[at]->cost : 0;
        end(q, running[at]);
        running[at] = running[--n_running];
    }
    while (n_running > 0)
        end(q, running[--n_running]);
    struct job *job;
    while ((job = take(q)))
        end(q, job);
    check(q);
}

static void test_weights(void **state)
{
    (void)state;
    static const double costs[][FLOWS] = {{100, 100, 100}, {1000, 100, 10}, {10, 100, 1000}};
    static const uint32_t weights[FLOWS] = {1, 2, 4};
    static const char *const names[FLOWS] = {"one", "two", "four"};
    for (unsigned slots = 1; slots <= SLOTS_MAX; slots *= 8)
        for (unsigned c = 0; c < sizeof costs / sizeof *costs; c++) {
            struct fair_queue *q = make(16);
            struct fair_flow *flows[FLOWS];
            double got[FLOWS], all = 0;
            for (unsigned i = 0; i < FLOWS; i++) {
                flows[i] = open_flow(q, names[i]);
                flows[i]->weight = weights[i];
            }
            serve(q, flows, costs[c], 100000, slots, 7 + c, got);
            for (unsigned i = 0; i < FLOWS; i++)
                all += got[i];
            for (unsigned i = 0; i < FLOWS; i++)
                if (fabs(got[i] / all - weights[i] / 7.0) > 0.03 * weights[i] / 7.0)
                    fail_msg("%u slots, costs %u: flow %s got %.4f of all, its share is %.4f", slots, c, names[i],
                             got[i] / all, weights[i] / 7.0);
            for (unsigned i = 0; i < FLOWS; i++)
                fair_queue_close(q, flows[i]);
            fair_queue_destroy(q);
        }
}

static void test_first_in_first_out(void **state)
{
    (void)state;
    struct fair_queue *q = make(4);
    struct fair_flow *a = open_flow(q, "a"), *b = open_flow(q, "b");
    struct job *jobs[20], *last[2] = {NULL, NULL};
    for (unsigned i = 0; i < 20; i++)
        jobs[i] = put(q, i % 2 ? a : b, i);
    for (unsigned i = 0; i < 20; i++) {
        struct job *job = take(q);
        unsigned flow = job->item.flow == a;
        assert_true(!last[flow] || job->cost > last[flow]->cost);
        last[flow] = job;
    }
    assert_null(fair_queue_take(q));
    assert_null(fair_queue_next(q));
    for (unsigned i = 0; i < 20; i++)
        end(q, jobs[i]);
    fair_queue_close(q, a);
    fair_queue_close(q, b);
    fair_queue_destroy(q);
}

/* A flow that had nothing to do is next, but for those that are where it comes in; and it has saved nothing. */
static void test_idle_flow(void **state)
{
    (void)state;
    enum { CROWD = 50 };
    struct fair_queue *q = make(64);
    struct fair_flow *crowd[CROWD], *quiet = open_flow(q, "quiet");
    char name[16];
    for (unsigned i = 0; i < CROWD; i++) {
        snprintf(name, sizeof name, "crowd %u", i);
        crowd[i] = open_flow(q, name);
    }
    end(q, (put(q, quiet, 10), take(q)));
    for (unsigned n = 0; n < 10 * CROWD; n++) {
        for (unsigned i = 0; i < CROWD; i++)
            while (crowd[i]->n_waiting < 4)
                put(q, crowd[i], 10);
        end(q, take(q));
    }
    /* at most one round: each other flow once, those that stand at the same tag */
    put(q, quiet, 10);
    unsigned before = 0;
    struct job *job;
    for (; (job = take(q))->item.flow != quiet; before++)
        end(q, job);
    assert_in_range(before, 0, CROWD);
    end(q, job);
    /* no credit: with items always waiting from now on it gets its share and not what it left */
    double got = 0, all = 0;
    for (unsigned n = 0; n < 100 * (CROWD + 1); n++) {
        for (unsigned i = 0; i < CROWD; i++)
            while (crowd[i]->n_waiting < 4)
                put(q, crowd[i], 10);
        while (quiet->n_waiting < 4)
            put(q, quiet, 10);
        job = take(q);
        got += job->item.flow == quiet ? job->cost : 0;
        all += job->cost;
        end(q, job);
    }
    assert_in_range((unsigned)(got / all * (CROWD + 1) * 1000), 950, 1050);
    check(q);
    while ((job = take(q)))
        end(q, job);
    for (unsigned i = 0; i < CROWD; i++)
        fair_queue_close(q, crowd[i]);
    fair_queue_close(q, quiet);
    fair_queue_destroy(q);
}

/* A flow that was alone for long, at whatever cost, does not pay for it when another comes. */
static void test_alone_is_free(void **state)
{
    (void)state;
    struct fair_queue *q = make(4);
    struct fair_flow *a = open_flow(q, "a"), *b = open_flow(q, "b");
    for (unsigned i = 0; i < 1000; i++)
        end(q, (put(q, a, 1000), take(q)));
    double got = 0, all = 0;
    for (unsigned n = 0; n < 2000; n++) {
        while (a->n_waiting < 2)
            put(q, a, 10);
        while (b->n_waiting < 2)
            put(q, b, 10);
        struct job *job = take(q);
        if (n >= 1000) { /* a's mean has to come down first */
            got += job->item.flow == a ? job->cost : 0;
            all += job->cost;
        }
        end(q, job);
    }
    assert_in_range((unsigned)(got / all * 1000), 480, 520);
    struct job *job;
    while ((job = take(q)))
        end(q, job);
    fair_queue_close(q, a);
    fair_queue_close(q, b);
    fair_queue_destroy(q);
}

/* What failed before it began costs its flow nothing. */
static void test_undo(void **state)
{
    (void)state;
    struct fair_queue *q = make(4);
    struct fair_flow *a = open_flow(q, "a"), *b = open_flow(q, "b");
    end(q, (put(q, a, 100), take(q)));
    end(q, (put(q, b, 100), take(q)));
    double mean = a->mean_cost;
    assert_true(mean > 0);
    put(q, b, 100);
    for (unsigned i = 0; i < 10; i++) {
        struct job *failed = put(q, a, 100), *other;
        while ((other = take(q)) != failed)
            end(q, other);
        fair_queue_undo(q, &failed->item);
        free(failed);
        assert_true(a->mean_cost >= mean && a->mean_cost <= mean);
        assert_int_equal(a->n_running, 0);
    }
    check(q);
    struct job *job;
    while ((job = take(q)))
        end(q, job);
    fair_queue_close(q, a);
    fair_queue_close(q, b);
    fair_queue_destroy(q);
}

/* ---- flows that come and go -------------------------------------------------------------------------------------- */

static unsigned n_forgotten;
static char last_forgotten[32];

static void note_forgotten(void *context, struct fair_flow *flow)
{
    uint32_t bytes;
    assert_ptr_equal(context, &n_forgotten);
    snprintf(last_forgotten, sizeof last_forgotten, "%s", fair_flow_name(flow, &bytes));
    assert_int_equal(bytes, strlen(last_forgotten));
    n_forgotten++;
}

static void test_forgetting(void **state)
{
    (void)state;
    struct fair_queue_config config = {.flows_max = 4,
                                       .flow_bytes = sizeof(struct fair_flow) + 100,
                                       .forget = note_forgotten,
                                       .context = &n_forgotten};
    struct fair_queue *q;
    struct quire_error err;
    bool is_new;
    n_forgotten = 0;
    assert_int_equal(fair_queue_create(&config, &q, &err), 0);
    struct fair_flow *a = open_flow(q, "a"), *b = open_flow(q, "b"), *c = open_flow(q, "c"), *d = open_flow(q, "d");
    assert_null(fair_queue_open(q, "e", 1, &is_new)); /* all are open */
    fair_queue_close(q, c);
    fair_queue_close(q, a);
    struct fair_flow *e = fair_queue_open(q, "e", 1, &is_new);
    assert_non_null(e);
    assert_true(is_new);
    assert_string_equal(last_forgotten, "c"); /* closed first */
    assert_ptr_equal(fair_queue_open(q, "a", 1, &is_new), a);
    assert_false(is_new);
    assert_ptr_equal(fair_queue_open(q, "a", 1, &is_new), a); /* twice open */
    fair_queue_close(q, a);
    assert_null(fair_queue_open(q, "f", 1, &is_new));
    fair_queue_close(q, a);
    struct fair_flow *f = fair_queue_open(q, "f", 1, &is_new);
    assert_non_null(f);
    assert_string_equal(last_forgotten, "a");
    check(q);
    fair_queue_close(q, b);
    fair_queue_close(q, d);
    fair_queue_close(q, e);
    fair_queue_close(q, f);
    check(q);
    assert_int_equal(n_forgotten, 2);
    fair_queue_destroy(q);
    assert_int_equal(n_forgotten, 6);
    config.flows_max = 0;
    assert_int_equal(fair_queue_create(&config, &q, &err), QUIRE_EINVALID);
    config = (struct fair_queue_config){.flows_max = 1, .flow_bytes = 1};
    assert_int_equal(fair_queue_create(&config, &q, &err), QUIRE_EINVALID);
}

/* ---- any sequence ------------------------------------------------------------------------------------------------ */

enum { NAMES = 12, JOBS = 200 };

struct model {
    struct fair_queue *queue;
    struct fair_flow *flows[NAMES];
    struct job *jobs[JOBS]; /* NULL: free */
    bool running[JOBS];
    unsigned n_dropped;
};

static bool is_odd(void *context, const struct fair_item *item)
{
    (void)context;
    return (unsigned)((const struct job *)(const void *)item)->cost % 2 == 1;
}

static void drop(void *context, struct fair_item *item)
{
    struct model *m = context;
    for (unsigned i = 0; i < JOBS; i++)
        if (m->jobs[i] && &m->jobs[i]->item == item) {
            assert_false(m->running[i]);
            m->jobs[i] = NULL;
        }
    free(item);
    m->n_dropped++;
}

static void step(struct model *m, struct random *random)
{
    unsigned at = (unsigned)random_below(random, JOBS), name = (unsigned)random_below(random, NAMES);
    char text[16];
    snprintf(text, sizeof text, "flow %u", name);
    struct job *job = m->jobs[at];
    switch (random_below(random, 16)) {
    case 0:
        fair_queue_drop(m->queue, is_odd, drop, m);
        break;
    case 1:
        if (m->flows[name] && m->flows[name]->n_waiting + m->flows[name]->n_running == 0) {
            fair_queue_close(m->queue, m->flows[name]);
            m->flows[name] = NULL;
        }
        break;
    case 2:
        if (job && !m->running[at]) {
            fair_queue_cancel(m->queue, &job->item);
            free(job);
            m->jobs[at] = NULL;
        } else if (job) {
            fair_queue_undo(m->queue, &job->item);
            free(job);
            m->jobs[at] = NULL;
        }
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        job = take(m->queue);
        for (unsigned i = 0; job && i < JOBS; i++)
            m->running[i] |= m->jobs[i] == job;
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        if (job && m->running[at]) {
            end(m->queue, job);
            m->jobs[at] = NULL;
        }
        break;
    default:
        if (job)
            break;
        if (!m->flows[name])
            m->flows[name] = open_flow(m->queue, text);
        m->flows[name]->weight = 1 + (uint32_t)random_below(random, 5);
        m->running[at] = fair_queue_waiting(m->queue) == 0 && random_below(random, 2);
        if (m->running[at]) {
            job = calloc(1, sizeof *job);
            assert_non_null(job);
            fair_queue_begin(m->queue, m->flows[name], &job->item);
            job->cost = (double)random_below(random, 1000);
        } else {
            job = put(m->queue, m->flows[name], (double)random_below(random, 1000));
        }
        m->jobs[at] = job;
    }
}

static void test_any_sequence(void **state)
{
    (void)state;
    struct random random = {11};
    struct model m = {.queue = make(NAMES)};
    for (unsigned n = 0; n < 20000; n++) {
        uint32_t waiting = 0, running = 0;
        step(&m, &random);
        for (unsigned i = 0; i < JOBS; i++) {
            waiting += m.jobs[i] && !m.running[i];
            running += m.jobs[i] && m.running[i];
        }
        assert_int_equal(fair_queue_waiting(m.queue), waiting);
        assert_int_equal(fair_queue_running(m.queue), running);
        check(m.queue);
    }
    assert_true(m.n_dropped > 100);
    for (unsigned i = 0; i < JOBS; i++)
        if (m.jobs[i] && m.running[i])
            end(m.queue, m.jobs[i]);
    struct job *job;
    while ((job = take(m.queue)))
        end(m.queue, job);
    for (unsigned i = 0; i < NAMES; i++)
        if (m.flows[i])
            fair_queue_close(m.queue, m.flows[i]);
    check(m.queue);
    fair_queue_destroy(m.queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights),     cmocka_unit_test(test_first_in_first_out),
                                       cmocka_unit_test(test_idle_flow),   cmocka_unit_test(test_alone_is_free),
                                       cmocka_unit_test(test_undo),        cmocka_unit_test(test_forgetting),
                                       cmocka_unit_test(test_any_sequence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
