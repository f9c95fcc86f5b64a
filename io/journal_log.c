/*
 * journal_log.c - one log file: made, written, marked, ended.
 *
 * A log is made under a temporary name and gets its own when its header is synced, so a log that is there has a whole
 * header. Space is reserved in steps: a full disk shows before a write is half done, and a sync need not write a new
 * file size each time. On a disk without space for a whole step smaller ones are tried, down to 4 MiB.
 *
 * Marks: a log ends somewhere, and what a damage cuts off behind its last frame looks like a torn write. So each frame
 * says what was durable before it, and now and then (journal_writer.c) a mark in the log's second page says it too,
 * where nothing that happens to the end of the file reaches it. A mark is written after the sync that it speaks of and
 * needs no sync of its own: one that is on the disk is true. What no mark and no frame could tell yet, the frames of
 * the last second at most, cannot be told from torn ones.
 */
#include "io/clock.h"
#include "io/error.h"
#include "io/journal_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BYTES_MAX (16u << 20)
#define STEP_BYTES_MIN (4u << 20)

/* ---- space ------------------------------------------------------------------------------------------------------- */

static int reserve(struct log_file *log, uint64_t bytes, struct quire_error *err)
{
    uint64_t capacity = log->allocated;
    int rc = 0;
    while (log->allocated < bytes) {
        capacity = bytes > log->allocated + log->step ? bytes : log->allocated + log->step;
        rc = log->file->fs->ops->allocate(log->file, capacity);
        if (rc == 0)
            log->allocated = capacity;
        else if (rc == QUIRE_ENOSPACE && log->step / 2 >= STEP_BYTES_MIN)
            log->step /= 2;
        else
            break;
    }
    return rc < 0 ? error_set(err, rc, "cannot reserve %llu bytes for %s: %s%s", (unsigned long long)capacity,
                              log->file->path, quire_error_text(rc),
                              rc == QUIRE_ENOSPACE ? ": make room or choose another disk" : "")
                  : 0;
}

/* What is appended from now on is promised to be written, under EVERYSEC and NO before it is. Half a step is always
 * there, unless this fails: then nothing more is taken, and what was taken has space. */
int journal_log_reserve_ahead(struct log_file *log, struct quire_error *err)
{
    if (!log->file || log->allocated >= log->bytes + log->step / 2)
        return 0;
    return reserve(log, log->bytes + log->step / 2, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int write_out(struct log_out *out, struct log_file *log, const void *bytes, size_t n, struct quire_error *err)
{
    int rc = n ? fs_write_exact(log->file, bytes, n, log->bytes, err) : 0;
    if (rc == 0 && n) {
        log->bytes += n;
        out->counted.writes++;
        out->counted.bytes += n;
    }
    return rc;
}

int journal_log_write(struct log_out *out, struct log_file *log, struct frame *frame, const struct frame *last,
                      uint64_t known, struct quire_error *err)
{
    size_t filled = 0;
    uint64_t total = 0;
    int rc = 0;
    for (const struct frame *f = frame; f; f = f == last ? NULL : f->next)
        total += f->n_bytes;
    rc = reserve(log, log->bytes + total, err);
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
            rc = write_out(out, log, out->buffer, filled, err);
            filled = 0;
        }
        if (rc == 0 && frame->n_bytes > BUFFER_BYTES) {
            rc = write_out(out, log, frame->bytes, frame->n_bytes, err);
        } else if (rc == 0) {
            memcpy(out->buffer + filled, frame->bytes, frame->n_bytes);
            filled += frame->n_bytes;
        }
        out->counted.frames++;
    }
    return rc == 0 ? write_out(out, log, out->buffer, filled, err) : rc;
}

int journal_log_sync(struct journal *j, struct log_out *out, const struct log_file *log, struct quire_error *err)
{
    uint64_t started = clock_us();
    int rc = fs_sync(log->file, err);
    uint64_t us = clock_us() - started;
    out->counted.syncs++;
    out->counted.sync_us += us;
    out->counted.sync_us_max = us > out->counted.sync_us_max ? us : out->counted.sync_us_max;
    if (us > atomic_load(&j->recent_sync_us))
        atomic_store(&j->recent_sync_us, us);
    return rc;
}

int journal_log_mark(struct log_out *out, struct log_file *log, uint64_t known, struct quire_error *err)
{
    uint8_t mark[FRAME_HEADER_BYTES];
    assert(known >= log->first_lsn && known > log->marked_lsn);
    journal_frame_header(mark, &(struct frame_header){.magic = MARK_MAGIC,
                                                      .file_id = log->id,
                                                      .number = log->n_marks + 1,
                                                      .known = known,
                                                      .payload_checksum = journal_checksum(NULL, 0)});
    uint64_t at = LOG_MARKS_AT + (log->n_marks + 1) % LOG_MARKS * LOG_MARK_STEP;
    int rc = fs_write_exact(log->file, mark, sizeof mark, at, err);
    if (rc < 0)
        return rc;
    out->counted.writes++;
    out->counted.bytes += sizeof mark;
    log->n_marks++;
    log->marked_lsn = known;
    return 0;
}

/* ---- beginning and ending ---------------------------------------------------------------------------------------- */

