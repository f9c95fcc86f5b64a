/*
 * cmd_range.c - parts of a string: GETRANGE, SETRANGE, and its bits. Texts and replies are those of Redis 7.
 *
 * What reads a part takes a reference to the value and looks at it when the lock is gone. What writes logs the part,
 * not the whole. Bits are counted from the highest of the first byte.
 */
#include "server/call/key_call.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include <string.h>

/* The value of a key, with a reference; NULL: there is no such key. False after an error reply. */
static bool take_value(struct caller *c, struct resp_arg name, struct value **out)
{
    struct key_call call;
    if (!key_read(&call, c, name, KEY_STRING))
        return false;
    *out = call.entry ? keyspace_value_ref(call.entry->string) : NULL;
    key_end(&call);
    return true;
}

/* First and last of n units, where negative ones are counted from the end; false where there is none between. */
static bool clip(long long *first, long long *last, long long n)
{
    if (*first < 0 && *last < 0 && *first > *last)
        return false;
    *first = *first < 0 ? *first + n : *first;
    *last = *last < 0 ? *last + n : *last;
    *first = *first < 0 ? 0 : *first;
    *last = *last < 0 ? 0 : *last;
    *last = *last >= n ? n - 1 : *last;
    return n > 0 && *first <= *last;
}

void cmd_getrange(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    long long first, last;
    struct value *value;
    (void)n;
    if (!arg_integer(args[2], &first) || !arg_integer(args[3], &last)) {
        caller_error(c, "ERR value is not an integer or out of range");
        return;
    }
    if (!take_value(c, args[1], &value))
        return;
    if (value && clip(&first, &last, value->bytes))
        resp_bulk(caller_reply(c), value->data + first, (size_t)(last - first + 1));
    else
        resp_bulk(caller_reply(c), "", 0);
    keyspace_value_unref(value);
}

void cmd_setrange(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err = {0};
    long long offset;
    uint64_t most = c->lane->service->config->bulk_max;
    (void)n;
    if (!arg_integer(args[2], &offset)) {
        caller_error(c, "ERR value is not an integer or out of range");
        return;
    }
    if (offset < 0) {
        caller_error(c, "ERR offset is out of range");
        return;
    }
    if (args[3].bytes > 0 && ((uint64_t)offset > most || (uint64_t)offset + args[3].bytes > most)) {
        caller_error(c, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        return;
    }
    if (!key_write(&call, c, args[1], KEY_STRING))
        return;
    uint64_t have = call.entry ? call.entry->string->bytes : 0, end = (uint64_t)offset + args[3].bytes;
    int rc = args[3].bytes > 0 ? keyspace_write(&call.lock, &call.key, call.entry, (uint32_t)offset, args[3], &err) : 0;
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), (long long)(args[3].bytes > 0 && end > have ? end : have));
    key_end(&call);
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* The number of a bit; false after an error reply. */
static bool take_bit_offset(struct caller *c, struct resp_arg arg, long long *out)
{
    if (arg_integer(arg, out) && *out >= 0 && (uint64_t)*out >> 3 < c->lane->service->config->bulk_max &&
        (uint64_t)*out >> 3 < UINT32_MAX)
        return true;
    caller_error(c, "ERR bit offset is not an integer or out of range");
    return false;
}

static unsigned bit_of(const struct value *value, uint64_t bit)
{
    return value && bit / 8 < value->bytes ? (unsigned)value->data[bit / 8] >> (7 - bit % 8) & 1u : 0;
}

void cmd_getbit(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    long long bit;
    (void)n;
    if (!take_bit_offset(c, args[2], &bit) || !key_read(&call, c, args[1], KEY_STRING))
        return;
    resp_integer(caller_reply(c), bit_of(call.entry ? call.entry->string : NULL, (uint64_t)bit));
    key_end(&call);
}

