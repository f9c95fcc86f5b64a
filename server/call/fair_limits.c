/*
 * fair_limits.c - the text of tenant-limits, understood as a whole or refused with a sentence.
 *
 * Entries are parted by ';', their words by blanks: a name, then `limit=number`. They are kept sorted by kind and name.
 * Each entry first holds what it says itself; when all are read, what it does not say is taken from `*`, wherever that
 * stands. A name or a limit that is given twice is refused: one of the two would be ignored.
 */
#include "server/call/fair_limits.h"
#include "io/array.h"
#include "io/error.h"
#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct fair_limits limits;
    unsigned given; /* bits of `known` */
    enum fair_kind kind;
    uint32_t bytes;
    char name[FAIR_NAME_BYTES_MAX + 1];
};

struct fair_limit_table {
    struct fair_limits usual;
    uint32_t n, capacity;
    struct entry *entries; /* sorted */
};

static const struct {
    const char *name;
    size_t place;
    uint64_t least, most;
} known[] = {{"weight", offsetof(struct fair_limits, weight), 1, FAIR_WEIGHT_MAX},
             {"rate", offsetof(struct fair_limits, rate), 0, FAIR_RATE_MAX},
             {"k", offsetof(struct fair_limits, k), 0, QUIRE_K_MAX},
             {"effort", offsetof(struct fair_limits, effort), 0, UINT32_MAX},
             {"filter-bytes", offsetof(struct fair_limits, filter_bytes), 0, UINT32_MAX},
             {"concurrent", offsetof(struct fair_limits, concurrent), 0, FAIR_CONCURRENT_MAX}};
enum { N_KNOWN = sizeof known / sizeof *known };

