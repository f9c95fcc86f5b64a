/*
 * hash_value.c - hashes: one piece of memory while small, a table when large.
 *
 * Small: [bytes of field][field][bytes of value][value], ... in the order of their first HSET, lengths in one byte. At
 * most 128 x 130 bytes are searched, which costs less than the cache misses of a table, and a hash of three fields
 * takes some 100 bytes. Large: a node of its own per field in a node_table. A large hash that loses fields stays large.
 *
 * A value that is away is kept by somebody else (docs/decisions/documents.md): its node has its length alone, or, for
 * as long as somebody reads it, a copy. Only values that are too long for a small hash are ever away.
 *
 * A change is logged before it is made (keyspace.c), so it must not fail then: hash_reserve gets all the memory first,
 * and also turns a small hash into a large one where the new fields need that.
 */
#include "server/keys/hash_value.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct hash_node {
    struct table_node node;
    uint32_t value_bytes;
    bool away, here; /* kept elsewhere; and a copy is here */
    uint8_t data[];  /* field, value (of one that is away: while it is here) */
};

struct hash {
    uint64_t seed;
    bool large;
    uint32_t small_fields, small_bytes, small_capacity;
    uint8_t *small;
    struct node_table table;
    size_t nodes_bytes;
    uint32_t n_away, n_here; /* nodes; those that are here are away, too */
};

struct hash *hash_create(uint64_t seed)
{
    struct hash *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->seed = seed;
    node_table_init(&h->table, offsetof(struct hash_node, data));
    return h;
}

static void free_node(void *context, struct table_node *node)
{
    (void)context;
    free(node);
}

void hash_destroy(struct hash *h)
{
    if (!h)
        return;
    node_table_each(&h->table, free_node, NULL);
    node_table_fini(&h->table);
    free(h->small);
    free(h);
}

size_t hash_count(const struct hash *h)
{
    return h->large ? h->table.n : h->small_fields;
}

size_t hash_memory_bytes(const struct hash *h)
{
    return sizeof *h + h->small_capacity + node_table_bytes(&h->table) + h->nodes_bytes;
}

bool hash_is_large(const struct hash *h)
{
    return h->large;
}

/* ---- small ------------------------------------------------------------------------------------------------------- */

struct small_pair {
    uint32_t at, end; /* in small */
    struct resp_arg field, value;
};

/* The pair at `at`; false at the end. */
static bool pair_at(const struct hash *h, uint32_t at, struct small_pair *out)
{
    if (at >= h->small_bytes)
        return false;
    out->at = at;
    out->field = (struct resp_arg){h->small + at + 1, h->small[at]};
    at += 1 + out->field.bytes;
    out->value = (struct resp_arg){h->small + at + 1, h->small[at]};
    out->end = at + 1 + out->value.bytes;
    return true;
}

static bool find_small(const struct hash *h, struct resp_arg field, struct small_pair *out)
{
    for (uint32_t at = 0; pair_at(h, at, out); at = out->end)
        if (out->field.bytes == field.bytes && memcmp(out->field.data, field.data, field.bytes) == 0)
            return true;
    return false;
}

static bool set_small(struct hash *h, struct resp_arg field, struct resp_arg value)
{
    struct small_pair old;
    bool there = find_small(h, field, &old);
    uint32_t at = there ? (uint32_t)(old.value.data - h->small) - 1 : h->small_bytes, end = there ? old.end : at;
    uint32_t bytes = 1 + value.bytes + (there ? 0 : 1 + field.bytes);
    assert(h->small_bytes - (end - at) + bytes <= h->small_capacity);
    memmove(h->small + at + bytes, h->small + end, h->small_bytes - end);
    h->small_bytes = h->small_bytes - (end - at) + bytes;
    if (!there) {
        h->small[at] = (uint8_t)field.bytes;
        memcpy(h->small + at + 1, field.data, field.bytes);
        at += 1 + field.bytes;
        h->small_fields++;
    }
    h->small[at] = (uint8_t)value.bytes;
    memcpy(h->small + at + 1, value.data, value.bytes);
    return !there;
}

