/*
 * cache_category.c - categories of a cache: made, changed, removed, and what they may take.
 *
 * A category has a number for ever, so that whatever names it by that number stays right; a removed one keeps its
 * place, and its name may be taken again under another number. "*" is a category like any other; requests that name one
 * that is not there go to it.
 */
#include "cache/core/sealed.h"
#include "cache/guard/text.h"
#include "io/error.h"
#include "io/lock.h"
#include <assert.h>
#include <stdlib.h>

#define NAME_BYTES_MAX 128u

static uint32_t find_name(const struct cache *cache, struct quire_bytes name)
{
    for (uint32_t i = 0; i < cache->n_categories; i++)
        if (!cache->categories[i]->dropped && text_equal(cache->categories[i]->name, name))
            return i;
    return UINT32_MAX;
}

int cache_category_find(const struct cache *cache, struct quire_bytes name, uint32_t *number, struct quire_error *err)
{
    *number = find_name(cache, name);
    return *number != UINT32_MAX ? 0
                                 : error_set(err, QUIRE_ENOTFOUND, "no category '%.*s'; SC.CAT.LIST names them",
                                             (int)(name.n_bytes < 128 ? name.n_bytes : 128), (const char *)name.data);
}

int cache_category_number(const struct cache *cache, struct quire_bytes name, uint32_t *number, struct quire_error *err)
{
    uint32_t found = find_name(cache, name);
    if (found == UINT32_MAX)
        found = cache->fallback;
    if (found == UINT32_MAX)
        return error_set(err, QUIRE_ENOTFOUND,
                         "no category '%.*s': make it (SC.CAT.SET), or '*' for whatever is not named",
                         (int)(name.n_bytes < 128 ? name.n_bytes : 128), (const char *)name.data);
    *number = found;
    return 0;
}

/* ---- quotas ------------------------------------------------------------------------------------------------------ */

static void refresh_quota(struct cache *cache, uint32_t number)
{
    const struct category_settings *s = &cache_category_at(cache, number)->settings;
    struct quota_category *quota = &cache->quotas[number];
    quota->max = (struct quota_use){s->quota_bytes, s->quota_entries};
    quota->min_share = s->min_share_pct / 100;
    quota->priority = s->priority;
    quota->empty_handed = false;
}

static uint64_t share_of_memory(const struct cache *cache, unsigned part, uint64_t most)
{
    uint64_t share = cache->config.memory_bytes / part;
    return share < most ? share : most;
}

uint64_t cache_buffer_bytes(const struct cache *cache)
{
    return share_of_memory(cache, 32, 32u << 20);
}

uint64_t cache_hot_bytes(const struct cache *cache)
{
    return share_of_memory(cache, 64, 8u << 20);
}

void cache_memory_use(const struct cache *cache, uint64_t *used, uint64_t *capacity)
{
    /* of an entry whose vector is in a segment: itself, its place, its share of the buckets */
    const uint64_t sealed_bytes = sizeof(struct cache_entry) + sizeof(struct place) + sizeof(uint32_t);
    assert(cache->sealed_entries <= cache->quota.used.entries);
    uint64_t taken = cache->blobs.bytes + cache->group_bytes + cache_buffer_bytes(cache) + cache_hot_bytes(cache);
    *capacity = cache->config.memory_bytes > taken ? cache->config.memory_bytes - taken : 0;
    *used = (cache->quota.used.entries - cache->sealed_entries) * cache->entry_bytes +
            cache->sealed_entries * sealed_bytes + cache->sealed_memory_bytes;
}

/* Entries are what memory is spent on: what is left of it when blobs, groups and documents in memory have theirs. There
 * may be as many as there are, and as many more, or fewer, as the bytes of one in memory go into what is free, or is
 * used beyond it. */
void cache_refresh_quota(struct cache *cache)
{
    uint64_t used, capacity, entries = cache->quota.used.entries, each = cache->entry_bytes;
    cache_memory_use(cache, &used, &capacity);
    uint64_t over = used > capacity ? (used - capacity + each - 1) / each : 0;
    entries = over ? (entries > over ? entries - over : 0) : entries + (capacity - used) / each;
    cache->quota.max = (struct quota_use){cache->config.disk_bytes, entries ? entries : 1};
}

/* ---- making and changing ----------------------------------------------------------------------------------------- */

static struct evict_links *links_of(void *context, uint32_t row)
{
    return &cache_entry_at(context, row)->links;
}

static struct category *make(struct cache *cache, struct quire_bytes name)
{
    struct category *cat = calloc(1, sizeof *cat);
    uint8_t *copy = malloc(name.n_bytes);
    if (!cat || !copy || risk_curve_create(cache->pool, &cat->curve) < 0) {
        free(cat);
        free(copy);
        return NULL;
    }
    memcpy(copy, name.data, name.n_bytes);
    cat->name = (struct quire_bytes){copy, name.n_bytes};
    histogram_init(&cat->get_us, cat->get_counts, GET_SUB_BITS, GET_BITS);
    histogram_init(&cat->put_us, cat->put_counts, GET_SUB_BITS, GET_BITS);
    load_breaker_init(&cat->breaker);
    return cat;
}

