/* cache_check.c - checks that what a cache keeps in several places agrees, while nothing else runs. */
#include "cache/core/sealed.h"
#include "io/error.h"
#include <stdlib.h>

struct counted {
    uint64_t n, bytes, listed;
};

static int check_entry(const struct cache *cache, uint32_t row, struct counted *groups, struct counted *categories,
                       struct quire_error *reason)
{
    const struct cache_entry *e = cache_entry_at(cache, row);
    uint64_t word = cache_entry_word(cache, row);
    const struct group *group = e->group < cache->n_groups ? cache->groups[e->group] : NULL;
    if (!group)
        return error_set(reason, QUIRE_ECORRUPT, "entry %u is of group %u, which is not there", row, e->group);
    struct hash128 exact = {e->exact | (uint64_t)e->exact_high << 32, 1};
    if ((word & ENTRY_EXACT) && cache_entry_find_exact(cache, group, exact) == UINT32_MAX)
        return error_set(reason, QUIRE_ECORRUPT, "entry %u is not found by its hash", row);
    if (cache_entry_find(cache, cache_entry_id(e, row)) != row)
        return error_set(reason, QUIRE_ECORRUPT, "entry %u is not found by its id", row);
    if (((word & ENTRY_PINNED) != 0) != (e->links.level == EVICT_UNLISTED))
        return error_set(reason, QUIRE_ECORRUPT, "entry %u is pinned and in an order of eviction, or neither", row);
    groups[e->group].n++;
    groups[e->group].listed += (word & ENTRY_LISTED) != 0;
    categories[group->category].n++;
    categories[group->category].bytes += cache_entry_document(e).bytes;
    return 0;
}

static int check_group(const struct cache *cache, const struct group *group, const struct counted *counted,
                       struct quire_error *reason)
{
    if (counted->n != group->n || counted->listed != group->n_rows)
        return error_set(reason, QUIRE_ECORRUPT,
                         "group %u counts %u entries, %u of them listed; there are %llu and %llu", group->number,
                         group->n, group->n_rows, (unsigned long long)counted->n, (unsigned long long)counted->listed);
    for (uint32_t i = 0; i < group->n_rows; i++)
        if (!(cache_entry_word(cache, group->rows[i]) & ENTRY_LISTED) ||
            cache_entry_at(cache, group->rows[i])->group != group->number)
            return error_set(reason, QUIRE_ECORRUPT, "group %u lists row %u, which is not its", group->number,
                             group->rows[i]);
    return 0;
}

static int check_category(const struct cache *cache, uint32_t number, const struct counted *counted,
                          struct quire_error *reason)
{
    const struct category *cat = cache_category_at(cache, number);
    const struct quota_use *used = &cache->quotas[number].used;
    if (used->entries != counted->n || used->bytes != counted->bytes || cat->order.n + cat->pinned != counted->n)
        return error_set(reason, QUIRE_ECORRUPT,
                         "category %u counts %llu entries of %llu bytes, %llu in order, %llu pinned; there are %llu of "
                         "%llu bytes",
                         number, (unsigned long long)used->entries, (unsigned long long)used->bytes,
                         (unsigned long long)cat->order.n, (unsigned long long)cat->pinned,
                         (unsigned long long)counted->n, (unsigned long long)counted->bytes);
    return 0;
}

int cache_check(struct cache *cache, struct quire_error *reason)
{
    struct counted *groups = calloc(cache->n_groups + 1u, sizeof *groups);
    struct counted *categories = calloc(cache->n_categories + 1u, sizeof *categories), all = {0};
    int rc = groups && categories ? 0 : error_set(reason, QUIRE_ENOMEM, "no memory to check a cache");
    for (uint32_t row = 0; row < cache->n_rows && rc == 0; row++)
        if (cache_entry_word(cache, row) & ENTRY_LIVE)
            rc = check_entry(cache, row, groups, categories, reason);
    for (uint32_t i = 0; i < cache->n_groups && rc == 0; i++)
        if (cache->groups[i])
            rc = check_group(cache, cache->groups[i], &groups[i], reason);
    for (uint32_t i = 0; i < cache->n_categories && rc == 0; i++) {
        rc = check_category(cache, i, &categories[i], reason);
        all.n += categories[i].n;
        all.bytes += categories[i].bytes;
    }
    if (rc == 0 && (all.n != cache->quota.used.entries || all.bytes != cache->quota.used.bytes))
        rc = error_set(reason, QUIRE_ECORRUPT, "the cache counts %llu entries, there are %llu",
                       (unsigned long long)cache->quota.used.entries, (unsigned long long)all.n);
    const struct graph_root **roots = malloc(sizeof *roots * (cache->n_groups + 1u));
    uint32_t n_roots = 0;
    for (uint32_t i = 0; i < cache->n_groups && roots; i++)
        if (cache->groups[i])
            roots[n_roots++] = &cache->groups[i]->root;
    if (rc == 0)
        rc = roots ? graph_check(cache->graph, roots, n_roots, reason)
                   : error_set(reason, QUIRE_ENOMEM, "no memory to check a cache");
    free(roots);
    if (rc == 0)
        rc = sealed_check(cache, reason);
    free(groups);
    free(categories);
    return rc;
}
