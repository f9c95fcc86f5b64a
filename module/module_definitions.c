/*
 * module_definitions.c - definitions of indexes in the engine's RDB.
 *
 * They are in the store, which is the truth of a node. An RDB goes where the store does not: to a replica, to another
 * machine, and through DEBUG RELOAD. So it has them, too, with the name of the store that it was saved beside. Where that
 * is the store of this node, and the node starts, the store is believed, which may have dropped an index since; elsewhere
 * indexes that are not there are made.
 *
 *   before the keys   u64 1, name of the store, then u64 kind and words of each definition (documents.h), u64 0
 */
#include "io/error.h"
#include "module/module_priv.h"
#include "server/keys/keyspace.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { DEFINITIONS_ENCVER = 1, VERSION = 1, BEFORE_KEYS = 1, NAME_BYTES = 16 };

static char store_name[2 * NAME_BYTES + 1];

/* ---- the store's name -------------------------------------------------------------------------------------------- */

static int name_store(struct keyspace_lock *lock, const struct key *key, struct quire_error *err)
{
    uint8_t bytes[NAME_BYTES];
    struct key_entry *entry;
    int rc = keyspace_find_to_write(lock, key, &entry, err);
    if (rc < 0)
        return rc;
    if (entry && entry->type == KEY_STRING && entry->string->bytes == 2 * NAME_BYTES) {
        memcpy(store_name, entry->string->data, 2 * NAME_BYTES);
        return 0;
    }
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return error_set(err, QUIRE_EIO, "the kernel gives no random numbers for the name of a store");
    for (size_t i = 0; i < sizeof bytes; i++) {
        store_name[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        store_name[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    struct value *value = keyspace_value_create(store_name, 2 * NAME_BYTES, 2 * NAME_BYTES);
    return value ? keyspace_set_string(lock, key, entry, value, 0, err)
                 : error_set(err, QUIRE_ENOMEM, "no memory for the name of a store");
}

int module_definitions_open(struct quire_error *err)
{
    struct keyspace *keyspace = &module_the.service.keyspace;
    struct lane *lane = &module_the.lanes[0].lane;
    struct keyspace_lock lock;
    struct key key = keyspace_key(
        keyspace, (struct resp_arg){(const uint8_t *)MODULE_STORE_NAME, (uint32_t)strlen(MODULE_STORE_NAME)});
    lane_enter(lane);
    keyspace_lock_key(&lock, keyspace, &key);
    int rc = name_store(&lock, &key, err);
    keyspace_unlock(&lock);
    lane_leave(lane);
    return rc;
}

/* ---- in an RDB --------------------------------------------------------------------------------------------------- */

static void save_one(void *context, enum document_log_kind kind, const void *words, uint32_t n)
{
    struct rm_io *io = context;
    rm.save_unsigned(io, kind);
    rm.save_bytes(io, words, n);
}

/* In a child, too: it has the thread that alone changes definitions. */
static void aux_save(struct rm_io *io, int when)
{
    (void)when;
    rm.save_unsigned(io, VERSION);
    rm.save_bytes(io, store_name, strlen(store_name));
    if (module_the.open)
        documents_each_definition(module_the.service.documents, save_one, io);
    rm.save_unsigned(io, 0);
}

static bool is_own(struct rm_io *io)
{
    size_t n = 0;
    char *name = rm.load_bytes(io, &n);
    bool own = !rm.is_io_error(io) && name && n == strlen(store_name) && memcmp(name, store_name, n) == 0;
    if (name)
        rm.free_bytes(name);
    return own;
}

/* One definition; *skips: it is of an index that is there, as are the changes of it that follow. */
static void take(uint64_t kind, const char *words, size_t n, bool *skips)
{
    struct quire_error err = {0};
    uint64_t lsn;
    if (kind != DOCUMENT_LOG_ALTER)
        *skips = false;
    if (*skips)
        return;
    int rc = documents_define(module_the.service.documents, (enum document_log_kind)kind, words, (uint32_t)n, &lsn, &err);
    *skips = rc == QUIRE_EEXISTS;
    if (rc < 0 && !*skips)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "an index of the RDB could not be made: %s", err.message);
}

static int aux_load(struct rm_io *io, int encver, int when)
{
    (void)when;
    uint64_t version = encver == DEFINITIONS_ENCVER ? rm.load_unsigned(io) : 0;
    if (version != VERSION || rm.is_io_error(io)) {
        log_line(&module_the.log, LOG_LEVEL_WARNING, "indexes were saved by another version of the module");
        return RM_ERR;
    }
    bool skips = false, takes = !is_own(io) || module_documents_begun();
    for (;;) {
        size_t n = 0;
        uint64_t kind = rm.is_io_error(io) ? 0 : rm.load_unsigned(io);
        if (kind == 0 || rm.is_io_error(io))
            return rm.is_io_error(io) ? RM_ERR : RM_OK;
        char *words = rm.load_bytes(io, &n);
        if (rm.is_io_error(io) || !words)
            return RM_ERR;
        if (takes)
            take(kind, words, n, &skips);
        rm.free_bytes(words);
    }
}

int module_definitions_create(struct rm_ctx *ctx)
{
    static const struct rm_type_methods methods = {.version = RM_TYPE_METHODS_VERSION,
                                                   .aux_load = aux_load,
                                                   .aux_save = aux_save,
                                                   .aux_save_triggers = BEFORE_KEYS};
    return rm.create_data_type(ctx, "quire-idx", DEFINITIONS_ENCVER, &methods) ? RM_OK : RM_ERR;
}
