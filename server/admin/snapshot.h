/*
 * snapshot.h - SAVE and BGSAVE: copies of the data folder below `snapshot-dir`, by hard links, while clients write; and
 * BGREWRITEAOF: a checkpoint, after which the log begins anew.
 *
 * A snapshot is a folder <UTC>-<LSN>, such as 20261121T190512Z-4711, that holds every write up to that LSN and none
 * behind it. It is a data folder like any other. Made on the worker's thread, one after the other.
 */
#ifndef QUIRE_SERVER_SNAPSHOT_H
#define QUIRE_SERVER_SNAPSHOT_H

#include "quire.h"
#include <pthread.h>

struct server;
struct resp_buffer;

struct snapshots {
    pthread_mutex_t lock;
    unsigned running; /* that were asked for and are not done */
    uint64_t begun_s; /* wall clock, of the one that is being made; 0: none */
    uint64_t last_s;  /* of the last that succeeded; of the start before the first */
    int64_t seconds;  /* that the last one took; -1: there was none */
    uint64_t lsn, saves;
    bool failed; /* the last one has */
    /* of the checkpoints that BGREWRITEAOF asks for */
    bool rewriting;          /* one was asked for and is not written yet */
    bool rewrite_failed;     /* the last one has */
    int64_t rewrite_seconds; /* that the last one took; -1: there was none */
};

/* After the data folder was opened. */
int snapshots_init(struct server *server, struct quire_error *err);
void snapshots_fini(struct server *server);

#endif
