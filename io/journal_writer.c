/*
 * journal_writer.c - the journal's writer: hands frames to the operating system, decides when logs are synced, begun
 * and ended, and gets over failures.
 *
 * The thread looks at the state under the lock, decides on one step (next_step), carries it out without the lock, and
 * enters the outcome. Frames that wait are gathered into one write and share one sync: the more wait, the cheaper each.
 *
 * What may take long (a sync, and with it the beginning and the ending of a log) is a job (journal_job.c). Where nobody
 * waits for it, the syncer's thread does it, and the writer goes on writing to the log that it has: what is appended is
 * with the operating system within a millisecond or two, however slow the disk is to sync, so a process that is killed
 * has lost no more than that. On a busy machine that is a matter of when the writer gets a processor: it asks for short
 * slices, as lanes do, and who has a processor and finds that frames have waited for too long, while the writer is not
 * at the disk, takes its step (journal_help). Under ALWAYS those who append wait for the sync; the writer does it
 * itself then.
 *
 * Rules:
 *   1. A log begins at LSN n only when every frame before n is synced (or, after a failure, was never acknowledged and
 *      is in the new log itself). Its header and its frames so far are written and synced under a temporary name, which
 *      is then renamed; the folder is synced before anything in it counts. So a log that is there has a whole header.
 *      Frames that were written to the old log meanwhile are in both, and the new one has them under its temporary
 *      name before it is renamed: at each moment the files that have names hold all that was written.
 *   2. After a write or a sync that failed, a file is not touched again: what of it is on the disk is unknown, and a
 *      second sync that succeeds says nothing about pages that the first one dropped. Frames stay in memory until they
 *      are synced, so the next try writes all that are not synced into a new log, which holds from its first LSN on.
 *      One job runs at a time, so no two syncs of a file share its one report of an error; and a file is given up, or
 *      closed, only when no job runs.
 *   3. A frame says up to which LSN all were durable when it was written (`known`); so a reader can tell a torn end,
 *      which nobody was told about, from damage to what was acknowledged. A sync that is under way makes nothing known:
 *      when it has succeeded, known is the last LSN that was written before it began. Marks (journal_log.c) say the
 *      same where nothing was written behind it.
 *   4. One thread steps at a time (`stepping`), whoever it is; a helper takes only steps that wait for no sync, and
 *      leaves what follows from a write that failed to the writer.
 *   5. A file that is ended on purpose gets an end frame, after all else in it was synced; and if the next log is
 *      there, after that is durable under its name. Frames that both have are cut off the old one then.
 */
#include "io/clock.h"
#include "io/error.h"
#include "io/journal_priv.h"
#include "io/lock.h"
#include "io/schedule.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define GATHER_US      1000u
#define GATHER_BYTES   (1u << 20)
#define LATE_US        3000u /* frames that have waited for so long should have been written */
#define SYNC_EVERY_US  1000000u
#define RETRY_AFTER_US 100000u
#define MARK_IDLE_US   20000u     /* without a write after a sync, a mark is written */
#define MARK_EVERY_US  1000000u   /* and in any case so often */
#define BEYOND_BYTES   (8u << 20) /* of one write to a log that is full, while the next one is prepared */

/* ---- the frames in memory ---------------------------------------------------------------------------------------- */

/* Frames up to `lsn` are not needed any more. */
static void release(struct journal *j, uint64_t lsn)
{
    assert(lock_is_held(&j->lock));
    while (j->first && j->first != j->unwritten && j->first->lsn <= lsn) {
        struct frame *frame = j->first;
        assert(j->held_bytes >= frame->n_bytes);
        j->held_bytes -= frame->n_bytes;
        j->first = frame->next;
        journal_frame_free(frame);
    }
    if (!j->first)
        j->last = NULL;
}

void journal_release_done(struct journal *j)
{
    uint64_t lsn = atomic_load(&j->sync) == JOURNAL_NO ? j->written_lsn : atomic_load(&j->synced_lsn);
    release(j, lsn < j->kept_lsn ? lsn : j->kept_lsn);
}

