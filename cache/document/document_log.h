/*
 * document_log.h - where answers lie on the disk: log segments grouped by expiry, read only on a hit.
 *
 * Documents that expire at about the same time are appended to the same segment, so that a segment is removed as a
 * whole when its last document is dead, and little has to be moved. A segment that is mostly dead long before its time
 * is compacted: what lives is appended elsewhere. Appending copies to memory and returns; a thread of the log writes
 * and syncs (every second). A crash loses at most what was not synced: the checksum of a document that is not there
 * fails, and its entry goes.
 *
 *   <folder>/<number, 16 hex digits>.docs    a header of 4096 bytes, then documents
 *
 * A small cache holds documents that were read lately (hot).
 *
 * Threads: any, for all calls. append and live/dead accounting take a short lock and never wait for the disk.
 */
#ifndef QUIRE_CACHE_DOCUMENT_LOG_H
#define QUIRE_CACHE_DOCUMENT_LOG_H

#include "cache/document/document_scan.h"
#include "io/engine.h"

struct document_log;

struct document_at {
    uint32_t segment; /* its number; 0: no document */
    uint32_t unit;    /* of DOCUMENT_UNIT bytes from the file's begin */
    uint32_t bytes;
};

struct document_log_options {
    struct io_fs *fs;       /* NULL: fs_real() */
    const char *folder;     /* made where it is not there */
    uint64_t segment_bytes; /* a segment ends beyond it; at most 256 MiB; 0: 32 MiB */
    uint64_t buffer_bytes;  /* of documents that are not written yet; beyond it appending is refused (QUIRE_EBUSY);
                             * 0: 32 MiB */
    uint64_t hot_bytes;     /* of the cache of documents; 0: 8 MiB */
    unsigned groups;        /* segments that are open at once, at most 64; 0: 8 */
    bool no_thread;         /* for tests: document_log_work is called instead */
    bool read_only;         /* nothing is made; only adopt and reads may follow */
    uint64_t (*clock_ms)(void *context); /* wall clock; NULL: the system's */
    void *clock_context;
    /* Compaction. `lives`: whether an entry points to this place. `moved`: there is a copy, on the device already; the
     * host points its entry to the new place, or answers false where none points to `from` any more (the copy is dead
     * then). On true the log drops `from` itself. From the log's thread, with no lock that append, drop and reads take;
     * whoever calls sync, work, link or close must not hold one that these functions wait for. NULL, both: nothing is
     * compacted. */
    bool (*lives)(void *host, uint64_t id, const struct document_at *at);
    bool (*moved)(void *host, uint64_t id, const struct document_at *from, const struct document_at *to);
    void *host;
    /* What of the segments is on the device, files and names, and may be relied on from now on: by this it is known
     * after a restart whether what is missing was lost by a crash or by damage. The host answers whether it has kept
     * that; if not it is told again. Called as `moved` is. NULL: nobody wants to know. */
    bool (*synced)(void *context, const struct document_extent *extents, uint32_t n);
    void *synced_context;
    const struct document_extent *extents; /* what was kept before: n_extents, by ascending segment; during the call */
    uint32_t n_extents;
    void (*log)(void *context, bool warning, const char *line); /* NULL: nothing is said */
    void *log_context;
};

/* Opens the folder's segments without reading them, but for their first page; each keeps its file open. Until
 * document_log_begin nothing is removed or compacted: the host says meanwhile which documents live. Of a file whose
 * header is not whole the documents count (document_judge). Errors: QUIRE_EVERSION (a file of another version, named),
 * EINVALID, ERANGE (options), EPERM, EIO, ENOMEM. */
int document_log_open(const struct document_log_options *options, struct document_log **out, struct quire_error *err);
/* While the host restores its entries: this document is referred to. False: there is no such segment, or it is shorter
 * (a crash took its end). */
bool document_log_adopt(struct document_log *log, const struct document_at *at);
/* Whether a document that document_log_adopt does not find was on the device once, so that it is missing by damage;
 * then *err says what. */
bool document_log_lacks(const struct document_log *log, const struct document_at *at, struct quire_error *err);
/* From now on segments without a living document are removed, and the thread runs. */
int document_log_begin(struct document_log *log, struct quire_error *err);
/* Writes and syncs what was appended, ends the thread. No read is under way. NULL is fine. */
int document_log_close(struct document_log *log, struct quire_error *err);

/* Appends an encoded document (document_bytes of it), which counts as living. Errors: QUIRE_EBUSY (the disk is behind),
 * QUIRE_ENOSPACE, QUIRE_EIO (what the last write left; it is tried again), QUIRE_ENOMEM, QUIRE_ELIMIT (size). */
int document_log_append(struct document_log *log, const uint8_t *document, uint32_t bytes, uint64_t expire_ms,
                        struct document_at *at, struct quire_error *err);
/* A document that was appended or adopted is not referred to any more. Once for each. */
void document_log_drop(struct document_log *log, const struct document_at *at);

/* A read: begun, perhaps run, ended. The segment stays open until document_read_end. */
enum document_read_from {
    DOCUMENT_ON_DISK,  /* run out->op (kind, file, offset, buffer and bytes are set; the caller sets done and owner) on
                        * an engine, then call document_read_bytes */
    DOCUMENT_IN_MEMORY /* the bytes were copied to out->bytes */
};
struct document_read {
    struct io_op op;
    struct document_log *log;
    struct document_at at;
    uint8_t *buffer; /* owned */
    void *segment;   /* a reference; NULL: none */
    uint8_t *bytes;  /* at.bytes of the document */
    uint32_t drops;  /* the log's */
};
/* An enum document_read_from; QUIRE_ENOTFOUND (dropped meanwhile), QUIRE_ENOMEM. */
int document_read_begin(struct document_log *log, const struct document_at *at, struct document_read *out,
                        struct quire_error *err);
/* After the op ended with `result`: sets bytes and puts the document into the hot cache. QUIRE_EIO, ESHORTREAD. The
 * checksum is document_decode's to check. */
int document_read_bytes(struct document_read *read, int result, struct quire_error *err);
void document_read_end(struct document_read *read);

struct document_log_stats {
    uint64_t segments, bytes, live_bytes, documents; /* on disk and in the buffer */
    uint64_t buffered_bytes, hot_bytes, hot_hits, hot_misses;
    uint64_t appended_bytes, written_bytes, moved_bytes, removed_segments, compactions, failures;
};
void document_log_get_stats(const struct document_log *log, struct document_log_stats *out);
/* Why appends fail at present; 0: they do not. */
int document_log_health(const struct document_log *log, struct quire_error *err);
/* Everything appended so far is on the device on return. Blocks. */
int document_log_sync(struct document_log *log, struct quire_error *err);
/* One round of what the thread does in the background (write, sync where due, remove, compact one), for tests. */
int document_log_work(struct document_log *log, struct quire_error *err);
/* What was said to `synced` so far and is there still, malloc'd; NULL and *n 0: nothing, or no memory (*n 1). */
struct document_extent *document_log_extents(const struct document_log *log, uint32_t *n);
/* Between the two no file is removed. Not from `moved` or `synced`. */
void document_log_pin(struct document_log *log);
void document_log_unpin(struct document_log *log);
/* Hard links of all segments in the new folder `to`, for snapshots; documents appended later may be in it, those before
 * are. */
int document_log_link(struct document_log *log, const char *to, struct quire_error *err);

#endif
