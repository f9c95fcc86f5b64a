/*
 * journal_writer.c - the journal's thread: writes frames, syncs them, begins and ends log files, and gets over
 * failures.
 *
 * The thread looks at the state under the lock, decides on one step (next_step), carries it out without the lock, and
 * enters the outcome. Frames that wait are gathered into one write and share one sync: the more wait, the cheaper each.
 *
 * Rules:
 *   1. A log begins at LSN n only when every frame before n is synced (or, after a failure, was never acknowledged and
 *      is in the new log itself). Its header and those frames are written and synced under a temporary name, which is
 *      then renamed; the folder is synced before anything in it counts. So a log that is there has a whole header.
 *   2. After a write or a sync that failed, a file is not touched again: what of it is on the disk is unknown, and a
 *      second sync that succeeds says nothing about pages that the first one dropped. Frames stay in memory until they
 *      are synced, so the next try writes all that are not synced into a new log, which holds from its first LSN on.
 *   3. A frame says up to which LSN all were durable when it was written; so a reader can tell a torn end, which nobody
 *      was told about, from damage to what was acknowledged.
 *   4. A file that is ended on purpose gets an end frame, after all else in it was synced.
 *
 * Space is reserved in steps: a full disk shows before a write is half done, and a sync need not write a new file size
 * each time.
 */
#include "io/clock.h"
#include "io/error.h"
#include "io/journal_priv.h"
#include "io/lock.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define GATHER_US    1000u
#define GATHER_BYTES (1u << 20)

#define ALLOCATE_STEP_BYTES (16u << 20)
#define SYNC_EVERY_US       1000000u
#define RETRY_AFTER_US      100000u

/* ---- log files: called without the lock, by the writer's thread and while opening -------------------------------- */

static uint64_t allocate_step(uint64_t file_bytes)
{
    return file_bytes < ALLOCATE_STEP_BYTES ? file_bytes : ALLOCATE_STEP_BYTES;
}

static int reserve(struct log_file *log, uint64_t bytes, uint64_t file_bytes, struct quire_error *err)
{
    if (bytes <= log->allocated)
        return 0;
    uint64_t step = allocate_step(file_bytes);
    uint64_t capacity = bytes > log->allocated + step ? bytes : log->allocated + step;
    int rc = log->file->fs->ops->allocate(log->file, capacity);
    if (rc < 0)
        return error_set(err, rc, "cannot reserve %llu bytes for %s: %s%s", (unsigned long long)capacity,
                         log->file->path, quire_error_text(rc),
                         rc == QUIRE_ENOSPACE ? ": make room or choose another disk" : "");
    assert(capacity >= bytes);
    log->allocated = capacity;
    return 0;
}

/* Space for the frames to come: what is appended from now on is promised to be written, under EVERYSEC and NO before it
 * is. Half a step of it is always there, unless this fails: then nothing more is taken, and what was taken has space.
 */
static int reserve_ahead(struct log_file *log, uint64_t file_bytes, struct quire_error *err)
{
    uint64_t ahead = allocate_step(file_bytes) / 2;
    if (!log->file || log->allocated >= log->bytes + ahead)
        return 0;
    return reserve(log, log->bytes + ahead, file_bytes, err);
}

static int write_out(struct journal *j, struct log_file *log, const void *bytes, size_t n, struct quire_error *err)
{
    int rc = n ? fs_write_exact(log->file, bytes, n, log->bytes, err) : 0;
    if (rc == 0 && n) {
        log->bytes += n;
        j->written.writes++;
        j->written.bytes += n;
    }
    return rc;
}

/* Writes the frames from `frame` to `last`; known: the last LSN that is durable. */
static int write_frames(struct journal *j, struct log_file *log, struct frame *frame, const struct frame *last,
                        uint64_t known, struct quire_error *err)
{
    size_t filled = 0;
    uint64_t total = 0;
    int rc = 0;
    for (const struct frame *f = frame; f; f = f == last ? NULL : f->next)
        total += f->n_bytes;
    rc = reserve(log, log->bytes + total, j->options.file_bytes, err);
    for (; rc == 0 && frame; frame = frame == last ? NULL : frame->next) {
        assert(frame->closed && frame->lsn > known);
        journal_frame_header(frame->bytes,
                             &(struct frame_header){.magic = FRAME_MAGIC,
                                                    .payload_bytes = (uint32_t)(frame->n_bytes - FRAME_HEADER_BYTES),
                                                    .n_records = frame->n_records,
                                                    .file_id = log->id,
                                                    .number = frame->lsn,
                                                    .known = known,
                                                    .payload_checksum = frame->payload_checksum});
        if (frame->n_bytes > BUFFER_BYTES - filled) {
            rc = write_out(j, log, j->buffer, filled, err);
            filled = 0;
        }
        if (rc == 0 && frame->n_bytes > BUFFER_BYTES) {
            rc = write_out(j, log, frame->bytes, frame->n_bytes, err);
        } else if (rc == 0) {
            memcpy(j->buffer + filled, frame->bytes, frame->n_bytes);
            filled += frame->n_bytes;
        }
        j->written.frames++;
    }
    return rc == 0 ? write_out(j, log, j->buffer, filled, err) : rc;
}

