/*
 * bench_live.c - inserts a file of vectors into a vector set of a running server while others search it.
 *
 *   bench_live --port PORT --key KEY --base FILE --queries FILE [--metric cosine|l2|ip] [--first ROW] [--rows N]
 *              [--connections 1] [--depth 64] [--searchers 4] [--moments 5] [--quiet SECONDS] [--settle SECONDS]
 *
 * Each of `connections` threads sends VADD of every so-many-th row under its number as name, at most `depth` without a
 * reply. Each searcher has one VSIM for 10 under way at a time. At `moments` moments, evenly over the rows, 100 queries
 * are asked and kept; when all is done they are compared with brute force over the rows that were acknowledged before
 * they were asked. A hit is right that is as near as the tenth of those, so that a row added meanwhile may take a place
 * that it deserves. Then, after `settle` seconds, the same searchers go on for `quiet` seconds without inserts.
 *
 * Prints one line of JSON; times are this program's, replies included. It has no part of the server in it, and ends
 * with status 1 and a sentence on the first reply that is an error.
 */
#include "datasets/vecfile.h"
#include "io/clock.h"
#include "io/histogram.h"
#include "tests/bench/support_bench.h"
#include <arpa/inet.h>
#include <getopt.h>
#include <math.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { K = 10, MOMENT_QUERIES = 100, THREADS_MAX = 256, MOMENTS_MAX = 64, SUB_BITS = 6, VALUE_BITS = 36 };
enum phase { PHASE_INSERT, PHASE_PAUSE, PHASE_QUIET, PHASE_END };

struct options {
    const char *key, *base, *queries;
    enum quire_metric metric;
    unsigned long port, first, rows, connections, depth, searchers, moments;
    double quiet, settle;
};

struct connection {
    int fd;
    size_t at, end; /* of what was received and not read */
    char received[1 << 16];
};

struct inserter {
    struct bench *bench;
    pthread_t thread;
    unsigned number;
    _Atomic uint64_t acknowledged;
    uint64_t longest_us; /* between two looks at replies */
};

struct searcher {
    struct bench *bench;
    pthread_t thread;
    unsigned number;
    struct histogram times[PHASE_END];
};

struct moment {
    uint64_t rows; /* acknowledged before */
    uint32_t hits[MOMENT_QUERIES][K];
    uint32_t n_hits[MOMENT_QUERIES];
    double recall;
};

struct bench {
    struct options options;
    struct vectors base, queries;
    struct inserter inserters[THREADS_MAX];
    struct searcher searchers[THREADS_MAX];
    struct moment moments[MOMENTS_MAX];
    _Atomic int phase;
};

/* ---- the protocol ------------------------------------------------------------------------------------------------ */

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
    free(c);
}

static void send_all(struct connection *c, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0)
            fail("the server took no more requests");
        bytes += sent;
        n -= (size_t)sent;
    }
}

/* The next line without its end, terminated, valid until the next call; an error reply ends the program. */
static const char *read_line(struct connection *c)
{
    char *end;
    while (!(end = memchr(c->received + c->at, '\n', c->end - c->at))) {
        memmove(c->received, c->received + c->at, c->end - c->at);
        c->end -= c->at;
        c->at = 0;
        if (c->end == sizeof c->received)
            fail("a reply has a line of %zu bytes", c->end);
        ssize_t got = recv(c->fd, c->received + c->end, sizeof c->received - c->end, 0);
        if (got <= 0)
            fail("the server closed the connection");
        c->end += (size_t)got;
    }
    char *line = c->received + c->at;
    c->at = (size_t)(end + 1 - c->received);
    end[end > line && end[-1] == '\r' ? -1 : 0] = 0;
    if (line[0] == '-')
        fail("the server answers: %s", line);
    return line;
}

static void numbers_of(const struct vectors *v, uint64_t row, float *out)
{
    for (uint32_t i = 0; i < v->dim; i++) {
        uint64_t at = row * v->dim + i;
        out[i] = v->type == QUIRE_TYPE_F32  ? ((const float *)v->data)[at]
                 : v->type == QUIRE_TYPE_U8 ? (float)((const uint8_t *)v->data)[at]
                                            : (float)((const int8_t *)v->data)[at];
    }
}

static size_t put_vector(const struct vectors *v, uint64_t row, char *out)
{
    float numbers[QUIRE_DIM_MAX];
    size_t bytes = sizeof *numbers * v->dim;
    size_t n = (size_t)sprintf(out, "$4\r\nFP32\r\n$%zu\r\n", bytes);
    numbers_of(v, row, numbers);
    memcpy(out + n, numbers, bytes);
    memcpy(out + n + bytes, "\r\n", 2);
    return n + bytes + 2;
}

