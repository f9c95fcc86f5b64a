/*
 * cmd_hash.c - hashes: HSET, HGET and their kin. Texts and replies are those of Redis 7.
 *
 * Replies that are as long as the hash are written under its shard's lock; HSCAN goes through a large one in steps.
 */
#include "io/clock.h"
#include "io/random.h"
#include "server/call/key_call.h"
#include "server/keys/hash_value.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include "server/strings/scan_options.h"
#include <stdio.h>
#include <stdlib.h>

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
    for (uint32_t i = 2; i < n && !out->failed; i++) {
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

void cmd_hstrlen(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct resp_arg value;
    (void)n;
    if (!key_read(&call, c, args[1], KEY_HASH))
        return;
    resp_integer(caller_reply(c), get_field(&call, args[2], &value) ? value.bytes : 0);
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

/* ---- at random --------------------------------------------------------------------------------------------------- */

enum { RANDOM_MAX = 100000 }; /* of one reply: some milliseconds */

struct pairs {
    struct resp_arg (*items)[2]; /* field, value */
    size_t n;
};

static void add_pair(void *context, struct resp_arg field, struct resp_arg value)
{
    struct pairs *p = context;
    p->items[p->n][0] = field;
    p->items[p->n++][1] = value;
}

static void put_random(struct resp_buffer *out, const struct resp_arg pair[2], bool values)
{
    if (values && out->protocol == 3)
        resp_array(out, 2);
    resp_bulk(out, pair[0].data, pair[0].bytes);
    if (values)
        resp_bulk(out, pair[1].data, pair[1].bytes);
}

static void begin_random(struct resp_buffer *out, size_t n, bool values)
{
    resp_array(out, values && out->protocol == 2 ? 2 * n : n);
}

/* n different ones: the first n of all, shuffled. False without memory. */
static bool put_different(struct resp_buffer *out, const struct hash *hash, size_t n, bool values)
{
    struct pairs p = {.items = malloc(hash_count(hash) * sizeof *p.items)};
    if (!p.items)
        return false;
    hash_each(hash, add_pair, &p);
    begin_random(out, n, values);
    for (size_t i = 0; i < n; i++) {
        size_t k = i + random_mix(clock_ns() + i) % (p.n - i);
        struct resp_arg chosen[2] = {p.items[k][0], p.items[k][1]};
        p.items[k][0] = p.items[i][0];
        p.items[k][1] = p.items[i][1];
        put_random(out, chosen, values);
    }
    free(p.items);
    return true;
}

static void put_repeated(struct resp_buffer *out, const struct hash *hash, size_t n, bool values)
{
    struct resp_arg pair[2];
    begin_random(out, n, values);
    for (size_t i = 0; i < n && !out->failed; i++) {
        uint64_t random = random_mix(clock_ns() + i);
        hash_random(hash, random, random >> 32, &pair[0], &pair[1]);
        put_random(out, pair, values);
    }
}

/* HRANDFIELD key [count [WITHVALUES]] */
void cmd_hrandfield(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    long long count = 1;
    bool values = n == 4 && arg_is(args[3], "WITHVALUES");
    if (n > 4 || (n == 4 && !values)) {
        caller_error(c, "ERR syntax error");
        return;
    }
    if (n > 2 && (!arg_integer(args[2], &count) || count < -RANDOM_MAX)) {
        caller_error(c, "ERR count is not an integer, or below -%d", RANDOM_MAX);
        return;
    }
    if (!key_read(&call, c, args[1], KEY_HASH))
        return;
    struct resp_buffer *out = caller_reply(c);
    const struct hash *hash = call.entry ? call.entry->hash : NULL;
    struct resp_arg pair[2];
    size_t most = hash ? hash_count(hash) : 0;
    if (n == 2 && hash) {
        uint64_t random = random_mix(clock_ns());
        hash_random(hash, random, random >> 32, &pair[0], &pair[1]);
        put_random(out, pair, false);
    } else if (n == 2) {
        resp_null(out);
    } else if (!hash || count == 0) {
        resp_array(out, 0);
    } else if (count < 0) {
        put_repeated(out, hash, (size_t)-count, values);
    } else if (!put_different(out, hash, (size_t)count < most ? (size_t)count : most, values)) {
        resp_error(out, "OOM no memory to choose among %zu fields", most);
    }
    key_end(&call);
}

/* ---- in steps ---------------------------------------------------------------------------------------------------- */

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
    struct found_fields f = {.options = &o, .out = resp_buffer_beside(caller_reply(c))};
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
