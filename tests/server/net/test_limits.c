/*
 * test_limits.c - what one client may do to others, to the server's memory, and to its stop.
 *
 * Each test stands for a defect that was found once: look-ups that starved behind searches, recursion as deep as the
 * line of those waiting, stops that waited for minutes of searches, an accept that failed a hundred thousand times a
 * second, clients closed although they read, memory that a client could take without end, long keys. All run with each
 * engine.
 *
 * Where it can be had, a count is compared and not a time: "answered soon" is how many searches of others ended before.
 * Times that must be kept have a margin of the busy machine, and counts are smaller under sanitizers.
 *
 * Left out: a client that sends QUIT and reads nothing is closed after 30 seconds (DRAIN_MS), too long to wait for
 * here; that it does not hold up a stop is tested.
 */
#include "io/random.h"
#include "tests/sanitized.h"
#include "tests/server/support_server.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The larger number where the program runs at full speed. */
#define SCALED(fast, slow) (SANITIZED ? (slow) : (fast))

enum {
    SLOW_ROWS = SCALED(1200, 300), /* an index whose TRUTH takes some milliseconds */
    SLOW_DIM = 2048,
    MANY_ROWS = SCALED(9000, 4500), /* more than the results a task keeps room for */
    MANY_DIM = 4,
    WAIT_MS = 20000
};

static const char *engine;
static char *folder;

