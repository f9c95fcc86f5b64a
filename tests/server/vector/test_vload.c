/*
 * test_vload.c - indexes come, go and are damaged while others search them; and what VLOAD may not open.
 *
 * Searching threads keep pipelines full while the main thread loads, removes and loads again; every reply must be whole
 * and of the kind the state of the key allows. The threads assert nothing (cmocka's failures may not leave another
 * thread): they count, and the main thread judges.
 */
#include "server/server.h"
#include "tests/server/support_server.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEARCHERS = 4, PIPELINE = 20 };

static const char *engine;
static char *folder, *imports;

static int set_up(void **state)
{
    (void)state;
    folder = support_folder_make();
    imports = support_path(folder, "imports");
    assert_int_equal(mkdir(imports, 0755), 0);
    support_build(imports, "one", QUIRE_METRIC_L2);
    support_build(imports, "two", QUIRE_METRIC_COSINE);
    support_build_kind(imports, "lists", QUIRE_METRIC_L2, QUIRE_INDEX_SPANN);
    support_build(folder, "outside", QUIRE_METRIC_L2);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(imports);
    support_folder_remove(folder);
    return 0;
}

static struct test_server *start(void)
{
    const char *const settings[] = {"engine", engine, "import-dir", imports, NULL};
    return support_server(settings);
}

/* ---- what may be opened ------------------------------------------------------------------------------------------ */

static void put_link(const char *to, const char *name)
{
    char *path = support_path(imports, name);
    if (symlink(to, path) != 0)
        assert_int_equal(errno, EEXIST);
    free(path);
}

static void test_outside_is_refused(void **state)
{
    (void)state;
    static const char *const outside[] = {"../outside", "one/../../outside",      "link-out", "link-up/outside", ".",
                                          "..",         "./../imports/../outside"};
    /* the first two in this test's folder; whether there is something makes no difference, nor where import-dir is */
    static const char *const absolute[] = {"/outside", "/imports/one", "/etc", "/nosuch", "/"};
    struct test_server *s = start();
    struct connection c;
    char words[600];
    put_link("../outside", "link-out");
    put_link("..", "link-up");
    put_link("one", "link-in");
    connect_to(&c, s->port);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        snprintf(words, sizeof words, "VLOAD k %s", outside[i]);
        struct reply r = ask(&c, words);
        if (r.type != '-' || !strstr(r.text, "outside of import-dir"))
            fail_msg("%s gives '%s'", words, r.text);
        reply_free(&r);
    }
    for (size_t i = 0; i < sizeof absolute / sizeof *absolute; i++) {
        char sentence[700];
        snprintf(words, sizeof words, "VLOAD k %s%s", i < 2 ? folder : "", absolute[i]);
        snprintf(sentence, sizeof sentence,
                 "ERR %s is absolute, so it lies outside of import-dir: paths are relative to it",
                 words + strlen("VLOAD k "));
        expect_error(&c, words, sentence);
    }
    expect_error(&c, "VLOAD k nosuch", "ERR cannot find below import-dir nosuch");
    expect_error(&c, "VLOAD k one/meta", "ERR ");
    send_literal(&c, "VLOAD k \"one\\x00\"\r\n");
    check_error(read_reply(&c), "ERR not a path");
    send_literal(&c, "VLOAD k \"\"\r\n");
    check_error(read_reply(&c), "ERR ");
    expect_integer(&c, "DBSIZE", 0);
    expect_text(&c, "VLOAD k link-in", "OK");
    expect_text(&c, "VLOAD k2 ./two/../one", "OK");
    expect_text(&c, "VLOAD k3 link-up/imports/two", "OK");
    expect_integer(&c, "DBSIZE", 3);
    disconnect(&c);
    support_server_end(s);
}

/* A folder whose name begins with that of import-dir lies outside of it. */
/* An index folder that is whole but for one file, which is something else: refused with a sentence, at once, and
 * nothing of it stays. What was refused before is answered by the same worker afterwards. */
