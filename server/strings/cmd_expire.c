/*
 * cmd_expire.c - EXPIRE, TTL and their kin, on keys of every type; the times of SET.
 *
 * A time that is over removes the key at once and answers 1, as Redis does. Whatever came before 1970 is over.
 */
#include "server/call/key_call.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include "server/strings/expiry.h"

static bool in_seconds(enum expiry_unit unit)
{
    return unit == EXPIRY_SECONDS || unit == EXPIRY_AT_SECONDS;
}

/* Milliseconds since 1970; false after an error reply. */
static bool expiry_of(struct caller *c, struct resp_arg amount, enum expiry_unit unit, bool above_zero, long long *out)
{
    long long ms;
    if (!arg_integer(amount, &ms)) {
        caller_error(c, "ERR value is not an integer or out of range");
        return false;
    }
    const struct keyspace *k = &c->lane->service->keyspace;
    bool relative = unit == EXPIRY_SECONDS || unit == EXPIRY_MILLISECONDS;
    bool bad = (above_zero && ms <= 0) || (in_seconds(unit) && __builtin_mul_overflow(ms, 1000, &ms)) ||
               (relative && __builtin_add_overflow(ms, (long long)k->clock_ms(k->clock_context), &ms));
    if (bad)
        caller_error(c, "ERR invalid expire time in '%s' command", c->command);
    *out = ms;
    return !bad;
}

bool expiry_of_set(struct caller *c, struct resp_arg amount, enum expiry_unit unit, uint64_t *expire_ms)
{
    long long ms;
    if (!expiry_of(c, amount, unit, true, &ms))
        return false;
    *expire_ms = (uint64_t)ms;
    return true;
}

/* ---- EXPIRE ------------------------------------------------------------------------------------------------------ */

struct conditions {
    bool none, some, later, earlier; /* NX XX GT LT */
};

static bool take_conditions(struct caller *c, const struct resp_arg *args, uint32_t n, struct conditions *o)
{
    *o = (struct conditions){0};
    for (uint32_t i = 3; i < n; i++) {
        bool *found = arg_is(args[i], "NX")   ? &o->none
                      : arg_is(args[i], "XX") ? &o->some
                      : arg_is(args[i], "GT") ? &o->later
                      : arg_is(args[i], "LT") ? &o->earlier
                                              : NULL;
        if (!found) {
            caller_error(c, "ERR Unsupported option %.*s", ARG_SHOWN(args[i], 128u));
            return false;
        }
        *found = true;
    }
    if (o->none && (o->some || o->later || o->earlier)) {
        caller_error(c, "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if (o->later && o->earlier) {
        caller_error(c, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    return true;
}

static void expire(struct caller *c, const struct resp_arg *args, uint32_t n, enum expiry_unit unit)
{
    struct conditions o;
    struct key_call call;
    struct quire_error err;
    long long at;
    if (!take_conditions(c, args, n, &o) || !expiry_of(c, args[2], unit, false, &at))
        return;
    if (!key_write(&call, c, args[1], KEY_ANY))
        return;
    uint64_t new_at = at > 0 ? (uint64_t)at : 1;
    uint64_t now_at = call.entry ? call.entry->expire_ms : 0;
    /* a key without an expiry counts as one that never ends */
    bool sets = call.entry && !(o.none && now_at) && !(o.some && !now_at) &&
                !(o.later && (!now_at || new_at <= now_at)) && !(o.earlier && now_at && new_at >= now_at);
    int rc = sets ? keyspace_expire(&call.lock, call.entry, new_at, &err) : 0;
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), sets);
    key_end(&call);
}

void cmd_expire(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    expire(c, args, n, EXPIRY_SECONDS);
}

void cmd_pexpire(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    expire(c, args, n, EXPIRY_MILLISECONDS);
}

void cmd_expireat(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    expire(c, args, n, EXPIRY_AT_SECONDS);
}

void cmd_pexpireat(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    expire(c, args, n, EXPIRY_AT_MILLISECONDS);
}

void cmd_persist(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    (void)n;
    if (!key_write(&call, c, args[1], KEY_ANY))
        return;
    bool had = call.entry && call.entry->expire_ms;
    int rc = had ? keyspace_expire(&call.lock, call.entry, 0, &err) : 0;
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), had);
    key_end(&call);
}

/* ---- TTL --------------------------------------------------------------------------------------------------------- */

/* -2: no such key; -1: no expiry. Seconds that are left are rounded, as Redis rounds them. */
static void reply_expiry(struct caller *c, struct resp_arg name, enum expiry_unit unit)
{
    struct key_call call;
    long long answer = -2;
    if (!key_read(&call, c, name, KEY_ANY))
        return;
    if (call.entry)
        answer = call.entry->expire_ms ? (long long)call.entry->expire_ms : -1;
    if (answer > 0 && (unit == EXPIRY_SECONDS || unit == EXPIRY_MILLISECONDS))
        answer -= (long long)keyspace_now(&call.lock);
    if (answer >= 0 && in_seconds(unit))
        answer = unit == EXPIRY_SECONDS ? answer / 1000 + (answer % 1000 >= 500) : answer / 1000;
    resp_integer(caller_reply(c), answer);
    key_end(&call);
}

void cmd_ttl(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    reply_expiry(c, args[1], EXPIRY_SECONDS);
}

void cmd_pttl(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    reply_expiry(c, args[1], EXPIRY_MILLISECONDS);
}

void cmd_expiretime(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    reply_expiry(c, args[1], EXPIRY_AT_SECONDS);
}

void cmd_pexpiretime(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    reply_expiry(c, args[1], EXPIRY_AT_MILLISECONDS);
}
