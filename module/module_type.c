/*
 * module_type.c - the type of the engine's values: a key holds an item, and an RDB or AOF a manifest of it.
 *
 * A manifest is the kind, the id, and how many copies were made of it: what the store, which is the truth of a node,
 * has under that id is not in it. So a child that saves touches nothing but these few bytes, and needs no lock.
 *
 * An RDB or AOF may be older than the store. What it names is attached again (a deletion that it has not heard of is
 * undone, as for every other key of the engine); what it does not name, and was not deleted, gets its key back
 * (module_type_recover): it was made later, and acknowledged. What it names and the store has never had is ABSENT: its
 * commands say so.
 *
 * COPY is in the AOF as the client sent it, and must give the same id when it is read again. So the id of a copy is
 * made of that of the original, and of the number of copies so far.
 */
#include "index/collection/collection.h"
#include "io/error.h"
#include "module/module_priv.h"
#include "module/replication/module_copy.h"
#include "server/dump/transfer.h"
#include "server/process/log.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char *kind_name(enum module_kind kind)
{
    return kind == MODULE_SET ? "set" : "cache";
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void replicate_manifest(struct rm_ctx *ctx, struct rm_string *name, const struct module_item *item)
{
    rm.replicate(ctx, MODULE_MANIFEST, "sccl", name, kind_name(item->kind), item->name, (long long)item->copies);
}

bool module_type_put(struct rm_ctx *ctx, struct rm_string *name, struct module_item *item, bool replicate)
{
    struct rm_key *key = rm.open_key(ctx, name, RM_READ | RM_WRITE);
    module_item_attach(item);
    bool done = key && rm.set_value(key, module_the.type, item) == RM_OK;
    rm.close_key(key);
    if (!done)
        module_item_detach(item);
    else if (replicate)
        replicate_manifest(ctx, name, item);
    return done;
}

void module_type_remove(struct rm_ctx *ctx, struct rm_string *name, const struct module_item *item)
{
    bool other;
    if (module_item_of_key(ctx, name, &other) != item)
        return;
    struct rm_key *key = rm.open_key(ctx, name, RM_READ | RM_WRITE);
    rm.delete_key(key);
    rm.close_key(key);
    rm.replicate(ctx, "DEL", "s", name);
    rm.notify_keyspace_event(ctx, RM_NOTIFY_GENERIC, "del", name);
}

/* ---- manifests --------------------------------------------------------------------------------------------------- */

/* The item of a manifest, attached. loading: it may be one that the store has not. */
static struct module_item *attach(const char *name, enum module_kind kind, uint64_t copies, bool loading)
{
    struct quire_error err = {0};
    struct module_item *item = module_item_find(name);
    if (item && item->kind != kind)
        return NULL;
    if (!item && !loading)
        return NULL;
    if (item && !loading && item->attached > 0)
        return NULL; /* two keys cannot have it */
    if (!item) {
        item = module_item_create(name, kind, &err);
        if (!item)
            return NULL;
        item->state = MODULE_ABSENT;
        item->copies = copies;
    }
    if (module_the.is_replica && module_the.loaded)
        item->copies = copies; /* as its primary counts them: ids of copies are made of it */
    item->replayed_copies = copies;
    module_item_attach(item);
    return item;
}

static void rdb_save(struct rm_io *io, void *value)
{
    const struct module_item *item = value;
    rm.save_unsigned(io, item->kind);
    rm.save_bytes(io, item->name, MODULE_NAME_BYTES);
    rm.save_unsigned(io, item->copies);
    size_t n_bytes = 0;
    uint8_t *image = module_fork_image(item, &n_bytes);
    rm.save_bytes(io, image ? (const char *)image : "", n_bytes);
    free(image);
}

static void *rdb_load(struct rm_io *io, int encver)
{
    char name[MODULE_NAME_BYTES + 1] = "";
    size_t n = 0, n_image = 0;
    if (encver < 1 || encver > MODULE_ENCVER) {
        log_line(&module_the.log, LOG_LEVEL_WARNING,
                 "a key was saved by another version of the module (manifest %d, this one reads %d)", encver,
                 MODULE_ENCVER);
        return NULL;
    }
    uint64_t kind = rm.load_unsigned(io);
    char *bytes = rm.is_io_error(io) ? NULL : rm.load_bytes(io, &n);
    if (bytes && n == MODULE_NAME_BYTES)
        memcpy(name, bytes, n);
    if (bytes)
        rm.free_bytes(bytes);
    uint64_t copies = rm.is_io_error(io) ? 0 : rm.load_unsigned(io);
    char *image = rm.is_io_error(io) || encver < 2 ? NULL : rm.load_bytes(io, &n_image);
    if (rm.is_io_error(io) || (kind != MODULE_SET && kind != MODULE_CACHE) || strlen(name) != MODULE_NAME_BYTES) {
        if (image)
            rm.free_bytes(image);
        return NULL;
    }
    bool loading = rm.get_context_flags(rm.io_context(io)) & RM_FLAG_LOADING;
    struct module_item *item = attach(name, (enum module_kind)kind, copies, loading || module_the.is_replica);
    const struct rm_string *key = rm.io_key_name(io);
    if (item && key) {
        size_t key_bytes;
        const char *text = rm.string_bytes(key, &key_bytes);
        module_item_place(item, rm.io_db(io), text, key_bytes);
    }
    /* what a node reads of its own files is older than its store */
    if (item && module_the.loaded)
        module_copies_attach(item, module_copies_are_loading() && n_image > 0 ? (const uint8_t *)image : NULL, n_image);
    if (image)
        rm.free_bytes(image);
    if (!item)
        log_line(
            &module_the.log, LOG_LEVEL_WARNING,
            "RESTORE of %s: another key has its data, or this node has not (only the key is in a dump, the data is "
            "in quire.dir)",
            name);
    return item;
}

static void aof_rewrite(struct rm_io *io, struct rm_string *key, void *value)
{
    const struct module_item *item = value;
    rm.emit_aof(io, MODULE_MANIFEST, "sccl", key, kind_name(item->kind), item->name, (long long)item->copies);
}

static void free_value(void *value)
{
    module_item_detach(value);
}

/* QUIRE._MANIFEST key set|cache id copies: what the engine's AOF and stream have in the place of a key. */
int module_type_manifest(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    size_t n_kind, n_name, n_key, n_copies;
    bool loading = rm.get_context_flags(ctx) & (RM_FLAG_LOADING | RM_FLAG_REPLICATED);
    if (argc != 5)
        return rm.wrong_arity(ctx);
    if (!loading)
        return rm.reply_error(ctx, "ERR this command is for the engine's own files and replicas");
    const char *kind = rm.string_bytes(argv[2], &n_kind), *name = rm.string_bytes(argv[3], &n_name);
    const char *copies = rm.string_bytes(argv[4], &n_copies), *key = rm.string_bytes(argv[1], &n_key);
    bool is_set = strcmp(kind, "set") == 0;
    if (n_name != MODULE_NAME_BYTES || (!is_set && strcmp(kind, "cache") != 0))
        return rm.reply_error(ctx, "ERR not a manifest of this version");
    struct module_item *item = attach(name, is_set ? MODULE_SET : MODULE_CACHE, strtoull(copies, NULL, 10), true);
    if (!item)
        return rm.reply_error(ctx, "ERR the manifest is of another kind than what is there, or there is no memory");
    module_item_place(item, rm.get_selected_db(ctx), key, n_key);
    struct rm_key *entry = rm.open_key(ctx, argv[1], RM_READ | RM_WRITE);
    bool done = rm.set_value(entry, module_the.type, item) == RM_OK;
    rm.close_key(entry);
    if (!done) {
        module_item_detach(item);
        return rm.reply_error(ctx, "ERR the key could not be set");
    }
    if (module_the.loaded)
        module_copies_attach(item, NULL, 0);
    rm.replicate_verbatim(ctx);
    return rm.reply_simple(ctx, "OK");
}

/* ---- COPY -------------------------------------------------------------------------------------------------------- */

static void name_copy(const struct module_item *from, uint64_t n, char out[MODULE_NAME_BYTES + 1])
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(from->name, MODULE_NAME_BYTES, n);
    snprintf(out, MODULE_NAME_BYTES + 1, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

/* The data under another name. */
static int copy_data(const struct module_item *from, const struct module_item *to, uint64_t *lsn,
                     struct quire_error *err)
{
    struct service *s = &module_the.service;
    struct lane *lane = &module_the.lanes[0].lane;
    struct collection *copy = NULL;
    bool other;
    if (from->kind != MODULE_SET)
        return error_set(err, QUIRE_EUNSUPPORTED, "a semantic cache cannot be copied");
    struct collection *set =
        keyspace_get_vectors(&s->keyspace, (struct resp_arg){(const uint8_t *)from->name, MODULE_NAME_BYTES}, &other);
    if (!set)
        return error_set(err, QUIRE_ENOTFOUND, "its data is not on this node");
    uint64_t n = collection_count(set), most = module_the.settings.copy_elements_max;
    int rc = n <= most ? collection_available(set, err)
                       : error_set(err, QUIRE_ELIMIT,
                                   "it has %llu elements; other clients would wait while more than %llu are copied: "
                                   "raise quire.copy-elements-max if they may",
                                   (unsigned long long)n, (unsigned long long)most);
    if (rc == 0)
        rc = transfer_copy_set(s, set, false, &copy, err);
    if (rc == 0) {
        struct transfer_target target = {.key = {(const uint8_t *)to->name, MODULE_NAME_BYTES}};
        struct key_value value = {.type = KEY_VECTOR_SET, .set = copy};
        lane_enter(lane);
        rc = transfer_bind(s, &target, &value, lsn, err);
        lane_leave(lane);
    }
    collection_unref(set);
    return rc;
}

static void *copy2(struct rm_key_opt *ctx, const void *value)
{
    struct module_item *from = (struct module_item *)(uintptr_t)value;
    const struct rm_string *key = rm.opt_to_key_name(ctx);
    char name[MODULE_NAME_BYTES + 1];
    struct quire_error err = {0};
    uint64_t lsn = 0;
    size_t n;
    const char *text = rm.string_bytes(key, &n);
    if (!module_the.loaded) { /* an AOF repeats it: the copy is there, whatever became of it */
        name_copy(from, ++from->replayed_copies, name);
        struct module_item *item = attach(name, from->kind, 0, true);
        if (item)
            module_item_place(item, rm.opt_to_db(ctx), text, n);
        return item;
    }
    name_copy(from, from->copies + 1, name);
    if (module_the.is_replica) { /* its primary has sent the data before the command, or sends it behind that */
        struct module_item *item = attach(name, from->kind, 0, true);
        from->copies++;
        if (from->state != MODULE_ABSENT && module_item_log(from, &lsn, &err) < 0)
            log_line(&module_the.log, LOG_LEVEL_WARNING, "that a key was copied could not be logged: %s", err.message);
        if (item) {
            module_item_place(item, rm.opt_to_db(ctx), text, n);
            module_copies_attach(item, NULL, 0);
        }
        return item;
    }
    struct module_item *to = module_item_find(name) ? NULL : module_item_create(name, from->kind, &err);
    if (!to)
        return NULL;
    module_item_place(to, rm.opt_to_db(ctx), text, n);
    int rc = from->state == MODULE_LIVE ? copy_data(from, to, &lsn, &err)
                                        : error_set(&err, QUIRE_ENOTFOUND, "its data is not on this node");
    if (rc == 0) {
        from->copies++;
        rc = module_item_log(from, &lsn, &err);
        if (rc == 0)
            rc = module_item_log(to, &lsn, &err);
        if (rc < 0)
            from->copies--; /* replicas hear nothing of it, and make ids of the number, too */
    }
    if (rc < 0) {
        log_line(&module_the.log, LOG_LEVEL_WARNING, "COPY of key '%.*s': %s", (int)from->key_bytes,
                 from->key ? from->key : "", err.message);
        module_item_forget(to);
        return NULL;
    }
    module_item_attach(to);
    module_stream_image(to);
    return to; /* whose records are the last that were logged: module_items_sync waits for them, and so for the data */
}

static size_t mem_usage2(struct rm_key_opt *ctx, const void *value, size_t sample)
{
    const struct module_item *item = value;
    struct collection_stats stats;
    size_t bytes = sizeof *item + item->key_bytes;
    bool other;
    (void)ctx;
    (void)sample;
    if (item->kind != MODULE_SET || item->state != MODULE_LIVE || !module_the.open)
        return bytes;
    struct collection *set = keyspace_get_vectors(
        &module_the.service.keyspace, (struct resp_arg){(const uint8_t *)item->name, MODULE_NAME_BYTES}, &other);
    if (set) {
        collection_get_stats(set, &stats);
        bytes += stats.memtable_bytes + stats.resident_bytes;
    }
    collection_unref(set);
    return bytes;
}

int module_type_create(struct rm_ctx *ctx)
{
    static const struct rm_type_methods methods = {.version = RM_TYPE_METHODS_VERSION,
                                                   .rdb_load = rdb_load,
                                                   .rdb_save = rdb_save,
                                                   .aof_rewrite = aof_rewrite,
                                                   .free = free_value,
                                                   .mem_usage2 = mem_usage2,
                                                   .copy2 = copy2};
    module_the.type = rm.create_data_type(ctx, MODULE_TYPE_NAME, MODULE_ENCVER, &methods);
    return module_the.type ? RM_OK : RM_ERR;
}

/* ---- after loading ----------------------------------------------------------------------------------------------- */

static struct rm_string *key_of(struct rm_ctx *ctx, const struct module_item *item)
{
    return rm.create_string(ctx, item->key ? item->key : "", item->key_bytes);
}

/* Its key back, or, where another has that name by now, a name that says what it is. */
static void give_key(struct rm_ctx *ctx, struct module_item *item)
{
    bool other = false;
    char text[128];
    struct rm_string *key = key_of(ctx, item);
    if (module_item_of_key(ctx, key, &other) || other) {
        rm.free_string(ctx, key);
        int n = snprintf(text, sizeof text, "quire:recovered:%.8s:%.*s", item->name,
                         (int)(item->key_bytes < 64 ? item->key_bytes : 64), item->key ? item->key : "");
        key = rm.create_string(ctx, text, (size_t)n);
        module_item_place(item, item->db, text, (size_t)n);
    }
    size_t n;
    const char *name = rm.string_bytes(key, &n);
    if (module_type_put(ctx, key, item, true)) {
        module_the.n_recovered++;
        log_line(&module_the.log, LOG_LEVEL_NOTICE,
                 "key '%.*s' of database %d, which no RDB or AOF has, is there again: %s", (int)n, name, item->db,
                 item->name);
    }
    rm.free_string(ctx, key);
}

static void recover_one(void *context, struct module_item *item)
{
    struct rm_ctx *ctx = context;
    struct rm_string *key;
    if (item->state == MODULE_ABSENT) {
        module_the.n_absent++;
        log_line(&module_the.log, LOG_LEVEL_WARNING, "key '%.*s': the data of %s is not in %s", (int)item->key_bytes,
                 item->key ? item->key : "", item->name, module_the.service.config->dir);
        return;
    }
    rm.select_db(ctx, item->db);
    if (item->replayed_copies > item->copies)
        item->copies = item->replayed_copies;
    bool exists = module_item_exists(item);
    if (item->state == MODULE_LIVE && !exists)
        module_item_end(item);
    if (item->state == MODULE_ENDED && item->attached > 0) {
        key = key_of(ctx, item);
        module_type_remove(ctx, key, item);
        rm.free_string(ctx, key);
    }
    if (item->state != MODULE_LIVE)
        return;
    if (item->attached == 0 && (item->seen || !module_the.settings.recover_keys)) {
        module_item_go(item);
    } else if (item->attached == 0) {
        give_key(ctx, item);
    } else if (item->replayed_copies < item->copies) {
        key = key_of(ctx, item);
        replicate_manifest(ctx, key, item);
        rm.free_string(ctx, key);
    }
}

void module_type_recover(struct rm_ctx *ctx)
{
    assert(!module_the.loaded);
    module_the.loaded = true;
    module_copies_begin(ctx);
    if (!module_the.is_replica)
        module_items_each(recover_one, ctx);
    module_items_settle();
}