static void test_only_plain_files(void **state)
{
    static const char *const files[] = {"meta", "blocks", "codes", "keys"};
    static const char *const kinds[] = {"a symbolic link", "a pipe", "a socket", "a folder", "a device"};
    struct test_server *s = start();
    struct connection c;
    char from[600], to[600], words[100], data[600];
    (void)state;
    connect_to(&c, s->port);
    snprintf(data, sizeof data, "%s/segments", s->data);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (size_t odd = 0; odd < sizeof files / sizeof *files; odd++) {
            snprintf(to, sizeof to, "%s/odd", imports);
            assert_int_equal(mkdir(to, 0755), 0);
            for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                snprintf(from, sizeof from, "%s/one/%s", imports, files[i]);
                snprintf(to, sizeof to, "%s/odd/%s", imports, files[i]);
                struct sockaddr_un address = {.sun_family = AF_UNIX};
                if (i != odd) {
                    assert_int_equal(link(from, to), 0);
                } else if (kind == 0) { /* into another folder, as of who wants a file from outside */
                    snprintf(from, sizeof from, "../../outside/%s", files[i]);
                    assert_int_equal(symlink(from, to), 0);
                } else if (kind == 1) {
                    assert_int_equal(mkfifo(to, 0644), 0);
                } else if (kind == 2) {
                    assert_true(strlen(to) < sizeof address.sun_path);
                    memcpy(address.sun_path, to, strlen(to) + 1);
                    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
                    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
                    close(fd);
                } else if (kind == 3) {
                    assert_int_equal(mkdir(to, 0755), 0);
                } else if (mknod(to, S_IFCHR | 0666, makedev(1, 5)) != 0) { /* not as root: /dev/zero by a link */
                    assert_int_equal(symlink("/dev/zero", to), 0);
                }
            }
            struct reply reply = ask(&c, "VLOAD k odd");
            assert_int_equal(reply.type, '-');
            if (!strstr(reply.text, files[odd]) || !strstr(reply.text, kind < 4 ? kinds[kind] : "must be plain files"))
                fail_msg("%s", reply.text);
            reply_free(&reply);
            expect_integer(&c, "EXISTS k", 0);
            assert_int_equal(support_count_entries(data), 0);
            for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                snprintf(to, sizeof to, "%s/odd/%s", imports, files[i]);
                assert_int_equal(remove(to), 0);
            }
            snprintf(to, sizeof to, "%s/odd", imports);
            assert_int_equal(rmdir(to), 0);
        }
    snprintf(words, sizeof words, "VLOAD k one");
    expect_text(&c, words, "OK");
    expect_integer(&c, "VCARD k", SUPPORT_ROWS);
    disconnect(&c);
    support_server_end(s);
}

static void test_sibling_with_the_same_beginning(void **state)
{
    (void)state;
    struct test_server *s = start();
    struct connection c;
    char *sibling = support_path(folder, "imports-2");
    mkdir(sibling, 0755);
    connect_to(&c, s->port);
    struct reply r = ask(&c, "VLOAD k ../imports-2");
    assert_true(r.type == '-' && strstr(r.text, "outside of import-dir"));
    reply_free(&r);
    free(sibling);
    disconnect(&c);
    support_server_end(s);
}

