/*
 * key_values.h - values of hashes that only the indexes have (docs/decisions/documents.md), brought for those who read
 * them.
 *
 * A lane never waits: a handler asks for what it needs with the key locked; what is on the disk is read, and the
 * request begins again when it has come (caller->again). The copies stay in the hash for a moment (VALUES_KEPT_MS),
 * then go. Another thread than a lane's waits for the disk itself.
 *
 * A copy is put into the hash only where the key is of the version that it had when the read began.
 */
#ifndef QUIRE_SERVER_KEY_VALUES_H
#define QUIRE_SERVER_KEY_VALUES_H

#include "server/call/key_call.h"

enum { VALUES_KEPT_MS = 100 };

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

/* Whether the values of these fields (n of them; NULL: of all) of the call's hash, if it is one, are in memory. False:
 * the key is let go, and either the request begins again later, and has no reply yet, or an error was replied. In EXEC,
 * which has brought them before (key_values_of_request), it never begins again. */
bool key_values_ready(struct key_call *call, const struct resp_arg *fields, uint32_t n);
/* The same with another lock. */
bool key_values_ready_in(struct caller *c, struct keyspace_lock *lock, struct key_entry *entry,
                         const struct resp_arg *fields, uint32_t n);
/* For one who changes the hash: of those values whose bytes an index would need then. */
bool key_values_ready_to_change(struct key_call *call);
/* For the host: the caller's request has run, or the caller is gone: what it waited for is nobody's. */
void key_values_forget(struct caller *c);
/* Whether the caller's next request is to wait for values. */
bool key_values_wait(const struct caller *c);

/* ---- others on a lane -------------------------------------------------------------------------------------------- */

/* Who waits. Kept by its owner while n > 0. */
struct values_wait {
    struct lane *lane;
    void (*come)(struct values_wait *wait); /* n is 0 again; on the lane, outside of the gate */
    bool in_memory_only;                    /* no read is started */
    /* filled */
    unsigned n; /* reads under way */
    int code;   /* why one could not be brought; 0: nothing was wrong */
    struct quire_error error;
};
/* As key_values_ready, without a reply: true, where all are in memory. Otherwise reads were begun (n), or something
 * went wrong (code). The key stays locked. */
bool key_values_bring(struct values_wait *wait, struct keyspace_lock *lock, struct key_entry *entry,
                      const struct resp_arg *fields, uint32_t n);
/* Copies stay, however long it takes, until as many have let go as hold. */
void key_values_hold(struct lane *lane);
void key_values_release(struct lane *lane);

extern const struct lane_hook values_hook; /* copies go */

/* ---- other threads ----------------------------------------------------------------------------------------------- */

/* Zeroed at first; ended by key_values_reader_fini. */
struct values_reader {
    struct service *service;
    struct search_lane *lane;
    struct keyspace_lock lock;
    struct key key;
    struct key_entry *entry;
};
/* Inside the gate, locks a key whose values are all in memory then: reader->entry, NULL: there is no such key. Blocks.
 * On failure (what a read or the memory says) nothing is held. */
int key_values_lock(struct values_reader *reader, struct resp_arg name, struct quire_error *err);
/* Copies go, the key is let go, and the gate is left. *lsn (may be NULL) rises to that of what was logged. */
void key_values_unlock(struct values_reader *reader, uint64_t *lsn);
void key_values_reader_fini(struct values_reader *reader);

#endif
