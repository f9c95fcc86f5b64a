/*
 * gateway.c - what a quire-gateway adds: time on a request that is passed on, and memory of streams that wait.
 *
 * usage: bench_gateway PROGRAM [--requests N] [--streams N] [--set NAME=VALUE]...
 *        bench_gateway PROGRAM --hits SECONDS --server HOST:PORT [--set NAME=VALUE]...
 *        bench_gateway PROGRAM --cached REQUESTS [--streams N] --server HOST:PORT [--set NAME=VALUE]...
 *
 * A stand-in upstream (a thread, epoll, answers of 600 bytes at once) is asked directly and through the gateway by
 * turns, one request at a time on a kept connection, so that both see the same machine. Then N streams are opened, each
 * with one event, and the gateway's memory is compared with what it was before; then every stream gets one more event
 * and ends.
 *
 * With --hits, one chat of 2 KiB is asked again and again on 16 connections, which a gateway answers from the cache of
 * the quire-server that is named: answers per second, and per second of the gateway's processor time.
 *
 * With --cached, what the cache's way adds: to a miss (chats of 2 KiB that nobody has asked, directly and through a
 * gateway by turns), of a near hit (the stand-in is the encoder as well: one vector for every text, so each question is
 * near to the first), and to streams that wait for their first byte, then for the next one, and then end all at once:
 * memory of each, and how many are kept.
 * Prints one JSON object.
 */
#include "io/clock.h"
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 65536
#define BODY    500
#define REQUEST                                                                                                        \
    "POST /v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk-1\r\nContent-Type: "                                   \
    "application/json\r\nContent-Length: 500\r\n\r\n"
#define STREAM          "GET /stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk-1\r\n\r\n"
#define EVENT           "1b\r\ndata: {\"content\": \"word\"}\n\n"
#define HIT_CONNECTIONS 16
#define CHAT_BYTES      2048
#define ARGUMENTS       64
#define DIM             64
#define NEAR_MAX        500 /* more questions with one answer open the category's breaker: this cannot be right */
#define CHUNK(delta, finish)                                                                                           \
    "data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{" \
    "\"index\":0,\"delta\":" delta ",\"finish_reason\":" finish "}]}\n\n"

static int listener, streams[FDS_MAX];
static volatile int n_streams;
static pid_t gateways[2];
static int n_gateways;
static char answer[4096], vector[4096];
static bool chat;

static void end_gateways(void)
{
    for (int i = 0; i < n_gateways; i++) {
        kill(gateways[i], SIGTERM);
        waitpid(gateways[i], NULL, 0);
    }
    n_gateways = 0;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_gateway: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void no_delay(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static int listen_any(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        die("listen");
    *port = ntohs(address.sin_port);
    return fd;
}

static void write_chunk(int fd, const char *events, bool last)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%zx\r\n%s\r\n%s", strlen(events), events, last ? "0\r\n\r\n" : "");
    assert(n > 0 && (size_t)n < sizeof text);
    if (write(fd, text, (size_t)n) < 0)
        die("write");
}

/* Bytes of a request's body, as it says. */
static size_t body_bytes(const char *head)
{
    const char *length = strcasestr(head, "content-length:");
    return length ? (size_t)atol(length + 15) : 0;
}

/* Answers a whole request to a route of the cache; of a stream nothing comes before begin_stream(). */
static void serve_cached(int fd, const char *request)
{
    bool stream = strstr(request, "\"stream\":true") != NULL;
    const char *body = strncmp(request, "POST /v1/embeddings", 19) == 0 ? vector : answer;
    if (!stream) {
        if (write(fd, body, strlen(body)) < 0)
            die("write");
        return;
    }
    streams[n_streams] = fd;
    __atomic_add_fetch(&n_streams, 1, __ATOMIC_SEQ_CST);
}

static void begin_stream(int fd)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    if (write(fd, head, sizeof head - 1) < 0)
        die("write");
    write_chunk(fd, CHUNK("{\"content\":\"word\"}", "null"), false);
}

