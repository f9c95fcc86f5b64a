/* data.h - the server's data folder: opened at start, its keys bound to their collections, closed in the end. */
#ifndef QUIRE_SERVER_DATA_H
#define QUIRE_SERVER_DATA_H

#include "server/net/server_priv.h"

/* Opens `dir`, reads keys and collections, and has writes logged from then on. Nothing with dir "". Before the lanes
 * start. */
int data_open(struct server *server, struct quire_error *err);
/* Adds an index made offline to the set under a key, or makes the set. Blocks: at start, or on the worker. */
int data_adopt(struct server *server, struct resp_arg key, const char *path, uint64_t memory_bytes, uint64_t *lsn,
               struct quire_error *err);
/* What the setting `load` names; keys that are there already are left as they are. */
int data_load(struct server *server, struct quire_error *err);

#endif
