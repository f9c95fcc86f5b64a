/*
 * store_priv.h - the inside of a store, for its own files.
 *
 * Locks, in the order in which they are taken: checkpoint, publish, the journal's quiesce, the table's (`lock`), a
 * collection's, `wake_lock`, the journal's own. Under `publish` the parts of no collection change, which is what a
 * snapshot needs. Nobody waits for the disk under `lock` or `wake_lock`: requests take both.
 *
 * Who may work on a collection's segments is said by bits of collection->busy. A seal and a merge of one collection run
 * at the same time: one takes memtables away, the other parts.
 */
#ifndef QUIRE_INDEX_STORE_PRIV_H
#define QUIRE_INDEX_STORE_PRIV_H

#include "index/build/merge.h"
#include "index/collection/collection_host.h"
#include "index/memtable/memtable.h"
#include "index/store/store.h"
#include "index/store/store_check.h"
#include "io/lock.h"
#include <assert.h>
#include <pthread.h>

#define BUILDING_MARK     ".building"
#define SEAL_ROWS_MIN     (4 * MEMTABLE_FLAT_ROWS) /* fewer stay in memory and in checkpoints */
#define SEAL_TABLES_MAX   8u                       /* frozen ones, however few rows they have */
#define EMPTY_BYTES_MAX   (64u << 10)              /* of a memtable without a living row */
#define MERGE_PARTS       4u                       /* with more than these, small ones are merged */
#define MERGE_DEAD_SHARE  5u                       /* a part with one of so many rows dead is written anew */
#define MAINTENANCE_ROLES 3u

/* Records of checkpoints that belong to the store alone, beside those of enum collection_record. */
enum store_own_record { RECORD_COUNTERS = RECORD_ROWS + 1 /* u64 next collection, u64 next segment */ };
static_assert((int)RECORD_CREATE == (int)STORE_KINDS, "kinds of records begin elsewhere");
static_assert((int)RECORD_KINDS_END <= (int)HOST_KINDS, "kinds of records overlap");

enum store_busy { BUSY_SEAL = 1, BUSY_MERGE = 2 };
enum store_backlog { BACKLOG_NONE, BACKLOG_SOFT, BACKLOG_SEGMENTS, BACKLOG_MEMTABLES };
enum store_refusal { REFUSE_MEMORY = 1, REFUSE_DISK = 2 };

/* What the store knows of a collection, kept beside it (collection_host_data). */
struct upkeep {
    /* under the store's lock */
    struct collection *next; /* of the same bucket */
    unsigned busy;           /* enum store_busy: what maintenance does with it */
    unsigned due;            /* the same bits: what it should do */
    struct {
        uint64_t memtable_bytes, resident_bytes, disk_bytes;
        uint32_t n_parts, memtable_rows, delay_us; /* of its writers; 0: it is not behind */
    } counted;                                     /* when the store looked last; its totals are sums of these */
    unsigned n_failures;                           /* of maintenance, one after the other */
    uint64_t retry_ms;                             /* when maintenance that failed is tried again */
    /* under its wake lock */
    struct collection *next_woken;
    bool woken;
    atomic_uint
        backlog; /* enum store_backlog; a write that finds the newest memtable large raises it before it counts */
};
static inline struct upkeep *store_upkeep(const struct collection *collection)
{
    return collection_host_data(collection);
}

struct maintainer {
    struct store *store;
    pthread_t thread;
    bool started;
    /* one thing that is due; 1 if it did something, 0 if nothing was due, or an error */
    int (*pass)(struct maintainer *maintainer, struct quire_error *err);
    /* its own thread's, store_priority.c */
    int base_nice;
    bool hurries, hurried; /* it may raise its priority; it has */
};

struct store {
    struct io_fs *fs;
    char *path, *segments;
    struct store_options options;          /* but for the two limits: */
    _Atomic uint64_t memory_max, disk_max; /* 0: none */
    struct store_host host;
    struct io_file *lock_file;
    int lock_fd; /* of the folder; -1: none */
    struct epochs *epochs;
    struct journal *journal;
    struct collection_host as_host; /* of its collections */

    pthread_mutex_t checkpoint; /* a checkpoint or a snapshot is written */
    pthread_mutex_t publish;    /* parts of a collection change, or a snapshot holds them as they are */

