/*
 * document_log_write.c - the log's thread: makes files, writes, syncs, removes, and gets over failures.
 *
 * What waits is gathered: a write starts when 1 MiB waits, or 50 ms after the first document came, and takes up to
 * 1 MiB at once. Nothing is acknowledged by a write, so small ones would gain nothing; a sync follows each second.
 *
 * Writes are of whole pages, with O_DIRECT where the file system has it, so that neither writing nor reading fills the
 * kernel's cache with what the hot documents already hold. The last page is seldom full: it is kept (tail), and written
 * again with what follows. That puts the same bytes at the same place, so documents in it that are read or synced
 * already do not change, whatever of the second write arrives.
 *
 * A write that failed is tried again as it was: same bytes, same place; what waits stays in memory meanwhile and can be
 * read. After a sync that failed the documents written since the last one may be lost although a later sync succeeds;
 * their checksums tell, so a reader finds out, and who waited in document_log_sync was told. While anything fails,
 * appends are refused with that failure, and a round is made every 100 ms until one succeeds.
 *
 * A segment is removed when nothing in it lives and it takes no more documents. One that compaction emptied stays for
 * some syncs: its copies are on the disk, but the host's journal must have their new places there as well.
 */
#include "cache/document/document_log_priv.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdlib.h>

#define GATHER_NS 50000000ull
#define RETRY_NS  100000000ull
#define SYNC_NS   1000000000ull
#define IDLE_NS   1000000000ull

#define EXTENTS_AT_ONCE 64u

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Fills the buffer with what is to be written from the page of segment->disk on; answers where the documents in it end.
 * `first` is the first that waits; they go on to `target`. Only appending runs at the same time, behind them. */
static uint64_t gather(struct document_log *log, const struct document_log_segment *segment,
                       const struct resident *first, uint64_t target)
{
    uint64_t base = segment->disk / LOG_PAGE * LOG_PAGE, at = segment->disk;
    if (at == 0) {
        document_log_header_encode(segment, log->buffer);
        at = LOG_HEADER_BYTES;
    } else {
        memcpy(log->buffer, segment->tail, (size_t)(at - base));
    }
    assert(segment->disk < target);
    while (at < target && at - base < LOG_WRITE_BYTES) {
        assert(first);
        uint64_t begin = (uint64_t)first->unit * DOCUMENT_UNIT, end = begin + first->bytes;
        uint64_t stop = end - base < LOG_WRITE_BYTES ? end : base + LOG_WRITE_BYTES;
        memcpy(log->buffer + (at - base), first->data + (at - begin), (size_t)(stop - at));
        at = stop;
        if (at == end && at < target)
            first = first->next;
    }
    uint64_t n = at - base, padded = (n + LOG_PAGE - 1) / LOG_PAGE * LOG_PAGE;
    memset(log->buffer + n, 0, (size_t)(padded - n));
    return at;
}

/* One write of a segment. */
static int write_once(struct document_log *log, struct document_log_segment *segment, uint64_t target,
                      struct quire_error *err)
{
    pthread_mutex_lock(&log->lock);
    const struct resident *first = segment->queue.first;
    pthread_mutex_unlock(&log->lock);
    uint64_t base = segment->disk / LOG_PAGE * LOG_PAGE, end = gather(log, segment, first, target);
    uint64_t bytes = (end - base + LOG_PAGE - 1) / LOG_PAGE * LOG_PAGE;
    int rc = fs_write_exact(segment->file, log->buffer, (size_t)bytes, base, err);
    if (rc < 0)
        return rc;
    memcpy(segment->tail, log->buffer + bytes - LOG_PAGE, LOG_PAGE);
    pthread_mutex_lock(&log->lock);
    assert(end > segment->disk && end <= segment->bytes);
    segment->disk = end;
    log->dirty = true;
    log->stats.written_bytes += bytes;
    while (segment->queue.first &&
           (uint64_t)segment->queue.first->unit * DOCUMENT_UNIT + segment->queue.first->bytes <= end)
        document_log_settle_first(log, segment);
    pthread_mutex_unlock(&log->lock);
    return 0;
}