void journal_add_counted(struct journal *j, struct log_out *out)
{
    struct journal_stats *to = &j->stats, *from = &out->counted;
    assert(lock_is_held(&j->lock));
    to->frames += from->frames;
    to->bytes += from->bytes;
    to->writes += from->writes;
    to->syncs += from->syncs;
    to->sync_us += from->sync_us;
    to->sync_us_max = to->sync_us_max > from->sync_us_max ? to->sync_us_max : from->sync_us_max;
    *from = (struct journal_stats){0};
}

void journal_count_closed(struct journal *j, const struct log_file *log)
{
    assert(lock_is_held(&j->lock));
    j->closed_log_bytes += log->bytes;
    j->closed_log_files++;
}

/* Space that was reserved behind what it has is given back where the disk is full. */
static void give_up(struct journal *j, struct log_file *log)
{
    if (!log->file)
        return;
    if (j->failure.code == QUIRE_ENOSPACE)
        j->fs->ops->truncate(log->file, log->bytes);
    fs_close(log->file);
    journal_count_closed(j, log);
    *log = (struct log_file){.file = NULL};
}

/* The files are given up, and what is not synced waits again. No job runs. */
static void fail(struct journal *j)
{
    assert(lock_is_held(&j->lock) && j->job.kind == JOB_NONE);
    give_up(j, &j->log);
    give_up(j, &j->old_log);
    journal_log_discard(j, &j->next_log);
    release(j, atomic_load(&j->synced_lsn));
    for (const struct frame *f = j->first; f != j->unwritten; f = f->next) {
        j->unwritten_bytes += f->n_bytes;
        j->held_bytes -= f->n_bytes;
    }
    uint64_t kept_from = j->first ? j->first->lsn : j->written_lsn + 1;
    j->lost = j->lost || kept_from > atomic_load(&j->synced_lsn) + 1;
    j->written_lsn = kept_from - 1;
    assert(j->written_lsn >= atomic_load(&j->synced_lsn) && j->held_bytes == 0);
    j->unwritten = j->first;
    j->kept_lsn = UINT64_MAX;
    j->stats.failures++;
    j->rotate_lsn = 0;
    j->retry_us = clock_us() + RETRY_AFTER_US;
}

/* ---- steps: called with the lock, which they give up while they touch the disk ----------------------------------- */

/* Where the writer gives the lock up; what is appended meanwhile cannot be written before it has it again. */
static void leave(struct journal *j)
{
    j->busy_us = clock_us();
    pthread_mutex_unlock(&j->lock);
}

static void come_back(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->busy_us = 0;
    journal_add_counted(j, &j->writer_out);
    j->log_bytes = j->log.bytes;
}

/* After a write that failed: what the log had before is sound, and memory may not have it any more. */
static void save_written(struct journal *j)
{
    uint64_t lsn = j->written_lsn;
    if (atomic_load(&j->synced_lsn) == lsn || j->job.rc < 0 || j->next_log.file || j->old_log.file)
        return; /* the next log needs what memory has */
    pthread_mutex_unlock(&j->lock);
    int rc = journal_log_sync(j, &j->writer_out, &j->log, NULL);
    pthread_mutex_lock(&j->lock);
    if (rc == 0)
        atomic_store(&j->synced_lsn, lsn);
    journal_release_done(j);
}

/* Enters how a step went; whoever waits looks again. is_write: only what it wrote is in doubt. */
static void settle(struct journal *j, int rc, const struct quire_error *err, bool is_write)
{
    assert(lock_is_held(&j->lock) && rc <= 0);
    if (rc < 0) {
        j->failure = *err;
        j->failure.code = rc;
        atomic_store(&j->health, rc);
        while (j->job.kind != JOB_NONE)
            pthread_cond_wait(&j->work, &j->lock);
        if (is_write)
            save_written(j);
        j->job.rc = 0;
        fail(j);
    }
    atomic_store(&j->health, rc);
    pthread_cond_broadcast(&j->changed);
}

