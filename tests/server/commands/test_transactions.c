/*
 * test_transactions.c - MULTI, EXEC, DISCARD, WATCH as Redis 7 documents them; that others see all of a transaction or
 * nothing; that a crash leaves all of it or nothing; and writes to vector sets that must know what the disk holds.
 */
#include "io/random.h"
#include "tests/sanitized.h"
#include "tests/server/support_server.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define EXECABORT "EXECABORT Transaction discarded because of previous errors."

static void queue(struct connection *c, const char *words)
{
    expect_text(c, words, "QUEUED");
}

static struct reply exec_of(struct connection *c, size_t n)
{
    struct reply r = ask(c, "EXEC");
    if (r.type != '*' || r.null || r.n != n)
        fail_msg("EXEC: %c '%s' with %zu replies instead of %zu", r.type, r.text ? r.text : "", r.n, n);
    return r;
}

static void expect_null_exec(struct connection *c)
{
    struct reply r = ask(c, "EXEC");
    if (!r.null)
        fail_msg("EXEC: %c '%s' with %zu replies instead of null", r.type, r.text ? r.text : "", r.n);
    reply_free(&r);
}

/* ---- replies ------------------------------------------------------------------------------------------------------*/

static void test_queue_and_exec(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c, other;
    (void)state;
    connect_to(&c, s->port);
    connect_to(&other, s->port);
    for (unsigned protocol = 2; protocol <= 3; protocol++) {
        struct reply r = ask(&c, protocol == 2 ? "HELLO 2" : "HELLO 3");
        reply_free(&r);
        expect_text(&c, "FLUSHALL", "OK");
        expect_text(&c, "MULTI", "OK");
        queue(&c, "SET a 1");
        queue(&c, "INCR a");
        queue(&c, "GET a");
        queue(&c, "HSET a f v"); /* fails, and undoes nothing */
        queue(&c, "GET none");
        queue(&c, "DBSIZE");
        expect_integer(&other, "EXISTS a", 0);
        r = exec_of(&c, 6);
        assert_true(reply_is(&r.items[0], "OK") && r.items[1].integer == 2 && reply_is(&r.items[2], "2"));
        assert_true(r.items[3].type == '-' && strncmp(r.items[3].text, "WRONGTYPE", 9) == 0);
        assert_true(r.items[4].null && r.items[5].integer == 1);
        reply_free(&r);
        expect_text(&other, "GET a", "2");
        expect_text(&c, "MULTI", "OK");
        r = exec_of(&c, 0);
        reply_free(&r);
    }
    disconnect(&other);
    disconnect(&c);
    support_server_end(s);
}

static void test_errors(void **state)
{
    static const char *const taints[] = {"NOSUCH x", "GET",        "SET k",    "CONFIG NOSUCH",
                                         "VSEAL k",  "VCOMPACT k", "VCOUNT k", "VLOAD k p",
                                         "VCHECK k", "SHUTDOWN",   "SAVE",     "CLIENT REPLY OFF"};
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    expect_error(&c, "EXEC", "ERR EXEC without MULTI");
    expect_error(&c, "DISCARD", "ERR DISCARD without MULTI");
    for (size_t i = 0; i < sizeof taints / sizeof *taints; i++) {
        expect_text(&c, "MULTI", "OK");
        queue(&c, "SET k v");
        expect_error(&c, taints[i], "ERR");
        queue(&c, "SET k w");
        expect_error(&c, "EXEC", EXECABORT);
        expect_integer(&c, "EXISTS k", 0);
    }
    expect_text(&c, "MULTI", "OK");
    expect_error(&c, "MULTI", "ERR MULTI calls can not be nested");
    expect_error(&c, "WATCH k", "ERR WATCH inside MULTI is not allowed");
    queue(&c, "SET k v");
    struct reply r = exec_of(&c, 1);
    reply_free(&r);
    expect_text(&c, "MULTI", "OK");
    queue(&c, "SET k w");
    expect_text(&c, "DISCARD", "OK");
    expect_error(&c, "EXEC", "ERR EXEC without MULTI");
    expect_text(&c, "MULTI", "OK");
    queue(&c, "SET k w");
    expect_error(&c, "EXEC now",
                 "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command");
    expect_error(&c, "EXEC", "ERR EXEC without MULTI");
    expect_text(&c, "MULTI", "OK");
    queue(&c, "SET k w");
    expect_text(&c, "RESET", "RESET");
    expect_error(&c, "EXEC", "ERR EXEC without MULTI");
    expect_text(&c, "GET k", "v");
    expect_text(&c, "MULTI", "OK");
    queue(&c, "SET k w");
    expect_text(&c, "QUIT", "OK");
    expect_closed(&c);
    disconnect(&c);
    support_server_end(s);
}