static uint64_t *limit_at(struct fair_limits *limits, unsigned i)
{
    return (uint64_t *)(void *)((char *)limits + known[i].place);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static int hex_value(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

/* "name", "user:name" or "*", with %XX for what is no plain character. `*` leaves no name. */
static int parse_name(const char *word, size_t bytes, struct entry *out, struct quire_error *err)
{
    static const char user[] = "user:";
    size_t at = 0;
    out->kind = FAIR_TENANT;
    if (bytes == 1 && *word == '*')
        return 0;
    if (bytes >= sizeof user - 1 && memcmp(word, user, sizeof user - 1) == 0) {
        out->kind = FAIR_USER;
        at = sizeof user - 1;
    }
    for (; at < bytes; at++) {
        int c = (unsigned char)word[at];
        if (c == '%') {
            int high = at + 2 < bytes ? hex_value(word[at + 1]) : -1, low = high >= 0 ? hex_value(word[at + 2]) : -1;
            c = low >= 0 ? 16 * high + low : -1;
            at += 2;
        } else if (strchr("*:=", c)) {
            c = -1;
        }
        if (c < 0)
            return error_set(
                err, QUIRE_EINVALID,
                "tenant-limits: '%.*s' is not a name: a tenant, user:NAME or *; write %% * : = ; and blanks "
                "in a name as %%25 %%2A %%3A %%3D %%3B %%20",
                (int)(bytes < 64 ? bytes : 64), word);
        if (out->bytes == FAIR_NAME_BYTES_MAX)
            return error_set(err, QUIRE_ERANGE, "tenant-limits: the name '%.64s...' is longer than %d bytes", word,
                             FAIR_NAME_BYTES_MAX);
        out->name[out->bytes++] = (char)c;
    }
    if (out->bytes == 0)
        return error_set(err, QUIRE_EINVALID, "tenant-limits: '%.*s' names nobody", (int)bytes, word);
    return 0;
}

/* "limit=number". */
static int parse_limit(const char *word, size_t bytes, struct entry *out, struct quire_error *err)
{
    const char *equals = memchr(word, '=', bytes);
    size_t name_bytes = equals ? (size_t)(equals - word) : bytes, digits = bytes - name_bytes - (equals != NULL);
    unsigned i = 0;
    uint64_t number = 0;
    while (i < N_KNOWN && (strlen(known[i].name) != name_bytes || memcmp(known[i].name, word, name_bytes) != 0))
        i++;
    if (!equals || i == N_KNOWN)
        return error_set(err, QUIRE_EINVALID,
                         "tenant-limits: '%.*s' is not a limit: weight=, rate=, k=, effort=, filter-bytes= or "
                         "concurrent= and a number; entries are parted by ';'",
                         (int)(bytes < 64 ? bytes : 64), word);
    if (digits == 0 || strspn(equals + 1, "0123456789") < digits)
        return error_set(err, QUIRE_EINVALID, "tenant-limits: '%.*s' is not a whole number",
                         (int)(bytes < 64 ? bytes : 64), word);
    for (const char *p = equals + 1; p < word + bytes; p++)
        number = number > known[i].most ? number : 10 * number + (uint64_t)(*p - '0');
    if (number < known[i].least || number > known[i].most)
        return error_set(err, QUIRE_ERANGE, "tenant-limits: '%.*s' is out of range: %s is %" PRIu64 " to %" PRIu64 "%s",
                         (int)(bytes < 64 ? bytes : 64), word, known[i].name, known[i].least, known[i].most,
                         known[i].least == 0 ? " (0: no limit)" : "");
    if (out->given & 1u << i)
        return error_set(err, QUIRE_EEXISTS, "tenant-limits: %s= is given twice for '%s'", known[i].name,
                         out->bytes ? out->name : "*");
    out->given |= 1u << i;
    *limit_at(&out->limits, i) = number;
    return 0;
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

static int compare(enum fair_kind kind, const char *name, uint32_t bytes, const struct entry *e)
{
    if (kind != e->kind)
        return kind < e->kind ? -1 : 1;
    int order = memcmp(name, e->name, bytes < e->bytes ? bytes : e->bytes);
    return order ? order : (bytes > e->bytes) - (bytes < e->bytes);
}

static int by_name(const void *left, const void *right)
{
    const struct entry *a = left;
    return compare(a->kind, a->name, a->bytes, right);
}

/* The words up to the next ';', which *at then stands behind. Nothing but blanks is no entry. */
static int parse_entry(struct fair_limit_table *t, const char **at, struct quire_error *err)
{
    static const char blanks[] = " \t";
    const char *end = *at + strcspn(*at, ";"), *p = *at + strspn(*at, blanks);
    *at = *end ? end + 1 : end;
    if (p >= end)
        return 0;
    if (t->n == FAIR_ENTRIES_MAX)
        return error_set(err, QUIRE_ELIMIT, "tenant-limits: more than %d entries", FAIR_ENTRIES_MAX);
    if (!array_reserve(&t->entries, &t->capacity, (size_t)t->n + 1))
        return error_set(err, QUIRE_ENOMEM, "no memory for tenant-limits");
    struct entry *e = &t->entries[t->n++];
    *e = (struct entry){.limits.weight = 1};
    int rc = 0;
    for (bool first = true; rc == 0 && p < end; first = false) {
        size_t bytes = strcspn(p, " \t;");
        rc = first ? parse_name(p, bytes, e, err) : parse_limit(p, bytes, e, err);
        p += bytes;
        p += strspn(p, blanks);
    }
    if (rc == 0 && e->given == 0)
        rc = error_set(err, QUIRE_EINVALID,
                       "tenant-limits: '%s' has no limits: give weight=, rate=, k=, effort=, "
                       "filter-bytes= or concurrent=",
                       e->bytes ? e->name : "*");
    return rc;
}

/* Sorted; `*` gone, its limits where others say nothing. */
static int finish(struct fair_limit_table *t, struct quire_error *err)
{
    if (t->n > 0)
        qsort(t->entries, t->n, sizeof *t->entries, by_name);
    for (uint32_t i = 1; i < t->n; i++)
        if (by_name(&t->entries[i - 1], &t->entries[i]) == 0)
            return error_set(err, QUIRE_EEXISTS, "tenant-limits: '%s' is given twice: put its limits into one entry",
                             t->entries[i].bytes ? t->entries[i].name : "*");
    t->usual = (struct fair_limits){.weight = 1};
    for (uint32_t i = 0; i < t->n; i++)
        if (t->entries[i].bytes == 0)
            t->usual = t->entries[i].limits;
    for (uint32_t i = 0; i < t->n; i++)
        for (unsigned k = 0; k < N_KNOWN; k++)
            if (!(t->entries[i].given & 1u << k))
                *limit_at(&t->entries[i].limits, k) = *limit_at(&t->usual, k);
    return 0;
}

int fair_limits_parse(const char *text, struct fair_limit_table **out, struct quire_error *err)
{
    int rc = 0;
    struct fair_limit_table *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, QUIRE_ENOMEM, "no memory for tenant-limits");
    while (rc == 0 && *text)
        rc = parse_entry(t, &text, err);
    if (rc == 0)
        rc = finish(t, err);
    if (rc < 0) {
        fair_limits_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void fair_limits_free(struct fair_limit_table *t)
{
    if (t)
        free(t->entries);
    free(t);
}

const struct fair_limits *fair_limits_find(const struct fair_limit_table *t, enum fair_kind kind, const char *name,
                                           uint32_t bytes)
{
    uint32_t low = 0, high = t->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare(kind, name, bytes, &t->entries[middle]);
        if (order == 0)
            return &t->entries[middle].limits;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return &t->usual;
}
