/*
 * cmd_hash.c - hashes: HSET, HGET and their kin. Texts and replies are those of Redis 7.
 *
 * Replies that are as long as the hash are written under its shard's lock; HSCAN goes through a large one in steps.
 */
#include "server/call/key_call.h"
#include "server/keys/hash_value.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include "server/strings/scan_options.h"
#include <stdio.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool get_field(const struct key_call *call, struct resp_arg field, struct resp_arg *value)
{
    return call->entry && hash_get(call->entry->hash, field, value);
}

void cmd_hget(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct resp_arg value;
    (void)n;
    if (!key_read(&call, c, args[1], KEY_HASH))
        return;
    if (get_field(&call, args[2], &value))
        resp_bulk(caller_reply(c), value.data, value.bytes);
    else
        resp_null(caller_reply(c));
    key_end(&call);
}

void cmd_hmget(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct resp_arg value;
    if (!key_read(&call, c, args[1], KEY_HASH))
        return;
    struct resp_buffer *out = caller_reply(c);
    resp_array(out, n - 2);
    for (uint32_t i = 2; i < n; i++) {
        if (get_field(&call, args[i], &value))
            resp_bulk(out, value.data, value.bytes);
        else
            resp_null(out);
    }
    key_end(&call);
}

void cmd_hexists(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct resp_arg value;
    (void)n;
    if (!key_read(&call, c, args[1], KEY_HASH))
        return;
    resp_integer(caller_reply(c), get_field(&call, args[2], &value));
    key_end(&call);
}

void cmd_hlen(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!key_read(&call, c, args[1], KEY_HASH))
        return;
    resp_integer(caller_reply(c), call.entry ? (long long)hash_count(call.entry->hash) : 0);
    key_end(&call);
}

static void put_field(void *out, struct resp_arg field, struct resp_arg value)
{
    (void)value;
    resp_bulk(out, field.data, field.bytes);
}

static void put_value(void *out, struct resp_arg field, struct resp_arg value)
{
    (void)field;
    resp_bulk(out, value.data, value.bytes);
}

static void put_both(void *out, struct resp_arg field, struct resp_arg value)
{
    put_field(out, field, value);
    put_value(out, field, value);
}

static void reply_all(struct caller *c, struct resp_arg name, hash_visit *put)
{
    struct key_call call;
    if (!key_read(&call, c, name, KEY_HASH))
        return;
    struct resp_buffer *out = caller_reply(c);
    size_t count = call.entry ? hash_count(call.entry->hash) : 0;
    if (put == put_both)
        resp_map(out, count);
    else
        resp_array(out, count);
    if (call.entry)
        hash_each(call.entry->hash, put, out);
    key_end(&call);
}

void cmd_hgetall(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    reply_all(c, args[1], put_both);
}

void cmd_hkeys(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    reply_all(c, args[1], put_field);
}

void cmd_hvals(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    reply_all(c, args[1], put_value);
}

/* Fields that match, into a buffer of their own: the count stands before them. */
struct found_fields {
    const struct scan_options *options;
    struct resp_buffer out;
    size_t n;
};

static void find_field(void *context, struct resp_arg field, struct resp_arg value)
{
    struct found_fields *f = context;
    if (!scan_matches(f->options, field))
        return;
    put_both(&f->out, field, value);
    f->n += 2;
}

void cmd_hscan(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct scan_options o;
    struct found_fields f = {.options = &o};
    uint64_t cursor = 0;
    if (!scan_take_options(c, args + 2, n - 2, false, &o) || !key_read(&call, c, args[1], KEY_HASH))
        return;
    if (call.entry)
        cursor = hash_scan(call.entry->hash, o.cursor, o.count, find_field, &f);
    key_end(&call);
    scan_reply(c, cursor, &f.out, f.n);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void cmd_hset(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    uint32_t n_new;
    if (n % 2 == 1) {
        caller_error(c, "ERR wrong number of arguments for 'hset' command");
        return;
    }
    if (!key_write(&call, c, args[1], KEY_HASH))
        return;
    int rc = keyspace_hash_set(&call.lock, &call.key, call.entry, args + 2, (n - 2) / 2, &n_new, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), n_new);
    key_end(&call);
}

void cmd_hsetnx(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    struct resp_arg value;
    uint32_t n_new = 0;
    (void)n;
    if (!key_write(&call, c, args[1], KEY_HASH))
        return;
    int rc = 0;
    if (!get_field(&call, args[2], &value))
        rc = keyspace_hash_set(&call.lock, &call.key, call.entry, args + 2, 1, &n_new, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), n_new);
    key_end(&call);
}

void cmd_hdel(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    uint32_t n_gone = 0;
    if (!key_write(&call, c, args[1], KEY_HASH))
        return;
    int rc = call.entry ? keyspace_hash_delete(&call.lock, call.entry, args + 2, n - 2, &n_gone, &err) : 0;
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), n_gone);
    key_end(&call);
}

void cmd_hincrby(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    struct resp_arg value;
    long long more, sum = 0;
    uint32_t n_new;
    char text[24];
    (void)n;
    if (!arg_integer(args[3], &more)) {
        caller_error(c, "ERR value is not an integer or out of range");
        return;
    }
    if (!key_write(&call, c, args[1], KEY_HASH))
        return;
    const char *wrong = NULL;
    if (get_field(&call, args[2], &value) && !arg_integer(value, &sum))
        wrong = "ERR hash value is not an integer";
    else if (__builtin_add_overflow(sum, more, &sum))
        wrong = "ERR increment or decrement would overflow";
    if (wrong) {
        keyspace_unlock(&call.lock);
        caller_error(c, "%s", wrong);
        return;
    }
    uint32_t bytes = (uint32_t)snprintf(text, sizeof text, "%lld", sum);
    struct resp_arg pair[2] = {args[2], {(const uint8_t *)text, bytes}};
    int rc = keyspace_hash_set(&call.lock, &call.key, call.entry, pair, 1, &n_new, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), sum);
    key_end(&call);
}
