/*
 * group.c - scopes, and the groups of entries that may answer each other's questions.
 *
 * A group is a category, a scope and a compat hash: what must be equal before similarity counts. Its key is compared
 * whole, pairs and all; no hash stands for it. Its entries are searched alone: few of them are measured one by one
 * (rows), many are linked into a graph of their own, in which nobody else's rows are (index/graph/graph.h, roots). So a
 * search cannot give away another scope's answer, and a rare scope is found as surely as a common one.
 *
 * A group of up to GROUP_FLAT_MAX entries has them all in rows. When it grows beyond, the thread links those one by one
 * and takes them out of rows; a search looks at both meanwhile. Linked entries stay linked when others go.
 */
#include "cache/core/sealed.h"
#include "cache/guard/text.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

/* ---- scopes in canonical form ------------------------------------------------------------------------------------ */

bool group_scope_pair(const uint8_t *bytes, uint32_t n, uint32_t *at, struct quire_pair *pair)
{
    uint16_t sizes[2];
    if (n - *at < sizeof sizes)
        return false;
    memcpy(sizes, bytes + *at, sizeof sizes);
    if (n - *at - sizeof sizes < (uint32_t)sizes[0] + sizes[1])
        return false;
    const uint8_t *text = bytes + *at + sizeof sizes;
    *pair = (struct quire_pair){{text, sizes[0]}, {text + sizes[0], sizes[1]}};
    *at += (uint32_t)sizeof sizes + sizes[0] + sizes[1];
    return true;
}

void group_scope_text(const struct scope *scope, char *out, size_t room)
{
    struct quire_pair pair;
    size_t used = 0;
    out[0] = 0;
    for (uint32_t at = 0; group_scope_pair(scope->bytes, scope->n_bytes, &at, &pair) && used < room;)
        used += (size_t)snprintf(out + used, room - used, "%s%.*s=%.*s", used ? " " : "", (int)pair.key.n_bytes,
                                 (const char *)pair.key.data, (int)pair.value.n_bytes, (const char *)pair.value.data);
}

static bool has_key(const struct quire_pair *const *pairs, uint32_t n, struct quire_bytes key)
{
    for (uint32_t i = 0; i < n; i++)
        if (text_equal(pairs[i]->key, key))
            return true;
    return false;
}

