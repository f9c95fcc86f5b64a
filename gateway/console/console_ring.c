/*
 * console_ring.c - what was: a point for each second of ten minutes and for each minute of a day, in memory.
 *
 * The gateway's own figures are counted as requests end. Those of the server come by one INFO a second on a connection
 * of the gateway's user; where that is refused or away, they are not known (NaN here, null in JSON). Counts are kept as
 * what an interval added, gauges as what they were at its end.
 */
#include "gateway/console/console_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS     600u
#define MINUTES     1440u
#define INFO_MS     900u
#define BUCKETS     96u
#define BUCKET_US   100.0 /* the first; each is a quarter of an octave wide */
#define PER_OCTAVE  4.0
#define FIELDS_OWN  15u /* counts of the gateway, from REQUESTS on */
#define KINDS_KNOWN 8u

enum field {
    TIME,
    REQUESTS,
    JOINED,
    ERRORS,
    KINDS, /* hit and the rest, in the order of kinds[] */
    TOKENS_SAVED = KINDS + KINDS_KNOWN + 1,
    JUDGE_CALLS,
    JUDGE_TOKENS,
    FIRST, /* first byte: hit p50, p99, miss p50, p99 */
    CONNECTIONS = FIRST + 4,
    UPSTREAM_ERRORS,
    ENCODER_ERRORS,
    SERVER,
    SERVER_FIELDS = 17,
    FIELDS = SERVER + SERVER_FIELDS
};

static const char *const names[FIELDS] = {"time_ms",
                                          "requests",
                                          "joined",
                                          "errors",
                                          "hit",
                                          "exact",
                                          "stale",
                                          "miss",
                                          "negative",
                                          "bypass",
                                          "audit",
                                          "down",
                                          "other",
                                          "tokens_saved",
                                          "judge_calls",
                                          "judge_tokens",
                                          "first_hit_p50_ms",
                                          "first_hit_p99_ms",
                                          "first_miss_p50_ms",
                                          "first_miss_p99_ms",
                                          "connections",
                                          "upstream_errors",
                                          "encoder_errors",
                                          "cache_requests",
                                          "cache_hits",
                                          "cache_tokens_saved",
                                          "cache_llm_seconds_saved",
                                          "cache_cost_saved",
                                          "cache_entries",
                                          "cache_memory_bytes",
                                          "cache_disk_bytes",
                                          "commands",
                                          "searches",
                                          "search_reads",
                                          "device_reads",
                                          "search_p99_us",
                                          "clients",
                                          "memory_bytes",
                                          "merges",
                                          "seals"};
static const char *const kinds[KINDS_KNOWN] = {"hit", "exact", "stale", "miss", "negative", "bypass", "audit", "down"};

/* Fields of INFO, in the order of names[] from SERVER on. */
static const struct {
    const char *line; /* "\nname:" and what stands before the number */
    double scale;
    bool is_count;
} lines[SERVER_FIELDS] = {{"\ncache_requests:", 1, true},
                          {"\ncache_hits:", 1, true},
                          {"\ncache_tokens_saved:", 1, true},
                          {"\ncache_llm_ms_saved:", 0.001, true},
                          {"\ncache_cost_saved:", 1, true},
                          {"\ncache_entries:", 1, false},
                          {"\ncache_memory_bytes:", 1, false},
                          {"\ncache_disk_bytes:", 1, false},
                          {"\ntotal_commands_processed:", 1, true},
                          {"\nsearches:", 1, true},
                          {"\nsearch_reads:", 1, true},
                          {"\ndevice_reads:", 1, true},
                          {"\nsearch_latency_us:", 1, false}, /* p50=..,p99=.. */
                          {"\nconnected_clients:", 1, false},
                          {"\nused_memory_rss:", 1, false},
                          {"\nmerges:", 1, true},
                          {"\nseals:", 1, true}};

/* Of one interval that goes on. */
struct sums {
    double own[FIELDS_OWN];
    uint32_t first[2][BUCKETS];   /* of hits, of the others */
    uint64_t failures[2];         /* of upstreams and the encoder, at its begin */
    double before[SERVER_FIELDS]; /* the server's figures at its begin; NaN: not known */
};

