/*
 * bench_fair.c - what a flood by one tenant does to the others: their latency beside what it is without.
 *
 *   bench_fair --port PORT --key KEY --queries FILE [--others 4] [--rate 50] [--times 50] [--connections 8]
 *              [--depth 64] [--seconds 5] [--rounds 3] [--limits TEXT]
 *
 * Each of `others` users asks VSIM for 10 at random moments, `rate` times a second on average, whether earlier ones
 * were answered or not (an open loop: a server that is slow is not asked less). Another user, the flood, does so
 * `times` as often, over `connections`, with at most `depth` without a reply on each; what it would send beyond that is
 * not sent. Rounds of the others alone and of all together alternate. Users are made by ACL SETUSER (fair-bench-N) and
 * count as tenants, since their requests name none; `limits` is put in force as tenant-limits first.
 *
 * Latencies are from the moment at which a request was due to its reply, and so hold this program's own delays: let it
 * have a processor for itself. Prints one line of JSON: percentiles of the others and of the flood, queries a second,
 * and `ratio`, the others' p99 with the flood over that without. Ends with status 1 and a sentence where the server
 * does not answer as it should; error replies to the flood are counted (limits), to the others they end it.
 */
#include "datasets/vecfile.h"
#include "io/clock.h"
#include "io/histogram.h"
#include "io/random.h"
#include "tests/bench/support_bench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { K = 10, DEPTH_MAX = 4096, CONNECTIONS_MAX = 256, PER_USER = 4, SUB_BITS = 6, VALUE_BITS = 32 };
enum { BUCKETS = HISTOGRAM_BUCKETS(SUB_BITS, VALUE_BITS) };

struct options {
    const char *key, *queries, *limits;
    unsigned long port, others, connections, depth, rounds;
    double rate, times, seconds;
};

struct connection {
    int fd;
    uint64_t due_us[DEPTH_MAX]; /* of requests without a reply, a ring */
    unsigned first, n;
    unsigned lines; /* of the reply that has begun, still to come */
    char *unsent, received[1 << 15];
    size_t n_unsent, unsent_room, at, end;
};

/* The others, or the flood: connections of one thread. */
struct sender {
    struct bench *bench;
    pthread_t thread;
    struct connection *connections[CONNECTIONS_MAX];
    unsigned n;
    double rate; /* of all its connections */
    unsigned depth;
    bool may_fail;
    uint64_t end_us, answered, refused, held_back;
    struct random random;
    struct histogram latency;
    _Atomic uint64_t counts[BUCKETS];
};

struct bench {
    struct options options;
    struct vectors queries;
};

/* ---- connections ------------------------------------------------------------------------------------------------- */

static struct connection *connect_to(const struct bench *b)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)b->options.port)};
    struct connection *c = room(sizeof *c);
    int one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("no connection to port %lu", b->options.port);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return c;
}

static void disconnect(struct connection *c)
{
    close(c->fd);
    free(c->unsent);
    free(c);
}

static char *reserve(struct connection *c, size_t bytes)
{
    if (c->n_unsent + bytes > c->unsent_room) {
        c->unsent_room = 2 * (c->n_unsent + bytes);
        c->unsent = realloc(c->unsent, c->unsent_room);
        if (!c->unsent)
            fail("no memory for requests");
    }
    return c->unsent + c->n_unsent;
}

/* A request, its words ended by NULL. */
static void put_words(struct connection *c, const char *const *words)
{
    unsigned n = 0;
    while (words[n])
        n++;
    c->n_unsent += (size_t)sprintf(reserve(c, 32), "*%u\r\n", n);
    for (; *words; words++)
        c->n_unsent += (size_t)sprintf(reserve(c, strlen(*words) + 32), "$%zu\r\n%s\r\n", strlen(*words), *words);
}