/* What VSEGMENTS says of a segment's calibration is what the library says of the index that it was made of. */
static void test_segments(void **state)
{
    enum { ROWS = 1500, POINTS = 512 };
    struct test_server *s = start();
    struct connection c;
    struct quire_error err = {0};
    struct quire_build_options options;
    struct quire_index *index = NULL;
    struct quire_calibration_point points[POINTS];
    float *rows = malloc(sizeof *rows * ROWS * SUPPORT_DIM);
    char *path = support_path(imports, "large");
    uint64_t random = 7;
    (void)state;
    for (size_t i = 0; i < (size_t)ROWS * SUPPORT_DIM; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        rows[i] = (float)(random >> 40) / 16777216 - 0.5f;
    }
    quire_build_options_init(&options);
    options.metric = QUIRE_METRIC_L2;
    if (quire_build(path, rows, ROWS, SUPPORT_DIM, QUIRE_TYPE_F32, &options, &err) < 0 ||
        quire_open(path, NULL, &index, &err) < 0)
        fail_msg("%s", err.message);
    uint32_t n = quire_calibration(index, points, POINTS);
    assert_in_range(n, 3, POINTS);
    quire_close(index);
    connect_to(&c, s->port);
    struct reply r = ask(&c, "VSEGMENTS k");
    assert_true(r.null);
    reply_free(&r);
    expect_text(&c, "VLOAD k large", "OK");
    r = ask(&c, "VSEGMENTS k");
    assert_int_equal(r.n, 1);
    const struct reply *one = &r.items[0], *curve = reply_field(one, "curve");
    assert_true(reply_is(reply_field(one, "index"), "pagegraph"));
    assert_int_equal(reply_field(one, "rows")->integer, ROWS);
    assert_int_equal(reply_field(one, "dead-rows")->integer, 0);
    assert_int_equal(reply_field(one, "memory-budget")->integer, 0);
    assert_true(reply_field(one, "disk-bytes")->integer > 0 && reply_field(one, "resident-bytes")->integer > 0);
    assert_int_equal(curve->n, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct reply *p = &curve->items[i];
        assert_int_equal(p->n, 5);
        assert_true(p->items[0].integer == points[i].k && p->items[1].integer == points[i].effort);
        assert_float_equal(strtof(p->items[2].text, NULL), points[i].recall, 1e-6f);
        assert_float_equal(strtof(p->items[3].text, NULL), points[i].reads, 1e-3f);
        assert_true(reply_is(&p->items[4], points[i].distance == QUIRE_DISTANCE_EXACT ? "exact" : "estimate"));
    }
    reply_free(&r);
    expect_integer(&c, "VREM k 0", 1);
    r = ask(&c, "VSEGMENTS k");
    assert_int_equal(reply_field(&r.items[0], "dead-rows")->integer, 1);
    reply_free(&r);
    expect_text(&c, "SET text x", "OK");
    expect_error(&c, "VSEGMENTS text", "WRONGTYPE");
    disconnect(&c);
    support_server_end(s);
    free(path);
    free(rows);
}

static void test_options_and_errors(void **state)
{
    (void)state;
    struct test_server *s = start();
    struct connection c;
    connect_to(&c, s->port);
    expect_error(&c, "VLOAD k", "ERR wrong number of arguments for 'vload' command");
    expect_error(&c, "VLOAD k one NOPE", "ERR syntax error at 'NOPE'");
    expect_error(&c, "VLOAD k one MEMORY", "ERR syntax error at 'MEMORY'");
    expect_error(&c, "VLOAD k one MEMORY 0", "ERR syntax error at 'MEMORY'");
    send_literal(&c, "VLOAD \"\" one\r\n");
    check_error(read_reply(&c), "ERR a key has 1 to 65535 bytes");
    expect_text(&c, "VLOAD k one MEMORY 100000000", "OK");
    struct reply r = ask(&c, "VINFO k");
    assert_int_equal(reply_field(&r, "memory-budget")->integer, 100000000);
    assert_true(reply_field(&r, "cache-bytes")->integer > 0);
    assert_int_equal(reply_field(&r, "cache-hits")->integer, 0);
    long long first = reply_field(&r, "vset-uid")->integer;
    reply_free(&r);
    expect_error(&c, "VLOAD k two", "ERR "); /* another metric */
    expect_error(&c, "VLOAD k one REPLACE", "ERR syntax error at 'REPLACE'");
    expect_error(&c, "VLOAD k nosuch", "ERR ");
    expect_text(&c, "VLOAD k one", "OK"); /* the elements of the same names are replaced */
    r = ask(&c, "VINFO k");
    assert_true(reply_is(reply_field(&r, "metric"), "l2"));
    assert_int_equal(reply_field(&r, "vset-uid")->integer, first);
    assert_int_equal(reply_field(&r, "size")->integer, SUPPORT_ROWS);
    reply_free(&r);
    expect_text(&c, "SET text x", "OK");
    expect_error(&c, "VLOAD text one", "BUSYKEY ");
    expect_integer(&c, "VCARD k", SUPPORT_ROWS);
    expect_integer(&c, "UNLINK k nokey", 1);
    expect_integer(&c, "VCARD k", 0);
    disconnect(&c);
    support_server_end(s);
    const char *const settings[] = {"engine", engine, NULL};
    s = support_server(settings);
    connect_to(&c, s->port);
    expect_error(&c, "VLOAD k one", "ERR VLOAD is off");
    disconnect(&c);
    support_server_end(s);
}

