/*
 * test_sc_client.c - commands to a server of ours on a unix socket, which answers when and what the test says: order,
 * deadlines, late replies, broken connections, the breaker; and replies of SC.* written by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/store/sc_client.h"
#include "gateway/store/sc_reply.h"
#include "gateway/store/sc_scan.h"
#include <cmocka.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct fake {
    struct event_base *base;
    struct evconnlistener *listener;
    struct bufferevent *peer; /* the last connection */
    struct evbuffer *received;
    char folder[64], path[100], address[120];
    unsigned connections;
};

struct result {
    struct event_base *base;
    unsigned done;
    enum sc_outcome outcome;
    char text[200];
};

static void on_peer_read(struct bufferevent *peer, void *context)
{
    struct fake *fake = context;
    evbuffer_add_buffer(fake->received, bufferevent_get_input(peer));
    event_base_loopbreak(fake->base);
}

static void on_peer_event(struct bufferevent *peer, short what, void *context)
{
    struct fake *fake = context;
    (void)what;
    bufferevent_free(peer);
    if (fake->peer == peer)
        fake->peer = NULL;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int bytes,
                      void *context)
{
    struct fake *fake = context;
    (void)listener;
    (void)address;
    (void)bytes;
    fake->connections++;
    fake->peer = bufferevent_socket_new(fake->base, fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(fake->peer, on_peer_read, NULL, on_peer_event, fake);
    bufferevent_enable(fake->peer, EV_READ | EV_WRITE);
}

static void fake_listen(struct fake *fake)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, fake->path);
    fake->listener = evconnlistener_new_bind(fake->base, on_accept, fake, LEV_OPT_CLOSE_ON_FREE, 16,
                                             (struct sockaddr *)&address, sizeof address);
    assert_non_null(fake->listener);
}

static void fake_init(struct fake *fake)
{
    memset(fake, 0, sizeof *fake);
    fake->base = event_base_new();
    fake->received = evbuffer_new();
    strcpy(fake->folder, "/tmp/quire-test-XXXXXX");
    assert_non_null(mkdtemp(fake->folder));
    snprintf(fake->path, sizeof fake->path, "%s/s", fake->folder);
    snprintf(fake->address, sizeof fake->address, "unix:%s", fake->path);
    fake_listen(fake);
}

static void fake_fini(struct fake *fake)
{
    if (fake->peer)
        bufferevent_free(fake->peer);
    if (fake->listener)
        evconnlistener_free(fake->listener);
    evbuffer_free(fake->received);
    event_base_free(fake->base);
    unlink(fake->path);
    rmdir(fake->folder);
}

/* Turns of the loop until *what is `wanted`; fails after five seconds. */
static void until(struct fake *fake, const unsigned *what, unsigned wanted)
{
    for (unsigned i = 0; i < 5000 && *what < wanted; i++) {
        struct timeval ms = {0, 1000};
        event_base_loopexit(fake->base, &ms);
        event_base_dispatch(fake->base);
    }
    assert_int_equal(*what, wanted);
}

/* Until the server has received this. */
static void until_received(struct fake *fake, const char *text)
{
    for (unsigned i = 0; i < 5000; i++) {
        struct timeval ms = {0, 1000};
        if (evbuffer_get_length(fake->received) >= strlen(text))
            break;
        event_base_loopexit(fake->base, &ms);
        event_base_dispatch(fake->base);
    }
    char got[400] = "";
    assert_true(evbuffer_get_length(fake->received) < sizeof got);
    evbuffer_remove(fake->received, got, sizeof got - 1);
    assert_string_equal(got, text);
}

static void fake_say(struct fake *fake, const char *text)
{
    bufferevent_write(fake->peer, text, strlen(text));
}

static void on_done(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct result *result = context;
    result->done++;
    result->outcome = outcome;
    if (reply) /* a raw one does not end with NUL */
        snprintf(result->text, sizeof result->text, "%.*s", (int)reply->len, reply->str);
    else
        snprintf(result->text, sizeof result->text, "%s", why);
}

static void on_late(void *context, struct redisReply *reply)
{
    struct result *result = context;
    result->done++;
    snprintf(result->text, sizeof result->text, "%s", reply->str);
}

