/*
 * module_definitions.c - definitions of indexes in the engine's RDB.
 *
 * They are in the store, which is the truth of a node. An RDB goes where the store does not: to a replica, to another
 * machine, and through DEBUG RELOAD. So it has them, too, with the name of the store that it was saved beside. While
 * the node runs, indexes of an RDB that it is to load are made. When it starts they are, unless the RDB is of its own
 * store, or of one whose definitions it has taken before: then the store may have dropped an index since, and is
 * believed.
 *
 *   before the keys   u64 1, name of the store, then u64 kind and words of each definition (documents.h), u64 0
 */
#include "io/bytes.h"
#include "io/error.h"
#include "module/module_priv.h"
#include "server/keys/keyspace.h"
#include "server/process/log.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { DEFINITIONS_ENCVER = 1, VERSION = 1, BEFORE_KEYS = 1, NAME_BYTES = 16, NAME_TEXT = 2 * NAME_BYTES };

/* The names of the store, and of that whose definitions it took last (zeros: none), as the store has them. */
static char names[2 * NAME_TEXT];

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int read_names(struct keyspace_lock *lock, const struct key *key, struct quire_error *err)
{
    uint8_t bytes[NAME_BYTES];
    const struct key_entry *entry = keyspace_find(lock, key);
    if (entry && entry->type == KEY_STRING && entry->string->bytes == sizeof names) {
        memcpy(names, entry->string->data, sizeof names);
        return 0;
    }
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return error_set(err, QUIRE_EIO, "the kernel gives no random numbers for the name of a store");
    bytes_to_hex(bytes, NAME_BYTES, names);
    memset(names + NAME_TEXT, '0', NAME_TEXT);
    return 1;
}

static int write_names(struct keyspace_lock *lock, const struct key *key, struct quire_error *err)
{
    struct key_entry *entry;
    int rc = keyspace_find_to_write(lock, key, &entry, err);
    struct value *value = keyspace_value_create(names, sizeof names, sizeof names);
    if (rc == 0 && value)
        return keyspace_set_string(lock, key, entry, value, 0, err);
    keyspace_value_unref(value);
    return rc < 0 ? rc : error_set(err, QUIRE_ENOMEM, "no memory for the name of a store");
}

/* Reads the names, and makes one where there is none; or writes them. */
static int keep_names(bool reads, struct quire_error *err)
{
    struct keyspace *keyspace = &module_the.service.keyspace;
    struct lane *lane = &module_the.lanes[0].lane;
    struct keyspace_lock lock;
    struct key key = keyspace_key(
        keyspace, (struct resp_arg){(const uint8_t *)MODULE_STORE_NAME, (uint32_t)strlen(MODULE_STORE_NAME)});
    lane_enter(lane);
    keyspace_lock_key(&lock, keyspace, &key);
    int rc = reads ? read_names(&lock, &key, err) : 1;
    if (rc > 0)
        rc = write_names(&lock, &key, err);
    keyspace_unlock(&lock);
    lane_leave(lane);
    return rc;
}

int module_definitions_open(struct quire_error *err)
{
    return keep_names(true, err);
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
    rm.save_bytes(io, names, NAME_TEXT);
    if (module_the.open)
        documents_each_definition(module_the.service.documents, save_one, io);
    rm.save_unsigned(io, 0);
}

/* The name of the RDB's store. Whether its definitions are to be taken; that is remembered. */
static bool takes_from(struct rm_io *io)
{
    struct quire_error err = {0};
    size_t n = 0;
    char *name = rm.load_bytes(io, &n);
    bool right = !rm.is_io_error(io) && name && n == NAME_TEXT;
    bool own = right && memcmp(name, names, n) == 0, taken = right && memcmp(name, names + NAME_TEXT, n) == 0;
    if (right && !own && !taken) {
        memcpy(names + NAME_TEXT, name, n);
        if (keep_names(false, &err) < 0)
            log_line(&module_the.log, LOG_LEVEL_WARNING, "the name of an RDB's store could not be logged: %s",
                     err.message);
    }
    if (name)
        rm.free_bytes(name);
    return right && ((!own && !taken) || module_documents_begun());
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
    int rc =
        documents_define(module_the.service.documents, (enum document_log_kind)kind, words, (uint32_t)n, &lsn, &err);
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
    bool skips = false, takes = takes_from(io);
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
