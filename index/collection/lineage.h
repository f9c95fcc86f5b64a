/*
 * lineage.h - a collection with copies elsewhere: who it is, the numbers of its writes, and what each of them did.
 *
 * A collection that has a lineage has a name for ever (16 random bytes), a history (16 more, new whenever another copy
 * takes the lead) and a number for each write, which is in the journal's frame beside it. The host is told of each
 * write's effect in the order of the numbers; lineage_apply does the same to a copy, without a read of the disk. A
 * collection without one pays a comparison with NULL for each write.
 *
 * Copies share sealed segments by their 16-byte ids. The leader alone seals and merges. What it publishes is an effect,
 * too (EFFECT_EDIT), which a copy notes (`told`) and carries out when it has the segment (lineage_adopt); until then it
 * answers from what it has. Meanwhile rows of that segment may end: their deaths are noted beside it.
 *
 * Where a row is, an effect says by place: segment and row. A copy may not have gone along with the merge that made
 * that segment, so the places that the row had in the merged ones follow (struct part_origins), as long as the leader
 * knows them. Memtables have no ids: what ends there is found by key. They are cut where the leader cuts its own
 * (EFFECT_FREEZE), so that a seal takes the same rows away everywhere.
 */
#ifndef QUIRE_INDEX_LINEAGE_H
#define QUIRE_INDEX_LINEAGE_H

#include "index/collection/collection.h"
#include "io/journal.h"

#define LINEAGE_ID_BYTES 16u
#define LINEAGE_TOLD_MAX 256u /* publications that a copy has not carried out; beyond them it must be copied anew */

struct part;
struct element_place;
struct record_element;
struct collection_edit;
struct lineage;

struct lineage_identity {
    uint8_t id[LINEAGE_ID_BYTES], history[LINEAGE_ID_BYTES];
    uint64_t begins; /* the number with which the history began */
    uint64_t seq;    /* of the last write */
};

/* Numbers are part of what travels and of files: never change one. */
enum effect_kind {
    EFFECT_PUT = 1,     /* key, stored, text, places that end */
    EFFECT_REMOVE,      /* key, places that end */
    EFFECT_TEXT,        /* key, text: of an element in memory */
    EFFECT_DROP_TENANT, /* key: its name; generation */
    EFFECT_END_ROWS,    /* segment, rows: they are nobody's any more */
    EFFECT_FREEZE,      /* the memtable is cut here; upto: of who makes a copy, the leader's number of the cut */
    EFFECT_EDIT,        /* segment: what comes; gone, upto, rows that are dead in it */
    EFFECT_HISTORY,     /* history; upto: the number before it, 0 where copies cannot go along */
    EFFECT_KINDS_END
};

#define EFFECT_PLACES_MAX 8u
struct effect_place {
    uint8_t segment[LINEAGE_ID_BYTES];
    uint32_t row;
};

/* What a write did. Pointers are valid during the call in which it is given. */
struct effect {
    enum effect_kind kind;
    uint64_t seq;
    const struct lineage_identity *of; /* whose write it is, in which history; of EFFECT_HISTORY the one before */
    const void *key;
    uint32_t key_bytes;
    const void *stored; /* as memtables keep it: collection_stored_bytes */
    uint32_t stored_bytes;
    const void *text; /* attributes and grants (grants.h) */
    uint32_t text_bytes;
    struct effect_place places[EFFECT_PLACES_MAX];
    uint32_t n_places;
    uint32_t generation;
    uint8_t segment[LINEAGE_ID_BYTES]; /* of EFFECT_EDIT: zero where nothing comes */
    const uint32_t *rows;
    uint32_t n_rows;
    const uint8_t (*gone)[LINEAGE_ID_BYTES]; /* segments that go when it comes */
    uint32_t n_gone;
    struct part *const
        *gone_parts;        /* the leader's, as `gone`; does not travel: who wants one later takes a reference */
    uint64_t upto;          /* of EFFECT_EDIT: memtables that were cut at this number or before go; 0: none goes */
    uint64_t lowest;        /* of copies: the first cut, where several seals have become one; 0: it is one, upto */
    uint64_t segment_rows;  /* of what comes */
    uint64_t segment_bytes; /* all its files */
    bool required;          /* what comes is nowhere else: without it a copy is not whole */
    uint8_t history[LINEAGE_ID_BYTES];
};

/* ---- the leader -------------------------------------------------------------------------------------------------- */

/* Gives a collection its lineage: id NULL: a new one, and then a new history that begins with it. Once, before it has
 * copies; its writes are numbered from now on. QUIRE_EEXISTS. */
int lineage_begin(struct collection *collection, const struct lineage_identity *identity, uint64_t *lsn,
                  struct quire_error *err);