static struct sc_client *client_of(struct fake *fake, const char *password)
{
    struct sc_options options = {.address = fake->address,
                                 .password = password,
                                 .connections = 1,
                                 .connect_ms = 1000,
                                 .breaker_failures = 3,
                                 .breaker_ms = 100,
                                 .pending_bytes_max = 1000};
    struct sc_client *client = NULL;
    struct quire_error err;
    assert_int_equal(sc_client_create(fake->base, &options, &client, &err), 0);
    return client;
}

static struct sc_call *say(struct sc_client *client, const char *word, unsigned ms, struct result *result)
{
    return sc_call(client, 1, &word, (size_t[]){strlen(word)}, ms, on_done, result);
}

static unsigned up(const struct sc_client *client)
{
    struct sc_client_state state;
    sc_client_state(client, &state);
    return state.connections_up;
}

static void until_up(struct fake *fake, const struct sc_client *client)
{
    unsigned is_up = 0;
    for (unsigned i = 0; i < 5000 && !is_up; i++) {
        struct timeval ms = {0, 1000};
        event_base_loopexit(fake->base, &ms);
        event_base_dispatch(fake->base);
        is_up = up(client);
    }
    assert_int_equal(is_up, 1);
}

static void test_order(void **state)
{
    struct fake fake;
    struct sc_client *client;
    struct result a = {0}, b = {0}, c = {0}, late_b = {0}, late_x = {0};
    struct sc_call *x;
    (void)state;
    fake_init(&fake);
    client = client_of(&fake, "secret");
    until(&fake, &fake.connections, 1);
    /* before the connection is there: waits until the user is taken */
    sc_call_late(say(client, "A", 1000, &a), on_late, &a);
    until_received(&fake, "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n");
    sc_call_late(say(client, "B", 20, &b), on_late, &late_b);
    fake_say(&fake, "+OK\r\n");
    until_received(&fake, "*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n");
    sc_cancel(x = say(client, "X", 1000, &c));
    sc_call_late(x, on_late, &late_x);
    sc_cancel(say(client, "Y", 1000, &c));
    say(client, "C", 1000, &c);
    fake_say(&fake, "$3\r\none\r\n");
    until(&fake, &a.done, 1);
    assert_string_equal(a.text, "one");
    until(&fake, &b.done, 1);
    assert_int_equal(b.outcome, SC_TIMEOUT);
    fake_say(&fake, "$4\r\nlate\r\n-ERR x\r\n$1\r\ny\r\n-ERR no\r\n"); /* of B, X, Y, C */
    until(&fake, &c.done, 1);
    assert_int_equal(c.outcome, SC_ERROR);
    assert_string_equal(c.text, "ERR no");
    assert_int_equal(b.done, 1);
    assert_int_equal(a.done, 1);
    assert_int_equal(late_b.done, 1);
    assert_string_equal(late_b.text, "late");
    assert_int_equal(late_x.done, 1);
    assert_string_equal(late_x.text, "ERR x");
    sc_client_destroy(client);
    fake_fini(&fake);
}

/* Nothing follows a password that is wrong: a server whose default user is open would carry it out for that one. */
static void test_refused(void **state)
{
    struct fake fake;
    struct result a = {0};
    struct sc_client_state now;
    (void)state;
    fake_init(&fake);
    struct sc_client *client = client_of(&fake, "wrong");
    until(&fake, &fake.connections, 1);
    say(client, "A", 1000, &a);
    until_received(&fake, "*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n");
    fake_say(&fake, "-WRONGPASS no\r\n");
    until(&fake, &a.done, 1);
    assert_int_equal(a.outcome, SC_DOWN);
    assert_non_null(strstr(a.text, "WRONGPASS no"));
    assert_int_equal(evbuffer_get_length(fake.received), 0);
    sc_client_state(client, &now);
    assert_true(now.refused);
    sc_client_destroy(client);
    fake_fini(&fake);
}