int cache_category_put(struct cache *cache, struct quire_bytes name, const struct category_settings *settings,
                       uint32_t number, struct quire_error *err)
{
    bool is_new = number == cache->n_categories;
    assert(number <= cache->n_categories && number < CACHE_CATEGORIES_MAX);
    struct category *cat = is_new ? make(cache, name) : cache_category_at(cache, number);
    if (!cat)
        return error_set(err, QUIRE_ENOMEM, "no memory for a category");
    if (is_new) {
        evict_init(&cat->order, settings->evict, links_of, cache);
        cache->categories[number] = cat;
        cache->n_categories++;
    } else if (cat->order.policy != settings->evict) {
        evict_change(&cat->order, settings->evict);
    }
    cat->settings = *settings;
    refresh_quota(cache, number);
    if (text_equal(name, text_of("*")))
        cache->fallback = number;
    return 0;
}

int cache_set_category(struct cache *cache, struct quire_bytes name, const struct quire_bytes *arguments, uint32_t n,
                       uint64_t *lsn, struct quire_error *err)
{
    struct category_settings settings;
    bool good = name.n_bytes >= 1 && name.n_bytes <= NAME_BYTES_MAX;
    for (size_t i = 0; i < name.n_bytes && good; i++)
        good = ((const uint8_t *)name.data)[i] > ' ';
    if (!good)
        return error_set(err, QUIRE_ERANGE,
                         "the name of a category has 1 to %u bytes, without blanks; this one has %zu", NAME_BYTES_MAX,
                         name.n_bytes);
    pthread_mutex_lock(&cache->lock);
    uint32_t number = find_name(cache, name);
    category_defaults(&settings);
    if (number != UINT32_MAX)
        settings = cache_category_at(cache, number)->settings;
    else
        number = cache->n_categories;
    int rc = category_apply(&settings, arguments, n, err);
    if (rc == 0 && number == CACHE_CATEGORIES_MAX)
        rc = error_set(err, QUIRE_ELIMIT, "a cache may have at most %u categories, removed ones included: make another",
                       CACHE_CATEGORIES_MAX);
    if (rc == 0) {
        /* Shares with those of this category as they would be. */
        uint32_t quota_n = number < cache->n_categories ? cache->n_categories : cache->n_categories + 1;
        double before = cache->quotas[number].min_share;
        cache->quotas[number].min_share = settings.min_share_pct / 100;
        rc = quota_check_shares(cache->quotas, quota_n, err);
        cache->quotas[number].min_share = before;
    }
    if (rc == 0)
        rc = cache_log_category(cache, number, name, &settings, lsn, err);
    if (rc == 0)
        rc = cache_category_put(cache, name, &settings, number, err);
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* ---- removing ---------------------------------------------------------------------------------------------------- */

void cache_category_drop(struct cache *cache, uint32_t number)
{
    struct category *cat = cache_category_at(cache, number);
    assert(number < cache->n_categories);
    cat->dropped = true;
    cache->quotas[number].min_share = 0;
    if (cache->fallback == number)
        cache->fallback = UINT32_MAX;
}

/* The category goes first, so that nothing new comes into it; then its entries. */
int cache_drop_category(struct cache *cache, struct quire_bytes name, uint64_t *lsn, struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    uint32_t number = find_name(cache, name);
    int rc = number != UINT32_MAX
                 ? cache_log_category_drop(cache, number, lsn, err)
                 : error_set(err, QUIRE_ENOTFOUND, "no category '%.*s'", (int)name.n_bytes, (const char *)name.data);
    if (rc == 0)
        cache_category_drop(cache, number);
    pthread_mutex_unlock(&cache->lock);
    return rc == 0 ? cache_empty_category(cache, number, lsn, err) : rc;
}

void cache_categories_free(struct cache *cache)
{
    for (uint32_t i = 0; i < cache->n_categories; i++) {
        struct category *cat = cache->categories[i];
        risk_curve_destroy(cat->curve);
        free((void *)(uintptr_t)cat->name.data);
        free(cat);
    }
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

int cache_get_category(struct cache *cache, struct quire_bytes name, struct category_settings *out,
                       struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    uint32_t number;
    int rc = cache_category_find(cache, name, &number, err);
    if (rc == 0)
        *out = cache_category_at(cache, number)->settings;
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

static int by_name(const void *left, const void *right)
{
    const struct category *a = *(struct category *const *)left, *b = *(struct category *const *)right;
    return cache_compare_bytes(a->name, b->name);
}

void cache_each_category(struct cache *cache, void (*visit)(void *context, struct quire_bytes name), void *context)
{
    struct category *sorted[CACHE_CATEGORIES_MAX];
    uint32_t n = 0;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < cache->n_categories; i++)
        if (!cache->categories[i]->dropped)
            sorted[n++] = cache->categories[i];
    pthread_mutex_unlock(&cache->lock);
    if (n)
        qsort(sorted, n, sizeof *sorted, by_name);
    for (uint32_t i = 0; i < n; i++)
        visit(context, sorted[i]->name); /* names are there as long as the cache */
}