struct console_ring {
    struct console *console;
    struct sc_client *client;
    struct sc_call *call;
    struct event tick;
    struct sums second, minute;
    uint64_t n_seconds, n_minutes; /* points ever made */
    double seconds[SECONDS][FIELDS], minutes[MINUTES][FIELDS];
};

/* ---- counting ---- */

static unsigned bucket_of(uint64_t us)
{
    double at = us > 0 ? floor(log2((double)us / BUCKET_US) * PER_OCTAVE) : 0;
    return at < 0 ? 0 : at >= BUCKETS ? BUCKETS - 1 : (unsigned)at;
}

static void count(struct sums *sums, const struct http_request *r, const struct console_request *end)
{
    const char *cache = end->cache ? end->cache : "";
    unsigned kind = 0;
    while (kind < KINDS_KNOWN && strcmp(cache, kinds[kind]) != 0)
        kind++;
    sums->own[0]++;
    sums->own[JOINED - REQUESTS] += end->joined;
    sums->own[ERRORS - REQUESTS] += http_status(r) >= 500;
    sums->own[KINDS - REQUESTS + kind]++;
    sums->own[TOKENS_SAVED - REQUESTS] += (double)end->tokens_saved;
    if (kind < KINDS_KNOWN && http_first_byte_us(r) > http_began_us(r))
        sums->first[kind > 2][bucket_of(http_first_byte_us(r) - http_began_us(r))]++;
}

void console_ring_count(struct console_ring *ring, const struct http_request *r, const struct console_request *end)
{
    count(&ring->second, r, end);
    count(&ring->minute, r, end);
}

struct sc_client *console_ring_client(const struct console_ring *ring)
{
    return ring->client;
}

void console_ring_judged(struct console_ring *ring, uint64_t tokens)
{
    struct sums *both[2] = {&ring->second, &ring->minute};
    for (unsigned i = 0; i < 2; i++) {
        both[i]->own[JUDGE_CALLS - REQUESTS]++;
        both[i]->own[JUDGE_TOKENS - REQUESTS] += (double)tokens;
    }
}

/* In ms; NaN without any. */
static double percentile(const uint32_t *buckets, double share)
{
    uint64_t all = 0, so_far = 0;
    for (unsigned i = 0; i < BUCKETS; i++)
        all += buckets[i];
    if (all == 0)
        return NAN;
    for (unsigned i = 0; i < BUCKETS; i++) {
        so_far += buckets[i];
        if ((double)so_far >= share * (double)all)
            return BUCKET_US * exp2((i + 0.5) / PER_OCTAVE) / 1000;
    }
    return NAN;
}

/* ---- the server's figures ---- */

static void read_info(const char *text, double *out)
{
    for (unsigned i = 0; i < SERVER_FIELDS; i++) {
        const char *at = text ? strstr(text, lines[i].line) : NULL;
        at = at ? at + strlen(lines[i].line) : NULL;
        if (at && *at == 'p') /* of percentiles the second */
            at = (at = strstr(at, ",p99=")) ? at + 5 : NULL;
        out[i] = at ? strtod(at, NULL) * lines[i].scale : NAN;
    }
}

/* ---- points ---- */

static void make_point(struct console_ring *ring, struct sums *sums, const double *server, double *point)
{
    const struct console_options *options = &ring->console->options;
    point[TIME] = (double)clock_wall_ms();
    memcpy(point + REQUESTS, sums->own, sizeof sums->own);
    for (unsigned k = 0; k < 2; k++) {
        point[FIRST + 2 * k] = percentile(sums->first[k], 0.5);
        point[FIRST + 2 * k + 1] = percentile(sums->first[k], 0.99);
    }
    point[CONNECTIONS] = options->connections(options->context);
    uint64_t failures[2];
    options->failures(options->context, &failures[0], &failures[1]);
    for (unsigned k = 0; k < 2; k++) /* fewer: an upstream went with its count when settings were read again */
        point[UPSTREAM_ERRORS + k] = failures[k] > sums->failures[k] ? (double)(failures[k] - sums->failures[k]) : 0;
    for (unsigned i = 0; i < SERVER_FIELDS; i++) {
        double added = server[i] - sums->before[i];
        /* a smaller count: the server began anew */
        point[SERVER + i] = !lines[i].is_count ? server[i] : added < 0 ? server[i] : added;
    }
    *sums = (struct sums){0};
    memcpy(sums->before, server, sizeof sums->before);
    memcpy(sums->failures, failures, sizeof sums->failures);
}