void cmd_setbit(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err = {0};
    long long bit, on;
    (void)n;
    if (!take_bit_offset(c, args[2], &bit))
        return;
    if (!arg_integer(args[3], &on) || on < 0 || on > 1) {
        caller_error(c, "ERR bit is not an integer or out of range");
        return;
    }
    if (!key_write(&call, c, args[1], KEY_STRING))
        return;
    const struct value *value = call.entry ? call.entry->string : NULL;
    uint64_t at = (uint64_t)bit / 8;
    unsigned before = bit_of(value, (uint64_t)bit), mask = 128u >> bit % 8;
    unsigned byte = value && at < value->bytes ? value->data[at] : 0;
    uint8_t changed = (uint8_t)(on ? byte | mask : byte & ~mask);
    int rc = keyspace_write(&call.lock, &call.key, call.entry, (uint32_t)at, (struct resp_arg){&changed, 1}, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), before);
    key_end(&call);
}

/* Bits of a value from `first` to `last`, both among them, which are bits of it. */
static uint64_t count_bits(const struct value *value, uint64_t first, uint64_t last)
{
    uint64_t count = 0;
    for (; first <= last && first % 8; first++)
        count += bit_of(value, first);
    for (; first + 63 <= last; first += 64) {
        uint64_t word;
        memcpy(&word, value->data + first / 8, sizeof word);
        count += (uint64_t)__builtin_popcountll(word);
    }
    for (; first <= last; first++)
        count += bit_of(value, first);
    return count;
}

/* [start [end [BYTE|BIT]]] in args; units: of bits in one. False after an error reply. */
struct bit_range {
    long long first, last;
    unsigned unit; /* bits */
    bool has_first, has_last;
};

static bool take_range(struct caller *c, const struct resp_arg *args, uint32_t n, struct bit_range *r)
{
    *r = (struct bit_range){.last = -1, .unit = 8, .has_first = n > 0, .has_last = n > 1};
    if (n > 3 || (n == 3 && !arg_is(args[2], "BYTE") && !arg_is(args[2], "BIT"))) {
        caller_error(c, "ERR syntax error");
        return false;
    }
    if ((n > 0 && !arg_integer(args[0], &r->first)) || (n > 1 && !arg_integer(args[1], &r->last))) {
        caller_error(c, "ERR value is not an integer or out of range");
        return false;
    }
    r->unit = n == 3 && arg_is(args[2], "BIT") ? 1 : 8;
    return true;
}

/* The range as bits of a value; false where it has none of them. */
static bool bits_between(const struct value *value, struct bit_range *r)
{
    if (!clip(&r->first, &r->last, (long long)value->bytes * 8 / r->unit))
        return false;
    r->first *= r->unit;
    r->last = (r->last + 1) * r->unit - 1;
    return true;
}

void cmd_bitcount(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct bit_range r;
    struct value *value;
    if (n == 3) {
        caller_error(c, "ERR syntax error");
        return;
    }
    if (!take_range(c, args + 2, n - 2, &r) || !take_value(c, args[1], &value))
        return;
    bool any = value && bits_between(value, &r);
    resp_integer(caller_reply(c), any ? (long long)count_bits(value, (uint64_t)r.first, (uint64_t)r.last) : 0);
    keyspace_value_unref(value);
}

/* The first bit that is `on`, -1: none. */
static long long find_bit(const struct value *value, uint64_t first, uint64_t last, unsigned on)
{
    uint8_t skipped = on ? 0 : 0xff;
    for (; first <= last; first++) {
        while (first % 8 == 0 && first + 7 <= last && value->data[first / 8] == skipped)
            first += 8;
        if (first <= last && bit_of(value, first) == on)
            return (long long)first;
    }
    return -1;
}

void cmd_bitpos(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct bit_range r;
    struct value *value;
    long long on, found = -1;
    if (!arg_integer(args[2], &on)) {
        caller_error(c, "ERR value is not an integer or out of range");
        return;
    }
    if (on < 0 || on > 1) {
        caller_error(c, "ERR The bit argument must be 1 or 0.");
        return;
    }
    if (!take_range(c, args + 3, n - 3, &r) || !take_value(c, args[1], &value))
        return;
    if (value && bits_between(value, &r)) {
        found = find_bit(value, (uint64_t)r.first, (uint64_t)r.last, (unsigned)on);
        /* behind the end a string is taken to go on with zeros, unless an end was given */
        if (found < 0 && !on && !r.has_last)
            found = (long long)value->bytes * 8;
    } else if (!value && !on) {
        found = 0;
    }
    resp_integer(caller_reply(c), found);
    keyspace_value_unref(value);
}
