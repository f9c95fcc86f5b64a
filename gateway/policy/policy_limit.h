/*
 * policy_limit.h - how much a tenant may ask: a rate (a bucket of tokens) and a number of requests at a time.
 */
#ifndef QUIRE_GATEWAY_POLICY_LIMIT_H
#define QUIRE_GATEWAY_POLICY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct policy_limits;
struct policy_limit; /* of one tenant; valid while it has requests under way */

/* Tenants without requests under way are forgotten once n_max are known, the longest unused first. NULL: no memory. */
struct policy_limits *policy_limits_create(unsigned n_max);
void policy_limits_destroy(struct policy_limits *limits);

/* Takes one request of the tenant in: *retry_ms 0 and a handle to be given back, or NULL. NULL with *retry_ms > 0: over
 * the limit, and when to come again. NULL with *retry_ms 0: not counted (nothing is limited, or no memory). A rate of r
 * lets max(1, r) requests through at once. rate 0, concurrent 0: no limit. */
struct policy_limit *policy_limit_enter(struct policy_limits *limits, const char *tenant, double rate,
                                        unsigned concurrent, uint64_t now_ms, uint64_t *retry_ms);
void policy_limit_leave(struct policy_limit *limit); /* NULL is fine */

#endif