#define SETTINGS(...) ((const char *const[]){"engine", engine, "import-dir", folder, __VA_ARGS__ NULL})
#define START(...)    support_server(SETTINGS(__VA_ARGS__))

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t processor_ms(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* ---- indexes ----------------------------------------------------------------------------------------------------- */

struct keys {
    const void *const *keys;
    const uint32_t *bytes;
};

static void build(const char *name, const float *vectors, uint32_t rows, uint32_t dim, struct keys keys)
{
    struct quire_build_options options;
    struct quire_error err = {0};
    char *path = support_path(folder, name);
    quire_build_options_init(&options);
    options.metric = QUIRE_METRIC_L2;
    options.slot = QUIRE_SLOT_F32;
    options.block_bytes = dim > 512 ? 0 : 4096;
    options.threads = 1;
    options.degree = 8;
    options.build_beam = 16;
    options.seed = 3;
    options.keys = keys.keys;
    options.key_bytes = keys.bytes;
    if (quire_build(path, vectors, rows, dim, QUIRE_TYPE_F32, &options, &err) < 0)
        fail_msg("building %s: %s", name, err.message);
    free(path);
}

static float *random_vectors(uint32_t rows, uint32_t dim)
{
    struct random random = {9};
    float *vectors = malloc((size_t)rows * dim * sizeof *vectors);
    assert_non_null(vectors);
    for (size_t i = 0; i < (size_t)rows * dim; i++)
        vectors[i] = (float)(random_next(&random) >> 40) * 0x1p-23f - 1;
    return vectors;
}

static float slow_query[SLOW_DIM]; /* row 7 of "slow" */

static void make_folder(void)
{
    folder = support_folder_make();
    support_build(folder, "l2", QUIRE_METRIC_L2);
    float *slow = random_vectors(SLOW_ROWS, SLOW_DIM), *many = random_vectors(MANY_ROWS, MANY_DIM);
    build("slow", slow, SLOW_ROWS, SLOW_DIM, (struct keys){0});
    build("many", many, MANY_ROWS, MANY_DIM, (struct keys){0});
    memcpy(slow_query, slow + 7 * SLOW_DIM, sizeof slow_query);
    free(slow);
    free(many);
}

/* VSIM key FP32 vector COUNT 1 TRUTH, which row 7 answers. */
static void put_truth(struct resp_buffer *out, const char *key)
{
    bool slow = strcmp(key, "slow") == 0;
    resp_array(out, 7);
    resp_text(out, "VSIM");
    resp_text(out, key);
    resp_text(out, "FP32");
    if (slow)
        resp_bulk(out, slow_query, sizeof slow_query);
    else
        resp_bulk(out, support_vectors() + 7 * SUPPORT_DIM, SUPPORT_DIM * sizeof(float));
    resp_text(out, "COUNT");
    resp_text(out, "1");
    resp_text(out, "TRUTH");
}

static const char truth_reply[] = "*1\r\n$1\r\n7\r\n";

/* ---- pumps: many requests whose replies are known, sent and read at the same time -------------------------------- */

struct pump {
    pthread_t thread;
    struct connection c;
    struct resp_buffer requests, replies; /* a period of both */
    size_t periods;                       /* to send; SIZE_MAX: until stopped */
    size_t window;                        /* periods that may be under way */
    bool half_close;                      /* once all is sent */
    bool lazy;                            /* reads only when nothing more can be sent */
    atomic_size_t sent, got;              /* bytes */
    atomic_bool stop;
    char fault[200];
};

static void pump_init(struct pump *p, unsigned port, size_t periods, size_t window)
{
    memset(p, 0, sizeof *p);
    connect_to(&p->c, port);
    p->requests.protocol = p->replies.protocol = 2;
    p->periods = periods;
    p->window = window;
}

static void pump_fini(struct pump *p)
{
    disconnect(&p->c);
    resp_buffer_fini(&p->requests);
    resp_buffer_fini(&p->replies);
}

static size_t pump_replies(struct pump *p)
{
    return atomic_load(&p->got) / p->replies.bytes;
}

/* Where sending has to stop for now. */
static size_t pump_send_end(struct pump *p)
{
    size_t all = p->periods, allowed = pump_replies(p) + p->window;
    if (atomic_load(&p->stop))
        all = (atomic_load(&p->sent) + p->requests.bytes - 1) / p->requests.bytes;
    return (allowed < all ? allowed : all) * p->requests.bytes;
}

static bool pump_sends(struct pump *p)
{
    size_t at = atomic_load(&p->sent), end = pump_send_end(p), within = at % p->requests.bytes;
    size_t n = p->requests.bytes - within < end - at ? p->requests.bytes - within : end - at;
    ssize_t sent = send(p->c.fd, p->requests.data + within, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        snprintf(p->fault, sizeof p->fault, "sending after %zu replies: %s", pump_replies(p), strerror(errno));
    atomic_fetch_add(&p->sent, sent > 0 ? (size_t)sent : 0);
    if (p->half_close && atomic_load(&p->sent) == p->periods * p->requests.bytes)
        shutdown(p->c.fd, SHUT_WR);
    return p->fault[0] == 0;
}

static bool pump_reads(struct pump *p)
{
    uint8_t in[16384];
    size_t at = atomic_load(&p->got), within = at % p->replies.bytes;
    size_t room = p->replies.bytes - within < sizeof in ? p->replies.bytes - within : sizeof in;
    ssize_t got = recv(p->c.fd, in, room, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0)
        snprintf(p->fault, sizeof p->fault, "%zu replies, then %s", pump_replies(p), got ? strerror(errno) : "the end");
    else if (memcmp(in, p->replies.data + within, (size_t)got) != 0)
        snprintf(p->fault, sizeof p->fault, "after %zu replies comes '%.60s'", pump_replies(p), (const char *)in);
    else
        atomic_fetch_add(&p->got, (size_t)got);
    return p->fault[0] == 0;
}

/* Ends when all replies are there, or with a fault. May be a thread: it asserts nothing. */
static void *pump_run(void *context)
{
    struct pump *p = context;
    for (;;) {
        size_t sent = atomic_load(&p->sent), end = pump_send_end(p);
        bool wants = sent < end;
        size_t due = atomic_load(&p->stop) || p->periods != SIZE_MAX
                         ? (atomic_load(&p->stop) ? end / p->requests.bytes : p->periods) * p->replies.bytes
                         : SIZE_MAX;
        if (!wants && atomic_load(&p->got) == due)
            return NULL;
        struct pollfd fd = {.fd = p->c.fd, .events = (short)(POLLIN | (wants ? POLLOUT : 0))};
        int ready = poll(&fd, 1, WAIT_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            snprintf(p->fault, sizeof p->fault, "nothing comes after %zu replies", pump_replies(p));
            return NULL;
        }
        bool sends = fd.revents & POLLOUT, reads = fd.revents & ~POLLOUT && !(sends && p->lazy);
        if ((sends && !pump_sends(p)) || (reads && !pump_reads(p)))
            return NULL;
    }
}

static void pump_start(struct pump *p)
{
    assert_int_equal(pthread_create(&p->thread, NULL, pump_run, p), 0);
}

static void pump_join(struct pump *p)
{
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    if (p->fault[0])
        fail_msg("%s", p->fault);
}

/* Until no other client is left. */
static void wait_until_alone(struct connection *c)
{
    for (uint64_t began = now_ms(); info_number(c, "connected_clients") > 1; usleep(10000))
        assert_in_range(now_ms() - began, 0, WAIT_MS);
}

/* ---- fair turns -------------------------------------------------------------------------------------------------- */

enum { FLOODS = 3, IN_LINE = 250 };

static size_t all_replies(struct pump *floods)
{
    size_t n = 0;
    for (unsigned i = 0; i < FLOODS; i++)
        n += pump_replies(&floods[i]);
    return n;
}

/* Other clients' searches that ended before the reply came. */
static size_t ended_before(struct connection *c, struct pump *floods, const char *words, char type)
{
    size_t before = all_replies(floods);
    struct reply r = ask(c, words);
    if (r.type != type || (type == '*' && r.n == 0))
        fail_msg("%s: the reply is %c '%s'", words, r.type, r.text ? r.text : "");
    reply_free(&r);
    return all_replies(floods) - before;
}

/* Three clients keep 250 searches each in line without a pause; a look-up waits for some of them and not for the line;
 * a search by element waits for the line once, and not without end. */
static void test_look_ups_get_their_turn(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "1", "searches-in-flight", "4", );
    struct connection c;
    struct pump floods[FLOODS];
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD l2 l2", "OK");
    for (unsigned i = 0; i < FLOODS; i++) {
        pump_init(&floods[i], s->port, SIZE_MAX, IN_LINE);
        put_truth(&floods[i].requests, "l2");
        put_literal(&floods[i].replies, truth_reply);
        pump_start(&floods[i]);
    }
    while (all_replies(floods) < 2 * IN_LINE)
        usleep(1000);
    for (unsigned round = 0; round < SCALED(10, 3); round++) {
        /* replies that the flood's threads had not read yet are counted too: hence the margin of half a line */
        assert_in_range(ended_before(&c, floods, "VISMEMBER l2 11", ':'), 0, FLOODS * IN_LINE / 2);
        assert_in_range(ended_before(&c, floods, "VEMB l2 11", '*'), 0, FLOODS * IN_LINE / 2);
        assert_in_range(ended_before(&c, floods, "VSIM l2 ELE 11", '*'), 0, 2 * FLOODS * IN_LINE);
    }
    for (unsigned i = 0; i < FLOODS; i++)
        pump_join(&floods[i]);
    for (unsigned i = 0; i < FLOODS; i++)
        pump_fini(&floods[i]);
    disconnect(&c);
    support_server_end(s);
}

/* ---- those that end without a read ------------------------------------------------------------------------------- */

enum { WAITING_CLIENTS = SCALED(120, 40), WAITING_EACH = 250 };

static void put_unknown(struct pump *p, bool search)
{
    if (search) {
        put_request(&p->requests, "VSIM l2 ELE 99999999");
        put_literal(&p->replies, "-ERR element not found in set\r\n");
    } else {
        put_request(&p->requests, "VISMEMBER l2 99999999");
        put_literal(&p->replies, ":0\r\n");
    }
}

/* Lanes get a small stack, so that recursion of a few thousand calls would show. */
static struct test_server *start_with_small_stacks(void)
{
    pthread_attr_t usual, small;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, SCALED(256, 1024) * 1024), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    struct test_server *s = START("lanes", "1", "searches-in-flight", "2", );
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    pthread_attr_destroy(&usual);
    pthread_attr_destroy(&small);
    return s;
}

