/*
 * cmd_script.c - EVAL, EVALSHA and SCRIPT: no scripts, but for those of a lock.
 *
 * There is no interpreter here. But redis-py's Lock takes a lock by SET NX PX and gives it back by a script, so that
 * without any script locks would be taken and never released. Its three scripts are known by the SHA-1 of their text,
 * and what each does to its key is done here, under the lock of the key's shard:
 *
 *   release    KEYS[1]; ARGV[1] token                          deletes the key if it holds the token
 *   extend     KEYS[1]; ARGV[1] token, [2] milliseconds, [3]   adds to its time to live, or with [3] = "1" replaces it
 *   reacquire  KEYS[1]; ARGV[1] token, [2] milliseconds        sets its time to live
 *
 * Each answers 1 where it did, 0 where the key does not hold the token. Every other script is refused.
 */
#include "server/call/key_call.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

enum { SHA1_BYTES = 20, SHA1_TEXT_BYTES = 2 * SHA1_BYTES };

enum script { SCRIPT_RELEASE, SCRIPT_EXTEND, SCRIPT_REACQUIRE, SCRIPTS };

static const struct {
    const char *sha1;
    unsigned arguments;
} scripts[SCRIPTS] = {[SCRIPT_RELEASE] = {"c3f8721cbb97f72bc19e972846bd7aaf91901658", 1},
                      [SCRIPT_EXTEND] = {"a4e8783852e6b949f9ef3a97212805108459a890", 3},
                      [SCRIPT_REACQUIRE] = {"1cac51482acf5858da00f6d685d68f886cd6b6b2", 2}};

/* SCRIPTS where it is not known. */
static enum script find_script(const void *sha1, size_t bytes)
{
    int found = 0;
    while (found < SCRIPTS && !(bytes == SHA1_TEXT_BYTES && strncasecmp(scripts[found].sha1, sha1, bytes) == 0))
        found++;
    return (enum script)found;
}

static enum script script_of_text(struct resp_arg text)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[EVP_MAX_MD_SIZE];
    char sha1[SHA1_TEXT_BYTES];
    unsigned n = 0;
    if (!EVP_Digest(text.data, text.bytes, digest, &n, EVP_sha1(), NULL) || n != SHA1_BYTES)
        return SCRIPTS;
    for (unsigned i = 0; i < n; i++) {
        sha1[2 * i] = digits[digest[i] >> 4];
        sha1[2 * i + 1] = digits[digest[i] & 15];
    }
    return find_script(sha1, sizeof sha1);
}

static void refuse(struct caller *c)
{
    caller_error(c,
                 "ERR scripts are not here, but for the three of redis-py's Lock: do it by commands, or by MULTI and "
                 "WATCH");
}

/* The time at which the key is over; false after an error reply. */
static bool new_expiry(struct caller *c, struct key_call *call, enum script script, const struct resp_arg *words,
                       uint64_t *out)
{
    long long ms, now = (long long)keyspace_now(&call->lock);
    bool adds = script == SCRIPT_EXTEND && words[2].bytes == 1 && words[2].data[0] == '0';
    if (!arg_integer(words[1], &ms) ||
        __builtin_add_overflow(ms, adds ? (long long)call->entry->expire_ms : now, &ms)) {
        keyspace_unlock(&call->lock);
        caller_error(c, "ERR value is not an integer or out of range");
        return false;
    }
    *out = ms > 0 ? (uint64_t)ms : 1;
    return true;
}

static void run_script(struct caller *c, enum script script, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    uint64_t expire_ms = 0;
    uint32_t n_gone;
    long long n_keys;
    if (script == SCRIPTS) {
        refuse(c);
        return;
    }
    if (!arg_integer(args[2], &n_keys) || n_keys != 1 || n != 4 + scripts[script].arguments) {
        caller_error(c, "ERR this script takes 1 key and %u arguments", scripts[script].arguments);
        return;
    }
    if (!key_write(&call, c, args[3], KEY_STRING))
        return;
    const struct value *value = call.entry ? call.entry->string : NULL;
    bool holds = value && value->bytes == args[4].bytes && memcmp(value->data, args[4].data, args[4].bytes) == 0;
    if (script == SCRIPT_EXTEND && holds && call.entry->expire_ms == 0)
        holds = false; /* it has no time to live that could be extended */
    if (holds && script != SCRIPT_RELEASE && !new_expiry(c, &call, script, args + 4, &expire_ms))
        return;
    int rc = 0;
    if (holds && script == SCRIPT_RELEASE)
        rc = keyspace_delete(&call.lock, args + 3, 1, &n_gone, &err);
    else if (holds)
        rc = keyspace_expire(&call.lock, call.entry, expire_ms, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), holds);
    key_end(&call);
}

void cmd_eval(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    run_script(c, script_of_text(args[1]), args, n);
}

void cmd_evalsha(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    run_script(c, find_script(args[1].data, args[1].bytes), args, n);
}

void cmd_script_load(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    enum script script = script_of_text(args[2]);
    (void)n;
    if (script == SCRIPTS)
        refuse(c);
    else
        resp_bulk(caller_reply(c), scripts[script].sha1, SHA1_TEXT_BYTES);
}

void cmd_script_exists(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    resp_array(out, n - 2);
    for (uint32_t i = 2; i < n; i++)
        resp_integer(out, find_script(args[i].data, args[i].bytes) != SCRIPTS);
}

void cmd_script_flush(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    if (n > 3 || (n == 3 && !arg_is(args[2], "ASYNC") && !arg_is(args[2], "SYNC")))
        caller_error(c, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    else
        resp_simple(caller_reply(c), "OK");
}
