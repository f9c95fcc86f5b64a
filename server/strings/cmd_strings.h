/* cmd_strings.h - commands of keys, strings and hashes: the handlers of this room, for the table (commands.def). */
#ifndef QUIRE_SERVER_CMD_STRINGS_H
#define QUIRE_SERVER_CMD_STRINGS_H

#include "server/call/caller.h"

command_fn cmd_append, cmd_bitcount, cmd_bitpos, cmd_copy, cmd_dbsize, cmd_decr, cmd_decrby, cmd_del, cmd_eval,
    cmd_evalsha, cmd_exists, cmd_expire, cmd_expireat, cmd_expiretime, cmd_flushall, cmd_flushdb, cmd_get, cmd_getbit,
    cmd_getdel, cmd_getex, cmd_getrange, cmd_getset, cmd_hdel, cmd_hexists, cmd_hget, cmd_hgetall, cmd_hincrby,
    cmd_hincrbyfloat, cmd_hkeys, cmd_hlen, cmd_hmget, cmd_hrandfield, cmd_hscan, cmd_hset, cmd_hsetnx, cmd_hstrlen,
    cmd_hvals, cmd_incr, cmd_incrby, cmd_incrbyfloat, cmd_keys, cmd_mget, cmd_mset, cmd_msetnx, cmd_object_encoding,
    cmd_object_freq, cmd_object_idletime, cmd_object_refcount, cmd_persist, cmd_pexpire, cmd_pexpireat, cmd_pexpiretime,
    cmd_psetex, cmd_pttl, cmd_randomkey, cmd_rename, cmd_renamenx, cmd_scan, cmd_script_exists, cmd_script_flush,
    cmd_script_load, cmd_set, cmd_setbit, cmd_setex, cmd_setnx, cmd_setrange, cmd_strlen, cmd_touch, cmd_ttl, cmd_type;

#endif