static void test_thousands_that_end_without_a_read(void **state)
{
    (void)state;
    struct test_server *s = start_with_small_stacks();
    struct connection c;
    struct pump *waiting = calloc(WAITING_CLIENTS, sizeof *waiting), searches;
    assert_non_null(waiting);
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD l2 l2", "OK");
    expect_text(&c, "VLOAD slow slow", "OK");
    pump_init(&searches, s->port, SIZE_MAX, 16);
    put_truth(&searches.requests, "slow");
    put_literal(&searches.replies, truth_reply);
    for (unsigned i = 0; i < WAITING_CLIENTS; i++) {
        pump_init(&waiting[i], s->port, WAITING_EACH, WAITING_EACH);
        put_unknown(&waiting[i], i % 3 == 0);
    }
    pump_start(&searches);
    while (pump_replies(&searches) == 0)
        usleep(1000);
    for (unsigned i = 0; i < WAITING_CLIENTS; i++)
        for (unsigned n = 0; n < WAITING_EACH; n++)
            assert_true(pump_sends(&waiting[i]));
    for (unsigned i = 0; i < WAITING_CLIENTS; i++) {
        pump_run(&waiting[i]);
        if (waiting[i].fault[0])
            fail_msg("client %u: %s", i, waiting[i].fault);
        pump_fini(&waiting[i]);
    }
    pump_join(&searches);
    pump_fini(&searches);
    free(waiting);
    disconnect(&c);
    support_server_end(s);
}

