/*
 * cache_load_bench.c - a large cache measured over RESP: rates, latencies, memory per entry.
 *
 * Entries are put through pipelines until there are --entries. Then come misses, hits that read a document, and inserts
 * into a category that is full, so that each of them evicts. Each kind is measured twice: with --connections times
 * --depth calls under way, for the rate, and one at a time, for the latency, which the queue of a full pipeline would
 * hide. Latencies are of this program and include its own work and the loopback; what the server says of its own is
 * beside them.
 *
 * A vector is half the direction of one of 1000 clusters, half its own, both in a space of 32 dimensions which a
 * random matrix spreads over all; vectors of texts have about as many that matter. Entries of a cluster have cosines
 * around .5, so a question that is near one entry is near that one only. Hits ask for random entries: their documents
 * lie anywhere in the log. All vectors are made on the way from their number; this costs microseconds, but the memory
 * of this program stays small beside the server's, with whom it shares the machine. The processor time that it takes
 * per call is told.
 */
#include "io/clock.h"
#include "io/error.h"
#include "tests/bench/cache_load/cache_load.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATEGORY  "bench"
#define SETTINGS  "SIM 0.9 TTL 86400000 ADMIT always"
#define CLUSTERS  1000u
#define INTRINSIC 32u
#define HIT_NOISE 0.2f /* cosine .98 */
#define QUEUE_MAX 64u  /* calls beyond what connections take, so that none is idle while this program makes vectors */
#define POLL_NS   5000000u

enum bench_kind { BENCH_FILL, BENCH_MISS, BENCH_HIT, BENCH_INSERT };

struct bench {
    const struct load_options *options;
    struct wire *wire;
    struct random random;
    float *vector, *own;
    float *basis; /* INTRINSIC x dim */
    char *value;
    uint64_t next_entry;   /* number of the next one that is put */
    uint64_t first_unused; /* numbers of questions that nobody puts */
    enum bench_kind kind;
    struct timing *timing;
    uint64_t n, as_wanted, evicted;
    double cpu_us; /* of this program, in the phase */
    int rc;
    struct quire_error *err;
};

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void make_vector(struct bench *b, uint64_t number, float noise)
{
    size_t dim = b->options->dim;
    struct random r;
    float cluster[INTRINSIC], own[INTRINSIC];
    random_init(&r, random_mix(b->options->seed ^ (0xc1ull << 56) ^ number % CLUSTERS));
    random_direction(&r, cluster, INTRINSIC);
    random_init(&r, random_mix(b->options->seed ^ number));
    random_direction(&r, own, INTRINSIC);
    memset(b->vector, 0, dim * sizeof *b->vector);
    for (size_t k = 0; k < INTRINSIC; k++) {
        const float *axis = b->basis + k * dim, weight = cluster[k] + own[k];
        for (size_t i = 0; i < dim; i++)
            b->vector[i] += weight * axis[i];
    }
    if (noise <= 0)
        return;
    random_direction(&b->random, b->own, dim);
    for (size_t i = 0; i < dim; i++)
        b->vector[i] += noise * (float)M_SQRT2 * b->own[i];
}

static void on_reply(void *owner, uint64_t begun_ns, const redisReply *reply)
{
    struct bench *b = owner;
    bool puts = b->kind == BENCH_FILL || b->kind == BENCH_INSERT;
    const char *word = reply_text(reply_field(reply, puts ? "outcome" : "status"));
    if (!word) {
        b->rc = error_set(b->err, QUIRE_EINVALID, "the server answers: %s", reply->str ? reply->str : "no map");
        return;
    }
    static const char *const wanted[] = {"stored", "miss", "hit", "stored"};
    b->n++;
    b->as_wanted += strcmp(word, wanted[b->kind]) == 0;
    if (b->kind == BENCH_INSERT)
        b->evicted += (uint64_t)fmax(0, reply_real(reply_field(reply, "evicted")));
    histogram_add(&b->timing->h, clock_ns() - begun_ns);
}

static int put_one(struct bench *b)
{
    struct wire_words words;
    uint64_t number = b->next_entry++;
    make_vector(b, number, 0);
    words_begin(&words, "SC.PUT", b->options->cache);
    words_text(&words, "CAT");
    words_text(&words, CATEGORY);
    words_text(&words, "HASH");
    words_count(&words, number);
    words_text(&words, "VEC");
    words_blob(&words, b->vector, b->options->dim * sizeof *b->vector);
    words_text(&words, "VALUE");
    words_blob(&words, b->value, b->options->value_bytes);
    return wire_call(b->wire, &words, on_reply, b, clock_ns());
}

