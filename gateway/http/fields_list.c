/*
 * fields_list.c - header fields in one block of memory.
 *
 * A head has some ten to thirty fields, so a look-up walks them; a hash table would cost more than it saves. Places are
 * offsets, not pointers, since the block moves when it grows.
 */
#include "gateway/http/fields_list.h"
#include "io/array.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PRINTED_BYTES 1000

void fields_fini(struct fields *fields)
{
    free(fields->text);
    free(fields->places);
    *fields = (struct fields){0};
}

void fields_clear(struct fields *fields)
{
    fields->text_bytes = 0;
    fields->n = 0;
}

/* RFC 9110 5.6.2: tchar */
static bool is_token(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!alphanumeric && (c == 0 || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return n > 0;
}

static bool is_value(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

bool fields_add_bytes(struct fields *fields, const char *name, size_t name_bytes, const char *value, size_t value_bytes)
{
    if (!is_token(name, name_bytes) || !is_value(value, value_bytes))
        return false;
    size_t at = fields->text_bytes, bytes = name_bytes + value_bytes + 2;
    if (at + bytes > UINT32_MAX || !array_reserve(&fields->text, &fields->text_capacity, at + bytes) ||
        !array_reserve(&fields->places, &fields->capacity, (size_t)fields->n + 1))
        return false;
    memcpy(fields->text + at, name, name_bytes);
    fields->text[at + name_bytes] = 0;
    memcpy(fields->text + at + name_bytes + 1, value, value_bytes);
    fields->text[at + bytes - 1] = 0;
    fields->text_bytes += bytes;
    fields->places[fields->n++] = (uint32_t)at;
    return true;
}

bool fields_append(struct fields *fields, const char *name, const char *value)
{
    return fields_add_bytes(fields, name, strlen(name), value, strlen(value));
}

bool fields_print(struct fields *fields, const char *name, const char *format, ...)
{
    char value[PRINTED_BYTES + 1];
    va_list list;
    va_start(list, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it was started above */
    int n = vsnprintf(value, sizeof value, format, list);
    va_end(list);
    return n >= 0 && (size_t)n < sizeof value && fields_append(fields, name, value);
}

void fields_printable(char *out, size_t room, const char *text)
{
    size_t n = 0;
    for (; text[n] && n < room - 1; n++)
        out[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    out[n] = 0;
}

bool fields_set(struct fields *fields, const char *name, const char *value)
{
    /* added first, so that a failure leaves what there was */
    if (!fields_append(fields, name, value))
        return false;
    uint32_t last = fields->places[--fields->n];
    fields_drop(fields, name);
    fields->places[fields->n++] = last;
    return true;
}

uint32_t fields_drop(struct fields *fields, const char *name)
{
    uint32_t kept = 0, n = fields->n;
    for (uint32_t i = 0; i < n; i++) {
        if (strcasecmp(fields_name(fields, i), name) != 0)
            fields->places[kept++] = fields->places[i];
    }
    fields->n = kept;
    return n - kept;
}

const char *fields_name(const struct fields *fields, uint32_t i)
{
    assert(i < fields->n);
    return fields->text + fields->places[i];
}

const char *fields_value(const struct fields *fields, uint32_t i)
{
    const char *name = fields_name(fields, i);
    return name + strlen(name) + 1;
}

const char *fields_get(const struct fields *fields, const char *name)
{
    for (uint32_t i = 0; i < fields->n; i++) {
        if (strcasecmp(fields_name(fields, i), name) == 0)
            return fields_value(fields, i);
    }
    return NULL;
}

uint32_t fields_count(const struct fields *fields, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < fields->n; i++)
        n += strcasecmp(fields_name(fields, i), name) == 0;
    return n;
}

/* Whether a comma-separated list has the word. */
static bool list_has(const char *list, const char *word)
{
    size_t word_bytes = strlen(word);
    while (*list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, ","), bytes = n;
        while (bytes > 0 && (list[bytes - 1] == ' ' || list[bytes - 1] == '\t'))
            bytes--;
        if (bytes > 0 && bytes == word_bytes && strncasecmp(list, word, bytes) == 0)
            return true;
        list += n;
    }
    return false;
}

bool fields_has_word(const struct fields *fields, const char *name, const char *word)
{
    for (uint32_t i = 0; i < fields->n; i++) {
        if (strcasecmp(fields_name(fields, i), name) == 0 && list_has(fields_value(fields, i), word))
            return true;
    }
    return false;
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

bool fields_is_hop(const struct fields *fields, const char *name)
{
    static const char *const hop[] = {
        "Connection",       "Keep-Alive",       "TE", "Trailer", "Upgrade", "Proxy-Authorization", "Proxy-Authenticate",
        "Proxy-Connection", "Transfer-Encoding"};
    return is_one_of(name, hop, sizeof hop / sizeof *hop) || fields_has_word(fields, "Connection", name);
}

bool fields_forward(const struct fields *in, struct fields *out, bool plain)
{
    static const char *const made[] = {"Host", "Content-Length", "Expect"};
    for (uint32_t i = 0; i < in->n; i++) {
        const char *name = fields_name(in, i);
        if (fields_is_hop(in, name) || is_one_of(name, made, sizeof made / sizeof *made) ||
            (plain && strcasecmp(name, "Accept-Encoding") == 0))
            continue;
        if (!fields_append(out, name, fields_value(in, i)))
            return false;
    }
    return true;
}

const char *fields_credential(const struct fields *fields)
{
    return fields_get(fields, "x-api-key") ? "x-api-key" : fields_get(fields, "api-key") ? "api-key" : "Authorization";
}

bool fields_set_key(struct fields *fields, const char *key)
{
    const char *field = fields_credential(fields);
    fields_drop(fields, "x-api-key");
    fields_drop(fields, "api-key");
    fields_drop(fields, "Authorization");
    if (strcmp(field, "Authorization") != 0)
        return fields_append(fields, field, key);
    size_t bytes = strlen(key) + sizeof "Bearer ";
    char *value = malloc(bytes);
    bool ok = value && snprintf(value, bytes, "Bearer %s", key) > 0 && fields_append(fields, field, value);
    if (value)
        explicit_bzero(value, bytes);
    free(value);
    return ok;
}

bool fields_return(const struct fields *in, struct fields *out)
{
    for (uint32_t i = 0; i < in->n; i++) {
        const char *name = fields_name(in, i);
        if (fields_is_hop(in, name) || strcasecmp(name, "Content-Length") == 0)
            continue;
        if (!fields_append(out, name, fields_value(in, i)))
            return false;
    }
    return true;
}
