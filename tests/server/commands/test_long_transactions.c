/*
 * test_long_transactions.c - EXEC of many commands: who needs neither keys nor sets is answered in between, on its lane
 * and on others; who needs them sees all of it or nothing, and waits for nothing but its end.
 */
#include "io/clock.h"
#include "tests/sanitized.h"
#include "tests/server/support_server.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEALED = 500 };

static void put(struct resp_buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct resp_buffer *out, const char *format, ...)
{
    char words[100];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    put_request(out, words);
}

/* Sends n requests behind MULTI, and reads what is said until all are queued. */
static void queue_all(struct connection *c, struct resp_buffer *out, unsigned n)
{
    enum { AT_ONCE = 20000 };
    expect_text(c, "MULTI", "OK");
    for (size_t sent = 0, more; sent < out->bytes; sent += more) {
        more = out->bytes - sent < AT_ONCE ? out->bytes - sent : AT_ONCE;
        send_bytes(c, out->data + sent, more);
    }
    while (n-- > 0)
        check_text(read_reply(c), "QUEUED");
    resp_buffer_fini(out);
    *out = (struct resp_buffer){.protocol = 2};
}

static bool has_reply(const struct connection *c)
{
    struct pollfd look = {.fd = c->fd, .events = POLLIN};
    return c->have > 0 || poll(&look, 1, 0) == 1;
}

static struct reply exec_reply(struct connection *c, size_t n)
{
    struct reply r = read_reply(c);
    if (r.type != '*' || r.null || r.n != n)
        fail_msg("EXEC: %c '%s' with %zu replies instead of %zu", r.type, r.text ? r.text : "", r.n, n);
    return r;
}

/* How many PINGs are answered one after the other from EXEC to its reply. Requests for keys are answered as before it
 * or as after it. */
static unsigned pings_beside(unsigned port, unsigned commands)
{
    struct connection writer, pinger, reader;
    struct resp_buffer out = {.protocol = 2};
    unsigned n = 0;
    connect_to(&writer, port);
    connect_to(&pinger, port);
    connect_to(&reader, port);
    put(&out, "SET begun 1");
    for (unsigned i = 2; i < commands; i++)
        put(&out, "VADD v VALUES 4 1 2 %u %u e%u", i % 100, i / 100, i);
    put(&out, "SET begun 2");
    queue_all(&writer, &out, commands);
    send_request(&writer, "EXEC");
    for (; !has_reply(&writer); n++) {
        expect_text(&pinger, "PING", "PONG");
        expect_text(&pinger, "ECHO other", "other");
        if (n == 5)
            send_request(&reader, "GET begun");
    }
    struct reply r = exec_reply(&writer, commands);
    reply_free(&r);
    if (n > 5) {
        r = read_reply(&reader);
        assert_true(r.null || reply_is(&r, "2"));
        reply_free(&r);
    }
    expect_text(&pinger, "GET begun", "2");
    expect_integer(&pinger, "VCARD v", commands - 2);
    expect_integer(&pinger, "DEL v begun", 2);
    disconnect(&reader);
    disconnect(&pinger);
    disconnect(&writer);
    return n;
}

static void test_others_are_answered(void **state)
{
    enum { COMMANDS = 16000, LEAST = 12, TRIES = 10 };
    (void)state;
    for (unsigned lanes = 1; lanes <= 2; lanes++) {
        struct test_server *s = support_server((const char *const[]){"lanes", lanes == 1 ? "1" : "2", NULL});
        /* without a processor for it a client asks little: so more than once */
        unsigned n = 0, tries = 0;
        for (; n < LEAST && tries < TRIES; tries++)
            n = pings_beside(s->port, COMMANDS);
        print_message("%u lanes: %u rounds of requests answered beside EXEC, at try %u\n", lanes, n, tries);
        assert_true(n >= LEAST);
        support_server_end(s);
    }
}

/* ---- alone ------------------------------------------------------------------------------------------------------- */

struct world {
    unsigned port;
    atomic_bool stop;
    atomic_uint wrong, looks, writes, pings;
};

static bool same(const struct reply *a, const struct reply *b)
{
    return a->text && b->text && strcmp(a->text, b->text) == 0;
}

