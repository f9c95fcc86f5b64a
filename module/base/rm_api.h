/*
 * rm_api.h - what the module uses of the engine (Redis 7.0 and newer, Valkey): functions, structures and numbers of its
 * binary interface, written down from that interface.
 *
 * A module is handed one function, GetApi, as the first word of the context of its loading; every other one is looked
 * up by name at run time. So one file serves every engine that has the names, and says which name is missing where one
 * has not. Structures that are passed by address carry a version or their size; the engine reads no more of them.
 */
#ifndef QUIRE_MODULE_RM_API_H
#define QUIRE_MODULE_RM_API_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The engine's, opaque. */
struct rm_ctx;
struct rm_string;
struct rm_key;
struct rm_io;
struct rm_type;
struct rm_blocked;
struct rm_command;
struct rm_reply;
struct rm_info;
struct rm_server_info;
struct rm_user;
struct rm_key_opt;
struct rm_cursor;

enum { RM_OK = 0, RM_ERR = 1, RM_API_VERSION = 1, RM_TYPE_METHODS_VERSION = 4 };
enum { RM_READ = 1, RM_WRITE = 2, RM_NO_TOUCH = 1 << 16 };     /* open_key */
enum { RM_KEY_EMPTY = 0, RM_KEY_HASH = 3, RM_KEY_MODULE = 6 }; /* key_type, of those that matter here */
enum { RM_REPLY_STRING = 0, RM_REPLY_ERROR = 1 };              /* call_reply_type, the same */
enum { RM_CONFIG_DEFAULT = 0, RM_CONFIG_IMMUTABLE = 1 };       /* register_string_config */
enum { RM_POLL_READABLE = 1 };                                 /* event_loop_add */
enum { RM_NO_EXPIRE = -1 };                                    /* get_expire */
enum { RM_HASH_PLAIN = 0 };                                    /* hash_get */

/* Classes of events of keys. */
enum {
    RM_NOTIFY_GENERIC = 1 << 2,
    RM_NOTIFY_STRING = 1 << 3,
    RM_NOTIFY_LIST = 1 << 4,
    RM_NOTIFY_SET = 1 << 5,
    RM_NOTIFY_HASH = 1 << 6,
    RM_NOTIFY_ZSET = 1 << 7,
    RM_NOTIFY_EXPIRED = 1 << 8,
    RM_NOTIFY_EVICTED = 1 << 9,
    RM_NOTIFY_STREAM = 1 << 10,
    RM_NOTIFY_LOADED = 1 << 12,
    RM_NOTIFY_MODULE = 1 << 13
};

/* get_context_flags */
enum {
    RM_FLAG_LUA = 1 << 0,
    RM_FLAG_MULTI = 1 << 1,
    RM_FLAG_SLAVE = 1 << 3,
    RM_FLAG_CLUSTER = 1 << 5,
    RM_FLAG_AOF = 1 << 6,
    RM_FLAG_RDB = 1 << 7,
    RM_FLAG_REPLICATED = 1 << 12,
    RM_FLAG_LOADING = 1 << 13,
    RM_FLAG_IS_CHILD = 1 << 20,
    RM_FLAG_DENY_BLOCKING = 1 << 21,
    RM_FLAG_RESP3 = 1 << 22
};

/* Events of the server, and what happened. */
enum {
    RM_EVENT_ROLE = 0,
    RM_EVENT_PERSISTENCE = 1,
    RM_EVENT_FLUSH = 2,
    RM_EVENT_LOADING = 3,
    RM_EVENT_SHUTDOWN = 5,
    RM_EVENT_REPLICA = 6,
    RM_EVENT_SWAP = 11,
    RM_EVENT_FORK = 13,
    RM_EVENT_LOOP = 15,
    RM_EVENT_CONFIG = 16
};
enum { RM_ROLE_REPLICA = 1 };
enum { RM_LOADING_FROM_PRIMARY = 2 }; /* of the four others, two begin a loading and two end one */
enum { RM_SYNC_RDB_START = 2, RM_PERSISTENCE_ENDED = 3, RM_PERSISTENCE_FAILED = 4 };
enum { RM_FLUSH_START = 0 };
enum { RM_REPLICA_ONLINE = 0, RM_REPLICA_OFFLINE = 1 };
enum { RM_FORK_BORN = 0, RM_FORK_DIED = 1 };
enum { RM_LOOP_BEFORE_SLEEP = 0 };
struct rm_event {
    uint64_t id, version;
};
struct rm_flush {
    uint64_t version;
    int32_t sync, db; /* db -1: all */
};
struct rm_swap {
    uint64_t version;
    int32_t first, second;
};