static void check_plan(struct connection *c, const char *words, const char *plan)
{
    struct reply r = ask(c, words);
    assert_int_equal(r.n, 2);
    if (!reply_is(reply_field(&r.items[1], "plan"), plan))
        fail_msg("%s: not by %s", words, plan);
    reply_free(&r);
}

/* A set is of its index's kind, takes one of the other kind, too, and merges both to its own. */
static void test_kinds_of_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *first, *index, *second;
    } cases[] = {{"lists", "spann", "one"}, {"one", "pagegraph", "lists"}};
    struct test_server *s = start();
    struct connection c;
    char words[64];
    connect_to(&c, s->port);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(words, sizeof words, "VLOAD k %s", cases[i].first);
        expect_text(&c, words, "OK");
        struct reply r = ask(&c, "VINFO k");
        assert_true(reply_is(reply_field(&r, "index"), cases[i].index));
        reply_free(&r);
        check_plan(&c, "VSIM k ELE 5 EXPLAIN", cases[i].index);
        snprintf(words, sizeof words, "VCREATE other DIM %u METRIC l2 SLOT f32 INDEX %s", SUPPORT_DIM, cases[i].index);
        expect_text(&c, words, "OK");
        snprintf(words, sizeof words, "VLOAD other %s", cases[i].second);
        expect_text(&c, words, "OK");
        check_plan(&c, "VSIM other ELE 5 EXPLAIN", cases[1 - i].index);
        snprintf(words, sizeof words, "VREM other %u", SUPPORT_ROWS - 1); /* so that there is something to merge */
        expect_integer(&c, words, 1);
        expect_text(&c, "VCOMPACT other", "OK");
        check_plan(&c, "VSIM other ELE 5 EXPLAIN", cases[i].index);
        r = ask(&c, "VSIM other ELE 5 COUNT 1");
        assert_true(r.n == 1 && reply_is(&r.items[0], "5"));
        reply_free(&r);
        expect_integer(&c, "VCARD other", SUPPORT_ROWS - 1);
        expect_integer(&c, "DEL k other", 2);
    }
    disconnect(&c);
    support_server_end(s);
}

/* What was sent behind a VLOAD sees what it loaded. */
static void test_requests_behind_wait(void **state)
{
    (void)state;
    struct test_server *s = start();
    struct connection c;
    connect_to(&c, s->port);
    for (unsigned i = 0; i < 20; i++) {
        send_request(&c, i % 2 ? "VLOAD k one" : "VLOAD k two");
        send_request(&c, "VISMEMBER k 1");
        send_request(&c, "VINFO k");
        send_request(&c, "DEL k");
        send_request(&c, "VCARD k");
    }
    for (unsigned i = 0; i < 20; i++) {
        check_text(read_reply(&c), "OK");
        struct reply r = read_reply(&c);
        assert_int_equal(r.integer, 1);
        reply_free(&r);
        r = read_reply(&c);
        assert_true(reply_is(reply_field(&r, "metric"), i % 2 ? "l2" : "cosine"));
        reply_free(&r);
        r = read_reply(&c);
        assert_int_equal(r.integer, 1);
        reply_free(&r);
        r = read_reply(&c);
        assert_int_equal(r.integer, 0);
        reply_free(&r);
    }
    disconnect(&c);
    support_server_end(s);
}