static void make_points(struct console_ring *ring, const char *info)
{
    double server[SERVER_FIELDS];
    read_info(info, server);
    make_point(ring, &ring->second, server, ring->seconds[ring->n_seconds++ % SECONDS]);
    if (ring->n_seconds % 60 == 0)
        make_point(ring, &ring->minute, server, ring->minutes[ring->n_minutes++ % MINUTES]);
}

static void on_info(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct console_ring *ring = context;
    char *text = outcome == SC_REPLY ? malloc((size_t)reply->len + 1) : NULL;
    (void)why;
    ring->call = NULL;
    if (text) {
        memcpy(text, reply->str, (size_t)reply->len);
        text[reply->len] = 0;
    }
    make_points(ring, text);
    free(text);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    static const char *const words[] = {"INFO", "clients", "memory", "stats", "quire", "cache"};
    static const size_t bytes[] = {4, 7, 6, 5, 5, 5};
    struct console_ring *ring = context;
    (void)fd;
    (void)what;
    if (ring->call)
        return; /* the loop was late, and so is the point */
    ring->call = sc_call(ring->client, 6, words, bytes, INFO_MS, on_info, ring);
    if (!ring->call)
        make_points(ring, NULL);
}

int console_ring_create(struct console *console, struct console_ring **out, struct quire_error *err)
{
    const struct settings *s = console->settings;
    struct sc_options options = console_server_options(console);
    struct timeval second = {.tv_sec = 1};
    struct console_ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return error_set(err, QUIRE_ENOMEM, "no memory for the console's figures");
    ring->console = console;
    read_info(NULL, ring->second.before);
    read_info(NULL, ring->minute.before);
    options.user = *s->server_user ? s->server_user : NULL;
    options.password = *s->server_password ? s->server_password : NULL;
    event_assign(&ring->tick, console->base, -1, EV_PERSIST, on_tick, ring);
    int rc = sc_client_create(console->base, &options, &ring->client, err);
    if (rc == 0 && event_add(&ring->tick, &second) != 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a timer");
    if (rc < 0) {
        console_ring_destroy(ring);
        return rc;
    }
    *out = ring;
    return 0;
}

void console_ring_destroy(struct console_ring *ring)
{
    if (!ring)
        return;
    event_del(&ring->tick);
    sc_client_destroy(ring->client);
    free(ring);
}

/* ---- reading ---- */

static json_t *point_json(const double *point)
{
    json_t *row = json_array();
    for (unsigned i = 0; i < FIELDS; i++) {
        bool whole = isfinite(point[i]) && point[i] == floor(point[i]) && fabs(point[i]) < 1e15;
        json_array_append_new(row, whole                ? json_integer((json_int_t)point[i])
                                   : isfinite(point[i]) ? json_real(point[i])
                                                        : json_null());
    }
    return row;
}

json_t *console_ring_json(const struct console_ring *ring, bool minutes, uint64_t since_ms)
{
    uint64_t n = minutes ? ring->n_minutes : ring->n_seconds, size = minutes ? MINUTES : SECONDS;
    json_t *points = json_array(), *fields = json_array();
    for (unsigned i = 0; i < FIELDS; i++)
        json_array_append_new(fields, json_string(names[i]));
    for (uint64_t i = n > size ? n - size : 0; i < n; i++) {
        const double *point = minutes ? ring->minutes[i % size] : ring->seconds[i % size];
        if (point[TIME] > (double)since_ms)
            json_array_append_new(points, point_json(point));
    }
    return json_pack("{s:i, s:I, s:o, s:o}", "resolution_ms", minutes ? 60000 : 1000, "now_ms",
                     (json_int_t)clock_wall_ms(), "fields", fields, "points", points);
}
