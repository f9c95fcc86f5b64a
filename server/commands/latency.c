/*
 * latency.c - LATENCY: events over the threshold (HISTORY, LATEST, RESET, GRAPH, DOCTOR) and how long each command
 * takes (HISTOGRAM, from the lanes' statistics).
 *
 * Events: "command" and "fast-command", answered on the lane's thread; "search", a command on vectors from its request
 * to its reply; "sync", a wait for the device to have written. Each keeps 160 samples, of one second the worst, and the
 * worst ever seen until it is reset.
 */
#include "server/commands/latency.h"
#include "io/error.h"
#include "server/access/command_table.h"
#include "server/commands/cmd_clients.h"
#include "server/commands/command.h"
#include "server/net/client.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { LATENCY_EVENTS_MAX = 16, LATENCY_SAMPLES = 160 };

struct latency_sample {
    time_t time;
    uint32_t ms;
};

/* The samples of one event, one per second at most (the worst of it), the oldest overwritten. */
struct latency_event {
    const char *name; /* static text */
    uint32_t worst_ms, n, next;
    struct latency_sample samples[LATENCY_SAMPLES];
};

struct latency {
    pthread_mutex_t lock;
    unsigned n_events;
    struct latency_event events[LATENCY_EVENTS_MAX];
};

int latency_init(struct server *server, struct quire_error *err)
{
    server->latency = calloc(1, sizeof *server->latency);
    if (!server->latency)
        return error_set(err, QUIRE_ENOMEM, "no memory for latencies");
    pthread_mutex_init(&server->latency->lock, NULL);
    return 0;
}

void latency_fini(struct server *server)
{
    if (!server->latency)
        return;
    pthread_mutex_destroy(&server->latency->lock);
    free(server->latency);
}

static struct latency_event *find_event(struct latency *l, const char *name, size_t bytes)
{
    for (unsigned i = 0; i < l->n_events; i++)
        if (strlen(l->events[i].name) == bytes && strncasecmp(l->events[i].name, name, bytes) == 0)
            return &l->events[i];
    return NULL;
}

static void add_sample(struct latency_event *e, uint32_t ms)
{
    time_t now = time(NULL);
    struct latency_sample *last = &e->samples[(e->next + LATENCY_SAMPLES - 1) % LATENCY_SAMPLES];
    e->worst_ms = ms > e->worst_ms ? ms : e->worst_ms;
    if (e->n > 0 && last->time == now) {
        last->ms = ms > last->ms ? ms : last->ms;
        return;
    }
    e->samples[e->next] = (struct latency_sample){now, ms};
    e->next = (e->next + 1) % LATENCY_SAMPLES;
    e->n += e->n < LATENCY_SAMPLES;
}

void latency_add(struct server *server, const char *name, uint64_t us)
{
    struct latency *l = server->latency;
    uint64_t threshold = server->service.config->latency_ms, ms = us / 1000;
    if (threshold == 0 || ms < threshold)
        return;
    pthread_mutex_lock(&l->lock);
    struct latency_event *e = find_event(l, name, strlen(name));
    if (!e && l->n_events < LATENCY_EVENTS_MAX) {
        e = &l->events[l->n_events++];
        *e = (struct latency_event){.name = name};
    }
    if (e)
        add_sample(e, ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms);
    pthread_mutex_unlock(&l->lock);
}

