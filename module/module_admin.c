/*
 * module_admin.c - QUIRE.*: what the engine has no command for.
 *
 *   QUIRE.DIGEST key   160 bits that are equal for equal values: of a set as of server/dump/digest.h, of a cache of its
 *                      entries (id, category, size of the answer, whether it is pinned), in any order
 *   QUIRE.BACKUP dir   the engine's RDB and a snapshot of the store, in a new folder
 *
 * and the registration of what replicas need (module_copy.h).
 *
 * A backup is an RDB first, and the store after it: what the RDB names is then in the store, since nothing that is gone
 * is removed while a backup runs. What was made in between is in the store alone, and gets its key when the backup is
 * started, as after a crash. The RDB is the one that BGSAVE writes; it is linked, or copied where that cannot be.
 */
#include "cache/core/cache.h"
#include "index/store/store.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/fs.h"
#include "module/module_priv.h"
#include "module/replication/module_copy.h"
#include "server/dump/digest.h"
#include "server/process/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { SCAN_ENTRIES = 256 };

/* Work for the worker's thread, and the client that waits for it. */
struct errand {
    struct job job;
    struct rm_blocked *blocked;
    int code;
    struct quire_error error;
    char name[MODULE_NAME_BYTES + 1]; /* of an item */
    enum module_kind kind;
    uint8_t digest[DIGEST_BYTES];
    char *folder, *rdb; /* of a backup; owned */
};

static void free_errand(struct rm_ctx *ctx, void *data)
{
    struct errand *e = data;
    (void)ctx;
    free(e->folder);
    free(e->rdb);
    free(e);
}

static int reply_failure(struct rm_ctx *ctx, const struct errand *e)
{
    char text[sizeof e->error.message + 8];
    snprintf(text, sizeof text, "ERR %s", e->error.message);
    return rm.reply_error(ctx, text);
}

static bool may_wait(struct rm_ctx *ctx)
{
    return !(rm.get_context_flags(ctx) & (RM_FLAG_LUA | RM_FLAG_MULTI | RM_FLAG_DENY_BLOCKING));
}

/* ---- QUIRE.DIGEST ------------------------------------------------------------------------------------------------ */

/* Adds up hashes of entries: in any order the same. */
static void add_entry(const struct cache_entry_info *entry, uint8_t out[DIGEST_BYTES])
{
    uint8_t bytes[16];
    bytes_store_u64(bytes, entry->id);
    bytes_store_u32(bytes + 8, entry->document_bytes);
    bytes_store_u32(bytes + 12, entry->pinned);
    uint64_t seed = XXH3_64bits(entry->category.data, entry->category.n_bytes);
    XXH128_hash_t hash = XXH3_128bits_withSeed(bytes, sizeof bytes, seed);
    bytes_store_u64(out, bytes_load_u64(out) + hash.low64);
    bytes_store_u64(out + 8, bytes_load_u64(out + 8) + hash.high64);
    bytes_store_u32(out + 16, bytes_load_u32(out + 16) + 1);
}

static int digest_of_cache(const char *name, uint8_t out[DIGEST_BYTES], struct quire_error *err)
{
    struct cache *cache = caches_find(module_the.service.caches, (struct quire_bytes){name, MODULE_NAME_BYTES});
    struct cache_entry_info *entries = calloc(SCAN_ENTRIES, sizeof *entries);
    uint64_t cursor = 0;
    int n = cache && entries ? 0 : error_set(err, QUIRE_ENOTFOUND, "the cache is gone, or there is no memory");
    bool more = n == 0;
    while (more) {
        n = cache_scan(cache, (struct quire_bytes){NULL, 0}, cursor, entries, SCAN_ENTRIES, &cursor, err);
        for (int i = 0; i < n; i++)
            add_entry(&entries[i], out);
        more = n >= 0 && cursor != 0;
    }
    free(entries);
    if (cache)
        cache_unref(cache);
    return n < 0 ? n : 0;
}

static void run_digest(struct job *job)
{
    struct errand *e = (struct errand *)(void *)job;
    const struct resp_arg key = {(const uint8_t *)e->name, MODULE_NAME_BYTES};
    e->code = e->kind == MODULE_SET ? digest_of_key(&module_the.service, key, e->digest, &e->error)
                                    : digest_of_cache(e->name, e->digest, &e->error);
    rm.unblock_client(e->blocked, e);
}

