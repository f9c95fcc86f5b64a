/*
 * keyspace.c - a chained hash table of collections, and how a collection ends while lanes may be searching it.
 *
 * DEL answers at once. The collection leaves the table (nobody finds it any more), each lane gets a message; a lane
 * with tasks on it remembers the message and acts when its last task has ended. Then the lane detaches the files from
 * its ring and lets go of its reference. Reference counts per task would put an atomic on the search path of every
 * query; one reference per lane costs nothing there, since a lane counts its own tasks in plain memory.
 */
#include "server/keyspace.h"
#include "io/error.h"
#include "io/memory.h"
#include "server/server_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* What one lane knows of a collection, on its own cache line. */
struct lane_view {
    struct message forget;
    struct collection *collection;
    unsigned tasks;
    bool forgotten;
    char padding[64 - sizeof(struct message) - sizeof(void *) - sizeof(unsigned) - sizeof(bool)];
};

struct collection {
    struct collection *next;
    struct server *server;
    struct segment *segment;
    uint64_t id, hash;
    atomic_uint references;
    struct job close;
    size_t key_bytes;
    uint8_t *key;
    unsigned n_views;
    struct lane_view *views;
};

int keyspace_init(struct keyspace *k, struct quire_error *err)
{
    k->n_keys = 0;
    k->n_buckets = 64;
    k->buckets = calloc(k->n_buckets, sizeof *k->buckets);
    if (!k->buckets)
        return error_set(err, QUIRE_ENOMEM, "no memory for the keyspace");
    pthread_rwlock_init(&k->lock, NULL);
    return 0;
}

void keyspace_fini(struct keyspace *k)
{
    if (!k->buckets)
        return;
    assert(k->n_keys == 0);
    free(k->buckets);
    k->buckets = NULL;
    pthread_rwlock_destroy(&k->lock);
}

/* ---- collections ------------------------------------------------------------------------------------------------- */

static void free_collection(struct collection *c)
{
    segment_unref(c->segment);
    memory_free(c->views);
    free(c->key);
    free(c);
}

static void close_job(struct job *job)
{
    free_collection((struct collection *)(void *)((char *)job - offsetof(struct collection, close)));
}

static void unref(struct collection *c)
{
    if (atomic_fetch_sub_explicit(&c->references, 1, memory_order_acq_rel) == 1) {
        c->close.run = close_job;
        worker_post(&c->server->worker, &c->close);
    }
}

static void forget_on(struct lane *lane, struct lane_view *view)
{
    if (lane->searcher) /* a lane that has ended forgot everything */
        searcher_forget(lane->searcher, view->collection->segment);
    unref(view->collection);
}

static void on_forget(struct lane *lane, struct message *message)
{
    struct lane_view *view = (struct lane_view *)(void *)message;
    view->forgotten = true;
    if (view->tasks == 0)
        forget_on(lane, view);
}

int collection_create(struct server *server, const void *key, size_t key_bytes, struct segment *segment,
                      struct collection **out, struct quire_error *err)
{
    struct collection *c = calloc(1, sizeof *c);
    struct lane_view *views = memory_aligned(64, sizeof *views * server->n_lanes);
    uint8_t *copy = malloc(key_bytes + 1);
    if (!c || !views || !copy) {
        free(c);
        memory_free(views);
        free(copy);
        segment_unref(segment);
        return error_set(err, QUIRE_ENOMEM, "no memory for a collection");
    }
    memcpy(copy, key, key_bytes);
    memset(views, 0, sizeof *views * server->n_lanes);
    for (unsigned i = 0; i < server->n_lanes; i++) {
        views[i].forget.run = on_forget;
        views[i].collection = c;
    }
    c->server = server;
    c->segment = segment;
    c->id = atomic_fetch_add(&server->next_collection_id, 1);
    c->hash = XXH3_64bits(key, key_bytes);
    atomic_init(&c->references, server->n_lanes + 1);
    c->key = copy;
    c->key_bytes = key_bytes;
    c->views = views;
    c->n_views = server->n_lanes;
    *out = c;
    return 0;
}

void collection_destroy(struct collection *c)
{
    free_collection(c);
}

const void *collection_key(const struct collection *c, size_t *bytes)
{
    *bytes = c->key_bytes;
    return c->key;
}

