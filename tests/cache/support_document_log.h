/*
 * support_document_log.h - a document log with a host that knows which documents it put in, and where they are.
 *
 * Functions fail the running test where the log does what it must not. Not for several threads at once, but for `moved`
 * of the log's thread.
 */
#ifndef QUIRE_TESTS_SUPPORT_DOCUMENT_LOG_H
#define QUIRE_TESTS_SUPPORT_DOCUMENT_LOG_H

#include "cache/document/document_log.h"
#include <pthread.h>

enum { HOST_ROOM = 900, HOST_DOCUMENTS_MAX = 8192 };

struct host_document {
    struct document_at at, durable; /* segment 0: none */
    uint64_t expire_ms;
};

struct doc_host {
    struct io_fs *fs;
    const char *folder;
    struct engine *engine;
    struct document_log *log;
    struct document_log_options options;
    uint64_t now_ms;
    unsigned warnings, moves;
    bool notes_at_once; /* its journal is synced with each move, so that the new place is the durable one */
    pthread_mutex_t lock;
    struct host_document documents[HOST_DOCUMENTS_MAX]; /* by id; 0 is none */
    unsigned n_documents;                               /* the highest id */
};

/* A host on a fault fs with the folder "/docs" and a fault engine. Ended by host_free; the log is closed there where it
 * is open. */
struct doc_host *host_new(void);
void host_free(struct doc_host *host);
/* Opens, adopts what the host knows, begins. Documents that are not there are forgotten; answers how many. */
unsigned host_open(struct doc_host *host);
void host_close(struct doc_host *host);
/* Appends the document of the next id. Returns what appending gave. */
int host_put(struct doc_host *host, uint64_t expire_ms, struct quire_error *err);
void host_put_many(struct doc_host *host, unsigned n, uint64_t expire_ms);
void host_drop(struct doc_host *host, unsigned id);
/* Reads what lies at a place: 0 where it is just what was put in as `id`, QUIRE_ENOTFOUND, QUIRE_ESHORTREAD, QUIRE_EIO,
 * or QUIRE_ECORRUPT where it is damaged. Anything else fails the test. */
int host_read_at(struct doc_host *host, unsigned id, const struct document_at *at);
/* Every document that lives reads back right. */
void host_check(struct doc_host *host);
unsigned host_living(const struct doc_host *host);
/* The log's sync, and then what the host's own journal would do: note all places as durable. */
int host_sync(struct doc_host *host);
struct document_log_stats host_stats(const struct doc_host *host);

#endif
