/*
 * cmd_string.c - GET, SET and their kin, and numbers in strings.
 *
 * A value is made before its shard is locked, and a large one is sent after: under the lock GET copies what is short,
 * and takes a reference to what is long. A reply is written before the lock goes, so that what it says was true.
 *
 * Numbers are kept as text, as clients see them: INCR of one that is there costs a value of 21 bytes.
 */
#include "server/call/key_call.h"
#include "server/call/slice.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include "server/strings/expiry.h"
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COPY_BYTES_MAX = 16384, /* longer values are copied when the lock is gone */
    SLICED_BYTES = 1 << 20, /* more than this is copied in slices */
    SLICE_BYTES = 256 << 10,
    FEW_KEYS = 64
};

/* Values that are long together: copied in slices, between which the lane does other work. References were taken to all
 * of them while their keys were held, so they are of one moment. */
struct values_call {
    struct pending pending;
    struct slice slice;
    struct lane *lane;
    uint32_t n, at;         /* values; being written */
    uint32_t sent;          /* of that one */
    struct value *values[]; /* NULL: none */
};

/* Writes about as much as a slice may; true at the end. */
static bool put_values(struct values_call *call, struct resp_buffer *out)
{
    size_t end = out->bytes + SLICE_BYTES;
    while (call->at < call->n && !out->failed && out->bytes < end) {
        const struct value *value = call->values[call->at];
        if (!value) {
            resp_null(out);
            call->at++;
            continue;
        }
        if (call->sent == 0)
            resp_bulk_begin(out, value->bytes);
        uint32_t left = value->bytes - call->sent, part = left < SLICE_BYTES ? left : SLICE_BYTES;
        resp_raw(out, value->data + call->sent, part);
        call->sent += part;
        if (call->sent < value->bytes)
            continue;
        resp_raw(out, "\r\n", 2);
        call->sent = 0;
        call->at++;
    }
    return call->at == call->n || out->failed;
}

static void go_on_with_values(struct slice *slice)
{
    struct values_call *call = (struct values_call *)(void *)((char *)slice - offsetof(struct values_call, slice));
    if (!put_values(call, &call->pending.out) && !call->pending.caller->gone) {
        slice_post(call->lane, slice);
        return;
    }
    for (uint32_t i = 0; i < call->n; i++)
        keyspace_value_unref(call->values[i]);
    caller_done(&call->pending);
}

/* A place in line for n values, which the caller fills with references; NULL: the client is gone. */
static struct values_call *begin_values(struct caller *c, uint32_t n)
{
    struct values_call *call = caller_defer(c, sizeof *call + n * sizeof *call->values, true);
    if (!call)
        return NULL;
    call->lane = c->lane;
    call->slice.run = go_on_with_values;
    call->slice.caller = c;
    call->n = n;
    return call;
}

static struct value *string_of(struct key_entry *entry)
{
    return entry && entry->type == KEY_STRING ? entry->string : NULL;
}

void cmd_get(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!key_read(&call, c, args[1], KEY_STRING))
        return;
    struct value *value = call.entry ? call.entry->string : NULL;
    bool longer = value && value->bytes > COPY_BYTES_MAX;
    if (longer) {
        keyspace_value_ref(value);
        key_end(&call);
    }
    if (longer && value->bytes > SLICED_BYTES && !c->whole) {
        struct values_call *values = begin_values(c, 1);
        if (!values) {
            keyspace_value_unref(value);
            return;
        }
        values->values[0] = value;
        go_on_with_values(&values->slice);
        return;
    }
    if (value)
        resp_bulk(caller_reply(c), value->data, value->bytes);
    else
        resp_null(caller_reply(c));
    if (longer)
        keyspace_value_unref(value);
    else
        key_end(&call);
}

void cmd_strlen(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!key_read(&call, c, args[1], KEY_STRING))
        return;
    resp_integer(caller_reply(c), call.entry ? call.entry->string->bytes : 0);
    key_end(&call);
}

