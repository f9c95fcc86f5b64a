/*
 * cmd_hash.c - hashes: HSET, HGET and their kin. Texts and replies are those of Redis 7.
 *
 * Replies that are as long as the hash are written under its shard's lock, those of a large one in slices between which
 * the lane does other work (call/slice.h); HSCAN goes through a large one in steps. Values that only indexes have are
 * brought first (call/key_values.h).
 */
#include "io/clock.h"
#include "io/random.h"
#include "server/call/key_call.h"
#include "server/call/key_values.h"
#include "server/call/slice.h"
#include "server/keys/hash_value.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include "server/strings/scan_options.h"
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a large hash, written in one turn of the lane: bytes of the reply, or fields as if of so many bytes. */
enum { SLICE_BYTES = 256 << 10, FIELD_BYTES = 128 };

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
    if (!key_read(&call, c, args[1], KEY_HASH) || !key_values_ready(&call, args + 2, 1))
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
    if (!key_read(&call, c, args[1], KEY_HASH) || !key_values_ready(&call, args + 2, n - 2))
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
    assert(value.data || value.bytes == 0);
    resp_bulk(out, value.data, value.bytes);
}

static void put_both(void *out, struct resp_arg field, struct resp_arg value)
{
    put_field(out, field, value);
    put_value(out, field, value);
}

/* HGETALL, HKEYS or HVALS of a large hash: some of it in each turn of the lane, all of it as of one moment. So it
 * begins again when the hash was changed meanwhile, each time with longer slices: it comes to its end however fast that
 * happens. */
struct all_call {
    struct pending pending;
    struct slice slice;
    struct values_wait wait; /* for values that only indexes have; the lane holds them meanwhile */
    struct lane *lane;
    hash_visit *put;
    uint64_t version, cursor, slice_bytes, n;
    struct resp_buffer items;
    uint32_t key_bytes;
    uint8_t key[];
};

static void reply_count(struct resp_buffer *out, hash_visit *put, size_t count)
{
    if (put == put_both)
        resp_map(out, count);
    else
        resp_array(out, count);
}

static void count_and_put(void *context, struct resp_arg field, struct resp_arg value)
{
    struct all_call *call = context;
    call->n++;
    call->put(&call->items, field, value);
}

enum progress { MORE, WAITS, WHOLE };

/* WHOLE, too, where nobody wants the reply, or a value cannot be read (wait.code). */
static enum progress put_more(struct all_call *call)
{
    struct key_call key;
    if (!key_peek(&key, call->pending.caller, (struct resp_arg){call->key, call->key_bytes}) ||
        key.entry->type != KEY_HASH) {
        /* it is gone: as it is now */
        if (key.entry)
            key_end(&key);
        call->items.bytes = 0;
        call->n = 0;
        return WHOLE;
    }
    if (call->put != put_field && !key_values_bring(&call->wait, &key.lock, key.entry, NULL, 0)) {
        key_end(&key);
        return call->wait.n > 0 ? WAITS : call->wait.code < 0 ? WHOLE : MORE;
    }
    if (key.entry->version != call->version) {
        call->version = key.entry->version;
        call->slice_bytes *= 2;
        call->cursor = call->n = 0;
        call->items.bytes = 0;
    }
    size_t end = call->items.bytes + call->slice_bytes;
    uint64_t fields_end = call->n + call->slice_bytes / FIELD_BYTES;
    do
        call->cursor = hash_scan(key.entry->hash, call->cursor, SCAN_AT_ONCE, count_and_put, call);
    while (call->cursor && call->items.bytes < end && call->n < fields_end && !call->items.failed);
    key_end(&key);
    return call->cursor == 0 || call->items.failed || call->pending.caller->gone ? WHOLE : MORE;
}

static void end_all(struct all_call *call)
{
    key_values_release(call->lane);
    if (call->wait.code < 0) {
        resp_error(&call->pending.out, "ERR a vector could not be read: %s", call->wait.error.message);
        resp_buffer_fini(&call->items);
    } else {
        reply_count(&call->pending.out, call->put, call->n);
        resp_take(&call->pending.out, &call->items);
    }
    caller_done(&call->pending);
}

static void go_on_with_all(struct slice *slice)
{
    struct all_call *call = (struct all_call *)(void *)((char *)slice - offsetof(struct all_call, slice));
    enum progress progress = put_more(call);
    if (progress == MORE)
        slice_post(call->lane, slice);
    else if (progress == WHOLE)
        end_all(call);
}

static void on_values(struct values_wait *wait)
{
    struct all_call *call = (struct all_call *)(void *)((char *)wait - offsetof(struct all_call, wait));
    slice_post(call->lane, &call->slice);
}

static void reply_in_slices(struct caller *c, struct resp_arg name, hash_visit *put, uint64_t version)
{
    struct all_call *call = caller_defer(c, sizeof *call + name.bytes, true);
    if (!call)
        return;
    call->lane = c->lane;
    call->slice.run = go_on_with_all;
    call->slice.caller = c;
    call->wait = (struct values_wait){.lane = c->lane, .come = on_values};
    key_values_hold(c->lane);
    call->put = put;
    call->version = version;
    call->slice_bytes = SLICE_BYTES;
    call->items = resp_buffer_beside(&call->pending.out);
    call->key_bytes = name.bytes;
    if (name.bytes > 0)
        memcpy(call->key, name.data, name.bytes);
    go_on_with_all(&call->slice);
}

