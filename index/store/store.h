/*
 * store.h - a data folder: collections, one journal for all of them, and the work in the background.
 *
 *   LOCK                    held by the process that has it open
 *   log-*, checkpoint-*     the journal (io/journal.h)
 *   segments/<uid>/         sealed segments (format.md)
 *   segments/<uid>.building being made; removed at opening
 *   segments/<uid>.merging  vectors on their way to it; likewise
 *
 * Which segments belong to which collection is said by records of the journal, so that a seal, a merge or a drop is
 * there after a crash whole or not at all. Folders that no record names are removed at opening.
 *
 * Threads: maintenance threads (low priority) seal memtables that are full, merge segments, write checkpoints and
 * remove what nobody reads any more.
 */
#ifndef QUIRE_INDEX_STORE_H
#define QUIRE_INDEX_STORE_H

#include "index/collection/collection.h"
#include "index/collection/lineage.h"
#include "index/segment/segment.h"
#include "io/journal.h"

/* Kinds of journal records, by who reads them. */
enum store_record { STORE_KINDS = 1, HOST_KINDS = 32, DOCUMENT_KINDS = 80, CACHE_KINDS = 96 };

/* What another part of the program keeps in the same journal (the server's keys). Each may be NULL. */
struct store_host {
    int (*restore)(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                   struct quire_error *err);
    int (*replay)(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err);
    /* its state, record by record, with journal_checkpoint_put; on a maintenance thread */
    int (*save)(void *context, struct checkpoint *checkpoint, struct quire_error *err);
    /* what happened in the background: one line (a seal, a merge, an error); on a maintenance thread */
    void (*log)(void *context, bool warning, const char *line);
    /* around a batch that the store makes by itself (store_adopt), in its caller's thread: the host sees to it that no
     * other batch is open between the two, and that nobody waits for long in leave */
    void (*enter)(void *context);
    void (*leave)(void *context);
    /* All has been read, the folder is still locked. folder: of store_repair the new one, which is whole but for what
     * the host keeps in files, and gets its name afterwards; its journal has the host's records, and takes those of
     * what could not be saved. Of store_verify the folder itself, and no journal */
    int (*complete)(void *context, const char *folder, struct journal *journal, struct quire_error *err);
    /* what a write of a collection with a lineage did (lineage.h): in the order of their numbers, under its lock;
     * cheap, and nothing of the store is called */
    void (*effect)(void *context, struct collection *collection, const struct effect *effect);
    void *context;
};

struct store_options {
    struct io_fs *fs; /* NULL: fs_real() */
    enum journal_sync sync;
    uint64_t memtable_bytes; /* a memtable is sealed beyond this; 0: 64 MiB */
    uint64_t memory_bytes;   /* of all memtables and resident parts of segments; beyond it puts are refused; 0: none */
    uint64_t segment_memory_bytes; /* budget of a collection's sealed segments where it names none; 0: none */
    uint64_t disk_bytes;           /* quota of the folder; 0: none */
    uint64_t build_memory_bytes;   /* of one seal or merge; 0: 256 MiB */
    unsigned segments_max;         /* of a collection; with more its writers wait for merges; 0: 12 */
    unsigned threads;              /* of a seal or merge; 0: 1 */
    uint64_t checkpoint_bytes;     /* of log after which a checkpoint is written; 0: 256 MiB */
    bool no_priorities;            /* a filter of system calls (seccomp) may end who asks for other priorities */
    bool no_maintenance;           /* nothing in the background, or not before store_begin_maintenance */
};

struct store_report {
    struct journal_report journal;
    uint64_t collections, elements, segments, removed_folders, rows_replayed;
    uint64_t unavailable; /* of collections: see collection_available */
    uint64_t duration_us;
};

/* Opens or makes a data folder. A collection whose segments are damaged, missing or may not be read is there and
 * unavailable (collection_available); the others serve. QUIRE_EBUSY: another process (its id in the message) has it
 * open. */
int store_open(const char *path, const struct store_options *options, const struct store_host *host, struct store **out,
               struct store_report *report, struct quire_error *err);
/* Begins the work in the background of a store opened with no_maintenance, once: for a host whose `save` cannot be
 * called before it has taken in what the opening restored. */
int store_begin_maintenance(struct store *store, struct quire_error *err);
/* Ends it: afterwards the host's `save` is not called any more. For a host whose state goes before store_close. */
void store_end_maintenance(struct store *store);
/* Finishes what is being written, syncs the journal, lets the lock go. No request is under way. */
int store_close(struct store *store, struct quire_error *err);

struct journal *store_journal(struct store *store);

/* A new, empty collection. schema: declared columns, copied; NULL: none. The caller gets a reference, the store keeps
 * one. *lsn of its record. */
int store_create_collection(struct store *store, const struct collection_config *config,
                            const struct attribute_schema *schema, struct collection **out, uint64_t *lsn,
                            struct quire_error *err);
