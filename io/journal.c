/*
 * journal.c - appending to the journal, and opening and closing it.
 *
 * Whoever appends builds the frame by himself, payload checksum included, and takes the lock only to give it the next
 * LSN and hang it into the list. From there it is the writer's (journal_writer.c), which takes closed frames in order
 * and frees each when the mode says that it is safe: a batch that is open holds up those behind it, in memory.
 *
 * A batch is refused at its begin or not at all: health and space are looked at once, so that no batch is cut in half
 * by a disk that fails in between; its frame waits in memory like any other.
 *
 * Opening first replays (journal_read.c), then begins a new log behind the last valid frame, and only then removes what
 * a checkpoint made useless: with the new log the folder was synced, so the checkpoint's name is durable, too.
 */
#include "io/journal.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal_priv.h"
#include "io/lock.h"
#include "io/memory.h"
#include <assert.h>
#include <signal.h>
#include <stdlib.h>

#define FILE_BYTES_DEFAULT   (64u << 20)
#define BUFFER_BYTES_DEFAULT (64u << 20)

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static _Thread_local struct {
    struct journal *journal; /* NULL: no batch is open */
    struct frame *frame;
} batch;

void journal_frame_free(struct frame *frame)
{
    if (frame->bytes != (uint8_t *)(frame + 1))
        free(frame->bytes);
    free(frame);
}

/* A frame with space for `bytes` of payload. */
static struct frame *frame_new(size_t bytes)
{
    struct frame *frame = malloc(sizeof *frame + FRAME_HEADER_BYTES + bytes);
    if (frame)
        *frame = (struct frame){
            .bytes = (uint8_t *)(frame + 1), .n_bytes = FRAME_HEADER_BYTES, .capacity = FRAME_HEADER_BYTES + bytes};
    return frame;
}

static int grow(struct frame *frame, size_t more)
{
    assert(frame->n_bytes <= frame->capacity && !frame->closed);
    if (more <= frame->capacity - frame->n_bytes)
        return 0;
    size_t capacity = frame->n_bytes + more > 2 * frame->capacity ? frame->n_bytes + more : 2 * frame->capacity;
    bool own = frame->bytes != (uint8_t *)(frame + 1);
    uint8_t *bytes = realloc(own ? frame->bytes : NULL, capacity);
    if (!bytes)
        return QUIRE_ENOMEM;
    if (!own)
        memcpy(bytes, frame->bytes, frame->n_bytes);
    frame->bytes = bytes;
    frame->capacity = capacity;
    return 0;
}

static int payload_bytes(const struct journal_record *records, unsigned n, size_t before, size_t *bytes,
                         struct quire_error *err)
{
    *bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        if (records[i].n_bytes > JOURNAL_RECORD_BYTES_MAX)
            return error_set(err, QUIRE_ELIMIT, "a record of %u bytes: a journal takes up to %u in one; split it",
                             records[i].n_bytes, JOURNAL_RECORD_BYTES_MAX);
        *bytes += RECORD_HEADER_BYTES + journal_record_padded(records[i].n_bytes);
        if (before + *bytes > JOURNAL_FRAME_BYTES_MAX)
            return error_set(err, QUIRE_ELIMIT,
                             "a frame of %zu bytes: a journal takes up to %u in one; make smaller batches",
                             before + *bytes, JOURNAL_FRAME_BYTES_MAX);
    }
    return 0;
}

static void put_records(struct frame *frame, const struct journal_record *records, unsigned n)
{
    uint8_t *at = frame->bytes + frame->n_bytes;
    for (unsigned i = 0; i < n; i++)
        at = journal_put_record(at, records[i].kind, NULL, records[i].bytes, records[i].n_bytes);
    frame->n_bytes = (size_t)(at - frame->bytes);
    assert(frame->n_bytes <= frame->capacity);
    frame->n_records += n;
}