/* What a transaction sets first and last is seen to change together, by single commands and by short transactions. */
static void *look(void *context)
{
    struct world *w = context;
    struct connection c;
    connect_to(&c, w->port);
    while (!atomic_load(&w->stop)) {
        struct reply r = ask(&c, "MGET first last");
        bool right = r.n == 2 && same(&r.items[0], &r.items[1]);
        reply_free(&r);
        expect_text(&c, "MULTI", "OK");
        expect_text(&c, "GET first", "QUEUED");
        expect_text(&c, "HGET h last", "QUEUED");
        r = ask(&c, "EXEC");
        right = right && r.n == 2 && same(&r.items[0], &r.items[1]);
        reply_free(&r);
        atomic_fetch_add(&w->wrong, !right);
        atomic_fetch_add(&w->looks, 1);
    }
    disconnect(&c);
    return NULL;
}

/* Others write to what transactions use, elements of segments included, which must ask the disk first. */
static void *write_all_the_time(void *context)
{
    struct world *w = context;
    struct connection c;
    connect_to(&c, w->port);
    for (unsigned i = 0; !atomic_load(&w->stop); i++) {
        struct resp_buffer out = {.protocol = 2};
        put(&out, "INCR n");
        put(&out, "VADD v VALUES 4 1 2 3 4 s%u", i % SEALED);
        put(&out, "VSETATTR v s%u {\"n\":%u}", (i + 1) % SEALED, i);
        put(&out, "VSIM v VALUES 4 1 2 3 4 COUNT 3");
        send_bytes(&c, out.data, out.bytes);
        resp_buffer_fini(&out);
        for (unsigned k = 0; k < 4; k++) {
            struct reply r = read_reply(&c);
            atomic_fetch_add(&w->wrong, r.type == '-');
            reply_free(&r);
        }
        atomic_fetch_add(&w->writes, 1);
    }
    disconnect(&c);
    return NULL;
}

static void *ping(void *context)
{
    struct world *w = context;
    struct connection c;
    connect_to(&c, w->port);
    while (!atomic_load(&w->stop)) {
        expect_text(&c, "PING", "PONG");
        atomic_fetch_add(&w->pings, 1);
    }
    disconnect(&c);
    return NULL;
}

struct long_writer {
    struct world *world;
    unsigned first, rounds, commands;
};

/* Nobody else's INCR comes between its first command and its last. */
static void *write_long(void *context)
{
    const struct long_writer *w = context;
    struct connection c;
    connect_to(&c, w->world->port);
    for (unsigned round = 0; round < w->rounds; round++) {
        struct resp_buffer out = {.protocol = 2};
        put(&out, "SET first %u", w->first + round);
        put(&out, "SET n 0");
        for (unsigned i = 4; i < w->commands; i++)
            if (i % 3 == 0)
                put(&out, "VADD v VALUES 4 1 2 %u %u s%u", i, round, i % (2 * SEALED));
            else
                put(&out, "SET filler%u %u", i % 1000, round);
        put(&out, "MSET last %u n2 0", w->first + round);
        put(&out, "HSET h last %u", w->first + round);
        put(&out, "GET n");
        queue_all(&c, &out, w->commands + 1);
        send_request(&c, "EXEC");
        struct reply r = exec_reply(&c, w->commands + 1);
        atomic_fetch_add(&w->world->wrong, strcmp(r.items[w->commands].text, "0") != 0);
        reply_free(&r);
    }
    disconnect(&c);
    return NULL;
}

