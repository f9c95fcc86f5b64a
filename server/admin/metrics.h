/*
 * metrics.h - /metrics (Prometheus) and /health over HTTP, on a port of their own.
 *
 * Lane 0 serves them; everything here is called on its thread. The port asks for no password: it listens on loopback
 * unless metrics-bind says otherwise, and tells statistics and settings that are numbers, no keys, no data.
 */
#ifndef QUIRE_SERVER_METRICS_H
#define QUIRE_SERVER_METRICS_H

#include "server/call/lane.h"

struct loop;
struct server;

/* Its connections: none before metrics_init, which comes before the lanes start. */
int metrics_init(struct server *server, struct quire_error *err);
void metrics_fini(struct server *server);
/* Accepting, serving and ending them on lane 0; and what /health and LATENCY say of the journal. */
extern const struct lane_hook metrics_hook;
/* The text of /metrics, in the format 0.0.4. */
void metrics_write(struct server *server, struct resp_buffer *text);

#endif
