/*
 * key_call.c - from the key of a command to its entry, with the errors that every command of keys has.
 */
#include "server/call/key_call.h"
#include "index/collection/collection.h"
#include "io/error.h"

enum { SLICE_WRITES = 4 }; /* of one client in a turn of its lane */

static void reply_wrong_type(struct caller *c)
{
    caller_error(c, "WRONGTYPE Operation against a key holding the wrong kind of value");
}

void key_count_look_up(struct caller *c, bool found)
{
    struct lane_stats *stats = &c->lane->stats;
    lane_stat_add(found ? &stats->keyspace_hits : &stats->keyspace_misses, 1);
}

bool key_fits(struct caller *c, struct resp_arg key)
{
    if (key.bytes <= QUIRE_KEY_BYTES_MAX)
        return true;
    caller_error(c, "ERR a key has at most %u bytes, this one has %u", QUIRE_KEY_BYTES_MAX, key.bytes);
    return false;
}

bool key_failed(struct caller *c, struct keyspace_lock *lock, int rc, const struct quire_error *err)
{
    if (rc == 0)
        return false;
    keyspace_unlock(lock);
    if (rc == QUIRE_ENOMEM)
        caller_error(c, "OOM %s", err->message);
    else if (rc == QUIRE_ELIMIT || rc == QUIRE_EUNSUPPORTED)
        caller_error(c, "ERR %s", err->message);
    else
        caller_error(c, "MISCONF Errors writing to the log: %s", err->message);
    return true;
}

bool key_is_unavailable(struct resp_buffer *out, struct resp_arg key, const struct collection *set)
{
    struct quire_error why = {0};
    if (collection_available(set, &why) == 0)
        return false;
    resp_error(out, "DAMAGED vector set '%.*s' is unavailable: %s; DEL removes it", ARG_SHOWN(key, 64u), why.message);
    return true;
}

/* And is available, where that matters: what only asks for a key, or removes it, says KEY_ANY. */
static bool has_type(struct key_call *call, int type)
{
    const struct key_entry *entry = call->entry;
    const struct resp_arg name = {call->key.data, call->key.bytes};
    if (!entry || type == KEY_ANY)
        return true;
    if (entry->type != type)
        reply_wrong_type(call->caller);
    else if (type != KEY_VECTOR_SET || collection_available(entry->set, NULL) == 0)
        return true;
    else
        key_is_unavailable(caller_reply(call->caller), name, entry->set);
    keyspace_unlock(&call->lock);
    return false;
}

static void begin(struct key_call *call, struct caller *c, struct resp_arg key, bool writes)
{
    struct keyspace *keyspace = &c->lane->service->keyspace;
    call->caller = c;
    call->writes = writes;
    call->key = keyspace_key(keyspace, key);
    keyspace_lock_key(&call->lock, keyspace, &call->key);
}

bool key_read(struct key_call *call, struct caller *c, struct resp_arg key, int type)
{
    begin(call, c, key, false);
    call->entry = keyspace_find(&call->lock, &call->key);
    key_count_look_up(c, call->entry);
    if (call->entry)
        keyspace_used(&call->lock, call->entry);
    return has_type(call, type);
}

bool key_peek(struct key_call *call, struct caller *c, struct resp_arg key)
{
    begin(call, c, key, false);
    call->entry = keyspace_find(&call->lock, &call->key);
    if (!call->entry)
        keyspace_unlock(&call->lock);
    return call->entry != NULL;
}

bool key_write(struct key_call *call, struct caller *c, struct resp_arg key, int type)
{
    struct quire_error err;
    if (!key_fits(c, key))
        return false;
    begin(call, c, key, true);
    int rc = keyspace_find_to_write(&call->lock, &call->key, &call->entry, &err);
    return !key_failed(c, &call->lock, rc, &err) && has_type(call, type);
}

void key_end(struct key_call *call)
{
    keyspace_unlock(&call->lock);
    if (call->writes)
        key_wrote(call->caller, &call->lock);
}

void key_wrote(struct caller *c, const struct keyspace_lock *lock)
{
    caller_wait_lsn(c, lock->lsn);
    if (lock->joined && lock->lsn)
        key_stand_back(c);
}

void key_stand_back(struct caller *c)
{
    struct lane *lane = c->lane;
    const struct store *store = lane->service->store;
    if (c->slice_turn != lane->turn) {
        c->slice_turn = lane->turn;
        c->slice = 0;
    }
    if (++c->slice < SLICE_WRITES)
        return;
    uint32_t us = store ? store_delay_us(store) : 0;
    if (us > 0)
        caller_slow(c, us);
    else
        caller_rest(c);
}

enum { EMBSTR_BYTES_MAX = 44 };

/* The names Redis has for what is stored much the same here. */
const char *key_encoding(const struct key_entry *entry)
{
    long long number;
    switch ((enum key_type)entry->type) {
    case KEY_STRING:
        if (arg_integer((struct resp_arg){entry->string->data, entry->string->bytes}, &number))
            return "int";
        return entry->string->bytes <= EMBSTR_BYTES_MAX ? "embstr" : "raw";
    case KEY_HASH:
        return hash_is_large(entry->hash) ? "hashtable" : "listpack";
    case KEY_VECTOR_SET:
    case KEY_JSON:
        break;
    }
    return "raw"; /* as of any type of a module */
}