/* The bytes of the values of keys that are held; looked up, counted and used. entries: their entries. */
static uint64_t find_values(struct caller *c, struct keyspace_lock *lock, const struct resp_arg *keys, uint32_t n,
                            struct key_entry **entries)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct key key = keyspace_key(lock->keyspace, keys[i]);
        struct key_entry *entry = entries[i] = keyspace_find(lock, &key);
        key_count_look_up(c, entry);
        if (!entry)
            continue;
        keyspace_used(lock, entry);
        bytes += entry->type == KEY_STRING ? entry->string->bytes : 0;
    }
    return bytes;
}

static void put_found(struct resp_buffer *out, struct key_entry **entries, uint32_t n)
{
    resp_array(out, n);
    for (uint32_t i = 0; i < n && !out->failed; i++) {
        const struct value *value = string_of(entries[i]);
        if (value)
            resp_bulk(out, value->data, value->bytes);
        else
            resp_null(out);
    }
}

void cmd_mget(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_entry *few[FEW_KEYS], **entries = few;
    struct values_call *call = NULL;
    struct keyspace_lock lock;
    uint32_t n_keys = n - 1;
    if (n_keys > FEW_KEYS && !(entries = malloc(n_keys * sizeof(struct key_entry *)))) {
        caller_error(c, "OOM no memory for %u keys", n_keys);
        return;
    }
    keyspace_lock_args(&lock, &c->lane->service->keyspace, args + 1, n_keys, 1);
    uint64_t bytes = find_values(c, &lock, args + 1, n_keys, entries);
    if (bytes <= SLICED_BYTES || c->whole)
        put_found(caller_reply(c), entries, n_keys);
    else
        call = begin_values(c, n_keys);
    for (uint32_t i = 0; call && i < n_keys; i++)
        call->values[i] = string_of(entries[i]) ? keyspace_value_ref(string_of(entries[i])) : NULL;
    keyspace_unlock(&lock);
    if (entries != few)
        free(entries);
    if (!call)
        return;
    resp_array(&call->pending.out, n_keys);
    resp_reserve(&call->pending.out, bytes); /* that it is too much shows at once */
    go_on_with_values(&call->slice);
}

/* ---- SET --------------------------------------------------------------------------------------------------------- */

struct set_options {
    bool only_new, only_old, get, keep_expiry;
    bool expires;
    struct resp_arg amount;
    enum expiry_unit unit;
};