/* Raw replies of RESP3, in pieces; commands wait for a connection that is not there yet. */
static void test_raw(void **state)
{
    static const char reply[] = "%1\r\n$1\r\na\r\n*2\r\n,0.5\r\n_\r\n";
    struct fake fake;
    struct sc_client *client = NULL;
    struct quire_error err;
    struct result a = {0}, b = {0}, c = {0};
    (void)state;
    fake_init(&fake);
    struct sc_options options = {.address = fake.address,
                                 .connections = 1,
                                 .connect_ms = 1000,
                                 .breaker_failures = 1000,
                                 .breaker_ms = 1,
                                 .pending_bytes_max = 1000,
                                 .raw = true,
                                 .reply_bytes_max = 100};
    assert_int_equal(sc_client_create(fake.base, &options, &client, &err), 0);
    say(client, "A", 5000, &a);
    say(client, "B", 5000, &b);
    until_received(&fake, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
    fake_say(&fake, "%1\r\n$5\r\nproto\r\n:3\r\n");
    until_received(&fake, "*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n");
    for (size_t i = 0; i + 1 < sizeof reply; i++) {
        bufferevent_write(fake.peer, reply + i, 1);
        assert_int_equal(a.done, 0);
        struct timeval ms = {0, 1000};
        event_base_loopexit(fake.base, &ms);
        event_base_dispatch(fake.base);
    }
    until(&fake, &a.done, 1);
    assert_int_equal(a.outcome, SC_REPLY);
    assert_memory_equal(a.text, reply, sizeof reply - 1);
    fake_say(&fake, "-ERR no\r\n");
    until(&fake, &b.done, 1);
    assert_int_equal(b.outcome, SC_ERROR);
    assert_string_equal(b.text, "ERR no");
    say(client, "C", 5000, &c);
    until_received(&fake, "*1\r\n$1\r\nC\r\n");
    fake_say(&fake, "$1000\r\n");
    for (unsigned i = 0; i < 3; i++)
        fake_say(&fake, "fifty bytes fifty bytes fifty bytes fifty bytes ..");
    until(&fake, &c.done, 1);
    assert_int_equal(c.outcome, SC_DOWN);
    assert_non_null(strstr(c.text, "larger"));
    sc_client_destroy(client);
    fake_fini(&fake);
}

static void test_scan(void **state)
{
    static const struct {
        const char *bytes;
        enum sc_scanned last; /* of the whole; of less it is MORE */
    } cases[] = {
        {"+OK\r\n", SC_SCAN_WHOLE},
        {"$-1\r\n", SC_SCAN_WHOLE},
        {"*0\r\n", SC_SCAN_WHOLE},
        {"%0\r\n", SC_SCAN_WHOLE},
        {"$4\r\n\r\n\r\n\r\n", SC_SCAN_WHOLE},
        {"=7\r\ntxt:a\r\n\r\n", SC_SCAN_WHOLE},
        {"*2\r\n%1\r\n:1\r\n#t\r\n~1\r\n*0\r\n", SC_SCAN_WHOLE},
        {"*1\r\n*1\r\n*1\r\n(12345678901234567890\r\n", SC_SCAN_WHOLE},
        {"?1\r\n", SC_SCAN_BROKEN},
        {"*x\r\n", SC_SCAN_BROKEN},
        {"*-2\r\n", SC_SCAN_WHOLE},
        {"$-2\r\n", SC_SCAN_BROKEN},
        {"$99999999999999999999\r\n", SC_SCAN_BROKEN},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
         SC_SCAN_BROKEN}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sc_scan scan = {0};
        size_t n = strlen(cases[i].bytes);
        enum sc_scanned seen = SC_SCAN_MORE;
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(seen, SC_SCAN_MORE);
            *sc_scan_room(&scan, 1) = cases[i].bytes[k];
            scan.n++;
            seen = sc_scan_next(&scan);
        }
        assert_int_equal(seen, cases[i].last);
        if (seen == SC_SCAN_WHOLE) {
            assert_int_equal(scan.at, n);
            sc_scan_drop(&scan);
            assert_int_equal(scan.n, 0);
        }
        sc_scan_fini(&scan);
    }
}

static void test_broken(void **state)
{
    struct fake fake;
    struct sc_client *client;
    struct result a = {0}, b = {0}, c = {0};
    struct sc_client_state now;
    char large[2000];
    (void)state;
    fake_init(&fake);
    client = client_of(&fake, NULL);
    until_up(&fake, client);
    say(client, "A", 1000, &a);
    until_received(&fake, "*1\r\n$1\r\nA\r\n");
    bufferevent_free(fake.peer);
    fake.peer = NULL;
    until(&fake, &a.done, 1);
    assert_int_equal(a.outcome, SC_DOWN);
    until_up(&fake, client); /* by itself */
    assert_int_equal(fake.connections, 2);
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = 0;
    say(client, large, 1000, &b);
    assert_int_equal(b.done, 0); /* never from within */
    until(&fake, &b.done, 1);
    assert_int_equal(b.outcome, SC_BUSY);
    fake_say(&fake, "?what\r\n");
    say(client, "C", 1000, &c);
    until(&fake, &c.done, 1);
    assert_int_equal(c.outcome, SC_DOWN);
    sc_client_state(client, &now);
    assert_non_null(strstr(now.why, "cannot be read"));
    sc_client_destroy(client);
    fake_fini(&fake);
}

