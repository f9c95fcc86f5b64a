/*
 * grants.c - the text of an element: grants, then JSON.
 *
 * The text comes from disk and from journals, so grants_split checks all of it before anything else walks it: the
 * marker byte, the number, each length against the stated bytes, and that they end where the JSON begins. What walks a
 * text afterwards (grants_next, grants_allow, on the path of every candidate of a search) relies on that but never
 * reads behind its end.
 *
 * What users give as attributes may be no JSON at all, and begin as grants do. Then a list of none stands before it, or
 * whoever may write attributes could grant an element to anybody.
 *
 * Grants are kept by name and without repetition. Two equal lists have equal bytes, so a change that changes nothing is
 * found by comparing texts. A name stands once: a grant of an earlier generation is void, and gives way to the later.
 */
#include "index/attribute/grants.h"
#include "index/format/format.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define GRANTS_MARK 1u

static const uint8_t *grants_at(const void *text, uint32_t bytes, uint32_t *n_bytes)
{
    const uint8_t *t = text;
    if (!t || bytes < GRANTS_HEADER_BYTES || t[0] != GRANTS_MARK)
        return NULL;
    uint32_t stated = bytes_load_u32(t + 3);
    *n_bytes = stated < bytes - GRANTS_HEADER_BYTES ? stated : bytes - GRANTS_HEADER_BYTES;
    return t + GRANTS_HEADER_BYTES;
}

/* Of what is not JSON: a text without grants that would be taken for one with them. */
static bool looks_granted(const char *json, uint32_t bytes)
{
    return bytes > 0 && *json == GRANTS_MARK;
}

int grants_split(const void *text, uint32_t bytes, const char **json, uint32_t *json_bytes, uint32_t *n_grants)
{
    const uint8_t *t = text;
    uint32_t n = 0, wanted = 0, end = 0;
    if (t && bytes && t[0] == GRANTS_MARK) {
        if (bytes < GRANTS_HEADER_BYTES)
            return QUIRE_ECORRUPT;
        wanted = bytes_load_u16(t + 1);
        if (wanted > GRANTS_MAX || bytes_load_u32(t + 3) > bytes - GRANTS_HEADER_BYTES)
            return QUIRE_ECORRUPT;
        struct grant grant;
        uint32_t at = 0;
        while (grants_next(text, bytes, &at, &grant)) {
            if (grant.bytes == 0)
                return QUIRE_ECORRUPT;
            n++;
        }
        end = GRANTS_HEADER_BYTES + bytes_load_u32(t + 3);
        if (n != wanted || at != bytes_load_u32(t + 3) ||
            (n == 0 && !looks_granted((const char *)t + end, bytes - end)))
            return QUIRE_ECORRUPT;
    }
    *json = end < bytes ? (const char *)t + end : NULL;
    *json_bytes = bytes - end;
    *n_grants = n;
    return 0;
}

bool grants_next(const void *text, uint32_t bytes, uint32_t *at, struct grant *out)
{
    uint32_t end = 0;
    const uint8_t *grants = grants_at(text, bytes, &end);
    if (!grants || *at > end || end - *at < GRANT_HEADER_BYTES)
        return false;
    const uint8_t *p = grants + *at;
    uint32_t length = p[4];
    if (length > end - *at - GRANT_HEADER_BYTES)
        return false;
    *out = (struct grant){(const char *)p + GRANT_HEADER_BYTES, length, bytes_load_u32(p)};
    *at += GRANT_HEADER_BYTES + length;
    return true;
}

bool grants_allow(const void *text, uint32_t bytes, const struct tenant_scope *scope)
{
    struct grant grant;
    if (!scope)
        return true;
    for (uint32_t at = 0; scope->n && grants_next(text, bytes, &at, &grant);)
        for (uint32_t i = 0; i < scope->n; i++)
            if (scope->tenants[i].bytes == grant.bytes && scope->tenants[i].generation == grant.generation &&
                memcmp(scope->tenants[i].name, grant.name, grant.bytes) == 0)
                return true;
    return false;
}

