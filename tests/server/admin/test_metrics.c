/*
 * test_metrics.c - /metrics and /health over HTTP: a scraper gets well-formed figures, everybody else a clear answer.
 */
#include "server/net/loop.h"
#include "tests/server/support_server.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* A port that was free a moment ago. */
static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}

static struct test_server *start(unsigned *port, const char *folder)
{
    char text[16];
    *port = free_port();
    snprintf(text, sizeof text, "%u", *port);
    return support_server((const char *const[]){"metrics-port", text, "import-dir", folder, NULL});
}

/* All that comes up to the end of the connection; owned. */
static char *read_all(struct connection *c)
{
    size_t have = 0, room = 1 << 20;
    char *text = malloc(room);
    ssize_t n;
    assert_non_null(text);
    while ((n = recv(c->fd, text + have, room - have - 1, 0)) > 0)
        have += (size_t)n;
    assert_int_equal(n, 0);
    text[have] = 0;
    return text;
}

static char *ask_http(unsigned port, const char *request)
{
    struct connection c;
    connect_to(&c, port);
    send_bytes(&c, request, strlen(request));
    char *text = read_all(&c);
    disconnect(&c);
    return text;
}

static void expect_status(unsigned port, const char *request, const char *status)
{
    char *text = ask_http(port, request);
    if (strncmp(text, "HTTP/1.1 ", 9) != 0 || strncmp(text + 9, status, strlen(status)) != 0)
        fail_msg("'%.40s': '%.100s', not %s", request, text, status);
    assert_non_null(strstr(text, "\r\nConnection: close\r\n"));
    free(text);
}

/* The value of a sample by its whole name with labels. */
static double sample(const char *text, const char *name)
{
    char line[200];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text, line);
    if (!at)
        fail_msg("there is no %s", name);
    return strtod(at + strlen(line), NULL);
}

/* Each line is a comment of HELP or TYPE, or a sample with a number, behind the TYPE of its family. */
static unsigned check_format(char *body)
{
    char family[128] = "";
    unsigned samples = 0;
    for (char *line = strtok(body, "\n"); line; line = strtok(NULL, "\n")) {
        char *end;
        if (strncmp(line, "# HELP ", 7) == 0)
            continue;
        if (sscanf(line, "# TYPE %127s", family) == 1) {
            const char *type = strrchr(line, ' ') + 1;
            assert_true(!strcmp(type, "gauge") || !strcmp(type, "counter") || !strcmp(type, "histogram"));
            continue;
        }
        char *value = strrchr(line, ' ');
        assert_non_null(value);
        strtod(value + 1, &end);
        if (*end || value[1] == 0 || strncmp(line, family, strlen(family)) != 0)
            fail_msg("not a sample of %s: '%s'", family, line);
        samples++;
    }
    return samples;
}

static void test_metrics(void **state)
{
    unsigned port;
    struct test_server *s = start(&port, *state);
    struct connection c;
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD docs cosine", "OK");
    for (unsigned i = 0; i < 7; i++) {
        struct reply reply = ask(&c, "VSIM docs ELE 5");
        assert_int_equal(reply.n, 10);
        reply_free(&reply);
    }
    expect_error(&c, "VSIM docs ELE nobody", "ERR element not found");
    char *text = ask_http(port, "GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n");
    char *body = strstr(text, "\r\n\r\n");
    assert_non_null(strstr(text, "Content-Type: text/plain; version=0.0.4"));
    assert_non_null(body);
    body += 4;
    assert_int_equal(strtoull(strstr(text, "Content-Length: ") + 16, NULL, 10), strlen(body));
    assert_int_equal(sample(body, "quire_connected_clients"), 1);
    assert_int_equal(sample(body, "quire_keys"), 1);
    assert_int_equal(sample(body, "quire_commands_total{command=\"vsim\"}"), 8);
    assert_int_equal(sample(body, "quire_command_failures_total{command=\"vsim\"}"), 1);
    assert_true(sample(body, "quire_command_seconds_total{command=\"vsim\"}") > 0);
    assert_int_equal(sample(body, "quire_errors_total{code=\"ERR\"}"), 1);
    assert_int_equal(sample(body, "quire_search_latency_seconds_count"), 7);
    assert_int_equal(sample(body, "quire_search_latency_seconds_bucket{le=\"+Inf\"}"), 7);
    assert_int_equal(sample(body, "quire_search_latency_seconds_bucket{le=\"16.777216\"}"), 7);
    assert_true(sample(body, "quire_device_read_bytes_total") > 0);
    assert_true(sample(body, "process_resident_memory_bytes") > 0);
    assert_int_equal(sample(body, "quire_setting{name=\"maxclients\"}"), 200);
    assert_int_equal(sample(body, "quire_store_busy{work=\"seal\"}"), 0); /* there is nothing to seal or merge */
    assert_int_equal(sample(body, "quire_store_busy{work=\"merge\"}"), 0);
    assert_in_range(sample(body, "quire_store_busy{work=\"checkpoint\"}"), 0, 1);
    double before = 0;
    for (unsigned power = 5; power <= 24; power++) {
        char name[100];
        snprintf(name, sizeof name, "quire_search_latency_seconds_bucket{le=\"%.9g\"}", (double)(1u << power) * 1e-6);
        double count = sample(body, name);
        assert_true(count >= before);
        before = count;
    }
    assert_true(check_format(body) > 60);
    free(text);
    disconnect(&c);
    support_server_end(s);
}

