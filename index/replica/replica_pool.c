/*
 * replica_pool.c - segments that copies may still ask for.
 *
 * A list of parts with a reference each, under one lock. Several holders of one part are several entries: a lease ends
 * by itself. References are let go outside of the lock and never in the host's `effect`, which runs under a
 * collection's: the last of a part hands it to maintenance, which is cheap, but nobody need rely on that.
 */
#include "index/replica/replica_pool.h"
#include "index/collection/collection_host.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hold {
    struct part *part; /* a reference */
    uint64_t lease;    /* 0: of no lease */
    uint64_t until_ms, ms;
};

struct replica_pool {
    struct store *store;
    uint64_t keep_ms, bytes_max;
    pthread_mutex_t lock; /* what follows */
    struct hold *holds;
    uint32_t n, capacity;
    uint64_t last_lease;
};

static uint64_t now_ms(void)
{
    return clock_us() / 1000;
}

int replica_pool_create(struct store *store, uint64_t keep_ms, uint64_t bytes_max, struct replica_pool **out,
                        struct quire_error *err)
{
    struct replica_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return error_set(err, QUIRE_ENOMEM, "no memory for a pool of segments");
    pool->store = store;
    pool->keep_ms = keep_ms;
    pool->bytes_max = bytes_max;
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return 0;
}

void replica_pool_destroy(struct replica_pool *pool)
{
    if (!pool)
        return;
    for (uint32_t i = 0; i < pool->n; i++)
        part_unref(pool->holds[i].part);
    pthread_mutex_destroy(&pool->lock);
    free(pool->holds);
    free(pool);
}

/* (lock) */
static int add_hold(struct replica_pool *pool, struct part *part, uint64_t lease, uint64_t ms)
{
    if (!array_reserve(&pool->holds, &pool->capacity, pool->n + 1u))
        return QUIRE_ENOMEM;
    pool->holds[pool->n++] = (struct hold){.part = part_ref(part), .lease = lease, .until_ms = now_ms() + ms, .ms = ms};
    return 0;
}

void replica_pool_note(struct replica_pool *pool, const struct effect *effect)
{
    if (effect->kind != EFFECT_EDIT || !effect->gone_parts)
        return;
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < effect->n_gone; i++)
        add_hold(pool, effect->gone_parts[i], 0,
                 pool->keep_ms); /* without memory a copy asks in vain, and begins anew */
    pthread_mutex_unlock(&pool->lock);
}

int replica_pool_lease(struct replica_pool *pool, struct collection *collection, uint64_t ms, uint64_t *lease,
                       struct quire_error *err)
{
    struct view *view = collection_view(collection);
    int rc = 0;
    pthread_mutex_lock(&pool->lock);
    uint64_t number = pool->last_lease + 1;
    uint32_t before = pool->n;
    for (uint32_t i = 0; rc == 0 && i < view->n_parts; i++)
        rc = add_hold(pool, view->parts[i], number, ms);
    while (rc < 0 && pool->n > before)
        part_unref(pool->holds[--pool->n].part); /* the view has them */
    if (rc == 0)
        *lease = pool->last_lease = number;
    pthread_mutex_unlock(&pool->lock);
    view_unref(view);
    return rc < 0 ? error_set(err, rc, "no memory for a lease") : 0;
}

/* Takes out the holds of a lease, or (0) those that are over; lets go of them. How many. */
static uint32_t let_go(struct replica_pool *pool, uint64_t lease)
{
    uint64_t now = now_ms(), bytes = 0;
    uint32_t n_gone = 0, kept = 0;
    pthread_mutex_lock(&pool->lock);
    struct part **gone = malloc((pool->n + 1u) * sizeof(struct part *));
    for (uint32_t i = pool->n; gone && i-- > 0;) { /* the newest first: the oldest are beyond the bound */
        struct hold *hold = &pool->holds[i];
        bytes += hold->lease ? 0 : segment_info(hold->part->segment)->index_bytes;
        bool over = lease ? hold->lease == lease
                          : hold->until_ms <= now || (!hold->lease && pool->bytes_max && bytes > pool->bytes_max);
        if (over) {
            gone[n_gone++] = hold->part;
            hold->part = NULL;
        }
    }
    for (uint32_t i = 0; gone && i < pool->n; i++)
        if (pool->holds[i].part)
            pool->holds[kept++] = pool->holds[i];
    pool->n = gone ? kept : pool->n;
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < n_gone; i++)
        part_unref(gone[i]);
    free(gone);
    return n_gone;
}

bool replica_pool_release(struct replica_pool *pool, uint64_t lease)
{
    return lease && let_go(pool, lease) > 0;
}

void replica_pool_tick(struct replica_pool *pool)
{
    let_go(pool, 0);
}