/* The entries that are there are the last --entries of those that were put. */
static int get_one(struct bench *b)
{
    struct wire_words words;
    uint64_t number = b->next_entry - 1 - random_below(&b->random, b->options->entries);
    if (b->kind == BENCH_MISS)
        number = b->first_unused++;
    make_vector(b, number, b->kind == BENCH_HIT ? HIT_NOISE : 0);
    words_begin(&words, "SC.GET", b->options->cache);
    words_text(&words, "CAT");
    words_text(&words, CATEGORY);
    words_text(&words, "VEC");
    words_blob(&words, b->vector, b->options->dim * sizeof *b->vector);
    words_text(&words, "NOLEASE");
    return wire_call(b->wire, &words, on_reply, b, clock_ns());
}

/* ---- a phase ----------------------------------------------------------------------------------------------------- */

static const char *const phases[] = {"fill", "misses", "hits", "inserts"};

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Keeps `under_way` calls going until n_max of them or the time is over, then waits for the rest. */
static int pump(struct bench *b, uint64_t under_way, uint64_t n_max, double seconds, struct cli *cli, double *took)
{
    uint64_t begin = clock_ns(), end = seconds > 0 ? begin + (uint64_t)(seconds * 1e9) : UINT64_MAX, asked = 0;
    int rc = 0;
    b->n = b->as_wanted = b->evicted = 0;
    report_timing_init(b->timing);
    b->cpu_us = cpu_us();
    while (rc == 0 && b->rc == 0) {
        bool over = asked >= n_max || clock_ns() >= end;
        if (over && asked == b->n)
            break;
        for (unsigned i = 0; !over && rc == 0 && i < QUEUE_MAX && asked < n_max && asked - b->n < under_way; i++) {
            bool puts = b->kind == BENCH_FILL || b->kind == BENCH_INSERT;
            rc = puts ? put_one(b) : get_one(b);
            asked++;
        }
        if (rc < 0)
            return error_set(b->err, rc, "no memory for calls");
        /* with calls still to make, only what is there is read */
        bool full = over || asked - b->n >= under_way || asked >= n_max;
        rc = wire_poll(b->wire, full ? POLL_NS : 0, b->err);
        uint64_t done = n_max == UINT64_MAX ? clock_ns() - begin : b->n;
        uint64_t total = n_max == UINT64_MAX ? end - begin : n_max;
        if (rc == 0 && cli_progress(cli, phases[b->kind], done < total ? done : total, total))
            rc = cli_cancelled(b->err);
    }
    *took = (double)(clock_ns() - begin) / 1e9;
    b->cpu_us = cpu_us() - b->cpu_us;
    return rc < 0 ? rc : b->rc;
}

static void put_phase(struct bench *b, struct cli *cli, bool pipelined, double took)
{
    json_t *row = cli_put_row(cli, NULL, "measured");
    cli_put_text(cli, row, "calls", phases[b->kind]);
    cli_put_text(cli, row, "under_way", pipelined ? "pipelined" : "one");
    cli_put_real(cli, row, "per_second", took > 0 ? (double)b->n / took : 0);
    cli_put_real(cli, row, "client_cpu_us", b->n ? b->cpu_us / (double)b->n : 0);
    cli_put_count(cli, row, "as_wanted", b->as_wanted);
    cli_put_count(cli, row, "evicted", b->evicted);
    report_put_timing(cli, row, b->timing);
}

/* The same kind of call at full rate, and one at a time. */
static int measure(struct bench *b, enum bench_kind kind, struct cli *cli)
{
    const struct load_options *o = b->options;
    double took = 0;
    b->kind = kind;
    int rc = pump(b, o->connections * o->depth, UINT64_MAX, o->seconds, cli, &took);
    if (rc < 0)
        return rc;
    put_phase(b, cli, true, took);
    rc = pump(b, 1, UINT64_MAX, o->seconds, cli, &took);
    if (rc == 0)
        put_phase(b, cli, false, took);
    return rc;
}

/* ---- what the server says ---------------------------------------------------------------------------------------- */