/* Answers whole requests; one that comes in pieces is put together. */
static void *serve(void *unused)
{
    static struct {
        char bytes[4096];
        size_t n;
    } * inputs;
    struct epoll_event events[256], event = {.events = EPOLLIN, .data.fd = listener};
    int poll = epoll_create1(EPOLL_CLOEXEC);
    (void)unused;
    inputs = calloc(FDS_MAX, sizeof *inputs);
    if (!inputs || poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event) < 0)
        die("stand-in");
    for (;;) {
        int n = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                if (fd < 0 || fd >= FDS_MAX)
                    die("accept");
                no_delay(fd);
                event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
                inputs[fd].n = 0;
                epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
                continue;
            }
            ssize_t got = read(fd, inputs[fd].bytes + inputs[fd].n, sizeof inputs[fd].bytes - inputs[fd].n - 1);
            if (got <= 0) {
                close(fd);
                continue;
            }
            inputs[fd].n += (size_t)got;
            inputs[fd].bytes[inputs[fd].n] = 0;
            char *end = strstr(inputs[fd].bytes, "\r\n\r\n");
            bool stream = strncmp(inputs[fd].bytes, "GET /stream", 11) == 0;
            if (!end || (!stream && inputs[fd].n < (size_t)(end + 4 - inputs[fd].bytes) + body_bytes(inputs[fd].bytes)))
                continue;
            inputs[fd].n = 0;
            if (chat) {
                serve_cached(fd, inputs[fd].bytes);
                continue;
            }
            static const char head[] =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" EVENT "\r\n";
            ssize_t sent = stream ? write(fd, head, sizeof head - 1) : write(fd, answer, strlen(answer));
            if (sent < 0)
                die("write");
            if (stream) {
                streams[n_streams] = fd;
                __atomic_add_fetch(&n_streams, 1, __ATOMIC_SEQ_CST);
            }
        }
    }
    return NULL;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connect");
    no_delay(fd);
    return fd;
}

/* One request and its whole answer; microseconds. */
static double ask(int fd)
{
    char bytes[4096];
    size_t n = 0;
    memcpy(bytes, REQUEST, sizeof REQUEST - 1);
    memset(bytes + sizeof REQUEST - 1, 'x', BODY);
    uint64_t begin = clock_ns();
    if (write(fd, bytes, sizeof REQUEST - 1 + BODY) < 0)
        die("write");
    for (;;) {
        ssize_t got = read(fd, bytes + n, sizeof bytes - 1 - n);
        if (got <= 0)
            die("read");
        n += (size_t)got;
        bytes[n] = 0;
        char *end = strstr(bytes, "\r\n\r\n");
        if (end && n >= (size_t)(end + 4 - bytes) + BODY)
            return (double)(clock_ns() - begin) / 1e3;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(double *sorted, size_t n, double share)
{
    return sorted[(size_t)((double)(n - 1) * share)];
}

static long rss_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    }
    if (file)
        fclose(file);
    return kib;
}