static int reply_digest(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    const struct errand *e = rm.get_blocked_data(ctx);
    char text[DIGEST_TEXT_BYTES];
    (void)argv;
    (void)argc;
    if (e->code < 0)
        return reply_failure(ctx, e);
    digest_text(e->digest, text);
    return rm.reply_bulk(ctx, text, strlen(text));
}

static int run_digest_command(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    bool other = false;
    if (argc != 2)
        return rm.wrong_arity(ctx);
    char text[MODULE_TEXT_BYTES];
    struct module_item *item = module_item_of_key(ctx, argv[1], &other);
    if (other)
        return rm.reply_error(ctx, "WRONGTYPE QUIRE.DIGEST is of vector sets and caches");
    if (!item)
        return rm.reply_null(ctx);
    if (module_copies_refuse(item, text))
        return rm.reply_error(ctx, text);
    if (item->state == MODULE_ABSENT)
        return rm.reply_error(ctx, "ERR the data of this key is not on this node");
    if (!may_wait(ctx))
        return rm.reply_error(ctx, "ERR this command takes long: it is not for transactions and scripts");
    struct errand *e = calloc(1, sizeof *e);
    if (!e)
        return rm.reply_error(ctx, "OOM no memory for a digest");
    memcpy(e->name, item->name, sizeof e->name);
    e->kind = item->kind;
    e->job.run = run_digest;
    e->blocked = rm.block_client(ctx, reply_digest, NULL, free_errand, 0);
    worker_post(&module_the.service.worker, &e->job);
    return RM_OK;
}

/* ---- QUIRE.BACKUP ------------------------------------------------------------------------------------------------ */

static struct errand *backup; /* that waits for its RDB, or for the store; the main thread's */

bool module_backup_runs(void)
{
    return backup != NULL;
}

