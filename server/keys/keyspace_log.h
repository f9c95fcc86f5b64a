/*
 * keyspace_log.h - keys in the journal: the records of changes, and how they become keys again.
 *
 * A record of the log or of a checkpoint, numbers little-endian, a key as u16 bytes and the bytes:
 *
 *   KEY_LOG_SET          u64 expiry in unix ms (0: none), key, value
 *   KEY_LOG_APPEND       key, bytes
 *   KEY_LOG_HASH_SET     key, { u32 bytes of field, u32 bytes of value, field, value } ...
 *   KEY_LOG_HASH_DELETE  key, { u32 bytes of field, field } ...
 *   KEY_LOG_DELETE       key
 *   KEY_LOG_EXPIRE       u64 unix ms (0: never again), key
 *   KEY_LOG_FLUSH        nothing
 *   KEY_LOG_VECTORS      u64 uid of the collection, key: binds it
 *   KEY_LOG_WRITE        u64 offset, key, bytes: of a string
 *   KEY_LOG_JSON         u64 expiry in unix ms (0: none), key, text of a JSON document; not written any more
 *   KEY_LOG_HASH_AWAY    key, { u32 bytes of field, u32 bytes of value, field } ...: values that a collection has
 *   KEY_LOG_JSON_PACKED  u64 expiry in unix ms (0: none), key, packed document (document/json/tree_priv.h)
 *
 * A checkpoint holds SET, JSON_PACKED, HASH_SET (a large hash in several, which add up), HASH_AWAY, EXPIRE behind
 * them, and VECTORS. Frames of the log hold all but HASH_AWAY.
 */
#ifndef QUIRE_SERVER_KEYSPACE_LOG_H
#define QUIRE_SERVER_KEYSPACE_LOG_H

#include "index/store/store.h"
#include "server/keys/keyspace.h"

enum key_log_kind {
    KEY_LOG_SET = HOST_KINDS,
    KEY_LOG_APPEND,
    KEY_LOG_HASH_SET,
    KEY_LOG_HASH_DELETE,
    KEY_LOG_DELETE,
    KEY_LOG_EXPIRE,
    KEY_LOG_FLUSH,
    KEY_LOG_VECTORS,
    KEY_LOG_WRITE,
    KEY_LOG_JSON,
    KEY_LOG_HASH_AWAY,
    KEY_LOG_JSON_PACKED
};

/* Records being collected for one frame. With a keyspace that has no journal every call does nothing. Memory that ran
 * out shows at commit. */
struct key_log {
    struct journal *journal;
    uint8_t *bytes;
    struct key_log_record *records;
    size_t n_bytes, capacity;
    unsigned n_records, records_capacity;
    bool failed;
    uint8_t first_bytes[512];
    struct key_log_record {
        uint8_t kind;
        size_t at;
    } first_records[4];
};

void keyspace_log_begin(struct key_log *log, const struct keyspace *keyspace);
/* Of a string or a JSON document. */
void keyspace_log_bytes(struct key_log *log, enum key_type type, struct resp_arg key, struct resp_arg value,
                        uint64_t expire_ms);
void keyspace_log_append(struct key_log *log, struct resp_arg key, struct resp_arg bytes);
void keyspace_log_write(struct key_log *log, struct resp_arg key, uint32_t offset, struct resp_arg bytes);
void keyspace_log_hash_set(struct key_log *log, struct resp_arg key, const struct resp_arg *pairs, uint32_t n_pairs);
void keyspace_log_hash_delete(struct key_log *log, struct resp_arg key, const struct resp_arg *fields, uint32_t n);
void keyspace_log_delete(struct key_log *log, struct resp_arg key);
void keyspace_log_expire(struct key_log *log, struct resp_arg key, uint64_t expire_ms);
void keyspace_log_flush(struct key_log *log);
void keyspace_log_vectors(struct key_log *log, struct resp_arg key, uint64_t uid);
/* The whole of an entry, as of another key; no value is missing. With `in_place`, for a checkpoint: as of its own key,
 * and values that are away stay so. */
void keyspace_log_entry(struct key_log *log, struct resp_arg key, const struct key_entry *entry, bool in_place);
/* Appends what was collected as one frame and frees it. *lsn gets its number; as it was where nothing was collected. */
int keyspace_log_commit(struct key_log *log, uint64_t *lsn, struct quire_error *err);
/* Frees it without. */
void keyspace_log_abort(struct key_log *log);

/* What a folder holds becomes keys: a struct store_host's functions, with the keyspace as context. Its journal is NULL
 * meanwhile, and nobody else uses it. Errors: QUIRE_ECORRUPT for a record that is none, QUIRE_ENOMEM. Records of other
 * kinds are the caller's. */
int keyspace_restore(void *keyspace, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                     struct quire_error *err);
int keyspace_replay(void *keyspace, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                    struct quire_error *err);
/* All keys, into a checkpoint. On a maintenance thread, while lanes go on. */
int keyspace_save(void *keyspace, struct checkpoint *checkpoint, struct quire_error *err);

#endif