    pthread_mutex_t lock;   /* all up to the next comment; the store's fields of collections */
    pthread_cond_t changed; /* a bit of busy was lowered */
    struct collection **buckets;
    uint32_t n_buckets, n_collections, n_unavailable;
    uint64_t delay_us; /* the sum of what collections were counted with */
    uint64_t next_collection, next_segment;
    uint64_t memtable_bytes, resident_bytes, segment_bytes, n_segments; /* sums of what collections were counted with */
    uint32_t n_due[2];                                                  /* collections with BUSY_SEAL, BUSY_MERGE due */
    struct store_stats stats;                                           /* of what was done; sizes are filled in */
    uint64_t checkpoint_retry_ms;
    unsigned checkpoint_failures;

    pthread_mutex_t wake_lock; /* up to the next comment */
    pthread_cond_t wake;
    struct collection *woken;
    struct part *garbage;             /* that nobody reads any more: their files, then they, go */
    struct memtable_ref *sealed_away; /* memtables that nobody reads any more */
    uint64_t n_wakes;

    atomic_bool stopping;
    atomic_uint_fast32_t writers_delay_us;
    atomic_uint refusal;                         /* bits of enum store_refusal */
    atomic_uint_fast64_t memory_used, disk_used; /* when last counted */
    atomic_uint_fast64_t counted_lsn;            /* the journal's last LSN when all were counted last */
    atomic_uint_fast64_t passes_begun, passes_ended;
    struct part *lingering; /* without files; lanes have not let go of their segments. Upkeep's alone */
    struct maintainer maintainers[MAINTENANCE_ROLES];
};

/* ---- store.c: the table of collections, what they take, and who is refused --------------------------------------- */

void store_fill_defaults(struct store_options *options);
/* What the store is to its collections; the journal is set when it is open. */
void store_init_host(struct store *store);
/* Maintenance should look at a collection. Cheap; perhaps under its lock. */
void store_wake(struct store *store, struct collection *collection);
/* (lock) */
struct collection *store_lookup(const struct store *store, uint64_t uid);
/* Takes over the caller's reference. */
int store_add(struct store *store, struct collection *collection, struct quire_error *err);
/* Takes it out of the table; the table's reference becomes the caller's. */
void store_take_out(struct store *store, struct collection *collection);
/* All collections, each with a reference. *out is freed by store_list_free. */
int store_list(struct store *store, struct collection ***out, uint32_t *n, struct quire_error *err);
void store_list_free(struct collection **list, uint32_t n);
uint64_t store_new_segment(struct store *store);
char *store_segment_path(const struct store *store, uint64_t uid);
/* Looks at what a collection holds and what is due for it. */
void store_count(struct store *store, struct collection *collection);
/* Holds what was counted against the limits: who is refused, who must wait. */
void store_apply_limits(struct store *store);
/* Sets bits of busy; without `wait` it answers false when one of them is set already. After a wait
 * the collection may have been dropped. */