/* Whether there is space for what comes; without it appends are refused, while what was appended is written. */
static void note_room(struct journal *j, int rc, const struct quire_error *err)
{
    assert(lock_is_held(&j->lock) && rc <= 0);
    if (rc < 0) {
        j->stats.failures += atomic_load(&j->full) == 0;
        j->failure = *err;
    }
    j->reserved_us = clock_us();
    atomic_store(&j->full, rc);
}

/* Bytes that the log may still take. */
static uint64_t log_room(const struct journal *j)
{
    uint64_t used = j->log.bytes - LOG_FRAMES_AT;
    assert(j->log.bytes >= LOG_FRAMES_AT);
    return used < j->options.file_bytes ? j->options.file_bytes - used : 0;
}

/* The last closed frame of those that wait, at most for so many bytes and up to below `limit`. */
static struct frame *last_ready(struct frame *from, uint64_t capacity, uint64_t limit)
{
    struct frame *last = NULL;
    uint64_t bytes = 0;
    for (struct frame *f = from; f && f->closed && bytes < capacity && f->lsn < limit; f = f->next) {
        bytes += f->n_bytes;
        last = f;
    }
    return last;
}

static void mark_written(struct journal *j, const struct frame *last)
{
    assert(lock_is_held(&j->lock) && last->lsn > j->written_lsn);
    for (struct frame *f = j->unwritten; f; f = f == last ? NULL : f->next) {
        assert(f->closed && j->unwritten_bytes >= f->n_bytes);
        j->unwritten_bytes -= f->n_bytes;
        j->held_bytes += f->n_bytes;
    }
    j->written_lsn = last->lsn;
    j->unwritten = last->next;
    atomic_store(&j->oldest_us, j->unwritten ? j->wrote_us : 0); /* none that is left came before */
    assert(!j->unwritten || j->unwritten->lsn == j->written_lsn + 1);
}

static void step_write(struct journal *j)
{
    struct quire_error *err = &j->write_err, full = {0};
    uint64_t room = log_room(j), limit = UINT64_MAX;
    if (j->rotate_lsn > j->written_lsn + 1)
        limit = j->rotate_lsn; /* the log ends there, unless a job holds that up */
    struct frame *from = j->unwritten, *last = last_ready(from, room ? room : BEYOND_BYTES, limit);
    assert(last && from->lsn == j->written_lsn + 1);
    uint64_t known = atomic_load(&j->synced_lsn);
    leave(j);
    j->wrote_us = j->busy_us;
    j->write_rc = journal_log_write(&j->writer_out, &j->log, from, last, known, err);
    int ahead = j->write_rc == 0 ? journal_log_reserve_ahead(&j->log, &full) : 0;
    come_back(j);
    note_room(j, ahead, &full);
    if (j->write_rc < 0)
        return; /* STEP_WRITE_FAILED is next */
    mark_written(j, last);
    journal_release_done(j);
    settle(j, 0, NULL, true);
}

static void step_write_failed(struct journal *j)
{
    int rc = j->write_rc;
    j->write_rc = 0;
    settle(j, rc, &j->write_err, true);
}

static void step_reserve(struct journal *j)
{
    struct quire_error err = {0};
    leave(j);
    int rc = journal_log_reserve_ahead(&j->log, &err);
    come_back(j);
    note_room(j, rc, &err);
    pthread_cond_broadcast(&j->changed);
}

static void step_mark(struct journal *j)
{
    struct quire_error err = {0};
    uint64_t known = atomic_load(&j->synced_lsn);
    leave(j);
    j->marked_us = j->busy_us;
    int rc = journal_log_mark(&j->writer_out, &j->log, known, &err);
    come_back(j);
    settle(j, rc, &err, true);
}

