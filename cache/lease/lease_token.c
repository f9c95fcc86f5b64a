/*
 * lease_token.c - tokens of leases, with SipHash-2-4 as their keyed hash.
 *
 * SipHash is a message authentication code: without the secret, a made-up token passes with a chance of 2^-64, however
 * many true ones were seen. A faster hash with a seed (XXH3) promises nothing of that kind, and 22 bytes take well
 * under 100 ns either way. The hash is compared as one number, so that time tells nothing of how much of it agrees;
 * digits are read before that, from text that whoever sent it knows.
 *
 * Epoch and time are readable to the client. They are no secret: both can be had by asking.
 */
#include "cache/lease/lease_token.h"
#include "io/bytes.h"

#define SIGNED_BYTES 22u
#define TOKEN_BYTES  (SIGNED_BYTES + 8u)
_Static_assert(2 * TOKEN_BYTES < LEASE_TOKEN_BYTES, "the text and its 0 fit");

static uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_rounds(uint64_t v[4], unsigned rounds)
{
    while (rounds--) {
        v[0] += v[1], v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1], v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
}

uint64_t lease_siphash(const uint64_t key[2], const uint8_t *data, size_t n)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull, key[0] ^ 0x6c7967656e657261ull,
                     key[1] ^ 0x7465646279746573ull};
    size_t whole = n / 8 * 8;
    for (size_t i = 0; i < whole; i += 8)
        sip_word(v, bytes_load_u64(data + i));
    uint64_t last = (uint64_t)n << 56;
    for (size_t i = whole; i < n; i++)
        last |= (uint64_t)data[i] << 8 * (i - whole);
    sip_word(v, last);
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint8_t *append(uint8_t *at, uint64_t number, unsigned bytes)
{
    while (bytes--)
        *at++ = (uint8_t)(number >> 8 * bytes);
    return at;
}

static uint64_t number(const uint8_t *at, unsigned bytes)
{
    uint64_t x = 0;
    while (bytes--)
        x = x << 8 | *at++;
    return x;
}

void lease_token_write(const struct lease_token *token, const uint64_t secret[2], char out[LEASE_TOKEN_BYTES])
{
    uint8_t bytes[TOKEN_BYTES], *at = bytes;
    at = append(at, token->epoch, 8);
    at = append(at, token->granted_ms, 6);
    at = append(at, token->nonce, 8);
    append(at, lease_siphash(secret, bytes, SIGNED_BYTES), 8);
    bytes_to_hex(bytes, TOKEN_BYTES, out);
}

bool lease_token_read(struct quire_bytes text, const uint64_t secret[2], struct lease_token *out)
{
    uint8_t bytes[TOKEN_BYTES];
    if (text.n_bytes != sizeof bytes * 2 || !bytes_from_hex((const char *)text.data, TOKEN_BYTES, bytes))
        return false;
    if (number(bytes + SIGNED_BYTES, 8) != lease_siphash(secret, bytes, SIGNED_BYTES))
        return false;
    *out = (struct lease_token){number(bytes, 8), number(bytes + 8, 6), number(bytes + 14, 8)};
    return true;
}
