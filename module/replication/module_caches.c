/*
 * module_caches.c - semantic caches on replicas: their definitions, without entries.
 *
 * A definition is what SC.CREATE and SC.CAT.SET have said. It goes to replicas as a whole: in the RDB of a full sync,
 * and in the stream (QUIRE._IMAGE) when the key is made, when a category changes, and when a node takes the lead. So
 * the node that takes over has the cache under its key, serves it, and begins with misses.
 *
 *   definition   u8 version 1, u8 type, u8 scope is required, u32 dimensions, u64 bytes of memory, u64 of disk,
 *                encoder, u16 n, n scope keys, u16 n, n times: name of a category, its settings as category_print has
 *                them. Texts are u16 bytes and the bytes; categories stand in the order of their names.
 *
 * Whatever entries a node has when the definition of its primary comes are of a time when it led itself: its primary
 * may have invalidated them since. They go, with the cache, which is made anew. So what was invalidated does not come
 * back by a change of the lead.
 */
#include "cache/core/cache.h"
#include "cache/policy/category.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include "module/replication/module_copy.h"
#include "server/process/log.h"
#include <stdlib.h>
#include <string.h>

enum { DEFINITION_VERSION = 1, WORDS_MAX = 512 };

struct cache *module_cache_of(const char name[MODULE_NAME_BYTES + 1])
{
    return caches_find(module_the.service.caches, (struct quire_bytes){name, MODULE_NAME_BYTES});
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct definition {
    struct cache *cache;
    uint8_t *bytes; /* owned */
    size_t n, capacity;
    uint32_t n_categories;
    bool failed;
};

static void put(struct definition *d, const void *bytes, size_t n)
{
    d->failed = d->failed || !array_reserve(&d->bytes, &d->capacity, d->n + n + 1);
    if (d->failed || n == 0)
        return;
    memcpy(d->bytes + d->n, bytes, n);
    d->n += n;
}

static void put_number(struct definition *d, uint64_t x, size_t n)
{
    uint8_t bytes[8];
    bytes_store_u64(bytes, x);
    put(d, bytes, n);
}

static void put_text(struct definition *d, struct quire_bytes text)
{
    put_number(d, text.n_bytes, 2);
    put(d, text.data, text.n_bytes);
}

static void count_category(void *context, struct quire_bytes name)
{
    (void)name;
    ((struct definition *)context)->n_categories++;
}

static void put_category(void *context, struct quire_bytes name)
{
    struct definition *d = context;
    struct category_settings settings;
    char text[CATEGORY_TEXT_BYTES];
    d->failed = d->failed || cache_get_category(d->cache, name, &settings, NULL) < 0;
    if (d->failed)
        return;
    put_text(d, name);
    put_text(d, (struct quire_bytes){text, category_print(&settings, text)});
}

uint8_t *module_caches_image(const struct module_item *item, size_t *n_bytes)
{
    struct definition d = {.cache = module_cache_of(item->name)};
    if (!d.cache)
        return NULL;
    const struct cache_config *config = cache_get_config(d.cache);
    put_number(&d, DEFINITION_VERSION, 1);
    put_number(&d, config->type, 1);
    put_number(&d, config->require_scope, 1);
    put_number(&d, config->dim, 4);
    put_number(&d, config->memory_bytes, 8);
    put_number(&d, config->disk_bytes, 8);
    put_text(&d, config->encoder);
    put_number(&d, config->n_scope_keys, 2);
    for (uint32_t i = 0; i < config->n_scope_keys; i++)
        put_text(&d, config->scope_keys[i]);
    cache_each_category(d.cache, count_category, &d);
    put_number(&d, d.n_categories, 2);
    cache_each_category(d.cache, put_category, &d);
    cache_unref(d.cache);
    if (d.failed) {
        free(d.bytes);
        return NULL;
    }
    *n_bytes = d.n;
    return d.bytes;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at;
    size_t left;
    bool bad; /* it ended too early */
};

static const uint8_t *take(struct reader *r, size_t n)
{
    r->bad = r->bad || r->left < n;
    if (r->bad)
        return NULL;
    r->at += n;
    r->left -= n;
    return r->at - n;
}

static uint64_t take_number(struct reader *r, size_t n)
{
    uint8_t bytes[8] = {0};
    const uint8_t *from = take(r, n);
    if (from)
        memcpy(bytes, from, n);
    return bytes_load_u64(bytes);
}

static struct quire_bytes take_text(struct reader *r)
{
    size_t n = (size_t)take_number(r, 2);
    const uint8_t *bytes = take(r, n);
    return (struct quire_bytes){bytes, bytes ? n : 0};
}

static int set_category(struct cache *cache, struct quire_bytes name, struct quire_bytes text, struct quire_error *err)
{
    struct quire_bytes words[WORDS_MAX];
    uint32_t n;
    uint64_t lsn;
    int rc = category_words(text, words, WORDS_MAX, &n, err);
    return rc == 0 ? cache_set_category(cache, name, words, n, &lsn, err) : rc;
}

/* Makes the cache. */
static int make(const struct module_item *item, const uint8_t *bytes, size_t n, struct quire_error *err)
{
    struct reader r = {bytes, n, false};
    struct cache_config config = {.name = {item->name, MODULE_NAME_BYTES}};
    uint64_t lsn;
    take(&r, 1); /* the version */
    config.type = (enum quire_type)take_number(&r, 1);
    config.require_scope = take_number(&r, 1) != 0;
    config.dim = (uint32_t)take_number(&r, 4);
    config.memory_bytes = take_number(&r, 8);
    config.disk_bytes = take_number(&r, 8);
    config.encoder = take_text(&r);
    config.n_scope_keys = (uint32_t)take_number(&r, 2);
    for (uint32_t i = 0; i < config.n_scope_keys && i < CACHE_SCOPE_KEYS_MAX; i++)
        config.scope_keys[i] = take_text(&r);
    if (r.bad)
        return error_set(err, QUIRE_ECORRUPT, "its definition ends too early");
    int rc = caches_add(module_the.service.caches, &config, &lsn, err);
    struct cache *cache = rc == 0 ? module_cache_of(item->name) : NULL;
    uint64_t n_categories = take_number(&r, 2);
    for (uint64_t i = 0; rc == 0 && cache && i < n_categories; i++) {
        struct quire_bytes name = take_text(&r), text = take_text(&r);
        rc = r.bad ? error_set(err, QUIRE_ECORRUPT, "its definition ends too early")
                   : set_category(cache, name, text, err);
    }
    if (cache)
        cache_unref(cache);
    return rc;
}

static bool has_entries(struct cache *cache)
{
    struct cache_entry_info entry;
    uint64_t next;
    return cache_available(cache, NULL) < 0 || cache_scan(cache, 0, &entry, 1, &next, NULL) != 0;
}

static bool is_defined_so(const struct module_item *item, const uint8_t *bytes, size_t n)
{
    size_t n_own = 0;
    uint8_t *own = module_caches_image(item, &n_own);
    bool is = own && n_own == n && memcmp(own, bytes, n) == 0;
    free(own);
    return is;
}

void module_caches_take(struct module_item *item, const uint8_t *bytes, size_t n)
{
    struct quire_error err = {0};
    uint64_t lsn;
    int rc =
        n > 0 && bytes[0] == DEFINITION_VERSION
            ? 0
            : error_set(&err, QUIRE_EVERSION, "its definition is of version %u, this node reads %d: update quire.so",
                        n > 0 ? bytes[0] : 0u, DEFINITION_VERSION);
    struct cache *cache = rc == 0 ? module_cache_of(item->name) : NULL;
    bool full = cache && has_entries(cache), there = cache && !full && is_defined_so(item, bytes, n);
    if (full)
        log_line(&module_the.log, LOG_LEVEL_NOTICE,
                 "the cache of key '%.*s' has entries of a time when this node led: they go, its primary has others",
                 (int)item->key_bytes, item->key ? item->key : "");
    if (cache && !there)
        rc = caches_drop(module_the.service.caches, (struct quire_bytes){item->name, MODULE_NAME_BYTES}, &lsn, &err);
    if (cache)
        cache_unref(cache);
    if (rc == 0 && !there)
        rc = make(item, bytes, n, &err);
    if (rc == 0 && item->state == MODULE_ABSENT)
        item->state = MODULE_LIVE;
    if (rc == 0)
        rc = module_item_log(item, &lsn, &err);
    if (rc < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "the cache of key '%.*s' is not as its primary has it: %s",
                 (int)item->key_bytes, item->key ? item->key : "", err.message);
}