static void put_vsim(const struct bench *b, struct connection *c, uint64_t query)
{
    const struct vectors *v = &b->queries;
    size_t bytes = sizeof(float) * v->dim;
    float numbers[QUIRE_DIM_MAX];
    for (uint32_t i = 0; i < v->dim; i++) {
        uint64_t at = query * v->dim + i;
        numbers[i] = v->type == QUIRE_TYPE_F32  ? ((const float *)v->data)[at]
                     : v->type == QUIRE_TYPE_U8 ? (float)((const uint8_t *)v->data)[at]
                                                : (float)((const int8_t *)v->data)[at];
    }
    char *out = reserve(c, bytes + strlen(b->options.key) + 128);
    size_t n = (size_t)sprintf(out, "*6\r\n$4\r\nVSIM\r\n$%zu\r\n%s\r\n$4\r\nFP32\r\n$%zu\r\n", strlen(b->options.key),
                               b->options.key, bytes);
    memcpy(out + n, numbers, bytes);
    n += bytes;
    c->n_unsent += n + (size_t)sprintf(out + n, "\r\n$5\r\nCOUNT\r\n$2\r\n%d\r\n", K);
}

static void send_some(struct connection *c)
{
    ssize_t sent = c->n_unsent ? send(c->fd, c->unsent, c->n_unsent, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (sent < 0 && errno != EAGAIN)
        fail("the server took no more requests: %s", strerror(errno));
    if (sent <= 0)
        return;
    memmove(c->unsent, c->unsent + sent, c->n_unsent - (size_t)sent);
    c->n_unsent -= (size_t)sent;
}

/* The next line without its end, terminated; NULL: it is not whole. */
static char *take_line(struct connection *c)
{
    char *line = c->received + c->at, *end = memchr(line, '\n', c->end - c->at);
    if (!end) {
        memmove(c->received, line, c->end - c->at);
        c->end -= c->at;
        c->at = 0;
        return NULL;
    }
    c->at = (size_t)(end + 1 - c->received);
    end[end > line && end[-1] == '\r' ? -1 : 0] = 0;
    return line;
}

/* False: nothing is there now. */
static bool receive(struct connection *c, int flags)
{
    ssize_t got = recv(c->fd, c->received + c->end, sizeof c->received - c->end, flags);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        fail("the server closed the connection");
    c->end += got > 0 ? (size_t)got : 0;
    return got > 0;
}

/* Blocks. */
static void expect_ok(struct connection *c, const char *const *words)
{
    char *line;
    put_words(c, words);
    while (c->n_unsent)
        send_some(c);
    while (!(line = take_line(c)))
        receive(c, 0);
    if (strcmp(line, "+OK") != 0)
        fail("%s %s: the server answers %s", words[0], words[1], line);
}

static struct connection *connect_as(const struct bench *b, const char *user)
{
    struct connection *c = connect_to(b);
    expect_ok(c, (const char *const[]){"ACL", "SETUSER", user, "reset", "on", "nopass", "~*", "+@all", NULL});
    expect_ok(c, (const char *const[]){"AUTH", user, "any", NULL});
    return c;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static void note_reply(struct sender *s, struct connection *c, bool error, const char *line)
{
    if (c->n == 0)
        fail("a reply to nothing: %s", line);
    uint64_t due = c->due_us[c->first];
    c->first = (c->first + 1) % DEPTH_MAX;
    c->n--;
    if (error && !s->may_fail)
        fail("the server answers: %s", line);
    s->refused += error;
    s->answered += !error;
    if (!error)
        histogram_add(&s->latency, clock_us() - due);
}

static void take_replies(struct sender *s, struct connection *c)
{
    char *line;
    while (receive(c, MSG_DONTWAIT)) {
        while ((line = take_line(c))) {
            if (c->lines > 0) {
                if (--c->lines == 0)
                    note_reply(s, c, false, line);
            } else if (line[0] == '*') {
                c->lines = 2 * (unsigned)strtoul(line + 1, NULL, 10);
                if (c->lines == 0)
                    note_reply(s, c, false, line);
            } else if (line[0] == '-') {
                note_reply(s, c, true, line);
            } else {
                fail("VSIM answers %s", line);
            }
        }
        if (c->end == sizeof c->received)
            fail("a reply has a line of %zu bytes", c->end);
    }
}

static void ask(struct sender *s, uint64_t due_us)
{
    struct connection *c = s->connections[random_below(&s->random, s->n)];
    if (c->n == s->depth) {
        s->held_back++;
        return;
    }
    c->due_us[(c->first + c->n++) % DEPTH_MAX] = due_us;
    put_vsim(s->bench, c, random_below(&s->random, s->bench->queries.rows));
    send_some(c);
}

/* Time to the next request of a Poisson process, in us. */
static double pause_us(struct sender *s)
{
    double u = ((double)(random_next(&s->random) >> 11) + 0.5) * 0x1p-53;
    return -log(u) * 1e6 / s->rate;
}

static bool is_waiting(const struct sender *s)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->connections[i]->n > 0)
            return true;
    return false;
}

