/*
 * document_log_priv.h - what document_log*.c share.
 *
 * Two locks. `lock` is short and guards everything that callers look at; nobody waits for the disk with it. `work` is
 * held by whoever writes, syncs, removes, compacts or links: the log's thread, or a caller of document_log_sync, _work
 * and _link. Order: work before lock. Only a holder of `work` takes segments out, so it may keep pointers to them
 * without `lock`.
 */
#ifndef QUIRE_CACHE_DOCUMENT_LOG_PRIV_H
#define QUIRE_CACHE_DOCUMENT_LOG_PRIV_H

#include "cache/document/document_log.h"
#include "cache/document/document_scan.h"
#include "io/lock.h"
#include <assert.h>
#include <pthread.h>

#define LOG_PAGE         4096u
#define LOG_HEADER_BYTES LOG_PAGE
#define LOG_GROUPS_MAX   64u
#define LOG_WRITE_BYTES  (1u << 20) /* the most that one write takes; so many waiting bytes end the gathering */
#define LOG_KEEP_SYNCS   3u         /* that a segment stays for when compaction emptied it */

enum {
    LOG_CLASSES = 25,    /* of remaining TTL: below 1, 2, 4, ... minutes; the last has no end */
    LOG_CLASS_NEVER = 25 /* documents that do not expire */
};

/* A document in memory: it waits to be written (pending), or was read lately (hot: indexed and not pending). Freed
 * when it is neither indexed nor pending and nobody copies it. `lock` guards all but the data. */
struct resident {
    struct resident *chain;       /* of its bucket */
    struct resident *next, *prev; /* of its segment's queue, or of the hot list (next: read longer ago) */
    uint32_t segment, unit, bytes;
    uint32_t copies; /* under way */
    bool indexed;    /* a read finds it */
    bool pending;    /* in its segment's queue */
    bool wanted;     /* was read while it was pending: stays when it is written */
    uint8_t data[];
};

struct resident_list {
    struct resident *first, *last;
};

/* `lock` guards all but where it says otherwise. `file` and `disk` are set under it by the holder of `work`, who may
 * read them without. */
struct document_log_segment {
    uint32_t number;
    uint32_t reads;         /* under way */
    uint32_t drops;         /* documents dropped; wraps */
    unsigned class;         /* of remaining TTL */
    bool open;              /* for appending */
    bool old;               /* an earlier process wrote it: of its end nothing more will be known */
    bool gone;              /* its file was removed; it waits for reads to end */
    unsigned compact_tries; /* that came to its end */
    unsigned keep_syncs;    /* documents were moved away: it stays for so many rounds of sync */
    uint64_t bytes;         /* with the header and all that waits */
    uint64_t disk;          /* of these in the file */
    uint64_t synced;        /* by the holder of `work` */
    uint64_t told;          /* of these the host knows, and so does its journal */
    uint64_t documents, live_bytes;
    uint64_t created_ms, appended_ms, last_expire_ms;
    struct resident_list queue;
    struct io_file *file; /* NULL: not made yet */
    bool made;            /* the file was made, or it was tried. By the holder of `work` */
    uint8_t *tail;        /* LOG_PAGE: the page that `disk` lies in, until all is written. By the holder of `work` */
    struct document_log_segment *next_gone;
};

struct document_log {
    struct document_log_options options; /* none of them 0 */
    struct io_fs *fs;
    char *folder; /* owned */

    pthread_mutex_t work;
    uint8_t *buffer; /* LOG_WRITE_BYTES. By the holder of `work`, as the next three */
    bool names_dirty;
    bool remove_failing;
    uint64_t compact_ns; /* not before */

    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool begun, running, stop;
    unsigned pins;      /* while there are some no file is removed */
    bool ripe;          /* a segment may be removed */
    uint64_t filled_ns; /* since when documents wait */
    uint64_t worked_ns; /* when the last round ended */
    uint64_t synced_ns; /* when syncing was last tried */
    bool dirty;         /* something awaits a sync */

