/*
 * node_table.c - chains in a power of two of buckets, doubled and halved at once.
 *
 * Growing relinks every node in one go; hashes are kept in the nodes, so that costs a walk and no hashing. The keyspace
 * has 256 such tables, so that a step of growth concerns 1/256 of the keys; a hash has one, and adding its ten
 * millionth field takes the time of a walk over ten million.
 *
 * A cursor counts with its bits reversed (Pieter Noordhuis's, in Redis's dict.c): the high bits of the bucket's number
 * change first. When the table doubles, bucket b becomes b and b + n, and both have the same place in that order; so
 * what was visited before stays visited, and what was not is still to come. When it shrinks, a bucket that was half
 * visited is visited again: nodes may come twice, none is left out.
 */
#include "server/keys/node_table.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_MIN = 16 };

static struct table_node **buckets_of(const struct node_table *t)
{
    return t->buckets ? t->buckets : (struct table_node **)(uintptr_t)&t->single;
}

void node_table_init(struct node_table *t, size_t key_at)
{
    *t = (struct node_table){.n_buckets = 1, .key_at = key_at};
}

void node_table_fini(struct node_table *t)
{
    free(t->buckets);
    node_table_init(t, t->key_at);
}

struct table_node *node_table_find(const struct node_table *t, const void *key, uint32_t key_bytes, uint64_t hash)
{
    struct table_node *node = buckets_of(t)[hash & (t->n_buckets - 1)];
    while (node && !(node->hash == hash && node->key_bytes == key_bytes &&
                     memcmp((const char *)node + t->key_at, key, key_bytes) == 0))
        node = node->next;
    return node;
}

static void resize(struct node_table *t, size_t n_buckets)
{
    struct table_node **to = calloc(n_buckets, sizeof(struct table_node *));
    if (!to)
        return;
    struct table_node **from = buckets_of(t);
    for (size_t i = 0; i < t->n_buckets; i++)
        for (struct table_node *node = from[i], *next; node; node = next) {
            next = node->next;
            node->next = to[node->hash & (n_buckets - 1)];
            to[node->hash & (n_buckets - 1)] = node;
        }
    free(t->buckets);
    t->buckets = to;
    t->n_buckets = n_buckets;
    t->single = NULL;
}

void node_table_insert(struct node_table *t, struct table_node *node)
{
    if (t->n >= t->n_buckets)
        resize(t, t->n_buckets < BUCKETS_MIN ? BUCKETS_MIN : 2 * t->n_buckets);
    struct table_node **at = &buckets_of(t)[node->hash & (t->n_buckets - 1)];
    node->next = *at;
    *at = node;
    t->n++;
}

void node_table_remove(struct node_table *t, struct table_node *node)
{
    struct table_node **at = &buckets_of(t)[node->hash & (t->n_buckets - 1)];
    while (*at != node) {
        assert(*at);
        at = &(*at)->next;
    }
    *at = node->next;
    node->next = NULL;
    t->n--;
    if (t->n_buckets > BUCKETS_MIN && t->n < t->n_buckets / 8)
        resize(t, t->n_buckets / 4 < BUCKETS_MIN ? BUCKETS_MIN : t->n_buckets / 4);
}

size_t node_table_bytes(const struct node_table *t)
{
    return t->buckets ? t->n_buckets * sizeof(struct table_node *) : 0;
}

static void visit_bucket(struct table_node *node, void (*visit)(void *context, struct table_node *node), void *context)
{
    for (struct table_node *next; node; node = next) {
        next = node->next;
        visit(context, node);
    }
}

void node_table_each(const struct node_table *t, void (*visit)(void *context, struct table_node *node), void *context)
{
    for (size_t i = 0; i < t->n_buckets; i++)
        visit_bucket(buckets_of(t)[i], visit, context);
}

static uint64_t reverse_bits(uint64_t v)
{
    v = (v >> 1 & 0x5555555555555555u) | (v & 0x5555555555555555u) << 1;
    v = (v >> 2 & 0x3333333333333333u) | (v & 0x3333333333333333u) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0fu) | (v & 0x0f0f0f0f0f0f0f0fu) << 4;
    return __builtin_bswap64(v);
}

uint64_t node_table_scan(const struct node_table *t, uint64_t cursor,
                         void (*visit)(void *context, struct table_node *node), void *context)
{
    uint64_t mask = t->n_buckets - 1;
    visit_bucket(buckets_of(t)[cursor & mask], visit, context);
    return reverse_bits(reverse_bits(cursor | ~mask) + 1);
}

struct table_node *node_table_random(const struct node_table *t, uint64_t random_bucket, uint64_t random_node)
{
    size_t mask = t->n_buckets - 1, at = random_bucket & mask, length = 0;
    if (t->n == 0)
        return NULL;
    while (!buckets_of(t)[at])
        at = (at + 1) & mask;
    for (const struct table_node *node = buckets_of(t)[at]; node; node = node->next)
        length++;
    assert(length > 0);
    struct table_node *node = buckets_of(t)[at];
    for (size_t skip = random_node % length; skip > 0; skip--)
        node = node->next;
    return node;
}