bool store_claim(struct store *store, struct collection *collection, unsigned bits, bool wait);
void store_release(struct store *store, struct collection *collection, unsigned bits);
/* Of a part that has left its view for good: its files go with its last reference, and maintenance frees it. */
void store_mark_removed(struct store *store, struct part *part);
/* Of a memtable that has left its view for good: maintenance frees it after its last reference. */
void store_mark_table_removed(struct store *store, struct memtable_ref *table);
/* At the end, with no maintenance any more: what waits for it to be freed. Files stay. */
void store_free_gone(struct store *store);
void store_signal(struct store *store);
uint64_t store_now_ms(void);
/* One line for the host's log. */
void store_log(struct store *store, bool warning, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- store_open.c ------------------------------------------------------------------------------------------------ */

/* Removes the folders of segments/ but those that `keep` (NULL: none) says are to stay, by their uid; 0 for what was
 * being made. Adds to *removed (may be NULL) how many. */
int store_remove_segments(struct io_fs *fs, const char *segments, bool (*keep)(void *context, uint64_t uid),
                          void *context, uint64_t *removed, struct quire_error *err);

/* What the records of a folder make, without a journal that is open: of recovery, verification and repair. */
struct store_recovery {
    struct store *store;
    struct uid_list {
        uint64_t *items;
        size_t n, capacity;
    } orphans, dropped; /* uids that records named and no collection had; uids that were dropped */
    uint64_t records;
    bool lenient; /* records that cannot be applied are reported and left out */
    void (*lost)(void *context, const char *sentence);
    void *context;
};
/* For qsort and bsearch of numbers. */
int store_compare_u64(const void *a, const void *b);
struct journal_reader store_reader(struct store_recovery *recovery);
/* QUIRE_ECORRUPT where a record names a collection that was never made. Frees what the recovery holds. */
int store_recovery_end(struct store_recovery *recovery, int rc, struct quire_error *err);
/* A store without files: memtables, locks, epochs. For opening, verification and repair. */
int store_alloc(const char *path, const struct store_options *options, const struct store_host *host,
                struct store **out, struct quire_error *err);
void store_free(struct store *store);
int store_lock_folder(struct store *store, bool create, struct quire_error *err);
/* The second half of it; shared: to read. Where there is no such folder on a disk, nothing. */
int store_lock_directory(struct store *store, bool shared, struct quire_error *err);
void store_unlock_folder(struct store *store); /* store_free does */

/* ---- store_merge.c: what is written anew ------------------------------------------------------------------------- */

/* The share of the collection's resident budget that a part of `rows` rows gets beside n others, all open; UINT64_MAX:
 * there is no budget. */
uint64_t store_share(const struct store *store, const struct collection *collection, struct part *const *others,
                     uint32_t n, uint64_t rows);
/* Opens the segment of a collection's part under a budget; one that is too small for its codes is exceeded, which is
 * logged. Of a numbered collection the part gets its table of numbers. */
int store_open_part(struct store *store, const struct collection *collection, struct part *part, uint64_t memory_bytes,
                    struct quire_error *err);
/* Which parts a merge should take: flags[i] for part i of the view; how many (0: nothing is due). */
uint32_t store_plan_merge(const struct view *view, bool *flags);
bool store_seal_is_due(const struct store *store, const struct view *view);
/* Whether writers will soon have to wait for a seal (or a merge) of the collection. */
bool store_is_awaited(const struct store *store, const struct view *view, bool is_seal);
/* Both with their bit of busy claimed. m: whose thread it is; NULL: one that does it on request. */
int store_seal_claimed(struct store *store, struct maintainer *m, struct collection *collection, bool with_parts,
                       struct quire_error *err);
int store_merge_claimed(struct store *store, struct maintainer *m, struct collection *collection, bool all,
                        struct quire_error *err);
/* Publishes an edit and marks what it takes away for removal. */
int store_publish(struct store *store, struct collection *collection, const struct collection_edit *edit, uint64_t *lsn,
                  struct quire_error *err);

/* ---- store_priority.c: what maintenance gets of the processors; each on the maintainer's thread ------------------ */

/* is_awaited: writers may have to wait for it. */
void store_priority_begin(struct maintainer *m, bool is_awaited);
/* As lanes, or again below them. */
void store_priority_hurry(struct maintainer *m, bool hurry);

/* ---- store_maintain.c -------------------------------------------------------------------------------------------- */

int store_start_maintenance(struct store *store, struct quire_error *err);

/* ---- store_snapshot.c -------------------------------------------------------------------------------------------- */

int store_sync_folder(struct io_fs *fs, const char *path, struct quire_error *err);
/* Removes a data folder that was not finished, as far as that is possible. Missing is fine. */
void store_discard_folder(struct io_fs *fs, const char *folder);

/* ---- store_import.c ---------------------------------------------------------------------------------------------- */

struct store *store_import_store(const struct store_import *import);
/* Where the index was. */
const char *store_import_path(const struct store_import *import);
/* Where its files are, and the number they were given; NULL: they were taken. */
const char *store_import_folder(const struct store_import *import, uint64_t *uid);
/* They have another name now. */
void store_import_taken(struct store_import *import);

/* ---- store_check.c ----------------------------------------------------------------------------------------------- */

/* One that is under way. */
struct store_check {
    const struct store_check_request *request; /* of a collection that lives: path and host are NULL */
    struct store *store;
    struct store_verify_report report;
};
/* Adds a finding. */
void store_found(struct store_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Verifies a part's files. */
int store_check_part(struct store_check *check, const struct collection *collection, const struct part *part,
                     struct quire_error *err);
/* Everything of the request's folder, whatever is damaged, into check->store, which has no journal; the caller's by
 * store_free. host: instead of the request's. What is damaged is a finding. On failure check->store is NULL. */
int store_read_folder(struct store_check *check, const struct store_host *host, struct quire_error *err);

#endif
