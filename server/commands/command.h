/*
 * command.h - the command table: from the words of a request to a handler, and the table as data for COMMAND and INFO.
 */
#ifndef QUIRE_SERVER_COMMAND_H
#define QUIRE_SERVER_COMMAND_H

#include "server/net/client.h"

enum command_flags {
    CMD_READ = 1,
    CMD_WRITE = 2,
    CMD_FAST = 4,
    CMD_ADMIN = 8,
    CMD_NOAUTH = 16,      /* allowed before the password was given */
    CMD_DENYOOM = 32,     /* may make the keyspace grow: refused above maxmemory */
    CMD_DANGEROUS = 256,  /* of category @dangerous without being for administrators */
    CMD_READS_TOO = 512,  /* with CMD_WRITE: shows or copies what a key holds, so it needs the right to read it */
    CMD_READS_OLD = 1024, /* the same where the word GET stands among its options */
    CMD_REPLACES = 64,    /* puts a string in the place of whatever a key holds, a vector set, too */
    CMD_NO_MULTI = 2048,  /* refused between MULTI and EXEC: it takes long, or ends the server */
    CMD_TENANT = 4096, /* of vector sets: keeps to what the client's user may see, so one bound to tenants may run it */
};

/* args[0] is the command's name; a sub-command's name is args[1]. Gives exactly one reply: client_reply, client_error
 * or client_defer. Arguments are valid during the call only. */
typedef void command_fn(struct client *c, const struct resp_arg *args, uint32_t n);

struct command {
    const char *name;
    size_t name_bytes;
    command_fn *run; /* NULL: a container that needs a sub-command */
    int arity;
    unsigned flags;
    int first_key, last_key, key_step;
    const char *group, *since, *summary, *syntax;
};

extern const struct command commands[];
extern const unsigned n_commands;

/* Fills the look-up table of top-level commands (2 * COMMANDS_MAX entries). */
void command_index_fill(uint16_t *index);
/* Around a batch of requests. */
void command_begin_timing(struct lane *lane);
void command_end_timing(struct lane *lane);
/* Runs one request. */
void command_run(struct client *c, const struct resp_arg *args, uint32_t n);
/* Calls the handler of a request that was admitted; counts and times it. Nests: EXEC calls it for what waited. */
void command_call(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n);
/* Whether a command of these flags, which writes, is refused at present; after the error reply. */
bool command_refuses_write(struct client *c, unsigned flags);
/* Counts a deferred command: from its request to its reply. */
void command_ended(struct pending *p);
/* Whether a request waits for the end of CLIENT PAUSE. */
bool command_must_wait(const struct client *c, const struct resp_arg *args, uint32_t n);
/* Whether args[i] must not show in MONITOR and SLOWLOG. */
bool command_arg_is_secret(unsigned row, const struct resp_arg *args, uint32_t i);
/* The row of a name such as "ping" or "config|get" in any case, -1 where there is none. */
int command_find(const uint16_t *index, const void *name, size_t bytes);
/* Whether `command` is a sub-command of `container`. */
bool command_is_sub(const struct command *command, const struct command *container);

/* The structured arguments of COMMAND DOCS, from the row's syntax; nothing where there are none. */
bool command_has_arguments(const struct command *command);
void command_docs_arguments(struct resp_buffer *out, const struct command *command);

/* ---- access: command_access.c ------------------------------------------------------------------------------------ */

/* The name of a category without '@', NULL behind the last; the number of a name, -1 where there is none. */
const char *command_category_name(unsigned category);
int command_category_find(const void *name, size_t bytes);
bool command_in_category(const struct command *command, unsigned category);
/* Keys of a request of n arguments: args[first + i * step], i below keys.n. */
struct command_keys {
    uint32_t first, step, n;
};
struct command_keys command_keys(const struct command *command, uint32_t n);
/* What a request does with its keys: CMD_READ, CMD_WRITE, both or (no keys) nothing. */
unsigned command_key_access(const struct command *command, const struct resp_arg *args, uint32_t n);
bool command_arity_fits(const struct command *command, uint32_t n);
/* The row of a request's words, -1 where there is none. */
int command_find_request(const struct server *server, const struct resp_arg *args, uint32_t n);

/* ---- helpers of handlers ----------------------------------------------------------------------------------------- */

/* An argument as two of printf's, for "%.*s": at most `most` bytes of it. */
#define ARG_SHOWN(arg, most) (int)((arg).bytes < (most) ? (arg).bytes : (most)), (const char *)(arg).data
bool arg_is(struct resp_arg arg, const char *word);    /* without regard to case */
bool arg_integer(struct resp_arg arg, long long *out); /* as Redis: no '+', no blanks, no leading zeros */
bool arg_number(struct resp_arg arg, double *out);     /* finite or not: the caller decides */
/* A copy that ends in 0; NULL without memory or where the bytes hold a 0. Owned by the caller. */
char *arg_text(struct resp_arg arg);
/* Redis's glob: * ? [set] \ ; without regard to case. */
bool glob_matches(const char *pattern, size_t pattern_bytes, const char *text);
/* The same for any bytes; `fold`: without regard to case. */
bool glob_matches_bytes(struct resp_arg pattern, struct resp_arg text, bool fold);

