/*
 * metrics.h - /metrics (Prometheus) and /health over HTTP, on a port of their own.
 *
 * Lane 0 serves them; everything here is called on its thread. The port asks for no password: it listens on loopback
 * unless metrics-bind says otherwise, and tells figures and settings that are numbers, no keys, no data.
 */
#ifndef QUIRE_SERVER_METRICS_H
#define QUIRE_SERVER_METRICS_H

#include "io/engine.h"
#include "server/protocol/resp.h"

struct lane;
struct server;
struct http_client;

enum { METRICS_LISTENERS_MAX = 32 };

struct metrics {
    int listeners[METRICS_LISTENERS_MAX];
    unsigned n_listeners, port;
    struct io_op accepts[METRICS_LISTENERS_MAX];
    bool accepting[METRICS_LISTENERS_MAX];
    struct http_client *clients;
    unsigned n_clients;
};

/* Begins to accept, and begins again where that has ended. */
void metrics_accept(struct lane *lane);
/* Ends those whose time is over; with all: everybody, for the stop. */
void metrics_scan(struct lane *lane, bool all);
/* Whether somebody is still connected. */
bool metrics_busy(const struct lane *lane);
/* The text of /metrics, in the format 0.0.4. */
void metrics_write(struct server *server, struct resp_buffer *text);

#endif