struct segment *collection_segment(const struct collection *c)
{
    return c->segment;
}

uint64_t collection_id(const struct collection *c)
{
    return c->id;
}

void collection_begin(struct collection *c, struct lane *lane)
{
    c->views[lane->index].tasks++;
}

void collection_end(struct collection *c, struct lane *lane)
{
    struct lane_view *view = &c->views[lane->index];
    assert(view->tasks > 0);
    if (--view->tasks == 0 && view->forgotten)
        forget_on(lane, view);
}

void keyspace_release(struct server *server, struct collection *c)
{
    for (unsigned i = 0; i < server->n_lanes; i++)
        lane_post(&server->lanes[i], &c->views[i].forget);
    unref(c);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static struct collection **place_of(struct keyspace *k, const void *key, size_t key_bytes, uint64_t hash)
{
    struct collection **at = &k->buckets[hash & (k->n_buckets - 1)];
    while (*at && !((*at)->hash == hash && (*at)->key_bytes == key_bytes && memcmp((*at)->key, key, key_bytes) == 0))
        at = &(*at)->next;
    return at;
}

/* Doubles the table; without memory the chains grow instead. */
static void grow(struct keyspace *k)
{
    size_t n = 2 * k->n_buckets;
    struct collection **bigger = calloc(n, sizeof *bigger);
    if (!bigger)
        return;
    for (size_t i = 0; i < k->n_buckets; i++)
        for (struct collection *c = k->buckets[i], *next; c; c = next) {
            next = c->next;
            c->next = bigger[c->hash & (n - 1)];
            bigger[c->hash & (n - 1)] = c;
        }
    free(k->buckets);
    k->buckets = bigger;
    k->n_buckets = n;
}

struct collection *keyspace_find(struct keyspace *k, const void *key, size_t key_bytes)
{
    uint64_t hash = XXH3_64bits(key, key_bytes);
    pthread_rwlock_rdlock(&k->lock);
    struct collection *found = *place_of(k, key, key_bytes, hash);
    pthread_rwlock_unlock(&k->lock);
    return found;
}

size_t keyspace_count(struct keyspace *k)
{
    pthread_rwlock_rdlock(&k->lock);
    size_t n = k->n_keys;
    pthread_rwlock_unlock(&k->lock);
    return n;
}

int keyspace_put(struct keyspace *k, struct collection *c, bool replace, struct collection **replaced,
                 struct quire_error *err)
{
    int rc = 0;
    *replaced = NULL;
    pthread_rwlock_wrlock(&k->lock);
    struct collection **at = place_of(k, c->key, c->key_bytes, c->hash);
    if (*at && !replace) {
        rc = error_set(err, QUIRE_EEXISTS, "Target key name already exists");
    } else {
        *replaced = *at;
        c->next = *at ? (*at)->next : NULL;
        *at = c;
        k->n_keys += *replaced ? 0 : 1;
        if (k->n_keys > k->n_buckets)
            grow(k);
    }
    pthread_rwlock_unlock(&k->lock);
    return rc;
}

static struct collection *take_at(struct keyspace *k, struct collection **at)
{
    struct collection *c = *at;
    if (c) {
        *at = c->next;
        c->next = NULL;
        k->n_keys--;
    }
    return c;
}

struct collection *keyspace_take(struct keyspace *k, const void *key, size_t key_bytes)
{
    uint64_t hash = XXH3_64bits(key, key_bytes);
    pthread_rwlock_wrlock(&k->lock);
    struct collection *c = take_at(k, place_of(k, key, key_bytes, hash));
    pthread_rwlock_unlock(&k->lock);
    return c;
}

struct collection *keyspace_take_any(struct keyspace *k)
{
    struct collection *c = NULL;
    pthread_rwlock_wrlock(&k->lock);
    for (size_t i = 0; i < k->n_buckets && !c; i++)
        c = take_at(k, &k->buckets[i]);
    pthread_rwlock_unlock(&k->lock);
    return c;
}

void keyspace_each(struct keyspace *k, void (*visit)(void *context, const struct collection *collection), void *context)
{
    pthread_rwlock_rdlock(&k->lock);
    for (size_t i = 0; i < k->n_buckets; i++)
        for (const struct collection *c = k->buckets[i]; c; c = c->next)
            visit(context, c);
    pthread_rwlock_unlock(&k->lock);
}
