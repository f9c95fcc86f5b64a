/*
 * journal.h - the write-ahead log of a data folder, and the checkpoints that keep it short.
 *
 * A frame is what is durable together or not at all: one or more records under one checksum and one number, the LSN
 * (log sequence number: 1, 2, 3, ... without gaps). A record has a kind (the host's) and bytes. The state of a folder
 * is: the newest whole checkpoint, then every frame from the checkpoint's LSN on. A checkpoint is fuzzy: it is
 * written while frames are appended, and each of its records carries the LSN up to which it is true, so that the host
 * leaves out what a frame says that the record knows already.
 *
 * Files, all made under a temporary name and renamed when they are synced, never changed after they were closed:
 *   log-<first LSN, 20 digits>         frames
 *   checkpoint-<first LSN to replay>   records
 * Opening never writes to an existing file: it begins a new log, so that a snapshot may hold hard links to the old
 * ones.
 *
 * Threads: two belong to the journal; one writes, the other syncs where nobody waits for it. Appending copies bytes
 * under a short lock and touches no disk. Everything durable goes through an io_fs.
 */
#ifndef QUIRE_IO_JOURNAL_H
#define QUIRE_IO_JOURNAL_H

#include "io/fs.h"

struct journal;
struct checkpoint;

#define JOURNAL_RECORD_BYTES_MAX (1u << 30)
#define JOURNAL_FRAME_BYTES_MAX  (1u << 31) /* all records of one frame, with 8 to 15 bytes for each */
#define JOURNAL_DELAY_US_MAX     2000000u   /* that a write may take before nothing more is promised, as in Redis */

enum journal_sync {
    JOURNAL_ALWAYS,   /* a frame counts as durable when it was synced; frames that wait share one sync */
    JOURNAL_EVERYSEC, /* written within a millisecond or two, also while a sync is under way; synced every second */
    JOURNAL_NO        /* written within a millisecond or two, synced when a file ends */
};

struct journal_options {
    enum journal_sync sync;
    uint64_t file_bytes; /* a log file is ended beyond this; 0: 64 MiB */
    uint64_t
        buffer_bytes;   /* of frames in memory that are not written yet, and twice that of those not synced yet; beyond
                         it appending is refused (QUIRE_EBUSY); 0: 64 MiB */
    bool no_priorities; /* the writer asks for no time slices of its own: a filter of system calls may end who does */
};

/* Who gets what a folder holds, in order, when it is opened. A negative answer ends the opening. Bytes are valid during
 * the call. */
struct journal_reader {
    /* a record of the checkpoint, true up to `lsn` */
    int (*restore)(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                   struct quire_error *err);
    /* a record of the log; records of one frame come one after the other with the same LSN */
    int (*replay)(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err);
    void *context;
};

struct journal_report {
    uint64_t checkpoint_lsn, checkpoint_records, checkpoint_bytes; /* lsn 0: there was none */
    uint64_t frames, records, log_bytes, log_files;                /* replayed */
    uint64_t torn_bytes;                                           /* at the end of the last log: never acknowledged */
    uint64_t last_lsn;
    uint64_t duration_us;
};

/* Opens the journal of an existing folder, new or old, replays it and starts a log. Errors: QUIRE_ECORRUPT where a
 * frame is damaged or missing that was durable, as later ones, a mark, the next log or the checkpoint show (file,
 * offset and LSNs named, remedy: repair), those of the reader and of the file system. What the last log has behind
 * its first invalid frame is torn otherwise, and ignored for ever. What is replayed is durable. One journal per
 * folder at a time: the caller sees to it. */
int journal_open(struct io_fs *fs, const char *folder, const struct journal_options *options,
                 const struct journal_reader *reader, struct journal **out, struct journal_report *report,
                 struct quire_error *err);
/* Writes and syncs what was appended, ends the thread. QUIRE_E... if that failed: frames were lost. NULL is fine. */
int journal_close(struct journal *journal, struct quire_error *err);

struct journal_record {
    uint8_t kind;
    const void *bytes; /* copied */
    uint32_t n_bytes;
};

/* Appends a frame of n records; *lsn gets its number. Any thread; no disk. Errors: what a failed write or sync left
 * (QUIRE_ENOSPACE, QUIRE_EIO: the journal tries again by itself and takes frames as soon as that succeeds; nothing
 * appended before is forgotten), QUIRE_EBUSY (too much waits for the disk, or, but under ALWAYS, the disk has not taken
 * a write for JOURNAL_DELAY_US_MAX), QUIRE_ENOMEM, QUIRE_ELIMIT. In a batch only the last two: it was let in as a
 * whole. */
int journal_append(struct journal *journal, const struct journal_record *records, unsigned n, uint64_t *lsn,
                   struct quire_error *err);

