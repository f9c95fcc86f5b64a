/*
 * cache_image.c - an image of a leader's cache, taken: the cache is made, or made to agree in all but its entries
 * (cache_replica.h).
 */
#include "cache/core/cache_follow.h"
#include "io/error.h"
#include <stdlib.h>

struct image {
    struct cache_config config;
    uint64_t seed, secret[2], before_history, before_seq, entries, epoch;
    struct cache_reader rest; /* categories and invalidations */
};

static int read_image(struct cache_frame *frame, struct quire_bytes name, struct image *out, struct quire_error *err)
{
    struct cache_reader *r = &frame->body;
    struct cache_config *c = &out->config;
    *out = (struct image){.config.name = name};
    c->type = (enum quire_type)cache_read_u8(r);
    c->require_scope = cache_read_u8(r) != 0;
    c->dim = cache_read_u32(r);
    c->memory_bytes = cache_read_u64(r);
    c->disk_bytes = cache_read_u64(r);
    c->encoder = cache_read_piece(r, CACHE_NAME_BYTES);
    c->n_scope_keys = cache_read_u32(r);
    for (uint32_t i = 0; i < c->n_scope_keys && i < CACHE_SCOPE_KEYS_MAX; i++)
        c->scope_keys[i] = cache_read_piece(r, CATEGORY_SCOPE_KEY_BYTES);
    out->seed = cache_read_u64(r);
    out->secret[0] = cache_read_u64(r);
    out->secret[1] = cache_read_u64(r);
    out->before_history = cache_read_u64(r);
    out->before_seq = cache_read_u64(r);
    out->entries = cache_read_u64(r);
    out->epoch = cache_read_u64(r);
    out->rest = *r;
    return frame->kind != FRAME_IMAGE || r->bad || c->n_scope_keys > CACHE_SCOPE_KEYS_MAX || out->seed == 0 ||
                   out->secret[0] == 0 || out->epoch > INT64_MAX || c->dim == 0 || c->dim > QUIRE_DIM_MAX
               ? cache_follow_damaged("an image", err)
               : 0;
}

struct image_category {
    uint32_t number;
    struct quire_bytes name, curve;
    struct category_settings settings;
    bool dropped;
};

static int next_category(struct cache_reader *r, uint32_t i, struct image_category *out, struct quire_error *err)
{
    int rc = cache_follow_read_category(r, &out->number, &out->name, &out->settings, err);
    out->dropped = cache_read_u8(r) != 0;
    out->curve = cache_read_piece(r, RISK_BYTES);
    return rc == 0 && (r->bad || out->number != i) ? cache_follow_damaged("a category", err) : rc;
}

/* Whether all of the rest can be read. */
static int check_rest(const struct image *image, struct quire_error *err)
{
    struct cache_reader r = image->rest;
    struct image_category c;
    struct invalidation made;
    uint32_t n = cache_read_u32(&r);
    int rc = n > CACHE_CATEGORIES_MAX ? cache_follow_damaged("an image", err) : 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = next_category(&r, i, &c, err);
    n = cache_read_u32(&r);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = cache_read_invalidation(image->config.dim, &r, &made);
        free(made.vector);
    }
    if (rc == 0 && !r.bad && r.left == 0)
        return 0;
    return rc == QUIRE_ENOMEM ? error_set(err, rc, "no memory for an image") : cache_follow_damaged("an image", err);
}

static bool is_same_config(const struct cache *cache, const struct image *image)
{
    const struct cache_config *own = &cache->config, *told = &image->config;
    bool same = own->type == told->type && own->require_scope == told->require_scope && own->dim == told->dim &&
                own->memory_bytes == told->memory_bytes && own->disk_bytes == told->disk_bytes &&
                own->n_scope_keys == told->n_scope_keys && text_equal(own->encoder, told->encoder) &&
                cache->space.seed == image->seed && cache->secret[0] == image->secret[0] &&
                cache->secret[1] == image->secret[1];
    for (uint32_t i = 0; i < own->n_scope_keys && same; i++)
        same = text_equal(own->scope_keys[i], told->scope_keys[i]);
    return same;
}

