/*
 * module_ship.c - what a replica asks its primary for, beside the engine's stream: sets, segments, caches, entries.
 *
 *   QUIRE._COPY id [db key]                     the set as bytes (replica_manifest.h), whose segments are kept; the
 *                                               cache without its entries (cache/core/cache_replica.h). Where there is
 *                                               none of that id, what the key is goes into the stream
 *   QUIRE._FILES id segment                     names and sizes of the files of a segment
 *   QUIRE._READ id segment file offset bytes    a piece of one; fewer bytes at its end
 *   QUIRE._LIST id number                       a list of entries of a cache, from a number on
 *   QUIRE._ENTRIES id ids                       how many of the ids (8 bytes each, little-endian) were looked at, and
 *                                               entries of those
 *
 * All of it runs on a thread of its own, and the reply leaves from there: the main thread takes a reference to the set
 * and no more. What is kept is in index/replica/replica_pool.h: merged segments for quire.ship-keep seconds, and those
 * of a manifest until nobody has read them for as long.
 */
#include "index/replica/replica_manifest.h"
#include "io/bytes.h"
#include "io/engine.h"
#include "io/error.h"
#include "module/replication/module_copy.h"
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES_MAX = 4 << 20 };

static struct {
    struct worker worker;
    struct replica_pool *pool;
    struct engine *engine; /* the worker's: answers of entries are read by it */
    struct job tick;
    atomic_bool ticking;
    _Atomic uint64_t images, pieces, bytes;
} ship;

/* A question of a replica's. */
struct question {
    struct job job;
    struct rm_blocked *blocked;
    struct rm_ctx *ctx;
    struct collection *set; /* a reference; NULL: it is about a cache */
    struct cache *cache;    /* the same the other way round */
    char name[MODULE_NAME_BYTES + 1];
    uint64_t *ids; /* owned */
    uint8_t segment[LINEAGE_ID_BYTES];
    char file[REPLICA_NAME_BYTES];
    uint64_t offset;
    uint32_t n;
};

int module_ship_open(struct quire_error *err)
{
    const struct engine_config config = {.kind = QUIRE_ENGINE_THREADS, .threads = 1};
    int rc = replica_pool_create(module_the.service.store, module_the.settings.ship_keep_s * 1000, 0, &ship.pool, err);
    if (rc == 0)
        rc = engine_create(&config, &ship.engine, err);
    return rc == 0 ? worker_start(&ship.worker, err) : rc;
}

void module_ship_close(void)
{
    worker_stop(&ship.worker);
    engine_destroy(ship.engine);
    ship.engine = NULL;
    replica_pool_destroy(ship.pool);
    ship.pool = NULL;
}

void module_ship_note(const struct effect *effect)
{
    if (ship.pool)
        replica_pool_note(ship.pool, effect);
}

int module_ship_lease(struct collection *set, struct quire_error *err)
{
    uint64_t lease;
    return replica_pool_lease(ship.pool, set, module_the.settings.ship_keep_s * 1000, &lease, err);
}

static void run_tick(struct job *job)
{
    (void)job;
    replica_pool_tick(ship.pool);
    atomic_store(&ship.ticking, false);
}

void module_ship_tick(void)
{
    if (!ship.pool || atomic_exchange(&ship.ticking, true))
        return;
    ship.tick.run = run_tick;
    worker_post(&ship.worker, &ship.tick);
}