/* False: it has none. out may be NULL. */
bool lineage_get(struct collection *collection, struct lineage_identity *out);
/* A new history: of who takes the lead, and of a leader that was started again, which may have lost its last writes. */
int lineage_begin_history(struct collection *collection, uint64_t *lsn, struct quire_error *err);
/* From now on it takes effects and no writes, and its store leaves it alone; or the reverse. Not in the journal: the
 * host says so when it has opened the store. QUIRE_ENOTFOUND: it has no lineage. */
int lineage_set_replica(struct collection *collection, bool is_replica, struct quire_error *err);
bool lineage_is_replica(const struct collection *collection);
/* QUIRE_ECANCELLED, and why: it has become a copy, and takes nothing in the place of its parts or memtables. */
int lineage_cancel(const struct collection *collection, struct quire_error *err);
/* A replica takes the lead: it begins a history and takes writes from now on. Publications that were told and are not
 * here are given up, for their rows are here otherwise; every other copy, which may have gone along with them, is made
 * anew then. QUIRE_EBUSY: it misses segments that are nowhere else. */
int lineage_take_lead(struct collection *collection, uint64_t *lsn, struct quire_error *err);
/* Where rows of a merged segment were before is not needed any more: all copies have it, or were given up. */
void lineage_forget_origins(struct collection *collection, const uint8_t segment[LINEAGE_ID_BYTES]);

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Does what an effect of the leader's did. Effects come one after the other, from one thread at a time, outside of
 * batches. *lsn 0: it was done before. Touches no file. QUIRE_ESTALE: it cannot be done to what is here (numbers are
 * missing between, or a segment is that nobody knows): the copy must be made anew. Bytes are checked. */
int lineage_apply(struct collection *collection, const struct effect *effect, uint64_t *lsn, struct quire_error *err);

struct lineage_told {
    uint8_t segment[LINEAGE_ID_BYTES]; /* zero: nothing comes */
    uint64_t uid;                      /* that it will have here */
    uint64_t rows, bytes;
    bool required;
    bool is_ready; /* what it takes away is here: it can be adopted as soon as its segment is */
};
/* What has been told and is not here yet, oldest first; at most n are given. How many there are. */
uint32_t lineage_list_told(struct collection *collection, struct lineage_told *out, uint32_t n);
/* How many of them a search cannot do without. 0: the copy is whole. */
uint32_t lineage_missing(struct collection *collection);

/* The copy, made out of pieces, has the number and history of its leader now. */
int lineage_become(struct collection *collection, const struct lineage_identity *identity, uint64_t *lsn,
                   struct quire_error *err);

/* ---- a moment ---------------------------------------------------------------------------------------------------- */

/* A collection with a lineage as of one write. QUIRE_EBUSY: segments are on their way to it. */
struct lineage_moment;
struct view;
struct memtable;
struct memtable_row;
struct grant;
int lineage_moment_open(struct collection *collection, struct lineage_moment **out, struct quire_error *err);
void lineage_moment_close(struct lineage_moment *moment); /* NULL is fine */
const struct lineage_identity *lineage_moment_identity(const struct lineage_moment *moment);
const struct view *lineage_moment_view(const struct lineage_moment *moment);
/* The dead rows of part i, a bit a row. */
const uint8_t *lineage_moment_dead(const struct lineage_moment *moment, uint32_t i);
/* The number where memtable i was cut (0: it is the newest), and its rows: view_each_row. */
uint64_t lineage_moment_cut(const struct lineage_moment *moment, uint32_t i);
int lineage_moment_rows(const struct lineage_moment *moment, uint32_t i,
                        int (*visit)(void *context, const struct memtable *memtable, uint32_t number,
                                     const struct memtable_row *row),
                        void *context);
/* Tenants that were dropped; names live as long as the moment. */
uint32_t lineage_moment_tenants(const struct lineage_moment *moment);
struct grant lineage_moment_tenant(const struct lineage_moment *moment, uint32_t i);

/* ---- for the room's own files, and for the store ----------------------------------------------------------------- */

/* Where the rows of a merged segment were. Shared by segments that were made of it; counted. */
struct part_origins;
int lineage_make_origins(struct part *added, struct part *const *parts, uint32_t n, uint32_t *const *rows_of);
void lineage_origins_unref(struct part_origins *origins);

/* Of a collection that was played back: cuts its memtable where it was cut. QUIRE_ENOMEM. */
int lineage_recut(struct collection *collection);

/* Publishes the told edit that brings `part`, which is open, has the told uid and no tombstones; or that with the uid,
 * which brings nothing (NULL). *edit: what went, for the store to mark; lineage_edit_free gives its lists back. */
int lineage_adopt(struct collection *collection, uint64_t uid, struct part *part, struct collection_edit *edit,
                  uint64_t *lsn, struct quire_error *err);
void lineage_edit_free(struct collection_edit *edit);

#endif