static size_t request_bytes_max(const struct bench *b)
{
    return 256 + strlen(b->options.key) + sizeof(float) * b->base.dim;
}

/* ---- inserting --------------------------------------------------------------------------------------------------- */

static size_t put_vadd(const struct bench *b, uint64_t row, char *out)
{
    char name[24];
    int name_bytes = snprintf(name, sizeof name, "%llu", (unsigned long long)row);
    size_t n = (size_t)sprintf(out, "*5\r\n$4\r\nVADD\r\n$%zu\r\n%s\r\n", strlen(b->options.key), b->options.key);
    n += put_vector(&b->base, row, out + n);
    return n + (size_t)sprintf(out + n, "$%d\r\n%s\r\n", name_bytes, name);
}

static void *insert(void *context)
{
    struct inserter *in = context;
    struct bench *b = in->bench;
    const struct options *o = &b->options;
    struct connection *c = connect_to(b);
    uint64_t next = o->first + in->number, end = o->first + o->rows, waiting = 0;
    uint64_t half = o->depth > 1 ? o->depth / 2 : 1;
    char *requests = room(half * request_bytes_max(b));
    while (next < end || waiting > 0) {
        size_t n = 0;
        uint64_t batch = 0;
        for (; batch < half && next < end && waiting + batch < o->depth; batch++, next += o->connections)
            n += put_vadd(b, next, requests + n);
        send_all(c, requests, n);
        waiting += batch;
        uint64_t begin = clock_us(), keep = next < end ? o->depth - half : 0;
        for (; waiting > keep; waiting--) {
            read_line(c);
            atomic_fetch_add(&in->acknowledged, 1);
        }
        uint64_t took = clock_us() - begin;
        in->longest_us = took > in->longest_us ? took : in->longest_us;
    }
    free(requests);
    disconnect(c);
    return NULL;
}