static void *run(void *context)
{
    struct sender *s = context;
    struct pollfd fds[CONNECTIONS_MAX];
    double next_us = (double)clock_us() + pause_us(s);
    while (clock_us() < s->end_us || is_waiting(s)) {
        uint64_t now = clock_us();
        for (; now < s->end_us && next_us <= (double)now; next_us += pause_us(s))
            ask(s, (uint64_t)next_us);
        for (unsigned i = 0; i < s->n; i++) {
            const struct connection *c = s->connections[i];
            fds[i] = (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (c->n_unsent ? POLLOUT : 0))};
        }
        double wait_us = now < s->end_us ? next_us - (double)now : 10000;
        struct timespec t = {.tv_nsec = (long)((wait_us > 0 && wait_us < 10000 ? wait_us : 10000) * 1000)};
        if (ppoll(fds, s->n, &t, NULL) < 0)
            fail("waiting: %s", strerror(errno));
        for (unsigned i = 0; i < s->n; i++) {
            if (fds[i].revents & POLLOUT)
                send_some(s->connections[i]);
            if (fds[i].revents & (POLLIN | POLLHUP | POLLERR))
                take_replies(s, s->connections[i]);
        }
    }
    return NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static struct sender *make_sender(struct bench *b, unsigned seed, double rate)
{
    struct sender *s = room(sizeof *s);
    s->bench = b;
    s->rate = rate;
    random_init(&s->random, seed);
    histogram_init(&s->latency, s->counts, SUB_BITS, VALUE_BITS);
    return s;
}

static void connect_users(struct bench *b, struct sender *others, struct sender *flood)
{
    char user[32];
    for (unsigned long i = 0; i < b->options.others * PER_USER; i++) {
        snprintf(user, sizeof user, "fair-bench-%lu", i / PER_USER);
        others->connections[others->n++] = connect_as(b, user);
    }
    for (unsigned long i = 0; i < b->options.connections; i++)
        flood->connections[flood->n++] = connect_as(b, "fair-bench-flood");
}

/* One round: *into gets what the others have measured. */
static void measure(struct bench *b, struct sender *others, struct sender *flood, bool flooded)
{
    others->end_us = flood->end_us = clock_us() + (uint64_t)(b->options.seconds * 1e6);
    if (flooded && pthread_create(&flood->thread, NULL, run, flood) != 0)
        fail("no thread");
    run(others);
    if (flooded)
        pthread_join(flood->thread, NULL);
}

static void put_latency(const char *name, const struct sender *s, double seconds)
{
    printf("\"%s\": {\"queries_per_s\": %.0f, \"p50_us\": %.0f, \"p90_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f, "
           "\"refused\": %llu, \"not_sent\": %llu}, ",
           name, (double)s->answered / seconds, histogram_percentile(&s->latency, 0.5),
           histogram_percentile(&s->latency, 0.9), histogram_percentile(&s->latency, 0.99),
           histogram_percentile(&s->latency, 0.999), (unsigned long long)s->refused, (unsigned long long)s->held_back);
}