/* ---- large ------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct hash *h, struct resp_arg field)
{
    return XXH3_64bits_withSeed(field.data, field.bytes, h->seed);
}

static struct hash_node *find_large(const struct hash *h, struct resp_arg field)
{
    return (struct hash_node *)(void *)node_table_find(&h->table, field.data, field.bytes, hash_of(h, field));
}

static bool has_bytes(const struct hash_node *node)
{
    return !node->away || node->here;
}

static size_t node_bytes(const struct hash_node *node)
{
    return sizeof *node + node->node.key_bytes + (has_bytes(node) ? node->value_bytes : 0);
}

static void remove_node(struct hash *h, struct hash_node *node)
{
    node_table_remove(&h->table, &node->node);
    h->nodes_bytes -= node_bytes(node);
    h->n_away -= node->away;
    h->n_here -= node->here;
    free(node);
}

static void insert_node(struct hash *h, struct hash_node *node)
{
    node_table_insert(&h->table, &node->node);
    h->nodes_bytes += node_bytes(node);
    h->n_away += node->away;
    h->n_here += node->here;
}

static struct resp_arg value_of(const struct hash_node *node)
{
    return (struct resp_arg){has_bytes(node) ? node->data + node->node.key_bytes : NULL, node->value_bytes};
}

/* A node in no table; value.data NULL: without room for it. NULL without memory. */
static struct hash_node *make_node(uint64_t hash, struct resp_arg field, struct resp_arg value)
{
    struct hash_node *node = malloc(sizeof *node + field.bytes + (value.data ? value.bytes : 0));
    if (!node)
        return NULL;
    *node = (struct hash_node){.node = {.hash = hash, .key_bytes = field.bytes}, .value_bytes = value.bytes};
    if (field.bytes > 0)
        memcpy(node->data, field.data, field.bytes);
    if (value.data && value.bytes > 0)
        memcpy(node->data + field.bytes, value.data, value.bytes);
    return node;
}

static bool add_spare(const struct hash *h, struct hash_spare *spare, struct resp_arg field, struct resp_arg value)
{
    struct hash_node *node = make_node(hash_of(h, field), field, value);
    if (!node)
        return false;
    if (spare->last)
        spare->last->node.next = &node->node;
    else
        spare->first = node;
    spare->last = node;
    return true;
}

static struct hash_node *take_spare(struct hash_spare *spare)
{
    struct hash_node *node = spare->first;
    assert(node);
    spare->first = (struct hash_node *)(void *)node->node.next;
    if (!spare->first)
        spare->last = NULL;
    return node;
}