static int write_segment(struct document_log *log, struct document_log_segment *segment, uint64_t target,
                         struct quire_error *err)
{
    int rc = 0;
    if (!segment->file) {
        char name[LOG_NAME_BYTES];
        struct io_file *file = NULL;
        document_log_segment_name(name, segment->number);
        char *path = document_log_path(log->folder, name);
        segment->tail = segment->tail ? segment->tail : malloc(LOG_PAGE);
        rc = path && segment->tail ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to make a segment in %s", log->folder);
        if (rc == 0) {
            unsigned flags = FS_WRITE | FS_CREATE | FS_DIRECT;
            rc = fs_open(log->fs, path, flags | (segment->made ? 0 : FS_EXCLUSIVE), &file, err);
            /* an opening that failed may have made the file; one that is somebody else's is never written to */
            segment->made = segment->made || rc != QUIRE_EEXISTS;
            log->names_dirty = true;
        }
        if (rc == 0) {
            pthread_mutex_lock(&log->lock);
            segment->file = file;
            pthread_mutex_unlock(&log->lock);
        }
        free(path);
    }
    while (rc == 0 && segment->disk < target)
        rc = write_once(log, segment, target, err);
    return rc;
}

enum next { NEXT_WAITING, NEXT_DIRTY, NEXT_DEAD };

/* The next segment from *i on that has documents waiting, bytes that are not synced, or nothing that lives; NULL: none.
 * *bytes: its length at that moment. */
static struct document_log_segment *next_segment(struct document_log *log, enum next which, size_t *i, uint64_t *bytes)
{
    struct document_log_segment *found = NULL;
    pthread_mutex_lock(&log->lock);
    for (; !found && *i < log->n_segments; ++*i) {
        struct document_log_segment *segment = log->segments[*i];
        bool waiting = segment->queue.first != NULL, dirty = segment->synced < segment->disk;
        bool dead = log->begun && segment->documents == 0 && !segment->open && segment->keep_syncs == 0;
        if (which == NEXT_WAITING ? waiting : which == NEXT_DIRTY ? dirty : dead) {
            found = segment;
            *bytes = segment->bytes;
        }
    }
    pthread_mutex_unlock(&log->lock);
    return found;
}

int document_log_write_all(struct document_log *log, struct quire_error *err)
{
    uint64_t target = 0;
    size_t i = 0;
    int rc = 0;
    struct document_log_segment *segment;
    while ((segment = next_segment(log, NEXT_WAITING, &i, &target))) {
        struct quire_error why;
        int written = write_segment(log, segment, target, &why);
        if (written < 0 && rc == 0) {
            rc = written;
            if (err)
                *err = why;
        }
    }
    pthread_mutex_lock(&log->lock);
    log->filled_ns = clock_ns(); /* of what came meanwhile */
    pthread_mutex_unlock(&log->lock);
    return rc;
}

/* ---- syncing ----------------------------------------------------------------------------------------------------- */

static int sync_files(struct document_log *log, struct quire_error *err)
{
    uint64_t bytes;
    size_t i = 0;
    int rc = 0;
    struct document_log_segment *segment;
    while (rc == 0 && (segment = next_segment(log, NEXT_DIRTY, &i, &bytes))) {
        rc = fs_sync(segment->file, err);
        assert(segment->synced <= segment->disk);
        if (rc == 0)
            segment->synced = segment->disk;
    }
    if (rc == 0 && log->names_dirty) {
        rc = log->fs->ops->sync_dir(log->fs, log->folder);
        if (rc < 0)
            error_set(err, rc, "cannot sync the folder %s: %s", log->folder, quire_error_text(rc));
        else
            log->names_dirty = false;
    }
    return rc;
}

