/*
 * vector_write.h - one write to one element of a vector set, from the request to the commit.
 *
 * Under the lock of the key's shard the set is looked up and the write committed, which needs no disk, unless a sealed
 * segment may hold the element (collection.h): then the lock is let go, the disk is asked on the lane's ring, and the
 * write begins again with what it said. A commit that comes too late, after a seal or a merge, begins again, too.
 */
#ifndef QUIRE_SERVER_VECTOR_WRITE_H
#define QUIRE_SERVER_VECTOR_WRITE_H

#include "server/vector_args.h"

struct vector_plan;

enum vector_write_kind { VECTOR_ADD, VECTOR_REMOVE, VECTOR_ATTRIBUTES };

struct vector_write {
    enum vector_write_kind kind;
    struct resp_arg key, element;
    struct resp_arg attributes; /* data NULL: none were given */
    const float *vector;        /* VECTOR_ADD: n_numbers of them */
    uint32_t n_numbers;
    struct collection_config config; /* of the set, if there is none yet */
    bool slot_given, degree_given; /* config's slot and code_bits, link_degree: must be those of a set that is there */
    /* what the disk said of a sealed element */
    bool is_located;
    uint64_t located_uid; /* of the collection that was asked */
    struct located located;
    const char *old_attributes; /* NULL: none, or not in a segment */
    uint32_t old_attribute_bytes;
    const float *old_vector;        /* VECTOR_ATTRIBUTES */
    const struct vector_plan *plan; /* what was asked for a whole transaction before; NULL: none */
    /* out */
    struct collection *target; /* with a reference, where the disk must be asked, or links wait; NULL otherwise */
    uint64_t lsn;              /* what the reply must wait for; 0: nothing was written */
};

/* 0: done, the reply stands in out. 1: the disk must be asked for write->element in write->target. On a lane, inside
 * the gate. */
int vector_write_try(struct server *server, struct vector_write *write, struct resp_buffer *out);

/* What else than its place the write must know of an element that is sealed. */
bool vector_write_wants_attributes(const struct vector_write *write);
bool vector_write_wants_vector(const struct vector_write *write);

/* Does it for a client: at once, or deferred where the disk must be asked; in a transaction as its plan says. Arguments
 * may lie in the request. */
void vector_write_run(struct client *c, struct vector_write *write);

#endif