static double cpu_seconds(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    unsigned long user = 0, system = 0;
    char *end = strrchr(text, ')');
    if (end)
        sscanf(end + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static pid_t start(const char *program, uint16_t upstream, char **more, int n_more, uint16_t *port)
{
    char folder[] = "/tmp/bench-gateway.XXXXXX";
    char url[64], file[64], number[32] = "";
    char *arguments[ARGUMENTS] = {(char *)program,        "--upstream",  url,  "--listen",
                                  "127.0.0.1:0",          "--port-file", file, "--cache-on",
                                  chat ? "true" : "false"};
    int n = 9;
    for (int i = 0; i < n_more && n < ARGUMENTS - 1; i++)
        arguments[n++] = more[i];
    if (!mkdtemp(folder))
        die("mkdtemp");
    snprintf(url, sizeof url, "http://127.0.0.1:%u", upstream);
    snprintf(file, sizeof file, "%s/port", folder);
    pid_t pid = fork();
    if (pid == 0) {
        execv(program, arguments);
        _exit(127);
    }
    if (pid < 0)
        die("fork");
    gateways[n_gateways++] = pid;
    for (int i = 0; i < 500 && !number[0]; i++) {
        usleep(10000);
        FILE *in = fopen(file, "re");
        if (in && !fgets(number, sizeof number, in))
            number[0] = 0;
        if (in)
            fclose(in);
    }
    *port = (uint16_t)atoi(number);
    if (*port == 0)
        die("the gateway does not start");
    unlink(file);
    rmdir(folder);
    return pid;
}

static void measure_time(uint16_t upstream, uint16_t gateway, size_t n)
{
    double *times[2] = {malloc(n * sizeof(double)), malloc(n * sizeof(double))};
    int fds[2] = {connect_to(upstream), connect_to(gateway)};
    if (!times[0] || !times[1])
        die("memory");
    for (int i = 0; i < 200; i++) {
        ask(fds[0]);
        ask(fds[1]);
    }
    for (size_t i = 0; i < n; i++) {
        times[0][i] = ask(fds[0]);
        times[1][i] = ask(fds[1]);
    }
    for (int i = 0; i < 2; i++)
        qsort(times[i], n, sizeof(double), compare);
    printf("{\"requests\":%zu,\"direct_us\":{\"p50\":%.1f,\"p99\":%.1f},\"gateway_us\":{\"p50\":%.1f,\"p99\":%.1f},"
           "\"added_us\":{\"p50\":%.1f,\"p99\":%.1f}",
           n, at(times[0], n, 0.5), at(times[0], n, 0.99), at(times[1], n, 0.5), at(times[1], n, 0.99),
           at(times[1], n, 0.5) - at(times[0], n, 0.5), at(times[1], n, 0.99) - at(times[0], n, 0.99));
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        free(times[i]);
    }
}

static void read_until(int fd, const char *what)
{
    char bytes[4096];
    size_t n = 0;
    do {
        ssize_t got = read(fd, bytes + n, sizeof bytes - 1 - n);
        if (got <= 0)
            die("a stream");
        n += (size_t)got;
        bytes[n] = 0;
    } while (!strstr(bytes, what));
}

static void measure_streams(pid_t pid, uint16_t gateway, int n)
{
    int *fds = calloc((size_t)n, sizeof *fds);
    if (!fds)
        die("memory");
    long before = rss_kib(pid);
    for (int i = 0; i < n; i++) {
        fds[i] = connect_to(gateway);
        if (write(fds[i], STREAM, sizeof STREAM - 1) < 0)
            die("write");
        read_until(fds[i], "word");
    }
    long during = rss_kib(pid);
    double cpu = cpu_seconds(pid);
    uint64_t begin = clock_ns();
    for (int i = 0; i < n; i++) {
        if (write(streams[i], EVENT "\r\n0\r\n\r\n", sizeof EVENT + 6) < 0)
            die("write");
    }
    for (int i = 0; i < n; i++)
        read_until(fds[i], "\r\n0\r\n\r\n");
    printf(",\"streams\":%d,\"rss_kib_before\":%ld,\"rss_kib_open\":%ld,\"kib_per_stream\":%.2f,\"last_event_of_all_"
           "ms\":%.1f,"
           "\"cpu_ms_of_it\":%.0f}\n",
           n, before, during, (double)(during - before) / n, (double)(clock_ns() - begin) / 1e6,
           (cpu_seconds(pid) - cpu) * 1e3);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    free(fds);
}

/* The request of a chat, 2 KiB of body; its whole length. */
static size_t make_chat(char *out, size_t out_bytes, char letter, bool stream)
{
    const char *open = stream ? "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\""
                              : "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"";
    static const char end[] = "\"}]}";
    int head = snprintf(out, out_bytes,
                        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk-1\r\nContent-Type: "
                        "application/json\r\nContent-Length: %d\r\n\r\n%s",
                        CHAT_BYTES, open);
    size_t text = CHAT_BYTES - strlen(open) - (sizeof end - 1);
    memset(out + head, letter, text);
    memcpy(out + (size_t)head + text, end, sizeof end);
    return (size_t)head + text + sizeof end - 1;
}

static void make_chat_answer(void)
{
    static const char open[] =
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"m\","
        "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"";
    static const char end[] = "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9,"
                              "\"total_tokens\":18}}";
    size_t text = CHAT_BYTES - (sizeof open - 1) - (sizeof end - 1);
    int head =
        snprintf(answer, sizeof answer,
                 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", CHAT_BYTES, open);
    memset(answer + head, 'y', text);
    memcpy(answer + (size_t)head + text, end, sizeof end);
}

/* Reads what is there of an answer; true when it is whole. */
static bool read_answer(int fd, char *bytes, size_t *n, size_t room)
{
    ssize_t got = read(fd, bytes + *n, room - 1 - *n);
    if (got <= 0)
        die("an answer");
    *n += (size_t)got;
    bytes[*n] = 0;
    char *end = strstr(bytes, "\r\n\r\n");
    return end && *n >= (size_t)(end + 4 - bytes) + CHAT_BYTES;
}

/* Asks until the answer comes from the cache. */
static void warm(int fd, const char *request, size_t bytes, char *text, size_t room)
{
    for (int i = 0; i < 200; i++) {
        size_t got = 0;
        if (write(fd, request, bytes) < 0)
            die("write");
        while (!read_answer(fd, text, &got, room))
            ;
        if (strcasestr(text, "x-quire-cache: exact"))
            return;
        usleep(20000);
    }
    fprintf(stderr, "bench_gateway: no answer came from the cache; the last:\n%.1200s\n", text);
    exit(1);
}

/* Each connection has a question of its own: equal ones at the same moment would share one look-up. */
static void measure_hits(pid_t pid, uint16_t gateway, double seconds)
{
    static char answers[HIT_CONNECTIONS][8192], requests[HIT_CONNECTIONS][4096];
    size_t got[HIT_CONNECTIONS] = {0}, bytes = 0, n = 0;
    int fds[HIT_CONNECTIONS], poll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < HIT_CONNECTIONS; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        fds[i] = connect_to(gateway);
        epoll_ctl(poll, EPOLL_CTL_ADD, fds[i], &event);
        bytes = make_chat(requests[i], sizeof requests[i], (char)('a' + i), false);
        warm(fds[i], requests[i], bytes, answers[i], sizeof answers[i]);
    }
    double cpu = cpu_seconds(pid), begin = (double)clock_ns(), end = begin + seconds * 1e9;
    for (int i = 0; i < HIT_CONNECTIONS; i++) {
        got[i] = 0;
        if (write(fds[i], requests[i], bytes) < 0)
            die("write");
    }
    while ((double)clock_ns() < end) {
        struct epoll_event events[HIT_CONNECTIONS];
        int ready = epoll_wait(poll, events, HIT_CONNECTIONS, 1000);
        for (int k = 0; k < ready; k++) {
            uint32_t i = events[k].data.u32;
            if (!read_answer(fds[i], answers[i], &got[i], sizeof answers[i]))
                continue;
            n++;
            got[i] = 0;
            if (write(fds[i], requests[i], bytes) < 0)
                die("write");
        }
    }
    double took = ((double)clock_ns() - begin) / 1e9, used = cpu_seconds(pid) - cpu;
    printf("{\"hits\":%zu,\"per_second\":%.0f,\"per_cpu_second_of_the_gateway\":%.0f}\n", n, (double)n / took,
           (double)n / used);
}

/* ---- what the cache's way adds ---- */

/* A chat that no other number has. */
static size_t make_numbered(char *out, size_t out_bytes, size_t number, bool stream)
{
    size_t bytes = make_chat(out, out_bytes, 'x', stream);
    char *at = out + bytes - 20;
    for (int i = 0; i < 6; i++, number /= 26)
        *at-- = (char)('a' + number % 26);
    return bytes;
}

/* One request and its whole answer, which stays in `text`; microseconds. */
static double ask_chat(int fd, const char *request, size_t bytes, char *text, size_t room)
{
    size_t got = 0;
    uint64_t begin = clock_ns();
    if (write(fd, request, bytes) < 0)
        die("write");
    while (!read_answer(fd, text, &got, room))
        ;
    return (double)(clock_ns() - begin) / 1e3;
}

static void measure_misses(uint16_t upstream, uint16_t gateway, size_t n)
{
    static char request[4096], text[8192];
    double *times[2] = {malloc(n * sizeof(double)), malloc(n * sizeof(double))};
    int fds[2] = {connect_to(upstream), connect_to(gateway)};
    size_t misses = 0;
    if (!times[0] || !times[1])
        die("memory");
    size_t bytes = make_numbered(request, sizeof request, 1, false);
    warm(fds[1], request, bytes, text, sizeof text);
    for (size_t i = 0; i < n; i++) {
        bytes = make_numbered(request, sizeof request, i + 2, false);
        for (int k = 0; k < 2; k++)
            times[k][i] = ask_chat(fds[k], request, bytes, text, sizeof text);
        misses += strcasestr(text, "x-quire-cache: miss") != NULL;
    }
    for (int i = 0; i < 2; i++)
        qsort(times[i], n, sizeof(double), compare);
    printf("{\"misses\":%zu,\"of\":%zu,\"direct_us\":{\"p50\":%.1f,\"p99\":%.1f},\"gateway_us\":{\"p50\":%.1f,\"p99\":%"
           ".1f},"
           "\"added_us\":{\"p50\":%.1f,\"p99\":%.1f}",
           misses, n, at(times[0], n, 0.5), at(times[0], n, 0.99), at(times[1], n, 0.5), at(times[1], n, 0.99),
           at(times[1], n, 0.5) - at(times[0], n, 0.5), at(times[1], n, 0.99) - at(times[0], n, 0.99));
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        free(times[i]);
    }
}