/* By uid, with a reference; NULL: none. */
struct collection *store_find(struct store *store, uint64_t uid);
void store_each(struct store *store, void (*visit)(void *context, struct collection *collection), void *context);
/* Ends it: later calls on it answer QUIRE_ECLOSED or nothing; its files go when the record is durable and no reader is
 * left. */
int store_drop_collection(struct store *store, struct collection *collection, uint64_t *lsn, struct quire_error *err);
/* Takes the files of a built index (a folder of `quire build`) into the data folder: by hard links, or a copy where
 * those are not possible. Only plain files are taken, and no link is followed: QUIRE_EPERM. resolved: the path is a
 * real path, and what is opened must lie just there. Blocks: a worker's. */
struct store_import;
int store_import_begin(struct store *store, const char *path, bool resolved, struct store_import **out,
                       struct quire_error *err);
/* The index, open, until it is adopted. */
struct segment *store_import_segment(const struct store_import *import);
/* Adds it to a collection of the same dimension, type and metric. Keys that it shares with living elements replace
 * those. Blocks: a worker's. */
int store_import_adopt(struct store_import *import, struct collection *collection, uint64_t *lsn,
                       struct quire_error *err);
/* Removes what was not adopted. NULL is fine. */
void store_import_end(struct store_import *import);
/* All three at once, of a path that is trusted. */
int store_adopt(struct store *store, struct collection *collection, const char *path, uint64_t *lsn,
                struct quire_error *err);

/* Seals all that is in memory; merges down to one segment. Block: a worker's. */
int store_seal(struct store *store, struct collection *collection, struct quire_error *err);
int store_compact(struct store *store, struct collection *collection, struct quire_error *err);
int store_checkpoint(struct store *store, struct quire_error *err);
/* Does in the calling thread one round of what is due in the background. Returns how many things it did, or the first
 * error. */
int store_maintain(struct store *store, struct quire_error *err);
/* Waits until nothing is to be done in the background, or does it where nothing is (no_maintenance). For tests. */
int store_settle(struct store *store, struct quire_error *err);
/* A consistent copy of the folder by hard links, in the new folder `to` on the same file system, opened like any
 * other. */
int store_snapshot(struct store *store, const char *to, uint64_t *lsn, struct quire_error *err);
/* Verifies a collection's segments, filters and tombstones while it lives (VCHECK): each finding a sentence. */
int store_check(struct store *store, struct collection *collection,
                void (*finding)(void *context, const char *sentence), void *context, struct quire_error *err);

/* For a host whose process forks while the store is open: what pthread_atfork is given calls prepare before the fork
 * and one of the others behind it. prepare waits for batches of other threads and for what publishes a seal or a merge
 * (milliseconds), and then holds what the child must not find half done; nobody may wait for the forking thread with a
 * batch open or one of the store's calls under way. Cost: two locks for each collection.
 *
 * A child has no maintenance, no lanes and no journal. It may read: store_find, store_each, views, memtables,
 * collection_export, segment_scan and all that reads with plain reads; what was removed meanwhile is read through the
 * descriptors that it has inherited. It may not write (the journal refuses), search, or close; it ends by _exit. */
void store_fork_prepare(struct store *store);
void store_fork_parent(struct store *store);
void store_fork_child(struct store *store);

/* ---- copies (collection/lineage.h, index/replica) ---- */

/* Where the files of a told segment are gathered, and where a part's are; owned by the caller, NULL without memory. */
char *store_copy_folder(const struct store *store, uint64_t uid);
char *store_part_folder(const struct store *store, const struct part *part);
struct io_fs *store_fs(const struct store *store);
/* Adopts a told segment whose folder is complete, synced but for its name, and verified; or carries out what brings
 * none. On failure the folder is gone, unless it was never named. QUIRE_EBUSY: its turn has not come. */
int store_copy_adopt(struct store *store, struct collection *collection, const struct lineage_told *told, uint64_t *lsn,
                     struct quire_error *err);

struct store_stats {
    uint64_t collections, unavailable, memtable_bytes, resident_bytes, disk_bytes, segments;
    uint64_t seals, merges, checkpoints, seal_us, merge_us, rows_sealed, rows_merged, failures;
    uint64_t last_snapshot_ms, snapshots; /* wall clock */
    bool sealing, merging, checkpointing;
};
void store_get_stats(const struct store *store, struct store_stats *out);
/* Changes memory_bytes and disk_bytes of the options. Thread-safe. */
void store_set_limits(struct store *store, uint64_t memory_bytes, uint64_t disk_bytes);
/* How long a writer should wait after each few writes, since log, seals or merges are behind: little at first, more
 * the nearer the limit at which writes are refused, at most STORE_DELAY_MAX_US. 0: they are not. Cheap. */
#define STORE_DELAY_MAX_US 10000u
uint32_t store_delay_us(const struct store *store);
bool store_is_behind(const struct store *store);

/* What to do about a file of a data folder that cannot be used for this reason (a code). Static. */
const char *store_remedy(int code);
/* Hard links to all files of a folder in the new folder `to`, or copies where links are not possible and may_copy. */
int store_link_folder(struct io_fs *fs, const char *from, const char *to, bool may_copy, struct quire_error *err);

#endif