static void test_permissions_are_asked_twice(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c, admin;
    (void)state;
    connect_to(&c, s->port);
    connect_to(&admin, s->port);
    expect_text(&admin, "ACL SETUSER u on nopass ~a* +@all", "OK");
    expect_text(&c, "AUTH u x", "OK");
    expect_text(&c, "MULTI", "OK");
    expect_error(&c, "SET b 1", "NOPERM");
    expect_error(&c, "EXEC", EXECABORT);
    expect_text(&c, "MULTI", "OK");
    queue(&c, "SET a 1");
    queue(&c, "GET a");
    expect_text(&admin, "ACL SETUSER u -set", "OK");
    struct reply r = exec_of(&c, 2);
    assert_int_equal(r.items[0].type, '-');
    assert_non_null(
        strstr(r.items[0].text, "NOPERM ACLs rules changed between the moment the transaction was accumul"));
    assert_true(r.items[1].null);
    reply_free(&r);
    expect_text(&c, "MULTI", "OK");
    queue(&c, "GET a");
    expect_text(&admin, "ACL SETUSER u -exec", "OK");
    expect_error(&c, "EXEC", "EXECABORT Transaction discarded because of: NOPERM");
    disconnect(&admin);
    disconnect(&c);
    support_server_end(s);
}

static void test_limit(void **state)
{
    static const char *const settings[] = {"client-query-buffer-limit", "1mb", NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    (void)state;
    char words[100100] = "SET k ";
    memset(words + 6, 'x', 100000);
    connect_to(&c, s->port);
    expect_text(&c, "MULTI", "OK");
    for (unsigned i = 0; i < 10; i++)
        queue(&c, words);
    expect_error(&c, words, "ERR the transaction is larger than client-query-buffer-limit (1048576 bytes)");
    expect_error(&c, "EXEC", EXECABORT);
    expect_integer(&c, "EXISTS k", 0);
    disconnect(&c);
    support_server_end(s);
}

/* ---- WATCH --------------------------------------------------------------------------------------------------------*/

static void begin_watched(struct connection *c, const char *watch)
{
    expect_text(c, watch, "OK");
    expect_text(c, "MULTI", "OK");
    queue(c, "SET done 1");
}

static void test_watch(void **state)
{
    static const struct {
        const char *before, *between; /* of another client */
        bool changes;
    } cases[] = {{"SET k 1", "SET k 2", true},
                 {"SET k 1", "SET k 1", true},
                 {"SET k 1", "DEL k", true},
                 {"DEL k", "SET k 1", true},
                 {"SET k 1", "GET k", false},
                 {"SET k 1", "SET x 1", false},
                 {"DEL k", "GET k", false},
                 {"HSET k f v", "HSET k g v", true},
                 {"SET k 1", "PEXPIRE k 1", true},
                 {"SET k 1", "FLUSHALL", true},
                 {"SET k 1", "RENAME k l", true},
                 {"DEL k", "FLUSHALL", false},
                 {"VADD k VALUES 2 1 1 a", "VADD k VALUES 2 1 2 b", true},
                 {"VADD k VALUES 2 1 1 a", "VREM k a", true},
                 {"VADD k VALUES 2 1 1 a", "VSIM k ELE a", false}};
    struct test_server *s = support_server(NULL);
    struct connection c, other;
    (void)state;
    connect_to(&c, s->port);
    connect_to(&other, s->port);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_text(&other, "FLUSHALL", "OK");
        struct reply r = ask(&other, cases[i].before);
        reply_free(&r);
        begin_watched(&c, "WATCH x0 k x1");
        r = ask(&other, cases[i].between);
        reply_free(&r);
        usleep(3000);
        if (cases[i].changes) {
            expect_null_exec(&c);
        } else {
            r = exec_of(&c, 1);
            reply_free(&r);
        }
        if ((r = ask(&c, "EXISTS done")).integer != !cases[i].changes)
            fail_msg("%s, WATCH, %s", cases[i].before, cases[i].between);
        reply_free(&r);
    }
    disconnect(&other);
    disconnect(&c);
    support_server_end(s);
}

