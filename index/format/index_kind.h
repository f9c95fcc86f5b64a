/*
 * index_kind.h - which of the two kinds of index suits data, budget and device: what `auto` means.
 */
#ifndef QUIRE_INDEX_INDEX_KIND_H
#define QUIRE_INDEX_INDEX_KIND_H

#include "quire.h"

/* Why an index is of its kind; on the disk. */
enum kind_reason {
    KIND_ASKED_FOR = 0,
    KIND_LISTS_FIT = 1,    /* inverted lists: the codes of all rows fit into the budget */
    KIND_GRAPH_FITS = 2,   /* page graph: they do not, but its narrowest ones do */
    KIND_DEVICE = 3,       /* inverted lists: so, but one read takes long */
    KIND_NOTHING_FITS = 4, /* inverted lists: no codes fit */
    KIND_NO_BUDGET = 5,    /* page graph: it has codes for any budget */
    KIND_REASONS
};

struct index_kind_facts {
    uint64_t budget;      /* of searches, bytes; 0: none */
    bool lists_fit;       /* heads, and 4-bit list codes of all rows */
    uint64_t graph_bytes; /* centres and narrowest navigation codes of a page graph */
    const char *folder;   /* where the index will stand, or NULL: the device is not measured */
};

/* The rule; measures the device where it decides, for a fifth of a second. */
enum quire_index_kind index_kind_choose(const struct index_kind_facts *facts, enum kind_reason *reason);
/* One sentence. Static storage, never NULL. */
const char *index_kind_reason_text(uint32_t reason);

#endif
