/*
 * absent.c - names of Redis's commands that are not here, by what they are about.
 */
#include "server/commands/absent.h"
#include <string.h>

/* Words with a blank before and behind each. */
static const struct {
    const char *kind, *names;
} kinds[] = {
    {"lists",
     " BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH LINDEX LINSERT LLEN LMOVE LMPOP LPOP LPOS LPUSH LPUSHX LRANGE LREM "
     "LSET LTRIM RPOP RPOPLPUSH RPUSH RPUSHX "},
    {"sets", " SADD SCARD SDIFF SDIFFSTORE SINTER SINTERCARD SINTERSTORE SISMEMBER SMEMBERS SMISMEMBER SMOVE SPOP "
             "SRANDMEMBER SREM SSCAN SUNION SUNIONSTORE "},
    {"sorted sets",
     " BZMPOP BZPOPMAX BZPOPMIN ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE "
     "ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE "
     "ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX "
     "ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE "},
    {"streams", " XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE XSETID "
                "XTRIM "},
    {"pub/sub", " PSUBSCRIBE PUBLISH PUBSUB PUNSUBSCRIBE SPUBLISH SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE UNSUBSCRIBE "},
    {"scripts and functions", " EVALSHA_RO EVAL_RO FCALL FCALL_RO FUNCTION "},
    {"geographic indexes",
     " GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO GEORADIUS_RO "
     "GEOSEARCH GEOSEARCHSTORE "},
    {"HyperLogLogs", " PFADD PFCOUNT PFDEBUG PFMERGE PFSELFTEST "},
    {"replicas", " FAILOVER PSYNC REPLCONF REPLICAOF SLAVEOF SYNC WAITAOF "},
    {"several databases", " MOVE SWAPDB "},
    {"moves of keys by the server", " MIGRATE RESTORE-ASKING "},
    {"operations on several strings or on fields of bits", " BITFIELD BITFIELD_RO BITOP LCS "},
    {"sorting", " SORT SORT_RO "},
    {"expiries of fields",
     " HEXPIRE HEXPIREAT HEXPIRETIME HGETDEL HGETEX HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL "
     "HSETEX HTTL "},
};

const char *absent_kind(struct resp_arg command)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (const char *name = kinds[i].names + 1, *end; *name; name = end + 1) {
            char word[32] = "";
            end = strchr(name, ' ');
            memcpy(word, name, (size_t)(end - name));
            if (arg_is(command, word))
                return kinds[i].kind;
        }
    return NULL;
}
