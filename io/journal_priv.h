/*
 * journal_priv.h - what the files of the journal share: bytes on disk, log files, the journal itself.
 *
 * Log and checkpoint files are alike: a file header of 64 bytes, then frames; a log has a page for its marks between
 * the two. docs/format.md has every byte; the places of the fields are here, once.
 */
#ifndef QUIRE_IO_JOURNAL_PRIV_H
#define QUIRE_IO_JOURNAL_PRIV_H

#include "io/journal.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define BUFFER_BYTES (1u << 20) /* of one write */

/* No LSN is greater: a number read that is was forged, and what would be the next one must not run over. */
#define LSN_MAX ((uint64_t)INT64_MAX)

/* ---- bytes on disk ----------------------------------------------------------------------------------------------- */

#define LOG_MAGIC          "QUIRELOG"
#define CHECKPOINT_MAGIC   "QUIRECKP"
#define LOG_VERSION        2u
#define CHECKPOINT_VERSION 1u

enum file_header_at { FILE_VERSION_AT = 8, FILE_ID_AT = 16, FILE_FIRST_AT = 24, FILE_CHECKSUM_AT = 56 };
enum { FILE_HEADER_BYTES = 64 };

#define FRAME_MAGIC 0x4d524651u /* bytes "QFRM": records */
#define END_MAGIC   0x444e4551u /* bytes "QEND": the file was ended on purpose, nothing follows */
#define MARK_MAGIC  0x4b524d51u /* bytes "QMRK": what was durable, in a log's page of marks */

/* number: the LSN, or of a checkpoint's chunk 1, 2, ..., of a mark 1, 2, ...; known: every frame up to this LSN was
 * durable when this one was written, or of a checkpoint's end the number of records. records: of a log's end 1 where
 * the next log was there before. */
enum frame_header_at {
    FRAME_MAGIC_AT = 0,
    FRAME_PAYLOAD_BYTES_AT = 4,
    FRAME_FILE_ID_AT = 8,
    FRAME_NUMBER_AT = 16,
    FRAME_KNOWN_AT = 24,
    FRAME_RECORDS_AT = 32,
    FRAME_HEADER_CHECKSUM_AT = 36, /* lower 32 bits, of the header with zero here */
    FRAME_PAYLOAD_CHECKSUM_AT = 40
};
enum { FRAME_HEADER_BYTES = 48 };

/* A log: the header in a page of its own, two places for marks in the next, then frames. Marks are written in place,
 * one after the other in turn, so that a torn one leaves the one before it; nothing else shares their page. */
enum { LOG_MARKS_AT = 4096, LOG_MARK_STEP = 2048, LOG_MARKS = 2, LOG_FRAMES_AT = 8192 };

/* A record in a payload: u32 bytes, u8 kind, 3 zero, in a checkpoint u64 LSN, the bytes, zero up to a multiple of 8. */
enum { RECORD_HEADER_BYTES = 8, RECORD_ALIGN = 8 };

