/*
 * journal_fork.c - the journal around a fork of its process.
 *
 * A child has the forking thread alone: a lock that another thread held stays locked there, and a condition that others
 * wait for can never be signalled again (glibc's broadcast waits for waiters of the round before, and they are not
 * there). So the fork is made with the lock held, and the child makes its conditions anew. That it is made between
 * batches is for what the child reads: no half of one.
 */
#include "io/error.h"
#include "io/journal_priv.h"
#include "io/lock.h"
#include <assert.h>

void journal_fork_quiesce(struct journal *j)
{
    if (!journal_in_batch(j))
        journal_quiesce_begin(j);
}

void journal_fork_prepare(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->fork_in_batch = journal_in_batch(j);
    assert(j->fork_in_batch || (j->quiesced && j->batches == 0));
}

void journal_fork_parent(struct journal *j)
{
    assert(lock_is_held(&j->lock));
    bool quiesced = !j->fork_in_batch;
    pthread_mutex_unlock(&j->lock);
    if (quiesced)
        journal_quiesce_end(j);
}

void journal_fork_child(struct journal *j)
{
    assert(lock_is_held(&j->lock));
    error_set(&j->failure, QUIRE_ECLOSED,
              "the journal in %s is written by the process that opened it, and this is a child of it", j->folder);
    atomic_store(&j->health, QUIRE_ECLOSED);
    if (!j->fork_in_batch)
        j->quiesced = false;
    pthread_cond_init(&j->work, NULL);
    pthread_cond_init(&j->jobs, NULL);
    pthread_cond_init(&j->changed, NULL);
    pthread_mutex_unlock(&j->lock);
}