static void reply_all(struct caller *c, struct resp_arg name, hash_visit *put)
{
    struct key_call call;
    if (!key_read(&call, c, name, KEY_HASH) || (put != put_field && !key_values_ready(&call, NULL, 0)))
        return;
    if (call.entry && !c->whole && hash_is_large(call.entry->hash) &&
        hash_memory_bytes(call.entry->hash) > SLICE_BYTES) {
        uint64_t version = call.entry->version;
        key_end(&call);
        reply_in_slices(c, name, put, version);
        return;
    }
    struct resp_buffer *out = caller_reply(c);
    reply_count(out, put, call.entry ? hash_count(call.entry->hash) : 0);
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
    struct pairs p = {.items = NULL};
    size_t bytes = hash_count(hash) * sizeof *p.items;
    if (!resp_account_take(out->account, bytes))
        return false;
    p.items = malloc(bytes);
    if (!p.items) {
        resp_account_add(out->account, -(int64_t)bytes);
        return false;
    }
    hash_each(hash, add_pair, &p);
    begin_random(out, n, values);
    for (size_t i = 0; i < n && !out->failed; i++) {
        size_t k = i + random_mix(clock_ns() + i) % (p.n - i);
        struct resp_arg chosen[2] = {p.items[k][0], p.items[k][1]};
        p.items[k][0] = p.items[i][0];
        p.items[k][1] = p.items[i][1];
        put_random(out, chosen, values);
    }
    free(p.items);
    if (out->account)
        resp_account_add(out->account, -(int64_t)bytes);
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
    if (!key_read(&call, c, args[1], KEY_HASH) || (values && !key_values_ready(&call, NULL, 0)))
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

enum { LATER_STEPS = 65536 }; /* of a match for which no lock is held */

/* Fields that match, into a buffer of their own: the count stands before them. */
struct found_fields {
    struct scan_options *options;
    struct resp_buffer out;
    struct resp_buffer later; /* their lengths, field and value of each that is matched when the hash is unlocked */
    size_t n, visited;
};

static void put_found(struct found_fields *f, struct resp_arg field, struct resp_arg value)
{
    put_both(&f->out, field, value);
    f->options->steps += ((uint64_t)field.bytes + value.bytes) / 8;
    f->n += 2;
}

/* With the shard of the key locked. */
static void find_field(void *context, struct resp_arg field, struct resp_arg value)
{
    struct found_fields *f = context;
    uint64_t cost = f->options->matches ? glob_cost(&f->options->glob, field) : 0;
    f->visited++;
    if (cost > LATER_STEPS) {
        const uint32_t lengths[2] = {field.bytes, value.bytes};
        resp_raw(&f->later, lengths, sizeof lengths);
        resp_raw(&f->later, field.data, field.bytes);
        resp_raw(&f->later, value.data, value.bytes);
        f->options->steps += cost;
    } else if (scan_matches(f->options, field)) {
        put_found(f, field, value);
    }
}

static void match_later(struct found_fields *f)
{
    for (size_t at = 0; at < f->later.bytes && !f->out.failed;) {
        uint32_t lengths[2];
        memcpy(lengths, f->later.data + at, sizeof lengths);
        at += sizeof lengths;
        struct resp_arg field = {f->later.data + at, lengths[0]}, value = {field.data + field.bytes, lengths[1]};
        at += (size_t)field.bytes + value.bytes;
        if (glob_test(&f->options->glob, field))
            put_found(f, field, value);
    }
    if (f->later.failed)
        f->out.failed = true; /* the client is closed */
    resp_buffer_fini(&f->later);
}

void cmd_hscan(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct scan_options o;
    struct found_fields f = {
        .options = &o, .out = resp_buffer_beside(caller_reply(c)), .later = resp_buffer_beside(caller_reply(c))};
    uint64_t cursor;
    if (!scan_take_options(c, args + 2, n - 2, false, &o) || !key_read(&call, c, args[1], KEY_HASH) ||
        !key_values_ready(&call, NULL, 0))
        return;
    cursor = call.entry ? o.cursor : 0;
    if (call.entry)
        do {
            uint64_t left = o.count - f.visited;
            cursor = hash_scan(call.entry->hash, cursor, left < SCAN_AT_ONCE ? left : SCAN_AT_ONCE, find_field, &f);
            o.steps += SCAN_AT_ONCE;
        } while (cursor && f.visited < o.count && o.steps < SCAN_STEPS_MAX && !f.out.failed && !f.later.failed);
    key_end(&call);
    match_later(&f);
    scan_reply(c, &o, cursor, &f.out, f.n);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* HSET, and HMSET, which says OK. */
void cmd_hset(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    uint32_t n_new;
    if (n % 2 == 1) {
        caller_error(c, "ERR wrong number of arguments for '%s' command", c->command);
        return;
    }
    if (!key_write(&call, c, args[1], KEY_HASH) || !key_values_ready_to_change(&call))
        return;
    int rc = keyspace_hash_set(&call.lock, &call.key, call.entry, args + 2, (n - 2) / 2, &n_new, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    if (strcmp(c->command, "hmset") == 0)
        resp_simple(caller_reply(c), "OK");
    else
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
    if (!key_write(&call, c, args[1], KEY_HASH) || !key_values_ready_to_change(&call))
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
    if (!key_write(&call, c, args[1], KEY_HASH) || !key_values_ready_to_change(&call))
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
    if (!key_write(&call, c, args[1], KEY_HASH) || !key_values_ready_to_change(&call))
        return;
    const char *wrong = NULL;
    /* a value that is missing is longer than any number */
    if (get_field(&call, args[2], &value) && (!value.data || !arg_integer(value, &sum)))
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
