/*
 * key_call.h - what the commands of keys share: looking a key up for a command, and unlocking it behind the reply.
 */
#ifndef QUIRE_SERVER_KEY_CALL_H
#define QUIRE_SERVER_KEY_CALL_H

#include "server/call/caller.h"

/* A command on one key, from key_read or key_write to key_end. */
struct key_call {
    struct caller *caller;
    struct keyspace_lock lock;
    struct key key;
    struct key_entry *entry; /* NULL: there is none */
    bool writes;
};

enum { KEY_ANY = -1 };

/* Looks the key up, locks it, and counts a hit or a miss; `type` is an enum key_type or KEY_ANY. False after an error
 * reply (WRONGTYPE), with nothing locked. */
bool key_read(struct key_call *call, struct caller *c, struct resp_arg key, int type);
/* The same for a command that may change it; nothing is counted. Also false for a key that is too long, and where a key
 * that is over could not be removed. */
bool key_write(struct key_call *call, struct caller *c, struct resp_arg key, int type);
/* The same without type, and no access: nothing is noted or counted. False where there is no such key; nothing is
 * locked then, and no reply given. */
bool key_peek(struct key_call *call, struct caller *c, struct resp_arg key);
/* Unlocks; behind the reply, which waits for what was logged. */
void key_end(struct key_call *call);

/* Behind the reply to a write, which waits for what was logged; the writer stands back where that went to collections,
 * too. lock: unlocked. */
void key_wrote(struct caller *c, const struct keyspace_lock *lock);
/* After an element was written: some of a turn later the client's next request waits for the lane's others, or, where
 * the store is behind with its seals, longer. */
void key_stand_back(struct caller *c);

/* False after an error reply: a key that is written to has at most QUIRE_KEY_BYTES_MAX bytes. */
bool key_fits(struct caller *c, struct resp_arg key);
/* The reply to a change that failed (rc < 0), after which the keys have been released; false where rc is 0. */
bool key_failed(struct caller *c, struct keyspace_lock *lock, int rc, const struct quire_error *err);
/* The error reply of every command that would look into a set, or write to it, whose files cannot be used. False, with
 * nothing written, where they can. */
bool key_is_unavailable(struct resp_buffer *out, struct resp_arg key, const struct collection *set);
/* Notes a hit or a miss of a command that reads. */
void key_count_look_up(struct caller *c, bool found);
/* How the value is stored, as OBJECT ENCODING says it. */
const char *key_encoding(const struct key_entry *entry);

#endif
