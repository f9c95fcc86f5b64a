/*
 * vector_write.h - one write to one element of a vector set, from the request to the commit.
 *
 * Under the lock of the key's shard the set is looked up and the write committed, which needs no disk, unless a sealed
 * segment may hold the element (collection.h): then the lock is released, the disk is asked on the lane's ring, and the
 * write begins again with what it said. A commit that comes too late, after a seal or a merge, begins again, too.
 */
#ifndef QUIRE_SERVER_VECTOR_WRITE_H
#define QUIRE_SERVER_VECTOR_WRITE_H

#include "server/call/vector_scope.h"
#include "server/vector/vector_args.h"

struct vector_plan;

enum vector_write_kind { VECTOR_ADD, VECTOR_REMOVE, VECTOR_ATTRIBUTES, VECTOR_GRANT, VECTOR_REVOKE };

struct vector_write {
    enum vector_write_kind kind;
    struct resp_arg key, element;
    struct resp_arg attributes;   /* data NULL: none were given */
    struct tenant_scope *scope;   /* what the client may see; NULL: all. One block, as tenants */
    struct tenant_scope *tenants; /* ADD, GRANT, REVOKE: whom the element is granted to, or no longer; NULL: nobody */
    const float *vector;          /* VECTOR_ADD: n_numbers of them */
    uint32_t n_numbers, reduce;   /* reduce: REDUCE; 0: not given */
    struct collection_config config; /* of the set, if there is none yet */
    bool slot_given, degree_given; /* config's slot and code_bits, link_degree: must be those of a set that is there */
    /* what the disk said of a sealed element */
    bool is_located;
    uint64_t located_uid; /* of the collection that was asked */
    struct located located;
    const char *old_text; /* its grants and attributes (grants.h); NULL: none, or not in a segment */
    uint32_t old_text_bytes;
    const float *old_vector;        /* for what puts a sealed element again */
    const struct vector_plan *plan; /* what was asked for a whole transaction before; NULL: none */
    /* VECTOR_REMOVE of what a scan has seen: only in this collection (0: any), only as it was put by then, and only
     * what still matches (struct located) */
    uint64_t only_uid, seen_lsn;
    const struct filter *matching;
    /* out */
    bool removed, is_gone;     /* is_gone: there is no such collection under the key any more */
    struct collection *target; /* with a reference, where the disk must be asked; NULL otherwise */
    uint64_t lsn;              /* what the reply must wait for; 0: nothing was written */
};

enum vector_write_result {
    VECTOR_WRITE_DONE,     /* the reply stands in out */
    VECTOR_WRITE_ASKS_DISK /* it must be asked for write->element in write->target */
};
/* On a lane, inside the gate. */
enum vector_write_result vector_write_try(struct service *service, struct vector_write *write, struct resp_buffer *out);

/* What a write keeps of what was fetched of a sealed element. */
struct vector_kept {
    char *text; /* grants and attributes; NULL: none, or in memory. Owned, as the vector */
    uint32_t text_bytes;
    float *vector;
    size_t held; /* bytes of both, in an account */
};
/* Copies it, in place of what was kept before, as memory of the account. False: there is none, or no more of it is
 * allowed. */
bool vector_write_keep(const struct collection_fetch *fetch, struct resp_account *account, struct vector_kept *kept);
void vector_write_forget(struct resp_account *account, struct vector_kept *kept);

/* What else than its place the write must know of an element that is sealed. */
bool vector_write_wants_text(const struct vector_write *write);
bool vector_write_wants_vector(const struct vector_write *write);

/* Does it for a client: at once, or deferred where the disk must be asked; in a transaction as its plan says. Arguments
 * may lie in the request; tenants are taken over. The scope is set here, to what the client may see. */
void vector_write_run(struct caller *c, struct vector_write *write);

#endif