    struct document_log_segment **segments; /* by number, ascending */
    size_t n_segments, segments_capacity;
    struct document_log_segment *gone; /* removed, with reads under way. By the holder of `work` */
    struct document_log_segment *open[LOG_GROUPS_MAX];
    unsigned n_open;
    uint32_t next_number; /* 0: there are no more */

    struct resident **buckets;
    size_t n_buckets; /* a power of two */
    struct resident_list hot;

    struct document_extent *extents; /* what the host knew when it was opened; owned */
    struct quire_error failure;      /* code 0: none */
    struct document_log_stats stats; /* counters only */
};

/* ---- document_log.c ---------------------------------------------------------------------------------------------- */

uint64_t document_log_now_ms(const struct document_log *log);
/* Says a line to the host. Without `lock`. */
void document_log_say(const struct document_log *log, bool warning, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* NULL: there is none. Under `lock`. */
struct document_log_segment *document_log_find_segment(const struct document_log *log, uint32_t number);
/* Enters a segment, which has the highest number so far. Under `lock`. */
int document_log_enter_segment(struct document_log *log, struct document_log_segment *segment);
/* Closes its file and frees it with what waits in it. No read is under way. */
void document_log_free_segment(struct document_log *log, struct document_log_segment *segment);

/* ---- document_log_append.c: groups, appending, dropping ---------------------------------------------------------- */

/* The upper bound of a class's remaining TTL; UINT64_MAX: none. */
uint64_t document_log_class_ttl_ms(unsigned class);
/* How long a segment of a class takes documents. */
uint64_t document_log_class_open_ms(unsigned class);
/* Ends segments whose time is over. Under `lock`. */
void document_log_close_aged(struct document_log *log, uint64_t now_ms);

/* ---- document_log_read.c: documents in memory -------------------------------------------------------------------- */

void document_log_list_push(struct resident_list *list, struct resident *resident); /* at the end */
void document_log_list_remove(struct resident_list *list, struct resident *resident);
struct resident *document_log_resident_new(const struct document_at *at, const uint8_t *bytes);
/* All under `lock`. */
void document_log_index_add(struct document_log *log, struct resident *resident);
/* A document is not to be found any more; of the hot ones it is freed. */
void document_log_forget(struct document_log *log, const struct document_at *at);
/* Frees the hot ones of a segment. */
void document_log_forget_segment(struct document_log *log, uint32_t number);
/* The first of a segment's queue is on the disk: it becomes hot where it was read meanwhile, or goes. */
void document_log_settle_first(struct document_log *log, struct document_log_segment *segment);
/* Frees it if nobody needs it. */
void document_log_release(struct resident *resident);

/* ---- document_log_write.c: the thread. Under `work`, without `lock` ---------------------------------------------- */

void *document_log_thread(void *log);
/* Writes what waited when it began. */
int document_log_write_all(struct document_log *log, struct quire_error *err);
/* Writes what waited when it began and syncs it; no round of sync for segments that stay for some. */
int document_log_write_durably(struct document_log *log, struct quire_error *err);
/* Writes what waited, syncs all of it. */
int document_log_flush(struct document_log *log, struct quire_error *err);
/* Removes dead segments, closes those that were read when they were removed. */
void document_log_remove_dead(struct document_log *log);
/* A round: see document_log_work. */
int document_log_round(struct document_log *log, struct quire_error *err);

/* ---- document_log_compact.c. Under `work`, without `lock` -------------------------------------------------------- */

/* Compacts the segment of which least lives, if there is one that is worth it. */
int document_log_compact(struct document_log *log, struct quire_error *err);

/* ---- document_log_format.c: a segment's header ------------------------------------------------------------------- */

void document_log_header_encode(const struct document_log_segment *segment, uint8_t page[LOG_HEADER_BYTES]);
/* What a header is, an enum document_header; of a whole one segment takes over what it says. QUIRE_EVERSION. `n` bytes
 * of it are there. */
int document_log_header_decode(const char *path, const uint8_t *page, size_t n, struct document_log_segment *segment,
                               struct quire_error *err);

#endif
