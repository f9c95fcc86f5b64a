/* memtable_ref.h - a memtable that views share: counted, and which writes it took. */
#ifndef QUIRE_INDEX_MEMTABLE_REF_H
#define QUIRE_INDEX_MEMTABLE_REF_H

#include "index/memtable/memtable.h"
#include <stdatomic.h>

/* A memtable and who may still read it. */
struct memtable_ref {
    atomic_uint references;
    struct memtable *memtable;
    /* It took the writes with after_lsn < LSN <= last_lsn. after_lsn is the last_lsn of the one that was frozen when
     * this one was made, 0 where there was none; last_lsn is MEMTABLE_LSN_MAX until this one is frozen. */
    uint64_t after_lsn, last_lsn;
    uint64_t last_seq; /* of a frozen one of a collection with a lineage: where its leader cut it (lineage.h);
                        * CUT_HERE: the leader did not, it goes with what is cut next */
#define CUT_HERE UINT64_MAX
    /* Takes it over when its last reference goes, wherever that is: to give back its memory takes milliseconds, and a
     * search may be who goes last. NULL: it is destroyed at once. */
    void (*gone)(void *context, struct memtable_ref *table);
    void *context;
    struct memtable_ref *next_gone; /* of who took it over */
};

/* A memtable with one reference; the last one destroys it. */
int memtable_ref_create(const struct memtable_config *config, struct memtable_ref **out, struct quire_error *err);
struct memtable_ref *memtable_ref(struct memtable_ref *table);
void memtable_unref(struct memtable_ref *table); /* NULL is fine */
/* By who took it over. */
void memtable_ref_free(struct memtable_ref *table);

#endif