/* All rows from `first` below first + this are acknowledged. */
static uint64_t rows_acknowledged(const struct bench *b)
{
    uint64_t least = b->options.rows;
    for (unsigned i = 0; i < b->options.connections; i++) {
        uint64_t missing = i + atomic_load(&b->inserters[i].acknowledged) * b->options.connections;
        least = missing < least ? missing : least;
    }
    return least;
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

static size_t put_vsim(const struct bench *b, uint64_t query, char *out)
{
    size_t n = (size_t)sprintf(out, "*6\r\n$4\r\nVSIM\r\n$%zu\r\n%s\r\n", strlen(b->options.key), b->options.key);
    n += put_vector(&b->queries, query, out + n);
    return n + (size_t)sprintf(out + n, "$5\r\nCOUNT\r\n$2\r\n%d\r\n", K);
}

/* Returns the number of hits. */
static uint32_t search(const struct bench *b, struct connection *c, uint64_t query, char *request, uint32_t hits[K])
{
    send_all(c, request, put_vsim(b, query, request));
    const char *line = read_line(c);
    uint32_t n = (uint32_t)strtoul(line + 1, NULL, 10);
    if (line[0] != '*' || n > K)
        fail("VSIM answers %s", line);
    for (uint32_t i = 0; i < n; i++) {
        read_line(c);
        hits[i] = (uint32_t)strtoul(read_line(c), NULL, 10);
    }
    return n;
}

static void *search_on(void *context)
{
    struct searcher *s = context;
    struct bench *b = s->bench;
    struct connection *c = connect_to(b);
    char *request = room(request_bytes_max(b));
    uint32_t hits[K];
    uint64_t query = s->number * 97u;
    int phase;
    while ((phase = atomic_load(&b->phase)) != PHASE_END) {
        if (phase == PHASE_PAUSE) {
            usleep(10000);
            continue;
        }
        uint64_t begin = clock_us();
        search(b, c, query++ % b->queries.rows, request, hits);
        histogram_add(&s->times[phase], clock_us() - begin);
    }
    free(request);
    disconnect(c);
    return NULL;
}

static void take_moment(struct bench *b, struct connection *c, char *request, struct moment *m)
{
    m->rows = rows_acknowledged(b);
    for (unsigned i = 0; i < MOMENT_QUERIES; i++)
        m->n_hits[i] = search(b, c, i % b->queries.rows, request, m->hits[i]);
}

/* ---- recall ------------------------------------------------------------------------------------------------------ */

static double distance(const struct bench *b, uint64_t row, const float *query)
{
    float numbers[QUIRE_DIM_MAX];
    double dot = 0, rr = 0, qq = 0;
    numbers_of(&b->base, row, numbers);
    for (uint32_t i = 0; i < b->base.dim; i++) {
        dot += (double)numbers[i] * query[i];
        rr += (double)numbers[i] * numbers[i];
        qq += (double)query[i] * query[i];
    }
    return b->options.metric == QUIRE_METRIC_L2       ? rr + qq - 2 * dot
           : b->options.metric == QUIRE_METRIC_COSINE ? 1 - dot / sqrt(rr * qq)
                                                      : -dot;
}

static void compute_recall(const struct bench *b, struct moment *m)
{
    struct vectors base = b->base, queries = b->queries;
    struct truth truth;
    struct quire_error err = {0};
    uint64_t right = 0, wanted = 0;
    float query[QUIRE_DIM_MAX];
    base.rows = b->options.first + m->rows; /* rows before `first` were put by whoever ran before */
    queries.rows = queries.rows < MOMENT_QUERIES ? queries.rows : MOMENT_QUERIES;
    uint32_t k = base.rows < K ? (uint32_t)base.rows : K;
    if (k == 0)
        return;
    if (truth_compute(&base, &queries, b->options.metric, k, 2, NULL, NULL, &truth, &err) < 0)
        fail("%s", err.message);
    for (uint32_t q = 0; q < queries.rows; q++) {
        numbers_of(&b->queries, q, query);
        double tenth = (double)truth.distances[(size_t)q * k + k - 1];
        for (uint32_t i = 0; i < m->n_hits[q]; i++)
            right += distance(b, m->hits[q][i], query) <= tenth + 1e-5 * (1 + fabs(tenth));
        wanted += k;
    }
    m->recall = (double)right / (double)wanted;
    truth_free(&truth);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void take_options(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {{"port", 1, 0, 'p'},    {"key", 1, 0, 'k'},
                                          {"base", 1, 0, 'b'},    {"queries", 1, 0, 'q'},
                                          {"metric", 1, 0, 'm'},  {"first", 1, 0, 'f'},
                                          {"rows", 1, 0, 'n'},    {"connections", 1, 0, 'c'},
                                          {"depth", 1, 0, 'd'},   {"searchers", 1, 0, 's'},
                                          {"moments", 1, 0, 'o'}, {"quiet", 1, 0, 'u'},
                                          {"settle", 1, 0, 't'},  {0}};
    *o = (struct options){
        .metric = QUIRE_METRIC_COSINE, .rows = ~0ul, .connections = 1, .depth = 64, .searchers = 4, .moments = 5};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        unsigned long *const numbers[128] = {
            ['p'] = &o->port,        ['f'] = &o->first, ['n'] = &o->rows,     ['o'] = &o->moments,
            ['c'] = &o->connections, ['d'] = &o->depth, ['s'] = &o->searchers};
        const char **const texts[128] = {['k'] = &o->key, ['b'] = &o->base, ['q'] = &o->queries};
        if (c == '?')
            exit(2);
        if (numbers[c])
            *numbers[c] = strtoul(optarg, NULL, 10);
        else if (texts[c])
            *texts[c] = optarg;
        else if (c == 'm')
            o->metric = strcmp(optarg, "l2") == 0   ? QUIRE_METRIC_L2
                        : strcmp(optarg, "ip") == 0 ? QUIRE_METRIC_IP
                                                    : QUIRE_METRIC_COSINE;
        else
            *(c == 'u' ? &o->quiet : &o->settle) = strtod(optarg, NULL);
    }
    if (!o->port || !o->key || !o->base || !o->queries || !o->depth || !o->connections)
        fail("--port, --key, --base and --queries are needed; depth and connections are at least 1");
    if (o->connections > THREADS_MAX || o->searchers > THREADS_MAX || o->moments > MOMENTS_MAX)
        fail("at most %d connections and searchers, %d moments", THREADS_MAX, MOMENTS_MAX);
}

static void load(struct bench *b)
{
    struct options *o = &b->options;
    struct quire_error err = {0};
    if (vecfile_vectors_load(o->base, VECFILE_AUTO, &b->base, &err) < 0 ||
        vecfile_vectors_load(o->queries, VECFILE_AUTO, &b->queries, &err) < 0)
        fail("%s", err.message);
    if (b->base.dim != b->queries.dim || b->queries.rows == 0 || o->first > b->base.rows)
        fail("base and queries do not go together, or --first is beyond the rows");
    if (o->rows > b->base.rows - o->first)
        o->rows = b->base.rows - o->first;
}

static void start_thread(pthread_t *thread, void *(*run)(void *), void *context)
{
    if (pthread_create(thread, NULL, run, context) != 0)
        fail("no thread");
}

static void start_searchers(struct bench *b)
{
    for (unsigned i = 0; i < b->options.searchers; i++) {
        struct searcher *s = &b->searchers[i];
        s->bench = b;
        s->number = i;
        for (int phase = 0; phase < PHASE_END; phase++)
            histogram_init(&s->times[phase], room(sizeof(uint64_t) * HISTOGRAM_BUCKETS(SUB_BITS, VALUE_BITS)), SUB_BITS,
                           VALUE_BITS);
        start_thread(&s->thread, search_on, s);
    }
}

/* Returns how long it took. */
static double insert_all(struct bench *b, struct connection *c, char *request)
{
    struct options *o = &b->options;
    uint64_t begin = clock_us();
    for (unsigned i = 0; i < o->connections; i++) {
        b->inserters[i].bench = b;
        b->inserters[i].number = i;
        start_thread(&b->inserters[i].thread, insert, &b->inserters[i]);
    }
    for (unsigned m = 0; m + 1 < o->moments; m++) {
        while (rows_acknowledged(b) < o->rows * (m + 1) / o->moments)
            usleep(1000);
        take_moment(b, c, request, &b->moments[m]);
    }
    for (unsigned i = 0; i < o->connections; i++)
        pthread_join(b->inserters[i].thread, NULL);
    double seconds = (double)(clock_us() - begin) * 1e-6;
    if (o->moments)
        take_moment(b, c, request, &b->moments[o->moments - 1]);
    return seconds;
}

static void print_times(struct bench *b, const char *name, enum phase phase)
{
    struct histogram all;
    histogram_init(&all, room(sizeof(uint64_t) * HISTOGRAM_BUCKETS(SUB_BITS, VALUE_BITS)), SUB_BITS, VALUE_BITS);
    for (unsigned i = 0; i < b->options.searchers; i++)
        histogram_merge(&all, &b->searchers[i].times[phase]);
    if (histogram_count(&all) > 0)
        printf(", \"%s\": {\"searches\": %llu, \"p50_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f}", name,
               (unsigned long long)histogram_count(&all), histogram_percentile(&all, 0.5),
               histogram_percentile(&all, 0.99), histogram_percentile(&all, 0.999));
    free(all.counts);
}

static void report(struct bench *b, double seconds)
{
    const struct options *o = &b->options;
    uint64_t longest = 0;
    for (unsigned i = 0; i < o->connections; i++)
        longest = b->inserters[i].longest_us > longest ? b->inserters[i].longest_us : longest;
    printf("{\"rows\": %lu, \"dim\": %u, \"connections\": %lu, \"depth\": %lu, \"searchers\": %lu", o->rows,
           b->base.dim, o->connections, o->depth, o->searchers);
    if (o->rows)
        printf(", \"seconds\": %.2f, \"inserts_per_second\": %.0f, \"longest_wait_ms\": %.1f", seconds,
               (double)o->rows / seconds, (double)longest * 1e-3);
    printf(", \"moments\": [");
    for (unsigned m = 0; m < o->moments; m++) {
        compute_recall(b, &b->moments[m]);
        printf("%s{\"rows\": %llu, \"recall\": %.4f}", m ? ", " : "", (unsigned long long)b->moments[m].rows,
               b->moments[m].recall);
    }
    printf("]");
    print_times(b, "while_inserting", PHASE_INSERT);
    print_times(b, "quiet", PHASE_QUIET);
    printf("}\n");
}

static void sleep_seconds(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&time, NULL);
}

int main(int argc, char **argv)
{
    struct bench *b = room(sizeof *b);
    take_options(argc, argv, &b->options);
    load(b);
    struct connection *c = connect_to(b);
    char *request = room(request_bytes_max(b));
    atomic_store(&b->phase, b->options.rows ? PHASE_INSERT : PHASE_PAUSE);
    start_searchers(b);
    double seconds = insert_all(b, c, request);
    atomic_store(&b->phase, PHASE_PAUSE);
    sleep_seconds(b->options.settle);
    atomic_store(&b->phase, PHASE_QUIET);
    sleep_seconds(b->options.quiet);
    atomic_store(&b->phase, PHASE_END);
    for (unsigned i = 0; i < b->options.searchers; i++)
        pthread_join(b->searchers[i].thread, NULL);
    report(b, seconds);
    free(request);
    disconnect(c);
    for (unsigned i = 0; i < b->options.searchers; i++)
        for (int phase = 0; phase < PHASE_END; phase++)
            free(b->searchers[i].times[phase].counts);
    vecfile_vectors_free(&b->base);
    vecfile_vectors_free(&b->queries);
    free(b);
    return 0;
}