int document_log_write_durably(struct document_log *log, struct quire_error *err)
{
    int rc = document_log_write_all(log, err);
    return rc == 0 ? sync_files(log, err) : rc;
}

/* Syncs all that is written. */
static int sync_all(struct document_log *log, struct quire_error *err)
{
    int rc = sync_files(log, err);
    pthread_mutex_lock(&log->lock);
    log->synced_ns = clock_ns();
    if (rc == 0) {
        /* one sync more for the segments that wait for some; where all is written, the page for the next write goes */
        log->dirty = false;
        for (size_t i = 0; i < log->n_segments; i++) {
            struct document_log_segment *written = log->segments[i];
            if (written->keep_syncs && --written->keep_syncs == 0)
                log->ripe = true;
            log->dirty = log->dirty || written->keep_syncs;
            if (!written->open && !written->queue.first) {
                free(written->tail);
                written->tail = NULL;
            }
        }
    }
    pthread_mutex_unlock(&log->lock);
    return rc;
}

/* Tells the host what a sync has put on the device, files and names. */
static void tell_synced(struct document_log *log)
{
    struct document_extent list[EXTENTS_AT_ONCE];
    uint32_t n = EXTENTS_AT_ONCE;
    bool kept = log->options.synced != NULL;
    for (size_t i = 0; kept && n == EXTENTS_AT_ONCE;) {
        size_t first = i;
        n = 0;
        pthread_mutex_lock(&log->lock);
        for (; i < log->n_segments && n < EXTENTS_AT_ONCE; i++)
            if (log->segments[i]->told < log->segments[i]->synced && !log->segments[i]->old)
                list[n++] = (struct document_extent){log->segments[i]->number, log->segments[i]->synced};
        pthread_mutex_unlock(&log->lock);
        kept = n > 0 && log->options.synced(log->options.synced_context, list, n);
        pthread_mutex_lock(&log->lock);
        for (uint32_t at = 0; kept && first < i; first++)
            if (at < n && log->segments[first]->number == list[at].segment)
                log->segments[first]->told = list[at++].bytes;
        pthread_mutex_unlock(&log->lock);
    }
}

/* Writes, and syncs with `sync`: also when writing fails, what is written already must not wait for it. */
static int write_and_sync(struct document_log *log, bool sync, struct quire_error *err)
{
    struct quire_error why = {0}, sync_why = {0};
    int rc = document_log_write_all(log, &why), synced = sync ? sync_all(log, &sync_why) : 0;
    if (sync && synced == 0)
        tell_synced(log);
    if (rc == 0 && synced < 0) {
        rc = synced;
        why = sync_why;
    }
    pthread_mutex_lock(&log->lock);
    bool failing = log->failure.code < 0, over = failing && rc == 0 && sync;
    if (rc < 0) {
        log->failure = why;
        log->stats.failures++;
    } else if (over) {
        log->failure = (struct quire_error){0};
    }
    pthread_mutex_unlock(&log->lock);
    if (rc < 0 && !failing)
        document_log_say(log, true, "answers cannot be stored: %s; trying again", why.message);
    if (over)
        document_log_say(log, false, "answers can be stored again in %s", log->folder);
    if (rc < 0 && err)
        *err = why;
    return rc;
}

int document_log_flush(struct document_log *log, struct quire_error *err)
{
    return write_and_sync(log, true, err);
}

/* ---- removing ---------------------------------------------------------------------------------------------------- */

static int unlink_segment(struct document_log *log, const struct document_log_segment *segment)
{
    char name[LOG_NAME_BYTES];
    document_log_segment_name(name, segment->number);
    char *path = document_log_path(log->folder, name);
    int rc = path ? log->fs->ops->unlink(log->fs, path) : QUIRE_ENOMEM;
    rc = rc == QUIRE_ENOFILE ? 0 : rc;
    if (rc < 0 && !log->remove_failing)
        document_log_say(log, true, "cannot remove %s/%s: %s; trying again", log->folder, name, quire_error_text(rc));
    log->remove_failing = rc < 0;
    log->names_dirty = true;
    free(path);
    return rc;
}

