/*
 * latency.h - LATENCY: when what took longer than latency-monitor-threshold, by the name of the event.
 *
 * One account for the server under a lock: events are rare by definition.
 */
#ifndef QUIRE_SERVER_LATENCY_H
#define QUIRE_SERVER_LATENCY_H

#include "quire.h"
#include <stdint.h>

struct server;

/* The account of a server: made before its lanes start. */
int latency_init(struct server *server, struct quire_error *err);
void latency_fini(struct server *server);
/* An event took `us`; kept where that reaches latency-monitor-threshold. The name is static text: "command",
 * "fast-command", "search", "sync". From any thread. */
void latency_add(struct server *server, const char *name, uint64_t us);

#endif