static int make_large(struct hash *h)
{
    struct hash_spare spare = {0};
    struct small_pair pair;
    for (uint32_t at = 0; pair_at(h, at, &pair); at = pair.end)
        if (!add_spare(h, &spare, pair.field, pair.value)) {
            hash_spare_end(&spare);
            return QUIRE_ENOMEM;
        }
    while (spare.first)
        insert_node(h, take_spare(&spare));
    free(h->small);
    h->small = NULL;
    h->small_fields = h->small_bytes = h->small_capacity = 0;
    h->large = true;
    return 0;
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* Whether a small hash stays small with these; *bytes is what they need at most. */
static bool stays_small(const struct hash *h, const struct resp_arg *pairs, uint32_t n_pairs, uint32_t *bytes)
{
    uint64_t fields = h->small_fields, needed = 0;
    struct small_pair old;
    for (uint32_t i = 0; i < n_pairs; i++) {
        if (pairs[2 * i].bytes > HASH_SMALL_BYTES_MAX || pairs[2 * i + 1].bytes > HASH_SMALL_BYTES_MAX)
            return false;
        fields += !find_small(h, pairs[2 * i], &old);
        needed += 2 + pairs[2 * i].bytes + pairs[2 * i + 1].bytes;
        if (fields > HASH_SMALL_FIELDS_MAX)
            return false;
    }
    *bytes = (uint32_t)(needed < UINT32_MAX / 2 ? needed : UINT32_MAX / 2);
    return true;
}

int hash_reserve(struct hash *h, const struct resp_arg *pairs, uint32_t n_pairs, struct hash_spare *spare)
{
    uint32_t more;
    *spare = (struct hash_spare){0};
    if (!h->large && stays_small(h, pairs, n_pairs, &more)) {
        if (h->small_capacity - h->small_bytes >= more)
            return 0;
        uint32_t capacity = h->small_bytes + more;
        capacity += h->small_bytes > 0 ? capacity / 2 : 0;
        uint8_t *bigger = realloc(h->small, capacity);
        if (!bigger)
            return QUIRE_ENOMEM;
        h->small = bigger;
        h->small_capacity = capacity;
        return 0;
    }
    int rc = h->large ? 0 : make_large(h);
    for (uint32_t i = 0; i < n_pairs && rc == 0; i++)
        rc = add_spare(h, spare, pairs[2 * i], pairs[2 * i + 1]) ? 0 : QUIRE_ENOMEM;
    if (rc < 0)
        hash_spare_end(spare);
    return rc;
}

void hash_spare_end(struct hash_spare *spare)
{
    while (spare->first)
        free(take_spare(spare));
}

bool hash_set(struct hash *h, struct resp_arg field, struct resp_arg value, struct hash_spare *spare)
{
    if (!h->large)
        return set_small(h, field, value);
    struct hash_node *old = find_large(h, field);
    if (old)
        remove_node(h, old);
    insert_node(h, take_spare(spare));
    return !old;
}

bool hash_delete(struct hash *h, struct resp_arg field)
{
    struct small_pair pair;
    struct hash_node *old = h->large ? find_large(h, field) : NULL;
    if (old)
        remove_node(h, old);
    if (h->large || !find_small(h, field, &pair))
        return old;
    memmove(h->small + pair.at, h->small + pair.end, h->small_bytes - pair.end);
    h->small_bytes -= pair.end - pair.at;
    h->small_fields--;
    return true;
}

/* ---- values that are away ---------------------------------------------------------------------------------------- */

/* Another node in the place of this one. NULL value: without its bytes. */
static bool exchange(struct hash *h, struct hash_node *old, const void *value, bool away)
{
    struct resp_arg field = {old->data, old->node.key_bytes};
    struct hash_node *node = make_node(old->node.hash, field, (struct resp_arg){value, old->value_bytes});
    if (!node)
        return false;
    node->away = away;
    node->here = away && value;
    remove_node(h, old);
    insert_node(h, node);
    return true;
}

uint32_t hash_n_away(const struct hash *h)
{
    assert(h->n_here <= h->n_away);
    return h->n_away;
}

uint32_t hash_n_missing(const struct hash *h)
{
    return h->n_away - h->n_here;
}

bool hash_is_away(const struct hash *h, struct resp_arg field)
{
    const struct hash_node *node = h->n_away > 0 ? find_large(h, field) : NULL;
    return node && node->away;
}

bool hash_send_away(struct hash *h, struct resp_arg field)
{
    struct hash_node *node = h->large ? find_large(h, field) : NULL;
    if (!node || node->away || node->value_bytes <= HASH_SMALL_BYTES_MAX)
        return node && node->away;
    return exchange(h, node, NULL, true);
}

int hash_add_away(struct hash *h, struct resp_arg field, uint32_t value_bytes)
{
    struct hash_node *node;
    int rc = h->large ? 0 : make_large(h);
    if (rc < 0 || !(node = make_node(hash_of(h, field), field, (struct resp_arg){NULL, value_bytes})))
        return QUIRE_ENOMEM;
    node->away = true;
    struct hash_node *old = find_large(h, field);
    if (old)
        remove_node(h, old);
    insert_node(h, node);
    return 0;
}

int hash_bring(struct hash *h, struct resp_arg field, const void *value)
{
    struct hash_node *node = h->n_away > 0 ? find_large(h, field) : NULL;
    if (!node || !node->away || node->here)
        return 0;
    return exchange(h, node, value, true) ? 0 : QUIRE_ENOMEM;
}

void hash_keep(struct hash *h, struct resp_arg field)
{
    struct hash_node *node = h->n_here > 0 ? find_large(h, field) : NULL;
    assert(node && node->here);
    node->away = node->here = false;
    h->n_away--;
    h->n_here--;
}

void hash_let_go(struct hash *h, struct resp_arg field)
{
    struct hash_node *node = h->n_here > 0 ? find_large(h, field) : NULL;
    if (node && node->here)
        exchange(h, node, NULL, true); /* without memory it stays here */
}

static void keep_node(void *context, struct table_node *node)
{
    struct hash_node *pair = (struct hash_node *)(void *)node;
    (void)context;
    assert(has_bytes(pair));
    pair->away = pair->here = false;
}

void hash_keep_all(struct hash *h)
{
    assert(hash_n_missing(h) == 0);
    if (h->n_away > 0)
        node_table_each(&h->table, keep_node, NULL);
    h->n_away = h->n_here = 0;
}

struct away_visitor {
    hash_visit *visit;
    void *context;
};

static void visit_away(void *context, struct table_node *node)
{
    const struct away_visitor *v = context;
    const struct hash_node *pair = (const struct hash_node *)(const void *)node;
    if (pair->away)
        v->visit(v->context, (struct resp_arg){pair->data, node->key_bytes}, value_of(pair));
}

void hash_each_away(const struct hash *h, hash_visit *visit, void *context)
{
    struct away_visitor v = {visit, context};
    if (h->n_away > 0)
        node_table_each(&h->table, visit_away, &v);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

bool hash_get(const struct hash *h, struct resp_arg field, struct resp_arg *value)
{
    struct small_pair pair;
    if (!h->large) {
        if (!find_small(h, field, &pair))
            return false;
        *value = pair.value;
        return true;
    }
    const struct hash_node *node = find_large(h, field);
    if (!node)
        return false;
    *value = value_of(node);
    return true;
}

void hash_random(const struct hash *h, uint64_t random_bucket, uint64_t random_node, struct resp_arg *field,
                 struct resp_arg *value)
{
    struct small_pair pair;
    assert(hash_count(h) > 0);
    if (h->large) {
        const struct hash_node *node =
            (const struct hash_node *)(const void *)node_table_random(&h->table, random_bucket, random_node);
        *field = (struct resp_arg){node->data, node->node.key_bytes};
        *value = value_of(node);
        return;
    }
    uint32_t at = 0;
    for (uint64_t skip = random_node % h->small_fields + 1; skip > 0; skip--) {
        bool there = pair_at(h, at, &pair);
        assert(there);
        at = pair.end;
    }
    *field = pair.field;
    *value = pair.value;
}

struct visitor {
    hash_visit *visit;
    void *context;
    uint64_t visited;
};

static void visit_node(void *context, struct table_node *node)
{
    struct visitor *v = context;
    const struct hash_node *pair = (const struct hash_node *)(const void *)node;
    v->visited++;
    v->visit(v->context, (struct resp_arg){pair->data, node->key_bytes}, value_of(pair));
}

void hash_each(const struct hash *h, hash_visit *visit, void *context)
{
    struct visitor v = {visit, context, 0};
    struct small_pair pair;
    for (uint32_t at = 0; pair_at(h, at, &pair); at = pair.end)
        visit(context, pair.field, pair.value);
    node_table_each(&h->table, visit_node, &v);
}

uint64_t hash_scan(const struct hash *h, uint64_t cursor, uint64_t count, hash_visit *visit, void *context)
{
    struct visitor v = {visit, context, 0};
    if (!h->large) {
        hash_each(h, visit, context);
        return 0;
    }
    uint64_t buckets = 0;
    do
        cursor = node_table_scan(&h->table, cursor, visit_node, &v);
    while (cursor && v.visited < count && ++buckets < 10 * count);
    return cursor;
}

static void copy_pair(void *context, struct resp_arg field, struct resp_arg value)
{
    struct hash **to = context;
    struct resp_arg pair[2] = {field, value};
    struct hash_spare spare;
    assert(value.data || value.bytes == 0);
    if (!*to)
        return;
    if (hash_reserve(*to, pair, 1, &spare) < 0) {
        hash_destroy(*to);
        *to = NULL;
        return;
    }
    hash_set(*to, field, value, &spare);
    hash_spare_end(&spare);
}

struct hash *hash_copy(const struct hash *h)
{
    struct hash *copy = hash_create(h->seed);
    if (copy && h->large)
        copy->large = true;
    hash_each(h, copy_pair, &copy);
    return copy;
}
