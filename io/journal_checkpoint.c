/*
 * journal_checkpoint.c - the host's state in one file, in place of all logs before it; and snapshots.
 *
 * A checkpoint at L is written as checkpoint-<L>.tmp in chunks with a checksum each, ended by a frame that counts them,
 * synced, renamed, and the folder synced; only then older files go. At any moment the newest checkpoint that is there
 * under its name is whole, and every log from its L on is there.
 *
 * It is fuzzy: records are true up to LSNs that may lie behind L. Those frames are synced before it is published;
 * otherwise a power cut could take them back, their LSNs would be given to others, and those would be left out when
 * they are replayed over a record that seems to know them.
 *
 * Chunks are synced as they come, a few at a time: a file system would otherwise make the log's next sync wait for all
 * of the checkpoint.
 *
 * A snapshot needs no copy: closed files never change, so it is hard links to them, and an empty log behind the last
 * one, so that no log is missing (journal_read.c).
 */
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/journal_priv.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_BYTES      (1u << 20)
#define SYNC_EVERY_BYTES (16u << 20)

struct checkpoint {
    struct journal *journal;
    struct io_file *file;
    char *path, *temporary;
    uint64_t id, lsn;
    uint8_t *chunk; /* FRAME_HEADER_BYTES, then the payload */
    size_t filled, capacity;
    uint32_t n_records; /* in the chunk */
    uint64_t n_chunks, records;
    uint64_t written, unsynced;                /* bytes of the file */
    uint64_t older_log_bytes, older_log_files; /* that it makes useless */
    int failed;                                /* the first error of writing; it cannot be finished any more */
};

/* ---- one at a time ----------------------------------------------------------------------------------------------- */

static int begin_maintenance(struct journal *j, const char *what, struct quire_error *err)
{
    int rc = journal_check_no_batch(j, what, err);
    pthread_mutex_lock(&j->lock);
    if (rc == 0 && j->maintenance)
        rc = error_set(err, QUIRE_EBUSY, "%s: a checkpoint or a snapshot is being made in %s", what, j->folder);
    if (rc == 0)
        j->maintenance = true;
    pthread_mutex_unlock(&j->lock);
    return rc;
}

