/*
 * policy_tenant.h - whose request it is: credential -> tenant, by a table of keys or by an HMAC with a secret of ours.
 *
 * A credential is all that tells callers apart: Authorization, api-key, x-api-key, OpenAI-Organization and
 * OpenAI-Project. It is never kept, logged or stored; what remains of it is a HMAC-SHA-256 under a secret that only
 * this gateway (and those that share its cache) has, so that a leaked list of scopes cannot be tried against keys.
 */
#ifndef QUIRE_GATEWAY_POLICY_TENANT_H
#define QUIRE_GATEWAY_POLICY_TENANT_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_HASH_BYTES       32u
#define POLICY_SECRET_BYTES_MIN 16u
#define POLICY_TENANT_BYTES_MAX 128u

enum policy_share {
    POLICY_SHARE_KEY,    /* each credential has a scope of its own */
    POLICY_SHARE_TENANT, /* the keys of one tenant in the key file share */
    POLICY_SHARE_ALL,    /* all callers whose credential the upstream accepts share */
};

/* Text of a credential field; NULL: not given. */
struct policy_field {
    const char *data;
    size_t bytes;
};

struct policy_credential {
    struct policy_field authorization, api_key, x_api_key, organization, project;
};

bool policy_credential_is_empty(const struct policy_credential *credential);
/* HMAC over the fields, each with its length, so that no two different credentials have the same input. False: OpenSSL
 * failed (no memory). */
bool policy_credential_hash(const struct policy_credential *credential, const uint8_t *secret, size_t secret_bytes,
                            uint8_t out[POLICY_HASH_BYTES]);
/* The bare key of Authorization ("Bearer KEY"), api-key or x-api-key; data NULL: there is none. */
struct policy_field policy_credential_key(const struct policy_credential *credential);

/* ---- the key file ------------------------------------------------------------------------------------------------ */

struct policy_keys;

struct policy_key {
    const char *tenant;       /* never NULL */
    const char *upstream_key; /* sent upstream in place of the caller's; NULL: the caller's own goes on */
    const char *categories;   /* names, blanks between, that it may use; NULL: all */
    double rate;              /* requests a second; 0: no limit */
    unsigned concurrent;      /* requests at a time; 0: no limit */
    bool admin;               /* may delete and invalidate */
};

/* JSON: {"keys": [{"sha256": "<64 hex digits of the key's SHA-256>", "tenant": "acme", "upstream_key": "...",
 * "categories": ["faq"], "rate": 10, "concurrent": 4, "admin": false}]}. QUIRE_EPARSE names the entry and what is
 * wrong; QUIRE_EIO; QUIRE_ENOMEM. */
int policy_keys_open(const char *path, struct policy_keys **out, struct quire_error *err);
int policy_keys_parse(const char *text, size_t bytes, struct policy_keys **out, struct quire_error *err);
void policy_keys_free(struct policy_keys *keys); /* NULL is fine */
unsigned policy_keys_n(const struct policy_keys *keys);
/* NULL: not in the file. */
const struct policy_key *policy_keys_find(const struct policy_keys *keys, struct policy_field key);

/* The scope's value for `tenant`: "t:NAME" of the key file, "k:<32 hex digits>" of a credential's hash, "anonymous"
 * (which no name and no hash can be) of who shows no credential, whatever is shared, or "all". NUL-terminated in out.
 * `entry` NULL: not in the key file. */
void policy_tenant_scope(enum policy_share share, const struct policy_key *entry, bool anonymous,
                         const uint8_t hash[POLICY_HASH_BYTES], char out[POLICY_TENANT_BYTES_MAX + 8]);

/* ---- credentials that the upstream accepted lately --------------------------------------------------------------- */

struct policy_accepted;

struct policy_accepted *policy_accepted_create(unsigned n_max); /* the oldest are forgotten; NULL without memory */
void policy_accepted_destroy(struct policy_accepted *accepted);
void policy_accepted_add(struct policy_accepted *accepted, const uint8_t hash[POLICY_HASH_BYTES], uint64_t now_ms,
                         uint64_t ttl_ms);
void policy_accepted_forget(struct policy_accepted *accepted, const uint8_t hash[POLICY_HASH_BYTES]);
bool policy_accepted_has(const struct policy_accepted *accepted, const uint8_t hash[POLICY_HASH_BYTES],
                         uint64_t now_ms);

#endif