/* Resident bytes of a process, from /proc/PID/status. */
static int resident_bytes(uint64_t pid, uint64_t *out, struct quire_error *err)
{
    char path[64], line[256];
    uint64_t kib = 0;
    snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return error_set(err, QUIRE_ENOFILE, "--pid %llu: there is no %s", (unsigned long long)pid, path);
    while (kib == 0 && fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtoull(line + 6, NULL, 10);
    fclose(f);
    *out = kib * 1024;
    return 0;
}

static int put_info(struct bench *b, struct cli *cli)
{
    struct wire_words words;
    redisReply *reply = NULL;
    json_t *info = json_object();
    char *place = NULL;
    words_begin(&words, "INFO", "cache");
    int rc = wire_ask(b->wire, &words, &reply, b->err);
    if (rc == 0 && reply->type == REDIS_REPLY_STRING)
        for (char *line = strtok_r(reply->str, "\r\n", &place); line; line = strtok_r(NULL, "\r\n", &place)) {
            char *colon = strchr(line, ':');
            if (colon && *line != '#') {
                *colon = 0;
                cli_put_text(cli, info, line, colon + 1);
            }
        }
    if (rc == 0)
        freeReplyObject(reply);
    cli_put(cli, NULL, "info_cache", info);
    return rc;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int make_cache(struct bench *b)
{
    const struct load_options *o = b->options;
    struct wire_words words;
    words_begin(&words, "SC.CREATE", o->cache);
    words_text(&words, "DIM");
    words_count(&words, o->dim);
    words_text(&words, "MEMORY");
    words_count(&words, (1ull << 30) + o->entries * (o->dim + 1024));
    words_text(&words, "DISK");
    words_count(&words, (1ull << 30) + 2 * o->entries * (o->value_bytes + 512));
    return wire_do(b->wire, &words, b->err);
}

static int fill(struct bench *b, struct cli *cli)
{
    const struct load_options *o = b->options;
    uint64_t empty = 0, full = 0;
    double took = 0;
    int rc = o->pid ? resident_bytes(o->pid, &empty, b->err) : 0;
    if (rc == 0)
        rc = pump(b, o->connections * o->depth, o->entries, 0, cli, &took);
    if (rc < 0)
        return rc;
    put_phase(b, cli, true, took);
    if (!o->pid)
        return 0;
    rc = resident_bytes(o->pid, &full, b->err);
    cli_put_count(cli, NULL, "resident_bytes_empty", empty);
    cli_put_count(cli, NULL, "resident_bytes_filled", full);
    cli_put_real(cli, NULL, "bytes_per_entry", ((double)full - (double)empty) / (double)o->entries);
    return rc;
}

static int run_bench(struct bench *b, struct cli *cli)
{
    const struct load_options *o = b->options;
    char settings[128];
    cli_put_text(cli, NULL, "experiment", "bench");
    cli_put_count(cli, NULL, "entries", o->entries);
    cli_put_count(cli, NULL, "dim", o->dim);
    cli_put_count(cli, NULL, "value_bytes", o->value_bytes);
    cli_put_count(cli, NULL, "connections", o->connections);
    cli_put_count(cli, NULL, "depth", o->depth);
    int rc = load_set_category(b->wire, o->cache, CATEGORY, SETTINGS, b->err);
    if (rc == 0)
        rc = fill(b, cli);
    if (rc == 0)
        rc = measure(b, BENCH_MISS, cli);
    if (rc == 0)
        rc = measure(b, BENCH_HIT, cli);
    snprintf(settings, sizeof settings, "ENTRIES %llu", (unsigned long long)o->entries);
    if (rc == 0)
        rc = load_set_category(b->wire, o->cache, CATEGORY, settings, b->err);
    if (rc == 0)
        rc = measure(b, BENCH_INSERT, cli);
    return rc == 0 ? put_info(b, cli) : rc;
}

int load_bench(const struct load_options *options, struct cli *cli, struct quire_error *err)
{
    struct bench b = {.options = options, .err = err, .first_unused = 1ull << 40};
    random_init(&b.random, random_mix(options->seed ^ 0xbe9cull));
    bool made = false;
    b.vector = calloc(options->dim, sizeof *b.vector);
    b.own = calloc(options->dim, sizeof *b.own);
    b.basis = calloc(INTRINSIC * options->dim, sizeof *b.basis);
    b.value = malloc(options->value_bytes);
    b.timing = malloc(sizeof *b.timing);
    int rc = 0;
    if (!b.vector || !b.own || !b.basis || !b.value || !b.timing) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a vector and a value");
        goto out;
    }
    memset(b.value, 'x', options->value_bytes);
    for (size_t k = 0; k < INTRINSIC; k++)
        random_direction(&b.random, b.basis + k * options->dim, options->dim);
    rc = wire_open(options, (uint32_t)options->connections, (uint32_t)options->depth, &b.wire, err);
    if (rc == 0)
        rc = make_cache(&b);
    made = rc == 0;
    if (rc == 0)
        rc = run_bench(&b, cli);
out:
    if (made && !options->keep) {
        int dropped = load_drop_cache(b.wire, options->cache, rc < 0 ? NULL : err);
        rc = rc < 0 ? rc : dropped;
    }
    wire_close(b.wire);
    free(b.vector);
    free(b.own);
    free(b.basis);
    free(b.value);
    free(b.timing);
    return rc;
}
