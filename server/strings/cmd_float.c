/*
 * cmd_float.c - INCRBYFLOAT and HINCRBYFLOAT: sums of numbers that are kept as text.
 *
 * As in Redis sums are made in long double and written with up to 17 digits behind the point, without zeros at the end,
 * so that both give the same text.
 */
#include "server/call/key_call.h"
#include "server/call/key_values.h"
#include "server/keys/hash_value.h"
#include "server/keys/keyspace.h"
#include "server/strings/cmd_strings.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES_MAX = 5 * 1024 }; /* the longest long double has 4,933 digits before the point */

static bool parse(struct resp_arg arg, long double *out)
{
    char text[NUMBER_BYTES_MAX], *end;
    if (arg.bytes == 0 || arg.bytes >= sizeof text || isspace(arg.data[0]) || memchr(arg.data, 0, arg.bytes))
        return false;
    memcpy(text, arg.data, arg.bytes);
    text[arg.bytes] = 0;
    errno = 0;
    *out = strtold(text, &end);
    bool ranges = errno == ERANGE && (*out > 1 || *out < -1); /* too small a number is 0 */
    return *end == 0 && !ranges && !isnan(*out);
}

static uint32_t print(long double number, char text[NUMBER_BYTES_MAX])
{
    int bytes = snprintf(text, NUMBER_BYTES_MAX, "%.17Lf", number);
    while (text[bytes - 1] == '0')
        bytes--;
    if (text[bytes - 1] == '.')
        bytes--;
    if (bytes == 2 && memcmp(text, "-0", 2) == 0) {
        text[0] = '0';
        bytes = 1;
    }
    return (uint32_t)bytes;
}

void cmd_incrbyfloat(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    long double more, sum = 0;
    char text[NUMBER_BYTES_MAX];
    (void)n;
    if (!key_write(&call, c, args[1], KEY_STRING))
        return;
    const struct value *have = call.entry ? call.entry->string : NULL;
    const char *wrong = NULL;
    if ((have && !parse((struct resp_arg){have->data, have->bytes}, &sum)) || !parse(args[2], &more))
        wrong = "ERR value is not a valid float";
    else if (sum += more, !isfinite(sum))
        wrong = "ERR increment would produce NaN or Infinity";
    uint32_t bytes = wrong ? 0 : print(sum, text);
    struct value *value = wrong ? NULL : keyspace_value_create(text, bytes, bytes);
    if (!value) {
        keyspace_unlock(&call.lock);
        caller_error(c, "%s", wrong ? wrong : "OOM no memory for a number");
        return;
    }
    int rc =
        keyspace_set_string(&call.lock, &call.key, call.entry, value, call.entry ? call.entry->expire_ms : 0, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_bulk(caller_reply(c), text, bytes);
    key_end(&call);
}

void cmd_hincrbyfloat(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err;
    struct resp_arg have;
    long double more, sum = 0;
    uint32_t n_new;
    char text[NUMBER_BYTES_MAX];
    (void)n;
    if (!parse(args[3], &more)) {
        caller_error(c, "ERR value is not a valid float");
        return;
    }
    if (!isfinite(more)) {
        caller_error(c, "ERR value is NaN or Infinity");
        return;
    }
    if (!key_write(&call, c, args[1], KEY_HASH) || !key_values_ready_to_change(&call))
        return;
    const char *wrong = NULL;
    /* a value that is missing is longer than any number */
    if (call.entry && hash_get(call.entry->hash, args[2], &have) && (!have.data || !parse(have, &sum)))
        wrong = "ERR hash value is not a float";
    else if (sum += more, !isfinite(sum))
        wrong = "ERR increment would produce NaN or Infinity";
    if (wrong) {
        keyspace_unlock(&call.lock);
        caller_error(c, "%s", wrong);
        return;
    }
    struct resp_arg pair[2] = {args[2], {(const uint8_t *)text, print(sum, text)}};
    int rc = keyspace_hash_set(&call.lock, &call.key, call.entry, pair, 1, &n_new, &err);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_bulk(caller_reply(c), pair[1].data, pair[1].bytes);
    key_end(&call);
}
