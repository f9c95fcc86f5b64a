/*
 * cmd_scan.c - SCAN, KEYS, RANDOMKEY: going through all keys, shard by shard.
 *
 * A key that exists from the call with cursor 0 to the one that answers 0 is returned at least once, whatever happens
 * to others meanwhile; one that comes or goes in between may be returned or not (node_table.c says why). KEYS locks one
 * shard after the other, so it is no picture of one moment either: a key that is renamed meanwhile may be missed.
 *
 * None of them keeps the lane for long: SCAN returns before it has COUNT keys when that has taken half a millisecond,
 * and KEYS of many keys goes on in later turns (call/slice.h).
 */
#include "io/clock.h"
#include "io/random.h"
#include "server/call/key_call.h"
#include "server/call/slice.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include "server/strings/scan_options.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    SCAN_COUNT = 10,
    VISIT_STEPS = 100, /* of a key or field that is looked at */
    KEYS_AT_ONCE = 1000
};

bool scan_take_options(struct caller *c, const struct resp_arg *args, uint32_t n, bool with_type,
                       struct scan_options *o)
{
    long long count;
    *o = (struct scan_options){.count = SCAN_COUNT};
    if (!arg_integer(args[0], &count) || count < 0) {
        caller_error(c, "ERR invalid cursor");
        return false;
    }
    o->cursor = (uint64_t)count;
    for (uint32_t i = 1; i < n; i += 2) {
        if (i + 1 < n && arg_is(args[i], "COUNT")) {
            if (!arg_integer(args[i + 1], &count)) {
                caller_error(c, "ERR value is not an integer or out of range");
                return false;
            }
            o->count = count > 0 ? (uint64_t)count : 0;
        } else if (i + 1 < n && arg_is(args[i], "MATCH")) {
            if (!scan_fits(c, args[i + 1]))
                return false;
            o->matches = true;
            glob_begin(&o->glob, args[i + 1], false);
        } else if (i + 1 < n && with_type && arg_is(args[i], "TYPE")) {
            o->type = args[i + 1];
        } else {
            o->count = 0;
        }
        if (o->count == 0) {
            caller_error(c, "ERR syntax error");
            return false; /* the glob holds nothing before it is used */
        }
    }
    o->count = o->count < UINT32_MAX ? o->count : UINT32_MAX;
    return true;
}

bool scan_fits(struct caller *c, struct resp_arg pattern)
{
    if (pattern.bytes <= GLOB_BYTES_MAX)
        return true;
    caller_error(c, "ERR a pattern has at most %d bytes, this one has %u", GLOB_BYTES_MAX, pattern.bytes);
    return false;
}

bool scan_matches(struct scan_options *o, struct resp_arg name)
{
    o->steps += VISIT_STEPS;
    if (!o->matches)
        return true;
    o->steps += glob_cost(&o->glob, name);
    return glob_test(&o->glob, name);
}

void scan_reply(struct caller *c, struct scan_options *o, uint64_t cursor, struct resp_buffer *items, size_t n)
{
    struct resp_buffer *out = caller_reply(c);
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)cursor);
    resp_array(out, 2);
    resp_text(out, text);
    resp_array(out, n);
    resp_take(out, items);
    glob_end(&o->glob);
}

/* Keys that match, into a buffer of their own: the count stands before them. */
struct found_keys {
    struct scan_options options;
    uint64_t now_ms, visited;
    struct resp_buffer out;
    size_t n;
};

static void find_key(void *context, const struct key_entry *entry)
{
    struct found_keys *f = context;
    struct resp_arg name = {entry->key, entry->node.key_bytes};
    f->visited++;
    if (keyspace_entry_is_over(entry, f->now_ms) || !scan_matches(&f->options, name) ||
        (f->options.type.data && !arg_is(f->options.type, keyspace_type_name(entry->type))))
        return;
    resp_bulk(&f->out, name.data, name.bytes);
    f->options.steps += name.bytes / 8;
    f->n++;
}