static void test_watch_ends(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    begin_watched(&c, "WATCH k");
    expect_text(&c, "DISCARD", "OK");
    expect_text(&c, "SET k 1", "OK");
    expect_text(&c, "MULTI", "OK");
    struct reply r = exec_of(&c, 0);
    reply_free(&r);
    expect_text(&c, "WATCH k", "OK");
    expect_text(&c, "SET k 2", "OK"); /* one's own changes count */
    expect_text(&c, "MULTI", "OK");
    expect_null_exec(&c);
    expect_text(&c, "WATCH k", "OK");
    expect_text(&c, "SET k 3", "OK");
    expect_text(&c, "UNWATCH", "OK");
    expect_text(&c, "MULTI", "OK");
    queue(&c, "UNWATCH");
    r = exec_of(&c, 1);
    reply_free(&r);
    expect_text(&c, "SET t v PX 20", "OK"); /* time alone changes a key, too */
    expect_text(&c, "WATCH t", "OK");
    usleep(40000);
    expect_text(&c, "MULTI", "OK");
    expect_null_exec(&c);
    r = ask(&c, "HELLO 3");
    reply_free(&r);
    expect_text(&c, "WATCH k", "OK");
    expect_text(&c, "SET k 4", "OK");
    expect_text(&c, "MULTI", "OK");
    r = ask(&c, "EXEC");
    assert_int_equal(r.type, '_');
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
}

enum { RACERS = 4, WINS = 150 };

static void *race(void *port)
{
    struct connection c;
    char words[64];
    connect_to(&c, *(const unsigned *)port);
    for (unsigned wins = 0; wins < WINS;) {
        expect_text(&c, "WATCH n", "OK");
        struct reply r = ask(&c, "GET n");
        snprintf(words, sizeof words, "SET n %lld", r.null ? 1 : atoll(r.text) + 1);
        reply_free(&r);
        expect_text(&c, "MULTI", "OK");
        queue(&c, words);
        r = ask(&c, "EXEC");
        wins += !r.null;
        reply_free(&r);
    }
    disconnect(&c);
    return NULL;
}

/* Increments by reading and writing are lost unless WATCH sees every change. */
static void test_watch_race(void **state)
{
    static const char *const settings[] = {"lanes", "4", NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    pthread_t threads[RACERS];
    (void)state;
    for (unsigned i = 0; i < RACERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, &s->port), 0);
    for (unsigned i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    connect_to(&c, s->port);
    expect_integer(&c, "INCRBY n 0", RACERS * WINS);
    disconnect(&c);
    support_server_end(s);
}

/* ---- seen by others -----------------------------------------------------------------------------------------------*/

struct readers {
    unsigned port;
    atomic_bool stop;
    atomic_uint looks, differing;
};

static void *read_pairs(void *context)
{
    struct readers *readers = context;
    struct connection c;
    connect_to(&c, readers->port);
    while (!atomic_load(&readers->stop)) {
        struct reply r = ask(&c, "MGET a b c d");
        bool same = r.n == 4;
        for (size_t i = 1; i < r.n; i++)
            same = same && strcmp(r.items[0].text, r.items[i].text) == 0;
        reply_free(&r);
        send_literal(&c, "*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$4\r\nHGET\r\n$1\r\nh\r\n$1\r\nf\r\n"
                         "*2\r\n$5\r\nVCARD\r\n$1\r\nv\r\n*1\r\n$4\r\nEXEC\r\n");
        for (unsigned i = 0; i < 4; i++) {
            r = read_reply(&c);
            reply_free(&r);
        }
        r = read_reply(&c);
        same = same && r.n == 3 && strcmp(r.items[0].text, r.items[1].text) == 0 &&
               atoll(r.items[0].text) == r.items[2].integer;
        reply_free(&r);
        atomic_fetch_add(&readers->looks, 1);
        atomic_fetch_add(&readers->differing, !same);
    }
    disconnect(&c);
    return NULL;
}

static void put_transaction(struct resp_buffer *out, unsigned i)
{
    static const char *const forms[] = {
        "SET a %u", "SET b %u", "HSET h f %u", "SET c %u", "SET d %u", "SET e %u", "VADD v VALUES 2 1 2 e%u"};
    char words[64];
    put_request(out, "MULTI");
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(words, sizeof words, forms[f], i);
#pragma GCC diagnostic pop
        put_request(out, words);
    }
    put_request(out, "EXEC");
}

enum { TRANSACTION_REPLIES = 9 };