static inline uint64_t journal_record_padded(uint64_t bytes)
{
    return (bytes + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

/* Writes a file's header. */
void journal_file_header(uint8_t header[FILE_HEADER_BYTES], const char *magic, uint64_t id, uint64_t first_lsn);
uint32_t journal_file_version(const char *magic);
/* Writes a record's header, bytes and padding; returns what is behind it. lsn: NULL in a log. */
uint8_t *journal_put_record(uint8_t *at, uint8_t kind, const uint64_t *lsn, const void *bytes, uint32_t n);

struct frame_header {
    uint32_t magic, payload_bytes, n_records;
    uint64_t file_id, number, known, payload_checksum;
};
void journal_frame_header(uint8_t *at, const struct frame_header *header);
uint64_t journal_checksum(const void *bytes, size_t n);
/* A number that no other file has; not 0. */
int journal_random_id(uint64_t *id, struct quire_error *err);

/* ---- names ------------------------------------------------------------------------------------------------------- */

enum journal_name { NAME_OTHER, NAME_LOG, NAME_CHECKPOINT, NAME_TEMPORARY };

/* folder/log-<lsn>, folder/checkpoint-<lsn>, with ".tmp" behind it if asked for; owned by the caller. NULL without
 * memory. */
char *journal_path(const char *folder, enum journal_name kind, uint64_t lsn, bool temporary);

struct journal_files {
    uint64_t *logs, *checkpoints; /* LSNs, ascending */
    uint32_t n_logs, n_checkpoints, logs_capacity, checkpoints_capacity;
};
int journal_list(struct io_fs *fs, const char *folder, struct journal_files *out, struct quire_error *err);
void journal_files_free(struct journal_files *files);
/* Removes what a checkpoint at `lsn` made useless: older logs and checkpoints, and with `temporary` half-made files.
 * What cannot be removed does no harm: the next checkpoint or opening tries again. */
void journal_remove_older(struct io_fs *fs, const char *folder, uint64_t lsn, bool temporary);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct recovery {
    uint64_t checkpoint_lsn, checkpoint_bytes;
    uint64_t next_lsn;             /* behind the last valid frame */
    uint64_t known_lsn;            /* the last that a record of the checkpoint knows */
    uint64_t log_bytes, log_files; /* from the checkpoint on, as they lie on the disk */
};

/* One walk over a folder, for journal_open and journal_read. */
struct walk {
    struct io_fs *fs;
    const char *folder;
    const struct journal_reader *reader;
    bool salvage;
    bool sync; /* each file before it is read */
    void (*lost)(void *context, const char *sentence);
    void *lost_context;
    struct journal_report *report;
};
int journal_walk(const struct walk *walk, struct recovery *out, struct quire_error *err);

/* ---- frames ------------------------------------------------------------------------------------------------------ */

/* A frame in memory. The journal's lock guards next, lsn and closed; the bytes belong to who appends until it is
 * closed, then to the writer. */
struct frame {
    struct frame *next;
    uint64_t lsn;
    uint8_t *bytes; /* FRAME_HEADER_BYTES, then the payload; behind the struct or, of a batch, its own memory */
    size_t n_bytes, capacity;
    uint32_t n_records;
    uint64_t payload_checksum;
    bool closed;
};

/* ---- log files (journal_log.c): without the lock, by who owns the struct ----------------------------------------- */

struct log_file {
    struct io_file *file; /* NULL: none */
    uint64_t id, first_lsn, bytes, allocated;
    uint64_t step; /* of reserving; less on a disk that is nearly full */
    uint64_t n_marks, marked_lsn;
};

/* What a thread that writes logs has for itself. */
struct log_out {
    uint8_t *buffer;              /* BUFFER_BYTES: what one write gathers */
    struct journal_stats counted; /* not added to the journal's yet */
};

struct journal;

/* Makes space ahead of what is written. */
int journal_log_reserve_ahead(struct log_file *log, struct quire_error *err);
/* Writes the frames from `frame` to `last`; known: the last LSN that is durable. */
int journal_log_write(struct log_out *out, struct log_file *log, struct frame *frame, const struct frame *last,
                      uint64_t known, struct quire_error *err);
int journal_log_sync(struct journal *journal, struct log_out *out, const struct log_file *log, struct quire_error *err);
/* Writes that all up to `known` is durable; the next sync, or the system, takes it to the disk. */
int journal_log_mark(struct log_out *out, struct log_file *log, uint64_t known, struct quire_error *err);
/* All of a new log but its final name: header, frames, sync. log->first_lsn is set. On failure nothing is left. */
int journal_log_prepare(struct journal *journal, struct log_out *out, struct log_file *log, struct frame *frame,
                        const struct frame *last, struct quire_error *err);
/* Gives a prepared log its name. Durable once the folder is synced. */
int journal_log_rename(struct journal *journal, const struct log_file *log, struct quire_error *err);
/* Closes a prepared log and removes it. */
void journal_log_discard(struct journal *journal, struct log_file *log);
/* Cuts a log at `bytes`, all before which is synced, and writes and syncs its end. followed: the log that begins at
 * next_lsn is durable. */
int journal_log_end(struct journal *journal, struct log_out *out, struct log_file *log, uint64_t bytes,
                    uint64_t next_lsn, bool followed, struct quire_error *err);
/* Makes an empty log that is ended: for a snapshot, behind all that it has. Synced. */
int journal_log_empty(struct io_fs *fs, const char *folder, uint64_t first_lsn, struct quire_error *err);

/* ---- the journal ------------------------------------------------------------------------------------------------- */

/* Slow work on log files, one at a time: of the syncer's thread, or of the writer's where somebody waits for it. What
 * it needs is copied here when it begins. */
enum job_kind {
    JOB_NONE,
    JOB_SYNC,    /* of the log, up to `lsn` */
    JOB_PREPARE, /* of the next log, which begins behind `lsn`: the sync before, then header and frames, and a sync */
    JOB_PUBLISH  /* of the log that has taken the place of old_log: names, frames up to `lsn`; and of old_log the end */
};
struct job {
    enum job_kind kind; /* JOB_NONE: none runs */
    bool background;    /* the syncer runs it, or is about to */
    uint64_t lsn;
    struct log_file log;
    int rc; /* of the last one: < 0 until the writer has looked at it */
    struct quire_error err;
};

struct journal {
    struct io_fs *fs;
    char *folder;
    struct journal_options options; /* but for sync: below */
    pthread_t thread, syncer;
    struct log_out writer_out, syncer_out;
    /* The log that takes frames; one that is ready to take its place, under its temporary name; and one whose place was
     * taken. The writer's, and the job's as far as it says. */
    struct log_file log, next_log, old_log;
    uint64_t old_bytes; /* where old_log, or log while the next one is prepared, is to end */
    void (*notify)(void *context);
    void *notify_context;

    pthread_mutex_t lock;
    pthread_cond_t work;    /* to the writer */
    pthread_cond_t jobs;    /* to the syncer */
    pthread_cond_t changed; /* from both, and from who ends a batch or a quiesce */
    bool writer_waits, stopping;
    bool stepping; /* the writer, or a helper in its place, carries out a step */
    bool syncer_stops;
    struct job job;

    struct frame *first, *last; /* in memory, by LSN */
    struct frame *unwritten;    /* the first of them that is not written */
    uint64_t written_lsn;       /* to the operating system */
    uint64_t unwritten_bytes;   /* of closed frames */
    uint64_t held_bytes;        /* of frames that are written and still needed */
    uint64_t kept_lsn;          /* frames behind it are needed for the next log; UINT64_MAX: there is none */
    uint64_t next_lsn_copied;   /* the last frame that next_log has */
    uint64_t wrote_us;          /* when the last write began */
    int write_rc;               /* of the last one: < 0 until the writer has looked at it */
    struct quire_error write_err;
    uint64_t busy_us;             /* since when the writer waits for the disk; 0: it does not */
    uint64_t sync_lsn;            /* journal_sync wants it synced up to here */
    uint64_t rotate_lsn;          /* a log is to begin at this LSN or later; 0: none is asked for */
    uint64_t rotated_lsn;         /* where the last log began that is durable, with all before it */
    uint64_t synced_us, retry_us; /* when the last sync began; when to try again */
    uint64_t rested_us;           /* when the last job ended */
    uint64_t marked_us;           /* when the last mark was written */
    uint64_t log_bytes;           /* of the present log */
    uint64_t closed_log_bytes, closed_log_files;
    unsigned batches;   /* open */
    bool quiesced;      /* batches must wait */
    bool maintenance;   /* a checkpoint or a snapshot is made */
    bool fork_in_batch; /* of the thread that forks */
    bool gave_up;       /* the try after `stopping` failed, too */
    bool lost;          /* frames that memory no longer has could not be synced (under NO) */
    uint64_t noticed_lsn;
    int noticed_health;
    struct quire_error failure; /* the last one */
    struct journal_stats stats; /* but for what is computed */

    atomic_uint_fast64_t next_lsn, synced_lsn;
    atomic_uint_fast64_t oldest_us;      /* no unwritten frame came before; 0: there is none */
    atomic_int sync;                     /* enum journal_sync */
    atomic_int health;                   /* 0 or the failure's code */
    atomic_uint_fast64_t recent_sync_us; /* the longest since somebody asked */
    atomic_int full;                     /* 0, or why no space could be reserved for frames to come */
    uint64_t reserved_us;                /* when that was tried last */
};

void journal_frame_free(struct frame *frame);

/* Begins a log, with the frames from `frame` (NULL: none) to `last`, and makes it the journal's. All is durable on
 * return. */
int journal_begin_log(struct journal *journal, uint64_t first_lsn, struct frame *frame, const struct frame *last,
                      struct quire_error *err);
/* The threads. */
void *journal_writer(void *context);
void *journal_syncer(void *context);
/* (lock) Carries the job out, giving up the lock meanwhile, and enters what it has done. */
void journal_job_run(struct journal *journal, struct log_out *out);
/* (lock) Frames up to where the mode says are not needed any more. */
void journal_release_done(struct journal *journal);
/* (lock) Adds what a thread has counted. */
void journal_add_counted(struct journal *journal, struct log_out *out);
void journal_count_closed(struct journal *journal, const struct log_file *log);
/* An error where an own batch is open: waiting would not end. */
int journal_check_no_batch(const struct journal *journal, const char *what, struct quire_error *err);

/* Waits until a new log begins behind everything that was appended before the call, and gives its first LSN: all before
 * it is synced and in closed logs. */
int journal_rotate(struct journal *journal, uint64_t *lsn, struct quire_error *err);

/* Why frames are refused at present, or 0. */
static inline int journal_state(const struct journal *j)
{
    int health = atomic_load(&j->health);
    return health < 0 ? health : atomic_load(&j->full);
}

#endif