static int write_head(struct log_out *out, struct log_file *log, struct quire_error *err)
{
    uint8_t head[LOG_FRAMES_AT] = {0};
    assert(log->bytes == 0);
    journal_file_header(head, LOG_MAGIC, log->id, log->first_lsn);
    return write_out(out, log, head, sizeof head, err);
}

static int create(struct io_fs *fs, const char *path, struct log_file *log, struct quire_error *err)
{
    fs->ops->unlink(fs, path); /* of a try that failed */
    int rc = journal_random_id(&log->id, err);
    return rc == 0 ? fs_open(fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &log->file, err) : rc;
}

int journal_log_prepare(struct journal *j, struct log_out *out, struct log_file *log, struct frame *frame,
                        const struct frame *last, struct quire_error *err)
{
    char *path = journal_path(j->folder, NAME_LOG, log->first_lsn, true);
    assert(log->first_lsn > 0 && !log->file && (!frame || frame->lsn == log->first_lsn));
    log->step = j->options.file_bytes < STEP_BYTES_MAX ? j->options.file_bytes : STEP_BYTES_MAX;
    int rc = path ? create(j->fs, path, log, err)
                  : error_set(err, QUIRE_ENOMEM, "no memory to begin a log in %s", j->folder);
    if (rc == 0)
        rc = reserve(log, LOG_FRAMES_AT, err);
    if (rc == 0)
        rc = write_head(out, log, err);
    if (rc == 0 && frame)
        rc = journal_log_write(out, log, frame, last, log->first_lsn - 1, err);
    if (rc == 0)
        rc = journal_log_sync(j, out, log, err);
    if (rc < 0)
        journal_log_discard(j, log);
    free(path);
    return rc;
}

int journal_log_rename(struct journal *j, const struct log_file *log, struct quire_error *err)
{
    char *path = journal_path(j->folder, NAME_LOG, log->first_lsn, false);
    int rc = path ? j->fs->ops->rename(j->fs, log->file->path, path) : QUIRE_ENOMEM;
    if (rc < 0)
        error_set(err, rc, "cannot publish %s: %s", log->file->path, quire_error_text(rc));
    free(path);
    return rc;
}

void journal_log_discard(struct journal *j, struct log_file *log)
{
    if (log->file) {
        j->fs->ops->unlink(j->fs, log->file->path);
        fs_close(log->file);
    }
    *log = (struct log_file){.file = NULL};
}

int journal_begin_log(struct journal *j, uint64_t first_lsn, struct frame *frame, const struct frame *last,
                      struct quire_error *err)
{
    struct log_file log = {.first_lsn = first_lsn};
    assert(!frame || (frame->lsn == first_lsn && last->lsn >= first_lsn));
    int rc = journal_log_prepare(j, &j->writer_out, &log, frame, last, err);
    if (rc < 0)
        return rc;
    rc = journal_log_rename(j, &log, err);
    if (rc == 0 && (rc = j->fs->ops->sync_dir(j->fs, j->folder)) < 0)
        error_set(err, rc, "cannot sync %s, which has a new log: %s", j->folder, quire_error_text(rc));
    if (rc < 0)
        journal_log_discard(j, &log);
    else
        j->log = log;
    return rc;
}

static int write_end(struct log_out *out, struct log_file *log, uint64_t next_lsn, bool followed,
                     struct quire_error *err)
{
    uint8_t end[FRAME_HEADER_BYTES];
    journal_frame_header(end, &(struct frame_header){.magic = END_MAGIC,
                                                     .n_records = followed,
                                                     .file_id = log->id,
                                                     .number = next_lsn,
                                                     .known = next_lsn - 1,
                                                     .payload_checksum = journal_checksum(NULL, 0)});
    return write_out(out, log, end, sizeof end, err);
}

int journal_log_end(struct journal *j, struct log_out *out, struct log_file *log, uint64_t bytes, uint64_t next_lsn,
                    bool followed, struct quire_error *err)
{
    assert(bytes >= LOG_FRAMES_AT && bytes <= log->bytes && next_lsn >= log->first_lsn);
    int rc = log->file->fs->ops->truncate(log->file, bytes);
    if (rc < 0)
        return error_set(err, rc, "cannot cut %s to its %llu bytes: %s", log->file->path, (unsigned long long)bytes,
                         quire_error_text(rc));
    log->bytes = bytes;
    rc = write_end(out, log, next_lsn, followed, err);
    if (rc == 0 && next_lsn - 1 >= log->first_lsn && next_lsn - 1 > log->marked_lsn)
        rc = journal_log_mark(out, log, next_lsn - 1, err);
    return rc == 0 ? journal_log_sync(j, out, log, err) : rc;
}

int journal_log_empty(struct io_fs *fs, const char *folder, uint64_t first_lsn, struct quire_error *err)
{
    struct log_out out = {.buffer = NULL};
    struct log_file log = {.first_lsn = first_lsn};
    char *path = journal_path(folder, NAME_LOG, first_lsn, false);
    int rc = path ? create(fs, path, &log, err)
                  : error_set(err, QUIRE_ENOMEM, "no memory to write the last log of %s", folder);
    if (rc == 0)
        rc = write_head(&out, &log, err);
    if (rc == 0)
        rc = write_end(&out, &log, first_lsn, false, err);
    if (rc == 0)
        rc = fs_sync(log.file, err);
    fs_close(log.file);
    free(path);
    return rc;
}
