/*
 * keyspace_vectors.c - vector sets under keys: a key holds a reference to a collection, which the store keeps.
 *
 * While a folder is read the two come back apart, keys from their records and collections from theirs: a key then knows
 * the number of its collection only (`unbound`), until keyspace_bind brings them together.
 */
#include "server/keys/keyspace_log.h"
#include "server/keys/keyspace_priv.h"
#include <stdlib.h>

int keyspace_set_vectors(struct keyspace_lock *lock, const struct key *key, struct collection *set,
                         struct quire_error *err)
{
    struct key_entry *fresh = keyspace_entry_create(lock->keyspace, key, KEY_VECTOR_SET);
    struct resp_arg name = {key->data, key->bytes};
    struct key_log log;
    uint64_t lsn = 0;
    if (!fresh)
        return keyspace_no_memory(err);
    keyspace_log_begin(&log, lock->keyspace);
    keyspace_log_vectors(&log, name, collection_uid(set));
    int rc = keyspace_commit(lock, &log, &lsn, err);
    if (rc < 0) {
        free(fresh);
        return rc;
    }
    fresh->set = set;
    keyspace_entry_link(lock, fresh, lsn);
    return 0;
}

int keyspace_set_unbound(struct keyspace_lock *lock, const struct key *key, uint64_t uid, struct quire_error *err)
{
    struct key_entry *fresh = keyspace_entry_create(lock->keyspace, key, KEY_VECTOR_SET);
    if (!fresh)
        return keyspace_no_memory(err);
    fresh->uid = uid;
    fresh->unbound = true;
    keyspace_entry_link(lock, fresh, 0);
    return 0;
}

struct binding {
    struct collection *(*find)(void *context, uint64_t uid);
    void *context;
    struct key_entry *lost; /* of this shard */
};

static void bind_node(void *context, struct table_node *node)
{
    struct binding *b = context;
    struct key_entry *e = keyspace_entry_of(node);
    if (e->type != KEY_VECTOR_SET || (!e->unbound && e->set))
        return;
    struct collection *set = e->unbound ? b->find(b->context, e->uid) : NULL;
    e->set = set;
    e->unbound = false;
    if (!set)
        b->lost = e;
}

void keyspace_bind(struct keyspace *k, struct collection *(*find)(void *context, uint64_t uid), void *context)
{
    struct binding b = {find, context, NULL};
    for (unsigned i = 0; i < KEYSPACE_SHARDS; i++)
        do {
            struct keyspace_lock lock;
            b.lost = NULL;
            keyspace_lock_shard(&lock, k, i);
            node_table_each(&k->shards[i].table, bind_node, &b);
            if (b.lost)
                keyspace_entry_unlink(&lock, b.lost);
            keyspace_unlock(&lock);
        } while (b.lost);
}

struct collection *keyspace_get_vectors(struct keyspace *k, struct resp_arg name, bool *other)
{
    struct keyspace_lock lock;
    struct key key = keyspace_key(k, name);
    keyspace_lock_key(&lock, k, &key);
    const struct key_entry *e = keyspace_find(&lock, &key);
    *other = e && e->type != KEY_VECTOR_SET;
    struct collection *set = e && !*other ? collection_ref(e->set) : NULL;
    keyspace_unlock(&lock);
    return set;
}
