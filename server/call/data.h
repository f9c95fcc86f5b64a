/* data.h - the server's data folder: opened at start, its keys bound to their collections, closed in the end. */
#ifndef QUIRE_SERVER_DATA_H
#define QUIRE_SERVER_DATA_H

#include "server/call/service.h"

/* Opens `dir`, reads keys and collections, and has writes logged from then on. Nothing with dir "". Before the lanes
 * start. */
int data_open(struct service *service, struct quire_error *err);
/* With documents_come_later: every document has been given to the indexes since began_us; the keeper tells them of
 * changes from now on. */
int data_documents_given(struct service *service, uint64_t began_us, struct quire_error *err);
/* Adds an index made offline to the set under a key, or makes the set. resolved: as of store_import_begin. Blocks: at
 * start, or on the worker. */
int data_adopt(struct service *service, struct resp_arg key, const char *path, bool resolved, uint64_t memory_bytes,
               uint64_t *lsn, struct quire_error *err);
/* What the setting `load` names; keys that are there already are left as they are. */
int data_load(struct service *service, struct quire_error *err);

/* The journal that writes go to and replies wait for, before the lanes start. close(context) ends it, once, in
 * data_close when keys were freed. */
void data_journal_set(struct service *service, struct journal *journal, void (*close)(void *context), void *context);
/* When lanes and worker have ended: caches end, keys are freed, the store and with it the journal is closed. Also where
 * data_open failed or was not called. */
void data_close(struct service *service);

#endif
