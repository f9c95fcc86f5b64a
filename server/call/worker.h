/* worker.h - one thread for what may block: jobs run in the order in which they were posted. */
#ifndef QUIRE_SERVER_WORKER_H
#define QUIRE_SERVER_WORKER_H

#include "quire.h"
#include <pthread.h>

/* Runs once on the worker's thread. */
struct job {
    struct job *next;
    void (*run)(struct job *job);
};

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ready;
    struct job *first, *last;
    bool started, stopping;
};

int worker_start(struct worker *worker, struct quire_error *err);
/* Before worker_start and after worker_stop the job runs at once. */
void worker_post(struct worker *worker, struct job *job);
/* A job that would post itself again ends instead. */
bool worker_is_stopping(struct worker *worker);
/* Runs what was posted, then ends the thread. */
void worker_stop(struct worker *worker);

#endif