/* Two clients load different metrics under the same key at once: one of them gets it. */
static void test_two_loads_of_one_key(void **state)
{
    (void)state;
    struct test_server *s = start();
    struct connection a, b;
    connect_to(&a, s->port);
    connect_to(&b, s->port);
    for (unsigned i = 0; i < 10; i++) {
        send_request(&a, "VLOAD k one");
        send_request(&b, "VLOAD k two");
        struct reply x = read_reply(&a), y = read_reply(&b);
        assert_true((x.type == '+') + (y.type == '+') == 1);
        const char *refused = x.type == '-' ? x.text : y.text;
        if (strncmp(refused, "BUSYKEY ", 8) != 0 && !strstr(refused, "metric"))
            fail_msg("%s", refused);
        reply_free(&x);
        reply_free(&y);
        expect_integer(&a, "DEL k", 1);
    }
    disconnect(&a);
    disconnect(&b);
    support_server_end(s);
}

/* ---- searching threads ------------------------------------------------------------------------------------------- */

struct searching {
    pthread_t thread;
    unsigned port;
    atomic_bool *stop;
    bool until_closed;            /* the server ends the connection */
    atomic_ulong hits, empty;     /* replies with elements, without */
    unsigned long errors, broken; /* error replies; what is no reply or ends within one */
    char first_error[200];
};

static int connect_plainly(unsigned port)
{
    struct connection c;
    connect_to(&c, port);
    return c.fd;
}

static void judge(struct searching *s, const struct reply *r)
{
    if (r->type == '*' && r->n == 5)
        atomic_fetch_add(&s->hits, 1);
    else if (r->type == '*' && r->n == 0)
        atomic_fetch_add(&s->empty, 1);
    else if (s->errors++ == 0)
        snprintf(s->first_error, sizeof s->first_error, "%c%.150s", r->type, r->text ? r->text : "");
}

/* Reads `wanted` replies; false at the end of the connection. */
static bool read_replies(struct searching *s, int fd, uint8_t *in, size_t room, size_t *have, unsigned wanted)
{
    while (wanted > 0) {
        struct reply r;
        size_t used;
        int rc = *have ? reply_read(in, *have, &r, &used) : 0;
        if (rc == 1) {
            judge(s, &r);
            reply_free(&r);
            memmove(in, in + used, *have - used);
            *have -= used;
            wanted--;
            continue;
        }
        ssize_t got = rc < 0 ? -1 : recv(fd, in + *have, room - *have, 0);
        if (got > 0) {
            *have += (size_t)got;
            continue;
        }
        /* an end within a reply is a fault of the server, however it stops */
        s->broken += rc < 0 || *have > 0 || !s->until_closed;
        return false;
    }
    return true;
}

static void *search_on(void *context)
{
    struct searching *s = context;
    uint8_t in[65536];
    size_t have = 0;
    struct resp_buffer out = {.protocol = 2};
    int fd = connect_plainly(s->port);
    for (unsigned round = 0; !atomic_load(s->stop); round++) {
        out.bytes = 0;
        for (unsigned i = 0; i < PIPELINE; i++) {
            char words[64];
            snprintf(words, sizeof words, "VSIM k ELE %u COUNT 5", (round * PIPELINE + i) * 7 % SUPPORT_ROWS);
            put_request(&out, words);
        }
        if (send(fd, out.data, out.bytes, MSG_NOSIGNAL) != (ssize_t)out.bytes) {
            s->broken += !s->until_closed;
            break;
        }
        if (!read_replies(s, fd, in, sizeof in, &have, PIPELINE))
            break;
    }
    close(fd);
    resp_buffer_fini(&out);
    return NULL;
}

