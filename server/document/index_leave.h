/*
 * index_leave.h - the end of an index whose vectors are nowhere else: they come back into the hashes first.
 */
#ifndef QUIRE_SERVER_INDEX_LEAVE_H
#define QUIRE_SERVER_INDEX_LEAVE_H

#include "server/document/document_call.h"

/* Whether dropping the index takes reading: it has vectors of hashes. */
bool index_leave_reads(struct document_index *index);
/* Gives every vector back to its hash, on the worker, some at a time, each logged as the hash's own; then the index is
 * dropped, and done called on the lane: code, err, lsn. The index's reference is the caller's until then. QUIRE_ENOMEM
 * at once, without done; QUIRE_ELIMIT: maxmemory has no room for them. */
struct index_leave {
    struct lane *lane;
    struct document_index *index;
    void (*done)(struct index_leave *leave);
    /* filled */
    int code;
    struct quire_error error;
    uint64_t lsn;
    /* inside */
    struct job job;
    struct message message;
    uint32_t from, to; /* ids of this pass */
    unsigned passes;
    bool found; /* in this pass one that was away */
    uint8_t *keys;
    size_t n_bytes, at;
};
int index_leave_start(struct index_leave *leave, struct quire_error *err);

#endif