static int sync_log(struct journal *j, const struct log_file *log, struct quire_error *err)
{
    uint64_t started = clock_us();
    int rc = fs_sync(log->file, err);
    uint64_t us = clock_us() - started;
    j->written.syncs++;
    j->written.sync_us += us;
    j->written.sync_us_max = us > j->written.sync_us_max ? us : j->written.sync_us_max;
    if (us > atomic_load(&j->recent_sync_us))
        atomic_store(&j->recent_sync_us, us);
    return rc;
}

/* Everything of a new log but its final name: header, frames, sync. */
static int prepare_log(struct journal *j, const char *path, struct log_file *log, struct frame *frame,
                       const struct frame *last, struct quire_error *err)
{
    uint8_t header[FILE_HEADER_BYTES];
    j->fs->ops->unlink(j->fs, path); /* of a try that failed */
    int rc = journal_random_id(&log->id, err);
    if (rc == 0)
        rc = fs_open(j->fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &log->file, err);
    if (rc == 0)
        rc = reserve(log, FILE_HEADER_BYTES, j->options.file_bytes, err);
    if (rc == 0) {
        journal_file_header(header, LOG_MAGIC, log->id, log->first_lsn);
        rc = write_out(j, log, header, sizeof header, err);
    }
    if (rc == 0 && frame)
        rc = write_frames(j, log, frame, last, log->first_lsn - 1, err);
    return rc == 0 ? sync_log(j, log, err) : rc;
}

int journal_begin_log(struct journal *j, uint64_t first_lsn, struct frame *frame, const struct frame *last,
                      struct quire_error *err)
{
    struct log_file log = {.first_lsn = first_lsn};
    assert(!frame || (frame->lsn == first_lsn && last->lsn >= first_lsn));
    char *path = journal_path(j->folder, NAME_LOG, first_lsn, false);
    char *temporary = journal_path(j->folder, NAME_LOG, first_lsn, true);
    int rc = path && temporary ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to begin a log in %s", j->folder);
    if (rc == 0)
        rc = prepare_log(j, temporary, &log, frame, last, err);
    if (rc == 0) {
        rc = j->fs->ops->rename(j->fs, temporary, path);
        if (rc == 0)
            rc = j->fs->ops->sync_dir(j->fs, j->folder);
        if (rc < 0)
            error_set(err, rc, "cannot publish %s: %s", path, quire_error_text(rc));
    }
    if (rc < 0) {
        fs_close(log.file);
        if (temporary)
            j->fs->ops->unlink(j->fs, temporary);
    } else {
        j->log = log;
    }
    free(path);
    free(temporary);
    return rc;
}

/* Writes the end frame of the journal's log, all of which is synced. */
static int end_log(struct journal *j, uint64_t next_lsn, struct quire_error *err)
{
    uint8_t end[FRAME_HEADER_BYTES];
    journal_frame_header(end, &(struct frame_header){.magic = END_MAGIC,
                                                     .file_id = j->log.id,
                                                     .number = next_lsn,
                                                     .known = next_lsn - 1,
                                                     .payload_checksum = journal_checksum(NULL, 0)});
    int rc = j->fs->ops->truncate(j->log.file, j->log.bytes);
    if (rc < 0)
        error_set(err, rc, "cannot cut %s to its %llu bytes: %s", j->log.file->path, (unsigned long long)j->log.bytes,
                  quire_error_text(rc));
    if (rc == 0)
        rc = write_out(j, &j->log, end, sizeof end, err);
    return rc == 0 ? sync_log(j, &j->log, err) : rc;
}

/* ---- steps: called with the lock, which they give up while they touch the disk ----------------------------------- */

/* Frames up to `lsn` are not needed any more. */
static void release(struct journal *j, uint64_t lsn)
{
    assert(lock_is_held(&j->lock));
    while (j->first && j->first != j->unwritten && j->first->lsn <= lsn) {
        struct frame *frame = j->first;
        j->first = frame->next;
        journal_frame_free(frame);
    }
    if (!j->first)
        j->last = NULL;
}

static void release_done(struct journal *j)
{
    release(j, atomic_load(&j->sync) == JOURNAL_NO ? j->written_lsn : atomic_load(&j->synced_lsn));
}

