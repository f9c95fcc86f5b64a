/*
 * module_ship.c - what a replica asks its primary for, beside the engine's stream: whole sets and segments.
 *
 *   QUIRE._COPY id [db key]                     the set as bytes (replica_manifest.h); its segments are kept. Where
 *                                               there is none of that id, what the key is goes into the stream
 *   QUIRE._FILES id segment                     names and sizes of the files of a segment
 *   QUIRE._READ id segment file offset bytes    a piece of one; fewer bytes at its end
 *
 * All of it runs on a thread of its own, and the reply leaves from there: the main thread takes a reference to the set
 * and no more. What is kept is in index/replica/replica_pool.h: merged segments for quire.ship-keep seconds, and those
 * of a manifest until nobody has read them for as long.
 */
#include "index/replica/replica_manifest.h"
#include "io/bytes.h"
#include "io/error.h"
#include "module/replication/module_copy.h"
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES_MAX = 4 << 20 };

static struct {
    struct worker worker;
    struct replica_pool *pool;
    struct job tick;
    atomic_bool ticking;
    _Atomic uint64_t images, pieces, bytes;
} ship;

/* A question of a replica's. */
struct question {
    struct job job;
    struct rm_blocked *blocked;
    struct rm_ctx *ctx;
    struct collection *set; /* a reference */
    uint8_t segment[LINEAGE_ID_BYTES];
    char file[REPLICA_NAME_BYTES];
    uint64_t offset;
    uint32_t n;
};

int module_ship_open(struct quire_error *err)
{
    int rc = replica_pool_create(module_the.service.store, module_the.settings.ship_keep_s * 1000, 0, &ship.pool, err);
    return rc == 0 ? worker_start(&ship.worker, err) : rc;
}

void module_ship_close(void)
{
    worker_stop(&ship.worker);
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

static void end_question(struct question *q)
{
    rm.free_thread_safe_context(q->ctx);
    rm.unblock_client(q->blocked, NULL);
    collection_unref(q->set);
    free(q);
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
    int rc = module_ship_lease(q->set, &err);
    if (rc == 0)
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

/* A question about the set of an id; NULL after a reply. */
static struct question *question_of(struct rm_ctx *ctx, const struct rm_string *id)
{
    struct quire_error err = {0};
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
    struct collection *set = item && item->kind == MODULE_SET ? module_set_of(item->name) : NULL;
    if (!set) {
        rm.reply_error(ctx, "NOSEGMENT this node has no set of that id");
        return NULL;
    }
    int rc = module_stream_identify(item, set, &err);
    struct question *q = rc == 0 ? calloc(1, sizeof *q) : NULL;
    if (!q) {
        rm.reply_error(ctx, "ERR no memory, or the journal takes nothing");
        collection_unref(set);
        return NULL;
    }
    q->set = set;
    return q;
}

static int refuse(struct rm_ctx *ctx, struct question *q, const char *text)
{
    collection_unref(q->set);
    free(q);
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
    struct question *q = question_of(ctx, argv[1]);
    return q ? ask(ctx, q, run_copy) : RM_OK;
}

int module_ship_files(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    if (argc != 3)
        return rm.wrong_arity(ctx);
    struct question *q = question_of(ctx, argv[1]);
    if (q && !take_id(argv[2], q->segment))
        return refuse(ctx, q, "ERR no id of a segment");
    return q ? ask(ctx, q, run_files) : RM_OK;
}

int module_ship_read(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    size_t n_file, n;
    if (argc != 6)
        return rm.wrong_arity(ctx);
    struct question *q = question_of(ctx, argv[1]);
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