int group_key_make(const struct cache *cache, const struct category_settings *settings, const struct quire_pair *scope,
                   uint32_t n_scope, struct group_key *key, struct quire_error *err)
{
    const struct quire_pair *sorted[CACHE_SCOPE_KEYS_MAX];
    size_t n_bytes = 0;
    key->n_scope = 0;
    if (n_scope > CACHE_SCOPE_KEYS_MAX)
        return error_set(err, QUIRE_ERANGE, "a scope of %u pairs; it may have at most %u", n_scope,
                         CACHE_SCOPE_KEYS_MAX);
    for (uint32_t i = 0; i < n_scope; i++) {
        const struct cache_config *config = &cache->config;
        bool known = config->n_scope_keys == 0;
        for (uint32_t k = 0; k < config->n_scope_keys && !known; k++)
            known = text_equal(config->scope_keys[k], scope[i].key);
        if (scope[i].key.n_bytes == 0 || scope[i].key.n_bytes > CATEGORY_SCOPE_KEY_BYTES ||
            scope[i].value.n_bytes == 0 || scope[i].value.n_bytes > 1024)
            return error_set(err, QUIRE_ERANGE,
                             "a scope has a key of %zu and a value of %zu bytes; keys have 1 to %u, values 1 to 1024",
                             scope[i].key.n_bytes, scope[i].value.n_bytes, CATEGORY_SCOPE_KEY_BYTES);
        if (!known)
            return error_set(err, QUIRE_EINVALID, "scope key '%.*s' is not one of this cache's; SC.INFO lists them",
                             (int)scope[i].key.n_bytes, (const char *)scope[i].key.data);
        uint32_t at = i;
        for (; at > 0 && cache_compare_bytes(scope[i].key, sorted[at - 1]->key) < 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = &scope[i];
        n_bytes += scope[i].key.n_bytes + scope[i].value.n_bytes + 2 * sizeof(uint16_t);
    }
    if (n_bytes > sizeof key->scope)
        return error_set(err, QUIRE_ERANGE, "a scope of %zu bytes; it may have at most %zu", n_bytes,
                         sizeof key->scope);
    for (uint32_t i = 0; i < n_scope; i++) {
        if (i > 0 && cache_compare_bytes(sorted[i]->key, sorted[i - 1]->key) == 0)
            return error_set(err, QUIRE_EINVALID, "scope key '%.*s' is given twice", (int)sorted[i]->key.n_bytes,
                             (const char *)sorted[i]->key.data);
        uint8_t *to = key->scope + key->n_scope;
        uint16_t sizes[2] = {(uint16_t)sorted[i]->key.n_bytes, (uint16_t)sorted[i]->value.n_bytes};
        memcpy(to, sizes, sizeof sizes);
        memcpy(to + sizeof sizes, sorted[i]->key.data, sizes[0]);
        memcpy(to + sizeof sizes + sizes[0], sorted[i]->value.data, sizes[1]);
        key->n_scope += (uint32_t)sizeof sizes + sizes[0] + sizes[1];
        assert(key->n_scope <= sizeof key->scope);
    }
    for (uint32_t i = 0; i < cache->config.n_scope_keys && cache->config.require_scope; i++)
        if (!has_key(sorted, n_scope, cache->config.scope_keys[i]))
            return error_set(err, QUIRE_EINVALID,
                             "scope key '%.*s' is missing: this cache requires it (SCOPE key value)",
                             (int)cache->config.scope_keys[i].n_bytes, (const char *)cache->config.scope_keys[i].data);
    for (uint32_t i = 0; i < settings->n_scope_keys; i++)
        if (!has_key(sorted, n_scope, text_of(settings->scope_keys[i])))
            return error_set(err, QUIRE_EINVALID,
                             "scope key '%s' is missing: this category requires it (SCOPE key value)",
                             settings->scope_keys[i]);
    return 0;
}

void group_key_finish(struct group_key *key, uint32_t category, struct hash128 compat)
{
    uint64_t words[3] = {compat.low, compat.high, category};
    key->category = category;
    key->compat = compat;
    key->hash = XXH3_64bits_withSeed(key->scope, key->n_scope, XXH3_64bits(words, sizeof words));
}

/* ---- scopes ---- */

static bool scope_is(const struct scope *scope, const struct group_key *key)
{
    return scope->n_bytes == key->n_scope && memcmp(scope->bytes, key->scope, key->n_scope) == 0;
}

/* Twice the buckets of a table of linked items, of which `next` and `hash` are at these offsets; as it was where there
 * is no memory. */
static void grow(void *table, uint32_t *n_buckets, size_t next_at, size_t hash_at)
{
    void ***buckets = table;
    uint32_t n = *n_buckets * 2;
    uint8_t **bigger = calloc(n, sizeof *bigger);
    if (!bigger)
        return;
    for (uint32_t i = 0; i < *n_buckets; i++)
        for (uint8_t *item = (*buckets)[i], *next; item; item = next) {
            uint64_t hash;
            memcpy(&hash, item + hash_at, sizeof hash);
            memcpy(&next, item + next_at, sizeof next);
            memcpy(item + next_at, &bigger[hash & (n - 1)], sizeof next);
            bigger[hash & (n - 1)] = item;
        }
    free(*buckets);
    *buckets = (void **)bigger;
    *n_buckets = n;
}

static struct scope *scope_make(struct cache *cache, const struct group_key *key)
{
    uint64_t hash = XXH3_64bits(key->scope, key->n_scope);
    struct scope *scope = cache->scope_buckets[hash & (cache->n_scope_buckets - 1)];
    while (scope && !scope_is(scope, key))
        scope = scope->next;
    if (scope)
        return scope;
    if (cache->n_scopes >= cache->n_scope_buckets)
        grow(&cache->scope_buckets, &cache->n_scope_buckets, offsetof(struct scope, next),
             offsetof(struct scope, hash));
    scope = calloc(1, sizeof *scope + key->n_scope);
    if (!scope)
        return NULL;
    struct scope **bucket = &cache->scope_buckets[hash & (cache->n_scope_buckets - 1)];
    scope->hash = hash;
    scope->n_bytes = key->n_scope;
    memcpy(scope->bytes, key->scope, key->n_scope);
    scope->next = *bucket;
    *bucket = scope;
    cache->n_scopes++;
    cache->group_bytes += sizeof *scope + key->n_scope;
    return scope;
}

/* ---- groups ---- */

struct group *group_find(const struct cache *cache, const struct group_key *key)
{
    for (struct group *g = cache->group_buckets[key->hash & (cache->n_group_buckets - 1)]; g; g = g->next_hash)
        if (g->key == key->hash && g->category == key->category && g->compat.low == key->compat.low &&
            g->compat.high == key->compat.high && scope_is(g->scope, key))
            return g;
    return NULL;
}

struct group *group_make(struct cache *cache, const struct group_key *key, uint32_t number)
{
    if (number == UINT32_MAX)
        for (number = cache->first_free_group; number < cache->n_groups && cache->groups[number];)
            number++;
    struct group *group = number < GROUPS_MAX ? calloc(1, sizeof *group) : NULL;
    uint32_t before = cache->groups_capacity;
    bool has_place = group && array_reserve(&cache->groups, &cache->groups_capacity, number + (size_t)1);
    if (cache->groups_capacity > before) /* new numbers are free */
        memset(cache->groups + before, 0, sizeof *cache->groups * (cache->groups_capacity - before));
    struct scope *scope = has_place ? scope_make(cache, key) : NULL;
    if (!scope) {
        free(group);
        return NULL;
    }
    assert(!cache->groups[number]);
    if (cache->groups_living >= cache->n_group_buckets)
        grow(&cache->group_buckets, &cache->n_group_buckets, offsetof(struct group, next_hash),
             offsetof(struct group, key));
    struct group **bucket = &cache->group_buckets[key->hash & (cache->n_group_buckets - 1)];
    graph_root_init(&group->root);
    group->key = key->hash;
    group->number = number;
    group->category = key->category;
    group->scope = scope;
    group->compat = key->compat;
    group->next_hash = *bucket;
    *bucket = group;
    scope->groups++;
    cache->groups[number] = group;
    cache->n_groups = number >= cache->n_groups ? number + 1 : cache->n_groups;
    cache->first_free_group = number == cache->first_free_group ? number + 1 : cache->first_free_group;
    cache->groups_living++;
    cache->group_bytes += sizeof *group;
    return group;
}

static void free_group(struct epoch_item *item)
{
    struct group *group = (struct group *)(void *)((uint8_t *)item - offsetof(struct group, item));
    free(group->rows);
    free(group);
}

void group_release(struct cache *cache, struct group *group)
{
    if (group->n || group->pending || group->linking)
        return;
    assert(group->n_rows == 0 && group->n_sealed == 0 && cache->groups[group->number] == group);
    assert(cache->groups_living > 0 && group->scope->groups > 0);
    while (group->sealed)
        sealed_retire(cache, group->sealed);
    struct group **at = &cache->group_buckets[group->key & (cache->n_group_buckets - 1)];
    while (*at != group)
        at = &(*at)->next_hash;
    *at = group->next_hash;
    cache->groups[group->number] = NULL;
    if (group->number < cache->first_free_group)
        cache->first_free_group = group->number;
    cache->groups_living--;
    cache->group_bytes -= sizeof *group + group->rows_capacity * sizeof *group->rows;
    group->scope->groups--;
    if (!group->scope->groups) {
        assert(group->scope->entries == 0 && cache->n_scopes > 0);
        struct scope **place = &cache->scope_buckets[group->scope->hash & (cache->n_scope_buckets - 1)];
        while (*place != group->scope)
            place = &(*place)->next;
        *place = group->scope->next;
        cache->n_scopes--;
        cache->group_bytes -= sizeof *group->scope + group->scope->n_bytes;
        free(group->scope);
    }
    group->item.run = free_group;
    epoch_defer(cache->of->epochs, &group->item);
}

void groups_free(struct cache *cache)
{
    for (uint32_t i = 0; i < cache->n_groups; i++)
        if (cache->groups[i]) {
            free(cache->groups[i]->rows);
            free(cache->groups[i]);
        }
    for (uint32_t i = 0; i < cache->n_scope_buckets && cache->scope_buckets; i++)
        for (struct scope *scope = cache->scope_buckets[i], *next; scope; scope = next) {
            next = scope->next;
            free(scope);
        }
    free(cache->groups);
    free(cache->group_buckets);
    free(cache->scope_buckets);
}

/* ---- rows that are not linked ---- */

/* From 4 on: most groups stay small, so io/array.h's first 8 would cost. */
int group_reserve(struct cache *cache, struct group *group)
{
    if (group->n_rows < group->rows_capacity)
        return 0;
    uint32_t capacity = group->rows_capacity ? group->rows_capacity * 2 : 4;
    uint32_t *bigger = realloc(group->rows, sizeof *bigger * capacity);
    if (!bigger)
        return QUIRE_ENOMEM;
    cache->group_bytes += sizeof *bigger * (capacity - group->rows_capacity);
    group->rows = bigger;
    group->rows_capacity = capacity;
    return 0;
}

void group_list(struct cache *cache, struct group *group, uint32_t row)
{
    assert(group->n_rows < group->rows_capacity && !(cache_entry_word(cache, row) & ENTRY_LISTED));
    group->rows[group->n_rows++] = row;
    atomic_fetch_or_explicit(&cache_entry_at(cache, row)->word, ENTRY_LISTED, memory_order_release);
    if (group->n_rows <= GROUP_FLAT_MAX || group->linking)
        return;
    group->linking = true;
    group->next_link = cache->to_link;
    cache->to_link = group;
}

void group_unlist(struct cache *cache, struct group *group, uint32_t row)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    if (!(atomic_fetch_and_explicit(&e->word, ~ENTRY_LISTED, memory_order_release) & ENTRY_LISTED))
        return;
    assert(group->n_rows > 0);
    uint32_t at = group->n_rows - 1;
    while (group->rows[at] != row) {
        assert(at > 0);
        at--;
    }
    group->rows[at] = group->rows[--group->n_rows];
    if (group->n_rows == 0 && group->rows_capacity > GROUP_FLAT_MAX) { /* they are all linked: as a rule for good */
        cache->group_bytes -= group->rows_capacity * sizeof *group->rows;
        free(group->rows);
        group->rows = NULL;
        group->rows_capacity = 0;
    }
}