/* By name, of one name the latest generation first. */
static int by_name(const void *a, const void *b)
{
    const struct grant *x = a, *y = b;
    int order = format_compare_bytes(x->name, x->bytes, y->name, y->bytes);
    return order ? order : (x->generation < y->generation) - (x->generation > y->generation);
}

/* Leaves of each name the latest; returns how many. */
static uint32_t without_repetition(struct grant *grants, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || grants[i].bytes != grants[kept - 1].bytes ||
            memcmp(grants[i].name, grants[kept - 1].name, grants[i].bytes) != 0)
            grants[kept++] = grants[i];
    return kept;
}

static char *write_joined(const struct grant *grants, uint32_t n, const char *json, uint32_t json_bytes, uint32_t bytes)
{
    char *text = malloc(bytes);
    uint8_t *p = (uint8_t *)text;
    if (!text)
        return NULL;
    if (bytes > json_bytes) {
        p[0] = GRANTS_MARK;
        bytes_store_u16(p + 1, (uint16_t)n);
        bytes_store_u32(p + 3, bytes - json_bytes - GRANTS_HEADER_BYTES);
        p += GRANTS_HEADER_BYTES;
    }
    for (uint32_t i = 0; i < n; i++) {
        bytes_store_u32(p, grants[i].generation);
        p[4] = (uint8_t)grants[i].bytes;
        memcpy(p + GRANT_HEADER_BYTES, grants[i].name, grants[i].bytes);
        p += GRANT_HEADER_BYTES + grants[i].bytes;
    }
    assert((size_t)(p - (uint8_t *)text) + json_bytes == bytes);
    if (json_bytes)
        memcpy(p, json, json_bytes);
    return text;
}

int grants_join(const struct grant *grants, uint32_t n, const char *json, uint32_t json_bytes, char **out,
                uint32_t *out_bytes, struct quire_error *err)
{
    struct grant *sorted = NULL;
    uint64_t bytes = json_bytes;
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = grants_check_tenant(grants[i].name, grants[i].bytes, err);
    if (rc < 0)
        return rc;
    if (n || looks_granted(json, json_bytes))
        bytes += GRANTS_HEADER_BYTES;
    if (n) {
        sorted = malloc(sizeof *sorted * n);
        if (!sorted)
            return error_set(err, QUIRE_ENOMEM, "no memory for %u grants", n);
        memcpy(sorted, grants, sizeof *sorted * n);
        qsort(sorted, n, sizeof *sorted, by_name);
        n = without_repetition(sorted, n);
    }
    for (uint32_t i = 0; i < n; i++)
        bytes += GRANT_HEADER_BYTES + sorted[i].bytes;
    char *text = NULL;
    if (n > GRANTS_MAX)
        rc = error_set(err, QUIRE_ELIMIT, "%u grants: an element has at most %u; grant it to a common tenant instead",
                       n, GRANTS_MAX);
    else if (bytes > ATTRIBUTE_BYTES_MAX)
        rc = error_set(err, QUIRE_ELIMIT, "attributes and grants of %llu bytes: an element has at most %u",
                       (unsigned long long)bytes, ATTRIBUTE_BYTES_MAX);
    else if (bytes && !(text = write_joined(sorted, n, json, json_bytes, (uint32_t)bytes)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for attributes of %llu bytes", (unsigned long long)bytes);
    if (rc == 0) {
        *out = text;
        *out_bytes = (uint32_t)bytes;
    }
    free(sorted);
    return rc;
}

int grants_check_tenant(const char *name, size_t bytes, struct quire_error *err)
{
    if (bytes == 0 || bytes > TENANT_BYTES_MAX || !name)
        return error_set(err, QUIRE_ERANGE, "a tenant's name of %zu bytes: it must have 1..%u", bytes,
                         TENANT_BYTES_MAX);
    return 0;
}