static void write_transaction(struct connection *c, unsigned i)
{
    struct resp_buffer out = {.protocol = 2};
    put_transaction(&out, i);
    send_bytes(c, out.data, out.bytes);
    resp_buffer_fini(&out);
    for (unsigned n = 0; n < TRANSACTION_REPLIES; n++) {
        struct reply r = read_reply(c);
        assert_int_not_equal(r.type, '-');
        reply_free(&r);
    }
}

static void test_others_see_all_or_nothing(void **state)
{
    static const char *const settings[] = {"lanes", "4", "appendfsync", "no", NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    pthread_t threads[4];
    struct readers readers = {.port = s->port};
    (void)state;
    connect_to(&c, s->port);
    write_transaction(&c, 1);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_pairs, &readers), 0);
    unsigned written = 1;
    while (written < 400 || atomic_load(&readers.looks) < 400)
        write_transaction(&c, ++written);
    atomic_store(&readers.stop, true);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&readers.differing), 0);
    expect_integer(&c, "VCARD v", written);
    disconnect(&c);
    support_server_end(s);
}

/* ---- crashes ------------------------------------------------------------------------------------------------------*/

/* What is there is a whole number of transactions, at least `least`. */
static void check_whole(const char *folder, unsigned least)
{
    const char *settings[] = {"dir", folder, NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    connect_to(&c, s->port);
    struct reply r = ask(&c, "MGET a b c d e");
    long long i = r.items[0].null ? 0 : atoll(r.items[0].text);
    for (size_t k = 0; k < r.n; k++)
        assert_int_equal(r.items[k].null ? 0 : atoll(r.items[k].text), i);
    reply_free(&r);
    r = ask(&c, "HGET h f");
    assert_int_equal(r.null ? 0 : atoll(r.text), i);
    reply_free(&r);
    expect_integer(&c, "VCARD v", i);
    assert_true(i >= least);
    disconnect(&c);
    support_server_end(s);
}

/* The child: a server that runs until it is killed; its port goes to the pipe. */
static void serve_until_killed(const char *folder, int pipe_end)
{
    const char *settings[] = {"dir", folder, "appendfsync", "always", NULL};
    struct test_server *s;
    struct quire_error err = {0};
    if (support_try_server(&s, &err, settings) < 0)
        _exit(1);
    if (write(pipe_end, &s->port, sizeof s->port) != (ssize_t)sizeof s->port)
        _exit(1);
    for (;;)
        pause();
}

/* How many transactions were acknowledged before the kill, each of which ends with the greatest number so far. */
static unsigned write_until_dead(unsigned port, pid_t child, unsigned acknowledged, unsigned kill_after)
{
    struct connection c;
    struct resp_buffer out = {.protocol = 2};
    connect_to(&c, port);
    for (unsigned i = 0; i < kill_after; i++)
        write_transaction(&c, ++acknowledged);
    /* some more that nobody waits for */
    for (unsigned i = 1; i <= 20; i++)
        put_transaction(&out, acknowledged + i);
    send_bytes(&c, out.data, out.bytes);
    usleep(kill_after * 37 % 1500);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    resp_buffer_fini(&out);
    disconnect(&c);
    return acknowledged;
}

static unsigned transactions_in(const char *folder)
{
    const char *settings[] = {"dir", folder, NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    connect_to(&c, s->port);
    struct reply r = ask(&c, "GET a");
    unsigned i = r.null ? 0 : (unsigned)atoi(r.text);
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
    return i;
}

static void test_kill(void **state)
{
    char *folder = support_folder_make();
    unsigned done = 0;
    (void)state;
    for (unsigned round = 1; round <= 5; round++) {
        int ends[2];
        unsigned port = 0;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            serve_until_killed(folder, ends[1]);
        assert_int_equal(read(ends[0], &port, sizeof port), sizeof port);
        close(ends[0]);
        close(ends[1]);
        done = write_until_dead(port, child, done, 3 * round);
        check_whole(folder, done);
        done = transactions_in(folder);
    }
    support_folder_remove(folder);
}

/* The only log of a folder, or the last one. */
static char *last_log(const char *folder)
{
    char name[256] = "";
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strncmp(entry->d_name, "log-", 4) == 0 && strcmp(entry->d_name, name) > 0)
            snprintf(name, sizeof name, "%s", entry->d_name);
    closedir(dir);
    return support_path(folder, name);
}

/* Where a log has its marks, and its first frame (docs/format.md). */
enum { MARKS_AT = 4096, FRAMES_AT = 8192 };

/* The log ends anywhere: as after a loss of power while it was written, before anything of it was synced. */
static void test_torn_log(void **state)
{
    static const char no_marks[FRAMES_AT - MARKS_AT];
    char *folder = support_folder_make();
    const char *settings[] = {"dir", folder, NULL};
    struct random random = {3};
    struct stat whole;
    (void)state;
    struct test_server *s = support_server(settings);
    struct connection c;
    connect_to(&c, s->port);
    for (unsigned i = 1; i <= 40; i++)
        write_transaction(&c, i);
    char *log = last_log(folder);
    disconnect(&c);
    support_server_end(s);
    assert_int_equal(stat(log, &whole), 0);
    for (off_t bytes = whole.st_size; bytes > FRAMES_AT; bytes -= 1 + (off_t)(random_next(&random) % 900)) {
        /* what the check itself begins is younger than the cut: it goes */
        char *newer;
        while (strcmp(newer = last_log(folder), log) != 0) {
            assert_int_equal(unlink(newer), 0);
            free(newer);
        }
        free(newer);
        assert_int_equal(truncate(log, bytes), 0);
        int fd = open(log, O_WRONLY);
        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, no_marks, sizeof no_marks, MARKS_AT), sizeof no_marks);
        close(fd);
        check_whole(folder, 0);
    }
    free(log);
    support_folder_remove(folder);
}

