/* arg.c - what an argument means, to the letter as Redis reads it: clients match the errors that follow. */
#include "server/protocol/arg.h"
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool arg_is(struct resp_arg arg, const char *word)
{
    return strlen(word) == arg.bytes && strncasecmp((const char *)arg.data, word, arg.bytes) == 0;
}

bool arg_integer(struct resp_arg arg, long long *out)
{
    bool negative = arg.bytes > 0 && arg.data[0] == '-';
    uint64_t value = 0, most = (uint64_t)LLONG_MAX + negative;
    uint32_t i = negative;
    if (i == arg.bytes || (arg.data[i] == '0' && arg.bytes > 1))
        return false;
    for (; i < arg.bytes; i++) {
        unsigned digit = arg.data[i] - (unsigned)'0';
        if (digit > 9 || value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = negative ? (long long)(0 - value) : (long long)value;
    return true;
}

bool arg_number(struct resp_arg arg, double *out)
{
    char text[128], *end;
    if (arg.bytes == 0 || arg.bytes >= sizeof text || isspace(arg.data[0]))
        return false;
    memcpy(text, arg.data, arg.bytes);
    text[arg.bytes] = 0;
    double value = strtod(text, &end);
    if (end != text + arg.bytes)
        return false;
    *out = value;
    return true;
}

char *arg_text(struct resp_arg arg)
{
    if (memchr(arg.data, 0, arg.bytes))
        return NULL;
    char *text = malloc((size_t)arg.bytes + 1);
    if (text) {
        memcpy(text, arg.data, arg.bytes);
        text[arg.bytes] = 0;
    }
    return text;
}
