/*
 * module_caches.c - semantic caches on primaries and replicas: what cache/core/cache_replica.h does, by items.
 *
 * A primary tells what it does to a cache as long as the stream runs. All but the entries goes to replicas as an image:
 * in the RDB of a full sync, and in the stream (QUIRE._IMAGE) when the key is made, when the stream begins and when a
 * node takes the lead. A replica that an image leaves without entries fetches them beside the stream (module_fetch.c);
 * those that it has already stay.
 */
#include "io/error.h"
#include "module/replication/module_copy.h"
#include "server/process/log.h"
#include <stdlib.h>

/* Of the main thread. */
static struct cache_scratch *scratch;

struct cache *module_cache_of(const char name[MODULE_NAME_BYTES + 1])
{
    return caches_find(module_the.service.caches, (struct quire_bytes){name, MODULE_NAME_BYTES});
}

/* One that may be asked; NULL after an error. */
static struct cache *find(const char name[MODULE_NAME_BYTES + 1], struct quire_error *err)
{
    struct cache *cache = module_cache_of(name);
    int rc = cache ? cache_available(cache, err) : error_set(err, QUIRE_ENOTFOUND, "its data is not here");
    if (rc == 0)
        return cache;
    if (cache)
        cache_unref(cache);
    return NULL;
}

int module_caches_image(const char name[MODULE_NAME_BYTES + 1], uint8_t **bytes, size_t *n, struct quire_error *err)
{
    struct cache *cache = find(name, err);
    if (!cache)
        return err->code;
    if (module_stream_runs())
        cache_tell(cache, true); /* it may have been made since */
    int rc = cache_copy_image(cache, bytes, n, err);
    cache_unref(cache);
    return rc;
}

int module_caches_take(const struct module_item *item, const uint8_t *bytes, size_t n, struct quire_error *err)
{
    uint64_t lsn;
    return caches_take_image(module_the.service.caches, (struct quire_bytes){item->name, MODULE_NAME_BYTES}, bytes, n,
                             &lsn, err);
}

int module_caches_apply(const struct module_item *item, const uint8_t *bytes, size_t n, uint64_t *lsn,
                        struct quire_error *err)
{
    struct cache *cache = find(item->name, err);
    if (!cache)
        return err->code;
    int rc = scratch ? 0 : cache_scratch_create(&scratch, err);
    if (rc == 0)
        rc = cache_take_effect(cache, scratch, bytes, n, lsn, err);
    cache_unref(cache);
    return rc;
}

bool module_caches_standing(const struct module_item *item, struct cache_standing *out)
{
    struct quire_error err = {0};
    struct cache *cache = find(item->name, &err);
    if (!cache)
        return false;
    cache_get_standing(cache, out);
    cache_unref(cache);
    return true;
}

void module_caches_lead(const struct module_item *item)
{
    struct quire_error err = {0};
    struct cache *cache = find(item->name, &err);
    if (!cache)
        return;
    struct cache_standing before, after;
    cache_get_standing(cache, &before);
    cache_lead(cache, module_stream_runs());
    cache_get_standing(cache, &after);
    if (before.follows && before.is_copying)
        log_line(
            &module_the.log, LOG_LEVEL_WARNING,
            "the cache of key '%.*s' was being copied when this node took the lead: it has %llu entries, the others "
            "are misses",
            (int)item->key_bytes, item->key ? item->key : "", (unsigned long long)after.entries);
    cache_unref(cache);
}

void module_caches_follow(const struct module_item *item)
{
    struct quire_error err = {0};
    struct cache *cache = find(item->name, &err);
    if (!cache)
        return;
    if (cache_follow(cache, &err) < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "the cache of key '%.*s' follows nobody: %s", (int)item->key_bytes,
                 item->key ? item->key : "", err.message);
    cache_unref(cache);
}

void module_caches_tell(const struct module_item *item, bool tells)
{
    struct quire_error err = {0};
    struct cache *cache = find(item->name, &err);
    if (!cache)
        return;
    cache_tell(cache, tells);
    cache_unref(cache);
}
