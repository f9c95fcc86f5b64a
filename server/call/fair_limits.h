/*
 * fair_limits.h - what a tenant may ask for and how much of a crowded server is its: the setting tenant-limits.
 *
 *   acme weight=4 rate=200 k=100; user:batch weight=1 concurrent=2; * rate=1000
 *
 * An entry names a tenant, a user (`user:NAME`: requests of that user which name no tenant), or everybody (`*`). What
 * an entry does not say is as `*` says, and without that unlimited, with weight 1; 0 is unlimited. In names, blanks,
 * ';', '=', '%', '*' and ':' are written as %XX.
 */
#ifndef QUIRE_SERVER_FAIR_LIMITS_H
#define QUIRE_SERVER_FAIR_LIMITS_H

#include "quire.h"

enum {
    FAIR_WEIGHT_MAX = 1000,
    FAIR_RATE_MAX = 1000000,
    FAIR_CONCURRENT_MAX = 1000000,
    FAIR_ENTRIES_MAX = 100000,
    FAIR_NAME_BYTES_MAX = 255
};

/* 0: no limit; the weight is never 0. */
struct fair_limits {
    uint64_t weight;
    uint64_t rate;         /* queries per second */
    uint64_t k;            /* results of one query */
    uint64_t effort;       /* of one query */
    uint64_t filter_bytes; /* of one expression */
    uint64_t concurrent;   /* requests at once, on all connections */
};

/* Whose share a request counts for. */
enum fair_kind { FAIR_TENANT = 't', FAIR_USER = 'u' };

struct fair_limit_table;

/* QUIRE_EINVALID, QUIRE_ERANGE, QUIRE_EEXISTS (a name given twice), QUIRE_ELIMIT with a sentence that shows the word
 * and says what would be right. */
int fair_limits_parse(const char *text, struct fair_limit_table **out, struct quire_error *err);
void fair_limits_free(struct fair_limit_table *table); /* NULL is fine */
/* Never NULL; O(log n). */
const struct fair_limits *fair_limits_find(const struct fair_limit_table *table, enum fair_kind kind, const char *name,
                                           uint32_t bytes);

#endif
