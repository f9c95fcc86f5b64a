/*
 * jsonl_scan.c - a JSON text cut into its values.
 *
 * Most bytes of a row are the numbers of its vector, and a tree of them would cost fifty times their size. So a row is
 * cut into fields, the vector's numbers are read where they stand, and the text of attributes goes on as it is: what is
 * written in a file is what is stored. Texts that are kept are parsed by jansson once, which says what is wrong; here
 * only brackets, quotes and numbers are understood.
 */
#include "tools/records/jsonl_scan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 64u

void jsonl_skip_space(const char **at, const char *end)
{
    while (*at < end && (**at == ' ' || **at == '\t' || **at == '\r' || **at == '\n'))
        (*at)++;
}

static bool skip_string(const char **at, const char *end)
{
    for ((*at)++; *at < end; (*at)++) {
        if (**at == '\\')
            (*at)++;
        else if (**at == '"') {
            (*at)++;
            return true;
        }
    }
    return false;
}

/* Objects and arrays: which bracket closes which is left to the parser of what is kept. */
static bool skip_nested(const char **at, const char *end)
{
    size_t depth = 0;
    while (*at < end) {
        char c = **at;
        if (c == '"') {
            if (!skip_string(at, end))
                return false;
            continue;
        }
        (*at)++;
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            return true;
    }
    return false;
}

bool jsonl_value(const char **at, const char *end, struct jsonl_span *out)
{
    jsonl_skip_space(at, end);
    out->at = *at;
    if (*at == end)
        return false;
    bool ok = true;
    if (**at == '"')
        ok = skip_string(at, end);
    else if (**at == '{' || **at == '[')
        ok = skip_nested(at, end);
    else
        while (*at < end && !strchr(",]} \t\r\n", **at))
            (*at)++;
    out->bytes = *at > end ? 0 : (size_t)(*at - out->at);
    return ok && *at <= end && out->bytes > 0;
}

int jsonl_field(const char **at, const char *end, bool first, struct jsonl_span *name, struct jsonl_span *value)
{
    jsonl_skip_space(at, end);
    if (*at < end && **at == '}') {
        (*at)++;
        return 0;
    }
    if (!first) {
        if (*at == end || **at != ',')
            return -1;
        (*at)++;
        jsonl_skip_space(at, end);
    }
    if (*at == end || **at != '"' || !jsonl_value(at, end, name))
        return -1;
    jsonl_skip_space(at, end);
    if (*at == end || **at != ':')
        return -1;
    (*at)++;
    return jsonl_value(at, end, value) ? 1 : -1;
}

/* JSON's numbers only: strtof would take hexadecimal, "inf" and "nan" as well. */
static bool read_number(const char **at, const char *end, float *out)
{
    char text[NUMBER_BYTES_MAX + 1];
    size_t n = 0;
    bool digit = false;
    while (*at < end && n < NUMBER_BYTES_MAX && strchr("+-.0123456789eE", **at)) {
        digit |= **at >= '0' && **at <= '9';
        text[n++] = *(*at)++;
    }
    text[n] = 0;
    char *stop;
    *out = strtof(text, &stop);
    return digit && *stop == 0;
}

long jsonl_numbers(const struct jsonl_span *array, float *out, size_t capacity)
{
    const char *at = array->at, *end = array->at + array->bytes;
    size_t n = 0;
    if (array->bytes < 2 || *at != '[')
        return -1;
    at++;
    jsonl_skip_space(&at, end);
    if (*at == ']')
        return 0;
    for (;;) {
        float x;
        jsonl_skip_space(&at, end);
        if (!read_number(&at, end, &x))
            return -1;
        if (n == capacity)
            return -2;
        out[n++] = x;
        jsonl_skip_space(&at, end);
        if (at == end || (*at != ',' && *at != ']'))
            return -1;
        if (*at++ == ']')
            return at == end ? (long)n : -1;
    }
}