static void check_alone(const char *lanes)
{
    enum { THREADS = 5, COMMANDS = SANITIZED_SIZE(3000, 500), ROUNDS = SANITIZED_SIZE(12, 4) };
    static void *(*const others[THREADS])(void *context) = {look, write_all_the_time, ping, look, write_all_the_time};
    struct test_server *s = support_server((const char *const[]){"lanes", lanes, NULL});
    struct world w = {.port = s->port};
    struct long_writer writers[2] = {{&w, 1000, ROUNDS, COMMANDS}, {&w, 2000, ROUNDS, COMMANDS}};
    struct resp_buffer out = {.protocol = 2};
    struct connection c;
    pthread_t threads[THREADS], long_threads[2];
    connect_to(&c, s->port);
    for (unsigned i = 0; i < SEALED; i++)
        put(&out, "VADD v VALUES 4 %u 2 3 4 s%u", i, i);
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    for (unsigned i = 0; i < SEALED; i++) {
        struct reply r = read_reply(&c);
        assert_int_equal(r.integer, 1);
        reply_free(&r);
    }
    expect_text(&c, "VSEAL v", "OK");
    expect_text(&c, "MSET first 0 last 0", "OK");
    expect_integer(&c, "HSET h last 0", 1);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, others[i], &w), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&long_threads[i], NULL, write_long, &writers[i]), 0);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(long_threads[i], NULL);
    unsigned looks = atomic_load(&w.looks), writes = atomic_load(&w.writes);
    while (atomic_load(&w.looks) < looks + 3 || atomic_load(&w.writes) < writes + 3)
        expect_text(&c, "PING", "PONG"); /* all go on */
    atomic_store(&w.stop, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    print_message("%s lanes: %u looks, %u writes, %u PINGs beside %u transactions\n", lanes, atomic_load(&w.looks),
                  atomic_load(&w.writes), atomic_load(&w.pings), 2 * ROUNDS);
    assert_int_equal(atomic_load(&w.wrong), 0);
    disconnect(&c);
    support_server_end(s);
}

static void test_nobody_sees_half(void **state)
{
    (void)state;
    check_alone("1");
    check_alone("3");
}

/* Clients that go while a transaction runs, its own among them: what writes is written. */
static void test_clients_that_go(void **state)
{
    enum { COMMANDS = 8000 };
    struct test_server *s = support_server((const char *const[]){"lanes", "2", NULL});
    struct connection c, writer, others[6];
    struct resp_buffer out = {.protocol = 2};
    (void)state;
    connect_to(&c, s->port);
    connect_to(&writer, s->port);
    for (unsigned i = 0; i < 6; i++)
        connect_to(&others[i], s->port);
    for (unsigned i = 0; i < COMMANDS; i++)
        put(&out, "VADD v VALUES 4 1 2 %u %u e%u", i % 100, i / 100, i);
    queue_all(&writer, &out, COMMANDS);
    send_request(&writer, "EXEC");
    for (unsigned i = 0; i < 6; i++) {
        send_request(&others[i], i % 2 ? "VSIM v VALUES 4 1 2 3 4 COUNT 2" : "QUIT");
        expect_text(&c, "PING", "PONG");
        disconnect(&others[i]);
    }
    disconnect(&writer);
    long long n = 0;
    for (uint64_t until_us = clock_us() + 20000000; n != COMMANDS && clock_us() < until_us;) {
        struct reply r = ask(&c, "VCARD v");
        n = r.integer;
        assert_true(n == 0 || n == COMMANDS);
        reply_free(&r);
    }
    assert_int_equal(n, COMMANDS);
    disconnect(&c);
    support_server_end(s);
}

/* Who has waited for a transaction does not wait for the end of CLIENT PAUSE WRITE, too. */
static void test_pauses_of_others(void **state)
{
    enum { COMMANDS = 20000, ROUNDS = 3 };
    struct test_server *s = support_server((const char *const[]){"lanes", "1", NULL});
    struct connection c, reader;
    struct resp_buffer out = {.protocol = 2};
    (void)state;
    connect_to(&c, s->port);
    connect_to(&reader, s->port);
    expect_text(&c, "SET k v", "OK");
    expect_text(&c, "CLIENT PAUSE 600000 WRITE", "OK");
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < COMMANDS; i++)
            put(&out, "GET k");
        queue_all(&c, &out, COMMANDS);
        send_request(&c, "EXEC");
        while (!has_reply(&c))
            expect_text(&reader, "GET k", "v");
        struct reply r = exec_reply(&c, COMMANDS);
        reply_free(&r);
    }
    send_request(&reader, "SET k w");
    expect_text(&c, "GET k", "v");
    expect_text(&c, "CLIENT UNPAUSE", "OK");
    check_text(read_reply(&reader), "OK");
    disconnect(&reader);
    disconnect(&c);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_are_answered),
        cmocka_unit_test(test_nobody_sees_half),
        cmocka_unit_test(test_clients_that_go),
        cmocka_unit_test(test_pauses_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