command_fn cmd_acl_cat, cmd_acl_deluser, cmd_acl_dryrun, cmd_acl_genpass, cmd_acl_getuser, cmd_acl_list, cmd_acl_load,
    cmd_acl_log, cmd_acl_save, cmd_acl_setuser, cmd_acl_users, cmd_acl_whoami, cmd_command_getkeys,
    cmd_command_getkeysandflags;
command_fn cmd_append, cmd_auth, cmd_client_getname, cmd_client_id, cmd_client_setinfo, cmd_client_setname, cmd_command,
    cmd_command_count, cmd_command_docs, cmd_command_info, cmd_command_list, cmd_config_get, cmd_copy, cmd_dbsize,
    cmd_decr, cmd_decrby, cmd_del, cmd_echo, cmd_exists, cmd_expire, cmd_expireat, cmd_expiretime, cmd_flushall,
    cmd_flushdb, cmd_get, cmd_getdel, cmd_getset, cmd_hdel, cmd_hello, cmd_help, cmd_hexists, cmd_hget, cmd_hgetall,
    cmd_hincrby, cmd_hkeys, cmd_hlen, cmd_hmget, cmd_hscan, cmd_hset, cmd_hsetnx, cmd_hvals, cmd_incr, cmd_incrby,
    cmd_info, cmd_keys, cmd_mget, cmd_mset, cmd_object_encoding, cmd_object_freq, cmd_object_idletime,
    cmd_object_refcount, cmd_persist, cmd_pexpire, cmd_pexpireat, cmd_pexpiretime, cmd_ping, cmd_psetex, cmd_pttl,
    cmd_quit, cmd_randomkey, cmd_rename, cmd_renamenx, cmd_reset, cmd_scan, cmd_select, cmd_set, cmd_setex, cmd_setnx,
    cmd_shutdown, cmd_strlen, cmd_touch, cmd_ttl, cmd_type, cmd_vcard, cmd_vdim, cmd_vemb, cmd_vinfo, cmd_vismember,
    cmd_vlinks, cmd_vload, cmd_vrandmember, cmd_vsim, cmd_vadd, cmd_vcheck, cmd_vcompact, cmd_vcreate, cmd_vgetattr,
    cmd_vmsim, cmd_vrange, cmd_vrem, cmd_vseal, cmd_vsetattr, cmd_vcount, cmd_vdelwhere, cmd_vdroptenant, cmd_vgrant,
    cmd_vrevoke, cmd_vtenants;
command_fn cmd_bgsave, cmd_discard, cmd_exec, cmd_lastsave, cmd_multi, cmd_save, cmd_unwatch, cmd_watch;

/* semantic caches */
command_fn cmd_sc_audit_pop, cmd_sc_audit_put, cmd_sc_cat_del, cmd_sc_cat_get, cmd_sc_cat_list, cmd_sc_cat_set,
    cmd_sc_create, cmd_sc_del, cmd_sc_drop, cmd_sc_export, cmd_sc_fail, cmd_sc_feedback, cmd_sc_get, cmd_sc_hist,
    cmd_sc_import, cmd_sc_info, cmd_sc_invalidate, cmd_sc_list, cmd_sc_load, cmd_sc_neg, cmd_sc_pin, cmd_sc_put,
    cmd_sc_scan, cmd_sc_stats, cmd_sc_top, cmd_sc_touch, cmd_sc_tune, cmd_sc_unpin;

/* for operators */
command_fn cmd_client_getredir, cmd_client_info, cmd_client_kill, cmd_client_list, cmd_client_no_evict,
    cmd_client_no_touch, cmd_client_pause, cmd_client_reply, cmd_client_tracking, cmd_client_unpause,
    cmd_config_resetstat, cmd_config_rewrite, cmd_config_set, cmd_debug_object, cmd_debug_sleep, cmd_latency_doctor,
    cmd_latency_graph, cmd_latency_histogram, cmd_latency_history, cmd_latency_latest, cmd_latency_reset,
    cmd_memory_doctor, cmd_memory_malloc_stats, cmd_memory_purge, cmd_memory_stats, cmd_memory_usage, cmd_module_list,
    cmd_monitor, cmd_role, cmd_slowlog_get, cmd_slowlog_len, cmd_slowlog_reset, cmd_time;

/* The text of INFO's sections that match; in info.c. */
void info_write(struct server *server, const struct resp_arg *sections, uint32_t n, struct resp_buffer *text);

#endif