static void end_maintenance(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    assert(j->maintenance);
    j->maintenance = false;
    pthread_mutex_unlock(&j->lock);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int write_bytes(struct checkpoint *c, const void *bytes, size_t n, struct quire_error *err)
{
    c->failed = fs_write_exact(c->file, bytes, n, c->written, err);
    c->written += n;
    c->unsynced += n;
    if (c->failed == 0 && c->unsynced >= SYNC_EVERY_BYTES) {
        c->failed = fs_sync(c->file, err);
        c->unsynced = 0;
    }
    return c->failed;
}

static int write_chunk(struct checkpoint *c, struct quire_error *err)
{
    if (c->failed)
        return error_set(err, c->failed, "%s could not be written: begin another checkpoint", c->temporary);
    assert((c->n_records == 0) == (c->filled == FRAME_HEADER_BYTES));
    if (c->n_records == 0)
        return 0;
    size_t payload_bytes = c->filled - FRAME_HEADER_BYTES;
    struct frame_header header = {.magic = FRAME_MAGIC,
                                  .payload_bytes = (uint32_t)payload_bytes,
                                  .n_records = c->n_records,
                                  .file_id = c->id,
                                  .number = ++c->n_chunks,
                                  .payload_checksum = journal_checksum(c->chunk + FRAME_HEADER_BYTES, payload_bytes)};
    journal_frame_header(c->chunk, &header);
    size_t n = c->filled;
    c->filled = FRAME_HEADER_BYTES;
    c->records += c->n_records;
    c->n_records = 0;
    return write_bytes(c, c->chunk, n, err);
}

static int write_end(struct checkpoint *c, struct quire_error *err)
{
    uint8_t end[FRAME_HEADER_BYTES];
    assert(c->n_records == 0 && !c->failed);
    journal_frame_header(end, &(struct frame_header){.magic = END_MAGIC,
                                                     .file_id = c->id,
                                                     .number = c->n_chunks + 1,
                                                     .known = c->records,
                                                     .payload_checksum = journal_checksum(NULL, 0)});
    int rc = write_bytes(c, end, sizeof end, err);
    return rc == 0 ? fs_sync(c->file, err) : rc;
}

static void checkpoint_free(struct checkpoint *c)
{
    fs_close(c->file);
    free(c->path);
    free(c->temporary);
    free(c->chunk);
    free(c);
}

static int checkpoint_create(struct checkpoint *c, struct quire_error *err)
{
    struct journal *j = c->journal;
    uint8_t header[FILE_HEADER_BYTES];
    c->path = journal_path(j->folder, NAME_CHECKPOINT, c->lsn, false);
    c->temporary = journal_path(j->folder, NAME_CHECKPOINT, c->lsn, true);
    c->capacity = FRAME_HEADER_BYTES + CHUNK_BYTES;
    c->chunk = malloc(c->capacity);
    c->filled = FRAME_HEADER_BYTES;
    if (!c->path || !c->temporary || !c->chunk)
        return error_set(err, QUIRE_ENOMEM, "no memory to write a checkpoint in %s", j->folder);
    j->fs->ops->unlink(j->fs, c->temporary); /* of one that was given up */
    int rc = journal_random_id(&c->id, err);
    if (rc == 0)
        rc = fs_open(j->fs, c->temporary, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &c->file, err);
    if (rc < 0)
        return rc;
    journal_file_header(header, CHECKPOINT_MAGIC, c->id, c->lsn);
    return write_bytes(c, header, sizeof header, err);
}

int journal_checkpoint_begin(struct journal *j, struct checkpoint **out, struct quire_error *err)
{
    int rc = begin_maintenance(j, "a checkpoint", err);
    if (rc < 0)
        return rc;
    struct checkpoint *c = calloc(1, sizeof *c);
    if (!c) {
        end_maintenance(j);
        return error_set(err, QUIRE_ENOMEM, "no memory to write a checkpoint in %s", j->folder);
    }
    c->journal = j;
    rc = journal_rotate(j, &c->lsn, err);
    if (rc == 0) {
        pthread_mutex_lock(&j->lock);
        c->older_log_bytes = j->closed_log_bytes;
        c->older_log_files = j->closed_log_files;
        pthread_mutex_unlock(&j->lock);
        rc = checkpoint_create(c, err);
    }
    if (rc < 0)
        journal_checkpoint_abort(c);
    else
        *out = c;
    return rc;
}

int journal_checkpoint_put(struct checkpoint *c, uint8_t kind, uint64_t lsn, const void *bytes, uint32_t n,
                           struct quire_error *err)
{
    size_t need = RECORD_HEADER_BYTES + sizeof lsn + journal_record_padded(n);
    if (n > JOURNAL_RECORD_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "a record of %u bytes: a checkpoint takes up to %u in one; split it", n,
                         JOURNAL_RECORD_BYTES_MAX);
    if (c->failed || c->filled + need > FRAME_HEADER_BYTES + CHUNK_BYTES) {
        int rc = write_chunk(c, err);
        if (rc < 0)
            return rc;
    }
    if (!array_reserve(&c->chunk, &c->capacity, c->filled + need))
        return error_set(err, QUIRE_ENOMEM, "no memory for a record of %u bytes", n);
    c->filled = (size_t)(journal_put_record(c->chunk + c->filled, kind, &lsn, bytes, n) - c->chunk);
    c->n_records++;
    assert(c->filled <= c->capacity);
    return 0;
}

void journal_checkpoint_abort(struct checkpoint *c)
{
    struct journal *j = c->journal;
    if (c->file)
        j->fs->ops->unlink(j->fs, c->temporary);
    checkpoint_free(c);
    end_maintenance(j);
}

static int publish(const struct checkpoint *c, struct quire_error *err)
{
    struct journal *j = c->journal;
    int rc = j->fs->ops->rename(j->fs, c->temporary, c->path);
    if (rc == 0)
        rc = j->fs->ops->sync_dir(j->fs, j->folder);
    return rc < 0 ? error_set(err, rc, "cannot publish %s: %s", c->path, quire_error_text(rc)) : 0;
}

/* A folder that cannot be synced after the rename leaves a whole checkpoint with all its logs, which an opening may use
 * or not. */
int journal_checkpoint_finish(struct checkpoint *c, struct quire_error *err)
{
    struct journal *j = c->journal;
    int rc = write_chunk(c, err);
    if (rc == 0)
        rc = write_end(c, err);
    if (rc == 0)
        rc = journal_sync(j, err);
    if (rc == 0)
        rc = publish(c, err);
    if (rc < 0) {
        journal_checkpoint_abort(c);
        return rc;
    }
    journal_remove_older(j->fs, j->folder, c->lsn, false);
    pthread_mutex_lock(&j->lock);
    assert(j->maintenance && j->stats.checkpoint_lsn <= c->lsn);
    assert(j->closed_log_bytes >= c->older_log_bytes && j->closed_log_files >= c->older_log_files);
    j->closed_log_bytes -= c->older_log_bytes;
    j->closed_log_files -= c->older_log_files;
    j->stats.checkpoint_lsn = c->lsn;
    j->stats.checkpoint_bytes = c->written;
    j->stats.checkpoints++;
    pthread_mutex_unlock(&j->lock);
    checkpoint_free(c);
    end_maintenance(j);
    return 0;
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

static int link_one(const struct journal *j, const char *to, enum journal_name kind, uint64_t lsn,
                    struct quire_error *err)
{
    char *old = journal_path(j->folder, kind, lsn, false), *new = journal_path(to, kind, lsn, false);
    int rc = old && new ? j->fs->ops->link(j->fs, old, new) : QUIRE_ENOMEM;
    if (rc < 0)
        error_set(err, rc, "cannot link %s to %s: %s", old ? old : j->folder, new ? new : to, quire_error_text(rc));
    free(old);
    free(new);
    return rc;
}

int journal_snapshot(struct journal *j, const char *to, uint64_t *lsn, struct quire_error *err)
{
    struct journal_files files = {0};
    uint64_t next = 0, checkpoint = 0;
    int rc = begin_maintenance(j, "a snapshot", err);
    if (rc < 0)
        return rc;
    rc = journal_rotate(j, &next, err);
    if (rc == 0) {
        pthread_mutex_lock(&j->lock);
        checkpoint = j->stats.checkpoint_lsn;
        pthread_mutex_unlock(&j->lock);
        rc = journal_list(j->fs, j->folder, &files, err);
    }
    if (rc == 0 && checkpoint)
        rc = link_one(j, to, NAME_CHECKPOINT, checkpoint, err);
    for (unsigned i = 0; rc == 0 && i < files.n_logs; i++)
        if (files.logs[i] >= checkpoint && files.logs[i] < next)
            rc = link_one(j, to, NAME_LOG, files.logs[i], err);
    if (rc == 0)
        rc = journal_log_empty(j->fs, to, next, err);
    journal_files_free(&files);
    end_maintenance(j);
    if (rc == 0)
        *lsn = next - 1;
    return rc;
}
