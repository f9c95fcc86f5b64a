/*
 * journal_job.c - the slow work on log files: syncs, the beginning of a log and the end of the one before it.
 *
 * One job runs at a time. It has a copy of what it needs, touches the disk without the lock, and enters its outcome
 * under it; the writer (journal_writer.c) goes on meanwhile. What may be looked at without the lock: frames that are
 * written, and needed as long as the job runs (kept_lsn, synced_lsn); the headers of those, which the writer is done
 * with; and next_log and old_log, which are the job's while it prepares the one and ends the other.
 *
 * A log takes the place of another in three parts, so that the writer never waits for a sync:
 *   prepare   all that is written so far is synced (up to LSN x); log-(x+1) is made under its temporary name, with the
 *             frames that were written to the old log meanwhile, and synced
 *   switch    the writer adds those that came since then, renames the file, and writes to it from now on
 *   publish   the folder and the new log are synced; then the old log is cut behind x, ended, and synced
 * A process that is killed leaves all it has written under one of the two names at each moment. A power cut leaves the
 * old log whole up to x, and behind it what it has, in the old log or in the new one.
 */
#include "io/clock.h"
#include "io/error.h"
#include "io/journal_priv.h"
#include "io/lock.h"
#include <assert.h>

/* All up to `lsn` is durable. */
static void mark_synced(struct journal *j, uint64_t lsn)
{
    assert(lock_is_held(&j->lock));
    assert(lsn >= atomic_load(&j->synced_lsn) && lsn <= j->written_lsn);
    atomic_store(&j->synced_lsn, lsn);
    journal_release_done(j);
}

/* (lock, given up meanwhile) */
static int sync_frames(struct journal *j, struct log_out *out)
{
    struct job *job = &j->job;
    if (job->lsn == atomic_load(&j->synced_lsn))
        return 0;
    pthread_mutex_unlock(&j->lock);
    int rc = journal_log_sync(j, out, &job->log, &job->err);
    pthread_mutex_lock(&j->lock);
    if (rc == 0) {
        mark_synced(j, job->lsn);
        pthread_cond_broadcast(&j->changed);
    }
    return rc;
}

static int prepare(struct journal *j, struct log_out *out)
{
    struct job *job = &j->job;
    struct log_file log = {.first_lsn = job->lsn + 1};
    struct frame *from = NULL, *last = NULL;
    int rc = sync_frames(j, out);
    if (rc < 0)
        return rc;
    for (struct frame *f = j->first; f != j->unwritten; f = f->next)
        if (f->lsn > job->lsn) {
            from = from ? from : f;
            last = f;
        }
    assert(!from || (from->lsn == job->lsn + 1 && last->lsn == j->written_lsn));
    pthread_mutex_unlock(&j->lock);
    rc = journal_log_prepare(j, out, &log, from, last, &job->err);
    pthread_mutex_lock(&j->lock);
    if (rc == 0) {
        j->next_lsn_copied = last ? last->lsn : job->lsn;
        j->next_log = log;
    }
    return rc;
}

static int publish(struct journal *j, struct log_out *out)
{
    struct job *job = &j->job;
    uint64_t bytes = j->old_bytes;
    pthread_mutex_unlock(&j->lock);
    int rc = j->fs->ops->sync_dir(j->fs, j->folder);
    if (rc < 0)
        error_set(&job->err, rc, "cannot sync %s, which has a new log: %s", j->folder, quire_error_text(rc));
    pthread_mutex_lock(&j->lock);
    if (rc == 0)
        rc = sync_frames(j, out);
    if (rc < 0)
        return rc;
    j->kept_lsn = UINT64_MAX; /* all that the old log had is durable elsewhere */
    journal_release_done(j);
    pthread_mutex_unlock(&j->lock);
    rc = journal_log_end(j, out, &j->old_log, bytes, job->log.first_lsn, true, &job->err);
    pthread_mutex_lock(&j->lock);
    if (rc < 0)
        return rc;
    fs_close(j->old_log.file);
    journal_count_closed(j, &j->old_log);
    j->old_log = (struct log_file){.file = NULL};
    assert(job->log.first_lsn > j->rotated_lsn);
    j->rotated_lsn = job->log.first_lsn;
    if (j->rotate_lsn <= j->rotated_lsn)
        j->rotate_lsn = 0;
    return 0;
}

void journal_job_run(struct journal *j, struct log_out *out)
{
    static int (*const jobs[])(struct journal * j, struct log_out * out) = {
        [JOB_SYNC] = sync_frames, [JOB_PREPARE] = prepare, [JOB_PUBLISH] = publish};
    assert(lock_is_held(&j->lock) && j->job.kind != JOB_NONE && j->job.rc == 0);
    j->job.rc = jobs[j->job.kind](j, out);
    j->job.kind = JOB_NONE;
    j->job.background = false;
    j->rested_us = clock_us();
    journal_add_counted(j, out);
    pthread_cond_broadcast(&j->changed);
}

void *journal_syncer(void *context)
{
    struct journal *j = context;
    pthread_mutex_lock(&j->lock);
    while (!j->syncer_stops)
        if (j->job.background) {
            journal_job_run(j, &j->syncer_out);
            pthread_cond_signal(&j->work);
        } else {
            pthread_cond_wait(&j->jobs, &j->lock);
        }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}
