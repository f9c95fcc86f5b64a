/*
 * flow_accepted.c - who was accepted by whom.
 *
 * What is remembered is one hash of the credential and of the group of upstreams (upstream_group) that took it: each
 * group has accounts of its own, and one that asks for no key takes every key.
 */
#include "gateway/proxy/flow_accepted.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/settings/settings.h"
#include "io/clock.h"
#include <openssl/sha.h>
#include <string.h>

_Static_assert(POLICY_HASH_BYTES == SHA256_DIGEST_LENGTH, "an acceptance is a SHA-256 in the table of credentials");

/* False: OpenSSL has no memory. */
static bool name_acceptance(const uint8_t credential[POLICY_HASH_BYTES], const char *group,
                            uint8_t out[POLICY_HASH_BYTES])
{
    uint8_t both[2 * POLICY_HASH_BYTES];
    memcpy(both, credential, POLICY_HASH_BYTES);
    return SHA256((const uint8_t *)group, strlen(group), both + POLICY_HASH_BYTES) && SHA256(both, sizeof both, out);
}

static const char *group_of(const struct flow *flow, const char *model)
{
    const char *group = upstream_group(flow->upstreams, *model ? model : NULL);
    return group ? group : "";
}

void flow_accepted_note(struct flow *flow, const uint8_t credential[POLICY_HASH_BYTES], const char *model, int status)
{
    uint8_t name[POLICY_HASH_BYTES];
    if (!name_acceptance(credential, group_of(flow, model), name))
        return;
    if (status >= 200 && status < 300)
        policy_accepted_add(flow->accepted, name, clock_us() / 1000, (uint64_t)flow->settings->auth_ttl);
    else if (status == 401 || status == 403)
        policy_accepted_forget(flow->accepted, name);
}

static bool has(const struct flow *flow, const uint8_t credential[POLICY_HASH_BYTES], const char *group)
{
    uint8_t name[POLICY_HASH_BYTES];
    return name_acceptance(credential, group, name) && policy_accepted_has(flow->accepted, name, clock_us() / 1000);
}

bool flow_accepted_has(const struct flow *flow, const uint8_t credential[POLICY_HASH_BYTES], const char *model)
{
    return has(flow, credential, group_of(flow, model));
}

bool flow_accepted_somewhere(const struct flow *flow, const uint8_t credential[POLICY_HASH_BYTES])
{
    for (uint32_t i = 0; i < flow->settings->n_upstreams; i++)
        if (has(flow, credential, flow->settings->upstreams[i].name))
            return true;
    return false;
}