/* Whether the cache here can become what the image says: its categories have the same numbers. */
static bool fits(struct cache *cache, const struct image *image)
{
    struct cache_reader r = image->rest;
    struct image_category c;
    uint32_t n = cache_read_u32(&r);
    pthread_mutex_lock(&cache->lock);
    bool same = !cache->unavailable && is_same_config(cache, image) && cache->n_categories <= n;
    for (uint32_t i = 0; i < cache->n_categories && same; i++) {
        const struct category *own = cache_category_at(cache, i);
        same = next_category(&r, i, &c, NULL) == 0 && text_equal(own->name, c.name) && (!own->dropped || c.dropped);
    }
    pthread_mutex_unlock(&cache->lock);
    return same;
}

/* (lock) */
static int apply_rest(struct cache *cache, const struct image *image, uint64_t *lsn, struct quire_error *err)
{
    struct cache_reader r = image->rest;
    struct image_category c;
    uint32_t n = cache_read_u32(&r);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = next_category(&r, i, &c, err);
        bool is_old = i < cache->n_categories && cache_category_at(cache, i)->dropped;
        if (rc == 0 && !is_old)
            rc = cache_follow_category(cache, i, c.name, &c.settings, lsn, err);
        if (rc == 0 && c.curve.n_bytes)
            rc = cache_follow_curve(cache, i, c.curve, err);
        if (rc == 0 && c.dropped)
            rc = cache_follow_category_drop(cache, i, lsn, err);
    }
    n = rc == 0 ? cache_read_u32(&r) : 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = cache_follow_epoch(cache, &r, lsn, err);
    if (rc == 0 && image->epoch > cache->epoch)
        cache->epoch = image->epoch;
    return rc;
}

/* From here on effects of this history are done; entries are compared, where any may differ. (lock) */
static int begin_history(struct cache *cache, const struct cache_frame *frame, const struct image *image,
                         struct quire_error *err)
{
    /* Of the history before it must have all, and nothing may have been done in the new one: effects that the image
     * knows are not done once more. */
    bool whole = !cache->copying && cache->history && cache->seq == frame->seq;
    bool same = whole && (cache->history == frame->history ||
                          (cache->history == image->before_history && cache->seq == image->before_seq));
    cache_copying_free(cache);
    cache->history = frame->history;
    cache->seq = frame->seq;
    cache->before_history = image->before_history;
    cache->before_seq = image->before_seq;
    if (same)
        return 0;
    cache->copying = calloc(1, sizeof *cache->copying);
    if (!cache->copying) {
        cache->history = 0;
        return error_set(err, QUIRE_ENOMEM, "no memory to copy a cache");
    }
    if (image->entries == 0) { /* nothing is to come but effects */
        cache_follow_drop_unknown(cache);
        cache_copying_free(cache);
    }
    return 0;
}

int caches_take_image(struct caches *caches, struct quire_bytes name, const uint8_t *bytes, size_t n, uint64_t *lsn,
                      struct quire_error *err)
{
    struct cache_frame frame;
    struct image image = {.seed = 0};
    int rc = cache_frame_read(bytes, n, &frame, err);
    if (rc == 0)
        rc = read_image(&frame, name, &image, err);
    if (rc == 0)
        rc = check_rest(&image, err);
    if (rc < 0)
        return rc;
    struct cache *cache = caches_find(caches, name);
    if (!cache || !fits(cache, &image)) {
        struct cache *old = cache;
        rc = caches_add_with(caches, &image.config, image.seed, image.secret, old, lsn, err);
        cache = rc == 0 ? caches_find(caches, name) : NULL;
        if (old)
            cache_unref(old);
    }
    if (rc == 0 && !cache)
        rc = error_set(err, QUIRE_ENOTFOUND, "the cache was dropped meanwhile");
    if (rc == 0)
        rc = cache_follow(cache, err);
    if (rc == 0) {
        pthread_mutex_lock(&cache->lock);
        rc = apply_rest(cache, &image, lsn, err);
        if (rc == 0)
            rc = begin_history(cache, &frame, &image, err);
        pthread_mutex_unlock(&cache->lock);
    }
    if (cache)
        cache_unref(cache);
    return rc;
}