/* ---- stop in time ------------------------------------------------------------------------------------------------ */

static void end_in_time(struct test_server *s)
{
    uint64_t began = now_ms();
    support_server_end(s);
    assert_in_range(now_ms() - began, 0, SCALED(3000, 10000));
}

/* Bytes until the connection ends. */
static size_t read_to_end(struct connection *c)
{
    uint8_t in[65536];
    size_t all = 0;
    ssize_t got;
    while ((got = recv(c->fd, in, sizeof in, 0)) > 0 || (got < 0 && errno == EINTR))
        all += got > 0 ? (size_t)got : 0;
    if (got < 0 && errno != ECONNRESET)
        fail_msg("the connection does not end: %s", strerror(errno));
    return all;
}

static void test_stop_with_a_long_line_of_searches(void **state)
{
    enum { CLIENTS = SCALED(8, 4) };
    (void)state;
    struct test_server *s = START("shutdown-timeout", "1", );
    struct connection c[CLIENTS];
    struct resp_buffer out = {.protocol = 2};
    for (unsigned i = 0; i < IN_LINE; i++)
        put_truth(&out, "slow");
    for (unsigned i = 0; i < CLIENTS; i++)
        connect_to(&c[i], s->port);
    expect_text(&c[0], "VLOAD slow slow", "OK");
    for (unsigned i = 0; i < CLIENTS; i++)
        send_bytes(&c[i], out.data, out.bytes);
    struct reply first = read_reply(&c[0]); /* so they have begun */
    reply_free(&first);
    end_in_time(s);
    size_t all = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        all += read_to_end(&c[i]);
        disconnect(&c[i]);
    }
    /* otherwise nothing was in line, and the test tests nothing */
    assert_true(all < CLIENTS * IN_LINE * (sizeof truth_reply - 1));
    resp_buffer_fini(&out);
}

static void put_echo(struct resp_buffer *out, size_t bytes)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'e', bytes);
    resp_array(out, 2);
    resp_text(out, "ECHO");
    resp_bulk(out, text, bytes);
    free(text);
}

