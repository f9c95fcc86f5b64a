/*
 * service.h - what all lanes share and no socket is part of: keys, store, caches, journal, worker, settings.
 *
 * The host makes it before the lanes start and ends it after they have ended (data.h, fair.h). Its members are set
 * before the first lane serves and stay, except where their own header says otherwise.
 */
#ifndef QUIRE_SERVER_SERVICE_H
#define QUIRE_SERVER_SERVICE_H

#include "cache/core/cache.h"
#include "document/index/documents.h"
#include "index/store/store.h"
#include "server/call/worker.h"
#include "server/keys/gate.h"
#include "server/keys/keyspace.h"
#include "server/process/config.h"
#include "server/process/log.h"

struct cursors;
struct device;
struct fair;
struct keeper;

struct service {
    struct config *config;
    struct log *log;
    struct keyspace keyspace;
    struct store *store;         /* NULL: no data folder */
    struct documents *documents; /* indexes of keys */
    const struct keeper *keeper; /* of those keys, for FT.*: keeper.h */
    struct keyspace_follower follower;
    bool documents_come_later; /* the keeper has them when the folder has been read (data_documents_given) */
    struct cursors *cursors;   /* of FT.AGGREGATE: server/document, which makes and ends them */
    struct caches *caches;     /* of the store; NULL: none */
    bool caches_begun;
    struct cache_scratch *cache_scratch; /* the worker's */
    struct journal *_Atomic journal;     /* writes go to it and replies wait for it, lanes look at it outside the gate
                                          * too; NULL: none. See data_journal_set */
    void (*journal_close)(void *context);
    void *journal_context;
    struct gate gate; /* of the lanes, and the worker behind them */
    struct worker worker;
    struct fair *fair;     /* tenants and their limits */
    struct device *device; /* that helps with exact searches; NULL: none, server/device */
    unsigned n_lanes;
    bool no_priorities; /* threads keep the priority that the process has: where changing it is forbidden */
    /* The host's: what a write of a set with a lineage did (store_host), the same of a cache that tells
     * (caches_options; context is the service), and when the store is open, before it seals or merges anything. NULL:
     * not told. */
    void (*on_effect)(void *context, struct collection *collection, const struct effect *effect);
    void (*on_told)(void *context, struct cache *cache, const struct cache_told *told);
    int (*on_opened)(struct service *service, struct quire_error *err);
    /* The host's: called on the journal's thread when more has become durable, as soon as there is a journal. */
    void (*on_durable)(void *context);
    void *durable_context;
};

/* Has the worker run it, or runs it here where there is no memory to post it. */
void service_run_later(struct service *service, void (*run)(void *argument), void *argument);

#endif