static void start_searching(struct searching *s, unsigned port, atomic_bool *stop, bool until_closed)
{
    for (unsigned i = 0; i < SEARCHERS; i++) {
        memset(&s[i], 0, sizeof s[i]);
        s[i].port = port;
        s[i].stop = stop;
        s[i].until_closed = until_closed;
        assert_int_equal(pthread_create(&s[i].thread, NULL, search_on, &s[i]), 0);
    }
}

static void end_searching(struct searching *s, unsigned long *hits, unsigned long *empty)
{
    *hits = *empty = 0;
    for (unsigned i = 0; i < SEARCHERS; i++) {
        pthread_join(s[i].thread, NULL);
        if (s[i].errors || s[i].broken)
            fail_msg("%lu errors (%s), %lu broken replies", s[i].errors, s[i].first_error, s[i].broken);
        *hits += atomic_load(&s[i].hits);
        *empty += atomic_load(&s[i].empty);
    }
}

static void wait_for_hits(struct searching *s, unsigned long n)
{
    for (unsigned i = 0; i < SEARCHERS; i++) {
        unsigned long begin = atomic_load(&s[i].hits) + atomic_load(&s[i].empty);
        for (unsigned tries = 0; atomic_load(&s[i].hits) + atomic_load(&s[i].empty) < begin + n; tries++) {
            assert_true(tries < 20000);
            usleep(1000);
        }
    }
}

/* Elements are replaced by those of the same names: nobody may see the key missing. */
static void test_load_again_while_searching(void **state)
{
    (void)state;
    struct test_server *s = start();
    struct connection c;
    struct searching searching[SEARCHERS];
    atomic_bool stop = false;
    unsigned long hits, empty;
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD k one", "OK");
    start_searching(searching, s->port, &stop, false);
    for (unsigned i = 0; i < 40; i++)
        expect_text(&c, "VLOAD k one", "OK");
    wait_for_hits(searching, 1);
    atomic_store(&stop, true);
    end_searching(searching, &hits, &empty);
    assert_true(hits > 0);
    assert_int_equal(empty, 0);
    disconnect(&c);
    support_server_end(s);
}

static void test_delete_while_searching(void **state)
{
    (void)state;
    struct test_server *s = start();
    struct connection c;
    struct searching searching[SEARCHERS];
    atomic_bool stop = false;
    unsigned long hits, empty;
    connect_to(&c, s->port);
    start_searching(searching, s->port, &stop, false);
    for (unsigned i = 0; i < 40; i++) {
        expect_text(&c, "VLOAD k one", "OK");
        if (i % 8 == 0)
            wait_for_hits(searching, PIPELINE + 1);
        expect_integer(&c, "DEL k", 1);
    }
    wait_for_hits(searching, 1);
    atomic_store(&stop, true);
    end_searching(searching, &hits, &empty);
    assert_true(hits > 0 && empty > 0);
    expect_integer(&c, "DBSIZE", 0);
    disconnect(&c);
    support_server_end(s);
}

/* A graceful stop while pipelines are full: what was begun is answered whole, then the connections end. */
static void test_stop_while_searching(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 5; round++) {
        struct test_server *s = start();
        struct connection c;
        struct searching searching[SEARCHERS];
        atomic_bool stop = false;
        unsigned long hits, empty;
        connect_to(&c, s->port);
        expect_text(&c, "VLOAD k one", "OK");
        start_searching(searching, s->port, &stop, true);
        wait_for_hits(searching, 1 + round * 10);
        disconnect(&c);
        support_server_end(s);
        atomic_store(&stop, true);
        end_searching(searching, &hits, &empty);
        assert_true(hits > 0);
        assert_int_equal(empty, 0);
    }
}