static void test_stop_with_a_client_that_quit_and_reads_nothing(void **state)
{
    (void)state;
    struct test_server *s = START("shutdown-timeout", "1", "maxmemory-clients", "0", );
    struct connection deaf, other;
    struct resp_buffer echo = {.protocol = 2};
    put_echo(&echo, 1 << 20);
    connect_to(&deaf, s->port);
    connect_to(&other, s->port);
    for (unsigned i = 0; i < 30; i++)
        send_bytes(&deaf, echo.data, echo.bytes);
    send_request(&deaf, "QUIT");
    expect_text(&other, "PING", "PONG");
    end_in_time(s);
    assert_true(read_to_end(&deaf) < 30 << 20);
    disconnect(&deaf);
    disconnect(&other);
    resp_buffer_fini(&echo);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

enum { FILES_MAX = 512, COMERS = 5 };

/* io_uring keeps the limit of the moment when an accept was queued, so it must be low before the server starts. */
static void limit_descriptors(rlim_t n, rlim_t *usual)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    *usual = limit.rlim_cur;
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Takes every descriptor that is left; returns how many. */
static unsigned take_descriptors(int fds[FILES_MAX])
{
    unsigned n = 0;
    while (n < FILES_MAX && (fds[n] = dup(STDERR_FILENO)) >= 0)
        n++;
    assert_int_equal(errno, EMFILE);
    return n;
}

static unsigned lines_of(const char *path)
{
    unsigned n = 0;
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    for (int byte; (byte = fgetc(f)) != EOF;)
        n += byte == '\n';
    fclose(f);
    return n;
}

static void test_no_descriptors_left(void **state)
{
    (void)state;
    char *log = support_path(folder, "log");
    struct connection before, comers[COMERS];
    rlim_t usual, low;
    int fds[FILES_MAX];
    limit_descriptors(FILES_MAX, &usual);
    struct test_server *s = support_server_logging(log, SETTINGS("maxclients", "20", ));
    connect_to(&before, s->port);
    expect_text(&before, "PING", "PONG");
    for (unsigned i = 0; i < COMERS; i++)
        make_socket(&comers[i]);
    unsigned lines = lines_of(log), n = take_descriptors(fds);
    for (unsigned i = 0; i < COMERS; i++)
        connect_socket(&comers[i], s->port);
    usleep(200000);
    uint64_t began = processor_ms();
    usleep(1500000);
    uint64_t spent = processor_ms() - began;
    expect_text(&before, "PING", "PONG");
    while (n > 0)
        close(fds[--n]);
    limit_descriptors(usual, &low);
    assert_in_range(spent, 0, 400);
    lines = lines_of(log) - lines;
    assert_in_range(lines, 1, 10);
    for (unsigned i = 0; i < COMERS; i++) {
        expect_text(&comers[i], "PING", "PONG");
        disconnect(&comers[i]);
    }
    disconnect(&before);
    support_server_end(s);
    assert_int_equal(unlink(log), 0);
    free(log);
}

/* ---- reading and not reading ------------------------------------------------------------------------------------- */

static void test_half_closed_client_gets_thousands_of_replies(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "1", "searches-in-flight", "2", );
    struct connection c;
    struct pump p;
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD l2 l2", "OK");
    pump_init(&p, s->port, SCALED(5000, 1000), SIZE_MAX / 2);
    p.half_close = true;
    put_truth(&p.requests, "l2");
    put_literal(&p.replies, truth_reply);
    pump_run(&p);
    if (p.fault[0])
        fail_msg("%s", p.fault);
    expect_closed(&p.c);
    pump_fini(&p);
    disconnect(&c);
    support_server_end(s);
}

/* The replies are many times client-output-buffer-limit, and the requests many times what the server takes ahead; read
 * as they come, and read only when the server takes no more requests. */
static void test_reading_client_may_pipeline_without_end(void **state)
{
    enum { PERIOD = 500 };
    (void)state;
    struct test_server *s = START("client-output-buffer-limit", "1mb", );
    struct connection c;
    connect_to(&c, s->port);
    for (unsigned lazy = 0; lazy < 2; lazy++) {
        struct pump p;
        char words[128];
        pump_init(&p, s->port, SCALED(600, 80), SIZE_MAX / 2);
        p.lazy = lazy;
        for (unsigned i = 0; i < PERIOD; i++) {
            snprintf(words, sizeof words, "ECHO %0*u", 1 + (int)(i % 100), i);
            put_request(&p.requests, words);
            resp_text(&p.replies, words + 5);
        }
        pump_run(&p);
        if (p.fault[0])
            fail_msg("%s", p.fault);
        pump_fini(&p);
    }
    assert_int_equal(info_number(&c, "client_output_buffer_limit_disconnections"), 0);
    assert_int_equal(info_number(&c, "client_query_buffer_limit_disconnections"), 0);
    disconnect(&c);
    support_server_end(s);
}

