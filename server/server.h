/*
 * server.h - quire-server as an object: create, serve, stop. The program (tools/server_main.c) adds signals and the
 * pidfile.
 */
#ifndef QUIRE_SERVER_SERVER_H
#define QUIRE_SERVER_SERVER_H

#include "server/process/config.h"
#include "server/process/log.h"

struct server;

/* Listens, loads what `load` names, starts the lanes. config and log are the caller's and live as long as the server;
 * maxclients is lowered (and logged) where the process may not open enough files. Errors: QUIRE_EADDRINUSE, EPERM
 * (also: protected mode), EINVALID (addresses), whatever opening an index gives. */
int server_create(struct config *config, struct log *log, struct server **out, struct quire_error *err);
/* The port of the first listening socket: `port`, or `tls-port` where that is the only one. */
unsigned server_port(const struct server *server);
/* Becomes readable when a client asked for SHUTDOWN. */
int server_stop_fd(const struct server *server);
/* Whether every lane has gone round its loop within two seconds (it does ten times a second when idle). */
bool server_is_alive(const struct server *server);
/* Graceful: no new clients or requests, replies under way are sent (at most shutdown-timeout), then everything ends. */
void server_destroy(struct server *server);

#endif