/* The server ends while indexes are being adopted and removed: nothing may leak or hang. */
static void test_stop_while_loading(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 12; round++) {
        struct test_server *s = start();
        struct connection c[4];
        for (unsigned i = 0; i < 4; i++) {
            connect_to(&c[i], s->port);
            expect_text(&c[i], "PING", "PONG");
        }
        expect_text(&c[0], "VLOAD k one", "OK");
        for (unsigned i = 0; i < 4; i++) {
            send_request(&c[i], i % 2 ? "VLOAD k one" : "VLOAD k two");
            if (round % 3 == 0)
                send_request(&c[i], "DEL k");
            if (round % 3 == 1)
                shutdown(c[i].fd, SHUT_WR);
        }
        if (round % 2)
            for (unsigned i = 0; i < 4; i++)
                disconnect(&c[i]);
        support_server_end(s);
        if (round % 2 == 0)
            for (unsigned i = 0; i < 4; i++)
                disconnect(&c[i]);
    }
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static void flip_bit(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void test_damaged_block(void **state)
{
    (void)state;
    enum { PLACE = 4096 * 3 + 700 }; /* within the third block */
    struct test_server *s = start();
    struct connection c;
    char *index = support_path(imports, "damaged"), *blocks = support_path(index, "blocks");
    struct stat st;
    if (stat(index, &st) != 0)
        support_build(imports, "damaged", QUIRE_METRIC_L2);
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD bad damaged", "OK");
    expect_text(&c, "VLOAD good one", "OK");
    flip_bit(blocks, PLACE);
    for (unsigned i = 0; i < 5; i++) {
        struct reply r = ask(&c, "VSIM bad ELE 1 TRUTH");
        if (r.type != '-' || strncmp(r.text, "ERR ", 4) != 0 || !strstr(r.text, "/blocks") ||
            !strstr(r.text, "offset 12288"))
            fail_msg("%c %s", r.type, r.text ? r.text : "");
        reply_free(&r);
        r = ask(&c, "VSIM good ELE 1 TRUTH");
        assert_int_equal(r.n, 10);
        reply_free(&r);
    }
    assert_true(info_number(&c, "search_errors") >= 5);
    flip_bit(blocks, PLACE);
    struct reply r = ask(&c, "VSIM bad ELE 1 TRUTH");
    assert_int_equal(r.n, 10);
    reply_free(&r);
    free(blocks);
    free(index);
    disconnect(&c);
    support_server_end(s);
}

static void test_damaged_before_opening(void **state)
{
    (void)state;
    struct test_server *s = start();
    struct connection c;
    char *meta = support_path(imports, "one/meta");
    connect_to(&c, s->port);
    flip_bit(meta, 4100);
    struct reply r = ask(&c, "VLOAD k one");
    flip_bit(meta, 4100);
    assert_true(r.type == '-' && strstr(r.text, "meta"));
    reply_free(&r);
    expect_integer(&c, "DBSIZE", 0);
    expect_text(&c, "VLOAD k one", "OK");
    free(meta);
    disconnect(&c);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outside_is_refused),     cmocka_unit_test(test_sibling_with_the_same_beginning),
        cmocka_unit_test(test_only_plain_files),       cmocka_unit_test(test_segments),
        cmocka_unit_test(test_options_and_errors),     cmocka_unit_test(test_requests_behind_wait),
        cmocka_unit_test(test_two_loads_of_one_key),   cmocka_unit_test(test_load_again_while_searching),
        cmocka_unit_test(test_delete_while_searching), cmocka_unit_test(test_stop_while_searching),
        cmocka_unit_test(test_stop_while_loading),     cmocka_unit_test(test_damaged_block),
        cmocka_unit_test(test_damaged_before_opening), cmocka_unit_test(test_kinds_of_indexes),
    };
    engine = "auto";
    int failed = cmocka_run_group_tests_name("vload, engine auto", tests, set_up, tear_down);
    engine = "threads";
    return failed + cmocka_run_group_tests_name("vload, engine threads", tests, set_up, tear_down);
}
