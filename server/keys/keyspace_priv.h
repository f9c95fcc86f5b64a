/*
 * keyspace_priv.h - entries in the tables of the keyspace, for the files of this room that change keys.
 */
#ifndef QUIRE_SERVER_KEYSPACE_PRIV_H
#define QUIRE_SERVER_KEYSPACE_PRIV_H

#include "io/error.h"
#include "server/keys/keyspace.h"

struct key_log;

/* An entry in no table. NULL without memory. The value is the caller's to set. */
struct key_entry *keyspace_entry_create(const struct keyspace *k, const struct key *key, enum key_type type);
/* Puts a fresh entry in its table, in place of what has its key; space in the queue was reserved. */
void keyspace_entry_link(struct keyspace_lock *lock, struct key_entry *fresh, uint64_t lsn);
/* Appends what a change logs. Where the follower logs, too, all of this lock's is one frame, unless the caller has
 * opened one. */
int keyspace_commit(struct keyspace_lock *lock, struct key_log *log, uint64_t *lsn, struct quire_error *err);
void keyspace_entry_destroy(struct key_entry *e); /* of one in no table */
/* Takes it out; it is freed when the lock is released. */
void keyspace_entry_unlink(struct keyspace_lock *lock, struct key_entry *e);

/* While a folder is read: a field whose value is away, of *entry (NULL: a new hash, which it becomes). QUIRE_ENOMEM. */
int keyspace_hash_add_away(struct keyspace_lock *lock, const struct key *key, struct key_entry **entry,
                           struct resp_arg field, uint32_t value_bytes, struct quire_error *err);

static inline struct key_entry *keyspace_entry_of(struct table_node *node)
{
    return (struct key_entry *)(void *)node;
}

static inline void keyspace_account(struct keyspace *k, uint64_t before, uint64_t after)
{
    if (after != before)
        atomic_fetch_add_explicit(&k->used_bytes, after - before, memory_order_relaxed);
}

static inline int keyspace_no_memory(struct quire_error *err)
{
    return error_set(err, QUIRE_ENOMEM, "no memory for a key");
}

#endif
