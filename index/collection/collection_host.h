/*
 * collection_host.h - what a collection asks of whoever keeps it, and what its keeper does with it.
 *
 * The keeper (a store; in tests anybody with a journal) gives each collection a host, plays back its records, takes its
 * memtables away when they are sealed, and saves it for checkpoints. A collection knows of no folder and no thread.
 */
#ifndef QUIRE_INDEX_COLLECTION_HOST_H
#define QUIRE_INDEX_COLLECTION_HOST_H

#include "index/collection/collection.h"
#include "index/collection/lineage.h"
#include "index/collection/tombstones.h"
#include "index/collection/view.h"
#include "io/epoch.h"
#include "io/journal.h"

/* Kept by the keeper as long as there are collections of it. */
struct collection_host {
    struct journal *journal; /* NULL only while records are played back */
    struct epochs *epochs;
    /* 0, or why a put is refused now (memory, disk, segments, the journal). Cheap: no lock. NULL: never. */
    int (*admit)(void *context, const struct collection *collection, struct quire_error *err);
    /* The newest memtable has grown beyond what it should, or rows have ended: maintenance should look. Cheap; perhaps
     * under the collection's lock. NULL: nobody looks. */
    void (*wake)(void *context, struct collection *collection);
    /* The newest memtable has so many rows and bytes after a write: maintenance is woken and writers are slowed where
     * that is too much. Under the collection's lock. NULL: nobody is. */
    void (*note_memtable)(void *context, struct collection *collection, uint32_t rows, uint64_t bytes);
    /* What a write of a collection with a lineage did (lineage.h), in the order of their numbers, under its lock:
     * cheap, and nothing of the collection is called. NULL: nobody asks. */
    void (*effect)(void *context, struct collection *collection, const struct effect *effect);
    /* A number for a segment that is to come. NULL: there are no copies here. */
    uint64_t (*new_segment)(void *context);
    void *context;
};

/* A new collection without records of its own, of which the host keeps host_bytes beside it (collection_host_data):
 * zeroed, and freed with it. last_lsn: of what made it; 0: nothing yet. Takes the schema over if it succeeds. */
int collection_create(const struct collection_host *host, size_t host_bytes, uint64_t uid,
                      const struct collection_config *config, struct attribute_schema *schema, uint64_t last_lsn,
                      struct collection **out, struct quire_error *err);
void *collection_host_data(const struct collection *collection);

/* The one that is current, with a reference. */
struct view *collection_view(struct collection *collection);
uint64_t collection_last_lsn(struct collection *collection); /* of its last write */
bool collection_is_dropped(const struct collection *collection);
/* Some of its segments could not be opened: from now on nobody searches it or writes to it, and its host leaves it
 * alone, but what the journal says of it goes into every checkpoint. The reason is a sentence that names what cannot be
 * used and what to do, and is copied. Once, while nobody else knows the collection. QUIRE_ENOMEM. */
int collection_set_unavailable(struct collection *collection, const struct quire_error *reason);

/* The records by which it begins and ends, appended to the journal. QUIRE_ECLOSED: it was dropped before. After a drop
 * nothing is written to it, and its view is the last one. */
int collection_log_create(struct collection *collection, uint64_t *lsn, struct quire_error *err);
int collection_log_drop(struct collection *collection, uint64_t *lsn, struct quire_error *err);

/* Around a fork of the process: what a child reads of it is not half written then. end in both processes. */
void collection_fork_prepare(struct collection *collection);
void collection_fork_end(struct collection *collection);

/* Freezes the newest memtable, if it has rows, and puts an empty one before it. Between journal_quiesce_begin and
 * _end. */
int collection_freeze(struct collection *collection, struct quire_error *err);

/* A seal or a merge begins: what ends from now on among the rows of these parts and frozen memtables is noted, and the
 * tombstones are copied, without the lock. The lists stay the caller's, with their references. QUIRE_ENOMEM. */
int collection_ended_begin(struct collection *collection, struct part *const *parts, uint32_t n_parts,
                           struct memtable_ref *const *tables, uint32_t n_tables, struct collection_ended **out);