/* Sends until nothing more is taken for a second, or the connection ends; the bytes that went out. */
static size_t send_until_full(struct connection *c, const struct resp_buffer *requests)
{
    size_t all = 0;
    for (;;) {
        size_t within = all % requests->bytes;
        struct pollfd fd = {.fd = c->fd, .events = POLLOUT};
        if (poll(&fd, 1, 1000) == 0)
            return all;
        ssize_t sent = send(c->fd, requests->data + within, requests->bytes - within, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return all;
        all += (size_t)sent;
    }
}

static void test_client_that_does_not_read(void **state)
{
    (void)state;
    struct test_server *s = START("client-output-buffer-limit", "1mb", );
    struct connection deaf, other;
    struct resp_buffer requests = {.protocol = 2};
    for (unsigned i = 0; i < 1000; i++)
        put_echo(&requests, 20);
    connect_to(&other, s->port);
    connect_to(&deaf, s->port);
    long long resident = info_number(&other, "used_memory_rss");
    uint64_t began = now_ms();
    size_t sent = send_until_full(&deaf, &requests);
    /* 4 MiB in the server; the rest is in the two sockets */
    assert_in_range(sent, 0, 64 << 20);
    if (!SANITIZED)
        assert_in_range(info_number(&other, "used_memory_rss"), 0, resident + (24 << 20));
    struct pollfd fd = {.fd = deaf.fd, .events = 0};
    assert_int_equal(poll(&fd, 1, 10000), 1);
    assert_in_range(now_ms() - began, 0, SCALED(10000, 20000));
    assert_int_equal(info_number(&other, "client_output_buffer_limit_disconnections"), 1);
    wait_until_alone(&other);
    disconnect(&deaf);
    disconnect(&other);
    resp_buffer_fini(&requests);
    support_server_end(s);
}

/* ---- a request of many arguments --------------------------------------------------------------------------------- */

/* Parsing from the beginning with each piece would take 6,000 times the time of the whole. */
static void test_many_arguments_trickle_in(void **state)
{
    enum { ARGUMENTS = 60000, PIECE = 70, PIECES_PER_PING = 50 };
    (void)state;
    struct test_server *s = START("lanes", "1", );
    struct connection slow, other;
    struct resp_buffer request = {.protocol = 2};
    resp_array(&request, ARGUMENTS);
    resp_text(&request, "DEL");
    for (unsigned i = 1; i < ARGUMENTS; i++)
        resp_text(&request, "x");
    connect_to(&slow, s->port);
    connect_to(&other, s->port);
    for (size_t at = 0, piece = 0; at < request.bytes; at += PIECE, piece++) {
        send_bytes(&slow, request.data + at, request.bytes - at < PIECE ? request.bytes - at : PIECE);
        if (piece % PIECES_PER_PING != 0)
            continue;
        uint64_t began = now_ms();
        expect_text(&other, "PING", "PONG");
        assert_in_range(now_ms() - began, 0, 200);
    }
    struct reply r = read_reply(&slow);
    assert_int_equal(r.type, ':');
    assert_int_equal(r.integer, 0);
    reply_free(&r);
    disconnect(&slow);
    disconnect(&other);
    resp_buffer_fini(&request);
    support_server_end(s);
}

/* ---- large answers ----------------------------------------------------------------------------------------------- */

/* Half a million look-ups are asked for, and nobody is there any more to read them. */
static void test_random_elements_for_a_client_that_left(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "1", );
    struct connection c, leaving;
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD l2 l2", "OK");
    connect_to(&leaving, s->port);
    for (unsigned i = 0; i < 5; i++)
        send_request(&leaving, "VRANDMEMBER l2 -100000");
    while (info_number(&c, "fetches") == 0)
        usleep(1000);
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(leaving.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    disconnect(&leaving);
    wait_until_alone(&c);
    assert_in_range(info_number(&c, "fetches"), 1, 400000);
    disconnect(&c);
    support_server_end(s);
}

/* What the allocator has handed out and not got back; not what it keeps for later, which is its own business. */
static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void test_room_for_large_results_goes_back(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "1", );
    struct connection c;
    char words[64];
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD many many", "OK");
    struct reply r = ask(&c, "VSIM many ELE 1");
    reply_free(&r);
    size_t before = allocated();
    for (unsigned round = 0; round < SCALED(8, 1); round++) {
        for (unsigned i = 0; i < 40; i++) {
            snprintf(words, sizeof words, "VSIM many ELE %u COUNT 100000%s", i, i % 2 ? " TRUTH" : "");
            send_request(&c, words);
        }
        for (unsigned i = 0; i < 40; i++) {
            r = read_reply(&c);
            assert_int_equal(r.type, '*');
            assert_in_range(r.n, i % 2 ? MANY_ROWS : MANY_ROWS / 2, MANY_ROWS);
            reply_free(&r);
        }
    }
    if (!SANITIZED)
        assert_in_range(allocated(), 0, before + (16 << 20));
    disconnect(&c);
    support_server_end(s);
}

/* ---- long keys --------------------------------------------------------------------------------------------------- */

/* Key of a row: its number at the end, so that only the last bytes differ. */
static char *make_key(uint32_t row, uint32_t bytes)
{
    char *key = malloc((size_t)bytes + 1);
    assert_non_null(key);
    memset(key, 'k', bytes);
    snprintf(key + bytes - 5, 6, "%05u", row % 100000);
    return key;
}