/* The log that was prepared takes the place of the one that has been written to so far. */
static void step_switch(struct journal *j)
{
    struct quire_error err = {0};
    uint64_t known = atomic_load(&j->synced_lsn);
    struct frame *from = j->first, *last = NULL;
    assert(j->job.kind == JOB_NONE && !j->old_log.file);
    while (from && from->lsn <= j->next_lsn_copied)
        from = from->next;
    for (struct frame *f = from; f != j->unwritten; f = f->next) {
        assert(f);
        last = f;
    }
    assert(!last || last->lsn == j->written_lsn);
    leave(j);
    int rc = last ? journal_log_write(&j->writer_out, &j->next_log, from, last, known, &err) : 0;
    if (rc == 0)
        rc = journal_log_rename(j, &j->next_log, &err);
    come_back(j);
    if (rc == 0) {
        j->old_log = j->log;
        j->log = j->next_log;
        j->next_log = (struct log_file){.file = NULL};
        j->log_bytes = j->log.bytes;
    }
    settle(j, rc, &err, false);
}

/* After a failure: a new log with all that is not synced. */
static void step_retry(struct journal *j)
{
    struct quire_error err = {0};
    uint64_t first = j->written_lsn + 1;
    struct frame *from = j->unwritten, *last = last_ready(from, UINT64_MAX, UINT64_MAX);
    assert(!j->log.file && j->job.kind == JOB_NONE && (!from || from->lsn == first));
    pthread_mutex_unlock(&j->lock);
    int rc = journal_begin_log(j, first, last ? from : NULL, last, &err);
    come_back(j);
    if (rc == 0) {
        if (last)
            mark_written(j, last);
        atomic_store(&j->synced_lsn, j->written_lsn);
        journal_release_done(j);
        j->rotated_lsn = first;
    }
    settle(j, rc, &err, false);
    j->gave_up = rc < 0 && j->stopping;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

/* Whether somebody waits for what a job does, so that nothing is gained by another thread. */
static bool is_awaited(const struct journal *j)
{
    return atomic_load(&j->sync) == JOURNAL_ALWAYS || j->stopping;
}

static void start_job(struct journal *j, enum job_kind kind)
{
    assert(j->job.kind == JOB_NONE && j->job.rc == 0 && j->log.file);
    j->job.kind = kind;
    j->job.lsn = j->written_lsn;
    j->job.log = j->log;
    if (kind != JOB_PUBLISH)
        j->synced_us = clock_us();
    if (kind == JOB_PREPARE) {
        j->old_bytes = j->log.bytes;
        j->kept_lsn = j->written_lsn;
    }
    j->job.background = !is_awaited(j);
    if (j->job.background)
        pthread_cond_signal(&j->jobs);
    else
        journal_job_run(j, &j->writer_out);
}

static void step_sync(struct journal *j)
{
    start_job(j, JOB_SYNC);
}

static void step_prepare(struct journal *j)
{
    start_job(j, JOB_PREPARE);
}

static void step_publish(struct journal *j)
{
    start_job(j, JOB_PUBLISH);
}

/* A job has failed. */
static void step_fail(struct journal *j)
{
    struct quire_error err = j->job.err;
    int rc = j->job.rc;
    j->job.rc = 0;
    settle(j, rc, &err, false);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

enum step {
    STEP_WAIT,
    STEP_WRITE,
    STEP_WRITE_FAILED,
    STEP_SYNC,
    STEP_PREPARE,
    STEP_SWITCH,
    STEP_PUBLISH,
    STEP_FAIL,
    STEP_RETRY,
    STEP_RESERVE,
    STEP_MARK,
    STEP_STOP
};

/* Whether what is written must be synced now; *until: or when. */
static bool sync_is_due(const struct journal *j, uint64_t now_us, uint64_t *until_us)
{
    uint64_t synced = atomic_load(&j->synced_lsn);
    int mode = atomic_load(&j->sync);
    bool ready = j->unwritten && j->unwritten->closed;
    if (j->written_lsn == synced)
        return false;
    if (mode == JOURNAL_ALWAYS || (j->sync_lsn > synced && j->written_lsn >= j->sync_lsn) || (j->stopping && !ready))
        return true;
    if (mode != JOURNAL_EVERYSEC)
        return false;
    *until_us = j->synced_us + SYNC_EVERY_US;
    return now_us >= *until_us || j->held_bytes >= j->options.buffer_bytes;
}

/* A log is to end where it was asked for, or is full. Without space for more, what waits is written where space was
 * kept for it. */
static bool rotation_is_due(const struct journal *j, bool ready)
{
    if (j->rotate_lsn && j->written_lsn + 1 >= j->rotate_lsn)
        return true;
    return ready && log_room(j) == 0 && j->log.first_lsn <= j->written_lsn && atomic_load(&j->full) == 0;
}

/* What is durable is marked when nothing has come for a moment, or a second has passed. */
static bool mark_is_due(const struct journal *j, bool ready, uint64_t now_us, uint64_t *until_us)
{
    uint64_t synced = atomic_load(&j->synced_lsn);
    if (j->stopping || synced <= j->log.marked_lsn || synced < j->log.first_lsn)
        return false;
    uint64_t last_us = j->wrote_us > j->rested_us ? j->wrote_us : j->rested_us;
    uint64_t at_us = ready ? j->marked_us + MARK_EVERY_US : last_us + MARK_IDLE_US;
    *until_us = at_us < *until_us ? at_us : *until_us;
    return now_us >= at_us;
}

/* The next job, if none runs and one is due. */
static enum step next_job(const struct journal *j, bool ready, uint64_t now_us, uint64_t *until_us)
{
    if (j->job.kind != JOB_NONE)
        return STEP_WAIT;
    if (j->next_log.file)
        return STEP_SWITCH;
    if (j->old_log.file)
        return STEP_PUBLISH;
    if (rotation_is_due(j, ready))
        return STEP_PREPARE;
    return sync_is_due(j, now_us, until_us) ? STEP_SYNC : STEP_WAIT;
}

static enum step next_step(const struct journal *j, uint64_t *until_us)
{
    uint64_t now_us = clock_us();
    bool ready = j->unwritten && j->unwritten->closed;
    *until_us = UINT64_MAX;
    if (j->write_rc < 0)
        return STEP_WRITE_FAILED;
    if (atomic_load(&j->health) < 0) {
        *until_us = j->retry_us;
        if (j->stopping)
            return j->gave_up ? STEP_STOP : STEP_RETRY;
        return now_us >= j->retry_us ? STEP_RETRY : STEP_WAIT;
    }
    if (j->job.rc < 0)
        return STEP_FAIL;
    enum step job = next_job(j, ready, now_us, until_us);
    if (job != STEP_WAIT)
        return job;
    if (mark_is_due(j, ready, now_us, until_us))
        return STEP_MARK;
    if (ready)
        return STEP_WRITE;
    if (atomic_load(&j->full) < 0 && !j->stopping) {
        uint64_t again_us = j->reserved_us + RETRY_AFTER_US;
        *until_us = again_us < *until_us ? again_us : *until_us;
        return now_us >= again_us ? STEP_RESERVE : STEP_WAIT;
    }
    return j->stopping && j->job.kind == JOB_NONE ? STEP_STOP : STEP_WAIT;
}

static void wait_for_work(struct journal *j, uint64_t until_us)
{
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000), .tv_nsec = (long)(until_us % 1000000 * 1000)};
    j->writer_waits = true;
    if (until_us == UINT64_MAX)
        pthread_cond_wait(&j->work, &j->lock);
    else
        pthread_cond_timedwait(&j->work, &j->lock, &until);
    j->writer_waits = false;
}