/* ---- vector sets --------------------------------------------------------------------------------------------------*/

enum { SEALED = 2000, DIM = 8 };

static void put_vadd(struct resp_buffer *out, const char *key, unsigned element, float shift, const char *attributes)
{
    char name[16];
    float vector[DIM];
    for (unsigned d = 0; d < DIM; d++)
        vector[d] = shift + (float)(random_mix(element * DIM + d) % 1000);
    snprintf(name, sizeof name, "%u", element);
    resp_array(out, attributes ? 7 : 5);
    resp_text(out, "VADD");
    resp_text(out, key);
    resp_text(out, "FP32");
    resp_bulk(out, vector, sizeof vector);
    resp_text(out, name);
    if (attributes) {
        resp_text(out, "SETATTR");
        resp_text(out, attributes);
    }
}

static void flush_requests(struct connection *c, struct resp_buffer *out)
{
    send_bytes(c, out->data, out->bytes);
    resp_buffer_fini(out);
    *out = (struct resp_buffer){.protocol = 2};
}

/* Elements 0..SEALED-1, each third with attributes, all in segments. */
static void make_sealed(struct connection *c, const char *key)
{
    struct resp_buffer out = {.protocol = 2};
    char words[64];
    for (unsigned i = 0; i < SEALED; i++)
        put_vadd(&out, key, i, 1, i % 3 == 0 ? "{\"old\":1}" : NULL);
    flush_requests(c, &out);
    for (unsigned i = 0; i < SEALED; i++) {
        struct reply r = read_reply(c);
        assert_int_equal(r.integer, 1);
        reply_free(&r);
    }
    snprintf(words, sizeof words, "VSEAL %s", key);
    expect_text(c, words, "OK");
}

static void expect_attributes(struct connection *c, const char *key, unsigned element, const char *attributes)
{
    char words[64];
    snprintf(words, sizeof words, "VGETATTR %s %u", key, element);
    struct reply r = ask(c, words);
    if (attributes ? !reply_is(&r, attributes) : !r.null)
        fail_msg("%s: '%s', not '%s'", words, r.text ? r.text : "", attributes ? attributes : "");
    reply_free(&r);
}

static void read_queued(struct connection *c, unsigned n)
{
    check_text(read_reply(c), "OK"); /* MULTI */
    while (n-- > 0)
        check_text(read_reply(c), "QUEUED");
}