static int copy_file(const char *from, const char *to, struct quire_error *err)
{
    char buffer[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    int rc = in < 0 ? error_set_errno(err, errno, "open", from) : out < 0 ? error_set_errno(err, errno, "make", to) : 0;
    ssize_t n = 0;
    while (rc == 0 && (n = read(in, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0, done; rc == 0 && at < n; at += done)
            if ((done = write(out, buffer + at, (size_t)(n - at))) < 0)
                rc = error_set_errno(err, errno, "write", to);
    if (rc == 0 && n < 0)
        rc = error_set_errno(err, errno, "read", from);
    if (rc == 0 && fsync(out) < 0)
        rc = error_set_errno(err, errno, "sync", to);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return rc;
}

/* The snapshot takes its name when it is whole. */
static int copy_store(const char *folder, struct quire_error *err)
{
    struct service *s = &module_the.service;
    char *to = NULL;
    uint64_t lsn;
    if (asprintf(&to, "%s/quire", folder) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a backup");
    caches_pin_files(s->caches);
    int rc = store_snapshot(s->store, to, &lsn, err);
    if (rc == 0)
        rc = caches_link_documents(s->caches, to, err);
    caches_unpin_files(s->caches);
    free(to);
    return rc;
}

static void run_backup(struct job *job)
{
    struct errand *e = (struct errand *)(void *)job;
    char *to = NULL;
    int rc = asprintf(&to, "%s/dump.rdb", e->folder) < 0 ? error_set(&e->error, QUIRE_ENOMEM, "no memory") : 0;
    if (rc == 0 && link(e->rdb, to) < 0)
        rc = copy_file(e->rdb, to, &e->error);
    free(to);
    if (rc == 0)
        rc = copy_store(e->folder, &e->error);
    if (rc == 0)
        rc = fs_real()->ops->sync_dir(fs_real(), e->folder);
    if (rc < 0 && e->error.code == 0)
        error_set(&e->error, rc, "cannot sync %s: %s", e->folder, quire_error_text(rc));
    e->code = rc;
    rm.unblock_client(e->blocked, e);
}

static int reply_backup(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    const struct errand *e = rm.get_blocked_data(ctx);
    (void)argv;
    (void)argc;
    return e->code < 0 ? reply_failure(ctx, e) : rm.reply_simple(ctx, "OK");
}

static void end_backup(struct rm_ctx *ctx, void *data)
{
    struct errand *e = data;
    if (e->code < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "no backup in %s: %s", e->folder, e->error.message);
    else
        log_line(&module_the.log, LOG_LEVEL_NOTICE, "backup made: %s", e->folder);
    backup = NULL;
    free_errand(ctx, e);
}

void module_backup_child_ended(bool saved)
{
    struct errand *e = backup;
    if (!e || e->job.run)
        return;
    e->job.run = run_backup;
    if (saved) {
        worker_post(&module_the.service.worker, &e->job);
        return;
    }
    e->code = error_set(&e->error, QUIRE_EIO, "the engine's BGSAVE failed, or another child ended first: try again");
    rm.unblock_client(e->blocked, e);
}

static int prepare_backup(struct rm_ctx *ctx, struct errand *e, struct rm_string *folder)
{
    size_t n;
    const char *path = rm.string_bytes(folder, &n);
    int rc = 0;
    if (path[0] != '/' || strlen(path) != n)
        rc = error_set(&e->error, QUIRE_EINVALID, "'%.200s' is no absolute path of a folder to be made", path);
    if (rc == 0 && (!(e->rdb = module_saves_path(ctx)) || !(e->folder = strdup(path))))
        rc = error_set(&e->error, QUIRE_ENOMEM, "the engine does not say where its RDB is");
    if (rc == 0 && mkdir(path, 0750) < 0)
        rc = error_set_errno(&e->error, errno, "make", path);
    return rc;
}

static int run_backup_command(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    char text[400];
    if (argc != 2)
        return rm.wrong_arity(ctx);
    if (!may_wait(ctx))
        return rm.reply_error(ctx, "ERR this command takes long: it is not for transactions and scripts");
    if (backup)
        return rm.reply_error(ctx, "ERR a backup is being made");
    struct errand *e = calloc(1, sizeof *e);
    if (!e)
        return rm.reply_error(ctx, "OOM no memory for a backup");
    if (prepare_backup(ctx, e, argv[1]) < 0) {
        reply_failure(ctx, e);
        free_errand(ctx, e);
        return RM_OK;
    }
    struct rm_reply *reply = rm.call(ctx, "BGSAVE", "");
    if (!reply || rm.reply_type(reply) == RM_REPLY_ERROR) {
        size_t n = 0;
        const char *why = reply ? rm.reply_bytes(reply, &n) : "";
        snprintf(text, sizeof text, "ERR the engine does not begin to save: %.*s", (int)(n < 300 ? n : 300), why);
        rm.reply_error(ctx, text);
        rmdir(e->folder);
        free_errand(ctx, e);
    } else {
        e->blocked = rm.block_client(ctx, reply_backup, NULL, end_backup, 0);
        backup = e;
    }
    if (reply)
        rm.free_reply(reply);
    return RM_OK;
}

/* ---- registration ------------------------------------------------------------------------------------------------ */

int module_admin_create(struct rm_ctx *ctx, const char **failed)
{
    static const struct own_command {
        const char *name;
        rm_command_fn *run;
        const char *flags;
        int key;
    } own[] = {{MODULE_MANIFEST, module_type_manifest, "write", 1},
               {"QUIRE.DIGEST", run_digest_command, "readonly", 1},
               {"QUIRE.LOST", module_replication_lost, "readonly", 1},
               {"QUIRE.REPLICATION", module_replication_report, "admin allow-stale", 0},
               {"QUIRE.DOCTOR", module_replication_doctor, "admin allow-stale", 0},
               {MODULE_WRITE, module_copies_write, "write", 1},
               {MODULE_IMAGE, module_copies_image, "write", 1},
               {"QUIRE._COPY", module_ship_copy, "admin deny-script", 0},
               {"QUIRE._FILES", module_ship_files, "admin deny-script", 0},
               {"QUIRE._READ", module_ship_read, "admin deny-script", 0},
               {"QUIRE._LIST", module_ship_list, "admin deny-script", 0},
               {"QUIRE._ENTRIES", module_ship_entries, "admin deny-script", 0},
               {"QUIRE._HAVE", module_stream_have, "admin deny-script", 0},
               {"QUIRE.BACKUP", run_backup_command, "admin deny-script", 0}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        *failed = own[i].name;
        if (rm.create_command(ctx, own[i].name, own[i].run, own[i].flags, own[i].key, own[i].key, own[i].key) != RM_OK)
            return RM_ERR;
    }
    return RM_OK;
}