static void sum_up(struct frame *frame)
{
    assert(!frame->closed);
    frame->payload_checksum = journal_checksum(frame->bytes + FRAME_HEADER_BYTES, frame->n_bytes - FRAME_HEADER_BYTES);
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

/* Under the lock, as all below until the public functions. */
static int refuse_failed(const struct journal *j, struct quire_error *err)
{
    assert(lock_is_held(&j->lock));
    int rc = journal_state(j);
    return rc < 0 ? error_set(err, rc, "%.300s; the journal tries again by itself", j->failure.message) : 0;
}

/* What is answered before it is written must soon be. */
static bool is_late(const struct journal *j)
{
    return j->busy_us && atomic_load(&j->sync) != JOURNAL_ALWAYS && clock_us() > j->busy_us + JOURNAL_DELAY_US_MAX;
}

static int admit(struct journal *j, size_t bytes, struct quire_error *err)
{
    uint64_t needed = j->unwritten_bytes + j->held_bytes;
    if (is_late(j)) {
        j->stats.delayed++;
        return error_set(err, QUIRE_EBUSY,
                         "the disk has not taken a write to the journal in %s for %u s: nothing is promised before it "
                         "has; try again",
                         j->folder, JOURNAL_DELAY_US_MAX / 1000000);
    }
    if (needed > 0 && needed + bytes > 2 * j->options.buffer_bytes)
        return error_set(err, QUIRE_EBUSY, "%llu bytes of the journal wait for a sync and the limit is %llu: try again",
                         (unsigned long long)needed, (unsigned long long)(2 * j->options.buffer_bytes));
    if (j->unwritten_bytes > 0 && j->unwritten_bytes + bytes > j->options.buffer_bytes)
        return error_set(err, QUIRE_EBUSY,
                         "%llu bytes wait to be written to the journal and the limit is %llu: try again",
                         (unsigned long long)j->unwritten_bytes, (unsigned long long)j->options.buffer_bytes);
    return refuse_failed(j, err);
}

static void wake_writer(struct journal *j)
{
    if (j->writer_waits)
        pthread_cond_signal(&j->work);
}

static void link_frame(struct journal *j, struct frame *frame)
{
    assert(lock_is_held(&j->lock));
    frame->lsn = atomic_load_explicit(&j->next_lsn, memory_order_relaxed);
    assert(!j->last || j->last->lsn + 1 == frame->lsn);
    atomic_store(&j->next_lsn, frame->lsn + 1);
    if (j->last)
        j->last->next = frame;
    else
        j->first = frame;
    if (!j->unwritten) {
        j->unwritten = frame;
        atomic_store(&j->oldest_us, clock_us());
    }
    j->last = frame;
}

static void close_frame(struct journal *j, struct frame *frame)
{
    assert(lock_is_held(&j->lock) && !frame->closed && frame->lsn > j->written_lsn);
    frame->closed = true;
    j->unwritten_bytes += frame->n_bytes;
    wake_writer(j);
}

static int append_to_batch(struct frame *frame, const struct journal_record *records, unsigned n, uint64_t *lsn,
                           struct quire_error *err)
{
    size_t bytes;
    int rc = payload_bytes(records, n, frame->n_bytes, &bytes, err);
    if (rc == 0 && grow(frame, bytes) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %zu bytes of a batch", frame->n_bytes + bytes);
    if (rc < 0)
        return rc;
    put_records(frame, records, n);
    *lsn = frame->lsn;
    return 0;
}

int journal_append(struct journal *j, const struct journal_record *records, unsigned n, uint64_t *lsn,
                   struct quire_error *err)
{
    size_t bytes;
    if (batch.journal == j)
        return append_to_batch(batch.frame, records, n, lsn, err);
    int rc = payload_bytes(records, n, 0, &bytes, err);
    if (rc < 0)
        return rc;
    struct frame *frame = frame_new(bytes);
    if (!frame)
        return error_set(err, QUIRE_ENOMEM, "no memory for a frame of %zu bytes", bytes);
    put_records(frame, records, n);
    sum_up(frame);
    pthread_mutex_lock(&j->lock);
    rc = admit(j, frame->n_bytes, err);
    if (rc == 0) {
        link_frame(j, frame);
        *lsn = frame->lsn;
        close_frame(j, frame);
    }
    pthread_mutex_unlock(&j->lock);
    if (rc < 0)
        journal_frame_free(frame);
    return rc;
}

bool journal_in_batch(const struct journal *j)
{
    return batch.journal == j;
}

int journal_check_no_batch(const struct journal *j, const char *what, struct quire_error *err)
{
    return journal_in_batch(j)
               ? error_set(err, QUIRE_EBUSY, "%s waits for a batch of its own thread: end it first", what)
               : 0;
}

int journal_batch_begin(struct journal *j, struct quire_error *err)
{
    if (batch.journal)
        return error_set(err, QUIRE_EBUSY, "a batch is open in this thread: end it first");
    struct frame *frame = frame_new(0);
    if (!frame)
        return error_set(err, QUIRE_ENOMEM, "no memory for a batch");
    pthread_mutex_lock(&j->lock);
    while (j->quiesced)
        pthread_cond_wait(&j->changed, &j->lock);
    int rc = admit(j, frame->n_bytes, err);
    if (rc == 0) {
        assert(!j->quiesced);
        link_frame(j, frame);
        j->batches++;
        batch.journal = j;
        batch.frame = frame;
    }
    pthread_mutex_unlock(&j->lock);
    if (rc < 0)
        journal_frame_free(frame);
    return rc;
}

int journal_batch_end(struct journal *j, uint64_t *lsn, struct quire_error *err)
{
    if (batch.journal != j)
        return error_set(err, QUIRE_EINVALID, "no batch of this journal is open in this thread");
    struct frame *frame = batch.frame;
    batch.journal = NULL;
    batch.frame = NULL;
    sum_up(frame);
    *lsn = frame->lsn;
    pthread_mutex_lock(&j->lock);
    close_frame(j, frame);
    assert(j->batches > 0);
    if (--j->batches == 0)
        pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    return 0;
}

void journal_quiesce_begin(struct journal *j)
{
    assert(!journal_in_batch(j));
    pthread_mutex_lock(&j->lock);
    while (j->quiesced)
        pthread_cond_wait(&j->changed, &j->lock);
    j->quiesced = true;
    while (j->batches)
        pthread_cond_wait(&j->changed, &j->lock);
    assert(j->quiesced);
    pthread_mutex_unlock(&j->lock);
}

void journal_quiesce_end(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    assert(j->quiesced && j->batches == 0);
    j->quiesced = false;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

/* ---- what is durable --------------------------------------------------------------------------------------------- */

uint64_t journal_last_lsn(const struct journal *j)
{
    return atomic_load(&j->next_lsn) - 1;
}

uint64_t journal_durable_lsn(const struct journal *j)
{
    return atomic_load(&j->sync) == JOURNAL_ALWAYS ? atomic_load(&j->synced_lsn) : journal_last_lsn(j);
}

int journal_wait(struct journal *j, uint64_t lsn, struct quire_error *err)
{
    int rc = 0;
    if (lsn > journal_last_lsn(j))
        return error_set(err, QUIRE_EINVALID, "LSN %llu was not given out, the last one is %llu",
                         (unsigned long long)lsn, (unsigned long long)journal_last_lsn(j));
    pthread_mutex_lock(&j->lock);
    while (rc == 0 && journal_durable_lsn(j) < lsn) {
        rc = refuse_failed(j, err);
        if (rc == 0 && journal_in_batch(j) && lsn >= batch.frame->lsn)
            rc = journal_check_no_batch(j, "the wait for a frame", err);
        if (rc == 0)
            pthread_cond_wait(&j->changed, &j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    return rc;
}

int journal_sync(struct journal *j, struct quire_error *err)
{
    int rc = journal_check_no_batch(j, "a sync", err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&j->lock);
    uint64_t lsn = journal_last_lsn(j);
    j->sync_lsn = j->sync_lsn > lsn ? j->sync_lsn : lsn;
    wake_writer(j);
    while (rc == 0 && atomic_load(&j->synced_lsn) < lsn) {
        rc = refuse_failed(j, err);
        if (rc == 0)
            pthread_cond_wait(&j->changed, &j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    return rc;
}

void journal_on_durable(struct journal *j, void (*notify)(void *context), void *context)
{
    pthread_mutex_lock(&j->lock);
    j->notify = notify;
    j->notify_context = context;
    j->noticed_lsn = journal_durable_lsn(j);
    pthread_mutex_unlock(&j->lock);
}

int journal_health(const struct journal *j, struct quire_error *err)
{
    if (journal_state(j) == 0)
        return 0;
    struct journal *unlocked = (struct journal *)(uintptr_t)j;
    pthread_mutex_lock(&unlocked->lock);
    int rc = refuse_failed(j, err);
    pthread_mutex_unlock(&unlocked->lock);
    return rc;
}

int journal_set_sync(struct journal *j, enum journal_sync sync)
{
    if (sync != JOURNAL_ALWAYS && sync != JOURNAL_EVERYSEC && sync != JOURNAL_NO)
        return QUIRE_EINVALID;
    pthread_mutex_lock(&j->lock);
    atomic_store(&j->sync, sync);
    wake_writer(j);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    return 0;
}

void journal_get_stats(const struct journal *j, struct journal_stats *out)
{
    struct journal *unlocked = (struct journal *)(uintptr_t)j;
    pthread_mutex_lock(&unlocked->lock);
    *out = j->stats;
    out->unwritten_bytes = j->unwritten_bytes;
    out->log_bytes = j->closed_log_bytes + j->log_bytes;
    out->log_files = j->closed_log_files + (atomic_load(&j->health) == 0);
    pthread_mutex_unlock(&unlocked->lock);
}

uint64_t journal_take_sync_us(struct journal *j)
{
    return atomic_exchange(&j->recent_sync_us, 0);
}

int journal_rotate(struct journal *j, uint64_t *lsn, struct quire_error *err)
{
    assert(!journal_in_batch(j));
    pthread_mutex_lock(&j->lock);
    int rc = refuse_failed(j, err);
    uint64_t failures = j->stats.failures, asked = journal_last_lsn(j) + 1;
    if (rc == 0 && j->rotated_lsn < asked) {
        j->rotate_lsn = asked;
        wake_writer(j);
    }
    while (rc == 0 && j->rotated_lsn < asked && j->stats.failures == failures)
        pthread_cond_wait(&j->changed, &j->lock);
    if (rc == 0 && j->rotated_lsn < asked)
        rc = error_set(err, j->failure.code, "%.380s", j->failure.message);
    if (rc == 0)
        *lsn = j->rotated_lsn;
    pthread_mutex_unlock(&j->lock);
    return rc;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void journal_free(struct journal *j)
{
    while (j->first) {
        struct frame *frame = j->first;
        j->first = frame->next;
        journal_frame_free(frame);
    }
    pthread_cond_destroy(&j->changed);
    pthread_cond_destroy(&j->work);
    pthread_cond_destroy(&j->jobs);
    pthread_mutex_destroy(&j->lock);
    memory_free(j->writer_out.buffer);
    memory_free(j->syncer_out.buffer);
    free(j->folder);
    free(j);
}

static struct journal *journal_new(struct io_fs *fs, const char *folder, const struct journal_options *options)
{
    struct journal *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->work, &monotonic);
    pthread_cond_init(&j->jobs, &monotonic);
    pthread_cond_init(&j->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    j->fs = fs;
    j->options = *options;
    j->options.file_bytes = options->file_bytes ? options->file_bytes : FILE_BYTES_DEFAULT;
    j->options.buffer_bytes = options->buffer_bytes ? options->buffer_bytes : BUFFER_BYTES_DEFAULT;
    atomic_store(&j->sync, options->sync);
    j->folder = strdup(folder);
    j->kept_lsn = UINT64_MAX;
    j->writer_out.buffer = memory_aligned(4096, BUFFER_BYTES);
    j->syncer_out.buffer = memory_aligned(4096, BUFFER_BYTES);
    if (j->folder && j->writer_out.buffer && j->syncer_out.buffer)
        return j;
    journal_free(j);
    return NULL;
}

static void stop_syncer(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->syncer_stops = true;
    pthread_cond_signal(&j->jobs);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->syncer, NULL);
}

/* The threads take no signals: they are the host's. */
static int start_threads(struct journal *j, struct quire_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int errnum = pthread_create(&j->syncer, NULL, journal_syncer, j);
    if (errnum == 0 && (errnum = pthread_create(&j->thread, NULL, journal_writer, j)))
        stop_syncer(j);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return errnum ? error_set_errno(err, errnum, "start the threads of the journal in", j->folder) : 0;
}

static void take_over(struct journal *j, const struct recovery *recovery)
{
    assert(recovery->next_lsn > recovery->known_lsn && recovery->next_lsn >= recovery->checkpoint_lsn);
    assert(j->log.first_lsn == recovery->next_lsn && !j->first);
    atomic_store(&j->next_lsn, recovery->next_lsn);
    atomic_store(&j->synced_lsn, recovery->next_lsn - 1);
    j->written_lsn = recovery->next_lsn - 1;
    j->closed_log_bytes = recovery->log_bytes;
    j->closed_log_files = recovery->log_files;
    j->log_bytes = j->log.bytes;
    j->stats.checkpoint_lsn = recovery->checkpoint_lsn;
    j->stats.checkpoint_bytes = recovery->checkpoint_bytes;
    j->rotated_lsn = j->log.first_lsn;
    j->writer_out.counted = (struct journal_stats){0};
}

int journal_open(struct io_fs *fs, const char *folder, const struct journal_options *options,
                 const struct journal_reader *reader, struct journal **out, struct journal_report *report,
                 struct quire_error *err)
{
    struct journal_report unused;
    struct recovery recovery;
    struct walk walk = {
        .fs = fs, .folder = folder, .reader = reader, .sync = true, .report = report ? report : &unused};
    struct journal *j = journal_new(fs, folder, options);
    if (!j)
        return error_set(err, QUIRE_ENOMEM, "no memory to open the journal in %s", folder);
    int rc = journal_walk(&walk, &recovery, err);
    if (rc == 0 && recovery.next_lsn >= LSN_MAX)
        rc = error_set(err, QUIRE_ECORRUPT, "%s: LSN %llu is the last that there can be: `quire repair` begins anew",
                       folder, (unsigned long long)recovery.next_lsn);
    if (rc == 0)
        rc = journal_begin_log(j, recovery.next_lsn, NULL, NULL, err);
    if (rc == 0) {
        journal_remove_older(fs, folder, recovery.checkpoint_lsn, true);
        take_over(j, &recovery);
        rc = start_threads(j, err);
    }
    if (rc < 0) {
        fs_close(j->log.file);
        journal_free(j);
        return rc;
    }
    *out = j;
    return 0;
}

int journal_close(struct journal *j, struct quire_error *err)
{
    int rc = 0;
    if (!j)
        return 0;
    pthread_mutex_lock(&j->lock);
    assert(j->batches == 0 && !j->maintenance);
    j->stopping = true;
    wake_writer(j);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->thread, NULL);
    stop_syncer(j);
    assert((!j->first && !j->lost) || j->failure.code < 0);
    if (j->first)
        rc = error_set(err, j->failure.code, "the journal was closed without the frames of LSN %llu to %llu: %.250s",
                       (unsigned long long)j->first->lsn, (unsigned long long)j->last->lsn, j->failure.message);
    else if (j->lost)
        rc = error_set(err, j->failure.code, "frames of the journal were written but not synced: %.280s",
                       j->failure.message);
    journal_free(j);
    return rc;
}
