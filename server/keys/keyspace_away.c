/*
 * keyspace_away.c - values of hashes that somebody else keeps: sent away, brought back, let go again.
 *
 * None of it is a change of the key: its version stays. What is away is durable where it is kept; so a value may come
 * back as a copy without a word in the log, but for good only with one.
 */
#include "server/keys/keyspace_log.h"
#include "server/keys/keyspace_priv.h"
#include <assert.h>

int keyspace_hash_add_away(struct keyspace_lock *lock, const struct key *key, struct key_entry **entry,
                           struct resp_arg field, uint32_t value_bytes, struct quire_error *err)
{
    struct key_entry *e = *entry ? *entry : keyspace_entry_create(lock->keyspace, key, KEY_HASH);
    if (e && !*entry)
        e->hash = hash_create(lock->keyspace->seed);
    uint64_t before = e && *entry ? keyspace_entry_bytes(e) : 0;
    assert(!lock->keyspace->journal);
    if (!e || !e->hash || hash_add_away(e->hash, field, value_bytes) < 0) {
        if (!*entry && e)
            keyspace_entry_destroy(e);
        return keyspace_no_memory(err);
    }
    if (*entry)
        keyspace_account(lock->keyspace, before, keyspace_entry_bytes(e));
    else
        keyspace_entry_link(lock, e, 0);
    *entry = e;
    return 0;
}

void keyspace_send_away(struct keyspace *k, struct key_entry *e, struct resp_arg field)
{
    uint64_t before = keyspace_entry_bytes(e);
    assert(e->type == KEY_HASH);
    hash_send_away(e->hash, field);
    keyspace_account(k, before, keyspace_entry_bytes(e));
}

int keyspace_bring(struct keyspace_lock *lock, struct key_entry *e, struct resp_arg field, struct resp_arg value,
                   struct quire_error *err)
{
    uint64_t before = keyspace_entry_bytes(e);
    assert(e->type == KEY_HASH && hash_is_away(e->hash, field));
    int rc = hash_bring(e->hash, field, value.data);
    keyspace_account(lock->keyspace, before, keyspace_entry_bytes(e));
    return rc < 0 ? keyspace_no_memory(err) : 0;
}

int keyspace_keep(struct keyspace_lock *lock, struct key_entry *e, struct resp_arg field, struct quire_error *err)
{
    struct resp_arg pair[2] = {field};
    struct key_log log;
    uint64_t lsn = 0;
    bool there = hash_get(e->hash, field, &pair[1]);
    assert(there && pair[1].data);
    keyspace_log_begin(&log, lock->keyspace);
    keyspace_log_hash_set(&log, (struct resp_arg){e->key, e->node.key_bytes}, pair, 1);
    int rc = keyspace_commit(lock, &log, &lsn, err);
    if (rc < 0)
        return rc;
    if (hash_is_away(e->hash, field))
        hash_keep(e->hash, field);
    e->lsn = lsn ? lsn : e->lsn;
    e->restored = e->restored && lsn == 0;
    lock->lsn = lsn > lock->lsn ? lsn : lock->lsn;
    return 0;
}

void keyspace_let_go(struct keyspace *k, struct key_entry *e, struct resp_arg field)
{
    uint64_t before = keyspace_entry_bytes(e);
    assert(e->type == KEY_HASH);
    hash_let_go(e->hash, field);
    keyspace_account(k, before, keyspace_entry_bytes(e));
}
