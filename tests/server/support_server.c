/*
 * support_server.c - what the tests of a running server share.
 *
 * The server runs in the test's own process, so that the sanitizers see both sides; clients are plain blocking
 * sockets with a time limit, because a client library would hide what the wire says. Indexes are small, in clusters,
 * and hold their numbers unchanged, so that scores can be compared with a look at every row.
 */
#include "tests/server/support_server.h"
#include "io/random.h"
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- folder and indexes ------------------------------------------------------------------------------------------ */

static float uniform(struct random *random)
{
    return (float)(random_next(random) >> 40) * 0x1p-23f - 1;
}

const float *support_vectors(void)
{
    enum { CLUSTERS = 12 };
    static float vectors[SUPPORT_ROWS * SUPPORT_DIM];
    float centres[CLUSTERS * SUPPORT_DIM];
    struct random random = {5};
    if (vectors[0] != 0)
        return vectors;
    for (unsigned i = 0; i < CLUSTERS * SUPPORT_DIM; i++)
        centres[i] = uniform(&random);
    for (unsigned i = 0; i < SUPPORT_ROWS; i++)
        for (unsigned d = 0; d < SUPPORT_DIM; d++)
            vectors[i * SUPPORT_DIM + d] = centres[i % CLUSTERS * SUPPORT_DIM + d] + 0.2f * uniform(&random);
    return vectors;
}

void support_build_kind(const char *folder, const char *name, enum quire_metric metric, enum quire_index_kind kind)
{
    struct quire_build_options options;
    struct quire_error err = {0};
    char *path = support_path(folder, name);
    quire_build_options_init(&options);
    options.metric = metric;
    options.index = kind;
    options.slot = QUIRE_SLOT_F32;
    options.block_bytes = 4096;
    options.threads = 1;
    options.seed = 3;
    if (quire_build(path, support_vectors(), SUPPORT_ROWS, SUPPORT_DIM, QUIRE_TYPE_F32, &options, &err) < 0)
        fail_msg("building %s: %s", name, err.message);
    free(path);
}

void support_build(const char *folder, const char *name, enum quire_metric metric)
{
    support_build_kind(folder, name, metric, QUIRE_INDEX_PAGEGRAPH);
}

double support_score(enum quire_metric metric, const float *query, uint32_t row)
{
    const float *v = support_vectors() + (size_t)row * SUPPORT_DIM;
    double dot = 0, qq = 0, vv = 0, dd = 0;
    for (unsigned d = 0; d < SUPPORT_DIM; d++) {
        double q = (double)query[d], x = (double)v[d];
        dot += q * x;
        qq += q * q;
        vv += x * x;
        dd += (q - x) * (q - x);
    }
    if (metric == QUIRE_METRIC_L2)
        return 1 / (1 + dd);
    return metric == QUIRE_METRIC_IP ? dot : (1 + dot / sqrt(qq * vv)) / 2;
}

static int greater_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

void support_best_scores(enum quire_metric metric, const float *query, double scores[SUPPORT_ROWS])
{
    for (uint32_t i = 0; i < SUPPORT_ROWS; i++)
        scores[i] = support_score(metric, query, i);
    qsort(scores, SUPPORT_ROWS, sizeof *scores, greater_first);
}

/* ---- server ------------------------------------------------------------------------------------------------------ */

static int try_server(struct test_server **out, struct quire_error *err, const char *log, const char *const *settings)
{
    static const char *const usual[] = {"port", "0", "bind", "127.0.0.1", "lanes", "2", "maxclients", "200", NULL};
    struct test_server *s = *out = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_int_equal(config_init(&s->config, err), 0);
    for (const char *const *at = usual; *at; at += 2)
        assert_int_equal(config_set(&s->config, at[0], at[1], err), 0);
    s->data = support_folder_make();
    assert_int_equal(config_set(&s->config, "dir", s->data, err), 0);
    for (; settings && *settings; settings += 2)
        if (config_set(&s->config, settings[0], settings[1], err) != 0)
            fail_msg("%s", err->message);
    assert_int_equal(log_open(&s->log, log, LOG_LEVEL_DEBUG, err), 0);
    int rc = server_create(&s->config, &s->log, &s->server, err);
    if (rc == 0)
        s->port = server_port(s->server);
    return rc;
}

int support_try_server(struct test_server **out, struct quire_error *err, const char *const *settings)
{
    return try_server(out, err, "/dev/null", settings);
}

struct test_server *support_server_logging(const char *log, const char *const *settings)
{
    struct test_server *s;
    struct quire_error err = {0};
    if (try_server(&s, &err, log, settings) < 0)
        fail_msg("no server: %s", err.message);
    return s;
}

struct test_server *support_server(const char *const *settings)
{
    return support_server_logging("/dev/null", settings);
}