/* The counts of the calls made without the lock. */
static void add_written(struct journal *j)
{
    struct journal_stats *to = &j->stats, *from = &j->written;
    to->frames += from->frames;
    to->bytes += from->bytes;
    to->writes += from->writes;
    to->syncs += from->syncs;
    to->sync_us += from->sync_us;
    to->sync_us_max = to->sync_us_max > from->sync_us_max ? to->sync_us_max : from->sync_us_max;
    *from = (struct journal_stats){0};
    j->log_bytes = j->log.bytes;
}

static void count_closed(struct journal *j, const struct log_file *log)
{
    j->closed_log_bytes += log->bytes;
    j->closed_log_files++;
}

/* The file is given up, and what is not synced waits again. */
static void fail(struct journal *j, int code, const struct quire_error *err)
{
    assert(code < 0);
    if (j->log.file) {
        fs_close(j->log.file);
        count_closed(j, &j->log);
        j->log = (struct log_file){0};
    }
    for (const struct frame *f = j->first; f != j->unwritten; f = f->next)
        j->unwritten_bytes += f->n_bytes;
    uint64_t kept_from = j->first ? j->first->lsn : j->written_lsn + 1;
    j->lost = j->lost || kept_from > atomic_load(&j->synced_lsn) + 1;
    j->written_lsn = kept_from - 1;
    assert(j->written_lsn >= atomic_load(&j->synced_lsn));
    j->unwritten = j->first;
    j->unsynced_bytes = 0;
    j->failure = *err;
    j->failure.code = code;
    j->stats.failures++;
    j->rotate_lsn = 0;
    j->retry_us = clock_us() + RETRY_AFTER_US;
}