static void test_breaker(void **state)
{
    struct fake fake;
    struct sc_client *client;
    struct result a[3] = {{0}}, b = {0}, c = {0}, d = {0};
    struct sc_client_state now;
    (void)state;
    fake_init(&fake);
    client = client_of(&fake, NULL);
    until_up(&fake, client);
    for (unsigned i = 0; i < 3; i++)
        say(client, "A", 10, &a[i]);
    for (unsigned i = 0; i < 3; i++)
        until(&fake, &a[i].done, 1);
    sc_client_state(client, &now);
    assert_true(now.breaker_open && now.timeouts == 3);
    say(client, "B", 1000, &b);
    until(&fake, &b.done, 1);
    assert_int_equal(b.outcome, SC_BUSY);
    for (unsigned i = 0; i < 120; i++) { /* breaker_ms */
        struct timeval ms = {0, 1000};
        event_base_loopexit(fake.base, &ms);
        event_base_dispatch(fake.base);
    }
    say(client, "C", 1000, &c); /* the one that finds out */
    say(client, "D", 1000, &d);
    until(&fake, &d.done, 1);
    assert_int_equal(d.outcome, SC_BUSY);
    fake_say(&fake, ":1\r\n:1\r\n:1\r\n+fine\r\n");
    until(&fake, &c.done, 1);
    assert_int_equal(c.outcome, SC_REPLY);
    sc_client_state(client, &now);
    assert_true(!now.breaker_open && now.late_replies == 3);
    sc_client_destroy(client);
    fake_fini(&fake);
}

static void test_addresses(void **state)
{
    static const char *const bad[] = {"", "host", "host:", "host:0", "host:65536", "host:1x", ":5", "unix:"};
    struct event_base *base = event_base_new();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sc_options options = {.address = bad[i], .connections = 1, .breaker_failures = 1};
        struct sc_client *client = NULL;
        struct quire_error err;
        assert_int_equal(sc_client_create(base, &options, &client, &err), QUIRE_EINVALID);
        assert_null(client);
        assert_non_null(strstr(err.message, "server"));
    }
    event_base_free(base);
}

static struct redisReply *parse(const char *text)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    redisReaderFeed(reader, text, strlen(text));
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    redisReaderFree(reader);
    return reply;
}

static void test_replies(void **state)
{
    struct redisReply *hit = parse("*12\r\n$6\r\nstatus\r\n$3\r\nhit\r\n$10\r\nsimilarity\r\n$4\r\n0.93\r\n$2\r\nid\r\n"
                                   "$16\r\n0123456789abcdef\r\n$6\r\nage_ms\r\n:5\r\n$6\r\nchunks\r\n*2\r\n$1\r\na\r\n"
                                   "$1\r\nb\r\n$5\r\nlease\r\n$-1\r\n");
    static const char *const bad[] = {"+OK\r\n", "*2\r\n$6\r\nstatus\r\n$4\r\nwhat\r\n",
                                      "*2\r\n$6\r\nstatus\r\n$3\r\nhit\r\n",
                                      "*4\r\n$6\r\nstatus\r\n$4\r\nmiss\r\n$6\r\nage_ms\r\n$1\r\n5\r\n"};
    struct sc_get get;
    (void)state;
    assert_true(sc_reply_get(hit, &get));
    assert_true(get.status == SC_HIT && get.age_ms == 5 && get.ttl_ms == -1 && get.audit == -1 && !get.lease.data);
    assert_true(get.similarity > 0.929 && get.similarity < 0.931 && get.id.bytes == 16 && get.chunks->elements == 2);
    freeReplyObject(hit);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* a hit without an answer is none, too */
        struct redisReply *reply = parse(bad[i]);
        get.audit = 77;
        assert_false(sc_reply_get(reply, &get));
        assert_int_equal(get.audit, 77);
        freeReplyObject(reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order),     cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_raw),       cmocka_unit_test(test_scan),
                                       cmocka_unit_test(test_broken),    cmocka_unit_test(test_breaker),
                                       cmocka_unit_test(test_addresses), cmocka_unit_test(test_replies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
