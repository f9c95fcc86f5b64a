/*
 * latency.h - LATENCY: when what took longer than latency-monitor-threshold, by the name of the event.
 *
 * One account for the server under a lock: events are rare by definition.
 */
#ifndef QUIRE_SERVER_LATENCY_H
#define QUIRE_SERVER_LATENCY_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

struct server;

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

/* An event took `us`; kept where that reaches latency-monitor-threshold. The name is static text: "command",
 * "fast-command", "search", "sync". From any thread. */
void latency_add(struct server *server, const char *name, uint64_t us);

#endif
