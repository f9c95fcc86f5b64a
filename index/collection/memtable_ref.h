/* memtable_ref.h - a memtable that views share: counted, and from which LSN to which it took writes. */
#ifndef QUIRE_INDEX_MEMTABLE_REF_H
#define QUIRE_INDEX_MEMTABLE_REF_H

#include "index/memtable/memtable.h"
#include <stdatomic.h>

/* A memtable and who may still read it. */
struct memtable_ref {
    atomic_uint references;
    struct memtable *memtable;
    uint64_t first_seq; /* of the last write before it took any */
    uint64_t last_seq;  /* of a frozen one: its rows begin at or before this, every later row is elsewhere */
};

/* A memtable with one reference; the last one destroys it. */
int memtable_ref_create(const struct memtable_config *config, struct memtable_ref **out, struct quire_error *err);
struct memtable_ref *memtable_ref_hold(struct memtable_ref *table);
void memtable_ref_release(struct memtable_ref *table); /* NULL is fine */

#endif
