/*
 * cmd_scan.c - SCAN, KEYS, RANDOMKEY: going through all keys, shard by shard.
 *
 * A key that exists from the call with cursor 0 to the one that answers 0 is returned at least once, whatever happens
 * to others meanwhile; one that comes or goes in between may be returned or not (node_table.c says why). KEYS locks one
 * shard after the other, so it is no picture of one moment either: a key that is renamed meanwhile may be missed.
 */
#include "io/clock.h"
#include "io/random.h"
#include "server/call/key_call.h"
#include "server/keys/keyspace.h"
#include "server/protocol/glob.h"
#include "server/strings/cmd_strings.h"
#include "server/strings/scan_options.h"
#include <stdio.h>

enum { SCAN_COUNT = 10 };

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
            o->pattern = args[i + 1];
        } else if (i + 1 < n && with_type && arg_is(args[i], "TYPE")) {
            o->type = args[i + 1];
        } else {
            o->count = 0;
        }
        if (o->count == 0) {
            caller_error(c, "ERR syntax error");
            return false;
        }
    }
    o->count = o->count < UINT32_MAX ? o->count : UINT32_MAX;
    return true;
}

bool scan_matches(const struct scan_options *o, struct resp_arg name)
{
    return !o->pattern.data || glob_matches_bytes(o->pattern, name, false);
}

void scan_reply(struct caller *c, uint64_t cursor, struct resp_buffer *items, size_t n)
{
    struct resp_buffer *out = caller_reply(c);
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)cursor);
    resp_array(out, 2);
    resp_text(out, text);
    resp_array(out, n);
    resp_take(out, items);
}

/* Keys that match, into a buffer of their own: the count stands before them. */
struct found_keys {
    struct scan_options options;
    uint64_t now_ms;
    struct resp_buffer out;
    size_t n;
};

static void find_key(void *context, const struct key_entry *entry)
{
    struct found_keys *f = context;
    struct resp_arg name = {entry->key, entry->node.key_bytes};
    if (keyspace_entry_is_over(entry, f->now_ms) || !scan_matches(&f->options, name) ||
        (f->options.type.data && !arg_is(f->options.type, keyspace_type_name(entry->type))))
        return;
    resp_bulk(&f->out, name.data, name.bytes);
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
    uint64_t cursor = keyspace_scan(k, f.options.cursor, f.options.count, find_key, &f);
    scan_reply(c, cursor, &f.out, f.n);
}

void cmd_keys(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct keyspace *k = &c->lane->service->keyspace;
    struct found_keys f = {
        .options = {.pattern = args[1]}, .now_ms = wall_ms(k), .out = resp_buffer_beside(caller_reply(c))};
    (void)n;
    keyspace_each(k, find_key, &f);
    struct resp_buffer *out = caller_reply(c);
    resp_array(out, f.n);
    resp_take(out, &f.out);
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
