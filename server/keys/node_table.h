/*
 * node_table.h - a chained hash table of nodes that carry their key: the keys of a shard, the fields of a large hash.
 *
 * Not thread-safe: whoever owns it locks.
 */
#ifndef QUIRE_SERVER_NODE_TABLE_H
#define QUIRE_SERVER_NODE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First member of what a table holds. Its key lies `key_at` bytes behind its beginning. */
struct table_node {
    struct table_node *next;
    uint64_t hash;
    uint32_t key_bytes;
};

struct node_table {
    struct table_node **buckets; /* NULL: one bucket, `single` */
    struct table_node *single;
    size_t n_buckets, n; /* a power of two; nodes */
    size_t key_at;
};

void node_table_init(struct node_table *table, size_t key_at);
/* Frees the table, not its nodes. */
void node_table_fini(struct node_table *table);

struct table_node *node_table_find(const struct node_table *table, const void *key, uint32_t key_bytes, uint64_t hash);
/* The key is not there yet. Never fails: without memory chains grow instead of the table. */
void node_table_insert(struct node_table *table, struct table_node *node);
/* Takes a node out that is there. */
void node_table_remove(struct node_table *table, struct table_node *node);
/* Of the table itself, without its nodes. */
size_t node_table_bytes(const struct node_table *table);

/* Calls visit for each node; it may free the node. */
void node_table_each(const struct node_table *table, void (*visit)(void *context, struct table_node *node),
                     void *context);
/* Visits one bucket and returns the next cursor; begins and ends with 0. A node that is there from the first call to
 * the last is visited at least once, however the table grows or shrinks in between. */
uint64_t node_table_scan(const struct node_table *table, uint64_t cursor,
                         void (*visit)(void *context, struct table_node *node), void *context);
/* Any node, by two random numbers; NULL when empty. Those of long chains come a little less often. */
struct table_node *node_table_random(const struct node_table *table, uint64_t random_bucket, uint64_t random_node);

#endif