/* The samples of an event, oldest first, copied; 0 where there is none. */
static uint32_t copy_samples(struct latency *l, struct resp_arg name, struct latency_event *out,
                             struct latency_sample samples[LATENCY_SAMPLES])
{
    uint32_t n = 0;
    pthread_mutex_lock(&l->lock);
    const struct latency_event *e = find_event(l, (const char *)name.data, name.bytes);
    for (n = 0; e && n < e->n; n++)
        samples[n] = e->samples[(e->next + LATENCY_SAMPLES - e->n + n) % LATENCY_SAMPLES];
    if (e)
        *out = *e;
    pthread_mutex_unlock(&l->lock);
    return n;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

void latency_history(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct latency_sample samples[LATENCY_SAMPLES];
    struct latency_event event;
    (void)n;
    uint32_t count = copy_samples(c->loop->server->latency, args[2], &event, samples);
    struct resp_buffer *out = client_reply(c);
    resp_array(out, count);
    for (uint32_t i = 0; i < count; i++) {
        resp_array(out, 2);
        resp_integer(out, (long long)samples[i].time);
        resp_integer(out, samples[i].ms);
    }
}

void latency_latest(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct latency *l = c->loop->server->latency;
    struct resp_buffer *out = client_reply(c);
    (void)args;
    (void)n;
    pthread_mutex_lock(&l->lock);
    resp_array(out, l->n_events);
    for (unsigned i = 0; i < l->n_events; i++) {
        const struct latency_event *e = &l->events[i];
        const struct latency_sample *last = &e->samples[(e->next + LATENCY_SAMPLES - 1) % LATENCY_SAMPLES];
        resp_array(out, 4);
        resp_text(out, e->name);
        resp_integer(out, (long long)last->time);
        resp_integer(out, last->ms);
        resp_integer(out, e->worst_ms);
    }
    pthread_mutex_unlock(&l->lock);
}

void latency_reset(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct latency *l = c->loop->server->latency;
    long long removed = 0;
    pthread_mutex_lock(&l->lock);
    if (n == 2) {
        removed = l->n_events;
        l->n_events = 0;
    }
    for (uint32_t i = 2; i < n; i++) {
        struct latency_event *e = find_event(l, (const char *)args[i].data, args[i].bytes);
        if (!e)
            continue;
        *e = l->events[--l->n_events];
        removed++;
    }
    pthread_mutex_unlock(&l->lock);
    resp_integer(client_reply(c), removed);
}

enum { GRAPH_ROWS = 4, GRAPH_COLUMNS = 80, AGE_ROWS = 4 };

/* How long ago, in few letters: "42s", "7m", "3h", "9d". */
static void write_age(time_t seconds, char text[16])
{
    unsigned s = seconds < 0 ? 0 : (unsigned)seconds;
    unsigned value = s < 60 ? s : s < 3600 ? s / 60 : s < 86400 ? s / 3600 : s / 86400;
    snprintf(text, 16, "%u%c", value, s < 60 ? 's' : s < 3600 ? 'm' : s < 86400 ? 'h' : 'd');
}

/* A column per sample: its height between the least and the greatest, its age below, read downwards. */
static void draw_graph(const struct latency_sample *samples, uint32_t n, uint32_t low, uint32_t high,
                       struct resp_buffer *text)
{
    time_t now = time(NULL);
    for (int row = GRAPH_ROWS - 1; row >= -AGE_ROWS; row--) {
        char line[GRAPH_COLUMNS + 1];
        for (uint32_t i = 0; i < n; i++) {
            double height = high > low ? (double)(samples[i].ms - low) / (double)(high - low) * GRAPH_ROWS : GRAPH_ROWS;
            int top = height >= GRAPH_ROWS ? GRAPH_ROWS - 1 : (int)height;
            char age[16] = "";
            write_age(now - samples[i].time, age);
            if (row >= 0)
                line[i] = row == top ? (row == GRAPH_ROWS - 1 ? '#' : 'o') : row < top ? '|' : row == 0 ? '_' : ' ';
            else
                line[i] = (size_t)(-row - 1) < strlen(age) ? age[-row - 1] : ' ';
        }
        line[n] = '\n';
        resp_raw(text, line, n + 1);
    }
}

void latency_graph(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct latency_sample samples[LATENCY_SAMPLES];
    struct latency_event event;
    struct resp_buffer text = {.protocol = 2};
    char head[200];
    (void)n;
    uint32_t count = copy_samples(c->loop->server->latency, args[2], &event, samples);
    if (count == 0) {
        caller_error(&c->caller, "ERR No samples available for event '%.*s'", ARG_SHOWN(args[2], 64u));
        return;
    }
    uint32_t skip = count > GRAPH_COLUMNS ? count - GRAPH_COLUMNS : 0, low = UINT32_MAX, high = 0;
    for (uint32_t i = skip; i < count; i++) {
        low = samples[i].ms < low ? samples[i].ms : low;
        high = samples[i].ms > high ? samples[i].ms : high;
    }
    int bytes = snprintf(head, sizeof head, "%s - high %u ms, low %u ms (all time high %u ms)\n", event.name, high, low,
                         event.worst_ms);
    resp_raw(&text, head, (size_t)bytes);
    memset(head, '-', GRAPH_COLUMNS);
    head[GRAPH_COLUMNS] = '\n';
    resp_raw(&text, head, GRAPH_COLUMNS + 1);
    draw_graph(samples + skip, count - skip, low, high, &text);
    resp_verbatim(client_reply(c), (const char *)text.data, text.bytes);
    resp_buffer_fini(&text);
}

static const char *advice_for(const char *event)
{
    if (strcmp(event, "search") == 0)
        return "searches wait for the device or for each other: compare reads_per_search and reads_waiting of INFO "
               "quire with what `quire probe` says of the device; more index-memory or lanes may help";
    if (strcmp(event, "sync") == 0)
        return "the device takes long to confirm a write: look at what else writes to it";
    return "a command kept its lane busy: SLOWLOG GET names it; everything else on that lane waited";
}

void latency_doctor(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    static const char off[] = "latency-monitor-threshold is 0: nothing is recorded. CONFIG SET "
                              "latency-monitor-threshold <milliseconds> begins.\n";
    static const char calm[] = "Nothing took longer than latency-monitor-threshold.\n";
    struct latency *l = c->loop->server->latency;
    struct resp_buffer text = {.protocol = 2};
    (void)args;
    (void)n;
    pthread_mutex_lock(&l->lock);
    for (unsigned i = 0; i < l->n_events; i++) {
        const struct latency_event *e = &l->events[i];
        char line[600];
        uint64_t sum = 0;
        for (uint32_t k = 0; k < e->n; k++)
            sum += e->samples[k].ms;
        int bytes = snprintf(line, sizeof line, "%s: %u samples, mean %llu ms, worst %u ms: %s.\n", e->name, e->n,
                             (unsigned long long)(e->n ? sum / e->n : 0), e->worst_ms, advice_for(e->name));
        resp_raw(&text, line, (size_t)bytes);
    }
    pthread_mutex_unlock(&l->lock);
    if (text.bytes == 0 && c->loop->server->service.config->latency_ms == 0)
        resp_raw(&text, off, sizeof off - 1);
    else if (text.bytes == 0)
        resp_raw(&text, calm, sizeof calm - 1);
    resp_verbatim(client_reply(c), (const char *)text.data, text.bytes);
    resp_buffer_fini(&text);
}

/* ---- HISTOGRAM --------------------------------------------------------------------------------------------------- */

enum { POWERS = ROW_BITS + 1 };

/* How many calls of a row took less than 2^i us, where that changes. */
static void put_histogram(struct resp_buffer *out, const struct server *server, unsigned row)
{
    uint64_t below[POWERS] = {0};
    unsigned n = 0;
    for (unsigned i = 0; i < POWERS; i++) {
        for (unsigned lane = 0; lane < server->service.n_lanes; lane++)
            below[i] += histogram_below(&server->loops[lane].lane.stats.commands_by_row[row].latency, 1ull << i);
        n += below[i] > (i ? below[i - 1] : 0);
    }
    resp_text(out, commands[row].name);
    resp_map(out, 2);
    resp_field(out, "calls", (long long)below[POWERS - 1]);
    resp_text(out, "histogram_usec");
    resp_map(out, n);
    for (unsigned i = 0; i < POWERS; i++)
        if (below[i] > (i ? below[i - 1] : 0)) {
            resp_integer(out, 1ll << i);
            resp_integer(out, (long long)below[i]);
        }
}

static bool is_wanted(const struct server *server, unsigned row, const struct resp_arg *names, uint32_t n)
{
    bool named = n == 0;
    for (uint32_t i = 0; i < n && !named; i++) {
        int found = command_find(names[i].data, names[i].bytes);
        named = found >= 0 && (row == (unsigned)found || command_is_sub(&commands[row], &commands[found]));
    }
    uint64_t calls = 0;
    for (unsigned i = 0; i < server->service.n_lanes && named; i++)
        calls += histogram_count(&server->loops[i].lane.stats.commands_by_row[row].latency);
    return calls > 0;
}

void latency_histogram(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    const struct server *server = c->loop->server;
    bool wanted[COMMANDS_MAX] = {false};
    unsigned count = 0;
    for (unsigned row = 0; row < n_commands; row++)
        count += wanted[row] = is_wanted(server, row, args + 2, n - 2);
    struct resp_buffer *out = client_reply(c);
    resp_map(out, count);
    for (unsigned row = 0; row < n_commands; row++)
        if (wanted[row])
            put_histogram(out, server, row);
}