/* The next entry that the thread should link, with its row of the graph and its group; false: none. Groups without any
 * leave the list. */
static bool next_to_link(struct cache *cache, struct group **group, uint32_t *row, uint32_t *graph_row)
{
    while (cache->to_link) {
        struct group *first = cache->to_link;
        if (first->n_rows) {
            *group = first;
            *row = first->rows[first->n_rows - 1];
            *graph_row = sealed_graph_row(cache, *row);
            return true;
        }
        cache->to_link = first->next_link;
        first->linking = false;
        group_release(cache, first);
    }
    return false;
}

/* A row is taken out of the list only when it is linked, so that a search finds it in one place or in both. */
uint32_t groups_link(struct cache *cache, struct cache_scratch *scratch, uint32_t most)
{
    uint32_t n = 0, row, graph_row;
    struct group *group;
    for (bool failed = false; n < most && !failed; n++) {
        unsigned slot = epoch_enter(cache->of->epochs);
        pthread_mutex_lock(&cache->lock);
        bool found = next_to_link(cache, &group, &row, &graph_row);
        pthread_mutex_unlock(&cache->lock);
        failed = !found || graph_link(cache->graph, &group->root, scratch->graph, graph_row) < 0;
        if (!failed) {
            pthread_mutex_lock(&cache->lock);
            const struct cache_entry *e = cache_entry_at(cache, row);
            if ((cache_entry_word(cache, row) & (ENTRY_LIVE | ENTRY_LISTED)) == (ENTRY_LIVE | ENTRY_LISTED) &&
                e->group == group->number && sealed_has_graph_row(cache, row, graph_row))
                group_unlist(cache, group, row);
            pthread_mutex_unlock(&cache->lock);
        }
        epoch_exit(cache->of->epochs, slot);
        if (failed)
            break;
    }
    return n;
}