static void measure_near(uint16_t gateway, size_t n)
{
    static char request[4096], text[8192];
    double *times = malloc(n * sizeof(double));
    int fd = connect_to(gateway);
    size_t hits = 0;
    if (!times)
        die("memory");
    size_t bytes = make_numbered(request, sizeof request, 1, false);
    warm(fd, request, bytes, text, sizeof text);
    for (size_t i = 0; i < n; i++) {
        bytes = make_numbered(request, sizeof request, i + 2, false);
        times[i] = ask_chat(fd, request, bytes, text, sizeof text);
        hits += strcasestr(text, "x-quire-cache: hit") != NULL;
    }
    qsort(times, n, sizeof(double), compare);
    printf(",\"near_hits\":%zu,\"of\":%zu,\"near_us\":{\"p50\":%.1f,\"p99\":%.1f}", hits, n, at(times, n, 0.5),
           at(times, n, 0.99));
    close(fd);
    free(times);
}

/* A counter of /metrics, of all labels that hold `label`. */
static long metric(uint16_t gateway, const char *name, const char *label)
{
    static char text[1 << 20];
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    size_t n = 0;
    ssize_t got;
    long sum = 0;
    int fd = connect_to(gateway);
    if (write(fd, request, sizeof request - 1) < 0)
        die("write");
    while (n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    text[n] = 0;
    for (char *line = strstr(text, name); line; line = strstr(line + 1, name)) {
        char *end = strchr(line, '\n'), *value = end ? memrchr(line, ' ', (size_t)(end - line)) : NULL;
        if (value && line[strlen(name)] == '{' && memmem(line, (size_t)(end - line), label, strlen(label)))
            sum += atol(value);
    }
    return sum;
}

static void measure_cached_streams(pid_t pid, uint16_t gateway, int n)
{
    static char request[4096];
    int *fds = calloc((size_t)n, sizeof *fds), first = n_streams;
    if (!fds)
        die("memory");
    long before = rss_kib(pid), stored = metric(gateway, "quire_gateway_kept_total", "outcome=\"stored\"");
    for (int i = 0; i < n; i++) {
        size_t bytes = make_numbered(request, sizeof request, (size_t)i + 1, true);
        fds[i] = connect_to(gateway);
        if (write(fds[i], request, bytes) < 0)
            die("write");
        while (__atomic_load_n(&n_streams, __ATOMIC_SEQ_CST) <= first + i)
            usleep(50);
    }
    long silent = rss_kib(pid), kept = 0, last = -1;
    for (int i = 0; i < n; i++)
        begin_stream(streams[first + i]);
    for (int i = 0; i < n; i++)
        read_until(fds[i], "word");
    long during = rss_kib(pid);
    for (int i = 0; i < n; i++)
        write_chunk(streams[first + i], CHUNK("{}", "\"stop\"") "data: [DONE]\n\n", true);
    for (int i = 0; i < n; i++)
        read_until(fds[i], "\r\n0\r\n\r\n");
    while (kept != last) {
        last = kept;
        usleep(500000);
        kept = metric(gateway, "quire_gateway_kept_total", "outcome=\"stored\"") - stored;
    }
    printf(",\"streams\":%d,\"kib_per_silent_stream\":%.2f,\"kib_per_stream\":%.2f,\"kept\":%ld,\"down\":%ld}\n", n,
           (double)(silent - before) / n, (double)(during - before) / n, kept,
           metric(gateway, "quire_gateway_requests_total", "cache=\"down\""));
    for (int i = 0; i < n; i++)
        close(fds[i]);
    free(fds);
}

static void make_vector(void)
{
    char body[2048];
    size_t n = (size_t)snprintf(body, sizeof body,
                                "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,"
                                "\"embedding\":[");
    for (int i = 0; i < DIM; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, "%s0.125", i ? "," : "");
    n += (size_t)snprintf(body + n, sizeof body - n,
                          "]}],\"model\":\"e\",\"usage\":{\"prompt_tokens\":1,\"total_tokens\":1}}");
    snprintf(vector, sizeof vector,
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", n, body);
}

static void measure_cached(const char *program, uint16_t upstream, char **more, int n_more, size_t requests, int n)
{
    char url[64], name[40], *words[ARGUMENTS];
    uint16_t plain, near;
    int n_words = 0;
    snprintf(url, sizeof url, "http://127.0.0.1:%u/v1", upstream);
    snprintf(name, sizeof name, "bench-near-%d", (int)getpid());
    const char *given[] = {"--cache", name, "--embed-url", url, "--embed-model", "e", "--similarity", "0.8"};
    for (; n_words < n_more; n_words++)
        words[n_words] = more[n_words];
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        words[n_words++] = (char *)given[i];
    pid_t pid = start(program, upstream, more, n_more, &plain);
    start(program, upstream, words, n_words, &near);
    measure_misses(upstream, plain, requests);
    measure_near(near, requests < NEAR_MAX ? requests : NEAR_MAX);
    measure_cached_streams(pid, plain, n);
}

int main(int argc, char **argv)
{
    size_t requests = 20000, cached = 0;
    int n = 5000, n_more = 0;
    double hit_seconds = 0;
    char *more[ARGUMENTS];
    uint16_t upstream, gateway;
    pthread_t thread;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_gateway PROGRAM [--requests N] [--streams N] [--set NAME=VALUE]...\n");
        return 2;
    }
    for (int i = 2; i + 1 < argc && n_more < ARGUMENTS - 20; i += 2) {
        if (strcmp(argv[i], "--requests") == 0)
            requests = (size_t)atol(argv[i + 1]);
        else if (strcmp(argv[i], "--streams") == 0)
            n = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--hits") == 0)
            hit_seconds = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--cached") == 0)
            cached = (size_t)atol(argv[i + 1]);
        else {
            more[n_more++] = argv[i];
            more[n_more++] = argv[i + 1];
        }
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_IGN);
    atexit(end_gateways);
    int head = snprintf(answer, sizeof answer,
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", BODY);
    memset(answer + head, 'y', BODY);
    chat = hit_seconds > 0 || cached > 0;
    if (chat) {
        make_chat_answer();
        make_vector();
    }
    listener = listen_any(&upstream);
    if (pthread_create(&thread, NULL, serve, NULL) != 0)
        die("thread");
    if (cached > 0) {
        measure_cached(argv[1], upstream, more, n_more, cached, n);
        return 0;
    }
    pid_t pid = start(argv[1], upstream, more, n_more, &gateway);
    if (chat)
        measure_hits(pid, gateway, hit_seconds);
    else {
        measure_time(upstream, gateway, requests);
        measure_streams(pid, gateway, n);
    }
    return 0;
}