typedef int rm_command_fn(struct rm_ctx *ctx, struct rm_string **argv, int argc);
typedef void rm_event_fn(struct rm_ctx *ctx, struct rm_event event, uint64_t what, void *data);
typedef int rm_notify_fn(struct rm_ctx *ctx, int type, const char *event, struct rm_string *key);
typedef void rm_scan_fn(struct rm_ctx *ctx, struct rm_string *name, struct rm_key *key, void *data);
typedef void rm_scan_key_fn(struct rm_key *key, struct rm_string *field, struct rm_string *value, void *data);
typedef void rm_timer_fn(struct rm_ctx *ctx, void *data);
typedef void rm_poll_fn(int fd, void *data, int mask);
typedef void rm_info_fn(struct rm_info *info, int for_crash_report);
typedef struct rm_string *rm_config_get_fn(const char *name, void *data);
typedef int rm_config_set_fn(const char *name, struct rm_string *value, void *data, struct rm_string **error);
typedef int rm_config_apply_fn(struct rm_ctx *ctx, void *data, struct rm_string **error);
typedef void rm_disconnect_fn(struct rm_ctx *ctx, struct rm_blocked *blocked);

/* A type of values, version 4. NULL: not offered. */
struct rm_type_methods {
    uint64_t version;
    void *(*rdb_load)(struct rm_io *io, int encver);
    void (*rdb_save)(struct rm_io *io, void *value);
    void (*aof_rewrite)(struct rm_io *io, struct rm_string *key, void *value);
    size_t (*mem_usage)(const void *value);
    void (*digest)(void *digest, void *value);
    void (*free)(void *value);
    int (*aux_load)(struct rm_io *io, int encver, int when);
    void (*aux_save)(struct rm_io *io, int when);
    int aux_save_triggers;
    size_t (*free_effort)(struct rm_string *key, const void *value);
    void (*unlink)(struct rm_string *key, const void *value);
    void *(*copy)(struct rm_string *from, struct rm_string *to, const void *value);
    int (*defrag)(void *ctx, struct rm_string *key, void **value);
    size_t (*mem_usage2)(struct rm_key_opt *ctx, const void *value, size_t sample);
    size_t (*free_effort2)(struct rm_key_opt *ctx, const void *value);
    void (*unlink2)(struct rm_key_opt *ctx, const void *value);
    void *(*copy2)(struct rm_key_opt *ctx, const void *value);
};

/* What COMMAND DOCS and key specifications say, version 1. */
struct rm_command_history {
    const char *since, *changes;
};
enum { RM_SEARCH_INDEX = 2, RM_FIND_RANGE = 2 };
enum {
    RM_SPEC_RO = 1 << 0,
    RM_SPEC_RW = 1 << 1,
    RM_SPEC_ACCESS = 1 << 4,
    RM_SPEC_UPDATE = 1 << 5,
    RM_SPEC_INSERT = 1 << 6,
    RM_SPEC_DELETE = 1 << 7
};
struct rm_key_spec {
    const char *notes;
    uint64_t flags;
    int begin_search;
    union {
        struct {
            int pos;
        } index;
        struct {
            const char *keyword;
            int start;
        } keyword;
    } bs;
    int find_keys;
    union {
        struct {
            int last, step, limit;
        } range;
        struct {
            int at, first, step;
        } number;
    } fk;
};
struct rm_command_arg {
    const char *name;
    int type, key_spec;
    const char *token, *summary, *since;
    int flags;
    const char *deprecated_since;
    struct rm_command_arg *parts;
    const char *display;
};
struct rm_command_info_version {
    int version;
    size_t history_bytes, key_spec_bytes, arg_bytes;
};
struct rm_command_info {
    const struct rm_command_info_version *version;
    const char *summary, *complexity, *since;
    struct rm_command_history *history;
    const char *tips;
    int arity;
    struct rm_key_spec *key_specs; /* one with flags 0 ends it */
    struct rm_command_arg *args;
};