/* Where nobody waits for the sync, frames are gathered for a millisecond: to be woken for each costs those who append a
 * system call, and the processor two switches. */
static bool gathers(const struct journal *j)
{
    return atomic_load(&j->sync) != JOURNAL_ALWAYS && !j->stopping && j->unwritten_bytes < GATHER_BYTES &&
           clock_us() < j->wrote_us + GATHER_US;
}

/* Nobody signals meanwhile. */
static void gather(struct journal *j)
{
    uint64_t until_us = j->wrote_us + GATHER_US;
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000), .tv_nsec = (long)(until_us % 1000000 * 1000)};
    pthread_cond_timedwait(&j->work, &j->lock, &until);
}

static bool notice_is_due(const struct journal *j)
{
    return j->notify && (j->noticed_lsn != journal_durable_lsn(j) || j->noticed_health != journal_state(j));
}

/* Once per step and not until nothing is new: appending must not keep the thread from writing. */
static void give_notice(struct journal *j)
{
    if (!notice_is_due(j))
        return;
    j->noticed_lsn = journal_durable_lsn(j);
    j->noticed_health = journal_state(j);
    pthread_mutex_unlock(&j->lock);
    j->notify(j->notify_context);
    pthread_mutex_lock(&j->lock);
}

static void take_step(struct journal *j, enum step step)
{
    static void (*const steps[])(struct journal *
                                 j) = {[STEP_WRITE] = step_write,     [STEP_WRITE_FAILED] = step_write_failed,
                                       [STEP_SYNC] = step_sync,       [STEP_PREPARE] = step_prepare,
                                       [STEP_SWITCH] = step_switch,   [STEP_PUBLISH] = step_publish,
                                       [STEP_FAIL] = step_fail,       [STEP_RETRY] = step_retry,
                                       [STEP_RESERVE] = step_reserve, [STEP_MARK] = step_mark};
    assert(lock_is_held(&j->lock) && !j->stepping);
    j->stepping = true;
    steps[step](j);
    j->stepping = false;
}