void support_server_end(struct test_server *s)
{
    if (s->server)
        server_destroy(s->server);
    log_close(&s->log);
    config_fini(&s->config);
    support_folder_remove(s->data);
    free(s);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

void make_socket(struct connection *c)
{
    struct timeval limit = {.tv_sec = 20};
    int one = 1;
    memset(c, 0, sizeof *c);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* A connect that was interrupted goes on without its caller. */
static int await_connection(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int error = ETIMEDOUT;
    socklen_t bytes = sizeof error;
    if (poll(&wait, 1, 20000) == 1)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    return error;
}

void connect_socket(struct connection *c, unsigned port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int error = connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0 ? errno : 0;
    if (error == EINTR)
        error = await_connection(c->fd);
    if (error)
        fail_msg("connecting: %s", strerror(error));
}

void connect_to(struct connection *c, unsigned port)
{
    make_socket(c);
    connect_socket(c, port);
}

void disconnect(struct connection *c)
{
    close(c->fd);
    free(c->in);
    memset(c, 0, sizeof *c);
    c->fd = -1;
}

void send_bytes(struct connection *c, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    while (n > 0) {
        ssize_t sent = send(c->fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0)
            fail_msg("sending: %s", strerror(errno));
        at += sent;
        n -= (size_t)sent;
    }
}

void put_request(struct resp_buffer *out, const char *words)
{
    size_t n = 0;
    for (const char *p = words; *p; p++)
        n += *p != ' ' && (p == words || p[-1] == ' ');
    resp_array(out, n);
    for (const char *p = words + strspn(words, " "); *p;) {
        size_t bytes = strcspn(p, " ");
        resp_bulk(out, p, bytes);
        p += bytes + strspn(p + bytes, " ");
    }
}

void send_request(struct connection *c, const char *words)
{
    struct resp_buffer out = {.protocol = 2};
    put_request(&out, words);
    send_bytes(c, out.data, out.bytes);
    resp_buffer_fini(&out);
}

/* Adds what comes; 0 at the end or a reset. */
static size_t receive(struct connection *c)
{
    if (c->room - c->have < 4096) {
        c->room = c->room ? 2 * c->room : 16384;
        c->in = realloc(c->in, c->room);
        assert_non_null(c->in);
    }
    ssize_t got;
    /* a receive with a time limit is not begun again after an interruption */
    while ((got = recv(c->fd, c->in + c->have, c->room - c->have, 0)) < 0 && errno == EINTR)
        continue;
    if (got < 0 && errno != ECONNRESET)
        fail_msg("no reply: %s", strerror(errno));
    c->have += got > 0 ? (size_t)got : 0;
    return got > 0 ? (size_t)got : 0;
}

struct reply read_reply(struct connection *c)
{
    struct reply reply;
    size_t used;
    int rc;
    while ((rc = c->have ? reply_read(c->in, c->have, &reply, &used) : 0) == 0)
        if (receive(c) == 0)
            fail_msg("the connection ended before its reply");
    if (rc < 0)
        fail_msg("not RESP: '%.*s'", (int)(c->have > 100 ? 100 : c->have), (const char *)c->in);
    memmove(c->in, c->in + used, c->have - used);
    c->have -= used;
    return reply;
}

struct reply ask(struct connection *c, const char *words)
{
    send_request(c, words);
    return read_reply(c);
}

static void send_formatted(struct connection *c, const char *format, va_list list)
{
    char *line = NULL;
    int n = vasprintf(&line, format, list);
    assert_true(n >= 0);
    send_bytes(c, line, (size_t)n);
    send_literal(c, "\r\n");
    free(line);
}

void send_line(struct connection *c, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    send_formatted(c, format, list);
    va_end(list);
}

struct reply ask_line(struct connection *c, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    send_formatted(c, format, list);
    va_end(list);
    return read_reply(c);
}

void check_text(struct reply reply, const char *text)
{
    if ((reply.type != '+' && reply.type != '$') || !reply_is(&reply, text))
        fail_msg("the reply is %c '%s', not '%s'", reply.type, reply.text ? reply.text : "", text);
    reply_free(&reply);
}

void check_error(struct reply reply, const char *begin)
{
    if (reply.type != '-' || strncmp(reply.text, begin, strlen(begin)) != 0)
        fail_msg("the reply is %c '%s', not an error that begins with '%s'", reply.type, reply.text ? reply.text : "",
                 begin);
    reply_free(&reply);
}

void expect_text(struct connection *c, const char *words, const char *text)
{
    check_text(ask(c, words), text);
}

void expect_integer(struct connection *c, const char *words, long long value)
{
    struct reply reply = ask(c, words);
    if (reply.type != ':' || reply.integer != value)
        fail_msg("%s: the reply is %c %lld '%s', not %lld", words, reply.type, reply.integer,
                 reply.text ? reply.text : "", value);
    reply_free(&reply);
}

void expect_error(struct connection *c, const char *words, const char *begin)
{
    check_error(ask(c, words), begin);
}

void expect_closed(struct connection *c)
{
    if (c->have > 0 || receive(c) > 0)
        fail_msg("something comes instead of the end: '%.*s'", (int)(c->have > 100 ? 100 : c->have),
                 (const char *)c->in);
}

long long info_number(struct connection *c, const char *field)
{
    struct reply reply = ask(c, "INFO everything");
    char name[64];
    assert_non_null(reply.text);
    snprintf(name, sizeof name, "\n%s:", field);
    const char *found = strstr(reply.text, name);
    if (!found)
        fail_msg("INFO has no %s", field);
    long long value = strtoll(found + strlen(name), NULL, 10);
    reply_free(&reply);
    return value;
}
