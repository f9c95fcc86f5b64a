/*
 * keyspace_scan.c - walks over all keys: counts, cursors, every entry, one at random.
 *
 * Shard by shard, each under its lock: what is seen of two shards is of two moments.
 */
#include "server/keys/keyspace.h"

enum { SCAN_EMPTY_MAX = 10, RANDOM_TRIES = 1000 };

static struct key_entry *entry_of(struct table_node *node)
{
    return (struct key_entry *)(void *)node;
}

size_t keyspace_count(const struct keyspace *k)
{
    size_t n = 0;
    for (unsigned i = 0; i < KEYSPACE_SHARDS; i++)
        n += atomic_load_explicit(&k->shards[i].n_keys, memory_order_relaxed);
    return n;
}

struct visitor {
    keyspace_visit *visit;
    void *context;
    uint64_t visited;
};

static void visit_node(void *context, struct table_node *node)
{
    struct visitor *v = context;
    v->visited++;
    v->visit(v->context, entry_of(node));
}

/* The cursor: the table's, times 256, plus the shard. */
uint64_t keyspace_scan(struct keyspace *k, uint64_t cursor, uint64_t count, keyspace_visit *visit, void *context)
{
    struct visitor v = {visit, context, 0};
    unsigned shard = (unsigned)(cursor % KEYSPACE_SHARDS);
    uint64_t in_shard = cursor / KEYSPACE_SHARDS, buckets = 0;
    while (v.visited < count && buckets < SCAN_EMPTY_MAX * count + KEYSPACE_SHARDS) {
        pthread_mutex_lock(&k->shards[shard].lock);
        do
            in_shard = node_table_scan(&k->shards[shard].table, in_shard, visit_node, &v);
        while (in_shard && v.visited < count && ++buckets < SCAN_EMPTY_MAX * count + KEYSPACE_SHARDS);
        pthread_mutex_unlock(&k->shards[shard].lock);
        if (in_shard)
            continue;
        buckets++;
        if (++shard == KEYSPACE_SHARDS)
            return 0;
    }
    return in_shard * KEYSPACE_SHARDS + shard;
}

void keyspace_each_of(struct keyspace *k, unsigned shard, keyspace_visit *visit, void *context)
{
    struct visitor v = {visit, context, 0};
    pthread_mutex_lock(&k->shards[shard].lock);
    node_table_each(&k->shards[shard].table, visit_node, &v);
    pthread_mutex_unlock(&k->shards[shard].lock);
}

bool keyspace_try_each_of(struct keyspace *k, unsigned shard, keyspace_visit *visit, void *context)
{
    struct visitor v = {visit, context, 0};
    if (pthread_mutex_trylock(&k->shards[shard].lock) != 0)
        return false;
    node_table_each(&k->shards[shard].table, visit_node, &v);
    pthread_mutex_unlock(&k->shards[shard].lock);
    return true;
}

void keyspace_each(struct keyspace *k, keyspace_visit *visit, void *context)
{
    for (unsigned i = 0; i < KEYSPACE_SHARDS; i++)
        keyspace_each_of(k, i, visit, context);
}

struct key_entry *keyspace_random(struct keyspace_lock *lock, struct keyspace *k, uint64_t random)
{
    size_t n;
    /* a bound, where keys that are over cannot be removed */
    for (unsigned i = 0; i < RANDOM_TRIES && (n = keyspace_count(k)) > 0; i++) {
        /* the shard that holds the place-th of all keys, about: others may come and go */
        size_t place = random % n, in_shard;
        unsigned shard = 0;
        for (; shard < KEYSPACE_SHARDS - 1; shard++, place -= in_shard) {
            in_shard = atomic_load_explicit(&k->shards[shard].n_keys, memory_order_relaxed);
            if (place < in_shard)
                break;
        }
        keyspace_lock_shard(lock, k, shard);
        random = random * 0xd1342543de82ef95u + 1;
        struct key_entry *e = entry_of(node_table_random(&k->shards[shard].table, random >> 8, random >> 40));
        struct key key = e ? (struct key){e->key, e->node.key_bytes, e->node.hash} : (struct key){0};
        e = e ? keyspace_find(lock, &key) : NULL;
        if (e)
            return e;
        keyspace_unlock(lock);
        random = random * 0xd1342543de82ef95u + 1;
    }
    return NULL;
}

void keyspace_get_expiries(struct keyspace *k, struct keyspace_expiries *out)
{
    uint64_t now_ms = k->clock_ms(k->clock_context);
    unsigned __int128 sum = 0;
    out->keys = 0;
    for (unsigned i = 0; i < KEYSPACE_SHARDS; i++) {
        struct shard *s = &k->shards[i];
        pthread_mutex_lock(&s->lock);
        sum += s->expiries_sum;
        out->keys += s->n_queue;
        pthread_mutex_unlock(&s->lock);
    }
    uint64_t mean_at = out->keys ? (uint64_t)(sum / out->keys) : 0;
    out->mean_ms = mean_at > now_ms ? mean_at - now_ms : 0;
}

uint64_t keyspace_version(struct keyspace *k, struct resp_arg arg, bool *vectors)
{
    struct keyspace_lock lock;
    struct key key = keyspace_key(k, arg);
    keyspace_lock_key(&lock, k, &key);
    const struct key_entry *e = keyspace_find(&lock, &key);
    uint64_t version = e ? e->version : 0;
    if (vectors)
        *vectors = e && e->type == KEY_VECTOR_SET;
    keyspace_unlock(&lock);
    return version;
}