void document_log_remove_dead(struct document_log *log)
{
    struct document_log_segment *segment;
    uint64_t bytes;
    size_t i = 0;
    pthread_mutex_lock(&log->lock);
    bool pinned = log->pins > 0;
    pthread_mutex_unlock(&log->lock);
    if (pinned) /* what would be removed is, when they are gone */
        return;
    while ((segment = next_segment(log, NEXT_DEAD, &i, &bytes))) {
        if (segment->made && unlink_segment(log, segment) < 0)
            break;
        pthread_mutex_lock(&log->lock);
        assert(i > 0 && log->segments[i - 1] == segment && segment->documents == 0 && !segment->open);
        memmove(log->segments + i - 1, log->segments + i, (log->n_segments - i) * sizeof *log->segments);
        log->n_segments--;
        log->stats.removed_segments++;
        while (segment->queue.first)
            document_log_settle_first(log, segment);
        segment->gone = true;
        document_log_forget_segment(log, segment->number);
        pthread_mutex_unlock(&log->lock);
        segment->next_gone = log->gone;
        log->gone = segment;
        i--;
    }
    for (struct document_log_segment **at = &log->gone; *at;) {
        struct document_log_segment *gone = *at;
        pthread_mutex_lock(&log->lock);
        bool idle = gone->reads == 0;
        pthread_mutex_unlock(&log->lock);
        if (idle) {
            *at = gone->next_gone;
            document_log_free_segment(log, gone);
        } else {
            at = &gone->next_gone;
        }
    }
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

int document_log_round(struct document_log *log, struct quire_error *err)
{
    uint64_t now_ms = document_log_now_ms(log), now_ns = clock_ns();
    assert(lock_is_held(&log->work));
    pthread_mutex_lock(&log->lock);
    log->ripe = false;
    document_log_close_aged(log, now_ms);
    bool sync = log->failure.code < 0 || (log->dirty && now_ns - log->synced_ns >= SYNC_NS);
    pthread_mutex_unlock(&log->lock);
    document_log_remove_dead(log);
    int rc = write_and_sync(log, sync, err);
    if (rc == 0)
        rc = document_log_compact(log, err);
    pthread_mutex_lock(&log->lock);
    log->worked_ns = clock_ns();
    pthread_mutex_unlock(&log->lock);
    return rc;
}

/* When the next round is due. Under `lock`. */
static uint64_t next_round_ns(const struct document_log *log)
{
    uint64_t due = log->worked_ns + IDLE_NS;
    if (log->failure.code < 0)
        return log->worked_ns + RETRY_NS;
    if (log->ripe || log->stats.buffered_bytes >= LOG_WRITE_BYTES)
        return 0;
    if (log->stats.buffered_bytes > 0)
        due = due < log->filled_ns + GATHER_NS ? due : log->filled_ns + GATHER_NS;
    if (log->dirty)
        due = due < log->synced_ns + SYNC_NS ? due : log->synced_ns + SYNC_NS;
    return due;
}

void *document_log_thread(void *context)
{
    struct document_log *log = context;
    pthread_mutex_lock(&log->lock);
    while (!log->stop) {
        uint64_t due = next_round_ns(log);
        if (due > clock_ns()) {
            struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
            pthread_cond_timedwait(&log->wake, &log->lock, &until);
            continue;
        }
        pthread_mutex_unlock(&log->lock);
        pthread_mutex_lock(&log->work);
        document_log_round(log, NULL); /* what fails is in log->failure */
        pthread_mutex_unlock(&log->work);
        pthread_mutex_lock(&log->lock);
    }
    pthread_mutex_unlock(&log->lock);
    return NULL;
}