/* result, member, name, arguments */
#define RM_FUNCTIONS(X)                                                                                                \
    X(void, set_module_attribs, SetModuleAttribs, (struct rm_ctx *, const char *name, int version, int api))           \
    X(int, create_command, CreateCommand,                                                                              \
      (struct rm_ctx *, const char *name, rm_command_fn *run, const char *flags, int first, int last, int step))       \
    X(struct rm_command *, get_command, GetCommand, (struct rm_ctx *, const char *name))                               \
    X(int, create_subcommand, CreateSubcommand,                                                                        \
      (struct rm_command *, const char *name, rm_command_fn *run, const char *flags, int first, int last, int step))   \
    X(int, set_command_info, SetCommandInfo, (struct rm_command *, const struct rm_command_info *))                    \
    X(int, wrong_arity, WrongArity, (struct rm_ctx *))                                                                 \
    X(void, set_module_options, SetModuleOptions, (struct rm_ctx *, int options))                                      \
    X(int, get_context_flags, GetContextFlags, (struct rm_ctx *))                                                      \
    X(int, get_selected_db, GetSelectedDb, (struct rm_ctx *))                                                          \
    X(int, select_db, SelectDb, (struct rm_ctx *, int db))                                                             \
    X(unsigned long long, get_client_id, GetClientId, (struct rm_ctx *))                                               \
    X(struct rm_string *, get_current_user_name, GetCurrentUserName, (struct rm_ctx *))                                \
    X(struct rm_user *, get_module_user, GetModuleUserFromUserName, (struct rm_string *))                              \
    X(void, free_module_user, FreeModuleUser, (struct rm_user *))                                                      \
    X(int, acl_check_key, ACLCheckKeyPermissions, (struct rm_user *, struct rm_string * key, int flags))               \
    X(void, log, Log, (struct rm_ctx *, const char *level, const char *format, ...))                                   \
    X(struct rm_string *, create_string, CreateString, (struct rm_ctx *, const char *bytes, size_t n))                 \
    X(void, retain_string, RetainString, (struct rm_ctx *, struct rm_string *))                                        \
    X(void, free_string, FreeString, (struct rm_ctx *, struct rm_string *))                                            \
    X(const char *, string_bytes, StringPtrLen, (const struct rm_string *, size_t *n))                                 \
    X(struct rm_key *, open_key, OpenKey, (struct rm_ctx *, struct rm_string * name, int mode))                        \
    X(void, close_key, CloseKey, (struct rm_key *))                                                                    \
    X(int, key_type, KeyType, (struct rm_key *))                                                                       \
    X(long long, get_expire, GetExpire, (struct rm_key *))                                                             \
    X(int, hash_get, HashGet, (struct rm_key *, int flags, ...))                                                       \
    X(struct rm_cursor *, create_cursor, ScanCursorCreate, (void))                                                     \
    X(void, destroy_cursor, ScanCursorDestroy, (struct rm_cursor *))                                                   \
    X(int, scan, Scan, (struct rm_ctx *, struct rm_cursor *, rm_scan_fn *, void *data))                                \
    X(int, scan_key, ScanKey, (struct rm_key *, struct rm_cursor *, rm_scan_key_fn *, void *data))                     \
    X(unsigned long long, db_size, DbSize, (struct rm_ctx *))                                                          \
    X(int, delete_key, DeleteKey, (struct rm_key *))                                                                   \
    X(int, signal_modified_key, SignalModifiedKey, (struct rm_ctx *, struct rm_string * name))                         \
    X(int, notify_keyspace_event, NotifyKeyspaceEvent,                                                                 \
      (struct rm_ctx *, int type, const char *event, struct rm_string *key))                                           \
    X(int, subscribe_to_keyspace_events, SubscribeToKeyspaceEvents, (struct rm_ctx *, int types, rm_notify_fn *))      \
    X(int, subscribe_to_server_event, SubscribeToServerEvent, (struct rm_ctx *, struct rm_event, rm_event_fn *))       \
    X(struct rm_type *, create_data_type, CreateDataType,                                                              \
      (struct rm_ctx *, const char *name, int encver, const struct rm_type_methods *))                                 \
    X(int, set_value, ModuleTypeSetValue, (struct rm_key *, struct rm_type *, void *value))                            \
    X(struct rm_type *, get_type, ModuleTypeGetType, (struct rm_key *))                                                \
    X(void *, get_value, ModuleTypeGetValue, (struct rm_key *))                                                        \
    X(void, save_unsigned, SaveUnsigned, (struct rm_io *, uint64_t))                                                   \
    X(uint64_t, load_unsigned, LoadUnsigned, (struct rm_io *))                                                         \
    X(void, save_bytes, SaveStringBuffer, (struct rm_io *, const char *bytes, size_t n))                               \
    X(char *, load_bytes, LoadStringBuffer, (struct rm_io *, size_t * n))                                              \
    X(int, is_io_error, IsIOError, (struct rm_io *))                                                                   \
    X(void, emit_aof, EmitAOF, (struct rm_io *, const char *command, const char *format, ...))                         \
    X(struct rm_ctx *, io_context, GetContextFromIO, (struct rm_io *))                                                 \
    X(const struct rm_string *, io_key_name, GetKeyNameFromIO, (struct rm_io *))                                       \
    X(int, io_db, GetDbIdFromIO, (struct rm_io *))                                                                     \
    X(const struct rm_string *, opt_to_key_name, GetToKeyNameFromOptCtx, (struct rm_key_opt *))                        \
    X(int, opt_to_db, GetToDbIdFromOptCtx, (struct rm_key_opt *))                                                      \
    X(void, free_bytes, Free, (void *))                                                                                \
    X(int, replicate, Replicate, (struct rm_ctx *, const char *command, const char *format, ...))                      \
    X(int, replicate_verbatim, ReplicateVerbatim, (struct rm_ctx *))                                                   \
    X(int, avoid_replica_traffic, AvoidReplicaTraffic, (void))                                                         \
    X(struct rm_reply *, call, Call, (struct rm_ctx *, const char *command, const char *format, ...))                  \
    X(void, free_reply, FreeCallReply, (struct rm_reply *))                                                            \
    X(int, reply_type, CallReplyType, (struct rm_reply *))                                                             \
    X(const char *, reply_bytes, CallReplyStringPtr, (struct rm_reply *, size_t * n))                                  \
    X(size_t, reply_length, CallReplyLength, (struct rm_reply *))                                                      \
    X(struct rm_reply *, reply_element, CallReplyArrayElement, (struct rm_reply *, size_t at))                         \
    X(struct rm_blocked *, block_client, BlockClient,                                                                  \
      (struct rm_ctx *, rm_command_fn * reply, rm_command_fn * timeout, void (*release)(struct rm_ctx *, void *data),  \
       long long timeout_ms))                                                                                          \
    X(int, unblock_client, UnblockClient, (struct rm_blocked *, void *data))                                           \
    X(void *, get_blocked_data, GetBlockedClientPrivateData, (struct rm_ctx *))                                        \
    X(void, set_disconnect_callback, SetDisconnectCallback, (struct rm_blocked *, rm_disconnect_fn *))                 \
    X(int, measure_begin, BlockedClientMeasureTimeStart, (struct rm_blocked *))                                        \
    X(int, measure_end, BlockedClientMeasureTimeEnd, (struct rm_blocked *))                                            \
    X(struct rm_ctx *, get_thread_safe_context, GetThreadSafeContext, (struct rm_blocked *))                           \
    X(struct rm_ctx *, get_detached_context, GetDetachedThreadSafeContext, (struct rm_ctx *))                          \
    X(void, free_thread_safe_context, FreeThreadSafeContext, (struct rm_ctx *))                                        \
    X(uint64_t, create_timer, CreateTimer, (struct rm_ctx *, long long ms, rm_timer_fn *, void *data))                 \
    X(int, event_loop_add, EventLoopAdd, (int fd, int mask, rm_poll_fn *, void *data))                                 \
    X(int, event_loop_del, EventLoopDel, (int fd, int mask))                                                           \
    X(int, register_string_config, RegisterStringConfig,                                                               \
      (struct rm_ctx *, const char *name, const char *value, unsigned flags, rm_config_get_fn *, rm_config_set_fn *,   \
       rm_config_apply_fn *, void *data))                                                                              \
    X(int, load_configs, LoadConfigs, (struct rm_ctx *))                                                               \
    X(int, register_info, RegisterInfoFunc, (struct rm_ctx *, rm_info_fn *))                                           \
    X(int, info_section, InfoAddSection, (struct rm_info *, const char *name))                                         \
    X(int, info_text, InfoAddFieldCString, (struct rm_info *, const char *name, const char *value))                    \
    X(int, info_number, InfoAddFieldULongLong, (struct rm_info *, const char *name, unsigned long long value))         \
    X(struct rm_server_info *, get_server_info, GetServerInfo, (struct rm_ctx *, const char *section))                 \
    X(void, free_server_info, FreeServerInfo, (struct rm_ctx *, struct rm_server_info *))                              \
    X(const char *, server_info_text, ServerInfoGetFieldC, (struct rm_server_info *, const char *field))               \
    X(unsigned long long, server_info_number, ServerInfoGetFieldUnsigned,                                              \
      (struct rm_server_info *, const char *field, int *error))                                                        \
    X(int, reply_integer, ReplyWithLongLong, (struct rm_ctx *, long long))                                             \
    X(int, reply_error, ReplyWithError, (struct rm_ctx *, const char *))                                               \
    X(int, reply_simple, ReplyWithSimpleString, (struct rm_ctx *, const char *))                                       \
    X(int, reply_bulk, ReplyWithStringBuffer, (struct rm_ctx *, const char *bytes, size_t n))                          \
    X(int, reply_array, ReplyWithArray, (struct rm_ctx *, long n))                                                     \
    X(int, reply_map, ReplyWithMap, (struct rm_ctx *, long n))                                                         \
    X(int, reply_set, ReplyWithSet, (struct rm_ctx *, long n))                                                         \
    X(int, reply_null, ReplyWithNull, (struct rm_ctx *))                                                               \
    X(int, reply_null_array, ReplyWithNullArray, (struct rm_ctx *))                                                    \
    X(int, reply_double, ReplyWithDouble, (struct rm_ctx *, double))                                                   \
    X(int, reply_bool, ReplyWithBool, (struct rm_ctx *, int))                                                          \
    X(int, reply_verbatim, ReplyWithVerbatimString, (struct rm_ctx *, const char *text, size_t n))

/* Those that only newer engines have; NULL elsewhere. */
#define RM_FUNCTIONS_LATER(X)                                                                                          \
    X(int, add_acl_category, AddACLCategory, (struct rm_ctx *, const char *name))                                      \
    X(int, set_command_acl, SetCommandACLCategories, (struct rm_command *, const char *names))

#define RM_MEMBER(result, member, name, arguments) result(*member) arguments;
struct rm_api {
    RM_FUNCTIONS(RM_MEMBER)
    RM_FUNCTIONS_LATER(RM_MEMBER)
};
#undef RM_MEMBER

/* Written once, by rm_api_init. */
extern struct rm_api rm;

/* Looks all of them up. NULL, or the name of one that this engine has not. */
const char *rm_api_init(struct rm_ctx *ctx);

#endif
