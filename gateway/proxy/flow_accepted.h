/*
 * flow_accepted.h - which credentials the upstreams have accepted lately: only those get answers of the cache.
 */
#ifndef QUIRE_GATEWAY_FLOW_ACCEPTED_H
#define QUIRE_GATEWAY_FLOW_ACCEPTED_H

#include "gateway/policy/policy_tenant.h"

struct flow;

/* An answer's status, of the upstreams of this model ("": none was named): 2xx accepts the credential there for
 * auth-ttl, 401 and 403 forget it. To be told of 2xx only where the upstream would have refused others: requests on the
 * cache's routes, and the proof. */
void flow_accepted_note(struct flow *flow, const uint8_t credential[POLICY_HASH_BYTES], const char *model, int status);
/* Whether the upstreams of this model have accepted it lately. */
bool flow_accepted_has(const struct flow *flow, const uint8_t credential[POLICY_HASH_BYTES], const char *model);
/* Whether those of any model have. */
bool flow_accepted_somewhere(const struct flow *flow, const uint8_t credential[POLICY_HASH_BYTES]);

#endif