static void build_long(const char *name, uint32_t rows, uint32_t bytes)
{
    const void **keys = calloc(rows, sizeof *keys);
    uint32_t *lengths = calloc(rows, sizeof *lengths);
    assert_true(keys && lengths);
    for (uint32_t i = 0; i < rows; i++) {
        keys[i] = make_key(i, bytes);
        lengths[i] = bytes;
    }
    build(name, support_vectors(), rows, SUPPORT_DIM, (struct keys){keys, lengths});
    for (uint32_t i = 0; i < rows; i++)
        free((void *)(uintptr_t)keys[i]);
    free(keys);
    free(lengths);
}

static uint32_t row_of_key(const struct reply *key, uint32_t bytes)
{
    assert_int_equal(key->type, '$');
    assert_int_equal(key->bytes, bytes);
    uint32_t row = (uint32_t)strtoul(key->text + bytes - 5, NULL, 10);
    char *right = make_key(row, bytes);
    assert_memory_equal(key->text, right, bytes);
    free(right);
    return row;
}

/* "<before> <key of the row><behind>" */
static struct reply ask_key(struct connection *c, const char *before, uint32_t row, uint32_t bytes, const char *behind)
{
    char *key = make_key(row, bytes), *words;
    assert_true(asprintf(&words, "%s %s%s", before, key, behind) > 0);
    struct reply r = ask(c, words);
    free(words);
    free(key);
    return r;
}

/* Elements and scores: right, falling, different. */
static void check_scored(const struct reply *r, uint32_t from, uint32_t rows, uint32_t bytes)
{
    bool seen[SUPPORT_ROWS] = {false};
    const float *query = support_vectors() + (size_t)from * SUPPORT_DIM;
    assert_true(r->type == '*' && r->n > 0 && r->n % 2 == 0);
    for (size_t i = 0; i < r->n; i += 2) {
        uint32_t row = row_of_key(&r->items[i], bytes);
        double score = reply_number(&r->items[i + 1]);
        assert_true(row < rows && !seen[row]);
        seen[row] = true;
        assert_true(fabs(score - support_score(QUIRE_METRIC_L2, query, row)) < 2e-5);
        if (i > 0)
            assert_true(score <= reply_number(&r->items[i - 1]));
    }
}

static void check_long_row(struct connection *c, uint32_t row, uint32_t rows, uint32_t bytes)
{
    struct reply r = ask_key(c, "VLINKS long", row, bytes, " WITHSCORES");
    assert_true(r.type == '*' && r.n == 1);
    check_scored(&r.items[0], row, rows, bytes);
    size_t links = r.items[0].n / 2;
    reply_free(&r);
    r = ask_key(c, "VLINKS long", row, bytes, "");
    assert_true(r.n == 1 && r.items[0].n == links);
    for (size_t i = 0; i < links; i++)
        assert_in_range(row_of_key(&r.items[0].items[i], bytes), 0, rows - 1);
    reply_free(&r);
    r = ask_key(c, "VSIM long ELE", row, bytes, " WITHSCORES COUNT 12 TRUTH");
    assert_int_equal(r.n, 24);
    check_scored(&r, row, rows, bytes);
    assert_int_equal(row_of_key(&r.items[0], bytes), row);
    reply_free(&r);
    r = ask_key(c, "VEMB long", row, bytes, "");
    assert_int_equal(r.n, SUPPORT_DIM);
    for (unsigned d = 0; d < SUPPORT_DIM; d++)
        assert_true(fabs(reply_number(&r.items[d]) - (double)support_vectors()[row * SUPPORT_DIM + d]) < 1e-6);
    reply_free(&r);
}

static void check_long_keys(struct connection *c, uint32_t rows, uint32_t bytes)
{
    bool seen[SUPPORT_ROWS] = {false};
    for (uint32_t i = 0; i < 5; i++)
        check_long_row(c, i * (rows - 1) / 4, rows, bytes);
    struct reply r = ask(c, "VRANDMEMBER long 30");
    assert_int_equal(r.n, 30);
    for (size_t i = 0; i < r.n; i++) {
        uint32_t row = row_of_key(&r.items[i], bytes);
        assert_true(row < rows && !seen[row]);
        seen[row] = true;
    }
    reply_free(&r);
    for (uint32_t row = rows - 1; row <= rows; row++) {
        r = ask_key(c, "VISMEMBER long", row, bytes, "");
        assert_int_equal(r.integer, row < rows);
        reply_free(&r);
    }
}