static void test_answers(void **state)
{
    unsigned port;
    struct test_server *s = start(&port, *state);
    expect_status(port, "GET /health HTTP/1.0\r\n\r\n", "200 OK");
    expect_status(port, "GET /health?verbose=1 HTTP/1.1\n\n", "200 OK");
    atomic_store(&s->server->unhealthy, "the journal cannot be written");
    char *text = ask_http(port, "GET /health HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "503 Service Unavailable"));
    assert_non_null(strstr(text, "\r\n\r\nthe journal cannot be written\n"));
    free(text);
    atomic_store(&s->server->unhealthy, NULL);
    expect_status(port, "GET / HTTP/1.1\r\n\r\n", "404 Not Found");
    expect_status(port, "POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "405 Method Not Allowed");
    expect_status(port, "GET /metrics\r\n\r\n", "400 Bad Request");
    expect_status(port, "*1\r\n$4\r\nPING\r\n\r\n", "400 Bad Request");
    text = ask_http(port, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "200 OK"));
    assert_string_equal(strstr(text, "\r\n\r\n"), "\r\n\r\n");
    free(text);
    char large[8400] = "GET /metrics HTTP/1.1\r\nX: ";
    memset(large + strlen(large), 'x', sizeof large - 1 - strlen(large));
    expect_status(port, large, "400 Bad Request");
    support_server_end(s);
}

static void test_idlers_do_not_keep_the_server(void **state)
{
    unsigned port;
    struct test_server *s = start(&port, *state);
    struct connection idle[40];
    for (unsigned i = 0; i < 40; i++)
        connect_to(&idle[i], port);
    /* beyond 32 the oldest go that have not asked yet */
    for (unsigned i = 0; i < 8; i++)
        expect_closed(&idle[i]);
    send_literal(&idle[13], "GET /hea");
    send_literal(&idle[13], "lth HTTP/1.1\r\n\r");
    send_literal(&idle[13], "\n");
    char *text = read_all(&idle[13]);
    assert_non_null(strstr(text, "200 OK"));
    free(text);
    /* half requests do not keep a probe out */
    for (unsigned i = 14; i < 40; i++)
        send_literal(&idle[i], "GET /health HTTP/1.1\r\n");
    for (unsigned i = 0; i < 50; i++)
        expect_status(port, "GET /health HTTP/1.0\r\n\r\n", "200 OK");
    for (unsigned i = 0; i < 20; i++)
        disconnect(&idle[i]);
    support_server_end(s);
    for (unsigned i = 20; i < 40; i++)
        disconnect(&idle[i]);
}

static int make_index(void **state)
{
    char *folder = support_folder_make();
    *state = folder;
    support_build(folder, "cosine", QUIRE_METRIC_COSINE);
    return 0;
}

static int remove_index(void **state)
{
    support_folder_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_idlers_do_not_keep_the_server),
    };
    return cmocka_run_group_tests(tests, make_index, remove_index);
}
