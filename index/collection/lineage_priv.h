/* lineage_priv.h - the inside of a lineage, for the collection's own files. */
#ifndef QUIRE_INDEX_LINEAGE_PRIV_H
#define QUIRE_INDEX_LINEAGE_PRIV_H

#include "index/collection/collection_priv.h"
#include "index/collection/lineage.h"

/* Records of one frame: the write's own, places that end beside that in it, and the number. */
#define LINEAGE_RECORDS_MAX (EFFECT_PLACES_MAX + 2u)
#define END_RECORD_BYTES    28u
#define SEQ_RECORD_BYTES    16u
#define FREEZE_RECORD_BYTES 24u

/* A publication that was told and is not carried out. */
struct told {
    struct part *part; /* not open: its uid, and what has died in it; owned */
    uint8_t segment[LINEAGE_ID_BYTES];
    uint8_t (*gone)[LINEAGE_ID_BYTES]; /* owned */
    uint32_t n_gone;
    uint64_t lowest, upto; /* the first and the last cut that it takes away; 0: none */
    uint64_t rows, bytes;
    bool required;
};

/* Where memtables were cut, while records are played back. */
struct cut {
    uint64_t seq, lsn;
};

struct lineage {
    struct lineage_identity identity;
    bool is_replica;
    struct told *told;
    uint32_t n_told, told_capacity;
    struct cut *cuts;
    uint32_t n_cuts, cuts_capacity;
    /* of the frame that is being written */
    struct {
        uint64_t uid;
        uint32_t row;
    } ends[EFFECT_PLACES_MAX];
    uint32_t n_ends;
    uint8_t end_records[EFFECT_PLACES_MAX][END_RECORD_BYTES], seq_record[SEQ_RECORD_BYTES];
};

void lineage_free(struct lineage *lineage); /* NULL is fine */
static inline bool lineage_is_zero(const uint8_t id[LINEAGE_ID_BYTES])
{
    uint8_t all = 0;
    for (unsigned i = 0; i < LINEAGE_ID_BYTES; i++)
        all |= id[i];
    return all == 0;
}

/* All with the lock held, and a lineage. */

/* Adds to n records those of the places that end beside, and that of the number after `effects` more; how many there
 * are. They are valid until the next call. */
unsigned lineage_add_records(struct collection *c, struct journal_record *records, unsigned n, uint32_t effects);
/* They are in the journal. */
void lineage_advance(struct collection *c, uint32_t effects);
int lineage_refuse(const struct collection *c, struct quire_error *err);
/* After the write was logged and before what it ends has ended. Not of replicas: they say nothing. */
void lineage_tell_element(struct collection *c, enum effect_kind kind, const struct record_element *element,
                          const struct element_place *ended);
void lineage_tell_edit(struct collection *c, const struct collection_edit *edit, const struct element_place *replaced);
void lineage_tell(struct collection *c, struct effect *effect);
/* Frozen memtables whose cuts have no number get this one. */
void lineage_name_cuts(struct collection *c, uint64_t seq);
/* Of the leader, before a memtable is frozen. */
int lineage_log_freeze(struct collection *c, struct quire_error *err);
/* The sealed part of an id; NULL: none. */
struct part *lineage_part(const struct collection *c, const uint8_t segment[LINEAGE_ID_BYTES]);
/* What was told under a uid, or of a segment; NULL: nothing. */
struct told *lineage_find_uid(const struct collection *c, uint64_t uid);
struct told *lineage_find(const struct collection *c, const uint8_t segment[LINEAGE_ID_BYTES]);
/* Its turn has come: what it takes away is here, and no older one has memtables to take. */
bool lineage_told_is_ready(const struct collection *c, const struct told *told);
void lineage_remove_told(struct collection *c, struct told *told);
/* All of it, with a new history: the record of that says so when it is played back. */
void lineage_give_up_told(struct collection *c);
/* Notes an edit in two steps, before and after it is logged: all that may fail; then it takes the part over, and those
 * that it has overtaken become one with it. Between them nothing else is noted. next->gone is freed where the second
 * does not follow. */
int lineage_prepare_told(struct collection *c, const struct effect *edit, struct part *part, struct told *next,
                         struct quire_error *err);
void lineage_commit_told(struct collection *c, struct told *next);

/* ---- records ----------------------------------------------------------------------------------------------------- */

uint8_t *lineage_record_identity(const struct collection *c, const struct lineage_identity *identity,
                                 uint32_t *n_bytes);
void lineage_encode_freeze(const struct collection *c, uint64_t seq, uint64_t lsn, uint8_t out[FREEZE_RECORD_BYTES]);
uint8_t *lineage_record_told(const struct collection *c, const struct effect *edit, uint64_t uid, uint32_t *n_bytes);
/* Without a lock. Kinds IDENTITY, SEQ, FREEZE, TOLD. */
int lineage_replay(struct collection *c, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                   struct quire_error *err);
/* Of RECORD_EDIT: parts that come were told before; memtables up to a number of the journal have gone. */
void lineage_replay_edit(struct collection *c, uint64_t come, uint64_t sealed_lsn);
/* The records for a checkpoint as one piece: (lock) taken, then put. NULL without memory; *n_bytes 0: none. */
uint8_t *lineage_state(const struct collection *c, size_t *n_bytes);
int lineage_save(struct checkpoint *checkpoint, uint64_t lsn, const uint8_t *state, size_t n_bytes,
                 struct quire_error *err);

#endif