static void test_long_keys(void **state)
{
    static const struct {
        const char *name;
        uint32_t rows, bytes;
    } cases[] = {{"keys-300", 400, 300}, {"keys-60000", 200, 60000}};
    (void)state;
    struct test_server *s = START();
    struct connection c;
    char words[64];
    connect_to(&c, s->port);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = support_path(folder, cases[i].name);
        if (access(path, F_OK) != 0)
            build_long(cases[i].name, cases[i].rows, cases[i].bytes);
        free(path);
        snprintf(words, sizeof words, "VLOAD long %s", cases[i].name);
        expect_text(&c, words, "OK");
        check_long_keys(&c, cases[i].rows, cases[i].bytes);
        expect_integer(&c, "DEL long", 1);
    }
    disconnect(&c);
    support_server_end(s);
}

/* ---- stop under load --------------------------------------------------------------------------------------------- */

static void *stop_server(void *context)
{
    support_server_end(context);
    return NULL;
}

/* Clients read to their end and close while the server stops, in this order. */
static void stop_while_reading(struct test_server *s, struct connection *c, unsigned n)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_server, s), 0);
    for (unsigned i = 0; i < n; i++) {
        read_to_end(&c[i]);
        disconnect(&c[i]);
    }
    pthread_join(thread, NULL);
}

/* One lane ends at once, the other answers INFO, which looks at both. */
static void test_info_while_stopping(void **state)
{
    (void)state;
    struct resp_buffer out = {.protocol = 2};
    for (unsigned i = 0; i < SCALED(1000, 300); i++)
        put_request(&out, "INFO everything");
    for (unsigned round = 0; round < 8; round++) {
        struct test_server *s = START("shutdown-timeout", "5", );
        struct connection c[2]; /* idle, busy */
        for (unsigned i = 0; i < 2; i++) {
            connect_to(&c[(round + i) % 2], s->port);
            expect_text(&c[(round + i) % 2], "PING", "PONG");
        }
        send_bytes(&c[1], out.data, out.bytes);
        struct reply r = read_reply(&c[1]);
        reply_free(&r);
        stop_while_reading(s, c, 2);
    }
    resp_buffer_fini(&out);
}

/* Indexes loaded and deleted with searches on them, on both lanes, at every moment of a stop. */
static void test_stop_while_loading_and_deleting(void **state)
{
    enum { CLIENTS = 4 };
    static const char *const words[] = {"VLOAD l2 l2",   "VSIM l2 ELE 3 COUNT 5", "DEL l2",
                                        "VLOAD l2 many", "VSIM l2 ELE 3 TRUTH",   "VRANDMEMBER l2 50"};
    (void)state;
    for (unsigned round = 0; round < SCALED(20, 8); round++) {
        struct test_server *s = START("shutdown-timeout", "2", );
        struct connection c[CLIENTS];
        for (unsigned i = 0; i < CLIENTS; i++) {
            connect_to(&c[i], s->port);
            expect_text(&c[i], "PING", "PONG");
        }
        for (unsigned n = 0; n < 30; n++)
            for (unsigned i = 0; i < CLIENTS; i++)
                send_request(&c[i], words[(n + i + round) % (sizeof words / sizeof *words)]);
        usleep(round * 500);
        stop_while_reading(s, c, CLIENTS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_look_ups_get_their_turn),
        cmocka_unit_test(test_thousands_that_end_without_a_read),
        cmocka_unit_test(test_stop_with_a_long_line_of_searches),
        cmocka_unit_test(test_stop_with_a_client_that_quit_and_reads_nothing),
        cmocka_unit_test(test_no_descriptors_left),
        cmocka_unit_test(test_half_closed_client_gets_thousands_of_replies),
        cmocka_unit_test(test_reading_client_may_pipeline_without_end),
        cmocka_unit_test(test_client_that_does_not_read),
        cmocka_unit_test(test_many_arguments_trickle_in),
        cmocka_unit_test(test_random_elements_for_a_client_that_left),
        cmocka_unit_test(test_room_for_large_results_goes_back),
        cmocka_unit_test(test_long_keys),
        cmocka_unit_test(test_info_while_stopping),
        cmocka_unit_test(test_stop_while_loading_and_deleting),
    };
    make_folder();
    engine = "auto";
    int failed = cmocka_run_group_tests_name("limits, engine auto", tests, NULL, NULL);
    engine = "threads";
    failed += cmocka_run_group_tests_name("limits, engine threads", tests, NULL, NULL);
    support_folder_remove(folder);
    return failed;
}