void replica_pool_get_stats(struct replica_pool *pool, struct replica_pool_stats *out)
{
    *out = (struct replica_pool_stats){.segments = 0};
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < pool->n; i++) {
        bool first = true;
        for (uint32_t k = 0; k < i; k++)
            first = first && pool->holds[i].lease != pool->holds[k].lease;
        out->leases += pool->holds[i].lease && first;
        out->bytes += segment_info(pool->holds[i].part->segment)->index_bytes;
    }
    out->segments = pool->n;
    pthread_mutex_unlock(&pool->lock);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool is_segment(const struct part *part, const uint8_t segment[LINEAGE_ID_BYTES])
{
    return part->segment && memcmp(part->segment->segment_id, segment, LINEAGE_ID_BYTES) == 0;
}

/* With a reference; whoever reads a lease's segment keeps the lease. NULL: it is not here. */
static struct part *find_part(struct replica_pool *pool, struct collection *collection,
                              const uint8_t segment[LINEAGE_ID_BYTES])
{
    struct part *found = NULL;
    uint64_t now = now_ms();
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < pool->n; i++)
        if (is_segment(pool->holds[i].part, segment)) {
            struct hold *hold = &pool->holds[i];
            for (uint32_t k = 0; hold->lease && k < pool->n; k++)
                if (pool->holds[k].lease == hold->lease)
                    pool->holds[k].until_ms = now + pool->holds[k].ms;
            found = found ? found : part_ref(hold->part);
        }
    pthread_mutex_unlock(&pool->lock);
    if (found)
        return found;
    struct view *view = collection_view(collection);
    for (uint32_t i = 0; i < view->n_parts && !found; i++)
        if (is_segment(view->parts[i], segment))
            found = part_ref(view->parts[i]);
    view_unref(view);
    return found;
}

static int not_here(struct quire_error *err)
{
    return error_set(err, QUIRE_ENOTFOUND, "the segment is not here any more: ask for a new manifest");
}

struct listing {
    struct io_fs *fs;
    const char *folder;
    struct replica_file *out;
    uint32_t n, capacity;
    struct quire_error *err;
};

static int list_file(void *context, const char *name)
{
    struct listing *l = context;
    struct io_file *file = NULL;
    char *path;
    if (strlen(name) >= REPLICA_NAME_BYTES)
        return 0;
    if (asprintf(&path, "%s/%s", l->folder, name) < 0)
        return error_set(l->err, QUIRE_ENOMEM, "no memory to list a segment");
    int rc = fs_open(l->fs, path, FS_READ, &file, l->err);
    free(path);
    if (rc < 0)
        return rc;
    if (l->n < l->capacity) {
        l->out[l->n] = (struct replica_file){.bytes = file->bytes};
        memcpy(l->out[l->n].name, name, strlen(name) + 1);
    }
    l->n++;
    fs_close(file);
    return 0;
}

int replica_pool_files(struct replica_pool *pool, struct collection *collection,
                       const uint8_t segment[LINEAGE_ID_BYTES], struct replica_file *out, uint32_t n,
                       struct quire_error *err)
{
    struct part *part = find_part(pool, collection, segment);
    if (!part)
        return not_here(err);
    char *folder = store_part_folder(pool->store, part);
    struct listing listing = {.fs = store_fs(pool->store), .folder = folder, .out = out, .capacity = n, .err = err};
    int rc = folder ? listing.fs->ops->list(listing.fs, folder, list_file, &listing)
                    : error_set(err, QUIRE_ENOMEM, "no memory to list a segment");
    free(folder);
    part_unref(part);
    return rc < 0 ? rc : (int)listing.n;
}

int64_t replica_pool_read(struct replica_pool *pool, struct collection *collection,
                          const uint8_t segment[LINEAGE_ID_BYTES], const char *name, uint64_t offset, void *bytes,
                          uint32_t n, struct quire_error *err)
{
    struct io_file *file = NULL;
    char *folder = NULL, *path = NULL;
    int64_t got = 0;
    if (!*name || strlen(name) >= REPLICA_NAME_BYTES || strchr(name, '/') || name[0] == '.')
        return error_set(err, QUIRE_EINVALID, "a segment has no file of that name");
    struct part *part = find_part(pool, collection, segment);
    if (!part)
        return not_here(err);
    folder = store_part_folder(pool->store, part);
    int rc = !folder || asprintf(&path, "%s/%s", folder, name) < 0
                 ? error_set(err, QUIRE_ENOMEM, "no memory to read a segment")
                 : fs_open(store_fs(pool->store), path, FS_READ, &file, err);
    if (rc == 0 && offset < file->bytes) {
        got = file->bytes - offset < n ? (int64_t)(file->bytes - offset) : n;
        rc = fs_read_exact(file, bytes, (size_t)got, offset, err);
    }
    fs_close(file);
    free(folder);
    free(path);
    part_unref(part);
    return rc < 0 ? rc : got;
}
