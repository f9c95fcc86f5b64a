/*
 * store_fork.c - the store around a fork of its process: each lock that a child may need, in the order of store_priv.h.
 *
 * The journal's quiesce comes first, so that no transaction is cut in half and no view is being exchanged; then the
 * table's lock, all collections' (their writes are a frame, a row and an end, and the child must not see one of the
 * three), and the small ones. `checkpoint` and `publish` are not taken: they are held for seconds, by threads that the
 * child does not have, and guard nothing that it reads.
 */
#include "index/store/store_priv.h"

static void each_locked(struct store *store, void (*visit)(struct collection *collection))
{
    assert(lock_is_held(&store->lock));
    for (uint32_t i = 0; i < store->n_buckets; i++)
        for (struct collection *c = store->buckets[i]; c; c = store_upkeep(c)->next)
            visit(c);
}

void store_fork_prepare(struct store *store)
{
    journal_fork_quiesce(store->journal);
    pthread_mutex_lock(&store->lock);
    each_locked(store, collection_fork_prepare);
    pthread_mutex_lock(&store->wake_lock);
    epochs_fork_prepare(store->epochs);
    journal_fork_prepare(store->journal);
}

static void let_go(struct store *store)
{
    epochs_fork_end(store->epochs);
    pthread_mutex_unlock(&store->wake_lock);
    each_locked(store, collection_fork_end);
    pthread_mutex_unlock(&store->lock);
}

void store_fork_parent(struct store *store)
{
    journal_fork_parent(store->journal);
    let_go(store);
}

void store_fork_child(struct store *store)
{
    journal_fork_child(store->journal);
    let_go(store);
    pthread_cond_init(&store->changed, NULL);
    pthread_cond_init(&store->wake, NULL);
}