static double real(const char *text)
{
    char *end;
    double number = strtod(text, &end);
    if (*end || !(number > 0))
        fail("'%s' is not a number above 0", text);
    return number;
}

static void take_options(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {{"port", 1, 0, 'p'},        {"key", 1, 0, 'k'},    {"queries", 1, 0, 'q'},
                                          {"others", 1, 0, 'o'},      {"rate", 1, 0, 'r'},   {"times", 1, 0, 't'},
                                          {"connections", 1, 0, 'c'}, {"depth", 1, 0, 'd'},  {"seconds", 1, 0, 's'},
                                          {"rounds", 1, 0, 'n'},      {"limits", 1, 0, 'l'}, {0, 0, 0, 0}};
    *o = (struct options){
        .others = 4, .rate = 50, .times = 50, .connections = 8, .depth = 64, .seconds = 5, .rounds = 3};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'p':
            o->port = (unsigned long)real(optarg);
            break;
        case 'k':
            o->key = optarg;
            break;
        case 'q':
            o->queries = optarg;
            break;
        case 'o':
            o->others = (unsigned long)real(optarg);
            break;
        case 'r':
            o->rate = real(optarg);
            break;
        case 't':
            o->times = real(optarg);
            break;
        case 'c':
            o->connections = (unsigned long)real(optarg);
            break;
        case 'd':
            o->depth = (unsigned long)real(optarg);
            break;
        case 's':
            o->seconds = real(optarg);
            break;
        case 'n':
            o->rounds = (unsigned long)real(optarg);
            break;
        case 'l':
            o->limits = optarg;
            break;
        default:
            fail("see the comment at the head of tests/bench/bench_fair.c");
        }
    }
    if (!o->port || !o->key || !o->queries || optind < argc)
        fail("--port, --key and --queries are needed");
    if (o->others * PER_USER > CONNECTIONS_MAX || o->connections > CONNECTIONS_MAX || o->depth > DEPTH_MAX)
        fail("at most %d others, %d connections, %d deep", CONNECTIONS_MAX / PER_USER, CONNECTIONS_MAX, DEPTH_MAX);
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct quire_error err = {0};
    take_options(argc, argv, &b.options);
    const struct options *o = &b.options;
    if (vecfile_vectors_load(o->queries, VECFILE_AUTO, &b.queries, &err) < 0)
        fail("%s", err.message);
    struct sender *alone = make_sender(&b, 1, o->rate * (double)o->others);
    struct sender *others = make_sender(&b, 2, o->rate * (double)o->others);
    struct sender *flood = make_sender(&b, 3, o->rate * o->times);
    connect_users(&b, others, flood);
    memcpy(alone->connections, others->connections, sizeof others->connections);
    alone->n = others->n;
    alone->depth = others->depth = DEPTH_MAX;
    flood->depth = (unsigned)o->depth;
    flood->may_fail = true;
    if (o->limits)
        expect_ok(others->connections[0], (const char *const[]){"CONFIG", "SET", "tenant-limits", o->limits, NULL});
    for (unsigned long i = 0; i < o->rounds; i++) {
        measure(&b, alone, flood, false);
        measure(&b, others, flood, true);
    }
    double seconds = o->seconds * (double)o->rounds;
    printf("{");
    put_latency("alone", alone, seconds);
    put_latency("beside_flood", others, seconds);
    put_latency("flood", flood, seconds);
    printf("\"ratio\": %.2f}\n",
           histogram_percentile(&others->latency, 0.99) / histogram_percentile(&alone->latency, 0.99));
    for (unsigned i = 0; i < others->n; i++)
        disconnect(others->connections[i]);
    for (unsigned i = 0; i < flood->n; i++)
        disconnect(flood->connections[i]);
    free(alone);
    free(others);
    free(flood);
    vecfile_vectors_free(&b.queries);
    return 0;
}
