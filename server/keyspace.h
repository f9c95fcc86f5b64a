/*
 * keyspace.h - keys of the server and the collections behind them.
 *
 * A collection is an opened segment under a key. It is found under a lock that is held for the look-up only, and stays
 * valid on a lane until the lane has run the collection's forget message, which waits for the lane's last task on it:
 *
 *   references: one of the table, one of each lane. keyspace_release takes the collection out of the lanes' hands; the
 * last one to let go has the worker close the segment (closing unmaps memory and may take long).
 */
#ifndef QUIRE_SERVER_KEYSPACE_H
#define QUIRE_SERVER_KEYSPACE_H

#include "index/segment.h"
#include <pthread.h>
#include <stdatomic.h>

struct server;
struct lane;
struct collection;

struct keyspace {
    pthread_rwlock_t lock;
    struct collection **buckets;
    size_t n_buckets, n_keys;
};

int keyspace_init(struct keyspace *keyspace, struct quire_error *err);
void keyspace_fini(struct keyspace *keyspace); /* empty by then */

/* Takes over the segment's reference, also on failure. The collection belongs to nobody until keyspace_put. */
int collection_create(struct server *server, const void *key, size_t key_bytes, struct segment *segment,
                      struct collection **out, struct quire_error *err);
/* One that was never put. */
void collection_destroy(struct collection *collection);

const void *collection_key(const struct collection *collection, size_t *bytes);
struct segment *collection_segment(const struct collection *collection);
uint64_t collection_id(const struct collection *collection); /* unique in this run of the server */

/* The collection of a key, or NULL. See above for how long it is valid. */
struct collection *keyspace_find(struct keyspace *keyspace, const void *key, size_t key_bytes);
size_t keyspace_count(struct keyspace *keyspace);
/* Puts it under its key. Where there is one already: QUIRE_EEXISTS, or, with replace, *replaced gets the old one, which
 * must be released. */
int keyspace_put(struct keyspace *keyspace, struct collection *collection, bool replace, struct collection **replaced,
                 struct quire_error *err);
/* Takes a key out; NULL where there is none. The caller releases it. */
struct collection *keyspace_take(struct keyspace *keyspace, const void *key, size_t key_bytes);
/* Any collection, taken out; NULL when empty. For the end. */
struct collection *keyspace_take_any(struct keyspace *keyspace);
/* Calls visit for each, under the lock: no blocking, no keyspace call. */
void keyspace_each(struct keyspace *keyspace, void (*visit)(void *context, const struct collection *collection),
                   void *context);

/* Hands a taken collection to its end. */
void keyspace_release(struct server *server, struct collection *collection);

/* A task of this lane on the collection begins, ends. On the lane's thread. */
void collection_begin(struct collection *collection, struct lane *lane);
void collection_end(struct collection *collection, struct lane *lane);

#endif
