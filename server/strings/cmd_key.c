/*
 * cmd_key.c - DEL, EXISTS, TYPE, RENAME, COPY, TOUCH, FLUSHALL, DBSIZE, OBJECT: commands of keys of any type.
 *
 * Texts and replies are those of Redis 7. Where something takes long (freeing a large hash or all keys) the worker does
 * it, after DEL as after UNLINK, and after FLUSHALL SYNC as after ASYNC: a lane never waits for it.
 */
#include "index/collection/collection.h"
#include "server/call/key_call.h"
#include "server/call/key_values.h"
#include "server/dump/cmd_dumps.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include <string.h>

void cmd_dbsize(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    resp_integer(caller_reply(c), (long long)keyspace_count(&c->lane->service->keyspace));
}

void cmd_type(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!key_read(&call, c, args[1], KEY_ANY))
        return;
    resp_simple(caller_reply(c), call.entry ? keyspace_type_name(call.entry->type) : "none");
    key_end(&call);
}

static void count_existing(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct keyspace_lock lock;
    long long found = 0;
    keyspace_lock_args(&lock, &c->lane->service->keyspace, args + 1, n - 1, 1);
    for (uint32_t i = 1; i < n; i++) {
        struct key key = keyspace_key(lock.keyspace, args[i]);
        struct key_entry *entry = keyspace_find(&lock, &key);
        key_count_look_up(c, entry);
        if (entry)
            keyspace_used(&lock, entry);
        found += entry != NULL;
    }
    keyspace_unlock(&lock);
    resp_integer(caller_reply(c), found);
}

void cmd_exists(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    count_existing(c, args, n);
}

void cmd_touch(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    count_existing(c, args, n);
}

void cmd_del(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct keyspace_lock lock;
    struct quire_error err;
    uint32_t n_gone;
    keyspace_lock_args(&lock, &c->lane->service->keyspace, args + 1, n - 1, 1);
    int rc = keyspace_delete(&lock, args + 1, n - 1, &n_gone, &err);
    if (key_failed(c, &lock, rc, &err))
        return;
    keyspace_unlock(&lock);
    resp_integer(caller_reply(c), n_gone);
    key_wrote(c, &lock);
}

/* ---- from one key to another ------------------------------------------------------------------------------------- */

/* Two keys, held, both looked up. False after an error reply. */
struct key_pair {
    struct keyspace_lock lock;
    struct key to_key;
    struct key_entry *from, *to;
};

static bool hold_pair(struct key_pair *pair, struct caller *c, const struct resp_arg *keys)
{
    struct quire_error err;
    if (!key_fits(c, keys[1]))
        return false;
    keyspace_lock_args(&pair->lock, &c->lane->service->keyspace, keys, 2, 1);
    struct key from = keyspace_key(pair->lock.keyspace, keys[0]);
    pair->to_key = keyspace_key(pair->lock.keyspace, keys[1]);
    int rc = keyspace_find_to_write(&pair->lock, &from, &pair->from, &err);
    if (rc == 0)
        rc = keyspace_find_to_write(&pair->lock, &pair->to_key, &pair->to, &err);
    return !key_failed(c, &pair->lock, rc, &err);
}

static void rename_key(struct caller *c, const struct resp_arg *args, bool only_new)
{
    struct key_pair pair;
    struct quire_error err;
    if (!hold_pair(&pair, c, args + 1))
        return;
    if (!pair.from) {
        keyspace_unlock(&pair.lock);
        caller_error(c, "ERR no such key");
        return;
    }
    bool renames = pair.from != pair.to && !(only_new && pair.to);
    if (renames && !key_values_ready_in(c, &pair.lock, pair.from, NULL, 0))
        return;
    int rc = renames ? keyspace_rename(&pair.lock, pair.from, &pair.to_key, &err) : 0;
    if (key_failed(c, &pair.lock, rc, &err))
        return;
    keyspace_unlock(&pair.lock);
    if (only_new)
        resp_integer(caller_reply(c), renames);
    else
        resp_simple(caller_reply(c), "OK");
    key_wrote(c, &pair.lock);
}

void cmd_rename(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    rename_key(c, args, false);
}

void cmd_renamenx(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    rename_key(c, args, true);
}