static bool is_expiry(struct resp_arg word, enum expiry_unit *unit)
{
    static const char *const words[] = {[EXPIRY_SECONDS] = "EX",
                                        [EXPIRY_MILLISECONDS] = "PX",
                                        [EXPIRY_AT_SECONDS] = "EXAT",
                                        [EXPIRY_AT_MILLISECONDS] = "PXAT"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (arg_is(word, words[i])) {
            *unit = (enum expiry_unit)i;
            return true;
        }
    return false;
}

/* What of the options may stand together is Redis's: NX or XX, one of the expiries. */
static bool set_options(const struct resp_arg *args, uint32_t n, struct set_options *o)
{
    *o = (struct set_options){0};
    for (uint32_t i = 3; i < n; i++) {
        if (is_expiry(args[i], &o->unit)) {
            if (o->expires || o->keep_expiry || i + 1 == n)
                return false;
            o->expires = true;
            o->amount = args[++i];
        } else if (arg_is(args[i], "KEEPTTL") && !o->expires) {
            o->keep_expiry = true;
        } else if (arg_is(args[i], "NX") && !o->only_old) {
            o->only_new = true;
        } else if (arg_is(args[i], "XX") && !o->only_new) {
            o->only_old = true;
        } else if (arg_is(args[i], "GET")) {
            o->get = true;
        } else {
            return false;
        }
    }
    return true;
}

/* What all that set a string do. With o->get the reply is the value before; otherwise as `reply` says. */
enum set_reply { SET_REPLY_OK, SET_REPLY_NUMBER };

static void set_string(struct caller *c, struct resp_arg name, struct resp_arg bytes, const struct set_options *o,
                       enum set_reply reply)
{
    struct key_call call;
    struct quire_error err;
    uint64_t expire_ms = 0;
    if (o->expires && !expiry_of_set(c, o->amount, o->unit, &expire_ms))
        return;
    struct value *value = keyspace_value_create(bytes.data, bytes.bytes, bytes.bytes), *before = NULL;
    if (!value) {
        caller_error(c, "OOM no memory for a value of %u bytes", bytes.bytes);
        return;
    }
    if (!key_write(&call, c, name, o->get ? KEY_STRING : KEY_ANY)) {
        keyspace_value_unref(value);
        return;
    }
    bool sets = !(o->only_new && call.entry) && !(o->only_old && !call.entry);
    if (o->get && call.entry)
        before = keyspace_value_ref(call.entry->string);
    if (o->keep_expiry && call.entry)
        expire_ms = call.entry->expire_ms;
    int rc = 0;
    if (sets)
        rc = keyspace_set_string(&call.lock, &call.key, call.entry, value, expire_ms, &err);
    else
        keyspace_value_unref(value);
    if (!key_failed(c, &call.lock, rc, &err)) {
        struct resp_buffer *out = caller_reply(c);
        if (o->get && before)
            resp_bulk(out, before->data, before->bytes);
        else if (reply == SET_REPLY_NUMBER)
            resp_integer(out, sets);
        else if (o->get || !sets)
            resp_null(out);
        else
            resp_simple(out, "OK");
        key_end(&call);
    }
    keyspace_value_unref(before);
}

void cmd_set(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct set_options o;
    if (set_options(args, n, &o))
        set_string(c, args[1], args[2], &o, SET_REPLY_OK);
    else
        caller_error(c, "ERR syntax error");
}

void cmd_setnx(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    set_string(c, args[1], args[2], &(struct set_options){.only_new = true}, SET_REPLY_NUMBER);
}

void cmd_setex(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    set_string(c, args[1], args[3], &(struct set_options){.expires = true, .amount = args[2], .unit = EXPIRY_SECONDS},
               SET_REPLY_OK);
}

void cmd_psetex(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    set_string(c, args[1], args[3],
               &(struct set_options){.expires = true, .amount = args[2], .unit = EXPIRY_MILLISECONDS}, SET_REPLY_OK);
}

void cmd_getset(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    set_string(c, args[1], args[2], &(struct set_options){.get = true}, SET_REPLY_OK);
}

/* All pairs at once; with only_new none of them where one of the keys exists, and the reply tells which. */
static void set_strings(struct caller *c, const struct resp_arg *args, uint32_t n, bool only_new)
{
    struct keyspace_lock lock;
    struct quire_error err;
    struct key_entry *entry;
    bool any = false;
    int rc = 0;
    if (n % 2 == 0) {
        caller_error(c, "ERR wrong number of arguments for '%s' command", c->command);
        return;
    }
    for (uint32_t i = 1; i < n; i += 2)
        if (!key_fits(c, args[i]))
            return;
    keyspace_lock_args(&lock, &c->lane->service->keyspace, args + 1, n - 1, 2);
    for (uint32_t i = 1; i < n && rc == 0 && only_new && !any; i += 2) {
        struct key key = keyspace_key(lock.keyspace, args[i]);
        rc = keyspace_find_to_write(&lock, &key, &entry, &err);
        any = rc == 0 && entry;
    }
    if (rc == 0 && !any)
        rc = keyspace_set_strings(&lock, args + 1, n / 2, &err);
    if (key_failed(c, &lock, rc, &err))
        return;
    keyspace_unlock(&lock);
    if (only_new)
        resp_integer(caller_reply(c), !any);
    else
        resp_simple(caller_reply(c), "OK");
    key_wrote(c, &lock);
}

void cmd_mset(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    set_strings(c, args, n, false);
}

void cmd_msetnx(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    set_strings(c, args, n, true);
}

/* GETEX key [EX s|PX ms|EXAT unix-s|PXAT unix-ms|PERSIST] */
void cmd_getex(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    enum expiry_unit unit;
    uint64_t expire_ms = 0;
    bool persists = n == 3 && arg_is(args[2], "PERSIST"), expires = n == 4 && is_expiry(args[2], &unit);
    if (n > 2 && !persists && !expires) {
        caller_error(c, "ERR syntax error");
        return;
    }
    if ((expires && !expiry_of_set(c, args[3], unit, &expire_ms)) || !key_write(&call, c, args[1], KEY_STRING))
        return;
    key_count_look_up(c, call.entry);
    struct value *value = call.entry ? keyspace_value_ref(call.entry->string) : NULL;
    bool changes = value && (expires || (persists && call.entry->expire_ms));
    int rc = changes ? keyspace_expire(&call.lock, call.entry, expire_ms, &err) : 0;
    if (!key_failed(c, &call.lock, rc, &err)) {
        if (value)
            resp_bulk(caller_reply(c), value->data, value->bytes);
        else
            resp_null(caller_reply(c));
        key_end(&call);
    }
    keyspace_value_unref(value);
}

void cmd_getdel(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    uint32_t n_gone;
    (void)n;
    if (!key_write(&call, c, args[1], KEY_STRING))
        return;
    key_count_look_up(c, call.entry);
    struct value *value = call.entry ? keyspace_value_ref(call.entry->string) : NULL;
    int rc = value ? keyspace_delete(&call.lock, args + 1, 1, &n_gone, &err) : 0;
    if (!key_failed(c, &call.lock, rc, &err)) {
        if (value)
            resp_bulk(caller_reply(c), value->data, value->bytes);
        else
            resp_null(caller_reply(c));
        key_end(&call);
    }
    keyspace_value_unref(value);
}

void cmd_append(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    int rc;
    (void)n;
    if (!key_write(&call, c, args[1], KEY_STRING))
        return;
    uint64_t bytes = (uint64_t)args[2].bytes + (call.entry ? call.entry->string->bytes : 0);
    if (bytes > c->lane->service->config->bulk_max) {
        keyspace_unlock(&call.lock);
        caller_error(c, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        return;
    }
    if (call.entry) {
        rc = keyspace_append(&call.lock, call.entry, args[2].data, args[2].bytes, &err);
    } else {
        rc = keyspace_set_strings(&call.lock, args + 1, 1, &err);
    }
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), (long long)bytes);
    key_end(&call);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void add_to_number(struct caller *c, struct resp_arg name, long long more)
{
    struct key_call call;
    struct quire_error err;
    long long number = 0;
    char text[24];
    if (!key_write(&call, c, name, KEY_STRING))
        return;
    if (call.entry && !arg_integer((struct resp_arg){call.entry->string->data, call.entry->string->bytes}, &number)) {
        keyspace_unlock(&call.lock);
        caller_error(c, "ERR value is not an integer or out of range");
        return;
    }
    if (__builtin_add_overflow(number, more, &number)) {
        keyspace_unlock(&call.lock);
        caller_error(c, "ERR increment or decrement would overflow");
        return;
    }
    uint32_t bytes = (uint32_t)snprintf(text, sizeof text, "%lld", number);
    struct value *value = keyspace_value_create(text, bytes, bytes);
    if (!value) {
        keyspace_unlock(&call.lock);
        caller_error(c, "OOM no memory for a number");
        return;
    }
    int rc =
        keyspace_set_string(&call.lock, &call.key, call.entry, value, call.entry ? call.entry->expire_ms : 0, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), number);
    key_end(&call);
}

void cmd_incr(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    add_to_number(c, args[1], 1);
}

void cmd_decr(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    add_to_number(c, args[1], -1);
}

void cmd_incrby(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    long long more;
    (void)n;
    if (arg_integer(args[2], &more))
        add_to_number(c, args[1], more);
    else
        caller_error(c, "ERR value is not an integer or out of range");
}

void cmd_decrby(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    long long less;
    (void)n;
    if (!arg_integer(args[2], &less))
        caller_error(c, "ERR value is not an integer or out of range");
    else if (less == LLONG_MIN)
        caller_error(c, "ERR decrement would overflow");
    else
        add_to_number(c, args[1], -less);
}