/* The write itself, and what may be due before it: a mark, and jobs that are the syncer's. */
static bool may_help(const struct journal *j, enum step step)
{
    return step == STEP_WRITE || step == STEP_MARK || ((step == STEP_SYNC || step == STEP_PREPARE) && !is_awaited(j));
}

void journal_help(struct journal *j, uint64_t now_us)
{
    uint64_t oldest_us = atomic_load_explicit(&j->oldest_us, memory_order_relaxed), until_us;
    if (oldest_us == 0 || now_us < oldest_us + LATE_US || atomic_load(&j->sync) == JOURNAL_ALWAYS)
        return;
    pthread_mutex_lock(&j->lock);
    if (!j->stepping && !j->stopping && clock_us() >= atomic_load(&j->oldest_us) + LATE_US) {
        uint64_t written = j->written_lsn;
        for (enum step step; j->written_lsn == written && may_help(j, step = next_step(j, &until_us));)
            take_step(j, step);
        j->stats.helped += j->written_lsn != written;
        pthread_cond_broadcast(&j->changed); /* to the writer */
    }
    pthread_mutex_unlock(&j->lock);
}

void *journal_writer(void *context)
{
    struct journal *j = context;
    uint64_t until_us;
    enum step step;
    if (!j->options.no_priorities)
        schedule_short_slices();
    pthread_mutex_lock(&j->lock);
    do {
        give_notice(j);
        while (j->stepping) /* a helper is at it */
            pthread_cond_wait(&j->changed, &j->lock);
        step = next_step(j, &until_us);
        if (step == STEP_WAIT && !notice_is_due(j))
            wait_for_work(j, until_us);
        else if (step == STEP_WRITE && gathers(j))
            gather(j);
        else if (step != STEP_WAIT && step != STEP_STOP)
            take_step(j, step);
    } while (step != STEP_STOP);
    assert(j->job.kind == JOB_NONE && !j->next_log.file && !j->old_log.file);
    uint64_t next_lsn = j->written_lsn + 1;
    j->syncer_stops = true;
    pthread_cond_signal(&j->jobs);
    pthread_mutex_unlock(&j->lock);
    /* all is synced: where the end frame is missing, the next opening does without it */
    if (j->log.file)
        journal_log_end(j, &j->writer_out, &j->log, j->log.bytes, next_lsn, false, NULL);
    fs_close(j->log.file);
    return NULL;
}