/* 1,000 VADDs in one MULTI, as clients send pipelines: half of them replace sealed elements. */
static void test_many_vadds(void **state)
{
    static const char *const settings[] = {"memtable-memory", "64kb", NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    struct resp_buffer out = {.protocol = 2};
    (void)state;
    connect_to(&c, s->port);
    make_sealed(&c, "v");
    long long before = info_number(&c, "fetches"); /* filters are wrong now and then */
    for (unsigned round = 0; round < 3; round++) {
        unsigned first = SEALED - 500 + 500 * round;
        put_request(&out, "MULTI");
        for (unsigned i = 0; i < 1000; i++)
            put_vadd(&out, "v", first + i, 2, NULL);
        put_request(&out, "EXEC");
        flush_requests(&c, &out);
        read_queued(&c, 1000);
        struct reply r = read_reply(&c);
        assert_int_equal(r.n, 1000);
        for (unsigned i = 0; i < 1000; i++)
            assert_int_equal(r.items[i].integer, i >= 500);
        reply_free(&r);
        expect_integer(&c, "VCARD v", SEALED + 500 * (round + 1));
        expect_text(&c, "VSEAL v", "OK");
    }
    assert_true(info_number(&c, "fetches") >= before + 500);
    expect_attributes(&c, "v", 1500, "{\"old\":1}");
    expect_attributes(&c, "v", 1501, NULL);
    expect_attributes(&c, "v", SEALED + 1, NULL);
    struct reply r = ask(&c, "VSIM v ELE 1700 COUNT 1");
    assert_true(reply_is(&r.items[0], "1700"));
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
}

/* Several writes to the same sealed elements, and what they leave of attributes. */
static void test_writes_to_sealed(void **state)
{
    static const char *const sequence[] = {"VSETATTR v 3 {\"new\":1}",
                                           "VREM v 6",
                                           "VREM v 6",
                                           "VREM v 9",
                                           "VSETATTR v 9 {\"new\":1}",
                                           "VSETATTR v 10 {\"new\":1}",
                                           "VGETATTR v 10",
                                           "VSETATTR v 12 {\"new\":1}",
                                           "VREM v 12",
                                           "VCARD v"};
    static const long long expected[] = {1, 1, 0, 1, 0, 1, 0, 1, 1, SEALED - 3};
    struct test_server *s = support_server(NULL);
    struct connection c;
    struct resp_buffer out = {.protocol = 2};
    (void)state;
    connect_to(&c, s->port);
    make_sealed(&c, "v");
    put_request(&out, "MULTI");
    for (unsigned i = 0; i < 10; i++)
        put_request(&out, sequence[i]);
    put_vadd(&out, "v", 6, 3, NULL); /* was removed: no attributes any more */
    put_vadd(&out, "v", 15, 3, NULL);
    put_vadd(&out, "v", 15, 4, NULL); /* keeps them twice */
    put_request(&out, "RENAME v w");
    put_vadd(&out, "w", 18, 3, NULL); /* sealed in what was v */
    put_vadd(&out, "v", 18, 3, NULL); /* a new set */
    put_request(&out, "EXEC");
    flush_requests(&c, &out);
    read_queued(&c, 16);
    struct reply r = read_reply(&c);
    assert_int_equal(r.n, 16);
    for (unsigned i = 0; i < 10; i++)
        if (i != 6)
            assert_int_equal(r.items[i].integer, expected[i]);
    assert_true(reply_is(&r.items[6], "{\"new\":1}"));
    assert_true(r.items[10].integer == 1 && r.items[11].integer == 0 && r.items[12].integer == 0);
    assert_true(reply_is(&r.items[13], "OK") && r.items[14].integer == 0 && r.items[15].integer == 1);
    reply_free(&r);
    expect_integer(&c, "VCARD v", 1);
    expect_integer(&c, "VCARD w", SEALED - 2);
    expect_attributes(&c, "w", 3, "{\"new\":1}");
    expect_attributes(&c, "w", 6, NULL);
    expect_attributes(&c, "w", 10, "{\"new\":1}");
    expect_attributes(&c, "w", 15, "{\"old\":1}");
    expect_attributes(&c, "w", 18, "{\"old\":1}");
    disconnect(&c);
    support_server_end(s);
}

/* Replies that wait for the disk stand in their places. */
static void test_replies_that_wait(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    make_sealed(&c, "v");
    expect_text(&c, "MULTI", "OK");
    queue(&c, "SET k 1");
    queue(&c, "VSIM v ELE 700 COUNT 3");
    queue(&c, "GET k");
    queue(&c, "VISMEMBER v 700");
    queue(&c, "VEMB v nobody");
    queue(&c, "VRANDMEMBER v 5");
    queue(&c, "INCR k");
    send_request(&c, "EXEC");
    send_request(&c, "GET k");
    struct reply r = read_reply(&c);
    assert_int_equal(r.n, 7);
    assert_true(reply_is(&r.items[0], "OK") && r.items[1].n == 3 && reply_is(&r.items[1].items[0], "700"));
    assert_true(reply_is(&r.items[2], "1") && r.items[3].integer == 1 && r.items[4].null);
    assert_true(r.items[5].n == 5 && r.items[6].integer == 2);
    reply_free(&r);
    check_text(read_reply(&c), "2");
    disconnect(&c);
    support_server_end(s);
}

static void *churn(void *context)
{
    struct readers *readers = context;
    struct connection c;
    connect_to(&c, readers->port);
    while (!atomic_load(&readers->stop)) {
        expect_text(&c, "VSEAL v", "OK");
        expect_text(&c, "VCOMPACT v", "OK");
        atomic_fetch_add(&readers->looks, 1);
    }
    disconnect(&c);
    return NULL;
}

/* Segments are exchanged all the time between what the disk says and the write. */
static void test_segments_change_meanwhile(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    struct resp_buffer out = {.protocol = 2};
    struct readers churning = {.port = s->port};
    pthread_t thread;
    (void)state;
    connect_to(&c, s->port);
    make_sealed(&c, "v");
    assert_int_equal(pthread_create(&thread, NULL, churn, &churning), 0);
    for (unsigned round = 0; round < 60 || atomic_load(&churning.looks) < 8; round++) {
        put_request(&out, "MULTI");
        for (unsigned i = 0; i < 50; i++)
            put_vadd(&out, "v", (round * 50 + i) % SEALED, 2, NULL);
        put_request(&out, "EXEC");
        flush_requests(&c, &out);
        read_queued(&c, 50);
        struct reply r = read_reply(&c);
        assert_int_equal(r.n, 50);
        for (unsigned i = 0; i < 50; i++)
            assert_true(r.items[i].type == ':' && r.items[i].integer == 0);
        reply_free(&r);
    }
    atomic_store(&churning.stop, true);
    pthread_join(thread, NULL);
    expect_integer(&c, "VCARD v", SEALED);
    for (unsigned i = 0; i < 60; i++)
        expect_attributes(&c, "v", i, i % 3 == 0 ? "{\"old\":1}" : NULL);
    disconnect(&c);
    support_server_end(s);
}

/* ---- how long ---------------------------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Queues the request n times. */
static void queue_many(struct connection *c, const struct resp_buffer *request, unsigned n)
{
    enum { AT_ONCE = 500 };
    for (unsigned i = 0; i < n; i++) {
        send_bytes(c, request->data, request->bytes);
        if (i % AT_ONCE == AT_ONCE - 1 || i + 1 == n)
            for (unsigned k = 0; k <= i % AT_ONCE; k++)
                check_text(read_reply(c), "QUEUED");
    }
}

/* What EXEC runs while others wait for keys is bounded, and how far can be changed while the server runs. */
static void test_commands_limit(void **state)
{
    enum { LIMIT = 65536 };
    struct test_server *s = support_server((const char *const[]){NULL});
    struct resp_buffer out = {.protocol = 2};
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    resp_array(&out, 2);
    resp_text(&out, "INCR");
    resp_text(&out, "k");
    for (unsigned round = 0; round < 2; round++) {
        expect_text(&c, "MULTI", "OK");
        queue_many(&c, &out, LIMIT);
        if (round == 0) {
            expect_error(&c, "INCR k", "ERR a transaction of 65537 commands: transaction-commands-limit is 65536,");
            queue(&c, "INCR k"); /* accepted, and not kept */
            expect_error(&c, "EXEC", EXECABORT);
            expect_integer(&c, "EXISTS k", 0);
        } else {
            struct reply r = ask(&c, "EXEC");
            assert_int_equal(r.n, LIMIT);
            assert_int_equal(r.items[LIMIT - 1].integer, LIMIT);
            reply_free(&r);
        }
    }
    expect_text(&c, "CONFIG SET transaction-commands-limit 2", "OK");
    expect_text(&c, "MULTI", "OK");
    queue(&c, "INCR k");
    queue(&c, "INCR k");
    expect_error(&c, "INCR k", "ERR a transaction of 3 commands: transaction-commands-limit is 2,");
    expect_text(&c, "DISCARD", "OK");
    resp_buffer_fini(&out);
    disconnect(&c);
    support_server_end(s);
}

/* Thousands of commands that take milliseconds each: after a second those that only read are not run any more, and what
 * writes is written, also behind them. */
static void test_reads_of_a_transaction_end(void **state)
{
    enum { FIELD = 192 << 10, PATTERN = 900, COMMANDS = 4000 };
    struct test_server *s = support_server(NULL);
    struct resp_buffer out = {.protocol = 2};
    struct connection c;
    char *field = malloc(FIELD), pattern[PATTERN + 2];
    (void)state;
    assert_non_null(field);
    memset(field, 'a', FIELD);
    for (unsigned i = 0; i < PATTERN; i += 3)
        memcpy(pattern + i, "*a?", 3);
    strcpy(pattern + PATTERN, "b");
    connect_to(&c, s->port);
    resp_array(&out, 4);
    resp_text(&out, "HSET");
    resp_text(&out, "h");
    resp_bulk(&out, field, FIELD);
    resp_text(&out, "v");
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    struct reply r = read_reply(&c);
    reply_free(&r);
    resp_array(&out, 5);
    resp_text(&out, "HSCAN");
    resp_text(&out, "h");
    resp_text(&out, "0");
    resp_text(&out, "MATCH");
    resp_text(&out, pattern);
    expect_text(&c, "MULTI", "OK");
    queue(&c, "SET before 1");
    queue_many(&c, &out, COMMANDS);
    queue(&c, "SET after 1");
    resp_buffer_fini(&out);
    uint64_t began = now_ms();
    r = exec_of(&c, COMMANDS + 2);
    assert_in_range(now_ms() - began, 900, 8000);
    assert_true(reply_is(&r.items[0], "OK") && reply_is(&r.items[COMMANDS + 1], "OK"));
    assert_int_equal(r.items[1].type, '*');
    assert_int_equal(r.items[COMMANDS].type, '-');
    assert_string_equal(
        r.items[COMMANDS].text,
        "ERR EXEC took more than 1000 ms, in which others wait for keys and sets: this command was not run, "
        "those that write were; make smaller transactions");
    reply_free(&r);
    expect_text(&c, "GET after", "1");
    free(field);
    disconnect(&c);
    support_server_end(s);
}

/* Nothing is read for a client that is closed for the size of its reply; what it writes is written. */
static void test_nothing_is_read_for_nobody(void **state)
{
    enum { FIELDS = 20000, COMMANDS = 8000 };
    struct test_server *s =
        support_server((const char *const[]){"maxmemory-clients", "4mb", "client-output-buffer-limit", "1mb", NULL});
    struct resp_buffer out = {.protocol = 2};
    struct connection c, other;
    char word[16];
    (void)state;
    connect_to(&c, s->port);
    connect_to(&other, s->port);
    resp_array(&out, 2 + 2 * FIELDS);
    resp_text(&out, "HSET");
    resp_text(&out, "h");
    for (unsigned i = 0; i < FIELDS; i++) {
        snprintf(word, sizeof word, "field%u", i);
        resp_text(&out, word);
        resp_text(&out, word);
    }
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    struct reply r = read_reply(&c);
    assert_int_equal(r.integer, FIELDS);
    reply_free(&r);
    resp_array(&out, 2);
    resp_text(&out, "HGETALL");
    resp_text(&out, "h");
    expect_text(&c, "MULTI", "OK");
    queue_many(&c, &out, COMMANDS);
    queue(&c, "SET after 1");
    resp_buffer_fini(&out);
    uint64_t began = now_ms();
    send_request(&c, "EXEC");
    expect_closed(&c);
    if (!SANITIZED)
        assert_in_range(now_ms() - began, 0, 4000); /* it took ten seconds */
    expect_text(&other, "GET after", "1");
    disconnect(&other);
    disconnect(&c);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_queue_and_exec),
                                       cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_permissions_are_asked_twice),
                                       cmocka_unit_test(test_limit),
                                       cmocka_unit_test(test_commands_limit),
                                       cmocka_unit_test(test_watch),
                                       cmocka_unit_test(test_watch_ends),
                                       cmocka_unit_test(test_watch_race),
                                       cmocka_unit_test(test_others_see_all_or_nothing),
                                       cmocka_unit_test(test_kill),
                                       cmocka_unit_test(test_torn_log),
                                       cmocka_unit_test(test_many_vadds),
                                       cmocka_unit_test(test_writes_to_sealed),
                                       cmocka_unit_test(test_replies_that_wait),
                                       cmocka_unit_test(test_segments_change_meanwhile),
                                       cmocka_unit_test(test_reads_of_a_transaction_end),
                                       cmocka_unit_test(test_nothing_is_read_for_nobody)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