void module_ship_get_stats(struct module_ship_stats *out)
{
    *out = (struct module_ship_stats){
        .images = atomic_load(&ship.images), .pieces = atomic_load(&ship.pieces), .bytes = atomic_load(&ship.bytes)};
    if (ship.pool)
        replica_pool_get_stats(ship.pool, &out->pool);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void free_question(struct rm_ctx *ctx, void *data)
{
    (void)ctx;
    (void)data;
}

static void drop_question(struct question *q)
{
    collection_unref(q->set);
    if (q->cache)
        cache_unref(q->cache);
    free(q->ids);
    free(q);
}

static void end_question(struct question *q)
{
    rm.free_thread_safe_context(q->ctx);
    rm.unblock_client(q->blocked, NULL);
    drop_question(q);
}

static void reply_failure(struct question *q, int rc, const struct quire_error *err)
{
    char text[sizeof err->message + 16];
    snprintf(text, sizeof text, "%s %s", rc == QUIRE_ENOTFOUND ? "NOSEGMENT" : "ERR", err->message);
    rm.reply_error(q->ctx, text);
}

static void run_copy(struct job *job)
{
    struct question *q = (struct question *)(void *)job;
    struct quire_error err = {0};
    uint8_t *bytes = NULL;
    size_t n = 0;
    int rc = q->cache ? module_caches_image(q->name, &bytes, &n, &err) : module_ship_lease(q->set, &err);
    if (rc == 0 && q->set)
        rc = replica_manifest_make(q->set, &bytes, &n, &err);
    if (rc == 0)
        rm.reply_bulk(q->ctx, (const char *)bytes, n);
    else
        reply_failure(q, rc, &err);
    free(bytes);
    atomic_fetch_add(&ship.images, rc == 0);
    end_question(q);
}

static void run_files(struct job *job)
{
    struct question *q = (struct question *)(void *)job;
    struct quire_error err = {0};
    struct replica_file files[REPLICA_FILES_MAX];
    int n = replica_pool_files(ship.pool, q->set, q->segment, files, REPLICA_FILES_MAX, &err);
    if (n < 0) {
        reply_failure(q, n, &err);
    } else {
        n = n < (int)REPLICA_FILES_MAX ? n : (int)REPLICA_FILES_MAX;
        rm.reply_array(q->ctx, 2L * n);
        for (int i = 0; i < n; i++) {
            rm.reply_bulk(q->ctx, files[i].name, strlen(files[i].name));
            rm.reply_integer(q->ctx, (long long)files[i].bytes);
        }
    }
    end_question(q);
}

static void run_read(struct job *job)
{
    struct question *q = (struct question *)(void *)job;
    struct quire_error err = {0};
    uint8_t *bytes = malloc(q->n + 1u);
    int64_t n = bytes ? replica_pool_read(ship.pool, q->set, q->segment, q->file, q->offset, bytes, q->n, &err)
                      : error_set(&err, QUIRE_ENOMEM, "no memory for a piece of a segment");
    if (n < 0) {
        reply_failure(q, (int)n, &err);
    } else {
        rm.reply_bulk(q->ctx, (const char *)bytes, (size_t)n);
        atomic_fetch_add(&ship.pieces, 1);
        atomic_fetch_add(&ship.bytes, (uint64_t)n);
    }
    free(bytes);
    end_question(q);
}

static void run_list(struct job *job)
{
    struct question *q = (struct question *)(void *)job;
    struct quire_error err = {0};
    uint8_t *bytes = NULL;
    size_t n = 0;
    int rc = cache_copy_list(q->cache, (uint32_t)q->offset, &bytes, &n, &err);
    if (rc == 0)
        rm.reply_bulk(q->ctx, (const char *)bytes, n);
    else
        reply_failure(q, rc, &err);
    free(bytes);
    end_question(q);
}

static void run_entries(struct job *job)
{
    struct question *q = (struct question *)(void *)job;
    struct quire_error err = {0};
    uint8_t *bytes = NULL;
    size_t n = 0;
    uint32_t done = 0;
    int rc = cache_copy_entries(q->cache, ship.engine, q->ids, q->n, &bytes, &n, &done, &err);
    if (rc == 0) {
        rm.reply_array(q->ctx, 2);
        rm.reply_integer(q->ctx, done);
        rm.reply_bulk(q->ctx, (const char *)bytes, n);
        atomic_fetch_add(&ship.bytes, n);
    } else {
        reply_failure(q, rc, &err);
    }
    free(bytes);
    end_question(q);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

static bool take_id(const struct rm_string *word, uint8_t out[LINEAGE_ID_BYTES])
{
    size_t n;
    const char *text = rm.string_bytes(word, &n);
    return n == 2 * LINEAGE_ID_BYTES && bytes_from_hex(text, LINEAGE_ID_BYTES, out);
}

/* Blocks the client; q is taken over. */
static int ask(struct rm_ctx *ctx, struct question *q, void (*run)(struct job *job))
{
    q->blocked = rm.block_client(ctx, NULL, NULL, free_question, 0);
    q->ctx = rm.get_thread_safe_context(q->blocked);
    q->job.run = run;
    worker_post(&ship.worker, &q->job);
    return RM_OK;
}

static struct question *no_question(struct rm_ctx *ctx, const char *text)
{
    rm.reply_error(ctx, text);
    return NULL;
}

/* A question about the set of an item; NULL after a reply. */
static struct question *question_of_set(struct rm_ctx *ctx, const struct module_item *item)
{
    struct quire_error err = {0};
    struct collection *set = module_set_of(item->name);
    if (!set)
        return no_question(ctx, "NOSEGMENT this node has no set of that id");
    int rc = module_stream_identify(item, set, &err);
    struct question *q = rc == 0 ? calloc(1, sizeof *q) : NULL;
    if (q)
        q->set = set;
    else
        collection_unref(set);
    return q ? q : no_question(ctx, "ERR no memory, or the journal takes nothing");
}

static struct question *question_of_cache(struct rm_ctx *ctx, const struct module_item *item)
{
    struct cache *cache = module_cache_of(item->name);
    if (!cache || cache_available(cache, NULL) < 0) {
        if (cache)
            cache_unref(cache);
        return no_question(ctx, "NOSEGMENT this node has no cache of that id that it can use");
    }
    struct question *q = calloc(1, sizeof *q);
    if (q)
        q->cache = cache;
    else
        cache_unref(cache);
    return q ? q : no_question(ctx, "ERR no memory");
}

/* A question about the set or cache of an id, of this kind (0: either); NULL after a reply. */
static struct question *question_of(struct rm_ctx *ctx, const struct rm_string *id, unsigned kind)
{
    size_t n;
    const struct module_item *item = module_item_find(rm.string_bytes(id, &n));
    if (!module_the.open || !module_the.loaded || !ship.pool) {
        rm.reply_error(ctx, "LOADING this node has not read its files yet");
        return NULL;
    }
    if (rm.get_context_flags(ctx) & (RM_FLAG_LUA | RM_FLAG_MULTI | RM_FLAG_DENY_BLOCKING)) {
        rm.reply_error(ctx, "ERR this command is for replicas: it is not for transactions and scripts");
        return NULL;
    }
    if (!item || (kind && item->kind != kind))
        return no_question(ctx, "NOSEGMENT this node has nothing of that id");
    struct question *q = item->kind == MODULE_SET ? question_of_set(ctx, item) : question_of_cache(ctx, item);
    if (q)
        memcpy(q->name, item->name, sizeof q->name);
    return q;
}

static int refuse(struct rm_ctx *ctx, struct question *q, const char *text)
{
    drop_question(q);
    return rm.reply_error(ctx, text);
}

int module_ship_copy(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    size_t n;
    if (argc != 2 && argc != 4)
        return rm.wrong_arity(ctx);
    if (!module_the.is_replica && module_the.loaded)
        module_stream_begin(); /* what is written from now on is in the stream */
    if (argc == 4 && !module_item_find(rm.string_bytes(argv[1], &n)))
        module_stream_key(ctx, argv[2], argv[3]);
    struct question *q = question_of(ctx, argv[1], 0);
    return q ? ask(ctx, q, run_copy) : RM_OK;
}

int module_ship_files(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    if (argc != 3)
        return rm.wrong_arity(ctx);
    struct question *q = question_of(ctx, argv[1], MODULE_SET);
    if (q && !take_id(argv[2], q->segment))
        return refuse(ctx, q, "ERR no id of a segment");
    return q ? ask(ctx, q, run_files) : RM_OK;
}

int module_ship_read(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    size_t n_file, n;
    if (argc != 6)
        return rm.wrong_arity(ctx);
    struct question *q = question_of(ctx, argv[1], MODULE_SET);
    if (!q)
        return RM_OK;
    const char *file = rm.string_bytes(argv[3], &n_file);
    uint64_t most = strtoull(rm.string_bytes(argv[5], &n), NULL, 10);
    if (!take_id(argv[2], q->segment) || n_file >= sizeof q->file || most == 0 || most > PIECE_BYTES_MAX)
        return refuse(ctx, q, "ERR a piece is of a segment, a file, an offset and 1..4194304 bytes");
    memcpy(q->file, file, n_file + 1);
    q->offset = strtoull(rm.string_bytes(argv[4], &n), NULL, 10);
    q->n = (uint32_t)most;
    return ask(ctx, q, run_read);
}

int module_ship_list(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    size_t n;
    if (argc != 3)
        return rm.wrong_arity(ctx);
    struct question *q = question_of(ctx, argv[1], MODULE_CACHE);
    if (!q)
        return RM_OK;
    q->offset = strtoull(rm.string_bytes(argv[2], &n), NULL, 10);
    return q->offset < UINT32_MAX ? ask(ctx, q, run_list) : refuse(ctx, q, "ERR no number of an entry");
}

int module_ship_entries(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    size_t n;
    if (argc != 3)
        return rm.wrong_arity(ctx);
    struct question *q = question_of(ctx, argv[1], MODULE_CACHE);
    if (!q)
        return RM_OK;
    const uint8_t *ids = (const uint8_t *)rm.string_bytes(argv[2], &n);
    if (n == 0 || n % 8 != 0 || n / 8 > CACHE_LIST_ENTRIES)
        return refuse(ctx, q, "ERR the ids of entries are 8 bytes each, and at most 4096");
    q->n = (uint32_t)(n / 8);
    q->ids = malloc(n);
    if (!q->ids)
        return refuse(ctx, q, "ERR no memory");
    for (uint32_t i = 0; i < q->n; i++)
        q->ids[i] = bytes_load_u64(ids + (size_t)8 * i);
    return ask(ctx, q, run_entries);
}