/* COPY source destination [DB destination-db] [REPLACE] */
static bool copy_options(struct caller *c, const struct resp_arg *args, uint32_t n, bool *replace)
{
    *replace = false;
    for (uint32_t i = 3; i < n; i++) {
        long long db;
        if (arg_is(args[i], "REPLACE")) {
            *replace = true;
        } else if (arg_is(args[i], "DB") && i + 1 < n) {
            if (!arg_integer(args[++i], &db)) {
                caller_error(c, "ERR value is not an integer or out of range");
                return false;
            }
            if (db != 0) {
                caller_error(c, "ERR DB index is out of range");
                return false;
            }
        } else {
            caller_error(c, "ERR syntax error");
            return false;
        }
    }
    return true;
}

/* The reference to the set is taken over. */
static void copy_set(struct caller *c, struct resp_arg name, struct collection *set,
                     const struct transfer_target *target)
{
    if (collection_available(set, NULL) == 0) {
        cmd_copy_set(c, set, target);
        return;
    }
    key_is_unavailable(caller_reply(c), name, set);
    collection_unref(set);
}

void cmd_copy(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_pair pair;
    struct quire_error err;
    bool replace;
    if (!copy_options(c, args, n, &replace))
        return;
    if (args[1].bytes == args[2].bytes && memcmp(args[1].data, args[2].data, args[1].bytes) == 0) {
        caller_error(c, "ERR source and destination objects are the same");
        return;
    }
    if (!hold_pair(&pair, c, args + 1))
        return;
    bool copies = pair.from && (replace || !pair.to);
    if (copies && pair.from->type == KEY_VECTOR_SET) {
        const struct transfer_target target = {.key = args[2], .replace = replace, .expire_ms = pair.from->expire_ms};
        struct collection *set = collection_ref(pair.from->set);
        keyspace_unlock(&pair.lock);
        copy_set(c, args[1], set, &target);
        return;
    }
    if (copies && !key_values_ready_in(c, &pair.lock, pair.from, NULL, 0))
        return;
    int rc = copies ? keyspace_copy(&pair.lock, pair.from, &pair.to_key, &err) : 0;
    if (key_failed(c, &pair.lock, rc, &err))
        return;
    keyspace_unlock(&pair.lock);
    resp_integer(caller_reply(c), copies);
    key_wrote(c, &pair.lock);
}

/* ---- all keys ---------------------------------------------------------------------------------------------------- */

void cmd_flushall(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct keyspace_lock lock;
    struct quire_error err;
    if (n > 2 || (n == 2 && !arg_is(args[1], "ASYNC") && !arg_is(args[1], "SYNC"))) {
        caller_error(c, "ERR syntax error");
        return;
    }
    keyspace_lock_all(&lock, &c->lane->service->keyspace);
    int rc = keyspace_clear(&lock, &err);
    if (key_failed(c, &lock, rc, &err))
        return;
    keyspace_unlock(&lock);
    resp_simple(caller_reply(c), "OK");
    key_wrote(c, &lock);
}

void cmd_flushdb(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    cmd_flushall(c, args, n);
}

/* ---- OBJECT ------------------------------------------------------------------------------------------------------ */

/* An access by OBJECT is none, so that IDLETIME can be watched. False after the reply that there is no such key. */
static bool find_object(struct key_call *call, struct caller *c, struct resp_arg key)
{
    if (key_peek(call, c, key))
        return true;
    resp_null(caller_reply(c));
    return false;
}

void cmd_object_encoding(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!find_object(&call, c, args[2]))
        return;
    resp_text(caller_reply(c), key_encoding(call.entry));
    key_end(&call);
}

void cmd_object_refcount(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!find_object(&call, c, args[2]))
        return;
    resp_integer(caller_reply(c), 1);
    key_end(&call);
}

void cmd_object_idletime(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!find_object(&call, c, args[2]))
        return;
    unsigned now_s = atomic_load_explicit(&call.lock.keyspace->second, memory_order_relaxed);
    resp_integer(caller_reply(c), now_s - call.entry->used_s);
    key_end(&call);
}

void cmd_object_freq(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!find_object(&call, c, args[2]))
        return;
    key_end(&call);
    caller_error(c, "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when "
                    "switching between policies at runtime LRU and LFU data will take some time to adjust.");
}
