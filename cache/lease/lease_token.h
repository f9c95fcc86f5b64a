/*
 * lease_token.h - a lease as text that a client carries: written, and recognised when it comes back.
 *
 * 60 lower-case hexadecimal digits: epoch (8 bytes), granted_ms (6), nonce (8), all big-endian, and SipHash-2-4 of
 * these 22 bytes under the cache's secret (8). There is one text for each token.
 */
#ifndef QUIRE_CACHE_LEASE_TOKEN_H
#define QUIRE_CACHE_LEASE_TOKEN_H

#include "cache/lease/lease.h"

struct lease_token {
    uint64_t epoch, granted_ms; /* granted_ms: its low 48 bits go into the text (8,900 years) */
    uint64_t nonce;
};

void lease_token_write(const struct lease_token *token, const uint64_t secret[2], char out[LEASE_TOKEN_BYTES]);
/* False, *out untouched: not written under this secret. */
bool lease_token_read(struct quire_bytes text, const uint64_t secret[2], struct lease_token *out);

/* SipHash-2-4 (Aumasson and Bernstein, 2012). */
uint64_t lease_siphash(const uint64_t key[2], const uint8_t *data, size_t n);

#endif