/* Enters how a step went; whoever waits looks again. */
static void settle(struct journal *j, int rc, const struct quire_error *err)
{
    assert(lock_is_held(&j->lock) && rc <= 0);
    add_written(j);
    if (rc < 0)
        fail(j, rc, err);
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

/* The last closed frame of those that wait, at most up to where the file is full or another is to begin. */
static struct frame *last_ready(const struct journal *j, struct frame *from, uint64_t capacity)
{
    struct frame *last = NULL;
    uint64_t bytes = 0;
    for (struct frame *f = from; f && f->closed && bytes < capacity && (!j->rotate_lsn || f->lsn < j->rotate_lsn);
         f = f->next) {
        bytes += f->n_bytes;
        last = f;
    }
    return last;
}

static void mark_written(struct journal *j, struct frame *last)
{
    assert(lock_is_held(&j->lock) && last->lsn > j->written_lsn);
    for (struct frame *f = j->unwritten; f; f = f == last ? NULL : f->next) {
        assert(f->closed && j->unwritten_bytes >= f->n_bytes);
        j->unwritten_bytes -= f->n_bytes;
        j->unsynced_bytes += f->n_bytes;
    }
    j->written_lsn = last->lsn;
    j->unwritten = last->next;
    assert(!j->unwritten || j->unwritten->lsn == j->written_lsn + 1);
}

static void mark_synced(struct journal *j, uint64_t lsn)
{
    assert(lsn >= atomic_load(&j->synced_lsn) && lsn <= j->written_lsn);
    atomic_store(&j->synced_lsn, lsn);
    j->unsynced_bytes = 0;
    release_done(j);
}

static void step_write(struct journal *j)
{
    struct quire_error err = {0};
    uint64_t capacity = j->log.bytes < j->options.file_bytes ? j->options.file_bytes - j->log.bytes : 1;
    struct frame *from = j->unwritten, *last = last_ready(j, from, capacity);
    assert(last && from->lsn == j->written_lsn + 1);
    j->wrote_us = clock_us();
    uint64_t before = j->written_lsn, known = atomic_load(&j->synced_lsn);
    bool synced = false;
    pthread_mutex_unlock(&j->lock);
    int rc = write_frames(j, &j->log, from, last, known, &err);
    /* what was written before is sound; memory may not have it any more */
    if (rc < 0 && known < before)
        synced = sync_log(j, &j->log, NULL) == 0;
    struct quire_error full = {0};
    int ahead = rc == 0 ? reserve_ahead(&j->log, j->options.file_bytes, &full) : 0;
    pthread_mutex_lock(&j->lock);
    note_room(j, ahead, &full);
    if (synced)
        mark_synced(j, before);
    if (rc == 0) {
        mark_written(j, last);
        release_done(j);
    }
    settle(j, rc, &err);
}

static void step_sync(struct journal *j)
{
    struct quire_error err = {0};
    uint64_t lsn = j->written_lsn;
    assert(j->log.file && atomic_load(&j->synced_lsn) < lsn);
    j->synced_us = clock_us();
    pthread_mutex_unlock(&j->lock);
    int rc = sync_log(j, &j->log, &err);
    pthread_mutex_lock(&j->lock);
    if (rc == 0)
        mark_synced(j, lsn);
    settle(j, rc, &err);
}

static void step_reserve(struct journal *j)
{
    struct quire_error err = {0};
    pthread_mutex_unlock(&j->lock);
    int rc = reserve_ahead(&j->log, j->options.file_bytes, &err);
    pthread_mutex_lock(&j->lock);
    note_room(j, rc, &err);
    pthread_cond_broadcast(&j->changed);
}

/* Everything before the next LSN is written. */
static void step_rotate(struct journal *j)
{
    struct quire_error err = {0};
    uint64_t first = j->written_lsn + 1;
    bool fresh = j->log.first_lsn == first, synced = fresh || atomic_load(&j->synced_lsn) == j->written_lsn;
    struct log_file old = {0};
    pthread_mutex_unlock(&j->lock);
    int rc = synced ? 0 : sync_log(j, &j->log, &err);
    synced = rc == 0;
    if (rc == 0 && !fresh)
        rc = end_log(j, first, &err);
    if (rc == 0 && !fresh) {
        old = j->log;
        rc = journal_begin_log(j, first, NULL, NULL, &err);
    }
    pthread_mutex_lock(&j->lock);
    if (rc == 0 && old.file) {
        fs_close(old.file);
        count_closed(j, &old);
    }
    if (synced)
        mark_synced(j, j->written_lsn);
    if (rc == 0 && j->rotate_lsn == first)
        j->rotate_lsn = 0;
    settle(j, rc, &err);
}

/* After a failure: a new log with all that is not synced. */
static void step_retry(struct journal *j)
{
    struct quire_error err = {0};
    uint64_t first = j->written_lsn + 1;
    struct frame *from = j->unwritten, *last = last_ready(j, from, UINT64_MAX);
    assert(!j->log.file && (!from || from->lsn == first));
    pthread_mutex_unlock(&j->lock);
    int rc = journal_begin_log(j, first, last ? from : NULL, last, &err);
    pthread_mutex_lock(&j->lock);
    if (rc == 0) {
        if (last)
            mark_written(j, last);
        mark_synced(j, j->written_lsn);
    }
    settle(j, rc, &err);
    j->gave_up = rc < 0 && j->stopping;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

enum step { STEP_WAIT, STEP_WRITE, STEP_SYNC, STEP_ROTATE, STEP_RETRY, STEP_RESERVE, STEP_STOP };

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
    return now_us >= *until_us || j->unsynced_bytes >= j->options.buffer_bytes;
}

/* Without space for more, what waits is written where space was kept for it. */
static bool is_full_size(const struct journal *j)
{
    return j->log.bytes >= j->options.file_bytes && j->log.first_lsn <= j->written_lsn && atomic_load(&j->full) == 0;
}

static enum step next_step(const struct journal *j, uint64_t *until_us)
{
    uint64_t now_us = clock_us();
    bool ready = j->unwritten && j->unwritten->closed;
    *until_us = UINT64_MAX;
    if (atomic_load(&j->health) < 0) {
        *until_us = j->retry_us;
        if (j->stopping)
            return j->gave_up ? STEP_STOP : STEP_RETRY;
        return now_us >= j->retry_us ? STEP_RETRY : STEP_WAIT;
    }
    if (sync_is_due(j, now_us, until_us))
        return STEP_SYNC;
    if (j->rotate_lsn == j->written_lsn + 1)
        return STEP_ROTATE;
    if (ready)
        return is_full_size(j) ? STEP_ROTATE : STEP_WRITE;
    if (atomic_load(&j->full) < 0 && !j->stopping) {
        uint64_t again_us = j->reserved_us + RETRY_AFTER_US;
        *until_us = again_us < *until_us ? again_us : *until_us;
        return now_us >= again_us ? STEP_RESERVE : STEP_WAIT;
    }
    return j->stopping ? STEP_STOP : STEP_WAIT;
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

void *journal_writer(void *context)
{
    static void (*const steps[])(struct journal * j) = {[STEP_WRITE] = step_write,
                                                        [STEP_SYNC] = step_sync,
                                                        [STEP_ROTATE] = step_rotate,
                                                        [STEP_RETRY] = step_retry,
                                                        [STEP_RESERVE] = step_reserve};
    struct journal *j = context;
    uint64_t until_us;
    enum step step;
    pthread_mutex_lock(&j->lock);
    do {
        give_notice(j);
        step = next_step(j, &until_us);
        if (step == STEP_WAIT && !notice_is_due(j))
            wait_for_work(j, until_us);
        else if (step == STEP_WRITE && gathers(j))
            gather(j);
        else if (step != STEP_WAIT && step != STEP_STOP)
            steps[step](j);
    } while (step != STEP_STOP);
    uint64_t next_lsn = j->written_lsn + 1;
    pthread_mutex_unlock(&j->lock);
    /* all is synced: where the end frame is missing, the next opening does without it */
    if (j->log.file)
        end_log(j, next_lsn, NULL);
    fs_close(j->log.file);
    return NULL;
}
