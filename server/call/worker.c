/*
 * worker.c - one thread for what may block: opening and closing indexes.
 *
 * Lanes never open files or unmap gigabytes themselves; they post a job and answer when its message comes back. One
 * thread is enough: opens are bound by the device, and two at once would only share it.
 */
#include "io/error.h"
#include "server/call/caller.h"
#include <string.h>

static void *work(void *context)
{
    struct worker *w = context;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct job *job = w->first;
        if (job) {
            w->first = job->next;
            pthread_mutex_unlock(&w->lock);
            job->run(job);
            pthread_mutex_lock(&w->lock);
        } else if (w->stopping) {
            break;
        } else {
            pthread_cond_wait(&w->ready, &w->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int worker_start(struct worker *w, struct quire_error *err)
{
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->ready, NULL);
    int errnum = pthread_create(&w->thread, NULL, work, w);
    if (errnum)
        return error_set_errno(err, errnum, "start", "the worker thread");
    w->started = true;
    return 0;
}

void worker_post(struct worker *w, struct job *job)
{
    job->next = NULL;
    if (!w->started) {
        job->run(job);
        return;
    }
    pthread_mutex_lock(&w->lock);
    if (w->first)
        w->last->next = job;
    else
        w->first = job;
    w->last = job;
    pthread_cond_signal(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

bool worker_is_stopping(struct worker *w)
{
    if (!w->started)
        return false;
    pthread_mutex_lock(&w->lock);
    bool stopping = w->stopping;
    pthread_mutex_unlock(&w->lock);
    return stopping;
}

void worker_stop(struct worker *w)
{
    if (!w->started)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->ready);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->ready);
    w->started = false;
}