/* The copy of part i: a row that is not dead in it is alive, or has been noted since. */
const uint8_t *collection_ended_dead(const struct collection_ended *ended, uint32_t i);
/* Marks in the added part what has ended by now; the lock is held for moments. What is left is little, whatever ended
 * before: collection_publish does it once more. */
int collection_ended_carry(struct collection *collection, const struct collection_edit *edit, struct quire_error *err);
void collection_ended_free(struct collection *collection, struct collection_ended *ended); /* NULL is fine */

/* Makes it so: rows that ended since edit->ended began are dead in the added part. Under the lock is done what is left
 * of that, and nothing else that grows with rows. *lsn of its frame. On failure nothing has changed but the added part.
 * QUIRE_ECANCELLED: the collection is a copy now, or was one meanwhile (lineage.h). QUIRE_EBUSY: edit->replaced, and
 * the collection was written to since edit->seen_lsn. Between journal_quiesce_begin and _end, an adoption in a
 * batch. */
int collection_publish(struct collection *collection, const struct collection_edit *edit, uint64_t *lsn,
                       struct quire_error *err);

/* Counts a seal or a merge that was published. */
void collection_count_rebuild(struct collection *collection, bool is_seal);
/* Gives back memory of rows that nobody can see any more; the first calls only send word through the epochs. True if it
 * got on and more is left; where a snapshot is read it does not. */
bool collection_reclaim(struct collection *collection);
/* Removes elements whose grants are all void, those of all parts and memtables, where there may be some; what fails is
 * due again. Blocks for the journal only. */
int collection_remove_void(struct collection *collection, struct quire_error *err);
/* Drops what another collection has dropped, to the same generations: of a new one that takes its elements over. */
int collection_take_dropped_tenants(struct collection *collection, const struct collection *from,
                                    struct quire_error *err);

struct collection_snapshot {
    struct collection *collection; /* a reference */
    struct view *view;             /* a reference */
    uint64_t lsn, pin, n_elements;
    struct tombstones tombstones; /* of the view's parts, as of lsn */
};

/* The state for a checkpoint, as of one LSN: records of the kinds below. */
int collection_save(struct collection *collection, struct checkpoint *checkpoint, struct quire_error *err);

/* Kinds of records of the journal. docs/format.md has their bytes. All begin with the collection's uid (u64). */
enum collection_record {
    RECORD_CREATE = 1, /* config */
    RECORD_DROP,       /* */
    RECORD_PUT,        /* one element, and the sealed row that it replaces */
    RECORD_REMOVE,     /* key, sealed row */
    RECORD_ATTRIBUTES, /* key, attributes */
    RECORD_EDIT,       /* parts that go, up to where memtables go, the part that comes and its dead rows */
    RECORD_STATE,      /* checkpoints only: config, schema, tenants dropped, parts and their dead rows */
    RECORD_ROWS,       /* checkpoints only: rows of memtables */
    RECORD_DROP_TENANT = RECORD_ROWS + 2, /* name, new generation; the number between is the store's */
    RECORD_VOID_ROWS,                     /* rows of one part that are nobody's any more, or end beside a write */
    RECORD_IDENTITY,                      /* of a lineage: id, history, number */
    RECORD_SEQ,                           /* the number of what stands before it in its frame */
    RECORD_FREEZE,                        /* where a memtable was cut */
    RECORD_TOLD,                          /* a publication of the leader's that is not carried out yet */
    RECORD_KINDS_END
};

/* One record given back to a collection (any kind but CREATE and DROP; STATE too, on a collection made from its
 * config). `restored`: of a checkpoint. Parts are not open yet: part->segment is NULL. */
int collection_replay(struct collection *collection, uint8_t kind, bool restored, uint64_t lsn, const uint8_t *bytes,
                      uint32_t n, struct quire_error *err);
/* Counts its elements, after its parts have been opened; those of parts that could not be are in no count. */
void collection_recount(struct collection *collection);
/* The config and schema (the caller's) of a CREATE or STATE record. */
int collection_record_config(uint8_t kind, const uint8_t *bytes, uint32_t n, uint64_t *uid,
                             struct collection_config *config, struct attribute_schema **schema,
                             struct quire_error *err);

#endif