static uint64_t wall_ms(const struct keyspace *k)
{
    return k->clock_ms(k->clock_context);
}

void cmd_scan(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct keyspace *k = &c->lane->service->keyspace;
    struct found_keys f = {.now_ms = wall_ms(k), .out = resp_buffer_beside(caller_reply(c))};
    if (!scan_take_options(c, args + 1, n - 1, true, &f.options))
        return;
    uint64_t cursor = f.options.cursor;
    do {
        uint64_t left = f.options.count - f.visited;
        cursor = keyspace_scan(k, cursor, left < SCAN_AT_ONCE ? left : SCAN_AT_ONCE, find_key, &f);
        f.options.steps += VISIT_STEPS;
    } while (cursor && f.visited < f.options.count && f.options.steps < SCAN_STEPS_MAX && !f.out.failed);
    scan_reply(c, &f.options, cursor, &f.out, f.n);
}

/* ---- KEYS -------------------------------------------------------------------------------------------------------- */

/* Of many keys: some shards in each turn of the lane. */
struct keys_call {
    struct pending pending;
    struct slice slice;
    struct lane *lane;
    unsigned shard; /* the next one */
    struct found_keys found;
    uint8_t pattern[];
};

static void reply_keys(struct found_keys *f, struct resp_buffer *out)
{
    resp_array(out, f->n);
    resp_take(out, &f->out);
    glob_end(&f->options.glob);
}

static void go_on_with_keys(struct slice *slice)
{
    struct keys_call *call = (struct keys_call *)(void *)((char *)slice - offsetof(struct keys_call, slice));
    struct found_keys *f = &call->found;
    bool wanted = true;
    f->options.steps = 0;
    while (call->shard < KEYSPACE_SHARDS && wanted && f->options.steps < SCAN_STEPS_MAX / 2) {
        keyspace_each_of(&call->lane->service->keyspace, call->shard++, find_key, f);
        wanted = !f->out.failed && !call->pending.caller->gone;
    }
    if (call->shard < KEYSPACE_SHARDS && wanted) {
        slice_post(call->lane, slice);
        return;
    }
    reply_keys(f, &call->pending.out);
    caller_done(&call->pending);
}

void cmd_keys(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct keyspace *k = &c->lane->service->keyspace;
    (void)n;
    if (!scan_fits(c, args[1]))
        return;
    if (c->whole || keyspace_count(k) <= KEYS_AT_ONCE) {
        struct found_keys f = {.now_ms = wall_ms(k), .out = resp_buffer_beside(caller_reply(c))};
        f.options.matches = true;
        glob_begin(&f.options.glob, args[1], false);
        keyspace_each(k, find_key, &f);
        reply_keys(&f, caller_reply(c));
        return;
    }
    struct keys_call *call = caller_defer(c, sizeof *call + args[1].bytes, true);
    if (!call)
        return;
    if (args[1].bytes > 0)
        memcpy(call->pattern, args[1].data, args[1].bytes);
    call->lane = c->lane;
    call->slice.run = go_on_with_keys;
    call->slice.caller = c;
    call->found.now_ms = wall_ms(k);
    call->found.out = resp_buffer_beside(&call->pending.out);
    call->found.options.matches = true;
    glob_begin(&call->found.options.glob, (struct resp_arg){call->pattern, args[1].bytes}, false);
    go_on_with_keys(&call->slice);
}

void cmd_randomkey(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct keyspace_lock lock;
    (void)args;
    (void)n;
    const struct key_entry *entry = keyspace_random(&lock, &c->lane->service->keyspace, random_mix(clock_ns()));
    if (!entry) {
        resp_null(caller_reply(c));
        return;
    }
    resp_bulk(caller_reply(c), entry->key, entry->node.key_bytes);
    keyspace_unlock(&lock);
}