/* Between the two calls every append of this thread to this journal joins one frame, whose LSN each of them gets. Other
 * threads' frames may be appended meanwhile; they are not written before. An empty batch leaves an empty frame. No
 * nesting. */
int journal_batch_begin(struct journal *journal, struct quire_error *err);
int journal_batch_end(struct journal *journal, uint64_t *lsn, struct quire_error *err);
/* Whether this thread has a batch open. */
bool journal_in_batch(const struct journal *journal);
/* Between the two no batch is open: what is read then never holds half of one. begin waits for batches that are. The
 * host sees to it that what a batch writes about nobody else writes about meanwhile. */
void journal_quiesce_begin(struct journal *journal);
void journal_quiesce_end(struct journal *journal);

/* The last LSN given out; the last one that may be acknowledged (under ALWAYS: synced; otherwise: given out). */
uint64_t journal_last_lsn(const struct journal *journal);
uint64_t journal_durable_lsn(const struct journal *journal);
/* Blocks until `lsn` may be acknowledged. Not for lanes. An error where that cannot be reached now. */
int journal_wait(struct journal *journal, uint64_t lsn, struct quire_error *err);
/* notify runs on the writer's thread whenever journal_durable_lsn has advanced or the journal's health has changed.
 * Before the first append. */
void journal_on_durable(struct journal *journal, void (*notify)(void *context), void *context);
/* For those who answer before frames are written (EVERYSEC, NO), each time before answers go out: writes what has
 * waited for three milliseconds, because the writer has not got a processor. now_us: of clock_us, not long ago. Reads
 * one number where nothing is late, and does nothing while the writer is at the disk. */
void journal_help(struct journal *journal, uint64_t now_us);
/* 0, or why frames are refused at present. Cheap. */
int journal_health(const struct journal *journal, struct quire_error *err);
int journal_set_sync(struct journal *journal, enum journal_sync sync);
/* Everything appended before is synced on return, whatever the mode. Blocks. */
int journal_sync(struct journal *journal, struct quire_error *err);

struct journal_stats {
    uint64_t frames, bytes, writes, syncs, sync_us, sync_us_max;
    uint64_t delayed;              /* appends that were refused since the disk had not taken a write for too long */
    uint64_t helped;               /* writes in the writer's place */
    uint64_t unwritten_bytes;      /* in memory */
    uint64_t log_bytes, log_files; /* since the checkpoint, on disk */
    uint64_t checkpoint_lsn, checkpoint_bytes, checkpoints, failures;
};
void journal_get_stats(const struct journal *journal, struct journal_stats *out);
/* How long the longest sync took since the last call, in microseconds; 0: there was none. For one watcher. */
uint64_t journal_take_sync_us(struct journal *journal);

/* A checkpoint: begin ends the current log file and starts another at LSN L; put writes the host's state, in any number
 * of records; finish syncs, also the frames appended so far, publishes it, and removes the logs before L and the older
 * checkpoint. L is the first LSN that is replayed after it (journal_stats.checkpoint_lsn). One at a time (QUIRE_EBUSY).
 * From one maintenance thread; appends go on meanwhile. */
int journal_checkpoint_begin(struct journal *journal, struct checkpoint **out, struct quire_error *err);
int journal_checkpoint_put(struct checkpoint *checkpoint, uint8_t kind, uint64_t lsn, const void *bytes, uint32_t n,
                           struct quire_error *err);
int journal_checkpoint_finish(struct checkpoint *checkpoint, struct quire_error *err); /* frees it, also on failure */
void journal_checkpoint_abort(struct checkpoint *checkpoint);                          /* as if it had never begun */

/* Ends the current log file and makes hard links to the checkpoint and all closed logs in the existing folder `to`:
 * opened, it has the state of LSN *lsn. The caller syncs `to`. QUIRE_EBUSY while a checkpoint is written. */
int journal_snapshot(struct journal *journal, const char *to, uint64_t *lsn, struct quire_error *err);

/* Around a fork, by the thread that forks. quiesce waits until no batch of another thread is open and lets none begin;
 * if the thread itself has one open, all go on. Then prepare takes the journal's lock, last of all locks, and one of
 * parent and child follows. In the child, which has none of the threads, appending is refused (QUIRE_ECLOSED), and
 * nothing but that and what reads numbers may be called. */
void journal_fork_quiesce(struct journal *journal);
void journal_fork_prepare(struct journal *journal);
void journal_fork_parent(struct journal *journal);
void journal_fork_child(struct journal *journal);

/* Reads a folder's journal without opening it for writing: every frame and record is checked and given to the reader
 * (may be NULL). With `salvage` damaged parts are left out instead of ending it, each with a call of lost. Not while it
 * is open for writing. */
int journal_read(struct io_fs *fs, const char *folder, const struct journal_reader *reader, bool salvage,
                 void (*lost)(void *context, const char *sentence), void *lost_context, struct journal_report *report,
                 struct quire_error *err);

#endif
