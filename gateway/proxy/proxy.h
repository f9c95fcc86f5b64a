/*
 * proxy.h - which request is answered how: the gateway's own paths, the cache's routes, and what is passed on.
 *
 * The order for one request (proxy.c): the gateway's own paths (/health, /metrics); a route of the cache; else pass.h.
 */
#ifndef QUIRE_GATEWAY_PROXY_H
#define QUIRE_GATEWAY_PROXY_H

#include "quire.h"
#include <stddef.h>

struct event_base;
struct http_server;
struct proxy;
struct settings;
struct telemetry;

/* Opens everything but the listeners. The settings become the proxy's. */
int proxy_create(struct event_base *base, struct settings *settings, struct proxy **out, struct quire_error *err);
void proxy_destroy(struct proxy *proxy); /* NULL is fine */
/* Listens on what the settings say. */
int proxy_listen(struct proxy *proxy, struct quire_error *err);
/* Puts other settings in force; on failure the old ones stay, and `settings` stays the caller's. */
int proxy_reload(struct proxy *proxy, struct settings *settings, struct quire_error *err);
/* No new connections; `drained` is called when the last request has ended, or was ended by stop-timeout. */
void proxy_stop(struct proxy *proxy, void (*drained)(void *context), void *context);
/* The port of the first listener. */
unsigned proxy_port(const struct proxy *proxy);
/* Where a browser of this machine finds the page (setting ui), once proxy_listen has succeeded. */
void proxy_console_url(const struct proxy *proxy, char *out, size_t out_bytes);

#endif
